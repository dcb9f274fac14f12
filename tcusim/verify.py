"""Named checks on a step program, one function each: what CUDA forbids, and what it never tells.

`verify(program)` raises the first problem, `problems(program)` returns them all, and `CHECKS` names
the rules in the order in which they are tried. A check that cannot decide refuses; where it looks
at sizes that are known only at run time it tries a handful of them, ragged ones included.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tcusim.errors import VerifyError
from tcusim.ir import (
    Add,
    Bound,
    Buffer,
    Const,
    Copy,
    Extent,
    Frag,
    Index,
    Level,
    Load,
    Loop,
    Mma,
    Program,
    Role,
    Split,
    Step,
    Store,
    Sync,
    View,
    When,
    accesses,
)
from tcusim.listing import line
from tcusim.numerics.formats import FORMATS
from tcusim.shapes import MmaShape

__all__ = ["CHECKS", "Finding", "Site", "problems", "tile_is_aligned", "verify"]

_BUILT_IN: Final = ("block", "warp", "row", "col")

MAX_WARPS: Final = 32  # 1024 threads a block [CPG sec. 16.2]
TILE_BYTES: Final = 32  # WMMA: "a 256-bit aligned pointer" [CPG sec. 10.24.1]
LDM_BYTES: Final = 16  # WMMA: "a multiple of 16 bytes" [CPG sec. 10.24.1]

# Sizes that a program for any size is tried with: none, one, and around the paper's tile of 256.
_RAGGED: Final = (0, 1, 17, 255, 256, 257, 1000)
# Bounds on the work of one check: combinations of scalars, elements of one view, loop iterations.
_MOST_SAMPLES: Final = 64
_MOST_ELEMENTS: Final = 1 << 21
_MOST_ITERATIONS: Final = 64
_MOST_FIXED_ITERATIONS: Final = 256
_MOST_CELLS: Final = 1 << 22

Addresses: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]


def verify(program: Program) -> None:
    """Raise the first problem of a program, if it has one.

    The answer for a correct program is remembered, so that every run may ask.

    Parameters
    ----------
    program : Program
        The program to check.

    Raises
    ------
    VerifyError
        With the name of the check, the step and what to do about it.
    """
    _verify_once(program)


def problems(program: Program) -> list[VerifyError]:
    """Return everything that is wrong with a program, in the order of `CHECKS`.

    The first group of checks makes sure that the later ones can compute addresses at all; they do
    not run while it finds anything.

    Parameters
    ----------
    program : Program
        The program to check.

    Returns
    -------
    list of VerifyError
        Empty for a correct program.
    """
    found = list(_errors(program, _WELL_FORMED))
    return found or list(_errors(program, _CORRECT))


@lru_cache(maxsize=256)
def _verify_once(program: Program) -> None:
    for error in _errors(program, _WELL_FORMED + _CORRECT):
        raise error


def _errors(program: Program, checks: tuple[Check, ...]) -> Iterator[VerifyError]:
    for check in checks:
        for site, message in check(program):
            path = site.path if site else ""
            text = line(site.step) if site else ""
            yield VerifyError(check.__name__, program.name, path, text, message)


# --- Where a step stands ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Guard:
    """The branch of a When that a step is in: the bounds all hold (taken), or not all."""

    path: str
    bounds: tuple[Bound, ...]
    taken: bool


@dataclass(frozen=True, slots=True)
class Site:
    """A step with its path, and the loops and branches around it, outermost first."""

    path: str
    step: Step
    loops: tuple[Loop, ...] = ()
    guards: tuple[Guard, ...] = ()

    def inner(self) -> Iterator[Site]:
        """Yield the steps directly inside: a loop's body, or both branches of a When."""
        if isinstance(self.step, Loop):
            loops = (*self.loops, self.step)
            for path, step in _numbered(self.step.body, self.path):
                yield Site(path, step, loops, self.guards)
        elif isinstance(self.step, When):
            yield from self.branch(taken=True)
            yield from self.branch(taken=False)

    def branch(self, *, taken: bool) -> Iterator[Site]:
        """Yield the steps directly inside one branch of a When."""
        if not isinstance(self.step, When):
            return
        guards = (*self.guards, Guard(self.path, self.step.bounds, taken))
        numbered = _numbered(self.step.body + self.step.otherwise, self.path)
        size = len(self.step.body)
        start, stop = (0, size) if taken else (size, None)
        for path, step in itertools.islice(numbered, start, stop):
            yield Site(path, step, self.loops, guards)


class Finding(NamedTuple):
    """What a check objects to: the step (None for the program itself) and the message."""

    site: Site | None
    message: str


Check: TypeAlias = Callable[[Program], Iterator[Finding]]


def _numbered(steps: tuple[Step, ...], parent: str = "") -> Iterator[tuple[str, Step]]:
    prefix = f"{parent}." if parent else ""
    for number, step in enumerate(steps, start=1):
        yield f"{prefix}{number}", step


def _top(program: Program) -> tuple[Site, ...]:
    return tuple(Site(path, step) for path, step in _numbered(program.steps))


def _sites(program: Program) -> Iterator[Site]:
    """Yield every step, parents before children, with the paths of `walk`."""
    stack = list(reversed(_top(program)))
    while stack:
        site = stack.pop()
        yield site
        stack.extend(reversed(list(site.inner())))


def _views(step: Step) -> tuple[View, ...]:
    touched = accesses(step)
    return (*touched.views_written, *touched.views_read)


def _frags(step: Step) -> tuple[Frag, ...]:
    touched = accesses(step)
    return (*touched.frags_written, *touched.frags_read)


# --- Well-formed: names, counts, buffers ------------------------------------------------------


def positive_counts(program: Program) -> Iterator[Finding]:
    """Require counts, sizes and strides that can be: 1 to 32 warps, no empty tile.

    Source: the grammar (ir.py); at most 1024 threads a block [CPG sec. 16.2].
    """
    if not 1 <= program.warps <= MAX_WARPS:
        yield Finding(
            None, f"a block has 1 to {MAX_WARPS} warps, got {program.warps}. Use more blocks."
        )
    yield from _extent_findings(None, "blocks", program.blocks, least=1)
    for buffer in program.buffers.values():
        yield from _extent_findings(None, f"the size of {buffer.name!r}", buffer.size, least=1)
    for scalar in program.scalars:
        if scalar.multiple_of < 1:
            yield Finding(
                None,
                f"scalar {scalar.name!r} must be a multiple of at least 1, "
                f"got {scalar.multiple_of}. Use 1 for any size.",
            )
    for site in _sites(program):
        if isinstance(site.step, Loop):
            yield from _extent_findings(site, "the loop's count", site.step.count, least=0)
        if isinstance(site.step, Split) and not site.step.dsts:
            yield Finding(site, "Split needs at least one destination.")
        for view in _views(site.step):
            yield from _view_size_findings(site, view)


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
    for buffers in (program.inputs, program.outputs, program.scratch):
        declared.extend(("buffer", buffer.name) for buffer in buffers)
    for kind, name in declared:
        if name in kinds:
            yield Finding(None, _named_twice(kind, name, kinds[name]))
        elif not name.isidentifier():
            yield Finding(None, f"{kind} {name!r} must be an identifier, such as 'totals'.")
        kinds.setdefault(name, f"a {kind}")
    for site in _sites(program):
        names = [("fragment", frag.name) for frag in _frags(site.step)]
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

    Offsets: block, warp, scalars and the loops around the step; bounds of a view also row and col;
    sizes and counts: scalars only. No loop reuses the variable of a loop around it.
    Source: the grammar (ir.py), Index and Extent.
    """
    scalars = frozenset(scalar.name for scalar in program.scalars)
    yield from _scope_findings(None, "blocks", program.blocks.index, scalars)
    for buffer in program.buffers.values():
        what = f"the size of {buffer.name!r}"
        yield from _scope_findings(None, what, buffer.size.index, scalars)
    for site in _sites(program):
        scope = scalars | {"block", "warp"} | {loop.var for loop in site.loops}
        yield from _step_scope_findings(site, scope, scalars)


def _step_scope_findings(
    site: Site, scope: frozenset[str], scalars: frozenset[str]
) -> Iterator[Finding]:
    step = site.step
    if isinstance(step, Const):
        yield from _scope_findings(site, "the pattern's offset", step.pattern.offset, scope)
    if isinstance(step, When):
        for bound in step.bounds:
            yield from _scope_findings(site, "the condition", bound.lhs - bound.rhs, scope)
    if isinstance(step, Loop):
        yield from _scope_findings(site, "the loop's count", step.count.index, scalars)
        if step.var in scope:
            yield Finding(
                site, f"loop variable {step.var!r} already has a value here. Choose another name."
            )
    for view in _views(step):
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
    constant size. Every view is of a buffer that the program declares.
    """
    for buffer in (*program.inputs, *program.outputs):
        if buffer.level is not Level.GRID:
            yield Finding(
                None,
                f"{buffer.name!r} is an input or an output and must be in global memory (level "
                f"grid), got level {buffer.level}. List it as scratch.",
            )
    for buffer in program.scratch:
        if buffer.level is Level.GRID or buffer.size.constant is None:
            yield Finding(
                None,
                f"scratch {buffer.name!r} must be shared memory (level block or warp) of "
                f"constant size, got level {buffer.level}, size {buffer.size}. Use an output "
                f"or a fixed size.",
            )
    for site in _sites(program):
        for view in _views(site.step):
            if program.buffers.get(view.buffer.name) != view.buffer:
                yield Finding(site, _undeclared(program, view.buffer))
        touched = accesses(site.step)
        for view in touched.views_written:
            if view.buffer in program.inputs:
                yield Finding(
                    site,
                    f"writes input {view.buffer.name!r}. Inputs are read only; write an output.",
                )
        for view in touched.views_read:
            if view.buffer in program.outputs:
                yield Finding(
                    site,
                    f"reads output {view.buffer.name!r}, which is visible only after the launch. "
                    f"Keep the values in shared memory, or use a second launch.",
                )


def _undeclared(program: Program, buffer: Buffer) -> str:
    declared = program.buffers.get(buffer.name)
    if declared is None:
        names = ", ".join(sorted(program.buffers)) or "none"
        return f"buffer {buffer.name!r} is not declared. Declared: {names}."
    return (
        f"buffer {buffer.name!r} is declared as {declared.dtype}[{declared.size}] of level "
        f"{declared.level}, but used as {buffer.dtype}[{buffer.size}] of level {buffer.level}."
    )


# --- Fragments and tiles ----------------------------------------------------------------------


def operand_roles(program: Program) -> Iterator[Finding]:
    """Require matrix_a, matrix_b and accumulators where an mma, an addition or a store takes them.

    Source: the signatures of mma_sync and store_matrix_sync [CPG sec. 10.24.1].
    """
    for site in _sites(program):
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
    wrong = f"{operand} must be {_article(role)}{role}, got {frag.role} {frag.name!r}."
    if operand == "result d":
        return f"{wrong} Only accumulators hold results."
    if frag.role is Role.ACC:
        return f"{wrong} Store it to shared memory and load it as {role}."
    if role is Role.ACC:
        return f"{wrong} Load the values into an accumulator."
    return f"{wrong} Load the values into a fragment of that role, or swap the operands."


def _article(role: Role) -> str:
    return "an " if role is Role.ACC else ""


def fragment_shapes(program: Program) -> Iterator[Finding]:
    """Require the program's shape of every fragment, and its fragment's size of every tile.

    Source: mma_sync takes fragments of one m, n, k [CPG sec. 10.24.1].
    """
    for site in _sites(program):
        for frag in dict.fromkeys(_frags(site.step)):
            if frag.shape != program.shape:
                yield Finding(
                    site,
                    f"fragment {frag.name!r} has shape {frag.shape}, the program {program.shape}. "
                    f"Build the program for one shape.",
                )
        for frag, view in _tiles(site.step):
            if (view.rows, view.cols) != (frag.rows, frag.cols):
                yield Finding(
                    site,
                    f"{frag.role} {frag.name!r} of shape {frag.shape} is {frag.rows}x{frag.cols}, "
                    f"the tile of {view.buffer.name!r} is {view.rows}x{view.cols}. Copy a smaller "
                    f"rectangle into a padded tile of shared memory.",
                )


def _tiles(step: Step) -> tuple[tuple[Frag, View], ...]:
    """Return the fragment and the tile in memory of a Load or a Store."""
    if isinstance(step, Load):
        return ((step.dst, step.src),)
    if isinstance(step, Store):
        return ((step.src, step.dst),)
    return ()


def equal_rectangles(program: Program) -> Iterator[Finding]:
    """Require the same rows and columns of all rectangles of a Copy or a Split.

    Source: the grammar (ir.py); lanes pair the elements by row and column.
    """
    for site in _sites(program):
        if not isinstance(site.step, Copy | Split):
            continue
        first, *others = _views(site.step)
        for view in others:
            if (view.rows, view.cols) != (first.rows, first.cols):
                yield Finding(
                    site,
                    f"{first.buffer.name!r} is {first.rows}x{first.cols}, {view.buffer.name!r} is "
                    f"{view.rows}x{view.cols}. Use one size; a stride of 0 repeats a row "
                    f"or a column.",
                )


def element_types(program: Program) -> Iterator[Finding]:
    """Require types that agree, and that the shape has an instruction for.

    Load and Store do not convert (a tf32 fragment loads f32); Copy converts, but never a float to
    an integer; Split goes from f32 or f64 to narrower floats.
    Source: element types and matrix sizes [CPG sec. 10.24.6], and the grammar.
    """
    if not program.shape.supports(program.ab, program.acc):
        pairs = ", ".join(f"{ab} to {acc}" for ab, acc in program.shape.pairs())
        yield Finding(
            None,
            f"shape {program.shape} does not take {program.ab} to {program.acc}. It takes: "
            f"{pairs or 'any known types'}.",
        )
    for site in _sites(program):
        unknown = _unknown_types(site.step)
        if unknown:
            known = ", ".join(FORMATS)
            yield Finding(site, f"unknown element type {unknown[0]!r}. Known: {known}.")
        else:
            yield from _fragment_type_findings(program, site)
            yield from _tile_type_findings(site)
            yield from _copy_type_findings(site)
            yield from _split_type_findings(site)


def _unknown_types(step: Step) -> list[str]:
    types = [frag.dtype for frag in _frags(step)]
    types.extend(view.buffer.dtype for view in _views(step))
    # tf32 is a way to read f32, not a way to store.
    stored = ["tf32 in memory" for view in _views(step) if view.buffer.dtype == "tf32"]
    return [name for name in types if name not in FORMATS] + stored


def _fragment_type_findings(program: Program, site: Site) -> Iterator[Finding]:
    for frag in dict.fromkeys(_frags(site.step)):
        wanted = program.acc if frag.role is Role.ACC else program.ab
        if frag.dtype != wanted:
            yield Finding(
                site,
                f"{frag.role} {frag.name!r} must be {wanted} as in the program, got {frag.dtype}. "
                f"Convert in shared memory with Copy.",
            )


def _tile_type_findings(site: Site) -> Iterator[Finding]:
    for frag, view in _tiles(site.step):
        stored = view.buffer.dtype
        reads_tf32 = isinstance(site.step, Load) and (frag.dtype, stored) == ("tf32", "f32")
        if frag.dtype != stored and not reads_tf32:
            yield Finding(
                site,
                f"fragment {frag.name!r} is {frag.dtype}, buffer {view.buffer.name!r} is {stored}; "
                f"tiles are not converted on the way. Convert in shared memory with Copy.",
            )


def _copy_type_findings(site: Site) -> Iterator[Finding]:
    step = site.step
    if not isinstance(step, Copy):
        return
    source, target = step.src.buffer.dtype, step.dst.buffer.dtype
    if step.plus is not None and step.plus.buffer.dtype != source:
        yield Finding(
            site,
            f"adds {step.plus.buffer.dtype} to {source}. Copy one of them to the other type first.",
        )
    if FORMATS[source].is_float and not FORMATS[target].is_float:
        yield Finding(
            site,
            f"converts {source} to {target}; a float is never made an integer. Use a float buffer.",
        )


def _split_type_findings(site: Site) -> Iterator[Finding]:
    step = site.step
    if not isinstance(step, Split):
        return
    wide = step.src.buffer.dtype
    narrow = list(dict.fromkeys(view.buffer.dtype for view in step.dsts))
    if len(narrow) > 1:
        yield Finding(site, f"the parts are {' and '.join(narrow)}. Use one type for all parts.")
    if wide not in ("f32", "f64"):
        yield Finding(site, f"the source must be f32 or f64, got {wide}. Use Copy.")
        return
    for name in narrow:
        part = FORMATS[name]
        if not part.is_float or part.fraction_bits >= FORMATS[wide].fraction_bits:
            yield Finding(
                site, f"{name} is not a float narrower than {wide}. Use f16, bf16 or tf32."
            )


def one_layout(program: Program) -> Iterator[Finding]:
    """Require that a fragment's name means one type, and an operand is loaded in one layout.

    Source: role, sizes, type and layout are template arguments of fragment [CPG sec. 10.24.1].
    """
    frags: dict[str, Frag] = {}
    layouts: dict[str, str] = {}
    for site in _sites(program):
        for frag in dict.fromkeys(_frags(site.step)):
            first = frags.setdefault(frag.name, frag)
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
    for site in _sites(program):
        for _, view in _tiles(site.step):
            yield from _layout_findings(site, view)


def _layout_findings(site: Site, view: View) -> Iterator[Finding]:
    name = view.buffer.name
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
    for site in _sites(program):
        for _, view in _tiles(site.step):
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


# --- Barriers ---------------------------------------------------------------------------------


def uniform_barrier(program: Program) -> Iterator[Finding]:
    """Require that a barrier is of a warp or a block, and that the whole block reaches a block's.

    Source: __syncthreads in a condition must not differ within the block [CPG sec. 10.6].
    """
    for site in _sites(program):
        if not isinstance(site.step, Sync):
            continue
        if site.step.level is Level.GRID:
            yield Finding(site, "there is no barrier of the grid. Use a second launch.")
        if site.step.level is not Level.BLOCK:
            continue
        for guard in site.guards:
            if _depends_on_warp(guard.bounds) and program.warps > 1:
                yield Finding(
                    site,
                    f"only some warps of the block reach this barrier: step {guard.path} branches "
                    f"on the warp. Move it out of the branch.",
                )


def _depends_on_warp(bounds: tuple[Bound, ...]) -> bool:
    return any("warp" in (bound.lhs - bound.rhs).symbols for bound in bounds)


# --- Elements of a view -----------------------------------------------------------------------


def _evaluate(index: Index, env: Mapping[str, Addresses]) -> Addresses:
    return np.asarray(index.evaluate(env), dtype=np.int64)


def _holds(bounds: tuple[Bound, ...], env: Mapping[str, Addresses]) -> Mask:
    """Return where all bounds hold."""
    result: Mask = np.asarray(True)
    for bound in bounds:
        result = np.logical_and(result, _evaluate(bound.lhs - bound.rhs, env) < 0)
    return result


def _reached(guards: tuple[Guard, ...], env: Mapping[str, Addresses]) -> Mask:
    """Return where the branches that these guards stand for are taken."""
    result: Mask = np.asarray(True)
    for guard in guards:
        holds = _holds(guard.bounds, env)
        result = np.logical_and(result, holds if guard.taken else ~holds)
    return result


def _mesh(axes: Mapping[str, Addresses]) -> dict[str, Addresses]:
    """Return one array for each symbol, so that together they run over all combinations."""
    grids = np.meshgrid(*axes.values(), indexing="ij", sparse=True)
    return dict(zip(axes, grids, strict=True))


def _bound_symbols(bounds: tuple[Bound, ...]) -> frozenset[str]:
    return frozenset[str]().union(*((bound.lhs - bound.rhs).symbols for bound in bounds))


# --- Inside the buffer ------------------------------------------------------------------------


def inside_buffer(program: Program) -> Iterator[Finding]:
    """Require that every element that a step touches, where its bounds hold, is in its buffer.

    Tried for several sizes: multiples where a scalar has to be one, else ragged ones.
    Source: the grammar; on a GPU such an access is undefined.
    """
    samples = _samples(program)
    for site in _sites(program):
        for view in _views(site.step):
            message = _first_stray(program, site, view, samples)
            if message:
                yield Finding(site, message)


def _samples(program: Program) -> list[dict[str, int]]:
    """Return values of the scalars to try: all combinations, or a spread of them if many."""
    names = [scalar.name for scalar in program.scalars]
    choices = [_values_to_try(program, scalar.multiple_of) for scalar in program.scalars]
    if math.prod(len(values) for values in choices) <= _MOST_SAMPLES:
        combinations = list(itertools.product(*choices))
    else:
        longest = max(len(values) for values in choices)
        combinations = [
            tuple(values[(n + shift * place) % len(values)] for place, values in enumerate(choices))
            for n in range(longest)
            for shift in range(_MOST_SAMPLES // longest)
        ]
    return [dict(zip(names, values, strict=True)) for values in combinations]


def _values_to_try(program: Program, multiple_of: int) -> tuple[int, ...]:
    if multiple_of > 1:
        return (multiple_of, 2 * multiple_of, 3 * multiple_of)
    # Also just below, at and beyond whole blocks of this program.
    per = program.blocks.per
    return tuple(sorted({*_RAGGED, per - 1, per, per + 1, 2 * per + 17}))


def _first_stray(
    program: Program, site: Site, view: View, samples: list[dict[str, int]]
) -> str | None:
    """Return the message for the first element outside the buffer, or None."""
    tried: set[tuple[object, ...]] = set()
    for scalars in samples:
        ranges = _ranges(program, site, view, scalars)
        size = view.buffer.size.evaluate(scalars)
        place = _place(site, view, scalars)
        key = (size, place, *ranges.values())
        if min(ranges.values()) <= 0 or key in tried:
            continue
        tried.add(key)
        stray = _stray(place, ranges, size)
        if stray:
            return _stray_message(site, view, size, stray, scalars)
    return None


class _Place(NamedTuple):
    """An address and what must hold for it to be used."""

    address: Index
    bounds: tuple[Bound, ...]
    guards: tuple[Guard, ...]


def _place(site: Site, view: View, scalars: Mapping[str, int]) -> _Place:
    """Return the address with numbers for the scalars."""
    guards = tuple(replace(guard, bounds=_fixed(guard.bounds, scalars)) for guard in site.guards)
    return _Place(view.address.substitute(scalars), _fixed(view.bounds, scalars), guards)


def _fixed(bounds: tuple[Bound, ...], scalars: Mapping[str, int]) -> tuple[Bound, ...]:
    return tuple(Bound(b.lhs.substitute(scalars), b.rhs.substitute(scalars)) for b in bounds)


def _ranges(program: Program, site: Site, view: View, scalars: Mapping[str, int]) -> dict[str, int]:
    """Return how many values each symbol takes, from 0 on."""
    ranges = {"block": program.blocks.evaluate(scalars), "warp": program.warps}
    for loop in site.loops:
        ranges[loop.var] = loop.count.evaluate(scalars)
    return {**ranges, "row": view.rows, "col": view.cols}


def _stray(
    place: _Place, ranges: Mapping[str, int], size: int
) -> tuple[int, dict[str, int]] | None:
    """Return an address outside [0, size) and the symbols that give it, or None."""
    low, high = _span(place.address, ranges)
    if low >= 0 and high < size:
        return None
    axes = _axes(place, ranges)
    env = _mesh(axes)
    shape = tuple(len(values) for values in axes.values())
    address = np.broadcast_to(_evaluate(place.address, env), shape)
    used = _holds(place.bounds, env) & _reached(place.guards, env)
    strays = used & ((address < 0) | (address >= size))
    if not strays.any():
        return None
    farthest = np.unravel_index(int(np.argmax(np.where(strays, abs(address), -1))), shape)
    example = {
        name: int(values[at]) for (name, values), at in zip(axes.items(), farthest, strict=True)
    }
    return int(address[farthest]), example


def _span(index: Index, ranges: Mapping[str, int]) -> tuple[int, int]:
    """Return the least and the largest value over the corners of the ranges."""
    low = high = index.const
    for name, factor in index.terms:
        reach = factor * (ranges[name] - 1)
        low += min(reach, 0)
        high += max(reach, 0)
    return low, high


def _axes(place: _Place, ranges: Mapping[str, int]) -> dict[str, Addresses]:
    """Return the values to try of each symbol that matters.

    A symbol in no condition matters only at its ends, because addresses are affine. If there are
    too many combinations, the middle of the long ranges is left out.
    """
    conditions = _bound_symbols(place.bounds).union(
        *(_bound_symbols(guard.bounds) for guard in place.guards)
    )
    used = [name for name in ranges if name in conditions | place.address.symbols]
    axes = {
        name: np.arange(ranges[name]) if name in conditions else _ends(ranges[name], 1)
        for name in used
    }
    for keep in (64, 16, 4, 2):
        if math.prod(len(values) for values in axes.values()) <= _MOST_ELEMENTS:
            break
        axes = {
            name: values
            if name in ("row", "col") or len(values) <= 2 * keep
            else _ends(len(values), keep)
            for name, values in axes.items()
        }
    return axes


def _ends(count: int, keep: int) -> Addresses:
    """Return the first and the last `keep` of 0 .. count-1."""
    return np.unique(np.concatenate([np.arange(count)[:keep], np.arange(count)[-keep:]]))


def _stray_message(
    site: Site,
    view: View,
    size: int,
    stray: tuple[int, dict[str, int]],
    scalars: Mapping[str, int],
) -> str:
    address, example = stray
    verb = "writes" if view in accesses(site.step).views_written else "reads"
    where = ", ".join(f"{name} {value}" for name, value in example.items())
    sizes = ", ".join(f"{name} = {value}" for name, value in scalars.items())
    example_text = "; ".join(part for part in (where, sizes) if part)
    elements = "element" if size == 1 else "elements"
    return (
        f"{verb} {view.buffer.name}[{address}], but {view.buffer.name!r} has {size} {elements}"
        f"{f' ({example_text})' if example_text else ''}. Correct the offset, or add a bound: on a "
        f"Copy, or with When around a Load or Store."
    )


# --- Which elements of shared memory a step touches -------------------------------------------


@dataclass(frozen=True, slots=True)
class _Footprint:
    """Elements of one shared buffer that a view touches, row by row of `cells`.

    cells: (rows, size). columns: for the warp and each loop variable that the view depends on, its
    value in each row; a symbol without a column does not matter.
    """

    columns: dict[str, Addresses]
    cells: Mask
    exact: bool

    @property
    def union(self) -> Mask:
        """The elements touched by any warp in any iteration: (size,)."""
        result: Mask = np.logical_or.reduce(self.cells, axis=0)
        return result


def _footprint(program: Program, site: Site, view: View) -> _Footprint:
    """Return the elements that may be touched; `exact` if they are, whatever the sizes are."""
    ranges = {"warp": program.warps}
    for loop in site.loops:
        count = loop.count.constant
        most = _MOST_ITERATIONS if count is None else min(count, _MOST_FIXED_ITERATIONS)
        ranges[loop.var] = most
    return _footprint_of(view, site.guards, tuple(ranges.items()))


@lru_cache(maxsize=256)
def _footprint_of(
    view: View, guards: tuple[Guard, ...], items: tuple[tuple[str, int], ...]
) -> _Footprint:
    ranges = dict(items)
    known = ranges.keys() | {"row", "col"}
    size = view.buffer.size.constant or 1
    bounds = tuple(bound for bound in view.bounds if _bound_symbols((bound,)) <= known)
    guards = tuple(guard for guard in guards if _bound_symbols(guard.bounds) <= known)
    place = _Place(view.address, bounds, guards)
    used = place.address.symbols | _bound_symbols(bounds)
    used = used.union(*(_bound_symbols(guard.bounds) for guard in guards))
    axes = {name: np.arange(count) for name, count in ranges.items() if name in used}
    count = math.prod(len(values) for values in axes.values())
    too_many = count * view.rows * view.cols > _MOST_ELEMENTS or count * size > _MOST_CELLS
    if too_many or not place.address.symbols <= known:
        return _Footprint({}, np.ones((1, size), dtype=np.bool_), exact=False)
    cells = _cells(place, axes, (view.rows, view.cols), size)
    grids = np.meshgrid(*axes.values(), indexing="ij")
    columns = {name: grid.ravel() for name, grid in zip(axes, grids, strict=True)}
    return _Footprint(columns, cells, exact=bounds == view.bounds)


def _cells(place: _Place, axes: dict[str, Addresses], tile: tuple[int, int], size: int) -> Mask:
    """Return which of `size` elements each combination of the axes touches."""
    shape = (*(len(values) for values in axes.values()), *tile)
    env = _mesh({**axes, "row": np.arange(tile[0]), "col": np.arange(tile[1])})
    address = np.broadcast_to(_evaluate(place.address, env), shape)
    used = np.broadcast_to(_holds(place.bounds, env) & _reached(place.guards, env), shape)
    used = used & (address >= 0) & (address < size)
    flat_used = used.reshape(-1, tile[0] * tile[1])
    flat_address = address.reshape(-1, tile[0] * tile[1])
    cells = np.zeros((flat_used.shape[0], size), dtype=np.bool_)
    row, element = np.nonzero(flat_used)
    cells[row, flat_address[row, element]] = True
    return cells


def _is_shared(view: View) -> bool:
    return view.buffer.level is not Level.GRID


# --- Defined before use -----------------------------------------------------------------------


@dataclass(slots=True)
class _Defined:
    """What has a value after a step.

    frags: names of fragments. cells: elements of each shared buffer. branches: what the branches of
    earlier Whens defined, for later ones with the same condition.
    """

    frags: frozenset[str] = frozenset()
    cells: dict[str, Mask] = field(default_factory=dict)
    branches: dict[tuple[tuple[Bound, ...], bool], _Defined] = field(default_factory=dict)

    def copy(self) -> _Defined:
        """Return a copy; masks are replaced, never changed, so they are shared."""
        return _Defined(self.frags, dict(self.cells), dict(self.branches))

    def add_cells(self, name: str, mask: Mask) -> None:
        """Add elements of a shared buffer."""
        old = self.cells.get(name)
        self.cells[name] = mask if old is None else old | mask

    def add(self, other: _Defined) -> None:
        """Add all that another state defines."""
        self.frags |= other.frags
        for name, mask in other.cells.items():
            self.add_cells(name, mask)


def defined_before_use(program: Program) -> Iterator[Finding]:
    """Require that fragments and shared memory are written before they are read, on every path.

    A loop whose count is known only at run time may run zero times; what it defines is not counted
    after it. What both branches of a When define counts, and what one branch defines counts in the
    same branch of a later When with the same condition. One warp's write counts for its block.
    A read whose bounds depend on sizes is compared with the buffer as a whole, not by element.
    Source: fragments and shared memory begin with unspecified contents [CPG sec. 10.24.1, 7.2.2].
    """
    found: list[Finding] = []
    _define_all(program, _top(program), _Defined(), found)
    yield from found


def _define_all(
    program: Program,
    sites: Iterator[Site] | tuple[Site, ...],
    state: _Defined,
    found: list[Finding],
) -> None:
    """Find what is read too early in these steps; `state` becomes what is defined after them."""
    for site in sites:
        if isinstance(site.step, Loop):
            _define_loop(program, site, state, found)
        elif isinstance(site.step, When):
            _define_when(program, site, state, found)
        else:
            found.extend(_undefined(program, site, state))
            touched = accesses(site.step)
            state.frags |= {frag.name for frag in touched.frags_written}
            for view in filter(_is_shared, touched.views_written):
                state.add_cells(view.buffer.name, _footprint(program, site, view).union)


def _define_loop(program: Program, site: Site, state: _Defined, found: list[Finding]) -> None:
    if not isinstance(site.step, Loop):
        return
    inside = state.copy()
    _define_all(program, site.inner(), inside, found)
    if site.step.count.constant:
        state.add(inside)


def _define_when(program: Program, site: Site, state: _Defined, found: list[Finding]) -> None:
    if not isinstance(site.step, When):
        return
    bounds = site.step.bounds
    ends: list[_Defined] = []
    for taken in (True, False):
        inside = state.copy()
        inside.add(state.branches.get((bounds, taken), _Defined()))
        _define_all(program, site.branch(taken=taken), inside, found)
        ends.append(inside)
    body, otherwise = ends
    for taken, end in ((True, body), (False, otherwise)):
        state.branches[bounds, taken] = end
    state.frags |= body.frags & otherwise.frags
    for name, buffer in program.buffers.items():
        masks = [end.cells[name] for end in ends if name in end.cells]
        # Another warp of the block takes the other branch, and all see what it writes.
        if masks and buffer.level is Level.BLOCK and _depends_on_warp(bounds):
            state.add_cells(name, np.logical_or.reduce(masks))
        elif len(masks) == 2:
            state.add_cells(name, masks[0] & masks[1])


def _undefined(program: Program, site: Site, state: _Defined) -> Iterator[Finding]:
    touched = accesses(site.step)
    for frag in dict.fromkeys(touched.frags_read):
        if frag.name not in state.frags:
            yield Finding(
                site,
                f"reads {frag.role} {frag.name!r}, which no earlier step sets on every path. Set "
                f"it with Const or Load before.",
            )
    for view in filter(_is_shared, touched.views_read):
        name = view.buffer.name
        written = state.cells.get(name)
        footprint = _footprint(program, site, view)
        if written is None:
            missing = footprint.union
        elif footprint.exact:
            missing = footprint.union & ~written
        else:
            continue
        if missing.any():
            elements = np.flatnonzero(missing)
            yield Finding(
                site,
                f"reads {name}[{elements[0]}] ({elements.size} such elements), which no earlier "
                f"step writes on every path. Fill {name!r} with Copy or Store before.",
            )


# --- Overlaps within one step -----------------------------------------------------------------


def copy_overlap(program: Program) -> Iterator[Finding]:
    """Require that a Copy or Split writes an element once, and none that another lane reads.

    A destination and a source in one buffer are the very same rectangle, or disjoint.
    Source: the lanes of a warp run in no order [CPG sec. 7.1].
    """
    for site in _sites(program):
        if not isinstance(site.step, Copy | Split):
            continue
        touched = accesses(site.step)
        for view in touched.views_written:
            if _writes_twice(view):
                yield Finding(
                    site,
                    f"writes elements of {view.buffer.name!r} more than once: strides "
                    f"{view.row_stride} and {view.col_stride} for {view.rows}x{view.cols}. Only a "
                    f"source may repeat rows or columns.",
                )
        for one, two in itertools.combinations(touched.views_written, 2):
            if _overlap(program, site, one, two):
                yield Finding(
                    site, f"two parts overlap in {one.buffer.name!r}. Give each part its own place."
                )
        for target, source in itertools.product(touched.views_written, touched.views_read):
            in_place = replace(target, bounds=()) == replace(source, bounds=())
            if not in_place and _overlap(program, site, target, source):
                yield Finding(
                    site,
                    f"reads and writes overlapping parts of {target.buffer.name!r}, and the lanes "
                    f"run in no order. Use the same rectangle, a disjoint one, or another buffer.",
                )


def _relative(view: View) -> Addresses:
    """Return the addresses from the offset on, less those that a bound on row and col excludes."""
    env = _mesh({"row": np.arange(view.rows), "col": np.arange(view.cols)})
    address = np.broadcast_to(_evaluate(view.address - view.offset, env), (view.rows, view.cols))
    bounds = tuple(bound for bound in view.bounds if _bound_symbols((bound,)) <= {"row", "col"})
    return address[np.broadcast_to(_holds(bounds, env), address.shape)]


def _writes_twice(view: View) -> bool:
    addresses = _relative(view)
    return np.unique(addresses).size < addresses.size


def _overlap(program: Program, site: Site, one: View, two: View) -> bool:
    """Whether two views may share an element, for the same warp in the same iteration."""
    if one.buffer != two.buffer:
        return False
    difference = two.offset - one.offset
    if difference.terms and _is_shared(one):
        first, second = _footprint(program, site, one), _footprint(program, site, two)
        return _meets(first, second, _same_values(first, second))
    if difference.terms:
        return True
    shared = np.intersect1d(_relative(one), _relative(two) + difference.const)
    return shared.size > 0


def _meets(one: _Footprint, two: _Footprint, allowed: Mask) -> bool:
    """Whether a row of `one` and a row of `two` that are allowed together share an element."""
    common = one.union & two.union
    if not common.any():
        return False
    left = one.cells[:, common].astype(np.float32)
    right = two.cells[:, common].astype(np.float32)
    return bool(((left @ right.T > 0) & allowed).any())


def _same_values(one: _Footprint, two: _Footprint) -> Mask:
    """Return the pairs of rows that agree in every symbol: (rows of one, rows of two)."""
    allowed: Mask = np.ones((len(one.cells), len(two.cells)), dtype=np.bool_)
    for name in one.columns.keys() & two.columns.keys():
        allowed &= one.columns[name][:, None] == two.columns[name][None, :]
    return allowed


# --- Hazards on shared memory -----------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Access:
    """One read or write of shared memory. Each is itself, and equal to no other.

    passes: the loops around it by path, each with 1 or 2: a loop's body is followed by itself, and
    pass 2 stands for any later iteration.
    """

    site: Site
    view: View
    writes: bool
    passes: tuple[tuple[str, int], ...]


# Accesses since the last barrier of the block; True if a barrier of the warp came since.
_Pending: TypeAlias = dict[_Access, bool]


@dataclass(slots=True)
class _Hazards:
    """Findings so far, and the pairs of steps that they are about."""

    program: Program
    found: dict[tuple[str, str, str], Finding] = field(default_factory=dict)


def synced_shared(program: Program) -> Iterator[Finding]:
    """Require a barrier between two accesses to a shared element, if one of them is a write.

    Within a warp any barrier will do; between the warps of a block it must be one of the block.
    Views that provably share no element need none. A loop's body is followed by itself.
    Source: __syncwarp and __syncthreads [CPG sec. 10.6]; loopy's MissingBarrierError.
    """
    hazards = _Hazards(program)
    _sync_all(hazards, _top(program), {}, ())
    yield from hazards.found.values()


def _sync_all(
    hazards: _Hazards,
    sites: Iterator[Site] | tuple[Site, ...],
    pending: _Pending,
    passes: tuple[tuple[str, int], ...],
) -> _Pending:
    """Find hazards in these steps, and return the accesses that are pending after them."""
    for site in sites:
        if isinstance(site.step, Sync):
            block = site.step.level is Level.BLOCK
            pending = {} if block else dict.fromkeys(pending, True)
        elif isinstance(site.step, Loop):
            pending = _sync_loop(hazards, site, pending, passes)
        elif isinstance(site.step, When):
            pending = _sync_when(hazards, site, pending, passes)
        else:
            pending = _sync_access(hazards, site, pending, passes)
    return pending


def _sync_loop(
    hazards: _Hazards, site: Site, pending: _Pending, passes: tuple[tuple[str, int], ...]
) -> _Pending:
    if not isinstance(site.step, Loop) or site.step.count.constant == 0:
        return pending
    after = _sync_all(hazards, site.inner(), pending, (*passes, (site.path, 1)))
    if site.step.count.constant != 1:
        after = _sync_all(hazards, site.inner(), after, (*passes, (site.path, 2)))
    # A loop whose count is known at run time may run zero times: its barriers may not happen.
    return after if site.step.count.constant else _either(pending, after)


def _sync_when(
    hazards: _Hazards, site: Site, pending: _Pending, passes: tuple[tuple[str, int], ...]
) -> _Pending:
    if not isinstance(site.step, When):
        return pending
    body = _sync_all(hazards, site.branch(taken=True), pending, passes)
    before = pending
    if _depends_on_warp(site.step.bounds):
        # Other warps are in the other branch meanwhile.
        before = {**body, **pending}
    otherwise = _sync_all(hazards, site.branch(taken=False), before, passes)
    return _either(body, otherwise)


def _either(one: _Pending, two: _Pending) -> _Pending:
    """Return what may be pending after one of two ways."""
    return {access: one.get(access, True) and two.get(access, True) for access in {**one, **two}}


def _sync_access(
    hazards: _Hazards, site: Site, pending: _Pending, passes: tuple[tuple[str, int], ...]
) -> _Pending:
    touched = accesses(site.step)
    reads = [_Access(site, v, False, passes) for v in filter(_is_shared, touched.views_read)]
    writes = [_Access(site, v, True, passes) for v in filter(_is_shared, touched.views_written)]
    new = [*reads, *writes]
    for access in new:
        for earlier, synced in pending.items():
            if not synced:
                _compare(hazards, earlier, access, same_warp=True)
            _compare(hazards, earlier, access, same_warp=False)
        for other in new:
            _compare(hazards, other, access, same_warp=False)
    return {**pending, **dict.fromkeys(new, False)}


def _compare(hazards: _Hazards, earlier: _Access, later: _Access, *, same_warp: bool) -> None:
    """Record a hazard if both may touch an element, one of them writing, within or across warps."""
    program = hazards.program
    buffer = later.view.buffer
    if earlier.view.buffer != buffer or not (earlier.writes or later.writes):
        return
    if not same_warp and (buffer.level is Level.WARP or program.warps == 1):
        return
    key = (earlier.site.path, later.site.path, buffer.name)
    if key in hazards.found or (same_warp and _exclusive(earlier, later)):
        return
    one = _footprint(program, earlier.site, earlier.view)
    two = _footprint(program, later.site, later.view)
    if _meets(one, two, _concurrent(earlier, later, one, two, same_warp=same_warp)):
        hazards.found[key] = Finding(later.site, _hazard_message(earlier, later, same_warp))


def _exclusive(earlier: _Access, later: _Access) -> bool:
    """Whether no warp does both in one go: they are in different branches of one When."""
    for one, two in itertools.product(earlier.site.guards, later.site.guards):
        if (one.path, one.bounds) != (two.path, two.bounds) or one.taken == two.taken:
            continue
        around = {path for path, _ in earlier.passes if one.path.startswith(f"{path}.")}
        if all(entry in later.passes for entry in earlier.passes if entry[0] in around):
            return True
    return False


def _concurrent(
    earlier: _Access, later: _Access, one: _Footprint, two: _Footprint, *, same_warp: bool
) -> Mask:
    """Return the pairs of rows that can meet: same or other warp, same or later iteration."""
    allowed: Mask = np.ones((len(one.cells), len(two.cells)), dtype=np.bool_)
    if "warp" in one.columns and "warp" in two.columns:
        equal = one.columns["warp"][:, None] == two.columns["warp"][None, :]
        allowed &= equal if same_warp else ~equal
    loops = zip(earlier.passes, later.passes, earlier.site.loops, strict=False)
    for (path, turn), (other_path, other_turn), loop in loops:
        if path != other_path:
            break
        if loop.var in one.columns and loop.var in two.columns:
            first, second = one.columns[loop.var][:, None], two.columns[loop.var][None, :]
            allowed &= first == second if turn == other_turn else first < second
        if turn != other_turn:
            break
    return allowed


def _hazard_message(earlier: _Access, later: _Access, same_warp: bool) -> str:
    name = later.view.buffer.name
    level = Level.WARP if same_warp else Level.BLOCK
    remedy = f"Put Sync(Level.{level.name}) between them"
    verb = "writes" if later.writes else "reads"
    other_verb = "writes" if earlier.writes else "reads"
    who = "" if same_warp else " in another warp"
    again = earlier.passes != later.passes
    when = " in an earlier iteration" if again else ""
    if earlier.site.path == later.site.path and not again:
        return (
            f"{verb} elements of {name!r} that the same step {other_verb} in another warp. Make "
            f"the offset depend on the warp, or let one warp do it, with When."
        )
    if again:
        remedy = f"{remedy}, such as at the end of the loop's body"
    return (
        f"{verb} elements of {name!r} that step {earlier.site.path} {other_verb}{who}{when}, with "
        f"no barrier between. {remedy}."
    )


_WELL_FORMED: Final[tuple[Check, ...]] = (
    positive_counts,
    distinct_names,
    buffer_roles,
    symbols_in_scope,
)
_CORRECT: Final[tuple[Check, ...]] = (
    operand_roles,
    fragment_shapes,
    equal_rectangles,
    element_types,
    one_layout,
    tile_layout,
    alignment,
    uniform_barrier,
    defined_before_use,
    inside_buffer,
    copy_overlap,
    synced_shared,
)

CHECKS: Final[Mapping[str, Check]] = {check.__name__: check for check in _WELL_FORMED + _CORRECT}
