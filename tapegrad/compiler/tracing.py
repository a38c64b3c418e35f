"""Tracing: a function is run once on `Traced` values, and every NumPy call they meet is written down.

A `Traced` holds the value that the array has in this run, and the graph node that computes it. NumPy hands every ufunc
and function that meets one to it (`__array_ufunc__`, `__array_function__`); it evaluates the call on the values and records
it. Tensors carry `Traced` values as they carry arrays, so tapes, sweeps and transforms run on them unchanged, to any order of
derivative: what they do is recorded as the NumPy calls they make. The ops whose forward function is our own are
recorded as one call each (`_ops_recorded`).

Invariant: no value leaves a trace unseen. A `Traced` has no buffer; whatever asks for the plain number or array (`if x > 0`,
`float(x)`, `range(n)`, `np.asarray(x)`) gets it through `Trace.read`, which records a guard. So a program is either good
for other inputs too, or its guards say that it is not.
"""

from __future__ import annotations

import math
import operator
import os
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from opcode import opmap
from types import MappingProxyType
from typing import Any

import numpy as np

from ..core import locks, storage
from ..core.frames import is_users, users
from ..core.handlers import hand_on
from ..core.primitive import (
    IN_PARTS,
    OPS,
    STRUCTURAL,
    WHEN_DECLARED,
    Primitive,
    apply,
    namespace,
    strong,
)
from ..core.printed import only_printed
from ..core.signatures import METHODS
from ..core.storage import StandIn
from ..core.tape import BIG, Tape, current
from ..core.tensor import Tensor, gives_way, wrap
from ..core.views import base_of, views_of
from ..errors import TraceError
from ..face.inplace import is_mask, overlapping
from ..ops.indexing import getitem
from ..ops.statistics import OF_UFUNCS
from .draws import Draws
from .graph import (
    _FLOAT64,
    Graph,
    Guard,
    Node,
    Recorded,
    Ref,
    entry_call,
    filled,
    noted_line,
    number_call,
)

LARGEST_READ = 4096
"""Elements of the largest array that Python may read while tracing; a guard on a bigger one would be a second computation."""

_READ_FOR_TEXT = frozenset(
    ("np.asarray(x)", "x.item()", "x.tolist()", "format(x)", "float(x)", "int(x)", "complex(x)")
)
"""Reads by which a value becomes text, or a number for text."""

_STATIC = {
    np.shape, np.ndim, np.size, np.iscomplexobj, np.isrealobj, np.result_type, np.can_cast, np.min_scalar_type, np.common_type,
    np.shares_memory, np.may_share_memory, np.broadcast_shapes, np.einsum_path,
}  # fmt: skip
"""NumPy functions that look at shapes and dtypes only: their answer is a constant of the program."""

_WRITING = {
    np.copyto: 0,
    np.put: 0,
    np.place: 0,
    np.putmask: 0,
    np.put_along_axis: 0,
    np.fill_diagonal: 0,
}
"""NumPy functions that write into an argument, and its position."""

_SETTLED = {
    np.std, np.var, np.argmax, np.argmin, np.argsort, np.sort, np.any, np.all, np.matmul, np.dot, np.tensordot, np.einsum, np.outer,
    np.inner, np.real, np.conjugate, np.clip, np.zeros_like, np.ones_like, np.full_like, np.empty_like, np.ravel, np.linalg.solve,
    np.linalg.svd, np.linalg.eigh, np.linalg.qr, np.isfinite, np.isnan, np.tril, np.triu, np.diag, np.diagonal, np.trace,
}  # fmt: skip
"""Functions that are no ops of ours and whose result's shape and dtype follow from shapes, dtypes and settings, as those of most ops:
no check of them is needed at each call."""

_LEADING = {
    np.matmul: 2, np.dot: 2, np.tensordot: 2, np.outer: 2, np.inner: 2, np.full_like: 2, np.linalg.solve: 2, np.clip: 3, np.einsum: 100,
}  # fmt: skip
"""Of those how many arguments come before the settings, where it is more than one."""

_SHAPING = {"full_matrices", "UPLO"}
"""Settings of functions of several results with which they are our ops."""


PUT_OFF = 50_000
"""Elements of an array above which most calls are made only if somebody looks: the program makes them anyway."""

MOST_COPIED = 1 << 24
"""Bytes of an array from outside that is copied because parts of it are met."""

_REFS = tuple(Ref(i) for i in range(4))
_FIRST = _REFS[0]
ONE = (_REFS[0],)
BOTH = (_REFS[0], _REFS[1])
"""The arguments of most calls: one value or two, and nothing else."""
_NONE: dict[str, Any] = {}


OF_VALUES = (IndexError, np.linalg.LinAlgError, ArithmeticError)
"""Errors that values make; others follow from shapes and types, which a program is made for."""


class Unrolled(BaseException):
    """What a loop's step does cannot be traced once for all turns (iteration.py). No `Exception`: it is not for the step to catch."""


class LeftBehind(BaseException):
    """A loop cannot be traced by one step, or its step left a value behind elsewhere: the function has to be traced anew, and the
    loop whose functions have this key step by step."""

    def __init__(self, key: Any, reason: str) -> None:
        super().__init__(reason)
        self.key = key


def loop_key(functions: Sequence[Any]) -> tuple[Any, ...]:
    """What a loop of such functions is known by from one trace to the next: their code."""
    return tuple(getattr(f, "__code__", type(f)) for f in functions)


class Guessed(BaseException):
    """A store follows a reshape of an array that was not computed, so nobody knows whether it reaches it: trace anew, computing these."""


class IntoIntegers(BaseException):
    """A computed value, or a value at computed places, is stored into an array of whole numbers or truth values: trace anew, with buffers
    of such numbers as tensors, too."""


PART = 4
"""Entries read or stored one by one that take as long in a trace as the store of a part of an array, with what stands around it."""


class Long(BaseException):
    """So many entries were read and stored one by one that the function is better read from its source (sources.py)."""


class _Belongs(Exception):
    """A call in one trace meets a value of a trace inside it, where the call belongs."""

    def __init__(self, home: Trace) -> None:
        self.home = home


class Trace:
    """One run of a function: the graph it grows, and the constants it met."""

    outer: Trace | None = None
    trying = False
    exact = False
    """Whether an array is computed before it is reshaped."""
    guessed = False
    """Whether a reshape was taken for a view, of an array that was not computed."""
    failed: str | None = None
    """A call that raised an error by the values of an array too large for a guard."""
    integers: bool | None = False
    """Whether buffers of whole numbers and truth values are tensors; None: IntoIntegers tells where they have to be."""
    unrolled: Mapping[Any, str] = MappingProxyType({})
    """Keys of the loops that run in Python although they say that they are loops, and why each does."""
    bound = 0
    """Entries that may yet be read and stored one by one, where a part of an array counts as `PART`; 0 or less is no bound."""
    sources: Any = None
    """What is called in place of functions that are read from their source (sources.py)."""

    def __init__(self, draws: Draws) -> None:
        """An open trace, which has met nothing yet."""
        self.graph = Graph()
        self.arguments: list[Traced] = []
        """What the function was given, until the trace ends."""
        self.open = True
        self.draws = draws
        self.reshaped = (
            False  # whether a reshape was a view, or a copy, by how its operand lay in memory
        )
        self.laid = False  # whether a store was made after that: the layout of arguments may decide what it reaches
        self.met: dict[int, np.ndarray] = {}  # small arrays from outside, which may change later
        self.wholes: dict[int, Any] = {}
        """Copies of the arrays that these are parts of, by the arrays' ids; None where only one part was met."""
        self.places: dict[Any, dict[str, Any]] = {}
        """Settings of calls that read at whole numbers, by these."""
        self.targets: dict[Any, tuple[Any, ...]] = {}
        """Arguments of calls that store at whole numbers, by these."""
        self._buffers: dict[int, list[weakref.ref[Traced]]] = {}
        self._unmade: list[weakref.ref[Traced]] = []  # views that nobody has asked for yet

    def why_unrolled(self, functions: Sequence[Any]) -> str:
        """Why the loop of these functions runs in Python, in parentheses; empty where nothing is known about it."""
        reason = self.unrolled.get(loop_key(functions))
        return f" ({reason})" if reason else ""

    def input(self, value: Any) -> Traced:
        """A value of the next argument."""
        node = Recorded(None, "input", (), {}, (), value)
        self.graph.inputs.append(node)
        traced = Traced(self, node, value, given=True)
        if self.outer is None:
            self.arguments.append(traced)
        return traced

    def constant(self, value: Any) -> Traced:
        """An array that does not depend on an argument, as a traced one: it is about to be written to."""
        return self.call(_made, (storage.kept(np.asarray(value)),), {}, "constant")

    def call(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], name: str
    ) -> Any:
        """Evaluate a call on the values, and record it."""
        if not self.open:
            raise self.left(name)
        try:
            return self._call(function, args, kwargs, name)
        except OF_VALUES as error:
            if not self.trying:
                self._failed(args[1:] if isinstance(error, IndexError) else args, name)
            raise

    def _failed(self, args: Sequence[Any], name: str) -> None:
        """The function may catch the error and go another way: from here on the program is good only for the values that made it."""
        inputs: list[Node] = []
        values: list[Any] = []
        try:
            self._split(tuple(args), inputs, values)
        except _Belongs:  # the trace within has told of it
            return
        where = _line()
        for node, value in zip(inputs, values, strict=True):
            value = value.value() if type(value) is Later else value
            if np.size(value) > LARGEST_READ:
                self.failed = f"{name} ({where})"
            elif node.name != "input" or self.open:
                self.graph.steps.append(Guard(node, np.array(value), where, f"where {name} failed"))

    def _call(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], name: str
    ) -> Any:
        """Record a call of a function on traced values, and give its result, computed now or put off."""
        inputs: list[Node] = []
        values: list[Any] = []
        template: tuple[Any, Any]
        if args and type(x := args[0]) is Traced and x.home is self and not x.large:
            v, rest = x.value, args[1:]  # most views and sums: nothing to take apart
            small = type(v) is not np.ndarray or v.size < PUT_OFF
            fixed = all(map(_fixed, rest)) and all(map(_fixed, kwargs.values()))
            if small and fixed and _draws_nothing(function):
                settings = dict(kwargs) if kwargs else _NONE
                result = function(v, *rest, **settings)
                template = ((_FIRST, *rest), settings)
                return self._recorded(function, name, template, [x.node], result)
        if len(args) > 1 or kwargs:
            args, kwargs = _settled(function, args, kwargs)
        try:
            template = (
                self._split(tuple(args), inputs, values),
                self._split(kwargs, inputs, values),
            )
        except _Belongs as inside:
            return inside.home.call(function, args, kwargs, name)
        if any(
            type(v) is Later or (type(v) is np.ndarray and v.size >= PUT_OFF)
            for v in (*values, *template[0])
        ):
            later = _put_off(function, name, template, values)
            if later is not None and later.view and name == "reshape" and values[0].sample.ndim > 1:
                later = None if self.exact else later
                self.guessed |= not self.exact
            if later is not None:
                node = Recorded(function, name, template[0], template[1], inputs, later.sample)
                node.shape = later.shape
                self.graph.steps.append(node)
                put_off = Traced.of(self, node, later)
                if later.view:
                    self._unmade.append(weakref.ref(put_off))
                return put_off
            values = [v.value() if type(v) is Later else v for v in values]
        given, settings = filled(template, values)
        result = (
            function(*given, **settings)
            if _draws_nothing(function)
            else self.draws.evaluated(function, given, settings)
        )
        return self._recorded(function, name, template, inputs, result)

    def operate(self, operation: Callable[..., Any], args: tuple[Any, ...], name: str) -> Any:
        """`call` for operators, of which a long program has most: without settings and nested arguments."""
        inputs: Any
        template: Any
        if not self.open:
            return self.call(operation, args, {}, name)
        if len(args) == 2:
            x, y = args
            if (type(x) is Traced and x.large) or (type(y) is Traced and y.large):
                return self.call(operation, args, {}, name)
            if type(x) is Traced and x.home is self:
                if type(y) is Traced and y.home is self:
                    inputs, template = (x.node, y.node), BOTH
                    result = operation(x.value, y.value)
                elif type(y) is float or type(y) is int:
                    inputs, template = (x.node,), (_REFS[0], y)
                    result = operation(x.value, y)
                else:
                    return self.call(operation, args, {}, name)
            elif (type(x) is float or type(x) is int) and type(y) is Traced and y.home is self:
                inputs, template = (y.node,), (x, _REFS[0])
                result = operation(x, y.value)
            else:
                return self.call(operation, args, {}, name)
        else:
            (x,) = args
            if type(x) is not Traced or x.home is not self or x.large:
                return self.call(operation, args, {}, name)
            inputs, template = (x.node,), ONE
            result = operation(x.value)
        node = Recorded(operation, name, template, _NONE, inputs, result)
        self.graph.steps.append(node)
        return Traced(self, node, result)

    def _recorded(
        self, function: Any, name: str, template: tuple[Any, Any], inputs: list[Node], result: Any
    ) -> Any:
        """Record a call and return its result as traced values; a tuple gives one value for each part."""
        checked = _depends_on_values(function, inputs, template[0])
        if type(result) in (tuple, list) or (
            isinstance(result, tuple) and hasattr(result, "_fields")
        ):
            whole = Recorded(function, name, template[0], template[1], inputs, 0)
            self.graph.steps.append(whole)
            parts = []
            for i, part in enumerate(result):
                node = Recorded(
                    operator.itemgetter(i), f"{name}[{i}]", (Ref(0),), {}, (whole,), part, checked
                )
                self.graph.steps.append(node)
                parts.append(Traced(self, node, part))
            return type(result)(*parts) if hasattr(result, "_fields") else type(result)(parts)
        if not isinstance(result, _VALUES):
            raise TraceError(
                f"{name} returned a {type(result).__name__} while a function was traced by tg.compile ({_line()}), but only numbers and "
                "arrays can be values of a program. Do this outside the function, or mark the argument as static (static_argnums).",
                name="outside-program",
            )
        node = Recorded(function, name, template[0], template[1], inputs, result, checked)
        self.graph.steps.append(node)
        return Traced(self, node, result)

    def _split(self, value: Any, inputs: list[Node], values: list[Any]) -> Any:
        """Nested arguments with `Ref`s for traced values, and arrays kept as they are now."""
        kind = type(value)
        if kind is Traced:
            if value.home is not self:
                value = self.adopted(value)
            inputs.append(value.node)
            values.append(value.later() if value.large else value.value)
            return Ref(len(inputs) - 1)
        if kind is Tensor or isinstance(value, Tensor):
            return self._split(value._value, inputs, values)
        if kind in (tuple, list):
            return kind(self._split(item, inputs, values) for item in value)
        if kind is dict:
            return {key: self._split(item, inputs, values) for key, item in value.items()}
        if kind is slice:
            return slice(
                *(self._split(x, inputs, values) for x in (value.start, value.stop, value.step))
            )
        if isinstance(value, np.ndarray):
            if value.nbytes > BIG:
                return storage.kept(value)
            self.met[id(value)] = value
            part = None if value.base is None else self._part(value)
            return storage.kept(value) if part is None else part
        return value

    def _part(self, value: np.ndarray) -> np.ndarray | None:
        """A part of an array as a part of a copy of that one, so that loops over slices know where it lies (regions.py).

        None for the first part that is met, and where the array was changed since it was copied.
        """
        root = storage.owner(value)
        if type(value) is not np.ndarray or type(root) is not np.ndarray:
            return None
        if root.dtype != value.dtype or root.dtype.hasobject or not value.size:
            return None
        if root.nbytes > MOST_COPIED or not root.flags.c_contiguous or not value.flags.aligned:
            return None
        whole = self.wholes.setdefault(id(root), value)
        if whole is value:
            self.wholes[id(root)] = None
            return None
        if whole is None:
            whole = self.wholes[id(root)] = np.array(root)
            whole.flags.writeable = False
        offset = value.ctypes.data - root.ctypes.data
        part = np.ndarray(value.shape, value.dtype, whole, offset, value.strides)
        return part if part.tobytes() == value.tobytes() else None

    def adopted(self, value: Traced) -> Traced:
        """A value of another trace, as one of this trace. Raises TraceError where it has no business here."""
        home: Trace | None = value.home
        while home is not None and home is not self:
            home = home.outer
        if home is self:
            raise _Belongs(value.home) if value.home.open else value.home.left("a call")
        if not value.home.open:
            raise value.home.left("a call")
        raise TraceError(
            "a value of one trace of tg.compile met a value of another: a function left a placeholder behind when it was traced. "
            "Return values from the function instead of storing them elsewhere.",
            name="left-placeholder",
        )

    def left(self, what: str) -> BaseException:
        """The error about a value that is used after its trace has ended."""
        return TraceError(
            f"{what} was called on a value that a function left behind when it was traced by tg.compile: it is a placeholder of that "
            "run, and means nothing outside. Return the value from the function instead of storing it elsewhere.",
            name="left-placeholder",
        )

    def tried(self, first: Callable[[], Any], second: Callable[[], Any]) -> Any:
        """What `first` computes without a look at values, else `second`."""
        n = len(self.graph.steps)
        self.trying = True
        try:
            return first()
        except Exception as error:
            hand_on(error)
            del self.graph.steps[n:]
        finally:
            self.trying = False
        return second()

    def guards(self) -> bool:
        """Whether the value of an entry may be looked at."""
        return not self.trying

    def read(self, traced: Traced, what: str) -> Any:
        """The value, for Python to look at: from here on the program is good only where it is the same."""
        if self.trying:
            raise TraceError(what, name="frozen-value")
        value = traced.value
        if what in _READ_FOR_TEXT and only_printed(sys._getframe(1)):
            return value
        if what == "np.asarray(x)" and self.integers is None and np.ndim(value) and _for_a_store():
            raise IntoIntegers
        where = _line()
        if np.size(value) > LARGEST_READ:
            raise TraceError(
                f"{what} was asked of an array of shape {np.shape(value)} while its function was traced by tg.compile ({where}): its "
                "values are those of this call only. Use NumPy's functions on it (np.where for choices, tg.tensor(table)[x] for entries of "
                "a plain table), or move this out of the function.",
                name="frozen-value",
            )
        if traced.node.name != "input" or self.open:
            self.graph.steps.append(Guard(traced.node, np.array(value), where, what))
        return value

    def wound(self, code: list[Any], pending: dict[Any, Any], watch: dict[Any, Any]) -> list[Any]:
        """The entries of a tape for a walk from `pending` down, with loops as one entry each."""
        from . import triangles, turns

        code = triangles.wound(self, code, pending, watch)
        return turns.wound(self, code, pending, watch)

    # ------------------------------------------------------------------------------------ memory that is shared

    def holding(self, array: np.ndarray, t: Tensor) -> int:
        """References to a tensor's array that are nobody's who could see a write: its views', the tape's (a constant of calls
        recorded before) and that of `met`."""
        direct = 0
        views = {id(v._value) for v in _views_below(t) if storage.held_by(v._value) is array}
        tape: Tape | None = current()
        while tape is not None:
            for column in tape.code:
                for value in column if type(column) is tuple else (column,):
                    if type(value) is np.ndarray:
                        direct += value is array
                        if storage.held_by(value) is array:
                            views.add(id(value))
            tape = tape.outer
        for value in self.met.values():
            direct += value is array
            if storage.held_by(value) is array:
                views.add(id(value))
        return direct + len(views)

    def watch(self, traced: Traced) -> None:
        """Remember whose memory the value lies in: a write must reach all that share it."""
        if type(traced.value) is np.ndarray:
            key = id(storage.owner(traced.value))
            self._buffers.setdefault(key, []).append(weakref.ref(traced))

    def lay(self) -> None:
        """Note that what follows may depend on the layout of arguments, if a reshape came before; raises Guessed if it was not known."""
        trace: Trace | None = self
        while trace is not None:
            if trace.guessed:
                raise Guessed
            trace.laid |= self.reshaped
            trace = trace.outer

    def _watch_if_there(self, traced: Traced) -> None:
        """`watch`, but of what is put off when it is computed."""
        if not traced.large or type(traced.later()) is not Later:
            self.watch(traced)

    def write(
        self,
        traced: Traced,
        node_of: Callable[[], Traced],
        what: str,
        index: Any = None,
        stored: Any = None,
    ) -> None:
        """Let `traced` stand for a new value, as after a write in place, at an index or everywhere.

        `stored` is what a plain store at the index puts there, or None.
        """
        if storage.tracing.get() is not self:
            raise Unrolled(f"{what} writes to what stands outside of the step")
        self.lay()
        root = traced.root()
        later = root.later() if root.large else None
        if type(later) is Later and later.view:
            raise _of_shared_memory(what)
        if root.given:
            raise TraceError(
                f"{what} would write into an argument of a function traced by tg.compile ({_line()}), which a compiled program never "
                "does: its inputs stay as they are. Write to a copy (x = x.copy()), or use the out-of-place form.",
                name="traced-store",
            )
        if traced.ndim:
            waiting, self._unmade = self._unmade, []
            for ref in waiting:
                view = ref()
                if view is None:
                    continue
                if _is_new(view.root()):
                    self._unmade.append(ref)
                else:
                    view.value  # noqa: B018  made now, so that it is known whose memory it shares
        place = index if traced is root else traced.place_in(root)
        views = [] if root.views is None else root.views.taken(_row(place, root.shape))
        for shown in (root, *views) if traced.ndim else ():
            copied = shown is root and root.views is not None and root.views.are_copied()
            if copied or any(mate is not root for mate in self._sharing(shown)):
                raise _of_shared_memory(what)
        if (
            stored is not None
            and not views
            and traced is root
            and self._overwritten(root, index, stored)
        ):
            return
        traced.become(node_of())
        changed = traced
        while changed.source is not None:  # the arrays that it is a view of
            parent, how = changed.source
            parent.become(_put_back(parent, how, changed))
            put = parent.later() if parent.large else None
            if type(put) is Later:  # the array again, although it is made as a view of its view
                put.view = False
            changed = parent
        self._watch_if_there(root)
        for view in views:  # older ones first, so a view's base has changed before it
            view.become(_taken(*view.source))
            self._watch_if_there(view)
            root.views.add(view, root)

    def _overwritten(self, traced: Traced, index: Any, stored: Any) -> bool:
        """Record a store whose value is put into the memory of the one before it, if nobody but older names can see that memory.

        A copy for each store would make a loop over the entries of an array quadratic in its size, in time and in memory.
        """
        if traced.large or not _fixed(index):
            return False
        inputs: tuple[Node, ...]
        if type(stored) is Traced:
            if stored.large or stored.home is not self:
                return False
            inputs, value, given = (traced.node, stored.node), stored.value, _REFS[1]
        elif type(stored) in _NUMBERS:
            inputs, value, given = (traced.node,), stored, stored
        else:
            return False
        if not traced.overwrite(index, value):
            return False
        node = Recorded(_stored, "stored", (_FIRST, index, given), {}, inputs, traced.value)
        self.graph.steps.append(node)
        traced.node = node
        return True

    def _sharing(self, traced: Traced) -> Iterator[Traced]:
        """The values that show the memory of this one, and are not known to be views of anything; it is about to have another memory."""
        key = id(storage.owner(traced.value))
        held = self._buffers.get(key, ())
        if len(held) == 1 and held[0]() is traced:
            return
        # Those that live stay: a store may put its value into this very memory, and a view that is made later has to meet them.
        alive = (mate for ref in held if (mate := ref()) is not None)
        mates = [mate for mate in alive if id(storage.owner(mate.value)) == key]
        self._buffers[key] = [weakref.ref(mate) for mate in mates]
        yield from (mate for mate in mates if mate.source is None)


class _Views:
    """The views of an array, by the row that they lie in: a write to another row is none to them."""

    __slots__ = ("copies", "count", "others", "rows")

    def __init__(self) -> None:
        self.copies: list[weakref.ref[Tensor]] = []  # that stand for views
        self.count = 0
        self.rows: dict[int, list[Any]] = {}
        self.others: list[Any] = []  # those that may lie in several rows

    def add(self, view: Traced, root: Traced) -> None:
        """Note one more, which is younger than all others."""
        i = _row(view.place_in(root), root.shape)
        held = self.others if i is None else self.rows.setdefault(i, [])
        held.append((self.count, weakref.ref(view)))
        self.count += 1

    def are_copied(self) -> bool:
        """Whether somebody still has a copy that stands for a view."""
        self.copies = [ref for ref in self.copies if ref() is not None]
        return bool(self.copies)

    def leave(self, index: Any) -> bool:
        """Whether nobody can have a view that a store at whole numbers reaches, or a copy that stands for a view."""
        row = index[0] if type(index) is tuple and index else index
        return (
            type(row) is int and row >= 0 and not (self.others or self.copies or row in self.rows)
        )

    def taken(self, row: int | None) -> list[Traced]:
        """The living views that a write to a row reaches, to any row for None, in the order in which they were made; they are forgotten."""
        reached, self.others = self.others, []
        if row is not None:
            reached += self.rows.pop(row, ())
        else:
            for held in self.rows.values():
                reached += held
            self.rows.clear()
        views = ((order, ref()) for order, ref in reached)
        living = [(order, view) for order, view in views if view is not None]
        return [view for _, view in sorted(living, key=lambda x: x[0])]


def _of_shared_memory(what: str) -> TraceError:
    return TraceError(
        f"{what} would write into memory that a view of the same array shares ({_line()}), while its function is traced by "
        "tg.compile: the view would not see it. Index the whole in one step (x[0, 1] = y, not x[0][1] = y), or copy first.",
        name="traced-store",
    )


def _is_new(root: Traced) -> bool:
    """Whether a value is what a loop will make, which nobody has computed: memory that no other value has."""
    made = root.node.name == "concatenate" or root.node.name.startswith("loop[")
    return made and root.large and type(root.later()) is Later


def _row(place: Any, shape: tuple[int, ...]) -> int | None:
    """The one row that an index lies in; None where there may be others."""
    first = (place[0] if place else None) if type(place) is tuple else place
    return first % shape[0] if type(first) is int and shape else None


def _fixed(setting: Any) -> bool:
    """Whether a setting is a number or word of Python's, or slices and tuples of such."""
    kind = type(setting)
    if kind is slice:
        return (
            type(setting.start) in _WORDS
            and type(setting.stop) in _WORDS
            and type(setting.step) in _WORDS
        )
    if kind is tuple:
        return _WORDS.issuperset(map(type, setting)) or all(map(_fixed, setting))
    return kind in _WORDS


_WORDS = frozenset((int, float, bool, str, type(None)))
_INTEGERS = frozenset((int,))
_NUMBERS = frozenset((int, float, bool, complex, np.float64))


def _draws_nothing(function: Any) -> bool:
    """Whether a function surely draws no random numbers: NumPy's own and ours; to ask the generators costs more than most calls."""
    if isinstance(function, np.ufunc) or function in _OPERATIONS:
        return True
    if isinstance(function, OpCall):
        return function.quiet
    return (getattr(function, "__module__", None) or "").split(".")[0] in ("numpy", "_operator")


_VALUED = frozenset(
    ("index", "indices", "shift", "x2", "where", "initial", "value", "ctx", "hooks")
)
"""Settings that decide what stands in a result, not its shape."""


def _settled(
    function: Any, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[Sequence[Any], dict[str, Any]]:
    """The arguments of a call with whole numbers that Python has looked at (so that they are guarded) for traced axes, shapes and lengths.

    A program is made for one shape of each value, so it has to know what decides them.
    """
    names: Sequence[str] = ()
    op = _op_of(function)
    if op is not None:
        if op.elementwise or not op.settings:
            return args, kwargs
        operands, names = 1 if op.variadic else op.arity, op.settings
    elif function in _SETTLED:
        operands = _LEADING.get(function, 1)
    elif isinstance(getattr(function, "__self__", None), np.ufunc) and function.__name__ != "outer":
        operands = 1
    else:
        return args, kwargs
    named = [(x, names[i] if i < len(names) else "") for i, x in enumerate(args[operands:])]
    settings = [x if name in _VALUED else _known(x) for x, name in named]
    return (*args[:operands], *settings), {
        k: x if k in _VALUED else _known(x) for k, x in kwargs.items()
    }


def _op_of(function: Any) -> Primitive | None:
    """The op that a call is of, by this library's function or NumPy's; None for other functions."""
    return function.op if isinstance(function, OpCall) else STRUCTURAL.get(function)


def _known(setting: Any) -> Any:
    """A setting without traced whole numbers."""
    kind = type(setting)
    if kind in (tuple, list):
        return kind(map(_known, setting))
    traced = setting._value if isinstance(setting, Tensor) else setting
    if type(traced) is Traced and not traced.node.shape and traced.node.dtype.kind in "iub":
        return operator.index(
            traced.home.read(traced, "an axis, a length or another setting of a function")
        )
    return setting


def _depends_on_values(function: Any, inputs: Sequence[Node], args: Any) -> bool:
    """Whether shape or dtype of a call's result may follow from values, so that they must be looked at in each run."""
    if function is operator.getitem or (
        isinstance(function, OpCall) and function.op.name == "getitem"
    ):
        return len(inputs) > 1 or type(args[0]) is not Ref  # x[mask], and constant[mask]
    if function is np.where:
        return len(args) == 1  # with the condition alone it gives positions
    if isinstance(function, OpCall):
        return not (function.op.elementwise or function.op.linear)
    if isinstance(function, np.ufunc) or function in _SETTLED or function in _OPERATIONS:
        return False
    op = STRUCTURAL.get(function)
    return op is None or not op.settled


_VALUES = (np.ndarray, np.generic, bool, int, float, complex)


def _made(value: Any) -> Any:
    """A constant array, as a call of no traced value."""
    return np.array(value)


def _line() -> str:
    """Where in the user's code we are. The file goes by its name alone, since reports and listings are shown to others."""
    for frame in users(sys._getframe(1)):
        file = os.path.basename(frame.f_code.co_filename)
        return f'"{file}", line {frame.f_lineno}, in {frame.f_code.co_name}'
    return "at an unknown line"


def _for_a_store() -> bool:
    """Whether the user's line stands at `array[index] = value`, which asks for the index and the value of plain memory."""
    frame = sys._getframe(2)
    while frame.f_back is not None and not is_users(frame):
        frame = frame.f_back
    return frame.f_code.co_code[frame.f_lasti] in _STORES


_STORES = frozenset(opmap[name] for name in ("STORE_SUBSCR", "STORE_SLICE") if name in opmap)


def _reads(value: Any, trace: Trace, what: str) -> Any:
    return trace.read(value, what) if type(value) is Traced else value


class _Flags:
    """What the library asks of an array's flags; `storage.packed` knows the layout."""

    writeable = True
    c_contiguous = f_contiguous = contiguous = aligned = True
    owndata = True


class Version:
    """An array of a traced run, for names of a value that stores have replaced since: the array, or the next version and what it replaced.

    The latest version has the array, in which stores are made; an older one is computed when somebody looks at it, and then has an
    array of its own, so that versions that are read backwards cost a copy each. Invariant: `array` is None just where `next` is none.
    """

    __slots__ = ("array", "index", "next", "old")

    def __init__(self, array: np.ndarray) -> None:
        self.array: Any = array
        self.next: Version | None = None

    def value(self) -> np.ndarray:
        """The array of this version; whoever asks for it has it to read."""
        newer: list[Version] = []
        version: Any = self
        while version.array is None:
            newer.append(version)
            version = version.next
        if newer:
            array = np.array(version.array)
            for version in reversed(newer):
                array[version.index] = version.old
            self.array, self.next, self.old = array, None, None
        return self.array

    def followed(self, index: Any, old: Any) -> Version:
        """The version after a store to the array, which had the old entries at the index."""
        later = Version(self.array)
        self.array, self.next, self.index, self.old = None, later, index, old
        return later


class Traced(StandIn):
    """A value of a traced run: it is what NumPy would have there, and remembers how to compute it again."""

    __slots__ = (
        "__weakref__", "_later", "fixed", "given", "home", "large", "nbytes", "node", "source", "value", "views",
    )  # fmt: skip

    def __init__(self, trace: Trace, node: Node, value: Any, given: bool = False) -> None:
        """What the node of the trace computes, with the value that this run has there."""
        self.source: Any = (
            None  # (array, index) of which this is a view: a write to one is a write to both
        )
        self.views: _Views | None = None
        self.home = trace
        self.node = node
        self.value = value
        self.given = given  # an argument's own memory, which a program must not write to
        self.fixed = given or type(value) is _number
        self.large = False
        self._later: Any = None
        self.nbytes = getattr(value, "nbytes", 8)  # asked of each result, so it is at hand
        if type(value) is np.ndarray:
            self.large = value.size >= PUT_OFF
            trace.watch(self)

    @classmethod
    def of(cls, trace: Trace, node: Node, later: Later) -> Traced:
        """A value that nobody has computed yet; `value`, when it is asked for, does."""
        traced = cls.__new__(cls)
        traced.source = traced.views = None
        traced.home, traced.node, traced.given, traced.fixed = trace, node, False, False
        traced.large, traced._later = True, later
        traced.nbytes = traced.size * traced.itemsize
        return traced

    def later(self) -> Any:
        """The value, or what it will be computed from."""
        try:
            return object.__getattribute__(self, "value")
        except AttributeError:
            if type(self._later) is Version:
                return self._later.value()
            return self._later if self._later.result is None else self._later.result

    @property
    def __class__(self) -> Any:
        """What `isinstance` sees: an array, or Python's number where it is one. NumPy's C code looks at the type and is not misled."""
        if not self.node.weak:
            return np.ndarray
        later = self.later()
        return type(later.sample if type(later) is Later else later)

    def frozen(self) -> Traced:
        """The value as it is now, which no write in place reaches."""
        kept: Traced = object.__new__(Traced)
        kept.source = kept.views = kept._later = None
        kept.home, kept.node, kept.given = self.home, self.node, self.given
        kept.large, kept.nbytes, kept.fixed = self.large, self.nbytes, self.fixed
        if not self.large and self.source is None and type(self.value) is np.ndarray:
            if type(self._later) is not Version:
                self._later = Version(self.value)
            kept._later = self._later
            return kept
        known = self.later() if self.large else self.value
        if type(known) is Later:
            kept._later = known
        else:
            kept.value = known
        return kept

    def become(self, other: Traced) -> None:
        """Stand for another value from now on."""
        self.node, self.large, self.nbytes, self.fixed = (
            other.node,
            other.large,
            other.nbytes,
            other.fixed,
        )
        known = other.later() if other.large else other.value
        if type(known) is not Later:
            self.value, self._later = known, None
            return
        self._later = known
        with suppress(AttributeError):  # it may not have been computed either
            del self.value

    def entry(self, index: Any) -> Traced | None:
        """What is read at whole numbers, if that is a number of float64: of such calls programs by entries have most."""
        home = self.home
        if self.large or not home.open:
            return None
        if type(index) is tuple:
            if not _INTEGERS.issuperset(map(type, index)):
                return None
        elif type(index) is not int:
            return None
        value = self.value[index]
        if type(value) is not _number:
            return None
        settings = home.places.get(index)
        if settings is None:
            settings = home.places[index] = {"index": index}
        node: Any = _new(_entry)
        node.inputs = (self.node,)
        node.kwargs = settings
        home.graph.steps.append(node)
        home.bound -= 1
        if not home.bound:
            raise Long
        return _number_of(home, node, value)

    def put(self, index: Any, stored: Any) -> bool:
        """Record a store of a number of float64 at whole numbers, if nobody but older names can see the memory; whether it was."""
        home = self.home
        if self.large or self.given or self.source is not None or home._unmade:
            return False
        if self.views is not None and not self.views.leave(index):
            return False
        if type(index) is tuple:
            if not _INTEGERS.issuperset(map(type, index)):
                return False
        elif type(index) is not int:
            return False
        if storage.tracing.get() is not home or not home.open:
            return False
        array = self.value
        if type(array) is not np.ndarray or array.dtype is not _FLOAT64 or not storage.owns(array):
            return False
        old = array[index]
        held = home._buffers.get(id(array))
        if type(old) is not _number or (held and (len(held) > 1 or held[0]() is not self)):
            return False
        inputs: tuple[Node, ...]
        value: Any
        if type(stored) is Traced:
            if stored.large or stored.home is not home or type(stored.value) is not _number:
                return False
            inputs, value = (self.node, stored.node), stored.value
            args = home.targets.get(index)
            if args is None:
                args = home.targets[index] = (_FIRST, index, _REFS[1])
        elif type(stored) is float or type(stored) is _number:
            inputs, value, args = (self.node,), stored, (_FIRST, index, stored)
        else:
            return False
        version = self._later if type(self._later) is Version else None
        del array
        if self._references() - (version is not None) > _OWN:
            return False
        if home.reshaped or home.guessed or home.outer is not None:
            home.lay()
        self.value[index] = value
        if version is not None:
            self._later = version.followed(index, old)
        node: Any = _new(Recorded)
        node.function, node.name, node.args, node.kwargs = _stored, "stored", args, _NONE
        node.inputs, node.shape, node.dtype = inputs, self.node.shape, _FLOAT64
        node.weak = node.checked = False
        node.line = noted_line()
        home.graph.steps.append(node)
        self.node = node
        return True

    def overwrite(self, index: Any, value: Any) -> bool:
        """Put a value into the array at an index, if it is nobody's but this name's, and older names' that know its versions."""
        if type(self.value) is not np.ndarray or not storage.owns(self.value):
            return False
        version = self._later if type(self._later) is Version else None
        if self._references() - (version is not None) > _OWN:
            return False
        old = self.value[index]
        if type(old) is np.ndarray:
            old = old.copy()
        self.value[index] = value
        if version is not None:
            self._later = version.followed(index, old)
        return True

    def _references(self) -> int:
        return sys.getrefcount(self.value)

    # ------------------------------------------------------------------------------------ what is known of it

    shape = property(lambda self: self.node.shape)
    dtype = property(lambda self: self.node.dtype)
    ndim = property(lambda self: len(self.node.shape))
    size = property(lambda self: math.prod(self.node.shape))
    itemsize = property(lambda self: self.node.dtype.itemsize)

    @property
    def strides(self) -> Any:
        raise TraceError(
            "x.strides was asked of a value of the program that tg.compile traces, but how arrays lie in memory is no matter of it "
            "(the next call's may lie otherwise). Pass what depends on it as an argument.",
            name="frozen-value",
        )

    flags = property(lambda self: _Flags)
    base = property(lambda self: None if self.source is None else self.source[0])
    __array_priority__ = 500

    def strong(self) -> Any:
        return self.home.call(np.asarray, (self,), {}, "asarray") if self.node.weak else self

    def python_number(self) -> Any:
        return self if self.node.weak else self.home.operate(_python_number, (self,), "astype")

    def duplicate(self) -> Any:
        return self.home.call(_made, (self,), {}, "copy")

    def root(self) -> Traced:
        """What it is a view of, and no view itself."""
        root = self
        while root.source is not None:
            root = root.source[0]
        return root

    def memory(self) -> Any:
        if not self.large and type(self.value) is _number:
            return None
        return self.root()

    def place_in(self, root: Any) -> Any:
        index: Any = ()
        part = self
        while part.source is not None and part is not root:
            part, index = part.source
        return index if part is root else slice(None)

    def views_of_root(self) -> _Views:
        """The views of the array that this is one of."""
        root = self.root()
        if root.views is None:
            root.views = _Views()
        return root.views

    def copied_by(self, t: Tensor) -> None:
        self.views_of_root().copies.append(weakref.ref(t))

    def shares(self, other: Any) -> bool:
        return self.source is not None and self.source[0] is other

    def lying(self) -> Any:
        known = self.later() if self.large else self.value
        self.home.reshaped |= self.ndim > 0
        if type(known) is Later and (known.view or self.ndim > 1):
            if self.home.exact:
                return self.value
            self.home.guessed = True
        return None if type(known) is Later else known

    def layout_told(self) -> None:
        self.lying()
        self.home.lay()

    def number(self) -> bool:
        return not self.node.shape and type(self.later()) is not np.ndarray

    def alike(self, other: Any) -> bool:
        return not (self.large or other.large) and type(self.value) is _number is type(other.value)

    def seen(self) -> Any:
        return self.value

    def called(self, function: Any, args: Any, name: str) -> Any:
        if function is strong:
            return _strong_product(*args)
        if function in _OPERATIONS:
            return self.home.operate(function, args, name)
        return self.home.call(function, args, {}, name)

    def entries_of(self, array: np.ndarray, index: Any) -> Any:
        """`array[index]`, of the array as it is now: a later store reaches the array, and no constant of the program."""
        return self.home.call(operator.getitem, (np.array(array), _frozen(index)), {}, "getitem")

    def admit(self, t: Any) -> None:
        """Make a tensor's buffer a constant of the program before a traced value is written into it; an error where others hold its
        memory.
        """
        base = base_of(t)
        data = base._value
        if type(data) is Traced:
            return
        if isinstance(data, np.ndarray) and data.ndim:
            # The tensor, the name here and getrefcount's own: anybody else would not see the write.
            others = sys.getrefcount(data) - 3
            if not _alone(data) or (others and others > self.home.holding(data, base)):
                raise TraceError(
                    f"a traced value would be written into a tensor whose memory something else shares ({_line()}): an array of NumPy's. "
                    "Make the buffer inside the function, tg.zeros(...).",
                    name="traced-store",
                )
        base._value = self.home.constant(data)
        _taken_again(base)

    # ------------------------------------------------------------------------------------ NumPy's hooks

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **settings: Any) -> Any:
        """Record a ufunc or a method of one; `where=` becomes np.where, and `out=` a write."""
        if not settings and method == "__call__" and len(inputs) <= 2:
            if not self.large and type(self.value) is _number and self.home.open:
                made = _ufunc_of_numbers(ufunc, self.home, *inputs)
                if made is not None:
                    return made
        if any(isinstance(x, Tensor) for x in inputs):
            return NotImplemented
        out = settings.pop("out", None)
        if settings.get("casting") == "same_kind":
            del settings["casting"]  # as it is anyway
        if method == "at":
            target = inputs[0]
            _written(self.home, target, f"np.{ufunc.__name__}.at", _at, (ufunc, *inputs), 1)
            return None
        mask = settings.get("where")
        if mask is not None and method == "reduce" and ufunc.identity is None and not np.ndim(mask):
            # A comparison of Python numbers: NumPy wants an `initial` beside any other mask.
            settings["where"] = bool(mask)
        function = ufunc if method == "__call__" else getattr(ufunc, method)
        name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
        where = settings.get("where", True) if method == "__call__" else True
        if where is not True and ufunc.nout == 1:
            # Elsewhere stands what was there before, and NumPy warns of nothing that it does not compute.
            del settings["where"]
            with np.errstate(all="ignore"):
                result = self.home.call(function, inputs, settings, name)
            before = np.zeros((), result.dtype) if out is None else out[0]
            result = np.where(where, result, before)
        else:
            result = _in_other_words(ufunc, method, inputs, settings)
            if result is None:
                result = self.home.call(function, inputs, settings, name)
        if out is None:
            return result
        results = result if isinstance(result, tuple) else (result,)
        for target, value in zip(out, results, strict=True):
            if target is not None:
                _written(self.home, target, f"np.{name}(out=)", _copied_into, (target, value), 0)
        return out[0] if len(out) == 1 else out

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Record a function of NumPy; questions about shapes are answered at once, and writes go to the array's history."""
        if any(issubclass(kind, Tensor) for kind in types):
            return NotImplemented
        if function in _STATIC:
            return function(*_values(args), **_values(kwargs))
        if function is np.copyto and len(args) == 2 and not kwargs:
            return _written(self.home, args[0], "np.copyto", _copied_into, args, 0)
        if function in _WRITING:
            return _written(
                self.home, args[0], f"np.{function.__name__}", _writer, (function, *args), 1, kwargs
            )
        if function in IN_PARTS and len(args) <= 2 and set(kwargs) <= _SHAPING:
            return IN_PARTS[function](*args, **kwargs)  # one array, of which others may be parts
        out = kwargs.get("out")
        if out is not None:
            result = self.home.call(
                function, args, {k: v for k, v in kwargs.items() if k != "out"}, function.__name__
            )
            return _written(
                self.home, out, f"np.{function.__name__}(out=)", _copied_into, (out, result), 0
            )
        return self.home.call(function, args, kwargs, function.__name__)

    # ------------------------------------------------------------------------------------ where Python looks at it

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        if gives_way(sys._getframe(1)):
            made = np.empty((), object)
            made[()] = self
            return made
        made = np.array(self.home.read(self, "np.asarray(x)"), dtype=dtype)
        made.flags.writeable = (
            copy is True
        )  # NumPy's would show the same memory: a store is an error, since it would reach nothing
        return made

    def __bool__(self) -> bool:
        return bool(self.home.read(self, "a truth value (if x, while x, x and y)"))

    def __float__(self) -> float:
        return float(self.home.read(self, "float(x)"))

    def __int__(self) -> int:
        return int(self.home.read(self, "int(x)"))

    def __complex__(self) -> complex:
        return complex(self.home.read(self, "complex(x)"))

    def __index__(self) -> int:
        return operator.index(self.home.read(self, "an index or a range"))

    def __hash__(self) -> int:
        return hash(self.home.read(self, "hash(x)"))

    def __format__(self, spec: str) -> str:
        return format(self.home.read(self, "format(x)"), spec)

    def __repr__(self) -> str:
        return f"<traced {self.node!r}>"

    def item(self, *args: Any) -> Any:
        """The one element (or the one at a position), for Python to look at."""
        value = self.home.read(self, "x.item()")
        return value.item(*args) if isinstance(value, np.ndarray | np.generic) else value

    def tolist(self) -> Any:
        """The elements as nested lists, for Python to look at."""
        value = self.home.read(self, "x.tolist()")
        return value.tolist() if isinstance(value, np.ndarray | np.generic) else value

    def guarded(self) -> Any:
        """The value, for the library to look at; itself where the trace takes no guards."""
        return self.home.read(self, "whether there are such values") if self.home.guards() else self

    def is_integer(self) -> bool:
        """Whether it is a whole number, for Python to look at."""
        return float(self.home.read(self, "x.is_integer()")).is_integer()

    # ------------------------------------------------------------------------------------ as an array

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __contains__(self, element: Any) -> bool:
        return bool((self == element).any())

    def __getitem__(self, index: Any) -> Any:
        index = _frozen(index)
        return _view(self.home.call(operator.getitem, (self, index), {}, "getitem"), self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        """A store is a new version of the array, under the array's name; one at whole numbers is recorded at once."""
        given = value._value if isinstance(value, Tensor) else value
        if type(index) is tuple and _INTEGERS.issuperset(map(type, index)):
            args = (self, index, given)
            self.home.write(
                self,
                partial(self.home.call, _stored, args, _NONE, "stored"),
                "x[index] = y",
                index,
                given,
            )
            return
        if index is Ellipsis and type(given) is Traced and given.large and _is_new(given.root()):
            if (given.shape, given.dtype) == (self.shape, self.dtype) and self.dtype.kind in "fciu":
                copy = partial(self.home.call, np.positive, (given,), {}, "positive")
                self.home.write(self, copy, "x[...] = y", index)
                return
        if type(given) is Traced and is_mask(index) and given.ndim and given.root() is self.root():
            raise TraceError(
                overlapping("an array while its function was traced by tg.compile"),
                name="traced-store",
            )
        _written(self.home, self, "x[index] = y", _stored, (self, _frozen(index), given), 0)
        if self.home.bound > 0:
            self.home.bound -= PART
            if self.home.bound <= 0:
                raise Long

    def astype(
        self,
        dtype: Any,
        order: str = "K",
        casting: str = "unsafe",
        subok: bool = True,
        copy: bool = True,
    ) -> Any:
        """Another dtype."""
        dtype = np.dtype(dtype)
        return self.home.call(_astype, (self, dtype), {}, "astype")

    def reshape(self, *shape: Any, order: str = "C") -> Any:
        """The entries in another shape."""
        return np.reshape(self, shape[0] if len(shape) == 1 else shape, order=order)

    def transpose(self, *axes: Any) -> Any:
        """Axes in another order."""
        return np.transpose(self, (axes[0] if len(axes) == 1 else axes) or None)

    def flatten(self, order: str = "C") -> Any:
        """All entries along one axis."""
        return np.reshape(self, -1, order=order)

    def view(self, *kind: Any) -> Any:
        """The same value; its bits under another dtype are not traced."""
        if kind:
            raise self._cannot("view(dtype)")
        return self

    def fill(self, value: Any) -> None:
        """Overwrite every entry."""
        self[...] = value

    def compress(self, condition: Any, axis: Any = None) -> Any:
        """The slices where a condition holds."""
        return np.compress(condition, self, axis)

    @property
    def T(self) -> Any:
        """Axes in reverse order."""
        return np.transpose(self)

    @property
    def mT(self) -> Any:
        """The last two axes exchanged."""
        return np.swapaxes(self, -1, -2)

    @property
    def real(self) -> Any:
        """Real part."""
        return np.real(self)

    @property
    def imag(self) -> Any:
        """Imaginary part."""
        return np.imag(self)

    def __getattr__(self, name: str) -> Any:
        if name == "value":
            if type(self._later) is Version:
                return self._later.value()
            self.value = self._later.value()
            self.home.watch(self)
            return self.value
        if name.startswith("__"):
            raise AttributeError(name)
        if hasattr(np.ndarray, name) or hasattr(float, name):
            raise self._cannot(name)
        raise AttributeError(f"an array has no attribute {name!r}")

    def _cannot(self, name: str) -> TraceError:
        return TraceError(
            f"x.{name} was asked while a function was traced by tg.compile ({_line()}), which has no record for it. Use the NumPy "
            "function of that name, or do this outside the function.",
            name="outside-program",
        )


class Later:
    """A call on large arrays that is made if its value is asked for; its operands are values, or calls of this kind."""

    __slots__ = ("args", "function", "result", "sample", "shape", "values", "view")

    def __init__(
        self,
        function: Any,
        args: Any,
        values: list[Any],
        sample: Any,
        shape: Any,
        view: bool = False,
    ) -> None:
        """A call whose recording waits until somebody needs its result."""
        self.view = view  # whether the result shares memory with an operand
        self.function = function
        self.args = args
        self.values = values
        self.sample = sample
        self.shape = shape
        self.result: Any = None

    def value(self) -> Any:
        """The value; not by recursion, since a chain of such calls may be long."""
        waiting = [self]
        while waiting:
            call = waiting[-1]
            missing = [v for v in call.values if type(v) is Later and v.result is None]
            if call.result is None and missing:
                waiting += missing
                continue
            waiting.pop()
            if call.result is None:
                known = [v.result if type(v) is Later else v for v in call.values]
                given, settings = filled(call.args, known)
                call.result = call.function(*given, **settings)
                call.values = []
        return self.result


def _put_off(function: Any, name: str, args: tuple[Any, Any], values: list[Any]) -> Later | None:
    """The call for later, with a sample of its result; None where shape and dtype are not known without it, or it makes a view."""
    positional, settings = args
    if function is _python_number:
        return Later(function, args, values, function(values[0].sample), ())
    elementwise = not settings and (
        (isinstance(function, np.ufunc) and function.nout == 1 and function.signature is None)
        or (isinstance(function, OpCall) and function.op.elementwise and not function.op.view)
        or function in _BY_ENTRY
        or (function is np.where and len(positional) == 3)
    )
    op = _op_of(function)
    known_as = "" if op is None else op.name
    product = name == "matmul" and len(values) == len(positional) == 2 and not settings
    joining = known_as in _JOINING
    viewing = (
        (function is operator.getitem or (op is not None and op.view))
        and len(values) == 1
        and type(values[0]) is Later  # of an array that is there a view costs nothing
        and type(positional[0]) is Ref
        and _basic((positional[1:], settings))
    )
    storing = (function in (_stored, _copied_into) or known_as in _STORING) and (
        type(positional[0]) is Ref
    )
    if not (elementwise or known_as in _SUMMING or product or viewing or joining or storing):
        return None
    try:
        if product:
            shape = _shape_of_product(*(v.shape for v in values))
            sample = _first_of(shape, np.result_type(*(_first(v) for v in values)))
        elif joining:
            if any(math.prod(np.shape(v)) >= PUT_OFF for v in values):
                return None
            given, kept = filled(args, [np.broadcast_to(_first(v), v.shape) for v in values])
            whole = function(*given, **kept)
            shape, sample = whole.shape, _first_of(whole.shape, whole.dtype)
        elif viewing:
            given, kept = filled(args, [np.broadcast_to(_first(values[0]), values[0].shape)])
            entries = function(*given, **kept)
            shape = np.shape(entries)
            if not shape and type(entries) is np.ndarray:
                return None  # a view of one entry, and no number
            sample = _first_of(shape, entries.dtype)
        elif storing:
            given, kept = filled(args, [np.broadcast_to(_first(v), np.shape(v)) for v in values])
            whole = function(*given, **kept)
            shape, sample = whole.shape, _first_of(whole.shape, whole.dtype)
        elif elementwise:
            shapes = [np.shape(v) if type(v) is not Later else v.shape for v in values]
            constants = [x for x in positional if type(x) is not Ref]
            if any(isinstance(x, tuple | list | dict) for x in constants):
                return None
            shape = np.broadcast_shapes(*shapes, *map(np.shape, constants))
            given = tuple(x if type(x) is Ref else _first(x) for x in positional)
            sample = function(*filled(given, [_first(v) for v in values]))
            if type(sample) not in (np.ndarray, np.float64, np.float32, np.bool_):
                return None
        else:
            stand_ins = [np.broadcast_to(_first(v), v.shape) for v in values]
            if name != "scatter" and len(values) == 1:
                stand_ins[0] = _thin(stand_ins[0], positional, settings)
            given, kept = filled(args, stand_ins)
            sample = function(*given, **kept)
            shape = np.shape(sample)
    except Exception as error:
        hand_on(error)
        return None  # it raises what it raises
    return Later(function, args, values, sample, shape, viewing and shape != ())


def _thin(x: np.ndarray, positional: Any, settings: Any) -> np.ndarray:
    """The array, one entry long along the axes that are summed: for the shape and dtype of the sum."""
    axis = settings.get("axis", positional[1] if len(positional) > 1 else None)
    axes = range(x.ndim) if axis is None else axis if type(axis) is tuple else (axis,)
    kept = (i not in axes and i - x.ndim not in axes for i in range(x.ndim))
    return x[tuple(slice(None) if whole else slice(1) for whole in kept)]


def _first_of(shape: tuple[int, ...], dtype: np.dtype) -> Any:
    """One entry, as an array of as many axes."""
    one: Any = np.ones((1,) * len(shape), dtype)
    return one if shape else one[()]


def _shape_of_product(x: tuple[int, ...], y: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of `x @ y`. Raises ValueError where there is none."""
    if not x or not y or x[-1] != (y[-2] if len(y) > 1 else y[-1]):
        raise ValueError("shapes do not fit")
    batch = np.broadcast_shapes(x[:-2], y[:-2])
    return (*batch, *(x[-2:-1] if len(x) > 1 else ()), *(y[-1:] if len(y) > 1 else ()))


def _basic(value: Any) -> bool:
    """Whether settings or an index hold no array, so that indexing makes a view."""
    if type(value) in (tuple, list):
        return all(map(_basic, value))
    if type(value) is dict:
        return all(map(_basic, value.values()))
    if type(value) is slice:
        return _basic((value.start, value.stop, value.step))
    return type(value) in (int, str, type(None), type(Ellipsis))


def _first(value: Any) -> Any:
    """One entry like those of a value, as an array of as many axes."""
    if type(value) is Later:
        return _first_of(value.shape, value.sample.dtype)
    if isinstance(value, np.ndarray) and value.ndim:
        return np.ones((1,) * value.ndim, value.dtype)
    return value


_JOINING = ("concatenate", "stack")
_STORING = ("setitem", "copy_slices")
_SUMMING = ("sum", "mean", "max", "min", "scatter")


def _values(value: Any) -> Any:
    """Nested arguments with each traced value's value: for functions that look at shapes and dtypes only."""
    if type(value) is Traced:
        known = value.later() if value.large else value.value
        return np.broadcast_to(_first(known), known.shape) if type(known) is Later else known
    if type(value) in (tuple, list):
        return type(value)(map(_values, value))
    if type(value) is dict:
        return {k: _values(v) for k, v in value.items()}
    return value


def _view(part: Traced, of: Any, index: Any) -> Traced:
    """Remember what a part is a view of, if it is one."""
    if type(of) is not Traced:
        return part
    known, whole = (x.later() if x.large else x.value for x in (part, of))
    if known.view if type(known) is Later else _shares(known, whole):
        part.source = (of, index)
        of.views_of_root().add(part, of.root())
    return part


def _base_references(array: np.ndarray) -> int:
    return sys.getrefcount(array.base)


_OF_PICKED = _base_references(np.zeros((1, 1))[:, [0]])
"""The count where nobody else has the base, as of what NumPy picks at integer arrays and then turns into its order."""


def _alone(array: np.ndarray) -> bool:
    """Whether an array's memory is its own."""
    base = array.base
    if base is None:
        return True
    whole = type(base) is np.ndarray and base.base is None
    del base
    return whole and _base_references(array) <= _OF_PICKED


def _views_below(t: Tensor) -> Iterator[Tensor]:
    for view in views_of(t):
        yield view
        yield from _views_below(view)


def _taken_again(parent: Tensor) -> None:
    """The views of a tensor whose array became a traced value: parts of that value."""
    for view in views_of(parent):
        _, code, kw = view._view
        view._value = apply(OPS[code], (wrap(parent._value),), kw)._value
        _taken_again(view)


def _shares(part: Any, whole: Any) -> bool:
    """Whether a part lies in the memory of the whole. A result read at integer arrays may have a base as well, but another one."""
    alike = type(part) is type(whole) is np.ndarray
    return alike and storage.owner(part) is storage.owner(whole)


def _frozen(index: Any) -> Any:
    """An index that nobody changes later; lists become arrays, as NumPy reads them."""
    if type(index) is tuple:
        return tuple(_frozen(i) for i in index)
    if isinstance(index, Tensor):
        return index._value
    if type(index) is list:
        if any(isinstance(i, StandIn | Tensor) for i in index):
            return np.stack(
                [
                    np.asarray(i) if not isinstance(i, StandIn | Tensor) else _frozen(i)
                    for i in index
                ]
            )
        return np.array(index) if index else np.array(index, np.intp)
    return index


# ---------------------------------------------------------------------------------------- what programs call
#
# Functions of values that NumPy has only as methods or statements. A compiled program calls them by name.


def _astype(x: Any, dtype: Any) -> Any:
    return x.astype(dtype) if isinstance(x, np.ndarray | np.generic) else dtype.type(x)


def _python_number(x: Any) -> Any:
    return complex(x) if np.iscomplexobj(x) else float(x)


def _stored(x: Any, index: Any, value: Any) -> Any:
    out = np.array(x)
    out[index] = value
    return out


def _copied_into(x: Any, value: Any) -> Any:
    out = np.array(x)
    out[...] = value
    return out


def _at(ufunc: Any, x: Any, *args: Any) -> Any:
    out = np.array(x)
    ufunc.at(out, *args)
    return out


def _writer(function: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    out = np.array(x)
    function(out, *args, **kwargs)
    return out


def _written(
    trace: Trace,
    target: Any,
    what: str,
    function: Any,
    args: tuple[Any, ...],
    position: int,
    kwargs: dict[str, Any] | None = None,
) -> Any:
    """`target` after a write: a traced target stands for the result from now on."""
    if isinstance(target, tuple) and len(target) == 1:
        target = target[0]
        args = (*args[:position], target, *args[position + 1 :])
    if type(target) is not Traced:
        if trace.integers is None and isinstance(target, np.ndarray) and target.dtype.kind in "biu":
            raise IntoIntegers
        raise TraceError(
            f"{what} would write a traced value into a plain array ({_line()}), while its function is traced by tg.compile: the array "
            "would keep this run's value. Make the buffer a tensor, tg.zeros(...), or build the result with np.stack or np.where.",
            name="traced-store",
        )
    index, stored = args[1:] if function is _stored else (None, None)
    trace.write(
        target,
        lambda: trace.call(function, args, kwargs or {}, function.__name__[1:]),
        what,
        index,
        stored,
    )
    return target


# ---------------------------------------------------------------------------------------- operators and methods

_OPERATIONS: set[Any] = {
    _stored, _copied_into, _at, _astype, _made, _python_number, np.asarray, strong,
}  # fmt: skip
_BINARY = (
    "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift lt le gt ge eq ne".split()
)
_UFUNC_OF = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "floordiv": "floor_divide", "mod": "remainder",
    "pow": "power", "matmul": "matmul", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "lshift": "left_shift",
    "rshift": "right_shift", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "eq": "equal",
    "ne": "not_equal", "neg": "negative", "pos": "positive", "abs": "absolute", "invert": "invert",
}  # fmt: skip


_OPERANDS = (np.ndarray, np.generic, int, float, complex, list, tuple)


def _operate(self: Traced, operation: Any, args: tuple[Any, ...], name: str) -> Any:
    """The value of an operator, recorded; NotImplemented where the other operand or Python knows better."""
    for x in args:
        if (
            name == "mul"
            and isinstance(x, list | tuple)
            and self.node.dtype.kind in "iu"
            and self.number()
        ):
            return NotImplemented  # Python's: the sequence so many times
        if type(x) is not Traced and not isinstance(x, _OPERANDS):
            if type(x).__module__.startswith("scipy.sparse."):
                from ..sparse.arrays import met

                return met(_UFUNC_OF.get(name, name), *args)
            return NotImplemented
    return self.home.operate(operation, args, name)


# A program of scalars is thousands of operators on float64 numbers: these go a short way, which makes the same record.

_number = np.float64
_new = object.__new__


def _references_of_own() -> int:
    """What `_references` counts where nobody else has the array."""
    t: Any = _new(Traced)
    t.value = np.zeros(1)
    return t._references()


_OWN = _references_of_own()


def _recorded_number(trace: Trace, kind: type[Node], inputs: tuple[Node, ...], value: Any) -> Any:
    node: Any = _new(kind)
    node.inputs = inputs
    trace.graph.steps.append(node)
    return _number_of(trace, node, value)


def _number_of(trace: Trace, node: Any, value: Any) -> Any:
    """A number of float64 that a call computes."""
    t: Any = _new(Traced)
    t.source = None
    t.home = trace
    t.node = node
    t.value = value
    t.given = t.large = False
    t.fixed = True
    t.nbytes = 8
    return t


@cache
def _calls_of(ufunc: np.ufunc) -> tuple[Any, ...]:
    """The classes of the calls of a ufunc on one number, on two, on a number and a constant, and on a constant and a number."""
    return tuple(number_call(ufunc, ufunc.__name__, args) for args in (ONE, BOTH, None, None))


def _ufunc_of_numbers(ufunc: np.ufunc, trace: Trace, x: Any, y: Any = None) -> Any:
    """A ufunc of one or two numbers of float64 of an open trace, one of which may be Python's; None where it is something else."""
    nodes: tuple[Node, ...]
    args: Any = None
    if type(x) is Traced and x.home is trace and not x.large and type(x.value) is _number:
        if y is None:
            which, nodes, value = 0, (x.node,), ufunc(x.value)
        elif type(y) is float:
            which, nodes, value, args = 2, (x.node,), ufunc(x.value, y), (_FIRST, y)
        elif type(y) is Traced and y.home is trace and not y.large and type(y.value) is _number:
            which, nodes, value = 1, (x.node, y.node), ufunc(x.value, y.value)
        else:
            return None
    elif type(x) is float and type(y) is Traced and not y.large and type(y.value) is _number:
        which, nodes, value, args = 3, (y.node,), ufunc(x, y.value), (x, _FIRST)
    else:
        return None
    if type(value) is not _number:
        return None
    made = _recorded_number(trace, _calls_of(ufunc)[which], nodes, value)
    if args is not None:
        made.node.args = args
    return made


def _on_numbers(operation: Any, name: str, otherwise: Any) -> Any:
    """An operator of two values, as a method, and the same reflected."""
    both = number_call(operation, name, BOTH)
    first, second = number_call(operation, name, None), number_call(operation, name, None)

    def method(x: Traced, y: Any) -> Any:
        if not x.large and type(x.value) is _number and x.home.open:
            if type(y) is Traced:
                if not y.large and type(y.value) is _number and y.home is x.home:
                    inputs = (x.node, y.node)
                    return _recorded_number(x.home, both, inputs, operation(x.value, y.value))
            elif type(y) is float:
                made = _recorded_number(x.home, first, (x.node,), operation(x.value, y))
                made.node.args = (_FIRST, y)
                return made
        return otherwise(x, operation, (x, y), name)

    def reflected(y: Traced, x: Any) -> Any:
        if type(x) is float and not y.large and type(y.value) is _number and y.home.open:
            made = _recorded_number(y.home, second, (y.node,), operation(x, y.value))
            made.node.args = (x, _FIRST)
            return made
        return otherwise(y, operation, (x, y), name)

    return method, reflected


def _otherwise(self: Traced, operation: Any, args: tuple[Any, ...], name: str) -> Any:
    return (args[0] if type(args[0]) is Traced else self).home.operate(operation, args, name)


_strong_of = _on_numbers(strong, "strong_product", _otherwise)


def _strong_product(g: Any, p: Any) -> Any:
    return _strong_of[0](g, p) if type(g) is Traced else _strong_of[1](p, g)


def _binary_method(symbol: str) -> None:
    """Give Traced the operator of a symbol, its reflected form and its in-place form."""
    operation = getattr(operator, symbol + "_" if symbol in ("and", "or") else symbol)
    name = _UFUNC_OF[symbol]
    _OPERATIONS.add(operation)
    if symbol in ("add", "sub", "mul", "truediv"):
        method, reflected = _on_numbers(operation, name, _operate)
    else:

        def method(self: Traced, other: Any) -> Any:
            return _operate(self, operation, (self, other), name)

        def reflected(self: Traced, other: Any) -> Any:
            return _operate(self, operation, (other, self), name)

    def in_place(self: Traced, other: Any) -> Any:
        result = _operate(self, operation, (self, other), name)
        if result is NotImplemented or not self.ndim:
            return result
        return _written(self.home, self, f"x {symbol}= y", _copied_into, (self, result), 0)

    setattr(Traced, f"__{symbol}__", method)
    if symbol not in ("lt", "le", "gt", "ge", "eq", "ne"):
        setattr(Traced, f"__r{symbol}__", reflected)
        setattr(Traced, f"__i{symbol}__", in_place)


def _unary_method(symbol: str) -> None:
    operation = getattr(operator, symbol)
    name = _UFUNC_OF[symbol]
    _OPERATIONS.add(operation)
    alone = number_call(operation, name, ONE)

    def method(self: Traced) -> Any:
        if not self.large and type(self.value) is _number and self.home.open and symbol != "invert":
            return _recorded_number(self.home, alone, (self.node,), operation(self.value))
        return _operate(self, operation, (self,), name)

    setattr(Traced, f"__{symbol}__", method)


for _symbol in _BINARY:
    _binary_method(_symbol)
_BY_ENTRY = {f for f in _OPERATIONS if getattr(f, "__module__", "") == "_operator"} - {
    operator.matmul
}
_BY_ENTRY |= {operator.neg, operator.abs, strong, _made, _astype}
for _symbol in ("neg", "pos", "abs", "invert"):
    _unary_method(_symbol)


def _in_other_words(ufunc: Any, method: str, inputs: Any, settings: dict[str, Any]) -> Any:
    """A ufunc's method by functions that become machine code, as tensors say it; None where there are no such words."""
    if method == "outer" and not settings:
        x, y = (a if isinstance(a, np.ndarray) else np.asarray(a) for a in inputs)
        return ufunc(x.reshape(x.shape + (1,) * y.ndim), y)
    x = inputs[0]
    if (ufunc, method) not in _REWORDED or len(inputs) > 2 or type(x) is not Traced:
        return None
    if not x.ndim or x.dtype.kind != "f":  # sums of truth values are truth values here
        return None
    given = {"axis": 0, **dict(zip(("axis",), inputs[1:], strict=False)), **settings}
    if not given.keys() <= {"axis", "keepdims"} or (
        method == "accumulate" and type(given["axis"]) is not int
    ):
        return None
    return OF_UFUNCS[method][ufunc](x, **given)


_REWORDED = {(np.logaddexp, "reduce"), (np.add, "accumulate")}
"""Methods of ufuncs whose own call would be NumPy's."""


def _method(name: str, function: Any) -> None:
    def method(self: Traced, *args: Any, **kwargs: Any) -> Any:
        return function(self, *args, **kwargs)

    method.__name__ = name
    setattr(Traced, name, method)


for _name in METHODS:
    if _name not in vars(Traced):
        _method(_name, getattr(np, _name))


# ---------------------------------------------------------------------------------------- ops as single calls

_lock = locks.lock()
_recording = 0
_originals: list[tuple[Primitive, Any]] = []


_SEEN_THROUGH = frozenset(
    {
        "logsumexp",
        "softmax",
        "log_softmax",
        "strong_product",
        "iteration",
        "growing_loops",
        "collocation_step",
        "implicit_solution",
    }
)
"""Ops whose forward function is calls that are recorded themselves, and become machine code with what is around them."""


class OpCall:
    """The forward function of one of our ops, as the function of a node."""

    __slots__ = ("__name__", "op", "quiet", "run")

    def __init__(self, op: Primitive) -> None:
        self.op = op
        self.run = op.forward
        module = getattr(op.forward, "__module__", None) or ""
        # It runs no code of the user's; SciPy estimates norms of matrices at random points.
        own = module.startswith(("numpy", "tapegrad.ops", "tapegrad.face.inplace"))
        self.quiet = own and "matrix" not in module
        self.__name__ = op.name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.run(*args, **kwargs)


_CALLS: dict[int, OpCall] = {getitem.primitive.code: OpCall(getitem.primitive)}
_entry: Any = entry_call(_CALLS[getitem.primitive.code], ONE)


def _recorder(op: Primitive) -> Callable[..., Any]:
    """What an op's forward is while functions are traced: it records the call where an operand is traced."""
    call = _CALLS.setdefault(op.code, OpCall(op))
    reads = op.name == "getitem"

    def forward(*args: Any, **kwargs: Any) -> Any:
        """Record the call, or call the op where nothing is traced."""
        if reads and type(args[0]) is Traced:
            number = args[0].entry(kwargs["index"] if kwargs else args[1])
            if number is not None:
                return number
        found = _traced_in((args, kwargs))
        if found is None:
            return call(*args, **kwargs)
        result = found.home.call(call, args, kwargs, op.name)
        if op.name == "reshape":
            found.home.reshaped |= np.ndim(args[0]) > 1
        if op.name == "getitem":
            return _view(result, args[0], kwargs.get("index", args[-1]))
        if op.name in _BACK and type(result) is Traced and (op.name != "imag" or _complex(args[0])):
            return _view(result, args[0], _Rearranged(call, args[1:], kwargs))
        return result

    return forward


def _complex(x: Any) -> bool:
    """Whether the imaginary part of x is a view: that of a real array is zeros of its own."""
    return bool(x.dtype.kind == "c")


class _Rearranged:
    """How a view shows all entries of an array in another order or shape, or a part of each, where for others an index says which."""

    __slots__ = ("call", "kwargs", "rest")

    def __init__(self, call: OpCall, rest: Any, kwargs: dict[str, Any]) -> None:
        self.call, self.rest, self.kwargs = call, rest, kwargs


def _taken(whole: Traced, how: Any) -> Traced:
    """A view, as it is now."""
    if type(how) is _Rearranged:
        return whole.home.call(how.call, (whole, *how.rest), how.kwargs, how.call.op.name)
    return whole.home.call(operator.getitem, (whole, how), {}, "getitem")


def _put_back(whole: Traced, how: Any, part: Traced) -> Traced:
    """The array of which this is a view."""
    if type(how) is _Rearranged:
        op = how.call.op
        settings = dict(zip(op.settings, how.rest, strict=False)) | how.kwargs
        return _BACK[op.name](part, whole, **settings)
    return whole.home.call(_stored, (whole, how, part), {}, "setitem")


def _as_before(part: Traced, before: Traced, order: str = "C", **settings: Any) -> Any:
    return np.reshape(part, before.shape, order=order)  # type: ignore[call-overload]


def _of_parts(re: Any, im: Any) -> Any:
    """The complex array of these parts, to the bit: re + 1j * im is NaN where im is infinite."""
    out = np.empty(re.shape, np.result_type(re, np.complex64))
    out.real, out.imag = re, im
    return out


_BY_ENTRY.add(_of_parts)


_BACK: dict[str, Callable[..., Any]] = {
    "transpose": lambda part, before, axes=None: np.transpose(part, None if axes is None else np.argsort([a % len(axes) for a in axes])),
    "swapaxes": lambda part, before, axis1, axis2: np.swapaxes(part, axis1, axis2),
    "moveaxis": lambda part, before, source, destination: np.moveaxis(part, destination, source),
    # A copy: the array itself lies in memory forwards, and a reshape of it is a view as before.
    "flip": lambda part, before, axis=None: np.flip(part, axis).duplicate(),
    "reshape": _as_before, "expand_dims": _as_before, "squeeze": _as_before, "alias": _as_before,
    "real": lambda part, before: before.home.call(_of_parts, (part, np.imag(before)), {}, "of_parts"),
    "imag": lambda part, before: before.home.call(_of_parts, (np.real(before), part), {}, "of_parts"),
}  # fmt: skip
"""Of ops whose views show all entries, or one part of each: the array from such a view and what it was."""


def _traced_in(value: Any) -> Traced | None:
    """The first traced value in nested tuples, lists, dicts, slices or a tensor; None where there is none."""
    kind = type(value)
    if kind is Traced:
        return value
    if kind in (tuple, list):
        items: Any = value
    elif kind is dict:
        items = value.values()
    elif kind is slice:
        items = (value.start, value.stop, value.step)
    elif kind is Tensor:
        items = (value._value,)
    else:
        return None
    for item in items:
        found = _traced_in(item)
        if found is not None:
            return found
    return None


@contextmanager
def ops_recorded() -> Iterator[None]:
    """While this lasts, an op with a forward function of our own is recorded as one call if it meets a traced value.

    Other threads' ops take the same way round, which costs them a look at their arguments and changes nothing else.
    """
    global _recording
    counted: list[bool] = []
    try:
        with _lock:
            _recording += 1  # Ctrl-C comes in between calls only: both of these lines, or none
            counted.append(True)
            if not _originals:
                for op in list(OPS):
                    _record_calls(op)
                WHEN_DECLARED.append(_record_calls)  # some are when they are first asked for
        yield
    finally:
        try:
            _stop_recording(counted)
        except BaseException:
            _stop_recording(counted)
            raise


def _stop_recording(counted: list[bool]) -> None:
    """The end of `ops_recorded`; a second call does what the first was kept from."""
    global _recording
    with _lock:
        if counted:
            _recording -= 1
            del counted[:]
        if not _recording:
            if _record_calls in WHEN_DECLARED:
                WHEN_DECLARED.remove(_record_calls)
            while _originals:
                _set_forward(*_originals[-1])
                del _originals[-1]


def _record_calls(op: Primitive) -> None:
    # Entries of packed and freed values are never evaluated; what is put around a ufunc chooses by operators, which are recorded
    # themselves.
    own = op.evaluate is not None and not isinstance(op.forward, np.ufunc) and op.around is None
    if own and op.name not in _SEEN_THROUGH:
        _originals.append((op, op.forward))
        _set_forward(op, _recorder(op))


def _set_forward(op: Primitive, forward: Any) -> None:
    op.forward = forward
    namespace[f"forward_{op.code}"] = forward
    op.evaluate.__globals__["forward"] = forward  # type: ignore[attr-defined]


def traced_in(value: Any) -> Traced | None:
    """A traced value among nested arguments, if there is one."""
    return _traced_in(value)
