"""The instructions of kernels by kind, counted by Nsight Compute: `tcusim bench profile`.

The paper explains its speed by three counts of NVProf (section 6.3): half-precision instructions,
instructions between threads (shuffles and votes), and integer instructions. Nsight Compute has the
same ones under other names. It profiles a process that launches each contender once, between two
launches of a kernel with a name of its own.
"""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

from tcusim.errors import BackendUnavailable
from tcusim.table import Table
from tcusim_bench.contenders import Contenders
from tcusim_bench.device import Device
from tcusim_bench.parts import PARTS, cases
from tcusim_bench.problems import Contender, Problem
from tcusim_bench.programs import plans
from tcusim_bench.record import OURS, now
from tcusim_cuda.driver import arch_name

# By kind: the metric of Nsight Compute, which counts threads. The first three are the paper's
# inst_fp_16, inst_inter_thread_communication and inst_integer.
KINDS: Final = {
    "half": "smsp__sass_thread_inst_executed_op_fp16_pred_on.sum",
    "between threads": "smsp__sass_thread_inst_executed_op_inter_thread_communication_pred_on.sum",
    "integer": "smsp__sass_thread_inst_executed_op_integer_pred_on.sum",
    "single": "smsp__sass_thread_inst_executed_op_fp32_pred_on.sum",
    "conversion": "smsp__sass_thread_inst_executed_op_conversion_pred_on.sum",
    "memory": "smsp__sass_thread_inst_executed_op_memory_pred_on.sum",
    "warps, all": "smsp__inst_executed.sum",
}
_SIZES: Final = (16, 256, 4096)
_PEERS: Final = {"sum": ("cub", "cub.offsets"), "scan": ("cub", "thrust")}
_PARTS: Final = {"sum": "figure-10", "scan": "figure-12"}
_MARKER: Final = "tcusim_marker"
# The beginning of the lines by which the child process tells the contenders.
_TOLD: Final = "tcusim-profile "
_SECONDS: Final = 500


@dataclass(frozen=True, slots=True)
class Counted:
    """Instructions of a contender, by kind; all but "warps, all" count those of each thread."""

    kind: str
    segment_size: int
    length: int
    who: str
    label: str
    kernels: tuple[str, ...]
    counts: dict[str, float]


@dataclass(frozen=True, slots=True)
class Profile:
    """Counts of contenders, with the GPU, the date and the source."""

    device: dict[str, Any]
    date: str
    commit: str
    rows: tuple[Counted, ...]

    def written(self) -> str:
        """Return the record as JSON."""
        return json.dumps(asdict(self), indent=1) + "\n"

    def text(self) -> str:
        """Return the counts, in instructions an element, as a table."""
        return str(self.table())

    def table(self) -> Table:
        """Return the counts, in instructions an element."""
        rows = [
            (
                row.kind,
                f"{row.segment_size:,}",
                row.who,
                *(f"{row.counts[name] / row.length:.3f}" for name in KINDS),
            )
            for row in self.rows
        ]
        return Table(("kind", "segment", "contender", *KINDS), tuple(rows))


def profile(log2_length: int, commit: str, say: Callable[[str], None]) -> Profile:
    """Count the instructions of the paper's programs, of plans and of CUB.

    Raises BackendUnavailable if Nsight Compute is missing or may not read the counters.
    """
    ncu = shutil.which("ncu")
    if ncu is None:
        raise BackendUnavailable("ncu, of Nsight Compute, is not on the PATH")
    child = [sys.executable, "-m", __name__, str(log2_length)]
    metrics = ",".join(KINDS.values())
    command = [ncu, "--csv", "--metrics", metrics, "--target-processes", "all", *child]
    say(f"{ncu} profiles each kernel")
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    told = [json.loads(line.removeprefix(_TOLD)) for line in _told(done.stdout)]
    if done.returncode or not told:
        last = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()][-3:]
        raise BackendUnavailable(f"Nsight Compute counted nothing: {' / '.join(last)}")
    device, *contenders = told
    kernels = between_markers(done.stdout.splitlines())
    if len(kernels) != len(contenders):
        raise BackendUnavailable(
            f"Nsight Compute counted {len(kernels)} contenders of {len(contenders)}"
        )
    rows = tuple(
        Counted(**one, kernels=names, counts=counts)
        for one, (names, counts) in zip(contenders, kernels, strict=True)
    )
    return Profile(device, now(), commit, rows)


def _told(text: str) -> Iterator[str]:
    return (line for line in text.splitlines() if line.startswith(_TOLD))


def between_markers(lines: Iterable[str]) -> list[tuple[tuple[str, ...], dict[str, float]]]:
    """Return the kernels between each pair of markers, and the sums of their counts by kind.

    lines: of Nsight Compute's CSV output, with a row for each metric of each launch. Other lines
    are those of the process.
    """
    rows = list(lines)
    start = next((at for at, line in enumerate(rows) if line.startswith('"ID"')), len(rows))
    names = {metric: kind for kind, metric in KINDS.items()}
    found: list[tuple[tuple[str, ...], dict[str, float]]] = []
    launches: dict[str, tuple[str, dict[str, float]]] = {}
    table = (line for line in rows[start:] if line.startswith('"'))
    for row in csv.DictReader(table):
        _, counts = launches.setdefault(row["ID"], (row["Kernel Name"], {}))
        counts[names[row["Metric Name"]]] = float(row["Metric Value"].replace(",", ""))
    inside = False
    for name, counts in launches.values():
        if _MARKER in name:
            inside = not inside
            if inside:
                found.append(((), dict.fromkeys(KINDS, 0.0)))
        elif inside:
            kernels, totals = found[-1]
            for kind, count in counts.items():
                totals[kind] += count
            found[-1] = (*kernels, name.split("(")[0]), totals
    return found


# --- The process that is profiled -----------------------------------------------------------------


def _launch(log2_length: int) -> None:
    """Launch each contender between two markers, and print its name."""
    device = Device(1 << log2_length, "cupy")
    text = f'extern "C" __global__ void {_MARKER}() {{}}'
    marker = device.cp.RawKernel(text, _MARKER)
    peers = tuple(dict.fromkeys(name for names in _PEERS.values() for name in names))
    libraries = Contenders(device, peers)
    print(_TOLD + json.dumps(device.info))
    try:
        for kind, part in _PARTS.items():
            for case in cases(part, 1 << log2_length, _SIZES):
                problem = Problem(case, device)
                ways = [*_programs(problem, part), *libraries.ways(problem, _PEERS[kind])]
                for way in ways:
                    run = way.prepare(device.output(way.result, problem.size))
                    # The first run compiles, and allocates memory.
                    device.once(run)
                    marker((1,), (1,), ())
                    device.once(run)
                    marker((1,), (1,), ())
                    one = {
                        "kind": kind,
                        "segment_size": case.segment_size,
                        "length": case.length,
                        "who": way.who,
                        "label": way.label,
                    }
                    print(_TOLD + json.dumps(one))
    finally:
        libraries.close()


def _programs(problem: Problem, part: str) -> Iterator[Contender]:
    """Yield the plan, and the paper's programs of its own tile with float32 sums."""
    from tcusim_bench.run import contender

    case = problem.case
    yield contender(problem, OURS, next(plans(case, arch_name(problem.device.sm))))
    made = PARTS[part].programs
    for who, recipe in made(case) if made else ():
        if recipe.shape == "16x16x16" and recipe.acc == "f32":
            yield contender(problem, who, recipe)


if __name__ == "__main__":
    _launch(int(sys.argv[1]))
