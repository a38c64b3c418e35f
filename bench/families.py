"""One representative computation a family of ops: what its gradient costs in each library, and beside its value.

A row holds the computation in the names of NumPy (for tapegrad, autograd and MyGrad) and in those of PyTorch, and how its
inputs are made from n, the number of elements. `python -m bench.families` prints the ratios of value and gradient, taken turn
about after answers were compared; a dash stands where a library has no such function.
"""

import argparse
import importlib
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench import measure, peers

SIZES = (10, 1_000, 10_000)
LIBRARIES = ("tapegrad", "torch", "autograd", "mygrad")


@dataclass(frozen=True, slots=True)
class Family:
    """`numpy(np, special, *arrays)` and `torch(torch, *arrays)` give a scalar from arrays of about `n` elements."""

    name: str
    make: Callable[[int], tuple[np.ndarray, ...]]
    numpy: Callable[..., Any]
    torch: Callable[..., Any] | None


def vector(n: int) -> tuple[np.ndarray, ...]:
    return (np.linspace(0.5, 2.0, n) + 0.01 * np.sin(np.arange(n)),)


def pair(n: int) -> tuple[np.ndarray, ...]:
    (x,) = vector(n)
    return x, np.cos(x)


def square(n: int) -> tuple[np.ndarray, ...]:
    """A well-conditioned symmetric matrix."""
    m = max(2, round(n**0.5))
    a = np.random.default_rng(0).normal(size=(m, m))
    return (a @ a.T / m + 2 * np.eye(m),)


def system(n: int) -> tuple[np.ndarray, ...]:
    (a,) = square(n)
    return a, np.ones(len(a))


def matrix(n: int) -> tuple[np.ndarray, ...]:
    (x,) = vector(n)
    return (x[: n // 5 * 5].reshape(5, -1),)


def gathered(n: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, n, n)


# fmt: off
FAMILIES = [
    Family("arithmetic",     pair,   lambda np, s, x, y: np.sum((x * y + x) / (1.0 + y * y)),
                                     lambda t, x, y: t.sum((x * y + x) / (1.0 + y * y))),
    Family("transcendental", vector, lambda np, s, x: np.sum(np.exp(-x) * np.sin(x) + np.log(x)),
                                     lambda t, x: t.sum(t.exp(-x) * t.sin(x) + t.log(x))),
    Family("special",        vector, lambda np, s, x: np.sum(s.erf(x) + s.gammaln(x)),
                                     lambda t, x: t.sum(t.erf(x) + t.lgamma(x))),
    Family("reductions",     matrix, lambda np, s, x: np.sum(np.mean(x, axis=0) * np.max(x, axis=0)) + np.sum(x, axis=1)[0],
                                     lambda t, x: t.sum(t.mean(x, 0) * t.amax(x, 0)) + t.sum(x, 1)[0]),
    Family("statistics",     vector, lambda np, s, x: np.var(x) + np.std(x),
                                     lambda t, x: t.var(x, correction=0) + t.std(x, correction=0)),
    Family("cumulative",     vector, lambda np, s, x: np.sum(np.cumsum(x) ** 2),
                                     lambda t, x: t.sum(t.cumsum(x, 0) ** 2)),
    Family("shapes",         matrix, lambda np, s, x: np.sum(np.reshape(np.transpose(x), (-1,)) ** 2),
                                     lambda t, x: t.sum(t.reshape(t.transpose(x, 0, 1), (-1,)) ** 2)),
    Family("joining",        pair,   lambda np, s, x, y: np.sum(np.concatenate([x, y]) ** 2) + np.sum(np.stack([x, y]) ** 3),
                                     lambda t, x, y: t.sum(t.cat([x, y]) ** 2) + t.sum(t.stack([x, y]) ** 3)),
    Family("slices",         vector, lambda np, s, x: np.sum((x[2:] - 2.0 * x[1:-1] + x[:-2]) ** 2),
                                     lambda t, x: t.sum((x[2:] - 2.0 * x[1:-1] + x[:-2]) ** 2)),
    Family("gather",         vector, lambda np, s, x: np.sum(x[gathered(len(x))] ** 2),
                                     lambda t, x: t.sum(x[t.from_numpy(gathered(len(x)))] ** 2)),
    Family("selection",      pair,   lambda np, s, x, y: np.sum(np.where(x.data > 1.0 if hasattr(x, "null_grad") else x > 1.0, x * y, y)),
                                     lambda t, x, y: t.sum(t.where(x > 1.0, x * y, y))),
    Family("sorting",        vector, lambda np, s, x: np.sum(np.sort(x)[::2] ** 2),
                                     lambda t, x: t.sum(t.sort(x)[0][::2] ** 2)),
    Family("matmul",         square, lambda np, s, a: np.sum(np.matmul(a, a) ** 2),
                                     lambda t, a: t.sum(t.matmul(a, a) ** 2)),
    Family("einsum",         square, lambda np, s, a: np.sum(np.einsum("ij,kj->ik", a, a) ** 2),
                                     lambda t, a: t.sum(t.einsum("ij,kj->ik", a, a) ** 2)),
    Family("solve",          system, lambda np, s, a, b: np.sum(np.linalg.solve(a, b) ** 2),
                                     lambda t, a, b: t.sum(t.linalg.solve(a, b) ** 2)),
    Family("log-determinant", square, lambda np, s, a: np.linalg.slogdet(a)[1],
                                     lambda t, a: t.linalg.slogdet(a)[1]),
    Family("Cholesky",       square, lambda np, s, a: np.sum(np.linalg.cholesky(a) ** 2),
                                     lambda t, a: t.sum(t.linalg.cholesky(a) ** 2)),
    Family("eigenvalues",    square, lambda np, s, a: np.sum(np.linalg.eigh(a)[0] ** 2),
                                     lambda t, a: t.sum(t.linalg.eigh(a)[0] ** 2)),
    Family("singular values", square, lambda np, s, a: np.sum(np.linalg.svd(a, compute_uv=False) ** 3),
                                     lambda t, a: t.sum(t.linalg.svdvals(a) ** 3)),
    Family("Fourier",        vector, lambda np, s, x: np.sum(np.real(np.fft.fft(x)) ** 2),
                                     lambda t, x: t.sum(t.real(t.fft.fft(x)) ** 2)),
]
# fmt: on


def contestant(library: str, family: Family, n: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """(value alone, value and gradients) as runs; ImportError or AttributeError where there is no such thing."""
    arrays = family.make(n)
    if library == "torch":
        import torch

        torch.set_num_threads(1)
        plain = [torch.tensor(a) for a in arrays]
        leaves = [torch.tensor(a, requires_grad=True) for a in arrays]
        if family.torch is None:
            raise AttributeError(family.name)
        return lambda: family.torch(torch, *plain), backward(
            lambda: family.torch(torch, *leaves), leaves
        )
    if library == "autograd":
        autograd = importlib.import_module("autograd")
        space = importlib.import_module("autograd.numpy")
        special = importlib.import_module("autograd.scipy.special")
        pulled = autograd.value_and_grad(
            lambda args: family.numpy(space, special, *args)
        )  # of a tuple: one walk for all
        import scipy.special

        return lambda: family.numpy(np, scipy.special, *arrays), lambda: pulled(arrays)
    if library == "mygrad":
        import mygrad as mg

        mg.turn_memory_guarding_off()
        leaves = [mg.tensor(a) for a in arrays]
        plain = [mg.tensor(a, constant=True) for a in arrays]
        return lambda: family.numpy(mg, None, *plain), backward(
            lambda: family.numpy(mg, None, *leaves), leaves
        )
    import tapegrad as tg

    leaves = [tg.tensor(a, requires_grad=True) for a in arrays]
    plain = [tg.tensor(a) for a in arrays]
    return lambda: family.numpy(tg, tg.special, *plain), backward(
        lambda: family.numpy(tg, tg.special, *leaves), leaves
    )


def backward(value: Callable[[], Any], leaves: list[Any]) -> Callable[[], Any]:
    def run() -> Any:
        for leaf in leaves:
            if hasattr(leaf, "null_grad"):
                leaf.null_grad()
            else:
                leaf.grad = None
        out = value()
        out.backward()
        return out, [leaf.grad for leaf in leaves]

    return run


def checked(library: str, family: Family, n: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """The runs, warm, with the answer of tapegrad's sweep."""
    runs = contestant(library, family, n)
    for _ in range(2):
        value, gradients = runs[1]()
    expected_value, expected = contestant("tapegrad", family, n)[1]()
    np.testing.assert_allclose(float(peers.bare(value)), expected_value.item(), rtol=1e-9)
    for mine, theirs in zip(expected, gradients, strict=True):
        theirs = np.asarray(peers.bare(theirs))
        mine = mine.numpy()
        if family.make is square and theirs.shape == mine.shape:
            # Of a symmetric argument only the symmetric part is agreed on.
            mine, theirs = mine + mine.T, theirs + theirs.T
        np.testing.assert_allclose(theirs, mine, rtol=1e-7, atol=1e-9)
    return runs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--only", action="append", default=[], help="families whose name has this word"
    )
    parser.add_argument("--seconds", type=float, default=0.5, help="a row and size")
    options = parser.parse_args()
    import tapegrad as tg

    tg.set_engine("replay")
    others = [name for name in LIBRARIES[1:] if peers.installed(name)]
    print(
        "Value and gradient: time of tapegrad, its ratio to the value alone, and how many times longer the others take.\n"
    )
    print("| family | n | tapegrad | to its value | " + " | ".join(others) + " |")
    print("| --- | ---: | ---: | ---: |" + " ---: |" * len(others))
    for family in FAMILIES:
        if options.only and not any(word in family.name for word in options.only):
            continue
        for n in SIZES:
            value, gradient = checked("tapegrad", family, n)
            runs = {"value": value, "tapegrad": gradient}
            for name in others:
                try:
                    runs[name] = checked(name, family, n)[1]
                except (ImportError, AttributeError):
                    continue
            times = measure.turn_about(runs, options.seconds, measure.CLOCKS["cpu"])
            ratios = [
                f"{measure.ratio(times[name], times['tapegrad']):.1f}" if name in times else "-"
                for name in others
            ]
            mine = statistics.median(times["tapegrad"]) * 1e6
            over = measure.ratio(times["tapegrad"], times["value"])
            print(
                f"| {family.name} | {n} | {mine:.0f} µs | {over:.1f} | "
                + " | ".join(ratios)
                + " |",
                flush=True,
            )


if __name__ == "__main__":
    main()
