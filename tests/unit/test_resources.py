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
from tcusim.arrays.functions import Report
from tcusim.errors import InputError, Unsupported
from tcusim.machine import Arch, Fused, Rule, arch_of, arches, format_of, register_arch
from tcusim.machine.multiprocessors import STATIC_SHARED_BYTES
from tcusim.program.grammar import Program
from tcusim.program.resources import SharedMemory
from tcusim_cuda.emit import emit
from tcusim_cuda.kernel import Kernel
from tcusim_cuda.text import C_TYPES

LIMITED = [unit for unit in arches() if unit.shared_kb is not None]
BYTES = {kind: format_of(dtype).itemsize for dtype, kind in C_TYPES.items()}
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
        # Literal to the paper, which takes tile after tile.
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
    x = np.random.default_rng(0).integers(-9, 10, 2**22).astype(np.float64)
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
