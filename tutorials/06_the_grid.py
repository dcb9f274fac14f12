# ruff: noqa: D100
# %% [markdown]
# # 6. The grid
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
chunk, chunks = 1024, 64
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
# waits for what precedes them. `scan_single_pass` does; here a block of 2 warps takes 1024
# elements, and 8 blocks are a *group*.

# %%
whole = tcusim.build("scan_single_pass", warps=2, batches=1, columns=8)
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
# Block i leaves one value at place i + 1 of the status words: its total or, if it is the last of
# its group, the sum of everything so far. So all that a block waits for is in one place: first what
# precedes its group, then the totals of the blocks of its group before it. It adds up at most 8
# values, whatever the length of the array.
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
    """Add values as a balanced tree: the second half onto the first, again and again."""
    while values.size > 1:
        half = (values.size + 1) // 2
        low = values[:half].copy()
        low[: values.size - half] += values[half:]
        values = low
    return values[0]


def by_groups(status: np.ndarray, columns: int) -> np.ndarray:
    """Return what precedes each block, as the blocks of `scan_single_pass` add up status words."""
    before = np.zeros(status.size - 1, np.float32)
    for block in range(before.size):
        place = block % columns
        first = block - place
        of_group = np.zeros(columns - 1, np.float32)
        of_group[:place] = status[first + 1 : block + 1]
        before_group = status[first] if first else np.float32(0)
        before[block] = before_group + tree(of_group)
    return before


for event in tcusim.interpret(whole, {"in": noise}):
    state = event.state
published = state.memory["sums"][: chunks + 1]
out = state.outputs()["out"]

# The first result of a block is its first element, plus what precedes the block.
by_hand = noise[::chunk].astype(np.float32) + by_groups(published, columns=8)
same = np.array_equal(out[::chunk].view(np.uint32), by_hand.view(np.uint32))
print(f"blocks of which the bits are as by hand: {same and chunks} of {chunks}")

# %% [markdown]
# Nothing in `by_groups` depends on time. That is what makes the simulator's bits the GPU's: with a
# look-back there would be no such thing as *the* bits of a program.
#
# The price is a wait. A block of a look-back goes on as soon as it has seen enough; here it needs
# the sum of the group before, always. Another order is another program, with its own bits:

# %%
bits = {}
for columns in (2, 8, 32):
    program = tcusim.build("scan_single_pass", warps=2, batches=1, columns=columns)
    bits[columns] = tcusim.run(program, {"in": noise})["out"]
    error = np.abs(bits[columns] - np.cumsum(noise, dtype=np.float64)).max()
    print(f"groups of {columns:>2}: the last result is {bits[columns][-1]!s}, error {error:.1e}")

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


silent = dataclasses.replace(whole, steps=without_publish(whole.steps, "sums"))
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
assert len({result[-1].tobytes() for result in bits.values()}) > 1
assert "waits for sums[1]" in message
assert one.bytes_read < 0.6 * three.bytes_read
