"""What notebooks show: well-formed, escaped, and in no colour that a light or a dark theme would swallow."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.check.findings import page
from tapegrad.core import markup

VOID = {"meta", "br", "img"}


class Parsed(HTMLParser):
    """Tags that close as they opened; the text; every style."""

    def __init__(self, html):
        super().__init__()
        self.open, self.text, self.styles = [], [], []
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.styles.append(dict(attributes).get("style", ""))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def decay(k, n):
    x = 1.0
    for _ in range(n):
        x -= k * x * 0.1
    return x


def compiled():
    fast = tg.compile(tg.grad(lambda x: np.sum(np.exp(x))))
    fast(np.ones(3))
    return fast


def native():
    function = tg.njit(decay)
    tg.grad(function)(0.5, 3)
    return function


def tape():
    kept.append(np.sin(tg.tensor(1.0, requires_grad=True)) * 2)
    return tg.current_tape()


kept = []
SHOWN = {
    "leaf": lambda: tg.tensor([1.0, 2.0], requires_grad=True),
    "constant": lambda: tg.zeros(2, 0),
    "number": lambda: tg.tensor(1.0, requires_grad=True) * 2,
    "tape": tape,
    "compiled": compiled,
    "compile report": lambda: compiled().report(),
    "native": native,
    "gradient": lambda: tg.check_gradient(lambda x: np.sum(x**2), np.ones(2)),
    "wrong gradient": lambda: tg.check_gradient(np.sum, np.ones(2), gradient=lambda x: -x),
    "kink": lambda: tg.check_gradient(lambda x: np.sum(np.abs(x)), np.zeros(2)),
    "adjoint": lambda: tg.check_adjoint(lambda x: 2 * x, lambda y: 3 * y, np.ones(2)),
    "op": lambda: tg.check_op(np.sqrt, only=["value", "derivative"]),
}


@pytest.mark.parametrize("name", SHOWN)
def test_in_a_notebook(name):
    shown = Parsed(SHOWN[name]()._repr_html_())
    kept.clear()
    assert "".join(shown.text).strip()
    for style in shown.styles:
        colours = re.findall(r"(?:^|;)color:([^;]+)", style)
        assert set(colours) <= {"inherit", "#fff", *markup.COLOURS.values()}
        if "#fff" in colours:  # white only where the ground is coloured
            assert re.search("background:#", style)
        elif "background" in style:
            assert "background:transparent" in style


def luminance(colour):
    """Relative luminance, WCAG 2.1."""
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


@pytest.mark.parametrize("name", markup.COLOURS)
def test_colours_stand_out_on_white_and_on_black(name):
    bright = luminance(markup.COLOURS[name])
    assert 1.05 / (bright + 0.05) > 3 and (bright + 0.05) / 0.05 > 4


def test_what_is_told_of_a_tensor():
    text = "".join(Parsed(tg.tensor([[1.0, 2.5]], dtype=np.float32)._repr_html_()).text)
    assert text == "tensor float32[1, 2][[1. , 2.5]]"
    x = tg.tensor([1.0], requires_grad=True)
    assert "requires_grad=True" in x._repr_html_()
    assert "grad_fn=&lt;SinBackward0&gt;" in np.sin(x)._repr_html_()
    assert "[]" in tg.Tensor()._repr_html_()


def test_text_is_escaped_once():
    assert markup.escaped("<b>") == "&lt;b&gt;" == markup.escaped(markup.escaped("<b>"))
    named = Parsed(markup.table([["<i>", "a & b"]], caption="<lambda>", named=True))
    assert named.text == ["<lambda>", "<i>", "a & b"]
    across = markup.table([["a", "b"], ["folded"]])
    assert 'colspan="2"' in across


def test_before_there_is_anything_to_show():
    assert tg.compile(np.sin)._repr_html_() is None
    assert tg.njit(decay)._repr_html_() is None


def test_sources_show_as_they_print():
    function = native()
    for text in (function.explain(), function.adjoint_source, compiled().source, compiled().ir):
        assert repr(text) == str(text) and "\n" in text


def test_a_page_follows_the_reader():
    text = page(tg.check_gradient(np.sum, np.ones(2)))
    assert 'name="color-scheme" content="light dark"' in text
    Parsed(text.removeprefix("<!doctype html>"))
