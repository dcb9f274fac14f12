"""Wheels, built and unpacked without network: a wheel is a zip file of the installed files."""

from __future__ import annotations

import functools
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def build_wheel(project: Path, folder: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "-d", str(folder)]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel of tcusim itself."""
    return build_wheel(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def install(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Path]:
    """Return a function that installs a project once, into a folder of its own; it returns that."""

    @functools.cache
    def install(project: Path) -> Path:
        built = build_wheel(project, tmp_path_factory.mktemp("built"))
        folder = tmp_path_factory.mktemp("installed")
        with zipfile.ZipFile(built) as archive:
            archive.extractall(folder)
        return folder

    return install


@pytest.fixture(scope="session")
def python() -> Callable[..., str]:
    """Return a function that runs code in a fresh interpreter, with folders added to its path."""

    def python(code: str, *folders: Path) -> str:
        start = f"import sys; sys.path[:0] = {[str(folder) for folder in folders]!r}\n"
        # -I: the folder that the tests run in, the tcusim sources, must not be found by chance.
        command = [sys.executable, "-I", "-W", "error", "-c", start + code]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    return python
