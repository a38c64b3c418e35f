"""tg.stats of samples: SciPy's values over its arguments, and derivatives in every mode."""

import numpy as np
import pytest
import scipy.stats

import tapegrad as tg
from tests.slopes import agree

OURS, THEIRS = tg.stats, scipy.stats
DRAWS = np.random.default_rng(17)
A, B = DRAWS.normal(size=(9, 2, 3)), DRAWS.normal(size=(9, 2, 3)) + 0.5
P, Q = np.exp(A), np.exp(B)
V, W = A[:, 0, 0], np.exp(B[:, 0, 0])
ONE = [
    {},
    {"axis": 1},
    {"axis": (0, 2)},
    {"axis": None},
    {"keepdims": True},
    {"axis": -1, "keepdims": True},
]
ALL = [{}, {"axis": None}, {"axis": (0, 2), "keepdims": True}]
ONE_AXIS = [{}, {"axis": 1}, {"axis": None}]
CASES = {
    "gmean": ((P,), [*ONE, {"weights": Q}, {"weights": Q[:, :1]}, {"dtype": np.float32}, {}]),
    "hmean": ((P,), [*ONE, {"weights": Q}]),
    "pmean": ((P, 1.5), [*ONE, {"weights": Q}]),
    "gstd": ((P,), [*ONE, {"ddof": 0}]),
    "sem": ((A,), [*ONE, {"ddof": 0}]),
    "variation": ((P,), [*ONE, {"ddof": 1}]),
    "moment": ((A, 3), [*ONE, {"center": 0.5}]),
    "skew": ((A,), [*ONE, {"bias": False}]),
    "kurtosis": ((A,), [*ONE, {"bias": False}, {"fisher": False}]),
    "kstat": ((A, 3), ALL),
    "kstatvar": ((A, 2), ALL),
    "describe": ((A,), [*ONE_AXIS, {"ddof": 0, "bias": False}]),
    "zmap": ((A, B), ONE_AXIS),
    "zscore": ((A,), [*ONE_AXIS, {"ddof": 1}]),
    "gzscore": ((P,), ONE_AXIS),
    "boxcox": ((W, 0.7), [{}]),
    "yeojohnson": ((V, 0.7), [{}]),
    "boxcox_llf": ((0.7, P), [*ONE[:2], {"keepdims": True}]),
    "yeojohnson_llf": ((0.7, A), [*ONE[:2], {"keepdims": True}]),
    "trim_mean": ((A, 0.2), ONE),
    "median_abs_deviation": ((A,), [*ONE, {"scale": "normal"}, {"center": np.mean}]),
    "iqr": ((A,), [*ONE, {"scale": "normal"}, {"rng": (10, 80)}, {"interpolation": "midpoint"}]),
    "tmean": ((A, (-0.8, 0.9)), [*ONE, {"inclusive": (False, False)}]),
    "tvar": ((A, (-2.5, None)), ONE),
    "tstd": ((A, (None, 2.0)), ONE),
    "tsem": ((A, (-2.5, 2.0)), ONE),
    "expectile": ((V, 0.3), [{}, {"weights": W}]),
    "circmean": ((A,), [*ONE, {"high": 2.0, "low": -1.0}]),
    "circvar": ((A,), [*ONE, {"high": 2.0, "low": -1.0}]),
    "circstd": ((A,), [*ONE, {"high": 2.0, "low": -1.0}, {"normalize": True}]),
    "entropy": ((P, Q), [*ONE, {"base": 2.0}]),
    "differential_entropy": ((A,), [{}, {"axis": None}, *({"method": m, "window_length": 2} for m in ("vasicek", "van es", "ebrahimi", "correa"))]),
    "wasserstein_distance": ((V, W), [{}, {"u_weights": W, "v_weights": W[::-1]}]),
    "energy_distance": ((V, W), [{}, {"u_weights": W, "v_weights": W[::-1]}]),
    "ttest_1samp": ((A, 0.3), [*ONE, {"alternative": "less"}]),
    "ttest_rel": ((A, B), [*ONE[:2], {"alternative": "greater"}]),
    "ttest_ind": ((A, B[:7]), [{}, {"axis": None}, {"equal_var": False}, {"alternative": "less"}, {"keepdims": True}]),
    "ttest_ind_from_stats": ((0.3, 1.0, 5, np.array([1.0, 0.2]), 2.0, 7), [{}, {"equal_var": False}]),
    "f_oneway": ((A, B[:7], P), [{}, {"axis": None}]),
    "power_divergence": ((P,), [*ONE, *({"lambda_": name} for name in ("log-likelihood", "freeman-tukey", "mod-log-likelihood", "neyman", "cressie-read"))]),
    "chisquare": ((P, P.mean(0, keepdims=True) + 0 * P), [{"axis": 0, "ddof": 1}]),
    "skewtest": ((A,), [{}, {"axis": None}, {"alternative": "less"}]),
    "kurtosistest": ((A,), [{}, {"axis": None}, {"alternative": "greater"}]),
    "normaltest": ((A,), [{}, {"axis": None}]),
    "jarque_bera": ((A,), ONE[:2]),
    "pearsonr": ((A, B), [{}, {"axis": None}, {"alternative": "less"}, {"alternative": "greater"}]),
    "linregress": ((V, W), [{}, {"alternative": "less"}]),
}  # fmt: skip


def parts(found):
    """The results as flat pieces."""
    if isinstance(found, tuple | list):
        return [piece for part in found for piece in parts(part)]
    return [found.numpy() if isinstance(found, tg.Tensor) else found]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings(
    "ignore::RuntimeWarning", "ignore::scipy.stats._axis_nan_policy.SmallSampleWarning"
)
def test_values_are_scipys(name):
    args, calls = CASES[name]
    ours, theirs = getattr(OURS, name), getattr(THEIRS, name)
    tracked = [tg.tensor(a) if isinstance(a, np.ndarray) else a for a in args]
    if isinstance(args[0], float):
        tracked[0] = tg.tensor(args[0])
    for settings in calls:
        expected = theirs(*args, **settings)
        expected = (
            tuple(expected)
            if isinstance(expected, tuple)
            else (expected.statistic, expected.pvalue)
            if hasattr(expected, "pvalue")
            else expected
        )
        found = ours(*tracked, **settings)
        if name.startswith("ttest") and len(found) == 3:
            found = found[:2]
        for one, other in zip(parts(found), parts(expected), strict=True):
            assert np.shape(one) == np.shape(other), settings
            np.testing.assert_allclose(
                one, other, 1e-6 if "dtype" in settings else 1e-10, 1e-13, err_msg=str(settings)
            )
        plain = ours(*args, **settings)
        np.testing.assert_array_equal(
            parts(getattr(plain, "statistic", plain))[0],
            parts(getattr(expected, "statistic", expected))[0],
        )


@pytest.mark.parametrize("name", CASES)
def test_derivatives(name, rng):
    args, calls = CASES[name]
    f = getattr(OURS, name)
    short = tuple(a[:, 0] if np.ndim(a) == 3 else a for a in args)
    places = [i for i, a in enumerate(short) if isinstance(a, float | np.ndarray)]
    if name in ("trim_mean", "moment", "kstat", "kstatvar"):
        places = [0]
    if name == "chisquare":
        places = [0]
    fixed = dict(calls[-1]) if "weights" not in calls[-1] else {}
    if "axis" in fixed and fixed["axis"] not in (None, 0):
        fixed = {}

    def flat(*xs):
        full = list(short)
        for i, x in zip(places, xs, strict=True):
            full[i] = x
        if name == "chisquare":
            full[1] = np.mean(full[0], axis=0) + 0 * full[0]
        found = f(*full, **fixed)
        found = (found.statistic, found.pvalue) if name.startswith("ttest") else found
        found = found[1:] if name == "describe" else found
        found = found if isinstance(found, tuple) else (found,)
        found = [
            p
            for part in found
            for p in (part if isinstance(part, tuple) else (part,))
            if not isinstance(p, int) and p is not None
        ]
        return np.concatenate([np.ravel(p) for p in found])

    agree(
        flat,
        tuple(short[i] for i in places),
        rng,
        second=name not in ("iqr",),
        rtol=1e-6,
        compiled=name in COMPILED,
    )


COMPILED = ["skew", "trim_mean", "tvar", "wasserstein_distance", "linregress", "expectile"]  # fmt: skip


def test_weights_and_dimensions():
    assert tg.stats.gmean(tg.tensor(P), axis=1, weights=tg.tensor(Q)).shape == (9, 3)
    found = OURS.linregress(tg.tensor(V), W)
    slope, *_, error = found
    expected = THEIRS.linregress(V, W)
    np.testing.assert_allclose(
        [slope.item(), error.item(), found.intercept_stderr.item()],
        [expected.slope, expected.stderr, expected.intercept_stderr],
    )


def test_a_sample_with_nan_has_none():
    x = np.array([[1.0, np.nan, 2.0, 3.0, 5.0], [1.0, 4.0, 2.0, 3.0, 5.0]])
    for name, more in (
        ("trim_mean", (0.2,)),
        ("gmean", ()),
        ("iqr", ()),
        ("tmean", ((0, 9),)),
        ("differential_entropy", ()),
    ):
        found = getattr(OURS, name)(tg.tensor(x), *more, axis=1).numpy()
        np.testing.assert_allclose(
            found, getattr(THEIRS, name)(x, *more, axis=1), 1e-12, err_msg=name
        )


@pytest.mark.parametrize(
    ("call", "kind", "told"),
    [
        (lambda x: OURS.skew(x, nan_policy="omit"), tg.NotDifferentiable, "Take them out before"),
        (lambda x: OURS.skew(x, nan_policy="some"), ValueError, "nan_policy must be one of"),
        (lambda x: OURS.boxcox(x), tg.NotDifferentiable, "minimize_scalar"),
        (lambda x: OURS.pmean(x, np.inf), ValueError, "one finite number"),
        (lambda x: OURS.ttest_ind(x, x, trim=0.1), tg.NotDifferentiable, "Student's and Welch's"),
        (lambda x: OURS.pearsonr(x, x, method="exact"), tg.NotDifferentiable, "resampling"),
        (lambda x: OURS.linregress(x[:2], x[:2]), ValueError, "3 or more"),
        (lambda x: OURS.f_oneway(x), TypeError, "at least two"),
        (lambda x: OURS.trim_mean(x, 0.7), ValueError, "too big"),
        (lambda x: OURS.tmean(x, (9, 10)), ValueError, "within given limits"),
        (lambda x: OURS.wasserstein_distance(x, x[:0]), ValueError, "empty"),
        (lambda x: OURS.wasserstein_distance(x, x, x[:2]), ValueError, "same size"),
        (lambda x: OURS.power_divergence(x, x + 1.0), ValueError, "scale f_exp"),
        (lambda x: OURS.skewtest(x), ValueError, "at least 8"),
        (lambda x: OURS.differential_entropy(x, window_length=9), ValueError, "Window length"),
        (lambda x: OURS.ttest_1samp(x, 0.0, alternative="more"), ValueError, "alternative"),
    ],
)  # fmt: skip
def test_errors(call, kind, told):
    with pytest.raises(kind, match=told):
        call(tg.tensor([1.0, 2.0, 4.0], requires_grad=True))


def test_negative_samples_of_a_harmonic_mean_warn():
    with pytest.warns(RuntimeWarning, match="harmonic mean"):
        assert np.isnan(OURS.hmean(tg.tensor([1.0, -2.0])).item())


@pytest.mark.long
def test_the_exponent_of_largest_likelihood_is_differentiable():
    def exponent(x):
        return tg.optimize.minimize_scalar(
            lambda e: -tg.stats.boxcox_llf(e, x), bracket=(0.0, 1.0), tol=1e-12
        ).x

    np.testing.assert_allclose(exponent(W), scipy.stats.boxcox_normmax(W, method="mle"), 1e-6)
    along = np.cos(np.arange(9.0))
    one, two = ((exponent(W + h * along) - exponent(W - h * along)) / (2 * h) for h in (1e-2, 2e-2))
    np.testing.assert_allclose(np.sum(tg.grad(exponent)(W) * along), (4 * one - two) / 3, 1e-4)


@pytest.mark.parametrize("f", [
    OURS.skew, OURS.kurtosis, OURS.sem, OURS.tvar, OURS.tstd, OURS.tsem,
    lambda x: np.var(x, ddof=1), lambda x: np.std(x, ddof=1), lambda x: np.sum(np.cov(x)), lambda x: np.sum(np.corrcoef(x, x)),
])  # fmt: skip
@pytest.mark.filterwarnings("ignore:Degrees of freedom")
def test_statistics_that_one_sample_does_not_have_have_no_slope(f):
    """A quotient of zeros: forward mode said 0, and corrcoef did in both."""
    one = np.array([2.0])
    with np.errstate(all="ignore"):
        slopes = [
            tg.grad(f)(one),
            tg.jacobian(f, mode="forward")(one),
            tg.jvp(f, (one,), (one,))[1],
        ]
    assert np.all(np.isnan(np.hstack(slopes)))


@pytest.mark.filterwarnings("ignore")
def test_statistics_of_no_sample_are_no_numbers():
    for shape in ((0,), (0, 3)):
        x = np.zeros(shape)
        for f in (
            lambda v: np.var(v, axis=0, ddof=1), lambda v: np.std(v, axis=0, ddof=1),
            OURS.gmean, OURS.hmean, lambda v: OURS.pmean(v, -2.0), lambda v: OURS.pmean(v, 2.0),
        ):  # fmt: skip
            value, gradient = tg.value_and_grad(lambda v, f=f: np.sum(f(v)))(x)
            assert np.isnan(value) and gradient.shape == shape


def test_deviations_of_equal_samples_have_the_slope_of_std():
    for f in (OURS.tstd, OURS.tsem):
        np.testing.assert_array_equal(tg.grad(f)(np.full(3, 2.0)), np.zeros(3))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("equal_var", [True, False])
def test_two_means_of_few_samples(equal_var):
    """One number adds nothing to the common variance; Python's numbers of samples raised where they are 0."""
    for x, y in (([], [3.0]), ([1.0, 2.0], []), ([1.0], [2.0]), ([1.0, 2.0], [3.0])):
        x = np.array(x)
        expected = scipy.stats.ttest_ind(x, y, equal_var=equal_var)
        found = OURS.ttest_ind(tg.tensor(x), y, equal_var=equal_var)
        np.testing.assert_allclose([found.statistic.item(), found.pvalue.item()], expected)
    if equal_var:
        f = lambda x: OURS.ttest_ind(x, [3.0]).statistic  # noqa: E731
        assert tg.check_gradient(f, np.array([1.0, 2.0])).ok
