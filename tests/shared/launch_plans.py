"""Plans that tests make below the public functions: all that they know of the planner."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from tcusim.arrays.calls import forget
from tcusim.arrays.planner import choose
from tcusim.arrays.plans import launches_for
from tcusim.arrays.problem import MOST_FLOAT16, Problem, RaggedProblem, Types, tile_for
from tcusim.arrays.tuned import TUNED, with_numbers
from tcusim.arrays.tuning import DEFAULT, RaggedTuning, Tuning
from tcusim.machine.shapes import shape_of
from tcusim.program.launches import LaunchPlan

__all__ = [
    "HALVES",
    "IN_ROUNDS",
    "LONGEST_LIST",
    "MOST_FLOAT16",
    "Types",
    "forget_plans",
    "launch_plan",
    "tunings",
]

# Operands, accumulator, elements of the array and of the result.
HALVES = ("f16", "f32", "f16", "f32")
# Values that a warp adds up without tensor cores.
LONGEST_LIST = DEFAULT.ragged.simt_values
# Any segment by offsets is cut into rounds of a tree.
IN_ROUNDS = replace(DEFAULT, ragged=replace(DEFAULT.ragged, few_values=1))


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
        return choose(RaggedProblem(segments=segments, **common), "a plan", tuning).plan
    return choose(Problem(segment_size=size or length, **common), "a plan", tuning).plan


def powers(least: int, most: int) -> st.SearchStrategy[int]:
    return st.integers(least.bit_length() - 1, most.bit_length() - 1).map(lambda i: 1 << i)


@st.composite
def tunings(draw: st.DrawFn) -> Tuning:
    """Draw all numbers by which plans choose, except those that are arithmetic."""
    tuning = DEFAULT
    for kind in ("reduction", "scan"):
        drawn = [(name, draw(powers(*limits))) for name, limits in TUNED.items()]
        tuning = with_numbers(tuning, kind, drawn)
    cut = draw(powers(2, 128))
    ragged = RaggedTuning(
        least_cut=cut,
        simt_values=draw(powers(cut, 512)),
        few_values=draw(powers(1, 2**20)),
        held_values=draw(powers(64, 2048)),
        rows=draw(powers(1, 32)),
        warps=draw(powers(1, 8)),
        items=draw(powers(1, 8)),
        simt_items=draw(powers(1, 8)),
    )
    return replace(tuning, ragged=ragged)
