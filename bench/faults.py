"""Ten planted faults, and what gradient checkers say of each: `python -m bench.faults` prints the table of the guide.

A fault is a function, a gradient of it, and a point; only some of the gradients are wrong. Every checker gets the same
three. Checkers that are not installed are left out. `--write` puts the table into the guide.
"""

import argparse
import contextlib
import io
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tapegrad.help.documents import cell, update

PAGE = Path(__file__).parent.parent / "notebooks" / "guide" / "checking.md"
MARK = "faults table"


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong, in words; a function, what is claimed to be its gradient, a point; what a checker should find."""

    name: str
    f: Callable
    gradient: Callable
    x: np.ndarray
    verdict: str
    word: str
    """Part of the explanation that names the fault."""


def faults() -> list[Fault]:
    """The ten, made from one model: a quadratic form with waves."""
    rng = np.random.default_rng(7)
    a = rng.normal(size=(6, 6))
    a = a @ a.T / 6
    x = rng.normal(size=6)
    grid = rng.normal(size=(4, 4))
    weights = rng.uniform(1, 2, (4, 4))
    scales = np.array([1e-6, 1e-3, 1.0, 1e3, 1e6, 1e9])
    noise = np.random.default_rng(11)
    at_kink = np.array([1.3, 0.0, -0.7, 2.1])
    one_wrong = np.array([1, 1, 1, 1.01, 1, 1])

    def f(x):
        return 0.5 * x @ a @ x + np.sum(np.sin(x))

    def g(x):
        return a @ x + np.cos(x)

    def waves(x):
        return np.sum(weights * np.sin(x))

    # fmt: off
    return [
        Fault("sign error", f, lambda x: -g(x), x, "wrong", "sign"),
        Fault("missing factor", f, lambda x: 0.5 * g(x), x, "wrong", "factor"),
        Fault("forgotten term", lambda x: f(x) + 0.05 * np.sum(x**2), g, x, "wrong", "term is forgotten"),
        Fault("wrong at one component", f, lambda x: g(x) * one_wrong, x, "wrong", "only x[3]"),
        Fault("float32 inside", lambda x: f(x.astype(np.float32)), g, x, "noisy", "single precision"),
        Fault("kink", lambda x: np.sum(np.abs(x) + x**2), lambda x: np.sign(x) + 2 * x, at_kink, "not smooth", "kink"),
        Fault("noise of 1e-6", lambda x: f(x) + 1e-6 * noise.normal(), g, x, "noisy", "two calls"),
        Fault("transposed index", waves, lambda x: (weights * np.cos(x)).T, grid, "wrong", "transposed"),
        Fault("off by one", f, lambda x: np.roll(g(x), 1), x, "wrong", "off by one"),
        Fault("right but badly scaled", lambda x: np.sum((x / scales) ** 2), lambda x: 2 * x / scales**2,
              scales * (1 + x**2), "badly scaled", "slopes run"),
    ]
    # fmt: on


def tapegrad(fault: Fault) -> str:
    """Verdict and explanation."""
    import tapegrad as tg

    check = tg.check_gradient(fault.f, fault.x, gradient=fault.gradient)
    told = check.explanation
    if check.verdict == "not smooth":
        told = f"{check.worst.name}: {check.worst.note}"
    return f"**{check.verdict}**: {told.split(';')[0].split(': tighten')[0].rstrip('.')}"


def torch_gradcheck(fault: Fault) -> str:
    """True, or the first line of the error."""
    import torch

    class Model(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.as_tensor(fault.f(x.numpy()), dtype=torch.float64)

        @staticmethod
        def backward(ctx, w):
            (x,) = ctx.saved_tensors
            return w * torch.as_tensor(np.ascontiguousarray(fault.gradient(x.numpy())))

    x = torch.tensor(fault.x, requires_grad=True)
    try:
        torch.autograd.gradcheck(Model.apply, (x,))
    except Exception as error:
        return f"error: {first_words(error)}"
    return "passes"


def jax_check_grads(fault: Fault) -> str:
    """Silence, or the first line of the error."""
    import jax
    from jax.test_util import check_grads

    jax.config.update("jax_enable_x64", True)
    scalar = jax.ShapeDtypeStruct((), np.float64)
    like = jax.ShapeDtypeStruct(fault.x.shape, np.float64)

    @jax.custom_vjp
    def model(x):
        return jax.pure_callback(lambda x: np.float64(fault.f(np.asarray(x))), scalar, x)

    def forward(x):
        return model(x), x

    def backward(x, w):
        return (w * jax.pure_callback(lambda x: fault.gradient(np.asarray(x)), like, x),)

    model.defvjp(forward, backward)
    try:
        check_grads(model, (fault.x,), order=1, modes=["rev"])
    except Exception as error:
        return f"error: {first_words(error)}"
    return "passes"


def scipy_check_grad(fault: Fault) -> str:
    """The number it returns: the norm of the difference."""
    from scipy.optimize import check_grad

    shape = fault.x.shape
    gap = check_grad(
        lambda v: float(fault.f(v.reshape(shape))),
        lambda v: fault.gradient(v.reshape(shape)).ravel(),
        fault.x.ravel(),
    )
    return f"{gap:.1e}"


def numdifftools(fault: Fault) -> str:
    """How far its gradient is off, and how far it believes to be off itself."""
    import numdifftools as nd

    shape = fault.x.shape
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gradient = nd.Gradient(lambda v: float(fault.f(v.reshape(shape))), full_output=True)
        found = gradient(fault.x.ravel())
    gap = np.abs(found.estimate - fault.gradient(fault.x).ravel()).max()
    return f"{gap:.1e} off, error estimate {np.max(found.error_estimate):.0e}"


class _Point:
    """A point as dolfin-adjoint's test moves it: an array with its names for sums and products."""

    def __init__(self, value: np.ndarray) -> None:
        self.value = value

    def _ad_mul(self, factor: float) -> "_Point":
        return _Point(self.value * factor)

    def _ad_add(self, other: "_Point") -> "_Point":
        return _Point(self.value + other.value)


def dolfin_taylor_test(fault: Fault) -> str:
    """The least order of the remainders: 2 if the gradient is right."""
    from pyadjoint.verification import taylor_test

    h = np.random.default_rng(3).normal(size=fault.x.shape)
    with contextlib.redirect_stdout(io.StringIO()):
        order = taylor_test(
            lambda m: float(fault.f(m.value)),
            _Point(fault.x),
            _Point(h),
            dJdm=float(np.vdot(fault.gradient(fault.x), h)),
        )
    return f"order {order:.2f}"


def pylops_dottest(fault: Fault) -> str:
    """Silence, or the first line of the error, with central differences for the operator that the gradient is the adjoint of."""
    import pylops

    class Slope(pylops.LinearOperator):
        def _matvec(self, v):
            step = 1e-6 * v.reshape(fault.x.shape)
            return np.array([(fault.f(fault.x + step) - fault.f(fault.x - step)) / 2e-6])

        def _rmatvec(self, w):
            return np.ravel(fault.gradient(fault.x)) * w[0]

    np.random.seed(0)  # noqa: NPY002  the generator that it draws from
    try:
        pylops.utils.dottest(Slope(dtype=np.float64, shape=(1, fault.x.size)))
    except Exception as error:
        return f"error: {first_words(error)}"
    return "passes"


def first_words(error: Exception) -> str:
    """The first line of a message, cut to fit a cell."""
    line = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
    line = re.sub(r"\s+", " ", line).strip(" ,:")
    return line if len(line) <= 60 else f"{line[:57]}..."


CHECKERS = {
    "tapegrad": tapegrad,
    "torch `gradcheck`": torch_gradcheck,
    "jax `check_grads`": jax_check_grads,
    "scipy `check_grad`": scipy_check_grad,
    "numdifftools": numdifftools,
    "dolfin-adjoint `taylor_test`": dolfin_taylor_test,
    "PyLops `dottest`": pylops_dottest,
}


def table() -> str:
    """A Markdown table, a row for each fault, a column for each checker that is installed."""
    columns: dict[str, list[str]] = {}
    for name, checker in CHECKERS.items():
        try:
            columns[name] = [checker(fault) for fault in faults()]
        except ImportError:
            continue
    lines = ["| planted | " + " | ".join(columns) + " |", "| --- " * (1 + len(columns)) + "|"]
    for k, fault in enumerate(faults()):
        cells = [cell(column[k]) for column in columns.values()]
        lines.append(f"| {fault.name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Print the table, or write it between its marks in the guide."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="into the guide")
    if not parser.parse_args().write:
        print(table())
        return
    update(PAGE, MARK, table())


if __name__ == "__main__":
    main()
