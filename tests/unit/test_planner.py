"""Which launches the planner chooses, by name or by itself, and that all of them sum right."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import tcusim
from tcusim.algorithms import algorithms
from tcusim.algorithms.order import Order
from tcusim.arrays import planner
from tcusim.arrays.dtypes import types_of
from tcusim.arrays.planner import STRATEGIES, Choice, Draft, Strategy, choose
from tcusim.arrays.problem import (
    Problem,
    ProductProblem,
    RaggedProblem,
    Types,
    tile_for,
)
from tcusim.arrays.tuning import DEFAULT, Tuning
from tcusim.errors import InputError, Unsupported
from tcusim.machine import Arch, Fused, Rule, format_of, register_arch
from tcusim.machine.shapes import MmaShape, shape_of
from tcusim.program.launches import Launch
from tcusim.program.resources import SharedMemory
from tcusim.simulate.backend import NUMPY

Array = NDArray[Any]


def problem(kind: str, length: int, size: int, **changes: Any) -> Problem:
    usual: dict[str, Any] = {
        "tile": shape_of("16x16x16"),
        "types": Types("f16", "f32", "f16", "f32"),
    }
    size = min(size, length)
    return Problem(kind=kind, length=length, segment_size=size, **{**usual, **changes})


def chosen(
    kind: str, length: int, size: int, tuning: Tuning | None = None, **changes: Any
) -> Choice:
    return choose(problem(kind, length, size, **changes), "a plan", tuning)


def masked(kind: str, length: int, segments: int, **changes: Any) -> Choice:
    usual = {"tile": shape_of("16x16x16"), "types": Types("f16", "f32", "f16", "f32")}
    made = RaggedProblem(kind=kind, length=length, segments=segments, **{**usual, **changes})
    return choose(made, "a plan")


def launches(choice: Choice) -> tuple[Launch, ...]:
    return choice.plan.launches


def names(choice: Choice) -> list[str]:
    return [launch.program.name for launch in launches(choice)]


def run(choice: Choice, x: Array) -> Array:
    result: Array = NUMPY.run(choice.plan, {"in": x})["out"]
    return result


def integers(length: int) -> NDArray[np.float16]:
    return np.random.default_rng(length).integers(-9, 10, length).astype(np.float16)


def segments(x: Array, size: int) -> list[NDArray[np.float64]]:
    return [x[at : at + size].astype(np.float64) for at in range(0, x.size, size)]


def assert_right(x: Array, size: int, **changes: Any) -> tuple[Choice, Choice]:
    """Sum and scan, compare, and return what was chosen."""
    total, scan = (chosen(kind, x.size, size, **changes) for kind in ("reduction", "scan"))
    np.testing.assert_array_equal(run(total, x), [part.sum() for part in segments(x, size)])
    expected = np.concatenate([part.cumsum() for part in segments(x, size)])
    np.testing.assert_array_equal(run(scan, x), expected)
    return total, scan


# --- Which launches -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "of_sums"), [(1, "short"), (2, "short"), (7, "short"), (16, "panels")]
)
def test_segments_of_a_few_elements_share_rows(size: int, of_sums: str) -> None:
    total, scan = assert_right(integers(3_000), size)
    assert (total.strategy, scan.strategy) == (of_sums, "short")


def test_segments_share_rows_only_where_their_bits_stay() -> None:
    three = Fused(3, 20)
    rules = tuple(Rule("f16", acc, three, "invented", "invented") for acc in ("f32", "f16"))
    register_arch(Arch("three", "three products a step", (), (), rules, "invented"))
    assert chosen("scan", 300, 2, arch="three").strategy == "panels"
    assert chosen("scan", 300, 2, arch="volta").strategy == "short"
    # A slot of one element is in no two steps.
    assert chosen("reduction", 300, 1, arch="three").strategy == "short"


@pytest.mark.parametrize("tile", [(8, 8, 4), (2, 2, 2), (16, 8, 8)])
def test_segments_that_are_longer_than_k_are_not_short(tile: tuple[int, int, int]) -> None:
    k = tile[2]
    for kind, size in itertools.product(("reduction", "scan"), range(1, 17)):
        choice = chosen(kind, 100, size, tile=MmaShape(*tile))
        assert choice.strategy != "short" or size <= k
        assert_right(integers(100), size, tile=MmaShape(*tile))


def test_where_an_algorithm_refuses_a_tile_the_next_one_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(draft: Draft[Problem]) -> None:
        raise Unsupported("only tiles of gold")

    picky = Strategy("picky", "tiles of gold", lambda problem, tuning: True, refuse)
    for rows in ((picky, *STRATEGIES[Problem]), (picky,)):
        monkeypatch.setattr(planner, "STRATEGIES", {Problem: rows})
        if len(rows) > 1:
            choice = chosen("reduction", 100, 20)
            assert choice.strategy == "panels"
            assert choice.rationale[0] == "not 'picky', which refuses this tile: only tiles of gold"
        with pytest.raises(Unsupported, match=r"only tiles of gold"):
            chosen("reduction", 100, 20, strategy="picky")
    with pytest.raises(Unsupported, match=r"only tiles of gold"):
        chosen("reduction", 100, 20)


@pytest.mark.parametrize("size", [9, 17, 100, 256, 257, 768, 1000, 1024])
def test_a_warp_takes_short_segments(size: int) -> None:
    total, scan = assert_right(integers(20_000), size)
    assert (names(total), names(scan)) == (["reduction_panel"], ["scan_panel"])
    assert total.strategy == scan.strategy == "panels"


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("size", [4, 16, 200])
def test_wide_elements_lie_in_rows_too(dtype: str, size: int) -> None:
    types = types_of(dtype, dtype, "f32", "hopper")
    total, scan = assert_right(
        integers(5000).astype(dtype), size, types=types, tile=tile_for(types, None)
    )
    assert (names(total), names(scan)) == (["reduction_panel"], ["scan_panel"])


def test_many_long_segments_are_taken_by_a_warp_each() -> None:
    for kind in ("reduction", "scan"):
        size, many = DEFAULT.of(kind).longest_in_panels, DEFAULT.many_segments
        for count, longer, strategy in (
            (many, 0, "panels"), (many - 1, 0, "single_pass"), (many, 1, "single_pass"),
        ):  # fmt: skip
            length = count * (size + longer)
            assert chosen(kind, length, size + longer).strategy == strategy, (kind, count, longer)


@pytest.mark.parametrize("kind", ["reduction", "scan"])
def test_rows_of_long_arrays_have_several_warps_and_turns(kind: str) -> None:
    sizes = DEFAULT.of(kind)
    found = []
    for exponent in range(16, 27):
        (launch,) = launches(chosen(kind, 2**exponent, 64))
        assert launch.program.name == f"{kind}_panel"
        turns = launch.program.blocks.per / (launch.program.warps * sizes.panel_elements)
        found.append((launch.program.warps, turns))
    assert found == sorted(found)
    assert found[0][0] == 1
    # Segments of two rows.
    assert found[-1] == next(each[1:] for each in reversed(sizes.panel_turns) if each[0] <= 2)


@pytest.mark.parametrize("size", [8193, 10_000, 40_000])
def test_blocks_share_long_segments(size: int) -> None:
    total, scan = assert_right(integers(2 * size + 3), size)
    assert (names(total), names(scan)) == (["reduction_single_pass"], ["scan_single_pass"])
    warps = launches(total)[0].program.warps
    assert warps > 1
    start = f"segments are shared by blocks of {warps} warps, which pass "
    assert total.rationale[0].startswith(start)
    assert [array.name for array in scan.plan.temporaries] == []
    assert all(launches(made)[0].program.columns > 1 for made in (total, scan))


@pytest.mark.parametrize(("length", "columns"), [(8192, 1), (65_537, 16), (2**20, 128)])
def test_blocks_share_a_long_array(length: int, columns: int) -> None:
    total, scan = assert_right(integers(length), length)
    assert (names(total), names(scan)) == (["reduction_single_pass"], ["scan_single_pass"])
    found = [launches(made)[0].program.columns for made in (total, scan)]
    # So few blocks are one group: those of a scan because they are no more than 512 chunks.
    assert found == [columns, columns]
    assert total.rationale[0].startswith("the array is shared by blocks of 4 warps")


def test_blocks_of_a_very_long_sum_are_groups() -> None:
    for exponent, columns in ((24, DEFAULT.one_group), (28, DEFAULT.reduction.columns)):
        (launch,) = launches(chosen("reduction", 2**exponent, 2**exponent))
        assert launch.program.columns == columns


@pytest.mark.parametrize("kind", ["reduction", "scan"])
def test_blocks_are_as_large_as_leaves_enough_of_them(kind: str) -> None:
    found = []
    for exponent in range(14, 31):
        program = launches(chosen(kind, 2**exponent, 2**exponent))[0].program
        blocks, elements = program.columns, program.blocks.per // program.columns
        found.append(elements)
        assert blocks < 512 or kind == "scan"
        if elements > found[0]:
            assert 2**exponent >= DEFAULT.enough_blocks * elements
    assert found == sorted(found)
    assert found[-1] > found[0]
    if kind == "scan":
        assert 2 * found[-1] == DEFAULT.waiting[2].block_bytes


@pytest.mark.parametrize("dtype", ["f16", "f32", "f64"])
def test_blocks_share_segments_of_several_groups(dtype: str) -> None:
    types = Types(dtype, "f64" if dtype == "f64" else "f32", dtype, dtype)
    tile = shape_of("8x8x4" if dtype == "f64" else "16x16x16")
    group = 512 * 8 * 32 * 2 * tile.k
    for size, rows in ((group, 1), (group + 1, 2), (4 * group, 4)):
        (launch,) = launches(chosen("scan", 3 * size, size, types=types, tile=tile))
        assert (launch.program.name, launch.program.rows) == ("scan_single_pass", rows)
    # Blocks are those of one segment as long as all of them.
    (whole,) = launches(chosen("scan", 3 * size, 3 * size, types=types, tile=tile))
    assert (whole.program.columns, whole.program.warps) == (
        launch.program.columns, launch.program.warps,
    )  # fmt: skip


def test_segments_of_many_blocks_lie_by_offsets_if_no_block_takes_whole_chunks() -> None:
    tile = MmaShape(5, 7, 3)
    most = 4 * 8 * 32 * 2 * tile.k
    assert chosen("scan", 4 * most, most, tile=tile).strategy == "panels"
    wanted = problem("scan", 4 * most, most + 1, tile=tile)
    assert not any(row.applies(wanted, DEFAULT) for row in STRATEGIES[Problem])
    with pytest.raises(InputError, match=r"no launch scans segments as long as .*; give offsets"):
        choose(wanted, "a plan")


def test_a_named_algorithm_is_run_in_one_launch() -> None:
    x = integers(2**15)
    for kind in ("reduction", "scan"):
        named = chosen(kind, x.size, x.size, algorithm=f"{kind}_kn")
        assert names(named) == [f"{kind}_kn"]
        assert named.strategy == "named"
        assert named.rationale[0] == f"algorithm='{kind}_kn' was asked for: one launch"


def test_float32_totals_of_float16_blocks_stay_float32() -> None:
    x = np.full(3 * 2**14, 60000, np.float16)
    total = chosen("reduction", x.size, x.size)
    assert run(total, x).tolist() == [60000.0 * x.size]
    narrow = Types("f16", "f32", "f16", "f16")
    total = chosen("reduction", x.size, x.size, types=narrow)
    assert run(total, x).tolist() == [np.inf]


def test_plans_as_printed_combine_by_mma_without_chains() -> None:
    x = np.zeros(8192, np.float16)
    x[:3] = 2048, 1, 2
    usual = chosen("reduction", x.size, x.size)
    printed = chosen("reduction", x.size, x.size, algorithm="reduction_256n")
    assert (run(usual, x).tolist(), run(printed, x).tolist()) == ([2051], [2052])


# --- Strategies ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strategy", "size"), [("panels", 64), ("single_pass", 64), ("single_pass", 2**15)]
)
def test_every_strategy_can_be_asked_for(strategy: str, size: int) -> None:
    x = integers(2**16)
    made = chosen("scan", x.size, size, strategy=strategy)
    assert (made.strategy, len(launches(made))) == (strategy, 1)
    expected = x.astype(np.float32).reshape(-1, size).cumsum(1).ravel()
    np.testing.assert_array_equal(run(made, x), expected)


def test_the_first_strategy_that_applies_is_taken() -> None:
    table = STRATEGIES[Problem]
    for length, size in ((2**20, 1), (2**20, 64), (2**20, 2**13), (2**28, 2**21), (10**6, 10_000)):
        wanted = problem("scan", length, size)
        first = next(row for row in table if row.applies(wanted, DEFAULT))
        assert choose(wanted, "a plan").strategy == first.name


def test_whether_a_strategy_applies_is_found_without_programs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(planner, "built", None)
    for length, size in ((2**20, 64), (2**30, 2**30), (2**28, 2**21)):
        for arch in ("turing", "hopper"):
            wanted = problem("scan", length, size, arch=arch)
            assert any(row.applies(wanted, DEFAULT) for row in STRATEGIES[Problem])
    with pytest.raises(TypeError, match="not callable"):
        chosen("scan", 2**20, 64)


# Numbers that change every choice: one warp alone, blocks of few rows, and many segments at once.
TUNINGS = {
    "usual": DEFAULT,
    "blocks": replace(
        DEFAULT,
        many_segments=2**40,
        enough_blocks=2**10,
        sum_warp_elements=512,
        block_bytes=2**14,
        reduction=replace(DEFAULT.reduction, panel_elements=16, columns=4),
    ),
    "warps": replace(
        DEFAULT,
        many_segments=1,
        enough_blocks=1,
        reduction=replace(DEFAULT.reduction, panel_elements=512),
    ),
}


@pytest.mark.parametrize("kind", ["reduction", "scan"])
@pytest.mark.parametrize("size", [5, 100, 1000, 3000, 8000, 30_000])
def test_no_tuning_changes_a_bit(kind: str, size: int) -> None:
    rng = np.random.default_rng(size)
    x = (rng.standard_normal(60_001) * np.exp2(rng.integers(-8, 9, 60_001))).astype(np.float16)
    made = {name: chosen(kind, x.size, size, tuning) for name, tuning in TUNINGS.items()}
    assert len({launches(one)[0].program for one in made.values()}) > 1
    found = {name: run(one, x) for name, one in made.items()}
    for name, values in found.items():
        np.testing.assert_array_equal(values, found["usual"], name)


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_scans_in_every_order(exclusive: bool, reverse: bool) -> None:
    order = Order(exclusive, reverse)
    for length, size in ((1000, 16), (1000, 300), (20_000, 20_000), (50_000, 12_000)):
        x = integers(length)
        made = chosen("scan", x.size, size, order=order)
        step = -1 if reverse else 1
        parts = [part[::step].cumsum()[::step] for part in segments(x, size)]
        np.testing.assert_array_equal(run(made, x), np.concatenate(parts) - exclusive * x)


def test_launches_name_arrays_that_exist_before_they_are_read() -> None:
    for length, size in ((100, 100), (3 * 2**14, 3 * 2**14), (2**25, 2**14)):
        for kind in ("reduction", "scan"):
            choice = chosen(kind, length, size).plan
            known = {"in"}
            for launch in choice.launches:
                assert set(launch.inputs.values()) <= known
                known |= set(launch.outputs.values())
            assert known == set(choice.memory)
            assert choice.outputs == tuple(launch.outputs.values()) == ("out",)
            assert choice.memory["out"].size == (length // size if kind == "reduction" else length)


# --- Segments by offsets ------------------------------------------------------------------------


def test_a_problem_without_elements_or_segments_is_one_launch() -> None:
    for kind in ("reduction", "scan"):
        for length, count in ((0, 0), (0, 5), (16, 3)):
            choice = masked(kind, length, count)
            (launch,) = launches(choice)
            assert choice.strategy == "row_per_segment"
            assert launch.inputs == {"in": "in", "offsets": "offsets"}
            assert launch.outputs == {"out": "out"}


@pytest.mark.parametrize(("length", "size"), [(2**29, 2**29), (10**6, 10**5), (10**6, 40)])
def test_initial_values_take_no_launch_more(length: int, size: int) -> None:
    made = tcusim.plan(
        "segmented_cumsum", length=length, segment_size=size, dtype="float32", initial=True
    )
    (launch,) = made.launches
    assert launch.inputs == {"in": "in", "carry": "carry"}
    assert [one.size for one in made.arrays] == [length, -(-length // size), length]
    # A tile whose rows fill no chunk: long segments are scanned by offsets, as without them.
    tcusim.register_shape(tcusim.MmaShape(12, 8, 4))
    wide = tcusim.plan("cumsum", length=10**5, tile="12x8x4", arch="exact", initial=True)
    assert "offsets" in [one.name for one in wide.arrays]


def test_launches_by_offsets_name_what_they_pass_on() -> None:
    choice = masked("scan", 10**6, 3)
    assert choice.strategy == "rows"
    assert [
        (one.program.name, one.inputs["in"], one.outputs["out"]) for one in launches(choice)
    ] == [
        # Rows, panels and chunks, then what precedes each chunk, panel and row.
        ("reduction_ragged", "in", "sums"),
        ("reduction_ragged_simt", "sums", "sums2"),
        ("reduction_ragged_simt", "sums2", "sums3"),
        ("scan_ragged_simt", "sums3", "carries"),
        ("scan_ragged_simt", "sums2", "carries2"),
        ("scan_ragged_simt", "sums", "carries3"),
        ("scan_ragged", "in", "out"),
    ]
    assert [one.inputs.get("carry") for one in launches(choice)] == [
        None, None, None, None, "carries", "carries2", "carries3",
    ]  # fmt: skip


def test_segments_by_offsets_can_be_cut_where_they_need_not_be() -> None:
    rng = np.random.default_rng(4)
    lengths = rng.integers(0, 33, 300)
    offsets = np.concatenate([[0], lengths.cumsum()]).astype(np.int64)
    x = integers(int(offsets[-1]))
    sums = []
    for strategy in (None, "row_per_segment", "rows"):
        choice = masked("reduction", x.size, 300, longest=32, strategy=strategy)
        assert (len(launches(choice)) == 1) == (strategy != "rows")
        sums.append(NUMPY.run(choice.plan, {"in": x, "offsets": offsets})["out"])
    expected = np.add.reduceat(np.append(x, 0), offsets[:-1]) * (lengths > 0)
    for found in sums:
        np.testing.assert_array_equal(found, expected)
    with pytest.raises(InputError, match="'row_per_segment' does not apply to 1000000 float16 "):
        masked("reduction", 10**6, 9, strategy="row_per_segment")


def test_sums_by_offsets_have_the_bits_of_any_cut_and_any_blocks() -> None:
    """Lines are as long as segments are on average, unless few values save a launch."""
    few, many = (masked("reduction", 2**26, segments) for segments in (2**10, 2**18))
    assert len(launches(few)) < len(launches(many))
    rng = np.random.default_rng(7)
    lengths = np.append(rng.integers(0, 100, 60), [9000, 1, 0, 2500])
    offsets = np.concatenate([[0], lengths.cumsum()]).astype(np.int64)
    x = rng.standard_normal(offsets[-1]).astype(np.float16)
    found = set()
    for changes in ({}, {"few_values": 0}, {"few_values": 0, "least_cut": 2, "held_values": 64}):
        tuning = replace(DEFAULT, many_elements=1, ragged=replace(DEFAULT.ragged, **changes))
        made = RaggedProblem(
            kind="reduction",
            length=x.size,
            segments=lengths.size,
            tile=shape_of("16x16x16"),
            types=Types("f16", "f32", "f16", "f32"),
        )
        plan = choose(made, "a plan", tuning).plan
        found.add(NUMPY.run(plan, {"in": x, "offsets": offsets})["out"].tobytes())
    assert len(found) == 1


# --- Products -----------------------------------------------------------------------------------


def product(rows: int, inner: int, cols: int | None, **changes: Any) -> Choice:
    usual = {"tile": shape_of("16x16x16"), "types": Types("f16", "f32", "f16", "f32")}
    made = ProductProblem(rows=rows, inner=inner, cols=cols, **{**usual, **changes})
    return choose(made, "a plan")


@pytest.mark.parametrize(
    ("rows", "inner", "cols", "source", "warps", "block"),
    [
        (4096, 64, 4096, "f16", 8, (128, 256)),
        (2048, 64, 2048, "f16", 8, (128, 256)),
        # Too few results for a block of that size on each multiprocessor.
        (1500, 64, 1500, "f16", 8, (128, 128)),
        (1024, 64, 1024, "f16", 4, (128, 64)),
        # A total and a chain of each result do not fit the registers of that many.
        (4096, 512, 4096, "f16", 8, (128, 128)),
        (64, 64, 64, "f16", 4, (64, 64)),
        (1000, 333, 777, "f16", 4, (64, 64)),
        # Too few columns for more than one warp.
        (64, 64, 8, "f16", 1, (32, 32)),
        # The parts of float32 take three times the room.
        (4096, 64, 4096, "f32", 4, (64, 64)),
        # Of float64, results take twice the room.
        (4096, 64, 4096, "f64", 8, (128, 128)),
    ],
)
def test_large_products_have_large_blocks(
    rows: int, inner: int, cols: int, source: str, warps: int, block: tuple[int, int]
) -> None:
    types = Types("f16" if source == "f16" else "bf16", "f32", source, "f32")
    tile = shape_of("16x16x16")
    if source == "f64":
        types, tile = Types("f64", "f64", "f64", "f64"), shape_of("8x8x4")
    choice = product(rows, inner, cols, types=types, tile=tile)
    (launch,) = launches(choice)
    assert (choice.strategy, launch.program.name, launch.program.warps) == ("gemm", "gemm", warps)
    down, across = block
    blocks = -(-rows // down) * -(-cols // across)
    assert launch.program.grid(choice.plan.scalars(launch)) == blocks


@pytest.mark.parametrize(("source", "stages"), [("f16", 4), ("f32", 2)])
def test_what_is_copied_as_it_is_has_several_stages(source: str, stages: int) -> None:
    """Parts of float32 are made when they are there: nothing is copied meanwhile."""
    types = Types("f16" if source == "f16" else "bf16", "f32", source, source)
    for cols in (4096, None):
        (launch,) = launches(product(4096, 4096, cols, types=types))
        names = {buffer.name for buffer in launch.program.scratch}
        found = {name[1] for name in names if name[0] == "a" and name[1].isdigit()}
        expected = stages if cols or source == "f32" else 8
        assert found == {str(number) for number in range(expected)}


def test_blocks_are_smaller_where_shared_memory_is() -> None:
    """Turing has 64 KB for a block."""
    (launch,) = launches(product(4096, 512, 4096, arch="turing"))
    assert SharedMemory(launch.program).needed <= 64 * 1024
    assert launch.program.warps == 4


def test_large_tiles_are_not_repeated() -> None:
    (launch,) = launches(product(64, 64, 64, tile=MmaShape(64, 64, 64)))
    assert launch.program.warps == 4
    assert launch.program.blocks.evaluate({"rows": 64}) == 1


def test_products_that_share_all_but_rows_share_a_program() -> None:
    one, other = (launches(product(rows, 100, 30))[0].program for rows in (40, 50))
    assert one is other


def test_strategies_of_products() -> None:
    assert product(40, 100, None).strategy == product(40, 100, 1).strategy == "gemv"
    assert product(40, 100, 1, strategy="gemm").strategy == "gemm"
    assert product(40, 100, 1, algorithm="gemv").strategy == "named"
    with pytest.raises(InputError, match=r"'gemv' does not apply to \(4, 5\) by "):
        product(4, 5, 6, strategy="gemv")


# --- All of them --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["reduction", "scan"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int8"])
def test_every_strategy_that_applies_sums_right(kind: str, dtype: str) -> None:
    types = types_of(dtype, "int32" if dtype == "int8" else "float64", "f32", "hopper")
    order = Order(exclusive=kind == "scan", reverse=kind == "scan")
    taken = set()
    for length, size in ((300, 2), (300, 16), (5000, 256), (9000, 1024), (9001, 9001), (9000, 700)):
        x = np.random.default_rng(size).integers(-3, 4, length)
        wanted = problem(kind, length, size, types=types, tile=tile_for(types, None), order=order)
        total = [part.sum() for part in segments(x, size)]
        scan = [part[::-1].cumsum()[::-1] - part for part in segments(x, size)]
        expected = total if kind == "reduction" else np.concatenate(scan)
        for strategy in STRATEGIES[Problem]:
            if strategy.applies(wanted, DEFAULT):
                choice = choose(replace(wanted, strategy=strategy.name), "a plan")
                array = x.astype(format_of(types.source).dtype)
                np.testing.assert_array_equal(run(choice, array), expected, strategy.name)
                taken.add(strategy.name)
    # Only pairs of elements in a word share rows.
    pairs = dtype in ("float16", "bfloat16")
    assert taken == {row.name for row in STRATEGIES[Problem]} - {"named", "" if pairs else "short"}


# --- What the documentation says ----------------------------------------------------------------


def planned_names() -> set[str]:
    """Return the registered algorithms that the functions on arrays launch."""
    found: set[str] = set()
    dtypes = ("float16", "float32", "float64", "int8")
    sizes = (2, 40, 1000, 100_000, 2**22)
    for dtype, kind, size in itertools.product(dtypes, ("reduction", "scan"), sizes):
        types = types_of(dtype, "int32" if dtype == "int8" else dtype, "f32", "hopper")
        tile = tile_for(types, None)
        found.update(names(chosen(kind, 4 * size, size, types=types, tile=tile)))
        found.update(names(masked(kind, 4 * size, 5, types=types, tile=tile)))
    for cols in (None, 1, 2, 100):
        found.update(names(product(100, 1000, cols)))
    return found & {row.name for row in algorithms()}


def test_the_page_of_algorithms_names_what_is_planned() -> None:
    page = (Path(__file__).parents[2] / "docs" / "algorithms.md").read_text()
    (told,) = re.findall(r"\nWhat they launch is (.*?) All others are", page, re.DOTALL)
    assert set(re.findall("`([^`]+)`", told)) == planned_names()
