"""What a profile counts, and that nothing of it stays; what the logger tells, and when.

Seconds are compared with each other only where one is a part of the other.
"""

import json
import logging
import subprocess
import sys
import threading

import numpy as np
import pytest
from scipy.optimize import OptimizeResult

import tapegrad as tg
from tapegrad.help import profiling

X = np.linspace(0.1, 1.0, 1000)


def model(x):
    y = np.sin(x) * 2.0
    return np.sum(y**2)


def counts(p, by="op"):
    return {row.name: row.calls for row in (p.by_op() if by == "op" else p.rows)}


def test_calls_bytes_and_lines_of_each_op():
    with tg.profile() as p:
        for _ in range(3):
            tg.grad(model)(X)
    assert counts(p) == {"sin": 3, "multiply": 3, "power": 3, "sum": 3}
    rows = {row.name: row for row in p.rows}
    first = model.__code__.co_firstlineno
    assert rows["sin"].where.endswith(f"test_profile.py:{first + 1} model")
    assert rows["sum"].where.endswith(f"test_profile.py:{first + 2} model")
    assert rows["sin"].bytes == 3 * X.nbytes and rows["sum"].bytes == 3 * 8
    assert rows["sin"].backward_bytes == 3 * X.nbytes
    assert all(row.forward > 0 and row.backward > 0 for row in p.rows)
    assert sum(row.seconds for row in p.rows) <= p.seconds


def test_sums_by_line_and_by_op_are_those_of_the_rows():
    with tg.profile() as p:
        tg.grad(model)(X)
    for groups in (p.by_line(), p.by_op()):
        assert sum(row.calls for row in groups) == 4
        assert sum(row.seconds for row in groups) == pytest.approx(sum(r.seconds for r in p.rows))
    assert {row.name for row in p.by_line()} == {"sin, multiply", "power, sum"} or len(p.by_line()) == 2  # fmt: skip


@pytest.mark.parametrize("engine", ["sweep", "replay", "auto"])
def test_values_and_gradients_are_those_without_a_profile(engine):
    before = tg.engine()
    plain = tg.value_and_grad(model)(X)
    try:
        tg.set_engine(engine)
        with tg.profile():
            value, g = tg.value_and_grad(model)(X)
            twice = tg.grad(tg.grad(lambda x: x**3))(2.0)
    finally:
        tg.set_engine(before)
    assert value == plain[0] and twice == 12.0
    np.testing.assert_allclose(g, plain[1], rtol=1e-14)


def test_nothing_stays_when_a_profile_ends():
    kinds = {n: v for n, v in vars(tg.Tensor).items()}
    ops = [
        op for op in profiling.OPS[1:] if op.function is not None
    ]  # an entry's rule alone has none
    codes = {op.name: op.function.__code__ for op in ops}
    defaults = {op.name: op.function.__defaults__ for op in ops}
    with pytest.raises(ZeroDivisionError), tg.profile() as outer:
        with tg.profile() as inner:
            tg.grad(model)(X)
        assert profiling.running()
        tg.grad(model)(X)
        raise ZeroDivisionError
    assert not profiling.running()
    assert {n: v for n, v in vars(tg.Tensor).items()} == kinds
    assert {op.name: op.function.__code__ for op in ops} == codes
    assert {op.name: op.function.__defaults__ for op in ops} == defaults
    assert counts(outer)["sin"] == 2 and counts(inner)["sin"] == 1
    before = counts(outer)
    tg.grad(model)(X)
    assert counts(outer) == before


def test_settings_of_ops_reach_them():
    t = tg.tensor(np.ones((2, 3)), requires_grad=True)
    with tg.profile() as p:
        np.testing.assert_array_equal(t.sum(axis=1, keepdims=True).detach(), [[3.0], [3.0]])
        np.testing.assert_array_equal(t.sum(dim=0).detach(), [2.0, 2.0, 2.0])
        np.testing.assert_array_equal(np.concatenate([t, t], axis=1).shape, (2, 6))
        assert (2.0 - t)[0, 0].item() == 1.0 and (t @ t.T).shape == (2, 2)
        with pytest.raises(TypeError):
            t.sum(nothing=1)
    assert {"sum", "concatenate", "subtract", "getitem", "matmul"} <= counts(p).keys()
    assert counts(p)["sum"] == 2


def test_indexed_loops_keep_their_cost():
    """Reads and stores of a region are pulled in place under a profile, too, and are told."""

    def f(x):
        total = 0.0
        for i in range(20):
            total = total + x[i] * x[i + 1]
        return total

    with tg.profile() as p:
        g = tg.grad(f)(X)
    np.testing.assert_allclose(g, tg.grad(f)(X), rtol=1e-13)
    rows = {row.name: row for row in p.by_op()}
    assert rows["getitem"].calls == 40 and rows["getitem"].backward > 0
    assert rows["getitem"].backward_bytes < 40 * X.nbytes


def test_what_a_solver_calls_counts_at_lines_of_the_user():
    """The lines were SciPy's where a residual is made by the library itself."""

    @tg.njit
    def line(t, a):
        return a * t

    with tg.profile() as p:
        tg.curve_fit(lambda t, a: line(t, a), X, X)
        tg.grad(tg.njit(lambda x: x * x))(2.0)
    assert p.rows and all("test_profile.py" in row.where for row in p.rows), p


def squares(v):
    total = 0.0
    for i in range(v.size):
        total += v[i] ** 2
    return total


def test_compiled_and_native_functions_are_rows_of_their_own():
    compiled = tg.compile(tg.grad(model))
    for _ in range(3):
        compiled(X)

    loop = tg.njit(squares)
    with tg.profile() as p:
        for _ in range(2):
            g = compiled(X)
        fresh = tg.compile(model)
        for _ in range(3):
            fresh(X)
        loop(X)
        h = tg.grad(lambda v: loop(v * 2.0))(X)
    calls = counts(p)
    assert calls["compiled model"] == 5 and calls["njit squares"] == 2
    np.testing.assert_allclose(g, tg.grad(model)(X), rtol=1e-13)
    np.testing.assert_allclose(h, 8 * X, rtol=1e-14)
    rows = {row.name: row for row in p.by_op()}
    assert (
        rows["njit squares"].backward > 0 and "native_call" not in rows
    )  # one row, forward and backward
    before = counts(p)
    compiled(X), fresh(X), loop(X)
    assert counts(p) == before


def test_gradients_of_native_functions_are_noted_though_they_need_no_tape():
    """Each call is one, also behind the first, which leaves a shorter way; after the profile that way is open again."""

    loop = tg.njit(squares)
    gradient, both = tg.grad(loop), tg.value_and_grad(loop)
    gradient(X)
    with tg.profile() as p:
        for _ in range(3):
            g = gradient(X)
        value, h = both(X)
    assert all("test_gradients_of_native" in row.where for row in p.rows)
    (row,) = p.by_op()
    assert (row.name, row.calls, row.backward_bytes) == ("njit squares", 4, 4 * X.nbytes)
    assert row.backward > 0
    np.testing.assert_array_equal([g, h], [2 * X, 2 * X])
    np.testing.assert_allclose(value, np.sum(X**2), rtol=1e-13)
    gradient(X), both(X)
    assert p.by_op() == [row]


def chain(x, turns=7):
    for _ in range(turns):
        x = x + 0.1 * np.sin(x)
    return np.sum(np.exp(-x * x))


def factorised(a):
    return np.sum(np.linalg.cholesky(a @ a.T + np.eye(len(a))))


def by_stores(x):
    y = np.zeros(30)
    y[0] = np.sum(x)
    for i in range(1, 30):
        y[i] = 0.9 * y[i - 1] + np.sin(y[i - 1])
    return np.sum(y * y)


def by_numpy(x):
    return np.sum(np.sort(x) * np.arange(float(x.size)))


@pytest.mark.parametrize("checks", [False, True])
def test_each_loop_nest_of_a_compiled_program_has_its_time(checks):
    """Lines, operations and runs are the program's; times are positive and belong to it; the program itself has no clock."""
    from tapegrad.core import checking

    with checking.checked(checks):
        fast = tg.compile(tg.value_and_grad(chain))
        fast(X)  # traced: these are NumPy's roundings
        before = fast(X)
        told = fast.profile(X)
        after = fast(X)
    for old, new in zip(before, after, strict=True):
        np.testing.assert_array_equal(old, new)
    assert "tick" not in fast.ir and "tg_clock" not in fast.ir
    assert all(row.seconds >= 0 and row.runs >= 1 for row in told.rows)
    assert told.rest >= 0 and told.seconds > 0
    assert any("test_profile.py" in row.where and "chain" in row.where for row in told.rows)
    assert any("exp" in row.what for row in told.rows) and any(
        "sin" in row.what for row in told.rows
    )
    assert "the rest" in str(told) and "chain" in str(told) and "<table" in told._repr_html_()


def test_nests_of_loops_and_routines_say_how_often_they_run():
    compiled = tg.compile(lambda x: tg.scan(lambda c, _: (np.sin(c) * c + c, None), x, length=41)[0])  # fmt: skip
    assert 41.0 in [row.runs for row in compiled.profile(X).rows]
    fast = tg.compile(tg.grad(factorised))
    names = [row.what.split(" over ")[0] for row in fast.profile(np.eye(20) + 0.1).rows]
    assert "cholesky" in names and "cholesky_cotangent" in names


def test_a_profile_of_nests_takes_what_a_call_takes():
    """Keywords, tensors, lists of numbers, other layouts, what calls NumPy; errors are those of a call."""
    fast = tg.compile(chain)
    assert fast.profile(X, turns=3).rows
    assert fast.profile(tg.tensor(X)).rows
    assert fast.profile(X[::-1]).rows
    assert tg.compile(by_numpy).profile(X).seconds > 0
    assert tg.compile(tg.value_and_grad(by_stores)).profile(X).rows
    with pytest.raises(tg.TraceError):
        tg.compile(lambda x: x.fill(0.0)).profile(X)
    with pytest.raises(TypeError):
        fast.profile()


def test_nests_that_threads_share_are_counted_once_for_each_block():
    """Threads add to one table at once, and none of their readings is lost: every run of the program has as many."""
    x = np.linspace(0.0, 1.0, 400_000)
    fast = tg.compile(tg.value_and_grad(lambda x: np.sum(np.exp(-x * x) * np.sin(x))))
    rows = fast.profile(x).rows
    assert rows and all(row.runs == int(row.runs) for row in rows)


def test_ops_declared_meanwhile_are_counted():
    from tapegrad.core.primitive import elementwise

    with tg.profile() as p:
        doubled = elementwise(
            lambda x: x + x, lambda x: 2.0, name="doubled_in_profile", method=False
        )
        tg.grad(doubled)(1.0)
    assert counts(p)["doubled_in_profile"] == 1
    assert not doubled.__code__.co_filename.startswith("<tapegrad profile")


@pytest.mark.parametrize("decorate", [tg.profile, lambda f: tg.profile()(f)])
def test_a_decorated_function_adds_up(decorate):
    @decorate
    def step(x, *, scale=1.0):
        return tg.grad(model)(x) * scale

    assert step.__name__ == "step" and repr(step.profile).startswith("<profile: nothing")
    step(X)
    np.testing.assert_allclose(step(X, scale=2.0), 2 * tg.grad(model)(X), rtol=1e-14)
    assert counts(step.profile)["sin"] == 2


def test_the_table_the_notebook_view_and_the_trace(tmp_path):
    with tg.profile() as p:
        tg.grad(model)(X)
    text = p.table()
    assert (text.splitlines()[0].split()[:3] == ["where", "op", "calls"] and "8 kB" in text) or "8000 B" in text  # fmt: skip
    assert "2 more rows" in p.table("op", limit=2) and len(p.table("line").splitlines()) == 4
    assert "<table" in p._repr_html_() and tg.profile()._repr_html_() is None
    with pytest.raises(ValueError, match="'both'"):
        p.table("file")
    p.chrome_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert sorted(e["name"] for e in events) == sorted(2 * ["sin", "multiply", "power", "sum"])
    assert {e["cat"] for e in events} == {"forward", "backward"}
    assert all(e["ph"] == "X" and e["dur"] >= 0 for e in events)


def test_threads_are_counted_and_do_not_disturb():
    def work():
        for _ in range(20):
            tg.grad(model)(X)

    threads = [threading.Thread(target=work) for _ in range(3)]
    with tg.profile() as p:
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert counts(p)["sin"] == 60


def test_anomaly_mode_goes_on_under_a_profile():
    x = tg.tensor(float("nan"), requires_grad=True)
    with pytest.warns(UserWarning), tg.autograd.detect_anomaly(), tg.profile():
        with pytest.raises(tg.GraphError, match="SqrtBackward0"):
            np.sqrt(x).backward()


def test_values_that_were_overwritten_are_told_under_a_profile():
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    with tg.profile():
        y = x * 1.0
        z = np.exp(y)
        z.detach().add_(1.0)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            z.sum().backward()


# ------------------------------------------------------------------------------------------------ logger


@pytest.fixture
def told(caplog):
    with caplog.at_level(logging.INFO, logger="tapegrad"):
        yield lambda: [record.getMessage() for record in caplog.records]


def test_traces_are_told_with_their_reason(told):
    scale = {"by": 2.0}

    def f(x):
        return np.sum(x) * scale["by"] if x[0] > 0 else np.sum(x * x)

    f = tg.compile(f)
    for x in (np.ones(3), np.ones(3), -np.ones(3), np.ones(4)):
        f(x)
    scale["by"] = 3.0
    assert f(np.ones(3)) == 9.0
    first, looked, other, changed = told()
    assert first.startswith("f was traced and compiled in") and first.endswith("the first call")
    assert "a value that Python looks at" in looked and "test_profile.py" in looked
    assert "other types, shapes or constants" in other
    assert "has changed" in changed


def test_derivatives_of_native_functions_are_told(told):
    @tg.njit
    def cube(x):
        return x**3

    tg.grad(cube)(2.0)
    tg.grad(cube)(3.0)
    (message,) = told()
    assert "the derivative of cube by arguments (0,) of types (float64,)" in message


def test_levels():
    logger = logging.getLogger("tapegrad")
    before = logger.level, list(logger.handlers)
    try:
        tg.set_log_level("info")
        assert logger.level == logging.INFO
        tg.set_log_level(15)
        assert logger.level == 15
        tg.set_log_level(None)
        assert logger.level == logging.NOTSET
    finally:
        logger.setLevel(before[0])
        logger.handlers[:] = before[1]


@pytest.mark.long
@pytest.mark.parametrize("level, lines", [("info", 1), ("warning", 0), ("loud", 1)])
def test_the_environment_sets_the_level(level, lines):
    text = "import tapegrad as tg, numpy as np\ntg.compile(np.sin)(np.ones(2))"
    run = subprocess.run(
        [sys.executable, "-c", text],
        env={**__import__("os").environ, "TAPEGRAD_LOG": level},
        capture_output=True,
        text=True,
        check=True,
    )
    messages = [m for m in run.stderr.splitlines() if m.startswith("tapegrad ") or "loud" in m]
    assert len(messages) >= lines and bool(messages) == bool(lines)


# --------------------------------------------------------------------------------------------- callbacks


def test_callbacks_of_scipys_newer_form_get_a_result_with_a_tree():
    start = {"a": 3.0, "b": np.ones(2)}

    def f(p):
        return (p["a"] - 1) ** 2 + np.sum(p["b"] ** 2)

    for method in ("BFGS", "L-BFGS-B", "trust-constr", "SLSQP"):
        seen = []

        def of_result(intermediate_result):
            seen.append(intermediate_result)

        tg.minimize(f, start, method=method, callback=of_result)
        assert seen and isinstance(seen[0], OptimizeResult), method
        assert seen[-1].x.keys() == start.keys() and seen[-1].x["b"].shape == (2,)
        trees = []
        tg.minimize(f, start, method=method, callback=trees.append)
        assert trees[-1].keys() == start.keys()


def test_callbacks_of_fits_get_trees_and_may_stop():
    def f(p):
        return np.stack([p["a"] ** 2 - 1, p["b"]])

    seen = []

    def stop(intermediate_result):
        seen.append(intermediate_result)
        raise StopIteration

    fit = tg.least_squares(f, {"a": 3.0, "b": 1.0}, callback=stop)
    assert len(seen) == 1 and seen[0].x.keys() == {"a", "b"} and seen[0].cost > 0
    assert fit.status == -2
    trees = []
    tg.least_squares(f, {"a": 3.0, "b": 1.0}, callback=lambda x: trees.append(x), progress=False)
    assert trees and trees[-1].keys() == {"a", "b"}


def test_progress_is_tqdms_where_that_is_installed(monkeypatch, capsys):
    import importlib.machinery
    import types

    bars = []

    class Bar:
        def __init__(self, **settings):
            self.told, self.count, self.closed = [], 0, False
            bars.append(self)

        def set_postfix(self, told, refresh):
            self.told.append(told)

        def update(self):
            self.count += 1

        def close(self):
            self.closed = True

    tqdm = types.ModuleType("tqdm")
    tqdm.__spec__ = importlib.machinery.ModuleSpec("tqdm", None)
    tqdm.auto = types.ModuleType("tqdm.auto")
    tqdm.auto.tqdm = Bar
    monkeypatch.setitem(sys.modules, "tqdm", tqdm)
    monkeypatch.setitem(sys.modules, "tqdm.auto", tqdm.auto)
    tg.minimize(lambda x: np.sum((x - 1) ** 2), np.zeros(2), progress=True)
    (bar,) = bars
    assert bar.closed and bar.count == len(bar.told) > 0 and capsys.readouterr().err == ""
    tg.minimize(lambda x: np.sum((x - 1) ** 2), np.zeros(2))
    assert len(bars) == 1


def test_an_op_of_a_lambda_is_timed():
    """Its name cannot be written in a function's definition; what fails while a profile begins leaves nothing behind."""
    from tapegrad.core.primitive import elementwise

    planted = elementwise(lambda x: x * x, lambda x: 2 * x, name="planted_square", method=False)
    with tg.profile() as p:
        assert tg.grad(lambda x: planted(x))(3.0) == 6.0
    assert counts(p)["planted_square"] == 1
    assert not profiling.running()
