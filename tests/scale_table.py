"""The elementwise functions beside their definitions in mpmath, and the points at which their derivatives are judged.

A row is a function of this library, the same of mpmath's numbers, and points: of every scale that the domain has, at both signs,
shifted pairs, and beside each pole, zero, removable singularity and change of formula. `ulps` is how many ulps of the derivative's
condition a rule may lose; more than the usual few stands only where SciPy's own values are no better, and says so.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mpmath as mp
import numpy as np

import tapegrad as tg

sp = tg.special


@dataclass(frozen=True)
class Row:
    f: Callable[..., Any]
    exact: Callable[..., Any]
    points: Sequence[tuple[float, ...]]
    ulps: float = 16.0
    by: tuple[int, ...] | None = None
    """The operands that are differentiated; all of them, if None."""
    orders: tuple[int, ...] = (1, 2)
    reach: float = np.inf
    """The largest quotient of operands at which single precision is judged: its range is soon left on the way."""


# ------------------------------------------------------------------------------------------------------ points

SCALES = (
    1.3e-12,
    2.7e-8,
    1.1e-5,
    3.4e-3,
    0.11,
    0.73,
    1.6,
    4.7,
    13.0,
    38.0,
    1.3e3,
    2.1e5,
    3.3e8,
    1.7e12,
)
FURTHER = (1.7e-200, 2.3e-160, 1.9e-100, 1.3e100, 3.1e160, 1.2e300)


def both(points: Sequence[float]) -> list[float]:
    return [s * x for x in points for s in (1, -1)]


def ones(*points: float) -> list[tuple[float, ...]]:
    return [(x,) for x in points]


def upto(high: float, points: Sequence[float] = SCALES) -> list[float]:
    return [x for x in points if x <= high]


def around(*centres: float, steps: Sequence[float] = (1e-15, 1e-10, 1e-5, 1e-2)) -> list[float]:
    """Points beside others, on both sides."""
    return [c + s * h * (abs(c) or 1) for c in centres for h in steps for s in (1, -1)]


def pairs(xs: Sequence[float], ys: Sequence[float]) -> list[tuple[float, float]]:
    return list(itertools.product(xs, ys))


def shifted(points: Sequence[float]) -> list[tuple[float, float]]:
    """Pairs that are equal, or nearly."""
    return [(x, x * (1 + d)) for x in points for d in (0.0, 3e-16, -1e-10, 1e-4, 0.3)]


def apart(points: Sequence[float]) -> list[tuple[float, float]]:
    """Pairs at a distance that does not grow with them."""
    return [(x, x + d) for x in points for d in (0.0, 1.0, -30.0)]


REAL = both(SCALES)
ALL = both(SCALES + FURTHER)
POSITIVE = list(SCALES)
EVERY = list(SCALES + FURTHER)
MODEST = both(upto(40.0))
FEW = (1.3e-12, 2.7e-8, 3.4e-3, 0.73, 4.7, 38.0, 2.1e5, 1.7e12)
UNIT = both([1e-12, 1e-6, 0.01, 0.3, 0.6, 0.9, 0.999, 1 - 1e-6, 1 - 1e-10, 1 - 1e-15])

half = mp.mpf(1) / 2
ROWS: dict[str, Row] = {}


def row(name: str, f: Any, exact: Any, points: Any, **settings: Any) -> None:
    points = [p if isinstance(p, tuple) else (p,) for p in points]
    ROWS[name] = Row(f, exact, points, **settings)


# fmt: off
# ------------------------------------------------------------------------------------------------ NumPy's functions

log2, log10 = (lambda x: mp.log(x) / mp.log(2)), (lambda x: mp.log(x) / mp.log(10))

row("add", np.add, lambda x, y: x + y, shifted(REAL))
row("subtract", np.subtract, lambda x, y: x - y, shifted(REAL))
row("multiply", np.multiply, lambda x, y: x * y, pairs(FEW, both(FEW)))
row("divide", np.divide, lambda x, y: x / y, pairs(FEW, both(FEW)) + shifted(REAL) + pairs([1e-150, 1e150], [1e-100, 1e100]))
row("square", np.square, lambda x: x * x, ALL)
row("reciprocal", np.reciprocal, lambda x: 1 / x, ALL)
row("sqrt", np.sqrt, mp.sqrt, EVERY)
row("cbrt", np.cbrt, lambda x: mp.sign(x) * mp.cbrt(abs(x)), ALL)
row("exp", np.exp, mp.exp, [*MODEST, 700.0, -700.0, 709.7])
row("exp2", np.exp2, lambda x: mp.mpf(2) ** x, [*MODEST, 1000.0, -1000.0])
row("expm1", np.expm1, mp.expm1, [*MODEST, 700.0, -700.0])
row("log", np.log, mp.log, EVERY + around(1.0))
row("log2", np.log2, log2, EVERY + around(1.0))
row("log10", np.log10, log10, EVERY + around(1.0))
row("log1p", np.log1p, mp.log1p, EVERY + [-x for x in upto(0.8)] + [-1 + 1e-12, -1 + 1e-15])
LOGS = apart(REAL) + shifted(both(upto(1e3))) + pairs(MODEST, MODEST)[::7] + [(1e17, 1e17 + 64), (1e30, 1e30)]
row("logaddexp", np.logaddexp, lambda x, y: y + mp.log1p(mp.exp(x - y)) if x < y else x + mp.log1p(mp.exp(y - x)), LOGS)
row("logaddexp2", np.logaddexp2, lambda x, y: log2(mp.mpf(2) ** (x - y) + 1) + y, LOGS)
row("sin", np.sin, mp.sin, [*REAL, 3.141592653589793, 1.5707963267948966, 1e15])
row("cos", np.cos, mp.cos, [*REAL, 3.141592653589793, 1.5707963267948966, 1e15])
row("tan", np.tan, mp.tan, [*REAL, 3.141592653589793, *around(1.5707963267948966, steps=(1e-10, 1e-5, 1e-2))])
row("arcsin", np.arcsin, mp.asin, UNIT)
row("arccos", np.arccos, mp.acos, UNIT)
row("arctan", np.arctan, mp.atan, ALL)
row("sinh", np.sinh, mp.sinh, [*MODEST, 700.0, -700.0])
row("cosh", np.cosh, mp.cosh, [*MODEST, 700.0, -700.0])
# 1 - out² is within 1e-16 of the slope, which is all that is asked of it: an exponential more would cost as much as tanh itself.
row("tanh", np.tanh, mp.tanh, both(upto(2.0)))
row("arcsinh", np.arcsinh, mp.asinh, ALL)
row("arccosh", np.arccosh, mp.acosh, [1 + 1e-15, 1 + 1e-10, 1 + 1e-4, *[1 + x for x in POSITIVE[2:]], *FURTHER[3:]])
row("arctanh", np.arctanh, mp.atanh, UNIT)
ANGLES = pairs(both(FEW), FEW) + shifted(both(FEW)) + [(1e200, 2e200), (1e-200, 3e-200), (1e160, 1e-160), (1e-300, 1e300)]
row("arctan2", np.arctan2, mp.atan2, ANGLES)
row("hypot", np.hypot, mp.hypot, ANGLES[:-2])
row("hypot far apart", np.hypot, mp.hypot, ANGLES[-2:], orders=(1,))
row("power", np.power, mp.power, pairs(POSITIVE[2:12], [-3.0, -0.7, 1e-9, 0.5, 2.0, 3.0, 2.9]) + [(1.0 + 1e-9, 1e8), (1 - 1e-12, 1e10), (1e-100, 2.5), (1e100, -2.5)])
row("float_power", np.float_power, mp.power, pairs(POSITIVE[2:12], [-0.7, 0.5, 3.0]))
row("remainder", np.remainder, lambda x, y: x - y * mp.floor(x / y), [(7.3, 2.1), (1e9 + 0.3, 3.7), (-5.5, 1e-3)], by=(0,))
row("abs", np.abs, abs, ALL)
row("deg2rad", np.deg2rad, lambda x: x * mp.pi / 180, ALL)
row("rad2deg", np.rad2deg, lambda x: x * 180 / mp.pi, REAL)
row("sinc", np.sinc, lambda x: mp.sin(mp.pi * x) / (mp.pi * x), [*both(upto(1e3)), *around(1.0, 2.0, steps=(1e-9, 1e-3))])
row("copysign", lambda x: np.copysign(x, -1.0), lambda x: -abs(x), REAL)
row("softplus", sp.softplus, lambda x: mp.log1p(mp.exp(x)), [*MODEST, -700.0, 1e5])

# ---------------------------------------------------------------------------------------- logistic and its relatives

expit = lambda x: 1 / (1 + mp.exp(-x))  # noqa: E731
row("expit", sp.expit, expit, [*MODEST, 300.0, -700.0])
row("log_expit", sp.log_expit, lambda x: -mp.log1p(mp.exp(-x)), [*MODEST, 300.0, -700.0, 1e5, -1e8])
row("logit", sp.logit, lambda x: mp.log(x / (1 - x)), [1e-300, 1e-100, *upto(0.8), *around(0.5), 1 - 1e-5, 1 - 1e-12])
row("exp10", sp.exp10, lambda x: mp.mpf(10) ** x, [*both(upto(5.0)), 300.0, -300.0])
row("exprel", sp.exprel, lambda x: mp.expm1(x) / x, [*MODEST, *around(0.05, -0.05), 700.0, -700.0, -1e5])
row("cosm1", sp.cosm1, lambda x: -2 * mp.sin(x / 2) ** 2, both(upto(1e3)))
row("sindg", sp.sindg, lambda x: mp.sin(x * mp.pi / 180), [*both(upto(1e3)), 180.0, 90.0, *around(90.0, 180.0)])
row("cosdg", sp.cosdg, lambda x: mp.cos(x * mp.pi / 180), [*both(upto(1e3)), 180.0, 90.0, *around(90.0, 180.0)])
row("tandg", sp.tandg, lambda x: mp.tan(x * mp.pi / 180), [*both(upto(40)), 180.0, 89.0, 91.0])
row("cotdg", sp.cotdg, lambda x: mp.cot(x * mp.pi / 180), [*both(upto(40)), 90.0, 89.0, 91.0])
row("entr", sp.entr, lambda x: -x * mp.log(x), EVERY + around(1.0, float(mp.exp(-1))))
ENTROPY = pairs(FEW, FEW) + shifted(POSITIVE)
row("rel_entr", sp.rel_entr, lambda x, y: x * mp.log(x / y), ENTROPY)
row("kl_div", sp.kl_div, lambda x, y: x * mp.log(x / y) - x + y, ENTROPY)
row("xlogy", sp.xlogy, lambda x, y: x * mp.log(y), pairs(both(FEW), FEW) + pairs([1.0], around(1.0)))
row("xlog1py", sp.xlog1py, lambda x, y: x * mp.log1p(y), pairs(both(FEW), FEW) + pairs([2.0], [-0.5, -1 + 1e-9, -1e-9]))
row("powm1", sp.powm1, lambda x, y: mp.power(x, y) - 1, pairs(POSITIVE[2:12], [-3.0, -0.7, 1e-9, 0.5, 2.9]) + pairs([1 + 1e-9], [1e-3, 2.0]))
BOX = pairs([1e-5, 0.3, 1 - 1e-9, 1 + 1e-6, 1.4, 30.0, 1e5], [1e-9, -1e-9, 1e-4, -0.7, 0.5, 2.0, 3.0, 20.0])
row("boxcox", sp.boxcox, lambda x, y: mp.expm1(y * mp.log(x)) / y, BOX)
row("boxcox1p", sp.boxcox1p, lambda x, y: mp.expm1(y * mp.log1p(x)) / y, pairs([1e-12, -1e-6, -0.9, 0.4, 30.0, 1e5], [1e-9, 1e-4, -0.7, 0.5, 2.0, 20.0]))
INVERSE_BOX = pairs([1e-9, 1e-4, 0.3, 1.5, 20.0], [1e-9, 1e-4, 0.4, 1.0, 5.0]) + [(-0.3, 0.4), (0.3, -0.4), (5.0, 1e-9), (-3.0, 1e-6)]
row("inv_boxcox", sp.inv_boxcox, lambda x, y: mp.exp(mp.log1p(x * y) / y), INVERSE_BOX, ulps=64.0)
row("inv_boxcox1p", sp.inv_boxcox1p, lambda x, y: mp.expm1(mp.log1p(x * y) / y), INVERSE_BOX, ulps=64.0)
row("pseudo_huber", sp.pseudo_huber, lambda x, y: x * x * (mp.sqrt(1 + (y / x) ** 2) - 1), pairs(FEW, both(FEW)))
row("agm", sp.agm, lambda x, y: mp.agm(x, y), pairs([1e-12, 1e-3, 0.5, 3.0, 1e5, 1e12], [1e-12, 0.7, 4.0, 1e8]) + shifted([1e-8, 0.7, 1e8]), reach=1e15)
row("huber", lambda y: sp.huber(1.5, y), lambda y: y * y / 2 if abs(y) <= 1.5 else 1.5 * (abs(y) - mp.mpf(0.75)), REAL)

# ----------------------------------------------------------------------------------------------- error functions

ndtr = mp.ncdf
row("erf", sp.erf, mp.erf, [*both(upto(5)), 6.0, 12.0, 26.0])
row("erfc", sp.erfc, mp.erfc, [*both(upto(5)), 6.0, 12.0, 26.0])
row("erfi", sp.erfi, mp.erfi, [*both(upto(13.0)), 26.0])
row("erfcx", sp.erfcx, lambda x: mp.exp(x * x) * mp.erfc(x), [*both(upto(13.0)), 20.0, 38.0, 49.9, 50.1, 1e3, 1e5, 1e8, 1e12], ulps=64.0)
row("dawsn", sp.dawsn, lambda x: mp.sqrt(mp.pi) / 2 * mp.exp(-x * x) * mp.erfi(x), [*both(upto(13.0)), 20.0, 38.0, 49.9, 50.1, 1e3, 0.9241388730045916], ulps=1e4)  # 2 x² ulps an order, up to 7
row("erfinv", sp.erfinv, mp.erfinv, both([1e-12, 1e-3, 0.3, 0.9, 1 - 1e-6, 1 - 1e-12]))
row("erfcinv", sp.erfcinv, lambda x: _inverse(mp.erfc, x, sp.erfcinv(float(x))), [1e-140, 1e-100, 1e-12, 0.01, 0.7, 1.0 - 1e-9, 1.3, 2 - 1e-9])
row("ndtr", sp.ndtr, ndtr, [*both(upto(5)), 12.0, -12.0, -37.0])
row("ndtri", sp.ndtri, lambda x: _inverse(ndtr, x, sp.ndtri(float(x))), [1e-140, 1e-100, 1e-12, 0.01, 0.3, 0.5 + 1e-9, 0.9, 1 - 1e-9])
row("log_ndtr", sp.log_ndtr, lambda x: mp.log(ndtr(x)), [*both(upto(13.0)), -38.0, -1e3, -1e5, -1e8])
row("ndtri_exp", sp.ndtri_exp, lambda x: _inverse(lambda t: mp.log(ndtr(t)), x, sp.ndtri_exp(float(x))), [-1e-12, -1e-3, -0.3, -3.0, -40.0, -1e4, -1e8], ulps=256.0)  # SciPy's values have no more digits
row("owens_t", sp.owens_t, lambda h, a: mp.quad(lambda t: mp.exp(-h * h * (1 + t * t) / 2) / (1 + t * t), [0, a]) / (2 * mp.pi), pairs([1e-8, 0.5, 3.0], [1e-6, 0.7]))


def voigt(x: Any, sigma: Any, gamma: Any) -> Any:
    z = (x + 1j * gamma) / (sigma * mp.sqrt(2))
    return mp.re(mp.exp(-z * z) * mp.erfc(-1j * z)) / (sigma * mp.sqrt(2 * mp.pi))


row("voigt_profile", sp.voigt_profile, voigt, [(0.3, 0.7, 0.4), (1e-9, 1.3, 1e-3), (30.0, 0.7, 0.4), (1e3, 1.0, 2.0), (1e6, 1.0, 2.0), (3.0, 1e-4, 1e-5), (2.0, 1e-9, 1.0), (1.0, 1.0, 1e4)])


def _inverse(f: Callable[..., Any], y: Any, start: float) -> Any:
    """The x with f(x) = y, by Newton's method from SciPy's."""
    x = mp.mpf(start)
    for _ in range(2 + int(mp.log(mp.mp.dps, 2))):
        h = mp.mpf(10) ** (-mp.mp.dps // 3) * max(abs(x), mp.mpf(10) ** -20)
        x -= (f(x) - y) * 2 * h / (f(x + h) - f(x - h))
    return x


# ------------------------------------------------------------------------------------------------ gamma and zeta

GAMMAS = [1e-12, 1e-5, 0.03, 0.5, 0.9, 1.0, 1.4616321449683622, 2.0, 3.3, 13.0, 100.0, -0.3, -1.5, -7.7, -1 + 1e-9, -2 - 1e-7]
LARGE = [1e3, 2.1e5, 3.3e8, 1.7e12]
row("psi", sp.psi, mp.psi_0 if hasattr(mp, "psi_0") else lambda x: mp.psi(0, x), GAMMAS + LARGE)
row("polygamma1", lambda x: sp.polygamma(1, x), lambda x: mp.psi(1, x), [x for x in GAMMAS if x > 0] + LARGE)
row("polygamma3", lambda x: sp.polygamma(3, x), lambda x: mp.psi(3, x), [x for x in GAMMAS if x > 0] + LARGE)
row("gammaln", sp.gammaln, lambda x: mp.re(mp.loggamma(x)), GAMMAS + LARGE)
row("loggamma", sp.loggamma, lambda x: mp.loggamma(x), [x for x in GAMMAS if x > 0] + LARGE)
row("gamma", sp.gamma, mp.gamma, GAMMAS)
row("rgamma", sp.rgamma, mp.rgamma, [*GAMMAS, 0.49999, 0.50001])
BETAS = pairs([1e-9, 0.3, 4.0, 1e3, 1e8], [1e-9, 0.3, 4.0, 1e3]) + [(1e12, 1.0), (1e12, 1e-3), (1e12, 1e12), (2.0, 1e8), (1e-5, 1e12), (1e8, 1e-8)]
betaln = lambda x, y: mp.loggamma(x) + mp.loggamma(y) - mp.loggamma(x + y)  # noqa: E731
row("betaln", sp.betaln, betaln, BETAS)
beta = lambda x, y: mp.exp(betaln(x, y))  # noqa: E731
row("beta", sp.beta, beta, [p for p in BETAS if min(p) < 30], orders=(1,), ulps=2000.0)  # SciPy's values
row("beta''", sp.beta, beta, [p for p in BETAS if min(p) < 30 and min(p) > 0.1], orders=(2,), ulps=64.0)
POCH = pairs([0.3, 4.0, 50.0], [1e-9, 1e-4, 0.3, 3.0]) + [(1e8, 0.5), (1e8, 2.0), (1e12, 1e-3), (1e5, -3.5)]
row("poch", sp.poch, lambda x, y: mp.rf(x, y), POCH, ulps=256.0)  # SciPy's values have no more digits
row("binom", sp.binom, lambda x, y: mp.binomial(x, y), [(5.3, 2.1), (1e3, 2.0), (1e8, 1.5), (1e12, 0.3), (2.0, 1e-9), (30.0, 29.5), (0.3, 0.2)])
row("zeta", lambda x: sp.zeta(x), mp.zeta, [1 + 1e-9, 1.01, 1.5, 3.0, 20.0, 60.0, 0.5, -0.7, -3.5, -20.2], ulps=1000.0)
row("zetac", sp.zetac, lambda x: mp.zeta(x) - 1, [1.01, 1.5, 3.0, 20.0, 0.5, -3.5], ulps=1000.0)
row("hurwitz", lambda x, q: sp.zeta(x, q), mp.zeta, pairs([1.01, 2.0, 7.5], [1e-3, 0.7, 4.0, 1e3, 1e6]), ulps=1000.0)

# ---------------------------------------------------------------------------------------------- incomplete integrals

gammainc = lambda a, x: mp.gammainc(a, 0, x, regularized=True)  # noqa: E731
gammaincc = lambda a, x: 1 - gammainc(a, x)  # noqa: E731
INCOMPLETE = pairs([1e-3, 0.5, 3.0, 40.0, 300.0], [1e-9, 1e-3, 0.4, 3.0, 50.0]) + [(40.0, 41.0), (300.0, 301.0), (3.0, 300.0)]
row("gammainc", sp.gammainc, gammainc, INCOMPLETE, ulps=500.0)
row("gammaincc", sp.gammaincc, gammaincc, INCOMPLETE[::3], ulps=500.0)
betainc = lambda a, b, x: mp.betainc(a, b, 0, x, regularized=True)  # noqa: E731
SHARES = [(0.5, 0.7, 1e-9), (2.0, 3.0, 1e-5), (2.0, 3.0, 0.4), (0.3, 4.0, 0.99), (30.0, 2.0, 0.9), (100.0, 100.0, 0.5), (1e-2, 2.0, 0.3), (3.0, 0.5, 1 - 1e-6)]
row("betainc", sp.betainc, betainc, SHARES, ulps=3000.0)
row("betaincc", sp.betaincc, lambda a, b, x: mp.betainc(a, b, x, 1, regularized=True), SHARES[::4], ulps=3000.0)
row("expi", sp.expi, mp.ei, [1e-12, 1e-5, 0.37, 2.0, 13.0, 38.0, 600.0, -1e-5, -0.4, -13.0, -300.0])
row("exp1", sp.exp1, mp.e1, [1e-12, 1e-5, 0.37, 2.0, 13.0, 38.0, 600.0])
row("expn3", lambda x: sp.expn(3, x), lambda x: mp.expint(3, x), [1e-12, 1e-5, 0.37, 2.0, 13.0, 38.0, 600.0])
row("expn0", lambda x: sp.expn(0, x), lambda x: mp.expint(0, x), [1e-12, 1e-5, 0.37, 2.0, 13.0, 38.0, 600.0])
row("spence", sp.spence, lambda x: mp.polylog(2, 1 - x), [1e-300, 1e-12, 1e-3, 0.5, 1.5, 3.0, 1e5, 1e12, *around(1.0), 0.8749, 0.8751, 1.1249, 1.1251])
row("sici0", lambda x: sp.sici(x)[0], mp.si, [1e-12, 1e-5, 0.3, 3.0, 38.0, 1e3, 1e6])
row("sici1", lambda x: sp.sici(x)[1], mp.ci, [1e-12, 1e-5, 0.3, 3.0, 38.0, 1e3, 1e6])
row("shichi0", lambda x: sp.shichi(x)[0], mp.shi, [1e-12, 1e-5, 0.3, 3.0, 38.0, 300.0])
row("shichi1", lambda x: sp.shichi(x)[1], mp.chi, [1e-12, 1e-5, 0.3, 3.0, 38.0, 300.0])
row("fresnel0", lambda x: sp.fresnel(x)[0], mp.fresnels, [1e-5, 0.3, 3.0, 38.0])
row("fresnel1", lambda x: sp.fresnel(x)[1], mp.fresnelc, [1e-5, 0.3, 3.0, 38.0])
row("lambertw", lambda x: np.real(sp.lambertw(x)), lambda x: mp.re(mp.lambertw(x)), [1e-12, 1e-5, 0.3, 3.0, 1e3, 1e8, 1e12, -0.3, -0.36, -0.3678])
row("wrightomega", sp.wrightomega, lambda x: mp.re(mp.lambertw(mp.exp(x))), [-700.0, -30.0, -3.0, 1e-9, 1.0, 3.0, 38.0, 500.0])
row("itj0", lambda x: sp.itj0y0(x)[0], lambda x: mp.quad(lambda t: mp.besselj(0, t), [0, x]), [0.3, 3.0])

# ------------------------------------------------------------------------------------------------------ Bessel's

ARGUMENTS = [1e-12, 1e-5, 0.03, 0.7, 2.404825557695773, 3.8317, 13.0, 38.0]
FAR = [1e3, 2.1e5]


def bessel(name: str, exact: Any, far: Sequence[float] = FAR, near: Sequence[float] = ARGUMENTS, **settings: Any) -> None:
    row(name, getattr(sp, name), exact, [*near, *far], **settings)


bessel("j0", lambda x: mp.besselj(0, x))
bessel("j1", lambda x: mp.besselj(1, x))
bessel("y0", lambda x: mp.bessely(0, x))
bessel("y1", lambda x: mp.bessely(1, x))
bessel("i0", lambda x: mp.besseli(0, x), [300.0])
bessel("i1", lambda x: mp.besseli(1, x), [300.0])
bessel("k0", lambda x: mp.besselk(0, x), [300.0])
bessel("k1", lambda x: mp.besselk(1, x), [300.0])
BEYOND = [39.9, 40.1, 41.0, 1e3, 1e4, 1e5, 1e8, 1e12]
scaled_i = lambda v, x: mp.exp(-abs(x)) * mp.besseli(v, x)  # noqa: E731
scaled_k = lambda v, x: mp.sqrt(mp.pi) * (2 * x) ** v * mp.hyperu(v + half, 2 * v + 1, 2 * x)  # noqa: E731
# Up to 40 the slopes of the scaled I are differences of neighbours, which lose 2 x ulps an order (bessel.py).
bessel("i0e", lambda x: scaled_i(0, x), [*BEYOND, -0.3, -20.0, -1e4], ulps=2000.0)
bessel("i1e", lambda x: scaled_i(1, x), [*BEYOND, -0.3, -20.0, -1e4], ulps=2000.0)
bessel("k0e", lambda x: scaled_k(0, x), BEYOND, ulps=64.0)
bessel("k1e", lambda x: scaled_k(1, x), BEYOND, ulps=64.0)
for v in (0.0, 2.5, 7.0):
    row(f"jv{v}", lambda x, v=v: sp.jv(v, x), lambda x, v=v: mp.besselj(v, x), ARGUMENTS[1:] + FAR, ulps=64.0)
    row(f"yv{v}", lambda x, v=v: sp.yv(v, x), lambda x, v=v: mp.bessely(v, x), ARGUMENTS[1:] + FAR, ulps=64.0)
    row(f"iv{v}", lambda x, v=v: sp.iv(v, x), lambda x, v=v: mp.besseli(v, x), [*ARGUMENTS[1:], 300.0], ulps=64.0)
    row(f"kv{v}", lambda x, v=v: sp.kv(v, x), lambda x, v=v: mp.besselk(v, x), [*ARGUMENTS[1:], 300.0], ulps=64.0)
    row(f"ive{v}", lambda x, v=v: sp.ive(v, x), lambda x, v=v: scaled_i(v, x), [*ARGUMENTS[1:], *BEYOND[:-1]], ulps=2000.0)
    row(f"kve{v}", lambda x, v=v: sp.kve(v, x), lambda x, v=v: scaled_k(v, x), [*ARGUMENTS[1:], *BEYOND[:-1]], ulps=64.0)
row("struve", lambda x: sp.struve(1.5, x), lambda x: mp.struveh(1.5, x), ARGUMENTS[1:] + [300.0], ulps=64.0)
row("modstruve", lambda x: sp.modstruve(1.5, x), lambda x: mp.struvel(1.5, x), ARGUMENTS[1:], ulps=8000.0)  # SciPy's values
for name in ("ber", "bei", "ker", "kei"):
    row(name, getattr(sp, name), lambda x, name=name: getattr(mp, name)(0, x), [1e-5, 0.03, 0.7, 3.0, 13.0, 38.0], ulps=8000.0)  # SciPy's values
for k, name in enumerate(("airyai", "airybi")):
    row(name, lambda x, k=k: sp.airy(x)[2 * k], getattr(mp, name), [*both([1e-5, 0.3, 3.0, 13.0]), -38.0, 60.0, -1e3], ulps=64.0)
for k, name in enumerate(("airyai", "airybi")):
    row(f"{name}'", lambda x, k=k: sp.airy(x)[2 * k + 1], lambda x, name=name: getattr(mp, name)(x, derivative=1), [*both([1e-5, 0.3, 3.0, 13.0]), -38.0, 60.0], ulps=64.0)
spherical = lambda f, n, x: mp.sqrt(mp.pi / (2 * x)) * f(n + mp.mpf(0.5), x)  # noqa: E731
for n in (0, 2):
    row(f"spherical_jn{n}", lambda x, n=n: sp.spherical_jn(n, x), lambda x, n=n: spherical(mp.besselj, n, x), [1e-5, 1e-3, 0.7, 13.0, 1e3], ulps=64.0)
    row(f"spherical_yn{n}", lambda x, n=n: sp.spherical_yn(n, x), lambda x, n=n: spherical(mp.bessely, n, x), [1e-5, 1e-3, 0.7, 13.0, 1e3], ulps=64.0)
    row(f"spherical_in{n}", lambda x, n=n: sp.spherical_in(n, x), lambda x, n=n: spherical(mp.besseli, n, x), [1e-5, 1e-3, 0.7, 13.0, 300.0], ulps=64.0)
    row(f"spherical_kn{n}", lambda x, n=n: sp.spherical_kn(n, x), lambda x, n=n: spherical(mp.besselk, n, x), [1e-5, 1e-3, 0.7, 13.0, 300.0], ulps=64.0)

# --------------------------------------------------------------------------------- hypergeometric and elliptic

row("hyp2f1", lambda x: sp.hyp2f1(0.5, 1.5, 2.5, x), lambda x: mp.hyp2f1(0.5, 1.5, 2.5, x), [1e-12, 1e-3, 0.4, 0.95, -0.4, -30.0, -1e5], ulps=100.0)
row("hyp1f1", lambda x: sp.hyp1f1(0.5, 1.5, x), lambda x: mp.hyp1f1(0.5, 1.5, x), [1e-12, 1e-3, 0.4, 30.0, 300.0, -0.4, -30.0, -300.0], ulps=100.0)
row("hyp0f1", lambda x: sp.hyp0f1(1.5, x), lambda x: mp.hyp0f1(1.5, x), [1e-12, 1e-3, 0.4, 30.0, 1e3], ulps=100.0)
row("hyperu", lambda x: sp.hyperu(0.5, 1.5, x), lambda x: mp.hyperu(0.5, 1.5, x), [1e-3, 0.4, 3.0, 30.0, 300.0], ulps=100.0)
row("ellipk", sp.ellipk, mp.ellipk, [1e-12, 1e-3, 0.4, 0.9, 1 - 1e-6, 1 - 1e-10, -1e-5, -0.4, -30.0, -1e5, -1e12])
row("ellipkm1", sp.ellipkm1, lambda x: mp.ellipk(1 - x), [1e-300, 1e-100, 1e-12, 1e-3, 0.4, 0.9, 1.3, 30.0])
row("ellipe", sp.ellipe, mp.ellipe, [1e-12, 1e-3, 0.4, 0.9, 1 - 1e-6, 1 - 1e-10, -1e-5, -0.4, -30.0, -1e5, -1e12])
row("ellipkinc", lambda p: sp.ellipkinc(p, 0.7), lambda p: mp.ellipf(p, mp.mpf(0.7)), [1e-12, 1e-3, 0.4, 1.5, 3.0])
row("ellipeinc", lambda p: sp.ellipeinc(p, 0.7), lambda p: mp.ellipe(p, mp.mpf(0.7)), [1e-12, 1e-3, 0.4, 1.5, 3.0])
for k, kind in enumerate(("sn", "cn", "dn")):
    row(kind, lambda u, k=k: sp.ellipj(u, 0.7)[k], lambda u, kind=kind: mp.ellipfun(kind, u, m=mp.mpf(0.7)), [1e-9, 1e-3, 0.4, 1.5, 13.0])
POINTS = [1e-12, 1e-3, 0.4, -0.7, 0.99, 1 - 1e-9]
row("eval_jacobi", lambda x: sp.eval_jacobi(4, 0.5, 1.5, x), lambda x: mp.jacobi(4, 0.5, 1.5, x), POINTS)
row("eval_legendre", lambda x: sp.eval_legendre(5, x), lambda x: mp.legendre(5, x), POINTS, ulps=100.0)
row("eval_chebyt", lambda x: sp.eval_chebyt(5, x), lambda x: mp.chebyt(5, x), POINTS)
row("eval_chebyu", lambda x: sp.eval_chebyu(5, x), lambda x: mp.chebyu(5, x), POINTS, ulps=100.0)
row("eval_gegenbauer", lambda x: sp.eval_gegenbauer(4, 1.5, x), lambda x: mp.gegenbauer(4, 1.5, x), POINTS, ulps=100.0)
row("eval_hermite", lambda x: sp.eval_hermite(5, x), lambda x: mp.hermite(5, x), [*POINTS, 30.0, 1e8])
row("eval_laguerre", lambda x: sp.eval_laguerre(5, x), lambda x: mp.laguerre(5, 0, x), [*POINTS, 30.0, 1e8])

# ------------------------------------------------------------------------------------------------- distributions

def _tails(cdf: Callable[..., Any], sf: Callable[..., Any], logpdf: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    return {
        "logpdf": logpdf, "pdf": lambda *a: mp.exp(logpdf(*a)), "cdf": cdf, "sf": sf,
        "logcdf": lambda *a: mp.log(cdf(*a)), "logsf": lambda *a: mp.log(sf(*a)),
    }  # fmt: skip


def _student(y: Any, df: Any) -> Any:
    """The probability beyond |y| on one side."""
    return mp.betainc(df / 2, half, 0, df / (df + y * y), regularized=True) / 2


DISTRIBUTIONS = {
    "norm": (_tails(mp.ncdf, lambda y: mp.ncdf(-y), lambda y: -y * y / 2 - mp.log(2 * mp.pi) / 2),
             ones(-37.0, -8.0, -1e-9, 1e-3, 0.7, 3.0, 9.0, 30.0)),
    "t": (_tails(lambda y, df: _student(y, df) if y < 0 else 1 - _student(y, df), lambda y, df: _student(y, df) if y > 0 else 1 - _student(y, df),
                 lambda y, df: -mp.log(df) / 2 - betaln(half, df / 2) - (df + 1) / 2 * mp.log1p(y * y / df)),
          [(-1e4, 3.5), (-3.0, 0.5), (1e-6, 2.0), (0.7, 3.5), (3.0, 30.0), (1e3, 1.5)]),
    "gamma": (_tails(lambda y, a: gammainc(a, y), lambda y, a: gammaincc(a, y), lambda y, a: (a - 1) * mp.log(y) - y - mp.loggamma(a)),
              [(1e-8, 0.5), (1e-3, 3.0), (0.7, 2.5), (30.0, 2.5), (300.0, 2.5), (40.0, 41.0), (1e-3, 1e-3)]),
    "chi2": (_tails(lambda y, k: gammainc(k / 2, y / 2), lambda y, k: gammaincc(k / 2, y / 2),
                    lambda y, k: (k / 2 - 1) * mp.log(y) - y / 2 - mp.loggamma(k / 2) - mp.log(2) * k / 2),
             [(1e-8, 1.0), (0.7, 2.5), (60.0, 2.5), (600.0, 5.0), (40.0, 41.0)]),
    "beta": (_tails(lambda y, a, b: betainc(a, b, y), lambda y, a, b: mp.betainc(a, b, y, 1, regularized=True),
                    lambda y, a, b: (a - 1) * mp.log(y) + (b - 1) * mp.log1p(-y) - betaln(a, b)),
             [(1e-9, 0.5, 0.7), (1e-4, 2.0, 3.0), (0.4, 2.0, 3.0), (0.99, 0.3, 4.0), (0.9, 30.0, 2.0), (0.3, 1e-2, 2.0)]),
    "expon": (_tails(lambda y: -mp.expm1(-y), lambda y: mp.exp(-y), lambda y: -y), ones(1e-100, 1e-12, 1e-3, 0.7, 30.0, 300.0)),
    "laplace": (_tails(lambda y: mp.exp(y) / 2 if y < 0 else 1 - mp.exp(-y) / 2, lambda y: mp.exp(-y) / 2 if y > 0 else 1 - mp.exp(y) / 2,
                       lambda y: -abs(y) - mp.log(2)), ones(-300.0, -30.0, -1e-9, 1e-9, 0.7, 30.0, 300.0)),
    "logistic": (_tails(expit, lambda y: expit(-y), lambda y: -y - 2 * mp.log1p(mp.exp(-y))), ones(-300.0, -30.0, -1e-9, 1e-9, 0.7, 30.0, 300.0)),
    "cauchy": (_tails(lambda y: half - mp.atan2(-y, 1) / mp.pi if y > -1 else mp.atan2(1, -y) / mp.pi, lambda y: mp.atan2(1, y) / mp.pi,
                      lambda y: -mp.log(mp.pi) - mp.log1p(y * y)), ones(-1e12, -30.0, -1e-9, 1e-9, 0.7, 30.0, 1e8, 1e12)),
    "lognorm": (_tails(lambda y, s: mp.ncdf(mp.log(y) / s), lambda y, s: mp.ncdf(-mp.log(y) / s),
                       lambda y, s: -((mp.log(y) / s) ** 2) / 2 - mp.log(s * y) - mp.log(2 * mp.pi) / 2),
                [(1e-6, 0.7), (1e-3, 3.0), (1 + 1e-9, 1.3), (3.0, 0.7), (1e8, 1.3)]),
}  # fmt: skip

for name, (functions, points) in DISTRIBUTIONS.items():
    for method, exact in functions.items():
        distribution = getattr(tg.stats, name)
        composed = method in ("logcdf", "logsf") and name in ("t", "gamma", "chi2", "beta")  # their second derivatives are differences of quotients
        row(f"{name}.{method}", getattr(distribution, method), exact, points, orders=(1,) if composed else (1, 2), reach=50.0, ulps=64.0 if name in ("norm", "expon", "laplace", "logistic", "cauchy", "lognorm") else 5000.0)

MASSES = {
    "poisson": (lambda k, mu: k * mp.log(mu) - mp.loggamma(k + 1) - mu, [(0, 1e-9), (3, 1e-9), (3, 2.3), (3, 1e3), (1000, 999.0)]),
    "bernoulli": (lambda k, p: mp.log(p) if k else mp.log1p(-p), [(0, 1e-9), (1, 1e-9), (1, 0.3), (0, 1 - 1e-9)]),
}
for name, (exact, points) in MASSES.items():
    row(f"{name}.logpmf", getattr(tg.stats, name).logpmf, exact, points, by=(1,))
row("binom.logpmf", lambda k, p: tg.stats.binom.logpmf(k, 5, p), lambda k, p: mp.log(mp.binomial(5, k)) + k * mp.log(p) + (5 - k) * mp.log1p(-p), [(0, 1e-9), (3, 1e-9), (3, 0.3), (5, 1 - 1e-9)], by=(1,))
SCALED_NORMAL = [(1e8 + 0.5, 1e8, 1.0), (1e12 + 2.0, 1e12, 1e-1), (3.0, 1.0, 1e-9), (1e-9, 0.0, 1e9), (1e-12, 2e-12, 1e-12)]
row("norm.logpdf of loc and scale", tg.stats.norm.logpdf, lambda x, m, s: -(((x - m) / s) ** 2) / 2 - mp.log(s) - mp.log(2 * mp.pi) / 2, SCALED_NORMAL)
