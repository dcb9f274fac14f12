"""`tcusim.torch.distributed`: any number of ranks has the bits of one."""

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


@pytest.mark.parametrize("world", [1, 2, 3, 5])
def test_any_number_of_ranks_has_the_bits_of_one(world: int, tmp_path: Path) -> None:
    """tests/shared/ranks.py calls tcusim.torch.distributed in processes joined by gloo."""
    folders = os.pathsep.join(map(str, (ROOT, ROOT / "backends")))
    script = str(ROOT / "tests" / "shared" / "ranks.py")
    running = [
        subprocess.Popen(
            [sys.executable, script, str(rank), str(world), str(tmp_path / "ranks")],
            env={**os.environ, "PYTHONPATH": folders, "OMP_NUM_THREADS": "1"},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(world)
    ]
    errors = [one.communicate(timeout=120)[1] for one in running]
    assert [one.returncode for one in running] == [0] * world, "\n".join(errors)[-3000:]
