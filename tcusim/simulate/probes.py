"""Instrumented programs: the same steps, each followed by a copy of its result.

A kernel on a GPU cannot be observed from outside. With probes it also stores every accumulator and
every rectangle of shared memory that it writes to a separate output, so that two runs of one
program can be compared step by step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from tcusim.program.grammar import (
    WARP,
    Assign,
    Buffer,
    BufferRole,
    Extent,
    Frag,
    Index,
    Loop,
    Numbered,
    Program,
    Role,
    Scope,
    Space,
    Step,
    Store,
    Sync,
    View,
    When,
    accesses,
    branch_of,
    numbered,
)

# The loops around a step, outermost first: variable and count.
_Loops: TypeAlias = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Probe:
    """The output for the results of one step, in every warp and every iteration.

    path, step: the step, by its path in the program without probes. name: the fragment or buffer
    that it wrote. buffer: the output. view: the part of it for one warp's result.
    """

    path: str
    step: Step
    name: str
    buffer: Buffer
    view: View


def with_probes(program: Program) -> tuple[Program, dict[str, Probe]]:
    """Return a program that also stores its steps' results, and the probes by their outputs.

    Steps that make an operand have no probe, since WMMA stores only accumulators; nor have steps
    that write an output, or steps in a loop with a run-time count.
    """
    writer = _Writer(program)
    steps = writer.steps(numbered(program.steps), ())
    buffers = (*program.buffers, *(probe.buffer for probe in writer.probes.values()))
    return replace(program, steps=steps, buffers=buffers), writer.probes


class _Writer:
    """Rewrites the steps, with their probes."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.probes: dict[str, Probe] = {}

    def steps(self, steps: Iterator[Numbered], loops: _Loops) -> tuple[Step, ...]:
        result: list[Step] = []
        for path, step in steps:
            match step:
                case Loop(var, count, body):
                    times = count.constant
                    if times is not None:
                        body = self.steps(branch_of(path, step), (*loops, (var, times)))
                    result.append(replace(step, body=body))
                case When():
                    inner = self.steps(branch_of(path, step), loops)
                    other = self.steps(branch_of(path, step, taken=False), loops)
                    result.append(replace(step, body=inner, otherwise=other))
                case _:
                    result.append(step)
                    result.extend(self._after(path, step, loops))
        return tuple(result)

    def _after(self, path: str, step: Step, loops: _Loops) -> Iterator[Step]:
        """Yield the steps that store the result of a leaf step."""
        touched = accesses(step)
        for frag in touched.frags_written:
            if frag.role is Role.ACC:
                yield Store(self._place(path, step, frag, loops), frag)
        shared = [view for view in touched.views_written if view.buffer.space is not Space.GLOBAL]
        if shared:
            # A warp sees its own writes after its own barrier.
            yield Sync(Scope.WARP)
        for view in shared:
            yield Assign(self._place(path, step, view, loops), view)

    def _place(self, path: str, step: Step, made: Frag | View, loops: _Loops) -> View:
        """Add a probe for all warps and iterations; return the part of it for one warp."""
        program = self.program
        index = program.block_number * program.warps + WARP
        for var, count in loops:
            index = index * count + Index.symbol(var)
        size = made.rows * made.cols
        # At least ceil(index / per) * each, which an extent cannot express.
        each = program.rows * program.columns * program.warps
        each *= math.prod(count for _, count in loops) * size
        blocks = program.blocks
        extent = Extent((blocks.index + (blocks.per - 1)) * each, blocks.per)
        thing = made if isinstance(made, Frag) else made.buffer
        name = f"probe_{path.replace('.', '_')}_{thing.name}"
        buffer = Buffer(name, thing.dtype, extent, BufferRole.OUTPUT, partial=True)
        view = View.strided(buffer, index * size, made.rows, made.cols, made.cols, 1)
        self.probes[name] = Probe(path, step, thing.name, buffer, view)
        return view
