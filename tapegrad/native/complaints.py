"""What Numba says against a program, told of the user's lines.

Numba speaks in paragraphs, of the text that it was given, which may be a generated one. Errors of tapegrad name file, line and
expression first, then what is wrong, then what to write; Numba's own words stay beside them, as the cause.
"""

from __future__ import annotations

import linecache
import re
from typing import Any

from numba.core.errors import NumbaError, TypingError, UnsupportedBytecodeError

from .tree import Where

COMPLAINTS = (NumbaError, UnsupportedBytecodeError)
"""What Numba raises about a program that it cannot compile."""


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
    return told[:600].rstrip(". ^")


def retold(error: Exception, f: Any) -> Exception:
    """An error of Numba's about a call of a jitted function: of the same kind, beginning with the place."""
    code = f.__code__
    where = place_of(error, Where(code.co_filename, code.co_firstlineno, f"def {f.__name__}"))
    text = (
        f"{where}\n  Numba cannot compile this: {gist(error)}. Write it with what Numba has: arithmetic, loops, arrays, tuples and the "
        "functions of NumPy that it knows."
    )
    kind = TypingError if isinstance(error, TypingError) else NumbaError
    return kind(text, highlighting=False)


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
