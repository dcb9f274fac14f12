"""Pieces of an axis on several ranks: where they lie. test_distributed.py moves and adds them."""

from __future__ import annotations

from typing import Any

import pytest

import tcusim

torch: Any = pytest.importorskip("torch", reason="torch is not installed")

from tcusim.torch.pieces import cut_of, edges_of_lengths, without_empty  # noqa: E402


def test_edges() -> None:
    assert edges_of_lengths([3, 0, 2]) == [0, 3, 3, 5]
    assert edges_of_lengths([]) == [0]


def test_a_piece_without_elements_begins_where_the_next_does() -> None:
    assert without_empty([0, None, 4, None], 9) == [0, 4, 4, 9, 9]
    assert without_empty([None, None, 2], 5) == [0, 2, 2, 5]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_pieces_end_where_sums_may_be_cut(dtype: str) -> None:
    empty = torch.zeros(0, dtype=getattr(torch, dtype))
    assert cut_of(empty, "sum") == tcusim.cut_size(dtype)
    assert cut_of(empty, "cumsum") == tcusim.cut_size(dtype, "cumsum")
