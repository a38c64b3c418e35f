"""Programs: what one call signature of a compiled function became, and the choice among them at each call.

A *signature* is all that may change a program besides values: the structure of the arguments, kind, dtype and shape of each
array, the values of the static ones, the grad mode. Arrays and Python's floats are dynamic; ints, bools, strings and
everything else are static. Each signature has a program for each set of values that Python looked at (`Guard`), the last used first.

Invariant: a program runs only on the signature that it was traced for, and its result counts only if all its guards held and
what the function reads beside its arguments is what it was (surroundings.py).
"""

from __future__ import annotations

import gc
import os
import sys
import time
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core import checking, handlers, locks, logs, storage
from ..core.elsewhere import foreign
from ..core.mode import WATCHERS, Off, is_grad_enabled
from ..core.sweep import operands
from ..core.tape import RECORDER, STRIDE, Leaf, own_tape
from ..core.tensor import Tensor, new, wrap
from ..errors import TraceError
from ..face.adoption import adopted
from ..transforms.derivatives import _flatten, _unflatten
from . import callout, keeping, outer, rolling, sharing, triangles
from .draws import Drawn, Draws, Suspects
from .graph import Graph, Guard, Node
from .guards import GuardFailed, Holds
from .report import Report
from .sources import MOST, Sources
from .surroundings import (
    MOST_NATIVE,
    Surroundings,
    Watched,
    held_elsewhere,
    looked_out,
    same_static,
    watched,
)
from .tracing import (
    OF_VALUES,
    Guessed,
    IntoIntegers,
    Later,
    LeftBehind,
    Long,
    Trace,
    Traced,
    ops_recorded,
)

if TYPE_CHECKING:
    from .native import Form

MOST_TRACES = 16
"""Programs of one signature, told apart by guards, before a function is refused: it reads values that are never the same twice."""


STRICT = bool(os.environ.get("TAPEGRAD_COMPILER_STRICT"))
"""Whether a program whose machine code cannot be made is an error (as in the tests), and not a slower program."""


class _Static:
    """An argument that is part of the signature."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Static) or type(self.value) is not type(other.value):
            return False
        return same_static(self.value, other.value)

    def __hash__(self) -> int:
        return hash((type(self.value), _hashable(self.value)))


def _hashable(value: Any) -> Any:
    """The value, with tuples in place of slices, which have no hash before Python 3.12."""
    if type(value) is slice:
        return value.start, value.stop, value.step
    return tuple(map(_hashable, value)) if type(value) is tuple else value


@dataclass(slots=True)
class Call:
    """One call's arguments, taken apart: the values of dynamic leaves, and the signature that they have."""

    values: list[Any]
    key: Any
    structure: Any
    kinds: list[Any]
    tensors: list[Tensor]
    alike: tuple[int, ...] = ()
    """Per dynamic leaf, the first that is the same object, if the function may ask for that; else nothing."""

    @property
    def tracked(self) -> bool:
        """Whether a tensor among the arguments is to be differentiated by."""
        return any(t._node is not None for t in self.tensors) and is_grad_enabled()


def taken_apart(
    args: tuple[Any, ...], kwargs: dict[str, Any], static: frozenset[int], compares: bool = False
) -> Call:
    """The arguments of a call as dynamic values and a signature. Raises TypeError for what can be neither.

    If the function `compares` objects, it is part of the signature which of them are the same.
    """
    tree: Any = (tuple(_Static(x) if i in static else x for i, x in enumerate(args)), kwargs)
    leaves, structure = _optree_flatten(tree)
    values: list[Any] = []
    kinds: list[Any] = []
    tensors: list[Tensor] = []
    alike: list[int] = []
    first: dict[int, int] = {}
    for leaf in leaves:
        kind = type(leaf)
        if isinstance(leaf, Tensor):
            tensors.append(leaf)
            value = _native(leaf._value)
            kinds.append(("tensor", value.dtype, value.shape))
        elif isinstance(leaf, np.ndarray):
            value = _native(_plain(leaf))
            kinds.append(("array", value.dtype, value.shape))
        elif isinstance(leaf, np.generic) and leaf.dtype.kind in "fciub":
            value = leaf
            kinds.append(("scalar", leaf.dtype, ()))
        elif kind is float or kind is complex:
            value = leaf
            kinds.append((kind,))
        else:
            if kind is not _Static and (what := foreign(leaf)):
                raise TypeError(f"a compiled function was given {what}.")
            kinds.append(leaf if kind is _Static else _Static(leaf))
            continue
        if compares:
            alike.append(first.setdefault(id(leaf), len(values)))
        values.append(value)
    mode = RECORDER.get()
    # Two structures of one kind may differ in the order of their dicts.
    order = tuple(_orders((args, kwargs)))
    key = (structure, tuple(kinds), mode if isinstance(mode, Off) else True, order, tuple(alike))
    try:
        hash(key)
    except TypeError as error:
        raise TypeError(
            f"a compiled function was given an argument that cannot be hashed ({error}), so it can be neither an array nor part of the "
            "signature. Pass numbers, arrays, tensors, or nested tuples, lists and dicts of them, and a sparse matrix of SciPy's as "
            "tg.sparse.csr_array(A); make others hashable."
        ) from None
    return Call(values, key, structure, kinds, tensors, tuple(alike))


def layouts(values: Sequence[Any]) -> tuple[Any, ...]:
    """How the arrays of a call lie in memory: their strides where axes are not in C order, else None."""
    return tuple(None if not np.ndim(x) or x.flags.c_contiguous else x.strides for x in values)


def _orders(tree: Any) -> Iterator[tuple[Any, ...]]:
    """The keys of each dict of several, in their order."""
    if isinstance(tree, dict):
        if len(tree) > 1:
            yield tuple(tree)
        for value in tree.values():
            yield from _orders(value)
    elif isinstance(tree, tuple | list):
        for value in tree:
            if isinstance(value, dict | tuple | list):
                yield from _orders(value)


def _optree_flatten(tree: Any) -> tuple[list[Any], Any]:
    from ..transforms.derivatives import tree_flatten

    return tree_flatten(tree, none_is_leaf=True)


def _plain(array: np.ndarray) -> np.ndarray:
    if type(array) is np.ndarray:
        return array
    if isinstance(array, np.matrix | np.ma.MaskedArray):
        raise TypeError(
            f"a compiled function was given a {type(array).__name__}, whose operators mean something else than an array's. Pass "
            "np.asarray(matrix), or array.filled(0.0)."
        )
    return array.view(np.ndarray)


def _native(value: Any) -> Any:
    """A value of numbers in this machine's byte order."""
    if value.dtype.kind not in "fciub":
        raise TypeError(
            f"a compiled function was given an array of dtype {value.dtype}, but programs compute with numbers and booleans. Mark the "
            "argument as static (static_argnums), or convert it with astype."
        )
    return value if value.dtype.isnative else value.astype(value.dtype.newbyteorder("="))


class Program:
    """A traced function for one signature and one set of guarded values."""

    written: Any = None
    """A place that the trace changed, and where the function's code writes."""

    compares = False
    laid = False
    alone: Program | None = None
    """The program without calls of programs of the form, where it has been asked for (`by_itself`)."""

    def __init__(
        self,
        graph: Graph,
        leaves: Sequence[Any],
        structure: Any,
        call: Call,
        name: str,
        slow: Callable[..., Any] | None = None,
        seconds: float = 0.0,
        around: Sequence[Watched] = (),
    ) -> None:
        """Optimise a traced graph, compile what has code, and write the calls of the rest."""
        self.around = list(around)  # what the function reads beside its arguments
        self.lasting = True
        """Whether it serves other calls: the trace did not change what the function reads."""
        as_tensors = bool(call.tensors)
        self.direct: Any = None  # the entry that takes the user's arguments as they are
        self.flat: Any = None  # the entry that takes them one by one
        self.native: Any = None
        self.graph = sharing.shared(graph.pruned())
        self.graph = rolling.trimmed(keeping.kept(rolling.trimmed(self.graph)).pruned())
        self.recorded = sum(1 for _ in self.graph.nodes)
        graph.steps.clear()
        del graph
        self.guards = [step for step in self.graph.steps if type(step) is Guard]
        self.structure = structure
        self.leaves = list(
            leaves
        )  # per leaf of the result: None for the next output, or the constant in a tuple
        self.as_tensors = as_tensors
        self.natives: list[Any] = []
        self.weak: list[int] = []  # outputs that are Python's own numbers
        self.calls: Any = None
        self.why = ""
        self.seconds = seconds
        run = self.graph
        direct = False  # whether arguments are taken as they are
        try:
            from ..llvm import jit
            from . import islands, nesting, partition
            from .arrays import C16, F8
            from .native import Form

            outputs = self.graph.outputs
            self.weak = [k for k, y in enumerate(outputs) if isinstance(y, Node) and y.weak]
            numbers = all(outputs[k].dtype in (F8, C16) for k in self.weak)
            plain = not as_tensors and numbers
            plain = plain and not call.alike  # nor does an entry look which arguments are one
            form = _form(call, self.leaves, structure, self.around, self.weak) if plain else None
            direct = form is not None
            if (
                form is None
            ):  # the arguments come one by one, and there is nobody to ask but the code itself
                form, slow = Form.flat(len(self.graph.inputs), leaves.count(None)), None
            if len(self.graph.steps) < rolling.WORTH:
                self.native = partition.whole(self.graph, name, form, slow)
            if self.native is None:
                self.graph = outer.products_behind(
                    rolling.rolled(self.graph)
                )  # what it was is not needed any more
                self.native = nesting.nested(self.graph, name, form, slow)
            if self.native is not None:
                self.natives = [self.native]
                seen = len(self.around) <= MOST_NATIVE and all(w.native for w in self.around)
                if direct:
                    self.direct = self.native.entry if seen and jit.entry_works() else None
                else:
                    self.flat = self.native.entry if jit.entry_works() else None
            else:
                run, natives = islands.islands(self.graph, name)
                run, self.natives = partition.compiled(run, name)
                self.natives = natives + self.natives
        except Exception as error:
            handlers.hand_on(error)
            if STRICT or checking.on():  # what runs as calls is not checked
                raise
            self.why = f"{type(error).__name__}: {error}"
            warnings.warn(
                f"{name} runs as NumPy calls, because its machine code could not be made ({self.why}).",
                RuntimeWarning,
                stacklevel=5,
            )
        self.called: Any = None  # NumPy's calls one by one, where there is no entry of machine code
        self.text = ""
        if self.native is None:
            self.called, self.text = callout.written(run, name)
        self.executed = run
        if direct and self.native is None:
            self.direct = callout.straight(self, call.kinds)

    def by_itself(self, f: Callable[..., Any], call: Call, name: str) -> Program:
        """The program, or one that calls no program of the form: one piece of machine code, where it has to be that."""
        if self.native is not None or not any(map(triangles.is_call, self.graph.nodes)):
            return self
        if self.alone is None:
            unrolled = {triangles.KEY: "one piece of machine code"}
            self.alone, _ = traced(f, call, name, None, unrolled)
        return self.alone

    def outdated(self) -> Watched | None:
        """What the function read beside its arguments and is no longer the same."""
        return next((w for w in self.around if w.changed()), None)

    def run(self, *values: Any) -> Sequence[Any]:
        """The outputs: by the entry that takes values one by one, by the slower one, or by NumPy's calls."""
        if self.native is None:
            return self.called(*values)
        if not self.flat:
            return self._python_numbers(self.native.by_table(values))
        outputs = self.flat(*values)
        return self._python_numbers(outputs if self.native.shown > 1 else (outputs,))

    def _python_numbers(self, outputs: Sequence[Any]) -> Sequence[Any]:
        """The outputs, of which some were Python's own numbers when they were traced."""
        if not self.weak:
            return outputs
        return [x.item() if k in self.weak else x for k, x in enumerate(outputs)]

    @property
    def source(self) -> str:
        """A readable listing: the calls, and the loops of each native part."""
        return "\n".join(
            [
                *([self.text] if self.text else []),
                *(f"native part {i}:\n{n.listing}" for i, n in enumerate(self.natives)),
            ]
        )

    def report(self, name: str) -> Report:
        """What the program consists of."""
        names = [n.name for n in self.executed.nodes if not isinstance(n.function, Holds)]
        calls = [name for name in names if not name.startswith("native") and not name.endswith("]")]
        return Report.of(
            name,
            self.recorded,
            self.natives,
            calls if self.native is None else [],
            self.guards,
            self.seconds,
        )

    def __call__(self, values: Sequence[Any]) -> Any:
        """The function's result for these values. Raises GuardFailed where it is not this program's to compute."""
        with np.errstate(all="ignore"):
            outputs = self.run(*values)
        return self.result(outputs)

    def demand_own_call(self, values: Sequence[Any]) -> None:
        """See that the program takes the call that it was traced for; where machine code rounds otherwise, by NumPy's calls.

        A guard compares a number that Python looked at with what the program computes. Sums of machine code and of NumPy differ in
        their last digits, so a guard of such a sum would fail even for the arguments of the trace, in each call.
        """
        if not any(_is_rounded(guard.value) for guard in self.guards):
            return
        try:
            self(values)
        except GuardFailed:
            try:
                self.by_calls(values)
            except (
                Exception
            ) as error:  # the function raises for these, or looks at what is never the same
                handlers.hand_on(error)
                return
            self.native, self.natives, self.direct, self.flat = None, [], None, None
            self.called, self.text = callout.written(self.graph, "calls")
            self.executed = self.graph
        except Exception as error:  # what the function itself will say when it is called
            handlers.hand_on(error)
            return

    def by_calls(self, values: Sequence[Any]) -> Any:
        """The same by NumPy's calls: where machine code has found what they raise for."""
        if self.calls is None:
            self.calls = callout.written(self.graph, "calls")[0]
        with np.errstate(all="ignore"):
            outputs = self.calls(*values)
        return self.result(outputs)

    def result(self, outputs: Sequence[Any]) -> Any:
        """The outputs, as the function returns them: in its structure, tensors if tensors came in."""
        given = iter(outputs)
        leaves = []
        for leaf in self.leaves:
            if leaf is None:
                value = next(given)
                leaves.append(
                    wrap(
                        value
                        if isinstance(value, np.ndarray | np.generic)
                        else np.asarray(value)[()]
                    )
                    if self.as_tensors
                    else value
                )
            else:
                leaves.append(leaf[0])
        return _unflatten(self.structure, leaves)


def _form(
    call: Call,
    leaves: Sequence[Any],
    structure: Any,
    around: Sequence[Watched],
    weak: Sequence[int],
) -> Form | None:
    """How arguments and result of a program look, if its entry can take them apart: nested tuples, lists and dicts, no keywords."""
    import optree

    objects: list[Any] = []
    count = iter(range(len(call.values)))
    marked = []
    for kind in call.kinds:
        if isinstance(kind, _Static):
            objects.append(kind.value)
            marked.append(("object", len(objects) - 1))
        else:
            marked.append(("leaf", next(count)))
    args, kwargs = optree.tree_unflatten(call.structure, [_Marked(m) for m in marked])
    given = iter(range(leaves.count(None)))
    results = []
    for leaf in leaves:
        if leaf is None:
            results.append(("leaf", next(given)))
        else:
            objects.append(leaf[0])
            results.append(("object", len(objects) - 1))
    whole = _unflatten(structure, [_Marked(m) for m in results])
    trees = [_tree(x, objects) for x in args]
    result = _tree(whole, objects)
    if kwargs or result is None or any(t is None for t in trees):
        return None
    from .native import Form

    places = around if len(around) <= MOST_NATIVE and all(w.native for w in around) else ()
    return Form(trees, result, objects, places, weak)


class _Marked:
    """A leaf's place in a structure."""

    __slots__ = ("tree",)

    def __init__(self, tree: Any) -> None:
        self.tree = tree


def _tree(value: Any, objects: list[Any]) -> Any:
    """The nesting of marked leaves in `value` as tuples ("list", ...), with dict keys appended to `objects`; None for other values."""
    if isinstance(value, _Marked):
        return value.tree
    kind = type(value)
    if kind not in (tuple, list, dict):
        return None
    parts = [_tree(x, objects) for x in (value.values() if kind is dict else value)]
    if any(p is None for p in parts):
        return None
    if kind is not dict:
        return (kind.__name__, *parts)
    if any(type(key) is not str for key in value):
        return None  # to compare others may run code of the user's
    objects += value
    return ("dict", tuple(range(len(objects) - len(parts), len(objects))), *parts)


def traced(
    f: Callable[..., Any],
    call: Call,
    name: str,
    slow: Callable[..., Any] | None = None,
    unrolled: Mapping[Any, str] = MappingProxyType({}),
) -> tuple[Program, list[Any]]:
    """Run `f` once on traced values: the program, and the outputs of this very run.

    It runs again where a loop has to be traced in another way; those with the keys `unrolled` are from the start. It runs again, too, where
    random numbers were drawn, and another thread may have been who drew; where the trace is so long that sources are read instead; and
    where computed values go into buffers of whole numbers.
    """
    exact, suspects = False, Suspects()
    integers: bool | None = None
    reading: Sources | None = None
    bound = 0 if triangles.KEY in unrolled else MOST
    while True:
        try:
            return _traced(f, call, name, slow, unrolled, exact, suspects, reading, bound, integers)
        except Long:
            reading, bound = Sources(), 0
        except Drawn:
            if suspects.settled():
                raise
        except Guessed:
            exact = True
        except IntoIntegers:
            integers = True
        except LeftBehind as loop:
            if loop.key in unrolled:
                raise TraceError(
                    f"{name} was compiled, and {loop} met a value of another trace.",
                    name="left-placeholder",
                ) from None
            unrolled = {**unrolled, loop.key: str(loop)}
            if loop.key == triangles.KEY:
                reading, bound = None, 0
        except Exception:
            if reading is not None and reading.used:
                reading = None
            elif integers:
                integers = False  # such tensors went where only arrays can
            else:
                raise


def _traced(
    f: Callable[..., Any],
    call: Call,
    name: str,
    slow: Callable[..., Any] | None,
    unrolled: Mapping[Any, str],
    exact: bool,
    suspects: Suspects,
    reading: Sources | None,
    bound: int,
    integers: bool | None,
) -> tuple[Program, list[Any]]:
    """A run of `f` as a program, and its outputs."""
    import optree

    start = time.perf_counter()
    static = [kind.value for kind in call.kinds if isinstance(kind, _Static)]
    reads = Surroundings(f, static)
    draws = Draws(reads.generators)
    trace = Trace(draws)
    trace.unrolled, trace.exact = unrolled, exact
    trace.sources, trace.bound, trace.integers = reading, bound, integers
    token = storage.tracing.set(trace)
    own = own_tape()
    own.tape.plain |= not call.tensors
    asked: list[str] = []  # who asked for the grad mode, outside this library

    def watcher() -> None:
        module = sys._getframe(2).f_globals.get("__name__", "")
        if not module.startswith("tapegrad."):
            asked.append(module)

    WATCHERS.append(watcher)
    try:
        with own, ops_recorded():
            if isinstance(own.recorder, Off):
                RECORDER.set(own.recorder)
            _demand_asked(name, call, reads)
            given = iter(call.values)
            arguments = []
            for kind in call.kinds:
                if isinstance(kind, _Static):
                    arguments.append(kind.value)
                    continue
                value = trace.input(next(given))
                arguments.append(value if kind[0] in (float, complex) else _tensor(value))
            if call.alike:
                arguments = _the_same(arguments, call)
            args, kwargs = optree.tree_unflatten(call.structure, arguments)
            try:
                with looked_out(name, reads.volatile), draws.noted(suspects.traces > 0):
                    output = adopted(f)(*args, **kwargs)
            except Exception as error:
                if isinstance(error, ValueError) and "is read-only" in str(error):
                    raise TraceError(
                        f"{name} writes into a large array from outside, or into a plain array of a traced value, while it is traced by "
                        f"tg.compile ({error}): a compiled program would not. Pass a copy as an argument and return the result.",
                        name="traced-store",
                    ) from error
                if type(error).__module__.startswith("numba."):
                    raise TraceError(
                        f"{name} calls a function compiled by Numba, which does not take the values of a traced run "
                        f"({type(error).__name__}). Make it one of tg.njit, g = tg.njit(g): its calls are part of a compiled program.",
                        name="outside-program",
                    ) from error
                raise
            if trace.failed is not None:
                raise TraceError(
                    f"{name} caught an error of {trace.failed} while it was traced by tg.compile: whether there is one depends on the "
                    "values of this call. Choose by a condition instead, computed with NumPy's functions.",
                    name="frozen-value",
                )
            leaves, structure = _flatten(output) if output is not None else ([None], None)
            outputs, described, values = _outputs(leaves, trace, own)
            trace.open = False
    finally:
        trace.arguments.clear()
        WATCHERS.remove(watcher)
        storage.tracing.reset(token)
    suspects.demand_none(draws, name)
    trace.graph.outputs = outputs
    del own, leaves, output  # what they hold would seem to be somebody else's
    met, trace.met, trace.wholes = list(trace.met.values()), {}, {}
    written = [w for w in reads.found if w.changed()]
    around = watched(Surroundings(f, static).found if not written else (), held_elsewhere(met))
    seconds = time.perf_counter() - start
    graph = trace.graph if triangles.KEY in unrolled else triangles.formed(trace.graph)
    program = Program(graph, described, structure, call, name, slow, seconds, around)
    if asked:  # entries do not look at the mode
        program.direct = None
    if written:
        program.around, program.written = written, (written[0], reads.lines)
        program.lasting, program.direct = False, None
    program.compares = reads.compares
    program.laid = trace.laid
    if trace.laid and any(layouts(call.values)):  # entries take arrays in C order
        program.direct = None
    return program, values


def _the_same(arguments: list[Any], call: Call) -> list[Any]:
    """The arguments, with one object wherever the call had one."""
    dynamic = [i for i, kind in enumerate(call.kinds) if not isinstance(kind, _Static)]
    found = list(arguments)
    for i, k in zip(dynamic, call.alike, strict=True):
        found[i] = arguments[dynamic[k]]
    return found


def _demand_asked(name: str, call: Call, reads: Surroundings) -> None:
    """Raise where the function may ask for the kind of a NumPy scalar: inside it is a tensor, as an array is."""
    for kind in call.kinds:
        if isinstance(kind, _Static) or kind[0] != "scalar":
            continue
        other = {"int", "integer", "int64", "int32", "Integral"}
        both = {"number", "Number", "generic", "isscalar"}
        asked = reads.kinds - other if kind[1].kind in "fc" else reads.kinds & (other | both)
        if asked:
            raise TraceError(
                f"{name} was given a NumPy scalar ({kind[1]}) and asks for kinds of numbers ({', '.join(sorted(asked))}), but inside "
                "tg.compile a NumPy scalar is a tensor, as an array is: the answer would be another one. Pass float(k), int(k) or "
                "np.asarray(k), or ask for its dtype or shape (np.ndim(k) == 0).",
                name="frozen-value",
            )


def _tensor(value: Traced) -> Tensor:
    t = new(Tensor)
    t._value = value
    t._node = None
    return t


def _outputs(
    leaves: Sequence[Any], trace: Trace, own: own_tape
) -> tuple[list[Any], list[Any], list[Any]]:
    """Nodes of the outputs, a description of every leaf of the result, and the outputs' values in this run."""
    nodes: list[Any] = []
    described: list[Any] = []
    values: list[Any] = []
    for leaf in leaves:
        if isinstance(leaf, Tensor):
            if leaf._node is not None and _from_outside(leaf._node, own):
                raise TraceError(
                    "a compiled function returned a tensor that depends on a tracked tensor which is not among its arguments (it closes "
                    "over one that requires grad), so its gradient would be lost. Pass that tensor as an argument, or detach() it.",
                    name="reads-outside",
                )
            leaf = leaf._value
            if type(leaf) is not Traced:
                leaf = np.asarray(leaf)
        if type(leaf) is Traced:
            if leaf.home is not trace:
                leaf = trace.adopted(leaf)
            nodes.append(leaf.node)
            described.append(None)
            later = leaf.later() if leaf.large else leaf.value
            values.append(later if type(later) is Later else callout._output(later))
        elif isinstance(leaf, np.ndarray | np.generic):
            nodes.append(np.array(leaf)[()])
            described.append(None)
            values.append(callout._output(leaf))
        else:
            described.append((leaf,))
    return nodes, described, values


def _from_outside(node: Any, own: own_tape) -> bool:
    """Whether a tracked result depends on something tracked that was not made while tracing."""
    code = own.tape.code
    unseen, seen = [node], set()
    while unseen:
        node = unseen.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if isinstance(node, Leaf):
            if not isinstance(node.data, Traced):
                return True
            continue
        position = own.tape.find(node)
        if position is None:
            return True
        unseen.extend(operands(code, position * STRIDE))
    return False


@contextmanager
def _uncollected() -> Iterator[None]:
    """A trace makes many objects and drops few: collections would look through all of them again and again."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def _made(values: Sequence[Any]) -> list[Any]:
    """The outputs of a traced run, computed."""
    return [callout._output(v.value()) if type(v) is Later else v for v in values]


def _is_rounded(value: Any) -> bool:
    """Whether a value that Python saw is a number that is rounded: not a truth value or a whole number."""
    return np.asarray(value).dtype.kind in "fc"


class Programs:
    """The programs of one function, by signature: at most `most` signatures, the least recently used dropped first."""

    def __init__(self, f: Callable[..., Any], name: str, most: int) -> None:
        """No program yet; `prefer` and `before_trace` are set by who wants to hear of a program that is used again, and of a trace."""
        self.f = f
        self.name = name
        self.most = most
        self.by_key: OrderedDict[Any, list[Program]] = OrderedDict()
        self.lock = locks.rlock()
        self.slow: Any = None  # where entries send what they do not take
        self.used: Any = None  # the program of the last call
        self.dropped = 0  # programs that were outdated
        self.changing = 0  # traces in a row that changed what the function reads
        self.compares = False  # whether the function asks if two objects are one
        self.changed = ""  # what the last program was dropped for
        self.laid = False  # whether the layout of arguments may decide what a store reaches
        self.prefer: Callable[[Program], None] = lambda program: None
        self.before_trace: Callable[[Programs], None] | None = None  # raises to forbid it

    def run(self, call: Call) -> Any:
        """The result of a call."""
        return self.answered(call)[0]

    def answered(self, call: Call) -> tuple[Any, Program]:
        """The result of a call, by the program that fits, and that program; traced first where there is none."""
        for program in self.fitting(call):
            changed = program.outdated()
            if changed is not None:
                self.drop(self.key(call), program, changed)
                continue
            try:
                result = program(call.values)
            except GuardFailed:
                if program.guards:
                    continue
                try:
                    return program.by_calls(call.values), program
                except (
                    GuardFailed,
                    *OF_VALUES,
                ):  # an error that the function may catch: it tells itself
                    continue
            except MemoryError:
                raise
            except Exception as error:
                # Perhaps a call that the function does not make of these values, before the guard that says so, or an error that the
                # function catches: it tells itself.
                handlers.hand_on(error)
                if program.guards or isinstance(error, OF_VALUES):
                    continue
                raise
            if program.direct is not None and self.used is program:
                self.prefer(program)
            self.used = program
            return result, program
        return self.trace(call)

    def key(self, call: Call) -> Any:
        """The signature of a call, as far as it matters to this function."""
        return (call.key, layouts(call.values)) if self.laid else call.key

    def fitting(self, call: Call) -> list[Program]:
        """The programs of a call's signature, the last traced first."""
        with self.lock:
            key = self.key(call)
            programs = self.by_key.get(key)
            if programs is None:
                return []
            self.by_key.move_to_end(key)
            return list(programs)

    def only(self) -> Program | None:
        """The only program that there is; None where there are none or several."""
        with self.lock:
            programs = [program for kind in self.by_key.values() for program in kind]
            return programs[0] if len(programs) == 1 else None

    def drop(self, key: Any, program: Program, changed: Watched) -> None:
        """Forget a program that is not the function's any more, and say so where that happens again and again."""
        with self.lock:
            if program in self.by_key.get(key, ()):
                self.by_key[key].remove(program)
                self.dropped += 1
                self.changed = changed.told()
        if self.dropped == MOST_TRACES:
            warnings.warn(
                f"{self.name} was traced {self.dropped} times anew, because something changes that it reads beside its arguments "
                f"({changed.told()}). That takes much longer than a call: pass it as an argument.",
                RuntimeWarning,
                stacklevel=4,
            )

    def _why(self, known: list[Program]) -> str:
        """Why there is no program for a call."""
        if known:
            told = "; ".join(
                dict.fromkeys(f"{g.what} at {g.where}" for p in known for g in p.guards)
            )
            return f"a value that Python looks at is another one ({told or 'memory that arguments share'})"
        if self.changed:
            changed, self.changed = self.changed, ""
            return f"something that it reads beside its arguments has changed ({changed})"
        if not self.by_key:
            return "the first call"
        return f"a call with other types, shapes or constants than the {len(self.by_key)} known"

    def trace(self, call: Call) -> tuple[Any, Program]:
        """Trace a program for this call and keep it; the result is that of the traced run itself."""
        if self.before_trace is not None:
            self.before_trace(self)
        known = self.fitting(call)
        why, start = self._why(known), time.perf_counter()
        if len(known) >= MOST_TRACES:
            guards = {g.where: g for program in known for g in program.guards}
            told = "; ".join(f"{g.what} at {where}" for where, g in list(guards.items())[:3])
            told = told or "how many entries a mask selects (x[x > 0])"
            raise TraceError(
                f"{self.name} was traced {len(known)} times for one signature, because Python looks at values that change from call to "
                f"call: {told}. Such a value is fixed in the program and checked at each call. Write choices with tg.where, compute "
                "with NumPy's functions instead of math's, write loops over values with tg.njit, or name the argument in "
                "static_argnums if it takes few values.",
                name="frozen-value",
            )
        with _uncollected():
            program, values = traced(self.f, call, self.name, self.slow)
        logs.tell(
            "%s was traced and compiled in %.3f s: %s", self.name, time.perf_counter() - start, why
        )
        if not program.lasting:
            self.changing += 1
            if self.changing > 1:
                raise self._changes(*program.written)
            return program.result(_made(values)), program
        self.changing = 0
        if program.compares and not self.compares:
            self.compares = True  # then calls are told apart by that, too
            program.direct = None
            if len({id(value) for value in call.values}) < len(call.values):
                # This trace gave one array two names: the answer may be that for two.
                raise TraceError(
                    f"{self.name} asks whether two of its arguments are one object (`x is y`), and was first called with one array in "
                    "two places, which a first trace cannot tell. Call it again: from now on such calls are told apart.",
                    name="frozen-value",
                )
            return program.result(_made(values)), program
        program.demand_own_call(call.values)
        with self.lock:
            self.laid |= program.laid
            key = self.key(call)
            self.by_key.setdefault(key, []).insert(0, program)
            self.by_key.move_to_end(key)
            while len(self.by_key) > self.most:
                self.by_key.popitem(last=False)
        if program.direct is not None:
            self.prefer(program)
        if any(type(value) is Later for value in values):
            try:
                return program(call.values), program
            except GuardFailed:
                # Rounding errors are not those of the traced run, or the function will raise.
                values = _made(values)
        return program.result(values), program

    def _changes(self, place: Watched, lines: dict[str, tuple[int, str]]) -> TraceError:
        """The error about a function that changes what it reads, each time."""
        known = lines.get(place.name) or next(
            iter(sorted(lines.values())), (0, "no line of its own")
        )
        return TraceError(
            f"{self.name} changes what it reads beside its arguments ({place.told()}; {known[1]}) each time that it runs, which a compiled "
            "program would not. Pass it as an argument and return the new value.",
            name="reads-outside",
        )
