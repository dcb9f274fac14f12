"""`tcusim tune`: its choice on a stand-in for the GPU, and its errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench_standin import NoGpu
from command_line import runner
from tcusim.arrays.tuned import TunedRow, read_rows, write_rows
from tcusim.errors import AgreementError, InputError
from tcusim.program.launches import LaunchPlan
from tcusim_bench import tune as module
from tcusim_bench.command import tune_command
from tcusim_bench.record import Case
from tcusim_bench.tune import tune
from tcusim_cuda.microbench.stopwatch import Times

CASE = Case("tune", "sum", 64, 2**20)


class Timed(NoGpu):
    """A GPU: blocks of two warps are the fastest, then those of four; see `spoiled`."""

    spoiled = 0

    def program(self, plan: LaunchPlan, arrays: tuple[Any, ...], out: Any) -> Any:
        (launch,) = plan.launches
        self.warps = launch.program.warps
        run = super().program(plan, arrays, out)

        def spoil() -> None:
            run()
            if self.warps == self.spoiled:
                out.view(np.uint8)[0] ^= 1

        return spoil

    def times(self, run: Any, repeats: int, *, warm: bool = False) -> Times:
        ms = {2: 1.0, 4: 1.5}.get(self.warps, 2.0)
        return Times(ms, ms, ms)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> type[Timed]:
    class Own(Timed):
        pass

    monkeypatch.setattr(module, "Device", Own)
    return Own


@pytest.mark.usefixtures("gpu")
def test_the_fastest_numbers_are_found() -> None:
    lines: list[str] = []
    (found,) = tune((CASE,), say=lines.append)
    assert (found.usual_ms, found.ms) == (2.0, 1.0)
    assert (found.row.arch, found.row.kind, found.row.size) == ("hopper", "reduction", 64)
    assert lines == [str(found)]
    assert "2.0000 ms, 1.0000 ms tuned (+100.0%)" in lines[0]


@pytest.mark.usefixtures("gpu")
def test_time_is_kept() -> None:
    (found,) = tune((CASE,), seconds=0)
    assert found.row.numbers == ()
    assert found.ms == found.usual_ms


def test_other_bits_are_an_error(gpu: type[Timed]) -> None:
    gpu.spoiled = 2
    with pytest.raises(AgreementError, match="1 of 16384 results differ from those of the usual"):
        tune((CASE,))


@pytest.mark.usefixtures("gpu")
def test_the_command_keeps_other_rows(tmp_path: Path) -> None:
    path = tmp_path / "tuning.json"
    other = TunedRow("volta", "scan", "f16", 0, 20, (("block_bytes", 2**15),))
    path.write_text(write_rows([other]))
    arguments = ["--kind", "sum", "--segment", "64", "--log2-length", "20", "-o", str(path)]
    done = runner().invoke(tune_command, arguments)
    assert done.exit_code == 0, done.output
    kept, row = read_rows(path)
    assert kept == other
    assert (row.size, row.log2_length) == (64, 20)


@pytest.mark.usefixtures("gpu")
def test_what_is_not_tuned() -> None:
    with pytest.raises(InputError, match="only sums and scans of segments of one size"):
        tune((Case("tune", "matvec", 64, 2**12),))
