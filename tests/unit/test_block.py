"""The algorithms of a block equal exact integer sums, for any number of warps."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from numpy_results import of_rows
from tcusim.algorithms import build
from tcusim.backends import run
from tcusim.errors import Unsupported
from tcusim.machine import format_of
from tcusim.machine.shapes import MmaShape
from tcusim.program.checks.verifier import problems
from tcusim.program.grammar import Loop, Program, Scope, Step, Sync, When, walk

Ints = NDArray[np.int64]

NAMES = ("reduction_tn_block", "scan_tn_block")
SHAPES = ((16, 16, 16), (32, 8, 16), (8, 32, 16), (4, 4, 4), (5, 7, 3))
WARPS = (1, 2, 3, 4, 8, 16, 17)
# combine, side, ragged.
VARIANTS = tuple(itertools.product(("mma", "add"), "ab", (False, True)))


def piece_size(name: str, sizes: tuple[int, int, int], side: str) -> int:
    """Return the elements of a segment that a warp takes at a time: a tile or a row of one."""
    m, n, k = sizes
    rows = n if side == "b" else m
    return rows * k if "_tn_" in name else k


def sparse_integers(rng: np.random.Generator, length: int, segment_size: int) -> Ints:
    """Return integers with magnitudes up to 2**11 in all in each segment, ones at its end."""
    density = min(1.0, 500 / segment_size)
    x: Ints = rng.integers(-3, 4, length) * (rng.random(length) < density)
    x[::segment_size] = 2
    x[segment_size - 1 :: segment_size] = 1
    assert of_rows("reduction", np.abs(x), segment_size).max() <= 2048
    return x


def assert_exact(
    program: Program, name: str, segment_size: int, rng: np.random.Generator, arch: str
) -> None:
    """Run a program on two blocks or, ragged, on one and a part of another."""
    per_block = program.blocks.per
    masked = program.scalars[0].multiple_of == 1
    length = per_block + int(rng.integers(1, per_block + 1)) if masked else 2 * per_block
    x = sparse_integers(rng, length, segment_size)
    given = x.astype(format_of(program.inputs[0].dtype).dtype)
    result = run(program, {"in": given}, arch=arch)["out"].astype(np.float64)
    message = f"{program.name} {program.warps} warps, segments of {segment_size}, {length} elements"
    np.testing.assert_array_equal(result, of_rows(name, x, segment_size), message)


# --- Exact integers ---------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", SHAPES, ids=lambda sizes: "x".join(map(str, sizes)))
@pytest.mark.parametrize("name", NAMES)
def test_any_number_of_warps_equals_integers(name: str, sizes: tuple[int, int, int]) -> None:
    rng = np.random.default_rng([*sizes, NAMES.index(name)])
    archs = itertools.cycle(("volta", "hopper", "ieee"))
    turns = itertools.cycle(VARIANTS)
    done = set()
    for warps in WARPS:
        # Three variants at a time: over all numbers of warps, each comes several times.
        for combine, side, masked in itertools.islice(turns, 3):
            piece = piece_size(name, sizes, side)
            size = int(rng.integers(1, 3 * warps + 1)) * piece
            if masked:
                size = max(1, size - int(rng.integers(piece)))
            program = build(
                name, tile=MmaShape(*sizes), side=side, combine=combine, masked=masked,
                warps=warps, segment_size=size,
            )  # fmt: skip
            assert program.warps == warps
            assert_exact(program, name, size, rng, next(archs))
            done.add((combine, side, masked))
    assert done == set(VARIANTS)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("warps", [2, 4, 32])
def test_no_tile_is_wasted_where_the_warps_share_evenly(name: str, warps: int) -> None:
    for side in "ab":
        size = 2 * warps * piece_size(name, (16, 16, 16), side)
        program = build(name, side=side, warps=warps, segment_size=size, combine="add")
        guarded = [path for path, step in walk(program.steps) if isinstance(step, When)]
        # The first warp's work alone is in a branch: no load has to ask for the segment's end.
        assert len(guarded) == 1
        assert_exact(program, name, size, np.random.default_rng(warps), "hopper")


# --- Rounding ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["reduction_tn_block", "scan_tn_block"])
def test_products_round_totals_to_float16_and_additions_do_not(name: str) -> None:
    # Each of 4 warps sums 256 * 100, exactly; together they are beyond float16, one alone is not.
    ones = np.full(8192, 100, np.float16)
    results = {}
    for combine in ("mma", "add"):
        program = build(name, warps=4, segment_size=8192, combine=combine)
        results[combine] = run(program, {"in": ones})["out"][-1]
    assert results["add"] == 819200
    assert results["mma"] == (np.inf if name.startswith("reduction") else 819200)


def test_additions_stay_near_the_sums_of_float64() -> None:
    x = np.random.default_rng(6).standard_normal(40_000).astype(np.float16)
    program = build("scan_tn_block", warps=8, segment_size=40_000, combine="add", masked=True)
    error = np.abs(run(program, {"in": x})["out"] - np.cumsum(x.astype(np.float64)))
    assert error.max() < 1e-3


# --- Barriers ---------------------------------------------------------------------------------


def instead(steps: tuple[Step, ...], path: str, others: tuple[Step, ...]) -> tuple[Step, ...]:
    """Return the steps with others in place of the one at a path."""
    number, _, rest = path.partition(".")
    place = int(number) - 1
    step = steps[place]
    if rest:
        assert isinstance(step, Loop)
        others = (replace(step, body=instead(step.body, rest, others)),)
    return (*steps[:place], *others, *steps[place + 1 :])


def block_barriers(program: Program) -> list[str]:
    """Return the paths of the barriers of the block."""
    return [
        path
        for path, step in walk(program.steps)
        if isinstance(step, Sync) and step.scope is Scope.BLOCK
    ]


@pytest.mark.parametrize("combine", ["mma", "add"])
@pytest.mark.parametrize("name", NAMES)
def test_every_barrier_is_needed(name: str, combine: str) -> None:
    for chunks, tiles in ((1, 1), (3, 1), (1, 2), (3, 2)):
        size = 4 * chunks * piece_size(name, (16, 16, 16), "a")
        program = build(
            name, side="a", combine=combine, warps=4, items_per_warp=tiles, segment_size=size
        )
        paths = block_barriers(program)
        # A scan: totals are there, prefixes are there. A sum: the last one was read, all are there.
        assert len(paths) == (2 if name.startswith("scan") or tiles > 1 else 1)
        for path in paths:
            assert found_instead(program, path, ()) == {"synced_shared"}
            # It does not do that each warp waits for itself alone.
            assert found_instead(program, path, (Sync(Scope.WARP),)) == {"synced_shared"}


def found_instead(program: Program, path: str, others: tuple[Step, ...]) -> set[str]:
    """Return the checks that fail with other steps in place of the barrier at a path."""
    found = problems(replace(program, steps=instead(program.steps, path, others)))
    if others:
        assert all("Put Sync(Scope.BLOCK) between" in str(error) for error in found)
    return {error.check for error in found}


# --- The registry -----------------------------------------------------------------------------


def test_steps_say_which_line_of_the_paper_they_are() -> None:
    reduction = build("reduction_256n_block", warps=4)
    assert lines_of(reduction) == {f"Alg. 4 line {number}" for number in (3, 4, 5, 6)}
    scan = build("scan_256n_block", warps=4, segment_size=2048)
    # The paper sets its listings without lines for the ends of loops and conditions.
    numbers = (1, 6, 7, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 22, 23)
    assert lines_of(scan) == {f"Alg. 7 line {number}" for number in numbers}


def lines_of(program: Program) -> set[str]:
    return {step.origin for _, step in walk(program.steps)} - {""}


@pytest.mark.parametrize(
    ("name", "keywords", "text"),
    [
        ("reduction_tn_block", {"ab": "s8", "acc": "s32"}, "partial sums do not fit"),
        ("scan_tn_block", {"ab": "s8", "acc": "s32"}, "partial sums do not fit"),
        ("scan_tn_block", {"ab": "bf16", "source": "f32"}, "use combine 'add'"),
        ("scan_tn_block", {"form": "[U|1]"}, "needs more result columns than k"),
        ("scan_256n_block", {"tile": "16x16x8", "ab": "tf32"}, "use 'scan_tn_block'"),
    ],
)
def test_what_build_refuses(name: str, keywords: dict[str, Any], text: str) -> None:
    with pytest.raises(Unsupported) as caught:
        build(name, warps=2, **keywords)
    assert text in str(caught.value)
