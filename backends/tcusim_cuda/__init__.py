"""Tensor-core programs as CUDA kernels: emitted, compiled, and launched on an NVIDIA GPU.

``CUDA``, ``CUPY`` and ``PYCUDA`` are the backends "cuda" (the driver, for arrays of any library),
"cupy" and "pycuda". Importing this package imports no GPU library, and needs no GPU.
"""

from __future__ import annotations

from tcusim_cuda.compile import CompileError, Cubin, compile_kernel
from tcusim_cuda.cubin import Usage, read_usage
from tcusim_cuda.driver import arch_name, device_sm
from tcusim_cuda.emit import emit
from tcusim_cuda.kernel import Kernel
from tcusim_cuda.launch_cuda import CudaArray, CudaLauncher
from tcusim_cuda.launch_cupy import CupyLauncher
from tcusim_cuda.launch_pycuda import PycudaLauncher
from tcusim_cuda.runtime import LaunchError

__all__ = [
    "CUDA",
    "CUPY",
    "PYCUDA",
    "CompileError",
    "Cubin",
    "CudaArray",
    "Kernel",
    "LaunchError",
    "Usage",
    "arch_name",
    "compile_kernel",
    "device_sm",
    "emit",
    "read_usage",
]

CUDA = CudaLauncher()
PYCUDA = PycudaLauncher()
CUPY = CupyLauncher()
