"""Products in the orders of libraries: predicted, and found again from their bits."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tcusim
from numbers_of_types import same_bits
from tcusim.errors import InputError, Unsupported
from tcusim.machine import Values
from tcusim.machine.gemm_orders import GemmOrder, explain_matmul, gemm_orders, predict_matmul

ROOT = Path(__file__).resolve().parents[2]
RNG = np.random.default_rng(5)
A = RNG.standard_normal((40, 300)).astype(np.float16)
B = RNG.standard_normal((300, 30)).astype(np.float16)


def chain(terms: Any, arch: str = "hopper") -> Values:
    return tcusim.mma(A[:, terms], B[terms], arch=arch)


def test_one_chain_is_an_mma() -> None:
    for dtype in (np.float32, np.float16):
        assert same_bits(predict_matmul(A, B, dtype=dtype), chain(slice(None)).astype(dtype))
    assert predict_matmul(A, B).dtype == np.float16
    bfloat = A.astype(ml_dtypes.bfloat16), B.astype(ml_dtypes.bfloat16)
    assert predict_matmul(*bfloat).dtype == ml_dtypes.bfloat16
    assert (
        predict_matmul(*(x.astype(ml_dtypes.float8_e5m2) for x in (A[:, :32], B[:32]))).dtype
        == np.float32
    )
    single = [x.astype(np.float32) for x in (A, B)]
    expected = tcusim.mma(*single, ab="tf32")
    assert same_bits(predict_matmul(*single), expected)


def test_an_accumulator_that_is_emptied() -> None:
    parts = [chain(slice(at, at + 128)) for at in (0, 128, 256)]
    expected = (parts[0] + parts[1]) + parts[2]
    assert same_bits(predict_matmul(A, B, order=GemmOrder(every=128), dtype=np.float32), expected)


def test_contiguous_parts_are_cut_at_multiples_of_16() -> None:
    order = GemmOrder(parts=4)
    assert [part.tolist() for part in order.parts_of(300)] == [
        list(range(first, min(first + 80, 300))) for first in (0, 80, 160, 240)
    ]
    parts = [chain(slice(first, first + 80)) for first in (0, 80, 160, 240)]
    in_turn = ((parts[0] + parts[1]) + parts[2]) + parts[3]
    in_pairs = (parts[0] + parts[1]) + (parts[2] + parts[3])
    for combine, expected in (("in turn", in_turn), ("in pairs", in_pairs)):
        made = GemmOrder(parts=4, combine=combine)  # type: ignore[arg-type]
        assert same_bits(predict_matmul(A, B, order=made, dtype=np.float32), expected)
    halves = [part.astype(np.float16).astype(np.float32) for part in parts]
    rounded = ((halves[0] + halves[1]) + halves[2]) + halves[3]
    made = GemmOrder(parts=4, between="result")
    assert same_bits(predict_matmul(A, B, order=made), rounded.astype(np.float16))


def test_slabs_go_round() -> None:
    order = GemmOrder(parts=2, slab=32)
    first, second = order.parts_of(300)
    assert first.tolist()[:34] == [*range(32), 64, 65]
    assert second.tolist()[:33] == [*range(32, 64), 96]
    assert sorted([*first, *second]) == list(range(300))
    expected = chain(first) + chain(second)
    assert same_bits(predict_matmul(A, B, order=order, dtype=np.float32), expected)


def test_parts_of_whole_tiles() -> None:
    order = GemmOrder(parts=4, share=64)
    assert [part.size for part in order.parts_of(300)] == [128, 128, 44]
    assert str(order) == "4 contiguous parts of whole 64s, added in turn"


def test_shorter_steps() -> None:
    expected = chain(slice(8))
    for first in range(8, 300, 8):
        terms = slice(first, first + 8)
        expected = tcusim.mma(A[:, terms], B[terms], expected, arch="hopper")
    made = predict_matmul(A, B, order=GemmOrder(step=8), dtype=np.float32)
    assert same_bits(made, expected)
    assert not same_bits(made, chain(slice(None)))
    # An A100 sums by 8 in any case.
    whole, short = (
        predict_matmul(A, B, arch="a100", order=order, dtype=np.float32)
        for order in (None, GemmOrder(step=8))
    )
    assert same_bits(whole, short)


@pytest.mark.parametrize("tile", [16, 32, 64, 128])
def test_what_is_left_over_comes_first(tile: int) -> None:
    left = 300 % tile
    order = GemmOrder(tile=tile)
    assert [part.tolist() for part in order.parts_of(300)] == [list(range(300))]
    # Steps of 16 begin anew after it.
    expected = chain(slice(left))
    for first in range(left, 300, 16):
        terms = slice(first, first + 16)
        expected = tcusim.mma(A[:, terms], B[terms], expected, arch="hopper")
    assert same_bits(predict_matmul(A, B, order=order, dtype=np.float32), expected)


def test_what_is_left_over_is_dealt_out_too() -> None:
    # 12 elements of the first tile are the first part's, and none the second's.
    order = GemmOrder(parts=2, slab=16, tile=32)
    first, second = order.parts_of(300)
    assert first.tolist()[:14] == [*range(12), 12, 13]
    assert second.tolist()[:2] == [28, 29]
    parts = GemmOrder(parts=2, share=32, tile=32).parts_of(300)
    assert [part.size for part in parts] == [160, 140]


def test_more_parts_than_terms() -> None:
    few = predict_matmul(A[:, :20], B[:20], order=GemmOrder(parts=8), dtype=np.float32)
    expected = tcusim.mma(A[:, :16], B[:16]) + tcusim.mma(A[:, 16:20], B[16:20])
    assert same_bits(few, expected)
    none = predict_matmul(A[:, :0], B[:0], order=GemmOrder(parts=8))
    assert not none.any()
    assert none.shape == (40, 30)


@pytest.mark.parametrize(
    "order",
    [
        GemmOrder(),
        GemmOrder(parts=3, slab=16),
        GemmOrder(parts=5, combine="in pairs"),
        GemmOrder(parts=2, between="result"),
        GemmOrder(tile=32),
        GemmOrder(every=4),
    ],
    ids=str,
)
def test_an_order_and_the_unit_are_found_again(order: GemmOrder) -> None:
    # Results of float16 tell orders apart, but hardly architectures.
    half = order.between == "result"
    dtype, archs = (np.float16, "a100") if half else (np.float32, ("v100", "a100"))
    few = A[:, :150], B[:150]
    got = predict_matmul(*few, arch="a100", order=order, dtype=dtype)
    found = explain_matmul(got, *few, arch=archs)
    assert found.best.equal == found.best.count == got.size
    assert next(str(one.order) for one in found.exact if one.arch == "a100") == str(order)
    assert f"all 1,200 equal: a100, {order}" in str(found)
    assert found.to_dict()["tried"][0] == {
        "arch": "a100",
        "order": str(order),
        "equal": 1200,
        "count": 1200,
    }


def test_what_no_order_gives() -> None:
    got = predict_matmul(A, B, dtype=np.float32)
    got[3, 4] = np.nextafter(got[3, 4], np.float32(np.inf))
    found = explain_matmul(got, A, B)
    assert found.exact == ()
    assert (found.best.equal, found.best.count) == (1199, 1200)
    assert str(found.best) == "1,199 of 1,200 equal: hopper, one chain"


def recorded() -> list[Any]:
    """Return products of cuBLAS on an H200: sizes, an order that gives them, and some outputs."""
    rows = json.loads((ROOT / "tests" / "recorded" / "gemm_h200.json").read_text())
    return [
        pytest.param(row, id="{m}x{n}x{k}-{dtype}-{result}".format(**row["call"])) for row in rows
    ]


def multiplied(call: Any) -> list[Values]:
    """Return the operands of a recorded product, which had been cut to 16 bits or to tf32."""
    rng = np.random.default_rng((call.seed, call.m, call.n, call.k))
    drawn = [rng.standard_normal(x, np.float32) for x in ((call.m, call.k), (call.k, call.n))]
    if call.dtype == "float16":
        return [x.astype(np.float16) for x in drawn]
    keep = np.uint32(0xFFFF0000 if call.dtype == "bfloat16" else 0xFFFFE000)
    return [(x.view(np.uint32) & keep).view(np.float32) for x in drawn]


@pytest.mark.parametrize("row", recorded())
def test_products_of_cublas_have_the_predicted_bits(row: Any) -> None:
    call = SimpleNamespace(**row["call"])
    a, b = multiplied(call)
    places = [tuple(map(int, place.split(","))) for place in row["seen"]]
    rows, columns = (sorted(set(each)) for each in zip(*places, strict=True))
    dtype = ml_dtypes.bfloat16 if call.result == "bfloat16" else np.dtype(call.result)
    a, b = a[rows], b[:, columns]
    order = GemmOrder(**row["order"])
    ab = {"float16": "f16", "bfloat16": "bf16", "float32": "tf32"}[call.dtype]
    found = predict_matmul(a, b, arch="h200", order=order, dtype=dtype, ab=ab)
    seen = np.array([int(bits, 16) for bits in row["seen"].values()]).reshape(found.shape)
    assert np.array_equal(found.view(f"u{found.itemsize}"), seen)
    if call.k < 800:
        got = seen.astype(f"u{found.itemsize}").view(dtype)
        exact = explain_matmul(got, a, b, arch="h200", ab=ab).exact
        assert order in [match.order for match in exact]


def test_orders_that_add_alike_come_once() -> None:
    for k in (1, 16, 100, 512, 4096):
        orders = gemm_orders(k)
        assert orders[0] == GemmOrder()
        results = {order.additions(k) for order in orders}
        assert len(results) == len(orders)
        # The usual ones come first, and of these chains before what is cut into parts.
        usual = gemm_orders(k, usual=True)
        assert orders[: len(usual)] == usual
        chains = [order.parts == 1 for order in usual]
        assert chains == sorted(chains, reverse=True)
    assert gemm_orders(16)[:3] == (GemmOrder(), GemmOrder(2, share=8), GemmOrder(every=4))
    assert gemm_orders(16, vector=4)[2] == GemmOrder(4, share=4)
    assert len(gemm_orders(300, steps=(0, 8))) > len(gemm_orders(300))
    assert GemmOrder(every=128).additions(512) == GemmOrder(parts=4).additions(512)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: GemmOrder(parts=0), "GemmOrder.parts must be an integer of at least 1, got 0"),
        (lambda: GemmOrder(2, combine="at once"), "GemmOrder.combine must be 'in turn' or 'in pai"),  # type: ignore[arg-type]
        (lambda: GemmOrder(slab=32), "GemmOrder of one part has nothing to combine"),
        (lambda: GemmOrder(share=32), "GemmOrder.share is of contiguous parts; leave it out"),
        (
            lambda: predict_matmul(A, B, arch="ieee", order=GemmOrder(step=8)),
            "GemmOrder.step is for arithmetic that sums products and c at once; f16 in f32 is not",
        ),
        (
            lambda: predict_matmul(A, B[:9]),
            "a must be (..., m, k) and b (..., k, n), with the same",
        ),
        (
            lambda: predict_matmul(A, B, dtype=np.int32),
            "no tensor core's product is rounded to int",
        ),
        (lambda: predict_matmul(A.astype(np.float64), B), "a has elements of float64, by which no"),
        (lambda: predict_matmul(A, B, order="chain"), "an order must be a GemmOrder, such as"),  # type: ignore[arg-type]
        (lambda: explain_matmul(A, A, B), "got must be the product, of shape (40, 30) for a of"),
        (lambda: explain_matmul(A @ B, A, B, arch=()), "arch names no architecture"),
        (lambda: explain_matmul(A @ B, A[None], B), "explain_matmul takes one product: a (m, k)"),
    ],
)
def test_refusals(call: Any, text: str) -> None:
    with pytest.raises(InputError, match=re.escape(text)):
        call()


def test_what_an_architecture_does_not_do_is_refused() -> None:
    with pytest.raises(Unsupported, match="bf16"):
        predict_matmul(A.astype(ml_dtypes.bfloat16), B.astype(ml_dtypes.bfloat16), arch="v100")
