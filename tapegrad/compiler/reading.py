"""Reading code: what a function's bytecode looks up beside its arguments, and what it only writes.

`facts(code)` lists names that code, or a function defined inside it, looks up: among its globals, in its closure, as attributes. A name is
left out where every use only writes to it, so that no result can depend on it:

    n += 1                                 the old number goes nowhere else
    runs.append(x), runs.extend(xs)        a log
    seen[k] = v, seen[k] += v, p.k += v    an entry or attribute is replaced; `k` and `v` are one instruction each

Invariant: where a use is not surely one of these, the name counts as read.
"""

from __future__ import annotations

import dis
import types
from dataclasses import dataclass
from functools import lru_cache

_GLOBAL = ("LOAD_GLOBAL", "LOAD_NAME")
_CELL = ("LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF")
_ATTRIBUTE = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "IMPORT_FROM")
_SIMPLE = (
    "LOAD_CONST",
    "LOAD_SMALL_INT",
    "LOAD_FAST",
    "LOAD_FAST_CHECK",
    "LOAD_FAST_BORROW",
    "LOAD_DEREF",
)
_NOISE = ("PRECALL", "CACHE", "NOP", "RESUME", "EXTENDED_ARG", "PUSH_NULL")
_ODD = (type(None), type(...))
_BY_TEXT = {"getattr", "hasattr", "setattr", "attrgetter", "methodcaller"}
_ASKING = {"isinstance", "issubclass", "type", "isscalar"}
_KINDS = {
    "float", "complex", "int", "floating", "integer", "inexact", "number", "generic", "Number", "Real", "Complex", "Integral", "isscalar",
    "float64", "float32", "complex128", "complex64", "int64", "int32",
}  # fmt: skip
_WHOLE = {"vars", "__dict__", "dir", "asdict", "astuple", "fields"}


@dataclass(frozen=True, slots=True)
class Facts:
    """What one code object, with those inside it, looks up and writes."""

    globals: frozenset[str]
    cells: frozenset[str]
    attributes: frozenset[str]
    imports: frozenset[str]
    stored: frozenset[str]
    """Attributes that it writes: they may be missing before."""

    whole: bool
    """Whether it may look at all attributes of an object."""

    compares: bool
    """Whether it asks if two objects are one (`x is y`), other than None."""

    kinds: frozenset[str]
    """Kinds of numbers that it may ask for (`isinstance(k, float)`), by name."""

    lines: dict[str, int]
    """Names that are bound anew or written to, and the line."""


@lru_cache(4096)
def facts(code: types.CodeType) -> Facts:
    """What a code object looks up and writes."""
    steps = [step for step in dis.get_instructions(code) if step.opname not in _NOISE]
    names: dict[str, set[str]] = {"globals": set(), "cells": set(), "attributes": set()}
    imports: set[str] = set()
    stored: set[str] = set()
    lines: dict[str, int] = {}
    texts = {c for c in code.co_consts if isinstance(c, str)}
    compares = False
    line = code.co_firstlineno
    for i, step in enumerate(steps):
        name = step.opname
        if step.positions is not None and step.positions.lineno:
            line = step.positions.lineno
        if name in _GLOBAL or name in _CELL:
            if not _only_writes(steps, i):
                names["globals" if name in _GLOBAL else "cells"].add(step.argval)
            else:
                lines.setdefault(step.argval, line)
        elif name in _ATTRIBUTE:
            if not _adds_to_attribute(steps, i):
                names["attributes"].add(step.argval)
        elif name == "IMPORT_NAME":
            imports.add(step.argval)
        elif name == "STORE_ATTR":
            stored.add(step.argval)
            lines.setdefault(step.argval, line)
        elif name in ("STORE_GLOBAL", "STORE_DEREF", "STORE_NAME", "DELETE_GLOBAL", "DELETE_DEREF"):
            lines.setdefault(step.argval, line)
        elif name == "IS_OP":
            compares |= _of_two_arrays(steps, i, code)
        if step.opname == "LOAD_CONST" and isinstance(step.argval, tuple):
            texts |= {x for x in step.argval if isinstance(x, str)}  # kinds of match, keyword names
    mentioned = names["globals"] | names["attributes"] | names["cells"]
    if mentioned & _BY_TEXT:
        names["attributes"] |= {part for text in texts for part in text.split(".")}
        stored |= texts
    whole = bool(mentioned & _WHOLE)
    kinds = mentioned & _KINDS if mentioned & _ASKING else set()
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            other = facts(inner)
            names["globals"] |= other.globals
            names["cells"] |= other.cells
            names["attributes"] |= other.attributes
            imports |= other.imports
            stored |= other.stored
            whole |= other.whole
            compares |= other.compares
            kinds |= other.kinds
            lines = {**other.lines, **lines}
    return Facts(
        frozenset(names["globals"]), frozenset(names["cells"]), frozenset(names["attributes"]), frozenset(imports), frozenset(stored),
        whole, compares, frozenset(kinds), lines,
    )  # fmt: skip


def _of_two_arrays(steps: list[dis.Instruction], i: int, code: types.CodeType) -> bool:
    """Whether an `is` may be about arrays: not where it is about None and the like, a class, or the operands of a class's `__eq__`."""
    last = steps[i - 1]
    if last.opname == "LOAD_CONST":
        return not isinstance(last.argval, (bool, *_ODD))
    if last.opname in _ATTRIBUTE and last.argval == "__class__":
        return False
    if i >= 4 and (steps[i - 2].opname, steps[i - 2].argval) == ("CALL", 1):
        called = steps[i - 4]
        if called.opname in _GLOBAL and called.argval == "type":  # type(x) is y
            return False
    loaded = [x.argval for x in steps[max(0, i - 2) : i] if x.opname.startswith("LOAD_FAST")]
    named = {n for x in loaded for n in (x if isinstance(x, tuple) else (x,))}
    return code.co_name not in ("__eq__", "__ne__") or named != set(code.co_varnames[:2])


def _only_writes(steps: list[dis.Instruction], i: int) -> bool:
    """Whether the value that instruction `i` loads is written to, or is a count that goes back where it was."""
    ops = [step.opname for step in steps[i + 1 : i + 10]] + [""] * 9
    if ops[0] in _SIMPLE and ops[1] == "BINARY_OP" and ops[2].startswith("STORE_"):
        same = steps[i + 3].argval == steps[i].argval
        return same and "=" in steps[i + 2].argrepr and ops[2] in ("STORE_DEREF", "STORE_GLOBAL")
    if ops[0] in ("LOAD_METHOD", "LOAD_ATTR") and steps[i + 1].argval in ("append", "extend"):
        return ops[1] in _SIMPLE and ops[2].startswith("CALL") and ops[3] == "POP_TOP"
    if ops[0] in _SIMPLE and ops[1] == "STORE_SUBSCR":
        return True
    if ops[0] == "COPY" and ops[1] in ("LOAD_ATTR",):
        return _adds_to_attribute(steps, i + 2)
    added = ["COPY", "COPY", "BINARY_SUBSCR"], ["COPY", "COPY", "BINARY_OP"]
    return (
        ops[0] in _SIMPLE
        and ops[1:4] in added
        and ops[4] in _SIMPLE
        and ops[5:9] == ["BINARY_OP", "SWAP", "SWAP", "STORE_SUBSCR"]
    )


def _adds_to_attribute(steps: list[dis.Instruction], i: int) -> bool:
    """Whether the attribute that instruction `i` loads is a count that goes back where it was."""
    ops = [step.opname for step in steps[i - 1 : i + 5]]
    return (
        len(ops) == 6
        and ops[0] == "COPY"
        and ops[2] in _SIMPLE
        and ops[3:] == ["BINARY_OP", "SWAP", "STORE_ATTR"]
        and steps[i].argval == steps[i + 4].argval
    )


__all__ = ["Facts", "facts"]
