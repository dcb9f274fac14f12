"""Constants of the cost model that are fitted to programs, and are no figures of a unit.

Seven numbers are fitted: on every second size of the recorded sums and scans of 2**30 float16
numbers on an NVIDIA H200, on a scan of float64, and on two short ones in a CUDA graph.
docs/data/h200/cost.json has what was measured and says which; `docs/tools/fit_cost.py` fits them
anew. An eighth follows from two limits of the GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Fitted:
    """The numbers of the model that no figure of a unit tells; `MEANINGS` says what each is."""

    sharpness: float
    overhead: float
    unhidden: float
    pace: float
    queueing: float
    waiting: float
    start: float
    write_cost: float


# By the name in `Fitted`: what it is, and how it was found.
MEANINGS: Final = {
    "sharpness": "exponent of the norm that joins the resources: 1 adds their times, and with a "
    "large one the longest alone counts",
    "overhead": "instructions for each access of a warp besides the access: addresses, bounds, "
    "conversions",
    "unhidden": "part of the turns of a core's load-store path that its other instructions do not "
    "hide",
    "pace": "cycles from one instruction of a warp to its next, as they wait for each other",
    "queueing": "latency of a load while memory is busy all the time, in latencies of one on an "
    "idle machine; in between, it grows with the part of the time that memory is busy",
    "waiting": "part of the memory's time that a block holds its core and does nothing, where each "
    "block waits for words of those before it",
    "start": "seconds of a launch besides those between launches that do nothing: its code is in "
    "no cache yet, and its last block must end before the next launch begins",
    "write_cost": "time to write a byte of memory, in times to read one: from the speeds of a copy "
    "and of reading alone, in the same run",
}

FITTED: Final = Fitted(
    sharpness=4.58,
    overhead=0.606,
    unhidden=0.774,
    pace=4.02,
    queueing=2.68,
    waiting=0.587,
    start=1.95e-6,
    write_cost=1.155,
)
