"""Tensor-core programs as CUDA kernels: emitted, compiled, and launched through PyCUDA or CuPy.

``PYCUDA`` and ``CUPY`` are the backends "pycuda" and "cupy". Importing this package imports neither
library, and needs no GPU.
"""

from __future__ import annotations

from tcusim_cuda.compile import CompileError, Cubin, compile_kernel
from tcusim_cuda.cubin import Usage, read_usage
from tcusim_cuda.driver import device_sm, unit_name
from tcusim_cuda.emit import emit
from tcusim_cuda.kernel import Kernel
from tcusim_cuda.launch import LaunchError
from tcusim_cuda.launch_cupy import CupyLauncher
from tcusim_cuda.launch_pycuda import PycudaLauncher

__all__ = [
    "CUPY",
    "PYCUDA",
    "CompileError",
    "Cubin",
    "Kernel",
    "LaunchError",
    "Usage",
    "compile_kernel",
    "device_sm",
    "emit",
    "read_usage",
    "unit_name",
]

PYCUDA = PycudaLauncher()
CUPY = CupyLauncher()
