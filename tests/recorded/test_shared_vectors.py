"""The simulator returns every recorded bit of the full sets, where those are at hand."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(
    os.environ.get("TCUSIM_SHARED_DATA")
    or Path(__file__).resolve().parents[2].parent / "shared" / "data"
)
TILES = FOLDER / "wmma_h200.npz"
VECTORS = FOLDER / "fused_step_vectors.npz"

pytestmark = pytest.mark.skipif(
    not (TILES.exists() and VECTORS.exists()),
    reason=f"the full recorded sets are not in {FOLDER} (set TCUSIM_SHARED_DATA to their folder)",
)


@pytest.mark.parametrize("element", ["f32", "f16", "bf16", "tf32", "f64", "s8"])
def test_every_tile_of_an_h200(element: str, compare_tiles: Callable[..., int]) -> None:
    with np.load(TILES) as archive:
        cases = sorted({key[:-2] for key in archive.files if key.split("_")[0] == element})
        wrong = {case: compare_tiles(archive, case) for case in cases}
    assert cases
    assert {case: count for case, count in wrong.items() if count} == {}


def test_every_row(vector_case: str, compare_vectors: Callable[..., int]) -> None:
    if vector_case in {f"{gpu}_{t}_d_fp16" for gpu in ("H100", "H200") for t in ("E4M3", "E5M2")}:
        pytest.skip("the full set lacks the c of these results; the small one has it")
    with np.load(VECTORS) as archive:
        assert compare_vectors(archive, vector_case) == 0
