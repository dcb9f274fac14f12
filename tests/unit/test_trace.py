"""Traces: the kept steps of a run equal the interpreter's, within bounds."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import tcusim
from stepped import frames, small_program
from tcusim.algorithms import algorithms
from tcusim.errors import InputError
from tcusim.program.grammar import accesses
from tcusim.simulate.counts import Counts
from tcusim.stepper.frames import Frame, default_inputs
from tcusim.stepper.trace import Trace, trace


def same(one: Frame, two: Frame) -> bool:
    """Return whether two frames tell the same, to the bit; one may come from a file."""
    heads = [(f.number, f.path, f.kind, f.line, dict(f.loops), f.warp) for f in (one, two)]
    if heads[0] != heads[1] or len(one.writes) != len(two.writes):
        return False
    pairs = zip((*one.reads, *one.writes), (*two.reads, *two.writes), strict=True)
    for left, right in pairs:
        names = ("label", "part", "dtype", "where", "note", "ranges")
        if any(getattr(left, name) != getattr(right, name) for name in names):
            return False
        for name in ("values", "before", "places", "inside", "changed"):
            arrays = getattr(left, name), getattr(right, name)
            if (arrays[0] is None) != (arrays[1] is None):
                return False
            if arrays[0] is not None and arrays[0].tobytes() != arrays[1].tobytes():
                return False
    return True


@pytest.mark.parametrize("name", [row.name for row in algorithms()])
def test_numbers_are_those_of_the_interpreter(name: str) -> None:
    program = small_program(name)
    inputs = default_inputs(program)
    chosen = program.warps - 1
    kept = trace(program, inputs, arch="volta", warps=chosen)
    shown, warp = iter(kept), np.array([chosen])
    for event in tcusim.interpret(program, inputs, arch="volta"):
        if chosen not in event.warps:
            continue
        frame = next(shown)
        assert (frame.path, dict(frame.loops)) == (event.path, dict(event.loops))
        touched = accesses(event.step)
        for frag, tile in zip(touched.frags_written, frame.writes, strict=False):
            assert tile.values.tobytes() == event.state.fragment(frag, warp)[0].tobytes()
        if frame.kind == "locate":
            continue
        read = [tile for tile in frame.reads if tile.places is not None]
        for view, tile in zip(touched.views_read, read, strict=True):
            assert tile.values.tobytes() == event.state.read(view, warp)[0].tobytes()
            assert tile.places is not None
            inside, places = tile.inside, event.state.places(view, warp)[0]
            assert np.array_equal(tile.places[inside], places[inside])
    assert kept.ran[chosen] == len(kept)
    assert kept.left_out == ""
    assert next(shown, None) is None


def test_ranges_are_what_is_touched() -> None:
    kept = trace(tcusim.build("scan_256n"), {"in": np.ones(2048, np.float16)}, warps=1)
    loads = [frame for frame in kept if frame.path == "5.1"]
    assert [frame.reads[0].buffer for frame in loads] == ["in"] * 4
    begins = [1024 + 256 * i for i in range(4)]
    assert [frame.reads[0].ranges for frame in loads] == [((b, b + 256),) for b in begins]
    last = next(frame for frame in kept if frame.path == "5.15")
    assert last.reads[0].ranges == ((255, 256),)
    # A fragment is nowhere in memory.
    assert loads[0].writes[0].ranges == ()
    assert loads[0].writes[0].buffer == ""


def test_ranges_of_columns_have_gaps() -> None:
    kept = trace(tcusim.build("reduction_16", masked=True), {"in": np.ones(250, np.float16)})
    edge = next(f.reads[0] for f in kept if f.reads and not f.reads[0].inside.all())
    assert all(0 <= begin < end <= 250 for begin, end in edge.ranges)
    assert (
        sum(end - begin for begin, end in edge.ranges)
        == np.unique(edge.places[edge.inside] if edge.places is not None else []).size
    )


def test_counts_are_those_of_the_whole_run() -> None:
    program = tcusim.build("scan_256n")
    inputs = {"in": np.ones(4096, np.float16)}
    counts = Counts()
    for event in tcusim.interpret(program, inputs):
        counts(event)
    assert trace(program, inputs, last=2).counts == counts
    assert counts.mma == 48


@pytest.mark.parametrize("name", ["scan_256n", "scan_tn_block", "reduction_tn_block"])
@pytest.mark.parametrize("first", [2, 7, 9, 13, 21])
def test_a_window_shows_what_the_whole_trace_shows(name: str, first: int) -> None:
    program = tcusim.build(name)
    inputs = default_inputs(program)
    whole = trace(program, inputs, blocks=0)
    part = trace(program, inputs, blocks=0, first=first, last=first + 8)
    expected = [frame for frame in whole if first <= frame.number <= first + 8]
    assert len(part) == len(expected) == 9 * program.warps
    assert all(map(same, part, expected))
    assert part.ran == whole.ran


def test_warps_and_blocks_add_up() -> None:
    program = tcusim.build("reduction_tn_block")
    inputs = {"in": np.ones(3 * program.blocks.per, np.float16)}
    kept = trace(program, inputs, warps=[0], blocks=[2])
    assert kept.warps == (0, *range(2 * program.warps, 3 * program.warps))
    for warp in kept.warps:
        assert all(map(same, kept.of(warp), frames(program, inputs, warp=warp)))


def test_what_is_left_out_is_said() -> None:
    program = tcusim.build("scan_256n")
    inputs = default_inputs(program)
    assert trace(program, inputs, first=3, last=10).left_out == (
        "8 of 72 steps are kept: the window is steps 3 to 10. Choose others with first= and "
        "last=, or fewer warps, or a larger limit."
    )
    kept = trace(program, inputs, limit=5)
    assert len(kept) == 5
    assert kept.left_out.startswith("5 of 72 steps are kept: the last 67 exceed the limit.")
    assert "the last 3 exceed" in trace(program, inputs, first=3, last=10, limit=5).left_out
    assert len(trace(program, inputs, first=100)) == 0


def test_memory_is_bounded_by_the_limit() -> None:
    few, many = (tcusim.build("scan_256n", segment_size=256 * n) for n in (20, 60))
    rng = np.random.default_rng(0)
    sizes = [
        trace(p, {"in": rng.random(p.blocks.per).astype(np.float16)}, limit=200).store.nbytes
        for p in (few, many)
    ]
    assert sizes[0] == pytest.approx(sizes[1], rel=0.1)


def test_a_trace_calls_little_more_than_interpreting() -> None:
    """Calls measure the cost of keeping a step, on a busy machine too."""
    program = tcusim.build("scan_256n", segment_size=256 * 20)
    inputs = default_inputs(program)

    def calls(run: Any) -> int:
        count = 0

        def tell(_frame: Any, event: str, _arg: Any) -> None:
            nonlocal count
            count += event in ("call", "c_call")

        before = sys.getprofile()
        sys.setprofile(tell)
        try:
            run()
        finally:
            sys.setprofile(before)
        return count

    def interpreted() -> int:
        return sum(1 for _ in tcusim.interpret(program, inputs))

    # A second search finds the same.
    steps = interpreted()
    trace(program, inputs)
    least = calls(interpreted)
    for limit, bound in ((100, 45), (10_000, 108)):
        more = calls(lambda limit=limit: trace(program, inputs, limit=limit)) - least
        assert more < bound * steps


# --- Finding a step ---------------------------------------------------------------------------


def test_find_goes_both_ways() -> None:
    program = tcusim.build("scan_tn_block", warps=2)
    kept = trace(program, default_inputs(program), blocks=0)
    products = [index for index, frame in enumerate(kept) if frame.kind == "mma"]
    assert kept.find("mma") == products[0]
    assert kept.find("mma", products[0] + 1) == products[1]
    assert kept.find("mma", backwards=True) == products[-1]
    assert kept.find("mma", products[3] - 1, backwards=True) == products[2]
    assert kept.find("mma", products[-1] + 1) is None
    of_one = [index for index in products if kept[index].warp == 1]
    assert kept.find("mma", warp=1) == of_one[0]
    found = kept.find(lambda frame: frame.warp == 1 and frame.number == 5)
    assert found is not None
    assert (kept[found].warp, kept[found].number) == (1, 5)
    with pytest.raises(InputError, match="there is no warp 7; the trace has warps 0, 1"):
        kept.find("mma", warp=7)
    with pytest.raises(InputError, match="unknown breakpoint 'mam'"):
        kept.find("mam")


# --- Files ------------------------------------------------------------------------------------


@pytest.fixture(name="kept", scope="module")
def kept_trace() -> Trace:
    program = tcusim.build("scan_256", masked=True)
    return trace(program, {"in": np.arange(250).astype(np.float16)}, arch="volta")


def test_a_saved_trace_is_read_back(kept: Trace, tmp_path: Any) -> None:
    path = tmp_path / "scan.trace"
    kept.save(path)
    read = Trace.load(path)
    assert all(map(same, kept, read))
    assert (read.about, read.counts, read.ran) == (kept.about, kept.counts, kept.ran)
    assert (read.warps, read.first, read.last) == (kept.warps, kept.first, kept.last)
    read.save(tmp_path / "again.trace")
    assert (tmp_path / "again.trace").read_bytes() == path.read_bytes()


@pytest.mark.parametrize(("ab", "acc"), [("bf16", "f32"), ("s8", "s32"), ("f64", "f64")])
def test_every_kind_of_number_is_saved(ab: str, acc: str, tmp_path: Any) -> None:
    tile = {"f64": "8x8x4"}.get(ab, "16x16x16")
    program = tcusim.build("reduction_k", tile=tile, ab=ab, acc=acc)
    kept = trace(program, default_inputs(program), arch="ampere")
    kept.save(tmp_path / "x")
    assert all(map(same, kept, Trace.load(tmp_path / "x")))


def test_a_trace_is_compact(tmp_path: Any) -> None:
    program = tcusim.build("scan_256n")
    trace(program, default_inputs(program)).save(tmp_path / "x")
    assert (tmp_path / "x").stat().st_size < 20_000


def damaged(path: Any, **changes: Any) -> None:
    """Write a trace again with other content."""
    import gzip
    import json

    content = json.loads(gzip.decompress(path.read_bytes()))
    path.write_bytes(gzip.compress(json.dumps(content | changes).encode()))


def test_files_that_cannot_be_read_are_refused(kept: Trace, tmp_path: Any) -> None:
    path = tmp_path / "x.trace"
    with pytest.raises(InputError, match=r"cannot read .*x\.trace: No such file"):
        Trace.load(path)
    path.write_text("no trace")
    with pytest.raises(InputError, match=r"x\.trace is not a trace"):
        Trace.load(path)

    kept.save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-400])
    with pytest.raises(InputError, match=r"x\.trace is a damaged trace"):
        Trace.load(path)

    path.write_bytes(whole)
    damaged(path, version=3)
    with pytest.raises(InputError, match="of version 3, and this tcusim reads those up to 2"):
        Trace.load(path)

    path.write_bytes(whole)
    damaged(path, format="other")
    with pytest.raises(InputError, match="is not a trace"):
        Trace.load(path)


@pytest.mark.parametrize(
    "changes",
    [
        {"tiles": []},
        {"arrays": []},
        {"arrays": [["|O", [1, 1], ""]]},
        {"frames": [[0, 1, "99", "mma", [], [], []]]},
        {"frames": [[5, 1, "1", "mma", [], [], []]]},
        {"frames": [[0, 1, "1", "mma", [], [-1], []]]},
        {"about": {}},
        {"rest": {"warps": [0], "ran": []}},
    ],
)
def test_content_that_does_not_fit_is_refused(
    kept: Trace, tmp_path: Any, changes: dict[str, Any]
) -> None:
    path = tmp_path / "x.trace"
    kept.save(path)
    damaged(path, **changes)
    with pytest.raises(InputError, match=r"x\.trace is a damaged trace"):
        Trace.load(path)


# --- Wrong arguments --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"warps": 1}, "scan_256n: there is no warp 1; the grid has warps 0 to 0"),
        ({"blocks": [0, 4]}, "scan_256n: there is no block 4; the grid has blocks 0 to 0"),
        ({"warps": -1}, "there is no warp -1"),
        ({"warps": "all"}, "warps must be a number or several"),
        ({"warps": [0.5]}, "warps must be whole numbers"),
        ({"first": 0}, "first must be an integer of at least 1, got 0"),
        ({"first": 5, "last": 4}, "last=4 is before first=5"),
        ({"limit": 0}, "limit must be an integer of at least 1"),
    ],
)
def test_what_cannot_be_traced_is_refused(options: dict[str, Any], message: str) -> None:
    program = tcusim.build("scan_256n")
    with pytest.raises(InputError, match=message):
        trace(program, default_inputs(program), **options)


def test_a_warp_that_was_not_watched_is_refused(kept: Trace) -> None:
    with pytest.raises(InputError, match="there is no warp 3; the trace has warp 0"):
        kept.of(3)
    with pytest.raises(IndexError):
        kept[len(kept)]
