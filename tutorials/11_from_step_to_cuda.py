# %% [markdown]
# # 11. From step to CUDA
#
# The simulator is one reader of a step program. The *emitter* is another: it writes the program
# down as a CUDA kernel, one statement or loop for each step, for the tensor cores of a real GPU. In
# this lesson we read such a kernel line by line, run that very text on the CPU, break it, step
# through it in a debugger, and look at the machine code.
#
# No GPU is needed. Running the text wants a C++ compiler (g++); without one the lesson says so and
# leaves these parts out. [CUDA in ten minutes](00_cuda_in_ten_minutes.md) explains the words.

# %%
import dataclasses

import numpy as np

import tcusim
import tcusim.lessons
from tcusim.backends import find_emitter, why_unavailable
from tcusim_cuda import emit

# %% [markdown]
# ## The program
#
# It is the reduction of [lesson 3](03_reduction_16.md): 16 sums of 16 numbers in one mma.

# %%
program = tcusim.build("reduction_16")
print("The steps of reduction_16:")
print(tcusim.listing(program).split("\n\n")[1])

# %% [markdown]
# Each line of the kernel below is one of these steps:

# %% tags=["picture"]
tcusim.trace(program, {"in": np.arange(256, dtype=np.float16) % 7})

# %% [markdown]
# ## The kernel, part by part
#
# <!-- figure: step_to_cuda -->
#
# `emit` returns the text, and how to launch it. Each line of the text knows the step that it came
# from (`paths`), so we can print the kernel part by part. First the lines before the function's
# body:

# %%
kernel = emit(program)
lines = kernel.text.splitlines()
body = lines.index("{")
print("The kernel, up to the function's body:")
print("\n".join(lines[:body]))
print(f"\nIt is launched with {kernel.threads} threads a block.")
print(f"Its arguments are {', '.join(kernel.arguments)}.")

# %% [markdown]
# - `mma.h` is CUDA's header of WMMA, the C++ interface to tensor cores. `tcusim.cuh` is ours:
#   conversions and additions that round once, vectors of elements that a lane moves together, and
#   fragments for instructions that WMMA lacks.
# - `extern "C"` keeps the name as it is written, so that the kernel can be found in the machine
#   code.
# - `__launch_bounds__(32)` promises that a block never has more than 32 threads. The compiler may
#   then give each thread more registers.
# - The arguments are the program's inputs, outputs and scalars, in this order. `half` is float16.
# - `__restrict__` promises that `in` and `out` do not overlap, so the compiler may load early. When
#   tcusim writes over its input, it compiles the kernel without this word.

# %%
first_step = kernel.paths.index("1")
print("Before the first step:")
print("\n".join(lines[body:first_step]))

# %% [markdown]
# - Tensor cores are used by a whole warp at once. So 32 lanes do one step of the program together;
#   `lane` and `warp` are computed from the number of the thread.
# - `__shared__` arrays are the scratch of the listing. Each warp has its own part of `s_V`, and
#   this block is one warp. `__align__(32)` puts them at a multiple of 32 bytes, which the loads and
#   stores of WMMA demand.
# - The fragments of the listing become `wmma::fragment`s: a role, the tile M, N, K, an element
#   type, and for operands the order in memory. Their elements are spread over the registers of 32
#   lanes. CUDA does not document the map, and no step depends on it.
# - P is neither all zeros nor all ones, which `fill_fragment` could make. So the block first writes
#   it to shared memory, as the table `c_P`, and `__syncthreads()` waits for all its threads.
#
# ## The steps
#
# Each statement stands below the line of the listing that it came from:


# %%
def text_of(*steps: str) -> str:
    """Return the lines of the kernel that came from these steps."""
    chosen = [text for text, path in zip(lines, kernel.paths, strict=True) if path in steps]
    return "\n".join(text for text in chosen if text)


print("Steps 1 to 4:")
print(text_of("1", "2", "3", "4"))

# %% [markdown]
# - **1, 2** P comes from its table, 16 elements from one row to the next. V is uniform, and needs
#   no memory.
# - **3** *LoadTile* is `load_matrix_sync`. The address is the program's index, printed as C. That
#   the tile is column-major was settled when A was declared; 16 is its leading dimension, the
#   distance from one column to the next.
# - **4** The mma, on the tensor cores. Its accumulator is the same fragment V, in and out.

# %%
print("Steps 5 to 7:")
print(text_of("5", "6", "7"))

# %% [markdown]
# - **5** The sums are in row 0 of V. Which lane has them? WMMA does not say, so the whole tile is
#   stored to shared memory, where each element has a known place.
# - **6** All lanes wait until all lanes have stored.
# - **7** Lanes 0 to 15 copy one sum each. `tcu::move` is a template of `tcusim.cuh`: it deals out
#   the rectangle so that neighbouring lanes write neighbouring elements, and calls the first lambda
#   to read, the second to write. A larger rectangle is dealt out in vectors of up to 16 bytes.
#
# That is all the emitter does. It contains no arithmetic: rounding is the GPU's business, and to
# predict it is the simulator's.
#
# ## Run the very text on the CPU
#
# Does the text have the meaning of the program? A test of that needs no GPU. The backend `host`
# compiles it with a C++ compiler, against headers that stand in for CUDA's. Lanes run in turn, in
# an order drawn at random, and barriers make them wait for each other. `mma_sync` follows the
# arithmetic of any GPU that the simulator knows.

# %%
missing = why_unavailable("host")
if missing is not None:
    print(f"SKIPPED, no kernel below is run on the CPU: {missing}")

rng = np.random.default_rng(4)
x = rng.standard_normal(1024).astype(np.float16)
same = {}
for arch in ("volta", "hopper"):
    simulated = tcusim.run(program, {"in": x}, arch=arch)["out"]
    if missing is None:
        ran = tcusim.run(program, {"in": x}, arch=arch, backend="host")["out"]
        same[arch] = np.array_equal(ran.view(np.uint32), simulated.view(np.uint32))
        print(f"As {arch}: {ran.size} sums, all bits are the simulator's: {same[arch]}.")

# %% [markdown]
# Not nearly equal: every bit.
#
# ## Take out a barrier
#
# `verify` refuses a program without its `sync`, so let us cheat and delete the barrier from the
# *text*:

# %%
barrier = "__syncwarp();"
broken = dataclasses.replace(kernel, text=kernel.text.replace(barrier, f"// {barrier}"))
print(f"{broken.text.count(f'// {barrier}')} barrier is commented out.")

# %% [markdown]
# On a GPU this would often work. Lanes of a warp tend to run together, and the store is over before
# the copy begins. But CUDA does not promise it, so that is luck. The host backend is less kind:
# shared memory begins as NaN, and each seed runs the lanes in another order:

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
            f"Seed {seed}: with the barrier all sums are right, without it {wrong[seed]} of "
            f"{out.size} are wrong ({np.isnan(out).sum()} are NaN)."
        )

# %% [markdown]
# Lanes that came early copied elements that others had not stored yet.
#
# ## Step through the kernel in a debugger
#
# With `debug=True` the text is compiled for gdb, and a breakpoint stops each lane in turn. This
# session is at the copy of step 7. `lane`, fragments and shared memory are variables; a lane's part
# of a fragment is its array `x`:
#
# ```text
# $ cat sums.py
# import numpy as np, tcusim
# program = tcusim.build("reduction_16")
# tcusim.run(program, {"in": np.ones(256, np.float16)}, backend="host", debug=True)
#
# $ gdb --args python sums.py
# (gdb) set breakpoint pending on
# (gdb) break kernel.cu:43
# (gdb) run
# Thread 1 "python" hit Breakpoint 1, reduction_16... (in=0x..., out=0x..., length=256)
# 43          tcu::move<1, 16>(lane,
# (gdb) print lane
# $1 = 6
# (gdb) print s_V.begin[16]
# $2 = 16
# (gdb) print V
# $3 = {static rows = 16, static cols = 16, static num_elements = 8, x = {16, 0, 0, 0, 0, 0, 0, 0}}
# ```
#
# The first lane to arrive is lane 6: `seed` draws the order.
#
# ## The machine code
#
# NVIDIA's run-time compiler, NVRTC, needs no GPU either (`pip install ".[compile]"`). `tcusim emit
# --compile` translates the kernel for any GPU and prints its resources:
#
# ```console
# $ tcusim emit reduction_16 --arch sm_70 --compile
# kernel         reduction_16, 32 threads a block
# compiled for   sm_70 by NVRTC 12.9
# registers      34 of each thread
# shared memory  1,536 bytes of a block
# ...
# tensor core    16 HMMA.884
# of each mma    16 (1 mma, where loops are unrolled)
# $ tcusim emit reduction_16 --arch sm_90 --compile
# ...
# registers      23 of each thread
# ...
# tensor core    2 HMMA
# of each mma    2 (1 mma, where loops are unrolled)
# ```
#
# So one `mma_sync` of 16x16x16 is 16 instructions on a V100 (sm_70) and two on an H100 or H200
# (sm_90). A Volta instruction takes 4 of the 16 terms of a result and a Hopper one takes all 16,
# which are their step lengths L of [lesson 2](02_the_bits.md).
#
# ## Other tiles, other instructions
#
# The emitter asks which instruction multiplies a tile. The three WMMA shapes for float16, and the
# `mma.sync` tile m16n8k16, which WMMA lacks:

# %%
emitter = find_emitter()
assert emitter is not None
y = rng.standard_normal(2048).astype(np.float16)
equal = {}
for shape in ("16x16x16", "32x8x16", "8x32x16", "m16n8k16"):
    scan = tcusim.build("scan_k", tile=shape)
    line = next(text.strip() for text in emit(scan).text.splitlines() if "mma_sync" in text)
    result = ""
    if missing is None:
        ran = tcusim.run(scan, {"in": y}, backend="host")["out"]
        equal[shape] = np.array_equal(
            ran.view(np.uint32), tcusim.run(scan, {"in": y})["out"].view(np.uint32)
        )
        result = f"; on the CPU all bits are right: {equal[shape]}"
    print(f"{shape:>8}: {line} is {emitter.instruction(scan)}{result}")

# %% [markdown]
# ## On your GPU
#
# These cells need an NVIDIA GPU of compute capability 7.0 (V100) or newer. `backend="cupy"` takes
# CuPy's arrays and works on CuPy's stream:
#
# ```py title="needs a GPU"
# import cupy
#
# x = cupy.random.random(2**20, dtype=cupy.float32).astype(cupy.float16)
# there = tcusim.run(program, {"in": x}, backend="cupy")["out"]  # nothing is copied
# here = tcusim.run(program, {"in": x.get()}, arch="h200")["out"]  # the simulator
# assert (there.get().view("u4") == here.view("u4")).all()
# ```
#
# Name the GPU that you have as `arch`. PyCUDA's arrays are launched by PyCUDA:
#
# ```py title="needs a GPU"
# import pycuda.autoprimaryctx
# import pycuda.gpuarray as gpuarray
#
# x = gpuarray.to_gpu(np.random.random(2**20).astype(np.float16))
# out = tcusim.run(program, {"in": x}, backend="pycuda")["out"]  # a GPUArray
# ```
#
# `tcusim agree --backend cupy` compares all programs with the simulator, bit by bit. The page
# [Agreement](../agreement.md) has the results on an H200.
#
# ## Exercise 1: when may a tile be loaded directly?
#
# Built with `masked=True`, `reduction_16` takes an array of any length. A block that lies inside
# the array whole loads its tile with `load_matrix_sync`; another copies it to shared memory first,
# element by element, with zeros beyond the end. Print `emit(tcusim.build("reduction_16",
# masked=True)).text`, find the condition, and write it in Python.
#
# <details><summary>Hint</summary>
# Step 3 is the <code>if</code>. A block takes 256 elements; it asks for the last of them.
# </details>


# %% tags=["exercise"]
def loads_directly(block: int, length: int) -> bool | None:
    """Return whether a block loads its tile straight from the input."""


# %% tags=["solution"]
def loads_directly(block: int, length: int) -> bool | None:
    return 256 * block + 255 < length


# %% tags=["check"]
tcusim.lessons.check(
    "11.1 When may a tile be loaded directly",
    tcusim.lessons.equal(
        [loads_directly(*case) for case in ((0, 1000), (2, 1000), (3, 1000), (3, 1024))],
        [True, True, False, True],
    ),
    "of 1,000 elements, blocks 0 to 2 are whole and block 3 is not; of 1,024 all four are",
)

# %% [markdown]
# ## Exercise 2: who copies what?
#
# A copy of a 16x16 tile of float16 that lies column by column, is dealt out in vectors of 8
# elements, one for each of the 32 lanes. Lane e takes the e-th vector in memory. Which element
# (row, column) of the tile is the first one of that vector?
#
# <details><summary>Hint</summary>
# A column has 16 elements, that is two vectors. Exercise 1's text has the answer, in step 3.2.
# </details>


# %% tags=["exercise"]
def first_element(lane: int) -> tuple[int, int] | None:
    """Return the row and the column."""


# %% tags=["solution"]
def first_element(lane: int) -> tuple[int, int] | None:
    return 8 * (lane % 2), lane // 2


# %% tags=["check"]
tcusim.lessons.check(
    "11.2 Who copies what",
    tcusim.lessons.equal(
        [first_element(lane) for lane in range(32)],
        [(8 * half, col) for col in range(16) for half in range(2)],
    ),
    "lane 0 begins at (0, 0), lane 1 at (8, 0), lane 2 at (0, 1)",
)

# %% [markdown]
# ## Exercise 3: which barriers matter?
#
# `scan_256` has several barriers. Write a function that comments out one of them in a kernel's
# text, so that they can be tried one by one.
#
# <details><summary>Hint</summary>
# <code>text.split("__syncwarp();")</code> gives the pieces between the barriers. Join them again,
# with <code>// __syncwarp();</code> at one of the joints.
# </details>


# %% tags=["exercise"]
def without_barrier(text: str, number: int) -> str | None:
    """Return the text with the `number`-th `__syncwarp();`, counted from 0, commented out."""


# %% tags=["solution"]
def without_barrier(text: str, number: int) -> str | None:
    pieces = text.split("__syncwarp();")
    before, after = pieces[: number + 1], pieces[number + 1 :]
    return "// __syncwarp();".join(["__syncwarp();".join(before), "__syncwarp();".join(after)])


# %% tags=["check"]
scan = emit(tcusim.build("scan_256"))
barriers = scan.text.count("__syncwarp();")
texts = [without_barrier(scan.text, number) for number in range(barriers)]
tcusim.lessons.check(
    "11.3 Which barriers matter",
    texts[0]
    if texts[0] is None
    else len(set(texts)) == barriers
    and all(text.replace("// __sync", "__sync") == scan.text for text in texts),
    "each text must differ from the kernel in one barrier, which is a comment, and in nothing else",
)

# %% [markdown]
# Which of them matter, in three random orders of the lanes?

# %%
if missing is None and texts[0] is not None:
    expected = run_kernel(scan, {"in": x})["out"]
    for number, text in enumerate(texts):
        changed = dataclasses.replace(scan, text=text)
        outs = [run_kernel(changed, {"in": x}, seed=seed)["out"] for seed in range(3)]
        bad = sum(not np.array_equal(out, expected) for out in outs)
        print(f"Without barrier {number}, {bad} of 3 seeds are wrong.")

# %% [markdown]
# ## In short
#
# - A step is a statement or a loop of the kernel; addresses are the program's own.
# - The same text runs on the CPU, with any GPU's arithmetic, a random order of lanes and a
#   debugger.
# - `--compile` shows the machine code's tensor-core instructions without a GPU.
#
# Next: [using it](12_using_it.md).

# %%
assert all(same.values())
assert "load_matrix_sync" in text_of("3")
assert "mma_sync" in text_of("4")
if missing is None:
    assert all(equal.values())
    assert any(wrong.values())
