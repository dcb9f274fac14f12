"""`tcusim.layout`: the mapping of an operand's elements to lanes and registers of a warp."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final

from tcusim.errors import Given, Unsupported, require_int, require_names, unknown_name
from tcusim.machine.layouts.maps import FragmentMap, mma_sync_map, volta_wmma_map, wmma_map
from tcusim.machine.layouts.picture import (
    drawing_of,
    fragment_of,
    grid_text,
    in_words,
    lane_text,
    page_of,
)
from tcusim.machine.multiprocessors import LANES
from tcusim.machine.registry import arch_of
from tcusim.machine.rules import FAMILIES, Arch
from tcusim.machine.shapes import MmaShape, Operands, shape_of

_OPERANDS: Final = ("a", "b", "c", "d")
_ORDERS: Final = ("row", "col")

# Where 16x16x16 in float16 is kept as on Hopper, according to [WMMAE].
_LIKE_HOPPER: Final = ("turing", "ampere")


@dataclass(frozen=True, slots=True)
class Held:
    """An element in a register of a lane.

    Attributes
    ----------
    lane : int
        The lane of the warp, 0 to 31.
    element : int
        Its number among the lane's elements: i of ``a[i]`` in PTX, of ``fragment.x[i]`` in WMMA.
    register : int
        Its register among the lane's, of 32 bits, or of 64 for float64.
    bit : int
        Its lowest bit in the register.
    row, col : int
        Where it is in the operand.
    tile : int
        The tile, if a warp multiplies several.
    """

    lane: int
    element: int
    register: int
    bit: int
    row: int
    col: int
    tile: int


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Layout(FragmentMap):
    """The lane and register of each element of an operand; a map that displays itself.

    `print` it, or show it in a notebook. ``layout.rows[lane, i]`` and ``layout.cols[lane, i]``
    are the place of a lane's element i; `holders` returns the lanes that hold a place.

    Attributes
    ----------
    shape, family : str
        The shape of the product as PTX spells it, and the instruction, mma.sync or wmma.
    operand : str
        ``"a"`` (m x k), ``"b"`` (k x n) or ``"c"``, which stands for d too (m x n).
    dtype, order : str
        Element type, and how the instruction takes a or b: ``"row"`` or ``"col"``.
    size : (int, int)
        Rows and columns.
    rows, cols : array of int (32, n)
        Row and column of element i of each lane.
    tiles : array of int (32,)
        Which tile a lane works on; 0 but where a warp multiplies several.
    source, evidence : str
        Where the map comes from, and how it is known.
    """

    def lane(self, lane: int) -> tuple[Held, ...]:
        """Return the elements of a lane, in the order of its registers."""
        require_int("lane", lane, 0, LANES - 1)
        return tuple(self._held(lane, element) for element in range(self.count))

    def holders(self, row: int, col: int) -> tuple[Held, ...]:
        """Return the holders of an element: one lane, several, or one lane more than once."""
        require_int("row", row, 0, self.size[0] - 1)
        require_int("col", col, 0, self.size[1] - 1)
        lanes, elements = ((self.rows == row) & (self.cols == col)).nonzero()
        return tuple(map(self._held, lanes.tolist(), elements.tolist()))

    def _held(self, lane: int, element: int) -> Held:
        row, col = int(self.rows[lane, element]), int(self.cols[lane, element])
        return Held(lane, element, *self.register(element), row, col, int(self.tiles[lane]))

    def __str__(self) -> str:
        return self.to_text()

    def __repr__(self) -> str:
        order = f" {self.order}" if self.order else ""
        return (
            f"<Layout: {self.family} {self.shape} {self.operand}, {self.dtype}{order}, "
            f"{self.count} in each lane>"
        )

    def to_text(self, lane: int | None = None) -> str:
        """Return the matrix with each element's lane and index; or the elements of one lane."""
        if lane is None:
            return f"{in_words(self)}\n\n{grid_text(self)}"
        require_int("lane", lane, 0, LANES - 1)
        return f"{in_words(self)}\n\n{lane_text(self, lane)}"

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON types, with the elements of each lane."""
        arrays = ("rows", "cols", "tiles")
        head = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in arrays}
        lanes = [[asdict(one) for one in self.lane(lane)] for lane in range(LANES)]
        bits = {"element_bits": self.element_bits, "register_bits": self.register_bits}
        return {**head, "size": list(self.size), **bits, "lanes": lanes}

    def to_json(self) -> str:
        """Return `to_dict` as text."""
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=2)

    def to_html(self) -> str:
        """Return a page that needs no other file, no script and no network."""
        return page_of(self)

    def to_svg(self) -> str:
        """Return the picture alone."""
        return drawing_of(self)

    def _repr_html_(self) -> str:
        return fragment_of(self)


def layout(
    shape: str | tuple[int, int, int] | MmaShape,
    operand: str,
    *,
    ab: str = "",
    acc: str = "",
    family: str = "",
    order: str = "",
    arch: str = "hopper",
) -> Layout:
    """Return the mapping of an operand's elements to the lanes and registers of a warp.

    PTX documents the mapping of `mma.sync`, for all GPUs alike. The mapping of WMMA is
    undocumented, and differs between generations: Hopper's was recorded from an H200, and Volta's
    was published by others.

    Parameters
    ----------
    shape : str, tuple or MmaShape
        Such as ``"m16n8k16"`` or ``"16x8x16"``.
    operand : {"a", "b", "c", "d"}
        Which operand of d = a·b + c; c and d are alike.
    ab, acc : str, optional
        Types, such as ``"f16"`` and ``"f32"``. Default: the first that the shape takes, and `arch`
        has.
    family : {"", "wmma", "mma.sync"}
        The instruction, where a shape has both. Default: the first that takes the types.
    order : {"", "row", "col"}
        How the instruction takes a or b. Default: rows of a, columns of b, as `mma.sync` does.
    arch : str
        Whose registers, as for `mma`.

    Returns
    -------
    Layout
        The map, as arrays, text, JSON, HTML and SVG.

    Raises
    ------
    InputError
        If the shape or the operand is invalid.
    UnknownName
        If there is no such shape or architecture.
    Unsupported
        If no such instruction exists, or its layout is unknown.

    Examples
    --------
    >>> import tcusim
    >>> a = tcusim.layout("m16n8k16", "a")
    >>> a
    <Layout: mma.sync m16n8k16 a, f16 row, 8 in each lane>
    >>> a.rows[5, 2], a.cols[5, 2]
    (np.int64(9), np.int64(2))
    >>> a.holders(9, 2)
    (Held(lane=5, element=2, register=1, bit=0, row=9, col=2, tile=0),)
    """
    found = shape_of(shape)
    require_names(operand=operand, order=order, family=family, ab=ab, acc=acc)
    for name, value, known in (("operand", operand, _OPERANDS), ("order", order, ("", *_ORDERS))):
        if value not in known:
            raise unknown_name(name, value, [one for one in known if one])
    if family not in ("", *FAMILIES):
        raise unknown_name("family", family, FAMILIES)
    machine = arch_of(arch)
    rows = _instructions(found, ab, acc, family)
    if not machine.sm:
        raise Unsupported(
            f"there are maps of NVIDIA's GPUs alone, none of {machine.name} ({machine.title}); "
            "take ",
            Given("arch", "hopper"),
        )
    row = next((row for row in rows if row.min_sm <= max(machine.sm)), None)
    if row is None:
        row = min(rows, key=lambda row: row.min_sm)
        raise Unsupported(
            f"{machine.title} has no {row.family} {found.ptx} with {row.ab}; "
            f"sm_{row.min_sm} is the first"
        )
    letter = "c" if operand == "d" else operand
    taken = order or ("col" if letter == "b" else "row")
    one = _map_of(found, row, letter, taken, machine)
    return Layout(**{each.name: getattr(one, each.name) for each in fields(one)})


def _instructions(shape: MmaShape, ab: str, acc: str, family: str) -> list[Operands]:
    """Return the rows of a shape for the requested types: at least one."""
    if shape.virtual:
        raise Unsupported(f"no GPU has the shape {shape.name}, so no lanes hold its operands")
    asked = (ab, acc, family)
    found = [
        row
        for row in shape.operands
        if all(w in ("", own) for w, own in zip(asked, (row.ab, row.acc, row.family), strict=True))
    ]
    if found:
        return found
    if family in ("wgmma", "tcgen05"):
        raise Unsupported(
            f"{family} takes operands from shared or tensor memory; maps are of wmma and mma.sync"
        )
    known = ", ".join(f"{row.family} {row.ab}→{row.acc}" for row in shape.operands)
    asked_for = " ".join(word for word in (family, ab, acc) if word)
    raise Unsupported(f"{shape.name} has no {asked_for}; it has {known}")


def _map_of(shape: MmaShape, row: Operands, operand: str, order: str, machine: Arch) -> FragmentMap:
    """Return the map of an operand; raise an error that says why there is none."""
    sizes = shape.m, shape.n, shape.k
    several = sizes == (8, 8, 4) and row.ab == "f16"
    if row.family == "mma.sync":
        if operand != "c" and not several and order != ("row" if operand == "a" else "col"):
            raise Unsupported(
                f"mma.sync {shape.ptx} takes {operand} by "
                f"{'rows' if operand == 'a' else 'columns'} only"
            )
        return mma_sync_map(sizes, operand, row.ab, row.acc, order)
    half = sizes == (16, 16, 16) and row.ab == "f16"
    if machine.name == "volta" and half:
        return volta_wmma_map(operand, row.ab, row.acc, order)
    if machine.name == "hopper":
        return wmma_map(sizes, operand, row.ab, row.acc, order)
    if machine.name in _LIKE_HOPPER and half:
        one = wmma_map(sizes, operand, row.ab, row.acc, order)
        return replace(one, source="[WMMAE]", evidence="published, in code that runs there")
    raise Unsupported(
        f"nobody told where WMMA keeps {operand} of {shape.name} in {row.ab} on {machine.title}: "
        "it is documented nowhere, and was not recorded there. ",
        *(Given("arch", "hopper"), " has all"),
    )
