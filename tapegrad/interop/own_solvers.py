"""Solvers of the user's own: what they find is a root, a fixed point, or the solution of linear equations, and differentiable as such.

The solver runs on plain numbers, and nothing that it does is recorded. The derivative is that of the equations which the solution
fulfils: by the implicit function theorem for roots and fixed points (solutions.py), and by further calls of the user's own solver for
linear equations, as that of SciPy's iterative solvers (sparse/linalg.py).

Invariant: what a solver returns is judged by the equations before a derivative is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..core.mode import no_grad
from ..core.tensor import value_of
from ..errors import NotDifferentiable, demand_callable
from ..sparse.linalg import LinearOperator, operator_solution
from .interludes import interlude
from .raveling import Space
from .scalar_solvers import difference, solved

Tree = Any
Solve = Callable[[Callable[[Tree], Tree], Tree], Tree]


@interlude
def custom_root(f: Callable[[Tree], Tree], x0: Tree, solve: Solve) -> Tree:
    """The root of `f` that your own solver finds: `solve(f, x0)`, differentiable by what `f` uses, whatever `solve` does.

    `f` maps a pytree of real numbers to as many numbers; `solve` returns a tree like `x0`, and nothing that it does is recorded.

    >>> import tapegrad as tg
    >>> def bisection(f, x0):
    ...     low, high = 0.0, 10.0
    ...     for _ in range(60):
    ...         middle = (low + high) / 2
    ...         low, high = (middle, high) if f(middle) < 0 else (low, middle)
    ...     return middle
    >>> round(tg.grad(lambda a: tg.custom_root(lambda x: x * x - a, 1.0, bisection))(4.0), 9)
    0.25
    """
    x, space = _found(f, x0, solve, "custom_root")
    return solved(lambda tree: f(tree), space, (), x, "custom_root")


@interlude
def custom_fixed_point(f: Callable[[Tree], Tree], x0: Tree, solve: Solve) -> Tree:
    """The x with `f(x) = x` that your own iteration finds: `solve(f, x0)`, differentiable by what `f` uses, whatever `solve` does.

    `f` maps a pytree of real numbers to a tree like it; `solve` returns such a tree, and nothing that it does is recorded.

    >>> import numpy as np, tapegrad as tg
    >>> def often(f, x):
    ...     for _ in range(200):
    ...         x = f(x)
    ...     return x
    >>> round(tg.grad(lambda a: tg.custom_fixed_point(lambda x: np.cos(a * x), 0.5, often))(1.0), 6)
    -0.297474
    """
    x, space = _found(f, x0, solve, "custom_fixed_point")
    return solved(lambda tree: difference(f(tree), tree), space, (), x, "custom_fixed_point")


def _found(f: Any, x0: Tree, solve: Any, name: str) -> tuple[np.ndarray, Space]:
    """What a solver finds, as a vector, and the space of the start."""
    demand_callable(f, name)
    demand_callable(solve, name)
    space = Space(x0, "x0")
    with no_grad():
        found = solve(f, space.tree(space.x))
    return space.vector(found, "what solve returned"), space


@interlude
def custom_linear_solve(
    matvec: Callable[[Any], Any],
    b: Any,
    solve: Callable[[Callable[[Any], Any], Any], Any],
    transpose_solve: Callable[[Callable[[Any], Any], Any], Any] | None = None,
    symmetric: bool = False,
) -> Any:
    """The x with `matvec(x) = b` that your own solver finds: `solve(matvec, b)`, differentiable by `b` and by what `matvec` uses.

    `matvec` is linear in x, an array of the shape of b, and gives such an array. The derivative solves once more: forward mode by `solve`,
    reverse mode by `transpose_solve(vecmat, g)`, where `vecmat` is the product with the adjoint (the conjugate transpose), derived from
    `matvec`. Without `transpose_solve` this is `solve` as well, with `matvec` where the map is `symmetric` (Hermitian). Raises
    NotDifferentiable where what a solver returned does not fulfil its equations.

    >>> import numpy as np, tapegrad as tg
    >>> def jacobi(matvec, b):
    ...     x = np.zeros(2)
    ...     for _ in range(60):
    ...         x = x + (b - matvec(x)) / 4
    ...     return x
    >>> def first(k):
    ...     return tg.custom_linear_solve(lambda v: k * v + 0.5 * v[::-1], np.array([1.0, 2.0]), jacobi)[0]
    >>> tg.grad(first)(np.array([4.0, 5.0])).round(6)
    array([-0.051274,  0.009614])
    """
    for given in (matvec, solve, *(() if transpose_solve is None else (transpose_solve,))):
        demand_callable(given, "custom_linear_solve")
    b = b if hasattr(b, "shape") else np.asarray(b)
    shape, size = np.shape(b), int(np.prod(np.shape(b)))

    def product(v: Any) -> Any:
        y = matvec(np.reshape(v, shape))
        if np.shape(y) != shape:
            raise ValueError(
                f"custom_linear_solve was given a matvec that makes an array of shape {np.shape(y)} of one of shape {shape}: it has to "
                "give an array of the shape of b."
            )
        return np.reshape(y, -1)

    operator = LinearOperator(
        (size, size), product, product if symmetric else None, np.result_type(b.dtype, np.float32)
    )
    by = _Own(solve, transpose_solve or solve, shape, symmetric)
    return np.reshape(operator_solution(operator, np.reshape(b, -1), by)[0], shape)


class _Own:
    """A linear solver of the user's, as `operator_solution` asks for it."""

    name = "custom_linear_solve"

    def __init__(self, solve: Any, transpose_solve: Any, shape: tuple[int, ...], symmetric: bool) -> None:  # fmt: skip
        self.solve, self.transpose_solve, self.shape = solve, transpose_solve, shape
        self.symmetric = symmetric

    def found(self, matrix: Any, b: np.ndarray, adjoint: bool) -> tuple[np.ndarray, int]:
        """The solution for a plain right side; `matrix` is SciPy's operator of the system itself, or of the adjoint one."""
        solve = self.transpose_solve if adjoint else self.solve

        def product(v: Any) -> Any:
            return matrix.matvec(np.reshape(value_of(v), -1)).reshape(self.shape)

        with no_grad():
            x = np.asarray(value_of(solve(product, b.reshape(self.shape))))
        if x.shape != self.shape:
            raise ValueError(
                f"custom_linear_solve was given a {'transpose_solve' if adjoint else 'solve'} that returned shape {x.shape}, but b has "
                f"shape {self.shape}."
            )
        return x.reshape(-1), 0

    def run(self, matrix: Any, b: np.ndarray, adjoint: bool) -> np.ndarray:
        """`found` where a derivative follows: the solution has to fulfil the equations, and a symmetric map to be one."""
        x = self.found(matrix, b, adjoint)[0]
        if self.symmetric:
            self._demand_symmetric(matrix, b, x)
        left, scale = np.linalg.norm(matrix.matvec(x) - b), np.linalg.norm(b)
        if not left <= _BELIEVED * scale:
            what = "transpose_solve" if adjoint else "solve"
            raise NotDifferentiable(
                f"custom_linear_solve was asked for a derivative, but {what} returned an x for which {left:.1e} of {scale:.1e} is left of "
                f"the {'adjoint ' if adjoint else ''}equations. Let it iterate longer, or"
                f"{' pass transpose_solve=, which solves with the adjoint map' if adjoint else ' correct it'}.",
                name="no-solution",
            )
        return x

    def _demand_symmetric(self, matrix: Any, b: np.ndarray, x: np.ndarray) -> None:
        """Raise for a map that is said to be symmetric and is not, as far as these vectors tell."""
        left, right = np.vdot(matrix.matvec(b), x), np.vdot(b, matrix.matvec(x))
        if not abs(left - right) <= _BELIEVED * np.linalg.norm(b) ** 2:
            raise NotDifferentiable(
                "custom_linear_solve was asked for a derivative with symmetric=True, but matvec is not symmetric: <A b, x> is "
                f"{left:.6g} and <b, A x> is {right:.6g}. Leave symmetric=True out, or give transpose_solve=.",
                name="no-solution",
            )


_BELIEVED = 1e-3
"""The part of the right side that may be left: SciPy's iterative solvers leave 1e-5 where nothing else is asked."""

__all__ = ["custom_fixed_point", "custom_linear_solve", "custom_root"]
