"""Kinks, poles, ties, edges and nothing at all: by hand, with the derivative expected.

Each expected value is PyTorch's (2.13, by experiment) unless the row says what PyTorch gives instead; `test_ops.py` is about
smooth points and keeps away from these. NumPy's own warnings (division by zero at a pole, say) are the user's to
see, so the tests let them pass explicitly.
"""

from __future__ import annotations

import numpy as np
import pytest

import tapegrad as tg

inf, nan = np.inf, np.nan


def gradients(f, *operands):
    """Cotangents of the operands for a cotangent of ones."""
    with np.errstate(all="ignore"):
        y, pull = tg.vjp(f, *(np.asarray(x) for x in operands))
        return pull(np.ones(np.shape(y), np.result_type(y)))


@pytest.fixture(params=["sweep", "replay"])
def engine(request):
    """Each engine in turn, and back to its own choice."""
    try:
        tg.set_engine(request.param)
    except RuntimeError as unavailable:
        pytest.skip(str(unavailable))
    yield
    tg.set_engine("auto")


def assert_same(got, expected):
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=0, equal_nan=True)


# ------------------------------------------------------------------------------------------ functions of one operand

# fmt: off
UNARY = [
    # kinks: the subgradient of least norm
    (np.abs,         [0.0, -0.0, inf, -inf],     [0, 0, 1, -1]),
    (np.abs,         [nan],                      [nan]),                 # PyTorch: 0
    (np.abs,         [0j, 3 + 4j],               [0, 0.6 + 0.8j]),
    (np.fabs,        [0.0, -2.0, inf],           [0, -1, 1]),
    (np.sign,        [0.0, -0.0, inf, nan],      [0, 0, 0, 0]),
    (np.angle,       [0.0, 1.0, -1.0],           [0, 0, 0]),
    (np.angle,       [0j, 1j],                   [0, -1]),
    # steps: flat wherever they are asked
    (np.floor,       [0.0, 1.0, 1.5, inf],       [0, 0, 0, 0]),
    (np.ceil,        [0.0, 1.0, 1.5],            [0, 0, 0]),
    (np.rint,        [0.5, 1.5],                 [0, 0]),
    (np.trunc,       [-1.0, 0.0],                [0, 0]),
    # poles and edges of the domain
    (np.sqrt,        [0.0, -0.0, -1.0, inf],     [inf, -inf, nan, 0]),
    (np.cbrt,        [0.0, inf],                 [inf, 0]),              # PyTorch has none
    (np.log,         [0.0, -0.0, inf, -1.0],     [inf, -inf, 0, -1]),
    (np.log2,        [0.0, inf],                 [inf, 0]),
    (np.log10,       [0.0, inf],                 [inf, 0]),
    (np.log1p,       [-1.0, inf],                [inf, 0]),
    (np.reciprocal,  [0.0, inf],                 [-inf, 0]),
    (np.arcsin,      [1.0, -1.0, 2.0],           [inf, inf, nan]),
    (np.arccos,      [1.0, -1.0, 2.0],           [-inf, -inf, nan]),
    (np.arctanh,     [1.0, -1.0],                [inf, inf]),
    (np.arccosh,     [1.0, 0.5, inf],            [inf, nan, 0]),
    # far away
    (np.exp,         [-inf, inf, nan],           [0, inf, nan]),
    (np.exp2,        [-inf],                     [0]),
    (np.expm1,       [-inf, inf],                [0, inf]),
    (np.tanh,        [-inf, 0.0, inf],           [0, 1, 0]),
    (np.arctan,      [-inf, inf, 1e200],         [0, 0, 0]),
    (np.arcsinh,     [0.0, inf],                 [1, 0]),
    (np.sin,         [inf],                      [nan]),
    (np.square,      [0.0, inf],                 [0, inf]),
]

# ------------------------------------------------------------------------------------------ functions of two operands

BINARY = [
    # ties share; a NaN passes the gradient to both, as the result is NaN by either
    (np.maximum,     [1.0, inf, -inf, nan, 1.0], [1.0, inf, -inf, 1.0, nan], [.5, .5, .5, 1, 1], [.5, .5, .5, 1, 1]),
    (np.minimum,     [1.0, inf, -inf, nan, 1.0], [1.0, inf, -inf, 1.0, nan], [.5, .5, .5, 1, 1], [.5, .5, .5, 1, 1]),
    # fmax and fmin pass over a NaN. PyTorch gives all of a tie to the first operand.
    (np.fmax,        [1.0, nan, 1.0],            [1.0, 1.0, nan],            [.5, 0, 1],         [.5, 1, 0]),
    (np.fmin,        [1.0, nan, 1.0],            [1.0, 1.0, nan],            [.5, 0, 1],         [.5, 1, 0]),
    # power: 0**0, 0**x, x**0, 0**-1
    (np.power,       [0.0, 0.0, 0.0],            [0.0, 1.0, 2.0],            [0, 1, 0],          [0, 0, 0]),
    (np.power,       [0.0, 0.0, 0.0],            [0.5, -1.0, -2.0],          [inf, -inf, -inf],  [0, -inf, -inf]),
    (np.power,       [inf, nan, 5.0],            [0.0, 0.0, 0.0],            [0, 0, 0],          [inf, nan, np.log(5)]),
    (np.power,       [-2.0, -2.0, -8.0],         [3.0, -2.0, 1 / 3],         [12, 0.25, nan],    [nan, nan, nan]),
    (np.power,       [1.0, 2.0, inf],            [inf, inf, -1.0],           [inf, inf, 0],      [0, inf, 0]),
    (np.float_power, [0.0, 0.0, -2.0],           [0.0, 2.0, 3.0],            [0, 0, 12],         [0, 0, nan]),
    # at the origin: the angle is any, the length has a kink. PyTorch: NaN for hypot.
    (np.hypot,       [0.0, 0.0, 3.0],            [0.0, 2.0, 4.0],            [0, 0, 0.6],        [0, 1, 0.8]),
    (np.hypot,       [inf],                      [1.0],                      [nan],              [0]),
    (np.arctan2,     [0.0, 0.0, 0.0, inf],       [0.0, 1.0, -1.0, 1.0],      [0, 1, -1, 0],      [0, 0, 0, 0]),  # PyTorch's last: NaN
    (np.divide,      [1.0, 0.0, 0.0, 1.0],       [0.0, 0.0, 1.0, inf],       [inf, inf, 1, 0],   [-inf, nan, 0, 0]),
    (np.multiply,    [0.0, inf],                 [inf, 0.0],                 [inf, 0],           [0, inf]),
    (np.remainder,   [4.0, -4.0, 1.0],           [2.0, 2.0, inf],            [1, 1, 1],          [-2, 2, 0]),
    (np.fmod,        [4.0, -4.0, 1.0],           [2.0, 2.0, inf],            [1, 1, 1],          [-2, 2, 0]),
    # 1 / 0.1 is 10.0, but 9 times 0.1 are taken from 1 and the rest is left
    (np.remainder,   [1.0, 3.0, -3.0, 2.0, -1.0, -1e-300], [0.1, -0.1, inf, -inf, -inf, 1e300], [1, 1, 1, 1, 1, 1], [-9, 30, 1, 1, 0, 1]),
    (np.fmod,        [1.0, -3.0, 3.0, 1.0],      [0.1, 0.1, -0.1, -inf],     [1, 1, 1, 1],       [-9, 29, 29, 0]),
    (np.copysign,    [0.0, 0.0, 1.0],            [1.0, -1.0, -0.0],          [0, 0, -1],         [0, 0, 0]),
    (np.heaviside,   [0.0, 1.0],                 [0.5, 0.5],                 [0, 0],             [1, 0]),
    # -inf is the zero of logaddexp; of two there is no telling whose it is
    (np.logaddexp,   [0.0, -inf, 1e4],           [-inf, 0.0, -1e4],          [1, 0, 1],          [0, 1, 0]),
    (np.logaddexp,   [-inf, inf],                [-inf, inf],                [nan, nan],         [nan, nan]),
    (np.logaddexp,   [inf, 1.0, inf, 0.0],       [1.0, inf, -inf, 0.0],      [1, 0, 1, 0.5],     [0, 1, 0, 0.5]),
    (np.logaddexp2,  [0.0, -inf, inf, -inf],     [-inf, 0.0, 1.0, -inf],     [1, 0, 1, nan],     [0, 1, 0, nan]),
]
# fmt: on


@pytest.mark.parametrize(
    ("f", "x", "expected"), UNARY, ids=[f"{f.__name__}-{x}" for f, x, _ in UNARY]
)
def test_one_operand(f, x, expected, engine):
    assert_same(gradients(f, x)[0], expected)


@pytest.mark.parametrize(
    ("f", "x", "y", "by_x", "by_y"),
    BINARY,
    ids=[f"{f.__name__}-{x}-{y}" for f, x, y, _, _ in BINARY],
)
def test_two_operands(f, x, y, by_x, by_y, engine):
    got = gradients(f, x, y)
    assert_same(got[0], by_x)
    assert_same(got[1], by_y)


@pytest.mark.parametrize(
    "f", [np.abs, np.sqrt, np.log, np.maximum, np.power, np.hypot], ids=lambda f: f.__name__
)
def test_scalars_are_as_arrays(f):
    """0-d operands take NumPy's scalar paths, which treat poles in another way than arrays."""
    operands = [0.0] * (f.nin if f is not np.power else 2)
    whole = gradients(f, *[[x, x] for x in operands])
    for alone, together in zip(gradients(f, *operands), whole, strict=True):
        assert_same(alone, together[0])


@pytest.mark.parametrize("zero", [0, 0.0, -0.0, False, 0j], ids=repr)
def test_division_by_pythons_zero(zero):
    """Python's 1 / 0 raises, where NumPy's is infinite, or NaN of complex numbers; the quotient keeps the dtype of x."""
    f = lambda x: np.real(np.sum(x) / zero)  # noqa: E731
    g = lambda x: np.real(np.sum(x) / np.asarray(zero))  # noqa: E731
    x, one = np.full(2, 3, np.float32), np.ones(2, np.float32)
    with np.errstate(all="ignore"):
        for of in (tg.grad(f), tg.compile(tg.grad(f))):
            assert of(x).dtype == np.float32
            assert_same(of(x), tg.grad(g)(x))
        assert_same(tg.jvp(f, (x,), (one,)), tg.jvp(g, (x,), (one,)))
        assert_same(tg.hessian(f)(x), np.zeros((2, 2)))


def test_rounding_to_more_decimals_than_a_float_has():
    """Python's 10.0 ** 400 raises OverflowError, and NumPy's factor is infinite."""
    with np.errstate(all="ignore"):
        for decimals in (400, -400):
            value, slope = tg.value_and_grad(lambda x: np.round(x, decimals))(1.5)
            assert np.isnan(np.round(1.5, decimals)) and np.isnan(value) and slope == 0


# ------------------------------------------------------------------------------------------------------ exponents


@pytest.mark.parametrize(
    ("exponent", "x", "expected"),
    [
        (2, [0.0, -1.0], [0, -2]),
        (3, [-2.0, 0.0], [12, 0]),
        (1, [0.0, -3.0], [1, 1]),
        (0, [0.0, inf, nan, -1.0], [0, 0, 0, 0]),
        (-1, [0.0, -2.0], [-inf, -0.25]),
        (0.5, [0.0, inf], [inf, 0]),
        (1.5, [0.0, 4.0], [0, 3]),
    ],
)
def test_constant_exponent(exponent, x, expected, engine):
    assert_same(gradients(lambda x: x**exponent, x)[0], expected)
    assert_same(gradients(lambda x: x ** np.asarray(exponent), x)[0], expected)


@pytest.mark.parametrize(
    ("base", "y", "expected"),
    [
        (0.0, [0.0, 1.0, -1.0], [0, 0, -inf]),
        (2.0, [0.0, inf, -inf], [np.log(2), inf, 0]),
        (1, [3.0], [0]),
    ],
)
def test_constant_base(base, y, expected):
    assert_same(gradients(lambda y: base**y, y)[0], expected)


@pytest.mark.parametrize("base", [-2.0, -2, np.array([-1.0, 2.0, 0.0]), np.float32(-0.5)])
def test_complex_powers_of_negative_real_bases(base, engine):
    z = np.array([0.5 + 0.3j, 1.2 - 0.4j, 2.0])

    def f(z, base=base):
        return np.sum(np.real(base**z))

    def g(z):
        return f(z, base + 0j)

    np.testing.assert_allclose(gradients(f, z)[0], gradients(g, z)[0], rtol=1e-6)
    np.testing.assert_allclose(tg.jvp(f, (z,), (z,))[1], tg.jvp(g, (z,), (z,))[1], rtol=1e-6)
    np.testing.assert_allclose(tg.compile(tg.grad(f))(z), tg.grad(g)(z), rtol=1e-6)
    x = np.zeros(3) + base
    both = tg.grad(f, argnums=(0, 1))(z, x)
    np.testing.assert_allclose(both[0], tg.grad(g)(z), rtol=1e-6)
    if np.all(x):  # the slope by the base at 0 is 0 ** (z - 1)
        near = tg.grad(lambda z: np.sum(np.real(z * base ** (z - 1))))(z)
        slope = tg.grad(lambda z: np.sum(tg.grad(f, argnums=1)(z, x)))(z)
        np.testing.assert_allclose(slope, near, rtol=1e-6)


def test_higher_derivatives_of_powers_at_zero():
    """x**2 has second derivative 2 at 0, and x**1 has 0: neither is 0 * inf."""
    d2 = [tg.grad(tg.grad(lambda x, n=n: x**n)) for n in (1, 2, 3)]
    assert [d(0.0) for d in d2] == [0, 2, 0]
    assert tg.grad(d2[2])(0.0) == 6
    assert tg.grad(tg.grad(lambda x: x * x))(0.0) == 2
    assert tg.grad(tg.grad(lambda x: x * abs(x)))(0.0) == 0


# ------------------------------------------------------------------------------------------- clip, where: choices


def test_clip_passes_the_gradient_at_its_bounds(engine):
    x = [-1.0, 0.0, 0.5, 1.0, 2.0, nan, inf]  # PyTorch: 0 at NaN
    assert_same(gradients(lambda x: np.clip(x, 0.0, 1.0), x)[0], [0, 1, 1, 1, 0, 1, 0])
    assert_same(gradients(lambda x: np.clip(x, None, 1.0), x)[0], [1, 1, 1, 1, 0, 1, 0])
    assert_same(gradients(lambda x: np.clip(x, 0.0, None), x)[0], [0, 1, 1, 1, 1, 1, 1])


def test_a_nan_bound_gets_the_gradient_of_the_nan_that_it_makes():
    by_x, low, high = gradients(np.clip, [0.5, 0.5, 2.0], [nan, 0.0, nan], [1.0, nan, 1.0])
    assert_same((by_x, low, high), ([1, 1, 0], [1, 0, 1], [0, 1, 1]))


def test_clip_gives_the_bounds_what_they_replace():
    by_x, low, high = gradients(np.clip, [-1.0, 0.5, 2.0], [0.0, 0.0, 0.0], [1.0, 1.0, 1.0])
    assert_same((by_x, low, high), ([0, 1, 0], [1, 0, 0], [0, 0, 1]))


def test_clip_with_crossed_bounds_is_the_upper_one():
    """NumPy's value is a_max then, whatever x is. (PyTorch gives the bounds no gradient in this case.)"""
    by_x, low, high = gradients(np.clip, [-1.0, 0.5, 2.0], [1.0, 1.0, 1.0], [0.0, 0.0, 0.0])
    assert_same((by_x, low, high), ([0, 0, 0], [0, 0, 0], [1, 1, 1]))


def test_where_gives_each_branch_its_part():
    by_x, by_y = gradients(
        lambda x, y: np.where(np.array([True, False]), x, y), [1.0, inf], [nan, 2.0]
    )
    assert_same((by_x, by_y), ([1, 0], [0, 1]))


@pytest.mark.parametrize(
    "f",
    [
        lambda x: np.maximum(x, 0.0),
        lambda x: np.fmax(x, 0.0),
        lambda x: -np.minimum(-x, 0.0),
        lambda x: -np.fmin(-x, 0.0),
        lambda x: np.clip(x, 0.0, None),
        lambda x: np.where(x > 0, x, 0.0),
        lambda x: np.heaviside(x, 0.0) * 0.0,
        lambda x: np.floor(x / 10) + 1,
    ],
    ids=["maximum", "fmax", "minimum", "fmin", "clip", "where", "heaviside", "floor"],
)
def test_an_operand_not_chosen_gets_nothing_of_an_infinite_cotangent(f, engine):
    """sqrt has the slope inf at 0; where the 0 does not come from x, x gets 0 and not 0 * inf."""
    assert_same(gradients(lambda x: np.sqrt(f(x)), [-2.0])[0], [0])
    assert tg.jvp(f, (-2.0,), (inf,))[1] == 0


def test_the_largest_entry_alone_gets_an_infinite_cotangent(engine):
    assert_same(gradients(lambda x: np.sqrt(np.max(x)), [-1.0, 0.0])[0], [0, inf])


def test_where_hides_a_pole_behind_it():
    """No NaN from 0 * inf at the branch not taken, unlike PyTorch: choosing the operand or the result is the same."""
    hidden = gradients(lambda x: np.where(x > 0, np.sqrt(x), 0.0), [0.0, 4.0])[0]
    assert_same(hidden, [0, 0.25])
    chosen = gradients(
        lambda x: np.where(x > 0, np.sqrt(np.where(x > 0, x, 1.0)), 0.0), [0.0, 4.0]
    )[0]
    assert_same(chosen, [0, 0.25])


# ------------------------------------------------------------------------------------------------------ reductions

# fmt: off
REDUCTIONS = [
    (np.max,       [1.0, 2.0, 2.0],     [0, 0.5, 0.5]),
    (np.max,       [2.0, 2.0, 2.0],     [1 / 3, 1 / 3, 1 / 3]),
    (np.max,       [1.0, inf, inf],     [0, 0.5, 0.5]),
    (np.max,       [-inf, -inf],        [0.5, 0.5]),
    (np.max,       [1.0, nan, 2.0],     [0, 1, 0]),
    (np.min,       [1.0, 1.0, 2.0],     [0.5, 0.5, 0]),
    (np.min,       [nan, nan, 2.0],     [0.5, 0.5, 0]),
    (np.prod,      [0.0, 2.0, 3.0],     [6, 0, 0]),
    (np.prod,      [0.0, 0.0, 3.0],     [0, 0, 0]),
    (np.prod,      [5.0],               [1]),
    (np.cumsum,    [1.0, inf],          [2, 1]),
    (np.std,       [2.0, 2.0, 2.0],     [0, 0, 0]),
    (np.std,       [2.0],               [0]),
    (np.var,       [2.0, 2.0],          [0, 0]),
    (tg.logsumexp, [-inf, 0.0],         [0, 1]),
    (tg.logsumexp, [-inf, -inf],        [0, 0]),             # PyTorch: NaN
    (tg.logsumexp, [inf, 0.0],          [nan, 0]),
    (tg.logsumexp, [nan, 0.0],          [nan, nan]),
    (tg.logsumexp, [1000.0, 1000.0],    [0.5, 0.5]),
    (tg.logsumexp, [-1e300, 0.0],       [0, 1]),
]
# fmt: on


@pytest.mark.parametrize(
    ("f", "x", "expected"), REDUCTIONS, ids=[f"{f.__name__}-{x}" for f, x, _ in REDUCTIONS]
)
def test_reduction(f, x, expected, engine):
    assert_same(gradients(f, x)[0], expected)
    by_rows = gradients(lambda x: f(x, axis=1), [x, x])[0]
    assert_same(by_rows, [expected, expected])
    kept = gradients(
        lambda x: f(x, axis=0, keepdims=True) if f is not np.cumsum else f(x, axis=0), x
    )[0]
    assert_same(kept, expected)


def test_forward_mode_shares_ties_too():
    for f in (np.max, np.min):
        assert tg.jvp(f, (np.array([2.0, 2.0]),), (np.array([1.0, 3.0]),))[1] == 2
    assert tg.jvp(np.maximum, (1.0, 1.0), (1.0, 3.0))[1] == 2


@pytest.mark.parametrize("n", [*range(10), 16, 31])
def test_products_of_all_others(n):
    """Of any number of entries, with zeros among them or without: no entry is divided by, and both axes are alike."""
    x = np.random.default_rng(n).normal(size=(3, n))
    x[1, n // 2 :][:1] = 0.0
    x[2, :: max(n - 1, 1)] = 0.0
    wanted = [[np.prod(np.delete(row, k)) for k in range(n)] for row in x]
    found = tg.grad(lambda x: np.sum(np.prod(x, axis=1)))(x)
    np.testing.assert_allclose(found, np.reshape(wanted, x.shape), rtol=1e-13)
    turned = tg.grad(lambda x: np.sum(np.prod(x, axis=0)))(np.asfortranarray(x.T))
    np.testing.assert_allclose(turned, found.T, rtol=1e-13)


def test_second_derivative_of_a_product_with_zeros():
    """d²(xyz)/dx dy = z also where x = y = 0: nothing was divided by 0."""
    hessian = tg.hessian(np.prod)(np.array([0.0, 0.0, 3.0]))
    assert_same(hessian, [[0, 3, 0], [3, 0, 0], [0, 0, 0]])


def test_too_few_for_the_degrees_of_freedom():
    """NumPy's value is NaN, with a warning; so is the gradient."""
    for f in (tg.var, tg.std):
        assert_same(gradients(lambda x, f=f: f(x, ddof=1), [2.0])[0], [nan])


# ------------------------------------------------------------------------------------------------------ nothing

# Each maps an array without entries to a sum, so that the cotangent has somewhere to start.
EMPTY = {
    "sum": (lambda x: np.sum(x), (0,)),
    "sum of rows": (lambda x: np.sum(x, axis=1), (0, 3)),
    "sum over nothing": (lambda x: np.sum(x, axis=0), (0, 3)),
    "mean of rows": (lambda x: np.mean(x, axis=1), (0, 3)),
    "prod": (lambda x: np.prod(x), (0,)),
    "prod over nothing": (lambda x: np.prod(x, axis=1), (2, 0)),
    "max of rows": (lambda x: np.max(x, axis=1), (0, 3)),
    "cumsum": (lambda x: np.cumsum(x), (0,)),
    "reshape": (lambda x: np.reshape(x, (3, 0)), (0, 2)),
    "transpose": (lambda x: np.transpose(x), (0, 2)),
    "broadcast_to": (lambda x: np.broadcast_to(x, (2, 0)), (0,)),
    "broadcast to nothing": (lambda x: np.broadcast_to(x, (0, 3)), (3,)),
    "concatenate": (lambda x: np.concatenate([x, np.ones(2), x]), (0,)),
    "stack": (lambda x: np.stack([x, x]), (0,)),
    "empty slice": (lambda x: x[2:2], (3,)),
    "empty mask": (lambda x: x[np.zeros(3, bool)], (3,)),
    "empty index": (lambda x: x[np.zeros(0, int)], (3,)),
    "take nothing": (lambda x: np.take(x, np.zeros(0, int), axis=0), (3, 2)),
    "sin": (lambda x: np.sin(x), (0,)),
    "x + row": (lambda x: x + np.ones((4, 1)), (0,)),
    "where": (lambda x: np.where(x > 0, x, 2 * x), (0, 2)),
    "clip": (lambda x: np.clip(x, 0.0, 1.0), (0,)),
    "matmul": (lambda x: x @ np.ones((0, 3)), (2, 0)),
    "matmul of nothing": (lambda x: x @ np.ones((2, 3)), (0, 2)),
    "flip": (lambda x: np.flip(x), (0, 2)),
    "astype": (lambda x: x.astype(np.float32), (0,)),
}


@pytest.mark.parametrize("name", EMPTY)
def test_empty(name, engine):
    """The gradient has the operand's shape and dtype, and is 0 where the operand has entries at all."""
    f, shape = EMPTY[name]
    x = np.ones(shape)
    (g,) = gradients(f, x)
    assert g.shape == shape and g.dtype == x.dtype
    assert not g.any()
    _, along = tg.jvp(f, (x,), (x,))
    assert np.shape(along) == np.shape(f(x))


def test_maximum_of_nothing_is_numpys_error():
    with pytest.raises(ValueError, match="zero-size array"):
        np.max(tg.zeros(0, requires_grad=True))


def test_mean_of_nothing_is_nan_with_numpys_warning():
    x = tg.zeros(0, requires_grad=True)
    with pytest.warns(RuntimeWarning), np.errstate(all="ignore"):
        y = np.mean(x)
        y.backward()
    assert np.isnan(y.item()) and x.grad.shape == (0,)


# ------------------------------------------------------------------------------------------------------ dtypes


@pytest.mark.parametrize(
    ("given", "to", "cotangent"),
    [
        (np.float32, np.float64, np.float32),
        (np.float64, np.float32, np.float64),
        (np.float64, np.complex128, np.float64),
    ],
)
def test_a_cast_sends_the_cotangent_back_in_the_operands_dtype(given, to, cotangent):
    x = np.array([1.0, 2.0], given)
    _, pull = tg.vjp(lambda x: x.astype(to), x)
    (g,) = pull(np.array([3, 4], to))
    assert g.dtype == cotangent and g.tolist() == [3, 4]


def test_a_cast_to_integers_is_not_tracked():
    x = tg.tensor([1.5], requires_grad=True)
    assert not x.astype(np.int64).requires_grad


def test_a_real_operand_of_a_complex_result_gets_the_real_part():
    (g,) = gradients(lambda x: np.real(x * (2 + 3j)), [1.0])
    assert g.dtype == np.float64 and g.tolist() == [2]


def test_the_complex_convention_is_pytorchs():
    """|z|² at 1 + 2j has the gradient 2 + 4j: dL/da + i dL/db."""
    for f in (
        lambda z: abs(z) ** 2,
        lambda z: np.real(z * np.conj(z)),
        lambda z: z.real**2 + z.imag**2,
    ):
        assert tg.grad(f)(1 + 2j) == pytest.approx(2 + 4j)


def test_an_imaginary_constant_is_conjugated():
    """d Re(1j * z) / dz: of a Python complex number, too."""
    assert tg.grad(lambda z: (1j * z).real)(1 + 2j) == -1j
    assert tg.grad(lambda z: (z * 1j).real)(1 + 2j) == -1j
    assert tg.grad(lambda z: (z / 1j).real)(1 + 2j) == 1j


@pytest.mark.parametrize("kept", [lambda f: f, tg.compile], ids=["eager", "compiled"])
def test_shares_of_a_sum_that_is_one_of_its_terms(kept):
    """At 40 and 0.3 the sum of the exponentials rounds to the larger one, but has its slope by the smaller one still."""
    hessian = kept(tg.hessian(lambda v: np.logaddexp(v[0], v[1])))
    for x in ([40.0, 0.3], [0.3, 40.0], [1.0, 1.0]):
        shares = 1 / (1 + np.exp(np.array(x[::-1]) - x))
        assert hessian(np.array(x))[0, 1] == pytest.approx(-np.prod(shares), rel=1e-12)


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e8, 1e12, 1e15, 1e17])
@pytest.mark.parametrize("op, base", [(np.logaddexp, np.e), (np.logaddexp2, 2.0)])
def test_shares_of_a_sum_follow_the_difference_however_large_the_operands(op, base, scale):
    """The share of each operand is a sigmoid of the difference: no digit is lost to the operands' size, in any order."""
    x, y = np.array([scale, scale]), np.array([scale - 0.5, scale])
    d = x - y  # exact
    share = 1 / (1 + base**-d)
    for engine in (tg.grad, lambda f, **kw: tg.compile(tg.grad(f, **kw))):
        gx, gy = engine(lambda x, y: np.sum(op(x, y)), argnums=(0, 1))(x, y)
        np.testing.assert_allclose(gx, share, rtol=2e-15)
        np.testing.assert_allclose(gy, share * base**-d, rtol=4e-15)
    h = tg.grad(lambda x, y: np.sum(tg.grad(lambda x: np.sum(op(x, y)))(x)))(x, y)
    np.testing.assert_allclose(h, np.log(base) * share**2 * base**-d, rtol=4e-15)
