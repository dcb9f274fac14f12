# %% [markdown]
# # 4. Longer segments: 256 and 256N
#
# [Lesson 3](03_reduction_16.md) sums segments of 16 numbers with one mma. Now the segments become
# longer: 256 numbers, and then any multiple of 256. You will see why the second half of the work
# can wait until the end, what *work-efficient* means, and where the sum loses its precision.

# %%
import numpy as np

import tcusim
import tcusim.lessons
from tcusim.line_charts import Line, Plot

# %% [markdown]
# ## One segment fills a tile
#
# A tile A has 256 elements. If all of them belong to one segment, P·A is half of the answer: row 0
# has 16 partial sums, one for each column. To add these up, multiply again, from the *right* with
# Pᵀ, whose first *column* is ones:
#
# **R = (P·A)·Pᵀ**
#
# Element (0, 0) of R is the sum of all 256 numbers.

# %%
rng = np.random.default_rng(4)
x = rng.integers(0, 10, 256).astype(np.float32)
tile = x.reshape(16, 16).T
p = np.zeros((16, 16), np.float32)
p[0, :] = 1

v = p @ tile
r = v @ p.T
print("Row 0 of V = P·A:", v[0].astype(int))
print(f"R = V·Pᵀ has {r[0, 0]:.0f} in its corner; the sum is {x.sum():.0f}")

# %% [markdown]
# ## Between the two products
#
# Here is the program, `reduction_256`. Steps 1 to 5 are those of lesson 3. The second product is
# step 12, where X is V as an operand and P1 is Pᵀ. (A name in a listing has no ᵀ.)

# %%
program = tcusim.build("reduction_256")
print("The program reduction_256:\n")
print(tcusim.listing(program))

# %% [markdown]
# Steps 5 to 11 are there because V is an accumulator, and the second product wants it as an operand
# (X). As [lesson 1](01_one_mma.md) said, WMMA knows one way from one to the other:
#
# 1. Store V to shared memory, in float32 (step 5), and wait for all lanes (step 8).
# 2. Copy it to another place, **rounding each number to float16** (step 9), and wait (step 10).
# 3. Load that as an operand (step 11).
#
# The paper writes V·Pᵀ and mentions neither the detour nor the rounding. Two mma and a detour for
# 256 numbers is twice the price of lesson 3.
#
# Step through it. At step 9, compare what is in `s_V` with what arrives in `t_X`:

# %% tags=["picture"]
tcusim.trace(program, {"in": x.astype(np.float16)}, arch="volta")

# %% [markdown]
# ## 256N: finish once
#
# A segment of N tiles could do all that N times. But the product is linear: add up the V of all
# tiles *first*, and finish once. The addition is free, since an mma adds its C anyway:
#
# **V ← P·A₀, then V ← P·A₁ + V, then V ← P·A₂ + V, …, and at the end R = V·Pᵀ**
#
# That is `reduction_256n`, here for segments of four tiles. The loop (step 3) has one load and one
# mma:

# %%
long = tcusim.build("reduction_256n", segment_size=4 * 256)
print("The steps of reduction_256n, which finishes once:\n")
print(tcusim.listing(long).split("\n\n")[1])

# %% [markdown]
# And this finishes every tile, `reduction_tn_inefficient`. It is in the paper, too, for comparison.
# Its Q is R, added up over the tiles:

# %%
slow = tcusim.build("reduction_tn_inefficient", segment_size=4 * 256)
print("The steps of reduction_tn_inefficient, which finishes every tile:\n")
print(tcusim.listing(slow).split("\n\n")[1])

# %% [markdown]
# ## What work-efficient means
#
# An algorithm is **work-efficient** if it does at most a constant factor more work than the
# simplest sequential one. The constant is what differs here: finishing every tile takes 2 mma for
# each 256 numbers, finishing once takes N + 1 for 256·N, nearly half. By this definition both forms
# are; the paper uses the word for the second alone.
#
# We need not believe formulas. A trace counts what a program does, and `Plot` draws it, here and in
# a notebook:

# %%
ones = np.ones(64 * 256, np.float16)
tiles_of_ones = ones.size // 256
names = {
    "finish every tile": "reduction_tn_inefficient",
    "finish once (256N)": "reduction_256n",
}
lengths = [2**power for power in range(7)]
per_tile = {
    name: [
        tcusim.trace(tcusim.build(program, segment_size=256 * n), {"in": ones}).counts.mma
        / tiles_of_ones
        for n in lengths
    ]
    for name, program in names.items()
}
for name, found in per_tile.items():
    print(f"{name}: {found[0]:g} mma a tile for N = 1, {found[-1]:.3f} for N = {lengths[-1]}")

# %% tags=["picture"]
Plot(
    "Instructions for a sum of N tiles",
    tuple(
        Line(name, tuple(zip(map(float, lengths), per_tile[name], strict=True)))
        for name in reversed(names)
    ),
    x="N, tiles in a segment",
    y="mma for each tile of 256 numbers",
    level=("one mma a tile", 1.0),
)

# %% [markdown]
# ## 16N: another way to long segments
#
# There is a second way. Keep lesson 3's picture, 16 segments as the 16 columns of a tile, and let
# the segments be longer than the tile is high. Tile i then holds numbers 16·i to 16·i + 15 of
# *each* segment, and V accumulates 16 sums at once. Nothing is left to finish: N mma for 16
# segments of 16·N, `reduction_16n`.

# %%
side_by_side = tcusim.build("reduction_16n", segment_size=64)
print("The steps of reduction_16n:\n")
print(tcusim.listing(side_by_side).split("\n\n")[1])

# %% [markdown]
# The price is in the load (step 3.1). Its `stride=64` is the leading dimension: columns of the tile
# are 64 elements apart in memory, the length of a segment. A load of 256N reads 512 bytes without a
# gap; a load of 16N reads 16 pieces of 32 bytes. The longer the segment, the farther apart the
# pieces are, and memory is fastest when read without gaps.
#
# | | tile i holds | mma | a load reads |
# | --- | --- | --- | --- |
# | 256N | 256 numbers of one segment | N + 1 for one segment of 256·N | 512 bytes in a row |
# | 16N | 16 numbers of each of 16 segments | N for 16 segments of 16·N | 16 pieces of 32 bytes |
#
# ## Where the precision goes
#
# The detour of V rounds to float16, which has 11 significant bits. As V holds partial sums, they
# may be large, and then the rounding is coarse: near 10,000 float16 numbers are 8 apart.
#
# tcusim can also finish without a second product. With `combine="add"`, the 16 partial sums are
# added by the lanes, in float32, as a tree of four rounds. So nothing is rounded to float16, and
# the last mma is saved.

# %%
wide = (100 * rng.random(4 * 4096)).astype(np.float16)
exact = wide.reshape(-1, 4096).sum(axis=1, dtype=np.float64)
errors = {}
for combine in ("mma", "add"):
    program = tcusim.build("reduction_256n", segment_size=4096, combine=combine)
    run = tcusim.trace(program, {"in": wide})
    sums = tcusim.run(program, {"in": wide})["out"]
    errors[combine] = float(np.abs(sums / exact - 1).max())
    print(
        f"combine={combine!r}: {run.counts.mma} mma, largest relative error {errors[combine]:.0e}"
    )

# %% [markdown]
# Hundreds of times better, with one instruction *less* for each segment. `tcusim.segmented_sum`,
# the function to use when you just want sums, does it this way. It chooses among all these programs
# by the length of the segments:

# %%
result = tcusim.segmented_sum(wide, 4096, dtype=np.float32)
print("segmented_sum returns", result)

# %% [markdown]
# ## Exercise 1: count
#
# How many mma does `reduction_256n` take for an array of `length` numbers in segments of `segment`
# numbers? Both are multiples of 256, and segments fill the array.
#
# <details><summary>Hint</summary>
# One for each tile, and one for each segment.
# </details>


# %% tags=["exercise"]
def mma_of_256n(length, segment):
    """Return the number of mma."""


# %% tags=["solution"]
def mma_of_256n(length, segment):
    return length // 256 + length // segment


# %% tags=["check"]
cases = ((1024, 1024), (8192, 512), (16384, 256))
tcusim.lessons.check(
    "4.1 Count",
    tcusim.lessons.equal(
        [mma_of_256n(length, segment) for length, segment in cases],
        [
            tcusim.trace(
                tcusim.build("reduction_256n", segment_size=segment), {"in": ones[:length]}
            ).counts.mma
            for length, segment in cases
        ],
    ),
    "1024 numbers in one segment are 4 tiles and 1 segment: 5 mma",
)

# %% [markdown]
# ## Exercise 2: move P
#
# The ones of P are in row 0, so the sums of a tile's columns land in row 0 of V. Put the ones into
# another row, and they land there. With a different P for each tile, 16 tiles fill *one* V, with
# 256 sums of 16 numbers each, to be stored all at once. Write that P.
#
# <details><summary>Hint</summary>
# Row i of P·A is row i of P times A.
# </details>


# %% tags=["exercise"]
def p_for_row(row):
    """Return the 16x16 array of float16 that sums the columns of a tile into this row."""


# %% tags=["solution"]
def p_for_row(row):
    p = np.zeros((16, 16), np.float16)
    p[row, :] = 1
    return p


# %% tags=["check"]
tiles = rng.integers(0, 10, (16, 16, 16)).astype(np.float16)


def packed():
    """Return V after 16 tiles, each with a P of its own; None without them."""
    v = np.zeros((16, 16), np.float32)
    for row, one in enumerate(tiles):
        if p_for_row(row) is None:
            return None
        v = tcusim.mma(p_for_row(row), one, v)
    return v


tcusim.lessons.check(
    "4.2 Move P",
    tcusim.lessons.equal(packed(), tiles.sum(axis=1)),
    "row i of V should hold the sums of the columns of tile i: ones in row i of P, else zeros",
)

# %% [markdown]
# ## Exercise 3: what would rounding cost?
#
# V holds partial sums of a long segment. If its numbers lie between 0 and `largest`, and a segment
# has N tiles, a partial sum may reach 16·N·`largest`. From which N (a power of 2) on may it
# overflow a float16, whose largest number is 65504?
#
# <details><summary>Hint</summary>
# Try N = 1, 2, 4, … until 16·N·largest is more than 65504.
# </details>


# %% tags=["exercise"]
def first_overflow(largest):
    """Return the least power of 2 for which a partial sum may exceed 65504."""


# %% tags=["solution"]
def first_overflow(largest):
    n = 1
    while 16 * n * largest <= 65504:
        n *= 2
    return n


# %% tags=["check"]
tcusim.lessons.check(
    "4.3 What would rounding cost?",
    tcusim.lessons.equal(
        [first_overflow(1), first_overflow(100), first_overflow(255)], [4096, 64, 32]
    ),
    "for numbers up to 1 it is N = 4096: 16·4096 = 65536, just above 65504",
)

# %% [markdown]
# Try it, with 4096 tiles of ones:

# %%
million = np.ones(4096 * 256, np.float16)
overflow = tcusim.build("reduction_256n", segment_size=million.size)
print(f"reduction_256n of {million.size} ones: {tcusim.run(overflow, {'in': million})['out'][0]}")
print(f"tcusim.sum of them: {tcusim.sum(million, dtype=np.float32):.0f}")

# %% [markdown]
# ## In short
#
# - A segment that fills a tile takes two products, and a detour through shared memory between them.
# - For N tiles, accumulate first and finish once: N + 1 mma instead of 2·N.
# - 16N sums 16 segments side by side with N mma, but reads memory in pieces.
# - The detour rounds partial sums to float16; combining them by additions does not.
#
# Next: [a scan](05_scan.md).

# %%
assert r[0, 0] == x.sum()
assert per_tile["finish once (256N)"] == [(n + 1) / n for n in lengths]
assert set(per_tile["finish every tile"]) == {2}
assert errors["add"] < errors["mma"] / 100
