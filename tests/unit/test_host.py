from __future__ import annotations

import ctypes
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from host_kernels import BY_HAND, HOST_ALONE, LENGTH, halves, kernel_of, same_bits, small_kernel
from tcusim.algorithms import build as build_program
from tcusim.backends import run
from tcusim.errors import InputError, Unsupported
from tcusim.machine import Fused, Rule, Values, as_values, format_of, mma_values, rule_for
from tcusim.machine.shapes import shape_of
from tcusim.program.grammar import (
    BLOCK,
    Assign,
    Bound,
    Buffer,
    BufferRole,
    Const,
    Extent,
    Frag,
    Index,
    Pattern,
    PatternKind,
    Program,
    Role,
    Scalar,
    Store,
    View,
    When,
)
from tcusim.simulate.interpreter import convert_values, run_numpy
from tcusim_cuda.emit import Emitter, emit
from tcusim_cuda.instructions import instruction_for
from tcusim_cuda.kernel import Kernel
from tcusim_host import BACKEND, KernelError, build, build_many, run_kernel
from tcusim_host.run import numerics_row

pytestmark = HOST_ALONE

SEEDS = range(6)


# --- Kernels ------------------------------------------------------------------------------------


@pytest.mark.parametrize("arch", ["volta", "turing", "ampere", "hopper", "blackwell", "ieee"])
def test_kernel_written_by_hand_gives_the_simulators_bits(arch: str) -> None:
    x = halves(256 * 5)
    expected = run_numpy(build_program("reduction_k"), {"in": x}, arch=arch)
    for seed in (0, 1):
        got = run_kernel(kernel_of(BY_HAND), {"in": x}, arch=arch, seed=seed)
        assert same_bits(got["out"], expected["out"])


def test_what_no_lane_writes_stays_poisoned() -> None:
    kernel = small_kernel("    if (lane > 2) out[32*block + lane] = in[32*block + lane];")
    out = run_kernel(kernel, {"in": np.ones(32, np.float32)})["out"]
    assert np.isnan(out[:3]).all()
    assert (out[3:] == 1).all()


def test_the_last_resort_for_switching_fibers_gives_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = halves(512)
    expected = run_kernel(kernel_of(BY_HAND), {"in": x})
    monkeypatch.setenv("CXX", "g++ -DTCUSIM_UCONTEXT")
    assert same_bits(run_kernel(kernel_of(BY_HAND), {"in": x})["out"], expected["out"])


def test_dynamic_shared_memory_is_a_pool_of_the_text() -> None:
    kernel = small_kernel(
        "    extern __shared__ __align__(128) unsigned char shared_pool[];\n"
        "    float* const s = reinterpret_cast<float*>(shared_pool + 64);\n"
        "    if (block == 0) s[lane] = in[lane];\n"
        "    __syncwarp();\n"
        "    out[32*block + lane] = s[31 - lane];"
    )
    kernel = replace(kernel, dynamic_shared_bytes=60_000)
    out = run_kernel(kernel, {"in": np.arange(64, dtype=np.float32)})["out"]
    assert (out[:32] == np.arange(31, -1, -1)).all()
    # The second block finds poison, not the values that the first one left.
    assert np.isnan(out[32:]).all()


# --- Bugs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("barrier", ["__syncthreads();", "__syncwarp();"])
def test_a_deleted_barrier_shows(barrier: str) -> None:
    x = halves(512)
    good = run_kernel(kernel_of(BY_HAND), {"in": x})["out"]
    assert barrier in BY_HAND
    bad = kernel_of(BY_HAND.replace(barrier, ""))
    assert all(not same_bits(run_kernel(bad, {"in": x}, seed=s)["out"], good) for s in SEEDS)


def test_every_barrier_of_a_block_scan_is_needed() -> None:
    program = build_program("scan_tn", warps=2)
    kernel = emit(program)
    x = halves(2 * program.scalars[0].multiple_of)
    good = run_kernel(kernel, {"in": x})["out"]
    lines = kernel.text.splitlines()
    barriers = [i for i, text in enumerate(lines) if text.strip() == "__syncthreads();"]
    assert barriers
    broken = [
        replace(kernel, text="\n".join([*lines[:i], "", *lines[i + 1 :], ""])) for i in barriers
    ]
    build_many(broken)
    for number, bad in zip(barriers, broken, strict=True):
        outs = [run_kernel(bad, {"in": x}, seed=s)["out"] for s in SEEDS]
        shown = any(not same_bits(out, good) for out in outs)
        assert shown, f"line {number + 1} can go"


def test_a_lane_that_returns_early_is_a_deadlock() -> None:
    kernel = small_kernel("    if (lane == 3) return;\n    __syncwarp();\n    out[lane] = 0;")
    with pytest.raises(KernelError) as caught:
        run_kernel(kernel, {"in": np.ones(32, np.float32)})
    text = str(caught.value)
    assert "small, block 0: no thread can go on:" in text
    assert "threads 0-2, 4-31: waits at __syncwarp, line 9" in text
    assert "threads 3: returned" in text


def test_a_divergent_barrier_is_a_deadlock() -> None:
    kernel = small_kernel(
        "    if (warp == 0) __syncthreads();\n    out[threadIdx.x] = 0;", warps=2, elements=64
    )
    with pytest.raises(KernelError, match=r"threads 0-31: waits at __syncthreads, line 8\n") as got:
        run_kernel(kernel, {"in": np.ones(64, np.float32)})
    assert "threads 32-63: returned" in str(got.value)


def test_an_mma_by_half_a_warp_is_a_deadlock() -> None:
    text = BY_HAND.replace("wmma::mma_sync(V", "if (lane < 16) wmma::mma_sync(V")
    with pytest.raises(KernelError, match="threads 0-15: waits at mma_sync, line 24"):
        run_kernel(kernel_of(text), {"in": halves(256)})


@pytest.mark.parametrize(("place", "side"), [("length", "after"), ("-1", "before")])
def test_a_write_outside_a_buffer_is_an_error(place: str, side: str) -> None:
    kernel = small_kernel(f"    if (lane == 0) out[{place}] = 1.0f;")
    with pytest.raises(KernelError, match=f"wrote to memory {side} the buffer 'out' of 128 bytes"):
        run_kernel(kernel, {"in": np.ones(32, np.float32)})


def test_a_race_between_blocks_shows_in_another_order() -> None:
    # Blocks 0 to 3 all write element 0: the last one to run wins.
    kernel = small_kernel("    if (lane == 0) out[0] = float(block);")
    inputs = {"in": np.ones(128, np.float32)}

    def last(block_order: str, seed: int = 0) -> float:
        return float(run_kernel(kernel, inputs, seed=seed, block_order=block_order)["out"][0])

    assert (last("ascending"), last("descending")) == (3, 0)
    shuffled = [last("shuffled", seed) for seed in range(8)]
    assert len(set(shuffled)) > 1
    assert shuffled == [last("shuffled", seed) for seed in range(8)]


def with_faults() -> Kernel:
    """Return a kernel of two outputs: from blocks 3, 4 and 5 on they are not written as they shall.

    Block 3 copies nothing, block 4 copies to where block 2 does, and block 5 stores its tile over
    that of block 4. `emit` would refuse it.
    """
    tile = shape_of("16x16x16")
    ones = Frag("V", Role.ACC, tile, "f32")
    source = Buffer("in", "f16", Extent(LENGTH), BufferRole.INPUT)
    out = Buffer("out", "f16", Extent(LENGTH), BufferRole.OUTPUT)
    sums = Buffer("sums", "f32", Extent(LENGTH * 8), BufferRole.OUTPUT)

    def elements(buffer: Buffer, block: Index) -> View:
        return View.strided(buffer, block * 32, 1, 32, 32, 1)

    def stored(block: Index) -> Store:
        return Store(View.strided(sums, block * 256, 16, 16, 16, 1), ones)

    def copied(to: Index) -> Assign:
        return Assign(elements(out, to), elements(source, BLOCK))

    def up_to(block: int) -> tuple[Bound, ...]:
        return (Bound(BLOCK, Index.of(block)),)

    program = Program(
        name="with_faults", shape=tile, ab="f16", acc="f32", scalars=(Scalar("length"),),
        buffers=(source, out, sums), blocks=Extent(LENGTH, 32), warps=1,
        steps=(
            Const(ones, Pattern(PatternKind.ONES)),
            When(up_to(5), (stored(BLOCK),), (stored(BLOCK - 1),)),
            When(up_to(3), (copied(BLOCK),)),
            When(up_to(4), (), (copied(BLOCK - 2),)),
        ),
    )  # fmt: skip
    return Emitter(program, instruction_for(program), standalone=False).kernel()


@pytest.mark.parametrize(
    ("blocks", "block_order", "message"),
    [
        (3, "ascending", None),
        (4, "ascending", r"with_faults has not written out\[96\] \(32 such elements\)"),
        (5, "ascending", r"block 4, warp 0: writes out\[64\], which warp 0 of block 2 has written"),
        (6, "descending", r"block 4, warp 0: writes sums\[1024\], which warp 0 of block 5 has "),
    ],
)
def test_debugging_shows_two_writers_and_none(
    blocks: int, block_order: str, message: str | None
) -> None:
    kernel = with_faults()
    inputs = {"in": halves(32 * blocks)}
    silent = run_kernel(kernel, inputs, block_order=block_order)
    if message is None:
        assert same_bits(silent["out"], inputs["in"])
        got = run_kernel(kernel, inputs, debug=True)
        assert all(same_bits(got[name], silent[name]) for name in silent)
        return
    with pytest.raises(KernelError, match=message):
        run_kernel(kernel, inputs, block_order=block_order, debug=True)


def test_outputs_that_may_be_written_in_part_stay_so_when_debugged() -> None:
    kernel = small_kernel("    if (lane > 2) out[32*block + lane] = in[32*block + lane];")
    out = replace(kernel.program.outputs[0], partial=True)
    program = replace(kernel.program, buffers=(*kernel.program.inputs, out))
    made = run_kernel(replace(kernel, program=program), {"in": np.ones(32, np.float32)}, debug=True)
    assert np.isnan(made["out"][:3]).all()


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        # Some groups of blocks each; most have elements.
        ("scan_single_pass", {"columns": 4}),
        ("reduction_single_pass", {"columns": 4}),
        ("scan_single_pass", {"tile": "8x8x4", "ab": "f64", "acc": "f64", "columns": 8}),
    ],
)
def test_launches_go_on_in_memory_that_nobody_clears(
    algorithm: str, options: dict[str, Any]
) -> None:
    program = build_program(algorithm, masked=True, **options)
    kernel = emit(program)
    # The steps that wait for others, without those that they wait for.
    silent = replace(kernel, text=re.sub(r"\w+\.store\([^;]*;", ";", kernel.text))
    assert silent.text != kernel.text
    longest = 40_000
    workspace = np.zeros(kernel.workspace_bytes({"length": longest}), np.uint8)
    count = workspace[:8].view(np.uint64)
    rng = np.random.default_rng(1)
    number = 0
    for length in (longest, longest, 9_000, longest, 3, longest):
        # Numbers of launches begin again after 2**32 of them.
        if length == 3:
            number += 2**32 - 6
            count[0] = number << 32
        x = as_values(rng.integers(-99, 99, length).astype(np.float32), program.inputs[0].dtype)
        given = workspace[: kernel.workspace_bytes({"length": length})]
        got = run_kernel(kernel, {"in": x}, workspace=given, block_order="shuffled", seed=number)
        assert same_bits(got["out"], run_numpy(program, {"in": x})["out"])
        number = (number + 1) % 2**32
        assert int(count[0]) == number << 32
        if length < longest:
            continue
        # Words that an earlier launch published are not taken for this launch's.
        with pytest.raises(KernelError, match="waits for a status word that no block before it"):
            run_kernel(silent, {"in": x}, workspace=workspace.copy())


def test_there_are_three_orders_of_blocks() -> None:
    with pytest.raises(InputError, match="'ascending', 'descending' or 'shuffled', got 'up'"):
        run(build_program("reduction_k"), {"in": halves(256)}, backend=BACKEND, block_order="up")


def test_a_write_to_an_input_is_an_error() -> None:
    kernel = small_kernel("    const_cast<float*>(in)[0] = 2.0f;")
    with pytest.raises(KernelError, match="wrote to its input 'in', which is const"):
        run_kernel(kernel, {"in": np.ones(32, np.float32)})


def test_a_read_beyond_an_input_is_nan() -> None:
    kernel = small_kernel("    out[lane] = in[length];")
    assert np.isnan(run_kernel(kernel, {"in": np.ones(32, np.float32)})["out"]).all()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("in + (256*block), 16)", "in + 8, 16)", "does not begin at a multiple of 32 bytes"),
        ("in + (256*block), 16)", "in, 12)", "not a multiple of 16 bytes apart"),
    ],
)
def test_a_misaligned_tile_is_an_error(old: str, new: str, message: str) -> None:
    assert old in BY_HAND
    with pytest.raises(KernelError, match=message) as caught:
        run_kernel(kernel_of(BY_HAND.replace(old, new)), {"in": halves(256)})
    assert "by_hand, block 0, line 23: wmma::load_matrix_sync(A, in" in str(caught.value)


def test_an_mma_of_other_types_than_the_programs_is_an_error() -> None:
    program = replace(build_program("reduction_k"), acc="f16")
    message = "line 24: wmma::mma_sync.*\n  the program multiplies f16 into f16"
    with pytest.raises(KernelError, match=message):
        run_kernel(kernel_of(BY_HAND, program=program), {"in": halves(256)})


def test_types_that_kernels_lack_are_refused() -> None:
    rule = rule_for("ada", "e4m3", "f32")
    with pytest.raises(Unsupported, match="use backend 'numpy'"):
        numerics_row(rule)


def test_a_tile_in_pieces_is_refused_where_a_rule_rounds_it_whole() -> None:
    program = build_program("reduction_k", tile="16x16x32")
    kernel, inputs = emit(program), {"in": halves(512)}
    assert run_kernel(kernel, inputs, arch="ieee")["out"].size
    with pytest.raises(Unsupported, match="in pieces of 16 products"):
        run_kernel(kernel, inputs, arch="exact")


def test_inputs_are_bound_as_the_simulator_binds_them() -> None:
    with pytest.raises(InputError, match="must be flat"):
        run_kernel(kernel_of(BY_HAND), {"in": halves(256).reshape(16, 16)})
    with pytest.raises(InputError, match="not a multiple of 256"):
        run_kernel(kernel_of(BY_HAND), {"in": halves(100)})


# --- Numerics -----------------------------------------------------------------------------------

NUMPY_TYPES = {"f16": np.float16, "f32": np.float32, "f64": np.float64}


def multiply(rule: Rule, a: Values, b: Values, c: Values) -> Values:
    """Return a @ b + c, tile by tile, by the runtime that kernels use."""
    function = build(kernel_of(BY_HAND)).functions.tcusim_multiply
    d = np.zeros_like(c)
    m, k = a.shape[1:]
    row = numerics_row(rule)
    for tile in range(len(a)):
        one, two, three = (np.ascontiguousarray(x) for x in (a[tile], b[tile], c[tile]))
        function(m, b.shape[2], k, ctypes.byref(row), *map(_address, (d[tile], one, two, three)))
    return d


def _address(array: Values) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def memory(values: Values, dtype: str) -> Values:
    if dtype == "bf16":
        return (values.view(np.uint32) >> 16).astype(np.uint16)
    return values


def raw_bits(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Values:
    """Return values of every exponent: any bits at all, NaN and infinities among them."""
    if dtype == "f16":
        return rng.integers(0, 2**16, shape, np.uint16).view(np.float16)
    keep = {"bf16": 0xFFFF0000, "tf32": 0xFFFFE000, "f32": 0xFFFFFFFF}[dtype]
    bits = rng.integers(0, 2**32, shape, np.uint32) & np.uint32(keep)
    return bits.view(np.float32)


def operands(kind: str, shape: tuple[int, ...], dtype: str, seed: int) -> Values:
    rng = np.random.default_rng(seed)
    if kind == "raw":
        return raw_bits(rng, shape, dtype)
    finite = raw_bits(rng, shape, dtype)
    finite = np.where(np.isfinite(finite), finite, 1).astype(finite.dtype)
    plain = convert_values(rng.standard_normal(shape), "f64", dtype)
    target = format_of(dtype)
    match kind:
        case "plain":
            return plain
        case "finite":
            return finite
        case "wide":
            powers = 2.0 ** rng.integers(-10, 10, shape)
            return convert_values(plain.astype(np.float64) * powers, "f64", dtype)
        case "subnormal":
            tiny = rng.integers(-200, 200, shape) * target.smallest
            return convert_values(tiny, "f64", dtype)
        case "special":
            few = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -2.0, target.largest])
            weights = [0.4, 0.2, 0.02, 0.02, 0.01, 0.15, 0.15, 0.05]
            return rng.choice(few, shape, p=weights).astype(finite.dtype)
        case "large":
            large = rng.choice([-1.0, 1.0], shape) * target.largest / rng.integers(1, 9, shape)
            return convert_values(large, "f64", dtype)
    raise AssertionError(kind)


KINDS = ("plain", "finite", "wide", "subnormal", "special", "large", "raw")
PAIRS = [
    (arch, ab, acc)
    for arch in ("volta", "turing", "ampere", "hopper", "blackwell", "ieee")
    for ab, acc in (("f16", "f32"), ("f16", "f16"), ("bf16", "f32"), ("tf32", "f32"))
    if arch not in ("volta", "turing") or ab == "f16"
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("arch", "ab", "acc"), PAIRS)
def test_both_implementations_of_mma_agree(arch: str, ab: str, acc: str, kind: str) -> None:
    rule = rule_for(arch, ab, acc)
    a = operands(kind, (12, 16, 16), ab, 1)
    b = operands(kind, (12, 16, 16), ab, 2)
    c = operands(kind, (12, 16, 16), acc, 3)
    c[0] = 0
    expected = mma_values(a, b, c, rule)
    assert same_bits(multiply(rule, memory(a, ab), memory(b, ab), c), expected)


ODD_RULES = [
    Fused(5, 20, output="rne", alignment="rne"),
    Fused(16, 25, flush_inputs=True, flush_outputs=True),
    Fused(16, 25, c_joins="after"),
    Fused(4, 12, c_joins="after", flush_inputs=True, flush_outputs=True),
    Fused(8, 24, exponent_floor=-10),
    Fused(16, 13, output_fraction_bits=9),
    Fused(3, 40, output="rne", exponent_floor=-140),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("acc", ["f16", "f32"])
@pytest.mark.parametrize("how", ODD_RULES, ids=str)
def test_every_parameter_of_a_fused_step_agrees(how: Fused, acc: str, kind: str) -> None:
    for ab in ("f16", "bf16", "f32"):
        rule = Rule(ab, acc, how, "a test", "none")
        a = operands(kind, (3, 8, 16), ab, 4)
        b = operands(kind, (3, 16, 8), ab, 5)
        c = operands(kind, (3, 8, 8), acc, 6)
        expected = mma_values(a, b, c, rule)
        assert same_bits(multiply(rule, memory(a, ab), memory(b, ab), c), expected)


@pytest.mark.parametrize("ab", ["s8", "u8"])
def test_integers_agree_and_wrap(ab: str) -> None:
    rng = np.random.default_rng(0)
    kind = format_of(ab).dtype
    low, high = np.iinfo(kind).min, np.iinfo(kind).max
    a, b = (rng.integers(low, high, (9, 16, 16), kind, endpoint=True) for _ in range(2))
    c = rng.integers(-(2**31), 2**31, (9, 16, 16), np.int32)
    c[0] = 2**31 - 1
    rule = rule_for("turing", ab, "s32")
    assert same_bits(multiply(rule, a, b, c), mma_values(a, b, c, rule))


# --- Conversions and additions --------------------------------------------------------------------


def converted(x: Values, source: str, target: str) -> Values:
    """Return x converted by a kernel."""
    kind = {"f16": "half", "bf16": "__nv_bfloat16", "f32": "float", "f64": "double"}[target]
    kernel = small_kernel(
        f"    if (32*block + lane < length) out[32*block + lane] = "
        f"tcu::convert<{kind}>(in[32*block + lane]);",
        source,
        target,
    )
    return run_kernel(kernel, {"in": x})["out"]


def test_every_half_becomes_the_float_that_numpy_says() -> None:
    every = np.arange(2**16, dtype=np.uint16).view(np.float16)
    with np.errstate(invalid="ignore"):
        assert same_bits(converted(every, "f16", "f32"), convert_values(every, "f16", "f32"))


@pytest.mark.parametrize("source", ["f32", "f64"])
@pytest.mark.parametrize("target", ["f16", "bf16"])
def test_conversions_to_16_bits_round_as_the_simulators(source: str, target: str) -> None:
    rng = np.random.default_rng(7)
    exponents = rng.integers(-160, 130, 20_000)
    x = rng.standard_normal(20_000) * 2.0**exponents
    # Ties of f16 and of bf16, and their neighbours.
    ties = (1 + (2 * np.arange(512) + 1) / 2.0 ** np.repeat([8, 11], 256)) * 2.0**-3
    x = np.concatenate([x, ties, np.nextafter(ties, 0), np.nextafter(ties, 9)])
    edges = [0.0, -0.0, np.inf, -np.inf, 65504, 65519.9, 65520, 2**-25, 2**-24, -(2**-26)]
    with np.errstate(over="ignore"):
        x = np.concatenate([x, edges]).astype(NUMPY_TYPES[source])
    expected = convert_values(x, source, target)
    got = converted(x, source, target).astype(expected.dtype)
    assert same_bits(got, expected)


def test_a_converted_nan_is_the_one_that_a_gpu_writes() -> None:
    nan = np.array([0x7F800001, 0xFFC00000], np.uint32).view(np.float32)
    assert (converted(nan, "f32", "f16").view(np.uint16) == 0x7FFF).all()


@pytest.mark.parametrize("dtype", ["f16", "f32", "f64"])
def test_sums_are_rounded_as_the_simulators(dtype: str) -> None:
    rng = np.random.default_rng(3)
    kind = NUMPY_TYPES[dtype]
    x = (rng.standard_normal(4096) * 2.0 ** rng.integers(-20, 13, 4096)).astype(kind)
    kernel = small_kernel(
        "    const long long i = 32*block + lane;\n"
        "    out[i] = tcu::add(in[i], in[length - 1 - i]);",
        dtype,
        dtype,
    )
    with np.errstate(over="ignore"):
        assert same_bits(run_kernel(kernel, {"in": x})["out"], x + x[::-1])


def test_infinities_that_cancel_give_the_nan_that_a_gpu_writes() -> None:
    x = np.array([np.inf] * 16 + [-np.inf] * 16, np.float32)
    kernel = small_kernel("    out[lane] = tcu::add(in[lane], in[31 - lane]);")
    assert (run_kernel(kernel, {"in": x})["out"].view(np.uint32) == 0x7FFFFFFF).all()


def test_tf32_is_cut_when_it_is_loaded() -> None:
    x = np.full(128, 1 + 2**-10 + 2**-11, np.float32)
    program = build_program("reduction_k", tile="16x16x8", ab="tf32")
    x = np.resize(x, program.scalars[0].multiple_of)
    out = run(program, {"in": x}, backend=BACKEND)["out"]
    assert (out == 8 * (1 + 2**-10)).all()
