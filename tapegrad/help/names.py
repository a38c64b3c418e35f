"""The public names as data: every place that holds some, and of each name the first line of its docstring.

A name that means what it means in NumPy, SciPy or PyTorch's in-place methods is *borrowed*: it is listed, and its meaning is to be
read there. All others are *own*, with a summary. Nothing is typed by hand: `python -m tapegrad names` prints what the package
holds, the guide shows the same between its marks, and a name without a summary is an error.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

from ..face.methods import Elsewhere
from .documents import cell

PLACES: dict[str, tuple[str, ...]] = {
    "tapegrad": ("numpy",),
    "tapegrad.Tensor": ("numpy.ndarray", "numpy"),
    "tapegrad.linalg": ("numpy.linalg", "scipy.linalg"),
    "tapegrad.fft": ("numpy.fft", "scipy.fft"),
    "tapegrad.special": ("scipy.special",),
    "tapegrad.stats": ("scipy.stats",),
    "tapegrad.signal": ("scipy.signal",),
    "tapegrad.interpolate": ("scipy.interpolate",),
    "tapegrad.ndimage": ("scipy.ndimage",),
    "tapegrad.spatial": ("scipy.spatial",),
    "tapegrad.spatial.distance": ("scipy.spatial.distance",),
    "tapegrad.spatial.transform": ("scipy.spatial.transform",),
    "tapegrad.integrate": ("scipy.integrate",),
    "tapegrad.optimize": (),
    "tapegrad.sparse": ("scipy.sparse",),
    "tapegrad.sparse.linalg": ("scipy.sparse.linalg",),
    "tapegrad.sparse.SparseTensor": (),
    "tapegrad.sparse.linalg.LU": (),
    "tapegrad.sparse.linalg.LinearOperator": (),
    "tapegrad.autograd": (),
    "tapegrad.autograd.function": (),
    "tapegrad.autograd.graph": (),
    "tapegrad.autograd.functional": (),
    "tapegrad.autograd.forward_ad": (),
    "tapegrad.check": (),
    "tapegrad.check.GradientCheck": (),
    "tapegrad.check.AdjointCheck": (),
    "tapegrad.compiler.Compiled": (),
    "tapegrad.native": (),
    "tapegrad.native.NativeFunction": (),
    "tapegrad.optim": (),
    "tapegrad.optim.Optimizer": (),
    "tapegrad.optim.lr_scheduler": (),
    "tapegrad.dask": (),
}
"""Modules and classes that hold public names, and whose names they borrow."""

MODULES = {"tapegrad.numpy"}
"""Modules that are public as a whole, and borrow all their names."""


class Place(NamedTuple):
    """A module or class: what it is for, its own names with their summaries, and the names it borrows, by whose they are."""

    summary: str
    own: dict[str, str]
    borrowed: dict[str, list[str]]


@cache
def place(name: str) -> Place:
    """The public names of one of `PLACES`. Raises LookupError for a name that no docstring explains.

    >>> place("tapegrad").own["vjp"]
    'Value of `f` and the map from output cotangents to argument cotangents.'
    >>> "sin" in place("tapegrad").borrowed["numpy"]
    True
    """
    holder = holder_of(name)
    own: dict[str, str] = {}
    borrowed: dict[str, list[str]] = {}
    for public, value in public_names(name, holder):
        lender = _lender(public, value, PLACES[name])
        if lender:
            borrowed.setdefault(lender, []).append(public)
        else:
            own[public] = _summary(f"{name}.{public}", value)
    return Place(_summary(name, holder), own, borrowed)


def find(word: str) -> dict[str, str]:
    """Own names, written in full, that hold a word in the name or in the summary.

    >>> list(find("Hessian-vector"))
    ['tapegrad.hvp']
    """
    return {
        f"{of}.{name}": summary
        for of in PLACES
        for name, summary in place(of).own.items()
        if word.lower() in f"{name} {summary}".lower()
    }


def table() -> str:
    """All places in Markdown: how many names each has, then a folded table for each."""
    lines = ["| place | names | what it is |", "| --- | ---: | --- |"]
    for name in PLACES:
        summary, own, borrowed = place(name)
        count = len(own) + sum(map(len, borrowed.values()))
        lines.append(f"| `{name}` | {count} | {cell(summary)} |")
    for name in PLACES:
        _, own, borrowed = place(name)
        lines += ["", "<details>", f"<summary>{name}</summary>", ""]
        if own:
            lines += ["| name | what it is |", "| --- | --- |"]
            lines += [f"| `{n}` | {cell(summary)} |" for n, summary in own.items()]
        for lender, names in borrowed.items():
            lines += ["", f"As in {lender}: {' '.join(f'`{n}`' for n in names)}"]
        lines += ["", "</details>"]
    return "\n".join(lines)


def public_names(name: str, holder: Any) -> Iterator[tuple[str, Any]]:
    """Names that may be used, with what they stand for; `holder` is what stands under the name of the place."""
    # A module that answers `dir` itself knows names that a star import does not take.
    listed = vars(holder).get("__all__") if "__dir__" not in vars(holder) else None
    for public in sorted(dir(holder) if listed is None else listed, key=str.lower):
        if public.startswith("_") or public == "annotations":  # of `from __future__`
            continue
        value = inspect.getattr_static(holder, public, None)
        if isinstance(holder, ModuleType):
            value = getattr(holder, public)
        elif not (callable(value) or inspect.isdatadescriptor(value)):
            continue
        elif isinstance(value, Elsewhere) or inspect.ismemberdescriptor(
            value
        ):  # a slot: described where the class is
            continue
        full = f"{name}.{public}"
        if isinstance(value, ModuleType) and full not in PLACES and full not in MODULES:
            continue  # one of the files that the package is made of
        yield public, value


def _lender(public: str, value: Any, lenders: tuple[str, ...]) -> str | None:
    """Whose name this is."""
    if isinstance(value, property | ModuleType):
        return None
    if public.endswith("_") and lenders[:1] == ("numpy.ndarray",) and not _explained(value):
        return "PyTorch, in place"
    return next((of for of in lenders if hasattr(holder_of(of), public)), None)


def _explained(value: Any) -> bool:
    """Whether an in-place method has a docstring of its own, not one that says whose it is."""
    return not (inspect.getdoc(value) or "").startswith("In place: ")


def _summary(full: str, value: Any) -> str:
    """The first paragraph of a docstring."""
    paragraph = (inspect.getdoc(value) or "").strip().split("\n\n")[0].split("\n    ")[0]
    if not paragraph:
        raise LookupError(
            f"{full} is public and has no docstring: say in its first line what it is."
        )
    return paragraph.replace("\n", " ")


def holder_of(name: str) -> Any:
    """A module, or what stands in one."""
    try:
        return import_module(name)
    except ModuleNotFoundError:
        module, _, last = name.rpartition(".")
        return getattr(import_module(module), last)


__all__ = ["MODULES", "PLACES", "Place", "find", "holder_of", "place", "public_names", "table"]
