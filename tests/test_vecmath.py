"""Vector math: accuracy and special values against mpmath, one result for all numbers of lanes, and code for every target.

The number of points grows with TAPEGRAD_VECMATH_POINTS (default 150 for each function and dtype).
"""

from __future__ import annotations

import ctypes
import itertools
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mpmath
import numpy as np
import pytest
import scipy.special

import tapegrad as tg
from bench.accuracy import BOUNDS, NAMES, compiled, exact, peer, samples, ulps, worst
from tapegrad import replay, vecmath
from tapegrad.core import primitive
from tapegrad.llvm import assembly, cache, linker
from tapegrad.replay import bridge, builder, kernels, vectors
from tapegrad.replay import quick_loops as loops
from tapegrad.vecmath import coefficients, fitting, tracing
from tapegrad.vecmath.expression import Code

POINTS = int(os.environ.get("TAPEGRAD_VECMATH_POINTS", "150"))

pytestmark = pytest.mark.skipif(
    not (replay.available() and assembly.available()), reason="nothing here can be compiled"
)
each = pytest.mark.parametrize("name", NAMES)
both = pytest.mark.parametrize("dtype", ["float64", "float32"])


# ------------------------------------------------------------------------------------------- accuracy


@each
@both
def test_the_error_is_bounded_on_the_whole_domain(name: str, dtype: str) -> None:
    operands = samples(name, dtype, POINTS, seed=1)
    error, where = worst(name, compiled(name, dtype)(*operands), operands)
    assert error <= BOUNDS.get(name, 1.5), f"{name} at {where}"


@each
def test_the_error_is_bounded_without_a_fused_multiply_add(name: str) -> None:
    """Where products and sums are rounded one by one, Dekker's product stands in."""
    operands = samples(name, "float64", POINTS // 3, seed=2)
    if name == "gammaln":
        operands = (operands[0][operands[0] < 1e280],)  # its splitting overflows
    error, where = worst(name, compiled(name, "float64", 4, False)(*operands), operands)
    assert error <= BOUNDS.get(name, 1.5) + 0.5, f"{name} at {where}"


@pytest.mark.long
def test_every_whole_power_is_nearly_exact() -> None:
    x = np.random.default_rng(0).uniform(1, 2, 24) * np.resize([-1.0, 1.0], 24)
    for n, name in vecmath.powers.NAMES.items():
        for v, y in zip(x, compiled(name, "float64")(x), strict=True):
            assert ulps(y, exact("power", v, float(n))) <= 0.51, (v, n)


def test_a_planted_error_is_found() -> None:
    operands = samples("exp", "float64", 30)
    y = np.exp(operands[0])
    y[7] = np.nextafter(np.nextafter(np.nextafter(y[7], np.inf), np.inf), np.inf)
    assert worst("exp", y, operands)[0] > 2


def test_gammaln_below_zero() -> None:
    """2 ulp of the largest term of the reflection: near its roots there, the relative error is more."""
    x = -np.random.default_rng(0).uniform(0, 30, POINTS)
    for v, y in zip(x, compiled("gammaln", "float64")(x), strict=True):
        largest = max(1.0, abs(scipy.special.gammaln(-v)))
        assert ulps(y, exact("gammaln", v), floor=largest) <= 2, v


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_huge_angles(name: str) -> None:
    """Every binade, the doubles closest to multiples of pi/2 among them."""
    x = np.concatenate([
        np.ldexp(np.random.default_rng(0).uniform(1, 2, 250), np.linspace(20, 1023, 250).astype(int)),
        [6381956970095103 * 2.0**797, 1e22, np.finfo(float).max, 2.0**37, np.nextafter(2.0**37, 0)],
    ])  # fmt: skip
    error, where = worst(name, compiled(name, "float64")(x), (x,))
    assert error <= 1.5, where


# ------------------------------------------------------------------------------------- special values

_SPECIAL = [
    0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, 20.0, 1e300, -1e300, 1e-20, -1e-20,
    5e-324, -5e-324, 1e-310, 2.2250738585072014e-308, 1.7976931348623157e308, -1.7976931348623157e308,
    709.782712893384, 709.7827128933841, -708.4, -745.13, -745.14, 710.4758600739439, 710.475860073944, 88.72283, 88.72284,
    -103.97, -104.0, 1023.0, 1024.0, -1074.0, -1075.0, -1075.5, np.nextafter(1, 0), np.nextafter(1, 2), -np.nextafter(1, 0),
    np.pi, np.pi / 2, 2.0**52 + 1, 2.0**53, 2.0**53 - 1, -(2.0**53 - 1), 27.3,
]  # fmt: skip


@each
@both
@pytest.mark.parametrize("fused", [True, False])
def test_special_values(name: str, dtype: str, fused: bool) -> None:
    """The exact value where mpmath has one; else the same zeros (with their signs), infinities and NaN as NumPy's and SciPy's."""
    if fused and not vecmath.fuses():
        pytest.skip("this processor has no fused multiply-add")
    with np.errstate(all="ignore"):
        values = np.array(_SPECIAL).astype(dtype)
        operands = (values,)
        if vecmath.arity(name) == 2:
            operands = tuple(np.array(list(itertools.product(values, values)), dtype).T)
        expected = peer(name)(*operands)
    y = compiled(name, dtype, 4, fused)(*operands)
    for got, want, *xs in zip(y, expected, *operands, strict=True):
        value = exact(name, *xs)
        if np.isnan(want):
            assert np.isnan(got), xs
        elif value is None and want != 0 and np.isfinite(want):
            assert abs(got - want) <= 4 * np.spacing(abs(want)), xs
        elif value is None or value == 0:
            assert got == want and np.signbit(got) == np.signbit(want), xs
        else:
            floor = 1 if name == "gammaln" and xs[0] < 0 else 0
            assert ulps(got, value, floor) <= BOUNDS.get(name, 1.5) + (not fused), xs
            assert np.signbit(got) == (value < 0), xs


def test_exact_results_are_exact() -> None:
    n = np.arange(-1074.0, 1024.0)
    assert np.array_equal(compiled("exp2", "float64")(n), np.ldexp(1.0, n.astype(int)))
    assert np.array_equal(compiled("log2", "float64")(np.ldexp(1.0, n.astype(int))), n)
    powers = np.array([float(f"1e{i}") for i in range(23)])
    assert np.array_equal(compiled("log10", "float64")(powers), np.arange(23.0))
    cubes = np.arange(-2000.0, 2000.0)
    assert np.array_equal(compiled("cbrt", "float64")(cubes**3), cubes)
    bases, exponents = (
        np.ravel(g) for g in np.meshgrid(np.arange(-9.0, 10.0), np.arange(0.0, 15.0))
    )
    assert np.array_equal(compiled("power", "float64")(bases, exponents), bases**exponents)


def several(name: str, dtype: str, x: np.ndarray, results: int) -> list[np.ndarray]:
    """The results of a function that has several, of four operands at a time."""
    from tapegrad.llvm.assembly import assemble
    from tapegrad.llvm.cache import Part
    from tapegrad.llvm.linker import link

    element = vecmath.ELEMENTS[dtype]
    symbol, text = vecmath.emit(name, dtype, 4)
    kind = f"<4 x {element}>"
    struct = "{" + ", ".join([kind] * results) + "}"
    stores = "\n".join(
        f"%p{i} = extractvalue {struct} %all, {i}\nstore {kind} %p{i}, ptr %y{i}, align 4"
        for i in range(results)
    )
    text += f"""
    define void @run(ptr %x, {", ".join(f"ptr %y{i}" for i in range(results))}) {{
      %v = load {kind}, ptr %x, align 4
      %all = call {struct} @{symbol}({kind} %v)
      {stores}
      ret void
    }}
    """
    import ctypes

    code, asks = assemble(text)
    address = link(name, [Part("run", "run", tuple(asks), code)])["run"]
    run = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (1 + results))(address)
    x = np.asarray(x, dtype)
    out = [np.empty_like(x) for _ in range(results)]
    for k in range(0, len(x), 4):
        run(x[k:].ctypes.data, *(y[k:].ctypes.data for y in out))
    return out


@both
def test_sincos_is_sin_and_cos(dtype: str) -> None:
    """One reduction for the pair, and the same bits."""
    x = np.array([0.7, -2.5, 1e10, -0.0], dtype)
    s, c = several("sincos", dtype, x, 2)
    assert np.array_equal(s, compiled("sin", dtype)(x)) and np.signbit(s[3])
    assert np.array_equal(c, compiled("cos", dtype)(x))


@both
def test_the_parts_of_a_logarithm_of_a_sum(dtype: str) -> None:
    import mpmath

    r = np.random.default_rng(0)
    low = -700 if dtype == "float64" else -85
    edges = [-0.0, -np.log(np.sqrt(2) + 1), -1e-9, -1e-300 if dtype == "float64" else -1e-30]
    x = np.concatenate([edges, -r.exponential(1, 60), -r.exponential(30, 40), low * r.random(40)])
    x = x[: len(x) // 4 * 4].astype(dtype)
    got = several("log_sum", dtype, x, 3)
    with mpmath.workprec(2400):
        for k, entry in enumerate(x):
            t = mpmath.exp(mpmath.mpf(float(entry)))
            for part, right in zip(got, (mpmath.log1p(t), 1 / (1 + t), t / (1 + t)), strict=True):
                ulp = np.spacing(np.asarray(float(right), dtype))
                assert abs(mpmath.mpf(float(part[k])) - right) <= 2 * float(ulp), (entry, right)
    value, larger, smaller = several("log_sum", dtype, [-np.inf, np.nan, 0.0, -1e4], 3)
    assert np.array_equal(value, np.array([0, np.nan, np.log(2), 0], dtype), equal_nan=True)
    assert np.array_equal(larger, np.array([1, np.nan, 0.5, 1], dtype), equal_nan=True)
    assert np.array_equal(smaller, np.array([0, np.nan, 0.5, 0], dtype), equal_nan=True)


# ----------------------------------------------------------------------------------- one text, all targets


@each
@both
def test_lanes_do_not_change_the_bits(name: str, dtype: str) -> None:
    operands = samples(name, dtype, 64, seed=3)
    scalar = compiled(name, dtype, 1)(*operands)
    for lanes in (2, 8, 16):
        assert np.array_equal(scalar, compiled(name, dtype, lanes)(*operands), equal_nan=True)


@pytest.mark.parametrize("name", sorted(vecmath.FUNCTIONS))
@both
@pytest.mark.parametrize("fused", [True, False])
def test_the_text_is_a_module(name: str, dtype: str, fused: bool) -> None:
    """LLVM reads the text, and it asks for nothing but intrinsics."""
    import llvmlite.binding as llvm

    for lanes in (1, 8):
        symbol, text = vecmath.emit(name, dtype, lanes, fused)
        module = llvm.parse_assembly(text)
        module.verify()
        module.get_function(symbol)
        assert all(f.name.startswith("llvm.") for f in module.functions if f.is_declaration)
        assert fused or "llvm.fma" not in text


TARGETS = [
    ("x86_64-unknown-linux-gnu", "haswell", "ymm", 4),
    ("x86_64-unknown-linux-gnu", "skylake-avx512", "zmm", 8),
    ("x86_64-pc-windows-msvc", "haswell", "ymm", 4),
    ("aarch64-unknown-linux-gnu", "neoverse-n1", ".2d", 2),
    ("arm64-apple-darwin", "apple-m1", ".2d", 2),
]


@pytest.mark.long(but=2)
@pytest.mark.parametrize(
    "triple, processor, register, lanes", TARGETS, ids=[f"{t[0]}-{t[1]}" for t in TARGETS]
)
def test_code_for_every_target(triple: str, processor: str, register: str, lanes: int) -> None:
    """Vector registers, and not one call: neither of libm nor lane by lane."""
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(triple).create_target_machine(
        cpu=processor, opt=2, reloc="pic"
    )
    for name in NAMES:
        _, text = vecmath.emit(name, "float64", lanes, True)
        text = text.replace("linkonce_odr hidden ", "").replace(
            "alwaysinline", '"prefer-vector-width"="512"'
        )
        text = text.replace(" {\n", ' "prefer-vector-width"="512" {\n', 1)
        module = llvm.parse_assembly(text)
        module.triple = triple
        assembly = machine.emit_assembly(module)
        # gammaln's and the angles' rare branches aside, nothing is taken apart and put together again.
        assert register in assembly, name
        assert not re.search(r"^\s+(callq?|blr?)\s", assembly, re.MULTILINE), name


def test_coefficients_are_what_fitting_makes() -> None:
    """The file is generated. (Two of its polynomials; all of them take ten seconds.)"""
    fits = fitting.fits()
    for name in ("EXP", "SIN"):
        f, low, high, wide, _ = fits[name]
        found = fitting.polynomial(f, low, high, wide)
        assert np.allclose(found, getattr(coefficients, name)[53], rtol=1e-12)
    assert set(fits) <= set(vars(coefficients))


def test_what_there_is_not() -> None:
    assert not vecmath.has("exp", "complex128") and not vecmath.has("i0", "float64")
    with pytest.raises(KeyError, match=r"vecmath\.has"):
        vecmath.emit("i0", "float64", 4)


# ------------------------------------------------------------------------------------------- traced rules


def _share(rule: Any, element: str = "double") -> str:
    code = Code(4, True, element=element)
    tracing.trace(rule, code, [code.parameter("x", element), code.parameter("y", element)])
    return "\n".join(code.lines)


def test_rules_are_traced() -> None:
    text = _share(lambda x, y: primitive.select(x < y, 0.0, -np.sin(x) * y**2))
    assert "fcmp olt <4 x double>" in text and "@tapegrad_sin_f64x4" in text and "power" not in text
    assert "@tapegrad_erf_f64x4" in _share(lambda x, y: scipy.special.erf(x) * y)
    assert "@tapegrad_special_jv_dd_double4" in _share(lambda x, y: scipy.special.jv(x, y))
    assert "<4 x float>" in _share(lambda x, y: 2 * x + y, "float")


@pytest.mark.parametrize(
    "rule",
    [
        lambda x, y: x if x > 0 else y,
        lambda x, y: float(x),
        lambda x, y: x * 1j,
        lambda x, y: np.sum(x),
        lambda x, y: scipy.special.wofz(x),
        lambda x, y: x > y,
        lambda x, y: np.asarray(x),
        lambda x, y: x * True,
        lambda x, y: np.array([1.0]) * x,
        lambda x, y: np.exp(x, where=True),
    ],
)
def test_what_cannot_be_traced_is_refused(rule: Any) -> None:
    with pytest.raises(tracing.Untraceable, match="no form as vector code"):
        _share(rule)


def test_every_real_kernel_of_ours_is_vector_code() -> None:
    """Those that are not are named here, with the reason."""
    reasons = {"angle": "complex", "i0": "no vector form"}
    for op in primitive.OPS:
        if op.elementwise and op.function.__module__ == "tapegrad" and op.name not in reasons:
            for operand, partial in enumerate(op.partials):
                if partial.function is not None and op.of is getattr(np, op.name, None):
                    for dtype in vecmath.ELEMENTS:
                        assert vectors.text_of("kernel", op, operand, dtype)


def test_complex_kernels_are_vector_code() -> None:
    """All but i0's, which takes real numbers."""
    for op in primitive.OPS:
        if op.elementwise and op.holomorphic and op.of is getattr(np, op.name, None):
            for operand, partial in enumerate(op.partials):
                if partial.function is not None:
                    needs = kernels.needs_numba(op, operand, "complex128")
                    assert needs == (op.name == "i0"), op.name


def _complex_function(function: Any, count: int) -> Any:
    """A function of arrays by a kernel whose partial it is."""
    partial = SimpleNamespace(
        function=(lambda x: function(x)) if count == 1 else (lambda x, y: function(x, y)),
        chooses=False,
    )
    op: Any = SimpleNamespace(partials=[partial])
    kernel = linked(function.__name__, op, 0, "complex128")

    def of(*operands: np.ndarray) -> np.ndarray:
        """A cotangent of ones times the partial's conjugate, and back."""
        g, adjoint = np.ones(operands[0].size, complex), np.zeros(operands[0].size, complex)
        given = (*operands, *[g] * (4 - count))
        kernel(g.size, 0, *(a.ctypes.data for a in (g, *given, adjoint)))
        return np.conj(adjoint)

    return of


@pytest.mark.parametrize("name", ["sqrt", "log", "sin", "cos", "sinh", "cosh"])
def test_complex_functions_against_mpmath(name: str, rng: np.random.Generator) -> None:
    """Each part to three units in its last place: near the unit circle, along the axes, far out, and where |z| is no normal number."""
    angle = np.exp(1j * rng.uniform(-np.pi, np.pi, 60))
    z = rng.normal(size=60) + 1j * rng.normal(size=60)
    near = angle * (1 + 10.0 ** rng.uniform(-17, -1, 60))
    sets = [z, 25 * z, near, z.real + 0j, 1j * z.imag]
    if name in ("sqrt", "log"):
        sets += [angle * scale for scale in (1e-310, 1e-200, 1e200, 1.7e308)]
    else:
        far = rng.uniform(-709, 709, 60) + 1j * z.real
        sets.append(1j * far if name in ("sin", "cos") else far)
    operands = np.concatenate(sets)
    found = _complex_function(getattr(np, name), 1)(operands)
    with mpmath.workdps(60):
        exact = np.array([complex(getattr(mpmath, name)(mpmath.mpc(v))) for v in operands])
    for part in (np.real, np.imag):
        unit = np.spacing(np.maximum(np.abs(part(exact)), 1e-300))
        assert np.max(np.abs(part(found) - part(exact)) / unit) <= 3


def test_complex_powers_against_mpmath(rng: np.random.Generator) -> None:
    """To as many digits as exp(y log x) has in C: the product's rounding counts by its size."""
    x = rng.normal(size=90) + 1j * rng.normal(size=90)
    y = np.concatenate(
        [
            rng.normal(size=30) * 3 + 1j * rng.normal(size=30),
            rng.integers(-5, 6, 30) + 0j,
            rng.integers(-5, 6, 30) / 2 + 0j,
        ]
    )
    found = _complex_function(np.power, 2)(x, y)
    with mpmath.workdps(40):
        exact = np.array(
            [complex(mpmath.power(mpmath.mpc(a), mpmath.mpc(b))) for a, b in zip(x, y, strict=True)]
        )
    bound = 2.0**-52 * (4 + 2 * np.abs(y * np.log(x)))
    assert np.all(np.abs(found - exact) <= bound * np.abs(exact))


@pytest.mark.parametrize("name", ["sqrt", "log", "sin", "cos", "sinh", "cosh", "exp", "power"])
def test_complex_functions_at_the_ends(name: str) -> None:
    """At zeros, infinities, NaN, the largest and the smallest numbers as in C."""
    ends = (0.0, -0.0, 1.0, -1.0, 0.5, np.inf, -np.inf, np.nan, 1e308, -1e-310, 5e-324)
    z = np.array([complex(a, b) for a, b in itertools.product(ends, ends)])
    operands = (z,)
    if name == "power":
        z = z[np.isfinite(z)]  # 1 / inf is 0 here; some C libraries have NaN
        y = np.array([0.0, 1.0, 2.0, -1.0, 0.5, 1 + 1j])
        operands = tuple(np.ravel(m).copy() for m in np.meshgrid(z, y))
    with np.errstate(all="ignore"):
        found = _complex_function(getattr(np, name), len(operands))(*operands)
        expected = np.conj(np.conj(getattr(np, name)(*operands)) * (1 + 0j))
    for part in (np.real, np.imag):
        np.testing.assert_allclose(part(found), part(expected), rtol=1e-12, atol=0)


@pytest.mark.long
def test_real_kernels_that_have_no_form() -> None:
    """SciPy's functions are called for each lane; what has loops of its own is shipped. Two rules have complex numbers inside."""
    bridge.declare_all()
    found = {
        op.name
        for op in primitive.OPS
        if op.elementwise
        for operand, partial in enumerate(op.partials)
        if partial.function is not None
        and partial.function.__module__.startswith(
            "tapegrad"
        )  # other tests declare ops of their own
        and not kernels.obstacle(partial.function)
        and kernels.needs_numba(op, operand, "float64")
    }
    assert found == {"angle", "wofz"}


def linked(name: str, op: primitive.Primitive, operand: int, dtype: str) -> Any:
    symbol, code, asks = vectors.compile_kernel("trial", op, operand, dtype)
    part = cache.Part("kernel", symbol, tuple(asks), code)
    address = linker.link(f"trial {name}", [part])["kernel"]
    return ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 8)(address)


@both
@pytest.mark.parametrize(
    "name, operand", [("expit", 0), ("gamma", 0), ("k0", 0), ("gammainc", 1), ("betainc", 2)]
)
def test_kernels_that_call_scipys_functions(
    name: str, operand: int, dtype: str, rng: np.random.Generator
) -> None:
    """In vectors and in what is left over, as the rule by NumPy, at the ends of the domain too."""
    bridge.declare_all()
    op = next(op for op in primitive.OPS if op.name == name)
    partial = op.partials[operand]
    kernel = linked(name, op, operand, dtype)
    for size in (1, 37):
        g, *operands = rng.uniform(0.2, 0.9, size=(4, size)).astype(dtype)
        operands[operand][1:5] = (0, -0.5, np.inf, np.nan)[: size - 1]
        values = dict(zip("xyz", operands, strict=True))
        with np.errstate(all="ignore"):
            values["out"] = np.asarray(op.of(*operands[: op.arity]), dtype)
            names = kernels.arguments_of(partial.function)
            expected = g * partial.function(*(values[k] for k in names))
        adjoint = np.zeros(size, dtype)
        kernel(size, 0, *(a.ctypes.data for a in (g, *values.values(), adjoint)))
        np.testing.assert_allclose(adjoint, expected, rtol=40 * np.finfo(dtype).eps)


@pytest.mark.parametrize(
    "name, operand",
    [
        *[("multiply", 0), ("divide", 1), ("reciprocal", 0), ("sqrt", 0), ("expm1", 0), ("abs", 0)],
        *[("angle", 0), ("arctan", 0), ("arctan2", 0), ("where", 1), ("strong_product", 1)],
        *[("sin", 0), ("cos", 0), ("sinh", 0), ("cosh", 0), ("arcsin", 0), ("arccosh", 0)],
        *[("power", 0), ("power", 1), ("float_power", 1), ("sinc", 0)],
    ],
)
def test_complex_kernels_agree_with_their_rules(
    name: str, operand: int, rng: np.random.Generator
) -> None:
    """In vectors and in what is left over, added and written, also into the cotangent; zeros and infinities among the operands."""
    op = next(op for op in primitive.OPS if op.name == name)
    partial = op.partials[operand]
    kernel = linked(name, op, operand, "complex128")
    for size in (1, 37):
        g, *values, before = rng.normal(size=(6, size, 2)).view(np.complex128)[..., 0].copy()
        g[::5] = 0
        for v in values[::2]:
            v[::7] = 0
            v.imag[2::7] = 0
        values[1][4::11] = complex(0, np.inf)
        with np.errstate(all="ignore"):
            p = np.conj(np.broadcast_to(partial.of(*values), size))
            share = (
                np.where(p != 0, g * p, 0 * p) if partial.chooses else np.where(g != 0, g * p, g)
            )
            expected = share, share + before
        for adds, in_place in ((False, False), (True, False), (False, True)):
            adjoint = g.copy() if in_place else before.copy()
            given = adjoint if in_place else g
            kernel(size, adds, *(v.ctypes.data for v in (given, *values, adjoint)))
            good = np.isfinite(expected[adds])
            np.testing.assert_array_equal(np.isfinite(adjoint), good)
            # The parts of a product cancel, so digits are those of the whole number.
            with np.errstate(invalid="ignore"):
                error, scale = (
                    np.abs((adjoint - expected[adds])[good]),
                    np.abs(share) + np.abs(before),
                )
            assert np.all(error <= 1e-14 * scale[good])


# ---------------------------------------------------------------------------------------------- NumPy's loops

SIZES = (1, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1000, 4097)


def with_loops(ufunc: np.ufunc) -> np.ufunc:
    """A ufunc with our loops, whether or not they are faster."""
    found: dict[str, int] = {}
    for letter in loops.TYPES:
        task = loops._task(ufunc, letter, lambda made: None)
        task = builder.Task(
            task.name, task.depends_on, task.steps, lambda a, reason: found.update(a)
        )
        if not builder.load(task):
            builder.build(task)
    made = loops._wrapped(ufunc, found)
    assert made is not None
    return made


@pytest.fixture(scope="module")
def sine() -> np.ufunc:
    return with_loops(np.sin)


@pytest.mark.parametrize("size", SIZES)
def test_two_operands(size: int, rng: np.random.Generator) -> None:
    """Arrays and single values, and NumPy's warnings."""
    power = with_loops(np.power)
    x, y = rng.uniform(0.1, 3, size), rng.uniform(-3, 3, size)
    for a, b in [(x, y), (x, 2.5), (2.5, y), (x, y[:1]), (x[::-1], y), (x, y[::-1])]:
        assert np.allclose(power(a, b), np.power(a, b), rtol=1e-14)
        a, b = np.asarray(a, np.float32), np.asarray(b, np.float32)
        assert power(a, b).dtype == np.float32 and np.allclose(power(a, b), np.power(a, b), 1e-6)
    x[size // 2] = 0
    for exponent in (np.full(size, -2.5), -2.5):
        with pytest.warns(RuntimeWarning, match="divide by zero encountered in power"):
            got = power(x, exponent)
        with np.errstate(all="ignore"):
            assert np.allclose(got, np.power(x, exponent), rtol=1e-14)


@pytest.mark.parametrize("size", SIZES)
def test_a_quicker_ufunc_is_the_ufunc(sine: np.ufunc, size: int, rng: np.random.Generator) -> None:
    x = rng.normal(size=size) * 10
    for dtype in "dfeFli":
        y = x.astype(dtype) if dtype != "F" else x.astype(dtype) * (0.1 + 0.1j)
        assert sine(y).dtype == np.sin(y).dtype
        assert np.allclose(
            sine(y), np.sin(y), rtol=2e-3 if dtype == "e" else 1e-6 if dtype in "fF" else 1e-14
        )
    in_place = x.copy()
    assert sine(in_place, in_place) is in_place and np.allclose(in_place, np.sin(x), rtol=1e-14)
    overlapping, plain = np.append(x, x), np.append(x, x)
    sine(overlapping[:-1], overlapping[1:])
    np.sin(plain[:-1], plain[1:])
    assert np.allclose(overlapping, plain, rtol=1e-13)
    assert np.allclose(sine(x[::-1]), np.sin(x[::-1]), rtol=1e-14)
    assert np.allclose(sine(x, where=x > 0, out=np.zeros(size)), np.sin(x) * (x > 0), rtol=1e-14)
    read_only = x.copy()
    read_only.flags.writeable = False
    assert np.allclose(sine(read_only), np.sin(x), rtol=1e-14)


def test_a_quicker_ufunc_warns_as_numpy_does(sine: np.ufunc) -> None:
    x = np.ones(1000)
    x[500] = np.inf
    with pytest.warns(RuntimeWarning, match="invalid value encountered in sin"):
        y = sine(x)
    assert np.isnan(y[500]) and np.isfinite(y).sum() == 999
    x[500] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isnan(sine(x)[500])
        sine(np.full(1000, 1e-310))
        sine(np.full(1000, 1e300))


def test_scalars_and_small_arrays_are_numpys(sine: np.ufunc) -> None:
    assert type(sine(1.0)) is np.float64 and sine(1.0) == np.sin(1.0)
    x = np.linspace(-5, 5, loops.SMALLEST - 1)
    assert np.array_equal(sine(x), np.sin(x))


def test_namesakes_are_left_alone() -> None:
    def sin(x: float) -> float:
        return 2 * x

    assert not loops.suits(np.frompyfunc(sin, 1, 1)) and not loops.suits(np.sqrt)
    assert loops.suits(np.sin) and loops.suits(scipy.special.erf)


@pytest.mark.long
def test_every_loop_can_be_loaded() -> None:
    """Of one operand and of two, with an identity and without: hypot's once ended the process."""
    for name in vecmath.FUNCTIONS:
        ufunc = getattr(np, name, None) or getattr(scipy.special, name, None)
        if not loops.suits(ufunc):
            continue
        quicker = loops.load(ufunc)
        assert (quicker is ufunc) == (name in loops.status()["unavailable"])
        x = np.linspace(0.1, 0.9, 1000)
        given = (x,) * ufunc.nin
        if name == "arccosh":
            given = (x + 1,)
        # SciPy's gammaln is exact to an ulp of 1 only, near its zero.
        np.testing.assert_allclose(quicker(*given), ufunc(*given), rtol=2e-15, atol=1e-15)


@pytest.mark.long
def test_large_arrays_get_the_loops_in_the_background(tmp_path: Path) -> None:
    """The values before and after agree to the ulp promised, and nothing imports Numba."""
    program = """
        import sys, time
        import numpy as np
        import tapegrad as tg
        from tapegrad.core import primitive
        from tapegrad.replay import builder
        from tapegrad.replay import quick_loops as loops
        x = tg.tensor(np.linspace(-9, 9, 500_001), requires_grad=True)
        before = tg.sin(x)
        assert not loops.status()["loaded"] and "llvmlite" not in sys.modules
        for _ in range(4):
            tg.sin(x)
        for _ in range(1000):
            time.sleep(0.02)
            if builder.idle():
                break
        after = tg.sin(x)
        quicker = primitive.namespace[f"forward_{tg.sin.primitive.code}"]
        assert "sin" in loops.status()["loaded"], loops.status()
        assert (quicker is not np.sin) == ("sin" not in loops.status()["unavailable"])
        difference = np.abs(after.detach().numpy() - before.detach().numpy())
        assert np.all(difference <= 2 * np.spacing(np.abs(before.detach().numpy())))
        assert tg.sin(tg.tensor(1.0)) == np.sin(1.0)
        assert "numba" not in sys.modules
        print("good")
    """
    import textwrap

    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**os.environ, "TAPEGRAD_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=600,
        cwd=Path(__file__).parent.parent,
    )
    assert result.stdout.strip() == "good", result.stderr


def test_loops_are_asked_for_once_for_a_type(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only for the type that was met: compiling the other one would slow the first second of a script."""
    queued: list[str] = []
    monkeypatch.setattr(builder, "queue", lambda task: queued.append(task.name))
    monkeypatch.setattr(loops, "_asked", set())
    monkeypatch.setattr(loops, "_quick", {})
    op = tg.arctan.primitive
    monkeypatch.setattr(op, "met", 0)
    x = tg.tensor(np.ones(primitive.MANY // 4), requires_grad=True)
    for _ in range(4):
        tg.arctan(x)
    assert not queued and op.met == primitive.MANY
    for _ in range(9):
        tg.arctan(x)
    assert queued == ["loop_arctan_d"]
    primitive.quicken(op, "D")
    primitive.quicken(op, "f")
    primitive.quicken(op, "f")
    assert queued == ["loop_arctan_d", "loop_arctan_f"]


def test_the_switch_turns_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAPEGRAD_VECMATH", "0")
    assert not loops.enabled()
    monkeypatch.delenv("TAPEGRAD_VECMATH")
    assert loops.enabled()
    tg.set_engine("sweep")
    assert not loops.enabled()
    tg.set_engine("auto")


def test_fields_that_are_read_wrongly_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Shifted(loops._Fields):
        _fields_ = (("more", loops.ctypes.c_int64),)

    assert loops._fields(np.sin) is not None
    monkeypatch.setattr(loops, "_Fields", Shifted)
    monkeypatch.setattr(Shifted, "from_address", lambda address: loops._Fields(), raising=False)
    assert loops._fields(np.sin) is None
