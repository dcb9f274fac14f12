"""Plans: which launches they choose, that pieces of any size make the same sums, and reuse."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import tcusim.arrays.planner
from tcusim import plan
from tcusim.algorithms.order import Order
from tcusim.arrays.planner import STRATEGIES, Choice, choose, chunk_of
from tcusim.arrays.plans import Plan, plan_for
from tcusim.arrays.problem import Problem, Types
from tcusim.arrays.tuning import DEFAULT, Tuning
from tcusim.errors import InputError, UnknownName, Unsupported
from tcusim.machine.shapes import shape_of
from tcusim.program import launches
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


def chosen(kind: str, length: int, size: int, **changes: Any) -> Choice:
    return choose(problem(kind, length, size, **changes), "a plan")


def planned(kind: str, x: Array, size: int, tuning: Tuning | None = None, **changes: Any) -> Plan:
    operation = "segmented_sum" if kind == "reduction" else "segmented_cumsum"
    return plan_for(operation, problem(kind, x.size, size, **changes), None, None, tuning)


def names(made: Plan) -> list[str]:
    return [launch.program.name for launch in made.launches]


def integers(length: int) -> NDArray[np.float16]:
    return np.random.default_rng(length).integers(-9, 10, length).astype(np.float16)


def segments(x: Array, size: int) -> list[NDArray[np.float64]]:
    return [x[at : at + size].astype(np.float64) for at in range(0, x.size, size)]


def assert_right(x: Array, size: int, **changes: Any) -> tuple[Plan, Plan]:
    """Sum and scan through plans, compare, and return them."""
    total, scan = (planned(kind, x, size, **changes) for kind in ("reduction", "scan"))
    np.testing.assert_array_equal(total(x), [part.sum() for part in segments(x, size)])
    expected = np.concatenate([part.cumsum() for part in segments(x, size)])
    np.testing.assert_array_equal(scan(x), expected)
    return total, scan


# --- Which launches -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "sum_by", "scan_by"),
    [
        # They fill no rows of tiles, and lie side by side in one.
        (1, "kn", "kn"),
        (100, "kn", "kn"),
        (256, "rows", "rows"),
        (257, "kn", "rows"),
        (16 * DEFAULT.reduction.short_rows + 1, "rows", "rows"),
        (16, "rows", "rows"),
        (768, "rows", "rows"),
        (2048, "rows", "rows"),
        (2049, "tn", "rows"),
        (8191, "tn", "rows"),
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
        ("float32", 1024, "tn", "rows"),
        ("float32", 1000, "tn", "tn"),
    ],
)
def test_wide_elements_do_not_lie_in_rows(dtype: str, size: int, sum_by: str, scan_by: str) -> None:
    total, scan = (
        tcusim.plan(f"segmented_{kind}", length=9999, segment_size=size, dtype=dtype)
        for kind in ("sum", "cumsum")
    )
    assert (names(total), names(scan)) == ([f"reduction_{sum_by}"], [f"scan_{scan_by}"])


def test_many_long_segments_are_scanned_by_a_warp_each() -> None:
    for count, by in ((2**13, ["scan_rows"]), (2**13 - 1, ["scan_grid"])):
        sizes: dict[str, Any] = {"length": count * 2**14, "segment_size": 2**14}
        assert names(tcusim.plan("segmented_cumsum", **sizes)) == by
        assert names(tcusim.plan("segmented_cumsum", **sizes, result="float32")) == ["scan_grid"]


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
    (launch,) = chosen(kind, length, size).plan.launches
    assert launch.program.name == f"{kind}_rows"
    elements = max(size, 1024 if kind == "scan" else 2048)
    assert launch.program.warps == warps
    assert launch.program.blocks.per == warps * turns * elements


@pytest.mark.parametrize("size", [8192, 10_000, 40_000])
def test_blocks_share_long_segments(size: int) -> None:
    total, scan = assert_right(integers(2 * size + 3), size)
    assert (names(total), names(scan)) == (["reduction_grid"], ["scan_grid"])
    assert total.rationale[0].startswith(
        "segments are shared by blocks of 4 warps, 8192 elements to a"
    )
    assert [array.name for array in scan.temporaries] == []


@pytest.mark.parametrize(("length", "columns"), [(8192, 1), (65_537, 16), (2**20, 64)])
def test_blocks_share_a_long_array(length: int, columns: int) -> None:
    total, scan = assert_right(integers(length), length)
    assert (names(total), names(scan)) == (["reduction_grid"], ["scan_grid"])
    found = [made.launches[0].program.columns for made in (total, scan)]
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
    program = chosen(kind, length, size).plan.launches[0].program
    assert program.warps == warps
    columns = {"reduction": 64, "scan": 128}[kind] if size == length else -(-size // elements)
    assert program.columns == columns
    assert program.blocks.per == (elements * columns if size == length else size)


def test_a_block_does_not_wait_for_too_many() -> None:
    choice = chosen("scan", 2**30, 2**23)
    assert choice.strategy == "chunks"
    assert choice.rationale[0].startswith("segments of more than 16384 elements are cut into chun")
    # Chunks would reach across these segments, and one warp would take for ever.
    assert len(chosen("scan", 2**30, 2**23 + 1).plan.launches) == 1


def test_long_arrays_have_blocks_of_several_warps() -> None:
    for length, warps in ((2**18 - 1, 1), (2**18, 8)):
        for size in (100, 5000):
            (launch,) = chosen("reduction", length, size).plan.launches
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
        assert names(total) == ["reduction_tn", "reduction_plain"]
        assert names(scan) == ["reduction_tn", "scan_plain", "scan_tn"]


def test_long_segments_of_whole_chunks_are_cut() -> None:
    total, scan = assert_right(integers(5 * CHUNK - 100), 2 * CHUNK, strategy="chunks")
    assert names(total) == ["reduction_tn", "reduction_plain"]
    assert names(scan) == ["reduction_tn", "scan_plain", "scan_tn"]
    assert [launch.program.blocks.per for launch in scan.launches] == [CHUNK, 2, CHUNK]


@pytest.mark.parametrize("shape", ["16x16x16", "32x8x16", "8x32x16", "16x8x16"])
def test_partial_sums_are_combined_in_groups_of_groups(shape: str) -> None:
    x = integers(100 * 512 + 77)
    short = replace(DEFAULT, chunk=512, simt_values=4)
    total, scan = assert_right(x, x.size, tuning=short, tile=shape_of(shape), strategy="chunks")
    assert names(total) == ["reduction_tn", *["reduction_plain"] * 4]
    assert names(scan) == [
        "reduction_tn", *["reduction_plain"] * 3, *["scan_plain"] * 4, "scan_tn",
    ]  # fmt: skip
    assert [array.name for array in scan.temporaries] == [
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
        named = planned(kind, x, x.size, algorithm=f"{kind}_kn")
        assert names(named) == [f"{kind}_kn"]
        assert named.strategy == "named"
        assert named.rationale[0] == f"algorithm='{kind}_kn' was asked for: one launch"


def test_float32_totals_of_float16_chunks_stay_float32() -> None:
    x = np.full(3 * CHUNK, 60000, np.float16)
    total = planned("reduction", x, x.size, strategy="chunks")
    assert total(x).tolist() == [60000.0 * 3 * CHUNK]
    assert [launch.program.outputs[0].dtype for launch in total.launches] == ["f32", "f32"]
    narrow = Types("f16", "f32", "f16", "f16")
    total = planned("reduction", x, x.size, strategy="chunks", types=narrow)
    assert total(x).tolist() == [np.inf]


def test_plans_as_printed_combine_by_mma_without_chains() -> None:
    x = np.zeros(8192, np.float16)
    x[:3] = 2048, 1, 2
    usual = planned("reduction", x, x.size)
    printed = planned("reduction", x, x.size, algorithm="reduction_256n")
    assert (usual(x).tolist(), printed(x).tolist()) == ([2051], [2052])


# --- Strategies ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strategy", "size", "launches"),
    [
        ("panels", 64, 1),
        ("row_per_segment", 64, 1),
        ("single_pass", 2**15, 1),
        ("chunks", 2**15, 3),
        ("warp_per_segment", 64, 1),
        ("warp_per_segment", 2**15, 1),
    ],
)
def test_every_strategy_can_be_asked_for(strategy: str, size: int, launches: int) -> None:
    x = integers(2**16)
    made = plan(
        "segmented_cumsum", length=x.size, segment_size=size, result="float32", strategy=strategy
    )
    assert (made.strategy, len(made.launches)) == (strategy, launches)
    assert f"  strategy  {strategy}" in str(made).splitlines()
    np.testing.assert_array_equal(made(x), x.astype(np.float32).reshape(-1, size).cumsum(1).ravel())


def test_the_first_strategy_that_applies_is_taken() -> None:
    table = STRATEGIES[Problem]
    for length, size in ((2**20, 1), (2**20, 64), (2**20, 2**13), (2**28, 2**23), (10**6, 10_000)):
        wanted = problem("scan", length, size)
        first = next(row for row in table if row.applies(wanted, DEFAULT))
        assert choose(wanted, "a plan").strategy == first.name


def test_whether_a_strategy_applies_is_found_without_programs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tcusim.arrays.planner, "build", None)
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


# --- The plan as data ---------------------------------------------------------------------------


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


def test_a_plan_prints_everything() -> None:
    made = plan("cumsum", length=2**15, result="float32", arch="volta", strategy="chunks")
    assert str(made).splitlines() == [
        "plan cumsum",
        "  problem   32768 float16 to float32",
        "  tile      16x16x16, f16 to f32",
        "  arch      volta",
        "  arrays    in        f16 x 32768, 65536 bytes",
        "            sums      f32 x 2, 8 bytes",
        "            carries   f32 x 2, 8 bytes",
        "            out       f32 x 32768, 131072 bytes",
        "  launch 1  reduction_tn: in -> sums; 2 x 1 warps, 128 mma, 65536 bytes read, 8 written",
        "  launch 2  scan_plain: sums -> carries; 1 x 1 warps, 0 mma, 8 bytes read, 8 written",
        "  launch 3  scan_tn: in, carries -> out; 2 x 1 warps, 256 mma, 65544 bytes read, "
        "131072 written",
        "  strategy  chunks",
        "  why       segments of more than 16384 elements are cut into chunks of that size, a "
        "warp to each; their sums are combined by rounded additions, 1024 to a warp",
    ]
    assert (made.counts.mma, made.counts.bytes_read) == (384, 131088)
    short = plan("segmented_sum", length=64, segment_size=16, dtype="float32")
    assert repr(short) == (
        "Plan('segmented_sum', 64 float32 in segments of 16 to float32: reduction_kn)"
    )
    assert "  tile      16x16x16, f32 as bf16 to f32" in str(short)
    assert "  arch      that of the GPU; hopper on the simulator" in str(short)
    assert short.rationale == (
        "segments of up to 64 elements lie side by side in a tile, 16 to a row",
        "at most 16 products accumulate before a rounded addition",
    )
    literal = plan("sum", length=300, algorithm="reduction_256n")
    assert literal.rationale[1].startswith("as the paper prints it: partial sums are rounded")


@pytest.mark.parametrize("operation", ["sum", "cumsum", "segmented_sum", "segmented_cumsum"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_a_plan_has_the_bits_of_the_function(operation: str, dtype: str) -> None:
    x = np.random.default_rng(1).standard_normal(17_000)
    x = x.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    sizes = (40,) if operation.startswith("segmented") else ()
    made = plan(operation, length=x.size, segment_size=sizes[0] if sizes else None, dtype=dtype)
    result, expected = made(x), getattr(tcusim, operation)(x, *sizes)
    assert result.dtype == expected.dtype
    assert result.shape == expected.shape
    assert result.tobytes() == expected.tobytes()
    assert made(x).tobytes() == result.tobytes()


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_scans_in_every_order(exclusive: bool, reverse: bool) -> None:
    order = Order(exclusive, reverse)
    for length, size, strategy in (
        (1000, 16, None), (1000, 300, None), (5000, 5000, "chunks"), (9 * 512 - 7, 512, "chunks"),
    ):  # fmt: skip
        x = integers(length)
        made = planned("scan", x, size, tuning=SHORT_CHUNKS, order=order, strategy=strategy)
        step = -1 if reverse else 1
        parts = [part[::step].cumsum()[::step] for part in segments(x, size)]
        np.testing.assert_array_equal(made(x), np.concatenate(parts) - exclusive * x)
        assert made.problem.scan_options.keys() == {
            *(["exclusive"] if exclusive else []), *(["reverse"] if reverse else []),
        }  # fmt: skip
        assert (
            str(made)
            .splitlines()[1]
            .endswith("to float32" + ", exclusive" * exclusive + ", reverse" * reverse)
        )


@pytest.mark.parametrize("dtype", [np.float32, np.dtype("f4"), "float32", "f4"])
def test_types_by_any_name(dtype: Any) -> None:
    made = plan("sum", length=10, dtype=dtype, result=dtype)
    assert made is plan("sum", length=10, dtype="float32")
    assert plan("sum", length=10, dtype=ml_dtypes.bfloat16).dtype == "bfloat16"
    with pytest.raises(InputError, match="dtype: data type 'half a float' not"):
        plan("sum", length=10, dtype="half a float")


def test_int8_has_int32_results() -> None:
    x = np.random.default_rng(2).integers(-128, 128, 50_000).astype(np.int8)
    result = plan("cumsum", length=x.size, dtype="int8")(x)
    assert result.dtype == np.int32
    np.testing.assert_array_equal(result, x.cumsum())


def test_results_have_the_arrays_shape() -> None:
    x = integers(24).reshape(4, 6)
    scan = plan("segmented_cumsum", length=24, segment_size=6)
    np.testing.assert_array_equal(scan(x), x.cumsum(1))
    np.testing.assert_array_equal(scan(x.T.copy().T), x.cumsum(1))
    assert plan("segmented_sum", length=24, segment_size=6)(x).shape == (4,)
    assert plan("sum", length=24)(x) == x.sum()
    assert np.shape(plan("sum", length=24)(x)) == ()


def test_equal_plans_are_made_once() -> None:
    first = plan("segmented_sum", length=100, segment_size=10)
    assert plan("segmented_sum", length=100, segment_size=10, shape=(16, 16, 16)) is first
    assert plan("segmented_sum", length=100, segment_size=10, arch="volta") is not first
    assert plan("segmented_cumsum", length=100, segment_size=10) is not first


def test_the_functions_make_a_plan_once(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []
    real = tcusim.build

    def build(name: str, **options: Any) -> Any:
        built.append(name)
        return real(name, **options)

    monkeypatch.setattr(tcusim.arrays.planner, "build", build)
    plan_for.cache_clear()
    for _ in range(3):
        tcusim.segmented_sum(integers(500), 10)
    assert built == ["reduction_kn"]


def test_a_plan_runs_on_the_backend_that_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    archs: list[str | None] = []

    class Other:
        name, title = "other", "the simulator under another name"

        def available(self) -> None:
            return None

        def run(
            self, plan: Any, inputs: Any, *, arch: str | None = None, **options: Any
        ) -> dict[str, Any]:
            archs.append(arch)
            return NUMPY.run(plan, inputs, arch=arch, **options)

    tcusim.register_backend(Other())
    x = integers(3 * CHUNK)
    made = plan("sum", length=x.size, result="float32", backend="other", arch="ada")
    assert made(x) == x.sum(dtype=np.float64)
    assert archs == ["ada"]


# --- What is not finite -------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("size", [20, 300, 3 * CHUNK])
@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_a_plan_leaves_what_is_not_finite_to_the_products(
    dtype: str, size: int, bad: float
) -> None:
    if size > CHUNK and dtype == "float64":
        pytest.skip("takes seconds, and is as the others")
    x = np.ones(3 * size, dtype)
    at = size + 18
    x[at] = bad
    total = plan("segmented_sum", length=x.size, segment_size=size, dtype=dtype)
    expected = np.array([size, bad, size])
    np.testing.assert_array_equal(total(x), expected.astype(dtype))
    k = total.problem.tile.k
    scan = plan("segmented_cumsum", length=x.size, segment_size=size, dtype=dtype)(x)
    prefixes = np.tile(np.arange(1.0, size + 1), 3)
    # Those before it in the same k elements of its segment are multiplied by zero, and spoilt.
    prefixes[size + 18 // k * k : at] = np.nan
    prefixes[at : 2 * size] = bad
    np.testing.assert_array_equal(scan, prefixes.astype(dtype))


def test_a_plan_does_not_scale_float32() -> None:
    x = np.array([3.4e38, -3.3e38, 0], np.float32)
    with pytest.raises(InputError, match=r"exceed 3\.38953e\+38, the largest bf16"):
        plan("sum", length=3, dtype="float32")(x)
    assert np.isfinite(tcusim.sum(x))


# --- In place -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("size", [16, 300, 5 * CHUNK])
@pytest.mark.parametrize("reverse", [False, True])
def test_scans_work_in_place(dtype: str, size: int, reverse: bool) -> None:
    made = plan(
        "segmented_cumsum", length=5 * CHUNK, segment_size=size, dtype=dtype, reverse=reverse
    )
    assert made.in_place
    assert made.why_not_in_place is None


def test_why_plans_do_not_work_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    total = plan("sum", length=100)
    assert total.why_not_in_place == "it has 100 elements and the result 1"
    wide = plan("cumsum", length=100, result="float32")
    assert wide.why_not_in_place == "its elements are f16 and its results f32"
    # A scan whose first launch reads what its last has written.
    scan = plan("cumsum", length=3 * CHUNK, strategy="chunks")
    turned = replace(scan.launch_plan, launches=scan.launches[::-1])
    assert turned.why_not_in_place == "reduction_tn reads it after results were written"
    # The program's own reason; the first two launches do not write "out".
    reason = "{} over {} in {}".format
    monkeypatch.setattr(launches, "in_place", lambda program, *names: reason(*names, program.name))
    again = replace(scan.launch_plan)
    assert again.why_not_in_place == "in over out in scan_tn"


def test_out_of_a_plan() -> None:
    x = integers(300)
    scan = plan("cumsum", length=300)
    expected = x.cumsum()
    out = np.empty(300, np.float16)
    assert scan(x, out=out) is out
    np.testing.assert_array_equal(out, expected)
    assert scan(x, x) is x
    np.testing.assert_array_equal(x, expected)


# --- What is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "text", "operation", "keywords"),
    [
        (UnknownName, "unknown operation 'total'. ", "total", {}),
        (UnknownName, "unknown operation 'cumsun'. Did you mean 'cumsum'?", "cumsun", {}),
        (InputError, "length must be at least 1, got 0", "sum", {"length": 0}),
        (InputError, "length must be an integer, got 2.0", "sum", {"length": 2.0}),
        (InputError, "segment_size must be at least 1, got -3", "segmented_sum",
         {"segment_size": -3}),
        (InputError, "'segmented_sum' needs segment_size", "segmented_sum", {}),
        (InputError, "'sum' takes the array as one segment; leave segment_size out, or plan "
         "'segmented_sum'", "sum", {"segment_size": 3}),
        (InputError, "a plan takes arrays of float16, bfloat16, float32, float64, int8, not uint8; "
         "cast them first", "sum", {"dtype": "uint8"}),
        (InputError, "the result of float16 must be float16 or float32 or float64 or bfloat16, "
         "not int32", "sum", {"result": "int32"}),
        (InputError, "the result of int8 must be int32, not int64", "sum",
         {"dtype": "int8", "result": "int64"}),
        (InputError, "exclusive is for scans, and 'sum' is none", "sum", {"exclusive": True}),
        (InputError, "reverse is for scans, and 'segmented_sum' is none", "segmented_sum",
         {"reverse": True, "segment_size": 3}),
        (UnknownName, "unknown accumulator 'f23'", "sum", {"accumulate": "f23"}),
        (Unsupported, "accumulate='f16' is for float16 input, not float32", "sum",
         {"accumulate": "f16", "dtype": "float32"}),
        (Unsupported, "tensor cores have no bf16 (sm_80 is the first)", "sum",
         {"dtype": "float32", "arch": "volta"}),
        (UnknownName, "unknown backend 'nunpy'", "sum", {"backend": "nunpy"}),
        (Unsupported, "'scan_kn' is a scan, and this is a reduction", "sum",
         {"algorithm": "scan_kn"}),
        (UnknownName, "unknown strategy 'chunk'. Did you mean 'chunks'?", "sum",
         {"strategy": "chunk"}),
        (InputError, "strategy='chunks' does not apply to 100 float16 to float16: it is for "
         "segments of several whole chunks", "sum", {"strategy": "chunks"}),
        (InputError, "strategy='named' does not apply to 100 float16 to float16: it is for a named "
         "algorithm", "sum", {"strategy": "named"}),
        (InputError, "give algorithm= or strategy=, not both", "sum",
         {"strategy": "panels", "algorithm": "reduction_kn"}),
        (Unsupported, "integer segments of more than 8388608 elements are not exact", "sum",
         {"dtype": "int8", "length": 2**23 + 1}),
    ],
)  # fmt: skip
def test_plans_that_cannot_be(
    error: type[Exception], text: str, operation: str, keywords: dict[str, Any]
) -> None:
    with pytest.raises(error) as caught:
        plan(operation, **{"length": 100, **keywords})
    assert text in str(caught.value)


def test_arrays_that_a_plan_does_not_take() -> None:
    made = plan("sum", length=100)
    for x in (np.zeros(99, np.float16), np.zeros(100, np.float32)):
        with pytest.raises(InputError) as caught:
            made(x)
        assert str(caught.value) == (
            f"this plan takes 100 elements of float16, got {x.size} of {x.dtype}; make another "
            "plan, or cast the array"
        )
    with pytest.raises(InputError, match=r"stream= is for arrays in GPU memory, and a is a NumPy"):
        made(np.zeros(100, np.float16), stream=3)


def test_an_out_that_overlaps() -> None:
    both = np.zeros(150, np.float16)
    made = plan("cumsum", length=100)
    text = (
        r"out overlaps a in memory\. Give a itself, to compute in place, or an array of its own\."
    )
    with pytest.raises(InputError, match=text):
        made(both[:100], out=both[50:])
    with pytest.raises(InputError, match=text):
        tcusim.cumsum(both[:100], out=both[99::-1])
    with pytest.raises(InputError, match=text):
        tcusim.segmented_sum(both[:100], 2, out=both[:50])
    apart = np.ones(200, np.float16)
    np.testing.assert_array_equal(made(apart[::2], out=apart[1::2]), np.arange(1, 101))
    frozen = np.zeros(100, np.float16)
    frozen.flags.writeable = False
    with pytest.raises(InputError, match=r"out is read-only\. Give an array to write to\."):
        made(both[:100], out=frozen)
