"""Sums and scans of dask arrays: the bits of one array, however it is cut into chunks.

Everything is lazy. Each chunk is summed independently, along the grid of the whole axis. Chunks
exchange partial sums, which are added in one order for all ways to cut the array.
"""

try:
    import dask.array as _array  # noqa: F401 - asked for first, so that its absence is told well
except ImportError as error:
    raise ImportError(
        f"tcusim.dask needs dask.array, which cannot be imported ({error}). Install it with: "
        "pip install 'tcusim[dask]'"
    ) from error

from tcusim.dask.functions import cumsum, segmented_cumsum, segmented_sum, sum

__all__ = ["cumsum", "segmented_cumsum", "segmented_sum", "sum"]
