"""tcusim.machine.unit_file: a unit read from TOML and written again; errors with their place."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

import tcusim
from tcusim.errors import InputError
from tcusim.machine import (
    FIGURES,
    Arch,
    Exact,
    Figure,
    Fused,
    Instruction,
    Integer,
    Late,
    Rule,
    Sequential,
    Unit,
    arch_of,
    fused_unit,
    rule_for,
    unit_of,
)
from tcusim.machine.known_units import units
from tcusim.machine.shapes import MmaShape, shape_of
from tcusim.machine.unit_file import KEYS, read_unit, unit_toml

# Everything that a file can say of a unit.
FULL = """
name = "mychip"
title = "an idea"
note = "in 5 nm"
source = "data sheet"
confidence = "documented"
tiles = ["16x16x16", "5x7x3"]
flush_inputs = true

[[rules]]
ab = ["f16", "bf16"]
fused_length = 8
fraction_bits = 20
output_rounding = "rne"
flush_inputs = false

[[rules]]
ab = "e4m3"
fraction_bits = 13
output_fraction_bits = 13
family = "wgmma"
source = "a talk"
evidence = "hearsay"

[[rules]]
ab = "s8"
kind = "integer"

[[refusals]]
ab = "tf32"
why = "it has no tf32; use bf16"

[[instructions]]
tile = "16x16x16"
ab = "f16"
acc = "f32"
family = "wmma"
latency = 33
interval = { value = 16.5, source = "tcusim microbench", confidence = "measured" }

[figures]
clock = 1.98e9
cores = 132
shared_bytes_per_block = 102_400
"""


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], Path]:
    """Return a function that writes a file and returns its path."""

    def write(text: str, name: str = "mychip.toml") -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_a_short_file_is_enough(written: Callable[..., Path]) -> None:
    unit = read_unit(written('tiles = ["32x8x12", "16x16x16"]\nfraction_bits = 20\n', "Short.toml"))
    assert (unit.name, unit.title) == ("short", "short")
    how = Fused(12, 20)
    assert unit.arch.rows == (Rule("f16", "f32", how, "Short.toml", "assumed"),)
    assert unit.shapes == (
        MmaShape(32, 8, 12, source="Short.toml", title="short"),
        shape_of("16x16x16"),
    )
    assert unit.figures() == {}
    assert unit.instructions == ()


def test_a_full_file(written: Callable[..., Path]) -> None:
    unit = read_unit(written(FULL, "x.toml"))
    said = ("data sheet", "documented")
    assert (unit.name, unit.title, unit.note) == ("mychip", "an idea", "in 5 nm")
    assert unit.arch.rows == (
        Rule("f16", "f32", Fused(8, 20, "rne"), *said),
        Rule("bf16", "f32", Fused(8, 20, "rne"), *said),
        Rule(
            "e4m3",
            "f32",
            Fused(3, 13, output_fraction_bits=13, flush_inputs=True),
            "a talk",
            "hearsay",
            "wgmma",
        ),
        Rule("s8", "s32", Integer(), *said),
    )
    assert unit.arch.shared_kb == 100
    assert [shape.virtual for shape in unit.shapes] == [True, True], "no instruction takes e4m3"
    assert unit.clock == Figure(1.98e9, *said)
    assert unit.cores == Figure(132, *said)
    interval = Figure(16.5, "tcusim microbench", "measured")
    assert unit.instructions == (
        Instruction("16x16x16", "f16", "f32", "wmma", Figure(33, *said), interval),
    )
    tcusim.machine.register_unit(unit)
    with pytest.raises(tcusim.Unsupported, match="it has no tf32; use bf16"):
        rule_for("mychip", "tf32", "f32")


def test_the_unit_of_an_architecture_has_its_tiles_and_arithmetic(
    written: Callable[..., Path],
) -> None:
    unit = read_unit(written('arch = "volta"\n[figures]\ncores = 80\n'))
    assert unit.arch is arch_of("volta")
    assert unit.shapes == unit_of("volta").shapes
    unit = read_unit(written('arch = "hopper"\ntiles = ["16x8x8", "48x24x12"]\n'))
    assert unit.shapes[0] is shape_of("16x8x8")
    assert unit.shapes[1].virtual


def test_its_name_is_an_architecture_and_the_file_may_be_read_again(
    written: Callable[..., Path],
) -> None:
    fine = [[1, 2**-4]]
    path = written('tiles = "5x7x3"\nfraction_bits = 3\n')
    assert unit_of(path).name == "mychip"
    assert tcusim.mma(fine, [[1], [1]], arch="mychip")[0, 0] == 1
    path.write_text('tiles = "5x7x3"\nfraction_bits = 4\n')
    unit = unit_of(str(path))
    assert tcusim.mma(fine, [[1], [1]], arch="mychip")[0, 0] == 1 + 2**-4
    assert [one for one in units() if one.name == "mychip"] == [unit]


def test_programs_keep_the_alignment_that_a_tile_asks_for(written: Callable[..., Path]) -> None:
    path = written('tiles = "8x8x8"\nkind = "exact"\ntile_bytes = 16\nrow_bytes = 16\n')
    (tile,) = unit_of(path).shapes
    assert tile.alignment("f16", "f32") == (16, 16)
    free = MmaShape(8, 8, 8)
    direct, staged = (
        tcusim.build("reduction_kn", tile=one, segment_size=12) for one in (free, tile)
    )
    assert tcusim.listing(direct) != tcusim.listing(staged)
    x = np.arange(12 * 64, dtype=np.float16) % 7
    for program in (direct, staged):
        out = tcusim.run(program, {"in": x}, arch="mychip")["out"]
        assert np.array_equal(out, x.reshape(-1, 12).sum(axis=1))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tiles = ", "mychip.toml is no TOML: Invalid value"),
        ('tile = "1x1x1"', "mychip.toml: unknown key 'tile'. Did you mean 'tiles'"),
        ("fraction_bits = 3", 'tiles is needed: what one mma takes, as in tiles = "16x16x16"'),
        ("tiles = 3", "tiles must be a text or a list of texts, got 3"),
        ("tiles = []", "tiles must be a text or a list of texts, got []"),
        ('tiles = "16x16"', "mychip.toml: tiles: a shape is written '16x16x16'"),
        ('tiles = "1x1x1"', "mychip.toml: fraction_bits is needed: how many bits a fused step"),
        ('tiles = "1x1x1"\nkind = "fuse"', "unknown kind 'fuse'. Did you mean 'fused'?"),
        (
            'tiles = "1x1x1"\nkind = "exact"\noutput_rounding = "rz"',
            "output_rounding is for kind = 'fused' or 'sequential', and kind is 'exact'",
        ),
        ('tiles = "1x1x1"\nfraction_bits = "9"', "fraction_bits must be an integer .* got '9'"),
        (
            'tiles = "1x1x1"\nfraction_bits = 9\nconfidence = "sure"',
            "mychip.toml: unknown confidence 'sure'",
        ),
        ('tiles = "1x1x1"\nfraction_bits = 60', "1 terms with 60 fraction bits needs sums beyond"),
        ('tiles = "1x1x1"\nfraction_bits = 9\nab = "f61"', "unknown type 'f61'. Did you mean"),
        ('tiles = "1x1x1"\nfraction_bits = 9\nacc = "s32"', "Fused takes a float type up to f32"),
        ('tiles = "1x1x1"\nfraction_bits = 9\ntile_bytes = 64', "tile_bytes must be one of 1, 2,"),
        ('tiles = "1x1x1"\nfraction_bits = 9\nname = ""', "name must be a text, got ''"),
        ('tiles = "1x1x1"\nfraction_bits = 9\nrules = [3]', "rule 1: it must be a table of keys"),
        (
            'tiles = "1x1x1"\nzzz = 9',
            "mychip.toml: unknown key 'zzz', which is like none of the valid ones: name, title",
        ),
        (
            'tiles = "1x1x1"\nlatency = 9',
            "latency is a key of the instructions: put it below a line [[instructions]]",
        ),
        (
            'tiles = "1x1x1"\n[figures]\nfraction_bits = 9',
            "figures: fraction_bits is a key of a rule: put it above the first line in brackets",
        ),
        (
            'fraction_bits = 9\n[figures]\ntiles = "1x1x1"',
            "figures: tiles is a key of the file: put it above the first line in brackets",
        ),
        (
            'tiles = "1x1x1"\nfraction_bits = 9\nab = "e5m33"',
            "mychip.toml: type e5m33: it must have at least one exponent bit, and at most 31 bits",
        ),
        (
            'tiles = "1x1x1"\nfraction_bits = 9\n[[rules]]\n[[rules]]\nfused_lenth = 3',
            "mychip.toml: rule 2: unknown key 'fused_lenth'. Did you mean 'fused_length'",
        ),
        ('tiles = "1x1x1"\n[[refusals]]\nab = "f16"', "mychip.toml: refusal 1: why is needed"),
        (
            'arch = "hoper"',
            "mychip.toml: arch: unknown architecture 'hoper'. Did you mean 'hopper'",
        ),
        ('arch = "hopper"\nfused_length = 8', "arch and fused_length contradict each other"),
        ('arch = "hopper"\n[[refusals]]', "arch and refusals contradict each other"),
        ('arch = "hopper"\nfigures = 3', "figures: it must be a table of keys and values, got 3"),
        ('arch = "hopper"\n[figures]\nclok = 3', "figures: unknown key 'clok'. Did you mean 'clo"),
        ('arch = "hopper"\n[figures]\nclock = -3', "figures: clock: the value of a figure must"),
        ('arch = "hopper"\n[figures]\nclock = { source = "a" }', "clock: value is needed"),
        ('arch = "hopper"\n[figures]\nclock = { val = 1 }', "unknown key 'val'. Did you mean 'val"),
        (
            'arch = "hopper"\n[figures]\nclock = { value = 1, source = "x", confidence = "sure" }',
            "measured, .* got 'sure'",
        ),
        ('arch = "hopper"\n[figures]\ncores = 1.5', "cores must be a whole number, got 1.5"),
        (
            'arch = "hopper"\nclock = 3',
            "clock is a key of the figures: put it below a line [figu",
        ),
        ('arch = "hopper"\n[instructions]', "write [[instructions]], with two brackets"),
        ('arch = "hopper"\n[[instructions]]', "mychip.toml: instruction 1: tile is needed"),
        (
            'tiles = "1x1x1"\nfraction_bits = 9\n[[instructions]]\nlatency = 1\ninterval = 2',
            "instruction 1: Instruction 1x1x1 f16 -> f32: the interval, 2 cycles, is longer",
        ),
        (
            'tiles = "1x1x1"\nfraction_bits = 9\n[[instructions]]\nacc = "f16"',
            "instruction 1: the unit has no rule for f16 -> f16; it has f16 -> f32",
        ),
    ],
)
def test_what_is_refused_is_told_with_its_place(
    written: Callable[..., Path], text: str, message: str
) -> None:
    with pytest.raises(InputError, match=re.escape(message).replace(r"\.\*", ".*")):
        read_unit(written(text))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none.toml' cannot be read: No such file"):
        read_unit(tmp_path / "none.toml")
    (tmp_path / "latin.toml").write_bytes(b'title = "\xe9"')
    with pytest.raises(InputError, match=r"latin.toml' cannot be read: it is no UTF-8 text"):
        read_unit(str(tmp_path / "latin.toml"))


@pytest.mark.parametrize("name", ["full", "aligned", "hopper", "exact", "fused"])
def test_what_is_written_is_read_as_the_same_unit(written: Callable[..., Path], name: str) -> None:
    unit = {
        "full": lambda: read_unit(written(FULL)),
        "aligned": lambda: read_unit(
            written('tiles = "8x8x8"\nkind = "exact"\nrow_bytes = 4\ntitle = "\\"é\\""\n')
        ),
        "hopper": lambda: replace(unit_of("hopper"), name="board"),
        "exact": lambda: Unit(
            "board", "exact", arch_of("exact"), (MmaShape(3, 3, 3, title="exact"),)
        ),
        "fused": lambda: fused_unit(8, 20, "rne", tiles=(MmaShape(5, 7, 8),)),
    }[name]()
    text = unit_toml(unit)
    again = read_unit(written(text, "again.toml"))
    tiles = [(one.name, one.alignment("f16", "f32")) for one in unit.shapes]
    assert [(one.name, one.alignment("f16", "f32")) for one in again.shapes] == tiles
    assert replace(again, shapes=unit.shapes) == replace(unit, arch=again.arch)
    assert again.arch.rows == unit.arch.rows
    assert text.count("not known") >= len(unit.unknown())


def test_texts_that_are_empty_are_not_written(written: Callable[..., Path]) -> None:
    """A file of an empty text would be refused when it is read."""
    unit = replace(unit_of("hopper"), name="board", title="")
    assert read_unit(written(unit_toml(unit))).title == "board"
    arch = replace(fused_unit(8, 20).arch, source="", name="board")
    own = Unit("board", "a board", arch, (MmaShape(5, 7, 8),))
    assert read_unit(written(unit_toml(own), "own.toml")).arch.source == "own.toml"


def test_every_figure_and_parameter_has_a_key() -> None:
    assert list(KEYS["figures"]) == list(FIGURES)
    named = {"length": "fused_length", "output": "output_rounding", "rounding": "output_rounding"}
    named |= {"addition": "addition_rounding", "sums": "partial_sums"}
    for kind in (Fused, Sequential, Exact, Integer):
        assert {named.get(one.name, one.name) for one in fields(kind)} <= KEYS["rules"].keys()


def test_parts_of_few_units_are_read_and_written(tmp_path: Path) -> None:
    rules = (
        Rule("f16", "f32", Fused(8, 24, "rne", c_joins=Late(31, 24, floor=-126)), "s", "assumed"),
        Rule("bf16", "f32", Fused(4, 28, "odd", None, "odd", "after", addition="odd"), "s", "e"),
        Rule("e4m3", "f32", Fused(8, 22, "rna", None, "sticky", exponents="upper"), "s", "e"),
        Rule("e5m2", "f32", Fused(8, 20, sums=2, overflow="product", zeros="signed"), "s", "e"),
        Rule("tf32", "f32", Sequential(4, "tree", flush_outputs=True), "s", "e", nan="ones"),
        Rule("f32", "f32", Sequential(8, sums=2, rounding="rz"), "s", "e"),
        Rule("s8", "s32", Integer(8, 20, "symmetric"), "s", "e"),
    )
    scaled = Rule(
        *("e2m1", "f32", Fused(8, 30, exponents="scales", presum=4), "s", "e"),
        scale="block8.ue4m3",
    )
    arch = Arch("parts", "parts", (), (), rules, "s", scaled=(scaled,))
    path = tmp_path / "parts.toml"
    path.write_text(unit_toml(Unit("parts", "parts", arch, (shape_of("4x4x8"),))))
    assert read_unit(path).arch.rows == rules
    assert read_unit(path).arch.scaled == (scaled,)


def test_a_late_c_has_two_widths(tmp_path: Path) -> None:
    path = tmp_path / "late.toml"
    for joins, message in (
        ("{ sum_bits = 31 }", "late.toml: c_joins: c_bits is needed"),
        ("{ sum_bits = 31, c_bit = 24 }", "late.toml: c_joins: unknown key 'c_bit'. Did you mean"),
        ("{ sum_bits = 31, c_bits = 99 }", "late.toml: c_joins: c_bits must be .* got 99"),
    ):
        path.write_text(f'tiles = "4x4x8"\nfraction_bits = 20\nc_joins = {joins}\n')
        with pytest.raises(InputError, match=message):
            read_unit(path)


def test_a_mark_of_the_encoding_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "marked.toml"
    path.write_text('tiles = "1x1x1"\nfraction_bits = 9\n', encoding="utf-8-sig")
    assert read_unit(path).name == "marked"


def test_a_step_of_more_products_than_a_tile_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "wide.toml"
    path.write_text('tiles = ["8x8x4", "8x8x8"]\nfraction_bits = 20\nfused_length = 16\n')
    with pytest.raises(
        InputError,
        match=r"fused_length = 16 and tiles of k = 8 contradict .* Write fused_length = 8",
    ):
        read_unit(path)


@pytest.mark.parametrize(
    ("key", "instead"),
    [
        ("saturate", 'Write overflow = "saturate" for integers'),
        ("accumulator_bits", "Floats accumulate in the type acc, and integers in 32"),
        ("tree", 'Write kind = "sequential" and order = "tree"'),
        ("sticky", 'Write alignment = "sticky"'),
        ("fidelity", "Write passes = "),
        ("k", 'Write tiles = "16x16x16"'),
        ("exponent_bits", 'Write ab = "e5m3": the bits of exponent and fraction'),
        ("FTZ", "Write flush_inputs and flush_outputs"),
    ],
)
def test_what_a_file_cannot_say_is_no_misspelled_key(
    tmp_path: Path, key: str, instead: str
) -> None:
    path = tmp_path / "more.toml"
    path.write_text(f'tiles = "4x4x4"\nfraction_bits = 20\n{key} = 1\n')
    with pytest.raises(InputError, match=f"unknown key '{key}'. {instead}") as refused:
        read_unit(path)
    assert "Did you mean" not in str(refused.value)
