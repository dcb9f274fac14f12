"""Exclusive and reverse scans equal exact integer sums, in every form and for both operands.

Expected values are written element by element from the definition, not by way of an inclusive scan.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from numpy_results import names_of_units
from some import Some
from tcusim.algorithms import build
from tcusim.algorithms.tile_scan import FORMS
from tcusim.backends import Backend, run
from tcusim.errors import Unsupported
from tcusim.judge.correctness.testing import assert_agree
from tcusim.machine.shapes import MmaShape
from tcusim.program.grammar import Program
from tcusim.simulate.interpreter import interpret

Ints = NDArray[np.int64]

SHAPES = ((16, 16, 16), (32, 8, 16), (8, 32, 16), (4, 4, 4), (5, 7, 3))
# Exclusive, reverse.
ORDERS = ((True, False), (False, True), (True, True))
NAMES = ("scan_k", "scan_kn", "scan_t", "scan_tn", "scan_tn_block", "scan_matmul")
FORMED = ("scan_t", "scan_tn", "scan_tn_block")


def expected(
    x: Ints, segment_size: int, *, exclusive: bool, reverse: bool, carry: Ints | None = None
) -> Ints:
    """Return each element's sum, from the definition."""
    found = np.zeros_like(x)
    for i in range(x.size):
        number = i // segment_size
        first, last = number * segment_size, min((number + 1) * segment_size, x.size)
        skip = int(exclusive)
        found[i] = x[i + skip : last].sum() if reverse else x[first : i + 1 - skip].sum()
        if carry is not None:
            found[i] += carry[number]
    return found


def check(
    program: Program,
    length: int,
    segment_size: int,
    rng: np.random.Generator,
    arch: str,
    order: dict[str, Any],
    note: object = "",
    scale: int = 1,
) -> None:
    """Run a program on small random integers, times `scale`, and compare every element."""
    x = rng.integers(-3, 4, length) * scale
    carry = rng.integers(-99, 100, -(-length // segment_size))
    arrays = {"in": x.astype(np.float64), "carry": carry.astype(np.float64)}
    given = {buffer.name: arrays[buffer.name] for buffer in program.inputs}
    result = run(program, given, arch=arch)["out"].astype(np.float64)
    wanted = expected(x, segment_size, **order, carry=carry if "carry" in given else None)
    message = f"{program.name} {arch} {length} {segment_size} {order} {note}"
    np.testing.assert_array_equal(result, wanted, err_msg=message)


def variants(name: str) -> Iterator[dict[str, Any]]:
    """Yield every side, way to combine, form and carry of a scan."""
    forms = FORMS if name in FORMED else (None,)
    for side, combine, form, carry in itertools.product("ab", ("mma", "add"), forms, (False, True)):
        given: dict[str, Any] = {"side": side, "combine": combine, "form": form, "carry": carry}
        if name in ("scan_tn_block", "scan_matmul"):
            # Three tiles for four warps, or for two and one more turn.
            given["warps"] = 2 if carry else 4
        yield {key: value for key, value in given.items() if value is not None}


def sizes_of(name: str, shape: MmaShape, side: str) -> tuple[int, int]:
    """Return a segment of whole rows or tiles, and one that fills none."""
    m = shape.n if side == "b" else shape.m
    tile = m * shape.k
    whole = {"scan_k": shape.k, "scan_t": tile, "scan_kn": 3 * shape.k, "scan_tn": 3 * tile}
    whole["scan_tn_block"] = whole["scan_matmul"] = whole["scan_tn"]
    size = whole.get(name, 37)
    return size, size - shape.k // 2 - 1


def built(name: str, shape: MmaShape, **options: Any) -> Program | None:
    """Build a scan; None for a form that the shape or the way to combine does not have."""
    try:
        return build(name, tile=shape, **options)
    except Unsupported as error:
        if not str(error).startswith("form '"):
            raise
        return None


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("sizes", SHAPES, ids=lambda sizes: "x".join(map(str, sizes)))
def test_every_form_equals_integers(sizes: tuple[int, int, int], name: str, some: Some) -> None:
    shape = MmaShape(*sizes)
    rng = np.random.default_rng(1)
    archs = itertools.cycle(names_of_units())
    swapped = itertools.cycle((False, True))
    done = 0
    every = itertools.product(variants(name), ORDERS)
    for options, (exclusive, reverse) in some(every, 5, SHAPES.index(sizes) + NAMES.index(name)):
        order: dict[str, Any] = {"exclusive": exclusive, "reverse": reverse}
        whole, part = sizes_of(name, shape, options["side"])
        # Each size with one kind of end; the next variant pairs them the other way.
        first = next(swapped)
        for size, masked in ((whole, first), (part, not first)):
            program = built(name, shape, segment_size=size, masked=masked, **options, **order)
            if program is None:
                continue
            per_block = program.blocks.per
            length = per_block + size // 2 + 1 if masked else 2 * per_block
            check(program, length, size, rng, next(archs), order, options)
            done += 1
    assert done >= (2 * 3 * 2 * 2 if some.full else 4)


@pytest.mark.parametrize(
    ("name", "types"),
    [
        ("scan_kn", {"ab": "bf16", "source": "f32"}),
        ("scan_kn", {"ab": "bf16", "source": "f32", "combine": "add"}),
        ("scan_tn", {"ab": "bf16", "source": "f32", "combine": "add"}),
        ("scan_tn", {"ab": "s8", "acc": "s32", "combine": "add"}),
        ("scan_kn", {"ab": "s8", "acc": "s32"}),
        ("scan_tn", {"acc": "f16"}),
        ("scan_tn", {"ab": "tf32", "tile": "16x16x8"}),
        ("scan_tn", {"ab": "f64", "acc": "f64", "tile": "8x8x4"}),
        ("scan_panel", {"ab": "f32"}),
    ],
)
def test_other_types_and_parts(name: str, types: dict[str, Any]) -> None:
    rng = np.random.default_rng(2)
    for exclusive, reverse in ORDERS:
        order: dict[str, Any] = {"exclusive": exclusive, "reverse": reverse}
        program = build(name, segment_size=600, masked=True, **types, **order)
        # No single bf16 holds a multiple of 1025.
        scale = 1025 if types.get("source") == "f32" else 1
        check(program, 1501, 600, rng, "hopper", order, types, scale)


# --- Cost ---------------------------------------------------------------------------------------

EXTRA = {
    # Products for each tile (row of k) on top of the inclusive form, for m = 32, n = 8, k = 16.
    ("scan_kn", None): 1,  # A.J
    ("scan_tn", "(LA)1"): 2,  # A.1 and X.1
    ("scan_tn", "L(A1)"): 2,  # 1.X, ceil(m/k)
}


def products(program: Program) -> int:
    """Count the mma steps of one warp."""
    inputs = {"in": np.ones(program.blocks.per, np.float16)}
    return sum(type(event.step).__name__ == "Mma" for event in interpret(program, inputs))


@pytest.mark.parametrize(("name", "form"), EXTRA)
def test_reverse_costs_nothing_and_exclusive_a_little(name: str, form: str | None) -> None:
    given: dict[str, Any] = {"tile": "32x8x16", "side": "a", "segment_size": 5 * 512}
    if form is not None:
        given["form"] = form
    pieces = 5 if name == "scan_tn" else 5 * 512 // 16
    plain = products(build(name, **given))
    assert products(build(name, **given, reverse=True)) == plain
    for reverse in (False, True):
        strict = products(build(name, **given, exclusive=True, reverse=reverse))
        assert strict - plain == EXTRA[name, form] * pieces


# --- The emitted text -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arch", "name", "options"),
    [
        ("volta", "scan_tn", {"form": "(LA)1", "exclusive": True, "reverse": True}),
        ("volta", "scan_kn", {"exclusive": True, "side": "b", "tile": "8x32x16"}),
        ("ampere", "scan_tn", {"combine": "add", "reverse": True, "carry": True, "warps": 2}),
        ("ampere", "scan_tn_block", {"warps": 3, "exclusive": True, "reverse": True}),
        ("ampere", "scan_tn", {"form": "L(A1)", "exclusive": True, "tile": "32x8x16"}),
        ("hopper", "scan_tn", {"form": "[U|1]", "tile": "8x32x16", "side": "a", "reverse": True}),
        ("hopper", "scan_panel", {"ab": "f32", "exclusive": True, "reverse": True, "carry": True}),
    ],
)
def test_the_emitted_text_gives_the_same_bits(
    arch: str, name: str, options: dict[str, Any], host: Backend
) -> None:
    rng = np.random.default_rng(3)
    program = build(name, segment_size=1000, masked=True, **options)
    arrays = {"in": rng.standard_normal(2345).astype(np.float16)}
    carry = next((buffer for buffer in program.inputs if buffer.name == "carry"), None)
    if carry is not None:
        kind = np.float32 if carry.dtype == "f32" else np.float16
        arrays["carry"] = rng.standard_normal(3).astype(kind)
    assert_agree(program, arrays, ("numpy", host), arch=arch)
