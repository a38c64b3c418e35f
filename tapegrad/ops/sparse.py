"""Products and solutions with sparse matrices: a pattern, which is constant, and the entries on it, which are data.

A matrix A has its entries `data` at the places of a `Pattern`. Three ops, closed under differentiation:

    sparse_product(data, x)     A x, or Aᵀ x        linear in each; the cotangent of data is a sampled product
    sparse_sampled(u, v)        (u vᵀ) on the pattern    linear in each; the cotangents are sparse products
    sparse_solution([data, b])  x from A x = b, or Aᴴ x = b     the cotangents are a solution and a sampled product

so that no derivative of any order holds a dense matrix (Davis, Direct Methods for Sparse Linear Systems, 2006; Giles 2008 for the rules).

Data: a `Pattern` lists places by rows, in each row by columns, none twice (canonical CSR). Vectors have one axis; several are the
columns of an array with two.
Invariant: the data of a pattern has one axis, of length `nnz`, in the pattern's order. SciPy is imported when it is first needed.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core import seams
from ..core.domain import Domain, real
from ..core.primitive import call, conj, primitive
from ..core.storage import as_array
from ..errors import NotDifferentiable
from .composing import raw
from .linear_algebra import _refuse_choice


class Pattern:
    """Where the entries of a sparse matrix stand, by rows and in each row by columns: `indptr` and `indices` as in SciPy's CSR.

    Two patterns are equal if they hold the same places.
    """

    __slots__ = (
        "__weakref__",
        "_columns_first",
        "_hash",
        "_matrix",
        "_rows",
        "indices",
        "indptr",
        "shape",
    )

    def __init__(self, indptr: np.ndarray, indices: np.ndarray, shape: Sequence[int]) -> None:
        self.indptr, self.indices = indptr, indices
        self.shape = (int(shape[0]), int(shape[1]))
        self._rows: np.ndarray | None = None
        self._matrix: Any = None
        self._columns_first: tuple[Pattern, np.ndarray] | None = None
        self._hash: int | None = None

    @property
    def nnz(self) -> int:
        """How many places there are."""
        return len(self.indices)

    @property
    def rows(self) -> np.ndarray:
        """The row of each place."""
        if self._rows is None:
            self._rows = np.repeat(
                np.arange(self.shape[0], dtype=self.indices.dtype), np.diff(self.indptr)
            )
        return self._rows

    @property
    def columns(self) -> np.ndarray:
        """The column of each place."""
        return self.indices

    def matrix(self, data: np.ndarray) -> Any:
        """SciPy's `csr_array` with these entries, which shares their memory."""
        if self._matrix is None:
            from scipy.sparse import csr_array

            parts = (np.zeros(self.nnz, np.int8), self.indices, self.indptr)
            self._matrix = csr_array(parts, shape=self.shape)
            self._matrix.has_canonical_format = True  # so that SciPy does not look, each time
        made = copy.copy(self._matrix)  # a tenth of the time that the checks of a new one take
        made.data = data
        return made

    def transposed(self) -> tuple[Pattern, np.ndarray]:
        """The pattern of Aᵀ, and for each of its places the number of that place here."""
        if self._columns_first is None:
            numbers = self.matrix(np.arange(self.nnz)).tocsc()
            there = Pattern(numbers.indptr, numbers.indices, self.shape[::-1])
            self._columns_first = there, numbers.data
        return self._columns_first

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Pattern)
            and self.shape == other.shape
            and self.nnz == other.nnz
            and hash(self) == hash(other)
            and np.array_equal(self.indptr, other.indptr)
            and np.array_equal(self.indices, other.indices)
        )

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(
                (
                    self.shape,
                    self.indptr.astype(np.int64).tobytes(),
                    self.indices.astype(np.int64).tobytes(),
                )
            )
        return self._hash

    def __repr__(self) -> str:
        return f"<{self.nnz} places of {self.shape[0]} x {self.shape[1]}>"


def _sample(shape: tuple[int, int], *places: tuple[int, int]) -> Pattern:
    """A small pattern for samples of the ops."""
    rows, columns = np.array(sorted(places), int).reshape(-1, 2).T
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=shape[0]))])
    return Pattern(indptr.astype(np.intc), columns.astype(np.intc), shape)


_WIDE = _sample((3, 4), (0, 0), (0, 3), (2, 1), (2, 2), (2, 3))
_SQUARE = _sample((3, 3), (0, 0), (0, 2), (1, 1), (2, 0), (2, 1), (2, 2))
_EMPTY = _sample((2, 3))


# -------------------------------------------------------------------------------------------------------- products


def _product(data: Any, x: Any, pattern: Pattern, transposed: bool) -> np.ndarray:
    matrix = pattern.matrix(as_array(data))
    return (matrix.T if transposed else matrix) @ as_array(x)


def _product_x(g, x, pattern, transposed):
    """Cotangent of the entries: (g xᴴ), or its transpose, on the pattern."""
    left, right = (conj(x), g) if transposed else (g, conj(x))
    return sparse_sampled(left, right, pattern)


def _product_y(g, x, *, pattern, transposed=False):
    """Cotangent of the vectors: Aᴴ g."""
    return sparse_product(conj(x), g, pattern, not transposed)


def _as_columns(t: np.ndarray) -> np.ndarray:
    """Directions of vectors, or of several columns, side by side."""
    return np.moveaxis(t, 0, -1).reshape(t.shape[1], -1)


def _as_directions(y: np.ndarray, like: np.ndarray) -> np.ndarray:
    """Columns as directions again, whose other axes are those of `like`."""
    return np.moveaxis(y.reshape(len(y), *like.shape[2:], len(like)), -1, 0)


def _products_along(given, values, out, pattern, transposed=False):
    """Tangents of a product along many directions: one product with all of them as columns."""
    (t_x, t_y), (x, y) = given, values
    total: Any = 0
    if t_y is not None:
        total = _as_directions(_product(x, _as_columns(t_y), pattern, transposed), t_y)
    if t_x is not None:
        total = total + np.stack([_product(t, y, pattern, transposed) for t in t_x])
    return total


def _product_tangent(given, values, out, *, pattern, transposed=False):
    """The product rule."""
    (t_x, t_y), (x, y) = given, values
    by_entries = None if t_x is None else sparse_product(t_x, y, pattern, transposed)
    by_vectors = None if t_y is None else sparse_product(x, t_y, pattern, transposed)
    if by_entries is None or by_vectors is None:
        return by_vectors if by_entries is None else by_entries
    return by_entries + by_vectors


@primitive(
    _product,
    _product_y,
    name="sparse_product",
    linear=True,
    jvp=_product_tangent,
    directions=_products_along,
    samples=[
        call((5,), (4,), pattern=_WIDE),
        call((5,), (4, 2), pattern=_WIDE),
        call((5,), (3,), pattern=_WIDE, transposed=True),
        call((6,), (3, 2), pattern=_SQUARE, transposed=True),
        call((0,), (3,), pattern=_EMPTY),
        call((5,), (4, 0), pattern=_WIDE),
    ],
)
def sparse_product(g, y, *, pattern, transposed=False):
    """A x of a sparse matrix, of which the entries are given, and a vector or several; with `transposed`, Aᵀ x."""
    return _product_x(g, y, pattern, transposed)


def _sampled(u: np.ndarray, v: np.ndarray, pattern: Pattern) -> np.ndarray:
    u, v = as_array(u), as_array(v)
    if u.ndim == 1:
        return u[pattern.rows] * v[pattern.columns]
    total = np.zeros(pattern.nnz, np.result_type(u, v))
    for k in range(u.shape[1]):  # a column at a time: no array of all products
        total += u[:, k][pattern.rows] * v[:, k][pattern.columns]
    return total


def _sampled_y(g, x, *, pattern):
    """Cotangent of the second vector: Gᵀ ū, with G the cotangent as entries of the pattern."""
    return sparse_product(g, conj(x), pattern, True)


@primitive(
    _sampled,
    _sampled_y,
    name="sparse_sampled",
    linear=True,
    samples=[
        call((3,), (4,), pattern=_WIDE),
        call((3, 2), (4, 2), pattern=_WIDE),
        call((2,), (3,), pattern=_EMPTY),
        call((3, 0), (4, 0), pattern=_WIDE),
    ],
)
def sparse_sampled(g, y, *, pattern):
    """Entries of u vᵀ on a pattern; of several columns, the sum over them."""
    return sparse_product(g, conj(y), pattern)


# ------------------------------------------------------------------------------------------------------- solutions


class Solver:
    """How A x = b is solved for given entries: `solve(pattern, data, b, adjoint)`. It keeps its findings about A."""

    __slots__ = ()

    def solve(self, pattern: Pattern, data: np.ndarray, b: np.ndarray, adjoint: bool) -> np.ndarray:
        """x from A x = b, or from Aᴴ x = b."""
        raise NotImplementedError


class Factors(Solver):
    """SciPy's LU factors (SuperLU), made when they are first needed and kept for the entries that they are of.

    The reverse sweep, all right-hand sides and both modes solve with one factorisation. Other entries, as a compiled program meets
    them at its next call, are told from those by their values, and factored anew.
    """

    __slots__ = ("held", "options")

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.held: tuple[np.ndarray, Any] | None = None

    def of(self, pattern: Pattern, data: np.ndarray) -> Any:
        """SuperLU's object for these entries. Raises LinAlgError where the matrix is singular."""
        held = self.held
        if held is not None and held[0].dtype == data.dtype and np.array_equal(held[0], data):
            return held[1]
        from scipy.sparse.linalg import splu

        self.held = None  # two sets of factors need not be held at once
        try:
            factored = splu(pattern.matrix(data).tocsc(), **self.options)
        except RuntimeError as error:
            if "singular" not in str(error):
                raise
            if not np.isfinite(data).all():
                raise ValueError(
                    "a sparse system was to be solved, but entries of its matrix are nan or inf: look where they come from (tg.debug_nans)."
                ) from None
            raise np.linalg.LinAlgError(
                f"a sparse system of {pattern.shape[0]} equations was to be solved, but its matrix is singular: a pivot is exactly 0. "
                "Fix an unknown that no equation decides, or solve in the sense of least squares."
            ) from None
        self.held = data.copy(), factored
        return factored

    def solve(self, pattern: Pattern, data: np.ndarray, b: np.ndarray, adjoint: bool) -> np.ndarray:
        factored = self.of(pattern, data)
        trans = "H" if adjoint else "N"
        if b.dtype.kind == "c" and data.dtype.kind != "c":
            parts = (factored.solve(np.ascontiguousarray(part), trans) for part in (b.real, b.imag))
            found, imaginary = parts
            return found + 1j * imaginary
        return factored.solve(np.asarray(b, data.dtype), trans)


class Triangle(Solver):
    """Substitution in a triangular matrix."""

    __slots__ = ("lower", "unit")

    def __init__(self, lower: bool, unit: bool) -> None:
        self.lower, self.unit = lower, unit

    def solve(self, pattern: Pattern, data: np.ndarray, b: np.ndarray, adjoint: bool) -> np.ndarray:
        from scipy.sparse.linalg import spsolve_triangular

        matrix, lower = pattern.matrix(data), self.lower
        if adjoint:
            matrix, lower = matrix.conj().T.tocsr(), not lower
        return spsolve_triangular(matrix, b, lower=lower, unit_diagonal=self.unit)


def in_precision(*values: np.ndarray) -> list[np.ndarray]:
    """Arrays in the dtype SuperLU computes in: single, double, or complex of these."""
    dtype = np.result_type(*values)
    if dtype.char not in "fdFD":
        dtype = np.result_type(dtype, np.float64)
    real_dtype = np.finfo(dtype).dtype
    return [
        x.astype(np.result_type(x.dtype, real_dtype) if x.dtype.kind != "c" else dtype, copy=False)
        for x in values
    ]


def _solution(xs: Any, pattern: Pattern, by: Solver, adjoint: bool) -> np.ndarray:
    data, b = in_precision(*map(as_array, xs))
    if not b.size:
        return np.zeros(b.shape, np.result_type(data, b))
    return by.solve(pattern, data, b, adjoint)


def _solution_tangent(given, values, out, *, pattern, by, adjoint=False):
    """The same system with ḃ − Ȧ x on the right."""
    (t_x, right), x = given, values[0]
    if t_x is not None:
        moved = sparse_product(conj(t_x) if adjoint else t_x, out, pattern, adjoint)
        right = -moved if right is None else right - moved
    return sparse_solution([x, right], pattern=pattern, by=by, adjoint=adjoint)


def _solutions_along(given, values, out, pattern, by, adjoint=False):
    """Tangents of a solution along many directions: all right sides at once."""
    (t_x, t_y), (x, _) = given, values
    right = t_y
    if t_x is not None:
        moved = [_product(np.conj(t) if adjoint else t, out, pattern, adjoint) for t in t_x]
        right = -np.stack(moved) if right is None else right - np.stack(moved)
    return _as_directions(_solution((x, _as_columns(right)), pattern, by, adjoint), right)


def _dominant_entries(pattern: Pattern) -> Domain:
    """Entries of a matrix whose diagonal dominates."""

    def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        data = rng.choice([-1.0, 1.0], shape) * rng.uniform(0.2, 0.4, shape)
        return data + 2.0 * (pattern.rows == pattern.columns)

    return Domain("dominant_entries", draw)


@primitive(
    _solution,
    name="sparse_solution",
    jvp=_solution_tangent,
    directions=_solutions_along,
    domain=(_dominant_entries(_SQUARE), real),
    samples=[
        call((6,), (3,), pattern=_SQUARE, by=Factors()),
        call((6,), (3, 2), pattern=_SQUARE, by=Factors()),
        call((6,), (3,), pattern=_SQUARE, by=Factors(), adjoint=True),
        call((6,), (3, 0), pattern=_SQUARE, by=Factors()),
    ],
    holomorphic=False,  # the adjoint is not
)
def sparse_solution(g, xs, out, wanted, *, pattern, by, adjoint=False):
    """x from A x = b, or from Aᴴ x = b, for a sparse matrix whose entries are given; `by` solves, and keeps its factors."""
    b_bar = sparse_solution([xs[0], g], pattern=pattern, by=by, adjoint=not adjoint)
    if not wanted[0]:
        return [None, b_bar]
    left, right = (out, conj(b_bar)) if adjoint else (b_bar, conj(out))
    return [-sparse_sampled(left, right, pattern), b_bar]


# ---------------------------------------------------------------------------------------------------- determinants

BLOCK = 64
"""Columns of the identity that are solved for at once."""

LARGEST_INVERSE = 4096
"""Equations up to which the second derivative of a determinant may hold the inverse matrix."""


def _parity(order: np.ndarray) -> int:
    """Whether a permutation takes an odd number of exchanges."""
    seen = np.zeros(len(order), bool)
    odd = 0
    for i in range(len(order)):
        j, length = i, 0
        while not seen[j]:
            seen[j] = True
            j = order[j]
            length += 1
        odd ^= max(length - 1, 0) & 1
    return odd


def _log_det(data: Any, pattern: Pattern, by: Factors) -> Any:
    (data,) = in_precision(as_array(data))
    if not pattern.shape[0]:
        return data.dtype.type(0)
    factored = by.of(pattern, data)
    pivots = factored.U.diagonal()
    if data.dtype.kind != "c":
        return np.sum(np.log(np.abs(pivots)))
    turned = np.pi * (_parity(factored.perm_r) ^ _parity(factored.perm_c))
    return np.sum(np.log(pivots)) + data.dtype.type(1j * turned)


def sign_of_det(data: np.ndarray, pattern: Pattern, by: Factors) -> Any:
    """The sign of the determinant of a real matrix."""
    (data,) = in_precision(data)
    if not pattern.shape[0]:
        return data.dtype.type(1)
    factored = by.of(pattern, data)
    negative = (
        np.count_nonzero(factored.U.diagonal() < 0)
        + _parity(factored.perm_r)
        + _parity(factored.perm_c)
    )
    return data.dtype.type(-1 if negative % 2 else 1)


def _inverse_entries(data: Any, pattern: Pattern, by: Solver) -> np.ndarray:
    (data,) = in_precision(as_array(data))
    n = pattern.shape[0]
    found = np.empty(pattern.nnz, data.dtype)
    for start in range(0, n, BLOCK):  # of the inverse only some columns are there at a time
        stop = min(start + BLOCK, n)
        unit = np.zeros((n, stop - start), data.dtype)
        unit[np.arange(start, stop), np.arange(stop - start)] = 1
        columns = by.solve(pattern, data, unit, False)
        part = slice(pattern.indptr[start], pattern.indptr[stop])
        found[part] = columns[pattern.columns[part], pattern.rows[part] - start]
    return found


@primitive(
    _inverse_entries,
    name="sparse_inverse_entries",
    domain=_dominant_entries(_SQUARE),
    samples=[call((6,), pattern=_SQUARE, by=Factors())],
    holomorphic=False,
)
def sparse_inverse_entries(g, x, *, pattern, by):
    """Entries of the transposed inverse of a sparse matrix, on its own pattern; by columns of the inverse, of which few are held at a time."""
    n = pattern.shape[0]
    if n > LARGEST_INVERSE:
        raise NotDifferentiable(
            f"a second derivative of the determinant of a sparse matrix of {n} rows was asked, but it takes the inverse, which is dense. "
            f"First derivatives hold no dense matrix; second ones are there for up to {LARGEST_INVERSE} rows.",
            name="high-order",
        )
    settings = {"pattern": pattern, "by": by, "adjoint": True}
    across = sparse_solution([x, np.eye(n, dtype=g.dtype)], **settings)
    turned = sparse_solution([x, sparse_product(g, across, pattern, True)], **settings)
    return -turned[pattern.rows, pattern.columns]


@primitive(
    _log_det,
    name="sparse_log_det",
    domain=_dominant_entries(_SQUARE),
    samples=[call((6,), pattern=_SQUARE, by=Factors())],
    holomorphic=False,
    unsupported={"complex": "its imaginary part is a phase, which jumps by 2π"},
)
def sparse_log_det(g, x, *, pattern, by):
    """Logarithm of the determinant of a sparse matrix, of a real one of its absolute value, from its LU factors."""
    return g * conj(sparse_inverse_entries(x, pattern, by))


# ------------------------------------------------------------------------------------------------ a few eigenvectors


class Pairs:
    """Some eigenpairs of a matrix: `of(pattern, data)`, found once for the same entries; `borders` keeps the factors at each.

    `hermitian` says whether left eigenvectors are the right ones.
    """

    __slots__ = ("borders", "find", "held", "hermitian")

    def __init__(self, find: Any, hermitian: bool = True) -> None:
        self.find, self.hermitian = find, hermitian
        self.held: tuple[np.ndarray, Any] | None = None
        self.borders: dict[int, Border] = {}

    def of(self, pattern: Pattern, data: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Eigenvalues, and eigenvectors as columns."""
        held = self.held
        if held is None or held[0].dtype != data.dtype or not np.array_equal(held[0], data):
            self.held = held = data.copy(), self.find(pattern.matrix(data))
        return held[1]

    def solved(self, i: int, x: Any, v: Any, w: Any, right: Any, pattern: Pattern, adjoint: bool = False) -> Any:  # fmt: skip
        """The solution with the matrix of entries x, bordered by its pair i of v and w, for (n + 1) numbers on the right."""
        entries, bordered = _bordered(x, v[:, i], w[i], pattern)
        by = self.borders.setdefault(i, Border())
        return sparse_solution([entries, right], pattern=bordered, by=by, adjoint=adjoint)


class Border(Factors):
    """Factors of a matrix A − w bordered by an eigenvector. Raises NotDifferentiable where w is not simple.

    A second vector v' with A v' = w v' makes solutions as large as 1 / eps; a chain (A − w) v' = v makes the left eigenvector nearly
    orthogonal to v, so that w is known to the root of eps only. Both are measured with the factors, by two solutions.
    """

    __slots__ = ()

    def of(self, pattern: Pattern, data: np.ndarray) -> Any:
        """SuperLU's object for these entries."""
        known = self.held
        try:
            factored = super().of(pattern, data)
        except np.linalg.LinAlgError:
            raise NotDifferentiable(NOT_SIMPLE, name="no-slope-here") from None
        if self.held is known:
            return factored
        n, eps = pattern.shape[0] - 1, np.finfo(data.dtype).eps
        inner = (pattern.rows < n) & (pattern.columns < n)
        size = np.max(np.bincount(pattern.columns[inner], np.abs(data[inner])))
        any_direction = np.random.default_rng(0).standard_normal(n + 1).astype(data.dtype)
        any_direction[n] = 0
        moved = factored.solve(any_direction)[:n]
        left = factored.solve(np.eye(1, n + 1, n, data.dtype)[0], "H")[:n]
        repeated = not np.linalg.norm(moved) * size < 1e-3 / eps  # NaN is no simple one either
        if repeated or not np.linalg.norm(left) < 0.1 / np.sqrt(eps):
            self.held = None
            raise NotDifferentiable(NOT_SIMPLE, name="no-slope-here")
        return factored


NOT_SIMPLE = (
    "the derivative of an eigenvalue or eigenvector was asked at an eigenvalue that is repeated, or equal to another one up to rounding, "
    "where they have none. Use what all pairs decide together, such as slogdet or a trace, or detach() the entries."
)


def _eigenvectors(data: Any, pattern: Pattern, by: Pairs) -> np.ndarray:
    return by.of(pattern, *in_precision(as_array(data)))[1]


def _values_of(x: Any, v: Any, pattern: Pattern, by: Pairs) -> Any:
    """The eigenvalues of which v are the vectors."""
    if by.hermitian:
        return sparse_eigenvalues([x, v], pattern=pattern)
    return sparse_general_eigenvalues(x, pattern=pattern, by=by)


def _bordered(data: Any, v: Any, w: Any, pattern: Pattern) -> tuple[Any, Pattern]:
    """The matrix [[A − w, −v], [vᴴ, 0]], regular where w is a simple eigenvalue: its entries and their pattern."""
    n = pattern.shape[0]
    along, last = np.arange(n), np.full(n, n)
    rows = np.concatenate([pattern.rows, along, along, last])
    columns = np.concatenate([pattern.columns, along, last, along])
    entries = np.concatenate([data + 0 * v[:1], np.broadcast_to(-w, (n,)) + 0 * v, -v, conj(v)])
    made = seams.assembled(rows, columns, entries, (n + 1, n + 1))
    return made.data, made.pattern


def _eigenvectors_tangent(given, values, out, *, pattern, by):
    """Each from (A − w) v̇ − v ẇ = −Ȧ v and vᴴ v̇ = 0."""
    (x,) = values
    w = _values_of(x, out, pattern, by)
    moved = sparse_product(given[0], out, pattern)
    tangents = []
    for i in range(np.shape(out)[1]):
        right = np.concatenate([-moved[:, i], np.zeros(1, moved.dtype)])
        tangents.append(by.solved(i, x, out, w, right, pattern)[:-1])
    return np.stack(tangents, axis=1)


def _demand_no_phase(g: Any, v: Any, w: Any, real_matrix: bool) -> None:
    """Raise where a function depends on the phases of eigenvectors: of a real matrix only conjugate pairs have one, opposite ones."""
    g, v, w = raw(g), raw(v), raw(w)
    along = np.imag(np.sum(np.conj(v) * g, axis=0))
    if real_matrix:
        size = np.sqrt(np.finfo(w.real.dtype).eps) * np.max(np.abs(w))
        partner = np.abs(w[:, None] - np.conj(w)) <= size
        along = np.where(np.abs(np.imag(w)) > size, along - partner @ along, 0)
    _refuse_choice(along, "complex eigenvectors", g)


@primitive(
    _eigenvectors,
    name="sparse_eigenvectors",
    jvp=_eigenvectors_tangent,
    backward="SparseEigenvectors",
    samples=[],
    unsupported={
        "samples": "of a matrix that is not Hermitian it has no meaning: tests/test_sparse.py has its laws"
    },
    holomorphic=False,
)
def sparse_eigenvectors(g, x, out, *, pattern, by):
    """Some eigenvectors of a sparse square matrix as columns, of length 1, each orthogonal to its own change."""
    if (
        type(g) is np.ndarray and not g.any()
    ):  # only eigenvalues were asked for, which may be multiple
        return np.zeros_like(x)
    n = pattern.shape[0]
    w = _values_of(x, out, pattern, by)
    _demand_no_phase(g, out, w, x.dtype.kind != "c")
    total = None
    for i in range(np.shape(out)[1]):
        right = np.concatenate([g[:, i], np.zeros(1, g.dtype)])
        z = by.solved(i, x, out, w, right, pattern, True)
        term = -sparse_sampled(z[:n], conj(out[:, i]), pattern)
        total = term if total is None else total + term
    return total if x.dtype.kind == "c" else np.real(total)


def _eigenvalues(xs: Any, pattern: Pattern) -> np.ndarray:
    data, v = xs
    return np.real(np.sum(np.conj(v) * (pattern.matrix(as_array(data)) @ v), axis=0))


@primitive(
    _eigenvalues,
    name="sparse_eigenvalues",
    backward="SparseEigenvalues",
    samples=[],
    unsupported={
        "samples": "its second operand is the eigenvectors of the first: tests/test_sparse.py has its laws"
    },
    jvp=lambda ts, xs, out, *, pattern: (
        np.zeros_like(out)
        if ts[0] is None
        else np.real(np.sum(conj(xs[1]) * sparse_product(ts[0], xs[1], pattern), axis=0))
    ),
    holomorphic=False,
)
def sparse_eigenvalues(g, xs, *, pattern):
    """Eigenvalues of a sparse Hermitian matrix whose eigenvectors, the second operand, are stationary points: they pass nothing on."""
    data, v = xs
    bar = sparse_sampled(g * v, conj(v), pattern)
    return [bar if data.dtype.kind == "c" else np.real(bar), None]


def left_eigenvectors(x: Any, v: Any, w: Any, pattern: Pattern, by: Pairs) -> Any:
    """Left eigenvectors u of pairs v and w as columns, with vᴴ u = 1 for each: the last columns of the bordered inverses."""
    n = pattern.shape[0]
    last = np.eye(1, n + 1, n, v.dtype)[0]
    found = [-by.solved(i, x, v, w, last, pattern, True)[:n] for i in range(np.shape(v)[1])]
    return np.stack(found, axis=1)


def _general_eigenvalues(data: Any, pattern: Pattern, by: Pairs) -> np.ndarray:
    return by.of(pattern, *in_precision(as_array(data)))[0]


def _both_sides(x: Any, w: Any, pattern: Pattern, by: Pairs) -> tuple[Any, Any]:
    """Right and left eigenvectors, uᴴ v = 1 for each."""
    v = sparse_eigenvectors(x, pattern=pattern, by=by)
    return v, left_eigenvectors(x, v, w, pattern, by)


def _general_eigenvalues_tangent(given, values, out, *, pattern, by):
    """ẇ = uᴴ Ȧ v."""
    v, u = _both_sides(values[0], out, pattern, by)
    return np.sum(conj(u) * sparse_product(given[0], v, pattern), axis=0)


@primitive(
    _general_eigenvalues,
    name="sparse_general_eigenvalues",
    jvp=_general_eigenvalues_tangent,
    backward="SparseGeneralEigenvalues",
    samples=[],
    unsupported={
        "samples": "which pairs are found is a setting: tests/test_sparse.py has its laws"
    },
    holomorphic=False,
)
def sparse_general_eigenvalues(g, x, out, *, pattern, by):
    """Some eigenvalues of a sparse square matrix, with the left and right vectors of each: u g vᴴ on the pattern."""
    v, u = _both_sides(x, out, pattern, by)
    bar = sparse_sampled(u * g, conj(v), pattern)
    return bar if x.dtype.kind == "c" else np.real(bar)


__all__ = [
    "Factors", "Pattern", "Solver", "Triangle", "in_precision", "left_eigenvectors", "sign_of_det", "sparse_eigenvalues",
    "sparse_eigenvectors", "sparse_general_eigenvalues", "sparse_log_det", "sparse_product", "sparse_sampled", "sparse_solution",
]  # fmt: skip
