# %% [markdown]
# # 7. Blocks and barriers
#
# So far each warp worked alone. Warps of one *block* can work together: they have a memory in
# common, and they can wait for each other. In this tutorial four warps sum one segment, we find out
# what a barrier is by taking it away, and then four warps scan one segment, which is the paper's
# Algorithm 7 as it should be.

# %%
import dataclasses

import numpy as np

import tcusim
from tcusim.program.grammar import (
    Copy,
    Index,
    Loop,
    Mma,
    Program,
    Scope,
    Step,
    Sync,
    View,
    When,
    walk,
)

# %% [markdown]
# ## Four warps, one sum
#
# A segment of 4096 numbers is 16 tiles. One warp would need 16 products, one after the other. Four
# warps take four tiles each, and then somebody adds up their four *partial sums*:

# %%
rng = np.random.default_rng(5)
x = rng.integers(0, 4, 4096).astype(np.float16)

partials = x.reshape(4, 1024).sum(axis=1, dtype=np.float32)
print("partial sums", partials, "sum", partials.sum())

# %%
program = tcusim.build("reduction_256n_block", warps=4, segment_size=4096)
print(tcusim.listing(program))

# %% [markdown]
# Every warp runs every step, and `warp` is its number, 0 to 3. So step 3.1 loads other tiles in
# each warp, and step 14 puts each warp's partial sum into another place. Two kinds of memory are in
# the header: `s_V` is *of each warp*, so there are four of them; `prtls` is *of the block*, there
# is one. At step 16 only warp 0 goes on. It loads the partial sums as a tile, with zeros where
# there are none, and its last product adds them up.
#
# ## What a warp can see
#
# Between the two is step 15, `sync block`. Let us stop the run at each step, and ask what every
# warp sees in `prtls`:


# %%
def seen_by_warps(program: Program, name: str, paths: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Run a program of one block; return, after these steps, what each warp sees in a buffer."""
    buffer = program.buffer(name)
    row = View.strided(buffer, Index(), 1, program.warps, program.warps, 1)
    seen = {}
    for event in tcusim.interpret(program, {"in": x}, check=False):
        if event.path in paths:
            seen[event.path] = event.state.read(row)[:, 0, :].copy()
    return seen


seen = seen_by_warps(program, "prtls", ("14", "15"))
for path, values in seen.items():
    print(f"after step {path}")
    for warp, row in enumerate(values):
        print(f"   warp {warp} sees {row}")

# %% [markdown]
# After step 14 all four have written, and nobody sees anything yet: NaN is what memory holds here
# before a write can be seen. After the barrier everybody sees everything.
#
# Is that how a GPU behaves? It is how a GPU *may* behave. Warps of a block run on their own, one is
# at step 16 when another has just begun. What they have written may be seen early or late, and only
# a barrier settles it: `__syncthreads()` lets no warp pass before all have come, and what was
# written before it is seen after it. A simulator in which all warps move in lockstep would hide a
# forgotten barrier, so this one shows what the worst case would be.
#
# ## Take the barrier away


# %%
def without(program: Program, path: str) -> Program:
    """Return the program without the step at this path (not one in a branch)."""

    def shortened(steps: tuple[Step, ...], prefix: str) -> tuple[Step, ...]:
        kept = []
        for number, step in enumerate(steps, start=1):
            here = f"{prefix}{number}"
            if isinstance(step, Loop):
                kept.append(dataclasses.replace(step, body=shortened(step.body, f"{here}.")))
            elif here != path:
                kept.append(step)
        return tuple(kept)

    return dataclasses.replace(program, steps=shortened(program.steps, ""))


def complaint(program: Program) -> str:
    """Return what `verify` says against a program, if anything."""
    try:
        tcusim.verify(program)
    except tcusim.VerifyError as error:
        return str(error)
    return "nothing"


broken = without(program, "15")
print(complaint(broken))

# %% [markdown]
# `verify` needs no run for that. It compares which elements the steps read and write, in any two
# warps, and whether a barrier is between. Every program is verified before it runs, unless we ask
# the simulator not to, to see the damage:

# %%
print("without the barrier:", tcusim.run(broken, {"in": x}, check=False)["out"])
print("with it:            ", tcusim.run(program, {"in": x})["out"])

# %% [markdown]
# `verify` named the nearest trouble first: not even the lanes of one warp are in order there. But
# with a barrier of the *warp* alone it asks for more. Then warp 0 sees what it has written itself,
# and nothing of what the others have:

# %%
steps = list(program.steps)
steps[14] = Sync(Scope.WARP)
too_weak = dataclasses.replace(program, steps=tuple(steps))
print(complaint(too_weak))
print()
print("warp 0 sees", seen_by_warps(too_weak, "prtls", ("15",))["15"][0])

# %% [markdown]
# And a barrier that not all warps reach is worse than none: those that came wait forever. That is
# why none may stand in a branch that only some warps take:

# %%
branch = next(step for step in program.steps if isinstance(step, When))
stuck = dataclasses.replace(branch, body=(Sync(Scope.BLOCK), *branch.body))
print(complaint(dataclasses.replace(program, steps=(*program.steps[:14], stuck))))

# %% [markdown]
# ## What is gained
#
# The products of the busiest warp are what a segment has to wait for. A block of W warps makes
# ceil(16 / W) + 1 in each of them, and one more in the first:


# %%
def busiest(program: Program) -> int:
    """Return the products of the warp that makes the most."""
    made = np.zeros(program.warps, int)
    for event in tcusim.interpret(program, {"in": x}):
        if isinstance(event.step, Mma):
            made[event.warps] += 1
    return int(made.max())


steps_by_warps = {}
for warps in (1, 2, 4, 8, 16):
    wide = tcusim.build("reduction_256n_block", warps=warps, segment_size=4096)
    steps_by_warps[warps] = busiest(wide)
    print(f"{warps:>2} warps: {steps_by_warps[warps]} products, one after the other")

# %% [markdown]
# ## A scan, by hand
#
# Now the scan. Again each warp takes a tile; a *chunk* is one tile for each warp. All warps scan
# their tiles at once, and then each lacks what precedes its tile in the chunk, and what precedes
# the chunk. The first is the exclusive scan of the tiles' totals. A total is the last element of a
# scanned tile, and the paper gets them all with one load: E is a tile whose row t is the last row
# of tile t, so that its last column has the totals. *LastColumnScan* scans that column, by a
# product with ones **strictly** above the diagonal:

# %%
tiles = x[:1024].reshape(4, 16, 16).astype(np.float64)
scanned = np.cumsum(tiles.reshape(4, 256), axis=1)

e = scanned.reshape(4, 16, 16)[:, 15, :]
totals = e[:, 15]
strictly_upper = np.triu(np.ones((4, 4)), 1)
precedes = totals @ strictly_upper
print("totals       ", totals)
print("what precedes", precedes)
chunk = np.ravel(scanned + precedes[:, None])
print("the chunk is scanned:", np.array_equal(chunk, np.cumsum(x[:1024], dtype=float)))

# %% [markdown]
# Over several chunks a carry S goes along. It is added once, where the totals are scanned, and it
# grows by *all* totals of the chunk. The paper adds it in every tile, and leaves out the last
# total; [its listing, run](../listings.md#alg7), is right in the first chunk alone.

# %%
carry, results = 0.0, []
for chunk in x.reshape(4, 4, 256).astype(np.float64):
    scanned = np.cumsum(chunk, axis=1)
    totals = scanned[:, -1]
    precedes = totals @ strictly_upper + carry
    results.append(scanned + precedes[:, None])
    carry = precedes[-1] + totals[-1]
exact = np.cumsum(x, dtype=np.float64)
print("the segment is scanned:", np.array_equal(np.ravel(results), exact))

# %% [markdown]
# ## A scan, as a program

# %%
scan = tcusim.build("scan_256n_block", warps=4, segment_size=4096)
print(tcusim.listing(scan))
print("the segment is scanned:", np.array_equal(tcusim.run(scan, {"in": x})["out"], exact))

# %% [markdown]
# In each round of the loop all warps meet twice. The first barrier gathers: the totals of all tiles
# are there before warp 0 scans them. The second one spreads: what precedes each tile is there
# before the warps add it. Neither can be left out:

# %%
barriers = [
    path for path, step in walk(scan.steps) if isinstance(step, Sync) and step.scope is Scope.BLOCK
]
complaints = {path: complaint(without(scan, path)) for path in barriers}
for path, text in complaints.items():
    print(f"without {path}: {text}\n")

# %% [markdown]
# Should there not be a third one, at the end? In the next round the warps write new totals, and
# warp 0 new sums, where others may still read the old ones. It looks so, but `verify` does not ask
# for it. Totals are read by warp 0 alone, before the second barrier; and what it writes next, it
# writes after the first barrier of the next round, which all others reach only when they have read.
#
# ## To try
#
# - The number of warps need not divide anything: build `scan_256n_block` with `warps=3`. How does a
#   warp load a tile behind the end of the segment?
# - `combine="add"` combines the warps by rounded additions instead of products. Find the steps that
#   changed, and sum 4096 times the number 100 both ways. Which is right, and why?
# - Several blocks have no barrier in common. [The next tutorial](08_the_grid.md) is about them.

# %%
gathered = [step for step in program.steps if isinstance(step, Copy)]
assert gathered[-1].dst.buffer.name == "prtls"
assert np.isnan(seen["14"]).all()
assert np.array_equal(seen["15"], np.tile(partials, (4, 1)))
assert np.isnan(tcusim.run(broken, {"in": x}, check=False)["out"]).all()
assert steps_by_warps == {1: 18, 2: 10, 4: 6, 8: 4, 16: 3}
assert len(complaints) == 2
assert all("synced_shared" in text for text in complaints.values())
