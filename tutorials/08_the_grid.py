# %% [markdown]
# # 8. The grid
#
# Blocks cannot wait for each other with a barrier: a GPU starts as many as fit, and the others when
# those are done. How do they scan one long array together? First with three launches, then with
# one, in which a block gets its predecessors' sums by *status words*. We count what each way reads
# and writes, and find out why the usual way to do it in one launch gives other bits on every run,
# and this one does not.

# %%
import dataclasses

import numpy as np

import tcusim
from tcusim.program.grammar import Await, Program, Publish, Step, When, walk
from tcusim.simulate.counts import Counts

# %% [markdown]
# ## Three launches
#
# Cut the array into chunks. One launch **reduces** each chunk to its sum. The next **scans** these
# sums, exclusively, so that entry c is the sum of all that precedes chunk c. The last **scans each
# chunk**, beginning with that entry, its *carry*.

# %%
chunk, chunks = 8192, 64
rng = np.random.default_rng(6)
x = rng.integers(-9, 10, chunk * chunks).astype(np.float16)
exact = np.cumsum(x, dtype=np.float64)

reduce = tcusim.build("reduction_256n", segment_size=chunk, combine="add")
scan_sums = tcusim.build("scan_simt", segment_size=chunks, source="f32", exclusive=True)
propagate = tcusim.build("scan_256n", segment_size=chunk, combine="add", carry=True)


def launch(counts: Counts, program: Program, **inputs: np.ndarray) -> np.ndarray:
    """Run a program on the simulator, and count what it does."""
    return tcusim.run(program, inputs, watch=counts)["out"]


three = Counts()
sums = launch(three, reduce, **{"in": x})
carry = launch(three, scan_sums, **{"in": sums})
out = launch(three, propagate, **{"in": x}, carry=carry)

print("sums of chunks  ", sums[:6], "...")
print("what precedes   ", carry[:6], "...")
print("the scan is right:", np.array_equal(out, exact))

# %% [markdown]
# The paper does it in another order: its first launch scans the chunks, and its third adds. That is
# right, too, but the scanned chunks are then written, read and written again, as float32. [The
# paper's listings](../listings.md#grid-scan) counts both.
#
# ## One launch
#
# Three launches read the array twice. To read it once, a block has to keep its elements while it
# waits for what precedes them. `scan_single_pass` does; here a block of 2 warps takes 8192
# elements, and 8 blocks are a *group*.

# %%
whole = tcusim.build("scan_single_pass", warps=2, columns=8)
one = Counts()
out = launch(one, whole, **{"in": x})
print("the scan is right:", np.array_equal(out, exact))

for name, counts in (("three launches", three), ("one launch", one)):
    read, written = counts.bytes_read / x.size, counts.bytes_written / x.size
    print(f"{name:>14}: {read:.2f} bytes read and {written:.2f} written an element")

# %% [markdown]
# Two bytes are one float16, and four one float32: each element is read once and written once. The
# status words are not counted. (The three launches read more than 2 + 2 bytes: a carry of 4 bytes
# is read into all 256 elements of an accumulator, which makes 1 byte an element here.)
#
# ## Status words
#
# A block *publishes* a value, once; a later block *awaits* it. These are the steps that do:

# %%
print(tcusim.listing(whole).split("\n\n")[0])
print()
for path, step in walk(whole.steps):
    if isinstance(step, Publish | Await):
        lines = tcusim.listing(whole).splitlines()
        print(next(text for text in lines if text.startswith(f"{path} ")))

# %% [markdown]
# Each block leaves its total in `sums_of_blocks`, and the last one of each group leaves the sum of
# everything so far in `sums_of_groups`. A block waits for the totals of the blocks of its group
# before it, and for what precedes the group. It adds up at most 8 values, whatever the length of
# the array.
#
# Blocks are numbered as they start, says the listing. A block awaits words of earlier blocks, and
# these have started before it; they need nothing from it. So nobody waits forever, however few
# blocks the GPU runs at a time.
#
# ## Why not look back?
#
# The usual way to scan in one launch is the *decoupled look-back*. A block walks back through its
# predecessors and adds up their totals, until it meets one that has finished, and whose prefix it
# can take. How far it must walk is a matter of timing. Let us draw the timing at random, with
# numbers that need rounding:

# %%
noise = rng.standard_normal(x.size).astype(np.float16)
totals = noise.reshape(chunks, chunk).sum(axis=1, dtype=np.float32)


def look_back(totals: np.ndarray, timing: np.random.Generator) -> np.ndarray:
    """Return what precedes each block, if each finds some earlier one finished."""
    prefix = np.zeros(totals.size + 1, np.float32)
    for block in range(totals.size):
        finished = timing.integers(0, block + 1)
        walked = np.float32(0)
        for total in totals[finished:block][::-1]:
            walked += total
        prefix[block + 1] = prefix[finished] + walked + totals[block]
    return prefix[:-1]


runs = np.array([look_back(totals, np.random.default_rng(seed)) for seed in range(100)])
last = np.unique(runs[:, -1])
print(f"what precedes the last block, in 100 runs: {last.size} values")
print(f"from {last[0]!s} to {last[-1]!s}")

# %% [markdown]
# Each is a correct sum, rounded in another order; float32 addition is not associative. With
# integers nobody would notice; with these numbers two runs of one program on one GPU may differ.
#
# ## A fixed order
#
# In `scan_single_pass` the order is part of the program. A block does not take what it happens to
# find. It waits for *these* totals and *that* sum, and adds them as a tree that is written down.
# So we can do it by hand, from the status words that the blocks have left, and get the same bits.


# %%
def tree(values: np.ndarray) -> np.float32:
    """Add 2**i values as a balanced tree: neighbours in pairs, again and again."""
    while values.size > 1:
        values = values[::2] + values[1::2]
    return values[0]


def by_groups(of_blocks: np.ndarray, of_groups: np.ndarray, columns: int) -> np.ndarray:
    """Return what precedes each block, as the blocks of `scan_single_pass` add up status words."""
    before = np.zeros(of_blocks.size, np.float32)
    for block in range(before.size):
        group, place = divmod(block, columns)
        earlier = np.zeros(columns, np.float32)
        earlier[:place] = of_blocks[block - place : block]
        before_group = of_groups[group] if group else np.float32(0)
        before[block] = tree(earlier) + before_group
    return before


for event in tcusim.interpret(whole, {"in": noise}):
    state = event.state
published = state.memory["sums_of_blocks"][:chunks], state.memory["sums_of_groups"]
out = state.outputs()["out"]

# The first result of a block is its first element, plus what precedes the block.
by_hand = noise[::chunk].astype(np.float32) + by_groups(*published, columns=8)
same = np.array_equal(out[::chunk].view(np.uint32), by_hand.view(np.uint32))
print(f"blocks of which the bits are as by hand: {same and chunks} of {chunks}")

# %% [markdown]
# Nothing in `by_groups` depends on time. That is what makes the simulator's bits the GPU's: with a
# look-back there would be no such thing as *the* bits of a program.
#
# The price is a wait. A block of a look-back goes on as soon as it has seen enough; here it needs
# the sum of the group before, always. Groups of another size are another order, with its own bits:

# %%
bits = {}
for columns in (8, 2, 32):
    program = tcusim.build("scan_single_pass", warps=2, columns=columns)
    bits[columns] = tcusim.run(program, {"in": noise})["out"]
    error = np.abs(bits[columns] - np.cumsum(noise, dtype=np.float64)).max()
    others = np.count_nonzero(bits[columns] != bits[8])
    print(
        f"groups of {columns:>2}: error {error:.1e}; {others} results are not those of groups of 8"
    )

# %% [markdown]
# So a group has 512 chunks of 8192 elements if nobody says otherwise. Then it does not matter how
# many of them a block takes: its chunks are added as if they were blocks. [A segment's bits are its
# own](../bits.md) tells of the whole order, which all programs keep that plans choose among.

# %%
results = set()
for warps in (4, 8, 16):  # blocks of one chunk, of one and of two
    program = tcusim.build(
        "scan_single_pass", masked=True, warps=warps, batches=4 if warps == 4 else 2
    )
    results.add(tcusim.run(program, {"in": noise})["out"].tobytes())
print(f"blocks of 4, 8 and 16 warps: {len(results)} set of bits")

# %% [markdown]
# ## Status words that nobody publishes
#
# What if a block waits for what no block publishes? A GPU would hang. Let us take out the steps
# that publish:


# %%
def without_publish(steps: tuple[Step, ...], status: str) -> tuple[Step, ...]:
    """Return the steps without those that publish to these status words."""
    kept = [
        step for step in steps if not (isinstance(step, Publish) and step.dst.buffer.name == status)
    ]
    return tuple(
        dataclasses.replace(step, body=without_publish(step.body, status))
        if isinstance(step, When)
        else step
        for step in kept
    )


silent = dataclasses.replace(whole, steps=without_publish(whole.steps, "sums_of_blocks"))
try:
    tcusim.run(silent, {"in": x})
    message = ""
except tcusim.VerifyError as error:
    message = str(error)
    print(message)

# %% [markdown]
# `verify` knows that without a run: it compares what the blocks of a small grid publish with what
# they await. Block 0 waits for nothing, so it is block 1 that fails.
#
# ## To try
#
# - `exclusive=True` is an option of `scan_single_pass`. Which step of the listing changes?
# - `tcusim.build("reduction_single_pass")` sums an array in one launch. Which block writes the
#   result, and what does it wait for?
# - Give `look_back` integer totals, and count the values again.

# %%
assert last.size > 1
assert same
assert len({result.tobytes() for result in bits.values()}) > 1
assert "waits for sums_of_blocks[0]" in message
assert len(results) == 1
assert one.bytes_read < 0.6 * three.bytes_read
