"""nvcc takes each kernel, with its own includes and both of its passes; NVRTC has only one."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from launch_plans import HALVES, launch_plan, product_plan
from tcusim.algorithms import algorithms, build
from tcusim.program.grammar import Program
from tcusim_cuda.compile import DEFAULT_TOOLKIT, INCLUDE
from tcusim_cuda.emit import emit

FLOATS = ("f32", "f32", "f32", "f32")
EXACT = ("f16", "f64", "f16", "f16")


def planned() -> Iterator[Program]:
    """Yield the launches of plans: of each kind, short, long, whole, by offsets, and products."""
    for kind in ("reduction", "scan"):
        for types in (HALVES, FLOATS, EXACT):
            for size in (5, 64, 1000, 4096, 2**16, 2**24):
                plan = launch_plan(kind, 2**24, size=size, types=types)
                yield from (launch.program for launch in plan.launches)
        for segments in (100, 2**20):
            plan = launch_plan(kind, 2**24, segments=segments)
            yield from (launch.program for launch in plan.launches)
    for columns in (4096, None):
        for launch in product_plan(4096, 4096, columns, types=HALVES).launches:
            yield launch.program


@pytest.mark.full
@pytest.mark.parametrize("sm", [75, 90])
def test_nvcc_takes_the_algorithms_and_the_kernels_of_plans(sm: int, tmp_path: Path) -> None:
    nvcc = shutil.which("nvcc") or shutil.which(DEFAULT_TOOLKIT / "bin" / "nvcc")
    if nvcc is None:
        pytest.skip("no nvcc on the path, nor in the default folder of CUDA's toolkit")
    programs = dict.fromkeys([*(build(row.name) for row in algorithms()), *planned()])
    # In one file, since most of the time is that of CUDA's headers.
    named = (replace(program, name=f"kernel_{n}") for n, program in enumerate(programs))
    texts = [kernel.text for kernel in map(emit, named) if kernel.min_sm <= sm]
    assert len(texts) > 80
    file = tmp_path / "kernels.cu"
    file.write_text("\n".join(texts))
    options = (f"-arch=sm_{sm}", "-std=c++17", "--fmad=false", "-Werror", "all-warnings")
    command = [nvcc, *options, "-I", str(INCLUDE), "-c", str(file), "-o", str(tmp_path / "out.o")]
    command += ["-Xptxas", "-O0"]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert made.returncode == 0, f"nvcc refuses {file.name}:\n{made.stderr[:4000]}"
