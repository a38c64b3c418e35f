"""Promotion: derivatives that start eager, and are compiled once they have run for as long as compiling would take.

Nobody knows how many evaluations a solver will ask for. Somebody who must choose between renting at a price a day and buying,
and does not know for how many days, pays at most twice the least by renting until the rent has reached the price (the ski rental problem;
Karlin, Manasse, Rudolph & Sleator 1988). Renting is the eager derivative, buying is `tg.compile` of it; the price is told by
the number of operations that `f` records.

A function is compiled by itself only if nothing that it does could get lost (`effects`), and while nothing looks at what is recorded
or at NumPy's errors. The program's first result is compared with the eager one at that point; a program that raises, differs, or
turns out slower is given up for good.

Invariant: a promoted derivative returns what the eager one would, to rounding, and raises only what that raises.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ..core import logs, storage
from ..core.tape import ATTENDING, STRIDE
from ..transforms.derivatives import _flatten, _Run, hessian, hvp, is_compiled

LEAST = 0.25
"""Seconds of eager evaluations before anything is considered."""

PRICE, PRICE_OF_ENTRY, SECOND_ORDER = 0.3, 0.003, 4.0
"""Seconds that compiling takes at all, and for each recorded operation; how many times that of second derivatives. Measured: long
loops, which are rolled, and what the cache on disk knows take less."""

PATIENCE = 1.0
"""How often the price has to be paid in eager evaluations."""

MOST_ENTRIES = 200_000
"""Operations of a function above which its trace would take too much memory to be tried unasked."""

AGREEMENT = 1e-6
"""Part of the largest number by which results may differ: far more than rounding, far less than a mistake."""


class Promotion:
    """How the functions of one solve become derivatives: `of(transform, f)`. `mode` is the solver's argument `compile`."""

    def __init__(self, mode: Any, solver: str, others_act: bool = False) -> None:
        if not (isinstance(mode, bool | np.bool_) or mode == "auto"):
            raise ValueError(
                f'{solver} was given compile={mode!r}: it is True (compile at once), False (never), or "auto" (once it pays).'
            )
        self.mode = mode if mode == "auto" else bool(mode)
        self.others_act = others_act
        self._effects: dict[Any, str | None] = {}

    def of(self, transform: Callable[..., Any], f: Callable[..., Any]) -> Callable[..., Any]:
        """`transform(f)`, eager, compiled, or the one first and then the other."""
        if self.mode is False or is_compiled(f):
            return transform(f)
        if self.mode is True:
            from ..compiler import compile

            return compile(transform(f))
        return Promoted(transform(f), f, transform in (hessian, hvp), self)

    def effect(self, f: Callable[..., Any]) -> str | None:
        """Why `f` stays eager; None if it need not."""
        if f not in self._effects:
            from .effects import effect

            self._effects[f] = effect(f, self.others_act) or watched()
        return self._effects[f]


def itself(f: Callable[..., Any]) -> Callable[..., Any]:
    """The transform that leaves a function as it is: for values that solvers ask for without derivatives."""
    return f


class Promoted:
    """A derivative that is called like the eager one."""

    def __init__(
        self, eager: Callable[..., Any], f: Callable[..., Any], second: bool, promotion: Promotion
    ) -> None:
        self.eager = eager
        self.f = f
        self.second = second
        self.promotion = promotion
        self.calls = 0
        self.spent = 0.0
        self.price = 0.0  # not asked for yet
        self.credit = 0.0
        self.compiled: Any = None
        self.settled = False  # eager for good
        self.why = "it has not run for long enough"

    def __call__(self, *args: Any) -> Any:
        # No method of its own is kept as an attribute: a solve is freed when it is dropped, with the data that its functions see.
        if self.settled:
            return self.eager(*args)
        return self._measured(*args) if self.compiled is None else self._promoted(*args)

    def _measured(self, *args: Any) -> Any:
        start = time.perf_counter()
        result = self.eager(*args)
        if self.calls:  # the first call imports, and loads what it needs
            self.spent += time.perf_counter() - start
        self.calls += 1
        if self.spent > LEAST and self.spent >= PATIENCE * self.price:
            self._consider(args, result)
        return result

    def _consider(self, args: tuple[Any, ...], result: Any) -> None:
        """Ask what compiling would cost; compile if the eager evaluations have cost as much."""
        try:
            why = self.promotion.effect(self.f)
            if why is None and not self.price:
                recorded = entries(self.f, args)
                if recorded > MOST_ENTRIES:
                    why = f"it records {recorded} operations"
                order = SECOND_ORDER if self.second else 1.0
                self.price = PRICE + PRICE_OF_ENTRY * order * recorded
        except Exception as problem:  # no judgement about the user's function may stop the solver
            why = f"{type(problem).__name__} while it was looked at: {problem}"
        if why is not None:
            return self._stay(why)
        if self.spent >= PATIENCE * self.price:
            self._compile(args, result)

    def _compile(self, args: tuple[Any, ...], result: Any) -> None:
        """Compile the function and compare with the eager result; where that fails or differs, stay eager and note why."""
        try:
            from ..compiler import compile

            with np.errstate(all="ignore"):  # said already, by the eager evaluation
                compiled = compile(self.eager)
                agrees = _agree(compiled(*args), result)
        except Exception as problem:
            return self._stay(f"it cannot be compiled: {problem}")
        if not agrees:
            return self._stay("its program computed something else")
        self.credit = self.price
        self.why = ""
        logs.tell("a solver has compiled a derivative of %s", getattr(self.f, "__name__", self.f))
        self.compiled = compiled

    def _promoted(self, *args: Any) -> Any:
        start = time.perf_counter()
        try:
            with np.errstate(all="ignore"):
                result = self.compiled(*args)
        except Exception as problem:
            self._stay(f"its program raised {type(problem).__name__}: {problem}")
            return self.eager(*args)
        if not pays(self, self.calls, start):
            self._stay("its programs took longer than it did itself")
        return result

    def _stay(self, why: str) -> None:
        self.why = why
        self.settled = True
        self.compiled = None


def pays(account: Any, count: int, start: float) -> bool:
    """Whether programs pay still, after a call of them that began at `start`.

    `account` has the seconds `spent` on `count` eager calls, of which the first does not count, the price and the credit. Programs for
    other signatures and other branches are compiled on the way: they have to pay, too.
    """
    saved = account.spent / max(count - 1, 1) - (time.perf_counter() - start)
    account.credit = min(account.credit + saved, account.price)
    return account.credit >= 0


def watched() -> str | None:
    """Who would notice that evaluations are compiled."""
    if ATTENDING.get() != ((), None):
        return "anomaly mode, debug_nans or hooks of saved tensors look at what is recorded"
    if storage.tracing.get():
        return "it is being traced already"
    if not set(np.geterr().values()) <= {"ignore", "warn"}:
        return "NumPy's errors are to be raised or reported (np.seterr)"
    return None


def entries(f: Callable[..., Any], args: tuple[Any, ...]) -> int:
    """The number of operations that `f` records."""
    with np.errstate(all="ignore"):
        return len(_Run(f, args, {}, 0, "minimize").own.tape.code) // STRIDE


def _agree(found: Any, expected: Any) -> bool:
    """Whether two results are the same but for rounding, array by array."""
    ours, theirs = _flatten(found)[0], _flatten(expected)[0]
    if len(ours) != len(theirs):
        return False
    return all(close(np.asarray(a), np.asarray(b)) for a, b in zip(ours, theirs, strict=True))


def close(a: Any, b: Any) -> bool:
    """Whether two arrays are the same but for rounding."""
    if a.shape != b.shape:
        return False
    finite = np.abs(b[np.isfinite(b)])
    scale = float(finite.max()) if finite.size else 0.0
    return np.allclose(a, b, rtol=AGREEMENT, atol=AGREEMENT * scale, equal_nan=True)


__all__ = ["Promotion", "close", "entries", "itself", "watched"]
