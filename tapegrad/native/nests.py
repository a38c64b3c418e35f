"""Stencils in reverse: scattered cotangents gathered, so that the processor takes several elements at once.

The transpose of `w[i, j] = f(u[i - 1, j], u[i, j], u[i, j + 1])` adds to `u_bar` in three places for each element. Written as it
comes, every addition waits for the one before, and loops run downwards, which memory dislikes. Here such a loop, or two of them
around nothing else, becomes a function of its own: per row of elements the terms are computed into short buffers, upwards, and
then each row of `u_bar` gets the sum of what the buffers hold for it, in one pass; sums over all elements (`kappa_bar`) may be
taken in any order (`runtime.plus`). The buffers are rings over as many rows as the stencil is high. What such loops keep passes through
memory once each way, and nothing else in them is slow: so it is fetched some rows ahead (`soon`).

Data: the text of a generated adjoint. A loop qualifies if an array is added to in several places that differ by constants,
and if no pass reads what another writes. What the text cannot tell (`Origins`) is asked when the program runs: that arrays share no
memory (`apart`), that indices do not wrap around, and that a single loop is long enough. Else the loop runs as it was; where there is
nothing to ask, that is left out.

Invariant: the two ways differ in the order of additions only. The functions are compiled under the promise that their arrays are
apart (`runtime.alone`), which the caller has checked.
"""

from __future__ import annotations

import ast
import functools
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from numba.core import types

from .origins import Origins

_LEAST = 256
"""Elements below which a call and its buffers cost more than they save."""
_STRIP = 512
"""Columns that are taken at once: the buffers stay in the first cache."""
_DEEPEST = 1
"""Loops around a single loop that is worth a function of its own: further in they are short, and cost compilation."""
_AHEAD = 4
"""Rows of kept values between the one at work and the one that is fetched."""
_CALLS = frozenset(
    {"abs", "min", "max", "float", "int", "bool", "unless_zero", "strong", "strong_quotient"}
)
_OURS = re.compile(
    r"((row|column|strip)_(first|last)|column|alone|apart|at|plus|(term|row|held|sum)_\d+(_at|_\d+_back)?)$"
)
"""Names that the functions made here use; an adjoint that has one of them stays as it is."""
_VALUES = (
    ast.BinOp,
    ast.UnaryOp,
    ast.Compare,
    ast.BoolOp,
    ast.IfExp,
    ast.operator,
    ast.unaryop,
    ast.cmpop,
    ast.boolop,
    ast.expr_context,
    ast.Constant,
)


class _Unfit(Exception):
    """This loop stays as it is."""


def widened(
    source: str, kind: Callable[[str], Any], shadows: Iterable[str], scope: Iterable[str]
) -> str:
    """The text of an adjoint with its stencils gathered; `kind` tells Numba's type of an array's name, None for other names."""
    lines = source.splitlines()
    if "    # reverse" not in lines:
        return source
    function = ast.parse(source).body[0]
    assert isinstance(function, ast.FunctionDef)
    if any(isinstance(n, ast.Name) and _OURS.match(n.id) for n in ast.walk(function)):
        return source
    reverse = lines.index("    # reverse") + 1
    found = list(_Search(function, reverse, kind, set(shadows), set(scope)).nests())
    edits = {edit for nest in found if (edit := nest.fetching())}
    edits |= {(nest.first - 1, nest.last, _either(nest, lines)) for nest in found}
    for first, last, new in sorted(edits, reverse=True):
        lines[first:last] = new
    for nest in found:
        lines += ["", "", *nest.definition()]
    return "\n".join(lines) + "\n"


def _either(nest: _Nest, lines: list[str]) -> tuple[str, ...]:
    """The call of a nest, and its loop as it was where something is to be asked first."""
    plain = lines[nest.first - 1 : nest.last]
    margin = plain[0][: len(plain[0]) - len(plain[0].lstrip())]
    fast = [margin + line for line in nest.call()]
    slow = [f"    {line}" for line in plain] if nest.asked() else nest.nothing(margin)
    return *fast, f"{margin}else:", *slow


@dataclass(slots=True)
class _Loop:
    """`v = stop; while v > start: v -= 1; ...` as the reverse sweep counts down."""

    variable: str
    start: ast.expr
    stop: ast.expr
    body: list[ast.stmt]
    node: ast.stmt
    first: int
    last: int


def _loop(nodes: list[ast.stmt], k: int) -> _Loop | None:
    """The loop that begins with the k-th statement."""
    match nodes[k : k + 2]:
        case [
            ast.Assign(targets=[ast.Name(id=v)], value=stop, lineno=first) as node,
            ast.While(
                test=ast.Compare(left=ast.Name(id=tested), ops=[ast.Gt()], comparators=[start]),
                body=[
                    ast.AugAssign(
                        target=ast.Name(id=counted), op=ast.Sub(), value=ast.Constant(value=1)
                    ),
                    *body,
                ],
                end_lineno=last,
            ),
        ] if v == tested == counted and last is not None:
            return _Loop(v, start, stop, body, node, first, last)
    return None


class _Search:
    """Loops of a reverse that qualify."""

    def __init__(
        self,
        function: ast.FunctionDef,
        reverse: int,
        kind: Callable[[str], Any],
        shadows: set[str],
        scope: set[str],
    ) -> None:
        self.function = function
        self.reverse = reverse
        self.kind = kind
        self.shadows = shadows
        self.scope = scope
        self.count = 0

    @functools.cached_property
    def origins(self) -> Origins:
        names = {n.id for n in ast.walk(self.function) if isinstance(n, ast.Name)}
        return Origins(self.function, {n for n in names if self.kind(n) is not None})

    def nests(self) -> Iterator[_Nest]:
        # Loops that count down stand in reverses only: that of the whole, and those of merged loops before it.
        yield from self._within(self.function.body, 0)

    def _within(self, nodes: list[ast.stmt], depth: int) -> Iterator[_Nest]:
        k = 0
        while k < len(nodes):
            loop = _loop(nodes, k)
            if loop is not None:
                nest = self._nest(loop, depth)
                if nest is not None:
                    yield nest
                else:
                    yield from self._within(loop.body, depth + 1)
                k += 2
                continue
            node = nodes[k]
            if isinstance(node, ast.For | ast.While):
                yield from self._within(node.body, depth + 1)
            elif isinstance(node, ast.If):
                yield from self._within(node.body, depth)
                yield from self._within(node.orelse, depth)
            k += 1

    def _nest(self, loop: _Loop, depth: int) -> _Nest | None:
        inner = _loop(loop.body, 0) if len(loop.body) == 2 else None
        if inner is None and depth > _DEEPEST:
            return None
        try:
            nest = _Nest(self, loop if inner else None, inner or loop, self.count + 1)
        except _Unfit:
            return None
        self.count += 1
        return nest


@dataclass(frozen=True, slots=True)
class _Place:
    """An element of an array, by the passes of the loops: offsets of their variables, and the text of all else."""

    array: str
    template: tuple[str, ...]
    """The text of each index, "<outer>" and "<inner>" where a variable stands."""
    outer: int = 0
    inner: int = 0

    def text(self, outer: str, inner: str) -> str:
        index = [{"<outer>": outer, "<inner>": inner}.get(t, t) for t in self.template]
        return f"{self.array}[{', '.join(index)}]"

    @property
    def group(self) -> tuple[Any, ...]:
        return self.array, self.template


@dataclass(slots=True)
class _Buffer:
    """Terms of a row's elements; `value` is what the body computes for it."""

    value: str
    name: str
    rows: int = 1
    pad: int = 0


@dataclass(slots=True)
class _Group:
    """Places of one array that differ by offsets only, with the buffers that hold the terms for them."""

    terms: list[tuple[_Place, _Buffer]] = field(default_factory=list)

    def span(self, which: str) -> tuple[int, int]:
        offsets = [getattr(place, which) for place, _ in self.terms]
        return min(offsets), max(offsets)


class _Nest:
    """One loop, or two around nothing else, as a function."""

    def __init__(self, search: _Search, outer: _Loop | None, inner: _Loop, number: int) -> None:
        self.search = search
        self.outer, self.inner = outer, inner
        around = outer or inner
        self.first, self.last = around.first, around.last
        self.name = f"{search.function.name}_nest_{number}"
        self.variables = [*([outer.variable] if outer else []), inner.variable]
        self.assigned = {
            n.id
            for s in inner.body
            for n in ast.walk(s)
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
        self.once = self._once()
        self.path: frozenset[tuple[str, bool]] = frozenset()
        """Which branches the statement that is being read stands in."""
        self.branches: list[tuple[frozenset[tuple[str, bool]], set[str]]] = []
        """Names that branches bind: a later branch of the same condition finds them."""
        self.popped = 0
        self.read: dict[str, set[str]] = {}
        """Arrays that are read, with the texts of their indices."""
        self.stored: dict[str, _Place] = {}
        self.sites: list[tuple[_Place, ast.expr, bool]] = []
        self.sums: dict[str, str] = {}
        """Sums over all elements: what they are added to, and their name in the function."""
        self.summed: set[str] = set()
        """Arrays with elements among the sums."""
        self.lowest = dict.fromkeys(self.variables, 0)
        """Least offset of each variable in an index."""
        self.always: set[str] = set()
        """Texts of elements that every pass reads."""
        self.free: set[str] = set()
        """Names from outside."""
        for bound in self._bounds():
            self._value(bound, set(), False)
            if any(isinstance(n, ast.Name) and n.id in self._moving() for n in ast.walk(bound)):
                raise _Unfit
        self._statements(inner.body, set(), False)
        self._judge()
        self._plan()

    def _bounds(self) -> list[ast.expr]:
        loops = [self.outer, self.inner] if self.outer else [self.inner]
        return [b for loop in loops if loop for b in (loop.start, loop.stop)]

    def _moving(self) -> set[str]:
        return self.assigned | set(self.variables)

    # ------------------------------------------------------------------------------------------- reading

    def _statements(self, nodes: list[ast.stmt], known: set[str], maybe: bool) -> set[str]:
        """Read statements; returns the names that are bound after them, given those bound before."""
        known = set(known)
        for node in nodes:
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self._value(value, known, maybe)
                    if self._array(name):
                        raise _Unfit
                    known.add(name)
                case ast.Assign(targets=[ast.Subscript() as target], value=value) if not maybe:
                    self._value(value, known, maybe)
                    place = self._place(target)
                    if self._in(place) != set(self.variables) or place.array in self.stored:
                        raise _Unfit
                    self.stored[place.array] = place
                case ast.AugAssign(
                    target=ast.Name(id="nf"), op=ast.Sub(), value=ast.Constant(value=int(n))
                ) if not maybe:
                    self.popped += n
                case ast.AugAssign(target=ast.Name(id=name), op=ast.Add() | ast.Sub(), value=value):
                    self._value(value, known, maybe)
                    if name not in known:
                        self.sums.setdefault(name, f"sum_{len(self.sums) + 1}")
                case ast.AugAssign(
                    target=ast.Subscript() as target, op=ast.Add() | ast.Sub() as op, value=value
                ):
                    self._value(value, known, maybe)
                    self._site(target, op, value, maybe)
                case ast.If(test=test, body=body, orelse=orelse):
                    self._value(test, known, maybe)
                    stays = isinstance(test, ast.Name) and (
                        test.id in self.once or test.id not in self.assigned
                    )
                    condition = test.id if stays else f"#{node.lineno}"  # type: ignore[attr-defined]
                    then = self._branch(body, known, (condition, True))
                    known = then & self._branch(orelse, known, (condition, False))
                case ast.Pass():
                    pass
                case _:
                    raise _Unfit
        return known

    def _branch(self, nodes: list[ast.stmt], known: set[str], taken: tuple[str, bool]) -> set[str]:
        before, self.path = self.path, self.path | {taken}
        found = {n for path, names in self.branches if path <= self.path for n in names}
        after = self._statements(nodes, known | found, True)
        self.branches.append((self.path, after))
        self.path = before
        return after

    def _once(self) -> set[str]:
        """Names that the body binds at one place only."""
        stored = [
            n.id
            for s in self.inner.body
            for n in ast.walk(s)
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        ]
        return {n for n in stored if stored.count(n) == 1}

    def _site(self, target: ast.Subscript, op: ast.operator, value: ast.expr, maybe: bool) -> None:
        place = self._place(target)
        inside = self._in(place)
        if not inside:
            self.summed.add(place.array)
            self.sums.setdefault(ast.unparse(target), f"sum_{len(self.sums) + 1}")
        elif place.template[-1] != "<inner>":
            raise _Unfit
        elif isinstance(op, ast.Sub):
            self.sites.append((place, ast.UnaryOp(ast.USub(), value), maybe))
        else:
            self.sites.append((place, value, maybe))

    def _array(self, name: str) -> bool:
        return self.search.kind(name) is not None

    def _fit_array(self, name: str) -> None:
        kind = self.search.kind(name)
        if kind is None or kind.layout != "C" or name in self.assigned:
            raise _Unfit

    def _place(self, node: ast.Subscript) -> _Place:
        if not isinstance(node.value, ast.Name):
            raise _Unfit
        array = node.value.id
        self._fit_array(array)
        kind = self.search.kind(array)
        index = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if kind.dtype is not types.float64 or kind.ndim != len(index):
            raise _Unfit
        template, offsets = [], {v: 0 for v in self.variables}
        seen: set[str] = set()
        for part in index:
            variable, offset = self._offset(part)
            if variable is None:
                self._value(part, set(), False)
                if any(isinstance(n, ast.Name) and n.id in self._moving() for n in ast.walk(part)):
                    raise _Unfit
                template.append(ast.unparse(part))
            elif variable in seen:
                raise _Unfit
            else:
                seen.add(variable)
                offsets[variable] = offset
                template.append("<inner>" if variable == self.inner.variable else "<outer>")
        outer = offsets[self.outer.variable] if self.outer else 0
        return _Place(array, tuple(template), outer, offsets[self.inner.variable])

    def _offset(self, node: ast.expr) -> tuple[str | None, int]:
        """(variable, offset) of an index such as `i - 1`."""
        match node:
            case ast.Name(id=v) if v in self.variables:
                return v, 0
            case ast.BinOp(
                left=ast.Name(id=v),
                op=ast.Add() | ast.Sub() as op,
                right=ast.Constant(value=int(c)),
            ) if v in self.variables:
                by = c if isinstance(op, ast.Add) else -c
                self.lowest[v] = min(self.lowest[v], by)
                return v, by
        return None, 0

    def _in(self, place: _Place) -> set[str]:
        found = {self.inner.variable} if "<inner>" in place.template else set()
        if self.outer and "<outer>" in place.template:
            found.add(self.outer.variable)
        return found

    def _value(self, node: ast.AST, known: set[str], maybe: bool) -> None:
        """Read an expression: only arithmetic, functions of numbers, elements of arrays."""
        match node:
            case ast.Subscript(value=ast.Name(id="floats"), slice=at):
                match at:
                    case ast.Name(id="nf"):
                        pass
                    case ast.BinOp(
                        left=ast.Name(id="nf"), op=ast.Add(), right=ast.Constant(value=int())
                    ):
                        pass
                    case _:
                        raise _Unfit
            case ast.Subscript(value=ast.Attribute(value=ast.Name(id=name), attr="shape"), slice=s):
                self._fit_array(name)
                self.free.add(name)
                self._value(s, known, maybe)
            case ast.Attribute(value=ast.Name(id=name), attr="size"):
                self._fit_array(name)
                self.free.add(name)
            case ast.Subscript(value=ast.Name(id=name), slice=s):
                self._fit_array(name)
                index = s.elts if isinstance(s, ast.Tuple) else [s]
                if len(index) != self.search.kind(name).ndim:
                    raise _Unfit
                for part in index:
                    self._value(part, known, maybe)
                    self._offset(part)
                self.free.add(name)
                self.read.setdefault(name, set()).add(ast.unparse(node))
                names = {n.id for part in index for n in ast.walk(part) if isinstance(n, ast.Name)}
                if not maybe and not names & self.assigned:
                    self.always.add(ast.unparse(node))
            case ast.Name(id=name):
                if self._array(name) or name in ("nf", "ni", "ints", "floats"):
                    raise _Unfit
                if name in self.assigned:
                    if name not in known:
                        raise _Unfit
                elif name not in self.variables:
                    self.free.add(name)
            case ast.Call(func=func, args=args, keywords=[]):
                match func:
                    case ast.Attribute(value=ast.Name(id="np" | "math")):
                        pass
                    case ast.Name(id=name) if name in _CALLS:
                        pass
                    case _:
                        raise _Unfit
                for a in args:
                    self._value(a, known, maybe)
            case _ if isinstance(node, _VALUES):
                for child in ast.iter_child_nodes(node):
                    self._value(child, known, maybe)
            case _:
                raise _Unfit

    # ------------------------------------------------------------------------------------------ judging

    def _judge(self) -> None:
        added = {place.array for place, _, _ in self.sites}
        groups: dict[Any, set[_Place]] = {}
        for place, _, _ in self.sites:
            groups.setdefault(place.group, set()).add(place)
        if not any(len(places) > 1 for places in groups.values()):
            raise _Unfit
        if added & (set(self.read) | set(self.stored) | self.summed):
            raise _Unfit
        if self.summed & (set(self.read) | set(self.stored)):
            raise _Unfit
        for array, place in self.stored.items():
            # A pass may read the element that it stores, never another's.
            own = place.text(*self._indices(place))
            if self.read.get(array, {own}) != {own}:
                raise _Unfit
        inside = {id(n) for s in self.inner.body for n in ast.walk(s)}
        for name in self.sums:
            uses = [
                n
                for s in self.inner.body
                for n in ast.walk(s)
                if isinstance(n, ast.Name) and n.id == name
            ]
            terms = [
                s
                for t in self.inner.body
                for s in ast.walk(t)
                if isinstance(s, ast.AugAssign)
                and isinstance(s.target, ast.Name)
                and s.target.id == name
            ]
            if name.isidentifier() and len(uses) != len(terms):
                raise _Unfit
        # What a pass computes stays inside: nothing behind the loop asks for it.
        private = self.assigned - set(self.sums) - {"nf"}
        # In a merged pass, what runs forward comes before and binds its names anew.
        behind = self.search.reverse if self.first > self.search.reverse else self.last
        for node in ast.walk(self.search.function):
            if (
                isinstance(node, ast.Name)
                and isinstance(node.ctx, ast.Load)
                and node.id in private
                and id(node) not in inside
                and node.lineno > behind
            ):
                raise _Unfit

    def _indices(self, place: _Place) -> tuple[str, str]:
        outer = _shifted(self.outer.variable, place.outer) if self.outer else ""
        return outer, _shifted(self.inner.variable, place.inner)

    # ----------------------------------------------------------------------------------------- planning

    def _plan(self) -> None:
        """Buffers, and which places each of them serves."""
        copies = self._copies()
        by_place: dict[_Place, list[tuple[ast.expr, bool]]] = {}
        for place, value, maybe in self.sites:
            by_place.setdefault(place, []).append((value, maybe))
        self.buffers: dict[str, _Buffer] = {}
        self.groups: dict[Any, _Group] = {}
        self.own: dict[_Place, str] = {}
        """Places whose terms are summed up under a name of their own."""
        for place, terms in by_place.items():
            value, maybe = terms[0]
            root = copies.get(value.id) if isinstance(value, ast.Name) else None
            if len(terms) > 1 or maybe or root is None:
                root = self.own[place] = f"term_{len(self.own) + 1}"
            buffer = self.buffers.get(root)
            if buffer is None:
                buffer = self.buffers[root] = _Buffer(root, f"row_{len(self.buffers) + 1}")
            self.groups.setdefault(place.group, _Group()).terms.append((place, buffer))
        for group in self.groups.values():
            low, high = group.span("inner")
            bottom, _ = group.span("outer")
            for place, buffer in group.terms:
                buffer.pad = max(buffer.pad, high - low)
                buffer.rows = max(buffer.rows, place.outer - bottom + 1)
        pad = max(b.pad for b in self.buffers.values())
        for buffer in self.buffers.values():
            buffer.pad = pad
        self.pad = pad
        self.arrays = sorted(
            {place.array for place, _, _ in self.sites} | set(self.stored) | set(self.read)
        )
        scope = self.search.scope | {"np", "math"} | _CALLS
        self.given = sorted((self.free - set(self.arrays) - set(self.variables)) - scope)

    def _copies(self) -> dict[str, str]:
        """For names that every pass binds once: the name of which each is a copy, or itself."""
        roots: dict[str, str] = {}
        for s in self.inner.body:
            if isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Name):
                name = s.targets[0].id
                if name in self.once:
                    source = s.value.id if isinstance(s.value, ast.Name) else name
                    roots[name] = roots.get(source, name)
        return roots

    # ------------------------------------------------------------------------------------------ printing

    def call(self) -> list[str]:
        """The lines up to `else`: when the function may stand for the loop, and its call."""
        bounds = self._ends()
        sizes = [f"({stop} - {_grouped(start)})" for start, stop in bounds]
        conditions = [f"{start} < {stop}" for start, stop in bounds] + self.asked()
        given = [*self.arrays, *(["floats", "nf"] if self.popped else []), *self.given]
        ends = [e for pair in bounds for e in pair]
        width = f"least({sizes[-1]}, {_STRIP}) + {2 * self.pad}"
        rows = [
            f"zeros_of({b.rows if self.outer else None}, {width})" for b in self.buffers.values()
        ]
        call = f"{self.name}({', '.join([*given, *ends, *rows])})"
        lines = [f"if {' and '.join(conditions)}:"]
        if self.popped:
            lines.append(f"    nf -= {self.popped} * {' * '.join(sizes)}")
        if self.sums:
            lines.append(f"    {', '.join(self.sums.values())}, = {call}")
        else:
            lines.append(f"    {call}")
        lines += [f"    {target} += {name}" for target, name in self.sums.items()]
        lines += [
            f"    {v} = {start}" for v, (start, _) in zip(self.variables, bounds, strict=True)
        ]
        return lines

    def fetching(self) -> tuple[int, int, tuple[str, ...]] | None:
        """An edit: a line before the inner loop where it runs forward, again and again, and keeps what is popped here."""
        start, stop = self._ends()[-1]
        over = f"range({stop if start == '0' else f'{start}, {stop}'})"
        for n in ast.walk(self.search.function):
            if not (isinstance(n, ast.For) and n.col_offset > 4 and _keeps(n)):
                continue
            if (ast.unparse(n.target), ast.unparse(n.iter)) == (self.inner.variable, over):
                count = self._popped(f"({stop} - {_grouped(start)})")
                line = f"{' ' * n.col_offset}soon(floats, nf + {_AHEAD} * {count}, {count})"
                return n.lineno - 1, n.lineno - 1, (line,)
        return None

    def asked(self) -> list[str]:
        """What is to be seen when the program runs."""
        asked = []
        if not self.outer:
            [(start, stop)] = self._ends()
            asked.append(f"{stop} - {_grouped(start)} >= {_LEAST}")
        for low, (start, _) in zip(self.lowest.values(), self._ends(), strict=True):
            if not start.isdigit() or int(start) + low < 0:
                asked.append(f"{_shifted(start, low)} >= 0")
        return asked + [f"apart({a}, {b})" for a, b in self._pairs()]

    def nothing(self, margin: str) -> list[str]:
        """The lines of two loops of which one makes no pass."""
        (outer, inner), ((first, last), (_, end)) = self.variables, self._ends()
        lines = [
            f"{outer} = {last}",
            f"while {outer} > {first}:",
            f"    {outer} -= 1",
            f"    {inner} = {end}",
        ]
        return [f"{margin}    {line}" for line in lines]

    def _ends(self) -> list[tuple[str, str]]:
        """First and last of each loop, as text."""
        loops = [self.outer, self.inner] if self.outer else [self.inner]
        return [(ast.unparse(p.start), ast.unparse(p.stop)) for p in loops if p]

    def _pairs(self) -> Iterator[tuple[str, str]]:
        """Arrays of which one is written: cotangents never share memory with values."""
        written = {place.array for place, _, _ in self.sites} | set(self.stored) | self.summed
        every = sorted(set(self.arrays) | self.summed)
        for k, a in enumerate(every):
            for b in every[k + 1 :]:
                same = (a in self.search.shadows) == (b in self.search.shadows)
                if same and (a in written or b in written):
                    if not self.search.origins.apart(a, b, (self.outer or self.inner).node):
                        yield a, b

    def definition(self) -> list[str]:
        buffers = list(self.buffers.values())
        ends = ["row_first", "row_last"] if self.outer else []
        ends += ["column_first", "column_last"]
        stack = ["floats", "nf"] if self.popped else []
        parameters = [
            *self.arrays,
            *stack,
            *self.given,
            *ends,
            *(b.name for b in buffers),
        ]
        lines = ["@alone", f"def {self.name}({', '.join(parameters)}):"]
        put = lines.append
        lines += [f"    {name} = 0.0" for name in self.sums.values()]
        put(f"    for strip_first in range(column_first, column_last, {_STRIP}):")
        put(f"        strip_last = least(strip_first + {_STRIP}, column_last)")
        for b in buffers:
            put(f"        clear({b.name})")
        if self.outer:
            extra = max(high - low for low, high in self._heights())
            row = self.outer.variable
            put(f"        for {row} in range(row_first, row_last{f' + {extra}' if extra else ''}):")
            margin = "            "
            for b in buffers:
                put(f"{margin}{b.name}_at = {row} % {b.rows}")
            if extra:
                put(f"{margin}if {row} < row_last:")
                lines += textwrap.indent("\n".join(self._pass()), margin + "    ").splitlines()
                put(f"{margin}else:")
                lines += [f"{margin}    clear({b.name}[at({b.name}_at)])" for b in buffers]
            else:
                lines += textwrap.indent("\n".join(self._pass()), margin).splitlines()
            for group, (low, high) in zip(self.groups.values(), self._heights(), strict=True):
                if high - low < extra:
                    put(f"{margin}if {row} < row_last + {high - low}:")
                    lines += ["    " + line for line in self._gather(group, low, margin)]
                else:
                    lines += self._gather(group, low, margin)
        else:
            lines += textwrap.indent("\n".join(self._pass()), "        ").splitlines()
            for group in self.groups.values():
                lines += self._gather(group, 0, "        ")
        if self.sums:
            put(f"    return ({', '.join(self.sums.values())},)")
        return lines

    def _heights(self) -> list[tuple[int, int]]:
        return [group.span("outer") for group in self.groups.values()]

    def _soon(self) -> list[str]:
        """The line that has kept values fetched: those of a row behind this one, or of the next strip of the only row."""
        if not self.popped:
            return []
        first, count = "strip_last - column_first", str(_STRIP)
        if self.outer:
            rows = f"{self.outer.variable} + {_AHEAD} - row_first"
            first = f"({rows}) * (column_last - column_first) + strip_first - column_first"
            count = "(strip_last - strip_first)"
        return [f"soon(floats, nf + {self._popped(f'({first})')}, {self._popped(count)})"]

    def _popped(self, passes: str) -> str:
        """How many values so many passes pop."""
        return passes if self.popped == 1 else f"{self.popped} * {passes}"

    def _pass(self) -> list[str]:
        """The loop over a row: its terms go to the buffers."""
        lines = [*self._soon(), f"for {self.inner.variable} in range(strip_first, strip_last):"]
        hoisted = {
            text: f"held_{k + 1}"
            for k, text in enumerate(sorted(self.always))
            if text.split("[")[0] not in self.stored
        }
        # A branch would load what every pass loads anyway: loaded before, branches become selections.
        writer = _Body(self, hoisted)
        for text, name in hoisted.items():
            lines.append(
                f"    {name} = {ast.unparse(writer.unsigned(ast.parse(text, mode='eval').body))}"
            )
        lines += [f"    {name} = 0.0" for name in self.own.values()]
        for node in self.inner.body:
            for new in writer.rewritten(node):
                lines += textwrap.indent(ast.unparse(new), "    ").splitlines()
        column = f"{self.inner.variable} - strip_first"
        for b in self.buffers.values():
            at = f"at({_shifted(column, b.pad)})"
            at = f"at({b.name}_at), {at}" if self.outer else at
            lines.append(f"    {b.name}[{at}] = {b.value}")
        return lines

    def _gather(self, group: _Group, bottom: int, margin: str) -> list[str]:
        """One pass over a row of an array's cotangents."""
        low, high = group.span("inner")
        lines = []
        terms = []
        for place, b in group.terms:
            column = f"at({_shifted('column - strip_first', b.pad - place.inner)})"
            if not self.outer:
                terms.append(f"{b.name}[{column}]")
                continue
            back = place.outer - bottom if "<outer>" in place.template else 0
            if back:
                at = f"{b.name}_{back}_back"
                line = f"{margin}{at} = ({self.outer.variable} - {back}) % {b.rows}"
                if line not in lines:
                    lines.append(line)
            else:
                at = f"{b.name}_at"
            terms.append(f"{b.name}[at({at}), {column}]")
        row = _shifted(self.outer.variable, bottom) if self.outer else ""
        target = group.terms[0][0].text(f"at({row})", "at(column)")
        lines.append(
            f"{margin}for column in range({_shifted('strip_first', low)}, {_shifted('strip_last', high)}):"
        )
        lines.append(f"{margin}    {target} += {' + '.join(terms)}")
        return lines


class _Body(ast.NodeTransformer):
    """The statements of a pass: kept values by their position, terms to names, loads that were taken out."""

    def __init__(self, nest: _Nest, hoisted: dict[str, str]) -> None:
        self.nest = nest
        self.hoisted = hoisted
        self.taken = 0

    def rewritten(self, node: ast.stmt) -> list[ast.stmt]:
        nest = self.nest
        match node:
            case ast.AugAssign(target=ast.Name(id="nf"), value=ast.Constant(value=int(n))):
                self.taken += n
                return []
            case ast.AugAssign(target=ast.Name(id=name), op=op, value=value) if name in nest.sums:
                return [self._summed(nest.sums[name], op, value)]
            case ast.AugAssign(target=ast.Subscript() as target, op=op, value=value):
                text = ast.unparse(target)
                if text in nest.sums:
                    return [self._summed(nest.sums[text], op, value)]
                term = nest.own.get(nest._place(target))
                return [] if term is None else [self._added(term, op, value)]
            case ast.If(test=test, body=body, orelse=orelse):
                return [
                    ast.If(
                        self.visit(test),
                        [new for s in body for new in self.rewritten(s)] or [ast.Pass()],
                        [new for s in orelse for new in self.rewritten(s)],
                    )
                ]
        return [self.visit(node)]

    def _added(self, name: str, op: ast.operator, value: ast.expr) -> ast.stmt:
        return ast.AugAssign(ast.Name(name, ast.Store()), op, self.visit(value))

    def _summed(self, name: str, op: ast.operator, value: ast.expr) -> ast.stmt:
        term = self.visit(value)
        if isinstance(op, ast.Sub):
            term = ast.UnaryOp(ast.USub(), term)
        call = ast.Call(ast.Name("plus", ast.Load()), [ast.Name(name, ast.Load()), term], [])
        return ast.Assign([ast.Name(name, ast.Store())], call, lineno=0)

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        text = ast.unparse(node)
        if isinstance(node.ctx, ast.Load) and text in self.hoisted:
            return ast.Name(self.hoisted[text], ast.Load())
        if text.startswith("floats["):
            nest = self.nest
            position = f"{nest.inner.variable} - column_first"
            if nest.outer:
                position = f"({nest.outer.variable} - row_first) * (column_last - column_first) + {position}"
            if nest.popped > 1:
                position = f"({position}) * {nest.popped}"
            more = node.slice.right.value if isinstance(node.slice, ast.BinOp) else 0  # type: ignore[attr-defined]
            at = _shifted(f"nf + {position}", nest.popped - self.taken + more)
            return ast.parse(f"floats[at({at})]", mode="eval").body
        return self.unsigned(self.generic_visit(node))

    def unsigned(self, node: Any) -> Any:
        """An element with indices that Numba need not wrap around: `call` has seen that they are not negative."""
        index = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        parts = [
            ast.Call(ast.Name("at", ast.Load()), [p], []) if self.nest._offset(p)[0] else p
            for p in index
        ]
        at = ast.Tuple(parts, ast.Load()) if isinstance(node.slice, ast.Tuple) else parts[0]
        return ast.Subscript(node.value, at, node.ctx)


def _keeps(loop: ast.For) -> bool:
    """Whether something is kept in a loop on the stack of floats."""
    stored = [n for n in ast.walk(loop) if isinstance(n, ast.Subscript)]
    return any(isinstance(n.ctx, ast.Store) and ast.unparse(n.value) == "floats" for n in stored)


def _shifted(text: str, by: int) -> str:
    return f"{text} + {by}" if by > 0 else f"{text} - {-by}" if by else text


def _grouped(text: str) -> str:
    return text if text.isidentifier() or text.isdigit() else f"({text})"
