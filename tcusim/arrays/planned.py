"""What plans of sums, scans and products have in common: launches that are kept, and run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tcusim.arrays.problem import AnyProblem
from tcusim.backends import DeviceBackend, Edge
from tcusim.program.grammar import Program
from tcusim.program.launches import Launch, LaunchPlan, Memory
from tcusim.simulate.counts import Counts, counts_of_text

__all__ = ["Planned"]


@dataclass(frozen=True, eq=False, repr=False)
class Planned:
    """Launches of step programs, ready to be run where arrays are.

    Attributes
    ----------
    operation : str
        What the launches compute.
    problem : AnyProblem
        What is computed: sizes, element types and tile.
    arch, backend : str or None
        As the user gave them; None is settled by the first call.
    launch_plan : LaunchPlan
        What backends run: from "in" and other arguments to "out".
    strategy : str
        The name of the strategy that chose the launches.
    rationale : tuple of str
        For each choice a line.
    """

    operation: str
    problem: AnyProblem
    arch: str | None
    backend: str | None
    launch_plan: LaunchPlan
    strategy: str
    rationale: tuple[str, ...]
    # What backends made ready, by the backend's name.
    _sessions: dict[str, Any] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        """Let messages call the launches by this plan's name."""
        object.__setattr__(self, "launch_plan", replace(self.launch_plan, title=repr(self)))

    @property
    def arrays(self) -> tuple[Memory, ...]:
        """The plan's arrays: "in" and other arguments, then what lies between, then "out"."""
        return self.launch_plan.arrays

    @property
    def launches(self) -> tuple[Launch, ...]:
        """The launches in order; the last one writes "out"."""
        return self.launch_plan.launches

    @property
    def why_not_in_place(self) -> str | None:
        """Why "out" may not be the very array "in"; None if it may be."""
        return self.launch_plan.why_not_in_place

    def run(
        self,
        inputs: Mapping[str, Any],
        launch: Callable[[Program, Mapping[str, Any]], Mapping[str, Any]],
    ) -> Any:
        """Run the launches in order, each by `launch`, and return the flat array "out".

        inputs: flat arrays by name. launch: runs a program on arrays by the names of its inputs,
        and returns its outputs by name.
        """
        arrays = dict(inputs)
        for one in self.launches:
            given = {buffer: arrays[name] for buffer, name in one.inputs.items()}
            made = launch(one.program, given)
            arrays.update((name, made[buffer]) for buffer, name in one.outputs.items())
        return arrays["out"]

    def launched(
        self,
        backend: DeviceBackend,
        inputs: Mapping[str, Any],
        out: Any,
        shape: tuple[int, ...],
        stream: Any,
        initial: Edge | None = None,
        starts: Sequence[Mapping[str, int]] | None = None,
    ) -> Any:
        """Launch on arrays in GPU memory; return an array of this shape, or `out`.

        initial: where rows of the result are longer by a zero. starts: where the parts of arrays
        begin that are computed one by one. See `tcusim.backends.Session.run`.
        """
        session = self._sessions.get(backend.name)
        if session is None:
            session = self._sessions.setdefault(
                backend.name, backend.prepare(self.launch_plan, self.arch)
            )
        return session.run(
            inputs, out=out, shape=shape, stream=stream, initial=initial, starts=starts
        )

    # --- What it is --------------------------------------------------------------------------

    @property
    def dtype(self) -> str:
        """NumPy's name of the type of "in"."""
        return self.problem.types.dtype

    @property
    def result(self) -> str:
        """NumPy's name of the type of "out"."""
        return self.problem.types.result_dtype

    @property
    def temporaries(self) -> tuple[Memory, ...]:
        """The arrays between "in" and "out", which the plan keeps."""
        return self.launch_plan.temporaries

    @property
    def in_place(self) -> bool:
        """Whether "out" may be the very array "in"."""
        return self.why_not_in_place is None

    def scalars(self, launch: Launch) -> dict[str, int]:
        """Return the scalars of a launch."""
        return self.launch_plan.scalars(launch)

    @property
    def counts(self) -> Counts:
        """Mma steps, additions and bytes of one call, as the programs' text has them."""
        total = Counts()
        for launch in self.launches:
            total.add(counts_of_text(launch.program, self.scalars(launch)))
        return total

    def __repr__(self) -> str:
        """Name the operation and the launches."""
        names = ", ".join(launch.program.name for launch in self.launches)
        return f"Plan({self.operation!r}, {self.problem}: {names})"

    def __str__(self) -> str:
        """Show everything: sizes, arrays, launches with their counts, and why."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        p = self.problem
        yield f"plan {self.operation}"
        yield f"  problem   {self.problem}"
        t = p.types
        parts = f"{t.source} as {t.ab}" if t.source != t.ab else t.ab
        yield f"  tile      {p.tile.name}, {parts} to {t.acc}"
        yield f"  arch      {self.arch or 'that of the GPU; hopper on the simulator'}"
        for number, array in enumerate(self.arrays):
            head = "arrays" if number == 0 else ""
            yield f"  {head:<8}  {array.name:<9} {array.dtype} x {array.size}, {array.nbytes} bytes"
        for number, launch in enumerate(self.launches, start=1):
            yield f"  {f'launch {number}':<8}  {self._line_of(launch)}"
        yield f"  strategy  {self.strategy}"
        for number, reason in enumerate(self.rationale):
            yield f"  {'why' if number == 0 else '':<8}  {reason}"

    def _line_of(self, launch: Launch) -> str:
        program, scalars = launch.program, self.scalars(launch)
        counts = counts_of_text(program, scalars)
        given = ", ".join(launch.inputs.values())
        return (
            f"{program.name}: {given} -> {', '.join(launch.outputs.values())}; "
            f"{program.grid(scalars)} x {program.warps} warps, {counts.mma} mma, "
            f"{counts.bytes_read} bytes read, {counts.bytes_written} written"
        )
