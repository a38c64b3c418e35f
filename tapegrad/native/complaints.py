"""What Numba says against a program, told of the user's lines.

Numba speaks in paragraphs, of the text that it was given, which may be a generated one. Errors of tapegrad name file, line and
expression first, then what is wrong, then what to write; Numba's own words stay beside them, as the cause.
"""

from __future__ import annotations

import ast
import linecache
import re
from typing import Any

from numba.core.errors import NumbaError, TypingError, UnsupportedBytecodeError

from ..errors import NotDifferentiable
from .tree import Where

COMPLAINTS = (NumbaError, UnsupportedBytecodeError)
"""What Numba raises about a program that it cannot compile."""
_REDUCTION = re.compile(
    r"[Uu]se of reduction variable '?(\w+)|Unknown reduce instruction node: \$?(\w+)"
)
"""What it says, in errors of several kinds, of a number that passes of a parallel loop hand on."""


def interrupted(error: SystemError) -> BaseException:
    """What a call of compiled code ended with: Ctrl-C inside Numba's dispatcher comes out as SystemError, caused by KeyboardInterrupt."""
    cause = error.__cause__
    return cause if isinstance(cause, KeyboardInterrupt) else error


def complains(error: Exception) -> bool:
    """Whether an error of a call is Numba's, and none of the program's own: then it may be of any kind, but its compiler raised it."""
    if isinstance(error, COMPLAINTS):
        return True
    if isinstance(error, NotDifferentiable | MemoryError):
        return False
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__") == "numba.core.compiler_machinery":
            return True
        trace = trace.tb_next
    return False


def place(loc: Any) -> Where:
    """A place as Numba tells it."""
    return Where(loc.filename, loc.line, linecache.getline(loc.filename, loc.line).strip())


def place_of(error: Exception, otherwise: Where) -> Where:
    """Where an error of Numba's says that it arose, if it does."""
    loc = getattr(error, "loc", None)
    found = otherwise if loc is None or not loc.filename else place(loc)
    return otherwise if found.text.startswith("@") else found


def gist(error: Exception) -> str:
    """The sentence that matters: not in which pass of Numba's, what else was tried, or the lines once more."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", " ".join(str(error).split()))
    text = re.sub(r"^(Failed in nopython mode pipeline \(step: [^)]*\) )+", "", text)
    text = text.removesuffix(". Raised from None")
    text = text.replace(
        "non-precise type pyobject",
        "an argument is an object of Python's, for which it has no type",
    )
    wrong = re.search(r"raised a specific error: (?:\w+: )?(.*?) raised from ", text)
    text = re.split(r' There are \d+ candidate| During: | File "|, defined at ', text)[0]
    told = text if wrong is None else f"{text} ({wrong[1]})"
    return told[:600].rstrip(". ^") or (
        f"its compiler stops without a reason ({type(error).__name__}), as it does at masks of several axes, for which "
        "x.ravel()[mask.ravel()] can be written"
    )


def retold(error: Exception, f: Any) -> Exception:
    """An error of Numba's about a call of a jitted function: of the same kind, beginning with the place."""
    code = f.__code__
    where = place_of(error, Where(code.co_filename, code.co_firstlineno, f"def {f.__name__}"))
    reduction = _REDUCTION.search(str(error))
    if reduction is not None:
        name = reduction[1] or reduction[2]
        return NumbaError(
            f"{_bound_by_passes(f, name) or where}\n  Threads share a loop over prange if its passes hand on sums, products and extrema "
            f"only: s += ..., s *= ... or s = max(s, ...) alone, and s not read beside. What the passes do with {name} is none of these. "
            "Write range for this prange, or keep the number of each pass in an array and combine them behind the loop.",
            highlighting=False,
        )
    text = (
        f"{where}\n  Numba cannot compile this: {gist(error)}. Write it with what Numba has: arithmetic, loops, arrays, tuples and the "
        "functions of NumPy that it knows."
    )
    kind = TypingError if isinstance(error, TypingError) else NumbaError
    return kind(text, highlighting=False)


def _bound_by_passes(f: Any, name: str) -> Where | None:
    """The first line in a loop over prange that binds a name, if the function has one."""
    from .lowering import definition

    try:
        tree, file, before = definition(f)
    except NotDifferentiable:
        return None
    loops = [n for n in ast.walk(tree) if isinstance(n, ast.For)]
    for loop in loops:
        if not ast.unparse(loop.iter).split("(")[0].endswith("prange"):
            continue
        for n in ast.walk(loop):
            if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store):
                line = before + n.lineno
                return Where(file, line, linecache.getline(file, line).strip())
    return None


_INSTEAD = {
    "np.linalg.eig": "Of a symmetric matrix write np.linalg.eigh; of others it has one on tensors, outside tg.njit.",
    "np.linalg.eigvals": "Of a symmetric matrix write np.linalg.eigvalsh; of others it has one on tensors, outside tg.njit.",
    "np.roots": "Take steps of Newton's method to a root that is wanted; or call it on tensors, outside tg.njit, where it has one.",
    "math.frexp": "Write e = math.floor(math.log2(abs(x))) + 1 and x * 2.0 ** -e.",
}
"""Functions without a derivative in compiled code for which something else can be written."""


def remedy(text: str | None) -> str:
    """What to write where a function has no derivative rule."""
    otherwise = (
        "Write it with functions that have one, as a loop, or give its derivative with tg.njit_vjp."
    )
    return _INSTEAD.get(text or "", otherwise)
