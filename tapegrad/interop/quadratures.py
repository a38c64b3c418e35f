"""Integrals of functions: SciPy's `quad`, `quad_vec`, `dblquad`, `tplquad`, `nquad` and `fixed_quad`, differentiable by all that they use.

SciPy's code finds the value, on plain numbers. The derivative is Leibniz' rule: an end of the interval moves the integral by the
value of the function there, and what the function uses by the integral of its derivative, which SciPy finds, too, with the settings
and to the tolerances of the value (so it has its own nodes, and an error of its own that is as small). The integral of a derivative
is the same kind of thing as the integral: hence any order.

An integral is one entry of the tape (`_Integral`), whose operands are the ends, break points, and the tracked tensors that the
function uses. Its integrand is a function of a number that returns a vector.

Invariant: where an integrand jumps at a place that moves, the place is one of `points`, else the jump is not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from ..core import sweep
from ..core.closures import closed_over
from ..core.dual import LEVEL, tangent_of, with_tangent
from ..core.mode import enable_grad, is_grad_enabled, no_grad
from ..core.packing import op_of_calls
from ..core.primitive import apply
from ..core.storage import tracing
from ..core.tape import own_tape
from ..core.tensor import Tensor, value_of, wrap
from ..errors import GraphError, NotDifferentiable, demand_callable
from ..ops.composing import holds_tracked, raw
from ..ops.joining import gathered
from ..transforms.derivatives import _Run
from ..transforms.loops import outside_of, pulled, pushed
from .interludes import interlude

Integrand = Callable[[Any], Any]
"""A number in, a vector out."""

Rule = Callable[[Integrand, float, float, Any, int], np.ndarray]
"""The integral of a plain function between two numbers, with break points; the function returns a vector of so many entries."""

SEVERAL = 8
"""Nodes from which a function is tried on all of them at once."""

FEW = 40
"""Entries of a vector up to which each is integrated by itself, by QUADPACK; more are integrated together."""


@interlude
def quad(
    func: Callable[..., Any],
    a: Any,
    b: Any,
    args: Any = (),
    full_output: int = 0,
    epsabs: float = 1.49e-8,
    epsrel: float = 1.49e-8,
    limit: int = 50,
    points: Any = None,
    weight: str | None = None,
    wvar: Any = None,
    wopts: Any = None,
    maxp1: int = 50,
    limlst: int = 50,
    complex_func: bool = False,
) -> Any:
    """Integral of func(x, *args) from a to b and an estimate of its error; SciPy's `quad`, differentiable by ends and all that `func` uses.

    Arguments and results are SciPy's; the integral is tracked where it depends on something tracked. Its derivatives, of every order and in
    both modes, are integrals found in the same way and to the same tolerances. `points`, where `func` jumps or has a kink, may be
    tracked, too. Raises NotDifferentiable for tracked ends under an algebraic weight, and for a tracked `wvar`; TraceError inside
    `tg.compile`.

    >>> import numpy as np, tapegrad as tg
    >>> gauss = lambda k: tg.integrate.quad(lambda x: np.exp(-k * x**2), -np.inf, np.inf)[0]
    >>> print(round(gauss(np.pi), 9), round(tg.grad(gauss)(np.pi), 9), round(-0.5 / np.pi, 9))
    1.0 -0.159154943 -0.159154943
    """
    from scipy import integrate

    demand_callable(func, "quad")
    args = args if isinstance(args, tuple) else (args,)
    if holds_tracked([wvar]):
        raise NotDifferentiable(
            "quad was given a tracked wvar, but the derivative by the parameter of a weight is no integral with that weight. Write the "
            "weight as part of func, or wvar.detach()."
        )
    settings: dict[str, Any] = {
        "epsabs": epsabs, "epsrel": epsrel, "limit": limit, "weight": weight, "wvar": raw(wvar), "wopts": wopts, "maxp1": maxp1,
        "limlst": limlst,
    }  # fmt: skip
    if complex_func:
        parts = [
            quad(
                lambda x, *more, part=part: part(func(x, *more)),
                a,
                b,
                args,
                full_output,
                points=points,
                **settings,
            )
            for part in (np.real, np.imag)
        ]
        (real, *of_real), (imaginary, *of_imaginary) = parts
        rest = (
            ({"real": tuple(of_real[1:]), "imag": tuple(of_imaginary[1:])},) if full_output else ()
        )
        return (real + 1j * imaginary, of_real[0] + 1j * of_imaginary[0], *rest)
    integral = _Found("quad", func, args, _one)
    integral.at_once = lambda places: gathered(func(places, *args))
    ends = (a, b, points)
    plain = [None if x is None else np.asarray(raw(gathered(x)), dtype=float) for x in ends]
    low, high = float(plain[0]), float(plain[1])  # type: ignore[arg-type]
    found = integrate.quad(
        lambda x: integral.plain(x)[0],
        low,
        high,
        full_output=full_output,
        points=plain[2],
        **settings,
    )

    def rule(f: Integrand, low: float, high: float, places: Any, count: int) -> np.ndarray:
        return _each(f, low, high, places, count, settings)

    value = integral.made(np.array([found[0]]), rule, ends, weight, settings["wvar"])
    return (value[0] if isinstance(value, Tensor) else found[0], *found[1:])


@interlude
def quad_vec(
    f: Callable[..., Any],
    a: Any,
    b: Any,
    epsabs: float = 1e-200,
    epsrel: float = 1e-8,
    norm: str = "2",
    cache_size: float = 100e6,
    limit: float = 10000,
    workers: Any = 1,
    points: Any = None,
    quadrature: str | None = None,
    full_output: bool = False,
    *,
    args: Any = (),
) -> Any:
    """Integral of the array f(x, *args) from a to b and an estimate of its error; SciPy's `quad_vec`, differentiable as `quad` is.

    >>> import numpy as np, tapegrad as tg
    >>> tg.jacobian(lambda k: tg.integrate.quad_vec(lambda x: x ** np.arange(3) * k, 0, 1)[0])(1.0).round(9)
    array([1.        , 0.5       , 0.33333333])
    """
    from scipy import integrate

    demand_callable(f, "quad_vec")
    args = args if isinstance(args, tuple) else (args,)
    settings = {
        "epsabs": epsabs, "epsrel": epsrel, "norm": norm, "cache_size": cache_size, "limit": limit, "quadrature": quadrature,
    }  # fmt: skip
    shapes: list[Any] = []

    def vector(y: Any) -> Any:
        if y is None:
            raise TypeError(
                "quad_vec integrates what f returns, but f returned None. Does it end with a return?"
            )
        y = gathered(y)
        shapes[:] = [np.shape(y), y.dtype]
        y = np.reshape(y, (-1,))
        return y if y.dtype.kind != "c" else np.concatenate([np.real(y), np.imag(y)])

    def array(y: Any) -> Any:
        shape, dtype = shapes
        if dtype.kind == "c":
            y = y[: len(y) // 2] + 1j * y[len(y) // 2 :]
        return np.reshape(y, shape)

    integral = _Found("quad_vec", f, args, vector)
    ends = (a, b, points)
    plain = [None if x is None else np.asarray(raw(gathered(x)), dtype=float) for x in ends]
    found = integrate.quad_vec(
        lambda x: array(integral.plain(x)), float(plain[0]), float(plain[1]),  # type: ignore[arg-type]
        points=plain[2], workers=workers, full_output=full_output, **settings
    )  # fmt: skip

    def rule(f: Integrand, low: float, high: float, places: Any, count: int) -> np.ndarray:
        return np.asarray(integrate.quad_vec(f, low, high, points=places, **settings)[0])

    value = integral.made(np.asarray(raw(vector(np.asarray(found[0])))), rule, ends, None, None)
    return (array(value) if isinstance(value, Tensor) else found[0], *found[1:])


@interlude
def nquad(
    func: Callable[..., Any],
    ranges: Sequence[Any],
    args: Any = None,
    opts: Any = None,
    full_output: bool = False,
) -> Any:
    """Integral over several variables and an estimate of its error; SciPy's `nquad`, differentiable by ranges and all that `func` uses.

    `func(x0, x1, ..., *args)`; a range is a pair or a function of the variables behind it, the first that of x0. Derivatives are
    nested integrals, each to the tolerances in `opts`.

    >>> import tapegrad as tg
    >>> volume = lambda r: tg.integrate.nquad(lambda y, x: r * x * y, [lambda x: (0.0, r * x), (0.0, r)])[0]
    >>> print(round(volume(1.0), 9), round(tg.grad(volume)(1.0), 6))
    0.125 0.875
    """
    from scipy import integrate

    demand_callable(func, "nquad")
    depth = len(ranges)
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    limits = [r if callable(r) else _constant(r) for r in ranges]
    if opts is None:
        options: list[Any] = [_constant({})] * depth
    elif isinstance(opts, dict):
        options = [_constant(opts)] * depth
    else:
        options = [o if callable(o) else _constant(o) for o in opts]
    seen: list[Any] = []

    def noted(f: Callable[..., Any]) -> Callable[..., Any]:
        def plain(*given: Any) -> Any:
            made = f(*given)
            if not seen and holds_tracked(
                made if isinstance(made, tuple | list | dict) else [made]
            ):
                seen.append(True)
            return raw(made)

        return plain

    found = integrate.nquad(
        noted(func),
        [noted(r) for r in limits],
        args,
        [noted(o) for o in options],
        full_output=full_output,
    )
    if not seen:
        return found

    def nested(level: int, given: tuple[Any, ...]) -> Any:
        """The integral over the variables before `level`, those behind it and the arguments being given."""
        if level == 0:
            return func(*given)
        low, high = limits[level - 1](*given)
        settings = dict(options[level - 1](*given))
        settings.pop("full_output", None)
        return quad(lambda x, *more: nested(level - 1, (x, *more)), low, high, given, **settings)[0]

    return (nested(depth, args), *found[1:])


def dblquad(
    func: Callable[..., Any],
    a: Any,
    b: Any,
    gfun: Any,
    hfun: Any,
    args: Any = (),
    epsabs: float = 1.49e-8,
    epsrel: float = 1.49e-8,
) -> Any:
    """Integral of func(y, x, *args) over x from a to b and y from gfun(x) to hfun(x), and its error; SciPy's `dblquad`, as `nquad`.

    >>> import tapegrad as tg
    >>> print(round(tg.grad(lambda k: tg.integrate.dblquad(lambda y, x: k * x * y, 0, 1, 0, lambda x: x)[0])(2.0), 9))
    0.125
    """

    ranges = [_between(gfun, hfun), (a, b)]
    return nquad(func, ranges, args, {"epsabs": epsabs, "epsrel": epsrel})


def _between(low: Any, high: Any) -> Callable[..., tuple[Any, Any]]:
    """The range between two functions of x, or two numbers."""
    return lambda x, *_: (_at(low, x), _at(high, x))


def tplquad(
    func: Callable[..., Any],
    a: Any,
    b: Any,
    gfun: Any,
    hfun: Any,
    qfun: Any,
    rfun: Any,
    args: Any = (),
    epsabs: float = 1.49e-8,
    epsrel: float = 1.49e-8,
) -> Any:
    """Integral of func(z, y, x, *args), x from a to b, y between gfun(x) and hfun(x), z between qfun(x, y) and rfun(x, y); as `nquad`.

    >>> import tapegrad as tg
    >>> print(round(tg.grad(lambda k: tg.integrate.tplquad(lambda z, y, x: k * x * y * z, 0, 1, 0, 1, 0, 1, epsabs=1e-4)[0])(2.0), 6))
    0.125
    """

    def innermost(*given: Any) -> tuple[Any, Any]:
        return _at(qfun, given[1], given[0]), _at(rfun, given[1], given[0])

    ranges = [innermost, _between(gfun, hfun), (a, b)]
    return nquad(func, ranges, args, {"epsabs": epsabs, "epsrel": epsrel})


def fixed_quad(
    func: Callable[..., Any], a: Any, b: Any, args: Any = (), n: int = 5
) -> tuple[Any, None]:
    """Integral of func(x, *args) from a to b by Gauss' rule with n nodes, and None; SciPy's `fixed_quad`, differentiable, compiled too.

    `func` takes the array of all nodes at once, and may return further axes before theirs.

    >>> import numpy as np, tapegrad as tg
    >>> print(round(tg.grad(lambda b: tg.integrate.fixed_quad(np.cos, 0.0, b)[0])(1.0), 6), np.cos(1.0).round(6))
    0.540302 0.540302
    """
    demand_callable(func, "fixed_quad")
    nodes, weights = np.polynomial.legendre.leggauss(n)
    a, b = gathered(a), gathered(b)
    if tracing.get() is None and not np.all(np.isfinite(raw([a, b]))):
        raise ValueError("Gaussian quadrature is only available for finite limits.")
    args = args if isinstance(args, tuple) else (args,)
    at = (b - a) * (nodes + 1) / 2.0 + a
    return (b - a) / 2.0 * np.sum(weights * gathered(func(at, *args)), axis=-1), None


# ---------------------------------------------------------------------------------------------------------- one integral


def _one(y: Any) -> Any:
    """A number as a vector."""
    if y is None:
        raise TypeError(
            "quad integrates what func returns, but func returned None. Does it end with a return?"
        )
    y = gathered(y)
    if np.size(y) != 1:
        raise ValueError(
            f"quad integrates numbers, but func returned shape {np.shape(y)}. Use quad_vec, or sum what func returns."
        )
    return np.reshape(y, (1,))


def _constant(value: Any) -> Callable[..., Any]:
    return lambda *given: value


def _at(bound: Any, *given: Any) -> Any:
    return bound(*given) if callable(bound) else bound


def _each(
    f: Integrand, low: float, high: float, places: Any, count: int, settings: dict[str, Any]
) -> np.ndarray:
    """Integrals of the entries of a vector, one by one; the function is called once at each node."""
    from scipy import integrate

    known: dict[float, np.ndarray] = {}

    def at(x: float) -> np.ndarray:
        if x not in known:
            known[x] = f(x)
        return known[x]

    if count > FEW and settings["weight"] is None:
        kept = {k: settings[k] for k in ("epsabs", "epsrel")}
        return np.asarray(integrate.quad_vec(at, low, high, points=places, **kept)[0])
    found = [
        integrate.quad(lambda x, i=i: at(x)[i], low, high, points=places, **settings)[0]
        for i in range(count)
    ]
    return np.array(found)


class _Found:
    """A function of the user's that SciPy integrates, and what it used on the way."""

    def __init__(
        self, what: str, func: Callable[..., Any], args: Sequence[Any], vector: Callable[[Any], Any]
    ) -> None:
        self.what, self.args = what, args
        self.held = closed_over([func])
        self.outside: dict[Any, Any] = {}
        self.met: dict[float, np.ndarray] = {}
        """Nodes, and the values there."""
        self.at_once: Integrand | None = None
        """The function at many places, if it may be tried on an array of them."""
        self.recording = is_grad_enabled()
        self.duals = False
        self.function: Integrand = lambda x: vector(func(x, *args))

    def plain(self, x: float) -> np.ndarray:
        """The value at a number; what is tracked on the way is noted."""
        if not self.recording:
            made = self.function(x)
        else:
            own = own_tape()
            with own:
                made = self.function(x)
            if isinstance(made, Tensor):
                if made._node is not None:
                    self.outside.update(outside_of(own.tape.code, ()))
                    self._returned(made, own.tape.code)
        if LEVEL.get() is not None and tangent_of(made) is not None:
            self.duals = True
        value = self.met[x] = np.asarray(value_of(made))
        return value

    def _returned(self, made: Tensor, code: list[Any]) -> None:
        """A tensor that the function returned as it is was made by no entry of its own."""
        if not code and made._node not in self.outside:
            self.outside[made._node] = made

    def made(
        self, value: np.ndarray, rule: Rule, ends: tuple[Any, Any, Any], weight: Any, wvar: Any
    ) -> Any:
        """The integral as a function of the ends and of what the function used; the plain value if there is nothing tracked."""
        low, high, places = ends
        ends = (gathered(low), gathered(high), None if places is None else gathered(places))
        found: Any = value
        if self.outside or holds_tracked(list(ends)):
            found = _integral(self, rule, ends, weight, wvar, value)
        if self.duals:
            found = found + self._tangent(value, rule, ends, weight, wvar)
        return found

    def again(self) -> Integrand:
        """The function, with the variables that it closes over as they are now, once it is known to be what it was."""
        run = self.held.within(self.function)
        checked: list[bool] = []

        def function(x: Any) -> Any:
            if not checked and self.met:
                checked.append(True)
                x0, y0 = next(iter(self.met.items()))
                with no_grad():
                    now = np.asarray(value_of(run(x0)))
                near = {"rtol": 1e-6, "atol": 1e-6 * np.abs(y0).max(initial=0.0)}
                if not np.allclose(now, y0, equal_nan=True, **near):
                    raise GraphError(
                        f"the function of {self.what} was run again for the derivative of the integral, and gave something else: a value "
                        "that the function reads has changed since, or it draws random numbers. Give it in args, or copy it before.",
                        name="changed-since",
                    )
            return run(x)

        return function

    def _tangent(self, value: np.ndarray, rule: Rule, ends: Any, weight: Any, wvar: Any) -> Tensor:
        """Zero, whose tangent is the integral of the function's."""
        level = LEVEL.get()
        assert level is not None

        def rate(x: Any) -> Any:
            made = self.function(x)
            tangent = tangent_of(made)
            return np.zeros(np.shape(made)) if tangent is None else tangent

        rates = _Found(self.what, rate, (), lambda y: y)
        low, high, places = (None if x is None else np.asarray(raw(x), dtype=float) for x in ends)
        fixed = (low, high, places)
        plain = rule(rates.plain, float(low), float(high), places, np.size(value))  # type: ignore[arg-type]
        total = rates.made(np.asarray(plain), rule, fixed, weight, wvar)
        return with_tangent(
            wrap(np.zeros(np.shape(value))),
            level,
            total if isinstance(total, Tensor) else wrap(total),
        )


integral_op = op_of_calls(
    "integral",
    "An integral, by its ends and by the tracked values that its function uses.",
    pushes=True,
)


def _integral(
    found: _Found, rule: Rule, ends: Any, weight: Any, wvar: Any, value: np.ndarray
) -> Any:
    """One entry of the tape: its operands are both ends, the break points if there are any, and what the function uses."""
    low, high, places = ends
    own = [low, high, *([] if places is None else [places])]
    made = _Integral(found, rule, weight, wvar, value, len(own))
    return apply(integral_op.primitive, [*own, *found.outside.values()], (made,))


class _Integral:
    """The rule of one integral: see the module."""

    __slots__ = (
        "at_once",
        "ends",
        "function",
        "met",
        "nodes",
        "rule",
        "value",
        "weight",
        "what",
        "wvar",
    )

    def __init__(
        self, found: _Found, rule: Rule, weight: Any, wvar: Any, value: np.ndarray, ends: int
    ) -> None:
        self.what, self.rule, self.weight, self.wvar = found.what, rule, weight, wvar
        self.function, self.met, self.nodes = found.again(), found.met, list(found.outside)
        self.at_once = None if found.at_once is None else found.held.within(found.at_once)
        self.value, self.ends = value, ends

    def evaluate(self, values: Sequence[Any]) -> Any:
        return self.value.copy()

    def _parts(self, xs: Sequence[Any]) -> tuple[Any, Any, Any]:
        return xs[0], xs[1], xs[2] if self.ends == 3 else None

    def again(self, x: Any) -> Any:
        return self.function(x)

    def _jump(self, place: Any) -> Any:
        """How much higher the function is on the left of a break point."""
        plain = float(value_of(place))
        sides = [place + (np.nextafter(plain, to) - plain) for to in (-np.inf, np.inf)]
        left, right = (_weighed(self, side) for side in sides)
        return left - right

    def integrated(self, rates: Integrand, xs: Sequence[Any], count: int) -> Any:
        """The integral of another function between the same ends, tracked if the ends are or what it uses is."""
        ends = self._parts(xs)
        found = _Found(self.what, rates, (), lambda y: y)
        low, high, places = (
            None if x is None else np.asarray(value_of(x), dtype=float) for x in ends
        )
        value = self.rule(found.plain, float(low), float(high), places, count)  # type: ignore[arg-type]
        return found.made(np.asarray(value), self.rule, ends, self.weight, self.wvar)

    def pull(self, g: Any, xs: Sequence[Any], wanted: Sequence[bool]) -> list[Any]:
        """Cotangents of the ends, the places and the values from outside; the latter are integrals of the integrand's pullback."""
        recorded = isinstance(g, Tensor)
        mine: list[Any] = [None] * self.ends
        if any(wanted[: self.ends]):
            for i, rate in enumerate(self._wanted(xs, wanted)):
                if rate is not None:
                    mine[i] = np.matmul(rate, g) if i == 2 else np.sum(rate * g)
        if not any(wanted[self.ends :]):
            return [*mine, *[None] * len(self.nodes)]
        operands = dict(zip(self.nodes, xs[self.ends :], strict=True))

        def rates(x: Any) -> Any:
            return self._slope(x, g, operands)

        kinds = [np.asarray(value_of(x)).dtype.kind for x in operands.values()]
        count = sum(
            np.size(x) * (1 + (kind == "c"))
            for x, kind in zip(operands.values(), kinds, strict=True)
        )
        whole: Any
        if recorded:
            whole = self.integrated(rates, xs, count)
        else:
            known = self._slopes_at_once(operands, np.asarray(g))
            whole = self._plainly(rates, xs, count, known)
        cotangents, start = [], 0
        for value in operands.values():
            shape, dtype = np.shape(value), np.asarray(value_of(value)).dtype
            size = int(np.prod(shape))
            part = whole[start : start + size]
            start += size
            if dtype.kind == "c":
                part = part + 1j * whole[start : start + size]
                start += size
            cotangents.append(np.reshape(part, shape).astype(dtype))
        return [*mine, *cotangents]

    def _wanted(self, xs: Sequence[Any], wanted: Sequence[bool]) -> list[Any]:
        """Rates of the integral by its ends and break points: the integrand there, and its jumps."""
        low, high, places = self._parts(xs)
        _demand_movable(self.what, self.weight, wanted[0] or wanted[1])
        found: list[Any] = [None] * self.ends
        recorded = any(isinstance(x, Tensor) for x in xs)
        with nullcontext() if recorded else no_grad():
            if wanted[0]:
                found[0] = -_weighed(self, low)
            if wanted[1]:
                found[1] = _weighed(self, high)
            if self.ends == 3 and wanted[2]:
                found[2] = np.stack([self._jump(places[i]) for i in range(np.shape(places)[0])])
        return (
            found if recorded else [None if f is None else np.asarray(value_of(f)) for f in found]
        )

    def _plainly(
        self,
        rates: Integrand,
        xs: Sequence[Any],
        count: int,
        known: dict[float, np.ndarray] | None = None,
    ) -> np.ndarray:
        """The integral of another plain function between the same ends; `known` are values of it."""
        known = known or {}

        def at(x: float) -> np.ndarray:
            found = known.get(x)
            return np.asarray(value_of(rates(x))) if found is None else found

        low, high, places = (
            None if x is None else np.asarray(value_of(x), dtype=float) for x in self._parts(xs)
        )
        return self.rule(at, float(low), float(high), places, count)  # type: ignore[arg-type]

    def _slopes_at_once(self, operands: dict[Any, Any], g: np.ndarray) -> dict[float, np.ndarray]:
        """Cotangents of all that the function uses at the nodes of the value, from one run with all of them as an array.

        Empty where the function is not meant for arrays, or gives anything else there than at numbers, in value or in derivative.
        """
        sizes = [np.size(x) for x in operands.values()]
        count = sum(sizes)
        plain = all(np.asarray(x).dtype.kind == "f" for x in operands.values())
        if self.at_once is None or len(self.met) < SEVERAL or count > FEW or not plain:
            return {}
        places, values = np.array(list(self.met)), np.concatenate(list(self.met.values()))
        try:
            with enable_grad(), np.errstate(all="ignore"):
                run = _Run(self.at_once, (places,), {}, (0,), self.what)
            made = run.output
            if (
                not _same(value_of(made), values)
                or not outside_of(run.own.tape.code, run.nodes).keys() <= operands.keys()
            ):
                return {}
            tangents, start = {}, 0
            for (node, x), size in zip(operands.items(), sizes, strict=True):
                directions = np.zeros((count, size), np.asarray(x).dtype)
                directions[start : start + size] = np.eye(size)
                tangents[node] = directions.reshape(count, *np.shape(x))
                start += size
            with run.own.tape.held():
                ends = run.own.tape.position(run.first), run.own.tape.position(run.last)
                sweep.push(run.own.tape.code, *ends, tangents, False, count)
            slopes = np.asarray(tangents[made._node]).T * g
            for i in (len(places) // 3, len(places) - 1):
                if not _same(slopes[i], np.asarray(self._slope(float(places[i]), g, operands))):
                    return {}
        except Exception:  # whatever a function of numbers makes of an array
            return {}
        return dict(zip(self.met, slopes, strict=True))

    def _slope(self, x: Any, g: Any, operands: dict[Any, Any]) -> Any:
        """Cotangents of all that the function uses, at one place, one after the other."""
        found = pulled(lambda _: self.again(x), (0.0,), g)[1]
        parts: list[Any] = []
        for node, value in operands.items():
            dtype = np.asarray(value_of(value)).dtype
            t = found.get(node)
            t = np.reshape(np.zeros(np.shape(value), dtype) if t is None else t, (-1,))
            parts += [np.real(t), np.imag(t)] if dtype.kind == "c" else [t]
        return np.concatenate(parts)

    def push(self, given: Sequence[Any], xs: Sequence[Any]) -> Any:
        """The tangent of the integral: that of the integrand, integrated, and the moving ends."""
        recorded = any(isinstance(x, Tensor) for x in (*xs, *given))
        outside = {
            n: t for n, t in zip(self.nodes, given[self.ends :], strict=True) if t is not None
        }
        total: Any = np.zeros(np.shape(self.value))
        if outside:

            def rates(x: Any) -> Any:
                return pushed(lambda _: self.again(x), (0.0,), (None,), outside, recorded)

            of = self.integrated if recorded else self._plainly
            total = of(rates, xs, np.size(self.value))
        wanted = [t is not None for t in given[: self.ends]]
        if any(wanted):
            for i, rate in enumerate(self._wanted(xs, wanted)):
                if rate is not None:
                    total = total + (np.matmul(given[i], rate) if i == 2 else rate * given[i])
        return total


def _same(found: Any, expected: np.ndarray) -> bool:
    """Whether two vectors differ by no more than rounding."""
    found = np.asarray(found)
    if found.shape != expected.shape:
        return False
    near = 1e-10 * np.abs(expected).max(initial=0.0)
    return bool(np.all(np.abs(found - expected) <= near))


def _demand_movable(what: str, weight: Any, moves: bool) -> None:
    if moves and weight is not None and str(weight).startswith("alg"):
        raise NotDifferentiable(
            f"{what} was asked for the derivative by an end of the interval under the weight {weight!r}, which is zero or infinite there. "
            "Substitute x = a + (b - a) s, so that the ends are constants.",
            name="no-slope-here",
        )


def _weighed(integral: Any, x: Any) -> Any:
    """The function at an end, with the weight; nothing at an infinite one."""
    plain = float(value_of(x))
    y = integral.again(x) if np.isfinite(plain) else np.zeros(np.shape(integral.value))
    weight, wvar = integral.weight, integral.wvar
    if weight in ("cos", "sin"):
        return y * (np.cos if weight == "cos" else np.sin)(wvar * x)
    return y / (x - wvar) if weight == "cauchy" else y


__all__ = ["dblquad", "fixed_quad", "nquad", "quad", "quad_vec", "tplquad"]
