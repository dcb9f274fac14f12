"""Proofs for all sizes of the programs that tcusim builds, and none for wrong ones."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

import tcusim
from tcusim.algorithms import algorithms
from tcusim.errors import InputError, Unsupported, VerifyError
from tcusim.machine.shapes import shape_of
from tcusim.program.checks.coverage import all_published, all_written
from tcusim.program.checks.regions import current_locate
from tcusim.program.checks.verifier import verify
from tcusim.program.grammar import (
    BLOCK,
    COL,
    Assign,
    Bound,
    Buffer,
    BufferRole,
    Extent,
    Index,
    Locate,
    Loop,
    Program,
    Publish,
    Scalar,
    Step,
    View,
    When,
    views_of,
)
from tcusim.program.walk import Site, sites

LENGTH = Index.symbol("length")
VARIANTS: tuple[dict[str, Any], ...] = (
    {},
    {"masked": True},
    {"masked": True, "warps": 3, "items_per_warp": 2},
    {"segment_size": 100, "masked": True, "warps": 4},
)


@pytest.mark.parametrize("name", [row.name for row in algorithms()])
def test_every_registered_algorithm_is_proved(name: str) -> None:
    """All that is promised is proved for all sizes: none of it rests on sizes that were tried."""
    built = 0
    for variant in VARIANTS:
        try:
            made = tcusim.build(name, **variant)
        except (InputError, Unsupported):
            continue
        built += 1
        assert verify(made).proven, str(verify(made))
    assert built


# Plans with an unproved property, and why that is no fault.
LIMITED = {
    "scan_ragged": "proved of segments of at most",
    "scan_ragged_simt": "proved of segments of at most",
}


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8"])
@pytest.mark.parametrize(
    "segments",
    [
        {},
        {"segments": 16},
        {"segments": 100},
        {"segments": 4096},
        {"segments": tcusim.Segments(count=10)},
        {"segments": tcusim.Segments(count=1000, longest=200)},
    ],
)
def test_what_the_planner_takes_is_proved(dtype: str, segments: dict[str, Any]) -> None:
    """Gathered segments are whole up to a length; the plan asks it of offsets."""
    operation = "segmented_" if segments else ""
    size = segments.get("segments")
    few = max(300, size if isinstance(size, int) else 1)
    for kind, length in (("sum", few), ("sum", 10**6), ("cumsum", few), ("cumsum", 10**6)):
        orders: tuple[dict[str, Any], ...] = ({}, {"reverse": True}, {"exclusive": True})
        for order in orders if kind == "cumsum" else orders[:1]:
            plan = tcusim.plan(operation + kind, length=length, dtype=dtype, **segments, **order)
            for program in {one.program for one in plan.launch_plan.launches}:
                found = verify(program)
                left = {
                    name
                    for name, text in found.unproven.items()
                    if not text.startswith(LIMITED.get(program.name, "?"))
                }
                assert not left, str(found)


# --- Wrong programs -----------------------------------------------------------------------------


def copying(*steps: Step, size: Extent | None = None, blocks: Extent | None = None) -> Program:
    """Return a program with blocks of 256 elements each."""
    out = Buffer("out", "f32", size or Extent(LENGTH), BufferRole.OUTPUT)
    return Program(
        name="hand",
        shape=shape_of("16x16x16"),
        ab="f16",
        acc="f32",
        scalars=(Scalar("length"), Scalar("other")),
        buffers=(
            Buffer("in", "f32", Extent(LENGTH), BufferRole.INPUT),
            Buffer("more", "f32", Extent(Index.symbol("other")), BufferRole.INPUT),
            out,
        ),
        blocks=blocks or Extent(LENGTH, 256),
        warps=1,
        steps=steps,
    )


def copy(*bounds: Bound, first: Index | int = 0, cols: int = 256) -> Assign:
    """Return a copy of the block's elements, in bounds."""
    place = BLOCK * 256 + first
    inside = Bound(place + COL, LENGTH)
    out, given = (
        View.strided(
            Buffer(name, "f32", Extent(LENGTH), role), place, 1, cols, cols, 1, (inside, *more)
        )
        for name, role, more in (
            ("out", BufferRole.OUTPUT, bounds),
            ("in", BufferRole.INPUT, ()),
        )
    )
    return Assign(out, given)


def written(program: Program) -> bool:
    """Return whether it is proved that all of the output is written."""
    views = [(s, v) for s in sites(program) for v in s.touched.views_written]
    return all_written(program, program.outputs[0], views)


OTHER = Index.symbol("other")


def one_element(bound: Bound) -> Program:
    """Return a program with one element of output; blocks of this condition write it."""
    out = Buffer("out", "f32", Extent.of(1), BufferRole.OUTPUT)
    (source,) = views_of(copy().value)
    read, taken = (View.strided(one, Index(), 1, 1, 1, 1) for one in (source.buffer, out))
    return copying(When((bound,), (Assign(taken, read),)), size=Extent.of(1))


@pytest.mark.parametrize(
    ("program", "proved"),
    [
        (copying(copy()), True),
        (copying(copy(cols=128), copy(first=128, cols=128)), True),
        # Grids of one block, too small ones, and of another scalar.
        (copying(copy(), blocks=Extent.of(1)), False),
        (copying(copy(), blocks=Extent(LENGTH, 257)), False),
        (copying(copy(), blocks=Extent(LENGTH * 2, 513)), False),
        (copying(copy(), blocks=Extent(LENGTH * 2, 512)), True),
        (copying(copy(), blocks=Extent(OTHER, 256)), False),
        # Lanes that are left out.
        (copying(copy(Bound(COL, Index.of(255)))), False),
        (copying(copy(cols=255)), False),
        (copying(copy(first=1)), False),
        (copying(copy(Bound(BLOCK * 256 + COL, OTHER))), False),
        # As often as a scalar says, perhaps never.
        (copying(Loop("i", Extent(LENGTH + 256, 256), (copy(),))), False),
        # The last block, the first one and all but the first one.
        (one_element(Bound(LENGTH, (BLOCK + 1) * 256 + 1)), True),
        (one_element(Bound(LENGTH, BLOCK * 256)), False),
        (one_element(Bound(BLOCK, Index.of(1))), True),
        (one_element(Bound(Index.of(0), BLOCK)), False),
    ],
)
def test_whether_all_of_an_output_is_proved_written(program: Program, proved: bool) -> None:
    assert written(program) is proved


@pytest.mark.parametrize("border", [1, 3, 40, 1 << 30])
def test_blocks_up_to_some_one_alone(border: int) -> None:
    before, after = Bound(BLOCK, Index.of(border)), Bound(Index.of(border - 1), BLOCK)
    assert not written(copying(When((before,), (copy(),))))
    assert not written(copying(When((after,), (copy(),))))
    assert written(copying(When((before,), (copy(),), (copy(),))))
    assert written(copying(When((before,), (copy(),)), When((after,), (copy(),))))
    assert not written(copying(When((before,), (copy(),)), When((after,), (copy(cols=255),))))


@pytest.mark.parametrize(
    "count", [Extent.of(0), Extent(LENGTH - LENGTH), Extent(LENGTH - 300, 256)]
)
def test_a_loop_that_does_not_run_writes_nothing(count: Extent) -> None:
    column = Index.symbol("i")
    bounds = Bound(BLOCK * 256 + column + COL, LENGTH), Bound(column, Index.of(1))
    steps = Loop("i", count, (copy(*bounds, first=column),))
    with pytest.raises(VerifyError, match="outputs_written"):
        verify(copying(steps))


# --- Status words -------------------------------------------------------------------------------


def words(program: Program, name: str, *, given: bool) -> list[tuple[Site, View]]:
    """Return the steps that publish, or await, words of a buffer."""
    return [
        (site, view)
        for site in sites(program)
        for view in (site.touched.views_written if given else site.touched.views_read)
        if view.buffer.name == name
    ]


def test_words_are_published_by_earlier_blocks() -> None:
    made = tcusim.build("scan_single_pass", segment_size=100_000, masked=True)
    assert made.status
    for buffer in made.status:
        awaits = words(made, buffer.name, given=False)
        gives = words(made, buffer.name, given=True)
        assert all_published(made, awaits, gives)
        assert not all_published(made, awaits, [])
        for more in (1, made.columns):
            late = [(site, dataclasses.replace(v, offset=v.offset + more)) for site, v in gives]
            assert not all_published(made, awaits, late)
        some = Bound(BLOCK, Index.of(7))
        rare = [(site, dataclasses.replace(v, bounds=(*v.bounds, some))) for site, v in gives]
        assert isinstance(gives[0][0].step, Publish)
        assert not all_published(made, awaits, rare)


# --- Ranges -------------------------------------------------------------------------------------


def test_ranges_are_those_of_the_step_that_has_just_run() -> None:
    made = tcusim.build("scan_ragged", segment_size=16, masked=True)
    ((site, view),) = [
        (s, v) for s in sites(made) for v in s.touched.views_written if v.buffer.name == "out"
    ]
    assert current_locate(made, site, view) is not None
    find = next(step for step in made.steps if isinstance(step, Locate))
    twice = dataclasses.replace(made, steps=(find, *made.steps))
    ((site, view),) = [
        (s, v) for s in sites(twice) for v in s.touched.views_written if v.buffer.name == "out"
    ]
    assert current_locate(twice, site, view) is None
