"""The drawings of the site by name, for its pages and lessons: `<!-- figure: NAME -->`.

Each is a function that returns HTML with SVG inside, drawn from data when the site is built.
"""

from __future__ import annotations

from draw_code import rooms
from draw_gpu import barriers, hierarchy, lanes, launches, tiling
from draw_idea import grid, pipeline, reduction, scan
from draw_lessons import (
    block_sum,
    equalised,
    roofline,
    stages,
    status_words,
    step_to_cuda,
    tree,
    wmma_shapes,
)
from draw_numerics import alignment
from draw_plans import strategies

__all__ = [
    "alignment",
    "barriers",
    "block_sum",
    "equalised",
    "grid",
    "hierarchy",
    "lanes",
    "launches",
    "pipeline",
    "reduction",
    "roofline",
    "rooms",
    "scan",
    "stages",
    "status_words",
    "step_to_cuda",
    "strategies",
    "tiling",
    "tree",
    "wmma_shapes",
]
