"""Pictures of what was recorded: a graph of the entries behind a tensor, and a table of a tape for notebooks.

`make_dot` walks from a tensor to its leaves and writes Graphviz's DOT language, which needs no package; only turning that into a
picture needs Graphviz's program `dot`. Gradients flow along the arrows, from the result back to the leaves;
the path into a constant ends in a bar.

Invariant: a picture has at most `LIMIT` entries. Of a longer computation the ones nearest to the result are drawn, and the rest is
folded into one box that counts them.
"""

from __future__ import annotations

import heapq
import itertools
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..core import markup, primitive, sweep
from ..core.tape import FREED, IN0, KW, OP, OUT, SLOT, STRIDE, Leaf, Slot, Tape, X, Y, locate
from ..core.tensor import Tensor
from ..errors import GraphError, TapegradError
from . import saving
from .printing import FOLD

LIMIT = 200
"""Entries drawn before a graph is folded."""

_STYLES = {
    "entry": 'shape=box style="rounded,filled" fillcolor="#dbe9f6" color="#4a78a8"',
    "leaf": 'shape=ellipse style=filled fillcolor="#d9efd5" color="#4f8f45"',
    "constant": 'shape=box style="filled,dashed" fillcolor="#eeeeee" color="#888888" fontcolor="#666666"',
    "result": 'shape=ellipse style=filled fillcolor="#fbe3c5" color="#b9772b"',
    "saved": 'shape=note style=filled fillcolor="#fff8d6" color="#b3a04a" fontsize=9',
    "folded": 'shape=box3d style=filled fillcolor="#dddddd" color="#666666"',
}  # fmt: skip


class Picture:
    """A graph in the DOT language (`source`), which notebooks show, and `render` writes as a picture."""

    __slots__ = ("source",)

    def __init__(self, source: str) -> None:
        self.source = source

    def __str__(self) -> str:
        return self.source

    def __repr__(self) -> str:
        return f"<Picture of {self.source.count('  ')} lines: see .source, or .render('graph.svg')>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """The drawing where Graphviz is installed, the source beside it."""
        svg = self._repr_svg_()
        if svg is None:
            return {"text/plain": f"// A picture needs Graphviz, which is not installed; this is its source.\n{self.source}"}  # fmt: skip
        return {"text/plain": self.source, "image/svg+xml": svg}

    def _repr_svg_(self) -> str | None:
        try:
            return self.pipe("svg").decode()
        except PicturesMissing:
            return None

    def pipe(self, format: str = "svg") -> bytes:
        """The picture in a format that Graphviz writes: "svg", "png", "pdf" ... Raises PicturesMissing without Graphviz."""
        try:
            done = subprocess.run(["dot", f"-T{format}"], input=self.source.encode(), capture_output=True)  # fmt: skip
        except FileNotFoundError:
            raise PicturesMissing(
                f"a picture in format {format!r} was asked, but Graphviz's program dot is not on the path. Install it (apt install "
                "graphviz, brew install graphviz), or paste .source into any viewer of the DOT language."
            ) from None
        if done.returncode:
            raise ValueError(
                f"a picture in format {format!r} was asked, but Graphviz says: {done.stderr.decode(errors='replace').strip()}"
            )
        return done.stdout

    def render(self, filename: str) -> str:
        """Write the picture to a file, in the format its ending names, and return the file's name; `.dot` is the source itself."""
        name = str(filename)
        ending = name.rpartition(".")[2] if "." in name else ""
        if not ending:
            raise ValueError(
                f"render was asked to write {name!r}, whose ending names no format: call it {name}.svg, .png, .pdf or .dot."
            )
        data = self.source.encode() if ending in ("dot", "gv") else self.pipe(ending)
        with open(name, "wb") as file:
            file.write(data)
        return name


class PicturesMissing(TapegradError, ImportError):
    """Graphviz is not installed."""

    short_name = "missing-program"


def make_dot(
    tensor: Any, params: Mapping[str, Tensor] | None = None, *, limit: int = LIMIT
) -> Picture:
    """A picture of how a tensor was computed: leaves, operations with what they saved, constants, and how gradients flow back.

    `params` names leaves (a dict, such as {"w": w}). More than `limit` operations are folded into one box. Also takes a
    sequence of tensors. Raises GraphError for a tensor that nothing was recorded for.

    >>> import tapegrad as tg
    >>> w = tg.tensor([1.0, 2.0], requires_grad=True)
    >>> print(tg.make_dot((w * 3).sum(), {"w": w}).source.splitlines()[0])
    digraph "how it was computed" {
    """
    tensors = tensor if isinstance(tensor, list | tuple) else (tensor,)
    for t in tensors:
        if not isinstance(t, Tensor) or t._node is None:
            raise GraphError(
                f"make_dot was asked to draw {type(t).__name__} {t!r}, but nothing is recorded for it: no operation on something that "
                "requires grad led to it. Draw a result of such operations.",
                name="not-tracked",
            )
    if params is not None and not isinstance(params, Mapping):
        raise TypeError(
            f"make_dot was given params of {type(params).__name__}, but these are names of leaves: pass a dict, such as {{'w': w}}."
        )
    names = {t._node: name for name, t in (params or {}).items() if type(t._node) is Leaf}
    return Picture("\n".join(_lines(tensors, names, limit)))


def _lines(tensors: Sequence[Tensor], names: dict[Leaf, str], limit: int) -> Iterator[str]:
    """The lines of the DOT source: results, at most `limit` entries, leaves, and the edges between them."""
    entries, leaves = _behind([t._node for t in tensors])
    drawn = dict(itertools.islice(entries.items(), limit))
    shown = dict.fromkeys(
        node for entry in drawn.values() if entry is not None for node in sweep.operands(entry, 0)
    )
    labels = [leaf for leaf in leaves if leaf in shown or leaf in {t._node for t in tensors}]
    places: dict[Any, str] = {slot: f"entry{i}" for i, slot in enumerate(drawn)}
    places |= {leaf: f"leaf{i}" for i, leaf in enumerate(labels)}
    rest = len(entries) - len(drawn)
    yield 'digraph "how it was computed" {'
    # Boxes are pale with black text; what stands between them has to be read on a dark page as well.
    yield '  graph [rankdir=TB fontname="sans-serif" bgcolor="transparent"]'
    yield '  node [fontname="sans-serif" fontsize=11]'
    yield '  edge [fontname="sans-serif" fontsize=9 color="#4a78a8" fontcolor="#808080"]'
    for i, t in enumerate(tensors):
        yield _box(f"result{i}", "result", f"result{_form(t._value)}")
        yield f"  result{i} -> {places[t._node]}"
    for slot, entry in drawn.items():
        yield from _entry(places[slot], entry, places)
    for leaf in labels:
        label = names.get(leaf) or "leaf"
        yield _box(places[leaf], "leaf", f"{label}{_form(leaf.data)}", "has a gradient" if leaf.grad is not None else "")  # fmt: skip
    if rest:
        hidden = len(leaves) - len(labels)
        more = f"and {hidden} more leaves" if hidden else ""
        yield _box("folded", "folded", f"{rest} more operations, folded", more)
    yield "}"


def _behind(roots: Sequence[Any]) -> tuple[dict[Slot, Any], list[Leaf]]:
    """Entries that the roots depend on, the newest first (None: it is gone), and the leaves."""
    entries: dict[Slot, Any] = {}
    leaves: dict[Leaf, None] = {}
    unseen: list[int] = []

    def see(node: Any) -> None:
        if type(node) is Leaf:
            leaves[node] = None
        elif node and node not in entries:
            entries[node] = None
            heapq.heappush(unseen, -node)

    for node in roots:
        see(node)
    while unseen:
        slot = -heapq.heappop(unseen)
        place = locate(slot)
        if place is not None:
            code, k = place[0].code, place[1] * STRIDE
            entries[slot] = entry = code[k : k + STRIDE]
            for node in sweep.operands(entry, 0):
                see(node)
    return dict(sorted(entries.items(), reverse=True)), list(leaves)


def _entry(name: str, entry: list[Any] | None, places: dict[Any, str]) -> Iterator[str]:
    """The box of an entry, what it saved beside it, and the arrows to its operands."""
    if entry is None:
        yield _box(name, "folded", "gone", "carried out of a transform")
        return
    if entry[OP] == FREED:
        yield _box(name, "entry", primitive.entry_name(entry), "freed")
        return
    op, kw, packed = saving.original(entry[OP], entry[KW])
    node_name = f"{primitive.entry_name(entry)}{_form(entry[OUT])}"
    yield _box(name, "entry", op.name, ", ".join(_settings(op, kw)), node_name)
    saved = "values packed by hooks" if packed else _saved(entry, op)
    if saved:
        yield _box(f"{name}saved", "saved", saved)
        yield f'  {name} -> {name}saved [dir=none style=dotted color="#b3a04a"]'
    for i, (node, value) in enumerate(zip(*_operands(entry, op), strict=True)):
        if node is None:
            constant = f"{name}constant{i}"
            yield _box(constant, "constant", f"constant{_form(value)}", _short(value) if np.ndim(value) == 0 else "")  # fmt: skip
            yield f'  {name} -> {constant} [arrowhead=tee style=dashed color="#888888" label="stops"]'
        else:
            yield f"  {name} -> {places.get(node, 'folded')}"


def _settings(op: primitive.Primitive, kw: Any) -> list[str]:
    """Settings that can be read: numbers, names, indices."""
    return [
        f"{name}={_short(value)}"
        for name, value in zip(op.settings, kw or (), strict=False)
        if isinstance(
            value, int | float | complex | str | tuple | list | slice | np.generic | type(None)
        )
    ]


def _operands(entry: list[Any], op: primitive.Primitive) -> tuple[Any, Any]:
    if type(entry[IN0]) is tuple:
        return entry[IN0], entry[X]
    return sweep.operands(entry, 0)[: op.arity], (entry[X], entry[Y])[: op.arity]


def _saved(entry: list[Any], op: primitive.Primitive) -> str:
    """Which values the rules of the tracked operands need, with their shapes."""
    nodes, values = _operands(entry, op)
    one_rule = op.variadic and not op.elementwise
    needs: set[str] = set()
    for i, node in enumerate(nodes):
        if node is not None and op.needs:
            needs |= op.needs[0 if one_rule else i]
    names = [f"xs[{i}]" for i in range(len(values))] if one_rule else primitive.NAMES
    texts = [
        f"{name}{_form(value)}"
        for name, value in zip(names, values, strict=False)
        if ("xs" if one_rule else name) in needs and isinstance(value, np.ndarray | np.generic)
    ]
    if "out" in needs:
        texts.append(f"out{_form(entry[OUT])}")
    return "saved: " + ", ".join(texts) if texts else ""


def _form(value: Any) -> str:
    """Dtype and shape, as far as a value has them."""
    dtype = getattr(value, "dtype", None)
    return "" if dtype is None else f" {dtype}{list(value.shape)}"


def _short(value: Any) -> str:
    text = repr(value.item() if isinstance(value, np.generic) else value)
    return text if len(text) <= 30 else text[:27] + "..."


def _box(name: str, kind: str, *texts: str) -> str:
    label = "\\n".join(_escaped(text) for text in texts if text)
    return f'  {name} [{_STYLES[kind]} label="{label}"]'


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")


# ------------------------------------------------------------------------------------------------ tapes in notebooks


def tape_html(tape: Tape) -> str:
    """A table of the entries, one a row; a long tape is folded in the middle."""
    code = tape.code
    n = len(code) // STRIDE
    index = {code[k + SLOT]: k // STRIDE for k in range(0, len(code), STRIDE)}
    rows: list[tuple[str, ...]] = []
    leaves: dict[Leaf, int] = {}
    for position in range(n):
        if n > FOLD and FOLD // 2 <= position < n - FOLD // 2:
            if position == FOLD // 2:
                rows.append((markup.dim(f"... {n - FOLD} entries ..."),))
            continue
        rows.append(_row(code[position * STRIDE : (position + 1) * STRIDE], position, index, leaves))  # fmt: skip
    caption = f"Tape with {n} {'entry' if n == 1 else 'entries'}"
    return markup.table(rows, ("", "operation", "operands", "result", "saved"), caption)


def _row(
    entry: list[Any], position: int, index: dict[Any, int], leaves: dict[Leaf, int]
) -> tuple[str, ...]:
    """One entry of a tape as a row of a table: number, op, operands with settings, form of the result, what is saved."""
    number = markup.dim(str(position))
    if entry[OP] == FREED:
        return number, markup.dim("freed"), "", "", ""
    op, kw, packed = saving.original(entry[OP], entry[KW])
    nodes, _ = _operands(entry, op)
    operands = []
    for node in nodes:
        if node is None:
            operands.append(markup.dim("const"))
        elif type(node) is Leaf:
            operands.append(markup.coloured(f"leaf{leaves.setdefault(node, len(leaves))}", "green"))
        else:
            operands.append(markup.Html(f"%{index[node]}") if node in index else markup.dim("elsewhere"))  # fmt: skip
    operands += [markup.dim(text) for text in _settings(op, kw)]
    return (
        number,
        markup.coloured(op.name, "blue"),
        markup.Html(", ".join(operands)),
        _form(entry[OUT]).strip(),
        markup.dim("packed" if packed else _saved(entry, op).removeprefix("saved: ")),
    )


__all__ = ["Picture", "PicturesMissing", "make_dot", "tape_html"]
