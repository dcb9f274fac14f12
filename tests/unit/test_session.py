"""Plans on a GPU: launches on one stream, memory between them, and prepared launches."""

from __future__ import annotations

import functools
import gc
import re
import sys
import weakref
from collections.abc import Callable, Iterator
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
from launch_plans import forget_plans
from tcusim.arrays.calls import noticed, prepared_of
from tcusim.errors import InputError
from tcusim.plugins import restored
from tcusim.simulate.backend import NUMPY
from tcusim_cuda.emit import emit
from tcusim_cuda.runtime import LaunchError
from tcusim_cuda.session import DeviceLaunch


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
    expected = tcusim.segmented_cumsum(LONG, edges, reverse=True)
    plan = tcusim.plan(
        "segmented_cumsum", length=LONG.size, segments=tcusim.Segments(count=4), reverse=True
    )
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
    plan = tcusim.plan(
        "segmented_cumsum", length=x.size, segments=tcusim.Segments(count=300, longest=longest)
    )
    expected = plan(x, segments=edges)
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
    # The cached memory for status words, and two results.
    assert gpu.made == 1 + 2
    # Each stream has words of its own. The first stream's are let go for the ninth's.
    for streams, cleared in (((*range(1, 9), 1), range(1, 9)), ((0, 0), (0,))):
        gpu.driver.notes.clear()
        for stream in streams:
            session.run({"in": OnGpu(LONG)}, shape=(LONG.size,), stream=stream)
        found = [note for note in gpu.driver.notes if note.startswith("clear")]
        assert found == [f"{clear} {stream}" for stream in cleared]


def test_status_words_of_a_graph_are_cleared_by_each_round(quick: StandIn) -> None:
    scan = quick_plan(result="float32", algorithm="scan_single_pass")
    driver, x = quick.driver, there(LONG)
    driver.capturing.add(3)
    scan(x)
    driver.capturing.clear()
    taken, clear, launch = driver.notes
    assert taken == clear == "clear 256 bytes on 3"
    assert launch.startswith("launch")
    # Captured work has not run: calls on the stream find the memory as before.
    driver.notes.clear()
    scan(x)
    scan(x, stream=3)
    assert driver.notes == 2 * [clear, launch]
    # Two of the calls were prepared launches.
    assert quick.long_ways == 1
    # A graph of a stream that has had a call before holds launches alone.
    driver.notes.clear()
    scan(x, stream=4)
    driver.capturing.add(4)
    scan(x, stream=4)
    clears = [note for note in driver.notes if note.startswith("clear")]
    assert clears == ["clear 256 bytes on 4"]


def test_a_plan_takes_arrays_of_any_shape(gpu: StandIn) -> None:
    x = LONG[: 64 * 64].reshape(64, 64)
    session = session_of(gpu, tcusim.plan("segmented_cumsum", length=x.size, segments=64))
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
        segments=columns,
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
        segments=columns,
        result=result,
        options={"algorithm": "scan_tn"},
    )
    out = OnGpu(np.full((rows, columns + 1), np.nan, result), stream=5)
    session_of(gpu, plan).run({"in": x}, out=out, shape=out.values.shape, initial=initial)
    # All on one stream: it waits for the others before, and they for it afterwards.
    item = out.values.itemsize
    copy = [f"copy {rows} x {columns * item} bytes on 3"] if copied else []
    done = [f"launch {rows} x 32 on 3", *copy, f"clear {rows} x {item} bytes on 3"]
    others = (5, 0) if copied else (5,)
    notes, count = gpu.driver.notes, len(others)
    assert notes[count:-count] == done
    assert set(notes[:count]) == {f"3 waits for {other}" for other in others}
    assert set(notes[-count:]) == {f"{other} waits for 3" for other in others}
    assert gpu.made == copied


# --- Prepared launches --------------------------------------------------------------------------


FEW = LONG[:2048]


@pytest.fixture
def quick(gpu: StandIn, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    """Let the stand-in launch in the primary context, for arrays of a stand-in for CuPy."""
    monkeypatch.setitem(sys.modules, "cupy", Cupy)
    monkeypatch.setattr(StandIn, "in_primary_context", True)
    forget_plans()
    with restored():
        tcusim.register_backend(gpu)
        yield gpu
    forget_plans()


def there(values: Any) -> Any:
    return Cupy.ndarray(aligned(values))


def quick_plan(x: Any = LONG, **options: Any) -> Any:
    """Return a plan of a scan of an array like one on the computer."""
    return tcusim.plan("cumsum", length=x.size, **asked(backend="stand-in", **options))


def few(**options: Any) -> Any:
    """Return a plan for an array like FEW, of one launch."""
    return quick_plan(FEW, algorithm="scan_tn", **options)


def on(stream: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a stream be the library's current one."""
    monkeypatch.setattr(Cupy, "stream", SimpleNamespace(ptr=stream))


def test_a_call_like_an_earlier_one_only_launches(quick: StandIn) -> None:
    scan = quick_plan(result="float32")
    count = len(scan.launches)
    for number, x in enumerate((LONG, LONG[::-1], -LONG)):
        expected = tcusim.cumsum(x, dtype="float32").tobytes()
        assert scan(there(x)).values.tobytes() == expected
        out = there(np.full(LONG.size, np.nan, np.float32))
        assert scan(there(x), out=out, stream=3) is out
        assert out.values.tobytes() == expected
        assert (quick.long_ways, quick.launches) == (2, 2 * count * (number + 1))
    assert all("waits" not in note for note in quick.driver.notes)


def test_a_prepared_launch_clears_nothing(quick: StandIn) -> None:
    scan = quick_plan(result="float32", algorithm="scan_single_pass")
    for _ in range(3):
        scan(there(LONG))
    assert quick.long_ways == 1
    clear, *launches = quick.driver.notes
    assert clear.startswith("clear")
    assert launches == 3 * ["launch 7 x 32 on 3"]


def test_a_prepared_launch_in_place(quick: StandIn) -> None:
    scan, apart = few(), there(np.zeros_like(FEW))
    expected = tcusim.cumsum(FEW, options={"algorithm": "scan_tn"}).tobytes()
    for _ in range(2):
        quick.texts.clear()
        x = there(FEW)
        assert scan(x, out=apart) is apart
        assert scan(x, out=x) is x
        assert x.values.tobytes() == apart.values.tobytes() == expected
    assert (quick.long_ways, quick.texts) == (2, [])


def test_calls_that_are_not_like_earlier_ones(
    quick: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan, x, out = few(result="float32"), there(FEW), there(np.zeros(FEW.size, np.float32))

    def long_ways(x: Any = x, out: Any = out, **options: Any) -> int:
        before = quick.long_ways
        scan(x, out=out, **options)
        return quick.long_ways - before

    assert [long_ways() for _ in range(3)] == [1, 0, 0]
    assert [long_ways(stream=4) for _ in range(2)] == [1, 1]
    assert long_ways(OnGpu(FEW)) == 1
    assert long_ways(out=OnGpu(out.values)) == 1
    assert [long_ways(out=None) for _ in range(2)] == [1, 0]
    row = there(FEW[None])
    assert [long_ways(row, there(out.values[None])) for _ in range(2)] == [1, 0]
    on(5, monkeypatch)
    assert [long_ways(), long_ways()] == [1, 0]
    # A call that named a stream has prepared its launches.
    on(4, monkeypatch)
    assert [long_ways(), long_ways(stream=4)] == [0, 0]


def calls_of_ours(call: Callable[[], object]) -> int:
    """Return the Python calls of tcusim's functions, comprehensions included."""
    counted = 0

    def count(frame: Any, event: str, given: object) -> None:
        nonlocal counted
        counted += event == "call" and "tcusim" in frame.f_code.co_filename

    # Objects collected meanwhile are not the call's.
    gc.disable()
    sys.setprofile(count)
    try:
        call()
    finally:
        sys.setprofile(None)
        gc.enable()
    return counted


@pytest.mark.parametrize(("kind", "most", "most_into_out"), [(there, 12, 18), (OnGpu, 107, 131)])
def test_a_warm_call_takes_few_steps(
    quick: StandIn, monkeypatch: pytest.MonkeyPatch, kind: Any, most: int, most_into_out: int
) -> None:
    monkeypatch.setattr(StandIn, "launch", lambda *given: None)
    scan, x, out = few(), kind(FEW), kind(np.zeros_like(FEW))
    calls: list[tuple[Callable[[], object], int]] = [
        (lambda: scan(x), most),
        (lambda: scan(x, out=out), most_into_out),
    ]
    for call, allowed in calls:
        call()
        call()
        assert calls_of_ours(call) <= allowed


def test_a_warm_call_takes_as_few_steps_with_segments_and_initial_values(
    quick: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch, cold = StandIn.launch, [True]
    monkeypatch.setattr(StandIn, "launch", lambda *given: launch(*given) if cold else None)
    options, x = tcusim.Options(backend="stand-in"), there(FEW)
    edges = np.arange(0, FEW.size + 1, 64)
    first = there(np.zeros(FEW.size // 64, np.float32))
    sums = functools.partial(tcusim.segmented_sum, options=options)
    scans = functools.partial(tcusim.segmented_cumsum, dtype="float32", options=options)
    by_size, scan_by_size = (lambda: sums(x, 64)), (lambda: scans(x, 64))
    kept = [
        *(tcusim.Segments(there(edges), check=check) for check in (True, False)),
        tcusim.Segments(edges),
        tcusim.Segments(lengths=[64] * (FEW.size // 64)),
        tcusim.Segments(there(edges.astype(np.int32))),
    ]
    rows: list[tuple[Callable[[], object], Callable[[], object], int]] = [
        *((functools.partial(sums, x, segments), by_size, 1) for segments in kept),
        (lambda: scans(x, 64, initial=2.0), scan_by_size, 2),
        (lambda: scans(x, 64, initial=first), scan_by_size, 6),
        (lambda: tcusim.sum(x, options=options), by_size, 0),
    ]
    for call, like, _ in rows * 2:
        call(), like()
    cold.clear()
    before = quick.long_ways
    for number, (call, like, more) in enumerate(rows):
        call(), like()
        counted = calls_of_ours(like)
        assert counted <= 20
        assert calls_of_ours(call) <= counted + more, number
    assert quick.long_ways == before


def test_initial_values_are_kept_for_a_number_that_is_given_again(
    quick: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = there(FEW)

    def waits(number: float) -> int:
        expected = tcusim.cumsum(FEW, dtype="float32", initial=number)
        quick.driver.notes.clear()
        options = {"backend": "stand-in"}
        found = tcusim.cumsum(x, dtype="float32", initial=number, options=options)
        assert found.values.tobytes() == expected.tobytes()
        return sum(note.startswith("wait") for note in quick.driver.notes)

    assert [waits(2.0) for _ in range(4)] == [0, 1, 0, 0]
    # Distinct numbers wait for nothing, however many there are; 0.0 and -0.0 are two.
    assert [waits(float(number)) for number in range(3, 30)] == [0] * 27
    assert [waits(number) for number in (0.0, -0.0, 0, True)] == [0] * 4
    assert [waits(2.0), waits(5.5), waits(5.5), waits(5.5)] == [0, 0, 1, 0]
    # Memory that is allocated in a capture is the graph's.
    quick.driver.capturing.add(3)
    assert [waits(7.5) for _ in range(3)] == [0, 0, 0]
    quick.driver.capturing.clear()
    assert [waits(7.5) for _ in range(2)] == [1, 0]


def test_a_call_of_a_new_shape_takes_few_steps(
    quick: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StandIn, "launch", lambda *given: None)
    counts = []
    for length in (4112, 4128):
        x = there(LONG[:length])
        sums = functools.partial(tcusim.sum, x, options={"backend": "stand-in"})
        counts.append(calls_of_ours(sums))
    # Its kernels are those of the first. The rest is a plan, a session and checks.
    assert counts[-1] <= 490


@pytest.mark.usefixtures("quick")
def test_a_prepared_launch_is_that_of_a_call_on_the_array_itself() -> None:
    x, options = there(FEW), {"backend": "stand-in"}
    with noticed() as ran:
        assert tcusim.sum(x, options=options).values == FEW.sum()
    launch = prepared_of(ran[0], there(-FEW))
    assert launch is not None
    assert launch(there(-FEW)).values == -FEW.sum()
    # A caller that has summed a part, or a copy of another type or shape, asks with its own array.
    for other in (FEW[:1024], FEW.reshape(2, -1), FEW.astype(np.float32), FEW[::-1]):
        assert prepared_of(ran[0], Cupy.ndarray(other)) is None
    square = there(FEW[:1024].reshape(32, 32))
    with noticed() as ran:
        tcusim.matmul(square, square, options=options)
    assert prepared_of(ran[0], square) is None


def test_every_kind_of_call_has_a_prepared_launch(quick: StandIn) -> None:
    rng, options = np.random.default_rng(4), {"backend": "stand-in"}
    a, b = (there(rng.integers(-3, 4, (32, 32)).astype(np.float16)) for _ in range(2))
    c, x = there(np.ones((32, 32), np.float32)), there(FEW[:32])
    edges, first = there(np.array([0, 9, 9, 32])), there(np.ones(32, np.float32))
    calls: tuple[Callable[[], Any], ...] = (
        lambda: tcusim.sum(a, axis=1, options=options),
        lambda: tcusim.cumsum(a, axis=1, dtype="float32", initial=first, options=options),
        lambda: tcusim.cumsum(a, axis=1, dtype="float32", initial=2.0, options=options),
        lambda: tcusim.segmented_sum(x, edges, options=options),
        lambda: tcusim.segmented_cumsum(x, edges, options=options),
        lambda: tcusim.segmented_sum(x, 8, options=options),
        lambda: tcusim.matmul(a, b, options=options),
        lambda: tcusim.matmul(a, b, c, dtype="float32", options=options),
        lambda: tcusim.matvec(a, x, options=options),
    )
    for number, call in enumerate(calls):
        expected = call().values.tobytes()
        with noticed() as ran:
            assert call().values.tobytes() == expected
        assert [type(launch) for one in ran for launch in one.launches.values()] == [
            DeviceLaunch
        ], number


def test_a_session_that_nobody_keeps_goes_at_once(quick: StandIn) -> None:
    scan = quick_plan(result="float32", algorithm="scan_single_pass")
    for _ in range(2):
        scan(there(LONG))
    gone = weakref.ref(scan.session_on(quick))
    gc.disable()
    try:
        del scan
        forget_plans()
        assert gone() is None
    finally:
        gc.enable()


def test_another_current_context_is_no_reason_for_the_long_way(quick: StandIn) -> None:
    scan, x = few(), there(FEW)
    expected = scan(x).values.tobytes()
    quick.driver.context = 8
    assert scan(x).values.tobytes() == expected
    assert (quick.launches, quick.long_ways, quick.driver.context) == (2, 1, 8)


def test_what_is_refused_after_a_right_call(quick: StandIn) -> None:
    scan, x = few(result="float32"), there(FEW)
    out = there(np.zeros(FEW.size, np.float32))
    scan(x, out=out)
    both = aligned(np.zeros(2 * FEW.size, np.float32))
    half = both.view(np.float16)
    for given, to, said in (
        (half[: FEW.size], both[8 : 8 + FEW.size], "out overlaps a in memory"),
        (x.values, FEW, "out must be an array of float32"),
        (out.values, out.values, "this plan takes 2048 elements of float16, got 2048 of float32"),
    ):
        with pytest.raises(InputError, match=said):
            scan(Cupy.ndarray(given), out=Cupy.ndarray(to))
    assert quick.launches == 1


def test_a_failure_of_a_prepared_launch_is_explained(quick: StandIn) -> None:
    scan = few()
    scan(there(FEW))
    quick.fails = ZeroDivisionError("no")
    with pytest.raises(LaunchError, match=r"stand-in: Plan\(.*scan_tn was to run as 1 blocks"):
        scan(there(FEW))
    assert quick.long_ways == 1


def test_a_prepared_launch_leaves_other_arrays_and_streams_to_the_session(
    quick: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = prepared(quick, result="float32", algorithm="scan_single_pass")
    first = there(LONG)
    expected = session.run({"in": first}, shape=LONG.shape).values.tobytes()
    launch = session.prepared_launch({"in": first}, None, LONG.shape)
    assert launch(first).values.tobytes() == expected
    assert quick.driver.notes[1:] == 2 * ["launch 7 x 32 on 3"]
    apart = aligned(np.zeros(2 * LONG.size, np.float16))
    for other in (aligned(LONG, shift=16), apart[::2]):
        assert launch(Cupy.ndarray(other)) is None
    on(5, monkeypatch)
    assert launch(first) is None
    assert quick.launches == 2
    # Each stream of the session has its launches.
    session.run({"in": first}, shape=LONG.shape)
    assert launch(first).values.tobytes() == expected
    assert (quick.launches, quick.long_ways) == (4, 2)
    # Of several libraries, and of unknown ones, there is none.
    for inputs, out in (({"in": OnGpu(LONG)}, None), ({"in": first}, OnGpu(LONG))):
        assert session.prepared_launch(inputs, out, LONG.shape) is None
