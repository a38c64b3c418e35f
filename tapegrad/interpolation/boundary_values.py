"""Boundary value problems: `solve_bvp`, whose solution is differentiable by what the equations and the boundary conditions use.

SciPy's code chooses the mesh and solves the collocation equations (Kierzenka, Shampine 2001) on plain numbers. On that mesh the values and
the unknown parameters are the root of these equations, and have a root's derivatives (interop/implicit.py), to every order.

Invariant: derivatives are those of the discrete solution on a mesh that stays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..core.mode import no_grad
from ..core.tensor import Tensor
from ..errors import NotDifferentiable, demand_callable
from ..interop.implicit import solution
from ..interop.interludes import interlude
from ..interop.raveling import plain
from ..ops.composing import holds_tracked
from .piecewise import CubicHermiteSpline


@interlude
def solve_bvp(
    fun: Callable[..., Any], bc: Callable[..., Any], x: Any, y: Any, p: Any = None, S: Any = None, fun_jac: Any = None,
    bc_jac: Any = None, tol: float = 1e-3, max_nodes: int = 1000, verbose: int = 0, bc_tol: float | None = None,
) -> Any:  # fmt: skip
    """Solve y' = fun(x, y, p) with bc(y(a), y(b), p) = 0 from the guess y (n, m) at the mesh x (m,); SciPy's `solve_bvp`.

    `fun` takes x (m,) and y (n, m) and returns (n, m); `p` are guesses of unknown parameters, of which there is one condition more each.
    The result is SciPy's, whose `sol`, `y`, `yp` and `p` are differentiable by all that `fun` and `bc` use. Raises NotDifferentiable
    where something is tracked and the solver did not converge, or S is given,
    and where the mesh is tracked.

    >>> import numpy as np, tapegrad as tg
    >>> def height(g):
    ...     fall = lambda x, y: np.stack([y[1], -g + 0 * x])
    ...     ends = lambda a, b: np.stack([a[0], b[0]])
    ...     return tg.integrate.solve_bvp(fall, ends, [0.0, 1.0], np.zeros((2, 2))).sol(0.5)[0]
    >>> round(tg.grad(height)(10.0), 9)
    0.125
    """
    from scipy import integrate

    demand_callable(fun, "solve_bvp")
    demand_callable(bc, "solve_bvp")
    if holds_tracked(x):
        raise NotDifferentiable(
            "solve_bvp was given a mesh x that is tracked, but it is a constant. Solve on [0, 1], with the ends a and b in the equations: "
            "y' = (b - a) f(a + (b - a) x, y)."
        )
    mesh, guess = np.asarray(plain(x), float), np.asarray(plain(y))

    def plainly(function: Callable[..., Any]) -> Callable[..., Any]:
        """The user's function on plain numbers."""
        return lambda *args: np.asarray(plain(function(*args)))

    slopes = [None if f is None else _plain_parts(f) for f in (fun_jac, bc_jac)]
    with no_grad():
        result = integrate.solve_bvp(
            plainly(fun),
            plainly(bc),
            mesh,
            guess,
            None if p is None else np.asarray(plain(p)),
            S,
            *slopes,
            tol,
            max_nodes,
            verbose,
            bc_tol,
        )
    if guess.dtype.kind == "c":
        return result
    n, nodes = result.y.shape
    mesh = result.x
    h = np.diff(mesh)
    middle = mesh[:-1] + 0.5 * h

    def split(v: Any) -> tuple[Any, tuple[Any, ...]]:
        return np.reshape(v[: n * nodes], (n, nodes)), (() if p is None else (v[n * nodes :],))

    def equations(v: Any) -> Any:
        """Lobatto's formula of order 4 on each interval, and the boundary conditions."""
        y, p = split(v)
        f = fun(mesh, y, *p)
        inner = 0.5 * (y[:, 1:] + y[:, :-1]) - 0.125 * h * (f[:, 1:] - f[:, :-1])
        rest = (
            y[:, 1:] - y[:, :-1] - h / 6.0 * (f[:, :-1] + f[:, 1:] + 4.0 * fun(middle, inner, *p))
        )
        return np.concatenate([np.reshape(rest, -1), np.reshape(bc(y[:, 0], y[:, -1], *p), -1)])

    start = np.concatenate([result.y.ravel(), *([] if p is None else [result.p])])
    if S is not None:
        if _uses_tracked(equations, start):
            raise NotDifferentiable(
                "solve_bvp was given the singular term S with something tracked, for which there is no rule. Write y' = S y / x + f as a "
                "function that leaves out the place where x is 0."
            )
        return result
    if result.status and _uses_tracked(equations, start):
        raise NotDifferentiable(
            f"solve_bvp was asked for a solution whose derivative is wanted, but it did not converge ({result.message}). Give a better "
            "guess, more nodes (max_nodes=) or a larger tol.",
            name="no-solution",
        )
    found = solution(equations, start, "solve_bvp", [fun, bc])
    if isinstance(found, Tensor):
        result.y, p_found = split(found)
        result.p = p_found[0] if p_found else None
        result.yp = fun(mesh, result.y, *p_found)
        result.sol = CubicHermiteSpline(mesh, result.y, result.yp, axis=1)
    return result


def _plain_parts(jacobian: Callable[..., Any]) -> Callable[..., Any]:
    """The user's Jacobians, one or a tuple of several, as plain numbers."""

    def parts(*args: Any) -> Any:
        found = jacobian(*args)
        return tuple(map(plain, found)) if isinstance(found, tuple) else plain(found)

    return parts


def _uses_tracked(equations: Callable[[Any], Any], v: np.ndarray) -> bool:
    found = equations(v)
    return isinstance(found, Tensor) and found.requires_grad


__all__ = ["solve_bvp"]
