"""The function under check, as a map from one real vector to another.

A `Subject` holds a function and the point it is checked at. Of the arguments that are differentiated, the leaves (arrays,
numbers, tensors, in whatever pytrees) are laid end to end in a vector `x` of float64, complex ones as real and imaginary
part; each element has a name that Python would accept, such as `params['w'][1, 2]`. Outputs are laid out the same way.

Invariant: the function never sees memory that is kept. Each call gets fresh copies, of the types the user gave (float32 is
promoted to float64: differences in float32 say nothing), and a function that writes into them is refused by name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.mode import no_grad
from ..core.tensor import Tensor, wrap
from ..transforms.derivatives import NAMESPACE, _list_of_numbers, _optree, tree_flatten

Tree = Any

FAILURES = (ArithmeticError, ValueError, np.linalg.LinAlgError)
"""What a model may raise beside the point (outside its domain, no convergence): such values count as NaN."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One leaf of the arguments: where it lies in the vector, and how it looks to the function."""

    name: str
    start: int
    shape: tuple[int, ...]
    complex: bool
    kind: str  # "array", "tensor" or "number"

    @property
    def size(self) -> int:
        """Elements of the leaf; of the vector it takes twice as many if it is complex."""
        return int(np.prod(self.shape, dtype=int))

    @property
    def width(self) -> int:
        return self.size * (1 + self.complex)

    def names(self) -> list[str]:
        """A name for each of its elements of the vector."""
        if self.shape:
            plain = [
                f"{self.name}[{', '.join(map(str, index))}]" for index in np.ndindex(self.shape)
            ]
        else:
            plain = [self.name]
        return (
            [f"{name}.{part}" for name in plain for part in ("real", "imag")]
            if self.complex
            else plain
        )


class Subject:
    """`f` at `args`, seen as a function of the vector made from the arguments at `argnums`."""

    def __init__(self, f: Callable[..., Any], args: Sequence[Any], argnums: Any = None) -> None:
        """Flatten the arguments that are differentiated into one vector `x` with a Slot for each leaf, and evaluate once."""
        if not callable(f):
            raise TypeError(
                f"the check was asked of {type(f).__name__}, which cannot be called: pass the function first, then the point."
            )
        if not args:
            raise TypeError(
                f"the check of {title(f)} was given no point: pass the arguments to check at after the function."
            )
        self.f = f
        self.title = title(f)
        self.args = tuple(np.asarray(a) if _list_of_numbers(a) and a else a for a in args)
        self.positions = self._positions(argnums)
        self.single = len(self.positions) == 1 and not isinstance(argnums, tuple | list)
        self.structures: list[Any] = []
        self.slots: list[Slot] = []
        parts: list[np.ndarray] = []
        parameters = _parameter_names(f, len(args))
        start = 0
        for position in self.positions:
            leaves, structure = _flatten(self.args[position])
            paths = [a.codify(parameters[position]) for a in structure.accessors()]
            self.structures.append(structure)
            for leaf, path in zip(leaves, paths, strict=True):
                values = _numbers(leaf, path)
                self.slots.append(
                    Slot(path, start, values.shape, values.dtype.kind == "c", _kind(leaf))
                )
                parts.append(_real(values))
                start += self.slots[-1].width
        self.x = np.concatenate(parts) if parts else np.zeros(0)
        if self.x.size == 0:
            raise ValueError(
                f"the check of {self.title} was given a point without a single number: there is nothing to differentiate by."
            )
        self.evaluations = 0
        self.y = self._first_value()

    def _positions(self, argnums: Any) -> list[int]:
        if argnums is None:
            positions = [k for k, a in enumerate(self.args) if _has_floats(a)]
            return positions or list(range(len(self.args)))
        numbers = argnums if isinstance(argnums, tuple | list) else (argnums,)
        for number in numbers:
            if not isinstance(number, int | np.integer) or not 0 <= number < len(self.args):
                raise TypeError(
                    f"argnums={argnums!r} names an argument that was not given: there are {len(self.args)}, counted from 0."
                )
        return [int(number) for number in numbers]

    # ------------------------------------------------------------------------------------ vectors and arguments

    @property
    def names(self) -> list[str]:
        """The elements of the vector, by name."""
        return [name for slot in self.slots for name in slot.names()]

    def name(self, i: int) -> str:
        """The name of one element."""
        slot = next(s for s in reversed(self.slots) if s.start <= i)
        return slot.names()[i - slot.start]

    def scales(self) -> np.ndarray:
        """A length typical of each element: its size; of zeros, the median size of its leaf, or 1."""
        scale = np.abs(self.x)
        for slot in self.slots:
            part = scale[slot.start : slot.start + slot.width]
            sizes = part[part > 0]
            part[part == 0] = np.median(sizes) if sizes.size else 1.0
        return scale

    def arguments(self, x: np.ndarray) -> tuple[Any, ...]:
        """Arguments of `f`, in memory of their own, with the vector's values at those that are differentiated."""
        args = [_copied(a) for a in self.args]
        position = 0
        for k, structure in zip(self.positions, self.structures, strict=True):
            leaves = []
            for slot in self.slots[position : position + structure.num_leaves]:
                leaves.append(_leaf(slot, x[slot.start : slot.start + slot.width]))
            position += structure.num_leaves
            args[k] = _optree().tree_unflatten(structure, leaves)
        return tuple(args)

    def vector(self, tree: Tree, what: str) -> np.ndarray:
        """A gradient in the structure of the arguments, as a vector. Raises ValueError where it does not fit."""
        trees = (tree,) if self.single else tree
        if not self.single and not (
            isinstance(tree, tuple | list) and len(tree) == len(self.positions)
        ):
            raise ValueError(
                f"{what} returned {type(tree).__name__}, but {self.title} is checked by {len(self.positions)} arguments: "
                "return a tuple with a gradient for each, or say to which it belongs: argnums=0, --argnums 0."
            )
        parts = []
        position = 0
        for given, structure in zip(trees, self.structures, strict=True):
            slots = self.slots[position : position + structure.num_leaves]
            position += structure.num_leaves
            parts += self._parts(given, slots, what)
        return np.concatenate(parts)

    def _parts(self, given: Tree, slots: list[Slot], what: str) -> list[np.ndarray]:
        """The leaves of a gradient as flat real arrays, one for each slot; an error in words where the form does not fit."""
        if given is None:
            raise TypeError(f"{what} returned None. Does it end with a return?")
        leaves, _ = _flatten(given)
        if len(leaves) != len(slots):
            values = _plain(given)
            total = sum(s.width for s in slots)
            if values.shape == (total,) and not any(s.complex for s in slots):
                return [values.astype(float)]
            raise ValueError(
                f"{what} returned {len(leaves)} arrays, but the point has {len(slots)}: return a gradient for each, "
                "arranged like the point."
            )
        parts = []
        for leaf, slot in zip(leaves, slots, strict=True):
            values = _numbers(leaf, what)
            if values.shape != slot.shape and not (values.size == slot.size == 1):
                raise ValueError(
                    f"{what} returned shape {values.shape} for {slot.name} of shape {slot.shape}: a gradient has the shape "
                    "of what it belongs to."
                )
            if values.dtype.kind == "c" and not slot.complex:
                raise ValueError(
                    f"{what} is complex, but {slot.name} is real: take the real part of the gradient."
                )
            parts.append(_real(values.astype(complex) if slot.complex else values))
        return parts

    # ------------------------------------------------------------------------------------ values

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """The outputs at a vector; NaN where `f` fails as models do beside their domain."""
        self.evaluations += 1
        try:
            return self._value(x)
        except FAILURES:
            return np.full(self.y.shape, np.nan)

    def _value(self, x: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"), no_grad():
            return outputs(self.f(*self.arguments(x)), self.title)

    def _first_value(self) -> np.ndarray:
        """The value at the point itself, where nothing may go wrong."""
        if not np.isfinite(self.x).all():
            bad = self.name(int(np.argmin(np.isfinite(self.x))))
            raise ValueError(
                f"the point has {bad} = nan or inf: check at a point of finite numbers."
            )
        args = self.arguments(self.x)
        with np.errstate(all="ignore"), no_grad():
            y = outputs(self.f(*args), self.title)
        self.evaluations += 1
        for k, slot, leaf in self._seen(args):
            if not np.array_equal(_numbers(leaf, slot.name), self.at(slot)):
                raise ValueError(
                    f"{self.title} changed its argument {_parameter_names(self.f, len(args))[k]} in place, so no two calls "
                    "see the same point: let it work on a copy (x = x.copy())."
                )
        if not np.isfinite(y).all():
            bad = y[~np.isfinite(y)][0]
            raise ValueError(
                f"{self.title} is {bad} at this point: derivatives can be checked only where the value is finite."
            )
        return y

    def at(self, slot: Slot) -> np.ndarray:
        """The values of a leaf at the point."""
        return _complex_or_real(slot, self.x[slot.start : slot.start + slot.width])

    def _seen(self, args: tuple[Any, ...]) -> list[tuple[int, Slot, Any]]:
        """The leaves of arguments that a call has used, each with its slot."""
        seen = []
        position = 0
        for k, structure in zip(self.positions, self.structures, strict=True):
            leaves = _flatten(args[k])[0]
            if len(leaves) != structure.num_leaves:
                raise ValueError(
                    f"{self.title} changed the structure of argument {k} (it added or removed entries): let it work on a copy."
                )
            for leaf in leaves:
                seen.append((k, self.slots[position], leaf))
                position += 1
        return seen

    def complex_value(self, x: np.ndarray) -> np.ndarray:
        """The outputs at a complex vector. Raises TypeError where `f` does not take one or drops the imaginary part."""
        if any(slot.complex for slot in self.slots):
            raise TypeError("the point is complex itself")
        self.evaluations += 1
        args = [_copied(a) for a in self.args]
        position = 0
        for k, structure in zip(self.positions, self.structures, strict=True):
            leaves = []
            for slot in self.slots[position : position + structure.num_leaves]:
                values = x[slot.start : slot.start + slot.width].reshape(slot.shape)
                leaves.append(
                    wrap(np.array(values))
                    if slot.kind == "tensor"
                    else complex(values)
                    if slot.kind == "number"
                    else np.array(values)
                )
            position += structure.num_leaves
            args[k] = _optree().tree_unflatten(structure, leaves)
        with np.errstate(all="ignore"), no_grad():
            value = self.f(*args)
        parts = [_plain(leaf).reshape(-1) for leaf in _flatten(value)[0]]
        return np.concatenate([p.astype(complex) for p in parts])


def outputs(value: Any, name: str) -> np.ndarray:
    """What a function returned, as a vector of float64. Raises TypeError for anything but numbers."""
    if value is None:
        raise TypeError(f"{name} returned None. Does it end with a return?")
    parts = [_real(_numbers(leaf, f"the value of {name}")) for leaf in _flatten(value)[0]]
    y = np.concatenate(parts) if parts else np.zeros(0)
    if y.size == 0:
        raise ValueError(f"{name} returned no number at all: there is nothing to differentiate.")
    return y


def title(f: Any) -> str:
    """What to call a function in a sentence."""
    name = getattr(f, "__name__", None) or type(f).__name__
    return "f" if name == "<lambda>" else name


# ---------------------------------------------------------------------------------------------------- leaves


def _flatten(tree: Tree) -> tuple[list[Any], Any]:
    return tree_flatten(tree)


def _parameter_names(f: Any, count: int) -> list[str]:
    """Names for the arguments: those of the signature, or x and arg1, arg2, ..."""
    try:
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        names = [p.name for p in inspect.signature(f).parameters.values() if p.kind in kinds]
    except (TypeError, ValueError):
        names = []
    fallback = ["x", *(f"arg{k}" for k in range(1, count))]
    return [*names[:count], *fallback[len(names) :]][:count]


def _plain(value: Any) -> np.ndarray:
    """Anything that holds numbers as a NumPy array: tensors of this and other libraries lose their graph."""
    if isinstance(value, Tensor):
        return value.detach().numpy()
    if hasattr(value, "detach"):  # another library's tensor
        value = value.detach().cpu()
    return np.asarray(value)


def _numbers(value: Any, what: str) -> np.ndarray:
    """The same as float64 or complex128. Raises TypeError for text, objects, None."""
    array = _plain(value)
    if array.dtype.kind not in "fciub":
        try:  # dtypes that NumPy does not know, such as bfloat16, and objects that are numbers
            return array.astype(float)
        except (TypeError, ValueError):
            raise TypeError(
                f"{what} holds {type(value).__name__} (dtype {array.dtype}), but only numbers and arrays of numbers can be "
                "checked: choose the arguments to differentiate by with argnums."
            ) from None
    return array.astype(complex if array.dtype.kind == "c" else float)


def _real(values: np.ndarray) -> np.ndarray:
    """A flat float64 vector: complex numbers as pairs."""
    flat = np.ascontiguousarray(values).reshape(-1)
    return flat.view(float) if flat.dtype.kind == "c" else flat


def _complex_or_real(slot: Slot, values: np.ndarray) -> np.ndarray:
    values = np.array(values)
    return (values.view(complex) if slot.complex else values).reshape(slot.shape)


def _kind(leaf: Any) -> str:
    if isinstance(leaf, Tensor):
        return "tensor"
    return "number" if isinstance(leaf, float | int | complex) else "array"


def _leaf(slot: Slot, values: np.ndarray) -> Any:
    array = _complex_or_real(slot, values)
    if slot.kind == "tensor":
        return wrap(array)
    return array.item() if slot.kind == "number" else array


def _has_floats(tree: Any) -> bool:
    return any(
        _plain(leaf).dtype.kind in "fc"
        for leaf in _flatten(tree)[0]
        if not isinstance(leaf, str | bytes) and not callable(leaf)
    )


def _copied(tree: Any) -> Any:
    """The arguments that are not differentiated, safe from writes."""
    copy = lambda leaf: leaf.copy() if isinstance(leaf, np.ndarray) else leaf  # noqa: E731  one line in one place
    return _optree().tree_map(copy, tree, namespace=NAMESPACE)
