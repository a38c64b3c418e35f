"""Calls of LAPACK in the program form: values and derivatives against the same function on tensors, which other code computes."""

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.core import checking
from tapegrad.program.affine import affine
from tapegrad.program.arrays import Builder, of_buffer, of_number
from tapegrad.program.calls import CALLS, DET, LOG
from tapegrad.program.compiling import prepared
from tapegrad.program.derivative import gradient
from tapegrad.program.running import DONE, Argument, Compiled
from tapegrad.program.tangents import tangent
from tests import programs_random as programs


def solved(a, b):
    return np.sum(np.linalg.solve(a, b[:, 0]) ** 2)


def solved_each(a, b):
    return np.sum(np.linalg.solve(a.T, b * b) ** 3)


def inverted(a, b):
    return np.sum(np.linalg.inv(a) * b)


def measured(a, b):
    return np.linalg.det(a) * b[0, 0] + np.linalg.slogdet(a)[1] * np.linalg.slogdet(a)[0]


def factored(a, b):
    """Of one matrix that is symmetric, and of one of which the lower triangle alone is read."""
    return np.sum(np.linalg.cholesky(a @ a.T) ** 2 * b) + np.sum(
        np.linalg.cholesky(a + 2.0 * np.eye(a.shape[0])) * b
    )


def filtered(a, b):
    x = b[0]
    p = a @ a.T
    total = 0.0
    for t in range(b.shape[0]):
        p = a @ p @ a.T * 0.1 + np.eye(a.shape[0])
        s = p + np.diag(x * x)
        r = b[t] - 0.5 * x
        gain = np.linalg.solve(s, p).T
        x = 0.5 * x + gain @ r
        p = p - gain @ p
        total += r @ np.linalg.solve(s, r) + np.linalg.slogdet(s)[1]
    return total


def stacked(a, b):
    """Matrices that are parts of arrays of more axes, one of them made in the loop."""
    n = a.shape[0]
    whole = np.zeros((2, n, n))
    for k in range(2):
        whole[k] = a * (1.0 + k)
        whole[k, 0] += b[n - 1] * (1.0 - 0.5 * k)
    total = 0.0
    for k in range(2):
        total += np.sum(np.linalg.solve(whole[k], b[:, n - 1]) ** 2) + np.linalg.det(
            whole[k, :1, :1]
        )
    return total


def windows(a, b):
    """Matrices of another size in each iteration, and results that are matrices."""
    total = 0.0
    for i in range(a.shape[0]):
        for j in range(i):
            total += np.sum(np.linalg.inv(a[j:i, j:i]) * b[j:i, j:i])
            total += np.sum(np.linalg.solve(a[j:i, j:i], b[j:i, :2]) ** 2)
        rest = a[i:, i:].copy()
        p = rest @ rest.T
        total += np.sum(np.linalg.cholesky(p) * b[i:, i:]) + np.linalg.slogdet(p)[1] * b[i, 0]
    return total


FUNCTIONS = (solved, solved_each, inverted, measured, factored, filtered, stacked, windows)


def given(n, dtype=np.float64):
    r = np.random.default_rng(n)
    a = 2.0 * np.eye(n) + 0.6 * r.normal(size=(n, n)) / np.sqrt(max(n, 1))
    return a.astype(dtype), r.normal(size=(n, n)).astype(dtype)


def close(mine, theirs, dtype=np.float64):
    """Equal up to what the condition of these matrices, below 100, makes of rounding."""
    scale = max(1.0, float(np.max(np.abs(theirs), initial=0.0)))
    assert np.shape(mine) == np.shape(theirs)
    assert (
        np.max(np.abs(np.asarray(mine) - theirs), initial=0.0) <= 1e4 * np.finfo(dtype).eps * scale
    )


@pytest.mark.parametrize("n", [1, 2, 5, 30])
@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_derivatives(f, n):
    """Value, gradient, and along a direction the derivative and that of the gradient."""
    args, along = given(n), given(n + 1)[0][:n, :n]
    directions = along, along[::-1].copy()
    native = tg.njit(f, mode="form")
    value, gradient = tg.value_and_grad(native, (0, 1))(*args)
    expected, theirs = tg.value_and_grad(f, (0, 1))(*args)
    close(value, float(expected))
    slope = sum(float(np.sum(g * d)) for g, d in zip(theirs, directions, strict=True))
    close(tg.jvp(native, args, directions)[1], slope)
    mine = tg.jvp(tg.grad(native, (0, 1)), args, directions)[1]
    second = tg.jvp(tg.grad(f, (0, 1)), args, directions)[1]
    for found, known in zip((*gradient, *mine), (*theirs, *second), strict=True):
        close(found, known)


@pytest.mark.parametrize("f", FUNCTIONS[:5], ids=lambda f: f.__name__)
def test_single_precision(f):
    args = given(4, np.float32)
    gradient = tg.grad(tg.njit(f, mode="form"), (0, 1))(*args)
    for found, known in zip(gradient, tg.grad(f, (0, 1))(*args), strict=True):
        assert found.dtype == np.float32
        close(found, known, np.float32)


@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_layouts_and_arguments_that_stay(f):
    a, b = given(5)
    expected = tg.grad(f, (0, 1))(a, b)
    wide = np.zeros((10, 10))
    wide[::2, ::2] = b
    native = tg.grad(tg.njit(f, mode="form"), (0, 1))
    before = a.copy(), wide.copy()
    for x, y in ((np.asfortranarray(a), wide[::2, ::2]), (a[::-1].copy()[::-1], b)):
        for found, known in zip(native(x, y), expected, strict=True):
            close(found, known)
    assert np.array_equal(a, before[0])
    assert np.array_equal(wide, before[1])


def test_nothing_at_all():
    """Of matrices without rows."""
    nothing = np.zeros((0, 0))
    for f in (inverted, solved_each):
        value, gradient = tg.value_and_grad(tg.njit(f, mode="form"))(nothing, nothing)
        assert value == 0
        assert gradient.shape == (0, 0)
    determinant = tg.njit(lambda a: np.linalg.det(a) + np.linalg.slogdet(a)[1], mode="form")
    assert tg.value_and_grad(determinant)(nothing)[0] == 1


def test_what_has_no_solution_raises_as_numba_does():
    native = tg.value_and_grad(tg.njit(solved), (0, 1))
    a, b = given(3)
    native(a, b)
    with pytest.raises(np.linalg.LinAlgError, match="singular"):
        native(np.ones((3, 3)), b)
    positive = tg.value_and_grad(tg.njit(lambda a: np.sum(np.linalg.cholesky(a))))
    positive(a @ a.T)
    with pytest.raises(np.linalg.LinAlgError, match="positive definite"):
        positive(-np.eye(3))


def test_logarithms_of_determinants_that_overflow():
    """Their gradient is the transposed inverse, whatever the determinant is."""
    native = tg.njit(lambda a: np.linalg.slogdet(a)[1], mode="form")
    for scale in (1e-200, 1e200):
        a = scale * given(3)[0]
        close(scale * tg.grad(native)(a), scale * np.linalg.inv(a).T)
        along = scale * given(4)[0][:3, :3]
        inverse = np.linalg.inv(a)
        curved = tg.jvp(tg.grad(native), (a,), (along,))[1]
        close(scale * curved, -scale * (inverse @ along @ inverse).T)


def test_determinants_that_underflow_have_a_gradient():
    native = tg.value_and_grad(tg.njit(lambda a: np.linalg.det(a)))
    native(np.eye(2))
    value, gradient = native(np.diag([1e-170, 2e-170]))
    assert value == 0
    assert np.allclose(1e170 * gradient, np.diag([2.0, 1.0]))


@pytest.mark.parametrize("f", FUNCTIONS[:5], ids=lambda f: f.__name__)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_raises_as_numba_does(f, bad):
    native = tg.value_and_grad(tg.njit(f), (0, 1))
    a, b = given(4)
    native(a, b)
    a[1, 2] = bad
    with pytest.raises(np.linalg.LinAlgError, match="infs or NaNs"):
        native(a, b)


def test_a_right_side_that_is_not_finite_raises_as_numba_does():
    native = tg.value_and_grad(tg.njit(solved), (0, 1))
    a, b = given(4)
    native(a, b)
    b[2, 0] = np.nan
    with pytest.raises(np.linalg.LinAlgError, match="infs or NaNs"):
        native(a, b)


def test_the_derivative_of_a_singular_matrix_s_determinant():
    """It has one where LU factors end: another engine's."""
    native = tg.value_and_grad(tg.njit(lambda a: np.linalg.det(a)))
    native(given(3)[0])
    a = np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [0.0, 1.0, 5.0]])
    value, gradient = native(a)
    close(value, 0.0)
    close(gradient, tg.grad(np.linalg.det)(a))


def test_second_derivatives_of_determinants_near_singular_matrices():
    a = np.array([[1.0, 2.0, 3.0], [2.0, 4.0 + 1e-14, 6.0], [0.3, 1.0, 5.0]])
    along = np.array([[0.3, -1.0, 0.2], [0.5, 0.1, 0.0], [0.2, 0.4, -0.6]])

    def bent(f):
        return tg.jvp(tg.grad(f), (a,), (along,))[1]

    close(bent(tg.njit(lambda x: np.linalg.det(x))), bent(np.linalg.det))


def test_a_branch_that_is_not_taken_asks_for_no_solution():
    def chosen(a, b):
        total = 0.0
        for i in range(a.shape[0]):
            if b[i, 0] > 100.0:
                total += np.sum(np.linalg.solve(a - a, b[:, i]))
            else:
                total += b[i, i] ** 2 * a[i, i]
        return total

    a, b = given(4)
    derived = tg.njit(chosen, mode="form").variant((a, b)).derived((0, 1))
    _, gradient = derived.run((a, b), (1.0,))
    assert derived._other is None
    for found, known in zip(gradient, tg.grad(chosen, (0, 1))(a, b), strict=True):
        close(found, known)


def test_complex_systems_are_calls():
    def contour(z, h):
        total = 0.0
        for k in range(z.shape[0]):
            whole = z[k] * np.eye(h.shape[0]) - h
            total += np.trace(np.linalg.inv(whole)).real + np.sum(np.linalg.solve(whole, h[0]).imag)
        return total

    r = np.random.default_rng(0)
    z, h = (3.0 + r.normal(size=s) + 1j * r.normal(size=s) for s in ((3,), (4, 4)))
    native = tg.njit(contour, mode="form")
    for found, known in zip(
        tg.grad(native, (0, 1))(z, h), tg.grad(contour, (0, 1))(z, h), strict=True
    ):
        close(found, known)


def test_checked_programs_test_the_matrices_of_calls():
    with checking.checked():
        value, _ = tg.value_and_grad(tg.njit(filtered, mode="form"), (0, 1))(*given(4))
    close(value, float(filtered(*given(4))))


@pytest.mark.long(but=2)
@pytest.mark.parametrize("seed", range(300, 330))
def test_random_programs(seed):
    """Calls among all else that programs have."""
    from tests.test_program import told

    try:
        assert not told(seed, programs.Assorted)
    except tg.NotDifferentiable as why:
        assert "outside the program form" in str(why)


PLACES = {"determinant": DET, "log_determinant": LOG}
"""Where the number lies that a routine's rule is of."""


def lone(name):
    """A program of one call, of the matrices a and r."""
    builder = Builder("lone")
    n = builder.size("n")
    a, r = (builder.buffer(x, (n, n), "f8", "input") for x in "ar")
    builder.inputs += [a, r]
    first = of_buffer(a)
    if name.startswith("solve") or name in PLACES:
        first = builder.called("lu", [first], (n + 1, n))
    operands = [first, of_buffer(r)] if name.startswith(("solve", "lower")) else [first]
    shape = (affine(3),) if name in PLACES else (n, n)
    found = builder.called(name, operands, shape)
    if name in PLACES:
        found = of_number(found.at((affine(PLACES[name]),)))
    out = builder.buffer("out", found.shape, "f8", "output")
    builder.outputs.append(out)
    builder.store(of_buffer(out), found)
    return builder.program()


def run(program, n, *given):
    """What a program answers for matrices of n rows."""
    ready = prepared(program).program
    compiled = Compiled(ready, list(map(Argument, ready.inputs)), False)
    out = [np.full([e.at({"n": n}) for e in b.extents], np.nan) for b in ready.outputs]
    arguments = [np.ascontiguousarray(x) if np.ndim(x) else float(x) for x in given]
    assert compiled.answered([*arguments, *out]) == DONE
    return out


@pytest.mark.parametrize("by", ["a", "r", "ar"])
@pytest.mark.parametrize("name", sorted(CALLS.keys() - {"demand", "lu"}))
def test_both_rules_of_a_routine(name, by):
    """The tangent is that of differences, and the rule backwards is its transpose: those too that only derivatives call forwards."""
    n, r = 4, np.random.default_rng(7)
    args = 3.0 * np.eye(n) + 0.4 * r.normal(size=(n, n)), r.normal(size=(n, n))
    along = [r.normal(size=(n, n)) * (x in by) for x in "ar"]
    mine = [d for d, x in zip(along, "ar", strict=True) if x in by]

    def wanted(program):
        return [b for b in program.inputs if b.name in by]

    forward, back = lone(name), lone(name)
    forward = tangent(forward, wanted(forward), forward.outputs)
    (moved,) = run(forward, n, *args, *mine)
    h = 1e-5
    ends = [
        run(lone(name), n, *(x + s * h * d for x, d in zip(args, along, strict=True)))[0]
        for s in (1, -1)
    ]
    np.testing.assert_allclose(moved, (ends[0] - ends[1]) / (2 * h), rtol=1e-6, atol=1e-7)
    seed = r.normal(size=moved.shape)
    _, *bars = run(gradient(back, wanted(back), back.outputs), n, *args, seed)
    pairing = sum(np.sum(g * d) for g, d in zip(bars, mine, strict=True))
    close(pairing, np.sum(seed * moved))
