"""Tiles that no instruction multiplies, and rules of other units: the lanes compute these bits."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tcusim
from tcusim.backends import Backend
from tcusim.judge.correctness.cases import Case, CaseGrid, Column, cases_of
from tcusim.judge.correctness.testing import assert_agree, random_inputs
from tcusim.machine import Arch, arch_of, register_arch, round_values
from tcusim.machine.formats import FORMATS, Values, format_of, from_memory
from tcusim.machine.registry import usual_types
from tcusim.machine.scaled import scaled_mma
from tcusim.program.bind import rule_of
from tcusim.program.grammar import Assign, Buffer, BufferRole, Extent, Index, Program, Scalar, View
from tcusim_cuda.compile import compile_kernel
from tcusim_cuda.compile import why_no_compiler as why_no_nvrtc
from tcusim_cuda.emit import emit
from tcusim_cuda.instructions import rule_of_lanes
from tcusim_cuda.text import is_coded
from tcusim_host import compile_programs, run_kernel

# A part of `tcusim agree --backend host --arch RULE --tile TILE ...` over these tiles and rules:
# each rule meets each algorithm, on a tile of its own.
TILES = (
    *("5x7x3", "1x16x16", "8x48x12", "4x4x4", "8x8x4", "16x16x1", "1x1x1", "7x5x3", "16x1x16"),
    *("48x24x12", "3x3x17", "24x8x12", "2x2x2", "12x12x12", "15x8x32", "33x1x2", "1x2x33"),
    *("10x10x10", "20x20x4", "64x8x16", "8x16x4", "6x6x8", "2x64x2", "9x4x31"),
)
# Types that CUDA lacks: those of the table, and others of one, two and four bytes.
CODED = (*filter(is_coded, FORMATS), "e3m4", "e5m3b20_daz", "e4m4fnuz", "e7m9fn", "e2m2f")
RULES = ("volta", "turing", "hopper", "cdna3", "ieee", "exact")


def cases(arch: str, number: int) -> list[Case]:
    """Return one case of each algorithm by products, each on the next tile."""
    columns = [Column(tile, "f16", "f16" if n % 3 == 2 else "f32") for n, tile in enumerate(TILES)]
    known = {(rule.ab, rule.acc) for rule in tcusim.machine.arch_of(arch).rows}
    rows = [row.name for row in tcusim.algorithms.segmented_algorithms() if row.uses_mma]
    found = []
    for n, name in enumerate(rows):
        column = columns[(5 * n + 4 * number) % len(columns)]
        if (column.ab, column.acc) not in known:
            column = replace(column, acc="f32")
        for recipe in CaseGrid([name], [column]).recipes():
            found += list(cases_of(recipe, n + number, full=False))[:1]
    return found


@pytest.mark.parametrize(("number", "arch"), list(enumerate(RULES)))
def test_any_tile_by_any_rule(number: int, arch: str, host: Backend) -> None:
    found = cases(arch, number)
    assert len(found) > 10
    compile_programs((case.recipe.build() for case in found), arch=arch)
    for case in found:
        assert_agree(case.recipe.build(), case.inputs(), ("numpy", host), arch=arch)


TYPES = [
    ("cdna3", "e4m3fnuz", "f32"),
    ("cdna3", "e5m2fnuz", "f32"),
    ("ada", "e4m3", "f16"),
    ("hopper", "e5m2", "f32"),
    ("ampere", "bf16", "f32"),
    ("ampere", "tf32", "f32"),
    ("hopper", "f64", "f64"),
    ("turing", "s8", "s32"),
    ("ampere", "u8", "s32"),
    ("ieee", "e5m3", "f32"),
    pytest.param("exact", "e4m4b9fnuz", "f32", marks=pytest.mark.full),
    pytest.param("ieee", "e7m16_daz", "f32", marks=pytest.mark.full),
    ("exact", "e2m1", "f32"),
    ("ieee", "e2m3", "f32"),
    ("exact", "e3m2", "f32"),
    # With block scales, which are 1.
    ("blackwell_rtx", "e2m1", "f32"),
]


@pytest.mark.parametrize(("arch", "ab", "acc"), TYPES)
def test_tiles_of_any_type(arch: str, ab: str, acc: str, host: Backend) -> None:
    programs = [
        tcusim.build("reduction_kn", tile="5x7x3", ab=ab, acc=acc),
        tcusim.build("scan_tn", tile="4x9x5", ab=ab, acc=acc, side="a", combine="add"),
    ]
    compile_programs(programs, arch=arch)
    for program in programs:
        length = 2 * program.scalars[0].multiple_of
        inputs = random_inputs(program, "uniform", length, np.random.default_rng(3))
        assert_agree(program, inputs, ("numpy", host), arch=arch)


@pytest.mark.parametrize("number", [0, 4, -1])
def test_units_with_block_scales(number: int, host: Backend) -> None:
    """Operands of programs have scales of 1."""
    rng = np.random.default_rng(3)
    row = arch_of("blackwell").scaled[number]
    arch, block = f"scales {number}", tcusim.MmaShape(16, 8, 64)
    register_arch(Arch(arch, "of blocks", (), (), (), "invented", scaled=(row,)))
    assert usual_types(arch_of(arch)) == (row.ab, row.acc)
    programs = [
        tcusim.build("scan_kn", tile="5x7x3", ab=row.ab, acc=row.acc),
        tcusim.build("gemm_naive", tile=block, ab=row.ab, acc=row.acc, inner=70),
    ]
    compile_programs(programs, arch=arch)
    for program in programs:
        inputs = random_inputs(program, "special", 40 * program.scalars[0].multiple_of, rng)
        assert_agree(program, inputs, ("numpy", host), arch=arch)
    drawn = rng.standard_normal((2, 64, 8)) * 2.0 ** rng.integers(-3, 4, (2, 64, 8))
    a, b = (round_values(one, format_of(row.ab)) for one in (drawn[0].T, drawn[1]))
    c = rng.standard_normal((8, 8)).astype(np.float32) * 9
    scales = np.ones((8, 64 // row.block)), np.ones((64 // row.block, 8))
    found = tcusim.mma(a, b, c, arch=arch)
    assert found.tobytes() == scaled_mma(a, b, c, scales, row).tobytes()


def test_the_lanes_follow_the_rule_of_another_unit_on_a_tile_of_an_instruction(
    host: Backend,
) -> None:
    """As on a GPU whose own unit computes otherwise: the host's instruction follows any rule."""
    program = tcusim.build("scan_t", segment_size=256)
    inputs = random_inputs(program, "wide", 512, np.random.default_rng(8))
    found = {}
    for arch in ("volta", "turing", "ieee"):
        rule = rule_of_lanes(program, arch, 90)
        assert rule == rule_of(program, arch)
        one = run_kernel(emit(program, rule=rule), inputs)["out"]
        assert np.array_equal(one, host.run(plan_of(program, inputs), inputs, arch=arch)["out"])
        found[arch] = one.tobytes()
    assert len(set(found.values())) == len(found)


def plan_of(program: Program, inputs: dict[str, Any]) -> Any:
    sizes = {name: np.size(array) for name, array in inputs.items()}
    return tcusim.program.launches.LaunchPlan.of_program(program, sizes)


def test_a_trace_of_lanes_is_the_simulators(host: Backend) -> None:
    """One of the programs has operands of more elements than two digits of their type count."""
    cases: tuple[tuple[str, dict[str, Any]], ...] = (
        ("scan_t", {"tile": "5x7x3"}),
        ("scan_t", {"tile": "4x4x4", "ab": "e4m3"}),
        ("reduction_kn", {"tile": "2x2x16400", "ab": "s8", "acc": "s32"}),
    )
    for name, options in cases:
        program = tcusim.build(name, **options)
        inputs = random_inputs(
            program, "integers", 2 * program.scalars[0].multiple_of, np.random.default_rng(2)
        )
        own = tcusim.trace(program, inputs, backend="host", arch="hopper")
        assert own.first_difference(tcusim.trace(program, inputs, arch="hopper")) is None


# --- Types that CUDA does not have ----------------------------------------------------------------


def converted(ab: str) -> Program:
    """Return a program that converts each float32 to a type and back."""
    length, block = Extent(Index.symbol("length")), Index.symbol("block")
    buffers = (
        Buffer("in", "f32", length, BufferRole.INPUT),
        Buffer("narrow", ab, length, BufferRole.OUTPUT),
        Buffer("out", "f32", length, BufferRole.OUTPUT),
    )
    given, narrow, out = (View.strided(one, block, 1, 1, 1, 1) for one in buffers)
    return Program(
        name=f"to_{ab}",
        shape=tcusim.MmaShape(16, 16, 16),
        ab="f16",
        acc="f32",
        scalars=(Scalar("length"),),
        buffers=buffers,
        blocks=length,
        warps=1,
        steps=(Assign(narrow, given), Assign(out, given)),
    )


def edges(ab: str) -> Values:
    """Return every number of a type, those halfway to the next one, and those just beside them."""
    fmt = format_of(ab)
    patterns = np.arange(2**fmt.bits, dtype=fmt.memory_dtype)
    known = np.unique(np.nan_to_num(from_memory(patterns, ab), nan=0.0, posinf=0.0, neginf=0.0))
    halves = (known[1:] + known[:-1]) / np.float32(2)
    near = [np.nextafter(halves, np.float32(end)) for end in (-np.inf, np.inf)]
    far = np.array(
        [np.inf, -np.inf, 1e-45, -1e-45, 3e38, -0.0, *(known[[0, -1]] * 1.5)], np.float32
    )
    return np.concatenate([known, halves, *near, far]).astype(np.float32)


@pytest.mark.parametrize("ab", CODED)
def test_conversions(ab: str, host: Backend) -> None:
    program = converted(ab)
    numbers = edges(ab)
    numbers = np.append(numbers, np.float32(np.nan)) if format_of(ab).has_nan else numbers
    assert_agree(program, {"in": numbers}, ("numpy", host))


# --- Machine code ---------------------------------------------------------------------------------


@pytest.mark.skipif(why_no_nvrtc() is not None, reason="NVRTC is not installed")
@pytest.mark.parametrize(
    ("options", "arch", "sm"),
    [
        ({"tile": "5x7x3"}, "volta", 70),
        ({"tile": "8x48x12", "acc": "f16"}, "ieee", 80),
        ({"tile": "4x4x4", "ab": "e4m3fnuz"}, "cdna3", 90),
        ({"tile": "16x16x16"}, "exact", 90),
        ({"tile": "16x16x8", "ab": "tf32"}, "blackwell", 70),
    ],
    ids=str,
)
def test_the_lanes_compile(options: dict[str, Any], arch: str, sm: int) -> None:
    program = tcusim.build("scan_tn", **options)
    kernel = emit(program, rule=rule_of_lanes(program, arch, sm))
    assert kernel.rule == rule_of(program, arch)
    assert not compile_kernel(kernel, sm).usage.tensor_core
    alone = emit(program, rule=kernel.rule, standalone=True)
    assert not re.search(r'#include "(tcusim|tiles|tcusim_rule)\.', alone.text)
    compile_kernel(alone, sm)


@pytest.mark.skipif(why_no_nvrtc() is not None, reason="NVRTC is not installed")
@pytest.mark.parametrize(("acc", "of_one"), [("f32", 4), ("f16", 2)])
def test_voltas_own_instruction(acc: str, of_one: int, host: Backend) -> None:
    program = tcusim.build("scan_tn", tile="8x8x4", acc=acc)
    inputs = random_inputs(
        program, "normal", 3 * program.scalars[0].multiple_of, np.random.default_rng(3)
    )
    for arch in ("volta", "turing"):
        assert_agree(program, inputs, ("numpy", host), arch=arch)
    kernel = emit(program)
    found = compile_kernel(kernel, 70).usage.tensor_core
    assert found == {"HMMA.884": of_one * kernel.products}


@pytest.mark.skipif(why_no_nvrtc() is not None, reason="NVRTC is not installed")
def test_fragments_of_a_large_tile_do_not_spill() -> None:
    """Written out, those of this tile took all 255 registers of a thread, and 460 bytes besides."""
    program = tcusim.build("scan_t", tile="48x24x12")
    usage = compile_kernel(emit(program, rule=rule_of(program, "volta")), 90).usage
    assert usage.registers < 128
