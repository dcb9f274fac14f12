"""`mma_values`: tiles of any size, leading dimensions, and batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from numbers_of_types import random_values, same_bits
from tcusim.machine import FORMATS, mma


@pytest.mark.parametrize(
    ("arch", "ab", "acc"),
    [
        ("hopper", "f16", "f32"),
        ("ieee", "f16", "f16"),
        ("exact", "f32", "f32"),
        ("hopper", "s8", "s32"),
    ],
)
@pytest.mark.parametrize("leads", [
    ((), (), ()),
    ((3,), (), ()),
    ((), (3,), ()),
    ((), (), (3,)),
    ((2, 3), (3,), (2, 1)),
    ((5, 1), (1, 4), ()),
    ((1,), (), ()),
    ((0,), (), ()),
    ((2, 0), (1,), (0,)),
])  # fmt: skip
def test_leading_dimensions_broadcast(arch: str, ab: str, acc: str, leads: Any) -> None:
    rng = np.random.default_rng(7)
    a = rng.integers(-3, 4, (*leads[0], 2, 5))
    b = rng.integers(-3, 4, (*leads[1], 5, 3))
    c = rng.integers(-3, 4, (*leads[2], 2, 3))
    d = mma(a, b, c, arch=arch, ab=ab, acc=acc)
    assert d.dtype == FORMATS[acc].dtype
    assert np.array_equal(d, a @ b + c)
    assert d.flags.writeable


@pytest.mark.parametrize("arch", ["volta", "ieee", "exact"])
@pytest.mark.parametrize(("m", "k", "n"), [(0, 4, 3), (3, 4, 0), (1, 1, 1), (5, 7, 3)])
def test_any_tile(arch: str, m: int, k: int, n: int) -> None:
    a = np.ones((2, m, k), np.float16)
    d = mma(a, np.ones((k, n), np.float16), arch=arch)
    assert np.array_equal(d, np.full((2, m, n), k))


def test_no_terms_give_c() -> None:
    c = np.arange(6, dtype=np.float32).reshape(1, 2, 3)
    d = mma(np.ones((4, 2, 0)), np.ones((0, 3)), c)
    assert np.array_equal(d, np.broadcast_to(c, (4, 2, 3)))
    assert d.flags.writeable


def test_operands_are_left_alone() -> None:
    rng = np.random.default_rng(8)
    operands = [random_values(rng, (3, 4, 4), fmt, 9) for fmt in ("f16", "f16", "f32")]
    before = [operand.copy() for operand in operands]
    for arch in ("hopper", "ieee", "exact"):
        mma(*operands, arch=arch)
    assert all(same_bits(x, y) for x, y in zip(operands, before, strict=True))


def test_many_tiles_are_done_in_batches() -> None:
    """Batches of 64 tiles have 2**14 outputs; the last batch is not full."""
    rng = np.random.default_rng(9)
    a = random_values(rng, (150, 16, 16), "f16", 10)
    b = random_values(rng, (16, 16), "f16", 10)
    for arch in ("hopper", "ieee", "exact"):
        whole = mma(a, b, arch=arch)
        assert same_bits(whole[141], mma(a[141], b, arch=arch))
