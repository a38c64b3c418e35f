"""NumPy's functions spelled out: programs of simpler functions, which take their place where they have no rule.

A function of NumPy's is called in a native function, a derivative goes through it, and `rules` knows none: then it is written out
like one of the user's helpers, by the types of its arguments, and both engines, both modes and second derivatives follow from what
the simpler functions mean. Where no derivative goes through it, it stays the call that it is.

Data: `SPELLED`, by a function's text, its parameters in NumPy's order and what chooses the program: from types by parameter (a
constant's is literal, None is that of what is left out) to a Python function with the same parameters, or to None for arguments that
nothing is known for.
Invariant: a program computes what Numba's function does, to rounding, and its results are memory of their own.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numba.core import types

from . import inference
from .rules import Derivative, rule
from .runtime import kernel
from .tree import Op

SPELLED: dict[str, tuple[tuple[str, ...], int, Callable[..., Any]]] = {}

_MOVED: set[str] = set()

SEQUENCES = frozenset(("arrays", "condlist", "choicelist"))
"""Parameters that are several arrays: a list of them is taken for a tuple."""


def parameters(text: str) -> tuple[str, ...]:
    """The parameters of a function that can be written out; none for any other."""
    return SPELLED[text][0] if text in SPELLED else ()


def least(text: str) -> int:
    """How many arguments a function takes at least."""
    return SPELLED[text][1]


def chosen(text: str, kinds: dict[str, Any]) -> Any:
    """The program for a call with arguments of these types, by parameter; None where there is none."""
    names, _, choose = SPELLED.get(text, ((), 0, None))
    if choose is None or not kinds.keys() <= set(names):
        return None
    return choose(**kinds)


def is_loops(text: str) -> bool:
    """Whether a function may be written out as arithmetic and loops; others move elements by arrays of their numbers."""
    return text in SPELLED and text not in _MOVED


def _declare(text: str, signature: Any, choose: Any) -> None:
    names = inspect.signature(signature).parameters
    SPELLED[text] = tuple(names), sum(p.default is p.empty for p in names.values()), choose


def by_types(*texts: str) -> Callable[[Any], Any]:
    """Declares what chooses the program of functions."""

    def add(choose: Any) -> Any:
        for text in texts:
            _declare(text, choose, choose)
        return choose

    return add


def always(*texts: str) -> Callable[[Any], Any]:
    """Declares the one program of functions, for arrays and numbers."""

    def add(program: Any) -> Any:
        for text in texts:
            _declare(text, program, lambda **kinds: program)
        return program

    return add


def _axes(kind: Any) -> int:
    """The number of axes of an array, 0 of a number; -1 for anything else."""
    if isinstance(kind, types.Array):
        return int(kind.ndim)
    return -1 if kind is None or isinstance(kind, types.BaseTuple | types.Literal) else 0


def _value(kind: Any) -> Any:
    """The value of a constant; None for what is left out or not known."""
    return kind.literal_value if isinstance(kind, types.Literal) else None


def _given(kind: Any) -> bool:
    return kind is not None


# ------------------------------------------------------------------------------------------ moving elements


def _moves(text: str, listed: str, *moved: str) -> None:
    """Declares a function that moves elements of its parameters `moved` and puts zeros beside them.

    Where each element goes is seen by applying it to their numbers, counted from 1 on; 0 is a zero.
    """
    names = tuple(p.partition("=")[0] for p in listed.split(", "))

    def choose(**kinds: Any) -> Any:
        """The nopython function for arguments of these types; None where they are of another kind."""
        shapes = []
        every: list[Any] = []
        for name in moved:
            kind = kinds.get(name)
            several = isinstance(kind, types.BaseTuple)
            parts = tuple(kind.types) if several else (kind,)
            if any(not isinstance(p, types.Array) and not _is_number(p) for p in parts):
                return None
            every += [getattr(p, "dtype", types.unliteral(p)) for p in parts]
            places = tuple(f"{name}[{i}]" for i in range(len(parts))) if several else (name,)
            shapes.append((name, places, tuple(isinstance(p, types.Array) for p in parts)))
        # Numba's insert makes an array of the first one's type.
        dtype = _common(every[:1] if text == "np.insert" else every)
        return None if dtype is None else _mover(text, names, listed, tuple(shapes), dtype)

    SPELLED[text] = names, sum("=" not in p for p in listed.split(", ")), choose
    _MOVED.add(text)


def _is_number(kind: Any) -> bool:
    return kind is not None and not isinstance(kind, types.Array | types.BaseTuple | types.NoneType)


def _common(kinds: list[Any]) -> str | None:
    """The type of an array for elements of these types; None where some would lose what they have."""
    if any(isinstance(k, types.Complex) for k in kinds):
        return "np.complex128" if types.complex64 not in kinds else None
    if types.float32 in kinds:
        return "np.float32" if all(k == types.float32 for k in kinds) else None
    # Carriers of derivatives stand for float64.
    whole = all(isinstance(k, types.Integer | types.Boolean) for k in kinds)
    return None if whole else "np.float64"


@functools.cache
def _mover(text: str, names: Any, listed: str, moved: Any, dtype: str) -> Any:
    """A nopython function that moves entries: NumPy's function moves their numbers, by which they are taken."""
    numbered = {}
    lines: list[str] = []
    filled: list[str] = []
    for name, parts, arrays in moved:
        places = []
        for part, array in zip(parts, arrays, strict=True):
            k = len(filled)
            size = f"{part}.size" if array else "1"
            made = f"np.arange(n_{k}, n_{k + 1}).reshape({part}.shape)" if array else f"n_{k}"
            lines += [f"n_{k + 1} = n_{k} + {size}", f"place_{k} = {made}"]
            given = f"{part}.flatten()" if array else part
            filled.append(f"elements[n_{k}:n_{k + 1}] = {given}")
            places.append(f"place_{k}")
        numbered[name] = f"({', '.join(places)},)" if parts[0] != name else places[0]
    given = ", ".join(
        numbered.get(n, n) if i == 0 else f"{n}={numbered.get(n, n)}" for i, n in enumerate(names)
    )
    lines = [
        "n_0 = 1",
        *lines,
        f"elements = np.zeros(n_{len(filled)}, {dtype})",
        *filled,
        f"taken = {text}({given})",
        "return elements[taken.flatten()].reshape(taken.shape)",
    ]
    body = "".join(f"    {line}\n" for line in lines)
    return inference.load("moved", f"def moved({listed}):\n{body}", {"np": np})


_moves("np.append", "arr, values, axis=None", "arr", "values")
_moves("np.delete", "arr, obj", "arr")
_moves("np.insert", "arr, obj, values, axis=None", "arr", "values")
_moves("np.repeat", "a, repeats", "a")
_moves("np.resize", "a, new_shape", "a")
_moves("np.roll", "a, shift", "a")
_moves("np.diag", "v, k=0", "v")
_moves("np.diagflat", "v, k=0", "v")
_moves("np.tril", "m, k=0", "m")
_moves("np.triu", "m, k=0", "m")
_moves("np.extract", "condition, arr", "arr")
_moves("np.take_along_axis", "arr, indices, axis=None", "arr")
_moves("np.broadcast_to", "array, shape", "array")
_moves("np.asfortranarray", "a", "a")
for _text in ("concatenate", "concat", "stack"):
    _moves(f"np.{_text}", "arrays, axis=0", "arrays")
for _text in ("hstack", "vstack", "dstack", "column_stack", "row_stack"):
    _moves(f"np.{_text}", "arrays", "arrays")


@by_types("np.trim_zeros")
def _trim_zeros(filt: Any, trim: Any = None) -> Any:
    """A view, as Numba's."""
    return _trimmed if trim is None and _axes(filt) == 1 else None


def _trimmed(filt: Any, trim: Any = None) -> Any:
    first, last = 0, filt.size
    while first < filt.size and filt[first] == 0:
        first += 1
    while last > first and filt[last - 1] == 0:
        last -= 1
    return filt[first:last]


@by_types("np.take")
def _take(a: Any, indices: Any = None, axis: Any = None) -> Any:
    if _given(axis) or isinstance(indices, types.BaseTuple):
        return None
    if _axes(a) == 1:
        return _entries
    return _taken if isinstance(indices, types.Array) else _taken_one


def _entries(a: Any, indices: Any, axis: Any = None) -> Any:
    return a[indices]


def _taken(a: Any, indices: Any, axis: Any = None) -> Any:
    return a.flatten()[indices.flatten()].reshape(indices.shape)


def _taken_one(a: Any, indices: Any, axis: Any = None) -> Any:
    return a.flatten()[indices]


# --------------------------------------------------------------------------------------- ordering and sets


@by_types("np.sort")
def _sort(a: Any) -> Any:
    return _sorted if _axes(a) > 1 else None


def _sorted(a: Any) -> Any:
    """Along the last axis."""
    n = a.shape[-1]
    flat = a.flatten()
    out = np.empty(flat.size, a.dtype)
    for i in range(flat.size // max(n, 1)):
        out[i * n : (i + 1) * n] = np.sort(flat[i * n : (i + 1) * n])
    return out.reshape(a.shape)


@by_types("np.searchsorted")
def _searched(a: Any, v: Any, side: Any = None) -> Any:
    """By bisection. A NaN is larger than any other number, as for NumPy."""
    known = _value(side) if _given(side) else "left"
    if _axes(a) != 1 or _axes(v) not in (0, 1) or known not in ("left", "right"):
        return None
    if known == "right":
        return _places_behind if _axes(v) else _place_behind
    return _places_before if _axes(v) else _place_before


@kernel
def _before(a: Any, v: Any) -> Any:
    lo = 0
    hi = a.size
    while lo < hi:
        mid = (lo + hi) // 2
        if a[mid] < v or (v != v and a[mid] == a[mid]):
            lo = mid + 1
        else:
            hi = mid
    return lo


@kernel
def _behind(a: Any, v: Any) -> Any:
    lo = 0
    hi = a.size
    while lo < hi:
        mid = (lo + hi) // 2
        if v < a[mid] or (a[mid] != a[mid] and v == v):
            hi = mid
        else:
            lo = mid + 1
    return lo


def _place_before(a: Any, v: Any, side: Any = None) -> Any:
    return _before(a, v)


def _place_behind(a: Any, v: Any, side: Any = None) -> Any:
    return _behind(a, v)


def _places_before(a: Any, v: Any, side: Any = None) -> Any:
    out = np.empty(v.size, np.int64)
    for i in range(v.size):
        out[i] = _before(a, v[i])
    return out


def _places_behind(a: Any, v: Any, side: Any = None) -> Any:
    out = np.empty(v.size, np.int64)
    for i in range(v.size):
        out[i] = _behind(a, v[i])
    return out


@by_types("np.digitize")
def _classed(x: Any, bins: Any, right: Any = None) -> Any:
    """Bins grow, or fall from the first to the last."""
    if _axes(bins) != 1 or _axes(x) not in (0, 1) or (_given(right) and _value(right) is None):
        return None
    if _value(right):
        return _classes_closed if _axes(x) else _class_closed
    return _classes if _axes(x) else _class_of


@kernel
def _class(x: Any, bins: Any) -> Any:
    if bins.size > 1 and bins[0] > bins[-1]:
        return bins.size - _behind(bins[::-1], x)
    return _behind(bins, x)


@kernel
def _class_to(x: Any, bins: Any) -> Any:
    if bins.size > 1 and bins[0] > bins[-1]:
        return bins.size - _before(bins[::-1], x)
    return _before(bins, x)


def _class_of(x: Any, bins: Any, right: Any = None) -> Any:
    return _class(x, bins)


def _class_closed(x: Any, bins: Any, right: Any = None) -> Any:
    return _class_to(x, bins)


def _classes(x: Any, bins: Any, right: Any = None) -> Any:
    out = np.empty(x.size, np.int64)
    for i in range(x.size):
        out[i] = _class(x[i], bins)
    return out


def _classes_closed(x: Any, bins: Any, right: Any = None) -> Any:
    out = np.empty(x.size, np.int64)
    for i in range(x.size):
        out[i] = _class_to(x[i], bins)
    return out


@always("np.unique")
def unique(ar: Any) -> Any:
    ordered = np.sort(ar.flatten())
    first = np.ones(ordered.size, np.bool_)
    first[1:] = ordered[1:] != ordered[:-1]
    return ordered[first]


@always("np.union1d")
def union1d(ar1: Any, ar2: Any) -> Any:
    return np.unique(np.concatenate((ar1.flatten(), ar2.flatten())))


@by_types("np.intersect1d")
def intersect1d(ar1: Any, ar2: Any, assume_unique: Any = None) -> Any:
    return _intersection if _value(assume_unique) is False or assume_unique is None else None


def _intersection(ar1: Any, ar2: Any, assume_unique: Any = None) -> Any:
    each = np.unique(ar1)
    return each[np.isin(each, ar2)]


@by_types("np.setdiff1d")
def setdiff1d(ar1: Any, ar2: Any, assume_unique: Any = None) -> Any:
    return _difference if _value(assume_unique) is False or assume_unique is None else None


def _difference(ar1: Any, ar2: Any, assume_unique: Any = None) -> Any:
    each = np.unique(ar1)
    return each[np.logical_not(np.isin(each, ar2))]


# ---------------------------------------------------------------------------------------------- statistics


@always("np.median")
def median(a: Any) -> Any:
    ordered = np.sort(a.flatten())
    n = ordered.size
    if n > 0 and np.isnan(ordered[n - 1]):
        return 1.0 * ordered[n - 1]
    return 0.5 * (ordered[(n - 1) // 2] + ordered[n // 2])


@kernel
def _between(ordered: Any, fraction: Any) -> Any:
    """The value that so great a part of sorted values lies below, linear between them."""
    place = fraction * (ordered.size - 1)
    low = min(int(np.floor(place)), ordered.size - 1)
    high = min(low + 1, ordered.size - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def _order_statistics(fraction: str) -> tuple[Any, Any]:
    """Programs of percentiles or quantiles, at one place and at several."""
    text = f"""
def one(a, q):
    if not 0.0 <= {fraction.format("q")} <= 1.0:
        raise ValueError("Percentiles must be in the range [0, 100]")
    ordered = np.sort(a.flatten())
    if ordered.size == 0:
        return np.nan
    if np.isnan(ordered[ordered.size - 1]):
        return 1.0 * ordered[ordered.size - 1]
    return between(ordered, {fraction.format("q")})
"""
    several = f"""
def several(a, q):
    out = np.empty(q.size)
    places = q.flatten()
    ordered = np.sort(a.flatten())
    for k in range(q.size):
        if not 0.0 <= {fraction.format("places[k]")} <= 1.0:
            raise ValueError("Percentiles must be in the range [0, 100]")
        if ordered.size == 0:
            out[k] = np.nan
        elif np.isnan(ordered[ordered.size - 1]):
            out[k] = ordered[ordered.size - 1]
        else:
            out[k] = between(ordered, {fraction.format("places[k]")})
    return out
"""
    scope = {"np": np, "between": _between}
    return inference.load("one", text, scope), inference.load("several", several, scope)


def _declare_order_statistics() -> None:
    for name, fraction in (("percentile", "({} / 100.0)"), ("quantile", "({} * 1.0)")):
        one, several = _order_statistics(fraction)
        for prefix in ("", "nan"):

            def choose(
                a: Any, q: Any, one: Any = one, several: Any = several, prefix: str = prefix
            ) -> Any:
                if isinstance(q, types.BaseTuple) or _axes(a) < 1:
                    return None
                found = several if isinstance(q, types.Array) else one
                return _without_nan(f"{prefix}{found.__name__}", found) if prefix else found

            SPELLED[f"np.{prefix}{name}"] = ("a", "q"), 2, choose


@functools.cache
def _without_nan(name: str, program: Any) -> Any:
    """A program of the elements that are numbers."""
    text = f"def {name}(a, q):\n    return program(kept(a), q)\n"
    return inference.load(name, text, {"program": kernel(program), "kept": _kept})


@kernel
def _kept(a: Any) -> Any:
    """The elements that are numbers."""
    flat = a.flatten()
    return flat[np.flatnonzero(np.logical_not(np.isnan(flat)))]


_declare_order_statistics()


@always("np.nanmedian")
def nanmedian(a: Any) -> Any:
    kept = _kept(a)
    return np.median(kept) if kept.size > 0 else np.nan


@always("np.nanmax")
def nanmax(a: Any) -> Any:
    kept = _kept(a)
    return np.max(kept) if kept.size > 0 else np.nan


@always("np.nanmin")
def nanmin(a: Any) -> Any:
    kept = _kept(a)
    return np.min(kept) if kept.size > 0 else np.nan


@always("np.nansum")
def nansum(a: Any) -> Any:
    return np.sum(_kept(a))


@always("np.nanprod")
def nanprod(a: Any) -> Any:
    return np.prod(_kept(a))


@always("np.nanmean")
def nanmean(a: Any) -> Any:
    return np.mean(_kept(a))


@always("np.nanvar")
def nanvar(a: Any) -> Any:
    return np.var(_kept(a))


@always("np.nanstd")
def nanstd(a: Any) -> Any:
    return np.std(_kept(a))


@always("np.nancumsum")
def nancumsum(a: Any) -> Any:
    return np.cumsum(np.where(np.isnan(a), 0.0, a).flatten())


@always("np.nancumprod")
def nancumprod(a: Any) -> Any:
    return np.cumprod(np.where(np.isnan(a), 1.0, a).flatten())


@by_types("np.average")
def _average(a: Any, axis: Any = None, weights: Any = None) -> Any:
    if _given(axis):
        return None
    return _weighted if _given(weights) else _plain_average


def _plain_average(a: Any, axis: Any = None, weights: Any = None) -> Any:
    return np.mean(a)


def _weighted(a: Any, axis: Any = None, weights: Any = None) -> Any:
    if a.shape != weights.shape:
        raise ValueError("Numba does not support average when shapes of a and weights differ.")
    return np.sum(a * weights) / np.sum(weights)


@always("np.ptp")
def ptp(a: Any) -> Any:
    return np.max(a) - np.min(a)


@by_types("np.cov")
def _cov(m: Any, y: Any = None, rowvar: Any = None, bias: Any = None, ddof: Any = None) -> Any:
    if any(_axes(k) not in (1, 2) for k in (m, y) if k is not None):
        return None
    rows, less = _value(rowvar), _value(bias)
    if (_given(rowvar) and rows is None) or (_given(bias) and less is None):
        return None
    if not _given(y) and _axes(m) == 1:
        return _variance_of(bool(less), _given(ddof))
    return _covariance(
        _axes(m), -1 if y is None else _axes(y), rows is not False, bool(less), _given(ddof)
    )


def _divisor(bias: bool, ddof: bool) -> str:
    return "n - ddof" if ddof else "n - 0.0" if bias else "n - 1.0"


@functools.cache
def _variance_of(bias: bool, ddof: bool) -> Any:
    text = f"""
def cov(m, y=None, rowvar=True, bias=False, ddof=None):
    n = m.size
    return np.sum((m - np.mean(m)) ** 2) / max({_divisor(bias, ddof)}, 0.0)
"""
    return inference.load("cov", text, {"np": np})


@functools.cache
def _covariance(m: int, y: int, rows: bool, bias: bool, ddof: bool) -> Any:
    """Observations stand in rows, each less its mean."""
    first = "np.expand_dims(m, 0)" if m == 1 else "m" if rows else "m.T"
    second = "np.expand_dims(y, 0)" if y == 1 else "y" if rows else "y.T"
    text = f"""
def cov(m, y=None, rowvar=True, bias=False, ddof=None):
    x = {first if y < 0 else f"np.concatenate(({first}, {second}), axis=0)"}
    n = x.shape[1]
    centred = x - (np.sum(x, axis=1) / n).reshape(x.shape[0], 1)
    return np.dot(centred, centred.T) / max({_divisor(bias, ddof)}, 0.0)
"""
    return inference.load("cov", text, {"np": np})


@by_types("np.corrcoef")
def _corrcoef(x: Any, y: Any = None, rowvar: Any = None) -> Any:
    if _cov(x, y, rowvar) is None or (y is None and _axes(x) == 1):
        return None
    return _correlations(y is not None, _value(rowvar) is not False)


@functools.cache
def _correlations(two: bool, rows: bool) -> Any:
    text = f"""
def corrcoef(x, y=None, rowvar=True):
    c = np.cov(x{", y" if two else ""}, rowvar={rows})
    size = np.sqrt(np.diag(c))
    return np.clip(c / size.reshape(size.size, 1) / size, -1.0, 1.0)
"""
    return inference.load("corrcoef", text, {"np": np})


@by_types("np.trapezoid", "np.trapz")
def _trapezoid(y: Any, x: Any = None, dx: Any = None) -> Any:
    if _axes(y) != 1:
        return None
    return _trapezoids_at if _given(x) else _trapezoids


def _trapezoids_at(y: Any, x: Any, dx: Any = 1.0) -> Any:
    return np.sum((x[1:] - x[:-1]) * (y[1:] + y[:-1])) / 2.0


def _trapezoids(y: Any, x: Any = None, dx: Any = 1.0) -> Any:
    return np.sum(dx * (y[1:] + y[:-1])) / 2.0


@by_types("np.bincount")
def _bincount(x: Any, weights: Any = None, minlength: Any = None) -> Any:
    if not _given(weights):
        return None
    return _weights_counted_to if _given(minlength) else _weights_counted


def _weights_counted(x: Any, weights: Any, minlength: Any = None) -> Any:
    if x.size != weights.size:
        raise ValueError("bincount(): weights and list don't have the same length")
    out = np.zeros(np.bincount(x).size)
    for k in range(x.size):
        out[x[k]] += weights[k]
    return out


def _weights_counted_to(x: Any, weights: Any, minlength: Any) -> Any:
    if x.size != weights.size:
        raise ValueError("bincount(): weights and list don't have the same length")
    out = np.zeros(max(np.bincount(x).size, minlength))
    for k in range(x.size):
        out[x[k]] += weights[k]
    return out


# ------------------------------------------------------------------------------ sums, differences, products


@rule("np.cumsum")
def _of_sums(op: Op, kinds: Sequence[Any]) -> Derivative | None:
    """For the generated adjoint, where NumPy's function is faster than the loop, which other engines have."""
    return Derivative({0: "np.cumsum(g[::-1])[::-1]"}) if _axes(kinds[0]) == 1 else None


@by_types("np.cumsum")
def _cumsum(a: Any) -> Any:
    return _sums if _axes(a) == 1 else _sums_of_all


def _sums_of_all(a: Any) -> Any:
    return np.cumsum(a.flatten())


def _sums(a: Any) -> Any:
    out = np.empty_like(a)
    total = -np.sum(a[:0])  # -0.0 of the same type, which no sum changes
    for k in range(out.size):
        total = total + a[k]
        out[k] = total
    return out


@always("np.cumprod")
def cumprod(a: Any) -> Any:
    factors = a.flatten()
    out = np.empty_like(factors)
    for k in range(out.size):
        if k == 0:
            out[k] = factors[k]
        else:
            out[k] = out[k - 1] * factors[k]
    return out


@by_types("np.diff")
def _diff(a: Any, n: Any = None) -> Any:
    return _differences if _given(n) and _axes(a) >= 1 else _differences_once


def _differences_once(a: Any, n: Any = 1) -> Any:
    return a[..., 1:] - a[..., :-1]


def _differences(a: Any, n: Any) -> Any:
    if n < 0:
        raise ValueError("diff(): order must be non-negative")
    out = a.copy()
    for _ in range(n):
        out = out[..., 1:] - out[..., :-1]
    return out


@by_types("np.ediff1d")
def _ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    return {
        (False, False): _steps,
        (True, False): _steps_and_end,
        (False, True): _begin_and_steps,
        (True, True): _begin_steps_and_end,
    }[_given(to_end), _given(to_begin)]


def _steps(ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    flat = ary.flatten()
    return flat[1:] - flat[:-1]


def _steps_and_end(ary: Any, to_end: Any, to_begin: Any = None) -> Any:
    flat = ary.flatten()
    return np.append(flat[1:] - flat[:-1], to_end)


def _begin_and_steps(ary: Any, to_end: Any, to_begin: Any) -> Any:
    flat = ary.flatten()
    return np.append(to_begin, flat[1:] - flat[:-1])


def _begin_steps_and_end(ary: Any, to_end: Any, to_begin: Any) -> Any:
    flat = ary.flatten()
    return np.append(np.append(to_begin, flat[1:] - flat[:-1]), to_end)


@by_types("np.unwrap")
def _unwrap(p: Any, discont: Any = None, axis: Any = None, period: Any = None) -> Any:
    plain = not (_given(discont) or _given(axis) or _given(period))
    return _unwrapped if plain and _axes(p) == 1 else None


def _unwrapped(p: Any, discont: Any = None, axis: Any = None, period: Any = None) -> Any:
    """Whole turns are added: they vary in steps."""
    out = p.copy()
    turns = 0.0
    for k in range(1, p.size):
        step = p[k] - p[k - 1]
        turned = (step + np.pi) % (2 * np.pi) - np.pi
        if turned == -np.pi and step > 0:
            turned = np.pi
        if abs(step) >= np.pi:
            turns += np.rint((turned - step) / (2 * np.pi))
        out[k] = p[k] + 2 * np.pi * turns
    return out


@by_types("np.kron")
def _kron(a: Any, b: Any) -> Any:
    return {(1, 1): _kron_of_vectors, (2, 2): _kron_of_matrices}.get((_axes(a), _axes(b)))


def _kron_of_vectors(a: Any, b: Any) -> Any:
    return (np.expand_dims(a, 1) * b).flatten()


def _kron_of_matrices(a: Any, b: Any) -> Any:
    n, m = b.shape
    out = np.empty((a.shape[0] * n, a.shape[1] * m), (a[:0, :0] * b[:0, :0]).dtype)
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            out[i * n : (i + 1) * n, j * m : (j + 1) * m] = a[i, j] * b
    return out


@by_types("np.outer")
def _outer(a: Any, b: Any) -> Any:
    return _outer_of_any if _axes(a) > 0 and _axes(b) > 0 else None


def _outer_of_any(a: Any, b: Any) -> Any:
    return a.flatten().reshape((a.size, 1)) * b.flatten()


@by_types("np.cross")
def _cross(a: Any, b: Any) -> Any:
    if min(_axes(a), _axes(b)) < 1:
        return None
    return _cross_product if max(_axes(a), _axes(b)) == 1 else _cross_products


def _cross_product(a: Any, b: Any) -> Any:
    if a.size != 3 or b.size != 3:
        raise ValueError("the derivative of np.cross is known for vectors of three elements")
    x, y, z = a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]
    return np.array([x, y, z])


def _cross_products(a: Any, b: Any) -> Any:
    if a.shape[-1] != 3 or b.shape[-1] != 3:
        raise ValueError("the derivative of np.cross is known for vectors of three elements")
    x = a[..., 1] * b[..., 2] - a[..., 2] * b[..., 1]
    out = np.empty(x.shape + (3,), x.dtype)  # noqa: RUF005  Numba unpacks nothing here
    out[..., 0] = x
    out[..., 1] = a[..., 2] * b[..., 0] - a[..., 0] * b[..., 2]
    out[..., 2] = a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]
    return out


@by_types("np.convolve")
def _convolve(a: Any, v: Any, mode: Any = None) -> Any:
    if not _given(mode):
        return _convolved
    return {"full": _convolved, "valid": _convolved_inside, "same": _convolved_same}.get(
        _value(mode)
    )


def _convolved(a: Any, v: Any, mode: Any = None) -> Any:
    if a.size == 0 or v.size == 0:
        raise ValueError("a and v cannot be empty")
    out = np.zeros(a.size + v.size - 1, (a[:0] * v[0]).dtype)
    for k in range(a.size):
        out[k : k + v.size] += a[k] * v
    return out


def _convolved_inside(a: Any, v: Any, mode: Any = None) -> Any:
    return np.convolve(a, v)[min(a.size, v.size) - 1 : max(a.size, v.size)]


def _convolved_same(a: Any, v: Any, mode: Any = None) -> Any:
    start = (min(a.size, v.size) - 1) // 2
    return np.convolve(a, v)[start : start + max(a.size, v.size)]


@by_types("np.correlate")
def _correlate(a: Any, v: Any, mode: Any = None) -> Any:
    if not _given(mode):
        return _correlated_inside
    return {"full": _correlated, "valid": _correlated_inside, "same": _correlated_same}.get(
        _value(mode)
    )


def _correlated(a: Any, v: Any, mode: Any = None) -> Any:
    return np.convolve(a, v[::-1])


def _correlated_inside(a: Any, v: Any, mode: Any = None) -> Any:
    return np.convolve(a, v[::-1])[min(a.size, v.size) - 1 : max(a.size, v.size)]


def _correlated_same(a: Any, v: Any, mode: Any = None) -> Any:
    n = min(a.size, v.size)
    start = (n - 1) // 2 if a.size >= v.size else n // 2
    return np.convolve(a, v[::-1])[start : start + max(a.size, v.size)]


@by_types("np.interp")
def _interp(x: Any, xp: Any, fp: Any) -> Any:
    if _axes(xp) != 1 or _axes(fp) != 1:
        return None
    return _interpolated if _axes(x) > 0 else _interpolated_at


@kernel
def _interpolated_at(x: Any, xp: Any, fp: Any) -> Any:
    """At a knot the piece to the right counts, at the last one the piece to the left (see `ops.calculus.interp`)."""
    last = xp.size - 1
    if x != x:
        return 0.0 * fp[0] + x
    if x < xp[0]:
        return fp[0]
    if x > xp[last] or last == 0:
        return fp[last]
    k = np.searchsorted(xp, x, side="right") - 1
    piece = min(k, last - 1)
    if xp[piece + 1] == xp[piece]:
        return fp[k]
    slope = (fp[piece + 1] - fp[piece]) / (xp[piece + 1] - xp[piece])
    if x == xp[k] and not np.isfinite(slope):
        return fp[k]
    return fp[k] + slope * (x - xp[k])


def _interpolated(x: Any, xp: Any, fp: Any) -> Any:
    flat = x.flatten()
    out = np.empty(flat.size)
    for k in range(flat.size):
        out[k] = _interpolated_at(flat[k], xp, fp)
    return out.reshape(x.shape)


# ------------------------------------------------------------------------------------------- making arrays


@by_types("np.vander")
def _vander(x: Any, N: Any = None) -> Any:
    return _powers if _given(N) else _powers_as_many


def _powers(x: Any, N: Any) -> Any:
    if N < 0:
        raise ValueError("Negative dimensions are not allowed")
    out = np.ones((x.size, N), x.dtype)
    for k in range(1, N):
        out[:, N - 1 - k] = out[:, N - k] * x
    return out


def _powers_as_many(x: Any, N: Any = None) -> Any:
    return np.vander(x, x.size)


@by_types("np.linspace")
def _linspace(start: Any, stop: Any, num: Any = None) -> Any:
    return None if _given(num) else _fifty


def _fifty(start: Any, stop: Any, num: Any = None) -> Any:
    return np.linspace(start, stop, 50)


@by_types("np.logspace")
def _logspace(start: Any, stop: Any, num: Any = None) -> Any:
    return _powers_of_ten if _given(num) else _fifty_powers_of_ten


def _powers_of_ten(start: Any, stop: Any, num: Any) -> Any:
    return 10.0 ** np.linspace(start, stop, num)


def _fifty_powers_of_ten(start: Any, stop: Any, num: Any = None) -> Any:
    return 10.0 ** np.linspace(start, stop, 50)


@by_types("np.geomspace")
def _geomspace(start: Any, stop: Any, num: Any = None) -> Any:
    return _geometric if _given(num) else _fifty_geometric


def _geometric(start: Any, stop: Any, num: Any) -> Any:
    if start == 0 or stop == 0:
        raise ValueError("Geometric sequence cannot include zero")
    return start * (stop / start) ** np.linspace(0.0, 1.0, num)


def _fifty_geometric(start: Any, stop: Any, num: Any = None) -> Any:
    return np.geomspace(start, stop, 50)


@by_types("np.full")
def _full(shape: Any, fill_value: Any, dtype: Any = None) -> Any:
    if _given(dtype):
        return (
            _filled_as if getattr(dtype, "dtype", None) in (types.float64, types.float32) else None
        )
    return _filled_singly if fill_value == types.float32 else _filled


def _filled(shape: Any, fill_value: Any, dtype: Any = None) -> Any:
    out = np.empty(shape)
    out[...] = fill_value
    return out


def _filled_singly(shape: Any, fill_value: Any, dtype: Any = None) -> Any:
    out = np.empty(shape, np.float32)
    out[...] = fill_value
    return out


def _filled_as(shape: Any, fill_value: Any, dtype: Any) -> Any:
    out = np.empty(shape, dtype)
    out[...] = fill_value
    return out


@by_types("np.select")
def _select(condlist: Any, choicelist: Any, default: Any = None) -> Any:
    if isinstance(condlist, types.List) and isinstance(choicelist, types.List):
        return _selection_of_lists if _given(default) else _selection_or_zero
    several = [k for k in (condlist, choicelist) if not isinstance(k, types.BaseTuple)]
    if several or len(condlist.types) != len(choicelist.types):
        return None
    return _selection(len(condlist.types), _given(default))


@functools.cache
def _selection(n: int, default: bool) -> Any:
    lines = ["def selection(condlist, choicelist, default=0.0):"]
    lines.append(f"    out = np.where(condlist[{n - 1}], choicelist[{n - 1}], default)")
    for k in range(n - 2, -1, -1):
        lines.append(f"    out = np.where(condlist[{k}], choicelist[{k}], out)")
    return inference.load("selection", "\n".join([*lines, "    return out"]) + "\n", {"np": np})


def _selection_of_lists(condlist: Any, choicelist: Any, default: Any) -> Any:
    n = len(condlist)
    out = np.where(condlist[n - 1], choicelist[n - 1], default)
    for k in range(n - 2, -1, -1):
        out = np.where(condlist[k], choicelist[k], out)
    return out


def _selection_or_zero(condlist: Any, choicelist: Any, default: Any = None) -> Any:
    return np.select(condlist, choicelist, 0.0)


@by_types("np.clip")
def _clip(a: Any, a_min: Any = None, a_max: Any = None) -> Any:
    """Where bounds cross the upper one counts."""
    if _axes(a) < 1:
        return None
    return {
        (True, False): _raised,
        (False, True): _lowered,
        (True, True): _clipped,
        (False, False): None,
    }[_given(a_min), _given(a_max)]


def _raised(a: Any, a_min: Any, a_max: Any = None) -> Any:
    return np.where(a < a_min, a_min, a)


def _lowered(a: Any, a_min: Any, a_max: Any) -> Any:
    return np.where(a > a_max, a_max, a)


def _clipped(a: Any, a_min: Any, a_max: Any) -> Any:
    raised = np.where(a < a_min, a_min, a)
    return np.where(raised > a_max, a_max, raised)


@by_types("np.nan_to_num")
def _nan_to_num(x: Any, copy: Any = None, nan: Any = None) -> Any:
    if _given(copy) and _value(copy) is not True:
        return None  # written in place
    return _finite if _axes(x) > 0 and x.dtype != types.float32 else None


def _finite(x: Any, copy: Any = True, nan: Any = 0.0) -> Any:
    largest = np.finfo(np.float64).max
    flat = x.flatten()
    out = np.empty(flat.size)
    for k in range(flat.size):
        if np.isnan(flat[k]):
            out[k] = nan
        elif np.isinf(flat[k]):
            out[k] = largest if flat[k] > 0 else -largest
        else:
            out[k] = flat[k]
    return out.reshape(x.shape)


@by_types("np.where")
def _where(condition: Any, x: Any = None, y: Any = None) -> Any:
    numbers = all(_axes(k) == 0 or isinstance(k, types.Literal) for k in (condition, x, y))
    return _either if numbers else None


def _either(condition: Any, x: Any, y: Any) -> Any:
    return x if condition else y


@by_types("np.sum")
def _sum(a: Any, axis: Any = None, dtype: Any = None) -> Any:
    """In the array's own type."""
    if _axes(a) < 1 or dtype != types.NumberClass(a.dtype):
        return None
    return _sum_of_all if not _given(axis) else None


def _sum_of_all(a: Any, axis: Any = None, dtype: Any = None) -> Any:
    return np.sum(a)


@by_types("divmod", "np.divmod")
def _divmod(x: Any, y: Any) -> Any:
    return _quotient_and_rest


def _quotient_and_rest(x: Any, y: Any) -> Any:
    return np.floor_divide(x, y), np.remainder(x, y)


@by_types("max")
def _max(a: Any) -> Any:
    return _largest if _axes(a) == 1 else None


def _largest(a: Any) -> Any:
    best = a[0]
    for k in range(1, a.size):
        best = max(best, a[k])
    return best


@by_types("min")
def _min(a: Any) -> Any:
    return _smallest if _axes(a) == 1 else None


def _smallest(a: Any) -> Any:
    best = a[0]
    for k in range(1, a.size):
        best = min(best, a[k])
    return best


def fill_diagonal(a: Any, val: Any) -> None:
    if a.ndim != 2:
        raise ValueError("the derivative of np.fill_diagonal is known for matrices")
    for i in range(min(a.shape[0], a.shape[1])):
        a[i, i] = val


# ----------------------------------------------------------------------------------------- complex numbers
#
# Kahan, "Branch cuts for complex elementary functions" (1987).


def _of_complex(numbers: str, *texts: str) -> None:
    """Declares a function of a complex number or array z, by the real and imaginary part of its result."""
    real, imaginary = numbers.split(" ; ")
    scope = {"np": np, "sinh_back": np.arcsinh}
    one = f"def of_number(z):\n    return complex({real}, {imaginary})\n"
    each = f"def of_array(z):\n    return ({real}) + 1j * ({imaginary})\n"
    number, array = inference.load("of_number", one, scope), inference.load("of_array", each, scope)

    def choose(z: Any) -> Any:
        if isinstance(getattr(z, "dtype", z), types.Complex):
            return array if isinstance(z, types.Array) else number
        return None

    for text in texts:
        _declare(text, choose, choose)


_of_complex(
    "np.arctan2(z.real, (np.sqrt(1 - z) * np.sqrt(1 + z)).real) ; "
    "np.arcsinh((np.conj(np.sqrt(1 - z)) * np.sqrt(1 + z)).imag)", "np.arcsin", "cmath.asin",
)  # fmt: skip
_of_complex(
    "2 * np.arctan2(np.sqrt(1 - z).real, np.sqrt(1 + z).real) ; "
    "np.arcsinh((np.conj(np.sqrt(1 + z)) * np.sqrt(1 - z)).imag)", "np.arccos", "cmath.acos",
)  # fmt: skip
_of_complex(
    "np.arcsinh((np.conj(np.sqrt(z - 1)) * np.sqrt(z + 1)).real) ; "
    "2 * np.arctan2(np.sqrt(z - 1).imag, np.sqrt(z + 1).real)", "np.arccosh", "cmath.acosh",
)  # fmt: skip
_of_complex(
    "np.arcsinh((np.sqrt(1 + 1j * z) * np.conj(np.sqrt(1 - 1j * z))).imag) ; "
    "np.arctan2(z.imag, (np.sqrt(1 - 1j * z) * np.sqrt(1 + 1j * z)).real)", "np.arcsinh", "cmath.asinh",
)  # fmt: skip
_of_complex(
    "0.25 * np.log1p(4 * z.real / ((1 - z.real) ** 2 + z.imag ** 2)) ; "
    "0.5 * np.arctan2(2 * z.imag, (1 - z.real) * (1 + z.real) - z.imag ** 2)", "np.arctanh", "cmath.atanh",
)  # fmt: skip
_of_complex(
    "0.5 * np.arctan2(2 * z.real, (1 - z.imag) * (1 + z.imag) - z.real ** 2) ; "
    "0.25 * np.log1p(4 * z.imag / ((1 - z.imag) ** 2 + z.real ** 2))", "np.arctan", "cmath.atan",
)  # fmt: skip
_of_complex(
    "np.log(np.abs(z)) / np.log(10.0) ; np.angle(z) / np.log(10.0)", "np.log10", "cmath.log10"
)
_of_complex("np.log(np.abs(z)) / np.log(2.0) ; np.angle(z) / np.log(2.0)", "np.log2")
_of_complex(
    "0.5 * np.log1p(z.real * (2 + z.real) + z.imag ** 2) ; np.arctan2(z.imag, 1 + z.real)", "np.log1p"
)  # fmt: skip
_of_complex(
    "np.expm1(z.real) * np.cos(z.imag) - 2 * np.sin(0.5 * z.imag) ** 2 ; np.exp(z.real) * np.sin(z.imag)",
    "np.expm1",
)  # fmt: skip
_of_complex(
    "np.exp2(z.real) * np.cos(z.imag * np.log(2.0)) ; np.exp2(z.real) * np.sin(z.imag * np.log(2.0))",
    "np.exp2",
)  # fmt: skip


@always("cmath.polar")
def polar(z: Any) -> Any:
    return abs(z), np.angle(z)


@always("cmath.rect")
def rect(r: Any, phi: Any) -> Any:
    return complex(r * np.cos(phi), r * np.sin(phi))


@by_types("np.angle")
def _angle(z: Any, deg: Any = None) -> Any:
    return _angle_in_degrees if _value(deg) is True else _angle_of if _value(deg) is False else None


def _angle_of(z: Any, deg: Any = None) -> Any:
    return np.angle(z)


def _angle_in_degrees(z: Any, deg: Any = None) -> Any:
    return np.angle(z) * (180 / np.pi)


# ------------------------------------------------------------------------------------------ linear algebra


@by_types("np.linalg.norm")
def _norm(x: Any, ord: Any = None) -> Any:
    """Of matrices; vectors have rules."""
    if _axes(x) != 2:
        return None
    return {1: _largest_column, 2: _largest_singular, -2: _smallest_singular}.get(_value(ord))


def _largest_column(x: Any, ord: Any = None) -> Any:
    return np.max(np.sum(np.abs(x), axis=0))


def _largest_singular(x: Any, ord: Any = None) -> Any:
    return np.linalg.svd(x)[1][0]


def _smallest_singular(x: Any, ord: Any = None) -> Any:
    return np.linalg.svd(x)[1][-1]


@by_types("np.linalg.svd")
def _svd(a: Any, full_matrices: Any = None) -> Any:
    return _square_svd if full_matrices is None or _value(full_matrices) else None


def _square_svd(a: Any, full_matrices: Any = True) -> Any:
    if a.shape[0] != a.shape[1]:
        raise ValueError(
            "singular vectors beyond the smaller dimension have no derivative: pass full_matrices=False"
        )
    return np.linalg.svd(a, False)


@by_types("np.linalg.cond")
def _cond(x: Any, p: Any = None) -> Any:
    return None if _given(p) else _condition


def _condition(x: Any, p: Any = None) -> Any:
    s = np.linalg.svd(x)[1]
    return s[0] / s[-1]


@always("np.linalg.matrix_power")
def matrix_power(a: Any, n: Any) -> Any:
    out = np.eye(a.shape[0])
    factor = a.copy()
    if n < 0:
        factor[:] = np.linalg.inv(a)
    left = abs(n)
    while left > 0:
        if left % 2 == 1:
            out = np.dot(out, factor)
        factor = np.dot(factor, factor)
        left //= 2
    return out


def _complex_matrix(kind: Any) -> bool:
    return _axes(kind) == 2 and isinstance(kind.dtype, types.Complex)


@by_types("np.linalg.solve")
def _solve(a: Any, b: Any) -> Any:
    """Of complex numbers: real and imaginary parts are the unknowns."""
    if not _complex_matrix(a):
        return None
    return {1: _complex_solve, 2: _complex_solve_each}.get(_axes(b))


def _complex_solve(a: Any, b: Any) -> Any:
    n = a.shape[0]
    right = np.zeros(2 * n)
    right[:n] = b.real
    right[n:] = b.imag
    x = np.linalg.solve(_in_parts(a), right)
    return x[:n] + 1j * x[n:]


def _complex_solve_each(a: Any, b: Any) -> Any:
    n = a.shape[0]
    right = np.zeros((2 * n, b.shape[1]))
    right[:n] = b.real
    right[n:] = b.imag
    x = np.linalg.solve(_in_parts(a), right)
    return x[:n] + 1j * x[n:]


@kernel
def _in_parts(a: Any) -> Any:
    """The real matrix that does to real and imaginary parts, one below the other, what a complex one does to a vector."""
    m, n = a.shape
    whole = np.zeros((2 * m, 2 * n))
    whole[:m, :n] = a.real
    whole[:m, n:] = -a.imag
    whole[m:, :n] = a.imag
    whole[m:, n:] = a.real
    return whole


@by_types("np.linalg.inv")
def _inv(a: Any) -> Any:
    return _complex_inv if _complex_matrix(a) else None


def _complex_inv(a: Any) -> Any:
    n = a.shape[0]
    whole = np.linalg.inv(_in_parts(a))
    return whole[:n, :n] + 1j * whole[n:, :n]


@by_types("np.linalg.det")
def _det(a: Any) -> Any:
    return _complex_det if _complex_matrix(a) else None


@by_types("np.linalg.pinv")
def _pinv(a: Any, rcond: Any = None) -> Any:
    return _complex_pinv if _complex_matrix(a) and not _given(rcond) else None


def _complex_pinv(a: Any, rcond: Any = None) -> Any:
    m, n = a.shape
    whole = np.linalg.pinv(_in_parts(a))
    return whole[:n, :m] + 1j * whole[n:, :m]


def _complex_det(a: Any) -> Any:
    """By elimination with the largest entry that is left, so that no pivot of a matrix of rank n - 1 is 0 before the last.

    The last two rows and columns are taken together, by the formula: then derivatives, second ones too, divide by no pivot that is 0.
    """
    n = a.shape[0]
    u = a.copy()
    out = 1.0 + 0.0j
    for k in range(n - 2):
        row, column = k, k
        largest = 0.0
        for i in range(k, n):
            for j in range(k, n):
                size = abs(u[i, j])
                if size > largest:
                    row, column, largest = i, j, size
        if row != k:
            out = -out
            for j in range(n):
                held = u[row, j]
                u[row, j] = u[k, j]
                u[k, j] = held
        if column != k:
            out = -out
            for i in range(n):
                held = u[i, column]
                u[i, column] = u[i, k]
                u[i, k] = held
        out = out * u[k, k]
        if largest > 0.0:
            for i in range(k + 1, n):
                factor = u[i, k] / u[k, k]
                for j in range(k + 1, n):
                    u[i, j] = u[i, j] - factor * u[k, j]
    if n == 1:
        out = out * u[0, 0]
    elif n > 1:
        out = out * (u[n - 2, n - 2] * u[n - 1, n - 1] - u[n - 2, n - 1] * u[n - 1, n - 2])
    return out
