"""Frames: one step of one warp, with the tiles that it touches; and inputs to show."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tcusim.errors import MOST_ELEMENTS, InputError, told
from tcusim.machine import Format, Values, as_values, format_of, from_values
from tcusim.program.bind import offsets_of, require_inputs
from tcusim.program.grammar import Program
from tcusim.program.walk import Ints, Mask
from tcusim.simulate.schedule import Prepared, prepared

# The note of a write that a barrier makes visible later.
IN_FLIGHT: Final = "written, seen after the next sync"

# float16 represents every integer up to this one.
_EXACT_IN_F16 = 2048

# Significant digits of a non-integer.
_DIGITS: Final = 5


@dataclass(frozen=True, slots=True)
class Tile:
    """A fragment or a rectangle of memory, as one warp sees it at one step.

    label: the fragment's name, or the range in memory, such as ``in[512 … +256]``: 256 elements.
    part: its operand name in the step: a, b, c, d, src, dst or plus. dtype: element type, such as
    "f16". where: the fragment's role, or the memory space: warp, shared or global.
    values: (rows, cols), before the step if it is read, after the step if it is written.
    before: the previous values of a written tile; NaN (integers: bytes of 0x80) if unwritten.
    places: the elements' indices in their buffer; None for a fragment.
    inside: mask of the elements in bounds; others are read as 0 and not written.
    note: a remark, such as a write in flight.
    """

    label: str
    part: str
    dtype: str
    where: str
    values: Values
    before: Values | None
    places: Ints | None
    inside: Mask
    note: str = ""

    @property
    def buffer(self) -> str:
        """The buffer's name; "" for a fragment."""
        return "" if self.places is None else self.label.partition("[")[0]

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        """The half-open ranges of touched buffer elements; empty for a fragment."""
        if self.places is None:
            return ()
        touched = np.unique(self.places[self.inside])
        if not touched.size:
            return ()
        ends = np.flatnonzero(np.diff(touched) != 1)
        begins = touched[np.concatenate(([0], ends + 1))]
        lasts = touched[np.concatenate((ends, [touched.size - 1]))]
        return tuple(zip(begins.tolist(), (lasts + 1).tolist(), strict=True))

    @property
    def changed(self) -> Mask:
        """Mask of the values that the step changed; empty for a tile that is only read."""
        if self.before is None:
            return np.zeros(self.values.shape, bool)
        return np.asarray(self.inside & _differ(self.before, self.values))

    @property
    def unknown(self) -> Mask:
        """Mask of NaN, or of the fill integer of unwritten memory."""
        return self.inside & _unknown(self.values, self.dtype)

    @property
    def unknown_before(self) -> Mask:
        """The same mask before the step; full for a tile that is only read."""
        if self.before is None:
            return np.ones(self.values.shape, bool)
        return _unknown(self.before, self.dtype)


@dataclass(frozen=True, slots=True)
class Frame:
    """One step of one warp.

    number: index of the step in the warp's run, from 1. path: the step's path in the program, such
    as "7.2". kind: such as "mma". line: its line in the listing. loops: the loop variables. warp:
    the warp's index in the grid. reads, writes: the tiles that the step touches, in the order of
    the grammar.
    """

    number: int
    path: str
    kind: str
    line: str
    loops: Mapping[str, int]
    warp: int
    reads: tuple[Tile, ...]
    writes: tuple[Tile, ...]

    @property
    def tiles(self) -> tuple[Tile, ...]:
        """All tiles, those that the step reads first."""
        return (*self.reads, *self.writes)


def prepared_for(program: Program, inputs: Mapping[str, Any]) -> Prepared:
    """Return a program's grid and sizes on these inputs. InputError if they do not fit it."""
    require_inputs(program, inputs)
    return prepared(program, tuple((name, np.size(array)) for name, array in inputs.items()))


def chosen_warps(
    program: Program,
    inputs: Mapping[str, Any],
    warps: Iterable[int] = (),
    blocks: Iterable[int] = (),
) -> tuple[int, ...]:
    """Return these warps of the grid, and all of these blocks, in ascending order.

    Raises InputError if the grid has no such warp or block.
    """
    there = prepared_for(program, inputs).grid
    found = set(_numbers(program, "warp", warps, there * program.warps))
    for block in _numbers(program, "block", blocks, there):
        found.update(range(block * program.warps, (block + 1) * program.warps))
    return tuple(sorted(found))


def _numbers(program: Program, what: str, numbers: Iterable[int], count: int) -> Iterator[int]:
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, int | np.integer):
            raise InputError(f"{what}s must be whole numbers, such as 0; got {number!r}")
        if not 0 <= number < count:
            raise no_such(program.name, what, number, "grid", range(count))
        yield int(number)


def no_such(name: str, what: str, number: int, owner: str, there: Sequence[int]) -> InputError:
    """Return the error for a warp or block (`what`) that a grid or a trace (`owner`) lacks."""
    shown = known_text(what, there)
    return InputError(f"{name}: there is no {what} {told(number)}; the {owner} has {shown}")


def known_text(what: str, numbers: Sequence[int]) -> str:
    """Return the available warps or blocks (`what`), in words."""
    if not numbers:
        return f"no {what}s: the input is empty"
    if isinstance(numbers, range):
        return f"{what}s {numbers[0]} to {numbers[-1]}"
    return f"{what}{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"


def number_text(number: float) -> str:
    """Return a number as the stepper and the page show it: an integer, or five digits."""
    whole = number.is_integer() and abs(number) < 10**_DIGITS
    return f"{number:.0f}" if whole else f"{number:.{_DIGITS}g}"


def default_inputs(
    program: Program, length: int | None = None, *, rounded: bool = False
) -> dict[str, NDArray[Any]]:
    """Return inputs that are easy to read, repeating 1, 2, 3, ...; by default for one block.

    The values are small enough, and in long inputs mostly 0, so that float16 represents their sum
    and all partial sums exactly. rounded: floats of all sizes instead, whose sums lose bits, to
    tell architectures apart. The number of segments is half the ranges of a warp, in increasing
    length.
    """
    offsets = offsets_of(program)
    length = length or max(1, program.blocks.per // (2 if offsets else 1))
    scalars = {scalar.name: length for scalar in program.scalars}
    inputs = {}
    for name, step in offsets.items():
        segments = max(1, min(step.dst.count // 2, length))
        scalars.update(dict.fromkeys(step.segments.offsets.size.index.symbols, segments))
        squares, last = np.arange(segments + 1) ** 2, step.segments.last_offset(segments, length)
        if last > MOST_ELEMENTS:
            raise InputError(
                f"{program.name} takes {told(last)} elements, more than any memory holds; build it "
                "with smaller sizes"
            )
        inputs[name] = last * squares // segments**2
    for buffer in program.inputs:
        if buffer.name in offsets:
            continue
        size = buffer.size.evaluate(scalars)
        if rounded and format_of(buffer.dtype).is_float:
            at = np.arange(size)
            floats = np.ldexp(1 + at * 37 % 1024 / 1024, at * 5 % 21 - 14)
            inputs[buffer.name] = from_values(as_values(floats, buffer.dtype), buffer.dtype)
            continue
        top = min(9 if size * 5 <= _EXACT_IN_F16 else 3, _counts_to(format_of(buffer.dtype)))
        times = _EXACT_IN_F16 // (top * (top + 1) // 2)
        # An odd period: neighbouring rows of a tile differ.
        period = max(top, -(-size // times)) | 1
        numbers = np.arange(size) % period + 1
        numbers[numbers > top] = 0
        inputs[buffer.name] = from_values(as_values(numbers, buffer.dtype), buffer.dtype)
    return {buffer.name: inputs[buffer.name] for buffer in program.inputs}


def _counts_to(fmt: Format) -> int:
    """Return the integer up to which a type represents all integers."""
    return 2 ** (fmt.fraction_bits + 1) if fmt.is_float else int(fmt.largest)


def _differ(one: Values, two: Values) -> Mask:
    """Return a mask of differing values; all NaN are equal."""
    differ: Mask = one != two
    if one.dtype.kind == "f":
        differ &= ~(np.isnan(one) & np.isnan(two))
    return differ


def _unknown(values: Values, dtype: str) -> Mask:
    """Return a mask of NaN, or of the fill value of unwritten memory."""
    if format_of(dtype).is_float:
        return np.asarray(np.isnan(values))
    if values.dtype.itemsize < 4:
        # The fill value is a valid value of narrower integers.
        return np.zeros(values.shape, bool)
    return np.asarray(values == format_of(dtype).unwritten)
