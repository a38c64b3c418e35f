"""Checked mode: faults planted in generated code are found and named, and right programs run in silence."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.compiler import native, nesting, places, sanitizer
from tapegrad.core import checking
from tapegrad.errors import CheckedAccessError

X = np.arange(1.0, 36.0).reshape(5, 7) / 8


@pytest.fixture(autouse=True)
def mode() -> Iterator[None]:
    with checking.checked():
        yield


def change(monkeypatch: pytest.MonkeyPatch, found: str, instead: str | Callable) -> list[int]:
    """Plant a fault: the text of programs is another than the emitter's. How often it was changed tells whether it was planted at all."""
    counts: list[int] = []
    whole = native._declared_once

    def changed(text: str) -> str:
        text, n = re.subn(found, instead, whole(text), count=1, flags=re.M)
        counts.append(n)
        return text

    monkeypatch.setattr(native, "_declared_once", changed)
    return counts


def called(f, *args, calls: int = 3):
    """The result of a compiled function's later call."""
    compiled = tg.compile(f)
    for _ in range(calls):
        result = compiled(*args)
    return result


def test_right_programs_are_silent():
    """What the programs below are without their faults."""
    y = called(lambda x: np.exp(x).T[::2] * 2.0 + np.sum(x, axis=1), X)
    np.testing.assert_allclose(y, np.exp(X).T[::2] * 2.0 + np.sum(X, axis=1), rtol=1e-14)
    np.testing.assert_allclose(called(partly_stored, X), partly_stored(X), rtol=1e-14)
    assert called(tg.grad(grown), 1.1) == pytest.approx(tg.grad(grown)(1.1), rel=1e-12)


def partly_stored(x):
    v = (x * 1.0).T
    v[[0, 2]] *= 0.5
    return v


def grown(x):
    """The derivative keeps what each turn was given, in rows that grow."""
    return tg.while_loop(lambda s: s < 900.0, lambda s: s * x + 0.01 * np.sin(s * x), 1.0 + x)


def test_wrong_stride(monkeypatch):
    strides = places.Memory.strides

    def wider(self, op):
        """A buffer that is read and written as if its rows were longer."""
        found = strides(self, op)
        return (found[0] + 1, *found[1:]) if op.kind == "input" and len(found) == 2 else found

    monkeypatch.setattr(places.Memory, "strides", wider)
    with pytest.raises(CheckedAccessError, match=r"at byte \d+ of argument 0, which has 280 bytes"):
        called(lambda x: np.sum(np.exp(x), axis=1), X)


def test_forgotten_store(monkeypatch):
    counts = change(monkeypatch, r"^  store (double|<\d+ x double>) .*\n", "")
    with pytest.raises(CheckedAccessError, match="result 0 .* without a value at byte 0"):
        called(lambda x: np.exp(x) * 2.0, X)
    assert counts[0] == 1


def test_off_by_one_extent(monkeypatch):
    counts = change(monkeypatch, r"(= icmp slt i64 %n\d+, )4096$", r"\g<1>4097")
    with pytest.raises(CheckedAccessError, match=r"at byte 32768 of \w+ 0, which has 32768 bytes"):
        called(lambda x: np.exp(x) * 2.0, np.linspace(0.0, 1.0, 4096))
    assert counts[0] == 1


def test_partial_store_into_a_transposed_buffer(monkeypatch):
    """A region that is written by strides which are not the buffer's."""
    strides = places.Memory.strides

    def transposed(self, op):
        found = strides(self, op)
        mine = op.kind not in ("input", "array") and len(found) == 2
        return (1, self.shape(op)[0] + 2) if mine else found

    monkeypatch.setattr(places.Memory, "strides", transposed)
    with pytest.raises(CheckedAccessError, match=r"result 0|memory of"):
        called(partly_stored, X)


def test_residual_never_written(monkeypatch):
    """A turn keeps its row where the last turn had its own."""
    text = nesting.Module.text

    def kept_wrongly(self):
        changed, n = re.subn(r"(%y\d+ = getelementptr i8, ptr %base\d+, i64) %to\d+", r"\1 0", text(self))  # fmt: skip
        counts.append(n)
        return changed

    counts: list[int] = []
    monkeypatch.setattr(nesting.Module, "text", kept_wrongly)
    with pytest.raises(CheckedAccessError, match=r"never written: byte \d+ of (a row|kept rows)"):
        called(tg.grad(grown), 1.1)
    assert max(counts) > 0


def test_scratch_memory_too_small(monkeypatch):
    """A buffer that is announced as large as its values are, in memory that has no room for it."""
    counts = change(monkeypatch, r"alloca \[(\d+) x i8\]", "alloca [64 x i8]")
    with pytest.raises(CheckedAccessError, match=r"of a variable of tg_run, which has 64 bytes"):
        called(
            lambda x: np.exp(x - np.max(x, axis=0)) / np.sum(np.exp(x), axis=1, keepdims=True), X
        )
    assert counts[0] == 1


@pytest.mark.parametrize("n", [6, 40])
def test_wrong_extent_of_a_matrix(monkeypatch, n):
    """Routines of ours for small systems, LAPACK for large ones: both are told that there is one row more."""
    text = nesting.Module.text

    def one_more(self):
        return re.sub(rf"(%ok\d+ = call i32 @tg_.*?)i64 {n}\b", rf"\1i64 {n + 1}", text(self))

    a, b = np.eye(n) + 0.1, np.ones(n)
    np.testing.assert_allclose(called(np.linalg.solve, a, b), np.linalg.solve(a, b), rtol=1e-12)
    monkeypatch.setattr(nesting.Module, "text", one_more)
    with pytest.raises(CheckedAccessError, match=r"reached for \d+ bytes .* in tg_\w+_double: "):
        called(np.linalg.solve, a, b)


def test_next_call_is_not_blamed(monkeypatch):
    """The record is empty again after an error."""
    change(monkeypatch, r"^  store (double|<\d+ x double>) .*\n", "")
    compiled = tg.compile(lambda x: np.exp(x) * 2.0)
    compiled(X)  # traced
    for _ in range(2):
        with pytest.raises(CheckedAccessError, match="without a value"):
            compiled(X)


def test_nothing_is_written_outside(monkeypatch):
    """A store that would leave its buffer is not made."""
    change(monkeypatch, r"(= icmp slt i64 %n\d+, )4096$", r"\g<1>5000")
    owner = np.zeros(6000)
    compiled = tg.compile(lambda x: np.exp(x) * 2.0)
    compiled(owner[:4096])
    with pytest.raises(CheckedAccessError):
        compiled(owner[:4096])
    assert not owner[4096:].any()


def test_unannounced_memory_is_refused():
    text = "define internal void @body(ptr %x) #0 {\nentry:\n  ret void\n}\ndefine dso_local i32 @tg_run(ptr %t) #0 {\nentry:\n"
    text += "  %v = load double, ptr %t\n  ret i32 1\n}\n"
    with pytest.raises(ValueError, match="nobody announced"):
        sanitizer.Instrumented(text)


def test_text_is_the_same_without_it():
    """Nothing is announced with checks off: programs are those that they were."""
    with checking.checked(False):
        assert sanitizer.buffer("%x", 8, 8, "x") == sanitizer.said("at x") == []
        plain = tg.compile(lambda x: np.exp(x) * 3.0)
        plain(X)
    checked = tg.compile(lambda x: np.exp(x) * 3.0)
    checked(X)
    (a,), (b,) = map(texts, (plain, checked))
    assert ";!" not in a and ";!" in b
    assert a == "\n".join(line for line in b.splitlines() if not line.startswith("  ;!")) + "\n"


def texts(compiled):
    programs = [p for found in compiled.programs.by_key.values() for p in found]
    return [native.text for program in programs for native in program.natives]


@pytest.mark.long
def test_variable_turns_it_on(tmp_path: Path):
    """In another process, by the variable; what it keeps on disk is not what this one keeps."""
    code = "import numpy as np, tapegrad as tg; from tapegrad import checking; f = tg.compile(np.exp); f(np.ones(3)); print(checking.on())"
    env = dict(os.environ, TAPEGRAD_CACHE_DIR=str(tmp_path))
    files = []
    for value, said in (("", "False"), ("1", "True"), ("0", "False")):
        run = subprocess.run(
            [sys.executable, "-c", code],
            env=env | {checking.VARIABLE: value},
            capture_output=True,
            text=True,
            check=True,
        )
        assert run.stdout.strip() == said
        files.append({p.name for p in tmp_path.rglob("program-*.bin")})
    assert files[0] < files[1] == files[2]


# ------------------------------------------------------------------------------------------- derivatives of tg.njit


def stepped(x, n):
    """The reverse puts back what each pass overwrites, from a stack."""
    y = np.empty(x.size)
    for i in range(x.size):
        y[i] = x[i]
    for _ in range(n):
        for i in range(1, x.size):
            if y[i] > 0.1:
                y[i] = np.sin(y[i - 1]) * y[i]
    return np.sum(y * y)


def plant(monkeypatch: pytest.MonkeyPatch, found: str, instead: str) -> list[int]:
    """A fault in the text of adjoints."""
    from tapegrad.native import sanitizer as native_sanitizer

    counts: list[int] = []
    whole = native_sanitizer.instrumented

    def changed(source: str, name: str):
        source, n = re.subn(found, instead, source, count=1, flags=re.M)
        counts.append(n)
        return whole(source, name)

    monkeypatch.setattr(native_sanitizer, "instrumented", changed)
    return counts


N = np.array([0.9, 0.3, 1.2, 0.7, 0.2])


@pytest.mark.long
@pytest.mark.usefixtures("generated_adjoint")
def test_right_adjoints_are_silent():
    f = tg.njit(stepped)
    value, gradient = tg.value_and_grad(f)(N, 3)
    with checking.checked(False):
        plain, expected = tg.value_and_grad(tg.njit(stepped))(N, 3)
    assert f.latest.source.startswith("def stepped_adjoint")  # not the second engine
    np.testing.assert_allclose((value, *gradient), (plain, *expected), rtol=1e-14)
    np.testing.assert_allclose(tg.jvp(lambda x: f(x, 3), (N,), (N,))[1], expected @ N, rtol=1e-14)


@pytest.mark.long
@pytest.mark.usefixtures("generated_adjoint")
def test_value_never_kept(monkeypatch):
    """The line that keeps a value on the stack is missing."""
    counts = plant(monkeypatch, r"^ *floats\[at\(nf\)\] = .*\n", "")
    with pytest.raises(CheckedAccessError, match=r"stepped read what was never written, at `y\["):
        tg.grad(tg.njit(stepped))(N, 3)
    assert counts[0] == 1


@pytest.mark.long
@pytest.mark.usefixtures("generated_adjoint")
def test_cotangent_without_values(monkeypatch):
    counts = plant(monkeypatch, r"zeros_like\(x\)", "np.empty(x.size)")
    with pytest.raises(CheckedAccessError, match=r"left \d numbers of result 1 \(x_bar\)"):
        tg.grad(tg.njit(stepped))(N, 3)
    assert counts[0] == 1


def beyond(x, n):
    s = 0.0
    for i in range(n):
        s += 2.0 * x[i]  # the line to be named
    return s


def before(x, n):
    return x[n] * 3.0


@pytest.mark.parametrize(("f", "n", "line"), [(beyond, 6, 3), (before, -6, 1)])
def test_index_outside_names_the_users_line(f, n, line):
    told = rf"out of bounds for an axis of length 5.*, line {f.__code__.co_firstlineno + line}: x\["
    with pytest.raises(IndexError, match=told):
        tg.grad(tg.njit(f))(N, n)


@pytest.mark.long
@pytest.mark.usefixtures("generated_adjoint")
def test_adjoint_that_reaches_outside(monkeypatch):
    """A fault of the generated code alone: the primal stays inside."""
    counts = plant(monkeypatch, r"y_bar\[i_2 - 1\] \+=", "y_bar[i_2 + 1] +=")
    with pytest.raises(IndexError, match="index 5 is out of bounds .* the derivative of stepped"):
        tg.grad(tg.njit(stepped))(N, 3)
    assert counts[0] == 1


@pytest.mark.long
def test_derivatives_are_kept_apart(tmp_path: Path):
    """Neither the user's function nor its adjoint is taken from what the other mode kept on disk."""
    file = tmp_path / "program.py"
    file.write_text(
        "import numpy as np, tapegrad as tg\n"
        "@tg.njit\ndef f(x, n):\n    s = 0.0\n    for i in range(n):\n        s += x[i] * x[i]\n    return s\n"
        "x = np.zeros(100)[:3]\n"
        "try:\n    f(x, 4), tg.grad(f)(x, 4)\n    print('unchecked')\n"
        "except IndexError:\n    print('checked')\n"
    )
    for value, said in (("", "unchecked"), ("1", "checked"), ("", "unchecked"), ("1", "checked")):
        run = subprocess.run(
            [sys.executable, str(file)],
            env=dict(os.environ, TAPEGRAD_CACHE_DIR=str(tmp_path)) | {checking.VARIABLE: value},
            capture_output=True,
            text=True,
            check=True,
        )
        assert run.stdout.strip() == said
