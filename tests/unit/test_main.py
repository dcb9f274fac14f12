"""The `tcusim` command: its output, refusals and exit codes."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import click.testing
import numpy as np
import pytest

import tcusim
from command_line import fails, succeeds, tcusim_command
from tcusim.cli import main as cli
from tcusim.cli.lazy import LazyCommand
from tcusim.program.grammar import Loop, Step, When
from tcusim.stepper.frames import default_inputs
from tcusim_cuda.compile import why_no_compiler

COMMAND = [sys.executable, "-W", "error", "-m", "tcusim"]


_CONTEXT = click.Context(cli.main)


# Without those of the packages beside tcusim, such as bench.
_COMMANDS = {
    name: command
    for name in cli.main.list_commands(_CONTEXT)
    if (command := cli.main.get_command(_CONTEXT, name))
    and not isinstance(command, click.Group | LazyCommand)
}


# --- list, listing and step -------------------------------------------------------------------


def test_listing_is_that_of_the_program() -> None:
    options = ["--tile", "8x32x16", "--segment-size", "512", "--side", "b"]
    options += ["--combine", "add", "--masked"]
    program = tcusim.build(
        "scan_tn", tile="8x32x16", segment_size=512, combine="add", masked=True, side="b"
    )
    assert succeeds("listing", "scan_tn", *options) == tcusim.listing(program)
    program = tcusim.build("scan_256n", form="L(A1)", carry=True, warps=2)
    options = ["--form", "L(A1)", "--carry", "--warps", "2"]
    assert succeeds("listing", "scan_256n", *options) == tcusim.listing(program)
    program = tcusim.build("scan_kn", exclusive=True, reverse=True)
    options = ["--exclusive", "--reverse"]
    assert succeeds("listing", "scan_kn", *options) == tcusim.listing(program)
    program = tcusim.build("gemm", cols=40, inner=50, add_c=True, warps=2)
    options = ["--cols", "40", "--inner", "50", "--add-c", "--warps", "2"]
    assert succeeds("listing", "gemm", *options) == tcusim.listing(program)


@pytest.mark.parametrize("command", [["listing"], ["emit"], ["step", "--plain", "--only", "sync"]])
def test_what_is_not_proven_of_a_program_is_said_beside_it(command: list[str]) -> None:
    """The text itself is that of any other program, so that a pipe gets nothing else."""
    result = tcusim_command(*command, "scan_ragged", "--whole", "--segment-size", "16")
    assert result.exit_code == 0, result.output
    assert result.stderr == (
        "scan_ragged: not proven: every output element is written: proved of segments of at most "
        "16 elements\n"
    )
    assert "not proven" not in result.stdout


PAGES = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("command", list(_COMMANDS))
def test_every_example_of_a_help_works(folder: Path, command: str) -> None:
    np.save("data.npy", (np.arange(512) % 5).astype(np.float16))
    np.savez("archive.npz", elevation=np.ones((3, 20), np.float16), other=np.ones(1))
    for name in ("left.npy", "right.npy"):
        np.save(name, np.ones((4, 4), np.float16))
    Path("data.csv").write_text("1,2,3,4\n")
    Path("rows.txt").write_text("0 1 4\n")
    Path("products.json").write_text("{}")
    Path("mychip.toml").write_text('tiles = "16x16x16"\nfraction_bits = 20\n')
    epilog = str(_COMMANDS[command].epilog)
    pages = "".join(page.read_text("utf-8") for page in sorted(PAGES.glob("*.md")))
    examples = [line.split("|")[0] for line in epilog.splitlines() if line.startswith("  tcusim ")]
    assert len(examples) >= 2
    for line in examples:
        words = shlex.split(line)[1:]
        assert words[0] == command
        takes_long = command in ("agree", "explore", "validate", "orders")
        if (
            (takes_long and "--case" not in words)
            or {"--record", "--probe"} & {*words}
            or f"$ {line.strip()}\n" in pages
        ):
            # These take long, need a GPU or a program, or are on a page, where they run: here
            # options are read only.
            _COMMANDS[command].make_context(command, words[1:])
        elif "--compile" in words and why_no_compiler() is not None:
            assert "error: " in fails(1, *words)
        else:
            succeeds(*words)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["scan_265"], "unknown algorithm 'scan_265'. Did you mean 'scan_256'?"),
        (["scan_256", "--tile", "8x8x4"], "'scan_256' is the paper's name for k = 16"),
        (["reduction_k", "--form", "L(A1)"], "reduction_k takes no --form; it has no options of"),
        (["gemv", "--cols", "3"], "gemv takes no --cols; its own options: --inner, --add-c"),
        (["gemm", "--segment-size", "3"], "gemm has no segments; leave --segment-size out"),
        (["scan_single_pass", "--combine", "mma"], "scan_single_pass has no --combine mma"),
        (
            ["reduction_single_pass", "--panels", "0"],
            "--panels must be an integer of at least 1",
        ),
        (["scan_k", "--segment-size", "17"], "scan_k scans segments of at most k = 16 elements"),
    ],
)
def test_listing_errors(arguments: list[str], message: str) -> None:
    assert message in fails(1, "listing", *arguments)


def test_step_is_plain_where_nobody_sits() -> None:
    text = succeeds("step", "reduction_16", "--only", "mma", "--arch", "volta")
    assert text == succeeds("step", "reduction_16", "--only", "mma", "--plain")
    assert text.startswith(tcusim.listing(tcusim.build("reduction_16")))
    assert "step 4\n  V ← P·A + V\n" in text
    assert "\x1b" not in text


def test_step_takes_a_file(folder: Path) -> None:
    text = succeeds("step", "reduction_16", "--input", "a.npy", "--from", "7")
    expected = np.load("a.npy").reshape(16, 16).sum(1).astype(int)
    assert text.splitlines()[-3].split()[16:] == [str(value) for value in expected]
    np.save("long.npy", np.ones(100))
    text = fails_after("step", "reduction_16", "--input", "long.npy")
    assert "length = 100 is not a multiple of 256" in text
    assert "Build it with --masked, or pad the input" in text


def test_step_takes_a_matrix(folder: Path) -> None:
    np.save("matrix.npy", np.full((3, 32), 2.0))
    text = succeeds(
        "step", "gemv", "--inner", "32", "--input", "matrix.npy", "--from", "5", "--plain"
    )
    # The vector is 1, 2, ... 9, 1, 2, ... by default: three rows have one and the same product.
    x = np.arange(32) % 9 + 1
    assert text.count(str(2 * x.sum())) >= 3
    np.save("half.npy", np.ones(50))
    assert "input 'a' must have 32*rows = 32 elements; it has 50" in fails_after(
        "step", "gemv", "--inner", "32", "--input", "half.npy"
    )


def fails_after(*arguments: str) -> str:
    """Return the error of a command that had begun to print."""
    result = tcusim_command(*arguments)
    assert result.exit_code == 1
    return str(result.stderr)


@pytest.mark.usefixtures("folder")
def test_step_writes_a_page_and_a_trace() -> None:
    program = tcusim.build("scan_16")
    expected = tcusim.trace(program, default_inputs(program), arch="volta")
    options = ("scan_16", "--arch", "volta", "--html", "page.html", "--save", "scan.trace")
    written = tcusim_command("step", *options)
    assert (written.exit_code, written.stdout) == (0, "")
    assert written.stderr.splitlines() == ["wrote scan.trace", "wrote page.html"]
    assert Path("page.html").read_text("utf-8") == expected.to_html()
    assert Path("scan.trace").read_bytes() == expected.to_bytes()
    assert succeeds("step", "scan_16", "--arch", "volta", "--html", "-") == expected.to_html()

    block = ("reduction_tn_block", "--warps", "4", "--block", "0")
    succeeds("step", *block, "--save", "block.trace")
    assert tcusim.Trace.load("block.trace").warps == (0, 1, 2, 3)


@pytest.mark.parametrize(
    ("code", "options", "message"),
    [
        (
            2,
            ("--html", "x", "--from", "5"),
            "--from is for the screen and for text; a file has every step",
        ),
        (2, ("--save", "x", "--only", "mma"), "--only is for the screen and for text"),
        (2, ("--save", "x", "--break", "nan"), "--break is for the screen and for text"),
        (2, ("--save", "x", "--load", "y"), "does not go with --load; the trace has settled it"),
        (2, ("--html", "x", "--block", "0", "--warp", "0"), "--warp and --block exclude each"),
        (1, ("--html", "x", "--block", "7"), "there is no block 7; the grid has blocks 0 to 0"),
        (1, ("--save", "none/x"), "error: "),
    ],
)
@pytest.mark.usefixtures("folder")
def test_a_page_that_cannot_be_written(code: int, options: tuple[str, ...], message: str) -> None:
    assert message in fails(code, "step", "scan_256n", *options)
    assert not Path("x").exists()


def test_step_can_show_every_kind_of_step() -> None:
    leaves = [step.__name__.lower() for step in get_args(Step) if step not in (Loop, When)]
    assert len(leaves) >= 11
    for kind in leaves:
        succeeds("step", "scan_16", "--only", kind)
    options = ["--warps", "8", "--columns", "2", "--plain"]
    assert "\nstep " in succeeds("step", "scan_single_pass", *options, "--only", "publish")
    assert "writes dst: piece" in succeeds("step", "scan_ragged", "--only", "locate", "--plain")


# --- The command itself -----------------------------------------------------------------------


def test_a_full_disk_is_a_sentence() -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*COMMAND, "listing", "scan_k"], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 1
    assert done.stderr == b"error: no space left on device\n"


@pytest.mark.parametrize("compiled", [[], ["--compile"]])
def test_emit_to_a_full_disk(compiled: list[str]) -> None:
    if compiled and why_no_compiler() is not None:
        pytest.skip(str(why_no_compiler()))
    text = fails(1, "emit", "scan_k", *compiled, "-o", "/dev/full")
    assert text == "error: cannot write /dev/full: no space left on device\n"
    assert Path("/dev/full").is_char_device()


BROKEN = {
    "raises": ("raise RuntimeError('no luck')", "RuntimeError: no luck"),
    "exits": ("import sys; sys.exit(3)", "SystemExit: 3"),
    "is no Python": ("def", "SyntaxError"),
    "lacks it": ("", "has no attribute 'THING'"),
    "is another thing": ("THING = 7", "cannot be used"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_command_is_named_when_it_is_called(
    fault: str, declare: Callable[..., None]
) -> None:
    code, reason = BROKEN[fault]
    declare("[tcusim.commands]\ntwist = toy_package:THING\n", code)
    assert "twist" in succeeds("--help")
    text = fails(1, "twist")
    assert "toy-package 1.0" in text
    assert ("a int" if fault == "is another thing" else reason) in text
    assert "program scan_k" in succeeds("listing", "scan_k")


def test_version_and_help() -> None:
    assert succeeds("--version") == f"tcusim, version {tcusim.__version__}\n"
    for command in ((), *((name,) for name in _COMMANDS)):
        text = succeeds(*command, "--help")
        assert "Examples:\n    tcusim " in text


def test_help_is_a_command() -> None:
    assert succeeds("help") == succeeds("--help")
    assert succeeds("help", "cost") == succeeds("cost", "--help")
    assert "unknown command 'listin'" in fails(2, "help", "listin")


def test_unknown_commands() -> None:
    text = fails(2, "listin")
    assert "unknown command 'listin'. Did you mean 'listing'? Valid: agree," in text


def test_a_broken_pipe_is_quiet() -> None:
    process = subprocess.Popen(
        [*COMMAND, "step", "scan_256n"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(100)
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    process.wait(30)


def test_an_encoding_without_our_letters_is_no_error() -> None:
    done = subprocess.run(
        [*COMMAND, "listing", "reduction_16"],
        env=os.environ | {"PYTHONIOENCODING": "cp1252"},
        capture_output=True,
        check=True,
    )
    assert b"V ? P\xb7A + V" in done.stdout


def test_help_imports_no_more_than_it_needs() -> None:
    code = """
import sys
from tcusim.cli.main import main
main(["--help"], standalone_mode=False)
heavy = ("rich", "tcusim_cuda", "tcusim_host", "cupy", "pycuda", "torch")
print([name for name in heavy if name in sys.modules])
"""
    command = [sys.executable, "-X", "utf8", "-c", code]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=True)
    assert done.stdout.endswith("\n[]\n")
