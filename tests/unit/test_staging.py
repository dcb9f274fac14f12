"""Common parts of products: copies of warps, accumulators in short chains, and stages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hand_built import builder
from tcusim.algorithms import build
from tcusim.algorithms.staging import Pipeline, Stage, Sums, Turn, edge, rows_of_warp
from tcusim.errors import Unsupported
from tcusim.machine.formats import format_of
from tcusim.machine.shapes import MmaShape
from tcusim.program.grammar import COL, Add, Const, Frag, Index, Loop, Mma, PatternKind, Step
from tcusim.simulate.interpreter import interpret, run_numpy


@pytest.mark.parametrize("warps", [1, 2, 4, 8])
@pytest.mark.parametrize("rows", [1, 7, 16, 33])
def test_each_row_is_copied_by_one_warp(warps: int, rows: int) -> None:
    count, first, bounds = rows_of_warp(warps, rows)
    copied = [
        first.evaluate(here) + row
        for warp in range(warps)
        for row in range(count)
        for here in [{"warp": warp, "row": row}]
        if all(bound.excess.evaluate(here) < 0 for bound in bounds)
    ]
    assert copied == list(range(rows))


def test_pieces_that_fill_a_size_have_no_edge() -> None:
    assert edge(COL, 32, 16) == []
    (bound,) = edge(COL, 33, 16)
    assert [bound.excess.evaluate({"col": col}) < 0 for col in (32, 33)] == [True, False]


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 9, None])
def test_no_chain_is_longer_than_its_limit(limit: int | None) -> None:
    """Whatever is left over: 8 tiles, between two of whose additions at most so many accumulate."""
    program = build("gemm_naive", inner=8 * 16, accumulation_length=limit)
    a, b = np.ones((16, 128), np.float16), np.ones((128, 16), np.float16)
    chains, products = [0], 0
    for event in interpret(program, {"a": a.ravel(), "b": b.ravel()}):
        if isinstance(event.step, Mma):
            products += 1
            chains[-1] += 1
        elif isinstance(event.step, Add):
            chains.append(0)
    assert products == 8
    assert max(chains) == min(limit or 8, 8)
    # Without a shorter limit they accumulate in the total itself.
    assert (len(chains) == 1) == (limit is None or limit >= 8)


def test_parts_have_an_accumulator_for_what_is_small() -> None:
    plain = Sums(builder(), 4, 2, 3)
    assert (len(plain.totals), plain.small, plain.large is plain.totals) == (6, {}, True)
    parts = Sums(builder(ab="bf16", source="f32"), 4, 2, 3)
    assert (len(parts.totals), len(parts.small), parts.large is parts.totals) == (6, 6, False)


@pytest.mark.parametrize("ab", ["f16", "bf16", "s8"])
@pytest.mark.parametrize("cols", [16, 32, 48, 64])
def test_rows_of_a_stage_lie_in_different_banks(ab: str, cols: int) -> None:
    b = builder(ab=ab)
    stage = Stage(b, "x", 16, cols, b.k)
    itemsize = format_of(ab).itemsize
    assert stage.ldm >= stage.panel
    assert stage.ldm * itemsize // 16 % 2 == 1
    assert stage.panels * stage.panel == cols
    # WMMA takes tiles at multiples of 32 bytes.
    assert {at * itemsize % 32 for at in range(0, stage.panel, stage.width)} == {0}


def test_narrow_tiles_have_panels_of_their_own() -> None:
    narrow = Stage(builder(MmaShape(8, 8, 8)), "x", 8, 32, 8)
    assert (narrow.panel, narrow.panels) == (8, 4)
    wide = Stage(builder(), "x", 8, 32, 16)
    assert (wide.panel, wide.panels) == (32, 1)


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("limit", [None, 1, 4, 6])
@pytest.mark.parametrize("count", [*range(1, 9), 21])
def test_a_step_is_multiplied_from_the_stage_that_it_was_copied_to(
    count: int, limit: int | None, stages: int
) -> None:
    """No copy overwrites a step before its products; chains end as they do with two stages."""
    for chunk in (None, 4):
        done, chains = turns(count, limit, stages, chunk)
        held, multiplied = dict[int, int](), list[int]()
        for what, stage, step in done:
            assert 0 <= step < count
            if what == "fill":
                assert held.get(stage, -1) in {-1, *multiplied}
                held[stage] = step
            else:
                assert held[stage] == step
                multiplied.append(step)
        assert multiplied == list(range(count))
        assert chains == turns(count, limit, 2, chunk)[1]


def turns(
    count: int, limit: int | None, stages: int, chunk: int | None
) -> tuple[list[tuple[str, int, int]], list[int]]:
    """Return the copies and products of a pipeline in order, and the length of each chain."""
    b = builder(accumulation_length=limit)
    sums = Sums(b, count)
    line = Pipeline(sums, count, 1, stages, chunk)
    marks: list[tuple[str, int, Index]] = []

    def mark(what: str, stage: int, step: Index) -> None:
        # A product, as a step of the program that says which it is.
        marks.append((what, stage, step))
        b.const(b.left(f"F{len(marks) - 1}"), PatternKind.ROW, step)

    def multiply(turn: Turn) -> None:
        turn.copy()
        mark("multiply", turn.stage, turn.step)
        sums.tiles(1, turn.span, lambda q: sums.multiply((0, 0), [b.left("A")], [b.right("B")]))

    line.start(lambda stage, step: mark("fill", stage, step))
    line.run(lambda stage, step: mark("fill", stage, step), multiply, None)
    found: list[tuple[str, int, int]] = []
    chains = [0]

    def run(steps: tuple[Step, ...], env: dict[str, int]) -> None:
        for step in steps:
            match step:
                case Loop(var, size, body):
                    for value in range(size.constant or 0):
                        run(body, {**env, var: value})
                case Const(Frag(name=name), pattern) if name.startswith("F"):
                    what, stage, _ = marks[int(name[1:])]
                    found.append((what, stage, int(pattern.offset.evaluate(env))))
                case Mma():
                    chains[-1] += 1
                case Add():
                    chains.append(0)
                case _:
                    pass

    run(tuple(b._steps.steps), {})
    return found, chains


def test_a_pipeline_needs_two_stages() -> None:
    with pytest.raises(Unsupported, match="stages must be at least 2: while one is multiplied"):
        build("gemm", stages=1)


@pytest.mark.parametrize("steps_of_chunk", [3, 5, 17])
def test_stages_take_turns_where_chunks_have_an_odd_number_of_steps(steps_of_chunk: int) -> None:
    chunk = 16 * 8 * steps_of_chunk
    a = np.random.default_rng(2).integers(-2, 3, (20, 7 * chunk + 5))
    options: dict[str, Any] = {"inner": a.shape[1], "chunk": chunk, "width": 2, "stages": 8}
    options |= {"share_rows": True, "warps": 4, "accumulation_length": 8}
    program = build("gemv_reduction", **options)
    found = run_numpy(program, {"a": a.astype(np.float16).ravel(), "b": a[3].astype(np.float16)})
    np.testing.assert_array_equal(found["out"], a @ a[3])
