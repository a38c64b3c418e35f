"""What the tape saves, in another form: hooks that pack saved values and unpack them again.

While hooks are in force, an entry that saves something is rewritten on its way to the tape (`tape.Attended`). In its place stands an
entry of one special op, `packed`, whose operands and slot are the same, whose values are shape tokens, and whose setting
holds the op that it was and what the pack hook made of each value. The rules of `packed` unpack and apply those
of that op, so both modes and all higher derivatives work, and the executors need to know nothing.

Invariant: only values that a rule of a tracked operand asks for are packed, once each; of others only the shape is kept.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..core import dual, lifetime, storage, sweep
from ..core.mode import NO_GRAD, attend
from ..core.primitive import NAMES, OPS, Primitive, entry_name, shape_of
from ..core.tape import ATTENDING, RECORDER
from ..core.tensor import Tensor, wrap
from ..errors import GraphError, demand_callable

Pack = Callable[[Tensor], Any]
Unpack = Callable[[Any], Tensor]


@dataclass(frozen=True, slots=True)
class _Value:
    """One packed value."""

    handle: Any
    unpack: Unpack
    shape: tuple[int, ...]

    def raw(self) -> Any:
        """The value again, as the unpack hook gives it."""
        before = _HOOKS.get()
        try:
            t = self.unpack(self.handle)
        finally:
            _end_inside(before)
        if not isinstance(t, Tensor):
            raise TypeError(
                "Output of saved tensor unpack_hook expected to be a Tensor but got result of type "
                f"{type(t).__name__}: wrap it with tg.as_tensor."
            )
        if t.shape != self.shape:
            raise GraphError(
                f"the unpack hook returned a tensor of shape {t.shape} for a saved value of shape {self.shape}: it must give back "
                "what the pack hook was given.",
                name="wrong-form",
            )
        return t._value


@dataclass(frozen=True, slots=True)
class _Original(storage.Keeper):
    """The op that a `packed` entry stands for: its settings, and its packed values by position (-1: the result)."""

    op: Primitive
    kw: Any
    name: str
    values: dict[int, _Value]
    bearer: object

    def _held_values(self) -> tuple[Any, ...]:
        """The arrays that the pack hook gave back as tensors: they may be the saved ones."""
        handles = (value.handle for value in self.values.values())
        return tuple(h._value for h in handles if isinstance(h, Tensor))

    def _save_from_write(self, apart: Callable[[Any], Any]) -> None:
        """Give packed tensors memory of their own where a write is about to hit them."""
        for i, value in self.values.items():
            if isinstance(value.handle, Tensor):
                handle = wrap(apart(value.handle._value))
                handle._node = value.handle._node
                self.values[i] = replace(value, handle=handle)

    def restored(self, xs: Sequence[Any], out: Any) -> tuple[list[Any], Any]:
        """Operands and result with their values in place; Tensors stay connected to where they came from."""
        values = list(xs)
        for i, value in self.values.items():
            if i >= 0:
                values[i] = _like(values[i], value.raw())
        if -1 in self.values:
            out = _like(out, self.values[-1].raw())
        return values, out


def _like(token: Any, raw: Any) -> Any:
    if not isinstance(token, Tensor):
        return raw
    return dual.like(token, sweep.tracked(raw, token._node))


def _pull(g: Any, xs: Any, out: Any, kw: Any, wanted: tuple[bool, ...]) -> list[Any]:
    (original,) = kw
    op = original.op
    values, result = original.restored(xs, out)
    found = sweep.cotangents(op, values, result, original.kw, g, wanted)
    return [c if c is None else sweep.fit(c, x, op) for c, x in zip(found, xs, strict=True)]


def _push(given: Sequence[Any], xs: Any, out: Any, original: _Original) -> Any:
    op = original.op
    values, result = original.restored(xs, out)
    recorded = isinstance(out, Tensor)
    nodes: list[Any] = []
    for i, (t, v) in enumerate(zip(given, values, strict=True)):
        nodes.append(v._node if isinstance(v, Tensor) else None if t is None else i + 1)
    raw = [v._value if isinstance(v, Tensor) else v for v in values]
    slot, result = (result._node, result._value) if recorded else (None, result)
    entry = sweep.entry_of(op, slot, nodes, raw, result, original.kw)
    return sweep.push_entry(entry, 0, list(given), recorded)


_packed: Primitive | None = None


def _packed_op() -> Primitive:
    """The op; made when hooks are first used, since it is no part of the vocabulary."""
    global _packed
    if _packed is None:
        op = Primitive()
        op.name = "packed"
        op.holomorphic = False
        op.variadic = op.saves = True
        op.arity = 1
        op.settings = ("original",)
        op.rules = (_pull,)
        op.needs = (frozenset(),)
        op.jvp = _push
        op.backward_name = lambda x, y, kw: kw[0].name
        op.doc = ["An op whose saved values are packed by hooks."]
        op.code = len(OPS)
        OPS.append(op)
        _packed = op
    return _packed


def original(code: int, kw: Any) -> tuple[Primitive, Any, bool]:
    """Op and settings of an entry, for showing it, and whether its values are packed."""
    op = OPS[code]
    if op.name in ("hooked", "hooked_saving"):
        return original(*kw[:2])
    return (kw[0].op, kw[0].kw, True) if op is _packed else (op, kw, False)


# ------------------------------------------------------------------------------------------------ the modes

_HOOKS: ContextVar[tuple[saved_tensors_hooks, Any] | None] = ContextVar("tapegrad.hooks", default=None)  # fmt: skip
"""Hooks in force, the innermost first."""

_DISABLED: ContextVar[str | None] = ContextVar("tapegrad.hooks_disabled", default=None)


def _put_in_force(entered: Any) -> None:
    _HOOKS.set(entered)
    attend(ATTENDING.get()[0], entered[0]._rewritten if entered else None)


def _end_inside(before: Any) -> None:
    """Hooks that a hook has put in force, and not ended, end with it: else they would outlive the block that it belongs to."""
    entered = _HOOKS.get()
    while entered is not None and entered is not before:
        entered = entered[1]
    if entered is before and _HOOKS.get() is not before:
        _put_in_force(before)


class saved_tensors_hooks:
    """Context in which each value that an operation saves for backward is handed to `pack_hook`, and what that returns is kept instead.

    `unpack_hook` is given it when a derivative needs the value, and returns a tensor of the same shape. Of nested
    contexts the innermost counts. The pack hook is called under `no_grad`, and may not change its argument in place.

    >>> import tapegrad as tg
    >>> a = tg.tensor([1.0, 2.0], requires_grad=True)
    >>> def pack(t):
    ...     print("packing", t.tolist())
    ...     return t.detach().astype(tg.float32)
    >>> with tg.autograd.graph.saved_tensors_hooks(pack, lambda t: t.astype(tg.float64)):
    ...     y = a * tg.tensor([3.0, 4.0])
    packing [3.0, 4.0]
    >>> y.sum().backward()
    >>> a.grad
    tensor([3., 4.])
    """

    def __init__(self, pack_hook: Pack, unpack_hook: Unpack) -> None:
        for hook, form in ((pack_hook, "pack_hook(tensor)"), (unpack_hook, "unpack_hook(packed)")):
            demand_callable(hook, "saved_tensors_hooks", f"pass a function {form}")
        self.pack_hook = pack_hook
        self.unpack_hook = unpack_hook

    def __enter__(self) -> None:
        message = _DISABLED.get()
        if message is not None:
            raise RuntimeError(message)
        before = _HOOKS.get()
        try:
            _put_in_force((self, before))
        except BaseException:  # Ctrl-C, most likely: no block begins
            _put_in_force(before)
            raise

    def __exit__(self, *exc: object) -> None:
        entered = _HOOKS.get()
        while entered is not None and entered[0] is not self:
            entered = entered[1]
        if entered is not None:
            try:
                _put_in_force(entered[1])
            except BaseException:
                _put_in_force(entered[1])
                raise

    def packed(self, value: Any, node: Any = None) -> _Value:
        """A raw value, packed; `node` says where it came from, if it is tracked."""
        t = sweep.tracked(value, node)
        version = storage.version(value)
        recorder, before = RECORDER.get(), _HOOKS.get()
        try:
            RECORDER.set(NO_GRAD)
            handle = self.pack_hook(t)
        finally:
            RECORDER.set(recorder)
            _end_inside(before)
        # A number, in contrast to an array, is replaced when it is changed (or made an array of, when that is asked for).
        changed = not isinstance(value, np.ndarray) and not np.array_equal(t._value, value, True)
        if changed or storage.version(value) != version:
            raise RuntimeError(
                "A saved tensor pack hook is modifying its input in place. Tensors provided as input to pack hook cannot be modified "
                "by in-place operations as this can lead to unexpected side-effects: change a clone()."
            )
        return _Value(handle, self.unpack_hook, np.shape(value))

    def _rewritten(self, entry: tuple[Any, ...]) -> tuple[Any, ...]:
        """The entry, with what its rules need packed; as it is if they need nothing."""
        code, slot, in0, in1, x, y, out, kw = entry
        op = OPS[code]
        if not op.saves:
            return entry
        nodes, raw = (
            (in0, x) if type(in0) is tuple else ((in0, in1)[: op.arity], (x, y)[: op.arity])
        )
        one_rule = op.variadic and not op.elementwise
        needs: set[str] = set()
        for i, node in enumerate(nodes):
            if node is not None:
                needs |= op.needs[0 if one_rule else i]
        values = {
            i: self.packed(value, node)
            for i, (node, value) in enumerate(zip(nodes, raw, strict=True))
            if ("xs" if one_rule else NAMES[i]) in needs and isinstance(value, np.ndarray | np.generic)
        }  # fmt: skip
        if "out" in needs:
            values[-1] = self.packed(out)
        if not values:
            return entry
        original = _Original(op, kw, entry_name(entry), values, lifetime.bearer())
        tokens = tuple(map(shape_of, raw))
        return (
            _packed_op().code,
            slot,
            tuple(nodes),
            None,
            tokens,
            None,
            shape_of(out),
            (original,),
        )


class save_on_cpu(saved_tensors_hooks):
    """PyTorch's context that keeps saved tensors in main memory. Here they are there already: nothing is copied.

    >>> import tapegrad as tg
    >>> x = tg.tensor(3.0, requires_grad=True)
    >>> with tg.autograd.graph.save_on_cpu():
    ...     y = x * x
    >>> y.backward(); x.grad
    tensor(6.)
    """

    def __init__(self, pin_memory: bool = False, device_type: str = "cpu") -> None:
        super().__init__(lambda t: t.detach(), lambda t: t)


class save_on_disk(saved_tensors_hooks):
    """Context in which saved values of at least `min_bytes` are kept in files, in `directory` or the system's temporary one.

    A file is deleted when the graph no longer needs it. For computations whose saved values are larger than the memory.

    >>> import numpy as np, tapegrad as tg
    >>> x = tg.tensor(np.linspace(0.0, 1.0, 1000), requires_grad=True)
    >>> with tg.autograd.graph.save_on_disk(min_bytes=1000):
    ...     y = np.sin(x).sum()
    >>> y.backward()
    >>> bool(np.allclose(x.grad.numpy(), np.cos(x.detach().numpy())))
    True
    """

    def __init__(self, directory: str | os.PathLike[str] | None = None, min_bytes: int = 1 << 20):
        def pack(t: Tensor) -> Any:
            return _File(t.detach().numpy(), directory) if t.nbytes >= min_bytes else t.detach()

        def unpack(handle: Any) -> Tensor:
            return wrap(handle.read()) if isinstance(handle, _File) else handle

        super().__init__(pack, unpack)


class _File:
    """An array in a file that lives as long as this object."""

    def __init__(self, array: np.ndarray, directory: Any) -> None:
        descriptor, self.path = tempfile.mkstemp(".npy", "tapegrad-", directory)
        with os.fdopen(descriptor, "wb") as file:
            np.save(file, array, allow_pickle=False)

    def read(self) -> np.ndarray:
        """The array."""
        return np.load(self.path, allow_pickle=False)

    def __del__(self) -> None:
        with contextlib.suppress(OSError, AttributeError, TypeError):
            os.unlink(self.path)


@contextlib.contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Iterator[None]:
    """Context in which using hooks for saved tensors raises RuntimeError with this message; also at once if some are in force.

    >>> import tapegrad as tg
    >>> with tg.autograd.graph.disable_saved_tensors_hooks("no hooks here"):
    ...     with tg.autograd.graph.save_on_cpu():
    ...         pass
    Traceback (most recent call last):
    RuntimeError: no hooks here
    """
    if _HOOKS.get() is not None:
        raise RuntimeError(error_message)
    before = _DISABLED.get()
    _DISABLED.set(error_message)
    try:
        yield
    finally:
        _DISABLED.set(before)


def hooks_in_force() -> saved_tensors_hooks | None:
    """The innermost hooks, for those who save values elsewhere than in entries (`ctx.save_for_backward`)."""
    entered = _HOOKS.get()
    return entered[0] if entered else None


__all__ = ["disable_saved_tensors_hooks", "save_on_cpu", "save_on_disk", "saved_tensors_hooks"]
