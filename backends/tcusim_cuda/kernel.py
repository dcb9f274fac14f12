"""Kernels, from the emitter to the compiler and the launcher: text, and how to call it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from tcusim.machine import Rule, format_of
from tcusim.program.grammar import Buffer, Program

# The argument for memory that launches share: the counter of `take_ticket`, then status words.
WORKSPACE = "workspace"
# 64-bit words before the first status word: the ticket has a cache line of its own.
TICKET_WORDS = 16

# The array of dynamic shared memory, aligned to 128 bytes.
SHARED_POOL = "shared_pool"


def words_of(dtype: str) -> int:
    """Return the status words of one value: each has 64 bits, 32 of the value's and a number."""
    return 2 if format_of(dtype).itemsize == 8 else 1


@dataclass(frozen=True, slots=True)
class Kernel:
    """One CUDA kernel, emitted from one program.

    name: of the `extern "C" __global__` function. text: CUDA C++ that includes `tcusim.cuh`.
    threads: of a block. dynamic_shared_bytes: to pass at the launch; 0 if all shared memory is
    static. min_sm: the least compute capability, such as 70, whose instructions it uses. paths: for
    each line of the text, the step that it came from ("" if none). products: the mma of the machine
    code if every loop marked so is unrolled. aliased_text: the text for a launch whose output is
    the very array of an input: the pointers are not `__restrict__`, which would let the compiler
    read ahead of writes. tiled: the buffers whose tiles WMMA moves, so that they must be aligned.
    shared: the arrays in shared memory, in the order in which the text declares them; each warp has
    its own of those of space WARP. rule: by which its lanes multiply; None for an instruction.
    """

    name: str
    text: str
    program: Program
    threads: int
    dynamic_shared_bytes: int
    min_sm: int
    paths: tuple[str, ...]
    products: int = 0
    aliased_text: str = ""
    tiled: frozenset[str] = frozenset()
    shared: tuple[Buffer, ...] = ()
    rule: Rule | None = None

    @property
    def title(self) -> str:
        """Its name in messages."""
        return self.program.name

    @property
    def arguments(self) -> tuple[str, ...]:
        """Names of the arguments, in order.

        They are pointers to the inputs, then the outputs, then memory of `workspace_bytes` if
        the program has status words; then the scalars, as 64-bit integers.
        """
        program = self.program
        buffers = (*program.inputs, *program.outputs)
        work = (WORKSPACE,) if program.status else ()
        return (*(b.name for b in buffers), *work, *(s.name for s in program.scalars))

    def workspace_bytes(self, scalars: Mapping[str, int]) -> int:
        """Return the bytes of global memory for status words.

        They are zero before the first launch. Each later one finds them as the one before left
        them, and begins when that has ended.
        """
        if not self.program.status:
            return 0
        words = sum(
            buffer.size.evaluate(scalars) * words_of(buffer.dtype) for buffer in self.program.status
        )
        return 8 * (TICKET_WORDS + words)

    def blocks(self, scalars: Mapping[str, int]) -> int:
        """Return the number of blocks to launch; 0 means that there is nothing to do."""
        return self.program.grid(scalars)

    def aliased(self) -> Kernel:
        """Return the kernel for when an output is the very array of an input."""
        return replace(self, text=self.aliased_text)


@dataclass(frozen=True, slots=True)
class PlainKernel:
    """One CUDA kernel that was written by hand, and that no program stands behind.

    arguments: their names, in order: of pointers and 64-bit integers. The others are as those of a
    `Kernel`; no line of the text came from a step.
    """

    name: str
    text: str
    arguments: tuple[str, ...]
    threads: int
    dynamic_shared_bytes: int = 0
    min_sm: int = 70
    paths: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Its name in messages."""
        return self.name


# A kernel that can be compiled, loaded and launched.
AnyKernel: TypeAlias = Kernel | PlainKernel
