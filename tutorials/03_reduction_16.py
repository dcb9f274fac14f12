# %% [markdown]
# # 3. Sixteen sums in one mma
#
# A **reduction** adds up numbers. Usually there are many independent sums: each row of a matrix,
# each node of a graph. The numbers of one sum are a **segment**. This lesson sums 16 segments of 16
# numbers with a *single* mma: first in NumPy, then on a simulated tensor core, then as a program
# that you can step through.
#
# The method is the first algorithm of [Dakkak et al.](../references.md#DAKKAK19), the paper from
# 2019 that this course follows.

# %%
import numpy as np

import tcusim
import tcusim.lessons

# %% [markdown]
# ## The trick: a row of ones
#
# Lay the 16 segments side by side as the *columns* of a tile A. Then multiply from the left with a
# matrix P, whose first row is all ones and whose other rows are zero. Row 0 of P·A is a row of ones
# times each column of A. A row of ones times a column is the sum of the column.
#
# <!-- figure: reduction -->

# %%
rng = np.random.default_rng(1)
x = rng.integers(0, 10, 256).astype(np.float16)

segments_as_columns = x.reshape(16, 16).T
p = np.zeros((16, 16), np.float16)
p[0, :] = 1

v = p @ segments_as_columns
print("Row 0 of P·A:        ", v[0].astype(int))
print("Sums of the segments:", x.reshape(16, 16).sum(axis=1).astype(int))
print("Rows 1 to 15 are", "all zero" if not v[1:].any() else "not zero")

# %% [markdown]
# The transpose `.T` is free. The segments follow each other in memory; whoever reads the same
# memory *column-major* ([lesson 1](01_one_mma.md)) has them as columns.
#
# ## Is that not wasteful?
#
# The mma does 4,096 multiply-adds, and 15 of 16 of them multiply with zero. A sum of 256 numbers
# into 16 needs 240 additions. The argument for it is speed: a tensor core does its 4,096
# multiply-adds in a few clock cycles, and would be idle otherwise. And summing numbers is limited
# by memory on any GPU, as each number is read once and used once. So what counts is to be *fast
# enough* with few instructions.
#
# ## On a tensor core
#
# The same product, as the tensor cores of a V100 do it:

# %%
v = tcusim.mma(p, segments_as_columns, arch="volta")
print(f"Row 0 in {v.dtype} on Volta:", v[0].astype(int))

# %% [markdown]
# ## As a program
#
# On a GPU, the sums of a large array take more than the one instruction: tiles must be loaded, and
# results stored, by many warps. In tcusim, an algorithm is a short list of such **steps**. The list
# is data, so it can be printed, checked, run step by step, counted, and [written as
# CUDA](11_from_step_to_cuda.md). `tcusim.build` makes the program, and `tcusim.listing` prints it:

# %%
program = tcusim.build("reduction_16", tile="16x16x16")
print("The program reduction_16:\n")
print(tcusim.listing(program))

# %% [markdown]
# The lines above the steps say what the program works on:
#
# - **grid**: how many warps work on the array. Each takes 256 elements. (`block` is the number of
#   the warp here; from [lesson 7](07_blocks_and_barriers.md) on, several warps make a block.)
# - **scalar**, **input**, **output**: the length of the array, and the arrays in *global memory*,
#   the large memory of the GPU.
# - **scratch**: `s_V` is in *shared memory*, a small and fast memory near the tensor core. Here
#   each warp has 256 places of it.
# - **matrix_a**, **matrix_b**, **accumulator**: the fragments, in registers.
# - `f16` and `f32` are float16 and float32, `stride` is the leading dimension of a tile, and `1x16`
#   a rectangle of one row and 16 columns. At the right are lines of the paper's algorithm.
#
# If these words are new to you, [CUDA in ten minutes](00_cuda_in_ten_minutes.md) introduces them
# one by one.
#
# And the steps, each executed by the 32 lanes of a warp together:
#
# | step | what it does |
# | --- | --- |
# | 1, 2 | fill the fragments P and V with constants |
# | 3 | load A from global memory, column-major |
# | 4 | the mma: V ← P·A + V |
# | 5 | store V to shared memory, column-major |
# | 6 | wait until all 32 lanes have written |
# | 7 | copy row 0 of V, 16 numbers, to the output |
#
# Why step 5? Only row 0 of V is wanted, but WMMA does not specify which lane holds it ([lesson
# 1](01_one_mma.md)). In shared memory element (0, col) is at `16*col`. And why step 6? The lanes do
# not write at the same moment. Before one reads what another has written, both must meet at a
# **barrier**, which is what `sync` is.
#
# ## Run it

# %%
out = tcusim.run(program, {"in": x}, arch="volta")["out"]
print("The program returns", out.astype(int))
many = rng.integers(0, 10, 100 * 256).astype(np.float16)
sums = tcusim.run(program, {"in": many}, arch="volta")["out"]
print(f"For {many.size} numbers it returns {sums.size} sums; all right:", end=" ")
print(np.array_equal(sums, many.reshape(-1, 16).sum(axis=1, dtype=np.float32)))

# %% [markdown]
# ## Step through it
#
# This is the run on the 256 numbers of `x`, one step after another. Press → (or the buttons) until
# you reach the mma, then point at a number of row 0 of V: the row of P and the column of A that it
# comes from light up, and below is how they are summed.

# %% tags=["picture"]
tcusim.trace(program, {"in": x}, arch="volta")

# %% [markdown]
# In a script, `tcusim.interpret` yields each step after it ran, with everything that the warps
# hold. The first index of a fragment is the warp:

# %%
for event in tcusim.interpret(program, {"in": x}, arch="volta"):
    kind = type(event.step).__name__
    note = ""
    if kind == "Mma":
        note = f": row 0 of V is {event.state.fragment('V')[0, 0].astype(int)}"
    print(f"step {event.path} was a {kind}{note}")

# %% [markdown]
# ## The price, counted
#
# A trace also counts: mma instructions, and bytes of global memory that are read and written.

# %%
counts = tcusim.trace(program, {"in": many}).counts
print(f"For {many.size} elements of 2 bytes: {counts.mma} mma, {counts.bytes_read} bytes read,")
print(f"and {counts.bytes_written} bytes written ({sums.size} sums of 4 bytes).")

# %% [markdown]
# Each number is read exactly once, and there is one mma for every 256 numbers. No algorithm can
# read less.
#
# ## Exercise 1: average instead of sum
#
# Change P such that row 0 of P·A holds the *averages* of the segments.
#
# <details><summary>Hint</summary>
# A weighted sum is a dot product, too. Is 1/16 a float16?
# </details>


# %% tags=["exercise"]
def matrix_for_averages():
    """Return a 16x16 array of float16."""


# %% tags=["solution"]
def matrix_for_averages():
    p = np.zeros((16, 16), np.float16)
    p[0, :] = 1 / 16
    return p


# %% tags=["check"]
answer = matrix_for_averages()
tcusim.lessons.check(
    "3.1 Average instead of sum",
    tcusim.lessons.equal(
        None if answer is None else tcusim.mma(answer, segments_as_columns)[0],
        x.reshape(16, 16).mean(axis=1, dtype=np.float32),
    ),
    "each element of row 0 should be 1/16, which is 2⁻⁴ and so exact in float16",
)

# %% [markdown]
# ## Exercise 2: segments as rows
#
# Suppose that the segments are the *rows* of a tile. Which product sums them, and where are the
# sums? Write it with a constant matrix of your own on the right of `tile`, such that the sums are
# in column 0 of the product.
#
# <details><summary>Hint</summary>
# Transpose the whole equation: (P·A)ᵀ = Aᵀ·Pᵀ.
# </details>


# %% tags=["exercise"]
def sums_of_rows(tile):
    """Return a product of `tile` whose column 0 holds the sums of the rows of `tile`."""


# %% tags=["solution"]
def sums_of_rows(tile):
    return tcusim.mma(tile, p.T)


# %% tags=["check"]
answer = sums_of_rows(x.reshape(16, 16))
tcusim.lessons.check(
    "3.2 Segments as rows",
    tcusim.lessons.equal(None if answer is None else answer[:, 0], out),
    "multiply with the transpose of P, whose first column is ones: tcusim.mma(tile, p.T)",
)

# %% [markdown]
# tcusim uses this form for tiles that are higher than wide: the shape 32x8x16 sums 32 segments of
# 16, as the rows of A.
#
# ## Exercise 3: the second row
#
# Fifteen rows of P are zero, so there is room for a second answer. Let the same mma also give, in
# row 1, the sum of the *first eight* numbers of each segment.
#
# <details><summary>Hint</summary>
# Row 1 of P is multiplied with each column of A as row 0 is. Which of its elements should be ones?
# </details>


# %% tags=["exercise"]
def matrix_for_two_sums():
    """Return a 16x16 array of float16."""


# %% tags=["solution"]
def matrix_for_two_sums():
    p = np.zeros((16, 16), np.float16)
    p[0, :] = 1
    p[1, :8] = 1
    return p


# %% tags=["check"]
answer = matrix_for_two_sums()
segments = x.reshape(16, 16)
tcusim.lessons.check(
    "3.3 The second row",
    tcusim.lessons.equal(
        None if answer is None else tcusim.mma(answer, segments_as_columns)[:2],
        [segments.sum(axis=1), segments[:, :8].sum(axis=1)],
    ),
    "row 0 of P is all ones; row 1 has ones in its columns 0 to 7 and zeros after them",
)

# %% [markdown]
# Sixteen rows could hold sixteen such sums: of the first 1, 2, 3, … numbers. That is a *scan*, the
# subject of [lesson 5](05_scan.md).
#
# ## In short
#
# - A row of ones times a tile sums its columns: 16 segments of 16 numbers in one mma.
# - Most of the multiplications are by zero, and that is affordable.
# - A program is a list of steps. It goes load, mma, store, barrier, copy.
#
# Next: [longer segments](04_256_and_256n.md).

# %%
assert np.array_equal(out, x.reshape(16, 16).sum(axis=1))
assert counts.mma == 100
assert counts.bytes_read == many.nbytes
