"""Calls made ready: the one cache, the depth of a call, and arrays of other libraries."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import tcusim
from asked import asked
from device_standin import OnGpu, StandIn
from launch_plans import forget_plans
from tcusim.errors import InputError
from tcusim.simulate.backend import NUMPY


@pytest.fixture(autouse=True)
def _nothing_kept() -> Iterator[None]:
    forget_plans()
    yield
    forget_plans()


def halves(*shape: int) -> NDArray[np.float16]:
    return np.random.default_rng(sum(shape)).integers(-9, 10, shape).astype(np.float16)


# --- The cache ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"a": halves(31)},
        {"a": halves(3, 10)},
        {"a": halves(30).astype(np.float32)},
        {"a": halves(30).astype(">f2")},
        {"segments": 5},
        {"dtype": "float32"},
        {"axis": 0},
        {"tile": "8x32x16"},
        {"arch": "volta"},
        {"acc": "f16"},
        {"algorithm": "reduction_kn"},
        {"backend": "numpy"},
    ],
)
def test_a_call_like_an_earlier_one_but_for_this_has_its_own_result(change: dict[str, Any]) -> None:
    usual: dict[str, Any] = {"a": halves(30), "segments": 10}
    expected = tcusim.segmented_sum(**asked(**usual | change))
    forget_plans()
    for _ in range(2):
        tcusim.segmented_sum(**usual)
        found = tcusim.segmented_sum(**asked(**usual | change))
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        assert found.tobytes() == expected.tobytes()


def test_a_number_of_another_type_is_checked() -> None:
    x = halves(30)
    tcusim.segmented_sum(x, 1)
    for size in (1.0, True):
        with pytest.raises(InputError, match="segments must be the elements"):
            tcusim.segmented_sum(x, size)


def test_an_addend_is_not_forgotten() -> None:
    a = halves(4, 4)
    plain = tcusim.matmul(a, a)
    for c in (1, 1.0, [1.0], np.ones(4, np.float16)):
        np.testing.assert_array_equal(tcusim.matmul(a, a, c), plain + 1)
    np.testing.assert_array_equal(tcusim.matmul(a, a), plain)


def test_offsets_are_looked_at_in_every_call() -> None:
    x = halves(8)
    for middle in (2, 5):
        result = tcusim.segmented_sum(x, [0, middle, 8])
        assert result.tolist() == [x[:middle].sum(), x[middle:].sum()]
    for wrong in ([0, 9, 8], [0, 5, 7], [1, 5, 8]):
        with pytest.raises(InputError, match="offsets must"):
            tcusim.segmented_sum(x, wrong)


def test_calls_by_many_offsets_push_no_others_out() -> None:
    class Nothing:
        name, title = "nothing", "zeros"

        def available(self) -> None:
            return None

        def run(self, plan: Any, inputs: Any, **options: Any) -> dict[str, Any]:
            return {"out": np.zeros(plan.memory["out"].size, np.float16)}

    tcusim.register_backend(Nothing())
    x = halves(900)

    def call() -> Any:
        return tcusim.segmented_sum(x, 10, options={"backend": "nothing"})

    call()
    usual = len(_functions_entered(call))
    for segments in range(1, 300):
        found = tcusim.segmented_sum(x, [*range(segments), 900], options={"backend": "nothing"})
        assert found.size == segments
    assert len(_functions_entered(call)) == usual


# --- The depth of a call --------------------------------------------------------------------------


@pytest.mark.parametrize("arch", ["hopper", "volta"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "int32"])
@pytest.mark.parametrize("name", ["segmented_sum", "cumsum", "matmul", "plan"])
def test_at_most_five_frames_lie_between_a_user_and_the_backend(
    name: str, dtype: str, arch: str
) -> None:
    seen: list[list[str]] = []

    class Noting:
        name, title = "noting", "the simulator, noting who calls it"

        def available(self) -> None:
            return None

        def run(self, plan: Any, inputs: Any, **options: Any) -> Any:
            seen.append([f"{frame.filename}:{frame.name}" for frame in traceback.extract_stack()])
            return NUMPY.run(plan, inputs, **options)

    tcusim.register_backend(Noting())
    x = halves(64).astype(dtype)
    on: dict[str, Any] = {"arch": arch, "backend": "noting"}
    plan = tcusim.plan("sum", length=64, dtype=dtype, **asked(**on))
    calls: dict[str, Any] = {
        "segmented_sum": lambda: tcusim.segmented_sum(x, 16, **asked(**on)),
        "cumsum": lambda: tcusim.cumsum(x, **asked(**on)),
        "matmul": lambda: tcusim.matmul(x.reshape(8, 8), x.reshape(8, 8), **asked(**on)),
        "plan": lambda: plan(x),
    }
    for _ in range(2):
        calls[name]()
    assert seen
    for frames in seen:
        ours = [frame for frame in frames if "/tcusim/" in frame]
        # The fifth is the backend's own.
        assert len(ours) + 1 <= 5, "\n".join(ours)
        assert not any("lambda" in frame for frame in ours), ours


# How many functions of tcusim.arrays a call like an earlier one enters; may only become fewer.
@pytest.mark.parametrize(
    ("keywords", "most"),
    [
        ({"segments": 256}, 30),
        ({"segments": np.arange(0, 4097, 64)}, 61),
        ({"segments": tcusim.Segments(np.arange(0, 4097, 64))}, 46),
        ({"segments": tcusim.Segments(ids=np.arange(4096) // 64)}, 46),
    ],
)
def test_a_warm_call_of_a_numpy_array_enters_few_functions(
    keywords: dict[str, Any], most: int
) -> None:
    x = halves(4096)
    # The second call with the same segments prepares them.
    for _ in range(2):
        tcusim.segmented_sum(x, **keywords)
    entered: list[str] = []

    def note(frame: Any, event: str, arg: Any) -> None:
        if event == "call" and "/tcusim/arrays/" in frame.f_code.co_filename:
            entered.append(f"{frame.f_code.co_filename}:{frame.f_code.co_name}")

    sys.setprofile(note)
    try:
        tcusim.segmented_sum(x, **keywords)
    finally:
        sys.setprofile(None)
    assert len(entered) <= most, entered


# --- Arrays in GPU memory -------------------------------------------------------------------------


class Described(OnGpu):
    """An array that describes itself as torch's tensors do."""

    requires_grad = False
    device = "cuda:0"

    def __init__(self, values: NDArray[Any], address: int = 4096) -> None:
        super().__init__(values)
        self.shape, self.dtype = values.shape, values.dtype
        self.address = address

    def stride(self) -> tuple[int, ...]:
        return self.values.strides

    def is_neg(self) -> bool:
        return False

    def data_ptr(self) -> int:
        return self.address


class Noting(StandIn):
    """A backend that notes its preparations, descriptions and copies."""

    def __init__(self) -> None:
        super().__init__("noting", arch="hopper")
        self.notes: list[str] = []

    def prepare(self, plan: Any, arch: str | None = None) -> Any:
        self.notes.append("prepare")
        return super().prepare(plan, arch)

    def describe(self, array: Any) -> Any:
        self.notes.append("describe")
        return super().describe(array)

    def arranged(self, array: Any, axes: tuple[int, ...], dtype: str) -> Any:
        self.notes.append("arranged")
        found = super().arranged(array, axes, dtype)
        return OnGpu(found.values) if found is array and array.address % 32 else found


@pytest.fixture
def device() -> Noting:
    stand_in = Noting()
    tcusim.register_backend(stand_in)
    return stand_in


def test_a_warm_call_only_launches(device: Noting) -> None:
    x = halves(4, 64)
    calls: dict[str, Any] = {
        "sum": lambda a: tcusim.sum(a, options={"backend": "noting"}),
        "scan": lambda a: tcusim.cumsum(a, axis=1, options={"backend": "noting"}),
        "product": lambda a: tcusim.matvec(
            a, Described(x[0].copy()), options={"backend": "noting"}
        ),
    }
    plan = tcusim.plan("sum", length=256)
    calls["plan"] = lambda a: plan(a)
    device.notes.clear()
    for call in (calls["sum"], calls["scan"], calls["product"]):
        call(Described(x))
        device.notes.clear()
        device.runs.clear()
        call(Described(-x))
        assert (device.notes, len(device.runs)) == ([], 1)


def test_an_array_that_lies_otherwise_is_arranged_in_every_call(device: Noting) -> None:
    x = halves(4, 64)
    for a in (Described(x.T), Described(x, address=4098)):
        for _ in range(2):
            device.notes.clear()
            device.runs.clear()
            result = tcusim.cumsum(a, axis=a.values.ndim - 1, options={"backend": "noting"})
            np.testing.assert_array_equal(result.values, a.values.cumsum(-1))
            assert (device.notes[-1], len(device.runs)) == ("arranged", 1)


def test_a_warm_call_enters_few_functions(device: Noting) -> None:
    """A call like an earlier one enters few functions: each costs a part of a microsecond."""
    x, out = Described(halves(4096)), Described(halves(4096))
    plan = tcusim.plan("cumsum", length=4096, options={"backend": "noting"})
    device.prepare = lambda plan, arch=None: SimpleNamespace(  # type: ignore[method-assign]
        run=lambda inputs, *, out, shape, stream, initial, starts: out
    )
    calls: tuple[tuple[Any, int], ...] = (
        (lambda: plan(x, out=out), 60),
        (lambda: tcusim.cumsum(x, out=out, options={"backend": "noting"}), 90),
    )
    for call, most in calls:
        assert call() is out
        entered = _functions_entered(call)
        assert len(entered) <= most, entered


def _functions_entered(call: Any) -> list[str]:
    """Return the names of the functions, ours and built in, that a call enters."""
    names: list[str] = []

    def note(frame: Any, event: str, arg: Any) -> None:
        if event == "call":
            names.append(frame.f_code.co_name)
        elif event == "c_call":
            names.append(arg.__name__)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return names


@pytest.mark.parametrize("reverse", [False, True])
def test_segments_with_initial_zeros_lie_end_to_end(device: Noting, reverse: bool) -> None:
    x = halves(3, 20)
    options: dict[str, Any] = {"include_initial": True, "reverse": reverse}
    expected = tcusim.segmented_cumsum(x, 5, **options)
    result = tcusim.segmented_cumsum(Described(x), 5, **asked(backend="noting", **options))
    np.testing.assert_array_equal(result.values, expected)
    with pytest.raises(InputError, match="include_initial in GPU memory goes with segments of one"):
        tcusim.segmented_cumsum(Described(x[0]), 6, **asked(backend="noting", **options))


# --- Arrays of other libraries on the CPU ---------------------------------------------------------


class Where(NamedTuple):
    """A device of torch's."""

    type: str


class Tensor:
    """As much of a tensor of torch's as tcusim asks for, on the CPU."""

    is_nested = False
    layout = "torch.strided"

    def __init__(self, values: NDArray[Any], kind: str = "cpu", grad: bool = False) -> None:
        self.values = values
        self.device = Where(kind)
        self.requires_grad = grad

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    @property
    def dtype(self) -> str:
        return f"torch.{self.values.dtype}"

    def stride(self) -> tuple[int, ...]:
        if self.layout != "torch.strided":
            raise RuntimeError("sparse tensors have no strides")
        return self.values.strides

    def detach(self) -> Tensor:
        return self

    def is_neg(self) -> bool:
        return False

    def data_ptr(self) -> int:
        if self.device.type == "meta":
            raise RuntimeError("no data")
        return 4096

    def __dlpack_device__(self) -> tuple[int, int]:
        raise AssertionError("Dynamo cannot trace this")

    def __dlpack__(self, **options: Any) -> Any:
        if self.values.dtype == ml_dtypes.bfloat16:
            raise BufferError("no bfloat16")
        return self.values.__dlpack__(**options)

    @property
    def __cuda_array_interface__(self) -> Any:
        raise AttributeError("not on a GPU")

    def __setitem__(self, key: Any, value: Tensor) -> None:
        self.values[key] = value.values

    def view(self, dtype: Any) -> Tensor:
        return Tensor(self.values.view(dtype))


Tensor.__module__ = "torch"


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be the module torch."""
    module = ModuleType("torch")
    module.asarray = Tensor  # type: ignore[attr-defined]
    module.int16, module.bfloat16 = np.int16, ml_dtypes.bfloat16  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", module)
    monkeypatch.setattr(
        Tensor, "__dlpack_device__", lambda self: self.values.__dlpack_device__(), raising=False
    )


@pytest.mark.usefixtures("torch")
def test_tensors_come_back_as_tensors() -> None:
    x = halves(6, 10)
    for result, expected in (
        (tcusim.cumsum(Tensor(x), axis=1), tcusim.cumsum(x, axis=1)),
        (tcusim.sum(Tensor(x)), tcusim.sum(x)),
        (tcusim.matmul(Tensor(x), Tensor(x.T.copy())), tcusim.matmul(x, x.T)),
        (tcusim.matmul(Tensor(x), x.T), tcusim.matmul(x, x.T)),
        (tcusim.plan("cumsum", length=60)(Tensor(x)), tcusim.cumsum(x.ravel()).reshape(6, 10)),
        (
            tcusim.segmented_sum(Tensor(x), Tensor(np.array([0, 4, 10]))),
            tcusim.segmented_sum(x, [0, 4, 10]),
        ),
    ):
        assert isinstance(result, Tensor)
        np.testing.assert_array_equal(result.values, expected)


@pytest.mark.usefixtures("torch")
def test_out_may_be_a_tensor() -> None:
    x = halves(10)
    out = Tensor(np.zeros(10, np.float16))
    assert tcusim.cumsum(Tensor(x), out=out) is out
    np.testing.assert_array_equal(out.values, x.cumsum())
    with pytest.raises(InputError, match=r"out must be an array of float16, shape \(10,\); got f"):
        tcusim.cumsum(Tensor(x), out=Tensor(np.zeros(9, np.float16)))


@pytest.mark.usefixtures("torch")
def test_out_of_numpy_takes_what_a_tensor_sums_to() -> None:
    x = halves(10)
    out: Any = np.zeros(10, np.float16)
    assert tcusim.cumsum(Tensor(x), out=out) is out
    np.testing.assert_array_equal(out, x.cumsum())


@pytest.mark.usefixtures("torch")
def test_out_may_be_the_tensor_itself() -> None:
    x = halves(10)
    a = Tensor(x.copy())
    assert tcusim.cumsum(a, out=a) is a
    np.testing.assert_array_equal(a.values, x.cumsum())


@pytest.mark.usefixtures("torch")
def test_a_tensor_that_cannot_be_written_to_is_no_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Tensor, key: Any, value: Tensor) -> None:
        raise TypeError("arrays of this library are immutable")

    monkeypatch.setattr(Tensor, "__setitem__", refuse)
    text = r"out cannot be written to: arrays of this library are immutable\. Leave it out"
    with pytest.raises(InputError, match=text):
        tcusim.cumsum(Tensor(halves(10)), out=Tensor(halves(10)))


class FakeTensor(Tensor):
    pass


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            {"requires_grad": True},
            "a requires a gradient, which would be lost here. Use tcusim.torch, which has "
            "autograd; or pass a.detach(), or call within torch.no_grad()",
        ),
        ({"device": Where("meta")}, "without data, as torch.compile makes to trace"),
        ({"is_nested": True}, "a is a nested tensor. Pass its values, a dense tensor, and for "
         "segments of unequal lengths their offsets"),
        ({"layout": "torch.sparse_csr"}, "a is a sparse tensor. Pass its values"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_tensors_that_carry_more_than_their_elements(
    change: dict[str, Any], text: str, kind: str
) -> None:
    a = Tensor(halves(4), kind)
    for name, value in change.items():
        setattr(a, name, value)
    plan = tcusim.plan("sum", length=4)
    for call in (tcusim.sum, tcusim.cumsum, plan, lambda x: tcusim.segmented_sum(x, 2)):
        with pytest.raises(InputError) as caught:
            call(a)
        assert text in str(caught.value)
    with pytest.raises(InputError, match=text.split(".")[0].replace("a ", "b ", 1)):
        tcusim.matmul(halves(4), a)


def test_a_tensor_without_data() -> None:
    with pytest.raises(InputError, match=r"FakeTensor without data, .*torch\.compiler\.disable"):
        tcusim.sum(FakeTensor(halves(3), "cuda"))


class TensorOfTensors(Tensor):
    """torch's "wrapper subclass", such as a DTensor: its own address is 0."""

    def __tensor_flatten__(self) -> Any: ...


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_a_tensor_whose_elements_are_in_others(kind: str) -> None:
    a = TensorOfTensors(halves(4), kind)
    plan = tcusim.plan("sum", length=4)
    for call in (tcusim.sum, tcusim.cumsum, plan, tcusim.partials):
        with pytest.raises(InputError, match=r"elements are in other tensors.*a\.full_tensor\(\)"):
            call(a)


@pytest.mark.usefixtures("torch")
def test_a_bfloat16_tensor_on_the_cpu() -> None:
    x = halves(4).astype(ml_dtypes.bfloat16)
    result = tcusim.cumsum(Tensor(x))
    assert isinstance(result, Tensor)
    assert result.values.dtype == ml_dtypes.bfloat16
    assert result.values.tobytes() == tcusim.cumsum(x).tobytes()


def test_an_array_that_numpy_cannot_take() -> None:
    class Strange:
        def __dlpack__(self, **options: Any) -> Any:
            raise BufferError("on the moon")

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

    with pytest.raises(InputError, match=r"Strange that NumPy cannot take: on the moon\. Copy it"):
        tcusim.sum(Strange())


@pytest.mark.parametrize("name", ["sum", "cumsum"])
def test_masked_arrays(name: str) -> None:
    masked = np.ma.masked_array(halves(4), [False, True, False, False])
    text = r"a is a masked array, and masks are not looked at\. Pass a\.filled\(0\)"
    with pytest.raises(InputError, match=text):
        getattr(tcusim, name)(masked)
    with pytest.raises(InputError, match=text):
        tcusim.plan(name, length=4)(masked)
    with pytest.raises(InputError, match=r"c is a masked array"):
        tcusim.matmul(halves(2, 2), halves(2, 2), np.ma.masked_array(halves(2)))


@pytest.mark.parametrize("axis", [True, np.True_])
def test_a_bool_is_no_axis(axis: Any) -> None:
    x = np.ones((2, 2), np.float16)
    with pytest.raises(InputError, match="axis must be an integer"):
        tcusim.sum(x, axis=axis)
    with pytest.raises(InputError, match="axis must be an integer"):
        tcusim.sum(x, axis=(0, axis))
    for call in (tcusim.cumsum, tcusim.cumulative_sum):
        with pytest.raises(InputError, match="axis must be one integer"):
            call(x, axis=axis)
    for by_segments in (tcusim.segmented_sum, tcusim.segmented_cumsum):
        with pytest.raises(InputError, match="axis must be one integer"):
            by_segments(x, 2, axis=axis)


@pytest.mark.parametrize("strides", [(0,), (0, 2), (1,), (2, 2), (2, 4), (-2, 2)])
def test_an_out_with_several_elements_in_one_place_is_refused(strides: tuple[int, ...]) -> None:
    x = np.ones((3,) * len(strides), np.float16)
    out = np.lib.stride_tricks.as_strided(np.zeros(9, np.float16)[4:], x.shape, strides)
    for call in (tcusim.cumsum, lambda a, **more: tcusim.segmented_cumsum(a, 3, **more)):
        with pytest.raises(InputError, match="out holds several elements in one place"):
            call(x, axis=-1, out=out)


def test_an_out_of_interleaved_axes_is_filled() -> None:
    """No stride is as long as the other axis, and each element has a place all the same."""
    memory = np.zeros(12, np.float16)
    out = np.lib.stride_tricks.as_strided(memory, (2, 3), (6, 4))
    assert tcusim.cumsum(np.ones((2, 3), np.float16), axis=1, out=out) is out
    assert memory.tolist() == [1, 0, 2, 1, 3, 2, 0, 3, 0, 0, 0, 0]
