"""Fourier transforms as routines (routines.py): calls of the loops that NumPy's own transforms run, without NumPy around them.

Since 2.0 NumPy's transforms are generalised ufuncs. A ufunc holds the addresses of its loops, one for each type, which take pointers,
lengths and strides, and ask for no Python. Code names them `tapegrad_fft_ifft_D` (a loop) and `tapegrad_with_ifft_D` (what it is
given besides), and the linker finds them in every process anew. A transform along several axes is one along each, in NumPy's order.

Invariant: a loop is called only where, found at its address and tried once, it gave the answer of its ufunc.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from ..ops.fourier import cooked
from .arrays import C8, C16, COMPLEX, F4, F8
from .emit import literal
from .writer import TYPES, Routine, Writer

LOOP, GIVEN = "tapegrad_fft_", "tapegrad_with_"
_UFUNCS = ("fft", "ifft", "rfft_n_even", "rfft_n_odd", "irfft")
_LETTERS = {C16: "D", C8: "F"}
NAMES = ("fft", "ifft", "rfft", "irfft", "fft2", "ifft2", "rfft2", "irfft2", "fftn", "ifftn", "rfftn", "irfftn")  # fmt: skip


# ------------------------------------------------------------------------------------------- where the loops are


@cache
def addresses() -> dict[str, int]:
    """Symbol -> address, of the loops that this NumPy has; none where they are not as expected."""
    try:
        from numpy.fft import _pocketfft_umath as module
    except ImportError:
        return {}
    found: dict[str, int] = {}
    for name in _UFUNCS:
        ufunc = getattr(module, name, None)
        if not isinstance(ufunc, np.ufunc):
            return {}
        for k, (dtype, letter) in enumerate(_LETTERS.items()):
            loop = _loop(ufunc, k, np.dtype(dtype))
            if loop is None or not _tried(ufunc, np.dtype(dtype), *loop):
                return {}
            found[f"{LOOP}{name}_{letter}"], found[f"{GIVEN}{name}_{letter}"] = loop
    return found


def _loop(ufunc: np.ufunc, k: int, dtype: np.dtype) -> tuple[int, int] | None:
    """(the k-th loop, what it is given) of a ufunc from two arrays to one, if that is a loop for this type.

    Source: `PyUFuncObject` in NumPy's C API: nin, nout, nargs, identity, the loops, what they are given, how many there are.
    """
    at = id(ufunc) + object.__basicsize__
    given = 4 * ctypes.sizeof(ctypes.c_int)
    loops, data = (ctypes.c_void_p * 2).from_address(at + given)
    count = ctypes.c_int.from_address(at + given + 2 * ctypes.sizeof(ctypes.c_void_p)).value
    told = (ctypes.c_int * 3).from_address(at)[:]
    real = COMPLEX[dtype].char
    types = f"{real if ufunc.__name__.startswith('rfft') else dtype.char}{real}->"
    types += real if ufunc.__name__ == "irfft" else dtype.char
    if told != [2, 1, 3] or count != ufunc.ntypes or not loops or ufunc.types[k] != types:
        return None
    loop = (ctypes.c_void_p * count).from_address(loops)[k]
    with_it = (ctypes.c_void_p * count).from_address(data)[k] if data else 0
    return (loop, with_it or 0) if loop else None


def _tried(ufunc: np.ufunc, dtype: np.dtype, loop: int, given: int) -> bool:
    """Whether a loop answers as its ufunc does."""
    real = COMPLEX[dtype]
    x = np.array([[1.0, 2.0, -3.0], [0.5, 0.0, 7.0]]).astype(real if ufunc.__name__.startswith("rfft") else dtype)  # fmt: skip
    factor = np.full((), 0.5, real)
    n = {"rfft_n_even": 3, "rfft_n_odd": 2, "irfft": 4}.get(ufunc.__name__, 3)
    y, expected = (np.zeros((2, n), real if ufunc.__name__ == "irfft" else dtype) for _ in range(2))
    ufunc(x, factor, expected)
    integers = ctypes.c_ssize_t
    run = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)(loop)
    run(
        (ctypes.c_void_p * 3)(x.ctypes.data, factor.ctypes.data, y.ctypes.data),
        (integers * 3)(2, 3, n),
        (integers * 5)(x.strides[0], 0, y.strides[0], x.itemsize, y.itemsize),
        given,
    )
    return bool((y == expected).all())


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
    if not steps or steps[-1].after != node.shape or not addresses():
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
    name, lines = text.function(node.name)
    texts = {name: lines, **text.asked}
    return Routine(node.name, name, [x], [], text.scratch, sum(map(_work, steps)), texts)


def _kept(steps: Sequence[Step], dtype: np.dtype, node: Any) -> bool:
    """Whether what a step makes lies where the result will: it is as large, and so are all that follow."""
    return dtype == node.dtype and all(step.after == node.shape for step in steps)


def _work(step: Step) -> int:
    return int(math.prod(step.after) * (4 * math.log2(step.after[step.axis] + 1) + 4))


class _Text:
    """The text of one call's function: of where the input is, where the result goes, and scratch memory."""

    def __init__(self, inside: np.dtype) -> None:
        self.writer = Writer(TYPES[COMPLEX[inside]])
        self.inside = inside
        self.scratch = 0
        self.asked: dict[str, str] = {}
        self.writer.lines += [
            "  %pointers = alloca [3 x ptr]", "  %lengths = alloca [3 x i64]", "  %strides = alloca [5 x i64]",
            f"  %factor = alloca {self.writer.kind}",
        ]  # fmt: skip

    def _place(self, whole: bool, shape: tuple[int, ...]) -> str:
        """Where a step's entries go."""
        if whole:
            return "%x"
        at, size = self.scratch, math.prod(shape) * self.inside.itemsize
        self.scratch += (size + 63) // 64 * 64
        return self.writer.let(f"getelementptr i8, ptr %s, i64 {at}")

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
        outer, inner = (
            math.prod(part) for part in (step.before[: step.axis], step.before[step.axis + 1 :])
        )
        n, m = step.before[step.axis], step.after[step.axis]
        lines = outer if inner == 1 else inner  # that one call of the loop goes along
        first = (n * kind.itemsize, m * to.itemsize) if inner == 1 else (kind.itemsize, to.itemsize)
        strides = [first[0], 0, first[1], inner * kind.itemsize, inner * to.itemsize]
        w.store(literal(step.factor, COMPLEX[self.inside]), "%factor")
        for name, values in (("%lengths", [lines, n, m]), ("%strides", strides)):
            for k, value in enumerate(values):
                w.lines.append(
                    f"  store i64 {value}, ptr {w.let(f'getelementptr i64, ptr {name}, i64 {k}')}"
                )
        letter = _LETTERS[self.inside]
        loop, given = f"{LOOP}{step.name}_{letter}", f"{GIVEN}{step.name}_{letter}"
        self.asked[loop] = f"declare void @{loop}(ptr, ptr, ptr, ptr)"
        handed = "null"
        if addresses()[given]:
            self.asked[given] = f"@{given} = external global i8"
            handed = f"@{given}"
        with w.loop("0", str(1 if inner == 1 else outer)) as i:
            pointers = [
                w.let(
                    f"getelementptr i8, ptr {x}, i64 {w.let(f'mul i64 {i}, {size * inner * itemsize}')}"
                )
                for x, size, itemsize in ((at, n, kind.itemsize), (place, m, to.itemsize))
            ]
            pointers.insert(1, "%factor")
            for k, pointer in enumerate(pointers):
                w.lines.append(
                    f"  store ptr {pointer}, ptr {w.let(f'getelementptr ptr, ptr %pointers, i64 {k}')}"
                )
            w.lines.append(
                f"  call void @{loop}(ptr %pointers, ptr %lengths, ptr %strides, ptr {handed})"
            )
        return place

    def function(self, of: str) -> tuple[str, str]:
        """Its name, which tells the text, and the text."""
        body = "\n".join(self.writer.lines)
        name = f"tg_{of}_{hashlib.sha256(body.encode()).hexdigest()[:16]}"
        parameters = "ptr %a, ptr %x" + ", ptr %s" * bool(self.scratch)
        head = f"define internal i32 @{name}({parameters}) #0 {{\nentry:"
        return name, f"{head}\n{body}\n  ret i32 1\n}}"
