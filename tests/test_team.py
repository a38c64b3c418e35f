"""The threads that share a program's loops: they change how long it takes and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.compiler import program, schedule
from tests.suite import in_threads
from tests.test_compiler import agree_as_a_whole, random_program


@pytest.fixture(autouse=True)
def team(monkeypatch):
    """Machine code or an error; the number of threads as it was."""
    monkeypatch.setattr(program, "STRICT", True)
    before = tg.get_num_threads()
    yield
    tg.set_num_threads(before)


def shared(compiled):
    """How many groups of a function's programs are shared."""
    return sum(p.report("").shared for ps in compiled.programs.by_key.values() for p in ps)


def flat(answer):
    value, gradients = answer
    return np.concatenate([np.ravel(x) for x in (value, *gradients)])


def rows(x, w):
    """Sums of every kind: over rows and along them, of a mean that is read by each row, and of neighbours."""
    z = np.tanh(x @ w)
    centred = z - np.mean(z)
    return np.sum(centred[1:] * centred[:-1]) + np.max(z) + np.sum(np.sum(x * x, axis=0) * w)


def long_rows(x, w):
    """A few rows, each long."""
    return np.sum(np.exp(-x * x) * w) + np.sum(np.sum(np.sin(x), axis=0) ** 2)


PLACES = np.random.default_rng(1).integers(0, 500, size=(40_000, 2))


def entries(x, w):
    """Entries at integers, whose cotangents are added where they came from."""
    return np.sum(np.tanh(x[PLACES[:, 0]]) * w[PLACES[:, 1]]) + np.sum(np.abs(np.exp(1j * x)))


def points():
    rng = np.random.default_rng(0)
    return {
        "rows": (rows, rng.normal(size=(30_000, 8)), rng.normal(size=8)),
        "long_rows": (long_rows, rng.normal(size=(3, 50_000)), rng.normal(size=50_000)),
        "entries": (entries, rng.normal(size=(500, 3)), rng.normal(size=(500, 3))),
        "floats": (rows, rng.normal(size=(30_000, 8)).astype("f4"), np.ones(8, "f4")),
    }


@pytest.mark.parametrize("name", points())
def test_the_number_of_threads_changes_no_bit(name):
    f, *point = points()[name]
    both = tg.value_and_grad(f, argnums=(0, 1))
    compiled = tg.compile(both)
    compiled(*point)
    answers = []
    for n in (1, 2, 3, 7):
        tg.set_num_threads(n)
        answers.append(flat(compiled(*point)).tobytes())
        assert len(set(answers)) == 1
    assert shared(compiled) > 0 and "chunks shared by threads" in compiled.source
    agree_as_a_whole(compiled(*point), both(*point))


@pytest.mark.long
def test_random_programs_shared(monkeypatch):
    """Small programs cut as if they were large: eager against one thread and four, over all that the schedule does."""
    monkeypatch.setattr(schedule, "CHUNK", 20)
    monkeypatch.setattr(schedule, "PARTIAL", 1)
    found = 0
    for seed in range(100, 112):
        monkeypatch.setattr(schedule, "SHORT", 64 if seed % 4 == 0 else 0)  # rows at a time, or one
        f, (first, second) = random_program(seed)
        both = tg.value_and_grad(f, argnums=(0, 1))
        compiled = tg.compile(both)
        with np.errstate(all="ignore"):
            compiled(*first)
            answers = set()
            for n in (1, 4):
                tg.set_num_threads(n)
                agree_as_a_whole(compiled(*second), both(*second))
                answers.add(flat(compiled(*second)).tobytes())
        assert len(answers) == 1
        found += shared(compiled)
    assert found > 10


@pytest.mark.long
def test_calls_from_many_threads():
    """The team has one job at a time; the other callers work alone, in memory of their own, whatever its size is just then."""
    f, x, w = points()["rows"]
    compiled = tg.compile(tg.value_and_grad(f, argnums=(0, 1)))
    compiled(x, w)
    expected = [flat(compiled(x + k, w)).tobytes() for k in range(4)]
    wrong = []

    def call(k):
        for i in range(25):
            tg.set_num_threads(1 + (i + k) % 4)
            if flat(compiled(x + k, w)).tobytes() != expected[k]:
                wrong.append((k, i))

    in_threads(*(partial(call, k) for k in range(4)))
    assert not wrong


def test_small_programs_are_not_shared():
    compiled = tg.compile(tg.grad(lambda x: np.sum(np.sin(x))))
    compiled(np.ones(1000))
    assert shared(compiled) == 0 and "call ptr @PyEval_SaveThread()" not in compiled.ir


def test_the_interpreter_lock_is_released():
    f, x, w = points()["rows"]
    compiled = tg.compile(f)
    compiled(x, w)
    assert "call ptr @PyEval_SaveThread()" in compiled.ir


FORKED = """
import os, sys
import numpy as np, tapegrad as tg
tg.set_num_threads(3)
f = tg.compile(tg.value_and_grad(lambda x: np.sum(np.sin(x) * np.exp(x))))
x = np.linspace(0, 1, 200_000)
expected = [f(x) for _ in range(3)][-1]
for _ in range(3):
    child = os.fork()
    if not child:
        got = [f(x) for _ in range(3)][-1]
        os._exit(0 if got[0] == expected[0] and (got[1] == expected[1]).all() else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert f(x)[0] == expected[0]
"""


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_children_hire_their_own():
    """A child of fork has none of the threads that its parent had, and is not held up by them."""
    subprocess.run([sys.executable, "-c", FORKED], check=True)


@pytest.mark.long
@pytest.mark.parametrize("asked", ["1", "3", "1000", "0", "many"])
def test_the_environment_variable(asked):
    code = "import tapegrad as tg; print(tg.get_num_threads())"
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "TAPEGRAD_NUM_THREADS": asked},
        capture_output=True,
        text=True,
        timeout=600,
    )
    if asked.isdigit() and int(asked):
        assert run.stdout.strip() == str(min(int(asked), 64))
    else:
        assert "TAPEGRAD_NUM_THREADS" in run.stderr and "set it to a whole" in run.stderr


def test_numbers_of_threads():
    tg.set_num_threads(np.int64(3))
    assert tg.get_num_threads() == 3
    with pytest.raises(ValueError, match="from 1 on"):
        tg.set_num_threads(0)
    with pytest.raises(TypeError):
        tg.set_num_threads(2.5)
    assert tg.get_num_threads() == 3
