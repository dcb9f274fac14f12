"""The paper's scan of an array, scan then propagate ([DAKKAK19] section 5.3).

Its last launch adds to results in memory, so no algorithm of tcusim has it.
"""

from __future__ import annotations

from typing import Any, Final

from tcusim.algorithms import build
from tcusim.algorithms.builder import LENGTH, Builder, Options, Work
from tcusim.machine.shapes import shape_of
from tcusim.program.checks.verifier import verify
from tcusim.program.grammar import COL, ROW, Bound, Extent, Program, Scalar
from tcusim.program.launches import Memory, PlanBuilder

# A warp copies squares of elements.
_SIDE: Final = 16
_WARPS: Final = 8


def propagated(
    algorithm: str, parts: int, length: int, tile: str, options: dict[str, Any]
) -> PlanBuilder:
    """Return the paper's scan of an array: of its parts, of their totals, and a uniform addition.

    The paper's first launch writes the totals, too; here they are copied by a launch of their own.
    """
    draft = PlanBuilder(Memory("in", "f16", length))
    first = build(algorithm, tile=tile, **{**options, "segment_size": parts})
    scanned = draft.add(first, {"in": "in"}, "scanned")
    totals = draft.add(_last_of_parts(parts), {"in": scanned}, "totals")
    given: dict[str, Any] = {"ab": "f32", "exclusive": True, "masked": True}
    middle = build("scan_panel", tile=tile, segment_size=length // parts, **given)
    before = draft.add(middle, {"in": totals}, "carries")
    draft.add(_added_to_parts(parts), {"in": scanned, "carry": before}, "out")
    return draft


def _builder() -> Builder:
    return Builder(Options(shape_of((_SIDE, _SIDE, _SIDE)), result="f16", warps=_WARPS))


def _last_of_parts(parts: int) -> Program:
    """Return a program that copies the last element of each part of a scanned array, as float32."""
    b = _builder()
    given, first, last = b.input("in", "f16", Extent(LENGTH)), b.item * _SIDE**2, parts - 1
    bounds = [Bound((first + ROW * _SIDE + COL) * parts + last, LENGTH)]
    source = b.rect(given, first * parts + last, _SIDE, _SIDE, _SIDE * parts, parts, bounds)
    out = b.output("out", "f32", Extent(LENGTH, parts))
    b.copy(b.rect(out, first, _SIDE, _SIDE, _SIDE, 1, bounds), source)
    return _verified(b, "last_of_parts", parts, parts * _SIDE**2)


def _added_to_parts(parts: int) -> Program:
    """Return a program that adds a float32 number to each part of a scanned array."""
    b = _builder()
    given = b.input("in", "f16", Extent(LENGTH))
    carry = b.input("carry", "f32", Extent(LENGTH, parts))
    out = b.output("out", "f16", Extent(LENGTH))
    with b.loop("i", parts // _SIDE**2) as i:
        start = b.item * parts + i * _SIDE**2
        inside = [Bound(start + ROW * _SIDE + COL, LENGTH)]
        each = b.rect(carry, b.item, _SIDE, _SIDE, 0, 0, [Bound(b.item * parts, LENGTH)])
        to, source = (b.rect(one, start, _SIDE, _SIDE, _SIDE, 1, inside) for one in (out, given))
        b.copy(to, source, each)
    return _verified(b, "added_to_parts", parts, parts)


def _verified(b: Builder, name: str, parts: int, elements: int) -> Program:
    """Return a finished program of whole parts, with warps that each take `elements`."""
    work = Work((Scalar("length", parts),), Extent(LENGTH, elements * b.options.warps))
    program = b.program(name, "[DAKKAK19] section 5.3", work)
    verify(program)
    return program
