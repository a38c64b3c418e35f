"""A slice of the fuzzer with a fixed seed, and the fuzzer itself: it finds what is planted, shortens it, and outlives a crash."""

from __future__ import annotations

import copy
import signal
import subprocess
import sys
import warnings

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.core.primitive import OPS
from tapegrad.native import flow
from tests.fuzz import campaign, coverage, engines, generator, native, shrinker, worker
from tests.fuzz.judge import Unclear, Wrong, same, slope, spread
from tests.fuzz.program import LAYOUTS, Leaf, Program
from tests.seeds import seeds


def states(program, *chosen):
    return {e: s for e, (s, _) in worker.judge(program, list(chosen)).items()}


def wrong(numbers, engine):
    """The number of the first program whose result is wrong (an exception is not what was planted)."""
    for number in numbers:
        state, text = worker.judge(generator.write(number), [engine])[engine]
        if state == "failed" and text.startswith("wrong"):
            return number
    return None


# ------------------------------------------------------------------------------------------------ the slice


@pytest.mark.long
@pytest.mark.parametrize("first", seeds(range(0, 150, 15)))
def test_programs_agree_everywhere(first):
    """NumPy's value, differences, and all engines that are drawn, but replay, whose kernels take long to compile."""
    for number in range(first, first + 15):
        p = worker.program(number)
        chosen = [e for e in worker.drawn(p, []) if e not in ("replay", "adjoint", "overload")]
        for engine, (state, text) in worker.judge(p, chosen).items() if chosen else ():
            assert state != "failed", f"{engine}: {text}\n{p.script()}"


# ------------------------------------------------------------------------------------------------- planted


def op_named(name):
    return next(op for op in OPS if op is not None and op.name == name)


@pytest.mark.parametrize("name", ["sum", "reshape", "transpose"])
def test_a_wrong_rule_is_found(monkeypatch, name):
    op = op_named(name)
    rules = tuple(lambda *a, r=r: None if r(*a) is None else 1.001 * r(*a) for r in op.rules)
    monkeypatch.setattr(op, "rules", rules)
    assert wrong(range(150), "sweep") is not None


@pytest.mark.long
def test_a_store_whose_place_keeps_its_old_gradient_is_found(monkeypatch):
    monkeypatch.setattr(op_named("setitem"), "clears", lambda g, index: None)
    assert wrong(range(150), "sweep") is not None


@pytest.mark.long
@pytest.mark.parametrize("kept", ["memory", "names"])
def test_a_derivative_that_keeps_no_residuals_is_found(monkeypatch, kept):
    """Generated adjoints that do not keep what is overwritten."""
    record = flow.Needs._record

    def careless(self, *given):
        needed = record(self, *given)
        for line in self.lines.values():
            (line.keeps_memory if kept == "memory" else line.keeps).clear()
        return needed

    monkeypatch.setattr(flow.Needs, "_record", careless)
    found = (worker.judge(native.write(n), ["interpreted"])["interpreted"] for n in range(60))
    assert any(state == "failed" and text.startswith("wrong") for state, text in found)


def test_a_store_that_is_lost_is_found():
    """A program whose store does not reach the array, as seen from the library alone."""

    def f(x):
        v = x * 1.0
        if not hasattr(x, "requires_grad"):  # asked for its type, a tensor says it is an array
            v[0] = 2.0
        return v

    case = engines.Case(Program(0, "def f(x):\n    return x\n", [Leaf((3,))]))
    case.f = f
    assert engines.run(engines.program, case)[0] == "failed"


@pytest.mark.parametrize("fault", ["stale", "shared", "typed"])
def test_a_faulty_compiler_is_found(monkeypatch, fault):
    """What a program was traced with stays; results share memory; a type changes."""

    def compiled(f):
        held = []

        def call(*arguments):
            out = np.asarray(f(*(held[0] if held and fault == "stale" else arguments)))
            if fault == "typed":
                return out.astype(np.float32)
            held.append(copy.deepcopy(arguments) if fault == "stale" else out)
            if fault == "shared" and len(held) > 1:
                held[0][...] = out
                return held[0]
            return out

        return call

    monkeypatch.setattr(tg, "compile", compiled)
    p = Program(3, "def f(x):\n    return x * 2.0\n", [Leaf((3,))])
    assert states(p, "program") == {"program": "failed"}


# --------------------------------------------------------------------------------------------------- parts


def test_shrinking_keeps_what_fails():
    def fails(p):
        return "np.tanh" in p.source and "[::-1]" in p.source and "def f" in p.source

    source = (
        "def f(x):\n    a = np.sin(x) * 2\n    if np.sum(a) > 0:\n        b = np.tanh(a[::-1] + np.cos(x))\n"
        "    for i in range(3):\n        a = a * i\n    return a, b\n"
    )
    short = shrinker.shortened(Program(0, source, [Leaf((3,), layout="flipped")]), fails)
    assert fails(short) and len(short.source) < 60 and short.parameters == [Leaf((3,))]


@pytest.mark.long
def test_equal_numbers_are_equal_programs():
    for number in range(20):
        p, q = worker.program(number), worker.program(number)
        assert p.dump() == q.dump() == Program.load(p.dump()).dump()
        for a, b in zip(p.arguments(2, True), q.arguments(2, True), strict=True):
            same(a, b, None, "argument")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 3, 2)])
def test_layouts_keep_values(layout, shape):
    x = np.arange(np.prod(shape), dtype=float).reshape(shape)
    laid = LAYOUTS[layout](x)
    expected = np.broadcast_to(x[:1], shape) if layout == "broadcast" else x
    assert laid.dtype == x.dtype and np.array_equal(laid, expected)


def test_kinks_and_jumps_are_recognised():
    for f in (
        np.abs,
        np.sign,
        np.floor,
        lambda h: np.where(h > 0, h, 2 * h),
        lambda h: abs(h - 1e-4),
    ):
        with pytest.raises(Unclear):
            slope(lambda h, f=f: np.asarray(f(np.float64(h))))
    got, off = slope(lambda h: np.sin(0.3 + h))
    assert abs(got - np.cos(0.3)) < off < 1e-6


def test_points_beside_an_argument_are_laid_as_the_argument():
    """Else a program whose stores depend on the layout would be another program there."""
    source = "def f(x):\n    v = -x\n    v.reshape(-1)[::2] = np.sum(x * x)\n    return v * v\n"
    for layout in ("F", "C", "swapped", "flipped"):
        p = Program(5, source, [Leaf((3, 4), layout=layout)])
        assert set(states(p, "sweep", "second", "forward").values()) == {"passed"}


def test_bounds_count_the_rounding_of_cotangents():
    """The slope of a large product is multiplied by a sum of weights, of which little is left: ulps of the weights, and much of the sum."""
    source = "def f(x):\n    v = np.prod(2.0 * x + 2.0) - np.zeros((12, 12))\n    return v, x\n"
    p = Program(7304000163, source, [Leaf((7,), "float32")])
    assert "failed" not in states(p, "sweep", "replay", "entry").values()
    weights = np.tile([1.0, -1.0], 72)

    def gradient(x):
        return tg.grad(lambda x: np.sum((1e6 * np.sum(x) - np.zeros(144)) * weights))(x)

    x, eps = np.ones(3), 2.0**-52
    assert spread(gradient, [x], gradient(x), eps)[0] > 1e8 * eps


def test_programs_whose_arguments_numpy_writes_are_unclear():
    p = Program(
        2, "def f(x, n):\n    n[0] = 3\n    return x * n\n", [Leaf((3,)), Leaf((3,), "int64")]
    )
    assert set(states(p, "sweep", "program", "tangents", "entries").values()) == {"unclear"}


def test_the_judge_compares_structure_types_and_values():
    x = np.ones(2)
    same({"a": [x]}, {"a": [x]}, [0.0], "")
    for other in (
        {"b": [x]},
        {"a": (x,)},
        {"a": [x[:1]]},
        {"a": [x.astype(np.float32)]},
        {"a": [x + 1e-9]},
    ):
        with pytest.raises(Wrong):
            same(other, {"a": [x]}, [1e-12], "")


@pytest.mark.long
def test_a_crash_is_a_failure_and_the_campaign_goes_on(capsys):
    child = worker.Worker(patience=60.0)
    done = campaign.Campaign(child.ask, shrinking=0.0)
    try:
        died = Program(1, "import os\ndef f(x):\n    os._exit(7)\n", [Leaf((2,))], engines=[])
        done.one({"program": died.dump()})
        done.one({"number": 0})
    finally:
        child.stop()
    assert done.kinds and "exit status 7" in capsys.readouterr().out
    assert done.coverage.programs == 2
    assert "process" in done.coverage.report()


@pytest.mark.long
@pytest.mark.skipif(
    not hasattr(signal, "setitimer"), reason="the system has no timer of processor time"
)
def test_a_program_that_hangs_is_a_failure(monkeypatch):
    child = worker.Worker(patience=60.0)
    monkeypatch.setenv("TAPEGRAD_FUZZ_SECONDS", "1")
    try:
        answer = child.ask(
            program=Program(1, "def f(x):\n    while True: pass\n", [Leaf((2,))]).dump()
        )
    finally:
        child.stop()
    assert answer["states"]["process"][0] == "failed"


def test_every_template_can_be_drawn():
    """None is refused by NumPy wherever it is tried: it would look like coverage."""
    rng = np.random.default_rng(0)
    shapes = [(), (3,), (4,), (3, 3), (2, 3), (4, 4), (2, 3, 2)]
    values = [rng.uniform(0.2, 1, shape) for shape in shapes]

    def drawn(template, a, b):
        try:
            value = eval(template.format("a", b), {"np": np, "tg": tg}, {"a": a, "b": b})
        except Exception:
            return False
        return value is not None and generator.sound(value)

    kept = generator.GUARDED + generator.WHOLE + generator.VIEWS + generator.COPIES
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for template in kept:
            named = template.replace("{1}", "b")
            assert any(drawn(named, a, b) for a in values for b in values), template
        for template in generator.ALONG:
            assert any(drawn(template, a, axis) for a in values for axis in (0, -1)), template


@pytest.mark.long
def test_programs_cover_what_the_fuzzer_is_for():
    met = {x for n in range(200) for x in coverage.features(generator.write(n))}
    assert {f"layout {x}" for x in LAYOUTS} <= met
    assert {
        "statement For",
        "statement While",
        "statement If",
        "statement AugAssign",
        "size zero",
    } <= met
    assert {"type float32", "type float64", "type int64", "type bool", "op np.where"} <= met
    assert {"container dict", "container tuple", "expression Lambda", "op tg.scan"} <= met


@pytest.mark.long
def test_native_programs_agree():
    for number in range(8):
        for engine, (state, text) in worker.judge(native.write(number), ["interpreted"]).items():
            assert state != "failed", f"{engine}: {text}"


@pytest.mark.long
def test_the_command_line_runs_a_program_again():
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", "--program", "4", "--engines", "sweep,interpreted"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "def f(" in done.stdout
