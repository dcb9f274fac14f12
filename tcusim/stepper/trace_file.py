"""The file of a trace: gzipped JSON of its store with a version, readable by later ones."""

from __future__ import annotations

import base64
import gzip
import json
import math
import zlib
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from tcusim.errors import InputError
from tcusim.machine import Values, format_of
from tcusim.records import of_plain
from tcusim.stepper.frames import Tile
from tcusim.stepper.store import About, FrameStore, PackedFrame, PackedTile

_MAGIC: Final = "tcusim trace"
_GZIP: Final = b"\x1f\x8b"
# Version 1 lacks the runner of the program.
_VERSION: Final = 2
# Kinds of steps in earlier files, which are an Assign now.
_FORMER: Final = ("copy", "split", "map")

# A trace of the maximum size has less text than this. Equal tiles are stored once, so real traces
# compress to a tenth or a twentieth; a file that expands much more is not a trace.
MOST_BYTES: Final = 2**29
_MOST_GROWTH: Final = 200
_SMALL: Final = 2**24

# Permitted types of arrays: every element type, indices and masks.
_DTYPES: Final = frozenset(("<f2", "<f4", "<f8", "|i1", "|u1", "<i4", "<i8", "|b1"))


# Sums and products of a few of them stay within 64 bits.
_LARGEST: Final = 2**48


@dataclass(frozen=True, slots=True)
class Rest:
    """Further data of a trace. ran: the steps of each warp. counts: those of `Counts`."""

    warps: tuple[int, ...]
    first: int
    last: int | None
    ran: tuple[int, ...]
    counts: tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class _Content:
    """The content of a file. arrays: type, shape, and bytes in base64."""

    format: str
    version: int
    about: About
    rest: Rest
    frames: list[PackedFrame]
    tiles: list[PackedTile]
    arrays: list[tuple[str, tuple[int, int], str]]


def dumped(about: About, rest: Rest, store: FrameStore) -> bytes:
    """Return the content of a file."""
    content = {
        "format": _MAGIC,
        "version": _VERSION,
        "about": asdict(about),
        "rest": asdict(rest),
        "frames": store.frames,
        "tiles": store.tiles,
        "arrays": [_array_text(array) for array in store.arrays],
    }
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    # No timestamp: equal traces are equal files.
    return gzip.compress(text.encode(), mtime=0)


def _array_text(array: Values) -> list[Any]:
    kind = array.dtype.newbyteorder("<")
    return [kind.str, list(array.shape), base64.b64encode(array.astype(kind).tobytes()).decode()]


def loaded(content: bytes, name: str) -> tuple[About, Rest, FrameStore]:
    """Return the parts of a file. InputError, with the name `name`, if unreadable."""
    if not content.startswith(_GZIP):
        raise InputError(f"{name} is not a trace; tcusim's are written by Trace.save")
    try:
        found = json.loads(_unpacked(content), parse_int=_integer)
        if not isinstance(found, dict) or found.get("format") != _MAGIC:
            raise InputError(f"{name} is not a trace; tcusim's are written by Trace.save")
        version = found["version"]
        if isinstance(version, int) and version > _VERSION:
            raise InputError(
                f"{name} is a trace of version {version}, and this tcusim reads those up to "
                f"{_VERSION}; install a newer tcusim"
            )
        _require(type(version) is int and version >= 1, "its version")
        return _checked(found)
    except InputError as error:
        if str(error).startswith(name):
            raise
        raise _damaged(name, error) from error
    except (zlib.error, KeyError, IndexError, TypeError, ValueError, RecursionError) as error:
        raise _damaged(name, error) from error


def _damaged(name: str, error: Exception) -> InputError:
    return InputError(
        f"{name} is a damaged trace ({type(error).__name__}: {error}); make it anew with "
        "tcusim.trace and Trace.save"
    )


def _unpacked(content: bytes) -> bytes:
    """Return the text of a file, unless it is much longer than the file."""
    most = min(MOST_BYTES, max(_SMALL, _MOST_GROWTH * len(content)))
    stream = zlib.decompressobj(wbits=31)
    text = stream.decompress(content, most + 1)
    if len(text) > most:
        raise InputError(f"its {len(content)} bytes unpack to more than {most}")
    if not stream.eof or stream.unused_data:
        raise InputError("it is cut short, or something follows its end")
    return text


def _integer(text: str) -> int:
    number = int(text)
    _require(abs(number) < _LARGEST, "an integer")
    return number


def _checked(found: dict[str, Any]) -> tuple[About, Rest, FrameStore]:
    """Return the parts of a file; an exception if one does not fit the others."""
    content = of_plain(_Content, found, "its content")
    about, rest = content.about, content.rest
    _require(all(map(str.strip, about.listing.partition("\n\n")[2].splitlines())), "the listing")
    store = FrameStore()
    for text in content.arrays:
        store.arrays.append(_array(*text))
        store.nbytes += store.arrays[-1].nbytes
    store.tiles = content.tiles
    for number, tile in enumerate(store.tiles):
        numbers = (tile.values, tile.before, tile.inside, tile.places)
        _require(not any(isinstance(i, int) and i < 0 for i in numbers), "a tile's array")
        _require_tile(store.tile(number))
    store.frames = [
        frame._replace(kind="assign") if frame.kind in _FORMER else frame
        for frame in content.frames
    ]
    _require(len(rest.warps) == len(rest.ran), "the number of warps")
    for frame in store.frames:
        _require(frame.path in about.lines and frame.warp in rest.warps, "a step's place")
        touched = (*frame.reads, *frame.writes)
        _require(all(0 <= number < len(store.tiles) for number in touched), "a step's tile")
        if frame.kind == "mma":
            _require_product(about, [store.tiles[number] for number in frame.reads], store)
    return about, rest, store


def _require_tile(tile: Tile) -> None:
    """Require that a tile's arrays have its type and one shape."""
    dtype = format_of(tile.dtype).dtype
    for part, wanted in (
        *((tile.values, dtype), (tile.before, dtype)),
        *((tile.places, np.dtype(np.int64)), (tile.inside, np.dtype(bool))),
    ):
        if part is not None:
            _require(part.shape == tile.values.shape, "a tile's shape")
            _require(part.dtype == wanted, "a tile's type")


def _require_product(about: About, tiles: list[PackedTile], store: FrameStore) -> None:
    """Require that operands form a product of the program's types."""
    types = [tile.dtype for tile in tiles]
    _require(types == [about.ab, about.ab, about.acc], "the types of a product")
    a, b, c = (store.arrays[tile.values].shape for tile in tiles)
    _require((a[0], a[1], b[1]) == (c[0], b[0], c[1]), "the shape of a product")


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise InputError(f"{what} does not fit")


def _array(kind: str, shape: tuple[int, int], text: str) -> Values:
    if kind not in _DTYPES:
        raise InputError(f"arrays are not of {kind!r}")
    content = base64.b64decode(text, validate=True)
    dtype = np.dtype(kind)
    _require(math.prod(shape) * dtype.itemsize == len(content), "an array")
    return np.frombuffer(content, dtype).reshape(shape)
