"""One launch for a whole array: blocks that give their totals to later blocks, in a fixed order."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from functools import partial
from typing import Any

import ml_dtypes  # noqa: F401 - NumPy then knows bfloat16
import numpy as np
import pytest

import tcusim
from numpy_results import of_rows
from some import Some
from tcusim.algorithms import build
from tcusim.backends import run
from tcusim.errors import InputError, Unsupported, VerifyError
from tcusim.machine.shapes import MmaShape, shape_of
from tcusim.program.grammar import (
    BLOCK,
    BLOCK_COL,
    BLOCK_ROW,
    COL,
    WARP,
    Assign,
    Await,
    Bound,
    Buffer,
    BufferRole,
    Extent,
    Formula,
    Index,
    Program,
    Publish,
    Scalar,
    Scope,
    Space,
    Step,
    Sync,
    View,
    When,
    sum_of,
)
from tcusim.simulate.interpreter import interpret, run_numpy

SHAPES = (
    shape_of("16x16x16"),
    shape_of("32x8x16"),
    shape_of("8x32x16"),
    MmaShape(4, 4, 4),
    MmaShape(5, 7, 3),
)
ORDERS: tuple[dict[str, Any], ...] = tuple(
    {"exclusive": exclusive, "reverse": reverse}
    for exclusive, reverse in itertools.product((False, True), repeat=2)
)


# Elements of a chunk, for tiles of 16.
CHUNK = 8192


def assert_exact(
    name: str, length: int, segment_size: int | None, *, arch: str = "hopper", **options: Any
) -> None:
    program = build(name, segment_size=segment_size, masked=True, **options)
    x = np.random.default_rng(length).integers(-3, 4, length).astype(np.float16)
    result = run(program, {"in": x}, arch=arch)["out"]
    order = {key: options[key] for key in ("exclusive", "reverse") if key in options}
    wanted = of_rows(name, x, segment_size or length, **order)
    np.testing.assert_array_equal(result.astype(np.float64), wanted)


@pytest.mark.parametrize("shape", SHAPES[:4], ids=str)
@pytest.mark.parametrize("side", "ab")
def test_whole_arrays_equal_integers(shape: Any, side: str, some: Some) -> None:
    chunk = CHUNK // 16 * shape.k
    lengths = (1, 17, 255, 1000, chunk, 3 * chunk + 1, 9 * chunk - 7)
    for turn, length in some(enumerate(lengths), 2, SHAPES.index(shape) + (side == "b")):
        common: dict[str, Any] = {"tile": shape, "side": side}
        assert_exact(
            "reduction_single_pass", length, None, groups=1, panels=2, warps=2, columns=4, **common
        )
        order = ORDERS[turn % len(ORDERS)]
        assert_exact("scan_single_pass", length, None, warps=8, columns=4, **order, **common)
        order = ORDERS[(turn + 1) % len(ORDERS)]
        assert_exact("scan_single_pass", length, None, warps=16, columns=2, **order, **common)


# Programs of all types that a scan takes, and the types of arrays for them.
GROUPED: tuple[tuple[dict[str, Any], str], ...] = (
    ({"warps": 8}, "float16"),
    ({"warps": 4, "batches": 4}, "float16"),
    ({"warps": 8, "tile": "8x32x16", "side": "b"}, "float16"),
    ({"warps": 8, "acc": "f16"}, "float16"),
    ({"warps": 8, "ab": "bf16"}, "bfloat16"),
    ({"warps": 4, "ab": "f32", "source": "f32"}, "float32"),
    ({"warps": 8, "tile": "8x8x4", "ab": "f64", "acc": "f64"}, "float64"),
    ({"warps": 8, "ab": "s8", "acc": "s32"}, "int8"),
    ({"warps": 8, "tile": MmaShape(4, 4, 4)}, "float16"),
)


def assert_alone(
    size: int, count: int, rest: int, dtype: str, *, backend: str = "numpy", **options: Any
) -> Program:
    """Compare segments that one launch scans with each that is a whole array; return the launch."""
    options = {"columns": 2, "masked": rest > 0, **options}
    program = build("scan_single_pass", segment_size=size, **options)
    alone = build("scan_single_pass", **{**options, "masked": True})
    rng = np.random.default_rng(size)
    x = rng.standard_normal(count * size + rest) * np.exp2(rng.integers(-6, 6, count * size + rest))
    x = (3 * x).clip(-128, 127).astype(dtype) if dtype == "int8" else x.astype(dtype)
    got = run(program, {"in": x}, backend=backend, arch="ampere")["out"]
    for first in range(0, x.size, size):
        wanted = run(alone, {"in": x[first : first + size]}, arch="ampere")["out"]
        assert got[first : first + size].tobytes() == wanted.tobytes(), (size, first, options)
    return program


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_segments_of_several_groups_have_the_bits_of_each_alone(
    order: dict[str, Any], some: Some
) -> None:
    turn = ORDERS.index(order)
    for number, (options, dtype) in enumerate(some(GROUPED, 4, turn)):
        chunk = CHUNK // 16 * shape_of(options.get("tile", "16x16x16")).k
        # Full groups, groups that are not full, blocks that are not, and one element too many.
        for size, count, rest in some(
            ((4, 2, 0), (3, 2, 0), (3, 2, 700), (5, 2, 1)), 4, turn + number
        ):
            ends = (
                (size * chunk, rest),
                (size * chunk - 1000, rest),
                (size * chunk - chunk + 1, chunk),
            )
            for length, more in some(ends, 3, turn + number):
                assert_alone(length, count, more, dtype, **order, **options)


@pytest.mark.parametrize("columns", [1, 3])
@pytest.mark.parametrize("order", ORDERS[::3], ids=str)
def test_segments_have_groups_of_any_width(columns: int, order: dict[str, Any]) -> None:
    program = assert_alone(7 * CHUNK - 9, 2, 5, "float16", warps=8, columns=columns, **order)
    assert (program.rows, program.columns) == ((7, 3)[columns > 1], columns)
    # A segment of one group has one row, of as many blocks as it needs.
    program = build("scan_single_pass", segment_size=2 * CHUNK, warps=8, columns=columns, **order)
    assert (program.rows, program.columns) == ((2, 1)[columns > 1], (1, 2)[columns > 1])


def test_segments_of_several_groups_in_groups_of_512_chunks() -> None:
    # Of the smallest tiles: chunks of 512 elements.
    tcusim.register_shape(MmaShape(16, 16, 1))
    size = 513 * 512 + 3
    given: dict[str, Any] = {"tile": "16x16x1", "warps": 8, "batches": 8, "columns": 128}
    program = assert_alone(size, 2, 5, "float16", **given)
    assert (program.rows, program.columns) == (2, 128)


def test_what_is_held_and_awaited_at_once_does_not_change_a_bit() -> None:
    x = np.random.default_rng(11).standard_normal(20_000).astype(np.float16)
    scan = partial(build, "scan_single_pass", masked=True)
    total = partial(build, "reduction_single_pass", masked=True)
    for programs in (
        (
            scan(warps=8, columns=512),
            scan(warps=8, columns=512, in_fragments=1),
            scan(warps=4, columns=512),
            scan(warps=2, columns=512),
            scan(warps=16, columns=256),
            scan(warps=8, batches=8, columns=128),
        ),
        (
            total(warps=2, columns=2),
            total(warps=2, columns=2, groups_at_once=64),
            total(warps=8, columns=4),
            total(warps=1, groups=1, panels=8),
            total(warps=2, groups=16, panels=1, columns=1),
        ),
    ):
        assert len({program.steps for program in programs}) == len(programs)
        bits = {run(program, {"in": x})["out"].tobytes() for program in programs}
        assert len(bits) == 1


@pytest.mark.parametrize(
    ("tile", "advice"),
    [
        ((5, 7, 3), "7 (side b) or 5 (side a). Take scan_panel, which takes any tile"),
        ((7, 5, 3), "7 (side a) or 5 (side b). Take scan_panel, which takes any tile"),
        ((48, 24, 12), "48 (side a) or 24 (side b). Take scan_panel, which takes any tile"),
        ((8, 48, 16), "48 (side b). Take side a, which has 8, or scan_panel, which takes any tile"),
    ],
)
def test_a_scan_says_which_tiles_its_blocks_take(tile: tuple[int, int, int], advice: str) -> None:
    text = "^" + re.escape(
        "scan_single_pass needs a power of 2 of data rows, 1024 at most, where a segment takes "
        f"several blocks or a block more than 8 panels; this tile has {advice}"
    )
    for warps in (1, 2, 4, 8):
        with pytest.raises(Unsupported, match=text):
            build("scan_single_pass", tile=MmaShape(*tile), warps=warps)
    assert build("scan_panel", tile=MmaShape(*tile)).name == "scan_panel"


def test_only_additions_combine_blocks() -> None:
    with pytest.raises(Unsupported, match="scan_single_pass has no combine 'mma', only 'add'"):
        build("scan_single_pass", combine="mma")
    for name, size in (
        ("reduction_single_pass", {"panels": 0}),
        ("reduction_single_pass", {"columns": 0}),
        ("scan_single_pass", {"batches": -1}),
        ("scan_single_pass", {"in_fragments": 0}),
    ):
        (option,) = size
        with pytest.raises(InputError, match=f"{option} must be an integer of at least 1, got"):
            build(name, **size)  # type: ignore[arg-type]
    with pytest.raises(Unsupported, match="takes one chunk: items_per_warp=1"):
        build("reduction_single_pass", items_per_warp=2)


@pytest.mark.parametrize(
    ("name", "options", "text"),
    [
        ("reduction_single_pass", {"warps": 3}, "warps is a power of 2, got 3"),
        ("reduction_single_pass", {"panels": 6}, "panels is a power of 2, got 6"),
        ("reduction_single_pass", {"columns": 5}, "columns is a power of 2, got 5"),
        ("scan_single_pass", {"batches": 1}, "the 16 rows of a warp are not panels of 32"),
        ("scan_single_pass", {"warps": 9}, "the 9 panels of a block are not 1, 2 or 4 chunks of 8"),
        ("scan_single_pass", {"warps": 3}, "got 512 blocks of 3 panels"),
        ("scan_single_pass", {"warps": 8, "columns": 513}, "got 513 blocks of 8 panels"),
    ],
)
def test_blocks_that_do_not_follow_the_grid_are_refused(
    name: str, options: dict[str, Any], text: str
) -> None:
    with pytest.raises(Unsupported, match=text):
        build(name, **options)


# --- The steps themselves ---------------------------------------------------------------------

LENGTH = Index.symbol("length")
IN = Buffer("in", "f32", Extent(LENGTH), BufferRole.INPUT)
OUT = Buffer("out", "f32", Extent(LENGTH), BufferRole.OUTPUT)
STATUS = Buffer("status", "f32", Extent(LENGTH), BufferRole.STATUS)
TILE = Buffer("tile", "f32", Extent.of(8), BufferRole.SCRATCH, Space.WARP)
KEPT = View.strided(TILE, Index(), 1, 1, 1, 1)
FIRST = (Bound(Index.of(0), BLOCK),)


def one(buffer: Buffer, offset: Index, *bounds: Bound) -> View:
    """Return one element."""
    return View.strided(buffer, offset, 1, 1, 1, 1, bounds)


TAKE = Assign(KEPT, one(IN, BLOCK))
SYNC = Sync(Scope.WARP)
GIVE = Publish(one(STATUS, BLOCK), KEPT)
WAIT = Await(KEPT, one(STATUS, BLOCK - 1, *FIRST))
PUT = Assign(one(OUT, BLOCK), KEPT)


def chained(*steps: Step, **more: Any) -> Program:
    """Return a program of one warp and one element a block."""
    return Program(
        name="chained",
        shape=shape_of("16x16x16"),
        ab="f16",
        acc="f32",
        scalars=(Scalar("length"),),
        buffers=(IN, OUT, TILE, STATUS),
        blocks=Extent(LENGTH),
        warps=more.pop("warps", 1),
        steps=steps,
        **more,
    )


def test_a_block_gets_the_value_of_the_block_before() -> None:
    program = chained(TAKE, SYNC, GIVE, SYNC, WAIT, SYNC, PUT)
    x = np.arange(1, 8, dtype=np.float32)
    for backend in ("numpy", "host"):
        result = run(program, {"in": x}, backend=backend)["out"]
        np.testing.assert_array_equal(result, [0, 1, 2, 3, 4, 5, 6])


def in_columns(*steps: Step, columns: int) -> Program:
    """Return such a program on a grid of several columns of blocks."""
    place = {"block": BLOCK * columns + BLOCK_COL}

    def moved(view: View) -> View:
        bounds = tuple(Bound(b.lhs, b.rhs.substitute(place)) for b in view.bounds)
        return replace(view, offset=view.offset.substitute(place), bounds=bounds)

    made: list[Step] = []
    for step in steps:
        match step:
            case Publish(dst, src) | Await(dst, src):
                step = replace(step, dst=moved(dst), src=moved(src))
            case Assign(dst, View() as src):
                step = replace(step, dst=moved(dst), value=moved(src))
            case Assign(dst, Formula(terms=terms) as total):
                terms = tuple(moved(one) for one in terms if isinstance(one, View))
                step = replace(step, dst=moved(dst), value=replace(total, terms=terms))
        made.append(step)
    length = Scalar("length", columns)
    return replace(
        chained(*made), scalars=(length,), blocks=Extent(LENGTH, columns), columns=columns
    )


def test_blocks_that_publish_before_they_wait_run_together() -> None:
    program = in_columns(TAKE, SYNC, GIVE, SYNC, WAIT, SYNC, PUT, columns=3)
    x = np.arange(1, 7, dtype=np.float32)
    events = list(interpret(program, {"in": x}))
    assert {event.state.warps.size for event in events} == {3}
    for backend in ("numpy", "host"):
        result = run(program, {"in": x}, backend=backend)["out"]
        np.testing.assert_array_equal(result, [0, 1, 2, 3, 4, 5])


@pytest.mark.parametrize(("rows", "columns"), [(2, 1), (1, 3), (2, 3)])
def test_blocks_stand_in_rows_of_columns(rows: int, columns: int) -> None:
    """Each block writes its number, in a grid with an order of its blocks, and in one without."""
    place = BLOCK * (rows * columns)
    place += (BLOCK_ROW * columns if rows > 1 else 0) + (BLOCK_COL if columns > 1 else 0)
    take, put = Assign(KEPT, one(IN, place)), Assign(one(OUT, place), KEPT)
    free = replace(
        chained(take, SYNC, put),
        scalars=(Scalar("length", rows * columns),),
        buffers=(IN, OUT, TILE),
        blocks=Extent(LENGTH, rows * columns),
        rows=rows,
        columns=columns,
    )
    assert (free.block_number, free.grid({"length": 24})) == (place, 24)
    give = Publish(one(STATUS, place), KEPT)
    in_turn = replace(free, steps=(take, SYNC, give, put), buffers=(IN, OUT, TILE, STATUS))
    x = np.random.default_rng(6).standard_normal(4 * rows * columns).astype(np.float32)
    for program, backend in itertools.product((free, in_turn), ("numpy", "host")):
        np.testing.assert_array_equal(run(program, {"in": x}, backend=backend)["out"], x)


def test_blocks_that_wait_before_they_publish_run_one_by_one() -> None:
    # A running sum waits before it publishes: its blocks cannot be interpreted together.
    add = Assign(KEPT, sum_of(KEPT, one(IN, BLOCK)))
    steps = (WAIT, SYNC, add, SYNC, GIVE, PUT)
    x = np.arange(1, 8, dtype=np.float32)
    result = run(chained(*steps), {"in": x})["out"]
    np.testing.assert_array_equal(result, np.cumsum(x))
    np.testing.assert_array_equal(run(chained(*steps), {"in": x}, backend="host")["out"], result)
    together = in_columns(*steps, columns=7)
    np.testing.assert_array_equal(run(together, {"in": x})["out"], result)


def test_status_that_nobody_publishes_is_an_error() -> None:
    later = Await(KEPT, one(STATUS, BLOCK + 1, Bound(BLOCK + 1, LENGTH)))
    with pytest.raises(VerifyError, match=r"waits for status\[1\] in block 0.*awaits_published"):
        tcusim.verify(chained(TAKE, SYNC, GIVE, SYNC, later, SYNC, PUT))
    # In a block that is beyond the sizes that `verify` tries.
    far = When((Bound(Index.of(40), BLOCK),), (replace(later, src=one(STATUS, BLOCK)),))
    program = chained(TAKE, SYNC, far, SYNC, GIVE, PUT)
    x = np.ones(50, np.float32)
    with pytest.raises(
        VerifyError,
        match=r"waits for status\[41\], which no earlier block publishes.*awaits_published",
    ):
        run(program, {"in": x})
    with pytest.raises(
        tcusim.TcusimError, match="waits for a status word that no block before it publishes"
    ):
        run(program, {"in": x}, backend="host")


def test_status_is_published_once() -> None:
    twice = chained(TAKE, SYNC, GIVE, GIVE, PUT)
    with pytest.raises(VerifyError, match=r"publishes status\[0\] more than once.*published_once"):
        tcusim.verify(twice)
    with pytest.raises(VerifyError, match=r"was published before.*published_once"):
        run_numpy(twice, {"in": np.ones(2, np.float32)}, check=False)
    by_all_warps = chained(TAKE, SYNC, GIVE, warps=2)
    with pytest.raises(VerifyError, match="let one warp publish it"):
        run_numpy(by_all_warps, {"in": np.ones(2, np.float32)}, check=False)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (
            (TAKE, SYNC, Assign(one(STATUS, BLOCK), KEPT)),
            "writes 'status'. Status words are written by Publish",
        ),
        (
            (Assign(KEPT, one(STATUS, BLOCK)), SYNC, PUT),
            "reads 'status'. Status words are read by Await",
        ),
        ((TAKE, SYNC, Publish(one(OUT, BLOCK), KEPT)), "publishes to 'out'"),
        ((Await(KEPT, one(IN, BLOCK)), SYNC, PUT), "awaits 'in'"),
        (
            (TAKE, SYNC, Publish(View.strided(STATUS, BLOCK, 1, 2, 2, 1), KEPT)),
            "'status' is 1x2, 'tile' is 1x1",
        ),
        ((TAKE, Publish(one(STATUS, BLOCK), KEPT), SYNC, PUT), "no barrier between"),
    ],
)
def test_misuse_of_status_is_refused(steps: tuple[Step, ...], message: str) -> None:
    with pytest.raises(VerifyError) as caught:
        tcusim.verify(chained(*steps))
    assert message in str(caught.value)


def test_status_is_not_converted() -> None:
    half = Buffer("half", "f16", Extent.of(8), BufferRole.SCRATCH, Space.WARP)
    place = View.strided(half, Index(), 1, 1, 1, 1)
    steps = (Assign(place, one(IN, BLOCK)), SYNC, Publish(one(STATUS, BLOCK), place))
    program = replace(chained(*steps), buffers=(IN, OUT, half, STATUS))
    with pytest.raises(VerifyError, match="makes f32 of f16; status words are not converted"):
        tcusim.verify(program)


def test_listing_and_events_name_the_status_words() -> None:
    text = tcusim.listing(build("scan_single_pass", warps=2, columns=4))
    assert "order        blocks are numbered in the order in which they start" in text
    assert "publish sums_of_blocks[4*block + block_col] ← " in text
    assert "← sums_of_blocks[4*block + 4*warp + col where col + 4*warp < block_col" in text
    assert "await before_group[0] ← sums_of_groups[block where 0 < block]" in text
    text = tcusim.listing(build("scan_single_pass", warps=8, columns=2, segment_size=6 * CHUNK))
    assert "grid         ceil(length / 49152) x 3 x 2 blocks of 8 warps" in text
    assert "await before_group[0] ← sums_of_groups[3*block + block_row where 0 < block_row]" in text
    program = chained(TAKE, SYNC, GIVE, SYNC, WAIT, SYNC, PUT)
    events = list(interpret(program, {"in": np.ones(4, np.float32)}))
    assert sum(isinstance(event.step, Publish) for event in events) == 4
    assert When not in {type(event.step) for event in events}
    assert {COL, WARP}.isdisjoint(program.blocks.index.symbols)


@pytest.mark.parametrize(
    ("name", "options"),
    [("reduction_single_pass", {"columns": 2**30}), ("scan_ragged_simt", {"segment_size": 10**9})],
)
def test_more_shared_memory_than_any_gpu_has_is_refused(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(Unsupported, match="bytes of shared memory"):
        build(name, **options)


# --- Integers beyond int32 ------------------------------------------------------------------------


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("size", [None, 3 * CHUNK + 5])
def test_sums_of_blocks_are_of_64_bits_if_results_are(
    size: int | None, order: dict[str, Any]
) -> None:
    types: dict[str, Any] = {"ab": "s8", "acc": "s32", "source": "s8", "result": "s64"}
    x = np.full(2**25 + 9 if order == ORDERS[0] and size is None else 9 * CHUNK, -128, np.int8)
    scan = build("scan_single_pass", segment_size=size, masked=True, **types, **order)
    total = build("reduction_single_pass", segment_size=size, masked=True, warps=8, **types)
    words = {status.dtype for program in (scan, total) for status in program.status}
    assert words == {"s64"}
    rows = size or x.size
    sums = run(total, {"in": x})["out"]
    ends = np.append(np.arange(0, x.size, rows), x.size)
    assert sums.tolist() == [-128 * int(one) for one in np.diff(ends)]
    if x.size > 9 * CHUNK:
        assert sums[0] < -(2**31)
        return
    place = np.arange(x.size) % rows
    if order["reverse"]:
        place = np.repeat(np.diff(ends), np.diff(ends)) - 1 - place
    expected = -128 * (place + (not order["exclusive"]))
    np.testing.assert_array_equal(run(scan, {"in": x})["out"], expected)
