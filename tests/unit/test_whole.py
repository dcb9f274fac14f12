"""Small whole numbers by one matrix product: the bits are those of every arithmetic."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from numbers_of_types import same_bits
from tcusim.machine import Exact, Format, Fused, Sequential, Values, arches, format_of
from tcusim.machine.exact import exact_values
from tcusim.machine.fused import fused_values
from tcusim.machine.sequential import sequential_values
from tcusim.machine.whole import are_aligned_whole, largest_sum
from tcusim.machine.whole import whole_values as by_one_product

RULES = {
    (row.ab, row.acc, row.how): row
    for arch in arches()
    for row in arch.rows
    if isinstance(row.how, Fused | Sequential | Exact)
}
F32 = format_of("f32")


def whole_values(
    a: Values, b: Values, c: Values, acc: Format, how: Fused | Sequential | Exact
) -> Values | None:
    return by_one_product(a, b, c, acc, how, largest_sum(a, b, c))


def by_its_steps(a: Values, b: Values, c: Values, row: Any) -> Values:
    """Return the arithmetic's result without a test whether the numbers are integers."""
    ab, acc = format_of(row.ab), format_of(row.acc)
    match row.how:
        case Fused():
            fused: Values = fused_values(a, b, c, (ab, ab, acc), row.how)
            return fused
        case Exact():
            return exact_values(a, b, c, (ab, acc), row.how)
        case _:
            d = np.empty(np.broadcast_shapes((len(a), 1, 1), c.shape), acc.dtype)
            d[:] = sequential_values(a, b, c, (ab, ab, acc), row.how)
            return d


def small(rng: np.random.Generator, shape: tuple[int, ...], most: int) -> Values:
    """Draw whole numbers, zeros of both signs among them."""
    numbers: Values = rng.integers(-most, most + 1, shape) * rng.choice([-1.0, 1.0], shape)
    return numbers


@pytest.mark.parametrize("row", RULES.values(), ids=lambda row: f"{row.ab}-{row.acc}")
def test_every_arithmetic_gives_these_bits(row: Any) -> None:
    rng = np.random.default_rng(5)
    most = 3 if format_of(row.ab).itemsize == 1 else 7
    for tiles_a, tiles_b, tiles_c, k in ((3, 3, 3, 16), (1, 4, 4, 5), (4, 1, 1, 8)):
        a, b = small(rng, (tiles_a, 4, k), most), small(rng, (tiles_b, k, 3), most)
        c = small(rng, (tiles_c, 4, 3), 1000 - most * most * k) + 0.0
        a[0, 1] = b[0, :, 1] = -0.0
        found = whole_values(a, b, c, format_of(row.acc), row.how)
        assert found is not None
        assert same_bits(found, by_its_steps(a, b, c, row))


@pytest.mark.parametrize("row", RULES.values(), ids=lambda row: f"{row.ab}-{row.acc}")
def test_the_largest_sums_that_are_taken(row: Any) -> None:
    """A term more and a tensor core might round."""
    bits = format_of(row.acc).fraction_bits
    if isinstance(row.how, Fused):
        bits = min(row.how.fraction_bits, row.how.output_fraction_bits or bits)
    a, b = np.ones((1, 1, 3)), np.ones((1, 3, 1))
    for sign in (1.0, -1.0):
        c = np.full((1, 1, 1), sign * (2.0**bits - 3))
        found = whole_values(sign * a, b, c, format_of(row.acc), row.how)
        assert found is not None
        assert same_bits(found, by_its_steps(sign * a, b, c, row))
        assert whole_values(sign * a, b, c + sign, format_of(row.acc), row.how) is None


@pytest.mark.parametrize("odd", [0.5, np.nan, np.inf, -np.inf, 2.0**24])
@pytest.mark.parametrize("operand", [0, 1, 2])
@pytest.mark.parametrize("place", [0, -1])
def test_what_is_not_small_and_whole_is_left(odd: float, operand: int, place: int) -> None:
    operands = np.ones((3, 2, 4, 4))
    a, b, c = operands
    assert whole_values(a, b, c, F32, Exact()) is not None
    operands[operand].reshape(-1)[place] = odd
    assert whole_values(a, b, c, F32, Exact()) is None


def test_negative_zeros_may_stay() -> None:
    a, b, c = np.full((1, 1, 2), -0.0), np.ones((1, 2, 1)), np.full((1, 1, 1), -0.0)
    assert np.signbit(sequential_values(a, b, c, (F32, F32, F32), Sequential()))
    assert whole_values(a, b, c, F32, Sequential()) is None
    assert np.signbit(exact_values(a, b, c, (F32, F32), Exact()))
    assert whole_values(a, b, c, F32, Exact()) is None


def test_a_least_exponent_cuts_whole_numbers() -> None:
    ones = np.ones((1, 1, 1))
    how = Fused(length=4, fraction_bits=10, exponent_floor=12)
    assert whole_values(ones, ones, ones, F32, how) is None
    assert whole_values(ones, ones, ones, F32, replace(how, exponent_floor=10)) is not None


def test_empty_tiles_are_left() -> None:
    assert (
        whole_values(np.ones((2, 0, 3)), np.ones((2, 3, 4)), np.ones((2, 0, 4)), F32, Exact())
        is None
    )


@pytest.mark.parametrize(
    "row",
    [row for row in RULES.values() if isinstance(row.how, Fused)],
    ids=lambda row: f"{row.ab}-{row.acc}",
)
def test_larger_sums_that_no_alignment_cuts_are_rounded_alike(row: Any) -> None:
    """Of a float16 accumulator and of tf32 these are many."""
    rng = np.random.default_rng(6)
    ab, acc = format_of(row.ab), format_of(row.acc)
    most = min(2.0**row.how.fraction_bits, acc.largest) / 2
    a, b = small(rng, (3, 4, 16), 7), small(rng, (3, 16, 4), 7)
    room = most - 16 * 49
    c = np.asarray(small(rng, (3, 4, 4), int(room)).astype(acc.dtype), np.float64)
    largest = largest_sum(a, b, c)
    assert are_aligned_whole(row.how, acc, 16, largest) == (largest <= most)
    c[0, 0, 0] = room
    largest = largest_sum(a, b, c)
    assert are_aligned_whole(row.how, acc, 16, largest)
    known = fused_values(a, b, c, (ab, ab, acc), row.how, largest=largest)
    assert same_bits(known, fused_values(a, b, c, (ab, ab, acc), row.how))


def test_what_may_overflow_or_grow_by_many_roundings_is_looked_at() -> None:
    how = Fused(length=4, fraction_bits=24)
    f16 = format_of("f16")
    assert are_aligned_whole(how, f16, 1000, f16.largest / 2)
    assert not are_aligned_whole(how, f16, 1000, f16.largest / 2 + 1)
    assert not are_aligned_whole(how, f16, 1001, 1.0)
    assert not are_aligned_whole(replace(how, exponent_floor=25), F32, 4, 1.0)
    assert not are_aligned_whole(how, F32, 4, largest_sum(*np.full((3, 1, 1, 1), 0.5)))
