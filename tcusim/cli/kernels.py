"""`tcusim emit`: CUDA kernels as text and machine code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tcusim import errors
from tcusim import machine as numerics
from tcusim.cli.parts import build, build_options, check_folder, examples, options_of

if TYPE_CHECKING:
    from tcusim_cuda.compile import Cubin
    from tcusim_cuda.kernel import Kernel

__all__ = ["emit_command"]


# --- emit -------------------------------------------------------------------------------------


@click.command(
    "emit",
    no_args_is_help=True,
    epilog=examples(
        "tcusim emit reduction_16",
        "tcusim emit scan_tn --shape 32x8x16 --ragged --combine add --standalone -o scan.cu",
        "tcusim emit scan_256 --arch sm_70 --compile -o scan_256.cubin",
    ),
)
@click.argument("algorithm")
@options_of(
    click.option(
        "--arch",
        default="sm_70",
        show_default=True,
        help="GPU to compile for: sm_NN, or an architecture's name.",
    ),
    click.option("--compile", "compiled", is_flag=True, help="Compile it; tell what it needs."),
    click.option("--standalone", is_flag=True, help="Put tcusim.cuh into the text."),
    click.option(
        "-o",
        "--output",
        type=click.Path(),
        metavar="FILE",
        help="Write the text, or with --compile the cubin. An existing file is replaced.",
    ),
)
@build_options
def emit_command(
    algorithm: str,
    arch: str,
    compiled: bool,
    standalone: bool,
    output: str | None,
    **options: Any,
) -> None:
    """Print the CUDA kernel of ALGORITHM.

    The text is the same on every machine. It includes tcusim.cuh, unless --standalone puts that
    into it; the kernel's arguments are the inputs, the outputs and the length.
    """
    from tcusim_cuda.emit import emit

    sm = _sm_of(arch)
    if output is not None:
        check_folder(output)
    kernel = emit(build(algorithm, options))
    if compiled:
        _compile(kernel, sm, output)
        return
    text = standalone_text(kernel) if standalone else kernel.text
    if output is None:
        click.echo(text, nl=False)
    else:
        Path(output).write_text(text, encoding="ascii")


def standalone_text(kernel: Kernel) -> str:
    """Return a kernel's text with tcusim.cuh in place of the line that includes it."""
    from tcusim_cuda import kernel as cuda_kernel

    header = Path(cuda_kernel.__file__).parent / "include" / "tcusim.cuh"
    body = header.read_text(encoding="ascii").replace("#pragma once\n", "")
    return kernel.text.replace('#include "tcusim.cuh"\n', f"\n{body}\n")


def _sm_of(arch: str) -> int:
    """Return the compute capability that a name stands for: its own, or its generation's first."""
    name = arch.lower()
    if match := re.fullmatch(r"sm_(\d{2,3})", name):
        return int(match[1])
    unit = numerics.unit_of(name)
    if not unit.sm:
        raise errors.Unsupported(f"{unit.name} is no GPU: nothing can be compiled for it")
    return unit.sm[0]


def _compile(kernel: Kernel, sm: int, output: str | None) -> None:
    """Compile a kernel, write the cubin if asked to, and print what it needs of the GPU."""
    from tcusim_cuda.compile import compile_kernel

    cubin = compile_kernel(kernel, sm)
    if output is not None:
        Path(output).write_bytes(cubin.code)
    rows = _usage_rows(kernel, cubin)
    width = max(map(len, rows))
    for name, text in rows.items():
        click.echo(f"{name:<{width}}  {text}")
    if output is not None:
        click.echo(f"{'written to':<{width}}  {output}")


def _usage_rows(kernel: Kernel, cubin: Cubin) -> dict[str, str]:
    """Return what a compiled kernel needs, by name."""
    usage = cubin.usage
    shared = usage.shared_bytes + kernel.dynamic_shared_bytes
    counts = ", ".join(f"{count} {name}" for name, count in usage.tensor_core.items()) or "none"
    rows = {
        "kernel": f"{kernel.name}, {kernel.threads} threads a block",
        "compiled for": f"sm_{cubin.sm} by {cubin.compiler}",
        "registers": f"{usage.registers} of each thread",
        "shared memory": f"{shared:,} bytes of a block",
        "spilled": f"{usage.stack_bytes} bytes of each thread",
        "instructions": f"{usage.instructions:,}",
        "tensor core": counts,
    }
    products = mma_count(kernel)
    if products and usage.tensor_core:
        each = sum(usage.tensor_core.values()) / products
        rows["of each mma"] = f"{each:g} ({products} mma, where loops are unrolled)"
    return rows


def mma_count(kernel: Kernel) -> int:
    """Return how many mma the machine code holds if every loop marked so is unrolled.

    It follows the text's own loops: `#pragma unroll` above a `for` with a constant count.
    """
    times = [1]
    count = 0
    unrolled = False
    for text in kernel.text.splitlines():
        code = text.strip()
        if code.startswith("//"):
            continue
        count += times[-1] * len(re.findall(r"\bmma_sync\(", code))
        if code.endswith("{"):
            loop = re.match(r"for \(int \w+ = (\d+); \w+ < (\d+);", code)
            factor = int(loop[2]) - int(loop[1]) if loop and unrolled else 1
            times.append(times[-1] * factor)
        elif code == "}":
            times.pop()
        unrolled = code == "#pragma unroll"
    return count
