"""How tensors and tapes print: the first debugger.

A tensor prints like PyTorch's: values, dtype where it is not the default of its kind, and its place in the graph.
A tape prints one entry a line; a long one is folded in the middle.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core import markup, sweep
from ..core.tape import FREED, IN0, KW, OP, OUT, SLOT, STRIDE, Leaf, Tape
from ..core.tensor import Tensor
from . import saving

_DEFAULTS = frozenset(np.dtype(d) for d in (np.float64, np.int64, np.bool_, np.complex128))

FOLD = 40
"""Entries shown before a tape is folded."""


def tensor_text(t: Tensor) -> str:
    """`tensor([1., 2.], requires_grad=True)`."""
    array = np.asarray(t._value)
    name = "tensor"
    values = (
        np.array2string(array, separator=", ", prefix=f"{name}(") if array.size else _empty(array)
    )
    parts = [values]
    if array.dtype not in _DEFAULTS:
        parts.append(f"dtype={array.dtype}")
    return f"{name}({', '.join(parts + _place(t))})"


def tensor_html(t: Tensor) -> str:
    """The values, under dtype, shape and the place in the graph."""
    array = np.asarray(t._value)
    form = f"tensor {array.dtype}[{', '.join(map(str, array.shape))}]"
    return markup.block(np.array2string(array, separator=", "), ", ".join([form, *_place(t)]))


def _place(t: Tensor) -> list[str]:
    """Where the tensor stands in the graph, if it does."""
    if type(t._node) is Leaf:
        return ["requires_grad=True"]
    if t._node is None:
        return []
    from ..errors import GraphError

    try:
        return [f"grad_fn=<{t.grad_fn.name()}>"]  # type: ignore[union-attr]
    except GraphError:
        return ["grad_fn=<gone>"]


def _empty(array: np.ndarray) -> str:
    return "[]" if array.ndim == 1 else f"[], shape={array.shape}"


def tape_text(tape: Tape) -> str:
    """Index, op, operands, shape and dtype, one entry a line."""
    code = tape.code
    n = len(code) // STRIDE
    index = {code[k + SLOT]: k // STRIDE for k in range(0, len(code), STRIDE)}
    lines = [f"Tape with {n} {'entry' if n == 1 else 'entries'}"]
    leaves: dict[Leaf, int] = {}
    for position in range(n):
        if n > FOLD and FOLD // 2 <= position < n - FOLD // 2:
            if position == FOLD // 2:
                lines.append(f"  ... {n - FOLD} entries ...")
            continue
        lines.append(_line(code, position, index, leaves))
    return "\n".join(lines)


def _line(code: list[Any], position: int, index: dict[Any, int], leaves: dict[Leaf, int]) -> str:
    """An entry of a tape in one line: position, op with operands and settings, dtype and shape of the result."""
    k = position * STRIDE
    if code[k + OP] == FREED:
        return f"{position:6d}  freed"
    op, kw, packed = saving.original(code[k + OP], code[k + KW])
    nodes = sweep.operands(code, k)
    if type(code[k + IN0]) is not tuple:
        nodes = nodes[: op.arity]
    names = []
    for node in nodes:
        if node is None:
            names.append("const")
        elif type(node) is Leaf:
            names.append(f"leaf{leaves.setdefault(node, len(leaves))}")
        else:
            names.append(f"%{index[node]}" if node in index else "elsewhere")
    settings = [f"{n}={v!r}" for n, v in zip(op.settings, kw or (), strict=False)]
    out = code[k + OUT]
    call = f"{op.name}({', '.join(names + settings)}){', packed' if packed else ''}"
    return f"{position:6d}  {call} -> {out.dtype}{list(np.shape(out))}"
