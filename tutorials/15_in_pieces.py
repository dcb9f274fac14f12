# %% [markdown]
# # 15. Sums in pieces
#
# An array of 2³¹ numbers fits neither into most memories nor onto one GPU. So it is summed in
# pieces, and then the bits depend on how it was cut: two machines and three machines disagree. In
# this lesson you cut sums and scans such that they do not.
#
# You need [lesson 8](08_the_grid.md): chunks, carries, and whose bits they are. Everything runs
# with NumPy; at the end are the lines for dask and for several GPUs.

# %%
import numpy as np

import tcusim
import tcusim.lessons
from tcusim.line_charts import Line, Plot

rng = np.random.default_rng(15)
x = rng.standard_normal(300_000).astype(np.float16)
whole = tcusim.sum(x, dtype=np.float32)

# %% [markdown]
# ## The usual way: add up the sums of pieces
#
# Give each of n machines an equal share, let it sum that share, and add the results. We do so for 1
# to 12 machines, and count how many different results there are:


# %%
def added_up(machines):
    """Return the sum of the sums of equal pieces."""
    total = np.float32(0)
    for piece in np.array_split(x, machines):
        total += tcusim.sum(piece, dtype=np.float32)
    return total


machines = range(1, 13)
results = {n: added_up(n) for n in machines}
print(f"1 to 12 machines return {len(set(results.values()))} different sums of one array,")
print(f"from {min(results.values())} to {max(results.values())}; one call returns {whole}.")

# %% tags=["picture"]
spacing = float(np.spacing(whole))
Plot(
    "One array, summed by n machines",
    (
        Line(
            "the usual way",
            tuple((float(n), abs(float(results[n] - whole)) / spacing) for n in machines),
        ),
        Line("along the grid", tuple((float(n), 0.0) for n in machines)),
    ),
    x="machines",
    y="units in the last place away from one machine",
    linear=True,
)

# %% [markdown]
# Each sum is as good as the others. But a test that compares two runs on different numbers of
# machines needs a tolerance, and a model that is trained on 8 GPUs is not the one that is trained
# on 16.
#
# ## Where a sum may be cut
#
# A sum is a tree. Its leaves are *rows* of 32 elements, each summed by two mma; above them, two
# neighbours are added, then two of these sums, and so on ([the
# grid](../bits.md#the-grid)). Cut the array where a subtree ends, and the sum of the subtree is a
# node of the tree: it is the same wherever it is computed. `tcusim.cut_size` says how many elements
# such a subtree has.

# %%
cut = tcusim.cut_size("float16")
print(f"A sum may be cut at each multiple of {cut:,} elements: {cut // 32} rows of 32.")

# %% [markdown]
# A row's two mma, bit by bit, for the first row of the array. The second begins with the sum of the
# first:

# %% tags=["picture"]
tcusim.explain(x[:32], np.ones(32, np.float16), arch="hopper")

# %% [markdown]
# `tcusim.partials` returns the sums of the subtrees of a piece, and `tcusim.combine` adds those of
# all pieces along the rest of the tree. So a machine sends one float32 for 8,192 elements:


# %%
def along_the_grid(machines):
    """Return the sum of an array in pieces, one on each machine."""
    cuts = [round(x.size * n / machines / cut) * cut for n in range(1, machines)]
    pieces = [piece for piece in np.split(x, cuts) if piece.size]
    sent = [tcusim.partials(piece) for piece in pieces]
    return tcusim.combine(np.concatenate(sent))


found = {along_the_grid(n).tobytes() for n in machines}
print(f"Along the grid, 1 to 12 machines return {len(found)} sum.")
print("It is that of one call:", found == {whole.tobytes()})

# %% [markdown]
# ## Where a scan may be cut
#
# A scan needs the sum before each piece. On the grid that is a running sum over *groups* of
# 4,194,304 elements. So a scan is cut at groups: each machine sends the sums of its groups,
# `tcusim.carries` adds them one after the other, and each machine scans its piece from its carry.

# %%
y = rng.standard_normal(4_300_000).astype(np.float16)
group = tcusim.cut_size("float16", "cumsum")
pieces = np.split(y, [group])
sums = [tcusim.partials(piece, operation="cumsum") for piece in pieces]
before = tcusim.carries(np.concatenate(sums))
print(f"A group has {group:,} elements. The sums before them: {before}")


# %%
def scan(piece, carry):
    return tcusim.cumsum(piece, dtype=np.float32, initial=carry)


in_one = tcusim.cumsum(y, dtype=np.float32)
scanned = [scan(piece, carry) for piece, carry in zip(pieces, before, strict=True)]
scan_is_whole = np.concatenate(scanned).tobytes() == in_one.tobytes()
print("The scan in pieces has the bits of one call:", scan_is_whole)

# %% [markdown]
# Cut anywhere else, and the values are as good, but not the same bits:

# %%
first, rest = np.split(y[:300_000], [100_000])
carry = tcusim.sum(first, dtype=np.float32)
differ = np.count_nonzero(scan(rest, carry) != in_one[100_000:300_000])
print(f"Cut at 100,000, {differ:,} of {rest.size:,} prefix sums have other bits.")

# %% [markdown]
# ## With dask, and on several GPUs
#
# You need not do this by hand. `tcusim.dask` cuts dask arrays so, and `tcusim.torch.distributed`
# does it for tensors on the ranks of a process group; [In pieces](../dask.md) has both.
#
# ## Exercise 1: what is sent?
#
# `machines` machines share an array of `length` float16 numbers. How many bytes of partial sums are
# sent in all, if each machine's are sent to every other machine? Pieces are whole cuts.
#
# <details><summary>Hint</summary>
# One float32 for each cut of 8,192 elements, the last of which may be shorter, to machines - 1
# others.
# </details>


# %% tags=["exercise"]
def bytes_sent(length, machines):
    """Return the number of bytes."""


# %% tags=["solution"]
def bytes_sent(length, machines):
    return -(-length // 8192) * 4 * (machines - 1)


# %% tags=["check"]
tcusim.lessons.check(
    "15.1 What is sent?",
    tcusim.lessons.equal(
        [bytes_sent(8192, 2), bytes_sent(8193, 3), bytes_sent(2**31, 8)], [4, 16, 7_340_032]
    ),
    "2^31 elements are 262,144 cuts: 1 MiB of sums, for each of 7 other machines",
)

# %% [markdown]
# ## Exercise 2: the rest of the tree
#
# Write `combine` yourself: add neighbours, then neighbours of the result, until one number is left.
# One that has no neighbour moves up as it is. All additions are of float32.
#
# <details><summary>Hint</summary>
# <code>values[0::2]</code> and <code>values[1::2]</code> are the left and the right neighbours.
# With an odd number of values the last has no right one.
# </details>


# %% tags=["exercise"]
def combined(values):
    """Return the sum of a float32 array, along a tree."""


# %% tags=["solution"]
def combined(values):
    while values.size > 1:
        even = values.size // 2 * 2
        values = np.append(values[0:even:2] + values[1:even:2], values[even:])
    return values[0]


# %% tags=["check"]
given = tcusim.partials(x)
answer = combined(given)
tcusim.lessons.check(
    "15.2 The rest of the tree",
    None if answer is None else np.float32(answer).tobytes() == whole.tobytes(),
    "with 37 partial sums the levels have 19, 10, 5, 3, 2 and 1 values",
)

# %% [markdown]
# ## Exercise 3: from the end
#
# A scan in reverse needs the sum *after* each group. Given the sums of the groups, return it for
# each of them, added one after the other from the end, in float32.
#
# <details><summary>Hint</summary> For three groups with the sums a, b, c it is (c + b), c and 0.
# Write a loop from the end, or <code>np.cumsum</code> of the array turned round. </details>


# %% tags=["exercise"]
def following(sums):
    """Return the sum after each group."""


# %% tags=["solution"]
def following(sums):
    total, found = np.float32(0), []
    for one in sums[::-1]:
        found.append(total)
        total = total + one
    return np.array(found[::-1], np.float32)


# %% tags=["check"]
of_groups = np.array([3.5, -1.25, 7.0, 0.5], np.float32)
tcusim.lessons.check(
    "15.3 From the end",
    tcusim.lessons.equal(following(of_groups), tcusim.carries(of_groups, reverse=True)),
    "the last group is followed by 0, and the one before it by the last group's sum",
)

# %% [markdown]
# ## In short
#
# - The sum of sums depends on how an array was cut; a sum along one tree does not.
# - A sum may be cut where a subtree ends, a scan where a group ends.
# - Machines exchange partial sums, and each adds them in the same order.
#
# This was the last lesson. [Questions](../questions.md) has short answers to common questions.

# %%
assert len(set(results.values())) > 1
assert found == {whole.tobytes()}
assert scan_is_whole
assert differ > 0
