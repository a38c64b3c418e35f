"""What functions close over, for when they run again.

A step of a loop runs again for its derivative, when a variable that it closes over may mean something else: in

    for w in weights:
        x = tg.fori_loop(0, 50, lambda i, x: np.tanh(w @ x), x)

Python looks `w` up as each step runs, and all of them find the last one afterwards. `Cells` holds what variables of enclosing functions
meant; `closed_over` finds those of some functions and of the functions that these close over. What stands beside them looks at functions
and objects of the user's without running code of theirs.

Invariant: after `again` every variable means what it did before.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeGuard


def is_class(value: Any) -> TypeGuard[type]:
    """Whether a value is a class. `isinstance` would ask an object for its `__class__`, which may run code of the user's."""
    return issubclass(type(value), type)


def kept_by(value: Any) -> Any:
    """What a value keeps under names of its own, as a mapping; empty where it has none. Runs no code of the user's (`__getattr__`)."""
    find = type.__getattribute__ if is_class(value) else object.__getattribute__
    try:
        return find(value, "__dict__")
    except AttributeError:
        return {}


def called_by(f: Any) -> list[Any]:
    """What is called where a bound method, a partial or a wrapper is."""
    kind = type(f)
    if kind is types.MethodType:
        return [f.__func__]
    inside = [kept_by(f).get("__wrapped__")]
    if issubclass(kind, functools.partial) or kind.__module__.partition(".")[0] == "tapegrad":
        inside.append(getattr(f, "func", None))
    return [g for g in inside if g is not None]


def content(cell: types.CellType) -> Any:
    """What a variable means; the cell itself where it means nothing yet."""
    try:
        return cell.cell_contents
    except ValueError:  # empty
        return cell


def _fill(cell: types.CellType, value: Any) -> None:
    if value is not cell:
        cell.cell_contents = value
    elif content(cell) is not cell:
        del cell.cell_contents


def closed_over(functions: Sequence[Any]) -> Cells:
    """The variables that functions close over, and what they mean now."""
    held: list[tuple[types.CellType, Any]] = []
    seen: set[int] = set()
    unseen = list(functions)
    while unseen:
        f = unseen.pop()
        if id(f) in seen:
            continue
        seen.add(id(f))
        unseen += called_by(f)
        for cell in getattr(f, "__closure__", None) or ():
            value = content(cell)
            held.append((cell, value))
            if isinstance(value, types.FunctionType | types.MethodType):
                unseen.append(value)
    return Cells(held)


class Cells:
    """Variables, and what they meant."""

    __slots__ = ("held",)

    def __init__(self, held: list[tuple[types.CellType, Any]]) -> None:
        self.held = held

    @contextmanager
    def again(self) -> Iterator[None]:
        """While this lasts, the variables mean what they meant."""
        now = [(cell, content(cell)) for cell, _ in self.held]
        for cell, value in self.held:
            _fill(cell, value)
        try:
            yield
        finally:
            for cell, value in now:
                _fill(cell, value)

    def within(self, f: Callable[..., Any]) -> Callable[..., Any]:
        """`f`, for whose runs they mean what they meant."""

        def run(*args: Any) -> Any:
            with self.again():
                return f(*args)

        return run


@contextmanager
def lent(*functions: Any) -> Iterator[list[Any]]:
    """Stand-ins of functions (None for None) for libraries whose objects refer to each other: they hold nothing when the block ends.

    What SciPy's solvers leave behind waits for the cyclic collector; what a user's function closes over does not wait with it.
    """
    made = [None if f is None else _Lent(f) for f in functions]
    try:
        yield made
    finally:
        for stand_in in made:
            if stand_in is not None:
                stand_in.function = None


class _Lent:
    """A function until it is taken back."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function: Callable[..., Any] | None = function

    def __call__(self, *args: Any) -> Any:
        assert self.function is not None, "a solver was called after it had returned"
        return self.function(*args)


__all__ = ["Cells", "closed_over", "content", "lent"]
