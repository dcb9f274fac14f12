"""tcusim.machine: the operations of each unit, its refusals, and a new unit."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from tcusim.errors import InputError, UnknownName, Unsupported
from tcusim.machine import Arch, Fused, Refusal, Rule, arch_of, arches, register_arch, rule_for

RULE = Rule("f16", "f32", Fused(2, 24), source="a data sheet", evidence="none")


PAIR = Arch("pair", "A unit of pairs", (999,), ("p1",), (RULE,), source="a data sheet")


# The module of a package that declares an architecture.
TOY = """
from tcusim.machine import Fused, Rule, Arch
RULE = Rule("f16", "f32", Fused(2, 24), source="a data sheet", evidence="none")
UNIT = Arch("toy", "A toy", (), ("toy1",), (RULE,), source="a data sheet")
"""


ENTRY = "[tcusim.arches]\ntoy = toy_package:UNIT\n"


# The names of GPUs by architecture: data sheets, drivers and users spell them in several ways.
NAMES = {
    "volta": ("v100", "sm_70", "Tesla V100-SXM2-16GB"),
    "turing": ("T4", "sm_75"),
    "ampere": (
        *("a100", "A2", "sm_80", "sm_86", "sm_87", "3090", "a10", "A40"),
        *("NVIDIA GeForce RTX 3080 Ti", "NVIDIA A100-SXM4-80GB"),
    ),
    "ada": (
        *("l40s", "sm_89", "rtx 4090", "RTX4090", "l4", "L40"),
        *("NVIDIA GeForce RTX 4090", "NVIDIA RTX 1000 Ada Generation Laptop GPU"),
    ),
    "hopper": (
        *("H100", "h200", "sm_90", "H20", "h800"),
        *("NVIDIA GH200 480GB", "NVIDIA H100 80GB HBM3"),
    ),
    "blackwell": ("b200", "sm_100", "sm_103", "sm_110", "GB200", "b300"),
    "blackwell_rtx": ("sm_120", "sm_121", "5090"),
    "ieee": ("ieee",),
    "exact": ("exact",),
}


@pytest.mark.parametrize("arch", NAMES)
def test_names_of_gpus(arch: str) -> None:
    assert {name: arch_of(name).name for name in NAMES[arch]} == dict.fromkeys(NAMES[arch], arch)


def test_unknown_architecture() -> None:
    with pytest.raises(UnknownName, match=r"unknown architecture 'hoper'\. Did you mean 'hopper'"):
        arch_of("hoper")


@pytest.mark.parametrize(
    ("arch", "ab", "acc", "message"),
    [
        ("volta", "bf16", "f32", "no bf16 .sm_80 is the first.; use arch 'ampere'"),
        ("turing", "bf16", "f32", "Turing tensor cores have no bf16"),
        ("volta", "tf32", "f32", "no tf32"),
        ("turing", "tf32", "f32", "no tf32"),
        ("volta", "f64", "f64", "no f64"),
        ("turing", "f64", "f64", "no f64"),
        ("volta", "s8", "s32", "sm_70 tensor cores have no integers .sm_72 is the first.; use"),
        ("volta", "u8", "s32", "no integers"),
        ("volta", "e4m3", "f32", "no 8-bit floats .sm_89 is the first.; use arch 'ada'"),
        ("turing", "e5m2", "f32", "no 8-bit floats"),
        ("ampere", "e4m3", "f16", "ampere .NVIDIA Ampere., ab 'e4m3', acc 'f16': Ampere tensor"),
        ("hopper", "bf16", "f16", "bf16 accumulates in f32 here"),
        ("ada", "e4m3", "s32", "e4m3 accumulates in f32 or f16 here"),
        (
            "hopper",
            "f32",
            "f32",
            "operands; this architecture takes f16, bf16, tf32, e4m3",
        ),
        ("exact", "f64", "f32", "f64 accumulates in f64 here"),
    ],
)
def test_refusals(arch: str, ab: str, acc: str, message: str) -> None:
    with pytest.raises(Unsupported, match=message):
        rule_for(arch, ab, acc)


def test_unknown_types() -> None:
    with pytest.raises(UnknownName, match="unknown type 'half'"):
        rule_for("hopper", "half", "f32")
    with pytest.raises(UnknownName, match="unknown type 'float'"):
        rule_for("hopper", "f16", "float")


# --- adding units ----------------------------------------------------------------------------


def test_register() -> None:
    assert register_arch(PAIR) is PAIR
    assert arch_of("sm_999") is arch_of("P1") is PAIR
    assert PAIR in arches()


def test_a_name_is_taken_once() -> None:
    register_arch(PAIR)
    other = Arch("other", "Other", (), ("p1",), (RULE,), source="s")
    with pytest.raises(
        InputError, match="there is already an architecture 'p1', from register_arch"
    ):
        register_arch(other)


def test_entry_point(declare: Callable[..., None]) -> None:
    declare(ENTRY, TOY)
    assert arch_of("volta").name == "volta"
    assert "toy_package" not in sys.modules
    assert arch_of("Toy1").title == "A toy"
    assert [unit.name for unit in arches()].count("toy") == 1


def test_an_entry_point_may_register_its_unit_itself(declare: Callable[..., None]) -> None:
    declare(ENTRY, TOY + "import tcusim\ntcusim.register_arch(UNIT)\n")
    assert arch_of("toy").title == "A toy"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"length": 0}, "Fused.length must be an integer of at least 1, got 0"),
        ({"length": 4.5}, "Fused.length must be an integer of at least 1, got 4.5"),
        ({"length": "4"}, "Fused.length must be an integer of at least 1, got '4'"),
        ({"length": True}, "Fused.length must be an integer of at least 1, got True"),
        ({"fraction_bits": 0}, "fraction_bits must be an integer of at least 1, got 0"),
        ({"output_fraction_bits": 9.5}, "output_fraction_bits must be an integer of at least 1"),
        ({"output": None}, "Fused.output must be one of rne, .*, odd, got None"),
        ({"flush_inputs": 1}, "Fused.flush_inputs must be True or False, got 1"),
        ({"flush_outputs": "no"}, "Fused.flush_outputs must be True or False, got 'no'"),
        ({"register_halves": None}, "Fused.register_halves must be True or False, got None"),
        ({"fraction_bits": 50}, r"16 terms with 50 fraction bits needs sums beyond 2\*\*53"),
        ({"output": "up"}, "Fused.output must be one of rne, .*, odd, got 'up'"),
        ({"alignment": "up"}, "Fused.alignment must be one of rne, .*, sticky, got 'up'"),
        ({"c_joins": "before"}, "Fused.c_joins must be one of sum, after, or a Late, got 'before'"),
        ({"exponent_floor": -900}, "exponent_floor must be an integer within -500..500, got -900"),
        ({"exponent_floor": -9.0}, "exponent_floor must be an integer within -500..500, got -9.0"),
    ],
)
def test_wrong_parameters(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Fused(**{"length": 16, "fraction_bits": 25, **fields})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": "Pair"}, "names must be lower case, got 'Pair'"),
        ({"aliases": ("pair",)}, "a name is given twice"),
        ({"rows": ()}, "'pair' needs at least one rule"),
        ({"rows": (RULE, RULE)}, "has two rules for f16 -> f32"),
        ({"recorded": ("b1",)}, "recorded names 'b1', which is no alias"),
        ({"name": 5}, "Arch 5: names must be lower case, got 5"),
        ({"sm": None}, "'pair': sm must be a tuple of int, got None"),
        ({"aliases": "b1"}, "aliases must be a tuple of str, got 'b1'"),
        ({"rows": [RULE]}, "rows must be a tuple of Rule, got"),
        ({"shared_kb": 0}, "shared_kb, if it is known, must be an integer of at least 1, got 0"),
    ],
)
def test_wrong_units(fields: dict[str, Any], message: str) -> None:
    usual = {"name": "pair", "title": "t", "sm": (), "aliases": (), "rows": (RULE,), "source": "s"}
    with pytest.raises(InputError, match=message):
        Arch(**{**usual, **fields})


def test_an_architecture_whose_arithmetic_nobody_knows_says_so() -> None:
    why = "nobody has published how it sums"
    register_arch(Arch("dark", "Dark", (), (), (), "s", refusals=(Refusal("", "", why),)))
    with pytest.raises(Unsupported, match=rf"dark \(Dark\), ab 'bf16', acc 'f32': {why}"):
        rule_for("dark", "bf16", "f32")
