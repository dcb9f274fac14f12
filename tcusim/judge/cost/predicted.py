"""`tcusim.cost`: the time of a program or a plan on a unit, and its bottleneck."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

from tcusim.arrays.plan_functions import Plan, ProductPlan
from tcusim.errors import InputError, Unsupported, require_flags, require_int, told
from tcusim.judge.cost.accesses import SECTOR
from tcusim.judge.cost.fitted import FITTED, Fitted
from tcusim.judge.cost.model import CACHED_PART, RESOURCES, LaunchCost, launch_cost, longest
from tcusim.machine import Unit, unit_of
from tcusim.machine.rules import Arch
from tcusim.program.grammar import Program
from tcusim.program.launches import LaunchPlan
from tcusim.program.resources import SharedMemory
from tcusim.table import Table, Tabular

# What can be asked the time of.
Target: TypeAlias = Program | Plan | ProductPlan | LaunchPlan


@dataclass(frozen=True, slots=True)
class Cost(Tabular):
    """The predicted time of a program or a plan on a unit; `print` it, or show it in a notebook.

    Attributes
    ----------
    title : str
        Of what.
    unit : str
        On which unit.
    launches : tuple of LaunchCost
        Each launch by itself.
    seconds : float or None
        Of all launches; None if a figure is unknown.
    unknown : tuple of str
        The figures that are, by their names in a unit's file.
    parts : dict of str to float or None
        Seconds that each resource would take alone, over all launches.
    bound : str
        The resource that takes longest, of those that are known.
    bytes : int
        Of the plan's arrays, inputs read once and outputs written once.
    energy : float or None
        Joules that the launches' bytes and multiply-adds take, by the unit's figures, without what
        leaks; None if a figure of energy is unknown.

    Examples
    --------
    >>> import tcusim
    >>> found = tcusim.cost(tcusim.plan("sum", length=2**30), unit="h200")
    >>> found.bound
    'memory'
    """

    title: str
    unit: str
    launches: tuple[LaunchCost, ...]
    unknown: tuple[str, ...]
    bytes: int
    energy: float | None = None

    @property
    def seconds(self) -> float | None:
        """Seconds of all launches; None if a figure is unknown."""
        return _sum(launch.seconds for launch in self.launches)

    @property
    def parts(self) -> dict[str, float | None]:
        """Seconds by resource, over all launches."""
        return {name: _sum(launch.parts[name] for launch in self.launches) for name in RESOURCES}

    @property
    def bound(self) -> str:
        """The resource that takes longest."""
        return longest(self.parts)

    @property
    def bandwidth(self) -> float | None:
        """Bytes a second of the arrays: what a user sees of the memory's speed."""
        return self.bytes / self.seconds if self.seconds else None

    def tables(self) -> tuple[Table, ...]:
        """Return a table of the resources, then the work of each launch."""
        texts = [f"{self.title} on {self.unit}: the time is unknown"]
        if self.seconds is None:
            texts.append(f"the unit does not say: {', '.join(self.unknown)}")
        else:
            rate = f"{self.bytes / self.seconds / 1e9:,.0f} GB/s of its arrays"
            texts = [f"{self.title} on {self.unit}: {time_text(self.seconds)}, {rate}"]
        texts += [f"bound by {self.bound}"] if self.bound else []
        if self.energy is not None:
            each = self.energy / self.bytes * 1e12 if self.bytes else 0.0
            texts.append(f"{self.energy:.3g} joules, {each:.3g} picojoules a byte of its arrays")
        rows = [(name, time_text(self.parts[name]), text) for name, text in RESOURCES.items()]
        return (
            Table(("resource", "alone", "what it is"), rows, texts=texts, align="lr"),
            *(Table(texts=launch.lines()) for launch in self.launches),
        )

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain values."""
        found = asdict(self)
        for plain, launch in zip(found["launches"], self.launches, strict=True):
            plain["bound"] = launch.bound
        return found | {name: getattr(self, name) for name in ("seconds", "bound", "parts")}


def cost(
    target: Target,
    unit: str | Path | Unit | Arch = "h200",
    length: int | None = None,
    *,
    sizes: Mapping[str, int] | None = None,
    cached: bool | None = None,
    fitted: Fitted = FITTED,
) -> Cost:
    """Predict how long a program or a plan takes on a unit, and what bounds it.

    Each launch is followed through one of its blocks: the sectors, lines and banks that its
    accesses touch, its instructions, products and barriers, and what a block waits for. From these
    and the unit's figures follows what each resource would take alone; the time is their norm, of
    which the longest dominates. The page "What it costs" has the formulas, and how well they do.

    Parameters
    ----------
    target : Program, Plan, ProductPlan or LaunchPlan
        What to launch, as it is: `tcusim.build` makes programs, `tcusim.plan` plans. A plan has the
        launches for the architecture that it was made for, hopper by default. Those of the unit,
        as `tcusim cost` plans them, are of ``tcusim.plan(..., options={"arch": "v100"})``.
    unit : str, Path, Unit or Arch
        On what: anything that `tcusim.unit_of` takes.
    length : int, optional
        Elements of a program's input, if it has one; a plan knows its own.
    sizes : mapping of str to int, optional
        Elements of each input of a program that has several.
    cached : bool, optional
        Whether the arrays lie in the second-level cache already, as of launches that follow each
        other. By default they do if they fill no more than 70 % of it.
    fitted : Fitted, optional
        The constants of the model.

    Returns
    -------
    Cost
        `seconds` is None where the unit lacks a figure, and `unknown` names it.

    Raises
    ------
    InputError
        If a program is given without the sizes of its inputs, or a plan with some.
    Unsupported
        For segments of unequal length: their time depends on data. For a plan with a block that
        needs more shared memory than the unit has.
    """
    if cached is not None:
        require_flags(cached=cached)
    plan = _launches(target, length, sizes)
    where = unit_of(unit)
    if isinstance(target, Plan | ProductPlan):
        for launch in plan.launches:
            _require_space(launch.program, where)
    given = [plan.memory[name].nbytes for name in (*plan.inputs, *plan.outputs)]
    if cached is None:
        room = where.l2_bytes.value if where.l2_bytes else 0.0
        cached = sum(array.nbytes for array in plan.arrays) <= CACHED_PART * room
    unknown: list[str] = []
    costs = tuple(
        launch_cost(
            launch.program,
            plan.scalars(launch),
            where,
            cached=cached,
            unknown=unknown,
            fitted=fitted,
        )
        for launch in plan.launches
    )
    joules = [_energy(launch, where) for launch in costs]
    return Cost(plan.title, where.name, costs, tuple(unknown), sum(given), _sum(joules))


def _require_space(program: Program, unit: Unit) -> None:
    """Raise an error if a block of a program needs more shared memory than a unit has."""
    most, needed = unit.shared_bytes_per_block, SharedMemory(program).needed
    if most is not None and needed > most.value:
        raise Unsupported(
            f"{program.name} needs {needed:,} bytes of shared memory for a block, and {unit.name} "
            f"has {most.value:,.0f}. Plan for it, with options={{'arch': {unit.name!r}}}"
        )


def _energy(launch: LaunchCost, unit: Unit) -> float | None:
    """Return the joules of a launch; None if a figure that it needs is unknown."""
    work = launch.work
    moved = 0 if launch.cached else launch.read_bytes + launch.written_bytes
    parts = (
        (moved, unit.memory_energy),
        (SECTOR * (work.sectors_read + work.sectors_written), unit.l2_energy),
        (work.shared_bytes, unit.shared_energy),
        (launch.multiply_adds, unit.multiply_add_energy),
    )
    return _sum(
        0.0 if not count else None if figure is None else count * figure.value
        for count, figure in parts
    )


def time_text(seconds: float | None) -> str:
    """Return a time in the largest unit of which it is at least one, such as "12.5 us"."""
    if seconds is None:
        return "not known"
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.4g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def _launches(target: Target, length: int | None, sizes: Mapping[str, int] | None) -> LaunchPlan:
    """Return the launches of a target; a program needs the sizes of its inputs."""
    if not isinstance(target, Program | Plan | ProductPlan | LaunchPlan):
        raise InputError(f"target must be a plan or a program, got {told(target)}")
    if not isinstance(target, Program):
        if length is not None or sizes is not None:
            raise InputError(
                f"{target!r} is a plan, which knows its sizes: leave out length and sizes"
            )
        return target if isinstance(target, LaunchPlan) else target.launch_plan
    names = [buffer.name for buffer in target.inputs]
    if sizes is not None and not isinstance(sizes, Mapping):
        raise InputError(f"sizes must be a mapping of inputs to elements, got {told(sizes)}")
    given = {} if length is None else {"length": length}
    for name, size in {**given, **(sizes or {})}.items():
        require_int(f"the size of {name!r}", size, 0)
    if sizes is None:
        if length is None or len(names) != 1:
            how = "length=" if len(names) == 1 else "sizes={" + ", ".join(names) + "}"
            raise InputError(
                f"{target.name} takes {', '.join(names)}: say how many elements, by {how}"
            )
        sizes = {names[0]: length}
    return LaunchPlan.of_program(target, sizes)


def _sum(values: Any) -> float | None:
    """Return a sum, None if a part of it is unknown."""
    several = tuple(values)
    return None if any(value is None for value in several) else float(sum(several))
