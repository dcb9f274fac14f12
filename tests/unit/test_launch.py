"""Programs on a GPU: NumPy arrays go there and back, and GPU arrays are used in place."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import tcusim
from gpu_standin import EXPECTED, PROGRAM, OnGpu, SpeaksDlpack, StandIn, X, run
from tcusim.algorithms import build
from tcusim.errors import InputError
from tcusim.program.grammar import Program
from tcusim.simulate.interpreter import run_numpy
from tcusim_cuda import CUDA, CUPY, PYCUDA
from tcusim_cuda.launch import Launcher
from tcusim_cuda.runtime import Loaded, Place
from tcusim_cuda.tapped import emit_tapped
from tcusim_host import BACKEND, run_kernel


def test_numpy_in_numpy_out(gpu: StandIn) -> None:
    result = run(gpu, PROGRAM, {"in": X})
    np.testing.assert_array_equal(result["out"], EXPECTED)
    assert type(result["out"]) is np.ndarray
    assert gpu.driver.notes == ["launch 2 x 32 on 0", "copy 128 bytes back on 0"]


def test_an_array_of_another_type_that_holds_the_same_values(gpu: StandIn) -> None:
    result = run(gpu, PROGRAM, {"in": X.astype(np.float64).tolist()})
    np.testing.assert_array_equal(result["out"], EXPECTED)
    with pytest.raises(InputError, match=r"input 'in'.*cannot hold its element \[0\] = 0\.1"):
        run(gpu, PROGRAM, {"in": np.full(512, 0.1)})


def test_bf16_travels_as_bits(gpu: StandIn) -> None:
    program = build("scan_k", ab="bf16", result="bf16")
    x = np.where(np.arange(512) % 7, 1.0, -2.5).astype(np.float32)
    result = run(gpu, program, {"in": x})["out"]
    expected = run_numpy(program, {"in": x})["out"]
    assert result.dtype == expected.dtype
    np.testing.assert_array_equal(result.astype(np.float32), expected.astype(np.float32))


def test_out_is_written_and_returned(gpu: StandIn) -> None:
    out = np.empty(32, np.float32)
    assert run(gpu, PROGRAM, {"in": X}, out={"out": out})["out"] is out
    np.testing.assert_array_equal(out, EXPECTED)


def test_outs_that_do_not_fit(gpu: StandIn) -> None:
    frozen = np.empty(32, np.float32)
    frozen.flags.writeable = False
    for out, said in (
        (np.empty(31, np.float32), r"out 'out' must have shape \(32,\), got \(31,\)"),
        (np.empty(32, np.float64), "out 'out' must be of float32, got float64"),
        (frozen, "out 'out' is read-only"),
        ([0.0] * 32, "out 'out' must be a NumPy array, as the inputs are"),
    ):
        with pytest.raises(InputError, match=said):
            run(gpu, PROGRAM, {"in": X}, out={"out": out})
    with pytest.raises(InputError, match="reduction_k has no output 'sum' for out=; its out"):
        run(gpu, PROGRAM, {"in": X}, out={"sum": np.empty(32, np.float32)})
    assert gpu.launches == 0


def test_inputs_that_do_not_fit(gpu: StandIn) -> None:
    with pytest.raises(InputError, match="inputs must be in; got x"):
        run(gpu, PROGRAM, {"x": X})
    with pytest.raises(InputError, match="length = 500 is not a multiple of 256"):
        run(gpu, PROGRAM, {"in": X[:500]})
    with pytest.raises(InputError, match=r"must be flat \(one axis\), got shape \(2, 256\)"):
        run(gpu, PROGRAM, {"in": X.reshape(2, 256)})


def test_nothing_is_launched_for_no_elements(gpu: StandIn) -> None:
    result = run(gpu, PROGRAM, {"in": X[:0]})
    assert result["out"].shape == (0,)
    assert gpu.launches == 0


def test_poison_comes_before_the_launch(gpu: StandIn) -> None:
    run(gpu, PROGRAM, {"in": X}, poison=True)
    assert gpu.driver.notes[:-1] == ["poison 32 f32 on 0", "launch 2 x 32 on 0"]


def test_the_array_interface_is_used_in_place(gpu: StandIn) -> None:
    array = OnGpu(X)
    result = run(gpu, PROGRAM, {"in": array})["out"]
    assert isinstance(result, OnGpu)
    np.testing.assert_array_equal(result.values, EXPECTED)


def test_dlpack_is_used_in_place(gpu: StandIn) -> None:
    array = SpeaksDlpack(X)
    result = run(gpu, PROGRAM, {"in": array})["out"]
    np.testing.assert_array_equal(result.values, EXPECTED)
    # 1 is DLPack's name of the default stream.
    assert set(array.streams) == {1}


def test_a_program_that_is_run_again_is_ready(gpu: StandIn) -> None:
    program = build("scan_single_pass", masked=True)
    for length in (512, 512, 700):
        x = np.arange(length).astype(np.float16)
        result = run(gpu, program, {"in": OnGpu(x)})["out"]
        np.testing.assert_array_equal(result.values, run_numpy(program, {"in": x})["out"])
    # Memory for the status words of two sizes, and three results.
    assert (gpu.loadings, gpu.made) == (2, 2 + 3)


def test_out_on_the_gpu(gpu: StandIn) -> None:
    out = OnGpu(np.zeros(32, np.float32))
    assert run(gpu, PROGRAM, {"in": OnGpu(X)}, out={"out": out})["out"] is out
    np.testing.assert_array_equal(out.values, EXPECTED)


def test_streams_wait_for_each_other(gpu: StandIn) -> None:
    out = OnGpu(np.zeros(32, np.float32), stream=5)
    run(gpu, PROGRAM, {"in": OnGpu(X, stream=3)}, out={"out": out})
    assert gpu.driver.notes == ["3 waits for 5", "launch 2 x 32 on 3", "5 waits for 3"]


def test_zeros_on_the_gpu(gpu: StandIn) -> None:
    made = gpu.zeros(OnGpu(np.zeros((0, 3), np.float16)), (3,), "float32")
    assert (made.values.shape, made.values.dtype) == ((3,), np.float32)
    assert gpu.driver.notes == ["clear 12 bytes on 0"]
    assert gpu.zeros(OnGpu(X[:0]), (0,), "int32").values.shape == (0,)


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(
    ("launcher", "remedy"),
    [
        (CUDA, "Install it with: pip install 'tcusim[cuda]'"),
        (PYCUDA, "Install it with: pip install 'tcusim[pycuda]'"),
        (CUPY, r"Install it with: pip install 'tcusim[cupy]' (for CUDA 12), or pip install cupy-"),
    ],
)
def test_no_library(launcher: Launcher, remedy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(importlib, "import_module", absent)
    reason = launcher.available()
    assert reason is not None
    start = f"{launcher.module} cannot be imported (No module named '{launcher.module}'). {remedy}"
    assert reason.startswith(start)


# --- Taps -----------------------------------------------------------------------------------------


class OnHost(StandIn):
    """A launcher that runs its kernels, as they are, on the CPU."""

    def loaded(self, kernels: Sequence[Any], place: Place) -> tuple[Loaded, ...]:
        self.kernels = {kernel.program: kernel for kernel in kernels}
        return super().loaded(kernels, place)

    def computed(self, program: Program, inputs: dict[str, Any]) -> dict[str, Any]:
        return run_kernel(self.kernels[program], inputs)

    def native_arch(self, array: Any = None) -> str | None:
        return "hopper"


@pytest.mark.skipif(BACKEND.available() is not None, reason=f"host: {BACKEND.available()}")
@pytest.mark.usefixtures("host_cache")
def test_a_kernel_with_taps_is_launched_and_its_records_are_copied_back(gpu: StandIn) -> None:
    launcher = OnHost(gpu.driver)
    kept = tcusim.trace(PROGRAM, {"in": X}, backend=launcher, warps=1)
    assert launcher.launches == 1
    assert (kept.about.place, kept.about.arch) == ("stand-in on Stand-in", "hopper")
    assert kept.first_difference(tcusim.trace(PROGRAM, {"in": X}, warps=1)) is None
    (text,) = launcher.texts
    assert text == emit_tapped(PROGRAM).kernel.text
    # Unwritten elements are as on the simulator.
    assert "poison 32 f32 on 0" in launcher.driver.notes
