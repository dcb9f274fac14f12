"""Events of the interpreter, in order, with values as late as a GPU may show them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tcusim.algorithms import build
from tcusim.errors import InputError, UnknownName, Unsupported, VerifyError
from tcusim.machine import format_of
from tcusim.machine.shapes import MmaShape
from tcusim.program.checks.verifier import verify
from tcusim.program.grammar import (
    BLOCK,
    COL,
    WARP,
    Assign,
    Bound,
    Buffer,
    BufferRole,
    Const,
    Extent,
    Frag,
    Index,
    Load,
    Loop,
    Mma,
    Pattern,
    PatternKind,
    Program,
    Role,
    Scalar,
    Scope,
    Space,
    Step,
    Sync,
    View,
    When,
    accesses,
    walk,
)
from tcusim.simulate.interpreter import (
    Event,
    State,
    add_values,
    convert_values,
    interpret,
    prefix_sums,
    run_numpy,
)

LENGTH = Index.symbol("length")


TINY = MmaShape(2, 2, 2)


SYNC = Sync(Scope.WARP)


def integers(length: int, seed: int = 0) -> NDArray[np.float16]:
    return np.random.default_rng(seed).integers(-3, 4, length).astype(np.float16)


def without_syncs(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Return the steps without any barrier."""
    kept: list[Step] = []
    for step in steps:
        if isinstance(step, Loop):
            kept.append(replace(step, body=without_syncs(step.body)))
        elif isinstance(step, When):
            body, otherwise = without_syncs(step.body), without_syncs(step.otherwise)
            kept.append(replace(step, body=body, otherwise=otherwise))
        elif not isinstance(step, Sync):
            kept.append(step)
    return tuple(kept)


# --- Races show --------------------------------------------------------------------------------


RACY = [
    ("reduction_t", {}),
    ("reduction_tn", {"combine": "add", "accumulation_length": 2}),
    ("reduction_kn_coalesced", {}),
    ("scan_kn", {}),
    ("scan_t", {}),
    ("scan_tn", {"form": "L(A1)", "combine": "add"}),
    ("scan_tn", {"masked": True}),
    ("reduction_panel", {"ab": "f32"}),
    ("scan_panel", {"ab": "f32"}),
]


@pytest.mark.parametrize(("name", "options"), RACY)
def test_without_barriers_the_result_is_wrong(name: str, options: dict[str, Any]) -> None:
    program = build(name, **options)
    inputs = {"in": integers(8 * program.blocks.per)}
    broken = replace(program, steps=without_syncs(program.steps))
    right, wrong = run_numpy(program, inputs)["out"], run_numpy(broken, inputs, check=False)["out"]
    assert not np.isnan(right).any()
    assert np.isnan(wrong).any()


def test_a_missing_barrier_in_a_loop_shows_the_value_of_the_round_before() -> None:
    source = Buffer("in", "f32", Extent(LENGTH), BufferRole.INPUT)
    out = Buffer("out", "f32", Extent(LENGTH), BufferRole.OUTPUT)
    box = Buffer("box", "f32", Extent.of(8), BufferRole.SCRATCH, Space.WARP)
    i = Index.symbol("i")
    body = (
        Assign(one(box), one(source, i)),
        Assign(one(out, i), one(box)),
        SYNC,
    )
    program = Program(
        name="late", shape=TINY, ab="f16", acc="f32", scalars=(Scalar("length"),),
        buffers=(source, out, box,), blocks=Extent.of(1), warps=1,
        steps=(Loop("i", Extent(LENGTH), body),),
    )  # fmt: skip
    given = np.array([1, 2, 3, 4], np.float32)
    result = run_numpy(program, {"in": given}, check=False)["out"]
    np.testing.assert_array_equal(result, [np.nan, 1, 2, 3])


def one(buffer: Buffer, offset: Index | int = 0, *bounds: Bound) -> View:
    """Return one element."""
    return View.strided(buffer, Index.of(offset), 1, 1, 1, 1, bounds)


def row(buffer: Buffer, count: int, offset: Index | int = 0, *bounds: Bound) -> View:
    """Return `count` elements in a row."""
    return View.strided(buffer, Index.of(offset), 1, count, count, 1, bounds)


def two_warps(scope: Scope) -> Program:
    """Each of two warps writes one element, waits at a barrier of `level`, and reads both."""
    source = Buffer("in", "f32", Extent(LENGTH), BufferRole.INPUT)
    out = Buffer("out", "f32", Extent(LENGTH * 2), BufferRole.OUTPUT)
    shared = Buffer("shared", "f32", Extent.of(8), BufferRole.SCRATCH, Space.SHARED)
    return Program(
        name="two_warps",
        shape=TINY,
        ab="f16",
        acc="f32",
        scalars=(Scalar("length", 2),),
        buffers=(source, out, shared),
        blocks=Extent(LENGTH, 2),
        warps=2,
        steps=(
            Assign(one(shared, WARP), one(source, BLOCK * 2 + WARP)),
            Sync(scope),
            Assign(row(out, 2, (BLOCK * 2 + WARP) * 2), row(shared, 2)),
        ),
    )


NAN = np.nan


@pytest.mark.parametrize(
    ("barrier", "expected"),
    [
        (Scope.BLOCK, [1, 2, 1, 2, 3, 4, 3, 4]),
        (Scope.WARP, [1, NAN, NAN, 2, 3, NAN, NAN, 4]),
        (None, [NAN] * 8),
    ],
)
def test_a_barrier_shows_writes_to_the_warps_of_its_scope(
    barrier: Scope | None, expected: list[float]
) -> None:
    program = two_warps(barrier or Scope.BLOCK)
    if barrier is None:
        program = replace(program, steps=without_syncs(program.steps))
    given = np.array([1, 2, 3, 4], np.float32)
    result = run_numpy(program, {"in": given}, check=False)["out"]
    np.testing.assert_array_equal(result, expected)


def interpret_all(program: Program, inputs: Mapping[str, Any], **keywords: Any) -> list[Event]:
    return list(interpret(program, inputs, **keywords))


# --- Unwritten elements --------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f16", "f32", "f64", "bf16", "s32"])
def test_unwritten_outputs_have_a_value_of_their_own(dtype: str) -> None:
    source = "s32" if dtype == "s32" else "f32"
    result = run_numpy(writes_first_element(source, dtype), {"in": np.ones(3)})["out"]
    unwritten = format_of(dtype).unwritten
    np.testing.assert_array_equal(result.astype(np.float64), [1, unwritten, unwritten])


def writes_first_element(given: str, dtype: str) -> Program:
    source, out = (
        Buffer("in", given, Extent(LENGTH), BufferRole.INPUT),
        Buffer("out", dtype, Extent(LENGTH), BufferRole.OUTPUT, partial=True),
    )
    first = Bound(COL, LENGTH)
    return Program(
        name="first", shape=TINY, ab="f16", acc="f32", scalars=(Scalar("length"),),
        buffers=(source, out,), blocks=Extent.of(1), warps=1,
        steps=(Assign(one(out, 0, first), one(source, 0, first)),),
    )  # fmt: skip


def test_elements_out_of_bounds_are_read_as_zero_and_not_written() -> None:
    source, out = (
        Buffer("in", "f32", Extent(LENGTH), BufferRole.INPUT),
        Buffer("out", "f32", Extent(LENGTH + 4), BufferRole.OUTPUT, partial=True),
    )
    program = Program(
        name="edges", shape=TINY, ab="f16", acc="f32", scalars=(Scalar("length"),),
        buffers=(source, out,), blocks=Extent.of(1), warps=1,
        steps=(
            Assign(row(out, 6, 0, Bound(COL, LENGTH + 2)), row(source, 6, 0, Bound(COL, LENGTH))),
        ),
    )  # fmt: skip
    verify(program)
    result = run_numpy(program, {"in": np.array([7, 8], np.float32)})["out"]
    np.testing.assert_array_equal(result, [7, 8, 0, 0, np.nan, np.nan])


def test_a_program_of_no_blocks_runs_nothing() -> None:
    program = build("reduction_t", masked=True)
    events = interpret_all(program, {"in": np.zeros(0, np.float16)})
    assert events == []
    assert run_numpy(program, {"in": np.zeros(0, np.float16)})["out"].shape == (0,)


# --- Events -------------------------------------------------------------------------------------


def test_nested_branches_and_loops_have_paths_of_their_own() -> None:
    program = nested()
    given = np.arange(2, dtype=np.float32)
    seen = [
        (event.path, dict(event.loops), event.warps.tolist())
        for event in interpret_all(program, {"in": given})
    ]
    assert seen == [
        ("1.1.1", {"i": 0}, [0]),
        ("1.1.2.1", {"i": 0, "j": 0}, [1]),
        ("1.1.2.1", {"i": 0, "j": 1}, [1]),
        ("1.1.1", {"i": 1}, [0]),
        ("1.1.2.1", {"i": 1, "j": 0}, [1]),
        ("1.1.2.1", {"i": 1, "j": 1}, [1]),
    ]
    steps = dict(walk(program.steps))
    assert all(steps[event.path] is event.step for event in interpret(program, {"in": given}))


def nested(first: int = 1) -> Program:
    """Return a loop of a branch of the first blocks; its other branch is a loop."""
    source, out = (
        Buffer("in", "f32", Extent(LENGTH), BufferRole.INPUT),
        Buffer("out", "f32", Extent(LENGTH), BufferRole.OUTPUT),
    )
    copy = Assign(one(out, BLOCK), one(source, BLOCK))
    inner = Loop("j", Extent.of(2), (copy,))
    branch = When((Bound(BLOCK, Index.of(first)),), (copy,), (inner,))
    return Program(
        name="nested", shape=TINY, ab="f16", acc="f32", scalars=(Scalar("length"),),
        buffers=(source, out,), blocks=Extent(LENGTH), warps=1,
        steps=(Loop("i", Extent.of(2), (branch,)),),
    )  # fmt: skip


def test_a_watcher_sees_fragments_and_memory_after_each_step() -> None:
    program = build("reduction_k", side="a")
    x = integers(2 * 256)
    seen = []

    def watch(event: Event) -> None:
        if isinstance(event.step, Mma):
            seen.append(event.state.fragment(event.step.d).copy())
            seen.append(event.state.fragment("V", np.array([1])).copy())
        if isinstance(event.step, Load):
            tile = event.state.read(event.step.src)
            np.testing.assert_array_equal(tile, event.state.fragment(event.step.dst))
            np.testing.assert_array_equal(tile, x.reshape(2, 16, 16))

    run_numpy(program, {"in": x}, watch=watch)
    both, second = seen
    sums = x.reshape(2, 16, 16).sum(2, dtype=np.float32)
    np.testing.assert_array_equal(both[:, :, 0], sums)
    np.testing.assert_array_equal(both[:, :, 1:], 0)
    np.testing.assert_array_equal(second, both[1:])


def test_a_watcher_can_ask_where_bounds_hold() -> None:
    program = build("reduction_k", side="a", masked=True)
    for event in interpret(program, {"in": integers(256 + 100)}):
        source = event.step.src if isinstance(event.step, Assign) else None
        if source is not None and source.buffer.name == "in":
            valid = event.state.valid(source, event.warps)
            assert valid.shape == (1, 16, 16)
            assert valid.sum() == 100
            return
    raise AssertionError("no masked tile was copied")


def test_a_look_at_one_warp_sees_what_all_do() -> None:
    """Warps that run the step, those before them in the batch, and those behind."""
    for event in interpret(nested(2), {"in": np.arange(4, dtype=np.float32)}):
        for view in accesses(event.step).views:
            for warp in np.arange(4)[:, None]:
                looked, state = event.state.look(view, warp), event.state
                whole = state.read(view, warp), state.places(view, warp), state.valid(view, warp)
                for one, of_all in zip(looked, whole, strict=True):
                    np.testing.assert_array_equal(one, of_all[0])
                np.testing.assert_array_equal(state.where(view, warp)[0], whole[1][0])


def test_constants_are_the_patterns() -> None:
    square = MmaShape(3, 3, 3)
    frag = Frag("F", Role.ACC, square, "f32")
    source, out = (
        Buffer("in", "f32", Extent(LENGTH), BufferRole.INPUT),
        Buffer("out", "f32", Extent.of(9), BufferRole.OUTPUT, partial=True),
    )
    expected = {
        (PatternKind.ZEROS, 0): np.zeros((3, 3)),
        (PatternKind.ONES, 0): np.ones((3, 3)),
        (PatternKind.ROW, 1): np.outer([0, 1, 0], [1, 1, 1]),
        (PatternKind.COL, 2): np.outer([1, 1, 1], [0, 0, 1]),
        (PatternKind.UPPER, 0): np.triu(np.ones((3, 3))),
        (PatternKind.UPPER, 1): np.triu(np.ones((3, 3)), -1),
        (PatternKind.LOWER, 0): np.tril(np.ones((3, 3))),
        (PatternKind.LOWER, -1): np.tril(np.ones((3, 3)), -1),
    }
    # Of segments of one element that share a row, whole ones are skipped.
    sized = {Pattern(PatternKind.UPPER, Index.of(1), 1): np.eye(3, k=-1)}
    sized[Pattern(PatternKind.LOWER, Index.of(1), 1)] = np.eye(3, k=1)
    given = {Pattern(kind, Index.of(offset)): one for (kind, offset), one in expected.items()}
    for pattern, matrix in (given | sized).items():
        program = Program(
            name="pattern", shape=square, ab="f16", acc="f32", scalars=(Scalar("length"),),
            buffers=(source, out,), blocks=Extent.of(1), warps=1,
            steps=(Const(frag, pattern),),
        )  # fmt: skip
        (event,) = interpret(program, {"in": np.zeros(1, np.float32)})
        np.testing.assert_array_equal(event.state.fragment(frag)[0], matrix)


# --- Batches ------------------------------------------------------------------------------------


@pytest.mark.parametrize("warps_at_once", [1, 2, 3, 7, 10_000])
@pytest.mark.parametrize("warps", [1, 2])
def test_batches_do_not_change_a_bit(warps_at_once: int, warps: int) -> None:
    program = build("scan_tn", masked=True, warps=warps, combine="add", form="L(A1)")
    x = np.random.default_rng(1).standard_normal(6 * 1024 + 77).astype(np.float16)
    expected = run_numpy(program, {"in": x}, arch="volta")["out"]
    state = State(program, {"in": x}, "volta")
    for event in state.run(warps_at_once):
        assert event.warps.size <= max(warps, warps_at_once)
    assert expected.tobytes() == state.outputs()["out"].tobytes()


def test_a_batch_gives_events_of_its_own() -> None:
    program = build("reduction_k")
    inputs = {"in": integers(256 * 5)}
    together = interpret_all(program, inputs)
    apart = interpret_all(program, inputs, warps_at_once=2)
    assert len(apart) == 3 * len(together)
    assert [event.warps.tolist() for event in apart[:: len(together)]] == [[0, 1], [2, 3], [4]]


# --- Arithmetic of the steps --------------------------------------------------------------------


@pytest.mark.parametrize("warps", [None, 0, 2.5, True])
def test_a_batch_has_at_least_a_warp(warps: Any) -> None:
    program = build("reduction_k")
    inputs = {"in": integers(256)}
    with pytest.raises(InputError, match="warps_at_once must be an integer of at least 1, got"):
        next(interpret(program, inputs, warps_at_once=warps))


def test_additions_are_rounded_once_in_their_type() -> None:
    half = np.array([2048, 1, 65504], np.float16)
    other = np.array([1, 2, 65504], np.float16)
    with np.errstate(over="ignore"):
        assert add_values(half, other, "f16").tolist() == [2048, 3, np.inf]
    assert add_values(np.array([2**24], np.float32), np.array([1], np.float32), "f32").tolist() == [
        2**24
    ]
    # bf16: 256 + 1 is a tie, to even; 258 + 1 is one, too.
    values = np.array([256, 258], np.float32), np.array([1, 1], np.float32)
    assert add_values(*values, "bf16").tolist() == [256, 260]
    assert add_values(np.array([2], np.int32), np.array([3], np.int32), "s32").tolist() == [5]


def test_conversions_are_rounded_once() -> None:
    values = np.array([2049, 2051, 65520, 2**-25, 3 * 2**-25], np.float32)
    assert convert_values(values, "f32", "f16").tolist() == [2048, 2052, np.inf, 0, 2 * 2**-24]
    assert convert_values(np.array([2**24 + 1], np.int32), "s32", "f32").tolist() == [2**24]
    assert convert_values(np.array([3], np.float32), "f32", "s32").tolist() == [3]
    same = np.array([1], np.float16)
    assert convert_values(same, "f16", "f16") is same


def test_tf32_operands_are_cut_when_they_are_loaded() -> None:
    program = build("reduction_k", tile="16x16x8", ab="tf32", side="a")
    x = np.zeros(128, np.float32)
    x[0], x[8] = 1 + 2**-11, -(1 + 2**-10 + 2**-11)
    result = run_numpy(program, {"in": x})["out"]
    assert result[:2].tolist() == [1, -(1 + 2**-10)]


# --- Errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offset", "touched"),
    [(BLOCK * 3, r"0\.\.9"), (BLOCK - 1, r"-1\.\.2"), (BLOCK + 9, r"9\.\.12")],
)
def test_the_interpreter_itself_quotes_the_step_that_goes_astray(
    offset: Index, touched: str
) -> None:
    source, out = (
        Buffer("in", "f32", Extent(LENGTH), BufferRole.INPUT),
        Buffer("out", "f32", Extent(LENGTH), BufferRole.OUTPUT),
    )
    program = Program(
        name="astray", shape=TINY, ab="f16", acc="f32", scalars=(Scalar("length"),),
        buffers=(source, out,), blocks=Extent(LENGTH), warps=1,
        steps=(Loop("i", Extent.of(1), (Assign(one(out, BLOCK), one(source, offset)),)),),
    )  # fmt: skip
    text = (
        rf"astray, step 1\.1: `out\[block\] ← in\[.*` touches elements {touched} of 'in', which "
        r"has 4 \(scalars: {'length': 4}\)\. Bound the view, or make the buffer larger\.  "
        r"\[check: inside_buffer\]"
    )
    with pytest.raises(VerifyError, match=text) as raised:
        interpret_all(program, {"in": np.ones(4, np.float32)}, check=False)
    assert (raised.value.check, raised.value.path) == ("inside_buffer", "1.1")


def test_inputs_are_a_mapping() -> None:
    program = build("reduction_k")
    with pytest.raises(InputError, match="reduction_k: inputs must be a mapping of names to arr"):
        run_numpy(program, [integers(256)])  # type: ignore[arg-type]


def test_programs_are_verified_first() -> None:
    program = build("reduction_k")
    broken = replace(program, warps=33)
    with pytest.raises(VerifyError, match="a block has 1 to 32 warps, got 33"):
        run_numpy(broken, {"in": np.ones(256, np.float16)})


def test_units_and_types_that_do_not_go_together() -> None:
    program = build("reduction_k", ab="bf16")
    with pytest.raises(Unsupported, match="Volta tensor cores have no bf16"):
        run_numpy(program, {"in": np.ones(256, np.float32)}, arch="volta")
    with pytest.raises(UnknownName, match=r"unknown architecture 'voltta'\. Did you mean 'volta'"):
        run_numpy(program, {"in": np.ones(256, np.float32)}, arch="voltta")


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("cols", [*range(1, 10), 31, 32, 33])
def test_prefix_sums_are_those_of_pairs(cols: int, *, reverse: bool) -> None:
    """Each adds the whole halves, quarters and so on before it; a row has zeros at its end."""

    def halved(x: list[np.float32]) -> list[np.float32]:
        if len(x) == 1:
            return x
        left, right = halved(x[: len(x) // 2]), halved(x[len(x) // 2 :])
        if reverse:
            return [*(one + right[0] for one in left), *right]
        return [*left, *(left[-1] + one for one in right)]

    rng, zero = np.random.default_rng(cols), np.float32(0)
    x = (rng.standard_normal((3, cols)) * np.exp2(rng.integers(-20, 21, (3, cols)))).astype("f4")
    size = 1 << (cols - 1).bit_length()
    for exclusive in (False, True):
        found, whole = prefix_sums(x, reverse=reverse, exclusive=exclusive)
        for row, own, total in zip(x, found, whole[:, 0], strict=True):
            sums = halved([*row, *[zero] * (size - cols)])
            assert total == sums[0 if reverse else -1]
            if exclusive:
                sums = [*sums[1:], zero] if reverse else [zero, *sums[:-1]]
            assert own.tolist() == sums[:cols]
