"""Native operators: Tensor's operators and NumPy's hook call machine code where a generated function stood.

Installed when the replay machine is loaded, so in processes that have differentiated for a while. What they do is in
recording.py; with operands they do not know they call the generated function, so nothing but time depends on them.

Data: a card per operator and one desk (arrays of words; layout.py names them), which live as long as the process.
"""

from __future__ import annotations

import ctypes
import os
import platform
from typing import Any

import numpy as np

from ..core.mode import NO_GRAD
from ..core.primitive import NATIVE, OPS, UFUNCS, Primitive
from ..core.tape import BIG, FEW, RECORDER, namespace, renew
from ..core.tensor import Tensor, new
from ..llvm.linker import builtin, numpy_api, resolve
from . import layout
from .layout import CARD, DESK

_COMPUTING = {
    ("+", 2): "PyNumber_Add",
    ("-", 2): "PyNumber_Subtract",
    ("*", 2): "PyNumber_Multiply",
    ("/", 2): "PyNumber_TrueDivide",
    ("//", 2): "PyNumber_FloorDivide",
    ("%", 2): "PyNumber_Remainder",
    ("**", 2): "PyNumber_Power",
    ("-", 1): "PyNumber_Negative",
    ("+", 1): "PyNumber_Positive",
}
"""Python's C function for an operator, which is quicker than the ufunc on scalars; by its sign and number of operands."""

_ARITHMETIC = {
    np.add: layout.ADDS,
    np.subtract: layout.SUBTRACTS,
    np.multiply: layout.MULTIPLIES,
    np.divide: layout.DIVIDES,
}

# Invalid, division by zero, overflow, underflow: as the C libraries of these systems number them.
_FLAGS = {"x86_64": 0x1D, "AMD64": 0x1D, "aarch64": 0x0F, "arm64": 0x0F}

replaced: dict[str, Any] = {}
"""The generated functions of Tensor's special methods that are native now, by name."""

_kept: list[Any] = []
_done = 1


def _offset(name: str) -> int:
    """Where a tensor keeps what it has under this name."""
    t = new(Tensor)
    mark = object()
    setattr(t, name, mark)
    for offset in range(object.__basicsize__, Tensor.__basicsize__, 8):
        if ctypes.c_size_t.from_address(id(t) + offset).value == id(mark):
            return offset
    raise RuntimeError(f"a tensor's {name} was looked for in its memory, and it is not there.")


def _desk() -> np.ndarray:
    """The table of addresses that native operators read."""
    desk = np.zeros(DESK, np.int64)
    spare = np.zeros(1, np.int64)
    for name, value in {
        "TENSOR": Tensor, "ARRAY": np.ndarray, "FLOAT": float, "INT": int, "FLOAT64": np.float64, "FLOAT32": np.float32,
        "COMPLEX128": np.complex128, "DTYPE_FLOAT64": np.dtype(np.float64), "DTYPE_FLOAT32": np.dtype(np.float32),
        "DTYPE_COMPLEX128": np.dtype(np.complex128), "NONE": None, "NO_GRAD": NO_GRAD, "RECORDER": RECORDER,
        "NAMESPACE": namespace, "NEXT_SLOT": _NEXT_SLOT, "RENEW": renew, "STOP_ITERATION": StopIteration,
    }.items():  # fmt: skip
        desk[getattr(layout, f"D_{name}")] = id(value)
    desk[layout.D_DATA], desk[layout.D_NODE] = _offset("_value"), _offset("_node")
    desk[layout.D_SPARE] = spare.ctypes.data
    api = numpy_api()
    desk[layout.D_NEW_ARRAY], desk[layout.D_COPY_ARRAY] = api["PyArray_New"], api["PyArray_NewCopy"]
    desk[layout.D_FLAGS] = _FLAGS.get(platform.machine(), 0) if os.name == "posix" else 0
    _kept.extend((desk, spare))
    return desk


_NEXT_SLOT = "next_slot"


def install(addresses: dict[str, int]) -> None:
    """Put native operators where generated functions stand, for the ops declared since the last time."""
    global _done
    if not _kept:
        _desk()
    desk = _kept[0]
    # Bound like a function where Python looks an operator up; a built-in function by itself is not.
    method = ctypes.pythonapi.PyInstanceMethod_New
    method.restype, method.argtypes = ctypes.py_object, (ctypes.py_object,)

    def native(op: Primitive, generated: Any, reflected: bool = False) -> Any:
        """A builtin in the place of a generated operator, which it calls where it has no way of its own."""
        card = np.zeros(CARD, np.int64)
        card[layout.C_DESK] = desk.ctypes.data
        card[layout.C_CODE] = id(op.code)
        name = _COMPUTING[op.operator, op.arity] if op.operator else None
        card[layout.C_COMPUTE] = (resolve(name) or 0) if name else 0
        card[layout.C_MODULUS] = name == "PyNumber_Power"
        card[layout.C_UFUNC] = id(op.of)
        card[layout.C_GENERATED] = id(generated)
        card[layout.C_REFLECTED] = reflected
        # A constant operand is needed by the rule of the other one, as in the generated functions.
        card[layout.C_KEEPS_X] = op.arity == 2 and "x" in op.needs[1]
        card[layout.C_KEEPS_Y] = "y" in op.needs[0]
        card[layout.C_ARITHMETIC] = _ARITHMETIC.get(op.of, 0)
        # The code around the ufunc is in the generated function, which takes larger arrays.
        card[layout.C_BIG] = 8 * FEW if op.around else BIG
        address = addresses["one" if op.arity == 1 else "two"]
        _kept.append((card, op.code, op.of, generated))
        return builtin(address, op.name, card.ctypes.data)

    for op in OPS[_done:]:
        if not op.elementwise or op.arity > 2 or op.view or not isinstance(op.of, np.ufunc):
            continue
        NATIVE[op.function] = native(op, op.function)
        names = (f"__{op.dunder}__", f"__r{op.dunder}__")[: op.arity] if op.dunder else ()
        for name, reflected in zip(names, (False, True), strict=False):
            generated = replaced[name] = Tensor.__dict__[name]
            setattr(Tensor, name, method(native(op, generated, reflected)))
    if "__array_ufunc__" not in replaced:
        generated = replaced["__array_ufunc__"] = Tensor.__dict__["__array_ufunc__"]
        card = np.zeros(CARD, np.int64)
        plain = ctypes.create_string_buffer(b"__call__")
        card[layout.C_CODE], card[layout.C_UFUNC] = ctypes.addressof(plain), id(UFUNCS)
        card[layout.C_COMPUTE] = id(NATIVE)
        card[layout.C_GENERATED] = id(generated)
        _kept.append((card, plain, generated))
        hook = method(builtin(addresses["hook"], "hook", card.ctypes.data))
        Tensor.__array_ufunc__ = hook  # type: ignore[method-assign]
    _done = len(OPS)
