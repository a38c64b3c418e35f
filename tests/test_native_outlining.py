"""Long formulas of generated code are functions of their own, which Numba compiles once."""

import numpy as np

from tapegrad.native import outlining, rules


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
