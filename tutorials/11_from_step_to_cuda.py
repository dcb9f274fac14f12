# %% [markdown]
# # 11. From step to CUDA
#
# The simulator is one reader of a step program. The emitter is another: it writes the program down
# as a CUDA kernel, one statement or loop for each step, for the tensor cores of a real GPU. This
# tutorial reads such a kernel line by line, runs that very text on the CPU, and breaks it.
#
# No GPU is needed. The last part wants a C++ compiler; without one it says so, and is left out.

# %%
import dataclasses

import numpy as np

import tcusim
from tcusim.backends import why_unavailable
from tcusim_cuda import emit

# %% [markdown]
# ## The program
#
# It is the reduction of [the second tutorial](03_reduction_16.md): 16 sums of 16 numbers in one
# mma.

# %%
program = tcusim.build("reduction_16")
print(tcusim.listing(program))

# %% [markdown]
# ## The kernel
#
# `emit` returns the text, and how to launch it. Each line of the text knows the step that it came
# from (`paths`), so we can print the kernel part by part. First what precedes the steps:

# %%
kernel = emit(program)
print(f"{kernel.threads} threads a block; arguments: {', '.join(kernel.arguments)}")

lines = kernel.text.splitlines()
start = lines.index("{")
print("\n".join(lines[:start]))

# %% [markdown]
# `mma.h` is CUDA's header of WMMA, its interface to tensor cores. `tcusim.cuh` is ours: conversions
# and additions that round once, vectors of elements that a lane moves together, and fragments for
# instructions that WMMA lacks. Inputs, outputs and scalars of the program are the arguments, in
# this order.
#
# ## Before the first step

# %%
first_step = kernel.paths.index("1")
print("\n".join(lines[start:first_step]))

# %% [markdown]
# Line by line:
#
# - A warp is 32 *lanes*. Tensor cores are used by a whole warp at once, so what a program calls a
#   step, 32 threads do together. `block` is the program's own: each block takes 256 elements.
# - `s_V` is the scratch of the listing. Each warp has its own part, and this block is one warp.
# - The fragments of the listing become `wmma::fragment`s: a role, the tile M-N-K, an element type,
#   and for operands a layout. Their elements are spread over the registers of the 32 lanes in a way
#   that CUDA does not document, and nothing here depends on it.
# - P is neither all zeros nor all ones, which `fill_fragment` could make. So the block first writes
#   it to shared memory, as the table `c_P`, and `__syncthreads()` waits for all its threads.
#
# ## The steps
#
# Each statement stands below the line of the listing that it came from.


# %%
def text_of(*steps: str) -> str:
    """Return the lines of the kernel that came from these steps."""
    chosen = [text for text, path in zip(lines, kernel.paths, strict=True) if path in steps]
    return "\n".join(text for text in chosen if text)


print(text_of("1", "2", "3", "4"))

# %% [markdown]
# - **1, 2** P comes from its table, 16 elements from one row to the next. V is a uniform constant,
#   and needs no memory.
# - **3** *LoadTile* is `load_matrix_sync`. The address is the program's index, printed as C.
#   "Column major" was settled when the fragment A was declared; 16 is its leading dimension.
# - **4** The mma, on the tensor cores. Its accumulator is the same fragment V, in and out.

# %%
print(text_of("5", "6", "7"))

# %% [markdown]
# - **5** The sums are in row 0 of V. Which lane has them? WMMA does not say, so the whole tile is
#   stored to shared memory, where each element has a known place.
# - **6** All lanes wait until all lanes have stored.
# - **7** Lanes 0 to 15 each copy one sum to the output: the copy's rectangle, 1 x 16, is dealt out
#   to lanes so that neighbours write neighbouring elements. A larger one whose elements lie side by
#   side is dealt out in vectors of up to 16 bytes, which `tcu::load` and `tcu::store` move at once.
#
# That is all the emitter does. It knows nothing of arithmetic: rounding is the GPU's business here,
# and the simulator's business is to predict it.
#
# ## Run the very text
#
# Whether the text means what the program means can be found out without a GPU. The backend `host`
# compiles it with a C++ compiler, against headers that stand in for CUDA's: 32 lanes run in turn,
# in an order drawn at random, and barriers make them wait for each other. `mma_sync` follows the
# arithmetic of any GPU that the simulator knows.

# %%
missing = why_unavailable("host")
if missing is not None:
    print(f"SKIPPED, nothing is run below: {missing}")

rng = np.random.default_rng(4)
x = rng.standard_normal(1024).astype(np.float16)
same = {}
for arch in ("volta", "hopper"):
    simulated = tcusim.run(program, {"in": x}, arch=arch)["out"]
    if missing is None:
        ran = tcusim.run(program, {"in": x}, arch=arch, backend="host")["out"]
        same[arch] = np.array_equal(ran.view(np.uint32), simulated.view(np.uint32))
        print(f"{arch}: {ran.size} sums, all bits equal: {same[arch]}")
assert all(same.values())

# %% [markdown]
# Not nearly equal: every bit. With `backend="cupy"` or `backend="pycuda"` the same line runs on an
# NVIDIA GPU, and `arch` is then the GPU's own; [Agreement](../agreement.md) tells what came of it.
#
# ## Take out a barrier
#
# The [verifier](../steps.md) refuses a program without its `sync`, so let us cheat: we delete the
# barrier from the text. (Into a comment, so that line numbers stay.)

# %%
barrier = "__syncwarp();"
broken = dataclasses.replace(kernel, text=kernel.text.replace(barrier, f"// {barrier}"))
print(broken.text.count(f"// {barrier}"), "barrier taken out")

# %% [markdown]
# On a GPU this would often work: lanes of a warp tend to run together, and the store is over before
# the copy begins. It is luck, though, and CUDA promises nothing. The host backend is less kind.
# Shared memory begins as NaN, and each seed runs the lanes in another order:

# %%
right = tcusim.run(program, {"in": x})["out"]
wrong = {}
if missing is None:
    from tcusim_host import run_kernel

    for seed in range(3):
        whole = run_kernel(kernel, {"in": x}, seed=seed)["out"]
        assert np.array_equal(whole, right)
        out = run_kernel(broken, {"in": x}, seed=seed)["out"]
        wrong[seed] = int((out != right).sum())
        print(
            f"seed {seed}: {wrong[seed]} of {out.size} sums are wrong; NaN: {np.isnan(out).sum()}"
        )
else:
    print("SKIPPED: there is no C++ compiler")

# %% [markdown]
# Lanes that came early copied what others had not stored yet. With the barrier in its place, the
# sums are right in any order.
#
# ## Other tiles, other kernels
#
# The three shapes of WMMA for float16, and the mma.sync tile m16n8k16, which WMMA lacks: one
# algorithm, four kernels.

# %%
y = rng.standard_normal(4096).astype(np.float16)
equal = {}
for shape in ("16x16x16", "32x8x16", "8x32x16", "m16n8k16"):
    scan = tcusim.build("scan_k", tile=shape)
    text = emit(scan).text
    call = next(line.strip() for line in text.splitlines() if "mma_sync" in line)
    print(f"{shape:>8}  {call}")
    if missing is None:
        ran = tcusim.run(scan, {"in": y}, backend="host")["out"]
        simulated = tcusim.run(scan, {"in": y})["out"]
        equal[shape] = np.array_equal(ran.view(np.uint32), simulated.view(np.uint32))

print("bits equal:", equal or "SKIPPED, there is no C++ compiler")

# %% [markdown]
# ## To try
#
# - `emit(tcusim.build("reduction_16", masked=True))` takes inputs of any length. Where did its
#   `load_matrix_sync` of the input go?
# - Put the barrier of `scan_256` back one by one: `text.replace(barrier, "", 1)` takes out the
#   first only. Which of them matter, and on which seeds?
# - `run_kernel(kernel, {"in": x}, debug=True)` says where the text lies; gdb can then stop in it.
#   [Running on a GPU](../gpu.md) shows how.
#
# Next: [blocks and barriers](07_blocks_and_barriers.md).

# %%
if missing is None:
    assert all(equal.values())
    assert any(wrong.values())
