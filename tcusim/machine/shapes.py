"""Tile shapes: the sizes of mma instructions, their types, and the first GPU of each.

A shape is data. Sizes are elements, always in the order M, N, K: `a` is m x k, `b` is k x n, `c`
and `d` are m x n. A new shape is one `MmaShape`; the simulator also runs those that no GPU has.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tcusim import errors
from tcusim.errors import require_choice, require_int
from tcusim.machine.formats import FORMATS, is_type
from tcusim.machine.rules import FAMILIES, require_tuple
from tcusim.plugins import OWN, Broken, Registry, items_of

_FLOAT_TYPES = tuple(name for name, row in FORMATS.items() if row.is_float)
ELEMENT_TYPES = (*_FLOAT_TYPES, "s8", "u8", "s4", "u4", "b1", "s32")
ACCUMULATOR_TYPES = ("f16", "f32", "f64", "s32")

# sm_70 was the first GPU with tensor cores. The upper end only catches slips, such as 750 for 75.
_FIRST_SM, _LAST_SM = 70, 199

# WMMA loads and stores tiles that begin at a multiple of this: "a 256-bit aligned pointer"
# [CPG sec. 10.24.1].
TILE_BYTES: Final = 32

# And their rows (columns, where those lie one after another) are a multiple of this apart: "a
# multiple of 16 bytes" [CPG sec. 10.24.1].
LDM_BYTES: Final = 16

_TEXT = re.compile(r"([1-9]\d*)x([1-9]\d*)x([1-9]\d*)|m([1-9]\d*)n([1-9]\d*)k([1-9]\d*)")
# Characters of the longest text that names a tile.
_LONGEST = 40


@dataclass(frozen=True, slots=True)
class Operands:
    """One row of a shape: types that an instruction takes at this size.

    Attributes
    ----------
    ab : str
        Element type of `a` and `b`, such as ``"f16"``.
    acc : str
        Element type of the accumulators `c` and `d`: ``"f16"``, ``"f32"``, ``"f64"`` or ``"s32"``.
    min_sm : int
        Least compute capability, as in sm_70.
    family : str
        The instruction: ``"wmma"``, ``"mma.sync"``, ``"wgmma"`` or ``"tcgen05"``. The alignment
        that loads must keep depends on it.
    source : str
        Where this is documented.
    """

    ab: str
    acc: str
    min_sm: int
    family: str
    source: str = ""

    def __post_init__(self) -> None:
        choices = (("ab", ELEMENT_TYPES), ("acc", ACCUMULATOR_TYPES), ("family", FAMILIES))
        for name, valid in choices:
            require_choice(f"{self}: {name}", getattr(self, name), valid)
        if not _is_int(self.min_sm) or not _FIRST_SM <= self.min_sm <= _LAST_SM:
            raise errors.InputError(
                f"{self}: min_sm must be a compute capability without the point, such as 70 or 90, "
                f"got {errors.told(self.min_sm)}."
            )

    def __str__(self) -> str:
        return f"Operands {self.ab} -> {self.acc} ({self.family})"


@dataclass(frozen=True, slots=True)
class MmaShape:
    """A tile size of one mma, with the types that real instructions take at that size.

    Attributes
    ----------
    m, n, k : int
        Elements. `a` is m x k, `b` is k x n, `c` and `d` are m x n.
    operands : tuple of Operands
        Rows for real GPUs. A shape without rows is virtual: the simulator lets it take any types.
    source : str
        Where the shape comes from.
    title : str
        One line for people.
    tile_bytes, row_bytes : int or None
        A tile that is loaded or stored begins at a multiple of `tile_bytes`, up to 32. Its rows
        (its columns, if they are contiguous) are a multiple of `row_bytes` apart, up to 16. None:
        the alignment of its instruction; without an instruction, any address.

    Examples
    --------
    >>> wide = MmaShape(64, 8, 16, title="a tall tile that no GPU has")
    >>> wide.name, wide.ptx, wide.virtual
    ('64x8x16', 'm64n8k16', True)
    """

    m: int
    n: int
    k: int
    # Outside the hash, for speed: fragments hash their shape. They still count for equality.
    operands: tuple[Operands, ...] = field(default=(), hash=False)
    source: str = field(default="", hash=False)
    title: str = field(default="", hash=False)
    tile_bytes: int | None = field(default=None, hash=False, kw_only=True)
    row_bytes: int | None = field(default=None, hash=False, kw_only=True)

    def __post_init__(self) -> None:
        where = f"MmaShape {self.name}"
        for name, size in (("m", self.m), ("n", self.n), ("k", self.k)):
            require_int(f"{where}: {name}", size, 1)
        require_tuple(f"{where}: operands", self.operands, Operands)
        # The builder aligns staged data for WMMA, and so for all weaker requirements.
        for name, most in (("tile_bytes", TILE_BYTES), ("row_bytes", LDM_BYTES)):
            value = getattr(self, name)
            if value is not None and not (_is_int(value) and value > 0 and most % value == 0):
                valid = ", ".join(str(size) for size in range(1, most + 1) if most % size == 0)
                raise errors.InputError(
                    f"{where}: {name} must be one of {valid}, or None; got {errors.told(value)}"
                )
        keys = [(row.ab, row.acc, row.family) for row in self.operands]
        for row, key in zip(self.operands, keys, strict=True):
            if keys.count(key) > 1:
                raise errors.InputError(
                    f"{where}: the row {row} appears twice. Keep the lower min_sm."
                )

    @property
    def name(self) -> str:
        """The shape's name, such as ``"16x16x16"``: m, n and k."""
        return f"{self.m}x{self.n}x{self.k}"

    @property
    def ptx(self) -> str:
        """The shape as PTX spells it, such as ``"m16n16k16"``."""
        return f"m{self.m}n{self.n}k{self.k}"

    @property
    def virtual(self) -> bool:
        """Whether no real instruction has this shape."""
        return not self.operands

    def pairs(self) -> tuple[tuple[str, str], ...]:
        """Return the (ab, acc) pairs of the rows, each once; none for a virtual shape.

        Types of less than a byte, which only `tcusim layout` knows, are left out.
        """
        known = (row for row in self.operands if is_type(row.ab) and is_type(row.acc))
        return tuple(dict.fromkeys((row.ab, row.acc) for row in known))

    def operands_for(self, ab: str, acc: str) -> Operands | None:
        """Return the first row of these types, or None: WMMA rows come before the others."""
        return next((row for row in self.operands if (row.ab, row.acc) == (ab, acc)), None)

    def family(self, ab: str, acc: str) -> str:
        """Return the instruction family for these types, such as "wmma"; "" if none is known.

        An architecture's families may differ in arithmetic: pass the family to `rule_for`.
        """
        row = self.operands_for(ab, acc)
        return "" if row is None else row.family

    def alignment(self, ab: str, acc: str) -> tuple[int, int]:
        """Return the bytes that a tile's address, and the distance of its rows, are multiples of.

        1 is no rule.
        """
        wmma = self.family(ab, acc) == "wmma"
        usual = (TILE_BYTES, LDM_BYTES) if wmma else (1, 1)
        own = (self.tile_bytes, self.row_bytes)
        tile, row = (one or other for one, other in zip(own, usual, strict=True))
        return tile, row

    def supports(self, ab: str, acc: str) -> bool:
        """Whether the shape takes these types; a virtual shape takes any known ones."""
        if self.virtual:
            return (ab in ELEMENT_TYPES or is_type(ab)) and acc in ACCUMULATOR_TYPES
        return self.operands_for(ab, acc) is not None

    def taking(self, ab: str, acc: str) -> MmaShape:
        """Return the shape, or a virtual one of its sizes if its instruction lacks the types."""
        return self if self.supports(ab, acc) else MmaShape(self.m, self.n, self.k)

    def __str__(self) -> str:
        return self.name


def shape_of(shape: str | tuple[int, int, int] | MmaShape) -> MmaShape:
    """Return the shape of three sizes, in M, N, K order: the conversion of every `tile` argument.

    Parameters
    ----------
    shape : str, tuple of three int, or MmaShape
        ``"16x16x16"``, ``"m16n16k16"`` or ``(16, 16, 16)``; an MmaShape is returned as it is.

    Returns
    -------
    MmaShape
        The registered shape of these sizes, or else a virtual one.

    Raises
    ------
    InputError
        The argument does not spell three sizes of at least 1.

    Examples
    --------
    >>> shape_of("m32n8k16").name
    '32x8x16'
    >>> shape_of("16x16x16").virtual, shape_of((3, 5, 7)).virtual
    (False, True)
    """
    if isinstance(shape, MmaShape):
        return shape
    known = _SHAPES.known(shape)
    if known is not None:
        return known
    sizes = _sizes(shape)
    found = _SHAPES.find("x".join(map(str, sizes)))
    if isinstance(found, Broken):
        raise errors.InputError(found.reason)
    return found or MmaShape(*sizes)


def tiles_of(sm: Sequence[int], pairs: Collection[tuple[str, str]]) -> tuple[MmaShape, ...]:
    """Return the shapes that all GPUs of these capabilities support for any of these types."""
    least = min(sm, default=0)
    return tuple(
        shape
        for shape in shapes()
        if any(row.min_sm <= least and (row.ab, row.acc) in pairs for row in shape.operands)
    )


def shapes() -> tuple[MmaShape, ...]:
    """Return every known shape: the tables here, then other packages' and the user's own."""
    return _SHAPES.all()


def register_shape(shape: MmaShape) -> MmaShape:
    """Make a shape known by its name. An equal shape may be registered again.

    Parameters
    ----------
    shape : MmaShape
        Its sizes in M, N, K order, and which instructions have it, if any.

    Returns
    -------
    MmaShape
        The same.

    Raises
    ------
    InputError
        Another shape has the name.

    Examples
    --------
    >>> register_shape(MmaShape(4, 4, 4, title="small enough to follow by hand")).name
    '4x4x4'
    >>> shape_of("4x4x4").title
    'small enough to follow by hand'
    """
    (checked,) = _members((shape,))
    return _SHAPES.add(checked, "register_shape")


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _sizes(shape: object) -> tuple[int, int, int]:
    sizes: Any = shape
    if isinstance(shape, str) and len(shape) <= _LONGEST and (match := _TEXT.fullmatch(shape)):
        sizes = tuple(int(size) for size in match.groups() if size)
    is_of_ints = isinstance(sizes, tuple) and len(sizes) == 3 and all(map(_is_int, sizes))
    if is_of_ints and all(0 < size < 2**31 for size in sizes):
        m, n, k = sizes
        return m, n, k
    raise errors.InputError(
        f"a shape is written '16x16x16', 'm16n16k16' or (16, 16, 16), sizes in M, N, K order, "
        "each from 1 to 2**31 - 1; "
        f"got {errors.told(shape)}."
    )


def _members(value: object) -> tuple[MmaShape, ...]:
    return items_of(value, MmaShape, "a shape must be an MmaShape")


# NVIDIA's instructions: family, sizes, least sm, types. mma.sync is one instruction of the machine;
# WMMA is the C++ interface, which the compiler lowers to one or more of those. Where a size has
# both, WMMA comes first, because generated kernels use it. wgmma and tcgen05 have no rows: they
# number in the hundreds, and take operands from shared or tensor memory, not from fragments.
_INSTRUCTIONS = (
    # [CPG sec. 10.24.6] element types and matrix sizes
    ("wmma", "16x16x16 32x8x16 8x32x16", 70, "f16->f16 f16->f32"),
    ("wmma", "16x16x16 32x8x16 8x32x16", 72, "s8->s32 u8->s32"),
    # [CPG sec. 10.24.6] alternate floating point
    ("wmma", "16x16x16 32x8x16 8x32x16", 80, "bf16->f32"),
    ("wmma", "16x16x8", 80, "tf32->f32"),
    # [CPG sec. 10.24.6] double precision
    ("wmma", "8x8x4", 80, "f64->f64"),
    # [CPG sec. 10.24.6] sub-byte operations, experimental; b1 by xor, from sm_80 also by and
    ("wmma", "8x8x32", 75, "s4->s32 u4->s32"),
    ("wmma", "8x8x128", 75, "b1->s32"),
    # [PTX mma.sync] half precision; m8n8k4 is Volta's: four tiles a warp, emulated from sm_80 on
    ("mma.sync", "8x8x4", 70, "f16->f16 f16->f32"),
    ("mma.sync", "16x8x8", 75, "f16->f16 f16->f32"),
    ("mma.sync", "16x8x16", 80, "f16->f16 f16->f32"),
    # [PTX mma.sync] alternate floating point
    ("mma.sync", "16x8x4", 80, "tf32->f32"),
    ("mma.sync", "16x8x8", 80, "bf16->f32 tf32->f32"),
    ("mma.sync", "16x8x16", 80, "bf16->f32"),
    # [PTX mma.sync] fp8; k = 16 and the f16 accumulator came later than sm_89, with PTX 8.7
    ("mma.sync", "16x8x16 16x8x32", 89, "e4m3->f16 e4m3->f32 e5m2->f16 e5m2->f32"),
    # [PTX mma.sync] double precision
    ("mma.sync", "8x8x4", 80, "f64->f64"),
    ("mma.sync", "16x8x4 16x8x8 16x8x16", 90, "f64->f64"),
    # [PTX mma.sync] integers
    ("mma.sync", "8x8x16", 75, "s8->s32 u8->s32"),
    ("mma.sync", "16x8x16 16x8x32", 80, "s8->s32 u8->s32"),
    ("mma.sync", "8x8x32", 75, "s4->s32 u4->s32"),
    ("mma.sync", "16x8x32 16x8x64", 80, "s4->s32 u4->s32"),
    # [PTX mma.sync] single bits
    ("mma.sync", "8x8x128", 75, "b1->s32"),
    ("mma.sync", "16x8x128 16x8x256", 80, "b1->s32"),
)

_SOURCES = {"wmma": "[CPG sec. 10.24.6]", "mma.sync": "[PTX mma.sync]"}


def _built_in_shapes() -> Iterator[MmaShape]:
    """Collect the rows of the table by size, and keep their order."""
    rows: dict[str, list[Operands]] = {}
    for family, sizes, min_sm, types in _INSTRUCTIONS:
        for size, pair in itertools.product(sizes.split(), types.split()):
            ab, acc = pair.split("->")
            row = Operands(ab, acc, min_sm, family, _SOURCES[family])
            rows.setdefault(size, []).append(row)
    for size, operands in rows.items():
        sources = ", ".join(dict.fromkeys(row.source for row in operands))
        yield MmaShape(*_sizes(size), tuple(operands), sources, _title(operands))


def _title(operands: Iterable[Operands]) -> str:
    """Return the families with their input types, as in ``"wmma: f64; mma.sync: f16, f64"``."""
    types: dict[str, dict[str, None]] = {}
    for row in operands:
        types.setdefault(row.family, {})[row.ab] = None
    return "; ".join(f"{family}: {', '.join(names)}" for family, names in types.items())


_SHAPES: Final = Registry[MmaShape]("shape", "tcusim.shapes", lambda shape: (shape.name,), _members)
for _shape in _built_in_shapes():
    _SHAPES.add(_shape, OWN)
