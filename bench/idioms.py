"""What people write with an autograd library, in a few lines each, on ten numbers or so: tapegrad beside PyTorch.

An idiom is one function of the library, for both the same text; what PyTorch keeps in `torch.func` stands in `functions`. At these
sizes the libraries' own work is all the cost. `python -m bench.idioms` prints the ratios, taken turn about after answers were compared.
"""

import argparse
import statistics
import warnings
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from bench import measure, peers

LIBRARIES = ("tapegrad", "torch")

_rng = np.random.default_rng(0)
POINT, DIRECTION = _rng.normal(size=10) / 2, _rng.normal(size=10)
MATRIX = _rng.normal(size=(10, 10)) / 3
DEFINITE = MATRIX @ MATRIX.T + np.eye(10)
ROWS, TARGETS = _rng.normal(size=(32, 8)), _rng.normal(size=32)
FIRST, SECOND = _rng.normal(size=(8, 16)) / 3, _rng.normal(size=(16, 1)) / 3

Idiom = Callable[[Any], Any]
IDIOMS: dict[str, Idiom] = {}


def idiom(function: Idiom) -> Idiom:
    IDIOMS[function.__name__.replace("_", " ").strip()] = function
    return function


def functions(lib: ModuleType) -> SimpleNamespace:
    """grad, hessian, jacobian, jvp and vjp of a function of one tensor, at a point."""
    if lib.__name__ == "torch":
        return SimpleNamespace(
            grad=lambda f, x: lib.func.grad(f)(x),
            hessian=lambda f, x: lib.func.hessian(f)(x),
            jacobian=lambda f, x: lib.func.jacrev(f)(x),
            jvp=lambda f, x, t: lib.func.jvp(f, (x,), (t,))[1],
            vjp=lambda f, x, g: lib.func.vjp(f, x)[1](g)[0],
        )
    return SimpleNamespace(
        grad=lambda f, x: lib.grad(f)(x),
        hessian=lambda f, x: lib.hessian(f)(x),
        jacobian=lambda f, x: lib.jacobian(f)(x),
        jvp=lambda f, x, t: lib.jvp(f, (x,), (t,))[1],
        vjp=lambda f, x, g: lib.vjp(f, x)[1](g)[0],
    )


def leaf(lib: Any, array: np.ndarray) -> Any:
    return lib.tensor(array.copy(), requires_grad=True)


def energy(lib: Any, x: Any) -> Any:
    return (lib.sin(x) * x**2 + lib.exp(-x * x)).sum()


def field(lib: Any, x: Any) -> Any:
    return lib.tanh(lib.tensor(MATRIX) @ x) * x


# ------------------------------------------------------------------------------------------------ first derivatives


@idiom
def backward_(lib: Any) -> Any:
    x = leaf(lib, POINT)
    energy(lib, x).backward()
    return x.grad


@idiom
def backward_of_scalars(lib: Any) -> Any:
    x = leaf(lib, POINT)
    total = 0.0
    for i in range(9):
        total = total + 100 * (x[i + 1] - x[i] ** 2) ** 2 + (1 - x[i]) ** 2
    total.backward()
    return x.grad


@idiom
def gradients_add_up(lib: Any) -> Any:
    x = leaf(lib, POINT)
    for _ in range(5):
        (lib.sin(x) * x).sum().backward()
    return x.grad


@idiom
def autograd_grad(lib: Any) -> Any:
    x = leaf(lib, POINT)
    return lib.autograd.grad(energy(lib, x), x)[0]


@idiom
def grad_of_a_function(lib: Any) -> Any:
    return functions(lib).grad(lambda x: energy(lib, x), lib.tensor(POINT))


@idiom
def vjp(lib: Any) -> Any:
    return functions(lib).vjp(lambda x: field(lib, x), lib.tensor(POINT), lib.tensor(DIRECTION))


@idiom
def jvp(lib: Any) -> Any:
    return functions(lib).jvp(lambda x: field(lib, x), lib.tensor(POINT), lib.tensor(DIRECTION))


@idiom
def dual_numbers(lib: Any) -> Any:
    forward = lib.autograd.forward_ad
    with forward.dual_level():
        x = forward.make_dual(lib.tensor(POINT), lib.tensor(DIRECTION))
        return forward.unpack_dual(field(lib, x)).tangent


@idiom
def jacobian(lib: Any) -> Any:
    return functions(lib).jacobian(lambda x: field(lib, x), lib.tensor(POINT))


@idiom
def jacobian_row_by_row(lib: Any) -> Any:
    x = leaf(lib, POINT)
    y = field(lib, x)
    return lib.stack([lib.autograd.grad(y[i], x, retain_graph=True)[0] for i in range(10)])


# ----------------------------------------------------------------------------------------------- second derivatives


@idiom
def gradient_of_a_gradient(lib: Any) -> Any:
    x = leaf(lib, POINT)
    (g,) = lib.autograd.grad(energy(lib, x), x, create_graph=True)
    return lib.autograd.grad(g.sum(), x)[0]


@idiom
def gradient_penalty(lib: Any) -> Any:
    x = leaf(lib, POINT)
    (g,) = lib.autograd.grad((field(lib, x) ** 2).sum(), x, create_graph=True)
    (g * g).sum().backward()
    return x.grad


@idiom
def hessian(lib: Any) -> Any:
    return functions(lib).hessian(lambda x: energy(lib, x), lib.tensor(POINT))


@idiom
def hessian_row_by_row(lib: Any) -> Any:
    x = leaf(lib, POINT)
    (g,) = lib.autograd.grad(energy(lib, x), x, create_graph=True)
    return lib.stack([lib.autograd.grad(g[i], x, retain_graph=True)[0] for i in range(10)])


@idiom
def hessian_vector_product(lib: Any) -> Any:
    x, v = lib.tensor(POINT), lib.tensor(DIRECTION)
    return lib.autograd.functional.vhp(lambda x: energy(lib, x), x, v)[1]


# ------------------------------------------------------------------------------------------- writing, hooks, Function


@idiom
def entries_written_in_a_loop(lib: Any) -> Any:
    x = leaf(lib, POINT)
    y = lib.zeros(10, dtype=lib.float64)
    for i in range(1, 10):
        y[i] = y[i - 1] * 0.5 + x[i]
    y.sum().backward()
    return x.grad


@idiom
def hook_on_a_result(lib: Any) -> Any:
    x = leaf(lib, POINT)
    y = lib.sin(x)
    y.register_hook(lambda g: g * 2)
    (y * x).sum().backward()
    return x.grad


@idiom
def hook_on_a_leaf(lib: Any) -> Any:
    x = leaf(lib, POINT)
    x.register_hook(lambda g: g * 2)
    (lib.sin(x) * x).sum().backward()
    return x.grad


@idiom
def retained_gradient(lib: Any) -> Any:
    x = leaf(lib, POINT)
    y = lib.sin(x)
    y.retain_grad()
    (y * x).sum().backward()
    return y.grad


_squares: dict[str, Any] = {}


@idiom
def custom_Function(lib: Any) -> Any:
    if lib.__name__ not in _squares:

        class Square(lib.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * x

            @staticmethod
            def backward(ctx, g):
                (x,) = ctx.saved_tensors
                return 2 * x * g

        _squares[lib.__name__] = Square
    x = leaf(lib, POINT)
    _squares[lib.__name__].apply(x).sum().backward()
    return x.grad


# -------------------------------------------------------------------------------------------------------- fits


@idiom
def descent_under_no_grad(lib: Any) -> Any:
    x = leaf(lib, POINT)
    for _ in range(10):
        energy(lib, x).backward()
        with lib.no_grad():
            x -= 0.01 * x.grad
        x.grad = None
    return x


@idiom
def least_squares_by_Adam(lib: Any) -> Any:
    w, rows, targets = leaf(lib, FIRST[:, 0]), lib.tensor(ROWS), lib.tensor(TARGETS)
    optimizer = lib.optim.Adam([w], lr=0.01)
    for _ in range(20):
        optimizer.zero_grad()
        ((rows @ w - targets) ** 2).mean().backward()
        optimizer.step()
    return w


@idiom
def network_by_SGD(lib: Any) -> Any:
    first, second = leaf(lib, FIRST), leaf(lib, SECOND)
    rows, targets = lib.tensor(ROWS), lib.tensor(TARGETS)
    optimizer = lib.optim.SGD([first, second], lr=0.01, momentum=0.9)
    for _ in range(20):
        optimizer.zero_grad()
        ((lib.tanh(rows @ first) @ second)[:, 0] - targets).pow(2).mean().backward()
        optimizer.step()
    return first


@idiom
def likelihood_of_classes(lib: Any) -> Any:
    x = leaf(lib, ROWS)
    (lib.logsumexp(x, 1) - x[:, 0]).mean().backward()
    return x.grad


@idiom
def solve_and_log_determinant(lib: Any) -> Any:
    a, b = leaf(lib, DEFINITE), lib.tensor(POINT)
    (lib.linalg.solve(a, b) @ b + lib.linalg.slogdet(a)[1]).backward()
    return a.grad


# --------------------------------------------------------------------------------------------------- contestants


def library(name: str) -> Any:
    """The library, with one thread."""
    if name == "torch":
        import torch

        torch.set_num_threads(1)
        return torch
    import tapegrad

    return tapegrad


def checked(name: str, run: Idiom) -> Callable[[], Any]:
    """One idiom in a library, warm, with the answer of the other."""
    lib = library(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # PyTorch warns of its own parts once
        answer = run(lib)
    answer = run(lib)
    expected = run(library("tapegrad"))
    np.testing.assert_allclose(peers.bare(answer), peers.bare(expected), rtol=1e-7, atol=1e-9)
    return lambda: run(lib)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", default=[], help="idioms with this word")
    parser.add_argument("--seconds", type=float, default=0.5, help="a row")
    options = parser.parse_args()
    import tapegrad as tg

    tg.set_engine("replay")
    print("| idiom | tapegrad | PyTorch | PyTorch over tapegrad |")
    print("| --- | ---: | ---: | ---: |")
    for name, run in IDIOMS.items():
        if options.only and not any(word in name for word in options.only):
            continue
        runs = {library: checked(library, run) for library in LIBRARIES}
        times = measure.turn_about(runs, options.seconds, measure.CLOCKS["cpu"])
        mine, theirs = (1e6 * statistics.median(times[library]) for library in LIBRARIES)
        ratio = measure.ratio(times["torch"], times["tapegrad"])
        print(f"| {name} | {mine:.0f} µs | {theirs:.0f} µs | {ratio:.1f} |", flush=True)


if __name__ == "__main__":
    main()
