"""`tg.njit`: a Numba function that has derivatives.

A `NativeFunction` holds Numba's dispatcher and, per signature of arguments and set of differentiated parameters, a compiled adjoint
or tangent. Called on arrays and numbers it is Numba's function; on tensors it is one entry of the tape (`entry`). Transforms ask it
for a gradient directly where nothing outside is tracked, which costs one call of compiled code.

Invariant: a derivative never writes to the caller's arrays. Arrays that the function writes are copied first, and if such an
array shares memory with another argument the call is refused.
"""

from __future__ import annotations

import functools
import inspect
import linecache
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

import numba
import numpy as np
from numba.core import types
from numba.core.dispatcher import Dispatcher
from numba.extending import typeof_impl

from ..core import checking, handlers, headroom, locks, logs, markup
from ..core.storage import StandIn
from ..core.tensor import Tensor
from ..errors import NotDifferentiable
from ..face.adoption import unadopted
from ..program import running
from . import (
    adjoint,
    chunks,
    directions,
    finishing,
    formed,
    inference,
    lowering,
    outlining,
    pairs,
    runtime,
    settling,
    special,
    store,
)
from .arguments import joined, leaves_of, real_leaves, seeds_for
from .complaints import COMPLAINTS, complains, interrupted, retold
from .inference import load
from .lowering import Custom, python_function
from .options import checked
from .pipelines import compiling
from .tree import TEMP, Const, Loop, Seg, operations

if TYPE_CHECKING:
    from .overloading import Overloaded

_OPTIONS: dict[str, Any] = {"error_model": "numpy"}
"""Division by zero gives inf, as in NumPy, and lets loops vectorise."""


P = ParamSpec("P")
R = TypeVar("R")


class NativeFunction(Generic[P, R]):
    """A jitted function with derivatives; made by `tg.njit`.

    >>> import numpy as np, tapegrad as tg
    >>> @tg.njit
    ... def power(x, n):
    ...     y = 1.0
    ...     for _ in range(n):
    ...         y *= x
    ...     return y
    >>> power(2.0, 3), tg.grad(power)(2.0, 3)
    (8.0, 12.0)
    >>> power.explain().partition(":")[0], power.signatures, len(power.overloads)
    ('engine', [(float64, int64)], 1)
    >>> len(power.inspect_llvm()), len(power.inspect_asm()), power.stats.cache_path
    (1, 1, None)
    >>> power.recompile()
    """

    def __init__(
        self, dispatcher: Any, limit: int | None = None, snapshots: int = 0, mode: str = "auto"
    ) -> None:
        """Wrap a Numba dispatcher; `limit` is the most memory that a derivative keeps, `snapshots` the states that outer loops keep."""
        if not hasattr(dispatcher, "py_func"):
            raise TypeError(
                f"NativeFunction was given {type(dispatcher).__name__}, but takes a function that Numba has jitted: write tg.njit(f)."
            )
        self.dispatcher = dispatcher
        self.mode = mode
        self.py_func = dispatcher.py_func
        self.limit = limit or runtime.memory_limit()
        self.snapshots = snapshots
        self.signature = inspect.signature(self.py_func)
        special.register_named(self.py_func)
        kept = getattr(getattr(dispatcher, "_cache", None), "frozen", None)
        self.frozen = kept or store.Frozen(self.py_func)
        self.variants: dict[Any, Variant] = {}
        self.latest: Derived | Overloaded | formed.ByForm | None = None
        self._by_types: dict[tuple[Any, ...], Variant] = {}
        self._flat: dict[Any, NativeFunction] = {}
        self._lock = locks.rlock()
        for name in ("__name__", "__qualname__", "__doc__", "__module__"):
            setattr(self, name, getattr(self.py_func, name, None))
        self.__wrapped__ = self.py_func

    def __reduce__(self) -> tuple[Any, ...]:
        """Numba's dispatcher, and the source from which derivatives are made: another process need not have the file."""
        file = self.py_func.__code__.co_filename
        made = (self.dispatcher, self.limit, self.snapshots, self.mode)
        return _shipped, (made, file, linecache.getlines(file))

    @property
    def signatures(self) -> list[Any]:
        """The types of arguments that the function is compiled for, as Numba's `signatures`."""
        return self.dispatcher.signatures

    @property
    def overloads(self) -> Any:
        """Numba's results of compiling, by the types of arguments."""
        return self.dispatcher.overloads

    @property
    def stats(self) -> Any:
        """Numba's counts of hits and misses of its cache."""
        return self.dispatcher.stats

    def inspect_types(self, file: Any = None, **settings: Any) -> Any:
        """Print the function's source with the types that Numba found; as Numba's method of that name."""
        return self._anew().inspect_types(file, **settings)

    def inspect_llvm(self, signature: Any = None) -> Any:
        """LLVM IR of the function itself by signature; that of derivatives is not among it."""
        return self._anew().inspect_llvm(signature)

    def inspect_asm(self, signature: Any = None) -> Any:
        """Machine code of the function itself as text, by signature."""
        return self._anew().inspect_asm(signature)

    def parallel_diagnostics(self, signature: Any = None, level: int = 1) -> None:
        """Print what Numba made parallel in the function itself; `explain()` tells of its derivatives.

        Raises ValueError where the function was compiled without `parallel=True`.
        """
        if not self.dispatcher.targetoptions.get("parallel"):
            raise ValueError(
                f"parallel_diagnostics was asked of {self.__qualname__}, which was compiled for one thread. Write tg.njit(parallel=True)."
            )
        self._anew().parallel_diagnostics(signature, level)

    def recompile(self) -> None:
        """Compile the function and its derivatives anew, after a global that it reads has changed.

        Other jitted functions that call it keep what they have compiled, as with Numba.
        """
        fresh = self._made()
        for signature in self.signatures:
            fresh.compile(signature)
        self.__init__(fresh, self.limit, self.snapshots, self.mode)  # type: ignore[misc]

    def _made(self, kept: bool = True) -> Any:
        """Another dispatcher of the same function, compiled as this one."""
        options = dict(self.dispatcher.targetoptions)
        options.pop("nopython", None)
        made = numba.njit(**options, locals=self.dispatcher.locals)(self.py_func)
        return store.keeping(made) if kept else made

    def _anew(self) -> Any:
        """A dispatcher whose code was compiled here: what comes from a cache cannot be looked into."""
        made = self._made(kept=False)
        for signature in self.signatures:
            made.compile(signature)
        return made

    def __repr__(self) -> str:
        return f"<tg.njit {self.__qualname__}>"

    def _repr_html_(self) -> str | None:
        """What `explain` tells, as a table; None (the plain repr) before a derivative was made."""
        if self.latest is None:
            return None
        head, *rows = self.latest.variables()
        return markup.table(rows, head, caption=repr(self))

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            if not kwargs and _SIMPLE.issuperset(map(type, args)):
                return self.dispatcher(*args)
            return self._recorded(self.bind(args, kwargs))
        except Exception as error:
            handlers.hand_on(error)
            if not complains(error):
                raise
            raise retold(error, self.py_func) from error

    def on_copies(self, given: tuple[Any, ...]) -> Callable[..., Any]:
        """This function for a transform that was given these arguments: where it writes to one, it is to a copy."""

        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return self._recorded(self.bind(args, kwargs), leaves_of(given))
            except Exception as error:
                handlers.hand_on(error)
                if not complains(error):
                    raise
                raise retold(error, self.py_func) from error

        return call

    def _recorded(self, full: tuple[Any, ...], copies: Sequence[Any] | None = None) -> Any:
        if not any(isinstance(leaf, Tensor | StandIn) for leaf in leaves_of(full)):
            return self.dispatcher(*full)
        if not any(isinstance(a, tuple) or _is_jitted(a) for a in full):
            return _record()(self, full, copies)
        flat = self._taken_apart(full)
        result = _record()(flat, tuple(_leaves(full)), copies)
        self.latest = flat.latest or self.latest
        return result

    def bind(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """Every argument by position, defaults filled in."""
        if not kwargs and len(args) == len(self.signature.parameters):
            return tuple(args)
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return tuple(bound.args)

    def _taken_apart(self, args: tuple[Any, ...]) -> NativeFunction:
        """This function of the elements of its tuples, one by one, and of no functions: those that it is given are called by name.

        An entry of the tape has tensors for operands, and what a function means is known to lowering by its name alone.
        """
        if len(args) != len(self.signature.parameters):
            raise NotDifferentiable(
                f"{self.__name__} takes any number of arguments and was called with a tuple of tensors, whose derivative has no place "
                "in one entry. Name each parameter.",
                name="native-source",
            )
        taken = set(self.signature.parameters)

        def fresh(name: str) -> str:
            while name in taken:
                name += "_"
            taken.add(name)
            return name

        whole = fresh("whole")
        scope: dict[str, Any] = {whole: self.dispatcher}
        parameters: list[str] = []

        def spelled(a: Any, name: str) -> str:
            """The text that passes an argument on; what it is made of becomes parameters."""
            if _is_jitted(a):
                scope[name] = a
                return name
            if not isinstance(a, tuple):
                parameters.append(name)
                return name
            parts = [
                spelled(x, f"{name}_{k}" if isinstance(x, tuple) else fresh(f"{name}_{k}"))
                for k, x in enumerate(a)
            ]
            if not hasattr(a, "_fields"):
                return f"({''.join(f'{p}, ' for p in parts)})"
            made = fresh(f"made_{name}")
            scope[made] = type(a)
            return f"{made}({', '.join(parts)})"

        given = [spelled(a, name) for name, a in zip(self.signature.parameters, args, strict=True)]
        name = self.__name__ if self.__name__.isidentifier() else "function"
        text = f"def {name}({', '.join(parameters)}):\n    return {whole}({', '.join(given)})\n"
        key = text, *scope.values()
        with self._lock:
            found = self._flat.get(key)
            if found is None:
                made = store.keeping(
                    numba.jit(**self.dispatcher.targetoptions)(load(name, text, scope))
                )
                found = self._flat[key] = NativeFunction(
                    made, self.limit, self.snapshots, self.mode
                )
        return found

    # ------------------------------------------------------------------------------------------ variants

    def variant(self, args: tuple[Any, ...]) -> Variant:
        """What is known of this function for arguments of these types."""
        try:
            key = tuple(map(_key, args))
        except (NotImplementedError, ValueError, TypeError, *COMPLAINTS):
            key = tuple(map(type, args))  # which of them it is will be told
        found = self.variants.get(key)
        if found is None:
            with self._lock:
                found = self.variants.get(key)
                if found is None:
                    # Flags that make no difference to Numba, such as who owns the memory, are in the key too.
                    kinds = tuple(map(self._type_of, self.signature.parameters, args))
                    found = self._by_types.get(kinds)
                    if found is None:
                        found = self._by_types[kinds] = Variant(self, args)
                    self.variants[key] = found
        return found

    def _type_of(self, name: str, a: Any) -> Any:
        told = f"an array of {a.dtype}" if isinstance(a, np.ndarray) else type(a).__name__
        try:
            if isinstance(a, np.ndarray | np.generic) and a.dtype == np.float16:
                raise NotImplementedError("Numba has a name for these, but no code")
            return numba.typeof(a)
        except (NotImplementedError, ValueError, TypeError, *COMPLAINTS) as error:
            raise NotDifferentiable(
                f"{self.__name__} was called with {name} = {told}, which Numba has no type or no code for. Pass numbers, arrays of "
                "float64, tuples of these, or jitted functions.",
                name="native-source",
            ) from error

    def value_and_gradient(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        positions: tuple[int, ...],
        several: bool,
        valued: bool = True,
    ) -> Any:
        """`(value, gradients, shortcut, unused)` of plain arguments by one compiled call; NotImplemented where the tape is needed.

        Where the value is not asked for (`valued`), it is None if it would cost a run of its own.

        `unused` are the places in `positions` of arguments that the value is not made from. The shortcut, if there is one, is
        `(types, call)`: for arguments of these Python types, `call(*args)` is the pair of value and gradient (a tuple of `several`), or
        raises TypeError if arrays are of another kind.
        """
        full = (
            self.bind(args, kwargs)
            if kwargs or len(args) != len(self.signature.parameters)
            else args
        )
        functions = False
        for a in full:
            if isinstance(a, Tensor | StandIn):
                return NotImplemented
            functions = functions or _is_jitted(a)
        for i in positions:
            kind = type(full[i])
            if kind.__module__.startswith("numba.typed"):
                name = list(self.signature.parameters)[i]
                raise NotDifferentiable(
                    f"the gradient of {self.__name__} by {name} was asked, which is a {kind.__name__} of Numba's, but gradients are by "
                    "numbers and arrays. Pass an array, and make the list of it inside the function.",
                    name="native-source",
                )
            if kind not in _VARIABLE:
                return NotImplemented
            if kind is np.ndarray and (
                full[i].dtype.kind not in "fc" or not full[i].flags.writeable
            ):
                return NotImplemented
        if functions:
            flat = self._taken_apart(full)
            moved = tuple(len(_leaves(full[:i])) for i in positions)
            found = flat.value_and_gradient(tuple(_leaves(full)), {}, moved, several, valued)
            self.latest = flat.latest or self.latest
            return found if found is NotImplemented else (*found[:2], None, found[3])
        derived = self.variant(full).derived(positions, valued)
        if derived.seeds != 1 or derived.results != 1 or not derived.scalar:
            return NotImplemented
        out = derived.run(full, (1.0,))
        shortcut = None
        kinds = tuple(map(type, args))
        if full is args and _SIMPLE.issuperset(kinds) and hasattr(derived, "shortcut"):
            call = derived.shortcut(several)
            shortcut = None if call is None else (kinds, call)
        unused = [positions.index(i) for i in derived.unused]
        return None if out[0] is None else np.float64(out[0]), out[1], shortcut, unused

    # ---------------------------------------------------------------------------------------- inspection

    @property
    def adjoint_source(self) -> str:
        """The derivative that was made last, as text.

        Of the adjoint engine it is generated Python, of the program form its statements, of overloading the function that drives it.

        >>> import numpy as np, tapegrad as tg
        >>> @tg.njit(mode="adjoint")
        ... def area(r):
        ...     return np.pi * r * r
        >>> tg.grad(area)(1.0) == 2 * np.pi
        True
        >>> print(area.adjoint_source.splitlines()[0])
        def area_adjoint(r, value_seed):
        """
        return markup.Lines(self._derived("adjoint_source").source)

    def explain(self) -> str:
        """Which engine made the derivative, and why.

        For each variable it tells whether the variable carries derivatives and what of it is kept for the reverse.
        """
        return markup.Lines(self._derived("explain()").explain())

    def _derived(self, asked: str) -> Derived | Overloaded | formed.ByForm:
        if self.latest is None:
            raise NotDifferentiable(
                f"{asked} of {self.__name__} was asked, but no derivative of it has been made, and types decide what it "
                "looks like. Differentiate it once, for example by tg.grad.",
                name="native-source",
            )
        return self.latest


@functools.cache
def _record() -> Any:
    """What connects a call to the tape, imported when the first one asks for it."""
    from .entry import record

    return record


def _shipped(made: tuple[Any, ...], file: str, lines: list[str]) -> NativeFunction:
    """A native function that came from another process."""
    if not linecache.getlines(file):
        linecache.cache[file] = (sum(map(len, lines)), None, lines, file)
    return NativeFunction(*made)


@typeof_impl.register(NativeFunction)
def _typeof_native(value: NativeFunction, context: Any) -> Any:
    """Inside other jitted code the function is Numba's own."""
    return typeof_impl(value.dispatcher, context)


OTHERS = frozenset((types.float32, types.complex64, types.complex128))
"""Numbers of which lists are no arrays of float64."""


class Variant:
    """A function lowered for one signature of arguments."""

    def __init__(self, owner: NativeFunction, args: tuple[Any, ...]) -> None:
        """The signature of these arguments; derivatives are made when they are asked for."""
        self.owner = owner
        self.types = tuple(numba.typeof(a) for a in args)
        self._derived: dict[Any, Derived | Overloaded | formed.ByForm] = {}
        self.outside = ""
        """Why the program form does not have this function; empty where it has, or was not asked."""
        self._along: dict[Any, directions.Along | str] = {}
        """Derivatives along directions by the program form, by parameters, order and width, or why the form has none."""
        self._beyond: dict[Any, Overloaded | NotDifferentiable] = {}
        """The same by overloading, by parameters and mode, or why it has none."""
        self.floats = [i for i, a in enumerate(args) if _is_float(a)]
        self._choices: dict[Any, Callable[..., Any]] = {}
        """Programs for functions of NumPy's without a rule, by the call (see `spelled`)."""

    def generated(self, make: Callable[[settling.Typed], Any]) -> tuple[settling.Typed, Any]:
        """A fresh tree and what `make` makes of it, functions of NumPy's written out that it asks for."""
        while True:
            try:
                typed = self.typed()
                return typed, make(typed)
            except lowering.Unspelled as asked:
                self._grow(asked)

    def written_out(self, make: Callable[[], Any]) -> Any:
        """What `make` makes of the trees, functions of NumPy's written out that it asks for; as before where it raises."""
        before = self._choices.copy()
        while True:
            try:
                return make()
            except lowering.Unspelled as asked:
                self._grow(asked)
            except BaseException:
                self._chosen(before)
                raise

    def _grow(self, asked: lowering.Unspelled) -> None:
        """Take over what was asked for."""
        if asked.choices.keys() <= self._choices.keys():
            raise asked
        self._chosen(self._choices | asked.choices)

    def _chosen(self, choices: dict[Any, Any]) -> None:
        """Read the function by other choices from now on."""
        if choices != self._choices:
            self._choices = choices
            for tree in ("settled", "plain"):
                self.__dict__.pop(tree, None)

    def typed(self, plain: bool = False) -> settling.Typed:
        """A fresh tree: generators change theirs. A `plain` one has neither threads nor snapshots."""
        owner = self.owner
        owner.frozen.hold()
        parallel = lowering.is_parallel(owner)
        program = lowering.lower(owner.py_func, owner.snapshots, parallel, self._choices)
        for loop in chunks.loops(program.body) if plain else ():
            loop.snapshots, loop.parallel = 0, False
        others = {getattr(k, "dtype", k) for k in self.types} & OTHERS
        if program.lists and others:
            raise NotDifferentiable(
                f"{program.name} makes lists, and has {min(map(str, others))} among its arguments: lists are arrays of float64.",
                name="native-source",
            )
        kinds, returns = inference.infer(program, self.types)
        typed = settling.Typed(program, kinds, returns)
        pairs.dissolve(typed)
        return typed

    @functools.cached_property
    def settled(self) -> settling.Typed:
        """A tree that nobody changes."""
        return self.typed()

    @functools.cached_property
    def plain(self) -> settling.Typed:
        """The same without threads and snapshots."""
        return self.typed(plain=True)

    def in_pairs(self, positions: tuple[int, ...], given: Sequence[Any]) -> list[Any]:
        """What is given for each of these parameters; for a complex one, its two parts."""
        found = []
        for i, a in zip(positions, given, strict=True):
            found += [np.real(a), np.imag(a)] if pairs.is_complex(self.types[i]) else [a]
        return found

    def joined(self, positions: tuple[int, ...], given: Sequence[Any]) -> list[Any]:
        """The other way round."""
        parts = iter(given)
        return [
            joined(next(parts), next(parts)) if pairs.is_complex(self.types[i]) else next(parts)
            for i in positions
        ]

    def derived(
        self, positions: tuple[int, ...], valued: bool = True
    ) -> Derived | Overloaded | formed.ByForm:
        """The compiled adjoint by the parameters at these positions, or what overloading has in its place.

        Where the value is not asked for, it may be one that leaves it out.
        """
        key = positions, valued
        found = self._derived.get(key)
        if found is None:
            with self.owner._lock:
                found = self._derived.get(key)
                if found is None:
                    names = self.owner.__name__, positions, self.types
                    # Before the first step: what is made on the way takes memory too, and the error of Python would say nothing.
                    headroom.demand(headroom.COMPILATION, "compiling by Numba")
                    told = "the derivative of %s by arguments %s of types %s was made in %.3f s"
                    with compiling(), logs.timed(told, *names):
                        found = self._derived[key] = self._made(positions, valued)
                    if not valued and found.valued:
                        found = self._derived.setdefault((positions, True), found)
                        self._derived[key] = found
                    elif valued and not isinstance(found, formed.ByForm):
                        self._derived[positions, False] = found
        self.owner.latest = found
        return found

    def _made(
        self, positions: tuple[int, ...], valued: bool
    ) -> Derived | Overloaded | formed.ByForm:
        """By the engine that the function's mode names; in mode "auto" by overloading where the transformation refuses."""
        if self.owner.mode == "overload":
            return self.overloaded(positions, 'mode="overload" asks for it')
        found = formed.gradient(self, positions, valued)
        if not isinstance(found, str):
            return found
        self.outside = found or self.outside
        return self.transformed(positions)

    def transformed(self, positions: tuple[int, ...]) -> Derived | Overloaded:
        """By the generated adjoint; in mode "auto" by overloading where the transformation refuses."""
        try:
            return Derived(self, positions)
        except NotDifferentiable as refused:
            if self.owner.mode == "adjoint":
                raise
            return self.overloaded(
                positions, f"the adjoint transformation refuses:\n  {refused.args[0]}", refused
            )

    def instead_of(self, derived: Derived, refused: NotDifferentiable) -> Overloaded:
        """Overloading in the place of an adjoint that turned out not to compile."""
        if self.owner.mode == "adjoint":
            raise refused
        reason = f"the adjoint has no types:\n  {refused.args[0]}"
        other = self.overloaded(derived.positions, reason, refused)
        if other.seeded != derived.seeded:
            raise refused
        for key in [key for key, found in self._derived.items() if found is derived]:
            self._derived[key] = other
        self.owner.latest = other
        return other

    def overloaded(
        self,
        positions: tuple[int, ...],
        reason: str,
        refused: NotDifferentiable | None = None,
        mode: str = "reverse",
    ) -> Overloaded:
        """The second engine's derivatives, in one mode at first; where it refuses too, the error tells both reasons."""
        from .overloading import Overloaded

        self.owner.frozen.hold()
        try:
            return Overloaded(self, positions, reason, mode)
        except NotDifferentiable as error:
            if refused is None:
                raise
            raise NotDifferentiable(
                f"{refused.args[0]}\n  (Nor can it be differentiated by overloading: {error.args[0]})",
                name="native-source",
            ) from (refused.__cause__ or error.__cause__)

    # ------------------------------------------------------------------------------------------ forward mode

    def push(
        self, args: tuple[Any, ...], positions: tuple[int, ...], along: Sequence[Any], size: int
    ) -> dict[int, Any] | None:
        """Tangents of the results, by their position, along directions of the parameters at `positions`: an array for each
        parameter, whose first axis counts directions, as that of the tangents does. None where cotangents have them sooner, for results
        of `size` numbers in all, or alone."""
        found = self._by_form(args, positions, 1, {}, self.in_pairs(positions, along))
        if found is not None:
            return dict(enumerate(found))
        mode = self.owner.mode
        if mode == "adjoint" or (size <= FEW and mode != "overload"):
            return None
        other = self._overloading(positions, "forward")
        return None if isinstance(other, NotDifferentiable) else other.push(args, along)

    def bend(
        self,
        args: tuple[Any, ...],
        positions: tuple[int, ...],
        seeds: Mapping[int, Any],
        along: Sequence[Any],
    ) -> list[Any]:
        """The derivative along directions of the cotangents that `seeds` of the results give: forward mode over reverse. Directions and
        results as in `push`."""
        found = self._by_form(args, positions, 2, seeds, self.in_pairs(positions, along))
        if found is not None:
            return self.joined(positions, found)
        other = self._overloading(positions, "second")
        if isinstance(other, NotDifferentiable):
            raise self._beyond_reach("second", positions, f"Nor can overloading: {other.args[0]}")
        return other.bend(args, seeds_for(other, seeds), along)

    def twist(
        self,
        args: tuple[Any, ...],
        positions: tuple[int, ...],
        seeds: Mapping[int, Any],
        along: tuple[Sequence[Any], Sequence[Any]],
    ) -> list[Any]:
        """The derivative along a second direction of what `bend` gives along the first."""
        first, second = (self.in_pairs(positions, given) for given in along)
        each = [np.asarray(d)[None] for d in second]
        found = self._by_form(args, positions, 3, seeds, each, first)
        if found is None:
            raise self._beyond_reach("third", positions, "It alone has third derivatives.")
        return self.joined(positions, [t[0] for t in found])

    def _by_form(
        self,
        args: tuple[Any, ...],
        positions: tuple[int, ...],
        order: int,
        seeds: Mapping[int, Any],
        along: Sequence[Any],
        first: Sequence[Any] = (),
    ) -> list[Any] | None:
        """Derivatives along directions by the program form, of third order with a `first` direction; None where it has none."""
        width = 1 if len(along[0]) == 1 else directions.WIDTH
        key = positions, order, width
        if key not in self._along:
            with self.owner._lock:
                if key not in self._along:
                    self.owner.frozen.hold()
                    self._along[key] = directions.along(self, positions, order, width)
        made = self._along[key]
        if isinstance(made, str):
            return None
        more = [seeds[i] for i in range(made.results)] if order > 1 else []
        if first:
            more += made.inputs(args, first)
        return made.run(args, more, along)

    def _overloading(self, positions: tuple[int, ...], mode: str) -> Overloaded | NotDifferentiable:
        """Overloading for derivatives along directions, in this mode of its drivers, or why there is none."""
        found = self._derived.get((positions, True))
        if found is not None and hasattr(found, "bend"):
            return found  # type: ignore[return-value]
        key = positions, mode
        if key not in self._beyond:
            with self.owner._lock:
                if key not in self._beyond:
                    try:
                        self._beyond[key] = self.overloaded(
                            positions, "derivatives along directions are asked", mode=mode
                        )
                    except NotDifferentiable as refused:
                        self._beyond[key] = refused
        return self._beyond[key]

    def _beyond_reach(self, order: str, positions: tuple[int, ...], more: str) -> NotDifferentiable:
        """The error of a derivative that neither the form nor overloading has."""
        why = next(
            (a for (p, *_), a in self._along.items() if p == positions and isinstance(a, str)),
            "these arguments do not fit what it assumes of sizes, or of matrices (full rank, no two eigenvalues or singular values equal)",
        )
        return NotDifferentiable(
            f"a {order} derivative of {self.owner.__name__} was asked, which the program form does not have:\n  {why}\n  {more}\n"
            "  Write that part otherwise, or the function in NumPy on tensors.",
            name="high-order",
        )


FEW = 8
"""Numbers of a result up to which its tangents are products with cotangents, where the form has none: no more code is compiled."""


def _leaves_at(typed: settling.Typed, positions: tuple[int, ...]) -> list[str]:
    """The parameters of a program that the user's at these positions became."""
    return [leaf for i in positions for leaf in settling.leaves(typed.param_parts[i])]


_EMPTY = {"floats": np.empty(1024), "ints": np.empty(1024, np.int64)}


def _compiled(
    owner: NativeFunction, typed: settling.Typed, name: str, source: str, scope: dict[str, Any]
) -> Any:
    """Generated code as a function of Numba's; `typed` is the program that it was made of."""
    options = compile_options(owner)
    if checking.on():
        from . import sanitizer

        text, places, returned = sanitizer.instrumented(source, name)
        scope = {**scope, **sanitizer.SCOPE}
        made = _numba_function(typed, name, text, scope, options)
        return sanitizer.Watched(made, owner.__name__, typed.program, places, returned)
    return _numba_function(typed, name, *outlining.outlined(source, scope, options), options)


def _numba_function(
    typed: settling.Typed, name: str, source: str, scope: dict[str, Any], options: dict[str, Any]
) -> Any:
    uniform = typed.program.uniform
    if "@shared" in source:
        numba.get_num_threads()  # starts Numba's threads, which compiled code from disk expects
    file = store.source_file(name, source, scope, options)
    function = inference.load(name, source, scope, file)
    return store.keeping_generated(runtime.outer(options, uniform)(function), file)


def compile_options(owner: NativeFunction) -> dict[str, Any]:
    """What the generated code is compiled with: the user's choices as far as they mean the same there."""
    options: dict[str, Any] = dict(_OPTIONS)
    targets = owner.dispatcher.targetoptions
    for option in ("fastmath", "boundscheck"):
        if targets.get(option):
            options[option] = targets[option]
    if checking.on():
        options["boundscheck"] = True
    return options


def _quietly(compiled: Any, args: Sequence[Any]) -> Any:
    """A call during which Numba may compile, without its advice on how fast that will be."""
    with compiling():
        try:
            return compiled(*args)
        except SystemError as error:
            raise interrupted(error) from None


def _quietly_called(compiled: Any, *args: Any) -> Any:
    return _quietly(compiled, args)


class _Untyped(NotDifferentiable):
    """An adjoint was generated, but Numba finds no types for it."""


_LINEAR = frozenset(("+", "-", "*", "neg", "copy"))


def _polynomial(flow: Any) -> bool:
    """Whether a program is one polynomial, in loops, whose value is finite only where all that it computes is.

    There no cotangent of 0 meets a partial that is not finite, unless the value itself is not finite.
    """

    def plain(op: Any) -> bool:
        if op.kind == "acc":
            return not flow.array(op.args[0])
        if op.kind not in ("pure", "load", "copy") or not any(map(flow.active, op.out)):
            return op.kind in ("pure", "load", "copy")
        if op.rule in ("**", "pow"):
            power = op.args[1]
            return isinstance(power, Const) and type(power.value) is int and power.value >= 0
        if op.rule == "/":  # by what does not vary: infinite over anything is infinite, or NaN
            return not flow.active(op.args[1])
        return op.kind != "pure" or op.rule in _LINEAR

    def simple(nodes: Sequence[Any]) -> bool:
        return all(
            isinstance(n, Seg)
            or (isinstance(n, Loop) and bool(n.variable) and not n.stop and simple(n.body))
            for n in nodes
        )

    program = flow.typed.program
    return (
        len(program.results) == 1
        and not flow.array(program.results[0])
        and simple(program.body)
        and all(map(plain, operations(program.body)))
    )


class Derived:
    """A compiled adjoint by some of the parameters."""

    valued = True

    def __init__(self, variant: Variant, positions: tuple[int, ...]) -> None:
        """Generate and compile the adjoint for the parameters at `positions`."""
        self.owner = variant.owner
        options = compile_options(self.owner)
        typed, self.adjoint = variant.generated(
            lambda typed: adjoint.generate(
                typed, _leaves_at(typed, positions), self.owner.limit, options
            )
        )
        parts = typed.param_parts
        self.wanted = _leaves_at(typed, positions)
        self._variant = variant
        self.positions = positions
        self.typed = typed
        self.tuples = any(isinstance(p, list) for p in parts)
        made = self.adjoint
        self.seeds = len(made.seeds)
        self.results = len(typed.program.results)
        kinds = [typed.types[r] for r in typed.program.results]
        self.returns_tuple = typed.program.returns_tuple
        self.scalar = (
            self.results == 1 and isinstance(kinds[0], types.Float) and not self.returns_tuple
        )
        self.seeded = [
            made.seeds.index(r) if r in made.seeds else None for r in typed.program.results
        ]
        names = typed.program.params
        self.mutated = [names.index(p) for p in made.mutated]
        strong = "strong" in "".join([made.source, *(text for _, text in made.parts)])
        self.watched = strong and not made.draws and not _polynomial(made.flow)
        """Whether the last result tells that a cotangent is NaN: then the guarded form runs. A program that draws random numbers
        would draw others in its second run, and has strong products at once."""
        self.source = self._text(guarded=strong and made.draws)
        """What is compiled: the adjoint, and what it calls, in its last form."""
        self.kept = 0
        """Bytes that the last run kept on the stacks."""
        self.compiled = self._compile(self.source)
        self._guarded: Any = None
        self.warm = False
        self._lock = locks.rlock()

    def _compile(self, source: str) -> Any:
        name = f"{self.typed.program.name}_adjoint"
        return _compiled(self.owner, self.typed, name, source, self.adjoint.scope)

    @functools.cached_property
    def unused(self) -> tuple[int, ...]:
        """Positions of parameters that no result is made from."""
        idle = self.adjoint.flow.unused
        return tuple(
            i
            for i in self.positions
            if (leaves := settling.leaves(self.typed.param_parts[i])) and idle.issuperset(leaves)
        )

    @property
    def guarded(self) -> Any:
        """The compiled adjoint with strong products, for where a plain one gave NaN."""
        with self._lock:
            if self._guarded is None:
                self.owner.frozen.hold()
                with compiling():
                    self._guarded = self._compile(self._text(guarded=True))
            return functools.partial(_quietly_called, self._guarded)

    def _text(self, guarded: bool) -> str:
        made = self.adjoint
        text = self._whole(guarded)
        if made.stacks:
            text = finishing.counting(text, made.stacks)
        if self.watched:
            text = finishing.watched(text, self.results, len(self.wanted))
        return finishing.finished(text, self._axes)

    def _whole(self, guarded: bool) -> str:
        made = self.adjoint
        texts = []
        for decorator, text in [("", made.source), *made.parts]:
            if not guarded:
                text = finishing.unguarded(text)
            texts.append(f"{decorator}\n{text}" if decorator else text)
        return "\n\n".join(texts)

    def _axes(self, name: str) -> int | None:
        """How many axes a variable or its cotangent has, 0 for a number; None for what is neither."""
        kind = self.typed.types.get(self.adjoint.shadows.get(name, name))
        if isinstance(kind, types.Array):
            return int(kind.ndim)
        return 0 if isinstance(kind, types.Number | types.Boolean) else None

    def run(self, args: tuple[Any, ...], seeds: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
        """(value, cotangents of the wanted parameters) for given cotangents of the active results."""
        if self.warm:
            return self._run(args, seeds)
        try:
            return self._run(args, seeds)
        except _Untyped as refused:
            return self._variant.instead_of(self, refused).run(args, seeds)

    def _run(self, args: tuple[Any, ...], seeds: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
        """Results and gradients of a call; run again in the guarded form where a watched value was not finite."""
        if self.tuples:
            given = leaves_of(args)
            args = tuple(real_leaves(args))
            if self.mutated and len(given) < len(args):
                # Parts of complex arrays are copies, which do not show what the arrays share.
                refuse_shared(self.owner, given)
        if self.mutated:
            self._refuse_shared(args)
        call = self.compiled if self.warm else self._first
        out = self._with_stacks(call, *args, *seeds)
        if self.watched and out[-1]:
            out = self._with_stacks(self.guarded, *args, *seeds)
        n = self.results
        bars = out[n : n + len(self.wanted)]
        if len(bars) > len(self.positions):
            bars = tuple(self._variant.joined(self.positions, bars))
        return (out[:n] if self.returns_tuple else out[0]), bars

    def _with_stacks(self, call: Any, *args: Any) -> Any:
        """What a form of the compiled adjoint returns; its stacks are this thread's."""
        names = self.adjoint.stacks
        if not names:
            return call(*args)
        stacks = _take_stacks()
        try:
            out = call(*args, *[stacks[name] for name in names])
            last = len(out) - self.watched - 1
            _take_over(stacks, names, out[last - len(names) : last])
            self.kept = out[last]
        finally:
            _stacks.held = stacks
        return out

    def shortcut(self, several: bool) -> Any:
        """Value and gradient of one number by its arguments alone; None where arguments must be looked at first.

        Numba itself looks at the types of arrays, and may not compile for others any more: this code was generated for these.
        """
        if self.mutated or self.tuples or not self.warm:
            return None
        compiled, number, watched = self.compiled, np.float64, self.watched
        compiled.disable_compile()
        part: Any = slice(1, 1 + len(self.wanted)) if several else 1
        with_stacks = bool(self.adjoint.stacks)

        def call(*args: Any) -> Any:
            try:
                out = (
                    self._with_stacks(compiled, *args, 1.0) if with_stacks else compiled(*args, 1.0)
                )
            except SystemError as error:
                raise interrupted(error) from None
            if watched and out[-1]:
                out = self._with_stacks(self.guarded, *args, 1.0)
            return number(out[0]), out[part]

        return call

    def _first(self, *args: Any) -> Any:
        """The first call, which compiles; other threads wait for it."""
        # One thread compiles; when the others come to it, nothing may be compiled any more (see `shortcut`).
        with self._lock:
            if not self.warm:
                try:
                    out = _quietly(self.compiled, args)
                except COMPLAINTS as error:
                    raise _Untyped(
                        f"the derivative of {self.owner.__name__} was asked, but Numba finds no types for the adjoint. Mostly a name "
                        "is a whole number at one place and a float at another: give each a name of its own, or use "
                        'tg.njit(mode="overload").'
                    ) from error
                self.warm = True
                return out
        try:
            return self.compiled(*args)
        except SystemError as error:
            raise interrupted(error) from None

    def _refuse_shared(self, args: tuple[Any, ...]) -> None:
        for i in self.mutated:
            for j, other in enumerate(args):
                if j != i and isinstance(other, np.ndarray) and np.may_share_memory(args[i], other):
                    names = self.typed.program.params
                    raise NotDifferentiable(
                        f"{self.owner.__name__} writes to its argument {names[i]}, which shares memory with {names[j]}: the "
                        "derivative by either is not defined. Pass a copy of one of them.",
                        name="native-writes",
                    )

    @property
    def draws(self) -> bool:
        """Whether the function draws random numbers."""
        return self.adjoint.draws

    def written(self, args: tuple[Any, ...]) -> list[str]:
        """Names of the arguments that the function writes to."""
        return self.adjoint.mutated

    def explain(self) -> str:
        """The engine, where each variable is kept for the reverse, and what a pass of each loop costs."""
        rows = self.variables()
        widths = [max(len(r[i]) for r in rows) for i in range(4)]
        told = ["engine: adjoint, generated from the source"]
        told += ["  ".join(map(str.ljust, r, widths)).rstrip() for r in rows]
        for where, kept, count in self.adjoint.passes:
            each = f"{kept / count:.2g} bytes each" if kept else "nothing kept"
            told.append(f"line {where.line}: a pass makes {count} operations on floats, {each}")
        told += self.adjoint.loops
        if self._variant.outside:
            told.append(f"the program form does not have it: {self._variant.outside}")
        told.append(f"{self.kept} bytes were on the stacks when the last run turned back")
        return "\n".join(told)

    def variables(self) -> list[tuple[str, str, str, str]]:
        """A heading, and for each variable its type, whether it is active, and what of it is kept."""
        flow = self.flow
        rows = [("variable", "type", "derivative", "kept for the reverse")]
        for name in sorted(self.typed.types):
            if name.startswith(TEMP) or "." in name or name not in flow.named:
                continue
            active = (
                "active"
                if flow.active(name)
                else "varies, but no result depends on it"
                if flow.varies(name)
                else "passive"
            )
            rows.append(
                (
                    name,
                    str(self.typed.types[name]),
                    active,
                    self.adjoint.kept.get(name, self.adjoint.kept.get(f"{name}[...]", "")),
                )
            )
        return rows

    @property
    def flow(self) -> Any:
        return self.adjoint.flow


# ---------------------------------------------------------------------------------------------------- stacks

_stacks = threading.local()


def _take_stacks() -> dict[str, np.ndarray]:
    """This thread's stacks, for one call."""
    held = getattr(_stacks, "held", None)
    _stacks.held = None
    held = {n: a.copy() for n, a in _EMPTY.items()} if held is None else held
    if checking.on():
        from . import sanitizer

        return sanitizer.stacks(held)
    return held


_PAGES = 1 << 22
"""Bytes from which NumPy asks the system for large pages, which a run through all of them goes through faster."""


def _take_over(stacks: dict[str, np.ndarray], names: Sequence[str], given: Sequence[Any]) -> None:
    """Keep the stacks that a call returned; one that grew to many pages is made anew by NumPy, as nothing in it is needed any more."""
    for name, stack in zip(names, given, strict=True):
        if stack is not stacks[name]:
            stacks[name] = stack if stack.nbytes < _PAGES else np.empty_like(stack)


def release_memory() -> None:
    """Give back the memory that this thread's derivatives keep between calls: stacks, large results, tapes of overloaded functions.

    >>> import tapegrad as tg
    >>> tg.native.release_memory()
    >>> tg.native.kept_bytes()
    0
    """
    _stacks.held = None
    running.release_memory()
    if "tapegrad.native.carriers" in sys.modules:
        from . import carriers

        carriers.release_memory()


def kept_bytes() -> int:
    """Bytes that this thread keeps for derivatives: stacks, scratch, large results to be used again, tapes of overloaded functions.

    >>> import tapegrad as tg
    >>> tg.native.release_memory()
    >>> tg.native.kept_bytes()
    0
    """
    held = getattr(_stacks, "held", None)
    stacks = 0 if held is None else sum(a.nbytes for a in held.values())
    stacks += running.kept_bytes()
    if "tapegrad.native.carriers" in sys.modules:
        from . import carriers

        return stacks + carriers.kept_bytes()
    return stacks


# -------------------------------------------------------------------------------------------------- arguments


def _key(a: Any) -> Any:
    """What decides the type of an argument, without asking Numba each time."""
    kind = type(a)
    if kind is np.ndarray:
        return a.dtype, a.ndim, a.flags.num  # type: ignore[attr-defined]
    if kind in _NUMBERS:
        return kind
    return numba.typeof(a)


_VARIABLE = frozenset((np.ndarray, float, np.float64, complex, np.complex128))
"""Types of arguments with a gradient."""
_NUMBERS = frozenset((float, int, bool, np.float64))
_SIMPLE = _NUMBERS | {np.ndarray}


def _is_jitted(a: Any) -> bool:
    return isinstance(a, NativeFunction | Custom | Dispatcher)


def _leaves(args: Sequence[Any]) -> list[Any]:
    """The arguments of a function taken apart."""
    return [a for a in leaves_of(args) if not _is_jitted(a)]


def _is_float(a: Any) -> bool:
    return isinstance(a, float | np.floating) or (isinstance(a, np.ndarray) and a.dtype.kind == "f")


def refuse_shared(function: NativeFunction, given: Sequence[Any]) -> None:
    """For a function that writes to an argument: no two may share memory."""
    arrays = [a for a in given if isinstance(a, np.ndarray)]
    for k, a in enumerate(arrays):
        if any(np.may_share_memory(a, b) for b in arrays[:k]):
            raise NotDifferentiable(
                f"{function.__name__} writes to an argument, and two of its arguments share memory: the derivative by either is not "
                "defined. Pass a copy of one of them.",
                name="native-writes",
            )


# ------------------------------------------------------------------------------------------------- interface

_foreign: weakref.WeakKeyDictionary[Any, NativeFunction] = weakref.WeakKeyDictionary()


def differentiable(f: Any) -> Any:
    """The native function of a Numba dispatcher; anything else as it is."""
    if isinstance(f, NativeFunction) or not hasattr(f, "py_func"):
        return f
    found = _foreign.get(f)
    if found is None:
        found = _foreign[f] = NativeFunction(f)
    return found


@overload
def njit(f: Callable[P, R], /, **options: Any) -> NativeFunction[P, R]: ...
@overload
def njit(
    f: str | list[Any] | tuple[Any, ...] | None = None, /, **options: Any
) -> Callable[[Callable[P, R]], NativeFunction[P, R]]: ...
def njit(f: Any = None, /, **options: Any) -> Any:
    """Compile a function with Numba, and make its derivatives on demand: `numba.njit` for every transform.

    Takes what `numba.njit` takes; with signatures (`@tg.njit("float64(float64)")`) it compiles now, and for those types alone. The result
    is called like Numba's, from Python and from other jitted code; `tg.grad`, `value_and_grad`, `vjp`, `jvp`, `jacobian`, `hvp` and
    `hessian` work on it, and called on tracked tensors it is one entry of the tape. Derivatives are made from the function's source
    and compiled for the argument types that come. What has no rule raises
    NotDifferentiable naming file, line and expression.

    `mode` chooses the engine of gradients: "adjoint" (generated code), "overload" (the function runs on numbers that record
    each operation, which takes more of the language), "form" (arrays and loops over ranges as one program of machine code, the fastest,
    and an error for what lies outside) or "auto": the form for what lies in it, else generated code, and overloading where that refuses.
    `f.explain()` tells which it was, and why. TAPEGRAD_FORM=0 in the environment leaves the form out of gradients. Forward mode and
    higher derivatives are the form's in every mode but "overload", and overloading's where it does not have the function.

    `memory_limit` bounds, in bytes, what a stack of the reverse sweep may take (default: three quarters of the memory).
    With `parallel=True`, threads share derivatives of loops over `prange` where it is shown that passes do not meet in it; `f.explain()`
    tells of which, and why of others not. No bit of a gradient depends on the number of threads.
    `checkpoint="revolve", snapshots=k` reverses every outermost loop over a range from k snapshots (see `tg.checkpointed`).

    >>> import numpy as np, tapegrad as tg
    >>> @tg.njit
    ... def power_sum(x):
    ...     total = 0.0
    ...     for i in range(x.size):
    ...         if x[i] > 0:
    ...             total += x[i] ** 3
    ...     return total
    >>> tg.grad(power_sum)(np.array([1.0, -2.0, 3.0]))
    array([ 3.,  0., 27.])
    """
    asked = checked(options)
    settings = asked.limit, asked.snapshots, asked.mode
    signatures = _signatures(f)

    def make(function: Any) -> NativeFunction:
        """The native function of a Python function, or of one that Numba has jitted."""
        function = unadopted(function)
        if isinstance(function, NativeFunction):
            function = function.py_func
        if python_function(function) is None:
            raise TypeError(
                f"njit was given {type(function).__name__}, which is no Python function: decorate a function defined with def."
            )
        if hasattr(function, "py_func"):
            if not asked.numba:
                return NativeFunction(function, *settings)
            function = function.py_func  # compiled anew, as it is asked for now
        own = {**_OPTIONS, "boundscheck": True} if checking.on() else _OPTIONS
        made = store.keeping(numba.njit(**{**own, **asked.numba})(function))
        for signature in signatures:
            made.compile(signature)
        if signatures:
            made.disable_compile()
        return NativeFunction(made, *settings)

    return make if f is None or signatures else make(f)


def _signatures(given: Any) -> list[Any]:
    """The signatures that stand where a function would: one (text, Numba's, or a tuple of types), or a list of them; none of a function."""
    if isinstance(given, list):
        if not given:
            raise TypeError(
                "njit was given an empty list, which is neither a function nor a signature: write @tg.njit, or list one signature."
            )
        return [signature for one in given for signature in _signatures(one)]
    kinds = (str, tuple, numba.core.typing.templates.Signature, numba.types.Type)
    return [given] if isinstance(given, kinds) else []


class CustomFunction(Custom):
    """A function with a derivative given by hand; made by `njit_vjp`."""

    def __init__(self, f: Any, vjp: Any) -> None:
        super().__init__(f, vjp)
        self.py_func = f.py_func
        self.__name__ = f.__name__

    def __call__(self, *args: Any) -> Any:
        return self.f(*args)


@typeof_impl.register(CustomFunction)
def _typeof_custom(value: CustomFunction, context: Any) -> Any:
    return typeof_impl(value.f, context)


def njit_vjp(f: Any, f_vjp: Any) -> CustomFunction:
    """A helper for native functions whose derivative you know: `f_vjp(g, out, *args)` returns one cotangent per argument.

    `g` is the cotangent of the result `out` (a number or an array); what comes back is a tuple as long as the arguments, with 0.0
    for those that carry no derivative. Both functions are compiled; inside native functions the helper is called, and its source is
    never looked at.

    The rule is used by both engines, in reverse and in forward mode; where the result is an array, by the adjoint engine alone. A
    second derivative is that of the rule, which overloading runs on numbers with tangents; where the result is an array, it is refused.

    >>> import math, tapegrad as tg
    >>> def root(a):
    ...     x = a
    ...     for _ in range(60):
    ...         x = 0.5 * (x + a / x)
    ...     return x
    >>> root = tg.njit_vjp(root, lambda g, out, a: (g / (2 * out),))
    >>> @tg.njit
    ... def f(a):
    ...     return root(a) * 3.0
    >>> tg.grad(f)(4.0)
    0.75
    """

    def compiled(function: Any) -> Any:
        if isinstance(function, NativeFunction):
            return function.dispatcher
        if python_function(function) is None:
            raise TypeError(
                f"njit_vjp was given {type(function).__name__}, which is no Python function: it takes a helper and its derivative, both "
                "defined with def."
            )
        if hasattr(function, "py_func"):
            return function
        return store.keeping(numba.njit(**_OPTIONS)(function))

    return CustomFunction(compiled(f), compiled(f_vjp))
