"""On a GPU: every step of every algorithm leaves the simulator's bits, in all warps of two blocks.

    python tests/gpu/run_on_gpu.py -n 14 -k taps_on_gpu

Most of the time goes to NVRTC: it compiles a kernel with taps for each test.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcusim
from on_gpu import arch
from tapped import case_of, require_equal, traces_of
from tcusim.algorithms import algorithm_of, algorithms
from tcusim_cuda import CUDA, CUPY, PYCUDA, device_sm, driver, taps
from tcusim_cuda.tapped import emit_tapped

pytestmark = pytest.mark.gpu(min_sm=70)

# So many of the tiles and types of each algorithm are tried: of the next algorithm, others.
TURNS = 4
CASES = [(row.name, turn) for row in algorithms() for turn in range(TURNS)]


@pytest.fixture(autouse=True)
def _library() -> None:
    reason = CUPY.available()
    if reason is not None:
        pytest.skip(f"{CUPY.name}: {reason}")


@pytest.mark.parametrize(("name", "turn"), CASES)
def test_every_step_leaves_the_simulators_bits(name: str, turn: int) -> None:
    first = [row.name for row in algorithms()].index(name)
    case = case_of(algorithm_of(name), first + 7 * turn, device_sm())
    require_equal(*traces_of(case, "cupy", arch()))


@pytest.mark.parametrize("backend", ["cuda", "cupy", "pycuda"])
def test_each_backend_says_where_a_trace_was_made(backend: str, tmp_path: Path) -> None:
    launcher = {"cuda": CUDA, "cupy": CUPY, "pycuda": PYCUDA}[backend]
    if launcher.available() is not None:
        pytest.skip(f"{backend}: {launcher.available()}")
    program = tcusim.build("scan_tn_block", segment_size=1024, warps=4)
    inputs = {"in": np.random.default_rng(0).standard_normal(4096).astype(np.float16)}
    kept = tcusim.trace(program, inputs, backend=backend, blocks=1)
    title = driver.Driver.open().title(0)
    assert kept.about.place == f"{backend} on {title}"
    assert kept.about.arch == arch()
    kept.save(tmp_path / "kept.trace")
    assert tcusim.Trace.load(tmp_path / "kept.trace").about == kept.about
    assert kept.first_difference(tcusim.trace(program, inputs, arch=arch(), blocks=1)) is None


def test_warps_that_are_not_chosen_and_those_beyond_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = tcusim.build("scan_256n", masked=True, warps=2)
    inputs = {"in": np.random.default_rng(0).standard_normal(9000).astype(np.float16)}
    whole = tcusim.trace(program, inputs, arch=arch(), warps=(1, 3, 4))
    window: dict[str, Any] = {"warps": (1, 3, 4), "first": 20, "last": 40}
    kept = tcusim.trace(program, inputs, backend="cupy", **window)
    require_equal(kept, tcusim.trace(program, inputs, arch=arch(), **window))
    assert kept.ran == whole.ran
    # Records that have no room are counted.
    monkeypatch.setattr(taps, "_MOST_BYTES", 2**17)
    short = tcusim.trace(program, inputs, backend="cupy", warps=(1, 3, 4))
    assert 0 < len(short) < len(whole)
    assert short.ran == whole.ran
    assert short.left_out
    assert short.first_difference(whole) is None


def test_a_planted_mistake_is_found_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    program = tcusim.build("scan_256n")
    inputs = {"in": np.random.default_rng(0).standard_normal(2048).astype(np.float16)}
    emitted = emit_tapped(program)
    text = emitted.kernel.text.replace("mma_sync(LA, L, B, Z)", "mma_sync(LA, L, B, AU)")
    wrong = replace(emitted, kernel=replace(emitted.kernel, text=text))
    assert text != emitted.kernel.text
    monkeypatch.setattr(taps, "emit_tapped", lambda *_: wrong)
    kept = tcusim.trace(program, inputs, backend="cupy", warps=1)
    found = kept.first_difference(tcusim.trace(program, inputs, arch=arch(), warps=1))
    assert found is not None
    assert (found.frame.path, dict(found.frame.loops)) == ("5.5", {"i": 0})
    assert found.tile.label == "LA"
