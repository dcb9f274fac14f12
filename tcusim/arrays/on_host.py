"""NumPy arrays of any shape as flat ones: rows end to end, and their segments."""

from __future__ import annotations

import numpy as np

from tcusim.arrays.arguments import Array, repeated
from tcusim.arrays.kernels import Ints, Kernel

__all__ = [
    "scan_irregular",
    "scan_segments",
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


def scan_segments(kernel: Kernel, rows: Array, size: int) -> Array:
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


def sum_irregular(kernel: Kernel, rows: Array, edges: Ints) -> Array:
    """Sum the segments between the edges of the last axis."""
    result = (*rows.shape[:-1], edges.size - 1)
    if rows.size == 0:
        return np.zeros(result, kernel(np.zeros(1, rows.dtype), 1).dtype)
    return kernel(rows.reshape(-1), repeated(edges, rows.size // rows.shape[-1])).reshape(result)


def scan_irregular(kernel: Kernel, rows: Array, edges: Ints) -> Array:
    """Scan the segments between the edges of the last axis."""
    if rows.size == 0:
        return np.zeros(rows.shape, kernel(np.zeros(1, rows.dtype), 1).dtype)
    return kernel(rows.reshape(-1), repeated(edges, rows.size // rows.shape[-1])).reshape(
        rows.shape
    )
