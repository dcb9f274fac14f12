"""`tcusim unit --probe CMD`: the rule of a program that answers lines of words."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

import tcusim
from command_line import fails, succeeds
from tcusim.errors import InputError
from tcusim.judge.correctness.one_command import one_command
from tcusim.machine import read_unit, rule_for
from tcusim.machine.native import compiler_command, why_no_compiler

NEEDS_COMPILER = pytest.mark.skipif(why_no_compiler() is not None, reason=str(why_no_compiler()))
# A model of an mma of 1x1x8, which reads lines, or files that its arguments name.
MODEL = """
#define TCUSIM_GOLDEN_DPI golden
#include "tcusim_golden.h"
#include <stdio.h>
static void words(const char* text, uint32_t* into, int count) {
    int i;
    for (i = 0; i < count; ++i) sscanf(text + 8 * (count - 1 - i), "%8x", &into[i]);
}
int main(int argc, char** argv) {
    FILE *fa = 0, *fb = 0, *fc = 0, *out = stdout;
    char a[64], b[64], c[64];
    uint32_t x[4], y[4], z[1], d[1];
    if (argc > 4) {
        fa = fopen(argv[1], "r");
        fb = fopen(argv[2], "r");
        fc = fopen(argv[3], "r");
        out = fopen(argv[4], "w");
    }
    while (fa ? fscanf(fa, "%s", a) + fscanf(fb, "%s", b) + fscanf(fc, "%s", c) == 3
              : scanf("%s %s %s", a, b, c) == 3) {
        words(a, x, 4);
        words(b, y, 4);
        words(c, z, 1);
        golden(x, y, z, d);
        fprintf(out, "%08x\\n", d[0]);
    }
    printf("- model.c:33: $finish\\n");
    return 0;
}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@NEEDS_COMPILER
def test_the_rule_of_a_model_in_c_is_found(folder: Path) -> None:
    Path("mine.toml").write_text(
        'tiles = "1x1x8"\nfused_length = 4\nfraction_bits = 17\nnan = "quiet"\n'
    )
    Path("tcusim_golden.h").write_text(tcusim.golden_header("mine.toml"))
    Path("model.c").write_text(MODEL)
    subprocess.run([*compiler_command(), "-x", "c", "-o", "model", "model.c"], check=True)
    succeeds("unit", "lines.toml", "--probe", "./model", "--tile", "1x1x8", "--source", "the lab")
    succeeds("unit", "files.toml", "--probe", "./model {a} {b} {c} {d}", "--tile", "1x1x8")
    due = read_unit("mine.toml").arch.rows[0]
    for name in ("lines", "files"):
        (rule,) = read_unit(f"{name}.toml").arch.rows
        assert (rule.how, rule.nan, rule.evidence) == (due.how, "quiet", "recorded bits")
    assert read_unit("lines.toml").arch.rows[0].source == "the lab"


def test_programs_that_do_not_answer_are_told(folder: Path) -> None:
    def said(command: str, *more: str) -> str:
        return fails(1, "unit", "-", "--probe", command, "--tile", "1x1x4", *more)

    assert said("sh -c 'echo boom >&2; exit 3'") == "error: sh failed with exit code 3: boom\n"
    assert "sh failed with signal 9: it said nothing on stderr" in said("sh -c 'kill -9 $$'")
    text = said("sh -c 'head -3 | cut -c1-8'")
    assert "sh answered 3 of 288 cases. It must print one line with a word of 8 hexadec" in text
    text = said("sh -c 'while read a; do echo hello world; done'")
    assert "sh answered 0 of 288 cases; it also said 'hello world'. It must print one" in text
    assert "sh answered case 0 with unknown bits: 3f80xxxx" in said("sh -c 'echo 3f80xxxx'")
    assert "cut answered case 0 with 3c11bc2a3, which is more than the 8" in said("cut -c1-9")
    assert "the command './nope' cannot be started: no such file or directory" in said("./nope")
    assert "yes printed more than 263,680 bytes for 288 cases; it must print one" in said("yes x")
    text = said("sleep 30", "--timeout", "0.2")
    assert "sleep took more than 0.2 seconds for 288 cases; it must end at the end" in text
    # What it started holds its output, and is ended as well.
    assert "sh answered 0 of 288" in said("sh -c 'sleep 30 & exit 0'", "--timeout", "0.2")
    assert "sh wrote no answers to the file {d}" in said("sh -c 'true {d}'")
    assert "the command has no place {q}; its places: {a}, {b}, {c}, {d}, {count}" in said("x {q}")
    assert "the command is empty" in said("")
    assert "is no line of words: No closing quotation" in said("'")
    assert "no rule that was tried reproduces it" in said("sh -c 'cp {c} {d}'")
    assert not list(folder.iterdir())


def test_options_that_do_not_go_together() -> None:
    probe = ("unit", "-", "--probe", "x")
    said = fails(2, *probe, "--record", "numpy")
    assert "--record and --probe are two ways to find a rule; give one" in said
    assert "--arch is to --record; leave it out" in fails(2, *probe, "--arch", "volta")
    assert "--ab is one type to --probe" in fails(2, *probe, "--ab", "f16,bf16")
    said = fails(2, "unit", "-", "--record", "numpy", "--timeout", "3")
    assert "--timeout is to --probe; leave it out" in said
    with pytest.raises(InputError, match="the command is empty"):
        one_command(" ")


def test_many_tiles_at_once_give_the_same_rule() -> None:
    asked = []

    def many(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        asked.append(len(a))
        return tcusim.mma(a, b, c, arch="volta")

    unit = tcusim.probe_unit(many, tile="2x3x8", batched=True)
    assert unit.arch.rows[0].how == rule_for("volta", "f16", "f32").how
    assert len(asked) < 12
    with pytest.raises(InputError, match=r"of shape \(288, 2, 3\), got float64 of shape \(2, 3\)"):
        tcusim.probe_unit(lambda a, b, c: np.zeros((2, 3)), tile="2x3x8", batched=True)
    with pytest.raises(InputError, match="batched must be"):
        tcusim.probe_unit(many, batched="yes")  # type: ignore[arg-type]
