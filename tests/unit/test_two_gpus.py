"""Two GPUs, one of them not current, of one kind or of two: on a stand-in for the driver."""

from __future__ import annotations

from pathlib import Path

import pytest

from tcusim.machine import native
from two_gpus import started

CASES = Path(__file__).parents[1] / "shared" / "two_gpus_cases.py"


@pytest.mark.skipif(native.why_no_compiler() is not None, reason=str(native.why_no_compiler()))
@pytest.mark.usefixtures("host_cache")
def test_what_must_hold_on_two_gpus(tmp_path: Path) -> None:
    pytest.importorskip("cuda.bindings.driver")
    done = started(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(CASES))
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout
