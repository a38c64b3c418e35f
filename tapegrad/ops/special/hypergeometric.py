"""Hypergeometric functions of the argument, elliptic integrals, and the orthogonal polynomials.

The derivative of a hypergeometric function by its argument is one with all parameters raised by one (DLMF 15.5, 13.3).
Complete elliptic integrals are hypergeometric functions, and are differentiated as such: the textbook formula
(E/(1-m) - K)/(2m) is 0/0 at m = 0. By parameters and by the degree there is no closed form: refused.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from ...core.domain import Domain, positive, unit
from ...core.primitive import UFUNCS, call, compiled_as, select
from .declaring import parametric, smooth

positive_only = Domain("positive_only", positive.draw, complex_too=False)
unit_only = Domain("unit_only", unit.draw, complex_too=False)
part = Domain("part", lambda rng, shape: rng.uniform(0.1, 0.9, shape), complex_too=False)


def _hyp1f1(a, b, x):
    """SciPy's series looks for its end for ever where x is large; there, with x far above a and b, the value is beyond the largest number.

    It is Γ(b) / Γ(a) eˣ x^(a - b), unless a is 0, -1, ... and the function a polynomial.
    """
    if np.iscomplexobj(x) or not np.any(np.greater(x, 1e5)):
        return special.hyp1f1(a, b, x)
    a, b, x = np.asarray(a), np.asarray(b), np.asarray(x)
    few = np.maximum(x, 0) ** 0.25
    polynomial = (a <= 0) & (a == np.floor(a))
    far = (x > 1e5) & (np.abs(a) < few) & (np.abs(b) < few) & ~polynomial
    value = special.gammasgn(a) * special.gammasgn(b) * np.inf
    return np.where(far, value, special.hyp1f1(a, b, np.where(far, x.dtype.type(0), x)))[()]


_STEPS = 10_000_000
"""Steps of a recurrence, for one element, that are worth waiting for: SciPy cannot be interrupted meanwhile."""


def _soon(of, name, number):
    """Refuse a number whose size is that of the computation."""
    sizes = np.abs(np.asarray(number, float))
    if sizes.size and (largest := np.max(sizes)) > _STEPS:
        raise ValueError(
            f"{of.__name__} was asked for {name} = {largest:.0f} in size, but SciPy takes a step for each unit of it, so it would not end for "
            f"long. Use {name} up to {_STEPS}, or the function's asymptotic form."
        )


def _hyperu(a, b, x):
    _soon(special.hyperu, "a", a)
    return special.hyperu(a, b, x)


# fmt: off
hyp2f1 = parametric(special.hyp2f1, "a b c z", z=lambda a, b, c, z: a * b / c * hyp2f1(a + 1, b + 1, c + 1, z), domain=unit,
                    samples=[call((3,), a_=0.5, b_=1.5, c_=2.5), call((2, 2), a_=-2.0, b_=1.0, c_=0.5)])
hyp1f1 = parametric(special.hyp1f1, "a b x", x=lambda a, b, x: a / b * hyp1f1(a + 1, b + 1, x), samples=[call((3,), a_=0.5, b_=1.5)],
                    computed=_hyp1f1)
hyp0f1 = parametric(special.hyp0f1, "v z", z=lambda v, z: hyp0f1(v + 1, z) / v, domain=positive, samples=[call((3,), v_=1.5)])
hyperu = parametric(special.hyperu, "a b x", x=lambda a, b, x: -a * hyperu(a + 1, b + 1, x), domain=positive_only,
                    samples=[call((3,), a_=0.5, b_=1.5)], holomorphic=False, computed=_hyperu)
# fmt: on


# -------------------------------------------------------------------------------------------------- elliptic


# Of a negative parameter the textbook formula does not cancel, and SciPy's hypergeometric function loses digits far out.


def _slope_of_first(m, out):
    """dK/dm = (π/8) ₂F₁(1/2, 1/2; 2; m) / (1 - m): the pole of ₂F₁(3/2, 3/2; 2; m) at 1 is taken out."""
    below = m < -1
    p, q = select(below, m, -1.0), select(below, 0.0, m)
    return select(
        below,
        (ellipe(p) / (1 - p) - out) / (2 * p),
        math.pi / 8 * hyp2f1(0.5, 0.5, 2.0, q) / (1 - q),
    )


def _slope_of_second(m, out):
    """dE/dm = -(π/8) ₂F₁(1/2, 3/2; 2; m)"""
    below = m < -1
    p, q = select(below, m, -1.0), select(below, 0.0, m)
    return select(below, (out - ellipk(p)) / (2 * p), -math.pi / 8 * hyp2f1(0.5, 1.5, 2.0, q))


ellipk = smooth(special.ellipk, lambda x, out: _slope_of_first(x, out), domain=unit_only)


@compiled_as(lambda x: hyp2f1(0.5, 0.5, 2.0, 1 - x))
def elliptic_rest(x):
    """2F1(1/2, 1/2; 2; 1 - x), which is 4/π (E - x K) / (1 - x) of the parameter 1 - x; differentiable down to the smallest x."""
    return _rest(x)


def rest_slope(x, out):
    """(out - 2/π K(1 - x)) / (1 - x), which cancels near 1: there the hypergeometric function."""
    small = x < 0.5
    p = select(small, x, 0.25)
    return select(
        small,
        (out - 2 / math.pi * ellipkm1(p)) / (1 - p),
        -0.125 * hyp2f1(1.5, 1.5, 3.0, 1 - select(small, 0.5, x)),
    )


def _rest_value(x):
    """2F1(1/2, 1/2; 2; 1 - x), of which the elliptic integrals' slopes are made."""
    return special.hyp2f1(0.5, 0.5, 2.0, 1 - x)


_rest = smooth(_rest_value, lambda x, out: rest_slope(x, out), name="elliptic_rest", domain=part, holomorphic=False,
               unsupported={"dtype": "SciPy computes it in double precision"})  # fmt: skip
ellipkm1 = smooth(special.ellipkm1, lambda x: -math.pi / 8 * elliptic_rest(x) / x, domain=part)
ellipe = smooth(special.ellipe, lambda x, out: _slope_of_second(x, out), domain=unit_only)

_FIRST = "the closed form of the derivative by it is 0/0 at m = 0, and cancels near it"
ellipkinc = parametric(
    special.ellipkinc,
    "phi m",
    phi=lambda phi, m: 1 / np.sqrt(1 - m * np.sin(phi) ** 2),
    domain=unit_only,
    samples=[call((3,), m_=0.5), call((2,), m_=np.array([0.0, -1.5]))],
    refusal=_FIRST,
    holomorphic=False,
)
ellipeinc = parametric(
    special.ellipeinc,
    "phi m",
    phi=lambda phi, m: np.sqrt(1 - m * np.sin(phi) ** 2),
    domain=unit_only,
    samples=[call((3,), m_=0.5), call((2,), m_=np.array([0.0, -1.5]))],
    refusal=_FIRST,
    holomorphic=False,
)

_JACOBI = {
    "domain": unit_only,
    "samples": [call((3,), m_=0.5), call((2,), m_=np.array([0.0, 0.9]))],
    "refusal": _FIRST,
    "public": False,
    "holomorphic": False,
}


def _jacobi(i, name, partial, told):
    """One of the four results of ellipj."""
    return parametric(lambda u, m: special.ellipj(u, m)[i], "u m", u=partial, name=name, told=told, **_JACOBI)  # fmt: skip


_sn = _jacobi(0, "elliptic_sn", lambda u, m: _cn(u, m_=m) * _dn(u, m_=m), "Jacobi's sn(u, m).")
_cn = _jacobi(1, "elliptic_cn", lambda u, m: -_sn(u, m_=m) * _dn(u, m_=m), "Jacobi's cn(u, m).")
_dn = _jacobi(2, "elliptic_dn", lambda u, m: -m * _sn(u, m_=m) * _cn(u, m_=m), "Jacobi's dn(u, m).")  # fmt: skip
_am = _jacobi(3, "elliptic_am", lambda u, m: _dn(u, m_=m), "Jacobi's amplitude am(u, m).")


def ellipj(u, m):
    """Jacobi's elliptic functions sn, cn, dn and the amplitude, of parameter m; differentiable by u."""
    from .declaring import untracked

    m = untracked(m, "ellipj", "m", ["u"], _FIRST)
    return tuple(f(u, m_=m) for f in (_sn, _cn, _dn, _am))


UFUNCS[special.ellipj] = ellipj


# ---------------------------------------------------------------------------------------------- polynomials


def _below(n):
    """The degree below, and 1 or 0 for whether there is one."""
    n = np.asarray(n)
    return np.where(n == 0, 0, n - 1)[()], (n != 0).astype(float)[()]


def _polynomial(of, signature, slope, *samples, **declared):
    """A family by the slope in x; `slope(x, below, n, ...)` with the degree below, and nothing of degree -1."""
    names = signature.split()

    def partial_of(*given):
        *parameters, x = given
        below, there = _below(parameters[0])
        return there * slope(x, below, *parameters)

    def computed(degree, *given):
        if (
            np.asarray(degree).dtype.kind in "iu"
        ):  # of others SciPy goes by hypergeometric functions
            _soon(of, "a degree", degree)
        return of(degree, *given)

    scope = {"partial_of": partial_of}
    # The parameters' names are how `parametric` knows what to pass.
    partial = eval(f"lambda {', '.join(names)}: partial_of({', '.join(names)})", scope)
    samples = samples or (call((3,), n_=0), call((2, 2), n_=3))
    refusal = "it is a degree, or a parameter by which the derivative has no closed form"
    declared = {"domain": unit, "refusal": refusal, "kernel": False} | declared
    return parametric(of, signature, samples=samples, computed=computed, x=partial, **declared)


_WHOLE = {"domain": unit_only}
# fmt: off
eval_jacobi       = _polynomial(special.eval_jacobi, "n alpha beta x",
                                lambda x, m, n, a, b: (n + a + b + 1) / 2 * eval_jacobi(m, a + 1, b + 1, x),
                                call((3,), n_=0, alpha_=0.5, beta_=1.0), call((2,), n_=3, alpha_=0.5, beta_=-0.5))
eval_legendre     = _polynomial(special.eval_legendre,    "n x", lambda x, m, n: eval_gegenbauer(m, 1.5, x))
eval_gegenbauer   = _polynomial(special.eval_gegenbauer,  "n alpha x", lambda x, m, n, a: 2 * a * eval_gegenbauer(m, a + 1, x),
                                call((3,), n_=0, alpha_=0.5), call((2,), n_=3, alpha_=1.5))
eval_chebyu       = _polynomial(special.eval_chebyu,      "n x", lambda x, m, n: 2 * eval_gegenbauer(m, 2.0, x))
eval_chebyt       = _polynomial(special.eval_chebyt,      "n x", lambda x, m, n: n * eval_chebyu(m, x))
eval_chebys       = _polynomial(special.eval_chebys,      "n x", lambda x, m, n: eval_gegenbauer(m, 2.0, x / 2))
eval_chebyc       = _polynomial(special.eval_chebyc,      "n x", lambda x, m, n: n * eval_chebys(m, x))
eval_sh_legendre  = _polynomial(special.eval_sh_legendre, "n x", lambda x, m, n: 2 * eval_gegenbauer(m, 1.5, 2 * x - 1))
eval_sh_chebyu    = _polynomial(special.eval_sh_chebyu,   "n x", lambda x, m, n: 4 * eval_gegenbauer(m, 2.0, 2 * x - 1))
eval_sh_chebyt    = _polynomial(special.eval_sh_chebyt,   "n x", lambda x, m, n: 2 * n * eval_chebyu(m, 2 * x - 1))
eval_genlaguerre  = _polynomial(special.eval_genlaguerre, "n alpha x", lambda x, m, n, a: -1.0 * eval_genlaguerre(m, a + 1, x),
                                call((3,), n_=0, alpha_=0.5), call((2,), n_=3, alpha_=1.5))
eval_laguerre     = _polynomial(special.eval_laguerre,    "n x", lambda x, m, n: -1.0 * eval_genlaguerre(m, 1.0, x))
eval_hermite      = _polynomial(special.eval_hermite,     "n x", lambda x, m, n: 2 * n * eval_hermite(m, x), **_WHOLE)
eval_hermitenorm  = _polynomial(special.eval_hermitenorm, "n x", lambda x, m, n: n * eval_hermitenorm(m, x), **_WHOLE)
# fmt: on

assoc_laguerre = special.assoc_laguerre  # SciPy's own, being eval_genlaguerre

__all__ = [
    "assoc_laguerre",
    "ellipe", "ellipeinc", "ellipj", "ellipk", "ellipkinc", "ellipkm1", "eval_chebyc", "eval_chebys", "eval_chebyt",
    "eval_chebyu", "eval_gegenbauer", "eval_genlaguerre", "eval_hermite", "eval_hermitenorm", "eval_jacobi",
    "eval_laguerre", "eval_legendre", "eval_sh_chebyt", "eval_sh_chebyu", "eval_sh_legendre", "hyp0f1", "hyp1f1",
    "hyp2f1", "hyperu",
]  # fmt: skip
