"""Checks of a program's declarations: counts, names, symbols, and the role of each buffer.

These checks run first: they ensure that later checks can compute addresses.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import numpy as np

from tcusim.machine.multiprocessors import BLOCK_THREADS, LANES
from tcusim.program.checks.sites import Finding, each_step
from tcusim.program.grammar import (
    PARTS,
    Assign,
    Await,
    Buffer,
    BufferRole,
    Const,
    Extent,
    Formula,
    Index,
    Load,
    Locate,
    Loop,
    Operation,
    Prefix,
    Program,
    Publish,
    Segments,
    Space,
    Value,
    View,
    When,
    part_of,
    views_of,
)
from tcusim.program.walk import WARP_PLACES, Site, sites

_BUILT_IN: Final = ("block", "block_row", "block_col", *sorted(WARP_PLACES), "row", "col")
_MAX_WARPS: Final = BLOCK_THREADS // LANES


# --- Counts -----------------------------------------------------------------------------------


def positive_counts(program: Program) -> Iterator[Finding]:
    """Require valid counts, sizes and strides: 1 to 32 warps, no empty tile.

    Source: the grammar; at most 1024 threads a block [CPG sec. 16.2].
    """
    if not 1 <= program.warps <= _MAX_WARPS:
        yield Finding(
            None, f"a block has 1 to {_MAX_WARPS} warps, got {program.warps}. Use more blocks."
        )
    if program.warp_columns < 1 or program.warps % program.warp_columns:
        yield Finding(
            None,
            f"{program.warps} warps do not stand in rows of {program.warp_columns}. Let "
            f"warp_columns divide the number of warps.",
        )
    declared = [("blocks", program.blocks)]
    declared += [("rows", Extent.of(program.rows)), ("columns", Extent.of(program.columns))]
    declared += [(f"the size of {buffer.name!r}", buffer.size) for buffer in program.buffers]
    for what, extent in declared:
        for message in _extent(what, extent, least=1):
            yield Finding(None, message)
    for scalar in program.scalars:
        if scalar.multiple_of < 1:
            yield Finding(
                None,
                f"scalar {scalar.name!r} must be a multiple of at least 1, "
                f"got {scalar.multiple_of}. Use 1 for any size.",
            )
    yield from _counts_of_step(program)


def _value(value: Value) -> Iterator[str]:
    match value:
        case Formula(operation, terms):
            wanted = operation.terms
            if len(terms) != wanted:
                yield f"{operation} takes {wanted} term{'s' * (wanted > 1)}, got {len(terms)}."
            for term in terms:
                yield from _value(term)
                if isinstance(term, Formula) and term.operation is Operation.SPLIT:
                    yield f"a {Operation.SPLIT} is no term. Assign its parts in a step before."
        case float() if math.isnan(value):
            yield "a constant is a number, got NaN. Read NaN from a rectangle."
        case float() if float(np.float32(value)) != value:
            yield f"float32 has no {value!r}. Round it: float(numpy.float32({value!r}))."


def _assign(step: Assign) -> Iterator[str]:
    value = step.value
    yield from _value(value)
    if not views_of(value):
        named = value.operation if isinstance(value, Formula) else f"{value!r}"
        yield f"{named} names no rectangle. Use a Const."
    if step.parts and not (isinstance(value, Formula) and value.operation is Operation.SPLIT):
        yield f"only a {Operation.SPLIT} has parts. Assign each rectangle in a step of its own."


def _of_one(step: Load | Prefix, value: Value) -> Iterator[str]:
    """Yield the reasons against a value that is no rectangle, nor a formula of one."""
    yield from _value(value)
    name, views = type(step).__name__, views_of(value)
    if len(views) != 1:
        yield f"a {name} has a value of one rectangle, got {len(views)}. Assign the value before."
    if isinstance(value, Formula) and value.operation is Operation.SPLIT:
        yield f"a {name} does not take a {Operation.SPLIT}. Assign its parts before."
    elif isinstance(step, Load) and all(
        value != one for view in views for one in (view, *(part_of(part, view) for part in PARTS))
    ):
        yield "a Load takes a tile, or a part of each of its elements. Assign the value before."


@each_step
def _counts_of_step(program: Program, site: Site) -> Iterator[str]:
    match site.step:
        case Loop(count=count):
            yield from _extent("the loop's count", count, least=0)
        case Assign():
            yield from _assign(site.step)
        case Load(value=value) | Prefix(value=value):
            yield from _of_one(site.step, value)
        case Locate(ranges, segments):
            yield from _segments(segments)
            yield from _extent("the number of ranges", Extent.of(ranges.count), least=1)
    for view in site.touched.views:
        name = view.buffer.name
        if min(view.rows, view.cols) < 1:
            yield (
                f"the rectangle of {name!r} is {view.rows}x{view.cols}; it needs at least one row "
                f"and one column. Leave the step out if there is nothing to do."
            )
        if min(view.row_stride, view.col_stride) < 0:
            yield (
                f"the strides of {name!r} are {view.row_stride} and {view.col_stride}; they must "
                f"not be negative. Start at the first element in memory."
            )


def _segments(segments: Segments) -> Iterator[str]:
    offsets = segments.offsets
    least = min(*segments.levels, 1 if segments.chunk is None else segments.chunk, 1)
    if least < 1:
        yield f"segments are cut into chunks of {least}. Use at least 1."
    if offsets.size.per != 1:
        yield (
            f"offsets {offsets.name!r} have {offsets.size} elements; their number must be one more "
            f"than that of segments, with no division."
        )


def _extent(what: str, extent: Extent, *, least: int) -> Iterator[str]:
    if extent.per < 1:
        yield f"{what} is divided by {extent.per}. Divide by at least 1."
    elif extent.constant is not None and extent.constant < least:
        yield f"{what} must be at least {least}, got {extent.constant}."


# --- Names ------------------------------------------------------------------------------------


def distinct_names(program: Program) -> Iterator[Finding]:
    """Require that a name is an identifier and means one thing: a buffer, a fragment, a number.

    Source: the grammar; listings and emitted CUDA use the names as they are.
    """
    kinds: dict[str, str] = dict.fromkeys(_BUILT_IN, "a built-in symbol")
    named: list[tuple[Site | None, str, str]] = []
    declared = [("scalar", scalar.name) for scalar in program.scalars]
    declared += [("buffer", buffer.name) for buffer in program.buffers]
    for kind, name in declared:
        if name in kinds:
            yield _named_twice(None, kind, name, kinds)
        else:
            named.append((None, kind, name))
            kinds[name] = f"a {kind}"
    for site in sites(program):
        touched = site.touched
        named += [(site, "fragment", frag.name) for frag in touched.frags]
        named += [(site, "set of ranges", ranges.name) for ranges in touched.ranges_written]
        if isinstance(site.step, Loop):
            named.append((site, "loop variable", site.step.var))
    for where, kind, name in named:
        if kinds.setdefault(name, f"a {kind}") != f"a {kind}":
            yield _named_twice(where, kind, name, kinds)
        elif not name.isidentifier():
            example = "totals" if where is None else "V"
            yield Finding(where, f"{kind} {name!r} must be an identifier, such as {example!r}.")


def _named_twice(site: Site | None, kind: str, name: str, kinds: dict[str, str]) -> Finding:
    return Finding(site, f"{kind} {name!r} has the name of {kinds[name]}. Choose another name.")


# --- Symbols ----------------------------------------------------------------------------------


def symbols_in_scope(program: Program) -> Iterator[Finding]:
    """Require that an expression names only symbols in scope.

    Offsets: block and warp indices, scalars and the enclosing loops; bounds of a view also row and
    col; sizes and counts: scalars only. No loop reuses the variable of an enclosing loop.
    Source: the grammar, Index and Extent.
    """
    scalars = frozenset(scalar.name for scalar in program.scalars)
    sizes = [("blocks", program.blocks)]
    sizes += [(f"the size of {buffer.name!r}", buffer.size) for buffer in program.buffers]
    for what, size in sizes:
        for message in _unknown_symbols(what, size.index, scalars):
            yield Finding(None, message)
    yield from _symbols_of_step(program)


@each_step
def _symbols_of_step(program: Program, site: Site) -> Iterator[str]:
    scalars = frozenset(scalar.name for scalar in program.scalars)
    places = WARP_PLACES if program.warp_columns > 1 else {"warp"}
    places |= {"block", "block_row", "block_col"} if program.rows > 1 else {"block", "block_col"}
    scope = scalars | places | {loop.var for loop in site.loops}
    used: list[tuple[str, Index]] = []
    match site.step:
        case Const(pattern=pattern):
            used.append(("the pattern's offset", pattern.offset))
        case Locate(segments=segments, first=first):
            used.append(("the first number", first))
            used.append(("the limit of ranges", segments.limit or Index()))
        case When(bounds):
            used += [("the condition", bound.excess) for bound in bounds]
        case Loop(var, count):
            yield from _unknown_symbols("the loop's count", count.index, scalars)
            if var in scope:
                yield f"loop variable {var!r} already has a value here. Choose another name."
    for what, index in used:
        yield from _unknown_symbols(what, index, scope)
    for view in site.touched.views:
        name = view.buffer.name
        yield from _unknown_symbols(f"the offset into {name!r}", view.offset, scope)
        for bound in view.bounds:
            inside = scope | {"row", "col"}
            yield from _unknown_symbols(f"a bound of {name!r}", bound.excess, inside)


def _unknown_symbols(what: str, index: Index, scope: frozenset[str]) -> Iterator[str]:
    valid = ", ".join(sorted(scope)) or "no symbol"
    for name in sorted(index.symbols - scope):
        yield f"{what} names {name!r}, which has no value here. In scope: {valid}."


# --- Parts of buffers -------------------------------------------------------------------------


def buffer_roles(program: Program) -> Iterator[Finding]:
    """Require that inputs are only read and outputs only written, and that scratch is shared.

    A launch's results are visible after it, so a program never reads its outputs. Scratch has a
    constant size. Status words are only published and awaited. Every view is of a buffer that the
    program declares.
    """
    for buffer in program.buffers:
        scratch = buffer.role is BufferRole.SCRATCH
        if not scratch and buffer.space is not Space.GLOBAL:
            yield Finding(
                None,
                f"{buffer.name!r} has the role {buffer.role} and must be in global memory, got "
                f"the space {buffer.space}. Declare it as scratch.",
            )
        if scratch and (buffer.space is Space.GLOBAL or buffer.size.constant is None):
            yield Finding(
                None,
                f"scratch {buffer.name!r} must be shared memory (space shared or warp) of "
                f"constant size, got space {buffer.space}, size {buffer.size}. Use an output "
                f"or a fixed size.",
            )
    yield from _roles_in_step(program)


@each_step
def _roles_in_step(program: Program, site: Site) -> Iterator[str]:
    step, touched = site.step, site.touched
    for view in touched.views:
        yield from _undeclared(program, view.buffer)
    if isinstance(step, Locate) and step.segments.offsets not in program.inputs:
        yield f"offsets {step.segments.offsets.name!r} must be an input of the program."
    for view in touched.views_written:
        yield from _misused_status(view, isinstance(step, Publish), "publishes to", "writes")
        if view.buffer.role is BufferRole.INPUT:
            yield f"writes input {view.buffer.name!r}. Inputs are read only; write an output."
    for view in touched.views_read:
        yield from _misused_status(view, isinstance(step, Await), "awaits", "reads")
        if view.buffer.role is BufferRole.OUTPUT:
            yield (
                f"reads output {view.buffer.name!r}, which is visible only after the launch. Keep "
                f"the values in shared memory, or use a second launch."
            )


def _misused_status(view: View, with_status: bool, verb: str, other_verb: str) -> Iterator[str]:
    """Yield a message if another step uses status words, or a status step uses other memory."""
    if (view.buffer.role is BufferRole.STATUS) != with_status:
        rule = "written by Publish" if other_verb == "writes" else "read by Await"
        yield (
            f"{verb if with_status else other_verb} {view.buffer.name!r}. Status words are {rule}, "
            f"and by nothing else."
        )


def _undeclared(program: Program, buffer: Buffer) -> Iterator[str]:
    declared = {buffer.name: buffer for buffer in program.buffers}
    other = declared.get(buffer.name)
    if other is None:
        names = ", ".join(sorted(declared)) or "none"
        yield f"buffer {buffer.name!r} is not declared. Declared: {names}."
    elif other != buffer:
        there, here = (
            f"{one.role} {one.dtype}[{one.size}] in {one.space} memory" for one in (other, buffer)
        )
        yield f"buffer {buffer.name!r} is declared as {there}, but used as {here}."
