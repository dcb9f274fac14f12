"""Code on disk is run only if it is whole and ours, and does not pile up."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tcusim.errors import BackendUnavailable
from tcusim.machine import disk_cache
from tcusim.machine.disk_cache import (
    cache_folder,
    find_code,
    keep_code,
    locked,
    part_of_cache,
    read_code,
    workshop,
)

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="code is kept on POSIX systems")

CODE = bytes(range(256)) * 20


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TCUSIM_CACHE_DIR", str(tmp_path / "cache"))


def kept(*names: str, code: bytes = CODE) -> list[Path]:
    folder = part_of_cache("part")
    paths = [folder / name for name in names]
    with workshop(folder) as making:
        made = making / "made"
        made.write_bytes(code)
        keep_code(made, paths)
    return paths


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def link_to_another(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def give_away(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only the administrator gives a file to another user")
    os.chown(path, 65534, -1)


HARM: dict[str, Callable[[Path], object]] = {
    "one byte flipped": flip,
    "cut to half": lambda path: path.write_bytes(path.read_bytes()[: len(CODE) // 2]),
    "its last byte gone": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "something at its end": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "empty": lambda path: path.write_bytes(b""),
    "garbage": lambda path: path.write_bytes(b"garbage" * 100),
    "no seal": lambda path: path.write_bytes(CODE),
    "another's code": lambda path: path.write_bytes(kept("other")[0].read_bytes()),
    "a symbolic link": link_to_another,
    "another user's": give_away,
    "others may write it": lambda path: path.chmod(0o766),
    "its group may write it": lambda path: path.chmod(0o760),
    "a pipe": pipe,
    "a folder": folder,
    "gone": Path.unlink,
}


@pytest.mark.parametrize("harm", HARM.values(), ids=HARM)
def test_what_is_not_whole_or_not_ours_is_missing(harm: Callable[[Path], object]) -> None:
    (path,) = kept("code.so")
    assert find_code(path) == path
    assert path.read_bytes().startswith(CODE)
    harm(path)
    assert find_code(path) is None
    if path.is_dir():
        with pytest.raises(BackendUnavailable, match=r"cannot be written to .*: Is a directory"):
            kept("code.so")
    else:
        assert find_code(kept("code.so")[0]) == path


def test_one_file_of_several_names() -> None:
    paths = kept("a", "b", "c")
    assert [find_code(path) for path in paths] == paths
    assert len({path.stat().st_ino for path in paths}) == 1
    os.link(paths[0], paths[0].with_name("d"))
    assert find_code(paths[0].with_name("d")) is None


def test_nobody_else_can_write_where_code_is() -> None:
    old = os.umask(0)
    try:
        (path,) = kept("code.so")
        path.parent.chmod(0o777)
        disk_cache._found.clear()
        assert part_of_cache("part") == path.parent
    finally:
        os.umask(old)
    assert path.stat().st_mode & 0o077 == 0
    assert path.parent.stat().st_mode & 0o077 == 0


def test_what_was_not_used_for_longest_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_cache, "_MOST_BYTES", 40_000)
    old, twice, new = kept("old"), kept("twice", "again"), kept("new")
    now = time.time()
    for hours, path in ((9, old[0]), (8, twice[0]), (3, new[0])):
        os.utime(path, (now - 3600 * hours,) * 2)
    debug = old[0].parent / "debug-folder"
    debug.mkdir()
    (debug / "kernel.cu").write_bytes(bytes(20_000))
    os.utime(debug, (now - 3600 * 5,) * 2)
    # Used: from now on it is the newest.
    assert find_code(old[0])
    kept("last")
    there = {path.name for path in old[0].parent.iterdir()}
    assert there == {"old", "new", "last", "debug-folder"}
    kept("larger", code=CODE * 5)
    assert {path.name for path in old[0].parent.iterdir()} == {"old", "last", "larger"}


def test_what_killed_processes_left_goes_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_cache, "_MOST_BYTES", 160_000)
    code = (
        "import os; from tcusim.machine.disk_cache import part_of_cache, workshop\n"
        "with workshop(part_of_cache('part')) as folder:\n"
        "    (folder / 'half').write_bytes(b'half')\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode
    (left,) = part_of_cache("part").iterdir()
    lock = left.with_name("lost.lock")
    lock.touch()
    kept("one")
    # It might be at work still.
    assert left.exists()
    for path in (left, lock):
        os.utime(path, (time.time() - 7200,) * 2)
    # The next files are not worth a look at all of them.
    kept("two")
    assert left.exists()
    kept("three", code=bytes(10_000))
    assert {path.name for path in left.parent.iterdir()} == {"one", "two", "three"}


def test_code_is_read_as_it_was_sealed() -> None:
    (path,) = kept("code")
    assert read_code(path) == CODE
    flip(path)
    assert read_code(path) is None
    assert read_code(path.with_name("nothing")) is None
    (path,) = kept("code")
    assert read_code(path.rename(path.with_name("another"))) is None


def test_one_at_a_time_makes_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    path = part_of_cache("part") / "code"
    with locked(path) as ours:
        assert ours
        with locked(path, wait=False) as twice:
            assert not twice
        # Nobody is waited for forever.
        monkeypatch.setattr(disk_cache, "_MOST_SECONDS_WAITED", 0.05)
        with locked(path) as after_all:
            assert after_all
    with locked(path, wait=False) as again:
        assert again
    assert not list(path.parent.iterdir())


@pytest.mark.parametrize("variable", ["TCUSIM_CACHE_DIR", "XDG_CACHE_HOME", "HOME"])
def test_a_folder_that_cannot_be_made_is_a_temporary_one(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    for name in ("TCUSIM_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, str(blocked))
    named = "" if variable == "HOME" else f", which {variable} names"
    told = rf"cannot be kept in {blocked}\S*{named}: (Not a directory|File exists)\. .*TCUSIM_CACHE"
    with pytest.warns(RuntimeWarning, match=told):
        folder = cache_folder()
    # The warning comes once, and compiled code is cached while the process lives.
    assert cache_folder() == folder
    (path,) = kept("code.so")
    assert find_code(path) == path
    assert folder in path.parents


def test_a_folder_of_another_user_is_not_used(tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "part"
    folder.mkdir(parents=True)
    give_away(folder)
    with pytest.warns(RuntimeWarning, match=rf"kept in {folder}, .*: it belongs to another user"):
        assert part_of_cache("part") != folder


def test_no_folder_at_all_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache").touch()

    def full(*_: object, **__: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "mkdtemp", full)
    with pytest.raises(
        BackendUnavailable, match=r"Nor is there a temporary folder\. Name a folder"
    ):
        cache_folder()


def test_a_full_disk_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = part_of_cache("part")
    with (
        pytest.raises(
            BackendUnavailable, match=r"cannot be written to .*: No space left.*Make room"
        ),
        workshop(folder),
    ):
        raise OSError(28, "No space left on device")
