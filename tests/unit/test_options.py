"""The options of `build`, and of every algorithm, on the command line."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcusim
from command_line import fails, succeeds, tcusim_command
from some import marked
from tcusim.algorithms import Algorithm, algorithms, reduce, register_algorithm
from tcusim.algorithms.builder import Builder, Work
from tcusim.machine import usual_types


def test_every_option_of_every_algorithm_can_be_said() -> None:
    """Each is given the value that it has by default, and is described."""
    for row in algorithms():
        described = succeeds("list", row.name)
        for name, known in row.options.items():
            option = f"--{name.replace('_', '-')}"
            assert f"  {option} " in described
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
            ["--batches", "16", "--columns", "3"],
            {"batches": 16, "columns": 3},
        ),
        ("reduction_ragged", ["--levels", "8,4"], {"levels": (8, 4)}),
        ("gemv_reduction", ["--share-rows", "--width", "2"], {"share_rows": True, "width": 2}),
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
    assert "--turn-over  Look at the other side. It is dark." in succeeds("list", "mine")
    assert "program mine" in succeeds("listing", "mine", "--turn-over")


def test_a_tile_that_nobody_registered_means_itself(folder: Path) -> None:
    for name in ("listing", "step", "emit", "validate"):
        arguments = {"validate": ["4x2x8", "scan_k"]}.get(name, ["scan_k", "--tile", "4x2x8"])
        assert "4x2x8" in succeeds(name, *arguments)
    text = succeeds("run", "segmented-sum", "--segment-size", "64", "--tile", "4x2x8", "a.npy")
    assert "tile 4x2x8" in text
    assert "none: equal to NumPy's float64" in text


def test_choices_are_shown() -> None:
    text = succeeds("list", "scan_t")
    for choices in ("One of a, b.", "One of mma, add.", '"[U|1]" gets'):
        assert choices in text


def test_the_help_of_a_program_fits_on_two_screens() -> None:
    for name in ("listing", "step", "emit", "cost"):
        text = succeeds(name, "--help")
        assert len(text.splitlines()) <= 48
        assert "`tcusim list NAME` describes them" in " ".join(text.split())
    assert "--width is --algorithm-width here" in " ".join(succeeds("step", "--help").split())


def test_choices_are_checked() -> None:
    assert "unknown combine 'ad'. Did you mean 'add'?" in fails(
        2, "listing", "scan_k", "--combine", "ad"
    )


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("run sum 1,2 --input-type f32 --acc f16", "--acc f16 is for float16 input, not float32"),
        (
            "run sum 1,2 --input-type f16 --acc f16 --bits exact",
            "--acc f16 rounds after every product, --bits exact once; choose one",
        ),
        ("run segmented-sum 1,2 --segment-size 0", "--segment-size must be at least 1, got 0"),
        ("run sum 1,2 --axis 3", "--axis 3 is out of range for an array of 1 dimensions"),
        ("run sum 1,2 --dtype complex64", "--dtype must be a real number type, got complex64"),
        (
            "run cumsum 1,2 --initial 3 --algorithm scan_tn --input-type f16",
            "--initial has launches of its own, and --algorithm scan_tn is another. Leave "
            "--algorithm out",
        ),
        (
            "run cumsum 1,2 --initial 3 --include-initial",
            "--include-initial begins each segment with 0, and --initial with another value: leave "
            "one of them out. --exclusive begins each segment with its initial value",
        ),
        (
            "listing scan_t --ab bf16 --source f32 --combine mma",
            "a f32 tile is several bf16 parts, which --combine mma cannot scan; use --combine add",
        ),
        (
            "cost gemm --down 2 --algorithm-inner 0 --algorithm-cols 16",
            "--algorithm-inner must be an integer of at least 1, got 0",
        ),
        ("step gemm --warps 6 --warps-down 4", "--warps-down must divide the number of warps"),
        (
            "step reduction_k --input 1,2",
            "reduction_k: length = 2 is not a multiple of 256, the elements that one block takes. "
            "Build it with --masked, or pad the input.",
        ),
        (
            "explain --a 1 --b 1 --ab bf16 --arch volta",
            "volta (NVIDIA Volta), --ab bf16, --acc f32: Volta tensor cores have no bf16 (sm_80 is "
            "the first); use --arch ampere",
        ),
        (
            "layout 16x16x16 --operand a --arch cdna3",
            "there are maps of NVIDIA's GPUs alone, none of cdna3 (AMD CDNA 3); take --arch hopper",
        ),
    ],
)
def test_errors_name_options_as_the_command_does(words: str, text: str) -> None:
    """In Python, each of these names a keyword, or an option of `tcusim.Options`."""
    assert text in fails(1, *words.split())


# --- The arithmetic -----------------------------------------------------------------------------

ONES = ("--a", "1,1", "--b", "1,1")
COARSE = 'tiles = ["8x24x12", "32x8x12"]\nfraction_bits = 3\n'


@pytest.fixture
def coarse(tmp_path: Path) -> str:
    """Return the file of a unit that keeps three fraction bits, and has tiles of its own."""
    path = tmp_path / "coarse.toml"
    path.write_text(COARSE)
    return str(path)


def summary_of(*words: str, folder: str) -> dict[str, Any]:
    """Return the command's output for a sum of 1 and 2**-4."""
    path = Path(folder).parent / "in.txt"
    path.write_text("1\n0.0625\n")
    text = succeeds("run", "sum", str(path), "--input-type", "f16", "--json", *words)
    summary: dict[str, Any] = json.loads(text)
    return summary


def test_the_unit_of_a_file_computes_with_its_own_tile(coarse: str) -> None:
    summary = summary_of("--unit", coarse, folder=coarse)
    assert (summary["arch"], summary["result"]) == ("coarse", 1.0)
    assert summary["programs"][0]["tile"] == "8x24x12"
    other = summary_of("--unit", coarse, "--tile", "32x8x12", folder=coarse)
    assert other["programs"][0]["tile"] == "32x8x12"
    refused = fails(1, "step", "scan_t", "--unit", coarse, "--tile", "16x16x16")
    assert (
        "error: the unit coarse has no tile 16x16x16; its tiles: 8x24x12, 32x8x12. Add" in refused
    )


def test_an_invented_unit_in_a_few_words(coarse: str) -> None:
    results = [
        summary_of("--fraction-bits", bits, *more, folder=coarse)["result"]
        for bits, more in (("3", []), ("4", []), ("3", ["--fused-length", "1"]))
    ]
    assert results == [1.0, 1.0625, 1.0]
    nearest = ["--fraction-bits", "3", "--output-rounding", "rne"]
    assert summary_of(*nearest, folder=coarse)["arch"] == "fused-16-3-rne"
    told = succeeds("explain", "--a", "1,1", "--b", "1,0.0625", "--fraction-bits", "3")
    assert "up to 16 products a step" in told
    assert "Hopper" not in told


def test_units_beside_architectures(coarse: str) -> None:
    words = ("--a", "1,1", "--b", "1,0.0625", "--unit", coarse, "--arch", "volta", "--unit", "h200")
    told = json.loads(succeeds("explain", *words, "--json"))
    assert [one["arch"] for one in told["accounts"]] == ["volta", "coarse", "hopper"]


def test_a_program_is_built_for_the_tile_of_the_unit(coarse: str) -> None:
    text = succeeds("step", "reduction_k", "--unit", coarse, "--plain", "--only", "mma")
    assert "8x24x12, f16 to f32" in text
    assert "right" in succeeds("validate", "8x24x12", "reduction_k", "--unit", coarse)
    agreed = succeeds("agree", "reduction_k", "--unit", "h200", "--tile", "16x16x16", "--jobs", "1")
    assert "host and the simulator (h200)" in agreed


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--arch", "volta", "--unit", "h200"], "volta and h200 are two; this command takes one"),
        (
            ["--fused-length", "8"],
            "--fused-length is of an invented unit; it needs --fraction-bits",
        ),
        (["--output-rounding", "rz"], "--output-rounding is of an invented unit; it needs"),
    ],
)
def test_words_that_do_not_go_together(words: list[str], message: str) -> None:
    assert message in fails(2, "validate", "16x16x16", *words)


def test_units_that_are_refused(tmp_path: Path) -> None:
    assert "error: Fused.fraction_bits must be" in fails(
        1, "explain", *ONES, "--fraction-bits", "0"
    )
    assert "error: unknown unit or architecture 'x'" in fails(1, "explain", *ONES, "--unit", "x")
    (tmp_path / "bad.toml").write_text("tiles = 3")
    bad = fails(1, "explain", *ONES, "--unit", str(tmp_path / "bad.toml"))
    assert "error: bad.toml: tiles must be a text or a list of texts, got 3" in bad
    saved = ["--load", "a.trace", "--fraction-bits", "3"]
    assert "--fraction-bits does not go with --load" in fails(2, "step", *saved)


OF_THEIR_OWN_TYPES = {
    "whole": 'tiles = "8x8x8"\nab = "s8"\nkind = "integer"\n',
    "bytes": 'tiles = "8x8x8"\nab = ["e4m3", "e5m2"]\nkind = "exact"\n',
    "fives": 'tiles = "8x8x8"\nab = "e5m2"\nfraction_bits = 20\n',
    "double": 'tiles = "8x8x4"\nab = "f64"\nacc = "f64"\nkind = "sequential"\n',
    "brain": 'tiles = "8x8x8"\nab = "bf16"\nkind = "sequential"\n',
    "halves": 'tiles = "8x8x8"\nacc = "f16"\nkind = "sequential"\n',
}
COMMANDS = {
    "step": ("reduction_k", "--plain", "--only", "mma"),
    "cost": ("reduction_k", "--length", "4096"),
    "explain": ("--a", "1,1", "--b", "1,2"),
    "explore": ("--algorithm", "reduction_k", "--length", "64", "--jobs", "1"),
    "cost sum": ("--length", "1000"),
    "run sum": ("{array}",),
    "run segmented-cumsum": ("{array}", "--segment-size", "8"),
    "agree": ("reduction_k", "--backend", "numpy", "--jobs", "1"),
    "validate": ("reduction_k", "--section", "counts", "--section", "time", "--jobs", "1"),
}
# Calls that take a unit in another role than the computing one.
BESIDE = {
    "validate": ("4x4x4", "reduction_k", "--section", "time", "--like", "{unit}", "--jobs", "1"),
    "explore": ("--tile", "4x4x4", "--algorithm", "reduction_k", "--like", "{unit}", "--jobs", "1"),
    "list": ("{unit}",),
    "unit": ("-", "--like", "{unit}"),
}


@pytest.mark.parametrize(
    ("name", "command"), marked([*itertools.product(OF_THEIR_OWN_TYPES, COMMANDS)], 4)
)
def test_every_command_takes_the_types_that_a_unit_has(
    name: str, command: str, tmp_path: Path
) -> None:
    """A unit without f16 in f32 is used with its own types; or a sentence names the remedy."""
    unit, array = tmp_path / f"{name}.toml", tmp_path / "x.npy"
    unit.write_text(OF_THEIR_OWN_TYPES[name])
    np.save(array, np.arange(40.0) % 7)
    given = [word.format(array=array) for word in COMMANDS[command]]
    words = [*command.split(), *given, "--unit", str(unit)]
    if name in ("bytes", "fives") and command in ("cost sum", "run sum", "run segmented-cumsum"):
        said = fails(1, *words)
        own = "e4m3, e5m2" if name == "bytes" else "e5m2"
        assert f"takes {own}, and functions on arrays take f16, bf16" in said
        assert "Name an algorithm, such as reduction_tn" in said
        return
    if (name, command) == ("whole", "run sum"):
        assert "equal to NumPy's float64" in succeeds(*words)
    assert tcusim_command(*words).exit_code == 0


@pytest.mark.parametrize(
    ("name", "command"), marked([*itertools.product(OF_THEIR_OWN_TYPES, BESIDE)], 5)
)
def test_a_unit_of_odd_types_lends_what_it_has(name: str, command: str, tmp_path: Path) -> None:
    unit = tmp_path / f"{name}.toml"
    unit.write_text(OF_THEIR_OWN_TYPES[name])
    result = tcusim_command(command, *(word.format(unit=unit) for word in BESIDE[command]))
    assert result.exit_code == 0, result.output
    if command == "validate":
        assert f"nothing is taken from {name}: it has no latency and interval of" in result.stdout
    if command == "explore" and name == "brain":
        assert "bf16→f32" in result.stdout


def test_functions_take_the_types_that_a_unit_has(tmp_path: Path) -> None:
    for name, text in OF_THEIR_OWN_TYPES.items():
        path = tmp_path / f"{name}.toml"
        path.write_text(text)
        unit = tcusim.unit_of(path)
        rule = unit.arch.rows[0]
        d = tcusim.mma(np.ones((2, 3)), np.ones((3, 2)), arch=unit.name)
        assert d.dtype == tcusim.machine.format_of(rule.acc).dtype
        assert (d == 3).all()
        assert len(tcusim.explain([1, 1], [1, 1], arch=unit.name).accounts) == 1
        assert usual_types(unit.arch) == (rule.ab, rule.acc)
