"""Caches: whatever happens to the files, each process has the right gradient, and believes no file that is not what was written.

A trial flips bits of every file many times, and asks for its content in this process: there is none. Then it harms one or two of the
files that a process left in its cache: flipped bits, files cut short, exchanged for one another, replaced by pipes, folders and links,
made writable for everybody. Then a new process computes the same gradients with every engine: a fork of this one, which has imported
all and compiled nothing, so that a trial costs what was harmed to compile. A file that was believed nevertheless shows: it lies there
as it was harmed, while others were removed or written anew.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import shutil
import tempfile
import traceback
from pathlib import Path
from typing import Any

import numba  # noqa: F401  so that no trial imports it
import numpy as np

import tapegrad as tg
from tapegrad.llvm import cache
from tests.campaigns.runner import main
from tests.children import in_child


def loop(x: Any) -> Any:
    y = 0.5
    for i in range(x.size):
        y = y * x[i] + np.sin(y)
    return y


def grows(x: Any) -> Any:
    y = [0.5]
    for i in range(x.size):
        y.append(y[-1] * x[i])
    return y[-1]


def work() -> str:
    """Gradients by every engine, as text."""
    x = np.linspace(0.3, 0.9, 5)
    found = [tg.grad(tg.njit(loop))(x), tg.grad(tg.njit(grows, mode="overload"))(x)]
    found.append(tg.compile(tg.grad(lambda x: np.sum(np.sin(x) * x)))(x))
    tg.set_engine("replay")
    t = tg.tensor(x, requires_grad=True)
    (np.sum(np.sin(t) * t) + np.prod(t)).backward()
    return json.dumps([*map(list, found), t.grad.tolist()])


def answer(folder: Path) -> str:
    """What a process with this cache finds, or how it ended: a fork of this one, which has imported all and compiled nothing."""

    def found() -> str:
        os.environ["TAPEGRAD_CACHE_DIR"] = str(folder)
        try:
            return work()
        except BaseException:
            return traceback.format_exc()[-1500:]

    try:
        return in_child(found)
    except AssertionError as ended:
        return str(ended)


@functools.cache
def aside() -> Path:
    """A folder of this process."""
    place = Path(tempfile.mkdtemp())
    owner = os.getpid()
    atexit.register(lambda: os.getpid() == owner and shutil.rmtree(place, ignore_errors=True))
    return place


@functools.cache
def prepared() -> tuple[Path, str]:
    """A folder with the cache of a process, and its answer."""
    place = aside()
    expected = answer(place / "cache")
    assert expected.startswith("["), expected
    assert answer(place / "cache") == expected
    return place, expected


def flip(path: Path, rng: np.random.Generator) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(int(rng.integers(1, 4))):
        data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
    path.write_bytes(data)


def cut(path: Path, rng: np.random.Generator) -> None:
    path.write_bytes(path.read_bytes()[: int(rng.integers(path.stat().st_size))])


def lengthen(path: Path, rng: np.random.Generator) -> None:
    path.write_bytes(path.read_bytes() + rng.bytes(int(rng.integers(1, 100))))


def exchange(path: Path, rng: np.random.Generator) -> None:
    other = path.parent / str(rng.choice(sorted(p.name for p in path.parent.glob("*.*"))))
    if other != path and other.is_file():
        aside = path.with_name("aside")
        path.rename(aside)
        other.rename(path)
        aside.rename(other)


def pipe(path: Path, rng: np.random.Generator) -> None:
    path.unlink()
    os.mkfifo(path)


def folder(path: Path, rng: np.random.Generator) -> None:
    path.unlink()
    path.mkdir()


def link(path: Path, rng: np.random.Generator) -> None:
    path.rename(path.with_name(path.name + ".aside"))
    path.symlink_to(path.with_name(path.name + ".aside"))


def open_to_all(path: Path, rng: np.random.Generator) -> None:
    flip(path, rng)
    path.chmod(0o666)


HARMS = (*(flip,) * 14, cut, lengthen, exchange, pipe, folder, link, open_to_all)
IN_BYTES = (flip, cut, lengthen)
"""After these a file is one of ours, with other bytes."""


FLIPS = 5
"""Of each file, judged in this process."""


def flipped(rng: np.random.Generator) -> str | None:
    """Whether the content of a file with flipped bits was believed."""
    place, _ = prepared()
    for sound in sorted((place / "cache").rglob("*.bin")):
        copy = place / sound.name
        for _ in range(FLIPS):
            shutil.copy(sound, copy)
            flip(copy, rng)
            if copy.read_bytes() != sound.read_bytes() and cache.content(copy) is not None:
                return f"believed in this process: {sound.name}"
        shutil.copy(sound, copy)
        if cache.content(copy) is None:
            return f"not believed though sound: {sound.name}"
        copy.unlink()
    return None


def trial(rng: np.random.Generator) -> str | None:
    fault = flipped(rng)
    if fault is not None:
        return fault
    place, expected = prepared()
    harmed = place / "harmed"
    shutil.rmtree(harmed, ignore_errors=True)
    shutil.copytree(place / "cache", harmed)
    told, changed = [], {}
    files = sorted(p for p in harmed.rglob("*") if p.is_file())
    for k in rng.choice(len(files), size=int(rng.integers(1, 3)), replace=False):
        path = files[k]
        harm = HARMS[int(rng.integers(len(HARMS)))]
        if path.is_file() and not path.is_symlink() and path.stat().st_size:
            sound = path.read_bytes()
            harm(path, rng)
            told.append(f"{harm.__name__} {path.name}")
            if harm in IN_BYTES and path.read_bytes() != sound:
                changed[path] = path.read_bytes()
    found = answer(harmed)
    if found != expected:
        return f"another answer\n{found}\nafter {told}"
    if len(changed) < len(
        told
    ):  # a file that is no file any more may be what the other one is read for
        return None
    believed = [p.name for p, data in changed.items() if p.is_file() and p.read_bytes() == data]
    return f"believed: {believed}\nafter {told}" if believed else None


if __name__ == "__main__":
    main("caches", trial, 500)
