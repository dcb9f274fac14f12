"""The ELF reader: resources of compiled kernels, against the compiler's own report."""

from __future__ import annotations

import dataclasses
import re
import struct
from pathlib import Path
from typing import Any

import pytest

from tcusim.algorithms import build
from tcusim.errors import InputError
from tcusim_cuda.compile import Cubin, Toolkit, compile_kernel, why_no_compiler
from tcusim_cuda.cubin import read_usage
from tcusim_cuda.emit import emit

REASON = why_no_compiler()
needs_nvrtc = pytest.mark.skipif(REASON is not None, reason=str(REASON))

ALL_SM = (70, 75, 80, 86, 89, 90, 100, 120)
# One of each generation with files of its own.
SOME_SM = (70, 75, 80, 90, 120)

# Tensor-core instructions that one mma of a WMMA shape becomes, by generation. Source: nvdisasm
# of CUDA 12.8 (sm_70) and of CUDA 13.5.
HMMA_OF_F32 = {70: {"HMMA.884": 16}, 75: {"HMMA": 4}}
HMMA_OF_F16 = {70: {"HMMA.884": 8}, 75: {"HMMA": 4}}
FROM_AMPERE = {"HMMA": 2}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TCUSIM_CACHE_DIR", str(tmp_path))


def compiled(sm: int, algorithm: str = "reduction_k", *options: str, **how: Any) -> Cubin:
    """Compile an algorithm, or skip if this compiler does not know the GPU."""
    if sm not in Toolkit.find().targets:
        pytest.skip(f"{Toolkit.find().title} does not compile for sm_{sm}")
    return compile_kernel(emit(build(algorithm, **how)), sm, options=options)


@needs_nvrtc
@pytest.mark.parametrize("sm", ALL_SM)
def test_one_mma_is_so_many_instructions(sm: int) -> None:
    f32 = compiled(sm, acc="f32").usage
    f16 = compiled(sm, acc="f16").usage
    assert f32.tensor_core == HMMA_OF_F32.get(sm, FROM_AMPERE)
    assert f16.tensor_core == HMMA_OF_F16.get(sm, FROM_AMPERE)


@needs_nvrtc
@pytest.mark.parametrize("sm", [80, 90, 120])
@pytest.mark.parametrize(
    ("shape", "ab", "acc", "expected"),
    [
        ("32x8x16", "f16", "f32", {"HMMA": 2}),
        ("8x32x16", "f16", "f32", {"HMMA": 2}),
        ("16x16x16", "bf16", "f32", {"HMMA": 2}),
        ("16x16x8", "tf32", "f32", {"HMMA": 4}),
        ("8x8x4", "f64", "f64", {"DMMA": 1}),
        ("16x8x16", "f16", "f32", {"HMMA": 1}),
        ("16x8x8", "f16", "f32", {"HMMA": 1}),
    ],
)
def test_other_types_and_mma_sync(
    sm: int, shape: str, ab: str, acc: str, expected: dict[str, int]
) -> None:
    usage = compiled(sm, tile=shape, ab=ab, acc=acc).usage
    assert usage.tensor_core == expected


@needs_nvrtc
def test_a_program_without_mma_has_no_tensor_core_instruction() -> None:
    assert compiled(80, "reduction_ragged_simt").usage.tensor_core == {}


@needs_nvrtc
@pytest.mark.parametrize("sm", SOME_SM)
@pytest.mark.parametrize("algorithm", ["reduction_ragged_simt", "scan_tn"])
def test_usage_is_what_the_compiler_prints(sm: int, algorithm: str) -> None:
    cubin = compiled(sm, algorithm, "--ptxas-options=-v")
    printed = re.findall(r"(\d+) (registers|bytes smem)", cubin.log)
    said = {what: int(number) for number, what in printed}
    assert cubin.usage.registers == said["registers"]
    assert cubin.usage.shared_bytes == said["bytes smem"]
    assert cubin.usage.stack_bytes == 0


# 1024 threads may have 64 registers each, too few for this array.
CROWDED = """
extern "C" __global__ void __launch_bounds__(1024) crowded(float* out, const float* in)
{
    float x[160];
    #pragma unroll
    for (int i = 0; i < 160; ++i) x[i] = in[1024 * i + threadIdx.x];
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < 160; ++i) out[1024 * i + threadIdx.x] = x[i] * x[(7 * i) % 160];
}
"""


@needs_nvrtc
@pytest.mark.parametrize("sm", SOME_SM)
def test_what_does_not_fit_in_registers_is_on_the_stack(sm: int) -> None:
    if sm not in Toolkit.find().targets:
        pytest.skip(f"{Toolkit.find().title} does not compile for sm_{sm}")
    kernel = dataclasses.replace(emit(build("reduction_k")), name="crowded", text=CROWDED, paths=())
    cubin = compile_kernel(kernel, sm, options=["--ptxas-options=-v"])
    (stack,) = re.findall(r"(\d+) bytes stack frame", cubin.log)
    assert cubin.usage.stack_bytes == int(stack) > 0
    assert cubin.usage.registers == 64


def test_not_an_elf_file() -> None:
    with pytest.raises(InputError, match=r"these 4 bytes are no cubin: it begins with b'\\x7fELF"):
        read_usage(b"nope", "k")


def test_an_elf_file_of_another_machine() -> None:
    header = b"\x7fELF\x02\x01" + bytes(12) + struct.pack("<H", 62) + bytes(44)
    with pytest.raises(InputError, match=r"machine 62, not for an NVIDIA GPU \(190\)"):
        read_usage(header, "k")


@needs_nvrtc
def test_an_unknown_kernel() -> None:
    code = compiled(80).code
    with pytest.raises(InputError, match="holds no kernel 'other'; it has reduction_k"):
        read_usage(code, "other")


@needs_nvrtc
def test_a_cubin_that_was_cut_is_an_error_unless_nothing_is_missed() -> None:
    cubin = compiled(80)
    refused = []
    for length in range(0, len(cubin.code), 97):
        try:
            usage = read_usage(cubin.code[:length], "reduction_k")
        except InputError as error:
            refused.append(str(error))
        else:
            assert usage == cubin.usage
    assert len(refused) > len(cubin.code) // 97 // 2
    assert all(re.search("cut short|damaged|no cubin", text) for text in refused)
