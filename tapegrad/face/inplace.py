"""In-place operations: `y += z`, `y[i] = z`, `y.mul_(z)`, on tensors and on views of them.

Idea: where nothing is tracked they are NumPy's own. Otherwise the memory is overwritten as well, and the *base* of
the tensors that share it (see views.py) stands for a new entry from then on: the op's own where the base itself was
written to, or `copy_slices` (the base with a region replaced) where it was written through a view. Every living view of it
is then taken again, as an entry, so that each tensor's history tells how its present value came about.

A store `y[i] = z` saves no value and copies nothing, so a buffer filled in a loop costs time linear in its stores; the
reverse walk hands one cotangent buffer down the chain (see sweep.py). A rule that needs the old value of what is overwritten is
given a copy; so is one that saved the memory earlier inside a transform (overwriting.py), and elsewhere it raises when the walk
reaches it (`storage.check`).

A leaf that requires grad is refused, as in PyTorch, except under `no_grad`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ..core import dual, overwriting, seams, storage
from ..core.dual import DualTensor
from ..core.executors import retain
from ..core.mode import INFERENCE, is_grad_enabled
from ..core.primitive import OPS, UFUNCS, apply, as_given, call, primitive, shape_token
from ..core.tape import OP, RECORDER, STRIDE, Leaf, Slot, begin, current, locate, new_slot
from ..core.tensor import InferenceTensor, Tensor, new, wrap
from ..core.views import base_of, chain_to, steps_to, views_of
from ..errors import GraphError
from ..ops import joining
from ..ops.indexing import _plain_index, getitem, is_basic, names_no_entry_twice
from ..ops.products import matmul
from ..ops.shaping import reshape, transpose

# ------------------------------------------------------------------------------------------------ may it be written?


def _writable(t: Tensor, name: str, recorded: bool, index: Any = None) -> Tensor:
    """The base of `t`, after checking that `t` may be overwritten (at an index), with (`recorded`) or without a trace on the tape.

    Where it may, entries that need the old value have copies of it from now on.
    """
    if issubclass(type(t), InferenceTensor) and RECORDER.get() is not INFERENCE:
        raise RuntimeError(
            f"Inplace update to inference tensor outside InferenceMode is not allowed ({name}). You can make a clone to get a "
            "normal tensor before doing inplace update."
        )
    data = t._value
    if type(data) is np.ndarray:
        locked = not data.flags.writeable
    else:
        locked = isinstance(data, storage.StandIn) and bool(
            t._get("locked", False) or base_of(t)._get("locked", False)
        )
    if locked:
        raise ValueError(
            f"{name} would write to a read-only array (an expanded tensor shows one element many times; np.diag and windows are "
            "read-only, as in NumPy; a big constant is locked while the tape needs it; a gradient that a hook sees belongs to the "
            "walk; a Function's output that is its argument, or a view, is a copy): write to t.clone()."
        )
    base = t if getattr(t, "_view", None) is None else base_of(t)
    node = base._node
    if is_grad_enabled() and (node is not None or recorded or t._node is not None):
        _refuse_unclear(t, base, name)
    if isinstance(data, np.ndarray):
        if base is t:
            overwriting.keep(data, index)
        else:
            overwriting.keep(*_memory(t, index))
    return base


def _refuse_unclear(t: Tensor, base: Tensor, name: str) -> None:
    """Refuse to write where the history of the tensor or of its base could not be told afterwards."""
    node = base._node
    if base is not t and t._node is None and node is not None:
        raise GraphError(
            f"A view was created in no_grad mode and is being modified inplace with grad mode enabled ({name}): whether its base "
            "should be tracked cannot be told. Make the view with grad mode enabled, or write under no_grad.",
            name="in-place",
        )
    if type(node) is Leaf:
        what = "a" if base is t else "a view of a"
        raise GraphError(
            f"{what} leaf Variable that requires grad is being used in an in-place operation ({name}): the leaf's gradient would "
            "be that of a value it no longer has. Update it inside `with tg.no_grad():`, or work on a clone().",
            name="in-place",
        )
    if base is not t and t._node is not None and node is None:
        raise GraphError(
            f"{name} would overwrite a tracked view of a tensor that is no longer tracked (detach_() or requires_grad_(False) "
            "cut it off), so the history of the two cannot be told apart. Work on a clone().",
            name="in-place",
        )


def _refuse_picked(t: Tensor, name: str) -> None:
    """Refuse to write into `x[i]` where that is a number: it is a copy, so nothing would become of the write in `x`."""
    if not storage.is_number(t._value):
        return
    picked = t._get("picked", False)
    if not picked and type(t._node) is int:
        place = locate(t._node)
        if place is not None:
            tape, position = place
            picked = tape.code[position * STRIDE + OP] == _GETITEM
    if picked:
        raise RuntimeError(
            f"{name} was asked of a number that was taken out of a tensor, x[i]: it is a copy, as in NumPy, so x would stay as it is. "
            "Write x[i] = v or x[i] += v, or take a view: x[i, ...], or x.select(dim, i)."
        )


def before_write(t: Tensor, name: str, given: Iterable[Any] = ()) -> None:
    """Check that NumPy may write an untracked result to `t` (out=, ufunc.at), and note that it did."""
    for value in given:
        _admit(t, value)
    base = _writable(t, name, False)
    if is_grad_enabled() and (t._node is not None or base._node is not None):
        raise GraphError(
            f"{name} would overwrite a tracked tensor, whose history would then be another value's. Store the result: "
            "t[...] = np.f(...), or write under no_grad.",
            name="in-place",
        )
    if isinstance(t._value, np.ndarray):
        if base is t:
            storage.touch(t._value)
        else:
            _touch(t)


def _touch(t: Tensor) -> None:
    """Note that the memory of `t` was overwritten."""
    storage.touch(*_memory(t))


def _memory(t: Tensor, index: Any = None) -> tuple[Any, Any]:
    """The memory of `t` at an index, as an array and an index of it: if `t` is an entry of its base, that and its place there."""
    view = getattr(t, "_view", None)
    if view is not None and view[1] == _GETITEM and getattr(view[0], "_view", None) is None:
        return view[0]._value, view[2][0]
    return t._value, index


_GETITEM = getitem.primitive.code


def _admit(t: Tensor, value: Any) -> None:
    """Prepare `t` for a write of the value, which may be no array (storage.StandIn)."""
    value = value._value if isinstance(value, Tensor) else value
    if isinstance(value, storage.StandIn):
        value.admit(t)


def _refuse_leaves(base: Tensor, name: str) -> None:
    """No leaf that requires grad may be among the views whose memory is to change."""
    for view in views_of(base):
        if type(view._node) is Leaf:
            raise GraphError(
                f"{name} would overwrite memory that a leaf Variable that requires grad is a view of. Make the leaf from a "
                "copy: t.clone().requires_grad_().",
                name="in-place",
            )
        _refuse_leaves(view, name)


# ------------------------------------------------------------------------------------------------ new histories


def _record(code: int, in0: Any, in1: Any, x: Any, y: Any, out: Any, kw: Any) -> Slot:
    """Append an entry of an op that needs no values, only shapes."""
    record = RECORDER.get() or begin()
    slot = new_slot()
    y = y if y is None else shape_token(y)
    record((code, slot, in0, in1, shape_token(x), y, shape_token(out), kw))
    return slot


def _rebase(t: Tensor, base: Tensor, node: Slot | None) -> None:
    """Let `t`, whose memory was just overwritten, stand for `node`; its base and all their views follow."""
    if t is base:
        _become(t, node)
    else:
        slot = _record(
            copy_slices.primitive.code, base._node, node, base._value, t._value, base._value,
            (steps_to(t),),
        )  # fmt: skip
        _become(base, slot)
    _renew_views(base)


def _renew_views(parent: Tensor) -> None:
    for view in list(views_of(parent)):
        _, code, kw = view._view
        _become(view, _record(code, parent._node, None, parent._value, None, view._value, kw))
        _renew_views(view)


def _become(t: Tensor, node: Slot | None) -> None:
    before, t._node = t._node, node
    if t.retains_grad and node is not None:
        retain(t, before)


def _replace(t: Tensor, result: Tensor, name: str) -> Tensor:
    """Let `t` stand for `result`, the same op out of place: same memory as before, new value, new history."""
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
    base = _writable(t, name, True)
    tracked = is_grad_enabled() and _holds_node(t, base, result)
    if tracked:
        _refuse_leaves(base, name)
    _admit(t, result)
    if storage.is_number(t._value):
        t._value = result._value
    else:
        _touch(t)
        np.copyto(t._value, result._value)
    if tracked:
        _rebase(t, base, result._node)
    _retangent(t, base, result)
    return t


def _overwrite(t: Tensor, value: Any, name: str) -> Tensor:
    """Untracked: the memory takes the value."""
    if np.shape(value) != t.shape:
        raise RuntimeError(
            f"{name} would change the shape of the tensor from {t.shape} to {np.shape(value)}: write it out of place."
        )
    if not np.can_cast(value.dtype, t.dtype, "same_kind"):
        raise RuntimeError(
            f"result type {value.dtype} can't be cast to the desired output type {t.dtype}: write {name} out of place."
        )
    _admit(t, value)
    if storage.is_number(t._value):
        t._value = value.astype(t.dtype)
    else:
        _touch(t)
        np.copyto(t._value, value)
    return t


def _followed(*operands: Any) -> bool:
    """Whether one of these values is differentiated by now: it is tracked while ops are recorded, or dual."""
    return (is_grad_enabled() and _holds_node(*operands)) or dual.holds_dual(operands)


def _holds_node(*operands: Any) -> bool:
    return any(isinstance(operand, Tensor) and operand._node is not None for operand in operands)


def _retangent(t: Tensor, base: Tensor, result: Tensor) -> None:
    """After `t` was overwritten by `result`: the tangents of its base and of all their views, if there are any.

    The argument of `make_dual` has no tangent of its own, and gets none: the tensor that has one is the root then.
    """
    holders = [x for x in chain_to(t) if dual.tangent_of(x) is not None]
    tangent = dual.tangent_of(result)
    if not holders and tangent is None:
        return
    root = holders[-1] if holders else base
    level = (holders[-1] if holders else result)._get("dual")[0]
    if tangent is None:
        tangent = wrap(np.zeros(t.shape, t.dtype))
    if t is not root:
        steps = steps_to(t)[len(steps_to(root)) :]
        whole = dual.tangent_of(root)
        whole = wrap(np.zeros(root.shape, root.dtype)) if whole is None else whole
        tangent = write_region(whole, tangent, steps)
    _spread(root, level, tangent)


def _spread(parent: Tensor, level: dual.Level, tangent: Tensor) -> None:
    dual.with_tangent(parent, level, tangent)
    for view in views_of(parent):
        _, code, kw = view._view
        _spread(view, level, apply(OPS[code], (tangent,), kw))


# ------------------------------------------------------------------------------------------------ operators


def _beforehand(t: Tensor, function: Callable[..., Any], other: Any) -> Any:
    """`function(t, other)` just before `t` is overwritten: a rule that needs its old value is given a copy of it."""
    needs: set[str] = set()
    for operand, needed in zip((t, other), function.primitive.needs, strict=True):  # type: ignore[attr-defined]
        if isinstance(operand, Tensor) and operand._node is not None:
            needs |= needed
    wanted = "x" in needs or (other is t and "y" in needs)
    if wanted and isinstance(t._value, np.ndarray):
        before = new(Tensor)
        before._value, before._node = storage.duplicate(t._value), t._node
        dual.like(t, before)
        return function(before, before if other is t else other)
    return function(t, other)


def _is_result(t: Tensor) -> bool:
    """Whether a number is nothing but an op's result, of which nobody keeps hooks, views or tangents."""
    simple = type(t) is Tensor and type(t._node) is not Leaf
    return simple and getattr(t, "_extra", None) is None and getattr(t, "_view", None) is None


def _operator(
    name: str, ufunc: np.ufunc, function: Callable[..., Any] | None
) -> Callable[..., Any]:
    """The in-place operator of a ufunc for Tensor: recorded where something is tracked, else NumPy's write."""
    symbol = name[1:]
    out_of_place = getattr(operator, f"{symbol}_" if symbol in ("and", "or") else symbol)

    def method(self: Tensor, other: Any) -> Any:
        """Overwrite this tensor with the result; numbers outside of transforms are replaced, as NumPy's are."""
        if (
            type(self._value) is not np.ndarray
            and current().plain
            and storage.is_number(self._value)
        ):
            return out_of_place(self, other)  # as NumPy's numbers: other names keep the old one
        if type(self._value) is np.float64 and _followed(self, other) and _is_result(self):
            result = out_of_place(self, other)
            if type(result) is Tensor and type(result._value) is np.float64:
                self._value, self._node = result._value, result._node
                return self
        if storage.tracing.get() is not None:
            _admit(self, other)  # before the operation, which would hold the array as a constant
        if _followed(self, other):
            _writable(self, name, True)
            result = NotImplemented if function is None else _beforehand(self, function, other)
            return result if result is NotImplemented else _replace(self, result, name)
        raw = other._value if isinstance(other, Tensor) else as_given(other, name)
        _writable(self, name, False)
        if storage.is_number(self._value):
            return _overwrite(self, ufunc(self._value, raw), name)
        ufunc(self._value, raw, out=self._value, casting="same_kind")
        _touch(self)
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
    if _followed(self, other):
        _writable(self, "imatmul", True)
        return _replace(self, _beforehand(self, matmul, other), "imatmul")
    product = self._value @ (
        other._value if isinstance(other, Tensor) else as_given(other, "imatmul")
    )
    _writable(self, "imatmul", False)
    return _overwrite(self, product, "imatmul")


Tensor.__imatmul__ = _matmul_in_place  # type: ignore[method-assign, assignment]


def rewrite(t: Tensor, name: str, function: Callable[..., Any], *others: Any) -> Tensor:
    """Overwrite `t` with `function(t, *others)`, in the memory that `t` has. Every in-place method is such a call."""
    _refuse_picked(t, name)
    if _followed(t, *others):
        _writable(t, name, True)
        before = new(Tensor)
        before._node = t._node
        before._value = (
            storage.duplicate(t._value) if isinstance(t._value, np.ndarray) else t._value
        )
        dual.like(t, before)
        given = (before if other is t else other for other in others)
        result = function(before, *given)
        if not isinstance(result, Tensor):
            raise NotImplementedError(f"{name} is not defined for a tensor of dtype {t.dtype}.")
        return _replace(t, result, name)
    _writable(t, name, False)
    result = function(t, *others)
    return _overwrite(t, result._value if isinstance(result, Tensor) else np.asarray(result), name)


# ------------------------------------------------------------------------------------------------ y[index] = value


def _put(x: np.ndarray, y: Any, index: Any) -> np.ndarray:
    out = np.array(x)
    out[index] = y
    return out


def _put_y(g, y_shape, *, index):
    """Cotangent of the stored value: what arrives where it was stored, summed over broadcasting."""
    picked = g[index]
    if picked.size > 1 and not names_no_entry_twice(index):
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
    pattern="moves",
    backward=lambda x, y, kw: "CopySlices",
    samples=[
        call((4,), (), index=1),
        call((4, 2), (2,), index=slice(1, 3)),
        call((3, 2), (2, 2), index=np.array([0, 2])),
        call((3,), (2,), index=np.array([True, False, True])),
    ],
    jvp=lambda ts, xs, out, index: _put_tangent(ts, xs, index),
    clears=lambda g, index: operator.setitem(g, index, 0),
    unsupported={
        "mixed": "storing a complex number into a real array drops its imaginary part, and NumPy warns"
    },
)
def setitem(g, *, index):
    """A copy of x with y stored at `index`."""
    return put(g, 0.0, index)


put = setitem


def _put_tangent(ts: Any, xs: Any, index: Any) -> Any:
    x = np.zeros(np.shape(xs[0]), xs[0].dtype) if ts[0] is None else ts[0]
    return put(x, 0.0 if ts[1] is None else ts[1], index)


def is_mask(index: Any) -> bool:
    """Whether an index is one array of truth values."""
    return getattr(index, "dtype", None) == np.bool_ and np.ndim(index) > 0


def overlapping(what: str) -> str:
    """The error about x[mask] = y where y is a part of x."""
    return (
        f"x[mask] = y was asked of {what}, where y is a view of x: NumPy stores entry by entry there, and reads in y what it has just "
        "stored, so the result has no derivative. Write x[mask] = y.copy()."
    )


def store(t: Tensor, index: Any, value: Any, *, plainly: bool = False) -> None:
    """`t[index] = value`, recorded if either is tracked; nothing is copied, and no value is saved."""
    if type(t._value) is not np.ndarray:
        if _put_number(t, index, value):
            return
        _refuse_picked(t, "a store")
    if type(index) is not int:
        index = _plain_index(index)
    if issubclass(type(value), (list, tuple)):
        value = joining.array(value)
    if not plainly and (type(t) is DualTensor or type(value) is DualTensor):
        _store_dual(t, index, value)
        return
    if isinstance(value, Tensor):
        raw, node = value._value, value._node
    else:
        raw, node = value, None
    if isinstance(raw, storage.StandIn):
        raw.admit(t)
    elif (
        type(t._value) is np.ndarray
        and type(index) is not int
        and storage.tracing.get() is not None
    ):
        for part in storage.computed(index):
            part.admit(t)
            break
    record = RECORDER.get()
    if (t._node is None and node is None) or (not record and record is not None):
        _writable(t, "setitem", False, index)
        t._array()[index] = raw
        storage.touch(*_memory(t, index))
        return
    if isinstance(value, Tensor) and _is_region(value, t, index):
        return  # the second half of `t[index] += 1`
    base = _writable(t, "setitem", True, index)
    data = t._array()
    if type(raw) is np.ndarray and is_mask(index) and raw.ndim and np.may_share_memory(raw, data):
        raise GraphError(overlapping("a tracked tensor"), name="in-place")
    kind = data.dtype.kind
    if kind not in "fc":
        raise GraphError(
            f"a tracked value was stored into a tensor of dtype {t.dtype}, which cannot carry a gradient: make the "
            "buffer a float tensor, tg.zeros(...).",
            name="in-place",
        )
    if kind == "f" and getattr(getattr(raw, "dtype", None), "kind", kind) == "c":
        raise GraphError(
            f"a tensor of dtype {raw.dtype} was stored into one of dtype {t.dtype}, which would drop its imaginary part: take "
            ".real, or make the buffer complex.",
            name="in-place",
        )
    extra = getattr(base, "_extra", None)
    if extra is not None:
        _refuse_leaves(base, "setitem")
    data[index] = raw
    if type(raw) is np.ndarray or (isinstance(raw, storage.StandIn) and raw.shape):
        above = raw.ndim - np.ndim(data[index])
        if above > 0:  # NumPy ignores leading axes of length 1
            value = reshape(value, raw.shape[above:])
            raw = value._value if node is not None else value
            node = value._node if node is not None else None
        raw = shape_token(raw)
    elif not isinstance(raw, float | np.generic):
        raw = storage.as_array(raw)
    if base is t:
        storage.touch(data, index)
    else:
        storage.touch(*_memory(t, index))
    token = shape_token(data)
    slot = new_slot()
    (record or begin())((_SETITEM, slot, t._node, node, token, raw, token, (index,)))
    if base is t and extra is None:
        t._node = slot
    else:
        _rebase(t, base, slot)


def _put_number(t: Tensor, index: Any, value: Any) -> bool:
    """Store a number at an index of whole numbers, by the shortest way; returns whether that was possible.

    Most stores of a program that works entry by entry are of this kind. `store` takes tensors that are views,
    or that have views or hooks.
    """
    data: Any = t._value
    record = RECORDER.get()
    if (
        type(t) is not Tensor
        or type(t._node) is not int
        or not record
        or not isinstance(data, storage.StandIn)
    ):
        return False
    if getattr(t, "_extra", None) is not None or getattr(t, "_view", None) is not None:
        return False
    if type(value) is Tensor:
        raw, node = value._value, value._node
    elif type(value) is float:
        raw, node = value, None
    else:
        return False
    overwriting.keep(data, index)
    if not data.put(index, raw):
        return False
    storage.touch(t._array(), index)
    slot = new_slot()
    record((_SETITEM, slot, t._node, node, data, raw, data, (index,)))
    t._node = slot
    return True


def _store_dual(t: Tensor, index: Any, value: Any) -> None:
    """The same where `t` or the value may have a tangent."""
    if (isinstance(value, Tensor) and _is_region(value, t, index)) or not dual.holds_dual((t, value)):  # fmt: skip
        store(t, index, value, plainly=True)
        return
    before, stored = dual.tangent_of(t), dual.tangent_of(value)
    level = (t if stored is None else value)._get("dual")[0]
    if before is None:
        before = wrap(np.zeros(t.shape, t.dtype))
    tangent = put(before, 0.0 if stored is None else stored, index)
    store(t, index, value, plainly=True)
    _retangent(t, base_of(t), dual.with_tangent(wrap(t._array()), level, tangent))


_SETITEM = setitem.primitive.code
Tensor.__setitem__ = store  # type: ignore[method-assign, assignment]


def _same_place(a: Any, b: Any) -> bool:
    """Whether two indices are surely the same; a value of a program that is traced is not looked at."""
    if a is b:
        return True
    if type(a) is tuple and type(b) is tuple:
        return len(a) == len(b) and all(map(_same_place, a, b))
    return (
        not isinstance(a, storage.StandIn) and not isinstance(b, storage.StandIn) and bool(a == b)
    )


def _is_region(value: Tensor, t: Tensor, index: Any) -> bool:
    """Whether `value` is the view t[index], whose memory a store at `index` would copy onto itself."""
    link = getattr(value, "_view", None)
    if link is None or link[0] is not t or not is_basic(index):
        return False
    if isinstance(value._value, storage.StandIn):
        return value._value.shares(t._value) and _same_place(link[2], (index,))
    region = t._value[index]
    return (
        isinstance(region, np.ndarray)
        and region.shape == value.shape
        and region.strides == value._value.strides
        and region.ctypes.data == value._value.ctypes.data
    )


# ------------------------------------------------------------------------------------- a base, written through a view


def region_of(array: Any, steps: tuple[tuple[int, Any], ...]) -> Any:
    """The part of an array or tensor that a view shows, after these steps."""
    for code, kw in steps:
        array = apply(OPS[code], (array,), kw)
    return array


def fill_region(array: np.ndarray, steps: tuple[tuple[int, Any], ...], value: Any) -> None:
    """Store a value in that region of an array, also where its memory order makes a step copy."""
    part = region_of(array, steps)
    if isinstance(part, np.ndarray) and np.may_share_memory(part, array):
        part[...] = value
        return
    if np.size(part) == 0:
        return  # nothing shares memory with no entries, and NumPy has no places in a number
    half = next((OPS[code].name for code, _ in steps if OPS[code].name in ("real", "imag")), None)
    moves = tuple(step for step in steps if OPS[step[0]].name != half)
    places = region_of(np.arange(array.size).reshape(array.shape), moves)
    target = array if half is None else getattr(array, half)
    target[np.unravel_index(places, array.shape)] = value


def _put_region(x: np.ndarray, y: Any, steps: Any) -> np.ndarray:
    out = np.array(x, order="C")
    fill_region(out, steps, y)
    return out


@primitive(
    _put_region,
    lambda g, *, steps: region_of(g, steps),
    name="copy_slices",
    pattern="moves",
    backward=lambda x, y, kw: "CopySlices",
    unsupported={
        "mixed": "storing a complex number into a real array drops its imaginary part, and NumPy warns"
    },
    clears=lambda g, steps: fill_region(g, steps, 0),
    samples=[
        call((4, 3), (3,), steps=((getitem.primitive.code, (1,)),)),
        call(
            (4, 3),
            (3, 2),
            steps=(
                (transpose.primitive.code, (None,)),
                (getitem.primitive.code, ((slice(None), slice(1, 3)),)),
            ),
        ),
    ],
    jvp=lambda ts, xs, out, steps: write_region(
        np.zeros(np.shape(xs[0]), xs[0].dtype) if ts[0] is None else ts[0],
        0.0 if ts[1] is None else ts[1],
        steps,
    ),
)
def copy_slices(g, *, steps):
    """A copy of x in which y stands in the region that a chain of views leads to."""
    return write_region(g, 0.0, steps)


write_region: Callable[..., Any] = copy_slices

seams.give(before_write=before_write)
