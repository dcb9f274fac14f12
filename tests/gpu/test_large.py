"""Whole grids of blocks: 2**24 + 5 elements give the simulator's bits on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcusim
from tcusim.algorithms import Level, algorithm_of, segmented_algorithms
from tcusim.backends import why_unavailable
from tcusim.errors import Unsupported
from tcusim.judge.correctness.testing import outputs_agree, random_inputs

LENGTH = 2**24 + 5
# Tile, operands, accumulator, source.
TYPES = [
    ("16x16x16", "f16", "f32", None),
    ("32x8x16", "f16", "f32", None),
    ("8x32x16", "f16", "f32", None),
    ("16x16x16", "f16", "f16", None),
    ("16x16x16", "bf16", "f32", None),
    ("16x16x16", "bf16", "f32", "f32"),
    ("16x16x8", "tf32", "f32", None),
    ("16x16x16", "s8", "s32", None),
    ("16x8x16", "f16", "f32", None),
]

pytestmark = [pytest.mark.gpu(min_sm=80), pytest.mark.slow]


@pytest.mark.parametrize("types", TYPES, ids=lambda types: " ".join(filter(None, types)))
@pytest.mark.parametrize("algorithm", [row.name for row in segmented_algorithms() if row.uses_mma])
def test_a_long_array(algorithm: str, types: tuple[str, str, str, str | None]) -> None:
    shape, ab, acc, source = types
    short = algorithm in ("reduction_k", "scan_k")
    options: dict[str, Any] = {
        "tile": shape,
        "ab": ab,
        "acc": acc,
        "source": source,
        "segment_size": 7 if short else 100 if algorithm.endswith("_t") else 1000,
        "combine": "add" if acc != "f16" else "mma",
        "accumulation_length": 16,
    }
    if algorithm_of(algorithm).level is Level.GRID:
        # The whole array in groups of blocks that pass on their totals.
        options |= {"segment_size": None, "combine": "add"}
    try:
        program = tcusim.build(algorithm, masked=True, warps=4, **options)
    except Unsupported as error:
        pytest.skip(str(error))
    kind = "integers" if ab == "s8" else "normal"
    inputs = random_inputs(program, kind, LENGTH, np.random.default_rng(LENGTH))
    expected = tcusim.run(program, inputs)
    for backend in ("cuda", "pycuda", "cupy"):
        if why_unavailable(backend) is None:
            outputs = tcusim.run(program, inputs, backend=backend, poison=True)
            assert outputs_agree(program, expected, outputs), backend
