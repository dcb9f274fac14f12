"""Charts of the page Precision: how the error of a sum grows with its length, on each GPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

import tcusim
from tcusim.line_charts import Line, Plot, charts, draw
from tcusim.machine import arch_of

_ARCHES: Final = ("volta", "ampere", "hopper")
_LENGTHS: Final = tuple(2**power for power in range(4, 14))
_SEGMENTS: Final = 4


def error_by_length() -> str:
    """Return charts of sums along one chain of mma, by accumulator, beside NumPy's additions."""
    values = np.random.default_rng(0).random((_LENGTHS[-1], _SEGMENTS)).astype(np.float16)
    return charts(
        draw(
            Plot(
                f"Sums with {acc} accumulators",
                tuple(_lines(values, acc)),
                "numbers between 0 and 1",
                "mean relative error",
                log=True,
            )
        )
        for acc in ("f32", "f16")
    )


def _lines(values: Any, acc: str) -> Iterator[Line]:
    exact = np.cumsum(values, axis=0, dtype=np.float64)
    for arch in _ARCHES:
        points, total, start = [], None, 0
        for length in _LENGTHS:
            # A chain goes on from its last sum.
            ones = np.ones((1, length - start), np.float16)
            total = tcusim.mma(ones, values[start:length], total, arch=arch, acc=acc)
            points.append((length, _error(total[0], exact[length - 1])))
            start = length
        yield Line(arch_of(arch).title.removeprefix("NVIDIA "), _positive(points))
    one_by_one = np.cumsum(values, axis=0, dtype={"f32": np.float32, "f16": np.float16}[acc])
    yield Line(
        "NumPy, one addition after another",
        _positive(
            (length, _error(one_by_one[length - 1], exact[length - 1])) for length in _LENGTHS
        ),
    )
    if acc == "f32":
        sums = [
            (
                length,
                _error(tcusim.sum(values[:length], axis=0, dtype=np.float32), exact[length - 1]),
            )
            for length in _LENGTHS
        ]
        yield Line("tcusim.sum, in blocks", _positive(sums))


def _error(found: Any, exact: Any) -> float:
    return float(np.abs(found.astype(np.float64) / exact - 1).mean())


def _positive(points: Any) -> tuple[tuple[float, float], ...]:
    """Return the points that a logarithmic axis has: an error of zero has no place there."""
    return tuple((float(x), y) for x, y in points if y > 0)
