"""A problem of the benchmark on a GPU, and the check of a contender's results.

A sample of each result is compared with float64, and the first results of tcusim's own programs
with the bits of the simulator.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tcusim.errors import InputError, TcusimError
from tcusim.machine.formats import Values, to_memory
from tcusim.program.launches import LaunchPlan
from tcusim_bench.device import CHUNK, Array, Device
from tcusim_bench.parts import offsets_of
from tcusim_bench.programs import Recipe
from tcusim_bench.record import Case
from tcusim_cuda.microbench.stopwatch import Run

# Elements that are compared with float64, and that the simulator runs.
_SAMPLE: Final = 2**20
_PREFIX: Final = 2**15
_LONGEST_PREFIX: Final = 2**22
# Elements of the pieces in which an array that is one segment is summed by float64.
_PIECE: Final = 2**14
# Ragged segments that are compared, the longest besides, and rows of a product of matrices.
_RAGGED_SAMPLE: Final = 256
_PRODUCT_ROWS: Final = 16
# Rows of such a product that are simulated, and the most products of numbers in them.
_SIMULATED_ROWS: Final = 32
_MOST_SIMULATED: Final = 2**26


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to solve a problem: `prepare` does all untimed work, and returns the timed call.

    It is given the memory for the result. who, label, acc, result: as in a row of the record.
    """

    who: str
    label: str
    acc: str
    result: str
    prepare: Callable[[Array], Run]


class Sample(NamedTuple):
    """Some of the expected results: their indices and values.

    norms: the Euclidean norms of the summed elements, of a shape that broadcasts to the others'.
    """

    places: NDArray[np.int64]
    right: NDArray[np.float64]
    norms: NDArray[np.float64]


def reference(kind: str, segments: NDArray[Any]) -> NDArray[np.float64]:
    """Sum or scan each row in float64: `segments` (rows, size); the sums are (rows,).

    For "matvec", the rows are products already.
    """
    wide = segments.astype(np.float64)
    return wide.cumsum(axis=1) if kind == "scan" else wide.sum(axis=1)


@dataclass(frozen=True)
class Problem:
    """A case on a device, with a sample of the right answer.

    Of products, segments are the rows of the left matrix.
    """

    case: Case
    device: Device

    @property
    def kind(self) -> str:
        """The operation: sum, scan or product, and its right factor."""
        return self.case.kind

    @property
    def segment_size(self) -> int:
        """Elements of a segment; 0 if they are ragged."""
        return self.case.segment_size

    @property
    def segments(self) -> int:
        """Number of segments."""
        if self.case.lengths:
            return self.offsets.size - 1
        return self.case.length // self.case.segment_size

    @property
    def size(self) -> int:
        """Elements of the result."""
        match self.kind:
            case "scan":
                return self.case.length
            case "matmul":
                return self.segments**2
            case _:
                return self.segments

    @property
    def data(self) -> Array:
        """The array, or the left matrix."""
        return self.device.data(self.case.dtype)[: self.case.length]

    @property
    def matrix(self) -> Array:
        """The data, a segment a row."""
        return self.data.reshape(self.segments, self.segment_size)

    @property
    def right(self) -> Array:
        """The right factor: a vector, or the matrix that follows the left one in memory."""
        if self.kind == "matvec":
            return self.device.vector[: self.segment_size]
        return self.device.data()[self.case.length : self.case.length + self.segment_size**2]

    @functools.cached_property
    def offsets(self) -> NDArray[np.int64]:
        """Where segments begin and end."""
        if self.case.lengths:
            return offsets_of(self.case.lengths, self.case.length)
        return np.arange(self.segments + 1, dtype=np.int64) * self.segment_size

    @functools.cached_property
    def offsets_there(self) -> Array:
        """The offsets, on the GPU."""
        return self.device.cp.asarray(self.offsets)

    def arrays_for(self, plan: LaunchPlan) -> tuple[Array, ...]:
        """Return the inputs of a plan."""
        if "offsets" in plan.inputs:
            return self.data, self.offsets_there
        return (self.data, self.right) if self.case.is_product else (self.data,)

    # --- The right results -----------------------------------------------------------------------

    @functools.cached_property
    def _sample(self) -> Sample:
        if self.case.lengths:
            return self._sample_of_ragged()
        if self.kind == "matmul":
            return self._sample_of_product()
        is_long = self.case.is_whole or self.segment_size > _SAMPLE
        if is_long and self.kind != "matvec" and self.segment_size % _PIECE == 0:
            return self._sample_of_pieces()
        return self._sample_of_segments()

    def _sample_of_segments(self) -> Sample:
        """Return the results of the first segment, the last, and some between."""
        chosen = _drawn(self.segments, max(3, _SAMPLE // self.segment_size))
        rows = self._rows(chosen)
        if self.kind == "matvec":
            rows *= self.device.to_host(self.right, "f16").astype(np.float64)
        right = reference(self.kind, rows).reshape(len(rows), -1)
        places = chosen[:, None] * right.shape[1] + np.arange(right.shape[1])
        return Sample(places, right, np.sqrt((rows**2).sum(axis=1, keepdims=True)))

    def _rows(self, chosen: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return some segments in float64."""
        rows = self.matrix[self.device.cp.asarray(chosen)]
        return self.device.to_host(rows, self.case.dtype).astype(np.float64)

    def _sample_of_product(self) -> Sample:
        """Return some rows of a product of matrices, multiplied by the GPU in float64."""
        chosen = _drawn(self.segments, _PRODUCT_ROWS)
        device, size = self.device, self.segment_size
        left = device.cp.asarray(self._rows(chosen))
        right = device.wide(self.right, "f16").reshape(size, size)
        places = chosen[:, None] * size + np.arange(size)
        norms = np.sqrt(device.cp.asnumpy((left * left) @ (right * right)))
        return Sample(places, device.cp.asnumpy(left @ right), norms)

    def _sample_of_pieces(self) -> Sample:
        """Return the sums of long segments; of scans, the ends of all pieces, and all of some.

        float16 and int8 data are multiples of 2^-24 or of 1: their sums in float64 are exact.
        """
        device, data, each = self.device, self.data, self.segment_size // _PIECE
        sums, squares = [], []
        for start in range(0, data.size, CHUNK):
            pieces = device.wide(data[start : start + CHUNK], self.case.dtype).reshape(-1, _PIECE)
            sums.append(device.cp.asnumpy(pieces.sum(axis=1)))
            squares.append(device.cp.asnumpy((pieces * pieces).sum(axis=1)))
        ends = np.concatenate(sums).reshape(-1, each).cumsum(axis=1)
        norms = np.sqrt(np.concatenate(squares).reshape(-1, each).sum(axis=1))
        if self.kind == "sum":
            return Sample(np.arange(norms.size), ends[:, -1], norms)
        ends = ends.ravel()
        chosen = _drawn(ends.size, _SAMPLE // _PIECE)
        pieces = data.reshape(-1, _PIECE)[device.cp.asarray(chosen)]
        before = np.where(chosen % each > 0, ends[chosen - 1], 0.0)
        within = before[:, None] + reference("scan", device.to_host(pieces, self.case.dtype))
        places = chosen[:, None] * _PIECE + np.arange(_PIECE)
        last = np.arange(1, ends.size + 1) * _PIECE - 1
        right = np.concatenate([ends, within.ravel()])
        of_piece = np.repeat(norms, each)
        scales = np.concatenate([of_piece, np.repeat(of_piece[chosen], _PIECE)])
        return Sample(np.concatenate([last, places.ravel()]), right, scales)

    def _sample_of_ragged(self) -> Sample:
        """Return the results of some segments; of a scan, the last one of each very long one."""
        lengths = np.diff(self.offsets)
        chosen = np.union1d(_drawn(self.segments, _RAGGED_SAMPLE), [int(lengths.argmax())])
        parts = [self._sample_of_one(int(number)) for number in chosen]
        return Sample(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def _sample_of_one(self, number: int) -> Sample:
        device, start, end = self.device, int(self.offsets[number]), int(self.offsets[number + 1])
        if end - start > _SAMPLE:
            total, square = 0.0, 0.0
            for begin in range(start, end, CHUNK):
                wide = device.wide(self.data[begin : min(end, begin + CHUNK)], self.case.dtype)
                total, square = total + float(wide.sum()), square + float((wide * wide).sum())
            right, places = np.full(1, total), np.full(1, end - 1)
        else:
            values = device.to_host(self.data[start:end], self.case.dtype).astype(np.float64)
            right = np.atleast_1d(reference(self.kind, values[None])[0])
            square = float(values @ values)
            places = np.arange(start, end)
        if self.kind == "sum":
            places = np.full(1, number)
        # Nothing is off by nothing.
        return Sample(places, right, np.full(right.size, np.sqrt(square) or 1.0))

    # --- Results ---------------------------------------------------------------------------------

    def error(self, out: Array, result: str) -> float:
        """Return the largest error of the sample, relative to a segment's norm.

        Sums of numbers of both signs are about as large as the norm. NaN if anything is NaN.
        """
        if self.device.has_nan(out, result):
            return float("nan")
        sample = self._sample
        got = self.device.to_host(out[self.device.cp.asarray(sample.places)], result)
        return float((np.abs(got.astype(np.float64) - sample.right) / sample.norms).max())

    @functools.cached_property
    def _expected(self) -> dict[Recipe, Values | None]:
        """Earlier simulated results, by recipe."""
        return {}

    def expected(self, recipe: Recipe) -> Values | None:
        """Return the first results by the simulator, as they lie in memory.

        None if the simulator does not know this GPU, or the segments are long.
        """
        alone = recipe.alone()
        if alone not in self._expected:
            self._expected[alone] = self._simulated(alone)
        return self._expected[alone]

    def compare_bits(self, expected: Values | None, out: Array) -> tuple[int, int]:
        """Compare the first results with expected bits; return the counts, all and differing."""
        if expected is None:
            return 0, 0
        got = self.device.cp.asnumpy(out[: expected.size])
        bits = np.dtype(f"u{got.itemsize}")
        return expected.size, int((got.view(bits) != expected.view(bits)).sum())

    def _simulated(self, alone: Recipe) -> Values | None:
        """Return the first results as they lie in memory, by the launches for all of the data."""
        try:
            if self.case.lengths:
                values = self._simulated_ragged(alone)
            elif self.kind == "matmul":
                values = self._simulated_product(alone)
            else:
                values = self._simulated_prefix(alone)
        except TcusimError:
            return None
        return None if values is None else to_memory(values, alone.result)

    def _simulated_prefix(self, alone: Recipe) -> Values | None:
        length, size = self.case.length, self.segment_size
        least, vector = _PREFIX, None
        if self.kind == "matvec":
            least, vector = _SAMPLE, self.device.to_host(self.right, "f16")
        elif self.case.is_whole and self.kind == "scan":
            # The elements before an element decide its prefix; so many need sums of several groups.
            least = _SAMPLE if alone.bits == "exact" else _LONGEST_PREFIX
        prefix = min(length, -(-least // size) * size if size < length else least)
        if self.kind != "scan":
            prefix = max(prefix, size)
        while prefix <= min(_LONGEST_PREFIX, length):
            try:
                return self._run(alone, prefix, length, vector)
            except InputError:
                prefix *= 2  # less than one block takes
        return None

    def _run(
        self, recipe: Recipe, prefix: int, length: int, second: Values | None = None
    ) -> Values:
        data = self.device.to_host(self.data[:prefix], self.case.dtype)
        return recipe.simulate(data, f"sm_{self.device.sm}", length=length, second=second)

    def _simulated_ragged(self, alone: Recipe) -> Values | None:
        """Return the results of the first segments, as if there were no others."""
        segments = max(1, int(np.searchsorted(self.offsets, _PREFIX, "right")) - 1)
        length = int(self.offsets[segments])
        if not 0 < length <= _LONGEST_PREFIX:
            return None
        first = alone.of_segments(segments)
        return self._run(first, length, length, self.offsets[: segments + 1])

    def _simulated_product(self, alone: Recipe) -> Values | None:
        """Return the first rows of a product of matrices, if the simulator has time for them."""
        size = self.segment_size
        if _SIMULATED_ROWS * size**2 > _MOST_SIMULATED:
            return None
        second = self.device.to_host(self.right, "f16")
        return self._run(alone, min(_SIMULATED_ROWS, size) * size, self.case.length, second)


def _drawn(size: int, count: int) -> NDArray[np.int64]:
    """Return numbers below `size`, the same each time: the first, the last, and some between."""
    drawn = np.random.default_rng(size).integers(0, size, min(size, count))
    drawn[0], drawn[-1] = 0, size - 1
    return np.unique(drawn)
