"""Files of the cache are believed only as they were written, by whom they were written; without a place to write to everything works."""

import os
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tapegrad.llvm import cache

posix = pytest.mark.skipif(os.name != "posix", reason="POSIX's files")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "folder" / "some-file.bin"
    assert cache.store(path, b"payload")
    return path


def test_what_was_stored_is_read(file):
    assert cache.content(file) == b"payload"
    assert cache.present(file)


def test_every_bit_counts(file):
    data = file.read_bytes()
    for k in range(len(data)):
        for bit in range(8):
            file.write_bytes(data[:k] + bytes([data[k] ^ 1 << bit]) + data[k + 1 :])
            assert cache.content(file) is None
            assert not file.exists()


def test_every_length_counts(file):
    data = file.read_bytes()
    for changed in [data + b"x", *(data[:k] for k in range(len(data)))]:
        file.write_bytes(changed)
        assert cache.content(file) is None


def test_a_file_under_another_name_is_another_file(file):
    renamed = file.with_name("another.bin")
    file.rename(renamed)
    assert cache.content(renamed) is None


def replaced(file, kind):
    aside = file.with_name("aside.bin")
    file.rename(aside)
    if kind == "link":
        file.symlink_to(aside)
    elif kind == "pipe":
        os.mkfifo(file)
    elif kind == "folder":
        file.mkdir()
    else:
        file.symlink_to(file)


@posix
@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "loop"])
def test_only_a_file_is_a_file(file, kind):
    """A pipe does not make the reader wait; what can be replaced is replaced by the next write."""
    replaced(file, kind)
    assert cache.content(file) is None and not cache.present(file)
    assert cache.store(file, b"again") == (kind != "folder")
    assert cache.content(file) == (None if kind == "folder" else b"again")


@posix
@pytest.mark.parametrize("mode", [0o666, 0o620])
def test_a_file_that_others_may_write_to_is_not_believed(file, mode):
    file.chmod(mode)
    assert cache.content(file) is None


@posix
def test_a_folder_that_everybody_may_write_to_is_not_believed(file):
    file.parent.chmod(0o777)
    assert cache.content(file) is None
    file.parent.chmod(0o1777)  # nobody may rename another's files there
    assert cache.content(file) == b"payload"


@posix
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root")
def test_a_file_of_another_user_is_not_believed(file):
    os.chown(file, 12345, -1)
    assert cache.content(file) is None and file.exists()


def test_of_others():
    def facts(mode, owner):
        return os.stat_result((mode, 0, 0, 1, owner, 0, 0, 0, 0, 0))

    if os.name != "posix":
        return
    mine, regular = os.getuid(), stat.S_IFREG
    assert cache.is_ours(facts(regular | 0o600, mine)) and cache.is_ours(facts(regular | 0o644, 0))
    assert not cache.is_ours(facts(regular | 0o600, mine + 7))
    assert not cache.is_ours(facts(stat.S_IFDIR | 0o700, mine + 7))
    assert cache.is_ours(facts(stat.S_IFDIR | 0o775, mine))  # a group of one's own


GRADIENTS = """
import numpy as np, resource, tapegrad as tg
{limit}
@tg.njit
def native(x):
    y = 0.5
    for i in range(x.size):
        y = y * x[i] + np.sin(y)
    return y
x = np.array([0.3, 0.4])
first, second = tg.grad(native)(x)
y = 0.5 * 0.3 + np.sin(0.5)
np.testing.assert_allclose([first, second], [0.5 * (0.4 + np.cos(y)), y], rtol=1e-14)
np.testing.assert_allclose(tg.compile(tg.grad(lambda x: np.sum(np.sin(x) * x)))(x), np.sin(x) + x * np.cos(x), rtol=1e-14)
tg.set_engine("replay")
t = tg.tensor(x, requires_grad=True)
np.sum(np.sin(t) * t).backward()
np.testing.assert_allclose(t.grad.numpy(), np.sin(x) + x * np.cos(x), rtol=1e-14)
print("right", flush=True)
"""


def run(folder, limit=""):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(GRADIENTS).format(limit=limit)],
        # Where files must stay small Python would cut its own .pyc files short, and believe them from then on.
        env={**os.environ, "TAPEGRAD_CACHE_DIR": str(folder), "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0 and done.stdout == "right\n", done.stderr[-2000:]


@pytest.mark.long
@posix
@pytest.mark.parametrize("size", [0, 700])
def test_where_files_must_stay_small(tmp_path, size):
    """As on a full disk: the write fails in the middle."""
    run(tmp_path, f"resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, {size}))")
    for path in tmp_path.rglob("*"):
        assert not path.name.startswith(".new-"), "half a file was left"


@pytest.mark.long
@posix
def test_where_there_can_be_no_folder(tmp_path):
    (tmp_path / "file").write_text("")
    run(tmp_path / "file" / "cache")


@pytest.mark.long
@posix
def test_where_folders_stand_in_place_of_files(tmp_path):
    run(tmp_path)
    for path in [p for p in tmp_path.rglob("*") if p.is_file()]:
        path.unlink()
        path.mkdir()
    run(tmp_path)
