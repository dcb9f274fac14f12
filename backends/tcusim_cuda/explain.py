"""Facts of a program that need no launch: its instruction, CUDA text and cubin."""

from __future__ import annotations

from tcusim.backends import Compiled
from tcusim.program.bind import rule_of
from tcusim.program.grammar import Program
from tcusim_cuda.compile import Cubin, compile_kernel, require_instructions
from tcusim_cuda.emit import emit
from tcusim_cuda.instructions import LANES, native, rule_of_lanes
from tcusim_cuda.kernel import Kernel


class CudaEmitter:
    """An emitter, as `tcusim.backends.Emitter` describes it. It needs no GPU."""

    def instruction(self, program: Program) -> str:
        """Return the instruction for the program's tiles, such as "wmma m16n16k16"."""
        found = native(program)
        # Any rule will do: the text is refused or not for other reasons.
        emit(program, rule=rule_of(program, "exact") if found is None else None)
        if not program.uses_mma:
            return "without tensor core"
        return str(found or LANES)

    def emit(
        self,
        program: Program,
        *,
        standalone: bool = False,
        sm: int | None = None,
        arch: str | None = None,
    ) -> str:
        """Return the kernel's text; standalone has our headers in it, and needs no other file.

        sm: Unsupported if GPUs of this compute capability lack the kernel's instructions. arch: the
        arithmetic that results must have.
        """
        kernel = emit(program, standalone=standalone, rule=rule_of_lanes(program, arch, sm))
        if sm is not None:
            require_instructions(kernel, sm)
        return kernel.text

    def compile(self, program: Program, sm: int, *, arch: str | None = None) -> Compiled:
        """Compile the kernel for GPUs of a compute capability, such as 90; arch: as of `emit`."""
        kernel = emit(program, rule=rule_of_lanes(program, arch, sm))
        cubin = compile_kernel(kernel, sm)
        return Compiled(cubin.code, _facts(kernel, cubin))


def _facts(kernel: Kernel, cubin: Cubin) -> dict[str, str]:
    """Return the resources of a compiled kernel, by name."""
    usage = cubin.usage
    shared = usage.shared_bytes + kernel.dynamic_shared_bytes
    counts = ", ".join(f"{count} {name}" for name, count in usage.tensor_core.items()) or "none"
    facts = {
        "kernel": f"{kernel.name}, {kernel.threads} threads a block",
        "compiled for": f"sm_{cubin.sm} by {cubin.compiler}",
        "registers": f"{usage.registers} of each thread",
        "shared memory": f"{shared:,} bytes of a block",
        "spilled": f"{usage.stack_bytes} bytes of each thread",
        "instructions": f"{usage.instructions:,}",
        "tensor core": counts,
    }
    if kernel.products and usage.tensor_core:
        each = sum(usage.tensor_core.values()) / kernel.products
        facts["of each mma"] = f"{each:g} ({kernel.products} mma, where loops are unrolled)"
    return facts
