"""What the emitter hands to whoever compiles and launches: text, and how to call it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tcusim.ir import Program

__all__ = ["Kernel"]


@dataclass(frozen=True, slots=True)
class Kernel:
    """One CUDA kernel, emitted from one program.

    name: of the `extern "C" __global__` function. text: CUDA C++, which includes `tcusim.cuh`.
    arguments: pointers to the inputs, then the outputs, in the program's order, then the scalars
    as 64-bit integers. threads: per block. dynamic_shared_bytes: to pass at the launch; 0 if all
    shared memory is static. min_sm: the least compute capability, such as 70, whose instructions
    it uses. paths: for each line of the text, from 1 on, the step that it came from ("" if none).
    """

    name: str
    text: str
    program: Program
    threads: int
    dynamic_shared_bytes: int
    min_sm: int
    paths: tuple[str, ...]

    @property
    def arguments(self) -> tuple[str, ...]:
        """Names of the arguments, in order."""
        program = self.program
        buffers = (*program.inputs, *program.outputs)
        return (*(b.name for b in buffers), *(s.name for s in program.scalars))

    def blocks(self, scalars: Mapping[str, int]) -> int:
        """Return the number of blocks to launch; 0 means that there is nothing to do."""
        return self.program.grid(scalars)

    def aliased(self) -> Kernel:
        """Return the kernel for when an output is the very array of an input.

        Its pointers are not `__restrict__`, which would let the compiler read ahead of writes.
        """
        return replace(self, text=self.text.replace(" __restrict__", ""))
