# %% [markdown]
# # 12. Using it: sums and scans at work
#
# What are sums and scans for? This lesson solves five common problems with `tcusim.sum`, `cumsum`
# and their segmented forms, beside NumPy: statistics for layer norm and RMSNorm, the contrast of an
# image, a sparse matrix times a vector, averages of ragged batches, and stream compaction. The
# functions take NumPy arrays and simulate a GPU. With CuPy's or torch's arrays the same lines run
# on the GPU, with the same bits; the cells marked *needs a GPU* show how.

# %%
from itertools import pairwise

import numpy as np

import tcusim
import tcusim.lessons
from tcusim.arrays.functions import Report

rng = np.random.default_rng(12)

# %% [markdown]
# ## Layer norm: mean and variance of each row
#
# A neural network normalises each row of its activations: subtract the mean, divide by the standard
# deviation. Activations are float16, rows have thousands of elements, and the sums are where
# precision is lost. The obvious sum, with a float16 total, is bad. tcusim multiplies by ones on
# tensor cores, with a float32 accumulator and short chains:

# %%
rows, features = 32, 2048
x = (rng.standard_normal((rows, features)) + 3).astype(np.float16)
exact_mean = x.astype(np.float64).mean(axis=1)
in_half = np.zeros(rows, np.float16)
for column in x.T:
    in_half += column
errors = {
    "float16, one after the other": in_half.astype(np.float64) / features,
    "NumPy, x.sum(axis=1)": x.sum(axis=1).astype(np.float64) / features,
    "tcusim, float32 result": tcusim.sum(x, axis=1, dtype=np.float32).astype(np.float64) / features,
}
for name, mean in errors.items():
    errors[name] = np.abs(mean / exact_mean - 1).max()
    print(f"{name:>29}: the worst relative error of a mean is {errors[name]:.1e}")

# %% [markdown]
# NumPy adds float16 in pairs and in float32, but returns float16; `dtype=np.float32` helps there
# too. With the mean, the variance is the mean of the squared differences, which are float32. tcusim
# sums those in float32 without products, so no mma is needed:


# %%
def layer_norm(x: np.ndarray) -> np.ndarray:
    """Return each row of x with mean 0 and variance 1."""
    mean = tcusim.sum(x, axis=1, dtype=np.float32, keepdims=True) / np.float32(x.shape[1])
    centred = x.astype(np.float32) - mean
    variance = tcusim.sum(centred * centred, axis=1, keepdims=True) / np.float32(x.shape[1])
    return centred / np.sqrt(variance + np.float32(1e-5))


of_halves, of_squares = Report(), Report()
tcusim.sum(x, axis=1, options={"report": of_halves})
tcusim.sum(x.astype(np.float32) ** 2, axis=1, options={"report": of_squares})
print(f"Sums of the rows take {of_halves.mma} mma, and sums of their squares {of_squares.mma}.")
assert of_halves.mma > of_squares.mma == 0

normalised = layer_norm(x).astype(np.float64)
worst_mean, worst_deviation = np.abs(normalised.mean(axis=1)).max(), normalised.std(axis=1)
print(f"The means of the normalised rows are at most {worst_mean:.0e},")
print(f"their standard deviations {worst_deviation.min():.6f} to {worst_deviation.max():.6f}.")

# %% [markdown]
# **RMSNorm** leaves the mean out: it divides by the root of the mean square.


# %%
def rms_norm(x: np.ndarray) -> np.ndarray:
    """Return each row of x with mean square 1."""
    wide = x.astype(np.float32)
    mean_square = tcusim.sum(wide * wide, axis=1, keepdims=True) / np.float32(x.shape[1])
    return wide / np.sqrt(mean_square + np.float32(1e-5))


print(f"After RMSNorm the mean squares are {(rms_norm(x) ** 2).mean():.6f}.")

# %% [markdown]
# One more thing matters when a model is served. A row must not depend on the other rows of its
# batch. With tcusim it does not, [by construction](../determinism.md): each row is added in an
# order of its own.

# %%
found = {layer_norm(x[:batch])[0].tobytes() for batch in (1, 2, 5, 16, rows)}
print(f"Row 0 in batches of 1, 2, 5, 16 and {rows} rows: {len(found)} set of bits.")

# %% [markdown]
# ```py title="needs a GPU"
# import torch
#
# with torch.no_grad():  # tcusim has no autograd, and raises an error rather than lose a gradient
#     t = torch.randn(4096, 8192, device="cuda", dtype=torch.float16)
#     mean = tcusim.sum(t, axis=1, dtype="float32", keepdims=True) / t.shape[1]
#     centred = t.float() - mean
#     variance = tcusim.sum(centred * centred, axis=1, keepdims=True) / t.shape[1]
#     normalised = centred * torch.rsqrt(variance + 1e-5)
# ```
#
# ## Histogram equalisation: a scan improves an image
#
# A dull image uses few of its 256 grey levels. *Histogram equalisation* spreads them: a pixel of
# level g becomes the share of pixels that are not brighter than g. That share, for all levels, is
# the **scan** of the histogram. Integer scans are exact:

# %%
down, across = np.mgrid[0:96, 0:96] / 96
hills = np.sin(9 * down) * np.cos(7 * across) + 0.5 * np.sin(23 * down * across)
image = np.clip(110 + 12 * hills + rng.normal(0, 2, hills.shape), 0, 255).astype(np.uint8)

histogram = np.bincount(image.ravel(), minlength=256)
scanned = tcusim.cumsum(histogram)
share = scanned / image.size
equalised = np.rint(255 * share[image]).astype(np.uint8)

scan_is_numpys = np.array_equal(scanned, np.cumsum(histogram))
print(f"The scan of the histogram is NumPy's: {scan_is_numpys}.")
for name, picture in (("before", image), ("after", equalised)):
    low, high = np.percentile(picture, [5, 95])
    print(f"{name:>6}: nine tenths of the pixels have levels {low:.0f} to {high:.0f}")

# %% [markdown]
# <!-- figure: equalised -->
#
# ## A sparse matrix times a vector: sums of ragged segments
#
# A sparse matrix in CSR form has the values of its rows end to end, the column of each value, and
# `offsets`, where each row begins. Row i of A·x is the sum of value times x[column], from
# `offsets[i]` up to `offsets[i + 1]`. Rows may be long, short or empty:

# %%
lengths = rng.choice([0, 1, 2, 3, 300], size=200, p=[0.2, 0.3, 0.3, 0.15, 0.05])
offsets = np.concatenate([[0], np.cumsum(lengths)])
columns = rng.integers(0, 1000, offsets[-1])
values = rng.standard_normal(offsets[-1]).astype(np.float32)
vector = rng.standard_normal(1000).astype(np.float32)

products = values * vector[columns]
result = tcusim.segmented_sum(products, offsets)

wide = products.astype(np.float64)
expected = np.array([wide[a:b].sum() for a, b in pairwise(offsets)])
scale = np.array([np.abs(wide[a:b]).sum() for a, b in pairwise(offsets)])
sparse_error = (np.abs(result - expected) / np.maximum(scale, 1e-30)).max()
print(
    f"{lengths.size} rows of 0 to {lengths.max()} values: worst relative error {sparse_error:.1e}"
)

# %% [markdown]
# NumPy's own function for this is `np.add.reduceat`. It has a trap: for an *empty* row it returns
# the first element of the next one. (It also refuses an offset at the very end, so we append a
# zero.)

# %%
reduced = np.add.reduceat(np.append(products, np.float32(0)), offsets[:-1])
wrong = np.abs(reduced - expected) > 1e-4
empty = np.count_nonzero(lengths[wrong] == 0)
print(f"np.add.reduceat is wrong in {wrong.sum()} rows, of which {empty} are empty.")

# %% [markdown]
# No warp waits for the rows of 300: long rows are cut into chunks that share tiles with short ones,
# as [Algorithms](../algorithms.md#ragged-segments) describes. The same call averages a *ragged
# batch*, such as the word vectors of sentences of unequal lengths:

# %%
words = np.array([5, 1, 9, 3])  # words of each sentence
starts = np.concatenate([[0], np.cumsum(words)])
embedded = rng.standard_normal((8, starts[-1])).astype(np.float16)  # features x words
means = tcusim.segmented_sum(embedded, starts, dtype=np.float32) / words.astype(np.float32)
print(f"{words.size} sentences of {words.tolist()} words have means of shape {means.shape}.")

# %% [markdown]
# ## Stream compaction: a scan tells each element where to go
#
# Keep the elements that satisfy a condition, in order. `x[mask]` does that in NumPy, but how can a
# thousand threads do it at once? Each element that is kept must know its place in the output: the
# number of kept elements *before* it. That is the **exclusive scan** of the mask.

# %%
numbers = rng.integers(0, 100, 20)
mask = numbers < 30
places = tcusim.cumsum(mask, exclusive=True)
compacted = np.zeros(mask.sum(), numbers.dtype)
compacted[places[mask]] = numbers[mask]  # every thread writes on its own
print("numbers  ", *(f"{n:>2}" for n in numbers))
print("kept     ", *(" x" if keep else " ." for keep in mask))
print("places   ", *(f"{n:>2}" for n in places))
print("compacted", *(f"{n:>2}" for n in compacted))

# %% [markdown]
# The scan makes the writes independent: no thread asks another one, and no two write to one place.
# Exercise 2 sorts in this way. On tensor cores, three mma scan 256 flags ([lesson 5](05_scan.md)).
# Step to R, the last product: it has the places of 256 flags.

# %% tags=["picture"]
flags = (np.arange(256) % 3 == 0).astype(np.float16)
tcusim.trace(tcusim.build("scan_256", exclusive=True), {"in": flags})

# %% [markdown]
# ## Plans: decide once, call often
#
# Each call chooses the programs that it launches, by length, type and tile. A *plan* is that choice
# as an object. It can be printed, and called again and again:

# %%
plan = tcusim.plan("segmented_sum", length=x.size, segments=x.shape[1], dtype="float16")
print(plan)
planned_is_same = np.array_equal(plan(x.ravel()), tcusim.sum(x, axis=1))
print(f"\nCalled, it returns the bits of tcusim.sum: {planned_is_same}.")

# %% [markdown]
# A plan can also be priced without a GPU: [`tcusim.cost`](../cost.md) predicts how long it takes on
# a GPU whose figures are known.

# %%
large = {name: tcusim.plan(name, length=2**30) for name in ("sum", "cumsum")}
costs = {name: tcusim.cost(plan, unit="h200") for name, plan in large.items()}
for name, cost in costs.items():
    print(
        f"tcusim.{name} of 2^30 float16 numbers on an H200: predicted {cost.seconds * 1e3:.2f} ms, "
        f"bound by {cost.bound}"
    )

# %% [markdown]
# ```py title="needs a GPU"
# import cupy
#
# there = cupy.asarray(x.ravel())
# sums = plan(there)  # the first call compiles; further ones only launch
# assert (sums.get().view("u2") == plan(x.ravel()).view("u2")).all()  # on an H200: the default arch
# ```
#
# ## Exercise 1: a moving average
#
# Write the average of each window of `width` numbers, with one scan. There are
# `x.size - width + 1` windows.
#
# <details><summary>Hint</summary>
# With <code>include_initial=True</code> the scan has one element more, and begins with 0. The sum
# of a window is the difference of two of its elements, <code>width</code> apart.
# </details>


# %% tags=["exercise"]
def moving_average(x: np.ndarray, width: int) -> np.ndarray | None:
    """Return the averages of the windows."""


# %% tags=["solution"]
def moving_average(x: np.ndarray, width: int) -> np.ndarray | None:
    sums = tcusim.cumsum(x, include_initial=True)
    return (sums[width:] - sums[:-width]) / width


# %% tags=["check"]
series = rng.integers(0, 50, 40)
averages = moving_average(series, 8)
tcusim.lessons.check(
    "12.1 A moving average",
    averages
    if averages is None
    else np.allclose(averages, np.convolve(series, np.ones(8) / 8, "valid"), rtol=1e-12),
    "the first average is series[:8].mean(), and there are 33 of them",
)

# %% [markdown]
# ## Exercise 2: split by a bit, and sort
#
# A *split* moves the numbers whose bit is 0 to the front and the others to the back, and keeps
# their order otherwise. Applied to bit 0, then bit 1, and so on, it sorts: that is **radix sort**.
# Write the split with scans, so that every element finds its place by itself.
#
# <details><summary>Hint</summary>
# A number with bit 0 goes where compaction would put it. A number with bit 1 goes behind all of the
# zeros, at the number of ones before it.
# </details>


# %% tags=["exercise"]
def split(numbers: np.ndarray, bit: int) -> np.ndarray | None:
    """Return the numbers, those with this bit 0 first, in order otherwise."""


# %% tags=["solution"]
def split(numbers: np.ndarray, bit: int) -> np.ndarray | None:
    ones = numbers >> bit & 1
    zeros = 1 - ones
    behind = zeros.sum() + tcusim.cumsum(ones, exclusive=True)
    place = np.where(ones == 1, behind, tcusim.cumsum(zeros, exclusive=True))
    result = np.empty_like(numbers)
    result[place] = numbers
    return result


# %% tags=["check"]
ordered = numbers
for bit in range(7):
    if ordered is not None:
        ordered = split(ordered, bit)
tcusim.lessons.check(
    "12.2 Split by a bit, and sort",
    tcusim.lessons.equal(ordered, np.sort(numbers)),
    "after bits 0 to 6, numbers below 128 must be in order; is each split stable?",
)

# %% [markdown]
# ## Exercise 3: softmax of ragged rows
#
# The softmax of a row is exp(x) divided by the sum of exp(x) over the row. Write it for rows given
# by offsets, none of them empty. (Numbers here are small; otherwise subtract each row's maximum
# first.)
#
# <details><summary>Hint</summary>
# <code>np.repeat(sums, np.diff(offsets))</code> gives each element its row's sum.
# </details>


# %% tags=["exercise"]
def ragged_softmax(x: np.ndarray, offsets: np.ndarray) -> np.ndarray | None:
    """Return float32 values of which each row adds up to 1."""


# %% tags=["solution"]
def ragged_softmax(x: np.ndarray, offsets: np.ndarray) -> np.ndarray | None:
    powers = np.exp(x)
    sums = tcusim.segmented_sum(powers, offsets)
    return powers / np.repeat(sums, np.diff(offsets))


# %% tags=["check"]
logits = rng.standard_normal(starts[-1]).astype(np.float32)
shares = ragged_softmax(logits, starts)
tcusim.lessons.check(
    "12.3 Softmax of ragged rows",
    shares
    if shares is None
    else np.allclose(np.add.reduceat(shares, starts[:-1]), 1, atol=1e-6)
    and np.allclose(shares[:5], np.exp(logits[:5]) / np.exp(logits[:5]).sum(), rtol=1e-5),
    "each row must add up to 1, and the first one has 5 elements",
)

# %% [markdown]
# ## In short
#
# - Sums: ask for float32 results of float16 data.
# - A scan of counts is a table of places; an exclusive scan of a mask is compaction.
# - Offsets describe rows of any length, empty ones among them.
#
# [Recipes](../recipes.md) has more, each in a few lines.
#
# Next: [write a backend](13_write_a_backend.md).

# %%
assert errors["tcusim, float32 result"] < 1e-6 < errors["float16, one after the other"]
assert worst_mean < 1e-5
assert np.abs(worst_deviation - 1).max() < 1e-4
assert len(found) == 1
assert scan_is_numpys
assert np.ptp(equalised) > 3 * np.ptp(image)
assert sparse_error < 1e-6
assert (lengths[wrong] == 0).all()
assert wrong.any()
assert np.array_equal(compacted, numbers[mask])
assert planned_is_same
assert 0 < costs["sum"].seconds < costs["cumsum"].seconds
