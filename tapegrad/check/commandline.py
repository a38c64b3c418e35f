"""`python -m tapegrad check`: a function and a point named in text, the verdict as text, HTML or JSON.

A function is `MODULE:NAME` or `FILE.py:NAME`; a point is what is written on the command line (numbers, JSON, files), or the
function's own defaults. Exit status: 0 the gradient is right, 1 it is not, 2 it could not be checked.

Invariant: whatever is wrong with the question is answered in one line, before or instead of a traceback.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import inspect
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .findings import GradientCheck, page
from .gradients import METHODS, check_gradient


class Unanswerable(Exception):
    """A question that cannot be answered; its text is what the user is told."""


def options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument(
        "function",
        metavar="MODULE:FUNCTION",
        help="what to check, for example model:loss or ./model.py:loss",
    )
    parser.add_argument(
        "point",
        nargs="*",
        metavar="VALUE",
        help="its arguments, in order or as NAME=VALUE: a number, JSON such as [1, 2], or a .npy, .npz, .json or .csv "
        "file; those left out have the function's defaults",
    )
    parser.add_argument(
        "--gradient",
        metavar="MODULE:NAME",
        help="the gradient to check, a function of the same arguments; a NAME alone is of the same module (default: tapegrad's own)",
    )
    parser.add_argument(
        "--hessian",
        metavar="MODULE:NAME",
        help="for --method taylor: the Hessian, or 'own' for tapegrad's",
    )
    parser.add_argument(
        "--argnums",
        metavar="N[,N]",
        help="which arguments to differentiate by, from 0 (default: all that hold floats)",
    )
    parser.add_argument("--method", choices=METHODS, default="auto", help="how slopes are measured")
    parser.add_argument(
        "--directions",
        type=int,
        metavar="N",
        help="check along N random directions instead of component by component",
    )
    parser.add_argument(
        "--budget",
        type=int,
        metavar="N",
        help="values of the function that the check may take; what is left after one direction goes into blocks of components",
    )
    parser.add_argument(
        "--digits", type=float, default=6, metavar="D", help="digits that must agree (default 6)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the random directions")
    parser.add_argument("--html", metavar="FILE.html", help="write a report with pictures")
    parser.add_argument(
        "--json", metavar="FILE.json", help="write the result as JSON; - for stdout"
    )
    parser.add_argument("--quiet", action="store_true", help="print the verdict only, no progress")


def run(chosen: argparse.Namespace) -> int:
    """Check what the options name; the exit status."""
    try:
        for path in (chosen.html, chosen.json):
            _refuse_unwritable(path)
        f = named(chosen.function)
        args = point(f, chosen.point)
        result = _checked(chosen, f, args)
        _written(chosen, result)
    except Unanswerable as problem:
        print(f"python -m tapegrad check: {problem}", file=sys.stderr)
        return 2
    if chosen.json != "-":
        print(result.headline if chosen.quiet else result)
    return 0 if result.ok else 1


def _checked(chosen: argparse.Namespace, f: Callable[..., Any], args: list[Any]) -> GradientCheck:
    """The check that the options ask for. An error of the user's code becomes Unanswerable, with its line."""
    place = chosen.function.rpartition(":")[0]
    gradient = _beside(place, chosen.gradient) if chosen.gradient else None
    own = chosen.hessian == "own"
    hessian = True if own else _beside(place, chosen.hessian) if chosen.hessian else None
    try:
        return check_gradient(
            f,
            *args,
            gradient=gradient,
            argnums=_argnums(chosen.argnums),
            method=chosen.method,
            directions=chosen.directions,
            budget=chosen.budget,
            hessian=hessian,
            digits=chosen.digits,
            seed=chosen.seed,
            progress=not chosen.quiet and sys.stderr.isatty(),
        )
    except KeyboardInterrupt:
        raise
    except Exception as problem:  # the user's function may raise anything
        where = _last_line_of_user(problem)
        raise Unanswerable(f"{where}{type(problem).__name__}: {problem}") from problem


def _last_line_of_user(problem: BaseException) -> str:
    """Where the user's own code raised, as file:line; "" if it was ours that refused."""
    import traceback

    frames = traceback.extract_tb(problem.__traceback__)
    ours = str(Path(__file__).parent.parent)
    if not frames or frames[-1].filename.startswith(ours):
        return ""
    frame = frames[-1]
    return f"{frame.filename}:{frame.lineno}, in {frame.name}: "


def _beside(place: str, text: str) -> Callable[..., Any]:
    """The function that an option names; a name alone is of the module of the function that is checked."""
    return named(text if ":" in text else f"{place}:{text}")


def _argnums(text: str | None) -> Any:
    if text is None:
        return None
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise Unanswerable(f"--argnums {text!r} is no list of numbers: write 0 or 0,2.") from None
    return numbers if len(numbers) > 1 else numbers[0]


# ------------------------------------------------------------------------------------ the function


def named(text: str) -> Callable[..., Any]:
    """The function called `MODULE:NAME`, or `FILE.py:NAME`; NAME may have dots."""
    place, colon, name = text.rpartition(":")
    if not colon or not place or not name:
        raise Unanswerable(
            f"{text!r} names no function: write MODULE:FUNCTION, for example model:loss or ./model.py:loss."
        )
    value: Any = _module(place)
    for part in name.split("."):
        if not hasattr(value, part):
            callables = [n for n, v in vars(_module(place)).items() if callable(v) and n[0] != "_"]
            there = f"; it has {', '.join(sorted(callables)[:10])}" if callables else ""
            raise Unanswerable(f"{place} has no {part!r}{there}.")
        value = getattr(value, part)
    if not callable(value):
        raise Unanswerable(
            f"{text} is a {type(value).__name__}, which cannot be called: name a function."
        )
    return value


def _module(place: str) -> Any:
    """The module at a path (`model.py`) or of a dotted name; Unanswerable, with the remedy, where it cannot be imported."""
    if place.endswith(".py"):
        path = Path(place).resolve()
        if not path.is_file():
            raise Unanswerable(f"there is no file {place}: check the path.")
        name = path.stem
        if name in sys.modules and getattr(sys.modules[name], "__file__", None) == str(path):
            return sys.modules[name]
        sys.path.insert(0, str(path.parent))
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        load: Callable[[], Any] = lambda: spec.loader.exec_module(module)  # noqa: E731  either way of loading
    else:
        if "" not in sys.path and str(Path.cwd()) not in sys.path:
            sys.path.insert(0, str(Path.cwd()))
        load = lambda: importlib.import_module(place)  # noqa: E731
    try:
        loaded = load()
    except ModuleNotFoundError as problem:
        missing = problem.name or place
        cure = (
            "run the command in its folder, or write a path such as ./model.py:loss"
            if place.startswith(missing)
            else f"install {missing}"
        )
        raise Unanswerable(
            f"{place} cannot be imported, as there is no module {missing!r}: {cure}."
        ) from problem
    except Exception as problem:
        raise Unanswerable(
            f"{place} cannot be imported: {_last_line_of_user(problem)}{type(problem).__name__}: {problem}"
        ) from problem
    return sys.modules[name] if place.endswith(".py") else loaded


# ------------------------------------------------------------------------------------ the point


def point(f: Callable[..., Any], texts: list[str]) -> list[Any]:
    """Positional arguments for `f` from the command line and its defaults."""
    try:
        parameters = [
            p
            for p in inspect.signature(f).parameters.values()
            if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
    except (TypeError, ValueError):
        return [value(text) for text in texts]
    names = [p.name for p in parameters]
    given: dict[str, Any] = {}
    free = [text for text in texts if not _is_named(text, names)]
    for text in texts:
        if _is_named(text, names):
            name, _, written = text.partition("=")
            given[name] = value(written)
    loaded = [value(text) for text in free]
    if (
        len(loaded) == 1
        and isinstance(loaded[0], dict)
        and loaded[0]
        and set(loaded[0]) <= set(names)
    ):
        given |= loaded[0]  # a file with an entry for each argument
        loaded = []
    open_names = [name for name in names if name not in given]
    if len(loaded) > len(open_names) and not _takes_more(f):
        raise Unanswerable(
            f"{len(free)} values were given, but {_name(f)} takes {len(names)} arguments ({', '.join(names) or 'none'}): a "
            "vector is one value, such as [1,2,3] or a file."
        )
    given |= dict(zip(open_names, loaded, strict=False))
    args = []
    for p in parameters:
        if p.name in given:
            args.append(given[p.name])
        elif p.default is not p.empty:
            args.append(p.default)
        elif not any(name in given for name in names[len(args) + 1 :]) and args and _takes_more(f):
            break
        else:
            raise Unanswerable(
                f"{_name(f)} needs a value for {p.name}: give it on the command line (a number, [1,2,3], or a .npy, .npz, "
                ".json or .csv file), or give the function a default."
            )
    return args + loaded[len(open_names) :]


def _takes_more(f: Callable[..., Any]) -> bool:
    return any(p.kind is p.VAR_POSITIONAL for p in inspect.signature(f).parameters.values())


def _name(f: Any) -> str:
    return getattr(f, "__name__", type(f).__name__)


def _is_named(text: str, names: list[str]) -> bool:
    name, equals, _ = text.partition("=")
    if equals and name.isidentifier() and name not in names:
        raise Unanswerable(
            f"{text!r} names no argument of the function; it has {', '.join(names) or 'none'}."
        )
    return bool(equals) and name in names


READERS: dict[str, Callable[[Path], Any]] = {
    ".npy": lambda path: np.load(path, allow_pickle=False),
    ".npz": lambda path: dict(np.load(path, allow_pickle=False)),
    ".json": lambda path: _arrays(json.loads(path.read_text(encoding="utf-8"))),
    ".csv": lambda path: _table(path),
}


def value(text: str) -> Any:
    """A number, JSON, or the contents of a file."""
    suffix = Path(text).suffix.lower()
    if suffix in READERS:
        path = Path(text)
        if not path.is_file():
            raise Unanswerable(f"there is no file {text}: check the path.")
        try:
            return READERS[suffix](path)
        except (ValueError, OSError, KeyError) as problem:
            raise Unanswerable(f"{text} cannot be read as {suffix}: {problem}") from problem
    try:
        return _arrays(json.loads(text))
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        raise Unanswerable(
            f"{text!r} is neither a number, nor JSON such as [1,2,3], nor a .npy, .npz, .json or .csv file."
        ) from None


def _arrays(read: Any) -> Any:
    """JSON with its lists of numbers as arrays and its numbers as floats."""
    if isinstance(read, dict):
        return {key: _arrays(entry) for key, entry in read.items()}
    if isinstance(read, bool) or isinstance(read, str) or read is None:
        raise ValueError(f"it holds {read!r} where numbers belong.")
    if isinstance(read, list):
        if any(isinstance(entry, dict) for entry in read):
            return [_arrays(entry) for entry in read]
        try:
            return np.array(read, dtype=float)
        except (ValueError, TypeError):
            raise ValueError("its lists must hold numbers, in rows of equal length.") from None
    return float(read)


def _table(path: Path) -> np.ndarray:
    """A table of numbers; a first line of names is skipped, one column is a vector."""
    lines = path.read_text(encoding="utf-8").splitlines()
    try:
        [float(cell) for cell in lines[0].split(",")] if lines else []
        skipped = 0
    except ValueError:
        skipped = 1
    values = np.loadtxt(io.StringIO("\n".join(lines[skipped:])), delimiter=",", ndmin=2)
    return values[:, 0] if values.shape[1] == 1 else values[0] if values.shape[0] == 1 else values


# ------------------------------------------------------------------------------------ the answer


def _refuse_unwritable(path: str | None) -> None:
    """Before a long check and not after it."""
    if path is None or path == "-":
        return
    folder = Path(path).parent
    if not folder.is_dir():
        raise Unanswerable(
            f"{path} cannot be written, as there is no folder {folder}: create it or choose another."
        )
    if Path(path).is_dir():
        raise Unanswerable(f"{path} is a folder: give the name of a file in it.")


def _written(chosen: argparse.Namespace, result: GradientCheck) -> None:
    try:
        if chosen.html:
            Path(chosen.html).write_text(page(result, _picture(result)), encoding="utf-8")
        if chosen.json == "-":
            print(json.dumps(result.to_dict(), indent=1))
        elif chosen.json:
            Path(chosen.json).write_text(json.dumps(result.to_dict(), indent=1), encoding="utf-8")
    except OSError as problem:
        raise Unanswerable(f"the report could not be written: {problem}") from problem


def _picture(result: GradientCheck) -> bytes | None:
    """The picture as SVG; None where matplotlib is absent, or there is nothing to draw."""
    if importlib.util.find_spec("matplotlib") is None or not (result.probes or result.taylor):
        return None
    buffer = io.BytesIO()
    result.plot().savefig(buffer, format="svg")
    return buffer.getvalue()
