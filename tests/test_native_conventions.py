"""The conventions of the guide hold in native functions, too: at ties, kinks, poles, zeros, infinities and NaN.

Each row is a function and points at which its derivative is a matter of convention. Plain `tg.grad` is the measure there (its own
tests hold it to the guide); the compiled program, the program form, the generated adjoint and overloading have to give the same number,
and where the second derivative is asked, that as well. What Numba compiles for seconds, the generated adjoint and overloading, a few rows
stand for; the rest is a campaign.
"""

import numpy as np
import pytest

import tapegrad as tg
from tapegrad import TapegradError

INF, NAN = np.inf, np.nan


def guarded_logarithm(x):
    return np.sum(np.where(x > 0, np.log(x), 0.0))


def guarded_quotient(x):
    return np.sum(np.where(x != 0, np.sin(x) / x, 1.0))


def guarded_entropy(x):
    return np.sum(np.where(x > 0, x * np.log(x), 0.0))


def guarded_power(x):
    return np.sum(np.where(x > 0, x**-1.5, 0.0))


def guarded_infinity(x):
    return np.sum(np.where(np.isfinite(x), x * x * x, 0.0))


def squared_root(x):
    return np.sum(np.sqrt(x) ** 2)


def largest_with_zero(x):
    return np.sum(np.maximum(x, 0.0) ** 2 + np.minimum(x, 1.0))


def largest_and_smallest(x):
    return np.max(x) * 2.0 - np.min(x) * 3.0


def magnitudes(x):
    return np.sum(np.abs(x) * 3.0 + np.sign(x))


def deviation(x):
    return np.std(x) + 2.0 * np.var(x)


def length(x):
    return np.linalg.norm(x)


def root_of_squares(x):
    return np.sqrt(np.sum(x * x))


def hypotenuses(x):
    return np.sum(np.hypot(x, x[::-1].copy()))


def angles(x):
    return np.sum(np.arctan2(x, x[::-1].copy()))


def powers(x):
    return np.sum(x**2.0 + x**3 + np.abs(x) ** 0.5)


def powers_of_each_other(x):
    return np.sum(np.abs(x) ** np.abs(x[::-1].copy()))


def interpolated(x):
    return np.sum(np.interp(x, np.array([1.0, 2.0, 3.0]), np.array([0.0, 5.0, 1.0])))


def interpolated_values(x):
    return np.sum(np.interp(np.array([0.0, 1.0, 2.0, 3.0, 4.0]), np.array([1.0, 2.0, 3.0]), x) ** 2)


def interpolated_places(x):
    return np.sum(np.interp(np.array([0.0, 1.0, 2.0, 3.0, 4.0]), x, np.array([0.0, 5.0, 1.0])) ** 2)


def clipped(x):
    return np.sum(np.clip(x, 0.0, 1.0) * 2.0)


def remainders(x):
    return np.sum(np.remainder(1.0, x) + np.remainder(3.0, -x) + np.fmod(x, 0.1) + np.fmod(3.0, x))


def in_order(x):
    return np.sum(np.sort(x) * np.array([1.0, 2.0, 4.0]))


def determinant(x):
    return np.linalg.det(np.outer(x, x) + np.diag(np.array([1.0, 0.0, 0.0])))


def product(x):
    return np.prod(x)


def small_exponentials(x):
    return np.sum(np.exp(-1.0 / (x * x)))


def sums_of_exponentials(x):
    return np.sum(np.logaddexp(x, x[::-1].copy()))


# Loops and branches: the same for the tape, which sees the passes.


def skipped_numbers(x):
    s = 0.0
    for i in range(x.shape[0]):
        v = np.log(x[i]) * x[i]
        if np.isnan(v) or np.isinf(v):
            continue
        s += v
    return s


def logarithm_before_its_guard(x):
    s = 0.0
    for i in range(x.shape[0]):
        root = np.sqrt(x[i])
        if x[i] > 0:
            s += root
    return s


def overwritten(x):
    y = np.log(x)
    for i in range(x.shape[0]):
        if not x[i] > 0:
            y[i] = 0.0
    return np.sum(y)


def largest_so_far(x):
    best = x[0]
    for i in range(1, x.shape[0]):
        best = np.maximum(best, x[i])
    return best * best


ZEROS = np.zeros(3)
TIES = np.array([1.0, 1.0, 1.0])
MIXED = np.array([-1.0, 0.0, 2.0])
SPECIAL = np.array([0.0, INF, 2.0])
MISSING = np.array([1.0, NAN, 2.0])
KNOTS = np.array([3.0, 2.0, 1.0])
OUTSIDE = np.array([0.5, 1.5, 3.5])

ROWS = [
    (guarded_logarithm, [ZEROS, MIXED, MISSING], True),
    (guarded_quotient, [ZEROS, MIXED, np.array([0.0, 1.0, 2.0])], True),
    (guarded_entropy, [ZEROS, MIXED], True),
    (guarded_power, [ZEROS, MIXED], True),
    (guarded_infinity, [SPECIAL, MISSING], True),
    (squared_root, [ZEROS, np.array([0.0, 1.0, 4.0])], True),
    (largest_with_zero, [ZEROS, TIES, MIXED], True),
    (largest_and_smallest, [ZEROS, TIES, MIXED, np.array([2.0, 2.0, -1.0])], True),
    (magnitudes, [ZEROS, MIXED, SPECIAL], True),
    (deviation, [ZEROS, TIES, MIXED], False),
    (length, [ZEROS, TIES], False),
    (root_of_squares, [ZEROS, TIES], False),
    (hypotenuses, [ZEROS, TIES, np.array([1.0, 0.0, 0.0]), SPECIAL], False),
    (angles, [ZEROS, TIES, MIXED], False),
    (powers, [ZEROS, TIES, MIXED], False),
    (powers_of_each_other, [ZEROS, TIES, MIXED], False),
    (interpolated, [KNOTS, OUTSIDE, MISSING], False),
    (interpolated_values, [KNOTS, TIES], True),
    (interpolated_places, [np.array([1.0, 2.0, 3.0]), np.array([0.5, 2.0, 4.0])], False),
    (clipped, [ZEROS, TIES, MIXED, SPECIAL], True),
    (remainders, [np.array([0.1, 0.2, 1.0]), np.array([-0.1, INF, 0.3])], True),
    (in_order, [ZEROS, TIES, MIXED], True),
    (determinant, [ZEROS, np.array([1.0, 2.0, 3.0]), MIXED], False),
    (product, [ZEROS, TIES, MIXED], True),
    (small_exponentials, [np.array([1.0, 1e-200, 2.0])], True),
    (sums_of_exponentials, [ZEROS, MIXED], True),
    (skipped_numbers, [ZEROS, MIXED, MISSING], True),
    (logarithm_before_its_guard, [ZEROS, MIXED, MISSING], True),
    (overwritten, [ZEROS, MIXED, MISSING], True),
    (largest_so_far, [ZEROS, TIES, MIXED], True),
]
BY_NUMBA = (clipped, skipped_numbers)
"""Rows that stand for the others where Numba compiles each for seconds."""
SCALE = 1e-12


def cases():
    for f, points, second in ROWS:
        for mode in ("compiled", "form", "adjoint", "overload"):
            rare = mode in ("adjoint", "overload") and f not in BY_NUMBA
            marks = [pytest.mark.campaign] * rare
            yield pytest.param(f, points, second, mode, id=f"{f.__name__}-{mode}", marks=marks)


def same(found, expected):
    return np.allclose(found, expected, rtol=1e-9, atol=SCALE, equal_nan=True)


@pytest.mark.long(but=2)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("f, points, second, mode", list(cases()))
def test_compiled_engines_keep_the_conventions(f, points, second, mode):
    native = tg.compile(f) if mode == "compiled" else tg.njit(mode=mode)(f)
    for x in points:
        expected = tg.grad(f)(x)
        try:
            found = tg.grad(native)(x)
        except TapegradError as refused:
            outside = mode == "form" and "outside the program form" in str(refused)
            assert mode == "overload" or outside or "np.linalg" in str(refused), refused
            continue
        assert same(found, expected), (x, found, expected)
        again = tg.value_and_grad(native)(x)[1]
        assert np.array_equal(found, again, equal_nan=True)
        direction = np.array([1.0, 0.0, -2.0])
        forward = tg.jvp(native, (x,), (direction,))[1]
        assert same(forward, tg.jvp(f, (x,), (direction,))[1]), x
        if not second:
            continue
        try:
            bent = tg.hessian(native)(x)
        except TapegradError:  # the adjoint engine has no second derivative of some kernels
            continue
        assert same(bent, tg.hessian(f)(x)), x
