"""The functions on arrays that are not NumPy's: who computes, on what, and what is refused.

The GPU is a stand-in: a class of arrays that says it is on one, and a backend that simulates.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import tcusim
from tcusim.arrays.calls import READY
from tcusim.arrays.functions import Report
from tcusim.arrays.libraries import is_on_device
from tcusim.arrays.plans import plan_for
from tcusim.errors import BackendUnavailable, InputError, Unsupported
from tcusim.program.launches import LaunchPlan
from tcusim.simulate.backend import NUMPY


class OnGpu:
    """An array in the memory of a GPU, which is NumPy's; it tells no NumPy function its values."""

    def __init__(self, values: NDArray[Any]) -> None:
        self.values = values

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        raise AssertionError("copied to the computer's memory")


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
            # As a GPU, which does not see two warps write one element.
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
    """A backend for `OnGpu`; it notes what it prepares, runs and copies."""

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

    def native_arch(self) -> str | None:
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


@pytest.fixture
def gpu(only_backends: Callable[..., None]) -> Iterator[StandIn]:
    """Register a stand-in as the only backend beside the simulator, with no plans kept."""
    stand_in = StandIn("cupy")
    only_backends(NUMPY, stand_in)
    for clear in (plan_for.cache_clear, READY.clear):
        clear()
    yield stand_in
    for clear in (plan_for.cache_clear, READY.clear):
        clear()


def halves(*shape: int) -> NDArray[np.float16]:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float16)


def assert_bits(result: Any, expected: Any) -> None:
    assert isinstance(result, OnGpu)
    expected = np.asarray(expected)
    assert (result.values.shape, result.values.dtype) == (expected.shape, expected.dtype)
    assert result.values.tobytes() == expected.tobytes()


# --- What an array is -----------------------------------------------------------------------------


class Interface:
    __cuda_array_interface__: Mapping[str, Any] = {"shape": (3,), "typestr": "<f2"}


class InHostMemory(OnGpu):
    # As torch's tensors on the CPU: they raise for the other protocol.
    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    @property
    def __cuda_array_interface__(self) -> Any:
        raise RuntimeError("not asked")


def test_which_arrays_are_on_a_gpu() -> None:
    assert is_on_device(OnGpu(halves(3)))
    assert is_on_device(Interface())
    for a in (halves(3), np.float16(3), 3, [1, 2], InHostMemory(halves(3)), "text", None):
        assert not is_on_device(a)


# --- Results --------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(300,), (7, 40), (3, 5, 16), (1, 9, 1), ()])
def test_every_axis_has_the_bits_of_numpy_arrays(gpu: StandIn, shape: tuple[int, ...]) -> None:
    x = halves(*shape)
    for axis in (None, *range(-len(shape), len(shape))):
        for keepdims in (False, True):
            result = tcusim.sum(OnGpu(x), axis=axis, keepdims=keepdims)
            assert_bits(result, tcusim.sum(x, axis=axis, keepdims=keepdims, arch="ada"))
        assert_bits(tcusim.cumsum(OnGpu(x), axis=axis), tcusim.cumsum(x, axis=axis, arch="ada"))
    for axis in range(len(shape)):
        for size in {1, shape[axis]}:
            for name in ("segmented_sum", "segmented_cumsum"):
                function = getattr(tcusim, name)
                result = function(OnGpu(x), size, axis=axis)
                assert_bits(result, function(x, size, axis=axis, arch="ada"))


def test_several_axes_are_summed_together(gpu: StandIn) -> None:
    x = halves(3, 4, 50)
    assert_bits(tcusim.sum(OnGpu(x), axis=(2, 0)), tcusim.sum(x, axis=(0, 2), arch="ada"))
    assert_bits(tcusim.sum(OnGpu(x), axis=(1, 2)), tcusim.sum(x, axis=(1, 2), arch="ada"))
    assert gpu.copies == 1


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_scans_in_every_order(gpu: StandIn, exclusive: bool, reverse: bool) -> None:
    x = halves(6, 160)
    for size, axis in ((32, 1), (160, 1), (2, 0)):
        result, expected = (
            tcusim.segmented_cumsum(
                a, size, axis=axis, exclusive=exclusive, reverse=reverse, arch="ada"
            )
            for a in (OnGpu(x), x)
        )
        assert_bits(result, expected)
    assert_bits(
        tcusim.cumsum(OnGpu(x), reverse=reverse), tcusim.cumsum(x, reverse=reverse, arch="ada")
    )


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("shape", [(), (1,), (300,), (3, 5, 16), (0,), (2, 0), (0, 3)])
def test_scans_with_an_initial_zero(gpu: StandIn, shape: tuple[int, ...], reverse: bool) -> None:
    x = halves(*shape)
    for axis in (None, *range(len(shape))):
        options: dict[str, Any] = {"axis": axis, "reverse": reverse, "include_initial": True}
        assert_bits(tcusim.cumsum(OnGpu(x), **options), tcusim.cumsum(x, arch="ada", **options))
    for given, dtype in (("int8", "int32"), ("float32", "float64"), ("float16", "float32")):
        y = (10 * x).astype(given)
        options = {"axis": -1 if shape else None, "reverse": reverse, "include_initial": True}
        result = tcusim.cumsum(OnGpu(y), dtype=dtype, **options)
        assert_bits(result, tcusim.cumsum(y, dtype=dtype, arch="ada", **options))


def test_outs_of_scans_with_an_initial_zero(gpu: StandIn) -> None:
    x = halves(4, 25)
    out = OnGpu(np.full((4, 26), np.nan, np.float16))
    assert tcusim.cumsum(OnGpu(x), axis=1, include_initial=True, out=out, stream=3) is out
    assert_bits(out, tcusim.cumsum(x, axis=1, include_initial=True, arch="ada"))
    assert gpu.runs[-1][1] == 3
    with pytest.raises(Unsupported, match="out= for an array in GPU memory goes with the last ax"):
        tcusim.cumsum(OnGpu(x), axis=0, include_initial=True, out=out)


@pytest.mark.parametrize("size", [1, 7, 16, 100, 1000])
def test_a_last_segment_may_be_shorter(gpu: StandIn, size: int) -> None:
    x = halves(1000)
    total, scan = tcusim.segmented_sum(OnGpu(x), size), tcusim.segmented_cumsum(OnGpu(x), size)
    assert_bits(total, tcusim.segmented_sum(x, size, arch="ada"))
    assert_bits(scan, tcusim.segmented_cumsum(x, size, arch="ada"))
    assert gpu.copies == 0


@pytest.mark.parametrize("size", [2, 7, 45])
def test_each_row_may_have_a_shorter_last_segment(gpu: StandIn, size: int) -> None:
    x = halves(3, 5, 64)
    for axis in (1, 2):
        some = min(size, x.shape[axis])
        for function in (tcusim.segmented_sum, tcusim.segmented_cumsum):
            result, expected = (function(a, some, axis=axis, arch="ada") for a in (OnGpu(x), x))
            assert_bits(result, expected)
    scan = tcusim.segmented_cumsum(OnGpu(x), size, reverse=True, exclusive=True)
    assert_bits(scan, tcusim.segmented_cumsum(x, size, reverse=True, exclusive=True, arch="ada"))
    with pytest.raises(Unsupported, match="include_initial in GPU memory goes with segments of o"):
        tcusim.segmented_cumsum(OnGpu(x), 7, include_initial=True)


@pytest.mark.parametrize("given", ["float16", "float32", "float64", ml_dtypes.bfloat16])
@pytest.mark.parametrize("dtype", [None, "float16", "float32", np.float64, ml_dtypes.bfloat16])
def test_types_are_those_of_numpy_arrays(gpu: StandIn, given: Any, dtype: Any) -> None:
    x = halves(500).astype(given)
    for name in ("sum", "cumsum"):
        function = getattr(tcusim, name)
        assert_bits(function(OnGpu(x), dtype=dtype), function(x, dtype=dtype, arch="ada"))
    wide = "float64" in (x.dtype.name, None if dtype is None else np.dtype(dtype).name)
    assert (gpu.copies > 0) == (wide and dtype is not None and np.dtype(dtype) != x.dtype)


def test_torchs_names_of_types(gpu: StandIn) -> None:
    class Float32:
        def __str__(self) -> str:
            return "torch.float32"

    x = halves(50)
    dtype: Any = Float32()
    assert_bits(tcusim.sum(OnGpu(x), dtype=dtype), tcusim.sum(x, dtype="f4", arch="ada"))


def test_int8_has_int32_results(gpu: StandIn) -> None:
    x = np.random.default_rng(0).integers(-128, 128, 30_000).astype(np.int8)
    assert_bits(tcusim.sum(OnGpu(x)), x.sum(dtype=np.int32))
    assert_bits(tcusim.cumsum(OnGpu(x), dtype=np.int32), x.cumsum(dtype=np.int32))


def test_int8_has_int64_results_of_any_length(gpu: StandIn) -> None:
    x = np.random.default_rng(8).integers(-128, 128, (2, 5000)).astype(np.int8)
    wide: dict[str, Any] = {"dtype": "int64"}
    assert_bits(tcusim.sum(OnGpu(x), **wide), x.sum(dtype=np.int64))
    assert_bits(tcusim.cumsum(OnGpu(x), axis=1, **wide), x.cumsum(1, dtype=np.int64))
    for order in ({}, {"reverse": True, "exclusive": True}):
        for size in (7, 100, 4000):
            options: dict[str, Any] = {"initial": 2**40, **order, **wide}
            result = tcusim.segmented_cumsum(OnGpu(x), size, **options)
            assert_bits(result, tcusim.segmented_cumsum(x, size, **options))
    low = np.full(2**24 + 5, -128, np.int8)
    plan = tcusim.plan("sum", length=low.size, dtype="int8", result="int64")
    for total in (tcusim.sum(OnGpu(low), **wide), plan(OnGpu(low))):
        assert total.values[()] == -128 * low.size
    with pytest.raises(Unsupported, match="is for other segments; leave it out"):
        tcusim.sum(OnGpu(low), algorithm="reduction_tn", **wide)
    with pytest.raises(InputError, match="int8 arrays in GPU memory have int32 results, not int64"):
        tcusim.matmul(OnGpu(x), OnGpu(x.T), **wide)


def test_nothing_sums_to_zero(gpu: StandIn) -> None:
    x = np.zeros((0, 3), np.float16)
    for axis in (None, 0, 1):
        assert_bits(tcusim.sum(OnGpu(x), axis=axis), tcusim.sum(x, axis=axis))
        assert_bits(tcusim.cumsum(OnGpu(x), axis=axis), tcusim.cumsum(x, axis=axis))
    assert_bits(tcusim.segmented_sum(OnGpu(x), 2, axis=0), np.zeros((0, 3), np.float16))
    assert gpu.runs == []


def test_out(gpu: StandIn) -> None:
    x = halves(4, 25)
    out = OnGpu(np.empty(4, np.float32))
    assert tcusim.sum(OnGpu(x), axis=1, dtype="float32", out=out) is out
    assert_bits(out, tcusim.sum(x, axis=1, dtype="f4", arch="ada"))
    a = OnGpu(x.copy())
    assert tcusim.cumsum(a, axis=1, out=a) is a
    assert_bits(a, tcusim.cumsum(x, axis=1, arch="ada"))


def test_a_report(gpu: StandIn) -> None:
    report = Report()
    tcusim.segmented_sum(OnGpu(halves(1024)), 256, report=report)
    assert (report.arch, report.launches, report.mma, report.bytes_read) == ("ada", 1, 4, 2048)


# --- Plans ----------------------------------------------------------------------------------------


def test_a_plan_is_prepared_once(gpu: StandIn) -> None:
    for _ in range(3):
        tcusim.segmented_sum(OnGpu(halves(64)), 16)
    assert len(gpu.prepared) == 1
    plan = tcusim.plan("segmented_sum", length=64, segment_size=16)
    x = halves(8, 8)
    for number in range(2):
        assert_bits(plan(OnGpu(x), stream=number), plan(x).reshape(4))
    assert [made.title for made in gpu.prepared[1:]] == [repr(plan)]
    assert [stream for _, stream in gpu.runs[-2:]] == [0, 1]
    out = OnGpu(np.empty(4, np.float16))
    assert plan(OnGpu(x), out) is out


# --- Who computes ---------------------------------------------------------------------------------


def test_the_arrays_library_chooses_the_backend(gpu: StandIn) -> None:
    class GPUArray(OnGpu):
        __module__ = "pycuda.gpuarray"

    class CupyArray(OnGpu):
        __module__ = "cupy"

    x, other = halves(10), StandIn("pycuda")
    tcusim.register_backend(other)
    tcusim.sum(OnGpu(x))
    assert (len(gpu.runs), len(other.runs)) == (1, 0)
    tcusim.sum(GPUArray(x))
    assert (len(gpu.runs), len(other.runs)) == (1, 1)
    tcusim.sum(GPUArray(x), backend="cupy")
    assert (len(gpu.runs), len(other.runs)) == (2, 1)
    driver = StandIn("cuda")
    tcusim.register_backend(driver)
    for array in (CupyArray(x), GPUArray(x), OnGpu(x)):
        tcusim.sum(array)
    assert (len(gpu.runs), len(other.runs), len(driver.runs)) == (3, 2, 1)
    driver.reason = "no driver"
    gpu.reason = "CuPy is not here"
    tcusim.sum(OnGpu(x))
    assert (len(gpu.runs), len(other.runs)) == (3, 3)
    other.reason = "nor is PyCUDA"
    third = StandIn("third")
    tcusim.register_backend(third)
    tcusim.sum(OnGpu(x))
    assert len(third.runs) == 1
    third.reason = "no"
    with pytest.raises(BackendUnavailable) as caught:
        tcusim.sum(OnGpu(x))
    assert str(caught.value).endswith(
        "OnGpu in GPU memory. cuda: no driver; cupy: CuPy is not here; pycuda: nor is PyCUDA; "
        "third: no"
    )


def test_no_backend_for_gpu_arrays(only_backends: Callable[..., None]) -> None:
    only_backends(NUMPY)
    with pytest.raises(BackendUnavailable, match=r"no backend can compute on a .*OnGpu in GPU mem"):
        tcusim.sum(OnGpu(halves(3)))


@pytest.mark.parametrize("name", ["sum", "cumsum"])
def test_the_simulator_takes_no_gpu_arrays(gpu: StandIn, name: str) -> None:
    with pytest.raises(InputError) as caught:
        getattr(tcusim, name)(OnGpu(halves(3)), backend="numpy")
    assert re.fullmatch(
        r"backend='numpy' computes on NumPy arrays, and this is a .*OnGpu in GPU memory\. Leave "
        r"backend out, or copy the array to a NumPy array first\.",
        str(caught.value),
    )


# --- What is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "x", "keywords", "text"),
    [
        ("sum", np.zeros(3, np.int32), {}, "arrays in GPU memory must be of float16, float32, "
         "float64, bfloat16 or int8, got int32; cast it there, or copy it to a NumPy array"),
        ("sum", np.zeros(3, bool), {}, "must be of float16, float32, float64, bfloat16 or int8, "
         "got bool"),
        ("sum", np.zeros(3, np.int8), {"dtype": "int16"}, "int8 arrays in GPU memory have int32 "
         "or int64 results, not int16; cast the result"),
        ("sum", np.zeros(3, np.float16), {"dtype": int}, "dtype of a float16 array in GPU memory "
         "must be one of float16, float32, float64, bfloat16, got int64; cast the result"),
        ("sum", np.zeros(3, np.float16), {"dtype": "half a float"}, "dtype: data type 'half a"),
        ("sum", np.zeros(3, np.float16), {"axis": 1}, "axis 1 is out of range for an array of 1"),
        ("segmented_sum", np.zeros(3, np.float16), {}, "give segment_size, the elements of a segm"),
        ("segmented_sum", np.zeros(3, np.float16), {"segment_size": 4}, "segment_size 4 is longer "
         "than the axis, which has 3 elements"),
        ("segmented_sum", np.zeros((2, 5), np.float16), {"segment_size": 2,
         "algorithm": "reduction_k"}, "2 does not divide the axis' length, 5: in GPU memory the "
         "last segment of each row is then shorter, and segments lie by offsets, for which there"),
        ("sum", np.zeros(3, np.float32), {"arch": "volta"}, "float32 arrays in GPU memory are "
         "split into bf16 parts, and volta has no bf16. Cast the array to float16, or copy it"),
        ("sum", np.zeros(3, np.float64), {"arch": "turing"}, "tensor cores have no f64"),
        ("sum", np.zeros(3, np.float32), {"acc": "f16"}, "acc='f16' is for float16"),
        ("sum", np.zeros(2**23 + 1, np.int8), {}, "sums of more than 8388608 integers may not fi"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_on_a_gpu(
    gpu: StandIn, name: str, x: Any, keywords: dict[str, Any], text: str
) -> None:
    with pytest.raises(InputError) as caught:
        getattr(tcusim, name)(OnGpu(x), **keywords)
    assert text in str(caught.value)
    assert gpu.runs == []


def test_outs_that_do_not_go(gpu: StandIn) -> None:
    x = halves(4, 4)
    out: Any = OnGpu(np.zeros((4, 4), np.float16))
    with pytest.raises(Unsupported, match="out= for an array in GPU memory goes with the last ax"):
        tcusim.cumsum(OnGpu(x), axis=0, out=out)
    with pytest.raises(Unsupported, match="out= for an array without elements in GPU memory; lea"):
        tcusim.cumsum(OnGpu(x[:0]), axis=1, out=OnGpu(x[:0]))
    with pytest.raises(InputError, match=r"got .*OnGpu, which is in GPU memory"):
        tcusim.cumsum(x, axis=1, out=out)


def test_offsets_in_gpu_memory_for_a_numpy_array(gpu: StandIn) -> None:
    offsets: Any = OnGpu(np.array([0, 3]))
    text = r"offsets are a .*OnGpu in GPU memory, but a is a NumPy array; copy them to a NumPy arr"
    for name in ("segmented_sum", "segmented_cumsum"):
        with pytest.raises(InputError, match=text):
            getattr(tcusim, name)(halves(3), offsets=offsets)


# --- Offsets --------------------------------------------------------------------------------------


def lengths_of(seed: int) -> NDArray[np.int64]:
    """Return offsets of empty, tiny and medium segments, and of one giant."""
    rng = np.random.default_rng(seed)
    lengths = rng.permutation([0, 0, 2000, *rng.integers(0, 5, 40), *rng.integers(30, 99, 5)])
    return np.concatenate([[0], np.cumsum(lengths)])


@pytest.mark.parametrize("kind", ["int64", "int32", "NumPy", "list"])
@pytest.mark.parametrize("name", ["segmented_sum", "segmented_cumsum"])
def test_offsets_have_the_bits_of_numpy_arrays(gpu: StandIn, name: str, kind: str) -> None:
    edges = lengths_of(len(name))
    function = getattr(tcusim, name)
    offsets: Any = {"NumPy": edges.astype(np.uint16), "list": edges.tolist()}.get(kind)
    if offsets is None:
        offsets = OnGpu(edges.astype(kind))
    for dtype in ("float16", "float32", "float64"):
        x = halves(edges[-1]).astype(dtype)
        assert_bits(function(OnGpu(x), offsets=offsets), function(x, offsets=edges, arch="ada"))
    assert gpu.looks == (3 if kind.startswith("int") else 0)
    assert gpu.uploads == 3 - gpu.looks
    assert gpu.copies == (3 if kind == "int32" else 0)


def test_offsets_in_every_order_along_any_axis(gpu: StandIn) -> None:
    edges = lengths_of(3)
    x = halves(2, edges[-1], 3)
    orders: list[dict[str, Any]] = [
        {"exclusive": a, "reverse": b} for a in (False, True) for b in (False, True)
    ]
    for order in orders:
        result = tcusim.segmented_cumsum(OnGpu(x), offsets=OnGpu(edges), axis=1, **order)
        assert_bits(result, tcusim.segmented_cumsum(x, offsets=edges, axis=1, arch="ada", **order))
    total = tcusim.segmented_sum(OnGpu(x), offsets=OnGpu(edges), axis=1)
    assert_bits(total, tcusim.segmented_sum(x, offsets=edges, axis=1, arch="ada"))
    row = np.ascontiguousarray(x[0].T)
    out = OnGpu(np.empty((3, edges.size - 1), np.float16))
    assert tcusim.segmented_sum(OnGpu(row), offsets=edges, out=out) is out
    assert_bits(out, tcusim.segmented_sum(row, offsets=edges, arch="ada"))


def test_ids_in_gpu_memory_or_not(gpu: StandIn) -> None:
    ids = np.repeat([0, 1, 4], [20, 1, 300])
    x = halves(321)
    expected = tcusim.segmented_cumsum(x, segment_ids=ids, arch="ada")
    for given in (ids, OnGpu(ids), OnGpu(ids.astype(np.int32))):
        assert_bits(tcusim.segmented_cumsum(OnGpu(x), segment_ids=given), expected)
    assert gpu.looks == 2
    some: Any = OnGpu(ids)
    with pytest.raises(InputError, match=r"segment_ids are a .*OnGpu in GPU memory, but a is a Nu"):
        tcusim.segmented_cumsum(x, segment_ids=some)
    with pytest.raises(
        InputError, match="segment_ids in GPU memory must be a flat array of an ele"
    ):
        tcusim.segmented_cumsum(OnGpu(x), segment_ids=OnGpu(ids.astype(np.uint8)))


@pytest.mark.filterwarnings("ignore:overflow")
def test_exact_bits_of_float16_are_those_of_numpy_arrays(gpu: StandIn) -> None:
    rng = np.random.default_rng(7)
    x = np.ldexp(rng.uniform(-1, 1, (2, 700)), rng.integers(-26, 17, (2, 700))).astype("f2")
    edges = [0, 40, 40, 500, 700]
    for name, options in (
        ("sum", {"axis": 0, "dtype": "bfloat16"}),
        ("cumsum", {"axis": 1, "reverse": True}),
        ("cumsum", {"axis": 1, "include_initial": True, "dtype": "float32"}),
        ("cumsum", {"axis": 0, "exclusive": True}),
        ("segmented_sum", {"offsets": edges}),
        ("segmented_cumsum", {"offsets": edges}),
    ):
        function = getattr(tcusim, name)
        result = function(OnGpu(x), bits="exact", **options)
        assert_bits(result, function(x, bits="exact", arch="volta", **options))
    assert gpu.copies == 2  # transposed, and nothing else
    # A sum of 53 bits.
    long = np.full(8192, 65504, np.float16)
    long[5000] = 2.0**-24
    total = tcusim.sum(OnGpu(long), dtype="float64", bits="exact")
    assert total.values[()] == 8191 * 65504 + 2.0**-24
    # Sums of more bits, of which the whole numbers and the fractions are summed apart.
    long = np.full(17_000, 65504, np.float16)
    long[::1000], long[:2] = 2.0**-24, (0.5, 16)
    for name in ("sum", "cumsum"):
        function = getattr(tcusim, name)
        expected = function(long, dtype="float32", bits="exact", arch="volta")
        assert_bits(function(OnGpu(long), dtype="float32", bits="exact"), expected)
        assert len(gpu.runs[-1][0].launches) == 3
    plan = tcusim.plan("cumsum", length=700, bits="exact", result="float32")
    assert_bits(plan(OnGpu(x[0])), plan(x[0]))
    assert "f16 as f64 to f64" in str(plan._at(gpu))  # type: ignore[arg-type]
    y = rng.integers(-128, 127, (2, 9000)).astype(np.int8)
    assert_bits(tcusim.sum(OnGpu(y), axis=1, bits="exact"), y.sum(1, dtype=np.int32))


@pytest.mark.parametrize(
    ("x", "options", "text"),
    [
        # Of memory that nobody touches.
        (np.zeros(2**30 + 1, np.float16), {}, "float16 segments of up to 1073741824 elements"),
        (halves(9), {"arch": "volta"}, "in float64, which volta's tensor cores do not multiply"),
        (halves(9), {"acc": "f16"}, "acc='f16' rounds after every product"),
        (halves(9), {"algorithm": "reduction_256n", "tile": "8x8x4"}, "is run as printed"),
        (np.ones(9, np.float32), {}, "for float16 and int8 arrays, not float32"),
        (np.ones(9, np.int16), {}, "must be of float16, float32, float64, bfloat16 or int8"),
    ],
)
def test_exact_bits_that_a_gpu_does_not_have(
    gpu: StandIn, x: NDArray[Any], options: Any, text: str
) -> None:
    with pytest.raises(InputError, match=re.escape(text)):
        tcusim.sum(OnGpu(x), bits="exact", **options)
    with pytest.raises(Unsupported, match="initial does not go with bits='exact' in GPU memory"):
        tcusim.cumsum(OnGpu(halves(9)), bits="exact", arch="hopper", initial=1)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8"])
def test_initial_values_in_gpu_memory_or_not(gpu: StandIn, dtype: str) -> None:
    x = (halves(3, 50, 4) * 3).astype(dtype)
    sums = {"float64": "float64", "int8": "int32"}.get(dtype, "float32")
    values = np.arange(24).reshape(3, 2, 4).astype(sums)
    wanted: dict[str, Any] = {"dtype": sums if dtype == "int8" else None, "arch": "ada"}
    for order in ({"axis": 1}, {"axis": 1, "reverse": True, "exclusive": True}):
        expected = tcusim.segmented_cumsum(x, 30, initial=values, **order, **wanted)
        for initial in (values, OnGpu(values)):
            result = tcusim.segmented_cumsum(OnGpu(x), 30, initial=initial, **order)
            assert_bits(result, expected)
    expected = tcusim.cumsum(x, initial=values[0, 0, 3], **wanted)
    assert_bits(tcusim.cumsum(OnGpu(x), initial=OnGpu(values[0, 0, 3:].reshape(()))), expected)
    plan = tcusim.plan("cumsum", length=x.size, dtype=dtype, result=wanted["dtype"], initial=True)
    assert_bits(plan(OnGpu(x.ravel()), initial=3), expected.ravel())
    with pytest.raises(InputError, match="this plan takes initial values: give initial="):
        plan(OnGpu(x.ravel()))
    with pytest.raises(InputError, match=rf"must be of {sums}, the type of the sums, and of shape"):
        tcusim.cumsum(OnGpu(x), initial=OnGpu(values[0, 0]))
    with pytest.raises(
        InputError, match=r"initial is a .*OnGpu in GPU memory, but a is a NumPy arr"
    ):
        tcusim.cumsum(x, initial=OnGpu(values[0, 0]))


def test_scans_by_offsets_in_place(gpu: StandIn) -> None:
    edges = lengths_of(7)
    for shape in ((edges[-1],), (3, edges[-1])):
        x = halves(*shape)
        a = OnGpu(x.copy())
        assert tcusim.segmented_cumsum(a, offsets=OnGpu(edges), out=a) is a
        assert_bits(a, tcusim.segmented_cumsum(x, offsets=edges, arch="ada"))
        assert gpu.runs[-1][0].why_not_in_place is None


def test_integers_by_offsets(gpu: StandIn) -> None:
    edges = lengths_of(4)
    x = np.random.default_rng(0).integers(-128, 128, edges[-1]).astype(np.int8)
    assert_bits(
        tcusim.segmented_sum(OnGpu(x), offsets=edges),
        tcusim.segmented_sum(x, offsets=edges, dtype="int32"),
    )


def test_unchecked_offsets_are_not_looked_at(gpu: StandIn) -> None:
    edges = lengths_of(5)
    x = np.random.default_rng(0).integers(-9, 9, edges[-1]).astype(np.float16)
    result = tcusim.segmented_sum(OnGpu(x), offsets=OnGpu(edges), check_offsets=False)
    assert_bits(result, tcusim.segmented_sum(x, offsets=edges))
    assert gpu.looks == gpu.uploads == 0
    # What is in the computer's memory is checked all the same.
    with pytest.raises(InputError, match="offsets must begin with 0"):
        tcusim.segmented_sum(OnGpu(x), offsets=[0, 1], check_offsets=False)


def test_unchecked_offsets_reach_no_other_memory(gpu: StandIn) -> None:
    """The simulator refuses to read or write beyond an array; so there is no such access."""
    rng = np.random.default_rng(1)
    for _ in range(20):
        size = int(rng.integers(1, 400))
        x = np.ones(size, np.float16)
        offsets = OnGpu(rng.integers(-3 * size, 5 * size, int(rng.integers(1, 40))))
        for name in ("segmented_sum", "segmented_cumsum"):
            function = getattr(tcusim, name)
            result = function(OnGpu(x), offsets=offsets, check_offsets=False)
            assert result.values.size == (
                size if name.endswith("cumsum") else offsets.values.size - 1
            )


def test_no_elements_by_offsets(gpu: StandIn) -> None:
    nothing = OnGpu(np.zeros((2, 0), np.float16))
    assert_bits(tcusim.segmented_sum(nothing, offsets=[0, 0, 0]), np.zeros((2, 2), np.float16))
    assert_bits(tcusim.segmented_cumsum(nothing, offsets=[0, 0, 0]), np.zeros((2, 0), np.float16))
    assert_bits(
        tcusim.segmented_sum(OnGpu(np.zeros(0, np.float16)), offsets=OnGpu(np.zeros(1, int))),
        np.zeros(0, np.float16),
    )


@pytest.mark.parametrize(
    ("offsets", "text"),
    [
        (np.array([0, 5, 3, 9]), "offsets must not decrease, but offsets[1] = 5 and offsets[2] = "),
        (np.array([1, 9]), "offsets must begin with 0 and end with the axis' length, 9; got 1 and"),
        (np.array([0, 8]), "offsets must begin with 0 and end with the axis' length, 9; got 0 and"),
        (np.array([0.0, 9.0]), "offsets in GPU memory must be a flat array of segments + 1 "
         "elements of int64 or int32, got shape (2,), dtype float64"),
        (np.array([0, 9], np.uint64), "dtype uint64"),
        (np.array([[0, 9]]), "got shape (1, 2), dtype int64"),
        (np.array([], np.int64), "got shape (0,), dtype int64"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("planned", [False, True])
def test_bad_offsets_in_gpu_memory(gpu: StandIn, offsets: Any, text: str, planned: bool) -> None:
    for name in ("segmented_sum", "segmented_cumsum"):
        function = getattr(tcusim, name)
        if planned:
            function = tcusim.plan(name, length=9, segments=max(1, offsets.size - 1))
        with pytest.raises(InputError) as caught:
            function(OnGpu(halves(9)), offsets=OnGpu(offsets))
        assert text in str(caught.value)
    assert gpu.runs == []


@pytest.mark.parametrize(
    ("shape", "keywords", "text"),
    [
        ((9,), {"segment_size": 3, "offsets": [0, 9]}, "give segment_size or offsets, not both"),
        ((9,), {"offsets": [0, 9], "algorithm": "reduction_tn"}, "Leave algorithm out"),
        ((2, 9), {"offsets": OnGpu(np.array([0, 9])), "check_offsets": False}, "check_offsets="
         "False goes with one row of segments, and a has 2: offsets for all rows are made of "
         "checked ones. Pass row by row, or leave check_offsets out"),
    ],
)  # fmt: skip
def test_offsets_that_do_not_go(
    gpu: StandIn, shape: tuple[int, ...], keywords: dict[str, Any], text: str
) -> None:
    with pytest.raises(InputError) as caught:
        tcusim.segmented_sum(OnGpu(halves(*shape)), **keywords)
    assert text in str(caught.value)


def test_offsets_of_a_library_that_does_not_cast(
    gpu: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(array: Any, axes: tuple[int, ...], dtype: str) -> Any:
        if array.values.dtype != dtype:
            raise InputError("no")
        return array

    monkeypatch.setattr(gpu, "arranged", refuse)
    text = r"offsets are a .*OnGpu of int32, which tcusim cannot copy as it needs it: without gaps,"
    with pytest.raises(InputError, match=text):
        tcusim.segmented_sum(OnGpu(halves(3)), offsets=OnGpu(np.array([0, 3], np.int32)))


def test_a_plan_by_offsets(gpu: StandIn) -> None:
    edges = lengths_of(6)
    x = halves(edges[-1])
    plan = tcusim.plan("segmented_cumsum", length=x.size, segments=edges.size - 1)
    expected = plan(x, offsets=edges)
    for offsets in (OnGpu(edges), edges.tolist()):
        assert_bits(plan(OnGpu(x), offsets=offsets, stream=5), expected)
    assert (gpu.looks, gpu.uploads, gpu.runs[-1][1]) == (1, 1, 5)
    assert gpu.runs[-1][0].title == repr(plan)
    assert_bits(plan(OnGpu(x), offsets=OnGpu(edges), check_offsets=False), expected)
    assert gpu.looks == 1
    with pytest.raises(InputError, match="this plan takes 50 offsets, of 49 segments, got 2"):
        tcusim.plan("segmented_cumsum", length=x.size, segments=49)(
            OnGpu(x), offsets=OnGpu(np.array([0, x.size])), check_offsets=False
        )
    short = tcusim.plan("segmented_sum", length=x.size, segments=edges.size - 1, longest=99)
    with pytest.raises(InputError, match="has 2000 elements, but this plan is for segments of up"):
        short(OnGpu(x), offsets=OnGpu(edges))


# --- Streams --------------------------------------------------------------------------------------


def test_every_function_takes_a_stream(gpu: StandIn) -> None:
    x = halves(8)
    for name, keywords in (
        ("sum", {}),
        ("cumsum", {}),
        ("segmented_sum", {"segment_size": 4}),
        ("segmented_sum", {"offsets": [0, 8]}),
        ("segmented_cumsum", {"segment_size": 4}),
        ("segmented_cumsum", {"offsets": [0, 8]}),
    ):
        function: Any = getattr(tcusim, name)
        function(OnGpu(x), stream=7, **keywords)
        assert gpu.runs[-1][1] == 7
        with pytest.raises(InputError, match="stream= is for arrays in GPU memory, and a is a Num"):
            function(x, stream=7, **keywords)


# --- Products -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", ml_dtypes.bfloat16])
@pytest.mark.parametrize(
    ("left", "right"),
    [((5, 7), (7, 9)), ((5, 7), (7,)), ((7,), (7, 9)), ((7,), (7,)), ((2, 3, 7), (7, 40)),
     ((40, 70), (70, 1)), ((2, 3, 7), (7,))],
)  # fmt: skip
def test_products_have_the_bits_of_numpy_arrays(
    gpu: StandIn, left: tuple[int, ...], right: tuple[int, ...], dtype: Any
) -> None:
    a, b = halves(*left).astype(dtype), halves(*right).astype(dtype)
    expected = tcusim.matmul(a, b, arch="ada")
    assert_bits(tcusim.matmul(OnGpu(a), OnGpu(b)), expected)
    c = halves(*expected.shape).astype(dtype)
    result = tcusim.matmul(OnGpu(a), OnGpu(b), OnGpu(c))
    assert_bits(result, tcusim.matmul(a, b, c, arch="ada"))
    if len(left) > 1 and len(right) == 1:
        assert_bits(tcusim.matvec(OnGpu(a), OnGpu(b)), tcusim.matvec(a, b, arch="ada"))
    assert gpu.copies == 0


@pytest.mark.parametrize(
    ("left", "right"), [((5, 7), (3, 7)), ((2, 5, 70), (2, 70)), ((4, 1, 5, 7), (3, 7))]
)
def test_stacked_vectors(gpu: StandIn, left: tuple[int, ...], right: tuple[int, ...]) -> None:
    a, x = halves(*left), halves(*right)
    expected = tcusim.matvec(a, x, arch="ada")
    assert_bits(tcusim.matvec(OnGpu(a), OnGpu(x)), expected)
    c = OnGpu(halves(*expected.shape))
    out = OnGpu(np.full_like(expected, np.nan))
    assert tcusim.matvec(OnGpu(a), OnGpu(x), c, out=out) is out
    assert_bits(out, tcusim.matvec(a, x, c.values, arch="ada"))
    one = a.reshape(-1, *a.shape[-2:])[-1]
    # Each product has the bits that it has alone.
    np.testing.assert_array_equal(
        tcusim.matvec(one, x[-1], arch="ada"), expected.reshape(-1, a.shape[-2])[-1]
    )


@pytest.mark.parametrize(
    ("left", "right"),
    [((3, 5, 7), (3, 7, 9)), ((5, 7), (2, 3, 7, 9)), ((7,), (3, 7, 4)), ((4, 1, 5, 7), (3, 7, 1)),
     ((1, 20, 30), (1, 30, 20)), ((2, 1, 7), (3, 1, 7, 2))],
)  # fmt: skip
def test_products_of_several_right_matrices(
    gpu: StandIn, left: tuple[int, ...], right: tuple[int, ...]
) -> None:
    for dtype in ("float16", "float32"):
        a, b = halves(*left).astype(dtype), halves(*right).astype(dtype)
        expected = tcusim.matmul(a, b, arch="ada")
        report = Report()
        gpu.runs.clear()
        assert_bits(tcusim.matmul(OnGpu(a), OnGpu(b), stream=5, report=report), expected)
        count = np.prod(np.broadcast_shapes(left[:-2], right[:-2]))
        assert [stream for _, stream in gpu.runs] == [5] * count
        assert report.launches == count
        c = halves(*expected.shape).astype(dtype)
        out = OnGpu(np.full_like(c, np.nan))
        assert tcusim.matmul(OnGpu(a), OnGpu(b), OnGpu(c), out=out) is out
        assert_bits(out, tcusim.matmul(a, b, c, arch="ada"))
    assert len(gpu.prepared) == 4
    assert gpu.copies == 0
    nothing = OnGpu(np.zeros((0, *right[-2:]), np.float16))
    if len(right) == 3 and len(left) < 3:
        result = tcusim.matmul(OnGpu(halves(*left)), nothing)
        assert_bits(result, np.zeros((0, *left[-2:-1], right[-1]), np.float16))


def test_products_of_int8(gpu: StandIn) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((20, 300), (300, 7)))
    exact = (a.astype(int) @ b.astype(int)).astype(np.int32)
    assert_bits(tcusim.matmul(OnGpu(a), OnGpu(b)), exact)
    assert_bits(tcusim.matvec(OnGpu(a), OnGpu(b[:, 0].copy())), exact[:, 0])


def test_products_of_other_types_and_layouts(gpu: StandIn) -> None:
    a, b = halves(30, 20), halves(30, 10)
    result = tcusim.matmul(OnGpu(a.T), OnGpu(b), dtype="float32")
    assert_bits(result, tcusim.matmul(a.T, b, dtype="float32", arch="ada"))
    assert gpu.copies == 1
    result = tcusim.matmul(OnGpu(a.T), OnGpu(b), dtype="float64", algorithm="gemm_naive")
    assert_bits(result, tcusim.matmul(a.T, b, dtype="float64", algorithm="gemm_naive", arch="ada"))
    literal = tcusim.matvec(OnGpu(b), OnGpu(b[0].copy()), acc="f16")
    assert_bits(literal, tcusim.matvec(b, b[0], acc="f16", arch="ada"))


def test_out_stream_and_report_of_products(gpu: StandIn) -> None:
    a, x = halves(40, 30), halves(30)
    out, report = OnGpu(np.empty(40, np.float16)), Report()
    assert tcusim.matvec(OnGpu(a), OnGpu(x), out=out, stream=5, report=report) is out
    assert_bits(out, tcusim.matvec(a, x, arch="ada"))
    assert gpu.runs[-1][1] == 5
    assert (report.arch, report.launches) == ("ada", 1)
    assert report.bytes_read >= a.nbytes
    tcusim.matvec(OnGpu(a), OnGpu(x))
    assert len(gpu.prepared) == 1
    for name in ("matmul", "matvec"):
        function: Any = getattr(tcusim, name)
        with pytest.raises(InputError, match="stream= is for arrays in GPU memory"):
            function(a, x, stream=5)


def test_products_of_nothing(gpu: StandIn) -> None:
    a, b = np.zeros((3, 0), np.float16), np.zeros((0, 4), np.float16)
    assert_bits(tcusim.matmul(OnGpu(a), OnGpu(b)), np.zeros((3, 4), np.float16))
    out: Any = OnGpu(np.zeros((3, 4), np.float16))
    with pytest.raises(Unsupported, match="out= and c for matrices without elements in GPU memory"):
        tcusim.matmul(OnGpu(a), OnGpu(b), out=out)
    assert gpu.runs == []


@pytest.mark.parametrize(
    ("name", "left", "right", "keywords", "text"),
    [
        ("matmul", (3, 4), (5, 6), {}, "a has 4 columns and b 5 rows, which must be equal; got "
         "shapes (3, 4) and (5, 6)"),
        ("matvec", (3, 4), (5,), {}, "a has 4 columns and x 5 elements, which must be equal"),
        ("matmul", (2, 3, 4), (3, 4, 5), {}, "the axes before the matrices cannot be broadcast: "
         "(2,) and (3,), of arrays of shapes (2, 3, 4) and (3, 4, 5)"),
        ("matmul", (2, 3, 4), (2, 5, 4), {}, "a has 4 columns and b 5 rows, which must be equal"),
        ("matmul", (), (3,), {}, "matmul takes arrays of one axis or more, got shapes () and (3,)"),
        ("matmul", (3,), (), {}, "matmul takes arrays of one axis or more, got shapes (3,) and ()"),
        ("matvec", (3,), (3,), {}, "matvec takes a matrix, of two axes or more, and a vector, of "
         "one or more; got shapes (3,) and (3,)"),
        ("matvec", (2, 3, 4), (3, 4), {}, "the axes before the matrices cannot be broadcast"),
        ("matmul", (3, 4), (4, 5), {"c": (5,)}, "c must be of float16, shape (3, 5), as the result "
         "in GPU memory; got float16, (5,)"),
        ("matmul", (3, 4), (4, 5), {"algorithm": "gemv"}, "multiplies a matrix by one vector"),
        ("matmul", (3, 4), (4, 5), {"dtype": "int32"}, "dtype of a float16 array in GPU memory "
         "must be one of"),
    ],
)  # fmt: skip
def test_products_that_cannot_be_done_on_a_gpu(
    gpu: StandIn, name: str, left: Any, right: Any, keywords: dict[str, Any], text: str
) -> None:
    if "c" in keywords:
        keywords = {**keywords, "c": OnGpu(halves(*keywords["c"]))}
    with pytest.raises(InputError) as caught:
        getattr(tcusim, name)(OnGpu(halves(*left)), OnGpu(halves(*right)), **keywords)
    assert text in str(caught.value)
    assert gpu.runs == []


def test_factors_that_do_not_go_together(gpu: StandIn) -> None:
    a, b = halves(3, 4), halves(4, 5)
    for one, two, c, text in (
        (OnGpu(a), b, None, "b is a numpy.ndarray, but a is in GPU memory; copy b there too"),
        (a, OnGpu(b), None, "a is a numpy.ndarray, but b is in GPU memory; copy a there too"),
        (a, b, OnGpu(halves(3, 5)), "a is a numpy.ndarray, but c is in GPU memory; copy a there"),
        (OnGpu(a), OnGpu(b.astype("f4")), None, "a is of float16 and b of float32; in GPU memory "
         "both must be of one type: cast one of them"),
    ):  # fmt: skip
        with pytest.raises(InputError) as caught:
            tcusim.matmul(one, two, c)
        assert text in str(caught.value)
    with pytest.raises(Unsupported, match="float32 arrays in GPU memory are split into bf16 parts"):
        tcusim.matmul(OnGpu(a.astype("f4")), OnGpu(b.astype("f4")), arch="volta")
    a, b = np.zeros((1, 2**16 + 1), np.int8), np.zeros(2**16 + 1, np.int8)
    with pytest.raises(Unsupported, match="sums of more than 65536 products of int8 do not fit in"):
        tcusim.matvec(OnGpu(a), OnGpu(b))


def test_a_plan_of_a_product(gpu: StandIn) -> None:
    a, x = halves(40, 30), halves(30)
    plan = tcusim.plan_product("matvec", rows=40, inner=30, result="float32")
    expected = tcusim.matvec(a, x, dtype="float32")
    np.testing.assert_array_equal(plan(a, x), expected)
    for number in range(2):
        assert_bits(
            plan(OnGpu(a), OnGpu(x), stream=number),
            tcusim.matvec(a, x, dtype="float32", arch="ada"),
        )
    assert [made.title for made in gpu.prepared] == [repr(plan)]
    assert repr(plan) == "Plan('matvec', (40, 30) by (30), float16 to float32: gemv_reduction)"
    text = str(plan)
    assert "launch 1  gemv_reduction: in, x -> out; " in text
    assert "why       gemv_reduction suits a vector on the right" in text
    assert plan.temporaries == ()
    assert not plan.in_place
    added = tcusim.plan_product("matmul", rows=6, inner=30, cols=8, add_c=True)
    b, c = halves(30, 8), halves(2, 3, 8)
    left = a[:6].reshape(2, 3, 30)
    np.testing.assert_array_equal(added(left, b, c), tcusim.matmul(left, b, c))
    named = tcusim.plan_product("matmul", rows=6, inner=30, cols=8, algorithm="gemm_naive")
    assert "algorithm='gemm_naive' was asked for" in str(named)
    assert named is tcusim.plan_product("matmul", rows=6, inner=30, cols=8, algorithm="gemm_naive")


def test_what_a_plan_of_a_product_does_not_take(gpu: StandIn) -> None:
    plan = tcusim.plan_product("matmul", rows=4, inner=3, cols=2)
    a, b, c = halves(4, 3), halves(3, 2), halves(4, 2)
    for arguments, text in (
        ((a[:3], b), "this plan takes a of shape (4, 3), or with more axes and as many rows; got "
         "(3, 3). Make another plan"),
        ((a, b.T), "this plan takes b of shape (3, 2), got (2, 3); make another plan"),
        ((a, b, c), "this plan adds no array; leave c out, or make one with add_c=True"),
        ((a.astype("f4"), b), "this plan takes a of float16, got float32; make another plan, or "
         "cast the array"),
        ((OnGpu(a), b), "b is a numpy.ndarray, but a is in GPU memory; copy b there too"),
        ((a, OnGpu(b)), "a is a numpy.ndarray, but b is in GPU memory; copy a there too, or b to"),
    ):  # fmt: skip
        with pytest.raises(InputError) as caught:
            plan(*arguments)
        assert text in str(caught.value)
    adding = tcusim.plan_product("matmul", rows=4, inner=3, cols=2, add_c=True)
    with pytest.raises(InputError, match="this plan adds an array: give c"):
        adding(a, b)


@pytest.mark.parametrize(
    ("operation", "sizes", "text"),
    [
        ("matmul", {"rows": 3, "inner": 4}, "'matmul' needs cols, the columns of b; 'matvec' has"),
        ("matvec", {"rows": 3, "inner": 4, "cols": 1}, "'matvec' has none"),
        ("matvec", {"rows": 0, "inner": 4}, "rows must be at least 1, got 0"),
        ("product", {"rows": 3, "inner": 4}, "operation"),
    ],
)
def test_plans_of_products_that_cannot_be(operation: str, sizes: Any, text: str) -> None:
    with pytest.raises(InputError, match=text):
        tcusim.plan_product(operation, **sizes)


def test_a_product_is_not_planned_as_a_sum() -> None:
    with pytest.raises(
        InputError, match=r"'matvec' is a product; plan it with tcusim\.plan_product"
    ):
        tcusim.plan("matvec", length=3)
