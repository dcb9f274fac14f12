"""The accounts of `tcusim.explain` end with the bits that were recorded from real GPUs.

By default it is asked of some outputs of each case, and of all with TCUSIM_EXPLAIN_CASES=100000,
which takes minutes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import accounts
from tcusim.machine import Rule, Values, arch_of, mma_values
from tcusim.machine.accounts.recorder import accounts_of

HERE = Path(__file__).parent
CASES = int(os.environ.get("TCUSIM_EXPLAIN_CASES", "6"))


def explained(a: Values, b: Values, c: Values, rule: Rule) -> Values:
    """Return a @ b + c; many of its outputs are the results of accounts."""
    d = np.ascontiguousarray(mma_values(a, b, c, rule))
    tiles = len(d)
    wide_a, wide_b = (np.broadcast_to(x, (tiles, *x.shape[1:])) for x in (a, b))
    cells = np.arange(d.size)
    if d.size > CASES:
        cells = np.random.default_rng(d.size).choice(d.size, CASES, replace=False)
    w, i, j = np.unravel_index(cells, d.shape)
    addends = np.broadcast_to(c, d.shape)[w, i, j]
    told = accounts_of(wide_a[w, i], wide_b[w, :, j], addends, rule, arch_of("hopper"))
    flat = d.view(f"u{d.itemsize}").reshape(-1)
    flat[cells] = 0
    for cell, one in zip(cells, told, strict=True):
        flat[cell] = int(one.bits, 16)
        accounts.check(one)
    return d


def test_tiles_of_an_h200(tile_case: str, tiles: Any, compare_tiles: Callable[..., int]) -> None:
    assert compare_tiles(tiles, tile_case, multiply=explained) == 0


def test_dots_of_eight_gpus(vector_case: str, compare_vectors: Callable[..., int]) -> None:
    with np.load(HERE / "fused_step_vectors.npz") as vectors:
        assert compare_vectors(vectors, vector_case, multiply=explained) == 0


def test_instructions_of_an_h200(
    instruction_case: str, compare_instructions: Callable[..., int]
) -> None:
    with np.load(HERE / "instructions_h200.npz") as instructions:
        assert compare_instructions(instructions, instruction_case, multiply=explained) == 0
