"""`tcusim listing` and `emit`: the program of an algorithm, as text and as CUDA."""

from __future__ import annotations

import re
from typing import Any, Final

import click

import tcusim
from tcusim import errors
from tcusim.backends import find_emitter
from tcusim.cli import files
from tcusim.cli.options import (
    OutputFile,
    ProgramCommand,
    arithmetic,
    build,
    tiles_of,
    types_of,
)
from tcusim.cli.output import examples, show
from tcusim.machine import arch_of, unit_of
from tcusim.table import Table

_FIRST_TENSOR_CORE: Final = "sm_70"
_SM: Final = r"sm_(\d{2,3})"


@click.command(
    "listing",
    cls=ProgramCommand,
    no_args_is_help=True,
    epilog=examples(
        "tcusim listing scan_256",
        "tcusim listing reduction_tn --tile 8x32x16 --segment-size 4096 --masked --combine add",
        "tcusim listing scan_t --form 'L(A1)'",
        "tcusim listing scan_t --unit mychip.toml",
    ),
)
@click.argument("algorithm")
@click.option("--unit", metavar="NAME|FILE", help="Unit that has the tile and the types.")
def listing_command(algorithm: str, **options: Any) -> None:
    """Print the program of ALGORITHM in the notation of the paper.

    It is verified for all sizes, unless a line on stderr names an unproven property. So are
    those of step and emit.
    """
    if options["unit"] is not None:
        unit = unit_of(options["unit"])
        options |= tiles_of(unit, options) | types_of(unit, options)
    click.echo(tcusim.listing(build(algorithm, options)), nl=False)


# --- emit -------------------------------------------------------------------------------------


@click.command(
    "emit",
    cls=ProgramCommand,
    no_args_is_help=True,
    epilog=examples(
        "tcusim emit reduction_16",
        "tcusim emit scan_tn --tile 32x8x16 --masked --combine add --standalone -o scan.cu",
        "tcusim emit scan_256 --arch sm_70 --compile -o scan_256.cubin",
        "tcusim emit scan_t --unit mychip.toml --gpu sm_90 --standalone -o scan.cu",
    ),
)
@click.argument("algorithm")
@arithmetic(f"Whose arithmetic, sm_NN or an architecture's name. Default: {_FIRST_TENSOR_CORE}.")
@click.option(
    "--gpu",
    metavar="ARCH",
    help="GPU to compile for, if it is another. The lanes of its warps then follow the rule of "
    "--arch or --unit. Default: the same, or for a unit that is no GPU "
    f"{_FIRST_TENSOR_CORE}.",
)
@click.option("--compile", "compiled", is_flag=True, help="Compile it; tell what it needs.")
@click.option("--standalone", is_flag=True, help="Put tcusim.cuh into the text.")
@click.option(
    *("-o", "--output"),
    type=OutputFile(),
    help="Write the text, or with --compile the cubin. An existing file is replaced.",
)
def emit_command(algorithm: str, **options: Any) -> None:
    """Print the CUDA kernel of ALGORITHM.

    The text is the same on every machine. It includes tcusim.cuh, unless --standalone puts that
    into it; the kernel's arguments are the inputs, the outputs and the length.

    With --unit it is for the unit's tile and types. Where no instruction of the GPU multiplies
    such tiles by the unit's rule, the lanes of each warp do.
    """
    arch, gpu, output = options["arch"], options["gpu"], options["output"]
    if options["standalone"] and options["compiled"]:
        raise click.UsageError("--standalone is of the text; --compile prints none")
    if gpu is not None and not re.fullmatch(_SM, gpu.lower()) and not arch_of(gpu).sm:
        raise click.UsageError(f"--gpu {gpu} is no GPU, but an arithmetic; --arch {gpu} follows it")
    sm = _sm_of(gpu or arch or _FIRST_TENSOR_CORE)
    rule = arch or gpu or _FIRST_TENSOR_CORE
    emitter = find_emitter()
    if emitter is None:
        raise errors.BackendUnavailable("no installed backend emits kernels")
    program = build(algorithm, options)
    if not options["compiled"]:
        text = emitter.emit(
            program,
            standalone=options["standalone"],
            sm=sm if gpu or arch else None,
            arch=rule,
        )
        if output is None:
            click.echo(text, nl=False)
        else:
            files.write_text(output, text)
        return
    compiled = emitter.compile(program, sm, arch=rule)
    rows = compiled.facts
    if output is not None:
        files.write_bytes(output, compiled.code)
        rows |= {"written to": output}
    show(Table(rows=[(name, str(text)) for name, text in rows.items()]))


def _sm_of(arch: str) -> int:
    """Return the compute capability that a name stands for: its own, or its generation's first.

    That of the first GPU with tensor cores, if it is no GPU.
    """
    name = arch.lower()
    if match := re.fullmatch(_SM, name):
        return int(match[1])
    found = arch_of(name)
    return found.sm[0] if found.sm else _sm_of(_FIRST_TENSOR_CORE)
