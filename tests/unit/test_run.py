"""`tcusim run`: its results, output, refusals and exit codes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcusim
from command_line import fails, succeeds


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
    Path("ids.txt").write_text("0 2 2\n")
    by_ids = [*arguments[:3], "--segment-ids", "ids.txt", "--num-segments", "4", "--json"]
    answer = json.loads(succeeds("run", "segmented-sum", *by_ids))
    assert answer["result"] == [[0.0, 0.0, 3.0, 0.0], [3.0, 0.0, 9.0, 0.0]]
    assert answer["error"]["max_absolute"] == 0
    Path("ids.txt").write_text("2 0 2\n")
    answer = json.loads(succeeds("run", "segmented-cumsum", *by_ids, "--sort"))
    assert answer["result"] == [[0.0, 1.0, 2.0], [3.0, 4.0, 8.0]]
    assert answer["error"]["max_absolute"] == 0
    assert "sort the elements by them first, or give --sort" in fails(
        1, "run", "segmented-sum", *by_ids
    )
    succeeds("run", "segmented-cumsum", *arguments, "--exclusive", "--axis", "1")
    assert Path("out.csv").read_text() == "0.0,0.0,1.0\n0.0,0.0,4.0\n"


def test_an_initial_value(folder: Path) -> None:
    np.save("ints.npy", np.arange(4))
    for given, expected in (("2", 2), (str(2**60 + 1), 2**60 + 1), ("-0.5", -0.5)):
        options = ["--dtype", "float64"] if given == "-0.5" else []
        answer = json.loads(
            succeeds("run", "cumsum", "ints.npy", "--initial", given, "--json", *options)
        )
        assert answer["result"] == [expected, expected + 1, expected + 3, expected + 6]
        assert answer["error"]["max_absolute"] == 0


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


def test_bits_are_exact_where_asked(folder: Path) -> None:
    np.save("tie.npy", np.array([2048, 1, 2.0**-24], np.float16))
    answers = [
        json.loads(succeeds("run", "sum", "tie.npy", "--json", "--bits", bits))
        for bits in ("segment", "exact")
    ]
    assert [(one["bits"], one["result"]) for one in answers] == [
        ("segment", 2048.0),
        ("exact", 2050.0),
    ]
    message = fails(1, "run", "sum", "tie.npy", "--bits", "exact", "--acc", "f16")
    assert "--acc f16 rounds after every product, --bits exact once" in message


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
        (
            ["segmented-sum", "a.npy", "--segment-ids", "down.txt"],
            "ids must be 256 integers, one for each element of the axis; there are 4",
        ),
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


def test_numbers_stand_for_a_file() -> None:
    text = succeeds("run", "segmented-sum", "1,2.5,4", "--offsets", "0,2,3", "--input-type", "f16")
    assert "[3.5 4. ]" in text
    assert "reads a: A" in succeeds(
        *("step", "scan_k", "--tile", "4x4x4", "--masked", "--input", "1,2,3", "--plain"),
        *("--only", "mma"),
    )
    assert "there is no file 1,x" in fails(1, "run", "sum", "1,x")
    assert "there is no file 1,2" in fails(1, "run", "sum", "1,2", "--member", "x")


@pytest.mark.parametrize("name", ["matmul", "matvec"])
def test_products_are_told_where_they_are(name: str) -> None:
    text = fails(2, "run", name, "a.npy", "b.npy")
    assert f"{name} takes two arrays, and this command one. In Python: tcusim.{name}(a, b)" in text


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
        (["segmented-sum", "a.npy"], "needs --segment-size N, --offsets FILE or --segment-i"),
        (["sum", "a.npy", "--segment-size", "4"], "did you mean segmented-sum?"),
        *(
            ([*words, "a.npy", "--num-segments", number], "--num-segments goes with --segment-ids")
            for words in (["sum"], ["cumsum"], ["segmented-sum", "--segment-size", "2"])
            for number in "03"
        ),
        (["sum", "a.npy", "--sort"], "--sort goes with --segment-ids"),
        (["sum", "a.npy", "--exclusive"], "--exclusive is for scans"),
        (["sum", "a.npy", "--reverse"], "--reverse is for scans"),
        (["sum", "a.npy", "--initial", "0"], "--initial is for scans"),
        (["cumsum", "a.npy", "--initial", "x"], "'x' is no number"),
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
import signal
import tcusim, tcusim.cli
signal.signal(signal.SIGINT, signal.default_int_handler)
tcusim.sum = lambda *_, **__: signal.raise_signal(signal.SIGINT)
from tcusim.cli.main import main
main(["run", "sum", "a.npy", "-o", "out.npy"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "interrupted; nothing was written\n")
    assert os.listdir() == ["a.npy"]
