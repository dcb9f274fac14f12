# %% [markdown]
# # CUDA in ten minutes
#
# You know NumPy and have never programmed a GPU. The lessons from 7 on speak of blocks, warps and
# shared memory; this page explains these words, with NumPy, and shows how little of them you need.
# No GPU is used.
#
# You will run a *kernel* as a GPU would, forget a *barrier* and see the result change from run to
# run, and end by reading a real CUDA kernel.

# %%
import numpy as np

import tcusim
import tcusim.lessons
from tcusim_cuda import emit

# %% [markdown]
# ## A kernel is the body of a loop
#
# NumPy adds 1 to every element with `x + 1`. On a GPU you write what happens to *one* element, as a
# function. That function is the **kernel**. The GPU calls it once for each **thread**, and threads
# differ only in their number. Threads come in **blocks** of equal size, so that a thread finds its
# element from two numbers:


# %%
def add_one(block, thread, x, y):
    i = block * 256 + thread
    if i < x.size:
        y[i] = x[i] + 1


def launch_in_order(kernel, blocks, threads, *arrays):
    for block in range(blocks):
        for thread in range(threads):
            kernel(block, thread, *arrays)


x = np.arange(1000, dtype=np.float32)
y = np.full_like(x, np.nan)
launch_in_order(add_one, 4, 256, x, y)
print(f"4 blocks of 256 threads added 1 to all of {x.size:,} numbers: {bool((y == x + 1).all())}.")

# %% [markdown]
# Two things are typical. There are 1,024 threads for 1,000 elements, so the kernel asks `i <
# x.size` and 24 threads do nothing. And the kernel returns nothing: it writes into an array that it
# is given. In CUDA, which is C++ with a few words more, the same is
#
# ```cpp
# __global__ void add_one(const float* x, float* y, int size) {
#     const int i = blockIdx.x * blockDim.x + threadIdx.x;
#     if (i < size) {
#         y[i] = x[i] + 1.0f;
#     }
# }
#
# add_one<<<4, 256>>>(x, y, 1000);  // 4 blocks of 256 threads
# ```
#
# | CUDA | here | is |
# | --- | --- | --- |
# | `__global__` | | says that this function is a kernel |
# | `blockIdx.x` | `block` | the number of the block |
# | `threadIdx.x` | `thread` | the number of the thread in its block |
# | `blockDim.x` | 256 | threads of a block |
# | `<<<4, 256>>>` | `launch_in_order(…, 4, 256, …)` | the *launch*: blocks, and threads of each |
#
# One thing is wrong with our loops: they run threads one after the other, in order. A GPU runs
# thousands at once and promises no order at all. So a kernel must be right in *every* order.

# %% [markdown]
# ## Threads, warps, blocks, the grid
#
# <!-- figure: hierarchy -->
#
# From small to large:
#
# - A **thread** runs the kernel's code with its own variables, in **registers**.
# - 32 threads of a block with consecutive numbers are a **warp**. They run the same instruction
#   together, unless an `if` parts them, and each is called a **lane** of the warp. A tensor core
#   serves a whole warp: its 32 lanes hold the matrices among them.
# - A **block** has one warp or several, at most 32. They run on one core of the GPU, so they can
#   share a small memory and wait for each other.
# - The **grid** is all blocks of a launch. Blocks start in any order, when a core has room.
#
# NVIDIA calls such a core a *streaming multiprocessor*, or SM. tcusim keeps figures of real GPUs,
# each with its source. These are of the H200:

# %%
h200 = tcusim.unit_of("h200")


def figure(name: str) -> float:
    """Return a figure of the H200 that is known."""
    return float(h200.figures()[name].value)


cores, warps = int(figure("cores")), int(figure("warps_per_core"))
print(f"An H200 has {cores} cores, each of which holds up to {warps} warps of 32 lanes:")
print(f"{cores * warps * 32:,} threads at once.")

# %% [markdown]
# ## Three memories
#
# | memory | who sees it | how large |
# | --- | --- | --- |
# | registers | one thread | up to 255 numbers of 32 bits |
# | **shared memory** | the threads of one block | up to 227 KiB a block on an H200 |
# | **global memory** | everybody | all that the GPU has |
#
# Arrays live in global memory. It is large, and slow beside what the cores could do:

# %%
shared_bandwidth = figure("shared_bandwidth") * figure("clock") * cores
global_bandwidth = figure("memory_bandwidth")
ratio = shared_bandwidth / global_bandwidth
print(f"Global memory of an H200: {global_bandwidth / 1e12:.1f} TB/s for the whole GPU.")
print(f"Shared memory of all cores: {shared_bandwidth / 1e12:.1f} TB/s, {ratio:.1f} times that.")
per_element = figure("cores") * figure("fma_per_core") * figure("clock") / (global_bandwidth / 2)
print(f"While one float16 is read, the ordinary units could do {per_element:.0f} multiply-adds.")

# %% [markdown]
# So a sum of an array takes as long as reading it does, provided that the arithmetic keeps up. A
# sum needs one addition an element. A scan needs several, and shuffles or shared memory besides,
# and that is where tensor cores can help.
#
# Global memory is read in **sectors** of 32 bytes. When a warp loads, its 32 lanes ask for 32
# addresses at once, and the GPU fetches every sector that one of them lies in. Neighbouring lanes
# should therefore read neighbouring elements; such an access is called *coalesced*. The distance
# between the elements of neighbouring lanes is the *stride*:

# %%
for stride in (1, 2, 16, 100):
    addresses = np.arange(32) * stride * 2  # of float16, in bytes
    sectors = np.unique(addresses // 32).size
    print(
        f"stride {stride:>3}: 32 lanes need 64 bytes and fetch {sectors:>2} sectors, "
        f"{sectors * 32:>4} bytes"
    )

# %% [markdown]
# ## Threads that work together, and barriers
#
# To add up 256 numbers, the threads of a block put them into shared memory. Then half of the
# threads add the other half's numbers to theirs, then a quarter, and so on:
#
# <!-- figure: tree -->
#
# Before a round begins, the round before must be over *in all threads*. Nothing makes a thread wait
# by itself. **`__syncthreads()`** does: it is a **barrier**, at which each thread waits until all
# threads of the block have come. In our Python kernels `yield` is the barrier. The launcher below
# runs threads in an order drawn at random, each as far as its next `yield`:


# %%
def launch(kernel, threads, *arrays, seed):
    """Run one block. Between two barriers, its threads run in an order drawn at random."""
    rng = np.random.default_rng(seed)
    shared = np.full(threads, np.nan, np.float32)
    waiting = [kernel(thread, shared, *arrays) for thread in range(threads)]
    while waiting:
        rng.shuffle(waiting)
        waiting = [thread for thread in waiting if next(thread, "done") != "done"]


def sum_block(thread, shared, x, out):
    shared[thread] = x[thread]
    half = 128
    while half > 0:
        yield  # the barrier
        if thread < half:
            shared[thread] += shared[thread + half]
        half //= 2
    if thread == 0:
        out[0] = shared[0]


x = np.arange(256, dtype=np.float32)
out = np.zeros(1, np.float32)
sums = set()
for seed in range(5):
    launch(sum_block, 256, x, out, seed=seed)
    sums.add(float(out[0]))
print(f"The sum is {x.sum():.0f}. Five runs, in five orders, returned", *sums)

# %% [markdown]
# Now we forget the barrier that separates the rounds, and keep only the one before the first:


# %%
def sum_block_forgetful(thread, shared, x, out):
    shared[thread] = x[thread]
    yield
    half = 128
    while half > 0:
        if thread < half:
            shared[thread] += shared[thread + half]
        half //= 2
    if thread == 0:
        out[0] = shared[0]


wrong = []
for seed in range(5):
    launch(sum_block_forgetful, 256, x, out, seed=seed)
    wrong.append(float(out[0]))
print("Without the barrier between rounds, five runs returned", *wrong)

# %% [markdown]
# Thread 0 runs all its rounds when its turn comes, with whatever the others have finished by then.
# This is a **race**: the result depends on who is first. On a real GPU a race often goes unnoticed,
# because the usual order happens to be a good one. That is why tcusim proves that barriers are
# where they must be, as [lesson 7](07_blocks_and_barriers.md) shows.
#
# There is no barrier for the whole grid: a block may not even have started when another one ends.
# [Lesson 8](08_the_grid.md) is about that.
#
# ## Lanes of a warp talk without memory
#
# Within a warp there is a shortcut. In a **shuffle**, each lane gives one register to another lane.
# Add what the lane 16 places further on has, then 8, 4, 2, 1, and lane 0 has the sum of 32 numbers.
# A warp is 32 lanes in step, so in NumPy it is one array:

# %%
lanes = np.arange(32, dtype=np.float32) ** 2
value = lanes.copy()
rounds = 0
for distance in (16, 8, 4, 2, 1):
    value = value + np.roll(value, -distance)  # __shfl_down_sync, and one addition
    rounds += 1
print(f"{rounds} shuffles and additions: lane 0 has {value[0]:.0f}, the sum is {lanes.sum():.0f}.")

# %% [markdown]
# That is the ordinary way to sum on a GPU. A **tensor core** does it differently. One instruction,
# the **mma**, multiplies two small matrices and adds a third, for the whole warp. With ones in the
# first row of the left matrix, the product has the sums of the columns of the right one: 16 sums of
# 16 numbers at once. [Lesson 1](01_one_mma.md) begins there.

# %%
columns = np.arange(256, dtype=np.float16).reshape(16, 16) % 9
ones_in_row_0 = np.zeros((16, 16), np.float16)
ones_in_row_0[0] = 1
sums_of_columns = tcusim.mma(ones_in_row_0, columns)[0]
print("One mma gave 16 sums:", *sums_of_columns.astype(int))

# %% [markdown]
# The matrices are in registers, and every lane holds a few elements of each. A tile that is held in
# this way is a **fragment**. Which lane has which element depends on the instruction. These are the
# left operands of one mma; cells of one colour are in one lane:

# %% tags=["picture"]
tcusim.layout("16x16x16", "a")

# %% [markdown]
# ## Read a real kernel
#
# tcusim writes the CUDA kernel of each of its programs. Below are the lines of one of them that use
# a word of this page, and what the word means.

# %%
meanings = {
    "__global__": "a kernel",
    "__shared__": "an array in shared memory",
    "blockIdx.x": "the number of this block",
    "threadIdx.x": "the number of this thread",
    "__syncthreads()": "a barrier of the block",
    "__syncwarp()": "a barrier of one warp",
    "load_matrix_sync": "all 32 lanes load a tile of memory into a fragment",
    "mma_sync": "all 32 lanes multiply: D = A·B + C",
    "store_matrix_sync": "all 32 lanes store a fragment to memory",
}
kernel = emit(tcusim.build("reduction_16")).text
found = []
for word, meaning in meanings.items():
    line = next((line.strip() for line in kernel.splitlines() if f"{word}" in line), None)
    if line is not None:
        found.append(word)
        print(f"{word}: {meaning}\n    {line}")

# %% [markdown]
# [Lesson 11](11_from_step_to_cuda.md) reads the whole kernel, line by line, and runs it.
#
# ## Exercise 1: how many blocks?
#
# An array has `size` elements, and a block takes `of_block` of them. How many blocks does the
# launch need, so that none is idle and no element is left out?
#
# <details><summary>Hint</summary>
# It is a division that rounds up. <code>-(-a // b)</code> is one way to write it in Python.
# </details>


# %% tags=["exercise"]
def blocks_for(size: int, of_block: int) -> int | None:
    """Return the number of blocks."""


# %% tags=["solution"]
def blocks_for(size: int, of_block: int) -> int | None:
    return -(-size // of_block)


# %% tags=["check"]
tcusim.lessons.check(
    "0.1 How many blocks",
    tcusim.lessons.equal([blocks_for(size, 256) for size in (1, 256, 257, 1000)], [1, 1, 2, 4]),
    "1, 256, 257 and 1,000 elements need 1, 1, 2 and 4 blocks of 256: round the quotient up",
)

# %% [markdown]
# ## Exercise 2: a column of a matrix
#
# A matrix of float32 has 64 columns, and its rows follow each other in memory. How many bytes does
# a warp fetch, if its 32 lanes read 32 elements of one *column*? And if they read 32 elements of
# one *row*?
#
# <details><summary>Hint</summary>
# In a column the stride is 64 elements of 4 bytes. Count sectors as above, and remember that each
# has 32 bytes.
# </details>


# %% tags=["exercise"]
def bytes_fetched(stride: int, itemsize: int) -> int | None:
    """Return the bytes that 32 lanes fetch; stride is in elements, itemsize in bytes."""


# %% tags=["solution"]
def bytes_fetched(stride: int, itemsize: int) -> int | None:
    return 32 * np.unique(np.arange(32) * stride * itemsize // 32).size


# %% tags=["check"]
tcusim.lessons.check(
    "0.2 A column of a matrix",
    tcusim.lessons.equal((bytes_fetched(64, 4), bytes_fetched(1, 4)), (1024, 128)),
    "a column costs 32 sectors (1,024 bytes) and a row 4 sectors (128 bytes)",
)

# %% [markdown]
# ## Exercise 3: a scan with shuffles
#
# The *scan* of an array is the array of its running sums: `np.cumsum`. Write the scan of 32 lanes
# with shuffles: in five rounds, each lane adds what the lane `distance` places **before** it has,
# for distances 1, 2, 4, 8, 16. A lane with nobody before it adds nothing.
#
# <details><summary>Hint</summary>
# <code>before = np.roll(value, distance)</code> brings the last lanes round to the first ones; set
# these to zero before you add.
# </details>


# %% tags=["exercise"]
def warp_scan(value: np.ndarray) -> np.ndarray | None:
    """Return the running sums of 32 numbers."""


# %% tags=["solution"]
def warp_scan(value: np.ndarray) -> np.ndarray | None:
    for distance in (1, 2, 4, 8, 16):
        before = np.roll(value, distance)
        before[:distance] = 0
        value = value + before
    return value


# %% tags=["check"]
tcusim.lessons.check(
    "0.3 A scan with shuffles",
    tcusim.lessons.equal(warp_scan(lanes), np.cumsum(lanes)),
    "lane i must end with the sum of lanes 0 to i; look at the lanes that have nobody before them",
)

# %% [markdown]
# ## In short
#
# - A kernel runs in many threads; 32 of them are a warp, some warps a block, all blocks the grid.
# - Threads of a block share memory, and a barrier makes writes before it visible after it.
# - Blocks cannot wait for each other with a barrier.
# - A tensor core works for a whole warp, on fragments spread over its lanes.
#
# Next: [blocks and barriers](07_blocks_and_barriers.md), or back to [one mma](01_one_mma.md).

# %%
assert sums == {float(x.sum())}
assert any(result != x.sum() for result in wrong)
assert value[0] == lanes.sum()
assert np.array_equal(sums_of_columns, columns.sum(axis=0, dtype=np.float32))
assert {"__global__", "mma_sync", "load_matrix_sync"} <= set(found)
