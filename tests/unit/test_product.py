"""Products of matrices and vectors as step programs: exact integers, counts, barriers, refusals."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import tcusim
from some import Some
from tcusim.algorithms import algorithm_of, algorithms, build, segmented_algorithms
from tcusim.backends import run
from tcusim.errors import InputError, VerifyError
from tcusim.machine.shapes import MmaShape
from tcusim.program.grammar import Loop, Program, Scope, Step, Sync
from tcusim.simulate.counts import Counts
from tcusim.simulate.interpreter import run_numpy

Ints = NDArray[np.int64]

SHAPES = ((16, 16, 16), (32, 8, 16), (8, 32, 16), (4, 4, 4), (5, 7, 3), (16, 8, 16))
SIZES = ((1, 1, 1), (17, 33, 40), (64, 64, 64), (100, 7, 50))

# Ways to cut the work: blocks of several warps, turns, chains that end within a step or after many.
MATRIX_WAYS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("gemm_naive", {}),
    ("gemm_naive", {"warps": 3, "items_per_warp": 2, "accumulation_length": 2}),
    ("gemm", {}),
    ("gemm", {"warps": 4, "items_per_warp": 2, "accumulation_length": 3}),
    ("gemm", {"warps": 4, "stages": 3, "depth": 1, "accumulation_length": 2}),
    ("gemm", {"warps": 2, "items_per_warp": 2, "stages": 4, "depth": 1, "side": "b"}),
    ("gemm", {"warps": 6, "warps_down": 3, "down": 1, "depth": 3, "accumulation_length": 1}),
    (
        "gemm",
        {
            "warps": 2,
            "warps_down": 2,
            "across": 3,
            "depth": 1,
            "accumulation_length": 4,
            "side": "b",
        },
    ),
)
VECTOR_WAYS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("gemv", {}),
    ("gemv", {"warps": 2, "items_per_warp": 3, "accumulation_length": 2}),
    ("gemv_reduction", {"warps": 2}),
    (
        "gemv_reduction",
        {
            "warps": 3,
            "items_per_warp": 2,
            "down": 2,
            "width": 2,
            "chunk": 20,
            "accumulation_length": 3,
        },
    ),
    (
        "gemv_reduction",
        {"warps": 3, "share_rows": True, "width": 1, "items_per_warp": 2, "down": 2},
    ),
    ("gemv_reduction", {"warps": 1, "width": 3, "chunk": 1, "accumulation_length": 2, "side": "a"}),
)


def is_vector(name: str) -> bool:
    return name.startswith("gemv")


def made(name: str, cols: int, inner: int, **options: Any) -> Program:
    """Build a product; a vector has no columns."""
    sizes: dict[str, Any] = {"inner": inner} if is_vector(name) else {"inner": inner, "cols": cols}
    return build(name, **sizes, **options)


def integers(seed: int, rows: int, cols: int, inner: int, largest: int = 3) -> tuple[Ints, ...]:
    """Return A, B and C of small integers of both signs."""
    rng = np.random.default_rng(seed)
    sizes = ((rows, inner), (inner, cols), (rows, cols))
    a, b, c = (rng.integers(-largest, largest + 1, size) for size in sizes)
    return a, b, c


def flat(program: Program, *arrays: Ints) -> dict[str, Any]:
    """Return the program's inputs, from A, B and C."""
    given = zip("abc", arrays, strict=True)
    wanted = {buffer.name for buffer in program.inputs}
    return {name: x.astype(np.float64).ravel() for name, x in given if name in wanted}


def assert_exact(program: Program, arrays: tuple[Ints, ...], arch: str = "hopper") -> None:
    a, b, c = arrays
    expected = a @ b + (c if any(buffer.name == "c" for buffer in program.inputs) else 0)
    got = run(program, flat(program, a, b, c), arch=arch)["out"].reshape(expected.shape)
    np.testing.assert_array_equal(got.astype(np.float64), expected, err_msg=str(program.name))


# --- Exact integers ---------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES, ids=lambda sizes: "x".join(map(str, sizes)))
def test_every_way_equals_integers(shape: tuple[int, int, int], some: Some) -> None:
    archs = itertools.cycle(("hopper", "volta", "ampere", "exact", "ieee"))
    # Of tiny tiles the largest product would take thousands.
    sizes = SIZES if shape[0] >= 8 else ((1, 1, 1), (17, 33, 40), (30, 7, 50))
    ways = (*MATRIX_WAYS, *VECTOR_WAYS)
    every = enumerate(itertools.product(sizes, ways))
    for seed, (size, (name, options)) in some(every, 5, SHAPES.index(shape)):
        rows, cols, inner = size
        arrays = integers(seed, rows, 1 if is_vector(name) else cols, inner)
        add_c = bool(seed % 2)
        program = made(name, cols, inner, tile=MmaShape(*shape), add_c=add_c, **options)
        assert_exact(program, arrays, next(archs))


@pytest.mark.parametrize(
    ("ab", "acc", "shape", "largest"),
    [
        ("bf16", "f32", "16x16x16", 100),
        ("tf32", "f32", "16x16x8", 100),
        ("f64", "f64", "8x8x4", 2**20),
        ("f16", "f16", "16x16x16", 3),
        ("s8", "s32", "16x16x16", 127),
        ("s8", "s32", "8x32x16", 127),
    ],
)
def test_other_types_equal_integers(ab: str, acc: str, shape: str, largest: int) -> None:
    for name, options in (*MATRIX_WAYS, *VECTOR_WAYS):
        program = made(name, 33, 40, ab=ab, acc=acc, tile=shape, add_c=True, **options)
        a, b, c = integers(1, 21, 1 if is_vector(name) else 33, 40, largest)
        result = run(program, flat(program, a, b, c))["out"]
        np.testing.assert_array_equal(result.astype(np.int64), (a @ b + c).ravel(), err_msg=name)


@pytest.mark.parametrize("name", ["gemm_naive", "gemm", "gemv", "gemv_reduction"])
def test_float32_parts_lose_nothing(name: str) -> None:
    """Products of 24-bit integers and powers of two, and of 12-bit integers, are exact."""
    rng = np.random.default_rng(5)
    program = made(name, 9, 20, ab="bf16", source="f32", warps=2)
    cols = 1 if is_vector(name) else 9
    for wide, narrow in ((24, 1), (12, 12), (17, 7)):
        a = np.zeros((35, 20), np.int64)
        a[np.arange(35), rng.integers(0, 20, 35)] = rng.integers(2 ** (wide - 1), 2**wide, 35) | 1
        b = rng.integers(2 ** (narrow - 1), 2**narrow, (20, cols)) | 1
        for one, two in ((a, b), (-a, b)):
            result = run(program, flat(program, one, two, b))["out"]
            np.testing.assert_array_equal(result.reshape(35, cols), one @ two)


def test_one_product_of_float32_is_rounded_once() -> None:
    """The smallest products of parts are taken too: a lone product is the nearest float32."""
    rng = np.random.default_rng(6)
    a, b = (rng.uniform(1, 2, 64).astype(np.float32) for _ in range(2))
    program = made("gemm_naive", 64, 1, ab="bf16", source="f32")
    result = run(program, {"a": a, "b": b}, arch="exact")["out"].reshape(64, 64)
    spacing = np.spacing(np.outer(a, b))
    error = np.abs(result - np.outer(a.astype(np.float64), b)) / spacing
    # Two accumulators, each rounded, and their sum.
    assert error.max() <= 0.5 + 2**-6


def test_a_half_accumulator_has_the_units_bits() -> None:
    """HGEMM: C starts the chain, and each k tile is one mma of the unit, bit for bit."""
    rng = np.random.default_rng(7)
    a, b, c = (rng.standard_normal(size).astype(np.float16) for size in ((16, 48), (48, 16), 256))
    for arch in ("volta", "hopper"):
        expected = c.reshape(16, 16)
        for k in (0, 16, 32):
            expected = tcusim.mma(a[:, k : k + 16], b[k : k + 16], expected, arch=arch, acc="f16")
        for name, options in MATRIX_WAYS[:1] + MATRIX_WAYS[2:3]:
            program = made(name, 16, 48, acc="f16", add_c=True, **options)
            got = run(program, {"a": a.ravel(), "b": b.ravel(), "c": c}, arch=arch)["out"]
            assert np.array_equal(got.view(np.uint16), expected.view(np.uint16).ravel())


def test_chains_end_as_asked() -> None:
    """A chain of one adds each k tile by a rounded addition; without a limit the unit truncates."""
    ones = np.ones(16 * 16, np.float16)
    large = np.float32(2**24)
    a = np.concatenate([ones.reshape(16, 16)] * 4, axis=1).ravel()
    b = np.concatenate([ones.reshape(16, 16)] * 4).ravel()
    c = np.full(256, large, np.float32)
    for name, options in (("gemm_naive", {}), ("gemm", {"down": 1, "across": 1})):
        for accumulation_length, steps in ((1, 4), (2, 2), (3, 2), (4, 0)):
            seen = Counts()
            program = made(
                name, 16, 64, accumulation_length=accumulation_length, add_c=True, **options
            )
            out = run_numpy(program, {"a": a, "b": b, "c": c}, watch=seen)["out"]
            assert seen.additions == steps
            assert (out == large + 64).all()


# --- Counts -----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(1, 1, 1), (17, 33, 40), (64, 64, 64), (200, 70, 100)])
def test_products_are_those_of_the_formula(size: tuple[int, int, int]) -> None:
    """mma steps are the formula's, of sizes that are filled up to whole blocks and steps."""
    rows, cols, inner = size
    m, n, k = shape = (16, 16, 16)
    blocks = {
        "gemm_naive": (2 * m, n, k),
        "gemm": (2 * m * 3, 1 * n, 2 * k),
        "gemv": (2 * m, 1, k),
        "gemv_reduction": (2 * m * 3, 1, 2 * k),
    }
    options: dict[str, dict[str, Any]] = {
        "gemm": {"down": 3, "across": 1, "depth": 2, "warps_down": 2},
        "gemv_reduction": {"down": 3, "width": 2},
    }
    for name, block in blocks.items():
        program = made(name, cols, inner, warps=2, **options.get(name, {}))
        wide = 1 if is_vector(name) else cols
        arrays = integers(0, rows, wide, inner)
        seen = Counts()
        run_numpy(program, flat(program, *arrays), watch=seen)
        filled = [-(-x // y) * y for x, y in zip((rows, wide, inner), block, strict=True)]
        sizes = dict(zip(("rows", "cols", "inner"), filled, strict=True))
        assert seen.mma == algorithm_of(name).mma_steps(*shape, **sizes), name


def test_the_reduction_reads_the_matrix_once() -> None:
    rows, inner = 256, 512
    a, b, _ = integers(0, rows, 1, inner)
    once = 2 * rows * inner
    bytes_read = {}
    for name, options in (("gemv", {}), ("gemv_reduction", {"down": 2})):
        seen = Counts()
        program = made(name, 1, inner, warps=4, **options)
        run_numpy(program, {"a": a.ravel() * 1.0, "b": b.ravel() * 1.0}, watch=seen)
        bytes_read[name] = seen.bytes_read - once
    # x: once a tile of rows, or once a block of eight; a few elements are read for nothing.
    assert bytes_read["gemv"] == rows // 16 * inner * 2
    assert inner * 2 * 2 <= bytes_read["gemv_reduction"] <= inner * 2 * 2 * 1.1


def test_staging_reads_less_than_loading_from_memory() -> None:
    a, b, _ = integers(0, 64, 64, 64)
    counted = {}
    for name in ("gemm_naive", "gemm"):
        seen = Counts()
        program = made(name, 64, 64, warps=4) if name == "gemm" else made(name, 64, 64)
        run_numpy(program, {"a": a.ravel() * 1.0, "b": b.ravel() * 1.0}, watch=seen)
        counted[name] = seen.bytes_read
    assert counted == {"gemm_naive": 2 * 4 * 64 * 64 * 2, "gemm": 2 * 64 * 64 * 2}


# --- Barriers ---------------------------------------------------------------------------------


def without(steps: tuple[Step, ...], scope: Scope) -> Iterator[tuple[Step, ...]]:
    """Yield the steps with one barrier of this level left out, each in turn."""
    for number, step in enumerate(steps):
        rest = steps[number + 1 :]
        if isinstance(step, Sync) and step.scope is scope:
            yield (*steps[:number], *rest)
        elif isinstance(step, Loop):
            for body in without(step.body, scope):
                yield (*steps[:number], dataclasses.replace(step, body=body), *rest)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("gemm", {"warps": 4, "cols": 64, "inner": 224}),
        ("gemv_reduction", {"warps": 4, "inner": 256, "chunk": 128, "width": 1}),
        ("gemv_reduction", {"warps": 4, "inner": 256, "share_rows": True, "width": 1}),
    ],
)
def test_no_barrier_of_the_block_is_too_many(name: str, options: dict[str, Any]) -> None:
    program = build(name, **options)
    broken = list(without(program.steps, Scope.BLOCK))
    # Warps that share rows meet only for their sums.
    assert len(broken) >= (1 if "share_rows" in options else 2), program
    for steps in broken:
        with pytest.raises(VerifyError, match="no barrier between"):
            tcusim.verify(dataclasses.replace(program, steps=steps))


def test_the_next_copy_comes_before_the_products() -> None:
    """A double-buffered loop: copies, products, one barrier, twice; nothing else waits."""
    program = build("gemm", warps=4, cols=64, inner=320, down=1, across=1, depth=1)
    loop = next(step for step in program.steps if isinstance(step, Loop))
    kinds = [type(step).__name__ for step in loop.body]
    assert [kind for kind in kinds if kind in ("Assign", "Mma", "Sync")] == [
        "Assign", "Assign", "Mma", "Sync", "Assign", "Assign", "Mma", "Sync",
    ]  # fmt: skip


@pytest.mark.parametrize("stages", [2, 3, 4])
def test_stages_are_not_in_the_bits(stages: int) -> None:
    """Random numbers and short chains with rounded sums: any other order would show."""
    rng = np.random.default_rng(stages)
    a, b = (rng.standard_normal(size).astype(np.float16) for size in (40 * 400, 400 * 48))
    of_blocks: tuple[dict[str, Any], ...] = (
        {"warps": 4, "cols": 48, "accumulation_length": 4},
        {"warps": 8, "warps_down": 2, "down": 1, "cols": 48, "accumulation_length": 8, "depth": 1},
    )
    for options in of_blocks:
        one, other = (
            run_numpy(build("gemm", inner=400, stages=n, **options), {"a": a, "b": b})["out"]
            for n in (2, stages)
        )
        assert (one == other).all()
    options = {"warps": 4, "width": 1, "share_rows": True, "chunk": 128, "accumulation_length": 3}
    vector, vectors = (
        run_numpy(build("gemv_reduction", inner=400, stages=n, **options), {"a": a, "b": b[:400]})
        for n in (2, stages)
    )
    assert (vector["out"] == vectors["out"]).all()


# --- The registry and refusals ------------------------------------------------------------------


def test_products_have_no_segments() -> None:
    products = {row.name for row in algorithms() if row.kind == "product"}
    assert products == {"gemm_naive", "gemm", "gemv", "gemv_reduction"}
    assert not products & {row.name for row in segmented_algorithms()}
    for name in products:
        row = algorithm_of(name)
        assert row.title.endswith(".")
        assert row.source
        assert row.formula
        with pytest.raises(InputError, match=f"{name} has no segments; leave segment_size out"):
            build(name, segment_size=16)


def test_the_defaults_build_and_run() -> None:
    for row in algorithms():
        if row.kind == "product":
            program = build(row.name)
            sizes = {b.name: b.size.evaluate({"rows": 5}) for b in program.inputs}
            out = run(program, {name: np.ones(size) for name, size in sizes.items()})["out"]
            assert (out == 64).all()


@pytest.mark.parametrize(
    ("name", "options", "text"),
    [
        ("gemm", {"cols": 0}, "cols must be an integer of at least 1, got 0"),
        ("gemm_naive", {"inner": 1.5}, "inner must be an integer of at least 1, got 1.5"),
        ("gemm", {"down": True}, "down must be an integer of at least 1, got True"),
        ("gemm", {"warps": 4, "warps_down": 3}, "4 warps do not stand 3 high; warps_down must"),
    ],
)
def test_options_that_do_not_go(name: str, options: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        build(name, **options)


def test_a_matrix_with_half_a_row_is_refused() -> None:
    program = build("gemm_naive", inner=32, cols=16)
    with pytest.raises(InputError, match="input 'a' must have 32\\*rows = 64 elements; it has 70"):
        run(program, {"a": np.ones(70), "b": np.ones(512)})
