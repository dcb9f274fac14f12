# %% [markdown]
# # 2. The bits of a dot product
#
# Give the same 16 products to a V100, an A100 and an H100, and you may get three different sums.
# None of them is broken. This lesson shows how tensor cores add, bit by bit, and ends with you
# predicting the bits of three GPUs with integer arithmetic.

# %%
import numpy as np

import tcusim
import tcusim.lessons

# %% [markdown]
# ## How a number is stored
#
# A floating-point number is a **sign**, an **exponent** and a **fraction**: ±1.fraction · 2ᵉ. The 1
# before the point is not stored. float32 has 23 bits of fraction, so 24 *significant* bits; float16
# has 10, so 11.
#
# Near 1, therefore, float32 numbers are 2⁻²³ apart. This distance is one **ulp**, a *unit in the
# last place*. The bits of a float32 are easiest to read as 8 hexadecimal digits:


# %%
def bits_of(value):
    return f"{np.float32(value).view(np.uint32):08x}"


one = np.float32(1)
print("1 is stored as", bits_of(one))
for ulps in (1, 2, 4):
    print(f"1 + {ulps} ulp is stored as", bits_of(one + ulps * np.float32(2.0**-23)))

# %% [markdown]
# ## A sum that GPUs disagree on
#
# Take a row of ones times a column with one 1 and eight times 2⁻²⁴, which is half an ulp of 1. The
# exact sum is 1 + 8·2⁻²⁴: eight halves of an ulp are four ulps above 1. That is a float32,
# `3f800004`, so nothing *needs* to be rounded.

# %%
row = np.ones(16, np.float16)
column = np.zeros(16, np.float16)
column[0] = 1
column[1:9] = 2.0**-24

results = {}
for arch in ("volta", "ampere", "hopper", "exact"):
    results[arch] = tcusim.mma(row[None, :], column[:, None], arch=arch)[0, 0]
    ulps = (float(results[arch]) - 1) * 2**23
    print(f"{arch:>6} returns {bits_of(results[arch])}, which is 1 + {ulps:g} ulp")

# %% [markdown]
# Volta (V100) loses all eight small terms, Ampere (A100) one ulp of the four, Hopper (H100, H200)
# nothing. `exact` is no GPU: it adds without error and rounds once, for comparison.
#
# ## How a tensor core adds
#
# A processor's ordinary arithmetic adds one product after another and rounds after each. A tensor
# core adds several at once. It takes **L products and c together**, where c is the element of C, in
# one **fused dot-product-add** (a *step*, for short):
#
# 1. **Multiply.** The products are exact.
# 2. **Align.** All terms are shifted to the largest exponent among them, E. Bits that end up more
#    than **F** places below it are dropped.
# 3. **Add.** What is left is added exactly.
# 4. **Truncate.** The sum is cut to the 24 significant bits of a float32. It is not rounded to the
#    nearest: what lies behind is dropped, so the magnitude never grows.
#
# A dot product of more than L terms takes several steps: the result of one is the c of the next.
# Here are four terms and a c on three GPUs. A column is a power of two, and red bits are lost:
#
# <!-- figure: alignment -->
#
# For float16 operands, these generations differ in L and F alone:

# %%
rules = {
    arch: tcusim.machine.rule_for(arch, "f16", "f32") for arch in ("volta", "ampere", "hopper")
}
for arch, rule in rules.items():
    print(
        f"{arch:>6} adds L = {rule.how.length:2} products a step, and keeps F = "
        f"{rule.how.fraction_bits} bits"
    )

# %% [markdown]
# ## The same sum, term by term
#
# `tcusim.explain` shows what became of each term. This is Ampere, in two steps of eight products:

# %% tags=["picture"]
tcusim.explain(row, column, arch="ampere")

# %% [markdown]
# (The column of exponents says -14 for 2⁻²⁴, because float16 has no smaller exponent: it stores
# 2⁻²⁴ as 0.0000000001 · 2⁻¹⁴.) With F = 24 the small terms survive the alignment. The first step
# adds 1 and seven of them, 1 + 3.5 ulp, and truncates the sum to 1 + 3 ulp. In the second step the
# last term meets c = 1 + 3 ulp; their sum, 1 + 3.5 ulp, is truncated again.
#
# Volta has F = 23, so 2⁻²⁴ lies one bit too low in every step, and all eight terms are dropped.
# Hopper has F = 25 and takes all 16 products in one step: it has nothing to drop. To see them,
# write `arch=("volta", "hopper")` above.
#
# ## By hand, in integers
#
# Truncating bits below 2ᴱ⁻ᶠ means: count in units of 2ᴱ⁻ᶠ, and drop what is no whole unit. So a
# step is integer arithmetic. This function does all of it; `np.frexp` finds exponents, one too
# large for us, as it takes numbers as 0.1… · 2ᵉ.


# %%
def exponent(x):
    """Return e of x = ±1.fraction · 2ᵉ; a float16 below 2⁻¹⁴ is 0.fraction · 2⁻¹⁴."""
    return max(int(np.frexp(x)[1]) - 1, -14)


def step(c, xs, ys, fraction_bits):
    """Return c + Σ x·y as one fused dot-product-add, as a float."""
    exponents = [exponent(x) + exponent(y) for x, y in zip(xs, ys, strict=True) if x * y != 0]
    if c != 0:
        exponents.append(int(np.frexp(c)[1]) - 1)
    if not exponents:
        return 0.0
    unit = 2.0 ** (max(exponents) - fraction_bits)
    # int() drops what is behind the point, toward zero.
    total = sum(int(term / unit) for term in [c, *(x * y for x, y in zip(xs, ys, strict=True))])
    # Keep the 24 leading bits: shift the others out, and zeros in.
    excess = max(abs(total).bit_length() - 24, 0)
    total = (abs(total) >> excess << excess) * (1 if total > 0 else -1)
    return total * unit


def dot(xs, ys, length, fraction_bits):
    """Return a dot product in steps of `length` products."""
    xs, ys = [float(x) for x in xs], [float(y) for y in ys]
    c = 0.0
    for start in range(0, len(xs), length):
        c = step(c, xs[start : start + length], ys[start : start + length], fraction_bits)
    return c


for arch, rule in rules.items():
    by_hand = dot(row, column, rule.how.length, rule.how.fraction_bits)
    print(f"{arch:>6} by hand: {bits_of(by_hand)}, simulated: {bits_of(results[arch])}")
    assert by_hand == results[arch]

# %% [markdown]
# One subtle point is in `exponent`. The exponent of a product is the *sum of the two exponents*,
# even if the product is 2 or more: 1.5 · 1.5 = 2.25 counts as exponent 0. Hardware aligns before it
# knows the product.
#
# Thirty lines that predict a GPU should be tried on more than one example. Here are 300 dot
# products of random numbers whose sizes differ widely:

# %%
rng = np.random.default_rng(1)
xs, ys = (
    (rng.standard_normal((300, 16)) * 2.0 ** rng.integers(-8, 8, (300, 16))).astype(np.float16)
    for _ in range(2)
)
for arch, rule in rules.items():
    simulated = np.array(
        [tcusim.mma(x[None], y[:, None], arch=arch)[0, 0] for x, y in zip(xs, ys, strict=True)]
    )
    by_hand = [
        dot(x, y, rule.how.length, rule.how.fraction_bits) for x, y in zip(xs, ys, strict=True)
    ]
    equal = np.count_nonzero(simulated == np.float32(by_hand))
    print(f"{arch:>6}: {equal} of 300 sums have the same bits by hand")
    assert equal == 300

# %% [markdown]
# ## Other types, other GPUs
#
# The same rule with other numbers describes all generations, and all types that tensor cores take.
# These are steps with float32 accumulators:

# %%
for arch, family, ab in (
    ("volta", "wmma", "f16"),
    ("hopper", "wmma", "bf16"),
    ("hopper", "wmma", "tf32"),
    ("hopper", "wgmma", "e4m3"),
    ("blackwell", "wmma", "f16"),
    ("blackwell", "tcgen05", "e4m3"),
):
    rule = tcusim.machine.rule_for(arch, ab, "f32", family)
    how = rule.how
    print(f"{arch:>9}, {ab:>4} by {family:>7}: L = {how.length:2}, F = {how.fraction_bits}")

# %% [markdown]
# `e4m3` is a float of 8 bits, and `wgmma` and `tcgen05` are the newer instructions for large
# products. Hopper's `wgmma` aligns 8-bit products to 13 bits only; Blackwell returned to 25.
#
# How can anybody know? Nobody outside NVIDIA has the circuit. But a rule that is wrong gives wrong
# bits, so researchers send numbers to GPUs that tell rules apart, and tcusim's rules reproduce
# every bit that was recorded. [Numerics](../numerics.md) has the full rule and the evidence for
# each row.
#
# ## Exercise 1: the 1 at the end
#
# Move the 1 of `column` from its beginning to its end: eight times 2⁻²⁴, seven zeros, and the 1.
# How many ulps above 1 do Volta, Ampere and Hopper return now? Think first, in steps; then let
# `dot` tell.
#
# <details><summary>Hint</summary>
# In the first steps there is no 1 yet, so E is far smaller. What arrives at the last step, as its
# c?
# </details>


# %% tags=["exercise"]
def with_the_one_at_the_end():
    """Return three numbers of ulps above 1: for Volta, Ampere, Hopper."""


# %% tags=["solution"]
def with_the_one_at_the_end():
    # The small terms are summed first, among themselves. They come to 2⁻²¹: 4 whole ulps of 1.
    moved = np.roll(column, -1)
    return [
        (dot(row, moved, rule.how.length, rule.how.fraction_bits) - 1) * 2**23
        for rule in rules.values()
    ]


# %% tags=["check"]
moved = np.array([2.0**-24] * 8 + [0] * 7 + [1], np.float16)
tcusim.lessons.check(
    "2.1 The 1 at the end",
    tcusim.lessons.equal(
        with_the_one_at_the_end(),
        [
            (float(tcusim.mma(row[None], moved[:, None], arch=arch)[0, 0]) - 1) * 2**23
            for arch in rules
        ],
    ),
    "on Volta c is 8·2⁻²⁴ = 2⁻²¹ when the 1 comes; F = 23 keeps all of that",
)

# %% [markdown]
# The order of the terms decides. A rule of thumb for all floating-point sums holds here, too: add
# small numbers first.
#
# ## Exercise 2: would more bits help?
#
# Volta and Ampere lose ulps of the sum `row · column`. Suppose that their F were larger. Find out,
# for a given L, the most ulps above 1 that any F from 20 to 30 reaches.
#
# <details><summary>Hint</summary>
# Call <code>dot(row, column, length, fraction_bits)</code> for each F, and subtract 1.
# </details>


# %% tags=["exercise"]
def most_ulps(length):
    """Return the largest result of any F from 20 to 30, in ulps above 1."""


# %% tags=["solution"]
def most_ulps(length):
    return max((dot(row, column, length, bits) - 1) * 2**23 for bits in range(20, 31))


# %% tags=["check"]
tcusim.lessons.check(
    "2.2 Would more bits help?",
    tcusim.lessons.equal([most_ulps(length) for length in (4, 8, 16)], [3, 3, 4]),
    "with L = 4 and with L = 8 the best is 3 ulps: try F = 24 in dot()",
)

# %% [markdown]
# More bits of alignment cannot repair it: each step truncates its *result* to 24 bits, and shorter
# steps truncate more often. That is why both L and F count.
#
# ## Exercise 3: can Hopper be worse?
#
# Hopper has longer steps and more bits than Volta. Find 16 terms (two float16 arrays) for which
# Hopper's dot product is nevertheless further from the exact one than Volta's.
#
# <details><summary>Hint</summary>
# Search: draw random numbers until you meet such terms. <code>np.dot</code> in float64 is exact
# enough to compare with.
# </details>


# %% tags=["exercise"]
def worse_on_hopper():
    """Return two arrays of 16 float16 numbers."""


# %% tags=["solution"]
def worse_on_hopper():
    rng = np.random.default_rng(2)
    while True:
        x, y = rng.standard_normal((2, 16)).astype(np.float16)
        exact = np.dot(x.astype(float), y.astype(float))
        if abs(dot(x, y, 16, 25) - exact) > abs(dot(x, y, 4, 23) - exact):
            return x, y


# %% tags=["check"]
def is_worse(x, y):
    exact = np.dot(x.astype(float), y.astype(float))
    errors = {arch: abs(tcusim.mma(x[None], y[:, None], arch=arch)[0, 0] - exact) for arch in rules}
    return x.size == y.size == 16 and errors["hopper"] > errors["volta"]


answer = worse_on_hopper()
tcusim.lessons.check(
    "2.3 Can Hopper be worse?",
    None if answer is None else is_worse(*answer),
    "compare |result - exact| of both, as tcusim.mma returns them",
)

# %% [markdown]
# Errors of several steps can cancel. That is luck, and not rare: about one random row in ten is
# such a case.
#
# ## In short
#
# - A tensor core adds L products and c together: align to the largest exponent, drop what is more
#   than F bits below, add exactly, truncate.
# - L and F differ by generation, so the bits do; they are known, so the bits are predictable.
# - A longer dot product is a chain of steps, and each step truncates.
#
# Next: [sixteen sums in one mma](03_reduction_16.md).

# %%
assert [bits_of(results[arch])[-1] for arch in ("volta", "ampere", "hopper")] == ["0", "3", "4"]
