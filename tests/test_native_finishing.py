"""The last form of generated adjoints: the same results as before, whatever stands between a value and its use."""

import math

import numpy as np
import pytest

import tapegrad as tg
from bench.native_models import inputs, soft_dtw
from tapegrad.native import finishing

# Bodies of f(x, y, floats, nf), and whether the name t is gone afterwards.
BODIES = {
    "read once": ("t = x[0] * 2.0; return t + 1.0", True),
    "never read": ("t = x[0]; return x[1]", True),
    "a chain": ("s = x[0] + 1.0; t = s * s; u = t; return u - x[1]", True),
    "the element changes": ("t = x[0] * 2.0; x[0] = 5.0; return t + x[0]", False),
    "the element is added to": ("t = x[0]; x[0] += t; s = x[0]; return s", True),
    "an array changes": ("t = x * y; x[:] = 7.0; return t.sum() + x[0]", False),
    "an array is told to change": ("t = x * y; y.fill(3.0); return t.sum()", False),
    "a name changes": ("s = x[0]; t = s * 2.0; s = 4.0; return t + s", False),
    "a position changes": ("t = floats[nf]; nf -= 1; return t + floats[nf]", False),
    "a copy whose source changes": ("s = x[0]; t = s; s = 3.0; return t * t + s", False),
    "a copy": ("s = x[0]; t = s; return t * t + t", True),
    "read in a loop": ("t = x[0] * 2.0\n    for i in range(3):\n        x[i] += t\n    return x.sum()", False),
    "bound in a loop": ("t = 0.0\n    for i in range(3):\n        s = t\n        t = s + x[i]\n    return t", False),
    "one branch": ("t = x[0] / y[0]\n    if x[1] > 9.0:\n        x[1] = t\n    return x[1]", False),
    "declared": ("t = np.empty((0,))\n    t = x + y\n    y[0] = 9.0\n    return t.sum() + y[0]", False),
    "declared for a loop": ("t = np.empty((0,))\n    for i in range(2):\n        t = x * y\n        y[0] += 1.0\n    return t.sum()", False),
    "a push": ("t = x[0] + 1.0; floats[nf] = t; nf += 1; floats[nf + 1] = x[1]; return floats.sum()", True),
    "a function": ("t = x[0] + 1.0; return math.exp(t) + max(x[1], t * 0.0)", False),
}  # fmt: skip


@pytest.mark.parametrize("name", BODIES)
def test_same_results(name):
    body, folds = BODIES[name]
    source = "def f(x, y, floats, nf):\n    " + body.replace("; ", "\n    ") + "\n"
    text = finishing.finished(source)

    def run(text):
        scope = {"np": np, "math": math, "at": lambda i: i}
        exec(text, scope)
        x, y, floats = np.array([0.3, 1.7, -2.0]), np.array([1.1, 0.2, 0.4]), np.arange(5.0)
        return float(scope["f"](x, y, floats, 2)), x.tobytes(), y.tobytes(), floats.tobytes()

    assert run(text) == run(source)
    assert ("t" not in {w for w in text.replace("(", " ").split()}) == folds
    assert ("floats[nf" in source) == ("floats[at(nf" in text)


def test_what_is_known_of_names():
    """A product of two names stays where elements change meanwhile, unless both are numbers."""
    source = "def f(a, b, x):\n    t = a * b\n    x[0] = 1.0\n    return t + x[0]\n"
    assert "t = " in finishing.finished(source)
    assert "t = " not in finishing.finished(source, lambda n: 0 if n in "ab" else None)


@pytest.mark.long
@pytest.mark.usefixtures("generated_adjoint")
def test_bytes_kept():
    """Each cell of the table keeps what it overwrites; a pass of the inner loop makes 22 operations."""
    native = tg.njit(soft_dtw)
    x, y, gamma = inputs()["soft_dtw"]
    for n in (5, 3):
        tg.value_and_grad(native, (0, 1))(x[:n], y, gamma)
        told = native.explain()
        assert f"{8 * n * y.size} bytes" in told
        assert "22 operations on floats, 0.36 bytes each" in told
