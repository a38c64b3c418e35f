"""Long modules cut into several, which LLVM compiles one by one and the linker joins.

LLVM takes long for a long function, and decides for all of a module how much it does (jit.py). So a module that is too long as a whole is
cut between its functions: one long function makes its own module slower to run, not all others.

Invariant: every function stands in one module, or, where the linker may choose among copies, in all modules that call it. Functions
that are called from other modules are hidden instead of internal: each library has its own. Constants may be in several modules;
variables, and the functions that use them, stay in the last.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_NAMES = re.compile(r"@([\w.]+)")
_HEAD = re.compile(r"define ([^@\n]*)@([\w.]+)\(")
_VARIABLE = re.compile(r"@([\w.]+) = internal (?:\w+ )*global\b")
_OTHER = re.compile(r"(?:declare[^@\n]*)?@([\w.]+)")


@dataclass(slots=True)
class _Function:
    name: str
    text: str
    names: set[str]
    """What it refers to."""

    @property
    def copied(self) -> bool:
        """Whether each module that calls it has it."""
        return self.text.startswith("define linkonce_odr")


def cut(text: str, size: int, short: int) -> list[str]:
    """A module's text as modules of about `size` characters. A function shorter than `short` stays with the only one that calls it."""
    functions, others = _parsed(text)
    variables = {found[1] for line in others if (found := _VARIABLE.match(line))}
    own = [f for f in functions.values() if not f.copied]
    parts: list[list[_Function]] = [[]]
    last: list[_Function] = []
    length = 0
    for unit in _units(own, short):
        if any(f.names & variables for f in unit) or not unit[-1].text.startswith(
            "define internal"
        ):
            last += unit
            continue
        new = sum(len(f.text) for f in unit)
        if parts[-1] and length + new > size:
            parts.append([])
            length = 0
        parts[-1] += unit
        length += new
    parts[-1] += last
    place = {f.name: k for k, part in enumerate(parts) for f in part}
    shared = {n for f in own for n in f.names if place.get(n, place[f.name]) != place[f.name]}
    return [_module(part, functions, others, shared) for part in parts]


def _parsed(text: str) -> tuple[dict[str, _Function], list[str]]:
    """Functions by name, in order, and the lines outside of functions."""
    functions: dict[str, _Function] = {}
    others: list[str] = []
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        found = _HEAD.match(lines[at])
        if found is None:
            others.append(lines[at])
            at += 1
            continue
        end = lines.index("}", at) + 1
        body = "\n".join(lines[at:end])
        functions[found[2]] = _Function(found[2], body, set(_NAMES.findall(body)) - {found[2]})
        at = end
    return functions, others


def _units(functions: Sequence[_Function], short: int) -> list[list[_Function]]:
    """Functions with those that LLVM makes part of them, the calling one last."""
    callers: dict[str, list[_Function]] = {}
    for f in functions:
        for name in f.names:
            callers.setdefault(name, []).append(f)
    units: dict[str, list[_Function]] = {}
    for f in functions:
        unit = [
            x
            for name in sorted(f.names & units.keys())
            if len(callers[name]) == 1 and len(units[name][-1].text) < short
            for x in units.pop(name)
        ]
        units[f.name] = [*unit, f]
    return list(units.values())


def _module(
    part: Sequence[_Function],
    functions: dict[str, _Function],
    others: Sequence[str],
    shared: set[str],
) -> str:
    """The text of one module: its functions, copies of those that every module has, and declarations of others."""
    mine = {f.name: f for f in part}
    stack = list(part)
    declared = []
    while stack:
        for name in stack.pop().names:
            if name in mine or name not in functions:
                continue
            f = functions[name]
            mine[name] = f
            if f.copied:
                stack.append(f)
            else:
                declared.append(name)
    named = set().union(*(f.names for f in mine.values()))
    lines = [x for x in others if (found := _OTHER.match(x)) is None or found[1] in named]
    lines += [_declared(functions[name].text) for name in sorted(declared)]
    for name, f in mine.items():
        if name not in declared:
            hidden = name in shared and f.text.startswith("define internal")
            lines.append(
                f.text.replace("define internal", "define hidden", 1) if hidden else f.text
            )
    return "\n".join(lines) + "\n"


def _declared(text: str) -> str:
    """The declaration of a function that another module holds."""
    head = text[: text.index("\n")].removesuffix("{")
    return re.sub(r"^define \w+", "declare hidden", head)


__all__ = ["cut"]
