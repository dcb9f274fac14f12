# %% [markdown]
# # 1. One mma
#
# A tensor core does one thing: it multiplies two small matrices and adds a third, **D = A·B + C**,
# in one instruction. The instruction is called **mma**, for *matrix multiply-accumulate*. In this
# lesson you do one by hand, then on a simulated GPU, and see where a GPU keeps the matrices.
#
# You need [tcusim](../quickstart.md), which brings NumPy, and no GPU. Each lesson is a page, a
# Python script and a notebook. An exercise is a function for you to complete, and a cell after it
# checks your answer. In the script a solution stands before the check: put yours in its place.

# %%
import numpy as np

import tcusim
import tcusim.lessons

# %% [markdown]
# ## Four matrices and three sizes
#
# | matrix | role | size | type in this lesson |
# | --- | --- | --- | --- |
# | A | left *operand* | m x k | float16 |
# | B | right *operand* | k x n | float16 |
# | C | *accumulator* that goes in | m x n | float32 |
# | D | *accumulator* that comes out | m x n | float32 |
#
# A small matrix of such a size is a **tile**. The sizes of an mma are fixed, and are always given
# in the order M, N, K. The best-known *shape* is 16x16x16: all four tiles are 16 by 16.

# %%
rng = np.random.default_rng(0)
a = rng.integers(-4, 5, (16, 16)).astype(np.float16)
b = rng.integers(-4, 5, (16, 16)).astype(np.float16)
c = np.ones((16, 16), np.float32)

# %% [markdown]
# ## By hand
#
# Each element of D is a **dot product**: row i of A times column j of B, term by term, added up,
# plus the element of C.

# %%
by_hand = np.zeros((16, 16), np.float32)
count = 0
for i in range(16):
    for j in range(16):
        total = c[i, j]
        for k in range(16):
            total += np.float32(a[i, k]) * np.float32(b[k, j])
            count += 1
        by_hand[i, j] = total
print(f"By hand, D took {count} multiplications and as many additions.")

# %% [markdown]
# A tensor core of an H200 does these 4,096 multiply-adds in two instructions. That is why GPUs have
# tensor cores: an ordinary instruction does 32.
#
# ## On a simulated GPU
#
# `tcusim.mma` computes D as the tensor cores of a GPU do, bit for bit. `arch` names the generation
# (the *architecture*) of the GPU: Hopper is that of the H100 and the H200.

# %%
d = tcusim.mma(a, b, c, arch="hopper")
print(f"The simulated D is {d.shape[0]}x{d.shape[1]}, of {d.dtype}.")
print("Equal to the loops above:", np.array_equal(d, by_hand))
print("Equal to NumPy's product:", np.array_equal(d, a.astype(np.float32) @ b + c))

# %% [markdown]
# Small integers are exact in every type, so all three agree. [Lesson 2](02_the_bits.md) is about
# numbers for which they do not.
#
# ## Why accumulators are wider
#
# A float16 has 11 significant bits and ends at 65504. A product of two float16 numbers needs up to
# 22 bits and a sum of products more, so D would often not fit into a float16. With float32, which
# has 24 bits, each product fits exactly.

# %%
large = np.full((16, 16), 100, np.float16)
for acc in ("f16", "f32"):
    element = tcusim.mma(large, large, acc=acc)[0, 0]
    print(f"16 times 100·100 in an accumulator of {acc}: {element}")

# %% [markdown]
# float16 accumulators exist, too (they take half of the space), and here one overflows to infinity.
#
# ## Tiles in memory
#
# Memory is one long row of numbers, so a matrix must be laid out in it. Two orders are usual:
#
# - **row-major**: one row after another. Element (r, c) is at `r * ldm + c`.
# - **column-major**: one column after another. Element (r, c) is at `r + c * ldm`.
#
# `ldm`, the *leading dimension*, is the distance between two rows (or columns). It is 16 if the
# tile lies alone, and larger if it is cut out of a larger matrix.

# %%
memory = np.arange(256, dtype=np.float16)
row_major = memory.reshape(16, 16)
column_major = memory.reshape(16, 16).T
print("The same memory as a tile, row-major:    row 0 begins", row_major[0, :4].astype(int))
print("The same memory as a tile, column-major: row 0 begins", column_major[0, :4].astype(int))

# %% [markdown]
# When a GPU loads a tile, it is told the order. So a *transposed* tile costs nothing: it is the
# same memory, read in the other order. The next lessons use that all the time.
#
# ## Who holds a tile
#
# One mma is executed by 32 threads together. (A thread is one of the many copies of a program that
# a GPU runs at the same time.) They are called a **warp**, and each of them is a **lane**, numbered
# 0 to 31. A lane has *registers*, small stores of 32 bits that only it can read. The tiles of an
# mma are in the registers of the warp: each lane holds a few elements. A tile that is held in this
# way is a **fragment**.
#
# This is the left operand of `m16n8k16` (m = 16, n = 8, k = 16), which is the instruction that many
# GPUs really have: two of them make a 16x16x16. `T5:2-3` means that lane 5 has the two elements as
# its numbers 2 and 3; cells of one colour belong to one lane.

# %% tags=["picture"]
tcusim.layout("m16n8k16", "a")

# %% [markdown]
# Ask for a lane, or for an element:

# %%
layout = tcusim.layout("m16n8k16", "a")
held = [(one.row, one.col) for one in layout.lane(5)]
print("Lane 5 holds the elements", held)
(holder,) = layout.holders(9, 3)
print(f"Element (9, 3) is in lane {holder.lane}, register {holder.register}")

# %% [markdown]
# NVIDIA documents the layouts of `mma.sync`, the family of instructions with names like `m16n8k16`.
# For **WMMA**, the C++ interface whose best-known shape is 16x16x16, it documents none, and they
# differ from GPU to GPU. A WMMA program therefore never asks a fragment for an element by its
# place. It has three calls: *load* a tile from memory, *mma*, and *store* an accumulator to memory.
#
# Here are the three calls, as steps of a program that multiplies `a` and `b`. Press → until you
# reach the mma; then point at an element of the result: its row and its column light up, and their
# sum is shown below.

# %% tags=["picture"]
product = tcusim.build("gemm_naive", cols=16, inner=16)
tcusim.trace(product, {"a": a.ravel(), "b": b.ravel()})

# %% [markdown]
# One consequence of WMMA's three calls will matter in lessons 4 and 5. D is an accumulator, and the
# next mma wants operands. In WMMA there is no way from one to the other but through memory: store,
# convert to float16, load.
#
# ## Exercise 1: what does one element change?
#
# Somebody changes B[k, j] and repeats the mma. Which elements of D can change? Return their places
# `(row, column)`, as a list in any order, for 16x16x16.
#
# <details><summary>Hint</summary>
# Look at the loops: for which i and j do they read <code>b[k, j]</code>?
# </details>


# %% tags=["exercise"]
def changed_by(k, j):
    """Return the places of D that depend on B[k, j]."""


# %% tags=["solution"]
def changed_by(k, j):
    return [(row, j) for row in range(16)]


# %% tags=["check"]
other = b.copy()
other[2, 5] += 1
places = np.argwhere(tcusim.mma(np.ones_like(a), other) != tcusim.mma(np.ones_like(a), b))
answer = changed_by(2, 5)
tcusim.lessons.check(
    "1.1 What does one element change?",
    tcusim.lessons.equal(None if answer is None else sorted(answer), list(map(tuple, places))),
    "column j of B meets every row of A, and ends in column j of D",
)

# %% [markdown]
# ## Exercise 2: a tile of a larger matrix
#
# A matrix of 64 columns is in memory, row-major. A tile of 16x16 is cut out of it, whose first
# element is at row `top`, column `left` of the matrix. At which place of the memory is element (r,
# c) of the tile?
#
# <details><summary>Hint</summary>
# First find the place of the tile's first element. The leading dimension is that of the matrix.
# </details>


# %% tags=["exercise"]
def place(top, left, r, c):
    """Return the index in memory of element (r, c) of the tile."""


# %% tags=["solution"]
def place(top, left, r, c):
    return (top * 64 + left) + r * 64 + c


# %% tags=["check"]
matrix = np.arange(48 * 64).reshape(48, 64)
tcusim.lessons.check(
    "1.2 A tile of a larger matrix",
    tcusim.lessons.equal(
        [place(16, 32, r, c) for r, c in ((0, 0), (1, 0), (3, 7))],
        [matrix[16 + r, 32 + c] for r, c in ((0, 0), (1, 0), (3, 7))],
    ),
    "the first row of the tile begins at 16·64 + 32 = 1056, and the second 64 later, at 1120",
)

# %% [markdown]
# ## Exercise 3: registers
#
# The accumulators of a warp are m x n float32 numbers, spread evenly over 32 lanes, and a register
# holds one. How many registers does each lane need for them? A lane has at most 255, which limits
# how large a tile one warp can work on.
#
# <details><summary>Hint</summary>
# For 16x16 it is 8. <code>tcusim.layout("16x16x16", "c")</code> shows them.
# </details>


# %% tags=["exercise"]
def registers(m, n):
    """Return the number of registers of each lane for m x n float32 accumulators."""


# %% tags=["solution"]
def registers(m, n):
    return m * n // 32


# %% tags=["check"]
tcusim.lessons.check(
    "1.3 Registers",
    tcusim.lessons.equal([registers(16, 16), registers(16, 8), registers(64, 64)], [8, 4, 128]),
    "256 elements over 32 lanes are 8 registers; 64x64 elements take 128, half of what a lane has",
)

# %% [markdown]
# ## In short
#
# - An mma is D = A·B + C on tiles of fixed sizes, given as M x N x K.
# - A and B are operands, of a narrow type; C and D are accumulators, of a wider one.
# - The 32 lanes of a warp hold a tile together, as a fragment.
#
# Next: [the bits of a dot product](02_the_bits.md).

# %%
assert np.array_equal(d, by_hand)
assert (9, 3) in held
assert holder.lane == 5
