"""`tcusim list`: the tables, one name in full, and refusals."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from command_line import fails, on_a_terminal, succeeds
from tcusim import MmaShape, register_shape
from tcusim.algorithms import algorithms

COMMAND = [sys.executable, "-W", "error", "-m", "tcusim"]


def test_list_has_every_table() -> None:
    text = succeeds("list")
    for word in ("reduction_256n", "32x8x16", "blackwell", "the simulator, on NumPy"):
        assert word in text
    assert not any(line.endswith(" ") for line in text.splitlines())


def test_list_as_json() -> None:
    tables = json.loads(succeeds("list", "shapes", "backends", "--json"))
    assert list(tables) == ["shapes", "backends"]
    first = tables["shapes"][0]
    assert (first["name"], first["instruction"], first["min sm"]) == ("16x16x16", "wmma", 70)
    assert first["types"] == "f16→f16, f16→f32"
    backend = next(row for row in tables["backends"] if row["name"] == "numpy")
    assert backend["available"] == "yes"


def test_list_refuses_another_word() -> None:
    text = fails(2, "list", "shape")
    assert "unknown table or name 'shape'. Did you mean 'shapes'? The tables are algo" in text


def test_list_tells_all_of_a_name() -> None:
    text = succeeds("list", "scan_256n", "V100")
    assert re.search(r"paper +scan_256n", text)
    assert re.search(r"    --form +How what precedes each row is found\.", text)
    assert "NVIDIA Volta" in text
    assert "reduction" not in text
    tables = json.loads(succeeds("list", "scan_tn", "--json"))
    assert [row["name"] for row in tables["algorithms"]] == ["scan_tn"]


def test_the_list_fits_a_terminal_of_80_columns() -> None:
    text = on_a_terminal([*COMMAND, "list", "algorithms"], b"", columns=80)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 60
    rows = [line.split() for line in lines if line.strip() and line.split()[0] in NAMES]
    assert len(rows) == len(NAMES)
    # Three words of a title at least; the last one may be cut.
    assert all(len(row) >= 4 for row in rows)


NAMES = [row.name for row in algorithms()]


def test_units_with_every_figure_and_its_source(tmp_path: Path) -> None:
    short = succeeds("list", "units")
    assert re.search(r"h200 +hopper +NVIDIA H200 SXM 141 GB: \d+ of \d+ figures, times of", short)
    told = succeeds("list", "units", "a100")
    assert re.search(
        r"memory_bandwidth +2\.039e\+12 bytes a second \(documented: NVIDIA A100 data", told
    )
    assert re.search(
        r"mma.sync 16x8x16 f16→f32 +latency 24.7 cycles \(published: Sun et al\.", told
    )
    assert re.search(r"not known +shared_latency, l2_bandwidth", succeeds("list", "units", "l4"))
    (tmp_path / "mine.toml").write_text('tiles = "5x7x3"\nfraction_bits = 9\n[figures]\ncores=7\n')
    mine = json.loads(succeeds("list", "--json", str(tmp_path / "mine.toml")))
    assert mine["units"][0]["figures"] == {"cores": "7 cores (assumed: mine.toml)"}
    assert mine["architectures"][0]["name"] == "mine"
    (tmp_path / "many.toml").write_text(
        'tiles = "8x8x32"\nfraction_bits = 25\nunsaid = "a fuse"\n'
        '[[rules]]\nab = "e3m2"\nnan = "quiet"\n'
        '[[rules]]\nab = "e3m2"\nscale = "block32.ue8m0"\n'
        '[[refusals]]\nab = "bf16"\nwhy = "too wide"\n'
    )
    many = json.loads(succeeds("list", "--json", str(tmp_path / "many.toml")))
    assert many["architectures"][0]["types"] == "e3m2→f32, e3m2→f32 with block32.ue8m0"
    (row,) = many["units"]
    plain, scaled = row["rules"].values()
    assert 'nan = "quiet"' in plain
    assert 'scale = "block32.ue8m0"' in scaled
    assert (row["refuses"], row["not said"]) == ({"bf16": "too wide"}, "a fuse")
    assert {"architectures", "units"} == json.loads(succeeds("list", "h200", "--json")).keys()


def test_shapes_that_no_gpu_has_say_of_what_kernels_are_made() -> None:
    for sizes in ((64, 8, 16), (5, 7, 3)):
        register_shape(MmaShape(*sizes))
    rows = {row["name"]: row for row in json.loads(succeeds("list", "shapes", "--json"))["shapes"]}
    assert "made of" in rows["64x8x16"]["instruction"]
    assert rows["5x7x3"]["instruction"] == "none: the lanes multiply, by any rule"


def test_a_file_is_listed_with_the_parameters_of_its_rule(tmp_path: Path) -> None:
    path = tmp_path / "narrow.toml"
    path.write_text('tiles = "12x10x6"\nab = "e5m2"\nacc = "f16"\nfraction_bits = 10\n')
    listed = succeeds("list", str(path))
    rule = "fused, fused_length = 6, fraction_bits = 10, output_rounding = .rz., "
    assert re.search(rf"e5m2→f16  {rule}.*\(assumed: narrow.toml\)", listed)
    assert "flush_inputs" not in listed
