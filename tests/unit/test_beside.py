"""`tcusim step --backend`: a backend's steps, and the simulator's where they differ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcusim
from command_line import fails, succeeds, tcusim_command
from host_kernels import HOST_ALONE
from tcusim.program.grammar import Program
from tcusim_cuda import taps
from tcusim_cuda.tapped import emit_tapped

pytestmark = HOST_ALONE


@pytest.fixture
def wrong(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return a function to plant a fault in scan_256n: it adds a sum to another."""

    def emit(program: Program, rule: Any = None) -> Any:
        emitted = emit_tapped(program, rule)
        text = emitted.kernel.text.replace("mma_sync(LA, L, B, Z)", "mma_sync(LA, L, B, AU)")
        assert text != emitted.kernel.text
        return replace(emitted, kernel=replace(emitted.kernel, text=text))

    return lambda: monkeypatch.setattr(taps, "emit_tapped", emit)


def test_equal_steps_have_no_remark(tmp_path: Path, wrong: Callable[[], None]) -> None:
    step = ("step", "scan_256n", "--backend", "host", "--plain")
    shown = succeeds(*step, "--only", "mma")
    assert shown.count("writes d: ") == 12
    assert "ifference" not in shown.split("end of")[0]
    assert shown.endswith("host and the simulator: no bit differs at the 72 steps that both have\n")
    wrong()
    shown = succeeds(*step, "--only", "mma", "--width", "120")
    before, first, after = shown.partition("  FIRST DIFFERENCE: d LA, row 0, column 0, is ")
    assert first
    assert "ifference" not in before
    # The step as the simulator does it, beside it, and the conclusions.
    beside_it = after.partition("  the simulator:\n")[2].partition("step ")[2]
    assert beside_it.startswith("9: 5.5  i = 0\n  LA ← L·B + Z")
    assert after.count("  difference: ") > 2
    assert "first: warp 0, step 9 (5.5, i = 0) `LA ← L·B + Z`: d LA, row 0" in after

    page = tmp_path / "a.trace"
    written = tcusim_command("step", "scan_256n", "--backend", "host", "--save", str(page))
    assert written.stderr.startswith("host and the simulator differ at ")
    assert "of 72 steps, first: " in written.stderr
    assert tcusim.Trace.load(page).about.place == "host"


def test_differences_are_told_by_warp_and_step(wrong: Callable[[], None]) -> None:
    wrong()
    program = tcusim.build("scan_256n")
    x = np.random.default_rng(0).standard_normal(2048).astype(np.float16)
    kept = tcusim.trace(program, {"in": x}, backend="host", arch="volta", warps=(0, 1))
    found = kept.compare(tcusim.trace(program, {"in": x}, arch="volta", warps=(0, 1)))
    first = found.differences[0].frame
    assert (first.warp, first.path) == (0, "5.5")
    assert {one.frame.warp for one in found.differences} == {0, 1}
    assert [one for frame in kept for one in found.at(frame)] == list(found.differences)
    assert all(
        frame.path == theirs.path for frame in kept if (theirs := found.other(frame)) is not None
    )


def test_a_backend_that_cannot_run_says_why() -> None:
    said = fails(1, "step", "scan_256n", "--backend", "hots")
    assert "unknown backend 'hots'. Did you mean 'host'?" in said
