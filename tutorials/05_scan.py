# %% [markdown]
# # 5. A scan of 256 numbers
#
# An inclusive scan replaces each element by the sum of all up to it. It looks sequential, and yet
# three mma steps scan 256 numbers. We find out how, correct an error in print, run the program, and
# look at its bits on two GPUs.

# %%
import numpy as np

import tcusim

# %% [markdown]
# ## By hand: rows
#
# Put the 256 numbers into a tile A, row after row. Let U have ones on and above its diagonal.
# Column j of A·U is the sum of the columns 0 to j of A: every *row* is scanned.

# %%
rng = np.random.default_rng(2)
x = rng.integers(-9, 10, 256).astype(np.float32)
a = x.reshape(16, 16)

r, c = np.indices((16, 16))
u = (r <= c).astype(np.float32)
print("rows are scanned:", np.array_equal(a @ u, np.cumsum(a, axis=1)))

# %% [markdown]
# ## Erratum E1
#
# [The paper](../references.md) displays U as above, but defines it, a page later, as 1 where
# r ≥ c. That is the transpose, and multiplying with it adds up what comes *after* each element:

# %%
u_as_defined = (r >= c).astype(np.float32)
print("with the definition as printed:", np.array_equal(a @ u_as_defined, np.cumsum(a, axis=1)))
from_the_right = np.cumsum(a[:, ::-1], axis=1)[:, ::-1]
print("it is the scan from the right: ", np.array_equal(a @ u_as_defined, from_the_right))

# %% [markdown]
# The definition of L is swapped in the same way. tcusim follows the displayed matrices; a page of
# the site lists [all errata that it follows](../errata.md).
#
# ## By hand: what precedes each row
#
# Every row still lacks the sum of the rows above it. L has ones *strictly* below its diagonal, so
# row i of L·A is the sum of the rows 0 to i-1 of A, column by column. To add up its columns,
# multiply with the matrix of all ones. Together:
#
# **scan(A) = A·U + (L·A)·1**

# %%
low = (r > c).astype(np.float32)
ones = np.ones((16, 16), np.float32)

scanned = a @ u + (low @ a) @ ones
print("A.U + (L.A).1 is the scan:", np.array_equal(scanned.ravel(), np.cumsum(x)))

# %% [markdown]
# Three products; the addition is free, as an mma adds C anyway.
#
# ## As a program

# %%
program = tcusim.build("scan_256")
print(tcusim.listing(program))

# %% [markdown]
# Steps 6, 9 and 15 are the products. What the paper leaves to its reader is between 10 and 14: L·A
# is an accumulator, and an accumulator can be no operand of the next product. It must go through
# shared memory, and it is **rounded to float16** on its way (step 12). With whole numbers of this
# size that is harmless:

# %%
half = x.astype(np.float16)
out = tcusim.run(program, {"in": half})["out"]
print("the scan:", np.array_equal(out, np.cumsum(x)))

# %% [markdown]
# ## Three forms of one formula
#
# Matrix products are associative: (L·A)·1 = L·(A·1). The second form rounds the row totals A·1
# instead of the sums of whole rows, and it needs fewer products on tiles whose n is less than k.
# Where n is greater than k, a third form gets the prefixes and the row totals from *one* product,
# A·[U|1], as U leaves columns free.


# %%
def products(program: tcusim.Program, values: np.ndarray) -> int:
    """Return the number of mma steps of one run."""
    events = tcusim.interpret(program, {"in": values})
    return sum(event.warps.size for event in events if type(event.step).__name__ == "Mma")


for shape, side, form in (
    ("16x16x16", "a", "(LA)1"),
    ("16x16x16", "a", "L(A1)"),
    ("32x8x16", "a", "(LA)1"),
    ("32x8x16", "a", "L(A1)"),
    ("8x32x16", "a", "(LA)1"),
    ("8x32x16", "a", "[U|1]"),
):
    tile = tcusim.build("scan_t", tile=shape, side=side, form=form)
    size = tile.scalars[0].multiple_of
    values = np.resize(half, size)
    out = tcusim.run(tile, {"in": values})["out"]
    assert np.array_equal(out, np.cumsum(values, dtype=np.float32))
    print(f"{shape:>8}  {form:>6}  {products(tile, values)} mma for {size} elements")

# %% [markdown]
# ## Its bits on two GPUs
#
# Now numbers that need rounding, and the accumulators of the paper, float16. Every element of the
# scan is the end of a sequence of fused dot-product-adds, and Volta's are shorter than Hopper's.

# %%
noise = rng.standard_normal(256).astype(np.float16)
as_printed = tcusim.build("scan_256", acc="f16")
volta = tcusim.run(as_printed, {"in": noise}, arch="volta")["out"]
hopper = tcusim.run(as_printed, {"in": noise}, arch="hopper")["out"]

differ = volta.view(np.uint16) != hopper.view(np.uint16)
exact = np.cumsum(noise, dtype=np.float64)
print(f"{differ.sum()} of 256 elements have other bits")
for name, result in (("volta", volta), ("hopper", hopper)):
    print(f"{name:>6}  largest error {np.abs(result - exact).max():.4f}")

first = int(np.flatnonzero(differ)[0])
print(
    f"the first is element {first}: "
    f"{volta[first]} ({volta.view(np.uint16)[first]:04x}) on Volta, "
    f"{hopper[first]} ({hopper.view(np.uint16)[first]:04x}) on Hopper, {exact[first]:.6f} exactly"
)
assert differ.any()

# %% [markdown]
# Neither is wrong; they are two roundings of one sum. That is why tests of GPU kernels usually have
# a tolerance, and why tcusim needs none: it knows which bits to expect of which GPU.
#
# With float32 accumulators the two agree on this input. What error remains is the rounding of L·A
# to float16, which is the program's and not the GPU's. `combine="add"` avoids it: what precedes
# each row is then added up in float32, without a product.

# %%
errors = {}
for combine in ("mma", "add"):
    wide = tcusim.build("scan_256", combine=combine)
    bits = {arch: tcusim.run(wide, {"in": noise}, arch=arch)["out"] for arch in ("volta", "hopper")}
    agree = np.array_equal(bits["volta"].view(np.uint32), bits["hopper"].view(np.uint32))
    errors[combine] = np.abs(bits["hopper"] - exact).max()
    print(f"combine={combine!r}: largest error {errors[combine]:.2e}, agree: {agree}")
assert errors["add"] < errors["mma"]

# %% [markdown]
# `tcusim.cumsum` uses `combine="add"` for you, for arrays of any length:

# %%
result = tcusim.cumsum(noise, dtype=np.float32)
assert np.array_equal(result, tcusim.run(wide, {"in": noise})["out"])
print("tcusim.cumsum:", result[:4], "...")

# %% [markdown]
# ## To try
#
# - `tcusim.build("scan_256n")` scans longer segments: find the steps that carry the sum from one
#   tile to the next.
# - Replace `x` by numbers up to 30000. Where does `scan_256` go wrong, and why does `cumsum` not?
#
# More on errors: [Precision](../precision.md). Next: [from step to CUDA](11_from_step_to_cuda.md).
