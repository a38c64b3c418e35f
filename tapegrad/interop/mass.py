"""Mass matrices: M dy/dt = f(t, y) by SciPy's Radau and BDF, M being constant and perhaps singular (Hairer, Wanner, Solving Ordinary
Differential Equations II, IV.8 and VI.1).

SciPy's solvers know M = 1 only. Three of their formulas are changed: the matrix of each linear system (their attribute `I`), its right-hand
side, and Radau's estimate of the error. The rest of the code, the choice of steps above all, is SciPy's own.

Where M is singular, some rows are equations without derivatives. The equations are accepted if their index is 1: `M + U Uᵀ J` is regular,
where J is the Jacobian of f and the columns of U span the left null space of M. Then the slope of y follows from f, and from how fast the
equations without derivatives move.

Data: a `Mass` holds M as it was given (perhaps tracked), its plain value (an array, or a sparse one of SciPy's), and U.
Invariant: rows of U are those of the state's vector; M is real and n by n.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any

import numpy as np

from ..core.tensor import value_of
from ..errors import NotDifferentiable
from ..ops.composing import holds_tracked, raw
from ..ops.joining import gathered
from ..sparse.arrays import is_sparse, to_scipy
from ..transforms.derivatives import jacobian
from .implicit import SINGULAR, Factors

MOST = 2000
"""Unknowns up to which slopes are found by a dense system where a time is tracked."""


INDEX = (
    "solve_ivp was given a singular mass_matrix, and the equations without derivatives do not decide the unknowns that have none: the "
    "index of the equations is above 1. Differentiate these equations by t until they do."
)


class Mass:
    """The matrix M of M dy/dt = f(t, y)."""

    def __init__(self, matrix: Any, n: int) -> None:
        """Check a mass matrix (n, n), dense or sparse: constant, real and finite."""
        if callable(matrix):
            raise TypeError(
                "solve_ivp was given a function as mass_matrix, but the matrix is constant here: give an array, or multiply the equations "
                "by its inverse in fun."
            )
        sparse = is_sparse(matrix)
        self.given = matrix if sparse else gathered(matrix)
        plain = to_scipy(matrix).tocsc() if sparse else np.asarray(value_of(self.given))
        if plain.shape != (n, n) or plain.dtype.kind not in "fiub":
            raise ValueError(
                f"solve_ivp was given mass_matrix of shape {plain.shape} and dtype {plain.dtype} for {n} unknowns, but it is a real "
                f"matrix of shape ({n}, {n}): a row for each equation, a column for each unknown."
            )
        self.plain: Any = plain.astype(float)
        entries = self.plain.data if sparse else self.plain
        if not np.isfinite(entries).all():
            raise ValueError("solve_ivp was given mass_matrix with entries that are not finite.")
        self.tracked = holds_tracked(getattr(self.given, "data", None) if sparse else self.given)
        self.without = _null_space(self.plain)

    @property
    def is_constant(self) -> bool:
        """Whether a program may have the matrix as a constant: neither tracked nor a value of the program."""
        given = getattr(self.given, "data", None) if is_sparse(self.given) else self.given
        return not self.tracked and isinstance(raw(given), np.ndarray)

    @property
    def dense(self) -> np.ndarray:
        """M as an array."""
        return self.plain.toarray() if is_sparse(self.plain) else self.plain  # type: ignore[no-any-return]

    def times(self, x: Any) -> Any:
        """M x, as a function of M if that is tracked."""
        return (self.given if self.tracked else self.plain) @ x

    def less(self, found: Any, rates: np.ndarray) -> Any:
        """`found` − (M − its value) `rates`: the value of `found`, with the derivative by M that belongs to the slopes `rates`."""
        return found - (self.times(rates) - self.plain @ rates) if self.tracked else found

    def system(self, slopes: Any) -> Any:
        """M + U Uᵀ J."""
        u = self.without
        if not u.shape[1]:
            return self.plain
        whole = self.plain + u @ (u.T @ slopes)
        return whole.tocsc() if is_sparse(whole) else np.asarray(whole)

    def start(
        self, f: Callable[..., Any], jac: Callable[..., Any], ends: Any, y: np.ndarray, rtol: Any, atol: Any
    ) -> tuple[np.ndarray, Callable[..., np.ndarray]]:  # fmt: skip
        """dy/dt at the beginning, and as a function nearby. Raises ValueError for an index above 1 and a start that is not consistent."""
        first = np.asarray(f(ends[0], y))
        u = self.without
        solve = _solver(self.system(jac(ends[0], y) if u.shape[1] else None))
        if solve is None:
            raise ValueError(INDEX)
        off = u.T @ first
        shift = solve(u @ off)
        scale = atol + rtol * np.abs(y)
        if u.shape[1] and not np.all(np.abs(shift) <= scale):
            raise ValueError(
                f"solve_ivp was given y0 that is not consistent with a singular mass_matrix: equations without derivatives are off by "
                f"{np.abs(off).max():.3g} there, and y0 by about {np.abs(shift).max():.3g}. Find a start by tg.root of these equations."
            )
        after = 1e-7 * (ends[1] - ends[0])
        moving = u @ (u.T @ (np.asarray(f(ends[0] + after, y)) - first)) / after if after and u.shape[1] else 0.0  # fmt: skip

        def slope(t: float, y: np.ndarray) -> np.ndarray:
            now = np.asarray(f(t, y))
            return solve(now - u @ (u.T @ now) - moving)  # type: ignore[no-any-return]

        return slope(ends[0], y), slope

    def slope(self, equations: Callable[..., Any]) -> Callable[..., Any]:
        """dy/dt as a function of t and y, tracked as these and the equations are."""
        u = self.without
        n = u.shape[0]
        if n > MOST:
            raise NotDifferentiable(
                f"solve_ivp was asked for derivatives by times of {n} unknowns with a mass_matrix, whose slopes are found by dense "
                f"systems, up to {MOST} unknowns. Leave times and events untracked: detach() them."
            )
        given = self.given.toarray() if is_sparse(self.given) else self.given
        project = (u @ u.T).toarray() if is_sparse(u) else u @ u.T

        def found(t: Any, y: Any) -> Any:
            now = equations(t, y)
            if not u.shape[1]:
                return np.linalg.solve(given, now)
            by_time = jacobian(equations, argnums=0, allow_unused=True)(t * 1.0, y)
            by_state = jacobian(equations, argnums=1)(t, y)
            forced = now - project @ (now + by_time)
            return np.linalg.solve(given + project @ (by_state - given), forced)

        return found


def _null_space(matrix: Any) -> Any:
    """Columns that span the left null space; of a sparse matrix they are unit vectors, for the rows that hold nothing."""
    n = matrix.shape[0]
    if not is_sparse(matrix):
        left, sizes, _ = np.linalg.svd(matrix)
        return left[:, sizes <= n * np.finfo(float).eps * sizes.max(initial=0.0)]
    from scipy.sparse import eye_array

    filled = abs(matrix)
    rows, columns = (np.asarray(filled.sum(axis=a)).ravel() > 0 for a in (1, 0))
    core = matrix[rows][:, columns].tocsc()
    if core.shape[0] != core.shape[1] or (core.shape[0] and _solver(core) is None):
        raise ValueError(
            "solve_ivp was given a sparse mass_matrix that is singular for more than rows of zeros. Give it as a dense array, whose null "
            "space is found, or combine the equations so that those without derivatives have rows of zeros."
        )
    return eye_array(n, format="csc")[:, np.flatnonzero(~rows)]


def _solver(matrix: Any) -> Callable[[np.ndarray], np.ndarray] | None:
    """A function that solves linear systems with a matrix; None if the matrix is singular."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = Factors(matrix)
            return found.solve if found.reciprocal_condition() > SINGULAR else None
    except (RuntimeError, ValueError):
        return None


# ---------------------------------------------------------------------------------------------------- SciPy's solvers


class _Corrected:
    """SciPy's `solve_lu`, for estimates of Radau's error: the rises that it adds to the slope are multiplied by M."""

    def __init__(self, solve: Callable[..., Any], mass: Any) -> None:
        self.solve, self.mass = solve, mass
        self.rise: Any = 0.0

    def __call__(self, factors: Any, b: np.ndarray) -> np.ndarray:
        return self.solve(factors, b + (self.mass @ self.rise - self.rise))  # type: ignore[no-any-return]


def _with_names(function: Any, **names: Any) -> Any:
    """A function that reads other values for some names of its module."""
    return FunctionType(
        function.__code__, {**function.__globals__, **names}, function.__name__, function.__defaults__
    )  # fmt: skip


@cache
def with_mass(method: type) -> type:
    """SciPy's Radau or BDF for M dy/dt = f(t, y); takes `mass` and `slope` (dy/dt at the beginning) besides."""
    from scipy.integrate import Radau
    from scipy.integrate._ivp import bdf, radau
    from scipy.sparse import csc_matrix, issparse

    def collocation(
        fun: Any, t: Any, y: Any, h: Any, Z0: Any, scale: Any, tol: Any, real: Any, pair: Any, corrected: _Corrected
    ) -> Any:  # fmt: skip
        """The stages of a Radau step of M dy/dt = f, by SciPy's iteration with M in its linear systems."""
        now = radau.TI @ Z0
        parts = {False: [radau.MU_REAL / h, now[0].copy()], True: [radau.MU_COMPLEX / h, now[1] + 1j * now[2]]}  # fmt: skip

        def solve(factors: Any, b: np.ndarray) -> np.ndarray:
            part = parts[b.dtype.kind == "c"]
            found = corrected.solve(factors, b + part[0] * (part[1] - corrected.mass @ part[1]))
            part[1] = part[1] + found
            return found  # type: ignore[no-any-return]

        found = radau.solve_collocation_system(fun, t, y, h, Z0, scale, tol, real, pair, solve)
        corrected.rise = found[2].T.dot(radau.E) / h
        return found

    def formula(
        fun: Any, t: Any, y: Any, c: Any, psi: Any, factors: Any, corrected: _Corrected, scale: Any, tol: Any
    ) -> Any:  # fmt: skip
        rest = psi

        def solve(factors: Any, b: np.ndarray) -> np.ndarray:
            nonlocal rest
            found = corrected.solve(factors, b + (rest - corrected.mass @ rest))
            rest = rest + found
            return found  # type: ignore[no-any-return]

        return bdf.solve_bdf_system(fun, t, y, c, psi, factors, solve, scale, tol)

    class WithMass(method):  # type: ignore[misc]
        def __init__(self, *args: Any, mass: Mass, slope: np.ndarray, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.I = csc_matrix(mass.plain) if issparse(self.J) else mass.dense
            plainly: Any = self.solve_lu  # type: ignore[has-type]
            self.solve_lu = _Corrected(plainly, mass.plain)
            if hasattr(self, "D"):
                self.D[1] = slope * self.h_abs * self.direction

        _step_impl = _with_names(
            method._step_impl,  # type: ignore[attr-defined]
            **{"solve_collocation_system": collocation} if issubclass(method, Radau) else {"solve_bdf_system": formula},
        )  # fmt: skip

    WithMass.__name__ = method.__name__
    return WithMass


__all__ = ["Mass", "with_mass"]
