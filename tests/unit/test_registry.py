"""The registry of algorithms, and the refusals of `build`."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from tcusim.algorithms import (
    Algorithm,
    Level,
    algorithm_of,
    algorithms,
    build,
    register_algorithm,
    segmented_algorithms,
)
from tcusim.algorithms.tile_scan import FORMS
from tcusim.errors import InputError, UnknownName, Unsupported
from tcusim.program.grammar import walk


def test_paper_names_build_the_same_steps() -> None:
    for row in segmented_algorithms():
        if row.alias:
            paper, general = build(row.alias.upper()), build(row.name)
            assert (paper.name, general.name) == (row.alias, row.name)
            assert paper.steps == general.steps


def test_every_row_says_what_it_does_and_where_it_is_from() -> None:
    for row in segmented_algorithms():
        assert row.title.endswith(".")
        assert row.kind in ("reduction", "scan")
        assert row.source
        # Of the paper's algorithms a warp takes whole rows or tiles, not the number best for a GPU.
        assert bool(row.formula) == ("DAKKAK19" in row.source and row.level is not Level.GRID)


def test_options_have_types_defaults_and_words() -> None:
    for row in algorithms():
        for option in row.options.values():
            assert option.type in (int, bool, str, tuple), (row.name, option)
            assert option.doc.endswith("."), (row.name, option)
    form = algorithm_of("scan_tn").options["form"]
    assert (form.type, form.default, form.choices) == (str, None, FORMS)
    assert algorithm_of("gemm").options["depth"].default == 2
    assert list(algorithm_of("scan_ragged").options) == [
        "levels", "whole", "carry", "exclusive", "reverse",
    ]  # fmt: skip


def test_a_limited_row_is_the_longer_algorithm() -> None:
    for short, long in (("reduction_k", "reduction_kn"), ("scan_t", "scan_tn")):
        size = 256 if algorithm_of(short).tiles else 16
        # All but the lines of the listing that they are.
        one, two = build(short), build(long, segment_size=size)
        kinds = [[type(step) for _, step in walk(program.steps)] for program in (one, two)]
        assert kinds[0] == kinds[1]
        assert algorithm_of(short).function is algorithm_of(long).function


def test_a_name_is_registered_once() -> None:
    row = algorithm_of("scan_t")
    assert register_algorithm(row) is row
    taken = "there is already an algorithm 'scan_t', from tcusim itself"
    with pytest.raises(InputError, match=taken):
        register_algorithm(replace(row, source="mine"))


def test_a_taken_alias_is_refused() -> None:
    row = algorithm_of("scan_t")
    other = Algorithm(row.function, "scan_mine", "scan", "mine", alias="scan_256")
    with pytest.raises(InputError, match="there is already an algorithm 'scan_256', from tcusim"):
        register_algorithm(other)


@pytest.mark.parametrize(
    ("shape", "reduction_side", "scan_side"),
    [("16x16x16", "b", "a"), ("32x8x16", "a", "a"), ("8x32x16", "b", "b")],
)
def test_the_default_side_holds_more_segments(
    shape: str, reduction_side: str, scan_side: str
) -> None:
    assert build("reduction_t", tile=shape) == build("reduction_t", tile=shape, side=reduction_side)
    assert build("scan_t", tile=shape) == build("scan_t", tile=shape, side=scan_side)


@pytest.mark.parametrize(
    ("name", "keywords", "error", "text"),
    [
        ("scan_tm", {}, UnknownName, "unknown algorithm 'scan_tm'. Did you mean 'scan_t"),
        ("median", {}, UnknownName, "Valid: gemm, gemm_naive, gemv, "),
        ("scan_t", {"tile": "16x16"}, InputError, "a shape is written '16x16x16', 'm16n16k16' or"),
        ("scan_t", {"tile": (1, 2)}, InputError, "a shape is written '16x16x16', 'm16n16k16' or"),
        ("scan_t", {"ab": "f61"}, UnknownName, "unknown type 'f61'. Did you mean 'f64'? Valid: "),
        ("scan_t", {"acc": "f23"}, UnknownName, "unknown type 'f23'. Did you mean 'f32'?"),
        ("scan_t", {"source": "half"}, UnknownName, "unknown type 'half'. Valid: bf16, e2m1, "),
        ("scan_t", {"result": "half"}, UnknownName, "unknown type 'half'. Valid: bf16, e2m1, "),
        ("scan_t", {"side": "c"}, InputError, "side must be one of a, b, got 'c'"),
        (
            "scan_t",
            {"combine": "sum"},
            InputError,
            "combine must be one of mma, add, got 'sum'",
        ),
        ("scan_t", {"warps": 0}, InputError, "warps must be an integer of at least 1, got 0"),
        ("scan_t", {"warps": True}, InputError, "warps must be an integer of at least 1, got True"),
        (
            "scan_t",
            {"items_per_warp": 0},
            InputError,
            "items_per_warp must be an integer of at least 1, got 0",
        ),
        (
            "scan_t",
            {"accumulation_length": 0},
            InputError,
            "accumulation_length must be an integer of at least 1, got 0",
        ),
        (
            "scan_t",
            {"segment_size": 1.5},
            InputError,
            "segment_size must be an integer of at least 1, got 1.5",
        ),
        ("scan_t", {"segment_size": -4}, InputError, "segment_size must be an integer of at least"),
        ("scan_t", {"tiel": 3}, InputError, "Those of every algorithm: tile, segment_size, "),
        (
            "scan_k",
            {"form": None},
            InputError,
            "scan_k has no option 'form'; its options: carry, exclusive, reverse",
        ),
        (
            "reduction_tn",
            {"efficient": False},
            InputError,
            "reduction_tn has no option 'efficient'; its options: none",
        ),
        (
            "scan_t",
            {"form": "A(L1)"},
            InputError,
            "unknown form 'A(L1)'; valid: (LA)1, L(A1), [U|1]",
        ),
        (
            "scan_t",
            {"form": "[U|1]"},
            Unsupported,
            "form '[U|1]' needs more result columns than k; the shape 16x16x16 with data as "
            "operand a has 16 and k = 16. Use 'L(A1)'",
        ),
        (
            "scan_tn",
            {"form": "(LA)1", "combine": "add"},
            Unsupported,
            "form '(LA)1' rounds partial sums to the operand type; combine 'add' takes 'L(A1)'",
        ),
        (
            "reduction_k",
            {"segment_size": 17},
            Unsupported,
            "reduction_k sums segments of at most k = 16 elements",
        ),
        (
            "reduction_t",
            {"segment_size": 257},
            Unsupported,
            "reduction_t sums segments of at most a tile, 256 elements",
        ),
        (
            "scan_k",
            {"segment_size": 17},
            Unsupported,
            "scan_k scans segments of at most k = 16 elements",
        ),
        (
            "scan_t",
            {"segment_size": 257},
            Unsupported,
            "scan_t scans segments of at most a tile, 256 elements",
        ),
        (
            "reduction_tn_inefficient",
            {"combine": "add"},
            Unsupported,
            "reduction_tn_inefficient has no combine 'add', only 'mma'",
        ),
        (
            "scan_256",
            {"tile": "16x16x8", "ab": "tf32"},
            Unsupported,
            "'scan_256' is the paper's name for k = 16, but 16x16x8 has k = 8; use 'scan_t'",
        ),
        (
            "reduction_t",
            {"ab": "s8", "acc": "s32"},
            Unsupported,
            "partial sums do not fit operands of type s8; build with combine 'add'",
        ),
        (
            "scan_t",
            {"ab": "s8", "acc": "s32"},
            Unsupported,
            "partial sums do not fit operands of type s8; build with combine 'add'",
        ),
        (
            "scan_t",
            {"ab": "bf16", "source": "f32"},
            Unsupported,
            "a f32 tile is several bf16 parts, which combine 'mma' cannot scan; use combine 'add'",
        ),
        (
            "scan_t",
            {"source": "bf16"},
            Unsupported,
            "a source of type bf16 cannot be split into parts of type f16; the source must be as "
            "wide, of f16, f32, f64",
        ),
        (
            "scan_t",
            {"ab": "tf32", "source": "bf16"},
            Unsupported,
            "a source of type bf16 cannot be split into parts of type tf32",
        ),
        (
            "scan_t",
            {"source": "s32"},
            Unsupported,
            "a source of type s32 cannot be split into parts of type f16",
        ),
    ],
)
def test_what_build_refuses(
    name: str, keywords: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=re.escape(text)):
        build(name, **keywords)
