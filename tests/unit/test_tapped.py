"""Kernels with taps: their text is that of other kernels, with lines between."""

from __future__ import annotations

import re

import pytest

import tcusim
from tcusim.algorithms import algorithms
from tcusim.errors import Unsupported
from tcusim_cuda.emit import emit
from tcusim_cuda.tapped import CHOICE, RECORDS, TAP, emit_tapped

# A mark of the lines of taps.
OWN = re.compile(rf"\b{TAP}[.(]|tcu::poison\(|tcu::Tap\b|taps\.cuh|What a warp that is tapped")
ARGUMENTS = (f"const long long* __restrict__ {CHOICE}, ", f", int* __restrict__ {RECORDS}")


def without_taps(text: str) -> list[str]:
    """Return the lines that are no tap's, and that do not say how loops are unrolled."""
    for argument in ARGUMENTS:
        text = text.replace(argument, "")
    kept = (line for line in text.splitlines() if not OWN.search(line))
    return [line for line in kept if line and "#pragma unroll" not in line]


@pytest.mark.parametrize("name", [row.name for row in algorithms()])
def test_between_the_taps_is_the_kernel(name: str) -> None:
    program = tcusim.build(name)
    plain, tapped = emit(program), emit_tapped(program).kernel
    assert without_taps(tapped.text) == without_taps(plain.text)
    assert tapped.text != plain.text
    assert (tapped.name, tapped.threads) == (plain.name, plain.threads)
    assert tapped.arguments == (
        *(buffer.name for buffer in program.inputs),
        CHOICE,
        *(buffer.name for buffer in program.outputs),
        RECORDS,
        *plain.arguments[len(program.inputs) + len(program.outputs) :],
    )


def test_each_kind_of_fragment_is_placed_once() -> None:
    emitted = emit_tapped(tcusim.build("scan_256n"))
    numbers = {name: placing.number for name, placing in emitted.placings.items()}
    assert numbers["U"] == numbers["J"] == numbers["B"]
    assert numbers["L"] == numbers["A"] == numbers["X"] != numbers["U"]
    assert set(numbers.values()) == {-1, -2, -3}
    assert emitted.kernel.text.count(f"{TAP}.places<") == 3
    assert set(emitted.grids.values()) == {(1, 1)}


def test_tiles_are_numbered_as_they_are_loaded() -> None:
    placings = emit_tapped(tcusim.build("reduction_k", tile="32x8x16")).placings
    assert (placings["P"].rows, placings["P"].cols) == (16, 8)
    assert (placings["P"].down, placings["P"].ldm, placings["P"].count) == (True, 16, 128)
    assert not placings["V"].down


def test_arguments_get_their_sizes_later() -> None:
    emitted = emit_tapped(tcusim.build("reduction_k"))
    kernel = emitted.of_sizes(5, 800)
    assert kernel.text == emitted.kernel.text
    assert kernel.program.buffer(CHOICE).size.constant == 5
    assert kernel.program.buffer(RECORDS).size.constant == 800


def test_names_of_taps_are_refused() -> None:
    program = tcusim.build("reduction_k")
    (buffer,) = program.inputs
    assert buffer.name == "in"
    text = emit_tapped(program).kernel.text
    assert f"tcu::Tap {TAP}({CHOICE}, {RECORDS}, " in text
    clash = clashing(TAP)
    with pytest.raises(Unsupported, match=f"variables of its own that are called {TAP}"):
        emit_tapped(clash)
    assert emit(clash).text


def clashing(name: str) -> tcusim.Program:
    """Return a program with a loop of this name."""
    from dataclasses import replace

    from tcusim.program.grammar import Extent, Loop

    program = tcusim.build("reduction_k")
    return replace(program, steps=(Loop(name, Extent.of(1), program.steps),))


@pytest.mark.parametrize("tile", ["16x16x16", "16x8x16", "32x32x32"])
def test_loops_stay_loops(tile: str) -> None:
    program = tcusim.build("scan_tn_block", tile=tile)
    text = emit_tapped(program).kernel.text
    loops = re.findall(r"#pragma unroll(.*)\n\s*for \(int (\w+) = 0; \2 < ", text)
    assert {unrolled for unrolled, name in loops if name not in ("nth", "f", "k", "first")} == {
        " 1"
    }
