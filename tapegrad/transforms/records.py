"""Dataclasses and attrs classes as pytrees: their fields are the children, and what is no number says what the record is.

A class is registered with optree when one of its objects is first met as a leaf; a class that somebody has registered is never one.
A field is *static*, part of the structure instead of a child, where its metadata say `{"static": True}`, or where its value is a string,
a flag, None, a function or class, an enum or a dtype; so is whatever else the object has as attributes. An object is put together again
without `__init__`: that may convert or check what is now a tensor.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Iterable
from typing import Any

import numpy as np

from ..core.tensor import Tensor

_STATIC = (
    str,
    bytes,
    bool,
    type(None),
    type,
    types.FunctionType,
    types.BuiltinFunctionType,
    np.ufunc,
    np.dtype,
    enum.Enum,
)
_known: set[type] = {int, float, complex, np.ndarray, np.float64, np.float32, Tensor}
"""Classes that optree knows, and those that are met in each call and are no records."""


class _Structure:
    """What is left of a record without its children: the names of these, and the static fields; equal if all that is."""

    __slots__ = ("children", "static")

    def __init__(self, children: tuple[str, ...], static: dict[str, Any]) -> None:
        self.children = children
        self.static = static

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Structure):
            return NotImplemented
        if self.children != other.children or self.static.keys() != other.static.keys():
            return False
        return all(_same(value, other.static[name]) for name, value in self.static.items())

    def __hash__(self) -> int:
        return hash((self.children, *self.static))

    def __repr__(self) -> str:
        return ", ".join([*self.children, *(f"{n}={v!r}" for n, v in self.static.items())])


def _same(a: Any, b: Any) -> bool:
    if a is b:
        return True
    try:
        return type(a) is type(b) and bool(a == b)
    except ValueError:  # arrays, which are not one truth
        return False


def register(optree: Any, namespace: str, leaves: Iterable[Any]) -> bool:
    """Make the classes of records among these leaves known to optree; whether there was one."""
    kinds = set(map(type, leaves)) - _known
    if not kinds:
        return False
    found = [kind for kind in kinds if not kind.__module__.startswith("tapegrad") and _fields(kind)]
    for kind in found:
        _known.add(kind)
        optree.register_pytree_node(
            kind,
            _flatten,
            _unflatten_as(kind),
            path_entry_type=optree.GetAttrEntry,
            namespace=namespace,
        )
    return bool(found)


def _fields(kind: type) -> tuple[tuple[str, bool], ...]:
    """The fields of a record with whether their metadata call them static; none of anything else."""
    known = getattr(kind, "__attrs_attrs__", None)
    if known is None:
        fields = getattr(kind, "__dataclass_fields__", {})
        known = [f for f in fields.values() if f._field_type.name == "_FIELD"]
    return tuple((f.name, bool(f.metadata.get("static"))) for f in known)


def _flatten(record: Any) -> tuple[Any, ...]:
    children: dict[str, Any] = {}
    static: dict[str, Any] = {}
    for name, is_static in _fields(type(record)):
        if hasattr(record, name):  # field(init=False) may not be there yet
            value = getattr(record, name)
            (static if is_static or isinstance(value, _STATIC) else children)[name] = value
    for name, value in getattr(record, "__dict__", {}).items():
        if name not in children:
            static[name] = value
    names = tuple(children)
    return tuple(children.values()), _Structure(names, static), names


def _unflatten_as(kind: type) -> Any:
    def unflatten(structure: _Structure, children: Any) -> Any:
        record: Any = object.__new__(kind)
        for name, value in zip(structure.children, children, strict=True):
            object.__setattr__(record, name, value)
        for name, value in structure.static.items():
            object.__setattr__(record, name, value)
        return record

    return unflatten


__all__ = ["register"]
