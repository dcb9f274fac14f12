"""Command lines drawn from the options of every command: an answer, or a line that says why not."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from hypothesis import strategies as st

import tcusim
from command_line import tcusim_command
from drawn import ARCHES, TILES, Drawn
from tcusim.algorithms.registry import algorithms
from tcusim.cli.main import main

# Commands that take minutes, a GPU or a terminal have tests of their own.
APART = {"agree", "bench", "explore", "microbench", "orders", "tune", "validate"}
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
    "unit": ("h200", "v100", "ieee", "mine.toml"), "units": ("h200", "ieee"),
    "like": ("h200", "ieee"), "algorithm": ALGORITHMS,
    "what": (*ALGORITHMS, *OPERATIONS * 4, *("matmul", "matvec") * 4),
    "names": ("algorithms", "shapes", "architectures", "units", "backends", "scan_16", "h200"),
    "backend": ("numpy",), "operation": OPERATIONS, "operand": ("a", "b", "c", "d"),
    "ab": ("f16", "bf16", "s8", "e4m3"), "acc": ("f32", "f16"), "a": ("1,1", "0.5,2"),
    "b": ("0x0001,0x0001", "1,1"), "c": ("1", "0.5"), "length": ("2**20", "2**20", "1000"),
    "rows": ("100",), "inner": ("16",), "cols": ("7",), "width": ("80", "40"),
    "dtype": ("float32", "f16", "float64", "int64"), "segment_size": ("1", "5", "20"),
    "axis": ("0", "-1", "1"), "initial": ("1", "-2"), "num_segments": ("1", "40"),
    "fraction_bits": ("10", "23"), "fused_length": ("4", "16"),
    "family": ("mma.sync", "wmma", "wgmma"), "cell": ("0,0", "3,4"), "start": ("1", "2"),
    "breaks": ("mma", "1", "nan", "value"), "member": ("a", "b"), "lane": ("0", "31"),
    "element": ("0,0", "3,4"), "order": ("row", "col"), "block": ("0", "0", "1"),
    "warp": ("0", "0", "1"), "source": ("f16", "f32"), "result": ("f16", "f32"),
    "op": ("mma", "reduction", "scan"), "count": ("5", "20"), "seed": ("0", "3"),
    "form": ("hex", "csv"), "offsets": ("offsets.npy",), "segment_ids": ("ids.npy",),
    "load": ("trace.npz",), "gpu": ("sm_80", "hopper", "exact"),
}
# Why lines of usual words may be refused: sentences of each command, as patterns.
_UNIT = (
    "-(rounding|length) is of an invented unit; it needs --fraction-bits$",
    r"are two; this command takes one --arch or --unit$",
    r"^error: the unit \w+ has no tile ",
)
_SIZES = (
    r"is not a multiple of \d+, the elements that one block takes\. Build it with --masked",
    r" (sums|scans) segments of at most ", "has no segments; leave --segment-size out$",
    r"--segment-size \d+ is longer than the axis",
)
_TYPES = (
    r"does not take \w+ to \w+\. It takes: ", "--part (whole|fraction) is of f16 elements",
    r"accumulates in \w+( or \w+)* here$", r"\w+ does not take \w+; ",
    "--acc f16 is for float16 input", r"^error: [\w-]+ multiplies no float64\. Give ",
    "use --arch ",
    r"would cut the fractions of b?float(16|32|64) input; ",
)
_PROGRAM = (
    *_SIZES, *_TYPES, "are not panels of", "needs more result columns than k; ",
    r"^error: \w+ takes no --[\w-]+; (it has no options of its own|its own options: --)",
    "partial sums do not fit operands of type s8; build with --combine add$",
    "a running sum begins with the carry: --carry, --exclusive$",
    "only a tree has rounds: --by tree; got ", "^error: --behind-parts is for sums in f64 ",
    "warps do not stand ", "tile is several .* parts, which --combine mma cannot scan; use ",
    r"^error: --\w+ must be at least ", r"has no --combine \w+, only ",
    "a group has .* chunks of .* Choose warps and batches that fill a chunk, or leave them out$",
    "chunks of .* elements have more than 2 tiles to a row",
    "a block of one launch for a whole array takes one chunk: --items-per-warp 1$",
)
_FILE = (
    "^error: there is no file (missing.npy|-)$", "^error: cut.npy is not an array file of NumPy, ",
    "only an .npz file has members; ", "two.npz has several members; choose one", "^error: x.txt",
    r"^error: axis 1 is out of range",
)
REFUSED: dict[str, tuple[str, ...]] = {
    "run": (*_UNIT, *_FILE, *_SIZES, *_TYPES, "cumsum has no segments; did you mean segmented-",
            "sum has no segments; did you mean segmented-sum", "needs --segment-size N, --offsets ",
            r"--(exclusive|reverse|include-initial|initial) is for scans, [\w-]*sum is none$",
            "--exclusive leaves the last sum out, --include-initial keeps it",
            "--include-initial begins each segment with 0, and --initial with another value: l",
            "adds partial sums, and --acc f16 asks for the paper's",
            "--initial has launches of its own, and --algorithm ",
            "--axis .* is out of range for an array of ",
            "offsets must begin with 0 and end with the axis' length, ",
            "goes with segments of one size; those by offsets", "--num-segments goes with --segme",
            "--include-initial goes with segments that lie side by side, and --sort with others;",
            "--sort goes with --segment-ids; leave it out$", "--segment-ids must not decrease, ",
            "--segment-ids must be \\d+ integers, one for each element of the axis; there are ",
            "--segment-ids must be (at least 0, got |less than the number of segments, )",
            r"^error: '\w+' is a \w+, and this is a ",
            "adds values of the accumulator's type", "is the paper's name for k = 16", "is run as ",
            "takes one part; take", "rounds partial sums to ", "--acc f16 rounds after every produ",
            "have no bf16|multiplies no float64", "^error: tiles of .* do not do: "),
    "list": ("Error: there is no '(h200|scan_16)' in ",),
    "unit": ("name of a unit's file ends in .toml$", "is of a unit that is probed; it needs --rec",
             "^error: (mine|new).toml is there already"),
    "listing": (*_PROGRAM, _UNIT[-1]),
    "step": (*_UNIT, *_FILE, *_PROGRAM, "--member needs --input FILE$", "^Usage: .* Examples: ",
             "several --arch or --unit need --html ", "is for the screen and for text; a file has ",
             "name an ALGORITHM, or a trace with --load FILE$", "does not go with --load; the trac",
             "--warp and --block exclude each other", "there is no (warp|block) 1; the grid has ",
             r"input 'a' must have .* elements; it has \d+$"),
    "vectors": (*_PROGRAM, _UNIT[-1], "is of a reduction or a scan; --op mma has none$",
                "is of the kind '.*', and these vectors are of --op ", "^Usage: .* Examples: ",
                "is of vectors, and --header writes none; leave one out$",
                "-o - prints words in hexadecimal; leave out --format$"),
    "explain": (*_UNIT, *_TYPES, "a has shape .*: with a cell, a must be ", "cannot hold 0.5; it "),
    "layout": ("^error: no GPU has the shape ", "wgmma takes operands from shared or tensor",
               "there are maps of NVIDIA's GPUs alone, none of", "--lane and --element exclude ea",
               r"^error: \w+ has no .*; it has ", "takes . by (rows|columns) only$",
               "nobody told where WMMA keeps ", "^error: (row|col) must be an integer within ",
             r"has no (mma.sync|wmma) m.* is the first$"),
    "emit": (*_PROGRAM, *_UNIT, "--gpu .* is no GPU, but an arithmetic; --arch .* follows it$",
             r"NVRTC 13\.\d does not compile for sm_70, only for ",
             "--standalone is of the text; --compile prints none$",
             "uses instructions of sm_.. and newer, sm_70 lacks them"),
    "cost": (*_PROGRAM, "--sweep is of segmented-sum", "is of algorithms; .* has none$",
             r"--(length|rows|inner|cols) is not of [\w-]+; see ", "--cols is of matmul; the vecto",
             r"needs --\w+ N$", "has several inputs, .* and its options do not give their sizes",
             r"--(rows|inner|cols) is of matmul and matvec; \w+ is an algorithm$",
             "--input-type and --result-type are of operations; say --ab$",
             "--segment-size is of segmented-sum and segmented-cumsum; mat",
             "segmented-(sum|cumsum) needs --segment-size ",
             "--sweep takes sizes of its own", _UNIT[-1]),
}
# Required options, and the companions that an option or an argument needs.
NEEDED = {("explain", "a"), ("explain", "b"), ("vectors", "count")}
BESIDE = {
    "--fused-length": ("--fraction-bits", "12"), "--output-rounding": ("--fraction-bits", "12"),
    "segmented-sum": ("--segment-size", "4"), "segmented-cumsum": ("--segment-size", "4"),
    "two.npz": ("--member", "a"), "--num-segments": ("--segment-ids", "ids.npy"),
    "--sort": ("--segment-ids", "ids.npy"),
}
SIZES = {
    "matmul": ("--rows", "64", "--inner", "32", "--cols", "16"),
    "matvec": ("--rows", "64", "--inner", "32"),
}
# fmt: on


def folder(path: Path) -> Path:
    """Write some inputs, whole and damaged, and return their folder."""
    np.save(path / "x.npy", np.arange(40, dtype=np.float16))
    np.save(path / "m.npy", np.ones((5, 7), np.float32))
    np.savez(path / "two.npz", a=np.ones(4), b=np.ones(5))
    (path / "x.csv").write_text("1,2,3\n4,5,6\n")
    (path / "x.txt").write_text("1 2 x\n")
    np.save(path / "offsets.npy", np.array([0, 7, 7, 40]))
    np.save(path / "ids.npy", np.repeat(np.arange(4), 10))
    inputs = {"in": np.ones(256, np.float16)}
    tcusim.trace(tcusim.build("reduction_k"), inputs).save(path / "trace.npz")
    (path / "mine.toml").write_text('tiles = ["16x16x16"]\nfused_length = 4\nfraction_bits = 12\n')
    (path / "cut.npy").write_bytes((path / "x.npy").read_bytes()[:70])
    return path


FILES = ("x.npy",) * 8 + ("m.npy", "two.npz", "x.csv", "x.txt", "cut.npy", "missing.npy", "-")


@dataclass
class Line(Drawn):
    """A command line; odd: whether any sentence may refuse it, for a word that has no place."""

    words: list[str]
    odd: bool = False

    def __repr__(self) -> str:
        """Show the line as a user would write it."""
        return f"tcusim {shlex.join(self.words)}"


def _value(draw: st.DrawFn, line: Line, name: str, kind: Any) -> str:
    name = name.removeprefix("build_")
    if draw(st.integers(1, 16)) == 16:
        line.odd = True
        return str(draw(st.sampled_from(ODD)))
    if choices := getattr(kind, "words", None):
        return str(draw(st.sampled_from(list(choices))))
    if name == "file":
        return str(draw(st.sampled_from(("-", "-", "new.toml", "mine.toml", "x.npy"))))
    if name not in USUAL and isinstance(kind, click.Path):
        return str(draw(st.sampled_from(FILES)))
    return str(draw(st.sampled_from(USUAL.get(name, ("1", "2", "4", "16")))))


@st.composite
def command_lines(draw: st.DrawFn, name: str) -> Line:
    """Draw the arguments of a command; its files are in the working folder."""
    command = main.get_command(click.Context(main), name)
    assert command is not None
    line = Line([])
    words = [name]
    options: list[str] = []
    for parameter in command.get_params(click.Context(command)):
        if isinstance(parameter, click.Argument):
            least = 1 if parameter.required else draw(st.integers(0, 8)) > 0
            count = draw(st.integers(least, 2 if parameter.nargs == -1 else 1))
            words += [
                _value(draw, line, parameter.name or "", parameter.type) for _ in range(count)
            ]
            continue
        assert isinstance(parameter, click.Option)
        # The page, the screen and the compiler have tests of their own.
        apart = {"html", "compile", "help", "record", "output", "svg", "jobs"}
        needed = (name, parameter.name) in NEEDED
        odds = _odds(parameter.name or "", words)
        if parameter.name in apart or (not needed and draw(st.integers(1, odds)) < odds):
            continue
        # The calls of `build` judge the combinations of a program's options.
        line.odd |= (parameter.name or "").startswith("build_")
        options.append(draw(st.sampled_from(parameter.opts)))
        if not parameter.is_flag and not parameter.count:
            values = range(parameter.nargs)
            options += [_value(draw, line, parameter.name or "", parameter.type) for _ in values]
    _add_needed(draw, words, options)
    line.words = [*words, *options] if draw(st.booleans()) else [name, *options, *words[1:]]
    return line


def _odds(option: str, words: list[str]) -> int:
    """Return of how many lines one has an option: fewer, where it is of other algorithms."""
    if not option.startswith("build_"):
        return 9
    taken = {"tile", "acc"}
    if words[-1] in ALGORITHMS:
        taken = set(tcusim.algorithm_of(words[-1]).options)
    return 12 if option.removeprefix("build_") in taken else 300


def _add_needed(draw: st.DrawFn, words: list[str], options: list[str]) -> None:
    """Add the words that a line needs to be valid; mostly."""
    beside: list[tuple[str, ...]] = [BESIDE[one] for one in (*words, *options) if one in BESIDE]
    if words[0] == "cost":
        beside.append(SIZES.get(words[-1], ("--length", draw(st.sampled_from(USUAL["length"])))))
    for given in beside:
        there = given[0] in options or {"--offsets", "--segment-ids", "--sweep"} & {*options}
        if not there and draw(st.integers(1, 16)) < 16:
            options += given


def check_command(line: Line) -> str:
    """Run a command line; it ends with 0, or with 1 or 2 and a sentence on stderr."""
    result: Any = tcusim_command(*line.words)
    shown = repr(line)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise AssertionError(shown) from result.exception
    assert result.exit_code in (0, 1, 2), shown
    assert "Traceback" not in result.output + result.stderr, shown
    if result.exit_code == 2 or (result.exit_code == 1 and not result.stdout):
        assert len(result.stderr.split()) >= 3, f"{shown}: {result.stderr!r}"
        why = " ".join(result.stderr.split())
        given = any(re.search(one, why) for one in REFUSED[line.words[0]])
        assert given or line.odd, f"a valid line was refused: {shown}: {why}"
        return "refused"
    return "returned"
