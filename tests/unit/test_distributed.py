"""`tcusim.torch.distributed`, and DTensors: any number of ranks has the bits of one."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed"
)


@pytest.mark.parametrize("world", [1, 2, 3, 4, 5])
def test_any_number_of_ranks_has_the_bits_of_one(world: int, tmp_path: Path) -> None:
    """tests/shared/ranks.py calls tcusim.torch in processes joined by gloo; 4 are a mesh of 2x2."""
    folders = os.pathsep.join(map(str, (ROOT, ROOT / "backends")))
    script = str(ROOT / "tests" / "shared" / "ranks.py")
    ended = subprocess.run(
        [sys.executable, script, str(world), str(tmp_path / "ranks")],
        env={**os.environ, "PYTHONPATH": folders, "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
