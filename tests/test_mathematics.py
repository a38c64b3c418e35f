"""Functions of `math` and `cmath` in functions that are differentiated or compiled: derivatives against differences, and Python's errors."""

import cmath
import math
from math import exp, sqrt

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.face import mathematics
from tapegrad.face.adoption import adoptions


def agrees(f, *at):
    """Sweep, forward mode, a compiled gradient at two places, and second derivatives."""
    h = 1e-6
    every = tuple(range(len(at)))
    gradient = tg.grad(f, argnums=every)
    compiled = tg.compile(gradient)
    compiled(*[x + 0.01 for x in at])
    expected = []
    for k in every:
        up, down = (f(*at[:k], at[k] + s, *at[k + 1 :]) for s in (h, -h))
        expected.append((up - down) / (2 * h))
    np.testing.assert_allclose(np.array(gradient(*at), float), expected, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(np.array(compiled(*at), float), expected, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(
        tg.jvp(f, at, (1.0,) * len(at))[1], sum(expected), rtol=1e-6, atol=1e-7
    )
    second = tg.grad(lambda x: gradient(x, *at[1:])[0])(at[0])
    up, down = (float(gradient(at[0] + s, *at[1:])[0]) for s in (h, -h))
    np.testing.assert_allclose(float(second), (up - down) / (2 * h), rtol=1e-5, atol=1e-6)
    assert type(f(*at)) is float


OF_ONE = "acos asin asinh atan atanh cbrt cos cosh degrees erf erfc exp exp2 expm1 fabs gamma lgamma log log10 log1p log2 radians sin sinh sqrt tan tanh".split()


@pytest.mark.parametrize("name", OF_ONE)
def test_of_one_number(name):
    of = getattr(math, name)
    agrees(lambda x: of(x) * x, 0.4)
    agrees(eval(f"lambda x: math.{name}(x)", {"math": math, "__name__": "users"}), 0.4)


@pytest.mark.parametrize("name", "atan2 copysign fmod hypot log pow remainder".split())
def test_of_two_numbers(name):
    of = getattr(math, name)
    agrees(lambda x, y: of(x, y), 2.4, 1.7)


def test_of_several_numbers():
    agrees(lambda x: math.acosh(x), 1.7)
    agrees(lambda x, y: math.hypot(x, y, 2.0), 0.3, 0.4)
    agrees(lambda x, y: math.dist([x, y], (1, 2)), 0.3, 0.4)
    agrees(lambda x, y: math.fsum(v * v for v in (x, y, 1)), 0.3, 0.4)
    agrees(lambda x, y: math.prod([x, y, 2], start=3), 0.3, 0.4)
    agrees(lambda x: math.ldexp(x, 3) * x + math.modf(x)[0], 0.3)
    agrees(lambda x: sqrt(x) + exp(x), 0.3)
    agrees(lambda x: x * math.floor(x + 2) + x * math.ceil(x) + x * math.trunc(-x - 1), 0.3)


def test_of_complex_numbers():
    agrees(lambda x: abs(cmath.exp(1j * x) * cmath.sqrt(-x)) ** 2, 0.3)
    agrees(lambda x: cmath.phase(x + 1j) + cmath.rect(x, 0.3).real, 0.3)
    agrees(lambda x: cmath.polar(x + 2j)[0] * cmath.log(x - 1j, 3).imag, 0.3)


def test_every_function_of_python_is_there_or_gives_no_derivative():
    without = "comb factorial frexp gcd isqrt lcm nextafter perm ulp".split()
    for module, meanings in ((math, mathematics._MATH), (cmath, mathematics._CMATH)):
        functions = {name for name in vars(module) if callable(getattr(module, name))}
        missing = {name for name in functions if not name.startswith("_")} - {*meanings, *without}
        assert missing <= {
            "isclose",
            "fmax",
            "fmin",
            "isnormal",
            "issubnormal",
            "signbit",
            "integer",
        }, missing


def test_questions():
    def f(x, y):
        near = math.isclose(x, y, rel_tol=1e-3) or math.isclose(x, y, abs_tol=0.01)
        return x * y if near and not math.isnan(x) and math.isfinite(y) and not math.isinf(x) else x

    for at, expected in (((2.0, 2.001), 2.001), ((2.0, 3.0), 1.0), ((np.inf, np.inf), 1.0)):
        with np.errstate(invalid="ignore"):
            assert tg.grad(f)(*at) == expected == tg.compile(tg.grad(f))(*at)


@pytest.mark.parametrize("f", [lambda x: math.sqrt(-x), lambda x: math.log(0 * x), lambda x: math.exp(1e4 * x)])  # fmt: skip
def test_pythons_errors(f):
    with pytest.raises((ValueError, OverflowError)) as plain:
        f(2.0)
    with pytest.raises(type(plain.value)):
        tg.grad(f)(2.0)
    with np.errstate(all="ignore"):
        assert not np.isfinite(tg.compile(f)(2.0))


@pytest.mark.parametrize("run", [tg.grad, tg.compile])
def test_arrays_are_refused(run):
    with pytest.raises(TypeError, match="converted to Python scalars"):
        run(lambda x: math.exp(x))(np.ones(2))


def test_the_module_itself_and_what_is_compared():
    def f(x, method=None):
        method = math.sin if method is None else method
        known = {math.sin: 2.0, math.cos: 3.0}
        return known[method] * method(x) + (1.0 if method == math.sin else math.pi)

    assert tg.grad(f)(0.0) == 2.0

    def same(x, method=None):
        method = math.sin
        return method(x) if method is math.sin else x

    with pytest.raises(tg.GradientLost):
        tg.grad(same)(1.0)
    assert adoptions(f) and not adoptions(lambda x: math.pi * x)


def test_outside_of_transforms_nothing_is_followed():
    t = tg.tensor(1.0, requires_grad=True)
    with pytest.raises(tg.GradientLost):
        math.sin(t)
    assert math.sin(t.detach()) == math.sin(1.0)
    with tg.plain_buffers(), pytest.raises(tg.GradientLost):
        tg.grad(lambda x: math.sin(x))(1.0)


@pytest.mark.parametrize(
    ("f", "at"),
    [
        (lambda x: math.remainder(x, math.inf), 3.0),
        (lambda x: math.remainder(x, 0.1), 1e9 + 0.03),
        (lambda x: math.remainder(x, -2.0), 5.0),
        (lambda x: math.fmod(x, math.inf), 3.0),
        (lambda x: math.fsum([1e16, x, -1e16]), 1.0),
        (lambda x: math.fsum([math.inf, x]), 1.0),
        (lambda x: cmath.sqrt(complex(-4.0, -0.0) * x).imag, 1.0),
        (lambda x: cmath.log(np.conj(x + 0j)).imag, -2.0),
    ],
)
def test_values_are_pythons(f, at):
    """Also where digits cancel, at infinity, and on the sides of a cut."""
    for value in (tg.value_and_grad(f)(at)[0], tg.compile(f)(at), tg.jvp(f, (at,), (1.0,))[0]):
        assert value == f(at)


# ------------------------------------------------------------------------------------------ float and complex

HALF = 0.5


def made_float(x):
    y = np.zeros(2, dtype=float)
    y[0] = x
    return float(np.sum(y * y)) + float("1.5") + sum(k() for k in (float, int))


def made_floats(x, y):
    a, b = map(float, np.array([x, x * y]))
    return sum([float(v) ** 2 for v in (a, b, HALF)])


def made_complex(x, y):
    z = complex(x, y) ** 2
    return (z * complex(1, 2)).imag + complex(x).real


def asked_float(x):
    kinds = isinstance(x, float) + (type(HALF) is float) + (np.dtype(float) == np.float64)
    return kinds * float(x * x) + np.finfo(float).max * 0 + np.ones(2, float).astype(float).sum()


class Fitted:
    def __init__(self, rate):
        self.rate = float(rate)

    def energy(self, x):
        return float(self.rate * x**2)


def made_object(x):
    return Fitted(x).energy(x)


@pytest.mark.parametrize(
    "f, at",
    [
        (made_float, (0.7,)),
        (made_floats, (0.7, -1.2)),
        (made_complex, (0.7, -1.2)),
        (asked_float, (0.7,)),
        (made_object, (0.7,)),
    ],
)
def test_numbers_that_python_makes_are_followed(f, at):
    agrees(f if len(at) > 1 else lambda x: float(f(x)), *at)


def test_a_number_is_the_value_of_its_time():
    def f(x):
        y = np.zeros(1)
        y[0] = x
        before = float(y[0])
        held = float(y.reshape(()))
        y[0] = 10 * x
        return float(before + 2 * held + y[0])

    agrees(f, 1.5)


def test_numbers_in_single_precision_are_not_python_s():
    """Python's number has double precision, and gives way to the dtype of an array: no tensor does both."""
    with pytest.raises(tg.errors.GradientLost, match="float"):
        tg.grad(lambda x: float(x[0]))(np.ones(2, np.float32))


def test_what_python_refuses_is_refused():
    with pytest.raises(TypeError, match="one number"):
        tg.grad(lambda x: float(x))(np.ones(2))
    with pytest.raises((TypeError, tg.errors.GradientLost)):
        tg.grad(lambda x: float(x * 1j).real)(1.0)
    with pytest.raises(ValueError, match="could not convert"):
        tg.grad(lambda x: x * float("x"))(1.0)


def test_a_number_compared_by_is_stays_python_s():
    def f(x):
        kind = float
        return x * (float(HALF + 1.5) if kind is float else 3.0)

    assert tg.grad(f)(1.0) == 2.0


def test_numbers_outside_of_transforms_are_refused_as_before():
    t = tg.tensor(1.0, requires_grad=True)
    with pytest.raises(tg.errors.GradientLost):
        float(t)
