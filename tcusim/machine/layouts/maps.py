"""Where a warp keeps a fragment: the element in each register of each lane, as formulas.

A lane is `4 * group + turn`, with eight groups of four lanes: %laneid >> 2 and %laneid % 4 of PTX,
which documents the fragments of `mma.sync`. Those of WMMA are documented nowhere ("the mapping of
matrix elements into fragment storage is unspecified" [CPG sec. 10.24.1]).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tcusim.machine.formats import format_of
from tcusim.machine.multiprocessors import LANES

# Bits of the element types that the simulator does not compute with.
_NARROW: Final = {"b1": 1, "s4": 4, "u4": 4}

Ints: TypeAlias = NDArray[np.int_]
_Places: TypeAlias = tuple[Any, Any]

_LANE: Final = np.arange(LANES)[:, None]
_GROUP, _TURN = _LANE >> 2, _LANE & 3
# Every lane works on tile 0.
_ONE_TILE: Final = np.zeros(LANES, int)
# The single bits of a lane's number.
_B0, _B1, _B2, _B3, _B4 = (_LANE >> bit & 1 for bit in range(5))


@dataclass(frozen=True, slots=True, eq=False)
class FragmentMap:
    """The element in each register of each lane.

    Attributes
    ----------
    shape : str
        The shape of the product, as PTX spells it, such as ``"m16n8k16"``.
    family : str
        The instruction: ``"mma.sync"`` or ``"wmma"``.
    operand : str
        ``"a"`` (m x k), ``"b"`` (k x n) or ``"c"``, which stands for d too (m x n).
    dtype : str
        Element type of the operand.
    order : str
        ``"row"`` or ``"col"``: how the instruction takes a or b; ``""`` for c.
    size : (int, int)
        Rows and columns.
    rows, cols : array of int (32, n)
        Row and column of element i of each lane: ``a[i]`` of PTX, ``fragment.x[i]`` of WMMA.
    tiles : array of int (32,)
        Which tile a lane works on; 0 but where a warp multiplies several.
    source, evidence : str
        Where the map comes from, and how it is known.
    """

    shape: str
    family: str
    operand: str
    dtype: str
    order: str
    size: tuple[int, int]
    rows: Ints
    cols: Ints
    tiles: Ints
    source: str
    evidence: str

    @property
    def count(self) -> int:
        """Elements of a lane."""
        return int(self.rows.shape[1])

    @property
    def element_bits(self) -> int:
        """Bits of an element in a register."""
        return bits_of(self.dtype)

    @property
    def register_bits(self) -> int:
        """Bits of a register: 32, or 64 of a pair that holds a float64 number."""
        return max(32, self.element_bits)

    @property
    def letter(self) -> str:
        """The name of a lane's elements: a, b or c of PTX, x of WMMA."""
        return "x" if self.family == "wmma" else self.operand

    def register(self, element: int) -> tuple[int, int]:
        """Return the register of an element of a lane, counted from 0, and its lowest bit there."""
        number, bit = divmod(element * self.element_bits, self.register_bits)
        return number, bit


def bits_of(dtype: str) -> int:
    """Return the number of bits of an element in a register."""
    return _NARROW[dtype] if dtype in _NARROW else 8 * format_of(dtype).itemsize


# --- mma.sync ---------------------------------------------------------------------------------

# Sections of [PTX] 9.2, "Matrix Fragments for ...", by shape; where types differ, by type too.
_SECTIONS: Final = {
    "m8n8k4": "9.7.14.5.1, mma.m8n8k4 with .f16",
    "m8n8k4 f64": "9.7.14.5.2, mma.m8n8k4 with .f64",
    "m8n8k16": "9.7.14.5.3, mma.m8n8k16",
    "m8n8k32": "9.7.14.5.4, mma.m8n8k32",
    "m8n8k128": "9.7.14.5.5, mma.m8n8k128",
    "m16n8k4": "9.7.14.5.6, mma.m16n8k4",
    "m16n8k8": "9.7.14.5.7, mma.m16n8k8",
    "m16n8k16": "9.7.14.5.8, mma.m16n8k16 with floating point type",
    "m16n8k16 8-bit": "9.7.14.5.9, mma.m16n8k16 with integer type",
    "m16n8k32": "9.7.14.5.10, mma.m16n8k32",
    "m16n8k64": "9.7.14.5.11, mma.m16n8k64",
    "m16n8k128": "9.7.14.5.12, mma.m16n8k128",
    "m16n8k256": "9.7.14.5.13, mma.m16n8k256",
}


def _section(ptx: str, ab: str) -> str:
    kind = f"{ptx} {'8-bit' if bits_of(ab) == 8 else ab}"
    return f"[PTX sec. {_SECTIONS.get(kind) or _SECTIONS[ptx]}]"


def mma_sync_map(
    sizes: tuple[int, int, int], operand: str, ab: str, acc: str, order: str
) -> FragmentMap:
    """Return the documented map of an operand of `mma.sync`.

    sizes: m, n and k. order: "row" or "col"; only m8n8k4 in float16 has more than one.
    """
    m, n, k = sizes
    dtype = acc if operand == "c" else ab
    tiles = _ONE_TILE
    if (m, n, k, ab) == (8, 8, 4, "f16"):
        # Lanes 0-3 and 16-19 multiply a tile of their own, lanes 4-7 and 20-23 another, ...
        places, tiles = _quad_pairs(operand, dtype, order), (_GROUP & 3)[:, 0]
    else:
        places = {"a": _rows_of_a, "b": _columns_of_b, "c": _pairs_of_c}[operand](sizes, dtype)
    source = _section(f"m{m}n{n}k{k}", ab)
    types = ab, acc
    return _map("mma.sync", sizes, operand, types, order, places, source, "documented", tiles)


def _map(
    family: str,
    sizes: tuple[int, int, int],
    operand: str,
    types: tuple[str, str],
    order: str,
    places: _Places,
    source: str,
    evidence: str,
    tiles: Ints = _ONE_TILE,
) -> FragmentMap:
    """Return the map with these places: rows and columns that broadcast to (32, elements)."""
    m, n, k = sizes
    ab, acc = types
    rows, cols = map(np.ascontiguousarray, np.broadcast_arrays(*places))
    size = {"a": (m, k), "b": (k, n), "c": (m, n)}[operand]
    dtype, order = (acc, "") if operand == "c" else (ab, order)
    ptx = f"m{m}n{n}k{k}"
    return FragmentMap(
        ptx, family, operand, dtype, order, size, rows, cols, tiles.copy(), source, evidence
    )


def _in_words(count: int, dtype: str) -> tuple[Ints, Ints, int]:
    """Return each element's register and position in it, and the elements per register."""
    each = max(1, 32 // bits_of(dtype))
    word, place = np.divmod(np.arange(count), each)
    return word, place, each


def _rows_of_a(sizes: tuple[int, int, int], dtype: str) -> _Places:
    """Return rows and columns of a: a register holds neighbours of a row.

    Registers go down by eight rows first, where there are so many, then to the right.
    """
    m, _, k = sizes
    word, place, each = _in_words(m * k // LANES, dtype)
    down = m // 8
    return _GROUP + 8 * (word % down), each * (_TURN + 4 * (word // down)) + place


def _columns_of_b(sizes: tuple[int, int, int], dtype: str) -> _Places:
    """Return rows and columns of b: a register holds neighbours of a column."""
    _, n, k = sizes
    word, place, each = _in_words(k * n // LANES, dtype)
    return each * (_TURN + 4 * word) + place, _GROUP


def _pairs_of_c(sizes: tuple[int, int, int], dtype: str) -> _Places:
    """Return rows and columns of c: two neighbours of a row, then two eight rows below."""
    element = np.arange(sizes[0] * sizes[1] // LANES)
    return _GROUP + 8 * (element >> 1), 2 * _TURN + (element & 1)


def _quad_pairs(operand: str, dtype: str, order: str) -> _Places:
    """Return rows and columns of Volta's m8n8k4, of which a quad pair holds one."""
    element = np.arange(8 if operand == "c" else 4)
    line = _TURN + 4 * _B4
    if operand == "c":
        if dtype == "f16":
            return line, element
        return _B0 + (element & 2) + 4 * _B4, (element & 4) + 2 * _B1 + (element & 1)
    along, across = (line, element) if order == _natural(operand) else (element + 4 * _B4, _TURN)
    return (along, across) if operand == "a" else (across, along)


def _natural(operand: str) -> str:
    """Return the order in which a lane's elements of an operand are contiguous."""
    return "row" if operand == "a" else "col"


# --- WMMA -------------------------------------------------------------------------------------

# Elements of a lane of a and b in float16, on every generation; smaller tiles are repeated.
_HALVES: Final = 16


def wmma_map(
    sizes: tuple[int, int, int], operand: str, ab: str, acc: str, order: str
) -> FragmentMap:
    """Return the map of a WMMA fragment as recorded on an H200.

    It is a grid of fragments of `mma.sync` m16n8 (m8n8) for any order in memory; 8x32x16 is the
    transposed product 32x8x16.
    """
    m, n, k = sizes
    if (m, n) == (8, 32):
        other = wmma_map((32, 8, k), {"a": "b", "b": "a", "c": "c"}[operand], ab, acc, order)
        rows, cols = other.cols, other.rows
    else:
        part = mma_sync_map((min(m, 16), 8, k), operand, ab, acc, order)
        downs = range(0, m, 16) if operand in "ac" else (0,)
        acrosses = range(0, n, 8) if operand in "bc" else (0,)
        parts = [(part.rows + down, part.cols + over) for down in downs for over in acrosses]
        rows, cols = (np.concatenate(each, axis=1) for each in zip(*parts, strict=True))
        if ab == "f16" and operand != "c":
            times = _HALVES // rows.shape[1]
            rows, cols = np.tile(rows, times), np.tile(cols, times)
    places = rows, cols
    return _map("wmma", sizes, operand, (ab, acc), order, places, "[H200]", "recorded")


def volta_wmma_map(operand: str, ab: str, acc: str, order: str) -> FragmentMap:
    """Return the published map of a 16x16x16 fragment on Volta.

    Every element of a and b is in two lanes. [RAIHAN19] measured a, b and c; [WMMAE] has the same
    in code that runs. They differ in b, where that code, the quad pairs of `mma.sync` and the
    paper's own constants [DAKKAK19] agree.
    """
    dtype = acc if operand == "c" else ab
    places, source = _VOLTA[operand](dtype, order)
    evidence = "published, by others who probed a V100"
    return _map("wmma", (16, 16, 16), operand, (ab, acc), order, places, source, evidence)


def _volta_factor(operand: str, order: str) -> tuple[_Places, str]:
    element = np.arange(16)
    # Four groups of eight lanes: bit 2 chooses the rows of a, bit 3 the columns of b.
    half = 8 * (_B2 if operand == "a" else _B3) + 4 * _B4
    if order == _natural(operand):
        along, across = half + _TURN, element
    else:
        along, across = half + (element & 3), _TURN + 4 * (element >> 2)
    places = (along, across) if operand == "a" else (across, along)
    return places, "[WMMAE], [RAIHAN19]" if operand == "a" else "[WMMAE]"


def _volta_sum(dtype: str, order: str) -> tuple[_Places, str]:
    del order
    element = np.arange(8)
    if dtype == "f16":
        return (8 * _B2 + 4 * _B4 + _TURN, 8 * _B3 + element), "[RAIHAN19], [PTX mma.m8n8k4]"
    row = 8 * _B2 + 4 * _B4 + _B0 + (element & 2)
    column = 8 * _B3 + (element & 4) + 2 * _B1 + (element & 1)
    return (row, column), "[RAIHAN19], [PTX mma.m8n8k4]"


_VOLTA: Final[dict[str, Callable[[str, str], tuple[_Places, str]]]] = {
    "a": lambda dtype, order: _volta_factor("a", order),
    "b": lambda dtype, order: _volta_factor("b", order),
    "c": _volta_sum,
}
