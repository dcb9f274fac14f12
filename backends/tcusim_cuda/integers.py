"""Offsets and ids in GPU memory: their facts, and offsets made of them, by kernels of our own.

The kernels are written by hand. Nothing but a few numbers is copied to the computer's memory.
"""

from __future__ import annotations

import functools
from array import array as words_array
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from tcusim.backends import IntegerFacts
from tcusim.errors import Unsupported
from tcusim_cuda.arrays import DeviceArray
from tcusim_cuda.driver import Driver
from tcusim_cuda.kernel import PlainKernel
from tcusim_cuda.libraries import arranged, library_of, on_gpu
from tcusim_cuda.runtime import Call, Place, Runtime
from tcusim_cuda.session import new_array, opened, ordered

_THREADS: Final = 256
# The integers of a block if there are blocks enough, and the maximum of blocks: few rows are to
# be copied, and some 1000 blocks fill a GPU.
_PER_BLOCK: Final = 2048
_MOST_BLOCKS: Final = 1024
_C_TYPES: Final = {"int32": "int", "int64": "long long"}

# The words of a row: of the first place whose value is greater than the next one (the number of
# values if there is none) and of these two values; of the greatest difference and the first place
# before it; of both ends.
_DOWN, _VALUE, _NEXT, _LONGEST, _PLACE, _FIRST, _LAST, _WORDS = range(8)

# Differences are taken modulo 2**64: of values that decrease nobody asks for them.
_FACTS: Final = """\
extern "C" __global__ void __launch_bounds__(256)
integer_facts(
    const INTEGER* __restrict__ values, long long* __restrict__ rows, const long long count
)
{
    __shared__ long long downs[256], longests[256], places[256];
    const int thread = threadIdx.x;
    const long long step = 256LL * gridDim.x;
    long long down = count, longest = 0, place = 0;
    #pragma unroll 4
    for (long long at = 256LL * blockIdx.x + thread; at + 1 < count; at += step) {
        const INTEGER value = values[at], next = values[at + 1];
        if (next < value && at < down) down = at;
        const long long length = (long long)((unsigned long long)next - (unsigned long long)value);
        if (length > longest) {
            longest = length;
            place = at;
        }
    }
    downs[thread] = down;
    longests[thread] = longest;
    places[thread] = place;
    for (int half = 128; half > 0; half /= 2) {
        __syncthreads();
        if (thread < half) {
            const int other = thread + half;
            if (downs[other] < downs[thread]) downs[thread] = downs[other];
            if (longests[other] > longests[thread]
                || (longests[other] == longests[thread] && places[other] < places[thread])) {
                longests[thread] = longests[other];
                places[thread] = places[other];
            }
        }
    }
    if (thread == 0) {
        long long* const row = rows + 7 * blockIdx.x;
        const long long at = downs[0] < count ? downs[0] : 0;
        row[0] = downs[0];
        row[1] = values[at];
        row[2] = values[at + 1 < count ? at + 1 : 0];
        row[3] = longests[0];
        row[4] = places[0];
        row[5] = values[0];
        row[6] = values[count - 1];
    }
}
"""

# Each thread looks for one segment's beginning: however many are empty, none has more to do.
_OF_IDS: Final = """\
extern "C" __global__ void __launch_bounds__(256)
offsets_of_ids(
    const INTEGER* __restrict__ ids, long long* __restrict__ offsets,
    const long long count, const long long segments
)
{
    const long long segment = 256LL * blockIdx.x + threadIdx.x;
    if (segment > segments) return;
    long long first = 0, beyond = count;
    while (first < beyond) {
        const long long middle = first + (beyond - first) / 2;
        if (ids[middle] < segment) first = middle + 1;
        else beyond = middle;
    }
    offsets[segment] = first;
}
"""

_OF_ROWS: Final = """\
extern "C" __global__ void __launch_bounds__(256)
offsets_of_rows(
    const INTEGER* __restrict__ offsets, long long* __restrict__ all,
    const long long segments, const long long rows
)
{
    const long long at = 256LL * blockIdx.x + threadIdx.x;
    if (at > rows * segments) return;
    const long long length = offsets[segments];
    const long long row = at == rows * segments ? rows : at / segments;
    all[at] = row == rows ? rows * length : row * length + offsets[at - row * segments];
}
"""


# Texts by the names of their kernels, and their arguments beside two pointers.
KERNELS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "integer_facts": (_FACTS, ("count",)),
    "offsets_of_ids": (_OF_IDS, ("count", "segments")),
    "offsets_of_rows": (_OF_ROWS, ("segments", "rows")),
}


@functools.cache
def kernel_of(name: str, dtype: str) -> PlainKernel:
    """Return one of these kernels for integers of a type, by NumPy's name of it."""
    text, sizes = KERNELS[name]
    text = text.replace("INTEGER", _C_TYPES[dtype])
    return PlainKernel(name, text, ("from", "to", *sizes), _THREADS)


def facts_of(runtime: Runtime, array: DeviceArray) -> IntegerFacts:
    """Return the facts of integers; see `tcusim.backends.OffsetsBackend.facts_of_integers`."""
    given, driver = _without_gaps(array), Driver.open()
    blocks = min(-(-given.size // _PER_BLOCK), _MOST_BLOCKS)
    rows = np.empty((blocks, _WORDS), np.int64)
    with opened(runtime, given, "a look at offsets") as place:
        stream = given.stream
        if driver.is_capturing(given.stream):
            raise Unsupported(
                "offsets and ids in GPU memory are checked there, and the call waits for what is "
                "found; nothing can wait for a stream while a CUDA graph is captured. Give offsets "
                "as tcusim.Segments(offsets, check=False, longest=...)"
            )
        memory = runtime.allocated(given, rows.nbytes, stream)
        words = (given.address, memory[1], given.size)
        _launch(runtime, kernel_of("integer_facts", given.dtype), blocks, words, place, stream)
        driver.copy_back(memory[1], rows, stream)
    down = rows[rows[:, _DOWN].argmin()]
    longest = rows[:, _LONGEST].max()
    return IntegerFacts(
        first=int(rows[0, _FIRST]),
        last=int(rows[0, _LAST]),
        down=(int(down[_DOWN]), int(down[_VALUE]), int(down[_NEXT]))
        if down[_DOWN] < given.size
        else None,
        longest=int(longest),
        place=int(rows[rows[:, _LONGEST] == longest, _PLACE].min()),
    )


def offsets_of_ids(runtime: Runtime, array: DeviceArray, segments: int) -> Any:
    """Return offsets of ids; see `tcusim.backends.OffsetsBackend.offsets_of_ids`."""
    return _made(runtime, "offsets_of_ids", array, segments + 1, (array.size, segments))


def offsets_of_rows(runtime: Runtime, array: DeviceArray, rows: int) -> Any:
    """Return offsets of rows; see `tcusim.backends.OffsetsBackend.offsets_of_rows`."""
    segments = array.size - 1
    return _made(runtime, "offsets_of_rows", array, rows * segments + 1, (segments, rows))


def _made(
    runtime: Runtime, name: str, array: DeviceArray, size: int, sizes: tuple[int, ...]
) -> Any:
    """Return a new array that a kernel has written, one thread an element."""
    given = _without_gaps(array)
    with opened(runtime, given, f"an array of {size} offsets") as place:
        stream = given.stream
        made = new_array(runtime, given, "offsets", (size,), "s64", stream)
        with ordered({given.stream, made.stream}, stream):
            blocks, words = -(-size // _THREADS), (given.address, made.address, *sizes)
            _launch(runtime, kernel_of(name, given.dtype), blocks, words, place, stream)
        if library_of(given).must_wait:
            Driver.open().wait(stream)
    return made.owner


def _without_gaps(array: DeviceArray) -> DeviceArray:
    """Return the array, or a copy by its library that a kernel can read."""
    if array.contiguous and array.address % array.itemsize == 0:
        return array
    return on_gpu(arranged(array, (0,), array.dtype), array.name)


def _launch(
    runtime: Runtime,
    kernel: PlainKernel,
    blocks: int,
    arguments: tuple[int, ...],
    place: Place,
    stream: int,
) -> None:
    """Launch a kernel in the active context."""
    (loaded,) = runtime.loaded([kernel], place)
    words = words_array("q", arguments)
    call = Call(loaded, kernel, blocks, words, tuple(range(len(words))))
    runtime.ready(call, stream)()
