"""Documents with generated parts: what stands between `<!-- mark -->` and `<!-- end of mark -->` is written by a program.

The guide's tables of names, of the vocabulary and of planted faults are such parts: never typed by hand, so that a test can
demand that they are what the program says today.
"""

from __future__ import annotations

import re
from pathlib import Path


def part(text: str, mark: str) -> str:
    """What stands between the marks of a document. Raises ValueError where they are missing.

    >>> part("before <!-- sum --> 3 <!-- end of sum --> after", "sum")
    '3'
    """
    found = re.search(_pattern(mark), text, flags=re.DOTALL)
    if not found:
        raise ValueError(
            f"the document has no place for the {mark}: put <!-- {mark} --> and <!-- end of {mark} --> where it belongs."
        )
    return found[2].strip()


def update(path: Path, mark: str, new: str) -> bool:
    """Write `new` between the marks of a file; whether that changed it. Raises ValueError where they are missing."""
    text = path.read_text(encoding="utf-8")
    part(text, mark)
    written = re.sub(
        _pattern(mark), lambda m: f"{m[1]}\n{new}\n{m[3]}", text, count=1, flags=re.DOTALL
    )
    path.write_text(written, encoding="utf-8")
    return written != text


def cell(text: str) -> str:
    """The text as it stands in a cell of a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|")


def _pattern(mark: str) -> str:
    return f"(<!-- {re.escape(mark)} -->)(.*?)(<!-- end of {re.escape(mark)} -->)"


__all__ = ["cell", "part", "update"]
