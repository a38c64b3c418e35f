"""check_gradient and check_adjoint: they find what is planted, name it, and leave what is right alone."""

import itertools
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import tapegrad as tg
from bench.faults import faults
from tapegrad.__main__ import main
from tapegrad.check import estimates, probing
from tapegrad.check.findings import page
from tapegrad.errors import GradcheckError

rng = np.random.default_rng(0)
A = rng.normal(size=(5, 5))
A = A @ A.T
X = rng.normal(size=5)


def f(x):
    return 0.5 * x @ A @ x + np.sum(np.sin(x))


def g(x):
    return A @ x + np.cos(x)


# ------------------------------------------------------------------------------------------ what is planted


@pytest.mark.parametrize("fault", faults(), ids=lambda fault: fault.name.replace(" ", "-"))
def test_names_each_planted_fault(fault):
    """The table of the guide: verdict, and words that tell this fault from the others."""
    check = tg.check_gradient(fault.f, fault.x, gradient=fault.gradient)
    assert check.verdict == fault.verdict
    assert fault.word in str(check)
    others = [other.word for other in faults() if other.word not in (fault.word, "slopes run")]
    assert not any(word in check.explanation for word in others)


@pytest.mark.parametrize("method", ["differences", "richardson", "complex", "taylor"])
def test_every_method_tells_right_from_wrong(method):
    assert tg.check_gradient(f, X, gradient=g, method=method, digits=5).verdict == "right"
    wrong = tg.check_gradient(f, X, gradient=lambda x: 1.01 * g(x), method=method, digits=5)
    assert wrong.verdict == "wrong" and not wrong.ok


def test_complex_step_has_all_digits_and_knows_where_it_may_not_be_used():
    check = tg.check_gradient(f, X, gradient=g, method="complex")
    assert min(c.resolved for c in check.components) > 13 and check.method == "complex"
    check = tg.check_gradient(lambda x: np.sum(np.abs(x) ** 3), X, method="complex")
    assert check.verdict == "right" and "no complex step here" in check.notes[0]
    check = tg.check_gradient(
        lambda x: float(x[0]) ** 2, X[:1], gradient=2 * X[:1], method="complex"
    )
    assert check.verdict == "right" and "no complex step here" in check.notes[0]


@pytest.mark.long
def test_taylor_orders():
    """1 without the gradient, 2 with it, 3 with the Hessian; 1 with a wrong gradient, 2 with a wrong Hessian."""
    check = tg.check_gradient(f, X, gradient=g, method="taylor", hessian=True)
    for line in check.taylor:
        assert line.orders == pytest.approx((1, 2, 3), abs=0.2)
    check = tg.check_gradient(f, X, gradient=lambda x: 2 * g(x), method="taylor")
    assert all(line.orders[1] == pytest.approx(1, abs=0.2) for line in check.taylor)
    check = tg.check_gradient(f, X, gradient=g, method="taylor", hessian=lambda x: 2 * A)
    assert check.verdict == "wrong" and "Hessian is wrong" in check.explanation
    linear = tg.check_gradient(lambda x: np.sum(x), X, method="taylor")
    assert all(line.orders[1] == np.inf for line in linear.taylor)


@pytest.mark.long
def test_forgotten_terms_are_named():
    terms = {
        "1/10 * x ": lambda x: 0.05 * np.sum(x**2),
        "3 in every": lambda x: 3 * np.sum(x),
        "1/5 * (x minus each neighbour)": lambda x: 0.1 * np.sum(np.diff(x) ** 2),
        "2 * sign(x)": lambda x: 2 * np.sum(np.abs(x)),
    }
    for words, term in terms.items():
        check = tg.check_gradient(lambda x, term=term: f(x) + term(x), X, gradient=g)
        assert f"lacks {words}" in check.explanation


@pytest.mark.long
def test_many_parameters_cost_as_much_as_few_and_the_wrong_one_is_found():
    n = 20_000
    x = rng.normal(size=n)

    def waves(x):
        return np.sum(np.sin(x) * x)

    right = tg.check_gradient(waves, x)
    assert right.verdict == "right" and right.evaluations < 150

    def one_wrong(x):
        y = np.sin(x) + x * np.cos(x)
        y[12345] *= 3
        return y

    check = tg.check_gradient(waves, x, gradient=one_wrong)
    assert check.explanation.startswith("only x[12345] is wrong, 3 times")
    assert check.evaluations < 1500
    shifted = tg.check_gradient(waves, x, gradient=lambda x: np.roll(np.sin(x) + x * np.cos(x), -1))
    assert "one after it" in shifted.explanation


def test_kink_among_many_is_found():
    x = np.arange(1.0, 301.0)
    x[77] = 0
    check = tg.check_gradient(lambda x: np.sum(np.abs(x) * np.arange(300)), x)
    assert check.verdict == "not smooth" and check.worst.name == "x[77]"


# ------------------------------------------------------------------------------------------ what is right

# fmt: off
HARD_BUT_RIGHT = {
    "waves of 1e-4":    (lambda x: np.sum(np.sin(1e4 * x)), rng.normal(size=3)),
    "waves of 1e-6":    (lambda x: np.sum(np.sin(1e6 * x)), rng.normal(size=3)),
    "steep exp":        (lambda x: np.sum(np.exp(200 * x)), np.array([0.5, 0.51])),
    "beside a pole":    (lambda x: np.sum(np.log(x - 0.999999)), np.ones(2)),
    "tan at its pole":  (lambda x: np.sum(np.tan(x)), np.array([1.5707])),
    "sqrt near 0":      (lambda x: np.sum(np.sqrt(x)), np.array([1e-12, 1e-6, 1.0])),
    "minimum":          (lambda x: np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2), np.ones(4)),
    "flat minimum":     (lambda x: np.sum(x**4), np.zeros(3)),
    "constant":         (lambda x: 0 * np.sum(x) + 3.0, np.ones(2)),
    "linear":           (lambda x: np.sum(x * np.arange(4.0)), rng.normal(size=4)),
    "cancelling":       (lambda x: (1e5 + np.sum(x**2)) - 1e5, rng.normal(size=2)),
    "beside a kink":    (lambda x: np.sum(np.maximum(x, 0)), np.array([1e-3, -1e-5, 1.0])),
    "power 1.5":        (lambda x: np.sum(np.abs(x) ** 1.5), np.array([0.0, 1.0])),
    "nearly a kink":    (lambda x: np.sum(np.sqrt(x**2 + 1e-12)), np.array([0.0, 1.0])),
    "tiny values":      (lambda x: 1e-200 * np.sum(x**2), rng.normal(size=2)),
    "huge values":      (lambda x: 1e200 * np.sum(x**2), rng.normal(size=2)),
    "eigenvalue":       (lambda x: np.linalg.eigvalsh(x + x.T)[0], rng.normal(size=(3, 3))),
    "solve":            (lambda x: np.sum(np.linalg.solve(x, np.ones(3))), rng.normal(size=(3, 3)) + 3 * np.eye(3)),
    "vector-valued":    (lambda x: np.cumsum(np.sin(x)), rng.normal(size=4)),
    "complex point":    (lambda z: np.sum(np.abs(z) ** 2), rng.normal(size=2) + 1j),
    "float":            (lambda x: x**3, 2.0),
    "tensor":           (lambda t: (t * t).sum(), tg.tensor([1.0, 2.0])),
}
# fmt: on


@pytest.mark.parametrize("name", HARD_BUT_RIGHT)
def test_right_gradients_of_hard_functions_pass(name):
    """tapegrad's own gradient is right, and a checker that calls it wrong would be no help."""
    function, x = HARD_BUT_RIGHT[name]
    assert tg.check_gradient(function, x).assert_ok().ok


# fmt: off
ROUGH = {
    "kink":   (lambda x: np.sum(np.abs(x)), "kink: the slope is -1 on the left and 1 on the right"),
    "jump":   (lambda x: np.sum(np.floor(x)), "jump of 1"),
    "root":   (lambda x: np.sum(np.cbrt(x)), "slope grows without bound"),
    "edge":   (lambda x: np.sum(np.sqrt(x)), "edge of the domain: f is not finite below"),
}
# fmt: on


@pytest.mark.parametrize("name", ROUGH)
def test_rough_points_are_named(name):
    function, words = ROUGH[name]
    check = tg.check_gradient(
        function, np.array([1.5, 0.0, 2.5]), gradient=np.array([1.0, 1.0, 1.0])
    )
    rough = [c for c in check.components if c.verdict == "not smooth"]
    assert [c.name for c in rough] == ["x[1]"]
    assert words in rough[0].note


@pytest.mark.long
def test_noise_levels_are_measured():
    for level in (1e-4, 1e-8, 1e-12):
        noise = np.random.default_rng(1)
        check = tg.check_gradient(
            lambda x, noise=noise, level=level: f(x) + level * noise.normal(), X, gradient=g
        )
        assert level / 5 < check.level < 5 * level
    assert check.verdict == "right"  # 1e-12 hides none of six digits


def test_estimates_bound_their_errors():
    """On functions with known slopes the error is within ten times the bound."""
    for function, slope in ((np.exp, 1.0), (np.sin, 1.0), (lambda t: 1 / (1.1 - t), 1 / 1.21)):
        probe = probing.Probe(
            lambda t, function=function: np.atleast_1d(function(t)),
            np.atleast_1d(function(0.0)),
            np.array([2e-16]),
        ).complete()
        for estimate in (estimates.differences, estimates.richardson):
            e = estimate(probe.curves(0))
            assert abs(e.value - slope) <= 10 * e.error and e.error < 1e-8


# ------------------------------------------------------------------------------------------ arguments, results


def test_names_follow_the_structure_and_the_signature():
    def model(params, t):
        return params["a"] * np.exp(-params["b"] * t)

    t = np.array([0.5, 0.6])
    check = tg.check_gradient(model, {"a": 2.0, "b": np.array([1.0, 2.0])}, t).assert_ok()
    assert "output 1 by params['b'][1]" in [c.name for c in check.components]
    assert any(c.name.endswith("by t[0]") for c in check.components)
    only = tg.check_gradient(model, {"a": 2.0, "b": np.ones(2)}, t, argnums=0).assert_ok()
    assert not any("t[" in c.name for c in only.components)


def test_several_arguments_and_given_values():
    check = tg.check_gradient(lambda x, y: x @ y, X, 2 * X, gradient=(2 * X, X))
    assert check.ok
    check = tg.check_gradient(lambda x, y: x @ y, X, 2 * X, gradient=lambda x, y: (y, -x))
    assert check.explanation == "in y: every component has the opposite sign: a sign error."
    assert tg.check_gradient(
        lambda x: np.outer(x, x), X, gradient=tg.jacobian(lambda x: np.outer(x, x))
    ).ok
    assert tg.check_gradient(lambda x: x**2, X, gradient=2 * np.diag(X)).ok


def test_results_tell_themselves():
    check = tg.check_gradient(f, X, gradient=lambda x: -g(x))
    assert str(check) == repr(check) and "sign error" in str(check)
    data = json.loads(json.dumps(check.to_dict()))
    assert data["verdict"] == "wrong" and not data["ok"] and len(data["components"]) == 5
    shown = check._repr_html_()
    assert "sign error" in shown and "currentColor" in shown and "<script" not in shown
    assert "color-scheme" in page(check)
    with pytest.raises(GradcheckError, match="sign error"):
        check.assert_ok()
    assert tg.check_gradient(f, X).assert_ok().ok
    assert tg.check_gradient(lambda x: {"<b>": x}["<b>"].sum(), X)._repr_html_()


@pytest.mark.parametrize("method", ["auto", "taylor", "complex"])
def test_pictures(method):
    pytest.importorskip("matplotlib")
    figure = tg.check_gradient(f, X, gradient=g, method=method).plot()
    assert len(figure.axes) >= 1
    with pytest.raises(ValueError, match="no component is called"):
        tg.check_gradient(f, X).plot(["nope"])


def test_nothing_is_changed():
    """The point, and arguments that are not differentiated, are as they were; so are read-only ones."""
    x, data = X.copy(), {"t": np.arange(3.0)}
    x.flags.writeable = False
    tg.check_gradient(lambda x, d: np.sum(x) * np.sum(d["t"]), x, data, argnums=0).assert_ok()
    assert np.array_equal(x, X) and data["t"].tolist() == [0, 1, 2]


@pytest.mark.long
def test_fixture(pytester_like):
    assert (
        pytester_like("def test_it(gradient_check):\n    gradient_check(lambda x: x**2, 3.0)\n")
        == 0
    )
    assert (
        pytester_like(
            "def test_it(gradient_check):\n    gradient_check(lambda x: x**2, 3.0, gradient=5.0)\n"
        )
        == 1
    )


@pytest.fixture
def pytester_like(tmp_path):
    """Run a test file that uses the fixture, in a pytest of its own."""

    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text("utf-8"))
    ((name, module),) = project["project"]["entry-points"]["pytest11"].items()

    def run(text, conftest=""):
        # As pip installs it: pytest looks for entry points in whatever is called so on the path.
        installed = tmp_path / "site" / "of_tapegrad-1.dist-info"
        installed.mkdir(parents=True, exist_ok=True)
        (installed / "METADATA").write_text(
            "Metadata-Version: 2.1\nName: of_tapegrad\nVersion: 1\n"
        )
        (installed / "entry_points.txt").write_text(f"[pytest11]\n{name} = {module}\n")
        (tmp_path / "conftest.py").write_text(conftest)
        (tmp_path / "test_it.py").write_text(text)
        path = [str(tmp_path / "site"), str(Path(tg.__file__).parent.parent)]
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
        return subprocess.run(
            command, capture_output=True, cwd=tmp_path, env=environment
        ).returncode

    return run


@pytest.mark.long
def test_the_line_that_named_the_plugin_is_no_second_registration(pytester_like):
    text = "import numpy as np\ndef test_it(gradient_check):\n    gradient_check(np.sin, 1.0)\n"
    assert pytester_like(text, 'pytest_plugins = ["tapegrad.check.fixtures"]\n') == 0


# ------------------------------------------------------------------------------------------ bad input


def _mutates(x):
    x += 1
    return np.sum(x)


# fmt: off
BAD = {
    "no function":        (lambda: tg.check_gradient(3.0, X), TypeError, "cannot be called"),
    "no point":           (lambda: tg.check_gradient(f), TypeError, "no point"),
    "unknown method":     (lambda: tg.check_gradient(f, X, method="magic"), ValueError, "choose among"),
    "too many digits":    (lambda: tg.check_gradient(f, X, digits=20), ValueError, "float64 has 15"),
    "no directions":      (lambda: tg.check_gradient(f, X, directions=0), ValueError, "at least one"),
    "no budget":          (lambda: tg.check_gradient(f, X, budget=0), ValueError, "a whole number such as budget=1000"),
    "budget in seconds":  (lambda: tg.check_gradient(f, X, budget=1.5), ValueError, "no number of values of f"),
    "budget, directions": (lambda: tg.check_gradient(f, X, budget=99, directions=2), ValueError, "write one of them"),
    "nan in the point":   (lambda: tg.check_gradient(f, X * np.nan), ValueError, r"x\[0\] = nan or inf"),
    "nan as value":       (lambda: tg.check_gradient(lambda x: np.log(x), -1.0), ValueError, "only where the value is finite"),
    "empty point":        (lambda: tg.check_gradient(np.sum, np.zeros(0)), ValueError, "without a single number"),
    "empty value":        (lambda: tg.check_gradient(lambda x: x[:0], X), ValueError, "no number at all"),
    "nothing returned":   (lambda: tg.check_gradient(lambda x: None, X), TypeError, "Does it end with a return"),
    "text returned":      (lambda: tg.check_gradient(lambda x: "a", X), TypeError, "only numbers"),
    "text as point":      (lambda: tg.check_gradient(lambda x: 1.0, "abc"), TypeError, "only numbers"),
    "mutating f":         (lambda: tg.check_gradient(_mutates, X), ValueError, "changed its argument x in place"),
    "gradient nothing":   (lambda: tg.check_gradient(f, X, gradient=lambda x: None), TypeError, "returned None"),
    "gradient shape":     (lambda: tg.check_gradient(f, X, gradient=lambda x: x[:3]), ValueError, "has the shape of what it belongs to"),
    "gradient complex":   (lambda: tg.check_gradient(f, X, gradient=lambda x: g(x) + 1j), ValueError, "take the real part"),
    "Jacobian shape":     (lambda: tg.check_gradient(lambda x: A[:2] @ x, X, gradient=A[:2].T), ValueError, "return its .T"),
    "one of two":         (lambda: tg.check_gradient(lambda x, y: x @ y, X, X, gradient=lambda x, y: y), ValueError, "a tuple with a gradient for each"),
    "argnums":            (lambda: tg.check_gradient(f, X, argnums=2), TypeError, "names an argument that was not given"),
    "Hessian shape":      (lambda: tg.check_gradient(f, X, method="taylor", hessian=lambda x: A[:2]), ValueError, "5 by 5"),
    "adjoint alone":      (lambda: tg.check_adjoint(f), TypeError, "second function"),
    "adjoint no x":       (lambda: tg.check_adjoint(f, f), TypeError, "needs x"),
    "adjoint shape":      (lambda: tg.check_adjoint(lambda v: A[:2] @ v, lambda w: w, X), ValueError, "check x and y"),
    "adjoint nothing":    (lambda: tg.check_adjoint(lambda v: None, lambda w: w, X), TypeError, "returned None"),
    "adjoint empty":      (lambda: tg.check_adjoint(lambda v: v, lambda w: w, np.zeros(0)), ValueError, "holds no number"),
}
# fmt: on


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_answered_in_a_sentence(name):
    call, kind, words = BAD[name]
    with pytest.raises(kind, match=words):
        call()


# ------------------------------------------------------------------------------------------ adjoints

B = rng.normal(size=(3, 4))
C = B + 1j * rng.normal(size=(3, 4))


# fmt: off
ADJOINTS = {
    "right":          (lambda v: B @ v, lambda w: B.T @ w, ""),
    "sign":           (lambda v: B @ v, lambda w: -B.T @ w, "opposite sign"),
    "factor":         (lambda v: B @ v, lambda w: 0.5 * B.T @ w, "1/2 times"),
    "off by one":     (lambda v: B @ v, lambda w: np.roll(B.T @ w, 1), "off by one"),
    "one entry":      (lambda v: B @ v, lambda w: B.T @ w + np.array([0, 0, w[1], 0]), r"entry \[1, 2\].*1 of 12 entries"),
    "not linear":     (lambda v: B @ v**2, lambda w: B.T @ w, "not linear"),
}
# fmt: on


@pytest.mark.parametrize("name", ADJOINTS)
def test_adjoints(name):
    forward, adjoint, words = ADJOINTS[name]
    check = tg.check_adjoint(forward, adjoint, np.zeros(4))
    assert check.ok == (name == "right")
    if words:
        import re

        assert re.search(words, check.explanation)
        with pytest.raises(GradcheckError):
            check.assert_ok()
    assert json.dumps(check.to_dict()) and check._repr_html_()


def test_complex_adjoints_are_conjugated():
    z = np.zeros(4, complex)
    assert tg.check_adjoint(lambda v: C @ v, lambda w: C.conj().T @ w, z).ok
    assert "not conjugated" in tg.check_adjoint(lambda v: C @ v, lambda w: C.T @ w, z).explanation


def test_adjoints_of_models_operators_and_pytrees():
    from scipy.sparse.linalg import aslinearoperator

    assert tg.check_adjoint(aslinearoperator(B)).ok

    def tangent(x, v):
        return tg.jvp(np.sin, (x,), (v,))[1]

    def cotangent(x, w):
        return tg.vjp(np.sin, x)[1](w)[0]

    assert tg.check_adjoint(tangent, cotangent, at=X).ok
    affine = tg.check_adjoint(lambda v: v + 1, lambda w: w, X)
    assert "not linear" in affine.explanation
    assert not tg.check_adjoint(tangent, lambda x, w: w, at=X).ok

    def split(v):
        return {"a": v[:2], "b": 2 * v[2:]}

    def join(w):
        return np.concatenate([w["a"], 2 * w["b"]])

    assert tg.check_adjoint(split, join, np.zeros(5)).ok


# ------------------------------------------------------------------------------------------ command line

MODEL = """
import numpy as np

def loss(w=np.array([1.0, 2.0, 3.0]), rate=0.5):
    return np.sum(np.exp(-rate * w))

def gradient(w, rate):
    e = np.exp(-rate * w)
    return -rate * e, -np.sum(w * e)

def wrong(w, rate):
    return gradient(w, rate)[0], 1.0

def fails(x):
    raise RuntimeError("no convergence")

def vector(x):
    return np.sum(x**2)

number = 3.0
"""


@pytest.fixture
def model(tmp_path, monkeypatch):
    (tmp_path / "planted_model.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield tmp_path
    sys.modules.pop("planted_model", None)


@pytest.mark.long
def test_command_line(model, capsys):
    """Exit status 0, 1, 2; points from defaults, text and files; reports."""
    assert main(["check", "planted_model:loss"]) == 0
    assert "right" in capsys.readouterr().out
    assert main(["check", "./planted_model.py:loss", "--gradient", "planted_model:wrong"]) == 1
    assert "only rate is wrong" in capsys.readouterr().out
    assert main(["check", "./planted_model.py:loss", "--gradient", "wrong", "--quiet"]) == 1
    assert "wrong at rate" in capsys.readouterr().out
    html, data = model / "r.html", model / "r.json"
    arguments = [
        "check",
        "planted_model:loss",
        "[1,2]",
        "rate=2",
        "--gradient",
        "planted_model:gradient",
    ]
    assert main([*arguments, "--html", str(html), "--json", str(data), "--quiet"]) == 0
    assert capsys.readouterr().out.count("\n") == 1
    assert "right" in html.read_text() and json.loads(data.read_text())["ok"]
    np.save("x.npy", X)
    np.savez("x.npz", w=X, rate=0.1)
    (model / "x.json").write_text('{"w": [1, 2], "rate": 0.1}')
    (model / "x.csv").write_text("w\n1\n2\n")
    for point in ("x.npy", "x.npz", "x.json", "x.csv"):
        assert main(["check", "planted_model:loss", point, "--quiet"]) == 0
    capsys.readouterr()
    assert main(["check", "planted_model:vector", "x.npy", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "right"
    assert main(["check", "planted_model:loss", "--method", "taylor", "--hessian", "own"]) == 0
    assert main(["check", "planted_model:vector", "x.npy", "--directions", "2"]) == 0
    assert main(["check", "planted_model:vector", "x.npy", "--budget", "300"]) == 0


# fmt: off
BAD_COMMANDS = {
    "no such module":  (["nowhere_at_all:f"], "no module 'nowhere_at_all'"),
    "no such file":    (["./nowhere.py:f"], "no file ./nowhere.py"),
    "no such name":    (["planted_model:los"], "it has fails, gradient, loss"),
    "no colon":        (["planted_model"], "write MODULE:FUNCTION"),
    "not a function":  (["planted_model:number"], "cannot be called"),
    "value missing":   (["planted_model:vector"], "needs a value for x"),
    "too many values": (["planted_model:vector", "1", "2"], "a vector is one value"),
    "no number":       (["planted_model:vector", "abc"], "neither a number"),
    "no point file":   (["planted_model:vector", "x.npy"], "no file x.npy"),
    "bad argument":    (["planted_model:loss", "speed=1"], "names no argument"),
    "raises":          (["planted_model:fails", "1"], "in fails: RuntimeError: no convergence"),
    "argnums":         (["planted_model:loss", "--argnums", "a"], "write 0 or 0,2"),
    "no folder":       (["planted_model:loss", "--html", "no/r.html"], "no folder no"),
    "bad file":        (["planted_model:vector", "bad.json"], "cannot be read as .json"),
}
# fmt: on


@pytest.mark.parametrize("name", BAD_COMMANDS)
def test_bad_commands_are_answered_in_a_line(name, model, capsys):
    arguments, words = BAD_COMMANDS[name]
    (model / "bad.json").write_text('{"w": [1,')
    assert main(["check", *arguments]) == 2
    told = capsys.readouterr().err
    assert words in told and told.count("\n") == 1


def test_a_list_of_numbers_is_an_array():
    """As to SciPy's users: own gradients of functions that take arrays, and names of its components."""
    check = tg.check_gradient(lambda x: np.sum(np.sin(x) @ np.eye(2)), [1.0, 2])
    assert check.ok and {c.name for c in check.components} == {"x[0]", "x[1]"}


def test_a_gradient_by_one_of_several_arguments():
    """One array belongs to the argument that it fits; what fits two is asked about."""

    def loss(x, k=0.5):
        return k * np.sum(x**2)

    check = tg.check_gradient(loss, X, 0.5, gradient=lambda x, k: 2 * k * x)
    assert check.ok and check.size == X.size and "by argument 0 alone" in check.notes[0]
    wrong = tg.check_gradient(loss, X, 0.5, gradient=lambda x, k: 2 * x)
    assert wrong.verdict == "wrong"
    by_k = tg.check_gradient(loss, X, 0.5, gradient=lambda x, k: np.sum(x**2))
    assert by_k.ok and by_k.size == 1
    tree = tg.check_gradient(
        lambda p, q: np.sum(p["a"] * q), {"a": X}, X, gradient=lambda p, q: {"a": q}
    )
    assert tree.ok
    with pytest.raises(ValueError, match=r"say to which it belongs: argnums=0"):
        tg.check_gradient(lambda x, y: np.sum(x * y), X, X, gradient=lambda x, y: y)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_gradient_that_is_no_number_is_named(bad):
    """Component by component, along directions with the component found, and in every form of the report."""

    def spoilt(x):
        gradient = 2 * x
        gradient[1] = bad
        return gradient

    for n, options in ((3, {}), (3, {"method": "taylor"}), (100, {})):
        check = tg.check_gradient(lambda x: np.sum(x**2), np.ones(n), gradient=spoilt, **options)
        assert check.verdict == "wrong" and "x[1]" in check.headline and str(bad) in check.headline
        assert "such as x[1]: look for 0 / 0" in check.explanation
        assert "exact" not in str(check)
        assert json.dumps(check.to_dict()) and check._repr_html_()


def test_directions_vouch_for_directions_alone():
    """One wrong sign among 20,000 components may hide in the sums that directions see: the headline claims no more than they do."""
    x = np.random.default_rng(0).normal(size=20_000)
    hidden = np.where(np.arange(x.size) == np.argmin(abs(x)), -2 * x, 2 * x)
    check = tg.check_gradient(lambda x: np.sum(x * x), x, gradient=hidden)
    assert check.ok and "right along 4 random directions, to" in check.headline
    assert "stood for 20000 components" in str(check)
    one = tg.check_gradient(lambda x: np.sum(x * x), x[:3], directions=1)
    assert "right along 1 random direction, to" in one.headline
    by_components = tg.check_gradient(lambda x: np.sum(x * x), x[:3])
    assert "right, to" in by_components.headline and "stood for" not in str(by_components)


CURVED = {
    "x|x|": lambda x: np.sum(x * np.abs(x)),
    "x|x| + x^2": lambda x: np.sum(x * np.abs(x) + x * x),
    "max(x, 0)^2": lambda x: np.sum(np.maximum(x, 0) ** 2),
}


@pytest.mark.long
@pytest.mark.parametrize("name", CURVED)
@pytest.mark.parametrize("method", ["auto", "differences", "complex", "taylor"])
def test_a_kink_of_the_slope_is_no_kink_of_the_function(name, method):
    """Differences of x|x| at 0 fall with the step, not with its square: their limit is what counts. Wrong slopes are still wrong."""
    for point in (np.zeros(3), np.array([0.0, 1.0, 2.0]), np.zeros(1)):
        for slope in (0.0, 3.0):
            f = lambda x, s=slope: CURVED[name](x) + s * np.sum(x)  # noqa: E731
            check = tg.check_gradient(f, point, method=method)
            assert check.verdict == "right", check
        for off in (1e-3, -1.0):
            wrong = tg.check_gradient(
                CURVED[name], np.zeros(3), gradient=np.full(3, off), method=method
            )
            assert wrong.verdict == "wrong", wrong


def test_a_right_gradient_says_what_was_judged():
    def told(f, *args, **settings):
        check = tg.check_gradient(f, *args, **settings)
        assert check.ok and check.explanation in str(check)
        return check.explanation

    assert told(lambda x: np.sin(x), 1.0) == "the one component was judged."
    assert (
        told(lambda x: np.sum(x**2), np.ones(3)) == "all 3 components were judged, each by itself."
    )
    assert told(lambda x: x[:2] * 2.0, np.ones(3)).endswith("(3 of the input by 2 of the output).")
    assert "2 random directions stood for 3 components" in told(
        lambda x: np.sum(x**2), np.ones(3), directions=2
    )


@pytest.mark.long
def test_a_budget_is_spent_on_blocks_and_where_it_suffices_on_components():
    x = np.random.default_rng(0).normal(size=600)
    f = lambda x: np.sum(x * x)  # noqa: E731
    for budget, most in ((20, 600), (200, 80), (2000, 8)):
        check = tg.check_gradient(f, x, budget=budget)
        assert check.ok and check.evaluations <= 1.2 * budget + 10
        assert budget == 20 or f"{len(check.taylor)} random directions, the later ones" in str(
            check
        )
        blocks = [c for c in check.components if "direction" not in c.name]
        held = [c.name.split(" to ") for c in blocks]
        ends = [(int(a[0][2:-1]), int(a[-1][2:-1])) for a in held]
        if ends:  # every component is in one block
            assert ends[0][0] == 0 and ends[-1][1] == x.size - 1
            assert all(low == high + 1 for (_, high), (low, _) in itertools.pairwise(ends))
            assert max(high - low for low, high in ends) < most
    enough = tg.check_gradient(f, x, budget=20_000)
    assert enough.ok and not enough.taylor and len(enough.components) == x.size
    exact = tg.check_gradient(f, x, budget=1000, method="complex")
    assert (
        exact.method == "complex" and len(exact.components) == x.size and exact.evaluations <= 1000
    )


@pytest.mark.long
def test_a_budget_finds_a_mistake_that_whole_directions_hide():
    x = np.ones(2000)
    f = lambda x: 1e6 * np.sum(x[:1000]) + np.sum(x[1000:] ** 2)  # noqa: E731
    right = np.r_[np.full(1000, 1e6), np.full(1000, 2.0)]
    hidden = np.where(np.arange(2000) == 1700, -right, right)
    assert tg.check_gradient(f, x, gradient=hidden).ok  # of slopes of 1e6, and says so
    found = tg.check_gradient(f, x, gradient=hidden, budget=2000)
    assert found.verdict == "wrong" and "only x[1700] is wrong" in found.explanation
    assert tg.check_gradient(f, x, gradient=right, budget=2000).ok


@pytest.mark.long
def test_a_budget_goes_by_leaf():
    tree = {"w": np.ones((20, 3)), "b": np.full(3, 0.1), "s": 2.0}
    model = lambda t: np.sum(np.tanh(t["w"] @ t["b"]) * t["s"])  # noqa: E731
    check = tg.check_gradient(model, tree, budget=400)
    names = [c.name for c in check.components]
    assert check.ok and "t['s']" in names and "t['b'][0] to t['b'][2]" in names
    several = tg.check_gradient(lambda t: np.tanh(t["w"] @ t["b"]) * t["s"], tree, budget=400)
    assert several.ok and len(several.taylor) > 4


@pytest.mark.long
def test_slopes_that_cancel_along_a_direction_are_no_bad_scaling():
    """Random signs of equal slopes add up to 0 now and then: digits are counted from the terms of the sum."""
    for seed in range(30):
        check = tg.check_gradient(lambda x: np.sum(x), np.ones(80), seed=seed)
        assert check.verdict == "right" and "to 0 digits" not in check.headline
