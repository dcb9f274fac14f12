"""The session rules of tests/conftest.py, tried in sessions of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

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


def test_a_session_that_skips_everything_fails(tmp_path: Path) -> None:
    status, text = session(tmp_path, SKIPS)
    assert status == 1
    assert "no test passed: everything was skipped" in text


def test_a_session_without_tests_fails(tmp_path: Path) -> None:
    status, text = session(tmp_path, "")
    assert status == 1
    assert "nothing was collected" in text


def test_one_passing_test_is_enough(tmp_path: Path) -> None:
    status, _ = session(tmp_path, PASSES + SKIPS, "-n1")
    assert status == 0


def test_a_gpu_test_is_skipped_with_its_reason(tmp_path: Path) -> None:
    status, text = session(tmp_path, PASSES + NEEDS_GPU)
    assert status == 0
    assert "no NVIDIA GPU" in text or "needs sm_999" in text


def test_require_gpu_fails_where_no_gpu_test_passed(tmp_path: Path) -> None:
    status, text = session(tmp_path, PASSES + NEEDS_GPU, "--require-gpu")
    assert status == 1
    assert "no test marked gpu passed" in text
