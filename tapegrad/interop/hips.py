"""The transforms of HIPS autograd that tapegrad calls otherwise, by the names its users know.

`grad`, `value_and_grad`, `jacobian` and `hessian` are tapegrad's own. One convention differs: gradients by complex arguments
are the conjugates of HIPS's (tapegrad follows PyTorch).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import demand_callable
from ..tensor import value_of
from ..transforms import grad, hvp, jvp, vjp

Function = Callable[..., Any]


def elementwise_grad(f: Function, argnum: int = 0) -> Function:
    """The derivative of a function that works element by element: the gradient of the sum of its outputs.

    For a function that mixes elements this is the sum of the Jacobian's rows.

    >>> import numpy as np, tapegrad as tg
    >>> tg.elementwise_grad(np.sin)(np.array([0.0, np.pi]))
    array([ 1., -1.])
    """

    demand_callable(f, "elementwise_grad")

    @functools.wraps(f, updated=())
    def summed(*args: Any, **kwargs: Any) -> Any:
        return np.sum(f(*args, **kwargs))

    return grad(summed, argnum)


def make_vjp(f: Function, argnum: int = 0) -> Function:
    """A function that returns `(pullback, value)`: HIPS's order, one argument.

    >>> import numpy as np, tapegrad as tg
    >>> pull, value = tg.make_vjp(np.sin)(0.0)
    >>> pull(2.0)
    2.0
    """

    def make(*args: Any, **kwargs: Any) -> Any:
        value, pull = vjp(_of(f, argnum, args, kwargs), args[argnum])
        return lambda g: pull(g)[0], value

    return make


def make_jvp(f: Function, argnum: int = 0) -> Function:
    """A function that returns a function of a tangent, which returns `(value, derivative along it)`.

    >>> import numpy as np, tapegrad as tg
    >>> tg.make_jvp(np.sin)(0.0)(2.0)
    (np.float64(0.0), np.float64(2.0))
    """

    def make(*args: Any, **kwargs: Any) -> Any:
        one = _of(f, argnum, args, kwargs)
        return lambda tangent: jvp(one, (args[argnum],), (tangent,))

    return make


def hessian_vector_product(f: Function, argnum: int = 0) -> Function:
    """A function of the arguments and, last, a vector: the Hessian by argument `argnum` times it.

    >>> import numpy as np, tapegrad as tg
    >>> tg.hessian_vector_product(lambda x: np.sum(x**3))(np.ones(2), np.array([1.0, 2.0]))
    array([ 6., 12.])
    """

    demand_callable(f, "hessian_vector_product")

    def product(*args: Any, **kwargs: Any) -> Any:
        *point, vector = _with_last(args, argnum, "a vector")
        return hvp(_of(f, argnum, tuple(point), kwargs))(point[argnum], vector)

    return product


def vector_jacobian_product(f: Function, argnum: int = 0) -> Function:
    """A function of the arguments and, last, a cotangent: its product with the Jacobian by argument `argnum`.

    >>> import numpy as np, tapegrad as tg
    >>> tg.vector_jacobian_product(np.sin)(np.zeros(2), np.array([1.0, 2.0]))
    array([1., 2.])
    """

    demand_callable(f, "vector_jacobian_product")

    def product(*args: Any, **kwargs: Any) -> Any:
        *point, cotangent = _with_last(args, argnum, "a cotangent")
        _, pull = vjp(_of(f, argnum, tuple(point), kwargs), point[argnum])
        return pull(cotangent)[0]

    return product


def _with_last(args: tuple[Any, ...], argnum: int, what: str) -> tuple[Any, ...]:
    """The arguments, once it is sure that one stands behind those of the function."""
    if len(args) < argnum + 2:
        raise TypeError(
            f"the product was called with {len(args)} arguments, but takes those of the function and, last, {what}."
        )
    return args


def multigrad_dict(f: Function) -> Function:
    """The gradient by every argument, as a dict from the arguments' names.

    >>> import numpy as np, tapegrad as tg
    >>> tg.multigrad_dict(lambda x, y: x * y)(2.0, 3.0)
    {'x': 3.0, 'y': 2.0}
    """
    import inspect

    demand_callable(f, "multigrad_dict")
    signature = inspect.signature(f)

    def gradients(*args: Any, **kwargs: Any) -> dict[str, Any]:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()

        def of_dict(named: dict[str, Any]) -> Any:
            call = signature.bind(*args, **kwargs)
            call.arguments.update(named)
            return f(*call.args, **call.kwargs)

        return grad(of_dict)(dict(bound.arguments))

    return gradients


def holomorphic_grad(f: Function, argnum: int = 0) -> Function:
    """The complex derivative of a holomorphic function.

    >>> import numpy as np, tapegrad as tg
    >>> tg.holomorphic_grad(lambda z: z**2)(np.array([1 + 2j]))
    array([2.+4.j])
    """

    def derivative(*args: Any, **kwargs: Any) -> Any:
        value, pull = vjp(_of(f, argnum, args, kwargs), args[argnum])
        raw = value_of(value)
        # A walk gives the conjugate of a holomorphic derivative.
        return np.conj(pull(np.ones_like(raw) if np.ndim(raw) else type(raw)(1.0))[0])

    return derivative


def _of(f: Function, argnum: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Function:
    """`f` as a function of one of its arguments."""
    demand_callable(f, "a transform")

    def one(x: Any) -> Any:
        return f(*args[:argnum], x, *args[argnum + 1 :], **kwargs)

    return one


__all__ = [
    "elementwise_grad",
    "hessian_vector_product",
    "holomorphic_grad",
    "make_jvp",
    "make_vjp",
    "multigrad_dict",
    "vector_jacobian_product",
]
