"""The tables for those who come from another library: both sides of every row are run, and give the same."""

import ast
import importlib
import re
from pathlib import Path

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.help import documents

FOLDER = Path(__file__).parent.parent / "notebooks" / "coming_from"
PAGES = "".join(page.read_text(encoding="utf-8") for page in FOLDER.glob("*.md"))

# What f, r, g, x, ... are: the same in the names of each library.
SETUP = """
def f(x):
    return np.sum(np.sin(x) * x**2) + x[0] * x[1]
def r(x):
    return np.exp(-x) * x[0] + x**3
def g(x):
    return np.exp(-x) * x**3
x, v, w = (array([0.5, 1.5, -2.0]), array([1.0, -1.0, 2.0]), array([0.3, 0.7, -0.2]))
A = array([[4.0, 1.0, 0.5], [0.75, 3.0, 0.25], [0.5, 0.25, 2.0]])
"""
PEERS = {
    "HIPS autograd": "import autograd, autograd.test_util, autograd.misc.optimizers\nimport autograd.numpy as np\narray = np.array",
    "PyTorch": "import torch, torch.func\nnp = torch\ndef array(v): return torch.tensor(v, dtype=torch.float64)",
    "JAX": "import jax, jax.test_util\njax.config.update('jax_enable_x64', True)\nimport jax.numpy as np\njnp = np\narray = np.array",
    "numdifftools": "import numdifftools as nd\nimport scipy.optimize, scipy.differentiate, scipy.integrate, scipy.interpolate, scipy.ndimage, scipy.signal, scipy.spatial\nimport numpy as np\narray = np.array",
}
OURS = "import numpy as np\nimport tapegrad as tg\narray = np.array"
OURS_OF_TENSORS = OURS + "\narray = tg.tensor"
TENSORS = "\nt = x.clone().detach().requires_grad_()"
DIGITS = {"numdifftools": 1e-5}


def rows(peer: str) -> list[tuple[str, str]]:
    lines = documents.part(PAGES, f"moving from {peer}").splitlines()[2:]
    pairs = [re.fullmatch(r"\| `(.*?)` \| `(.*?)` \|", line) for line in lines]
    assert all(pairs) and len(pairs) > 8, f"a row of {peer} is no pair of code"
    return [(m[1], m[2]) for m in pairs]


def run(code: str, setup: str) -> object:
    """The value of the last expression of `code`."""
    names: dict[str, object] = {}
    exec(setup, names)
    *before, last = ast.parse(code).body
    exec(compile(ast.Module(before, []), code, "exec"), names)
    return eval(compile(ast.Expression(last.value), code, "eval"), names)


def plain(value: object) -> object:
    """Tuples and arrays, whatever library they came from."""
    if isinstance(value, tuple | list):
        return [plain(v) for v in value]
    if hasattr(value, "detach"):
        value = value.detach().numpy()
    return None if value is None else np.asarray(value)


def same(theirs: object, ours: object, rtol: float) -> None:
    if isinstance(theirs, list):
        assert isinstance(ours, list) and len(theirs) == len(ours)
        for a, b in zip(theirs, ours, strict=True):
            same(a, b, rtol)
    elif theirs is None:
        assert ours is None
    else:
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=rtol)


@pytest.mark.parametrize(
    ("peer", "theirs", "ours"),
    [
        pytest.param(peer, *row, id=f"{peer}-{k}")
        for peer in PEERS
        for k, row in enumerate(rows(peer))
    ],
)
@pytest.mark.filterwarnings("default")  # the peers' own
def test_both_sides_of_a_row_give_the_same(peer, theirs, ours):
    setup = (OURS_OF_TENSORS if peer == "PyTorch" else OURS) + SETUP
    result = run(ours, setup + (TENSORS if peer == "PyTorch" else ""))
    package = re.search(r"import (\w+)", PEERS[peer])[1]
    pytest.importorskip(package)
    expected = run(theirs, PEERS[peer] + SETUP + (TENSORS if peer == "PyTorch" else ""))
    same(plain(expected), plain(result), DIGITS.get(peer, 1e-9))


def test_what_the_same_names_mean_otherwise():
    """The pitfalls that the page names."""
    a = tg.tensor([[1.0, 2.0], [3.0, 5.0]])
    assert a.size == 4 and a.transpose(0, 1).tolist() == a.tolist()
    assert a.std() == np.std(a.numpy()) and np.median(a) == 2.5
    assert tg.grad(lambda x: np.maximum(x, 0))(0.0) == 0.5
    assert tg.grad(lambda n: n * 1.5)(2) == 1.5


def test_every_library_has_a_page():
    assert set(re.findall("<!-- moving from (.*?) -->", PAGES)) == set(PEERS)
    assert importlib.import_module("tapegrad.numpy").array([tg.tensor(1.0), 2.0]).tolist() == [1, 2]
