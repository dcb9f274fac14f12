"""`tcusim listing`, `step` and `emit`: the program of an algorithm, as text, at work, as CUDA."""

from __future__ import annotations

import re
import sys
from functools import partial
from typing import Any, Final

import click
import numpy as np

import tcusim
from tcusim import errors
from tcusim.backends import find_emitter
from tcusim.cli import files, stepper
from tcusim.cli.beside import Beside, beside
from tcusim.cli.options import MEMBER, OneOf, OutputFile, ProgramCommand, build
from tcusim.cli.output import examples, make_console
from tcusim.machine import arch_of
from tcusim.simulate.frames import default_inputs, frames

__all__ = ["emit_command", "listing_command", "step_command"]

_FIRST_TENSOR_CORE: Final = "sm_70"


@click.command(
    "listing",
    cls=ProgramCommand,
    no_args_is_help=True,
    epilog=examples(
        "tcusim listing scan_256",
        "tcusim listing reduction_tn --tile 8x32x16 --segment-size 4096 --masked --combine add",
        "tcusim listing scan_t --form 'L(A1)'",
    ),
)
@click.argument("algorithm")
def listing_command(algorithm: str, **options: Any) -> None:
    """Print the program of ALGORITHM in the notation of the paper."""
    click.echo(tcusim.listing(build(algorithm, options)), nl=False)


# --- step -------------------------------------------------------------------------------------


@click.command(
    "step",
    cls=ProgramCommand,
    no_args_is_help=True,
    epilog=examples(
        "tcusim step scan_256",
        "tcusim step reduction_16 --only mma --arch volta --input data.npy",
        "tcusim step scan_256n --from 5.2 --plain",
        "tcusim step scan_256n --html scan.html",
        "tcusim step scan_256n --backend host --only mma",
    ),
)
@click.argument("algorithm")
@click.option("--input", "input_file", type=click.Path(), metavar="FILE", help="Input array.")
@MEMBER
@click.option("--arch", help="Whose arithmetic. Default: the GPU's, or hopper's.")
@click.option(
    "--backend",
    default="numpy",
    show_default=True,
    help="Who runs it; what the simulator does otherwise is marked, and shown beside it.",
)
@click.option("--warp", type=int, default=0, show_default=True, help="Warp to watch.")
@click.option("--from", "start", default="", metavar="PATH", help="First step, such as 5.2.")
@click.option(
    "--only",
    multiple=True,
    type=OneOf("kind of step", stepper.kinds()),
    help="Kinds of steps to show; may be repeated.",
)
@click.option("--plain", is_flag=True, help="Plain text: no colours, no keys.")
@click.option("--width", type=click.IntRange(min=40), help="Columns; default: the terminal's.")
@click.option(
    "--html", type=OutputFile(), help="Write a page to step through, in one file; - prints it."
)
@click.option("--save", type=OutputFile(), help="Write the trace, for Trace.load.")
@click.option("--block", type=int, help="With --html or --save: watch all warps of this block.")
def step_command(algorithm: str, **options: Any) -> None:
    """Show every step of ALGORITHM with the tiles that it reads and writes.

    Without a file the input is 1, 2, 3, ... again and again. On a terminal, Enter shows the next
    step, c all of them, q quits, and a path such as 5.2 goes there; elsewhere the text is plain.
    With --html or --save, all steps are written to a file instead.
    """
    program = build(algorithm, options)
    inputs = _step_inputs(program, options["input_file"], options["member"])
    if options["html"] is not None or options["save"] is not None:
        _write_trace(program, inputs, options)
        return
    if options["block"] is not None:
        raise click.UsageError("--block needs --html or --save; a terminal shows one --warp")
    shown: dict[str, Any] = {
        "frames": partial(frames, program, inputs, options["arch"] or "hopper", options["warp"])
    }
    found = None
    plain = options["plain"] or not sys.stdout.isatty()
    console = None if plain else make_console()
    room = stepper.Layout().width if console is None else console.width
    layout = stepper.Layout(width=options["width"] or room)
    if options["backend"] != "numpy":
        found = _beside(program, inputs, options, warps=options["warp"])
        text_of = partial(stepper.frame_text, layout=layout)
        shown = {
            "frames": partial(iter, found.kept),
            "remark": partial(found.remark, text_of=text_of),
        }
    stepper.Stepper(
        program,
        write=click.echo,
        console=console,
        ask=None if plain else input,
        layout=layout,
        start=options["start"],
        only=options["only"],
        **shown,
    ).run()
    if found is not None:
        click.echo(found.verdict)


def _beside(
    program: tcusim.Program, inputs: dict[str, Any], options: dict[str, Any], **watched: int
) -> Beside:
    """Run a program on a backend and on the simulator; say what a trace leaves out."""
    found = beside(program, inputs, options["backend"], options["arch"], **watched)
    if found.kept.left_out:
        click.echo(found.kept.left_out, err=True)
    return found


def _write_trace(
    program: tcusim.Program, inputs: dict[str, np.ndarray[Any, Any]], options: dict[str, Any]
) -> None:
    """Write what --html and --save ask for."""
    for name, chosen in (("from", options["start"]), ("only", options["only"])):
        if chosen:
            raise click.UsageError(f"--{name} is for the terminal; a file has every step")
    source = click.get_current_context().get_parameter_source("warp")
    if options["block"] is None:
        watched = {"warps": options["warp"]}
    elif source is click.core.ParameterSource.DEFAULT:
        watched = {"blocks": options["block"]}
    else:
        raise click.UsageError("--warp and --block exclude each other; a block has all its warps")
    if options["backend"] == "numpy":
        kept = tcusim.trace(program, inputs, arch=options["arch"], **watched)
        if kept.left_out:
            click.echo(kept.left_out, err=True)
    else:
        found = _beside(program, inputs, options, **watched)
        kept = found.kept
        click.echo(found.verdict, err=True)
    if options["save"] is not None:
        files.write_bytes(options["save"], kept.to_bytes())
    if options["html"] == "-":
        click.echo(kept.to_html(), nl=False)
    elif options["html"] is not None:
        files.write_text(options["html"], kept.to_html())


def _step_inputs(
    program: tcusim.Program, input_file: str | None, member: str | None
) -> dict[str, np.ndarray[Any, Any]]:
    """Return inputs of the program's types, the first from the file if there is one."""
    if input_file is None:
        if member is not None:
            raise click.UsageError("--member needs --input FILE")
        return default_inputs(program)
    array = files.read_array(input_file, member=member).ravel()
    first = program.inputs[0]
    cast = files.cast_array(array, first.dtype, name=input_file)
    if cast.changed:
        click.echo(f"{input_file}: {cast}", err=True)
    # The size of the first input gives the scalar: it is `length`, or that many times the `rows`.
    ((_, per_scalar),) = first.size.index.terms
    return default_inputs(program, array.size // per_scalar) | {first.name: cast.array}


# --- emit -------------------------------------------------------------------------------------


@click.command(
    "emit",
    cls=ProgramCommand,
    no_args_is_help=True,
    epilog=examples(
        "tcusim emit reduction_16",
        "tcusim emit scan_tn --tile 32x8x16 --masked --combine add --standalone -o scan.cu",
        "tcusim emit scan_256 --arch sm_70 --compile -o scan_256.cubin",
    ),
)
@click.argument("algorithm")
@click.option(
    "--arch",
    help=f"GPU to compile for: sm_NN, or an architecture's name. Default: {_FIRST_TENSOR_CORE}.",
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
    """
    arch, output = options["arch"], options["output"]
    sm = _sm_of(arch or _FIRST_TENSOR_CORE)
    emitter = find_emitter()
    if emitter is None:
        raise errors.BackendUnavailable("no installed backend emits kernels")
    program = build(algorithm, options)
    if not options["compiled"]:
        text = emitter.emit(
            program, standalone=options["standalone"], sm=None if arch is None else sm
        )
        if output is None:
            click.echo(text, nl=False)
        else:
            files.write_text(output, text)
        return
    compiled = emitter.compile(program, sm)
    rows = compiled.facts
    if output is not None:
        files.write_bytes(output, compiled.code)
        rows |= {"written to": output}
    width = max(map(len, rows))
    for name, text in rows.items():
        click.echo(f"{name:<{width}}  {text}")


def _sm_of(arch: str) -> int:
    """Return the compute capability that a name stands for: its own, or its generation's first."""
    name = arch.lower()
    if match := re.fullmatch(r"sm_(\d{2,3})", name):
        return int(match[1])
    found = arch_of(name)
    if not found.sm:
        raise errors.Unsupported(f"{found.name} is no GPU: nothing can be compiled for it")
    return found.sm[0]
