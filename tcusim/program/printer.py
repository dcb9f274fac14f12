"""A program as text, in the notation of the paper's listings (Algorithms 1-6).

- `in[256*block … +256]` is the half-open range of 256 elements that begins at 256*block.
- `v[16*row + col]  8x16` is a rectangle: the element at (row, col), for 8 rows and 16 columns.
- `in[256*block + col < length]` reads 0, or writes nothing, where the index is not below the limit.
  Other bounds follow `where`.

Equal programs print equal text. Programs that differ in anything that matters print different text
(a stride along a side of one element does not matter, and is not shown).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from tcusim.machine.formats import format_of, is_type
from tcusim.program.grammar import (
    COL,
    ROW,
    Add,
    Assign,
    Await,
    Bound,
    Buffer,
    BufferRole,
    Const,
    Formula,
    Frag,
    Gathered,
    Index,
    Load,
    Locate,
    Loop,
    Mma,
    Numbered,
    Operation,
    Pattern,
    PatternKind,
    Prefix,
    Program,
    Publish,
    Role,
    Space,
    Step,
    Store,
    Sync,
    Value,
    View,
    When,
    accesses,
    branch_of,
    is_square,
    numbered,
    require_program,
    type_of,
    views_of,
    walk,
)

# Column of the origins, unless a step is longer.
_ORIGIN_COLUMN = 80

_LAYOUTS = {"row_major": "rowmajor", "col_major": "colmajor"}


def listing(program: Program) -> str:
    """Return the whole program as text: a header of declarations, then its numbered steps.

    Parameters
    ----------
    program : Program
        Any program; it need not be a correct one.

    Returns
    -------
    str
        The text, with a newline at the end.
    """
    require_program(program)
    lines = [f"program {program.name}"]
    lines += [f"  {kind:<12} {text}" for kind, text in _header(program)]
    lines.append("")
    width = max((len(path) for path, _ in walk(program.steps)), default=0)
    lines.extend(_body(numbered(program.steps), "", width + 2))
    return "\n".join(lines) + "\n"


def line(step: Step) -> str:
    """Return the one-line text of a step; of a Loop or a When, its head without the body.

    Such as ``V ← P·A + V``.
    """
    match step:
        case Const(dst, pattern):
            return f"{dst.name} ← {_pattern(pattern)}"
        case Load(dst, value):
            views = views_of(value)
            tile = f"LoadTile({_tile(views[0], dst)})" if views else _value(value, dst.dtype)
            return f"{dst.name} ← {tile if step.part is None else _called(step.part, tile)}"
        case Mma(d, a, b, c):
            return f"{d.name} ← {a.name}·{b.name} + {c.name}"
        case Add(d, a, b):
            return f"{d.name} ← {a.name} + {b.name}  (rounded)"
        case Store(target, frag):
            return f"StoreTile({_tile(target, frag)}) ← {frag.name}"
        case Assign(target, value):
            targets = ", ".join(map(_element, step.dsts))
            text = _rounded(value, target.buffer.dtype)
            return f"{targets} ← {text}  {_sizes(*step.dsts, *views_of(value))}"
        case Prefix():
            return _prefix(step)
        case Publish(target, source) | Await(target, source):
            copied = f"{_element(target)} ← {_element(source)}  {_sizes(target, source)}"
            return f"{type(step).__name__.lower()} {copied}"
        case Locate():
            return _locate(step)
        case Sync() | Loop() | When():
            return _control(step)
        case _:
            assert_never(step)


def _rounded(value: Value, dtype: str) -> str:
    """Print a value that is stored as another type, with that type where it rounds."""
    wide = type_of(value)
    # Errors print programs of unknown types as well.
    known = is_type(wide) and is_type(dtype)
    if known and not format_of(dtype).holds(format_of(wide)):
        return f"{dtype}({_value(value, wide)})"
    return _value(value, dtype)


def _value(value: Value, dtype: str, *, inner: bool = False) -> str:
    """Print a value that is used as a type. inner: put a sum or a product in parentheses."""
    match value:
        case View():
            return _element(value)
        case Formula(operation, terms):
            alone = len(terms) == 1
            one, *others = (_value(term, value.dtype, inner=not alone) for term in terms)
            if operation is Operation.ROOT:
                text = f"√({one})" if isinstance(terms[0], Formula) else f"√{one}"
            elif is_square(value):
                text = f"{one}²"
            elif alone:
                text = _called(operation, one)
            elif operation is Operation.PLUS_TO_ODD:
                text = f"odd({one} + {others[0]})"
            elif operation is Operation.MAX:
                text = f"max({one}, {others[0]})"
            else:
                text = f"{one} {operation} {others[0]}"
                inner = inner and value.dtype == dtype
                text = f"({text})" if inner else text
            return text if value.dtype == dtype else f"{value.dtype}({text})"
        case _:
            return f"{value:.9g}"


def _called(operation: Operation, term: str) -> str:
    return f"{operation.replace(' ', '_')}({term})"


def _control(step: Sync | Loop | When) -> str:
    match step:
        case Sync(scope):
            return f"sync {scope}"
        case Loop(var, count):
            return f"for {var} ← 0; {var} < {count}; {var} ← {var} + 1"
        case When(bounds, not_finite=values, longer=ranges):
            conditions = [_conjunction(bounds)] if bounds else []
            if ranges is not None:
                conditions.append(f"any of {ranges.name} has more than 1 element")
            if values is not None:
                conditions.append(f"any of {_element(values)} is not finite  {_sizes(values)}")
            return f"if {' and '.join(conditions) or _conjunction(bounds)}"
        case _:
            assert_never(step)


# --- The header -------------------------------------------------------------------------------


def _header(program: Program) -> Iterator[tuple[str, str]]:
    if program.source:
        yield "source", program.source
    yield "tile", f"{program.shape}, {program.ab} to {program.acc}"
    blocks = "1 block" if program.blocks.constant == 1 else f"{program.blocks} blocks"
    if program.columns > 1:
        blocks = f"{program.blocks} x {program.columns} blocks"
    if program.rows > 1:
        blocks = f"{program.blocks} x {program.rows} x {program.columns} blocks"
    warps = f"{program.warps} warp{'s' * (program.warps != 1)}"
    if program.warp_columns > 1:
        warps = f"{program.warps // program.warp_columns} x {program.warp_columns} warps"
    yield "grid", f"{blocks} of {warps}"
    if program.status:
        yield "order", "blocks are numbered in the order in which they start"
    for scalar in program.scalars:
        multiple = f", a multiple of {scalar.multiple_of}" if scalar.multiple_of != 1 else ""
        yield "scalar", f"{scalar.name}{multiple}"
    for role in BufferRole:
        for buffer in program.buffers:
            if buffer.role is role:
                yield role, _buffer(buffer)
    for use in Role:
        for kind, names in _frags(program, use).items():
            yield use, f"{', '.join(names)}: {kind}"


# Global memory is the default.
_PLACES = {Space.WARP: " of each warp", Space.SHARED: " of the block", Space.GLOBAL: ""}


def _buffer(buffer: Buffer) -> str:
    partial = ", in part" if buffer.partial else ""
    return f"{buffer.name}: {buffer.dtype}[{buffer.size}]{_PLACES[buffer.space]}{partial}"


def _frags(program: Program, role: Role) -> dict[str, dict[str, None]]:
    """Return the names of the fragments by type, in the order in which the steps name them."""
    found: dict[str, dict[str, None]] = {}
    for _, step in walk(program.steps):
        for frag in accesses(step).frags:
            if frag.role is role:
                shape = "" if frag.shape == program.shape else f" of {frag.shape}"
                found.setdefault(f"{frag.dtype}{shape}", {})[frag.name] = None
    return found


# --- The steps --------------------------------------------------------------------------------


def _body(steps: Iterator[Numbered], indent: str, width: int) -> Iterator[str]:
    for path, step in steps:
        text = f"{path:<{width}}{indent}{line(step)}"
        yield f"{text:<{_ORIGIN_COLUMN}}  {step.origin}" if step.origin else text
        if isinstance(step, Loop | When):
            yield from _body(branch_of(path, step), f"{indent}  ", width)
        if isinstance(step, When) and step.otherwise:
            yield f"{'':<{width}}{indent}else"
            yield from _body(branch_of(path, step, taken=False), f"{indent}  ", width)


def _locate(step: Locate) -> str:
    of = step.segments
    chunks = "segments" if of.chunk is None else f"chunks of {of.chunk}"
    after = "".join(f", after chunks of {length}" for length in of.levels)
    numbers = f"{chunks} from number {step.first}{after}"
    return f"{step.dst.name} ← Locate({of.offsets.name}, {numbers})  {step.dst.count} ranges"


def _prefix(step: Prefix) -> str:
    """Print the sums of each row and their destinations."""
    views = [step.dst] if step.totals is None else [step.dst, step.totals]
    kinds = [f"{'exclusive ' * step.exclusive}{'suffix' if step.reverse else 'prefix'} sums"]
    if step.sums_alone:
        kinds = []
    kinds += ["sums"] * (len(views) - len(kinds))
    targets = ", ".join(_element(view) for view in views)
    what = f"{' and '.join(kinds)} of rows of {_rounded(step.value, step.dst.buffer.dtype)}"
    return f"{targets} ← {what}  {_sizes(*views, *views_of(step.value))}"


_SIDES = (("row", "col"), ("col", "row"))


def _pattern(pattern: Pattern) -> str:
    offset = str(pattern.offset)
    plus = "" if offset == "0" else f" + {offset}".replace("+ -", "- ")
    size = pattern.size
    moved = f" + {pattern.segments}".replace("+ -", "- ") if pattern.segments else ""
    rows, cols = (f" and {a}/{size} = {b}/{size}{moved}" if size else "" for a, b in _SIDES)
    match pattern.kind:
        case PatternKind.ZEROS | PatternKind.ONES:
            # A uniform pattern does not use its offset, but a listing hides nothing.
            text = "1" if pattern.kind is PatternKind.ONES else "0"
            return f"{text} (offset {offset})" if plus else text
        case PatternKind.ROW:
            return f"1 where row = col/{size}{plus}" if size else f"ones in row {offset}"
        case PatternKind.COL:
            return f"1 where col = row/{size}{plus}" if size else f"ones in column {offset}"
        case PatternKind.UPPER:
            return f"1 where row <= col{plus}{rows}"
        case PatternKind.LOWER:
            return f"1 where col <= row{plus}{cols}"
        case _:
            assert_never(pattern.kind)


def _tile(view: View, frag: Frag) -> str:
    """Return a tile as the paper writes it: a range, its layout and the leading dimension."""
    if view.layout is None:
        return f"{_element(view)}, {_sizes(view)}"
    extent = (view.rows - 1) * view.row_stride + (view.cols - 1) * view.col_stride + 1
    place = f"{view.buffer.name}[{view.offset} … +{extent}{_where(view.bounds)}]"
    text = f"{place}, {_LAYOUTS[view.layout]}, stride={view.ldm}"
    if (view.rows, view.cols) == (frag.rows, frag.cols):
        return text
    return f"{text}, {_sizes(view)}"


def _element(view: View) -> str:
    """Return a view as the element at (row, col)."""
    bounds = view.bounds
    limit = ""
    if bounds and bounds[0].lhs == view.address:
        limit = f" < {bounds[0].rhs}"
        bounds = bounds[1:]
    return f"{view.buffer.name}[{_address(view)}{limit}{_where(bounds)}]"


def _address(view: View) -> str:
    """Return the address as the offset, then rows, then columns."""
    row_stride = view.row_stride if view.rows != 1 else 0
    col_stride = view.col_stride if view.cols != 1 else 0
    parts = [view.offset, ROW * row_stride, COL * col_stride]
    texts = [str(part) for part in parts if part != Index()]
    if view.ranges is not None:
        side = "row" if isinstance(view.row_axis, Gathered) else "col"
        texts.insert(0, f"{view.ranges.name}[{side}]")
    return " + ".join(texts).replace("+ -", "- ") or "0"


def _where(bounds: tuple[Bound, ...]) -> str:
    return f" where {_conjunction(bounds)}" if bounds else ""


def _conjunction(bounds: tuple[Bound, ...]) -> str:
    return " and ".join(str(bound) for bound in bounds) if bounds else "true"


def _sizes(*views: View) -> str:
    """Return the common size of rectangles, or each size if they differ."""
    sizes = [f"{view.rows}x{view.cols}" for view in views]
    return sizes[0] if len(set(sizes)) == 1 else ", ".join(sizes)


Program.as_text = listing
