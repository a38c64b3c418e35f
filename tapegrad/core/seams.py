"""Seams: what the lowest rooms ask of rooms above them.

Imports go downwards only. Where a room below needs a function of one above (a tensor's `backward`, which is PyTorch's; the machine
that walks a tape; a sparse matrix that meets a tensor), the room below calls it by its name here, and the room above gives it.
`tapegrad.wiring` gives those of rooms that are loaded when they are first needed.

Data: one name for each function.
Invariant: every name is given when `import tapegrad` is done, and importing any module of the package begins with that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# Of PyTorch's manners (`autograd`).
backward: Callable[..., None]
"""`tensor.backward()` of several tensors."""
node_of: Callable[..., Any]
"""The view of an entry of a tape that `grad_fn` is."""
tensor_text: Callable[[Any], str]
tensor_html: Callable[[Any], str | None]
tape_text: Callable[[Any], str]
tape_html: Callable[[Any], str]
hooked: Callable[[dict[int, Callable[..., Any]], Any], Any]
"""A cotangent, after the hooks of its tensor."""
leaf_cotangent: Callable[[Any, Any], Any]
"""A leaf's cotangent, after the leaf's hooks."""

# Of ops.
astype: Callable[..., Any]
copy: Callable[[Any], Any]
array: Callable[..., Any]
"""Nested sequences of tensors as one tensor."""
holds_tensor: Callable[[Any], bool]
gathered: Callable[[Any], Any]
strong_product: Callable[[Any, Any], Any]
"""The product of a cotangent and a partial, recorded."""

# Of NumPy's manners.
before_write: Callable[..., None]
"""Check that NumPy may write a result to a tensor, and note that it did."""

# Of rooms that are loaded when they are first asked.
replay: Callable[[], Any]
"""The engine that walks a tape by one native call."""
quick_loops: Callable[[], Any]
"""Loops of vector instructions over large arrays."""
array_namespace: Callable[[], Any]
"""The namespace of the array API standard."""
clock: Callable[[Any], Any] | None = None
"""What a running profile puts around the entry of a compiled program; None where none runs."""
met_sparse: Callable[[str, Any, Any], Any]
"""An operator of a tensor and a sparse matrix of SciPy's."""
noncentral: Callable[[str], Any]
"""A distribution of `tg.stats`."""
looped: Callable[..., Any]
"""The steps of a loop under `tg.compile`."""
differentiable: Callable[[Any], Any]
"""A function compiled by numba.njit, with the derivatives of `tg.njit`."""
sourced: Callable[..., Any]
"""A function's source as a program of the form."""
sparse_derivatives: Callable[[], Any]
"""Jacobians and Hessians as sparse matrices."""
assembled: Callable[..., Any]
"""A sparse tensor of rows, columns and entries."""


def give(**functions: Callable[..., Any]) -> None:
    """Let the rooms below call these."""
    globals().update(functions)
