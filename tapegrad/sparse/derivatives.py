"""Sparse Jacobians and Hessians: the pattern, a colouring of it, and as many directions as there are colours.

The pattern is detected on the tape that the function has recorded (detection.py), or given. All directions of a forward sweep go up the
tape together; a reverse one makes a walk for each. One direction more, a random one, checks that the matrix and the tape agree.

Invariant: the matrix has an entry at each place of the pattern, zeros included, and its product with the random direction is the tape's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..core.dual import LEVEL
from ..core.storage import tracing
from ..core.tensor import Tensor, wrap
from ..errors import NotDifferentiable, TraceError
from ..ops.composing import holds_tensor
from ..ops.sparse import Pattern
from ..transforms.derivatives import _pushed, _Run, _with_aux, grad, is_compiled
from . import colouring, detection
from .arrays import SparseTensor, is_sparse

AT_ONCE = 64
"""Directions that go up the tape together."""

WORK_OF_STAR = 5_000_000
"""Paths of three vertices beyond which a Hessian is coloured as a Jacobian is: some colours more, but no search for them."""


def jacobian(
    f: Callable[..., Any], argnums: Any, has_aux: bool, mode: str, sparsity: Any, allow_unused: bool
) -> Callable[..., Any]:
    """`tg.jacobian` with a sparsity: a function that returns a sparse matrix, elements of the value by elements of the argument."""
    return _Sparse(f, argnums, has_aux, mode, sparsity, allow_unused, False)


def hessian(
    f: Callable[..., Any], argnums: Any, has_aux: bool, sparsity: Any, allow_unused: bool
) -> Callable[..., Any]:
    """`tg.hessian` with a sparsity: a function that returns a sparse symmetric matrix."""
    _demand_one(argnums, "hessian")
    own = f.f if is_compiled(f) else f
    slope = grad(own, argnums, has_aux, allow_unused=allow_unused)
    made = _Sparse(slope, argnums, has_aux, "forward", sparsity, True, True)
    made.compiled = f if is_compiled(f) and not has_aux else None
    return made


def _demand_one(argnums: Any, name: str) -> None:
    if not isinstance(argnums, int | np.integer):
        raise TypeError(
            f"a sparse {name} by the arguments {argnums!r} was asked, but it is a matrix, by the elements of one array: put the unknowns "
            "in one array, or leave sparsity out."
        )


class _Sparse:
    """The derivative of a function, as a function that returns a sparse matrix; what it found out about the last pattern it keeps."""

    def __init__(
        self,
        f: Any,
        argnums: Any,
        has_aux: bool,
        mode: str,
        sparsity: Any,
        allow_unused: bool,
        symmetric: bool,
    ) -> None:
        """Settings of a sparse Jacobian or Hessian; the pattern is found or checked at the first call."""
        self.name = "hessian" if symmetric else "jacobian"
        _demand_one(argnums, self.name)
        if isinstance(sparsity, str) and sparsity != "detect":
            raise ValueError(
                f'sparsity={sparsity!r} was asked, but it is "detect", a sparse matrix as the pattern, or None for a dense result.'
            )
        self.compiled: Any = f if is_compiled(f) and not has_aux else None
        self.program: Any = None
        if is_compiled(f):
            f = f.f  # of a program the tape would show one entry
        self.f, self.argnums, self.has_aux, self.mode = f, argnums, has_aux, mode
        self.allow_unused, self.symmetric = allow_unused, symmetric
        self.given = None if isinstance(sparsity, str) else _as_pattern(sparsity)
        self.plan: _Plan | None = None
        functools.update_wrapper(self, f, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The sparse matrix at these arguments (with aux values if the function has some)."""
        if tracing.get() is not None:
            raise TraceError(
                f"a sparse {self.name} was asked inside tg.compile, but sparse matrices are no values of a program. Take it outside, of "
                f"the compiled function: tg.{self.name}(tg.compile(f), sparsity=...). Inside, jvp and vjp give products with it.",
                name="outside-program",
            )
        if self.compiled is not None and self.plan is not None and self.plan.forward:
            found = self._by_program(args, kwargs)
            if found is not None:
                return found
        run = _Run(self.f, args, kwargs, self.argnums, self.name, self.allow_unused)
        y, aux = _with_aux(run.output, self.has_aux)
        matrix = self._of(run, y)
        if not self.has_aux:
            return matrix
        from ..transforms.derivatives import _leaves_in, _map

        run.hand_out(_leaves_in(aux))
        return matrix, _map(run.value, aux)

    def _by_program(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The matrix on the last pattern, of a compiled function, all directions by one program; None where the tape has to find it.

        It has to for tracked arguments, for others than the pattern's, and where the random direction says that the pattern was another.
        """
        plan = self.plan
        assert plan is not None
        given = [*args, *kwargs.values()]
        x = args[self.argnums] if -len(args) <= self.argnums < len(args) else None
        plain = type(x) is np.ndarray and x.dtype.kind == "f" and x.size == plan.pattern.shape[1]
        if not plain or holds_tensor(given) or self.compiled.static or LEVEL.get() is not None:
            return None
        known = (plan, x.dtype, x.shape)
        if self.program is None or self.program[0] != known:
            self.program = known, self.compiled.sibling(self._entries(plan, x.dtype))
        data, product, doubtful = self.program[1](*args, **kwargs)
        if not product.size:
            return None
        if doubtful:
            try:
                self._agree(
                    plan.pattern,
                    data,
                    plan.probe(x.dtype),
                    product,
                    lambda v: self._products(args, kwargs, v),
                    False,
                )
            except NotDifferentiable:
                if self.given is not None:
                    raise
                return None
        return plan.pattern.matrix(data)

    def _entries(self, plan: _Plan, dtype: Any) -> Callable[..., Any]:
        """What the program computes: entries on the pattern, the product with the random direction, and whether the two are in doubt.

        Without a product, of no entries, the tape has to find the matrix.
        """
        seeds, pattern = plan.seeds(dtype), plan.pattern
        place = plan.colour_of_entry.astype(np.intp) * pattern.shape[0] + plan.place_of_entry

        def entries(*args: Any, **kwargs: Any) -> Any:
            run = _Run(self.f, args, kwargs, self.argnums, self.name, self.allow_unused)
            y = run.output
            if not isinstance(y, Tensor) or y._node is None or y.size != pattern.shape[0]:
                return np.zeros(0), np.zeros(0), True
            found = _along(run, y, seeds)
            data, product = np.reshape(found, (-1,))[place], found[-1]
            known = SparseTensor(data, pattern) @ seeds[-1]
            size = SparseTensor(np.abs(data), pattern) @ np.abs(seeds[-1])
            return data, product, np.any(_is_off(known, product, size, dtype))

        return entries

    def _products(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], directions: np.ndarray
    ) -> Any:
        """Products with other directions, by the tape."""
        run = _Run(self.f, args, kwargs, self.argnums, self.name, self.allow_unused)
        return _along(run, run.output, directions)

    def _of(self, run: _Run, y: Any) -> Any:
        """The matrix of a run: entries by as many directions as the pattern has colours."""
        if len(run.inputs) != 1 or not isinstance(
            y, Tensor | np.ndarray | np.generic | float | int
        ):
            raise TypeError(
                f"a sparse {self.name} was asked of a function of a pytree, or that returns one, but it is a matrix: give and "
                "return one array each, or leave sparsity out."
            )
        (x,) = run.inputs
        if x.dtype.kind == "c" or getattr(y, "dtype", x.dtype).kind == "c":
            raise NotDifferentiable(
                f"a sparse {self.name} was asked of a function of complex numbers, but patterns are of real ones here: take real and "
                "imaginary parts, or leave sparsity out.",
                name="not-real",
            )
        shape = (int(np.size(y)), x.size)
        if not isinstance(y, Tensor) or y._node is None:
            run.tell_unused([False])
            y = None
        pattern = self._pattern(run, y, shape)
        if self.plan is None or self.plan.pattern != pattern:
            self.plan = _Plan(pattern, self.mode, self.symmetric)
        plan = self.plan
        if y is None or not pattern.nnz:
            data: Any = np.zeros(pattern.nnz, x.dtype)
            if y is not None:
                self._check(pattern, data, run, y)
        elif plan.forward:
            data = self._forward(run, y, x, plan)
        else:
            data = self._reverse(run, y, plan)
        tracked = isinstance(data, Tensor) and data._node is not None
        if tracked or isinstance(run.given[0], Tensor):
            return SparseTensor(data if isinstance(data, Tensor) else wrap(data), pattern)
        return pattern.matrix(data._value if isinstance(data, Tensor) else data)

    def _pattern(self, run: _Run, y: Any, shape: tuple[int, int]) -> Pattern:
        """The pattern: the one that was given, or that of the tape."""
        if self.given is not None:
            if self.given.shape != shape:
                raise ValueError(
                    f"sparsity was given as a pattern of shape {self.given.shape}, but the {self.name} has shape {shape}: a row for each "
                    "element of the value, a column for each of the argument."
                )
            return self.given
        if y is None:
            return Pattern(np.zeros(shape[0] + 1, np.intc), np.zeros(0, np.intc), shape)
        tape = run.own.tape
        start, stop = tape.position(run.first), tape.position(run.last)
        sets = detection.sets_of(tape.code, start, stop, run.nodes[0], shape[1], y._node, shape[0])
        if self.symmetric:
            sets = sets + sets.T
        return _as_pattern(sets)

    def _forward(self, run: _Run, y: Any, x: Any, plan: _Plan) -> Any:
        """Entries from products with one direction for each colour, and one more that checks them."""
        run.hand_out([y])
        seeds = plan.seeds(x.dtype)
        parts = [_along(run, y, seeds[k : k + AT_ONCE]) for k in range(0, len(seeds), AT_ONCE)]
        found = parts[0] if len(parts) == 1 else np.concatenate(parts)
        data = found[plan.colour_of_entry, plan.place_of_entry]
        self._agree(plan.pattern, data, seeds[-1], found[-1], lambda v: _along(run, y, v), False)
        return data

    def _reverse(self, run: _Run, y: Any, plan: _Plan) -> Any:
        """The same by walks down the tape, one for each colour of the rows."""
        seeds = plan.seeds(y.dtype)
        found = _back(run, y, seeds)
        data = found[plan.colour_of_entry, plan.place_of_entry]
        self._agree(plan.pattern, data, seeds[-1], found[-1], lambda w: _back(run, y, w), True)
        return data

    def _check(self, pattern: Pattern, data: Any, run: _Run, y: Any) -> None:
        """That a matrix without entries is none."""
        (x,) = run.inputs
        run.hand_out([y])
        probe = _random(x.size, x.dtype)
        (product,) = _along(run, y, probe[None])
        self._agree(pattern, data, probe, product, lambda v: _along(run, y, v), False)

    def _agree(
        self,
        pattern: Pattern,
        data: Any,
        probe: np.ndarray,
        product: Any,
        along: Callable[[np.ndarray], Any],
        transposed: bool,
    ) -> None:
        """Raise where the product with the random direction is not that of the matrix: the pattern lacks entries.

        `along` gives products with other directions. They are asked for where the two differ, which they may by rounding where all that is
        large cancels: then the products with the parts of a direction add up no better.
        """
        data, product = _plain(data), _plain(product)
        matrix, size = pattern.matrix(data), pattern.matrix(np.abs(data))
        if transposed:
            matrix, size = matrix.T, size.T
        with np.errstate(all="ignore"):
            known = matrix @ probe
            wrong = _is_off(known, product, size @ np.abs(probe), data.dtype)
            if np.any(wrong):
                off = np.abs(known - product)
                share = np.random.default_rng(0).random((8, len(probe))).astype(probe.dtype)
                parts = _plain(along(np.concatenate([share * probe, probe - share * probe])))
                noise = np.abs(parts[:8] + parts[8:] - product).max(axis=0)
                wrong &= off > 100 * noise + 4 * np.finfo(data.dtype).eps * np.max(noise)
        if np.any(wrong):
            where = f"{'column' if transposed else 'row'} {int(np.flatnonzero(wrong)[0])}"
            raise NotDifferentiable(
                f"a sparse {self.name} was computed, but its product with a random direction is not that of the function in {where}: "
                "the pattern lacks entries that are not 0. "
                + (
                    'Give a larger pattern, or sparsity="detect".'
                    if self.given is not None
                    else "Give the pattern, and report this function."
                ),
                name="wrong-pattern",
            )


def _is_off(known: Any, product: Any, size: Any, dtype: Any) -> Any:
    """Where two products differ by more than rounding; `size` is the sum of the sizes of what they add up."""
    bound = size + np.abs(product)
    return np.abs(known - product) > np.sqrt(np.finfo(dtype).eps) * bound


def _along(run: _Run, y: Any, directions: np.ndarray) -> Any:
    """Products of the Jacobian with directions, a row for each."""
    (x,) = run.inputs
    count = len(directions)
    (pushed,), _ = _pushed(run, [y], [directions.reshape(count, *x.shape)], count)
    return np.reshape(pushed if run.connected else pushed._value, (count, y.size))


def _back(run: _Run, y: Any, seeds: np.ndarray) -> Any:
    """Products of the transposed Jacobian with cotangents, a row for each."""
    (x,) = run.inputs
    rows = []
    for seed in seeds:
        (g,) = run.pull([(y._node, seed.reshape(y.shape))])
        rows.append(np.zeros(x.size, y.dtype) if g is None else np.reshape(g, (-1,)))
    return np.stack(rows)


def _plain(value: Any) -> np.ndarray:
    return np.asarray(value.detach() if isinstance(value, Tensor) else value)


class _Plan:
    """How a matrix of some pattern is found: the direction of the sweep, its seeds, and where each entry is read."""

    def __init__(self, pattern: Pattern, mode: str, symmetric: bool) -> None:
        """Colour the columns (or rows) of a pattern so that each entry can be read off one direction."""
        self.pattern = pattern
        matrix = pattern.matrix(np.ones(pattern.nnz, bool))
        rows, columns = pattern.rows, pattern.columns
        self.forward = mode != "reverse"
        if symmetric:
            self._symmetric(matrix)
            return
        colours = colouring.columns(matrix) if self.forward else None
        deepest = int(np.bincount(columns, minlength=1).max(initial=0))
        if colours is None or (mode == "auto" and 2 * deepest < colours.max(initial=-1) + 1):
            others = colouring.columns(matrix.T)
            # Directions go up the tape together, walks down one by one.
            if colours is None or 2 * (others.max(initial=-1) + 1) < colours.max(initial=-1) + 1:
                self.forward, self.colours = False, others
                self.colour_of_entry, self.place_of_entry = others[rows], columns
                return
        self.colours = colours
        self.colour_of_entry, self.place_of_entry = colours[columns], rows

    def _symmetric(self, matrix: Any) -> None:
        rows, columns = self.pattern.rows, self.pattern.columns
        degrees = np.diff(self.pattern.indptr).astype(float)
        few = np.sum(degrees * (matrix @ degrees)) < WORK_OF_STAR
        self.colours = colouring.star(matrix) if few else colouring.columns(matrix)
        direct = colouring.readable(rows, columns, self.colours)
        self.colour_of_entry = np.where(direct, self.colours[columns], self.colours[rows])
        self.place_of_entry = np.where(direct, rows, columns)

    def seeds(self, dtype: Any) -> np.ndarray:
        """A direction for each colour, ones where it is, and the random one."""
        n = len(self.colours)
        count = int(self.colours.max(initial=-1)) + 1
        seeds = np.zeros((count + 1, n), dtype)
        seeds[self.colours, np.arange(n)] = 1
        seeds[-1] = self.probe(dtype)
        return seeds

    def probe(self, dtype: Any) -> np.ndarray:
        """The random direction."""
        return _random(len(self.colours), dtype)


def _random(n: int, dtype: Any) -> np.ndarray:
    return np.random.default_rng(n).uniform(0.5, 1.5, n).astype(dtype)


def _as_pattern(sparsity: Any) -> Pattern:
    """The places of a sparse matrix, or of an array of truth values, that are not 0."""
    if isinstance(sparsity, Pattern):
        return sparsity
    if isinstance(sparsity, SparseTensor):
        return sparsity.pattern
    from scipy.sparse import csr_array

    if not is_sparse(sparsity) and np.ndim(sparsity) != 2:
        raise ValueError(
            f'sparsity was given as {type(sparsity).__name__} of shape {np.shape(sparsity)}: give "detect", or a matrix with an '
            "entry at each place that may differ from 0."
        )
    matrix = csr_array(sparsity) if not is_sparse(sparsity) else csr_array(sparsity.tocsr())
    matrix = matrix.astype(bool) if matrix.dtype != bool else matrix.copy()
    matrix.sum_duplicates()
    return Pattern(matrix.indptr, matrix.indices, matrix.shape)


__all__: Sequence[str] = ["hessian", "jacobian"]
