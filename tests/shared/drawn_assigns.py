"""Programs of Assigns, drawn: formulas up to three deep, types, strides, bounds and places.

Most are correct; the others are for the verifier to refuse. All that it accepts have to run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tcusim.machine.shapes import shape_of
from tcusim.program.grammar import (
    BLOCK,
    COL,
    PARTS,
    ROW,
    WARP,
    Assign,
    Bound,
    Buffer,
    BufferRole,
    Extent,
    Formula,
    Index,
    Loop,
    Operation,
    Program,
    Scalar,
    Scope,
    Space,
    Step,
    Sync,
    Value,
    View,
    When,
    part_of,
    split,
    sum_of,
)

Rng = np.random.Generator

LENGTH = Index.symbol("length")
ITERATION = Index.symbol("i")
SIDES = (1, 1, 2, 3, 4, 5, 8, 16, 24, 32, 33)
FLOATS = ("f16", "bf16", "f32", "f64")
TYPES = ("f16", "bf16", "f32", "f32", "f32", "f64", "s32", "s64", "s8", "u8")
# Lengths to run programs with: of no element, of one block, and of several.
LENGTHS = (0, 1, 63, 700, 2048)
# Types that a term may have, and operations, of each type of a formula.
_TERMS = {"f32": ("f16", "bf16", "f32"), "s64": ("s32", "s64")}
_OPERATIONS = {
    "f16": (Operation.PLUS, *PARTS),
    "bf16": (Operation.PLUS, *PARTS),
    "f32": (
        Operation.PLUS, Operation.TIMES, Operation.OVER, Operation.ROOT, Operation.MAX, *PARTS,
    ),
    "f64": (Operation.PLUS, Operation.PLUS_TO_ODD, *PARTS),
}  # fmt: skip


class _Draw:
    """The sizes of one program, and its drawn steps."""

    def __init__(self, rng: Rng) -> None:
        self.rng = rng
        self.rows, self.cols = (int(rng.choice(SIDES)) for _ in range(2))
        self.warps = int(rng.integers(1, 4))
        self.turns = int(rng.integers(1, 4)) if self.chance(0.3) else 0
        # Elements between those of a rectangle, and of a warp's rectangle in all.
        self.apart = int(rng.choice((1, 1, 1, 2, 3)))
        self.size = self.rows * self.cols * self.apart
        self.pitch = self.size * max(self.turns, 1)
        self.per = self.pitch * self.warps
        # A float of each width, perhaps bf16, and an integer.
        narrow, whole = self.pick(("f16", "bf16")), self.pick(("s8", "u8", "s32", "s64"))
        self.types = (narrow, "f32", "f32", "f64", whole)
        self.inputs = [
            Buffer(f"in{n}", dtype, Extent(LENGTH), BufferRole.INPUT)
            for n, dtype in enumerate((*self.types[1:], narrow))
        ]
        self.buffers: list[Buffer] = []

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def pick(self, many: Sequence[str]) -> str:
        return str(many[int(self.rng.integers(len(many)))])

    # --- Views ---

    def place(self, buffer: Buffer) -> Index:
        """Return the first place of the warp's rectangle in one iteration."""
        turn = ITERATION * self.size if self.turns else Index()
        own = turn if buffer.space is Space.WARP else turn + WARP * self.pitch
        return own + BLOCK * self.per if buffer.space is Space.GLOBAL else own

    def strides(self) -> tuple[int, int]:
        """Return strides of a rectangle, by rows or by columns."""
        if self.chance(0.7):
            return self.cols * self.apart, self.apart
        return self.apart, self.rows * self.apart

    def written(self, buffer: Buffer) -> View:
        """Return a rectangle of its own for each warp, within the buffer."""
        place, strides = self.place(buffer), self.strides()
        return self.bounded(View.strided(buffer, place, self.rows, self.cols, *strides))

    def bounded(self, view: View) -> View:
        bounds: list[Bound] = []
        if view.buffer.space is Space.GLOBAL and not self.chance(0.03):
            bounds.append(Bound(view.address, LENGTH))
        if view.buffer.role is BufferRole.SCRATCH or self.chance(0.8):
            return replace(view, bounds=tuple(bounds))
        limit = int(self.rng.integers(0, 40))
        more = (
            Bound(COL, Index.of(limit)),
            Bound(Index.of(limit), ROW + COL),
            Bound(ROW, COL + limit - 3),
            Bound(WARP + ROW, Index.of(limit)),
        )
        return replace(view, bounds=(*bounds, more[int(self.rng.integers(len(more)))]))

    def read(self, buffer: Buffer) -> View:
        """Return a rectangle anywhere in a buffer, also one that repeats its elements."""
        place = self.place(buffer)
        if buffer.role is BufferRole.SCRATCH and not self.chance(0.03):
            return View.strided(buffer, place, self.rows, self.cols, *self.home[buffer.name])
        if self.chance(0.3):
            place = place + int(self.rng.integers(-3, 4))
        odd = ((0, 1), (1, 0), (0, 0), (3, 1), (2 * self.cols, 2))
        strides = self.strides() if self.chance(0.6) else odd[int(self.rng.integers(len(odd)))]
        if self.chance(0.02):
            strides = -1, 1
        view = self.bounded(View.strided(buffer, place, self.rows, self.cols, *strides))
        if min(strides) < 0 or place.const < 0:
            view = replace(view, bounds=(*view.bounds, Bound(Index.of(-1), view.address)))
        return view

    # --- Values ---

    def value(self, dtype: str, depth: int) -> Value:
        """Return a value of a type, made of defined values."""
        if self.chance(0.02):
            dtype = self.pick(TYPES)
        accepted = _TERMS.get(dtype, (dtype,))
        views = [one for one in (*self.inputs, *self.defined) if one.dtype in accepted]
        if dtype == "f32" and depth < 3 and self.chance(0.1):
            return float(np.float32(self.rng.choice((0.0, -0.0, 1.5, -3.0, 1e30, np.inf))))
        if depth and (not views or self.chance(0.7)):
            return self.formula(dtype, depth)
        if not views:
            views = [*self.inputs, *self.defined]
        return self.read(views[int(self.rng.integers(len(views)))])

    def formula(self, dtype: str, depth: int) -> Formula:
        operations = _OPERATIONS.get(dtype, (Operation.PLUS,))
        operation = operations[int(self.rng.integers(len(operations)))]
        if self.chance(0.02):
            operation = Operation(self.pick(tuple(Operation)))
        terms = [self.value(dtype, depth - 1) for _ in range(operation.terms)]
        if operation is Operation.TIMES and self.chance(0.4):
            terms[1] = terms[0]
        match operation, terms:
            case Operation.PLUS, (one, View() as two) if two.buffer.dtype == dtype:
                return sum_of(one, two)
            case _, (View() as view,) if operation in PARTS and view.buffer.dtype == dtype:
                return part_of(operation, view)
        return Formula(operation, tuple(terms), dtype)

    # --- Steps ---

    home: dict[str, tuple[int, int]]
    defined: list[Buffer]

    def step(self, number: int, *, last: bool) -> list[Step]:
        """Return an Assign to memory of its own, and the barrier after it."""
        dtype = self.pick(self.types)
        wide = [one for one in (*self.inputs, *self.defined) if one.dtype in ("f32", "f64")]
        parts = int(self.rng.integers(1, 4)) if wide and self.chance(0.2) else 1
        narrow = self.pick(("f16", "bf16")) if parts > 1 else dtype
        dsts = tuple(self.written(self.new(f"b{number}_{n}", narrow, last)) for n in range(parts))
        if parts > 1:
            step = split(dsts, self.read(wide[int(self.rng.integers(len(wide)))]))
        else:
            source = dtype if self.chance(0.6) or dtype not in FLOATS else self.pick(self.types[:4])
            step = Assign(dsts[0], self.value(source, int(self.rng.integers(0, 4))))
        for dst in dsts:
            self.home[dst.buffer.name] = dst.row_stride, dst.col_stride
        if not last:
            self.defined += [dst.buffer for dst in dsts]
        scope = Scope.BLOCK if self.chance(0.3) else Scope.WARP
        return [step, *([] if self.chance(0.03) else [Sync(scope)])]

    def new(self, name: str, dtype: str, last: bool) -> Buffer:
        if last:
            size, role, space = Extent(LENGTH), BufferRole.OUTPUT, Space.GLOBAL
        else:
            space = Space.WARP if self.chance(0.5) else Space.SHARED
            size = Extent.of(self.pitch if space is Space.WARP else self.per)
            role = BufferRole.SCRATCH
        made = Buffer(name, dtype, size, role, space, partial=last)
        self.buffers.append(made)
        return made

    def steps(self) -> tuple[Step, ...]:
        self.home, self.defined = {}, []
        count = int(self.rng.integers(1, 4))
        made = [one for n in range(count) for one in self.step(n, last=n == count - 1)]
        steps: tuple[Step, ...] = tuple(made)
        if self.chance(0.1):
            steps = (When((Bound(BLOCK, Index.of(2)),), steps),)
        return (Loop("i", Extent.of(self.turns), steps),) if self.turns else steps


def drawn_program(seed: int) -> Program:
    """Return the program of a seed."""
    draw = _Draw(np.random.default_rng(seed))
    steps = draw.steps()
    return Program(
        name=f"drawn_{seed}",
        shape=shape_of("16x16x16"),
        ab="f16",
        acc="f32",
        scalars=(Scalar("length"),),
        buffers=(*draw.inputs, *draw.buffers),
        blocks=Extent(LENGTH, draw.per),
        warps=draw.warps,
        steps=steps,
    )
