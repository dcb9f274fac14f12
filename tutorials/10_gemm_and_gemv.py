# %% [markdown]
# # 10. Matrix products: GEMM and GEMV
#
# Tensor cores were made for one thing: C = A·B + C for matrices, called GEMM. The reductions and
# scans of this course borrow them; this lesson returns to the work they were made for. We take the
# naive program apart, count its memory traffic, and reduce it with tiles in shared memory. Then we
# ask whose bits a product has, and end with a matrix times a vector (GEMV), which the memory limits
# whatever one does.

# %%
import dataclasses

import numpy as np

import tcusim
import tcusim.lessons
from tcusim.program.grammar import Loop, Mma, Program, Sync
from tcusim.simulate.counts import Counts

rng = np.random.default_rng(10)

# %% [markdown]
# ## One tile of C for each warp
#
# `gemm_naive` gives each warp one tile of C. Along the inner axis, the warp loads a tile of A and a
# tile of B and multiplies them. The program is built for a number of columns (`cols`) and an inner
# size (`inner`). The number of rows follows from the size of A when it runs.

# %%
naive = tcusim.build("gemm_naive", cols=32, inner=64)
print("The steps of gemm_naive:")
print(tcusim.listing(naive).split("\n\n")[1])

# %% [markdown]
# The heart is step 2, with one mma in 2.3. The `if` in 2.1 and 3 is for the lower edge: a block
# whose rows all exist loads and stores where the matrix lies. Otherwise the tile is copied element
# by element, with zeros for the rows that do not exist. So 40 rows are no problem for tiles of 16:

# %%
a = rng.integers(-3, 4, (40, 64)).astype(np.float16)
b = rng.integers(-3, 4, (64, 32)).astype(np.float16)
out = tcusim.run(naive, {"a": a.ravel(), "b": b.ravel()})["out"].reshape(40, 32)
naive_is_right = np.array_equal(out, a.astype(int) @ b.astype(int))
print(f"A (40 x 64) times B (64 x 32) is right: {naive_is_right}.")

# %% [markdown]
# Step through it. At each mma, element (0, 0) of C gains sixteen more terms:

# %% tags=["picture"]
tcusim.trace(naive, {"a": a.ravel(), "b": b.ravel()}, warps=0)

# %%
expected = np.cumsum((a[0].astype(int) * b[:, 0].astype(int)).reshape(4, 16).sum(axis=1))
seen = []
for event in tcusim.interpret(naive, {"a": a.ravel(), "b": b.ravel()}):
    if isinstance(event.step, Mma):
        seen.append(int(event.state.fragment("C")[0, 0, 0]))
        print(f"After the mma of i = {event.loops['i']}, C[0, 0] is {seen[-1]}.")

# %% [markdown]
# ## The memory traffic
#
# One mma of 16x16x16 reads two tiles of 512 bytes, and here both come from global memory every
# time. We count the bytes that the program reads for each mma:


# %%
def counted(program: Program, *arrays: np.ndarray) -> Counts:
    """Run a program; return its mma steps, and its bytes of global memory."""
    counts = Counts()
    names = [buffer.name for buffer in program.inputs]
    flat = {name: x.ravel() for name, x in zip(names, arrays, strict=True)}
    tcusim.run(program, flat, watch=counts)
    return counts


square = rng.integers(-3, 4, (128, 128)).astype(np.float16)
counts = counted(tcusim.build("gemm_naive", cols=128, inner=128), square, square)
naive_bytes = counts.bytes_read / counts.mma
print(f"gemm_naive: {counts.mma} mma read {counts.bytes_read:,} bytes, {naive_bytes:.0f} each.")

# %% [markdown]
# How bad is that? We compare it with an H200, by the figures that tcusim has of it: how often a
# tensor core can begin a WMMA mma, and how fast memory is read.

# %%
h200 = tcusim.unit_of("h200")
figures = {name: figure.value for name, figure in h200.figures().items()}
mma_time = h200.instruction("16x16x16", "f16", "f32", "wmma")
tensor_cores = figures["cores"] * figures["units_per_core"]
mma_per_second = tensor_cores * figures["clock"] / mma_time.interval.value
affordable = figures["memory_bandwidth"] / mma_per_second
print(f"{tensor_cores:.0f} tensor cores begin up to {mma_per_second:.2e} mma a second together.")
print(f"(Each begins one in {mma_time.interval.value} cycles; {mma_time.interval.confidence}:")
print(f"{mma_time.interval.source}.)")
print(f"In that time, memory delivers {affordable:.0f} bytes for each mma.")
print(f"The naive program asks for {naive_bytes / affordable:.0f} times as much.")

# %% [markdown]
# This comparison is called a **roofline**. Left of the ridge the memory limits a program, right of
# it the arithmetic does; *arithmetic intensity* is how many operations are made for each byte:
#
# <!-- figure: roofline -->
#
# Caches help the naive program, but the cure is to use each tile more than once.
#
# ## Stage tiles in shared memory
#
# In `gemm` the warps of a block work together. They copy the block's rows of A and columns of B to
# shared memory *once*, and then each warp multiplies its corner. Each warp has several
# accumulators, so a tile of A that it loads meets several tiles of B. That is two kinds of reuse.
# This is the largest block that `tcusim.matmul` chooses:
#
# <!-- figure: tiling -->

# %%
staged_bytes = {}
for warps, each in ((1, 1), (4, 1), (4, 2), (16, 2)):
    program = tcusim.build("gemm", cols=128, inner=128, warps=warps, down=each, across=each)
    counts = counted(program, square, square)
    side = 16 * each * int(warps**0.5)
    staged_bytes[side] = counts.bytes_read / counts.mma
    print(f"a block of {side:>3} x {side:<3}: {staged_bytes[side]:>5.0f} bytes for each mma")

# %% [markdown]
# Twice the side of a block's tile, half the bytes.
#
# ## Two stages, one barrier
#
# Copying takes time, and the tensor cores should not wait for it. So there are two *stages* in
# shared memory: while one is multiplied, the other is filled.
#
# <!-- figure: stages -->
#
# Here is the loop, with tiles so small that it stays short:

# %%
program = tcusim.build("gemm", cols=32, inner=80, warps=4, down=1, across=1, depth=1)
steps = tcusim.listing(program).split("\n\n")[1].splitlines()
print("The loop of gemm:")
print("\n".join(line for line in steps if line.startswith("8")))

# %% [markdown]
# Look at the order. The copies to stage 1 (`a1_s`, `b1_s`) come first, then the product of what was
# loaded from stage 0, then **one** barrier, then the loads from stage 1; and all again with the
# stages exchanged. A round does two steps of the inner axis, because the grammar has no "stage
# i modulo 2": every address is a sum of multiples of `i`, `warp` and their like (*affine*). That is
# what lets `verify` prove things for all sizes at once.
#
# What if we drop the barrier in the middle? Then a fast warp would fill a stage that a slow warp
# still reads, or read one that is not yet filled. The program is refused, and told why:

# %%
loop = next(step for step in program.steps if isinstance(step, Loop))
first_barrier = next(i for i, step in enumerate(loop.body) if isinstance(step, Sync))
body = loop.body[:first_barrier] + loop.body[first_barrier + 1 :]
shorter = dataclasses.replace(loop, body=body)
broken = dataclasses.replace(
    program, steps=tuple(shorter if step is loop else step for step in program.steps)
)
try:
    tcusim.verify(broken)
    message = "nothing"
except tcusim.VerifyError as error:
    message = str(error)
print(f"Without its first barrier, verify says:\n{message}")

# %% [markdown]
# ## How long would it take?
#
# The roofline above knows neither caches nor waiting. `tcusim.cost` does: it follows the steps of a
# block, counts the work of each part of the GPU, and predicts the time ([What it
# costs](../cost.md)). Here are matrices of 4096 x 4096 on an H200:

# %%
size = 4096
candidates = {
    "gemm_naive": tcusim.build("gemm_naive", cols=size, inner=size),
    "gemm, 32 x 32": tcusim.build("gemm", cols=size, inner=size, warps=4, down=1, across=1),
    "gemm, 128 x 128": tcusim.build("gemm", cols=size, inner=size, warps=16, down=2, across=2),
}
predicted = {}
for name, program in candidates.items():
    cost = tcusim.cost(program, "h200", sizes={"a": size * size, "b": size * size})
    predicted[name] = cost.seconds
    print(f"{name:>15}: {cost.seconds * 1e3:.2f} ms; alone, in ms,", end=" ")
    print(", ".join(f"{part} {seconds * 1e3:.2f}" for part, seconds in cost.parts.items()))

# %% [markdown]
# The second-level cache (L2) takes most of the load off the memory, so the memory does not limit
# these programs wait for. But larger blocks ask less of L2 and of the *cores*, which have fewer
# loads to issue, so they win for the same reason. *Latency* is the waiting for a load or a product
# that has been begun; more stages, and more accumulators for each warp, hide it.
#
# ## Whose bits are they?
#
# A product with a float32 accumulator depends on the order in which its terms join. `tcusim.mma`
# takes matrices of any size and makes *one chain*: the accumulator of one step is the C of the
# next, from the first k to the last. So does `gemm_naive`. `tcusim.matmul` cuts long chains into
# shorter ones and adds their sums, which is [more accurate](06_precision.md):

# %%
errors = {}
left = rng.standard_normal((16, 1024)).astype(np.float16)
right = rng.standard_normal((1024, 32)).astype(np.float16)
exact = left.astype(float) @ right.astype(float)
chain = tcusim.mma(left, right, arch="h200")
by_program = tcusim.run(
    tcusim.build("gemm_naive", cols=32, inner=1024),
    {"a": left.ravel(), "b": right.ravel()},
    arch="h200",
)["out"].reshape(16, 32)
in_chains = tcusim.matmul(left, right, dtype=np.float32, options={"arch": "h200"})
for name, result in (("one chain", chain), ("gemm_naive", by_program), ("matmul", in_chains)):
    errors[name] = np.abs(result - exact).max()
    same = np.count_nonzero(result == chain)
    print(f"{name:>10}: {same:>3} of {chain.size} have one chain's bits, error {errors[name]:.1e}")

# %% [markdown]
# And the library that everybody uses? On 21 November 2026 we multiplied float16 matrices of 128 x K
# and K x 128 with `torch.matmul`, which calls NVIDIA's cuBLAS, on an H200. Of 16,384 results,
# **none differed** in any bit from one chain of `tcusim.mma` for K = 64, 256 and 1024. For K =
# 4096, 285 did: cuBLAS must have added in another order there. It may choose another order for any
# size, and from release to release, so this is a measurement and no promise.
#
# Other orders can be predicted, too, such as *split-K*, in which several blocks share the inner
# axis and their sums are added in the end:

# %%
orders = {"one chain": tcusim.GemmOrder(), "split-K in 4": tcusim.GemmOrder(parts=4)}
library = {}
for name, order in orders.items():
    library[name] = tcusim.predict_matmul(left, right, arch="h200", order=order, dtype=np.float32)
    same = np.count_nonzero(library[name] == chain)
    print(f"{name:>12}: {same:>3} of {chain.size} have one chain's bits")

# %% [markdown]
# If you have a library's result and wonder in which order it added, `tcusim.explain_matmul` tries
# the known ones: [Predicting a library's product](../predict.md).
#
# ```py title="needs a GPU"
# import torch
#
# a = torch.randn(128, 1024, device="cuda", dtype=torch.float16)
# b = torch.randn(1024, 128, device="cuda", dtype=torch.float16)
# there = (a @ b).cpu().numpy()
# here = tcusim.predict_matmul(a.cpu().numpy(), b.cpu().numpy(), arch="h200")
# print((there != here).sum(), "of", here.size, "differ")
# ```
#
# ## Accumulate in float16 or in float32?
#
# The paper calls the product with float16 accumulators HGEMM, and that with float32 accumulators
# MGEMM. The first is rounded to 11 bits after every mma. Here each mma adds sixteen sixteenths,
# that is 1, to 2048, and the next float16 after 2048 is 2050:

# %%
ones = np.ones((1, 2048), np.float16)
column = np.full((2048, 1), 1 / 16, np.float16)
start = np.full((1, 1), 2048, np.float16)
totals = {}
for acc in ("f16", "f32"):
    product = tcusim.matmul(ones, column, start, options={"acc": acc, "algorithm": "gemm"})
    totals[acc] = float(product.item())
    print(f"2048 + 2048/16, with {acc} accumulators: {totals[acc]:.0f}")

# %% [markdown]
# The float16 sum **stagnates**: each addition is rounded away ([lesson 2](02_the_bits.md)).
#
# ## A matrix times a vector
#
# Now y = A·x. Each element of A is used once, so no reuse is possible: the best program reads A
# once, at the speed of memory. The paper makes a matrix product of it, with a *padded* vector: x is
# the first column of B, and the other columns are zeros. Fifteen of sixteen columns are wasted, and
# that does not matter, because the tensor cores have time. What matters is that every warp fetches,
# pads and stages x again for its sixteen rows.
#
# `gemv_reduction` is built like a reduction. A block copies x to shared memory once, and each warp
# takes long slices of several rows. No copy is padded: x is loaded as a right operand whose columns
# are k elements apart, so column 0 is the slice that counts. The other columns are the next slices,
# and their sums are never read.

# %%
tall = rng.integers(-3, 4, (256, 512)).astype(np.float16)
x = rng.integers(-3, 4, 512).astype(np.float16)
once = tall.nbytes + x.nbytes
times_read = {}
for name, options in (("gemv", {}), ("gemv_reduction", {"warps": 8, "tile": "8x32x16"})):
    counts = counted(tcusim.build(name, inner=512, **options), tall, x)
    times_read[name] = counts.bytes_read / once
    print(f"{name}: {counts.mma} mma, reads {times_read[name]:.3f} times the bytes of A and x")

# %% [markdown]
# With the tile 8x32x16 the matrix is the operand with 32 columns, transposed: one mma takes 32 rows
# of A instead of 16. `tcusim.matvec` chooses that by itself:

# %%
y = tcusim.matvec(tall, x, dtype=np.float32)
matvec_is_right = np.array_equal(y, tall.astype(np.float32) @ x.astype(np.float32))
print(f"tcusim.matvec is right in all {y.size} rows: {matvec_is_right}.")

# %% [markdown]
# ## Exercise 1: bytes for each mma
#
# How many bytes does a block of side x side results read for each mma of 16x16x16 in float16? The
# block reads its rows of A and its columns of B once.
#
# <details><summary>Hint</summary>
# Along 16 elements of the inner axis, the block reads side x 16 elements of A and as many of B, and
# makes (side / 16)² mma.
# </details>


# %% tags=["exercise"]
def bytes_of_mma(side: int) -> float | None:
    """Return the bytes read for each mma."""


# %% tags=["solution"]
def bytes_of_mma(side: int) -> float | None:
    return 2 * side * 16 * 2 / (side / 16) ** 2


# %% tags=["check"]
tcusim.lessons.check(
    "10.1 Bytes for each mma",
    tcusim.lessons.equal({side: bytes_of_mma(side) for side in staged_bytes}, staged_bytes),
    f"the counts above are {staged_bytes}; a float16 has 2 bytes",
)

# %% [markdown]
# ## Exercise 2: how large must a block be?
#
# Without any help from caches, from which side on (a power of two, at least 16) does a GPU have the
# bytes for each mma in time? `affordable` is how many bytes its memory delivers for each mma; for
# the H200 it was computed above.
#
# <details><summary>Hint</summary>
# Try 16, 32, 64 and so on with your answer to exercise 1.
# </details>


# %% tags=["exercise"]
def side_of_block(affordable: float) -> int | None:
    """Return the smallest power of two for which the memory keeps up."""


# %% tags=["solution"]
def side_of_block(affordable: float) -> int | None:
    side = 16
    while 1024 * 16 / side > affordable:
        side *= 2
    return side


# %% tags=["check"]
tcusim.lessons.check(
    "10.2 How large must a block be",
    tcusim.lessons.equal((side_of_block(65.0), side_of_block(300.0)), (256, 64)),
    "1024 * 16 / side must be at most the affordable traffic: 65 bytes take a side of 256",
)

# %% [markdown]
# (128 x 128 and 128 x 256 are usual for large GPUs: blocks side by side want the same rows of A,
# and the cache has them.)
#
# ## Exercise 3: reproduce blocked chains to the bit
#
# Built with `accumulation_length=4`, `gemm_naive` makes chains of 4 mma steps, which are 64 terms,
# and adds each chain's sum to a float32 total. Write that with `tcusim.mma`, so that all bits
# agree.
#
# <details><summary>Hint</summary>
# <code>tcusim.mma(a[:, k : k + 64], b[k : k + 64], arch="h200")</code> is one chain. Add the chains
# in order, as float32 arrays, beginning with zeros.
# </details>


# %% tags=["exercise"]
def blocked(a: np.ndarray, b: np.ndarray) -> np.ndarray | None:
    """Return a @ b in chains of 64 terms."""


# %% tags=["solution"]
def blocked(a: np.ndarray, b: np.ndarray) -> np.ndarray | None:
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in range(0, a.shape[1], 64):
        total += tcusim.mma(a[:, k : k + 64], b[k : k + 64], arch="h200")
    return total


# %% tags=["check"]
program = tcusim.build("gemm_naive", cols=32, inner=1024, accumulation_length=4)
inputs = {"a": left.ravel(), "b": right.ravel()}
there = tcusim.run(program, inputs, arch="h200")["out"].reshape(16, 32)
tcusim.lessons.check(
    "10.3 Reproduce blocked chains",
    tcusim.lessons.equal(blocked(left, right), there),
    "some bits differ: is the total float32, and are the chains of 64 terms added in order?",
)

# %% [markdown]
# ## In short
#
# - A product waits for memory or caches until each byte is used often enough: stage tiles, make
#   blocks large.
# - The bits are those of an order of additions. One chain is what `tcusim.mma` and, for the sizes
#   above, cuBLAS computed.
# - A matrix times a vector is bound by memory always.
#
# Next: [from step to CUDA](11_from_step_to_cuda.md).

# %%
assert naive_is_right
assert seen == expected.tolist()
assert naive_bytes == 2 * 16 * 16 * 2
assert staged_bytes == {side: naive_bytes * 16 / side for side in (16, 32, 64, 128)}
assert "synced_shared" in message
assert np.array_equal(by_program, chain)
assert np.array_equal(library["one chain"], chain)
assert not np.array_equal(library["split-K in 4"], chain)
assert errors["matmul"] < errors["one chain"]
assert sorted(predicted.values(), reverse=True) == [*predicted.values()]
assert totals == {"f16": 2048, "f32": 2048 + 128}
assert times_read["gemv_reduction"] < 1.01
assert matvec_is_right
