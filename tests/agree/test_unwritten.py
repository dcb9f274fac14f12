"""Memory that nothing has written holds the same on every engine, for every type."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from host_kernels import same_bits
from tcusim.backends import Backend
from tcusim.machine import format_of, from_values
from tcusim.machine.formats import FORMATS, unwritten_values
from tcusim.machine.shapes import shape_of
from tcusim.program.grammar import (
    BLOCK,
    WARP,
    Assign,
    Bound,
    Buffer,
    BufferRole,
    Const,
    Extent,
    Frag,
    Index,
    Mma,
    Pattern,
    PatternKind,
    Program,
    Role,
    Scope,
    Space,
    Store,
    Sync,
    View,
    When,
)
from tcusim.simulate.interpreter import run_numpy
from tcusim_cuda.emit import Emitter
from tcusim_cuda.instructions import instruction_for
from tcusim_cuda.kernel import Kernel
from tcusim_host import build_many, run_kernel

# tf32 is a type of fragments: in memory it is f32.
# Of a type without NaN, nothing marks what is unwritten.
IN_MEMORY = tuple(
    dtype for dtype in FORMATS if dtype != "tf32" and (FORMATS[dtype].has_nan or dtype[0] in "su")
)
BLOCKS, WARPS = 2, 2
FIRST_WARP = (Bound(WARP, Index.of(1)),)
# Elements at the end of an output that no step stores to.
REST = 3


def output(name: str, dtype: str, size: int) -> Buffer:
    return Buffer(name, dtype, Extent.of(size + REST), BufferRole.OUTPUT, partial=True)


def line(buffer: Buffer, count: int, offset: Index | int = 0) -> View:
    return View.strided(buffer, Index.of(offset), 1, count, count, 1)


def in_arrays(size: int) -> Program:
    """Return a program with shared arrays of every type, of blocks and of warps, side by side.

    The first warp writes two elements of each, and each warp copies all of them to an output.
    """
    given = {one: Buffer(f"{one}_in", one, Extent.of(2), BufferRole.INPUT) for one in IN_MEMORY}
    pairs = {
        Buffer(f"{dtype}_of_{space.value}", dtype, Extent.of(size), BufferRole.SCRATCH, space):
        output(f"{dtype}_out_of_{space.value}", dtype, BLOCKS * WARPS * size)
        for space in (Space.SHARED, Space.WARP)
        for dtype in IN_MEMORY
    }  # fmt: skip
    place = (BLOCK * WARPS + WARP) * size
    put = tuple(Assign(line(one, 2, 1), line(given[one.dtype], 2)) for one in pairs)
    return Program(
        name=f"in_arrays_{size}", shape=shape_of("16x16x16"), ab="f16", acc="f32", scalars=(),
        buffers=(*given.values(), *pairs, *pairs.values()), blocks=Extent.of(BLOCKS), warps=WARPS,
        steps=(
            When(FIRST_WARP, put),
            Sync(Scope.BLOCK),
            *(Assign(line(out, size, place), line(one, size)) for one, out in pairs.items()),
        ),
    )  # fmt: skip


def in_fragments(ab: str, acc: str, tile: str, count: int) -> Program:
    """Return a program that stores accumulators that one of its warps has not set, and a product.

    count: of accumulators. Of many, a kernel keeps some in memory.
    """
    shape = shape_of(tile)
    a, b = Frag("A", Role.A, shape, ab), Frag("B", Role.B, shape, ab)
    sums = [Frag(f"C{number}", Role.ACC, shape, acc) for number in range(count)]
    zeros, product = Frag("Z", Role.ACC, shape, acc), Frag("D", Role.ACC, shape, acc)
    ones = Pattern(PatternKind.ONES)
    size = shape.m * shape.n
    outs = {one: output(f"out_{one.name}", acc, BLOCKS * WARPS * size) for one in (product, *sums)}
    place = (BLOCK * WARPS + WARP) * size
    return Program(
        name=f"in_fragments_{ab}_{acc}_{tile}_{count}", shape=shape, ab=ab, acc=acc, scalars=(),
        buffers=tuple(outs.values()), blocks=Extent.of(BLOCKS), warps=WARPS,
        steps=(
            When(FIRST_WARP, tuple(Const(one, ones) for one in (a, *sums))),
            Const(b, ones),
            Const(zeros, Pattern(PatternKind.ZEROS)),
            Mma(product, a, b, zeros),
            *(
                Store(View.strided(out, place, shape.m, shape.n, shape.n, 1), one)
                for one, out in outs.items()
            ),
        ),
    )  # fmt: skip


PROGRAMS = {
    program.name: program
    for program in (
        in_arrays(16),
        # So much that it is dynamic.
        in_arrays(600),
        in_fragments("f16", "f16", "16x16x16", 1),
        in_fragments("f16", "f32", "16x16x16", 1),
        in_fragments("f16", "f32", "16x8x16", 1),
        in_fragments("f16", "f32", "16x16x16", 25),
        in_fragments("bf16", "f32", "16x16x16", 1),
        in_fragments("tf32", "f32", "16x16x8", 1),
        in_fragments("f64", "f64", "8x8x4", 1),
        in_fragments("s8", "s32", "16x16x16", 1),
        in_fragments("u8", "s32", "16x16x16", 1),
    )
}


@functools.cache
def kernel_of(name: str) -> Kernel:
    """Emit a program that reads unwritten elements; `emit` refuses it."""
    program = PROGRAMS[name]
    return Emitter(program, instruction_for(program), standalone=False).kernel()


@pytest.fixture(scope="module", autouse=True)
def _compiled(host: Backend) -> None:
    build_many(map(kernel_of, PROGRAMS))


@pytest.mark.parametrize("core", ["numpy", "compiled"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_engine_has_the_same_bytes(
    name: str, core: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TCUSIM_CORE", core)
    program = PROGRAMS[name]
    inputs = {
        one.name: from_values(np.array([5, 7], format_of(one.dtype).dtype), one.dtype)
        for one in program.inputs
    }
    expected = run_numpy(program, inputs, check=False)
    for seed in range(2):
        got = run_kernel(kernel_of(name), inputs, seed=seed)
        unlike = [each for each in expected if not same_bits(got[each], expected[each])]
        assert unlike == []
    for one in program.outputs:
        unwritten = from_values(unwritten_values((REST,), one.dtype), one.dtype)
        assert same_bits(expected[one.name][-REST:], unwritten)


def test_the_programs_leave_each_kind_of_memory_unwritten() -> None:
    """Arrays are static and dynamic, tiles in registers and in memory, as the texts have them."""
    texts = {name: kernel_of(name).text for name in PROGRAMS}
    assert kernel_of("in_arrays_16").dynamic_shared_bytes == 0
    assert kernel_of("in_arrays_600").dynamic_shared_bytes > 0
    assert "tcu::Kept<" in texts["in_fragments_f16_f32_16x16x16_25"]
    expected = run_numpy(PROGRAMS["in_fragments_s8_s32_16x16x16_1"], {}, check=False)
    lowest = format_of("s8").unwritten
    assert set(expected["out_D"][:-REST].tolist()) == {16, 16 * int(lowest)}
