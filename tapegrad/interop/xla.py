"""Functions across the border to JAX: `to_jax` and `from_jax`.

A tapegrad function becomes a JAX function with a custom VJP, which calls back into Python (`jax.pure_callback`), so it works
under `jax.jit` and `jax.grad`; the call back has to run, so it gains nothing from compilation. A JAX function becomes an op on
tapegrad's tape, to any order. Values cross as NumPy arrays. `to_jax` has first derivatives only: JAX raises for a second.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..core.mode import no_grad
from ..errors import demand_callable
from ..transforms.derivatives import _flatten, _unflatten, vjp
from .foreign import Guest, Pull, plain, recorded

Function = Callable[..., Any]


def _jax() -> Any:
    try:
        import jax
    except ImportError:
        raise ImportError(
            "to_jax and from_jax need JAX, which is not installed: pip install jax."
        ) from None
    return jax


def to_jax(f: Function) -> Function:
    """`f`, written for NumPy, as a function of JAX arrays that JAX can jit and differentiate in reverse mode.

    Arguments are pytrees of real arrays; the result's structure, shapes and dtypes are found by a run of `f` on zeros of the
    arguments' shapes (on the arguments themselves outside jit). JAX computes in float32 unless `jax_enable_x64` is set.

    >>> import numpy as np, tapegrad as tg
    >>> energy = tg.to_jax(lambda x: np.sum(np.sin(x) * x))  # jax.grad(energy), jax.jit(energy)
    """
    demand_callable(f, "to_jax")

    def call(*args: Any) -> Any:
        """Call `f` on JAX arrays, through a callback with a derivative rule of its own."""
        jax = _jax()
        leaves, structure = jax.tree_util.tree_flatten(args)
        shapes: list[Any] = []

        def run(*arrays: Any) -> Any:
            return f(*structure.unflatten([np.array(a) for a in arrays]))

        def value(*arrays: Any) -> tuple[np.ndarray, ...]:
            with no_grad():
                outputs, shape = _flatten(run(*arrays))
            shapes[:] = [shape]
            return tuple(plain(y) for y in outputs)

        def example() -> list[np.ndarray]:
            known = [not isinstance(leaf, jax.core.Tracer) for leaf in leaves]
            return [
                np.asarray(leaf) if k else np.zeros(np.shape(leaf), leaf.dtype)
                for leaf, k in zip(leaves, known, strict=True)
            ]

        with np.errstate(all="ignore"):
            results = tuple(
                jax.ShapeDtypeStruct(y.shape, jax.dtypes.canonicalize_dtype(y.dtype))
                for y in value(*example())
            )
        inputs = tuple(
            jax.ShapeDtypeStruct(np.shape(x), x.dtype) for x in map(jax.numpy.asarray, leaves)
        )

        @jax.custom_vjp
        def model(*xs: Any) -> Any:
            return jax.pure_callback(lambda *a: _like(value(*a), results), results, *xs)

        def forward(*xs: Any) -> Any:
            return model(*xs), xs

        def backward(xs: Any, cotangents: Any) -> Any:
            def pull(xs: Any, gs: Any) -> Any:
                _, pullback = vjp(
                    lambda *a: _flatten(f(*structure.unflatten(a)))[0],
                    *map(np.array, xs),
                    allow_unused=True,
                )
                return _like(pullback([np.asarray(g) for g in gs]), inputs)

            return jax.pure_callback(pull, inputs, xs, cotangents)

        model.defvjp(forward, backward)
        return _unflatten(shapes[0], list(model(*leaves)))

    call.__name__ = getattr(f, "__name__", "f")
    call.__doc__ = getattr(f, "__doc__", None)
    return call


def from_jax(f: Function) -> Function:
    """`f`, written for JAX, as a function of arrays and tensors that tapegrad can differentiate.

    Arguments are arrays, numbers and tensors; one output, or a tuple of them. Arrays give arrays; inside `tg.grad`, or on
    tracked tensors, the call is recorded as one op whose VJP is JAX's. JAX computes in float32 unless `jax_enable_x64` is set.

    >>> import tapegrad as tg
    >>> norm = tg.from_jax(lambda x: (x @ x) ** 0.5)  # takes arrays; tg.grad(norm) works
    """
    demand_callable(f, "from_jax")

    def run(arrays: list[np.ndarray], wanted: list[int]) -> tuple[Any, Pull]:
        """Values of the JAX function as arrays, and the pullback to the `wanted` arguments."""
        jax = _jax()

        def of_wanted(*chosen: Any) -> Any:
            every: list[Any] = list(arrays)
            for k, x in zip(wanted, chosen, strict=True):
                every[k] = x
            return f(*every)

        if not wanted:
            value, pullback = of_wanted(), None
        else:
            value, pullback = jax.vjp(of_wanted, *(jax.numpy.asarray(arrays[k]) for k in wanted))
        several = isinstance(value, tuple | list)
        outputs = list(value) if several else [value]

        def pull(cotangents: list[np.ndarray]) -> list[np.ndarray]:
            given = [
                jax.numpy.asarray(g, y.dtype) for g, y in zip(cotangents, outputs, strict=True)
            ]
            found = pullback(type(value)(given) if several else given[0])  # type: ignore[misc]
            return [np.asarray(g) for g in found]

        values = [np.asarray(y) for y in outputs]
        return (tuple(values) if several else values[0]), pull

    def transposed(wanted: list[int], count: int) -> Function:
        """The pullback as a function of arguments and cotangents, which can be differentiated again."""

        def pulled(*given: Any) -> Any:
            jax = _jax()
            args, cotangents = list(given[:count]), given[count:]

            def of_wanted(*chosen: Any) -> Any:
                for k, x in zip(wanted, chosen, strict=True):
                    args[k] = x
                return f(*args)

            value, pullback = jax.vjp(of_wanted, *(jax.numpy.asarray(args[k]) for k in wanted))
            several = isinstance(value, tuple | list)
            return tuple(pullback(type(value)(cotangents) if several else cotangents[0]))

        return from_jax(pulled)

    def pushed(count: int) -> Function:
        def along(*given: Any) -> Any:
            jax = _jax()
            arrays = [jax.numpy.asarray(a) for a in given]
            return jax.jvp(f, tuple(arrays[:count]), tuple(arrays[count:]))[1]

        return from_jax(along)

    return recorded(Guest(run, transposed, pushed), f)


def _like(values: Any, shapes: Any) -> tuple[np.ndarray, ...]:
    """Values in the shapes and dtypes that JAX was told."""
    return tuple(
        np.asarray(v, dtype=s.dtype).reshape(s.shape) for v, s in zip(values, shapes, strict=True)
    )


__all__ = ["from_jax", "to_jax"]
