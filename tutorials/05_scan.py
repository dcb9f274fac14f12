# %% [markdown]
# # 5. A scan of 256 numbers
#
# A **scan** replaces each number by the sum of all numbers up to it: 3, 1, 4 becomes 3, 4, 8. NumPy
# calls it `cumsum`. It looks as if each result had to wait for the one before. In this lesson three
# mma scan 256 numbers at once.
#
# Scans are everywhere in parallel programs: they turn lengths into offsets, flags into places,
# histograms into quantiles. [Lesson 12](12_using_it.md) uses them so.

# %%
import numpy as np

import tcusim
import tcusim.lessons

# %% [markdown]
# ## Scan the rows: a triangle of ones
#
# Put the 256 numbers into a tile A, row after row. Let U be the *upper triangle*: ones on and above
# the diagonal, zeros below. Column j of U has ones in its rows 0 to j, so element (i, j) of A·U is
# the sum of the elements 0 to j of row i. Every row is scanned.

# %%
rng = np.random.default_rng(2)
x = rng.integers(-9, 10, 256).astype(np.float32)
a = x.reshape(16, 16)

row, col = np.indices((16, 16))
u = (row <= col).astype(np.float32)
print("A·U scans the rows:", np.array_equal(a @ u, np.cumsum(a, axis=1)))

# %% [markdown]
# ## Add the sum of the rows before
#
# Row i still lacks the sum of all rows above it. Two more products find it:
#
# - Let L be the *strictly lower triangle*, ones below the diagonal. Row i of L·A is the sum of the
#   rows 0 to i - 1 of A, column by column.
# - To add up the columns of that, multiply with J, which is all ones. Every element of row i of
#   (L·A)·J is the sum of all numbers before row i.
#
# Together: **scan(A) = A·U + (L·A)·J**
#
# Here with tiles of 4x4. The drawing writes 1 for J, as the paper does.
#
# <!-- figure: scan -->

# %%
low = (row > col).astype(np.float32)
j = np.ones((16, 16), np.float32)

before = (low @ a) @ j
scanned = a @ u + before
print("The sums before rows 0, 1 and 2:", before[:3, 0])
print("Sums of rows 0 and 1:           ", a[0].sum(), a[1].sum())
print("A·U + (L·A)·J is the scan:", np.array_equal(scanned.ravel(), np.cumsum(x)))

# %% [markdown]
# Three products. The addition is free, as an mma adds its C anyway: A·U is the C of the last
# product.
#
# ## As a program

# %%
program = tcusim.build("scan_256")
print("The steps of scan_256:\n")
print(tcusim.listing(program).split("\n\n")[1])

# %% [markdown]
# The products are the steps 6, 9 and 15. You know steps 10 to 14 from [lesson
# 4](04_256_and_256n.md): L·A is an accumulator and must become an operand, so it is stored,
# **rounded to float16** (step 12), and loaded. A is loaded twice, as a right operand is another
# fragment than a left one.
#
# Step through it. After step 15, point at numbers of R: each is one of the 256 results.

# %% tags=["picture"]
half = x.astype(np.float16)
tcusim.trace(program, {"in": half}, arch="volta")

# %% [markdown]
# Small integers survive the rounding, so here the program and NumPy agree:

# %%
out = tcusim.run(program, {"in": half}, arch="volta")["out"]
print("scan_256 returns the scan:", np.array_equal(out, np.cumsum(x)))

# %% [markdown]
# ## Longer segments: carry the sum along
#
# For a segment of several tiles, the sum of everything before a tile must be added to all its
# results. It is called the **carry**. `scan_256n` puts it into the accumulator S that A·U begins
# with, so the carry costs no product. After each tile the new carry is the last result of the tile,
# `s_last[255]`; step 5.15 copies it into all places of the next S.

# %%
longer = tcusim.build("scan_256n", segment_size=1024)
print("The steps of scan_256n, for segments of four tiles:\n")
print(tcusim.listing(longer).split("\n\n")[1])

# %%
many = np.resize(half, 4096)
results = tcusim.run(longer, {"in": many})["out"]
expected = np.cumsum(many.reshape(-1, 1024), axis=1, dtype=np.float32)
print(f"{many.size // 1024} segments of 1024 scanned:", np.array_equal(results, expected.ravel()))
mma = tcusim.trace(longer, {"in": many}).counts.mma
print(f"{many.size} numbers took {mma} mma: three for each tile")

# %% [markdown]
# Compare with [256N](04_256_and_256n.md): a sum can be finished once, but a scan needs each tile's
# carry before the next tile, so every tile pays for all three products.
#
# ## Its bits on two GPUs
#
# Now numbers that need rounding. Let us take the program as the paper prints it, with accumulators
# of float16. Each of its results is the end of a chain of fused dot-product-adds ([lesson
# 2](02_the_bits.md)), and Volta's steps are shorter than Hopper's.

# %%
noise = rng.standard_normal(256).astype(np.float16)
as_printed = tcusim.build("scan_256", acc="f16")
volta, hopper = (
    tcusim.run(as_printed, {"in": noise}, arch=arch)["out"] for arch in ("volta", "hopper")
)
differ = volta.view(np.uint16) != hopper.view(np.uint16)
exact = np.cumsum(noise, dtype=np.float64)
print(f"{differ.sum()} of 256 results have other bits on Hopper than on Volta.")
for name, result in (("Volta", volta), ("Hopper", hopper)):
    print(f"The largest error on {name} is {np.abs(result - exact).max():.4f}.")

# %% [markdown]
# Neither is wrong: they are two roundings of the same sums. Tests of GPU kernels usually allow for
# such differences with a tolerance. A simulator that knows the bits needs none.
#
# With accumulators of float32, the error that is left is the rounding of L·A to float16. It belongs
# to the program, not to the GPU, and `combine="add"` avoids it, as in lesson 4: the totals of the
# rows are added up in float32, without a product.

# %%
errors = {}
for combine in ("mma", "add"):
    wide = tcusim.build("scan_256", combine=combine)
    bits = {arch: tcusim.run(wide, {"in": noise}, arch=arch)["out"] for arch in ("volta", "hopper")}
    agree = np.array_equal(bits["volta"].view(np.uint32), bits["hopper"].view(np.uint32))
    errors[combine] = np.abs(bits["hopper"] - exact).max()
    print(f"combine={combine!r}: largest error {errors[combine]:.1e}; same bits on both: {agree}")

# %% [markdown]
# No error at all, in the end: the sums of these 256 numbers fit into a float32, as long as no
# intermediate result is rounded to less.
#
# The function for everyday use is `tcusim.cumsum`. It takes arrays of any length and adds in this
# careful way:

# %%
print("tcusim.cumsum returns", tcusim.cumsum(half[:6], dtype=np.float32), "for", half[:6])

# %% [markdown]
# ## A misprint, found by running it
#
# [The paper](../references.md#DAKKAK19) *displays* U as above, but *defines* it a page later as 1
# where row ≥ column. That is the transpose. Multiplying with it sums the elements *after* each
# element:

# %%
u_as_defined = (row >= col).astype(np.float32)
from_the_right = np.cumsum(a[:, ::-1], axis=1)[:, ::-1]
print(
    "As defined, A·U is the scan:               ",
    np.array_equal(a @ u_as_defined, np.cumsum(a, axis=1)),
)
print(
    "As defined, A·U is the scan from the right:", np.array_equal(a @ u_as_defined, from_the_right)
)

# %% [markdown]
# L is swapped in the same way. tcusim follows the displayed matrices; [Errata](../errata.md) lists
# all that it found.
#
# ## Exercise 1: leave the element out
#
# An **exclusive** scan sums the elements *before* each one: 3, 1, 4 becomes 0, 3, 4. Only one of
# the three constant matrices must change. Write the whole scan of a tile.
#
# <details><summary>Hint</summary>
# U decides which elements of its own row a result includes. Should its diagonal be ones?
# </details>


# %% tags=["exercise"]
def exclusive_scan(a):
    """Return the exclusive scan of the 16x16 tile `a`, row after row, as a 16x16 array."""


# %% tags=["solution"]
def exclusive_scan(a):
    strict_u = (row < col).astype(np.float32)
    return a @ strict_u + (low @ a) @ j


# %% tags=["check"]
tcusim.lessons.check(
    "5.1 Leave the element out",
    tcusim.lessons.equal(exclusive_scan(a), np.cumsum(x).reshape(16, 16) - a),
    "use ones strictly above the diagonal, row < col, and keep L and J",
)

# %% [markdown]
# ## Exercise 2: from the end
#
# A **reverse** scan sums from each element to the end: 3, 1, 4 becomes 8, 5, 4. No element is
# moved; the constants do it all.
#
# <details><summary>Hint</summary>
# The misprint above is half of the answer. And which rows must be added to row i now?
# </details>


# %% tags=["exercise"]
def reverse_scan(a):
    """Return the reverse scan of the 16x16 tile `a`, row after row, as a 16x16 array."""


# %% tags=["solution"]
def reverse_scan(a):
    return a @ u.T + (low.T @ a) @ j


# %% tags=["check"]
tcusim.lessons.check(
    "5.2 From the end",
    tcusim.lessons.equal(reverse_scan(a), np.cumsum(x[::-1])[::-1].reshape(16, 16)),
    "transpose both triangles: U's transpose scans a row from its end, and L's adds the rows below",
)

# %% [markdown]
# ## Exercise 3: two associative ways
#
# Matrix products are associative: (L·A)·J = L·(A·J). Either way one intermediate result is rounded
# to float16 on its way through shared memory. Which of the two has the *smaller* numbers, and so
# the smaller rounding errors, if all numbers of A are positive? Return the largest number of each
# intermediate result, for a tile of ones: L·A, then A·J.
#
# <details><summary>Hint</summary>
# Compute both, and take the largest element.
# </details>


# %% tags=["exercise"]
def largest_numbers():
    """Return two numbers: the largest of L·A and the largest of A·J, for A of ones."""


# %% tags=["solution"]
def largest_numbers():
    ones = np.ones((16, 16), np.float32)
    return (low @ ones).max(), (ones @ j).max()


# %% tags=["check"]
tcusim.lessons.check(
    "5.3 Two associative ways",
    tcusim.lessons.equal(largest_numbers(), (15, 16)),
    "L·A sums up to 15 rows of one column, A·J the 16 elements of one row",
)

# %% [markdown]
# About the same. So another reason decides between them: on tiles that are not square, they need
# different numbers of products. `tcusim.build("scan_t", tile="32x8x16", form="L(A1)")` is the
# second.
#
# ## In short
#
# - A·U scans rows; (L·A)·J is the sum of the rows before each row. Their sum is the scan: three mma
#   for 256 numbers.
# - The carry of longer segments is an accumulator, and costs no product.
# - Exclusive and reverse scans need other constants, and no other work.
#
# Next: [precision](06_precision.md).

# %%
assert np.array_equal(scanned.ravel(), np.cumsum(x))
assert mma == 3 * many.size // 256
assert differ.any()
assert errors["add"] < errors["mma"]
