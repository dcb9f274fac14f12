"""Times of the operators of `tcusim.torch` on a GPU, beside those of torch, plain and compiled.

Times of the GPU are of large tensors, as shares of the speed at which memory is read or copied.
Times of the host are of one call on a short tensor: a program's wait before it goes on.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Final, Protocol

import tcusim
from tcusim.errors import BackendUnavailable
from tcusim_bench.device import Device, read_limits
from tcusim_bench.latency import imported

__all__ = ["COLUMNS", "DTYPES", "OPERATORS", "Operator", "Report", "Row", "Timer", "operators"]

COLUMNS: Final = (1024, 4096, 16384)
DTYPES: Final = ("float16", "bfloat16", "float32")
# Rows of the tensor on which the host's time is taken: the GPU is done before the next call.
_SHORT_ROWS: Final = 16
_CALLS: Final = 100
_BATCHES: Final = 9
_REPEATS: Final = 15

Call = Callable[[Any], object]


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator: tcusim's, torch's counterpart, and the number of its passes over the tensor.

    passes: 1 where rows are read, 2 where as much is written.
    """

    name: str
    ours: Callable[[Any, Any], object]
    theirs: Callable[[Any, Any], object]
    passes: int


OPERATORS: Final = (
    Operator("sum", lambda tct, x: tct.sum(x, 1), lambda torch, x: torch.sum(x, 1), 1),
    Operator("mean", lambda tct, x: tct.mean(x, 1), lambda torch, x: torch.mean(x, 1), 1),
    Operator("cumsum", lambda tct, x: tct.cumsum(x, 1), lambda torch, x: torch.cumsum(x, 1), 2),
    Operator(
        "rms_norm",
        lambda tct, x: tct.rms_norm(x, x.shape[1:]),
        lambda torch, x: torch.nn.functional.rms_norm(x, x.shape[1:]),
        2,
    ),
    Operator("softmax", lambda tct, x: tct.softmax(x, 1), lambda torch, x: torch.softmax(x, 1), 2),
)


class Timer(Protocol):
    """Takes times on a GPU: of the GPU in milliseconds, and of the host in microseconds."""

    def gpu(self, run: Callable[[], object]) -> float:
        """Return milliseconds of the GPU for one run."""

    def host(self, run: Callable[[], object]) -> float:
        """Return microseconds of the host for one run."""


@dataclass(frozen=True, slots=True)
class Row:
    """One operator by one library: of_limit is the share of reading, or copying; us the host's.

    wrong: why there are no times.
    """

    operator: str
    columns: int
    dtype: str
    who: str
    ms: float | None
    of_limit: float | None
    us: float | None
    wrong: str = ""


@dataclass(slots=True)
class Report:
    """The measurements, and the machine. limits: bytes a second of reading and of copying."""

    gpu: str
    versions: dict[str, str]
    elements: int
    limits: dict[str, float]
    rows: list[Row] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {"format": "tcusim operators 1", **asdict(self)}

    def text(self) -> str:
        """Return a table to read."""
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        lines = [
            f"{self.gpu}; {versions}; tensors of {self.elements:,} elements",
            "; ".join(f"{name} {rate / 1e12:.2f} TB/s" for name, rate in self.limits.items()),
            "",
            f"{'operator':<10} {'columns':>7} {'type':<9} {'who':<16} "
            f"{'ms':>8} {'of limit':>8} {'host us':>8}",
        ]
        for row in self.rows:
            cells = f"{row.operator:<10} {row.columns:>7} {row.dtype:<9} {row.who:<16}"
            if row.ms is None or row.of_limit is None or row.us is None:
                lines.append(f"{cells} {row.wrong}")
            else:
                lines.append(f"{cells} {row.ms:>8.3f} {row.of_limit:>8.1%} {row.us:>8.1f}")
        return "\n".join(lines)


def operators(
    log2_length: int = 28,
    columns: Sequence[int] = COLUMNS,
    dtypes: Sequence[str] = DTYPES,
    *,
    seconds: float | None = None,
) -> Report:
    """Time the operators on rows of so many columns, on this machine's GPU.

    seconds: no other operator is begun after so long. Raises BackendUnavailable without a GPU,
    torch or CuPy, which measures the limits.
    """
    torch = imported("torch")
    if torch is None or not torch.cuda.is_available():
        raise BackendUnavailable("the operators are torch's. Install a torch that has CUDA")
    device = Device(2**log2_length, "cuda")
    limits = read_limits(device, _REPEATS)
    versions = {"tcusim": tcusim.__version__, "torch": torch.__version__}
    report = Report(device.info["gpu"], versions, 2**log2_length, limits)
    ours = imported("tcusim.torch")
    libraries: list[tuple[str, Callable[[Operator], Call]]] = [
        ("tcusim.torch", lambda one: partial(one.ours, ours)),
        ("torch", lambda one: partial(one.theirs, torch)),
        ("torch.compile", partial(_compiled, torch)),
    ]

    def tensor(shape: tuple[int, int], dtype: str) -> Any:
        return torch.randn(shape, dtype=getattr(torch, dtype), device="cuda")

    until = None if seconds is None else time.monotonic() + seconds
    shapes = [(2**log2_length // each, each) for each in columns]
    for row in measured(shapes, dtypes, libraries, tensor, _Timer(device, torch), limits):
        report.rows.append(row)
        if until is not None and time.monotonic() > until:
            break
    return report


def measured(
    shapes: Sequence[tuple[int, int]],
    dtypes: Sequence[str],
    libraries: Sequence[tuple[str, Callable[[Operator], Call]]],
    tensor: Callable[[tuple[int, int], str], Any],
    timer: Timer,
    limits: dict[str, float],
) -> Iterator[Row]:
    """Yield the times of each operator by each library, on tensors of these shapes and types."""
    for dtype in dtypes:
        for shape in shapes:
            x, short = tensor(shape, dtype), tensor((_SHORT_ROWS, shape[1]), dtype)
            for one in OPERATORS:
                moved = one.passes * x.numel() * x.element_size()
                limit = limits["read" if one.passes == 1 else "copy"]
                for who, made in libraries:
                    head = one.name, shape[1], dtype, who
                    try:
                        call = made(one)
                        # Compiling is no part of the times.
                        call(x)
                        call(short)
                        ms = timer.gpu(partial(call, x))
                        us = timer.host(partial(call, short))
                    except Exception as error:  # a failure of one library leaves the others
                        told = (str(error).splitlines() or [""])[0]
                        yield Row(*head, None, None, None, f"{type(error).__name__}: {told}")
                    else:
                        yield Row(*head, ms, moved / limit / ms * 1e3, us)
            del x, short


def _compiled(torch: Any, one: Operator) -> Call:
    """Return an operator, compiled by torch for this type and shape only.

    Otherwise it gives up compiling after some operators, and runs the plain ones.
    """
    torch.compiler.reset()
    compiled: Call = torch.compile(partial(one.theirs, torch), dynamic=False)
    return compiled


class _Timer:
    """Times by events on the GPU, and by the clock on the host."""

    def __init__(self, device: Device, torch: Any) -> None:
        self.device, self.torch = device, torch

    def gpu(self, run: Callable[[], object]) -> float:
        return self.device.times(run, _REPEATS).median

    def host(self, run: Callable[[], object]) -> float:
        """Return the median of batches; the GPU is waited for between them, outside the clock."""
        found = []
        for _ in range(_BATCHES):
            self.torch.cuda.synchronize()
            started = time.perf_counter()
            for _ in range(_CALLS):
                run()
            found.append(1e6 * (time.perf_counter() - started) / _CALLS)
        return statistics.median(found)
