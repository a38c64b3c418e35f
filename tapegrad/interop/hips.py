"""The transforms of HIPS autograd that tapegrad calls otherwise, by the names its users know.

`grad`, `value_and_grad`, `jacobian` and `hessian` are tapegrad's own. One convention differs: gradients by complex arguments
are the conjugates of HIPS's (tapegrad follows PyTorch).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec

import numpy as np

from ..core.tensor import Tensor, value_of
from ..errors import demand_callable
from ..transforms.derivatives import _map as tree_map
from ..transforms.derivatives import grad, hvp, jacobian, jvp, linearize, vjp

Function = Callable[..., Any]
P = ParamSpec("P")


def elementwise_grad(f: Callable[P, Any], argnum: int = 0) -> Callable[P, Any]:
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


def make_vjp(f: Callable[P, Any], argnum: int = 0) -> Callable[P, Any]:
    """A function that returns `(pullback, value)`: HIPS's order, one argument.

    >>> import numpy as np, tapegrad as tg
    >>> pull, value = tg.make_vjp(np.sin)(0.0)
    >>> pull(2.0)
    2.0
    """

    def make(*args: Any, **kwargs: Any) -> Any:
        value, pull = vjp(_of(f, argnum, args, kwargs), _at(args, argnum))
        return lambda g: pull(g)[0], value

    return make


def make_jvp(f: Callable[P, Any], argnum: int = 0) -> Callable[P, Any]:
    """A function that returns a function of a tangent, which returns `(value, derivative along it)`.

    >>> import numpy as np, tapegrad as tg
    >>> tg.make_jvp(np.sin)(0.0)(2.0)
    (np.float64(0.0), np.float64(2.0))
    """

    def make(*args: Any, **kwargs: Any) -> Any:
        one, x = _of(f, argnum, args, kwargs), _at(args, argnum)
        return lambda tangent: jvp(one, (x,), (tangent,))

    return make


def deriv(f: Function, argnum: int = 0) -> Function:
    """The derivative along ones, in forward mode: of a function of one number, its derivative, in whatever shape the value has.

    >>> import numpy as np, tapegrad as tg
    >>> tg.deriv(lambda t: np.array([1.0, 2.0]) * np.sin(t))(0.0)
    array([1., 2.])
    """

    demand_callable(f, "deriv")

    def derivative(*args: Any, **kwargs: Any) -> Any:
        one, x = _of(f, argnum, args, kwargs), _at(args, argnum)
        return jvp(one, (x,), (tree_map(_ones, x),))[1]

    return derivative


def grad_named(f: Function, argname: str) -> Function:
    """The gradient by the argument of that name.

    >>> import tapegrad as tg
    >>> tg.grad_named(lambda x, y: x * y, "y")(2.0, 3.0)
    2.0
    """
    import inspect

    demand_callable(f, "grad_named")
    parameters = [
        p.name
        for p in inspect.signature(f).parameters.values()
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    if argname not in parameters:
        raise ValueError(
            f"grad_named was asked for the gradient by {argname!r}, but the function's arguments are {', '.join(parameters) or 'none'}: "
            "name one of them."
        )
    return grad(f, parameters.index(argname))


def grad_and_aux(f: Function, argnum: int = 0) -> Function:
    """The gradient of the first of two outputs, and the second output as it is.

    >>> import tapegrad as tg
    >>> tg.grad_and_aux(lambda x: (x**2, "seen"))(3.0)
    (6.0, 'seen')
    """
    return grad(f, argnum, has_aux=True)


def make_hvp(f: Function, argnum: int = 0) -> Function:
    """A function that returns `(product with the Hessian, gradient)`, both at the point where it was called.

    >>> import numpy as np, tapegrad as tg
    >>> product, gradient = tg.make_hvp(lambda x: np.sum(x**3))(np.ones(2))
    >>> product(np.array([1.0, 2.0])), gradient
    (array([ 6., 12.]), array([3., 3.]))
    """
    return make_vjp(grad(f, argnum), argnum)


def _half_square(x: Any) -> Any:
    return 0.5 * np.sum(x * x, axis=-1)


def make_ggnvp(f: Function, g: Function = _half_square, f_argnum: int = 0) -> Function:
    """A function that returns the product with the generalised Gauss-Newton matrix Jᵀ H J of g(f(x)) (Schraudolph 2002).

    J is the Jacobian of f, H the Hessian of g at f(x): half the square by default, for which the matrix is JᵀJ.

    >>> import numpy as np, tapegrad as tg
    >>> tg.make_ggnvp(lambda x: x**2)(np.array([1.0, 3.0]))(np.ones(2))
    array([ 4., 36.])
    """
    demand_callable(f, "make_ggnvp")
    demand_callable(g, "make_ggnvp")

    def make(*args: Any, **kwargs: Any) -> Any:
        one, x = _of(f, f_argnum, args, kwargs), _at(args, f_argnum)
        value, pull = vjp(one, x)
        of_value = hvp(g)
        _, push = linearize(one, x)
        return lambda v: pull(of_value(value, push(v)))[0]

    return make


def hessian_tensor_product(f: Function, argnum: int = 0) -> Function:
    """A function of the arguments and, last, a tensor: the Hessian by argument `argnum`, contracted with it.

    A tensor of the argument's shape is a vector; one with fewer axes is contracted with the first axes of the argument.

    >>> import numpy as np, tapegrad as tg
    >>> tg.hessian_vector_product(lambda x: np.sum(x**3))(np.ones(2), np.array([1.0, 2.0]))
    array([ 6., 12.])
    """

    demand_callable(f, "hessian_vector_product")

    def product(*args: Any, **kwargs: Any) -> Any:
        *point, vector = _with_last(args, argnum, "a vector")
        if np.ndim(vector) < np.ndim(point[argnum]) and isinstance(vector, _ARRAYS):
            return tensor_jacobian_product(grad(f, argnum), argnum)(*point, vector, **kwargs)
        return hvp(_of(f, argnum, tuple(point), kwargs))(point[argnum], vector)

    return product


hessian_vector_product = hessian_tensor_product


def tensor_jacobian_product(f: Function, argnum: int = 0) -> Function:
    """A function of the arguments and, last, a cotangent: its product with the Jacobian by argument `argnum`.

    A cotangent with fewer axes than the value is contracted with the value's first axes: the others come first in the result.

    >>> import numpy as np, tapegrad as tg
    >>> tg.vector_jacobian_product(np.sin)(np.zeros(2), np.array([1.0, 2.0]))
    array([1., 2.])
    """

    demand_callable(f, "vector_jacobian_product")

    def product(*args: Any, **kwargs: Any) -> Any:
        *point, cotangent = _with_last(args, argnum, "a cotangent")
        one = _of(f, argnum, tuple(point), kwargs)
        value, pull = vjp(one, point[argnum])
        axes = np.ndim(cotangent) if isinstance(cotangent, _ARRAYS) else np.inf
        if axes >= np.ndim(value):
            return pull(cotangent)[0]
        if np.shape(cotangent) != np.shape(value)[:axes]:
            raise ValueError(
                f"a cotangent of shape {np.shape(cotangent)} was given for a value of shape {np.shape(value)}, but it is contracted with "
                f"the first axes: give it the shape {np.shape(value)[:axes]}, or that of the whole value."
            )
        return jacobian(lambda x: np.tensordot(cotangent, one(x), int(axes)))(point[argnum])

    return product


vector_jacobian_product = tensor_jacobian_product

_ARRAYS = (int, float, complex, np.ndarray, np.generic, Tensor)


def _at(args: tuple[Any, ...], argnum: int) -> Any:
    """The argument by which is differentiated."""
    try:
        return args[argnum]
    except (IndexError, TypeError):
        raise TypeError(
            f"the derivative by argument {argnum!r} was asked for, but the function was called with {len(args)} arguments by position: "
            "pass that argument, and by position."
        ) from None


def _ones(x: Any) -> Any:
    raw = value_of(x)
    return np.ones(np.shape(raw), np.result_type(raw, np.float32(0)) if np.ndim(raw) else float)[()]


def _with_last(args: tuple[Any, ...], argnum: int, what: str) -> tuple[Any, ...]:
    """The arguments, once it is sure that one stands behind those of the function."""
    if not isinstance(argnum, int) or not 0 <= argnum < len(args) - 1:
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


def holomorphic_grad(f: Callable[P, Any], argnum: int = 0) -> Callable[P, Any]:
    """The complex derivative of a holomorphic function.

    >>> import numpy as np, tapegrad as tg
    >>> tg.holomorphic_grad(lambda z: z**2)(np.array([1 + 2j]))
    array([2.+4.j])
    """

    def derivative(*args: Any, **kwargs: Any) -> Any:
        value, pull = vjp(_of(f, argnum, args, kwargs), _at(args, argnum))
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
    "deriv", "elementwise_grad", "grad_and_aux", "grad_named", "hessian_tensor_product", "hessian_vector_product",
    "holomorphic_grad", "make_ggnvp", "make_hvp", "make_jvp", "make_vjp", "multigrad_dict", "tensor_jacobian_product",
    "vector_jacobian_product",
]  # fmt: skip
