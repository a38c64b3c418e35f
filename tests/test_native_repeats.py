"""Generated code computes nothing twice: partial derivatives once for all directions, and parts of a text once."""

import numba
import numpy as np
import pytest

from tapegrad.native import inference, lowering, repeats, settling, tangent
from tapegrad.native.runtime import accumulate
from tapegrad.native.tree import operations

X = np.array([0.3, -0.7, 1.1])
Y = np.array([0.2, 0.9, 1.1])
SHARE = "np.where(x - y >= 0, 1.0, np.exp(np.where(x - y >= 0, -(x - y), x - y))) / (1.0 + np.exp(np.where(x - y >= 0, -(x - y), x - y)))"


def namer():
    names = iter("abcdefgh")
    return lambda _: next(names)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (SHARE, 3),  # the difference, whether it is negative, the exponential
        ("np.cos(x) * y", 0),
        ("x * -1.0 + y * -1.0", 0),
        ("x - y if x - y > 0 else y", 0),  # what may not be evaluated stays where it is
    ],
)
def test_what_stands_several_times_gets_a_name(text, lines):
    before, rest = repeats.parted(text, namer())
    assert len(before) == lines
    scope = {"np": np, "x": 0.4, "y": 0.1} if "if" in text else {"np": np, "x": X, "y": Y}
    expected = eval(text, scope)
    exec("\n".join(before), scope)
    assert np.array_equal(eval(rest, scope), expected)


def test_the_partial_of_a_term():
    assert repeats.factored("dx * (np.cos(x))") == ("dx * partial", "np.cos(x)")
    assert repeats.factored("strong_all(dy, x / y)") == ("strong_all(dy, partial)", "x / y")
    for term in ("dx", "-dx", "dx * y", "np.dot(dx, np.cos(y))", "np.sum(dx)", "dx * np.cos(dy)"):
        assert repeats.factored(term) is None


def merged(f):
    program = lowering.lower(f, generated=True)
    before = len(list(operations(program.body)))
    repeats.merge(program)
    return before - len(list(operations(program.body)))


def test_operations_that_are_merged():
    def alike(x, y, bar):
        accumulate(bar, np.where(x > y, np.exp(x - y), x - y) * np.where(x > y, 1.0, y))

    assert merged(alike) == 2


@pytest.mark.parametrize("kind", ["written", "bound", "given on"])
def test_operations_that_are_not_the_same_any_more(kind):
    def written(x, y):
        a = np.sum(x * y)
        x[0] = 2.0
        return a + np.sum(x * y)

    def bound(x, y):
        a = np.exp(x * y)
        x = np.cos(y)
        return np.sum(a + np.exp(x * y))

    def given_on(x, y):
        a = x * y
        b = x * y
        a[0] = 2.0
        return np.sum(a) + np.sum(b)

    assert merged({"written": written, "bound": bound, "given on": given_on}[kind]) == 0


def shares(x):
    return np.sum(np.logaddexp(x, x[::-1].copy()))


def test_a_tangent_of_several_directions_computes_each_partial_once():
    def source(width):
        program = lowering.lower(shares)
        kinds, returns = inference.infer(program, (numba.typeof(X),))
        typed = settling.Typed(program, kinds, returns)
        return tangent.generate(typed, set(typed.program.params), width).source

    assert source(4).count("np.exp(") == 2  # one of each operand's partial
