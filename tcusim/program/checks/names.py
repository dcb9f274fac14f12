"""What a program declares and names: counts, names, symbols, and the part of each buffer.

These checks come first: they make sure that later ones can compute addresses at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from tcusim.program.checks.sites import Finding, frags, views
from tcusim.program.grammar import (
    Await,
    Buffer,
    BufferRole,
    Const,
    Extent,
    Index,
    Locate,
    Loop,
    Program,
    Publish,
    Segments,
    Space,
    Split,
    View,
    When,
    accesses,
)
from tcusim.program.walk import Site, sites

_BUILT_IN: Final = ("block", "block_col", "warp", "row", "col")
_MAX_WARPS: Final = 32  # 1024 threads a block [CPG sec. 16.2]


def positive_counts(program: Program) -> Iterator[Finding]:
    """Require counts, sizes and strides that can be: 1 to 32 warps, no empty tile.

    Source: the grammar (ir.py); at most 1024 threads a block [CPG sec. 16.2].
    """
    if not 1 <= program.warps <= _MAX_WARPS:
        yield Finding(
            None, f"a block has 1 to {_MAX_WARPS} warps, got {program.warps}. Use more blocks."
        )
    yield from _extent_findings(None, "blocks", program.blocks, least=1)
    yield from _extent_findings(None, "columns", Extent.of(program.columns), least=1)
    for buffer in program.buffers:
        yield from _extent_findings(None, f"the size of {buffer.name!r}", buffer.size, least=1)
    for scalar in program.scalars:
        if scalar.multiple_of < 1:
            yield Finding(
                None,
                f"scalar {scalar.name!r} must be a multiple of at least 1, "
                f"got {scalar.multiple_of}. Use 1 for any size.",
            )
    for site in sites(program):
        if isinstance(site.step, Loop):
            yield from _extent_findings(site, "the loop's count", site.step.count, least=0)
        if isinstance(site.step, Split) and not site.step.dsts:
            yield Finding(site, "Split needs at least one destination.")
        if isinstance(site.step, Locate):
            yield from _segment_findings(site, site.step.segments)
            what = "the number of ranges"
            yield from _extent_findings(site, what, Extent.of(site.step.dst.count), least=1)
        for view in views(site.step):
            yield from _view_size_findings(site, view)


def _segment_findings(site: Site, segments: Segments) -> Iterator[Finding]:
    offsets = segments.offsets
    lengths = (*segments.levels, 1 if segments.chunk is None else segments.chunk)
    if min(lengths) < 1:
        yield Finding(site, f"segments are cut into chunks of {min(lengths)}. Use at least 1.")
    if offsets.size.per != 1:
        yield Finding(
            site,
            f"offsets {offsets.name!r} have {offsets.size} elements; their number must "
            f"be one more than that of segments, with no division.",
        )


def _extent_findings(
    site: Site | None, what: str, extent: Extent, *, least: int
) -> Iterator[Finding]:
    if extent.per < 1:
        yield Finding(site, f"{what} is divided by {extent.per}. Divide by at least 1.")
    elif extent.constant is not None and extent.constant < least:
        yield Finding(site, f"{what} must be at least {least}, got {extent.constant}.")


def _view_size_findings(site: Site, view: View) -> Iterator[Finding]:
    name = view.buffer.name
    if min(view.rows, view.cols) < 1:
        yield Finding(
            site,
            f"the rectangle of {name!r} is {view.rows}x{view.cols}; it needs at least one row and "
            f"one column. Leave the step out if there is nothing to do.",
        )
    if min(view.row_stride, view.col_stride) < 0:
        yield Finding(
            site,
            f"the strides of {name!r} are {view.row_stride} and {view.col_stride}; they must not "
            f"be negative. Start at the first element in memory.",
        )


def distinct_names(program: Program) -> Iterator[Finding]:
    """Require that a name is an identifier and means one thing: a buffer, a fragment, a number.

    Source: the grammar; listings and emitted CUDA use the names as they are.
    """
    kinds: dict[str, str] = dict.fromkeys(_BUILT_IN, "a built-in symbol")
    declared = [("scalar", scalar.name) for scalar in program.scalars]
    declared.extend(("buffer", buffer.name) for buffer in program.buffers)
    for kind, name in declared:
        if name in kinds:
            yield Finding(None, _named_twice(kind, name, kinds[name]))
        elif not name.isidentifier():
            yield Finding(None, f"{kind} {name!r} must be an identifier, such as 'totals'.")
        kinds.setdefault(name, f"a {kind}")
    for site in sites(program):
        names = [("fragment", frag.name) for frag in frags(site.step)]
        names.extend(
            ("set of ranges", ranges.name) for ranges in accesses(site.step).ranges_written
        )
        if isinstance(site.step, Loop):
            names.append(("loop variable", site.step.var))
        for kind, name in names:
            if kinds.setdefault(name, f"a {kind}") != f"a {kind}":
                yield Finding(site, _named_twice(kind, name, kinds[name]))
            elif not name.isidentifier():
                yield Finding(site, f"{kind} {name!r} must be an identifier, such as 'V'.")


def _named_twice(kind: str, name: str, other: str) -> str:
    return f"{kind} {name!r} has the name of {other}. Choose another name."


def symbols_in_scope(program: Program) -> Iterator[Finding]:
    """Require that an expression names only symbols that have a value there.

    Offsets: block, block_col, warp, scalars and the loops around the step; bounds of a view also
    row and col; sizes and counts: scalars only. No loop reuses the variable of a loop around it.
    Source: the grammar (ir.py), Index and Extent.
    """
    scalars = frozenset(scalar.name for scalar in program.scalars)
    yield from _scope_findings(None, "blocks", program.blocks.index, scalars)
    for buffer in program.buffers:
        what = f"the size of {buffer.name!r}"
        yield from _scope_findings(None, what, buffer.size.index, scalars)
    for site in sites(program):
        scope = scalars | {"block", "block_col", "warp"} | {loop.var for loop in site.loops}
        yield from _step_scope_findings(site, scope, scalars)


def _step_scope_findings(
    site: Site, scope: frozenset[str], scalars: frozenset[str]
) -> Iterator[Finding]:
    step = site.step
    if isinstance(step, Const):
        yield from _scope_findings(site, "the pattern's offset", step.pattern.offset, scope)
    if isinstance(step, Locate):
        yield from _scope_findings(site, "the first number", step.first, scope)
        if step.segments.limit is not None:
            yield from _scope_findings(site, "the limit of ranges", step.segments.limit, scope)
    if isinstance(step, When):
        for bound in step.bounds:
            yield from _scope_findings(site, "the condition", bound.lhs - bound.rhs, scope)
    if isinstance(step, Loop):
        yield from _scope_findings(site, "the loop's count", step.count.index, scalars)
        if step.var in scope:
            yield Finding(
                site, f"loop variable {step.var!r} already has a value here. Choose another name."
            )
    for view in views(step):
        name = view.buffer.name
        yield from _scope_findings(site, f"the offset into {name!r}", view.offset, scope)
        for bound in view.bounds:
            inside = scope | {"row", "col"}
            yield from _scope_findings(site, f"a bound of {name!r}", bound.lhs - bound.rhs, inside)


def _scope_findings(
    site: Site | None, what: str, index: Index, scope: frozenset[str]
) -> Iterator[Finding]:
    valid = ", ".join(sorted(scope)) or "no symbol"
    for name in sorted(index.symbols - scope):
        yield Finding(site, f"{what} names {name!r}, which has no value here. In scope: {valid}.")


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
    declared = {buffer.name: buffer for buffer in program.buffers}
    for site in sites(program):
        for view in views(site.step):
            if declared.get(view.buffer.name) != view.buffer:
                yield Finding(site, _undeclared(declared, view.buffer))
        touched = accesses(site.step)
        yield from _status_findings(program, site)
        for view in touched.views_written:
            if view.buffer.role is BufferRole.INPUT:
                yield Finding(
                    site,
                    f"writes input {view.buffer.name!r}. Inputs are read only; write an output.",
                )
        for view in touched.views_read:
            if view.buffer.role is BufferRole.OUTPUT:
                yield Finding(
                    site,
                    f"reads output {view.buffer.name!r}, which is visible only after the launch. "
                    f"Keep the values in shared memory, or use a second launch.",
                )


def _status_findings(program: Program, site: Site) -> Iterator[Finding]:
    step, touched = site.step, accesses(site.step)
    if isinstance(step, Locate) and step.segments.offsets not in program.inputs:
        name = step.segments.offsets.name
        yield Finding(site, f"offsets {name!r} must be an input of the program.")
    for view in touched.views_written:
        if (view.buffer.role is BufferRole.STATUS) != isinstance(step, Publish):
            verb = "publishes to" if isinstance(step, Publish) else "writes"
            yield Finding(
                site,
                f"{verb} {view.buffer.name!r}. Status words are written by Publish, and by "
                f"nothing else.",
            )
    for view in touched.views_read:
        if (view.buffer.role is BufferRole.STATUS) != isinstance(step, Await):
            verb = "awaits" if isinstance(step, Await) else "reads"
            yield Finding(
                site,
                f"{verb} {view.buffer.name!r}. Status words are read by Await, and by nothing "
                f"else.",
            )


def _undeclared(declared: Mapping[str, Buffer], buffer: Buffer) -> str:
    other = declared.get(buffer.name)
    if other is None:
        names = ", ".join(sorted(declared)) or "none"
        return f"buffer {buffer.name!r} is not declared. Declared: {names}."
    return (
        f"buffer {buffer.name!r} is declared as {_described(other)}, but used as "
        f"{_described(buffer)}."
    )


def _described(buffer: Buffer) -> str:
    return f"{buffer.role} {buffer.dtype}[{buffer.size}] in {buffer.space} memory"
