"""Offsets of segments for an array in GPU memory: checked, and brought there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tcusim.arrays.arguments import edges_of, repeated
from tcusim.arrays.devices import is_on_device, library_of
from tcusim.backends import DeviceBackend
from tcusim.errors import InputError, Unsupported

__all__ = ["DeviceOffsets", "offsets_on_device"]


@dataclass(frozen=True, slots=True)
class DeviceOffsets:
    """Where segments of rows that lie end to end begin and end.

    there: the offsets in GPU memory, flat, of int64, for all rows. segments: how many a row has.
    edges: the same for one row in the computer's memory; None if nobody looked at them.
    """

    there: Any
    segments: int
    edges: NDArray[np.int64] | None

    @property
    def longest(self) -> int | None:
        """Elements of the longest segment, if known."""
        return None if self.edges is None else int(np.diff(self.edges).max(initial=0))


def offsets_on_device(
    backend: DeviceBackend, a: Any, offsets: Any, *, length: int, rows: int, check: bool
) -> DeviceOffsets:
    """Return the offsets for an array `a` in GPU memory of so many rows of this length.

    check: copy offsets that are in GPU memory back, and refuse bad ones. Others always are checked.
    """
    given = is_on_device(offsets)
    if given:
        _require_flat_integers(backend, offsets)
    if given and not check:
        if rows != 1:
            raise Unsupported(
                f"check_offsets=False goes with one row of segments, and a has {rows}: offsets for "
                "all rows are made of checked ones. Pass row by row, or leave check_offsets out"
            )
        there = _as_int64(backend, offsets)
        return DeviceOffsets(there, int(backend.describe(offsets).shape[0]) - 1, None)
    edges = edges_of(backend.to_host(offsets) if given else offsets, length)
    if given and rows == 1:
        return DeviceOffsets(_as_int64(backend, offsets), edges.size - 1, edges)
    there = backend.to_device(repeated(edges, rows), a) if length and rows else None
    return DeviceOffsets(there, edges.size - 1, edges)


def _require_flat_integers(backend: DeviceBackend, offsets: Any) -> None:
    facts = backend.describe(offsets)
    if len(facts.shape) != 1 or 0 in facts.shape or facts.dtype not in ("int32", "int64"):
        raise InputError(
            "offsets in GPU memory must be a flat array of segments + 1 elements of int64 or "
            f"int32, got shape {tuple(facts.shape)}, dtype {facts.dtype}"
        )


def _as_int64(backend: DeviceBackend, offsets: Any) -> Any:
    """Return the offsets without gaps and as int64: themselves, or a copy by their library."""
    try:
        return backend.arranged(offsets, (0,), "int64")
    except InputError as error:
        raise InputError(
            f"offsets are a {library_of(offsets)} of {backend.describe(offsets).dtype}, which "
            "tcusim cannot copy as it needs it: without gaps, of int64. Make that copy first"
        ) from error
