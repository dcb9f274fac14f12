"""Copies from and to ranges as moves of their piece of memory: the copies, and the moves."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from tcusim.algorithms import build
from tcusim.machine.shapes import MmaShape
from tcusim.program.grammar import Assign, Operation, Program, part_of, sum_of, views_of, walk
from tcusim_cuda.contiguous import ContiguousCopy, contiguous_copy
from tcusim_cuda.emit import emit


def moves(name: str, **options: Any) -> tuple[Program, list[ContiguousCopy]]:
    """Return a program and those of its copies that are such moves."""
    program = build(name, **options)
    copies = [step for _, step in walk(program.steps) if isinstance(step, Assign)]
    found = [contiguous_copy(program, copy) for copy in copies]
    return program, [one for one in found if one is not None]


HALVES: dict[str, Any] = {"segment_size": 32, "result": "f16"}


def test_chunks_are_read_in_whole_vectors_where_all_around_them_is_in_the_array() -> None:
    _, (read,) = moves("reduction_ragged", segment_size=32)
    assert read.test == "piece_found.close && piece_found.inner"
    (line,) = read.lines()
    assert line == (
        "tcu::gather_rows<32, 32, 40>(&kept[0], in + piece_begin[0], &piece_place[0], "
        "piece_found.shortest);"
    )


def test_results_of_two_bytes_are_staged_where_ranges_follow_each_other() -> None:
    _, (_, written) = moves("scan_ragged", **HALVES)
    assert written.test == "piece_found.follow"
    assert written.lines()[0].startswith(
        "tcu::scatter_rows<32, 32>(out + piece_begin[0], &piece_place[0], piece_found.shortest, "
        "&piece_stage[0],"
    )


def test_words_of_products_are_written_one_by_one() -> None:
    program, (read,) = moves("scan_ragged", segment_size=32)
    assert read.test.endswith("inner")
    assert "scatter" not in emit(program).text


def test_other_words_are_written_where_they_are_close() -> None:
    _, found = moves("scan_ragged_simt", source="f32", segment_size=32)
    written = [one for one in found if not one.test.endswith("inner")]
    assert {one.test for one in written} == {"piece_found.close"}
    sizes = [one.lines()[0].partition("(")[0] for one in written]
    assert [re.sub(r"<\d+, ", "<", size) for size in sizes] == [
        "tcu::scatter_elements<32>",
        "tcu::scatter_elements<1>",
    ]


@pytest.mark.parametrize("source", ["f32", "f64"])
def test_words_are_read_where_they_are(source: str) -> None:
    _, (read, first) = moves("reduction_ragged_simt", source=source, segment_size=32)
    assert read.lines()[0].startswith("tcu::gather_elements<")
    # Of chunks of one element each is read alone.
    assert re.match(r"tcu::gather_elements<\d+, 1, ", first.lines()[0])


def test_columns_of_a_rectangle_are_ranges_too() -> None:
    """Data on the right of a product lie in columns of shared memory."""
    _, (read,) = moves("reduction_ragged", segment_size=32, side="b")
    assert read.lines()[0].startswith("tcu::gather_rows<")


def test_what_is_not_as_it_lies_in_memory_is_no_move() -> None:
    # Of chunks of 7 elements of 2 bytes no vectors are filled.
    program, found = moves("reduction_ragged", tile=MmaShape(4, 2, 7), segment_size=14)
    assert not found
    program, (read, _) = moves("scan_ragged", **HALVES)
    step = read.step
    (src,) = views_of(step.value)
    assert contiguous_copy(program, step) == read
    for other in (
        replace(step, value=part_of(Operation.FINITE, src)),
        replace(step, value=sum_of(src, step.dst)),
        replace(step, value=replace(src, offset=src.offset + 1)),
        replace(step, dst=replace(step.dst, offset=step.dst.offset + 1)),
        replace(step, dst=replace(step.dst, buffer=replace(step.dst.buffer, dtype="f32"))),
    ):
        assert contiguous_copy(program, other) is None


@pytest.mark.parametrize("name", ["reduction_ragged", "scan_ragged"])
def test_each_move_has_another_way_behind_it(name: str) -> None:
    program, found = moves(name, **HALVES)
    text = emit(program).text
    for one in found:
        move = re.search(
            re.escape(f"if ({one.test}) {{") + r"\n.*?\n +}\n +else {\n +tcu::move_tested<",
            text,
            re.DOTALL,
        )
        assert move is not None, one.test
        assert one.lines()[0] in move[0]
