"""Labelled arrays (pandas, xarray) as pytrees: values go in, gradients come out with the same labels.

A Series, DataFrame, DataArray or Dataset is a node whose leaves are its arrays. Put together again around arrays it is what it
was; around tensors an xarray object keeps its labels (xarray holds any array), while pandas, which holds NumPy arrays only,
gives way to the bare tensor. The types are registered with optree when their library has been imported: nothing here
imports it.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from ..core.tensor import Tensor

_registered: set[str] = set()


def register(optree: Any, namespace: str) -> None:
    """Make the labelled types of the libraries that are loaded by now known to optree, and sparse matrices."""
    arrays = sys.modules.get("tapegrad.sparse.arrays")
    if arrays is not None and "sparse" not in _registered and hasattr(arrays, "register"):
        _registered.add("sparse")
        arrays.register(optree, namespace)
    for name, types in (("pandas", ("Series", "DataFrame")), ("xarray", ("DataArray", "Dataset"))):
        library = sys.modules.get(name)
        if library is None or name in _registered or not all(hasattr(library, t) for t in types):
            continue
        _registered.add(name)
        for kind in types:
            optree.register_pytree_node(
                getattr(library, kind),
                _flatten_dataset if kind == "Dataset" else _flatten,
                _unflatten_dataset if kind == "Dataset" else _unflatten,
                path_entry_type=optree.GetItemEntry if kind == "Dataset" else optree.GetAttrEntry,
                namespace=namespace,
            )


class _Labels:
    """What is left of a labelled object without its values; equal if the shapes and names of axes are."""

    __slots__ = ("like",)

    def __init__(self, like: Any) -> None:
        self.like = like

    def _key(self) -> Any:
        if hasattr(self.like, "data_vars"):
            return type(self.like), tuple(self.like.data_vars)
        return type(self.like), self.like.shape, getattr(self.like, "dims", ())

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, _Labels) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())


def _flatten(labelled: Any) -> tuple[Any, ...]:
    inside = "data" if hasattr(labelled, "dims") else "values"
    values = getattr(labelled, inside)
    return (values,), _Labels(labelled), (inside,)


def _unflatten(labels: _Labels, leaves: Any) -> Any:
    (leaf,) = leaves
    like = labels.like
    if getattr(leaf, "shape", None) != like.shape:
        return leaf  # a block of a Jacobian, which has other axes
    if hasattr(like, "dims"):
        return like.copy(data=leaf)
    if isinstance(leaf, Tensor) or not isinstance(leaf, np.ndarray):
        return leaf
    if like.ndim == 1:
        return type(like)(leaf, index=like.index, name=like.name)
    return type(like)(leaf, index=like.index, columns=like.columns)


def _flatten_dataset(dataset: Any) -> tuple[Any, ...]:
    names = tuple(dataset.data_vars)
    return tuple(dataset[name].data for name in names), _Labels(dataset), names


def _unflatten_dataset(labels: _Labels, leaves: Any) -> Any:
    names = tuple(labels.like.data_vars)
    shapes = [labels.like[name].shape for name in names]
    if [getattr(leaf, "shape", None) for leaf in leaves] != shapes:
        return dict(zip(names, leaves, strict=True))
    return labels.like.copy(data=dict(zip(names, leaves, strict=True)))
