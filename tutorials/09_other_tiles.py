# %% [markdown]
# # 9. Other tiles
#
# So far a tile was 16x16x16, in float16. Tensor cores have other sizes and other types, and the
# next one may have a size that no GPU has today. In this lesson one algorithm runs on all of them.
# We look at the effect of the shape on the work of one mma and on the bits (mostly none), at the
# effect of the types, and try a tile of our own.

# %%
import numpy as np

import tcusim
import tcusim.lessons
from tcusim.machine import format_of, round_values

# %% [markdown]
# ## Three shapes for float16
#
# A shape is written m x n x k: A is m x k, B is k x n, and C and D are m x n. WMMA, the C++
# interface of CUDA, has three for float16. Each does the same 4,096 multiply-adds:
#
# <!-- figure: wmma_shapes -->
#
# To sum, one operand holds the data and the other holds ones and zeros. With the data on the left,
# the m rows of A are m segments of k numbers. With the data on the right, the n columns of B are.
# tcusim takes the longer side, so that one mma of the flat shapes sums twice as many numbers:

# %%
rng = np.random.default_rng(9)
wmma = ("16x16x16", "32x8x16", "8x32x16")
of_one_mma = {}
for shape in wmma:
    program = tcusim.build("reduction_k", tile=shape)
    of_one_mma[shape] = program.scalars[0].multiple_of
    product = next(line for line in tcusim.listing(program).splitlines() if line.startswith("4 "))
    print(f"{shape:>8}: one mma sums {of_one_mma[shape]} numbers: {product[3:20].strip()}")

# %% [markdown]
# In `V ← P·A + V` the data are on the right, in `V ← A·P + V` on the left. The algorithm is written
# once, for data on the left, and tcusim transposes it where that is better. Step through the shape
# 32x8x16, in which one mma sums 32 rows:

# %% tags=["picture"]
flat = tcusim.build("reduction_k", tile="32x8x16")
tcusim.trace(flat, {"in": np.arange(512, dtype=np.float16) % 10})

# %% [markdown]
# ## How much of the work is useful?
#
# Summing uses a multiplier as an adder, so most of the multiply-adds are wasted. Each number must
# be added once, so the **useful** share is
#
#     numbers summed / (m · n · k · mma steps)
#
# `tcusim.validate_shape` builds the algorithms for a shape, tries whether they are right, counts,
# and reports. These are sums of k numbers (`reduction_k`) and scans of k numbers (`scan_k`):

# %%
useful = {}
for shape in wmma:
    report = tcusim.validate_shape(shape, algorithms=["reduction_k", "scan_k"])
    for row in report.rows:
        useful[shape, row.name, row.side] = row.useful
        side = "left" if row.side == "a" else "right"
        print(
            f"{shape:>8}  {row.name:<11}  data on the {side:<5}: {row.mma} mma for"
            f" {row.elements} numbers, {row.useful:6.2%} useful"
        )

# %% [markdown]
# For a sum the flat shapes are twice as good, if the data are on their long side. For a scan they
# do not gain: the product A·U needs all k columns of U, and 32x8x16 has room for 8 columns of the
# result at a time. So it takes two mma.
#
# ## Does the shape change the bits?
#
# A tensor core adds L products and C together ([lesson 2](02_the_bits.md)). What counts is which
# terms share such a step. On Hopper L is 16, so a tile with k = 16 is one step in any shape. A tile
# with k = 8 makes two steps of 8 terms of it, and truncates twice:

# %%
wide = (rng.standard_normal(8192) * np.exp2(rng.integers(-12, 3, 8192))).astype(np.float16)
results = {}
for shape in (*wmma, "16x8x16", "16x8x8"):
    program = tcusim.build("reduction_kn", tile=shape, segment_size=512, side="a")
    rows = tcusim.run(program, {"in": np.resize(wide, 32 * 512)}, arch="hopper")["out"]
    results[shape] = rows[:16]
    same = np.count_nonzero(results[shape] == results["16x16x16"])
    print(f"{shape:>8}: {same:>2} of 16 sums have the bits of 16x16x16")

# %% [markdown]
# ## Below WMMA: `mma.sync`
#
# WMMA is an interface. The instruction below it is `mma.sync`, and 16x8x16 is one of its tiles for
# float16. It has no C++ form: a kernel writes it in PTX, NVIDIA's assembly language, and must
# itself put the elements into the right lanes. PTX documents which ones those are:

# %% tags=["picture"]
tcusim.layout("m16n8k16", "a")

# %%
layout = tcusim.layout("m16n8k16", "a")
(held,) = layout.holders(9, 3)
print(f"Element (9, 3) of A is in lane {held.lane}, register {held.register}.")
print(f"Lane {held.lane} holds {len(layout.lane(held.lane))} elements of A:")
print(*((one.row, one.col) for one in layout.lane(held.lane)))

# %% [markdown]
# Algorithms do not notice. A step program cannot name a lane, and the emitter, which writes the
# kernel, knows the layout: [lesson 11](11_from_step_to_cuda.md) shows both instructions.
#
# ## Other types
#
# | type | bits | fraction bits | largest | on tensor cores |
# | --- | --- | --- | --- | --- |
# | f16 (half) | 16 | 10 | 65504 | since Volta |
# | s8 | 8 | integer | 127 | since Turing |
# | bf16 (bfloat16) | 16 | 7 | 3.4·10³⁸ | since Ampere |
# | tf32 | 19 of 32 | 10 | 3.4·10³⁸ | since Ampere |
# | f64 (double) | 64 | 52 | 1.8·10³⁰⁸ | since Ampere |
#
# The type of the accumulator, C and D, is often wider. We sum 512 numbers, 16 times, with each pair
# of types. Two errors are worth telling apart: the error of *rounding the numbers* to the type
# before they are summed, and the error of *summing* the rounded numbers:

# %%
numbers = rng.standard_normal((16, 512))
pairs = (
    ("f64", "f64", "8x8x4"),
    ("tf32", "f32", "16x16x8"),
    ("f16", "f32", "16x16x16"),
    ("f16", "f16", "16x16x16"),
    ("bf16", "f32", "16x16x16"),
    ("s8", "s32", "16x16x16"),
)
errors = {}
print(" operands  accumulator  tile      worst error of rounding  of summing")
for ab, acc, tile in pairs:
    program = tcusim.build("reduction_kn", tile=tile, ab=ab, acc=acc, segment_size=512)
    scale = 127 / np.abs(numbers).max() if ab == "s8" else 1.0
    scaled = numbers * scale
    given = np.rint(scaled) if ab == "s8" else round_values(scaled, ab)
    typed = given.astype(format_of(ab).dtype)
    sums = tcusim.run(program, {"in": np.resize(typed, program.scalars[0].multiple_of)})["out"]
    exact = given.astype(float).sum(axis=1)
    rounding = np.abs(exact / scale - numbers.sum(axis=1)).max()
    summing = np.abs(sums[:16] - exact[: sums.size]).max() / scale
    errors[ab, acc] = rounding, summing
    print(f"{ab:>9}  {acc:<11}  {tile:<8}  {rounding:>23.1e}  {summing:>10.1e}")

# %% [markdown]
# - **f16 to f32**: rounding the numbers costs thousands of times as much as summing them.
# - **f16 to f16**: the accumulator of 11 bits causes the error.
# - **tf32** has the fraction of f16 and the range of float32: the same error here, and no overflow.
# - **bf16** gives up three bits of fraction for that range.
# - **s8 to s32** sums exactly. All its error is in rounding numbers to multiples of 1/scale.
# - **f64** is the result without a tensor core.
#
# tcusim does better with float32 than any row of this table. Factors are split exactly into three
# bf16 parts, as [lesson 6](06_precision.md) shows; sums need no tensor core, and are added as they
# are.
#
# ## A tile of your own
#
# A tile need not exist in hardware. Any three sizes make one, and the algorithms run on it at once:

# %%
own = tcusim.register_shape(tcusim.MmaShape(24, 8, 12, title="an invented tile"))
program = tcusim.build("scan_t", tile=own, form="L(A1)")
data = rng.integers(-4, 5, program.scalars[0].multiple_of).astype(np.float16)
segment = 24 * 12
scanned = tcusim.run(program, {"in": data})["out"].reshape(-1, segment)
own_is_right = np.array_equal(scanned, np.cumsum(data.reshape(-1, segment), axis=1))
print(f"A tile of {own.name}: scans of {segment} numbers are right: {own_is_right}.")

report = tcusim.validate_shape(own, algorithms=["reduction_k", "scan_t"])
for row in report.rows:
    what = f"{row.mma:>2} mma for {row.elements:>3} numbers" if row.possible else row.reason
    print(f"{row.name:<13} {row.side}: {what}")

# %% [markdown]
# One variant is impossible, and says why. Whether such a tile would be any *good* is a larger
# question, of arithmetic and time too: [Is it any good?](../validate.md)
#
# ## Exercise 1: numbers summed by one mma
#
# How many numbers does one mma of m x n x k sum at most, if tcusim may choose the side?
#
# <details><summary>Hint</summary>
# The data fill A (m x k) or B (k x n).
# </details>


# %% tags=["exercise"]
def summed(m: int, n: int, k: int) -> int | None:
    """Return how many numbers one mma sums."""


# %% tags=["solution"]
def summed(m: int, n: int, k: int) -> int | None:
    return max(m, n) * k


# %% tags=["check"]
tcusim.lessons.check(
    "9.1 Numbers summed by one mma",
    tcusim.lessons.equal(
        {shape: summed(*map(int, shape.split("x"))) for shape in wmma}, of_one_mma
    ),
    f"it should be {of_one_mma}",
)

# %% [markdown]
# ## Exercise 2: the best shape for sums
#
# Among the shapes with m·n·k = 4096 and k = 16, which has the largest useful share of a sum? Return
# one of them, as (m, n). It may be one that no GPU has.
#
# <details><summary>Hint</summary> Divide the result of exercise 1 by m·n·k. The quotient depends on
# only one side. </details>


# %% tags=["exercise"]
def best_for_sums() -> tuple[int, int] | None:
    """Return m and n."""


# %% tags=["solution"]
def best_for_sums() -> tuple[int, int] | None:
    return 256, 1


# %% tags=["check"]
best = best_for_sums()
tcusim.lessons.check(
    "9.2 The best shape for sums",
    best if best is None else best[0] * best[1] == 256 and min(best) == 1,
    "the useful share is 1 / min(m, n), so one side should be as short as possible",
)

# %% [markdown]
# A tile with n = 1 is a unit for matrix times vector: every multiply-add is useful then.
#
# ## Exercise 3: whose element is it?
#
# Write the rule of the picture above: which lane holds element (row, col) of A, for m16n8k16?
#
# <details><summary>Hint</summary>
# Four lanes share a row, and the rows repeat after eight. In a row, a lane holds two neighbours,
# and the columns repeat after eight.
# </details>


# %% tags=["exercise"]
def lane_of(row: int, col: int) -> int | None:
    """Return the number of the lane."""


# %% tags=["solution"]
def lane_of(row: int, col: int) -> int | None:
    return row % 8 * 4 + col % 8 // 2


# %% tags=["check"]
tcusim.lessons.check(
    "9.3 Whose element is it",
    tcusim.lessons.equal(
        [lane_of(row, col) for row, col in np.ndindex(16, 16)],
        [layout.holders(row, col)[0].lane for row, col in np.ndindex(16, 16)],
    ),
    "compare with tcusim.layout('m16n8k16', 'a').holders(row, col); (9, 3) is in lane 5",
)

# %% [markdown]
# ## In short
#
# - An algorithm is written once; the shape decides which side holds the data and how many mma it
#   takes.
# - The bits depend on which terms share a step, not on m and n.
# - Choose types by range first, then by the error of rounding the input.
#
# Next: [the work that tensor cores were made for](10_gemm_and_gemv.md).

# %%
assert of_one_mma == {"16x16x16": 256, "32x8x16": 512, "8x32x16": 512}
assert useful["32x8x16", "reduction_k", "a"] == 1 / 8
assert all((results[shape] == results["16x16x16"]).all() for shape in (*wmma, "16x8x16"))
assert (results["16x8x8"] != results["16x16x16"]).any()
assert errors["s8", "s32"][1] < 1e-12
assert errors["f16", "f32"][0] > 1000 * errors["f16", "f32"][1]
assert errors["f16", "f16"][1] > errors["f16", "f16"][0]
assert own_is_right
