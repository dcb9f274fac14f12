"""A unit: tiles, arithmetic, and the figures of the machine around it, each with its source.

An `Arch` determines the result bits. A `Unit` adds its tiles, their timing, and the machine around
it: enough to evaluate an idea for a unit, and to predict the cost of a program on it. An unknown
figure is None, and a computation that needs it reports this; no figure is invented.
"""

from __future__ import annotations

import math
import re
from dataclasses import KW_ONLY, dataclass, field, fields
from typing import Any, Final

from tcusim.errors import InputError, require_choice, told
from tcusim.machine.multiprocessors import LANES, REGISTERS, SCHEDULERS, SHUFFLES, rows_of
from tcusim.machine.rules import FAMILIES, Arch, require_tuple
from tcusim.machine.shapes import MmaShape
from tcusim.table import Table, Tabular

__all__ = [
    "CONFIDENCES",
    "FIGURES",
    "ORDERED",
    "Figure",
    "Instruction",
    "Quantity",
    "Unit",
    "limits_of",
]

# How a figure is known, from the best way to the least.
CONFIDENCES: Final = {
    "measured": "on this hardware, by a program that is named",
    "documented": "the vendor says so",
    "published": "others measured it, or say so",
    "derived": "computed from other figures, as the source says",
    "assumed": "somebody's assumption, or part of an invented unit",
}


@dataclass(frozen=True, slots=True)
class Figure:
    """One number about a machine, and how it is known.

    Attributes
    ----------
    value : float
        In the quantity that `FIGURES` names for the field of the `Unit`.
    source : str
        A key of the page References, a data sheet, or the program that measured it and where.
    confidence : {"measured", "documented", "published", "derived", "assumed"}
        How it is known.

    Examples
    --------
    >>> Figure(1.98e9, "NVIDIA H200 data sheet", "documented").value
    1980000000.0
    """

    value: float
    source: str
    confidence: str

    def __post_init__(self) -> None:
        """Prove that the value is a number, and that somebody says so."""
        is_number = isinstance(self.value, int | float) and not isinstance(self.value, bool)
        if not is_number or not math.isfinite(self.value) or self.value <= 0:
            raise InputError(
                f"the value of a figure must be a number above zero, got {told(self.value)}. Leave "
                f"out what is not known."
            )
        if not isinstance(self.source, str) or not self.source.strip():
            raise InputError(
                f"the source of a figure must say who says so, got {told(self.source)}. Write "
                f"'assumed' if nobody does."
            )
        require_choice("the confidence of a figure", self.confidence, CONFIDENCES)

    @property
    def number(self) -> str:
        """The value as text: an integer below 10^9 in full, else six digits of it."""
        whole = self.value < 10**9 and self.value == int(self.value)
        return f"{self.value:,.0f}" if whole else f"{self.value:.6g}"


@dataclass(frozen=True, slots=True)
class Instruction:
    """The timing of one multiply-accumulate of a tile, for one pair of types.

    Attributes
    ----------
    tile : str
        One of the unit's tiles, such as ``"16x16x16"``.
    ab, acc : str
        Element types of the operands, and of the accumulator.
    family : str
        The instruction, as in a `Rule`; ``""`` for a unit that has only one kind.
    latency : Figure or None
        Cycles from operands to result: one of a chain in which each takes the last one's result.
    interval : Figure or None
        Cycles between two that do not depend on each other, on one matrix unit.
    """

    tile: str
    ab: str
    acc: str
    family: str = ""
    latency: Figure | None = None
    interval: Figure | None = None

    def __post_init__(self) -> None:
        """Prove that it is an instruction, and that its two figures go together."""
        if self.family != "":
            note = ", or '' where a unit has one kind of instructions"
            require_choice(f"{self}: family", self.family, FAMILIES, note)
        for name in ("latency", "interval"):
            _require_figure(f"{self}: {name}", getattr(self, name))
        if self.latency and self.interval and self.interval.value > self.latency.value:
            raise InputError(
                f"{self}: the interval, {self.interval.value:g} cycles, is longer than the "
                f"latency, {self.latency.value:g}. The interval is from one start to the next, "
                f"and a unit is free again at the latest when the result is there."
            )

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Tile, types and family; a unit has one instruction of a key."""
        return self.tile, self.ab, self.acc, self.family

    def __str__(self) -> str:
        return f"Instruction {self.tile} {self.ab} -> {self.acc}"


@dataclass(frozen=True, slots=True)
class Quantity:
    """The definition of a `Unit` figure: its unit of measure, its meaning, and its integrality.

    least, most: plausible limits, wide enough to distinguish only GHz from Hz.
    """

    quantity: str
    meaning: str
    whole: bool = False
    least: float = 1e-3
    most: float = 1e9


_BYTES_A_SECOND: Final[dict[str, Any]] = {"least": 1e6, "most": 1e18}
_JOULES: Final[dict[str, Any]] = {"least": 1e-18, "most": 1e-3}


def _figure(quantity: str, meaning: str, **more: Any) -> Any:
    """Return a field of a `Unit` for a figure, with its `Quantity`."""
    return field(default=None, metadata={Quantity: Quantity(quantity, meaning, **more)})


# The form of a name: "mychip" or "rtx 4090" is one, a path is not.
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9 _.+-]*")


@dataclass(frozen=True, slots=True, repr=False)
class Unit(Tabular):
    """A matrix unit in its machine: its tiles, its arithmetic, and figures with their sources.

    A core has shared memory and runs blocks: a streaming multiprocessor, a compute unit, a CPU
    core.

    Attributes
    ----------
    name : str
        Registry name, lower case, such as ``"h200"``.
    title : str
        Name for people.
    arch : Arch
        Its arithmetic: a registered architecture, or one of its own, which bears the unit's name.
    shapes : tuple of MmaShape
        The tiles that it takes: registered shapes, or its own.
    instructions : tuple of Instruction
        How long they take, as far as that is known.
    note : str
        A further remark, such as the board meant.
    unsaid : str
        Parts of the real unit that no parameter here says.
    clock, cores, units_per_core, fma_per_core, warps_per_core, blocks_per_core, threads_per_core, \
registers_per_core, shared_bytes_per_core, shared_bytes_per_block, shared_bandwidth, \
shared_latency, l2_bytes, l2_bandwidth, store_bandwidth, l2_latency, memory_bytes, \
memory_bandwidth, memory_latency, page_bytes, tlb_bytes, tlb_miss_latency, shuffle_latency, \
shuffle_interval, barrier_latency, code_latency, launch_seconds, memory_energy, l2_energy, \
shared_energy, multiply_add_energy, multiply_add_area : Figure or None
        Figures of the machine, as `FIGURES` defines them; None if unknown.

    Examples
    --------
    >>> from tcusim import MmaShape
    >>> from tcusim.machine import arch_of
    >>> invented = Figure(2e9, "invented", "assumed")
    >>> unit = Unit("mychip", "an idea", arch_of("exact"), (MmaShape(16, 16, 16),), clock=invented)
    >>> unit.clock.value, unit.cores
    (2000000000.0, None)
    """

    name: str
    title: str
    arch: Arch
    shapes: tuple[MmaShape, ...]
    instructions: tuple[Instruction, ...] = ()
    note: str = ""
    unsaid: str = ""
    _: KW_ONLY
    clock: Figure | None = _figure(
        "Hz", "cycles a second of the cores under sustained work", least=1e5, most=1e12
    )
    cores: Figure | None = _figure("cores", "cores of the machine", whole=True)
    units_per_core: Figure | None = _figure("units", "matrix units of a core", whole=True)
    fma_per_core: Figure | None = _figure(
        "multiply-adds a cycle", "of a core's ordinary float32 units"
    )
    warps_per_core: Figure | None = _figure("warps", "that a core holds at once", whole=True)
    blocks_per_core: Figure | None = _figure("blocks", "that a core holds at once", whole=True)
    threads_per_core: Figure | None = _figure("threads", "that a core holds at once", whole=True)
    registers_per_core: Figure | None = _figure("registers of 32 bits", "of a core", whole=True)
    shared_bytes_per_core: Figure | None = _figure("bytes", "shared memory of a core", whole=True)
    shared_bytes_per_block: Figure | None = _figure(
        "bytes", "shared memory that one block may have", whole=True
    )
    shared_bandwidth: Figure | None = _figure(
        "bytes a cycle", "between a core and its shared memory"
    )
    shared_latency: Figure | None = _figure("cycles", "of a load from shared memory")
    l2_bytes: Figure | None = _figure(
        "bytes", "the cache that all cores share", whole=True, most=1e15
    )
    l2_bandwidth: Figure | None = _figure(
        "bytes a second", "from that cache to all cores", **_BYTES_A_SECOND
    )
    store_bandwidth: Figure | None = _figure(
        "bytes a second", "from all cores to that cache, in whole lines", **_BYTES_A_SECOND
    )
    l2_latency: Figure | None = _figure("cycles", "of a load that this cache serves")
    memory_bytes: Figure | None = _figure("bytes", "global memory", whole=True, most=1e18)
    memory_bandwidth: Figure | None = _figure(
        "bytes a second", "of global memory", **_BYTES_A_SECOND
    )
    memory_latency: Figure | None = _figure("cycles", "of a load that global memory serves")
    page_bytes: Figure | None = _figure(
        "bytes", "a page of memory, which an entry of a TLB translates", whole=True, most=1e12
    )
    tlb_bytes: Figure | None = _figure(
        "bytes", "that a core's first TLB covers", whole=True, most=1e15
    )
    tlb_miss_latency: Figure | None = _figure(
        "cycles", "of a load from global memory if that TLB lacks its page"
    )
    shuffle_latency: Figure | None = _figure("cycles", "of an exchange between lanes of a warp")
    shuffle_interval: Figure | None = _figure(
        "cycles", "between two such exchanges of one scheduler's warps"
    )
    barrier_latency: Figure | None = _figure("cycles", "of a barrier that every warp has reached")
    code_latency: Figure | None = _figure(
        "cycles", "until a core has the next 128 bytes of the code of a kernel that starts"
    )
    launch_seconds: Figure | None = _figure(
        "seconds", "from a kernel's end to the next one's start", least=1e-12, most=1e3
    )
    memory_energy: Figure | None = _figure(
        "joules a byte", "that global memory reads or writes", **_JOULES
    )
    l2_energy: Figure | None = _figure("joules a byte", "that the shared cache moves", **_JOULES)
    shared_energy: Figure | None = _figure(
        "joules a byte", "that a core's shared memory moves", **_JOULES
    )
    multiply_add_energy: Figure | None = _figure(
        "joules", "of a multiply-add of a matrix unit", **_JOULES
    )
    multiply_add_area: Figure | None = _figure(
        "square metres", "of the part of a matrix unit for one multiply-add", least=1e-18, most=1.0
    )

    def __post_init__(self) -> None:
        """Prove that the parts are there, and that no two figures contradict each other."""
        where = f"Unit {self.name!r}"
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise InputError(
                f"{where}: a name is lower-case letters, digits, spaces and . _ + -, such as "
                f"'mychip'"
            )
        if not isinstance(self.arch, Arch):
            raise InputError(f"{where}: arch must be an Arch, got {told(self.arch)}")
        require_tuple(f"{where}: shapes", self.shapes, MmaShape)
        require_tuple(f"{where}: instructions", self.instructions, Instruction)
        sizes = [shape.name for shape in self.shapes]
        for size in sizes:
            if sizes.count(size) > 1:
                raise InputError(f"{where}: the tile {size} is given twice")
        for name, quantity in FIGURES.items():
            _require_figure(f"{where}: {name}", getattr(self, name), quantity)
        self._check_instructions(where)
        for less, more in ORDERED:
            small, large = getattr(self, less), getattr(self, more)
            if small and large and small.value > large.value:
                raise InputError(
                    f"{where}: {less}, {small.value:g}, is more than {more}, {large.value:g}. "
                    f"Correct one of them."
                )

    def _check_instructions(self, where: str) -> None:
        """Reject times of unsupported instructions, and duplicate times."""
        seen = set()
        for one in self.instructions:
            if one.tile not in [shape.name for shape in self.shapes]:
                tiles = ", ".join(shape.name for shape in self.shapes)
                raise InputError(f"{where}: {one}: it has no such tile; its tiles: {tiles}")
            if one.key in seen:
                raise InputError(f"{where}: {one} ({one.family or 'any family'}) is given twice")
            seen.add(one.key)

    def __repr__(self) -> str:
        """Return a one-line description; its fields and `unit_toml` have everything."""
        tiles = ", ".join(shape.name for shape in self.shapes) or "no tiles"
        return (
            f"<Unit {self.name}: {self.title}; {tiles}; {self._types() or 'no types'}; "
            f"{len(self.figures())} of {len(FIGURES)} figures>"
        )

    def _types(self) -> str:
        scaled = dict.fromkeys(f"{one.ab} to {one.acc} with scales" for one in self.arch.scaled)
        plain = (f"{ab} to {acc}" for ab, acc in self.arch.pairs if self.arch.rows)
        return ", ".join([*plain, *scaled])

    def table(self) -> Table:
        """Return the figures as a table, each with its source."""
        facts = {
            "tiles": ", ".join(shape.name for shape in self.shapes),
            "arithmetic": self.arch.title,
            "types": self._types(),
        }
        rows = [(name, text, "", "") for name, text in facts.items() if text]
        rows += [
            (name, f"{one.number} {FIGURES[name].quantity}", one.confidence, one.source)
            for name, one in self.figures().items()
        ]
        unknown = ", ".join(self.unknown())
        return Table(
            ("", "value", "confidence", "source"),
            rows,
            title=f"{self.name}: {self.title}",
            notes=[f"Not known: {unknown}."] if unknown else [],
        )

    def figures(self) -> dict[str, Figure]:
        """Return the figures of the machine that are known, by name; not those of instructions."""
        found = {name: getattr(self, name) for name in FIGURES}
        return {name: figure for name, figure in found.items() if figure is not None}

    def unknown(self) -> tuple[str, ...]:
        """Return the names of the machine's unknown figures."""
        return tuple(name for name in FIGURES if getattr(self, name) is None)

    def tile(self, name: str) -> MmaShape:
        """Return the tile of this name; InputError if the unit has no such tile."""
        for shape in self.shapes:
            if shape.name == name:
                return shape
        tiles = ", ".join(shape.name for shape in self.shapes) or "none"
        help_text = "Add it to the tiles in its file."
        if self.arch.name != self.name:
            help_text = "A unit of your own may have it; to write one: tcusim unit FILE."
        raise InputError(
            f"the unit {self.name} has no tile {name}; its tiles: {tiles}. {help_text}"
        )

    def instruction(self, tile: str, ab: str, acc: str, family: str = "") -> Instruction | None:
        """Return the timing of this instruction; an entry without a family is the fallback."""
        found = {
            one.family: one
            for one in self.instructions
            if (one.tile, one.ab, one.acc) == (tile, ab, acc)
        }
        if family:
            return found.get(family) or found.get("")
        return next(iter(found.values()), None)


# The figures of a machine: the fields of a `Unit` that are figures.
FIGURES: Final[dict[str, Quantity]] = {
    one.name: one.metadata[Quantity] for one in fields(Unit) if Quantity in one.metadata
}

# The sources of the limits of a multiprocessor.
_LIMITS: Final = "[CPG], technical specifications by compute capability"
_RATES: Final = "[CPG], throughput of arithmetic instructions"
_SHUFFLES: Final = "[CPG]: 32 results a cycle and core, for four schedulers"


def limits_of(arch: Arch, name: str) -> dict[str, Figure]:
    """Return the limits and rates of a multiprocessor as figures; none if its GPU is not known.

    name: a GPU of the architecture, ``sm_86`` or the architecture, for the least of its GPUs.
    """
    rows = rows_of(arch.sm)
    if name != arch.name:
        rows = [row for row in rows if name in (f"sm_{row.sm}", *row.names)]
    if not rows:
        return {}
    found = {
        "warps_per_core": min(row.warps for row in rows),
        "blocks_per_core": min(row.blocks for row in rows),
        "threads_per_core": min(row.threads for row in rows),
        "registers_per_core": REGISTERS,
        "shared_bytes_per_core": min(row.shared_bytes for row in rows),
        "shared_bytes_per_block": min(row.block_bytes for row in rows),
    }
    shuffles = LANES * SCHEDULERS / SHUFFLES
    return {
        "fma_per_core": Figure(min(row.fma for row in rows), _RATES, "documented"),
        **{key: Figure(value, _LIMITS, "documented") for key, value in found.items()},
        "shuffle_interval": Figure(shuffles, _SHUFFLES, "derived"),
    }


# Of two figures, the first is never more than the second.
ORDERED: Final = (
    ("shared_bytes_per_block", "shared_bytes_per_core"),
    ("warps_per_core", "threads_per_core"),
    ("blocks_per_core", "warps_per_core"),
    ("shared_latency", "l2_latency"),
    ("l2_latency", "memory_latency"),
    ("memory_latency", "tlb_miss_latency"),
    ("page_bytes", "tlb_bytes"),
    ("l2_bytes", "memory_bytes"),
    ("memory_bandwidth", "l2_bandwidth"),
    ("shuffle_interval", "shuffle_latency"),
)


def _require_figure(what: str, value: object, quantity: Quantity | None = None) -> None:
    """Require a figure or None, with an integer value if needed and plausible limits."""
    if value is None:
        return
    if not isinstance(value, Figure):
        raise InputError(
            f"{what} must be a Figure, or None where it is not known; got {told(value)}"
        )
    if quantity is None:
        return
    if quantity.whole and value.value != int(value.value):
        raise InputError(f"{what} must be a whole number, got {told(value.value)}")
    if not quantity.least <= value.value <= quantity.most:
        raise InputError(
            f"{what} is in {quantity.quantity}, from {quantity.least:g} to {quantity.most:g}; got "
            f"{value.value:g}"
        )
