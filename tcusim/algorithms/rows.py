"""The layout of rows: the views through which all algorithms access an array.

An algorithm that gives each segment a row of its tiles gets the view of row r from `Rows`, so it
supports segments of one size and ragged segments of data-dependent length alike.

Ragged segments: the data are `in`, and segment i is the elements from offsets[i] up to
offsets[i+1]. A warp that took whole segments would wait for the longest one. So segments are cut
into chunks of at most `cut` elements, and a row is a chunk, however long the segments are.

Chunks are numbered without a look at other segments: those of segment i from offsets[i] // cut + i
on (see `Segments`). That leaves some numbers unused, and there are length // cut + segments in all.
The sums of chunks, by number, are segments again: segment i's are those from q(i) up to q(i+1),
q(i) = offsets[i] // cut + i. So the same programs go on with them, given levels=(cut,), and then
with those sums' sums, until one row takes a whole segment.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Annotated, TypeAlias

from tcusim.algorithms.builder import LENGTH, Builder, Work, numbered, require
from tcusim.errors import MOST_ELEMENTS, Given, told
from tcusim.machine.rules import Fused, Numerics
from tcusim.program.grammar import (
    COL,
    ROW,
    Bound,
    Buffer,
    Extent,
    Frag,
    Index,
    Ranges,
    Scalar,
    Segments,
    View,
)

SEGMENTS = Index.symbol("segments")
# Enough rows to keep a warp's lanes busy when they are short.
SIMT_ROWS = 16

Groups: TypeAlias = Annotated[
    int | None,
    "How many times m rows a warp takes at once; of a long scan, no more than a panel. Default: as "
    "suits the segments.",
]
RowsPerWarp: TypeAlias = Annotated[int, "Chunks that a warp takes at a time."]


def data(b: Builder) -> Buffer:
    """Declare the array of `length` elements that every algorithm reads."""
    return b.input("in", b.options.source, Extent(LENGTH))


# --- A segment to a row -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rows(ABC):
    """The rows that a work item takes: `count` of at most `longest` elements each."""

    b: Builder
    longest: int
    count: int

    @property
    def first(self) -> Index:
        """The number of the work item's first row."""
        return self.b.item * self.count

    @property
    @abstractmethod
    def numbers(self) -> Extent:
        """Number of row indices of all work items."""

    @abstractmethod
    def inside(self) -> list[Bound]:
        """Return the bounds for the work item's row `row` to have an index."""

    @abstractmethod
    def part(self, buffer: Buffer, start: Index, cols: int) -> View:
        """Return `cols` elements of each row from `start` on."""

    @abstractmethod
    def work(self) -> int | Work:
        """Return the elements of a work item, or the whole grid."""

    def each(self) -> AbstractContextManager[Index]:
        """Loop over the work items of a warp."""
        return self.b.items()

    def values(self, buffer: Buffer, repeated: int = 1) -> View:
        """Return the value of each row in an array of `numbers`, as a column or several equal."""
        across = 1 if repeated == 1 else 0
        return self.b.rect(buffer, self.first, self.count, repeated, 1, across, self.inside())

    def write(self, sums: View, line: str = "out") -> None:
        """Copy a value for each row to the array of results."""
        out = self.b.output("out", self.b.options.result, self.numbers)
        self.b.copy(self.values(out), sums, line=line)


@dataclass(frozen=True, slots=True)
class FixedRows(Rows):
    """Segments of one size: a work item has `count` that follow one another."""

    @property
    def numbers(self) -> Extent:
        """The segments of the array; the last one may be cut short."""
        return Extent(LENGTH, self.longest)

    def inside(self) -> list[Bound]:
        """Return the bounds for the segment to exist."""
        inside = Bound((self.first + ROW) * self.longest, LENGTH)
        return [inside] if self.b.options.masked else []

    def part(self, buffer: Buffer, start: Index, cols: int) -> View:
        """Return `cols` elements of each segment from `start` on."""
        size, bounds = self.longest, []
        if size % cols:
            bounds.append(Bound(start + COL, Index.of(size)))
        if start.terms and size < cols:
            # Wherever the part starts: a longer one would overlap the next segment's.
            bounds.append(Bound(COL, Index.of(size)))
        offset = self.first * size + start
        if self.b.options.masked:
            row = ROW * size if self.count > 1 else Index()
            bounds.append(Bound(offset + row + COL, LENGTH))
        return self.b.rect(buffer, offset, self.count, cols, size, 1, bounds)

    def work(self) -> int:
        """Return the elements of a work item."""
        return self.count * self.longest


@dataclass(frozen=True, slots=True)
class Chunks:
    """The source of the chunks of ragged segments.

    Attributes
    ----------
    levels : tuple of int
        Chunk lengths of earlier levels, outermost first.
    whole : bool
        Take whole segments, each of at most `segment_size` elements.
    """

    levels: tuple[int, ...] = ()
    whole: bool = False

    def __post_init__(self) -> None:
        cuts = self.levels
        require(
            isinstance(cuts, tuple)
            and all(type(cut) is int and 0 < cut <= MOST_ELEMENTS for cut in cuts),
            f"levels are cuts made before, a tuple of integers from 1 to 2**48; got {told(cuts)}",
        )


CHUNKS = Chunks()


@dataclass(frozen=True, slots=True)
class RaggedRows(Rows):
    """Chunks of ragged segments: a work item has `count`, located from their number on.

    longest: the cut, the most elements of a chunk.
    """

    chunks: Chunks

    def __post_init__(self) -> None:
        data(self.b)
        self._offsets()

    def _offsets(self) -> Buffer:
        return self.b.input("offsets", "s64", Extent(SEGMENTS + 1))

    @property
    def numbers(self) -> Extent:
        """Number of chunk indices: length // cut + segments, or one a segment if whole."""
        if self.chunks.whole:
            return Extent(SEGMENTS)
        cut = self.longest
        return Extent(LENGTH + SEGMENTS * cut - (cut - 1), cut)

    @contextmanager
    def each(self) -> Iterator[Index]:
        """Loop over the work items of a warp: first locate its rows."""
        cut = None if self.chunks.whole else self.longest
        # An unchecked wrong offset must not reach past the data.
        segments = Segments(self._offsets(), cut, self.chunks.levels, limit=LENGTH)
        with self.b.items() as item:
            self.b.locate("piece", segments, self.first, self.count)
            yield item

    def lengths(self) -> Iterator[int]:
        """Yield the chunk length, and 1 if no chunk is longer, as is usual for sums of segments."""
        if self.longest == 1:
            yield 1
            return
        with self.b.when([], longer=Ranges("piece", self.count)) as otherwise:
            yield self.longest
            with otherwise():
                yield 1

    def inside(self) -> list[Bound]:
        """Return the bounds for the index to exist."""
        number = self.first + ROW
        if self.chunks.whole:
            return [Bound(number, SEGMENTS)]
        # number - segments < length // cut, without the division
        return [Bound((number + 1 - SEGMENTS) * self.longest, LENGTH + 1)]

    def part(self, buffer: Buffer, start: Index, cols: int) -> View:
        """Return `cols` elements of each chunk from `start` on."""
        return self.b.gathered(buffer, start, Ranges("piece", self.count), cols)

    def work(self) -> Work:
        """Return the grid."""
        rows = self.count * self.b.options.items_per_warp * self.b.options.warps
        blocks = Extent(self.numbers.index, self.numbers.per * rows)
        return Work((Scalar("length"), Scalar("segments")), blocks)


def odd(stride: int) -> int:
    """Return a stride for rows in shared memory read by column.

    With an odd number of 4-byte words between them, 32 rows use the 32 different banks ([CPG]
    "Shared Memory").
    """
    return stride | 1


# --- A segment in consecutive tiles -----------------------------------------------------------


def consecutive(
    b: Builder, buffer: Buffer, begin: Index, start: Index, size: tuple[int, int], end: int | None
) -> View:
    """Return rows x cols contiguous elements, from `start` on.

    end: where that ends, if the rectangle may go beyond it.
    """
    rows, cols = size
    number = ROW * cols + COL
    bounds = [] if end is None else [Bound(start + number, Index.of(end))]
    if b.options.masked:
        bounds.append(Bound(begin + start + number, LENGTH))
    return b.rect(buffer, begin + start, rows, cols, cols, 1, bounds)


def tile_of(
    b: Builder,
    buffer: Buffer,
    size: int,
    number: Index,
    *,
    segment: Index | None = None,
    beyond: bool = False,
) -> View:
    """Return tile `number` of a segment of `size`: m*k consecutive elements, k to a row.

    segment: by default the work item's. beyond: whether the tile may be behind the segment's end.
    """
    tile = b.m * b.k
    begin = (b.item if segment is None else segment) * size
    end = size if beyond or size % tile else None
    return consecutive(b, buffer, begin, number * tile, (b.m, b.k), end)


def share_of_block(b: Builder, size: int) -> tuple[int, bool]:
    """Return the number of tiles of a segment for each warp, and whether some are past the end."""
    tiles = -(-size // (b.m * b.k))
    warps = b.options.warps
    return -(-tiles // warps), tiles % warps > 0


def values_as_left(b: Builder, values: Buffer, line: str) -> list[Frag]:
    """Load a value of each of W warps as row 0 of ceil(W/k) left operands, zeros elsewhere."""
    warps = b.options.warps
    inside = [Bound(ROW, Index.of(1))] if b.m > 1 else []

    def operand(q: int) -> View:
        bounds = [*inside, Bound(COL + q * b.k, Index.of(warps))]
        return b.rect(values, q * b.k, b.m, b.k, warps, 1, bounds)

    names = numbered("E", -(-warps // b.k))
    return [b.load(b.left(name), operand(q), line) for q, name in enumerate(names)]


def carried(b: Builder, size: int, cols: int) -> View:
    """Return the work item's element of the input `carry`, repeated in m x cols elements."""
    given = b.input("carry", b.options.acc, Extent(LENGTH, size))
    bounds = [Bound(b.item * size, LENGTH)] if b.options.masked else []
    return b.rect(given, b.item, b.m, cols, 0, 0, bounds)


# --- Several segments in a panel --------------------------------------------------------------
#
# The grid of a segment, part of the definition of its bits (docs/bits.md): counted from its start,
# or from its end if a scan is in reverse. Nothing else of an array moves it.

# Tiles of a row: two f16 tiles fill two 32-byte sectors, the unit in which an NVIDIA GPU reads
# global memory ([CPG] "Device Memory Accesses").
ROW_TILES = 2
# Rows with totals scanned together, one for each lane of a warp: a panel of a scan.
PANEL_ROWS = 32
# Panels of a chunk; their sums are added in sequence.
CHUNK_PANELS = 8
# Chunks of a group; their sums are added in pairs.
GROUP_CHUNKS = 512

# Products that accumulate before a rounded addition, in programs whose rows are longer than the
# grid's: each truncates, so that sums drift with the length of the chain. Part of the order, too.
ACCUMULATION_LENGTH = 16

# Elements that a warp takes at a time if no options say it, chosen on an H200 for f16.
SCANNED = 1024
SUMMED = 2048
SUMMED_BY_OFFSETS = 1024
# Never more tiles than that, however small.
MOST_TILES = 64
# Elements of a row that is no whole tiles: as 32 lanes take at once in accesses of 16 bytes, and
# the most, where a warp would take single elements in any case.
OWN_ROW, OWN_VECTOR = 128, 4
LONGEST_ROW = 1024


@dataclass(frozen=True, slots=True)
class Slots:
    """Slots of a row, each with a segment: a constant factor keeps them apart.

    segment_size, width: elements of a segment, and of its slot. per_row: slots of a row. tiles:
    those with sums that fill an accumulator; 1 of a scan.
    """

    segment_size: int
    width: int
    per_row: int
    tiles: int


@dataclass(frozen=True, slots=True)
class Share:
    """The layout in tiles of the elements that a warp takes at a time, and of the segments in them.

    tiles_per_row: those side by side. groups: of m rows each. rows: those of a segment, each of
    which begins where the one before ends; the last one may not be full. lines: segments at once;
    0 if one has more rows, and takes several passes. row: elements of a row that is no whole tiles;
    0 if it is. slots: those of a row of one tile with several segments; None otherwise.
    """

    tiles_per_row: int
    groups: int
    rows: int
    lines: int
    row: int = 0
    slots: Slots | None = None

    @property
    def tiles(self) -> int:
        """Tiles of all rows."""
        return self.tiles_per_row * self.groups


def share_of(
    m: int, k: int, segment_size: int, elements: int, groups: int | None = None, least: int = 1
) -> Share:
    """Return the share of a warp of about `elements` elements, or of `groups` times m rows.

    A segment of at most k elements is a row of one tile. least: the fewest rows.
    """
    width = 1 if segment_size <= k else ROW_TILES
    rows = -(-segment_size // (width * k))
    if groups is None:
        most = MOST_TILES // width
        groups = max(-(-least // m), min(most, max(1, elements // (width * m * k))))
    return Share(width, groups, rows, groups * m // rows)


def has_own_row(k: int, kind: str, segment_size: int) -> bool:
    """Return whether segments of float32 have a row of their own length each, without zeros behind.

    A scan's rows are those of the grid. A sum is a pairwise sum for any rows, if it is one for rows
    of the grid. Longer segments are as fast in rows of the grid if those begin at multiples of 16
    bytes.
    """
    row = ROW_TILES * k
    if segment_size <= row or kind == "scan" or row & (row - 1):
        return segment_size <= row
    longest = OWN_ROW if segment_size % OWN_VECTOR == 0 else LONGEST_ROW
    return segment_size <= longest


def own_share(m: int, k: int, segment_size: int, groups: int | None = None) -> Share:
    """Return the share of a warp for segments with a row of their own length each."""
    if groups is None:
        groups = max(1, min(MOST_TILES, SCANNED // (m * segment_size)))
    return Share(-(-segment_size // k), groups, 1, groups * m, segment_size)


def slot_of(kind: str, n: int, k: int, segment_size: int) -> int:
    """Return the elements of a slot: the least power of 2 that holds a segment, if it divides k.

    Otherwise k: one segment to a row. A tile has space for n sums of a row, and U is cut between
    slots, if it is cut.
    """
    for slot in (1 << i for i in range(k.bit_length())):
        suits = k // slot <= n if kind == "reduction" else slot > 1 and (k <= n or n % slot == 0)
        if segment_size <= slot < k and k % slot == 0 and suits:
            return slot
    return k


def fits_fused_steps(how: Numerics, slot: int) -> bool:
    """Return whether fused steps take whole slots, or slots whole steps.

    Then a segment's bits are those that it has in a row of its own.
    """
    return not isinstance(how, Fused) or how.length % slot == 0 or slot % how.length == 0


def share_of_slots(
    kind: str, m: int, n: int, k: int, segment_size: int, groups: int | None = None
) -> Share:
    """Return the share of a warp for segments of at most k elements, in slots of rows of a tile.

    Tile j of group g of a sum is number j * groups + g, so that the sums of one j are adjacent.
    """
    width = slot_of(kind, n, k, segment_size)
    per_row = k // width
    tiles = max(1, n // per_row) if kind == "reduction" else 1
    if groups is None:
        groups = max(1, min(SUMMED // (m * k), MOST_TILES) // tiles)
    slots = Slots(segment_size, width, per_row, tiles)
    return Share(1, groups * tiles, 1, groups * tiles * m * per_row, slots=slots)


def scan_share(m: int, k: int, segment_size: int, groups: int | None = None) -> Share:
    """Return the share of a warp for scanned segments: long ones a panel at a time."""
    share = share_of(m, k, segment_size, SCANNED, groups, PANEL_ROWS)
    fewest = -(-min(share.rows, PANEL_ROWS) // m)
    require(
        share.groups >= fewest,
        f"a warp takes the {min(share.rows, PANEL_ROWS)} rows of a segment or a panel at once, "
        f"{m} to a group; got ",
        Given("groups", groups),
        f", use {fewest} or more",
    )
    if share.rows <= PANEL_ROWS:
        return share
    return Share(share.tiles_per_row, fewest, share.rows, 0)


def ragged_share(m: int, k: int, cut: int) -> Share:
    """Return the share of a warp for scanned chunks of ragged segments, each a row."""
    share = share_of(m, k, cut, SCANNED, least=PANEL_ROWS)
    return replace(share, tiles_per_row=-(-cut // k))


def summed_share(m: int, k: int, cut: int) -> Share:
    """Return the share of a warp for summed chunks of ragged segments, each a row.

    Those of more than two tiles are taken a tile at a time, m of them at once.
    """
    long = cut > ROW_TILES * k
    share = share_of(m, k, cut, SUMMED_BY_OFFSETS, 1 if long else None)
    return replace(share, tiles_per_row=-(-cut // k))


def rows_of_a_pass(count: int) -> int:
    """Return the number of `count` rows to use if a segment takes several passes: a power of 2."""
    used: int = 1 << (count.bit_length() - 1)
    return used
