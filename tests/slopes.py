"""Derivatives of a function of several arrays against differences, in every mode, to the second order."""

import numpy as np

import tapegrad as tg


def slope(f, x, along, h=3e-4):
    """Derivative along a direction, by seven points: exact but for h⁶ and rounding over h."""
    weights = ((-3, -1), (-2, 9), (-1, -45), (1, 45), (2, -9), (3, 1))
    return sum(c * f(x + k * h * along) for k, c in weights) / (60 * h)


def agree(f, operands, rng, *, names=None, compiled=False, second=True, rtol=1e-7, atol=1e-8):
    """Both modes and the second derivative, by each operand, against differences; compiled programs against eager ones."""
    w = rng.normal(size=np.shape(f(*operands)))

    def loss(*xs):
        return np.sum(np.sin(f(*xs) + w) * w)

    places = tuple(range(len(operands)))
    slopes = tg.grad(loss, argnums=places)(*operands)
    for i in places if names is None else names:
        x = operands[i]
        along = rng.normal(size=np.shape(x))

        def alone(z, i=i):
            return loss(*operands[:i], z, *operands[i + 1 :])

        expected = slope(alone, x, along)
        told = f"operand {i}"
        scale = max(1.0, abs(float(expected)))
        np.testing.assert_allclose(np.sum(slopes[i] * along), expected, rtol, atol * scale, err_msg=told)  # fmt: skip
        np.testing.assert_allclose(tg.jvp(alone, (x,), (along,))[1], np.sum(slopes[i] * along), 1e-9, 1e-10 * scale, err_msg=told)  # fmt: skip
        if second:
            turned = slope(tg.grad(alone), x, along)
            size = max(1.0, float(np.max(np.abs(turned), initial=0.0)))
            np.testing.assert_allclose(tg.hvp(alone)(x, along), turned, 100 * rtol, 100 * atol * size, err_msg=told)  # fmt: skip
    if compiled:
        program = tg.compile(tg.grad(loss, argnums=places))
        for found, eager in zip(program(*operands), slopes, strict=True):
            np.testing.assert_allclose(found, eager, 1e-9, 1e-11)
