"""`tcusim agree`: its output, files, refusals and exit codes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from command_line import tcusim_command
from tcusim.backends import get_backend, register_backend
from tcusim.errors import Unsupported
from tcusim.program.launches import LaunchPlan


class Fake:
    """The simulator under another name; some algorithms go wrong."""

    name = "fake"
    title = "a backend for tests"

    def available(self) -> str | None:
        return None

    def run(self, plan: LaunchPlan, inputs: Mapping[str, Any], **options: Any) -> dict[str, Any]:
        name = plan.launches[0].program.name
        if name == "reduction_t":
            raise Unsupported(f"{name}: not today. Come tomorrow")
        if name == "scan_t":
            raise ZeroDivisionError("by chance")
        outputs = get_backend("numpy").run(plan, inputs, **options)
        if name == "scan_k":
            outputs["out"].view(f"u{outputs['out'].itemsize}")[:1] ^= 1
        return outputs


@pytest.fixture(autouse=True)
def fake(registries: None) -> None:
    register_backend(Fake())


def agree(code: int, *arguments: str) -> str:
    result = tcusim_command("agree", "--backend", "fake", "--jobs", "1", *arguments)
    assert result.exit_code == code, result.output
    return str(result.stdout)


def test_the_table() -> None:
    text = agree(0, "reduction_k", "scan_kn", "--tile", "32x8x16", "--tile", "16x16x8")
    lines = text.splitlines()
    assert lines[0].split() == ["32x8x16", "32x8x16", "32x8x16", "16x16x8", "32x8x16"]
    rows = {line.split()[0]: line.split()[1:] for line in lines if line.strip()}
    assert rows["reduction_k"] == ["2", "ok"] * 5
    assert rows["scan_kn"] == ["2", "ok"] * 5
    assert lines[-1].startswith("fake and the simulator (hopper): 20 cases, ")
    assert " 0 differ, 0 cases failed; " in lines[-1]


def test_a_mismatch_gives_exit_code_1_and_a_command() -> None:
    text = agree(1, "scan_k", "--tile", "32x8x16")
    assert "DIFFER" in text
    assert "elements of 'out' differ, first [0]: 0x" in text
    found = [line.strip() for line in text.splitlines() if "--case" in line]
    head, case = found[0].split(" --case ")
    assert head == "tcusim agree --backend fake --arch hopper"
    shown = tcusim_command("agree", "--backend", "fake", "--case", case.strip("'"))
    assert shown.exit_code == 1
    assert "scan_k: numpy and fake disagree" in shown.stderr
    assert "was written by warp 0 of block 0, at step" in shown.stderr


def test_what_does_not_run_is_told() -> None:
    text = agree(1, "reduction_t", "--tile", "32x8x16")
    assert "not run, 4: not today" in text
    assert "nothing was compared" in text
    text = agree(1, "scan_t", "--tile", "32x8x16")
    assert "8 cases failed" in text
    assert "ZeroDivisionError: by chance" in text


def test_json_and_files(tmp_path: Path) -> None:
    arguments = ("reduction_k", "scan_k", "--tile", "16x8x16", "--json")
    answer = json.loads(agree(1, *arguments))
    assert (answer["backend"], answer["arch"], answer["cases"]) == ("fake", "hopper", 12)
    # Of six cases of scan_k, one has no elements that could differ.
    assert answer["differ"] == 5
    assert len(answer["problems"]) == 5
    assert sum(cell["outputs"] for cell in answer["cells"]) == answer["outputs"]
    path = tmp_path / "a.json"
    agree(1, *arguments, "-o", str(path))
    again = json.loads(path.read_text())
    assert again | {"seconds": 0} == answer | {"seconds": 0}
    plain = tmp_path / "a.txt"
    agree(0, "reduction_k", "-o", str(plain), "--tile", "16x8x16")
    first, *lines = plain.read_text().splitlines()
    assert first.split() == ["16x8x16"] * 3
    assert "reduction_k             2 ok     2 ok      2 ok" in lines
    result = tcusim_command("agree", "-o", str(tmp_path / "no" / "file"))
    assert (result.exit_code, result.stdout) == (1, "")
    assert "there is no directory" in result.stderr


def test_no_time() -> None:
    assert "not run, 3: the time was up" in agree(
        1, "reduction_k", "--tile", "16x8x16", "--seconds", "0"
    )


def test_the_full_grid_of_one_cell() -> None:
    text = agree(0, "reduction_ragged_simt", "--tile", "8x8x4", "--full")
    assert "fake and the simulator (hopper): 35 cases, " in text


def test_unknown_names() -> None:
    for arguments, text in (
        (["scan_x"], "unknown algorithm 'scan_x'"),
        (["--backend", "cuppy"], "unknown backend 'cuppy'. Did you mean 'cupy'?"),
        (["--case", "scan_k colour=red"], "a case of scan_k has no 'colour'; it has tile,"),
        (["--case", "scan_k length=many"], "length must be a whole number, got 'many'"),
        (["--case", "scan_k ragged"], "a case is ALGORITHM NAME=VALUE ..., got 'ragged'"),
    ):
        result = tcusim_command("agree", *arguments)
        assert result.exit_code == 1
        assert text in result.stderr


@pytest.mark.parametrize(
    ("length", "text"),
    [
        ("9" * 14, "needs about 5,821 TiB of memory, and"),
        ("9" * 20, "length must have at most 19 digits, got 20"),
    ],
)
def test_a_case_that_does_not_fit_in_memory(length: str, text: str) -> None:
    result = tcusim_command(
        "agree", "--backend", "fake", "--case", f"scan_k masked=1 length={length}"
    )
    assert (result.exit_code, result.stdout) == (1, "")
    assert text in result.stderr
