"""Launches one after the other on arrays by name: what plans are made of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tcusim.machine import format_of
from tcusim.program.bind import bind_scalars
from tcusim.program.grammar import Program

__all__ = ["CHAIN", "Launch", "Launches", "Memory", "scalars_of"]

# Products that accumulate before a rounded addition: each truncates, so long chains drift.
CHAIN = 16


@dataclass(frozen=True, slots=True)
class Memory:
    """One array of a plan: what it is called, its element type, and its elements."""

    name: str
    dtype: str
    size: int

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return self.size * format_of(self.dtype).itemsize


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch of a plan.

    inputs, outputs: for each of the program's buffers, the name of the plan's array that it is.
    """

    program: Program
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]


class Launches:
    """A plan in the making: launches are added one by one, on arrays by name.

    given: the arrays that a call is given; the launches make the others. why: for each choice a
    line.
    """

    def __init__(self, *given: Memory) -> None:
        self.arrays = {array.name: array for array in given}
        self.launches: list[Launch] = []
        self.why: list[str] = []

    def add(self, program: Program, inputs: Mapping[str, str], to: str) -> str:
        """Add a launch that makes a new array; return the array's name: `to`, or with a number."""
        scalars = scalars_of(program, inputs, self.arrays.values())
        (output,) = program.outputs
        name, number = to, 1
        while name in self.arrays:
            number += 1
            name = f"{to}{number}"
        self.arrays[name] = Memory(name, output.dtype, output.size.evaluate(scalars))
        self.launches.append(Launch(program, dict(inputs), {output.name: name}))
        return name

    def scalars(self, launch: Launch) -> dict[str, int]:
        """Return the scalars of a launch."""
        return scalars_of(launch.program, launch.inputs, self.arrays.values())


def scalars_of(
    program: Program, inputs: Mapping[str, str], arrays: Iterable[Memory]
) -> dict[str, int]:
    """Return a program's scalars for inputs that are arrays of these sizes."""
    sizes = {array.name: array.size for array in arrays}
    return bind_scalars(program, {buffer: sizes[name] for buffer, name in inputs.items()})
