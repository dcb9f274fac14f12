"""Run many kernels once, small, for NVIDIA's compute-sanitizer to watch.

Usage, on a machine with a GPU, CuPy and compute-sanitizer, from the repository's root::

    python tests/gpu/sanitize.py compile
    compute-sanitizer --tool memcheck --error-exitcode 9 python tests/gpu/sanitize.py run

and likewise with the tools racecheck, initcheck and synccheck. ``run I N`` takes every N-th kernel
from number I on, so that several processes can share the work. The first line fills the cache of
compiled kernels, which would take long under the sanitizer.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "backends")]

import tcusim  # noqa: E402
from tcusim.algorithms import Level, algorithms, segmented_algorithms  # noqa: E402
from tcusim.check.testing import random_inputs  # noqa: E402
from tcusim.errors import Unsupported  # noqa: E402
from tcusim.program.grammar import Program  # noqa: E402
from tcusim.program.resources import SharedMemory  # noqa: E402
from tcusim_cuda import CUDA, compile_kernel, device_sm, emit  # noqa: E402

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
    """Yield programs of irregular segments and of products."""
    rows = [row for row in algorithms() if row not in segmented_algorithms()]
    for (shape, ab, acc, source), row, warps in product(TYPES, rows, (1, 4)):
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


def compile_one(number: int) -> None:
    """Put the machine code of one program into the cache."""
    compile_kernel(emit(programs()[number]), device_sm())


def compile_all() -> None:
    """Fill the cache, in several processes."""
    count = len(programs())
    with ProcessPoolExecutor() as pool:
        list(pool.map(compile_one, range(count), chunksize=8))
    print(f"compiled {count} kernels")


def run(first: int, step: int) -> None:
    """Launch every `step`-th program from `first` on."""
    chosen = programs()[first::step]
    for program in chosen:
        multiple = program.scalars[0].multiple_of
        length = 2 * multiple if multiple > 1 else 37 if program.scalars[0].name == "rows" else 1237
        kind = "normal" if program.ab != "s8" else "integers"
        tcusim.run(
            program,
            random_inputs(program, kind, length, np.random.default_rng(0)),
            backend=CUDA,
        )
    print(f"ran {len(chosen)} kernels")


if __name__ == "__main__":
    if sys.argv[1:2] == ["compile"]:
        compile_all()
    elif sys.argv[1:2] == ["run"]:
        run(*(map(int, sys.argv[2:4]) if len(sys.argv) > 3 else (0, 1)))
    else:
        sys.exit(__doc__)
