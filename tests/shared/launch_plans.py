"""Plans that tests make below the public functions: all that they know of the planner."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np

from tcusim.arrays.calls import forget
from tcusim.arrays.planner import choose
from tcusim.arrays.plans import launches_for
from tcusim.arrays.problem import Problem, ProductProblem, Types, tile_for
from tcusim.arrays.tuning import Block, Tuning, tuning_of
from tcusim.machine.shapes import shape_of
from tcusim.program.launches import LaunchPlan

# Operands, accumulator, elements of the array and of the result.
HALVES = ("f16", "f32", "f16", "f32")
# Values that a warp adds up without tensor cores.
USUAL = tuning_of("hopper")
LONGEST_LIST = USUAL.ragged.simt_values
# Any segment by offsets is cut into rounds of a tree.
IN_ROUNDS = replace(USUAL, ragged=replace(USUAL.ragged, few_values=1))


def forget_plans() -> None:
    """Drop the plans and prepared calls that the functions on arrays keep."""
    launches_for.cache_clear()
    forget()


def launch_plan(
    kind: str,
    length: int,
    *,
    size: int | None = None,
    segments: int | None = None,
    types: Any = HALVES,
    tile: Any = None,
    tuning: Tuning | None = None,
    **more: Any,
) -> LaunchPlan:
    """Return the launches for types that arrays have in GPU memory alone, such as int8 to int64.

    Segments are of one size, or so many by offsets; the whole array is one by default.
    """
    chosen = types if isinstance(types, Types) else Types(*types)
    common: dict[str, Any] = {
        "kind": kind, "length": length, "types": chosen,
        "tile": tile_for(chosen, None) if tile is None else shape_of(tile), **more,
    }  # fmt: skip
    if segments is not None:
        return choose(Problem(by_offsets=segments, **common), "a plan", tuning).plan
    return choose(Problem(segment_size=size or length, **common), "a plan", tuning).plan


def product_plan(
    rows: int, inner: int, cols: int | None, *, types: Any, tuning: Tuning | None = None
) -> LaunchPlan:
    """Return the launch of a product on Hopper, by a vector if there are no columns."""
    chosen = Types(*types)
    problem = ProductProblem(
        types=chosen, tile=tile_for(chosen, None), arch="hopper", rows=rows, inner=inner, cols=cols
    )
    return choose(problem, "a plan", tuning).plan


# Places in a table of blocks, not sizes.
_PLACES = ("for_few_lines", "for_few_results")


def drawn_tuning(rng: np.random.Generator) -> Tuning:
    """Return a tuning with all numbers drawn around the usual ones, each a legal one."""
    drawn: Tuning = _drawn(USUAL, rng)
    return drawn


def _drawn(value: Any, rng: np.random.Generator, name: str = "") -> Any:
    if isinstance(value, Block):
        return _block(rng)
    if is_dataclass(value) and not isinstance(value, type):
        names = [one.name for one in fields(value) if one.name not in _PLACES]
        return replace(value, **{one: _drawn(getattr(value, one), rng, one) for one in names})
    if isinstance(value, dict):
        return {key: _drawn(one, rng, name) for key, one in value.items()}
    if isinstance(value, tuple) and isinstance(value[0], tuple):
        # A table by rows; the first one begins at 1.
        kept = [row for row in value if row[0] == 1 or rng.random() < 0.7]
        return tuple((first, *(_drawn(one, rng, name) for one in row)) for first, *row in kept)
    if isinstance(value, tuple):
        return tuple(_drawn(one, rng, name) for one in value)
    if isinstance(value, float):
        return float(rng.choice([0.25, 0.5, 0.75, 1]))
    if name.endswith("stages"):
        return int(rng.integers(2, 9))
    if value & (value - 1) == 0:
        return int(value * 2.0 ** rng.integers(-2, 3)) or value
    return max(1, int(value * rng.uniform(0.5, 2)))


def _block(rng: np.random.Generator) -> Block:
    warps = 1 << int(rng.integers(0, 4))
    height, width = (16 << int(rng.integers(0, 3)) for _ in range(2))
    down = 1 << int(rng.integers(0, warps.bit_length()))
    return Block(warps, down, height, width, stages=int(rng.integers(2, 5)))
