"""Turn the interpreter's events into frames: one step of one warp, with the tiles it touches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tcusim.binding import bind_scalars
from tcusim.errors import InputError
from tcusim.interpret import Event, State, interpret
from tcusim.ir import (
    Add,
    Buffer,
    Frag,
    Index,
    Level,
    Load,
    Mma,
    Program,
    Step,
    Store,
    Sync,
    View,
    accesses,
    walk,
)
from tcusim.listing import line
from tcusim.numerics import Values, as_values, format_of, from_values

__all__ = ["Frame", "Tile", "default_inputs", "frames"]

Ints: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]

IN_FLIGHT = "written, seen after the next sync"


@dataclass(frozen=True, slots=True)
class Tile:
    """A fragment or a rectangle of memory, as one warp sees it at one step.

    Attributes
    ----------
    label : str
        The fragment's name, or the place in memory: ``in[256*block + 16*row + col]``.
    part : str
        What it is to the step: a, b, c, d, src, dst or plus.
    dtype : str
        Element type, such as ``"f16"``.
    where : str
        The fragment's role, or the level of the memory: warp, block or grid.
    values : array (rows, cols)
        What it holds: before the step if it is read, after the step if it is written.
    before : array (rows, cols), optional
        What a written tile held before; NaN (or the lowest integer) where nothing was written.
    places : array (rows, cols) of int, optional
        The elements' numbers in their buffer; None for a fragment.
    inside : array (rows, cols) of bool
        Where the bounds hold; elsewhere elements are read as 0 and not written.
    note : str
        What else there is to say, such as that a write is in flight.
    """

    label: str
    part: str
    dtype: str
    where: str
    values: Values
    before: Values | None
    places: Ints | None
    inside: Mask
    note: str = ""

    @property
    def changed(self) -> Mask:
        """Where the step changed a value; nowhere in a tile that is only read."""
        if self.before is None:
            return np.zeros(self.values.shape, bool)
        old, new = self.before, self.values
        same = old == new
        if format_of(self.dtype).is_float:
            same |= np.isnan(old) & np.isnan(new)
        return np.asarray(self.inside & ~same)


@dataclass(frozen=True, slots=True)
class Frame:
    """One step of one warp.

    Attributes
    ----------
    number : int
        Counts the steps that the warp has run, from 1.
    path : str
        Where the step stands in the program, such as ``"7.2"``.
    step : Step
        The step.
    line : str
        Its line in the listing.
    loops : mapping of str to int
        The loop variables.
    warp : int
        The warp's number in the grid.
    reads, writes : tuple of Tile
        What the step touches, in the order of the grammar.
    """

    number: int
    path: str
    step: Step
    line: str
    loops: Mapping[str, int]
    warp: int
    reads: tuple[Tile, ...]
    writes: tuple[Tile, ...]


def frames(
    program: Program, inputs: Mapping[str, Any], arch: str = "hopper", warp: int = 0
) -> Iterator[Frame]:
    """Run a program and yield each step of one warp.

    Parameters
    ----------
    program : Program
        The program.
    inputs : mapping of str to array
        One flat array for each of the program's inputs, as for `tcusim.interpret`.
    arch : str
        Whose arithmetic.
    warp : int
        The warp to watch, counted over the whole grid.

    Raises
    ------
    InputError
        If the inputs do not fit the program, or the grid has no such warp.

    Examples
    --------
    >>> import tcusim
    >>> program = tcusim.build("reduction_16")
    >>> for frame in frames(program, default_inputs(program)):
    ...     print(frame.path, frame.line)
    """
    scalars = bind_scalars(program, {name: np.size(array) for name, array in inputs.items()})
    warps = program.blocks.evaluate(scalars) * program.warps
    if not 0 <= warp < warps:
        there = f"warps 0 to {warps - 1}" if warps else "no warps: the input is empty"
        raise InputError(f"{program.name}: there is no warp {warp}; the grid has {there}")
    watcher = _Watcher(warp)
    for event in interpret(program, inputs, arch=arch):
        if event.state.warps[0] > warp:
            return
        if warp in event.warps:
            yield watcher.frame(event)


def default_inputs(program: Program) -> dict[str, NDArray[Any]]:
    """Return inputs for one block that are easy to read: 1, 2, 3, ... again and again.

    The numbers are so small that float16 holds their sum, and so all sums on the way, exactly.
    """
    length = program.blocks.per
    scalars = {scalar.name: length for scalar in program.scalars}
    inputs = {}
    for buffer in program.inputs:
        size = buffer.size.evaluate(scalars)
        top = next((top for top in (9, 5, 3, 2) if size * (top + 1) // 2 <= 2048), 1)
        numbers = np.arange(size) % top + 1
        inputs[buffer.name] = from_values(as_values(numbers, buffer.dtype), buffer.dtype)
    return inputs


class _Watcher:
    """Remembers what one warp held, so that a frame can tell before from after."""

    def __init__(self, warp: int) -> None:
        self.warp = warp
        self.chosen: Ints = np.array([warp])
        self.number = 0
        self.frags: dict[str, Values] = {}
        self.memory: dict[str, Values] = {}
        self.in_flight: list[tuple[View, Ints, Mask]] = []

    def frame(self, event: Event) -> Frame:
        """Return the frame of a step that has just run."""
        if not self.memory:
            # Nothing of a scratch buffer is seen before a first sync, so this is its beginning.
            program = event.state.program
            self.memory = {b.name: self._whole(event.state, b) for b in program.scratch}
            for output in program.outputs:
                poison = np.full(1, np.nan) if format_of(output.dtype).is_float else None
                del poison
        self.number += 1
        reads = tuple(self._reads(event))
        writes = tuple(self._writes(event))
        return Frame(
            number=self.number,
            path=event.path,
            step=event.step,
            line=line(event.step),
            loops=dict(event.loops),
            warp=self.warp,
            reads=reads,
            writes=writes,
        )
