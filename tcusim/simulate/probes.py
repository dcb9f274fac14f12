"""Programs that tell what every step made: the same steps, each followed by a copy of its result.

A kernel on a GPU cannot be watched from outside. With probes it stores every accumulator and every
rectangle of shared memory that it writes to an output of its own, so that two runs of one program
can be compared step by step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tcusim.program.grammar import (
    BLOCK,
    WARP,
    Buffer,
    BufferRole,
    Copy,
    Extent,
    Index,
    Loop,
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
)

__all__ = ["Probe", "with_probes"]

Ints: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Probe:
    """The output that holds what one step made, in every warp and every iteration.

    path, step: the step, where it stands in the program that has no probes. name: what it made, a
    fragment or a buffer. buffer: the output. rows, cols: of one result. loops: variable and count
    of each loop around the step, outermost first.
    """

    path: str
    step: Step
    name: str
    buffer: Buffer
    rows: int
    cols: int
    loops: tuple[tuple[str, int], ...]

    def places(self, warps: Ints, values: Mapping[str, int]) -> Ints:
        """Return where the results of these warps of the grid lie: (W, rows, cols).

        `values` gives the loop variables.
        """
        linear = 0
        for var, count in self.loops:
            linear = linear * count + values[var]
        times = math.prod(count for _, count in self.loops)
        size = self.rows * self.cols
        first = (np.asarray(warps) * times + linear) * size
        places: Ints = first[:, None, None] + np.arange(size).reshape(self.rows, self.cols)
        return places


def with_probes(program: Program) -> tuple[Program, dict[str, Probe]]:
    """Return a program that also stores what its steps make, and the probes by their outputs.

    Steps that make an operand have none, since WMMA stores accumulators only; nor have those that
    write an output, or that are in a loop whose count is known at run time only.
    """
    writer = _Writer(program)
    steps = writer.steps(program.steps, "", ())
    buffers = (*program.buffers, *(probe.buffer for probe in writer.probes.values()))
    return replace(program, steps=steps, buffers=buffers), writer.probes


class _Writer:
    """Writes the steps anew, with their probes."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.probes: dict[str, Probe] = {}

    def steps(
        self,
        steps: tuple[Step, ...],
        prefix: str,
        loops: tuple[tuple[str, int], ...],
        first: int = 1,
    ) -> tuple[Step, ...]:
        result: list[Step] = []
        for number, step in enumerate(steps, start=first):
            path = f"{prefix}{number}"
            match step:
                case Loop(var, count, body):
                    times = count.constant
                    if times is not None:
                        body = self.steps(body, f"{path}.", (*loops, (var, times)))
                    result.append(replace(step, body=body))
                case When(_, body, otherwise):
                    inner = self.steps(body, f"{path}.", loops)
                    other = self.steps(otherwise, f"{path}.", loops, len(body) + 1)
                    result.append(replace(step, body=inner, otherwise=other))
                case _:
                    result.append(step)
                    result.extend(self._after(path, step, loops))
        return tuple(result)

    def _after(self, path: str, step: Step, loops: tuple[tuple[str, int], ...]) -> Iterator[Step]:
        """Yield the steps that store what a leaf step made."""
        touched = accesses(step)
        for frag in touched.frags_written:
            if frag.role is Role.ACC:
                target = self._target(
                    path, step, loops, frag.name, frag.dtype, frag.rows, frag.cols
                )
                yield Store(target, frag)
        shared = [view for view in touched.views_written if view.buffer.space is not Space.GLOBAL]
        if shared:
            # A warp sees its own writes after its own barrier.
            yield Sync(Scope.WARP)
        for view in shared:
            name, dtype = view.buffer.name, view.buffer.dtype
            yield Copy(self._target(path, step, loops, name, dtype, view.rows, view.cols), view)

    def _target(
        self,
        path: str,
        step: Step,
        loops: tuple[tuple[str, int], ...],
        name: str,
        dtype: str,
        rows: int,
        cols: int,
    ) -> View:
        """Add a probe; return the place for what one warp made in one iteration."""
        linear = Index()
        for var, count in loops:
            linear = linear * count + Index.symbol(var)
        times = math.prod(count for _, count in loops)
        warps, blocks = self.program.warps, self.program.blocks
        offset = ((BLOCK * warps + WARP) * times + linear) * (rows * cols)
        # At least ceil(index / per) * each, which an extent cannot say.
        each = warps * times * rows * cols
        size = Extent((blocks.index + (blocks.per - 1)) * each, blocks.per)
        buffer = Buffer(f"probe_{path.replace('.', '_')}_{name}", dtype, size, BufferRole.OUTPUT)
        self.probes[buffer.name] = Probe(path, step, name, buffer, rows, cols, loops)
        return View.strided(buffer, offset, rows, cols, cols, 1)
