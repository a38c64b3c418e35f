"""The array API standard: its names, its results (array-api-strict's, where that is installed), gradients, and guests who rely on it."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys

import numpy as np
import pytest

import tapegrad as tg
from tapegrad import array_api

X = np.array([[0.5, -1.25, 2.0], [3.0, 0.75, -0.5]])
V = np.array([3.0, 1.0, 2.0])
I = np.array([[3, 1, 2], [5, 0, 1]])
U = I.astype(np.uint8)
B = np.array([True, False, True])
S = np.array([[4.0, 1.0, 0.5], [1.0, 3.0, 0.25], [0.5, 0.25, 2.0]])
C = X + 1j

# fmt: off
CALLS = [
    ("asarray", [[1.0, 2.0]], {}), ("arange", 5, {}), ("arange", 1, 8, 2, {}), ("eye", 3, {"k": 1}), ("eye", 2, 3, {}),
    ("full", (2, 2), 1.5, {}), ("linspace", 0.0, 1.0, 5, {}), ("linspace", 0.0, 1.0, 5, {"endpoint": False}),
    ("ones", (2,), {}), ("zeros", 3, {}), ("zeros_like", X, {}), ("ones_like", X, {}), ("full_like", X, 2.0, {}),
    ("tril", X, {}), ("triu", X, {"k": 1}),
    *((n, X / 4, {}) for n in ("abs", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "exp", "expm1", "floor", "isfinite",
                               "isinf", "isnan", "negative", "positive", "reciprocal", "round", "sign", "signbit", "sin", "sinh",
                               "square", "tan", "tanh", "trunc")),
    *((n, X * X + 1.0, {}) for n in ("acosh", "log", "log1p", "log2", "log10", "sqrt")), ("acos", X / 4, {}),
    *((n, X, V, {}) for n in ("add", "atan2", "copysign", "divide", "equal", "floor_divide", "greater", "greater_equal", "hypot", "less",
                              "less_equal", "logaddexp", "maximum", "minimum", "multiply", "nextafter", "not_equal", "remainder", "subtract")),
    ("pow", X * X, V, {}), ("conj", C, {}), ("imag", C, {}), ("real", C, {}), ("clip", X, -1.0, 1.0, {}),
    *((n, I, I, {}) for n in ("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift")),
    ("bitwise_invert", I, {}), ("logical_and", B, B, {}), ("logical_or", B, B, {}), ("logical_xor", B, B, {}), ("logical_not", B, {}),
    ("matmul", X, S, {}), ("matrix_transpose", X, {}), ("tensordot", X, S, {"axes": 1}), ("vecdot", X, X, {}),
    ("concat", [X, X], {"axis": 1}), ("expand_dims", X, {"axis": 1}), ("flip", X, {}), ("moveaxis", X, 0, 1, {}),
    ("permute_dims", X, (1, 0), {}), ("repeat", X, 2, {"axis": 1}), ("reshape", X, (3, 2), {}), ("roll", X, 1, {"axis": 1}),
    ("squeeze", X[None], 0, {}), ("stack", [X, X], {"axis": 2}), ("tile", X, (2, 1), {}), ("broadcast_to", V, (2, 3), {}),
    ("argmax", X, {"axis": 1}), ("argmin", X, {"keepdims": True}), ("count_nonzero", X, {"axis": 0}),
    ("searchsorted", np.sort(V), X, {}), ("where", X > 0, X, X, {}), ("isdtype", np.dtype("float64"), "real floating", {}),
    ("argsort", X, {}), ("argsort", X, {"descending": True, "axis": 0}), ("sort", X, {"axis": 0}), ("sort", X, {"descending": True}),
    ("take", X, np.array([2, 0]), {"axis": 1}), ("take_along_axis", X, np.array([[1, 0, 2], [2, 0, 1]]), {"axis": 1}),
    ("cumulative_sum", X, {"axis": 1}), ("cumulative_sum", X, {"axis": 1, "include_initial": True}), ("cumulative_prod", X, {"axis": 0}),
    ("max", X, {"axis": 1}), ("mean", X, {}), ("min", X, {"keepdims": True}), ("prod", X, {"axis": 0}), ("std", X, {"axis": 1, "correction": 1}),
    ("sum", X, {"axis": (0, 1)}), ("sum", I, {"dtype": "float64"}), ("var", X, {"correction": 1.0}), ("all", B, {}), ("any", B, {}), ("diff", X, {"axis": 0}),
    *((n, U, {"dtype": d}) for n in ("sum", "prod") for d in ("int8", "uint8", "float32")),
    *((n, U, {"axis": 1, "dtype": d}) for n in ("cumulative_sum", "cumulative_prod") for d in ("int16", "uint8")),
    ("unique_values", I, {}), ("unique_counts", I, {}), ("unique_inverse", I, {}), ("unique_all", I, {}), ("nonzero", B, {}),
    ("isin", I, np.array([1, 2]), {}), ("astype", X, "float32", {}), ("meshgrid", V, V, {"indexing": "ij"}), ("unstack", X, {"axis": 1}),
    ("broadcast_arrays", X, V, {}),
    *((f"linalg.{n}", S, {}) for n in ("cholesky", "det", "diagonal", "eigvalsh", "inv", "matrix_norm", "matrix_rank", "pinv", "slogdet",
                                       "svdvals", "trace", "matrix_transpose")),
    ("linalg.cholesky", S, {"upper": True}), ("linalg.cross", X, X[::-1], {}), ("linalg.matrix_power", S, 3, {}), ("linalg.outer", V, V, {}),
    ("linalg.solve", S, V, {}), ("linalg.vector_norm", X, {"axis": 1, "ord": 1}), ("linalg.matmul", S, S, {}), ("linalg.vecdot", X, X, {}),
    ("linalg.tensordot", X, S, {"axes": 1}), ("linalg.diagonal", S, {"offset": 1}), ("linalg.trace", S, {"offset": 1}), ("linalg.trace", S, {"dtype": np.float32}),
    *((f"fft.{n}", C, {}) for n in ("fft", "ifft", "fftn", "ifftn", "irfft", "irfftn", "hfft", "fftshift", "ifftshift")),
    *((f"fft.{n}", X, {"norm": "ortho"}) for n in ("rfft", "rfftn", "ihfft")), ("fft.fftfreq", 5, {}), ("fft.rfftfreq", 4, {"d": 0.5}),
]
# fmt: on


def found(namespace, name):
    for part in name.split("."):
        namespace = getattr(namespace, part)
    return namespace


def of(namespace, value):
    """A call's argument in a namespace's arrays and dtypes."""
    if isinstance(value, np.ndarray):
        return namespace.asarray(value)
    if isinstance(value, list) and value and isinstance(value[0], np.ndarray):
        return [namespace.asarray(v) for v in value]
    if isinstance(value, str) and hasattr(namespace, value):
        return getattr(namespace, value)
    return getattr(namespace, value.name) if isinstance(value, np.dtype) else value


def plain(value):
    if isinstance(value, tuple | list):
        return [plain(v) for v in value]
    return np.asarray(value.detach() if isinstance(value, tg.Tensor) else value)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("call", CALLS, ids=lambda c: c[0])
def test_results_are_the_standards(call):
    strict = pytest.importorskip("array_api_strict", reason="the standard's reference")
    name, *args, settings = call
    expected, got = (
        found(n, name)(*(of(n, a) for a in args), **{k: of(n, v) for k, v in settings.items()})
        for n in (strict, array_api)
    )
    if isinstance(expected, tuple | list):
        assert type(got).__name__ in (type(expected).__name__, "tuple", "list")
        assert getattr(got, "_fields", ()) == getattr(expected, "_fields", ())
        pairs = list(zip(expected, got, strict=True))
    else:
        pairs = [(expected, got)]
    for theirs, ours in pairs:
        if isinstance(theirs, bool | float):
            assert ours == theirs
            continue
        assert isinstance(ours, tg.Tensor)
        a, b = np.asarray(theirs), np.asarray(ours)
        if name == "unique_values":  # in whatever order
            a, b = np.sort(a), np.sort(b)
        assert a.dtype == b.dtype
        np.testing.assert_allclose(b, a, rtol=1e-12, atol=1e-13)


def test_every_name_of_the_standard_is_here():
    strict = pytest.importorskip("array_api_strict", reason="the standard's reference")
    own = {"Device", "ModuleType"}
    for name in dir(strict):
        if not name.startswith("_") and "flags" not in name.lower() and name not in own:
            assert hasattr(array_api, name), name
            theirs, ours = getattr(strict, name), getattr(array_api, name)
            if inspect.isfunction(theirs) and inspect.isfunction(ours) and "op_" not in name:
                accepted = inspect.signature(ours).parameters
                wild = {p.kind for p in accepted.values()} & {inspect.Parameter.VAR_KEYWORD}
                for p in inspect.signature(theirs).parameters.values():
                    if p.kind is p.KEYWORD_ONLY:
                        assert p.name in accepted or wild, (name, p.name)
    for part in ("linalg", "fft"):
        for name in getattr(strict, part).__all__:
            assert hasattr(getattr(array_api, part), name), name


def test_the_namespace_of_a_tensor():
    t = tg.tensor(X, requires_grad=True)
    assert t.__array_namespace__() is t.__array_namespace__(api_version="2024.12") is array_api
    with pytest.raises(ValueError, match="2099"):
        t.__array_namespace__(api_version="2099.01")
    assert array_api.__array_namespace_info__().default_device() == "cpu"
    assert t.to_device("cpu") is t
    with pytest.raises(ValueError, match="one device"):
        t.to_device("gpu")
    with pytest.raises(ValueError, match="one device"):
        array_api.zeros(3, device="gpu")


def test_dlpack():
    t = tg.tensor(X)
    np.testing.assert_array_equal(np.from_dlpack(t), X)
    assert isinstance(array_api.from_dlpack(X), tg.Tensor)
    for stream in (None, -1):
        t.__dlpack__(stream=stream, max_version=(1, 0), copy=True)
    for stream in (1, "x", True):
        with pytest.raises(BufferError, match="no streams: pass None"):
            t.__dlpack__(stream=stream)
    with pytest.raises(BufferError, match="detach"):
        np.from_dlpack(t.requires_grad_())


def test_a_trace_in_another_dtype_is_differentiated():
    t = tg.tensor(np.stack([S, 2 * S]), requires_grad=True)
    found = tg.linalg.trace(t, offset=1, dtype=np.float32)
    assert found.dtype == np.float32
    found.sum().backward()
    np.testing.assert_array_equal(t.grad.numpy(), np.stack([np.eye(3, k=1)] * 2))


def generic(x):
    """A function of a library that knows only the standard."""
    xp = x.__array_namespace__()
    centred = x - xp.mean(x, axis=0, keepdims=True)
    ordered = xp.sort(centred, axis=0, descending=True)
    spectrum = xp.abs(xp.fft.rfft(ordered, axis=0))
    return (
        xp.sum(spectrum)
        + xp.linalg.vector_norm(x)
        + xp.std(x, correction=1.0)
        + xp.sum(xp.where(x > 0, x, xp.asarray(0.0)))
    )


def test_a_gradient_through_the_namespace():
    t = tg.tensor(X, requires_grad=True)
    generic(t).backward()
    h = 1e-6
    for i in np.ndindex(X.shape):
        moved = [X.copy(), X.copy()]
        moved[0][i] += h
        moved[1][i] -= h
        slope = (generic(tg.tensor(moved[0])) - generic(tg.tensor(moved[1]))).item() / (2 * h)
        assert abs(slope - t.grad[i].item()) < 1e-7


def test_a_library_that_uses_array_api_compat():
    compat = pytest.importorskip("array_api_compat", reason="a guest")
    t = tg.tensor(X, requires_grad=True)
    assert compat.is_array_api_obj(t)
    assert compat.array_namespace(t, tg.tensor(V)) is array_api
    assert compat.device(t) == "cpu" and compat.size(t) == 6
    assert compat.to_device(t, "cpu") is t


@pytest.mark.long
def test_scipy_with_its_array_api_switched_on():
    """SciPy's functions that are written in the standard carry gradients; the others refuse tracked tensors."""
    text = (
        "import numpy as np, scipy.fft, scipy.special, scipy.stats, tapegrad as tg\n"
        "t = tg.tensor([0.5, 1.5, 4.0], requires_grad=True)\n"
        "for f in (scipy.stats.zscore, scipy.stats.skew, scipy.special.softmax, scipy.fft.fft):\n"
        "    assert f(t).requires_grad, f\n"
        "g = tg.grad(lambda t: scipy.special.logsumexp(t))(t)\n"
        "assert np.allclose(np.asarray(g.detach()), scipy.special.softmax(np.asarray(t.detach())))\n"
        "try:\n"
        "    scipy.fft.dct(t)\n"
        "except tg.GradientLost:\n"
        "    print('refused')\n"
    )
    environment = os.environ | {"SCIPY_ARRAY_API": "1"}
    command = [sys.executable, "-c", text]
    run = subprocess.run(command, env=environment, timeout=600, capture_output=True, text=True)
    assert run.stdout == "refused\n", run.stderr
