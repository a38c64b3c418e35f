"""The cache: object code on disk, one file for the machine and one for each kernel.

A file is a frame (`content`, `store`): a magic line, the SHA-256 of its name and of the rest, and the rest. That is a line of JSON
(symbols, sizes, symbols asked for; or the reason why there is no code) and the object code. The name holds a hash of everything the
code depends on: the rule and the text generated from it, this package's source, the versions of Python, NumPy, Numba and llvmlite,
and the processor.

Invariant: a file that is damaged, cut short, renamed or unreadable counts as absent, and so does a link, a pipe or a folder in its place; a
folder that cannot be written to means working without a cache. Reading executes nothing (no pickle). Files that belong to
others than the user and root, or that others may write to, are not believed, nor is anything in a folder where everybody may
rename files.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import stat
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ..core import handlers, headroom, processor

_MAGIC = b"tapegrad replay 2\n"


@dataclass(frozen=True, slots=True)
class Part:
    """One compiled C function."""

    role: str
    symbol: str
    asks: tuple[str, ...]
    code: bytes


@dataclass(frozen=True, slots=True)
class Bundle:
    """What a file holds: compiled functions, or the reason why there are none."""

    parts: tuple[Part, ...] = ()
    reason: str = ""


def folder() -> Path:
    """Where compiled code is kept: TAPEGRAD_CACHE_DIR, or a folder of ours in the user's cache folder."""
    chosen = os.environ.get("TAPEGRAD_CACHE_DIR")
    if chosen:
        return Path(chosen)
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "tapegrad"


@cache
def environment() -> str:
    """A hash of all that compiled code depends on besides the op."""
    llvm = headroom.llvm()

    facts = [
        sys.version,
        sys.platform,
        platform.machine(),
        platform.release(),
        *platform.libc_ver(),
        str((object.__basicsize__, tuple.__basicsize__)),
        *processor.identity(),
        llvm.get_default_triple(),
        *(
            os.environ.get(name, "")
            for name in ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "NUMBA_OPT")
        ),
    ]
    for package in ("numpy", "numba", "llvmlite"):
        with contextlib.suppress(PackageNotFoundError):
            facts.append(version(package))
    return hashlib.sha256(
        "\n".join([*facts, text_of("replay/layout", "replay/access")]).encode()
    ).hexdigest()


@cache
def text_of(*modules: str) -> str:
    """A hash of the text of modules, by their paths in the package; read once: each backward asks while the machine is being compiled."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for name in modules:
        digest.update((package / f"{name}.py").read_bytes())
    return digest.hexdigest()


def path_of(name: str, depends_on: str) -> Path:
    """File of the function(s) called `name`, compiled from what `depends_on` stands for."""
    key = hashlib.sha256((environment() + depends_on).encode()).hexdigest()[:32]
    return folder() / f"{name}-{key}.bin"


def is_ours(facts: os.stat_result) -> bool:
    """Whether nobody but the user and root can have written this file or folder; Windows keeps others out by itself."""
    if not hasattr(os, "getuid"):
        return True
    others = facts.st_mode & (stat.S_IWOTH if stat.S_ISDIR(facts.st_mode) else 0o022)
    return facts.st_uid in (os.getuid(), 0) and not (others and not facts.st_mode & stat.S_ISVTX)


_OPENING = os.O_RDONLY | sum(
    getattr(os, name, 0) for name in ("O_BINARY", "O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK")
)


def content(path: Path) -> bytes | None:
    """What `store` put into a file; None, and the file removed if possible, where it is not what was written."""
    try:
        if not is_ours(path.parent.stat()):
            return None
        handle = os.open(path, _OPENING)
        with open(handle, "rb") as file:
            facts = os.fstat(handle)
            if not stat.S_ISREG(facts.st_mode) or not is_ours(facts):
                return None
            data = file.read()
    except OSError as error:
        handlers.hand_on(error)
        return None
    start = len(_MAGIC)
    payload = data[start + 32 :]
    if data[:start] == _MAGIC and data[start : start + 32] == _digest(path, payload):
        return payload
    with contextlib.suppress(OSError):
        path.unlink()
    return None


def _digest(path: Path, payload: bytes) -> bytes:
    return hashlib.sha256(path.name.encode() + b"\n" + payload).digest()


def store(path: Path, payload: bytes) -> bool:
    """Write a file in one step, so that no other process sees half of it; False where that cannot be done."""
    return write_file(path, _MAGIC + _digest(path, payload) + payload)


def present(path: Path) -> bool:
    """Whether there is a file: a folder, a pipe or a link in its place is none."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


def read(path: Path) -> Bundle | None:
    """The bundle in a file; None where there is none."""
    payload = content(path)
    if payload is None:
        return None
    head, _, code = payload.partition(b"\n")
    header = json.loads(head)
    parts = []
    for role, symbol, asks, size in header["parts"]:
        parts.append(Part(role, symbol, tuple(asks), code[:size]))
        code = code[size:]
    return Bundle(tuple(parts), header["reason"])


def write(path: Path, bundle: Bundle) -> bool:
    """Store a bundle; False where that cannot be done."""
    header = {
        "parts": [(p.role, p.symbol, p.asks, len(p.code)) for p in bundle.parts],
        "reason": bundle.reason,
    }
    return store(path, json.dumps(header).encode() + b"\n" + b"".join(p.code for p in bundle.parts))


def write_file(path: Path, data: bytes) -> bool:
    """Write a file in one step; False where that cannot be done."""
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except OSError:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        return False
    return True


def bound(units: Iterable[Sequence[Path]], most: int) -> None:
    """Remove the units (files that go together) that were not used for longest, where all of them take more than `most` bytes.

    A unit was used when the last of its files was. A file that another process removes meanwhile is gone, as was asked.
    """
    found = []
    for unit in units:
        with contextlib.suppress(OSError):
            stats = [path.stat() for path in unit]
            found.append((max(s.st_mtime for s in stats), sum(s.st_size for s in stats), unit))
    total = 0
    for _, size, unit in sorted(found, key=lambda entry: entry[0], reverse=True):
        total += size
        if total > most:
            for path in unit:
                with contextlib.suppress(OSError):
                    path.unlink()


def stored() -> list[Path]:
    """The files of compiled code in the folder, told by how they begin; files of somebody else's are none of ours."""
    found = []
    try:
        paths = sorted(p for p in folder().iterdir() if p.is_file())
    except OSError:
        return []
    for path in paths:
        with contextlib.suppress(OSError), open(path, "rb") as file:
            if path.name.startswith(".new-") or file.read(9) == _MAGIC[:9]:
                found.append(path)
    with contextlib.suppress(OSError):
        found += sorted(p for p in (folder() / "native").rglob("*") if p.is_file())
    return found
