"""Loops that say what they carry: `scan`, `map`, `fori_loop`, `while_loop`, and `cond` and `switch` for a choice; `checkpoint` for any
function; `associative_scan`, which needs no steps one by one.

They run as ordinary Python, so every step is on the tape and reverse mode goes back through all of them, `while_loop` included;
inside `tg.compile` one step is traced for all, where that gives the same (compiler/iteration.py). With `checkpoint` the steps go
in *segments*: each is one entry of the tape that keeps what went in, and its steps are run again, and recorded, when the walk
comes back to it (Griewank, Walther, Evaluating Derivatives, 2nd ed., section 12.1): n steps in segments of k keep n / k carries and
k steps instead of n steps. Variables that the steps close over mean then what they did (closures.py).

Invariant: with and without checkpoints, values and derivatives are the same, or there is an error.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, ParamSpec, TypeVar

import numpy as np

from ..core import seams, storage, sweep
from ..core.closures import Cells, closed_over
from ..core.dual import LEVEL
from ..core.mode import enable_grad, is_grad_enabled, no_grad
from ..core.packing import flat, inexact, is_inexact, op_of_calls, unpacked
from ..core.primitive import apply
from ..core.tape import IN0, IN1, SLOT, STRIDE, Leaf
from ..core.tensor import Tensor, unmasked, value_of, wrap
from ..errors import GraphError, NotDifferentiable, demand_callable
from ..ops.shaping import laid_like
from .derivatives import _flatten, _Run, _unflatten

Tree = Any
P = ParamSpec("P")
R = TypeVar("R")
Step = Callable[[Tree, Any], tuple[Tree, Tree]]

SEGMENT = 100
"""Steps in a segment of `while_loop` where the user named no number: how many there will be is not known."""


# ---------------------------------------------------------------------------------------------------- the public names


def scan(
    f: Step,
    init: Tree,
    xs: Tree = None,
    length: int | None = None,
    *,
    reverse: bool = False,
    unroll: int | bool = 1,
    checkpoint: int | bool = False,
) -> tuple[Tree, Tree]:
    """The last carry and all results of `carry, y = f(carry, x)`, for the entries x of `xs` along its first axis, one by one.

    `init`, `xs` and `y` are pytrees; each leaf of `xs` has the same length, and without `xs` there are `length` steps with x = None.
    The results come stacked along a new first axis, None where f returns None for y. `reverse` begins at the last entry; results
    stay in the order of `xs`. `checkpoint` is the number of steps that are kept at once for reverse mode (True: √n); then `f` runs
    twice and must give the same again, else GraphError. `unroll` is taken as in JAX, where it is advice to the compiler, and changes
    nothing. For no steps the results are empty: `f` runs once, on zeros in the place of x, to see their shapes. Raises ValueError for
    lengths that differ, and where the carry changes its shape.

    >>> import numpy as np, tapegrad as tg
    >>> tg.scan(lambda total, x: (total + x, total * x), 0.0, np.array([1.0, 2.0, 3.0]))
    (np.float64(6.0), array([0., 2., 9.]))
    >>> tg.grad(lambda x: tg.scan(lambda c, a: (np.sin(c) * a, None), x[0], x)[0])(np.array([1.0, 2.0]))
    array([1.84153554, 0.74562414])
    """
    demand_callable(f, "scan")
    _advice(unroll, "scan")
    return _scanned("scan", f, init, xs, length, reverse, checkpoint)


def map(f: Callable[[Any], Tree], xs: Tree, *, checkpoint: int | bool = False) -> Tree:
    """The results of `f(x)` for the entries x of `xs` along its first axis, one by one, stacked along a new first axis.

    `xs` and the results are pytrees; each leaf of `xs` has the same length. `checkpoint` is the number of calls that are kept at once for
    reverse mode (True: √n). Of no entries the results are empty: `f` runs once, on zeros, to see their shapes. NumPy's functions on
    the whole of `xs` are faster, where `f` can be written with them. Raises ValueError for lengths that differ.

    >>> import numpy as np, tapegrad as tg
    >>> tg.map(lambda x: x @ x, np.array([[1.0, 2.0], [3.0, 4.0]]))
    array([ 5., 25.])
    """
    demand_callable(f, "map")
    return mapped("map", f, xs, checkpoint)


def mapped(name: str, f: Callable[[Any], Tree], xs: Tree, checkpoint: int | bool) -> Tree:
    """`map`, under the name that the user called."""

    def step(_: None, x: Any) -> tuple[None, Tree]:
        y = f(x)
        if y is None:
            raise TypeError(
                f"the function given to {name} returned None, which cannot be stacked. Does it end with a return?"
            )
        return None, y

    return _scanned(name, step, None, xs, None, False, checkpoint)[1]


def associative_scan(
    fn: Callable[[Tree, Tree], Tree], elems: Tree, reverse: bool = False, axis: int = 0
) -> Tree:
    """All running results of an associative `fn` along an axis: e0, fn(e0, e1), fn(fn(e0, e1), e2), ... for the entries e of `elems`.

    `elems` and the result are pytrees, each leaf of the same length n along `axis` (of the first leaf, if negative). `fn` is given two of
    them, with as many slices along `axis` as come together at once, the one in front first; it joins them slice by slice, returns
    the same shapes, and writes to neither. It is called some 2 log₂ n times, for 2 n slices in all (R. Ladner, M. Fischer, Parallel Prefix
    Computation, 1980): for NumPy less work than the n steps of `scan`, of which `tg.compile` makes the quicker loop. `reverse` begins at
    the last entry. Raises ValueError for lengths that differ, and where `fn` changes shapes or structure, or writes.

    >>> import numpy as np, tapegrad as tg
    >>> a, b = np.array([0.5, 2.0, 1.0]), np.array([1.0, 0.0, 3.0])
    >>> tg.associative_scan(lambda p, q: (q[0] * p[0], q[0] * p[1] + q[1]), (a, b))[1]  # y = a y + b, beginning with 0
    array([1., 2., 5.])
    """
    demand_callable(fn, "associative_scan")
    leaves, structure = _tree(elems)
    shapes = _shapes(leaves)
    dims = len(shapes[0]) if shapes else 0
    axis = operator.index(axis)
    place = axis + dims if axis < 0 else axis
    if not 0 <= place < dims or len({shape[place : place + 1] for shape in shapes}) != 1:
        told = ", ".join(str(shape) for shape in shapes) or "no arrays"
        raise ValueError(
            f"associative_scan was given {told} and axis={axis}, but goes along that axis of each leaf of elems, all of one length. "
            "Give elems of equal length, and an axis that they have."
        )

    def joined(before: list[Any], after: list[Any]) -> list[Any]:
        """Join two runs of entries by the user's function; an error where it writes to them or changes their form."""
        given = [*before, *after]
        for x in given:
            if type(x) is np.ndarray:
                x.flags.writeable = False  # slices of our own, which the user's arrays lie under
        states = [_state(x) for x in given]
        made, arrangement = _tree(fn(_rebuilt(structure, before), _rebuilt(structure, after)))
        if any(_state(x) != state for x, state in zip(given, states, strict=True)):
            raise ValueError(
                "the function given to associative_scan writes to what it is given, which is read again afterwards. Return new arrays: "
                "a + b in the place of a += b."
            )
        if arrangement != structure or _shapes(made) != _shapes(before):
            raise ValueError(
                f"the function given to associative_scan made shapes {_shapes(made)} of twice {_shapes(before)}, or arranged them in "
                "another way, but what it returns is joined with more of them. Return what looks like either argument."
            )
        return made

    if shapes[0][place] < 2:
        return _rebuilt(structure, [np.copy(x) for x in leaves])
    turned = [np.flip(x, place) for x in leaves] if reverse else leaves
    found = _running(joined, turned, place)
    return _rebuilt(structure, [np.flip(x, place) for x in found] if reverse else found)


def fori_loop(
    lower: int,
    upper: int,
    body: Callable[[int, Tree], Tree],
    init: Tree,
    *,
    unroll: int | bool | None = None,
    checkpoint: int | bool = False,
) -> Tree:
    """The value after `for i in range(lower, upper): value = body(i, value)`, beginning with `init`.

    `checkpoint` is the number of steps that are kept at once for reverse mode (True: √n). Inside `tg.compile` whole numbers that
    the program computes may be bounds, too: one program for all of them. `unroll` is taken as in JAX, and changes nothing. Raises
    ValueError where the value changes its shape or structure.

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda x: tg.fori_loop(0, 3, lambda i, v: v * x, 1.0))(2.0)
    12.0
    """
    demand_callable(body, "fori_loop")
    _advice(unroll, "fori_loop")

    def counting(state: tuple[Any, Tree], _: Any) -> tuple[Tree, None]:
        """A step in a program, which carries the number of the step: no array holds them all."""
        i, value = state
        return (i + 1, body(i, value)), None

    if _counts_later(lower, upper):  # a program's own numbers: as many steps as they say
        test = lambda state: state[0] < value_of(upper)  # noqa: E731
        done = looped("fori_loop", (body,), counting, (value_of(lower), init), None, None, test=test)  # fmt: skip
        if done is not None:
            return done[0][1]
    try:
        steps = range(int(lower), int(upper))
        fits = lower == steps.start and upper == steps.stop
    except (TypeError, ValueError):  # text, None, an array, nan
        fits = False
    if not fits:
        raise TypeError(
            f"fori_loop was given the bounds {lower!r} and {upper!r}, but it counts whole numbers: convert them with int()."
        )
    size = _segment(checkpoint, len(steps))
    done = looped("fori_loop", (body,), counting, (np.int64(steps.start), init), None, len(steps))
    if done is not None:
        return done[0][1]
    return _steps("fori_loop", lambda v, i: (body(i, v), None), init, steps, size)[0]


def while_loop(
    test: Callable[[Tree], Any],
    body: Callable[[Tree], Tree],
    init: Tree,
    *,
    checkpoint: int | bool = False,
) -> Tree:
    """The value after `while test(value): value = body(value)`, beginning with `init`; differentiable in reverse.

    How many steps there are is a matter of values and has no derivative. `checkpoint` is the number of steps that are kept at once
    for reverse mode (True: 100). Inside `tg.compile` it is one program, however many steps there are, if `body` and `test` do nothing
    but compute; where Python looks at values in them, each answer is a program of its own. Raises ValueError where the value
    changes its shape or structure.

    >>> import numpy as np, tapegrad as tg
    >>> def root(a):
    ...     return tg.while_loop(lambda x: abs(x * x - a) > 1e-12, lambda x: (x + a / x) / 2, a)
    >>> round(tg.grad(root)(4.0), 6)
    0.25
    """
    for given in (test, body):
        demand_callable(given, "while_loop")
    size = _segment(checkpoint, SEGMENT**2)

    functions = (test, body)
    whole = looped(
        "while_loop", functions, lambda v, _: (body(v), None), init, None, None, test=test
    )
    if whole is not None:
        return whole[0]

    def turns(value: Tree) -> Any:
        return bool(_plainly(test, value))

    if not size or not _recorded():
        value = init
        while turns(value):
            value = _like(init, body(value), "while_loop")
        return value
    value = init
    while turns(value):
        value = _segmented(_Until(test, body, size, init), value, functions)
    return value


def cond(
    predicate: Any, if_true: Callable[..., Tree], if_false: Callable[..., Tree], *operands: Any
) -> Tree:
    """`if_true(*operands)` where `predicate` is true, else `if_false(*operands)`: only that one runs and is differentiated.

    The predicate is one number or boolean. Inside `tg.compile` it is a guard, and each branch a program of its own. Raises ValueError
    for an array of several entries (take `tg.where`).

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda x: tg.cond(x > 1.0, lambda x: x * x, np.sin, x))(3.0)
    6.0
    """
    for given in (if_true, if_false):
        demand_callable(given, "cond")
    if not _is_answer(predicate):
        raise TypeError(
            f"cond was given {predicate!r} as predicate, but it is a number or a boolean: did a function forget its return?"
        )
    if np.size(predicate) != 1:
        raise ValueError(
            f"cond was given a predicate of shape {np.shape(predicate)}, but chooses one of two functions. Choose entry by entry with "
            "tg.where, or say which entries count: predicate.any(), predicate.all()."
        )
    chosen = if_true if bool(predicate) else if_false
    return chosen(*operands)


def switch(index: Any, branches: Sequence[Callable[..., Tree]], *operands: Any) -> Tree:
    """`branches[index](*operands)`, of some functions the one that a whole number says: only that one runs and is differentiated.

    An index below 0 means the first, one beyond the last means the last, as in JAX (Python counts from the end instead). Inside
    `tg.compile` it is a guard, and each branch a program of its own. Raises TypeError for an index that is no whole number,
    ValueError for several, and for no branches.

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda x: tg.switch(2, [np.sin, np.cos, lambda x: x * x], x))(3.0)
    6.0
    """
    branches = list(branches)
    for given in branches:
        demand_callable(given, "switch")
    if not branches:
        raise ValueError(
            "switch was given no branches, but chooses one of them. Give one or more functions."
        )
    kind = getattr(getattr(index, "dtype", None), "kind", None)
    if kind not in ("i", "u") and (not isinstance(index, int) or isinstance(index, bool)):
        raise TypeError(
            f"switch was given the index {index!r}, but it counts branches: convert it with int(), or choose by a truth value with "
            "tg.cond."
        )
    if np.ndim(index):
        raise ValueError(
            f"switch was given an index of shape {np.shape(index)}, but chooses one function. Choose entry by entry with tg.where, or "
            "np.select."
        )
    return branches[int(np.clip(index, 0, len(branches) - 1))](*operands)


def _is_answer(value: Any) -> bool:
    """Whether a value may be true or false: of a function, a sequence or nothing Python would say so, too, and mean nothing by it."""
    other = value is None or isinstance(value, str | bytes | tuple | list | dict)
    return not other and not callable(value)


def checkpoint(f: Callable[P, R]) -> Callable[P, R]:
    """`f`, which keeps only its arguments for the reverse: it is run again, and recorded, when the walk comes back to it.

    For memory: what `f` would keep is there while one call of it is differentiated. Arguments and results may be pytrees, and `f` may close
    over what is differentiated. Raises GraphError where the second run gives something else, as one that draws random numbers does.
    Inside `tg.compile`, which plans memory itself, and in forward mode it is `f`.

    >>> import numpy as np, tapegrad as tg
    >>> tg.grad(lambda x: tg.checkpoint(np.sin)(tg.checkpoint(np.exp)(x)))(0.0) == np.cos(1.0)
    np.True_
    """
    demand_callable(f, "checkpoint")

    @functools.wraps(f, updated=())
    def run_again(*args: Any, **kwargs: Any) -> Tree:
        if not _recorded():
            return f(*args, **kwargs)
        return _segmented(lambda given: f(*given[0], **given[1]), (args, kwargs), (f,))

    return run_again


# ---------------------------------------------------------------------------------------------------- steps


def _scanned(
    name: str,
    f: Step,
    init: Tree,
    xs: Tree,
    length: int | None,
    reverse: bool,
    checkpoint: int | bool,
) -> tuple[Tree, Tree]:
    """`scan`, under the name that the user called."""
    leaves, structure = _tree(xs)
    lengths: set[Any] = {np.shape(x)[0] if np.ndim(x) else None for x in leaves}
    if length is not None:
        lengths.add(length)
    if len(lengths) != 1 or None in lengths:
        told = ", ".join(str(shape) for shape in _shapes(leaves)) or "no xs"
        told += "" if length is None else f" and length={length}"
        instead = ", or no xs and the number of steps as `length`" if name == "scan" else ""
        raise ValueError(
            f"{name} was given {told}, but goes along the first axis of each leaf of xs, all of one length. Give xs of equal length"
            f"{instead}."
        )
    (n,) = lengths
    order = range(n - 1, -1, -1) if reverse else range(n)

    def step(carry: Tree, i: int) -> tuple[Tree, Tree]:
        return f(carry, _rebuilt(structure, [x[i] for x in leaves]))

    whole = looped(name, (f,), f, init, xs, n, reverse)
    if whole is not None:
        return whole
    carry, ys = _steps(name, step, init, order, _segment(checkpoint, n))
    if not n:
        return carry, _none_of(name, f, init, structure, leaves)
    return carry, _stacked(ys[::-1] if reverse else ys)


def _advice(unroll: int | bool | None, name: str) -> None:
    """Look at `unroll` as JAX does."""
    if unroll is not None and (not isinstance(unroll, int) or (unroll < 1 and unroll is not False)):
        raise ValueError(
            f"{name} was given unroll={unroll!r}, but it is a number of steps from 1, or True or False. Leave it out: compiled or not, "
            "the result is the same."
        )


def _segment(checkpoint: int | bool, n: int) -> int:
    """Steps in a segment, 0 for no segments."""
    if checkpoint is True:
        return max(1, math.isqrt(n))
    if checkpoint < 0:
        raise ValueError(
            f"checkpoint={checkpoint} was asked, but it is the number of steps kept at once: give 1 or more, or True."
        )
    return int(checkpoint)


def _counts_later(*bounds: Any) -> bool:
    """Whether bounds are whole numbers, and one of them a value of the program that is traced."""
    values = [value_of(x) for x in bounds]
    return any(isinstance(x, storage.StandIn) for x in values) and all(
        type(x) is int or (np.ndim(x) == 0 and getattr(x, "dtype", np.dtype(float)).kind in "iu")
        for x in values
    )


def looped(
    name: str,
    functions: Sequence[Any],
    f: Step,
    init: Tree,
    xs: Any,
    n: int | None,
    backward: bool = False,
    test: Callable[[Tree], Any] | None = None,
) -> tuple[Tree, Tree] | None:
    """Last carry and results of a loop in a function that `tg.compile` traces, where one step can stand for all; else None."""
    if not storage.tracing.get():
        return None
    leaves, structure = _tree(xs)
    first, arrangement = _tree(init)
    found: list[Any] = [None]

    def step(carry: list[Any], rows: list[Any]) -> tuple[list[Any], list[Any]]:
        before = _rebuilt(arrangement, carry)
        new, y = _pair(name, f(before, _rebuilt(structure, rows)))
        nexts = _tree(_like(before, new, name))[0]
        made, found[0] = _tree(y)
        return nexts, made

    tested = None
    if test is not None:

        def tested(carry: list[Any]) -> Any:
            return _plainly(test, _rebuilt(arrangement, carry))

    done = seams.looped(functions, step, first, leaves, n, backward, tested)
    if done is None:
        return None
    return _rebuilt(arrangement, done[0]), _rebuilt(found[0], done[1])


def _recorded() -> bool:
    """Whether segments are worth their entries: something is recorded, and not by `tg.compile`, which plans memory itself."""
    return is_grad_enabled() and not storage.tracing.get()


def _steps(
    name: str, step: Step, init: Tree, order: Sequence[int], size: int
) -> tuple[Tree, list[Tree]]:
    """Last carry and the results of each step."""
    carry = init
    ys: list[Tree] = []
    if not size or not _recorded():
        for i in order:
            new, y = _pair(name, step(carry, i))
            carry = _like(init, new, name)
            ys.append(y)
        return carry, ys
    for start in range(0, len(order), size):
        stretch = _Stretch(name, step, order[start : start + size], init)
        carry, more = _segmented(stretch, carry, (step,))
        ys += more
    return carry, ys


def _pair(name: str, result: Any) -> Any:
    if not isinstance(result, tuple) or len(result) != 2:
        raise TypeError(
            f"the function given to {name} returned {type(result).__name__}, but it gives two things, the next carry and a result: "
            "write `return carry, y`, or `return carry, None`."
        )
    return result


def _like(init: Tree, carry: Tree, name: str) -> Tree:
    """The carry, if it is arranged as it was at first."""
    if carry is None and init is not None:
        raise TypeError(f"a step of {name} returned None. Does it end with a return?")
    old, before = _tree(init)
    new, after = _tree(carry)
    if before != after or _shapes(old) != _shapes(new):
        raise ValueError(
            f"a step of {name} made a carry of shapes {_shapes(new)} from one of {_shapes(old)}, or arranged "
            "it in another way, but each step gets what the one before returned. Return a carry like the one given as init."
        )
    return carry


def _tree(tree: Tree) -> tuple[list[Any], Any]:
    """Leaves and structure; None is a tree without leaves."""
    if tree is None:
        return [], ()
    return _flatten(tree)


def _rebuilt(structure: Any, leaves: Sequence[Any]) -> Tree:
    return None if structure == () else _unflatten(structure, leaves)


def _stacked(ys: Sequence[Tree]) -> Tree:
    """Results of all steps as one tree of arrays with a new first axis."""
    trees = [_tree(y) for y in ys]
    columns = zip(*(leaves for leaves, _ in trees), strict=True)
    return _rebuilt(trees[0][1], [np.stack([unmasked(y) for y in column]) for column in columns])


def _none_of(name: str, f: Step, init: Tree, structure: Any, leaves: Sequence[Any]) -> Tree:
    """The results of a scan without steps: arrays of length 0, arranged as one step would arrange them."""

    def seen(x: Any, shape: tuple[int, ...] | None = None) -> Any:
        value = value_of(x)
        if isinstance(value, storage.StandIn):
            value = value.seen()
        if shape is not None:
            value = np.zeros(shape, np.asarray(value).dtype)[()]
        return wrap(storage.as_array(value)) if isinstance(x, Tensor) else value

    known, arrangement = _tree(init)
    carry = _rebuilt(arrangement, [seen(x) for x in known])
    x = _rebuilt(structure, [seen(x, np.shape(x)[1:]) for x in leaves])
    with no_grad(), np.errstate(all="ignore"):
        new, y = _pair(name, f(carry, x))
    _like(carry, new, name)
    results, arrangement = _tree(y)

    def empty(result: Any) -> Any:
        like = storage.as_array(value_of(result))
        none: Any = np.zeros((0, *like.shape), like.dtype)
        return wrap(none) if isinstance(result, Tensor) else none

    return _rebuilt(arrangement, [empty(result) for result in results])


def _state(x: Any) -> Any:
    """What changes where somebody writes to a tensor, or to a value of the program that is traced."""
    return x._version if isinstance(x, Tensor) else getattr(x, "node", None)


def _shapes(leaves: Sequence[Any]) -> list[tuple[int, ...]]:
    return [np.shape(x) for x in leaves]


def _running(
    joined: Callable[[list[Any], list[Any]], list[Any]], leaves: list[Any], axis: int
) -> list[Any]:
    """The running results along an axis, of 1 entry or more: those of the pairs of neighbours are every second one of all."""
    n = leaves[0].shape[axis]
    if n < 2:
        return leaves
    # An array with an axis for the two gets memory from tg.compile, which would make each level anew from the first for strided slices.
    twos = [_split(x, axis) for x in _along(leaves, axis, 0, n - n % 2)]
    pairs = joined(*([x[(*[slice(None)] * (axis + 1), k)] for x in twos] for k in (0, 1)))
    odd = _running(joined, pairs, axis)
    most = (n - 1) // 2
    parts = [_along(leaves, axis, 0, 1), _along(odd, axis, most, n)]
    if most:
        front = _along(odd, axis, 0, most)
        even = joined(front, _along(leaves, axis, 2, n, 2))
        turns = [
            np.reshape(
                np.stack(two, axis + 1), (*two[0].shape[:axis], 2 * most, *two[0].shape[axis + 1 :])
            )
            for two in zip(front, even, strict=True)
        ]
        parts.insert(1, turns)
    return [np.concatenate(part, axis) for part in zip(*parts, strict=True)]


def _split(x: Any, axis: int) -> Any:
    """An array with neighbours along an axis beside each other along one more, behind it."""
    return np.reshape(x, (*x.shape[:axis], x.shape[axis] // 2, 2, *x.shape[axis + 1 :]))


def _along(leaves: list[Any], axis: int, start: int, stop: int, step: int = 1) -> list[Any]:
    """Slices of all leaves along an axis."""
    where = (*[slice(None)] * axis, slice(start, stop, step))
    return [x[where] for x in leaves]


def _plainly(test: Callable[[Tree], Any], value: Tree) -> Any:
    """A test of the values, of which no derivative is wanted."""
    leaves, structure = _tree(value)
    answer = test(_rebuilt(structure, [x.detach() if isinstance(x, Tensor) else x for x in leaves]))
    if not _is_answer(answer):
        raise TypeError(
            f"the test of while_loop returned {answer!r}, but it is a number or a boolean. Does it end with a return?"
        )
    if np.size(answer) != 1:
        raise ValueError(
            f"the test of while_loop returned shape {np.shape(answer)}, but says whether to go on at all: write .any() or .all()."
        )
    return answer


# ---------------------------------------------------------------------------------------------------- segments


class _Stretch:
    """Some steps of a loop, to be run one or more times."""

    def __init__(self, name: str, step: Step, order: Sequence[int], init: Tree) -> None:
        self.name, self.step, self.order, self.init = name, step, order, init

    def __call__(self, carry: Tree) -> tuple[Tree, list[Tree]]:
        return _steps(self.name, self.step, carry, self.order, 0)


class _Until:
    """Up to `size` steps of a `while`; the next time exactly as many, without a test."""

    def __init__(
        self, test: Callable[[Tree], Any], body: Callable[[Tree], Tree], size: int, init: Tree
    ) -> None:
        self.test, self.body, self.size, self.init = test, body, size, init
        self.turns = -1

    def __call__(self, value: Tree) -> Tree:
        if self.turns >= 0:
            for _ in range(self.turns):
                value = self.body(value)
            return value
        turns = 0
        while turns < self.size and (turns == 0 or bool(_plainly(self.test, value))):
            value = _like(self.init, self.body(value), "while_loop")
            turns += 1
        self.turns = turns
        return value


CHANGED = (
    "what has a checkpoint was run again for its derivative, and gave something else: what it reads beside its arguments has changed "
    "since, or it draws random numbers. Make it an argument (in a loop: part of the carry or of xs), or leave out `checkpoint`."
)


class _Segment(storage.Keeper):
    """One entry: a function of the carry whose steps are forgotten and run again for the pullback."""

    __slots__ = ("cells", "function", "nodes", "outside", "size", "structure", "value")

    def __init__(self, function: Callable[[Tree], Tree], cells: Cells, structure: Any) -> None:
        self.function = cells.within(function)
        self.cells = cells
        self.nodes = [value._node if isinstance(value, Tensor) else None for _, value in cells.held]
        """Where the tensors came from that the function closes over."""
        self.structure = structure
        self.value: Any = None
        self.size: tuple[Any, Any] = (0.0, 0.0)
        """Weighted sums of the results and of their magnitudes, by which another run is compared."""
        self.outside: list[Any] = []
        """Nodes that the function uses without having been given them: it closes over tracked tensors."""

    def _held_values(self) -> tuple[Any, ...]:
        return tuple(value._value for _, value in self.cells.held if isinstance(value, Tensor))

    def _save_from_write(self, apart: Callable[[Any], Any]) -> None:
        held = self.cells.held
        for i, (cell, value) in enumerate(held):
            if isinstance(value, Tensor):
                old = apart(value._value)
                if old is not value._value:
                    before = wrap(old)
                    before._node = self.nodes[i]
                    held[i] = (cell, before)

    def of_leaves(self, *leaves: Any) -> Any:
        """The function's inexact results, one after the other."""
        return flat(inexact(_tree(self.function(_rebuilt(self.structure, leaves)))[0]))

    def again(self, *leaves: Any) -> Any:
        """Another run, which gives what the first one gave."""
        result = self.of_leaves(*leaves)
        near = 1e-6 * abs(self.size[1])
        for x, y in zip(self.size, _size(value_of(result)), strict=True):
            if x == y or abs(x - y) <= near or (x != x and y != y):
                continue
            raise GraphError(CHANGED, name="changed-since")
        return result

    def evaluate(self, values: Sequence[Any]) -> Any:
        value, self.value = self.value, None
        if value is not None:
            return value
        n = len(values) - len(self.outside)
        return storage.as_array(value_of(self.of_leaves(*values[:n])))

    def pull(self, g: Any, xs: Sequence[Any], wanted: Sequence[bool]) -> list[Any]:
        n = len(xs) - len(self.outside)
        own, found = pulled(self.again, xs[:n], g)
        if not found.keys() <= {*own, *self.outside}:
            raise GraphError(CHANGED, name="changed-since")
        return [found.get(node) for node in (*own, *self.outside)]

    def push(self, given: Sequence[Any], xs: Sequence[Any]) -> Any:
        n = len(xs) - len(self.outside)
        outside = dict(zip(self.outside, given[n:], strict=True))
        record = any(isinstance(x, Tensor) for x in (*xs, *given))
        return pushed(self.again, xs[:n], given[:n], outside, record)


def pulled(f: Callable[..., Any], xs: Sequence[Any], g: Any) -> tuple[list[Any], dict[Any, Any]]:
    """One run of `f` and back: the nodes that stood for `xs`, and the cotangent of each node that `f` used, closed over or given.

    Where `g` is a tensor the way back is recorded too, as made from the very nodes that `f` closes over: so closures need no
    other treatment at any order. The nodes of `xs` are the run's own, since an argument may also be closed over.
    """
    run = _Run(f, tuple(xs), {}, tuple(range(len(xs))), "a loop's checkpoint")
    if not isinstance(run.output, Tensor) or run.output._node is None:
        return run.nodes, {}
    aliases = sum(type(node) is not Leaf for node in run.nodes)  # they lead out of the run
    code = run.own.tape.code[aliases * STRIDE :]
    if isinstance(g, Tensor):
        run.connect()
    pending: dict[Any, Any] = {run.output._node: g}
    leaves: dict[Any, Any] = {}
    sweep.sweep(code, len(code) // STRIDE - 1, pending, leaves, {}, None, isinstance(g, Tensor))
    return run.nodes, {**pending, **leaves}


def pushed(
    f: Callable[..., Any],
    xs: Sequence[Any],
    given: Sequence[Any],
    outside: dict[Any, Any],
    record: bool,
) -> Any:
    """One run of `f`, and the tangent of its result from those of `xs` (`given`) and of the nodes that `f` closes over.

    With `record` the way is recorded too, as in `pulled`.
    """
    run = _Run(f, tuple(xs), {}, tuple(range(len(xs))), "a loop's checkpoint")
    if not isinstance(run.output, Tensor) or run.output._node is None:
        return np.zeros(np.shape(run.output))
    if record:
        run.connect()
    aliases = sum(type(node) is not Leaf for node in run.nodes)  # they lead out of the run
    tape = run.own.tape
    tangents = {**outside, **dict(zip(run.nodes, given, strict=True))}
    tangents = {node: t for node, t in tangents.items() if t is not None}
    with tape.held(), enable_grad() if record else nullcontext():
        start, stop = tape.position(run.first) + aliases, tape.position(run.last)
        sweep.push(tape.code, start, stop, tangents, record)
    tangent = tangents.get(run.output._node)
    return np.zeros(run.output.shape, run.output.dtype) if tangent is None else tangent


segment = op_of_calls(
    "segment", "Steps of a loop that are run again when the walk comes back to them.", pushes=True
)


def _size(values: Any) -> tuple[Any, Any]:
    """The sum of entries and that of their magnitudes, with weights: the same entries in another order give another sum."""
    with np.errstate(all="ignore"):
        weights = np.cos(np.arange(np.size(values)))
        flat = np.reshape(values, -1)
        return np.add.reduce(flat * weights), np.add.reduce(np.abs(flat))


def _segmented(
    function: Callable[[Tree], Tree], carry: Tree, functions: Sequence[Callable[..., Any]]
) -> Tree:
    """`function(carry)`, which calls `functions` of the user's, as one entry of the tape."""
    leaves, structure = _tree(carry)
    if LEVEL.get() is not None:  # tangents go along, those of what the function closes over too
        return function(carry)
    # Numbers of Python stay what they are: as arrays they would make single precision double.
    moving = [i for i, x in enumerate(leaves) if is_inexact(x)]

    def of_moving(*values: Any) -> Tree:
        full = list(leaves)
        for i, x in zip(moving, values, strict=True):
            full[i] = x
        return function(_rebuilt(structure, full))

    operands = [leaves[i] for i in moving]
    made = _Segment(
        lambda values: of_moving(*values), closed_over(functions), _tree(tuple(operands))[1]
    )
    found: list[Any] = []

    def once(*values: Any) -> Any:
        found[:] = _tree(of_moving(*values))
        return flat(inexact(found[0]))

    run = _Run(
        once,
        tuple(value_of(x) for x in operands),
        {},
        tuple(range(len(operands))),
        "a loop's checkpoint",
    )
    outside = outside_of(run.own.tape.code, run.nodes)
    made.outside = list(outside)
    results, arrangement = found
    made.value = value_of(run.output)
    made.size = _size(made.value)
    if not outside and not any(isinstance(x, Tensor) for x in operands):
        return _rebuilt(arrangement, [value_of(y) for y in results])
    whole = apply(segment.primitive, [*operands, *outside.values()], (made,))
    pieces = iter(unpacked(whole, inexact(results)))
    # In memory as the function's results lie: a store through a reshape reaches what it reaches there.
    laid = [laid_like(next(pieces), y) if is_inexact(y) else y for y in results]
    return _rebuilt(arrangement, laid)


def outside_of(
    code: list[Any], given: Sequence[Any], results: Sequence[Any] | None = None
) -> dict[Any, Tensor]:
    """Per tracked tensor that the entries of a run use, and that was not given to it, its node: a tensor that stands for it.

    With `results` only entries that these depend on count. Of others some are still on the tape and some are not: who forgets a value,
    and when the tape is swept, decides that.
    """
    mine = {*code[SLOT::STRIDE], *given, None}
    asked = {x._node for x in results or () if isinstance(x, Tensor)}
    entries: Sequence[int] = range(0, len(code), STRIDE)
    if results is not None:
        entries = [k for k in reversed(entries) if _leads_to(asked, code, k)][::-1]
    found: dict[Any, Tensor] = {}
    for k in entries:
        for node, value in ((code[k + IN0], code[k + 4]), (code[k + IN1], code[k + 5])):
            pairs = zip(node, value, strict=True) if type(node) is tuple else ((node, value),)
            for n, v in pairs:
                if n in mine or n in found:
                    continue
                if not isinstance(v, np.ndarray | np.generic | float):
                    raise NotDifferentiable(
                        "what has a checkpoint was run under saved_tensors_hooks, and closes over a tracked tensor whose value they "
                        "packed. Make that tensor an argument (in a loop: part of the carry), or leave out `checkpoint`."
                    )
                t = found[n] = wrap(storage.as_array(v))
                t._node = n
    return found


def _leads_to(asked: set[Any], code: list[Any], k: int) -> bool:
    """Whether a node that is asked for is the entry at `k`; then what that entry reads is asked for, too."""
    if code[k + SLOT] not in asked:
        return False
    for node in (code[k + IN0], code[k + IN1]):
        asked.update(node if type(node) is tuple else (node,))
    return True


__all__ = [
    "associative_scan", "checkpoint", "cond", "fori_loop", "map", "scan", "switch", "while_loop",
]  # fmt: skip
