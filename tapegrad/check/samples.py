"""Samples: the calls on which laws are checked, drawn from an op's own declaration.

An elementwise op is called on shapes that broadcast in every way, with points of its domains; a structural op as its
declared `samples` say. Each call is drawn again in *variants*: other dtypes, other memory layouts, scalars and Python
numbers, one operand tracked and the others constant.

Invariant: a sample depends on the seed, the op's name and the sample's name only, so a new op changes no other's.
"""

from __future__ import annotations

import inspect
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..core.domain import real
from ..core.primitive import Call, Primitive, signature_of


@dataclass(frozen=True, slots=True)
class Sample:
    """One call to check: `function(*operands, **settings)`, differentiated by the operands that are `tracked`.

    `reference` is NumPy's own function; `variant` says what is special about the sample, or is empty; `op` is None for
    a function that is made of ops.
    """

    name: str
    variant: str
    op: Primitive | None
    function: Callable[..., Any]
    reference: Callable[..., Any]
    operands: tuple[Any, ...]
    settings: dict[str, Any]
    tracked: tuple[bool, ...]
    seed: int

    def __repr__(self) -> str:
        shown = [f"{np.result_type(x)}{np.shape(x)}" for x in self.operands]
        shown += [f"{k}={v!r}" for k, v in self.settings.items()]
        return f"{self.name}: {', '.join(shown)}"

    def __call__(self, *operands: Any) -> Any:
        """The function on other operands, raw or Tensors."""
        return self.function(*operands, **self.settings)

    def at(self, *variables: Any) -> Any:
        """The function of the tracked operands alone, the others as they are."""
        given = iter(variables)
        pairs = zip(self.operands, self.tracked, strict=True)
        return self(*(next(given) if tracked else x for x, tracked in pairs))

    @property
    def variables(self) -> tuple[Any, ...]:
        """The tracked operands."""
        return tuple(x for x, t in zip(self.operands, self.tracked, strict=True) if t)

    @property
    def subject(self) -> str:
        """Name of what is checked."""
        return self.op.name if self.op else getattr(self.function, "__name__", repr(self.function))

    def drawn(self, like: Any) -> Any:
        """Random numbers in the shape and dtype of a value: a cotangent, or a tangent. They are no operand's numbers: along x a
        homogeneous function's second derivative vanishes."""
        rng = np.random.default_rng((self.seed, 1))
        return np.asarray(real.sample(rng, np.shape(like), np.result_type(like)))


Draw = Callable[..., Sample]
"""`draw(name, variant, *dtypes)`: a sample of a call; the last dtype holds for the operands that are left."""

_SHAPES: dict[int, dict[str, tuple[tuple[int, ...], ...]]] = {
    1: {"vector": ((3,),), "0d": ((),), "empty": ((0,),), "matrix": ((2, 3),)},
    2: {
        "vector": ((3,), (3,)),
        "0d": ((), ()),
        "empty": ((0, 3), (3,)),
        "broadcast": ((2, 3), (3,)),
        "outer": ((2, 1), (1, 3)),
        "spread": ((), (2, 2)),
    },
    3: {
        "vector": ((3,), (3,), (3,)),
        "0d": ((), (), ()),
        "empty": ((0,), (0,), ()),
        "broadcast": ((2, 1), (3,), (2, 3)),
        "spread": ((2, 3), (), (2, 1)),
    },
}


def samples_of(op: Primitive, rng: int = 0) -> Iterator[Sample]:
    """The samples of a declared op, less the variants it declares unsupported."""
    if op.elementwise:
        calls = {name: Call(*shapes) for name, shapes in _SHAPES[op.arity].items()}
    else:
        calls = {_label(c): c for c in op.samples}
    for name, call in calls.items():
        draw = _drawing(call, op, _packing(op), _reference(op), rng)
        plain = draw(name)
        yield plain
        if not op.elementwise or name == "vector":
            yield from (s for s in _variants(plain, draw) if s.variant not in op.unsupported)


def samples_from(f: Callable[..., Any], calls: Sequence[Call], rng: int = 0) -> Iterator[Sample]:
    """The samples of any function written in NumPy's names, from calls such as `call((2, 3), axis=1)`."""
    for call in calls:
        draw = _drawing(call, None, f, f, rng)
        plain = draw(_label(call))
        yield plain
        yield from _variants(plain, draw)


# ------------------------------------------------------------------------------------- other values, other memory


def others(sample: Sample) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Other variables for the same call: values with ties, zeros and equal entries, of extreme scales, in every memory layout.

    Dtypes and shapes are the sample's, so that a program compiled for the sample takes them all.
    """
    variables = [np.asarray(x) for x in sample.variables]
    rng = np.random.default_rng(sample.seed + 1)
    redrawn = tuple(np.asarray(_permuted(rng, x) * x.dtype.type(1.0625)) for x in variables)
    for name, laid_out in LAYOUTS.items():
        yield name, tuple(laid_out(x) for x in redrawn)
    far = 2.0**3 if _of_scipy(sample) else 2.0**40
    scales = {"tiny": lambda x: x / far, "huge": lambda x: x * far}
    for name, change in (VALUES | scales).items():
        if name == "infinite" and _of_scipy(sample):
            continue
        yield name, tuple(change(x).astype(x.dtype) for x in variables)
        if len(variables) > 1:
            yield f"{name}, first", (change(variables[0]).astype(variables[0].dtype), *redrawn[1:])


def _of_scipy(sample: Sample) -> bool:
    """Whether the values are SciPy's, some of which do not end at infinity (hyp1f1) or at -1e12 (polygamma)."""
    of = sample.op.of if sample.op else None
    if isinstance(of, np.ufunc):
        return getattr(np, of.__name__, None) is not of
    return ".special" in (getattr(of, "__module__", None) or "")


def _permuted(rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
    """The same numbers in another order along the first axis but of matrices, whose diagonals stay where they are."""
    return x if x.ndim != 1 else rng.permutation(x)


def _unaligned(x: np.ndarray) -> np.ndarray:
    room = np.zeros(x.nbytes + 1, np.uint8)[1:].view(x.dtype) if x.nbytes else x.copy()
    place = room.reshape(x.shape)
    place[...] = x
    return place


def _repeated(x: np.ndarray) -> np.ndarray:
    """The first entry, or row, everywhere: memory of one of them."""
    return np.broadcast_to(x[:1] if x.ndim and x.size else x, x.shape)


def _read_only(x: np.ndarray) -> np.ndarray:
    x = np.array(x)
    x.flags.writeable = False
    return x


LAYOUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "rows": lambda x: np.array(x, order="C"),
    "columns": lambda x: np.array(x, order="F"),
    "transposed": lambda x: np.ascontiguousarray(x.T).T,
    "flipped": lambda x: np.flip(np.flip(x).copy()) if x.ndim else x,
    "with gaps": lambda x: _strided(x),
    "read-only": _read_only,
    "unaligned": _unaligned,
    "broadcast": _repeated,
}

VALUES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "zeros": lambda x: np.zeros_like(x),
    "negative zeros": lambda x: -np.zeros_like(x),
    "ones": lambda x: np.ones_like(x),
    "ties": lambda x: np.rint(x),
    "equal entries": lambda x: np.full_like(x, x.flat[0] if x.size else 1),
    "negative": lambda x: -x,
    "infinite": lambda x: np.where(np.arange(x.size).reshape(x.shape) == 0, np.inf, x),
    "NaN": lambda x: np.where(np.arange(x.size).reshape(x.shape) == x.size - 1, np.nan, x),
}


def _label(call: Call) -> str:
    return repr(call).replace(", ", ",")


def _packing(op: Primitive) -> Callable[..., Any]:
    """The op's public function, taking its operands one by one even where it takes a sequence of them."""
    if op.variadic and not op.elementwise:
        return lambda *xs, **settings: op.function(xs, **settings)
    return op.function


def _reference(op: Primitive) -> Callable[..., Any]:
    """NumPy's own function, called with every setting, by keyword where it knows the name."""
    parameters = inspect.signature(op.function).parameters
    defaults = {n: parameters[n].default for n in op.settings}
    try:
        known = set(signature_of(op.of).parameters)
    except ValueError:
        known = set(op.settings)

    def reference(*operands: Any, **settings: Any) -> Any:
        settings = defaults | settings
        unnamed = [v for k, v in settings.items() if k not in known]
        named = {k: v for k, v in settings.items() if k in known}
        given = (operands,) if op.variadic and not op.elementwise else operands
        return op.of(*given, *unnamed, **named)

    return reference


def _drawing(call: Call, op: Primitive | None, function: Any, reference: Any, rng: int) -> Draw:
    """A function that draws samples of a call: (name, variant, dtypes) -> Sample, the same for the same name and `rng`."""
    domains = call.domains or (op.domains if op else (real,))

    def draw(name: str, variant: str = "", *dtypes: Any) -> Sample:
        """A sample whose operands are drawn from the domains of the op, in these dtypes."""
        seed = zlib.crc32(f"{rng} {op.name if op else call} {name}".encode())
        generator = np.random.default_rng(seed)
        dtypes = dtypes or (np.float64,)
        operands = []
        for i, operand in enumerate(call.operands):
            dtype = dtypes[min(i, len(dtypes) - 1)]
            if isinstance(operand, tuple):
                domain = domains[min(i, len(domains) - 1)]
                operand = domain.sample(generator, operand, dtype)
            elif isinstance(operand, np.ndarray) and inexact(operand):
                operand = operand.astype(dtype)
            operands.append(operand)
        tracked = tuple(isinstance(x, np.ndarray) and inexact(x) for x in operands)
        settings = call.settings
        return Sample(
            name, variant, op, function, reference, tuple(operands), settings, tracked, seed
        )

    return draw


def _variants(plain: Sample, draw: Draw) -> Iterator[Sample]:
    """The same call in other dtypes and layouts, with scalars, and with only one operand tracked."""
    elementwise = plain.op is not None and plain.op.elementwise
    arity = len(plain.operands)
    complex_too = _takes_complex(plain, draw)

    def named(suffix: str) -> str:
        return suffix if elementwise else f"{plain.name},{suffix}"

    strided = draw(named("strided"), "strided")
    yield replace(strided, operands=tuple(_strided(x) for x in strided.operands))
    yield draw(named("float32"), "float32", np.float32)
    if complex_too:
        yield draw(named("complex"), "complex", np.complex128)
    if complex_too and arity > 1:
        yield draw(named("mixed"), "mixed", np.float64, np.complex128)
    for i in range(arity if arity > 1 else 0):
        if plain.tracked[i]:
            only = draw(named(f"only{i}"), "only")
            yield replace(only, tracked=tuple(j == i for j in range(arity)))
    if elementwise:
        scalars = draw("scalar", "scalar")
        scalars = replace(scalars, operands=tuple(x[0] for x in scalars.operands))
        yield scalars
        if arity == 2:
            yield from _beside_numbers(plain, complex_too)


def _beside_numbers(plain: Sample, complex_too: bool) -> Iterator[Sample]:
    """A tensor and a Python number, which take paths of their own in the generated code."""
    for kind in ("float", "imaginary") if complex_too else ("float",):
        for i in range(2):
            operands = list(plain.operands)
            number = float(operands[1 - i][0])
            operands[1 - i] = number if kind == "float" else number * 1j
            name = f"{kind}{1 - i}"
            tracked = (i == 0, i == 1)
            yield replace(
                plain, name=name, variant="number", operands=tuple(operands), tracked=tracked
            )


def inexact(x: Any) -> bool:
    """Whether a value has a dtype that can carry a gradient."""
    return np.result_type(x).kind in "fc"


def _strided(x: Any) -> Any:
    """The same values in memory that runs backwards, with gaps, and in Fortran's order."""
    if np.ndim(x) == 0:
        return x
    roomy = np.zeros(tuple(2 * n for n in reversed(x.shape)), x.dtype)
    view = roomy[(slice(None, None, -2),) * x.ndim].T
    view[...] = x
    return view


def _takes_complex(plain: Sample, draw: Draw) -> bool:
    """Whether the call is meant, and NumPy able, to take complex operands."""
    if plain.op is not None:
        if "complex" in plain.op.unsupported or not all(d.complex_too for d in plain.op.domains):
            return False
    try:
        plain.reference(*draw("", "", np.complex128).operands, **plain.settings)
    except TypeError:
        return False
    return True
