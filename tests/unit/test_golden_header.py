"""The C99 header of a unit has the simulator's bits, and compiles without a warning."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcusim
from command_line import fails, succeeds
from tcusim.judge.correctness.vector_files import hex_words
from tcusim.machine import format_of, mma_values, rule_of, unit_of, usual_types
from tcusim.machine.bits import decoded, encoded
from tcusim.machine.hard_operands import drawn_to_hit, random_dots
from tcusim.machine.native import compiler_command, why_no_compiler
from tcusim.machine.shapes import shape_of

pytestmark = pytest.mark.skipif(why_no_compiler() is not None, reason=str(why_no_compiler()))

FLAGS = ("-x", "c", "-std=c99", "-O1", "-Wall", "-Wextra", "-pedantic", "-Werror")
SOURCE = """
#define TCUSIM_GOLDEN_DPI golden
#include "tcusim_golden.h"
/* Exported for the test: the static functions, many times. */
void many(long count, const uint32_t* a, const uint32_t* b, const uint32_t* c, uint32_t* d);
void many(long count, const uint32_t* a, const uint32_t* b, const uint32_t* c, uint32_t* d) {
    long i;
    for (i = 0; i < count; ++i) golden(a + i * AW, b + i * BW, c + i * CW, d + i * CW);
}
"""
MINE = 'tiles = ["5x7x3"]\nab = "e5m3"\nfraction_bits = 12\noutput_rounding = "rne"\n'
# A unit, its types, and the tile: at least 10**5 outputs of each.
SOME = ("h100 f16 f32 16x8x16", "mine.toml e5m3 f32 5x7x3")
ALL = (
    "h100 e4m3 f32 4x4x32",
    *("h100 tf32 f32 16x8x8", "h100 e5m2 f16 4x4x32", "vortex_tfr f16 f32 8x8x32"),
    *("gemmini s8 s32 16x16x16", "redmule f16 f16 4x4x16", "zvbdot_256 bf16 f32 1x8x16"),
    *("amx_sdm bf16 f32 4x4x32", "mi300x bf16 f32 8x8x16", "mxdotp e4m3 f32 8x8x8"),
)
CASES = [*SOME, *(pytest.param(one, marks=pytest.mark.full) for one in ALL)]


def words(bits: Any, width: int) -> tuple[Any, int]:
    """Return cases as words of 32 bits, and the words of one."""
    flat = bits.reshape(len(bits), -1)
    count = -(-flat.shape[1] * width // 32)
    made = [int(one, 16).to_bytes(4 * count, "little") for one in hex_words(flat, width)]
    return np.frombuffer(b"".join(made), np.uint32), count


@pytest.mark.parametrize("case", CASES)
def test_the_header_agrees_on_100_000_outputs(case: str, tmp_path: Path) -> None:
    unit, ab, acc, tile = case.split()
    if unit.endswith(".toml"):
        (tmp_path / unit).write_text(MINE)
        unit = str(tmp_path / unit)
    shape = shape_of(tile)
    m, n, k = shape.m, shape.n, shape.k
    text = tcusim.golden_header(unit, tile=tile, ab=ab, acc=acc)
    (tmp_path / "tcusim_golden.h").write_text(text)

    arch = unit_of(unit).arch
    rule = rule_of(arch, *usual_types(arch, ab, acc))
    count = -(-100_000 // (m * n))
    rng = np.random.default_rng(7)
    drawn = [
        np.concatenate(parts)
        for parts in zip(
            drawn_to_hit(rng, count * max(m, n), rule, k),
            random_dots(rng, count * max(m, n), rule, k),
            strict=True,
        )
    ]
    order = rng.permutation(len(drawn[2]))
    a = drawn[0][order][: count * m].reshape(count, m, k)
    b = drawn[1][order][: count * n].reshape(count, n, k).transpose(0, 2, 1)
    c = drawn[2][rng.integers(0, len(order), (count, m, n))]
    x, y, z = (decoded(one, format_of(name)) for one, name in ((a, ab), (b, ab), (c, acc)))
    due = encoded(mma_values(x, y, z, rule), format_of(acc))

    width, wide = format_of(ab).bits, format_of(acc).bits
    (left, aw), (right, bw), (addend, cw) = words(a, width), words(b, width), words(c, wide)
    (tmp_path / "model.c").write_text(
        SOURCE.replace("AW", str(aw)).replace("BW", str(bw)).replace("CW", str(cw))
    )
    command = [*compiler_command(), *FLAGS, "-shared", "-fPIC", "-o", "model.so", "model.c"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    made = np.zeros_like(addend)
    given = [one.ctypes.data_as(ctypes.c_void_p) for one in (left, right, addend, made)]
    ctypes.CDLL(str(tmp_path / "model.so")).many(ctypes.c_long(count), *given)
    expected, _ = words(due, wide)
    assert expected.size * 32 // wide >= 100_000
    assert int(np.count_nonzero(expected != made)) == 0


@pytest.mark.parametrize(
    ("unit", "tile", "scale"),
    [
        ("volta", "1x1x4", ""),
        ("blackwell", "1x1x32", "mxf8f6f4.block32.ue8m0"),
        pytest.param("blackwell", "2x3x64", "block16.ue4m3", marks=pytest.mark.full),
    ],
)
def test_elements_are_those_of_a_c_program(
    unit: str, tile: str, scale: str, tmp_path: Path
) -> None:
    options = ("--tile", tile, *(("--scale", scale) if scale else ()))
    (tmp_path / "tcusim_golden.h").write_text(succeeds("vectors", unit, "--header", "-", *options))
    vectors = tcusim.golden_vectors(unit, count=300, tile=tile, scale=scale)
    vectors.write(tmp_path, "c")
    scales = ", tcusim_scale_a[i], tcusim_scale_b[i]" if scale else ""
    size = vectors.ports[-1].flat.shape[1]
    (tmp_path / "main.c").write_text(
        """
#include <stdio.h>
#include "tcusim_golden.h"
#include "vectors.h"
int main(void) {
    int i, wrong = 0;
    for (i = 0; i < TCUSIM_VECTORS; ++i) {
        uint32_t d[SIZE];
        int at;
        tcusim_golden_mma(tcusim_a[i], tcusim_b[i], tcusim_c[i] SCALES, d);
        for (at = 0; at < SIZE; ++at) wrong += d[at] != tcusim_d[i][at];
        if (SIZE == 1) {
            wrong += tcusim_golden_dot(tcusim_a[i], tcusim_b[i], tcusim_c[i][0] SCALES) != d[0];
        }
    }
    printf("%d of %d\\n", wrong, TCUSIM_VECTORS);
    return wrong != 0;
}
""".replace("SIZE", str(size)).replace(" SCALES", scales)
    )
    command = [*compiler_command(), *FLAGS, "-o", "main", "main.c"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    ran = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True)
    assert ran.stdout == "0 of 300\n"


def test_the_function_for_dpi_has_its_name_in_cpp_as_well(tmp_path: Path) -> None:
    """Verilator compiles C as C++."""
    (tmp_path / "tcusim_golden.h").write_text(tcusim.golden_header("volta", tile="1x1x4"))
    (tmp_path / "dpi.c").write_text(
        '#define TCUSIM_GOLDEN_DPI golden_mma\n#include "tcusim_golden.h"\n'
    )
    warnings = ("-Wall", "-Wextra", "-Werror")
    command = [*compiler_command(), "-x", "c++", *warnings, "-shared", "-fPIC", "-o", "dpi.so"]
    subprocess.run([*command, "dpi.c"], cwd=tmp_path, check=True)
    assert ctypes.CDLL(str(tmp_path / "dpi.so")).golden_mma


def test_a_source_does_not_end_the_comment_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(
        'tiles = "1x1x4"\nfraction_bits = 20\nsource = "see rtl/*.sv */ int x; \\\\"\n'
    )
    (tmp_path / "a.c").write_text(tcusim.golden_header(tmp_path / "a.toml"))
    subprocess.run([*compiler_command(), *FLAGS, "-fsyntax-only", "a.c"], cwd=tmp_path, check=True)


def test_what_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = fails(2, "vectors", "volta", "--header", "a.h", "--count", "5")
    assert "--count is of vectors, and --header writes none; leave one out" in said
    said = fails(1, "vectors", "volta", "--header", "no/a.h")
    assert "cannot write no/a.h" in said
    assert not list(tmp_path.iterdir())
    succeeds("vectors", "volta", "--header", "a.h", "--tile", "1x1x4")
    ports = "input bit [63:0] a, input bit [63:0] b, input bit [31:0] c, output bit [31:0] d);"
    assert ports in " ".join(Path("a.h").read_text().replace(" *", " ").split())
