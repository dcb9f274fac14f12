"""The shared memory of programs, and plans within a GPU's limit."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tcusim
from asked import asked
from some import Some
from tcusim.algorithms import algorithms, build
from tcusim.arrays.dtypes import dtype_of
from tcusim.arrays.report import Report
from tcusim.errors import InputError, Unsupported
from tcusim.machine import FORMATS, Arch, Fused, Rule, arch_of, arches, register_arch, unit_of
from tcusim.machine.multiprocessors import STATIC_SHARED_BYTES
from tcusim.machine.registry import gallery
from tcusim.program.bind import rule_of
from tcusim.program.grammar import Program
from tcusim.program.resources import SharedMemory
from tcusim_cuda.emit import emit
from tcusim_cuda.kernel import Kernel
from tcusim_cuda.text import C_TYPES

LIMITED = [unit for unit in arches() if unit.shared_kb is not None]
BYTES = {C_TYPES[dtype]: row.itemsize for dtype, row in FORMATS.items()}
FLOATS = ("float16", "bfloat16", "float32", "float64")
# Text of tcusim.cuh: where there is mail, a block keeps its number, aligned with the next array.
TICKET = 128


def declared(kernel: Kernel) -> int:
    """Return the shared memory of a kernel: static from its text, and dynamic from its launch."""
    arrays = re.findall(r"__shared__ __align__\(32\) ([\w ]+) \w+((?:\[\d+\])+);", kernel.text)
    static = sum(
        BYTES[kind] * math.prod(map(int, re.findall(r"\d+", sizes))) for kind, sizes in arrays
    )
    assert static == 0 or kernel.dynamic_shared_bytes == 0
    assert static <= STATIC_SHARED_BYTES
    ticket = TICKET if "take_ticket" in kernel.text else 0
    return static + kernel.dynamic_shared_bytes + ticket


@pytest.mark.parametrize("name", [row.name for row in algorithms()])
def test_a_program_needs_what_its_kernel_declares(name: str) -> None:
    source = "f32" if "plain" in name else None
    for warps in (1, 4):
        program = build(name, warps=warps, source=source, masked=not name.startswith("g"))
        assert SharedMemory(program).needed == declared(emit(program))


# --- Plans that fit -----------------------------------------------------------------------------


def plans(arch: str, some: Some, start: int) -> Iterator[tcusim.Plan | tcusim.ProductPlan]:
    """Yield plans of operations, types, and kinds of segments that a unit has: some, or all."""
    pairs: list[dict[str, Any]] = []
    for dtype in (*FLOATS, "int8"):
        results = ("float16", "float32") if dtype == "float16" else (None,)
        pairs += [{"dtype": dtype, "result": result, "arch": arch} for result in results]
    for types, length in some(itertools.product(pairs, (100, 2**23)), 5, start + 1):
        yield from sums_and_scans(length, types)
    every = ((20, 30, 20), (200, 90, 200), (2048, 90, 2048), (40, 900), (2**15, 4096))
    for types, sizes in some(itertools.product(pairs, every), 7, start):
        yield from products(*sizes, types=types)


def sums_and_scans(
    length: int, types: dict[str, Any]
) -> Iterator[tcusim.Plan | tcusim.ProductPlan]:
    few, many = max(1, length // 1000), length // 3
    sizes = (16, 100, 1000, 1024, 5000, 2**15)
    ways: list[dict[str, Any]] = [{"segments": size} for size in sizes if size <= length]
    ways.append({"segments": tcusim.Segments(count=few)})
    ways.append({"segments": tcusim.Segments(count=many, longest=9)})
    if types["dtype"] == "float16" and length >= 5000:
        # Literal to the paper: tile after tile.
        ways.append({"segments": 5000, "acc": "f16"})
    for operation in ("sum", "cumsum"):
        yield from planned(operation, length=length, **types)
        for way in ways:
            yield from planned(f"segmented_{operation}", length=length, **way, **types)


def products(
    rows: int, inner: int, cols: int | None = None, *, types: dict[str, Any]
) -> Iterator[tcusim.Plan | tcusim.ProductPlan]:
    operation = "matvec" if cols is None else "matmul"
    try:
        yield tcusim.plan_product(operation, rows=rows, inner=inner, cols=cols, **asked(**types))
    except Unsupported:
        return


def planned(operation: str, **options: Any) -> Iterator[tcusim.Plan | tcusim.ProductPlan]:
    try:
        yield tcusim.plan(operation, **asked(**options))
    except Unsupported:
        return


@pytest.mark.parametrize("unit", LIMITED, ids=lambda unit: unit.name)
def test_plans_need_no_more_than_their_unit_has(unit: Arch, some: Some) -> None:
    assert unit.shared_kb is not None
    largest: dict[str, Program] = {}
    for plan in plans(unit.name, some, LIMITED.index(unit)):
        for launch in plan.launches:
            program = launch.program
            needed = SharedMemory(program).needed
            assert needed <= 1024 * unit.shared_kb, f"{program.name} in {plan!r}"
            if needed > SharedMemory(largest.setdefault(program.name, program)).needed:
                largest[program.name] = program
    assert largest.keys() >= {
        "reduction_panel", "reduction_single_pass", "scan_panel", "scan_single_pass",
        "reduction_ragged", "reduction_ragged_simt", "scan_ragged", "scan_ragged_simt",
        "gemm", "gemv_reduction",
    }  # fmt: skip
    for program in largest.values():
        assert declared(emit(program)) == SharedMemory(program).needed


DRAWN_TILES = (None, None, "16x16x16", "32x8x16", "8x32x16", "16x8x8", "64x8x16", "16x16x64")
TYPES = ("float16", "float32", "float64", "int8", "int32")


def drawn_plan(rng: np.random.Generator) -> tuple[Arch, tcusim.Plan | tcusim.ProductPlan] | None:
    """Return a plan of a drawn operation, size, type and tile for a unit, if there is one."""
    unit: Arch = LIMITED[rng.integers(len(LIMITED))]
    dtype, tile = rng.choice(TYPES), DRAWN_TILES[rng.integers(len(DRAWN_TILES))]
    options = {"arch": unit.name} | ({} if tile is None else {"tile": tcusim.shape_of(tile)})
    sizes = [int(2 ** rng.uniform(0, 13)) for _ in range(3)]
    length = int(2 ** rng.uniform(0, 26))
    given: dict[str, Any] = {"dtype": str(dtype), "options": options}
    try:
        match rng.integers(6):
            case 0:
                return unit, tcusim.plan_product("matvec", rows=sizes[0], inner=sizes[1], **given)
            case 1:
                rows, inner, cols = sizes
                return unit, tcusim.plan_product(
                    "matmul", rows=rows, inner=inner, cols=cols, **given
                )
            case 2:
                return unit, tcusim.plan("cumsum", length=length, **given)
            case 3:
                many = tcusim.Segments(count=max(1, length // sizes[0]))
                return unit, tcusim.plan("segmented_sum", length=length, segments=many, **given)
            case _:
                size = min(length, int(2 ** rng.uniform(0, 22)))
                return unit, tcusim.plan("segmented_cumsum", length=length, segments=size, **given)
    except Unsupported:
        return None


def test_drawn_plans_need_no_more_than_their_unit_has(some: Some) -> None:
    """A chunk of float64 fills the 64 KB of Turing by itself; other tiles have larger ones."""
    rng = np.random.default_rng(37)
    made = 0
    for found in (drawn_plan(rng) for _ in range(2000 if some.full else 60)):
        if found is not None:
            (unit, plan), made = found, made + 1
            assert unit.shared_kb is not None
            for launch in plan.launches:
                needed = SharedMemory(launch.program).needed
                assert needed <= 1024 * unit.shared_kb, f"{launch.program.name} in {plan!r}"
    assert made > 30


@pytest.mark.parametrize("segments", [None, 2**15, 8192, 30_000])
@pytest.mark.parametrize("exclusive", [False, True])
def test_rows_that_are_scanned_twice_have_the_bits_of_those_that_wait(
    segments: int | None, exclusive: bool
) -> None:
    """A chunk of float64 fits the shared memory of Volta, and not that of Turing."""
    x = np.random.default_rng(3).standard_normal(60_000)
    results, needed = [], []
    for arch in ("volta", "turing"):
        report = Report()
        options = {"arch": arch, "report": report}
        if segments is None:
            y = tcusim.cumsum(x, exclusive=exclusive, options=options)
        else:
            y = tcusim.segmented_cumsum(x, segments, exclusive=exclusive, options=options)
        results.append(y.view(np.int64))
        needed.append(max(SharedMemory(program).needed for program, _ in report.programs))
    np.testing.assert_array_equal(results[0], results[1])
    assert needed[0] > 64 * 1024 >= needed[1]


def test_a_tile_with_too_large_blocks_is_refused() -> None:
    register_arch(unit_of_four("tiny", shared_kb=1))
    with pytest.raises(
        Unsupported,
        match=r"needs [\d,]+ bytes of shared memory for a block, and tiny has 1,024; choose a sm",
    ):
        tcusim.plan("cumsum", length=2**20, options={"arch": "tiny"})


def test_plans_for_units_leave_space_for_the_operands_of_lanes() -> None:
    """Plans for every rule and tile of the gallery, and for a tile that no GPU has."""
    hopper = arch_of("hopper")
    most = 1024 * (hopper.shared_kb or 0)
    units = [unit_of(name) for name in gallery()]
    asked = [(unit.arch, tile) for unit in units for tile in unit.shapes]
    large: dict[str, Program] = {}
    for arch, tile in (*asked, (hopper, tcusim.shape_of("64x64x64"))):
        for rule in arch.rows:
            dtype = dtype_of(rule.ab, rule.acc)
            if dtype is None or not tile.supports(rule.ab, rule.acc):
                continue
            given = {"arch": arch.name, "tile": tile, "acc": "f16" if rule.acc == "f16" else None}
            for plan in planned("cumsum", length=2**24, dtype=dtype, **given):
                for program in (launch.program for launch in plan.launches):
                    needed = SharedMemory(program, lanes=program.uses_mma).needed
                    assert needed <= most, (arch.name, tile.name, program.name, needed)
                    if needed > most // 2 and program.uses_mma:
                        large[arch.name] = program
    assert large.keys() == {"saturn_opu", "hopper"}
    for name, program in large.items():
        kernel = emit(program, rule=rule_of(program, name))
        assert declared(kernel) == SharedMemory(program, lanes=True).needed
    options = {"arch": "hopper", "tile": "64x64x64"}
    with pytest.raises(Unsupported, match="needs 387,584 bytes of shared memory for a block, and"):
        tcusim.plan("cumsum", length=2**24, dtype="float64", options=options)


def test_all_generations_have_a_limit() -> None:
    assert {unit.name: unit.shared_kb for unit in arches() if unit.sm} == {
        "volta": 96, "turing": 64, "ampere": 99, "ada": 99, "hopper": 227, "blackwell": 227,
        "blackwell_rtx": 99,
    }  # fmt: skip


# --- Where the choice differs -------------------------------------------------------------------

SMALLER = "blocks are smaller than usual: {} has {} KB of shared memory for each"


def test_a_unit_of_64_kb_scans_float64_in_smaller_blocks() -> None:
    """As Ampere would with less memory: its own is enough for the usual blocks."""
    ampere = arch_of("ampere")
    register_arch(replace(ampere, name="less", sm=(), aliases=(), recorded=(), shared_kb=64))
    x = np.random.default_rng(0).integers(-9, 10, 2**20).astype(np.float64)
    usual, small = (
        tcusim.plan("cumsum", length=x.size, dtype="float64", options={"arch": arch})
        for arch in ("ampere", "less")
    )
    (one,), (other,) = usual.launches, small.launches
    assert one.program.name == other.program.name == "scan_single_pass"
    assert SharedMemory(one.program).needed > 64 * 1024
    # As large as there is room for: of twice as many elements it would be too large.
    assert 32 * 1024 < SharedMemory(other.program).needed <= 64 * 1024
    assert SMALLER.format("less", 64) in small.rationale
    assert not any("smaller" in line for line in usual.rationale)
    np.testing.assert_array_equal(small(x), x.astype(np.int64).cumsum())


def test_products_of_many_short_rows_have_fewer_warps() -> None:
    rng = np.random.default_rng(1)
    rows, inner = 2**14, 200
    a = rng.integers(-2, 3, (rows, inner)).astype(np.float16)
    x = rng.integers(-2, 3, inner).astype(np.float16)
    small, usual = (
        tcusim.plan_product(
            "matvec", rows=rows, inner=inner, result="float32", options={"arch": name}
        )
        for name in ("turing", "hopper")
    )
    assert (small.launches[0].program.warps, usual.launches[0].program.warps) == (2, 4)
    assert small.rationale[-1].startswith("blocks are smaller than usual: turing has ")
    report = Report()
    result = tcusim.matvec(a, x, dtype=np.float32, options={"arch": "turing", "report": report})
    np.testing.assert_array_equal(result, a.astype(np.float64) @ x)
    assert [program for program, _ in report.programs] == [small.launches[0].program]


def unit_of_four(name: str, **memory: Any) -> Arch:
    """Return a new unit, as a user might write it."""
    rule = Rule("f16", "f32", Fused(length=4, fraction_bits=24), "invented", "invented")
    return Arch(name, "four products a step", (), (), (rule,), source="invented", **memory)


def test_a_unit_of_unknown_memory_has_the_usual_blocks() -> None:
    register_arch(unit_of_four("unknown"))
    for operation in ("sum", "cumsum"):
        mine, usual = (
            tcusim.plan(operation, length=2**24, options={"arch": arch})
            for arch in ("unknown", "hopper")
        )
        assert [one.program for one in mine.launches] == [one.program for one in usual.launches]
        assert mine.rationale == usual.rationale


def test_a_unit_of_little_memory_has_fewer_warps() -> None:
    register_arch(unit_of_four("little", shared_kb=12))
    why = SMALLER.format("little", 12)
    x = np.random.default_rng(2).integers(-9, 10, 2**18).astype(np.float16)
    for algorithm in ("scan_panel", "scan_tn"):
        made = tcusim.plan(
            "segmented_cumsum",
            length=x.size,
            segments=1000,
            result="float32",
            options={"arch": "little", "algorithm": algorithm},
        )
        (launch,) = made.launches
        assert launch.program.name == algorithm
        assert launch.program.warps == {"scan_panel": 1, "scan_tn": 2}[algorithm]
        assert declared(emit(launch.program)) <= 12 * 1024
        assert why in made.rationale
        expected = np.concatenate([x[at : at + 1000].cumsum() for at in range(0, x.size, 1000)])
        np.testing.assert_array_equal(made(x), expected.astype(np.float32))
    product = tcusim.plan_product("matmul", rows=100, inner=50, cols=90, options={"arch": "little"})
    assert declared(emit(product.launches[0].program)) <= 12 * 1024
    a, b = x[:5000].reshape(100, 50), x[5000:9500].reshape(50, 90)
    np.testing.assert_array_equal(product(a, b), a.astype(np.float64) @ b)
    assert product.rationale[-1] == why


def test_a_unit_must_have_some_memory() -> None:
    with pytest.raises(InputError, match="'none': shared_kb, if it is known, must be an integer"):
        unit_of_four("none", shared_kb=0)
