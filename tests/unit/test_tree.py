"""Rounded additions in shared memory: who is added to whom, bit for bit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from hand_built import hand_built
from tcusim.algorithms.builder import LENGTH, Builder
from tcusim.algorithms.order import Order
from tcusim.algorithms.rows import data
from tcusim.algorithms.tree import (
    UNROLLED,
    Vectors,
    add_in_turn,
    fold,
    pairwise,
    precede,
    preceding,
    scan_vectors,
    siblings,
)
from tcusim.errors import Unsupported
from tcusim.program.grammar import Buffer, Extent, Loop, Program, View
from tcusim.simulate.interpreter import run_numpy

Floats = NDArray[np.float32]
# Takes values in shared memory, and as many spare ones; returns the results.
Body = Callable[[Builder, Buffer, Buffer], View]
ORDERS = [Order(exclusive, reverse) for exclusive in (False, True) for reverse in (False, True)]


def program_of(body: Body, size: int) -> Program:
    """Return a program that copies `size` floats to shared memory, and writes a body's results."""

    def function(b: Builder, segment_size: int) -> int:
        values, spare = (b.scratch(name, "f32", size) for name in ("values", "spare"))
        b.copy(b.rect(values, 0, 1, size, size), b.rect(data(b), b.item * size, 1, size, size))
        found = body(b, values, spare)
        out = b.output("out", "f32", Extent(LENGTH))
        b.copy(b.rect(out, b.item * size, *b.size(found), found.cols), found)
        return size

    return hand_built(function, segment_size=size, source="f32")


def results(body: Body, x: Floats) -> Floats:
    return outputs(program_of(body, x.size), x)


def outputs(program: Program, x: Floats) -> Floats:
    return np.asarray(run_numpy(program, {"in": x})["out"], np.float32)


def uneven(size: int) -> Floats:
    """Return numbers with rounded sums, so that bits show the order of additions."""
    return np.random.default_rng(size).standard_normal(size).astype(np.float32) * 1000


def in_pairs(x: Floats) -> np.float32:
    """Add up the most values that are a power of two, and then the rest."""
    if x.size == 1:
        return np.float32(x[0])
    half = 1 << (x.size - 1).bit_length() - 1
    return np.float32(in_pairs(x[:half]) + in_pairs(x[half:]))


@pytest.mark.parametrize("size", [1, 2, 3, 7, 16, 29])
def test_neighbours_are_added_in_pairs(size: int) -> None:
    def body(b: Builder, values: Buffer, spare: Buffer) -> View:
        pairwise(b, lambda start, count, apart: b.rect(values, start, 1, count, 1, apart), size)
        return b.rect(values, 0, 1, size, size)

    x = uneven(size)
    assert results(body, x)[0] == in_pairs(x)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 16, 29])
def test_halves_are_folded_onto_each_other(size: int) -> None:
    def body(b: Builder, values: Buffer, spare: Buffer) -> View:
        fold(b, lambda start, count: b.rect(values, start, 1, count, 1), size)
        return b.rect(values, 0, 1, size, size)

    x = uneven(size)
    left = x.copy()
    while left.size > 1:
        upper = left[(left.size + 1) // 2 :]
        left = left[: (left.size + 1) // 2]
        left[: upper.size] += upper
    assert results(body, x)[0] == left[0]


@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("vectors", [Vectors(11), Vectors(4, 3, 4, across=True), Vectors(4, 3, 4)])
def test_vectors_are_scanned_each_by_itself(order: Order, vectors: Vectors) -> None:
    """The sums are inclusive in every order; exclusive ones are one place on."""
    size = vectors.count * vectors.lines

    def scanned(b: Builder, values: Buffer, spare: Buffer) -> View:
        found = scan_vectors(b, values, (spare, values), vectors, order)
        return b.rect(found, 0, 1, size, size)

    def before(b: Builder, values: Buffer, spare: Buffer) -> View:
        found = scan_vectors(b, values, (spare, values), vectors, order)
        other = values if found is spare else spare
        b.copy(vectors.view(b, other), preceding(b, found, vectors, order))
        return b.rect(other, 0, 1, size, size)

    x = np.random.default_rng(1).integers(-9, 10, size).astype(np.float32)
    rows = x.reshape(vectors.lines, -1)
    sums = rows[:, ::-1].cumsum(1)[:, ::-1] if order.reverse else rows.cumsum(1)
    np.testing.assert_array_equal(results(scanned, x), sums.ravel())
    np.testing.assert_array_equal(results(before, x), (sums - rows).ravel())


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("size", [2, UNROLLED, UNROLLED + 3])
def test_values_are_added_one_after_the_other(size: int, reverse: bool) -> None:
    def body(b: Builder, values: Buffer, spare: Buffer) -> View:
        add_in_turn(b, values, Vectors(size), Order(reverse=reverse))
        return b.rect(values, 0, 1, size, size)

    x = uneven(size)
    sums = x[::-1].cumsum(dtype=np.float32)[::-1] if reverse else x.cumsum(dtype=np.float32)
    program = program_of(body, size)
    np.testing.assert_array_equal(outputs(program, x), sums)
    assert any(isinstance(step, Loop) for step in program.steps) == (size > UNROLLED)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_tree_gives_what_precedes_each_value(reverse: bool) -> None:
    """Each sum is that of the vector with zeros from the value on, added in pairs."""
    size = 16

    def body(b: Builder, values: Buffer, spare: Buffer) -> View:
        precede(b, values, spare, Vectors(size), Order(exclusive=True, reverse=reverse))
        return b.rect(spare, 0, 1, size, size)

    x, at = uneven(size), np.arange(size)
    expected = [in_pairs(np.where(at > i if reverse else at < i, x, np.float32(0))) for i in at]
    np.testing.assert_array_equal(results(body, x), expected)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_tree_may_be_cut_in_rounds(reverse: bool) -> None:
    """Rows of 4, and a tree over their sums, round by round: the tree of all 32."""
    order, size = Order(exclusive=True, reverse=reverse), 32

    def whole(b: Builder, values: Buffer, spare: Buffer) -> View:
        precede(b, values, spare, Vectors(size), order)
        return b.rect(spare, 0, 1, size, size)

    def cut(b: Builder, values: Buffer, spare: Buffer) -> View:
        sums, one = (b.scratch(name, "f32", 8) for name in ("sums", "one"))
        rows = b.scratch("rows", "f32", size)
        b.copy(b.rect(rows, 0, 1, size, size), b.rect(values, 0, 1, size, size))
        pairwise(b, lambda start, n, apart: b.rect(rows, start, 8, n, 4, apart), 4)
        b.copy(b.rect(sums, 0, 8, 1, 1), b.rect(rows, 0, 8, 1, 4))
        precede(b, values, spare, Vectors(4, 8, 4, across=True), order)
        found = b.rect(spare, 0, 8, 4, 4)
        for _ in siblings(b, sums, one, Vectors(8), order):
            b.copy(found, found, b.rect(one, 0, 8, 4, 1, 0))
        return b.rect(spare, 0, 1, size, size)

    x = uneven(size)
    np.testing.assert_array_equal(results(cut, x), results(whole, x))


def test_a_tree_has_a_power_of_two_of_values() -> None:
    def body(b: Builder, values: Buffer, spare: Buffer) -> View:
        precede(b, values, spare, Vectors(12))
        return b.rect(spare, 0, 1, 12, 12)

    with pytest.raises(
        Unsupported, match=r"a tree has 2\*\*i values, and trees follow each other; got 1 of 12"
    ):
        program_of(body, 12)
