"""Products of torch and cuBLAS on an H100, predicted to the byte."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import pytest

import tcusim
from tcusim.machine.convert import from_values
from tcusim.machine.formats import format_of
from tcusim.machine.library_products import Call, Capture, Captured, explained, places

ROOT: Final = Path(__file__).resolve().parents[2]
RECORD: Final = Capture.read(ROOT / "tests" / "recorded" / "products_h100.json")
# The sentences of docs/predict.md on them.
REPORT: Final = json.loads((ROOT / "docs" / "data" / "h100" / "orders.json").read_text())
TOLD: Final = {Call(**row["call"]): row for row in REPORT["rows"]}


def some(rows: Sequence[Captured], count: int) -> list[Any]:
    """Return parameters of all rows; `count` of them are tried without --full."""
    step = max(1, len(rows) // count)
    return [
        pytest.param(row, id=str(row.call), marks=[pytest.mark.full] if number % step else [])
        for number, row in enumerate(rows)
    ]


def test_every_kind_of_product_is_recorded_and_none_was_refused() -> None:
    assert len(RECORD.products) == 208
    assert not any(row.refused for row in RECORD.products)
    assert RECORD.settings["allow_tf32"] == "True"
    kinds = [(row.call.a, row.call.b, row.call.result, row.call.fast) for row in RECORD.products]
    assert {kinds.count(kind) for kind in set(kinds)} == {13, 52}
    assert set(TOLD) == {row.call for row in RECORD.products}


@pytest.mark.parametrize("row", some(RECORD.products, 40))
def test_the_default_call_gives_what_the_page_tells(row: Captured) -> None:
    call = row.call
    a, b = (from_values(x, one) for x, one in zip(row.again(), (call.a, call.b), strict=True))
    rows, columns = places(call)
    kept, dtype = (a[rows], b[:, columns]), format_of(call.result).array_name
    found = tcusim.predict_matmul(*kept, arch=RECORD.arch, order=call.order, dtype=dtype)
    known, told = found.tobytes() == row.outputs().tobytes(), TOLD[call]["how"]
    assert known or told != "default"
    # Few outputs of 16 bits may be alike by chance, where others of the product are not.
    assert not known or told == "default" or call.result != "f32"


SHORTEST: Final = sorted(RECORD.products, key=lambda row: row.call.k)


@pytest.mark.parametrize(
    "row", some([row for row in SHORTEST if TOLD[row.call]["how"] != "default"][:16], 6)
)
def test_the_order_of_a_whole_product_is_found_again(row: Captured) -> None:
    """Every byte of the product counts, by its digest."""
    assert asdict(explained(row, RECORD.arch)) == TOLD[row.call]


def test_all_products_are_known() -> None:
    assert {row["how"] for row in REPORT["rows"]} == {"default", "found"}


@pytest.mark.full
def test_a_long_product_of_16_bits_was_split_into_whole_tiles() -> None:
    """Others than the default give every output that was kept: its digest alone tells."""
    (row,) = (one for one in RECORD.products if (one.call.m, one.call.k) == (64, 5432))
    a, b = (from_values(x, row.call.a) for x in row.again())
    order = tcusim.GemmOrder(4, share=64)
    assert TOLD[row.call]["order"] == str(order)
    assert order in tcusim.gemm_orders(row.call.k, usual=True)
    found = tcusim.predict_matmul(a, b, arch=RECORD.arch, order=order)
    assert hashlib.sha256(found.tobytes()).hexdigest() == row.digest
