"""Derivatives of a native function by the program form.

A `ByForm` is what `Derived` is for the generated adjoint: by some of a function's parameters, it gives value and cotangents for one call.
It exists where the whole function lies in the form, which is decided before anything is compiled. A call whose sizes do not fit what
the program assumes (an index that would be out of bounds, arrays that would be broadcast otherwise), and second derivatives, go to the
generated adjoint.

Data: one program in machine code for each pattern of equal lengths, serving all lengths of the pattern.
Invariant: the caller's arrays are never written to; scratch memory belongs to the thread.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numba.core import types

from ..compiler import jit
from ..program.affine import ONE, Affine, affine
from ..program.arrays import Outside
from ..program.compiling import differentiated, prepared
from ..program.form import Loop, Program
from ..program.partials import Formless
from ..program.running import DONE, OTHER, UNFIT, Argument, Compiled
from . import forming, inference, settling

_threads = threading.local()


def switched_on() -> bool:
    """Whether mode "auto" may take the form: TAPEGRAD_FORM=0 says no."""
    return os.environ.get("TAPEGRAD_FORM", DEFAULT) != "0"


DEFAULT = "0"


class ByForm:
    """A function's value and cotangents by some of its parameters, through the program form; raises Outside."""

    valued = True
    draws = False

    def __init__(self, variant: Any, positions: tuple[int, ...]) -> None:
        owner = variant.owner
        self.owner, self.variant, self.positions = owner, variant, positions
        _allowed(owner)
        self.typed: settling.Typed = variant.typed()
        names = self.typed.program.params
        parts = self.typed.param_parts
        self.tuples = any(isinstance(p, list) for p in parts)
        self.wanted = [leaf for i in positions for leaf in settling.leaves(parts[i])]
        kinds = [self.typed.types[n] for n in names]
        generic = iter(range(1 << 30))
        shapes = [
            tuple(affine(f"n{next(generic)}") for _ in range(k.ndim))
            if inference.is_array(k)
            else None
            for k in kinds
        ]
        self.generic = self._read(shapes)
        if any(w not in self.generic.given for w in self.wanted):
            raise Outside("A parameter with a gradient is no array or number of floats.")
        results = self.typed.program.results
        self.results = self.seeds = len(results)
        if not results:
            raise Outside("There is no result.")
        self.returns_tuple = self.typed.program.returns_tuple
        self.seeded = list(range(self.results))
        self.scalar = (
            self.results == 1
            and isinstance(self.typed.types[results[0]], types.Float)
            and not self.returns_tuple
        )
        self.programs: dict[Any, _Program | str] = {}
        self.latest: _Program | None = None
        self.kept = 0
        """Bytes of scratch memory that the last call took."""
        self._other: Any = None

    def _read(self, shapes: Sequence[Any]) -> forming.Formed:
        program = self.typed.program
        parameters = [
            forming.Parameter(n, self.typed.types[n], shape)
            for n, shape in zip(program.params, shapes, strict=True)
        ]
        try:
            return forming.formed(self.typed, parameters)
        except Formless as why:
            raise Outside(str(why)) from why

    # ------------------------------------------------------------------------------------------ calls

    @property
    def other(self) -> Any:
        """The generated adjoint, for what does not fit the form."""
        if self._other is None:
            self._other = self.variant.transformed(self.positions, True)
        return self._other

    def seeds_of_other(self, seeds: Sequence[Any]) -> tuple[Any, ...]:
        other = self.other
        given: list[Any] = [None] * other.seeds
        for i, at in enumerate(other.seeded):
            if at is not None:
                given[at] = seeds[i]
        return tuple(given)

    def run(self, args: tuple[Any, ...], seeds: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
        """(value, cotangents of the wanted parameters) for given cotangents of the results."""
        flat = [_plain(a) for a in _leaves(args)] if self.tuples else [_plain(a) for a in args]
        program = self.latest
        if program is not None:
            found = program.run(flat, seeds)
            if found is not None:
                return self._result(found)
        if not self._shares(flat):
            program = self._program(flat)
            if program is not None:
                self.latest = program
                found = program.run(flat, seeds)
                if found is not None:
                    return self._result(found)
        return self.other.run(args, self.seeds_of_other(seeds))  # type: ignore[no-any-return]

    def _result(self, found: tuple[list[Any], tuple[Any, ...]]) -> tuple[Any, tuple[Any, ...]]:
        values, bars = found
        return (tuple(values) if self.returns_tuple else values[0]), bars

    def _shares(self, flat: Sequence[Any]) -> bool:
        """Whether an argument that is written to shares memory with another: that is for the other engine to refuse."""
        names = self.typed.program.params
        return any(
            np.may_share_memory(flat[names.index(w)], b)
            for w in self.generic.written
            for k, b in enumerate(flat)
            if isinstance(b, np.ndarray) and k != names.index(w)
        )

    def _program(self, flat: Sequence[Any]) -> _Program | None:
        """The program for the pattern of equal lengths that these arguments have; None where there is none."""
        key = pattern(flat)
        found = self.programs.get(key)
        if found is None:
            with self.owner._lock:
                found = self.programs.get(key)
                if found is None:
                    try:
                        found = _Program(self, key)
                    except Outside as why:
                        found = str(why)
                    self.programs[key] = found
        return found if isinstance(found, _Program) else None

    def shortcut(self, several: bool) -> Callable[..., Any] | None:
        """Value and gradient of one number by its arguments alone; TypeError where arguments must be looked at first."""
        if self.tuples or self.generic.written or self.latest is None:
            return None
        run, number = self.latest.run, np.float64

        def call(*args: Any) -> Any:
            found = run(args, (1.0,))
            if found is None:
                raise TypeError("arguments of another kind")
            (value,), bars = found
            return number(value), bars if several else bars[0]

        return call

    def written(self, args: tuple[Any, ...]) -> list[str]:
        """Names of the arguments that the function writes to."""
        return [p for p in self.typed.program.params if p in self.generic.written]

    # ------------------------------------------------------------------------------------------ for people

    @property
    def source(self) -> str:
        """The program of value and cotangents, before its loops are rewritten."""
        if self.latest is not None:
            return str(self.latest.mathematics)
        given = self.generic.given
        return str(differentiated(self.generic.program, [given[w] for w in self.wanted]))

    def explain(self) -> str:
        """Which engine it is, and what its programs assume and keep."""
        told = ["engine: form, one program of loops over regions"]
        rows = self.variables()
        widths = [max(len(r[i]) for r in rows) for i in range(4)]
        told += ["  ".join(map(str.ljust, r, widths)).rstrip() for r in rows]
        for found in self.programs.values():
            if isinstance(found, str):
                told.append(f"some lengths go to the generated adjoint: {found}")
            else:
                told += [f"assumes {claim} >= 0" for claim in found.mathematics.assumptions]
        told.append(f"{self.kept} bytes of scratch memory in the last run")
        return "\n".join(told)

    def variables(self) -> list[tuple[str, str, str, str]]:
        """A heading, and for each parameter its type, whether a gradient is asked, and whether it is copied."""
        rows = [("variable", "type", "derivative", "kept for the reverse")]
        for name in self.typed.program.params:
            active = "active" if name in self.wanted else "passive"
            copied = "a copy, as it is written to" if name in self.generic.written else ""
            rows.append((name, str(self.typed.types[name]), active, copied))
        return rows


class _Program:
    """The machine code for one pattern of equal lengths."""

    def __init__(self, of: ByForm, key: Sequence[Any]) -> None:
        self.of = of
        found = of._read([None if p is None else _shape(p) for p in key])
        wanted = [found.given[w] for w in of.wanted]
        try:
            self.mathematics = differentiated(found.program, wanted)
        except Formless as why:
            raise Outside(str(why)) from why
        self.ready = prepared(self.mathematics)
        inputs = {b.name: b for b in self.mathematics.inputs}
        self.given = []
        for p in of.typed.program.params:
            b = found.given.get(p)
            kind = of.typed.types[p]
            if b is None and not isinstance(kind, types.Integer):
                raise Outside(f"{p} is neither float nor a size.")
            self.given.append(Argument(b) if b is not None else Argument(None, p))
        self.given += [Argument(b) for n, b in inputs.items() if n.startswith("seed_")]
        self.compiled = Compiled(self.ready.program, self.given)
        self.guarded: Compiled | None = None
        self.watched = self.ready.strong
        outputs = self.mathematics.outputs
        self.valued = outputs[: of.results]
        places = {w: of.typed.program.params.index(w) for w in of.wanted}
        self.barred = [
            (places[w], b) for w, b in zip(of.wanted, outputs[of.results :], strict=True)
        ]
        self.call = self.compiled.call
        self.numbers = not any(b.extents for b in self.valued)
        self.made = [self._maker(b) for b in self.valued]

    def _maker(self, b: Any) -> Any:
        return b.extents, np.dtype(np.float64 if b.dtype == "f8" else np.float32)

    def run(
        self, args: Sequence[Any], seeds: Sequence[Any]
    ) -> tuple[list[Any], tuple[Any, ...]] | None:
        """Values of the results and cotangents; None where the arguments do not fit."""
        found = self._called(self.call, args, seeds)
        if found is None or not self.watched or not any(map(_has_nan, found[1])):
            return found
        if self.guarded is None:
            with self.of.owner._lock:
                if self.guarded is None:
                    self.guarded = Compiled(self.ready.program, self.given, guarded=True)
        return self._called(self.guarded.call, args, seeds)

    def _called(
        self, call: Callable[..., int], args: Sequence[Any], seeds: Sequence[Any]
    ) -> tuple[list[Any], tuple[Any, ...]] | None:
        try:
            if self.numbers:
                values = [np.empty((), dtype) for _, dtype in self.made]
            else:
                sizes = self._sizes(args)
                values = [
                    np.empty([max(0, n.at(sizes)) for n in extents], dtype)
                    for extents, dtype in self.made
                ]
            bars = [
                np.empty(args[k].shape, args[k].dtype) if b.extents else np.empty(())
                for k, b in self.barred
            ]
        except (AttributeError, KeyError, IndexError):
            return None  # of another type than the program is for
        scratch = getattr(_threads, "scratch", None)
        if scratch is None:
            scratch = np.empty(128)
        _threads.scratch = None  # one that is called meanwhile has its own
        try:
            code = call(*args, *seeds, *values, *bars, scratch)
            if code > 0:
                if code > self.of.owner.limit:
                    return None
                scratch = np.empty(code // 8 + 1)
                code = call(*args, *seeds, *values, *bars, scratch)
                self.of.kept = scratch.nbytes
        finally:
            _threads.scratch = scratch
        if code in (OTHER, UNFIT):
            return None
        assert code == DONE
        given = [v[()] if not v.shape else v for v in values]
        return given, tuple(b if b.shape else float(b) for b in bars)

    def _sizes(self, args: Sequence[Any]) -> dict[str, int]:
        sizes: dict[str, int] = {}
        for argument, a in zip(self.given, args, strict=False):
            if argument.buffer is None:
                sizes[argument.size] = a
                continue
            for n, length in zip(argument.buffer.extents, np.shape(a), strict=True):
                if n.terms:
                    sizes[n.terms[0][0]] = length
        return sizes


def _allowed(owner: Any) -> None:
    """Options of the function that only the generated adjoint has."""
    options = owner.dispatcher.targetoptions
    for name in ("parallel", "fastmath", "boundscheck"):
        if options.get(name):
            raise Outside(f"The option {name} is outside the form.")
    if owner.snapshots:
        raise Outside("Snapshots are outside the form.")
    if not jit.entry_works():
        raise Outside("Entries of compiled programs do not work in this Python.")


def is_worthwhile(program: Program) -> bool:
    """Whether a program has arrays' statements, or loops in loops: there the form is faster than the generated adjoint."""

    def deep(body: Sequence[Any], depth: int) -> bool:
        return any(
            deep(s.body, depth + 1)
            if isinstance(s, Loop)
            else depth + len(s.axes) > 1 or bool(s.axes)
            for s in body
        )

    return deep(program.body, 0)


def pattern(flat: Sequence[Any]) -> tuple[Any, ...]:
    """For each argument None, or which lengths of arrays are equal: 0 stands for a length of 1."""
    known: dict[int, int] = {1: 0}
    found: list[Any] = []
    for a in flat:
        if not isinstance(a, np.ndarray):
            found.append(None)
            continue
        found.append(tuple(known.setdefault(n, len(known)) for n in a.shape))
    return tuple(found)


def _shape(classes: Sequence[int]) -> tuple[Affine, ...]:
    return tuple(affine(f"n{k}") if k else ONE for k in classes)


def _plain(a: Any) -> Any:
    """An argument as entries take it."""
    if isinstance(a, np.ndarray):
        return a if a.flags.c_contiguous and a.flags.aligned else np.ascontiguousarray(a)
    return int(a) if isinstance(a, np.integer) else a


def _leaves(args: Sequence[Any]) -> list[Any]:
    found: list[Any] = []
    for a in args:
        found += _leaves(a) if isinstance(a, tuple) else [a]
    return found


def _has_nan(bar: Any) -> bool:
    d = np.vdot(bar, bar) if isinstance(bar, np.ndarray) else bar
    return bool(d != d)


def kept_bytes() -> int:
    """Bytes of scratch memory that this thread keeps."""
    scratch = getattr(_threads, "scratch", None)
    return 0 if scratch is None else int(scratch.nbytes)


def release_memory() -> None:
    """Give this thread's scratch memory back."""
    _threads.scratch = None
