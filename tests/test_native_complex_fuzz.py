"""Random Numba programs of complex numbers: the generated adjoint and the program form against the same program in plain Python on complex duals.

Parameters and the result are real, so the tangent of a number along a real direction is one complex number, conjugates, parts and absolute
values included. TAPEGRAD_FUZZ_NATIVE and its kin (see `test_native_fuzz`) say how many programs run, and which: compiled ones, by default none.
"""

from __future__ import annotations

import cmath
import linecache
import math
import random
import types
import zlib
from typing import Any

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.errors import NotDifferentiable
from tests.seeds import seeds
from tests.test_native_fuzz import COMPILED, COUNT, FIRST, Arithmetic, interpreted

# --------------------------------------------------------------------------------------------------- the oracle


class Dual(Arithmetic):
    """A complex number with its derivative along a real direction."""

    kind = complex

    # fmt: off
    def __gt__(self, o): return self.value.real > dual(o).value.real
    def __lt__(self, o): return self.value.real < dual(o).value.real
    def conjugate(self): return Dual(self.value.conjugate(), self.dot.conjugate())
    # fmt: on

    def __abs__(self) -> Dual:
        r = abs(self.value)
        return Dual(r, (self.value.conjugate() * self.dot).real / r if r else 0.0)

    @property
    def real(self) -> Dual:
        return Dual(self.value.real, self.dot.real)

    @property
    def imag(self) -> Dual:
        return Dual(self.value.imag, self.dot.imag)


def dual(x: Any) -> Dual:
    return x if isinstance(x, Dual) else Dual(x)


def chained(f: Any, slope: Any) -> Any:
    """A holomorphic function with its derivative."""

    def function(x: Any) -> Dual:
        x = dual(x)
        return Dual(f(x.value), slope(x.value) * x.dot)

    return function


def angle(z: Any) -> Dual:
    z = dual(z)
    return Dual(cmath.phase(z.value), (z.dot / z.value).imag)


def made(re: Any, im: Any) -> Dual:
    return dual(re) + dual(im) * 1j


PYTHON = {
    "complex": made,
    "abs": abs,
    "jit": lambda f: f,
    "math": types.SimpleNamespace(sin=chained(cmath.sin, cmath.cos)),
    "cmath": types.SimpleNamespace(
        exp=chained(cmath.exp, cmath.exp), sin=chained(cmath.sin, cmath.cos)
    ),
    "np": types.SimpleNamespace(
        complex128=None,
        zeros=lambda n, kind: np.array([Dual(0.0) for _ in range(n)], dtype=object),
        sum=lambda c: c.sum(),
        conj=lambda z: (
            np.array([v.conjugate() for v in z]) if isinstance(z, np.ndarray) else z.conjugate()
        ),
        angle=angle,
        sqrt=chained(cmath.sqrt, lambda z: 0.5 / cmath.sqrt(z)),
    ),
}

# ------------------------------------------------------------------------------------------------- the programs

HELPERS = """
@jit
def tamed(z):
    return z / (1.0 + abs(z))

@jit
def turned(z, a):
    for k in range(2):
        if z.real > a:
            return z * 1j - a
        z = z * complex(0.6, a) + 0.1
    return z

"""


class Writer:
    """Writes one random program."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.lines: list[str] = []
        self.counters: list[str] = []

    def pick(self, *options: str) -> str:
        return self.r.choice(options)

    def place(self) -> str:
        if self.counters and self.r.random() < 0.6:
            return f"({self.r.choice(self.counters)} + {self.r.randrange(4)}) % 4"
        return str(self.r.randrange(-4, 4))

    def whole(self, depth: int) -> str:
        """A complex expression."""
        if depth == 0:
            part = self.pick("a", "b", "q", "x[5]")
            return self.pick(
                "z",
                "u",
                "v",
                f"c[{self.place()}]",
                f"complex({part}, {self.part(0)})",
                "(0.3 - 0.4j)",
            )
        one, other = self.whole(depth - 1), self.whole(depth - 1)
        return self.pick(
            f"({one} + {other})",
            f"({one} - {other})",
            f"({one} * {other})",
            f"({one} * {self.part(depth - 1)})",
            f"({one} / (1.5 + abs({other}) ** 2))",
            f"({one} / (3.0 + tamed({other})))",
            f"np.conj({one})",
            f"({one}).conjugate()",
            f"tamed({one}) ** 2",
            f"cmath.exp(tamed({one}))",
            f"cmath.sin(tamed({one}))",
            f"np.sqrt(2.0 + tamed({one}))",
            f"turned({one}, {self.part(0)})",
            f"({one} if {self.condition()} else {other})",
        )

    def part(self, depth: int) -> str:
        """A real expression."""
        if depth == 0:
            return self.pick("a", "b", "q", f"x[{self.place()}]", "z.real", "u.imag", "0.7")
        one, other = self.whole(depth - 1), self.part(depth - 1)
        return self.pick(
            f"abs({one})",
            f"({one}).real",
            f"({one}).imag",
            f"np.angle(2.0 + tamed({one}))",
            f"({self.part(depth - 1)} * {other})",
            f"math.sin({other})",
            "np.sum(c * np.conj(c)).real",
            "np.sum(c).imag",
        )

    def condition(self) -> str:
        return f"{self.part(0)} > {self.pick('a', 'b', '0.2', 'abs(v)')}"

    def put(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def block(self, n: int, depth: int) -> None:
        for _ in range(n):
            u = self.r.random()
            if u < 0.35:
                self.put(depth, f"{self.pick('z', 'u', 'v')} = tamed({self.whole(2)})")
            elif u < 0.45:
                self.put(
                    depth,
                    f"{self.pick('z', 'u', 'v')} {self.pick('+=', '-=', '*=')} tamed({self.whole(1)})",
                )
            elif u < 0.65:
                self.put(
                    depth, f"c[{self.place()}] {self.pick('=', '+=', '*=')} tamed({self.whole(2)})"
                )
            elif u < 0.75:
                self.put(depth, f"{self.pick('a', 'b')} = math.sin({self.part(2)})")
            elif u < 0.80:
                self.put(
                    depth,
                    self.pick("z, u = u, z", "c = c * v", "v = c[1] + z", "c[1:3] = c[:2] * u"),
                )
            elif u < 0.90 and depth < 3:
                self.put(depth, f"if {self.condition()}:")
                self.block(self.r.randrange(1, 3), depth + 1)
                if self.r.random() < 0.5:
                    self.put(depth, "else:")
                    self.block(1, depth + 1)
            elif depth < 3:
                k = f"k{len(self.lines)}"
                self.put(depth, f"for {k} in range({self.pick('2', '3', '1, 3', '0')}):")
                self.counters.append(k)
                self.block(self.r.randrange(1, 4), depth + 1)
                self.counters.remove(k)
            else:
                self.put(depth, f"b = b * 0.5 + {self.part(1)} * 0.1")

    def program(self) -> str:
        self.lines = [
            "def f(x, q):",
            "    z = complex(x[0], x[1])",
            "    u = complex(q, x[2])",
            "    v = x[3] * 1j + 0.5",
            "    a = x[4]",
            "    b = x[5] * q",
            "    c = np.zeros(4, np.complex128)",
            "    c[0] = z * u",
        ]
        self.block(9, 1)
        self.put(
            1,
            "return a + b + abs(z) * u.imag + (v * u).real + np.sum(c * np.conj(c)).real + np.sum(c).imag",
        )
        return HELPERS + "\n".join(self.lines) + "\n"


X = np.array([0.3, -0.7, 0.5, 1.1, -0.2, 0.8])
Q = 0.4


def check(seed: int, gradient: Any, tangent: Any = None, mode: str = "adjoint") -> None:
    """Value, gradient and tangent of one program by an engine are those of dual numbers."""
    text = Writer(seed).program()
    file = f"<native complex fuzz {zlib.crc32(text.encode()):x}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    code = compile(text, file, "exec")
    jitted: dict[str, Any] = {"np": np, "math": math, "cmath": cmath, "jit": tg.njit}
    exec(code, jitted)
    plain = dict(PYTHON)
    exec(code, plain)
    native = tg.njit(jitted["f"], mode=mode)
    value, (gx, gq) = gradient(native)
    rng = np.random.default_rng(seed)
    dx, dq = rng.normal(size=6), rng.normal()
    given = np.array([Dual(v, d) for v, d in zip(X, dx, strict=True)], dtype=object)
    out = plain["f"](given, Dual(Q, dq))
    assert np.isclose(value, out.value.real, rtol=1e-9, atol=1e-9), text
    assert np.isclose(gx @ dx + gq * dq, out.dot.real, rtol=1e-8, atol=1e-8), text
    if tangent is not None:
        assert np.isclose(tangent(native, dx, dq), out.dot.real, rtol=1e-8, atol=1e-8), text


@pytest.mark.long
@pytest.mark.parametrize("seed", seeds(range(FIRST, FIRST + COUNT // 2), 3))
def test_adjoint_equals_duals(seed):
    """<gradient, direction> is the derivative along the direction, and the value is the value."""
    check(seed, lambda f: interpreted(f, (X.copy(), Q), (0, 1)))


@pytest.mark.parametrize("seed", seeds(range(FIRST, FIRST + COMPILED - 2)))
def test_compiled_adjoint_and_tangent_equal_duals(seed):
    """The same, of compiled code in both directions."""
    check(
        seed,
        lambda f: tg.value_and_grad(f, (0, 1))(X.copy(), Q),
        lambda f, dx, dq: tg.jvp(f, (X.copy(), Q), (dx, dq))[1],
    )


@pytest.mark.long(but=2)
@pytest.mark.parametrize("seed", seeds(range(FIRST, FIRST + COUNT // 4), 3))
def test_the_form_equals_duals(seed):
    """The same, of the program form; those that lie outside ask a remainder of a product, or store six numbers where two lie."""
    try:
        check(seed, lambda f: tg.value_and_grad(f, (0, 1))(X.copy(), Q), mode="form")
    except NotDifferentiable as why:
        assert "outside the program form" in str(why)
