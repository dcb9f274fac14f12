"""Sums, scans and products within JAX: under `jax.jit`, `jax.vmap` and `jax.grad`.

The values are computed on the host, by the simulator, through `jax.pure_callback`: right for tests,
models in small, and bits that must be known. Arrays of JAX in GPU memory are computed there by
`tcusim.sum` and its kin, outside of `jax.jit`.
"""

try:
    import jax as _jax  # noqa: F401 - asked for first, so that its absence is told well
except ImportError as error:
    raise ImportError(
        f"tcusim.jax needs jax, which cannot be imported ({error}). Install it with: "
        "pip install 'tcusim[jax]'"
    ) from error

from tcusim.jax.functions import cumsum, matmul, segment_sum, sum

__all__ = ["cumsum", "matmul", "segment_sum", "sum"]
