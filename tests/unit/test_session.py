"""Plans on a GPU: launches on one stream, memory between them, and the short way of a like call."""

from __future__ import annotations

import gc
import re
import sys
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tcusim
from asked import asked
from gpu_standin import (
    LONG,
    PROGRAM,
    Cupy,
    OnGpu,
    StandIn,
    X,
    aligned,
    in_chunks,
    prepared,
    session_of,
)
from tcusim.errors import InputError
from tcusim.simulate.backend import NUMPY
from tcusim_cuda import session as launch_session
from tcusim_cuda.emit import emit
from tcusim_cuda.runtime import LaunchError


def chunked(operation: str = "cumsum", result: str = "f16", x: Any = LONG) -> Any:
    """Return the simulator's result by several launches."""
    return NUMPY.run(in_chunks(operation, result), {"in": x}, arch="hopper")["out"]


def test_a_plan_runs_on_the_gpu_again_and_again(gpu: StandIn) -> None:
    expected = chunked(result="f32")
    session = gpu.prepare(in_chunks(result="f32"), "hopper")
    for number in range(3):
        result = session.run({"in": OnGpu(LONG)}, shape=(LONG.size,))
        assert isinstance(result, OnGpu)
        assert result.values.tobytes() == expected.tobytes()
        assert gpu.launches == 3 * (number + 1)
        # Memory for temporaries, and the result.
        assert gpu.made == 1 + number + 1
        assert gpu.loadings == 3


def test_each_stream_has_temporaries_of_its_own(gpu: StandIn) -> None:
    session = gpu.prepare(in_chunks(result="f32"), "hopper")
    x, out = OnGpu(LONG), OnGpu(np.zeros(LONG.size, np.float32))
    for stream in (*range(1, 9), 1):
        session.run({"in": x}, out=out, shape=(LONG.size,), stream=stream)
    assert gpu.made == 8
    session.run({"in": x}, out=out, shape=(LONG.size,), stream=9)
    session.run({"in": x}, out=out, shape=(LONG.size,), stream=1)
    assert gpu.made == 10


def test_a_plan_waits_once_for_the_streams_of_its_arrays(gpu: StandIn) -> None:
    session = gpu.prepare(in_chunks("sum"), "hopper")
    out = OnGpu(np.zeros((), np.float16), stream=5)
    assert session.run({"in": OnGpu(LONG, stream=3)}, out=out, shape=()) is out
    assert out.values == chunked("sum")
    launches = [
        "3 waits for 5", "launch 4 x 32 on 3", "launch 1 x 32 on 3", "5 waits for 3",
    ]  # fmt: skip
    # Memory between launches is cleared when it is allocated, and kept.
    assert gpu.driver.notes == ["clear 256 bytes on 3", *launches]
    gpu.driver.notes.clear()
    session.run({"in": OnGpu(LONG, stream=3)}, out=out, shape=())
    assert gpu.driver.notes == launches


def test_offsets_on_the_gpu(gpu: StandIn) -> None:
    edges = np.array([0, 3, 3, 40_000, LONG.size])
    expected = tcusim.segmented_cumsum(LONG, offsets=edges, reverse=True)
    plan = tcusim.plan("segmented_cumsum", length=LONG.size, segments=4, reverse=True)
    session = session_of(gpu, plan)
    x = OnGpu(LONG, stream=3)
    offsets = OnGpu(edges, stream=4)
    np.testing.assert_array_equal(gpu.to_host(offsets), edges)
    for there in (offsets, gpu.to_device(edges, x)):
        result = session.run({"in": x, "offsets": there}, shape=(LONG.size,))
        np.testing.assert_array_equal(result.values, expected)
    assert gpu.driver.notes[0] == "copy 40 bytes back on 4"
    assert {"3 waits for 4", "4 waits for 3"} < set(gpu.driver.notes)
    # A copy of the offsets, memory for the temporaries of the launches, and two results.
    assert gpu.made == 1 + 1 + 2


@pytest.mark.parametrize("longest", [None, 32])
def test_a_scan_by_offsets_in_place(gpu: StandIn, longest: int | None) -> None:
    rng = np.random.default_rng(1)
    edges = np.cumsum([0, *rng.integers(0, 33, 300)])
    x = rng.standard_normal(edges[-1]).astype(np.float16)
    plan = tcusim.plan("segmented_cumsum", length=x.size, segments=300, longest=longest)
    expected = plan(x, offsets=edges)
    a = OnGpu(x)
    given = {"in": a, "offsets": OnGpu(edges)}
    assert session_of(gpu, plan).run(given, out=a, shape=x.shape) is a
    assert a.values.tobytes() == expected.tobytes()
    # Only the last launch overwrites its input.
    restricted = ["__restrict__" in text for text in gpu.texts]
    assert restricted == [True] * (len(plan.launches) - 1) + [False]
    assert (len(plan.launches) == 1) == (longest is not None)


def test_a_plan_of_a_product_runs_on_the_gpu(gpu: StandIn) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((40, 30), (30, 20)))
    session = session_of(gpu, tcusim.plan_product("matmul", rows=40, inner=30, cols=20))
    there = {"in": OnGpu(a, stream=3), "b": OnGpu(b, stream=4)}
    for launches in (1, 2):
        result = session.run(there, shape=(40, 20))
        assert result.values.tobytes() == tcusim.matmul(a, b).tobytes()
        assert (gpu.launches, gpu.loadings) == (launches, 1)
    start = there["b"].values.ctypes.data
    for out, said in (
        (OnGpu(np.zeros((40, 20), np.float16), data=(start, False)), "out overlaps b in memory. "
         "Give an array of its own."),
        (OnGpu(np.zeros((20, 40), np.float16)), "out must be an array of float16, shape (40, 20)"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=re.escape(said)):
            session.run(there, out=out, shape=(40, 20))
    same = OnGpu(rng.standard_normal((64, 64)).astype(np.float16))
    square = session_of(gpu, tcusim.plan_product("matmul", rows=64, inner=64, cols=64))
    with pytest.raises(InputError, match=r"in place: warp 0 reads a\[32\], but warp 1 writes out"):
        square.run({"in": same, "b": OnGpu(same.values)}, out=same, shape=(64, 64))


@pytest.mark.parametrize(("rows", "cols", "apart"), [(16, 16, 0), (3, 20, 2), (5, 7, 0)])
def test_a_plan_of_a_product_runs_on_parts(gpu: StandIn, rows: int, cols: int, apart: int) -> None:
    rng = np.random.default_rng(2)
    a = rng.standard_normal((4, rows, 30)).astype(np.float16)
    b = rng.standard_normal((2, 30, cols)).astype(np.float16)
    c = rng.standard_normal((4, rows, cols)).astype(np.float32)
    expected = tcusim.matmul(a, b[[0, 0, 1, 1]], c, dtype="float32")
    plan = tcusim.plan_product(
        "matmul", rows=rows, inner=30, cols=cols, add_c=True, result="float32"
    )
    size = rows * cols
    starts = [
        {"in": i * rows * 30, "b": i // 2 * 30 * cols, "c": i * size, "out": i * size}
        for i in range(4)
    ]
    there = {"in": OnGpu(a), "b": OnGpu(b), "c": OnGpu(c)}
    out = OnGpu(np.full_like(c, np.nan), stream=5)
    session = session_of(gpu, plan)
    assert session.run(there, out=out, shape=c.shape, stream=3, starts=starts) is out
    assert out.values.tobytes() == expected.tobytes()
    assert (gpu.launches, gpu.loadings) == (4, 1)
    # Tiles neither are read nor written at odd multiples of 16 bytes.
    work = [note.replace("1 x 32 ", "") for note in gpu.driver.notes if "waits" not in note]
    launch, copy = "launch on 3", f"copy 1 x {4 * size} bytes on 3"
    assert work == (2 * [launch, copy, launch, copy] if apart else 4 * [launch])
    assert gpu.made == apart
    for other in {0, 5}:
        assert f"3 waits for {other}" in gpu.driver.notes[:2]
        assert f"{other} waits for 3" in gpu.driver.notes[-2:]
    made = session.run(there, shape=c.shape, starts=starts)
    assert made.values.tobytes() == expected.tobytes()
    over = OnGpu(c, data=(there["c"].values.ctypes.data, False))
    with pytest.raises(InputError, match=r"out overlaps c in memory\. Give an array of its own"):
        session.run(there, out=over, shape=c.shape, starts=starts)


def test_status_words_are_cleared_when_their_memory_is_taken(gpu: StandIn) -> None:
    session = prepared(gpu, result="float32", algorithm="scan_single_pass")
    (step,) = session.prepared.steps
    assert step.status_bytes > 0
    expected = tcusim.cumsum(LONG, dtype="f4", options={"algorithm": "scan_single_pass"})
    for _ in range(2):
        result = session.run({"in": OnGpu(LONG)}, shape=(LONG.size,))
        np.testing.assert_array_equal(result.values, expected)
    clear = f"clear {-(-step.status_bytes // 256) * 256} bytes on"
    launch = f"launch {step.blocks} x 32 on"
    assert gpu.driver.notes == [f"{clear} 0", f"{launch} 0", f"{launch} 0"]
    # The memory for status words, which is kept, and two results.
    assert gpu.made == 1 + 2
    # Each stream has words of its own. The first stream's are let go for the ninth's.
    for streams, cleared in (((*range(1, 9), 1), range(1, 9)), ((0, 0), (0,))):
        gpu.driver.notes.clear()
        for stream in streams:
            session.run({"in": OnGpu(LONG)}, shape=(LONG.size,), stream=stream)
        found = [note for note in gpu.driver.notes if note.startswith("clear")]
        assert found == [f"{clear} {stream}" for stream in cleared]


def test_status_words_of_a_graph_are_cleared_by_each_round(quick: StandIn) -> None:
    session = prepared(quick, result="float32", algorithm="scan_single_pass")
    driver, given = quick.driver, {"in": Cupy.ndarray(aligned(LONG))}
    driver.capturing.add(3)
    session.run(given, shape=LONG.shape)
    driver.capturing.clear()
    taken, clear, launch = driver.notes
    assert taken == clear == "clear 256 bytes on 3"
    assert launch.startswith("launch")
    # What was captured has not been done: calls on the stream find what was in the memory before.
    driver.notes.clear()
    session.run(given, shape=LONG.shape)
    session.run(given, shape=LONG.shape, stream=3)
    assert driver.notes == 2 * [clear, launch]
    # Two of the calls took the short way.
    assert quick.long_ways == 1
    # A graph of a stream that has had a call before holds launches alone.
    driver.notes.clear()
    session.run(given, shape=LONG.shape, stream=4)
    driver.capturing.add(4)
    session.run(given, shape=LONG.shape, stream=4)
    clears = [note for note in driver.notes if note.startswith("clear")]
    assert clears == ["clear 256 bytes on 4"]


def test_a_plan_takes_arrays_of_any_shape(gpu: StandIn) -> None:
    x = LONG[: 64 * 64].reshape(64, 64)
    session = session_of(gpu, tcusim.plan("segmented_cumsum", length=x.size, segment_size=64))
    result = session.run({"in": OnGpu(x)}, shape=x.shape)
    np.testing.assert_array_equal(result.values, x.cumsum(1))


def test_a_scan_in_place_is_compiled_without_restrict(gpu: StandIn) -> None:
    session = gpu.prepare(in_chunks(), "hopper")
    expected = chunked()
    session.run({"in": OnGpu(LONG)}, shape=(LONG.size,))
    assert all("__restrict__" in text for text in gpu.texts)
    gpu.texts.clear()
    x = OnGpu(LONG)
    assert session.run({"in": x}, out=x, shape=(LONG.size,)) is x
    assert x.values.tobytes() == expected.tobytes()
    # The sums of chunks and their scan do not overwrite their inputs.
    assert ["__restrict__" in text for text in gpu.texts] == [True, True, False]
    assert emit(PROGRAM).aliased().text == emit(PROGRAM).text.replace(" __restrict__", "")


@pytest.mark.parametrize("initial", ["first", "last"])
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (1, 512), (1, 20_001), (7, 100), (33, 16)])
@pytest.mark.parametrize(
    ("dtype", "result"), [("float16", "float16"), ("float16", "float32"), ("int8", "int32")]
)
def test_rows_with_an_initial_zero(
    gpu: StandIn, dtype: str, result: str, rows: int, columns: int, initial: Any
) -> None:
    x = np.random.default_rng(3).integers(-9, 10, (rows, columns)).astype(dtype)
    plan = tcusim.plan(
        "segmented_cumsum",
        length=x.size,
        segment_size=columns,
        dtype=dtype,
        result=result,
        reverse=initial == "last",
    )
    scan, zeros = plan(x), np.zeros((rows, 1), result)
    expected = np.concatenate([zeros, scan] if initial == "first" else [scan, zeros], axis=1)
    session, shape = session_of(gpu, plan), (rows, columns + 1)
    made = session.run({"in": OnGpu(x)}, shape=shape, initial=initial)
    assert made.values.tobytes() == expected.tobytes()
    # Before and behind the result, nothing may be written.
    poison = np.full(expected.size + 20, -1 if result == "int32" else np.nan, result)
    around = OnGpu(poison)
    start = around.values.ctypes.data + 10 * poison.itemsize
    out = OnGpu(expected, data=(start, False))
    assert session.run({"in": OnGpu(x)}, out=out, shape=shape, initial=initial) is out
    assert around.values[10:-10].tobytes() == expected.tobytes()
    for edge in (slice(10), slice(-10, None)):
        assert around.values[edge].tobytes() == poison[edge].tobytes()


@pytest.mark.parametrize(
    ("rows", "result", "initial", "copied"),
    [
        (1, "float16", "first", True),
        (1, "float32", "first", True),
        (1, "float16", "last", False),
        (1, "float32", "last", False),
        (2, "float16", "last", True),
    ],
)
def test_one_row_is_scanned_where_it_belongs(
    gpu: StandIn, rows: int, result: str, initial: Any, copied: bool
) -> None:
    x = OnGpu(X.reshape(rows, -1), stream=3)
    columns = X.size // rows
    plan = tcusim.plan(
        "segmented_cumsum",
        length=X.size,
        segment_size=columns,
        result=result,
        options={"algorithm": "scan_tn"},
    )
    out = OnGpu(np.full((rows, columns + 1), np.nan, result), stream=5)
    session_of(gpu, plan).run({"in": x}, out=out, shape=out.values.shape, initial=initial)
    # All on one stream, which waits for the others before, and they for it afterwards.
    item = out.values.itemsize
    copy = [f"copy {rows} x {columns * item} bytes on 3"] if copied else []
    done = [f"launch {rows} x 32 on 3", *copy, f"clear {rows} x {item} bytes on 3"]
    others = (5, 0) if copied else (5,)
    notes, count = gpu.driver.notes, len(others)
    assert notes[count:-count] == done
    assert set(notes[:count]) == {f"3 waits for {other}" for other in others}
    assert set(notes[-count:]) == {f"{other} waits for 3" for other in others}
    assert gpu.made == copied


@pytest.fixture
def quick(gpu: StandIn, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """Let the stand-in launch in the primary context, for arrays of a stand-in for CuPy."""
    monkeypatch.setitem(sys.modules, "cupy", Cupy)
    monkeypatch.setattr(Cupy, "stream", SimpleNamespace(ptr=3))
    monkeypatch.setattr(StandIn, "in_primary_context", True)
    monkeypatch.setattr(launch_session, "place_of", counted(gpu, launch_session.place_of))
    return gpu


def counted(gpu: StandIn, place_of: Any) -> Any:
    """Return a function that counts in `gpu.long_ways`."""

    def count(arrays: Any) -> Any:
        gpu.long_ways += 1
        return place_of(arrays)

    gpu.long_ways = 0
    return count


def test_a_call_like_an_earlier_one_takes_the_short_way(quick: StandIn) -> None:
    session = quick.prepare(in_chunks(result="f32"), "hopper")
    for number, x in enumerate((LONG, LONG[::-1], -LONG)):
        given = {"in": Cupy.ndarray(aligned(x))}
        expected = chunked(result="f32", x=x)
        made = session.run(given, shape=LONG.shape)
        assert made.values.tobytes() == expected.tobytes()
        out = Cupy.ndarray(aligned(np.full(LONG.size, np.nan, np.float32)))
        assert session.run(given, out=out, shape=LONG.shape, stream=3) is out
        assert out.values.tobytes() == expected.tobytes()
        assert (quick.long_ways, quick.launches) == (2, 6 * (number + 1))
    assert all("waits" not in note for note in quick.driver.notes)


def test_nothing_is_cleared_on_the_short_way(quick: StandIn) -> None:
    session = prepared(quick, result="float32", algorithm="scan_single_pass")
    for _ in range(3):
        session.run({"in": Cupy.ndarray(aligned(LONG))}, shape=LONG.shape)
    assert quick.long_ways == 1
    clear, *launches = quick.driver.notes
    assert clear.startswith("clear")
    assert launches == 3 * ["launch 7 x 32 on 3"]


FEW = LONG[:2048]


def few(gpu: StandIn, **options: Any) -> Any:
    """Return a session for an array like FEW, of one launch."""
    plan = tcusim.plan("cumsum", length=FEW.size, **asked(algorithm="scan_tn", **options))
    return session_of(gpu, plan)


def test_the_short_way_in_place(quick: StandIn) -> None:
    session = few(quick)
    expected = tcusim.cumsum(FEW, options={"algorithm": "scan_tn"})
    apart = Cupy.ndarray(aligned(np.zeros_like(FEW)))
    for _ in range(2):
        quick.texts.clear()
        x = Cupy.ndarray(aligned(FEW))
        assert session.run({"in": x}, out=apart, shape=FEW.shape) is apart
        assert session.run({"in": x}, out=x, shape=FEW.shape) is x
        assert x.values.tobytes() == apart.values.tobytes() == expected.tobytes()
    assert (quick.long_ways, quick.texts) == (2, [])


def test_what_does_not_take_the_short_way(quick: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    session, shape = few(quick, result="float32"), FEW.shape
    x, out = (Cupy.ndarray(aligned(v)) for v in (FEW, np.zeros(FEW.size, np.float32)))

    def long_ways(**options: Any) -> int:
        before = quick.long_ways
        options = {"inputs": {"in": x}, "out": out, "shape": shape} | options
        session.run(**options)
        return int(quick.long_ways - before)

    assert [long_ways() for _ in range(3)] == [1, 0, 0]
    assert long_ways(stream=4) == 1
    assert long_ways(inputs={"in": OnGpu(FEW)}) == 1
    assert long_ways(out=OnGpu(out.values)) == 1
    assert long_ways(out=None) == 1
    assert long_ways(out=Cupy.ndarray(aligned(np.zeros((1, *shape), "f4"))), shape=(1, *shape)) == 1
    assert long_ways(inputs={"in": Cupy.ndarray(x.values.reshape(1, -1))}) == 1
    monkeypatch.setattr(Cupy, "stream", SimpleNamespace(ptr=5))
    assert [long_ways(), long_ways()] == [1, 0]
    # A call that named a stream has prepared its launches.
    monkeypatch.setattr(Cupy, "stream", SimpleNamespace(ptr=4))
    assert long_ways() == 0


def calls_of_ours(call: Callable[[], object]) -> int:
    """Return the Python calls of functions of tcusim_cuda, comprehensions included."""
    counted = 0

    def count(frame: Any, event: str, given: object) -> None:
        nonlocal counted
        counted += event == "call" and "tcusim_cuda" in frame.f_code.co_filename

    sys.setprofile(count)
    try:
        call()
    finally:
        sys.setprofile(None)
    return counted


@pytest.mark.parametrize(
    ("kind", "most", "most_into_out"), [(Cupy.ndarray, 18, 16), (OnGpu, 75, 80)]
)
def test_a_warm_call_takes_few_steps(
    quick: StandIn, kind: Any, most: int, most_into_out: int
) -> None:
    session, x, out = few(quick), kind(aligned(FEW)), kind(aligned(np.zeros_like(FEW)))

    def into_out() -> None:
        session.run({"in": x}, out=out, shape=FEW.shape)

    def into_a_new_array() -> None:
        session.run({"in": x}, shape=FEW.shape)

    for call, allowed in ((into_a_new_array, most), (into_out, most_into_out)):
        call()
        assert calls_of_ours(call) <= allowed


def test_a_session_that_nobody_keeps_goes_at_once(quick: StandIn) -> None:
    session = prepared(quick, result="float32", algorithm="scan_single_pass")
    for _ in range(2):
        session.run({"in": Cupy.ndarray(aligned(LONG))}, shape=LONG.shape)
    gone = weakref.ref(session)
    gc.disable()
    try:
        del session
        assert gone() is None
    finally:
        gc.enable()


def test_another_current_context_is_no_reason_for_the_long_way(quick: StandIn) -> None:
    session = few(quick)
    x = Cupy.ndarray(aligned(FEW))
    expected = session.run({"in": x}, shape=FEW.shape).values.tobytes()
    quick.driver.context = 8
    assert session.run({"in": x}, shape=FEW.shape).values.tobytes() == expected
    lane = session.lane((x,), FEW.shape)
    assert lane(x).values.tobytes() == expected
    assert (quick.launches, quick.long_ways, quick.driver.context) == (3, 1, 8)


def test_what_is_refused_after_a_right_call(quick: StandIn) -> None:
    session, shape = few(quick, result="float32"), FEW.shape
    x, out = (Cupy.ndarray(aligned(v)) for v in (FEW, np.zeros(FEW.size, np.float32)))
    session.run({"in": x}, out=out, shape=shape)
    both = aligned(np.zeros(2 * FEW.size, np.float32))
    half = both.view(np.float16)
    for given, to, said in (
        (half[: FEW.size], both[8 : 8 + FEW.size], "out overlaps a in memory"),
        (half[: 2 * FEW.size : 2], out.values, "a has gaps"),
        (x.values, FEW, "out must be an array of float32"),
        (out.values, out.values, "a must be of float16"),
        (aligned(FEW, shift=1), out.values, "a begins at address"),
    ):
        with pytest.raises(InputError, match=said):
            session.run({"in": Cupy.ndarray(given)}, out=Cupy.ndarray(to), shape=shape)
    assert quick.launches == 1


def test_a_failure_on_the_short_way_is_explained(quick: StandIn) -> None:
    session = few(quick)
    given = {"in": Cupy.ndarray(aligned(FEW))}
    session.run(given, shape=FEW.shape)
    quick.fails = ZeroDivisionError("no")
    with pytest.raises(LaunchError, match=r"stand-in: Plan\(.*scan_tn was to run as 1 blocks"):
        session.run(given, shape=FEW.shape)
    assert quick.long_ways == 1


def test_a_lane_launches_on_arrays_like_earlier_ones(
    quick: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = prepared(quick, result="float32", algorithm="scan_single_pass")
    first = Cupy.ndarray(aligned(LONG))
    assert session.lane((first,), LONG.shape) is None
    expected = session.run({"in": first}, shape=LONG.shape).values.tobytes()
    lane = session.lane((first,), LONG.shape)
    assert lane(first).values.tobytes() == expected
    assert quick.long_ways == 1
    assert quick.driver.notes[1:] == 2 * ["launch 7 x 32 on 3"]
    # What it is not for is not launched, and left to the general way.
    apart = aligned(np.zeros(2 * LONG.size, np.float16))
    for other in (aligned(LONG, shift=16), apart[::2]):
        assert lane(Cupy.ndarray(other)) is None
    with monkeypatch.context() as patch:
        patch.setattr(Cupy, "stream", SimpleNamespace(ptr=5))
        assert lane(first) is None
    assert quick.launches == 2
    # Each stream on which it has run has its way.
    with monkeypatch.context() as patch:
        patch.setattr(Cupy, "stream", SimpleNamespace(ptr=5))
        session.run({"in": first}, shape=LONG.shape)
        assert lane(first).values.tobytes() == expected
    assert (quick.launches, quick.long_ways) == (4, 2)
    quick.fails = ZeroDivisionError("no")
    with pytest.raises(LaunchError, match=r"scan_single_pass was to run as"):
        lane(first)
