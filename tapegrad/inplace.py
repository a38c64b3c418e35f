"""In-place operations: `y += z`, `y[i] = z`.

On a value that nothing tracks they are NumPy's own. On a recorded result the operation is recorded out of place and the
tensor then stands for the new entry; its memory is overwritten too, so that whoever shares it sees the change, and the tape is told
(`storage.touch`), so that a derivative which still needs the old value raises instead of using the new one.
A leaf that requires grad is refused, as in PyTorch, except under `no_grad`.
"""

from __future__ import annotations

from collections.abc import Callable
from sys import getrefcount
from typing import Any

import numpy as np

from . import storage
from .errors import GraphError
from .mode import is_grad_enabled
from .ops import joining
from .ops.indexing import _is_basic, _plain_index
from .ops.products import matmul
from .ops.shaping import reshape
from .primitive import OPS, UFUNCS, apply, call, constant, primitive
from .tape import IN0, OP, OUT, SLOT, STRIDE, Leaf, Tape, current, locate
from .tensor import Tensor


def before_write(t: Tensor, name: str) -> None:
    """Check that `t` may be overwritten, and note that it was. Called before the write."""
    if type(t._node) is Leaf and is_grad_enabled():
        raise GraphError(
            f"a leaf Variable that requires grad is being used in an in-place operation ({name}): its gradient would be "
            "that of a value it no longer has. Update it inside `with tg.no_grad():`, or work on t.clone()."
        )
    data = t._data
    if isinstance(data, np.ndarray):
        if not data.flags.writeable:
            raise ValueError(f"{name} would write to a read-only array: write to t.clone().")
        storage.touch(data)


def _alone() -> int:
    """What getrefcount says of an array that one tensor holds and nobody else."""
    t = Tensor()
    t._data = np.zeros(1)
    return getrefcount(t._data)


_ALONE = _alone()


def _shared(t: Tensor) -> bool:
    """Whether somebody beside this tensor (and the tape) holds its memory: a view, the tensor it is a view of, a plain array."""
    held = getrefcount(t._data) - _ALONE
    base = t._data.base
    if isinstance(base, np.ndarray):
        if isinstance(base.base, np.ndarray):
            return True
        held += getrefcount(base) - _ALONE - 1  # the name `base`
    return held > 0 and held > _saved(current(), t._data, base)


def _saved(tape: Tape, array: np.ndarray, base: Any) -> int:
    """How often the tape's entries hold this array, or the one it is a view of, as a value."""
    count = 0
    for value in tape.code:
        for item in value if type(value) is tuple else (value,):
            count += item is array or (item is base and base is not None)
    return count


def _refuse_aliases(t: Tensor, name: str) -> None:
    """A tensor that shares memory cannot become, or be rewritten as, a recorded result: the others' history would be stale."""
    if not isinstance(t._data, np.ndarray):
        return
    if t._node is None:
        if _shared(t):
            raise GraphError(
                f"{name} would store a tracked value into memory that a view, the tensor it is a view of, or a plain array "
                "shares with this one: they would see the value without its gradient. Index the whole in one step "
                "(t[0, 1] = y, not t[0][1] = y), or take a clone() first."
            )
        return
    place = locate(t._node)
    if place is None:
        return
    tape, position = place
    is_view = OPS[tape.code[position * STRIDE + OP]].view and t._data.base is not None
    if not is_view and _has_views(t, tape.code, position):
        tape.sweep()  # what holds a view may itself be dead
        position = tape.find(t._node) or 0
    if is_view or _has_views(t, tape.code, position):
        raise GraphError(
            f"{name} would overwrite a tracked tensor that shares memory with "
            f"{'the tensor it is a view of' if is_view else 'a view of it'}, whose gradient would then be wrong. Write "
            "it out of place (y = y + z), or take a clone() first."
        )


def _has_views(t: Tensor, code: list[Any], position: int) -> bool:
    """Whether a view of this value, which was recorded after it at `position`, is still held."""
    return any(
        code[k + IN0] is t._node
        and OPS[code[k + OP]].view
        and _shares(code[k + OUT])
        and _held(code[k + SLOT])
        for k in range((position + 1) * STRIDE, len(code), STRIDE)
    )


def _shares(out: Any) -> bool:
    """Whether a result can share memory with what it was made from: a NumPy scalar, or an array of its own, cannot."""
    return isinstance(out, np.ndarray) and out.base is not None


def _held(slot: int) -> bool:
    # The column, the argument here and getrefcount's own: anything above is a tensor or a later entry.
    return getrefcount(slot) > 3


def _replace(t: Tensor, result: Tensor, name: str) -> Tensor:
    """Let `t` stand for `result`: same memory as before, new value, new history."""
    if result.shape != t.shape:
        raise RuntimeError(
            f"{name} would change the shape of the tensor from {t.shape} to {result.shape}: output with shape {t.shape} "
            f"doesn't match the broadcast shape {result.shape}. Write it out of place."
        )
    if not np.can_cast(result.dtype, t.dtype, "same_kind"):
        raise RuntimeError(
            f"result type {result.dtype} can't be cast to the desired output type {t.dtype}: write {name} out of place."
        )
    if result.dtype != t.dtype:
        result = result.astype(t.dtype)
    _refuse_aliases(t, name)
    if isinstance(t._data, np.ndarray) and t._data.ndim:
        before_write(t, name)
        np.copyto(t._data, result._data)
    else:
        t._data = result._data
    before, t._node = t._node, result._node
    if t.retains_grad:
        from .executors import retain

        retain(t, before)
    return t


def _beforehand(t: Tensor, function: Callable[..., Any], other: Any) -> Any:
    """`function(t, other)` just before `t` is overwritten: a rule that needs its old value is given a copy of it."""
    needs: set[str] = set()
    for operand, needed in zip((t, other), function.primitive.needs, strict=True):
        if isinstance(operand, Tensor) and operand._node is not None:
            needs |= needed
    wanted = "x" in needs or (other is t and "y" in needs)
    if wanted and isinstance(t._data, np.ndarray) and t._data.ndim:
        before = Tensor()
        before._data, before._node = np.array(t._data), t._node
        return function(before, before if other is t else other)
    return function(t, other)


def _operator(
    name: str, ufunc: np.ufunc, function: Callable[..., Any] | None
) -> Callable[..., Any]:
    def method(self: Tensor, other: Any) -> Any:
        other_node = other._node if isinstance(other, Tensor) else None
        if is_grad_enabled() and (self._node is not None or other_node is not None):
            if type(self._node) is Leaf:
                before_write(self, name)
            result = NotImplemented if function is None else _beforehand(self, function, other)
            return result if result is NotImplemented else _replace(self, result, name)
        raw = other._data if isinstance(other, Tensor) else constant(other, name)
        if not isinstance(self._data, np.ndarray):
            value = ufunc(self._data, raw)
            if np.shape(value) != ():
                raise RuntimeError(
                    f"{name} would change the shape of the tensor from () to {np.shape(value)}: write it out of place."
                )
            if not np.can_cast(value.dtype, self._data.dtype, "same_kind"):
                raise RuntimeError(
                    f"result type {value.dtype} can't be cast to the desired output type {self._data.dtype}: write {name} "
                    "out of place."
                )
            self._data = value.astype(self._data.dtype)
            return self
        before_write(self, name)
        ufunc(self._data, raw, out=self._data, casting="same_kind")
        return self

    method.__name__ = method.__qualname__ = f"__{name}__"
    method.__doc__ = f"In-place {ufunc.__name__}."
    return method


_ufunc: Any
for _name, _ufunc in {
    "iadd": np.add, "isub": np.subtract, "imul": np.multiply, "itruediv": np.divide, "ipow": np.power,
    "imod": np.remainder, "ifloordiv": np.floor_divide,
}.items():  # fmt: skip
    setattr(Tensor, f"__{_name}__", _operator(_name, _ufunc, UFUNCS[_ufunc]))


for _name, _ufunc in {
    "iand": np.bitwise_and, "ior": np.bitwise_or, "ixor": np.bitwise_xor, "ilshift": np.left_shift, "irshift": np.right_shift,
}.items():  # fmt: skip
    setattr(
        Tensor, f"__{_name}__", _operator(_name, _ufunc, None)
    )  # of integers and booleans, which are never tracked


def _matmul_in_place(self: Tensor, other: Any) -> Tensor:
    """In-place matrix product; the shape must stay."""
    other_node = other._node if isinstance(other, Tensor) else None
    if is_grad_enabled() and (self._node is not None or other_node is not None):
        if type(self._node) is Leaf:
            before_write(self, "imatmul")
        return _replace(self, _beforehand(self, matmul, other), "imatmul")
    product = self._data @ (
        other._data if isinstance(other, Tensor) else constant(other, "imatmul")
    )
    if product.shape != self.shape:
        raise RuntimeError(
            f"imatmul would change the shape of the tensor from {self.shape} to {product.shape}: write it out of place."
        )
    before_write(self, "imatmul")
    np.copyto(self._array(), product)
    return self


Tensor.__imatmul__ = _matmul_in_place


# ------------------------------------------------------------------------------------------------ y[index] = value


def _put(x: np.ndarray, y: Any, index: Any) -> np.ndarray:
    out = np.array(x)
    out[index] = y
    return out


def _put_y(g, y_shape, *, index):
    """Cotangent of the stored value: what arrives where it was stored, summed over broadcasting."""
    picked = g[index]
    if not _is_basic(index):
        # Of several values stored at one place the last one stays, and the others have no influence.
        order = np.arange(picked.size).reshape(picked.shape)
        last = np.empty(g.shape, order.dtype)
        last[index] = order
        picked = picked * (last[index] == order)
    extra = np.ndim(picked) - len(y_shape)
    return np.sum(picked, axis=tuple(range(extra))) if extra > 0 else picked


@primitive(
    _put,
    _put_y,
    name="setitem",
    backward=lambda x, y, kw: "CopySlices",
    samples=[
        call((4,), (), index=1),
        call((4, 2), (2,), index=slice(1, 3)),
        call((3, 2), (2, 2), index=np.array([0, 2])),
        call((3,), (2,), index=np.array([True, False, True])),
    ],
    jvp=lambda ts, xs, out, index: _put_tangent(ts, xs, index),
    unsupported={
        "mixed": "storing a complex number into a real array drops its imaginary part, and NumPy warns"
    },
)
def setitem(g, *, index):
    """A copy of x with y stored at `index`."""
    return put(g, 0.0, index)


put = setitem


def _put_tangent(ts: Any, xs: Any, index: Any) -> Any:
    x = np.zeros(np.shape(xs[0])) if ts[0] is None else ts[0]
    return put(x, 0.0 if ts[1] is None else ts[1], index)


def store(t: Tensor, index: Any, value: Any) -> None:
    """`t[index] = value`, recorded if either is tracked."""
    index = _plain_index(index)
    if isinstance(value, list | tuple):
        value = joining.array(value)
    node = value._node if isinstance(value, Tensor) else None
    if is_grad_enabled() and (t._node is not None or node is not None):
        if type(t._node) is Leaf:
            before_write(t, "setitem")
        if t._data.dtype.kind not in "fc":
            raise RuntimeError(
                f"a tracked value was stored into a tensor of dtype {t.dtype}, which cannot carry a gradient: make the "
                "buffer a float tensor, tg.zeros(...)."
            )
        extra = np.ndim(value) - np.ndim(t._data[index])
        if (
            extra > 0 and np.shape(value)[:extra] == (1,) * extra
        ):  # NumPy ignores leading axes of length 1
            value = reshape(value, np.shape(value)[extra:])
        _replace(t, apply(setitem.primitive, (t, value), (index,)), "setitem")
        return
    before_write(t, "setitem")
    t._array()[index] = value._data if isinstance(value, Tensor) else value
