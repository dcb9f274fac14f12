"""The problem that a request poses for arrays of a layout, whose elements have these types."""

from __future__ import annotations

from typing import Any

from tcusim.arrays.dtypes import TypeRule
from tcusim.arrays.problem import (
    Problem,
    ProductProblem,
    RaggedProblem,
    rounded_longest,
    tile_for,
)
from tcusim.arrays.request import (
    Layout,
    Options,
    ProductLayout,
    SegmentRequest,
)
from tcusim.arrays.sizes import longest_scanned

__all__ = ["lies_by_offsets", "product_problem", "segment_problem"]


def segment_problem(
    request: SegmentRequest, layout: Layout, rule: TypeRule, options: Options, arch: str,
    longest: int | None = None, *, carry: bool = False,
) -> Problem | RaggedProblem:  # fmt: skip
    """Return the problem of a sum or scan of arrays of a layout."""
    length = layout.rows * (layout.length + layout.missing)
    common = _common(rule, options, arch)
    common |= {"kind": request.kind, "length": length, "order": request.order}
    # Digits are added up as they are, and initial values to their sums.
    common["carry"] = carry and rule.method not in ("digits", "fixed point")
    if layout.by_offsets is None:
        return Problem(segment_size=min(layout.segment_size, length), **common)
    return RaggedProblem(
        segments=layout.by_offsets * layout.rows,
        longest=rounded_longest(longest, length, common["tile"].k),
        **common,
    )


def lies_by_offsets(layout: Layout, rule: TypeRule, options: Options) -> bool:
    """Return whether segments of one size are scanned by offsets: they are too long to share."""
    if options.algorithm is not None or layout.by_offsets is not None:
        return False
    if layout.kind != "scan":
        return False
    longest = longest_scanned(tile_for(rule.types, options.tile))
    return longest is not None and layout.segment_size > longest


def product_problem(
    layout: ProductLayout, rule: TypeRule, options: Options, arch: str, *, add_c: bool
) -> ProductProblem:
    """Return the problem of one product of arrays of a layout."""
    sizes: dict[str, Any] = {"rows": layout.rows, "inner": layout.inner, "cols": layout.cols}
    return ProductProblem(**sizes, add_c=add_c, **_common(rule, options, arch))


def _common(rule: TypeRule, options: Options, arch: str) -> dict[str, Any]:
    return {
        "types": rule.types,
        "tile": tile_for(rule.types, options.tile),
        "arch": arch,
        "algorithm": options.algorithm,
        "strategy": options.strategy,
    }
