"""Pictures of graphs and tapes: what is shown, by shape and colour, and that long ones are folded."""

from __future__ import annotations

import re
import shutil
import time

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.autograd.drawing import PicturesMissing

BOX = re.compile(r'^  (\w+) \[(.*) label="((?:[^"\\]|\\.)*)"\]$')
ARROW = re.compile(r"^  (\w+) -> (\w+)( \[.*\])?$")


def leaf(*values):
    return tg.tensor(values[0] if len(values) == 1 else list(values), requires_grad=True)


def parsed(picture):
    """Boxes (name -> style, label) and arrows (from, to, style) of a picture, every line of which must be one."""
    first, *lines, last = picture.source.splitlines()
    assert (first, last) == ('digraph "how it was computed" {', "}")
    boxes, arrows = {}, []
    for line in lines:
        if line.split()[0] in ("graph", "node", "edge"):
            continue
        box, arrow = BOX.match(line), ARROW.match(line)
        assert box or arrow, line
        if box:
            assert box[1] not in boxes
            boxes[box[1]] = box[2], box[3]
        else:
            arrows.append((arrow[1], arrow[2], arrow[3] or ""))
    assert {name for a, b, _ in arrows for name in (a, b)} <= set(boxes)
    return boxes, arrows


def labelled(boxes, text):
    """Names of the boxes whose label says this."""
    return [name for name, (_, label) in boxes.items() if text in label]


def test_leaves_operations_and_constants_are_told_apart():
    w, x = leaf(1.0, 2.0), np.array([3.0, 4.0])
    boxes, arrows = parsed(tg.make_dot((np.tanh(w * x) * w).sum(), {"w": w}))
    (result,), (w_box,), (constant,) = (labelled(boxes, t) for t in ("result float64[]", "w float64[2]", "constant float64[2]"))  # fmt: skip
    operations = {text: labelled(boxes, f"{text}\\n") for text in ("sum", "tanh", "multiply")}
    assert [len(names) for names in operations.values()] == [1, 1, 2]
    styles = {boxes[n][0] for n in (result, w_box, constant, operations["sum"][0])}
    assert len(styles) == 4
    assert len({re.search("fillcolor=(\\S+)", style)[1] for style in styles}) == 4
    assert len({re.search("shape=(\\S+) style=(\\S+)", s)[0] for s in styles}) >= 3
    targets = {(a, b) for a, b, _ in arrows}
    assert (result, operations["sum"][0]) in targets
    assert sum(b == w_box for _, b in targets) == 2


def test_the_path_into_a_constant_stops_there():
    boxes, arrows = parsed(tg.make_dot(leaf(2.0) * 3.0))
    (constant,) = labelled(boxes, "constant")
    ((_, _, style),) = [arrow for arrow in arrows if arrow[1] == constant]
    assert "arrowhead=tee" in style
    assert "stops" in style
    assert "3.0" in boxes[constant][1]


def test_saved_values_are_shown_with_their_shapes():
    a, b = leaf([[1.0, 2.0]]), leaf([[3.0], [4.0]])
    boxes, _ = parsed(tg.make_dot(np.exp(a @ b)))
    saved = sorted(label for name, (_, label) in boxes.items() if name.endswith("saved"))
    assert saved == ["saved: out float64[1, 1]", "saved: x float64[1, 2], y float64[2, 1]"]
    boxes, _ = parsed(tg.make_dot(a + a))
    assert not [name for name in boxes if name.endswith("saved")]


def test_settings_are_shown():
    boxes, _ = parsed(tg.make_dot(leaf([[1.0, 2.0]]).sum(axis=1, keepdims=True)))
    assert labelled(boxes, "axis=1, keepdims=True")


def test_an_entry_that_is_used_twice_is_drawn_once():
    x = leaf(2.0)
    h = x * x
    boxes, arrows = parsed(tg.make_dot([h + 1, h * h]))
    assert len(labelled(boxes, "multiply")) == 2
    assert len([name for name in boxes if name.startswith("result")]) == 2
    assert len(labelled(boxes, "leaf")) == 1


def test_a_freed_graph_says_so():
    x = leaf(2.0)
    y = x * x
    z = y * y
    y.backward()
    boxes, _ = parsed(tg.make_dot(z))
    assert labelled(boxes, "MulBackward0\\nfreed")


def test_other_kinds_of_entries():
    """Custom functions, hooked nodes, packed values, views and stores."""

    class Twice(tg.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, g, h):
            return g * 2 + h * 3

    x = leaf(1.0, 2.0)
    a, b = Twice.apply(x)
    with tg.autograd.graph.saved_tensors_hooks(lambda t: t.detach(), lambda t: t):
        c = np.sin(a * b)
    c.grad_fn.register_hook(lambda *_: None)
    buffer = tg.zeros(3)
    buffer[1:] = c
    boxes, _ = parsed(tg.make_dot(buffer.sum()))
    for text in ("TwiceBackward", "values packed by hooks", "sin\\n", "setitem"):
        assert labelled(boxes, text), text
    _Tags(tg.current_tape()._repr_html_())


def test_labels_are_escaped():
    w = leaf(1.0)
    boxes, _ = parsed(tg.make_dot(w * 2, {'a "w"\\': w}))
    assert labelled(boxes, 'a \\"w\\"')


def test_a_leaf_alone_and_what_cannot_be_drawn():
    boxes, arrows = parsed(tg.make_dot(leaf(1.0)))
    assert len(boxes) == 2
    assert len(arrows) == 1
    for nothing in (tg.ones(2), 3.0, leaf(1.0).detach()):
        with pytest.raises(tg.GraphError, match="nothing is recorded for it"):
            tg.make_dot(nothing)


@pytest.mark.long
def test_long_graphs_are_folded():
    """100 000 entries: the nearest to the result are drawn, the rest is counted, within a second or two."""
    x, w = leaf(1.0), leaf(2.0)
    y = x
    for _ in range(100_000):
        y = y + w
    z = y * w
    start = time.thread_time()
    picture = tg.make_dot(z)
    assert time.thread_time() - start < 30
    assert len(picture.source) < 200_000
    boxes, arrows = parsed(picture)
    assert labelled(boxes, f"{100_001 - 200} more operations, folded\\nand 1 more leaves")
    assert [a for a, b, _ in arrows if b == "folded"] == ["entry199"]
    boxes, _ = parsed(tg.make_dot(z, limit=5))
    assert len(labelled(boxes, "Backward0")) == 5


def test_rendering(tmp_path):
    picture = tg.make_dot(np.exp(leaf(1.0)))
    written = picture.render(tmp_path / "graph.dot")
    assert (tmp_path / "graph.dot").read_text() == picture.source
    assert written == str(tmp_path / "graph.dot")
    with pytest.raises(ValueError, match="ending names no format"):
        picture.render(tmp_path / "graph")
    there = shutil.which("dot") is not None
    bundle = picture._repr_mimebundle_()
    assert bundle["text/plain"].endswith(picture.source)
    assert ("image/svg+xml" in bundle) == there == (picture._repr_svg_() is not None)
    if there:
        picture.render(tmp_path / "graph.svg")
        assert "<svg" in (tmp_path / "graph.svg").read_text()
        with pytest.raises(ValueError, match="Graphviz says"):
            picture.render(tmp_path / "graph.nonsense")
    else:
        with pytest.raises(PicturesMissing, match="Graphviz"):
            picture.render(tmp_path / "graph.svg")
    assert str(picture) == picture.source
    assert "render" in repr(picture)


# ------------------------------------------------------------------------------------------------ tapes in notebooks


class _Tags:
    """That HTML is well formed: every element that is opened is closed, in order."""

    def __init__(self, text):
        from html.parser import HTMLParser

        self.open, self.rows, self.text = [], 0, []
        parser = HTMLParser()
        parser.handle_starttag = lambda tag, _: self.open.append(tag)
        parser.handle_endtag = self.close
        parser.handle_data = self.text.append
        parser.feed(text)
        parser.close()
        assert not self.open

    def close(self, tag):
        assert self.open.pop() == tag
        self.rows += tag == "tr"


def on_a_tape(function):
    """The tape of a function's own, as a notebook shows it."""
    from tapegrad.core.tape import own_tape

    with own_tape() as own:
        kept = function()
    text = own.tape._repr_html_()
    del kept
    return text


def test_a_tape_in_a_notebook():
    w = leaf([[1.0, 2.0]])
    text = on_a_tape(lambda: (np.exp(w @ tg.ones(2, 1)) * 3.0).sum(axis=0))
    tags = _Tags(text)
    assert tags.rows == 5
    shown = " ".join(tags.text)
    for part in (
        "Tape with 4 entries",
        "matmul",
        "leaf0",
        "const",
        "axis=0",
        "float64[1, 1]",
        "out float64[1, 1]",
    ):
        assert part in shown, part
    assert "%0" in shown


def test_a_long_tape_is_folded():
    x = leaf(1.0)

    def run():
        y = x
        for _ in range(100_000):
            y = y + x
        return y

    tags = _Tags(on_a_tape(run))
    assert tags.rows == 42
    assert "... 99960 entries ..." in " ".join(tags.text)


def test_nothing_on_a_tape():
    assert "Tape with 0 entries" in on_a_tape(lambda: None)


def test_text_is_escaped():
    x = leaf([1.0, 2.0])
    text = on_a_tape(lambda: np.einsum("i->", x))
    assert "i-&gt;" in text
    _Tags(text)


def test_packed_and_freed_entries_in_a_notebook():
    x = leaf(1.0, 2.0)

    def run():
        with tg.autograd.graph.saved_tensors_hooks(lambda t: t.detach(), lambda t: t):
            y = np.sin(x)
        z = np.exp(x)
        z.sum().backward()
        return y, z

    shown = " ".join(_Tags(on_a_tape(run)).text)
    assert "packed" in shown
    assert "freed" in shown
