"""Offsets and initial values of segments: checked, and brought to where the array is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tcusim.arrays.dtypes import TypeRule, numpy_type
from tcusim.arrays.home import Home, Host, first_terms, returned
from tcusim.arrays.libraries import (
    Array,
    Ints,
    as_numpy,
    is_on_device,
    name_of_kind,
    require_plain,
)
from tcusim.arrays.spec import Call, Layout, count_of
from tcusim.backends import DeviceBackend, IntegerFacts, OffsetsBackend
from tcusim.errors import InputError, Unsupported
from tcusim.machine.formats import format_of

__all__ = [
    "Offsets",
    "Sorted",
    "edges_of",
    "edges_of_ids",
    "edges_of_rows",
    "initial_of",
    "offsets_of",
    "require_longest",
    "require_number",
    "sorted_by_ids",
]

# Segments that sorted ids may speak of by default, however few elements there are, and for each of
# these; and by a number that the user gives.
_MOST_SEGMENTS = 2**25
_MOST_PER_ELEMENT = 16
_MOST_NAMED = 2**31


@dataclass(frozen=True, slots=True)
class Offsets:
    """Where the segments of rows that lie end to end begin and end.

    array: the offsets for all rows, flat, of int64, where the data are. segments: of a row. facts:
    of the offsets of one row; None if nobody looked at them. edges: these offsets, if they are in
    the computer's memory.
    """

    array: Any
    segments: int
    facts: IntegerFacts | None = None
    edges: Ints | None = None

    @property
    def longest(self) -> int | None:
        """Elements of the longest segment, if known."""
        return None if self.facts is None else self.facts.longest


def offsets_of(home: Home, a: Any, call: Call, *, length: int, rows: int) -> Offsets:
    """Return the offsets of a call for an array `a` of `rows` rows of this length; refuse bad ones.

    Those in GPU memory are checked there by a backend that can, else copied back to be checked,
    unless the user says that they are right. So are ids, of which offsets are made.
    """
    if call.segment_ids is not None:
        return _of_ids(home, a, call, length, rows)
    offsets = call.offsets
    if not is_on_device(offsets):
        return _brought(home, a, *edges_of(offsets, length), rows)
    home = _gpu_of(home, "offsets", offsets)
    segments = int(home.describe(offsets).shape[0]) - 1
    if not call.check_offsets:
        if rows != 1:
            raise Unsupported(
                f"check_offsets=False goes with one row of segments, and a has {rows}: offsets "
                "for all rows are made of checked ones. Pass row by row, or leave "
                "check_offsets out"
            )
        return Offsets(_as_int64(home, offsets), segments)
    if isinstance(home, OffsetsBackend):
        facts = home.facts_of_integers(offsets)
        _require_offsets(facts, length)
        return Offsets(_for_rows(home, offsets, facts, rows), segments, facts)
    edges, facts = edges_of(home.to_host(offsets), length)
    if rows == 1:
        return Offsets(_as_int64(home, offsets), segments, facts, edges)
    return _brought(home, a, edges, facts, rows)


def _of_ids(home: Home, a: Any, call: Call, length: int, rows: int) -> Offsets:
    """Return the offsets of segments to which elements belong by sorted numbers."""
    ids = call.segment_ids
    if is_on_device(ids):
        there = _gpu_of(home, "segment_ids", ids)
        if isinstance(there, OffsetsBackend):
            given = there.describe(ids)
            _require_ids_of(tuple(given.shape), given.dtype, length)
            segments = _segments_of(there.facts_of_integers(ids), call.num_segments, length)
            offsets = there.offsets_of_ids(ids, segments)
            facts = there.facts_of_integers(offsets)
            return Offsets(_for_rows(there, offsets, facts, rows), segments, facts)
        ids = there.to_host(ids)
    edges = edges_of_ids(ids, call.num_segments, length)
    return _brought(home, a, edges, _facts_of(edges), rows)


def _for_rows(home: OffsetsBackend, offsets: Any, facts: IntegerFacts, rows: int) -> Any:
    """Return the offsets for all rows, made in GPU memory of checked ones of one row there."""
    if rows == 1:
        return _as_int64(home, offsets)
    return home.offsets_of_rows(offsets, rows) if rows and facts.last else None


def _brought(home: Home, a: Any, edges: Ints, facts: IntegerFacts, rows: int) -> Offsets:
    """Return the offsets of these edges of each row, brought to where `a` is."""
    array = home.to_device(edges_of_rows(edges, rows), a) if rows and edges[-1] else None
    return Offsets(array, edges.size - 1, facts, edges)


def initial_of(home: Home, a: Any, initial: Any, layout: Layout, rule: TypeRule) -> Any:
    """Return the values before the first elements of all segments, flat, where `a` is."""
    shape, dtype = layout.shape_of_initial, format_of(rule.types.sums).array_name
    if rule.method in ("digits", "fixed point"):
        dtype = rule.result if rule.method == "digits" else "float64"
    if layout.initial is not None:
        raise InputError(
            "include_initial begins each segment with 0, and initial with another value: leave one "
            "of them out. exclusive=True begins each segment with its initial value"
        )
    if rule.method == "fixed point" and not isinstance(home, Host):
        raise Unsupported(
            "initial does not go with bits='exact' in GPU memory, where the sums would not be "
            "exact. Leave one of them out, or copy the array to a NumPy array"
        )
    axes = tuple(range(len(shape))) if layout.is_whole or not layout.lead else layout.order
    if not is_on_device(initial):
        values = first_terms(initial, shape, numpy_type(dtype), numpy_type(rule.result))
        assert values is not None
        return home.to_device(np.ascontiguousarray(values.transpose(axes)).reshape(-1), a)
    if isinstance(home, Host):
        raise InputError(
            f"initial is a {name_of_kind(initial)} in GPU memory, but a is a NumPy array; copy it "
            "to a NumPy array"
        )
    require_plain("initial", initial)
    facts = home.describe(initial)
    if tuple(facts.shape) != shape or facts.dtype != dtype:
        raise InputError(
            f"initial in GPU memory must be of {dtype}, the type of the sums, and of shape "
            f"{shape}, a value for each segment; got {facts.dtype}, {tuple(facts.shape)}"
        )
    return home.arranged(initial, axes, dtype)


def require_longest(facts: IntegerFacts, longest: int) -> None:
    """Refuse segments of more than `longest` elements, by the facts about their offsets."""
    if facts.longest > longest:
        raise InputError(
            f"segment {facts.place} has {facts.longest} elements, but this plan is for segments of "
            f"up to {longest}; make another plan, or leave longest out"
        )


# --- Checks, wherever the integers are ------------------------------------------------------------


def _require_offsets(facts: IntegerFacts, length: int) -> None:
    """Refuse offsets that do not go up from 0 to the axis' length."""
    _require_sorted("offsets", facts)
    if facts.first != 0 or facts.last != length:
        raise InputError(
            f"offsets must begin with 0 and end with the axis' length, {length}; got "
            f"{facts.first} and {facts.last}"
        )


def _require_ids_of(shape: tuple[int, ...], dtype: Any, length: int) -> None:
    """Refuse ids of which there is not one for each element, or that are no integers."""
    if shape != (length,) or (length and np.dtype(dtype).kind not in "iu"):
        raise InputError(
            f"segment_ids must be a flat array of {length} integers, one for each element of the "
            f"axis; got shape {shape}, dtype {dtype}"
        )


def _segments_of(facts: IntegerFacts, num_segments: Any, length: int) -> int:
    """Return the number of segments of ids, of which there are some; refuse a wrong one."""
    _require_sorted("segment_ids", facts, "; sort the elements by them first, or give sort=True")
    is_named = num_segments is not None
    number = count_of("num_segments", num_segments) if is_named else facts.last + 1
    require_number(number, length, named=is_named)
    for at, value, out in (
        (0, facts.first, facts.first < 0),
        (-1, facts.last, facts.last >= number),
    ):
        if out:
            raise InputError(
                f"segment_ids[{at}] = {value}, but segments are numbered from 0 to {number - 1}"
            )
    return number


def require_number(segments: int, length: int, *, named: bool) -> None:
    """Refuse many more segments than an axis has elements. named: by the user."""
    least = _MOST_NAMED if named else _MOST_SEGMENTS
    if segments > max(least, _MOST_PER_ELEMENT * length):
        raise InputError(
            f"there would be {segments} segments, nearly all of them empty, for {length} elements. "
            "Number those that there are: keys, ids = np.unique(segment_ids, return_inverse=True); "
            "ids are the segment_ids then, and keys[i] is what segment i is of"
        )


def _require_sorted(name: str, facts: IntegerFacts, remedy: str = "") -> None:
    """Refuse integers that decrease."""
    if facts.down is not None:
        at, value, following = facts.down
        raise InputError(
            f"{name} must not decrease, but {name}[{at}] = {value} and "
            f"{name}[{at + 1}] = {following}{remedy}"
        )


# --- In the computer's memory ---------------------------------------------------------------------


def _facts_of(values: NDArray[Any]) -> IntegerFacts:
    """Return the facts about integers, of which there is at least one."""
    first, last, before, after = int(values[0]), int(values[-1]), values[:-1], values[1:]
    falls = after < before
    if falls.any():
        at = int(falls.argmax())
        return IntegerFacts(first, last, (at, int(values[at]), int(values[at + 1])), 0, 0)
    if not falls.size:
        return IntegerFacts(first, last, None, 0, 0)
    lengths = after - before
    place = int(lengths.argmax())
    return IntegerFacts(first, last, None, int(lengths[place]), place)


def edges_of(offsets: Any, length: int) -> tuple[Ints, IntegerFacts]:
    """Return the segment bounds and the facts about them; refuse wrong offsets."""
    edges = as_numpy("offsets", offsets)
    if edges.ndim != 1 or edges.size == 0 or edges.dtype.kind not in "iu":
        raise InputError(
            "offsets must be a flat array of segments + 1 integers, got shape "
            f"{edges.shape}, dtype {edges.dtype}"
        )
    facts = _facts_of(edges)
    _require_offsets(facts, length)
    return edges.astype(np.int64, copy=False), facts


def edges_of_ids(ids: Any, num_segments: Any, length: int) -> Ints:
    """Return the bounds of the segments to which elements belong by sorted ids."""
    ids = as_numpy("segment_ids", ids)
    _require_ids_of(ids.shape, ids.dtype, length)
    if length:
        number = _segments_of(_facts_of(ids), num_segments, length)
    else:
        number = 0 if num_segments is None else count_of("num_segments", num_segments)
    edges = np.zeros(number + 1, np.int64)
    edges[1:] = np.bincount(ids.astype(np.int64, copy=False), minlength=number).cumsum()
    return edges


class Sorted(NamedTuple):
    """An array whose elements are sorted by the ids of their segments, those of one in their order.

    order: which element of the given array each one is; None if they were sorted. axis: of them.
    """

    a: Any
    ids: Any
    order: Ints | None
    axis: Any

    def restored(self, scans: Array, out: Any, given: Any) -> Any:
        """Return scans with each where its element was given, or fill `out`."""
        if self.order is not None:
            place = [slice(None)] * scans.ndim
            place[self.axis] = self.order
            sorted_scans, scans = scans, np.empty_like(scans)
            scans[tuple(place)] = sorted_scans
        return returned(scans, out, given)


def sorted_by_ids(a: Any, ids: Any, axis: Any) -> Sorted:
    """Sort the elements of an axis by the ids of their segments, if they are not yet sorted."""
    if ids is None:
        raise InputError("sort goes with segment_ids; leave it out")
    if is_on_device(a) or is_on_device(ids):
        raise Unsupported(
            "sort=True goes with arrays in the computer's memory. In GPU memory, sort the elements "
            "by their ids first, with a stable sort of their library, and pass what is sorted"
        )
    values, numbers = as_numpy("a", a), as_numpy("segment_ids", ids)
    known = isinstance(axis, (int, np.integer)) and -values.ndim <= axis < values.ndim
    if known:
        _require_ids_of(numbers.shape, numbers.dtype, values.shape[axis])
    if not known or (numbers[1:] >= numbers[:-1]).all():
        return Sorted(values, numbers, None, axis)
    order = np.argsort(numbers, kind="stable")
    return Sorted(np.take(values, order, axis), numbers[order], order, axis)


def edges_of_rows(edges: Ints, rows: int) -> Ints:
    """Return the edges of all segments of `rows` rows that lie end to end and are cut alike."""
    if rows == 1:
        return edges
    starts = np.arange(rows)[:, None] * edges[-1] + edges[:-1]
    return np.append(starts, rows * edges[-1])


# --- In GPU memory --------------------------------------------------------------------------------


def _gpu_of(home: Home, name: str, given: Any) -> DeviceBackend:
    """Return the backend of an array in GPU memory; refuse all but a flat array of integers."""
    if isinstance(home, Host):
        raise InputError(
            f"{name} are a {name_of_kind(given)} in GPU memory, but a is a NumPy array; copy them "
            "to a NumPy array"
        )
    facts = home.describe(given)
    if len(facts.shape) != 1 or 0 in facts.shape or facts.dtype not in ("int32", "int64"):
        each = "segments + 1 elements" if name == "offsets" else "an element for each of the axis,"
        raise InputError(
            f"{name} in GPU memory must be a flat array of {each} of int64 or int32, got shape "
            f"{tuple(facts.shape)}, dtype {facts.dtype}"
        )
    return home


def _as_int64(backend: DeviceBackend, offsets: Any) -> Any:
    """Return the offsets without gaps and as int64: themselves, or a copy by their library."""
    try:
        return backend.arranged(offsets, (0,), "int64")
    except InputError as error:
        raise InputError(
            f"offsets are a {name_of_kind(offsets)} of {backend.describe(offsets).dtype}, which "
            "tcusim cannot copy as it needs it: without gaps, of int64. Make that copy first"
        ) from error
