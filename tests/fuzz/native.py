"""The dialect that Numba accepts, and how `tg.njit` runs it: programs of `tests/test_native_fuzz.py`, called in layouts and judged by differences."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba.core.errors import NumbaError

import tapegrad as tg
from tests import test_native_fuzz as programs
from tests.fuzz.engines import Case
from tests.fuzz.judge import Unclear, Wrong, duplicate, same, spread
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
JITTED = {**PLAIN, "jit": tg.njit, "prange": numba.prange, **programs.RULES}


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
        value, (gx, gq) = tg.value_and_grad(f, (0, 1))(*duplicate(arguments))
        same(value, float(expected), [16 * b for b in bounds], "native value", types=False)
        got = float(gx @ direction[0] + gq * direction[1])
        if not abs(got - slope[0]) <= off + 1e-8 * float(np.sum(np.abs(gx))):
            raise Wrong(
                f"native gradient, call {call}: {got!r} along a direction, differences give {slope[0]!r} within {off:.2g}"
            )
        clear += 1
    if not clear:
        raise Unclear("no call is clear")


def numba_takes(case: Case, f: Any) -> None:
    """Refusals are counted where Numba itself refuses the program."""
    try:
        f.dispatcher(*duplicate(case.program.arguments()))
    except (NumbaError, ValueError) as error:
        raise Unclear(f"Numba refuses: {type(error).__name__}") from None


def adjoint(case: Case) -> None:
    """The generated adjoint as compiled code, at three points and in other layouts."""
    f = jitted(case)
    numba_takes(case, f)
    judged(case, f, [(0, False), (1, False), (2, True)])


def overload(case: Case) -> None:
    f = jitted(case)
    numba_takes(case, f)
    judged(case, tg.njit(f.py_func, mode="overload"), [(0, False), (1, False), (2, True)])


def interpreted(case: Case) -> None:
    """The generated adjoint as Python runs it: no compilation, so most programs meet this."""
    f = jitted(case)
    arguments = case.program.arguments()
    case.plain(arguments)
    direction = case.direction(arguments)
    slope, off = case.along(case.f, [arguments[0].copy(), arguments[1]], direction)
    order = range if case.program.number % 2 else lambda n: reversed(range(n))
    expected = case.plain(arguments)
    value, (gx, gq) = programs.interpreted(f, tuple(duplicate(arguments)), (0, 1), order)
    same(
        value,
        float(expected),
        [16 * b for b in spread(case.f, arguments, expected, case.eps)],
        "value",
        types=False,
    )
    got = float(gx @ direction[0] + gq * direction[1])
    if not abs(got - slope[0]) <= off + 1e-8 * float(np.sum(np.abs(gx))):
        raise Wrong(
            f"adjoint: {got!r} along a direction, differences give {slope[0]!r} within {off:.2g}"
        )


def tangent(case: Case) -> None:
    """Generated tangent code, compiled: the slope along a direction."""
    f = jitted(case)
    numba_takes(case, f)
    arguments = case.program.arguments()
    direction = case.direction(arguments)
    slope, off = case.along(case.f, [arguments[0].copy(), arguments[1]], direction)
    _, got = tg.jvp(f, tuple(duplicate(arguments)), tuple(direction))
    if not abs(float(got) - slope[0]) <= off:
        raise Wrong(f"native jvp: {float(got)!r}, differences give {slope[0]!r} within {off:.2g}")


NATIVE = {f.__name__: f for f in (interpreted, adjoint, tangent, overload)}
SHARES = {"interpreted": 1.0, "adjoint": 0.02, "tangent": 0.01, "overload": 0.01}
