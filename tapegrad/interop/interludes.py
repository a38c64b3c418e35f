"""Interludes: calls of solvers that a program of `tg.compile` makes in Python.

A solver chooses its steps by values, so they are no part of a program. Where its arguments depend on those of the program, the whole call
becomes one entry: each call of the program runs the solver as it runs outside, on what it was given, in which the numbers of that call
stand in place of traced values. The VJP and the JVP are interludes as well, of the eager call's own: so there is every order.

Data: `_Frozen` is what the solver was given, as it was then, functions with what they close over included; the operands are the traced
values in it. The entry's result is one vector: a checksum of the shapes and the structure of the solver's result, then its numbers.
Invariant: a program is valid for results of one form. The checksum is a guard: where it is another one, the function is traced again.
A value that is hidden where `_copied` does not look reaches the solver as one of a closed trace, and raises TraceError.
"""

from __future__ import annotations

import copy
import functools
import threading
import types
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import numpy as np

from ..core.closures import content
from ..core.mode import enable_grad, no_grad
from ..core.packing import flat, is_inexact, op_of_calls, unpacked
from ..core.primitive import apply
from ..core.storage import StandIn, kept, tracing
from ..core.tensor import Tensor, value_of, wrap
from ..errors import TraceError
from ..ops.composing import holds_tracked
from ..transforms.derivatives import _flatten, _unflatten, jvp, vjp

F = TypeVar("F", bound=Callable[..., Any])


def interlude(solver: F) -> F:
    """`solver`, which a program of `tg.compile` calls in Python; its results are arrays and numbers. Functions among them
    raise when they are called, and None stands for anything else."""

    @functools.wraps(solver)
    def called(*args: Any, **kwargs: Any) -> Any:
        return solver(*args, **kwargs) if tracing.get() is None else within(solver, args, kwargs)

    return cast(F, called)


def within(solver: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """`solver(*args, **kwargs)` as an entry of the program that is traced, where the arguments depend on those of the program."""
    frozen = _Frozen(solver, args, kwargs)
    if not frozen.operands:
        with _untraced(solver.__name__):
            return solver(*args, **kwargs)
    call = _Interlude(frozen.result, solver.__name__, holds_tracked(frozen.operands))
    whole = apply(interluded.primitive, frozen.operands, (call,))
    form, rebuild, parts = frozen.seen
    if not bool(np.real(value_of(whole)[0]) == form):
        raise TraceError(
            f"{solver.__name__} gave results of another form when it was called again inside tg.compile: does it draw random numbers? "
            "Leave it outside of the compiled function.",
            name="outside-program",
        )
    return rebuild(unpacked(whole[1:], parts))


@contextmanager
def _untraced(name: str) -> Iterator[None]:
    """While this lasts nothing is traced, and values of traces are refused."""
    trace = tracing.get()
    if trace is None:
        yield
        return
    around = [trace]
    while around[-1].outer is not None:
        around.append(around[-1].outer)
    opened = [t for t in around if t.open]
    token = tracing.set(None)
    for t in opened:
        t.open = False
    try:
        yield
    except TraceError as error:
        if error.short_name != "left-placeholder":
            raise
        raise TraceError(
            f"{name} was called inside tg.compile with a function that reads a value of the program from an object, where nobody looks "
            "for it. Give the value in args, or let the function close over it.",
            name="outside-program",
        ) from error
    finally:
        tracing.reset(token)
        for t in opened:
            t.open = True


class _Hole:
    """The place of an operand."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index


class _Frozen:
    """A call as it was given: the solver, its arguments with holes, and the operands that belong there."""

    def __init__(self, solver: Callable[..., Any], args: Any, kwargs: Any) -> None:
        """Copy what the solver is given, and take the traced values out of it."""
        self.solver, self.operands = solver, list[Any]()
        known: dict[int, _Hole] = {}

        def hole(x: Any) -> Any:
            """What stands for a tensor or an array in the copy."""
            value = value_of(x)
            if not isinstance(value, StandIn):
                if not isinstance(value, np.ndarray):
                    return x
                still = kept(value)  # its owner may write to it later
                if not isinstance(x, Tensor):
                    return still
                made = wrap(still)
                made._node = x._node
                return made
            if id(x) not in known:
                known[id(x)] = _Hole(len(self.operands))
                self.operands.append(x)
            return known[id(x)]

        self.given = _copied((args, kwargs), hole, {})
        self.seen: Any = None
        """The form of the first result, the function that makes it of its parts, and these."""

    def result(self, *operands: Any) -> Any:
        """The checksum of the solver's result for these operands, and all its numbers."""
        fill = lambda x: operands[x.index] if isinstance(x, _Hole) else x  # noqa: E731
        args, kwargs = _copied(self.given, fill, {})
        leaves, rebuild, told = _parts(self.solver(*args, **kwargs))
        shapes = [(np.shape(x), str(x.dtype)) for x in leaves]
        form = float(zlib.crc32(repr((told, shapes)).encode()))
        if self.seen is None:
            self.seen = form, rebuild, [np.empty(*shape) for shape in shapes]
        return flat([np.array([form]), *leaves])


def _parts(result: Any) -> tuple[list[Any], Callable[[Sequence[Any]], Any], Any]:
    """Arrays and numbers of a result, a function that puts others in their places, and a word for its structure."""
    record = isinstance(result, dict) and type(result) is not dict  # SciPy's OptimizeResult
    leaves, structure = _flatten(dict(result) if record else result)
    arrays = [_number(x) for x in leaves]

    def rebuilt(parts: Sequence[Any]) -> Any:
        rest = iter(parts)
        whole = _unflatten(structure, [x if _is_apart(x) else next(rest) for x in arrays])
        if not record:
            return whole
        kind: Any = type(result)  # its __init__ may have other arguments (RootResults)
        made = kind.__new__(kind)
        dict.update(made, whole)
        return made

    apart = [type(x).__name__ if _is_apart(x) else "" for x in arrays]
    held = [x for x in arrays if not _is_apart(x)]
    return held, rebuilt, (type(result).__name__, str(structure), apart)


def _is_apart(x: Any) -> bool:
    """Whether a part of a result is no number, so that the program does not hold it."""
    return x is None or type(x) is _Left


class _Left:
    """What stands for a function in a result: the program keeps numbers."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise TraceError(
            "a function that a solver returned (the `sol` of solve_bvp, say) was called inside tg.compile, where such solvers return "
            "arrays and numbers alone. Interpolate the arrays of the result, or call the solver outside of the compiled function.",
            name="outside-program",
        )


def _number(x: Any) -> Any:
    """A leaf of a result as an array or a tensor; what tells so for a function, and None for what else is no number."""
    if callable(x) and not isinstance(x, Tensor | StandIn):
        return _Left()
    if not isinstance(x, Tensor):
        x = (
            np.asarray(x)
            if isinstance(x, int | float | complex | np.generic | np.ndarray)
            else None
        )
    return x if x is not None and x.dtype.kind in "fciub" else None


def _copied(x: Any, swap: Callable[[Any], Any], done: dict[int, Any]) -> Any:
    """A copy of what a solver is given, with `swap(leaf)` in place of each tensor, array and hole; objects without any stay."""
    if isinstance(x, Tensor | StandIn | np.ndarray | _Hole):
        return swap(x)
    if id(x) in done:
        return done[id(x)][1]
    kind, again = type(x), functools.partial(_copied, swap=swap, done=done)
    if kind in (list, tuple, set, dict):
        made: Any = {k: again(v) for k, v in x.items()} if kind is dict else kind(map(again, x))
    elif kind is types.FunctionType:
        return _copied_function(x, again, done)
    elif kind is types.MethodType:
        made = types.MethodType(again(x.__func__), again(x.__self__))
    elif kind is functools.partial:
        made = functools.partial(again(x.func), *again(x.args), **again(x.keywords))
    elif _is_plain(x):
        return x
    else:
        inside = {k: again(v) for k, v in vars(x).items()}
        if all(v is w for v, w in zip(inside.values(), vars(x).values(), strict=True)):
            return x
        made = copy.copy(x)
        vars(made).update(inside)
    done[id(x)] = x, made
    return made


def _copied_function(f: Any, again: Callable[[Any], Any], done: dict[int, Any]) -> Any:
    """A function of the same code, with cells of its own."""
    cells = [types.CellType() for _ in f.__closure__ or ()]
    made = types.FunctionType(f.__code__, f.__globals__, f.__name__, None, tuple(cells))
    done[id(f)] = f, made
    made.__defaults__, made.__kwdefaults__ = again(f.__defaults__), again(f.__kwdefaults__)
    made.__module__, made.__qualname__, made.__doc__ = f.__module__, f.__qualname__, f.__doc__
    vars(made).update(again(vars(f)))
    for cell, old in zip(cells, f.__closure__ or (), strict=True):
        value = content(old)
        if value is not old:
            cell.cell_contents = again(value)
    return made


def _is_plain(x: Any) -> bool:
    """Whether nothing is looked for in an object: it is of a library's compiled code, a class, a module, or has no attributes."""
    return isinstance(x, type | types.ModuleType) or not isinstance(
        getattr(x, "__dict__", None), dict
    )


class _Interlude:
    """A function of operands that Python computes in each call of a program, with derivatives of the same kind."""

    def __init__(
        self, f: Callable[..., Any], name: str, tracked: bool, size: int | None = None
    ) -> None:
        self.f, self.name, self.tracked, self.size = f, name, tracked, size
        """`tracked`: whether the value is that of a run whose derivative is wanted; `size` is the result's, once it is known."""
        self.last = threading.local()

    def evaluate(self, values: Sequence[Any]) -> Any:
        """The result for these values; a result of another length has the first one's, and its own checksum."""
        with _untraced(self.name):
            if self.tracked:
                y, self.last.pull = self._linearised(values)
                self.last.values = [np.array(v) for v in values]
            else:
                with no_grad():
                    y = self.f(*(wrap(np.asarray(v)) for v in values))
        y = np.asarray(value_of(y))
        self.size = self.size or y.size
        return y if y.size == self.size else np.resize(y, self.size)

    def _linearised(self, values: Sequence[Any]) -> Any:
        """The result, and the map from its cotangents to those of the inexact values."""
        places = [i for i, v in enumerate(values) if is_inexact(v)]
        moving = [values[i] for i in places]
        with enable_grad():
            return vjp(self._of(values, places), *moving, allow_unused=True)  # type: ignore[no-any-return]

    def _of(self, values: Sequence[Any], places: Sequence[int]) -> Callable[..., Any]:
        """The function of the values at some places."""

        def of_moving(*moving: Any) -> Any:
            full = list(values)
            for i, x in zip(places, moving, strict=True):
                full[i] = x
            return self.f(*full)

        return of_moving

    def pull(self, g: Any, xs: Sequence[Any], wanted: Sequence[bool]) -> list[Any]:
        """Cotangents of the operands, from another interlude."""
        places = [i for i, x in enumerate(xs) if is_inexact(x)]

        def back(g: Any, *xs: Any) -> Any:
            y, pull = self._linearised(xs)
            if np.shape(y) != np.shape(
                g
            ):  # of a call whose checksum is another one, which counts for nothing
                return flat([0 * xs[i] for i in places])
            return flat(pull(g))

        def remembered(g: Any, *xs: Any) -> Any:
            """`back`, by the run that found the value, if that was the last one of this thread."""
            pull, known = (self.last.__dict__.pop(k, None) for k in ("pull", "values"))
            if pull is None or holds_tracked([g, *xs]) or np.size(g) != self.size:
                return back(g, *xs)
            same = all(np.array_equal(a, value_of(b)) for a, b in zip(known, xs, strict=True))
            return flat(pull(np.asarray(value_of(g)))) if same else back(g, *xs)

        made = _Interlude(remembered, self.name, holds_tracked([g, *xs]))
        whole = apply(interluded.primitive, [g, *xs], (made,))
        found = dict(zip(places, unpacked(whole, [xs[i] for i in places]), strict=True))
        return [found.get(i) for i in range(len(xs))]

    def push(self, given: Sequence[Any], xs: Sequence[Any]) -> Any:
        """The tangent of the result, from another interlude."""
        places = [i for i, t in enumerate(given) if t is not None]

        def along(*both: Any) -> Any:
            values, tangents = both[: len(xs)], both[len(xs) :]
            moving = tuple(values[i] for i in places)
            y, t = jvp(self._of(values, places), moving, tangents, allow_unused=True)
            return t if np.size(t) == self.size else np.zeros(self.size or 0, y.dtype)

        operands = [*xs, *(given[i] for i in places)]
        made = _Interlude(along, self.name, holds_tracked(operands), self.size)
        return apply(interluded.primitive, operands, (made,))


interluded = op_of_calls("interlude", "A call of a solver that a compiled program makes in Python.", pushes=True)  # fmt: skip

__all__ = ["interlude", "within"]
