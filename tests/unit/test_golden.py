"""Golden vectors: their bits, their coverage as the rule's evaluation counts it, their files."""

from __future__ import annotations

import csv
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcusim
from command_line import fails, succeeds
from tcusim.errors import InputError, UnknownName, Unsupported
from tcusim.judge.correctness.vector_files import written_together
from tcusim.machine import (
    Fused,
    Integer,
    Rule,
    Sequential,
    arch_of,
    format_of,
    mma_values,
    rule_for,
)
from tcusim.machine.bits import decoded, encoded
from tcusim.machine.coverage import Coverage, wrong_rules
from tcusim.machine.formats import FORMATS


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("dot4.toml").write_text(
        'tiles = "1x1x4"\nfraction_bits = 26\nalignment = "sticky"\noutput_rounding = "rne"\n'
    )
    Path("odd12.toml").write_text('tiles = "5x7x3"\nfraction_bits = 12\nab = ["bf16", "f16"]\n')
    return tmp_path


def values_of(vectors: Any) -> list[Any]:
    return [decoded(port.bits, format_of(port.type)) for port in vectors.ports]


@pytest.mark.parametrize(
    ("unit", "options"),
    [
        ("volta", {"tile": "1x1x4"}),
        ("dot4.toml", {}),
        ("odd12.toml", {"ab": "bf16"}),
        ("h100", {"ab": "e4m3", "tile": "4x2x32"}),
        ("h100", {"ab": "tf32", "tile": "2x1x8"}),
        ("mi300x", {"ab": "e4m3fnuz", "tile": "1x1x16"}),
        ("ieee", {"ab": "f16", "acc": "f16", "tile": "3x2x5"}),
        ("exact", {"ab": "f64", "acc": "f64", "tile": "1x2x3"}),
        ("gemmini", {}),
        ("turing", {"ab": "u8", "acc": "s32", "tile": "1x1x16"}),
    ],
    ids=str,
)
def test_outputs_are_the_units(unit: str, options: dict[str, Any]) -> None:
    vectors = tcusim.golden_vectors(unit, count=60, **options)
    a, b, c, d = values_of(vectors)
    given = {key: options[key] for key in ("ab", "acc") if key in options}
    if unit == "gemmini":
        given = {"ab": "s8", "acc": "s32"}
    due = tcusim.mma(a, b, c, arch=tcusim.unit_of(unit).arch.name, **given)
    assert due.tobytes() == d.tobytes()
    assert vectors.count == sum(count for _, count in vectors.groups) == 60


def test_equal_arguments_give_equal_bits() -> None:
    first, again, other = (
        [port.bits for port in tcusim.golden_vectors("dot4.toml", count=60, seed=seed).ports]
        for seed in (0, 0, 1)
    )
    assert all((x == y).all() for x, y in zip(first, again, strict=True))
    assert any((x != y).any() for x, y in zip(first, other, strict=True))


@pytest.mark.parametrize("op", ["reduction", "scan"])
def test_sums_and_scans_are_those_of_the_program(op: str) -> None:
    vectors = tcusim.golden_vectors("odd12.toml", op, count=40, ab="f16")
    algorithm = {"reduction": "reduction_t", "scan": "scan_t"}[op]
    given, made = values_of(vectors)
    assert given.shape == (40, 21)
    assert made.shape == (40, 1 if op == "reduction" else 21)
    program = tcusim.build(algorithm, tile="5x7x3", warps=1)
    due = tcusim.run(program, {"in": given.ravel()}, arch="odd12")["out"]
    assert due.tobytes() == made.tobytes()
    assert vectors.algorithm == algorithm
    hit = {one.name for one in vectors.coverage if one.cases}
    assert {"window: a product loses bits", "sum: cancellation to zero"} <= hit
    assert not any(one.name.startswith("operand") for one in vectors.coverage)


def test_a_tile_has_the_sums_of_its_own_on_the_diagonal() -> None:
    few = tcusim.golden_vectors("volta", count=12, tile="4x4x4")
    assert few.ports[0].bits.shape == (12, 4, 4)
    # Every term, result and special value is somewhere, in few tiles.
    assert sum(bool(one.cases) for one in few.coverage) > 36


# --- Coverage ---------------------------------------------------------------------------------


def one_sum(how: Any, a: list[float], b: list[float], c: float, acc: str = "f32") -> set[str]:
    """Return the events of one dot product."""
    rule = Rule("f16", acc, how, "a test", "none")
    watch = Coverage(rule, 1)
    left = np.array(a, np.float16).reshape(1, -1)
    right = np.array(b, np.float16).reshape(-1, 1)
    mma_values(left, right, np.array([[c]], format_of(acc).dtype), rule, watch)
    return {name for name, found in watch.hits.items() if found[0]}


def test_events_of_sums_by_hand() -> None:
    how = Fused(4, 10, output="rne", alignment="sticky")
    found = one_sum(how, [1, 0, 0, 0], [1, 0, 0, 0], 2.0**-11)
    assert found == {
        "exponent: a product has the largest",
        *("window: c loses bits", "window: a term is lost as a whole"),
        *("window: the first bit lost is set", "window: the sticky bit is set"),
        *("rounding: below half", "rounding: toward zero"),
    }
    assert one_sum(how, [1, -1, 0, 0], [1, 1, 0, 0], 0.0) == {
        *("exponent: a product has the largest", "window: no term loses a bit"),
        *("sum: cancellation to zero", "result: zero"),
    }
    narrow = Fused(4, 20, output="rne", output_fraction_bits=4)
    # 31/16 + 1/32 is half a place below 2, and its last bit kept is odd.
    assert one_sum(narrow, [1, 0, 0, 0], [1 / 32, 0, 0, 0], 31 / 16) == {
        *("exponent: c has the largest", "window: no term loses a bit", "rounding: tie, odd"),
        *("rounding: away from zero", "rounding: up to the next exponent"),
    }
    found = one_sum(Fused(2, 30), [60000, 60000], [60000, -np.inf], 1.0)
    assert found == {"result: infinite", "result: negative"}
    found = one_sum(Fused(2, 12, output="rne"), [300, 0], [300, 0], 0.0, "f16")
    assert {"result: overflow"} == {one for one in found if one.startswith("result")}


def test_events_of_other_arithmetic_by_hand() -> None:
    found = one_sum(Sequential(), [1, 2.0**-14], [1, 2.0**-10], 0.0)
    assert {"rounding: exact", "rounding: tie, even", "rounding: toward zero"} <= found
    rule = Rule("s8", "s32", Integer(2, 16), "a test", "none")
    watch = Coverage(rule, 2)
    a = np.full((2, 1, 2), -128, np.int8)
    c = np.array([0, 2**31 - 1]).astype(np.int32).reshape(2, 1, 1)
    mma_values(a, a.transpose(0, 2, 1), c, rule, watch)
    assert {name: found.tolist() for name, found in watch.hits.items() if found.any()} == {
        "sum: of a group, wraps": [1, 1],
        "result: in range": [1, 1],
        "result: negative": [1, 0],
    }


def test_exact_sums_of_many_terms_are_ties_where_they_are() -> None:
    from tcusim.machine.rules import Exact

    found = one_sum(Exact(), [1, 2.0**-12, 0], [1, 2.0**-12, 0], 0.0)
    assert "rounding: tie, even" in found
    found = one_sum(Exact(), [1, 2.0**-12, 2.0**-20], [1, 2.0**-12, 2.0**-24], 0.0)
    assert "rounding: above half" in found


WRONG = {
    # No operands of these types show results that overflow, or round to zero.
    "volta": {"alignment: sticky", "overflow: product", "zeros: signed"},
    "dot4.toml": {"overflow: product", "zeros: signed"},
}


@pytest.mark.parametrize("unit", WRONG)
def test_few_cases_tell_every_wrong_rule_that_can_be_told(unit: str) -> None:
    vectors = tcusim.golden_vectors(unit, count=64, tile="1x1x4")
    assert {name for name, first in vectors.wrong if first is None} == WRONG[unit]
    rules = dict(wrong_rules(vectors.rule, 4))
    a, b, c, d = values_of(vectors)
    for name, first in vectors.wrong:
        differ = mma_values(a, b, c, rules[name]).view(np.uint32) != d.view(np.uint32)
        assert (int(differ.argmax()) if differ.any() else None) == first


@pytest.mark.parametrize("name", ["hopper", "ampere", "ieee", "cdna3"])
def test_wrong_rules_are_right_rules_of_another_unit(name: str) -> None:
    for rule in arch_of(name).rows[:3]:
        others = [other for _, other in wrong_rules(rule, 16)]
        assert rule not in others
        assert len({(one.how, one.nan) for one in others}) == len(others)


# --- Files ------------------------------------------------------------------------------------


def read_memory(path: Path, width: int, shape: tuple[int, ...]) -> Any:
    """Return the memory of $readmemh: words of elements, the first in the lowest bits."""
    count = int(np.prod(shape))
    words = [int(one, 16) for one in path.read_text().splitlines() if not one.startswith("//")]
    rows = [[word >> width * i & 2**width - 1 for i in range(count)] for word in words]
    return np.array(rows, np.uint64).reshape(-1, *shape)


@pytest.mark.parametrize("form", ["hex", "npy", "csv", "c"])
@pytest.mark.parametrize(("ab", "tile"), [("f16", "1x1x4"), ("bf16", "5x7x3")])
def test_files_have_the_bits(form: str, ab: str, tile: str) -> None:
    unit = "dot4.toml" if ab == "f16" else "odd12.toml"
    vectors = tcusim.golden_vectors(unit, count=30, ab=ab)
    vectors.write("out", form)
    manifest = json.loads(Path("out/manifest.json").read_text())
    assert (manifest["format"], manifest["tile"], manifest["ab"]) == (form, tile, ab)
    names = [one["name"] for one in manifest["files"]]
    assert sorted([*names, "manifest.json"]) == sorted(one.name for one in Path("out").iterdir())
    for one in manifest["files"]:
        content = Path("out", one["name"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == one["sha256"]
    for port, said in zip(vectors.ports, manifest["ports"], strict=True):
        assert tuple(said["shape"]) == port.shape
        if form == "hex":
            found = read_memory(Path("out", f"{port.name}.hex"), said["bits"], port.shape)
        elif form == "npy":
            found = np.load(f"out/{port.name}.npy")
            assert found.dtype == port.dtype
        elif form == "csv":
            rows = list(csv.DictReader(Path("out/vectors.csv").read_text().splitlines()))
            assert [row["case"] for row in rows] == list(map(str, range(30)))
            chosen = [name for name in rows[0] if name.startswith(f"{port.name}_")]
            found = np.array([[int(row[name], 16) for name in chosen] for row in rows])
        else:
            text = Path("out/vectors.h").read_text().partition(f" tcusim_{port.name}[")[2]
            body = text.partition("= {\n")[2].partition("};")[0].splitlines()
            found = np.array(
                [[int(one.strip("{} u"), 16) for one in row.rstrip(",").split(",")] for row in body]
            )
        assert (found.reshape(port.bits.shape) == port.bits).all()


def test_patterns_of_few_bits_are_packed_without_gaps() -> None:
    from tcusim.judge.correctness.vector_files import hex_words

    assert hex_words(np.array([[0x3F, 1, 2]]), 6) == ["0207f"]
    assert hex_words(np.array([[0xF, 1, 2]]), 4) == ["21f"]


def test_bits_are_encoded_and_decoded() -> None:
    for fmt in FORMATS.values():
        if fmt.bits <= 16:
            bits = np.arange(2**fmt.bits)
            values = decoded(bits, fmt)
            numbers = ~np.isnan(values)
            assert (encoded(values, fmt) == bits)[numbers].all()
            assert np.isnan(decoded(encoded(values, fmt), fmt)[~numbers]).all()


def test_a_set_of_files_is_replaced_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    tcusim.golden_vectors("dot4.toml", count=4).write("out", "hex")
    Path("out/mine.sv").write_text("module mine; endmodule")
    before = {one.name: one.read_bytes() for one in Path("out").iterdir()}
    written = Path.write_bytes

    errors: list[BaseException] = [KeyboardInterrupt()]
    errors += [OSError(28, "No space left on device") for _ in range(2)]

    def full(self: Path, content: bytes) -> int:
        if "d.npy" in self.name:
            raise errors.pop()
        return written(self, content)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        with pytest.raises(InputError, match="cannot write vectors to out: no space left on dev"):
            tcusim.golden_vectors("dot4.toml", count=5).write("out", "npy")
        with pytest.raises(InputError, match="cannot write vectors to new: no space"):
            tcusim.golden_vectors("dot4.toml", count=5).write("new", "npy")
        with pytest.raises(KeyboardInterrupt):
            tcusim.golden_vectors("dot4.toml", count=5).write("new", "npy")
    assert {one.name: one.read_bytes() for one in Path("out").iterdir()} == before
    assert not Path("new").exists()
    tcusim.golden_vectors("dot4.toml", count=5).write("out", "npy")
    kept = {"a.npy", "b.npy", "c.npy", "d.npy", "manifest.json", "mine.sv"}
    assert {one.name for one in Path("out").iterdir()} == kept
    Path("out/manifest.json").write_text('{"files": [{"name": "../dot4.toml"}]}')
    written_together(Path("out"), {"manifest.json": b"{}"})
    assert Path("dot4.toml").exists()


# --- The command, and refusals ----------------------------------------------------------------


def test_the_command_writes_and_shows_the_coverage() -> None:
    shown = succeeds("vectors", "dot4.toml", "--count", "100")
    assert shown.startswith("coverage: dot4, mma 1x1x4, f16 to f32\n100 cases: ")
    assert "events were hit.\n\nwrong rules\n" in shown
    assert len(Path("dot4_mma/d.hex").read_text().splitlines()) == 102
    manifest = json.loads(Path("dot4_mma/manifest.json").read_text())
    assert [one["name"] for one in manifest["groups"]][-2:] == ["random", "drawn for the rule"]
    lines = succeeds("vectors", "dot4.toml", "--count", "100", "-o", "-").splitlines()
    ports = [
        read_memory(Path(f"dot4_mma/{name}.hex"), 64 if name < "c" else 32, (1,)) for name in "abcd"
    ]
    assert [[int(word, 16) for word in line.split()] for line in lines] == np.concatenate(
        ports, axis=1
    ).tolist()


def test_what_is_refused() -> None:
    assert "no tile with k = 5; its k: 4. The m and n of vectors may be any" in fails(
        1, "vectors", "dot4.toml", "--tile", "1x1x5"
    )
    with pytest.raises(InputError, match="op must be"):
        tcusim.golden_vectors("dot4.toml", "sum")
    assert "unknown unit or architecture 'dot5'" in fails(1, "vectors", "dot5")
    assert "--algorithm is of a reduction or a scan" in fails(
        1, "vectors", "dot4.toml", "--algorithm", "scan_t"
    )
    assert "scan_t is of the kind 'scan', and these vectors are of --op reduction" in fails(
        1, "vectors", "dot4.toml", "--op", "reduction", "--algorithm", "scan_t"
    )
    assert "cannot write vectors to dot4.toml: " in fails(
        1, "vectors", "dot4.toml", "-o", "dot4.toml", "--count", "5"
    )
    with pytest.raises(InputError, match="count must be"):
        tcusim.golden_vectors("dot4.toml", count=0)
    with pytest.raises(UnknownName, match="unknown unit"):
        tcusim.golden_vectors("dot5")
    with pytest.raises(Unsupported, match="no rule for s8 operands"):
        tcusim.golden_vectors("dot4.toml", ab="s8")


@pytest.mark.parametrize(
    ("scale", "ab"),
    [
        pytest.param("block32.ue8m0", "e4m3", marks=pytest.mark.full),
        ("mxf4nvf4.block16.ue4m3", "e2m1"),
    ],
)
def test_vectors_with_block_scales(scale: str, ab: str) -> None:
    vectors = tcusim.golden_vectors(
        "blackwell", count=80, tile="2x3x64", scale=scale, ab=ab, seed=1
    )
    rule, blocks = vectors.rule, 64 // vectors.rule.block
    assert rule.scale.endswith(scale)
    shapes = {port.name: port.bits.shape[1:] for port in vectors.ports}
    assert (shapes["scale_a"], shapes["scale_b"]) == ((2, blocks), (blocks, 3))
    values = {port.name: port.values for port in vectors.ports}
    d = tcusim.mma(
        *(values[name] for name in "abc"),
        arch="blackwell",
        ab=ab,
        scale_a=values["scale_a"],
        scale_b=values["scale_b"],
        scale=rule.scale_type,
    )
    assert np.array_equal(encoded(d, format_of("f32")), vectors.ports[-1].bits)
    # Every pattern of a scale is there.
    assert all(one.cases for one in vectors.coverage if one.name.startswith("scale: "))
    # Sums that reach the floor, or lose bits before the sum of a block, are few.
    missed = {name.partition(":")[0] for name, first in vectors.wrong if first is None}
    assert not missed & {"fused length", "fraction bits", "output rounding", "alignment", "nan"}
    vectors.write("scaled")
    manifest = json.loads(Path("scaled/manifest.json").read_text())
    assert manifest["rule"]["scale"] == rule.scale
    for port, said in zip(vectors.ports, manifest["ports"], strict=True):
        found = read_memory(Path("scaled", f"{port.name}.hex"), said["bits"], port.shape)
        assert (found == port.bits).all()


def test_what_is_refused_with_block_scales() -> None:
    with pytest.raises(Unsupported, match="block scales are of single mma: no program has them"):
        tcusim.golden_vectors("blackwell", "scan", scale="block32.ue8m0")
    with pytest.raises(InputError, match="of 32 products, and the tile 1x1x16 has 16; give a tile"):
        tcusim.golden_vectors("blackwell", tile="1x1x16", scale="block32.ue8m0")
    with pytest.raises(Unsupported, match=r"no products of e2m1 -> f32 with block7\.ue8m0; it has"):
        tcusim.golden_vectors("blackwell", ab="e2m1", scale="block7.ue8m0")
    with pytest.raises(Unsupported, match=r"with block32\.ue8m0; it has none with block scales"):
        tcusim.golden_vectors("dot4.toml", scale="block32.ue8m0")
    with pytest.raises(InputError, match="scales name the instruction"):
        tcusim.golden_vectors("blackwell", family="tcgen05", scale="block32.ue8m0")


def test_every_count_is_possible() -> None:
    for count in (1, 2, 3, 7):
        vectors = tcusim.golden_vectors("volta", count=count, tile="2x1x4")
        assert vectors.count == count == sum(number for _, number in vectors.groups)
    assert repr(vectors).startswith("<GoldenVectors volta, mma, 2x1x4, f16 -> f32: 7 cases, ")
    rule = rule_for("volta", "f16", "f32")
    assert vectors.rule == rule
