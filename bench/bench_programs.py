"""Fifty programs, unchanged, in every engine beside JAX's jit and the value alone: answers first, then times (`bench.suite`).

`pytest --benchmark-disable bench/bench_programs.py` checks all of them at the smallest size; with timing they run at the largest.
`python -m bench.programs` prints the table.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest

from bench import suite

by_program = pytest.mark.parametrize("name", suite.PROGRAMS)


def moved(program, t):
    """Arguments on a straight line through the smallest inputs, and its direction."""
    args, rng = program.inputs(0), np.random.default_rng(1)
    direction = {i: rng.normal(size=args[i].shape) for i in program.wanted}
    return tuple(
        a + t * direction[i] if i in direction else a for i, a in enumerate(args)
    ), direction


@functools.cache
def slope(name):
    """The derivative of the array text along that line, by differences of fourth order."""
    program, h = suite.PROGRAMS[name], 1e-5
    a, b, c, d = (program.arrays(*moved(program, k * h)[0]) for k in (-2, -1, 1, 2))
    return (a - 8 * b + 8 * c - d) / (12 * h)


@by_program
@pytest.mark.parametrize("contestant", suite.GRADIENTS)
def test_gradient(benchmark, name, contestant):
    """The gradient along a direction is the difference quotient; all contestants have the tape's, at other inputs, too."""
    if contestant == "jax":
        pytest.importorskip("jax")
    program = suite.PROGRAMS[name]
    call, tape = suite.GRADIENTS[contestant](program), suite.eager(program)
    for t in (0.0, 1e-3):
        args, direction = moved(program, t)
        value, gradients = call(*args)
        assert np.isclose(float(value), program.arrays(*args), rtol=1e-10)
        scale = 1e-10 * (1 + abs(float(value)))
        for i, mine, other in zip(program.wanted, gradients, tape(*args)[1], strict=True):
            assert mine.shape == args[i].shape
            np.testing.assert_allclose(mine, other, rtol=1e-8, atol=scale)
        if not t:
            pairs = zip(program.wanted, gradients, strict=True)
            along = sum(np.sum(np.asarray(g) * direction[i]) for i, g in pairs)
            assert np.isclose(along, slope(name), rtol=1e-6, atol=1e3 * scale)
    benchmark.group = name
    if benchmark.enabled:
        args = program.inputs(-1)
        call(*args)
    benchmark(call, *args)


@by_program
@pytest.mark.parametrize("contestant", suite.VALUES)
def test_value(benchmark, name, contestant):
    """Both texts have one value. Without timing they run as they stand, in plain Python."""
    program = suite.PROGRAMS[name]
    args, text = program.inputs(0), program.loops if contestant == "numba_value" else program.arrays
    assert np.isclose(text(*args), program.arrays(*args), rtol=1e-11)
    benchmark.group = name
    if benchmark.enabled:
        text, args = suite.VALUES[contestant](program), program.inputs(-1)
        assert np.isclose(text(*args), program.arrays(*args), rtol=1e-9)
    benchmark(text, *args)
