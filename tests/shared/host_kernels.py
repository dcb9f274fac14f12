"""Kernels for the CPU that are written by hand."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from tcusim.algorithms import build as build_program
from tcusim.machine import Values
from tcusim.machine.shapes import shape_of
from tcusim.program.grammar import Buffer, BufferRole, Extent, Index, Program, Scalar
from tcusim_cuda.kernel import Kernel
from tcusim_cuda.runtime import Call
from tcusim_host import BACKEND
from tcusim_host.build import build as build_kernel
from tcusim_host.run import NumericsRow, _Report, unwritten_arguments

# Marks of tests that compile for the CPU: they need a compiler, and leave the user's cache alone.
HOST_ALONE = [
    pytest.mark.skipif(BACKEND.available() is not None, reason=f"host: {BACKEND.available()}"),
    pytest.mark.usefixtures("host_cache"),
]
LENGTH = Index.symbol("length")


# Written by hand: sums of 16 consecutive elements, the first algorithm of the paper.
BY_HAND = """\
#include <cuda_fp16.h>
#include <mma.h>
using namespace nvcuda;

extern "C" __global__ void __launch_bounds__(32)
by_hand(const half* __restrict__ in, float* __restrict__ out, const long long length)
{
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    const long long block = blockIdx.x;
    __shared__ __align__(32) half c_P[256];
    __shared__ __align__(32) float s_V_of[1][256];
    float* const s_V = s_V_of[warp];
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> P;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> A;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> V;
    for (int e = threadIdx.x; e < 256; e += blockDim.x) {
        c_P[e] = __float2half_rn(e / 16 == 0 ? 1.0f : 0.0f);
    }
    __syncthreads();
    wmma::load_matrix_sync(P, c_P, 16);
    wmma::fill_fragment(V, 0.0f);
    wmma::load_matrix_sync(A, in + (256*block), 16);
    wmma::mma_sync(V, P, A, V);
    wmma::store_matrix_sync(s_V, V, 16, wmma::mem_col_major);
    __syncwarp();
    for (int e = lane; e < 16; e += 32) out[16*block + e] = s_V[16*e];
}
"""


def kernel_of(
    text: str, name: str = "by_hand", program: Program | None = None, warps: int = 1
) -> Kernel:
    return Kernel(
        name=name,
        text=text,
        program=program or build_program("reduction_k"),
        threads=32 * warps,
        dynamic_shared_bytes=0,
        min_sm=70,
        paths=("",) * len(text.splitlines()),
    )


def small_kernel(
    body: str, source: str = "f32", target: str = "f32", warps: int = 1, elements: int = 32
) -> Kernel:
    """Return a kernel: each block takes and gives `elements` elements."""
    types = {"f16": "half", "bf16": "__nv_bfloat16", "f32": "float", "f64": "double"}
    text = (
        '#include <mma.h>\n#include "tcusim.cuh"\nusing namespace nvcuda;\n'
        f'extern "C" __global__ void small(const {types[source]}* __restrict__ in, '
        f"{types[target]}* __restrict__ out, const long long length) {{\n"
        f"    const int lane = threadIdx.x % 32;\n    const int warp = threadIdx.x / 32;\n"
        f"    const long long block = blockIdx.x;\n{body}\n}}\n"
    )
    program = Program(
        name="small",
        shape=shape_of("16x16x16"),
        ab="f16",
        acc="f32",
        scalars=(Scalar("length"),),
        buffers=(
            Buffer("in", source, Extent(LENGTH), BufferRole.INPUT),
            Buffer("out", target, Extent(LENGTH), BufferRole.OUTPUT),
        ),
        blocks=Extent(LENGTH, elements),
        warps=warps,
        steps=(),
    )
    return kernel_of(text, "small", program, warps)


def same_bits(x: Any, y: Any) -> bool:
    return np.asarray(x).tobytes() == np.asarray(y).tobytes()


def halves(count: int, seed: int = 0) -> Values:
    return np.random.default_rng(seed).standard_normal(count).astype(np.float16)


def launch_plain(call: Call) -> None:
    """Launch on the CPU a kernel that no program stands behind."""
    kernel: Any = call.kernel
    library = build_kernel(kernel)
    order = np.arange(call.sizes[0])
    report, row = _Report(), NumericsRow()
    with library.lock:
        failed = library.functions.tcusim_launch(
            library.entry,
            ctypes.c_void_p(call.pointers_address),
            ctypes.c_void_p(order.ctypes.data),
            ctypes.c_int64(order.size),
            ctypes.c_int32(kernel.threads),
            ctypes.c_uint64(0),
            *unwritten_arguments(()),
            ctypes.c_void_p(None),
            ctypes.c_int32(0),
            ctypes.byref(row),
            ctypes.byref(report),
        )
    assert not failed
