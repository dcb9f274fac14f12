"""The packed form of a trace, and its file: JSON in gzip, with a version that later ones read."""

from __future__ import annotations

import base64
import binascii
import gzip
import json
import math
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from tcusim.errors import InputError
from tcusim.machine import Values, format_of
from tcusim.simulate.frames import Tile

__all__ = ["SIMULATOR", "About", "Packed", "PackedFrame", "PackedTile", "dumped", "loaded"]

_MAGIC: Final = "tcusim trace"
# Version 1 does not say who ran the program.
_VERSION: Final = 2

# Who runs a program unless another backend does.
SIMULATOR: Final = "the simulator"

# What arrays may be of: numbers of every element type, places and bounds.
_DTYPES: Final = frozenset(("<f2", "<f4", "<f8", "|i1", "|u1", "<i4", "<i8", "|b1"))


@dataclass(frozen=True, slots=True)
class About:
    """What a trace tells of its program.

    Attributes
    ----------
    name, arch, ab, acc, family : str
        Names of the program and of the architecture, the types, and the instruction where those of
        one architecture differ.
    warps : int
        Warps of a block.
    listing : str
        The whole program as text.
    lines : dict of str to str
        The line of each step, by its path.
    constants : tuple of str
        Fragments that hold a constant throughout.
    place : str
        Who ran it: "the simulator", "host", or such as "cupy on NVIDIA H200".
    """

    name: str
    arch: str
    ab: str
    acc: str
    family: str
    warps: int
    listing: str
    lines: Mapping[str, str]
    constants: tuple[str, ...]
    place: str = SIMULATOR


class PackedTile(NamedTuple):
    """A `Tile` with its arrays by number. places: an array's, or (offset, stride, stride)."""

    label: str
    part: str
    dtype: str
    where: str
    note: str
    values: int
    before: int | None
    places: int | tuple[int, int, int] | None
    inside: int | None


class PackedFrame(NamedTuple):
    """A `Frame` with its tiles by number."""

    warp: int
    number: int
    path: str
    kind: str
    loops: tuple[tuple[str, int], ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]


@dataclass(slots=True)
class Packed:
    """Frames, and the tiles and arrays that they share. bytes: of the arrays."""

    frames: list[PackedFrame] = field(default_factory=list)
    tiles: list[PackedTile] = field(default_factory=list)
    arrays: list[Values] = field(default_factory=list)
    bytes: int = 0

    def tile(self, number: int) -> Tile:
        """Return a tile as it was."""
        one = self.tiles[number]
        values = self.arrays[one.values]
        inside, places = np.ones(values.shape, bool), None
        if one.inside is not None:
            inside = self.arrays[one.inside]
        if isinstance(one.places, tuple):
            first, down, across = one.places
            rows, cols = np.ogrid[: values.shape[0], : values.shape[1]]
            places = first + rows * down + cols * across
        elif one.places is not None:
            places = self.arrays[one.places]
        before = None if one.before is None else self.arrays[one.before]
        return Tile(
            one.label, one.part, one.dtype, one.where, values, before, places, inside, one.note
        )


_Rest: TypeAlias = dict[str, Any]


def dumped(about: About, rest: _Rest, packed: Packed) -> bytes:
    """Return the content of a file. rest: what else there is, as JSON can hold it."""
    content = {
        "format": _MAGIC,
        "version": _VERSION,
        "about": asdict(about),
        "rest": rest,
        "frames": packed.frames,
        "tiles": packed.tiles,
        "arrays": [_array_text(array) for array in packed.arrays],
    }
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    # No time in it: equal traces are equal files.
    return gzip.compress(text.encode(), mtime=0)


def _array_text(array: Values) -> list[Any]:
    kind = array.dtype.newbyteorder("<")
    return [kind.str, list(array.shape), base64.b64encode(array.astype(kind).tobytes()).decode()]


def loaded(content: bytes, name: str) -> tuple[About, _Rest, Packed]:
    """Return what a file holds. InputError, which calls the file `name`, if that cannot be read."""
    try:
        found = json.loads(gzip.decompress(content))
        if not isinstance(found, dict) or found.get("format") != _MAGIC:
            raise InputError(f"{name} is not a trace; tcusim's are written by Trace.save")
        version = found["version"]
        if isinstance(version, int) and version > _VERSION:
            raise InputError(
                f"{name} is a trace of version {version}, and this tcusim reads those up to "
                f"{_VERSION}; install a newer tcusim"
            )
        return _checked(found)
    except InputError as error:
        if str(error).startswith(name):
            raise
        raise _damaged(name, error) from error
    except gzip.BadGzipFile as error:
        raise InputError(f"{name} is not a trace; tcusim's are written by Trace.save") from error
    except (
        *(EOFError, zlib.error, UnicodeDecodeError, json.JSONDecodeError, binascii.Error),
        *(KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError),
    ) as error:
        raise _damaged(name, error) from error


def _damaged(name: str, error: Exception) -> InputError:
    return InputError(
        f"{name} is a damaged trace ({type(error).__name__}: {error}); make it anew with "
        "tcusim.trace and Trace.save"
    )


def _checked(found: dict[str, Any]) -> tuple[About, _Rest, Packed]:
    """Return the parts of a file; an exception if one does not fit the others."""
    about = About(**{**found["about"], "constants": tuple(found["about"]["constants"])})
    packed = Packed()
    for text in found["arrays"]:
        packed.arrays.append(_array(*text))
        packed.bytes += packed.arrays[-1].nbytes
    packed.tiles = [_tile(*row) for row in found["tiles"]]
    for number, tile in enumerate(packed.tiles):
        _require(not any(isinstance(i, int) and i < 0 for i in tile), "a tile's array")
        whole = packed.tile(number)
        parts = (whole.before, whole.places, whole.inside)
        fit = all(part is None or part.shape == whole.values.shape for part in parts)
        _require(fit, "a tile's shape")
        _require(whole.values.dtype == format_of(tile.dtype).dtype, "a tile's type")
    packed.frames = [_frame(*row) for row in found["frames"]]
    rest = found["rest"]
    _require(len(rest["warps"]) == len(rest["ran"]), "the number of warps")
    for frame in packed.frames:
        _require(frame.path in about.lines and frame.warp in rest["warps"], "a step's place")
        numbers = (*frame.reads, *frame.writes)
        _require(all(0 <= number < len(packed.tiles) for number in numbers), "a step's tile")
    return about, rest, packed


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise InputError(f"{what} does not fit")


def _array(kind: str, shape: list[int], text: str) -> Values:
    if kind not in _DTYPES:
        raise InputError(f"arrays are not of {kind!r}")
    content = base64.b64decode(text, validate=True)
    dtype = np.dtype(kind)
    _require(len(shape) == 2 and math.prod(shape) * dtype.itemsize == len(content), "an array")
    return np.frombuffer(content, dtype).reshape(shape)


def _tile(*row: Any) -> PackedTile:
    label, part, dtype, where, note, values, before, places, inside = row
    if isinstance(places, list):
        first, down, across = map(int, places)
        places = first, down, across
    return PackedTile(label, part, dtype, where, note, values, before, places, inside)


def _frame(*row: Any) -> PackedFrame:
    warp, number, path, kind, loops, reads, writes = row
    steps = tuple((str(name), int(value)) for name, value in loops)
    return PackedFrame(warp, number, path, kind, steps, tuple(reads), tuple(writes))
