"""Breakpoints: where they stop, checked against the frames, and the errors for bad ones."""

from __future__ import annotations

import numpy as np
import pytest

import tcusim
from tcusim.errors import InputError
from tcusim.program.grammar import Space
from tcusim.stepper.breakpoints import breakpoint_of, kinds, loops_around
from tcusim.stepper.frames import default_inputs
from tcusim.stepper.trace import Trace, trace


@pytest.fixture(name="scan", scope="module")
def scan_trace() -> Trace:
    program = tcusim.build("scan_256n")
    return trace(program, default_inputs(program))


def stops(kept: Trace, text: str) -> list[int]:
    test = breakpoint_of(text, kept.names)
    return [frame.number for frame in kept if test(frame)]


@pytest.mark.parametrize("kind", kinds())
def test_a_kind(scan: Trace, kind: str) -> None:
    assert stops(scan, kind) == [frame.number for frame in scan if frame.kind == kind]


def test_a_path_and_an_iteration(scan: Trace) -> None:
    assert stops(scan, "5.2") == [f.number for f in scan if f.path == "5.2"]
    assert len(stops(scan, "5.2")) == 4
    (only,) = stops(scan, "5.2 i=3")
    assert (scan[only - 1].path, dict(scan[only - 1].loops)) == ("5.2", {"i": 3})
    assert stops(scan, "5.2, i=3") == [only]
    # A loop is all that is inside it.
    assert stops(scan, "5 i=1") == [f.number for f in scan if f.loops.get("i") == 1]
    assert stops(scan, "mma i=0") == [
        f.number for f in scan if f.kind == "mma" and f.loops["i"] == 0
    ]
    assert stops(scan, "5.2 i=9") == []


def test_values_that_change(scan: Trace) -> None:
    assert stops(scan, "value") == [
        f.number for f in scan if any(tile.changed.any() for tile in f.writes)
    ]
    changes = [f for f in scan if f.writes and f.writes[0].label == "S" and f.path != "4"]
    assert stops(scan, "S")[1:] == [f.number for f in changes if f.writes[0].changed.any()]
    assert stops(scan, "value S") == stops(scan, "S")
    # Z is set to 0 in every iteration, and changes in the first alone.
    assert stops(scan, "Z") == [next(f.number for f in scan if f.path == "5.4")]
    corner = [f.number for f in scan if f.path == "5.11" and f.writes[0].changed[15, 15]]
    assert stops(scan, "R[15,15]") == corner


def test_an_element_of_memory(scan: Trace) -> None:
    (last,) = stops(scan, "out[1023]")
    assert (scan[last - 1].kind, scan[last - 1].loops["i"]) == ("store", 3)
    assert (
        scan[last - 1].writes[0].values[-1, -1]
        == default_inputs(tcusim.build("scan_256n"))["in"].astype(float).sum()
    )
    # A write to shared memory is seen after the barrier.
    assert {scan[number - 1].kind for number in stops(scan, "s_last[255]")} == {"sync"}


def test_a_nan_that_appears() -> None:
    program = tcusim.build("scan_256n")
    x = np.ones(1024, np.float16)
    x[700] = np.nan
    kept = trace(program, {"in": x})
    numbers = stops(kept, "nan")
    first = kept[numbers[0] - 1]
    # Element 700 is loaded in the third iteration; nothing before it is not a number.
    assert (first.path, first.loops["i"]) == ("5.1", 2)
    assert [kept[n - 1].path for n in stops(kept, "nan S")] == ["5.17", "5.17"]
    # Of a tile that held numbers too, some are new: R in this iteration, and in the next.
    assert [kept[n - 1].loops["i"] for n in stops(kept, "nan R")] == [2, 3]
    clean = trace(program, {"in": np.ones(1024, np.float16)})
    assert stops(clean, "nan") == []


def test_a_fault_makes_nan_appear() -> None:
    # Without its barriers, a program reads values that are not yet visible.
    kept = trace(tcusim.build("reduction_16"), {"in": np.ones(256, np.float16)})
    stores = [f for f in kept if f.kind == "store"]
    assert any(tile.where == Space.WARP and tile.unknown.all() for f in stores for tile in f.writes)
    assert stops(kept, "nan") == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the breakpoint is empty. It is a kind of step"),
        ("mam", r"unknown breakpoint 'mam'. Did you mean 'mma'\? It is a kind of step \(const, "),
        ("Y", r"unknown breakpoint 'Y'.* whose values change \(A, AU, B"),
        ("9.9", "scan_256n has no step '9.9'; its steps: 1, 2"),
        ("5.2 k=3", "no loop over 'k' at step 5.2; the loops there are over i"),
        ("1 i=0", "no loop over 'i' at step 1; there is none at all"),
        ("mma k=1", "no loop over 'k' in scan_256n; the loops there are over i"),
        ("5.2 3", "breakpoint '5.2 3': '3' is not understood after '5.2'"),
        ("S[3]", r"S is a tile: give row, column, such as S\[3,5\]"),
        ("out[1,2]", r"out is memory: give the number of an element, such as out\[17\]"),
        ("S[a,b]", "S is a tile"),
        ("nan Y", "unknown breakpoint 'Y'"),
        ("nan S T", "'T' is not understood after 'nan'"),
        ("S[3,5", "'3' is not understood after 'S'"),
        ("S*[3,5]", r"unknown breakpoint 'S\*'"),
    ],
)
def test_bad_breakpoints(scan: Trace, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        breakpoint_of(text, scan.names)


def test_a_cell_that_no_tile_has_never_changes(scan: Trace) -> None:
    assert stops(scan, "S[99,99]") == []
    assert stops(scan, "out[99999]") == []


def test_what_it_says_of_itself(scan: Trace) -> None:
    one = breakpoint_of("  5.2   i=3 ", scan.names)
    assert (str(one), one.path) == ("5.2 i=3", "5.2")
    assert breakpoint_of("mma", scan.names).path == ""
    assert loops_around("5.2", scan.about.lines) == ("i",)
    assert loops_around("1", scan.about.lines) == ()
