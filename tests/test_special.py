"""Special functions: SciPy's names; laws of what is made of several ops (of the ops themselves: tests/test_ops.py); and derivatives against mpmath where formulas fail."""

from __future__ import annotations

import inspect
import itertools
import subprocess
import sys
import warnings

import mpmath
import numpy as np
import pytest
from scipy import special

import tapegrad as tg
import tapegrad.special
from tapegrad.check import laws
from tapegrad.check.samples import samples_from
from tapegrad.core.domain import positive
from tapegrad.core.primitive import CONSTANTS, OPS, REFUSED, UFUNCS, call
from tapegrad.llvm import named
from tapegrad.ops.special.gamma import _zeta_of_numbers
from tapegrad.ops.special.incomplete import _betainc_by_shape, _gammainc_by_shape
from tapegrad.replay.kernels import obstacle

OPS_OF_SPECIAL = [
    op
    for op in OPS[1:]
    if (isinstance(op.of, np.ufunc) and getattr(np, op.of.__name__, None) is not op.of)
    or "ops.special" in getattr(op.of, "__module__", "")
    or "ops/special"
    in getattr(getattr(op.of, "__code__", None), "co_filename", "").replace("\\", "/")
]


def test_what_no_kernel_can_say():
    stops = {
        op.name: sum(bool(p.function and obstacle(p.function)) for p in op.partials)
        for op in OPS_OF_SPECIAL
    }
    by_quadrature = "gammainc gammaincc gammaincinv gammainccinv chdtr chdtrc chdtri gdtr gdtrc stdtr stdtrit zeta"
    by_quadrature += " zetac" + " riemann_zeta" * hasattr(special._ufuncs, "_riemann_zeta")
    by_two_quadratures = "betainc betaincc betaincinv betainccinv fdtr fdtrc"
    of_complex_numbers = "hankel1 hankel2 hankel1e hankel2e"
    elliptic = "elliptic_sn elliptic_cn elliptic_dn elliptic_am"
    expected = dict.fromkeys(f"{by_quadrature} {of_complex_numbers} {elliptic}".split(), 1)
    expected |= dict.fromkeys(by_two_quadratures.split(), 2) | {"voigt_profile": 3}
    assert {name: n for name, n in stops.items() if n} == expected


def _even(n):
    return n == 0 or _odd(n - 1)


def _odd(n):
    return n != 0 and _even(n - 1)


def test_rules_that_call_each_other_are_looked_through_once():
    assert obstacle(_even) == obstacle(_odd) == ""


def test_zeta_of_single_numbers_is_scipys():
    s, q = np.meshgrid(
        [1.5, 2.0, 3.0, 7.0, 30.0], [-2.5, -1.0, 0.0, 0.01, 0.7, 4.0, 30.0, 1e3, 1e8, 1e300, np.inf]
    )
    given = zip(s.ravel(), q.ravel(), strict=True)
    with np.errstate(all="ignore"):  # compiled code does not warn
        ours = np.reshape([_zeta_of_numbers(*numbers) for numbers in given], s.shape)
    np.testing.assert_allclose(ours, special.zeta(s, q), rtol=1e-13)
    assert _zeta_of_numbers(1.0, 2.0) == np.inf and np.isnan(_zeta_of_numbers(0.5, 2.0))


def test_a_symbol_names_the_signature():
    assert named.symbol_of(special.jv) == "tapegrad_special_jv_dd"
    assert named.address_of("tapegrad_special_jv_dd")
    for absent in ("tapegrad_special_jv_d", "tapegrad_special_nothing_d"):
        assert named.address_of(absent) is None
    assert named.symbol_of(special.wofz) is None  # of complex numbers
    assert named.symbol_of(special.sici) is None  # two results
    assert named.symbol_of(np.sin) is None


MADE_OF_OPS = {
    "softplus": (tg.special.softplus, [call((3,))]),
    "radian": (special.radian, [call((2,), (2,), (2,))]),
    "factorial": (lambda a: tg.special.factorial(a * a), [call((3,))]),
    "multigammaln": (lambda a: tg.special.multigammaln(2 + a * a, 3), [call((3,))]),
    "logsumexp": (lambda x, b: tg.special.logsumexp(x, 1, 3 + b), [call((2, 3), (3,))]),
    "logsumexp, sign": (
        lambda x, b: tg.special.logsumexp(x, b=b, return_sign=True)[0],
        [call((3,), (3,))],
    ),
    "polygamma": (lambda x: tg.special.polygamma(2, 1 + x * x), [call((3,))]),
    "zeta": (lambda x: tg.special.zeta(2 + x * x), [call((3,))]),
    "spherical slope": (
        lambda x: tg.special.spherical_jn(2, x, derivative=True),
        [call((3,), domains=(positive,))],
    ),
    "nrdtrisd": (special.nrdtrisd, [call((), 0.3, (2,))]),
    "ellipj": (lambda u: np.concatenate(special.ellipj(u, 0.3)), [call((3,))]),
}


@pytest.mark.parametrize("name", MADE_OF_OPS)
def test_laws_of_compositions(name):
    function, calls = MADE_OF_OPS[name]
    for sample in samples_from(function, calls):
        if sample.variant in ("", "only"):
            for law in laws.laws_of(sample):
                if law.name in ("derivative", "adjoint", "second", "broadcast"):
                    law(sample)


# ------------------------------------------------------------------------------------------------- SciPy's names


def ufuncs():
    return {
        n: f for n, f in vars(special).items() if isinstance(f, np.ufunc) and not n.startswith("_")
    }


@pytest.mark.parametrize("name", sorted(ufuncs()))
def test_a_ufunc_is_differentiable_constant_or_refused_by_name(name):
    of = ufuncs()[name]
    assert (of in UFUNCS) + (of in CONSTANTS) + (of in REFUSED) == 1
    t = tg.tensor(0.5, requires_grad=True)
    if of in UFUNCS:
        assert getattr(tg.special, name)
    elif of in REFUSED:
        with pytest.raises(tg.NotDifferentiable, match=rf"scipy\.special\.{name} was called"):
            of(*[t] * of.nin)
        with tg.no_grad(), np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about counts that are not whole
            of(*[t] * of.nin)
    else:
        assert not of(t).requires_grad


@pytest.mark.parametrize("name", ["jv", "hyp2f1", "eval_legendre", "ellipj", "expn"])
def test_parameters_without_a_derivative_are_refused_by_name(name):
    of = getattr(special, name)
    t = tg.tensor(0.5, requires_grad=True)
    with pytest.raises(tg.NotDifferentiable, match=f"{name} was given a tracked tensor as"):
        of(*[t] * of.nin)
    others = [2.0] * (of.nin - 1)
    args = [t, *others] if name == "ellipj" else [*others, t]
    out = of(*args)
    assert (out[0] if isinstance(out, tuple) else out).requires_grad


def test_scipys_functions_that_are_no_ufuncs():
    t = tg.tensor(2.5, requires_grad=True)
    for theirs, ours in (
        (special.zeta, tg.special.zeta),
        (lambda x: special.zeta(x, 0.5), lambda x: tg.special.zeta(x, 0.5)),
        (special.lambertw, tg.special.lambertw),
    ):
        a, b = theirs(t), ours(t)
        assert a.requires_grad
        assert np.allclose(a.detach(), b.detach()) and np.allclose(a.detach(), theirs(2.5))
    for theirs in (
        special.logsumexp,
        special.polygamma,
        special.multigammaln,
        special.spherical_jn,
    ):
        with pytest.raises(tg.GradientLost):
            theirs(*([t] if theirs is special.logsumexp else [1, t]))


def test_factorials_are_scipys():
    for n in (3, 3.0, -1.0, np.nan, np.float32(2.5), np.array([-1.0, -0.5, 0.0, 0.5, 3.0, 200.0])):
        ours, theirs = tg.special.factorial(n), special.factorial(n)
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
        assert np.asarray(ours).dtype == np.asarray(theirs).dtype
        np.testing.assert_array_equal(tg.special.factorial(tg.tensor(n)).numpy(), ours)
    n = np.array([-1.0, -0.5, 0.0, 0.5, 3.0])
    n = np.append(n, np.nan)
    slope = np.array([0, 0, *special.gamma(n[2:] + 1) * special.digamma(n[2:] + 1)])
    d = tg.grad(lambda n: np.sum(tg.special.factorial(n)))
    np.testing.assert_allclose(d(n), slope, rtol=1e-13)
    np.testing.assert_allclose(tg.compile(d)(n), slope, rtol=1e-13)


def test_logsumexp_is_scipys(rng):
    a, b = rng.normal(size=(3, 4)), rng.normal(size=(3, 4))
    for settings in ({}, {"axis": 0}, {"axis": 1, "keepdims": True}, {"b": b * b, "axis": 1}):
        np.testing.assert_allclose(
            tg.special.logsumexp(tg.tensor(a), **settings).numpy(), special.logsumexp(a, **settings)
        )
    for axis in (None, 0):
        ours = tg.special.logsumexp(tg.tensor(a), axis, b=b, return_sign=True)
        theirs = special.logsumexp(a, axis, b=b, return_sign=True)
        for x, y in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(np.asarray(x), y)
    for name in ("softmax", "log_softmax"):
        ours, theirs = getattr(tg.special, name), getattr(special, name)
        np.testing.assert_allclose(ours(tg.tensor(a), axis=1).numpy(), theirs(a, axis=1))
        np.testing.assert_allclose(ours(a), theirs(a))


@pytest.mark.long
def test_special_is_declared_when_it_is_first_met():
    """In a fresh process: not by `import tapegrad`, but by `tg.special`, or a tensor in a ufunc of SciPy's."""
    for line in (
        "tg.special",
        "from scipy.special import erf; erf(tg.ones(2, requires_grad=True))",
        "assert tg.compile(lambda x: tg.special.erf(x))(0.0) == 0.0",
    ):
        text = (
            "import sys, tapegrad as tg\n"
            "assert not any(m.startswith('scipy') for m in sys.modules)\n"
            "from tapegrad.core.primitive import OPS\n"
            f"before = len(OPS); {line}\n"
            "assert len(OPS) > before + 100"
        )
        subprocess.run([sys.executable, "-c", text], check=True, timeout=600)


# -------------------------------------------------------------------------------------------------- against mpmath


def grad(f, x, order=1):
    for _ in range(order):
        f = tg.grad(f)
    return float(f(x))


def mp_grad(f, x, order=1):
    with mpmath.workdps(40):
        return float(mpmath.diff(f, mpmath.mpf(x), order))


def close(got, expected, rtol=1e-13, scale=0.0):
    assert abs(got - expected) <= rtol * max(abs(expected), scale), (got, expected)


def mp_log_ndtr(x):
    return mpmath.log(mpmath.ncdf(x))


def mp_erfcx(x):
    return mpmath.exp(x * x) * mpmath.erfc(x)


def mp_dawsn(x):
    return mpmath.sqrt(mpmath.pi) / 2 * mpmath.exp(-x * x) * mpmath.erfi(x)


@pytest.mark.parametrize(
    ("ours", "theirs", "x", "rtol"),
    [
        (tg.special.erfcx, mp_erfcx, 49.0, 1e-11),
        (tg.special.erfcx, mp_erfcx, 51.0, 1e-14),
        (tg.special.dawsn, mp_dawsn, 60.0, 1e-14),
        (tg.special.log_ndtr, mp_log_ndtr, -30.0, 1e-13),
        (tg.special.log_ndtr, mp_log_ndtr, 8.0, 1e-13),
        (tg.special.expit, lambda x: 1 / (1 + mpmath.exp(-x)), 40.0, 1e-14),
        (tg.special.expit, lambda x: 1 / (1 + mpmath.exp(-x)), -700.0, 1e-13),
        (tg.special.exprel, lambda x: mpmath.expm1(x) / x, 1e-3, 1e-14),
        (tg.special.exprel, lambda x: mpmath.expm1(x) / x, 0.06, 1e-12),
        (tg.special.ellipk, mpmath.ellipk, 1e-12, 1e-14),
        (tg.special.ellipk, mpmath.ellipk, -50.0, 1e-14),
        (tg.special.ellipe, mpmath.ellipe, 0.0, 1e-14),
        (tg.special.ellipe, mpmath.ellipe, 0.999, 1e-13),
        (tg.special.rgamma, mpmath.rgamma, -3.0, 1e-14),
        (tg.special.rgamma, mpmath.rgamma, 0.0, 1e-14),
        (tg.special.gammaln, lambda x: mpmath.log(abs(mpmath.gamma(x))), 1e-8, 1e-13),
        (tg.special.j1, lambda x: mpmath.besselj(1, x), 0.0, 1e-15),
        (tg.special.i1, lambda x: mpmath.besseli(1, x), 0.0, 1e-15),
        (tg.special.zeta, mpmath.zeta, 1.01, 1e-13),
        (tg.special.zeta, mpmath.zeta, 40.0, 1e-12),
        (tg.special.zetac, mpmath.zeta, 0.5, 1e-13),
        (tg.special.zetac, mpmath.zeta, -0.9, 1e-12),
        (tg.special.zetac, mpmath.zeta, -3.0, 1e-14),
        (tg.special.zetac, mpmath.zeta, -20.0, 1e-13),
        (lambda x: tg.special.boxcox(3.0, x), lambda x: (mpmath.mpf(3) ** x - 1) / x, 1e-6, 1e-12),
        (lambda x: tg.special.inv_boxcox(0.5, x), lambda x: (1 + x / 2) ** (1 / x), 1e-4, 1e-11),
        (lambda x: tg.special.spherical_jn(1, x), lambda x: mpmath.sin(x) / x**2 - mpmath.cos(x) / x, 1e-3, 1e-13),
        (lambda x: tg.special.agm(x, 1.0), lambda x: mpmath.agm(x, 1), 1.0, 1e-14),
        (tg.special.spence, lambda x: mpmath.polylog(2, 1 - x), 0.5, 1e-14),
    ],
    ids=lambda v: f"{v}" if isinstance(v, float) else None,
)  # fmt: skip
def test_the_slope_where_the_textbook_formula_fails(ours, theirs, x, rtol):
    close(grad(ours, x), mp_grad(theirs, x), rtol)


def test_zeta_has_scipys_values_everywhere():
    x = np.array([-20.0, -3.0, -2.0, -0.5, 0.0, 0.5, 1.0, 1.5, 60.0])
    for theirs, ours in ((special.zeta, tg.special.zeta), (special.zetac, tg.special.zetac)):
        t = tg.tensor(x, requires_grad=True)
        np.testing.assert_array_equal(ours(t).detach().numpy(), theirs(x))
        np.testing.assert_array_equal(theirs(t).detach().numpy(), theirs(x))


@pytest.mark.parametrize("a", [1e-3, 0.5, 3.0, 300.0])
@pytest.mark.parametrize("ratio", [1e-3, 0.5, 0.9, 1.0, 2.0])
@pytest.mark.parametrize("order", [1, 2])
def test_gammainc_by_its_shape(a, ratio, order):
    x = a * ratio
    with mpmath.workdps(40):
        if x < a:
            expected = mp_grad(lambda t: mpmath.gammainc(t, 0, x, regularized=True), a, order)
        else:
            expected = mp_grad(lambda t: -mpmath.gammainc(t, x, mpmath.inf, regularized=True), a, order)  # fmt: skip
    density = float(np.exp(a * np.log(x) - x - special.gammaln(a)))
    close(_gammainc_by_shape(a, x, order), expected, 1e-12, density)


@pytest.mark.parametrize("a", [1e-2, 2.0, 1000.0])
@pytest.mark.parametrize("b", [0.7, 50.0])
@pytest.mark.parametrize("x", [1e-6, 0.3, 0.999])
def test_betainc_by_its_shapes(a, b, x):
    density = float(np.exp(a * np.log(x) + b * np.log1p(-x) - special.betaln(a, b)))

    def function(p, q):
        if x * (a + b) < a:
            return mpmath.betainc(p, q, 0, x, regularized=True)
        return -mpmath.betainc(q, p, 0, 1 - mpmath.mpf(x), regularized=True)

    with mpmath.workdps(30):
        by_a = float(mpmath.diff(lambda t: function(t, b), mpmath.mpf(a)))
        by_b = float(mpmath.diff(lambda t: function(a, t), mpmath.mpf(b)))
    close(_betainc_by_shape(a, b, x, 1, 0), by_a, 3e-12, density)
    close(_betainc_by_shape(a, b, x, 0, 1), by_b, 3e-12, density)


def test_the_edges_of_the_incomplete_functions():
    for x, of in ((0.0, special.gammainc), (np.inf, special.gammaincc)):
        t = tg.tensor(1.5, requires_grad=True)
        of(t, x).backward()
        assert t.grad == 0
    assert np.isnan(_gammainc_by_shape(-1.0, 1.0, 1)) and np.isnan(_gammainc_by_shape(np.nan, 1, 1))
    assert _betainc_by_shape(1.5, 2.5, np.array([0.0, 1.0]), 1, 0).tolist() == [0, 0]
    assert np.isnan(_betainc_by_shape(1.5, 2.5, 1.5, 1, 0))
    assert _gammainc_by_shape(np.zeros((0, 3)), np.ones(3), 1).shape == (0, 3)


@pytest.mark.parametrize("z", [1 + 1j, -3.3 + 0.2j, 20 + 5j, 0.01 + 0.01j])
def test_second_derivatives_of_complex_gamma_functions(z):

    def slope_at(z):
        return tg.jvp(special.loggamma, (z,), (np.ones_like(z),))[1]

    z = np.array(z)
    slope = tg.jvp(slope_at, (z,), (np.ones_like(z),))[1]
    expected = complex(mpmath.polygamma(1, complex(z)))
    assert abs(slope - expected) < 1e-12 * abs(expected)


def test_subgradients_at_the_edges():
    """PyTorch's: at x = 0 xlogy has the derivative log(y), and 0 where y = 0 too."""
    x = tg.tensor([0.0, 0.0, 2.0], requires_grad=True)
    y = tg.tensor([0.0, 3.0, 3.0], requires_grad=True)
    special.xlogy(x, y).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [0, np.log(3), np.log(3)])
    np.testing.assert_allclose(y.grad.numpy(), [0, 0, 2 / 3])
    t = tg.tensor([-0.5, 0.5, 1.5], requires_grad=True)
    special.huber(1.0, t).sum().backward()
    assert t.grad.tolist() == [-0.5, 0.5, 1.0]


def test_public_functions_say_what_they_are():
    for name in dir(tg.special):
        function = getattr(tg.special, name)
        if not name.startswith("_") and callable(function):
            assert len((inspect.getdoc(function) or "").split()) > 2, name


def test_a_hypergeometric_function_beyond_the_largest_number_is_infinite() -> None:
    """SciPy's series does not end there. Where it still does, both agree; sums with fewer terms than the argument is large stay SciPy's."""
    x = tg.tensor([np.inf, 1e300, 1e12, 0.5], requires_grad=True)
    y = tg.special.hyp1f1(2.0, 3.0, x)
    assert np.isposinf(y[:3].detach().numpy()).all()
    assert y[3] == special.hyp1f1(2.0, 3.0, 0.5)
    y.sum().backward()
    assert np.isposinf(x.grad[:3].numpy()).all() and np.isfinite(x.grad[3])
    x = tg.tensor([1.5e5, 1e12], requires_grad=True)
    assert np.isneginf(tg.special.hyp1f1(-0.5, 3.0, x).detach().numpy()).all()
    assert np.isneginf(float(mpmath.hyp1f1(-0.5, 3.0, 1.5e5)))
    np.testing.assert_allclose(
        tg.special.hyp1f1(-1.0, 2.0, x).detach().numpy(), 1 - x.detach().numpy() / 2
    )


def test_a_hypergeometric_function_ends_in_compiled_code() -> None:
    """SciPy's C function runs for ever there, and so did replay's kernel, programs and native functions."""

    def total(x):
        s = 0.0
        for v in x:
            s += special.hyp1f1(2.0, 3.0, v)
        return s

    far = np.array([0.5, 1e6, 1e300, np.inf])
    compiled = tg.compile(tg.special.hyp1f1)
    for a, b in itertools.product((-2.5, -1.0, 0.5, 30.0), (-0.5, 1.5, 20.0)):
        with np.errstate(all="ignore"):
            expected = np.asarray(tg.special.hyp1f1(a, b, far))
            for found in (compiled(a, b, far), compiled(a, b, far)):
                np.testing.assert_allclose(found, expected, rtol=1e-12)
    for gradient in (
        tg.compile(tg.grad(lambda x: np.sum(tg.special.hyp1f1(2.0, 3.0, x)))),
        tg.grad(tg.njit(total)),
    ):
        gradient(np.array([0.5, 0.2]))
        assert np.isposinf(gradient(far)[1:]).all()


def test_densities_at_the_edges_do_not_overflow():
    """1 / B(150, 1e5) is infinite in double precision, the density is not."""
    slope = tg.grad(tg.special.betainc, 2)
    assert slope(150.0, 1e5, 0.0) == slope(1e5, 150.0, 1.0) == 0.0
    np.testing.assert_allclose(slope(2.0, 3.0, 1e-3), 12 * 1e-3 * (1 - 1e-3) ** 2, rtol=1e-12)
