"""Command lines drawn from the options of every command: an answer, or a line that says why not."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from hypothesis import strategies as st

from command_line import tcusim_command
from drawn import ARCHES, TILES
from tcusim.algorithms.registry import algorithms
from tcusim.cli.main import main

# What takes minutes, a GPU or a terminal has tests of its own.
APART = {"agree", "bench", "explore", "microbench", "tune", "validate"}
COMMANDS = tuple(name for name in main.list_commands(click.Context(main)) if name not in APART)
# fmt: off
ODD = (
    "", "-1", "0", "3.5", "nan", "1e400", "no such name", "16x", "x", "0x10x16", "2**70", "--", "-",
    "99999999999999999999", "\u00e9", "1,2,x", "a" * 300, "2**10**10",
)
ALGORITHMS = [one.name for one in algorithms()]
OPERATIONS = ("sum", "cumsum", "segmented-sum", "segmented-cumsum")
USUAL: dict[str, Sequence[str]] = {
    "tile": TILES, "shape": (*TILES, "m16n8k16"), "arch": ARCHES, "archs": ARCHES,
    "unit": ("h200", "v100", "ieee"), "units": ("h200", "ieee"), "like": ("h200", "ieee"),
    "algorithm": ALGORITHMS, "what": (*ALGORITHMS, *OPERATIONS, "matmul", "matvec"),
    "names": ("algorithms", "shapes", "architectures", "units", "types", "backends", "scan_16"),
    "backend": ("numpy",), "operation": OPERATIONS, "operand": ("a", "b", "c", "d"),
    "ab": ("f16", "bf16", "s8", "e4m3"), "acc": ("f32", "f16"), "a": ("1,1", "0.5,2"),
    "b": ("0x0001,0x0001", "1,1"), "c": ("1", "0.5"), "length": ("1000", "2**20"),
    "rows": ("100",), "inner": ("16",), "cols": ("7",), "width": ("80", "40"),
    "dtype": ("float32", "f16", "float64", "int64"), "segment_size": ("1", "5", "20"),
    "axis": ("0", "-1", "1"), "initial": ("1", "-2"), "num_segments": ("1", "40"),
    "fraction_bits": ("10", "23"), "fused_length": ("4", "16"), "family": ("mma", "wmma"),
    "cell": ("0,0", "3,4"), "start": ("1", "2"), "breaks": ("step == 2",), "member": ("a", "c"),
}
# fmt: on
# Options without which nothing is computed.
NEEDED = {("explain", "a"), ("explain", "b"), ("cost", "length")}


def folder(path: Path) -> Path:
    """Write some inputs, whole and damaged, and return their folder."""
    np.save(path / "x.npy", np.arange(40, dtype=np.float16))
    np.save(path / "m.npy", np.ones((5, 7), np.float32))
    np.savez(path / "two.npz", a=np.ones(4), b=np.ones(5))
    (path / "x.csv").write_text("1,2,3\n4,5,6\n")
    (path / "x.txt").write_text("1 2 x\n")
    (path / "cut.npy").write_bytes((path / "x.npy").read_bytes()[:70])
    return path


FILES = ("x.npy",) * 8 + ("m.npy", "two.npz", "x.csv", "x.txt", "cut.npy", "missing.npy", "-")


def _value(draw: st.DrawFn, name: str, kind: Any) -> str:
    if draw(st.integers(1, 10)) == 10:
        return str(draw(st.sampled_from(ODD)))
    if choices := getattr(kind, "words", None):
        return str(draw(st.sampled_from(list(choices))))
    if isinstance(kind, click.Path) or name == "file":
        return str(draw(st.sampled_from(FILES)))
    return str(draw(st.sampled_from(USUAL.get(name, ("1", "2", "16", "256", "f16", "f32")))))


@st.composite
def command_lines(draw: st.DrawFn, name: str) -> list[str]:
    """Draw the arguments of a command; its files are in the working folder."""
    command = main.get_command(click.Context(main), name)
    assert command is not None
    words = [name]
    options: list[str] = []
    for parameter in command.params:
        if isinstance(parameter, click.Argument):
            least = 1 if parameter.required else 0
            count = draw(st.integers(least, 2 if parameter.nargs == -1 else 1))
            words += [_value(draw, parameter.name or "", parameter.type) for _ in range(count)]
            continue
        assert isinstance(parameter, click.Option)
        # The page, the screen and the compiler have tests of their own.
        apart = {"html", "compile", "help", "record", "output", "svg", "jobs"}
        needed = (name, parameter.name) in NEEDED
        if parameter.name in apart or (not needed and draw(st.integers(1, 9)) < 9):
            continue
        options.append(draw(st.sampled_from(parameter.opts)))
        if not parameter.is_flag and not parameter.count:
            values = range(parameter.nargs)
            options += [_value(draw, parameter.name or "", parameter.type) for _ in values]
    return [*words, *options] if draw(st.booleans()) else [words[0], *options, *words[1:]]


def check_command(words: list[str]) -> str:
    """Run a command line; it ends with 0, or with 1 or 2 and a sentence on stderr."""
    result: Any = tcusim_command(*words)
    shown = f"tcusim {shlex.join(words)}"
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise AssertionError(shown) from result.exception
    assert result.exit_code in (0, 1, 2), shown
    assert "Traceback" not in result.output + result.stderr, shown
    if result.exit_code == 2 or (result.exit_code == 1 and not result.stdout):
        assert len(result.stderr.split()) >= 3, f"{shown}: {result.stderr!r}"
        return "refused"
    return "returned"
