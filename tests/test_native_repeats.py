"""Generated code computes nothing twice: partial derivatives once for all directions, parts of a text once; formulas are compiled once."""

import numba
import numpy as np
import pytest

from tapegrad.native import inference, lowering, outlining, repeats, rules, settling, tangent
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


def test_long_formulas_are_functions_of_their_own():
    """The same numbers; one function for a formula of other operands, and none for what is short or reads an element."""
    turn = rules._for(rules._partials(np.arctan2)[0][0], False)
    of = lambda x, y: rules.renamed(turn, {"x": x, "y": y})  # noqa: E731
    long = f"if i < 3:\n        a += strong(g, {of('a', 'b')}) + c * ({of('b', 'c')})"
    kept = f"d = {of('v[i]', 'b')}\n    e = a if a > b else b"
    source = f"def f(a, b, c, g, v, i):\n    {long}\n    {kept}\n    return a, d, e\n"
    text, scope = outlining.outlined(source, {"np": np}, {})
    (name,) = scope.keys() - {"np"}
    assert f"a += strong(g, {name}(b, a)) + c * {name}(c, b)" in text
    assert kept in text
    assert text.count(name) == 2 and scope[name] is outlining.runtime.SCOPE[name]
    assert outlining.outlined(source, {"np": np}, {"fastmath": True})[1].keys() != scope.keys()
    plain = eval(f"lambda x, y: {turn}", {"np": np})
    points = [(0.0, 0.0), (1e200, 3.0), (-2.0, 1e-200), (np.inf, 1.0), (np.nan, 1.0), (3.0, -4.0)]
    with np.errstate(all="ignore"):
        for x, y in points:
            assert np.array_equal(scope[name].py_func(y, x), plain(x, y), equal_nan=True)


def test_choices_within_formulas_ask_for_no_more_than_they_did():
    """A logarithm in one branch is not computed for all, however often it stands there; a sum that stands twice is."""
    formula = "np.log(x) if x + y > 0 else (np.log(x) if x + y < 1 else 0.0) if y > 0 else x + y"
    assert outlining._parted(formula) == (
        ["part0 = x + y"],
        "np.log(x) if part0 > 0 else (np.log(x) if part0 < 1 else 0.0) if y > 0 else part0",
    )
