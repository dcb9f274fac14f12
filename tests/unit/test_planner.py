"""Which launches the planner chooses, by name or by itself, and that all of them sum right."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tcusim.algorithms.order import Order
from tcusim.arrays import planner
from tcusim.arrays.dtypes import types_of
from tcusim.arrays.planner import STRATEGIES, Choice, choose, chunk_of, cut_of
from tcusim.arrays.problem import (
    Problem,
    ProductProblem,
    RaggedProblem,
    Types,
    tile_for,
)
from tcusim.arrays.tuning import DEFAULT, Tuning
from tcusim.errors import InputError
from tcusim.machine import format_of
from tcusim.machine.shapes import MmaShape, shape_of
from tcusim.program.launches import Launch
from tcusim.simulate.backend import NUMPY

Array = NDArray[Any]

CHUNK = DEFAULT.chunk


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
    ("size", "sum_by", "scan_by"),
    [
        # They fill no rows of tiles, and lie side by side in one.
        (1, "kn", "kn"),
        (100, "kn", "kn"),
        (256, "panel", "panel"),
        (257, "kn", "panel"),
        (16 * DEFAULT.reduction.short_rows + 1, "panel", "panel"),
        (16, "panel", "panel"),
        (768, "panel", "panel"),
        (2048, "panel", "panel"),
        (2049, "tn", "panel"),
        (8191, "tn", "panel"),
    ],
)
def test_short_segments(size: int, sum_by: str, scan_by: str) -> None:
    total, scan = assert_right(integers(20_000), size)
    assert (names(total), names(scan)) == ([f"reduction_{sum_by}"], [f"scan_{scan_by}"])


@pytest.mark.parametrize(
    ("dtype", "size", "sum_by", "scan_by"),
    [
        ("float64", 16, "kn", "kn"),
        ("float64", 1024, "tn", "tn"),
        ("float32", 16, "kn", "kn"),
        ("float32", 1024, "tn", "panel"),
        ("float32", 1000, "tn", "tn"),
    ],
)
def test_wide_elements_do_not_lie_in_rows(dtype: str, size: int, sum_by: str, scan_by: str) -> None:
    types = types_of(dtype, dtype, "f32")
    total, scan = (
        chosen(kind, 9999, size, types=types, tile=tile_for(types, None))
        for kind in ("reduction", "scan")
    )
    assert (names(total), names(scan)) == ([f"reduction_{sum_by}"], [f"scan_{scan_by}"])


def test_many_long_segments_are_scanned_by_a_warp_each() -> None:
    for count, by in ((2**13, ["scan_panel"]), (2**13 - 1, ["scan_single_pass"])):
        narrow = Types("f16", "f32", "f16", "f16")
        assert names(chosen("scan", count * 2**14, 2**14, types=narrow)) == by
        assert names(chosen("scan", count * 2**14, 2**14)) == ["scan_single_pass"]


@pytest.mark.parametrize(
    ("kind", "length", "size", "warps", "turns"),
    [
        ("scan", 2**18 - 1, 64, 1, 1),
        ("scan", 2**19, 64, 2, 1),
        ("scan", 2**21, 64, 8, 1),
        ("scan", 2**23, 64, 8, 4),
        ("scan", 2**23, 2048, 8, 1),
        ("reduction", 2**20, 64, 2, 1),
        ("reduction", 2**24, 64, 4, 4),
    ],
)
def test_rows_of_long_arrays_have_several_warps_and_turns(
    kind: str, length: int, size: int, warps: int, turns: int
) -> None:
    (launch,) = launches(chosen(kind, length, size))
    assert launch.program.name == f"{kind}_panel"
    elements = max(size, 1024 if kind == "scan" else 2048)
    assert launch.program.warps == warps
    assert launch.program.blocks.per == warps * turns * elements


@pytest.mark.parametrize("size", [8192, 10_000, 40_000])
def test_blocks_share_long_segments(size: int) -> None:
    total, scan = assert_right(integers(2 * size + 3), size)
    assert (names(total), names(scan)) == (["reduction_single_pass"], ["scan_single_pass"])
    assert total.rationale[0].startswith(
        "segments are shared by blocks of 4 warps, 8192 elements to a"
    )
    assert [array.name for array in scan.plan.temporaries] == []


@pytest.mark.parametrize(("length", "columns"), [(8192, 1), (65_537, 16), (2**20, 64)])
def test_blocks_share_a_long_array(length: int, columns: int) -> None:
    total, scan = assert_right(integers(length), length)
    assert (names(total), names(scan)) == (["reduction_single_pass"], ["scan_single_pass"])
    found = [launches(made)[0].program.columns for made in (total, scan)]
    # Blocks of a scan wait for up to 127 others, those of a sum for 63.
    assert found == [columns, 128 if columns == 64 else columns]
    assert total.rationale[0].startswith("the array is shared by blocks of 4 warps")


@pytest.mark.parametrize(
    ("kind", "length", "size", "warps", "elements"),
    [
        ("reduction", 2**30, 2**30, 16, 2**16),
        ("reduction", 2**30, 2**15, 16, 2**15),
        ("reduction", 2**30, 2**14, 8, 2**14),
        ("reduction", 2**20, 2**20, 4, 2**13),
        ("scan", 2**30, 2**30, 8, 2**15),
        ("scan", 2**22, 2**22, 8, 2**14),
        ("scan", 2**26, 2**15 * 3, 8, 2**15),
        ("scan", 2**30, 2**22, 8, 2**15),
    ],
)
def test_blocks_are_as_large_as_leaves_enough_of_them(
    kind: str, length: int, size: int, warps: int, elements: int
) -> None:
    program = launches(chosen(kind, length, size))[0].program
    assert program.warps == warps
    columns = {"reduction": 64, "scan": 128}[kind] if size == length else -(-size // elements)
    assert program.columns == columns
    assert program.blocks.per == (elements * columns if size == length else size)


def test_a_block_does_not_wait_for_too_many() -> None:
    choice = chosen("scan", 2**30, 2**23)
    assert choice.strategy == "chunks"
    assert choice.rationale[0].startswith("segments of more than 16384 elements are cut into chun")
    # Chunks would reach across these segments, and one warp would take for ever.
    assert len(launches(chosen("scan", 2**30, 2**23 + 1))) == 1


def test_long_arrays_have_blocks_of_several_warps() -> None:
    for length, warps in ((2**18 - 1, 1), (2**18, 8)):
        for size in (100, 5000):
            (launch,) = launches(chosen("reduction", length, size))
            assert launch.program.warps == warps


@pytest.mark.parametrize("size", [CHUNK, CHUNK + 256])
def test_a_segment_that_is_not_cut_takes_one_launch(size: int) -> None:
    # Chunks would reach across the second case's segments.
    total, scan = assert_right(integers(2 * size + 3), size, strategy="warp_per_segment")
    assert (names(total), names(scan)) == (["reduction_tn"], ["scan_tn"])
    assert ("would reach across" in total.rationale[0]) == (size > CHUNK)


def test_a_long_array_is_cut_whatever_its_length() -> None:
    for length in (CHUNK + 1, 3 * CHUNK):
        total, scan = assert_right(integers(length), length, strategy="chunks")
        assert names(total) == ["reduction_tn", "reduction_simt"]
        assert names(scan) == ["reduction_tn", "scan_simt", "scan_tn"]


def test_long_segments_of_whole_chunks_are_cut() -> None:
    total, scan = assert_right(integers(5 * CHUNK - 100), 2 * CHUNK, strategy="chunks")
    assert names(total) == ["reduction_tn", "reduction_simt"]
    assert names(scan) == ["reduction_tn", "scan_simt", "scan_tn"]
    assert [launch.program.blocks.per for launch in launches(scan)] == [CHUNK, 2, CHUNK]


@pytest.mark.parametrize("shape", ["16x16x16", "32x8x16", "8x32x16", "16x8x16"])
def test_partial_sums_are_combined_in_groups_of_groups(shape: str) -> None:
    x = integers(100 * 512 + 77)
    short = replace(DEFAULT, chunk=512, simt_values=4)
    total, scan = assert_right(x, x.size, tuning=short, tile=shape_of(shape), strategy="chunks")
    assert names(total) == ["reduction_tn", *["reduction_simt"] * 4]
    assert names(scan) == [
        "reduction_tn", *["reduction_simt"] * 3, *["scan_simt"] * 4, "scan_tn",
    ]  # fmt: skip
    assert [array.name for array in scan.plan.temporaries] == [
        "sums", "sums2", "sums3", "sums4", "carries", "carries2", "carries3", "carries4",
    ]  # fmt: skip


SHORT_CHUNKS = replace(DEFAULT, chunk=256, simt_values=4)


@pytest.mark.parametrize("count", [5, 6, 7, 8, 12, 25])
def test_groups_do_not_reach_across_segments(count: int) -> None:
    size = count * 256
    for length in (4 * size - 300, 4 * size, 2 * size + 1):
        assert_right(integers(length), size, tuning=SHORT_CHUNKS, strategy="chunks")


def test_chunks_are_whole_tiles() -> None:
    for shape in ("16x16x16", "32x8x16", "8x32x16", "16x16x8", "8x8x4", "16x8x16"):
        tile = shape_of(shape)
        chunk = chunk_of(problem("scan", 1, 1, tile=tile), DEFAULT)
        assert chunk % (tile.m * tile.k) == 0
        assert chunk % (tile.n * tile.k) == 0
        assert 0 < chunk <= CHUNK


def test_a_named_algorithm_is_run_in_one_launch() -> None:
    x = integers(CHUNK * 2)
    for kind in ("reduction", "scan"):
        named = chosen(kind, x.size, x.size, algorithm=f"{kind}_kn")
        assert names(named) == [f"{kind}_kn"]
        assert named.strategy == "named"
        assert named.rationale[0] == f"algorithm='{kind}_kn' was asked for: one launch"


def test_float32_totals_of_float16_chunks_stay_float32() -> None:
    x = np.full(3 * CHUNK, 60000, np.float16)
    total = chosen("reduction", x.size, x.size, strategy="chunks")
    assert run(total, x).tolist() == [60000.0 * 3 * CHUNK]
    assert [launch.program.outputs[0].dtype for launch in launches(total)] == ["f32", "f32"]
    narrow = Types("f16", "f32", "f16", "f16")
    total = chosen("reduction", x.size, x.size, strategy="chunks", types=narrow)
    assert run(total, x).tolist() == [np.inf]


def test_plans_as_printed_combine_by_mma_without_chains() -> None:
    x = np.zeros(8192, np.float16)
    x[:3] = 2048, 1, 2
    usual = chosen("reduction", x.size, x.size)
    printed = chosen("reduction", x.size, x.size, algorithm="reduction_256n")
    assert (run(usual, x).tolist(), run(printed, x).tolist()) == ([2051], [2052])


# --- Strategies ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strategy", "size", "count"),
    [
        ("panels", 64, 1),
        ("row_per_segment", 64, 1),
        ("single_pass", 2**15, 1),
        ("chunks", 2**15, 3),
        ("warp_per_segment", 64, 1),
        ("warp_per_segment", 2**15, 1),
    ],
)
def test_every_strategy_can_be_asked_for(strategy: str, size: int, count: int) -> None:
    x = integers(2**16)
    made = chosen("scan", x.size, size, strategy=strategy)
    assert (made.strategy, len(launches(made))) == (strategy, count)
    expected = x.astype(np.float32).reshape(-1, size).cumsum(1).ravel()
    np.testing.assert_array_equal(run(made, x), expected)


def test_the_first_strategy_that_applies_is_taken() -> None:
    table = STRATEGIES[Problem]
    for length, size in ((2**20, 1), (2**20, 64), (2**20, 2**13), (2**28, 2**23), (10**6, 10_000)):
        wanted = problem("scan", length, size)
        first = next(row for row in table if row.applies(wanted, DEFAULT))
        assert choose(wanted, "a plan").strategy == first.name


def test_whether_a_strategy_applies_is_found_without_programs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(planner, "build", None)
    for length, size in ((2**20, 64), (2**30, 2**30), (2**28, 2**23)):
        for arch in ("turing", "hopper"):
            wanted = problem("scan", length, size, arch=arch)
            assert any(row.applies(wanted, DEFAULT) for row in STRATEGIES[Problem])
    with pytest.raises(TypeError, match="not callable"):
        chosen("scan", 2**20, 64)


def test_a_tuning_row_changes_what_is_chosen() -> None:
    wanted = problem("scan", 2**20, 2**20)
    assert choose(wanted, "a plan").strategy == "single_pass"
    other = replace(DEFAULT, least_block=2**40)
    assert choose(wanted, "a plan", other).strategy == "chunks"


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_scans_in_every_order(exclusive: bool, reverse: bool) -> None:
    order = Order(exclusive, reverse)
    for length, size, strategy in (
        (1000, 16, None), (1000, 300, None), (5000, 5000, "chunks"), (9 * 512 - 7, 512, "chunks"),
    ):  # fmt: skip
        x = integers(length)
        made = chosen("scan", x.size, size, tuning=SHORT_CHUNKS, order=order, strategy=strategy)
        step = -1 if reverse else 1
        parts = [part[::step].cumsum()[::step] for part in segments(x, size)]
        np.testing.assert_array_equal(run(made, x), np.concatenate(parts) - exclusive * x)


def test_launches_name_arrays_that_exist_before_they_are_read() -> None:
    for length, size in ((100, 100), (3 * CHUNK, 3 * CHUNK), (2000 * CHUNK, 1000 * CHUNK)):
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


def test_chunks_are_about_as_long_as_segments() -> None:
    assert [cut_of(1000 * size, 1000, 16, 1024) for size in (0, 1, 16, 17, 100, 600, 9999)] == [
        16, 16, 16, 32, 128, 1024, 1024,
    ]  # fmt: skip
    assert cut_of(0, 0, 16, 1024) == 16
    assert cut_of(100, 1, 16, 16) == 16


def test_a_problem_without_elements_or_segments_is_one_launch() -> None:
    for kind in ("reduction", "scan"):
        for length, count in ((0, 0), (0, 5), (16, 3)):
            choice = masked(kind, length, count)
            (launch,) = launches(choice)
            assert choice.strategy == "row_per_segment"
            assert launch.inputs == {"in": "in", "offsets": "offsets"}
            assert launch.outputs == {"out": "out"}


def test_launches_by_offsets_name_what_they_pass_on() -> None:
    choice = masked("scan", 10**6, 3)
    assert choice.strategy == "chunks"
    assert [
        (one.program.name, one.inputs["in"], one.outputs["out"]) for one in launches(choice)
    ] == [
        ("reduction_ragged", "in", "sums"),
        ("reduction_ragged_simt", "sums", "sums2"),
        ("scan_ragged_simt", "sums2", "carries"),
        ("scan_ragged_simt", "sums", "carries2"),
        ("scan_ragged", "in", "out"),
    ]
    assert [one.inputs.get("carry") for one in launches(choice)] == [
        None, None, None, "carries", "carries2",
    ]  # fmt: skip


def test_segments_by_offsets_can_be_cut_where_they_need_not_be() -> None:
    rng = np.random.default_rng(4)
    lengths = rng.integers(0, 33, 300)
    offsets = np.concatenate([[0], lengths.cumsum()]).astype(np.int64)
    x = integers(int(offsets[-1]))
    sums = []
    for strategy in (None, "row_per_segment", "chunks"):
        choice = masked("reduction", x.size, 300, longest=32, strategy=strategy)
        assert (len(launches(choice)) == 1) == (strategy != "chunks")
        sums.append(NUMPY.run(choice.plan, {"in": x, "offsets": offsets})["out"])
    expected = np.add.reduceat(np.append(x, 0), offsets[:-1]) * (lengths > 0)
    for found in sums:
        np.testing.assert_array_equal(found, expected)
    with pytest.raises(InputError, match="'row_per_segment' does not apply to 1000000 float16 "):
        masked("reduction", 10**6, 9, strategy="row_per_segment")


# --- Products -----------------------------------------------------------------------------------


def product(rows: int, inner: int, cols: int | None, **changes: Any) -> Choice:
    usual = {"tile": shape_of("16x16x16"), "types": Types("f16", "f32", "f16", "f32")}
    made = ProductProblem(rows=rows, inner=inner, cols=cols, **{**usual, **changes})
    return choose(made, "a plan")


@pytest.mark.parametrize(
    ("rows", "cols", "source", "warps", "block"),
    [
        (4096, 4096, "f16", 8, (128, 128)),
        (64, 64, "f16", 4, (64, 64)),
        # Too few columns for more than one warp.
        (64, 8, "f16", 1, (32, 32)),
        # The parts of float32 take three times the room.
        (4096, 4096, "f32", 4, (64, 64)),
    ],
)
def test_large_products_have_large_blocks(
    rows: int, cols: int, source: str, warps: int, block: tuple[int, int]
) -> None:
    types = Types("f16" if source == "f16" else "bf16", "f32", source, "f32")
    choice = product(rows, 64, cols, types=types)
    (launch,) = launches(choice)
    assert (choice.strategy, launch.program.name, launch.program.warps) == ("gemm", "gemm", warps)
    down, across = block
    blocks = -(-rows // down) * -(-cols // across)
    assert launch.program.grid(choice.plan.scalars(launch)) == blocks


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
    types = types_of(dtype, "int32" if dtype == "int8" else "float64", "f32")
    # Chunks and blocks so short that small arrays take every way.
    short = replace(DEFAULT, chunk=512, simt_values=4, least_block=512, many_elements=4096)
    order = Order(exclusive=kind == "scan", reverse=kind == "scan")
    taken = set()
    for length, size in ((300, 16), (5000, 256), (9000, 1024), (9001, 9001), (9000, 700)):
        x = np.random.default_rng(size).integers(-3, 4, length)
        wanted = problem(kind, length, size, types=types, tile=tile_for(types, None), order=order)
        total = [part.sum() for part in segments(x, size)]
        scan = [part[::-1].cumsum()[::-1] - part for part in segments(x, size)]
        expected = total if kind == "reduction" else np.concatenate(scan)
        for strategy in STRATEGIES[Problem]:
            if strategy.applies(wanted, short):
                choice = choose(replace(wanted, strategy=strategy.name), "a plan", short)
                array = x.astype(format_of(types.source).dtype)
                np.testing.assert_array_equal(run(choice, array), expected, strategy.name)
                taken.add(strategy.name)
    wide = dtype == "float64" or (dtype == "float32" and kind == "reduction")
    others = {"named", "panels"} if wide else {"named"}
    assert taken == {row.name for row in STRATEGIES[Problem]} - others
