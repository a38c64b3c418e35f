"""Small things that a user of other libraries tries first: they work, or the error says what to write instead."""

import dataclasses
import enum
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numba
import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
from scipy.optimize import OptimizeWarning

import tapegrad as tg

# ------------------------------------------------------------------------------------------ records as trees


class Kind(enum.Enum):
    RBF = 1


@dataclasses.dataclass
class Kernel:
    scale: float
    weights: np.ndarray
    name: str = "rbf"
    kind: Kind = Kind.RBF
    power: int = dataclasses.field(default=2, metadata={"static": True})
    fast: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class Pair:
    kernel: Kernel
    shift: float


def energy(p):
    if p.kernel.name != "rbf" or p.kernel.kind is not Kind.RBF or p.kernel.fast is not True:
        raise TypeError("a static field is no longer what it was")
    return p.kernel.scale * np.sum(p.kernel.weights**p.kernel.power) + p.shift**3


def pair():
    return Pair(Kernel(3.0, np.array([1.0, 2.0])), 2.0)


@pytest.mark.parametrize("way", [tg.grad, lambda f: tg.compile(tg.grad(f))])
def test_a_gradient_by_a_dataclass_is_one(way):
    g = way(energy)(pair())
    assert type(g) is Pair and type(g.kernel) is Kernel and g.kernel.power == 2
    assert (g.kernel.scale, g.shift) == (5.0, 12.0)
    np.testing.assert_array_equal(g.kernel.weights, [6.0, 12.0])


def test_second_derivatives_and_directions_go_through_records():
    p = pair()
    _, along = tg.jvp(energy, (p,), (Pair(Kernel(1.0, np.zeros(2)), 1.0),))
    assert along == 5.0 + 12.0
    curved = tg.hvp(energy)(p, Pair(Kernel(0.0, np.array([1.0, 0.0])), 1.0))
    assert curved.shift == 12.0 and curved.kernel.scale == 2.0
    assert tg.check_gradient(energy, p).ok


def test_another_static_field_is_another_structure():
    with pytest.raises(ValueError, match="structure"):
        tg.jvp(energy, (pair(),), (Pair(Kernel(1.0, np.zeros(2), name="other"), 1.0),))


def test_a_compiled_function_is_traced_again_for_another_static_field():
    @dataclasses.dataclass
    class Model:
        w: np.ndarray
        kind: str

    @tg.compile
    def f(m):
        return np.sum(m.w) if m.kind == "sum" else np.prod(m.w)

    w = np.array([2.0, 3.0])
    assert [f(Model(w, k)) for k in ("sum", "prod", "sum")] == [5.0, 6.0, 5.0]
    assert f(Model(w * 2, "sum")) == 10.0  # what is no static field is read anew


def test_attributes_beside_fields_are_kept_and_init_does_not_run_again():
    runs = []

    @dataclasses.dataclass
    class Counted:
        a: float
        twice: float = dataclasses.field(init=False)

        def __post_init__(self):
            runs.append(self.a)
            self.twice = 2.0
            self.note = np.arange(3)

    c = Counted(1.5)
    g = tg.grad(lambda c: c.a * c.twice * float(c.note.sum()))(c)
    assert (g.a, g.twice) == (6.0, 4.5) and runs == [1.5]


def test_attrs_classes_are_trees():
    attrs = pytest.importorskip("attrs")

    @attrs.define
    class Model:
        _a: float
        b: Any
        name: str = "m"

    g = tg.grad(lambda m: m._a * np.sum(m.b))(Model(2.0, np.ones(2)))
    assert g._a == 2.0 and g.name == "m"
    np.testing.assert_array_equal(g.b, [2.0, 2.0])


def test_a_fit_returns_the_record_with_names_of_its_fields():
    @dataclasses.dataclass
    class Decay:
        height: float
        rates: np.ndarray
        label: str = "decay"

    t = np.linspace(0, 3, 30)

    def residuals(p):
        return p.height * np.exp(-p.rates[0] * t) + p.rates[1] - (3 * np.exp(-t) + 0.5)

    fit = tg.least_squares(residuals, Decay(1.0, np.array([0.5, 0.0])))
    assert type(fit.x) is Decay and fit.x.label == "decay"
    np.testing.assert_allclose([fit.x.height, *fit.x.rates], [3.0, 1.0, 0.5], rtol=1e-6)
    assert fit.names == ["height", "rates[0]", "rates[1]"]


def test_names_of_parameters():
    def names(x0, f):
        return tg.least_squares(f, x0).names

    assert names({"a": 1.0, "k": 2.0}, lambda p: np.stack([p["a"], p["k"]])) == ["a", "k"]
    nested = {"layer": {"w": np.ones((1, 2))}}
    assert names(nested, lambda p: p["layer"]["w"]) == ["layer.w[0, 0]", "layer.w[0, 1]"]
    assert names(np.ones(2), lambda p: p) == ["x0[0]", "x0[1]"]
    assert names({"two words": 1.0}, lambda p: p["two words"]) == ["x0['two words']"]
    with pytest.raises(ValueError, match=r"^k is nan"):
        tg.least_squares(lambda p: p["k"], {"k": np.nan})


# --------------------------------------------------------------------------------- values of other libraries


def stand_in(module, name):
    """A class that looks like one of a library which need not be installed."""
    return type(name, (), {"__module__": module, "__array__": lambda self, *a, **k: np.ones(2)})()


@pytest.mark.parametrize(
    "module, name, words",
    [
        ("pint", "Quantity", "pint Quantity, which has a unit.*q.magnitude"),
        ("astropy.units.quantity", "Quantity", "astropy Quantity, which has a unit.*q.value"),
        ("polars.series.series", "Series", "polars Series.*to_numpy"),
        ("torch", "Tensor", "torch Tensor.*from_torch"),
        ("jaxlib._jax", "ArrayImpl", "jaxlib Array.*from_jax"),
    ],
)
def test_values_of_other_libraries_are_refused_with_what_to_pass(module, name, words):
    for transform in (tg.grad, tg.value_and_grad, tg.jacobian):
        with pytest.raises(TypeError, match=words):
            transform(lambda x: np.sum(x * 2))(stand_in(module, name))


@pytest.mark.parametrize(
    "module, name, words",
    [
        ("polars.series.series", "Series", "polars Series.*to_numpy"),
        ("torch", "Tensor", "torch Tensor.*from_torch"),
        ("jaxlib._jax", "ArrayImpl", "jaxlib Array.*from_jax"),
    ],
)
def test_values_of_other_libraries_are_named_wherever_they_meet_a_tensor(module, name, words):
    theirs, t = stand_in(module, name), tg.tensor([1.0, 2.0], requires_grad=True)
    for met in (
        lambda: t * theirs,
        lambda: theirs - t,
        lambda: t @ theirs,
        lambda: t.detach() + theirs,
    ):
        with pytest.raises(TypeError, match=f"given a tensor and a {words}"):
            met()
    with pytest.raises(TypeError, match=f"a compiled function was given a {words}"):
        tg.compile(np.sum)(theirs)
    for transform in (tg.grad, tg.jacobian):
        with pytest.raises(TypeError, match=f"f returned a {words}"):
            transform(lambda x: theirs)(1.0)


def test_an_error_of_another_library_about_a_tensor_says_what_to_pass():
    theirs: dict[str, object] = {"__name__": "polars.series.series"}
    exec("def multiplied(w): raise TypeError('cannot convert a Tensor to Float64')", theirs)
    with pytest.raises(TypeError, match="cannot convert") as told:
        tg.grad(theirs["multiplied"])(1.0)
    assert "polars takes no tensors of tapegrad" in told.value.__notes__[0]


def test_ufuncs_that_numba_compiled_say_what_to_write():
    import numba

    square = lambda x: x * x  # noqa: E731
    made = numba.vectorize(square), np.frompyfunc(square, 1, 1)
    for f in made:
        with pytest.raises(tg.NotDifferentiable, match="compiled ufunc.*Leave the decorator out"):
            tg.grad(lambda x, f=f: np.sum(f(x)))(np.ones(3))
    np.testing.assert_array_equal(tg.grad(lambda x: np.sum(square(x)))(np.ones(3)), [2.0] * 3)


def test_fits_take_arrays_of_other_libraries_and_refuse_units_and_times():
    """A fit of quantities with units returned its start, with infinite errors."""
    x = np.linspace(0, 1, 5)
    line = lambda x, a: a * x  # noqa: E731
    theirs = stand_in("polars.series.series", "Series")
    type(theirs).__array__ = lambda self, dtype=None, copy=None: x
    np.testing.assert_allclose(tg.curve_fit(line, theirs, theirs)[0], [1.0])
    quantity = stand_in("pint", "Quantity")
    for fit in (
        lambda: tg.curve_fit(line, quantity, x),
        lambda: tg.curve_fit(line, x, quantity),
        lambda: tg.minimize(lambda x: np.sum(x), quantity),
        lambda: tg.least_squares(lambda x: quantity, x),
    ):
        with pytest.raises(TypeError, match="pint Quantity, which has a unit.*pass q.magnitude"):
            fit()
    with pytest.raises(TypeError, match="given as times.*pass seconds"):
        tg.curve_fit(line, StandInForTimes(), x)


class StandInForTimes:
    dtype = np.dtype("datetime64[ns]")


def test_pandas_and_pictures_say_detach():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(np.ones((3, 2)))
    w = tg.tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(tg.GradientLost, match=r"df.to_numpy\(\) @ w"):
        frame @ w
    np.testing.assert_array_equal(tg.grad(lambda w: np.sum(frame.to_numpy() @ w))(w.detach()), [3.0, 3.0])  # fmt: skip
    pyplot = pytest.importorskip("matplotlib.pyplot")
    for t in (w, w * 2):
        with pytest.raises(tg.GradientLost, match=r"give it t.detach\(\)"):
            pyplot.plot(t)
    pyplot.close("all")


def test_names_of_other_libraries_have_hints():
    t = tg.tensor([1.0])
    with pytest.raises(AttributeError, match=r"x.clone\(\)"):
        t.at  # noqa: B018
    with pytest.raises(AttributeError, match="no GPU"):
        t.cuda()
    assert not hasattr(t, "at")
    with pytest.raises(AttributeError, match="no layers"):
        tg.nn  # noqa: B018
    with pytest.raises(AttributeError, match="state_dict"):
        tg.load  # noqa: B018


def test_gradients_in_threads_are_arrays():
    def gradient(scale):
        return tg.grad(lambda z: np.sum(z**2 * scale))(np.ones(2))

    def outer(y):
        with ThreadPoolExecutor(2) as pool:
            found = list(pool.map(gradient, [1.0, 2.0]))
        assert [type(g) for g in found] == [np.ndarray, np.ndarray]
        return np.sum(y**2) * found[1][0]

    with ThreadPoolExecutor(2) as pool:
        assert all(type(g) is np.ndarray for g in pool.map(gradient, [1.0, 2.0, 3.0]))
    np.testing.assert_array_equal(tg.grad(outer)(np.ones(2)), [8.0, 8.0])


# ---------------------------------------------------------------------------------------- native functions


def square(x):
    return x * x


@pytest.mark.parametrize(
    "signature",
    [
        "float64(float64)",
        numba.float64(numba.float64),
        (numba.float64,),
        ["float64(float64)", "float32(float32)"],
    ],
    ids=["text", "signature", "types", "list"],
)
def test_signatures_compile_at_once_and_alone(signature):
    f = tg.njit(signature)(square)
    assert len(f.signatures) == (2 if isinstance(signature, list) else 1)
    assert f(3.0) == 9.0 and tg.grad(f)(3.0) == 6.0
    with pytest.raises(TypeError, match="No matching definition"):
        f(np.ones(2))


def test_what_is_neither_function_nor_signature_is_refused():
    with pytest.raises(TypeError, match="empty list"):
        tg.njit([])
    with pytest.raises(TypeError, match="no Python function"):
        tg.njit(3)


def test_numbas_ways_to_look_inside(capsys):
    f = tg.njit(square)
    f(2.0)
    assert [str(s) for s in f.signatures] == ["(float64,)"] and len(f.overloads) == 1
    f.inspect_types()
    assert "float64" in capsys.readouterr().out
    (llvm,) = f.inspect_llvm().values()
    assert "fmul double" in llvm
    assert f.stats.cache_path is None
    with pytest.raises(ValueError, match="parallel=True"):
        f.parallel_diagnostics()


FACTOR = 2.0


def test_recompiled_functions_see_globals_as_they_are(monkeypatch):
    @tg.njit
    def f(x):
        return FACTOR * x * x

    assert (f(3.0), tg.grad(f)(3.0)) == (18.0, 12.0)
    monkeypatch.setattr(sys.modules[__name__], "FACTOR", 5.0)
    f.recompile()
    assert (f(3.0), tg.grad(f)(3.0)) == (45.0, 30.0)


# ------------------------------------------------------------------------------------------------ small fits


def test_a_fit_without_bounds_is_scipys():
    t = np.linspace(0, 4, 200)
    y = 2.5 * np.exp(-1.3 * t) + 0.5 + 0.01 * np.sin(50 * t)

    def model(t, a, k, c):
        return a * np.exp(-k * t) + c

    ours, theirs = (c.curve_fit(model, t, y, [1.0, 1.0, 1.0]) for c in (tg, scipy.optimize))
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-6)
    np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-5)


def test_a_fit_of_fewer_data_than_parameters_goes_another_way():
    """MINPACK refuses it; the trust-region method, which has bounds as well, does not."""
    t = np.array([1.0, 2.0])
    with pytest.warns(OptimizeWarning, match="no more data than parameters"):
        found, covariance = tg.curve_fit(lambda t, a, b, c: a + b * t + c * t * t, t, 3 * t, [1.0, 1.0, 1.0])  # fmt: skip
    np.testing.assert_allclose(found[0] + found[1] * t + found[2] * t * t, 3 * t, rtol=1e-6)
    assert np.isinf(covariance).all()


# ------------------------------------------------------------------------------------------ what five users stumbled over


@numba.njit
def swing(x, s):
    total = 0.0
    for i in range(x.size):
        total += np.sin(x[i]) * s
    return total


def test_labels_of_pandas_are_asked_of_an_array_with_a_note():
    pd = pytest.importorskip("pandas")
    with pytest.raises(IndexError) as lost:
        tg.grad(lambda s: s["b"] ** 2)(pd.Series({"b": 1.0}))
    assert "s.to_dict()" in lost.value.__notes__[0]
    w = tg.tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(tg.GradientLost, match=r"^pandas\.Series computes"):
        pd.Series(w)


def test_numba_functions_inside_others_say_what_to_write_and_are_checked():
    x = np.arange(3.0)
    assert tg.check_gradient(swing, x, 2.0, argnums=0).ok
    with pytest.raises(tg.NotDifferentiable, match=r"g = tg\.njit\(g\)"):
        tg.grad(lambda x: 2 * swing(x, 1.0))(x)


def test_sparse_makers_take_scipys_format_and_are_named_in_errors():
    x = np.arange(1.0, 4.0)
    a = tg.sparse.diags_array([x, 1.0], offsets=[0, 1], shape=(3, 3), format="csc")
    b = scipy.sparse.diags_array([x, 1.0], offsets=[0, 1], shape=(3, 3), format="csc")
    np.testing.assert_array_equal(a.toarray(), b.toarray())
    eye = tg.sparse.eye_array(2, format="csr")
    for made in (
        tg.sparse.hstack([eye, eye], "csr"),
        tg.sparse.vstack([eye, eye], "csr").T,
        tg.sparse.block_array([[eye, eye]], format="csc"),
        tg.sparse.kron(np.ones((1, 2)), eye, "csr"),
    ):
        np.testing.assert_array_equal(made.toarray(), np.tile(np.eye(2), (1, 2)))
    for made in (
        tg.sparse.tril(eye, format="csr"),
        tg.sparse.triu(eye, format="csr"),
        tg.sparse.block_diag([1.0, 1.0], "csr"),
    ):
        np.testing.assert_array_equal(made.toarray(), np.eye(2))
    with pytest.raises(ValueError, match="format='crs'"):
        tg.sparse.eye_array(2, format="crs")
    with pytest.raises(tg.GradientLost, match=r"write tg\.sparse\.diags_array"):
        tg.grad(lambda k: np.sum(scipy.sparse.diags([k], offsets=[0]) @ x))(x)


def test_a_fit_goes_on_from_the_saved_state_of_one_that_was_stopped():
    t = np.linspace(0, 4, 50)
    data = 2.0 * np.exp(-1.3 * t) + 0.5 + 0.01 * np.cos(40 * t)
    loss = lambda p: np.sum((p["a"] * np.exp(-p["k"] * t) + p["c"] - data) ** 2)  # noqa: E731
    start, steps = {"a": 1.0, "k": 1.0, "c": 0.0}, []

    def stop(intermediate_result):
        steps.append(intermediate_result.fun)
        if len(steps) == 5:
            raise StopIteration

    whole = tg.minimize(loss, start)
    first = pickle.loads(pickle.dumps(tg.minimize(loss, start, callback=stop)))
    rest = tg.minimize(loss, first.x, options={"hess_inv0": first.hess_inv})
    assert first.nit == 5 and rest.success and rest.nit < whole.nit
    for name in start:  # gtol leaves the gradient below 1e-5, where curvatures are about 1
        np.testing.assert_allclose(rest.x[name], whole.x[name], rtol=1e-4)


def test_full_output_of_a_curve_fit_is_scipys():
    t = np.linspace(0, 1, 10)
    line = lambda t, a, b: a * t + b  # noqa: E731
    found = tg.curve_fit(line, t, 2 * t + 1, full_output=True)
    known = scipy.optimize.curve_fit(line, t, 2 * t + 1, full_output=True)
    np.testing.assert_allclose(found[0], known[0], rtol=1e-7)
    np.testing.assert_allclose(found[2]["fvec"], 0, atol=1e-12)
    assert len(found) == len(known) and found[4] in (1, 2, 3, 4) and found[2]["nfev"] > 0


def _decay(t, a, k, c):
    return a * np.exp(-k * t) + c


T = np.linspace(0, 2, 30)
DECAY = _decay(T, 3.0, 0.7, 0.5) + 0.05 * np.sin(17 * T)
PLANE = np.array([T, T**2])
HOLES = np.where(np.arange(30) % 11 == 3, np.nan, 1.0)


@pytest.mark.parametrize(
    "settings",
    [
        {"bounds": ([0, 0, 0], [10, 10, 0.3])},
        {"bounds": ([0, 1.0, 0], [10, 10, 0.3]), "sigma": 0.1 + T, "absolute_sigma": True},
        {"bounds": ([0, 1.0, 0], [2, 10, 0.3])},
        {"bounds": ([2, -np.inf, -np.inf], [np.inf, 0.6, np.inf])},
        {"ydata": DECAY * HOLES, "nan_policy": "omit", "sigma": 0.1 + T},
        {"xdata": T * HOLES[::-1], "ydata": DECAY * HOLES, "nan_policy": "omit", "sigma": np.diag(0.1 + T)},
        {"xdata": PLANE * HOLES, "f": lambda x, a, b: a * x[0] + b * x[1], "nan_policy": "omit"},
        {"sigma": np.where(T > 1.9, np.inf, 1.0)},
        {"sigma": 0.3, "check_finite": False},
    ],
)  # fmt: skip
def test_curve_fit_is_scipys_at_bounds_and_with_holes_in_the_data(settings):
    """Parameters at a bound counted as known, a start of 1 lay out of bounds, and there was no `nan_policy`."""
    given = {"f": _decay, "xdata": T, "ydata": DECAY, "xtol": 1e-13, "ftol": 1e-13, "gtol": 1e-13} | settings  # fmt: skip
    found, covariance = tg.curve_fit(**given)
    known, scipys = scipy.optimize.curve_fit(**given)
    np.testing.assert_allclose(found, known, rtol=1e-6)
    np.testing.assert_allclose(covariance, scipys, rtol=1e-4)


def test_the_covariance_at_a_bound_is_differentiated_as_it_is():
    settings = {"bounds": ([0, 0, 0], [10, 10, 0.3]), "xtol": 1e-14, "ftol": 1e-14, "gtol": 1e-14}
    fitted = lambda s: tg.curve_fit(_decay, T, s * DECAY, **settings)[1]  # noqa: E731
    expected = (fitted(1 + 1e-5) - fitted(1 - 1e-5)) / 2e-5
    np.testing.assert_allclose(tg.jacobian(fitted)(1.0), expected, rtol=1e-3)
    holes = tg.grad(lambda y: tg.curve_fit(_decay, T, y, nan_policy="omit")[0][0])(DECAY * HOLES)
    assert np.isfinite(holes).all() and ((holes == 0) == np.isnan(HOLES)).all()


@pytest.mark.parametrize(
    "sigma, words",
    [
        (np.where(T > 1.9, 0.0, 1.0), "sigma with 2 of 30 numbers 0 or NaN"),
        (0.0, "infinitely much"),
        (np.ones(29), "29 numbers for 30 data"),
        (np.eye(29), "no covariance of 30 data"),
        (-np.eye(30), "positive definite"),
    ],
)
def test_what_is_no_sigma(sigma, words):
    for bounds in (None, (0, 10)):
        with pytest.raises(ValueError, match=words):
            tg.curve_fit(_decay, T, DECAY, sigma=sigma, bounds=bounds)


def test_curve_fit_has_its_own_words():
    x = np.linspace(0, 1, 20)
    found, _ = tg.curve_fit(lambda x, a, b: a * x + b, x, 2 * x + 1, maxfev=100)
    np.testing.assert_allclose(found, [2, 1])
    with pytest.raises(TypeError, match="^curve_fit was given jac"):
        tg.curve_fit(lambda x, a: a * x, x, x, jac="2-point")
    y = np.where(x > 0.9, np.nan, x)
    with pytest.raises(ValueError, match="ydata with 2 of 20 numbers NaN"):
        tg.curve_fit(lambda x, a: a * x, x, y)
    with pytest.raises(ValueError, match="choose among None, 'raise' and 'omit'"):
        tg.curve_fit(lambda x, a: a * x, x, y, nan_policy="propagate")
    with pytest.raises(ValueError, match="leaves numbers out of vectors only"):
        tg.curve_fit(lambda x, a: a * x, x[:3], y, nan_policy="omit")
    for start in ({}, {"bounds": (0, 1)}):
        with pytest.raises(ValueError, match="no parameter behind the data.*Write the parameters"):
            tg.curve_fit(lambda x: x, x, x, **start)
    with pytest.raises(ValueError, match="an empty p0.*write p0="):
        tg.curve_fit(lambda x, *p: x, x, x, p0=[])


def test_a_fit_that_finds_no_minimum_raises_as_scipys_does():
    """It returned where it was, without a word."""
    for settings in (
        {"maxfev": 3},
        {"max_nfev": 2, "bounds": (0, 20)},
        {"maxfev": 3, "full_output": True},
    ):
        with pytest.raises(RuntimeError, match="before it had found a minimum.*allow more steps"):
            tg.curve_fit(_decay, T, DECAY, [10.0, 10.0, 10.0], **settings)


def test_parameters_that_the_data_does_not_determine_are_warned_of():
    for f, count in (
        (lambda x, a, b: a * x, 5),
        (lambda x, a, b: a * b * x, 5),
        (lambda x, a, b: a * x + b, 1),
    ):
        x = np.arange(1.0, 1.0 + count)
        with pytest.warns(
            OptimizeWarning, match="does not determine each of them.*Leave parameters out"
        ):
            assert not np.isfinite(tg.curve_fit(f, x, x, bounds=(-9, 9))[1]).all()


def test_a_start_is_a_number_for_each_parameter():
    with pytest.raises(TypeError, match="p0 with 1 number, but _decay has 3 parameters"):
        tg.curve_fit(_decay, T, DECAY, p0=[1.0])
    with pytest.raises(TypeError, match="a dict as p0.*tg.least_squares fits dicts"):
        tg.curve_fit(_decay, T, DECAY, p0={"a": 1.0, "k": 1.0})
    fitted = tg.curve_fit(lambda t, a, k, c=0.0: a * np.exp(-k * t) + c, T, DECAY, p0=[1.0, 1.0])
    assert fitted[0].shape == (2,)


def test_what_a_model_asks_of_numpy_is_not_laid_at_scipys_door():
    with pytest.raises(tg.GradientLost, match="^np.asarray") as told:
        tg.curve_fit(np.vectorize(lambda x, a: a * x), T, T, [1.0])
    assert "leastsq" not in str(told.value)


@pytest.mark.parametrize("transform", [tg.grad, tg.value_and_grad, tg.jacobian, tg.hessian])
def test_a_point_in_place_of_argnums_is_told_at_once(transform):
    for point in (3.0, np.ones(2), [1.0, 2.0]):
        with pytest.raises(TypeError, match=rf"{transform.__name__}\(f\)\(x\)"):
            transform(lambda x: np.sum(x), point)


@pytest.mark.parametrize("of", [lambda f: f, tg.compile], ids=["plain", "compiled"])
def test_a_model_has_a_value_for_each_datum(of):
    """A column less a row is a table: a fit of that found a slope of 0 without a word, where SciPy raises."""
    x = np.linspace(0, 1, 5)
    y, column = 2 * x + 1, (2 * x + 1)[:, None]
    for f, data in (
        (lambda x, a, b: (a * x + b)[:, None], y),
        (lambda x, a, b: a * x + b, column),
        (lambda x, a, b: (a * x + b)[1:], y),
    ):
        with pytest.raises(ValueError, match="a value for each datum. Return values of ydata's"):
            tg.curve_fit(of(f), x, data)
    for f, data in (
        (lambda x, a, b: [a * v + b for v in x], y),
        (lambda x, a, b: (a * x + b)[:, None], column),
    ):
        np.testing.assert_allclose(tg.curve_fit(of(f), x, data)[0], [2, 1])
    np.testing.assert_allclose(tg.curve_fit(of(lambda x, a: a), x, y)[0], [np.mean(y)])
    with pytest.raises(TypeError, match="returned None. Does it end with a return"):
        tg.curve_fit(of(lambda x, a: None), x, y)


def test_a_report_says_a_guard_once():
    def f(x):
        return sum(v for v in x if v > 0)

    compiled = tg.compile(f)
    compiled(np.array([1.0, -1.0, 2.0]))
    assert len(compiled.report().guards) == 1


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("diags", "tg.sparse.diags_array"),
        ("csr_matrix", "tg.sparse.csr_array"),
        ("spsolve", "tg.sparse.linalg.spsolve"),
        ("lil_matrix", "tg.sparse.coo_array"),
    ],
)
def test_names_of_scipys_sparse_matrices_say_what_to_write(name, instead):
    with pytest.raises(AttributeError, match=instead):
        getattr(tg.sparse, name)
    assert not hasattr(tg.sparse, "nonsense")


def test_parameters_in_a_series_have_its_labels():
    pd = pytest.importorskip("pandas")
    x = np.linspace(0, 1, 5)
    start = pd.Series({"slope": 0.0, "height": 0.0})
    fit = tg.least_squares(lambda p: p[0] * x + p[1] - (2 * x + 1), start)
    assert fit.names == ["slope", "height"]


def test_a_compiled_function_that_reads_a_table_says_to_take_the_numbers_out():
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame({"x": np.arange(3.0)})
    with pytest.raises(tg.TraceError, match="DataFrame of pandas"):
        tg.compile(lambda w: np.sum(table.x.to_numpy() * w))(2.0)


def test_methods_of_pandas_say_what_to_write():
    with pytest.raises(AttributeError, match="sliding_window_view"):
        tg.ones(3).rolling(2)


def test_object_mode_is_refused():
    @tg.njit
    def f(x):
        with numba.objmode(y="float64"):
            y = float(np.sin(x))
        return y * x

    with pytest.raises(tg.NotDifferentiable, match="Object mode"):
        tg.grad(f)(1.0)
