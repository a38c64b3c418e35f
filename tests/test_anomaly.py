"""Anomaly mode, as expectations that PyTorch itself meets, and `debug_nans`, which PyTorch has not.

`TAPEGRAD_SUITE=torch pytest tests/test_anomaly.py` runs the same file on PyTorch, in float64.
"""

from __future__ import annotations

import importlib
import os
import warnings

import numpy as np
import pytest

SUITE = os.environ.get("TAPEGRAD_SUITE", "tapegrad")
tg = importlib.import_module(SUITE)
HERE = SUITE == "tapegrad"
if not HERE:
    tg.set_default_dtype(tg.float64)

autograd = tg.autograd

# NumPy tells of NaN too, and earlier.
pytestmark = pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
only_here = pytest.mark.skipif(not HERE, reason="about tapegrad's own functions")


def leaf(*values):
    return tg.tensor(values[0] if len(values) == 1 else list(values), requires_grad=True)


def anomaly(**settings):
    """Anomaly mode without the warning that it is slow."""
    return autograd.set_detect_anomaly(True, **settings)


def line_of(marked):
    """Number of the line of this file that ends with a comment."""
    with open(__file__) as file:
        return next(n for n, line in enumerate(file, 1) if line.rstrip().endswith(f"# {marked}"))


def root(x):
    return tg.sqrt(x)  # the root


# ------------------------------------------------------------------------------------------------ backward
#
# name, function of a leaf, its values, the node that is to blame.

FAULTS = [
    ("root of a negative", tg.sqrt, (-1.0, 1.0), "SqrtBackward0"),
    ("one branch", lambda x: tg.where(x > 0, x, tg.sqrt(x)), (-1.0, 2.0), "SqrtBackward0"),
    ("infinity times 0", lambda x: x / (x * 0), (1.0, 2.0), "MulBackward0"),
    ("by NaN", lambda x: x / tg.tensor([1.0, float("nan")]), (1.0, 2.0), "DivBackward0"),
    ("a power", lambda x: x**0.5, (-1.0, 1.0), "PowBackward0"),
    ("NaN in the middle", lambda x: tg.exp(x) * float("nan"), (1.0, 2.0), "MulBackward0"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("function", "at", "name"), [pytest.param(*row[1:], id=row[0]) for row in FAULTS]
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_the_node_that_makes_a_nan_is_named(function, at, name):
    with anomaly(), pytest.warns(UserWarning, match=f"Error detected in {name}. Traceback of forward call that caused the error:"):  # fmt: skip
        y = function(leaf(*at)).sum()
        with pytest.raises(RuntimeError, match=rf"Function '{name}' returned nan values in its 0th output\b"):  # fmt: skip
            y.backward()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_the_output_is_counted_by_operand():
    x, y = tg.tensor([1.0]), leaf(float("nan"))
    with anomaly(), pytest.warns(UserWarning, match="Error detected in DivBackward0"):
        with pytest.raises(RuntimeError, match="returned nan values in its 1th output"):
            (x / y).sum().backward()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_an_operand_without_a_gradient_counts():
    class Second(tg.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            return x + y

        @staticmethod
        def backward(ctx, g):
            return None, g * float("nan")

    with anomaly(), pytest.warns(UserWarning, match="Error detected in SecondBackward"):
        with pytest.raises(RuntimeError, match="returned nan values in its 1th output"):
            Second.apply(leaf(1.0), leaf(2.0)).sum().backward()


def test_the_traceback_is_that_of_the_forward_call():
    with anomaly(), pytest.warns(UserWarning) as caught:
        y = root(leaf(float("nan"))).sum()
        with pytest.raises(RuntimeError, match="SqrtBackward0"):
            y.backward()
    text = str(caught[0].message)
    frames = [line.strip() for line in text.splitlines() if line.strip().startswith("File")]
    assert frames[-1] == f'File "{__file__}", line {line_of("the root")}, in root'
    assert "return tg.sqrt(x)" in text
    assert "in test_the_traceback_is_that_of_the_forward_call" in frames[-2]


def test_without_the_forward_call():
    """The mode was off when the entry was recorded."""
    y = tg.sqrt(leaf(float("nan"))).sum()
    with anomaly(), pytest.warns(UserWarning, match="No forward pass information available. Enable detect anomaly during forward pass"):  # fmt: skip
        with pytest.raises(RuntimeError, match="Function 'SqrtBackward0' returned nan"):
            y.backward()


def test_the_mode_counts_when_backward_is_called():
    with anomaly():
        x = leaf(float("nan"))
        y = tg.sqrt(x).sum()
    y.backward()
    assert np.isnan(x.grad.item())


def test_check_nan_can_be_left_out():
    x = leaf(float("nan"))
    with anomaly(check_nan=False):
        tg.sqrt(x).sum().backward()
    assert np.isnan(x.grad.item())


def test_an_error_in_backward_is_traced():
    """Not only NaN: here a graph that was freed."""
    x = leaf(3.0)
    with anomaly():
        y = x * x
        y.backward()
        with pytest.warns(UserWarning, match="Error detected in MulBackward0. Traceback of forward call"):  # fmt: skip
            with pytest.raises(RuntimeError, match="backward through the graph a second time"):
                y.backward()


def test_gradients_are_what_they_are():
    for engine in ("sweep", "auto"):
        if HERE:
            tg.set_engine(engine)
        x = leaf(2.0, 3.0)
        with anomaly():
            y = (tg.exp(x) * x).sum()
            (g,) = autograd.grad(y, x, create_graph=True)
            g.sum().backward()
        np.testing.assert_allclose(
            np.array(x.grad.tolist()), np.exp([2.0, 3.0]) * (np.array([2.0, 3.0]) + 2)
        )


@pytest.mark.parametrize("engine", ["sweep", "auto", "replay"])
def test_what_was_overwritten_tells_where_it_was_recorded(engine):
    """Also where a walk recorded it: then of the walk's call, and of the call that it walked."""
    tg.set_engine(engine)
    try:
        with tg.autograd.set_detect_anomaly(True):
            x = tg.tensor([1.0, 2.0], requires_grad=True)
            y = np.exp(x)
            y.add_(1)
            with (
                pytest.warns(UserWarning, match=r"(?s)Error detected in ExpBackward0.*y = np.exp"),
                pytest.raises(RuntimeError, match="modified by an inplace operation"),
            ):
                y.sum().backward()
            cube = x * x * x
            (slope,) = tg.autograd.grad(cube.sum(), x, create_graph=True)
            with tg.no_grad():
                x.mul_(2)
            with (
                pytest.warns(
                    UserWarning,
                    match=r"(?s)Error detected in \w+. .*slope,\) = .*induced by MulBackward0. .*cube = x",
                ),
                pytest.raises(RuntimeError, match="modified by an inplace operation"),
            ):
                slope.sum().backward()
    finally:
        tg.set_engine("auto")


def test_what_a_walk_recorded_tells_of_the_walk():
    """A NaN in the second derivative: the traceback of the first backward, and of the call before it."""
    with anomaly(), pytest.warns(UserWarning) as caught:
        x = leaf(0.0)
        (g,) = autograd.grad((x**1.5).sum(), x, create_graph=True)
        with pytest.raises(RuntimeError, match=r"Function '\w+' returned nan"):
            autograd.grad(g, x, tg.tensor(float("nan")))
    text = "".join(str(w.message) for w in caught)
    assert "Previous calculation was induced by PowBackward0. Traceback of forward call that induced the previous calculation" in text  # fmt: skip


def test_a_gradient_by_grad_is_checked_too():
    x = leaf(float("nan"))
    with anomaly(), pytest.warns(UserWarning, match="SqrtBackward0"):
        with pytest.raises(RuntimeError, match="SqrtBackward0"):
            autograd.grad(tg.sqrt(x).sum(), x)


# ------------------------------------------------------------------------------------------------ the mode


def test_detect_anomaly_warns_that_it_is_slow():
    with pytest.warns(UserWarning, match="Anomaly Detection has been enabled. This mode will increase the runtime and should only be enabled for debugging"):  # fmt: skip
        mode = autograd.detect_anomaly()
    with mode:
        assert tg.is_anomaly_enabled()
    assert not tg.is_anomaly_enabled()


def test_the_state_can_be_asked():
    assert not tg.is_anomaly_enabled()
    with anomaly():
        assert tg.is_anomaly_enabled()
        assert tg.is_anomaly_check_nan_enabled()
        with autograd.set_detect_anomaly(False):
            assert not tg.is_anomaly_enabled()
        with anomaly(check_nan=False):
            assert not tg.is_anomaly_check_nan_enabled()
        assert tg.is_anomaly_check_nan_enabled()
    assert not tg.is_anomaly_enabled()


def test_as_a_function():
    autograd.set_detect_anomaly(True)
    assert tg.is_anomaly_enabled()
    autograd.set_detect_anomaly(False)
    assert not tg.is_anomaly_enabled()


def test_an_error_ends_the_mode():
    with pytest.raises(KeyError):
        with anomaly():
            raise KeyError
    assert not tg.is_anomaly_enabled()


@pytest.mark.parametrize("enter", ["grad modes inside", "inside grad modes", "by function"])
def test_together_with_grad_modes(enter):
    """However they are nested, an entry recorded while the mode is on has its traceback."""
    x = leaf(float("nan"))
    if enter == "grad modes inside":
        with anomaly():
            with tg.no_grad(), tg.enable_grad():
                y = tg.sqrt(x)
            with tg.no_grad():
                tg.sqrt(x)
    elif enter == "inside grad modes":
        with tg.no_grad(), tg.enable_grad(), anomaly():
            y = tg.sqrt(x)
    else:
        with tg.enable_grad():
            autograd.set_detect_anomaly(True)
        y = tg.sqrt(x)
        autograd.set_detect_anomaly(False)
    with anomaly(), pytest.warns(UserWarning, match="Traceback of forward call that caused"):
        with pytest.raises(RuntimeError):
            y.sum().backward()


# ------------------------------------------------------------------------------------------------ here alone


@pytest.mark.long
@only_here
def test_off_it_costs_nothing():
    """The recorder is the tape's own again, and traces of dead entries do not pile up."""
    from tapegrad.autograd import anomaly_mode
    from tapegrad.core import sweep, tape

    with anomaly():
        x = leaf(1.0)
        before = len(anomaly_mode._traces)
        for _ in range(10):
            for _ in range(1000):
                x * 2
            tg.current_tape().sweep()
    leaf(1.0) * 2
    assert type(tape.RECORDER.get()).__name__ == "builtin_function_or_method"
    assert sweep.GUARD.get() is None
    assert len(anomaly_mode._traces) < 2 * before + 5000


@only_here
def test_transforms_are_traced_too():
    with anomaly(), pytest.warns(UserWarning) as caught:
        with pytest.raises(RuntimeError, match="SqrtBackward0"):
            tg.grad(lambda x: root(x).sum())(np.full(2, np.nan))
    assert f"line {line_of('the root')}, in root" in str(caught[0].message)


@only_here
def test_the_warning_points_at_the_call():
    with anomaly(), pytest.warns(UserWarning) as caught:
        with pytest.raises(RuntimeError):
            tg.sqrt(leaf(float("nan"))).sum().backward()
    assert caught[0].filename == __file__


@only_here
def test_warnings_may_be_errors():
    with anomaly(), warnings.catch_warnings(action="error"):
        with pytest.raises(UserWarning, match="Error detected in SqrtBackward0"):
            tg.sqrt(leaf(float("nan"))).sum().backward()


# name, function, leaf, key phrases of the message

NANS = [
    ("log of a negative", tg.log, (2.0, -1.0), ["log made nan at [1] of a result of shape (2,)", "x = -1.0 there", "a leaf"]),
    ("further down", lambda x: tg.sqrt(x - 2), (2.0, 1.0), ["sqrt made nan at [1]", "x = -1.0 there", "the result of subtract"]),
    ("0/0", lambda x: x / (x * 0), (0.0,), ["divide made nan", "y = 0.0", "the result of multiply"]),
    ("overflow", lambda x: tg.exp(x * 1000), (1.0, 2.0), ["exp made inf at [0]", "2 of 2 elements are not finite"]),
    ("a constant", lambda x: x + np.inf, (1.0, 2.0), ["add made inf", "a constant, not finite itself"]),
    ("a reduction", lambda x: (x * 1e308).sum(), (1.0, 1.0), ["sum made inf", "x = float64[2], the result of multiply"]),
    ("variadic", lambda x: tg.stack([x, tg.tensor([np.nan])]), (1.0,), ["stack made nan at [1, 0]", "xs[1] = float64[1], a constant, not finite itself"]),
    ("a big one", lambda x: tg.log(tg.zeros(5000) + x), (-1.0,), ["log made nan at [0] of a result of shape (5000,)", "x = -1.0 there"]),
    ("a big one whose value no rule needs", lambda x: tg.zeros(5000) + x * np.inf, (1.0,), ["multiply made inf"]),
    ("a big sum", lambda x: np.full(5000, np.inf) + x, (1.0,), ["add made inf at [0] of a result of shape (5000,)"]),
]  # fmt: skip


@only_here
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    ("function", "at", "phrases"), [pytest.param(*row[1:], id=row[0]) for row in NANS]
)
def test_debug_nans(function, at, phrases):
    x = leaf(*at) if len(at) > 1 else leaf(list(at))
    with tg.debug_nans(), pytest.raises(FloatingPointError) as caught:
        function(x)
    text = str(caught.value)
    for phrase in phrases:
        assert phrase in text, text
    assert f"{__file__}, line" in text
    function(x)  # off again


@only_here
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_debug_nans_settings():
    x = leaf(0.0, 1.0)
    with tg.debug_nans(inf=False):
        y = 1 / x
        with pytest.raises(tg.NotFinite, match="multiply made nan"):
            y * 0
        with tg.debug_nans(), pytest.raises(tg.NotFinite, match="divide made inf"):
            1 / x
        1 / x

    @tg.debug_nans()
    def inverse(x):
        return 1 / x

    with pytest.raises(tg.NotFinite):
        inverse(x)
    with tg.debug_nans(), tg.no_grad(), tg.enable_grad(), pytest.raises(tg.NotFinite):
        1 / x
    with tg.debug_nans(), pytest.raises(tg.NotFinite):
        tg.grad(lambda x: (1 / x).sum())(np.zeros(2))
    with tg.debug_nans(), tg.no_grad():
        1 / x  # not recorded, not looked at
    with anomaly(), tg.debug_nans():
        autograd.set_detect_anomaly(False)
        with pytest.raises(tg.NotFinite):
            1 / x


@only_here
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_debug_nans_looks_at_derivatives_that_are_recorded():
    x = leaf(0.0)
    y = tg.sqrt(x)
    with tg.debug_nans(), pytest.raises(tg.NotFinite, match="divide made inf"):
        autograd.grad(y, x, create_graph=True)


def test_the_example_of_the_docstring():
    """A Function whose backward fails: the traceback tells where it was applied."""

    class MyFunc(autograd.Function):
        @staticmethod
        def forward(ctx, inp):
            return inp.clone()

        @staticmethod
        def backward(ctx, gO):
            raise RuntimeError("Some error in backward")

    def run_fn(a):
        out = MyFunc.apply(a)  # applied here
        return out.sum()

    inp = tg.ones(10, 10, requires_grad=True)
    with pytest.raises(RuntimeError, match="Some error in backward"):
        run_fn(inp).backward()
    with anomaly(), pytest.warns(UserWarning, match="Error detected in MyFuncBackward. Traceback") as caught:  # fmt: skip
        out = run_fn(inp)
        with pytest.raises(RuntimeError, match="Some error in backward"):
            out.backward()
    assert f"line {line_of('applied here')}, in run_fn" in str(caught[0].message)


def test_threads_are_traced_where_they_record():
    """Each thread switches the mode on for itself; PyTorch's mode is the process's, and is left on meanwhile."""
    import threading

    found = []

    def job():
        with anomaly(), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            y = root(leaf(float("nan"))).sum()
            try:
                y.backward()
            except RuntimeError as error:
                found.append((str(error), len(caught)))

    thread = threading.Thread(target=job)
    thread.start()
    thread.join()
    assert "SqrtBackward0" in found[0][0]
