"""The table of public names: complete, explained, and what the page of names shows; and the documents such tables stand in."""

import inspect
from pathlib import Path
from types import ModuleType

import pytest

import tapegrad as tg
from tapegrad.__main__ import main
from tapegrad.help import documents, names

REFERENCE = Path(__file__).parent.parent / "notebooks" / "reference"


@pytest.mark.parametrize("name", names.PLACES)
def test_every_name_of_a_place_is_told(name):
    place = names.place(name)
    told = {*place.own, *(n for listed in place.borrowed.values() for n in listed)}
    holder = names.holder_of(name)
    if isinstance(holder, ModuleType):
        usable = {
            n
            for n in (dir(holder) if "__dir__" in vars(holder) else holder.__all__)
            if not n.startswith("_") and not isinstance(getattr(holder, n), ModuleType)
        } - {"annotations"}
    else:
        usable = {
            n
            for n, v in inspect.getmembers_static(holder)
            if not n.startswith("_") and (inspect.isroutine(v) or isinstance(v, property))
        }
    assert usable <= told
    assert all(hasattr(holder, n) for n in told)


def test_what_is_ours_and_what_is_borrowed():
    package, tensor = names.place("tapegrad"), names.place("tapegrad.Tensor")
    assert {"grad", "compile", "njit", "optim", "check_gradient", "Tensor"} <= package.own.keys()
    assert {"sin", "pi", "float64"} <= set(package.borrowed["numpy"])
    assert not {"sin", "creation", "dispatch", "version"} & package.own.keys()
    assert "backward" in tensor.own and "add_" in tensor.borrowed["PyTorch, in place"]
    assert "detach_" in tensor.own and "shape" in tensor.own


def test_the_first_line_of_a_public_name_is_a_sentence():
    broken = []
    for place in names.PLACES:
        holder = names.holder_of(place)
        for name in names.place(place).own:
            value = inspect.getattr_static(holder, name, None)
            value = value if isinstance(value, property) else getattr(holder, name)
            first = (inspect.getdoc(value) or "").partition("\n")[0]
            if not first.endswith((".", ":")):
                broken.append(f"{place}.{name}: {first}")
    assert not broken, "\n".join(broken)


def test_a_name_without_a_docstring_is_an_error(monkeypatch):
    monkeypatch.setattr(tg, "unexplained", lambda: None, raising=False)
    with pytest.raises(LookupError, match=r"tapegrad\.unexplained is public and has no docstring"):
        names.place.__wrapped__("tapegrad")


def test_the_page_shows_the_names():
    """The page is `python -m tapegrad names --update PAGE`, of the versions that the page of the vocabulary names."""
    import numpy
    import scipy

    of = f"Of NumPy {numpy.__version__} and SciPy {scipy.__version__}:"
    if (
        of
        != documents.part(
            (REFERENCE / "vocabulary.md").read_text(encoding="utf-8"), "vocabulary"
        ).splitlines()[0]
    ):
        pytest.skip("the page is of other versions of NumPy and SciPy")
    shown = documents.part((REFERENCE / "names.md").read_text(encoding="utf-8"), "names")
    current = shown == names.table()
    assert current, "run python -m tapegrad names --update notebooks/reference/names.md"


def test_the_command(capsys, tmp_path):
    assert main(["names", "hessian-vector"]) == 0
    assert capsys.readouterr().out.startswith("tapegrad.hvp\n    Hessian-vector product")
    assert main(["names", "no such thing"]) == 1
    assert "no public name has 'no such thing'" in capsys.readouterr().err
    path = tmp_path / "a.md"
    assert main(["names", "--update", str(path)]) == 2
    path.write_text("before <!-- names --><!-- end of names --> after")
    assert main(["names", "--update", str(path)]) == 0 == main(["names", "--update", str(path)])
    assert capsys.readouterr().out.split() == [f"{path}:", "updated", f"{path}:", "as", "it", "was"]
    assert "| `tapegrad.optim` |" in path.read_text() and path.read_text().endswith(" after")


def test_a_document_without_marks_is_left_alone(tmp_path):
    path = tmp_path / "a.md"
    path.write_text("nothing")
    with pytest.raises(ValueError, match="no place for the sum: put <!-- sum --> and"):
        documents.update(path, "sum", "3")
    assert path.read_text() == "nothing"


def test_dir_shows_public_names_only():
    """What completes after `tg.` is a function, a class, a value, or a module that users are told of."""
    shown = {n for n in dir(tg) if isinstance(getattr(tg, n), ModuleType)}
    public = {place.removeprefix("tapegrad.").split(".")[0] for place in names.PLACES} | {"numpy"}
    assert shown <= public and {"optim", "special", "autograd"} <= shown
    assert not [n for n in dir(tg) if n.startswith("_") and not n.endswith("__")]


@pytest.mark.parametrize(
    "name",
    [p for p in (*names.PLACES, *names.MODULES) if isinstance(names.holder_of(p), ModuleType)],
)
def test_completion_in_a_module_offers_what_it_lists(name):
    module = names.holder_of(name)
    if module is not tg and module is not tg.numpy:  # which offer NumPy's names as well
        assert dir(module) == sorted(module.__all__)
