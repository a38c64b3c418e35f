"""The command line, `python -m tapegrad COMMAND`: each command is a parser and a function.

A command is a row in `COMMANDS`: its name, the function that declares its options, and the function
that runs it on the parsed options and returns the exit status. Options are checked where they are
declared, so a command runs only on names and paths that are good. Modules that a command needs are
imported when it runs: help and mistakes answer at once.

Exit status: 0 well, 1 the result falls short of its aim, 2 the command was not understood.
"""

import argparse
import difflib
import importlib.util
import os
import platform
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import NoReturn

REQUIRED = ("numpy", "scipy", "numba", "llvmlite", "optree")


class Parser(argparse.ArgumentParser):
    """A parser that answers a mistake in one line, not below a page of usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


# demo ---------------------------------------------------------------------------------------------


def demo_options(parser: argparse.ArgumentParser) -> None:
    """Declare which of NIST's problems are fitted, from which start, and where a picture goes."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--problem",
        nargs="+",
        action="extend",
        type=problem_name,
        metavar="NAME",
        help="fit these problems only, for example Misra1a Thurber",
    )
    which.add_argument(
        "--quick",
        action="store_true",
        help="fit the problems of lower difficulty only, from the second start",
    )
    parser.add_argument(
        "--start",
        type=int,
        choices=(1, 2),
        help="fit from the first (far) or the second (near) official start only",
    )
    parser.add_argument(
        "--plot", type=picture_path, metavar="FILE.png", help="draw data and fits into a PNG file"
    )


def demo(options: argparse.Namespace) -> int:
    """Fit the chosen problems and print the report; 1 where a fit falls short of its aim."""
    from tapegrad.demo.report import demonstrate, met
    from tapegrad.demo.strd import problems

    chosen = problems()
    if options.problem:
        chosen = [p for p in chosen if p.name in options.problem]
    if options.quick:
        chosen = [p for p in chosen if p.level == "lower"]
    starts = (options.start,) if options.start else (2,) if options.quick else (1, 2)
    rows = demonstrate(chosen, starts)
    if options.plot:
        from tapegrad.demo.pictures import draw

        try:
            draw(rows, options.plot)
        except OSError as problem:
            print(f"the picture could not be written: {problem}", file=sys.stderr)
            return 2
        print(f"picture: {options.plot}")
    return 0 if met(rows) else 1


def problem_name(text: str) -> str:
    """The NIST problem that `text` names in whatever case."""
    from tapegrad.demo.models import MODEL_OF

    names = {name.lower(): name for name in MODEL_OF}
    if text.lower() in names:
        return names[text.lower()]
    close = difflib.get_close_matches(text.lower(), names, n=4, cutoff=0.5)
    listed = ", ".join(names[name] for name in close or sorted(names))
    hint = f"did you mean {listed}?" if close else f"there are {listed}."
    raise argparse.ArgumentTypeError(f"no problem is called {text!r}; {hint}")


def picture_path(text: str) -> Path:
    """A path where a PNG can be written, known before the fits and not after them."""
    path = Path(text)
    if path.suffix.lower() != ".png":
        raise argparse.ArgumentTypeError(f"{text!r} is not a PNG file; give a name ending in .png")
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(
            f"the folder {str(path.parent)!r} does not exist; create it or choose another"
        )
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"{text!r} cannot be written; choose another path")
    if importlib.util.find_spec("matplotlib") is None:
        raise argparse.ArgumentTypeError(
            'a picture needs matplotlib, which is not installed; pip install "tapegrad[plot]"'
        )
    return path


# check --------------------------------------------------------------------------------------------


def check_options(parser: argparse.ArgumentParser) -> None:
    from tapegrad.check.commandline import options

    options(parser)


def check(options: argparse.Namespace) -> int:
    from tapegrad.check.commandline import run

    return run(options)


# info ---------------------------------------------------------------------------------------------


def info_options(parser: argparse.ArgumentParser) -> None:
    """No options."""


def info(options: argparse.Namespace) -> int:
    facts = {
        "tapegrad": version("tapegrad"),
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        **{name: version(name) for name in REQUIRED},
        "platform": platform.platform(),
        "cpu": cpu(),
        "threads": threads(),
        **executor_facts(),
        "extras": extras(),
    }
    for name, fact in facts.items():
        print(f"{name:9} {fact}")
    return 0


def version(distribution: str) -> str:
    """The installed version, read without importing the package."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "not installed"


OPTIONAL = ("matplotlib", "dask", "distributed", "pandas", "xarray", "torch", "jax")


def extras() -> str:
    """The libraries that some functions can use, with their versions; those that are absent in brackets."""
    found = {name: version(name) for name in OPTIONAL}
    return ", ".join(
        f"({name})" if v == "not installed" else f"{name} {v}" for name, v in found.items()
    )


def cpu() -> str:
    """The processor as LLVM calls it, and which vector instructions it has."""
    try:
        from .core import processor

        wide = [f for f in ("sse4.2", "avx2", "fma", "avx512f", "neon") if processor.has(f)]
        return f"{processor.name()} ({', '.join(wide) or 'no vector instructions known'})"
    except Exception as problem:  # whatever is wrong with LLVM, a bug report is to be had
        return f"unknown: {problem}"


def threads() -> str:
    """How many threads may run, and what limits those of the numerical libraries."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    limits = [
        f"{name}={os.environ[name]}"
        for name in (
            "OMP_NUM_THREADS",
            "OPENBLAS_NUM_THREADS",
            "MKL_NUM_THREADS",
            "NUMBA_NUM_THREADS",
        )
        if name in os.environ
    ]
    return f"{usable} of {os.cpu_count()} cores" + (f", {', '.join(limits)}" if limits else "")


def executor_facts() -> dict[str, str]:
    """The engine in force, the state of compiled code, what is disabled and why."""
    import tapegrad
    from tapegrad import replay

    status = replay.status()
    disabled = [f"the op {op}: {why}" for op, why in status["unavailable"].items()]
    if not status["available"]:
        disabled.append(f"replay: {status['machine']}; gradients are swept with NumPy")
    return {
        "engine": tapegrad.engine(),
        "replay": f"{status['machine']}; {status['code']}" if status["available"] else "disabled",
        "cache": stored_code(),
        "disabled": "; ".join(disabled) or "nothing",
    }


def stored_code() -> str:
    """The folder of compiled code, with how much is in it."""
    from tapegrad.llvm import cache as code

    folder, files = code.folder(), code.stored()
    size = sum(path.stat().st_size for path in files) / 1e6
    nearest = next(p for p in (folder, *folder.parents) if p.exists())
    blocked = "" if os.access(nearest, os.W_OK) else ", cannot be written: nothing is kept"
    return f"{folder} ({len(files)} files, {size:.1f} MB{blocked})"


# warm ---------------------------------------------------------------------------------------------


def warm_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--all",
        action="store_true",
        help="also the kernels that need Numba: complex numbers and special functions, for some minutes",
    )


def warm(options: argparse.Namespace) -> int:
    """Compile the kernels that a process would compile when it needs them, and report what is stored; 1 where some are missing."""
    from tapegrad import replay
    from tapegrad.core.primitive import OPS
    from tapegrad.replay import quick_loops

    replay.declare_all()
    if not replay.load(block=True):
        print(f"replay cannot run here: {replay.status()['machine']}", file=sys.stderr)
        return 1
    keys = replay.kernel_keys(numba=options.all)
    for done, key in enumerate(keys):
        if sys.stderr.isatty():
            print(f"\rkernel {done + 1} of {len(keys)}", end="", file=sys.stderr, flush=True)
        replay.request([key], wait=True)
    for op in OPS if quick_loops.enabled() else ():
        if quick_loops.suits(op.of):
            quick_loops.load(op.of)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    status = replay.status()
    print(f"{'replay':9} {status['machine']}; {status['code']}")
    print(f"{'kernels':9} {len(status['kernels'])} of {len(keys)}")
    print(f"{'cache':9} {stored_code()}")
    stored = status["code"].endswith("stored")
    return 0 if stored and len(status["kernels"]) == len(keys) else 1


# cache --------------------------------------------------------------------------------------------


def cache_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--clear",
        action="store_true",
        help="remove all compiled code; it is compiled again when needed",
    )


def cache(options: argparse.Namespace) -> int:
    """Tell where compiled code is kept; with --clear remove it. 1 where a file could not be removed."""
    from tapegrad.llvm import cache as code

    print(stored_code())
    if not options.clear:
        return 0
    failed = []
    files = code.stored()
    for path in files:
        try:
            path.unlink()
        except OSError as problem:
            failed.append(f"{path} could not be removed: {problem}")
    print("\n".join([f"removed {len(files) - len(failed)} files", *failed]))
    return 1 if failed else 0


# vocabulary and names -----------------------------------------------------------------------------


def generated_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--update", type=Path, metavar="FILE.md", help="write the table between its marks in a file"
    )


def vocabulary(options: argparse.Namespace) -> int:
    from tapegrad.help.vocabulary import table

    return generated("vocabulary", table(), options.update)


def names_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "word", nargs="?", metavar="WORD", help="only names that have this in the name or summary"
    )
    generated_options(parser)


def names(options: argparse.Namespace) -> int:
    from tapegrad.help.names import find, table

    if options.word is None:
        return generated("names", table(), options.update)
    found = find(options.word)
    for name, summary in found.items():
        print(f"{name}\n    {summary}")
    if not found:
        print(f"no public name has {options.word!r} in it", file=sys.stderr)
    return 0 if found else 1


def generated(mark: str, table: str, path: Path | None) -> int:
    """Print a table, or write it between its marks in a document."""
    from tapegrad.help.documents import update

    if path is None:
        print(table)
        return 0
    try:
        changed = update(path, mark, table)
    except (OSError, ValueError) as problem:
        print(f"the table could not be written: {problem}", file=sys.stderr)
        return 2
    print(f"{path}: {'updated' if changed else 'as it was'}")
    return 0


# error --------------------------------------------------------------------------------------------


def error_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", nargs="?", metavar="NAME", help="the name in brackets at the end of a message"
    )
    generated_options(parser)


def error(options: argparse.Namespace) -> int:
    from tapegrad.help.remedies import REMEDIES, page

    if options.name is None:
        return generated("errors", page(), options.update)
    try:
        why, remedy = REMEDIES[options.name.strip("[]")]
    except KeyError:
        near = difflib.get_close_matches(options.name, REMEDIES, 3) or REMEDIES
        print(f"no error is called {options.name!r}; there are: {', '.join(near)}", file=sys.stderr)
        return 1
    print(f"{why}\n\nRemedy: {remedy}")
    return 0


# stubs --------------------------------------------------------------------------------------------


def stubs_options(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--check", action="store_true", help="compare, and say which files differ")
    which.add_argument("--update", action="store_true", help="write the files anew")


def stubs(options: argparse.Namespace) -> int:
    """Compare the stubs with what the declarations give, or write them; 1 where they differ and are not written."""
    from tapegrad.help.stubs import stubs, versions

    made = stubs()
    differ = [p for p, text in made.items() if not p.is_file() or p.read_text("utf-8") != text]
    if options.update:
        try:
            for path in differ:
                path.write_text(made[path], "utf-8")
        except OSError as problem:
            print(f"a stub could not be written: {problem}", file=sys.stderr)
            return 2
    for path in differ:
        print(f"{path}: {'updated' if options.update else 'differs'}")
    print(f"{len(made)} stubs {versions()}, {len(differ) or 'none'} changed")
    return 0 if options.update or not differ else 1


# --------------------------------------------------------------------------------------------------

COMMANDS = (
    ("demo", demo_options, demo, "fit NIST's 27 reference problems and count correct digits"),
    ("check", check_options, check, "judge the gradient of a function of yours"),
    (
        "vocabulary",
        generated_options,
        vocabulary,
        "say of each function of NumPy and SciPy whether it is differentiable",
    ),
    (
        "names",
        names_options,
        names,
        "list every public name with what it is, or those about a WORD",
    ),
    (
        "error",
        error_options,
        error,
        "tell the remedy of the error whose short NAME a message ends with",
    ),
    (
        "stubs",
        stubs_options,
        stubs,
        "write or compare what type checkers read of functions that declarations make",
    ),
    ("info", info_options, info, "show versions, platform and engine, as a bug report needs them"),
    ("warm", warm_options, warm, "compile now what a process would compile when it needs it"),
    ("cache", cache_options, cache, "show where compiled code is kept, or clear it"),
)


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="python -m tapegrad", description="Exact derivatives of ordinary NumPy.")
    parser.add_argument("--version", action="store_true", help="print the version and stop")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name, options, run, description in COMMANDS:
        command = commands.add_parser(
            name, help=description, description=f"{description[0].upper()}{description[1:]}."
        )
        options(command)
        command.set_defaults(run=run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command in `argv` (default: the process's arguments); the exit status."""
    parser = build_parser()
    try:
        options = parser.parse_args(argv)
    except SystemExit as stop:  # argparse has answered: help (0) or a mistake (2)
        return int(stop.code or 0)
    if options.version:
        from tapegrad import __version__

        print(f"tapegrad {__version__}")
        return 0
    if not hasattr(options, "run"):
        parser.print_help()
        return 0
    try:
        return options.run(options)
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


if __name__ == "__main__":
    sys.exit(main())
