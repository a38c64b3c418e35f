"""The same gradients as JAX's and PyTorch's, for every op that both have: `pytest -m peers`, skipped where one is absent.

Elementwise ops are found by their names in both libraries, and sampled from their domains; structural ones stand in a table.
"""

from __future__ import annotations

import numpy as np
import pytest

import tapegrad as tg
import tapegrad.special  # declares its ops
from tapegrad.core.primitive import OPS

pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore")]

# Where a name means something else there, or another convention holds.
ANOTHER = {
    "torch": {
        "where": "of one argument more",
        "kl_div": "a loss of logarithms",
        "imag": "of complex numbers only",
        "zeta": "no derivative by the exponent",
        "gammainc": "no derivative by the shape",
        "gammaincc": "no derivative by the shape",
    },
    "jax": {
        "where": "of one argument more",
        "betainc": "no derivative by the shapes",
        "spence": "its derivative below 1 is not a number",
        "wofz": "complex where x is real",
    },
}


def elementwise():
    for op in OPS[1:]:
        if op.elementwise and all(p.value != 0 for p in op.partials):
            yield op


def arrays_of(op):
    rng = np.random.default_rng(0)
    return [np.asarray(d.sample(rng, (5,)), float) for d in op.domains]


def ours(function, arrays):
    out, pull = tg.vjp(function, *arrays)
    return np.asarray(out), [np.asarray(g) for g in pull(np.cos(np.arange(1.0, out.size + 1)).reshape(out.shape))]  # fmt: skip


def torchs(function, arrays):
    torch = pytest.importorskip("torch")
    leaves = [torch.tensor(a, requires_grad=True) for a in arrays]
    out = function(*leaves)
    weights = torch.tensor(np.cos(np.arange(1.0, out.numel() + 1)).reshape(out.shape))
    out.backward(weights)
    return out.detach().numpy(), [x.grad.numpy() for x in leaves]


def jaxs(function, arrays):
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    out, pull = jax.vjp(function, *map(jax.numpy.asarray, arrays))
    weights = np.cos(np.arange(1.0, out.size + 1)).reshape(out.shape)
    return np.asarray(out), [np.asarray(g) for g in pull(jax.numpy.asarray(weights))]


def same(mine, theirs, rtol=1e-8):
    np.testing.assert_allclose(mine[0], theirs[0], rtol=rtol, atol=1e-10)
    for a, b in zip(mine[1], theirs[1], strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-10)


@pytest.mark.parametrize("op", list(elementwise()), ids=lambda op: op.name)
def test_torch(op):
    torch = pytest.importorskip("torch")
    theirs = getattr(torch, op.name, None) or getattr(torch.special, op.name, None)
    if theirs is None or op.name in ANOTHER["torch"]:
        pytest.skip("in PyTorch: " + ANOTHER["torch"].get(op.name, "absent"))
    arrays = arrays_of(op)
    same(ours(op.function, arrays), torchs(theirs, arrays))


@pytest.mark.parametrize("op", list(elementwise()), ids=lambda op: op.name)
def test_jax(op):
    jax = pytest.importorskip("jax")
    theirs = getattr(jax.numpy, op.name, None) or getattr(jax.scipy.special, op.name, None)
    if theirs is None or op.name in ANOTHER["jax"]:
        pytest.skip("in JAX: " + ANOTHER["jax"].get(op.name, "absent"))
    arrays = arrays_of(op)
    same(ours(op.function, arrays), jaxs(theirs, arrays))


S = np.array([[4.0, 1.0, 0.5], [0.75, 3.0, 0.25], [0.5, 0.25, 2.0]])
X = np.array([[0.5, -1.25, 2.0], [3.0, 0.75, -0.5]])
V = np.array([3.0, 1.0, -2.0])

# Written in names that NumPy and JAX share; the last column is PyTorch's way to say it.
# fmt: off
STRUCTURAL = {
    "sum":        (lambda np, x: np.sum(x, axis=1), lambda t, x: t.sum(x, 1), (X,)),
    "mean":       (lambda np, x: np.mean(x, axis=0), lambda t, x: t.mean(x, 0), (X,)),
    "var":        (lambda np, x: np.var(x, axis=1, ddof=1), lambda t, x: t.var(x, 1), (X,)),
    "std":        (lambda np, x: np.std(x, ddof=1), lambda t, x: t.std(x), (X,)),
    "max":        (lambda np, x: np.max(x, axis=1), lambda t, x: t.amax(x, 1), (X,)),
    "prod":       (lambda np, x: np.prod(x, axis=1), lambda t, x: t.prod(x, 1), (X,)),
    "cumsum":     (lambda np, x: np.cumsum(x, axis=1), lambda t, x: t.cumsum(x, 1), (X,)),
    "cumprod":    (lambda np, x: np.cumprod(x, axis=1), lambda t, x: t.cumprod(x, 1), (X,)),
    "sort":       (lambda np, x: np.sort(x, axis=1), lambda t, x: t.sort(x, 1)[0], (X,)),
    "median":     (lambda np, x: np.median(x, axis=1), lambda t, x: t.median(x, 1)[0], (X,)),
    "matmul":     (lambda np, x, y: np.matmul(x, y), lambda t, x, y: t.matmul(x, y), (X, S)),
    "tensordot":  (lambda np, x, y: np.tensordot(x, y, 1), lambda t, x, y: t.tensordot(x, y, 1), (X, S)),
    "einsum":     (lambda np, x, y: np.einsum("ij,kj->ik", x, y), lambda t, x, y: t.einsum("ij,kj->ik", x, y), (X, S)),
    "kron":       (lambda np, x, y: np.kron(x, y), lambda t, x, y: t.kron(x, y), (X, S)),
    "cross":      (lambda np, x, y: np.cross(x, y), lambda t, x, y: t.linalg.cross(x, y.expand(2, 3)), (X, V)),
    "concatenate": (lambda np, x, y: np.concatenate([x, y]), lambda t, x, y: t.cat([x, y]), (X, S)),
    "stack":      (lambda np, x, y: np.stack([x, y], 1), lambda t, x, y: t.stack([x, y], 1), (X, X + 1)),
    "where":      (lambda np, x, y: np.where(x > 0, x * y, y), lambda t, x, y: t.where(x > 0, x * y, y), (X, X + 1)),
    "clip":       (lambda np, x: np.clip(x, -1.0, 1.5), lambda t, x: t.clip(x, -1.0, 1.5), (X,)),
    "roll":       (lambda np, x: np.roll(x, 1, 1), lambda t, x: t.roll(x, 1, 1), (X,)),
    "flip":       (lambda np, x: np.flip(x, 1), lambda t, x: t.flip(x, (1,)), (X,)),
    "diff":       (lambda np, x: np.diff(x, axis=1), lambda t, x: t.diff(x, dim=1), (X,)),
    "tril":       (lambda np, x: np.tril(x), lambda t, x: t.tril(x), (S,)),
    "diag":       (lambda np, x: np.diag(x), lambda t, x: t.diag(x), (V,)),
    "trapezoid":  (lambda np, x: np.trapezoid(x, axis=1), lambda t, x: t.trapezoid(x, dim=1), (X,)),
    "inv":        (lambda np, x: np.linalg.inv(x), lambda t, x: t.linalg.inv(x), (S,)),
    "det":        (lambda np, x: np.linalg.det(x), lambda t, x: t.linalg.det(x), (S,)),
    "slogdet":    (lambda np, x: np.linalg.slogdet(x)[1], lambda t, x: t.linalg.slogdet(x)[1], (S,)),
    "solve":      (lambda np, x, y: np.linalg.solve(x, y), lambda t, x, y: t.linalg.solve(x, y), (S, V)),
    "pinv":       (lambda np, x: np.linalg.pinv(x), lambda t, x: t.linalg.pinv(x), (X,)),
    "norm":       (lambda np, x: np.linalg.norm(x), lambda t, x: t.linalg.norm(x), (X,)),
    "nuclear":    (lambda np, x: np.linalg.norm(x, "nuc"), lambda t, x: t.linalg.norm(x, "nuc"), (X,)),
    "cholesky":   (lambda np, x: np.linalg.cholesky(x @ x.T), lambda t, x: t.linalg.cholesky(x @ x.T), (S,)),
    "qr":         (lambda np, x: np.linalg.qr(x)[1] ** 2, lambda t, x: t.linalg.qr(x)[1] ** 2, (S,)),
    "eigvalsh":   (lambda np, x: np.linalg.eigvalsh(x + x.T), lambda t, x: t.linalg.eigvalsh(x + x.T), (S,)),
    "svdvals":    (lambda np, x: np.linalg.svd(x, compute_uv=False), lambda t, x: t.linalg.svdvals(x), (X,)),
    "fft":        (lambda np, x: np.abs(np.fft.fft(x, 5)), lambda t, x: t.abs(t.fft.fft(x, 5)), (X,)),
    "rfft":       (lambda np, x: np.abs(np.fft.rfft(x, axis=0)), lambda t, x: t.abs(t.fft.rfft(x, dim=0)), (S,)),
    "irfft":      (lambda np, x: np.fft.irfft(x + 1j, 5), lambda t, x: t.fft.irfft(x + 1j, 5), (X,)),
    "fftn":       (lambda np, x: np.real(np.fft.fftn(x, norm="ortho")), lambda t, x: t.real(t.fft.fftn(x, norm="ortho")), (X,)),
    "rfftn":      (lambda np, x: np.abs(np.fft.rfft2(x)), lambda t, x: t.abs(t.fft.rfft2(x)), (X,)),
    "hfft":       (lambda np, x: np.fft.hfft(x + 1j, 5), lambda t, x: t.fft.hfft(x + 1j, 5), (X,)),
    "fftshift":   (lambda np, x: np.fft.fftshift(x), lambda t, x: t.fft.fftshift(x), (X,)),
}
# fmt: on


@pytest.mark.parametrize("name", STRUCTURAL)
def test_structural_torch(name):
    torch = pytest.importorskip("torch")
    function, theirs, arrays = STRUCTURAL[name]
    same(ours(lambda *xs: function(np, *xs), arrays), torchs(lambda *xs: theirs(torch, *xs), arrays))  # fmt: skip


@pytest.mark.parametrize("name", STRUCTURAL)
def test_structural_jax(name):
    jax = pytest.importorskip("jax")
    function, _, arrays = STRUCTURAL[name]
    theirs = jaxs(lambda *xs: function(jax.numpy, *xs), arrays)
    same(ours(lambda *xs: function(np, *xs), arrays), theirs)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax(name):
    torch = pytest.importorskip("torch")
    function = getattr(tg.special, name)
    same(ours(lambda x: function(x, 1), [X]), torchs(lambda x: getattr(torch, name)(x, 1), [X]))
