"""What a native function names is a constant of its compilation: value and gradient are of the same constants, or there is an error.

And names that are an active float at one place and something that does not vary at another.
"""

import linecache
import types

import numba
import numpy as np
import pytest

import tapegrad as tg
from tapegrad import NotDifferentiable

X = np.arange(1.0, 4.0)


def module_like(text, **given):
    """A native function `f` with globals of its own, and these."""
    space = {"np": np, "__name__": "made_for_a_test", **given}
    file = f"<made for a test {abs(hash(text))}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    exec(compile(text, file, "exec"), space)
    return tg.njit(types.FunctionType(space["f"].__code__, space)), space


LOOP = """
def f(x):
    s = 0.0
    for i in range(len(x)):
        s += {weight} * x[i]
    return s
"""


def write(space):
    space["G"][:] = 10.0


def rebind_array(space):
    space["G"] = np.full(3, 10.0)


def rebind_number(space):
    space["G"] = 10.0


def rebind_tuple(space):
    space["G"] = (10.0, 10.0, 10.0)


def rebind_function(space):
    space["G"] = numba.njit(lambda i: 10.0)


CHANGES = [
    ("G[i]", lambda: np.ones(3), write),
    ("G[i]", lambda: np.ones(3), rebind_array),
    ("G", lambda: 1.0, rebind_number),
    ("G[i]", lambda: (1.0, 1.0, 1.0), rebind_tuple),
    ("G(i)", lambda: numba.njit(lambda i: 1.0), rebind_function),
]


@pytest.mark.long(but=2)
@pytest.mark.parametrize("weight, first, change", CHANGES, ids=[c[2].__name__ for c in CHANGES])
@pytest.mark.parametrize("mode", ["adjoint", "overload"])
def test_a_change_between_value_and_gradient(weight, first, change, mode):
    """Refused, with what changed and what to write; made anew, the function sees it."""
    f, space = module_like(LOOP.format(weight=weight), G=first())
    f = tg.njit(mode=mode)(f)
    assert f(X) == 6.0
    change(space)
    assert f(X) == 6.0  # Numba's own constant
    with pytest.raises(NotDifferentiable, match="G has changed .* Pass G as an argument"):
        tg.value_and_grad(f)(X)
    again = tg.njit(f.py_func, mode=mode)
    value, gradient = tg.value_and_grad(again)(X)
    assert value == again(X) == 60.0 and np.array_equal(gradient, np.full(3, 10.0))


def test_a_change_after_both():
    """Value and gradient stay those of the constants that they were compiled with; other arguments are refused."""
    f, space = module_like(LOOP.format(weight="G[i]"), G=np.ones(3))
    assert tg.value_and_grad(f)(X)[0] == f(X) == 6.0
    space["G"][:] = 10.0
    value, gradient = tg.value_and_grad(f)(X)
    assert value == f(X) == 6.0 and np.array_equal(gradient, np.ones(3))
    for call in (f, tg.grad(f)):
        with pytest.raises(NotDifferentiable, match="G has changed"):
            call(X.astype(np.float32))
    with pytest.raises(NotDifferentiable, match="G has changed"):
        tg.jvp(f, (X,), (X,))


def test_closures_and_helpers():
    weights = np.ones(3)

    @tg.njit
    def weighted(x, i):
        return weights[i] * x[i]

    @tg.njit
    def f(x):
        s = 0.0
        for i in range(len(x)):
            s += weighted(x, i)
        return s

    assert f(X) == 6.0
    weights[:] = 10.0
    with pytest.raises(NotDifferentiable, match="weights has changed"):
        tg.grad(f)(X)


def branch(q, n):
    if q > 0:
        v = q
    else:
        v = float(n)
    return v * v


def single_start(q, n):
    total = np.float32(0)
    for _ in range(n):
        total += q * q
    return total


def rounded_in_one_branch(q, n):
    v = q * 2.0
    if q > 10.0:
        v = np.floor(q)
    return v * v


def length_in_one_branch(q, n):
    v = q
    if n > 5:
        v = float(len((1, 2, 3)))
    return v * q


SLOPES = {
    branch: lambda q, n: 2 * q if q > 0 else 0.0,
    single_start: lambda q, n: 2 * q * n,
    rounded_in_one_branch: lambda q, n: 0.0 if q > 10 else 8 * q,
    length_in_one_branch: lambda q, n: 3.0 if n > 5 else 2 * q,
}


@pytest.mark.parametrize("mode", ["auto", "adjoint", "overload"])
@pytest.mark.parametrize("f", SLOPES)
def test_names_that_vary_at_one_place_only(f, mode):
    native = tg.njit(mode=mode)(f)
    for q, n in ((0.5, 3), (-0.5, 3), (12.5, 7)):
        try:
            found = tg.grad(native)(q, n)
        except NotDifferentiable as refused:
            assert mode != "auto" and "tg.njit" in str(refused), refused
            continue
        assert np.isclose(found, SLOPES[f](q, n), rtol=1e-6), (q, n)
