"""Launch plans: step programs launched in sequence, on arrays by name.

A backend runs only plans: a plan of many launches, or a program as a plan of one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tcusim.machine import format_of
from tcusim.program.bind import bind_scalars
from tcusim.program.checks.in_place import in_place
from tcusim.program.grammar import Program


@dataclass(frozen=True, slots=True)
class Memory:
    """One array of a plan: its name, its element type and its number of elements."""

    name: str
    dtype: str
    size: int

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return self.size * format_of(self.dtype).itemsize


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch of a plan, with the plan's array for each of the program's buffers."""

    program: Program
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]


@dataclass(frozen=True, eq=False)
class LaunchPlan:
    """Launches in order, and the arrays that they read and write.

    Plans compare by identity, so a backend may cache its preparations by plan.

    Attributes
    ----------
    title : str
        The plan's name in messages.
    arrays : tuple of Memory
        The inputs, then the temporaries between launches, then the outputs.
    launches : tuple of Launch
        In order; each reads inputs, and arrays written by earlier launches.
    inputs, outputs : tuple of str
        The names of the arrays passed to a call, and of the arrays that it returns.
    """

    title: str
    arrays: tuple[Memory, ...]
    launches: tuple[Launch, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @classmethod
    def of_program(cls, program: Program, sizes: Mapping[str, int]) -> LaunchPlan:
        """Return a program as a plan of one launch, on arrays with the names of its buffers.

        Parameters
        ----------
        sizes : mapping of str to int
            The elements of each of its inputs.

        Raises
        ------
        InputError
            If the program cannot take inputs of these sizes.
        """
        scalars = bind_scalars(program, sizes)
        inputs = tuple(buffer.name for buffer in program.inputs)
        outputs = tuple(buffer.name for buffer in program.outputs)
        arrays = tuple(
            Memory(buffer.name, buffer.dtype, buffer.size.evaluate(scalars))
            for buffer in (*program.inputs, *program.outputs)
        )
        launch = Launch(program, {n: n for n in inputs}, {n: n for n in outputs})
        return cls(program.name, arrays, (launch,), inputs, outputs)

    @cached_property
    def memory(self) -> Mapping[str, Memory]:
        """The arrays by name."""
        return {array.name: array for array in self.arrays}

    @property
    def temporaries(self) -> tuple[Memory, ...]:
        """The temporary arrays between launches, neither passed to a call nor returned."""
        known = {*self.inputs, *self.outputs}
        return tuple(array for array in self.arrays if array.name not in known)

    def scalars(self, launch: Launch) -> dict[str, int]:
        """Return the scalars of a launch: they follow from the sizes of its inputs."""
        return bind_scalars(
            launch.program,
            {buffer: self.memory[name].size for buffer, name in launch.inputs.items()},
        )

    def run(
        self,
        inputs: Mapping[str, Any],
        out: Mapping[str, Any] | None,
        launched: Callable[[Launch, dict[str, Any]], Mapping[str, Any]],
    ) -> dict[str, Any]:
        """Run the launches in order on arrays of the host; return the outputs by name.

        `launched` runs one launch on arrays by buffer name, and returns its outputs. Arrays in
        `out` are filled and returned.
        """
        arrays = dict(inputs)
        for launch in self.launches:
            given = {buffer: arrays[name] for buffer, name in launch.inputs.items()}
            made = launched(launch, given)
            arrays.update((name, made[buffer]) for buffer, name in launch.outputs.items())
        for name, array in (out or {}).items():
            array[...] = arrays[name]
            arrays[name] = array
        return {name: arrays[name] for name in self.outputs}

    @cached_property
    def why_not_in_place(self) -> str | None:
        """Why the first output must not be the same array as the first input; None if it may be.

        It may be if each element is read before it is overwritten, within each launch and across
        launches.
        """
        source, target = self.memory[self.inputs[0]], self.memory[self.outputs[0]]
        if source.dtype != target.dtype:
            return f"its elements are {source.dtype} and its results {target.dtype}"
        if source.size != target.size:
            return f"it has {source.size} elements and the result {target.size}"
        written = False
        for launch in self.launches:
            reads = [buffer for buffer, name in launch.inputs.items() if name == source.name]
            writes = [buffer for buffer, name in launch.outputs.items() if name == target.name]
            if reads and written:
                return f"{launch.program.name} reads it after results were written"
            for read, write in itertools.product(reads, writes):
                reason = in_place(launch.program, read, write)
                if reason is not None:
                    return reason
            written = written or bool(writes)
        return None


class PlanBuilder:
    """A builder of launch plans: each launch makes one array from earlier arrays."""

    def __init__(self, *inputs: Memory) -> None:
        self.inputs = tuple(array.name for array in inputs)
        self.memory = {array.name: array for array in inputs}
        self.launches: list[Launch] = []

    def add(self, program: Program, inputs: Mapping[str, str], to: str) -> str:
        """Add a launch that makes a new array; return the array's name: `to`, or with a number."""
        (output,) = program.outputs
        return self.add_several(program, inputs, {output.name: to})[output.name]

    def add_several(
        self, program: Program, inputs: Mapping[str, str], to: Mapping[str, str]
    ) -> dict[str, str]:
        """Add a launch that makes an array for each output; return their names by output."""
        sizes = {buffer: self.memory[name].size for buffer, name in inputs.items()}
        scalars, made = bind_scalars(program, sizes), {}
        for output in program.outputs:
            wanted = to[output.name]
            names = itertools.chain([wanted], (f"{wanted}{i}" for i in itertools.count(2)))
            name = made[output.name] = next(name for name in names if name not in self.memory)
            self.memory[name] = Memory(name, output.dtype, output.size.evaluate(scalars))
        self.launches.append(Launch(program, dict(inputs), dict(made)))
        return made

    def finish(self, title: str) -> LaunchPlan:
        """Return the plan; its output is the last launch's array."""
        outputs = tuple(self.launches[-1].outputs.values())
        arrays, launches = tuple(self.memory.values()), tuple(self.launches)
        return LaunchPlan(title, arrays, launches, self.inputs, outputs)
