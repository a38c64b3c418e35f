"""NumPy's functions on tensors: a table of sample calls, on each of which the laws of `tapegrad.check` are judged.

Ops have laws and samples of their own (tests/test_ops.py); here are the functions made of them. The last part puts every public
function of NumPy into one bucket: differentiable, constant, refused with a reason, or not about arrays at all.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import special

import tapegrad as tg
from tapegrad import GradientLost, NotDifferentiable
from tapegrad.check import laws
from tapegrad.check.samples import Sample, samples_from
from tapegrad.core.domain import distinct, nonzero, not_integer, positive, real
from tapegrad.core.primitive import CONSTANTS, FUNCTIONS, UFUNCS, Call, call
from tapegrad.help import documents, vocabulary
from tapegrad.ops import calculus

INDEX = np.array([0, 2, 2, 1])
MASK = np.array([True, False, True, True])
DOUBLE = {"dtype": "NumPy's function itself answers in double precision"}
CUT = {
    "mixed": "NumPy cuts off imaginary parts, with a warning",
    "complex": "NumPy cuts off imaginary parts, with a warning",
}
ROUNDED = {"value": "the sum is taken in another order than NumPy's: compared to within rounding"}


@dataclass(frozen=True)
class Row:
    """Sample calls of one NumPy function; `function` wraps it where operands stand in a list or results in a tuple."""

    name: str
    function: Callable[..., Any]
    calls: tuple[Call, ...]
    excused: dict[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return self.name


def row(
    of: Any,
    *calls: Call,
    by: Callable[..., Any] | None = None,
    excused: dict[str, str] | None = None,
) -> Row:
    return Row(of.__name__, by or of, calls, excused or {})


def flat(*results: Any) -> Any:
    """Several results, one after the other."""
    return np.concatenate([np.ravel(r) for r in results])


def far(*shapes: Any, **settings: Any) -> Call:
    """A call with operands whose entries are all different."""
    return call(*shapes, domains=(distinct,), **settings)


def pos(*shapes: Any, **settings: Any) -> Call:
    return call(*shapes, domains=(positive,), **settings)


HOLES = np.array([[1.0, np.nan, 3.5], [np.nan, -2.0, 0.5]])
SPREAD = np.array([[0.5, -1.25, 2.0, 0.125], [3.0, 0.75, -0.5, 1.5], [-2.0, 0.25, 1.0, -1.0]])


def holed(of: Any) -> Callable[..., Any]:
    """A function of data in which two entries are NaN."""

    def function(x: Any, **settings: Any) -> Any:
        return of(np.where(np.isnan(HOLES), np.nan, x), **settings)

    return function


def hole_rows(of: Any, **excused: Any) -> Row:
    return row(of, far((2, 3)), far((2, 3), axis=0), far((2, 3), axis=1), by=holed(of), **excused)


ARRANGING = [
    row(np.roll, call((4,), shift=1), call((2, 3), shift=[1, 2], axis=(0, 1))),
    row(
        np.lib.stride_tricks.sliding_window_view,
        call((4,), window_shape=2),
        call((3, 4), window_shape=(2, 3)),
        call((2, 4), window_shape=3, axis=-1),
        call((3, 4), window_shape=[2, 2], axis=(1, 1)),
    ),
    row(np.rot90, *(call((2, 3), k=k) for k in range(4)), call((2, 2, 3), axes=(2, 0))),
    row(np.fliplr, call((2, 3))),
    row(np.flipud, call((3,))),
    row(np.flip, call((2, 3), axis=1)),
    row(np.rollaxis, call((2, 1, 3), axis=2), call((2, 1, 3), axis=0, start=3)),
    row(np.matrix_transpose, call((2, 3))),
    row(np.tile, call((2,), reps=3), call((2, 2), reps=(2, 1, 2)), call((), reps=2)),
    row(
        np.repeat,
        call((2, 2), repeats=2),
        call((2, 3), repeats=[1, 0, 2], axis=1),
        call((3,), repeats=[2], axis=0),
    ),
    row(np.resize, call((3,), new_shape=(2, 4)), call((2, 3), new_shape=4)),
    row(np.broadcast_arrays, call((2, 1), (3,)), by=lambda *xs: flat(*np.broadcast_arrays(*xs))),
    row(
        np.meshgrid,
        call((2,), (3,)),
        call((2,), (3,), indexing="ij"),
        call((2,), (3,), (2,), sparse=True),
        by=lambda *xs, **kw: flat(*np.meshgrid(*xs, **kw)),
    ),
    row(np.tril, call((3, 3)), call((2, 3), k=1), call((2, 3, 2), k=-1), call((3,))),
    row(np.triu, call((3, 3)), call((2, 3), k=1), call((2, 3, 2), k=-1)),
    row(np.diag, call((3,)), call((2,), k=-1), call((3, 3), k=1)),
    row(np.diagflat, call((2, 2), k=1)),
    row(np.diagonal, call((3, 4), offset=1), call((2, 3, 2), axis1=0, axis2=2)),
    row(np.trace, call((3, 3)), call((3, 4), offset=-1)),
    row(np.atleast_1d, call(())),
    row(np.atleast_2d, call((3,))),
    row(np.atleast_3d, call((2, 3)), call((2,)), call(())),
    row(np.dstack, call((2,), (2,)), call((2, 3), (2, 3)), by=lambda *xs: np.dstack(xs)),
    row(np.vstack, call((2,), (3, 2)), by=lambda *xs: np.vstack(xs)),
    row(np.hstack, call((2,), (3,)), by=lambda *xs: np.hstack(xs)),
    row(np.column_stack, call((2,), (2, 2)), by=lambda *xs: np.column_stack(xs)),
    row(np.block, call((2, 2), (2, 1), (1, 3)), by=lambda a, b, c: np.block([[a, b], [c]])),
    row(np.hsplit, call((2, 4)), call((4,)), by=lambda x: flat(*np.hsplit(x, 2))),
    row(np.vsplit, call((3, 2)), by=lambda x: flat(*np.vsplit(x, [1])[::-1])),
    row(np.dsplit, call((1, 2, 2)), by=lambda x: flat(*np.dsplit(x, 2)[::-1])),
    row(np.array_split, call((5,)), by=lambda x: flat(*np.array_split(x, 3)[::-1])),
    row(np.split, call((4,)), by=lambda x: flat(*np.split(x, 2)[::-1])),
    row(np.append, call((2,), (3,)), call((2, 1), (2, 2), axis=1), call((2, 1), ())),
    row(np.insert, call((3,), (2,)), by=lambda a, v: np.insert(a, [0, 2], v), excused=CUT),
    row(
        np.insert,
        call((2, 3), (2, 1)),
        by=lambda a, v: np.insert(a, 1, v[:, 0], axis=1),
        excused=CUT,
    ),
    row(np.delete, call((2, 3), obj=1, axis=1), call((4,), obj=[0, 2])),
    row(
        np.trim_zeros,
        call((3,)),
        by=lambda x: np.trim_zeros(np.concatenate([[0.0], x, [0.0, 0.0]]), "b"),
        excused=DOUBLE,
    ),
    row(np.ediff1d, call((2, 2)), call((3,), to_begin=1.0, to_end=[2.0, 3.0])),
    row(np.matrix_transpose, call((2, 3, 1))),
    row(np.copy, call((2,))),
    row(
        np.astype,
        call((2,), dtype=np.float64),
        by=lambda x, dtype: np.astype(x, dtype),
        excused={**DOUBLE, **CUT},
    ),
]

MODES: list[dict[str, Any]] = [
    {"mode": "constant"}, {"mode": "constant", "constant_values": ((1.0, 2.0), (3.0, 4.0))},
    {"mode": "edge"}, {"mode": "wrap"},
    {"mode": "reflect"}, {"mode": "symmetric"}, {"mode": "reflect", "reflect_type": "odd"},
    {"mode": "symmetric", "reflect_type": "odd"},
    {"mode": "maximum", "stat_length": 2}, {"mode": "minimum"}, {"mode": "mean"},
    {"mode": "mean", "stat_length": ((1, 2), (2, 3))},
    {"mode": "median"},
]  # fmt: skip
PADDING = [
    row(
        np.pad,
        *(far((2, 3), pad_width=((1, 3), (0, 7)), **mode) for mode in MODES),
        far((3,), pad_width=2),
        far((1, 2), pad_width=1, mode="reflect", reflect_type="odd"),
    ),
    row(
        np.pad,
        *(far((2, 3), pad_width=(1, 4), mode="linear_ramp", end_values=v) for v in (0, 2.0)),
        excused=ROUNDED,
    ),
]

SELECTION = [
    row(
        np.take,
        call((4,), indices=INDEX),
        call((2, 3), indices=[[0, 5]], axis=None),
        call((2, 3), indices=[4, -1], axis=1, mode="clip"),
    ),
    row(
        np.take_along_axis,
        call((3, 4), indices=np.array([[0, 2, 2, 1]]), axis=0),
        call((2, 3), indices=np.array([[1], [0]]), axis=1),
    ),
    row(np.choose, call((4,), (4,), ()), by=lambda *xs: np.choose([0, 1, 2, 1], xs)),
    row(np.compress, call((4, 2)), by=lambda x: np.compress(MASK, x, axis=0)),
    row(np.extract, call((4,)), by=lambda x: np.extract(MASK, x)),
    row(np.select, call((4,), (4,)), by=lambda x, y: np.select([MASK, ~MASK], [x, y * 2])),
    row(np.select, call((4,), ()), by=lambda x, y: tg.select([MASK], [x], y)),
    row(np.where, call((4,), ()), by=lambda x, y: np.where(MASK, x, y)),
    row(
        np.piecewise,
        far((5,)),
        by=lambda x: np.piecewise(
            x, [np.real(x) < 0, np.real(x) > 0.5], [np.sin, lambda v: v * v, 3.0]
        ),
    ),
    row(np.sort, far((4,)), far((3, 4), axis=0), far((2, 3), axis=None)),
    row(np.sort_complex, far((4,)), excused={**DOUBLE, "second": "the result is complex"}),
    row(
        np.partition,
        far((6,), kth=2),
        far((3, 4), kth=(1, 2), axis=0),
        far((2, 3), kth=1, axis=None),
    ),
    row(
        np.median,
        far((5,)),
        far((4,)),
        far((3, 4), axis=1),
        far((2, 3, 2), axis=(0, 2), keepdims=True),
    ),
    hole_rows(np.nanmedian),
    *(
        row(
            of,
            *(
                far((5,), q=0.3 * scale, method=m)
                for m in ("linear", "hazen", "lower", "nearest", "inverted_cdf", "median_unbiased")
            ),
            far((3, 4), q=np.array([0.1, 0.7]) * scale, axis=1),
            far((2, 3, 2), q=np.array([[0.25], [1.0]]) * scale, axis=(0, 2), keepdims=True),
            excused={**DOUBLE, **ROUNDED},
        )
        for of, scale in ((np.quantile, 1), (np.percentile, 100))
    ),
    row(
        np.quantile,
        far((5,), q=0.6, method="inverted_cdf", weights=[1.0, 0.5, 2.0, 1.0, 0.1]),
        far((2, 3), q=0.4, axis=1, method="inverted_cdf", weights=[1.0, 0.5, 2.0]),
    ),
    row(
        np.nanquantile,
        far((2, 3), q=0.3),
        far((2, 3), q=[0.2, 0.9], axis=1),
        by=holed(np.nanquantile),
        excused={**DOUBLE, **ROUNDED},
    ),
    row(
        np.nanpercentile,
        far((2, 3), q=30.0),
        far((2, 3), q=[20.0, 90.0], axis=1),
        by=holed(np.nanpercentile),
        excused={**DOUBLE, **ROUNDED},
    ),
    row(np.ptp, far((5,)), far((2, 3), axis=1, keepdims=True)),
    row(
        np.max,
        far((2, 3), axis=1, initial=0.0),
        far((4,), initial=-9.0, where=MASK),
        far((4,), initial=9.0),
    ),
    row(np.amin, far((2, 3), axis=0), far((4,), initial=9.0, where=MASK)),
    hole_rows(np.nanmax),
    hole_rows(np.nanmin),
    row(np.unique, far((4,))),
    row(np.unique, far((3, 2)), by=lambda x: np.unique(np.concatenate([x, x[:1]]), axis=0)),
    row(np.unique_values, far((4,)), excused={"complex": "NumPy orders complex ones by a hash"}),
    *(
        row(of, far((4,)), by=lambda x, of=of: of(x)[0])
        for of in (np.unique_counts, np.unique_inverse, np.unique_all)
    ),
    *(
        row(of, far((4,)), by=lambda x, of=of: of(x, x[1:] * 1.0))
        for of in (np.union1d, np.intersect1d, np.setdiff1d, np.setxor1d)
    ),
]

STATISTICS = [
    *(
        row(
            of,
            call((2, 4), where=MASK),
            call((2, 4), axis=1, initial=2.0, keepdims=True),
            excused=ROUNDED,
        )
        for of in (np.sum, np.prod)
    ),
    row(
        np.mean,
        call((2, 4), axis=1, where=MASK),
        call((3,), dtype=np.float64),
        excused={**ROUNDED, **DOUBLE, **CUT},
    ),
    *(
        row(
            of,
            call((2, 4), axis=1, where=MASK),
            call((2, 4), axis=0, ddof=1),
            call((4,), correction=1),
            call((4,), mean=np.array([0.3])),
            excused={**ROUNDED, **DOUBLE},
        )
        for of in (np.var, np.std)
    ),
    *(
        hole_rows(of, excused=ROUNDED)
        for of in (np.nansum, np.nanprod, np.nanmean, np.nanvar, np.nanstd)
    ),
    *(hole_rows(of) for of in (np.nancumsum, np.nancumprod)),
    row(np.cumprod, call((5,)), call((2, 3)), call((2, 4), axis=1)),
    *(
        row(of, call((3,)), call((2, 3), axis=1, include_initial=True))
        for of in (np.cumulative_sum, np.cumulative_prod)
    ),
    row(
        np.average,
        call((2, 3)),
        call((2, 3), axis=1, weights=np.array([1.0, 2.0, 3.0])),
        excused=DOUBLE,
    ),
    row(
        np.average,
        pos((2, 3), (2, 3)),
        by=lambda a, w: flat(*np.average(a, 1, w, returned=True)),
        excused=ROUNDED,
    ),
    row(
        np.average,
        pos((2, 3, 2), (3, 2)),
        by=lambda a, w: np.average(a, (1, 2), w, keepdims=True),
        excused=ROUNDED,
    ),
    row(
        np.cov,
        call((3, 4)),
        call((4,)),
        call((4, 2), rowvar=False, bias=True),
        call((2, 4), fweights=[1, 2, 1, 3], ddof=0),
        excused={**ROUNDED, **DOUBLE},
    ),
    row(np.cov, call((4,), (4,)), excused={**ROUNDED, **DOUBLE}),
    row(
        np.cov,
        pos((2, 4), (4,)),
        by=lambda m, w: np.cov(m, aweights=abs(w)),
        excused={**ROUNDED, **DOUBLE},
    ),
    row(np.corrcoef, call((3, 4)), call((4,), (4,)), excused={**ROUNDED, **DOUBLE}),
    row(
        np.trapezoid,
        call((4,), dx=0.5),
        call((2, 3), axis=0),
        call((2, 3), x=np.array([0.0, 1.0, 3.0])),
        excused=DOUBLE,
    ),
    row(np.trapezoid, call((4,), (4,)), call((2, 3), (2, 3))),
    row(np.bincount, call((4,)), by=lambda w: np.bincount(INDEX, w, minlength=5), excused=DOUBLE),
    row(
        np.histogram,
        call((5,)),
        call((5,), density=True),
        by=lambda w, **kw: np.histogram(
            [0.1, 0.5, 2.0, 1.0, 7.0], [0.0, 0.5, 1.0, 2.0], weights=w, **kw
        )[0],
        excused={**DOUBLE, **ROUNDED},
    ),
]

PLACES = np.array([-0.3, 0.1, 0.9, 1.7])
BETWEEN = np.array([[-0.2, 1.5], [4.0, 0.5]])
CALCULUS = [
    row(
        np.diff,
        call((4,)),
        call((3, 4), n=2, axis=0),
        call((3,), prepend=0.0, append=[1.0, 2.0]),
        call((3,), n=1),
        excused=DOUBLE,
    ),
    row(
        np.gradient,
        call((4,)),
        call((4,), edge_order=2),
        call((3, 4), axis=1, edge_order=2),
    ),
    row(np.gradient, call((4,), ()), by=np.gradient, excused=CUT),
    row(np.gradient, call((3, 4), (), ()), by=lambda f, *h: flat(*np.gradient(f, *h)), excused=CUT),
    row(
        np.gradient,
        call((4,), edge_order=1),
        call((4,), edge_order=2),
        by=lambda f, **kw: np.gradient(f, PLACES + 0.1 * np.cos(f), **kw),
        excused=ROUNDED,
    ),
    row(np.unwrap, far((5,)), far((2, 4), axis=0, period=1.0)),
    row(
        np.interp,
        call(BETWEEN, (4,)),
        call(BETWEEN[0], (4,)),
        by=lambda x, fp: np.interp(x, PLACES, fp, left=7.0),
        excused=DOUBLE,
    ),
    row(
        np.interp,
        call(BETWEEN, PLACES, (4,)),
        call(BETWEEN, PLACES[::-1].copy(), (4,), period=2.2),
        excused={**DOUBLE, **ROUNDED, **CUT},
    ),
    row(
        np.linspace,
        call((), (), num=4),
        call((2,), (2,), num=3, axis=1),
        call((), (), num=4, endpoint=False),
    ),
    row(np.linspace, call((), ()), by=lambda a, b: flat(*np.linspace(a, b, 5, retstep=True))),
    row(np.logspace, call((), (), num=3), call((), (), num=3, base=2.0)),
    row(
        np.geomspace,
        pos((), (), num=4),
        pos((2,), (2,), num=3, endpoint=False),
        excused={**DOUBLE, **ROUNDED},
    ),
    row(
        np.convolve,
        *(call((5,), (3,), mode=m) for m in ("full", "same", "valid")),
        call((2,), (4,), mode="same"),
    ),
    row(
        np.correlate,
        *(call((5,), (3,), mode=m) for m in ("full", "same", "valid")),
        call((2,), (4,), mode="same"),
    ),
    *(
        row(
            np.einsum,
            call(*shapes),
            by=lambda *xs, text=text: np.einsum(text, *xs),
            excused=ROUNDED,
        )
        for text, *shapes in (
            ("ij,jk", (2, 3), (3, 2)),
            ("ba", (2, 3)),
            ("...i,...i->...", (2, 3), (3,)),
            ("i...,i...", (2, 3), (2, 1)),
            ("ii", (3, 3)),
            ("iji -> j", (2, 3, 2)),
            ("ij->", (2, 3)),
            ("i,j,k->kij", (2,), (3,), (2,)),
            ("...,...", (), (2,)),
        )
    ),
    row(
        np.einsum,
        call((2, 3), (3, 2)),
        by=lambda a, b: np.einsum(a, [0, 1], b, [1, 2], [2, 0]),
        excused=ROUNDED,
    ),
    row(
        np.einsum,
        call((2, 3), (3,)),
        by=lambda a, b: np.einsum(a, [..., 27], b, [27]),
        excused=ROUNDED,
    ),
    row(
        np.einsum,
        call((2, 3), (3, 2), (2,)),
        by=lambda *xs: np.einsum("ij,jk,k->i", *xs, optimize=True),
        excused=ROUNDED,
    ),
    row(np.cross, call((2, 3), (3,)), call((3, 2), (3, 2), axis=0)),
    row(np.kron, call((2,), (3,)), call((2, 2), (1, 3)), call((2, 2), (2,)), call((), (2,))),
    row(np.vecdot, call((2, 3), (3,)), by=lambda a, b: np.vecdot(a, b), excused=ROUNDED),
    row(np.matvec, call((2, 3), (3,)), excused=ROUNDED),
    row(np.vecmat, call((4, 2), (2, 3)), excused=ROUNDED),
    row(np.outer, call((2,), (3,))),
    row(np.inner, call((2, 3), (3,)), excused=ROUNDED),
    row(np.vdot, call((2, 2), (2, 2)), excused=ROUNDED),
    row(np.dot, call((2, 3), (3,)), excused=ROUNDED),
    row(np.tensordot, call((2, 3), (3, 2), axes=1), call((2, 3), (2, 3), axes=2), excused=ROUNDED),
    row(np.sinc, call((4,)), call((3,), domains=(positive,))),
    row(
        np.frexp, call((4,)), by=lambda x: np.frexp(x)[0], excused={"complex": "real numbers only"}
    ),
    row(np.modf, call((4,), domains=(not_integer,)), by=lambda x: flat(*np.modf(x))),
    row(
        np.divmod,
        call((3,), (3,), domains=(not_integer, positive)),
        by=lambda x, y: flat(*np.divmod(x, 0.7 + 0 * y)),
    ),
    row(np.fix, call((3,), domains=(not_integer,))),
    row(
        np.round,
        call((3,), domains=(not_integer,)),
        call((3,), domains=(not_integer,), decimals=-1),
    ),
    row(
        np.nan_to_num,
        call((3,)),
        by=lambda x: np.nan_to_num(np.concatenate([x, [np.nan, np.inf]]), posinf=5.0),
        excused=DOUBLE,
    ),
    row(np.real_if_close, call((3,)), by=lambda x: np.real_if_close(2 * x)),
    row(np.polyval, call((3,), (2,)), call((3,), ())),
    row(np.polyadd, call((3,), (2,))),
    row(np.polysub, call((2,), (3,))),
    row(np.polymul, call((2,), (3,))),
    row(
        np.polydiv,
        call((4,), (2,), domains=(real, nonzero)),
        by=lambda u, v: flat(*np.polydiv(u, v)),
        excused=ROUNDED,
    ),
    row(np.polyder, call((4,)), call((4,), m=2), excused=DOUBLE),
    row(np.polyint, call((3,)), call((3,), m=2, k=[1.0, 2.0]), excused=DOUBLE),
    row(np.vander, call((3,)), call((3,), N=2, increasing=True), excused=DOUBLE),
    row(np.poly, call((3,))),
    row(
        np.polyfit,
        call((6,), deg=2),
        by=lambda y, deg: np.polyfit(np.arange(6.0), y, deg),
        excused={**ROUNDED, **DOUBLE},
    ),
    row(
        np.polyfit,
        call((5,), (5,), domains=(distinct, real)),
        by=lambda x, y: np.polyfit(np.real(x), y, 1, w=[1.0, 2.0, 1.0, 0.5, 1.0]),
        excused={**ROUNDED, **DOUBLE},
    ),
    row(np.apply_along_axis, call((2, 3)), by=lambda x: np.apply_along_axis(np.sin, 0, x)),
    row(
        np.apply_along_axis,
        call((2, 3)),
        by=lambda x: np.apply_along_axis(lambda v: np.outer(v, v), 1, x),
    ),
    row(
        np.apply_over_axes,
        call((2, 3, 2)),
        by=lambda x: np.apply_over_axes(np.sum, x, [0, 2]),
        excused=ROUNDED,
    ),
]

ROWS = [*ARRANGING, *PADDING, *SELECTION, *STATISTICS, *CALCULUS]
NAMED = [
    pytest.param(r, id=f"{r.name}-{[s for s in ROWS if s.name == r.name].index(r)}") for r in ROWS
]
JUDGED = ("derivative", "adjoint", "second", "broadcast", "dtype", "pure")


def value_of(sample: Sample, exactly: bool) -> None:
    """The value equals NumPy's on arrays, for arrays, tracked and untracked tensors; to the last bit, or within rounding."""
    expected = np.asarray(sample.reference(*sample.operands, **sample.settings))
    tracked = laws.record(sample).out
    untracked = sample(
        *(tg.tensor(x) if t else x for x, t in zip(sample.operands, sample.tracked, strict=True))
    )
    assert isinstance(untracked, tg.Tensor) and not untracked.requires_grad
    assert isinstance(sample(*sample.operands), np.ndarray | np.generic | float | complex)
    for got in (tracked.detach().numpy(), untracked.numpy()):
        assert got.dtype == expected.dtype
        assert got.shape == expected.shape
        rtol = 0 if exactly else 64 * max(np.finfo(np.result_type(x)).eps for x in sample.variables)
        np.testing.assert_allclose(got, expected, rtol=rtol, atol=rtol)


@pytest.mark.filterwarnings("ignore:numpy.fix is deprecated")  # from NumPy 2.5 on
@pytest.mark.parametrize("row", NAMED)
def test_laws(row: Row) -> None:
    """Every sample call has NumPy's value, and derivatives that obey the laws, in all dtypes and memory layouts."""
    with warnings.catch_warnings():
        # Some are tried with complex numbers first.
        warnings.simplefilter("ignore", np.exceptions.ComplexWarning)
        samples = list(samples_from(row.function, row.calls))
    for sample in samples:
        if sample.variant in row.excused:
            continue
        value_of(sample, "value" not in row.excused)
        for law in laws.laws_of(sample):
            if law.name in JUDGED and law.name not in row.excused:
                law(sample)


# ------------------------------------------------------------------------------------------- special values


def gradient(f: Callable[..., Any], *xs: Any) -> Any:
    """Gradient of the sum of f, by all its arguments."""
    found = tg.grad(lambda *xs: np.sum(f(*xs)), tuple(range(len(xs))))(*map(np.asarray, xs))
    return found[0] if len(xs) == 1 else found


NAN = np.nan


@pytest.mark.parametrize(
    "f, x, expected",
    [
        # Ties share the gradient in max and its like, and go to where a stable sort puts an entry in everything that sorts.
        (np.nanmax, [2.0, 2.0, NAN, 1.0], [0.5, 0.5, 0, 0]),
        (np.nanmin, [-np.inf, NAN], [1, 0]),
        (np.ptp, [1.0, 3.0, 1.0], [-0.5, 1, -0.5]),
        (np.median, [1.0, 1.0, 1.0], [0, 1, 0]),
        (np.sort, [1.0, 1.0], [1, 1]),
        (lambda x: np.sort(x) * [1, 2], [1.0, 1.0], [1, 2]),
        (lambda x: np.unique(x) * 3, [2.0, 1.0, 2.0], [3, 3, 0]),
        (lambda x: np.maximum.accumulate(x), [1.0, 1.0, 3.0, 2.0], [1, 1, 2, 0]),
        # A NaN that does not count has no gradient, and takes none from the others.
        (np.nansum, [NAN, 1.0], [0, 1]),
        (np.nanmean, [NAN, 1.0, 3.0], [0, 0.5, 0.5]),
        (np.nanstd, [NAN, 2.0, 2.0], [0, 0, 0]),
        (np.nanprod, [NAN, 0.0, 3.0], [0, 3, 0]),
        (np.nancumsum, [1.0, NAN, 1.0], [3, 0, 1]),
        (np.nanmedian, [NAN, 5.0, 1.0, 2.0], [0, 0, 0, 1]),
        (lambda x: np.nan_to_num(x, posinf=1.0) ** 2, [NAN, np.inf, 3.0], [0, 0, 6]),
        (lambda x: np.sum(np.log(x), where=x > 0), [1.0, 0.5], [1, 2]),
        (lambda x: np.mean(x, where=np.array([True, False])), [1.0, np.inf], [1, 0]),
        # Products with zeros, by the products of the others.
        (np.cumprod, [2.0, 0.0, 3.0, 4.0], [1, 2 + 6 + 24, 0, 0]),
        (lambda x: np.cumprod(x) * [0, 0, 0, 1], [2.0, 0.0, 3.0, 4.0], [0, 24, 0, 0]),
        # Outside, interpolation is constant; at a sample, the slope to the right.
        (lambda x: np.interp(x, [0.0, 1.0, 2.0], [0.0, 2.0, 1.0]), [-1.0, 0.0, 1.0, 2.0, 3.0], [0, 2, -1, -1, 0]),
        (lambda x: np.interp(x, [1.0, 1.0], [0.0, 2.0]), [1.0], [0]),
        (np.sinc, [0.0, 1.0], [0, -1]),
        (np.modf, [1.5], [1]),
        (lambda x: np.frexp(x)[0], [8.0], [1 / 16]),
        (np.spacing, [1.5], [0]),
        (lambda x: np.round(x, 1), [0.25], [0]),
        (lambda x: np.max(x, initial=2.0), [2.0, 1.0], [0.5, 0]),
        (lambda x: np.max(x, initial=0.0, where=np.array([False, False])), [2.0, 1.0], [0, 0]),
        (lambda x: np.unwrap(x), [0.0, 3.5, 7.0], [1, 1, 1]),
        (lambda x: np.trim_zeros(x) ** 2, [0.0, 1.0, 0.0, 2.0, 0.0], [0, 2, 0, 4, 0]),
        (lambda x: np.piecewise(x, [x < 1, x < 2], [lambda v: v, lambda v: v * v]), [0.5, 1.5, 5.0], [2 * 0.5, 3, 0]),
    ],
)  # fmt: skip
def test_special_values(f: Callable[..., Any], x: list[float], expected: list[float]) -> None:
    """At ties, kinks, NaN and zeros: the subgradient that the module says."""
    got = gradient(lambda x: sum(map(np.sum, f(x))) if isinstance(f(x), tuple) else f(x), x)
    np.testing.assert_allclose(got, expected, rtol=1e-14, atol=0)


def test_piecewise_later_conditions_win() -> None:
    """As in NumPy, where two conditions hold the later function is evaluated, and has the gradient."""
    got = gradient(
        lambda x: np.piecewise(x, [x < 2, x < 1], [lambda v: v, lambda v: 5 * v]), [0.5, 1.5]
    )
    np.testing.assert_array_equal(got, [5.0, 1.0])


@pytest.mark.parametrize(
    "of",
    [np.nanmax, np.nanmean, np.nanvar, np.nanmedian, lambda x, axis: np.nanquantile(x, 0.5, axis)],
)
def test_lines_of_nan(of: Callable[..., Any]) -> None:
    """A line without a number gives NaN and NumPy's warning, no gradient, and leaves the other lines alone."""
    x = np.array([[NAN, NAN], [1.0, 2.0]])
    with pytest.warns(RuntimeWarning):
        value, pull = tg.vjp(lambda x: of(x, axis=1), x)
    assert np.isnan(value[0])
    (g,) = pull(np.array([1.0, 1.0]))
    assert not g[0].any()
    assert np.isfinite(g[1]).all()


@pytest.mark.parametrize(
    "f",
    [
        lambda x: np.roll(x, 1), lambda x: np.tile(x, 2), lambda x: np.repeat(x, 2), lambda x: np.pad(x, 1),
        np.sort, np.unique,
        np.diff, np.nansum, np.cumprod, np.nancumsum, lambda x: np.take_along_axis(x, np.zeros(0, int), 0), np.ediff1d,
        lambda x: np.insert(x, 0, 1.0), lambda x: np.polyval(np.ones(2), x),
        lambda x: np.interp(x, [0.0, 1.0], [0.0, 1.0]), np.sinc,
        lambda x: np.linspace(x, 2.0, 3), lambda x: np.kron(x, np.ones(2)),
        lambda x: np.einsum("i,i", x, x), np.vander,
    ],
)  # fmt: skip
def test_empty(f: Callable[..., Any]) -> None:
    """Without entries there is still a value of NumPy's shape, and a gradient without entries."""
    x = np.zeros(0)
    value, pull = tg.vjp(f, x)
    assert np.shape(value) == np.shape(f(x))
    assert pull(np.ones(np.shape(value)))[0].shape == (0,)


def test_roots() -> None:
    """Roots are differentiated by the implicit function theorem, to second order; complex pairs too."""
    for p in (
        np.array([2.0, -3.0, -4.0, 1.0]),
        np.array([1.0, 0.5, 2.0]),
        np.array([1.0, -2.0, 0.0]),
    ):
        weights = np.arange(1.0, len(p))

        def f(p: Any, w: Any = weights) -> Any:
            return np.sum(w * np.abs(np.roots(p) - 0.3) ** 2)

        g = tg.grad(f)(p)
        h = 1e-5
        units = h * np.eye(len(p))
        np.testing.assert_allclose(g, [(f(p + u) - f(p - u)) / (2 * h) for u in units], rtol=1e-7)
        second = [(tg.grad(f)(p + u) - tg.grad(f)(p - u)) / (2 * h) for u in units]
        np.testing.assert_allclose(tg.hessian(f)(p), second, rtol=1e-6, atol=1e-8)
    with pytest.raises(NotDifferentiable, match="roots"):
        np.roots(tg.tensor([0.0, 1.0, 2.0], requires_grad=True))


def test_linspace_and_meshgrid_of_several() -> None:
    """Functions of several results give a tuple, as NumPy's do."""
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    assert isinstance(np.atleast_2d(x, np.ones(2)), tuple)
    assert [g.shape for g in np.meshgrid(x, x, np.ones(3), indexing="ij")] == [(2, 2, 3)] * 3
    assert [s.shape for s in np.split(x, 2)] == [(1,), (1,)]


def test_where_with_a_condition_alone() -> None:
    """It tells the places where the condition holds, as constants."""
    x = tg.tensor([0.0, 3.0, 0.0, 1.0], requires_grad=True)
    (places,) = np.where(x)
    assert places.tolist() == [1, 3]
    assert not places.requires_grad
    assert tg.where(np.array([False, True]))[0].tolist() == [1]
    with pytest.raises(ValueError, match="both or neither"):
        tg.where(x > 0, x)


def test_divmod_and_round_of_tensors() -> None:
    """Python's own functions reach the same rules."""
    x = tg.tensor([2.75, -1.25], requires_grad=True)
    quotient, rest = divmod(x, 1.0)
    assert quotient.tolist() == [2.0, -2.0]
    assert divmod(7.0, x)[0].tolist() == [2.0, -6.0]
    assert round(x).tolist() == [3.0, -1.0]
    (rest + quotient + round(x, 1)).sum().backward()
    assert x.grad.tolist() == [1.0, 1.0]


def test_unique_names_its_results() -> None:
    """Counts and inverses are constants beside differentiable values, in NumPy's named tuples."""
    x = tg.tensor([2.0, 1.0, 2.0], requires_grad=True)
    found = np.unique_all(x)
    assert found.values.requires_grad
    assert not found.counts.requires_grad
    values, counts = np.unique(x, return_counts=True)
    assert values.requires_grad
    assert counts.tolist() == [1, 2]


# ----------------------------------------------------------------------------------------- in place, and ufuncs


@pytest.mark.parametrize(
    "write, expected",
    [
        (lambda t, v: np.copyto(t, v), [1, 1, 1]),
        (lambda t, v: np.copyto(t, v, where=[True, False, True]), [1, 0, 1]),
        (lambda t, v: np.put(t, [0, 2, 0], v), [0, 1, 1]),
        (lambda t, v: np.place(t, [False, True, True], v), [1, 1, 0]),
        (lambda t, v: np.putmask(t, np.array([False, True, True]), v), [0, 1, 1]),
        (lambda t, v: np.put_along_axis(t, np.array([2, 0, 1]), v, 0), [1, 1, 1]),
        (lambda t, v: np.put(t, [1], v[2]), [0, 0, 1]),
        (lambda t, v: np.add.at(t, np.array([0, 0, 1]), v), [1, 1, 1]),
        (lambda t, v: np.subtract.at(t, 2, v[1]), [0, -1, 0]),
    ],
)  # fmt: skip
def test_writing_into_a_tensor(write: Callable[..., Any], expected: list[float]) -> None:
    """NumPy's functions that overwrite an array overwrite a tensor too, recorded; into a plain array they are refused."""
    values = np.array([5.0, 6.0, 7.0])
    plain, v = np.ones(3), tg.tensor(values, requires_grad=True)
    write(plain, values)
    t = tg.ones(3)
    write(t, v)
    np.testing.assert_array_equal(t.detach().numpy(), plain)
    t.sum().backward()
    np.testing.assert_array_equal(v.grad.numpy(), expected)
    with pytest.raises(GradientLost, match="plain array"):
        write(np.ones(3), v)


def test_fill_diagonal() -> None:
    """The diagonal of a tensor is overwritten, and gives its gradient to the new values."""
    v = tg.tensor(3.0, requires_grad=True)
    t = tg.zeros(3, 3)
    np.fill_diagonal(t, v)
    assert t.detach().numpy().trace() == 9.0
    t.sum().backward()
    assert v.grad.item() == 3.0


@pytest.mark.parametrize(
    "of, settings",
    [
        (np.add.reduce, {}), (np.add.reduce, {"axis": None}), (np.multiply.reduce, {"axis": 1}),
        (np.maximum.reduce, {"keepdims": True}),
        (np.fmin.reduce, {}), (np.logaddexp.reduce, {"axis": 1}), (np.add.accumulate, {}),
        (np.multiply.accumulate, {"axis": 1}),
        (np.minimum.accumulate, {"axis": 1}), (lambda x: np.add.reduceat(x, [0, 2, 1], axis=1), {}),
        (np.add.reduce, {"initial": 2.0}),
        (lambda x: np.multiply.outer(x, x[0]), {}),
    ],
)  # fmt: skip
def test_ufunc_methods(of: Callable[..., Any], settings: dict[str, Any]) -> None:
    """Methods of ufuncs are differentiated where they are sums, products, extrema or scans."""
    test_laws(row(np.add, call(SPREAD[:2]), by=lambda x: of(x, **settings), excused=ROUNDED))


# ----------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    "f, name, what",
    [
        (lambda t: np.histogram(t), "histogram", "edge"),
        (lambda t: np.histogram2d(t, t), "histogram2d", "edge"),
        (lambda t: np.histogramdd(t[:, None]), "histogramdd", "edge"),
        (lambda t: np.histogram_bin_edges(t), "histogram_bin_edges", "linspace"),
        (lambda t: np.quantile(np.ones(3), t[0]), "quantile", "q"),
        (lambda t: np.unwrap(t, period=t[0]), "unwrap", "period"),
        (lambda t: np.pad(t, 1, mode=lambda *a: None), "pad", "mode"),
        (lambda t: np.pad(t, 1, constant_values=t[0]), "pad", "constant_values"),
        (lambda t: np.insert(np.arange(3), 0, t), "insert", "int64"),
        (lambda t: np.polyfit(np.arange(3.0), t, 1, full=True), "polyfit", "full"),
        (lambda t: np.nan_to_num(t, copy=False), "nan_to_num", "copy"),
        (lambda t: np.einsum("i,i", t, t, dtype=np.float32), "einsum", "dtype"),
        (lambda t: np.sort(t, order="x"), "sort", "order"),
        (lambda t: np.median(t, out=np.zeros(())), "median", "out"),
        (lambda t: np.einsum("i,i", t, t, out=np.zeros(())), "einsum", "out"),
        (lambda t: np.maximum.reduceat(t, [0, 1]), "maximum.reduceat", "rule"),
        (lambda t: np.multiply.at(np.ones(3), [0], t[:1]), "multiply.at", "plain array"),
    ],
)  # fmt: skip
def test_refusals(f: Callable[..., Any], name: str, what: str) -> None:
    """What has no derivative here raises, naming the function and what cannot be; without tracking it is NumPy's."""
    t = tg.tensor([0.5, 2.0, 1.0], requires_grad=True)
    with pytest.raises((NotDifferentiable, GradientLost), match=rf"{name}[\s\S]*{what}"):
        f(t)


def test_untracked_arguments_are_settings() -> None:
    """Tensors that are not tracked may stand anywhere."""
    t, k = tg.tensor([3.0, 1.0, 2.0], requires_grad=True), tg.tensor([2, 0, 1])
    assert np.take_along_axis(t, k, 0).tolist() == [2.0, 3.0, 1.0]
    assert np.quantile(t, tg.tensor(0.5)).item() == 2.0
    assert np.median(t.detach(), out=None).item() == 2.0
    with tg.no_grad():
        out = np.zeros(())
        np.median(t, out=out)
    assert out == 2.0


def test_vectorize() -> None:
    """A function of numbers, mapped over entries that broadcast; each call is recorded."""

    def root(a: Any, b: Any, kind: str = "sqrt") -> Any:
        return (np.sqrt(a) if a > b else b * b), a

    f = tg.vectorize(root, excluded={"kind"})
    x, y = np.array([4.0, 0.5]), np.array([[1.0], [3.0]])
    assert [v.shape for v in f(x, y)] == [(2, 2), (2, 2)]
    gx, gy = gradient(lambda x, y: f(x, y, kind="sqrt")[0], x, y)
    np.testing.assert_allclose(gx, [0.5, 0.0])
    np.testing.assert_allclose(gy, [[2.0], [6.0]])


# ------------------------------------------------------------------------------------------------- buckets


@pytest.mark.parametrize("namespace", vocabulary.NAMESPACES)
def test_buckets(namespace) -> None:
    """Each public function is differentiable, constant, refused with a reason, or not about arrays: exactly one."""
    entries = vocabulary.entries(namespace)
    least = {"numpy": 230, "numpy.linalg": 28, "numpy.fft": 16, "scipy.special": 150}
    assert sum(e.bucket == "differentiable" for e in entries.values()) >= least[namespace]
    assert all(len(e.reason) > 10 for e in entries.values() if e.bucket == "refused")


def test_a_function_in_no_bucket_is_found() -> None:
    rule = FUNCTIONS.pop(np.ptp)
    vocabulary.entries.cache_clear()
    try:
        with pytest.raises(LookupError, match=r"numpy\.ptp is in no bucket"):
            vocabulary.entries("numpy")
        FUNCTIONS[np.ptp] = rule
        CONSTANTS.add(np.ptp)
        with pytest.raises(LookupError, match="differentiable and constant"):
            vocabulary.entries("numpy")
    finally:
        FUNCTIONS[np.ptp] = rule
        CONSTANTS.discard(np.ptp)
        vocabulary.entries.cache_clear()


REFUSED_CALLS = {
    "ellip_harm": (8.0, 5.0, 1, 1), "ellip_harm_2": (8.0, 5.0, 1, 1), "ellip_normal": (8.0, 5.0, 1),
    "lmbda": (1.5,), "lqmn": (1, 1), "lqn": (1,), "pbdv_seq": (1.0,), "pbvv_seq": (1.0,), "riccati_jn": (2,), "riccati_yn": (2,), "pbdn_seq": (1,),
    "mathieu_even_coef": (1,), "mathieu_odd_coef": (1,), "obl_cv_seq": (1, 2), "pro_cv_seq": (1, 2), "legendre_p": (2,), "legendre_p_all": (2,),
    "assoc_legendre_p": (2, 1), "assoc_legendre_p_all": (2, 1), "sph_legendre_p": (2, 1), "sph_legendre_p_all": (2, 1),
    "sph_harm_y": (2, 1, 0.5), "sph_harm_y_all": (2, 1, 0.5),
}  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        n
        for n, e in vocabulary.entries("scipy.special").items()
        if e.bucket == "refused" and not isinstance(getattr(special, n), np.ufunc)
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_is_refused_raises(name) -> None:
    """Functions of SciPy's that are no ufuncs: a tracked tensor is refused, or followed after all, but not lost."""
    of = getattr(special, name)
    t = tg.tensor(0.5, requires_grad=True)
    args = {"diric": (t, 3), "comb": (t, 1), "perm": (t, 1), "factorialk": (t, 2)}.get(name)
    try:
        result = of(*(args or (*REFUSED_CALLS.get(name, ()), t)))
    except (TypeError, ValueError, tg.TapegradError):  # SciPy asks some for plain numbers
        return
    assert result.requires_grad


def test_the_page_shows_the_table() -> None:
    """The page is `python -m tapegrad vocabulary --update PAGE`, of the versions that the page names."""
    page = Path(__file__).parent.parent / "notebooks" / "reference" / "vocabulary.md"
    text = page.read_text(encoding="utf-8")
    shown = documents.part(text, "vocabulary")
    generated = vocabulary.table()
    if shown.splitlines()[0] != generated.splitlines()[0]:
        pytest.skip("the page is of other versions of NumPy and SciPy")
    assert shown == generated, (
        "run python -m tapegrad vocabulary --update notebooks/reference/vocabulary.md"
    )


def test_public_names_are_numpys() -> None:
    """`tg.f` is what `np.f` of a tensor reaches, under NumPy's parameters."""
    import inspect

    made_here = {
        "linspace",
        "full_like",
        "zeros_like",
        "ones_like",
        "empty_like",
    }  # these make tensors
    for name, entry in vocabulary.entries("numpy").items():
        if entry.bucket != "differentiable":
            continue
        of = getattr(np, name)
        ours = FUNCTIONS.get(of) or UFUNCS.get(of)
        if name not in made_here:
            assert getattr(tg, name) is ours, name
        if hasattr(ours, "operands") and not isinstance(of, np.ufunc):
            try:
                theirs = inspect.signature(of).parameters
            except ValueError:
                continue
            mine = inspect.signature(ours).parameters
            assert [p for p in theirs if p in mine] == [p for p in mine if p in theirs], name
            assert ours.operands <= set(theirs), name


@pytest.mark.parametrize("f", [np.cov, np.corrcoef], ids=["cov", "corrcoef"])
def test_moments_have_the_dtype_that_was_asked_for(f):
    rows = np.cos(np.arange(8.0)).reshape(2, 4).astype(np.float32)
    for given in (None, np.float32):
        ours = f(tg.tensor(rows, requires_grad=True), dtype=given)
        assert ours.dtype == f(rows, dtype=given).dtype


@pytest.mark.parametrize(
    "subscripts",
    ["ij,jk,kl->li", "i,j,k->kij", "ij,ij,ij->j", "bi,bj,ijk->kb", "a,ab,b->", "ij,jk,kl,lm->im", "ij,kj,k", "...i,ij,...j->...", "i,ij,kl->k"],
)  # fmt: skip
@pytest.mark.parametrize("optimize", [False, True, "optimal", ["einsum_path", (0, 1), (0, 1)]])
def test_many_operands_are_multiplied_in_an_order_of_numpys(monkeypatch, subscripts, optimize):
    """Of large ones; the value is NumPy's, and the derivatives are those of one loop over all indices."""
    parts = subscripts.split("->")[0].split(",")
    if isinstance(optimize, list) and len(parts) > 3:
        optimize = [*optimize[:1], (1, 2), (0, 1), (0, 1)]
    rng = np.random.default_rng(3)
    sizes = dict(zip("abijklm.", (2, 3, 3, 4, 2, 3, 2, 5), strict=True))
    xs = [rng.normal(size=[sizes[c] for c in part.replace("...", ".")]) for part in parts]

    def f(*xs):
        return np.sum(np.sin(np.einsum(subscripts, *xs, optimize=optimize)))

    everything = tuple(range(len(xs)))
    found = []
    for directly in (10**9, 0):
        monkeypatch.setattr(calculus, "DIRECTLY", directly)
        calculus._order_of_products.cache_clear()
        tracked = tg.tensor(xs[0], requires_grad=True)
        made = np.einsum(subscripts, tracked, *xs[1:], optimize=optimize)
        np.testing.assert_allclose(made.detach(), np.einsum(subscripts, *xs), rtol=1e-13)
        second = tg.hvp(lambda x: f(x, *xs[1:]))(xs[0], np.ones_like(xs[0]))
        found.append([*tg.grad(f, argnums=everything)(*xs), second])
    for direct, in_order in zip(*found, strict=True):
        np.testing.assert_allclose(in_order, direct, rtol=1e-11, atol=1e-13)
    calculus._order_of_products.cache_clear()


def test_subtracting_a_truth_value_at_places() -> None:
    """NumPy has no minus of truth values, but this."""
    t = tg.ones(3) * 2.0
    np.subtract.at(t, [0, 0], np.True_)
    np.subtract.at(t, [1], t[2:] > 1.0)
    expected = np.full(3, 2.0)
    np.subtract.at(expected, [0, 0], np.True_)
    np.subtract.at(expected, [1], True)
    np.testing.assert_array_equal(t.numpy(), expected)
