"""The commands that build one program: `tcusim emit`, `tcusim listing` and `tcusim step`."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import click.testing
import pytest

import tcusim
from command_line import runner
from tcusim.cli import main as cli
from tcusim.judge.correctness.cases import Recipe
from tcusim.program.bind import rule_of
from tcusim_cuda.compile import why_no_compiler
from tcusim_cuda.emit import emit


def command(*arguments: str) -> click.testing.Result:
    return runner().invoke(cli.main, arguments)


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


def test_a_compiled_kernel_has_no_text() -> None:
    result = command("emit", "scan_k", "--standalone", "--compile")
    assert result.exit_code == 2
    assert "--standalone is of the text; --compile prints none" in result.stderr


@pytest.mark.full
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on the PATH")
def test_a_standalone_text_compiles_by_itself(tmp_path: Path) -> None:
    path = tmp_path / "k.cu"
    result = command("emit", "scan_kn", "--tile", "16x8x16", "--standalone", "-o", str(path))
    assert result.exit_code == 0, result.output
    compiled = tmp_path / "k.ptx"
    flags = ("-std=c++17", "-arch=sm_80", "--ptx", "-o", str(compiled))
    subprocess.run(["nvcc", *flags, str(path)], check=True, cwd=tmp_path)
    assert ".visible .entry" in compiled.read_text()


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


def test_the_lanes_multiply_where_the_gpu_does_not() -> None:
    plain = command("emit", "scan_k").stdout
    assert "tcu::multiply" not in plain
    assert command("emit", "scan_k", "--arch", "hopper").stdout == plain
    for arguments in (["--tile", "5x7x3"], ["--arch", "ieee"], ["--tile", "5x7x3", "--standalone"]):
        text = command("emit", "scan_k", *arguments).stdout
        assert "tcu::multiply<Arithmetic>(" in text
        assert ('#include "tiles.cuh"' in text) == ("--standalone" not in arguments)


def test_emit_for_a_unit(tmp_path: Path) -> None:
    """Its tile, its types and its rule: the text of a launch on a backend."""
    path = tmp_path / "chip.toml"
    path.write_text('tiles = ["4x8x4"]\nfraction_bits = 12\nab = "bf16"\n')
    listed = command("listing", "scan_k", "--unit", str(path)).stdout
    assert listed == tcusim.listing(tcusim.build("scan_k", tile="4x8x4", ab="bf16"))
    text = command("emit", "scan_k", "--unit", str(path)).stdout
    assert "// scan_k: 4x8x4, bf16 to f32" in text
    program = tcusim.build("scan_k", tile="4x8x4", ab="bf16")
    assert text == emit(program, rule=rule_of(program, tcusim.unit_of(path).arch.name)).text
    assert "tcu::multiply" in command("emit", "scan_k", "--arch", "volta", "--gpu", "sm_90").stdout
    if why_no_compiler() is None:
        words = ("--unit", str(path), "--gpu", "ampere", "--compile")
        assert "sm_80 by NVRTC" in command("emit", "scan_k", *words).stdout
    refused = command("emit", "scan_k", "--gpu", "exact")
    assert refused.exit_code == 2
    assert "--gpu exact is no GPU, but an arithmetic; --arch exact follows it" in refused.stderr


def test_emit_refuses() -> None:
    for arguments, text in (
        (["scan_k", "--arch", "volt"], "Did you mean 'volta'?"),
        (["scan_k", "--arch", "sm_10"], "scan_k uses instructions of sm_70 and newer, sm_10 lacks"),
        (["scan_k", "--ab", "bf16", "--arch", "volta"], "instructions of sm_80 and newer"),
        (["scan_k", "-o", "/no/such/folder/k.cu"], "there is no directory"),
        (
            ["reduction_k", "--tile", "16x8x32", "--ab", "e4m3"],
            "Volta tensor cores have no 8-bit floats (sm_89 is the first)",
        ),
    ):
        result = command("emit", *arguments)
        assert (result.exit_code, result.stdout) == (1, "")
        assert text in result.stderr


def test_counting_unrolled_products() -> None:
    assert emit(Recipe.of("reduction_tn").build()).products == 4 + 1
    assert emit(Recipe.of("reduction_k", tile="32x32x32").build()).products == 2 * 2 * 2
    assert emit(Recipe.of("reduction_ragged_simt").build()).products == 0
