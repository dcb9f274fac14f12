# %% [markdown]
# # 8. The grid
#
# Blocks have no barrier in common: a GPU starts as many as fit, and the others when those are done.
# How do they scan one long array together? First in three launches, then in one, in which blocks
# pass sums on through *flags* in global memory. We count the bytes of both, and find out why the
# usual single-pass scan returns different bits from run to run, and this one never does.

# %%
import dataclasses

import numpy as np

import tcusim
import tcusim.lessons
from tcusim.program.grammar import Await, Publish, Step, When, walk
from tcusim.simulate.counts import Counts

# %% [markdown]
# ## Three launches
#
# Cut the array into chunks, here of 8,192 elements. The drawing has chunks of three, and on the
# right the one launch that comes later:
#
# <!-- figure: launches -->
#
# 1. **Reduce**: each block sums its chunk.
# 2. **Scan the sums**, exclusively: entry c becomes the sum of everything before chunk c. That is
#    the chunk's *carry*.
# 3. **Scan each chunk**, beginning with its carry.
#
# A launch ends when all its blocks have. So each launch sees everything that the one before has
# written, and no block ever waits.

# %%
chunk, chunks = 8192, 16
rng = np.random.default_rng(6)
x = rng.integers(-9, 10, chunk * chunks).astype(np.float16)
exact = np.cumsum(x, dtype=np.float64)

reduce = tcusim.build("reduction_256n", segment_size=chunk, combine="add")
# The sums are float32, which no product takes whole: rows of them are added without products.
middle = {"segment_size": chunks, "ab": "f32", "masked": True}
scan_sums = tcusim.build("scan_panel", exclusive=True, **middle)
scan_chunks = tcusim.build("scan_256n", segment_size=chunk, combine="add", carry=True)

three = Counts()
sums = tcusim.run(reduce, {"in": x}, watch=three)["out"]
carry = tcusim.run(scan_sums, {"in": sums}, watch=three)["out"]
out = tcusim.run(scan_chunks, {"in": x, "carry": carry}, watch=three)["out"]

print(f"The first sums of chunks are    {sums[:5]},")
print(f"so the sums before the chunks are {carry[:5]}.")
three_are_right = np.array_equal(out, exact)
print(f"All {x.size:,} prefix sums are right: {three_are_right}.")

# %% [markdown]
# The paper's order differs: its first launch scans the chunks, and its third adds the carries. That
# is right too, but the scanned chunks are then written, read and written again, as float32. [The
# paper's listings](../listings.md#grid-scan) counts both.
#
# ## One launch
#
# Three launches read the array twice. To read it once, a block must keep its elements while it
# waits for the sum before them. `scan_single_pass` does. Here a block has 2 warps and takes 8,192
# elements, and 8 blocks are a *group*:

# %%
single = tcusim.build("scan_single_pass", warps=2, columns=8)
one = Counts()
out = tcusim.run(single, {"in": x}, watch=one)["out"]
one_is_right = np.array_equal(out, exact)
print(f"All {x.size:,} prefix sums are right: {one_is_right}.")

for name, counts in (("three launches", three), ("one launch", one)):
    read, written = counts.bytes_read / x.size, counts.bytes_written / x.size
    print(f"{name:>14}: {read:.2f} bytes read and {written:.2f} written for each element")

# %% [markdown]
# Two bytes are one float16, and four are one float32. So each element is read once and its result
# is written once, which is the least that any scan can do. The flags are not counted: they stay in
# the second-level cache. (The three launches read more than 2 + 2 bytes, because each chunk of 32
# tiles reads its carry of 4 bytes into all 256 elements of an accumulator: 1,024 bytes for 8,192
# elements, an eighth of a byte each.)
#
# ## Status words: values that carry a flag
#
# Global memory is visible to all blocks, but a block that just reads it does not know whether the
# value is there yet. A **status word** is a value together with a flag that says so. A block
# *publishes* it, once, and a later block *awaits* it. These steps of the program do:

# %%
listing = tcusim.listing(single).splitlines()
print("The lines of scan_single_pass that name status words:")
print("\n".join(text.strip() for text in listing if "status " in text or "order " in text))
for path, step in walk(single.steps):
    if isinstance(step, Publish | Await):
        print(next(text for text in listing if text.startswith(f"{path} ")))

# %% [markdown]
# <!-- figure: status_words -->
#
# - Each block publishes its own sum in `sums_of_blocks`.
# - The last block of each group publishes the sum of everything so far in `sums_of_groups`.
# - A block awaits the sums of the blocks before it in its group, and the sum before the group. It
#   adds up at most 8 values, however long the array is.
#
# Step through warp 0 of block 1, from where the totals of its panels are there. At step 57.12 it
# publishes their sum: -157, the second of the sums above. At step 60.1 it awaits the sum of block
# 0, which is 110. The value is in `earlier` after the barrier that follows.

# %% tags=["picture"]
tcusim.trace(single, {"in": x}, blocks=1, first=58, last=98)

# %% [markdown]
# Can blocks wait for each other forever? Blocks are numbered in the order in which they *start*, as
# the listing says. A block awaits only blocks with lower numbers. They started before it, and need
# no value of it. So they always finish, even if few blocks fit on the GPU at a time.
#
# ## Look-back: why the usual way changes its bits
#
# The usual single-pass scan is the *decoupled look-back*. A block walks back through its
# predecessors and adds up their sums, until it meets one that has finished, whose prefix it can
# take whole. How far it must walk is a matter of timing. We draw the timing at random, and take
# numbers whose sums need rounding:

# %%
noise = rng.standard_normal(x.size).astype(np.float16)
totals = rng.standard_normal(64).astype(np.float32) * 100


def look_back(totals: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the prefix of each block, as one run of a look-back would find it."""
    prefix = np.zeros(totals.size + 1, np.float32)
    for block in range(totals.size):
        walked = np.float32(0)
        finished = rng.integers(0, block + 1)  # the nearest block before it that has finished
        for earlier in range(block - 1, finished - 1, -1):
            walked = totals[earlier] + walked
        prefix[block + 1] = prefix[finished] + walked + totals[block]
    return prefix[:-1]


runs = np.array([look_back(totals, np.random.default_rng(seed)) for seed in range(100)])
last = np.unique(runs[:, -1])
print(f"The prefix of the last block took {last.size} different values in 100 runs,")
print(f"from {last[0]!s} to {last[-1]!s}.")

# %% [markdown]
# Each is a correct sum, rounded in another order: float32 addition is not associative. With these
# numbers, two runs of one program on one GPU may differ.
#
# ## A fixed order: the same bits in every run
#
# In `scan_single_pass` the order is part of the program. A block does not take the values that it
# happens to find. It waits for *these* sums and *that* prefix, and adds them as a balanced tree
# that is written down. So we can do it by hand, from the status words that the blocks left, and get
# the same bits:


# %%
def tree(values: np.ndarray) -> np.float32:
    """Add 2**i values as a balanced tree: neighbours in pairs, again and again."""
    while values.size > 1:
        values = values[::2] + values[1::2]
    return values[0]


def before_each(of_blocks: np.ndarray, of_groups: np.ndarray, columns: int) -> np.ndarray:
    """Return the prefix of each block, added in the order of `scan_single_pass`."""
    before = np.zeros(of_blocks.size, np.float32)
    for block in range(before.size):
        group, place = divmod(block, columns)
        earlier = np.zeros(columns, np.float32)
        earlier[:place] = of_blocks[block - place : block]
        before[block] = tree(earlier) + (of_groups[group] if group else np.float32(0))
    return before


for event in tcusim.interpret(single, {"in": noise}):
    state = event.state
of_blocks, of_groups = state.memory["sums_of_blocks"][:chunks], state.memory["sums_of_groups"]
out = state.outputs()["out"]

# The first result of a block is its first element, plus the prefix of the block.
by_hand = noise[::chunk].astype(np.float32) + before_each(of_blocks, of_groups, columns=8)
same = by_hand.view(np.uint32) == out[::chunk].view(np.uint32)
print(f"By hand, {same.sum()} of {chunks} blocks begin with the program's very bits.")

# %% [markdown]
# `before_each` does not depend on time. That is why the simulator can say which bits a GPU returns:
# with a look-back there is no such thing as *the* bits of a program. And the order in which blocks
# run must not matter, so let us run them in other ones:

# %%
four = {"in": x[: 4 * chunk], "carry": carry[:4]}
orders = set()
for order in ("ascending", "descending", "shuffled"):
    orders.add(tcusim.run(scan_chunks, four, block_order=order)["out"].tobytes())
print(f"The blocks of the third launch in three orders: {len(orders)} set of bits.")

# %% [markdown]
# The price is a wait. A block of a look-back goes on as soon as it has seen enough; here it needs
# the sum of the group before, always. And groups of another size are another order of additions,
# with bits of its own:

# %%
bits = {}
for columns in (8, 4, 2):
    program = tcusim.build("scan_single_pass", warps=2, columns=columns)
    bits[columns] = out if columns == 8 else tcusim.run(program, {"in": noise})["out"]
    error = np.abs(bits[columns] - np.cumsum(noise, dtype=np.float64)).max()
    others = np.count_nonzero(bits[columns] != bits[8])
    print(f"groups of {columns}: error {error:.1e}, {others:>6,} results differ from groups of 8")

# %% [markdown]
# So tcusim fixes the group: 512 chunks of 8,192 elements, unless you say otherwise. Then the number
# of warps in a block does not matter, since a block's chunks are added as if they were blocks. [A
# segment's bits are its own](../bits.md) describes the whole order, which all programs keep that
# the array functions choose among.

# %%
sizes = set()
few = noise[: 4 * chunk]
for warps, batches, columns in ((4, 4, 8), (8, 2, 8), (16, 2, 4)):  # the last takes two chunks
    program = tcusim.build(
        "scan_single_pass", masked=True, warps=warps, batches=batches, columns=columns
    )
    sizes.add(tcusim.run(program, {"in": few})["out"].tobytes())
print(f"Blocks of 4, 8 and 16 warps return {len(sizes)} set of bits.")

# %% [markdown]
# ## A status word that no block publishes
#
# If a block awaits a value that no block publishes, a GPU hangs. We remove the steps that publish,
# and ask `verify`:


# %%
def silent(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Return the steps without those that publish the sums of blocks."""
    kept: list[Step] = []
    for step in steps:
        if isinstance(step, When):
            step = dataclasses.replace(step, body=silent(step.body))
        if not (isinstance(step, Publish) and step.dst.buffer.name == "sums_of_blocks"):
            kept.append(step)
    return tuple(kept)


try:
    tcusim.run(dataclasses.replace(single, steps=silent(single.steps)), {"in": x})
    message = "nothing"
except tcusim.VerifyError as error:
    message = str(error)
print(f"Without the steps that publish, verify says:\n{message}")

# %% [markdown]
# It needs no run: it compares the values that the blocks of a small grid publish with those that
# they await. Block 0 awaits none, so block 1 is the first to fail.
#
# ## Exercise 1: for whom does a block wait?
#
# Write which status words block number `block` awaits, if a group has `columns` blocks: the numbers
# of the blocks whose sums it needs, and the number of the entry of `sums_of_groups` that has what
# precedes its group, or 0 if nothing does.
#
# <details><summary>Hint</summary>
# <code>divmod(block, columns)</code> is the group, and the block's place in it. The first group has
# nothing before it.
# </details>


# %% tags=["exercise"]
def awaited(block: int, columns: int) -> tuple[list[int], int] | None:
    """Return the blocks, and the group's entry."""


# %% tags=["solution"]
def awaited(block: int, columns: int) -> tuple[list[int], int] | None:
    group, place = divmod(block, columns)
    return list(range(block - place, block)), group


# %% tags=["check"]
tcusim.lessons.check(
    "8.1 For whom does a block wait",
    tcusim.lessons.equal(
        [awaited(block, 8) for block in (0, 3, 8, 19)],
        [([], 0), ([0, 1, 2], 0), ([], 1), ([16, 17, 18], 2)],
    ),
    "block 3 awaits blocks 0, 1 and 2; block 19 is in group 2, which begins with block 16",
)

# %% [markdown]
# ## Exercise 2: when is look-back deterministic?
#
# The look-back above returned many values because its sums are rounded. Change `totals` so little
# that no value moves by more than 1/128, and so that every run returns the same bits.
#
# <details><summary>Hint</summary>
# Additions of multiples of 1/64 are exact in float32, as long as the sums stay below 2¹⁸. So the
# order does not matter.
# </details>


# %% tags=["exercise"]
def rounded(totals: np.ndarray) -> np.ndarray | None:
    """Return float32 totals that every order adds up to the same bits."""


# %% tags=["solution"]
def rounded(totals: np.ndarray) -> np.ndarray | None:
    return np.round(totals * np.float32(64)) / np.float32(64)


# %% tags=["check"]
near = rounded(totals)
tcusim.lessons.check(
    "8.2 When is look-back deterministic",
    near
    if near is None
    else np.abs(near - totals).max() <= 1 / 128
    and len({look_back(near, np.random.default_rng(seed)).tobytes() for seed in range(20)}) == 1,
    "some runs still differ, or a total moved too far: round each to the nearest multiple of 1/64",
)

# %% [markdown]
# ## Exercise 3: bytes
#
# How many bytes does a scan of `size` float16 numbers to float32 move, in one launch and in the
# three launches of this page? Count only elements and results, without sums and carries.
#
# <details><summary>Hint</summary>
# The launch that reduces reads everything, too.
# </details>


# %% tags=["exercise"]
def bytes_moved(size: int) -> tuple[int, int] | None:
    """Return the bytes of one launch, and of three."""


# %% tags=["solution"]
def bytes_moved(size: int) -> tuple[int, int] | None:
    return size * (2 + 4), size * (2 + 2 + 4)


# %% tags=["check"]
tcusim.lessons.check(
    "8.3 Bytes",
    tcusim.lessons.equal(bytes_moved(x.size), (one.bytes_read + one.bytes_written, 8 * x.size)),
    "a float16 has 2 bytes and a float32 4; three launches read the array twice",
)

# %% [markdown]
# ## In short
#
# - Launches are the barrier of the grid: each reads the results of the one before.
# - One launch moves the fewest bytes; its blocks pass sums on through status words.
# - If the program fixes the order of additions, timing cannot change the bits.
#
# Next: [other tiles](09_other_tiles.md).

# %%
assert sums[:2].tolist() == [110, -157]  # the text names them
assert three_are_right
assert one_is_right
assert last.size > 1
assert same.all()
assert len(orders) == 1
assert len({result.tobytes() for result in bits.values()}) > 1
assert "waits for sums_of_blocks[0]" in message
assert len(sizes) == 1
assert one.bytes_read < 0.6 * three.bytes_read
