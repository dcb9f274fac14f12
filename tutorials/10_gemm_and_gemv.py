# %% [markdown]
# # 10. A matrix product, as tensor cores like it
#
# Tensor cores were made for one thing: C = A·B + C for matrices. The reductions and scans of this
# package borrow them; this tutorial gives them back what they were made for. It steps through a
# product as a *step program*: first the naive way, then staged in shared memory with two buffers,
# and at last the product of a matrix and a vector, which is bound by memory whatever one does.

# %%
import dataclasses

import numpy as np

import tcusim
from tcusim.simulate.counts import Counts
from tcusim.simulate.interpreter import run_numpy

rng = np.random.default_rng(7)

# %% [markdown]
# ## One tile a warp
#
# A program is built for a fixed number of columns (`cols`) and a fixed inner size (`inner`); the
# number of rows is found from the size of A when it runs. `gemm_naive` gives each warp one tile of
# C. Along the inner axis it loads a tile of A and one of B and multiplies them:

# %%
naive = tcusim.build("gemm_naive", cols=32, inner=64)
print(tcusim.listing(naive))

# %% [markdown]
# A block whose rows all exist takes the first branch of each `if`, and loads where the matrix
# lies. At the lower edge tiles are staged: copied element by element, with zeros for the rows that
# are not there. So 40 rows are no problem for a tile of 16:

# %%
a = rng.integers(-3, 4, (40, 64)).astype(np.float16)
b = rng.integers(-3, 4, (64, 32)).astype(np.float16)
out = tcusim.run(naive, {"a": a.ravel(), "b": b.ravel()})["out"].reshape(40, 32)
print("equal to NumPy:", np.array_equal(out, a.astype(np.int64) @ b.astype(np.int64)))

# %% [markdown]
# A watcher of the interpreter's events stands beside the warp. After each product, element (0, 0)
# of the first tile has four more groups of sixteen terms in it:

# %%
expected = np.cumsum((a[0].astype(int) * b[:, 0].astype(int)).reshape(4, 16).sum(axis=1))
seen = []
for event in tcusim.interpret(naive, {"a": a.ravel(), "b": b.ravel()}):
    if type(event.step).__name__ == "Mma":
        seen.append(int(event.state.fragment("C")[0, 0, 0]))
        print(f"step {event.path}, i = {event.loops['i']}: C[0, 0] is {seen[-1]}")
assert seen == expected.tolist()

# %% [markdown]
# ## What the memory sees
#
# An mma of 16x16x16 in float16 reads two tiles of 512 bytes for 4096 multiply-adds, and here both
# come from global memory, every time. The counter says how many bytes a product needs:


# %%
def counted(program: tcusim.Program, *arrays: np.ndarray) -> Counts:
    counts = Counts()
    names = [buffer.name for buffer in program.inputs]
    flat = {name: x.ravel() for name, x in zip(names, arrays, strict=True)}
    run_numpy(program, flat, watch=counts)
    return counts


def report(name: str, counts: Counts) -> float:
    per_mma = counts.bytes_read / counts.mma
    print(f"{name:28} {counts.mma:5} mma {counts.bytes_read:7} bytes read {per_mma:6.0f} a mma")
    return per_mma


big_a = rng.integers(-3, 4, (128, 128)).astype(np.float16)
big_b = rng.integers(-3, 4, (128, 128)).astype(np.float16)
naive = tcusim.build("gemm_naive", cols=128, inner=128)
naive_bytes = report("gemm_naive", counted(naive, big_a, big_b))
assert naive_bytes == 2 * 16 * 16 * 2

# %% [markdown]
# How bad is that? By its data sheet an H200 reads 4.8 TB/s from memory and does about 10^15 float16
# operations a second, of which WMMA reaches some 60 %. In the time of one mma, 8192 operations,
# about 65 bytes arrive. The naive program asks for 1024. Caches help, but the cure is to use each
# tile more than once.
#
# ## Staged in shared memory
#
# `gemm` lets the warps of a block work together. They copy the block's rows of A and columns of B
# to shared memory, *once*, and then each warp multiplies its corner. Each warp has several
# accumulators, so a tile of A that it loads meets several tiles of B. Two reuses, two factors:

# %%
for warps, side in ((1, 1), (4, 1), (4, 2), (16, 2)):
    program = tcusim.build("gemm", cols=128, inner=128, warps=warps, down=side, across=side)
    counts = counted(program, big_a, big_b)
    tile = 16 * side * int(warps**0.5)
    staged_bytes = report(f"gemm, {tile}x{tile} a block", counts)
    assert staged_bytes == naive_bytes * 16 / tile

# %% [markdown]
# Twice the side of a block's tile, half the bytes. 128x128 is a usual size for a large GPU; the
# cache does the rest, because blocks side by side want the same rows of A.
#
# ## Two buffers and one barrier
#
# Copying takes time, and the tensor cores should not wait for it. So there are two stages: while
# one is multiplied, the next is being copied. Here is the loop, with tiles so small that the
# listing stays short. Look at the order: the copies to `a1_s` and `b1_s`, then products that read
# `a0_s` and `b0_s`, then **one** barrier; and the same again with the stages exchanged.

# %%
program = tcusim.build("gemm", cols=32, inner=80, warps=4, down=1, across=1, depth=1)
print(tcusim.listing(program))

# %% [markdown]
# An iteration does two steps, because an address is an *affine* expression of the loop variable, a
# sum of multiples: "stage i modulo 2" is none. For the same reason the corner of a warp is a
# branch, `if warp < 2`: the grammar has no division. Both keep every address simple enough to be
# checked before the program runs.
#
# ## A barrier less
#
# What if somebody drops the barrier in the middle of the loop? Then a fast warp would copy the
# step after next into a stage that a slow warp still reads. Here such a program is refused, and
# the message says which steps collide:

# %%
loop_at = next(i for i, step in enumerate(program.steps) if type(step).__name__ == "Loop")
loop = program.steps[loop_at]
barriers = [i for i, step in enumerate(loop.body) if type(step).__name__ == "Sync"]
assert len(barriers) == 2
body = loop.body[: barriers[0]] + loop.body[barriers[0] + 1 :]
steps = list(program.steps)
steps[loop_at] = dataclasses.replace(loop, body=body)
broken = dataclasses.replace(program, steps=tuple(steps))
message = ""
try:
    tcusim.verify(broken)
except tcusim.VerifyError as error:
    message = str(error)
print(message)

# %% [markdown]
# And if it ran? The interpreter shows a warp's writes to shared memory to the other warps only
# after a barrier of the block; without it they read what lay there before, which at first is NaN.
# There is no luck of timing that hides the fault.
#
# ## Half or single accumulators
#
# The paper calls the product with float16 accumulators HGEMM and that with float32 accumulators
# MGEMM. The first is rounded to 11 bits after each mma. Here each mma adds sixteen sixteenths to
# 2048, and the next float16 after 2048 is 2050:

# %%
ones = np.ones((1, 2048), np.float16)
column = np.full((2048, 1), 1 / 16, np.float16)
start = np.full((1, 1), 2048, np.float16)
for acc in ("f16", "f32"):
    total = tcusim.matmul(ones, column, start, acc=acc, algorithm="gemm")
    print(f"2048 + 2048/16 with {acc} accumulators: {total.item():.0f}")
exact = tcusim.matmul(ones, column, start).item()
assert exact == 2048 + 128

# %% [markdown]
# `tcusim.matmul` is `numpy.matmul` on these programs: it chooses the tile and the block, cuts long
# sums into short ones that are added up at the end (*blocked summation*), and takes float32 (as
# exact bf16 parts), float64 and integers, too.
#
# ## A vector
#
# Now y = A·x. Each element of A is used once, so nothing can be reused, and the best program is
# the one that reads A once, at the speed of memory. The paper's way is a matrix product with a
# *padded* vector: x is the first column of B, and the other columns are zeros.

# %%
padded = tcusim.build("gemv", inner=64)
print(tcusim.listing(padded))

# %% [markdown]
# Fifteen of sixteen columns are wasted, and that is all right: the tensor core has time. What
# hurts is that every warp fetches, pads and stages x again for its sixteen rows.
# `gemv_reduction` is written like a reduction: a block copies x to shared memory once, a warp
# takes long slices of several rows, and its next slices are on the way while it multiplies the
# present ones. The vector needs no padding there: as a right operand whose columns are k elements
# apart, column 0 is what we want, and the others are the next slices of x, whose sums nobody
# reads.

# %%
tall = rng.integers(-3, 4, (256, 512)).astype(np.float16)
x = rng.integers(-3, 4, 512).astype(np.float16)
once = tall.nbytes + x.nbytes
for name, options in (("gemv", {}), ("gemv_reduction", {"warps": 8, "tile": "8x32x16"})):
    program = tcusim.build(name, inner=512, **options)
    counts = counted(program, tall, x)
    print(f"{name:15} {counts.mma} mma, {counts.bytes_read / once:.3f} times the bytes of A and x")
assert counts.bytes_read < 1.01 * once

# %% [markdown]
# With the tile 8x32x16 the matrix is the operand of 32 columns, transposed, so that one mma takes
# 32 rows of A instead of 16: half as many products. `tcusim.matvec` does that by itself:

# %%
y = tcusim.matvec(tall, x, dtype=np.float32)
assert np.array_equal(y, tall.astype(np.float32) @ x.astype(np.float32))
assert np.array_equal(y, tcusim.matvec(tall, x, dtype=np.float32, algorithm="gemv"))

# %% [markdown]
# ## To try
#
# - `tcusim.build("gemm", ab="s8", acc="s32")` has tiles of 16 bytes side by side, which WMMA
#   could not load from every second place. What does the listing do about it?
# - `tcusim.build("gemm", ab="bf16", source="f32")` multiplies float32: how many mma are there for
#   each pair of tiles, and why has each place two accumulators?

# %%
program = tcusim.build(
    "gemm", ab="bf16", source="f32", cols=16, inner=16, down=1, across=1, depth=1
)
singles = rng.standard_normal((16, 16)).astype(np.float32)
counts = counted(program, singles, singles)
print(counts.mma, "mma for one pair of float32 tiles")
assert counts.mma == 9
