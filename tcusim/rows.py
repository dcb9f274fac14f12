"""Arrays of any shape as flat ones: rows end to end, segments whole, irregular ones padded."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tcusim.kernels import Array, Kernel

__all__ = [
    "scan_irregular",
    "scan_rows",
    "sum_irregular",
    "sum_rows",
    "sum_segments",
]


def sum_rows(kernel: Kernel, rows: Array) -> Array:
    """Sum the last axis; an empty one gives zeros."""
    length = rows.shape[-1]
    if rows.size == 0:
        empty = kernel(np.zeros(1, rows.dtype), 1)
        return np.zeros(rows.shape[:-1], empty.dtype)
    return kernel(rows.reshape(-1), length).reshape(rows.shape[:-1])


def sum_segments(kernel: Kernel, rows: Array, size: int) -> Array:
    """Sum segments of the last axis."""
    count = -(-rows.shape[-1] // size)
    flat = _whole_segments(rows, size)
    if flat.size == 0:
        return np.zeros((*rows.shape[:-1], count), kernel(np.zeros(1, rows.dtype), 1).dtype)
    return kernel(flat, size).reshape(*rows.shape[:-1], count)


def scan_rows(kernel: Kernel, rows: Array, size: int) -> Array:
    """Scan segments of the last axis."""
    length = rows.shape[-1]
    flat = _whole_segments(rows, size)
    if flat.size == 0:
        return np.zeros(rows.shape, kernel(np.zeros(1, rows.dtype), 1).dtype)
    return kernel(flat, size).reshape(*rows.shape[:-1], -1)[..., :length]


def _whole_segments(rows: Array, size: int) -> Array:
    """Return rows end to end, each filled up to whole segments if there is more than one row."""
    length = rows.shape[-1]
    missing = -length % size
    many = rows.size > length
    if missing and many:
        zeros = np.zeros((*rows.shape[:-1], missing), rows.dtype)
        rows = np.concatenate([rows, zeros], axis=-1)
    return rows.reshape(-1)


def _groups(edges: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield (padded length, segment numbers): segments of like length, padded to a power of two.

    Padding is how the paper has irregular segments; by length, it at most doubles the work.
    """
    lengths = np.diff(edges)
    power = np.ceil(np.log2(np.maximum(lengths, 1))).astype(np.int64)
    for exponent in np.unique(power[lengths > 0]):
        yield 1 << int(exponent), np.flatnonzero((power == exponent) & (lengths > 0))


def _gathered(
    rows: Array, edges: NDArray[np.int64], chosen: NDArray[np.int64], size: int
) -> tuple[Array, NDArray[np.int64], NDArray[np.bool_]]:
    """Return segments padded with zeros, (rows, segments, size), their places, and which count."""
    places = edges[chosen, None] + np.arange(size)
    inside = places < edges[chosen + 1, None]
    places = np.where(inside, places, 0)
    return np.where(inside, rows[..., places], rows.dtype.type(0)), places, inside


def sum_irregular(kernel: Kernel, rows: Array, edges: NDArray[np.int64]) -> Array:
    """Sum the segments between the edges of the last axis."""
    sample = kernel(np.zeros(1, rows.dtype), 1)
    result = np.zeros((*rows.shape[:-1], edges.size - 1), sample.dtype)
    for size, chosen in _groups(edges):
        padded, _, _ = _gathered(rows, edges, chosen, size)
        if padded.size:
            sums = kernel(padded.reshape(-1), size)
            result[..., chosen] = sums.reshape(*rows.shape[:-1], chosen.size)
    return result


def scan_irregular(kernel: Kernel, rows: Array, edges: NDArray[np.int64]) -> Array:
    """Scan the segments between the edges of the last axis."""
    sample = kernel(np.zeros(1, rows.dtype), 1)
    result = np.zeros(rows.shape, sample.dtype)
    for size, chosen in _groups(edges):
        padded, places, inside = _gathered(rows, edges, chosen, size)
        if padded.size:
            scans = kernel(padded.reshape(-1), size).reshape(padded.shape)
            result[..., places[inside]] = scans[..., inside]
    return result
