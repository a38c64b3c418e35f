"""Derivatives keep their digits at operands of every scale: elementwise functions against mpmath, the others by how they scale.

The rows of scale_table.py are judged by the condition of the derivative itself (exact.py): a few ulps of it, and of what it moves by
where the operands move by an ulp. Single precision is judged by double precision, compiled programs by plain NumPy's rules.
"""

from __future__ import annotations

import random
import warnings

import mpmath
import numpy as np
import pytest

import tapegrad as tg
from tests.exact import Exact
from tests.scale_table import ROWS, Row

EPS = 2.0**-52
LARGEST = mpmath.mpf(np.finfo(float).max)
SUBNORMAL = mpmath.mpf(2) ** -1022
"""Below it numbers have fewer digits, and a product on the way may have none."""

GROUPS = 8
NAMES = [list(ROWS)[i::GROUPS] for i in range(GROUPS)]


@pytest.fixture(autouse=True)
def quiet():
    """Poles and overflow warn, which is not the matter here."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.fixture
def sweep():
    tg.set_engine("sweep")
    yield
    tg.set_engine("auto")


def columns(row, dtype=float):
    return [np.array(column, dtype) for column in zip(*row.points, strict=True)]


def derivatives(row, xs, wrap=lambda f: f):
    """First and second partial derivatives at all points: (i,) and (i, j), i <= j, to arrays."""
    by = row.by or tuple(range(len(xs)))

    def total(*operands):
        return np.sum(row.f(*operands))

    def first(*operands):
        return tg.grad(total, by)(*operands)

    def second(*operands):
        found = []
        for j in by:
            along = [
                np.ones_like(x) if i == j else np.zeros_like(x) for i, x in enumerate(operands)
            ]
            found.append(tg.jvp(first, operands, tuple(along))[1])
        return found

    slopes = wrap(first)(*xs)
    found = {(i,): g for i, g in zip(by, slopes, strict=True)} if 1 in row.orders else {}
    if 2 in row.orders:
        for j, column in zip(by, wrap(second)(*xs), strict=True):
            found |= {(i, j): h for i, h in zip(by, column, strict=True) if i <= j}
    return found


def lost(found, exact, key, ulps):
    """How many ulps of the condition a derivative is off, or 0 where it is within the bound."""
    expected = exact.derivative(*key)
    if abs(expected) > LARGEST:
        return 0 if np.isinf(found) and np.sign(found) == mpmath.sign(expected) else mpmath.inf
    if not np.isfinite(found):
        return mpmath.inf
    off = max(abs(mpmath.mpf(found) - expected) - SUBNORMAL, 0)
    if off <= ulps * EPS * abs(expected):
        return 0
    off /= EPS * abs(expected) + exact.growth(*key, eps=EPS) or SUBNORMAL
    return off if off > ulps else 0


SLOW = set(
    """betainc gammainc gammaincc owens_t fresnel0 fresnel1 k0 k0e k1 k1e kv0.0 kve0.0 kv7.0 kve7.0
    gamma.cdf gamma.sf chi2.cdf chi2.sf""".split()
)
"""Rows of which mpmath takes a second for a point."""


def failures(name, points=None):
    """The derivatives that are off at some points of the row, chosen by its name; at all of them, if None."""
    row = ROWS[name]
    found = derivatives(row, columns(row))
    count = len(row.points)
    points = count if points is None else min(points, count)
    for k in sorted(random.Random(name).sample(range(count), points)):
        point = row.points[k]
        exact = Exact(row.exact, point)
        for key, values in found.items():
            value = float(values[k])
            if off := lost(value, exact, key, row.ulps):
                expected = mpmath.nstr(exact.derivative(*key), 17)
                yield f"{name}{point} by {key}: {value!r}, not {expected}: {mpmath.nstr(off, 3)} ulps"


@pytest.mark.long
def test_a_rule_keeps_its_digits_at_some_scales(sweep):
    assert SLOW < ROWS.keys()
    found = [line for name in ROWS for line in failures(name, points=1 if name in SLOW else 4)]
    assert found == []


@pytest.mark.campaign
@pytest.mark.parametrize("names", NAMES, ids=range(GROUPS))
def test_a_rule_keeps_its_digits_at_every_scale(names, sweep):
    assert [line for name in names for line in failures(name)] == []


def test_a_rule_that_loses_digits_is_seen(sweep, monkeypatch):
    """A slope that is a difference of nearby numbers, and is small: no absolute tolerance forgives it."""
    exact = lambda x: mpmath.exp(x) - x  # noqa: E731
    spoilt = Row(lambda x: np.exp(x) - x, exact, [(1.3e-12,), (1.5,)], orders=(1,))
    monkeypatch.setitem(ROWS, "spoilt", spoilt)
    (line,) = failures("spoilt")
    assert line.startswith("spoilt(1.3e-12,) by (0,)")


# ----------------------------------------------------------------------------------------- other precision, other engines


def moved(row, xs, eps):
    """By how much each derivative moves when all operands move by a relative eps, in all directions of their signs."""
    here = derivatives(row, xs)
    far = {key: np.zeros(np.shape(value)) for key, value in here.items()}
    for i in range(len(xs)):
        for side in (1 + eps, 1 - eps):
            there = derivatives(row, [x * side if k == i else x for k, x in enumerate(xs)])
            far = {key: np.fmax(far[key], np.abs(there[key] - here[key])) for key in here}
    return here, far


def disagreements(name, row, found, here, far, eps, ulps):
    for key, reference in here.items():
        bound = ulps * (eps * np.abs(reference) + far[key]) + np.finfo(found[key].dtype).tiny
        wrong = (
            ~(np.abs(found[key] - reference) <= bound)
            & np.isfinite(reference)
            & np.isfinite(far[key])
        )
        for k in np.flatnonzero(wrong):
            yield f"{name}{row.points[k]} by {key}: {found[key][k]!r}, not {reference[k]!r}"


def single(name):
    row = ROWS[name]
    narrow = columns(row, np.float32)
    found = derivatives(row, narrow)
    eps = float(np.finfo(np.float32).eps)
    here, far = moved(row, [x.astype(float) for x in narrow], eps)
    limits = np.finfo(np.float32)
    for value in here.values():  # what single precision cannot hold is no matter here
        value[(np.abs(value) > limits.max * 1e-8) | (np.abs(value) < limits.tiny * 1e8)] = np.nan
    if len(narrow) == 2:
        beyond = np.abs(narrow[0] / narrow[1]) + np.abs(narrow[1] / narrow[0]) > row.reach
        for value in here.values():
            value[beyond] = np.nan
    yield from disagreements(name, row, found, here, far, eps, max(64.0, row.ulps))


@pytest.mark.long
@pytest.mark.parametrize("names", NAMES, ids=range(GROUPS))
def test_single_precision_is_double_precision_rounded(names, sweep):
    assert [line for name in names for line in single(name)] == []


# --------------------------------------------------------------------------------- reductions and linear algebra
#
# Of a homogeneous function the k-th derivative scales by the degree less k. Powers of two are exact factors, so the scaled
# derivatives have the same digits; where LAPACK rotates, they are the same but for a few ulps.

SQUARE = np.array([[4.0, 1.0, -0.5], [0.7, 5.0, 1.2], [-0.3, 0.9, 6.5]])
SYMMETRIC = SQUARE + SQUARE.T
VECTOR = np.array([0.7, -1.3, 2.1, 0.4])
TALL = np.array([[1.0, 0.3], [-0.4, 2.0], [0.9, 0.1]])

# fmt: off
HOMOGENEOUS = {
    "sum":       (np.sum, 1, VECTOR, 0),
    "mean":      (np.mean, 1, VECTOR, 0),
    "prod":      (np.prod, 4, VECTOR, 0),
    "cumprod":   (lambda x: np.cumprod(x)[-1], 4, VECTOR, 0),
    "std":       (np.std, 1, VECTOR, 0),
    "var":       (np.var, 2, VECTOR, 0),
    "norm":      (np.linalg.norm, 1, VECTOR, 0),
    "norm of order 1":  (lambda x: np.linalg.norm(x, 1), 1, VECTOR, 0),
    "norm of a matrix": (np.linalg.norm, 1, SQUARE, 0),
    "max":       (np.max, 1, VECTOR, 0),
    "median":    (np.median, 1, VECTOR, 0),
    "hypot":     (lambda x: np.hypot(x[0], x[1]), 1, VECTOR, 0),
    "arctan2":   (lambda x: np.arctan2(x[0], x[1]), 0, VECTOR, 0),
    "dot":       (lambda x: np.dot(x, x), 2, VECTOR, 0),
    "det":       (np.linalg.det, 3, SQUARE, 256),  # NumPy takes the exponential of a logarithm
    "inv":       (lambda a: np.sum(np.linalg.inv(a) * SYMMETRIC), -1, SQUARE, 0),
    "solve":     (lambda a: np.sum(np.linalg.solve(a, VECTOR[:3])), -1, SQUARE, 0),
    "cholesky":  (lambda a: np.sum(np.linalg.cholesky(a) * SQUARE), 0.5, SYMMETRIC, 0),
    "pinv":      (lambda a: np.sum(np.linalg.pinv(a)), -1, TALL, 64),
    "lstsq":     (lambda a: np.sum(np.linalg.lstsq(a, VECTOR[:3], rcond=None)[0]), -1, TALL, 64),
    "qr":        (lambda a: np.sum(np.linalg.qr(a)[1]), 1, TALL, 64),
    "svd":       (lambda a: np.sum(np.linalg.svd(a, full_matrices=False)[1] * VECTOR[:2]), 1, TALL, 256),
    "eigh":      (lambda a: np.sum(np.linalg.eigh(a)[0] * VECTOR[:3]), 1, SYMMETRIC, 256),
    "eigenvectors": (lambda a: np.sum(np.linalg.eigh(a)[1] ** 2 * SQUARE), 0, SYMMETRIC, 1024),
    "eigvals":   (lambda a: np.sum(np.real(np.linalg.eigvals(a)) ** 2), 2, SQUARE, 1024),
    "nuclear norm": (lambda a: np.linalg.norm(a, "nuc"), 1, SQUARE, 256),
    "spectral norm": (lambda a: np.linalg.norm(a, 2), 1, SQUARE, 256),
    "convolve":  (lambda x: np.sum(np.convolve(x, x) * np.arange(7.0)), 2, VECTOR, 0),
    "interp":    (lambda x: np.interp(0.5 * (x[0] + x[3]), np.sort(x), x), 1, VECTOR, 0),
    "trapezoid": (lambda x: np.trapezoid(x, x * x), 3, VECTOR, 0),
}
# fmt: on


@pytest.mark.parametrize("name", HOMOGENEOUS)
def test_a_homogeneous_function_scales_exactly(name, sweep):
    f, degree, x, ulps = HOMOGENEOUS[name]
    direction = np.cos(np.arange(x.size)).reshape(x.shape)
    first = tg.grad(f)
    second = lambda x: tg.jvp(first, (x,), (direction,))[1]  # noqa: E731
    for order, derivative in enumerate((f, first, second)):
        here = derivative(x)
        for exponent in (-80, -40, 40, 80):  # even, for the root that cholesky takes
            scaled = derivative(x * 2.0**exponent) * 2.0 ** (exponent * (order - degree))
            bound = ulps * EPS * np.max(np.abs(here), initial=0.0)
            np.testing.assert_allclose(
                scaled, here, rtol=0, atol=bound, err_msg=f"{order} {exponent}"
            )


SHIFTED = {
    "logsumexp": tg.special.logsumexp,
    "logsumexp of rows": lambda x: np.sum(
        tg.special.logsumexp(np.reshape(x, (2, 2)), axis=0) * VECTOR[:2]
    ),
    "logsumexp with weights": lambda x: tg.special.logsumexp(x, b=VECTOR * VECTOR),
    "log_softmax": lambda x: np.sum(tg.special.log_softmax(x) * VECTOR),
    "softmax": lambda x: np.sum(tg.special.softmax(x) * VECTOR),
    "std": np.std,
    "var": np.var,
    "logaddexp": lambda x: np.logaddexp(x[0], x[1]),
    "differences": lambda x: np.sum(np.diff(x) ** 2),
}
WHOLE = np.array([3.0, -1.0, 4.0, 2.0])
"""Small whole numbers, whose sums with powers of two up to 2^50 are exact."""


@pytest.mark.parametrize("engine", ["sweep", "replay", "compiled"])
@pytest.mark.parametrize("name", SHIFTED)
def test_what_follows_differences_does_not_see_a_shift(name, engine, sweep):
    f = SHIFTED[name]
    if engine == "replay":
        tg.set_engine(engine)
    direction = np.cos(np.arange(4.0))
    first = tg.grad(f)
    second = lambda x: tg.jvp(first, (x,), (direction,))[1]  # noqa: E731
    wrap = tg.compile if engine == "compiled" else lambda f: f
    for derivative in map(wrap, (first, second)):
        for shift in (-(2.0**40), 2.0**20, 2.0**50):
            here = derivative(WHOLE)
            found = derivative(WHOLE + shift)
            np.testing.assert_allclose(found, here, rtol=0, atol=16 * EPS * np.max(np.abs(here)))
