"""Guests: HIPS autograd's programs, DLPack, pandas, xarray, PyTorch and JAX functions, samplers and minimisers. Absent ones skip."""

import numpy as np
import pytest

import tapegrad as tg

rng = np.random.default_rng(0)
X = rng.normal(size=3)


def energy(x):
    return np.sum(np.sin(x) * x)


def slope(x):
    return np.cos(x) * x + np.sin(x)


# ------------------------------------------------------------------------------------------ HIPS autograd


def test_the_examples_of_hips_autograds_readme():
    import tapegrad.numpy as np
    from tapegrad import elementwise_grad as egrad
    from tapegrad import grad

    def tanh(x):
        return (1.0 - np.exp(-2 * x)) / (1.0 + np.exp(-2 * x))

    grad_tanh = grad(tanh)
    assert grad_tanh(1.0) == pytest.approx(0.419974341614026, rel=1e-12)
    assert (tanh(1.0001) - tanh(0.9999)) / 0.0002 == pytest.approx(0.41997434264973155, rel=1e-6)

    x = np.linspace(-7, 7, 200)
    derivatives = [tanh]
    for _ in range(5):
        derivatives.append(egrad(derivatives[-1]))
    for d in derivatives:
        assert d(x).shape == (200,)
    np.testing.assert_allclose(derivatives[1](x), 1 / np.cosh(x) ** 2, atol=1e-12)


def test_hips_logistic_regression():
    import tapegrad.numpy as np
    from tapegrad import grad

    def sigmoid(x):
        return 0.5 * (np.tanh(x / 2.0) + 1)

    def logistic_predictions(weights, inputs):
        return sigmoid(np.dot(inputs, weights))

    def training_loss(weights):
        preds = logistic_predictions(weights, inputs)
        label_probabilities = preds * targets + (1 - preds) * (1 - targets)
        return -np.sum(np.log(label_probabilities))

    inputs = np.array(
        [[0.52, 1.12, 0.77], [0.88, -1.08, 0.15], [0.52, 0.06, -1.30], [0.74, -2.49, 1.39]]
    )
    targets = np.array([True, True, False, True])
    training_gradient_fun = grad(training_loss)
    weights = np.array([0.0, 0.0, 0.0])
    first = training_loss(weights)
    for _ in range(100):
        weights -= training_gradient_fun(weights) * 0.01
    assert training_loss(weights) < first
    np.testing.assert_allclose(weights, [0.5043, -0.1993, 0.8217], atol=0.6)


def test_names_are_imported_from_the_submodules():
    """`from ... import name` asks a module for `__path__` first, which must not be NumPy's."""
    from tapegrad.numpy.fft import fft, fftfreq
    from tapegrad.numpy.linalg import LinAlgError, solve
    from tapegrad.numpy.random import default_rng

    assert solve is tg.linalg.solve and fft is tg.fft.fft
    assert LinAlgError is np.linalg.LinAlgError and fftfreq is np.fft.fftfreq
    assert default_rng is np.random.default_rng
    with pytest.raises(ImportError):
        from tapegrad.numpy.linalg import no_such_name  # noqa: F401


def test_tapegrad_numpy_is_numpy_with_gradients():
    import tapegrad.numpy as tnp
    import tapegrad.numpy.linalg as npla
    import tapegrad.numpy.random as npr

    assert tnp.pi == np.pi and tnp.float64 is np.float64 and tnp.ndarray is np.ndarray
    assert isinstance(tnp.zeros(3), np.ndarray) and isinstance(tnp.sin(X), np.ndarray)
    assert npr.RandomState(0).randn(2).shape == (2,)
    assert tnp.linalg.norm is npla.norm and tnp.fft.fftfreq is np.fft.fftfreq
    gradient = tg.grad(lambda x: tnp.sum(tnp.array([x[0] * x[1], x[2] ** 2])))(X)
    np.testing.assert_allclose(gradient, [X[1], X[0], 2 * X[2]])
    np.testing.assert_allclose(tg.grad(lambda x: npla.norm(x))(X), X / np.linalg.norm(X))
    filled = tg.grad(lambda x: tnp.sum(tnp.full((2, 3), x[1]) * x[0]))(X)
    np.testing.assert_allclose(filled, [6 * X[1], 6 * X[0], 0.0])
    assert tnp.full(2, 7, int).dtype == int and tnp.asarray([1, 2]).tolist() == [1, 2]
    t = tg.tensor(X, requires_grad=True)
    assert tnp.asarray(t) is t and tnp.asarray([t[0], 2.0]).requires_grad
    lists = tg.grad(lambda a: tnp.mean([a, a * a]) + npla.norm([a, a + 2]) + npla.det([[a, 1], [2, a]]))  # fmt: skip
    np.testing.assert_allclose(lists(1.0), 1.5 + 4 / np.sqrt(10) + 2.0)
    np.testing.assert_allclose(tg.grad(lambda a: tnp.fft.fft([a, a**2]).real[1])(3.0), -5.0)
    with pytest.raises(AttributeError, match="no attribute 'clamp'"):
        _ = tnp.clamp
    assert "sin" in dir(tnp)


@pytest.mark.parametrize(
    "way", [tg.grad, lambda f: tg.compile(tg.grad(f))], ids=["eager", "compiled"]
)
def test_array_copies(way):
    """As np.array does: what is written to the copy is not written to what was given."""
    import tapegrad.numpy as tnp

    def f(x):
        y = x * 2.0
        copied = tnp.array(y)
        copied[0] = 100.0
        return y[0] * copied[1]

    assert f(X) == 4 * X[0] * X[1]
    np.testing.assert_array_equal(way(f)(X), [X[1] * 4, X[0] * 4, 0.0])


def brackets():
    """What stands between the brackets of `np.r_`, with arrays where tensors may stand."""
    a, b = X, np.arange(6.0).reshape(2, 3)
    yield from [(a,), (a, 1.0, 2), (a, slice(0, 3)), (a, slice(0, 1, 5j)), (2, a, [1, 2], a)]
    yield from [("0,2", a, a), ("1,2,0", a, a), ("0,3,-1", a, b), ("-1", b, b), (b, b)]
    yield from [("0,2,0", a, slice(0, 3)), ("0,3,1", a, slice(0, 3))]
    yield from [
        (a.astype(np.float32), 1.0),
        (a.astype(np.float32), np.float64(1)),
        (a.astype("f4"), a),
    ]


@pytest.mark.parametrize("key", list(brackets()), ids=str)
@pytest.mark.parametrize("name", ["r_", "c_"])
def test_brackets_that_join(name, key):
    """`np.r_` and `np.c_` put tensors where NumPy puts arrays, and the gradient finds its way back."""
    import tapegrad.numpy as tnp

    plain, ours = getattr(np, name), getattr(tnp, name)
    tracked = [i for i, item in enumerate(key) if isinstance(item, np.ndarray)]
    leaves = {i: tg.tensor(key[i], requires_grad=True) for i in tracked}
    tensors = tuple(leaves.get(i, item) for i, item in enumerate(key))
    try:
        expected = plain[key]
    except ValueError:
        with pytest.raises(ValueError):
            _ = ours[tensors]
        return
    joined = ours[tensors]
    assert joined.dtype == expected.dtype
    np.testing.assert_array_equal(joined.detach().numpy(), expected)
    weights = np.random.default_rng(0).normal(size=expected.shape)
    np.sum(joined * weights).backward()
    for i in tracked:
        # An entry's slope is its weight: it is where a change of that entry is seen.
        spots = [
            plain[tuple(marker if i == j else item for j, item in enumerate(key))] != expected
            for marker in bumped(key[i])
        ]
        slopes = [np.sum(weights[spot]) for spot in spots]
        np.testing.assert_allclose(leaves[i].grad.numpy().ravel(), slopes, rtol=1e-6)
    assert isinstance(ours[key], np.ndarray)


def bumped(array):
    """The array with one entry changed, for each entry."""
    for i in range(array.size):
        other = array.copy()
        other.flat[i] += 100
        yield other


def test_hips_names():
    np.testing.assert_allclose(tg.elementwise_grad(energy)(X), slope(X))
    pull, value = tg.make_vjp(np.sin)(X)
    np.testing.assert_allclose(pull(np.ones(3)), np.cos(X))
    np.testing.assert_allclose(value, np.sin(X))
    _, along = tg.make_jvp(lambda a, x: a * np.sin(x), 1)(2.0, X)(np.ones(3))
    np.testing.assert_allclose(along, 2 * np.cos(X))
    np.testing.assert_allclose(
        tg.hessian_vector_product(energy)(X, X), np.diag(2 * np.cos(X) - X * np.sin(X)) @ X
    )
    np.testing.assert_allclose(tg.vector_jacobian_product(np.sin)(X, X), np.cos(X) * X)
    assert tg.multigrad_dict(lambda x, y=3.0: x * y)(2.0) == {"x": 3.0, "y": 2.0}
    assert tg.grad_named(lambda x, y=3.0: x * y, "y")(2.0, 5.0) == 2.0
    assert tg.grad_and_aux(lambda x, y: (x * y, "seen"), 1)(2.0, 5.0) == (2.0, "seen")
    np.testing.assert_allclose(tg.deriv(lambda a, t: a * np.sin(t), 1)(X, 0.5), X * np.cos(0.5))
    np.testing.assert_allclose(tg.deriv(tg.deriv(np.sin))(0.5), -np.sin(0.5))
    assert tg.deriv(np.sin)(np.float32(0.5)).dtype == np.float32


def rolled(x):
    """Its Jacobian is not symmetric, and has no zeros where axes meet."""
    return np.roll(np.sin(x), 1) * np.sum(x * x)


@pytest.mark.parametrize("axes", [0, 1, 2])
def test_hips_products_with_tensors(axes):
    """By a cotangent of the value's first axes, and by a tensor of the argument's first axes for the Hessian."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 2))
    w = rng.standard_normal((3, 2)[:axes])
    expected = np.tensordot(w, tg.jacobian(rolled)(x), axes)
    for product in (tg.tensor_jacobian_product, tg.vector_jacobian_product):
        np.testing.assert_allclose(product(rolled)(x, w), expected, rtol=1e-12)

    def f(scale, x):
        return scale * np.sum(rolled(x) ** 2)

    hessian = tg.hessian(lambda x: f(2.0, x))(x)
    for product in (tg.hessian_tensor_product, tg.hessian_vector_product):
        found = product(f, 1)(2.0, x, w)
        np.testing.assert_allclose(found, np.tensordot(w, hessian, axes), rtol=1e-12)


def test_hips_products_at_a_point():
    rng = np.random.default_rng(1)
    x, v = rng.standard_normal((2, 3))

    def f(x):
        return np.sum(rolled(x) ** 2)

    product, gradient = tg.make_hvp(f)(x)
    np.testing.assert_allclose(gradient, tg.grad(f)(x))
    np.testing.assert_allclose(product(v), tg.hessian(f)(x) @ v)
    j = tg.jacobian(rolled)(x)
    np.testing.assert_allclose(tg.make_ggnvp(rolled)(x)(v), j.T @ (j @ v))

    def g(y):
        return np.sum(np.exp(y))

    np.testing.assert_allclose(
        tg.make_ggnvp(lambda a, x: a * rolled(x), g, 1)(0.3, x)(v),
        0.3**2 * j.T @ (np.exp(0.3 * rolled(x)) * (j @ v)),
    )
    assert tg.holomorphic_grad(lambda z: z**2)(1 + 2j) == 2 + 4j


# ------------------------------------------------------------------------------------------ DLPack


def test_dlpack_both_ways():
    t = tg.tensor(X)
    np.testing.assert_array_equal(np.from_dlpack(t), X)
    shared = tg.from_dlpack(X)
    assert np.shares_memory(shared.numpy(), X)
    with pytest.raises(BufferError, match=r"Use tensor.detach\(\)"):
        np.from_dlpack(tg.tensor(X, requires_grad=True))
    with pytest.raises(TypeError, match="use tg.as_tensor"):
        tg.from_dlpack([1.0])
    assert t.__dlpack_device__() == (1, 0)


def test_dlpack_with_torch_and_jax():
    torch = pytest.importorskip("torch")
    t = torch.arange(3.0)
    shared = tg.from_dlpack(t)
    t[0] = 5
    assert shared[0] == 5
    assert torch.from_dlpack(tg.tensor(X)).tolist() == X.tolist()
    jax = pytest.importorskip("jax")
    assert tg.from_dlpack(jax.numpy.arange(3.0)).tolist() == [0, 1, 2]


# ------------------------------------------------------------------------------------------ pandas, xarray


def test_pandas_values_in_and_out():
    pd = pytest.importorskip("pandas")
    s = pd.Series(X, index=list("abc"), name="w")
    g = tg.grad(energy)(s)
    assert isinstance(g, pd.Series) and g.name == "w"
    assert g["b"] == pytest.approx(slope(X)[1])
    frame = pd.DataFrame({"t": [0.0, 1.0, 2.0], "y": [1.0, 0.6, 0.4]})
    assert list(tg.grad(lambda f: np.sum(f**2))(frame).columns) == ["t", "y"]

    def misfit(k):  # a Series is data: on either side of an operator, and inside NumPy's functions
        r = frame["y"] - k[0] * np.exp(-k[1] * frame["t"])
        return np.sum(r**2) + np.sum(np.multiply(frame["t"], k[0]) * 0)

    tg.check_gradient(misfit, np.array([1.0, 0.5])).assert_ok()
    fit = tg.least_squares(
        lambda k: k[0] * np.exp(-k[1] * frame["t"]) - frame["y"],
        pd.Series([1.0, 0.5], index=["a", "k"]),
    )
    assert isinstance(fit.x, pd.Series) and fit.x["k"] == pytest.approx(0.47, abs=0.02)
    assert isinstance(fit.stderr, pd.Series)
    assert tg.check_gradient(energy, s).ok


def test_pandas_keeps_its_own_operators():
    pd = pytest.importorskip("pandas")
    t = tg.tensor(X)
    s = pd.Series(X)
    assert isinstance(s + s, pd.Series)
    np.testing.assert_allclose((s * t).numpy(), X * X)
    np.testing.assert_allclose((t - s).numpy(), 0)
    with pytest.raises(tg.GradientLost):
        pd.Series(tg.tensor(X, requires_grad=True))


def test_xarray_labels_survive_differentiation():
    xr = pytest.importorskip("xarray")
    da = xr.DataArray(X, dims="city", coords={"city": ["a", "b", "c"]}, name="heat")

    def model(a):
        assert isinstance(a, xr.DataArray)
        return (a**2).sum("city") + a.sel(city="b") * 3.0

    g = tg.grad(model)(da)
    assert isinstance(g, xr.DataArray) and list(g.city.values) == ["a", "b", "c"]
    np.testing.assert_allclose(g.values, 2 * X + [0, 3, 0])
    ds = xr.Dataset({"u": da, "v": ("city", X**2)})
    g = tg.grad(lambda d: (d["u"] * d["v"]).sum())(ds)
    assert isinstance(g, xr.Dataset)
    np.testing.assert_allclose(g["u"].values, X**2)
    assert tg.minimize(lambda a: ((a - 1) ** 2).sum(), da).x.sel(city="c") == pytest.approx(1)


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("function", [np.multiply, np.arctan2, tg.multiply, tg.maximum])
def test_ufuncs_of_tensors_and_xarrays_keep_labels_and_gradients(function, swapped):
    """Whichever stands first: NumPy asks the first operand's hook, and there was no end where that was the tensor's."""
    xr = pytest.importorskip("xarray")
    da = xr.DataArray(np.abs(X) + 1, dims="city", coords={"city": ["a", "b", "c"]})

    def f(x, other):
        return function(other, x) if swapped else function(x, other)

    x = tg.tensor(X, requires_grad=True)
    result = f(x, da)
    assert isinstance(result, xr.DataArray) and list(result.city.values) == ["a", "b", "c"]
    result.data.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), tg.grad(lambda x: f(x, da.values).sum())(X))
    with pytest.raises(TypeError, match="xarray does not join"):
        tg.multiply(da, object())


# ------------------------------------------------------------------------------------------ PyTorch


def test_to_torch():
    torch = pytest.importorskip("torch")
    f = tg.to_torch(energy)
    x = torch.tensor(X, requires_grad=True)
    y = f(x)
    y.backward()
    assert y.item() == pytest.approx(energy(X))
    np.testing.assert_allclose(x.grad.numpy(), slope(X))
    assert torch.autograd.gradcheck(f, (x,)) and torch.autograd.gradgradcheck(f, (x,))
    assert torch.autograd.gradcheck(
        tg.to_torch(lambda a, b: (np.outer(a, b), np.sum(a))),
        (x, x.detach().clone().requires_grad_()),
    )
    pair = tg.to_torch(lambda p, n: {"out": p["a"] * p["b"] * n})
    p = {"a": x, "b": torch.ones(3, dtype=torch.float64)}
    pair(p, torch.tensor(2.0, dtype=torch.float64))["out"].sum().backward()
    assert not f(torch.tensor(X)).requires_grad
    model = torch.nn.Linear(3, 3).double()
    f(model(torch.tensor(X))).backward()
    assert model.weight.grad.abs().sum() > 0
    with pytest.raises(TypeError, match="cannot be called"):
        tg.to_torch(3)


def test_from_torch():
    torch = pytest.importorskip("torch")
    f = tg.from_torch(lambda x: (torch.sin(x) * x).sum())
    assert f(X) == pytest.approx(energy(X)) and not isinstance(f(X), tg.Tensor)
    np.testing.assert_allclose(tg.grad(f)(X), slope(X))
    both = tg.from_torch(lambda a, b: (a * b, a.sum()))
    g = tg.grad(lambda a: np.sum(both(a, X)[0]) + 2 * both(np.sin(a), X)[1])(X)
    np.testing.assert_allclose(g, X + 2 * np.cos(X))
    tg.check_gradient(lambda x: np.sum(np.exp(f(x * x))), X).assert_ok()
    x = tg.tensor(X, requires_grad=True)
    f(x).backward()
    np.testing.assert_allclose(x.grad.numpy(), slope(X))
    with pytest.raises(TypeError, match="returns tensors"):
        tg.from_torch(lambda x: 3.0)(X)
    assert tg.grad(tg.grad(f))(1.0) == pytest.approx(2 * np.cos(1.0) - np.sin(1.0))
    np.testing.assert_allclose(tg.hessian(f)(X), np.diag(2 * np.cos(X) - X * np.sin(X)), atol=1e-12)


# ------------------------------------------------------------------------------------------ JAX


@pytest.fixture
def jax():
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    yield jax
    jax.config.update("jax_enable_x64", False)


def test_to_jax(jax):
    f = tg.to_jax(energy)
    assert float(f(X)) == pytest.approx(energy(X))
    np.testing.assert_allclose(jax.grad(f)(X), slope(X))
    np.testing.assert_allclose(jax.jit(jax.grad(f))(X), slope(X))
    tree = tg.to_jax(lambda p: {"y": p["a"] * np.sin(p["b"])})
    g = jax.grad(lambda p: tree(p)["y"].sum())({"a": X, "b": X})
    np.testing.assert_allclose(g["b"], X * np.cos(X))
    with pytest.raises(TypeError, match="cannot be called"):
        tg.to_jax(3)


@pytest.mark.long
def test_from_jax(jax):
    f = tg.from_jax(lambda x: (jax.numpy.sin(x) * x).sum())
    assert f(X) == pytest.approx(energy(X))
    np.testing.assert_allclose(tg.grad(f)(X), slope(X))
    both = tg.from_jax(jax.jit(lambda a, b: (a * b, a.sum())))
    np.testing.assert_allclose(tg.grad(lambda a: np.sum(both(a, X)[0]))(X), X)
    tg.check_gradient(lambda x: np.exp(f(x * x)), X).assert_ok()
    np.testing.assert_allclose(tg.hessian(f)(X), np.diag(2 * np.cos(X) - X * np.sin(X)), atol=1e-12)


# ------------------------------------------------------------------------------------------ SciPy and its kin


def test_scipy_takes_gradients_and_tensors():
    from scipy import integrate, optimize

    result = optimize.minimize(
        lambda x: np.sum((x - 1) ** 2), np.zeros(3), jac=tg.grad(lambda x: np.sum((x - 1) ** 2))
    )
    np.testing.assert_allclose(result.x, 1)
    result = optimize.minimize(
        tg.value_and_grad(lambda x: np.sum((x - 1) ** 2)), np.zeros(3), jac=True
    )
    np.testing.assert_allclose(result.x, 1)

    def rhs(t, y):
        return np.stack([y[1], -np.sin(y[0])])

    jac = tg.jacobian(rhs, argnums=1)
    solved = integrate.solve_ivp(rhs, (0, 2), [1.0, 0.0], method="BDF", jac=jac)
    assert solved.success


T = np.linspace(0, 3, 40)
SEEN = 2 * np.exp(-1.3 * T) + 0.3 + 0.05 * np.random.default_rng(0).normal(size=40)


def misfit(a, k, c):
    return np.sum(((a * np.exp(-k * T) + c - SEEN) / 0.05) ** 2)


def looped_misfit(a, k, c):
    s = 0.0
    for i in range(len(T)):
        s += ((a * np.exp(-k * T[i]) + c - SEEN[i]) / 0.05) ** 2
    return s


MADE = {
    "eager": lambda: (misfit, tg.grad(misfit, (0, 1, 2))),
    "compiled": lambda: (tg.compile(misfit), tg.compile(tg.grad(misfit, (0, 1, 2)))),
    "native": lambda: (f := tg.njit(looped_misfit), tg.grad(f, (0, 1, 2))),
}


@pytest.mark.parametrize("made", MADE)
def test_emcee_samples_a_tapegrad_model(made):
    """The same walkers as with plain NumPy."""
    emcee = pytest.importorskip("emcee")
    f, _ = MADE[made]()
    start = [2.0, 1.3, 0.3] + 0.01 * np.random.default_rng(1).normal(size=(8, 3))
    chains = []
    for function in (misfit, f):
        sampler = emcee.EnsembleSampler(8, 3, lambda p, of=function: -0.5 * of(*p))
        sampler.random_state = np.random.RandomState(0).get_state()
        sampler.run_mcmc(start, 30)
        chains.append(sampler.get_chain())
    np.testing.assert_allclose(chains[1], chains[0], rtol=1e-9)
    assert np.ptp(chains[0]) > 0.1


@pytest.mark.parametrize("made", MADE)
def test_iminuit_takes_the_gradient(made):
    """Parameters by name, and one array; minimum and errors are those of the least squares fit."""
    iminuit = pytest.importorskip("iminuit")
    f, gradient = MADE[made]()
    fit = tg.least_squares(lambda p: (p[0] * np.exp(-p[1] * T) + p[2] - SEEN) / 0.05, np.ones(3))
    named = iminuit.Minuit(f, a=1.0, k=1.0, c=0.0, grad=gradient)
    whole = iminuit.Minuit(lambda p: f(*p), np.ones(3), grad=lambda p: gradient(*p))
    assert named.parameters == ("a", "k", "c")
    for m in (named, whole):
        m.errordef = 1
        m.migrad().hesse()
        assert m.valid and m.ngrad > 0
        np.testing.assert_allclose(m.values, fit.x, rtol=1e-4)
        expected = np.sqrt(np.diag(np.linalg.inv(fit.jac.T @ fit.jac)))
        np.testing.assert_allclose(m.errors, expected, rtol=1e-2)


def test_absent_guests_are_named(monkeypatch):
    import builtins

    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name in ("torch", "jax"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match="pip install torch"):
        tg.to_torch(energy)(X)
    with pytest.raises(ImportError, match="pip install jax"):
        tg.from_jax(energy)(X)


# ------------------------------------------------------------------------------------------ other processes

ELSEWHERE = """
import numpy as np, tapegrad as tg, cloudpickle, sys
K = 2.0
@tg.njit
def helper(x):
    return K * x * x
@tg.njit
def native(x):
    s = 0.0
    for i in range(len(x)):
        s += helper(x[i])
    return s
compiled = tg.compile(tg.value_and_grad(lambda x: np.sum(np.sin(x))))
compiled(np.ones(2)), tg.grad(native)(np.ones(2))  # what is compiled stays here
with open(sys.argv[1], "wb") as file:
    cloudpickle.dump((native, compiled, tg.grad(native)), file)
"""
THERE = """
import pickle, sys, numpy as np, tapegrad as tg
with open(sys.argv[1], "rb") as file:
    native, compiled, gradient = pickle.load(file)
print(native(np.ones(3)), *tg.grad(native)(np.ones(2)), *compiled(np.zeros(1))[1], *gradient(np.ones(1)))
"""


def test_functions_go_to_processes_that_have_not_their_source(tmp_path):
    """Native and compiled functions and transforms of them, used or not, without the file they were written in."""
    pytest.importorskip("cloudpickle")
    import subprocess
    import sys

    script, pickled = tmp_path / "mine.py", tmp_path / "pickled"
    script.write_text(ELSEWHERE)
    subprocess.run([sys.executable, script, pickled], check=True)
    script.unlink()
    there = subprocess.run(
        [sys.executable, "-c", THERE, pickled], check=True, capture_output=True, text=True
    )
    assert there.stdout.split() == ["6.0", "4.0", "4.0", "1.0", "4.0"]


def test_what_was_used_pickles():
    cloudpickle = pytest.importorskip("cloudpickle")
    fast = tg.compile(lambda x: np.sum(x**2))
    tg.minimize(fast, np.ones(2))
    again = cloudpickle.loads(cloudpickle.dumps(fast))
    assert again(np.ones(2)) == 2.0 and tg.grad(again)(np.ones(2)).tolist() == [2.0, 2.0]
    for kept in (tg.check_gradient(np.sum, np.ones(2)), tg.least_squares(np.sin, np.ones(2))):
        assert repr(cloudpickle.loads(cloudpickle.dumps(kept))) == repr(kept)
