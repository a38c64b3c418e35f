"""The second engine: a program is run on numbers that record what happens to them.

Where the adjoint transformation refuses a function, or `mode="overload"` asks for it, the function is compiled again for `Active`
arguments (see `carriers`, `overloads`, `retyping`). A generated driver makes inputs of the tape from the arguments, calls it, and goes
through the records: backwards for cotangents, upwards for tangents along several directions at once. It takes 32 bytes an operation
and several times the adjoint's time; in return it takes most of what Numba types.

Float arguments become arrays of carriers of their own, wanted or not, since the program may write to them; whether it did is
seen afterwards. Second derivatives run the same way on Actives whose values are Duals.

The compiled driver is kept on disk (see `store`), with what must be known of the program's results to call it unseen.

Invariant: one call of compiled code goes from a tape's first record to its last cotangent, and holds the tape's lock.
"""

from __future__ import annotations

import dis
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numba.core import types
from numba.extending import register_jitable

from ..errors import NotDifferentiable
from ..face.reaching import stores
from . import inference, retyping, store
from .carriers import Active, Carrier, Dual, active, dual, is_carried, overload, tape, value
from .complaints import COMPLAINTS
from .function import compile_options
from .lowering import refuse
from .pipelines import compiling
from .runtime import kernel, outer
from .tree import Where

_REFUSALS = (
    *COMPLAINTS,
    NotDifferentiable,
    NotImplementedError,
    TypeError,
    AttributeError,
    KeyError,
    ValueError,
    AssertionError,
)
"""What Numba raises where types have no code: its own errors, and others from the depths of its lowering."""

WIDTHS = (1, 2, 4, 8)
"""Directions that one second-order sweep carries: as many as asked for, filled up to one of these."""


class Overloaded:
    """A function's derivatives by some of its parameters, by overloading."""

    valued = True
    unused: tuple[int, ...] = ()
    """Running it does not tell which parameters a result is not made from."""

    def __init__(
        self, variant: Any, positions: tuple[int, ...], reason: str, mode: str = "reverse"
    ) -> None:
        """Derivatives of a variant by overloading; `reason` says why there is no adjoint, `mode` which driver is compiled at once."""
        self.owner = variant.owner
        self.types = variant.types
        self.asked = positions
        self.positions = tuple(i for i in positions if not _is_whole(self.types[i]))
        """Those asked for that are no whole numbers, which have no derivative (in `tg.compile` they are tensors, too)."""
        if self.owner.snapshots and mode == "reverse":
            raise refuse(_where(self.owner), *retyping.NO_SNAPSHOTS)
        if any(step.opname == "BEFORE_WITH" for step in dis.get_instructions(self.owner.py_func)):
            raise refuse(
                _where(self.owner),
                "Object mode runs Python on plain numbers, where derivatives would be lost.",
                "Move the block out of the differentiated function, or give its derivative with tg.njit_vjp.",
            )
        self.reason = reason
        self.drivers: dict[Any, _Driver] = {}
        first = self.first = self.driver(mode, WIDTHS[0] if mode == "second" else 0)
        self.seeds = len(first.seeded)
        self.results = first.count
        self.returns_tuple = first.returns_tuple
        self.scalar = first.scalar
        self.seeded = [
            first.seeded.index(i) if i in first.seeded else None for i in range(self.results)
        ]
        self.draws = first.draws

    def driver(self, mode: str, width: int) -> _Driver:
        found = self.drivers.get((mode, width))
        if found is None:
            with self.owner._lock:
                found = self.drivers.get((mode, width))
                if found is None:
                    found = self.drivers[mode, width] = _Driver(self, mode, width)
        return found

    @property
    def source(self) -> str:
        """The driver; the program itself is the user's, on other numbers."""
        return self.first.source

    def run(self, args: tuple[Any, ...], seeds: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
        """(value, cotangents of the wanted parameters) for given cotangents of the active results."""
        given = [np.reshape(np.asarray(s, float), -1) for s in seeds]
        values, bars, _ = self.driver("reverse", 0)(args, given)
        found = dict(zip(self.positions, bars, strict=True))
        whole = np.zeros(1)
        return (values if self.returns_tuple else values[0]), tuple(
            float(found.get(i, whole)[0])
            if np.ndim(args[i]) == 0
            else found[i].reshape(np.shape(args[i]))
            if i in found
            else np.zeros(np.shape(args[i]))
            for i in self.asked
        )

    def written(self, args: tuple[Any, ...]) -> list[str]:
        """Names of the arguments that the function writes to, found by a run on copies of them."""
        names = list(self.owner.signature.parameters)
        seeds = [np.zeros(1)] * self.seeds
        return [names[i] for i in self.driver("reverse", 0)(args, seeds, shared=True)[2]]

    def push(self, args: tuple[Any, ...], directions: Sequence[Any]) -> dict[int, np.ndarray]:
        """Tangents of the active results, by their position, along directions: one array for each wanted parameter, whose first
        axis counts directions."""
        width = len(directions[0])
        given = [
            np.ascontiguousarray(np.reshape(np.asarray(t, float), (width, -1)))
            for t in self._along(directions)
        ]
        driver = self.driver("forward", 0)
        values, dots, _ = driver(args, given)
        return {
            i: d.reshape((width, *np.shape(values[i])))
            for i, d in zip(driver.seeded, dots, strict=True)
        }

    def bend(
        self, args: tuple[Any, ...], seeds: tuple[Any, ...], directions: Sequence[Any]
    ) -> list[np.ndarray]:
        """Derivatives of the cotangents along directions, which the first axis counts, as that of the results does."""
        count = len(directions[0])
        flat = [np.reshape(np.asarray(t, float), (count, -1)) for t in self._along(directions)]
        parts: list[list[np.ndarray]] = [[] for _ in self.positions]
        start = 0
        while start < count:
            width = next((w for w in WIDTHS if w >= count - start), WIDTHS[-1])
            here = min(width, count - start)
            given: list[Any] = [np.reshape(np.asarray(s, float), -1) for s in seeds]
            for t in flat:
                piece = np.zeros((t.shape[1], width))
                piece[:, :here] = t[start : start + here].T
                given.append(piece)
            _, bars, _ = self.driver("second", width)(args, given)
            for part, b in zip(parts, bars, strict=True):
                part.append(b.T[:here])
            start += here
        found = {i: np.concatenate(p) for i, p in zip(self.positions, parts, strict=True)}
        shapes = {i: (count, *np.shape(args[i])) for i in self.asked}
        return [
            found[i].reshape(shapes[i]) if i in found else np.zeros(shapes[i]) for i in self.asked
        ]

    def _along(self, directions: Sequence[Any]) -> list[Any]:
        """The directions in the parameters that have derivatives."""
        given = zip(self.asked, directions, strict=True)
        return [t for i, t in given if i in self.positions]

    def variables(self) -> list[tuple[str, str, str, str]]:
        """A heading, and for each argument its type, whether it is active, and what is kept."""
        each = tape(self.first.kind)
        kept = f"operations on it, {each.size + each.bar_size} bytes each"
        rows = [("variable", "type", "derivative", "kept for the reverse")]
        for i, (name, kind) in enumerate(
            zip(self.owner.signature.parameters, self.types, strict=False)
        ):
            active = i in self.positions
            rows.append(
                (name, str(kind), "active" if active else "passive", kept if active else "")
            )
        return rows

    def explain(self) -> str:
        """Which engine, why, and what it keeps."""
        rows = "\n".join("  ".join(filter(None, r)) for r in self.variables()[1:])
        return f"engine: overloading, because {self.reason}\n{rows}\n{self.first.records} numbers on the tape in the last run"


_BY_LAYOUT = ("ravel", "ascontiguousarray", "asfortranarray")
"""Functions that copy some arrays and give others back."""


class _Driver:
    """Compiled code from arguments and seeds to derivatives."""

    def __init__(self, of: Overloaded, mode: str, width: int) -> None:
        """Write and compile the function that seeds carriers, runs the program and collects derivatives, in one mode."""
        self.owner = of.owner
        self.of = of
        self.kind = active(dual(width)) if mode == "second" else active()
        options = compile_options(self.owner)
        self.vocabulary = retyping.Vocabulary(self.kind, options, snapshots=mode == "reverse")
        self.makers: dict[str, Any] = {}
        """Classes of named tuples by what the driver calls them."""
        self.records = 0
        function = self.owner.py_func
        if any(p.kind is p.VAR_POSITIONAL for p in self.owner.signature.parameters.values()):
            raise refuse(
                _where(self.owner),
                "The function takes any number of arguments.",
                "Name each of them.",
            )
        names = [
            n if n.isidentifier() else f"p{k}"
            for k, n in enumerate(self.owner.signature.parameters)
        ]
        self._refuse_layouts(function)
        try:
            carried = [
                self._carried(t, i in of.positions, names[i]) for i, t in enumerate(of.types)
            ]
            inner = self.vocabulary.compiled(function)
            key = store.program_key(
                function, of.types, of.positions, mode, width, sorted(options.items())
            )
            kept = store.read_types(key)
            if kept is None:
                with compiling():
                    inner.compile(tuple(carried))
        except _REFUSALS as error:
            raise retyping.explained(error, _where(self.owner)) from (
                None if isinstance(error, NotDifferentiable) else error
            )
        if kept is None:
            kept = self._results(inner.overloads[tuple(carried)].signature.return_type)
            store.write_types(key, kept)
        self.returns_tuple, self.count, self.seeded, self.scalar, self.draws = kept
        self.source = self._text(mode, names)
        words = _words(self.kind)
        scope = {"np": np, "program": inner, "value": value, **words, **self.makers}
        name = f"{_name(self.owner)}_overloaded"
        # Classes of named tuples are nobody's to find in another process.
        file = None if self.makers else store.file_of(name, self.source, key)
        driver = inference.load(name, self.source, scope, file)
        self.compiled = store.keeping_generated(outer(options)(driver), file)

    def _refuse_layouts(self, function: Any) -> None:
        """Refuse stores to what is memory of an argument, or a copy, by the argument's layout: carriers lie in C order."""
        asked = [n for n in _BY_LAYOUT if n in function.__code__.co_names]
        laid = any(isinstance(k, types.Array) and k.layout != "C" for k in self.of.types)
        if asked and laid and stores(function.__code__):
            raise refuse(
                _where(self.owner),
                f"The function stores to arrays and calls {asked[0]}, whose result is another array, or the same, by the layout of an "
                "argument that is not in C order.",
                f"Write .copy() behind {asked[0]}(...): then it is an array of its own.",
            )

    def _results(self, found: Any) -> tuple[bool, int, list[int], bool, bool]:
        """What must be known of the program's results, in plain words: for other processes too."""
        several = isinstance(found, types.BaseTuple)
        outs = list(found.types) if several else [found]
        for kind in outs:
            if not _can_leave(kind):
                raise refuse(
                    _where(self.owner),
                    f"The function returns {kind}, which is neither a number nor an array.",
                    "Return numbers, arrays, or one tuple of them.",
                )
        seeded = [i for i, k in enumerate(outs) if isinstance(k, Carrier) or is_carried(k)]
        scalar = not several and isinstance(outs[0], Carrier)
        return several, len(outs), seeded, scalar, self.vocabulary.draws

    def _carried(self, kind: Any, wanted: bool, name: str) -> Any:
        """The type that a parameter has in the program on carriers."""
        if isinstance(kind, types.BaseTuple) and not wanted:
            parts = [self._carried(t, False, name) for t in kind.types]
            if parts == list(kind.types):
                return kind
            if isinstance(kind, types.BaseNamedTuple):
                return types.NamedTuple(parts, kind.instance_class)
            return types.Tuple(parts)
        if kind == types.float64:
            return self.kind if wanted else kind
        if isinstance(kind, types.Array) and kind.dtype == types.float64 and kind.ndim:
            return types.Array(self.kind, kind.ndim, "C")
        dtype = getattr(kind, "dtype", kind)
        refused = (
            dtype == types.float32
            or isinstance(dtype, types.Complex)
            or isinstance(kind, types.Dispatcher | types.Sequence)
        )
        if wanted or refused:
            raise refuse(
                _where(self.owner),
                f"The argument {name} is of type {kind}, but overloading works on float64 and on arrays of it.",
                "Convert it, or use mode='adjoint'.",
            )
        return kind

    # ------------------------------------------------------------------------------------------------ text

    def _text(self, mode: str, names: list[str]) -> str:
        """The driver as Python."""
        of = self.of
        taken = {"np", "program", "value", "out", "bars", "dots", "inputs", *_words(self.kind)}
        # Every other name that is made here has an underscore, and none ends with one.
        names = [f"{n}_{i}_" if n in taken or "_" in n else n for i, n in enumerate(names)]
        used = names[: len(of.types)]
        forward, second = mode == "forward", mode == "second"
        seeds = [] if forward else [f"seed_{i}" for i in self.seeded]
        along = [f"{names[i]}_along" for i in of.positions] if mode != "reverse" else []
        lines = [f"def {_name(self.owner)}_overloaded({', '.join([*used, *seeds, *along])}):"]
        put = lambda text: lines.append(f"    {text}")  # noqa: E731
        put("start()")
        arguments = []
        changes: list[tuple[int, str]] = []

        def lift(text: str, kind: Any, i: int) -> str:
            """The text that turns an argument into one of carriers, through nested tuples."""
            if isinstance(kind, types.BaseTuple):
                if self._carried(kind, False, text) == kind:
                    return text
                parts = [lift(f"{text}[{k}]", t, i) for k, t in enumerate(kind.types)]
                if isinstance(kind, types.BaseNamedTuple):
                    maker = f"make_{len(self.makers)}"
                    self.makers[maker] = kind.instance_class
                    return f"{maker}({', '.join(parts)})"
                return f"({', '.join(parts)},)"
            if isinstance(kind, types.Array) and kind.dtype == types.float64:
                held = f"{names[i]}_{len(lines)}"
                put(f"{held} = held({text})")
                changes.append((i, f"changed({held}, {text}, -1)"))
                return held
            return text

        for i, kind in enumerate(of.types):
            if i in of.positions:
                n = names[i]
                put(f"{n}_before = count()")
                more = f", {n}_along" if second else ""
                put(f"{n}_active = lifted({n}{more})")
                arguments.append(f"{n}_active")
                if isinstance(kind, types.Array):
                    changes.append((i, f"changed({n}_active, {n}, {n}_before)"))
            else:
                arguments.append(lift(names[i], kind, i))
        put("inputs = count()")
        put(f"out = program({', '.join(arguments)})")
        outs = [f"out[{i}]" if self.returns_tuple else "out" for i in range(self.count)]
        if forward:
            put(f"dots = np.zeros((count() + 1, {along[0]}.shape[0]))")
            for i, t in zip(of.positions, along, strict=True):
                put(f"spread_tangents(dots, {names[i]}_before, {t})")
            put("rise(dots, inputs)")
            derived = [f"tangents(dots, {outs[i]})" for i in self.seeded]
        else:
            put("bars = untouched_bars(count() + 1)")
            for i, s in zip(self.seeded, seeds, strict=True):
                put(f"seed(bars, {outs[i]}, {s})")
            put("sweep(bars, inputs)")
            derived = [f"gathered(bars, {names[i]}_before, {names[i]})" for i in of.positions]
        self.changing = [i for i, _ in changes]
        results = [f"value({o})" for o in outs] + derived + [c for _, c in changes] + ["count()"]
        put(f"return ({', '.join(results)},)")
        return "\n".join(lines) + "\n"

    # ------------------------------------------------------------------------------------------------ a call

    def __call__(
        self, args: tuple[Any, ...], given: Sequence[Any], shared: bool = False
    ) -> tuple[tuple[Any, ...], list[Any], list[int]]:
        """(values, derivatives, positions of arguments that were written)."""
        records = tape(self.kind)
        with records.lock:
            records.limit = self.owner.limit
            if self.compiled.signatures:
                out = self.compiled(*args, *given)
            else:
                with compiling():
                    out = self.compiled(*args, *given)
        n = self.count
        self.records = out[-1]
        first = len(out) - 1 - len(self.changing)
        written = [i for i, c in zip(self.changing, out[first:-1], strict=True) if c]
        if written and not shared:
            self._refuse_shared(args, written)
        return out[:n], list(out[n:first]), written

    def _refuse_shared(self, args: tuple[Any, ...], written: list[int]) -> None:
        """The array that is written was a copy: where another argument shares its memory, the program would have seen the change."""
        names = list(self.owner.signature.parameters)
        for i in written:
            for j, other in enumerate(args):
                for a in _arrays(args[i]):
                    for b in _arrays(other):
                        if (j != i or a is not b) and np.may_share_memory(a, b):
                            raise NotDifferentiable(
                                f"{self.owner.__name__} writes to its argument {names[i]}, which shares memory with {names[j]}: the "
                                "derivative by either is not defined. Pass a copy of one of them.",
                                name="native-writes",
                            )


def _is_whole(kind: Any) -> bool:
    """Whether a number, or the elements of an array, are whole."""
    return isinstance(getattr(kind, "dtype", kind), types.Integer | types.Boolean)


def _can_leave(kind: Any) -> bool:
    """Whether a result has a plain value."""
    inner = kind.dtype if isinstance(kind, types.Array) else kind
    return isinstance(inner, types.Number | types.Boolean | types.NoneType | Carrier)


def _arrays(a: Any) -> list[np.ndarray]:
    if isinstance(a, tuple):
        return [b for x in a for b in _arrays(x)]
    return [a] if isinstance(a, np.ndarray) else []


def _where(owner: Any) -> Where:
    code = owner.py_func.__code__
    return Where(code.co_filename, code.co_firstlineno, f"def {owner.__name__}")


def _name(owner: Any) -> str:
    return owner.__name__ if owner.__name__.isidentifier() else "function"


# --------------------------------------------------------------------------------------- words of the driver


@kernel
def changed(carried: Any, x: Any, before: int) -> Any:
    """Whether the program wrote to an argument: element n was lifted as input before + n + 1, or as a constant (before < 0)."""
    n = 0
    for k in np.ndindex(x.shape):
        n += 1
        c = carried[k]
        if c.i != (before + n if before >= 0 else 0):
            return True
        v = value(c)
        if v != x[k] and (v == v or x[k] == x[k]):
            return True
    return False


def seed(bars: Any, out: Any, s: Any) -> None:
    raise NotImplementedError("for compiled code")


@overload(seed)
def _seed(bars: Any, out: Any, s: Any) -> Any:
    """Nopython: add seeds to the cotangents of a result."""
    if isinstance(out, types.Array):

        def array(bars: Any, out: Any, s: Any) -> None:
            n = 0
            for k in np.ndindex(out.shape):
                i = out[k].i
                bars[i] = bars[i] + (s[n if s.size > 1 else 0] + 0.0)
                n += 1

        return array

    def number(bars: Any, out: Any, s: Any) -> None:
        bars[out.i] = bars[out.i] + (s[0] + 0.0)

    return number


@kernel
def spread_tangents(dots: Any, before: int, along: Any) -> None:
    for d in range(along.shape[0]):
        for k in range(along.shape[1]):
            dots[before + 1 + k, d] = along[d, k]


def tangents(dots: Any, out: Any) -> Any:
    raise NotImplementedError("for compiled code")


@overload(tangents)
def _tangents(dots: Any, out: Any) -> Any:
    if isinstance(out, types.Array):

        def array(dots: Any, out: Any) -> Any:
            found = np.empty((dots.shape[1], out.size))
            n = 0
            for k in np.ndindex(out.shape):
                for d in range(dots.shape[1]):
                    found[d, n] = dots[out[k].i, d]
                n += 1
            return found

        return array
    return lambda dots, out: dots[out.i].copy().reshape((dots.shape[1], 1))


def _gathering(kind: Active) -> Any:
    """What reads the cotangents of a parameter: as numbers, or of second order their parts along directions, a row for each entry."""

    def gathered(bars: Any, before: Any, x: Any) -> Any:
        raise NotImplementedError("for compiled code")

    if isinstance(kind.inner, Dual):
        width = kind.inner.width

        @overload(gathered)
        def _gathered_second(bars: Any, before: Any, x: Any) -> Any:
            """Nopython: the directional parts of the cotangents of a parameter, one row for each entry."""
            array = isinstance(x, types.Array)

            def run(bars: Any, before: Any, x: Any) -> Any:
                n = x.size if array else 1
                out = np.empty((n, width))
                for k in range(n):
                    for d in range(width):
                        out[k, d] = bars[before + 1 + k].d[d]
                return out

            def one(bars: Any, before: Any, x: Any) -> Any:
                out = np.empty((1, width))
                for d in range(width):
                    out[0, d] = bars[before + 1].d[d]
                return out

            return run if array else one
    else:

        @overload(gathered)
        def _gathered(bars: Any, before: Any, x: Any) -> Any:
            if isinstance(x, types.Array):
                # + 0.0: the mark of what no result depends on is no derivative
                return lambda bars, before, x: bars[before + 1 : before + 1 + x.size] + 0.0
            return lambda bars, before, x: bars[before + 1 : before + 2] + 0.0

    return gathered


@functools.cache
def _words(kind: Active) -> dict[str, Any]:
    """What drivers call, for one kind of numbers."""
    records = tape(kind)
    word, make = kind.dtype_word, kind.make
    reserve = records.reserve
    bar_word = kind.inner.dtype_word if isinstance(kind.inner, Dual) else np.float64

    if isinstance(kind.inner, Dual):
        parts = ", ".join(f"t[k, {d}]" for d in range(kind.inner.width))
        inner = register_jitable(
            eval(f"lambda v, t, k: make(v, ({parts},))", {"make": kind.inner.make})
        )
    else:
        inner = register_jitable(lambda v, t, k: v)

    def lifted(x: Any, t: Any = None) -> Any:
        raise NotImplementedError("for compiled code")

    @overload(lifted)
    def _lifted(x: Any, t: Any = None) -> Any:
        """Nopython: a number or array as carriers."""
        if isinstance(x, types.Array):

            def array(x: Any, t: Any = None) -> Any:
                before = reserve(x.size)
                out = np.zeros(x.shape, word)
                n = 0
                for k in np.ndindex(x.shape):
                    out[k] = make(inner(x[k], t, n), before + n + 1)
                    n += 1
                return out

            return array

        def number(x: Any, t: Any = None) -> Any:
            before = reserve(1)
            return make(inner(x, t, 0), before + 1)

        return number

    @kernel
    def held(x: Any) -> Any:
        """An array of constants."""
        out = np.zeros(x.shape, word)
        for k in np.ndindex(x.shape):
            out[k] = x[k]
        return out

    @kernel
    def untouched_bars(n: int) -> Any:
        bars = np.zeros(n, bar_word)
        bars[:] = -0.0
        return bars

    return {
        "start": records.start, "count": register_jitable(_calls(records.count)), "lifted": lifted, "held": held, "changed": changed,
        "untouched_bars": untouched_bars, "seed": seed, "sweep": records.sweep, "gathered": _gathering(kind), "rise": records.rise,
        "spread_tangents": spread_tangents, "tangents": tangents,
    }  # fmt: skip


def _calls(read: Any) -> Callable[[], Any]:
    return lambda: read()
