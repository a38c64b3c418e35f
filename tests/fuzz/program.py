"""A program: the source of `f`, and how its arguments are made. Equal numbers give equal programs and equal arguments.

A parameter is a tree (tuples, lists and dicts) of leaves; a leaf has a shape, a type and a layout in memory. Arguments are made from a
parameter and a seed, so that a program can be called with other values, and with other layouts of the same values.
"""

from __future__ import annotations

import linecache
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

import tapegrad as tg


def _strided(x: np.ndarray) -> np.ndarray:
    wide = np.full((*x.shape[:-1], 2 * x.shape[-1]), 7, x.dtype)
    wide[..., ::2] = x
    return wide[..., ::2]


def _flipped(x: np.ndarray) -> np.ndarray:
    return x[::-1].copy()[::-1]


def _transposed(x: np.ndarray) -> np.ndarray:
    return x.T.copy().T


def _swapped(x: np.ndarray) -> np.ndarray:
    return np.swapaxes(np.swapaxes(x, 0, -1).copy(), 0, -1)


def _offset(x: np.ndarray) -> np.ndarray:
    wide = np.full(tuple(n + 1 for n in x.shape), 7, x.dtype)
    inner = wide[tuple(slice(1, None) for _ in x.shape)]
    inner[...] = x
    return inner


def _unaligned(x: np.ndarray) -> np.ndarray:
    raw = np.zeros(x.nbytes + 1, np.uint8)
    view = raw[1:].view(x.dtype).reshape(x.shape)
    view[...] = x
    return view


def _readonly(x: np.ndarray) -> np.ndarray:
    x = x.copy()
    x.flags.writeable = False
    return x


def _broadcast(x: np.ndarray) -> np.ndarray:
    return np.broadcast_to(x[:1].copy(), x.shape)


LAYOUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "C": np.ascontiguousarray,
    "F": np.asfortranarray,
    "transposed": _transposed,
    "flipped": _flipped,
    "strided": _strided,
    "swapped": _swapped,
    "offset": _offset,
    "unaligned": _unaligned,
    "readonly": _readonly,
    "broadcast": _broadcast,  # all rows become equal to the first
}


@dataclass
class Leaf:
    """One array or number: `python` numbers have shape () and are float or complex."""

    shape: tuple[int, ...]
    dtype: str = "float64"
    layout: str = "C"
    python: bool = False

    @property
    def differentiable(self) -> bool:
        return self.dtype[0] in "fc"

    def make(self, rng: np.random.Generator, layout: str | None, wide: bool) -> Any:
        size = (*self.shape,)
        x = rng.uniform(0.2, 1.5, size) * rng.choice([-1.0, 1.0], size)
        if self.dtype.startswith("complex"):
            x = x + 1j * rng.uniform(-1, 1, size)
        if self.dtype.startswith(("int", "uint")):
            x = np.asarray(rng.integers(0 if self.dtype[0] == "u" else -2, 3, size))
        if self.dtype == "bool":
            x = np.asarray(x) > 0
        x = np.asarray(x).astype(self.dtype)
        if wide and self.differentiable:
            x = x.astype("complex128" if self.dtype.startswith("c") else "float64")
        if self.python:
            return x.item()
        here = layout or self.layout
        if x.ndim == 0 or x.size == 0:
            return x
        return LAYOUTS[here](x)


def leaves(tree: Any) -> list[Leaf]:
    if isinstance(tree, Leaf):
        return [tree]
    items = tree.values() if isinstance(tree, dict) else tree
    return [leaf for item in items for leaf in leaves(item)]


def mapped(function: Callable[[Any], Any], tree: Any) -> Any:
    """A tree like this one with the function of each leaf."""
    if isinstance(tree, dict):
        return {k: mapped(function, v) for k, v in tree.items()}
    if isinstance(tree, tuple | list):
        return type(tree)(mapped(function, v) for v in tree)
    return function(tree)


@dataclass
class Program:
    """Source of `f`, and its parameters in order."""

    number: int
    source: str
    parameters: list[Any]
    dialect: str = "arrays"
    engines: list[str] = field(default_factory=list)

    def function(self, extra: dict[str, Any] | None = None) -> Callable[..., Any]:
        name = f"<program {self.number} {zlib.crc32(self.source.encode()):x}>"
        linecache.cache[name] = (len(self.source), None, self.source.splitlines(True), name)
        scope: dict[str, Any] = {"np": np, "tg": tg, **(extra or {})}
        exec(compile(self.source, name, "exec"), scope)
        return scope["f"]

    def arguments(self, call: int = 0, other_layout: bool = False, wide: bool = False) -> list[Any]:
        """The arguments of a call: other numbers of calls have other values."""
        rng = np.random.default_rng([self.number % 2**32, call])
        names = list(LAYOUTS)

        def make(leaf: Leaf) -> Any:
            layout = str(rng.choice(names[:-1])) if other_layout else None
            return leaf.make(rng, layout, wide)

        return [mapped(make, p) for p in self.parameters]

    @property
    def argnums(self) -> tuple[int, ...]:
        """Parameters all of whose leaves can be differentiated by."""
        return tuple(
            i for i, p in enumerate(self.parameters) if all(x.differentiable for x in leaves(p))
        )

    def dump(self) -> dict[str, Any]:
        made = mapped(lambda x: {"leaf": asdict(x)}, self.parameters)
        return {
            "number": self.number,
            "source": self.source,
            "parameters": repr(made),
            "dialect": self.dialect,
            "engines": self.engines,
        }

    @classmethod
    def load(cls, data: dict[str, Any]) -> Program:
        import ast

        def back(tree: Any) -> Any:
            if isinstance(tree, dict) and set(tree) == {"leaf"}:
                return Leaf(**tree["leaf"])
            if isinstance(tree, dict):
                return {k: back(v) for k, v in tree.items()}
            return type(tree)(back(v) for v in tree)

        return cls(**{**data, "parameters": back(ast.literal_eval(data["parameters"]))})

    def script(self) -> str:
        """The program as a script: its source, and how it is called."""
        return (
            "import numpy as np\nimport tapegrad as tg\nfrom tests.fuzz.program import Leaf, Program\n\n"
            f"{self.source}\n\n"
            f"p = Program({self.number}, '', {self.parameters!r})\n"
            "arguments = p.arguments()  # arguments(2, other_layout=True): the third call\n"
            "print(f(*arguments))\n"
        )
