"""Programs of every algorithm, with inputs: a backend has to step as the simulator does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import tcusim
from tcusim.algorithms import Algorithm, Level
from tcusim.algorithms.builder import adds_rows
from tcusim.backends import Backend
from tcusim.errors import Unsupported
from tcusim.judge.correctness.cases import COLUMNS, Column, Recipe
from tcusim.judge.correctness.testing import input_kinds, random_inputs
from tcusim.program.bind import bind_scalars
from tcusim.program.grammar import Program
from tcusim.stepper.frames import Frame
from tcusim.stepper.trace import Trace
from tcusim_cuda.tapped import emit_tapped

# Options for small programs with blocks that depend on each other.
_OPTIONS: dict[str, dict[str, Any]] = {
    "reduction_k": {"segment_size": None},
    "scan_k": {"segment_size": None},
    "reduction_single_pass": {"groups": 1, "panels": 1, "segment_size": 1200, "warps": 4},
    "scan_single_pass": {"warps": 4, "segment_size": 5000},
    "reduction_short": {"segment_size": 3},
    "scan_short": {"segment_size": 3},
    "gemm": {"cols": 40, "inner": 32, "warps": 2},
    "gemm_naive": {"cols": 33, "inner": 40},
    "gemv": {"inner": 50},
    "gemv_reduction": {"inner": 300, "warps": 2, "accumulation_length": 2},
}
_SEGMENTED: dict[str, Any] = {"segment_size": 100, "warps": 2}


@dataclass(frozen=True)
class Tapped:
    """A program, its tile with types, and the kind of its input. length: of its scalars."""

    algorithm: Algorithm
    column: Column
    kind: str
    program: Program
    length: int

    @property
    def inputs(self) -> dict[str, Any]:
        return random_inputs(self.program, self.kind, self.length, np.random.default_rng(7))

    def __str__(self) -> str:
        return f"{self.algorithm.name} {self.column} {self.kind}"


def case_of(row: Algorithm, start: int, sm: int = 1000) -> Tapped:
    """Return a program of an algorithm: of the tiles and types from `start` on, the first it takes.

    sm: the compute capability that it must do with.
    """
    columns = [one for one in COLUMNS if row.adds_rows or not adds_rows(one.ab, one.acc)]
    for turn in range(len(columns)):
        number = (start + turn) % len(columns)
        try:
            case = _case(row, number, columns[number])
            if emit_tapped(case.program).kernel.min_sm <= sm:
                return case
        except Unsupported:
            continue
    raise AssertionError(f"no kernel of {row.name} can be tried")


def _case(row: Algorithm, number: int, column: Column) -> Tapped:
    product, ragged = row.kind == "product", row.kind.startswith("irregular")
    more = _OPTIONS.get(row.name, {})
    if not product:
        side = "ab"[number % 2] if row.uses_mma else None
        more = {"masked": True, "side": side, **({} if ragged else _SEGMENTED), **more}
        if column.source or not row.uses_mma:
            more["combine"] = "add"
    program = Recipe.of(row.name, **column.options, **more).build()
    kinds = input_kinds(program.inputs[0].dtype)
    kind = ("normal", "special", "wide")[number % 3] if len(kinds) > 2 else kinds[0]
    grid = row.level is Level.GRID
    return Tapped(row, column, kind, program, 3000 if grid else 20 if product else 700)


def traces_of(case: Tapped, backend: str | Backend, arch: str | None = None) -> tuple[Trace, Trace]:
    """Return traces of all warps of the first and the last block, on a backend and simulated."""
    inputs = case.inputs
    scalars = bind_scalars(case.program, {name: np.size(array) for name, array in inputs.items()})
    blocks = {0, case.program.grid(scalars) - 1}
    there = tcusim.trace(case.program, inputs, backend=backend, arch=arch, blocks=blocks)
    here = tcusim.trace(case.program, inputs, arch=there.about.arch, blocks=blocks)
    return there, here


def require_equal(there: Trace, here: Trace) -> None:
    """Assert that two traces have the same steps, with the same bits in the same places."""
    difference = there.first_difference(here)
    assert difference is None, str(difference)
    assert (there.ran, there.left_out) == (here.ran, here.left_out)
    assert len(there) == len(here) > 0
    for one, two in zip(there, here, strict=True):
        assert _facts(one) == _facts(two)


def _facts(frame: Frame) -> tuple[Any, ...]:
    tiles = tuple(
        (tile.label, tile.part, tile.note, tile.ranges, tile.changed.tobytes())
        for tile in (*frame.reads, *frame.writes)
    )
    return frame.number, frame.path, frame.kind, frame.warp, dict(frame.loops), tiles
