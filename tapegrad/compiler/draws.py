"""Random numbers drawn while a function is traced: by the function, which is refused, or by another thread, which does no harm.

Generators belong to the process: that their state has changed tells that somebody drew, not who did. Where other threads live, the
function is traced again under a profiler, which sees the thread that traces alone. It compares the states between the events of code that
may draw, the user's and other libraries', and notes the place of each change.

Invariant: up to its first draw a function runs alike each time. That draw is noted in every run at the same visit of the same place, a
draw of another thread at visits of chance: the function is to blame if one visit was noted in all runs. Runs that visited places more or
less often than others did not run alike: then the places have to differ.
"""

from __future__ import annotations

import ctypes
import functools
import random
import struct
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..errors import TraceError
from .surroundings import is_user

TRIES = 16
"""Traces until the function is blamed where other threads live: with 8 one that draws nothing was blamed now and then."""


def state_of(generator: Any) -> Any:
    """What drawing from a generator changes: equal before and after if nobody has drawn."""
    if isinstance(generator, random.SystemRandom):
        return None
    if isinstance(generator, random.Random):
        return generator.getstate()
    if isinstance(generator, np.random.RandomState):
        bits = generator._bit_generator  # type: ignore[attr-defined]
        return _comparable(bits.state), _second_of(generator)
    return _comparable(getattr(generator, "bit_generator", generator).state)


def _second_of(generator: np.random.RandomState) -> Any:
    """The second of 2 normal numbers, which the next draw takes: it leaves all else as it was.

    NumPy shows it by `get_state`, which waits for the generator's lock. While another thread draws all the time, that thread has the lock
    or waits for it: it draws during the wait, so that each state would be a new one, whoever draws. Hence a look at the memory itself.
    """
    place = _place_of_second()
    if place is not None:
        return ctypes.string_at(id(generator) + place, 8)
    state = generator.get_state(legacy=False)
    return state["has_gauss"], state["gauss"]


@functools.cache
def _place_of_second() -> int | None:
    """Where a RandomState has that number, in bytes from its beginning, found by one of which the number is known; None if it is not."""
    if sys.implementation.name != "cpython":
        return None
    generator = np.random.RandomState(0)
    known = 0.7310585786300049
    generator.set_state(generator.get_state(legacy=False) | {"has_gauss": 1, "gauss": known})
    memory = ctypes.string_at(id(generator), type(generator).__basicsize__)
    number = struct.pack("d", known)
    return memory.find(number) if memory.count(number) == 1 else None


def _comparable(state: Any) -> Any:
    if isinstance(state, dict):
        return tuple(map(_comparable, state.values()))
    return state.tobytes() if isinstance(state, np.ndarray) else state


def _is_quiet(frame: Any) -> bool:
    """Whether a frame's code draws nothing: it is ours, or a library's at work for us."""
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if frame.f_code.co_filename.startswith("<tapegrad"):  # generated code
            return True
        if module.startswith("tapegrad."):
            return module != "tapegrad.face.creation"  # home of `tg.randn` and its like
        if module and is_user(module):  # generated code may have none
            return False
        frame = frame.f_back
    return False


class Drawn(TraceError):
    """Random numbers were drawn while a function was traced, by the function or by another thread."""

    short_name = "frozen-value"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name} draws random numbers, and a compiled program would return those of its first run each time. Draw them outside and "
            "pass them as arguments. (If another thread draws them all the time, give it its own generator.)"
        )


class Suspects:
    """Where the function may have drawn, by all its traces so far."""

    def __init__(self) -> None:
        self.traces = 0
        self.noted: list[Draws] = []

    def demand_none(self, draws: Draws, name: str) -> None:
        """Raise Drawn unless nobody drew in this trace, or all traces that noted visits show that it was another thread."""
        self.traces += 1
        if not draws.made():
            return
        if self.traces > 1:  # the first notes nothing
            self.noted.append(draws)
            alike = all(d.visits == draws.visits for d in self.noted)
            if not set.intersection(
                *({v if alike else v[0] for v in d.changes} for d in self.noted)
            ):
                return
        raise Drawn(name)

    def settled(self) -> bool:
        """Whether another trace would tell nothing more."""
        return self.traces >= TRIES or threading.active_count() == 1


class Draws:
    """The states of Python's and NumPy's global generators and of those that a function reads, and where its thread changed them."""

    def __init__(self, generators: list[Any]) -> None:
        from ..face.creation import _generators

        # NumPy's global generator is the first, since `evaluated` looks at that alone.
        self.generators = [np.random.mtrand._rand, random._inst, _generators.rng, *generators]  # type: ignore[attr-defined]
        self.before = self.states()
        self.visits: Counter[Any] = Counter()
        self.changes: set[Any] = set()
        self._evaluating = False

    def states(self) -> list[Any]:
        return list(map(state_of, self.generators))

    def evaluated(self, function: Any, given: Any, settings: Any) -> Any:
        """Call a function that will be called in each run of the program, so that what it draws from NumPy's generator is no harm."""
        before, self._evaluating = state_of(self.generators[0]), True
        try:
            result = function(*given, **settings)
        finally:
            self._evaluating = False
        if before == self.before[0]:
            self.before[0] = state_of(self.generators[0])
        return result

    def made(self) -> bool:
        """Whether somebody has drawn."""
        return self.states() != self.before

    @contextmanager
    def noted(self, wanted: bool) -> Iterator[None]:
        """While this lasts, the places where the states change in code that may draw are noted. It costs time at each call."""
        if not wanted:
            yield
            return
        outer = sys.getprofile()
        sys.setprofile(None)  # it would look at the calls below
        quiet, states = False, self.states()

        def note(place: Any) -> None:
            self.visits[place] += 1
            if self.states() != states:
                self.changes.add((place, self.visits[place]))

        def look(frame: Any, event: Any, called: Any) -> None:
            nonlocal quiet, states
            if not quiet:
                note((frame.f_code, frame.f_lasti, event))
            if outer is not None:
                outer(frame, event, called)
            running = frame.f_back if event == "return" else frame
            quiet = self._evaluating or _is_quiet(running)
            if not quiet:
                states = self.states()

        sys.setprofile(look)
        try:
            yield
        finally:
            sys.setprofile(None)
            if not quiet:
                note("the end")
            sys.setprofile(outer)
