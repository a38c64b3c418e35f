"""The dialect that Numba accepts, and how `tg.njit` runs it: programs of `tests/test_native_fuzz.py`, called in layouts and judged by differences."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable
from typing import Any
from unittest import mock

import numba
import numpy as np
from numba.core.errors import NumbaError

import tapegrad as tg
from tapegrad.native import function
from tests import test_native_fuzz as programs
from tests.fuzz.engines import Case
from tests.fuzz.judge import Unclear, Wrong, duplicate, nudged, same, spread
from tests.fuzz.program import Leaf, Program

PLAIN = {
    "math": math,
    "jit": lambda f: f,
    "prange": range,
    "checkpointed": tg.checkpointed,
    "ruled": math.tanh,
    "times": lambda a, b: a * b,
    **programs.CONSTANTS,
}
_shared: dict[tuple[str, str], Any] = {}


def shared(f: Callable[..., Any]) -> Any:
    """A helper, jitted once for all programs that have its text: helpers name nothing but NumPy and `math`."""
    code = f.__code__
    key = code.co_name, repr((code.co_code, code.co_consts, code.co_names, code.co_varnames))
    return _shared.setdefault(key, tg.njit(f))


JITTED = {**PLAIN, "jit": shared, "prange": numba.prange, **programs.RULES}


_generated = mock.patch.dict(os.environ, TAPEGRAD_FORM="0")
"""Without the program form, which would have some of the programs."""


def write(number: int) -> Program:
    r = random.Random(number)
    text = programs.Writer(number).program() if r.random() < 0.75 else programs.stencils(number)
    if r.random() < 0.2:
        text = programs.replaced(text, r.random() < 0.5)
    # Numba takes arrays of any layout, but for unaligned ones.
    layout = r.choice(["C", "C", "flipped", "strided", "offset", "swapped"])
    parameters = [Leaf((6,), "float64", layout), Leaf((), "float64", python=True)]
    return Program(number, text, parameters, "native")


def jitted(case: Case, **options: Any) -> Callable[..., Any]:
    return tg.njit(
        case.program.function(JITTED), parallel="prange" in case.program.source, **options
    )


def judged(case: Case, f: Callable[..., Any], calls: list[tuple[int, bool]]) -> None:
    clear = 0
    for call, other in calls:
        arguments = case.program.arguments(call, other_layout=other)
        if not np.asarray(arguments[0]).flags.aligned or not arguments[0].flags.writeable:
            arguments = case.program.arguments(call)
        try:
            expected = case.plain(arguments)
            bounds = spread(case.f, arguments, expected, case.eps)
            direction = case.direction(arguments)
            slope, off = case.along(case.f, [arguments[0].copy(), arguments[1]], direction)
        except Unclear:
            continue
        gradient = tg.value_and_grad(f, (0, 1))
        value, found = gradient(*duplicate(arguments))
        same(value, float(expected), [16 * b for b in bounds], "native value", types=False)
        holds(lambda *a: gradient(*a)[1], found, arguments, direction, slope[0], off, f"native gradient, call {call}")  # fmt: skip
        clear += 1
    if not clear:
        raise Unclear("no call is clear")


def holds(
    gradient: Callable[..., Any],
    found: Any,
    arguments: list[Any],
    direction: list[Any],
    slope: float,
    off: float,
    what: str,
) -> None:
    """Raise Wrong where a gradient is not the slope along a direction, or Unclear where ulps of the arguments change it as much.

    The sine of a number beyond 1e16 has a derivative, but one that differences do not see.
    """

    def along(g: Any) -> float:
        return float(g[0] @ direction[0] + g[1] * direction[1])

    got = along(found)
    apart = abs(got - slope)
    if apart <= off + 1e-8 * float(np.sum(np.abs(found[0]))):
        return
    rng = np.random.default_rng(3)
    near = [along(gradient(*nudged(arguments, 1e-15, rng))) for _ in range(3)]
    if max(abs(n - got) for n in near) > 0.1 * apart:
        raise Unclear("the gradient differs as much for an ulp")
    raise Wrong(f"{what}: {got!r} along a direction, differences give {slope!r} within {off:.2g}")


def numba_takes(case: Case, f: Any) -> None:
    """Refusals are counted where Numba itself refuses the program, or fails: beside prange it takes its own name for another `v`, v_2,
    for the user's."""
    try:
        f.dispatcher(*duplicate(case.program.arguments()))
    except (NumbaError, ValueError, AssertionError) as error:
        raise Unclear(f"Numba refuses: {type(error).__name__}") from None


def form(case: Case) -> None:
    """The program form, at three points and in other layouts; programs outside it say so."""
    f = jitted(case, mode="form")
    try:
        judged(case, f, [(0, False), (1, False), (2, True)])
    except Exception as error:
        if "outside the program form" in str(error):
            raise Unclear("the program lies outside the form") from None
        if not isinstance(error, Wrong | Unclear):
            numba_takes(case, f)
        raise


@_generated
def adjoint(case: Case) -> None:
    """The generated adjoint as compiled code, at three points and in other layouts."""
    f = jitted(case)
    numba_takes(case, f)
    judged(case, f, [(0, False), (1, False), (2, True)])


def overload(case: Case) -> None:
    f = jitted(case)
    numba_takes(case, f)
    judged(case, tg.njit(f.py_func, mode="overload"), [(0, False), (1, False), (2, True)])


_uncompiled = mock.patch.object(function, "_compiled", lambda *given: None)
"""Derivatives stay texts."""


@_generated
@_uncompiled
def interpreted(case: Case) -> None:
    """The generated adjoint as Python runs it: no compilation, so most programs meet this."""
    f = jitted(case)
    arguments = case.program.arguments()
    case.plain(arguments)
    direction = case.direction(arguments)
    slope, off = case.along(case.f, [arguments[0].copy(), arguments[1]], direction)
    order = range if case.program.number % 2 else lambda n: reversed(range(n))
    expected = case.plain(arguments)

    def run(*given: Any) -> Any:
        return programs.interpreted(f, tuple(duplicate(list(given))), (0, 1), order)

    try:
        value, found = run(*arguments)
    except IndexError as error:
        if "only integers" not in str(error):
            raise
        # Numba refuses that text, too, and overloading takes over: the engine `adjoint` judges what it gives.
        raise Unclear("a name that is an int here and a float there") from None
    same(
        value,
        float(expected),
        [16 * b for b in spread(case.f, arguments, expected, case.eps)],
        "value",
        types=False,
    )
    holds(lambda *a: run(*a)[1], found, arguments, direction, slope[0], off, "adjoint")


def directed(case: Case) -> None:
    """Forward mode of the program form: the slope along a direction, and that of the gradient."""
    f = jitted(case, mode="form")
    numba_takes(case, f)
    arguments = case.program.arguments()
    direction = case.direction(arguments)
    gradient = tg.grad(f, (0, 1))

    def plainly(*given: Any) -> Any:
        return gradient(*duplicate(list(given)))

    slope, off = case.along(case.f, [arguments[0].copy(), arguments[1]], direction)
    try:
        _, got = tg.jvp(f, tuple(duplicate(arguments)), tuple(direction))
        expected, apart = case.along(plainly, arguments, direction)
        bent = tg.jvp(gradient, tuple(duplicate(arguments)), tuple(direction))[1]
    except tg.NotDifferentiable as error:
        if "outside the program form" in str(error):
            raise Unclear("the program lies outside the form") from None
        if "writes to" in str(error):
            raise Unclear("the program writes to its arguments") from None
        raise
    if not abs(float(got) - slope[0]) <= off:
        raise Wrong(
            f"jvp by the form: {float(got)!r}, differences give {slope[0]!r} within {off:.2g}"
        )
    found = np.concatenate([np.ravel(b) for b in bent])
    if not np.max(np.abs(found - expected), initial=0.0) <= 10 * apart:
        raise Wrong(
            f"hvp by the form: {found.tolist()}, differences give {expected.tolist()} within {10 * apart:.2g}"
        )


NATIVE = {f.__name__: f for f in (interpreted, form, directed, adjoint, overload)}
SHARES = {
    "interpreted": 1.0,
    "form": 0.5,
    "directed": 0.1,
    "adjoint": 0.006,
    "overload": 0.004,
}
