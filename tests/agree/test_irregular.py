"""Irregular segments: the emitted text, run on the CPU, gives the bits of the simulator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from launch_plans import launch_plan
from some import Some, marked
from tcusim.algorithms import algorithms, build
from tcusim.algorithms.order import FORWARD, Order
from tcusim.backends import Backend, run
from tcusim.judge.correctness.agreement import agree
from tcusim.judge.correctness.cases import COLUMNS, CaseGrid
from tcusim.judge.correctness.testing import assert_agree
from tcusim.machine.shapes import shape_of
from tcusim.program.checks.in_place import in_place
from tcusim.program.grammar import (
    BLOCK,
    Assign,
    Axis,
    Buffer,
    BufferRole,
    Extent,
    Gathered,
    Index,
    Locate,
    Program,
    Ranges,
    Scalar,
    Segments,
    Strided,
    View,
)
from tcusim_cuda.emit import emit
from tcusim_host import compile_programs
from tcusim_host import run as host_run

Array = NDArray[Any]


def by_offsets(
    kind: str, x: Array, offsets: Array, *, arch: str = "hopper", **changes: Any
) -> tuple[Array, list[str]]:
    """Run a plan's launches on the simulator and on the host, and compare the bits of each.

    Return the result, and the names of the programs. Nothing here looks at the offsets.
    """
    plan = launch_plan(kind, x.size, segments=offsets.size - 1, **changes)
    arrays = {"in": x, "offsets": offsets}
    for launch in plan.launches:
        inputs = {buffer: arrays[name] for buffer, name in launch.inputs.items()}
        made = assert_agree(launch.program, inputs, arch=arch)
        arrays.update((name, made[buffer]) for buffer, name in launch.outputs.items())
    return arrays["out"], [launch.program.name for launch in plan.launches]


@pytest.mark.parametrize("arch", ["volta", "hopper"])
def test_grid(arch: str, host: Backend, some: Some) -> None:
    """Every shape and type, with special values, an eighth as many segments as elements."""
    names = [row.name for row in algorithms() if row.kind.startswith("irregular")]
    assert len(names) == 4
    # Every sixth tile and types: of a row, the other GPU takes others.
    columns = tuple(some(COLUMNS, 6, 1 if arch == "volta" else 0))
    grid = CaseGrid(names, columns)
    compile_programs(recipe.build() for recipe in grid.recipes())
    report = agree(grid, arch=arch)
    assert report.ok, report.summary()
    assert list(dict.fromkeys(name for name, _ in report.tallies)) == names
    share = len(columns) / len(COLUMNS)
    assert len(report.tallies) >= share * (16 if arch == "volta" else 50)


def segments(seed: int, giant: int = 9000) -> tuple[Array, NDArray[np.int64]]:
    """Return numbers in tiny, empty and giant segments, and their offsets."""
    rng = np.random.default_rng(seed)
    tiny = rng.integers(0, 4, 100)
    lengths = [0, *tiny[:50], giant, *tiny[50:], 300, 0]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return rng.standard_normal(offsets[-1]), offsets


@pytest.mark.parametrize("shape", ["16x16x16", "8x32x16"])
@pytest.mark.parametrize("arch", ["volta", "hopper"])
def test_sums_and_scans(arch: str, shape: str, host: Backend) -> None:
    x, offsets = segments(len(arch))
    x = x.astype(np.float16)
    _, names = by_offsets("reduction", x, offsets, arch=arch, tile=shape_of(shape))
    assert names == ["reduction_ragged", "reduction_ragged_simt", "reduction_ragged_simt"]
    for order in (FORWARD, Order(exclusive=True, reverse=True)):
        _, names = by_offsets("scan", x, offsets, arch=arch, tile=shape_of(shape), order=order)
        assert set(names) == {
            "reduction_ragged", "reduction_ragged_simt", "scan_ragged_simt", "scan_ragged",
        }  # fmt: skip


@pytest.mark.parametrize(
    ("dtype", "changes"),
    [
        (np.float32, {"types": ("f32", "f32", "f32", "f32")}),
        (np.float64, {"types": ("f64", "f64", "f64", "f64"), "tile": shape_of("8x8x4")}),
        (np.int8, {"types": ("s8", "s32", "s8", "s32")}),
        (np.uint8, {"types": ("u8", "s32", "u8", "s64")}),
    ],
)
def test_other_types(dtype: Any, changes: dict[str, Any], host: Backend) -> None:
    x, offsets = segments(3)
    x = np.abs(x) if dtype is np.uint8 else x
    for kind in ("reduction", "scan"):
        by_offsets(kind, (9 * x).astype(dtype), offsets, **changes)


def test_no_elements_no_segments_and_elements_of_no_segment(host: Backend) -> None:
    nothing = np.zeros(0, np.float16)
    none, empty = np.zeros(1, np.int64), np.zeros(4, np.int64)
    assert by_offsets("reduction", nothing, none)[0].size == 0
    assert by_offsets("reduction", nothing, empty)[0].tolist() == [0, 0, 0]
    assert by_offsets("scan", nothing, empty)[0].size == 0
    ones = np.ones(5000, np.float16)
    inner = np.array([1700, 1703, 4000], np.int64)
    assert by_offsets("reduction", ones, inner)[0].tolist() == [3, 2297]


def test_bad_offsets_reach_no_other_memory(host: Backend) -> None:
    """The host refuses an access outside an array: there is none, for any offsets."""
    rng = np.random.default_rng(6)
    x = np.ones(700, np.float16)
    sums = np.ones(700 // 16 + 30, np.float32)
    for name, inputs, options in (
        ("reduction_ragged", {"in": x}, {"segment_size": 16}),
        ("reduction_ragged", {"in": x}, {"segment_size": 700, "whole": True}),
        ("scan_ragged", {"in": x}, {"segment_size": 16}),
        ("reduction_ragged_simt", {"in": sums}, {"segment_size": 32, "levels": (16,)}),
        ("scan_ragged_simt", {"in": sums}, {"segment_size": 64, "whole": True, "levels": (16,)}),
    ):
        source = "f16" if inputs["in"] is x else "f32"
        program = build(name, source=source, combine="add", **options)
        for most in (900, 10**12):
            offsets = rng.integers(-most, most, 31)
            run(program, {**inputs, "offsets": offsets}, backend="host", arch="hopper")


@pytest.mark.parametrize("name", ["reduction_ragged_simt", "scan_ragged_simt"])
@pytest.mark.parametrize("shift", [6, 8, 13])
def test_offsets_of_more_elements_than_there_are_data(name: str, shift: int, host: Backend) -> None:
    """Those of 2**29, 2**31 and 2**36 elements, cut twice: 30 bits hold the first of them."""
    program = build(name, source="f32", segment_size=32, levels=(1024, 2**shift))
    starts = np.array([0, 5, 70, 71, 100, 4000, 8192]) * (1024 << shift)
    offsets = starts + np.array([0, 3, 0, 1, 0, 7, 0])
    count = -(-int(offsets[-1]) // (1024 << shift)) + 2 * len(offsets)
    x = np.random.default_rng(shift).standard_normal(count).astype(np.float32)
    assert_agree(program, {"in": x, "offsets": offsets}, backends=("numpy", host), arch="hopper")


@pytest.mark.parametrize("name", ["reduction_ragged", "scan_ragged"])
@pytest.mark.parametrize("dtype", ["f16", "s8"])
def test_whole_chunks_lie_anywhere(name: str, dtype: str, host: Backend) -> None:
    """Elements of one segment move together, from any vector and byte."""
    acc = "s32" if dtype == "s8" else "f32"
    result = {"scan_ragged f16": "f16"}.get(f"{name} {dtype}", acc)
    program = build(name, ab=dtype, acc=acc, result=result, segment_size=32, items_per_warp=4)
    rng = np.random.default_rng(0)
    for start in range(17):
        offsets = np.array([0, start, start + 9000, 9100])
        x = (8 * rng.standard_normal(9100)).astype(np.int8 if dtype == "s8" else np.float16)
        assert_agree(
            program, {"in": x, "offsets": offsets}, backends=("numpy", host), arch="hopper"
        )


@pytest.fixture
def in_one_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let kernels on the host write `out` over `in`."""
    slots = host_run._argument_slots

    def over(kernel: Any, buffers: dict[str, Any], scalars: dict[str, int]) -> Any:
        buffers["out"] = buffers["in"]
        return slots(kernel, buffers, scalars)

    monkeypatch.setattr(host_run, "_argument_slots", over)
    # It also asks that no input be written to.
    monkeypatch.setattr(host_run, "_check_guards", lambda *given: None)


@pytest.mark.usefixtures("in_one_memory")
@pytest.mark.parametrize("reverse", marked([True, False], 2))
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("scan_ragged", {"segment_size": 48, "carry": True, "source": "f16", "result": "f16"}),
        ("scan_ragged", {"segment_size": 1040, "whole": True, "ab": "f32", "source": "f32"}),
        ("scan_ragged_simt", {"segment_size": 32, "carry": True, "exclusive": True,
                               "source": "f32"}),
    ],
)  # fmt: skip
def test_scans_in_place(name: str, options: dict[str, Any], reverse: bool, host: Backend) -> None:
    """Lanes run in any order, and blocks one by one, so the input of a later one is unchanged."""
    x, offsets = segments(5, giant=1000)
    program = build(name, masked=True, reverse=reverse, combine="add", warps=2, **options)
    assert in_place(program) is None
    inputs = {"in": x.astype(options["source"].replace("f", "float")), "offsets": offsets}
    for buffer in program.inputs[2:]:
        count = buffer.size.evaluate({"length": x.size, "segments": offsets.size - 1})
        inputs[buffer.name] = np.random.default_rng(0).standard_normal(count).astype(np.float32)
    expected = run(program, inputs)["out"]
    for seed in range(3):
        found = host_run.run_kernel(emit(program).aliased(), inputs, seed=seed)["out"]
        assert found.tobytes() == expected.tobytes()


def test_a_single_line_has_no_symbol(host: Backend) -> None:
    """The emitted text of a rectangle of one row has no loop over rows, and names no row."""
    count = Index.symbol("segments")
    data, offsets = (
        Buffer("in", "f32", Extent(Index.symbol("length")), BufferRole.INPUT),
        Buffer("offsets", "s64", Extent(count + 1), BufferRole.INPUT),
    )
    out = Buffer("out", "f32", Extent(count * 4), BufferRole.OUTPUT)
    ranges = Ranges("one", 1)
    for down in (False, True):
        size = (4, 1) if down else (1, 4)
        axes: tuple[Axis, Axis] = (Gathered(ranges), Strided(4, 1))
        if down:
            axes = axes[1], axes[0]
        program = Program(
            name="first_four",
            shape=shape_of("16x16x16"),
            ab="f16",
            acc="f32",
            scalars=(Scalar("length"), Scalar("segments")),
            buffers=(data, offsets, out),
            blocks=Extent(count),
            warps=1,
            steps=(
                Locate(ranges, Segments(offsets), BLOCK),
                Assign(View.strided(out, BLOCK * 4, *size, 1, 1), View(data, Index(), *axes)),
            ),
        )
        assert "one_begin[0]" in emit(program).text
        inputs = {"in": np.arange(9, dtype=np.float32), "offsets": np.array([0, 2, 9], np.int64)}
        assert assert_agree(program, inputs)["out"].tolist() == [0, 1, 0, 0, 2, 3, 4, 5]
