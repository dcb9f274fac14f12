"""Three small correct programs, and functions that plant bugs in them, for tests of the checks."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from tcusim.errors import VerifyError
from tcusim.machine.shapes import shape_of
from tcusim.program.checks.verifier import problems, verify
from tcusim.program.grammar import (
    BLOCK,
    COL,
    ROW,
    WARP,
    Assign,
    Bound,
    Buffer,
    BufferRole,
    Const,
    Extent,
    Frag,
    Index,
    Load,
    Loop,
    Mma,
    Pattern,
    PatternKind,
    Prefix,
    Program,
    Role,
    Scalar,
    Scope,
    Space,
    Step,
    Store,
    Sync,
    View,
    When,
    split,
    sum_of,
    walk,
)

SHAPE = shape_of("16x16x16")
LENGTH = Index.symbol("length")
ITERATION = Index.symbol("i")
SCRATCH = BufferRole.SCRATCH
SYNC = Sync(Scope.WARP)
SYNC_BLOCK = Sync(Scope.BLOCK)


def shared(name: str, dtype: str, size: int, space: Space = Space.WARP) -> Buffer:
    return Buffer(name, dtype, Extent.of(size), BufferRole.SCRATCH, space)


def with_buffers(program: Program, role: BufferRole, *buffers: Buffer) -> Program:
    """Return the program with these buffers in place of those of a role."""
    others = tuple(buffer for buffer in program.buffers if buffer.role is not role)
    return replace(program, buffers=(*others, *buffers))


def rows_of(buffer: Buffer, offset: Index | int = 0, *bounds: Bound) -> View:
    """Return a 16x16 tile, row after row."""
    return View.strided(buffer, Index.of(offset), 16, 16, 16, 1, bounds)


def columns_of(buffer: Buffer, offset: Index | int = 0, *bounds: Bound) -> View:
    """Return a 16x16 tile, column after column."""
    return View.strided(buffer, Index.of(offset), 16, 16, 1, 16, bounds)


def one_row(buffer: Buffer, offset: Index | int = 0, *bounds: Bound) -> View:
    return View.strided(buffer, Index.of(offset), 1, 16, 0, 1, bounds)


def matrix_a(name: str) -> Frag:
    return Frag(name, Role.A, SHAPE, "f16")


def matrix_b(name: str) -> Frag:
    return Frag(name, Role.B, SHAPE, "f16")


def accumulator(name: str) -> Frag:
    return Frag(name, Role.ACC, SHAPE, "f32")


P, A, V = matrix_a("P"), matrix_b("A"), accumulator("V")
ZERO = Pattern(PatternKind.ZEROS)
FIRST_ROW = Pattern(PatternKind.ROW)


def reduction() -> Program:
    """Return Reduction_16 for any length: ragged tiles are padded in shared memory."""
    values = Buffer("in", "f16", Extent(LENGTH), BufferRole.INPUT)
    sums = Buffer("out", "f32", Extent(LENGTH, 16), BufferRole.OUTPUT)
    tile, result = shared("tile", "f16", 256), shared("v", "f32", 256)
    in_input = Bound(BLOCK * 256 + ROW + COL * 16, LENGTH)
    in_output = Bound(BLOCK * 256 + COL * 16, LENGTH)
    return Program(
        name="reduction_16",
        shape=SHAPE,
        ab="f16",
        acc="f32",
        scalars=(Scalar("length"),),
        buffers=(values, sums, tile, result),
        blocks=Extent(LENGTH, 256),
        warps=1,
        steps=(
            Const(P, FIRST_ROW, "Alg. 1 line 1"),
            Const(V, ZERO),
            Assign(columns_of(tile), columns_of(values, BLOCK * 256, in_input)),
            SYNC,
            Load(A, columns_of(tile), "Alg. 1 line 3"),
            Mma(V, P, A, V, "Alg. 1 line 4"),
            Store(rows_of(result), V),
            SYNC,
            Assign(one_row(sums, BLOCK * 16, in_output), one_row(result), "Alg. 1 line 5"),
        ),
        source="DAKKAK19 sec. 4.1",
    )


def scan() -> Program:
    """Return Scan_256N for segments of 1024: a loop that carries the last sum."""
    values = Buffer("in", "f16", Extent(LENGTH), BufferRole.INPUT)
    sums = Buffer("out", "f32", Extent(LENGTH), BufferRole.OUTPUT)
    wide, narrow = shared("wide", "f32", 256), shared("narrow", "f16", 256)
    carry = shared("carry", "f32", 256)
    u, ones, lower = matrix_b("U"), matrix_b("O"), matrix_a("L")
    left, right, la = matrix_a("A"), matrix_b("B"), matrix_a("LA")
    s, zero, au, acc = (accumulator(name) for name in ("S", "Z", "AU", "R"))
    place = BLOCK * 1024 + ITERATION * 256
    return Program(
        name="scan_256n",
        shape=SHAPE,
        ab="f16",
        acc="f32",
        scalars=(Scalar("length", 1024),),
        buffers=(values, sums, wide, narrow, carry),
        blocks=Extent(LENGTH, 1024),
        warps=1,
        steps=(
            Const(u, Pattern(PatternKind.UPPER)),
            Const(lower, Pattern(PatternKind.LOWER, Index.of(-1))),
            Const(ones, Pattern(PatternKind.ONES)),
            Const(s, ZERO),
            Const(zero, ZERO),
            Loop(
                "i",
                Extent.of(4),
                (
                    Load(left, rows_of(values, place)),
                    Load(right, rows_of(values, place)),
                    Mma(au, left, u, s),
                    Mma(acc, lower, right, zero),
                    Store(rows_of(wide), acc),
                    SYNC,
                    Assign(rows_of(narrow), rows_of(wide)),
                    SYNC,
                    Load(la, rows_of(narrow)),
                    Mma(acc, la, ones, au),
                    Store(rows_of(sums, place), acc),
                    Store(rows_of(wide), acc),
                    SYNC,
                    Assign(rows_of(carry), View.strided(wide, Index.of(255), 16, 16, 0, 0)),
                    SYNC,
                    Load(s, rows_of(carry)),
                ),
            ),
        ),
    )


def block_reduction() -> Program:
    """Return a reduction by two warps; their partial sums meet in the block's shared memory."""
    values = Buffer("in", "f16", Extent(LENGTH), BufferRole.INPUT)
    sums = Buffer("out", "f32", Extent(LENGTH, 32), BufferRole.OUTPUT)
    result = shared("v", "f32", 256)
    partial = shared("partial", "f32", 32, Space.SHARED)
    return Program(
        name="block_reduction",
        shape=SHAPE,
        ab="f16",
        acc="f32",
        scalars=(Scalar("length", 512),),
        buffers=(values, sums, result, partial),
        blocks=Extent(LENGTH, 512),
        warps=2,
        steps=(
            Const(P, FIRST_ROW),
            Const(V, ZERO),
            Load(A, columns_of(values, BLOCK * 512 + WARP * 256)),
            Mma(V, P, A, V),
            Store(rows_of(result), V),
            SYNC,
            Assign(one_row(partial, WARP * 16), one_row(result)),
            SYNC_BLOCK,
            When(
                (Bound(WARP, Index.of(1)),),
                (
                    Assign(
                        one_row(sums, BLOCK * 16), sum_of(one_row(partial), one_row(partial, 16))
                    ),
                ),
            ),
        ),
    )


CORRECT = (reduction, scan, block_reduction)


def edit(steps: tuple[Step, ...], path: list[int], new: tuple[Step, ...]) -> tuple[Step, ...]:
    """Replace the step at a path by other steps."""
    at = path[0] - 1
    step = steps[at]
    if len(path) > 1 and isinstance(step, Loop):
        new = (replace(step, body=edit(step.body, path[1:], new)),)
    elif len(path) > 1 and isinstance(step, When):
        inside = edit(step.body + step.otherwise, path[1:], new)
        new = (replace(step, body=inside, otherwise=()),)
    return (*steps[:at], *new, *steps[at + 1 :])


def at(program: Program, path: str) -> Any:
    """Return the step at a path; its fields are looked at freely."""
    return dict(walk(program.steps))[path]


def planted(program: Program, path: str, *new: Step) -> Program:
    """Return the program with other steps in place of the one at `path`."""
    return replace(program, steps=edit(program.steps, [int(n) for n in path.split(".")], new))


def changed(program: Program, path: str, **fields: Any) -> Program:
    """Return the program with fields of the step at `path` replaced."""
    step = at(program, path)
    if isinstance(step, Assign | Load | Prefix) and "src" in fields:
        fields["value"] = fields.pop("src")
    return planted(program, path, replace(step, **fields))


def with_input_type(program: Program, dtype: str) -> Program:
    """Return the program with another type of input, in the declaration and in every view."""
    old = program.inputs[0]
    new = replace(old, dtype=dtype)
    return replace(
        with_buffers(program, BufferRole.INPUT, new),
        steps=tuple(_swap(s, old, new) for s in program.steps),
    )


def _swap(step: Step, old: Buffer, new: Buffer) -> Step:
    match step:
        case Assign(value=View() as view) | Load(value=View() as view) if view.buffer == old:
            return replace(step, value=replace(view, buffer=new))
    return step


def refused(program: Program, check: str, text: str) -> VerifyError:
    """Assert that `verify` raises, that the named check fires, and that its text is this."""
    with pytest.raises(VerifyError):
        verify(program)
    errors = [error for error in problems(program) if error.check == check]
    fired = sorted({error.check for error in problems(program)})
    assert errors, f"{check} did not fire, but {fired} did"
    assert any(re.search(text, str(error)) for error in errors), [str(error) for error in errors]
    assert str(errors[0]).endswith(f"[check: {check}]")
    return errors[0]


def split_program(source: str, *parts: str) -> Program:
    """Return a program that only splits 16 elements of shared memory."""
    program = reduction()
    wide = Buffer("in", source, Extent(LENGTH), BufferRole.INPUT)
    buffers = tuple(shared(f"x{n}", dtype, 16) for n, dtype in enumerate(parts))
    parted = split(
        tuple(one_row(buffer) for buffer in buffers), one_row(wide, 0, Bound(COL, LENGTH))
    )
    return replace(program, buffers=(wide, *buffers), steps=(parted,))
