"""Every registered algorithm, in every variant, equals exact integer sums on every unit.

Rung one of the agreement ladder. Inputs are chosen so that no rounding can happen: the absolute
values of a segment sum to no more than the narrowest type on the way holds.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from numpy_results import names_of_units, of_rows
from some import Some
from tcusim.algorithms import Algorithm, Level, algorithm_of, build, segmented_algorithms
from tcusim.algorithms.tile_scan import FORMS
from tcusim.backends import run
from tcusim.errors import Unsupported
from tcusim.machine import rule_for
from tcusim.machine.shapes import MmaShape, shape_of
from tcusim.program.grammar import Program

Ints = NDArray[np.int64]


SHAPES = (
    (16, 16, 16),
    (32, 8, 16),
    (8, 32, 16),
    (4, 4, 4),
    (5, 7, 3),
    (16, 8, 8),
    (16, 8, 16),
    (64, 8, 16),
    # Units of outer products: Apple AMX and SME's FMOPA.
    (16, 16, 1),
    (1, 16, 1),
    (64, 64, 64),
)


BIG = (64, 64, 64)


# Values to try of each option that an algorithm may have; others keep their default. Exclusive and
# reverse scans have tests of their own, in test_order.py.
OPTIONS: dict[str, tuple[Any, ...]] = {
    "form": FORMS,
    "carry": (False, True),
    # A warp of a sum's block takes few rows, so that a few blocks share a segment.
    "panels": (1,),
}


# Tiles of a segment that blocks share: test_grid.py tests the default, the whole array.
TILES_OF_GRID = 40


# The integer up to which a type, or a sum through that type, holds all integers.
EXACT_UP_TO = {"f16": 2**11, "bf16": 2**8, "tf32": 2**11, "f32": 2**24, "f64": 2**53, "s8": 127}


# Why a variant may be refused; the errors' own tests say when.
REFUSALS = (
    "a block of one launch for a whole array takes one chunk: items_per_warp=1",
    "warps is a power of 2, got 3",
    r"the \d+ panels of a block are not 1, 2 or 4 chunks of 8",
    "scan_single_pass needs a power of 2 of data rows, 1024 at most, where a segment takes several",
    r"form '\(LA\)1' rounds partial sums to the operand type; combine 'add' takes 'L\(A1\)'",
    r"form '\[U\|1\]' needs more result columns than k",
)


class Variant(NamedTuple):
    """One way to build an algorithm."""

    side: str = "a"
    combine: str = "mma"
    masked: bool = False
    options: tuple[tuple[str, Any], ...] = ()


def variants(row: Algorithm) -> Iterator[Variant]:
    """Yield every side, way to combine, raggedness and option of an algorithm."""
    names = [name for name in row.options if name in OPTIONS]
    combines = [combine for combine in ("mma", "add") if combine in row.combines]
    for side, combine, masked in itertools.product("ab", combines, (False, True)):
        for values in itertools.product(*(OPTIONS[name] for name in names)):
            yield Variant(side, combine, masked, tuple(zip(names, values, strict=True)))


def built(row: Algorithm, shape: MmaShape, variant: Variant, **more: Any) -> Program | None:
    """Build a variant; None if it is one of those that are refused."""
    more.setdefault("segment_size", default_size(row, shape, variant.side))
    rows = shape.n if variant.side == "b" else shape.m
    if row.level is Level.GRID and rows & (rows - 1) == 0:
        # They share a chunk of a scan; other tiles' rows do not fill it.
        more.setdefault("warps", 8)
    try:
        return build(
            row.name,
            tile=shape,
            side=variant.side,
            combine=variant.combine,
            masked=variant.masked,
            **dict(variant.options),
            **more,
        )
    except Unsupported as error:
        if not any(re.match(refusal, str(error)) for refusal in REFUSALS):
            raise
        return None


def default_size(row: Algorithm, shape: MmaShape, side: str) -> int:
    """Return the default segment: rows of k, or tiles, as the registry's row says."""
    m = shape.n if side == "b" else shape.m
    repeats = TILES_OF_GRID if row.level is Level.GRID else row.repeats
    return repeats * shape.k * (m if row.tiles else 1)


def sparse_integers(seed: int, length: int, segment_size: int, limit: int) -> Ints:
    """Return integers of both signs; their magnitudes sum to at most `limit` in each segment."""
    rng = np.random.default_rng(seed)
    largest = min(3, limit)
    density = min(1.0, limit / (3.0 * largest * segment_size))
    x: Ints = rng.integers(-largest, largest + 1, length) * (rng.random(length) < density)
    x[::segment_size] = 1
    x[segment_size - 1 :: segment_size] = -largest
    assert of_rows("reduction", np.abs(x), segment_size).max() <= limit
    return x


def exact(
    row: Algorithm, variant: Variant, x: Ints, segment_size: int, carry: Ints
) -> NDArray[np.float64]:
    """Return the algorithm's expected results; float64 holds them."""
    found = of_rows(row.kind, x, segment_size)
    if dict(variant.options).get("carry"):
        found = found + np.repeat(carry, segment_size)[: x.size]
    return found


def runs(program: Program, segment_size: int, archs: list[str]) -> Iterator[tuple[str, int]]:
    """Yield units and input sizes: two whole blocks or, ragged, a block and a half segment."""
    per_block = program.blocks.per
    if program.scalars[0].multiple_of > 1:
        yield from ((arch, 2 * per_block) for arch in archs)
        return
    yield from ((arch, per_block + (segment_size + 1) // 2) for arch in archs)
    yield archs[0], 1


def assert_exact(
    row: Algorithm,
    variant: Variant,
    program: Program,
    segment_size: int,
    archs: list[str],
    limit: int = EXACT_UP_TO["f16"],
) -> None:
    """Run a program on several units, with new inputs for each, and compare with integers."""
    if dict(variant.options).get("carry"):
        # The type holds the carry and the segment's sums together.
        limit //= 2
    for seed, (arch, length) in enumerate(runs(program, segment_size, archs)):
        x = sparse_integers(seed, length, segment_size, limit)
        count = -(-length // segment_size)
        carry = np.random.default_rng(seed).integers(-limit, limit + 1, count)
        inputs = {"in": x.astype(np.float64), "carry": carry.astype(np.float64)}
        given = {buffer.name: inputs[buffer.name] for buffer in program.inputs}
        result = run(program, given, arch=arch)["out"].astype(np.float64)
        expected = exact(row, variant, x, segment_size, carry)
        np.testing.assert_array_equal(
            result, expected, err_msg=f"{program.name} {variant} {arch} {length} {segment_size}"
        )


# --- Shapes x algorithms x variants x units ---------------------------------------------------


# On the first shape every variant is tried, on the others some, of each another one.
@pytest.mark.parametrize("sizes", SHAPES, ids=lambda sizes: "x".join(map(str, sizes)))
def test_every_variant_equals_integers_and_every_unit_runs_it(
    sizes: tuple[int, int, int], some: Some
) -> None:
    shape = MmaShape(*sizes)
    archs = names_of_units()
    for row in segmented_algorithms():
        ran: set[str] = set()
        # Variants take the units one by one; those of another shape begin with another unit.
        turn = SHAPES.index(sizes)
        every = [
            variant for variant in variants(row) if sizes != BIG or tried_when_big(row, variant)
        ]
        for variant in every if sizes == SHAPES[0] else some(every, 19, turn):
            program, size = default_program(row, shape, variant)
            if program is None:
                continue
            chosen = [archs[turn % len(archs)]]
            if sizes == SHAPES[0] and not variant.masked:
                # Here every unit runs every algorithm: whole variants take a third of the units.
                chosen = archs[turn % 3 :: 3]
            if sizes == BIG and row.name in MANY_PRODUCTS:
                chosen = ["hopper"]
            turn += 1
            ran.update(chosen)
            assert_exact(row, variant, program, size, chosen)
        assert ran, f"no variant of {row.name} was built for {shape.name}"
        if sizes == SHAPES[0]:
            assert ran == set(archs) or turn < 6, f"{row.name}: {ran}"


def default_program(
    row: Algorithm, shape: MmaShape, variant: Variant
) -> tuple[Program | None, int]:
    """Build a variant for its default segment; a row of a big tile is long enough."""
    size = default_size(row, shape, variant.side)
    if (shape.m, shape.n, shape.k) == BIG and row.name in MANY_PRODUCTS:
        size = shape.k
    return built(row, shape, variant, segment_size=size), size


# A product for each row or column of a tile takes a warp a while.
MANY_PRODUCTS = ("reduction_kn_coalesced",)


def tried_when_big(row: Algorithm, variant: Variant) -> bool:
    """Say whether large tiles are tried: of costly algorithms, in ragged programs alone.

    The products of a carry do not depend on the tile's size.
    """
    costly = row.name in MANY_PRODUCTS or row.level is not Level.WARP
    return (variant.masked or not costly) and not dict(variant.options).get("carry")


# A square tile, an oblong one with mirrored sides, and one of odd sizes.
@pytest.mark.parametrize(
    "sizes", [(16, 16, 16), (32, 8, 16), (5, 7, 3)], ids=lambda sizes: "x".join(map(str, sizes))
)
def test_segments_that_fill_no_tile_equal_integers(sizes: tuple[int, int, int], some: Some) -> None:
    shape = MmaShape(*sizes)
    archs = names_of_units()
    turn = 0
    for number, row in enumerate(segmented_algorithms(), start=SHAPES.index(sizes)):
        for variant in some(variants(row), 11, number):
            whole = default_size(row, shape, variant.side)
            for size in sorted({1, whole // 2 + 1}):
                program = built(row, shape, variant, segment_size=size)
                if program is not None:
                    assert_exact(row, variant, program, size, [archs[turn % len(archs)]])
                    turn += 1


@pytest.mark.parametrize(("warps", "tiles"), [(3, 1), (8, 1), (1, 2), (2, 3)])
def test_warps_and_their_turns_share_the_work(warps: int, tiles: int, some: Some) -> None:
    shape = MmaShape(8, 8, 4)
    for number, row in enumerate(segmented_algorithms(), start=warps):
        for variant in some(variants(row), 11, number):
            program = built(row, shape, variant, warps=warps, items_per_warp=tiles)
            if program is not None:
                assert program.warps == warps
                size = default_size(row, shape, variant.side)
                workers = warps if row.level is Level.WARP else 1
                assert program.blocks.per == taken_alone(row.name, shape, variant) * workers * tiles
                assert_exact(row, variant, program, size, ["hopper"])


@functools.cache
def taken_alone(name: str, shape: MmaShape, variant: Variant) -> int:
    """Return the elements of a block of one warp that takes one turn."""
    program = built(algorithm_of(name), shape, variant)
    assert program is not None
    return program.blocks.per


def test_default_segments_are_what_the_registry_says() -> None:
    shape = shape_of("32x8x16")
    for row in segmented_algorithms():
        if row.level is Level.GRID:
            assert build(row.name) != build(row.name, segment_size=default_size(row, shape, "a"))
            continue
        for side in "ab":
            size = default_size(row, shape, side)
            assert build(row.name, tile=shape, side=side) == build(
                row.name, tile=shape, side=side, segment_size=size
            )


# --- Types ------------------------------------------------------------------------------------


TYPES = (
    # ab, acc, shape, combine
    ("bf16", "f32", "16x16x16", "mma"),
    ("bf16", "f32", "32x8x16", "add"),
    ("tf32", "f32", "16x16x8", "mma"),
    ("tf32", "f32", "16x16x8", "add"),
    ("f64", "f64", "8x8x4", "mma"),
    ("f64", "f64", "8x8x4", "add"),
    ("f16", "f16", "16x16x16", "mma"),
    ("f16", "f16", "8x32x16", "mma"),
    ("f16", "f16", "16x16x16", "add"),
    ("s8", "s32", "16x16x16", "add"),
    ("s8", "s32", "8x32x16", "add"),
)


@pytest.mark.parametrize(("ab", "acc", "shape", "combine"), TYPES)
def test_other_types_equal_integers(
    ab: str, acc: str, shape: str, combine: str, some: Some
) -> None:
    archs = names_of_units(ab, acc)
    for number, row in enumerate(segmented_algorithms()):
        done = 0
        every = [variant for variant in variants(row) if variant.combine == combine]
        # Where all of the sample are refused, the first one that is not stands for it.
        sample = some(every, 7, number)
        tile = shape_of(shape)
        for variant in itertools.chain(sample, every):
            if done and variant not in sample:
                break
            program = built(row, tile, variant, ab=ab, acc=acc)
            if program is None:
                continue
            size = default_size(row, tile, variant.side)
            arch = archs[done % len(archs)]
            assert_exact(row, variant, program, size, [arch], EXACT_UP_TO[ab])
            done += 1
        assert done or combine not in row.combines, row.name


@pytest.mark.parametrize("sizes", [(16, 16, 16), (32, 8, 16)])
def test_float32_in_three_bf16_parts_equals_integers(
    sizes: tuple[int, int, int], some: Some
) -> None:
    shape = MmaShape(*sizes)
    archs = names_of_units("bf16", "f32")
    done = set()
    turn = 0
    # Rows of panels are added without products.
    split = [
        row for row in segmented_algorithms() if not row.adds_rows and "_short" not in row.name
    ]
    for row in split:
        every = [
            variant
            for variant in variants(row)
            if variant.combine == "add" or row.name in ONE_PRODUCT_CHAINS
        ]
        for variant in some(every, 7, SHAPES.index(sizes)):
            program = built(row, shape, variant, ab="bf16", source="f32")
            if program is None:
                continue
            done.add(row.name)
            size = default_size(row, shape, variant.side)
            # 24 significant bits: no single part holds such a number.
            arch = archs[turn % len(archs)]
            assert_exact_float32(row, variant, program, size, [arch])
            turn += 1
    assert done == {row.name for row in split} - {"reduction_tn_inefficient"}


# Their partial sums never become operands, for any `combine`.
ONE_PRODUCT_CHAINS = ("reduction_k", "reduction_kn", "scan_k", "scan_kn")


def assert_exact_float32(
    row: Algorithm, variant: Variant, program: Program, segment_size: int, archs: list[str]
) -> None:
    """Compare on numbers of 24 bits, one in a segment, on units that have bf16."""
    for seed, (arch, length) in enumerate(runs(program, segment_size, archs)):
        rng = np.random.default_rng(seed)
        count = -(-length // segment_size)
        x = np.zeros(length, np.int64)
        first = np.arange(count) * segment_size
        last = np.minimum(first + segment_size, length) - 1
        x[rng.integers(first, last + 1)] = rng.integers(2**23, 2**24, count) | 1
        carry = np.zeros(count, np.int64)
        inputs = {"in": x.astype(np.float32), "carry": carry.astype(np.float32)}
        given = {buffer.name: inputs[buffer.name] for buffer in program.inputs}
        result = run(program, given, arch=arch)["out"]
        expected = exact(row, variant, x, segment_size, carry)
        np.testing.assert_array_equal(result, expected, err_msg=f"{program.name} {variant} {arch}")


# --- Chains -----------------------------------------------------------------------------------


@pytest.mark.parametrize("accumulation_length", [1, 2, 3, 5, 7])
@pytest.mark.parametrize("name", ["reduction_kn", "reduction_kn_coalesced", "reduction_tn"])
def test_chains_of_any_length_equal_integers(name: str, accumulation_length: int) -> None:
    row = algorithm_of(name)
    shape = MmaShape(4, 4, 4)
    for side, masked, tiles in itertools.product("ab", (False, True), (1, 5, 6)):
        variant = Variant(side, "add", masked)
        size = 16 * tiles
        program = build(
            name, tile=shape, side=side, combine="add", masked=masked, segment_size=size,
            accumulation_length=accumulation_length,
        )  # fmt: skip
        assert_exact(row, variant, program, size, ["volta", "exact"])


# --- Refusals of build ------------------------------------------------------------------------


def test_units_that_lack_a_type_are_not_tested_silently() -> None:
    assert set(names_of_units()) >= {
        "volta", "turing", "ampere", "ada", "hopper", "blackwell", "ieee", "exact",
    }  # fmt: skip
    for arch in names_of_units("bf16", "f32"):
        assert rule_for(arch, "bf16", "f32")


@pytest.mark.parametrize("name", MANY_PRODUCTS)
def test_the_longest_programs_on_every_unit(name: str, some: Some) -> None:
    """The 64x64x64 forms that the test of every variant gives to one unit only, and larger ones.

    The sides share the units: a product of the sides exchanged is the same product.
    """
    units = names_of_units()
    tried = ((64, "a", units[::2]), (64, "b", units[1::2]), (128, "a", ["ieee"]))
    for edge, side, archs in some(tried, 3, MANY_PRODUCTS.index(name)):
        x = np.random.default_rng(0).integers(-2, 3, 12 * edge - 36).astype(np.float16)
        expected = np.add.reduceat(x.astype(np.int64), np.arange(0, x.size, edge))
        shape = MmaShape(edge, edge, edge)
        program = build(name, tile=shape, side=side, masked=True, segment_size=edge)
        for arch in archs:
            sums = run(program, {"in": x}, arch=arch)["out"]
            np.testing.assert_array_equal(sums, expected, f"{edge} {side} {arch}")
