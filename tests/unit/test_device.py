"""The benchmark's own kernels on the GPU."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tcusim_bench import device as bench_device


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on the PATH")
def test_the_reading_kernel_compiles(tmp_path: Path) -> None:
    source = tmp_path / "read.cu"
    source.write_text(bench_device.READ_ONLY)
    command = ["nvcc", "-arch=sm_90", "-cubin", "-o", str(tmp_path / "read.cubin"), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert 2**20 * 2 % bench_device.READ_BYTES == 0
