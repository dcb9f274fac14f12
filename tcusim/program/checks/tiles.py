"""An instruction's requirements for operands: roles, sizes, element types, layouts, addresses."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Final

from tcusim.machine.formats import FORMATS, format_of, is_type
from tcusim.machine.shapes import MmaShape
from tcusim.program.checks.sites import Finding, each_step, tiles
from tcusim.program.grammar import (
    PARTS,
    Add,
    Assign,
    Await,
    Const,
    Formula,
    Frag,
    Index,
    Load,
    Locate,
    Mma,
    Operation,
    PatternKind,
    Prefix,
    Program,
    Publish,
    Role,
    Space,
    Step,
    Store,
    Strided,
    View,
    When,
    type_of,
)
from tcusim.program.walk import Site, sites

# --- Roles and sizes --------------------------------------------------------------------------


@each_step
def operand_roles(program: Program, site: Site) -> Iterator[str]:
    """Require matrix_a, matrix_b and accumulators where an mma, an addition or a store takes them.

    Source: the signatures of mma_sync and store_matrix_sync [CPG sec. 10.24.1].
    """
    for operand, frag, role in _operands(site.step):
        if frag.role is role:
            continue
        article = "an " if role is Role.ACC else ""
        if operand == "result d":
            remedy = "Only accumulators hold results"
        elif frag.role is Role.ACC:
            remedy = f"Store it to shared memory and load it as {role}"
        elif role is Role.ACC:
            remedy = "Load the values into an accumulator"
        else:
            remedy = "Load the values into a fragment of that role, or swap the operands"
        yield f"{operand} must be {article}{role}, got {frag.role} {frag.name!r}. {remedy}."


def _operands(step: Step) -> tuple[tuple[str, Frag, Role], ...]:
    """Return the fragments that need a certain role in the step."""
    match step:
        case Mma(d, a, b, c):
            sources = ("operand a", a, Role.A), ("operand b", b, Role.B), ("operand c", c, Role.ACC)
            return (*sources, ("result d", d, Role.ACC))
        case Add(d, a, b):
            operands = ("operand a", a), ("operand b", b), ("result d", d)
            return tuple((operand, frag, Role.ACC) for operand, frag in operands)
        case Store(_, frag):
            return (("the source", frag, Role.ACC),)
        case _:
            return ()


@each_step
def fragment_shapes(program: Program, site: Site) -> Iterator[str]:
    """Require the program's shape of every fragment, and its fragment's size of every tile.

    Source: mma_sync takes fragments of one m, n, k [CPG sec. 10.24.1].
    """
    for frag in dict.fromkeys(site.touched.frags):
        if frag.shape != program.shape:
            yield (
                f"fragment {frag.name!r} has shape {frag.shape}, the program {program.shape}. "
                f"Build the program for one shape."
            )
    for frag, view in tiles(site.step):
        if (view.rows, view.cols) != (frag.rows, frag.cols):
            yield (
                f"{frag.role} {frag.name!r} of shape {frag.shape} is {frag.rows}x{frag.cols}, "
                f"the tile of {view.buffer.name!r} is {view.rows}x{view.cols}. Copy a smaller "
                f"rectangle into a padded tile of shared memory."
            )


@each_step
def equal_rectangles(program: Program, site: Site) -> Iterator[str]:
    """Require equal rows and columns of all rectangles of a copying step, and of ranges.

    Source: the grammar; lanes pair the elements by row and column.
    """
    views = site.touched.views
    for view in views:
        along = [axis for axis in (view.row_axis, view.col_axis) if isinstance(axis, Strided)]
        if view.ranges is not None and not (along and along[0].stride):
            yield (
                f"the rectangle of {view.buffer.name!r} is gathered by {view.ranges.name!r}, but "
                f"its elements do not follow each other in a range. Gather the rows or the "
                f"columns, and give the other axis a stride of at least 1."
            )
        if view.ranges is not None and view.buffer.space is not Space.GLOBAL:
            yield (
                f"{view.ranges.name!r} are ranges of global memory, {view.buffer.name!r} is not."
            )
    if not isinstance(site.step, Assign | Publish | Await):
        return
    first, *others = views
    for view in others:
        if (view.rows, view.cols) != (first.rows, first.cols):
            yield (
                f"{first.buffer.name!r} is {first.rows}x{first.cols}, {view.buffer.name!r} is "
                f"{view.rows}x{view.cols}. Use one size; a stride of 0 repeats a row or a column."
            )


# Element types that a Prefix accepts, by its type of addition.
_ADDED: Final = {"f32": ("f32",), "f64": ("f16", "f64")}


@each_step
def rows_of_sums(program: Program, site: Site) -> Iterator[str]:
    """Require that a Prefix's type represents its elements, and a place for each row's result.

    Source: the grammar; lanes that share a row write where they read, or one of them its sum.
    """
    if not isinstance(site.step, Prefix):
        return
    dst, src, totals = site.step.dst, site.step.src, site.step.totals
    wide, added = dst.buffer.dtype, type_of(site.step.value)
    if wide not in _ADDED:
        yield f"adds up rows in f32 or f64, and {dst.buffer.name!r} is {wide}."
    elif added not in _ADDED[wide]:
        named = repr(src.buffer.name) if site.step.value == src else "the value"
        yield (
            f"adds up rows of {' or '.join(_ADDED[wide])} in {wide}, and {named} is {added}. Use "
            f"Assign to convert it."
        )
    if totals is not None and totals.buffer.dtype != wide:
        yield (
            f"the sums are {wide}, and {totals.buffer.name!r} is {totals.buffer.dtype}. Give both "
            f"rectangles one type."
        )
    places = [("the prefix sums", dst, {1, src.cols})]
    if totals is not None:
        places.append(("the sums", totals, {1}))
    for what, view, cols in places:
        if view.rows != src.rows or view.cols not in cols:
            yield (
                f"{what} of {src.rows}x{src.cols} elements go to {view.buffer.name!r}, a rectangle "
                f"of {view.rows}x{view.cols}. Give each row its own, of {src.cols} columns or of "
                f"one for its sum."
            )
        if view.ranges is not None:
            yield f"{what} go to a gathered rectangle of {view.buffer.name!r}. Copy them there."


# --- Element types ----------------------------------------------------------------------------


def element_types(program: Program) -> Iterator[Finding]:
    """Require types that agree, and that the shape has an instruction for.

    Load and Store do not convert (a tf32 fragment loads f32), nor do Publish and Await; Assign
    converts, but never a float to an integer. The terms of a formula become its type exactly. SPLIT
    goes from f32 or f64 to narrower floats.
    Offsets are s64.
    Source: element types and matrix sizes [CPG sec. 10.24.6], and the grammar.
    """
    if program.uses_mma and not program.shape.supports(program.ab, program.acc):
        pairs = ", ".join(f"{ab} to {acc}" for ab, acc in program.shape.pairs())
        others = "any known types"
        if not program.shape.virtual:
            others = "only types of less than a byte, which no program has"
        yield Finding(
            None,
            f"shape {program.shape} does not take {program.ab} to {program.acc}. It takes: "
            f"{pairs or others}.",
        )
    yield from _types_of_step(program)


@each_step
def _types_of_step(program: Program, site: Site) -> Iterator[str]:
    touched = site.touched
    stored = [view.buffer.dtype for view in touched.views]
    unknown = [name for name in (*(f.dtype for f in touched.frags), *stored) if not is_type(name)]
    # tf32 is a way to read f32, not a way to store.
    unknown += ["tf32 in memory" for name in stored if name == "tf32"]
    if unknown:
        yield f"unknown element type {unknown[0]!r}. Known: {', '.join(FORMATS)}."
        return
    for frag in dict.fromkeys(touched.frags):
        wanted = program.acc if frag.role is Role.ACC else program.ab
        if frag.dtype != wanted:
            yield (
                f"{frag.role} {frag.name!r} must be {wanted} as in the program, got {frag.dtype}. "
                f"Convert in shared memory with Assign."
            )
    yield from _conversions(site.step)


def _conversions(step: Step) -> Iterator[str]:
    for frag, view in tiles(step):
        types = (frag.dtype, view.buffer.dtype)
        if types[0] != types[1] and not (isinstance(step, Load) and types == ("tf32", "f32")):
            yield (
                f"fragment {frag.name!r} is {types[0]}, buffer {view.buffer.name!r} is {types[1]}; "
                f"tiles are not converted on the way. Convert in shared memory with Assign."
            )
    if isinstance(step, Load | Prefix) and isinstance(step.value, Formula):
        yield from _formula(step.value)
    match step:
        case When(not_finite=View() as values) if not format_of(values.buffer.dtype).is_float:
            yield f"asks if {values.buffer.dtype} is finite; integers are. Leave the branch out."
        case Assign(dst, value):
            source, target = type_of(value), dst.buffer.dtype
            if isinstance(value, Formula):
                yield from _formula(value)
            if isinstance(value, Formula) and value.operation is Operation.SPLIT:
                parts = [view.buffer.dtype for view in step.dsts]
                yield from _narrowings(type_of(value.terms[0]), parts)
            elif format_of(source).is_float and not format_of(target).is_float:
                yield (
                    f"converts {source} to {target}; a float is never made an integer. Use a float "
                    f"buffer."
                )
        case Publish(dst, src) | Await(dst, src) if src.buffer.dtype != dst.buffer.dtype:
            yield (
                f"makes {dst.buffer.dtype} of {src.buffer.dtype}; status words are not converted "
                f"on the way. Convert in shared memory with Assign."
            )
        case Locate(segments=segments) if segments.offsets.dtype != "s64":
            offsets = segments.offsets
            yield f"offsets {offsets.name!r} are {offsets.dtype}. They must be s64."


# Types of terms that become a formula's type exactly, and the types of operations that have one.
_EXACTLY: Final = {"f32": ("f16", "bf16"), "s64": ("s32",)}
_COMPUTED: Final = {
    Operation.TIMES: "f32",
    Operation.OVER: "f32",
    Operation.ROOT: "f32",
    Operation.MAX: "f32",
    Operation.PLUS_TO_ODD: "f64",
}


def _formula(formula: Formula) -> Iterator[str]:
    """Yield the terms that a formula cannot take in its type."""
    operation, dtype = formula.operation, formula.dtype
    for term in formula.terms:
        if isinstance(term, Formula):
            yield from _formula(term)
        found = type_of(term)
        if operation in PARTS and not format_of(found).is_float:
            yield f"takes {found} only where it is {operation}; integers are finite. Take all."
        elif operation is not Operation.SPLIT and found not in (dtype, *_EXACTLY.get(dtype, ())):
            yield (
                f"{operation} is computed in {dtype}, which does not take {found}. Assign it to a "
                f"rectangle of {dtype} first."
            )
    only = _COMPUTED.get(operation, dtype)
    if only != dtype:
        yield f"{operation} is computed in {only}, not in {dtype}. Give the formula that type."


def _narrowings(wide: str, parts: list[str]) -> Iterator[str]:
    narrow = list(dict.fromkeys(parts))
    if len(narrow) > 1:
        yield f"the parts are {' and '.join(narrow)}. Use one type for all parts."
    if wide not in ("f32", "f64"):
        yield f"the source must be f32 or f64, got {wide}. Use Assign."
        return
    for name in narrow:
        part = format_of(name)
        if not part.is_float or part.fraction_bits >= format_of(wide).fraction_bits:
            yield f"{name} is not a float narrower than {wide}. Use f16, bf16 or tf32."


# --- Layouts and addresses --------------------------------------------------------------------


def one_layout(program: Program) -> Iterator[Finding]:
    """Require that a name means fragments of one type and layout, or ranges of one count.

    Source: role, sizes, type and layout are template arguments of fragment [CPG sec. 10.24.1].
    """
    meanings: dict[str, Frag] = {}
    layouts: dict[str, str] = {}
    counts: dict[str, int] = {}
    for site in sites(program):
        touched = site.touched
        for ranges in dict.fromkeys((*touched.ranges_written, *touched.ranges_read)):
            before = counts.setdefault(ranges.name, ranges.count)
            if before != ranges.count:
                yield Finding(
                    site,
                    f"{ranges.name!r} are {ranges.count} ranges here and {before} before. Use two "
                    f"names.",
                )
        for frag in dict.fromkeys(touched.frags):
            first = meanings.setdefault(frag.name, frag)
            if frag != first:
                here, there = (f"{one.role} {one.dtype} of {one.shape}" for one in (frag, first))
                yield Finding(
                    site,
                    f"fragment {frag.name!r} is {here} here and {there} before. Use two names.",
                )
        match site.step:
            case Load(Frag(name, role)) as load if role is not Role.ACC and load.src.layout:
                layout = load.src.layout
                loaded = layouts.setdefault(name, layout)
                if loaded != layout:
                    yield Finding(
                        site,
                        f"{role} {name!r} is loaded {layout} here and {loaded} before; the "
                        f"layout is part of its type. Use two fragments.",
                    )


@each_step
def tile_layout(program: Program, site: Site) -> Iterator[str]:
    """Require that a tile has a unit stride, an ldm that covers it, and no bounds.

    With an ldm of 0 every row, or column, of an operand is the same one: of a stride, [PTX "Matrix
    Storage for WMMA"] asks for nothing but the alignment of each row.
    Source: load_matrix_sync and store_matrix_sync take a layout and ldm [CPG sec. 10.24.1].
    """
    for frag, view in tiles(site.step):
        name, layout = view.buffer.name, view.layout
        if view.ranges is not None:
            yield (
                f"the tile of {name!r} is gathered, and a tile is loaded or stored whole. Copy it "
                f"to or from a tile of shared memory."
            )
            continue
        if layout is None:
            yield (
                f"the tile of {name!r} has strides {view.row_stride} and {view.col_stride}; one of "
                f"them must be 1. Copy the tile to shared memory first."
            )
            continue
        least = view.cols if layout == "row_major" else view.rows
        of_operand = isinstance(site.step, Load) and frag.role is not Role.ACC
        repeats = view.ldm == 0 and of_operand
        if view.ldm < least and not (repeats or _stores_to_one_place(site.step)):
            yield (
                f"ldm must be at least {least} for a {layout} tile of {view.rows}x{view.cols}, got "
                f"{view.ldm}. To repeat a row or a column, Copy it to shared memory first."
            )
        if view.bounds:
            yield (
                f"the tile of {name!r} has the bound {view.bounds[0]}, but a tile is loaded or "
                f"stored whole. Copy it to or from a tile of shared memory, with the bound on the "
                f"Assign."
            )


def _stores_to_one_place(step: Step) -> bool:
    return isinstance(step, Store) and step.dst.ldm == 0


def equal_lines(program: Program) -> Iterator[Finding]:
    """Require that an accumulator stored with an ldm of 0 has equal rows, or columns.

    Source: of a stride, [PTX "Matrix Storage for WMMA"] asks for nothing but the alignment of each
    row. All rows are written to one place, in no order.
    """
    stores = [site for site in sites(program) if _stores_to_one_place(site.step)]
    equal = _equal_lines(program) if stores else set()
    for site in stores:
        ((frag, view),) = tiles(site.step)
        if (frag.name, view.layout) not in equal:
            lines = "rows" if view.layout == "row_major" else "columns"
            yield Finding(
                site,
                f"an ldm of 0 stores all {lines} of {frag.name!r} to one place, and they are not "
                f"all equal: it is not a chain of products with a constant whose {lines} are. Give "
                f"each its own place.",
            )


def _equal_lines(program: Program) -> set[tuple[str, str]]:
    """Return the fragments with equal rows ("row_major") or equal columns ("col_major").

    A row of A.B + C follows from the row of A and that of C, and a column from those of B and C.
    """
    both = ("row_major", "col_major")
    writes = [
        (site.step, frag.name) for site in sites(program) for frag in site.touched.frags_written
    ]
    equal = {(name, lines) for _, name in writes for lines in both}

    def is_kept(step: Step, lines: str) -> bool:
        match step:
            case Const(_, pattern):
                along = PatternKind.COL if lines == "row_major" else PatternKind.ROW
                return pattern.uniform or (pattern.kind is along and not pattern.size)
            case Mma(_, a, b, c):
                factor = a if lines == "row_major" else b
                return {(factor.name, lines), (c.name, lines)} <= equal
            case Add(_, a, b):
                return {(a.name, lines), (b.name, lines)} <= equal
            case _:
                return False

    found = -1
    while found != len(equal):
        found = len(equal)
        equal -= {(name, ls) for step, name in writes for ls in both if not is_kept(step, ls)}
    return equal


@each_step
def alignment(program: Program, site: Site) -> Iterator[str]:
    """Require of WMMA tiles an address that is a multiple of 32 bytes, and an ldm of 16.

    Every term of the offset must keep this, so that it holds for all blocks, warps and iterations.
    Source: load_matrix_sync [CPG sec. 10.24.1]. Shapes of other families have no such rule, unless
    they define one.
    """
    multiples = {scalar.name: scalar.multiple_of for scalar in program.scalars}
    for _, view in tiles(site.step):
        yield from _misalignments(view, program.shape, program.ab, program.acc, multiples)


def tile_is_aligned(view: View, shape: MmaShape, ab: str, acc: str) -> bool:
    """Return whether `alignment` would accept this tile in a program of these types."""
    return not any(_misalignments(view, shape, ab, acc, {}))


def _misalignments(
    view: View, shape: MmaShape, ab: str, acc: str, multiples: Mapping[str, int]
) -> Iterator[str]:
    tile_bytes, row_bytes = shape.alignment(ab, acc)
    if tile_bytes == row_bytes == 1 or not is_type(view.buffer.dtype):
        return  # of an unknown type, element_types says so
    name, offset = view.buffer.name, view.offset
    size = format_of(view.buffer.dtype).itemsize
    # Each term as text, with the elements that it is a multiple of.
    terms = [(str(Index((term,))), term[1] * multiples.get(term[0], 1)) for term in offset.terms]
    for text, step in (*terms, (str(offset.const), offset.const)):
        if step * size % tile_bytes:
            yield (
                f"the address {name}[{offset}] must be a multiple of {tile_bytes} bytes, but "
                f"the term {text} makes it a multiple of {math.gcd(step * size, tile_bytes)} only "
                f"({step} elements of {size} bytes). Pad the leading dimension, or stage the tile "
                f"through shared memory."
            )
    if view.ldm * size % row_bytes:
        yield (
            f"ldm = {view.ldm} elements of {size} bytes is {view.ldm * size} bytes, but must be a "
            f"multiple of {row_bytes} bytes. Pad the leading dimension, or stage the tile through "
            f"shared memory."
        )
