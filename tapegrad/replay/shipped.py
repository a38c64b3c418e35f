"""The machine as it is shipped: LLVM's language in a file of the package, so that no process has to make it with Numba.

Numba takes 20 seconds for the machine's functions, most of them for their types. The result depends on no computer: it is integers,
doubles and addresses. So shipping.py makes it once, and here it is read; llvmlite alone compiles it.

Data: `machine.ir`, a magic line, the SHA-256 of the rest, and packed JSON: for each variant its fingerprint and its modules, one
module for each function of the machine. Variants differ in the object layouts of CPython's versions.

Invariant: text is believed only if its fingerprint is that of the machine's sources here. Where no text fits, or the file is damaged
or absent, Numba compiles the machine.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import platform
import sys
from functools import cache
from pathlib import Path
from typing import Any

from ..core import tape
from ..llvm.cache import text_of
from ..llvm.linker import Module
from . import layout

SOURCES = (
    "access",
    "adjoints",
    "calls",
    "layout",
    "lines",
    "loops",
    "machine",
    "recording",
    "steps",
    "values",
)
"""The modules of this package that the machine is made from."""

FILE = Path(__file__).with_name("machine.ir")
_MAGIC = b"tapegrad machine 1\n"

_SYSTEMS = ("linux", "darwin")
_PROCESSORS = ("x86_64", "amd64", "aarch64", "arm64")


def fingerprint() -> str:
    """A hash of all that is compiled into the machine: the text of its modules, the layouts, and what the tape's words mean."""
    constants = {name: value for name, value in vars(layout).items() if name.isupper()}
    facts = repr((sorted(constants.items()), tape.STRIDE, tape.FREED))
    return hashlib.sha256(
        (text_of(*(f"replay/{name}" for name in SOURCES)) + facts).encode()
    ).hexdigest()


def edition() -> str:
    """The hash that the file gives of itself, empty where none is believed; without reading all of it."""
    try:
        if _distrusted:
            return ""
        with open(FILE, "rb") as file:
            return file.read(len(_MAGIC) + 32)[len(_MAGIC) :].hex()
    except OSError:
        return ""


_distrusted = False


def distrust() -> None:
    """Shipped code was tried and found wrong: this process is to do without it."""
    global _distrusted
    _distrusted = True


def obstacle() -> str:
    """Why no shipped machine is used here, or an empty string."""
    if modules():
        return ""
    if _distrusted:
        return "the shipped code failed the self-test"
    if sys.platform not in _SYSTEMS or platform.machine().lower() not in _PROCESSORS:
        return "no shipped code was tried on this system"
    if not edition():
        return "there is no shipped code"
    return "the shipped code is damaged, or belongs to other sources or another Python"


def modules() -> tuple[Module, ...]:
    """The shipped machine; empty where none fits this process."""
    return () if _distrusted else _fitting()


@cache
def _fitting() -> tuple[Module, ...]:
    if sys.platform not in _SYSTEMS or platform.machine().lower() not in _PROCESSORS:
        return ()
    try:
        variants = read(FILE)["variants"]
        found = variants.get(fingerprint(), ())
        return tuple(Module(**{**m, "asks": tuple(m["asks"])}) for m in found)
    except (OSError, ValueError, KeyError, TypeError, lzma.LZMAError):
        return ()


def read(path: Path) -> dict[str, Any]:
    """What a file holds; raises OSError, ValueError where it is not what was written."""
    data = path.read_bytes()
    start = len(_MAGIC)
    payload = data[start + 32 :]
    if data[:start] != _MAGIC or data[start : start + 32] != hashlib.sha256(payload).digest():
        raise ValueError(f"{path} was read for the machine's code, but it is damaged.")
    return json.loads(lzma.decompress(payload))


def packed(content: dict[str, Any]) -> bytes:
    """A file that holds `content`: the same bytes for the same content."""
    text = json.dumps(content, indent=0, sort_keys=True).encode()
    payload = lzma.compress(text, preset=9 | lzma.PRESET_EXTREME)
    return _MAGIC + hashlib.sha256(payload).digest() + payload
