"""Effects of each step of the grammar, a line a case: on the simulator, and in the emitted text."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from tcusim.backends import Backend
from tcusim.machine import from_values
from tcusim.machine.shapes import shape_of
from tcusim.program.grammar import (
    BLOCK,
    COL,
    ROW,
    WARP,
    Add,
    Assign,
    Await,
    Bound,
    Buffer,
    BufferRole,
    Const,
    Extent,
    Formula,
    Frag,
    Gathered,
    Index,
    Load,
    Locate,
    Loop,
    Mma,
    Operation,
    Pattern,
    PatternKind,
    Prefix,
    Program,
    Publish,
    Ranges,
    Role,
    Scope,
    Segments,
    Space,
    Step,
    Store,
    Strided,
    Sync,
    View,
    When,
    accesses,
    part_of,
    split,
    sum_of,
    walk,
)
from tcusim.simulate.interpreter import run_numpy
from tcusim_cuda.emit import emit
from tcusim_host import compile_programs, run_kernel

Memory = Mapping[str, NDArray[Any]]

TILE = shape_of("16x16x16")
A, B = Frag("A", Role.A, TILE, "f16"), Frag("B", Role.B, TILE, "f16")
C, D, E = (Frag(name, Role.ACC, TILE, "f32") for name in "CDE")
I = Index.symbol("i")  # noqa: E741
SYNC = Sync(Scope.WARP)
NAN = np.nan


# --- Places -------------------------------------------------------------------------------------


def halves(name: str, size: int = 256, role: BufferRole = BufferRole.INPUT) -> Buffer:
    return Buffer(name, "f16", Extent.of(size), role)


def floats(name: str, size: int, role: BufferRole = BufferRole.INPUT) -> Buffer:
    return Buffer(name, "f32", Extent.of(size), role)


def output(name: str, size: int, dtype: str = "f32") -> Buffer:
    return Buffer(name, dtype, Extent.of(size), BufferRole.OUTPUT, partial=True)


def shared(name: str, size: int, dtype: str = "f32", space: Space = Space.WARP) -> Buffer:
    return Buffer(name, dtype, Extent.of(size), BufferRole.SCRATCH, space)


def tile(buffer: Buffer, strides: tuple[int, int] = (16, 1), offset: int = 0) -> View:
    return View.strided(buffer, Index.of(offset), 16, 16, *strides)


def line(buffer: Buffer, count: int, offset: Index | int = 0, *bounds: Bound) -> View:
    """Return `count` elements that lie side by side."""
    return View.strided(buffer, Index.of(offset), 1, count, count, 1, bounds)


def rows_of(buffer: Buffer, rows: int, cols: int, *bounds: Bound) -> View:
    """Return rows that follow each other."""
    return View.strided(buffer, Index(), rows, cols, cols, 1, bounds)


def column(buffer: Buffer, rows: int) -> View:
    return View.strided(buffer, Index(), rows, 1, 1, 1)


def up_to(*limits: int) -> tuple[Bound, ...]:
    return tuple(Bound(COL, Index.of(limit)) for limit in limits)


X, Y, OUT = floats("x", 8), floats("y", 8), output("out", 8)
T = shared("t", 8)
HALVES_OUT = output("halves_out", 8, "f16")
IN = BufferRole.INPUT
COUNT = np.arange(8, dtype=np.float32)
SQUARE = np.arange(256).reshape(16, 16)
SMALL = (SQUARE % 5 - 2).astype(np.float16)
SPOILED = np.where(SQUARE % 7, SMALL, np.array([np.inf, NAN, -np.inf], np.float16)[SQUARE % 3])
EYE = np.eye(16, dtype=np.float16)
PARTED = np.array([0.5, 1.5, -2.5, -(2.0**-24), 2048, -65504, np.inf, NAN], np.float16)
WIDE = {name: Buffer(name, "f64", Extent.of(4), BufferRole.INPUT) for name in "xy"}
MIXED = np.array([1, np.inf, 0, NAN, 0, 2, -np.inf, 0], np.float32)


# Rows of 8 and of 100 numbers: their sums depend on the order.
SPREAD = ((np.arange(40) % 7 - 3) * 1.1 ** np.arange(40)).astype(np.float32)
LONG_ROWS = ((np.arange(200) % 13 - 5) * 1.07 ** np.arange(200)).astype(np.float32)
PANEL, SUMS = rows_of(shared("panel", 40), 5, 8), shared("sums", 5)


# --- The comparison -------------------------------------------------------------------------------


class Case(NamedTuple):
    """Steps of a program of one warp a block, with memory before and after.

    A name may be a fragment's: memory is loaded into it before the steps, or it is stored after
    them. An operand is seen through its product with the identity.
    """

    name: str
    steps: Step | tuple[Step, ...]
    memory: Memory
    expected: Memory
    blocks: int = 1
    warps: int = 1


def program_of(case: Case) -> Program:
    """Return the steps with loads of fragments before them, and stores after them."""
    steps = case.steps if isinstance(case.steps, tuple) else (case.steps,)
    touched = [accesses(step) for _, step in walk(steps)]
    frags = {f.name: f for one in touched for f in (*one.frags_read, *one.frags_written)}
    views = [view for one in touched for view in (*one.views_read, *one.views_written)]
    buffers = {view.buffer.name: view.buffer for view in views}
    buffers |= {
        step.segments.offsets.name: step.segments.offsets
        for _, step in walk(steps)
        if isinstance(step, Locate)
    }
    before: list[Step] = []
    after: list[Step] = []
    for name, frag in frags.items():
        if name in case.memory:
            source = Buffer(f"{name}_in", frag.dtype, Extent.of(256), BufferRole.INPUT)
            buffers[source.name] = source
            before.append(Load(frag, tile(source)))
        if name in case.expected:
            result = output(f"{name}_out", 256)
            buffers[result.name] = result
            if frag.role is not Role.ACC:
                buffers["eye"] = halves("eye")
                other = Frag("other", Role.B if frag.role is Role.A else Role.A, TILE, "f16")
                after += [Load(other, tile(buffers["eye"])), Const(E, Pattern(PatternKind.ZEROS))]
                pair = (frag, other) if frag.role is Role.A else (other, frag)
                after.append(Mma(E, *pair, E))
                frag = E
            after.append(Store(tile(result), frag))
    return Program(
        name="step",
        shape=TILE,
        ab="f16",
        acc="f32",
        scalars=(),
        buffers=tuple(buffers.values()),
        blocks=Extent.of(case.blocks),
        warps=case.warps,
        steps=(*before, *steps, *after),
    )


def assert_step(case: Case) -> None:
    """Run the case on the simulator and in the emitted text: both give the expected result."""
    program = program_of(case)
    given = {name: value for name, value in case.memory.items() if name not in "ABCDE"}
    given |= {f"{name}_in": value.ravel() for name, value in case.memory.items() if name in "ABCDE"}
    if any(buffer.name == "eye" for buffer in program.buffers):
        given["eye"] = EYE.ravel()
    for run in (run_numpy, lambda program, given: run_kernel(emit(program), given)):
        result = run(program, given)
        assert len(result) == len(case.expected)
        for name, value in case.expected.items():
            found = result[f"{name}_out" if name in "ABCDE" else name]
            np.testing.assert_array_equal(found, value.ravel(), strict=name not in "ABCDE")


# --- The cases ------------------------------------------------------------------------------------


def pattern(kind: PatternKind, offset: int = 0) -> Pattern:
    return Pattern(kind, Index.of(offset))


def in_pairs(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Add up rows: neighbours, then neighbouring pairs, with zeros behind the last element."""
    size = 1 << (rows.shape[1] - 1).bit_length()
    sums = np.zeros((len(rows), size), np.float32)
    sums[:, : rows.shape[1]] = rows
    while sums.shape[1] > 1:
        sums = sums[:, ::2] + sums[:, 1::2]
    return sums.ravel()


def prefixes(x: NDArray[np.float32], cols: int) -> NDArray[np.float32]:
    """Return the prefix sums of rows: an element's sums the pairs that end with it."""
    rows = x.reshape(-1, cols)
    columns = []
    for end in range(1, cols + 1):
        # The pieces of 1 .. end by powers of 2, the largest first, are added from the right.
        edges = [end]
        while edges[-1]:
            edges.append(edges[-1] & (edges[-1] - 1))
        parts = [
            in_pairs(np.ascontiguousarray(rows[:, low:high]))
            for high, low in itertools.pairwise(edges)
        ]
        columns.append(functools.reduce(lambda sums, part: part + sums, parts))
    return np.stack(columns, 1).ravel()


def before_each(x: NDArray[np.float32], cols: int) -> NDArray[np.float32]:
    """Return the prefix sums of rows without the elements themselves."""
    rows = prefixes(x.astype(np.float32), cols).reshape(-1, cols)
    return np.concatenate([np.zeros_like(rows[:, :1]), rows[:, :-1]], 1).ravel()


def array(*values: float) -> NDArray[np.float32]:
    return np.array(values, np.float32)


def parts_of(value: float) -> tuple[float, float, float]:
    """Split float32 values into three numbers of 8 bits each."""
    found = []
    rest = np.float32(value)
    for _ in range(3):
        bits = rest.view(np.uint32).item()
        # Rounds to nearest: there are no ties here.
        part = np.uint32((bits + 0x8000) & 0xFFFF0000).view(np.float32)
        found.append(float(part))
        rest = np.float32(rest - part)
    return found[0], found[1], found[2]


def passed_on(awaited: View) -> Step:
    """Return steps: block 1 writes the value that block 0 has published."""
    get = (Await(line(T, 4), awaited), SYNC, Assign(line(OUT, 4, 4 * BLOCK), line(T, 4)))
    return When((Bound(BLOCK, Index.of(1)),), (Publish(line(STATUS, 4), line(X, 4)),), get)


def on_data(count: int) -> tuple[Step, ...]:
    """Return steps that take the finite elements of 8 if one of the first is not finite."""
    taken = (SYNC, Assign(line(T, 8), part_of(Operation.FINITE, line(T, 8))))
    when = When((), taken, not_finite=line(T, count))
    return Assign(line(T, 8), line(X, 8)), SYNC, when, SYNC, Assign(line(OUT, 8), line(T, 8))


def either(count: int) -> tuple[Step, ...]:
    """Return steps that write finite elements if one of the first is not finite, else doubles."""
    some, doubles = (
        Assign(line(OUT, 8), part_of(Operation.FINITE, line(T, 8))),
        Assign(line(OUT, 8), sum_of(line(T, 8), line(T, 8))),
    )
    when = When((), (some,), (doubles,), not_finite=line(T, count))
    return Assign(line(T, 8), line(X, 8)), SYNC, when


def row_of_ones(row: int) -> NDArray[np.float64]:
    return np.outer(np.arange(16) == row, np.ones(16))


# A rectangle, and the transpose of another.
TURNED = (View.strided(OUT, Index(), 2, 4, 4, 1), View.strided(T, Index(), 2, 4, 1, 2))
OFFSETS = Buffer("offsets", "s64", Extent.of(4), BufferRole.INPUT)
RANGES = Ranges("r", 4)
GATHERED = View(X, Index(), Gathered(RANGES), Strided(4, 1))
ROWS = output("out", 16)
SPLIT = tuple(output(f"p{i}", 2, "bf16") for i in range(3))
STATUS = Buffer("s", "f32", Extent.of(8), BufferRole.STATUS)
SEGMENTS = {"x": COUNT, "offsets": np.array([0, 3, 3, 8])}


def located(chunk: int | None) -> tuple[Step, ...]:
    return (
        Locate(RANGES, Segments(OFFSETS, chunk, limit=Index.of(8)), Index()),
        Assign(View.strided(ROWS, Index(), 4, 4, 4, 1), GATHERED),
    )


# Of two warps: segments of 0, 1, 1, 0 elements, and of 1, 0, 3, 2.
TWO = {"x": COUNT, "offsets": np.array([0, 0, 1, 2, 2, 3, 3, 6, 8])}


def longer(taken: Assign, other: Assign) -> tuple[Step, ...]:
    """Return steps that depend on how long the ranges of a warp are."""
    offsets = replace(OFFSETS, size=Extent.of(9))
    return (
        Locate(RANGES, Segments(offsets, None, limit=Index.of(8)), 4 * WARP),
        When((), (taken,), (other,), longer=RANGES),
    )


# The first element of each range of a warp; it writes to its ranges.
FIRSTS = View(X, Index(), Gathered(RANGES), Strided(1, 1))
OF_WARP = View(OUT, Index(), Gathered(RANGES), Strided(4, 1))
OF_ONE = View(OUT, Index(), Gathered(RANGES), Strided(1, 1))

ONES, RIGHT = Frag("ones", Role.A, TILE, "f16"), Frag("turned", Role.B, TILE, "f16")
SUMMED = (
    *(Const(frag, pattern(PatternKind.ONES)) for frag in (ONES, B)),
    Const(C, pattern(PatternKind.ZEROS)),
)

CASES = [
    Case("const_ones", Const(C, pattern(PatternKind.ONES)), {}, {"C": np.ones(256)}),
    Case("const_zeros", Const(C, pattern(PatternKind.ZEROS)), {}, {"C": np.zeros(256)}),
    Case("const_row", Const(A, pattern(PatternKind.ROW, 2)), {}, {"A": row_of_ones(2)}),
    Case("const_col", Const(B, pattern(PatternKind.COL)), {}, {"B": row_of_ones(0).T}),
    Case(
        "const_upper", Const(B, pattern(PatternKind.UPPER)), {}, {"B": np.triu(np.ones((16, 16)))}
    ),
    Case(
        "const_lower",
        Const(A, pattern(PatternKind.LOWER, -1)),
        {},
        {"A": np.tril(np.ones((16, 16)), -1)},
    ),
    Case(
        "load_only_finite",
        Load(A, part_of(Operation.FINITE, tile(halves("x")))),
        {"x": SPOILED.ravel()},
        {"A": np.where(np.isfinite(SPOILED), SPOILED, 0)},
    ),
    Case("load_rows", Load(A, tile(halves("x"))), {"x": SMALL.ravel()}, {"A": SMALL}),
    Case("load_columns", Load(B, tile(halves("x"), (1, 16))), {"x": SMALL.ravel()}, {"B": SMALL.T}),
    Case(
        "load_wide_rows",
        Load(A, tile(halves("x", 384), (24, 1))),
        {"x": np.pad(SMALL, ((0, 0), (0, 8))).ravel()},
        {"A": SMALL},
    ),
    Case(
        "load_accumulator",
        Load(C, tile(floats("x", 256))),
        {"x": SQUARE.ravel().astype(np.float32)},
        {"C": SQUARE},
    ),
    Case(
        "mma",
        Mma(D, A, B, C),
        {"A": SMALL, "B": SMALL.T, "C": SQUARE.astype(np.float32)},
        {"D": SMALL.astype(int) @ SMALL.T + SQUARE},
    ),
    Case(
        "mma_in_place",
        Mma(C, A, B, C),
        {"A": SMALL, "B": EYE, "C": np.ones((16, 16), np.float32)},
        {"C": SMALL + 1.0},
    ),
    Case(
        "add",
        Add(D, C, E),
        {"C": SQUARE.astype(np.float32), "E": np.full((16, 16), 2.0**24, np.float32)},
        {"D": (SQUARE + 2.0**24).astype(np.float32)},
    ),
    Case(
        "store_rows",
        Store(tile(output("out", 256)), C),
        {"C": SQUARE.astype(np.float32)},
        {"out": SQUARE.astype(np.float32)},
    ),
    Case(
        "store_columns",
        Store(tile(output("out", 256), (1, 16)), C),
        {"C": SQUARE.astype(np.float32)},
        {"out": SQUARE.T.astype(np.float32)},
    ),
    Case(
        "store_equal_columns",
        (*SUMMED, Mma(D, A, B, C), Store(tile(output("out", 16), (1, 0)), D)),
        {"A": SMALL},
        {"out": SMALL.sum(1, np.float32)},
    ),
    Case(
        "store_equal_rows",
        (
            *SUMMED,
            Load(RIGHT, tile(halves("x"))),
            Mma(D, ONES, RIGHT, C),
            Store(tile(output("out", 16), (0, 1)), D),
        ),
        {"x": SMALL.ravel()},
        {"out": SMALL.sum(0, np.float32)},
    ),
    Case("copy", Assign(line(OUT, 8), line(X, 8)), {"x": COUNT}, {"out": COUNT}),
    Case(
        "copy_reads_0_out_of_bounds",
        Assign(line(OUT, 8), line(X, 8, 0, *up_to(3))),
        {"x": COUNT + 1},
        {"out": array(1, 2, 3, 0, 0, 0, 0, 0)},
    ),
    Case(
        "copy_writes_in_bounds_only",
        Assign(line(OUT, 8, 0, *up_to(6, 3)), line(X, 8)),
        {"x": COUNT},
        {"out": array(0, 1, 2, *[NAN] * 5)},
    ),
    Case(
        "copy_bounds_from_below",
        Assign(line(OUT, 8), line(X, 8, 0, Bound(Index.of(5), COL))),
        {"x": COUNT},
        {"out": array(0, 0, 0, 0, 0, 0, 6, 7)},
    ),
    Case(
        "copy_only_finite",
        Assign(line(OUT, 8), sum_of(part_of(Operation.FINITE, line(X, 8)), line(Y, 8))),
        {"x": MIXED, "y": COUNT},
        {"out": array(1, 1, 2, 3, 4, 7, 6, 7)},
    ),
    Case(
        "copy_only_what_is_not_finite",
        Assign(line(OUT, 8), part_of(Operation.NOT_FINITE, line(X, 8))),
        {"x": MIXED},
        {"out": array(0, np.inf, 0, NAN, 0, 0, -np.inf, 0)},
    ),
    Case(
        "copy_whole_parts",
        Assign(line(output("out", 8, "f16"), 8), part_of(Operation.WHOLE, line(halves("x", 8), 8))),
        {"x": PARTED},
        {"out": np.array([0, 2, -2, 0, 2048, -65504, np.inf, NAN], np.float16)},
    ),
    Case(
        "copy_fractions",
        Assign(
            line(output("out", 8, "f16"), 8), part_of(Operation.FRACTION, line(halves("x", 8), 8))
        ),
        {"x": PARTED},
        {"out": np.array([0.5, -0.5, -0.5, -(2.0**-24), 0, 0, 0, 0], np.float16)},
    ),
    Case(
        "copy_fractions_of_bf16",
        Assign(
            line(output("out", 8, "bf16"), 8),
            part_of(Operation.FRACTION, line(Buffer("x", "bf16", Extent.of(8), IN), 8)),
        ),
        {"x": from_values(np.array([0.5, 1.5, -2.5, -0.0, 0, -3, np.inf, NAN]), "bf16")},
        {"out": from_values(np.array([0.5, -0.5, -0.5, -0.0, 0, 0, 0, 0]), "bf16")},
    ),
    Case(
        "copy_largest_with_infinity",
        Assign(line(OUT, 8), Formula(Operation.MAX, (line(X, 8), -np.inf))),
        {"x": COUNT},
        {"out": COUNT},
    ),
    Case(
        "split_with_a_bound_on_its_first_part",
        split(
            (line(output("out", 4, "f16"), 4, 0, *up_to(1)), line(output("two", 4, "f16"), 4)),
            line(floats("x", 4), 4),
        ),
        {"x": array(1 + 2.0**-12, -1 - 2.0**-12, 3, 1)},
        {
            "out": np.array([1, NAN, NAN, NAN], np.float16),
            "two": np.array([2.0**-12, -(2.0**-12), 0, 0], np.float16),
        },
    ),
    Case(
        "copy_adds_to_odd",
        Assign(line(OUT, 4), sum_of(line(WIDE["x"], 4), line(WIDE["y"], 4), to_odd=True)),
        {
            "x": np.array([2.0**53 + 2.0**29] * 2 + [-(2.0**53) - 2.0**29, np.inf]),
            "y": np.array([2.0**-24, -(2.0**-24), -(2.0**-24), 1.0]),
        },
        {"out": array(2.0**53 + 2.0**30, 2.0**53, -(2.0**53) - 2.0**30, np.inf, *[NAN] * 4)},
    ),
    Case(
        "when_some_range_is_longer",
        longer(Assign(OF_WARP, sum_of(GATHERED, GATHERED)), Assign(OF_ONE, FIRSTS)),
        TWO,
        {"out": array(0, 1, 4, 6, 8, 10, 12, 14)},
        warps=2,
    ),
    Case(
        "when_all_ranges_are_empty",
        longer(Assign(OF_WARP, sum_of(GATHERED, GATHERED)), Assign(OF_ONE, FIRSTS)),
        {"x": COUNT, "offsets": np.array([0, 0, 0, 0, 0, 4, 8, 8, 8])},
        {"out": array(0, 2, 4, 6, 8, 10, 12, 14)},
        warps=2,
    ),
    Case("when_all_are_finite", on_data(4), {"x": COUNT}, {"out": COUNT}),
    Case("when_some_are_not", on_data(8), {"x": MIXED}, {"out": array(1, 0, 0, 0, 0, 2, 0, 0)}),
    Case("when_else_all_are_finite", either(4), {"x": COUNT}, {"out": COUNT + COUNT}),
    Case(
        "when_else_some_are_not",
        either(8),
        {"x": MIXED},
        {"out": array(1, 0, 0, 0, 0, 2, 0, 0)},
    ),
    Case(
        "when_else_each_warp_has_its_own",
        (
            Assign(line(T, 4), line(X, 4, 4 * WARP)),
            SYNC,
            When(
                (),
                (Assign(line(OUT, 4, 4 * WARP), part_of(Operation.FINITE, line(T, 4))),),
                (Assign(line(OUT, 4, 4 * WARP), sum_of(line(T, 4), line(T, 4))),),
                not_finite=line(T, 4),
            ),
        ),
        {"x": array(0, 1, 2, 3, 4, 5, -np.inf, 7)},
        {"out": array(0, 2, 4, 6, 4, 5, 0, 7)},
        warps=2,
    ),
    Case(
        "when_each_warp_has_its_own",
        (
            Assign(line(T, 4), line(X, 4, 4 * WARP)),
            SYNC,
            When(
                (),
                (SYNC, Assign(line(T, 4), sum_of(line(T, 4), line(T, 4)))),
                not_finite=line(T, 4),
            ),
            SYNC,
            Assign(line(OUT, 4, 4 * WARP), line(T, 4)),
        ),
        {"x": array(0, 1, 2, 3, 4, 5, -np.inf, 7)},
        {"out": array(0, 1, 2, 3, 8, 10, -np.inf, 14)},
        warps=2,
    ),
    Case(
        "copy_shifted",
        Assign(line(OUT, 4, 3), line(X, 4, 2)),
        {"x": COUNT},
        {"out": array(NAN, NAN, NAN, 2, 3, 4, 5, NAN)},
    ),
    Case(
        "copy_transposed",
        Assign(View.strided(OUT, Index(), 2, 4, 4, 1), View.strided(X, Index(), 2, 4, 1, 2)),
        {"x": COUNT},
        {"out": array(0, 2, 4, 6, 1, 3, 5, 7)},
    ),
    Case(
        "copy_repeats_a_row",
        Assign(View.strided(OUT, Index(), 2, 4, 4, 1), View.strided(X, Index.of(4), 2, 4, 0, 1)),
        {"x": COUNT},
        {"out": array(4, 5, 6, 7, 4, 5, 6, 7)},
    ),
    Case(
        "copy_repeats_a_column",
        Assign(View.strided(OUT, Index(), 2, 4, 4, 1), View.strided(X, Index.of(4), 2, 4, 1, 0)),
        {"x": COUNT},
        {"out": array(4, 4, 4, 4, 5, 5, 5, 5)},
    ),
    Case(
        "copy_plus",
        Assign(line(OUT, 8), sum_of(line(X, 8), line(Y, 8, 0, *up_to(2)))),
        {"x": COUNT, "y": COUNT + 10},
        {"out": array(10, 12, 2, 3, 4, 5, 6, 7)},
    ),
    Case(
        "copy_rounds_the_sum_once",
        Assign(line(OUT, 8), sum_of(line(X, 8), line(Y, 8))),
        {"x": np.full(8, 2.0**24, np.float32), "y": COUNT},
        {"out": (2.0**24 + COUNT.astype(float)).astype(np.float32)},
    ),
    Case(
        "copy_converts",
        Assign(line(output("out", 4, "f16"), 4), line(X, 4)),
        {"x": array(1 + 2**-11, 1 + 3 * 2**-11, 7e4, -0.0, 0, 0, 0, 0)},
        {"out": np.array([1, 1 + 2**-9, np.inf, -0.0], np.float16)},
    ),
    Case(
        "split",
        split(tuple(line(part, 2) for part in SPLIT), line(floats("x", 2), 2)),
        {"x": array(np.pi, -1e-3)},
        {
            f"p{i}": from_values(np.array(part, np.float32), "bf16")
            for i, part in enumerate(zip(parts_of(np.pi), parts_of(-1e-3), strict=True))
        },
    ),
    Case(
        "map_product",
        Assign(line(OUT, 8), Formula(Operation.TIMES, (line(X, 8), line(Y, 8, 0, *up_to(6))))),
        {"x": MIXED, "y": COUNT + np.float32(0.1)},
        {"out": array(0.1, np.inf, 0, NAN, 0, float(np.float32(2) * np.float32(5.1)), NAN, 0)},
    ),
    Case(
        "map_reciprocal_root",
        Assign(
            line(HALVES_OUT, 8),
            Formula(
                Operation.OVER,
                (
                    1.0,
                    Formula(
                        Operation.ROOT, (Formula(Operation.PLUS, (line(halves("h", 8), 8), 0.25)),)
                    ),
                ),
            ),
        ),
        {"h": np.array([0, 0.75, 2, 3.75, 65504, np.inf, NAN, -1], np.float16)},
        {
            "halves_out": (
                np.float32(1)
                / np.sqrt(
                    np.array([0.25, 1, 2.25, 4, 65504.25, np.inf, NAN, NAN], np.float32),
                )
            ).astype(np.float16)
        },
    ),
    Case(
        "maximum",
        Assign(line(OUT, 8), Formula(Operation.MAX, (line(X, 8), line(Y, 8)))),
        {
            "x": array(1, 2, NAN, -np.inf, -0.0, 0, -0.0, np.inf),
            "y": array(2, -1, 3, -1, 0, -0.0, -0.0, NAN),
        },
        {"out": array(2, 2, NAN, -1, 0, 0, -0.0, NAN)},
    ),
    Case(
        "map_repeats_a_value",
        (
            Assign(
                line(T, 8),
                Formula(
                    Operation.OVER,
                    (line(X, 8), View.strided(Y, Index.of(3), 1, 8, 0, 0)),
                ),
            ),
            SYNC,
            Assign(line(OUT, 8), line(T, 8)),
        ),
        {"x": COUNT, "y": COUNT},
        {"out": COUNT / np.float32(3)},
    ),
    Case(
        "prefix_sums_of_rows",
        (
            Prefix(PANEL, rows_of(floats("x", 40), 5, 8), column(SUMS, 5)),
            SYNC,
            Assign(rows_of(output("out", 40), 5, 8), PANEL),
            Assign(column(output("sums_out", 5), 5), column(SUMS, 5)),
        ),
        {"x": SPREAD},
        {"out": prefixes(SPREAD, 8), "sums_out": prefixes(SPREAD, 8)[7::8]},
    ),
    Case(
        "prefix_sums_in_place",
        (
            Assign(PANEL, rows_of(floats("x", 40), 5, 8)),
            SYNC,
            Prefix(PANEL, PANEL, reverse=True),
            SYNC,
            Assign(rows_of(output("out", 40), 5, 8), PANEL),
        ),
        {"x": SPREAD},
        {"out": prefixes(SPREAD[::-1], 8)[::-1]},
    ),
    Case(
        "prefix_sums_without_the_element",
        (
            Prefix(
                PANEL,
                rows_of(floats("x", 40), 5, 8, Bound(8 * ROW + COL, Index.of(37))),
                exclusive=True,
            ),
            SYNC,
            Assign(rows_of(output("out", 40), 5, 8), PANEL),
        ),
        {"x": SPREAD},
        {"out": before_each(np.where(np.arange(40) < 37, SPREAD, 0), 8)},
    ),
    Case(
        "prefix_sums_without_the_element_from_the_end",
        (
            Prefix(
                *(PANEL, rows_of(floats("x", 40), 5, 8), column(SUMS, 5)),
                exclusive=True,
                reverse=True,
            ),
            SYNC,
            Assign(rows_of(output("out", 40), 5, 8), PANEL),
            Assign(column(output("sums_out", 5), 5), column(SUMS, 5)),
        ),
        {"x": SPREAD},
        {
            "out": before_each(SPREAD[::-1], 8)[::-1],
            "sums_out": prefixes(SPREAD[::-1], 8)[::-1][::8],
        },
    ),
    Case(
        "sums_of_rows",
        Prefix(column(output("out", 3), 3), rows_of(floats("x", 15), 3, 5)),
        {"x": array(*(-0.0,) * 5, 1, 2**-24, 2**-24, np.inf, 1, NAN, 0, 0, 0, 0)},
        {"out": array(0, np.inf, NAN)},
    ),
    Case(
        "sums_of_squares_of_rows",
        Prefix(
            column(output("out", 5), 5),
            Formula(Operation.TIMES, (rows_of(floats("x", 40), 5, 8),) * 2),
        ),
        {"x": SPREAD},
        {"out": in_pairs((SPREAD * SPREAD).reshape(5, 8))},
    ),
    Case(
        "prefix_sums_of_a_formula",
        (
            Prefix(
                PANEL,
                Formula(
                    Operation.MAX,
                    (part_of(Operation.FINITE, rows_of(floats("x", 40), 5, 8)), -0.5),
                ),
            ),
            SYNC,
            Assign(rows_of(output("out", 40), 5, 8), PANEL),
        ),
        {"x": np.where(np.arange(40) == 3, np.float32(np.inf), SPREAD)},
        {"out": prefixes(np.maximum(np.where(np.arange(40) == 3, 0, SPREAD), np.float32(-0.5)), 8)},
    ),
    Case(
        "sums_of_long_rows",
        Prefix(column(output("out", 2), 2), rows_of(floats("x", 200), 2, 100)),
        {"x": LONG_ROWS},
        {"out": in_pairs(LONG_ROWS.reshape(2, 100))},
    ),
    Case(
        "publish_and_await",
        passed_on(line(STATUS, 4)),
        {"x": COUNT},
        {"out": array(NAN, NAN, NAN, NAN, 0, 1, 2, 3)},
        2,
    ),
    Case(
        "await_in_bounds_only",
        passed_on(line(STATUS, 4, 1, *up_to(2))),
        {"x": COUNT},
        {"out": array(NAN, NAN, NAN, NAN, 1, 2, 0, 0)},
        2,
    ),
    Case(
        "locate_segments",
        located(None),
        SEGMENTS,
        {"out": array(0, 1, 2, 0, 0, 0, 0, 0, 3, 4, 5, 6, 0, 0, 0, 0)},
    ),
    Case(
        "locate_chunks",
        located(4),
        SEGMENTS,
        {"out": array(0, 1, 2, 0, 0, 0, 0, 0, 3, 4, 5, 6, 7, 0, 0, 0)},
    ),
    Case(
        "sync_warp",
        (Assign(line(T, 8), line(X, 8)), SYNC, Assign(*TURNED)),
        {"x": COUNT},
        {"out": array(0, 2, 4, 6, 1, 3, 5, 7)},
    ),
    Case(
        "sync_block",
        (
            Assign(line(shared("t", 8, space=Space.SHARED), 4, 4 * WARP), line(X, 4, 4 * WARP)),
            Sync(Scope.BLOCK),
            Assign(
                line(OUT, 4, 4 * WARP), line(shared("t", 8, space=Space.SHARED), 4, 4 - 4 * WARP)
            ),
        ),
        {"x": COUNT},
        {"out": array(4, 5, 6, 7, 0, 1, 2, 3)},
        1,
        2,
    ),
    Case(
        "loop",
        Loop("i", Extent.of(4), (Assign(line(OUT, 2, 2 * I), line(X, 2, 6 - 2 * I)),)),
        {"x": COUNT},
        {"out": array(6, 7, 4, 5, 2, 3, 0, 1)},
    ),
    Case(
        "loop_carries_a_fragment",
        Loop("i", Extent.of(3), (Mma(C, A, B, C),)),
        {"A": SMALL, "B": EYE, "C": np.zeros((16, 16), np.float32)},
        {"C": 3 * SMALL},
    ),
    Case(
        "when",
        When(
            (Bound(BLOCK, Index.of(1)),),
            (Assign(line(OUT, 4), line(X, 4)),),
            (Assign(line(OUT, 4, 4), line(Y, 4)),),
        ),
        {"x": COUNT, "y": -COUNT},
        {"out": array(0, 1, 2, 3, -0.0, -1, -2, -3)},
        2,
    ),
    Case(
        "when_all_bounds_hold",
        When(
            (Bound(BLOCK, Index.of(2)), Bound(Index.of(0), BLOCK)),
            (Assign(line(OUT, 2, 2 * BLOCK), line(X, 2)),),
        ),
        {"x": COUNT},
        {"out": array(NAN, NAN, 0, 1, *[NAN] * 4)},
        3,
    ),
]


@pytest.fixture(scope="module")
def compiled(host: Backend) -> None:
    compile_programs(map(program_of, CASES))


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_step(case: Case) -> None:
    assert_step(case)


def test_every_step_has_a_case() -> None:
    used = {type(step) for case in CASES for _, step in walk(program_of(case).steps)}
    assert used == set(Step.__args__)


@pytest.mark.usefixtures("compiled")
def test_a_wrong_expectation_is_noticed() -> None:
    case = next(case for case in CASES if case.name == "copy")
    with pytest.raises(AssertionError, match="Mismatched elements: 1 / 8"):
        assert_step(case._replace(expected={"out": np.where(COUNT == 3, 9, COUNT)}))
