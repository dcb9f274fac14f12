"""Offsets and initial values of segments: checked, and brought to where the array is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tcusim.arrays.dtypes import TypeRule, numpy_type
from tcusim.arrays.libraries import Home, Host, addend_of, as_numpy, is_on_device, name_of_kind
from tcusim.arrays.request import Call, Layout, count_of
from tcusim.backends import DeviceBackend
from tcusim.errors import InputError, Unsupported
from tcusim.machine.formats import format_of

__all__ = ["Offsets", "edges_of", "initial_of", "offsets_of", "require_longest"]

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Offsets:
    """Where the segments of rows that lie end to end begin and end.

    array: the offsets for all rows, flat, of int64, where the data are. segments: of a row. edges:
    the offsets of one row, in the computer's memory; None if nobody looked at them.
    """

    array: Any
    segments: int
    edges: Ints | None

    @property
    def longest(self) -> int | None:
        """Elements of the longest segment, if known."""
        return None if self.edges is None else int(np.diff(self.edges).max(initial=0))

    def applied(self, layout: Layout) -> Layout:
        """Return the layout whose segments lie by these offsets."""
        return replace(layout, by_offsets=self.segments, edges=self.edges)


def offsets_of(home: Home, a: Any, call: Call, *, length: int, rows: int) -> Offsets:
    """Return the offsets of a call for an array `a` of `rows` rows of this length; refuse bad ones.

    Those in GPU memory are copied back to be checked, unless the user says that they are right.
    """
    if call.segment_ids is not None:
        ids = call.segment_ids
        if is_on_device(ids):
            ids = _gpu_of(home, "segment_ids", ids).to_host(ids)
        edges = _edges_of_ids(ids, call.num_segments, length)
        return _brought(home, a, edges, rows)
    offsets, there = call.offsets, is_on_device(call.offsets)
    if there:
        home = _gpu_of(home, "offsets", offsets)
        if not call.check_offsets:
            if rows != 1:
                raise Unsupported(
                    f"check_offsets=False goes with one row of segments, and a has {rows}: offsets "
                    "for all rows are made of checked ones. Pass row by row, or leave "
                    "check_offsets out"
                )
            segments = int(home.describe(offsets).shape[0]) - 1
            return Offsets(_as_int64(home, offsets), segments, None)
        edges = edges_of(home.to_host(offsets), length)
        if rows == 1:
            return Offsets(_as_int64(home, offsets), edges.size - 1, edges)
    else:
        edges = edges_of(offsets, length)
    return _brought(home, a, edges, rows)


def _brought(home: Home, a: Any, edges: Ints, rows: int) -> Offsets:
    """Return the offsets of these edges of each row, brought to where `a` is."""
    array = home.to_device(_repeated(edges, rows), a) if rows and edges[-1] else None
    return Offsets(array, edges.size - 1, edges)


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
        values = addend_of(initial, shape, numpy_type(dtype), "initial")
        assert values is not None
        return home.to_device(np.ascontiguousarray(values.transpose(axes)).reshape(-1), a)
    if isinstance(home, Host):
        raise InputError(
            f"initial is a {name_of_kind(initial)} in GPU memory, but a is a NumPy array; copy it "
            "to a NumPy array"
        )
    facts = home.describe(initial)
    if tuple(facts.shape) != shape or facts.dtype != dtype:
        raise InputError(
            f"initial in GPU memory must be of {dtype}, the type of the sums, and of shape "
            f"{shape}, a value for each segment; got {facts.dtype}, {tuple(facts.shape)}"
        )
    return home.arranged(initial, axes, dtype)


def require_longest(edges: Ints, longest: int) -> None:
    """Refuse segments of more than `longest` elements."""
    lengths = np.diff(edges)
    if lengths.size and lengths.max() > longest:
        at = int(lengths.argmax())
        raise InputError(
            f"segment {at} has {lengths[at]} elements, but this plan is for segments of up to "
            f"{longest}; make another plan, or leave longest out"
        )


def edges_of(offsets: Any, length: int) -> Ints:
    """Return where segments begin and end, from 0 to the axis' length; refuse what is none."""
    edges = as_numpy("offsets", offsets)
    if edges.ndim != 1 or edges.size == 0 or edges.dtype.kind not in "iu":
        raise InputError(
            "offsets must be a flat array of segments + 1 integers, got shape "
            f"{edges.shape}, dtype {edges.dtype}"
        )
    down = np.flatnonzero(edges[1:] < edges[:-1])
    if down.size:
        at = int(down[0])
        raise InputError(
            f"offsets must not decrease, but offsets[{at}] = {edges[at]} and "
            f"offsets[{at + 1}] = {edges[at + 1]}"
        )
    if edges[0] != 0 or edges[-1] != length:
        raise InputError(
            f"offsets must begin with 0 and end with the axis' length, {length}; got "
            f"{edges[0]} and {edges[-1]}"
        )
    return edges.astype(np.int64)


def _edges_of_ids(ids: Any, num_segments: Any, length: int) -> Ints:
    """Return where the segments begin and end to which elements belong by sorted numbers."""
    ids = as_numpy("segment_ids", ids)
    if ids.shape != (length,) or (length and ids.dtype.kind not in "iu"):
        raise InputError(
            f"segment_ids must be a flat array of {length} integers, one for each element of the "
            f"axis; got shape {ids.shape}, dtype {ids.dtype}"
        )
    down = np.flatnonzero(ids[1:] < ids[:-1])
    if down.size:
        at = int(down[0])
        raise InputError(
            f"segment_ids must not decrease, but segment_ids[{at}] = {ids[at]} and "
            f"segment_ids[{at + 1}] = {ids[at + 1]}; sort the elements by them first"
        )
    number = int(ids[-1]) + 1 if length else 0
    if num_segments is not None:
        number = count_of("num_segments", num_segments)
    for at, out in ((0, length and ids[0] < 0), (-1, length and ids[-1] >= number)):
        if out:
            raise InputError(
                f"segment_ids[{at}] = {ids[at]}, but segments are numbered from 0 to {number - 1}"
            )
    return np.searchsorted(ids, np.arange(number + 1)).astype(np.int64)


def _repeated(edges: Ints, rows: int) -> Ints:
    """Return the edges of all segments of `rows` rows that lie end to end and are cut alike."""
    starts = np.arange(rows)[:, None] * edges[-1] + edges[:-1]
    return np.append(starts, rows * edges[-1])


def _gpu_of(home: Home, name: str, given: Any) -> DeviceBackend:
    """Return the backend of an array in GPU memory; refuse what is no flat array of integers."""
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
