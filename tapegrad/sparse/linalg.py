"""`tg.sparse.linalg`: solvers of sparse systems that are differentiable, under the names of `scipy.sparse.linalg`.

SciPy solves; the derivative of x in A x = b is another solution, with the adjoint of A: b̄ = A⁻ᴴ x̄, and Ā is −b̄ xᴴ on the pattern of
A (ops/sparse.py). Direct solvers keep their factors for it. Iterative ones iterate again, to the same tolerance, also where the
derivative is by what a `LinearOperator` closes over.

Invariant: factors and iterations work on plain numbers; where no operand is tracked, results are plain.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.linalg import LinAlgError

from ..core.closures import closed_over
from ..core.dual import LEVEL
from ..core.mode import is_grad_enabled, no_grad
from ..core.packing import op_of_calls
from ..core.primitive import apply, conj
from ..core.storage import StandIn, demand_no_trace
from ..core.tensor import Tensor, value_of, wrap
from ..errors import NotDifferentiable, demand_callable
from ..ops.composing import raw
from ..ops.linear_systems import stacks
from ..ops.sparse import (
    Factors,
    Pairs,
    Pattern,
    Solver,
    Triangle,
    left_eigenvectors,
    sign_of_det,
    sparse_eigenvalues,
    sparse_eigenvectors,
    sparse_general_eigenvalues,
    sparse_log_det,
    sparse_product,
    sparse_solution,
)
from ..transforms.derivatives import _Run, vjp
from ..transforms.loops import outside_of, pulled, pushed, scan, while_loop
from .arrays import SparseTensor, as_sparse, assembled, eye_array, is_sparse, product
from .fits import bicg, cgs, gcrotmk, lgmres, lsmr, lsqr, tfqmr


def _square(a: Any, asker: str) -> int:
    if not hasattr(a, "shape"):
        raise TypeError(
            f"{asker} was given {type(a).__name__}, which is no matrix: pass a sparse array, such as tg.sparse.csc_array(a)."
        )
    if len(a.shape) != 2 or a.shape[0] != a.shape[1]:
        raise LinAlgError(
            f"{asker} was given a matrix of shape {tuple(a.shape)}, but needs as many equations as unknowns."
        )
    return int(a.shape[0])


def _right_side(b: Any, n: int, asker: str) -> Any:
    if is_sparse(b):
        raise TypeError(
            f"{asker} was given a sparse right side, whose solution is dense: pass b.toarray(), whose columns are right sides."
        )
    (b,) = stacks(b)
    if np.ndim(b) not in (1, 2) or np.shape(b)[0] != n:
        raise ValueError(
            f"{asker} was given a right side of shape {np.shape(b)} for {n} equations: give a vector, or columns, of that length."
        )
    return b


# ---------------------------------------------------------------------------------------------------- direct solvers


def _solved(a: SparseTensor, b: Any, by: Solver, adjoint: bool = False) -> Any:
    """x from A x = b, or from Aᴴ x = b."""
    return sparse_solution([a.data, b], pattern=a.pattern, by=by, adjoint=adjoint)


def spsolve(A: Any, b: Any, permc_spec: str | None = None, use_umfpack: bool = True) -> Any:
    """x from A x = b, for a sparse square A and a vector b or a matrix of right sides; differentiable by b and by the entries of A.

    A is a `SparseTensor` or SciPy's. SuperLU factors A once, for the derivatives too. `permc_spec` is SciPy's ("COLAMD" by default;
    "MMD_AT_PLUS_A" suits symmetric patterns); `use_umfpack` is taken for its name alone. Raises LinAlgError where A is singular.

    >>> import numpy as np, tapegrad as tg
    >>> A = tg.sparse.diags_array([np.array([2.0, 4.0])], offsets=[0])
    >>> gradient = tg.grad(lambda A: tg.sparse.linalg.spsolve(A, np.array([2.0, 4.0])).sum())(A)
    >>> gradient.data
    array([-0.5 , -0.25])
    """
    return splu(A, permc_spec, _asker="spsolve").solve(b)


class LU:
    """A sparse matrix with its LU factors, as `splu` returns it: `solve` takes any number of right sides.

    >>> import numpy as np, tapegrad as tg
    >>> lu = tg.sparse.linalg.splu(tg.sparse.csc_array(np.array([[2.0, 1.0], [0.0, 4.0]])))
    >>> lu.solve(np.array([4.0, 8.0])), lu.solve(np.array([4.0, 8.0]), trans="T")
    (array([1., 2.]), array([2. , 1.5]))
    """

    __slots__ = ("_by", "_matrix", "shape")

    def __init__(self, matrix: SparseTensor, by: Factors) -> None:
        self._matrix, self._by = matrix, by
        self.shape = matrix.shape

    def solve(self, rhs: Any, trans: str = "N") -> Any:
        """x from A x = rhs, or for trans "T" from Aᵀ x = rhs, for "H" from Aᴴ x = rhs."""
        if trans not in ("N", "T", "H"):
            raise ValueError(
                f"trans={trans!r} was asked of the factors of a matrix: it is 'N', 'T' or 'H'."
            )
        b = _right_side(rhs, self.shape[0], "solve")
        a = self._matrix
        if trans == "T" and b.dtype.kind != "c" and a.dtype.kind != "c":
            trans = "H"
        if trans == "T":
            return conj(_solved(a, conj(b), self._by, adjoint=True))
        return _solved(a, b, self._by, adjoint=trans == "H")

    def __repr__(self) -> str:
        return f"<LU factors of {self._matrix!r}>"


def splu(
    A: Any,
    permc_spec: str | None = None,
    diag_pivot_thresh: float | None = None,
    relax: int | None = None,
    panel_size: int | None = None,
    options: dict[str, Any] | None = None,
    *,
    _asker: str = "splu",
) -> LU:
    """The LU factors of a sparse square matrix, for `splu(A).solve(b)`: made once, for all right sides and all derivatives.

    Settings are those of SciPy's `splu`. The matrix is factored at the first solve. Raises LinAlgError where it is not square, and then
    where it is singular.

    >>> import numpy as np, tapegrad as tg
    >>> lu = tg.sparse.linalg.splu(tg.sparse.diags_array([np.array([2.0, 4.0])], offsets=[0]))
    >>> tg.grad(lambda b: lu.solve(b)[1])(np.array([1.0, 1.0]))
    array([0.  , 0.25])
    """
    matrix = as_sparse(A, _asker)
    _square(matrix, _asker)
    given = {
        "permc_spec": permc_spec, "diag_pivot_thresh": diag_pivot_thresh, "relax": relax, "panel_size": panel_size,
        "options": options,
    }  # fmt: skip
    return LU(
        matrix, Factors(**{name: value for name, value in given.items() if value is not None})
    )


def factorized(A: Any) -> Callable[[Any], Any]:
    """The function that solves A x = b for a right side b, with factors that are made once.

    >>> import numpy as np, tapegrad as tg
    >>> solve = tg.sparse.linalg.factorized(2 * tg.sparse.eye_array(2))
    >>> solve(np.array([2.0, 6.0]))
    array([1., 3.])
    """
    lu = splu(A, _asker="factorized")
    return lambda b: lu.solve(b)


def spsolve_triangular(
    A: Any,
    b: Any,
    lower: bool = True,
    overwrite_A: bool = False,
    overwrite_b: bool = False,
    unit_diagonal: bool = False,
) -> Any:
    """x from A x = b, where A is sparse and triangular; entries of the other triangle are not read, nor a diagonal taken as ones.

    Raises LinAlgError for a zero on the diagonal. Nothing is overwritten.

    >>> import numpy as np, tapegrad as tg
    >>> tg.sparse.linalg.spsolve_triangular(tg.sparse.csr_array(np.array([[2.0, 0.0], [1.0, 1.0]])), np.array([2.0, 3.0]))
    array([1., 2.])
    """
    from .arrays import _those

    matrix = as_sparse(A, "spsolve_triangular")
    _square(matrix, "spsolve_triangular")
    b = _right_side(b, matrix.shape[0], "spsolve_triangular")

    def read(rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        side = columns <= rows if lower else columns >= rows
        return side & (rows != columns) if unit_diagonal else side

    part = _those(matrix, read)
    if unit_diagonal:
        part = part + eye_array(matrix.shape[0], dtype=np.finfo(matrix.dtype).dtype)
    return _solved(part, b, Triangle(lower, unit_diagonal))


# ------------------------------------------------------------------------------------------------- iterative solvers


class LinearOperator:
    """A linear map given by its product with a vector, which may use tracked values: a matrix for the iterative solvers.

    `matvec` takes a vector of length shape[1] and is linear in it, written with NumPy's functions. The adjoint is derived from it, so
    `rmatvec` is only taken where it is quicker.

    >>> import numpy as np, tapegrad as tg
    >>> def trace_of_solution(k):
    ...     A = tg.sparse.linalg.LinearOperator((2, 2), lambda v: k * v)
    ...     return tg.sparse.linalg.cg(A, np.array([1.0, 2.0]), rtol=1e-12)[0].sum()
    >>> tg.grad(trace_of_solution)(np.array([2.0, 4.0]))
    array([-0.25 , -0.125])

    The products with a vector can be asked for by themselves:

    >>> D = tg.sparse.linalg.LinearOperator((2, 3), lambda v: v[1:] - v[:-1])
    >>> D.matvec(np.array([1.0, 4.0, 9.0])), D.rmatvec(np.array([1.0, 2.0])), D.H.shape
    (array([3., 5.]), array([-1., -1.,  2.]), (3, 2))
    """

    __slots__ = ("_matvec", "_rmatvec", "dtype", "shape")

    def __init__(
        self,
        shape: Sequence[int],
        matvec: Callable[[Any], Any],
        rmatvec: Callable[[Any], Any] | None = None,
        dtype: Any = float,
    ) -> None:
        demand_callable(matvec, "LinearOperator")
        m, n = shape
        self.shape = (int(m), int(n))
        self._matvec, self._rmatvec = matvec, rmatvec
        self.dtype = np.dtype(dtype)

    def matvec(self, x: Any) -> Any:
        """A x."""
        return self._shaped(self._matvec(x), self.shape[0], "matvec")

    def rmatvec(self, x: Any) -> Any:
        """Aᴴ x, by the `rmatvec` that was given, or from the derivative of `matvec`."""
        if self._rmatvec is not None:
            return self._shaped(self._rmatvec(x), self.shape[1], "rmatvec")
        x = x if isinstance(x, Tensor) else np.asarray(x)
        zeros = np.zeros(self.shape[1], np.result_type(self.dtype, x.dtype))
        return vjp(self._matvec, zeros)[1](x)[0]

    def _shaped(self, y: Any, n: int, name: str) -> Any:
        if np.shape(y) != (n,):
            raise ValueError(
                f"{name} of a LinearOperator of shape {self.shape} returned shape {np.shape(y)}: it is a vector of length {n}."
            )
        return y

    @property
    def H(self) -> LinearOperator:
        """The adjoint."""
        return LinearOperator(self.shape[::-1], self.rmatvec, self.matvec, self.dtype)

    def __matmul__(self, x: Any) -> Any:
        (x,) = stacks(x)
        if np.ndim(x) == 2:
            return np.stack([self.matvec(x[:, k]) for k in range(np.shape(x)[1])], axis=1)
        return self.matvec(x)

    def __repr__(self) -> str:
        return f"<LinearOperator of shape {self.shape}>"


def aslinearoperator(A: Any) -> LinearOperator:
    """A matrix, sparse or dense, or a LinearOperator of SciPy's, as a `LinearOperator` that tensors may be given to.

    >>> import numpy as np, tapegrad as tg
    >>> tg.sparse.linalg.aslinearoperator(np.array([[1.0, 2.0]])) @ np.array([1.0, 1.0])
    array([3.])
    """
    if isinstance(A, LinearOperator):
        return A
    if is_sparse(A):
        a = as_sparse(A)
        back = lambda v: conj(sparse_product(a.data, conj(v), a.pattern, True))  # noqa: E731
        return LinearOperator(a.shape, lambda v: product(a, v), back, a.dtype)
    if hasattr(A, "rmatvec") and hasattr(A, "matvec"):  # SciPy's, which takes plain numbers
        return LinearOperator(
            A.shape,
            lambda v: _applied(v, A, False),
            lambda v: _applied(v, A, True),
            A.dtype or float,
        )
    (a,) = stacks(A)
    if np.ndim(a) != 2:
        raise ValueError(
            f"aslinearoperator was given an array of shape {np.shape(a)}: a matrix has two axes."
        )
    return LinearOperator(np.shape(a), lambda v: a @ v, None, np.result_type(a.dtype, float))


class _Applied:
    """The rule of one product of a LinearOperator of SciPy's with a vector: its own `matvec` and `rmatvec`."""

    __slots__ = ("adjoint", "of")

    def __init__(self, of: Any, adjoint: bool) -> None:
        self.of, self.adjoint = of, adjoint

    def evaluate(self, values: Sequence[Any]) -> Any:
        return np.asarray((self.of.rmatvec if self.adjoint else self.of.matvec)(values[0]))

    def pull(self, g: Any, xs: Sequence[Any], wanted: Sequence[bool]) -> list[Any]:
        return [_applied(g, self.of, not self.adjoint)]

    def push(self, given: Sequence[Any], xs: Sequence[Any]) -> Any:
        return _applied(given[0], self.of, self.adjoint)


def _applied(v: Any, operator: Any, adjoint: bool) -> Any:
    return apply(applied.primitive, [v], (_Applied(operator, adjoint),))


applied = op_of_calls(
    "operator_product", "A product of SciPy's LinearOperator with a vector.", pushes=True
)


class _Iteration(Solver):
    """One of SciPy's iterative solvers, and its settings. Raises NotDifferentiable where it does not converge."""

    __slots__ = ("hermitian", "name", "preconditioner", "settings")

    def __init__(self, name: str, preconditioner: Any, settings: dict[str, Any]) -> None:
        self.name = name
        self.hermitian = name in ("cg", "minres")
        self.preconditioner = preconditioner
        self.settings = settings

    def solve(self, pattern: Pattern, data: np.ndarray, b: np.ndarray, adjoint: bool) -> np.ndarray:
        matrix = pattern.matrix(data)
        return self.run(matrix.conj().T.tocsr() if adjoint else matrix, b, adjoint)

    def run(self, matrix: Any, b: np.ndarray, adjoint: bool) -> np.ndarray:
        """The solution, of each column of b."""
        if b.ndim == 2:
            return np.stack([self.run(matrix, b[:, k], adjoint) for k in range(b.shape[1])], axis=1)
        x, info = self.found(matrix, b, adjoint)
        if info and not _to_rounding(matrix, x, b):
            raise NotDifferentiable(
                f"{self.name} was asked for a solution whose derivative is wanted, but it did not converge (info={info}"
                f"{', in the adjoint system' if adjoint else ''}), and a derivative would be that of another point. Allow more steps "
                "(maxiter=), loosen rtol, give a preconditioner M, or detach() what A and b are made of.",
                name="no-solution",
            )
        return x

    def found(self, matrix: Any, b: np.ndarray, adjoint: bool) -> tuple[np.ndarray, int]:
        """SciPy's result: the solution, and whether it converged."""
        from scipy.sparse import linalg

        settings = dict(self.settings)
        if adjoint:
            settings.pop("x0", None)
            settings.pop("callback", None)
        m = self.preconditioner
        if m is not None:
            m = _plain_operator(m, adjoint and not self.hermitian)
        with no_grad():
            return getattr(linalg, self.name)(matrix, b, M=m, **settings)


def _plain_operator(m: Any, adjoint: bool) -> Any:
    """A preconditioner as an operator of SciPy's on plain numbers, or its adjoint."""
    from scipy.sparse import linalg

    if isinstance(m, LinearOperator):
        m = linalg.LinearOperator(
            m.shape,
            lambda v, m=m: value_of(m.matvec(v)),
            lambda v, m=m: value_of(m.rmatvec(v)),
            dtype=m.dtype,
        )
    elif isinstance(m, SparseTensor):
        m = m.detach().to_scipy()
    m = linalg.aslinearoperator(value_of(m) if isinstance(m, Tensor) else m)
    return m.H if adjoint else m


def _iterated(
    name: str, A: Any, b: Any, x0: Any, M: Any, settings: dict[str, Any]
) -> tuple[Any, int]:
    """(x, info) of an iterative solver, x differentiable by b and by what A is made of."""
    dense = isinstance(A, Tensor | np.ndarray | list | tuple)
    n = _square(A if not isinstance(A, list | tuple) else np.asarray(A), name)
    b = _right_side(b, n, name)
    if np.ndim(b) == 2:
        if np.shape(b)[1] != 1:
            raise ValueError(
                f"{name} was given a right side of shape {np.shape(b)}: it solves for one vector; call it for each column."
            )
        b = b[:, 0]
    if x0 is not None:
        settings["x0"] = np.array(value_of(x0.detach() if isinstance(x0, Tensor) else x0))
    by = _Iteration(name, M, {k: v for k, v in settings.items() if v is not None})
    if is_sparse(A):
        a = as_sparse(A)
        operands = (a.data, b)
        if any(isinstance(raw(x), StandIn) for x in operands):
            return _solved(a, b, by), 0
        if (
            not any(isinstance(x, Tensor) and x.requires_grad for x in operands)
            or not is_grad_enabled()
        ):
            matrix, right = (np.asarray(value_of(x)) for x in operands)
            x, info = by.found(a.pattern.matrix(matrix), right, False)
            return (wrap(x) if any(isinstance(x, Tensor) for x in operands) else x), info
        return _solved(a, b, by), 0
    operator = aslinearoperator(A)
    if dense and not isinstance(A, Tensor) and not isinstance(b, Tensor):
        return by.found(np.asarray(A), b, False)
    return operator_solution(operator, b, by)


ATTAINABLE = 20.0
"""Units of rounding of the backward error at which iterations that go no further have a solution."""


class Iterating(Protocol):
    """What solves the linear equations of an operator: an iterative solver of SciPy's, or one of the user's."""

    @property
    def name(self) -> str: ...

    def run(self, matrix: Any, b: np.ndarray, adjoint: bool) -> np.ndarray:
        """The solution, where a derivative follows."""

    def found(self, matrix: Any, b: np.ndarray, adjoint: bool) -> tuple[np.ndarray, int]:
        """The solution, and SciPy's number for how it ended."""


def _to_rounding(matrix: Any, x: np.ndarray, b: np.ndarray) -> bool:
    """Whether x solves A x = b as well as rounding lets anybody, a direct solver too, although not to the tolerance that was asked for.

    Its backward error, the part of A by which another matrix has this solution (Rigal & Gaches, J. ACM 14, 1967), is some units of
    rounding. The norm of A is bounded from below by its products with some vectors, so that too little is accepted, not too much.
    """
    with np.errstate(all="ignore"):
        product = matrix @ x
        vectors = [x, b, b - product]
        sizes = [np.linalg.norm(v) for v in vectors]
        norms = [
            np.linalg.norm(matrix @ v) / size
            for v, size in zip(vectors, sizes, strict=True)
            if size > 0
        ]
        eps = np.finfo(np.result_type(x, b, 1.0)).eps
        return bool(sizes[2] <= ATTAINABLE * eps * (max(norms, default=0.0) * sizes[0] + sizes[1]))


def _solved_plainly(
    operator: LinearOperator, b: Any, by: Iterating, adjoint: bool, strict: bool
) -> tuple[Any, int]:
    """SciPy's solution with an operator, on plain numbers."""
    from scipy.sparse import linalg

    b = np.asarray(value_of(b))
    there, back = (
        (operator.rmatvec, operator.matvec) if adjoint else (operator.matvec, operator.rmatvec)
    )
    with no_grad():
        made = linalg.LinearOperator(
            operator.shape,
            lambda v: np.asarray(value_of(there(np.ravel(v)))),
            lambda v: np.asarray(value_of(back(np.ravel(v)))),
            dtype=np.result_type(operator.dtype, b.dtype),
        )
        if not strict:
            return by.found(made, b, adjoint)
        if np.any(made.matvec(np.zeros(made.shape[1], made.dtype)) != 0):
            raise NotDifferentiable(
                f"{by.name} was asked for a solution whose derivative is wanted, but matvec does not map zeros to zeros, so it is not "
                "linear. Subtract its constant part there and from b, or use tg.custom_root for equations that are not linear.",
                name="no-solution",
            )
        return by.run(made, b, adjoint), 0


class _OperatorSolution:
    """The rule of a solution with a `LinearOperator`: as that of any root (interop/implicit.py), with iterations for its linear systems."""

    __slots__ = ("by", "nodes", "operator", "residual", "right", "value")

    def __init__(
        self,
        operator: LinearOperator,
        right: Any,
        residual: Any,
        value: Any,
        nodes: list[Any],
        by: Iterating,
    ) -> None:
        self.operator, self.right, self.residual = operator, right, residual
        self.value, self.nodes, self.by = value, nodes, by

    def evaluate(self, values: Sequence[Any]) -> Any:
        return self.value.copy()

    def pull(self, g: Any, xs: Sequence[Any], wanted: Sequence[bool]) -> list[Any]:
        if isinstance(g, Tensor):
            x: Any = apply(operator_solved.primitive, list(xs), (self,))
            weights = operator_solution(self.operator, g, self.by, adjoint=True)[0]
        else:
            x, weights = self.value, _solved_plainly(self.operator, g, self.by, True, True)[0]
        _, found = pulled(self.residual, (x,), -weights)
        return [found.get(node) for node in self.nodes]

    def push(self, given: Sequence[Any], xs: Sequence[Any]) -> Any:
        outside = dict(zip(self.nodes, given, strict=True))
        recorded = any(isinstance(x, Tensor) for x in (*xs, *given))
        x = apply(operator_solved.primitive, list(xs), (self,)) if recorded else self.value
        rate = pushed(self.residual, (x,), (None,), outside, recorded)
        if recorded:
            return -operator_solution(self.operator, rate, self.by)[0]
        return -_solved_plainly(self.operator, value_of(rate), self.by, False, True)[0]


operator_solved = op_of_calls(
    "operator_solution", "x from A x = b, by what the operator A and b use.", pushes=True
)


def operator_solution(
    operator: LinearOperator, b: Any, by: Iterating, adjoint: bool = False
) -> tuple[Any, int]:
    """(x, info) from A x = b or Aᴴ x = b, as the function of the tracked values that A and b use."""
    there = operator.rmatvec if adjoint else operator.matvec

    def residual(x: Any) -> Any:
        return there(x) - b

    start = np.zeros(operator.shape[1], np.result_type(operator.dtype, b.dtype))
    if not is_grad_enabled():
        return _solved_plainly(operator, b, by, adjoint, False)
    run = _Run(residual, (start,), {}, (0,), by.name)
    outside = outside_of(run.own.tape.code, run.nodes)
    tangents = LEVEL.get() is not None
    if not outside and not tangents:
        return _solved_plainly(operator, b, by, adjoint, False)
    demand_no_trace(by.name)
    x = _solved_plainly(operator, b, by, adjoint, True)[0]
    if tangents:
        raise NotDifferentiable(
            f"{by.name} was called with a LinearOperator inside tg.autograd.forward_ad, where the operator may close over tangents that "
            "nobody sees. Use tg.jvp, or give A as a sparse matrix."
        )
    made = _OperatorSolution(
        operator, b, closed_over([operator._matvec]).within(residual), x, list(outside), by
    )
    if adjoint:
        made.operator = operator.H
    return apply(operator_solved.primitive, list(outside.values()), (made,)), 0


def cg(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    rtol: float = 1e-5,
    atol: float = 0.0,
    maxiter: int | None = None,
    M: Any = None,
    callback: Callable[[Any], Any] | None = None,
) -> tuple[Any, int]:
    """(x, info) from A x = b by conjugate gradients, for a Hermitian positive definite A; SciPy's `cg`.

    A is sparse (ours or SciPy's), dense, or a `LinearOperator`; M, the preconditioner, too. x is differentiable by b and by what A is made
    of, to about rtol: the derivative is a solution by the same method. Where a derivative is wanted and the method does not converge
    it raises NotDifferentiable; else info says so, as in SciPy.

    >>> import numpy as np, tapegrad as tg
    >>> A = tg.sparse.diags_array([np.array([2.0, 4.0])], offsets=[0])
    >>> tg.grad(lambda A: tg.sparse.linalg.cg(A, np.array([2.0, 4.0]))[0].sum())(A).data
    array([-0.5 , -0.25])
    """
    return _iterated(
        "cg", A, b, x0, M, {"rtol": rtol, "atol": atol, "maxiter": maxiter, "callback": callback}
    )


def bicgstab(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    rtol: float = 1e-5,
    atol: float = 0.0,
    maxiter: int | None = None,
    M: Any = None,
    callback: Callable[[Any], Any] | None = None,
) -> tuple[Any, int]:
    """(x, info) from A x = b by stabilised biconjugate gradients, for any square A; SciPy's `bicgstab`, differentiable as `cg` is.

    >>> import numpy as np, tapegrad as tg
    >>> a = tg.sparse.csr_array(np.array([[2.0, 1.0], [0.0, 4.0]]))
    >>> x, info = tg.sparse.linalg.bicgstab(a, np.array([4.0, 8.0]), rtol=1e-12)
    >>> print(np.round(x, 9), info)
    [1. 2.] 0
    """
    return _iterated(
        "bicgstab",
        A,
        b,
        x0,
        M,
        {"rtol": rtol, "atol": atol, "maxiter": maxiter, "callback": callback},
    )


def gmres(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    rtol: float = 1e-5,
    atol: float = 0.0,
    restart: int | None = None,
    maxiter: int | None = None,
    M: Any = None,
    callback: Callable[[Any], Any] | None = None,
    callback_type: str | None = None,
) -> tuple[Any, int]:
    """(x, info) from A x = b by generalised minimal residuals, for any square A; SciPy's `gmres`, differentiable as `cg` is.

    >>> import numpy as np, tapegrad as tg
    >>> a = tg.sparse.csr_array(np.array([[2.0, 1.0], [0.0, 4.0]]))
    >>> x, info = tg.sparse.linalg.gmres(a, np.array([4.0, 8.0]), rtol=1e-12)
    >>> print(np.round(x, 9), info)
    [1. 2.] 0
    """
    settings: dict[str, Any] = {"rtol": rtol, "atol": atol, "restart": restart, "maxiter": maxiter}
    if callback is not None:
        settings |= {"callback": callback, "callback_type": callback_type or "pr_norm"}
    return _iterated("gmres", A, b, x0, M, settings)


def minres(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    rtol: float = 1e-5,
    shift: float = 0.0,
    maxiter: int | None = None,
    M: Any = None,
    callback: Callable[[Any], Any] | None = None,
) -> tuple[Any, int]:
    """(x, info) from (A - shift I) x = b by minimal residuals, for a real symmetric A; SciPy's `minres`, differentiable as `cg` is.

    >>> import numpy as np, tapegrad as tg
    >>> a = tg.sparse.csr_array(np.array([[2.0, 1.0], [1.0, 4.0]]))
    >>> x, info = tg.sparse.linalg.minres(a, np.array([4.0, 9.0]), rtol=1e-12)
    >>> print(np.round(x, 6), info)
    [1. 2.] 0
    """
    if shift:
        if not is_sparse(A):
            raise TypeError(
                "minres was given a shift and an A that is not sparse: subtract the shift inside of A."
            )
        A = as_sparse(A) - shift * eye_array(A.shape[0])
    return _iterated(
        "minres", A, b, x0, M, {"rtol": rtol, "maxiter": maxiter, "callback": callback}
    )


# ------------------------------------------------------------------------------------------------------------- others


def norm(x: Any, ord: Any = None) -> Any:
    """The norm of a sparse matrix: Frobenius' (None or "fro"), or the largest sum of magnitudes of a column (1) or row (np.inf).

    >>> import numpy as np, tapegrad as tg
    >>> tg.sparse.linalg.norm(tg.sparse.diags_array([np.array([3.0, 4.0])], offsets=[0]))
    np.float64(5.0)
    """
    a = as_sparse(x, "norm")
    if ord in (None, "fro"):
        return np.linalg.norm(a.data)
    if ord in (1, np.inf):
        return np.max(abs(a).sum(axis=0 if ord == 1 else 1))
    raise ValueError(
        f"norm {ord!r} of a sparse matrix was asked: there are 'fro', 1 and np.inf; the spectral one is svds(A, k=1)[1][0]."
    )


def slogdet(A: Any) -> tuple[Any, Any]:
    """The sign of the determinant of a sparse square matrix and the logarithm of its absolute value, from one LU factorisation.

    Its gradient is the inverse on the pattern of A, for which each column of the inverse is solved for, some at a time: n solutions with
    the same factors, and no dense matrix. SciPy has no such function; the name is NumPy's. Raises LinAlgError where A is singular.

    >>> import numpy as np, tapegrad as tg
    >>> log_det = lambda d: tg.sparse.linalg.slogdet(tg.sparse.diags_array([d], offsets=[0]))[1]
    >>> tg.grad(log_det)(np.array([2.0, 4.0]))
    array([0.5 , 0.25])
    """
    a = as_sparse(A, "slogdet")
    _square(a, "slogdet")
    by = Factors()
    found = sparse_log_det(a.data, a.pattern, by)
    if a.dtype.kind == "c":
        return np.exp(1j * np.imag(found)), np.real(found)
    plain = raw(a.data)
    if isinstance(plain, StandIn):
        return plain.called(lambda x: sign_of_det(x, a.pattern, by), (plain,), "sign_of_det"), found
    return sign_of_det(np.asarray(plain), a.pattern, by), found


# --------------------------------------------------------------------------------------------- a few eigenvectors


def _few(k: Any, n: int, name: str, fewer_than: str = "all") -> int:
    k = operator.index(k)
    if not 0 < k < n:
        raise ValueError(
            f"{name} was asked for {k} pairs of a matrix of {n} rows: it finds more than 0 and fewer than {fewer_than}."
        )
    return k


def _arpack(name: str, matrix: Any, k: int, **settings: Any) -> Any:
    """What SciPy's function of this name finds; from SciPy 1.17 on it draws numbers, which are to be the same at each call of a program."""
    from scipy.sparse import linalg

    found = getattr(linalg, name)
    if "rng" in inspect.signature(found).parameters:
        settings["rng"] = np.random.default_rng(0)
    return found(matrix, k, **settings)


def _generalised(name: str, a: SparseTensor, k: int, M: Any, **settings: Any) -> Any:
    """What SciPy's function of this name finds for a generalised problem, which may not be tracked."""
    if isinstance(a.data, Tensor) or (is_sparse(M) and isinstance(as_sparse(M).data, Tensor)):
        raise NotDifferentiable(
            f"{name} was given a generalised problem with tracked entries, for which there is no rule here. Write it as an ordinary one "
            "(by the Cholesky factor of M), or detach() the entries."
        )
    return _arpack(name, a.to_scipy(), k, M=M, **settings)


def eigsh(
    A: Any,
    k: int = 6,
    M: Any = None,
    sigma: float | None = None,
    which: str = "LM",
    v0: Any = None,
    ncv: int | None = None,
    maxiter: int | None = None,
    tol: float = 0,
    return_eigenvectors: bool = True,
) -> Any:
    """k eigenvalues, and eigenvectors as columns, of a sparse Hermitian A; SciPy's `eigsh`, differentiable by the entries of A.

    Eigenvalues are in ascending order. Their derivative takes no further solution; that of each eigenvector takes one, with A bordered by
    it, and raises NotDifferentiable where an eigenvalue is repeated. An eigenvector's length stays 1 and its phase is SciPy's choice:
    the gradient of a function that depends on it is refused. A generalised problem (M) is refused where A is tracked.

    >>> import numpy as np, tapegrad as tg
    >>> smallest = lambda d: tg.sparse.linalg.eigsh(tg.sparse.diags_array([d], offsets=[0]), 1, which="SA")[0][0]
    >>> tg.grad(smallest)(np.array([3.0, 1.0, 2.0, 4.0])).round(12) + 0.0
    array([0., 1., 0., 0.])
    """
    settings = {
        "sigma": sigma, "which": which, "v0": v0, "ncv": ncv, "maxiter": maxiter, "tol": tol,
    }  # fmt: skip
    a = as_sparse(A, "eigsh")
    k = _few(k, _square(a, "eigsh"), "eigsh")
    if M is not None:
        return _generalised("eigsh", a, k, M, return_eigenvectors=return_eigenvectors, **settings)

    def find(matrix: Any) -> tuple[np.ndarray, np.ndarray]:
        w, v = _arpack("eigsh", matrix, k, **settings)
        order = np.argsort(w)
        return w[order], v[:, order]

    vectors = sparse_eigenvectors(a.data, a.pattern, Pairs(find))
    values = sparse_eigenvalues([a.data, vectors], pattern=a.pattern)
    return (values, vectors) if return_eigenvectors else values


def eigs(
    A: Any,
    k: int = 6,
    M: Any = None,
    sigma: complex | None = None,
    which: str = "LM",
    v0: Any = None,
    ncv: int | None = None,
    maxiter: int | None = None,
    tol: float = 0,
    return_eigenvectors: bool = True,
    *,
    left: bool = False,
) -> Any:
    """k eigenvalues, and right eigenvectors as columns, of any sparse square A; SciPy's `eigs`, differentiable by the entries of A.

    Results are complex and in SciPy's order. With `left` they are (w, vl, vr), as in `scipy.linalg.eig`: vlᴴ A = w vlᴴ, each of length 1
    and with vlᴴ vr > 0. Derivatives take the left eigenvector, one solution with A bordered by the right one; they raise
    NotDifferentiable where an eigenvalue is repeated, and where a function depends on an eigenvector's phase. A generalised
    problem (M) is refused where A is tracked, or left vectors are asked for.

    >>> import numpy as np, tapegrad as tg
    >>> A = tg.sparse.csr_array(np.diag([3.0, 1.0, 2.0, 4.0]) + np.eye(4, k=1))
    >>> largest = lambda A: tg.sparse.linalg.eigs(A, 1)[0][0].real
    >>> tg.grad(largest)(A).toarray().round(12)[-1] + 0.0
    array([0., 0., 0., 1.])
    """
    settings = {
        "sigma": sigma, "which": which, "v0": v0, "ncv": ncv, "maxiter": maxiter, "tol": tol,
    }  # fmt: skip
    a = as_sparse(A, "eigs")
    k = _few(k, _square(a, "eigs") - 1, "eigs", "all but one")
    if M is not None:
        if left:
            raise ValueError(
                "eigs was asked for left vectors of a generalised problem: solve it with A and M transposed."
            )
        return _generalised("eigs", a, k, M, return_eigenvectors=return_eigenvectors, **settings)
    by = Pairs(lambda matrix: _arpack("eigs", matrix, k, **settings), hermitian=False)
    values = sparse_general_eigenvalues(a.data, pattern=a.pattern, by=by)
    if not (return_eigenvectors or left):
        return values
    vectors = sparse_eigenvectors(a.data, a.pattern, by)
    if not left:
        return values, vectors
    other = left_eigenvectors(a.data, vectors, values, a.pattern, by)
    return values, other / np.sqrt(np.sum(np.real(conj(other) * other), axis=0)), vectors


def svds(
    A: Any,
    k: int = 6,
    ncv: int | None = None,
    tol: float = 0,
    which: str = "LM",
    v0: Any = None,
    maxiter: int | None = None,
    return_singular_vectors: bool = True,
    solver: str = "arpack",
    rng: Any = None,
) -> Any:
    """(u, s, vh): k singular triplets of a sparse A, s ascending; SciPy's `svds`, differentiable by the entries of A.

    They are eigenpairs of [[0, A], [Aᴴ, 0]], and have their derivatives: see `eigsh`. With `return_singular_vectors=False` only s.

    >>> import numpy as np, tapegrad as tg
    >>> largest = lambda d: tg.sparse.linalg.svds(tg.sparse.diags_array([d], offsets=[0]), 1)[1][0]
    >>> tg.grad(largest)(np.array([3.0, -4.0, 2.0])).round(12) + 0.0
    array([ 0., -1.,  0.])
    """
    from scipy.sparse import linalg

    a = as_sparse(A, "svds")
    m, n = a.shape
    k = _few(k, min(m, n), "svds")
    settings = {
        "ncv": ncv, "tol": tol, "which": which, "v0": v0, "maxiter": maxiter, "solver": solver, "rng": rng,
    }  # fmt: skip
    there = a.pattern

    def find(matrix: Any) -> tuple[np.ndarray, np.ndarray]:
        u, s, vh = linalg.svds(matrix[:m, m:], k, **settings)
        order = np.argsort(s)
        return s[order], np.concatenate([u[:, order], vh.conj().T[:, order]]) / np.sqrt(2)

    rows = np.concatenate([there.rows, there.columns.astype(np.int64) + m])
    columns = np.concatenate([there.columns.astype(np.int64) + m, there.rows])
    both = assembled(rows, columns, np.concatenate([a.data, conj(a.data)]), (m + n, m + n))
    vectors = sparse_eigenvectors(both.data, both.pattern, Pairs(find))
    s = sparse_eigenvalues([both.data, vectors], pattern=both.pattern)
    if not return_singular_vectors:
        return s
    return np.sqrt(2) * vectors[:m], s, conj(np.transpose(np.sqrt(2) * vectors[m:]))


# ------------------------------------------------------------------------------------------------------ exponentials

_REACH = {
    5: 2.4e-3, 6: 9.07e-3, 7: 2.38e-2, 8: 5.00e-2, 9: 8.96e-2, 10: 1.44e-1, 11: 2.14e-1, 12: 3.00e-1, 13: 4.00e-1, 14: 5.14e-1, 15: 6.41e-1,
    16: 7.81e-1, 17: 9.31e-1, 18: 1.09, 19: 1.26, 20: 1.44, 21: 1.62, 22: 1.82, 23: 2.01, 24: 2.22, 25: 2.43, 26: 2.64, 27: 2.86, 28: 3.08,
    29: 3.31, 30: 3.54, 35: 4.7, 40: 6.0, 45: 7.2, 50: 8.5, 55: 9.9,
}  # fmt: skip
"""Terms of the Taylor series of exp -> the norm up to which they are exact to double precision (Al-Mohy and Higham 2011, table 3.1)."""


def expm_multiply(A: Any, B: Any) -> Any:
    """exp(A) B for a square A, sparse or dense, and a vector or matrix B, without the exponential; SciPy's, differentiable by B and A.

    Algorithm: s steps of a Taylor polynomial (Al-Mohy and Higham 2011, Computing the action of the matrix exponential), as many as the norm
    of A asks; derivatives are those of the polynomial, which keeps its products for them. For exp(t A) B write expm_multiply(t * A, B).
    Where A depends on an argument of `tg.compile`, the steps are a loop of the program.

    >>> import numpy as np, tapegrad as tg
    >>> A = tg.sparse.diags_array([np.array([0.0, 1.0])], offsets=[0])
    >>> tg.grad(lambda A: tg.sparse.linalg.expm_multiply(A, np.ones(2)).sum())(A).data.round(6)
    array([1.      , 2.718282])
    """
    dense = isinstance(A, Tensor | np.ndarray | list | tuple)
    a: Any = stacks(A)[0] if dense else as_sparse(A, "expm_multiply")
    n = _square(a, "expm_multiply")
    b = _right_side(B, n, "expm_multiply")
    if not n:
        return b * 1.0
    data = a if dense else a.data

    def product(v: Any) -> Any:
        return a @ v if dense else sparse_product(data, v, a.pattern)

    with no_grad():
        there = value_of(a) if dense else a.with_data(value_of(data))
        diagonal = there.diagonal()
        shift = np.sum(diagonal) / n  # exp(A) = exp(shift) exp(A - shift), for any number
        apart = abs(diagonal - shift) - abs(diagonal)
        size = value_of(np.max(abs(there).sum(axis=0) + apart))
        shift = value_of(shift)
    if not bool(np.isfinite(size)):
        raise ValueError("expm_multiply was given a matrix with entries that are not finite.")
    if isinstance(raw(data), StandIn):
        return _expm_loop(product, b, shift, size)
    # Derivatives take a term more for each order: two orders are exact to rounding.
    terms, steps = min(
        ((m + 2, max(1, int(np.ceil(size / reach)))) for m, reach in _REACH.items()),
        key=lambda p: p[0] * p[1],
    )
    scale = np.exp(shift / steps)
    for _ in range(steps):
        term = total = b
        for j in range(1, terms + 1):
            term = (product(term) - shift * term) / (steps * j)
            total = total + term
        b = scale * total
    return b


def _expm_loop(product: Callable[[Any], Any], b: Any, shift: Any, size: Any) -> Any:
    """`expm_multiply` in a program: `size` is the norm and `shift` a number less on the diagonal, both values of the program."""
    most, reach = max(_REACH.items())
    steps = np.maximum(np.ceil(size / reach), 1.0)
    scale = np.exp(shift / steps)
    b = b + 0 * product(b)  # of the dtype that steps have

    def term(carry: Any, j: Any) -> Any:
        term, total = carry
        term = (product(term) - shift * term) / (steps * j)
        return (term, total + term), None

    def step(carry: Any) -> Any:
        left, b = carry
        (_, total), _ = scan(term, (b, b), np.arange(1.0, most + 3))
        return left - 1, scale * total

    return while_loop(lambda carry: carry[0] > 0, step, (steps, b))[1]


__all__ = [
    "LU", "LinAlgError", "LinearOperator", "aslinearoperator", "bicg", "bicgstab", "cg", "cgs", "eigs", "eigsh", "expm_multiply",
    "factorized", "gcrotmk", "gmres", "lgmres", "lsmr", "lsqr", "minres", "norm", "slogdet", "splu", "spsolve",
    "spsolve_triangular", "svds", "tfqmr",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__
