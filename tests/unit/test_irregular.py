"""Segments by offsets: where pieces lie, exact sums and scans, equal work, and refusals."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import tcusim
from launch_plans import LONGEST_LIST, launch_plan
from some import Some
from tcusim.algorithms import algorithms, build
from tcusim.algorithms.order import FORWARD, Order
from tcusim.algorithms.rows import GROUP_CHUNKS
from tcusim.backends import run
from tcusim.errors import InputError, Unsupported, VerifyError
from tcusim.judge.correctness.testing import random_inputs
from tcusim.machine.shapes import MmaShape, shape_of
from tcusim.program.checks.verifier import problems, verify
from tcusim.program.grammar import (
    ROW,
    Assign,
    Buffer,
    BufferRole,
    Extent,
    Frag,
    Gathered,
    Index,
    Load,
    Locate,
    Loop,
    Program,
    Ranges,
    Role,
    Step,
    Strided,
    View,
    views_of,
    walk,
)
from tcusim.program.launches import Launch, LaunchPlan
from tcusim.simulate.backend import NUMPY
from tcusim.simulate.counts import Counts, counts_of_text
from tcusim.simulate.interpreter import run_numpy

Array = NDArray[Any]
Ints = NDArray[np.int64]

SHAPES = ((16, 16, 16), (32, 8, 16), (8, 32, 16), (4, 4, 4), (5, 7, 3))


# Values of a chunk that is added up in shared memory.
MOST = max(GROUP_CHUNKS, LONGEST_LIST)


def launches_for(kind: str, length: int, segments: int) -> tuple[Launch, ...]:
    """Return the launches for segments by offsets of f16 numbers."""
    return launch_plan(kind, length, segments=segments).launches


def planned(
    kind: str,
    x: Array,
    offsets: Ints,
    *,
    ab: str = "f16",
    acc: str = "f32",
    source: str | None = None,
    result: str | None = None,
    **more: Any,
) -> LaunchPlan:
    """Return the plan for an array in segments by offsets; it has the tile's types by default."""
    types = (ab, acc, source or ab, result or acc)
    return launch_plan(kind, x.size, segments=offsets.size - 1, types=types, **more)


def by_offsets(
    kind: str, x: Array, offsets: Ints, *, arch: str = "hopper", **changes: Any
) -> Array:
    """Sum or scan segments by the launches of a plan; nothing here looks at the offsets."""
    plan = planned(kind, x, offsets, **changes)
    made: Array = NUMPY.run(plan, {"in": x, "offsets": offsets}, arch=arch)["out"]
    return made


def offsets_of(lengths: Sequence[int] | Ints) -> Ints:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def random_lengths(rng: np.random.Generator, total: int) -> list[int]:
    """Return lengths that add up to `total`: empty, tiny, medium and giant ones, in any order."""
    lengths: list[int] = []
    while total:
        most = rng.choice([0, 3, 40, 700, total])
        lengths.append(int(min(total, rng.integers(0, most + 1))))
        total -= lengths[-1]
    lengths.extend([0] * int(rng.integers(0, 4)))
    return lengths


def structures(seed: int) -> dict[str, list[int]]:
    """Return segments of every kind, as lengths; those drawn at random differ with the seed."""
    rng = np.random.default_rng(seed)
    tiny = [int(count) for count in rng.integers(1, 4, 200)]
    mixed = [int(count) for count in rng.integers(0, 4, 200)]
    return {
        "giant first": [70_000, *tiny],
        "giant in the middle": [*tiny[:90], 70_000, *mixed[90:]],
        "giant last": [*mixed, 70_000],
        "two giants": [*tiny[:50], 30_000, *mixed[:50], 40_000],
        "all empty": [0] * 37,
        "single": [int(rng.integers(1, 6000))],
        "every one empty but one": [*[0] * 20, int(rng.integers(1, 2000)), *[0] * 30],
        "empty at both ends": [*[0] * 5, *tiny[:30], 300, *[0] * 5],
        "medium": [int(count) for count in rng.integers(100, 900, 30)],
        "tiny": tiny,
        "none": [],
    }


def sparse(rng: np.random.Generator, offsets: Ints, limit: int = 9) -> Ints:
    """Return integers, mostly zero; float16 holds their sums within segments."""
    x = np.zeros(offsets[-1], np.int64)
    if x.size:
        places = rng.integers(0, x.size, min(x.size, 200))
        x[places] = rng.integers(-limit, limit + 1, places.size)
    return x


def exact_sums(x: Ints, offsets: Ints) -> Ints:
    return np.array([x[a:b].sum() for a, b in itertools.pairwise(offsets)], np.int64)


def exact_scan(x: Array, offsets: Ints, order: Order = FORWARD) -> Array:
    result = np.zeros_like(x)
    for a, b in itertools.pairwise(offsets):
        turn = slice(None, None, -1 if order.reverse else 1)
        segment = x[a:b][turn]
        result[a:b] = (segment.cumsum() - (segment if order.exclusive else 0))[turn]
    return result


ORDERS = [Order(exclusive, reverse) for exclusive in (False, True) for reverse in (False, True)]


# --- Where pieces lie -------------------------------------------------------------------------


def pieces_by_hand(offsets: Ints, cut: int) -> dict[int, tuple[int, int]]:
    """Return the bounds of each piece, by its index: walk through the segments."""
    found = {}
    for segment, (start, end) in enumerate(itertools.pairwise(offsets)):
        number = int(start) // cut + segment
        for begin in range(int(start), int(end), cut):
            assert number not in found, "two pieces have one number"
            found[number] = begin, min(begin + cut, int(end))
            number += 1
    return found


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("cut", [3, 7, 16, 40])
def test_every_piece_has_one_number_and_is_summed_there(cut: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for lengths in (random_lengths(rng, 900), *structures(seed).values()):
        offsets = offsets_of(lengths)
        x = rng.integers(1, 9, offsets[-1])
        pieces = pieces_by_hand(offsets, cut)
        expected = np.zeros(offsets[-1] // cut + len(lengths), np.int64)
        for number, (begin, end) in pieces.items():
            expected[number] = x[begin:end].sum()
        for name in ("reduction_ragged", "reduction_ragged_simt"):
            program = build(name, segment_size=cut, combine="add", source="f16")
            inputs = {"in": x.astype(np.float16), "offsets": offsets}
            result = run(program, inputs)["out"]
            np.testing.assert_array_equal(result, expected, err_msg=f"{name} {lengths[:20]}")


def test_the_pieces_of_pieces_are_segments_again() -> None:
    rng = np.random.default_rng(2)
    for cuts in ((16, 4), (5, 3, 2), (32, 32)):
        offsets = offsets_of(random_lengths(rng, 5000))
        x = rng.integers(-9, 9, offsets[-1])
        values = x.astype(np.float32)
        for level, cut in enumerate(cuts):
            program = build(
                "reduction_ragged_simt", segment_size=cut, source="f32", levels=cuts[:level]
            )
            values = run(program, {"in": values, "offsets": offsets})["out"]
        program = build(
            "reduction_ragged_simt", segment_size=5000, source="f32", levels=cuts, whole=True
        )
        result = run(program, {"in": values, "offsets": offsets})["out"]
        np.testing.assert_array_equal(result, exact_sums(x, offsets))


@pytest.mark.parametrize("whole", [False, True])
def test_elements_outside_all_segments_count_for_none(whole: bool) -> None:
    offsets = np.array([100, 103, 103, 180], np.int64)
    x = np.ones(250, np.float16)
    program = build("reduction_ragged", segment_size=80 if whole else 16, whole=whole)
    sums = run(program, {"in": x, "offsets": offsets})["out"]
    assert sums.sum() == 80
    if whole:
        assert sums.tolist() == [3, 0, 77]
    else:
        # Numbers 100 // 16, 103 // 16 + 1, and 103 // 16 + 2 up to 180 // 16 + 3.
        assert sums.tolist() == [0] * 6 + [3, 0] + [16, 16, 16, 16, 13] + [0] * 5


# --- One program ------------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["a", "b"])
@pytest.mark.parametrize("sizes", SHAPES, ids=lambda sizes: "x".join(map(str, sizes)))
def test_both_sides_and_any_cut_equal_integers(
    sizes: tuple[int, int, int], side: str, some: Some
) -> None:
    rng = np.random.default_rng(len(side) + sum(sizes))
    shape = MmaShape(*sizes)
    cuts = dict.fromkeys((1, sizes[2] - 1, sizes[2], 3 * sizes[2] + 1, 20 * sizes[2]))
    for turn, cut in enumerate(cuts, start=side == "b"):
        offsets = offsets_of(random_lengths(rng, 700))
        x = sparse(rng, offsets)
        inputs = {"in": x.astype(np.float16), "offsets": offsets}
        options: dict[str, Any] = {
            "tile": shape,
            "side": side,
            "segment_size": cut,
            "combine": "add",
        }
        sums = run(build("reduction_ragged", accumulation_length=4, **options), inputs)["out"]
        expected = np.zeros(sums.size)
        carry = rng.integers(-9, 9, sums.size)
        pieces = pieces_by_hand(offsets, cut)
        for number, (begin, end) in pieces.items():
            expected[number] = x[begin:end].sum()
        np.testing.assert_array_equal(sums, expected)
        inputs["carry"] = carry.astype(np.float32)
        for order in some(ORDERS, 3, turn):
            scan = build("scan_ragged", carry=True, **asdict(order), **options)
            result = run(scan, inputs)["out"]
            for number, (begin, end) in pieces.items():
                alone = exact_scan(x[begin:end], offsets_of([end - begin]), order)
                np.testing.assert_array_equal(result[begin:end], alone + carry[number])


@pytest.mark.parametrize(("warps", "tiles"), [(3, 1), (1, 2), (2, 3)])
def test_warps_and_their_turns_share_the_work(warps: int, tiles: int) -> None:
    rng = np.random.default_rng(warps)
    offsets = offsets_of(random_lengths(rng, 3000))
    x = sparse(rng, offsets)
    for name in ("reduction_ragged", "scan_ragged"):
        for suffix, source in (("", "f16"), ("_simt", "f32")):
            alone = build(name + suffix, segment_size=32, source=source)
            program = build(
                name + suffix, segment_size=32, source=source, warps=warps, items_per_warp=tiles
            )
            assert program.blocks.per == alone.blocks.per * warps * tiles
            dtype = np.float16 if not suffix else np.float32
            inputs = {"in": x.astype(dtype), "offsets": offsets}
            np.testing.assert_array_equal(run(program, inputs)["out"], run(alone, inputs)["out"])


def test_products_accumulate_a_scan_as_in_the_paper() -> None:
    rng = np.random.default_rng(8)
    offsets = offsets_of(random_lengths(rng, 900))
    x = sparse(rng, offsets)
    inputs = {"in": x.astype(np.float16), "offsets": offsets}
    for order in ORDERS:
        options = {"whole": True, "combine": "mma", **asdict(order)}
        result = run(build("scan_ragged", segment_size=912, **options), inputs)["out"]
        np.testing.assert_array_equal(result, exact_scan(x, offsets, order))


# --- Sums and scans of whole segments ---------------------------------------------------------


@pytest.mark.parametrize("name", list(structures(0)))
@pytest.mark.parametrize("sizes", SHAPES, ids=lambda sizes: "x".join(map(str, sizes)))
def test_segments_of_every_kind_equal_integers(
    sizes: tuple[int, int, int], name: str, some: Some
) -> None:
    seed = sum(sizes)
    start = SHAPES.index(sizes) + list(structures(seed)).index(name)
    rng = np.random.default_rng(seed)
    offsets = offsets_of(structures(seed)[name])
    x = sparse(rng, offsets)
    assert_sums_and_scans(x, offsets, MmaShape(*sizes), some(ORDERS, 3, start))


def assert_sums_and_scans(
    x: Ints,
    offsets: Ints,
    shape: MmaShape,
    orders: Sequence[Order],
    dtype: Any = np.float16,
    arch: str = "hopper",
    **types: Any,
) -> None:
    """Compare sums and scans by offsets with integers."""
    array = x.astype(dtype)
    sums = by_offsets("reduction", array, offsets, arch=arch, tile=shape, **types)
    np.testing.assert_array_equal(sums, exact_sums(x, offsets))
    for order in orders:
        options = {"tile": shape, "order": order, **types}
        result = by_offsets("scan", array, offsets, arch=arch, **options)
        expected = exact_scan(x, offsets, order)
        np.testing.assert_array_equal(result, expected, err_msg=f"{order}")


TYPES = {
    "float64": (np.float64, "8x8x4", {"ab": "f64", "acc": "f64"}),
    "int8": (np.int8, "16x16x16", {"ab": "s8", "acc": "s32"}),
    "int8, wide": (np.int8, "8x32x16", {"ab": "s8", "acc": "s32"}),
    "float16 accumulators": (np.float16, "16x16x16", {"ab": "f16", "acc": "f16"}),
}


@pytest.mark.parametrize("name", list(TYPES))
def test_other_types_equal_integers(name: str) -> None:
    dtype, shape, types = TYPES[name]
    rng = np.random.default_rng(len(name))
    for lengths in (random_lengths(rng, 9000), structures(1)["giant in the middle"]):
        offsets = offsets_of(lengths)
        x = sparse(rng, offsets)
        assert_sums_and_scans(x, offsets, shape_of(shape), ORDERS[:1], dtype, **types)


# --- Accuracy ---------------------------------------------------------------------------------


@pytest.mark.parametrize("arch", ["hopper", "volta"])
def test_long_segments_do_not_drift(arch: str) -> None:
    rng = np.random.default_rng(0)
    length = 2**19
    offsets = offsets_of([1, 2, 0, length - 6, 3])
    x = rng.random(length, np.float32).astype(np.float16)
    exact = exact_scan(x.astype(np.float64), offsets)
    sums = by_offsets("reduction", x, offsets, arch=arch).astype(np.float64)
    totals = np.array([x[a:b].sum(dtype=np.float64) for a, b in itertools.pairwise(offsets)])
    filled = totals > 0
    assert np.abs(sums[filled] / totals[filled] - 1).max() < 1e-6
    scan = by_offsets("scan", x, offsets, arch=arch)
    errors = scan / exact - 1
    assert np.abs(errors).max() < 1e-6
    plain = tcusim.cumsum(x[3 : length - 3], dtype=np.float32, options={"arch": arch})
    others = plain / exact[3 : length - 3] - 1
    assert rms(errors[3 : length - 3]) < 2.0 * rms(others)
    assert abs(errors.mean()) < 1e-7


def rms(errors: Array) -> float:
    return float(np.sqrt(np.mean(errors.astype(np.float64) ** 2)))


# --- Balance ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["reduction", "scan"])
def test_all_work_is_in_proportion_to_the_data(kind: str) -> None:
    """Blocks times a warp's elements: a few times the elements and the segments, at any size."""
    for length, segments in ((10**8, 1), (10**8, 10**7), (10**8, 10**4), (10**6, 10**6), (5000, 3)):
        launches = launches_for(kind, length, segments)
        scalars = {"in": length, "offsets": segments + 1}
        room = 0
        for launch in launches:
            program = launch.program
            values = {"length": scalars[launch.inputs["in"]], "segments": segments}
            (locate,) = (step for _, step in walk(program.steps) if isinstance(step, Locate))
            line = locate.segments.chunk or MOST
            assert line <= MOST
            room += program.grid(values) * locate.dst.count * line
            for output in program.outputs:
                scalars[launch.outputs[output.name]] = output.size.evaluate(values)
        assert room < 10 * (length + len(launches) * MOST * (segments + 16)), (length, segments)
        assert len(launches) <= 11


@pytest.mark.parametrize("rows_per_warp", [1, 5, 32])
def test_any_number_of_rows_of_a_warp_gives_the_same_bits(rows_per_warp: int) -> None:
    rng = np.random.default_rng(rows_per_warp)
    offsets = np.sort(np.concatenate([[0, 2000], rng.integers(0, 2001, 60)]))
    inputs = {"in": rng.standard_normal(2000).astype(np.float32), "offsets": offsets}
    for name in ("reduction_ragged_simt", "scan_ragged_simt"):
        default = build(name, source="f32", segment_size=37, warps=2)
        other = build(name, source="f32", segment_size=37, warps=2, rows_per_warp=rows_per_warp)
        assert other.steps != default.steps
        bits = [run(program, inputs)["out"].tobytes() for program in (default, other)]
        assert bits[0] == bits[1]
    with pytest.raises(InputError, match="rows_per_warp must be an integer of at least 1, got 0"):
        build("scan_ragged_simt", rows_per_warp=0)


@pytest.mark.parametrize("side", ["a", "b"])
@pytest.mark.parametrize("sizes", SHAPES, ids=lambda sizes: "x".join(map(str, sizes)))
def test_products_are_counted_in_the_text(sizes: tuple[int, int, int], side: str) -> None:
    k = sizes[2]
    rows = [row for row in algorithms() if row.kind.startswith("irregular")]
    for row, count in itertools.product(rows, (2, 4)):
        size = count * k
        source = None if row.uses_mma else "f32"
        program = build(
            row.name, tile=MmaShape(*sizes), segment_size=size, side=side, source=source, warps=2
        )
        inputs = random_inputs(program, "integers", 3000, np.random.default_rng(1))
        seen = Counts()
        run_numpy(program, inputs, watch=seen)
        scalars = {"length": 3000, "segments": inputs["offsets"].size - 1}
        counted = counts_of_text(program, scalars)
        assert seen.mma == counted.mma
        assert (counted.mma > 0) == row.uses_mma
        assert seen.bytes_written == counted.bytes_written
        assert seen.bytes_read == counted.bytes_read - inputs["offsets"].nbytes


# --- Refusals ---------------------------------------------------------------------------------

PROGRAM = build("reduction_ragged", segment_size=48)
OFFSETS = PROGRAM.inputs[1]


def changed(change: Callable[[Step], Step | None], program: Program = PROGRAM) -> Program:
    """Return the program with every step changed; None leaves one out."""

    def of(steps: tuple[Step, ...]) -> tuple[Step, ...]:
        inner = [replace(step, body=of(step.body)) if isinstance(step, Loop) else step
                 for step in steps]  # fmt: skip
        return tuple(new for new in map(change, inner) if new is not None)

    return replace(program, steps=of(program.steps))


def locating(**changes: Any) -> Program:
    return changed(lambda step: replace(step, **changes) if isinstance(step, Locate) else step)


def segmented(**changes: Any) -> Program:
    """Return the program with its segments changed."""

    def other(step: Step) -> Step:
        if not isinstance(step, Locate):
            return step
        return replace(step, segments=replace(step.segments, **changes))

    return changed(other)


def reading(change: Callable[[Assign], Step]) -> Program:
    """Return the program with the copy from ranges changed."""
    return changed(
        lambda step: (
            change(step) if isinstance(step, Assign) and step.src and step.src.ranges else step
        )
    )


def gathered(**axes: Any) -> Program:
    """Return the program with other axes of its copy from ranges."""
    return reading(lambda step: replace(step, value=replace(only_view(step), **axes)))


def only_view(step: Assign) -> View:
    (view,) = views_of(step.value)
    return view


def offsets_are(other: Buffer) -> Program:
    buffers = (PROGRAM.buffers[0], other, *PROGRAM.buffers[2:])
    return replace(segmented(offsets=other), buffers=buffers)


FRAG = Frag("A", Role.B, PROGRAM.shape, "f16")
REFUSED: tuple[tuple[Program, str, str], ...] = (
    (segmented(chunk=0), "positive_counts", "are cut into chunks of 0. Use at least 1"),
    (segmented(levels=(8, 0)), "positive_counts", "are cut into chunks of 0. Use at least 1"),
    (
        locating(dst=Ranges("piece", 0)),
        "positive_counts",
        "number of ranges must be at least 1, got 0",
    ),
    (
        segmented(offsets=Buffer("elsewhere", "s64", Extent.of(5), BufferRole.INPUT)),
        "buffer_roles",
        "offsets 'elsewhere' must be an input of the program",
    ),
    (
        offsets_are(replace(OFFSETS, dtype="s32")),
        "element_types",
        "'offsets' are s32. They must be s64",
    ),
    (
        offsets_are(replace(OFFSETS, size=Extent(OFFSETS.size.index, 2))),
        "positive_counts",
        "'offsets' have ceil((segments + 1) / 2) elements; their number must be one more",
    ),
    (
        locating(first=ROW),
        "symbols_in_scope",
        "the first number names 'row', which has no value here",
    ),
    (
        locating(first=Index.symbol("i")),
        "symbols_in_scope",
        "the first number names 'i', which has no value here",
    ),
    (segmented(limit=Index.symbol("nobody")), "symbols_in_scope", "the limit of ranges"),
    (
        locating(dst=Ranges("V", 16)),
        "distinct_names",
        "'V' has the name of a set of ranges. Choose another name",
    ),
    (
        locating(dst=Ranges("my lines", 16)),
        "distinct_names",
        "set of ranges 'my lines' must be an identifier",
    ),
    (
        locating(dst=Ranges("piece", 3)),
        "one_layout",
        "'piece' are 16 ranges here and 3 before. Use two names",
    ),
    (
        changed(lambda step: None if isinstance(step, Locate) else step),
        "defined_before_use",
        "uses ranges 'piece', which no earlier step finds on every path. Find them with Locate",
    ),
    (
        gathered(col_axis=Gathered(Ranges("piece", 8))),
        "equal_rectangles",
        "is 16x16, 'in' is 16x8. Use one size",
    ),
    (
        gathered(row_axis=Gathered(Ranges("piece", 16))),
        "equal_rectangles",
        "do not follow each other in a range. Gather the rows",
    ),
    (
        gathered(row_axis=Strided(16, 0)),
        "equal_rectangles",
        "do not follow each other in a range. Gather the rows",
    ),
    (
        gathered(buffer=PROGRAM.scratch[0]),
        "equal_rectangles",
        f"'piece' are ranges of global memory, '{PROGRAM.scratch[0].name}' is not",
    ),
    (
        reading(lambda step: Load(FRAG, only_view(step))),
        "tile_layout",
        "the tile of 'in' is gathered, and a tile is loaded or stored whole. Copy it to or",
    ),
)


@pytest.mark.parametrize(("program", "check", "text"), REFUSED, ids=[one[2] for one in REFUSED])
def test_verify_refuses_ranges_that_mean_nothing(program: Program, check: str, text: str) -> None:
    with pytest.raises(VerifyError):
        verify(program)
    errors = [str(error) for error in problems(program) if error.check == check]
    assert any(text in error for error in errors), errors


def test_segments_are_cut_off_at_the_ends_of_the_data() -> None:
    x = np.ones(10, np.float16)
    for offsets, expected in (([0, 11], 10), ([-3, 4], 4), ([4, 99], 6), ([-9, -2], 0)):
        program = build("reduction_ragged", segment_size=128, whole=True)
        inputs = {"in": x, "offsets": np.array(offsets, np.int64)}
        assert run_numpy(program, inputs)["out"].tolist() == [expected]


def test_a_locate_without_limit_trusts_its_offsets() -> None:
    inputs = {"in": np.ones(10, np.float16), "offsets": np.array([0, 11], np.int64)}
    with pytest.raises(VerifyError, match=r"touches elements 0..10 of 'in', which has 10"):
        run_numpy(segmented(limit=None), inputs)


def test_offsets_of_no_segments_need_one_element_still() -> None:
    nothing = np.zeros(0, np.int64)
    with pytest.raises(
        InputError,
        match=r"input 'offsets' must have segments \+ 1 elements, at least 1; it has 0",
    ):
        run(PROGRAM, {"in": np.ones(10, np.float16), "offsets": nothing})


@pytest.mark.parametrize("levels", [(0,), (16, -1), [16], (2.0,), 16])
def test_levels_are_earlier_cuts(levels: Any) -> None:
    with pytest.raises(Unsupported, match="levels are cuts made before, a tuple of integers"):
        build("reduction_ragged", levels=levels)


# --- The listing ------------------------------------------------------------------------------


def test_the_listing_says_which_pieces_are_found() -> None:
    text = tcusim.listing(PROGRAM)
    assert "piece ← Locate(offsets, chunks of 48 from number 16*block)  16 ranges" in text
    assert "in[piece[col] + 16*i + row]" in text
    assert "grid         ceil((length + 48*segments - 47) / 768) blocks of 1 warp" in text
    text = tcusim.listing(build("scan_ragged_simt", levels=(16, 8), whole=True, source="f32"))
    assert (
        "piece ← Locate(offsets, segments from number 16*block, after chunks of 16, after chunks "
        "of 8)" in text
    )
