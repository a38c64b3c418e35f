"""The demonstration: what it reads, how it judges, how it fits, and what its commands answer."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.__main__ import main
from tapegrad.core.version import _of_checkout
from tapegrad.demo import fitting, report
from tapegrad.demo.measures import complex_step, digits, jacobian_error, seconds, two_point
from tapegrad.demo.models import MODEL_OF
from tapegrad.demo.strd import load, parse, problems

NAMES = sorted(MODEL_OF)


# The data sets --------------------------------------------------------------------------------


def test_all_27_are_there_in_order_of_difficulty():
    levels = [p.level for p in problems()]
    assert len(levels) == 27
    assert [levels.count(level) for level in ("lower", "average", "higher")] == [8, 11, 8]
    assert levels == sorted(levels, key=("lower", "average", "higher").index)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "Lanczos1"])
def test_certified_parameters_reproduce_the_certified_sum_of_squares(name):
    """Parser, formula and data at once. 1e-10 is the certificate's own rounding."""
    p = load(name)
    r = p.residual(p.certified)
    assert np.sum(r**2) == pytest.approx(p.rss, rel=1.1e-10)


def test_lanczos1_is_certified_below_the_rounding_of_its_parameters():
    p = load("Lanczos1")
    assert p.rss < 1e-24 < np.sum(p.residual(p.certified) ** 2) < 1e-20


def test_parts_of_a_problem():
    p = load("Rat43")
    assert (p.level, p.dof) == ("higher", 11)  # the file prints 9
    assert p.starts.tolist() == [[100, 10, 1, 1], [700, 5, 0.75, 1.3]]
    assert p.certified[0] == 6.9964151270e02 and p.deviations[-1] == 6.8761936385e-01
    assert p.x.dtype == p.y.dtype == p.starts.dtype == np.float64


def test_nelson_has_two_predictors_and_a_logarithmic_response():
    p = load("Nelson")
    assert p.x.shape == (2, 128)
    assert p.x[:, 0].tolist() == [1, 180] and p.y[0] == np.log(15.0)


def test_a_file_without_its_parts_is_refused_in_words():
    with pytest.raises(ValueError, match="needs a line matching 'Starting Values"):
        parse("DanWood", "not a data set")


# The measures ---------------------------------------------------------------------------------


def test_digits_count_the_worst_value():
    certified = np.array([1.0, -200.0])
    assert digits(certified, certified) == 11.0  # as many as NIST prints
    assert digits(certified * [1, 1 + 1e-7], certified) == pytest.approx(7.0, abs=1e-6)
    assert digits(certified * [1, 50], certified) == 0.0
    assert digits(certified * [np.nan, 1], certified) == 0.0


def test_jacobian_error_sees_one_wrong_entry_in_a_small_column():
    oracle = np.array([[1e6, 1e-6], [2e6, 4e-6]])
    J = oracle.copy()
    assert jacobian_error(J, oracle) == 0.0
    J[0, 1] = 2e-6
    assert jacobian_error(J, oracle) == pytest.approx(0.25)


def test_oracles_agree():
    p = load("Thurber")
    b = p.starts[1]
    assert jacobian_error(two_point(p.residual, b), complex_step(p.residual, b)) < 1e-4


def test_seconds_is_the_time_of_one_call():
    assert 0 < seconds(np.sum, np.ones(3), repeat=2, budget=1e-4) < 1e-2


# Derivatives and fits -------------------------------------------------------------------------


@pytest.mark.parametrize("start", [1, 2])
@pytest.mark.parametrize("name", NAMES)
def test_jacobian_from_the_tape_equals_the_complex_step(name, start):
    p = load(name)
    b = p.starts[start - 1]
    J = tg.jacobian(p.residual)(b)
    assert type(J) is np.ndarray and J.shape == (p.y.size, b.size)
    assert jacobian_error(J, complex_step(p.residual, b)) < 1e-10


@pytest.mark.parametrize("start", [1, 2])
@pytest.mark.parametrize("name", ["ENSO", "BoxBOD", "Lanczos3", "Hahn1"])
def test_fits_reach_the_certified_digits(name, start):
    """ENSO and Lanczos3 need the polish, BoxBOD from start 1 the second search, Hahn1 scaling."""
    p = load(name)
    found = fitting.fit(p.residual, tg.jacobian(p.residual), p.starts[start - 1])
    assert digits(found.parameters, p.certified) > 10
    assert digits(found.deviations, p.deviations) > 10
    assert found.rss == pytest.approx(p.rss, rel=1e-9)


def test_the_polish_leaves_an_unconverged_point_alone():
    p = load("Misra1a")
    start = p.starts[1]
    b, steps = fitting.polish(p.residual, tg.jacobian(p.residual), start)
    assert steps == 0 and b is start


def test_a_parameter_without_influence_has_no_deviation():
    J = np.stack([np.arange(4.0), np.zeros(4)], axis=1)
    assert np.isnan(fitting.deviations(J, rss=1.0)).all()


# The commands ---------------------------------------------------------------------------------


def test_demo_prints_a_row_per_fit_and_a_summary(capsys):
    assert main(["demo", "--problem", "misra1a", "DanWood"]) == 0
    out = capsys.readouterr().out
    rows = re.findall(r"^(\w+) +lower +([12]) +([\d.]+) +([\d.]+) ", out, re.M)
    assert [row[:2] for row in rows] == [(n, s) for n in ("DanWood", "Misra1a") for s in "12"]
    assert all(float(parameters) > 10 and float(spread) > 10 for _, _, parameters, spread in rows)
    assert "start 2, tape:    2 of 2 with 8 digits or more" in out
    assert out.endswith("aim met\n")


def test_lanczos1_compares_parameters_only(capsys):
    assert main(["demo", "--problem", "Lanczos1", "--start", "2"]) == 0
    assert re.search(r"^Lanczos1 +average +2 +1\d\.\d +- ", capsys.readouterr().out, re.M)


def test_an_aim_not_met_is_said_and_is_the_exit_status(capsys, monkeypatch):
    monkeypatch.setattr(report, "AIM", 12.0)
    assert main(["demo", "--problem", "DanWood", "--start", "2"]) == 1
    assert capsys.readouterr().out.endswith("aim NOT met\n")


def test_quick_fits_the_lower_level_from_the_second_start(monkeypatch):
    asked = []
    monkeypatch.setattr(
        report, "demonstrate", lambda problems, starts: asked.append((problems, starts))
    )
    monkeypatch.setattr(report, "met", lambda rows: True)
    assert main(["demo", "--quick"]) == 0
    [(chosen, starts)] = asked
    assert len(chosen) == 8 and {p.level for p in chosen} == {"lower"} and starts == (2,)


def test_progress_is_for_terminals_only(capsys):
    class Terminal(list):
        isatty = staticmethod(lambda: True)
        write = list.append
        flush = staticmethod(lambda: None)

    terminal = Terminal()
    list(report.table([load("DanWood")], [2], sys.stdout, terminal))
    assert "fitting DanWood from start 2 (1 of 1)" in terminal[0]
    assert main(["demo", "--problem", "DanWood"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (["demo", "--problem", "Misra1"], "no problem is called 'Misra1'; did you mean Misra1"),
        (["demo", "--problem", "?"], "no problem is called '?'; there are Bennett5, "),
        (["demo", "--start", "3"], "invalid choice: 3"),
        (["demo", "--quick", "--problem", "ENSO"], "not allowed with argument"),
        (["demo", "--plot", "fits.jpg"], "give a name ending in .png"),
        (["demo", "--plot", "no/such/folder/fits.png"], "'no/such/folder' does not exist"),
        (["dmeo"], "invalid choice: 'dmeo'"),
    ],
)
def test_mistakes_get_one_sentence(capsys, arguments, answer):
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert answer in err and err.count("\n") == 1 and out == ""


def test_plot_without_matplotlib_says_what_to_install(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["demo", "--plot", str(tmp_path / "fits.png")]) == 2
    assert 'pip install "tapegrad[plot]"' in capsys.readouterr().err


@pytest.mark.long
def test_plot_writes_a_picture(capsys, tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "fits.png"
    assert (
        main(["demo", "--problem", "Nelson", "DanWood", "--start", "2", "--plot", str(path)]) == 0
    )
    assert path.read_bytes().startswith(b"\x89PNG\r\n")
    assert f"picture: {path}" in capsys.readouterr().out


def test_a_picture_that_cannot_be_written_ends_in_a_sentence(capsys, monkeypatch, tmp_path):
    pytest.importorskip("matplotlib")

    def full(rows, path):
        raise OSError("no space left on device")

    monkeypatch.setattr("tapegrad.demo.pictures.draw", full)
    arguments = ["demo", "--problem", "DanWood", "--start", "2", "--plot", str(tmp_path / "a.png")]
    assert main(arguments) == 2
    assert "could not be written: no space left" in capsys.readouterr().err


def test_no_command_prints_help(capsys):
    assert main([]) == 0
    assert re.search(r"demo +fit NIST's 27", capsys.readouterr().out)


@pytest.mark.long
def test_info_names_versions_and_does_not_import_numba():
    """In a fresh process, since any other test may have imported numba already."""
    script = (
        "import sys; from tapegrad.__main__ import main; "
        "status = main(['info']); sys.exit(status or 'numba' in sys.modules)"
    )
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=os.environ.copy()
    )
    assert run.returncode == 0, run.stderr
    assert re.search(rf"^numpy +{re.escape(np.__version__)}$", run.stdout, re.M)
    facts = re.findall(r"^\w+", run.stdout, re.M)
    expected = ["platform", "cpu", "threads", "engine", "replay", "cache", "disabled", "extras"]
    assert facts[-8:] == expected and "unknown" not in run.stdout


def test_cache_is_shown_and_cleared(tmp_path, monkeypatch, capsys):
    """Only what tapegrad wrote is removed."""
    from tapegrad.llvm import cache

    monkeypatch.setenv("TAPEGRAD_CACHE_DIR", str(tmp_path))
    assert cache.write(tmp_path / "a.bin", cache.Bundle(reason="a test"))
    (tmp_path / "mine.txt").write_text("precious")
    assert main(["cache"]) == 0
    assert "1 files" in capsys.readouterr().out
    assert main(["cache", "--clear"]) == 0
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]
    monkeypatch.setenv("TAPEGRAD_CACHE_DIR", str(tmp_path / "absent"))
    assert main(["cache", "--clear"]) == 0


def test_the_version_is_that_of_the_project(capsys):
    """Installed or run from a checkout, the package, the command and pyproject.toml name one version."""
    text = (Path(tg.__path__[0]).parent / "pyproject.toml").read_text(encoding="utf-8")
    version = tomllib.loads(text)["project"]["version"]
    assert tg.__version__ == version == _of_checkout()
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"tapegrad {version}\n"
