"""Derivatives of a native function by the program form.

A `ByForm` is what `Derived` is for the generated adjoint: by some of a function's parameters, it gives value and cotangents for one call;
`directions` has tangents and higher derivatives. Both are an `InForm`, which exists where the whole function lies in the form; that is
decided before anything is compiled. A call whose sizes do not fit what the program assumes (an index that would be out of bounds, arrays
that would be broadcast otherwise) goes to generated code.

Data: one program in machine code for each pattern of equal lengths, serving all lengths of the pattern.
Invariant: the caller's arrays are never written to; scratch memory belongs to the thread.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numba.core import types

from ..core import checking, handlers
from ..errors import NotDifferentiable
from ..llvm import jit
from ..program import passes, running
from ..program.affine import ONE, Affine, affine, whole
from ..program.arrays import Outside
from ..program.compiling import differentiated, prepared
from ..program.derivative import active
from ..program.form import Buffer, Loop, Program, buffers, sites
from ..program.grouping import without_dead
from ..program.partials import Formless
from ..program.passes import products
from ..program.running import DONE, NAN, Argument, Compiled
from . import forming, inference, settling
from .arguments import leaves_of, real_leaves, seeds_for

_DTYPES = {"f8": np.dtype(np.float64), "f4": np.dtype(np.float32)}


Formed = TypeVar("Formed", bound="InForm")


def switched_on() -> bool:
    """Whether mode "auto" takes the form where it has the function; `TAPEGRAD_FORM=0` in the environment says no."""
    return os.environ.get("TAPEGRAD_FORM", "1") not in ("", "0")


@dataclass(frozen=True, slots=True)
class Outputs:
    """What a program's outputs are in a call: arrays of their own extents, then arrays like those of arguments."""

    values: Sequence[Buffer]
    bars: Sequence[tuple[int, Buffer]]
    """Each with the place of the parameter whose array it is like."""
    number: bool
    """Whether the one value is a float that the call answers."""
    alone: bool
    """Whether the one value is no tuple."""
    derivatives: Sequence[Buffer]
    """Those in which a NaN asks for the guarded form."""


class InForm:
    """A function in the program form, and the calls of what is made of it; raises Outside where it has no form."""

    def __init__(self, variant: Any, positions: tuple[int, ...]) -> None:
        """Read the typed program as a program form, for derivatives by the parameters at `positions`."""
        owner = variant.owner
        self.owner, self.variant, self.positions = owner, variant, positions
        if not jit.entry_works():
            raise Outside("Entries of compiled programs do not work in this Python.")
        self.typed = self._tree()
        names = self.typed.program.params
        parts = self.typed.param_parts
        self.tuples = any(isinstance(p, list) for p in parts)
        self.wanted = [leaf for i in positions for leaf in settling.leaves(parts[i])]
        kinds = [self.typed.types[n] for n in names]
        generic = iter(range(1 << 30))
        self.stem = "n"
        """Lengths are called n0, n1, and so on; no parameter may be."""
        while any(n.removeprefix(self.stem).isdigit() for n in names):
            self.stem += "_"
        self.shapes = [
            tuple(affine(f"{self.stem}{next(generic)}") for _ in range(k.ndim))
            if inference.is_array(k)
            else None
            for k in kinds
        ]
        self.generic = self._read(self.shapes, {})
        scope = self.typed.program.scope
        if self.generic.constants:
            owner.frozen.hold()
        self.constants = [np.array(scope[name], order="C") for name in self.generic.constants]
        """Copies of the arrays that the function has from outside: those of now, as Numba takes them."""
        if any(
            w not in self.generic.given or isinstance(self.typed.types[w], types.Boolean)
            for w in self.wanted
        ):
            raise Outside("A parameter with a gradient is no array or number of floats.")
        self.results = len(self.typed.program.results)
        if not self.results:
            raise Outside("There is no result.")
        sizes = self.generic.program.sizes
        self.compared = [e for e in self.generic.compared if set(e.names()) <= set(sizes)]
        """Differences of sizes of which a call tells the program whether they are above 0."""
        self.mathematics: Program
        """The derivative for arguments of no equal lengths."""
        self._candidates: list[tuple[Affine, ...]] | None = None
        self.programs: dict[Any, _Program | str] = {}
        self.latest: _Program | None = None
        self.kept = 0
        """Bytes of scratch memory that the last call took."""

    def _tree(self) -> settling.Typed:
        """The program that is read."""
        raise NotImplementedError

    def _made(self, found: forming.Formed) -> Program:
        """What is made of the function's program; Outside where that has no form."""
        raise NotImplementedError

    def _parted(self, outputs: Sequence[Buffer]) -> Outputs:
        """What a program's outputs are in a call."""
        raise NotImplementedError

    def _read(
        self,
        shapes: Sequence[Any],
        residues: Mapping[str, int],
        known: Sequence[Affine] | None = None,
    ) -> forming.Formed:
        """The function's program for arguments of these shapes, as `forming.formed` has it; None stands for what is no array."""
        program = self.typed.program
        parameters = [
            forming.Parameter(n, self.typed.types[n], shape)
            for n, shape in zip(program.params, shapes, strict=True)
        ]
        try:
            return forming.formed(self.typed, parameters, residues, known)
        except Formless as why:
            raise Outside(str(why)) from why

    # ------------------------------------------------------------------------------------------ calls

    def _called(
        self, args: tuple[Any, ...], more: Sequence[Any]
    ) -> tuple[Any, tuple[Any, ...]] | None:
        """What the program for arguments of this pattern answers; None where none fits."""
        flat = list(map(_plain, real_leaves(args) if self.tuples else args))
        if self.generic.written and self._shares(args, flat):
            return None
        more = [*self.constants, *more]
        found = None if self.latest is None else self.latest.run(flat, more)
        if found is None:
            program = self._program(flat)
            if program is not None:
                self.latest = program
                found = program.run(flat, more)
        return found

    def _shares(self, args: Sequence[Any], flat: Sequence[Any]) -> bool:
        """Whether an argument that is written to may share memory with another: that is for the other engine to refuse."""
        given = leaves_of(args) if self.tuples else args
        if len(given) < len(flat):  # parts of complex arrays are copies, which do not show it
            arrays = [a for a in given if isinstance(a, np.ndarray)]
            return any(np.may_share_memory(a, b) for k, a in enumerate(arrays) for b in arrays[:k])
        names = self.typed.program.params
        return any(
            np.may_share_memory(given[names.index(w)], b)
            for w in self.generic.written
            for k, b in enumerate(given)
            if isinstance(b, np.ndarray) and k != names.index(w)
        )

    def _remain(self, flat: Sequence[Any]) -> tuple[tuple[str, int, int], ...]:
        """Of each size of the generic program that is taken apart: its name, its period, and what remains of it in this call."""
        periods = self.generic.periods
        if not periods:
            return ()
        sizes = self._sizes(flat)
        return tuple((n, period, sizes[n] % period) for n, period in periods.items())

    def _sizes(self, flat: Sequence[Any]) -> dict[str, Any]:
        """What the sizes of the generic program are in a call, by name."""
        sizes = dict(zip(self.typed.program.params, flat, strict=True))
        for a, shape in zip(flat, self.shapes, strict=True):
            sizes |= zip(map(str, shape or ()), np.shape(a), strict=False)
        return sizes

    def _apart(self, flat: Sequence[Any]) -> dict[str, int]:
        """The same of those that are taken apart, without what remains."""
        sizes, periods = self._sizes(flat), self.generic.periods
        return {n: sizes[n] // periods.get(n, 1) for n in self.generic.program.sizes if n in sizes}

    def _extents(self, flat: Sequence[Any]) -> tuple[tuple[Affine, ...], ...]:
        """For each thing that passes do for large extents alone, what holds of these in this call and decides whether it is done."""
        if self._candidates is None:
            self._candidates = passes.candidates(self.mathematics)
        if not self._candidates:
            return ()
        sizes = self._apart(flat)
        return tuple(passes.claims(e, sizes) for e in self._candidates)

    def _above(self, flat: Sequence[Any]) -> tuple[Affine, ...]:
        """What is 0 or more in this call, as it decides what the program is."""
        if not self.compared:
            return ()
        sizes = self._apart(flat)
        return tuple(e - 1 if e.at(sizes) > 0 else e * -1 for e in self.compared)

    def _program(self, flat: Sequence[Any]) -> _Program | None:
        """The program for the pattern of equal lengths that these arguments have; None where there is none."""
        key = pattern(flat), self._remain(flat), self._extents(flat), self._above(flat)
        found = self.programs.get(key)
        if found is None:
            with self.owner._lock:
                found = self.programs.get(key)
                if found is None:
                    try:
                        found = _Program(self, key)
                    except Outside as why:
                        found = str(why)
                    except MemoryError:
                        raise
                    except Exception as fault:
                        handlers.hand_on(fault)
                        if self.owner.mode == "form" or checking.on():
                            raise
                        found = told(fault)
                    self.programs[key] = found
        return found if isinstance(found, _Program) else None


class ByForm(InForm):
    """A function's value and cotangents by some of its parameters, through the program form; raises Outside."""

    draws = False

    def __init__(self, variant: Any, positions: tuple[int, ...], valued: bool = True) -> None:
        """Read the typed program as a program form and differentiate it by the parameters at `positions`; Outside where it has no form."""
        super().__init__(variant, positions)
        results, parts = self.typed.program.results, self.typed.param_parts
        self.seeds = self.results
        self.valued = True
        """Whether the results are computed; without them, statements go that nothing else reads."""
        self.mathematics = self._made(self.generic)
        if not valued:
            self._without_value()
        self.returns_tuple = self.typed.program.returns_tuple
        self.seeded = list(range(self.results))
        self.scalar = (
            self.results == 1
            and isinstance(self.typed.types[results[0]], types.Float)
            and not self.returns_tuple
        )
        self._other: Any = None
        used = active(
            sites(self.generic.program.body),
            [self.generic.given[w] for w in self.wanted],
            self.generic.program.outputs,
        )
        idle = {w for w in self.wanted if self.generic.given[w] not in used}
        self.unused = tuple(
            i for i in positions if (own := settling.leaves(parts[i])) and idle.issuperset(own)
        )
        """Positions of parameters that no result is made from."""

    def _tree(self) -> settling.Typed:
        _allowed(self.owner)
        return self.variant.settled  # type: ignore[no-any-return]

    def _made(self, found: forming.Formed) -> Program:
        try:
            made = differentiated(found.program, [found.given[w] for w in self.wanted])
        except Formless as why:
            raise Outside(str(why)) from why
        if self.valued:
            return made
        for b in made.outputs[: self.results]:
            b.role = "temporary"
        return without_dead(made.of(made.body, outputs=made.outputs[self.results :]))

    def _parted(self, outputs: Sequence[Buffer]) -> Outputs:
        values = outputs[: self.results] if self.valued else []
        places = map(self.typed.program.params.index, self.wanted)
        bars = list(zip(places, outputs[len(values) :], strict=True))
        number = bool(values) and self.scalar and values[0].dtype == "f8"
        alone = bool(values) and not self.returns_tuple
        return Outputs(values, bars, number, alone, [b for _, b in bars])

    def _without_value(self) -> None:
        """Leave the results out, if that saves more than their stores: the value of a sum whose derivative does not read it."""
        self.valued = False
        lean = self._made(self._read(self.shapes, {}))
        counts = (sum(s.write for s in sites(p.body)) for p in (self.mathematics, lean))
        if next(counts) - next(counts) > self.results:
            self.mathematics = lean
        else:
            self.valued = True

    # ------------------------------------------------------------------------------------------ calls

    @property
    def other(self) -> Any:
        """The generated adjoint, for what does not fit the form."""
        if self._other is None:
            self._other = self.variant.transformed(self.positions)
        return self._other

    def run(self, args: tuple[Any, ...], seeds: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
        """(value, cotangents of the wanted parameters) for given cotangents of the results."""
        found = self._called(args, seeds)
        if found is not None:
            if len(found[1]) == len(self.positions):
                return found
            return found[0], tuple(self.variant.joined(self.positions, found[1]))
        return self.other.run(args, seeds_for(self.other, dict(enumerate(seeds))))  # type: ignore[no-any-return]

    def shortcut(self, several: bool) -> Callable[..., Any] | None:
        """Value and gradient of one number by its arguments alone; TypeError where arguments must be looked at first."""
        if self.tuples or self.generic.written or self.latest is None or self.constants:
            return None
        kinds = self.typed.types
        if any(isinstance(kinds[p], types.Boolean) for p in self.typed.program.params):
            return None  # it is a number for the program
        program, number, like = self.latest, np.float64, np.empty_like
        run, fast = program.run, program.call
        places = [k if b.extents else None for k, b in program.barred]
        plain, numbers, valued = program.number or not self.valued, None in places, self.valued
        needed, nothing = program.compiled.scratch, np.empty(0)
        threads, room, large = running.threads, np.empty, running.RECYCLED
        most = max(
            (k for k, b in program.barred if b.extents),
            key=lambda k: len(self.shapes[k] or ()),
            default=None,
        )

        def call(*args: Any) -> Any:
            """Value and gradients straight from machine code; TypeError for arguments of other kinds."""
            if plain:
                make = like if most is None or args[most].nbytes < large else running.room_like
                bars = [room(()) if k is None else make(args[k]) for k in places]
                held: Any = nothing
                if needed:
                    held = getattr(threads, "scratch", None)
                    threads.scratch = None
                    if held is None:
                        held = nothing
                value = fast(*args, 1.0, *bars, held)
                if needed:
                    threads.scratch = held
                if type(value) is float or (value == DONE and not valued):
                    if numbers:
                        bars = [b if b.shape else float(b) for b in bars]
                    return number(value) if valued else None, tuple(bars) if several else bars[0]
            found = run(args, (1.0,))
            if found is None:
                raise TypeError("arguments of another kind")
            value = number(found[0]) if valued else None
            return value, found[1] if several else found[1][0]

        return call

    def written(self, args: tuple[Any, ...]) -> list[str]:
        """Names of the arguments that the function writes to."""
        return [p for p in self.typed.program.params if p in self.generic.written]

    # ------------------------------------------------------------------------------------------ for people

    @property
    def source(self) -> str:
        """The program of value and cotangents, before its loops are rewritten."""
        return str(self.mathematics if self.latest is None else self.latest.mathematics)

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
                if found.multiplied:
                    told.append(f"products of matrices by BLAS: {found.multiplied}")
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

    def __init__(self, of: InForm, key: Sequence[Any]) -> None:
        """The derivative for arguments of these shapes, compiled."""
        self.of = of
        lengths, remain, sides, above = key
        shapes = [None if p is None else _shape(p, of.stem) for p in lengths]
        lengths_by_name = {
            str(n): own
            for mine, theirs in zip(of.shapes, shapes, strict=True)
            for n, own in zip(mine or (), theirs or (), strict=True)
        }
        names = {n: str(own) for n, own in lengths_by_name.items()}
        residues = {names.get(n, n): rest for n, _, rest in remain}
        periods = {(names.get(n, n), period) for n, period, _ in remain}
        told = [e.replaced(lengths_by_name) for e in above]
        found = of._read(shapes, residues, [e for e in told if e.terms])
        if not found.periods.items() <= periods:
            raise Outside("These lengths take other sizes apart.")
        self.mathematics = of._made(found)
        known = [claim.replaced(lengths_by_name) for claims in sides for claim in claims]
        if known:
            assumed = [
                *self.mathematics.assumptions,
                *(claim for claim in dict.fromkeys(known) if claim.terms),
            ]
            self.mathematics = self.mathematics.of(self.mathematics.body, assumptions=assumed)
        self.ready = prepared(self.mathematics)
        self.multiplied = products.count(self.ready.program)
        if not all(whole(n) for b in buffers(self.ready.program) for n in b.extents):
            raise Outside("A part of an array, whose length is read from another, needs memory.")
        self.given = []
        for p in of.typed.program.params:
            b = found.given.get(p)
            kind = of.typed.types[p]
            if b is None and not isinstance(kind, types.Integer):
                raise Outside(f"{p} is neither float nor a size.")
            if b is None:
                period = found.periods.get(p, 1)
                self.given.append(Argument(None, p, period, residues.get(p, 0)))
            else:
                self.given.append(Argument(b))
        if list(found.constants) != list(of.generic.constants):
            raise Outside("These lengths read other arrays from outside.")
        first = len(found.program.inputs) - len(found.constants)
        self.given += map(Argument, self.mathematics.inputs[first:])
        outputs = of._parted(self.mathematics.outputs)
        self.number, self.alone, self.barred = outputs.number, outputs.alone, outputs.bars
        watched = outputs.derivatives if self.ready.strong else []
        self.compiled = Compiled(self.ready.program, self.given, self.number, watched)
        self.guarded: Compiled | None = None
        self.call = self.compiled.call
        self.valued = [(b.extents, _DTYPES[b.dtype]) for b in outputs.values[self.number :]]

    def run(self, args: Sequence[Any], seeds: Sequence[Any]) -> tuple[Any, tuple[Any, ...]] | None:
        """(value or values of the results, cotangents); None where the arguments do not fit."""
        try:
            bars = [
                running.room_like(args[k]) if b.extents else np.empty(()) for k, b in self.barred
            ]
            sizes = self._sizes(args) if self.valued else {}
            values = [np.empty([n.at(sizes) for n in shape], dtype) for shape, dtype in self.valued]
        except (AttributeError, KeyError, IndexError, ValueError):
            return None  # of another type than the program is for
        found = self._answered(self.compiled, [*args, *seeds, *values, *bars])
        if found == NAN and type(found) is int:
            found = self._answered(self._guard(), [*args, *seeds, *values, *bars])
        if type(found) is int:
            if found != DONE:
                return None
            found = None
            if self.valued:
                found = tuple(v if v.shape else v[()] for v in values)
                if self.alone:
                    (found,) = found
        return found, tuple(b if b.shape else float(b) for b in bars)

    def _guard(self) -> Compiled:
        """The form whose products are 0 where a cotangent is, for what gave NaN."""
        with self.of.owner._lock:
            if self.guarded is None:
                plain = prepared(self.mathematics, ("products",))  # BLAS knows no cotangent of 0
                self.guarded = Compiled(plain.program, self.given, self.number, guarded=True)
            return self.guarded

    def _answered(self, compiled: Compiled, given: list[Any]) -> Any:
        found = compiled.answered(given, self.of.owner.limit)
        self.of.kept = compiled.took or self.of.kept
        return found

    def _sizes(self, args: Sequence[Any]) -> dict[str, int]:
        sizes: dict[str, int] = {}
        for argument, a in zip(self.given, args, strict=False):
            if argument.buffer is None:
                sizes[argument.size] = a // argument.period
                continue
            for n, length in zip(argument.buffer.extents, np.shape(a), strict=True):
                if n.terms:
                    ((name, period),) = n.terms
                    sizes[name] = (length - n.const) // period
        return sizes


def _allowed(owner: Any) -> None:
    """Options of the function that only the generated adjoint has; bounds are proved or go there, so `boundscheck` is none."""
    options = owner.dispatcher.targetoptions
    for name in ("parallel", "fastmath"):
        if options.get(name):
            raise Outside(f"The option {name} is outside the form.")
    if owner.snapshots:
        raise Outside("Snapshots are outside the form.")


def outside(owner: Any, why: Outside) -> NotDifferentiable:
    """What mode "form" raises for a function that lies outside."""
    return NotDifferentiable(
        f'the derivative of {owner.__name__} was asked by mode="form", but the function lies outside the program form:\n  {why}\n'
        '  Use mode="auto", which has other engines for it.',
        name="native-source",
    )


def tried(variant: Any, make: Callable[[], Formed]) -> Formed | str:
    """What `make` makes in the form, or why another engine has the function, which mode "form" raises."""
    mode = variant.owner.mode
    try:
        return variant.written_out(make)
    except Outside as why:
        if mode == "form":
            raise outside(variant.owner, why) from why
        return str(why)
    except NotDifferentiable as refused:  # by lowering; another engine may say it otherwise
        if mode == "form":
            raise
        return str(refused.args[0])
    except MemoryError:  # no fault, and there may be room again
        raise
    except Exception as fault:
        handlers.hand_on(fault)
        if mode == "form" or checking.on():
            raise
        return told(fault)


def gradient(variant: Any, positions: tuple[int, ...], valued: bool) -> ByForm | str:
    """The cotangents by the form, or why another engine has them; empty where the form is not asked."""
    mode = variant.owner.mode
    if mode != "form" and (mode != "auto" or not switched_on()):
        return ""
    found = tried(variant, lambda: ByForm(variant, positions, valued))
    if isinstance(found, str) or mode == "form" or is_worthwhile(found.generic):
        return found
    return "it would not gain by it, having no arrays and no loops, or branches in loops that are worth a jump"


def told(fault: Exception) -> str:
    """Why another engine has a function that the form failed on. In checked mode, and where the form is asked for, it is raised."""
    return f"a fault of tapegrad, which may be reported: {type(fault).__name__}: {fault}"


def is_worthwhile(found: forming.Formed) -> bool:
    """Whether the form is faster for a program than the generated adjoint: it has arrays or loops, and no branches that are worth a jump.

    With a few numbers alone the generated adjoint is called faster: Numba takes and gives numbers without an object for each.
    """
    program = found.program
    return not found.jumps and (
        any(b.extents for b in program.inputs)
        or any(s.call != "demand" if isinstance(s, Loop) else s.axes for s in program.body)
    )


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


def _shape(classes: Sequence[int], stem: str) -> tuple[Affine, ...]:
    return tuple(affine(f"{stem}{k}") if k else ONE for k in classes)


def _plain(a: Any) -> Any:
    """An argument as entries take it: a truth value is a number."""
    if isinstance(a, bool | np.bool_):
        return float(a)
    if isinstance(a, np.ndarray):
        return a if a.flags.c_contiguous and a.flags.aligned else np.ascontiguousarray(a)
    return int(a) if isinstance(a, np.integer) else a
