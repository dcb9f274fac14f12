"""Taps on the host: every step of every algorithm leaves the simulator's bits, and a wrong one not.

The kernels run on the CPU. `tests/gpu/test_taps_on_gpu.py` does the same on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcusim
from some import Some
from tapped import case_of, require_equal, traces_of
from tcusim.algorithms import Level, algorithms
from tcusim.backends import Backend
from tcusim.errors import AgreementError, InputError, Unsupported
from tcusim.judge.correctness.cases import COLUMNS
from tcusim.machine import Rule
from tcusim.program.grammar import Program
from tcusim.stepper.comparison import Difference
from tcusim_cuda import taps
from tcusim_cuda.tapped import emit_tapped
from tcusim_host import HostBackend, compile_programs

LEVELS = list(Level)


@pytest.mark.parametrize("level", LEVELS)
def test_every_step_leaves_the_simulators_bits(level: Level, host: Backend, some: Some) -> None:
    rows = [row for row in algorithms() if row.level is level]
    # One tile, types and kind of input of each algorithm: of the next one, others.
    cases = [
        case_of(row, start)
        for number, row in enumerate(rows)
        for start in some(range(len(COLUMNS)), len(COLUMNS), 5 * number)
    ]
    assert {case.algorithm.name for case in cases} == {row.name for row in rows}
    compile_programs((case.program for case in cases), taps=True)
    for case in cases:
        arch = "ampere" if case.kind == "wide" else "hopper"
        require_equal(*traces_of(case, "host", arch))


def halves(length: int, seed: int = 0) -> dict[str, Any]:
    return {"in": np.random.default_rng(seed).standard_normal(length).astype(np.float16)}


@pytest.fixture(scope="module")
def scan() -> tuple[Program, dict[str, Any]]:
    """Return a program with warps that wait for each other, and its input."""
    return tcusim.build("scan_tn_block", segment_size=1024, warps=4), halves(4096)


# --- The warps and steps --------------------------------------------------------------------------


def test_one_warp_sees_what_the_others_of_its_block_wrote(
    scan: tuple[Program, dict[str, Any]], host: Backend, tmp_path: Path
) -> None:
    program, inputs = scan
    kept = tcusim.trace(program, inputs, backend="host", warps=6)
    require_equal(kept, tcusim.trace(program, inputs, warps=6))
    assert repr(kept) == f"<Trace of {program.name} on hopper, by host: {len(kept)} steps, warp 6>"
    assert kept.about.place == "host"
    kept.save(tmp_path / "a.trace")
    again = tcusim.Trace.load(tmp_path / "a.trace")
    assert again.about == kept.about
    assert again.to_bytes() == kept.to_bytes()


def test_a_window_is_that_of_the_simulator(
    scan: tuple[Program, dict[str, Any]], host: Backend
) -> None:
    program, inputs = scan
    window: dict[str, Any] = {"warps": (0, 5, 6), "first": 9, "last": 21}
    kept = tcusim.trace(program, inputs, backend="host", **window)
    simulated = tcusim.trace(program, inputs, **window)
    assert len(kept) == 3 * 13
    require_equal(kept, simulated)
    few = tcusim.trace(program, inputs, backend="host", blocks=1, limit=10)
    require_equal(few, tcusim.trace(program, inputs, blocks=1, limit=10))
    assert len(few) == 10


def test_records_that_have_no_room_are_counted(
    scan: tuple[Program, dict[str, Any]], host: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, inputs = scan
    whole = tcusim.trace(program, inputs, warps=(2, 3))
    monkeypatch.setattr(taps, "_MOST_BYTES", 2**15)
    kept = tcusim.trace(program, inputs, backend="host", warps=(2, 3))
    assert 20 < len(kept) < len(whole)
    assert kept.ran == whole.ran
    assert kept.left_out.startswith(f"{len(kept)} of {len(whole)} steps are kept: the last ")
    assert kept.first_difference(whole) is None
    monkeypatch.setattr(taps, "_MOST_BYTES", 2**12)
    with pytest.raises(InputError, match="taps of 2 warps have 0 MiB together, in which there is "):
        tcusim.trace(program, inputs, backend="host", warps=(2, 3))


def test_there_must_be_such_a_warp(scan: tuple[Program, dict[str, Any]], host: Backend) -> None:
    program, inputs = scan
    with pytest.raises(InputError, match="there is no warp 16; the grid has warps 0 to 15"):
        tcusim.trace(program, inputs, backend="host", warps=16)
    with pytest.raises(InputError, match="there is no block -1; the grid has blocks 0 to 3"):
        tcusim.trace(program, inputs, backend="host", blocks=-1)


def test_data_decide_which_branch_is_recorded(host: Backend) -> None:
    program = tcusim.build("scan_tn", masked=True, segment_size=512, combine="add", warps=2)
    inputs = halves(2048)
    inputs["in"][700] = np.inf
    for warps in ((0,), (1,), (0, 1)):
        kept = tcusim.trace(program, inputs, backend="host", warps=warps)
        require_equal(kept, tcusim.trace(program, inputs, warps=warps))


# --- Planted faults -------------------------------------------------------------------------------


Replaced = Callable[[str, str], None]


@pytest.fixture
def replaced(monkeypatch: pytest.MonkeyPatch) -> Replaced:
    """Return a function that replaces a part of each tapped kernel's text."""

    def replace_in_text(old: str, new: str) -> None:
        def emit(program: Program, rule: Rule | None) -> Any:
            emitted = emit_tapped(program, rule)
            assert emitted.kernel.text.count(old) == 1
            text = emitted.kernel.text.replace(old, new)
            return replace(emitted, kernel=replace(emitted.kernel, text=text))

        monkeypatch.setattr(taps, "emit_tapped", emit)

    return replace_in_text


def difference_of(program: Program, inputs: dict[str, Any], warp: int = 1) -> Difference:
    kept = tcusim.trace(program, inputs, backend="host", warps=warp)
    found = kept.first_difference(tcusim.trace(program, inputs, warps=warp))
    assert found is not None
    return found


def test_a_wrong_product_is_found_where_it_is(host: Backend, replaced: Replaced) -> None:
    replaced("mma_sync(LA, L, B, Z)", "mma_sync(LA, L, B, AU)")
    found = difference_of(tcusim.build("scan_256n"), halves(2048))
    assert (found.frame.path, found.frame.loops, found.tile.label) == ("5.5", {"i": 0}, "LA")
    assert (found.row, found.col) == (0, 0)
    assert "warp 1, step 9 (5.5, i = 0) `LA ← L·B + Z`: d LA, row 0, column 0, is " in str(found)
    assert " by host and 0 (0x00000000) by the simulator; " in str(found)


def test_a_wrong_copy_is_found_where_it_is_seen_and_where_it_was_made(
    host: Backend, replaced: Replaced
) -> None:
    old = "tcu::store<tcu::Aligned>(&t_X[16*row + col], tcu::convert<half>(held));"
    replaced(old, old.replace("16*row", "16*(row ^ 1)"))
    found = difference_of(tcusim.build("scan_256n"), halves(2048))
    assert found.frame.kind == "sync"
    assert found.origin is not None
    assert (found.origin.path, found.origin.kind) == ("5.8", "assign")
    assert f"written by step {found.origin.number} (5.8), is " in str(found)


def test_a_wrong_unit_is_found_at_its_first_product(
    host: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, inputs = tcusim.build("scan_256n"), halves(2048)
    inputs["in"] *= np.exp2(np.random.default_rng(1).integers(-8, 8, 2048)).astype(np.float16)
    kept = tcusim.trace(program, inputs, backend="host", arch="volta")
    simulated = tcusim.trace(program, inputs, arch="hopper")
    found = kept.first_difference(simulated)
    assert found is not None
    assert (found.frame.path, found.frame.kind) == ("5.2", "mma")
    every = [one.frame.kind for one in kept.compare(simulated).differences]
    assert every[0] == "mma"
    assert {"load", "const"}.isdisjoint(every[:1])


@pytest.mark.parametrize(
    ("new", "said"),
    [
        ("i < 3", "after step 5.17, warp 0 ended on host, and the program goes on with step 5.1, "),
        (
            "i < 4 + (block == 0)",
            "after step 5.17, warp 0 went on with step 5.1 on host, and the program ends; ",
        ),
    ],
)
def test_other_steps_than_the_programs_are_refused(
    new: str, said: str, host: Backend, replaced: Replaced
) -> None:
    replaced("int i = 0; i < 4;", f"int i = 0; {new};")
    program = tcusim.build("scan_256n")
    with pytest.raises(AgreementError) as caught:
        tcusim.trace(program, halves(2048), backend="host")
    assert said in str(caught.value)


def test_a_backend_that_records_nothing_is_refused() -> None:
    class Plain:
        name, title = "plain", "a backend"
        available = HostBackend.available
        run = HostBackend.run

    program = tcusim.build("reduction_k")
    plain: Any = Plain()
    with pytest.raises(Unsupported, match=r"'plain' does not record what its steps do; .* host"):
        tcusim.trace(program, halves(256), backend=plain)
