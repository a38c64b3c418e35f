"""Regions: calls of a graph as instructions on parts of arrays, of which only whole numbers differ from turn to turn of a Python loop.

`Reading` takes a stretch of calls apart. Slices, transposes and new axes are no instructions: what an instruction reads is *seen* as a
region of what another one made, or of an input. Versions of an array that is stored to (`stored`, `setitem`) are one memory, made by a
"new" instruction, where each version is the only one that is read behind the next store.

Data: an instruction is a token (all that has to be equal from turn to turn), whole numbers (first indices and extents of regions), and
the instructions whose results it reads. Invariant: an instruction reads memory as it is at its place in the list.
"""

from __future__ import annotations

import functools
import math
import operator
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from ..core import storage
from ..program.arrays import Outside
from ..program.partials import declared
from ..program.writer import WRITTEN
from .graph import Guard, Node, Ref
from .rolling import periods

DTYPES = {np.dtype(np.float64): "f8", np.dtype(np.float32): "f4", np.dtype(np.bool_): "b1"}
FLOATS = ("f8", "f4")
TESTS = frozenset("less less_equal greater greater_equal equal not_equal".split())
VIEWS = frozenset(
    "getitem transpose swapaxes flip reshape expand_dims squeeze broadcast_to alias".split()
)
REDUCING = frozenset(("sum", "mean", "max", "min", "prod"))
RUNNING = {"cumsum": "add", "cumprod": "multiply"}
OF_ONE_NUMBER = {"zeros_like": 0.0, "ones_like": 1.0, "empty_like": 0.0}
"""What calls fill an array with that only look at the shape of theirs."""
STORES = frozenset(("stored", "setitem"))
ALIASES = frozenset(("asarray", "alias", "copied_into"))
COPIES = frozenset(("copy", "asarray", "astype"))
JOINS = frozenset(("stack", "concatenate"))
MOVED = VIEWS | STORES | ALIASES | OF_ONE_NUMBER.keys() | {"constant"}
"""Calls that give no new value."""
MOST_CALLS = 64
"""Calls of a turn in which a number is taken for one that all turns have."""
MOST_PRODUCTS = 1 << 18
"""Products of numbers in a product of two matrices, at most."""
FINDS = frozenset(("argmax", "argmin"))
PLACES = FINDS | {"add", "subtract", "stack", "asarray", "copy"}
"""Calls that give whole numbers which an index may have."""
FEW_ROWS = 4
"""Entries of an index array that are rows of their own, where they are no neighbours."""
SHORTEST = 8
"""Values that are carried on, at least."""
_tuple = tuple.__new__
"""For named tuples of which many are made: it takes half the time."""
LEAST_OF_A_SHAPE = 6
"""Arrays from outside of one shape that differ from turn to turn, at least."""
MOST_IN_COLUMN = 1 << 23
"""Numbers of the values that one column has, at most."""
START, EXTENT = 0, 1
"""What a whole number of an instruction is."""


class Unread(Outside):
    """Calls that the form does not have."""

    def __init__(self, calls: Collection[Node], why: Outside) -> None:
        super().__init__(*why.args)
        self.calls = calls


class Seen(NamedTuple):
    """A region: of what `source` made (an instruction, or below 0 an input), as it was when its memory had this version."""

    source: int
    axes: tuple[int, ...]
    """For each axis of the region that of the source; -1 where it only repeats."""
    starts: tuple[int, ...]
    """For each axis of the source."""
    shape: tuple[int, ...]
    version: int = 0
    steps: tuple[int, ...] = ()
    """For each axis of the region how far its next entry is along the source's; none where each is 1."""
    places: tuple[tuple[int, int], ...] = ()
    """(axis of the source, instruction) where the first entry is further along by a place that the instruction finds."""

    def on(self, axes: Sequence[tuple[int, int, int]], starts: Sequence[int] = ()) -> Seen:
        """The region of the same memory with these (axis, extent, step), and the same first entries unless they are given."""
        steps = tuple([s if a >= 0 and n != 1 else 1 for a, n, s in axes])
        return Seen(
            self.source,
            tuple([a for a, _, _ in axes]),
            tuple(starts or self.starts),
            tuple([n for _, n, _ in axes]),
            self.version,
            steps if any(s != 1 for s in steps) else (),
            self.places,
        )

    def along(self) -> list[tuple[int, int, int]]:
        """(axis, extent, step) for each axis of the region."""
        steps = self.steps or (1,) * len(self.axes)
        return list(zip(self.axes, self.shape, steps, strict=True))


class Operand(NamedTuple):
    """What a token says of a region that an instruction reads; first entries and extents are whole numbers of the instruction."""

    source: int | None
    """An input; None for what an instruction made."""
    axes: tuple[int, ...]
    steps: tuple[int, ...]
    dtype: str
    starts: int
    """Axes of the source."""
    places: tuple[int, ...] = ()
    """Axes of the source along which an instruction finds where it begins: behind the source, those instructions are references."""

    def ways(self) -> list[tuple[int, int]]:
        """(axis of the source, step) along each axis of the region."""
        return list(zip(self.axes, self.steps or (1,) * len(self.axes), strict=True))


class Place(NamedTuple):
    """A whole number that the program finds, as an index: what an instruction finds, and a number more."""

    source: int
    more: int


class Instruction(NamedTuple):
    """One of a list; `where` says of each whole number what it is."""

    kind: str
    token: Any
    ints: tuple[int, ...]
    where: tuple[int, ...]
    refs: tuple[int, ...]
    dtype: str
    rank: int
    """Axes that it goes over."""
    shape: tuple[int, ...]
    empty: bool = False
    """A product over nothing."""
    sign: int = 0
    """The number of the token: equal tokens of a reading are one object."""


def supported(step: Any) -> bool:
    """Whether a call may be one of a form, as far as its name says."""
    if type(step) is Guard:
        return True
    if step.dtype not in DTYPES:
        return step.dtype == _I8 and step.name in PLACES
    if step.name == "matmul":
        return len(step.args) == 2 and all(
            0 < len(np.shape(_given(step, x))) < 3 for x in step.args
        )
    known = _known(step.name)
    return known is None or (known and not step.kwargs)


_F8, _I8 = np.dtype(np.float64), np.dtype(np.int64)


def _dtype(dtype: np.dtype) -> str | None:
    """A dtype's name in the form; most are float64, and to hash one takes longer than to see that."""
    return "f8" if dtype is _F8 else DTYPES.get(dtype)


@functools.cache
def _known(name: str) -> bool | None:
    """Whether a form has a call without settings; None where it may have settings."""
    if name in ("constant", "copy", "astype") or name in STORES or name in OF_ONE_NUMBER:
        return None
    if name in VIEWS | REDUCING | ALIASES | TESTS | JOINS or name in RUNNING:
        return None
    return name in WRITTEN and declared(name) is not None


def _given(step: Node, x: Any) -> Any:
    return step.inputs[x.index] if type(x) is Ref else x


class Reading:
    """Instructions of a stretch of calls. Raises Outside where there are none."""

    def __init__(
        self,
        steps: Sequence[Node],
        wanted: Sequence[Node],
        rare: Collection[float] = (),
        carried: Mapping[Node, Node | None] = MappingProxyType({}),
        columns: Columns | None = None,
    ) -> None:
        """Read the calls again until no value is asked for that a later store has changed: such values are copied where they are made.

        `rare` numbers differ from turn to turn: they are parts of arrays. Values that are `carried` on have the memory of the one before,
        and those of `columns` lie in arrays with a row for each turn.
        """
        self.steps, self.wanted, self.rare, self.carried = steps, wanted, rare, carried
        self.columns = columns or _NO_COLUMNS
        self.late: set[Node] = set()
        self.bases = _bases(steps, wanted)
        while True:
            self.places: dict[int, dict[float, int]] = {}
            """For an array from outside, where its numbers are that it has once."""
            self.given: list[Any] = []
            """Inputs: calls outside of the stretch, or arrays."""
            self.numbers: dict[Any, int] = {}
            self.wholes: dict[int, Seen] = {}
            self.tokens: dict[Any, tuple[int, Any]] = {}
            self.instructions: list[Instruction] = []
            self.shapes: dict[int, tuple[int, ...]] = {}
            self.dtypes: dict[int, str] = {}
            self.seen: dict[Node, Any] = {}
            self.stale: set[Node] = set()
            self.table: list[float] = []
            """Numbers that differ from turn to turn, in the order in which they are read."""
            self.table_at = -1
            self.stacks: dict[tuple[int, ...], tuple[int, list[np.ndarray]]] = {}
            """For a shape of arrays from outside that differ from turn to turn, the input that has them as rows, and these."""
            self.memory: dict[int, int] = {}
            """For each column of values, the instruction that made its memory."""
            if self.carried or self.late or columns:
                for node in self.steps:
                    self.seen[node] = self._read(node)
            else:
                self._read_numbers()
            for node in wanted:
                self._current(node)
            if self.table:
                self.given[self.table_at] = np.array(self.table)
                self.shapes[~self.table_at] = (len(self.table),)
            for k, arrays in self.stacks.values():
                self.given[k] = np.stack(arrays)
                self.shapes[~k] = self.given[k].shape
            if self.stale <= self.late:
                break
            self.late |= self.stale
        if any(self.seen[n].version for n in self.late if type(self.seen[n]) is Seen):
            raise Outside("an earlier version of a whole array is read")
        self._hoist()

    # ------------------------------------------------------------------------------------------ operands

    def _current(self, node: Node) -> Any:
        """What a call's result is seen as, now."""
        found = self.seen.get(node)
        if found is None:
            found = self.seen[node] = self._input(node, node, node.shape, node.dtype)
        if type(found) is Seen:
            whole = self.wholes.get(found.source)
            if whole is not found and whole is not None and whole.version != found.version:
                self.stale.add(node)
        return found

    def _input(self, key: Any, value: Any, shape: tuple[int, ...], dtype: Any) -> Seen:
        if DTYPES.get(dtype) not in FLOATS:
            raise Outside(f"an input of {dtype}")
        k = self.numbers.get(key)
        if k is None:
            k = self.numbers[key] = len(self.given)
            self.given.append(value)
            self.shapes[~k], self.dtypes[~k] = tuple(shape), DTYPES[dtype]
        return self._whole(~k)

    def _whole(self, source: int) -> Seen:
        found = self.wholes.get(source)
        if found is None:
            shape = self.shapes[source]
            rank = len(shape)
            found = self.wholes[source] = Seen(source, tuple(range(rank)), (0,) * rank, shape)
        return found

    def _overwritten(self, source: int) -> Seen:
        """The memory of an instruction after a store."""
        before = self._whole(source)
        self.wholes[source] = before._replace(version=before.version + 1)
        return self.wholes[source]

    def _value(self, node: Node, x: Any) -> Any:
        """An operand: a region, or a number."""
        if type(x) is Ref:
            found = self._current(node.inputs[x.index])
            if type(found) is not Seen:
                raise Outside("a place as a number")
            return found
        if type(x) is float and not self.rare:
            return x
        if type(x) in (float, int, bool) or (isinstance(x, np.generic) and x.dtype.kind in "fiub"):
            return self._rare_number(float(x)) if float(x) in self.rare else float(x)
        if isinstance(x, np.ndarray):
            if not x.size:
                return x.shape
            if x.size > 1 or x.dtype not in DTYPES:
                return self._outside(x)
            if x.item() in self.rare:
                return _reshaped(self._rare_number(float(x.item())), x.shape)
            if not x.shape:
                return float(x)
            return self._add(
                "full", repr(float(x.item())), [], x.shape, DTYPES[x.dtype], x.ndim, x.shape
            )
        raise Outside(f"an operand of {type(x).__name__}")

    def _outside(self, x: np.ndarray) -> Seen:
        """An array from outside; a part of one is a region of it."""
        if x.shape in self.columns.shapes and x.dtype == _F8:
            k, arrays = self.stacks.setdefault(x.shape, (len(self.given), []))
            if not arrays:
                self._input(("stack", x.shape), None, (0, *x.shape), x.dtype)
            arrays.append(x)
            return _row(~k, len(arrays) - 1, x.shape)
        root = storage.owner(x)
        place = None if root is x else _placed(x, root)
        whole = x if place is None else root
        known = self.numbers.get((id(whole), "outside"))
        if known is None:
            value = whole.astype(float) if whole.dtype.kind in "iu" else storage.kept(whole)
            seen = self._input((id(whole), "outside"), value, whole.shape, value.dtype)
        else:
            seen = self._whole(~known)
        return seen if place is None else place._replace(source=seen.source)

    def _rare_number(self, x: float) -> Seen:
        """A number of few turns: an entry of an array from outside, if just one entry is this number, else of the table."""
        for k, value in enumerate(self.given):
            if isinstance(value, np.ndarray) and k != self.table_at:
                places = self.places.get(k)
                if places is None:
                    flat = value.reshape(-1)
                    found, first, count = np.unique(flat, return_index=True, return_counts=True)
                    once = count == 1
                    places = dict(zip(found[once].tolist(), first[once].tolist(), strict=True))
                    self.places[k] = places
                if x in places:
                    at = np.unravel_index(places[x], value.shape)
                    return Seen(~k, (), tuple(map(int, at)), ())
        if self.table_at < 0:
            self.table_at = ~self._input("table", None, (0,), np.dtype(float)).source
        self.table.append(x)
        return Seen(~self.table_at, (), (len(self.table) - 1,), ())

    def _add(
        self,
        kind: str,
        token: Any,
        operands: Sequence[Any],
        shape: tuple[int, ...],
        dtype: str,
        rank: int,
        own: tuple[int, ...] = (),
    ) -> Seen:
        """Append an instruction; the region of all that it makes. `own` are whole numbers of its own, extents."""
        tokens: list[Any] = []
        ints: list[int] = list(own)
        where: list[int] = [EXTENT] * len(own)
        refs: list[int] = []
        empty = False
        for x in operands:
            if type(x) is Seen:
                inside = x.source < 0
                source = x.source if inside else None
                found = tuple([axis for axis, _ in x.places])
                tokens.append(
                    _tuple(Operand, (source, x.axes, x.steps, self.dtypes[x.source], len(x.starts), found))
                )  # fmt: skip
                refs += [] if inside else [x.source]
                refs += [k for _, k in x.places]
                ints += [*x.starts, *x.shape]
                where += [START] * len(x.starts) + [EXTENT] * len(x.shape)
                empty |= x.shape[-1:] == (0,)
            elif type(x) is Place:
                tokens.append(x._replace(source=0, more=0))
                refs.append(x.source)
                ints.append(x.more)
                where.append(START)
            elif type(x) is tuple:
                tokens.append(("empty", x))
                empty = True
            else:
                tokens.append(repr(x))
        key = (kind, token, dtype, len(own), *tokens)
        sign, key = self.tokens.setdefault(key, (len(self.tokens), key))
        made = Instruction(
            kind, key, tuple(ints), tuple(where), tuple(refs), dtype, rank, shape,
            empty and kind == "matmul" and not shape, sign,
        )  # fmt: skip
        at = len(self.instructions)
        self.instructions.append(made)
        self.shapes[at], self.dtypes[at] = tuple(shape), dtype
        return self._whole(at) if shape else Seen(at, (), (), ())

    # ------------------------------------------------------------------------------------------ calls

    def _read_numbers(self) -> None:
        """Read all calls as they stand; those on numbers, as most are in a program by entries, as copies of the first that is like them.

        Two calls are alike if they have one function and constant, and operands that are parts of the same input or of memory of as many
        axes: their instructions differ in whole numbers and references alone.
        """
        seen, code, rare = self.seen, self.instructions, self.rare
        wholes, shapes, dtypes = self.wholes, self.shapes, self.dtypes
        first: dict[Any, Instruction] = {}
        for node in self.steps:
            kind, args, inputs = type(node), node.args, node.inputs
            key: Any = None
            base: Any = None
            a = b = None
            if kind.of_numbers:
                a = self._number(inputs[0])
                if len(inputs) == 2:
                    b = self._number(inputs[1])
                    if a is not None and b is not None:
                        key = (kind, _part_of(a), _part_of(b))
                elif a is not None and len(args) == 1:
                    key = (kind, _part_of(a))
                elif a is not None and len(args) == 2:
                    x, y = args
                    constant = y if type(x) is Ref else x
                    if type(constant) is float and constant not in rare:
                        key = (kind, _part_of(a), repr(constant))
            elif node.name == "getitem":
                if len(inputs) == 1 and type(args[0]) is Ref:
                    base = seen.get(inputs[0])
                    starts = self._place(base, args[1] if len(args) > 1 else node.kwargs["index"])
                    if starts is not None:
                        seen[node] = _tuple(Seen, (base[0], (), starts, (), base[4], (), ()))
                        continue
            elif node.name == "stored" and node.dtype is _F8 and type(args[0]) is Ref:
                base = self.seen.get(inputs[0])
                starts = self._place(base, args[1])
                if starts is not None and base.source >= 0 and code[base.source].kind == "new":
                    if type(args[2]) is Ref:
                        b = self._number(inputs[args[2].index])
                        key = None if b is None else ("store", len(starts), _part_of(b))
                    elif type(args[2]) is float and args[2] not in rare:
                        key = ("store", len(starts), "", repr(args[2]))
                    a = _tuple(Seen, (base[0], (), starts, (), base[4], (), ()))
            like = None if key is None else first.get(key)
            if like is None:
                before = len(code)
                seen[node] = self._of(node)
                if (
                    key is not None
                    and len(code) == before + 1
                    and code[before].kind in ("op", "store")
                ):
                    first[key] = code[before]
                continue
            ints: tuple[int, ...] = a[2] if b is None else a[2] + b[2]
            refs: tuple[int, ...] = (a[0],) if a[0] >= 0 else ()
            if b is not None and b[0] >= 0:
                refs += (b[0],)
            at = len(code)
            code.append(_tuple(Instruction, (*like[:2], ints, like[3], refs, *like[5:])))
            shapes[at], dtypes[at] = (), "f8"
            if base is None:
                seen[node] = _tuple(Seen, (at, (), (), (), 0, (), ()))
            else:
                seen[node] = wholes[base[0]] = _tuple(Seen, (*base[:4], base[4] + 1, (), ()))

    def _number(self, node: Node) -> Seen | None:
        """The number of float64 that an operand is seen as, where it is known; None where it is something else."""
        found = self.seen.get(node)
        if type(found) is not Seen or found[3] or found[6] or self.dtypes[found[0]] != "f8":
            return None
        whole = self.wholes.get(found[0])
        if whole is not None and whole[4] != found[4]:
            self.stale.add(node)
        return found

    def _place(self, base: Any, index: Any) -> tuple[int, ...] | None:
        """Where whole numbers pick one entry of an array that is seen whole, as it is now; None for all else."""
        if type(base) is not Seen or self.wholes.get(base[0]) is not base:
            return None
        if type(index) is int:
            index = (index,)
        shape = base[3]
        if type(index) is not tuple or len(index) != len(shape) or not index:
            return None
        if not _INTEGERS.issuperset(map(type, index)):
            return None
        if len(index) == 2:
            return index[0] % shape[0], index[1] % shape[1]
        return tuple([i % n for i, n in zip(index, shape, strict=True)])

    def _read(self, node: Node) -> Any:
        found = self._of(node)
        if node in self.carried:
            found = self._carry(node, found)
        elif node in self.columns.places:
            found = self._in_column(node, found)
        if node in self.late and type(found) is Seen and node.name in VIEWS:
            found = self._add("copy", None, [found], found.shape, self.dtypes[found.source], len(found.shape))  # fmt: skip
        return found

    def _carry(self, node: Node, found: Any) -> Any:
        """A value that is carried on, in the memory of the one before it; a new one for the first."""
        before = self.carried[node]
        dtype = DTYPES[node.dtype]
        if before is None:
            return self._add("new", None, [found], node.shape, dtype, len(node.shape), node.shape)
        own = self.seen[before].source
        self._add("store", None, [self._whole(own), found], (), dtype, len(node.shape))
        return self._overwritten(own)

    def _in_column(self, node: Node, found: Any) -> Seen:
        """A value that later turns read, in its row of the array that has it for all turns. No row is stored to again."""
        column, place = self.columns.places[node]
        dtype = DTYPES[node.dtype]
        if column not in self.memory:
            shape = (self.columns.lengths[column], *node.shape)
            zeros = self._add("full", "0.0", [], shape, dtype, len(shape), shape)
            self.memory[column] = self._add(
                "new", None, [zeros], shape, dtype, len(shape), shape
            ).source
        row = _row(self.memory[column], place, node.shape)
        self._add("store", None, [row, found], (), dtype, len(node.shape))
        return row

    def _of(self, node: Node) -> Any:
        """What a call gives, as instructions and regions; raises Unread where the form has none for it."""
        try:
            return self._read_as(node)
        except Outside as error:
            raise Unread([node], error) from error

    def _read_as(self, node: Node) -> Any:
        """What a call gives, by its name; raises Outside."""
        name, args = node.name, node.args
        dtype = _dtype(node.dtype)
        if node.dtype == _I8 and name in PLACES:
            return self._place_of(node)
        if dtype is None:
            raise Outside(f"{name} gives {node.dtype}")
        if name == "getitem" or (name in VIEWS and len(node.inputs) == 1):
            x = self._value(node, args[0])
            if type(x) is not Seen:
                raise Outside("a part of a number")
            return self._view(node, x)
        if name == "constant" or name in OF_ONE_NUMBER:
            return self._constant(node, dtype)
        if name in COPIES:
            x = self._value(node, args[0])
            if node in self.bases and type(x) is Seen:
                return self._add("new", None, [x], node.shape, dtype, len(node.shape), node.shape)
            return self._add("copy", None, [x], node.shape, dtype, len(node.shape))
        if name == "copied_into":
            x = self._value(node, args[1])
            if type(x) is Seen and x.shape == node.shape and self.dtypes[x.source] == dtype:
                return x
            x = _spread(x, node.shape) if type(x) is Seen else x
            if type(x) is not Seen:
                return self._add("full", repr(x), [], node.shape, dtype, len(node.shape), node.shape)  # fmt: skip
            return self._add("copy", None, [x], node.shape, dtype, len(node.shape))
        if name in STORES:
            return self._stored(node, dtype)
        if name in JOINS:
            return self._join_of(node, dtype)
        if name in REDUCING:
            x = self._value(node, args[0])
            settings = dict(node.kwargs)
            axis, keep = settings.pop("axis", None), settings.pop("keepdims", False)
            if settings or len(args) > 1 or type(x) is not Seen:
                raise Outside(f"{name} with settings")
            rank = len(x.shape)
            every = range(rank) if axis is None else axis if type(axis) is tuple else (axis,)
            axes = tuple(sorted(a % rank for a in every)) if rank else ()
            if not axes:
                return self._add("copy", None, [x], node.shape, dtype, 0)
            if name == "prod" and len(axes) > 1:
                raise Outside("a product over several axes")
            made = self._add(name, axes, [x], tuple(n for d, n in enumerate(x.shape) if d not in axes), dtype, rank)  # fmt: skip
            return _reshaped(made, node.shape) if keep else made
        if name in RUNNING:
            x = self._value(node, args[0])
            settings = dict(node.kwargs)
            axis = settings.pop("axis", None)
            if settings or len(args) > 1 or type(x) is not Seen or not x.shape:
                raise Outside(f"{name} with settings")
            if axis is None and len(x.shape) > 1:
                raise Outside(f"{name} over several axes")
            return self._add(name, (axis or 0) % len(x.shape), [x], node.shape, dtype, len(x.shape))
        if name == "matmul":
            operands = [self._value(node, x) for x in args]
            ranks = [1 if type(x) is tuple else len(x.shape) for x in operands]
            if not 1 <= min(ranks) <= max(ranks) <= 2:
                raise Outside("a product of batches")
            inner = operands[0].shape[-1] if type(operands[0]) is Seen else 0
            if min(ranks) == 2 and inner * math.prod(node.shape) > MOST_PRODUCTS:
                raise Outside("a product of matrices that BLAS is faster at")
            return self._add("matmul", None, operands, node.shape, dtype, sum(ranks) - 1)
        if name in TESTS or (name in WRITTEN and not node.kwargs):
            operands = self._compared(node) or [self._value(node, x) for x in args]
            if dtype == ("b1" if name not in TESTS else ""):  # fmt: skip
                raise Outside(f"{name} of these operands")
            for k, x in enumerate(operands):
                test = type(x) is Seen and self.dtypes[x.source] == "b1"
                if test != (name == "where" and k == 0):
                    raise Outside("arithmetic with truth values")
            return self._add("op", name, operands, node.shape, dtype, len(node.shape))
        raise Outside(f"{name} is no call of the form")

    def _place_of(self, node: Node) -> Any:
        """A whole number, or a tuple of such, that is the place of an extreme in a vector or follows from one."""
        if node.kwargs:
            raise Outside(f"{node.name} with settings")
        if node.name in FINDS:
            x = self._value(node, node.args[0])
            if len(node.args) > 1 or type(x) is not Seen or len(x.shape) != 1:
                raise Outside(f"{node.name} of what is no vector")
            return Place(self._add(node.name, None, [x], (), "i8", 1).source, 0)
        if node.name == "stack":
            (parts,) = node.args
            return tuple([self._whole_number(node, x) for x in parts])
        given = [self._whole_number(node, x) for x in node.args]
        a, b = given if len(given) == 2 else (given[0], 0)
        if node.name == "add" and type(a) is int:
            a, b = b, a
        if type(a) is not Place or type(b) is not int:
            raise Outside(f"{node.name} of these whole numbers")
        return Place(a.source, a.more - b if node.name == "subtract" else a.more + b)

    def _compared(self, node: Node) -> list[Any]:
        """The operands of a comparison of a place with a whole number: how far they are apart, and 0; none for other calls."""
        if node.name not in TESTS or not any(x.dtype == _I8 for x in node.inputs):
            return []
        a, b = (self._whole_number(node, x) for x in node.args)
        if type(a) is Place and type(b) is int:
            return [a._replace(more=a.more - b), 0.0]
        if type(a) is int and type(b) is Place:
            return [0.0, b._replace(more=b.more - a)]
        raise Outside("a comparison of places")

    def _whole_number(self, node: Node, x: Any) -> Place | int:
        """An operand that is a whole number."""
        if type(x) is Ref:
            found = self.seen.get(node.inputs[x.index])
            if type(found) is Place:
                return found
        elif isinstance(x, _WHOLE) or (
            isinstance(x, np.ndarray) and x.dtype == _I8 and not x.shape
        ):
            return int(x)
        raise Outside("a whole number that the stretch does not find")

    def _with_places(self, node: Node, index: Any) -> Any:
        """An index with places that the program finds in the stead of the calls that give them."""
        if not len(node.inputs) > 1:
            return index
        parts = index if type(index) is tuple else (index,)
        found = []
        for p in parts:
            known = self.seen.get(node.inputs[p.index]) if type(p) is Ref else p
            if type(p) is Ref and type(known) not in (Place, tuple):
                raise Outside("an index that is no place of an extreme")
            found.append(known)
        return tuple(found)

    def _constant(self, node: Node, dtype: str) -> Seen:
        """An array of one number, which needs no memory, or an input."""
        if node.name in OF_ONE_NUMBER:
            value: Any = np.array([OF_ONE_NUMBER[node.name]])
        else:
            value = node.args[0]
            if type(value) is Ref:
                raise Outside("a constant of a value")
        flat = np.asarray(value).reshape(-1)
        same = flat == flat[:1]
        if flat.dtype.kind == "f":
            same &= np.signbit(flat) == np.signbit(flat[:1])  # 0.0 and -0.0 are two numbers
        if same.all():
            text = repr(float(flat[0])) if flat.size else "0.0"
            return self._add("full", text, [], node.shape, dtype, len(node.shape), node.shape)
        return self._input((id(node), "constant"), value, node.shape, node.dtype)

    def _stored(self, node: Node, dtype: str) -> Seen:
        """The array behind a store, which is written in place; one that is not ours alone is copied first."""
        if len(node.args) != 3 or type(node.args[0]) is not Ref or not node.shape:
            raise Outside("a store of this kind")
        base = self._value(node, node.args[0])
        value = self._value(node, node.args[2])
        if type(value) is tuple:
            value = 0.0  # nothing is stored
        own = base.source
        whole = self._whole(own)
        if own < 0 or self.instructions[own].kind != "new" or not (base is whole or base == whole):
            self._current(node.inputs[node.args[0].index])
            base = self._add("new", None, [base], node.shape, dtype, len(node.shape), node.shape)
            own = base.source
        index = self._with_places(node, node.args[1])
        single = _single_rows(base, index)
        if single is None:
            self._store(_indexed(base, index), value, dtype)
            return self._overwritten(own)
        if type(value) is Seen:  # the first row may be among what goes to the second
            value = self._add("copy", None, [value], value.shape, self.dtypes[value.source], len(value.shape))  # fmt: skip
        rows, axis = single
        back = axis - len(rows[0].shape) - 1
        for k, row in enumerate(rows):
            self._store(row, _entry(value, k, back), dtype)
            self._overwritten(own)
        return self._whole(own)

    def _store(self, target: Seen, value: Any, dtype: str) -> None:
        if type(value) is Seen:
            value = _without_ones(value, len(target.shape))
        self._add("store", None, [target, value], (), dtype, len(target.shape))

    def _join_of(self, node: Node, dtype: str) -> Seen:
        """What `stack` or `concatenate` gives."""
        settings = dict(node.kwargs)
        axis = settings.pop("axis", 0)
        if settings or type(axis) is not int or len(node.args) != 1:
            raise Outside(f"{node.name} with settings")
        parts = [self._value(node, x) for x in node.args[0]]
        if any(type(x) is tuple or self._dtype_of(x) != dtype for x in parts):
            raise Outside(f"{node.name} of these operands")
        axis %= len(node.shape)
        return self._joined(parts, node.shape, axis, dtype, stacked=node.name == "stack")

    def _joined(
        self, parts: Sequence[Any], shape: tuple[int, ...], axis: int, dtype: str, stacked: bool
    ) -> Seen:
        """Memory of its own, of a shape, where the parts are stored along an axis, side by side or, stacked, one in each place."""
        zeros = self._add("full", "0.0", [], shape, dtype, len(shape), shape)
        whole = self._add("new", None, [zeros], shape, dtype, len(shape), shape)
        at = 0
        for part in parts:
            along, starts = whole.along(), list(whole.starts)
            starts[axis] = at
            extent = 1 if stacked else part.shape[axis]
            along[axis : axis + 1] = [] if stacked else [(axis, extent, 1)]
            self._add("store", None, [whole.on(along, starts), part], (), dtype, len(along))
            whole = self._overwritten(whole.source)
            at += extent
        return whole

    def _dtype_of(self, x: Any) -> str:
        return self.dtypes[x.source] if type(x) is Seen else "f8"

    def _view(self, node: Node, x: Seen) -> Seen:
        """The region that a view shows; raises Outside where the view is no affine one."""
        name, args, settings = node.name, node.args[1:], node.kwargs
        rank = len(x.shape)
        if name == "getitem":
            index = self._with_places(node, args[0] if args else settings["index"])
            single = _single_rows(x, index)
            if single is None:
                return _indexed(x, index)
            rows, axis = single
            return self._joined(rows, node.shape, axis, self.dtypes[x.source], stacked=True)
        if name == "flip":
            axis = args[0] if args else settings.get("axis")
            every = range(rank) if axis is None else axis if type(axis) is tuple else (axis,)
            turned = {d % rank for d in every}
            return _indexed(
                x, tuple(slice(None, None, -1 if d in turned else 1) for d in range(rank))
            )
        if name == "transpose":
            axes = args[0] if args else settings.get("axes")
            order = [a % rank for a in axes or range(rank)[::-1]]
        elif name == "swapaxes":
            ends: list[int] = [*args, *settings.values()]
            order = list(range(rank))
            order[ends[0]], order[ends[1]] = order[ends[1]], order[ends[0]]
        elif name == "broadcast_to":
            return _spread(x, node.shape)
        else:
            return _reshaped(x, node.shape)
        along = x.along()
        return x.on([along[a] for a in order])

    # ------------------------------------------------------------------------------------------ order

    def _hoist(self) -> None:
        """Arrays that begin as one number and live long are made first: Python makes them when they are first stored to."""
        code = self.instructions
        last = last_uses(code)
        first: list[int] = []
        for k, x in enumerate(code):
            if x.kind == "full" and any(
                code[j].kind == "new" and last[j] - j > len(code) // 4 for j in (last[k],) if j >= 0
            ):
                first += [k, last[k]]
        if not first:
            return
        chosen = set(first)
        order = [*sorted(chosen), *(k for k in range(len(code)) if k not in chosen)]
        new = dict(zip(order, range(len(order)), strict=True))
        self.instructions = [
            _tuple(Instruction, (*x[:4], tuple([new[r] for r in x[4]]), *x[5:])) if x[4] else x
            for x in [code[k] for k in order]
        ]
        for n in self.wanted:  # of the others nobody asks any more
            s = self.seen[n]
            if type(s) is Seen:
                self.seen[n] = s._replace(source=new.get(s.source, s.source))
        for table in (self.shapes, self.dtypes):
            old: dict[int, Any] = dict(table)
            table.clear()
            table.update({new.get(k, k): v for k, v in old.items()})  # type: ignore[arg-type]


def readings(steps: Sequence[Any], wanted: Sequence[Node]) -> Iterator[Reading]:
    """The calls as they stand, then with numbers that differ from turn to turn and values that are carried on, where there are such.

    At last with arrays that have a row for each turn: of values that several later calls read, and of arrays from outside.
    """
    calls = [s for s in steps if type(s) is not Guard]
    shapes = _shapes_that_differ(calls)
    if not shapes:
        yield Reading(calls, wanted)
    rare, carried = _rare(calls), _carried(calls, wanted)
    if not shapes and (rare or carried):
        yield Reading(calls, wanted, rare, carried)
    columns = _columns(calls, wanted, carried)._replace(shapes=shapes)
    if shapes or columns.places:
        yield Reading(calls, wanted, rare, carried, columns)


def _shapes_that_differ(steps: Sequence[Node]) -> frozenset[tuple[int, ...]]:
    """Shapes of which there are so many arrays from outside, that each stands in one call alone, that turns have one each."""
    count: Counter[tuple[int, ...]] = Counter()
    seen: Counter[int] = Counter()
    arrays = [x for s in steps for x in s.args if type(x) is np.ndarray and x.size > 1]
    seen.update(id(storage.owner(x)) for x in arrays)
    count.update(x.shape for x in arrays if seen[id(storage.owner(x))] == 1)
    return frozenset(
        shape for shape, n in count.items() if n >= max(len(steps) // MOST_CALLS, LEAST_OF_A_SHAPE)
    )


class Columns(NamedTuple):
    """Values of a stretch that later turns read, each as a row of an array."""

    places: Mapping[Node, tuple[int, int]]
    """The number of the array, and the row."""
    lengths: Mapping[int, int]
    """Rows of each array."""
    shapes: frozenset[tuple[int, ...]] = frozenset()
    """Of arrays from outside that are rows of one array."""


_NO_COLUMNS = Columns({}, {})


def _columns(steps: Sequence[Node], wanted: Sequence[Node], carried: Collection[Node]) -> Columns:
    """The columns of values that are still read when the next turn begins, where turns are cut at the call where the fewest are."""
    known: dict[Any, int] = {}
    signs = [known.setdefault((s.name, len(s.shape)), len(known)) for s in steps]
    at, row, level = _numbered(np.array(signs))
    last = _last_reads(steps, wanted)
    members: dict[int, list[int]] = {}
    for k in np.flatnonzero(at >= 0).tolist():
        members.setdefault(int(at[k]), []).append(k)
    moving = {int(level[x[0]]) for x in members.values() if _moved(steps[x[1]], steps[x[-2]])}
    loops: dict[int, list[int]] = {}
    for column, every in members.items():
        if steps[every[1]].name in MOVED or int(level[every[0]]) not in moving:
            continue
        every[:] = [k for k in every if steps[k] not in carried]
        if len(every) < LEAST_OF_A_SHAPE:
            continue
        like = steps[every[len(every) // 2]]
        for end in (0, -1):  # what stands beside a loop may have the names of a turn's calls
            if (steps[every[end]].shape, steps[every[end]].dtype) != (like.shape, like.dtype):
                every.pop(end)
        loops.setdefault(int(level[every[0]]), []).append(column)
    places: dict[Node, tuple[int, int]] = {}
    lengths: dict[int, int] = {}
    for columns in loops.values():
        if len(columns) > MOST_CALLS:
            continue
        fits = np.array([_fit_a_column([steps[k] for k in members[c]]) for c in columns])
        middle = np.array([members[c][len(members[c]) // 2 - 1 :][:2] for c in columns])
        reads = np.array([np.median(last[members[c]] - members[c]) for c in columns])
        period = middle[0, 1] - middle[0, 0]
        # For each call at which turns may be cut, whether each value is read behind the next cut.
        behind = (middle[:, :1] - middle[:, 0] - 1) % period + 1 <= reads
        for k in np.flatnonzero(behind[np.argmin(behind @ np.where(fits, 1, MOST_CALLS))]).tolist():
            if fits[k]:
                every = members[columns[k]]
                lengths[columns[k]] = int(row[every[-1]]) + 1
                places.update((steps[j], (columns[k], int(row[j]))) for j in every)
    return Columns(places, lengths)


def _moved(a: Node, b: Node) -> bool:
    """Whether a call of an early turn and the same one of a late turn differ in shape, or in the slices of a stored array that they see."""
    if a.shape != b.shape:
        return True
    stored = a.name in STORES or (a.name == "getitem" and a.inputs[0].name in STORES)
    index = index_of(a)
    sliced = type(index) is slice or (type(index) is tuple and slice in map(type, index))
    return stored and sliced and repr(index) != repr(index_of(b))


def index_of(call: Node) -> Any:
    """Where a call reads or stores; None where that is not among its settings."""
    return call.args[1] if len(call.args) > 1 else call.kwargs.get("index")


def _bases(steps: Sequence[Node], wanted: Sequence[Node]) -> frozenset[Node]:
    """Copies whose last reader stores to them: they are memory from the beginning, as turns behind the first one find it."""
    stores = {
        s.inputs[s.args[0].index]: k
        for k, s in enumerate(steps)
        if s.name in STORES
        and s.shape
        and type(s.args[0]) is Ref
        and s.inputs[s.args[0].index].name in COPIES
    }
    if not stores:
        return frozenset()
    last = _last_reads(steps, wanted)
    return frozenset(s for k, s in enumerate(steps) if stores.get(s, -1) == last[k])


def _last_reads(steps: Sequence[Node], wanted: Sequence[Node]) -> np.ndarray:
    """For each call where the last one stands that reads its result, or a view of it; its own place for none."""
    place = {s: k for k, s in enumerate(steps)}
    last = np.arange(len(steps)).tolist()
    for s in wanted:
        last[place[s]] = len(steps)
    for k in range(len(steps) - 1, -1, -1):
        through = last[k] if steps[k].name in VIEWS else k
        for x in steps[k].inputs:
            j = place.get(x, -1)
            if j >= 0 and last[j] < through:
                last[j] = through
    return np.array(last)


def _fit_a_column(values: Sequence[Node]) -> bool:
    """Whether values may be rows of one array."""
    shape, dtype = values[0].shape, values[0].dtype
    few = len(values) * math.prod(shape) <= MOST_IN_COLUMN
    return (
        few
        and DTYPES.get(dtype) in FLOATS
        and all(s.shape == shape and s.dtype == dtype for s in values)
    )


def _numbered(signs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each call its place in the first turn of the innermost loop (-1: in none), which call of that place it is, and the loop."""
    at, row, level = np.full(len(signs), -1), np.zeros(len(signs), int), np.full(len(signs), -1)
    for start, period, turns in periods(signs) if len(signs) > LEAST_OF_A_SHAPE else ():
        inner, within, loop = _numbered(signs[start : start + period])
        own = np.where(inner < 0, np.arange(period), inner)
        loop = np.where(inner < 0, np.argmin(inner), loop)
        counts = np.bincount(own)[own]
        whole = slice(start, start + period * turns)
        at[whole] = np.tile(start + own, turns)
        level[whole] = np.tile(start + loop, turns)
        turn = np.repeat(np.arange(turns), period)
        row[whole] = np.tile(within, turns) + turn * np.tile(counts, turns)
    return at, row, level


def _rare(steps: Sequence[Node]) -> frozenset[float]:
    """Numbers among the arguments of calls that are not met once in each turn of any loop that is not too long."""
    count: Counter[float] = Counter()
    for s in steps:
        for x in s.args:
            scalar = (
                isinstance(x, np.generic | np.ndarray) and x.size == 1 and x.dtype.kind in "fiu"
            )
            if type(x) in (float, int) or scalar:
                count[float(x if type(x) in (float, int) else x.item())] += 1
    least = max(len(steps) // MOST_CALLS, 3)
    return frozenset(x for x, n in count.items() if n < least and math.isfinite(x) and x)


def _carried(steps: Sequence[Node], wanted: Sequence[Node]) -> dict[Node, Node | None]:
    """Values that are read once, by a call that gives the next one of the same kind, along the longest chains: the one before each."""
    uses: Counter[Node] = Counter(wanted)
    for s in steps:
        uses.update(s.inputs)
    before: dict[Node, Node] = {}
    length: dict[Node, int] = {}
    for s in steps:
        length[s] = 0
        if s.name not in WRITTEN or DTYPES.get(s.dtype) not in FLOATS:
            continue
        for x in s.inputs:
            alike = length.get(x, -1) >= 0 and x.name in WRITTEN and uses[x] == 1
            if alike and (x.shape, x.dtype) == (s.shape, s.dtype) and length[x] >= length[s]:
                before[s], length[s] = x, length[x] + 1
    found: dict[Node, Node | None] = {}
    for s in reversed(steps):
        if s in found or length[s] < SHORTEST:
            continue
        while s in before:
            found[s] = before[s]
            s = before[s]
        found[s] = None
    return found


def last_uses(code: Sequence[Instruction]) -> list[int]:
    """For each instruction the last one that reads what it makes, -1 for none."""
    last = [-1] * len(code)
    for k, x in enumerate(code):
        for r in x.refs:
            last[r] = k
    return last


def _row(source: int, place: int, shape: tuple[int, ...]) -> Seen:
    """A row of an array that has arrays of a shape as rows."""
    axes = tuple(range(1, len(shape) + 1))
    return Seen(source, axes, (place, *(0 for _ in shape)), shape)


def _placed(x: np.ndarray, root: np.ndarray) -> Seen | None:
    """A part of an array in C order as a region, of source 0; None where the part is no region."""
    if root.dtype != x.dtype or not root.flags.c_contiguous or not root.size:
        return None
    first = x.ctypes.data - root.ctypes.data
    starts = []
    for stride in root.strides:
        starts.append(first // stride)
        first %= stride
    free = {s: d for d, (s, n) in enumerate(zip(root.strides, root.shape, strict=True)) if n > 1}
    along = []
    for stride, n in zip(x.strides, x.shape, strict=True):
        if n == 1 or not stride:
            along.append((-1, n, 1))
            continue
        unit = max((s for s in free if not stride % s), default=None)
        if unit is None:
            return None
        axis, step = free.pop(unit), stride // unit
        if n and not 0 <= starts[axis] + step * (n - 1) < root.shape[axis]:
            return None
        along.append((axis, n, step))
    return None if first else Seen(0, (), (), ()).on(along, starts)


_INTEGERS = frozenset((int,))
_WHOLE = int | np.integer


def _part_of(x: Seen) -> int:
    """What a number's token says of where it is: an input, below 0, or memory of so many axes."""
    return x.source if x.source < 0 else len(x.starts)


def _indexed(x: Seen, index: Any) -> Seen:
    """x[index], for whole numbers, slices, None and an ellipsis, and one array of numbers in steps, such as [k, p], beside slices."""
    parts = _parts(index)
    _side_by_side(parts)
    starts = list(x.starts)
    if len(parts) == len(x.shape) and _INTEGERS.issuperset(map(type, parts)):  # one entry
        for p, (axis, n, by) in zip(parts, x.along(), strict=True):
            if axis >= 0:
                starts[axis] += by * (p % n)
        return Seen(x.source, (), tuple(starts), (), x.version, (), x.places)
    taken = sum(p is not None and p is not ... for p in parts)
    rank = len(x.shape)
    places = list(x.places)
    if taken > rank or sum(p is ... for p in parts) > 1:
        raise Outside("an index of this kind")
    # Compared by identity: an index may be an array.
    at = next((k for k, p in enumerate(parts) if p is ...), len(parts))
    parts = [*parts[:at], *[slice(None)] * (rank - taken), *parts[at + 1 :]]
    found: list[tuple[int, int, int]] = []
    along = iter(x.along())
    for p in parts:
        if p is None:
            found.append((-1, 1, 1))
            continue
        axis, n, by = next(along)
        if type(p) is slice:
            if not all(e is None or isinstance(e, _WHOLE) for e in (p.start, p.stop, p.step)):
                raise Outside("a slice between values")
            lo, hi, step = p.indices(n)
            if axis >= 0:
                starts[axis] += by * min(lo, n)
            found.append((axis, len(range(lo, hi, step)), by * step))
        elif type(p) is Place:
            if axis < 0 or any(a == axis for a, _ in places):
                raise Outside("two places along one axis")
            if by != 1:
                raise Outside("a place along an axis in steps")
            starts[axis] += p.more
            places.append((axis, p.source))
        elif isinstance(p, _WHOLE) and type(p) is not bool:
            if axis >= 0:
                starts[axis] += by * (operator.index(p) % n)
        elif type(p) is np.ndarray and not any(q is not p and type(q) is np.ndarray for q in parts):
            first, count, step = _progression(p, n)
            if axis >= 0:
                starts[axis] += by * first
            found.append((axis, count, by * step))
        else:
            raise Outside(f"an index that is no number, but of type {type(p).__name__}")
    return x.on(found, starts)._replace(places=tuple(places))


def _single_rows(x: Seen, index: Any) -> tuple[list[Seen], int] | None:
    """The rows x[index] has, for an index with a short array of numbers that are no neighbours, such as [k, n - 1]; and the axis of rows.

    None for other indices. The distance of two rows is a number of the turn, which a step of a region cannot be.
    """
    parts = _parts(index)
    at = next((k for k, p in enumerate(parts) if type(p) is tuple), None)
    if at is not None:
        if any(type(p) in (np.ndarray, tuple) or p is ... for p in (*parts[:at], *parts[at + 1 :])):
            raise Outside("rows at places beside other arrays of an index")
        axis = sum(not isinstance(p, _WHOLE | Place) for p in parts[:at])
        if any(isinstance(p, _WHOLE | Place) for p in (*parts[:at], *parts[at + 1 :])):
            raise Outside("an index of numbers and rows at places")
        return [_indexed(x, (*parts[:at], i, *parts[at + 1 :])) for i in parts[at]], axis
    at = next((k for k, p in enumerate(parts) if type(p) is np.ndarray), None)
    if at is None or parts[at].ndim != 1 or parts[at].dtype.kind not in "iu":
        return None
    if not 1 < parts[at].size <= FEW_ROWS or abs(int(parts[at][1]) - int(parts[at][0])) == 1:
        return None
    if any(type(p) is np.ndarray or p is ... for p in parts[:at]):
        return None
    _side_by_side(parts)
    axis = sum(not isinstance(p, _WHOLE) for p in parts[:at])
    return [_indexed(x, (*parts[:at], int(i), *parts[at + 1 :])) for i in parts[at]], axis


def _parts(index: Any) -> list[Any]:
    """The parts of an index; a list of numbers is an array."""
    parts = index if type(index) is tuple else (index,)
    return [np.array(p) if type(p) is list and p else p for p in parts]


def _side_by_side(parts: Sequence[Any]) -> None:
    """Raise Outside where numbers and an array of an index are not side by side: the array's axis is the first of the result."""
    advanced = [isinstance(p, _WHOLE | np.ndarray) for p in parts]
    if np.ndarray in map(type, parts) and sum(np.diff([0, *advanced, 0]) > 0) > 1:
        raise Outside("an index of numbers and an array that are not side by side")


def _entry(x: Any, k: int, back: int) -> Any:
    """Entry k along an axis that is counted from the last one; of a number or an array that is stretched there, the array."""
    if type(x) is not Seen or len(x.shape) < -back:
        return x
    axis = len(x.shape) + back
    return _indexed(x, (*[slice(None)] * axis, k if x.shape[axis] > 1 else 0))


def _progression(index: np.ndarray, n: int) -> tuple[int, int, int]:
    """First entry, number and step of an index array along an axis of n; raises Outside where its steps are not all one, or are zero."""
    if index.ndim != 1 or index.dtype.kind not in "iu" or not index.size:
        raise Outside("an index that is no row of numbers")
    at = [int(i) for i in index]
    if not all(-n <= i < n for i in at):
        raise Outside("an index out of bounds")
    at = [i % n for i in at]
    step = at[1] - at[0] if len(at) > 1 else 1
    if not step or at != list(range(at[0], at[0] + step * len(at), step)):
        raise Outside("an index of several steps")
    return at[0], len(at), step


def _spread(x: Seen, shape: tuple[int, ...]) -> Seen:
    """As by broadcast_to."""
    more = len(shape) - len(x.shape)
    along = [
        (a if m == n else -1, m, s) for (a, n, s), m in zip(x.along(), shape[more:], strict=True)
    ]
    return x.on([*((-1, n, 1) for n in shape[:more]), *along])


def _without_ones(x: Seen, rank: int) -> Seen:
    """Without axes that are more than a target has: they have one element."""
    return x.on(x.along()[max(len(x.shape) - rank, 0) :])


def _reshaped(x: Seen, shape: tuple[int, ...]) -> Seen:
    """As by a reshape that only adds or drops axes of one element."""
    left = [p for p in x.along() if p[1] != 1]
    if [n for _, n, _ in left] != [n for n in shape if n != 1]:
        raise Outside("a reshape")
    kept = iter(left)
    return x.on([next(kept) if n != 1 else (-1, 1, 1) for n in shape])
