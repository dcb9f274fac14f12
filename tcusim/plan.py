"""Choose the launches for a sum or a scan: which algorithm, for which piece, in which order.

The rule: segments of up to `SHORT` rows of a tile go side by side, one to a row (``_kn``); longer
ones take whole tiles (``_tn``). A segment of more than `CHUNK` elements is cut into chunks, so that
many warps share it and no chain of sums is long: its chunks are summed, and their sums combined by
rounded additions (``_plain``), which for a scan become the carries of a third launch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from tcusim.algorithms import algorithm_of, build
from tcusim.errors import Unsupported
from tcusim.ir import Program
from tcusim.numerics import Values
from tcusim.shapes import MmaShape

__all__ = ["CHAIN", "CHUNK", "SHORT", "Job", "scan", "total"]

# Segments of more rows than this are read tile by tile.
SHORT = 4
# Elements that one warp takes of a longer segment.
CHUNK = 2**14
# Products that accumulate before a rounded addition: each truncates, so long chains drift.
CHAIN = 16
# Values that one warp combines by plain additions.
PLAIN = 1024

Launch: TypeAlias = Callable[[Program, Mapping[str, Values]], Values]


@dataclass(frozen=True, slots=True)
class Job:
    """How to compute: the types, the tile, and who runs a program.

    ab, acc: operands and accumulator; source, result: the arrays. literal: as the paper has it,
    with partial sums rounded to `ab` and chains without limit. algorithm: a name, or None for the
    rule above. launch: runs a program on named arrays and returns its output `out`.
    """

    shape: MmaShape
    ab: str
    acc: str
    source: str
    result: str
    literal: bool
    algorithm: str | None
    launch: Launch

    def build(self, name: str, segment_size: int, result: str, **options: Any) -> Program:
        """Build a program for any length with this job's types."""
        return build(
            name,
            shape=self.shape,
            segment_size=segment_size,
            ab=self.ab,
            accumulate=self.acc,
            source=self.source,
            result=result,
            ragged=True,
            combine="mma" if self.literal else "add",
            chain=None if self.literal else CHAIN,
            **options,
        )

    def plain(self, name: str, segment_size: int, result: str, **options: Any) -> Program:
        """Build a program of rounded additions alone, on values of the accumulator's type."""
        return build(
            name,
            shape=self.shape,
            segment_size=segment_size,
            ab=self.ab,
            accumulate=self.acc,
            source=self.acc,
            result=result,
            ragged=True,
            **options,
        )

    @property
    def chunk(self) -> int:
        """Elements of a chunk: whole tiles, whichever operand holds the data."""
        tile = self.shape.k * max(self.shape.m, self.shape.n)
        return tile * max(1, CHUNK // tile)


def total(job: Job, array: Values, segment_size: int) -> Values:
    """Sum each segment of a flat array; the last one may be shorter."""
    name = _name(job, "reduction", segment_size)
    if not _is_cut(job, array, segment_size):
        program = job.build(name, segment_size, job.result)
        return job.launch(program, {"in": array})
    sums = job.launch(job.build(name, job.chunk, job.acc), {"in": array})
    return _plain_total(job, sums, -(-segment_size // job.chunk))


def scan(job: Job, array: Values, segment_size: int) -> Values:
    """Scan each segment of a flat array, inclusive; the last one may be shorter."""
    name = _name(job, "scan", segment_size)
    if not _is_cut(job, array, segment_size):
        program = job.build(name, segment_size, job.result)
        return job.launch(program, {"in": array})
    sums = job.launch(job.build("reduction_tn", job.chunk, job.acc), {"in": array})
    carries = _plain_scan(job, sums, -(-segment_size // job.chunk))
    program = job.build("scan_tn", job.chunk, job.result, carry=True)
    return job.launch(program, {"in": array, "carry": carries})


def _name(job: Job, kind: str, segment_size: int) -> str:
    """Return the algorithm for a segment of this size, or the one that the user named."""
    if job.algorithm is None:
        return f"{kind}_kn" if segment_size <= SHORT * job.shape.k else f"{kind}_tn"
    row = algorithm_of(job.algorithm)
    if row.kind != kind:
        raise Unsupported(f"{job.algorithm!r} is a {row.kind}, and this is a {kind}")
    if row.products is None and job.source != job.acc:
        raise Unsupported(
            f"{job.algorithm!r} adds values of the accumulator's type, {job.acc}; it combines the "
            f"partial sums of other algorithms, and does not take {job.source} arrays"
        )
    return job.algorithm


def _is_cut(job: Job, array: Values, segment_size: int) -> bool:
    """Return whether segments are cut into chunks: whole ones, save in the array's last."""
    if job.algorithm is not None or segment_size <= job.chunk:
        return False
    return segment_size % job.chunk == 0 or segment_size >= array.size


def _plain_total(job: Job, values: Values, count: int) -> Values:
    """Add up every `count` values of the accumulator's type, in a tree of fixed shape."""
    size = min(count, _group(values, count))
    if size == count:
        return job.launch(job.plain("reduction_plain", count, job.result), {"in": values})
    sums = job.launch(job.plain("reduction_plain", size, job.acc), {"in": values})
    return _plain_total(job, sums, -(-count // size))


def _plain_scan(job: Job, values: Values, count: int) -> Values:
    """Scan every `count` values of the accumulator's type, exclusive."""
    size = min(count, _group(values, count))
    if size == count:
        program = job.plain("scan_plain", count, job.acc, exclusive=True)
        return job.launch(program, {"in": values})
    sums = job.launch(job.plain("reduction_plain", size, job.acc), {"in": values})
    carries = _plain_scan(job, sums, -(-count // size))
    program = job.plain("scan_plain", size, job.acc, exclusive=True, carry=True)
    return job.launch(program, {"in": values, "carry": carries})


def _group(values: Values, count: int) -> int:
    """Return how many values one warp combines: groups must not reach across segments."""
    if count <= PLAIN:
        return count
    if count >= values.size:
        return PLAIN
    size = next(size for size in range(PLAIN, 0, -1) if count % size == 0)
    # A count with no good divisor is combined by one warp.
    return size if size > 1 else count
