"""The session rules of tests/conftest.py, tried in sessions of their own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).parents[1] / "conftest.py"

PASSES = "def test_passes():\n    pass\n"
SKIPS = "import pytest\n\n@pytest.mark.skip(reason='why not')\ndef test_skips():\n    pass\n"
NEEDS_GPU = "import pytest\n\n@pytest.mark.gpu(min_sm=999)\ndef test_gpu():\n    pass\n"


def session(folder: Path, source: str, *arguments: str) -> tuple[int, str]:
    """Run a session of one file of tests; return the exit status and the output."""
    shutil.copy(CONFTEST, folder / "conftest.py")
    (folder / "test_it.py").write_text(source)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    gpu(min_sm): needs a GPU\n")
    command = [sys.executable, "-m", "pytest", "-rs", "-p", "xdist", *arguments]
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("source", "arguments", "status", "said"),
    [
        (SKIPS, [], 1, "no test passed: everything was skipped"),
        ("", [], 1, "nothing was collected"),
        (PASSES + SKIPS, ["-n1"], 0, "1 passed, 1 skipped"),
        (PASSES + NEEDS_GPU, [], 0, "no NVIDIA GPU|needs sm_999"),
        (PASSES + NEEDS_GPU, ["--require-gpu"], 1, "no test marked gpu passed"),
    ],
)
def test_how_a_session_ends(
    tmp_path: Path, source: str, arguments: list[str], status: int, said: str
) -> None:
    found, text = session(tmp_path, source, *arguments)
    assert found == status
    assert re.search(said, text)
