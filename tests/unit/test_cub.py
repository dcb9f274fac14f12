"""The peer CUB: the called functions are in its sources, and these compile."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tcusim_bench import cub as bench_cub
from tcusim_bench.compiled import command, nvcc_path
from tcusim_bench.cub import BLOCK_SOURCE, CUB_SOURCE, PARTS, block_ways, functions
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


def test_each_configuration_has_its_segment() -> None:
    """Every row is read; threads times the elements of each are the segment of its row."""
    text = BLOCK_SOURCE.read_text(encoding="utf-8")
    rows = re.findall(r"^    \{(\d+) \* (\d+), \w+_(sum|scan)s<(\d+), (\d+),.*>\},$", text, re.M)
    assert all(size == threads and each == items for size, each, _, threads, items in rows)
    ways = block_ways()
    assert sum(map(len, ways.values())) == len(rows) == len(re.findall(r"_(?:sum|scan)s<\d", text))
    assert sorted(ways) == [(kind, 2**n) for kind in ("scan", "sum") for n in range(4, 14)]
    assert ways["sum", 16][0] == "WarpReduce, 16 x 1, blocks of 256"
    assert ways["scan", 2048][:2] == [
        "BlockScan, 128 x 16, warps, vectors, once",
        "BlockScan, 128 x 16, raking, vectors, once",
    ]


@pytest.mark.full
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on the PATH")
@pytest.mark.parametrize("source", [CUB_SOURCE, BLOCK_SOURCE], ids=lambda path: path.stem)
def test_cub_compiles(source: Path, tmp_path: Path) -> None:
    nvcc = nvcc_path()
    version, folders = bench_cub.newest_cccl(nvcc)
    if version < 3_000_000:
        pytest.skip("CCCL 3 is not there")
    line = command(nvcc, 90, source, tmp_path / "cub.so", *(f"-I{one}" for one in folders))
    done = subprocess.run(line, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
