"""What an instruction asks of its operands and of tiles in memory: roles, sizes, layouts, address.

Elements and their types are the subject of `types`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from tcusim.machine.formats import FORMATS
from tcusim.machine.shapes import LDM_BYTES, TILE_BYTES, MmaShape
from tcusim.program.checks.sites import Finding, frags, tiles, views
from tcusim.program.grammar import (
    Add,
    Await,
    Copy,
    Frag,
    Index,
    Load,
    Mma,
    Program,
    Publish,
    Role,
    Space,
    Split,
    Step,
    Store,
    Strided,
    View,
    accesses,
)
from tcusim.program.walk import Site, sites


def operand_roles(program: Program) -> Iterator[Finding]:
    """Require matrix_a, matrix_b and accumulators where an mma, an addition or a store takes them.

    Source: the signatures of mma_sync and store_matrix_sync [CPG sec. 10.24.1].
    """
    for site in sites(program):
        for operand, frag, role in _operands(site.step):
            if frag.role is not role:
                yield Finding(site, _wrong_role(operand, frag, role))


def _operands(step: Step) -> tuple[tuple[str, Frag, Role], ...]:
    """Return the fragments whose role the step prescribes."""
    if isinstance(step, Mma):
        return (
            ("operand a", step.a, Role.A),
            ("operand b", step.b, Role.B),
            ("operand c", step.c, Role.ACC),
            ("result d", step.d, Role.ACC),
        )
    if isinstance(step, Add):
        return (
            ("operand a", step.a, Role.ACC),
            ("operand b", step.b, Role.ACC),
            ("result d", step.d, Role.ACC),
        )
    if isinstance(step, Store):
        return (("the source", step.src, Role.ACC),)
    return ()


def _wrong_role(operand: str, frag: Frag, role: Role) -> str:
    article = "an " if role is Role.ACC else ""
    wrong = f"{operand} must be {article}{role}, got {frag.role} {frag.name!r}."
    if operand == "result d":
        return f"{wrong} Only accumulators hold results."
    if frag.role is Role.ACC:
        return f"{wrong} Store it to shared memory and load it as {role}."
    if role is Role.ACC:
        return f"{wrong} Load the values into an accumulator."
    return f"{wrong} Load the values into a fragment of that role, or swap the operands."


def fragment_shapes(program: Program) -> Iterator[Finding]:
    """Require the program's shape of every fragment, and its fragment's size of every tile.

    Source: mma_sync takes fragments of one m, n, k [CPG sec. 10.24.1].
    """
    for site in sites(program):
        for frag in dict.fromkeys(frags(site.step)):
            if frag.shape != program.shape:
                yield Finding(
                    site,
                    f"fragment {frag.name!r} has shape {frag.shape}, the program {program.shape}. "
                    f"Build the program for one shape.",
                )
        for frag, view in tiles(site.step):
            if (view.rows, view.cols) != (frag.rows, frag.cols):
                yield Finding(
                    site,
                    f"{frag.role} {frag.name!r} of shape {frag.shape} is {frag.rows}x{frag.cols}, "
                    f"the tile of {view.buffer.name!r} is {view.rows}x{view.cols}. Copy a smaller "
                    f"rectangle into a padded tile of shared memory.",
                )


def equal_rectangles(program: Program) -> Iterator[Finding]:
    """Require the same rows and columns of all rectangles of a step that copies, and of ranges.

    Source: the grammar; lanes pair the elements by row and column.
    """
    for site in sites(program):
        yield from _range_findings(site)
        if not isinstance(site.step, Copy | Split | Publish | Await):
            continue
        first, *others = views(site.step)
        for view in others:
            if (view.rows, view.cols) != (first.rows, first.cols):
                yield Finding(
                    site,
                    f"{first.buffer.name!r} is {first.rows}x{first.cols}, {view.buffer.name!r} is "
                    f"{view.rows}x{view.cols}. Use one size; a stride of 0 repeats a row "
                    f"or a column.",
                )


def _range_findings(site: Site) -> Iterator[Finding]:
    for view in views(site.step):
        if view.ranges is None:
            continue
        axes = (view.row_axis, view.col_axis)
        along = [axis for axis in axes if isinstance(axis, Strided)]
        if not along or not along[0].stride:
            yield Finding(
                site,
                f"the rectangle of {view.buffer.name!r} is gathered by {view.ranges.name!r}, but "
                f"its elements do not follow each other in a range. Gather the rows or the "
                f"columns, and give the other axis a stride of at least 1.",
            )
        if view.buffer.space is not Space.GLOBAL:
            yield Finding(
                site,
                f"{view.ranges.name!r} are ranges of global memory, {view.buffer.name!r} is not.",
            )


def one_layout(program: Program) -> Iterator[Finding]:
    """Require that a name means fragments of one type and layout, or ranges of one count.

    Source: role, sizes, type and layout are template arguments of fragment [CPG sec. 10.24.1].
    """
    meanings: dict[str, Frag] = {}
    layouts: dict[str, str] = {}
    counts: dict[str, int] = {}
    for site in sites(program):
        touched = accesses(site.step)
        for ranges in dict.fromkeys((*touched.ranges_written, *touched.ranges_read)):
            if counts.setdefault(ranges.name, ranges.count) != ranges.count:
                yield Finding(
                    site,
                    f"{ranges.name!r} are {ranges.count} ranges here and "
                    f"{counts[ranges.name]} before. Use two names.",
                )
        for frag in dict.fromkeys(frags(site.step)):
            first = meanings.setdefault(frag.name, frag)
            if frag != first:
                yield Finding(
                    site,
                    f"fragment {frag.name!r} is {_type(frag)} here and {_type(first)} before. "
                    f"Use two names.",
                )
        if not isinstance(site.step, Load) or site.step.dst.role is Role.ACC:
            continue
        name, layout = site.step.dst.name, site.step.src.layout
        if layout and layouts.setdefault(name, layout) != layout:
            yield Finding(
                site,
                f"{site.step.dst.role} {name!r} is loaded {layout} here and {layouts[name]} "
                f"before; the layout is part of its type. Use two fragments.",
            )


def _type(frag: Frag) -> str:
    return f"{frag.role} {frag.dtype} of {frag.shape}"


def tile_layout(program: Program) -> Iterator[Finding]:
    """Require that a tile has a unit stride, an ldm that covers it, and no bounds.

    Source: load_matrix_sync and store_matrix_sync take a layout and ldm [CPG sec. 10.24.1].
    """
    for site in sites(program):
        for _, view in tiles(site.step):
            yield from _layout_findings(site, view)


def _layout_findings(site: Site, view: View) -> Iterator[Finding]:
    name = view.buffer.name
    if view.ranges is not None:
        yield Finding(
            site,
            f"the tile of {name!r} is gathered, and a tile is loaded or stored whole. Copy it to "
            f"or from a tile of shared memory.",
        )
        return
    if view.layout is None:
        yield Finding(
            site,
            f"the tile of {name!r} has strides {view.row_stride} and {view.col_stride}; one of "
            f"them must be 1. Copy the tile to shared memory first.",
        )
        return
    least = view.cols if view.layout == "row_major" else view.rows
    if view.ldm < least:
        yield Finding(
            site,
            f"ldm must be at least {least} for a {view.layout} tile of {view.rows}x{view.cols}, "
            f"got {view.ldm}. To repeat a row or a column, Copy it to shared memory first.",
        )
    if view.bounds:
        yield Finding(
            site,
            f"the tile of {name!r} has the bound {view.bounds[0]}, but a tile is loaded or stored "
            f"whole. Copy it to or from a tile of shared memory, with the bound on the Copy.",
        )


def alignment(program: Program) -> Iterator[Finding]:
    """Require of WMMA tiles an address that is a multiple of 32 bytes, and an ldm of 16.

    Every term of the offset must keep this, so that it holds for all blocks, warps and iterations.
    Source: load_matrix_sync [CPG sec. 10.24.1]. Shapes of other families have no such rule here.
    """
    row = program.shape.operands_for(program.ab, program.acc)
    if row is None or row.family != "wmma":
        return
    multiples = {scalar.name: scalar.multiple_of for scalar in program.scalars}
    for site in sites(program):
        for _, view in tiles(site.step):
            for message in _misalignments(view, multiples):
                yield Finding(site, message)


def tile_is_aligned(view: View, shape: MmaShape, ab: str, acc: str) -> bool:
    """Return whether `alignment` would accept this tile in a program of these types."""
    row = shape.operands_for(ab, acc)
    if row is None or row.family != "wmma":
        return True
    return not any(_misalignments(view, {}))


def _misalignments(view: View, multiples: Mapping[str, int]) -> Iterator[str]:
    stored = FORMATS.get(view.buffer.dtype)
    if stored is None:
        return  # element_types says so
    name, size = view.buffer.name, stored.itemsize
    for term, step in _steps_of(view.offset, multiples):
        if step * size % TILE_BYTES:
            yield (
                f"the address {name}[{view.offset}] must be a multiple of {TILE_BYTES} bytes, but "
                f"the term {term} makes it a multiple of {math.gcd(step * size, TILE_BYTES)} only "
                f"({step} elements of {size} bytes). Pad the leading dimension, or stage the tile "
                f"through shared memory."
            )
    if view.ldm * size % LDM_BYTES:
        yield (
            f"ldm = {view.ldm} elements of {size} bytes is {view.ldm * size} bytes, but must be a "
            f"multiple of {LDM_BYTES} bytes. Pad the leading dimension, or stage the tile through "
            f"shared memory."
        )


def _steps_of(offset: Index, multiples: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """Yield each term of an offset as text, with the elements that it is a multiple of."""
    for name, factor in offset.terms:
        yield str(Index(((name, factor),))), factor * multiples.get(name, 1)
    yield str(offset.const), offset.const
