"""Every program compiles, without a GPU, and its machine code really uses the tensor cores."""

from __future__ import annotations

from typing import Any

import pytest

import tcusim
from some import marked
from tcusim.algorithms import Level, algorithm_of, segmented_algorithms
from tcusim_cuda.compile import Toolkit, compile_kernel, why_no_compiler
from tcusim_cuda.cubin import Usage
from tcusim_cuda.emit import emit
from tcusim_cuda.integers import KERNELS, kernel_of
from tcusim_cuda.kernel import AnyKernel

WMMA_SHAPES = ("16x16x16", "32x8x16", "8x32x16")
ALGORITHMS = [row.name for row in segmented_algorithms()]

# Instructions of the machine for one mma: shape, types, and by compute capability how many.
# Source: shown by cuobjdump (sm_75 and newer) and by nvdisasm 12.8 (sm_70).
TILES: dict[str, tuple[dict[str, Any], dict[int, tuple[str, int]]]] = {
    "f16 to f32": (
        {},
        {
            75: ("HMMA", 4),
            80: ("HMMA", 2),
            89: ("HMMA", 2),
            90: ("HMMA", 2),
            100: ("HMMA", 2),
            120: ("HMMA", 2),
        },
    ),
    "f16 to f16": ({"acc": "f16"}, {75: ("HMMA", 4), 80: ("HMMA", 2), 90: ("HMMA", 2)}),
    "bf16": ({"ab": "bf16"}, {80: ("HMMA", 2), 90: ("HMMA", 2)}),
    "tf32": ({"ab": "tf32", "tile": "16x16x8"}, {80: ("HMMA", 4), 90: ("HMMA", 4)}),
    "s8": ({"ab": "s8", "acc": "s32"}, {75: ("IMMA", 4), 80: ("IMMA", 2), 90: ("IMMA", 2)}),
    "mma.sync k16": ({"tile": "16x8x16"}, {80: ("HMMA", 1), 90: ("HMMA", 1)}),
    "mma.sync k8": ({"tile": "16x8x8"}, {75: ("HMMA", 1), 90: ("HMMA", 1)}),
    "grid": ({"tile": tcusim.MmaShape(32, 32, 32)}, {80: ("HMMA", 2), 90: ("HMMA", 2)}),
}


@pytest.fixture(scope="module", autouse=True)
def compiler() -> None:
    reason = why_no_compiler()
    if reason is not None:
        pytest.skip(reason)


def compiled(kernel: AnyKernel, sm: int) -> Usage:
    if sm not in Toolkit.find().targets:
        pytest.skip(f"{Toolkit.find().title} does not compile for sm_{sm}")
    cubin = compile_kernel(kernel, sm)
    assert cubin.sm == sm
    return cubin.usage


# Every algorithm in every shape, with one accumulator after the other.
@pytest.mark.parametrize(
    ("algorithm", "shape", "acc"),
    [
        case
        for number, algorithm in enumerate(ALGORITHMS)
        for case in marked(
            [
                (algorithm, shape, ("f32", "f16")[(number + turn) % 2])
                for turn, shape in enumerate(WMMA_SHAPES)
            ],
            step=3,
            start=number,
        )
    ],
)
def test_a_v100_runs_every_algorithm_on_its_tensor_cores(
    algorithm: str, shape: str, acc: str
) -> None:
    # Blocks that share a segment have several warps; one alone would hold more than its registers.
    warps = 4 if algorithm_of(algorithm).level is Level.GRID else 1
    kernel = emit(tcusim.build(algorithm, tile=shape, acc=acc, warps=warps))
    usage = compiled(kernel, 70)
    each = 16 if acc == "f32" else 8
    expected = {"HMMA.884": each * kernel.products} if kernel.products else {}
    assert usage.tensor_core == expected
    assert usage.stack_bytes == 0
    assert (kernel.products > 0) == (not algorithm.endswith("simt"))


# A reduction and a scan, one after the other.
@pytest.mark.parametrize(
    ("tile", "sm", "algorithm"),
    [
        case
        for number, (tile, sm) in enumerate(
            (tile, sm) for tile, (_, counts) in TILES.items() for sm in counts
        )
        for case in marked([(tile, sm, name) for name in ("reduction_kn", "scan_k")], 2, number)
    ],
)
def test_newer_gpus(tile: str, sm: int, algorithm: str) -> None:
    options, counts = TILES[tile]
    kernel = emit(tcusim.build(algorithm, **options))
    name, each = counts[sm]
    usage = compiled(kernel, sm)
    assert usage.tensor_core == {name: each * kernel.products}
    assert usage.stack_bytes == 0


@pytest.mark.parametrize(
    ("size", "dtype", "sm"),
    marked(
        [(size, t, sm) for size in (None, 100, 2**20) for t in ("f16", "f32") for sm in (70, 90)], 5
    ),
)
def test_scans_with_initial_values_compile(size: int | None, dtype: str, sm: int) -> None:
    name, warps = ("scan_panel", 4) if size == 100 else ("scan_single_pass", 8)
    common: dict[str, Any] = {"segment_size": size, "warps": warps, "ab": dtype, "source": dtype}
    common |= {"masked": True, "combine": "add", "reverse": sm == 90}
    usage, without = (
        compiled(emit(tcusim.build(name, carry=carry, **common)), sm) for carry in (True, False)
    )
    assert usage.stack_bytes == 0
    # The value is read by one warp: registers and shared memory are about unchanged.
    assert usage.registers <= without.registers + 16
    assert usage.shared_bytes <= without.shared_bytes + 1024


def test_a_large_ragged_program_compiles() -> None:
    program = tcusim.build(
        "scan_tn", masked=True, segment_size=5000, warps=8, combine="add", result="f16"
    )
    assert compiled(emit(program), 90).tensor_core["HMMA"] > 0


@pytest.mark.parametrize("sm", [75, 90, 100])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("name", KERNELS)
def test_kernels_written_by_hand(name: str, dtype: str, sm: int) -> None:
    usage = compiled(kernel_of(name, dtype), sm)
    assert usage.stack_bytes == 0
    # A multiprocessor takes 2048 threads of so many, and eight blocks of so much shared memory.
    assert usage.registers <= 32
    assert 8 * usage.shared_bytes <= 2**16
