"""A stand-in for a backend, for tests of the functions on arrays: its arrays say they are on a GPU.

`gpu_standin` stands in for the driver below the CUDA backends; this is a backend by itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from tcusim.backends import IntegerFacts
from tcusim.program.launches import LaunchPlan
from tcusim.simulate.backend import NUMPY


class OnGpu:
    """An array in the memory of a GPU, really NumPy's; it gives no NumPy function its values."""

    def __init__(self, values: NDArray[Any]) -> None:
        self.values = values

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        raise AssertionError("copied to the computer's memory")

    def reshape(self, shape: tuple[int, ...]) -> OnGpu:
        return type(self)(self.values.reshape(shape))


@dataclass
class Facts:
    shape: tuple[int, ...]
    dtype: str
    contiguous: bool


class Session:
    def __init__(self, owner: StandIn, plan: LaunchPlan, arch: str | None) -> None:
        self.owner = owner
        self.plan = plan
        self.arch = arch or owner.arch

    def run(
        self,
        inputs: Mapping[str, Any],
        *,
        out: Any = None,
        shape: Any,
        stream: Any = None,
        initial: Any = None,
        starts: Any = None,
    ) -> Any:
        flat = {name: array.values.reshape(-1) for name, array in inputs.items()}
        assert all(array.values.flags.c_contiguous for array in inputs.values())
        sizes = {memory.name: memory.size for memory in self.plan.arrays}

        def computed(start: Mapping[str, int]) -> NDArray[Any]:
            parts = {name: x[start.get(name, 0) :][: sizes[name]] for name, x in flat.items()}
            self.owner.runs.append((self.plan, stream))
            # As a GPU: it does not see two warps write one element.
            found: NDArray[Any] = NUMPY.run(self.plan, parts, arch=self.arch, check=False)["out"]
            return found

        if starts is None:
            result = computed({})
        else:
            pieces = [computed(start) for start in starts]
            result = np.empty(len(starts) * sizes["out"], pieces[0].dtype)
            for start, piece in zip(starts, pieces, strict=True):
                result[start["out"] :][: piece.size] = piece
        if initial is not None:
            result = result.reshape(*shape[:-1], shape[-1] - 1)
            zeros = np.zeros((*shape[:-1], 1), result.dtype)
            parts = {"first": (zeros, result), "last": (result, zeros)}[initial]
            result = np.concatenate(parts, axis=-1)
        if out is None:
            return OnGpu(result.reshape(shape))
        assert out.values.shape == shape
        out.values[...] = result.reshape(shape)
        return out


class StandIn:
    """A backend for `OnGpu`; it records its preparations, runs and copies."""

    title = "a GPU that is none"

    def __init__(self, name: str, reason: str | None = None, arch: str = "ada") -> None:
        self.name = name
        self.reason = reason
        self.arch = arch
        self.prepared: list[LaunchPlan] = []
        self.runs: list[tuple[LaunchPlan, Any]] = []
        self.copies = self.looks = self.uploads = 0

    def available(self) -> str | None:
        return self.reason

    def native_arch(self, array: Any = None) -> str | None:
        return self.arch

    def run(self, plan: Any, inputs: Any, *, arch: Any = None, **options: Any) -> dict[str, Any]:
        raise AssertionError("a plan is prepared, not run, for arrays in GPU memory")

    def prepare(self, plan: LaunchPlan, arch: str | None = None) -> Session:
        self.prepared.append(plan)
        return Session(self, plan, arch)

    def describe(self, array: Any) -> Facts:
        values = array.values
        return Facts(values.shape, values.dtype.name, values.flags.c_contiguous)

    def arranged(self, array: Any, axes: tuple[int, ...], dtype: str) -> Any:
        wanted = np.ascontiguousarray(array.values.transpose(axes)).astype(
            ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype, copy=False
        )
        if np.shares_memory(wanted, array.values):
            return array
        self.copies += 1
        return OnGpu(wanted)

    def restored(self, array: Any, axes: tuple[int, ...]) -> Any:
        return OnGpu(array.values.transpose(np.argsort(axes)))

    def zeros(self, like: Any, shape: tuple[int, ...], dtype: str) -> Any:
        return OnGpu(np.zeros(shape, dtype))

    def to_host(self, array: Any) -> NDArray[Any]:
        self.looks += 1
        values: NDArray[Any] = array.values
        return values.copy()

    def to_device(self, values: NDArray[Any], like: Any) -> Any:
        assert isinstance(like, OnGpu)
        self.uploads += 1
        return OnGpu(values)


def facts_one_by_one(values: NDArray[Any]) -> IntegerFacts:
    """Return the facts of integers, by a walk along them."""
    numbers = [int(value) for value in values]
    pairs = list(itertools.pairwise(numbers))
    down = next(((at, a, b) for at, (a, b) in enumerate(pairs) if b < a), None)
    lengths = [b - a for a, b in pairs]
    longest = max(lengths, default=0)
    place = lengths.index(longest) if lengths else 0
    return IntegerFacts(numbers[0], numbers[-1], down, longest, place)


class CheckingStandIn(StandIn):
    """One that looks at integers where they are, notes that it looked, and copies none back."""

    def facts_of_integers(self, array: Any) -> IntegerFacts:
        self.looks += 1
        return facts_one_by_one(array.values)

    def offsets_of_ids(self, ids: Any, segments: int) -> OnGpu:
        return OnGpu(np.array([int((ids.values < one).sum()) for one in range(segments + 1)]))

    def offsets_of_rows(self, offsets: Any, rows: int) -> OnGpu:
        own, length = offsets.values[:-1], offsets.values[-1]
        starts = [row * length + own for row in range(rows)]
        return OnGpu(np.append(np.concatenate(starts), rows * length).astype(np.int64))

    def settled(self, array: Any) -> bool:
        return True

    def to_host(self, array: Any) -> NDArray[Any]:
        raise AssertionError("copied back")


def halves(*shape: int) -> NDArray[np.float16]:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float16)


def assert_bits(result: Any, expected: Any) -> None:
    assert isinstance(result, OnGpu)
    expected = np.asarray(expected)
    assert (result.values.shape, result.values.dtype) == (expected.shape, expected.dtype)
    assert result.values.tobytes() == expected.tobytes()
