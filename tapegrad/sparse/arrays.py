"""Sparse matrices whose entries are a tensor: `SparseTensor`, and the functions of `scipy.sparse` that make one.

A `SparseTensor` is a `Pattern` (ops/sparse.py), which is constant, and `data`, the entries on it in the pattern's order: a tensor or an
array. All arithmetic is that of `data`. SciPy moves entries, once for all: it is given the *numbers* of the entries in their places, and
what stands somewhere afterwards says which entry went there.

Invariant: no operation makes a dense matrix but those that say so (`toarray`, the sum with a dense array).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..core.storage import StandIn, kept
from ..core.tensor import Tensor
from ..errors import TraceError, chosen
from ..ops.joining import gathered
from ..ops.linear_systems import stacks
from ..ops.sparse import Pattern, sparse_product

_METHODS = frozenset("sum mean diagonal trace transpose real imag shape ndim size copy".split())
"""Functions of NumPy that are methods here."""


class SparseTensor:
    """A sparse matrix of fixed pattern whose entries may be tracked: a value of `tg.sparse`, as `scipy.sparse.csr_array` is of SciPy.

    `data` holds the entries by rows, in each row by columns; `indices` and `indptr` are those of CSR. It is a pytree, so that transforms
    take it as an argument: a gradient by it is a sparse matrix of the same pattern. Operators mean what they mean for arrays: `*` is
    entry by entry, `@` the product of matrices.

    >>> import numpy as np, tapegrad as tg
    >>> A = tg.sparse.csr_array(np.array([[2.0, 0.0], [1.0, 3.0]]))
    >>> tg.grad(lambda A: np.sum((A @ np.array([1.0, 2.0])) ** 2))(A).toarray()
    array([[ 4.,  0.],
           [14., 28.]])

    What it holds, in SciPy's words:

    >>> A.shape, A.nnz, A.size, A.dtype.name, A.requires_grad
    ((2, 2), 3, 3, 'float64', False)
    >>> A.data, A.indices, A.indptr
    (array([2., 1., 3.]), array([0, 0, 1], dtype=int32), array([0, 1, 3], dtype=int32))
    >>> A.row, A.col, [part.tolist() for part in A.coords]
    (array([0, 1, 1], dtype=int32), array([0, 0, 1], dtype=int32), [[0, 1, 1], [0, 0, 1]])
    >>> A.sum(), A.mean(), A.trace(), A.diagonal(), A.dot(np.ones(2))
    (np.float64(6.0), np.float64(1.5), np.float64(5.0), array([2., 3.]), array([2., 4.]))
    >>> A.T.todense().tolist(), A.transpose().nnz, A.H.nnz, A.conj().nnz, A.conjugate().nnz
    ([[2.0, 1.0], [0.0, 3.0]], 3, 3, 3, 3)
    >>> A.multiply(10).toarray().tolist(), A.power(2).data, A.real.nnz, A.imag.data
    ([[20.0, 0.0], [10.0, 30.0]], array([4., 1., 9.]), 3, array([0., 0., 0.]))
    >>> A.astype(np.float32).dtype.name, A.copy() is A, A.tocsr() is A, A.tocsc() is A, A.tocoo() is A, A.to_scipy().format
    ('float32', False, True, True, True, 'csr')
    >>> A.asformat("csc") is A
    True

    Tracked entries, in PyTorch's words:

    >>> B = A.copy().requires_grad_()
    >>> tg.sum(B @ np.array([1.0, 2.0])).backward()
    >>> B.grad.toarray().tolist(), B.detach().requires_grad
    ([[1.0, 0.0], [1.0, 2.0]], False)
    """

    __slots__ = ("data", "pattern")
    __array_ufunc__ = None  # an operator of NumPy's with one of these is ours
    __array_priority__ = 1000

    ndim = 2
    format = "csr"

    def __init__(self, data: Any, pattern: Pattern) -> None:
        self.data = data
        self.pattern = pattern

    # ------------------------------------------------------------------------------------------------ what it is

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.pattern.shape

    @property
    def dtype(self) -> Any:
        """The dtype of the entries."""
        return self.data.dtype

    @property
    def nnz(self) -> int:
        """How many entries are stored, zeros among them."""
        return self.pattern.nnz

    @property
    def size(self) -> int:
        """How many entries are stored, as in SciPy."""
        return self.pattern.nnz

    @property
    def indices(self) -> np.ndarray:
        """The column of each entry."""
        return self.pattern.indices

    @property
    def indptr(self) -> np.ndarray:
        """Where each row begins among the entries, and the last one ends."""
        return self.pattern.indptr

    @property
    def row(self) -> np.ndarray:
        """The row of each entry."""
        return self.pattern.rows

    @property
    def col(self) -> np.ndarray:
        """The column of each entry."""
        return self.pattern.columns

    @property
    def coords(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows and columns of the entries."""
        return self.pattern.rows, self.pattern.columns

    @property
    def requires_grad(self) -> bool:
        """Whether the entries are tracked."""
        return isinstance(self.data, Tensor) and self.data.requires_grad

    @property
    def grad(self) -> SparseTensor | None:
        """The gradient that `backward()` has accumulated by the entries, as a matrix of the same pattern; None before."""
        found = self.data.grad if isinstance(self.data, Tensor) else None
        return None if found is None else self.with_data(found)

    def __repr__(self) -> str:
        tracked = ", requires_grad=True" if self.requires_grad else ""
        return f"SparseTensor(shape={self.shape}, nnz={self.nnz}, dtype={self.dtype}{tracked})"

    def __len__(self) -> int:
        raise TypeError("the length of a sparse matrix is ambiguous: use A.shape[0] or A.nnz.")

    def __bool__(self) -> bool:
        raise ValueError(
            "the truth value of a sparse matrix is ambiguous: use A.nnz, or look at A.data."
        )

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        # What NumPy makes of things that are no arrays: SciPy's matrices then give way to the operators here.
        made = np.empty((), object)
        made[()] = self
        return made

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function is np.dot and len(args) == 2:
            return args[0] @ args[1]
        method = function.__name__
        if args and args[0] is self and method in _METHODS:
            found = getattr(self, method)
            return found(*args[1:], **kwargs) if callable(found) else found
        raise TypeError(
            f"np.{method} was given a sparse matrix, but it is a function of dense arrays: use A.toarray(), or A.with_data(f(A.data)) for "
            "what acts on each entry and leaves 0 as it is."
        )

    # ------------------------------------------------------------------------------------------------ the same pattern

    def with_data(self, data: Any) -> SparseTensor:
        """A matrix of this pattern with other entries. Raises ValueError where they are not as many.

        >>> import numpy as np, tapegrad as tg
        >>> A = tg.sparse.eye_array(2)
        >>> A.with_data(np.exp(A.data)).toarray().round(3)
        array([[2.718, 0.   ],
               [0.   , 2.718]])
        """
        if np.shape(data) != (self.nnz,):
            raise ValueError(
                f"a sparse matrix with {self.nnz} entries was given data of shape {np.shape(data)}: give one number for each entry."
            )
        return SparseTensor(data, self.pattern)

    def detach(self) -> SparseTensor:
        """The matrix without its history."""
        return self.with_data(self.data.detach() if isinstance(self.data, Tensor) else self.data)

    def requires_grad_(self, requires_grad: bool = True) -> SparseTensor:
        """Track the entries from now on; returns the matrix."""
        if not isinstance(self.data, Tensor):
            from ..core.tensor import tensor

            self.data = tensor(self.data)
        self.data.requires_grad_(requires_grad)
        return self

    def astype(self, dtype: Any) -> SparseTensor:
        """The entries in another dtype."""
        return self.with_data(self.data.astype(dtype))

    def copy(self) -> SparseTensor:
        """The same matrix in memory of its own."""
        return self.with_data(self.data.copy())

    def conj(self) -> SparseTensor:
        """Complex conjugate."""
        return self.with_data(np.conj(self.data))

    conjugate = conj

    @property
    def real(self) -> SparseTensor:
        """Real parts."""
        return self.with_data(np.real(self.data))

    @property
    def imag(self) -> SparseTensor:
        """Imaginary parts."""
        return self.with_data(np.imag(self.data))

    def power(self, n: Any) -> SparseTensor:
        """Each entry to the power n, which is positive, so that 0 stays 0."""
        if not np.ndim(n) == 0 or not n > 0:
            raise ValueError(
                f"power {n!r} of a sparse matrix was asked, which is not sparse: the exponent is a positive number."
            )
        return self.with_data(self.data**n)

    def __pow__(self, n: Any) -> SparseTensor:
        return self.power(n)

    def __neg__(self) -> SparseTensor:
        return self.with_data(-self.data)

    def __pos__(self) -> SparseTensor:
        return self

    def __abs__(self) -> SparseTensor:
        return self.with_data(np.abs(self.data))

    # ------------------------------------------------------------------------------------------------ moved entries

    @property
    def T(self) -> SparseTensor:
        """The transpose."""
        there, order = self.pattern.transposed()
        return SparseTensor(_picked(self.data, order), there)

    def transpose(self, axes: Any = None, copy: bool = False) -> SparseTensor:
        """The transpose."""
        return self.T

    @property
    def H(self) -> SparseTensor:
        """The conjugate transpose."""
        return self.T.conj()

    def tocsr(self, copy: bool = False) -> SparseTensor:
        """The matrix itself, whose layout is that of CSR."""
        return self

    tocsc = tocoo = tocsr

    def asformat(self, format: str | None, copy: bool = False) -> SparseTensor:
        """The matrix itself, in whose layout all of SciPy's formats are held. Raises ValueError for a name that is none of them."""
        if format not in (None, "csr", "csc", "coo", "bsr", "dia", "dok", "lil"):
            raise ValueError(
                f"a sparse matrix was asked in the format {format!r}: SciPy has csr, csc, coo, bsr, dia, dok and lil."
            )
        return self

    def to_scipy(self) -> Any:
        """SciPy's `csr_array` of the values. Raises GradientLost where they are tracked: detach() first."""
        return self.pattern.matrix(np.array(self.data))

    def toarray(self) -> Any:
        """The dense matrix."""
        from ..ops.indexing import scatter

        return scatter(self.data, (self.pattern.rows, self.pattern.columns), self.shape)

    todense = toarray

    def __getitem__(self, index: Any) -> Any:
        picked = _numbered(self.pattern)[index]
        if isinstance(picked, np.generic | int):
            return self.data[int(picked) - 1] if picked else np.zeros((), self.dtype)[()]
        if picked.ndim == 1:
            numbers = picked.tocoo()
            from ..ops.indexing import scatter

            return scatter(_picked(self.data, numbers.data - 1), (numbers.coords[0],), picked.shape)
        return _placed(picked, self.data)

    def diagonal(self, k: int = 0) -> Any:
        """The entries of a diagonal, as a dense vector."""
        m, n = self.shape
        k = operator.index(k)
        length = max(0, min(m + min(k, 0), n - max(k, 0)))
        from ..ops.indexing import scatter

        rows, columns = self.pattern.rows, self.pattern.columns
        there = np.flatnonzero(columns.astype(np.int64) - rows == k)
        return scatter(_picked(self.data, there), (rows[there] + min(k, 0),), (length,))

    def trace(self, offset: int = 0) -> Any:
        """The sum of a diagonal."""
        return np.sum(self.diagonal(offset))

    # ------------------------------------------------------------------------------------------------ sums

    def sum(self, axis: Any = None, dtype: Any = None, out: None = None) -> Any:
        """The sum of all entries, or, as a dense vector, of each column (axis 0) or row (axis 1); as SciPy's, without an `out`."""
        if out is not None:
            raise TypeError(
                "the sum of a sparse matrix was asked with out=, but sums are values of their own: assign the result."
            )
        if dtype is not None:
            return self.astype(dtype).sum(axis)
        if axis is None:
            return np.sum(self.data)
        if axis not in (0, 1, -1, -2):
            raise ValueError(
                f"a sum along axis {axis!r} was asked, but a matrix has the axes 0 and 1."
            )
        ones = np.ones(self.shape[axis], np.finfo(self.dtype).dtype)
        return sparse_product(self.data, ones, self.pattern, axis % 2 == 0)

    def mean(self, axis: Any = None) -> Any:
        """The mean over all places, those without an entry included."""
        return self.sum(axis) / (math.prod(self.shape) if axis is None else self.shape[axis])

    # ------------------------------------------------------------------------------------------------ arithmetic

    def __add__(self, other: Any) -> Any:
        if is_sparse(other):
            return _sum_of(self, as_sparse(other))
        return self._with_dense(other, "+")

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        if is_sparse(other):
            return _sum_of(self, -as_sparse(other))
        return self._with_dense(-gathered(other), "-")

    def __rsub__(self, other: Any) -> Any:
        return (-self) + other

    def _with_dense(self, other: Any, sign: str) -> Any:
        other = gathered(other)
        if np.ndim(other) == 0:
            if not isinstance(other, Tensor) and other == 0:
                return self
            raise TypeError(
                f"a sparse matrix {sign} a number was asked, which has no zeros left: write A.toarray() {sign} number for the dense one, "
                "or A.with_data(...) to change the entries that are there."
            )
        return self.toarray() + other

    def multiply(self, other: Any) -> SparseTensor:
        """Product entry by entry with a number, a matrix that is sparse too, or an array that is broadcast to the shape."""
        if is_sparse(other):
            return _product_by_entries(self, as_sparse(other))
        other = gathered(other)
        return self.with_data(self.data * self._at_places(other))

    def _at_places(self, other: Any) -> Any:
        """The entries of something dense, broadcast to the shape, that stand at the places of the pattern."""
        shape = np.shape(other)
        if not shape:
            return other
        if np.broadcast_shapes(shape, self.shape) != self.shape:
            raise ValueError(
                f"a sparse matrix of shape {self.shape} met an array of shape {shape} entry by entry: the array is to be of the matrix's "
                "shape, or broadcast to it."
            )
        rows, columns = self.pattern.rows, self.pattern.columns
        if len(shape) == 1:
            return other[columns if shape[0] > 1 else np.zeros_like(columns)]
        return other[
            rows if shape[0] > 1 else np.zeros_like(rows),
            columns if shape[1] > 1 else np.zeros_like(columns),
        ]

    def __mul__(self, other: Any) -> SparseTensor:
        return self.multiply(other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> SparseTensor:
        if is_sparse(other):
            raise TypeError(
                "a sparse matrix was divided by a sparse one, which is 0/0 at most places: divide the data of two matrices of one pattern."
            )
        return self.with_data(self.data / self._at_places(gathered(other)))

    def __matmul__(self, other: Any) -> Any:
        if is_sparse(other):
            return _product_of(self, as_sparse(other))
        return product(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        if is_sparse(other):
            return _product_of(as_sparse(other), self)
        return product_from_left(other, self)

    def dot(self, other: Any) -> Any:
        """A @ other."""
        return self @ other


# --------------------------------------------------------------------------------------------------- entries by number


def _numbered(pattern: Pattern) -> Any:
    """SciPy's matrix of this pattern whose entries are their own numbers, from 1 on."""
    return pattern.matrix(np.arange(1, pattern.nnz + 1))


def _ones(pattern: Pattern) -> Any:
    return pattern.matrix(np.ones(pattern.nnz, np.int64))


def _canonical(matrix: Any) -> Any:
    """SciPy's matrix as CSR, entries in order and none twice."""
    made = matrix.tocsr()
    made.sum_duplicates()
    return made


def _pattern_of(matrix: Any) -> Pattern:
    """The pattern of SciPy's CSR matrix, which is canonical."""
    return Pattern(matrix.indptr, matrix.indices, matrix.shape)


def _picked(data: Any, index: np.ndarray) -> Any:
    """Entries by their numbers; all of them in order are the data themselves."""
    n = len(index)
    if n == np.shape(data)[0] and np.array_equal(index, np.arange(n)):
        return data
    return data[np.asarray(index, np.intp)]


def _placed(numbers: Any, data: Any) -> SparseTensor:
    """What SciPy made of a matrix of numbers, with the entries in their place."""
    matrix = _canonical(numbers)
    return SparseTensor(_picked(data, matrix.data - 1), _pattern_of(matrix))


def assembled(
    rows: np.ndarray, columns: np.ndarray, data: Any, shape: Sequence[int]
) -> SparseTensor:
    """The matrix with these entries at these places; entries at one place add up."""
    m, n = int(shape[0]), int(shape[1])
    rows, columns = np.asarray(rows), np.asarray(columns)
    keys = rows.astype(np.int64) * max(n, 1) + columns
    if not np.all(keys[1:] > keys[:-1]):
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        first = np.ones(len(keys), bool)
        first[1:] = keys[1:] != keys[:-1]
        if first.all():
            data = _picked(data, order)
        else:
            starts = np.append(np.flatnonzero(first), len(keys))
            adding = Pattern(starts, order, (len(starts) - 1, len(keys)))
            data = sparse_product(np.ones(len(keys), np.finfo(data.dtype).dtype), data, adding)
            keys = keys[first]
    index = np.int32 if max(m, n, len(keys)) < 2**31 else np.int64
    rows, columns = np.divmod(keys, max(n, 1))
    indptr = np.zeros(m + 1, index)
    np.cumsum(np.bincount(rows, minlength=m), out=indptr[1:])
    return SparseTensor(data, Pattern(indptr, columns.astype(index), (m, n)))


def _sum_of(a: SparseTensor, b: SparseTensor) -> SparseTensor:
    from ..ops.indexing import scatter

    _demand_shape(a, b, "+")
    if a.pattern == b.pattern:
        return SparseTensor(a.data + b.data, a.pattern)
    ones = _ones(a.pattern), _ones(b.pattern)
    both = _pattern_of(_canonical(ones[0] + ones[1]))
    numbers = _numbered(both)
    parts = [
        scatter(x.data, (_canonical(numbers * one).data - 1,), (both.nnz,))
        for x, one in zip((a, b), ones, strict=True)
    ]
    return SparseTensor(parts[0] + parts[1], both)


def _product_by_entries(a: SparseTensor, b: SparseTensor) -> SparseTensor:
    if a.pattern == b.pattern:
        return SparseTensor(a.data * b.data, a.pattern)
    _demand_shape(a, b, "*")
    left = _canonical(_numbered(a.pattern) * _ones(b.pattern))
    right = _canonical(_ones(a.pattern) * _numbered(b.pattern))
    return SparseTensor(
        _picked(a.data, left.data - 1) * _picked(b.data, right.data - 1), _pattern_of(left)
    )


def _demand_shape(a: SparseTensor, b: SparseTensor, sign: str) -> None:
    if a.shape != b.shape:
        raise ValueError(
            f"A {sign} B was asked of sparse matrices of shapes {a.shape} and {b.shape}: they must agree."
        )


def _product_of(a: SparseTensor, b: SparseTensor) -> SparseTensor:
    """A B. Each entry of A meets those of a row of B; products that come to one place add up."""
    if a.shape[1] != b.shape[0]:
        raise ValueError(
            f"A @ B was asked of sparse matrices of shapes {a.shape} and {b.shape}: inner lengths must agree."
        )
    lengths = np.diff(b.indptr)[a.pattern.columns].astype(np.int64)
    left = np.repeat(np.arange(a.nnz), lengths)
    ends = np.cumsum(lengths)
    within = np.arange(len(left)) - np.repeat(ends - lengths, lengths)
    right = b.indptr[a.pattern.columns][left] + within
    data = _picked(a.data, left) * _picked(b.data, right)
    return assembled(a.pattern.rows[left], b.pattern.columns[right], data, (a.shape[0], b.shape[1]))


# ------------------------------------------------------------------------------------------------ products with vectors


def is_sparse(x: Any) -> bool:
    """Whether it is a sparse matrix, ours or SciPy's."""
    return isinstance(x, SparseTensor) or is_scipys(x)


def to_scipy(x: Any) -> Any:
    """A sparse matrix, ours or SciPy's, as SciPy's, not tracked."""
    return x.detach().to_scipy() if isinstance(x, SparseTensor) else x


def is_scipys(x: Any) -> bool:
    """Whether it is a sparse array or matrix of SciPy's."""
    return type(x).__module__.startswith("scipy.sparse.") and hasattr(x, "tocsr")


def as_sparse(x: Any, asker: str = "a function of tg.sparse") -> SparseTensor:
    """A sparse matrix of SciPy's or ours as ours. Raises TypeError for anything else, which is dense."""
    if isinstance(x, SparseTensor):
        return x
    if not is_scipys(x):
        raise TypeError(
            f"{asker} was given {type(x).__name__!r} for a sparse matrix: make one with tg.sparse.csr_array, or use NumPy's functions "
            "on dense arrays."
        )
    if x.ndim != 2:
        raise ValueError(
            f"{asker} was given a sparse array of shape {x.shape}, but sparse tensors are matrices: reshape it to two axes."
        )
    matrix = x.tocsr()
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    data = matrix.data if matrix.dtype.kind in "fc" else matrix.data.astype(float)
    return SparseTensor(data, Pattern(kept(matrix.indptr), kept(matrix.indices), matrix.shape))


def _vectors(x: Any, length: int, what: str) -> Any:
    """A dense operand of a product, as a tensor or array of one or two axes."""
    (x,) = stacks(x)
    if np.ndim(x) not in (1, 2) or np.shape(x)[0] != length:
        raise ValueError(
            f"a product of {what} was asked with an array of shape {np.shape(x)}: give a vector of length {length}, or a matrix whose "
            "columns are such vectors."
        )
    return x


def product(a: Any, x: Any) -> Any:
    """A x, where A is sparse and x a dense vector or matrix."""
    if (
        is_scipys(a) and a.format == "csc"
    ):  # which is, without a copy, the transpose of a CSR matrix
        return _by_transpose(a.T, x, a)
    a = as_sparse(a)
    x = _vectors(x, a.shape[1], f"a sparse matrix of shape {a.shape}")
    return sparse_product(a.data, x, a.pattern)


def _by_transpose(b: Any, x: Any, a: Any) -> Any:
    b = as_sparse(b)
    x = _vectors(x, b.shape[0], f"a sparse matrix of shape {a.shape}")
    return sparse_product(b.data, x, b.pattern, True)


def product_from_left(x: Any, a: Any) -> Any:
    """x A, where A is sparse and x a dense vector or matrix."""
    (x,) = stacks(x)
    if np.ndim(x) == 2:
        return np.transpose(product_from_left_of_vectors(np.transpose(x), a))
    return product_from_left_of_vectors(x, a)


def product_from_left_of_vectors(x: Any, a: Any) -> Any:
    """Aᵀ x."""
    if is_scipys(a):
        return product(a.T, x)
    return _by_transpose(a, x, a)


def met(name: str, x: Any, y: Any) -> Any:
    """An operator of a tensor and a sparse matrix of SciPy's, which stands on either side."""
    left = is_scipys(x)
    matrix, dense = (x, y) if left else (y, x)
    is_product_of_matrices = name == "matmul" or (
        name == "multiply" and not _is_array(matrix) and np.ndim(dense)
    )
    if is_product_of_matrices:
        return product(matrix, dense) if left else product_from_left(dense, matrix)
    ours = as_sparse(matrix)
    if name == "multiply":
        return ours.multiply(dense)
    if name == "add":
        return ours + dense
    if name == "subtract":
        return ours - dense if left else dense - ours
    if name == "divide" and left:
        return ours / dense
    return NotImplemented


def _is_array(matrix: Any) -> bool:
    from scipy.sparse import sparray

    return isinstance(matrix, sparray)


# ------------------------------------------------------------------------------------------------ making matrices


def _shape(shape: Any) -> tuple[int, int]:
    try:
        m, n = (operator.index(k) for k in shape)
    except (TypeError, ValueError):
        raise TypeError(
            f"a sparse matrix of shape {shape!r} was asked: a shape is two whole numbers, rows and columns."
        ) from None
    return m, n


def _entries(data: Any) -> Any:
    """Entries as a tensor or an array of real or complex numbers."""
    data = gathered(data)
    if not isinstance(data, Tensor | StandIn):
        data = np.asarray(data)
    return data if data.dtype.kind in "fc" else data.astype(float)


def _whole(indices: Any, name: str) -> np.ndarray:
    if isinstance(getattr(indices, "_value", indices), StandIn):
        raise TraceError(
            f"{name} of a sparse matrix came from an argument of a function that tg.compile traces, but a pattern is a constant of a "
            "program. Make the pattern outside, or mark the argument as static (static_argnums).",
            name="outside-program",
        )
    found = np.asarray(indices.detach() if isinstance(indices, Tensor) else indices)
    if found.size and found.dtype.kind not in "iu":
        raise TypeError(
            f"{name} of a sparse matrix were given in dtype {found.dtype}: give whole numbers."
        )
    return found.astype(np.int64)


def _compressed(arg: Any, shape: Any, dtype: Any, by_rows: bool) -> SparseTensor:
    """A csr_array or csc_array from (data, indices, indptr), checked as SciPy does, or from what SciPy takes else."""
    name = "csr_array" if by_rows else "csc_array"
    if not (isinstance(arg, tuple) and len(arg) == 3):
        return _of_anything(arg, shape, dtype, name)
    data, indices, indptr = _entries(arg[0]), _whole(arg[1], "indices"), _whole(arg[2], "indptr")
    if (
        np.ndim(data) != 1
        or np.shape(data) != indices.shape
        or not len(indptr)
        or indptr[0] != 0
        or indptr[-1] != len(indices)
    ):
        raise ValueError(
            f"{name} was given {np.shape(data)} entries, indices of shape {indices.shape} and indptr from {indptr[:1]} to {indptr[-1:]}: "
            "there is an index for each entry, and indptr goes from 0 to their number."
        )
    if np.any(np.diff(indptr) < 0):
        raise ValueError(
            f"{name} was given an indptr that goes down: it says where each row begins."
        )
    if shape is None:
        other = int(indices.max()) + 1 if len(indices) else 0
        shape = (len(indptr) - 1, other) if by_rows else (other, len(indptr) - 1)
    m, n = _shape(shape)
    major, minor = (m, n) if by_rows else (n, m)
    if len(indptr) != major + 1:
        raise ValueError(
            f"{name} was given an indptr of length {len(indptr)} for shape {(m, n)}: it has one more than there are rows."
        )
    _demand_inside(indices, minor, name)
    others = np.repeat(np.arange(major), np.diff(indptr))
    rows, columns = (others, indices) if by_rows else (indices, others)
    return _in(assembled(rows, columns, data, (m, n)), dtype)


def _demand_inside(indices: np.ndarray, n: int, name: str) -> None:
    if len(indices) and (indices.min() < 0 or indices.max() >= n):
        raise ValueError(
            f"{name} was given indices from {indices.min()} to {indices.max()}, but there are places from 0 to {n - 1}."
        )


def _in(a: SparseTensor, dtype: Any) -> SparseTensor:
    return a if dtype is None or a.dtype == np.dtype(dtype) else a.astype(dtype)


def _of_anything(arg: Any, shape: Any, dtype: Any, name: str) -> SparseTensor:
    """A matrix from a sparse one, a dense one, a shape, or (data, (rows, columns))."""
    if is_sparse(arg):
        return _in(as_sparse(arg), dtype)
    if isinstance(arg, tuple) and len(arg) == 2:
        if isinstance(arg[1], tuple | list) and len(arg[1]) == 2 and not np.isscalar(arg[0]):
            data, rows, columns = (
                _entries(arg[0]),
                _whole(arg[1][0], "rows"),
                _whole(arg[1][1], "columns"),
            )
            if np.ndim(data) != 1 or not np.shape(data) == rows.shape == columns.shape:
                raise ValueError(
                    f"{name} was given entries of shape {np.shape(data)} for rows and columns of shapes {rows.shape}, {columns.shape}: "
                    "there is a row and a column for each entry."
                )
            if shape is None:
                shape = tuple(int(i.max()) + 1 if len(i) else 0 for i in (rows, columns))
            m, n = _shape(shape)
            _demand_inside(rows, m, name)
            _demand_inside(columns, n, name)
            return _in(assembled(rows, columns, data, (m, n)), dtype)
        if all(isinstance(k, int | np.integer) for k in arg):
            none = np.zeros(0, int)
            return assembled(none, none, np.zeros(0, dtype or float), arg)
    dense = _entries(arg)
    if np.ndim(dense) != 2:
        raise ValueError(
            f"{name} was given an array of shape {np.shape(dense)}: a sparse matrix has two axes."
        )
    raw = dense.detach() if isinstance(dense, Tensor) else dense
    if isinstance(getattr(raw, "_value", raw), StandIn):
        raise TraceError(
            f"{name} was given a dense matrix inside a function that tg.compile traces, where no entry is known to be zero. Make the "
            "pattern outside, and give (data, indices, indptr).",
            name="outside-program",
        )
    rows, columns = np.nonzero(np.asarray(raw))
    return _in(assembled(rows, columns, dense[rows, columns], np.shape(dense)), dtype)


def csr_array(arg1: Any, shape: Any = None, dtype: Any = None) -> SparseTensor:
    """A sparse matrix from `(data, indices, indptr)`, `(data, (rows, columns))`, a shape, or a matrix, sparse or dense; as SciPy's.

    `data` may be tracked, the pattern is constant. Entries are put in order, and those at one place add up. Of a dense matrix the
    entries that are not 0 now make the pattern. Raises ValueError where indices lie outside, or lengths differ.

    >>> import numpy as np, tapegrad as tg
    >>> def energy(k):
    ...     A = tg.sparse.csr_array((k, [0, 1, 1], [0, 1, 3]), shape=(2, 2))
    ...     return np.sum(A @ np.array([1.0, 2.0]))
    >>> tg.grad(energy)(np.array([3.0, 4.0, 5.0]))
    array([1., 2., 2.])
    """
    return _compressed(arg1, shape, dtype, True)


def csc_array(arg1: Any, shape: Any = None, dtype: Any = None) -> SparseTensor:
    """A sparse matrix from `(data, indices, indptr)` by columns, or anything that `csr_array` takes; it is kept by rows.

    >>> import tapegrad as tg
    >>> tg.sparse.csc_array(([1.0, 2.0], [1, 0], [0, 1, 2])).toarray()
    array([[0., 2.],
           [1., 0.]])
    """
    return _compressed(arg1, shape, dtype, False)


def coo_array(arg1: Any, shape: Any = None, dtype: Any = None) -> SparseTensor:
    """A sparse matrix from `(data, (rows, columns))`, or anything that `csr_array` takes; entries at one place add up.

    >>> import tapegrad as tg
    >>> tg.sparse.coo_array((tg.tensor([1.0, 2.0]), ([0, 1], [1, 0])), shape=(2, 2)).toarray()
    tensor([[0., 1.],
            [2., 0.]])
    """
    return _of_anything(arg1, shape, dtype, "coo_array")


def dia_array(arg1: Any, shape: Any = None, dtype: Any = None) -> SparseTensor:
    """A sparse matrix from `(data, offsets)`, a row of data for each diagonal, data[k, j] in column j, as in SciPy; or a sparse matrix.

    >>> import tapegrad as tg
    >>> tg.sparse.dia_array(([[1.0, 2.0]], [0]), shape=(2, 2)).toarray()
    array([[1., 0.],
           [0., 2.]])
    """
    if not (isinstance(arg1, tuple) and len(arg1) == 2 and shape is not None):
        return _of_anything(arg1, shape, dtype, "dia_array")
    data, offsets = _entries(arg1[0]), np.atleast_1d(_whole(arg1[1], "offsets"))
    m, n = _shape(shape)
    if np.ndim(data) == 1:
        data = np.reshape(data, (1, -1))
    if np.ndim(data) != 2 or np.shape(data)[0] != len(offsets) or len(set(offsets)) != len(offsets):
        raise ValueError(
            f"dia_array was given data of shape {np.shape(data)} at offsets {offsets.tolist()}: give a row for each, and none twice."
        )
    k, columns = np.nonzero(np.ones(np.shape(data), bool))
    rows = columns - offsets[k]
    inside = (rows >= 0) & (rows < m) & (columns < n)
    rows, columns, k = rows[inside], columns[inside], k[inside]
    return _in(assembled(rows, columns, data[k, columns], (m, n)), dtype)


def bsr_array(arg1: Any, shape: Any = None, dtype: Any = None) -> SparseTensor:
    """A sparse matrix from `(data, indices, indptr)`, with blocks of shape data.shape[1:] as in SciPy; or a sparse matrix."""
    if not (isinstance(arg1, tuple) and len(arg1) == 3):
        return _of_anything(arg1, shape, dtype, "bsr_array")
    data, indices, indptr = _entries(arg1[0]), _whole(arg1[1], "indices"), _whole(arg1[2], "indptr")
    if np.ndim(data) != 3 or len(indices) != np.shape(data)[0]:
        raise ValueError(
            f"bsr_array was given data of shape {np.shape(data)} for {len(indices)} blocks: it has a matrix for each."
        )
    _, r, c = np.shape(data)
    above = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    rows = (above * r)[:, None, None] + np.arange(r)[:, None] + np.zeros(c, int)
    columns = (indices * c)[:, None, None] + np.zeros((r, 1), int) + np.arange(c)
    m, n = (
        _shape(shape)
        if shape is not None
        else ((len(indptr) - 1) * r, (int(indices.max(initial=-1)) + 1) * c)
    )
    if len(indptr) != m // r + 1 or m % r or n % c:
        raise ValueError(
            f"bsr_array was given blocks of shape {(r, c)} and an indptr of length {len(indptr)} for shape {(m, n)}: they must fit."
        )
    _demand_inside(indices, n // c, "bsr_array")
    return _in(assembled(rows.ravel(), columns.ravel(), np.reshape(data, (-1,)), (m, n)), dtype)


def _demand_format(format: str | None, asker: str) -> None:
    """Raise ValueError unless `format` is a name that SciPy's matrices have."""
    if format is not None:
        chosen(
            dict.fromkeys(("bsr", "coo", "csc", "csr", "dia", "dok", "lil")),
            format,
            asker,
            "format",
        )


def diags_array(
    diagonals: Any,
    *,
    offsets: Any = 0,
    shape: Any = None,
    format: str | None = None,
    dtype: Any = None,
) -> SparseTensor:
    """The matrix with these diagonals, at these offsets above the main one; a number fills its diagonal, as in SciPy.

    `format`, here and in its neighbours, is SciPy's: a SparseTensor lies in memory in one way, so no result depends on it.

    >>> import numpy as np, tapegrad as tg
    >>> tg.sparse.diags_array([-1.0, np.array([2.0, 3.0]), -1.0], offsets=[-1, 0, 1], shape=(2, 2)).toarray()
    array([[ 2., -1.],
           [-1.,  3.]])
    """
    _demand_format(format, "diags_array")
    if np.ndim(offsets) == 0:
        offsets = [offsets]
        first = diagonals[0] if isinstance(diagonals, list | tuple) and diagonals else diagonals
        diagonals = [
            first if np.ndim(first) == 1 and isinstance(diagonals, list | tuple) else diagonals
        ]
    lines = [_entries(d) for d in diagonals]
    offsets = [operator.index(k) for k in offsets]
    if len(lines) != len(offsets) or len(set(offsets)) != len(offsets):
        raise ValueError(
            f"diags_array was given {len(lines)} diagonals for the offsets {offsets}: there is one for each, and none twice."
        )
    lines = [np.reshape(d, (1,)) if np.ndim(d) == 0 else d for d in lines]
    if shape is None:
        n = np.shape(lines[0])[0] + abs(offsets[0])
        shape = (n, n)
    m, n = _shape(shape)
    rows, columns, data = [], [], []
    for d, k in zip(lines, offsets, strict=True):
        length = min(m + min(k, 0), n - max(k, 0))
        if length < 0 or np.ndim(d) != 1 or np.shape(d)[0] not in (1, length):
            raise ValueError(
                f"diags_array was given a diagonal of shape {np.shape(d)} at offset {k}, where a matrix of shape {(m, n)} has "
                f"{max(length, 0)} places."
            )
        steps = np.arange(length)
        rows.append(steps - min(k, 0))
        columns.append(steps + max(k, 0))
        data.append(d if np.shape(d)[0] == length else np.broadcast_to(d, (length,)))
    if not data:
        return assembled(np.zeros(0, int), np.zeros(0, int), np.zeros(0), (m, n))
    return _in(
        assembled(np.concatenate(rows), np.concatenate(columns), _joined(data), (m, n)), dtype
    )


def _joined(parts: Sequence[Any]) -> Any:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def eye_array(
    m: int, n: int | None = None, *, k: int = 0, dtype: Any = float, format: str | None = None
) -> SparseTensor:
    """Ones on a diagonal.

    >>> import tapegrad as tg
    >>> tg.sparse.eye_array(2).shape
    (2, 2)
    """
    _demand_format(format, "eye_array")
    n = m if n is None else n
    steps = np.arange(max(0, min(m + min(k, 0), n - max(k, 0))))
    return assembled(steps - min(k, 0), steps + max(k, 0), np.ones(len(steps), dtype), (m, n))


def kron(A: Any, B: Any, format: str | None = None) -> SparseTensor:
    """Kronecker product of two sparse matrices (or of a dense one and a sparse one).

    >>> import numpy as np, tapegrad as tg
    >>> a = tg.sparse.csr_array(np.eye(2))
    >>> tg.sparse.kron(a, np.ones((1, 2))).toarray()
    array([[1., 1., 0., 0.],
           [0., 0., 1., 1.]])
    """
    _demand_format(format, "kron")
    a, b = (x if isinstance(x, SparseTensor) else csr_array(x) for x in (A, B))
    left = np.repeat(np.arange(a.nnz), b.nnz)
    right = np.tile(np.arange(b.nnz), a.nnz)
    rows = a.pattern.rows[left].astype(np.int64) * b.shape[0] + b.pattern.rows[right]
    columns = a.pattern.columns[left].astype(np.int64) * b.shape[1] + b.pattern.columns[right]
    data = _picked(a.data, left) * _picked(b.data, right)
    return assembled(rows, columns, data, (a.shape[0] * b.shape[0], a.shape[1] * b.shape[1]))


def block_array(
    blocks: Sequence[Sequence[Any]], *, format: str | None = None, dtype: Any = None
) -> SparseTensor:
    """The matrix made of blocks: a list of rows of sparse or dense matrices, None where there is nothing.

    >>> import tapegrad as tg
    >>> tg.sparse.block_array([[tg.sparse.eye_array(1), None], [None, 2 * tg.sparse.eye_array(1)]]).toarray()
    array([[1., 0.],
           [0., 2.]])
    """
    _demand_format(format, "block_array")
    table = [
        [None if x is None else x if isinstance(x, SparseTensor) else csr_array(x) for x in row]
        for row in blocks
    ]
    if not table or not table[0] or len({len(row) for row in table}) > 1:
        raise ValueError(
            "block_array was given rows of unequal lengths, or none: give a list of rows of as many blocks."
        )
    heights = [
        _agreed([x.shape[0] for x in row if x is not None], f"row {i}")
        for i, row in enumerate(table)
    ]
    widths = [
        _agreed([row[j].shape[1] for row in table if row[j] is not None], f"column {j}")
        for j in range(len(table[0]))
    ]
    rows, columns, data = [], [], []
    for i, row in enumerate(table):
        for j, x in enumerate(row):
            if x is not None:
                rows.append(x.pattern.rows.astype(np.int64) + sum(heights[:i]))
                columns.append(x.pattern.columns.astype(np.int64) + sum(widths[:j]))
                data.append(x.data)
    return _in(
        assembled(
            np.concatenate(rows),
            np.concatenate(columns),
            _joined(data),
            (sum(heights), sum(widths)),
        ),
        dtype,
    )


def _agreed(lengths: Sequence[int], what: str) -> int:
    if len(set(lengths)) != 1:
        raise ValueError(
            f"block_array was given {'no' if not lengths else 'unequal'} blocks in {what}{f' (lengths {lengths})' if lengths else ''}: "
            "give at least one, all of one length."
        )
    return lengths[0]


def hstack(blocks: Sequence[Any], format: str | None = None, dtype: Any = None) -> SparseTensor:
    """Sparse matrices side by side.

    >>> import numpy as np, tapegrad as tg
    >>> a = tg.sparse.csr_array(np.eye(2))
    >>> tg.sparse.hstack([a, a]).shape
    (2, 4)
    """
    return block_array([list(blocks)], format=format, dtype=dtype)


def vstack(blocks: Sequence[Any], format: str | None = None, dtype: Any = None) -> SparseTensor:
    """Sparse matrices one below the other.

    >>> import numpy as np, tapegrad as tg
    >>> a = tg.sparse.csr_array(np.eye(2))
    >>> tg.sparse.vstack([a, a]).shape
    (4, 2)
    """
    return block_array([[x] for x in blocks], format=format, dtype=dtype)


def block_diag(mats: Sequence[Any], format: str | None = None, dtype: Any = None) -> SparseTensor:
    """Sparse or dense matrices along the diagonal.

    >>> import numpy as np, tapegrad as tg
    >>> tg.sparse.block_diag([np.eye(1), 2 * np.eye(1)]).toarray()
    array([[1., 0.],
           [0., 2.]])
    """
    mats = [np.reshape(x, (1, -1)) if np.ndim(x) < 2 else x for x in mats]
    return block_array(
        [[x if i == j else None for j in range(len(mats))] for i, x in enumerate(mats)],
        format=format,
        dtype=dtype,
    )


def tril(A: Any, k: int = 0, format: str | None = None) -> SparseTensor:
    """The entries on and below a diagonal.

    >>> import numpy as np, tapegrad as tg
    >>> tg.sparse.tril(tg.sparse.csr_array(np.ones((2, 2)))).toarray()
    array([[1., 0.],
           [1., 1.]])
    """
    _demand_format(format, "tril")
    return _those(as_sparse(A, "tril"), lambda rows, columns: columns - rows <= k)


def triu(A: Any, k: int = 0, format: str | None = None) -> SparseTensor:
    """The entries on and above a diagonal.

    >>> import numpy as np, tapegrad as tg
    >>> tg.sparse.triu(tg.sparse.csr_array(np.ones((2, 2)))).toarray()
    array([[1., 1.],
           [0., 1.]])
    """
    _demand_format(format, "triu")
    return _those(as_sparse(A, "triu"), lambda rows, columns: columns - rows >= k)


def _those(a: SparseTensor, chosen: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> SparseTensor:
    rows, columns = (x.astype(np.int64) for x in a.coords)
    there = np.flatnonzero(chosen(rows, columns))
    return assembled(rows[there], columns[there], _picked(a.data, there), a.shape)


def issparse(x: Any) -> bool:
    """Whether it is a sparse matrix, ours or SciPy's.

    >>> import numpy as np, tapegrad as tg
    >>> tg.sparse.issparse(tg.sparse.csr_array(np.eye(2))), tg.sparse.issparse(np.eye(2))
    (True, False)
    """
    return is_sparse(x)


def matmul(A: Any, B: Any) -> Any:
    """A @ B, where one of them is sparse: SciPy's own matrix or ours, with a tracked vector, matrix or sparse matrix.

    >>> import numpy as np, scipy.sparse, tapegrad as tg
    >>> A = scipy.sparse.csr_array(np.array([[0.0, 2.0], [3.0, 0.0]]))
    >>> tg.grad(lambda x: np.sum(tg.sparse.matmul(A, x) ** 2))(np.array([1.0, 1.0]))
    array([18.,  8.])
    """
    if is_sparse(A):
        return as_sparse(A) @ B if is_sparse(B) else product(A, B)
    if not is_sparse(B):
        raise TypeError(
            "tg.sparse.matmul was given two dense arrays: write A @ B, or make one of them sparse with tg.sparse.csr_array."
        )
    return product_from_left(A, B)


def register(optree: Any, namespace: str) -> None:
    """Make sparse matrices pytrees: the entries are the leaf, the pattern is the structure."""
    optree.register_pytree_node(
        SparseTensor,
        lambda a: ((a.data,), a.pattern, ("data",)),
        _unflatten,
        path_entry_type=optree.GetAttrEntry,
        namespace=namespace,
    )


def _unflatten(pattern: Pattern, leaves: Any) -> Any:
    (leaf,) = leaves
    if isinstance(leaf, Tensor | np.ndarray | StandIn) and tuple(leaf.shape) != (pattern.nnz,):
        return leaf  # a block of a Jacobian, which has other axes
    return SparseTensor(leaf, pattern)


__all__ = [
    "SparseTensor", "block_array", "block_diag", "bsr_array", "coo_array", "csc_array", "csr_array", "dia_array", "diags_array",
    "eye_array", "hstack", "issparse", "kron", "matmul", "tril", "triu", "vstack",
]  # fmt: skip
