"""The machine as it is shipped: LLVM's language in a file of the package, so that no process has to make it with Numba.

Numba takes 20 seconds for the machine's functions, most of them for their types. The result depends on no computer: it is integers,
doubles and addresses. So shipping.py makes it once, and here it is read; llvmlite alone compiles it. For the most common platform
object code that any of its processors runs is there, too: it is linked in 5 ms, and compiling in a hurry takes 150 and gives slower code.

Data: three files, each a magic line, the SHA-256 of the rest, and the rest, packed. `machine.ir` is JSON: for each variant its
fingerprint and its modules, one module for each function of the machine. Variants differ in the object layouts of CPython's versions.
`machine.code` is a line of JSON (the edition of the text it was made from; by fingerprint and platform: role, symbol, symbols asked
for, size), and the object code. `kernels.ir` is JSON as well: by name the kernels that have no vector form (kernels.py).

Invariant: text is believed only if its fingerprint is that of the machine's sources here, code only if it was made from that text.
Where no text fits, or the file is damaged or absent, Numba compiles the machine.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import platform
import sys
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

from ..core import tape
from ..llvm.cache import Part, text_of
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
CODE = Path(__file__).with_name("machine.code")
KERNELS = Path(__file__).with_name("kernels.ir")
_MAGIC = b"tapegrad machine 1\n"
_CODE_MAGIC = b"tapegrad machine code 1\n"

_SYSTEMS = ("linux", "darwin", "win32")
_PROCESSORS = ("x86_64", "amd64", "aarch64", "arm64")

PLATFORMS = {"linux x86_64": ("x86_64-unknown-linux-gnu", "x86-64")}
"""Where object code is shipped for, as LLVM names the target and a processor that has what all of them have."""


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


_DAMAGED = (OSError, ValueError, KeyError, TypeError, lzma.LZMAError)
"""What reading a file that is damaged, or another one, ends with."""


def _known_system() -> bool:
    return sys.platform in _SYSTEMS and platform.machine().lower() in _PROCESSORS


def fits() -> bool:
    """Whether there is a shipped machine for this process, as code or as text."""
    return bool(code() or modules())


def obstacle() -> str:
    """Why no shipped machine is used here, or an empty string."""
    if fits():
        return ""
    if _distrusted:
        return "the shipped code failed the self-test"
    if not _known_system():
        return "no shipped code was tried on this system"
    if not edition():
        return "there is no shipped code"
    return "the shipped code is damaged, or belongs to other sources or another Python"


def modules() -> tuple[Module, ...]:
    """The shipped machine; empty where none fits this process."""
    return () if _distrusted else _fitting()


@cache
def _fitting() -> tuple[Module, ...]:
    if not _known_system():
        return ()
    try:
        variants = read(FILE)["variants"]
        found = variants.get(fingerprint(), ())
        return tuple(Module(**{**m, "asks": tuple(m["asks"])}) for m in found)
    except _DAMAGED:
        return ()


def kernel(name: str, made_from: Callable[[], str]) -> Module | None:
    """A shipped kernel, None where none is; `made_from` tells the fingerprint of the sources here."""
    found = None if _distrusted else _kernels().get(name)
    if found is None or found["fingerprint"] != made_from():
        return None
    return Module(**{**found["module"], "asks": tuple(found["module"]["asks"])})


@cache
def _kernels() -> dict[str, Any]:
    """What `kernels.ir` holds of each kernel, by its name."""
    if not _known_system():
        return {}
    try:
        return read(KERNELS)["kernels"]
    except _DAMAGED:
        return {}


def code() -> tuple[Part, ...]:
    """The shipped machine's object code; empty where there is none for this process."""
    return () if _distrusted else _compiled()


@cache
def _compiled() -> tuple[Part, ...]:
    """The parts of the shipped file that were made from this source for this platform."""
    try:
        head, _, blob = lzma.decompress(_payload(CODE, _CODE_MAGIC)).partition(b"\n")
        facts = json.loads(head)
        if facts["edition"] != edition():
            return ()
        parts = []
        at = 0
        for made_from, system, role, symbol, asks, size in facts["parts"]:
            if (made_from, system) == (fingerprint(), _platform()):
                parts.append(Part(role, symbol, tuple(asks), blob[at : at + size]))
            at += size
        return tuple(parts)
    except _DAMAGED:
        return ()


def _platform() -> str:
    return f"{sys.platform} {platform.machine().lower().replace('amd64', 'x86_64')}"


def packed_code(text: bytes, parts: Iterable[tuple[str, str, Part]]) -> bytes:
    """A file of the object code, by fingerprint and platform, that was made from the file of texts."""
    head: dict[str, Any] = {"edition": text[len(_MAGIC) : len(_MAGIC) + 32].hex(), "parts": []}
    blob = b""
    for made_from, system, part in parts:
        head["parts"].append((made_from, system, part.role, part.symbol, part.asks, len(part.code)))
        blob += part.code
    return _framed(_CODE_MAGIC, json.dumps(head).encode() + b"\n" + blob)


def read(path: Path) -> dict[str, Any]:
    """What a file of texts holds; raises OSError, ValueError where it is not what was written."""
    return json.loads(lzma.decompress(_payload(path, _MAGIC)))


def packed(content: dict[str, Any]) -> bytes:
    """A file that holds `content`: the same bytes for the same content."""
    return _framed(_MAGIC, json.dumps(content, indent=0, sort_keys=True).encode())


def _payload(path: Path, magic: bytes) -> bytes:
    data = path.read_bytes()
    start = len(magic)
    payload = data[start + 32 :]
    if data[:start] != magic or data[start : start + 32] != hashlib.sha256(payload).digest():
        raise ValueError(f"{path} was read for the machine's code, but it is damaged.")
    return payload


def _framed(magic: bytes, content: bytes) -> bytes:
    payload = lzma.compress(content, preset=9 | lzma.PRESET_EXTREME)
    return magic + hashlib.sha256(payload).digest() + payload
