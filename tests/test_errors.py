"""Short names of errors: each is in the table of remedies, each remedy has an error, and the guide's page shows the table."""

import ast
import copy
import pickle
import re
from pathlib import Path

import numpy as np
import pytest

import tapegrad as tg
from tapegrad import errors
from tapegrad.__main__ import main
from tapegrad.autograd.drawing import PicturesMissing
from tapegrad.compiler.program import Drawn
from tapegrad.help import documents, remedies

ROOT = Path(__file__).parent.parent
CLASSES = {
    kind.__name__: kind.short_name
    for kind in [*vars(errors).values(), PicturesMissing, Drawn]
    if isinstance(kind, type) and issubclass(kind, errors.TapegradError)
}


def raised() -> dict[str, list[str]]:
    """Short names, each with the places of the calls in the library that make an error of that name."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tapegrad").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for name in re.findall(r"\[([a-z-]+)\]\",\n *IndependentValue", text):
            found.setdefault(name, []).append(path.name)
        if not any(name in text for name in CLASSES):
            continue
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.Call):
                continue
            called = getattr(node.func, "id", getattr(node.func, "attr", ""))
            if called in CLASSES:
                given = [k.value.value for k in node.keywords if k.arg == "name"]
                name = given[0] if given else CLASSES[called]
                found.setdefault(name, []).append(f"{path}:{node.lineno}")
    return found


@pytest.mark.long
def test_every_short_name_is_explained_and_every_explanation_has_an_error():
    found = raised()
    assert "" not in found, f"errors without a short name: {found['']}"
    assert set(found) == set(remedies.REMEDIES)


def test_the_page_shows_the_table():
    page = (ROOT / "notebooks" / "guide" / "errors.md").read_text(encoding="utf-8")
    assert documents.part(page, "errors") == remedies.page(), (
        "run python -m tapegrad error --update notebooks/guide/errors.md"
    )


def test_what_a_remedy_names_exists():
    for path in re.findall(r"tg((?:\.[A-Za-z_]\w*)+)", remedies.page()):
        value = tg
        for part in path[1:].split("."):
            value = getattr(value, part)


def test_a_message_ends_with_its_name_also_of_a_copy():
    t = tg.tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(tg.GradientLost, match=r" \[plain-value\]$") as lost:
        np.asarray(t)
    with pytest.raises(errors.GraphError, match=r" \[not-scalar\]$") as vector:
        t.backward()
    for error in (lost.value, vector.value):
        for other in (copy.copy(error), pickle.loads(pickle.dumps(error))):
            assert str(other) == str(error) and other.short_name == error.short_name
    assert str(errors.TapegradError("alone")) == "alone"


def test_the_command_tells_a_remedy(capsys):
    assert main(["error", "[not-scalar]"]) == 0
    assert "tg.jacobian(f)" in capsys.readouterr().out
    assert main(["error", "not-scaler"]) == 1
    assert "not-scalar" in capsys.readouterr().err
