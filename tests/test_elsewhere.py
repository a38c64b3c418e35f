"""Names of other libraries: what a user who types them is told."""

import importlib
import re
import subprocess
import sys

import numpy as np
import pytest
from scipy import fft, integrate, interpolate, linalg, optimize, signal, special, stats

import tapegrad as tg
from tapegrad.core.elsewhere import CONSTANTS, INSTEAD, PLACES, told
from tapegrad.core.primitive import FUNCTIONS


@pytest.mark.parametrize("name", INSTEAD)
def test_what_is_named_instead_exists_and_the_name_does_not(name):
    of = getattr(np, name, None)
    if of in FUNCTIONS:  # an older NumPy has it yet (trapz, before 2.4), and then so has tg
        assert getattr(tg, name) is FUNCTIONS[of]
        return
    with pytest.raises(AttributeError, match=f"{name}.*: {re.escape(INSTEAD[name])}"):
        getattr(tg, name)
    for path in re.findall(r"tg((?:\.[A-Za-z_]\w*)+)", INSTEAD[name]):
        value = tg
        for part in path[1:].split("."):
            value = getattr(value, part)
    assert not hasattr(tg, name) and name not in dir(tg)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("erf", "write tg.special.erf"),
        ("softmax", "write tg.special.softmax"),
        ("Function", "write tg.autograd.Function"),
        ("solve", "write tg.linalg.solve"),
        ("Adam", "write tg.optim.Adam"),
        ("StepLR", "write tg.optim.lr_scheduler.StepLR"),
        ("gradcheck", "write tg.autograd.gradcheck"),
        ("masked_fill", "it is a method: write t.masked_fill(...)"),
        ("sin_", "it is a method: write t.sin_(...)"),
        ("data", "it is of tensors: write t.data"),
        ("minimise", "did you mean tg.minimize?"),
        ("value_and_grads", "did you mean tg.value_and_grad"),
        ("qqqq", ""),
        ("_private", ""),
        ("np", ""),
        ("sys", ""),
        ("vecmath", ""),
    ],
)
def test_names_from_inside_and_slips(name, words):
    assert told(name, dir(tg)).startswith(words) and bool(told(name, dir(tg))) == bool(words)


def test_attributes_of_other_libraries_say_what_to_write():
    """Each name of the table is refused with what to write, which exists, and is not offered by `dir`."""
    from tapegrad.face.methods import _ELSEWHERE

    t = tg.tensor([[3.0, 1.0], [2.0, 5.0]])
    for name, instead in _ELSEWHERE.items():
        with pytest.raises(AttributeError, match=re.escape(f"{name!r}: {instead}")):
            getattr(t, name)
        assert not hasattr(t, name) and name not in dir(t)
        for of, path in re.findall(r"\b(tg|t)((?:\.[A-Za-z_]\w*)+)", instead):
            value = {"t": t, "tg": tg}[of]
            for part in path[1:].split("."):
                value = getattr(value, part)
                value = value() if part in ("detach", "numpy") else value


def test_size_is_a_number_and_other_habits_are_answered(tmp_path):
    t = tg.ones((2, 3))
    assert t.size == 6 and type(t.size) is int
    assert np.zeros(t.size).shape == (6,) and tg.zeros(t.size).shape == (6,)
    assert tg.compile(lambda x: np.sum(x) / x.size)(np.ones(4)) == 1.0
    with pytest.raises(TypeError, match=r"tg\.save\(file, t\)"):
        tg.save({"w": t}, "x.pt")
    tg.save(tmp_path / "x.npy", t)
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), np.ones((2, 3)))
    with pytest.raises(TypeError, match="ddof=0"):
        t.var(unbiased=False)
    assert tg.tensor([1.0], device="cpu").shape == (1,)
    with pytest.raises(ValueError, match="leave device out"):
        tg.tensor([1.0], device="cuda")


@pytest.mark.long
@pytest.mark.parametrize(
    "asked",
    [
        "hasattr(tg, '__wrapped__'); hasattr(tg, '_repr_html_')",
        # `from .. import vecmath` asks the package for the name before it imports the module.
        "hasattr(tg, 'vecmath'); tg.njit; tg.compile",
    ],
)
def test_names_that_machinery_asks_for_load_nothing(asked):
    code = f"import sys, tapegrad as tg; {asked}; print('scipy.special' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


def matrix(m):
    return np.eye(2) * m


# fmt: off
PLAIN = {
    "odeint":      (lambda k: integrate.odeint(lambda y, t: -k * y, 1.0, [0, 1])[-1, 0], "scipy.integrate.odeint .* write tg.integrate.odeint"),
    "solve_ivp":   (lambda k: integrate.solve_ivp(lambda t, y: -k * y, (0, 1), [1.0]).y[0, -1], "scipy.integrate.solve_ivp .* write tg.integrate.solve_ivp"),
    "quad":        (lambda k: integrate.quad(lambda x: x * k, 0, 1)[0], "scipy.integrate.quad .* write tg.integrate.quad"),
    "interp1d":    (lambda k: interpolate.interp1d([0.0, 1.0], [0.0, 2.0])(k), "scipy.interpolate.interp1d .* write tg.interpolate.interp1d"),
    "a spline":    (lambda k: interpolate.CubicSpline([0.0, 1.0], [k, 2.0])(0.5), "scipy.interpolate.CubicSpline .* write tg.interpolate"),
    "a density":   (lambda k: stats.norm.logpdf(0.1, k, 1.0), "scipy.stats.norm.logpdf .* write tg.stats.norm.logpdf"),
    "a rare one":  (lambda k: stats.gumbel_r.logpdf(0.1, k, 1.0), "scipy.stats.gumbel_r.logpdf .* write tg.stats.gumbel_r.logpdf"),
    "solve":       (lambda k: linalg.solve(matrix(k), np.ones(2))[0], "scipy.linalg.solve .* write tg.linalg.solve"),
    "cholesky":    (lambda k: linalg.cholesky(matrix(k))[0, 0], "scipy.linalg.cholesky .* write tg.linalg.cholesky"),
    "softmax":     (lambda k: special.softmax(k * np.ones(3))[0], "scipy.special.softmax .* write tg.special.softmax"),
    "fft":         (lambda k: abs(fft.fft(k * np.ones(3)))[0], "scipy.fft.fft .* write tg.fft.fft"),
    "brentq":      (lambda k: optimize.brentq(lambda x: x * x - k, 0, 9), "scipy.optimize.brentq"),
    "a buffer":    (lambda k: optimize.minimize(lambda x: (x[0] - k) ** 2, [0.0]).x[0], "scipy.optimize.minimize .* tg.minimize"),
}
# fmt: on


@pytest.mark.parametrize("name", PLAIN)
def test_functions_of_scipy_that_need_plain_numbers_are_named(name):
    call, words = PLAIN[name]
    with pytest.raises(tg.GradientLost, match=words):
        tg.grad(call)(0.7)


@pytest.mark.parametrize(
    "f, name",
    [
        (lambda x: np.polynomial.Polynomial(x)(0.5), "numpy.polynomial"),
        (lambda x: np.polynomial.chebyshev.chebval(0.5, x), "numpy.polynomial.chebyshev"),
        (lambda x: np.poly1d([x[0], 1.0])(0.5), "np.poly1d"),
    ],
)
def test_polynomials_of_numpys_are_named(f, name):
    with pytest.raises(tg.GradientLost, match=rf"{name}[\s\S]*np\.polyval"):
        tg.grad(f)(np.ones(3))


def test_functions_of_the_user_are_not():
    with pytest.raises(tg.GradientLost, match="np.asarray"):
        tg.grad(lambda k: np.float64(k) * 2)(0.7)


# fmt: off
SETTINGS = [
    (tg.minimize, {"maxiter": 3}, r"options=\{'maxiter': ...\}"),
    (tg.root, {"xtol": 1e-3}, r"options=\{'xtol': ...\}"),
    (tg.least_squares, {"sigma": 0.1}, "divide the residuals"),
    (tg.least_squares, {"maxiter": 3}, "max_nfev"),
    (tg.minimize, {"foo": 1}, "keyword argument 'foo'$"),
]
# fmt: on


@pytest.mark.parametrize(("solver", "setting", "words"), SETTINGS)
def test_settings_by_another_name(solver, setting, words):
    with pytest.raises(TypeError, match=words):
        solver(lambda x: x * x, 1.0, **setting)


MIRRORS = [
    "signal", "ndimage", "interpolate", "integrate", "spatial", "spatial.distance", "stats", "linalg", "special", "fft", "optimize",
]  # fmt: skip


@pytest.mark.parametrize("module", MIRRORS)
def test_a_name_of_scipys_that_is_not_here_says_why(module):
    ours, theirs = (importlib.import_module(f"{root}.{module}") for root in ("tapegrad", "scipy"))
    names = [n for n in theirs.__all__ if not hasattr(ours, n)]
    assert names
    for name in names:
        with pytest.raises(AttributeError, match=re.escape(f"scipy.{module}.{name} ")) as told_:
            getattr(ours, name)
        assert "t.detach().numpy()" in str(told_.value) or "plain numbers" in str(told_.value)
    with pytest.raises(
        AttributeError, match=f"module 'tapegrad.{module}' has no attribute 'nothing'$"
    ):
        ours.nothing  # noqa: B018


def test_reasons_name_functions_of_scipys_that_are_not_here():
    for table in (PLACES, CONSTANTS):
        for place, names in table.items():
            ours = importlib.import_module(place.replace("scipy", "tapegrad"))
            assert not [n for n in names.split() if hasattr(ours, n)]
    with pytest.raises(tg.GradientLost, match=r"finds places.*t\[places\]"):
        signal.find_peaks(tg.tensor([1.0, 3.0, 2.0], requires_grad=True))
