# %% [markdown]
# # 6. Precision: what a long sum loses
#
# A tensor core truncates after every few products ([lesson 2](02_the_bits.md)). Once, that does not
# matter. Over a long sum it adds up, in two ways: float16 accumulators stop growing (*stagnation*),
# and float32 accumulators drift downward (*bias*). In this lesson you see both, predict both, and
# repair them. At the end you multiply float32 numbers on a unit that has no float32 operands.

# %%
import numpy as np

import tcusim
import tcusim.lessons
from tcusim.line_charts import Line, Plot

GPUS = ("volta", "ampere", "hopper")

# %% [markdown]
# ## Stagnation: count to 8192
#
# WMMA has float16 accumulators, which take half of the registers and, on some GPUs, half of the
# time. The paper uses them throughout. After each step of L products the sum is rounded to a
# float16.
#
# Let us count: add ones, 2048 at a time, and go on from where we stopped, until the sum no longer
# changes.


# %%
def counted(arch, most=2**16):
    """Return how far a float16 accumulator has come after each 2048 ones."""
    ones = np.ones((1, 2048), np.float16)
    total, after = np.zeros((1, 1), np.float16), []
    while len(after) < most // 2048:
        following = tcusim.mma(ones, ones.T, total, arch=arch, acc="f16")
        if following == total:  # it will never change again
            after += [float(total[0, 0])] * (most // 2048 - len(after))
            break
        total = following
        after.append(float(total[0, 0]))
    return after


reached = {arch: counted(arch) for arch in GPUS}
for arch, values in reached.items():
    print(
        f"On {arch.title()} a float16 counter of {len(values) * 2048} ones ends at {values[-1]:g}."
    )

# %% tags=["picture"]
Plot(
    "Counting ones in float16",
    tuple(
        Line(arch.title(), tuple((2048.0 * n, values[n - 1]) for n in (1, 2, 4, 8, 16, 32)))
        for arch, values in reversed(reached.items())
    ),
    x="ones added",
    y="the accumulator",
)

# %% [markdown]
# Why there? Between 8192 and 16384 float16 numbers are 8 apart. Volta adds L = 4 ones in a step:
# 8192 + 4 is exactly half-way to the next number, 8200. A tie is rounded to the *even* neighbour,
# and that is 8192. So the sum stays where it is, forever. Ampere adds 8 at a time and gets twice as
# far; Hopper adds 16 and gets four times as far.

# %%
for arch, length in (("volta", 4), ("ampere", 8), ("hopper", 16)):
    gap = float(np.spacing(np.float16(reached[arch][-1])))
    print(f"{arch.title()}: at {reached[arch][-1]:g} numbers are {gap:g} apart, twice L = {length}")
    assert gap == 2 * length

# %% [markdown]
# Here are eight ones that meet an accumulator of 8192. Volta takes them in two steps, and each ends
# where it began; Ampere takes them in one:

# %% tags=["picture"]
eight = np.ones(8, np.float16)
tcusim.explain(eight, eight, np.float16(8192), arch=("volta", "ampere"), acc="f16")

# %% [markdown]
# With float32 accumulators, counting is exact up to 2²⁴, about 16 million. They are the default in
# tcusim.
#
# ## Bias: always down
#
# float32 accumulators are *truncated*. Rounding to nearest errs up as often as down, so most errors
# cancel. Truncation of a positive sum always errs down, so its errors do not cancel. The mean of
# such an error is its **bias**.
#
# Here are dot products of random numbers between 0 and 1, in one long chain of steps, the mean over
# 16 of them:

# %%
rng = np.random.default_rng(6)
lengths = [2**power for power in range(4, 14)]
x = rng.random((16, lengths[-1])).astype(np.float16)
y = rng.random((lengths[-1], 1)).astype(np.float16)
exact = np.cumsum(x.astype(float) * y[:, 0].astype(float), axis=1)


def biases(arch):
    """Return the mean relative error of the dot product after each of `lengths` terms."""
    total, start, found = np.zeros((16, 1), np.float32), 0, []
    for end in lengths:
        total = tcusim.mma(x[:, start:end], y[start:end], total, arch=arch)
        start = end
        found.append(float(np.mean(total[:, 0] / exact[:, end - 1] - 1)))
    return found


measured = {arch: biases(arch) for arch in GPUS}
for arch, found in measured.items():
    print(f"{arch.title()}: mean error {found[0]:+.0e} after 16 terms, {found[-1]:+.1e} after 8192")

# %% tags=["picture"]
Plot(
    "Bias of long dot products",
    tuple(
        Line(arch.title(), tuple((float(n), -e) for n, e in zip(lengths, found, strict=True)))
        for arch, found in reversed(measured.items())
    ),
    x="terms",
    y="relative error, downward",
    log=True,
    level=("half an ulp of float32", 2.0**-24),
)

# %% [markdown]
# The error grows in proportion to the length. After 8192 terms on Volta, 1.6 in 10,000 of the sum
# is gone: a float32 in name, about 13 bits in fact.
#
# ## Predict it
#
# How large is the bias? Let one ulp be the ulp of the sum so far, as `np.spacing` returns it. Rule
# of thumb: truncating a random number loses half a unit of the last place kept, on average. By
# lesson 2:
#
# - **Alignment** cuts each product. On Volta (F = 23) the last place kept is 1 ulp: each of the
#   products loses ½ ulp. On Ampere (F = 24) it is ½ ulp, and each loses ¼. On Hopper (F = 25), ⅛.
# - **Truncation of the sum** removes the rest below 1 ulp, once in L products. Volta has nothing
#   left there. Ampere has one bit, and loses ¼ ulp on average; Hopper has two, and loses ⅜.

# %%
loss_of_a_term = {"volta": 1 / 2, "ampere": 1 / 4 + 1 / 4 / 8, "hopper": 1 / 8 + 3 / 8 / 16}
sums = exact.mean(axis=0)
ulps = np.spacing(sums.astype(np.float32)).astype(float)
for arch, loss in loss_of_a_term.items():
    predicted = -(loss * ulps).sum() / sums[-1]
    print(f"{arch.title()}: predicted {predicted:+.2e}, measured {measured[arch][-1]:+.2e}")
    assert abs(predicted / measured[arch][-1] - 1) < 0.1

# %% [markdown]
# Two parameters of the hardware tell the error of a sum of any length. That is how a unit can be
# judged before it is built: see [Is it any good?](../validate.md).
#
# ## The repair: blocked summation
#
# Truncation hurts because small terms meet a *large* sum. So keep the sums small: let the tensor
# core add a **block** of terms, starting from zero, and add the sums of the blocks with ordinary
# float32 additions, which round to nearest. This is *blocked summation*.


# %%
def blocked(block, arch="volta", terms=8192):
    """Return 16 dot products; the tensor core adds `block` terms at a time."""
    total = np.zeros((16, 1), np.float32)
    for start in range(0, terms, block):
        part = slice(start, start + block)
        total += tcusim.mma(x[:, part], y[part], arch=arch)
    return total[:, 0]


blocks = [2**power for power in range(5, 14, 2)]
errors = {block: float(np.mean(np.abs(blocked(block) / exact[:, 8191] - 1))) for block in blocks}
for block, error in errors.items():
    print(f"Volta, 8192 terms in blocks of {block:4}: mean relative error {error:.1e}")

# %% tags=["picture"]
Plot(
    "Blocked summation on Volta",
    (Line("8192 terms", tuple((float(block), error) for block, error in errors.items())),),
    x="terms in a block",
    y="mean relative error",
    log=True,
    level=("half an ulp of float32", 2.0**-24),
)

# %% [markdown]
# The price is one ordinary addition for each block, and blocks of 32 or 64 make it small.
# `tcusim.sum` and `tcusim.matmul` do this for you. Programs have the option `accumulation_length`,
# in tiles:

# %%
long = x.ravel()
right = long.sum(dtype=np.float64)
for options in ({}, {"accumulation_length": 16}):
    program = tcusim.build("reduction_256n", segment_size=long.size, combine="add", **options)
    total = tcusim.run(program, {"in": long}, arch="volta")["out"][0]
    how = f"blocks of {options['accumulation_length']} tiles" if options else "one long chain"
    print(f"reduction_256n in {how}: error {total / right - 1:+.1e}")
ours = tcusim.sum(long, dtype=np.float32, options={"arch": "volta"})
print(f"tcusim.sum: error {ours / right - 1:+.1e}")

# %% [markdown]
# ## float32 operands, from three parts
#
# Tensor cores take no float32 operands: float16 has 11 significant bits, and **bf16** (the upper
# half of a float32) has 8. But a float32 has 24 bits, and 24 = 8 + 8 + 8. So split each number into
# three bf16 numbers, *exactly*:


# %%
def upper_half(x):
    """Return float32 numbers with their lower 16 bits cleared: bf16 numbers."""
    return (x.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


def split(x):
    """Return three arrays of bf16 numbers whose sum is x."""
    high = upper_half(x)
    middle = upper_half(x - high)
    return high, middle, x - high - middle


z = (1000 + rng.random(256) / 4).astype(np.float32)
high, middle, low = split(z)
print(f"{z[1]:.8f} = {high[1]:g} + {middle[1]:g} + {low[1]:.8f}")
print("The parts are exact:", np.array_equal(high.astype(float) + middle + low, z))

# %% [markdown]
# The numbers here lie between 1000 and 1000.25, where float16 numbers are half a unit apart. A sum
# of float32 numbers is the sum of three products with ones, in one chain of mma. (`ab="bf16"` says
# what the operands are; NumPy keeps them in float32.)

# %%
ones = np.ones((1, 256), np.float32)
true_sum = z.sum(dtype=np.float64)
total = np.zeros((1, 1), np.float32)
for part in (low, middle, high):  # the smallest first
    total = tcusim.mma(ones, part[:, None], total, ab="bf16")
rounded = {"f16": z.astype(np.float16), "bf16": upper_half(z)}
for name, values in rounded.items():
    lossy = tcusim.mma(ones.astype(values.dtype), values[:, None], ab=name)[0, 0]
    print(f"256 numbers in {name} alone: relative error of the sum {lossy / true_sum - 1:+.1e}")
print(f"256 numbers in three parts:  relative error of the sum {total[0, 0] / true_sum - 1:+.1e}")

# %% [markdown]
# Three times the work, for sums of float32 numbers. A *product* of two float32 matrices needs all
# pairs of parts, up to nine products, and `tcusim.matmul` does that. For sums it does not pay:
# `tcusim.sum` adds float32 numbers as they are, in pairs, at the speed of the memory.
#
# ## Exercise 1: where does it stagnate?
#
# A float16 accumulator adds equal numbers, each of them `value` (a power of 2), L at a time. At
# which sum does it stagnate?
#
# <details><summary>Hint</summary>
# For value = 1 the answers are above: 8192 for L = 4. Where are float16 numbers 2·L·value apart? At
# a sum s, a power of 2, they are s / 1024 apart.
# </details>


# %% tags=["exercise"]
def stagnates_at(length, value):
    """Return the sum that no longer grows."""


# %% tags=["solution"]
def stagnates_at(length, value):
    return 2 * length * value * 1024


# %% tags=["check"]
tcusim.lessons.check(
    "6.1 Where does it stagnate?",
    tcusim.lessons.equal([stagnates_at(4, 0.25), stagnates_at(8, 1)], [2048, 16384]),
    "numbers of 0.25 on Volta stagnate at 2048, where float16 numbers are 2 apart",
)

# %% [markdown]
# ## Exercise 2: another unit
#
# A new chip has L = 8 and F = 21: it keeps two bits *fewer* than Volta. What is its loss for each
# term, in ulps of the sum? Use the rule of thumb above. (Nothing is left for the truncation of the
# sum to cut.)
#
# <details><summary>Hint</summary>
# With F = 23 the last place kept is 1 ulp. With each bit less it is twice as large.
# </details>


# %% tags=["exercise"]
def loss_with_21_bits():
    """Return the mean loss of a term, in ulps of the sum."""


# %% tags=["solution"]
def loss_with_21_bits():
    return 0.5 * 2 ** (23 - 21)


# %% tags=["check"]
tcusim.lessons.check(
    "6.2 Another unit",
    tcusim.lessons.equal(loss_with_21_bits(), 2),
    "the last place kept is 2² = 4 ulp, and truncation loses half of that on average",
)

# %% [markdown]
# ## Exercise 3: choose a block
#
# A block costs an addition, so take the largest that is good enough. Find the largest block (a
# power of 2 from 16 to 4096) for which the mean relative error of 8192 terms on Volta is below
# `limit`. `blocked(block)` returns the sums and `exact[:, 8191]` has the exact ones.
#
# <details><summary>Hint</summary>
# Try 4096, 2048, … and stop at the first that is good enough.
# </details>


# %% tags=["exercise"]
def largest_block(limit):
    """Return the largest power of 2 that is good enough."""


# %% tags=["solution"]
def largest_block(limit):
    for block in (2**power for power in range(12, 3, -1)):
        if np.mean(np.abs(blocked(block) / exact[:, 8191] - 1)) < limit:
            return block
    return None


# %% tags=["check"]
tcusim.lessons.check(
    "6.3 Choose a block",
    tcusim.lessons.equal(largest_block(3e-5), 1024),
    "blocks of 1024 have an error of 2.0e-5 here, and blocks of 2048 one of 4.0e-5",
)

# %% [markdown]
# ## In short
#
# - Rounded float16 accumulators stagnate: at L·2048 for sums of ones.
# - Truncated float32 accumulators have a bias that grows with the length; L and F predict it.
# - Blocked summation repairs it for an addition a block.
# - A float32 is exactly three bf16, so tensor cores can multiply float32 numbers.
#
# [Precision](../precision.md) has more, and [Exact bits](../exact.md) sums that are rounded only
# once. Next: several warps, in [blocks and barriers](07_blocks_and_barriers.md). If you have never
# programmed a GPU, read [CUDA in ten minutes](00_cuda_in_ten_minutes.md) first.

# %%
assert [values[-1] for values in reached.values()] == [8192, 16384, 32768]
assert all(error < 0 for found in measured.values() for error in found)
assert errors[32] < errors[8192] / 100
assert abs(total[0, 0] / true_sum - 1) < 2.0**-22
