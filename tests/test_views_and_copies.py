"""What is a view in NumPy sees later writes here, and what is a copy does not: in every engine, or the program is refused."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided, sliding_window_view

import tapegrad as tg
from tapegrad.core.storage import kept

X = np.arange(24.0).reshape(2, 3, 4) * 0.37 % 3.1 + 0.2

LAYOUTS = {
    "rows": lambda x: x * 1.0,
    "columns": lambda x: np.transpose(np.transpose(x, (2, 1, 0)) * 1.0, (2, 1, 0)),
    "axes in another order": lambda x: np.transpose(x, (1, 2, 0)) * 1.0,
    "with gaps": lambda x: (x * 1.0)[:, 1:, ::2],
    "backwards": lambda x: (x * 1.0)[::-1],
    "swapped": lambda x: np.swapaxes(x * 1.0, 0, 1),
    "a matrix": lambda x: (x * 1.0)[0],
    "a matrix of columns": lambda x: (x * 1.0)[0].T,
    "a block of a matrix": lambda x: (x * 1.0)[1][::2, 1:],
    "a row": lambda x: (x * 1.0)[0, 1],
    "a column": lambda x: (x * 1.0)[0, :, 1],
}

TAKEN = {
    "diagonal": lambda y: np.diagonal(y),
    "diagonal of swapped axes": lambda y: np.diagonal(y, 1, 1, 0),
    "diagonal of the last axes": lambda y: y.diagonal(-1, -1, -2),
    "part of a diagonal": lambda y: np.diagonal(y)[1:],
    "diag": np.diag,
    "einsum ji": lambda y: np.einsum("...ij->...ji", y),
    "einsum ii": lambda y: np.einsum("...ii->...i", y),
    "einsum iij": lambda y: np.einsum("iij->ij", y[:, : y.shape[0]]),
    "einsum jii": lambda y: np.einsum("jii->ij", y[:, :2, :2]),
    "einsum iii": lambda y: np.einsum("iii->i", y[:2, :2, :2]),
    "broadcast_to": lambda y: np.broadcast_to(y, (2, *np.shape(y))),
    "broadcast_arrays": lambda y: np.broadcast_arrays(y, np.zeros((3, *np.shape(y))))[0],
    "windows": lambda y: sliding_window_view(y, 2, 0),
    "windows of the last axis": lambda y: sliding_window_view(y, (2,), -1),
    "flip": np.flip,
    "rot90": np.rot90,
    "rot90 twice": lambda y: np.rot90(y, 2),
    "rot90 of the last axes": lambda y: np.rot90(y, 1, (1, 2)),
    "rollaxis": lambda y: np.rollaxis(y, 1),
    "moveaxis": lambda y: np.moveaxis(y, 0, -1),
    "matrix_transpose": np.matrix_transpose,
    "transpose": np.transpose,
    "squeeze": lambda y: np.squeeze(y[..., :1]),
    "atleast_2d": np.atleast_2d,
    "atleast_3d": np.atleast_3d,
    "ravel": np.ravel,
    "ravel F": lambda y: np.ravel(y, "F"),
    "flatten": lambda y: y.flatten(),
    "reshape": lambda y: np.reshape(y, (-1, np.shape(y)[-1])),
    "reshape F": lambda y: np.reshape(y, -1, order="F"),
    "split": lambda y: np.split(y, [1])[0],
    "array_split": lambda y: np.array_split(y, 2)[1],
    "hsplit": lambda y: np.hsplit(y, [1])[0],
    "first in turn": lambda y: next(iter(y)),
    "real": np.real,
    "real_if_close": np.real_if_close,
    "astype": lambda y: y.astype(float),
    "astype without a copy": lambda y: y.astype(float, copy=False),
    "trim_zeros": np.trim_zeros,
    "meshgrid": lambda y: np.meshgrid(y, y[:2], copy=False)[0],
    "meshgrid copied": lambda y: np.meshgrid(y, y[:2])[1],
    "ix_": lambda y: y[np.ix_(*[[0, 1]] * np.ndim(y))],
    "slice": lambda y: y[..., ::-2],
    "new axis": lambda y: y[:, None],
    "row": lambda y: y[0],
    "entry": lambda y: y[(0,) * np.ndim(y)],
    "entry with an ellipsis": lambda y: y[(*(0,) * np.ndim(y), ...)],
    "index array": lambda y: y[[0, 1]],
    "mask": lambda y: y[y > -9.0],
    "take": lambda y: np.take(y, 0, axis=0),
    "compress": lambda y: np.compress([True, True], y, axis=0),
    "conj": np.conj,
    "tile": lambda y: np.tile(y, 1),
    "repeat": lambda y: np.repeat(y, 1),
    "roll": lambda y: np.roll(y, 0),
    "resize": lambda y: np.resize(y, np.shape(y)),
    "concatenate": lambda y: np.concatenate([y]),
    "block": np.block,
    "delete": lambda y: np.delete(y, [], axis=0),
    "pad": lambda y: np.pad(y, 0),
    "sum of no axes": lambda y: np.sum(y, axis=()),
    "where": lambda y: np.where(True, y, y),
    "choose": lambda y: np.choose(0, [y, y]),
    "clip": lambda y: np.clip(y, -9.0, 9.0),
    "plus": lambda y: +y,
    "flat": lambda y: y.flat[:3],
    "view": lambda y: y.T.view().T,
}  # fmt: skip

WRITES = {
    "entry": lambda y: y.__setitem__((0,) * np.ndim(y), 5.0),
    "everywhere": lambda y: y.__setitem__(..., 4.0),
    "row": lambda y: y.__setitem__(-1, 3.0),
    "product": lambda y: y.__imul__(3.0),
    "mask": lambda y: y.__setitem__(y > 2.0, 2.0),
}

NONE = (ValueError, TypeError, IndexError, AttributeError, DeprecationWarning)

REFUSALS = (ValueError, TypeError, tg.TraceError, tg.GraphError, tg.NotDifferentiable)


def weighed(y):
    n = np.arange(np.size(y)) + 1.0
    return np.sum(y * np.cos(n * n).reshape(np.shape(y)))


@pytest.mark.long(but=16)
@pytest.mark.parametrize("name", sorted(TAKEN, key=len, reverse=True))
def test_views_show_what_is_written_and_copies_do_not(name):
    """Each function at every layout, with another kind of write each time, to the array or to what was taken from it."""
    tried = 0
    writes = itertools.cycle(WRITES.items())
    for (layout, laid), to_base in itertools.product(LAYOUTS.items(), (True, False)):
        written, write = next(writes)

        def f(x, laid=laid, write=write, to_base=to_base):
            y = laid(x)
            part = TAKEN[name](y)
            write(y if to_base else part)
            return weighed(y) + 2.0 * weighed(part)

        try:  # NumPy may have no such diagonal, or no such write
            value = f(X)
        except NONE:
            continue
        slopes = np.zeros(X.shape)
        for i in np.ndindex(X.shape):
            near = X.copy()
            near[i] += 2.0**-20
            slopes[i] = (f(near) - value) * 2.0**20
        for engine in (tg.value_and_grad(f), tg.compile(tg.value_and_grad(f)), _of_a_leaf(f)):
            try:
                found, gradient = engine(X)
            except REFUSALS:
                continue
            tried += 1
            said = f"{layout}, {written}, {'array' if to_base else 'part'} written"
            np.testing.assert_allclose(found, value, rtol=1e-12, err_msg=said)
            np.testing.assert_allclose(gradient, slopes, rtol=1e-6, atol=1e-6, err_msg=said)
    assert tried >= 4


def _of_a_leaf(f):
    def run(x):
        t = tg.tensor(x, requires_grad=True)
        out = f(t)
        out.backward()
        return out.item(), t.grad.numpy()

    return run


@pytest.mark.parametrize(
    "shown",
    [
        lambda a: sliding_window_view(a, 3),
        lambda a: sliding_window_view(a, 3, writeable=True),
        lambda a: as_strided(a, (a.size - 2, 3), 2 * a.strides),
        lambda a: np.asarray(memoryview(a)),
        lambda a: np.frombuffer(a),
        np.from_dlpack,
    ],
    ids=["windows", "writeable windows", "strides", "memoryview", "buffer", "DLPack"],
)
@pytest.mark.parametrize("n", [10, 100_000])
def test_constants_that_show_the_memory_of_an_array(shown, n):
    """What is computed is that of the values when it was recorded, or the later write is refused; the lock opens again."""
    a = np.arange(float(n)) + 1.0
    constant = shown(a)
    flags = a.flags.writeable, constant.flags.writeable
    expected = constant.copy()
    x = tg.tensor(np.ones(constant.shape), requires_grad=True)
    y = (x * constant).sum()
    try:
        a[:] = 0.0
    except ValueError as error:
        assert "read-only" in str(error)
    y.backward()
    np.testing.assert_array_equal(x.grad, expected)
    x.grad = y = None
    assert (a.flags.writeable, constant.flags.writeable) == flags
    a[:] = 0.0


def test_a_lock_that_would_never_open_is_a_copy():
    a = np.from_dlpack(np.arange(1e5))
    if not a.flags.writeable:
        pytest.skip("this NumPy gives read-only arrays")
    held = kept(a)
    a[0] = 7.0
    assert held[0] == 0.0


@pytest.mark.parametrize("axes", [(0, 1), (1, 0), (0, 2), (2, 1)])
def test_a_diagonal_that_no_stride_of_a_reshape_leads_along_is_a_view(axes):
    x = tg.tensor(X, requires_grad=True)
    y = np.transpose(x, (1, 2, 0)) * x[0, 0, 0]
    d = np.diagonal(y, 1, *axes)
    y[0] = x[1, 2, 3] * 2.0
    np.testing.assert_array_equal(d.detach(), np.diagonal(y.detach().numpy(), 1, *axes))
    product = (d * d).sum()
    y[1:] = 0.0
    with pytest.raises(tg.GraphError, match="modified by an in"):
        product.backward()
