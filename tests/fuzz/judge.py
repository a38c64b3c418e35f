"""When two results are the same, from the problem's condition; and derivatives by differences that know when they are none.

The bound of a comparison is what an ulp of the arguments and of each cotangent does to the result (`spread`), times a small factor,
plus ulps of the result itself. They move by FAR times as much, and what that does is divided by FAR: where a value on the way is a
thousand times as large, one ulp of an argument is lost in its rounding, so that nothing would be allowed for the rounding itself. Where an ulp moves the result by more than a thousandth, nothing can be said: the program stands at a jump.
Differences are central ones, extrapolated, at two steps. Where the two disagree, or where the slopes of the two sides do not approach
each other as the step shrinks, the point is a kink or noise hides the slope: `Unclear`, which is counted and is no failure.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tapegrad.core import sweep

ULPS = 64.0
FAR = 16.0


class Wrong(Exception):
    """A result that no rounding explains."""


class Unclear(Exception):
    """Nothing can be said at this point: a jump, a kink, or a program that NumPy refuses here."""


def flat(value: Any, path: str = "") -> list[tuple[str, Any]]:
    """(path, leaf) of each leaf of a tree, in the order of the tree."""
    if isinstance(value, dict):
        return [x for k, v in value.items() for x in flat(v, f"{path}[{k!r}]")]
    if isinstance(value, tuple | list):
        name = "l" if isinstance(value, list) else "t"
        return [x for k, v in enumerate(value) for x in flat(v, f"{path}{name}{k}")]
    return [(path, value)]


def arrays(value: Any) -> list[np.ndarray]:
    return [np.asarray(x) for _, x in flat(value)]


def largest(x: np.ndarray) -> float:
    x = np.abs(np.asarray(x))
    return float(np.max(x[np.isfinite(x)], initial=0.0)) if x.dtype.kind in "fciu" else 0.0


def nudged(tree: Any, eps: float, rng: np.random.Generator) -> Any:
    if isinstance(tree, dict):
        return {k: nudged(v, eps, rng) for k, v in tree.items()}
    if isinstance(tree, tuple | list):
        return type(tree)(nudged(v, eps, rng) for v in tree)
    x = np.asarray(tree)
    if x.dtype.kind not in "fc":
        return tree
    by = stretched_alike(x, rng.choice([-2.0, 2.0], x.shape))
    moved = ordered(x, x + x * (eps * by).astype(x.real.dtype))
    number = isinstance(tree, float | complex) and not isinstance(tree, np.generic)
    return moved.item() if number else moved


def ordered(like: np.ndarray, values: Any) -> np.ndarray:
    """The values in memory as an array lies: whether a reshape is a view, and a store reaches it, depends on that."""
    values = np.asarray(values)
    if all(like.strides) or np.array_equal(stretched_alike(like, values), values):
        return lying_alike(like, values)
    # NumPy makes empty arrays and sums like a broadcast one in different orders.
    out = np.empty_like(np.positive(like), values.dtype)
    out[...] = values
    return out


def lying_alike(like: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The values in memory of their own with the strides of an array, counted in entries: backwards, with gaps, or stretched."""
    if not like.size or any(s % like.itemsize for s in like.strides):
        return np.array(values)
    steps = [s // like.itemsize for s in like.strides]
    ends = [(n - 1) * s for n, s in zip(like.shape, steps, strict=True)]
    first = -sum(min(e, 0) for e in ends)
    memory = np.zeros(first + sum(max(e, 0) for e in ends) + 1, values.dtype)
    strides = tuple(s * values.itemsize for s in steps)
    made = np.ndarray(like.shape, values.dtype, memory, first * values.itemsize, strides)
    made[...] = values
    made.flags.writeable = all(steps)  # as np.broadcast_to leaves it
    return made


def stretched_alike(like: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Values that are one along the axes along which an array is stretched: the first of them."""
    if not like.size or all(like.strides):
        return values
    once = values[tuple(slice(None) if s else slice(1) for s in like.strides)]
    return np.broadcast_to(once, values.shape)


def duplicate(tree: Any) -> Any:
    """A copy of arguments or results whose arrays lie as these do, broadcast ones as well."""
    if isinstance(tree, dict):
        return {k: duplicate(v) for k, v in tree.items()}
    if isinstance(tree, tuple | list):
        return type(tree)(map(duplicate, tree))
    if type(tree) is not np.ndarray or not tree.size:
        return copy.deepcopy(tree)
    return lying_alike(tree, tree)


def spread(
    function: Callable[..., Any], arguments: list[Any], result: Any, eps: float
) -> list[float]:
    """By how much each leaf of the result may differ by rounding alone, of the arguments and of cotangents on the way."""
    rng = np.random.default_rng(5)
    bounds = [0.0] * len(flat(result))
    here = arrays(result)
    for _ in range(3):
        try:
            with rounded(FAR * eps, rng):
                other = arrays(function(*nudged(arguments, FAR * eps, rng)))
        except Exception as error:
            raise Unclear(f"NumPy refuses next to this point: {error}") from None
        if [x.shape for x in other] != [x.shape for x in here]:
            raise Unclear("a shape changes next to this point")
        for k, (a, b) in enumerate(zip(here, other, strict=True)):
            if a.dtype.kind in "fc":
                bounds[k] = max(bounds[k], largest(b - a))
            elif not np.array_equal(a, b):
                raise Unclear("an integer changes next to this point")
    top = max([largest(a) for a in here], default=0.0)
    if any(s > 1e-3 * max(1.0, top) and s > 1e4 * eps * max(1.0, top) for s in bounds):
        raise Unclear("the program stands at a jump")
    return [
        ULPS * (s / FAR + eps * max(1.0, largest(a))) for s, a in zip(bounds, here, strict=True)
    ]


@contextlib.contextmanager
def rounded(eps: float, rng: np.random.Generator) -> Iterator[None]:
    """The sweep's cotangents move by ulps, entry by entry: where many of them cancel in a sum, an ulp of one is much of the sum."""

    def moved(c: Any) -> Any:
        kind = type(c)
        if (kind is not np.ndarray and not isinstance(c, np.floating)) or c.dtype.kind not in "fc":
            return c
        by = rng.choice([1 - 2 * eps, 1.0, 1 + 2 * eps], c.shape)
        return np.asarray(c * by).astype(c.dtype)[() if kind is not np.ndarray else ...]

    def pull(code: Any, position: int, g: Any, record: bool = False) -> list[tuple[Any, Any]]:
        return [(node, moved(c)) for node, c in sweep.pull(code, position, g, record)]

    token = sweep.GUARD.set(pull)
    try:
        yield
    finally:
        sweep.GUARD.reset(token)


def same(
    got: Any, expected: Any, bounds: list[float] | None, what: str, types: bool = True
) -> None:
    """Raise Wrong unless the trees have the same structure, shapes and types, and values within the bounds."""
    mine, theirs = flat(got), flat(expected)
    if [p for p, _ in mine] != [p for p, _ in theirs]:
        raise Wrong(f"{what}: structure {[p for p, _ in mine]} instead of {[p for p, _ in theirs]}")
    for k, ((path, a), (_, b)) in enumerate(zip(mine, theirs, strict=True)):
        if isinstance(b, str | type(None)):
            continue
        a, b = np.asarray(a), np.asarray(b)
        if a.shape != b.shape:
            raise Wrong(f"{what}{path}: shape {a.shape} instead of {b.shape}")
        if types and a.dtype != b.dtype:
            raise Wrong(f"{what}{path}: type {a.dtype} instead of {b.dtype}")
        atol = bounds[k] if bounds else 0.0
        if not np.allclose(a, b, rtol=0, atol=atol, equal_nan=True):
            off = largest(np.asarray(a, b.dtype if b.dtype.kind in "fc" else float) - b)
            raise Wrong(
                f"{what}{path}: off by {off:.3g}, where {atol:.3g} is allowed\n  got      {a.tolist()}\n  expected {b.tolist()}"
            )


def inner(gradient: list[Any], direction: list[Any]) -> float:
    """<gradient, direction>: complex entries count as pairs."""
    pairs = zip(arrays(gradient), arrays(direction), strict=True)
    return float(sum(np.sum(np.real(np.conj(g) * d)) for g, d in pairs))


def slope(function: Callable[[float], np.ndarray]) -> tuple[np.ndarray, float]:
    """The derivative at 0 of an array's function of a number, and how far it may be off; raises Unclear at kinks."""
    with np.errstate(all="ignore"):
        middle = np.asarray(function(0.0), float)
        scale = max(1.0, largest(middle))
        noise = 1e-13 * scale
        central, apart_by = {}, {}
        for h in (2e-3, 1e-3, 5e-4, 2.5e-4):
            up, down = np.asarray(function(h), float), np.asarray(function(-h), float)
            if up.shape != middle.shape or down.shape != middle.shape:
                raise Unclear("a shape changes next to this point")
            central[h] = (up - down) / (2 * h)
            apart_by[h] = (up - middle) / h - (middle - down) / h
    coarse = (4 * central[1e-3] - central[2e-3]) / 3
    fine = (4 * central[5e-4] - central[1e-3]) / 3
    finest = (4 * central[2.5e-4] - central[5e-4]) / 3
    if not np.all(np.isfinite(finest)):
        raise Unclear("differences are not finite")
    top = max(1.0, largest(finest))
    apart = largest(finest - fine)
    if apart > 1e-5 * top or largest(fine - coarse) > 1e-3 * top:
        raise Unclear("differences at two steps disagree")
    sided = {h: largest(d) for h, d in apart_by.items()}
    if sided[2.5e-4] > 0.6 * sided[1e-3] + 100 * noise / 2.5e-4 and sided[2.5e-4] > 1e-6 * top:
        raise Unclear("the slopes of both sides differ: a kink")
    # A small kink of a function that curves: what of the sides' difference does not go with the step.
    jump = largest((4 * apart_by[2.5e-4] - apart_by[1e-3]) / 3)
    return finest, 10 * apart + jump + 1e-8 * top + 30 * noise / 2.5e-4
