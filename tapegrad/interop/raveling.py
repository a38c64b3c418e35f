"""Pytrees of real numbers as vectors, for libraries that know vectors only.

A `Space` remembers the structure, shapes and kinds of a tree of arrays, numbers and tensors; `vector` and `tree` go to and
fro. Invariant: `tree` makes fresh arrays, so that a function which writes into its arguments cannot change the vector.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.elsewhere import refuse_units
from ..core.packing import flat
from ..core.tensor import Tensor, wrap
from ..transforms.derivatives import _list_of_numbers, tree_flatten

Tree = Any


def flatten(tree: Tree) -> tuple[list[Any], Any]:
    """Leaves and structure of a pytree."""
    return tree_flatten(tree)


class Space:
    """The vectors that stand for trees like this one; `what` is its name in errors, such as "x0"."""

    def __init__(self, tree: Tree, what: str) -> None:
        """Flatten a pytree of real arrays and numbers into the vector `x`; an error where it holds no number or one that is not finite."""
        self.what = what
        if _list_of_numbers(tree):  # SciPy takes a list of numbers for an array
            tree = np.asarray(tree, dtype=float)
        leaves, self.structure = flatten(tree)
        kind = self.structure.type
        named = kind is not None and kind.__name__ == "Series" and hasattr(tree, "index")
        self.labels = [str(label) for label in tree.index] if named else None
        self.kinds = [_kind(leaf) for leaf in leaves]
        self.is_array = kind is None and self.kinds == ["array"]
        arrays = [_real(leaf, what) for leaf in leaves]
        self.shapes = [a.shape for a in arrays]
        self.pandas = _holds_pandas(self.structure)
        self.sizes = [a.size for a in arrays]
        self.size = sum(self.sizes)
        if not self.size:
            raise ValueError(f"{what} holds no number: there is nothing to solve for.")
        self.x = joined_arrays([a.reshape(-1) for a in arrays])
        if not np.isfinite(self.x).all():
            bad = self.names[int(np.argmin(np.isfinite(self.x)))]
            raise ValueError(f"{bad} is nan or inf: start from finite numbers.")

    @property
    def names(self) -> list[str]:
        """A name for each element of the vector: `rate` and `layer.w[0, 1]` in trees of names, `x0[1]` where there is no name.

        Elements of a Series of pandas have its labels.
        """
        if self.labels is not None:
            return self.labels
        if self.is_array:
            return _of_elements(self.what, self.shapes[0])
        found = []
        for accessor, shape in zip(self.structure.accessors(), self.shapes, strict=True):
            path = _path(accessor) or accessor.codify(self.what)
            found += _of_elements(path, shape)
        return found

    @property
    def is_lone(self) -> bool:
        """Whether the tree is one array or number, labelled or not."""
        kind = self.structure.type
        return kind is None or (
            self.structure.num_leaves == 1 and kind.__module__.startswith(("pandas", "xarray"))
        )

    def tree(self, vector: np.ndarray) -> Tree:
        """The tree that a vector stands for."""
        if self.is_array:
            return np.array(vector, dtype=float).reshape(self.shapes[0])
        leaves: list[Any] = []
        start = 0
        for shape, size, kind in zip(self.shapes, self.sizes, self.kinds, strict=True):
            part = np.array(vector[start : start + size], dtype=float).reshape(shape)
            leaves.append(
                wrap(part) if kind == "tensor" else float(part) if kind == "number" else part
            )
            start += size
        return self.structure.unflatten(leaves)

    def argument(self, vector: np.ndarray) -> Tree:
        """The tree as a function gets it: as `tree`, but around tensors where pandas holds the values.

        pandas cannot hold tensors, so a differentiated function gets bare tensors. An undifferentiated run must get the same.
        """
        if not self.pandas:
            return self.tree(vector)
        leaves = flatten(self.tree(vector))[0]
        return self.structure.unflatten([wrap(np.asarray(plain(leaf))) for leaf in leaves])

    def split(self, vector: Any) -> Tree:
        """The tree of a vector that is tracked: its leaves are tensors, made of the vector's pieces."""
        leaves = []
        start = 0
        for shape, size in zip(self.shapes, self.sizes, strict=True):
            leaves.append(np.reshape(vector[start : start + size], shape))
            start += size
        return self.structure.unflatten(leaves)

    def vector(self, tree: Tree, what: str = "the gradient") -> np.ndarray:
        """The vector of a tree of this structure, or with values to broadcast to its leaves."""
        if self.is_array and type(tree) is np.ndarray and tree.shape == self.shapes[0]:
            return _real(tree, what).reshape(-1)
        leaves, structure = flatten(tree)
        if structure != self.structure:
            raise ValueError(
                f"{what} has another structure than {self.what}: arrange it like {self.what}."
            )
        parts = []
        for leaf, shape in zip(leaves, self.shapes, strict=True):
            array = _real(leaf, what)
            try:
                parts.append(np.broadcast_to(array, shape).reshape(-1))
            except ValueError:
                raise ValueError(
                    f"{what} has shape {array.shape} where {self.what} has {shape}: they must agree."
                ) from None
        return np.concatenate(parts)

    def columns(self, blocks: Sequence[Any]) -> np.ndarray:
        """Blocks of a Jacobian, one for each leaf of a tree like this one, side by side: a row for each element of the value."""
        if self.is_array and type(blocks[0]) is np.ndarray and blocks[0].dtype == np.float64:
            return blocks[0].reshape(-1, self.size)
        arrays = [np.asarray(plain(b), dtype=float) for b in blocks]
        rows = math.prod(arrays[0].shape[: arrays[0].ndim - len(self.shapes[0])])
        return joined_arrays(
            [b.reshape(rows, n) for b, n in zip(arrays, self.sizes, strict=True)], axis=1
        )


def joined_arrays(parts: list[np.ndarray], axis: int = 0) -> np.ndarray:
    """The parts joined along an axis; a single part is returned as it is."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=axis)


def _of_elements(path: str, shape: tuple[int, ...]) -> list[str]:
    """The names of the elements of an array, `x0[1, 2]`; of a number its own."""
    if not shape:
        return [path]
    if len(shape) == 1:
        return [f"{path}[{i}]" for i in range(shape[0])]
    return [f"{path}[{', '.join(map(str, i))}]" for i in itertools.product(*map(range, shape))]


def _path(accessor: Any) -> str:
    """The path to a leaf in dotted form, `layer.w` for `["layer"]["w"]`; "" if the path does not begin with a name."""
    path = ""
    for step in accessor:
        key = getattr(step, "entry", None)
        if isinstance(key, str) and key.isidentifier():
            path += f".{key}" if path else key
        elif path:
            path += f"[{key!r}]"
        else:
            return ""
    return path


def _holds_pandas(structure: Any) -> bool:
    kind = structure.type
    mine = kind is not None and kind.__module__.partition(".")[0] == "pandas"
    return mine or any(_holds_pandas(child) for child in structure.children())


def plain(value: Any) -> Any:
    """The array of a tensor; any other value unchanged."""
    return value.detach().numpy() if isinstance(value, Tensor) else value


def outputs(value: Tree, name: str) -> np.ndarray:
    """The returned tree of a function as one vector. Raises TypeError for None and for values that are not real."""
    if value is None:
        raise TypeError(f"{name} returned None. Does it end with a return?")
    if type(value) is np.ndarray and value.dtype == np.float64:
        return value.flatten()
    parts = [_real(leaf, f"the value of {name}").reshape(-1) for leaf in flatten(value)[0]]
    return joined_arrays(parts) if parts else np.zeros(0)


def joined(value: Tree) -> Any:
    """The returned tree of a function as one tracked vector."""
    leaves = [wrap(leaf) if isinstance(leaf, float | int) else leaf for leaf in flatten(value)[0]]
    return flat([leaf.astype(float) for leaf in leaves])


def _kind(leaf: Any) -> str:
    if isinstance(leaf, Tensor):
        return "tensor"
    return "number" if isinstance(leaf, float | int) else "array"


def _real(value: Any, what: str) -> np.ndarray:
    refuse_units(value, what)
    array = np.asarray(plain(value))
    if array.dtype.kind == "c":
        raise TypeError(
            f"{what} is complex, but SciPy's solvers work with real numbers: solve for real and imaginary parts."
        )
    if array.dtype.kind not in "fiub":
        raise TypeError(
            f"{what} holds {type(value).__name__} (dtype {array.dtype}), but only numbers and arrays of numbers can be solved "
            "for: close over the rest, or pass it in args."
        )
    return array.astype(float)
