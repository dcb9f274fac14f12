# %% [markdown]
# # 7. Blocks and barriers
#
# So far each warp worked by itself. The warps of one *block* can work together: they share a
# memory, and they can wait for each other at a *barrier*. In this lesson four warps sum one
# segment, and we learn what a barrier does by taking it away. Then four warps scan one segment.
#
# If warp, block or shared memory are new to you, begin with [CUDA in ten
# minutes](00_cuda_in_ten_minutes.md).

# %%
import dataclasses
import textwrap

import numpy as np

import tcusim
import tcusim.lessons
from tcusim.program.grammar import Index, Loop, Mma, Program, Scope, Step, Sync, View, When, walk

# %% [markdown]
# ## Four warps, one sum
#
# A segment of 4,096 numbers is 16 tiles of 256. One warp would need 16 mma steps for them, one
# after the other. Instead, four warps take four tiles each. That gives four *partial sums*, and one
# of the warps adds them up:
#
# <!-- figure: block_sum -->

# %%
rng = np.random.default_rng(5)
x = rng.integers(0, 4, 4096).astype(np.float16)

partials = x.reshape(4, 1024).sum(axis=1, dtype=np.float32)
print(f"The four partial sums are {partials}; together they are {partials.sum():.0f}.")

# %% [markdown]
# `reduction_256n_block` is that algorithm. Every warp runs every step, and `warp` is its number, 0
# to 3. So step 3.1 loads different tiles in each warp, and step 14 writes each warp's partial sum
# to a different place.

# %%
program = tcusim.build("reduction_256n_block", warps=4, segment_size=4096)
print(tcusim.listing(program))

# %% [markdown]
# | steps | work of the block |
# | --- | --- |
# | 1 to 3 | each warp adds up its four tiles: the columns' sums are in row 0 of V |
# | 4 to 13 | each warp adds up that row, with one more mma ([lesson 4](04_256_and_256n.md)) |
# | 14 | each warp writes its partial sum to `prtls` |
# | 15 | all warps wait for each other |
# | 16 | only warp 0 loads the partial sums as a tile, and sums them |
#
# The header names two kinds of shared memory. `s_V` is *of each warp*, so there are four of them.
# `prtls` is *of the block*: there is one, which all warps see. (It has eight places, of which four
# are used: buffers of shared memory begin at multiples of 32 bytes.) In step 16.2 `t_E` becomes a
# tile with the four partial sums in its first column and zeros elsewhere, so that step 16.4 can
# load it as an operand, E.
#
# Step through it: choose a warp, and look at the rows of barriers at the bottom.

# %% tags=["picture"]
tcusim.trace(program, {"in": x}, blocks=0)

# %% [markdown]
# ## Values visible to a warp
#
# Between writing the partial sums and reading them is step 15, `sync block`. We stop the run after
# steps 14 and 15, and ask what every warp sees in `prtls`:


# %%
def seen_by_warps(program: Program, path: str) -> np.ndarray:
    """Run a program of one block; return each warp's view of `prtls` after a step."""
    row = View.strided(program.buffer("prtls"), Index(), 1, program.warps, program.warps, 1)
    for event in tcusim.interpret(program, {"in": x}, check=False):
        if event.path == path:
            return np.asarray(event.state.read(row)[:, 0, :])
    raise ValueError(f"no step {path}")


before, after = seen_by_warps(program, "14"), seen_by_warps(program, "15")
for title, seen in (("Before the barrier (step 14)", before), ("After it (step 15)", after)):
    print(title)
    for warp, values in enumerate(seen):
        print(f"   warp {warp} sees {values}")

# %% [markdown]
# Before the barrier all four have written, and none of these values is visible yet. NaN is what
# memory holds here until a write can be seen. After the barrier everybody sees everything.
#
# Does a GPU behave like that? It *may*. The warps of a block run on their own: one is at step 16
# when another has just begun. Their writes may become visible early or late; only a barrier settles
# it. `__syncthreads()` lets no warp pass before all have come, and every write before it is seen
# after it. A simulator that runs all warps in lockstep would hide a missing barrier. This one shows
# the worst case that CUDA allows.
#
# ## Take the barrier away
#
# A program is data, so we can remove a step from it:


# %%
def without(program: Program, path: str) -> Program:
    """Return the program without the step at this path, at the top or in loops."""

    def shortened(steps: tuple[Step, ...], prefix: str = "") -> tuple[Step, ...]:
        kept: list[Step] = []
        for number, step in enumerate(steps, start=1):
            here = f"{prefix}{number}"
            if isinstance(step, Loop):
                step = dataclasses.replace(step, body=shortened(step.body, f"{here}."))
            if here != path:
                kept.append(step)
        return tuple(kept)

    return dataclasses.replace(program, steps=shortened(program.steps))


def complaint(program: Program) -> str:
    """Return the error of `verify` for a program, if any."""
    try:
        tcusim.verify(program)
    except tcusim.VerifyError as error:
        return textwrap.fill(str(error), 96)
    return "nothing"


broken = without(program, "15")
print(f"Without step 15, verify says:\n{complaint(broken)}")

# %% [markdown]
# `verify` needs no run for that. It compares which elements the steps read and write, in any two
# warps, and whether a barrier is between them. Every program is verified before it runs. With
# `check=False` a refused program runs all the same, and shows the damage:

# %%
right = tcusim.run(program, {"in": x})["out"]
damaged = tcusim.run(broken, {"in": x}, check=False)["out"]
print(f"With the barrier the sum is {right[0]:.0f}, without it {damaged[0]}.")

# %% [markdown]
# `verify` names the nearest problem first: not even the lanes of one warp are in order there, so it
# asks for a barrier of the warp. That is not enough, and `verify` says so when we put one there.
# Warp 0 then sees its own value, and none of the others:

# %%
steps = list(program.steps)
steps[14] = Sync(Scope.WARP)
too_weak = dataclasses.replace(program, steps=tuple(steps))
own_alone = seen_by_warps(too_weak, "15")[0]
print("With only a barrier of the warp, verify says:")
print(complaint(too_weak))
print(f"\nand warp 0 sees {own_alone}.")

# %% [markdown]
# A barrier that only some warps reach is worse than none: those that came wait forever. So no
# barrier of the block may stand in a branch that only some warps take:

# %%
branch = next(step for step in program.steps if isinstance(step, When))
stuck = dataclasses.replace(branch, body=(Sync(Scope.BLOCK), *branch.body))
in_branch = complaint(dataclasses.replace(program, steps=(*program.steps[:14], stuck)))
print("With the barrier inside the branch, verify says:")
print(in_branch)

# %% [markdown]
# ## The gain of four warps
#
# A segment waits for the warp that has the most mma steps, one after the other. We count them:


# %%
def busiest(program: Program) -> int:
    """Return the mma steps of the warp that has the most."""
    made = np.zeros(program.warps, int)
    for event in tcusim.interpret(program, {"in": x}):
        if isinstance(event.step, Mma):
            made[event.warps] += 1
    return int(made.max())


steps_by_warps = {}
for warps in (1, 2, 4, 8, 16):
    wide = tcusim.build("reduction_256n_block", warps=warps, segment_size=4096)
    steps_by_warps[warps] = busiest(wide)
    print(f"{steps_by_warps[warps]:>2} mma steps, one after the other, with warps: {warps}")

# %% [markdown]
# Sixteen times the warps do not make it sixteen times as short: two more steps, for the row of each
# warp and for the partial sums, are needed whatever the number of warps.
#
# ## Scan a segment with four warps, by hand
#
# Now the scan, which is the paper's Algorithm 7. Each warp scans one tile; a *chunk* is one tile
# for each warp. Then each warp lacks the sum of everything before its tile. That has two parts: the
# *totals* of the tiles before it in the chunk, and the *carry*, which is the sum of all chunks
# before this one.
#
# <!-- figure: barriers -->
#
# The sum before each tile of a chunk is the *exclusive scan* of the totals. One mma computes it:
# the row of totals, times a matrix with ones **strictly** above the diagonal. The paper calls this
# step *LastColumnScan*.

# %%
tiles = x[:1024].reshape(4, 256).astype(np.float64)
scanned = np.cumsum(tiles, axis=1)
totals = scanned[:, -1]
strictly_upper = np.triu(np.ones((4, 4)), 1)
precedes = totals @ strictly_upper
print(f"The totals of the four tiles are     {totals}.")
print(f"The sums before the tiles are therefore {precedes}.")

# %% [markdown]
# For several chunks the carry goes along. It is added once, where the totals are scanned, and it
# grows by *all* totals of the chunk:

# %%
exact = np.cumsum(x, dtype=np.float64)
carry, results = 0.0, []
for chunk in x.reshape(4, 4, 256).astype(np.float64):
    scanned = np.cumsum(chunk, axis=1)
    totals = scanned[:, -1]
    precedes = totals @ strictly_upper + carry
    results.append(scanned + precedes[:, None])
    carry = precedes[-1] + totals[-1]
by_hand = np.ravel(results)
print(f"All {x.size} prefix sums by hand are right: {np.array_equal(by_hand, exact)}.")

# %% [markdown]
# (The paper's listing adds the carry in every tile and leaves out the last total, so it is right in
# only the first chunk: [its listing, run](../listings.md#alg7).)
#
# ## The same as a program
#
# A round of its loop is a chunk. These are its lines from the totals on:

# %%
scan = tcusim.build("scan_256n_block", warps=4, segment_size=4096)
listing = tcusim.listing(scan).splitlines()
first = next(i for i, text in enumerate(listing) if text.startswith("6.14 "))
print("\n".join(listing[first:]))
scan_is_right = np.array_equal(tcusim.run(scan, {"in": x})["out"], exact)
print(f"\nThe program's {x.size} prefix sums are right: {scan_is_right}.")

# %% [markdown]
# | name | contents |
# | --- | --- |
# | `s_R` | of each warp: its tile, scanned; its last place is the tile's total |
# | `totals` | of the block: the total of each warp's tile |
# | `t_E`, E | the row of totals as a tile, zeros below it, to be loaded as an operand |
# | US | ones strictly above the diagonal |
# | S | the carry. An accumulator is loaded whole, so all of `t_S` contains it; only row 0 counts |
# | `s_T`, T | the sum before each tile, in row 0 |
# | `prtls` | of the block: that row, for the warps to add |
#
# In each round all warps meet twice. At 6.15 they **gather**: the totals of all tiles are there
# before warp 0 scans them. At 6.17 they **spread**: the sum before each tile is there before the
# warps add it. Neither barrier can be left out:

# %%
barriers = [
    path for path, step in walk(scan.steps) if isinstance(step, Sync) and step.scope is Scope.BLOCK
]
complaints = {path: complaint(without(scan, path)) for path in barriers}
for path, text in complaints.items():
    print(f"Without {path}:\n{text}\n")

# %% [markdown]
# Does the round need a third one at its end? In the next round the warps write new totals, and warp
# 0 new sums, where others may still read the old ones. It looks like a race, and `verify` proves
# that it is none. Only warp 0 reads totals, before the second barrier. The values that it writes
# next, it writes after the first barrier of the next round, and all others reach that one only when
# they have read.
#
# ## Exercise 1: how long is the longest warp?
#
# Write the number of mma steps of the busiest warp of `reduction_256n_block`, for a segment of
# `tiles` tiles and a block of `warps` warps, at most 16.
#
# <details><summary>Hint</summary>
# Count in the listing: the loop of step 3, one step to add up row 0 of V, and one more that warp 0
# makes for the partial sums.
# </details>


# %% tags=["exercise"]
def longest(tiles: int, warps: int) -> int | None:
    """Return the mma steps of the busiest warp."""


# %% tags=["solution"]
def longest(tiles: int, warps: int) -> int | None:
    return -(-tiles // warps) + 2


# %% tags=["check"]
tcusim.lessons.check(
    "7.1 The longest warp",
    tcusim.lessons.equal({warps: longest(16, warps) for warps in steps_by_warps}, steps_by_warps),
    "compare with the counts printed above: the loop, and two mma steps after it",
)

# %% [markdown]
# ## Exercise 2: three warps
#
# The number of warps need not divide the number of tiles. With three warps and 16 tiles, which warp
# has no tile in the last round of step 3, and what must the program put in its place? Build the
# program with three warps, find the answer in its listing, and return the numbers of the warps that
# load zeros in the last round.
#
# <details><summary>Hint</summary>
# Tiles are dealt out in runs: each warp takes <code>ceil(16 / 3)</code> neighbouring tiles. How
# many are left for the last warp?
# </details>


# %% tags=["exercise"]
def without_a_tile(tiles: int, warps: int) -> list[int] | None:
    """Return the warps that have no tile in the last round of the loop."""


# %% tags=["solution"]
def without_a_tile(tiles: int, warps: int) -> list[int] | None:
    rounds = -(-tiles // warps)
    return [warp for warp in range(warps) if warp * rounds + rounds - 1 >= tiles]


# %% tags=["check"]
tcusim.lessons.check(
    "7.2 Three warps",
    tcusim.lessons.equal((without_a_tile(16, 3), without_a_tile(16, 4)), ([2], [])),
    "with 3 warps, warp 2 has 4 tiles for 6 rounds; with 4 warps each has one",
)

# %% [markdown]
# ## Exercise 3: repair a program
#
# Somebody has deleted a barrier from the sum. Find out from `verify` where it was, and put it back.
# A block's barrier would do, but it makes all warps wait: use the weaker one if it is enough.

# %%
faulty = without(program, "9")
print(f"Of the faulty program, verify says:\n{complaint(faulty)}")

# %% [markdown]
# <details><summary>Hint</summary>
# The message names two steps and says what to put between them. <code>faulty.steps</code> is a
# tuple that begins with step 1, and <code>dataclasses.replace</code> makes a program with others.
# </details>


# %% tags=["exercise"]
def repaired(program: Program) -> Program | None:
    """Return the program with the barrier that it lacks."""


# %% tags=["solution"]
def repaired(program: Program) -> Program | None:
    steps = (*program.steps[:8], Sync(Scope.WARP), *program.steps[8:])
    return dataclasses.replace(program, steps=steps)


# %% tags=["check"]
whole = repaired(faulty)
tcusim.lessons.check(
    "7.3 Repair a program",
    tcusim.lessons.equal(whole, program),
    "step 8 writes t_X and the next step loads it: put Sync(Scope.WARP) between these two",
)

# %% [markdown]
# ## In short
#
# - Warps of a block share memory; a write by one is visible to another only after a barrier of the
#   block.
# - A barrier must be reached by all warps, or none.
# - `verify` proves without a run that no barrier is missing; `check=False` shows what happens if
#   one is.
#
# Blocks have no barrier in common: [the next lesson](08_the_grid.md) is about them.

# %%
assert np.isnan(before).all()
assert np.array_equal(after, np.tile(partials, (4, 1)))
assert np.isnan(damaged).all()
assert own_alone[0] == partials[0]
assert np.isnan(own_alone[1:]).all()
assert "synced_shared" in complaint(too_weak)
assert in_branch != "nothing"
assert steps_by_warps == {1: 18, 2: 10, 4: 6, 8: 4, 16: 3}
assert np.array_equal(by_hand, exact)
assert scan_is_right
assert len(complaints) == 2
assert all("synced_shared" in text for text in complaints.values())
