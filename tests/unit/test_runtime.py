"""Kernels are loaded once and launched on any stream; failures have messages."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from gpu_standin import LONG, PROGRAM, OnGpu, StandIn, X, in_chunks, run
from tcusim.algorithms import build
from tcusim.errors import BackendUnavailable, InputError, Unsupported
from tcusim_cuda import runtime
from tcusim_cuda.cubin import Usage
from tcusim_cuda.driver import DriverError
from tcusim_cuda.emit import emit
from tcusim_cuda.runtime import LaunchError, Place, Runtime


@pytest.mark.parametrize(
    "stream",
    [
        9,
        SimpleNamespace(ptr=9),
        SimpleNamespace(handle=9),
        SimpleNamespace(cuda_stream=9),
        SimpleNamespace(__cuda_stream__=lambda: (0, 9)),
    ],
)
def test_a_stream_of_any_library(gpu: StandIn, stream: Any) -> None:
    run(gpu, PROGRAM, {"in": OnGpu(X)}, stream=stream)
    assert "launch 2 x 32 on 9" in gpu.driver.notes


def test_not_a_stream(gpu: StandIn) -> None:
    with pytest.raises(InputError, match="stream must be a stream of CuPy, PyCUDA, torch or cuda"):
        run(gpu, PROGRAM, {"in": OnGpu(X)}, stream="fast")


def test_too_little_shared_memory(gpu: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    cubin = SimpleNamespace(code=b"", usage=Usage(40, 1536, 0, 100, {}), compiler="")
    monkeypatch.setattr(runtime, "compile_kernels", lambda kernels, sm: [cubin])
    gpu.driver.shared = 1000
    with pytest.raises(Unsupported, match="needs 1536 bytes of shared memory a block, Stand-in"):
        Runtime.loaded(gpu, [emit(PROGRAM)], Place(0))


def test_a_kernel_is_loaded_once(gpu: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    cubin = SimpleNamespace(code=b"", usage=Usage(40, 1536, 0, 100, {}), compiler="")
    compiled: list[list[str]] = []

    def compile_kernels(kernels: Sequence[Any], sm: int) -> Any:
        compiled.append([kernel.name for kernel in kernels])
        return [cubin] * len(kernels)

    monkeypatch.setattr(runtime, "compile_kernels", compile_kernels)
    one, other = emit(PROGRAM), emit(build("scan_k"))
    first = Runtime.loaded(gpu, [one, other, one], Place(0))
    assert first[0] is first[2]
    assert Runtime.loaded(gpu, [emit(PROGRAM), other], Place(0)) == first[:2]
    assert compiled == [["reduction_k", "scan_k"]]


@pytest.mark.parametrize(
    "error", [ZeroDivisionError("no"), MemoryError("no"), RuntimeError("no"), DriverError("no")]
)
def test_a_failed_launch_says_what_was_asked_for(gpu: StandIn, error: Exception) -> None:
    gpu.fails = error
    with pytest.raises(LaunchError) as caught:
        run(gpu, PROGRAM, {"in": X})
    assert str(caught.value) == (
        f"stand-in: reduction_k failed: {type(error).__name__}: no. reduction_k was to run as 2 "
        "blocks of 32 threads, 0 bytes of dynamic shared memory, 1536 of static, 40 registers a "
        "thread."
    )
    assert caught.value.__cause__ is error


def test_a_failed_launch_of_a_plan_says_which(gpu: StandIn) -> None:
    gpu.fails = ZeroDivisionError("no")
    with pytest.raises(LaunchError) as caught:
        gpu.prepare(in_chunks(), "hopper").run({"in": OnGpu(LONG)}, shape=(LONG.size,))
    assert str(caught.value) == (
        "stand-in: a plan in chunks failed: ZeroDivisionError: no. reduction_tn was to run as 4 "
        "blocks of 32 threads, 0 bytes of dynamic shared memory, 1536 of static, 40 registers a "
        "thread."
    )


@pytest.mark.parametrize(("compiler", "explained"), [("NVRTC 13.0", True), ("NVRTC 12.4", False)])
def test_a_kernel_of_a_newer_compiler_that_is_not_loaded(
    gpu: StandIn, monkeypatch: pytest.MonkeyPatch, compiler: str, explained: bool
) -> None:
    def refuse(code: bytes, kernel: Any) -> Any:
        raise DriverError("device kernel image is invalid (CUDA error 200)")

    cubin = SimpleNamespace(code=b"", usage=Usage(40, 1536, 0, 100, {}), compiler=compiler)
    monkeypatch.setattr(runtime, "compile_kernels", lambda kernels, sm: [cubin])
    monkeypatch.setattr(gpu, "load", refuse)
    kind: type[Exception] = BackendUnavailable if explained else DriverError
    said = r"NVRTC 13\.0 compiled .* driver, .* of CUDA 12\.4, .*200" if explained else "^device"
    with pytest.raises(kind, match=said):
        Runtime.loaded(gpu, [emit(PROGRAM)], Place(0))
