"""What other libraries call it: the answer to a name that is not here, `tg.vmap` or `tg.sigmoid`.

A row says what to write instead, or why there is no such thing. Names that one of our modules has (`tg.erf` is
`tg.special.erf`) need no row: they are looked up. Nothing here is a public name: `hasattr(tg, "vmap")` stays False.
"""

from __future__ import annotations

import difflib
from importlib import import_module

MODULES = (
    "special",
    "linalg",
    "fft",
    "autograd",
    "optim",
    "optim.lr_scheduler",
    "autograd.graph",
    "autograd.functional",
    "autograd.forward_ad",
)
"""Where a name may be, apart from the top."""

# fmt: off
INSTEAD = {
    # transforms
    "vmap":            "NumPy's functions take stacks: write f for a leading axis. tg.elementwise_grad(f) goes element by element",
    "pmap":            "there is no pmap: tapegrad.dask sums a loss over partitions on many cores",
    "jit":             "write tg.compile(f) for whole NumPy programs, tg.njit for loops in the style of Numba",
    "jacfwd":          'write tg.jacobian(f, mode="forward")',
    "jacrev":          'write tg.jacobian(f, mode="reverse")',
    "linearize":       "write lambda v: tg.jvp(f, (x,), (v,))[1]",
    "grad_and_value":  "write tg.value_and_grad(f), which returns the value first",
    "value_and_gradient": "write tg.value_and_grad(f)",
    "derivative":      "write tg.grad(f) for a function of one number, tg.elementwise_grad(f) for one of arrays",
    "Derivative":      "write tg.elementwise_grad(f)",
    "Gradient":        "write tg.grad(f)",
    "Jacobian":        "write tg.jacobian(f)",
    "Hessian":         "write tg.hessian(f)",
    "make_hvp":        "write tg.hvp(f), a function of x and v",
    "custom_vjp":      "subclass tg.autograd.Function, with forward and backward",
    "custom_jvp":      "subclass tg.autograd.Function, with forward and jvp",
    "defvjp":          "subclass tg.autograd.Function, with forward and backward",
    "stop_gradient":   "write t.detach()",
    "detach":          "write t.detach()",
    "checkpoint":      "loops have it: tg.scan(..., checkpoint=True), and tg.checkpointed in tg.njit",
    "remat":           "loops have it: tg.scan(..., checkpoint=True), and tg.checkpointed in tg.njit",
    "lax":             "tg.scan, tg.fori_loop, tg.while_loop and tg.cond are at the top",
    "func":            "the transforms are at the top: tg.grad, tg.vjp, tg.jvp, tg.jacobian, tg.hessian",
    "tree_map":        "use optree.tree_map, or a comprehension",
    # checking, solving
    "check_grad":      "write tg.check_gradient(f, x), or with gradient=g for one of your own",
    "check_grads":     "write tg.check_gradient(f, x).assert_ok()",
    "approx_fprime":   "write tg.grad(f)(x), which is exact; tg.check_gradient(f, x) measures",
    "curve_fit":       "write tg.least_squares(lambda p: model(t, p) - y, p0), which returns covariance and stderr",
    "leastsq":         "write tg.least_squares(f, x0)",
    "fsolve":          "write tg.root(f, x0)",
    "solve_ivp":       "write the steps: a Python loop, tg.scan, or a loop in tg.njit",
    "odeint":          "write the steps: a Python loop, tg.scan, or a loop in tg.njit",
    "quad":            "write a rule with fixed nodes, such as np.trapezoid, or np.polynomial.legendre.leggauss and a sum",
    # PyTorch
    "nn":              "there are no layers: write the model with NumPy's functions, and tg.Parameter",
    "cuda":            "arrays live in main memory: there is no GPU",
    "device":          "arrays live in main memory: there is no GPU",
    "relu":            "write np.maximum(t, 0)",
    "sigmoid":         "write tg.special.expit(t)",
    "lgamma":          "write tg.special.gammaln(t)",
    "norm":            "write np.linalg.norm(t)",
    "is_tensor":       "write isinstance(t, tg.Tensor)",
    "set_default_dtype": "numbers are float64 unless an array, or dtype=, says otherwise",
    "Variable":        "write tg.tensor(data, requires_grad=True)",
    "variable":        "write tg.tensor(data, requires_grad=True)",
    "GradientTape":    "write tg.grad(f), or tensors with requires_grad=True and backward()",
    "random":          "draw with NumPy's Generator, or tg.randn, tg.rand and tg.randint for tensors",
    "normal":          "draw with NumPy's Generator, or tg.randn for tensors",
    "PRNGKey":         "there are no keys: draw with NumPy's Generator",
    "scipy":           "its functions are in tg.special, tg.linalg and tg.fft; its solvers are tg.minimize, tg.least_squares and tg.root",
    "math":            "NumPy's functions are at the top, as in tg.sin",
}
# fmt: on


def told(name: str, known: list[str]) -> str:
    """What to say of a name that the top of the library does not have; `known` are those that it has.

    >>> told("jacfwd", [])
    'write tg.jacobian(f, mode="forward")'
    >>> told("erf", [])
    'write tg.special.erf'
    >>> told("minimise", ["minimize"])
    'did you mean tg.minimize?'
    """
    if name in INSTEAD:
        return INSTEAD[name]
    if name.startswith("_"):
        return ""  # asked by machinery, not by a person
    for module in MODULES:
        place = import_module(f"tapegrad.{module}")
        if name in getattr(place, "__all__", vars(place)) and callable(getattr(place, name)):
            return f"write tg.{module}.{name}"
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.75)
    return f"did you mean {' or '.join(f'tg.{c}' for c in close)}?" if close else ""
