"""`tcusim agree` and `tcusim emit`: what they print, write and refuse, and their exit codes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click.testing
import pytest

from tcusim.backends import get_backend, register_backend
from tcusim.check import agreement
from tcusim.check.cases import Grid, Recipe, columns_of
from tcusim.cli import main as cli
from tcusim.errors import Unsupported
from tcusim.program.launches import LaunchPlan
from tcusim_cuda.compile import why_no_compiler


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


def command(*arguments: str) -> click.testing.Result:
    return click.testing.CliRunner().invoke(cli.main, arguments)


def agree(code: int, *arguments: str) -> str:
    result = command("agree", "--backend", "fake", "--jobs", "1", *arguments)
    assert result.exit_code == code, result.output
    return str(result.stdout)


# --- agree ------------------------------------------------------------------------------------


def test_the_table() -> None:
    text = agree(0, "reduction_k", "scan_kn", "--tile", "32x8x16", "--tile", "16x16x8")
    lines = text.splitlines()
    assert lines[1].split() == ["32x8x16", "32x8x16", "32x8x16", "16x16x8", "32x8x16"]
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
    shown = command("agree", "--backend", "fake", "--case", case.strip("'"))
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
    assert plain.read_text().startswith("reduction_k                16x8x16 f16→f32")
    result = command("agree", "-o", str(tmp_path / "no" / "file"))
    assert (result.exit_code, result.stdout) == (1, "")
    assert "there is no directory" in result.stderr


def test_no_time() -> None:
    assert "not run, 3: the time was up" in agree(
        1, "reduction_k", "--tile", "16x8x16", "--seconds", "0"
    )


def test_several_processes() -> None:
    grid = Grid(["scan_kn"], columns_of("32x8x16"))
    one = agreement.agree(grid, backend="numpy")
    two = agreement.agree(grid, backend="numpy", jobs=2)
    assert one.tallies == two.tallies
    assert one.ok


def test_the_full_grid_of_one_cell() -> None:
    text = agree(0, "scan_simt", "--tile", "8x8x4", "--full")
    assert "fake and the simulator (hopper): 35 cases, " in text


def test_unknown_names() -> None:
    for arguments, text in (
        (["scan_x"], "unknown algorithm 'scan_x'"),
        (["--backend", "cuppy"], "unknown backend 'cuppy'. Did you mean 'cupy'?"),
        (["--case", "scan_k colour=red"], "a case of scan_k has no 'colour'; it has tile,"),
        (["--case", "scan_k length=many"], "length must be a whole number, got 'many'"),
        (["--case", "scan_k ragged"], "a case is ALGORITHM NAME=VALUE ..., got 'ragged'"),
    ):
        result = command("agree", *arguments)
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
    result = command("agree", "--backend", "fake", "--case", f"scan_k masked=1 length={length}")
    assert (result.exit_code, result.stdout) == (1, "")
    assert text in result.stderr


# --- emit -------------------------------------------------------------------------------------


def test_emit_prints_the_text() -> None:
    once, twice = (command("emit", "scan_tn", "--tile", "32x8x16", "--masked") for _ in range(2))
    assert once.exit_code == 0
    assert once.stdout == twice.stdout
    assert '#include "tcusim.cuh"' in once.stdout
    assert "wmma::mma_sync(" in once.stdout


def test_emit_standalone(tmp_path: Path) -> None:
    path = tmp_path / "k.cu"
    result = command("emit", "scan_kn", "--tile", "16x8x16", "--standalone", "-o", str(path))
    assert (result.exit_code, result.stdout) == (0, "")
    text = path.read_text()
    assert "tcusim.cuh" not in text.split("using namespace nvcuda")[0]
    assert "namespace tcu {" in text
    assert "#pragma once" not in text
    assert text.count('extern "C" __global__ void') == 1


def test_emit_compiles(tmp_path: Path) -> None:
    reason = why_no_compiler()
    if reason is not None:
        pytest.skip(reason)
    path = tmp_path / "k.cubin"
    result = command("emit", "reduction_256", "--arch", "v100", "--compile", "-o", str(path))
    assert result.exit_code == 0, result.output
    rows = dict(line.split("  ", 1) for line in result.stdout.splitlines())
    rows = {name: text.strip() for name, text in rows.items()}
    assert rows["kernel"] == "reduction_256, 32 threads a block"
    assert rows["compiled for"].startswith("sm_70 by NVRTC ")
    assert rows["spilled"] == "0 bytes of each thread"
    assert rows["tensor core"] == "32 HMMA.884"
    assert rows["of each mma"] == "16 (2 mma, where loops are unrolled)"
    assert rows["written to"] == str(path)
    assert path.read_bytes()[:4] == b"\x7fELF"


def test_emit_refuses() -> None:
    for arguments, text in (
        (["scan_k", "--arch", "ieee"], "ieee is no GPU"),
        (["scan_k", "--arch", "volt"], "Did you mean 'volta'?"),
        (["scan_k", "--arch", "sm_10"], "scan_k uses instructions of sm_70 and newer, sm_10 lacks"),
        (["scan_k", "--ab", "bf16", "--arch", "volta"], "instructions of sm_80 and newer"),
        (["scan_k", "-o", "/no/such/folder/k.cu"], "there is no directory"),
        (
            ["reduction_k", "--tile", "16x8x32", "--ab", "e4m3"],
            "no kernel is emitted for tiles of e4m3",
        ),
    ):
        result = command("emit", *arguments)
        assert (result.exit_code, result.stdout) == (1, "")
        assert text in result.stderr


def test_counting_unrolled_products() -> None:
    from tcusim_cuda.emit import emit

    assert emit(Recipe.of("reduction_tn").build()).products == 4 + 1
    assert emit(Recipe.of("reduction_k", tile="32x32x32").build()).products == 2 * 2 * 2
    assert emit(Recipe.of("reduction_simt").build()).products == 0
