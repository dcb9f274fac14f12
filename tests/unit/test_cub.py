"""The peer CUB: the called functions are in its sources, and these compile."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tcusim_bench import cub as bench_cub
from tcusim_bench.cub import BLOCK_SOURCE, CUB_SOURCE, PARTS, functions
from tcusim_bench.record import Case


def test_what_is_called_of_cub_is_in_its_sources() -> None:
    """By every case: segments of one size, ragged ones and whole arrays, of float32 as well."""
    called: dict[Path, set[str]] = {CUB_SOURCE: set(), BLOCK_SOURCE: set()}
    for kind in ("sum", "scan"):
        for size, lengths, dtype in (
            *((16, "", "f16"), (2**13, "", "f16"), (2**20, "", "f16"), (0, "one giant", "f16")),
            (2**20, "", "f32"),
        ):
            case = Case("x", kind, size, 2**20, dtype, lengths)
            for part in PARTS:
                source = BLOCK_SOURCE if part == "cub.block" else CUB_SOURCE
                called[source] |= {name for *_, name, _ in functions(part, case, 3_005_000)}
    assert {source.name: len(names) for source, names in called.items()} == {
        "cub.cu": 13,
        "cub_block.cu": 2,
    }
    for source, names in called.items():
        text = source.read_text(encoding="utf-8")
        assert [name for name in names if f'extern "C" int {name}(' not in text] == []


def test_what_cub_does_not_do() -> None:
    for more in ({"in_graph": True}, {"dtype": "bf16"}, {"dtype": "f32"}):
        case = Case("x", "sum", 16, 2**20, **more)
        assert [list(functions(part, case, 3_005_000)) for part in PARTS] == [[]] * 4


def test_each_block_has_its_segment_in_every_way() -> None:
    """Threads times the elements of each are the segment; every size has as many ways."""
    text = BLOCK_SOURCE.read_text(encoding="utf-8")
    found = re.findall(r"CASE\((\d+), (\d), (\d+), (\d+)\)", text)
    ways = sorted((int(size), int(way)) for size, way, *_ in found)
    assert ways == [(2**power, way) for power in range(6, 14) for way in range(3)]
    assert all(int(size) == int(threads) * int(items) for size, _, threads, items in found)
    warps = re.findall(r"CASE\((\d+), (\d), (\d+)\)", text)
    assert sorted((int(size), int(way)) for size, way, _ in warps) == [
        (size, way) for size in (16, 32) for way in range(3)
    ]


@pytest.mark.full
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on the PATH")
@pytest.mark.parametrize("source", [CUB_SOURCE, BLOCK_SOURCE], ids=lambda path: path.stem)
def test_cub_compiles(source: Path, tmp_path: Path) -> None:
    nvcc = shutil.which("nvcc") or ""
    version, folders = bench_cub.newest_cccl(nvcc)
    if version < 3_000_000:
        pytest.skip("CCCL 3 is not there")
    command = bench_cub.cub_command(nvcc, 90, folders, source, tmp_path / "cub.so")
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
