"""Products in the orders of libraries: predicted, and found again from their bits."""

from __future__ import annotations

import itertools
import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tcusim
from numbers_of_types import same_bits
from tcusim.errors import InputError, Unsupported
from tcusim.machine import FORMATS, Values, from_values, round_values, rule_for
from tcusim.machine.gemm_orders import GemmOrder, explain_matmul, gemm_orders, predict_matmul
from tcusim.machine.rules import FAMILIES, Fused

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
    expected = tcusim.mma(*single, ab="tf32", family="wgmma")
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
    alone = explain_matmul(got, *few, arch="a100", orders=[order])
    for one in (found, alone):
        assert ("do not tell it from" in str(one)) == (len(one.exact) > 1)
    assert len(alone.exact) == 1
    assert found.to_dict()["tried"][0] == {
        "arch": "a100",
        "family": "",
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


# --- Operands, and the instruction ----------------------------------------------------------------


def f32(numbers: Any) -> Values:
    return np.array(numbers, np.float32)


# Of 1 + 2**-11 and 1 + 3 * 2**-11, halfway between numbers of tf32, and of one above.
HALFWAY = f32([1 + 2**-11, 1 + 3 * 2**-11, 1 + 2**-11 + 2**-20])
CONVERTED = {
    "cut": [1, 1 + 2**-10, 1],
    "nearest_even": [1, 1 + 2**-9, 1 + 2**-10],
    "nearest_away": [1 + 2**-10, 1 + 2**-9, 1 + 2**-10],
}
OF_LIBRARIES = {
    "ampere": "nearest_away",
    "ada": "nearest_away",
    "hopper": "nearest_even",
    "blackwell": "nearest_even",
    "blackwell_rtx": "nearest_away",
}


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("arch", OF_LIBRARIES)
def test_float32_operands_are_converted_as_the_order_says(arch: str, sign: int) -> None:
    halfway, one = sign * HALFWAY[:, None], f32([[1]])
    for how, numbers in CONVERTED.items():
        order = GemmOrder(operands=how)  # type: ignore[arg-type]
        expected = sign * f32(numbers)
        assert predict_matmul(halfway, one, arch=arch, order=order)[:, 0].tolist() == (
            expected.tolist()
        )
        # Right operands likewise.
        assert predict_matmul(one, halfway.T, arch=arch, order=order)[0].tolist() == (
            expected.tolist()
        )
    of_libraries = GemmOrder(operands=OF_LIBRARIES[arch])  # type: ignore[arg-type]
    both = (
        predict_matmul(halfway, one, arch=arch, order=one_order)
        for one_order in (None, of_libraries)
    )
    assert same_bits(*both)
    assert tcusim.mma(halfway, one, arch=arch, ab="tf32")[:, 0].tolist() == (
        (sign * f32(CONVERTED["cut"])).tolist()
    )


def test_what_gpus_return_for_1024_and_a_half() -> None:
    # Ampere: pytorch/pytorch#53635. Hopper: torch 2.11 and CUDA 13.0 on an H100.
    for arch, expected in (("rtx 3090", [1025, 1026]), ("h100", [1024, 1026])):
        halves, one = f32([[1024.5], [1025.5]]), f32([[1]])
        assert predict_matmul(halves, one, arch=arch)[:, 0].tolist() == expected
        assert predict_matmul(one, halves.T, arch=arch)[0].tolist() == expected


@pytest.mark.parametrize("value", [np.inf, -np.inf, 3.4028235e38, 2.0**-149, -(2.0**-130)])
@pytest.mark.parametrize("how", ["nearest_even", "nearest_away"])
def test_the_ends_of_float32_are_rounded_too(how: Any, value: float) -> None:
    ((found,),) = predict_matmul(
        f32([[value]]), f32([[1]]), arch="exact", order=GemmOrder(operands=how)
    )
    step = 2.0**-136
    # The largest float32 is rounded beyond the range.
    small = abs(value) < 1
    assert found == (np.round(value / step) * step if small else np.copysign(np.inf, value))
    nan = predict_matmul(f32([[np.nan]]), f32([[1]]), order=GemmOrder(operands=how))
    assert np.isnan(nan).all()


@pytest.mark.parametrize("how", list(CONVERTED))
@pytest.mark.parametrize("arch", ["a100", "h100"])
def test_the_conversion_of_drawn_operands_is_found_again(arch: str, how: Any) -> None:
    # All 23 fraction bits are drawn.
    a, b = (RNG.standard_normal(shape, np.float32) for shape in ((24, 64), (64, 16)))
    a[:3, 0] = HALFWAY
    got = predict_matmul(a, b, arch=arch, order=GemmOrder(operands=how))
    best = explain_matmul(got, a, b, arch=arch).best
    own: Any = "" if how == OF_LIBRARIES[{"a100": "ampere", "h100": "hopper"}[arch]] else how
    assert (best.equal, best.order) == (got.size, GemmOrder(operands=own))
    # tf32 operands need no conversion, and have one spelling.
    cut = [(x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32) for x in (a, b)]
    exact = explain_matmul(predict_matmul(*cut, arch=arch), *cut, arch=arch).exact
    assert {match.order.operands for match in exact} == {""}


PAIRS = [("f16", "f16"), ("bf16", "bf16"), ("tf32", "tf32")]
PAIRS += [(a, b) for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")]
LARGE = {"hopper": "wgmma", "blackwell": "tcgen05", "blackwell_rtx": "mma.sync"}


@pytest.mark.parametrize("pair", PAIRS, ids=".".join)
@pytest.mark.parametrize("arch", ["ampere", "ada", "hopper", "blackwell", "blackwell_rtx"])
def test_each_type_and_instruction_is_predicted_and_found(arch: str, pair: tuple[str, str]) -> None:
    ab = pair[0] if pair[0] == pair[1] else ".".join(pair)
    drawn = (RNG.standard_normal(shape, np.float32) for shape in ((20, 96), (96, 12)))
    # Subnormal numbers of the narrow types are among them.
    a, b = (from_values(round_values(x, fmt), fmt) for x, fmt in zip(drawn, pair, strict=True))
    if arch == "ampere" and "e" in ab:
        with pytest.raises(Unsupported, match="Ampere tensor cores have no 8-bit floats"):
            predict_matmul(a, b, arch=arch)
        return
    default = predict_matmul(a, b, arch=arch, dtype=np.float32)
    for family in ("", *FAMILIES):
        try:
            expected = tcusim.mma(a, b, arch=arch, ab=ab, family=family)
        except Unsupported:
            assert family not in ("", LARGE.get(arch))
            continue
        got = predict_matmul(a, b, arch=arch, dtype=np.float32, family=family)
        assert same_bits(got, expected)
        assert family != LARGE.get(arch, "") or same_bits(got, default)
        best = explain_matmul(got, a, b, arch=arch, orders=[GemmOrder()]).best
        assert best.equal == got.size
        cell = tcusim.explain(a, b, arch=arch, ab=ab, family=family, cell=(3, 5))
        (account,) = cell
        assert account.result == expected[3, 5]
        assert cell[arch].to_dict()["ab"] == ab


def test_operands_of_two_types_are_summed_by_the_exponents_of_each() -> None:
    """The largest exponent is that of a subnormal: its own type decides it."""
    how = rule_for("hopper", "e4m3", "f32", "wgmma").how
    assert isinstance(how, Fused)
    # 2**-9 is a subnormal of e4m3, with exponent -6, and a normal number of e5m2.
    small, tiny = 2.0**-9, 2.0**-16
    values = {"e4m3": f32([[small, small]]), "e5m2": f32([[2.0**-9], [tiny]])}
    a, b = (from_values(values[fmt], fmt) for fmt in ("e4m3", "e5m2"))
    top = -6 - 9
    unit = 2.0 ** (top - how.fraction_bits)
    true = small * 2.0**-9 + np.trunc(small * tiny / unit) * unit
    got = predict_matmul(a, b, arch="hopper")
    assert got.item() == true == predict_matmul(b.T, a.T, arch="hopper").item()
    with pytest.raises(Unsupported, match="operands of one type, or 8-bit floats of both"):
        tcusim.mma([[1.0]], [[1.0]], ab="f16.e4m3")
    with pytest.raises(InputError, match="unknown type 'e9'"):
        tcusim.mma([[1.0]], [[1.0]], ab="e4m3.e9")


def test_a_search_tells_how_far_it_is() -> None:
    told: list[tuple[int, int]] = []
    got = predict_matmul(A, B, dtype=np.float32)
    explain_matmul(got, A, B, progress=lambda done, count: told.append((done, count)))
    assert told == [(number, len(told)) for number in range(1, len(told) + 1)]
    assert len(told) > 20


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_tensors_of_torch_are_taken(name: str) -> None:
    torch = pytest.importorskip("torch")
    a, b = (torch.from_numpy(x.astype(np.float32)).to(getattr(torch, name)) for x in (A, B))
    fmt = next(one.name for one in FORMATS.values() if one.array_name == name)
    own = (from_values(x.to(torch.float32).numpy(), fmt) for x in (a, b))
    got = predict_matmul(a, b, arch="h100")
    assert same_bits(got, predict_matmul(*own, arch="h100"))
    result = torch.from_numpy(got.astype(np.float32)).to(torch.bfloat16)
    rounded = predict_matmul(a, b, arch="h100", dtype="bfloat16")
    assert same_bits(rounded, result.to(torch.float32).numpy().astype(rounded.dtype))
    assert explain_matmul(result, a, b, arch="h100", orders=[GemmOrder()]).exact


def test_orders_that_add_alike_come_once() -> None:
    for k in (1, 16, 100, 512, 4096):
        orders = gemm_orders(k)
        assert orders[0] == GemmOrder()
        results = {order.additions(k) for order in orders}
        assert len(results) == len(orders)
        # The usual ones come first, and of these chains before split ones.
        usual = gemm_orders(k, usual=True)
        assert orders[: len(usual)] == usual
        chains = [order.parts == 1 for order in usual]
        assert chains == sorted(chains, reverse=True)
        # As an H100's library splits 5432 terms of bf16, and 3392 of tf32.
        added = {order.additions(k) for order in usual}
        for parts, share in ((4, 64), (24, 32)):
            assert GemmOrder(parts, share=share).additions(k) in added
    assert gemm_orders(16)[:3] == (GemmOrder(), GemmOrder(2, share=8), GemmOrder(every=4))
    assert gemm_orders(16, vector=4)[2] == GemmOrder(4, share=4)
    assert len(gemm_orders(300, steps=(0, 8))) > len(gemm_orders(300))
    assert GemmOrder(every=128).additions(512) == GemmOrder(parts=4).additions(512)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: GemmOrder(parts=0), "GemmOrder.parts must be an integer of at least 1, got 0"),
        *(
            (
                lambda name=name, least=least: GemmOrder(**{name: least - 1}),
                f"GemmOrder.{name} must be an integer of at least {least}, got {least - 1}",
            )
            for name, least in (("slab", 0), ("every", 0), ("share", 1), ("step", 0), ("tile", 0))
        ),
        (
            lambda: GemmOrder(2, combine="at once"),  # type: ignore[arg-type]
            "GemmOrder.combine must be one of in turn, in pa",
        ),
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
            "no tensor core's product is rounded to it. Take a float",
        ),
        (lambda: predict_matmul(A.astype(np.float64), B), "a has elements of float64, by which no"),
        (lambda: GemmOrder(operands="rna"), "GemmOrder.operands must be one of cut, nearest_even"),  # type: ignore[arg-type]
        (
            lambda: predict_matmul(A, B, order=GemmOrder(operands="cut")),
            "GemmOrder.operands is for float32 operands, which become tf32; these are f16",
        ),
        (lambda: predict_matmul(A, B, order="chain"), "an order must be a GemmOrder, such as"),  # type: ignore[arg-type]
        (lambda: explain_matmul(A, A, B), "got must be the product, of shape (40, 30) for a of"),
        (
            lambda: explain_matmul(A[:0] @ B, A[:0], B),
            "got (0, 30) of a (0, 300) and b (300, 30) has no output that adds a term",
        ),
        (
            lambda: explain_matmul(A[:, :0] @ B[:0], A[:, :0], B[:0], orders=[GemmOrder()]),
            "got (40, 30) of a (40, 0) and b (0, 30) has no output that adds a term",
        ),
        (lambda: explain_matmul(A @ B, A, B, arch=()), "arch names no architecture"),
        (lambda: explain_matmul(A @ B, A, B, orders=[]), "orders names none to try"),
        (lambda: explain_matmul(A @ B, A, B, orders=[3]), "must be a list of GemmOrder, got [3]"),  # type: ignore[list-item]
        (lambda: explain_matmul(A @ B, A[None], B), "explain_matmul takes one product: a (m, k)"),
    ],
)
def test_refusals(call: Any, text: str) -> None:
    with pytest.raises(InputError, match=re.escape(text)):
        call()


@pytest.mark.parametrize("size", [(3, 5, 4), (4, 5, 4), (4, 4, 4), (3, 3, 4)])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_got_comes_first(size: tuple[int, int, int], dtype: Any) -> None:
    m, k, n = size
    a, b = RNG.standard_normal((m, k)).astype(np.float16), np.ones((k, n), np.float16)
    named = {"got": predict_matmul(a, b, dtype=dtype), "a": a, "b": b}
    for order in itertools.permutations(named):
        given = [named[name] for name in order]
        # Of square matrices of one type, or of a permutation that fits too, nobody can tell.
        right, left, other = given
        fits = left.shape[1] == other.shape[0]
        fits = fits and right.shape == (left.shape[0], other.shape[1])
        if order == ("got", "a", "b") or (fits and left.dtype == other.dtype):
            assert explain_matmul(*given, orders=[GemmOrder()]).tried
            continue
        with pytest.raises(InputError, match=r"got comes first: explain_matmul\(got, a, b\)\. Giv"):
            explain_matmul(*given)


def test_types_of_8_bits_or_named_ones_are_in_their_order() -> None:
    a = np.ones((4, 4), ml_dtypes.float8_e5m2)
    b = a.astype(ml_dtypes.float8_e4m3fn)
    for got in (a, a.astype(np.float32)):
        assert explain_matmul(got, a, b, orders=[GemmOrder()]).tried
    whole = np.ones((4, 4), np.float16)
    assert explain_matmul(whole, whole, whole.astype("f4"), ab="f16", orders=[GemmOrder()]).tried


def test_what_an_architecture_does_not_do_is_refused() -> None:
    with pytest.raises(Unsupported, match="bf16"):
        predict_matmul(A.astype(ml_dtypes.bfloat16), B.astype(ml_dtypes.bfloat16), arch="v100")
