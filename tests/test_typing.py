"""What type checkers and editors read: the stubs are those of the library as it is, and signatures have names.

That a user's script passes mypy and pyright, and that the stubs agree with what runs (stubtest), is checked by `.ci/run`: it takes a minute.
"""

import inspect
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import tapegrad as tg
from tapegrad.__main__ import main
from tapegrad.help import names, stubs

HERE = Path(tg.__file__).parent
ABOUT = (HERE / "__init__.pyi").read_text("utf-8").splitlines()[2]

of_these_versions = pytest.mark.skipif(
    stubs.versions() not in ABOUT, reason=f"{ABOUT} These are {stubs.versions()}."
)


@pytest.mark.long
@of_these_versions
def test_the_stubs_are_as_they_would_be_made():
    """In a process of its own: other tests declare ops and methods."""
    done = subprocess.run(
        [sys.executable, "-m", "tapegrad", "stubs", "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
@of_these_versions
def test_a_new_op_is_a_difference(capsys, monkeypatch):
    monkeypatch.setattr(tg.Tensor, "doubled", lambda self, times=2: self * times, raising=False)
    assert main(["stubs", "--check"]) == 1
    assert "attached.pyi: differs" in capsys.readouterr().out


def test_methods_have_the_parameters_of_what_they_call():
    def of(name):
        return str(inspect.signature(getattr(tg.Tensor, name)))

    assert of("add_") == "(self, other, *, alpha=1)"
    assert of("add") == "(self, other, *, alpha=1)"
    assert of("mul_") == "(self, other)"
    assert of("sum") == "(x, axis=None, keepdims=False, *, dim=None, keepdim=False)"
    assert of("max") == "(x, axis=None, keepdims=False, *, keepdim=False)"  # dim means a pair there
    assert of("bernoulli_") == "(self, p=0.5, *, generator=None)"
    assert of("transpose_") == "(self, axis1, axis2)"
    assert of("xlogy") == "(self, other, /)"


@pytest.mark.parametrize("name", [*names.PLACES, *names.MODULES])
def test_public_functions_tell_their_parameters(name):
    """Of our own functions none hides its parameters behind `*args` alone, apart from those that take any number of operands."""
    holder = names.holder_of(name)
    if not isinstance(holder, ModuleType):
        pytest.skip("a class, whose methods the test above samples")
    hidden = []
    for public in stubs.public_names(holder):
        function = getattr(holder, public)
        if not inspect.isfunction(function) or not function.__module__.startswith("tapegrad"):
            continue
        kinds = [(p.name, p.kind) for p in inspect.signature(function).parameters.values()]
        if [kind for _, kind in kinds] in (
            [inspect.Parameter.VAR_POSITIONAL],
            [inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD],
        ) and kinds[0][0] in ("args", "given"):
            hidden.append(public)
    assert not hidden


def test_a_signature_only_tells():
    """The parameters that are shown are those that calls take."""
    t = tg.tensor([[1.0, 2.0], [3.0, 4.0]])
    np.testing.assert_array_equal(t.sum(dim=1, keepdim=True), [[3.0], [7.0]])
    np.testing.assert_array_equal(tg.special.jv(1, t), tg.special.jv(*(1, t)))
    with pytest.raises(TypeError):
        tg.special.jv(v=1, z=t)
    assert tg.linalg.eigh(t @ t.T, UPLO="U").eigenvalues.shape == (2,)


@pytest.mark.long
def test_a_star_import_takes_public_names_and_leaves_numba_alone():
    import subprocess
    import sys

    text = (
        "import sys\nfrom tapegrad import *\n"
        "assert 'grad' in globals() and 'tape' not in globals() and 'numba' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", text], check=True)


@pytest.mark.parametrize("name", [*names.PLACES, *names.MODULES])
def test_public_modules_list_their_names(name):
    holder = names.holder_of(name)
    if isinstance(holder, ModuleType):
        assert holder.__all__ and all(hasattr(holder, public) for public in holder.__all__)
