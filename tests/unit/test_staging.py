"""Common parts of products: copies of warps, accumulators in short chains, and stages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tcusim.algorithms import build
from tcusim.errors import Unsupported
from tcusim.program.grammar import Add, Mma
from tcusim.simulate.interpreter import interpret, run_numpy


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 9, None])
def test_no_chain_is_longer_than_its_limit(limit: int | None) -> None:
    """The remainder: 8 tiles, with at most so many products between two additions."""
    program = build("gemm_naive", inner=8 * 16, accumulation_length=limit)
    a, b = np.ones((16, 128), np.float16), np.ones((128, 16), np.float16)
    chains, products = [0], 0
    for event in interpret(program, {"a": a.ravel(), "b": b.ravel()}):
        if isinstance(event.step, Mma):
            products += 1
            chains[-1] += 1
        elif isinstance(event.step, Add):
            chains.append(0)
    assert products == 8
    assert max(chains) == min(limit or 8, 8)
    # Without a shorter limit they accumulate in the total itself.
    assert (len(chains) == 1) == (limit is None or limit >= 8)


def test_a_pipeline_needs_two_stages() -> None:
    with pytest.raises(Unsupported, match="stages must be at least 2: while one is multiplied"):
        build("gemm", stages=1)


@pytest.mark.parametrize("steps_of_chunk", [3, 5, 17])
def test_stages_take_turns_where_chunks_have_an_odd_number_of_steps(steps_of_chunk: int) -> None:
    chunk = 16 * 8 * steps_of_chunk
    a = np.random.default_rng(2).integers(-2, 3, (20, 7 * chunk + 5))
    options: dict[str, Any] = {"inner": a.shape[1], "chunk": chunk, "width": 2, "stages": 8}
    options |= {"share_rows": True, "warps": 4, "accumulation_length": 8}
    program = build("gemv_reduction", **options)
    found = run_numpy(program, {"a": a.astype(np.float16).ravel(), "b": a[3].astype(np.float16)})
    np.testing.assert_array_equal(found["out"], a @ a[3])
