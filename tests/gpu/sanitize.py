"""Run many kernels once, small, for NVIDIA's compute-sanitizer to watch.

Every algorithm in several forms; the launches of plans for segments by offsets, with sizes at which
long arrays are cut, and for segments of odd sizes; and the public functions, which look at offsets
in GPU memory.

Usage, on a machine with a GPU, CuPy and compute-sanitizer, from the repository's root::

    python tests/gpu/sanitize.py compile
    compute-sanitizer --tool memcheck --error-exitcode 9 python tests/gpu/sanitize.py run

and likewise with the tools racecheck, initcheck and synccheck. ``run I N`` takes every N-th kernel
from number I on, so that several processes can share the work, and ``run I N Locate Prefix`` those
that have one of these steps. The first line fills the cache of compiled kernels, which would take
long under the sanitizer; steps may be named there, too.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import cupy
import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "backends")]

import tcusim  # noqa: E402
from tcusim.algorithms import (  # noqa: E402
    Algorithm,
    Level,
    algorithm_of,
    algorithms,
    segmented_algorithms,
)
from tcusim.algorithms.builder import adds_rows  # noqa: E402
from tcusim.algorithms.norm import rms_norm  # noqa: E402
from tcusim.algorithms.order import Order  # noqa: E402
from tcusim.algorithms.rows import CHUNK_PANELS, PANEL_ROWS  # noqa: E402
from tcusim.arrays.planner import choose  # noqa: E402
from tcusim.arrays.problem import Problem, Types  # noqa: E402
from tcusim.arrays.tuning import tuning_of  # noqa: E402
from tcusim.errors import Unsupported  # noqa: E402
from tcusim.judge.correctness.testing import random_inputs  # noqa: E402
from tcusim.machine.formats import format_of  # noqa: E402
from tcusim.machine.shapes import shape_of  # noqa: E402
from tcusim.program.grammar import Program, walk  # noqa: E402
from tcusim.program.launches import LaunchPlan  # noqa: E402
from tcusim.program.resources import SharedMemory  # noqa: E402
from tcusim_cuda import CUDA, arch_name, compile_kernel, device_sm, emit  # noqa: E402

# Tile, operands, accumulator, and a source that is split.
TYPES = (
    ("16x16x16", "f16", "f32", None),
    ("32x8x16", "f16", "f32", None),
    ("8x32x16", "f16", "f16", None),
    ("16x16x16", "bf16", "f32", "f32"),
    ("8x8x4", "f64", "f64", None),
    ("16x16x16", "s8", "s32", None),
    ("16x8x16", "f16", "f32", None),
    ("16x16x8", "tf32", "f32", None),
    # Added without products.
    ("16x16x16", "f32", "f32", None),
    ("16x16x16", "f16", "f64", None),
)
# Shared memory of a block of the GPUs that this runs on.
MOST_BYTES = 227 * 1024
# Any length, segment size, warps, tiles.
FORMS = ((False, None, 1, 1), (True, 100, 4, 2), (True, 1000, 2, 1))


@cache
def programs() -> list[Program]:
    """Return a program of every algorithm for all types and forms that go together."""
    found = []
    for (shape, ab, acc, source), row, combine, form in product(
        TYPES, segmented_algorithms(), ("mma", "add"), FORMS
    ):
        if not _has(row, ab, acc):
            continue
        masked, segment_size, warps, tiles = form
        # Few rows a warp, so that several blocks share a segment; each order of a scan in turn.
        special: dict[str, Any] = {"panels": 1, "columns": 4}
        special |= {"exclusive": segment_size == 100, "reverse": segment_size == 1000}
        try:
            program = tcusim.build(
                row.name,
                tile=shape,
                ab=ab,
                acc=acc,
                source=source if row.uses_mma else acc,
                segment_size=segment_size,
                combine=combine,
                masked=masked,
                # Eight warps of a scan take a chunk of rows.
                warps=8 if row.level is Level.GRID else warps,
                items_per_warp=tiles,
                **{name: value for name, value in special.items() if name in row.options},
            )
        except Unsupported:
            continue
        found.append(program)
    # Of rows of many tiles with wide elements, blocks are too large for any GPU.
    return [one for one in (*found, *_others()) if SharedMemory(one).needed <= MOST_BYTES]


def _others() -> Iterator[Program]:
    """Yield programs of irregular segments, of products, and of segments of several groups."""
    rows = [row for row in algorithms() if row not in segmented_algorithms()]
    for columns, dtype in product((100, 1024), ("f16", "bf16", "f32")):
        yield rms_norm(columns, dtype, weight=dtype if columns == 1024 else None)
    for (shape, ab, acc, source), row, warps in product(TYPES, rows, (1, 4)):
        if not _has(row, ab, acc):
            continue
        special: dict[str, Any] = {"segment_size": 32}
        if row.kind == "product":
            special = {"inner": 72, "cols": 24, "add_c": warps == 4, "share_rows": warps == 4}
            special = {name: value for name, value in special.items() if name in row.options}
        try:
            yield tcusim.build(
                row.name,
                tile=shape,
                ab=ab,
                acc=acc,
                source=source if row.uses_mma else acc,
                warps=warps,
                **special,
            )
        except Unsupported:
            continue
    for (shape, ab, acc, source), reverse in product(TYPES, (False, True)):
        if not _has(algorithm_of("scan_single_pass"), ab, acc):
            continue
        # Three groups of two blocks; the last has half a block.
        size = 9 * CHUNK_PANELS * PANEL_ROWS * shape_of(shape).k + 1
        try:
            yield tcusim.build(
                "scan_single_pass",
                tile=shape,
                ab=ab,
                acc=acc,
                source=source,
                segment_size=size,
                warps=8,
                columns=2,
                reverse=reverse,
            )
        except Unsupported:
            continue


def _has(row: Algorithm, ab: str, acc: str) -> bool:
    """Return whether an algorithm has programs of this type."""
    return row.adds_rows or not adds_rows(ab, acc)


# --- Segments by offsets --------------------------------------------------------------------------

# Few, many, long and empty ones; chunks that follow each other and others.
LENGTHS = {
    "short": [3, 0, 17, 1, 20] * 60,
    "one giant": [16] * 70 + [400_000] + [16] * 70,
    "two groups": [5, 1_200_000],
    "long": [1500, 2999, 1024, 1, 2048],
    "empty": [0] * 90,
}
SUMMED = (
    ("f16", "f16", "f32", "f32"),
    ("f16", "f16", "f32", "f16"),
    ("f32", "f32", "f32", "f32"),
    ("f64", "f64", "f64", "f64"),
)


@cache
def plans() -> list[tuple[LaunchPlan, str]]:
    """Return plans for segments of these lengths, cut as those of long arrays are."""
    usual = tuning_of("hopper")
    tuning = replace(usual, many_elements=1, ragged=replace(usual.ragged, few_values=1))
    found = []
    for (ab, source, acc, result), (name, lengths), order in product(
        SUMMED, LENGTHS.items(), (None, Order(), Order(exclusive=True, reverse=True))
    ):
        problem = Problem(
            types=Types(ab=ab, acc=acc, source=source, result=result),
            tile=shape_of("8x8x4" if ab == "f64" else "16x16x16"),
            arch=arch_name(device_sm()),
            kind="reduction" if order is None else "scan",
            length=sum(lengths),
            order=order or Order(),
            by_offsets=len(lengths),
        )
        found.append((choose(problem, f"{name} segments of {source}", tuning).plan, name))
    return [*found, *_of_one_size()]


# Segments that begin at single elements, exact sums of more than float64 holds, several groups.
SIZES = (
    *((129, "f16", "f32"), (999, "f16", "f32"), (3001, "bf16", "f32"), (9001, "f16", "f32")),
    *((333, "s8", "s32"), (999, "f16", "f64"), (20_480, "f16", "f64"), (9973, "f16", "f64")),
)


def _of_one_size() -> Iterator[tuple[LaunchPlan, str]]:
    """Yield plans for segments of one size; the last one is shorter."""
    for (size, ab, acc), kind, order in product(
        SIZES, ("reduction", "scan"), (Order(), Order(exclusive=True, reverse=True))
    ):
        name = f"segments of {size} {ab} to {acc}"
        problem = Problem(
            types=Types(ab, acc, ab, ab if ab != "s8" else acc),
            tile=shape_of("16x16x16"),
            arch=arch_name(device_sm()),
            kind=kind,
            length=5 * size - 3,
            segment_size=size,
            order=order,
        )
        if kind == "scan" or order == Order():
            yield choose(problem, name).plan, name


def launch(plan: LaunchPlan, name: str) -> None:
    """Launch a plan for segments of these lengths, or of one size."""
    memory = plan.memory["in"]
    # Small integers: every type has them.
    x = np.random.default_rng(0).integers(-4, 5, memory.size)
    given = {"in": x.astype(format_of(memory.dtype).dtype)}
    if "offsets" in plan.inputs:
        given["offsets"] = np.cumsum([0, *LENGTHS[name]])
    CUDA.run(plan, given)


# --- Public functions -----------------------------------------------------------------------------


def call(dtype: str, words: str) -> None:
    """Sum and scan segments of an array in GPU memory, with offsets and ids there."""
    offsets = np.cumsum([0, *LENGTHS["short"]]).astype(words)
    ids = np.repeat(np.arange(offsets.size - 1), np.diff(offsets)).astype(words)
    x = cupy.ones(int(offsets[-1]), dtype)
    places: list[dict[str, Any]] = [
        {"segments": cupy.asarray(offsets)},
        {"segments": tcusim.Segments(ids=cupy.asarray(ids))},
    ]
    for place in places:
        tcusim.segmented_sum(x, **place)
        tcusim.segmented_cumsum(x, **place)
    tcusim.segmented_cumsum(cupy.stack([x, x], axis=1), **places[0], axis=0)


CALLS = tuple(product(("float16", "float32", "float64", "int8"), ("int32", "int64")))


# --- All of them ----------------------------------------------------------------------------------


def with_steps(names: tuple[str, ...]) -> list[Program]:
    """Return the programs that have one of these steps, all if none is named."""

    def has(program: Program) -> bool:
        return any(type(step).__name__ in names for _, step in walk(program.steps))

    return [program for program in programs() if not names or has(program)]


@cache
def kernels(names: tuple[str, ...]) -> list[Program]:
    """Return the programs that have one of these steps, and those of plans."""
    launches = [launch.program for plan, _ in plans() for launch in plan.launches]
    return list(dict.fromkeys([*with_steps(names), *launches]))


def compile_one(work: tuple[int, tuple[str, ...]]) -> None:
    """Put the machine code of one program into the cache."""
    number, names = work
    compile_kernel(emit(kernels(names)[number]), device_sm())


def compile_all(names: tuple[str, ...]) -> None:
    """Fill the cache, in several processes."""
    count = len(kernels(names))
    # A forked process could not use objects opened here on the GPU.
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        list(pool.map(compile_one, [(number, names) for number in range(count)], chunksize=4))
    for dtype, words in CALLS:
        call(dtype, words)
    print(f"compiled {count} kernels")


def run(first: int, step: int, names: tuple[str, ...]) -> None:
    """Launch every `step`-th program, plan and call from `first` on."""
    chosen = with_steps(names)[first::step]
    for program in chosen:
        multiple = program.scalars[0].multiple_of
        length = 2 * multiple if multiple > 1 else 37 if program.scalars[0].name == "rows" else 1237
        kind = "normal" if program.ab != "s8" else "integers"
        tcusim.run(
            program,
            random_inputs(program, kind, length, np.random.default_rng(0)),
            backend=CUDA,
        )
    for plan, name in plans()[first::step]:
        launch(plan, name)
    for dtype, words in CALLS[first::step]:
        call(dtype, words)
    counts = len(chosen), *(len(some[first::step]) for some in (plans(), CALLS))
    print("ran {} programs, {} plans and {} calls".format(*counts))


if __name__ == "__main__":
    if sys.argv[1:2] == ["compile"]:
        compile_all(tuple(sys.argv[2:]))
    elif sys.argv[1:2] == ["run"]:
        first, step = map(int, sys.argv[2:4] if len(sys.argv) > 3 else ("0", "1"))
        run(first, step, tuple(sys.argv[4:]))
    else:
        sys.exit(__doc__)
