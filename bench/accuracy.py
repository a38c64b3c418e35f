"""Accuracy and speed of vector math: a table, by `python -m bench.accuracy [--points N] [name ...]`.

For each function and dtype: the largest error over points sampled from the whole domain (logarithmically, near roots and poles, near
the edges of overflow, subnormals), in ulps of the exact result computed by mpmath; the same of NumPy's or SciPy's function; and
nanoseconds per element of both on 4096 elements in cache. Test and table share what is here: `samples`, `exact`, `ulps`, `compiled`.
"""

from __future__ import annotations

import argparse
import ctypes
import time
from functools import cache
from typing import Any

import numpy as np

from tapegrad import vecmath
from tapegrad.llvm.assembly import assemble, lanes
from tapegrad.llvm.cache import Part
from tapegrad.llvm.linker import link
from tapegrad.vecmath import powers

BOUNDS = {"power": 2.0, "arctan2": 2.0, "gammaln": 2.0}
"""Promised ulps, where they are not 1.5."""

WHOLE = {powers.NAMES[n]: n for n in (3, 12, 31, -6, -12)}
"""Some of the whole powers, of which each is a function of its own."""

NAMES = sorted((set(vecmath.FUNCTIONS) - {*vecmath.SEVERAL, *powers.NAMES.values()}) | set(WHOLE))

_LOOP = """
define void @run({pointers}, ptr %to, i64 %n) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i.next, %loop ]
{loads}
  %y = call {kind} @{symbol}({passed})
  %y.at = getelementptr {element}, ptr %to, i64 %i
  store {kind} %y, ptr %y.at, align {size}
  %i.next = add i64 %i, {lanes}
  %more = icmp slt i64 %i.next, %n
  br i1 %more, label %loop, label %done
done:
  ret void
}}
"""


class Compiled:
    """A vector function in a loop: called on arrays of one dtype, returns an array."""

    def __init__(self, name: str, dtype: str, count: int, fused: bool | None) -> None:
        self.dtype, self.lanes, self.arity = np.dtype(dtype), count, vecmath.arity(name)
        symbol, text = vecmath.emit(name, dtype, count, fused)
        element, size = ("double", 8) if dtype == "float64" else ("float", 4)
        kind = element if count == 1 else f"<{count} x {element}>"
        operands = [f"x{i}" for i in range(self.arity)]
        loop = _LOOP.format(
            pointers=", ".join(f"ptr %{x}" for x in operands),
            loads="\n".join(
                f"  %{x}.at = getelementptr {element}, ptr %{x}, i64 %i\n"
                f"  %{x}.v = load {kind}, ptr %{x}.at, align {size}"
                for x in operands
            ),
            passed=", ".join(f"{kind} %{x}.v" for x in operands),
            kind=kind, element=element, size=size, symbol=symbol, lanes=count,
        )  # fmt: skip
        code, asks = assemble(vecmath.join(text, loop))
        address = link(name, [Part("run", "run", tuple(asks), code)])["run"]
        self._run = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (self.arity + 1), ctypes.c_int64)(
            address
        )

    def __call__(self, *operands: np.ndarray) -> np.ndarray:
        n = len(operands[0])
        whole = -(-n // self.lanes) * self.lanes
        padded = [np.resize(np.asarray(x, self.dtype), whole) for x in operands]
        out = np.empty(whole, self.dtype)
        self._run(*(x.ctypes.data for x in padded), out.ctypes.data, whole)
        return out[:n]


@cache
def compiled(name: str, dtype: str, count: int = 0, fused: bool | None = None) -> Compiled:
    """The function, with as many lanes as loops use on this processor unless said otherwise."""
    return Compiled(name, dtype, count or lanes(dtype), fused)


# ------------------------------------------------------------------------------------------ what is right


def exact(name: str, *operands: float) -> Any:
    """The function's value at floating-point numbers, far beyond their precision; None where mpmath has no say."""
    import mpmath
    from mpmath import mp

    bits = 1300 if name in ("sin", "cos", "tan") else 400
    with mp.workprec(bits):
        xs = [mp.mpf(float(x)) for x in operands]
        if not all(mp.isfinite(x) for x in xs):
            return None
        x = xs[0]
        if name == "power" and (x == 0 or xs[1] == 0 or (x < 0 and not mp.isint(xs[1]))):
            return None
        if name == "arctan2" and 0 in xs:
            return None
        try:
            match name:
                case _ if name in WHOLE:
                    return mp.power(x, WHOLE[name]) if x else None
                case "exp2":
                    return mp.power(2, x)
                case "log2":
                    return mp.log(x) / mp.log(2) if x > 0 else None
                case "expit":
                    return 1 / (1 + mp.exp(-x))
                case "cbrt":
                    return mp.sign(x) * mp.cbrt(abs(x))
                case "gammaln":
                    with mp.workprec(120):
                        return mp.loggamma(x) if x > 0 else mp.log(abs(mp.gamma(x)))
                case "erf" | "erfc":
                    with mp.workprec(1200 if abs(x) > 6 else 160):
                        return getattr(mp, name)(x)
                case "arcsin" | "arccos" | "arctan" | "arctan2" | "arcsinh" | "arccosh" | "arctanh":
                    value = getattr(mp, name.replace("arc", "a"))(*xs)
                case _:
                    value = getattr(mp, {"log": "ln"}.get(name, name))(*xs)
        except (ValueError, OverflowError, ZeroDivisionError, mpmath.libmp.ComplexResult):
            return None
        return value if mp.isfinite(value) and mp.im(value) == 0 else None


def ulps(y: Any, value: Any, floor: Any = 0) -> float:
    """Error of a float64 or float32 against an exact value, in units of the last place (of `floor`, if that is larger)."""
    from mpmath import mp

    digits, least, most = (53, -1074, 1024) if y.dtype == np.float64 else (24, -149, 128)
    with mp.workprec(400):
        if not np.isfinite(y):
            # Overflow is right where the exact value rounds to infinity.
            limit = mp.ldexp(2 - mp.ldexp(1, -digits), most - 1)
            return 0.0 if np.isinf(y) and abs(value) >= limit and (y > 0) == (value > 0) else np.inf
        size = max(abs(value), mp.mpf(floor))
        unit = mp.ldexp(1, max(mp.frexp(size)[1] - digits, least))
        return float(abs(mp.mpf(float(y)) - value) / unit)


def worst(
    name: str, y: np.ndarray, operands: tuple[np.ndarray, ...]
) -> tuple[float, tuple[float, ...]]:
    """The largest error, and where."""
    largest, where = 0.0, ()
    for v, *xs in zip(y, *operands, strict=True):
        value = exact(name, *xs)
        if value is not None and (error := ulps(v, value)) > largest:
            largest, where = error, tuple(float(x) for x in xs)
    return largest, where


# --------------------------------------------------------------------------------------------- where to look


def samples(name: str, dtype: str, points: int, seed: int = 0) -> tuple[np.ndarray, ...]:
    """Operands over the whole domain of a function, a third of the points in each of the places that differ."""
    rng = np.random.default_rng(seed)
    single = dtype == "float32"
    tiny, large = (1e-45, 3.4e38) if single else (5e-324, 1.79e308)
    n = points // 3 + 1

    def logarithmic(low: float, high: float) -> np.ndarray:
        return np.exp(rng.uniform(np.log(low), np.log(high), n))

    def signed(x: np.ndarray) -> np.ndarray:
        return x * rng.choice([-1.0, 1.0], len(x))

    low, high = (-104.0, 88.8) if single else (-745.2, 709.8)
    small = signed(logarithmic(tiny, 1.0))
    quarters = rng.integers(1, 4000, n) * (np.pi / 2)
    places: list[np.ndarray]
    match name:
        case "exp":
            places = [rng.uniform(low, high, n), small, rng.uniform(-1, 1, n)]
        case "exp2":
            places = [rng.uniform(low, high, n) * 1.4426, small, rng.uniform(-1, 1, n)]
        case "expm1":
            places = [rng.uniform(-40, high, n), small, rng.uniform(-1.5, 1.5, n)]
        case "sinh" | "cosh":
            places = [signed(rng.uniform(0, high + 0.7, n)), small, rng.uniform(-3, 3, n)]
        case "tanh":
            places = [rng.uniform(-25, 25, n), small, rng.uniform(-1.5, 1.5, n)]
        case "expit":
            places = [rng.uniform(low, 40, n), small, rng.uniform(-5, 5, n)]
        case "log" | "log2" | "log10":
            places = [
                logarithmic(tiny, large),
                rng.uniform(0.5, 2, n),
                1 + signed(logarithmic(1e-16, 0.3)),
            ]
        case "log1p":
            places = [np.concatenate([logarithmic(tiny, large)[: n // 2], small]), rng.uniform(-0.9999, 2, n),
                      -1 + logarithmic(1e-16, 0.5)]  # fmt: skip
        case "sin" | "cos" | "tan":
            places = [signed(logarithmic(1.0, large)), rng.uniform(-20, 20, n), quarters, small,
                      # Among the closest to multiples of pi/2, and where the reduction changes.
                      np.array([6381956970095103 * 2.0**797, 5319372648326541 * 2.0**202, 2.0**37, 1e22])]  # fmt: skip
        case "arcsin" | "arccos" | "arctanh":
            places = [rng.uniform(-1, 1, n), small, signed(1 - logarithmic(1e-16, 0.5))]
        case "arctan" | "cbrt":
            places = [signed(logarithmic(tiny, large)), rng.uniform(-4, 4, n)]
        case "arcsinh":
            places = [signed(logarithmic(tiny, large)), rng.uniform(-4, 4, n), small]
        case "arccosh":
            places = [logarithmic(1, large), rng.uniform(1, 4, n), 1 + logarithmic(1e-16, 1)]
        case "erf":
            places = [rng.uniform(-6.5, 6.5, n), small, rng.uniform(-1.2, 1.2, n)]
        case "erfc":
            places = [rng.uniform(-6, 10.3 if single else 27.4, n), small, rng.uniform(0.3, 5, n)]
        case "gammaln":
            places = [logarithmic(tiny, large / 1e5), rng.uniform(0.01, 12, n),
                      1 + signed(logarithmic(1e-15, 0.4))[: n // 2], 2 + signed(logarithmic(1e-15, 0.4))[: n // 2]]  # fmt: skip
        case _ if name in WHOLE:
            # Not below 1e-290, where products lose their errors.
            farthest = (100 if single else 667) / abs(WHOLE[name])
            places = [signed(np.exp(rng.uniform(-farthest, farthest, n))), rng.uniform(-2, 2, n), rng.uniform(1, 2, n)]  # fmt: skip
        case "power":
            x = np.concatenate(
                [
                    logarithmic(tiny * 1e3, large),
                    rng.uniform(0.5, 2, n),
                    1 + signed(logarithmic(1e-10, 0.1)),
                ]
            )
            bound = np.minimum(
                (88 if single else 710) / np.maximum(np.abs(np.log(x.astype(dtype))), 1e-9), 1e12
            )
            return _cast(dtype, x, rng.uniform(-1, 1, len(x)) * bound)
        case "arctan2" | "hypot":
            x = np.concatenate([signed(logarithmic(tiny, large)), rng.uniform(-3, 3, 2 * n)])
            return _cast(dtype, rng.permutation(x), x)
        case _:
            places = [logarithmic(tiny, large)]
    return _cast(dtype, np.concatenate(places))


def _cast(dtype: str, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
    with np.errstate(all="ignore"):
        return tuple(
            np.clip(x, -np.finfo(dtype).max, np.finfo(dtype).max).astype(dtype) for x in operands
        )


def peer(name: str) -> Any:
    """NumPy's function, or SciPy's."""
    import scipy.special

    if name in WHOLE:
        return lambda x, out=None: np.power(x, x.dtype.type(WHOLE[name]), out)
    return getattr(np, name, None) or getattr(scipy.special, name)


def nanoseconds(ours: Compiled, theirs: Any, dtype: str) -> tuple[float, float]:
    """Time per element of both, turn about, median of short runs."""
    x = np.random.default_rng(0).uniform(0.05, 0.95, 4096).astype(dtype)
    if theirs is np.arccosh:
        x = x + x.dtype.type(1)
    operands, out = [x] * ours.arity, np.empty_like(x)
    addresses = [x.ctypes.data] * ours.arity + [out.ctypes.data, len(x)]
    runs = (lambda: ours._run(*addresses), lambda: theirs(*operands, out))
    taken: tuple[list[float], list[float]] = ([], [])
    for _ in range(15):
        for run, times in zip(runs, taken, strict=True):
            start = time.perf_counter()
            for _ in range(8):
                run()
            times.append((time.perf_counter() - start) / 8 / len(x) * 1e9)
    return float(np.median(taken[0])), float(np.median(taken[1]))


def table(names: list[str], points: int) -> str:
    """The table, in Markdown."""
    lines = [
        "| function | dtype | max ulp | NumPy or SciPy | ns per element | NumPy or SciPy |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for name in names:
        for dtype in vecmath.ELEMENTS:
            operands = samples(name, dtype, points)
            ours, theirs = compiled(name, dtype), peer(name)
            error, _ = worst(name, ours(*operands), operands)
            with np.errstate(all="ignore"):
                reference, _ = worst(name, theirs(*operands), operands)
            ns, ns_theirs = nanoseconds(ours, theirs, dtype)
            assert error <= BOUNDS.get(name, 1.5), (name, dtype, error)
            lines.append(
                f"| {name} | {dtype} | {error:.2f} | {reference:.2f} | {ns:.2f} | {ns_theirs:.2f} |"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--points", type=int, default=1000)
    arguments = parser.parse_args()
    print(table(arguments.names, arguments.points))
