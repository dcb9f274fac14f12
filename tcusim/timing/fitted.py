"""What the cost model takes from measurements of programs, and not from a unit's figures.

There are six numbers. They were fitted on every second size of the recorded sums and scans of 2**30
float16 numbers on an NVIDIA H200; docs/data/h200/cost.json has the measurements and says which.
`docs/tools/fit_cost.py` fits them anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["FITTED", "MEANINGS", "Fitted"]


@dataclass(frozen=True, slots=True)
class Fitted:
    """The numbers of the model that no figure of a unit tells; `MEANINGS` says what each is."""

    sharpness: float
    overhead: float
    unhidden: float
    pace: float
    queueing: float
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
    "queueing": "latency of a load while memory is busy, in latencies of one on an idle machine",
    "write_cost": "time to write a byte of memory, in times to read one: from the speeds of a copy "
    "and of reading alone, in the same run",
}

FITTED: Final = Fitted(
    sharpness=3.54, overhead=0.429, unhidden=0.68, pace=5.97, queueing=3.89, write_cost=1.155
)
