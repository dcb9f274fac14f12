"""The launches that the planner chooses, by name or by itself; all of them sum right."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import tcusim
from asked import asked
from launch_plans import launch_plan
from tcusim import Plan, ProductPlan
from tcusim.algorithms import algorithms
from tcusim.errors import InputError
from tcusim.machine import Arch, Fused, Rule, register_arch
from tcusim.machine.shapes import MmaShape
from tcusim.program.resources import SharedMemory

Array = NDArray[Any]
OPERATIONS = {"reduction": "segmented_sum", "scan": "segmented_cumsum"}


def chosen(kind: str, length: int, size: int, **options: Any) -> Plan:
    """Plan float16 summed to float32, unless options say otherwise."""
    options = {"result": "float32", **options}
    size = min(size, length)
    return tcusim.plan(OPERATIONS[kind], length=length, segments=size, **asked(**options))


def by_offsets(
    kind: str, length: int, segments: int, longest: int | None = None, **options: Any
) -> Plan:
    options = {"result": "float32", **options}
    return tcusim.plan(
        OPERATIONS[kind],
        length=length,
        segments=tcusim.Segments(count=segments, longest=longest),
        **asked(**options),
    )


def names(plan: Plan | ProductPlan) -> list[str]:
    return [launch.program.name for launch in plan.launches]


def integers(length: int) -> NDArray[np.float16]:
    return np.random.default_rng(length).integers(-9, 10, length).astype(np.float16)


def segments(x: Array, size: int) -> list[NDArray[np.float64]]:
    return [x[at : at + size].astype(np.float64) for at in range(0, x.size, size)]


def assert_right(x: Array, size: int, **changes: Any) -> tuple[Plan, Plan]:
    """Sum and scan, compare, and return the chosen programs."""
    total, scan = (chosen(kind, x.size, size, **changes) for kind in ("reduction", "scan"))
    np.testing.assert_array_equal(total(x), [part.sum() for part in segments(x, size)])
    expected = np.concatenate([part.cumsum() for part in segments(x, size)])
    np.testing.assert_array_equal(scan(x), expected)
    return total, scan


# --- The launches -------------------------------------------------------------------------------


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


@pytest.mark.parametrize("size", [9, 17, 100, 256, 257, 768, 1000, 1024])
def test_a_warp_takes_short_segments(size: int) -> None:
    total, scan = assert_right(integers(20_000), size)
    assert (names(total), names(scan)) == (["reduction_panel"], ["scan_panel"])
    assert total.strategy == scan.strategy == "panels"


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("size", [4, 16, 200])
def test_wide_elements_lie_in_rows_too(dtype: str, size: int) -> None:
    total, scan = assert_right(integers(5000).astype(dtype), size, dtype=dtype, result=dtype)
    assert (names(total), names(scan)) == (["reduction_panel"], ["scan_panel"])


def test_many_long_segments_are_taken_by_a_warp_each() -> None:
    for kind in ("reduction", "scan"):
        for count, size, strategy in (
            (2**14, 2**12, "panels"), (2, 2**14, "single_pass"), (2**10, 2**18, "single_pass"),
        ):  # fmt: skip
            assert chosen(kind, count * size, size).strategy == strategy, (kind, count, size)


@pytest.mark.parametrize("kind", ["reduction", "scan"])
def test_blocks_grow_with_the_array(kind: str) -> None:
    """Those of short segments have more warps; those that share an array, more elements."""
    warps, elements = [], []
    for exponent in range(16, 29):
        (launch,) = chosen(kind, 2**exponent, 64).launches
        assert launch.program.name == f"{kind}_panel"
        warps.append(launch.program.warps)
        program = chosen(kind, 2**exponent, 2**exponent).launches[0].program
        elements.append(program.blocks.per // program.columns)
    assert warps[0] == 1
    for found in (warps, elements):
        assert found == sorted(found)
        assert found[-1] > found[0]


@pytest.mark.parametrize("size", [8193, 10_000, 40_000])
def test_blocks_share_long_segments(size: int) -> None:
    total, scan = assert_right(integers(2 * size + 3), size)
    assert (names(total), names(scan)) == (["reduction_single_pass"], ["scan_single_pass"])
    warps = total.launches[0].program.warps
    assert warps > 1
    start = f"segments are shared by blocks of {warps} warps, which pass "
    assert total.rationale[0].startswith(start)
    assert [array.name for array in scan.temporaries] == []
    assert all(made.launches[0].program.columns > 1 for made in (total, scan))


@pytest.mark.parametrize(("length", "columns"), [(8192, 1), (65_537, 16), (2**20, 128)])
def test_blocks_share_a_long_array(length: int, columns: int) -> None:
    total, scan = assert_right(integers(length), length)
    assert (names(total), names(scan)) == (["reduction_single_pass"], ["scan_single_pass"])
    found = [made.launches[0].program.columns for made in (total, scan)]
    # So few blocks are one group: those of a scan because they are no more than 512 chunks.
    assert found == [columns, columns]
    assert total.rationale[0].startswith("the array is shared by blocks of 4 warps")


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_blocks_share_segments_of_several_groups(dtype: str) -> None:
    tile = tcusim.shape_of("8x8x4" if dtype == "float64" else "16x16x16")
    group = 512 * 8 * 32 * 2 * tile.k
    for size, rows in ((group, 1), (group + 1, 2), (4 * group, 4)):
        (launch,) = chosen("scan", 3 * size, size, dtype=dtype, result=dtype, tile=tile).launches
        assert (launch.program.name, launch.program.rows) == ("scan_single_pass", rows)
    # Blocks are those of one segment as long as all of them.
    (whole,) = chosen("scan", 3 * size, 3 * size, dtype=dtype, result=dtype, tile=tile).launches
    assert (whole.program.columns, whole.program.warps) == (
        launch.program.columns, launch.program.warps,
    )  # fmt: skip


def test_segments_of_many_blocks_lie_by_offsets_if_no_block_takes_whole_chunks() -> None:
    tile = MmaShape(5, 7, 3)
    most = 4 * 8 * 32 * 2 * tile.k
    for length, size, options, apart in (
        (4 * most, most, {"tile": tile}, False),
        (4 * most, most + 1, {"tile": tile}, True),
        (4 * most, most + 1, {}, False),
        (100, 3, {"tile": tile, "algorithm": "scan_kn"}, False),
    ):
        made = chosen("scan", length, size, **options)
        assert ("offsets" in [array.name for array in made.arrays]) == apart


def test_a_named_algorithm_is_run_in_one_launch() -> None:
    x = integers(2**15)
    for kind in ("reduction", "scan"):
        named = chosen(kind, x.size, x.size, algorithm=f"{kind}_kn")
        assert names(named) == [f"{kind}_kn"]
        assert named.strategy == "named"
        assert named.rationale[0] == f"algorithm '{kind}_kn' was asked for: one launch"


def test_float32_totals_of_float16_blocks_stay_float32() -> None:
    x = np.full(3 * 2**14, 60000, np.float16)
    total = chosen("reduction", x.size, x.size)
    assert total(x).tolist() == [60000.0 * x.size]
    total = chosen("reduction", x.size, x.size, result="float16")
    with pytest.warns(RuntimeWarning, match="overflow"):
        assert total(x).tolist() == [np.inf]


def test_plans_as_printed_combine_by_mma_without_chains() -> None:
    x = np.zeros(8192, np.float16)
    x[:3] = 2048, 1, 2
    usual = chosen("reduction", x.size, x.size)
    printed = chosen("reduction", x.size, x.size, algorithm="reduction_256n")
    assert (usual(x).tolist(), printed(x).tolist()) == ([2051], [2052])


# --- Strategies ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strategy", "size"), [("panels", 64), ("single_pass", 64), ("single_pass", 2**15)]
)
def test_every_strategy_can_be_asked_for(strategy: str, size: int) -> None:
    x = integers(2**16)
    made = chosen("scan", x.size, size, strategy=strategy)
    assert (made.strategy, len(made.launches)) == (strategy, 1)
    expected = x.astype(np.float32).reshape(-1, size).cumsum(1).ravel()
    np.testing.assert_array_equal(made(x), expected)


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_scans_in_every_order(exclusive: bool, reverse: bool) -> None:
    order = {"exclusive": exclusive, "reverse": reverse}
    for length, size in ((1000, 16), (1000, 300), (20_000, 20_000), (50_000, 12_000)):
        x = integers(length)
        made = chosen("scan", x.size, size, **order)
        step = -1 if reverse else 1
        parts = [part[::step].cumsum()[::step] for part in segments(x, size)]
        np.testing.assert_array_equal(made(x), np.concatenate(parts) - exclusive * x)


def test_launches_name_arrays_that_exist_before_they_are_read() -> None:
    for length, size in ((100, 100), (3 * 2**14, 3 * 2**14), (2**25, 2**14)):
        for kind in ("reduction", "scan"):
            choice = chosen(kind, length, size).launch_plan
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
            made = launch_plan(kind, length, segments=count)
            (launch,) = made.launches
            assert launch.inputs == {"in": "in", "offsets": "offsets"}
            assert launch.outputs == {"out": "out"}


@pytest.mark.parametrize(("length", "size"), [(2**29, 2**29), (10**6, 10**5), (10**6, 40)])
def test_initial_values_take_no_launch_more(length: int, size: int) -> None:
    made = tcusim.plan(
        "segmented_cumsum", length=length, segments=size, dtype="float32", initial=True
    )
    (launch,) = made.launches
    assert launch.inputs == {"in": "in", "carry": "carry"}
    assert [one.size for one in made.arrays] == [length, -(-length // size), length]
    # A tile with rows that fill no chunk: long segments are scanned by offsets, as without them.
    tcusim.register_shape(tcusim.MmaShape(12, 8, 4))
    wide = tcusim.plan(
        "cumsum", length=10**5, options={"tile": "12x8x4", "arch": "exact"}, initial=True
    )
    assert "offsets" in [one.name for one in wide.arrays]


def test_launches_by_offsets_name_what_they_pass_on() -> None:
    choice = by_offsets("scan", 10**6, 3)
    assert choice.strategy == "rows"
    assert [
        (one.program.name, one.inputs["in"], one.outputs["out"]) for one in choice.launches
    ] == [
        # Rows, panels and chunks, then the prefix of each chunk, panel and row.
        ("reduction_ragged", "in", "sums"),
        ("reduction_ragged_simt", "sums", "sums2"),
        ("reduction_ragged_simt", "sums2", "sums3"),
        ("scan_ragged_simt", "sums3", "carries"),
        ("scan_ragged_simt", "sums2", "carries2"),
        ("scan_ragged_simt", "sums", "carries3"),
        ("scan_ragged", "in", "out"),
    ]
    assert [one.inputs.get("carry") for one in choice.launches] == [
        None, None, None, None, "carries", "carries2", "carries3",
    ]  # fmt: skip


def test_segments_by_offsets_can_be_cut_where_they_need_not_be() -> None:
    rng = np.random.default_rng(4)
    lengths = rng.integers(0, 33, 300)
    offsets = np.concatenate([[0], lengths.cumsum()]).astype(np.int64)
    x = integers(int(offsets[-1]))
    sums = []
    for strategy in (None, "row_per_segment", "rows"):
        choice = by_offsets("reduction", x.size, 300, longest=32, strategy=strategy)
        assert (len(choice.launches) == 1) == (strategy != "rows")
        sums.append(choice(x, segments=offsets))
    expected = np.add.reduceat(np.append(x, 0), offsets[:-1]) * (lengths > 0)
    for found in sums:
        np.testing.assert_array_equal(found, expected)
    with pytest.raises(
        InputError, match="'row_per_segment' does not apply to 1000000 elements in 9 segments "
    ):
        by_offsets("reduction", 10**6, 9, strategy="row_per_segment")


def test_lines_are_as_long_as_segments_are_on_average() -> None:
    """Unless few values save a launch."""
    few, many = (by_offsets("reduction", 2**26, segments) for segments in (2**10, 2**18))
    assert len(few.launches) < len(many.launches)


# --- Products -----------------------------------------------------------------------------------


def product(rows: int, inner: int, cols: int | None, **options: Any) -> ProductPlan:
    operation = "matvec" if cols is None else "matmul"
    options = {"result": "float32", **options}
    return tcusim.plan_product(operation, rows=rows, inner=inner, cols=cols, **asked(**options))


@pytest.mark.parametrize(
    ("rows", "inner", "cols", "source", "warps", "block"),
    [
        (4096, 64, 4096, "float16", 8, (128, 256)),
        (2048, 64, 2048, "float16", 8, (128, 256)),
        # Too few results for a block of that size on each multiprocessor.
        (1500, 64, 1500, "float16", 8, (128, 128)),
        (1024, 64, 1024, "float16", 4, (128, 64)),
        # A total and a chain of each result do not fit the registers of that many.
        (4096, 512, 4096, "float16", 8, (128, 128)),
        (64, 64, 64, "float16", 4, (64, 64)),
        (1000, 333, 777, "float16", 4, (64, 64)),
        # Too few columns for more than one warp.
        (64, 64, 8, "float16", 1, (32, 32)),
        # The parts of float32 take three times the room.
        (4096, 64, 4096, "float32", 4, (64, 64)),
        # Of float64, results take twice the room.
        (4096, 64, 4096, "float64", 8, (128, 128)),
    ],
)
def test_large_products_have_large_blocks(
    rows: int, inner: int, cols: int, source: str, warps: int, block: tuple[int, int]
) -> None:
    wide = "float64" if source == "float64" else "float32"
    choice = product(rows, inner, cols, dtype=source, result=wide)
    (launch,) = choice.launches
    assert (choice.strategy, launch.program.name, launch.program.warps) == ("gemm", "gemm", warps)
    down, across = block
    blocks = -(-rows // down) * -(-cols // across)
    assert launch.program.grid(choice.scalars(launch)) == blocks


@pytest.mark.parametrize(("source", "stages"), [("float16", 4), ("float32", 2)])
def test_what_is_copied_as_it_is_has_several_stages(source: str, stages: int) -> None:
    """Parts of float32 are made when they are there: nothing is copied meanwhile."""
    for cols in (4096, None):
        (launch,) = product(4096, 4096, cols, dtype=source, result=source).launches
        names = {buffer.name for buffer in launch.program.scratch}
        found = {name[1] for name in names if name[0] == "a" and name[1].isdigit()}
        expected = stages if cols or source == "float32" else 8
        assert found == {str(number) for number in range(expected)}


def test_blocks_are_smaller_where_shared_memory_is() -> None:
    """Turing has 64 KB for a block."""
    (launch,) = product(4096, 512, 4096, arch="turing").launches
    assert SharedMemory(launch.program).needed <= 64 * 1024
    assert launch.program.warps == 4


def test_large_tiles_are_not_repeated() -> None:
    (launch,) = product(64, 64, 64, tile=MmaShape(64, 64, 64)).launches
    assert launch.program.warps == 4
    assert launch.program.blocks.evaluate({"rows": 64}) == 1


def test_products_that_share_all_but_rows_share_a_program() -> None:
    one, other = (product(rows, 100, 30).launches[0].program for rows in (40, 50))
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
    options: dict[str, Any] = {
        "dtype": dtype,
        "result": {"int8": "int32", "float64": dtype}.get(dtype, "float32"),
    }
    if kind == "scan":
        options |= {"exclusive": True, "reverse": True}
    taken = set()
    for length, size in ((300, 2), (300, 16), (5000, 256), (9000, 1024), (9001, 9001), (9000, 700)):
        x = np.random.default_rng(size).integers(-3, 4, length)
        total = [part.sum() for part in segments(x, size)]
        scan = [part[::-1].cumsum()[::-1] - part for part in segments(x, size)]
        expected = total if kind == "reduction" else np.concatenate(scan)
        for strategy in ("short", "panels", "single_pass"):
            try:
                choice = chosen(kind, length, size, strategy=strategy, **options)
            except InputError:  # it does not apply
                continue
            array = x.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
            np.testing.assert_array_equal(choice(array), expected, strategy)
            taken.add(strategy)
    # Only pairs of elements in a word share rows.
    assert taken >= {"panels", "single_pass"}
    assert ("short" in taken) == (dtype in ("float16", "bfloat16"))


# --- Claims of the documentation ----------------------------------------------------------------


def planned_names() -> set[str]:
    """Return the registered algorithms that the functions on arrays launch."""
    found: set[str] = set()
    dtypes = ("float16", "float32", "float64", "int8")
    sizes = (2, 40, 1000, 100_000, 2**22)
    for dtype, kind, size in itertools.product(dtypes, ("reduction", "scan"), sizes):
        types: dict[str, Any] = {"dtype": dtype, "result": "int32" if dtype == "int8" else dtype}
        found.update(names(chosen(kind, 4 * size, size, **types)))
        found.update(names(by_offsets(kind, 4 * size, 5, **types)))
    for cols in (None, 1, 2, 100):
        found.update(names(product(100, 1000, cols)))
    return found & {row.name for row in algorithms()}


def test_the_page_of_algorithms_names_what_is_planned() -> None:
    page = (Path(__file__).parents[2] / "docs" / "algorithms.md").read_text()
    (told,) = re.findall(r"\nWhat they launch is (.*?) All others are", page, re.DOTALL)
    assert set(re.findall("`([^`]+)`", told)) == planned_names()
