"""Sums, scans and products within JAX: under `jax.jit`, `jax.vmap` and `jax.grad`.

Arrays on an NVIDIA GPU are computed there, through XLA's FFI; those on the CPU by the simulator,
through `jax.pure_callback`. So are those whose bits the GPU does not have: of another architecture,
or of types that it does not compute. The bits are the same either way; `why_on_host` names the
missing package.
"""

try:
    import jax as _jax  # noqa: F401 - asked for first, so that its absence is told well
except ImportError as error:
    raise ImportError(
        f"tcusim.jax needs jax, which cannot be imported ({error}). Install it with: "
        "pip install 'tcusim[jax]'"
    ) from error

from tcusim.jax.functions import cumsum, matmul, matvec, segment_cumsum, segment_sum, sum
from tcusim.jax.operations import why_on_host

__all__ = [
    "cumsum",
    "matmul",
    "matvec",
    "segment_cumsum",
    "segment_sum",
    "sum",
    "why_on_host",
]
