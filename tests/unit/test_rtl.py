"""The SystemVerilog example: its right design passes, and vectors find each planted bug.

Debian's packages iverilog and verilator are enough; tests skip where they are missing.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from command_line import succeeds
from page_blocks import blocks
from tcusim.machine import read_unit

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "docs" / "rtl"
PAGE = ROOT / "docs" / "vectors.md"
# Verilator's own library is most of what is compiled.
QUICK = "OPT_FAST=-O0 OPT_SLOW=-O0 OPT_GLOBAL=-O0"
BUGS = 22


def needs(program: str) -> pytest.MarkDecorator:
    missing = shutil.which(program) is None
    return pytest.mark.skipif(missing, reason=f"{program} is not installed")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for file in EXAMPLE.iterdir():
        shutil.copy(file, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{ROOT / 'backends'}")
    return tmp_path


def ran(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@needs("iverilog")
@pytest.mark.parametrize("count", [48])
def test_few_vectors_find_every_planted_bug(count: int) -> None:
    bench = ("dot4_bugs_tb.sv", "dot4.sv")
    ran("iverilog", "-g2012", f"-Pdot4_bugs_tb.N={count}", "-o", "bugs", *bench)
    for seed in range(3):
        succeeds("vectors", "dot4.toml", "--count", str(count), "--seed", str(seed))
        lines = ran("vvp", "bugs").splitlines()
        assert f"{BUGS} of {BUGS} bugs found; the right design: 0 of {count} cases" in lines[-1]
        assert (
            len([one for one in lines if re.fullmatch(r"bug \d+: \d+ cases, first \d+", one)])
            == BUGS
        )


@needs("iverilog")
def test_the_right_design_passes_icarus_and_is_found() -> None:
    succeeds("vectors", "dot4.toml", "--count", "3000")
    ran("iverilog", "-g2012", "-Pdot4_tb.N=3000", "-o", "tb", "dot4_tb.sv", "dot4.sv")
    assert ran("vvp", "tb") == "0 of 3000 cases are wrong\n"
    # A bench with one wrong output says so.
    wrong = Path("dot4_mma/d.hex").read_text().splitlines()
    wrong[2] = f"{int(wrong[2], 16) ^ 1:08x}"
    Path("dot4_mma/d.hex").write_text("\n".join(wrong))
    assert ran("vvp", "tb").endswith("\n1 of 3000 cases are wrong\n")
    ran("iverilog", "-g2012", "-o", "pipe", "dot4_pipe.sv", "dot4.sv")
    succeeds("unit", "found.toml", "--probe", "vvp pipe", "--tile", "1x1x4")
    found, due = read_unit("found.toml").arch.rows[0], read_unit("dot4.toml").arch.rows[0]
    assert (found.how, found.nan) == (due.how, due.nan)


@needs("verilator")
@pytest.mark.full
def test_the_right_design_passes_verilator_and_is_found() -> None:
    succeeds("vectors", "dot4.toml")
    for top in ("dot4_tb", "dot4_bugs_tb", "dot4_pipe"):
        ran(
            "verilator",
            "--binary",
            "-Wall",
            "-MAKEFLAGS",
            QUICK,
            f"{top}.sv",
            "dot4.sv",
            "--top",
            top,
        )
    assert ran("./obj_dir/Vdot4_tb").startswith("0 of 1000 cases are wrong\n")
    assert f"{BUGS} of {BUGS} bugs found; the right design: 0 of " in ran("./obj_dir/Vdot4_bugs_tb")
    succeeds("unit", "found.toml", "--probe", "./obj_dir/Vdot4_pipe", "--tile", "1x1x4")
    assert read_unit("found.toml").arch.rows[0].how == read_unit("dot4.toml").arch.rows[0].how


@needs("verilator")
@pytest.mark.full
def test_the_design_is_that_of_the_rule_in_c_through_dpi() -> None:
    succeeds("vectors", "dot4.toml", "--header", "tcusim_golden.h")
    text = PAGE.read_text(encoding="utf-8")
    Path("golden.c").write_text(text.partition("```c\n")[2].partition("```")[0])
    sources = ("dot4_dpi_tb.sv", "dot4.sv", "golden.c", "--top", "dot4_dpi_tb")
    ran("verilator", "--binary", "-Wall", "-MAKEFLAGS", QUICK, "-CFLAGS", "-I..", *sources)
    shown = ran("./obj_dir/Vdot4_dpi_tb")
    assert shown.startswith("0 of 100000 cases are wrong\n")
    assert f"`{shown.splitlines()[0]}`" in text


@needs("iverilog")
def test_the_commands_of_the_page_run() -> None:
    """Run the blocks of shell, in order; those of Verilator take seconds, and have their test."""
    succeeds("vectors", "dot4.toml", "--count", "200")
    found = [
        one for one in blocks(PAGE.read_text(encoding="utf-8"), PAGE.name) if one.language == "sh"
    ]
    assert len(found) == 6
    printed = ""
    for block in found:
        if "verilator" not in block.text:
            text = block.text.replace("python -m", f"{sys.executable} -m")
            printed += ran("sh", "-e", "-c", text)
    text = PAGE.read_text(encoding="utf-8")
    for line in printed.splitlines():
        assert line.startswith("bug ") or f"`{line}`" in text
    assert read_unit("found.toml").arch.rows[0].nan == "quiet"


def test_the_page_has_the_rule_of_the_example() -> None:
    text = (
        PAGE.read_text(encoding="utf-8").partition('write_text("""\n')[2].partition('... """)')[0]
    )
    Path("page.toml").write_text(text.replace("... ", ""))
    page, own = read_unit("page.toml").arch.rows[0], read_unit("dot4.toml").arch.rows[0]
    assert (page.how, page.nan, page.ab) == (own.how, own.nan, own.ab)
