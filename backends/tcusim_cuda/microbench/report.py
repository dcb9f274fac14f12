"""Measure the figures of a unit on this machine's GPU, and report them.

Each probe is guarded: one that fails, or for which no time is left, is named, and the others stay.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, TypeAlias

import tcusim
from tcusim.errors import InputError, TcusimError, UnknownName
from tcusim.machine import FIGURES, Figure, Instruction, Unit, unit_of
from tcusim.table import aligned
from tcusim_cuda.microbench.gpu import Gpu
from tcusim_cuda.microbench.probes import Found, Lab, Probe, probes

FORMAT: Final = "tcusim microbench 1"
# Bytes of memory that probes read, and that they write: far more than any cache.
NBYTES: Final = 2**29
_CONFIDENCE: Final = "measured"

Say: TypeAlias = Callable[[str], None]
Keep: TypeAlias = Callable[["Report"], None]


@dataclass(slots=True)
class Report:
    """The measurements.

    device: the GPU, driver and CUDA. unit: the name of the unit that was begun from. found: by
    probe. failed: probes that failed, each with the reason; left: those for which no time was left.
    """

    device: dict[str, Any]
    unit: str
    date: str
    version: str
    found: dict[str, list[Found]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def source(self) -> str:
        """The source of a measured figure."""
        gpu, driver = self.device.get("gpu"), self.device.get("driver")
        return f"tcusim microbench on {gpu}, driver {driver}, {self.date}"

    def as_json(self) -> dict[str, Any]:
        """Return everything as a dict for `json.dump`."""
        return {"format": FORMAT, **asdict(self)}

    def text(self) -> str:
        """Return a table to read, and the failures."""
        rows = [
            (_what(one), f"{one.value:.6g}", one.quantity)
            for several in self.found.values()
            for one in several
        ]
        lines = [f"{self.source}; {self.seconds:.1f} s", "", *aligned(rows, "lr")]
        lines += [f"failed: {name}: {why}" for name, why in self.failed.items()]
        lines += [f"no time was left: {', '.join(self.left)}"] if self.left else []
        return "\n".join([*lines, *(f"note: {one}" for one in self.notes)])

    def measured_unit(self, unit: Unit) -> tuple[Unit, list[str]]:
        """Return a unit with the measured figures in place of its own, and those that do not fit.

        A number that contradicts another one of the unit is left out, with the reason.
        """
        notes: list[str] = []
        found = [one for several in self.found.values() for one in several]
        # Of two that bound each other, both may be new.
        pending, before = found, -1
        while pending and len(pending) != before:
            before, notes = len(pending), []
            refused: list[Found] = []
            for one in pending:
                try:
                    unit = _with(unit, one, self.source)
                except InputError as error:
                    refused.append(one)
                    notes.append(f"{_what(one)}, {one.value:.6g}, was left out: {error}")
            pending = refused
        return unit, notes


def microbench(
    seconds: float = 40.0, *, say: Say | None = None, keep: Keep | None = None
) -> tuple[Report, Unit]:
    """Measure this machine's GPU; return the report, and a unit with its figures.

    Parameters
    ----------
    seconds : float
        After which no further probe begins.
    say : callable, optional
        Told of each probe before it begins.
    keep : callable, optional
        Given the report after each probe, for whoever wants it even if the next one never ends.

    Raises
    ------
    BackendUnavailable
        If NVRTC, a GPU or its driver is missing.
    """
    ends = time.monotonic() + seconds
    gpu = Gpu(NBYTES)
    return measured(Lab(gpu, known_unit(gpu.info)), ends, say, keep)


def known_unit(info: dict[str, Any]) -> Unit:
    """Return the unit of a GPU by its name, else that of its compute capability, less figures."""
    try:
        return unit_of(info["gpu"])
    except UnknownName:
        return unit_of(f"sm_{info['sm']}")


def measured(
    lab: Lab, ends: float, say: Say | None = None, keep: Keep | None = None
) -> tuple[Report, Unit]:
    """Run `microbench` in a laboratory, and close it.

    ends: by `time.monotonic`, after which no further probe begins.
    """
    begun = time.monotonic()
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    report = Report(dict(lab.gpu.info), lab.unit.name, today, tcusim.__version__)
    todo = tuple(probes(lab.unit, lab.gpu.sm))
    try:
        lab.compile_ahead(todo)
        for probe in todo:
            if time.monotonic() >= ends:
                report.left.append(probe.name)
                continue
            if say is not None:
                say(probe.name)
            _try(probe, lab, report)
            report.seconds = time.monotonic() - begun
            if keep is not None:
                keep(report)
    finally:
        lab.close()
    unit, notes = report.measured_unit(lab.unit)
    report.notes += notes
    return report, replace(unit, name=f"{lab.unit.name}-measured")


def _try(probe: Probe, lab: Lab, report: Report) -> None:
    """Take the figures of a probe; those found before a failure are kept."""
    several = report.found.setdefault(probe.name, [])
    try:
        several.extend(probe.measure(lab))
    except Exception as error:
        # A probe may fail in any way, and the others are still to be run.
        said = str(error).strip().partition("\n")[0]
        report.failed[probe.name] = (
            said if isinstance(error, TcusimError) else (f"{type(error).__name__}: {said}")
        )


def _with(unit: Unit, found: Found, source: str) -> Unit:
    """Return a unit with a measured figure; unchanged, if it is no figure of a unit."""
    measured_figure: dict[str, Any] = {found.name: _figure(found, source)}
    if found.name in FIGURES:
        return replace(unit, **measured_figure)
    if found.name not in ("latency", "interval"):
        return unit
    tile, ab, acc, family = (str(found.about[name]) for name in ("tile", "ab", "acc", "family"))
    several = {one.key: one for one in unit.instructions}
    known = several.get((tile, ab, acc, family), Instruction(tile, ab, acc, family))
    several[tile, ab, acc, family] = replace(known, **measured_figure)
    return replace(unit, instructions=tuple(several.values()))


def _figure(found: Found, source: str) -> Figure:
    # More digits than a repeated measurement agrees in say nothing.
    return Figure(float(f"{found.value:.4g}"), source, _CONFIDENCE)


def _what(found: Found) -> str:
    about = ", ".join(
        str(value) if isinstance(value, str) else f"{name} {value}"
        for name, value in found.about.items()
    )
    return f"{found.name} ({about})" if about else found.name
