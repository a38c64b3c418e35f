"""Vector math: elementary functions as branch-free LLVM IR, one source for every dtype and number of lanes.

`emit("exp", "float64", 4)` gives the text of `<4 x double> @symbol(<4 x double>)`, which depends on nothing outside itself: no
libm, no memory of Python's. Compiled programs, replay's kernels and eager ops on large arrays use it. In the order of reading:

    expression      IR written as arithmetic on values
    pairs           double-word arithmetic
    exponentials, logarithms, powers, trigonometry, inverses, special    the functions, float64
    fitting, coefficients                         where the polynomials come from

float32 functions compute in float64 with shorter polynomials and no low words, and round once.

Accuracy over the whole domain, measured against mpmath by bench/accuracy.py: at most 1.5 ulp, 2 for power, arctan2 and gammaln; exact at 0,
infinities, NaN, and where the exact result is one. The lanes of a vector give the same bits as a scalar does.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Any

from ..core import processor
from . import exponentials, inverses, logarithms, powers, special, trigonometry
from .expression import Code, Value, narrowed, sqrt, widened

FUNCTIONS: dict[str, tuple[Any, int]] = {
    "exp": (exponentials.exp, 1),
    "expm1": (exponentials.expm1, 1),
    "exp2": (exponentials.exp2, 1),
    "sinh": (exponentials.sinh, 1),
    "cosh": (exponentials.cosh, 1),
    "tanh": (exponentials.tanh, 1),
    "expit": (exponentials.expit, 1),
    "log": (logarithms.log, 1),
    "log2": (logarithms.log2, 1),
    "log10": (logarithms.log10, 1),
    "log1p": (logarithms.log1p, 1),
    "log_sum": (logarithms.log_sum, 1),
    "power": (logarithms.power, 2),
    "arcsinh": (logarithms.arcsinh, 1),
    "arccosh": (logarithms.arccosh, 1),
    "arctanh": (logarithms.arctanh, 1),
    "hypot": (logarithms.hypot, 2),
    "sin": (trigonometry.sin, 1),
    "cos": (trigonometry.cos, 1),
    "tan": (trigonometry.tan, 1),
    "sincos": (trigonometry.sincos, 1),
    "arcsin": (inverses.arcsin, 1),
    "arccos": (inverses.arccos, 1),
    "arctan": (inverses.arctan, 1),
    "arctan2": (inverses.arctan2, 2),
    "sqrt": (sqrt, 1),
    "cbrt": (inverses.cbrt, 1),
    "erf": (special.erf, 1),
    "erfc": (special.erfc, 1),
    "gammaln": (special.gammaln, 1),
    **{name: (powers.whole_power(n), 1) for n, name in powers.NAMES.items()},
}
"""NumPy's (or SciPy's) name -> the function of Values, and how many operands it takes."""

ELEMENTS = {"float64": "double", "float32": "float"}


SEVERAL = ("sincos", "log_sum")
"""Functions of several results."""


def has(name: str, dtype: str) -> bool:
    """Whether there is a vector form of a function: `has("exp", "float64")`."""
    return name in FUNCTIONS and str(dtype) in ELEMENTS


def arity(name: str) -> int:
    """Number of operands."""
    return FUNCTIONS[name][1]


def emit(name: str, dtype: str, lanes: int, fused: bool | None = None) -> tuple[str, str]:
    """Symbol and IR text of a function of `lanes` elements: `<lanes x T> @symbol(<lanes x T> ...)`, a scalar's for 1 lane.

    The text is a module: concatenate it with other text after dropping declarations that are there twice (`join` does).
    Functions of several results (`SEVERAL`) return a struct. `fused` says whether the target multiplies and adds in one
    instruction; by default, whether this processor does. Raises KeyError for a function that is not there; see `has`.

    >>> symbol, text = emit("exp", "float64", 4)
    >>> symbol
    'tapegrad_exp_f64x4'
    >>> text.splitlines()[0].split("(")[0]
    'define linkonce_odr hidden <4 x double> @tapegrad_exp_f64x4'
    """
    if not has(name, dtype):
        raise KeyError(
            f"a vector form of {name} for {dtype} was asked, but there is none: vecmath.has says what there is."
        )
    return _emitted(name, str(dtype), int(lanes), fuses() if fused is None else bool(fused))


@cache
def _emitted(name: str, dtype: str, lanes: int, fused: bool) -> tuple[str, str]:
    """Symbol and LLVM text of a function on vectors of `lanes` entries."""
    function, count = FUNCTIONS[name]
    element = ELEMENTS[dtype]
    narrow = element == "float" and name != "sqrt"
    code = Code(lanes, fused, 24 if element == "float" else 53)
    operands = [code.parameter(f"x{i}", element) for i in range(count)]
    given = [widened(x) for x in operands] if narrow else operands
    results = function(*given)
    results = results if isinstance(results, tuple) else (results,)
    if narrow:
        results = tuple(narrowed(r) for r in results)
    kind = code.type(element)
    returned = _returned(code, kind, results)
    symbol = f"tapegrad_{name}_f{64 if element == 'double' else 32}x{lanes}"
    parameters = ", ".join(f"{kind} {x.name}" for x in operands)
    result = kind if len(results) == 1 else "{" + ", ".join([kind] * len(results)) + "}"
    short = len(code.lines) < 80 and not code.tables
    lines = [
        f"define linkonce_odr hidden {result} @{symbol}({parameters}) "
        f"nounwind willreturn memory(none) {'alwaysinline ' if short else ''}{{",
        "entry:",
        *code.lines,
        *returned,
        "}",
        *sorted(code.declarations),
        *code.tables.values(),
    ]
    return symbol, "\n".join(lines) + "\n"


def _returned(code: Code, kind: str, results: tuple[Value, ...]) -> list[str]:
    if len(results) == 1:
        return [f"  ret {kind} {results[0].name}"]
    struct = "{" + ", ".join([kind] * len(results)) + "}"
    whole = "poison"
    for i, result in enumerate(results):
        whole = code.emit(f"insertvalue {struct} {whole}, {kind} {result.name}, {i}", "struct").name
    return [f"  ret {struct} {whole}"]


def join(*texts: str) -> str:
    """One module of several texts: declarations, tables and functions that stand in more than one are kept once."""
    kept: dict[str, None] = {}
    for text in texts:
        for piece in _pieces(text):
            kept.setdefault(piece)
    return "\n".join(kept) + "\n"


def _pieces(text: str) -> list[str]:
    """Functions, and lines outside functions."""
    pieces: list[str] = []
    body: list[str] | None = None
    for line in text.splitlines():
        if body is not None:
            body.append(line)
            if line == "}":
                pieces.append("\n".join(body))
                body = None
        elif line.startswith("define "):
            body = [line]
        elif line.strip():
            pieces.append(line)
    return pieces


def fuses() -> bool:
    """Whether this processor has a fused multiply-add."""
    return processor.fuses()


@cache
def fingerprint() -> str:
    """A hash of the source that the code of every function depends on."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


__all__ = ["arity", "emit", "fingerprint", "fuses", "has", "join"]
