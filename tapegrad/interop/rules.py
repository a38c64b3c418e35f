"""Integrals of functions of arrays: SciPy's `cubature`, `tanhsinh` and `qmc_quad`, differentiable by ends and by all that they use.

SciPy's code finds the value, and with it a rule: the regions of the last subdivision, the level of the last nodes, the points of the
sample. The derivative is that of the rule, a sum over nodes that move with the ends, recorded in one run of the function on all of
them: so every order, both modes. Its error is not estimated: it is that of the rule for the function's derivative, which is of
the size of the tolerances where the derivative is no rougher than the function.

Invariant: the value is SciPy's, to the bit; the rule is believed where it gives the value again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..core.mode import no_grad
from ..core.tensor import value_of
from ..errors import NotDifferentiable, demand_callable
from ..ops.composing import holds_tracked, raw
from ..ops.joining import gathered
from .interludes import interlude


@interlude
def cubature(
    f: Callable[..., Any], a: Any, b: Any, *, rule: str = "gk21", rtol: float = 1e-8, atol: float = 0, max_subdivisions: int | None = 10000,
    args: tuple[Any, ...] = (), workers: Any = 1, points: Sequence[Any] | None = None,
) -> Any:  # fmt: skip
    """Integral of f(x, *args) over the box from a to b; SciPy's `cubature`, whose `estimate` is differentiable by a, b and what `f` uses.

    `f` maps places of shape (n, dimensions) to values of shape (n, ...). The derivative is that of the sum over the last regions. Raises
    NotDifferentiable where it is wanted and an end is infinite, or the rule is an object.

    >>> import numpy as np, tapegrad as tg
    >>> mass = lambda r: tg.integrate.cubature(lambda x: np.exp(-r * x[:, 0] * x[:, 1]), [0.0, 0.0], [1.0, 1.0]).estimate
    >>> print(round(mass(1.0), 9), round(tg.grad(mass)(1.0), 9))
    0.796599599 -0.16447904
    """
    from scipy import integrate

    demand_callable(f, "cubature")
    low, high = (np.asarray(raw(gathered(x)), dtype=float) for x in (a, b))
    given = None if points is None else [np.asarray(raw(gathered(p)), dtype=float) for p in points]
    settings = {
        "rtol": rtol,
        "atol": atol,
        "max_subdivisions": max_subdivisions,
        "workers": workers,
    }
    found = integrate.cubature(
        _plainly(f), low, high, rule=rule, args=args, points=given, **settings
    )
    if not (holds_tracked([a, b]) or _is_tracked(f, ((low + high)[None] / 2, *args))):
        return found
    if not (np.isfinite(low) & np.isfinite(high)).all() or not isinstance(rule, str):
        raise NotDifferentiable(
            "cubature was asked for an integral whose derivative is wanted, over an infinite range or by a rule of your own. Substitute "
            "x = t / (1 - t**2), so that the range is finite, or use nquad."
        )
    nodes, weights = _product(rule, len(low))
    corners = [(np.asarray(r.a), np.asarray(r.b)) for r in found.regions]
    least, size = np.minimum(low, high), np.abs(high - low)
    unit = np.concatenate([(p - least) / size + (q - p) / size * nodes for p, q in corners])
    shares = np.concatenate([np.prod((q - p) / size) * weights for p, q in corners])
    unit = np.where(low > high, 1 - unit, unit)  # SciPy goes from the lower to the higher end
    a, b = gathered(a), gathered(b)
    values = gathered(f(a + (b - a) * unit, *args))
    shares = np.reshape(shares, (-1, *[1] * (np.ndim(values) - 1)))
    found.estimate = _moving(found.estimate, np.sum(shares * values, axis=0) * np.prod(b - a), "cubature")  # fmt: skip
    return found


def _product(rule: str, dims: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes (many, dims) and weights of SciPy's rule on the unit cube."""
    from scipy.integrate import _rules

    if rule == "genz-malik":
        of: Any = _rules.GenzMalikCubature(dims)
    else:
        one = _rules.GaussKronrodQuadrature(15 if rule == "gk15" else 21)
        of = _rules.ProductNestedFixed([one] * dims)
    nodes, weights = of.nodes_and_weights
    return (np.asarray(nodes) + 1) / 2, np.asarray(weights) / 2**dims


@interlude
def tanhsinh(
    f: Callable[..., Any], a: Any, b: Any, *, args: Any = (), log: bool = False, maxlevel: int | None = None, minlevel: int | None = 2,
    atol: float | None = None, rtol: float | None = None, preserve_shape: bool = False, callback: Callable[..., Any] | None = None,
) -> Any:  # fmt: skip
    """Integrals of f(x, *args) from a to b, entry by entry; SciPy's `tanhsinh`, `integral` being differentiable by a, b, args and closures.

    `f` works entry by entry; a, b and args broadcast; ends may be infinite, and the function singular there. The derivative is that of
    the sum of the last level. Raises NotDifferentiable where it is wanted with `log` or `preserve_shape`.

    >>> import numpy as np, tapegrad as tg
    >>> gauss = lambda k: tg.integrate.tanhsinh(lambda x, k: np.exp(-k * x**2), -np.inf, np.inf, args=k).integral
    >>> print(gauss(np.pi).round(9), round(tg.grad(gauss)(np.pi), 9))
    1.0 -0.159154943
    """
    from scipy import integrate

    demand_callable(f, "tanhsinh")
    args = tuple(args) if np.iterable(args) else (args,)
    low, high, *more = (np.asarray(raw(gathered(x)), dtype=float) for x in (a, b, *args))
    found = integrate.tanhsinh(
        _plainly(f), low, high, args=tuple(more), log=log, maxlevel=maxlevel, minlevel=minlevel, atol=atol, rtol=rtol,
        preserve_shape=preserve_shape, callback=callback,
    )  # fmt: skip
    ends = [gathered(a), gathered(b)]
    inside = _between(np.minimum(low, high), np.maximum(low, high))
    if not (holds_tracked([*ends, *args]) or _is_tracked(f, (inside, *more))):
        return found
    if log or preserve_shape:
        raise NotDifferentiable(
            "tanhsinh was asked for an integral whose derivative is wanted, with log or preserve_shape. Take the logarithm of the "
            "integral, or use quad_vec."
        )
    x, weights = _nodes(ends, low, high, int(np.max(found.maxlevel)))
    spread = [np.expand_dims(gathered(v), -1) for v in args]
    with no_grad(), np.errstate(all="ignore"):
        values = np.asarray(value_of(gathered(f(*map(value_of, (x, *spread))))))
        good = np.isfinite(values) & np.isfinite(value_of(weights)) & (value_of(weights) != 0)
        good &= np.abs(value_of(x)) < 1e75  # powers of x in derivatives are finite
    x = np.where(good, x, inside[..., None])
    total = np.sum(np.where(good, weights, 0.0) * gathered(f(x, *spread)), axis=-1)
    found.integral = _moving(found.integral, total, "tanhsinh")
    return found


def _between(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """A place between two ends, of which each may be infinite."""
    open_low, open_high = np.isinf(low), np.isinf(high)
    a, b = np.where(open_low, 0.0, low), np.where(open_high, 0.0, high)
    return np.where(open_low | open_high, a + b + np.where(open_low, -1.0, 1.0), (a + b) / 2)


def _nodes(ends: list[Any], low: np.ndarray, high: np.ndarray, level: int) -> tuple[Any, Any]:
    """Nodes and weights of a level between the ends, along a last axis; an end that is infinite is that of a substitution of [0, 1]."""
    most = np.arcsinh(
        np.log(2 / (4 * np.finfo(float).smallest_normal) - 1) / np.pi
    )  # Vanherck et al., 2020: where weights underflow
    n = 8 * 2**level
    t = np.arange(n + 1) * (most / n)
    with np.errstate(all="ignore"):
        near = (
            1 / (np.exp(np.pi / 2 * np.sinh(t)) * np.cosh(np.pi / 2 * np.sinh(t))) / 2
        )  # to the nearer end of [0, 1]
        w = np.pi / 4 * np.cosh(t) / np.cosh(np.pi / 2 * np.sinh(t)) ** 2 * (most / n)
        near, w = np.concatenate([near, near[1:]]), np.concatenate([w, w[1:]])
        left = np.arange(2 * n + 1) <= n
        u = np.where(left, near, 1 - near)
        swap = low > high
        least, greatest = (np.where(swap, *pair) for pair in ((high, low), (low, high)))
        a, b = (np.expand_dims(np.where(swap, *pair), -1) for pair in ((ends[1], ends[0]), (ends[0], ends[1])))  # fmt: skip
        below, above = np.isinf(least)[..., None], np.isinf(greatest)[..., None]
        a, b = np.where(below, 0.0, a), np.where(above, 0.0, b)
        whole = (
            np.where(left, -1.0, 1.0) * (1 - 2 * near) / (4 * near * (1 - near))
        )  # s / (1 - s²), s from -1 to 1
        slope = 2 * (1 + (1 - 2 * near) ** 2) / (4 * near * (1 - near)) ** 2
        x = np.where(left, a + (b - a) * near, b - (b - a) * near)
        x = np.where(below & above, whole, np.where(above, a + 1 / u - 1, np.where(below, b + 1 - 1 / u, x)))  # fmt: skip
        rate = np.where(below & above, slope, np.where(above | below, 1 / u**2, b - a))
    return x, w * rate * np.where(swap, -1.0, 1.0)[..., None]


@interlude
def qmc_quad(
    func: Callable[..., Any], a: Any, b: Any, *, n_estimates: int = 8, n_points: int = 1024, qrng: Any = None, log: bool = False
) -> Any:  # fmt: skip
    """Integral of func(x) over the box from a to b by quasi-random points; SciPy's `qmc_quad`, differentiable at these points.

    `func` maps places of shape (dimensions, n) to n values. `integral` is a function of a, b and what `func` uses. Without `qrng`
    the points are other ones in each call, as in SciPy. Raises NotDifferentiable where a derivative is wanted with `log`.

    >>> import numpy as np, scipy.stats, tapegrad as tg
    >>> def mass(r):
    ...     halton = scipy.stats.qmc.Halton(2, rng=np.random.default_rng(0))
    ...     return tg.integrate.qmc_quad(lambda x: np.exp(-r * x[0] * x[1]), [0, 0], [1, 1], qrng=halton).integral
    >>> print(round(float(tg.grad(mass)(1.0)), 2))
    -0.16
    """
    from scipy import integrate

    demand_callable(func, "qmc_quad")
    low, high = (np.atleast_1d(np.asarray(raw(gathered(x)), dtype=float)) for x in (a, b))
    met: list[np.ndarray] = []

    def plain(x: Any) -> Any:
        met.append(np.array(x))
        return np.asarray(raw(gathered(func(x))))

    with no_grad():
        found = integrate.qmc_quad(plain, low, high, n_estimates=n_estimates, n_points=n_points, qrng=qrng, log=log)  # fmt: skip
    if not met or not (holds_tracked([a, b]) or holds_tracked([gathered(func(met[-1]))])):
        return found
    if log:
        raise NotDifferentiable(
            "qmc_quad was asked for an integral whose derivative is wanted, with log=True. Take the logarithm of the integral."
        )
    a, b = (np.reshape(gathered(x), (-1, 1)) for x in (a, b))
    sized = [
        x.reshape(len(low), -1) for x in met[-n_estimates:]
    ]  # the first call is SciPy's trial at one point
    parts = [np.mean(gathered(func(a + (b - a) * ((x - low[:, None]) / (high - low)[:, None])))) for x in sized]  # fmt: skip
    total = np.prod(b - a) * np.mean(np.stack(parts))
    return type(found)(_moving(found.integral, total, "qmc_quad"), found.standard_error)


def _plainly(f: Callable[..., Any]) -> Callable[..., Any]:
    def plain(*given: Any) -> Any:
        with no_grad():
            return np.asarray(raw(gathered(f(*given))))

    return plain


def _is_tracked(f: Callable[..., Any], given: Any) -> bool:
    """Whether a value of a function is tracked although its arguments are not."""
    with np.errstate(all="ignore"):
        return holds_tracked([gathered(f(*given))])


def _moving(value: Any, total: Any, what: str) -> Any:
    """SciPy's value with the derivative of a rule's. Raises NotDifferentiable where the rule gives another value."""
    plain = np.asarray(value_of(total))
    if not np.allclose(plain, value, rtol=1e-6, atol=1e-6 * np.abs(value).max(initial=0.0)):
        raise NotDifferentiable(
            f"{what} was asked for an integral whose derivative is wanted, but the sum over its last nodes is {plain}, where SciPy found "
            f"{value}: f does not work entry by entry, or has a singularity inside. Use quad, with points where f is singular."
        )
    return value + (total - plain)


__all__ = ["cubature", "qmc_quad", "tanhsinh"]
