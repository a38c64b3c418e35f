"""How a program of the suite is declared, and its contestants: our engines, the primal alone, and JAX.

A program is a class that holds one computation three times: `arrays` as a NumPy author writes it (buffers, slices, stores in place),
`loops` as a Numba author does, `jax` as a JAX user does (`.at[].set`, `lax.scan`: the same algorithm, not a library's routine for it). All
three take the same arguments and return the sum of squares of the outputs, and none knows of tapegrad. `bench.polybench` and
`bench.textbook` hold fifty programs; `bench.bench_programs` checks and times them, `python -m bench.programs` prints the table.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np

import tapegrad as tg

PROGRAMS: dict[str, Program] = {}


@dataclass(frozen=True)
class Program:
    """One computation: three sizes, what makes the arguments of a size, and the three texts."""

    name: str
    sizes: tuple[Any, ...]
    make: Callable[..., tuple[Any, ...]]
    arrays: Callable[..., Any]
    loops: Callable[..., Any]
    jax: Callable[..., Any]
    by: tuple[int, ...] | None

    def inputs(self, which: int) -> tuple[Any, ...]:
        """Arguments of the size at this position; arrays of floats, settings, and whole numbers."""
        size = self.sizes[which]
        uniform = np.random.default_rng(0).random
        return self.make(
            lambda *shape: uniform(shape), *(size if isinstance(size, tuple) else (size,))
        )

    @functools.cached_property
    def wanted(self) -> tuple[int, ...]:
        """Positions to differentiate by: all arrays of floats, unless the program says which."""
        return self.by or tuple(
            i
            for i, a in enumerate(self.inputs(0))
            if isinstance(a, np.ndarray) and a.dtype == float
        )


def program(
    sizes: tuple[Any, ...], make: Callable[..., tuple[Any, ...]], by: tuple[int, ...] | None = None
):
    """Decorator of a class with `arrays`, `loops` and `jax`; `make(r, *size)` has `r(*shape)` for uniform numbers."""

    def declare(texts: type) -> type:
        PROGRAMS[texts.__name__] = Program(
            texts.__name__, sizes, make, texts.arrays, texts.loops, texts.jax, by
        )
        return texts

    return declare


# ------------------------------------------------------------------------------------------------ contestants
#
# Each is a function `prepare(program) -> call`; `call(*inputs)` gives value and gradients, or the value alone. What is compiled is
# compiled by the first call. JAX is imported by its contestant only.


def eager(p: Program) -> Callable[..., Any]:
    """The tape, on the array text."""
    return tg.value_and_grad(p.arrays, p.wanted)


def compiled(p: Program) -> Callable[..., Any]:
    return tg.compile(tg.value_and_grad(p.arrays, p.wanted))


def native(p: Program) -> Callable[..., Any]:
    return tg.value_and_grad(tg.njit(p.loops), p.wanted)


def jax(p: Program) -> Callable[..., Any]:
    """Under `jit`, in float64; whole numbers are settings."""
    import jax

    jax.config.update("jax_enable_x64", True)
    whole = tuple(i for i, a in enumerate(p.inputs(0)) if isinstance(a, int))
    call = jax.jit(jax.value_and_grad(p.jax, p.wanted), static_argnums=whole)
    return lambda *args: jax.block_until_ready(call(*args))


def compiled_value(p: Program) -> Callable[..., Any]:
    return tg.compile(p.arrays)


def numba_value(p: Program) -> Callable[..., Any]:
    return numba.njit(error_model="numpy")(p.loops)


GRADIENTS = {f.__name__: f for f in (eager, compiled, native, jax)}
VALUES = {f.__name__: f for f in (compiled_value, numba_value)}

from bench import polybench, textbook  # noqa: E402, F401  they declare the programs
