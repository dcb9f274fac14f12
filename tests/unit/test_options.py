"""The options of `build`, and of every algorithm, on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tcusim
from command_line import fails, succeeds
from tcusim.algorithms import Algorithm, algorithms, reduce, register_algorithm
from tcusim.algorithms.builder import Builder, Work


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
            ["--groups", "2", "--columns", "3"],
            {"groups": 2, "columns": 3},
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


def test_choices_are_checked_and_shown() -> None:
    text = succeeds("listing", "--help")
    for choices in ("--side [a|b]", "--combine [mma|add]", "--form [(LA)1|L(A1)|[U|1]]"):
        assert choices in text
    assert "unknown combine 'ad'. Did you mean 'add'?" in fails(
        2, "listing", "scan_k", "--combine", "ad"
    )
