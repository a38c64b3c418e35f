"""Names of other libraries: what a user who types them is told."""

import re
import subprocess
import sys

import pytest

import tapegrad as tg
from tapegrad.elsewhere import INSTEAD, told


@pytest.mark.parametrize("name", INSTEAD)
def test_what_is_named_instead_exists_and_the_name_does_not(name):
    with pytest.raises(AttributeError, match=f"{name}.*: {re.escape(INSTEAD[name])}"):
        getattr(tg, name)
    for path in re.findall(r"tg((?:\.[A-Za-z_]\w*)+)", INSTEAD[name]):
        value = tg
        for part in path[1:].split("."):
            value = getattr(value, part)
    assert not hasattr(tg, name) and name not in dir(tg)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("erf", "write tg.special.erf"),
        ("softmax", "write tg.special.softmax"),
        ("Function", "write tg.autograd.Function"),
        ("solve", "write tg.linalg.solve"),
        ("Adam", "write tg.optim.Adam"),
        ("StepLR", "write tg.optim.lr_scheduler.StepLR"),
        ("gradcheck", "write tg.autograd.gradcheck"),
        ("minimise", "did you mean tg.minimize?"),
        ("value_and_grads", "did you mean tg.value_and_grad"),
        ("qqqq", ""),
        ("_private", ""),
        ("np", ""),
        ("sys", ""),
    ],
)
def test_names_from_inside_and_slips(name, words):
    assert told(name, dir(tg)).startswith(words) and bool(told(name, dir(tg))) == bool(words)


def test_asking_whether_a_private_name_is_there_loads_nothing():
    code = (
        "import sys, tapegrad as tg; hasattr(tg, '__wrapped__'); hasattr(tg, '_repr_html_'); "
        "print('scipy.special' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"
