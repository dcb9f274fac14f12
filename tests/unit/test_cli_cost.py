"""tcusim cost: its output, files and refusals."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from command_line import succeeds, tcusim_command
from tcusim.judge.cost import model
from tcusim.judge.cost.predicted import time_text

# Figures of a unit without those that a time needs.
FIGURES = {"clock": 1.53e9, "cores": 80, "units_per_core": 4}


def test_the_command_tells_time_bound_and_parts() -> None:
    done = tcusim_command("cost", "segmented-sum", "--length", "2**28", "--segment-size", "100")
    assert done.exit_code == 0, done.output
    assert "on h200: " in done.output
    for word in ("bound by", "matrix units", "reduction_panel: ", "registers a thread (estimated)"):
        assert word in done.output
    given = ("--segment-size", "4096", "--length", "1e6", "--masked", "--json")
    told = json.loads(tcusim_command("cost", "reduction_tn", *given).output)
    assert told["unit"] == "h200"
    assert told["launches"][0]["work"]["mma"] > 0
    assert set(told["parts"]) == set(model.RESOURCES)


def test_the_command_names_what_is_unknown() -> None:
    done = tcusim_command("cost", "cumsum", "--length", "1e6", "--unit", "l4")
    assert "the time is unknown" in done.output
    assert "the unit does not say: " in done.output


def test_the_command_sweeps_segments(tmp_path: Path) -> None:
    page = tmp_path / "roofs.html"
    done = tcusim_command(
        "cost", "segmented-cumsum", "--length", "2**26", "--sweep", "--html", str(page)
    )
    assert done.exit_code == 0, done.output
    assert "bound by memory: segments of 16 to " in done.output
    assert "<svg" in page.read_text()
    told = json.loads(
        tcusim_command("cost", "segmented-sum", "--length", "2**20", "--sweep", "--json").output
    )
    assert [row["segment_size"] for row in told["sizes"]] == [2**n for n in range(4, 21, 2)]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("sum",), "sum needs --length N"),
        (("segmented-sum", "--length", "10"), "segmented-sum needs --segment-size N"),
        (("matmul", "--rows", "4"), "matmul needs --inner N"),
        (("sum", "--length", "many"), "'many' is no number; write 1048576, 1e6 or 2**20"),
        (("sum", "--length", "nan"), "'nan' is no number"),
        (("sum", "--length", "0**-1"), "'0**-1' is no number"),
        *(
            ((*what, "--length", size), f"{size} is more than 2**48")
            for what in (("sum",), ("reduction_tn", "--segment-size", "1024"))
            for size in ("2**9999999", "9**999999999", "1e300", "inf", "1e999", "2**49")
        ),
        (
            ("segmented-sum", "--length", "10", "--segment-size", "-3"),
            "--segment-size must be at least 1, got -3",
        ),
        (("scan_t", "--length", "10", "--warps", "2.5"), "2.5 is not a whole number"),
        (("sum", "--length", "1.5"), "1.5 is not a whole number above zero"),
        (("sum", "--length", "10", "--sweep"), "--sweep is of segmented-sum"),
        (("sum", "--length", "10", "--html", "x.html"), "--html goes with --sweep, whose"),
        (
            ("segmented-sum", "--length", "99", "--sweep", "--segment-size", "7"),
            "--sweep takes sizes of its own; leave --segment-size out",
        ),
        (("scan_t",), "scan_t needs --length N"),
        (("gemm", "--down", "2", "--carry"), "own options: --algorithm-cols, --algorithm-inner, "),
        (("scan_t", "--length", "256", "--rows", "7"), "--rows is of matmul and matvec; scan_t is"),
        (("reduction_k", "--length", "10", "--input-type", "f16"), "are of operations; say --ab"),
        (
            ("sum", "--length", "10", "--segment-size", "2"),
            "--segment-size is of segmented-sum and",
        ),
        (("sum", "--length", "10", "--rows", "2"), "--rows is not of sum"),
        (("cumsum", "--length", "10", "--warps", "4"), "--warps is of algorithms; cumsum has none"),
        (
            ("matvec", "--rows", "4", "--inner", "4", "--cols", "4"),
            "--cols is of matmul; the vector",
        ),
        (
            ("gemm", "--length", "64", "--algorithm-inner", "16", "--algorithm-cols", "16"),
            "gemm has several inputs, a and b, and its options do not give their sizes. Name the "
            "operation, as in: tcusim cost matmul --rows",
        ),
        (("reduction_ragged_simt", "--length", "9"), "as in: tcusim cost segmented-sum --length"),
        (("scan_ragged", "--length", "512"), "as in: tcusim cost segmented-cumsum --length 2**20"),
        (("reduction_q", "--length", "10"), "unknown algorithm 'reduction_q'"),
    ],
)
def test_wrong_usage_is_a_sentence(arguments: tuple[str, ...], said: str) -> None:
    done = tcusim_command("cost", *arguments)
    assert done.exit_code != 0
    assert said in done.stderr


def test_a_unit_brings_its_tile_and_its_arithmetic(tmp_path: Path) -> None:
    path = tmp_path / "tall.toml"
    path.write_text('tiles = "64x8x16"\nfraction_bits = 20\n')
    done = tcusim_command("cost", "sum", "--length", "1e6", "--unit", str(path))
    assert "latency of 64x8x16 f16 -> f32" in done.output
    refused = tcusim_command(
        "cost", "sum", "--length", "1e6", "--unit", "amx", "--input-type", "f16"
    )
    assert "this architecture takes s8, u8" in refused.stderr
    assert refused.exit_code == 1


def test_a_tile_that_the_unit_lacks_is_refused_without_an_option_that_cost_lacks() -> None:
    said = tcusim_command("cost", "sum", "--length", "2**20", "--tile", "8x48x12").stderr
    assert "the unit h200 has no tile 8x48x12" in said
    assert "A unit of your own may have it; to write one: tcusim unit FILE" in said
    assert "--arch" not in said
    said = tcusim_command("step", "scan_t", "--unit", "h200", "--tile", "8x48x12").stderr
    assert "For its arithmetic alone: --arch hopper." in said


def test_products_are_told_beside_the_peak_and_its_clock(tmp_path: Path) -> None:
    """The V100's 640 tensor cores do 64 multiply-adds a cycle each: 125 TFLOP/s."""
    words = ("matmul", "--rows", "8192", "--inner", "8192", "--cols", "8192", "--unit")
    known = "125.3 TFLOP/s of f16 to f32 at 1,530 MHz (NVIDIA V100 data sheet, boost clock)"
    assert f" of the {known}" in succeeds("cost", *words, "v100")
    untimed = tmp_path / "untimed.toml"
    given = "".join(f"{name} = {value}\n" for name, value in FIGURES.items())
    head = 'arch = "volta"\ntiles = "16x16x16"\n'
    tile = '[[instructions]]\nacc = "f32"\ninterval = 32\n'
    untimed.write_text(f"{head}{tile}[figures]\n{given}")
    said = "matrix units: at most 125.3 TFLOP/s of f16 to f32 at 1,530 MHz"
    assert said in succeeds("cost", *words, str(untimed))
    text = succeeds("cost", *words, "h200")
    found = re.search(r"matrix units: (\S+) TFLOP/s, (\S+)% of the (\S+) TFLOP/s of f16 to f", text)
    assert found is not None
    rate, share, peak = (float(one.replace(",", "")) for one in found.groups())
    assert share == pytest.approx(100 * rate / peak, rel=0.01)
    time = re.search(r" on h200: (\S+) ms, ", text)
    assert time is not None
    assert rate == pytest.approx(2 * 8192**3 / float(time[1]) / 1e9, rel=0.01)
    whole = ("matmul", "--rows", "64", "--inner", "64", "--cols", "64", "--input-type", "s8")
    assert "TOP/s of s8 to s32 at" in succeeds("cost", *whole, "--unit", "h200")


def test_times_are_told_in_a_unit_that_suits_them() -> None:
    times = (1.5, 2.166e-2, 5e-4, 3.156e-6, 2.22e-9, 0.0)
    assert [time_text(one) for one in times] == [
        *("1.5 s", "21.66 ms", "500 us", "3.156 us", "2.22 ns", "0 ns")
    ]


@pytest.mark.parametrize("size", ["64", "2**6", "6.4e1"])
def test_sizes_are_written_as_powers_too(size: str) -> None:
    words = ("segmented-sum", "--segment-size", size)
    assert "in segments of 64 " in succeeds("cost", *words, "--length", "2**20")
    assert "result         float64 1" in succeeds("run", *words, ",".join("1" * 64))
    assert "64" in succeeds("listing", "reduction_t", "--segment-size", size)
