"""Proofs about outputs for all sizes, as sets of integers: isl decides them exactly.

islpy is no part of tcusim, nor of its environments: tests skip where it is missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tcusim.program.checks.affine import Regions
from tcusim.program.checks.coverage import all_written
from tcusim.program.checks.writes import has_one_writer
from tcusim.program.grammar import Bound, Buffer, Extent, Index, Program, View
from tcusim.program.walk import Site, sites

PLACES = ("block", "block_row", "block_col", "warp")


def text_of(index: Index) -> str:
    return str(index).replace("*", " * ")


def below(name: str, extent: Extent) -> str:
    """Return that a name is a number of an extent."""
    return f"0 <= {name} and {extent.per} * {name} < {text_of(extent.index)}"


def holds(bounds: tuple[Bound, ...]) -> str:
    return " and ".join([f"{text_of(bound.excess)} < 0" for bound in bounds] or ["1 = 1"])


def parameters(program: Program) -> tuple[str, str]:
    """Return the scalars' names, and their domains: from 0 on, multiples, and a grid of a block."""
    said = [f"{text_of(program.blocks.index)} > 0"]
    for one in program.scalars:
        said.append(f"{one.name} >= 0 and {one.name} mod {one.multiple_of} = 0")
        if one.of is not None:
            of = text_of(one.of.index)
            said.append(f"{one.of.per} * {one.name} >= {of}")
            said.append(f"{one.of.per} * ({one.name} - 1) < {of}")
    return ", ".join(one.name for one in program.scalars), " and ".join(said)


def writers(isl: Any, program: Program, buffer: Buffer) -> Any:
    """Return the map from elements of an output to the warps that write them."""
    names, known = parameters(program)
    whole = None
    for site, view in writes_of(program, buffer):
        counts = {
            "block": program.blocks,
            "block_row": Extent.of(program.rows),
            "block_col": Extent.of(program.columns),
            "warp": Extent.of(program.warps),
            "row": Extent.of(view.rows),
            "col": Extent.of(view.cols),
        } | {loop.var: loop.count for loop in site.loops}
        said = [known, f"a = {text_of(view.address)}", holds(view.bounds)]
        said += [below(name, count) for name, count in counts.items()]
        across = program.warp_columns
        said.append(f"warp = {across} * warp_row + warp_col and 0 <= warp_col < {across}")
        for guard in site.guards:
            assert not guard.on_data
            said.append(holds(guard.bounds) if guard.taken else f"not ({holds(guard.bounds)})")
        inner = ", ".join([*counts.keys() - {*PLACES}, "warp_row", "warp_col"])
        part = isl.Map(
            f"[{names}] -> {{ [a] -> [{', '.join(PLACES)}] : exists {inner} : "
            f"{' and '.join(f'({one})' for one in said)} }}"
        )
        whole = part if whole is None else whole.union(part)
    return whole


def writes_of(program: Program, buffer: Buffer) -> Iterator[tuple[Site, View]]:
    for site in sites(program):
        for view in site.touched.views_written:
            if view.buffer.name == buffer.name:
                yield site, view


def compare(isl: Any, program: Program, *, exact: bool) -> list[bool]:
    """Compare proofs with isl: all proved facts are true; if `exact`, all are true and proved."""
    known = []
    for buffer in program.outputs:
        found = writers(isl, program, buffer)
        names, said = parameters(program)
        elements = isl.Set(f"[{names}] -> {{ [a] : {below('a', buffer.size)} and {said} }}")
        written = found is not None and elements.is_subset(found.domain())
        one = found is None or found.is_single_valued()
        proved = all_written(program, buffer, list(writes_of(program, buffer)))
        assert written or not proved, f"isl: not all of {buffer.name} is written\n{program}"
        assert one or not has_one_writer(program), f"isl: two warps write {buffer.name}\n{program}"
        if exact:
            assert (written, one) == (proved, has_one_writer(program)) == (True, True)
        for site, view in writes_of(program, buffer):
            inside = found.domain().is_subset(elements)
            reach = Regions(program).around(site, view)
            limit = view.address * buffer.size.per - buffer.size.index
            if not inside and len(list(writes_of(program, buffer))) == 1:
                assert not all(one.never_exceeds(limit, -1) for one in reach)
        known += [written, one]
    return known
