"""Long modules cut into several: each function in one of them, and one native program."""

import re

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.compiler.native import Native
from tapegrad.llvm import jit, modules

TEXT = """@table = internal unnamed_addr constant [1 x double] [double 2.0]
@spare = internal global ptr null
declare ptr @malloc(i64)
define linkonce_odr hidden double @twice(double %x) #0 {
  %t = load double, ptr @table
  %y = fmul double %x, %t
  ret double %y
}
define internal double @first(double %x) #0 {
  %y = call double @twice(double %x)
  ret double %y
}
define internal double @inner(double %x) #0 {
  ret double %x
}
define internal double @second(double %x) #0 {
  %y = call double @first(double %x)
  %z = call double @inner(double %y)
  %w = call double @twice(double %z)
  ret double %w
}
define double @all(double %x) #0 {
  store ptr null, ptr @spare
  %p = call ptr @malloc(i64 8)
  %y = call double @first(double %x)
  %z = call double @second(double %y)
  ret double %z
}
attributes #0 = { nounwind }
"""


def defined(text: str) -> list[str]:
    return re.findall(r"^define[^@\n]*@(\w+)\(", text, re.M)


def test_a_module_is_cut_between_functions():
    """Copies may be in each module; a short function stays with its only caller; variables are in the last."""
    parts = modules.cut(TEXT, size=150, short=100)
    assert [sorted(defined(part)) for part in parts] == [
        ["first", "twice"],
        ["all", "inner", "second", "twice"],
    ]
    assert "define hidden double @first" in parts[0]
    assert "declare hidden double @first(double %x) #0" in parts[1]
    assert "define internal double @inner" in parts[1]
    assert ["@spare = " in part for part in parts] == [False, True]
    assert ["@table = " in part for part in parts] == [True, True]
    assert ["@malloc(" in part for part in parts] == [False, True]
    for part in parts:
        assert jit.optimised(part)


def filtered(x: np.ndarray, A: np.ndarray) -> np.ndarray:
    """Two loops with different steps, and a routine between."""
    for _ in range(60):
        x = np.tanh(A @ x) + 0.1 * x
    x = np.linalg.solve(A + 3.0 * np.eye(len(x)), x)
    for _ in range(50):
        x = x - 0.1 * np.sin(x) * np.exp(-(x**2))
    return np.sum(x**2)


@pytest.mark.parametrize("most", [1000, 10**9])
def test_a_long_program_is_one_native_program_of_several_modules(most, monkeypatch):
    compiled, seen = jit.compiled, []

    def counted(text, *effort):
        if "@piece" in text:
            seen.append(text)
        return compiled(text, *effort)

    monkeypatch.setattr(jit, "MOST", most)
    monkeypatch.setattr(jit, "PART", 5000)
    monkeypatch.setattr(jit, "SHORT", 1000)
    monkeypatch.setattr(jit, "compiled", counted)
    x, A = np.linspace(0.1, 0.5, 5), np.random.default_rng(0).normal(size=(5, 5)) / 3
    f = tg.compile(tg.value_and_grad(filtered, (0, 1)))
    value, gradients = f(x, A)
    expected, wanted = tg.value_and_grad(filtered, (0, 1))(x, A)
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    for ours, eager in zip(gradients, wanted, strict=True):
        np.testing.assert_allclose(ours, eager, rtol=1e-10, atol=1e-14)
    assert isinstance(f.program(x, A).native, Native)
    assert (len(seen) > 2) == (most == 1000)
    names = [name for text in seen for name in defined(text) if name.startswith(("piece", "body"))]
    assert len(names) == len(set(names))
