# %% [markdown]
# # 14. Judge a unit
#
# You have an idea for a matrix unit: a tile, and how many bits its adders keep. Is it any good? In
# this lesson we describe one in two lines, let tcusim judge it, and make it better.
#
# You need lesson 6, on the errors of long sums, and lesson 9, on tiles that no GPU has.

# %%
from pathlib import Path

import numpy as np

import tcusim
import tcusim.lessons
from tcusim.judge.accuracy import predicted_error
from tcusim.line_charts import Line, Plot
from tcusim.machine import fused_unit

# %% [markdown]
# ## A unit in two lines
#
# A file gives the cost of one mma, and the number of *fraction bits* that a sum keeps below its
# largest term. Few bits make small adders. Ours keeps 10, where an H200 keeps 25:

# %%
Path("mychip.toml").write_text('tiles = "32x8x8"\nfraction_bits = 10\n')
unit = tcusim.unit_of("mychip.toml")
print(f"{unit.name} takes tiles of {unit.shapes[0]}; its rule: {unit.arch.rows[0].how}")

# %% [markdown]
# ## Are the algorithms right on its tile?
#
# `tcusim.validate` builds algorithms for the tile and tries them. Here are three of them; without
# names it tries all. It begins with five lines, and the first two are about the tile: which
# algorithm is best for each task, and how many mma it takes beside 16x16x16.

# %%
verdict = tcusim.validate("mychip.toml", algorithms=["reduction_kn", "scan_kn", "gemm"])
for line in verdict.lines()[0]:
    print(f"{line.name:<10}  {line.text}")

# %% [markdown]
# "Right" was said of integers, in which nothing is rounded: the *algorithms* fit the tile. Nothing
# was said of its arithmetic yet, and the last line tells so.
#
# ## How precise is it?
#
# Without names of algorithms, precision is tried as well. `accuracy_of` does only that part: sums
# of five kinds of data, measured on the simulator and predicted from the rule.

# %%
found = tcusim.accuracy_of("mychip.toml")
print(found.promise())
for length in (16, 256, 4096):
    error = found.at("same_sign", length)
    print(
        f"A sum of {length:,} numbers between 0 and 1 is off by {error.measured:.1%} (measured); "
        f"the rule predicts {error.predicted:.1%}."
    )

# %% [markdown]
# In one accumulator a long sum is all error: it *stagnates*. A term is lost as soon as it is less
# than the last bit that the sum keeps. For ones that is at 2^(F + 1):

# %%
ones = found.stagnation[0]
print(f"A sum of ones stops at {ones.computed:,.0f}; the rule says {ones.predicted:,.0f}.")
many = np.ones((1, 5000), np.float16)
stopped = float(tcusim.mma(many, many.T, arch=unit.name)[0, 0])
print(f"One product with 5,000 ones on each side returns {stopped:,.0f}.")

# %% [markdown]
# Term by term: at 1,024 a one is the last bit that is kept, and at 2,048 it is cut off.

# %% tags=["picture"]
eight = np.ones(8, np.float16)
tcusim.explain(eight, eight, np.float32(2048), arch=unit.name)

# %% [markdown]
# ## What would more bits buy?
#
# The prediction multiplies no tile, so it is cheap enough to try every width. Sums of 65,536
# numbers between 0 and 1, in one accumulator and in blocks of 16 mma:

# %%
print("F   one accumulator   blocks of 16 mma")
errors = {}
for bits in (3, 10, 14, 18, 22, 25):
    rule = fused_unit(8, bits).arch.rows[0]
    errors[bits] = [
        predicted_error(rule, "same_sign", 2**16, k=8, blocked=blocked) for blocked in (None, 16)
    ]
    print(f"{bits:<3} {errors[bits][0]:<17.1e} {errors[bits][1]:.1e}")

# %% tags=["picture"]
Plot(
    "Sums of 65,536 numbers between 0 and 1",
    tuple(
        Line(name, tuple((float(bits), both[place]) for bits, both in errors.items()))
        for place, name in enumerate(("one accumulator", "blocks of 16 mma"))
    ),
    x="fraction bits of the unit",
    y="relative error",
    linear=True,
    log=True,
    level=("half an ulp of float16", 2.0**-11),
)

# %% [markdown]
# Blocks help more than bits: they keep each sum short, and the additions between them are rounded
# to nearest. But no blocking saves a unit of three bits.
#
# ## Claims and circuits
#
# A file is a claim. When there is a circuit, or a simulation of one, its bits are compared with the
# claim. Here the "circuit" was built with two bits fewer than `mychip` claims:

# %%
Path("built.toml").write_text('tiles = "32x8x8"\nfraction_bits = 8\n')
built = tcusim.unit_of("built.toml")


def circuit(a, b, c):
    return tcusim.mma(a, b, c, arch=built.name)


checked = tcusim.validate("mychip.toml", model=circuit, algorithms=["scan_k"])
print(checked.lines()[0][2].text)
for name in ("mychip.toml", "built.toml"):
    Path(name).unlink()

# %% [markdown]
# ## Exercise 1: enough bits
#
# Find the least number of fraction bits with which sums of 65,536 numbers between 0 and 1, in
# blocks of 16 mma of k = 8, are off by less than `error`.
#
# <details><summary>Hint</summary>
# Try <code>fused_unit(8, bits)</code> for one number of bits after the other; the table above shows
# how to ask for the error.
# </details>


# %% tags=["exercise"]
def enough_bits(error: float) -> int | None:
    """Return the least number of fraction bits."""


# %% tags=["solution"]
def enough_bits(error: float) -> int | None:
    for bits in range(3, 26):
        rule = fused_unit(8, bits).arch.rows[0]
        if predicted_error(rule, "same_sign", 2**16, k=8, blocked=16) < error:
            return bits
    return None


# %% tags=["check"]
answers = enough_bits(0.01), enough_bits(2.0**-11)
tcusim.lessons.check(
    "14.1 Enough bits",
    None if None in answers else 10 <= answers[0] < answers[1] <= 17,
    "1% takes between 10 and 14 bits; float16's 2^-11 takes a few more",
)

# %% [markdown]
# ## Exercise 2: where a sum of ones ends
#
# Say without a simulator where a sum of ones stops growing, for F fraction bits and a float32
# accumulator, if F is at most 23.
#
# <details><summary>Hint</summary>
# A one is cut away where the last bit that is kept, 2^(E - F), is worth more than one.
# </details>


# %% tags=["exercise"]
def ones_end(bits: int) -> int | None:
    """Return the value at which a sum of ones stops."""


# %% tags=["solution"]
def ones_end(bits: int) -> int | None:
    return 2 ** (bits + 1)


# %% tags=["check"]
ends = {bits: ones_end(bits) for bits in (10, 23)}
tcusim.lessons.check(
    "14.2 Where a sum of ones ends",
    None if None in ends.values() else ends == {10: ones.computed, 23: 2**24},
    "with 10 bits it is 2,048: from there on 2^(E - F) is 2",
)

# %% [markdown]
# ## In short
#
# - Two lines describe a unit; `tcusim validate` judges it in five, and lists the properties that it
#   did not test.
# - Right on integers is not precise on data: ask for both.
# - `tcusim validate mychip.toml h200 --html page.html` puts units beside each other, with plots;
#   [Is it any good?](../validate.md) has the rest, and [Explore](../explore.md) tries many at once.
#
# Next: [sums in pieces](15_in_pieces.md), on several machines.

# %%
assert verdict.ok
assert not checked.ok
assert ones.computed == ones.predicted == 2048
assert found.holds
assert stopped == ones.computed
assert errors[25][1] < 1e-5 < errors[3][1]
