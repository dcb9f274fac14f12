# %% [markdown]
# # 3. Sixteen sums in one mma
#
# A reduction adds the elements of a segment. This tutorial does the smallest one of
# [Dakkak et al.](../references.md): 256 numbers are 16 segments of 16, and **one** mma sums them
# all. First by hand, then on a simulated tensor core, then as a *step program*.

# %%
import collections
import dataclasses

import numpy as np

import tcusim

# %% [markdown]
# ## By hand
#
# Lay the segments side by side as the columns of a tile A. Now multiply from the left with P, a
# matrix of zeros whose first row is all ones. Row 0 of P·A is a row of ones times each column: the
# sum of each segment.

# %%
rng = np.random.default_rng(1)
x = rng.integers(0, 10, 256).astype(np.float16)

segments_as_columns = x.reshape(16, 16).T
p = np.zeros((16, 16), np.float16)
p[0, :] = 1

v = p @ segments_as_columns
print("V[0]      ", v[0].astype(int))
print("by NumPy  ", x.reshape(16, 16).sum(axis=1).astype(int))
print("rows 1 to 15 are", "all zero" if not v[1:].any() else "not zero")

# %% [markdown]
# "As columns" costs nothing. A tile is loaded from memory with a layout, and *column-major* with a
# leading dimension of 16 means that element (r, c) is at r + 16·c.
#
# Fifteen of sixteen multiplications are by zero. The paper argues that a unit this fast can
# afford the waste. Its count, 64 cycles against 256 for shuffles, takes a slow shuffle sum as the
# peer: one whose lanes first add their own eight values needs about 68 (erratum E19).
#
# ## On a tensor core
#
# The same product with the arithmetic of a real one:

# %%
v = tcusim.mma(p, segments_as_columns, arch="volta")
print(v.dtype, v[0].astype(int))

# %% [markdown]
# ## As a program
#
# In CUDA, a warp would call `load_matrix_sync`, `mma_sync` and `store_matrix_sync`. In tcusim an
# algorithm is a small list of just such steps, which is data: it can be printed, checked, run and
# counted. `tcusim.build` makes the program for a tile shape, `tcusim.listing` prints it.

# %%
program = tcusim.build("reduction_16", tile="16x16x16")
print(tcusim.listing(program))

# %% [markdown]
# Read it from the top. The header names the types, the grid (each block of one warp takes 256
# elements) and the fragments. Step 3 is the column-major load, step 4 the mma. V is an accumulator,
# and for WMMA it is not documented which lane has which of its elements; so it is stored to shared
# memory (5), the warp waits until all lanes have written (6), and row 0 is copied out (7).
#
# Running it:

# %%
out = tcusim.run(program, {"in": x}, arch="volta")["out"]
print(out.astype(int))

# %% [markdown]
# Each step that runs is an *event*. Whoever iterates over `tcusim.interpret` stands in the middle
# of the run, and may look at the fragments and the memory of every warp:

# %%
for event in tcusim.interpret(program, {"in": x}, arch="volta"):
    kind = type(event.step).__name__
    print(f"step {event.path}  {kind}")
    if kind == "Mma":
        fragment = event.state.fragment("V")
        print(f"        V is {fragment.shape}, its row 0 is {fragment[0, 0].astype(int)}")

# %% [markdown]
# The stepper of the `tcusim step` command shows these same events, and the counters consume them
# too. Here is a counter, over an input of 100 tiles:

# %%
tiles = np.tile(x, 100)
counts = collections.Counter()
for event in tcusim.interpret(program, {"in": tiles}):
    counts[type(event.step).__name__] += event.warps.size
print(dict(counts))
assert counts["Mma"] == 100

# %% [markdown]
# ## What a barrier is for
#
# All warps move in lockstep in a simulator, which could hide a forgotten barrier. Not here: what is
# written to shared memory stays invisible until the `Sync` that a GPU needs, and memory that nobody
# wrote holds NaN. And such a program is refused before it runs. Let us take the `Sync` out:

# %%
without_sync = [step for step in program.steps if type(step).__name__ != "Sync"]
broken = dataclasses.replace(program, steps=tuple(without_sync))
try:
    tcusim.run(broken, {"in": x})
except tcusim.VerifyError as error:
    print(error)

# %% [markdown]
# ## Other shapes
#
# WMMA has two more shapes for float16, and the algorithm is written once for all of them. The
# longer side of the tile takes the data: 32x8x16 holds 32 segments in A (and the constant goes to
# the right of it, transposed), 8x32x16 holds 32 in B. So one mma sums 512 elements instead of 256.

# %%
y = rng.integers(0, 10, 512).astype(np.float16)
expected = y.reshape(32, 16).sum(axis=1)
for shape in ("16x16x16", "32x8x16", "8x32x16"):
    program = tcusim.build("reduction_k", tile=shape)
    mma = 0
    for event in tcusim.interpret(program, {"in": y}):
        mma += event.warps.size * (type(event.step).__name__ == "Mma")
    out = tcusim.run(program, {"in": y})["out"]
    print(f"{shape:>8}  {mma} mma for {y.size} elements")
    assert np.array_equal(out, expected)

# %% [markdown]
# A shape need not exist in silicon. A new one is one line:

# %%
wide = tcusim.MmaShape(8, 64, 16, title="a wide tile that no GPU has")
program = tcusim.build("reduction_k", tile=wide)
out = tcusim.run(program, {"in": np.tile(y, 2)})["out"]
print(f"{wide}: {out.size} sums from one mma")
assert np.array_equal(out, np.tile(expected, 2))

# %% [markdown]
# ## To try
#
# - `tcusim.build("reduction_256")` needs a second product. Print its listing: why is there a
#   `sync` before the copy to `t_X`, and another after it?
# - `tcusim.build("reduction_16", masked=True)` takes inputs of any length. What became of
#   the load?
#
# Next: [a scan of 256 numbers](05_scan.md).
