"""Every program of array_programs.py as it stands, in every engine: its value is NumPy's, its derivatives are those of differences."""

import zlib

import numpy as np
import pytest

import tapegrad as tg
from tests import array_programs

NAMES = sorted(array_programs.PROGRAMS)
STEP = 1e-5


def _given(name):
    """The loss, its arguments, and a direction among them."""
    f, shapes = array_programs.PROGRAMS[name]
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    args = tuple(0.5 * rng.normal(size=s) if s else float(0.5 * rng.normal()) for s in shapes)
    direction = tuple(rng.normal(size=s) if s else float(rng.normal()) for s in shapes)

    def loss(*args):
        y = f(*args)
        return np.sum(y * y) + np.sum(y)

    return loss, args, direction


def _moved(args, direction, by):
    return tuple(x + by * d for x, d in zip(args, direction, strict=True))


def _along(gradients, direction):
    return sum(np.sum(g * d) for g, d in zip(gradients, direction, strict=True))


def _slope(f, args, direction):
    """By differences of fourth order."""
    values = [f(*_moved(args, direction, k * STEP)) for k in (-2, -1, 1, 2)]
    return (values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * STEP)


def _check(name, gradients_of):
    loss, args, direction = _given(name)
    slope = _slope(loss, args, direction)
    found = _along(gradients_of(loss, args), direction)
    assert abs(found - slope) <= 1e-7 * (1 + abs(slope) + abs(loss(*args))), (found, slope)


def _all(args):
    return tuple(range(len(args)))


@pytest.mark.parametrize("engine", ["sweep", "replay"])
@pytest.mark.parametrize("name", NAMES)
def test_tape(name, engine):
    before = tg.engine()
    try:
        tg.set_engine(engine)
    except RuntimeError as error:
        pytest.skip(str(error))
    try:
        loss, args, _ = _given(name)
        assert np.isclose(tg.value_and_grad(loss)(*args)[0], loss(*args), rtol=1e-12)
        _check(name, lambda loss, args: tg.grad(loss, argnums=_all(args))(*args))
    finally:
        tg.set_engine(before)


@pytest.mark.long(but=2)
@pytest.mark.parametrize("name", NAMES)
def test_compiled(name):
    _, args, direction = _given(name)
    f = array_programs.PROGRAMS[name][0]
    compiled = tg.compile(f)
    for given in (args, _moved(args, direction, 1e-3)):
        np.testing.assert_allclose(compiled(*given), f(*given), rtol=1e-10, atol=1e-12)
    _check(name, lambda loss, args: tg.compile(tg.grad(loss, argnums=_all(args)))(*args))


@pytest.mark.parametrize("name", NAMES)
def test_forward_mode(name):
    loss, args, direction = _given(name)
    slope = _slope(loss, args, direction)
    tangent = tg.jvp(loss, args, direction)[1]
    assert abs(tangent - slope) <= 1e-7 * (1 + abs(slope) + abs(loss(*args)))


@pytest.mark.parametrize("name", NAMES)
def test_second_order(name):
    """Forward over reverse, and reverse over reverse, against differences of the gradient."""
    loss, args, direction = _given(name)

    def slope(*args):
        return _along(tg.grad(loss, argnums=_all(args))(*args), direction)

    expected = _slope(slope, args, direction)
    forward = tg.jvp(slope, args, direction)[1]
    reverse = _along(tg.grad(slope, argnums=_all(args))(*args), direction)
    for found in (forward, reverse):
        assert abs(found - expected) <= 1e-6 * (1 + abs(expected) + abs(slope(*args)))


@pytest.mark.parametrize("name", NAMES)
def test_one_argument_is_a_constant(name):
    """What is not differentiated by is a plain array, of which programs make buffers by `copy`."""
    loss, args, direction = _given(name)
    for i in range(len(args)):
        alone = tuple(d if k == i else 0 * np.asarray(d) for k, d in enumerate(direction))
        slope = _slope(loss, args, alone)
        found = np.sum(tg.grad(loss, argnums=i)(*args) * alone[i])
        assert abs(found - slope) <= 1e-7 * (1 + abs(slope) + abs(loss(*args)))
