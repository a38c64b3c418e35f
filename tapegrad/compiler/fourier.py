"""Fourier transforms as routines (writer.py): calls of the loops that NumPy's own transforms run (borrowed.py).

Since 2.0 NumPy's transforms are generalised ufuncs. A transform along several axes is one along each, in NumPy's order.

Invariant: the answer is NumPy's, bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from ..ops.fourier import cooked
from .arrays import C8, C16, COMPLEX, F4, F8
from .borrowed import Borrowed, Caller, borrowed
from .text import literal
from .writer import TYPES, Routine

NAMES = ("fft", "ifft", "rfft", "irfft", "fft2", "ifft2", "rfft2", "irfft2", "fftn", "ifftn", "rfftn", "irfftn")  # fmt: skip


@cache
def loop_of(name: str, dtype: np.dtype) -> Borrowed | None:
    """The loop of one of NumPy's transforms along an axis, for complex numbers of this type and real ones of their precision."""
    try:
        from numpy.fft import _pocketfft_umath as module
    except ImportError:
        return None
    real = COMPLEX[dtype]
    given = real if name.startswith("rfft") else dtype
    made = real if name == "irfft" else dtype
    x = np.array([[1.0, 2.0, -3.0], [0.5, 0.0, 7.0]]).astype(given)
    n = {"rfft_n_odd": 2, "irfft": 4}.get(name, 3)
    y = np.zeros((2, n), made)
    strides = [x.strides[0], 0, y.strides[0], x.itemsize, y.itemsize]
    return borrowed(getattr(module, name, None), (x, np.full((), 0.5, real)), y, [2, 3, n], strides)


# ---------------------------------------------------------------------------------------------- one call's steps


class Step:
    """A transform along an axis: the ufunc's name, the factor, and the shapes before and after."""

    __slots__ = ("after", "axis", "before", "factor", "name")

    def __init__(
        self, kind: str, shape: tuple[int, ...], n: int, axis: int, norm: str | None, real: np.dtype
    ) -> None:
        self.axis = axis
        self.before = shape
        length = n // 2 + 1 if kind == "rfft" else n
        self.after = (*shape[:axis], length, *shape[axis + 1 :])
        self.name = f"rfft_n_{'odd' if n % 2 else 'even'}" if kind == "rfft" else kind
        scaled = "forward" if kind in ("fft", "rfft") else "backward"
        norm = norm or "backward"
        size = np.sqrt(n, dtype=real) if norm == "ortho" else real.type(n if norm == scaled else 1)
        self.factor = np.reciprocal(size)


def steps_of(
    name: str, shape: tuple[int, ...], settings: dict[str, Any], real_type: np.dtype
) -> list[Step]:
    """What a call of a transform does, axis by axis; nothing where it has arguments of another kind."""
    given = dict(settings)
    norm = given.pop("norm", None)
    real = next((kind for kind in ("irfft", "rfft") if name.startswith(kind)), None)
    inner = "ifft" if name.startswith("i") else "fft"
    if name in ("fft", "ifft", "rfft", "irfft"):
        axis = int(given.pop("axis", -1)) % len(shape)
        n = given.pop("n", None)
        if n is None:
            n = 2 * (shape[axis] - 1) if name == "irfft" else shape[axis]
        lengths, axes = [int(n)], [axis]
    else:
        axes = given.pop("axes", (-2, -1) if name.endswith("2") else None)
        lengths, axes = cooked(shape, given.pop("s", None), axes, real == "irfft")
    if any(value is not None for value in given.values()) or not axes:
        return []
    order = list(range(len(axes)))
    if real != "irfft":
        order.reverse()
    steps = []
    for i in order:
        kind = real if real and i == len(axes) - 1 else inner
        step = Step(kind, shape, lengths[i], axes[i], norm, real_type)
        steps.append(step)
        shape = step.after
    return steps


# ----------------------------------------------------------------------------------------------------- the text


def transform(node: Any, operands: list[Any], settings: dict[str, Any]) -> Routine | None:
    """A call of a transform as a routine."""
    x = operands[0]
    inside: Any = x.dtype if x.dtype in COMPLEX else {F8: C16, F4: C8}.get(x.dtype)
    if inside is None or not math.prod(x.shape) or not math.prod(node.shape):
        return None
    several = node.name[-1] in "2n"
    names = ("s", "axes", "norm") if several else ("n", "axis", "norm")
    settings = settings | dict(zip((*names, "out"), operands[1:], strict=False))
    if any(hasattr(value, "inputs") for value in settings.values()):
        return None  # a value of the program decides
    steps = steps_of(node.name, x.shape, settings, COMPLEX[inside])
    if not steps or steps[-1].after != node.shape:
        return None
    if any(loop_of(step.name, inside) is None for step in steps):
        return None
    real_in, real_out = steps[0].name.startswith("rfft"), steps[-1].name == "irfft"
    if (real_in and x.dtype in COMPLEX) or node.dtype != (COMPLEX[inside] if real_out else inside):
        return None
    text = _Text(inside)
    at, kind = "%a", x.dtype
    if kind not in COMPLEX and not real_in:
        whole = x.shape == node.shape and _kept(steps, inside, node)
        at, kind = text.widened(x.shape, whole), inside
    for k, step in enumerate(steps):
        to = node.dtype if step.name == "irfft" else inside
        at, kind = text.transformed(step, at, kind, to, whole=_kept(steps[k:], to, node)), to
    return text.routine(node.name, [x], sum(map(_work, steps)))


def _kept(steps: Sequence[Step], dtype: np.dtype, node: Any) -> bool:
    """Whether what a step makes lies where the result will: it is as large, and so are all that follow."""
    return dtype == node.dtype and all(step.after == node.shape for step in steps)


def _work(step: Step) -> int:
    return int(math.prod(step.after) * (4 * math.log2(step.after[step.axis] + 1) + 4))


class _Text(Caller):
    """The text of one call's function: of where the input is, where the result goes, and scratch memory."""

    def __init__(self, inside: np.dtype) -> None:
        super().__init__(TYPES[COMPLEX[inside]], operands=3, lengths=3, strides=5)
        self.inside = inside
        self.writer.lines.append(f"  %factor = alloca {self.writer.kind}")

    def _place(self, whole: bool, shape: tuple[int, ...]) -> str:
        """Where a step's entries go."""
        return "%x" if whole else self.memory(math.prod(shape) * self.inside.itemsize)

    def widened(self, shape: tuple[int, ...], whole: bool) -> str:
        """Real numbers as complex ones."""
        w, to = self.writer, self._place(whole, shape)
        with w.loop("0", str(math.prod(shape))) as i:
            w.store(w.load(w.entry("%a", i, "1")), w.entry(to, i, "2"))
            w.store("0.0", w.entry(to, i, "2", "1"))
        return to

    def transformed(self, step: Step, at: str, kind: np.dtype, to: np.dtype, whole: bool) -> str:
        """The result of a step, which may lie where its operand does."""
        w = self.writer
        stays = at.startswith("%t") and step.before == step.after and kind == to
        place = at if stays and not whole else self._place(whole, step.after)
        outer = math.prod(step.before[: step.axis])
        inner = math.prod(step.before[step.axis + 1 :])
        n, m = step.before[step.axis], step.after[step.axis]
        along = (n * kind.itemsize, m * to.itemsize) if inner == 1 else (kind.itemsize, to.itemsize)
        self.lengths([outer if inner == 1 else inner, n, m])
        self.strides([along[0], 0, along[1], inner * kind.itemsize, inner * to.itemsize])
        w.store(literal(step.factor, COMPLEX[self.inside]), "%factor")
        found = loop_of(step.name, self.inside)
        assert found is not None
        with w.loop("0", str(1 if inner == 1 else outer)) as i:
            source, result = (
                w.let(f"getelementptr i8, ptr {x}, i64 {w.let(f'mul i64 {i}, {size}')}")
                for x, size in (
                    (at, n * inner * kind.itemsize),
                    (place, m * inner * to.itemsize),
                )
            )
            size = COMPLEX[self.inside].itemsize
            reach = [
                ((length - 1) * inner + 1) * x.itemsize
                + (0 if inner == 1 else (inner - 1) * x.itemsize)
                for length, x in ((n, kind), (m, to))
            ]
            if inner == 1:
                reach = [outer * n * kind.itemsize, outer * m * to.itemsize]
            self.call(found, [source, "%factor", result], [reach[0], size, reach[1]])
        return place
