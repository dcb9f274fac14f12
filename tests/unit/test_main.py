"""The `tcusim` command: what it prints, what it refuses, and with which exit code."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import click.testing
import numpy as np
import pytest

import tcusim
from tcusim.algorithms import Algorithm, algorithms, reduce, register_algorithm
from tcusim.algorithms.builder import Builder, Work
from tcusim.cli import main as cli
from tcusim.program.grammar import Loop, Step, When
from tcusim_cuda.compile import why_no_compiler

COMMAND = [sys.executable, "-W", "error", "-m", "tcusim"]


_CONTEXT = click.Context(cli.main)
# Without those of installed packages, such as bench.
_COMMANDS = {
    name: command
    for name in cli.main.list_commands(_CONTEXT)
    if (command := cli.main.get_command(_CONTEXT, name)) and not isinstance(command, click.Group)
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty working directory with an input in it."""
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", (np.arange(256) % 7).astype(np.float16))
    return tmp_path


def tcusim_command(*arguments: str) -> click.testing.Result:
    return click.testing.CliRunner().invoke(cli.main, arguments)


def succeeds(*arguments: str) -> str:
    result = tcusim_command(*arguments)
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    return str(result.stdout)


def fails(code: int, *arguments: str) -> str:
    result = tcusim_command(*arguments)
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    return str(result.stderr)


# --- run --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["sum"], lambda a: a.sum()),
        (["cumsum", "--dtype", "f32"], lambda a: a.cumsum()),
        (["cumsum", "--include-initial", "--dtype", "f32"], lambda a: np.append(0, a.cumsum())),
        (["cumsum", "--exclusive", "--dtype", "f32"], lambda a: a.cumsum() - a),
        (
            ["cumsum", "--exclusive", "--reverse", "--dtype", "f32"],
            lambda a: a[::-1].cumsum()[::-1] - a,
        ),
        (["segmented-sum", "--segment-size", "64"], lambda a: a.reshape(4, 64).sum(1)),
        (
            ["segmented-cumsum", "--segment-size", "64", "--dtype", "float32"],
            lambda a: a.reshape(4, 64).cumsum(1).ravel(),
        ),
        (
            ["segmented-cumsum", "--segment-size", "256", "--include-initial", "--dtype", "f32"],
            lambda a: np.append(0, a.cumsum()),
        ),
        (
            ["segmented-cumsum", "--segment-size", "256", "--exclusive", "--dtype", "f32"],
            lambda a: a.cumsum() - a,
        ),
    ],
)
def test_operations(folder: Path, arguments: list[str], expected: Any) -> None:
    operation, *options = arguments
    text = succeeds("run", operation, "a.npy", *options, "-o", "out.npy")
    assert "none: equal to NumPy's float64" in text
    array = np.load("a.npy").astype(np.float64)
    assert np.array_equal(np.load("out.npy"), expected(array))


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, r"arch +none: an array without elements"), (1, r"program .*operands, 1 element\n")],
)
def test_the_summary_of_next_to_nothing(folder: Path, size: int, text: str) -> None:
    np.save("b.npy", np.ones(size, np.float16))
    assert re.search(text, succeeds("run", "sum", "b.npy"))


def test_the_example_of_the_help(folder: Path) -> None:
    options = ["--segment-size", "64", "--tile", "32x8x16", "--arch", "volta", "-o", "sums.npy"]
    text = succeeds("run", "segmented-sum", "a.npy", *options)
    lines = dict(line.split(maxsplit=1) for line in text.splitlines())
    assert lines["input"] == "a.npy: float16 256"
    assert lines["arch"] == "volta, backend numpy"
    assert lines["program"] == "reduction_panel, tile 32x8x16, f16 operands, 256 elements"
    assert lines["launches"] == "1"
    assert lines["mma"] == "steps      2"
    assert lines["global"].split()[1:4] == ["512", "bytes", "read,"]
    assert lines["result"] == "float16 4"
    assert lines["written"] == "to     sums.npy"


def test_offsets_and_members_and_text(folder: Path) -> None:
    np.savez("two.npz", x=np.arange(6.0).reshape(2, 3), y=np.ones(2))
    Path("rows.txt").write_text("0 1 1 3\n")
    arguments = ["two.npz", "--member", "x", "--offsets", "rows.txt", "-o", "out.csv"]
    succeeds("run", "segmented-sum", *arguments, "--input-type", "f16")
    assert Path("out.csv").read_text() == "0.0,0.0,3.0\n3.0,0.0,9.0\n"
    succeeds("run", "segmented-cumsum", *arguments)
    assert Path("out.csv").read_text() == "0.0,1.0,3.0\n3.0,4.0,9.0\n"
    succeeds("run", "segmented-cumsum", *arguments, "--exclusive", "--axis", "1")
    assert Path("out.csv").read_text() == "0.0,0.0,1.0\n0.0,0.0,4.0\n"


def test_json_is_one_object_and_nothing_else(folder: Path) -> None:
    answer = json.loads(succeeds("run", "sum", "a.npy", "--json"))
    assert answer["result"] == np.load("a.npy").astype(float).sum()
    assert answer["programs"][0] == {
        "program": "reduction_panel",
        "tile": "16x16x16",
        "ab": "f16",
        "length": 256,
    }
    assert answer["mma"] == 2
    assert answer["bytes_read"] == 512
    assert answer["error"]["max_absolute"] == 0
    saved = json.loads(succeeds("run", "sum", "a.npy", "--json", "-o", "s.npy"))
    assert saved["output"] == "s.npy"
    assert "result" not in saved


@pytest.mark.parametrize("operation", ["sum", "cumsum", "segmented-sum", "segmented-cumsum"])
def test_infinities_and_nan_have_no_error(folder: Path, operation: str) -> None:
    Path("odd.csv").write_text("1,nan,3,inf,-inf,6\n")
    size = ["--segment-size", "2"] if operation.startswith("segmented") else []
    for words in ([], ["--input-type", "f16"]):
        text = succeeds("run", operation, "odd.csv", *size, *words)
        assert "none: equal to NumPy's float64" in text


def test_a_result_that_is_not_numpys_infinity_is_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save("i.npy", np.array([np.inf, 1], np.float32))
    monkeypatch.setattr(tcusim, "sum", lambda *_, **__: np.float32("nan"))
    text = succeeds("run", "sum", "i.npy")
    assert "1 are not the infinity or NaN that NumPy has" in text


def test_json_spells_what_it_has_no_number_for(folder: Path) -> None:
    np.save("n.npy", np.array([1, np.inf, -np.inf], np.float32))
    options = ["--segment-size", "1", "--json"]
    answer = json.loads(succeeds("run", "segmented-sum", "n.npy", *options))
    assert answer["result"] == [1.0, "Infinity", "-Infinity"]


def test_a_cast_is_reported(folder: Path) -> None:
    Path("a.csv").write_text("0.1,0.5\n")
    text = succeeds("run", "sum", "a.csv", "--input-type", "f16")
    assert "float64 to f16, 1 of 2 numbers rounded, by at most 2.44e-05" in text


def test_an_overflow_of_the_result_is_reported(folder: Path) -> None:
    np.save("big.npy", np.full(4, 60000, np.float16))
    assert "1 results overflowed: choose a wider --dtype" in succeeds("run", "sum", "big.npy")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sum", "none.npy"], "error: there is no file none.npy"),
        (["sum", "."], "error: . is a directory"),
        (["sum", "a.npy", "--arch", "volt"], "unknown architecture 'volt'. Did you mean 'volta'?"),
        (["sum", "a.npy", "--tile", "big"], "a shape is written '16x16x16'"),
        (["sum", "a.npy", "--algorithm", "reduction_265"], "Did you mean 'reduction_256'?"),
        (["sum", "a.npy", "--algorithm", "scan_k"], "'scan_k' is a scan, and this is a reduction"),
        (["sum", "a.npy", "--backend", "nump"], "unknown backend 'nump'. Did you mean 'numpy'?"),
        (["sum", "a.npy", "--dtype", "f17"], "error: dtype: data type 'f17' not understood"),
        (["sum", "a.npy", "--axis", "3"], "axis 3 is out of range for an array of 1 dimensions"),
        (["sum", "a.npy", "--member", "x"], "only an .npz file has members"),
        (["segmented-sum", "a.npy", "--segment-size", "0"], "must be at least 1, got 0"),
        (["segmented-sum", "a.npy", "--segment-size", "999"], "longer than the axis"),
        (["segmented-sum", "a.npy", "--offsets", "down.txt"], "offsets must not decrease"),
        (["segmented-sum", "a.npy", "--offsets", "half.txt"], "must be whole numbers, got 0.5"),
        (["segmented-sum", "a.npy", "--offsets", "far.txt"], "must be less than 2**63, got 1e+30"),
        (["sum", "wide.csv", "--input-type", "f16"], "1e+06 cannot become f16"),
        (["sum", "wide.csv", "--tile", "32x8x16"], "--input-type f16 or f32 casts them"),
        (["sum", "a.npy", "-o", "nowhere/x.npy"], "there is no directory"),
        (["sum", "a.npy", "-o", "x.xls"], "its name must end in .npy, .npz, .csv, .txt"),
    ],
)
def test_errors_write_nothing(folder: Path, arguments: list[str], message: str) -> None:
    Path("down.txt").write_text("0 5 3 256\n")
    Path("far.txt").write_text("0 1e30 256\n")
    Path("half.txt").write_text("0 0.5 256\n")
    Path("wide.csv").write_text("1,1e6\n")
    before = sorted(os.listdir())
    text = fails(1, "run", *arguments, *([] if "-o" in arguments else ["-o", "out.npy"]))
    assert text.startswith("error: ")
    assert message in text
    assert sorted(os.listdir()) == before


def test_the_output_is_checked_before_anything_is_computed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tcusim, "sum", lambda *_, **__: pytest.fail("computed"))
    assert "there is no directory" in fails(1, "run", "sum", "a.npy", "-o", "nowhere/x.npy")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["summ", "a.npy"], "unknown operation 'summ'. Did you mean 'sum'?"),
        (["sum", "a.npy", "--input-type", "f15"], "unknown type 'f15'. Did you mean 'f16'?"),
        (["sum", "a.npy", "--acc", "f61"], "unknown accumulator 'f61'"),
        (["segmented-sum", "a.npy"], "needs --segment-size N or --offsets FILE, one of them"),
        (["sum", "a.npy", "--segment-size", "4"], "did you mean segmented-sum?"),
        (["sum", "a.npy", "--exclusive"], "--exclusive is for scans"),
        (["sum", "a.npy", "--reverse"], "--reverse is for scans"),
        (["cumsum", "a.npy", "--exclusive", "--include-initial"], "choose one of them"),
        (["sum", "a.npy", "--axis", "x"], "'x' is not a valid integer"),
        (["sum"], "Missing argument 'INPUT'"),
    ],
)
def test_wrong_usage(folder: Path, arguments: list[str], message: str) -> None:
    assert message in fails(2, "run", *arguments)


def test_ctrl_c_leaves_nothing_half_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(tcusim, "sum", interrupt)
    text = fails(130, "run", "sum", "a.npy", "-o", "out.npy")
    assert text == "interrupted; nothing was written\n"
    assert os.listdir() == ["a.npy"]


def test_ctrl_c_in_a_process(folder: Path) -> None:
    code = """
import os, signal, time
import tcusim, tcusim.cli
signal.signal(signal.SIGINT, signal.default_int_handler)
tcusim.sum = lambda *_, **__: (os.kill(os.getpid(), signal.SIGINT), time.sleep(30))
from tcusim.cli.main import main
main(["run", "sum", "a.npy", "-o", "out.npy"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "interrupted; nothing was written\n")
    assert os.listdir() == ["a.npy"]


# --- list, listing and step -------------------------------------------------------------------


def test_list_has_every_table() -> None:
    text = succeeds("list")
    for word in ("reduction_256n", "32x8x16", "blackwell", "the simulator, on NumPy"):
        assert word in text
    assert not any(line.endswith(" ") for line in text.splitlines())


def test_list_as_json() -> None:
    tables = json.loads(succeeds("list", "shapes", "backends", "--json"))
    assert list(tables) == ["shapes", "backends"]
    first = tables["shapes"][0]
    assert (first["name"], first["instruction"], first["min sm"]) == ("16x16x16", "wmma", 70)
    assert first["types"] == "f16→f16, f16→f32"
    backend = next(row for row in tables["backends"] if row["name"] == "numpy")
    assert backend["available"] == "yes"


def test_list_refuses_another_word() -> None:
    text = fails(2, "list", "shape")
    assert "unknown table or name 'shape'. Did you mean 'shapes'? The tables are algo" in text


def test_list_tells_all_of_a_name() -> None:
    text = succeeds("list", "scan_256n", "V100")
    assert "paper      scan_256n" in text
    assert "      --form  How what precedes each row is found." in text
    assert "NVIDIA Volta" in text
    assert "reduction" not in text
    tables = json.loads(succeeds("list", "scan_tn", "--json"))
    assert [row["name"] for row in tables["algorithms"]] == ["scan_tn"]


def test_the_list_fits_a_terminal_of_80_columns() -> None:
    text = on_a_terminal([*COMMAND, "list", "algorithms"], b"", columns=80)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 60
    assert sum(line.split()[0] in NAMES for line in lines if line.strip()) == len(NAMES)


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


NAMES = [row.name for row in algorithms()]


@pytest.mark.parametrize("name", NAMES)
def test_every_algorithm_is_listed_by_default(name: str) -> None:
    assert succeeds("listing", name) == tcusim.listing(tcusim.build(name))


def test_every_option_of_every_algorithm_can_be_said() -> None:
    """Each is given the value that it has by default, and is in the help."""
    help_text = succeeds("listing", "--help")
    for row in algorithms():
        for name, known in row.options.items():
            option = f"--{name.replace('_', '-')}"
            assert f"  {option} " in help_text
            default = known.default
            if isinstance(default, bool):
                words = [option] if default else []
            elif isinstance(default, tuple):
                words = [option, ",".join(map(str, default))]
            else:
                words = [] if default is None else [option, str(default)]
            assert succeeds("listing", row.name, *words) == succeeds("listing", row.name)


def test_options_reach_the_builder() -> None:
    pairs: list[tuple[str, list[str], dict[str, Any]]] = [
        (
            "scan_single_pass",
            ["--tiles-per-row", "1", "--columns", "3"],
            {"tiles_per_row": 1, "columns": 3},
        ),
        ("reduction_ragged", ["--levels", "8,4"], {"levels": (8, 4)}),
        ("gemv_reduction", ["--no-staged", "--width", "2"], {"staged": False, "width": 2}),
        (
            "scan_panel",
            ["--items-per-warp", "2", "--accumulation-length", "1"],
            {"items_per_warp": 2, "accumulation_length": 1},
        ),
    ]
    for name, words, options in pairs:
        program = tcusim.build(name, **options)
        assert succeeds("listing", name, *words) == tcusim.listing(program) != ""


def test_step_tells_the_algorithms_option_from_its_own() -> None:
    options = ["--plain", "--width", "60", "--algorithm-width", "2", "--only", "mma"]
    text = succeeds("step", "gemv_reduction", *options)
    assert text.startswith(tcusim.listing(tcusim.build("gemv_reduction", width=2)))


def test_an_option_of_an_algorithm_that_somebody_registered() -> None:
    def mine(b: Builder, segment_size: int, *, turn_over: bool = False) -> int | Work:
        """Sum.

        Parameters
        ----------
        turn_over : bool
            Look at the other side. It is dark.
        """
        return reduce.reduction_kn(b, segment_size)

    register_algorithm(Algorithm(mine, "mine", "reduction", "here", "1"))
    assert "--turn-over" in succeeds("listing", "--help")
    assert "Look at the other side. For mine." in succeeds("listing", "--help")
    assert "program mine" in succeeds("listing", "mine", "--turn-over")


def test_a_tile_that_nobody_registered_means_itself(folder: Path) -> None:
    for name in ("listing", "step", "validate"):
        arguments = {"validate": ["4x2x8", "scan_k"]}.get(name, ["scan_k", "--tile", "4x2x8"])
        assert "4x2x8" in succeeds(name, *arguments)
    text = succeeds("run", "segmented-sum", "--segment-size", "64", "--tile", "4x2x8", "a.npy")
    assert "tile 4x2x8" in text
    assert "none: equal to NumPy's float64" in text
    assert "4x2x8" in fails(1, "emit", "scan_k", "--tile", "4x2x8")


@pytest.mark.parametrize("command", list(_COMMANDS))
def test_every_example_of_a_help_works(folder: Path, command: str) -> None:
    np.save("data.npy", (np.arange(512) % 5).astype(np.float16))
    np.savez("archive.npz", elevation=np.ones((3, 20), np.float16), other=np.ones(1))
    Path("data.csv").write_text("1,2,3,4\n")
    Path("rows.txt").write_text("0 1 4\n")
    epilog = str(_COMMANDS[command].epilog)
    examples = [line.split("|")[0] for line in epilog.splitlines() if line.startswith("  tcusim ")]
    assert len(examples) >= 3
    for line in examples:
        words = shlex.split(line)[1:]
        assert words[0] == command
        if command in ("agree", "validate") and "--case" not in words:
            # These take minutes: their options are read only.
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
            ["reduction_single_pass", "--per-warp", "0"],
            "--per-warp must be an integer of at least 1",
        ),
        (["scan_k", "--segment-size", "17"], "scan_k scans segments of at most k = 16 elements"),
    ],
)
def test_listing_errors(arguments: list[str], message: str) -> None:
    assert message in fails(1, "listing", *arguments)


def test_choices_are_checked_and_shown() -> None:
    text = succeeds("listing", "--help")
    for choices in ("--side [a|b]", "--combine [mma|add]", "--form [(LA)1|L(A1)|[U|1]]"):
        assert choices in text
    assert "unknown combine 'ad'. Did you mean 'add'?" in fails(
        2, "listing", "scan_k", "--combine", "ad"
    )


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


def test_step_errors() -> None:
    assert "unknown kind of step 'mam'. Did you mean 'mma'?" in fails(
        2, "step", "scan_16", "--only", "mam"
    )
    assert "there is no warp 9; the grid has warps 0 to 0" in fails_after(
        "step", "scan_16", "--warp", "9"
    )
    assert "scan_16 has no step '9.9'" in fails(1, "step", "scan_16", "--from", "9.9")
    assert "--member needs --input" in fails(2, "step", "scan_16", "--member", "x")


def test_step_can_show_every_kind_of_step() -> None:
    leaves = [step.__name__.lower() for step in get_args(Step) if step not in (Loop, When)]
    assert len(leaves) >= 11
    for kind in leaves:
        succeeds("step", "scan_16", "--only", kind)
    options = ["--tiles-per-row", "1", "--batches", "1", "--columns", "2", "--plain"]
    assert "\nstep " in succeeds("step", "scan_single_pass", *options, "--only", "publish")
    assert "writes dst: piece" in succeeds("step", "scan_ragged", "--only", "locate", "--plain")


def test_step_on_a_terminal_waits_for_keys() -> None:
    text = on_a_terminal([*COMMAND, "step", "reduction_16"], b"\n4\nq\n")
    assert "▶ 1" in text
    assert "▶ 2" in text
    assert "▶ 4" in text
    assert "▶ 5" not in text
    assert "Enter: next" in text


def on_a_terminal(command: list[str], keys: bytes, columns: int = 140) -> str:
    """Run a command on a terminal of its own; return what it shows."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": str(columns), "PYTHONUTF8": "1"}
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, close_fds=True
    )
    os.close(theirs)
    os.write(ours, keys)
    shown = b""
    # Linux reports a terminal that the other side has closed as an error.
    with contextlib.suppress(OSError):
        while piece := os.read(ours, 4096):
            shown += piece
    os.close(ours)
    assert process.wait(30) == 0, shown.decode()
    return shown.decode()


# --- The command itself -----------------------------------------------------------------------


@pytest.mark.parametrize("words", [["list"], ["listing", "scan_k"], ["emit", "scan_k"]])
def test_a_full_disk_is_a_sentence(words: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([*COMMAND, *words], stdout=full, stderr=subprocess.PIPE, check=False)
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


@pytest.mark.parametrize("group", ["shapes", "arches", "algorithms", "backends"])
@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_package_is_named_and_the_list_is_printed(
    group: str, fault: str, declare: Callable[..., None]
) -> None:
    code, reason = BROKEN[fault]
    declare(f"[tcusim.{group}]\nthing = toy_package:THING\n", code)
    result = tcusim_command("list")
    assert result.exit_code == 0, result.output
    for word in ("reduction_256n", "32x8x16", "blackwell", "the simulator, on NumPy"):
        assert word in result.stdout
    assert "toy-package 1.0" in result.stderr
    assert reason in result.stderr


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


def test_the_library_imports_neither_click_nor_rich() -> None:
    code = "import sys, tcusim; print([n for n in ('click', 'rich') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_help_imports_no_more_than_it_needs() -> None:
    code = """
import sys
from tcusim.cli.main import main
main(["--help"], standalone_mode=False)
heavy = ("rich", "tcusim_cuda", "tcusim_host", "cupy", "pycuda", "torch")
print([name for name in heavy if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("\n[]\n")
