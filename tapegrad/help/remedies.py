"""What each error's short name means, and what to write instead.

`REMEDIES` maps the name in brackets at the end of a message (`[plain-value]`) to why such an error exists and to its remedy, in Markdown.
The guide's page of errors and `python -m tapegrad error NAME` are written from this table. Invariant: a name stands in the table if and
only if the library raises an error of that name.
"""

from __future__ import annotations

REMEDIES: dict[str, tuple[str, str]] = {
    "bound-anew": (
        "Where a function joins tracked numbers by NumPy, or fills its buffers, copies of what it reaches by name run in its place. "
        "During the call, code that it does not reach by name gave a method or a variable of a closure another value.",
        "Bind the method or the variable before the call. Or write `with tg.plain_buffers():` around the call, which makes no copies, "
        "and make arrays by `tg.zeros` and `tg.stack`.",
    ),
    "changed-since": (
        "The derivative runs your function again, and the function gave another value than the first time: an array, a global "
        "or a variable that it reads has changed, or it draws random numbers. The derivative would be that of another function.",
        "Pass what changes as an argument (`args=`), or copy it before the call. Draw random numbers outside and pass them in.",
    ),
    "checked-access": (
        "In checked mode (`TAPEGRAD_CHECK=1`) generated code read memory that was never written, or left its array.",
        "First run a Numba function with `numba.njit(boundscheck=True)`: an index of your own may be out of range. Otherwise "
        "the fault is tapegrad's: no result of that code can be trusted. Run the function without `tg.compile`, and report it.",
    ),
    "freed-graph": (
        "The graph of a value is walked once: the first `backward()` frees the values that it saved.",
        "Write `y.backward(retain_graph=True)` if you walk it again, or compute `y` again. For several outputs, `tg.vjp` or "
        "`tg.jacobian` keep what they need. Ask for `grad_fn` and its attributes while the result is held.",
    ),
    "frozen-value": (
        "`tg.compile` records a function once. Python looked at something that changes from call to call (a value in `if`, a "
        "random number, a clock, an address), and the program would keep what the first call saw.",
        "Choose with `np.where` or `tg.where`, compute with NumPy's functions instead of `math`'s, write loops over values with"
        " `tg.njit` or `tg.while_loop`. Draw random numbers and read clocks outside and pass them as arguments. "
        "[Compiling](compile.md) lists what is guarded.",
    ),
    "high-order": (
        "The derivative of this order has no rule: native functions have three, and some rules have one.",
        "Write the function in NumPy on tensors where you need more, or take the outer derivative in forward mode (`tg.jvp`, "
        '`tg.jacobian` with `mode="forward"`).',
    ),
    "in-place": (
        "A write would change a value that a derivative still needs, or a leaf, whose gradient would be that of another value.",
        "Write to a copy (`t.clone()`), use the out-of-place form (`w = w - lr * g`), or write inside `with tg.no_grad():`. [In"
        " place and views](in_place.md) says what may be written.",
    ),
    "independent-value": (
        "A warning: nothing leads from the arguments to the value of the function, so the gradient is zero. It was nearly "
        "always lost on the way, by `t.item()`, `t.detach()`, `tg.no_grad()` or a comparison.",
        "Compute the value from the argument by NumPy's functions. If zero is meant, write `allow_unused=True`.",
    ),
    "left-placeholder": (
        "While `tg.compile` traced a function, the function stored a value outside (in a list, a global, an attribute). That "
        "value is a placeholder, which means nothing afterwards.",
        "Return the value from the function, and store what the compiled function returns.",
    ),
    "missing-program": (
        "A program beside Python is needed and was not found.",
        "Install it as the message says, or use the text form that needs no program.",
    ),
    "native-source": (
        "`tg.njit` makes the derivative from the function's source and from Numba's types; this construct, argument or source "
        "has none.",
        "First let plain `numba.njit` accept the function, with numbers and arrays as arguments. Write what is refused as a "
        "loop over numbers, or give its derivative with `tg.njit_vjp`. `f.explain(...)` tells which engine takes what. "
        "[Numba](njit.md) lists what is known.",
    ),
    "native-writes": (
        "A native function writes to an argument, and the write has no place on the tape, or two arguments share memory.",
        "Let the function work on a copy (`x = x.copy()`) and return what it made. Pass a copy of one of two arguments that "
        "share memory.",
    ),
    "no-rule": (
        "A derivative was asked by an argument, or of a form of a function, for which no rule exists.",
        "Write it with functions that have a rule (`python -m tapegrad names WORD` finds them), or give the rule yourself "
        "(`tg.autograd.Function`). If no gradient is wanted, pass `t.detach()`.",
    ),
    "no-slope-here": (
        "The function has no derivative at this point: two eigenvalues are equal, a matrix is singular, a root is double, a "
        "weight is infinite.",
        "Differentiate what does not depend on the choice (a sum over the equal eigenvalues), use a smooth form, or move the "
        "point.",
    ),
    "no-solution": (
        "The derivative of a solution was asked, but no solution is there that moves smoothly with the parameters: the solver "
        "did not converge, the Jacobian is singular, or it is not clear which constraints are active.",
        "Let the solver go on (smaller tolerances, more steps), start nearer, or take an unknown out that nothing decides. Pass"
        " `t.detach()` to look at the result without derivatives.",
    ),
    "not-finite": (
        "`tg.autograd.detect_anomaly` or `debug_nans` was on, and a value or a gradient became NaN or infinite.",
        "The message names the operation and its operands. Keep its argument inside its domain, for example by `np.where(x > 0,"
        " np.log(np.where(x > 0, x, 1)), 0)`.",
    ),
    "not-real": (
        "A derivative needs real numbers here, and the value or argument is complex, a truth value or a count.",
        "Take `.real`, `.imag` or `np.abs` of a complex value, or differentiate by real and imaginary part. For a comparison or"
        " a count, return something smooth instead.",
    ),
    "not-scalar": (
        "A gradient belongs to one number, and the function returned an array.",
        "Write `tg.jacobian(f)`, or reduce the output, as `np.sum` does. `t.backward(gradient=g)` takes weights of the output's"
        " shape.",
    ),
    "not-tracked": (
        "Nothing is recorded for this value: no operand requires grad, or it was computed under `no_grad` or from `detach()`.",
        "Set `requires_grad=True` on what you differentiate by, before the value is computed.",
    ),
    "outside-program": (
        "`tg.compile` makes one program of arrays and numbers of fixed shapes, and this step is none of it: a sparse "
        "matrix whose pattern is an argument, a solution between steps, an object.",
        "Leave that call outside of the compiled function (solvers compile the functions that they are given by themselves), or"
        " mark the argument as static (`static_argnums`). A function of Numba's becomes part of the program by `tg.njit`.",
    ),
    "plain-array": (
        "A plain ndarray cannot be tracked, so a tracked value stored in it would lose its gradient.",
        "Make the buffer a tensor (`tg.zeros(n)` instead of `np.zeros(n)`), join values with `tg.stack`, and write `a = a + t` "
        "for `a += t`. Leave out `out=`.",
    ),
    "plain-value": (
        "A tracked value was about to become a plain number or array, which is not tracked: `math.sin(t)`, `float(t)`, "
        "`np.asarray(t)`, `t.numpy()`, or a function of SciPy that computes with plain numbers.",
        "Use NumPy's function (`np.sin(t)`), an index (`t[i]`), `t.astype(np.float64)`, `tg.stack([t, u])`, and for SciPy's "
        "functions those of `tg.special`, `tg.stats`, `tg.integrate`. If no gradient is wanted, write `t.detach()` first.",
    ),
    "reads-outside": (
        "A compiled function reads something beside its arguments that changes, that it changes itself, or that cannot be "
        "looked at in each call.",
        "Pass it as an argument, and return the new value.",
    ),
    "traced-store": (
        "While `tg.compile` traced a function, the function would write into an argument, into a plain array from outside, or "
        "into memory that a view shares. The program would not repeat that write.",
        "Write to a copy (`x = x.copy()`), make the buffer a tensor inside the function (`tg.zeros(n)`), index in one step "
        "(`x[0, 1] = y`, not `x[0][1] = y`), or build the result with `np.stack` or `np.where`.",
    ),
    "unrecorded-update": (
        "An update of parameters (an optimiser's step, clipping, `backward()`) was asked inside a transform. It is not "
        "recorded, so the derivative through it would be lost.",
        "Write the update as an expression: `w = w - lr * g` with `g` from `tg.grad` or `tg.autograd.grad(..., "
        "create_graph=True)`. If no gradient is wanted, `detach()` what is differentiated.",
    ),
    "unused-input": (
        "A gradient was asked by a tensor that the value does not depend on.",
        "Look for the place where another variable was used, or where the value left the tape. If none is meant, write "
        "`allow_unused=True`.",
    ),
    "wrong-form": (
        "A rule, a hook or an argument gave a gradient of another shape or dtype than the value that it belongs to.",
        "Return an array of the operand's shape and dtype (sum over the axes that were broadcast).",
    ),
    "wrong-gradient": (
        "A check found a derivative that is not that of the function; the message shows both, and what is probably wrong.",
        "[Checking](checking.md) says how to read the report. Mend the rule that the message names; where the function has a "
        "kink at this point, check at another point.",
    ),
    "wrong-pattern": (
        "The pattern of a sparse derivative lacks entries, or cannot be detected.",
        "Give a larger pattern, `sparsity=` a sparse matrix with an entry at each place that may be nonzero, or "
        '`sparsity="detect"`.',
    ),
}


def page() -> str:
    """The part of the guide's page of errors that follows from the table: a heading for each name, why, and the remedy."""
    return "\n\n".join(
        f"### {name}\n\n{why}\n\n**Remedy.** {remedy}" for name, (why, remedy) in REMEDIES.items()
    )


__all__ = ["REMEDIES", "page"]
