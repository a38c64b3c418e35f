"""Functions of `scipy.special` in Numba loops: SciPy's values to the last bit, and the derivatives of their declarations."""

import subprocess
import sys

import numba
import numpy as np
import pytest
from scipy import special
from scipy.special import gammaln, xlogy

import tapegrad as tg
from tapegrad.errors import NotDifferentiable

X = np.array([0.31, 0.62, 0.83])


@numba.njit
def helper(v, w):
    return special.betaln(v + 1.0, w) * special.ndtr(v)


def likelihood(x):
    """A sum over functions of one and two numbers, under the module's name and their own, here and in a helper."""
    s = 0.0
    for v in x:
        s += gammaln(v + 1.0) * v - special.j0(v) * special.i1(v) + xlogy(v, 2.0)
        s += special.erfinv(v / 2) * special.expit(v) + special.gamma(v + 0.5)
    return s + helper(x[0], x[1]) + special.psi(x[2]) * special.loggamma(x[1])


def on_the_tape(x):
    s = 0.0
    for v in x:
        s += gammaln(v + 1.0) * v - special.j0(v) * special.i1(v) + xlogy(v, 2.0)
        s += special.erfinv(v / 2) * special.expit(v) + special.gamma(v + 0.5)
    s += special.betaln(x[0] + 1.0, x[1]) * special.ndtr(x[0])
    return s + special.psi(x[2]) * special.loggamma(x[1])


@pytest.mark.long
def test_values_are_scipys():
    assert tg.njit(likelihood)(X) == on_the_tape(X)


@pytest.mark.long
@pytest.mark.parametrize("mode", ["adjoint", "overload"])
def test_gradients_are_those_of_the_tape(mode):
    native = tg.njit(likelihood, mode=mode)
    expected = tg.grad(on_the_tape)(X)
    assert np.allclose(tg.grad(native)(X.copy()), expected, rtol=1e-13)
    along = np.array([0.3, -0.4, 0.7])
    assert np.isclose(tg.jvp(native, (X.copy(),), (along,))[1], expected @ along, rtol=1e-12)


def counts(x):
    """A negative binomial likelihood."""
    s = 0.0
    for k in range(5):
        s += gammaln(k + x[0]) - gammaln(x[0]) + k * np.log(x[1])
    return s - special.i0(x[2])


def test_only_generated_code_is_left_on_disk(tmp_path, monkeypatch):
    """It calls functions by name; the user's own holds addresses."""
    monkeypatch.setenv("TAPEGRAD_CACHE_DIR", str(tmp_path))
    f = tg.njit(counts, mode="adjoint")
    f(X.copy())
    assert not [*tmp_path.rglob("code_*")]
    tg.grad(f)(X.copy())
    assert [*tmp_path.rglob("code_*")]


@pytest.mark.long
def test_second_derivatives():
    assert np.allclose(tg.hessian(tg.njit(counts))(X.copy()), tg.hessian(counts)(X), rtol=1e-12)


def of_order(x):
    return special.jv(x[0], x[1])


def with_orders(x):
    """Parameters that are no derivative's, and partials that helpers compute."""
    s = special.jv(1.5, x[0]) * special.kv(2.0, x[1]) + special.gammainc(2.5, x[2])
    s += special.betainc(2.0, 3.0, x[0]) * special.hyp2f1(0.5, 1.5, 2.5, x[1] / 2)
    s += special.stdtr(3.0, x[0]) * special.erfcx(x[1]) + special.ive(1.0, x[2])
    return s + special.dawsn(x[0]) * special.struve(1.0, x[1])


@pytest.mark.long
@pytest.mark.parametrize("mode", ["adjoint", "overload"])
def test_parameters(mode):
    native = tg.njit(with_orders, mode=mode)
    assert np.allclose(tg.grad(native)(X.copy()), tg.grad(with_orders)(X), rtol=1e-12)


def of_arrays(x):
    return np.sum(special.expit(x))


@pytest.mark.long
def test_what_is_refused():
    with pytest.raises(
        NotDifferentiable, match=r"special\.jv of a differentiated value has no derivative rule"
    ):
        tg.grad(tg.njit(of_order, mode="adjoint"))(X.copy())
    with pytest.raises(NotDifferentiable, match="jv"):
        tg.grad(tg.njit(of_order, mode="overload"))(X.copy())
    with pytest.raises(NotDifferentiable, match="expit"):
        tg.grad(tg.njit(of_arrays))(X.copy())


@pytest.mark.long
def test_functions_within_functions():
    """Names that are not bound yet when the decorator runs, and names in local functions."""

    @tg.njit
    def powers(x, n):
        if n == 0:
            return 1.0
        return x * powers(x, n - 1)

    assert np.isclose(tg.grad(powers)(2.0, 3), 12.0)

    @tg.njit
    def nested(x):
        def inner(v):
            return special.erf(v) * 2.0

        return inner(x) + inner(x * x)

    expected = tg.grad(lambda x: special.erf(x) * 2.0 + special.erf(x * x) * 2.0)(0.4)
    assert np.isclose(tg.grad(nested)(0.4), expected, rtol=1e-14)


@pytest.mark.long
def test_nothing_of_scipy_is_loaded_for_programs_without_it(tmp_path):
    script = tmp_path / "square.py"
    script.write_text(
        "import sys, numba, tapegrad as tg\n"
        "@tg.njit\n"
        "def f(x): return x * x\n"
        "assert tg.grad(f)(2.0) == 4.0\n"
        "assert 'scipy.special' not in sys.modules and 'tapegrad.special' not in sys.modules\n"
    )
    subprocess.run([sys.executable, script], check=True)
