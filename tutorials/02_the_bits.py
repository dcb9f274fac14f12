# %% [markdown]
# # 2. One mma, and its bits
#
# A tensor core has one trick: **D = A·B + C** on small matrices, in one instruction, the *mma*.
# This tutorial does a single mma in NumPy and on simulated GPUs, and looks at the bits. You need
# NumPy and no GPU.

# %%
import numpy as np

import tcusim

# %% [markdown]
# ## Tiles
#
# The best-known shape is 16x16x16, in M, N, K order: A is m x k, B is k x n, C and D are m x n.
# A and B hold float16 numbers here, the *accumulators* C and D float32.

# %%
rng = np.random.default_rng(0)
a = rng.integers(-4, 5, (16, 16)).astype(np.float16)
b = rng.integers(-4, 5, (16, 16)).astype(np.float16)
c = np.ones((16, 16), np.float32)

d = tcusim.mma(a, b, c, arch="hopper")
print(d.shape, d.dtype)
print("the same as NumPy:", np.array_equal(d, a.astype(np.float32) @ b.astype(np.float32) + c))

# %% [markdown]
# Small whole numbers: nothing has to be rounded, and everybody agrees. So we need numbers of
# different sizes.
#
# ## A dot product that GPUs disagree on
#
# Each element of D is a dot product of 16 terms. Take a row of ones, and a column that holds one
# 1 and eight times 2⁻²⁴. The exact sum is 1 + 8·2⁻²⁴ = 1 + 2⁻²¹. A float32 just above 1 counts in
# units of 2⁻²³, so the sum is a float32, four units above 1.

# %%
row = np.ones((1, 16), np.float16)
column = np.zeros((16, 1), np.float16)
column[0] = 1
column[1:9] = 2.0**-24


def units_above_one(value: np.float32) -> float:
    """Return how far a float32 is above 1, in units in the last place."""
    return (float(value) - 1) * 2**23


results = {}
for arch in ("volta", "ampere", "hopper", "exact", "ieee"):
    results[arch] = tcusim.mma(row, column, arch=arch)[0, 0]
    bits = results[arch].view(np.uint32)
    print(f"{arch:>6}  {bits:08x}  1 + {units_above_one(results[arch]):g} units")

# %% [markdown]
# Three generations of tensor cores, three results, and the sequence of IEEE fused multiply-adds
# (`ieee`) is as far off as Volta.
#
# ## Why
#
# A tensor core does not add one product after another. It takes L products and C together, in one
# *fused dot-product-add*, or *step* for short:
#
# 1. The products are exact.
# 2. All terms are aligned to the largest exponent E, and what lies more than F bits below it is cut
#    off.
# 3. What is left is added exactly.
# 4. The sum is cut to the 24 bits of a float32.
#
# A longer row is a sequence of steps: the D of one is the C of the next. L and F differ by
# generation, and tcusim has them as data:

# %%
for arch in ("volta", "ampere", "hopper"):
    how = tcusim.machine.rule_for(arch, "f16", "f32").how
    print(f"{arch:>6}  L = {how.length:2}  F = {how.fraction_bits}")

# %% [markdown]
# Now the results can be done by hand, in whole numbers. Within a step, let the unit be 2⁻ᶠ: a term
# of 1 is 2ᶠ units, and a term of 2⁻²⁴ is 2ᶠ⁻²⁴ units, *cut to a whole number*.


# %%
def fused_steps(length: int, fraction_bits: int) -> float:
    """Return 1 + 8*2**-24 in such steps, in whole numbers."""
    c = 0.0
    terms = [float(x) for x in column[:, 0]]
    for start in range(0, 16, length):
        together = [c, *terms[start : start + length]]
        # E is 0: either the step has the term 1, or C is at least 1.
        cut = [int(term * 2**fraction_bits) for term in together]
        c = (sum(cut) >> (fraction_bits - 23)) * 2.0**-23
    return c


for arch, length, fraction_bits in (("volta", 4, 23), ("ampere", 8, 24), ("hopper", 16, 25)):
    by_hand = fused_steps(length, fraction_bits)
    print(f"{arch:>6}  1 + {units_above_one(by_hand):g} units")
    assert by_hand == results[arch]

# %% [markdown]
# On Volta (F = 23) a term of 2⁻²⁴ is cut to nothing. On Ampere (F = 24) it survives the alignment:
# the first step adds seven of them to the 1, and cutting the sum to a float32 loses half a unit.
# The eighth is then lost in the second step. Hopper has all nine terms in one step, and loses none.
#
# ## An accumulator of float16 stagnates
#
# WMMA also has float16 accumulators, which [the paper](../references.md) uses throughout. They are
# rounded to nearest in every step. Let us count ones: a row of 33000 ones times a column of ones.

# %%
ones = np.ones((1, 33000), np.float16)
stagnated = {}
for arch in ("volta", "ampere", "hopper", "exact"):
    stagnated[arch] = float(tcusim.mma(ones, ones.T, arch=arch, acc="f16")[0, 0])
    print(f"{arch:>6}  {stagnated[arch]:g}")

# %% [markdown]
# `exact` rounds once, at the very end. A tensor core rounds in every step, and a step adds L. As
# soon as L is half of the distance between neighbouring float16 numbers, C + L is a tie, the tie
# goes to the even neighbour, and that is C again: the sum *stagnates*. Between 2ⁿ and 2ⁿ⁺¹ the
# distance is 2ⁿ⁻¹⁰.

# %%
for arch, length in (("volta", 4), ("ampere", 8), ("hopper", 16)):
    distance = float(np.spacing(np.float16(stagnated[arch])))
    print(f"{arch:>6}  at {stagnated[arch]:g} the distance is {distance:g} = 2 * {length}")
    assert distance == 2 * length

# %% [markdown]
# With float32 accumulators the same count is exact, as it is for every whole number up to 2²⁴. They
# are the default in tcusim.

# %%
for arch in ("volta", "ampere", "hopper"):
    total = float(tcusim.mma(ones, ones.T, arch=arch)[0, 0])
    print(f"{arch:>6}  {total:g}")
    assert total == 33000

# %% [markdown]
# ## To try
#
# - Put the 1 at the end of `column` instead of its beginning. Which results change, and why?
# - `tcusim.mma(row, column, arch="turing")` has Ampere's parameters. Do they ever differ?
# - Find 16 terms for which Hopper is further from `exact` than Volta, if you can.
#
# [Numerics](../numerics.md) has the rule in full, and the evidence for it. Next:
# [sixteen sums in one mma](03_reduction_16.md).
