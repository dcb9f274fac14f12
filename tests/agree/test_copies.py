"""Single copies, sums and splits of any types, strides and places, against the simulator."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tcusim.backends import Backend
from tcusim.machine import as_values, format_of
from tcusim.machine.shapes import shape_of
from tcusim.program.grammar import (
    COL,
    ROW,
    Assign,
    Bound,
    Buffer,
    BufferRole,
    Const,
    Extent,
    Frag,
    Index,
    Load,
    Loop,
    Mma,
    Operation,
    Pattern,
    PatternKind,
    Program,
    Role,
    Scalar,
    Scope,
    Space,
    Step,
    Store,
    Strided,
    Sync,
    View,
    When,
    part_of,
    split,
    sum_of,
    views_of,
)
from tcusim.program.lanes import Where, transfer_of
from tcusim.simulate.interpreter import run_numpy
from tcusim_cuda.async_copies import AsyncCopies
from tcusim_cuda.compile import compile_kernel, why_no_compiler
from tcusim_cuda.emit import emit
from tcusim_host import KernelError, compile_programs, run_kernel

SHAPE = shape_of("16x16x16")
BLOCK, LENGTH, SIZE = Index.symbol("block"), Index.symbol("length"), Index.symbol("size")
WARP_SYNC = Sync(Scope.WARP)
# The operand types do not matter here, except that they define the poison.
UNITS = {"s8": ("s8", "s32"), "s32": ("s8", "s32"), "f64": ("f64", "f64")}
PAIRS = [
    *(("f16", "f16"), ("f32", "f32"), ("s8", "s8"), ("bf16", "bf16"), ("f64", "f64")),
    *(("f32", "f16"), ("f16", "f32"), ("f32", "bf16"), ("bf16", "f32"), ("s32", "s32")),
]


def program_of(
    steps: tuple[Step, ...], source: str, target: str, scratch: tuple[Buffer, ...], blocks: int
) -> Program:
    """Return a program of `blocks` blocks of one warp from `in` to `out`, both of any length."""
    ab, acc = UNITS.get(source, ("f16", "f32"))
    return Program(
        name="copies",
        shape=shape_of("8x8x4") if ab == "f64" else SHAPE,
        ab=ab,
        acc=acc,
        scalars=(Scalar("length"), Scalar("size")),
        buffers=(
            Buffer("in", source, Extent(LENGTH), BufferRole.INPUT),
            Buffer("sizes", source, Extent(SIZE), BufferRole.INPUT),
            Buffer("out", target, Extent(LENGTH), BufferRole.OUTPUT, partial=True),
            *scratch,
        ),
        blocks=Extent(Index.of(blocks)),
        warps=1,
        steps=steps,
    )


def numbers(dtype: str, count: int, rng: np.random.Generator) -> np.ndarray:
    wide = rng.integers(-99, 99, count)
    return as_values(wide / 8 if format_of(dtype).is_float else wide, dtype)


class Draw:
    """One rectangle after another, as algorithms use them: in blocks, ragged, off the mark."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.down = bool(self.one_of(0, 1))
        self.tidy = bool(self.one_of(0, 1, 1))

    def one_of(self, *choices: int) -> int:
        return int(self.rng.choice(choices))

    def oddity(self, *choices: int) -> int:
        """Return 0 in a tidy program: its chunks can be large."""
        return 0 if self.tidy else self.one_of(0, *choices)

    def extents(self) -> tuple[int, int]:
        return self.one_of(1, 3, 16, 32, 48), self.one_of(1, 16, 16, 24, 32)

    def strides(self, rows: int, cols: int, gap: int) -> tuple[int, int]:
        """Return strides of a rectangle without repeated elements."""
        down = self.down != bool(self.oddity(0, 0, 1))
        return (1, rows + gap) if down else (cols + gap, 1)

    def bounds(self, view: View, length: Index) -> tuple[Bound, ...]:
        """Return none, the end of the array, and one that the rectangle itself crosses."""
        masked = Bound(view.address, length)
        cut = self.one_of(1, 37, 100)
        along = ROW if view.row_stride == 1 else COL
        return {
            0: (masked,),
            1: (masked, Bound(view.row_stride * ROW + view.col_stride * COL, Index.of(cut))),
            2: (masked, Bound(Index.of(self.one_of(0, 2, 9)), along + 1)),
        }[self.one_of(0, 1) + self.oddity(0, 1)]


def rectangles(source: str, target: str, seed: int) -> tuple[Program, dict[str, np.ndarray]]:
    """Return a program that stages a rectangle in shared memory, adds in place and writes it."""
    draw = Draw(seed)
    rows, cols = draw.extents()
    per_block = rows * cols + draw.one_of(0, 16) + draw.oddity(4, 3)
    start = draw.one_of(0, 16) + draw.oddity(8, 2, 1)
    gap = draw.one_of(0, 16) + draw.oddity(8, 4, 1)
    blocks = 3
    # A number known only at the launch: the kernel then tests the alignment as it runs.
    place = BLOCK * per_block + (SIZE if draw.one_of(0, 1) else 0)
    first = View.strided(
        Buffer("in", source, Extent(LENGTH), BufferRole.INPUT),
        place + start,
        *(rows, cols),
        *draw.strides(rows, cols, gap),
    )
    first = replace(first, bounds=draw.bounds(first, LENGTH))
    shared = Buffer("t", source, Extent.of(4096 + start), BufferRole.SCRATCH, Space.WARP)
    stage = View.strided(shared, Index.of(start), rows, cols, *draw.strides(rows, cols, gap))
    if draw.down == bool(draw.oddity(1)):
        other = replace(first, row_axis=Strided(rows, 0))
    else:
        other = replace(first, col_axis=Strided(cols, 0))
    out = View.strided(
        Buffer("out", target, Extent(LENGTH), BufferRole.OUTPUT, partial=True),
        place,
        *(rows, cols),
        *((1, rows) if draw.down else (cols, 1)),
    )
    out = replace(out, bounds=draw.bounds(out, LENGTH))
    steps = (
        Assign(stage, first),
        WARP_SYNC,
        Assign(stage, sum_of(stage, other)),
        WARP_SYNC,
        Assign(out, stage),
    )
    program = program_of(steps, source, target, (shared,), blocks)
    # In the middle of the last blocks, so that bounds cut rectangles and chunks.
    length = blocks * per_block - int(draw.rng.integers(0, per_block + 2))
    data = numbers(source, max(1, length), draw.rng)
    return program, {"in": data, "sizes": numbers(source, draw.one_of(0, 1, 2, 4, 8), draw.rng)}


def differing(got: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> int:
    one, two = got["out"], wanted["out"]
    assert one.dtype == two.dtype
    return int(np.sum((one != two) & ~((one != one) & (two != two))))


def seeds_of(pair: tuple[str, str]) -> range:
    first = 5 * PAIRS.index(pair)
    return range(first, first + 5)


@pytest.fixture(scope="module")
def compiled(host: Backend) -> None:
    compile_programs(rectangles(*pair, seed)[0] for pair in PAIRS for seed in seeds_of(pair))


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_rectangles_of_any_kind(source: str, target: str) -> None:
    sizes: set[int] = set()
    for seed in seeds_of((source, target)):
        program, inputs = rectangles(source, target, seed)
        wanted = run_numpy(program, inputs)
        assert differing(run_kernel(emit(program), inputs, seed=seed), wanted) == 0, (seed, program)
        for step in program.steps:
            if isinstance(step, Assign):
                sizes.add(transfer_of(program, (step.dst,), views_of(step.value)).vector)
    assert {1}.union(sizes) != {1}


@pytest.mark.parametrize(
    ("source", "target", "row_stride", "shift", "size"),
    [
        ("f16", "f16", 16, 0, 8),
        # 16 bytes of the wider type; and no larger than gives every lane a chunk.
        ("f32", "f16", 16, 0, 4),
        ("f16", "f32", 16, 0, 4),
        ("s8", "s8", 16, 0, 8),
        # Rows that begin at multiples of 8, 4 and 2 bytes.
        ("f16", "f16", 100, 0, 4),
        ("f16", "f16", 102, 0, 2),
        ("f16", "f16", 101, 0, 1),
        ("f16", "f16", 16, 4, 4),
        ("f16", "f16", 16, 1, 1),
    ],
)
def test_sizes_of_chunks(source: str, target: str, row_stride: int, shift: int, size: int) -> None:
    shared = Buffer("t", target, Extent.of(256), BufferRole.SCRATCH, Space.WARP)
    tile = View.strided(
        Buffer("in", source, Extent(LENGTH), BufferRole.INPUT),
        BLOCK * 1600 + shift,
        16,
        16,
        row_stride,
        1,
    )
    copy = Assign(View.strided(shared, Index(), 16, 16, 16, 1), tile)
    steps = (Loop("i", Extent.of(2), (copy,)),)
    program = program_of(steps, source, target, (shared,), 1)

    def found(view: View) -> int:
        return transfer_of(program, (copy.dst,), (view,)).vector

    assert found(tile) == size
    # A number of the launch may be a multiple: the kernel tests it. Loop variables are known.
    assert found(replace(tile, offset=tile.offset + SIZE)) == size
    assert found(replace(tile, offset=tile.offset + Index.symbol("i"))) == 1
    # An end may cut a chunk, a beginning may not.
    assert found(replace(tile, bounds=(Bound(tile.address, LENGTH),))) == size
    # Bounds may fail at either end of a chunk.
    assert found(replace(tile, bounds=(Bound(Index.of(3), COL),))) == found(tile)
    # One element again and again needs no alignment, but must be in bounds as one.
    again = replace(tile, col_axis=Strided(tile.cols, 0))
    assert found(again) == found(replace(again, offset=tile.offset + 1))
    assert found(replace(again, bounds=(Bound(COL, Index.of(3)),))) == 1


@pytest.mark.parametrize(("rows", "found"), [(24, 8), (23, 1)])
def test_large_rectangles_at_single_elements_are_read_in_vectors(rows: int, found: int) -> None:
    """From 768 elements on, of less than a word each."""
    for dtype, vector in (("f16", found), ("f32", 1)):
        shared = Buffer("t", dtype, Extent.of(32 * rows), BufferRole.SCRATCH, Space.WARP)
        array = Buffer("in", dtype, Extent(LENGTH), BufferRole.INPUT)
        view = View.strided(array, BLOCK * 999, rows, 32, 32, 1)
        copy = Assign(View.strided(shared, Index(), rows, 32, 32, 1), view)
        program = program_of((copy,), dtype, dtype, (shared,), 1)
        how = transfer_of(program, (copy.dst,), (view,))
        assert how.vector == vector
        assert (how.where[-1] is Where.SHIFTED) == (vector > 1)


@pytest.mark.parametrize("shift", [0, 1, 2, 4])
def test_split_into_parts(shift: int, host: Backend) -> None:
    """Three parts of a bounded tile, added up again."""
    parts = [
        Buffer(f"t{i}", "bf16", Extent.of(512), BufferRole.SCRATCH, Space.WARP) for i in range(3)
    ]
    total = Buffer("total", "bf16", Extent.of(512), BufferRole.SCRATCH, Space.WARP)
    views = tuple(View.strided(part, Index(), 16, 24, 24, 1) for part in parts)
    whole = View.strided(total, Index(), 16, 24, 24, 1)
    place = BLOCK * 384 + SIZE
    tile = View.strided(Buffer("in", "f32", Extent(LENGTH), BufferRole.INPUT), place, 16, 24, 24, 1)
    tile = replace(tile, bounds=(Bound(tile.address, LENGTH),))
    out = replace(
        tile, buffer=Buffer("out", "bf16", Extent(LENGTH), BufferRole.OUTPUT, partial=True)
    )
    steps: list[Step] = [
        split(views, tile),
        WARP_SYNC,
        Assign(whole, sum_of(views[2], views[1])),
        WARP_SYNC,
    ]
    steps += [Assign(whole, sum_of(whole, views[0])), WARP_SYNC, Assign(out, whole)]
    program = program_of(tuple(steps), "f32", "bf16", (*parts, total), 2)
    rng = np.random.default_rng(shift)
    inputs = {"in": rng.standard_normal(700).astype(np.float32)}
    inputs["sizes"] = np.zeros(shift, np.float32)
    assert "tcu::take_part<__nv_bfloat16, true>(held)" in emit(program).text
    got = run_kernel(emit(program), inputs, seed=shift)
    assert differing(got, run_numpy(program, inputs)) == 0


# --- Copies that nobody waits for at once ---------------------------------------------------------


def pipeline(tiles: int = 4) -> Program:
    """Return a product with ones: each tile is fetched while the one before is multiplied."""
    half = [
        Buffer(f"t{i}", "f16", Extent.of(256), BufferRole.SCRATCH, Space.WARP) for i in range(2)
    ]
    spill = Buffer("s", "f32", Extent.of(256), BufferRole.SCRATCH, Space.WARP)
    source = Buffer("in", "f16", Extent(LENGTH), BufferRole.INPUT)
    a = Frag("A", Role.A, SHAPE, "f16")
    b, v = Frag("B", Role.B, SHAPE, "f16"), Frag("V", Role.ACC, SHAPE, "f32")

    def fetch(number: Index) -> Assign:
        tile = View.strided(source, (BLOCK * tiles + number) * 256, 16, 16, 16, 1)
        tile = replace(tile, bounds=(Bound(tile.address, LENGTH),))
        return Assign(View.strided(half[number.const % 2], Index(), 16, 16, 16, 1), tile)

    def multiply(which: int) -> tuple[Step, ...]:
        return (Load(a, View.strided(half[which], Index(), 16, 16, 16, 1)), Mma(v, a, b, v))

    i = Index.symbol("i")
    body = (
        *(fetch(2 * i + 1), *multiply(0), WARP_SYNC),
        *(fetch(2 * i + 2), *multiply(1), WARP_SYNC),
    )
    result = View.strided(spill, Index(), 16, 16, 16, 1)
    out = View.strided(
        Buffer("out", "f32", Extent(LENGTH), BufferRole.OUTPUT, partial=True),
        BLOCK * tiles * 256,
        16,
        16,
        16,
        1,
    )
    steps = (
        Const(b, Pattern(PatternKind.ONES)),
        Const(v, Pattern(PatternKind.ZEROS)),
        fetch(Index.of(0)),
        WARP_SYNC,
        Loop("i", Extent.of(tiles // 2), body),
        Store(result, v),
        WARP_SYNC,
        Assign(replace(out, bounds=(Bound(out.address, LENGTH),)), result),
    )
    return program_of(steps, "f16", "f32", (*half, spill), 3)


def test_a_pipeline_fetches_while_it_multiplies(host: Backend) -> None:
    program = pipeline()
    started = AsyncCopies(program)
    # Nothing is multiplied while the first tile is fetched.
    assert started.copies == {"5.1", "5.5"}
    assert started.waits == {"5.4": 0, "5.8": 0}
    kernel = emit(program)
    assert kernel.text.count("tcu::copy_async<8>(") == 2
    assert kernel.text.count("tcu::wait_for_copies();\n        __syncwarp();") == 2
    rng = np.random.default_rng(5)
    inputs = {"in": numbers("f16", 2700, rng), "sizes": numbers("f16", 1, rng)}
    wanted = run_numpy(program, inputs)
    for seed in range(3):
        assert differing(run_kernel(kernel, inputs, seed=seed), wanted) == 0
    hasty = replace(kernel, text=kernel.text.replace("tcu::wait_for_copies();", ""))
    assert differing(run_kernel(hasty, inputs), wanted) > 0


def test_where_copies_must_have_finished() -> None:
    program = pipeline()
    steps = program.steps
    fetch, multiply = steps[2], (steps[4].body[1], steps[4].body[2])  # type: ignore[union-attr]

    def found(*steps: Step) -> tuple[set[str], set[str]]:
        started = AsyncCopies(replace(program, steps=steps))
        return started.copies, set(started.waits)

    # Around a loop, and out of it.
    body = (WARP_SYNC, fetch, *multiply)
    after = (WARP_SYNC, *multiply)
    assert found(Loop("i", Extent.of(3), body), *after) == ({"1.2"}, {"1.1", "2"})
    # Where nobody reads it any more, nobody waits.
    assert found(Loop("i", Extent.of(3), body), WARP_SYNC) == ({"1.2"}, {"1.1"})
    # Multiplied in the next pass only.
    late = (*multiply, WARP_SYNC, *multiply, fetch)
    assert found(Loop("i", Extent.of(3), late)) == ({"1.6"}, {"1.3"})
    # In one branch, where no other warp can tell.
    bounds = (Bound(BLOCK, Index.of(1)),)
    assert found(When(bounds, (fetch,), multiply), *multiply, *after) == ({"1.1"}, {"4"})
    assert found(When(bounds, (fetch,), (WARP_SYNC,)), WARP_SYNC, *multiply) == (set(), set())
    assert found(fetch, *multiply) == (set(), set())


def test_what_is_not_copied_later() -> None:
    program = pipeline()
    fetch, multiply = program.steps[2], program.steps[4].body[1:3]  # type: ignore[union-attr]
    assert isinstance(fetch, Assign)
    (tile,) = views_of(fetch.value)

    def later(copy: Assign) -> bool:
        steps = (copy, *multiply, WARP_SYNC, *multiply)
        return bool(AsyncCopies(replace(program, steps=steps)).copies)

    assert later(fetch)
    assert not later(replace(fetch, value=sum_of(tile, tile)))
    assert not later(replace(fetch, value=part_of(Operation.FINITE, tile)))
    assert not later(replace(fetch, dst=replace(fetch.dst, bounds=tile.bounds)))
    assert not later(replace(fetch, value=replace(tile, buffer=program.buffer("out"))))
    assert not later(replace(fetch, value=replace(tile, offset=tile.offset + 1)))
    assert not later(replace(fetch, value=replace(tile, col_axis=Strided(tile.cols, 0), bounds=())))
    # Rows of whole chunks of 8 bytes, but not of 16, will do.
    assert later(replace(fetch, value=replace(tile, row_axis=Strided(tile.rows, 20))))


def test_a_chunk_that_is_not_where_the_text_says(host: Backend) -> None:
    program = pipeline()
    kernel = emit(program)
    old = "tcu::store<tcu::Aligned>(&t0[16*row + col]"
    assert old in kernel.text
    wrong = replace(kernel, text=kernel.text.replace(old, old.replace("[", "[1 + ")))
    zeros = {"in": np.zeros(999, np.float16), "sizes": np.zeros(1, np.float16)}
    with pytest.raises(KernelError) as caught:
        run_kernel(wrong, zeros)
    assert "several elements are read or written at once at an address that is not a" in str(
        caught.value
    )


# --- Machine code ---------------------------------------------------------------------------------


@pytest.mark.parametrize("sm", [70, 75, 80, 90])
def test_a_pipeline_compiles(sm: int) -> None:
    reason = why_no_compiler()
    if reason is not None:
        pytest.skip(reason)
    cubin = compile_kernel(emit(pipeline()), sm)
    assert cubin.usage.stack_bytes == 0
    # LDGSTS copies from global to shared memory past the registers. Source: cp.async in PTX.
    opcodes = [
        int.from_bytes(cubin.code[i : i + 2], "little") & 0xFFF
        for i in range(0, len(cubin.code), 16)
    ]
    assert (0xFAE in opcodes) == (sm >= 80)
