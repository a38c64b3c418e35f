"""Fitting: where the polynomials in coefficients.py come from.

Each row of `FITS` names a smooth function, an interval, and the absolute accuracy it is needed to, as bits: for 53 digits and for the
24 of float32. The polynomial interpolates at Chebyshev nodes (within a factor of about two of the minimax error),
of the lowest degree that is accurate enough, computed in 120 digits and rounded to double. The functions are chosen so that
what is large in a formula, such as 1 + r in exp(r), is not fitted but exact.

`python -m tapegrad.vecmath.fitting` writes coefficients.py anew; it needs mpmath, which the library itself does not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

DIGITS = 120

Fit = tuple[Callable[[Any], Any], Any, Any, float, float]


def fits() -> dict[str, Fit]:
    """name -> (function, low, high, bits for 53 digits, bits for 24 digits)."""
    from mpmath import mp, mpf

    half_ln2 = mp.log(2) / 2 * mpf("1.001")
    s_max = (mp.sqrt(2) - 1) / (mp.sqrt(2) + 1) * mpf("1.0001")
    quarter = (mp.pi / 4 * mpf("1.001")) ** 2
    eighth = mp.tan(mp.pi / 8) ** 2 * mpf("1.001")

    def of_square(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda z: f(mp.sqrt(z))

    return {
        # exp(r) = 1 + r + r**2 EXP(r)
        "EXP": (lambda r: (mp.expm1(r) - r) / r**2, -half_ln2, half_ln2, 57, 31),
        # log((1 + s) / (1 - s)) = 2 s + s z LOG(z), z = s**2
        "LOG": (of_square(lambda s: 2 * (mp.atanh(s) / s - 1) / s**2), 0, s_max**2, 54, 26),
        # atanh(s) = s (1 + z / 3 + z**2 ATANH(z))
        "ATANH": (
            of_square(lambda s: (mp.atanh(s) / s - 1 - s**2 / 3) / s**4),
            0,
            s_max**2,
            57,
            26,
        ),
        # sin(r) = r + r**3 SIN(z), cos(r) = 1 - z / 2 + z**2 COS(z), z = r**2
        "SIN": (of_square(lambda r: (mp.sin(r) / r - 1) / r**2), 0, quarter, 58, 31),
        "COS": (of_square(lambda r: (mp.cos(r) - 1 + r**2 / 2) / r**4), 0, quarter, 58, 31),
        # atan(t) = t + t z ATAN(z), z = t**2, |t| <= tan(pi / 8)
        "ATAN": (of_square(lambda t: (mp.atan(t) / t - 1) / t**2), 0, eighth, 57, 29),
        # asin(s) = s + s z ASIN(z), z = s**2, s <= 1/2
        "ASIN": (of_square(lambda s: (mp.asin(s) / s - 1) / s**2), 0, mpf("0.2501"), 57, 29),
        # The cube root of a mantissa, to start from.
        "CBRT": (mp.cbrt, 1, 2, 22, 22),
        # erf(x) = x + x ERF(z), z = x**2, |x| <= 1
        "ERF": (of_square(lambda x: mp.erf(x) / x - 1), 0, 1, 56, 29),
        # erfc(x) = exp(-x**2) (1 + ERFC(q)) / (1 + 2 x), q = (x - 4) / (x + 4), 0.74 <= x <= 28
        "ERFC": (
            lambda q: _scaled_erfc(4 * (1 + q) / (1 - q)),
            mpf("-0.688"),
            mpf("0.7501"),
            56,
            30,
        ),
        # lgamma(2 + u) = (1 - euler) u + u**2 LGAMMA(u), |u| <= 1/2
        "LGAMMA": (
            lambda u: (mp.loggamma(2 + u) - (1 - mp.euler) * u) / u**2,
            mpf("-0.5001"),
            mpf("0.5001"),
            56,
            30,
        ),
        # lgamma(x) = (x - 1/2) (log(x) - 1) + log(2 pi) / 2 - 1/2 + STIRLING(w) / x, w = x**-2, x >= 7.5
        "STIRLING": (_stirling, 0, 1 / mpf("7.49") ** 2, 54, 26),
        # sin(pi f) = f (pi + z SINPI(z)), z = f**2, |f| <= 1/2
        "SINPI": (
            of_square(lambda f: (mp.sinpi(f) / f - mp.pi) / f**2),
            0,
            mpf("0.2501"),
            54,
            29,
        ),
    }


def _scaled_erfc(x: Any) -> Any:
    from mpmath import mp

    return (1 + 2 * x) * mp.exp(x * x) * mp.erfc(x) - 1


def _stirling(w: Any) -> Any:
    from mpmath import mp, mpf

    if w < mpf(10) ** -20:
        return mpf(1) / 12 - w / 360
    x = 1 / mp.sqrt(w)
    half = mpf(1) / 2
    return x * (mp.loggamma(x) - (x - half) * (mp.log(x) - 1) - (mp.log(2 * mp.pi) - 1) * half)


def polynomial(f: Callable[[Any], Any], low: Any, high: Any, bits: float) -> tuple[float, ...]:
    """Coefficients, constant term first, of the lowest degree with an error below 2**-bits."""
    from mpmath import mp, mpf

    with mp.workdps(DIGITS):

        def smooth(x: Any) -> Any:
            # The formulas are 0 / 0 at 0, and need digits nearby.
            return f(x if abs(x) > mpf(10) ** -25 else mpf(10) ** -25)

        middle, half = (mpf(low) + high) / 2, (mpf(high) - low) / 2
        for degree in range(2, 60):
            nodes = [
                middle + half * mp.cospi(mpf(2 * k + 1) / (2 * degree + 2))
                for k in range(degree + 1)
            ]
            powers = mp.matrix([[x**j for j in range(degree + 1)] for x in nodes])
            found = list(mp.lu_solve(powers, mp.matrix([smooth(x) for x in nodes])))
            # Between two nodes the error is largest near the extrema of the Chebyshev polynomial.
            between = [middle + half * mp.cospi(mpf(k) / (degree + 1)) for k in range(degree + 2)]
            if all(abs(smooth(x) - _horner(found, x)) < mpf(2) ** -bits for x in between):
                return tuple(map(float, found))
    raise ValueError(
        f"no polynomial of degree 60 is accurate to {bits} bits: take a smaller interval."
    )


def _horner(coefficients: list[Any], x: Any) -> Any:
    total = coefficients[-1]
    for c in coefficients[-2::-1]:
        total = total * x + c
    return total


def text() -> str:
    """The text of coefficients.py."""
    from mpmath import mp

    lines = [
        '"""Generated by fitting.py, which says how: coefficients by digits, constant term first."""',
        "",
    ]
    lines += ["# fmt: off"]
    with mp.workdps(DIGITS):
        for name, (f, low, high, wide, narrow) in fits().items():
            lines.append(f"{name} = {{")
            for digits, bits in ((53, wide), (24, narrow)):
                lines.append(f"    {digits}: (")
                lines += rows(polynomial(f, low, high, bits))
                lines.append("    ),")
            lines.append("}")
        lines += constants()
    return "\n".join(lines) + "\n"


def rows(numbers: Sequence[float]) -> list[str]:
    """Numbers of a table, five a row."""
    return [
        f"        {', '.join(map(repr, numbers[k : k + 5]))}," for k in range(0, len(numbers), 5)
    ]


def words(x: Any, count: int) -> list[float]:
    """A number as a sum of `count` doubles, each the nearest to what the ones before leave."""
    parts = []
    for _ in range(count):
        parts.append(float(x))
        x -= parts[-1]
    return parts


def constants() -> list[str]:
    """Constants of more than one word, and the table of 2/pi for huge arguments."""
    from mpmath import mp, mpf

    lines = []
    for name, value, count in (
        ("HALF_PI", mp.pi / 2, 3),
        ("LN2", mp.log(2), 2),
        ("CBRT_2", mp.cbrt(2), 1),
        ("CBRT_4", mp.cbrt(4), 1),
        ("ONE_LESS_EULER", 1 - mp.euler, 2),
        ("STIRLING_CONSTANT", (mp.log(2 * mp.pi) - 1) / 2, 2),
        ("LOG_PI", mp.log(mp.pi), 2),
        ("THIRD", mpf(1) / 3, 2),
        ("INVERSE_LN2", 1 / mp.log(2), 2),
        ("INVERSE_LN10", 1 / mp.log(10), 2),
    ):
        lines.append(f"{name} = {tuple(words(value, count))!r}")
    with mp.workdps(400):
        table = []
        for j in range(31):
            # Multiples of 4 quarter turns are dropped: only X, an integer, multiplies this.
            turns = (mpf(2) ** (32 * j - 16) * 2 / mp.pi) % 4
            table.append(words(turns, 4))
    lines.append("TURNS = (")
    for column in zip(*table, strict=True):
        lines += ["    (", *rows(column), "    ),"]
    lines.append(")")
    return lines


if __name__ == "__main__":
    Path(__file__).with_name("coefficients.py").write_text(text())
