"""On a GPU: segments by offsets and products of CuPy's, PyCUDA's and torch's arrays.

The bits are the simulator's for this GPU's architecture.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import tcusim
from asked import asked
from on_gpu import Library, arch, library_of, numbers, require_bits
from tcusim.arrays.segments import facts_of
from tcusim.backends import get_backend
from tcusim.errors import InputError

pytestmark = pytest.mark.gpu(min_sm=70)

TYPES = ("float16", "float32", "float64", "int8")


@pytest.fixture(
    params=[("cupy", "cupy"), ("torch", "cuda"), ("torch", "pycuda"), ("pycuda", "pycuda")],
    ids="-".join,
)
def library(request: pytest.FixtureRequest) -> Library:
    return library_of(*request.param)


def drawn(seed: int, giant: int) -> NDArray[np.int64]:
    """Return offsets of empty, tiny and medium segments, and of one giant."""
    rng = np.random.default_rng(seed)
    lengths = [0, giant, 0, *rng.integers(0, 4, 300), *rng.integers(50, 900, 20)]
    return np.concatenate([[0], np.cumsum(rng.permutation(lengths))])


# --- Offsets --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("giant", [0, 5000, 200_000])
def test_offsets(library: Library, dtype: str, giant: int) -> None:
    edges = drawn(giant, giant)
    x = numbers(dtype, int(edges[-1]))
    a, offsets = library.there(x), library.there(edges)
    simulated: dict[str, Any] = {"segments": edges, "arch": arch()}
    total = tcusim.segmented_sum(a, offsets, options={"backend": library.backend})
    library.require_bits(total, tcusim.segmented_sum(x, **asked(**simulated)))
    for exclusive in (False, True):
        order: dict[str, Any] = {"exclusive": exclusive, "reverse": not exclusive}
        scan = tcusim.segmented_cumsum(a, edges, options={"backend": library.backend}, **order)
        library.require_bits(scan, tcusim.segmented_cumsum(x, **asked(**simulated), **order))


def test_offsets_of_int32_and_of_several_rows(library: Library) -> None:
    edges = drawn(1, 3000)
    x = numbers("float16", 3, int(edges[-1]))
    expected = tcusim.segmented_sum(x, edges, options={"arch": arch()})
    a, narrow = library.there(x), library.there(edges.astype(np.int32))
    library.require_bits(
        tcusim.segmented_sum(a, narrow, options={"backend": library.backend}), expected
    )
    row = library.there(x[0])
    if library.name == "pycuda":
        with pytest.raises(InputError, match="GPUArray of int32, which tcusim cannot copy as it n"):
            tcusim.segmented_sum(row, narrow, options={"backend": library.backend})
        return
    library.require_bits(
        tcusim.segmented_sum(row, narrow, options={"backend": library.backend}), expected[0]
    )


@pytest.mark.parametrize("dtype", TYPES)
def test_initial_values_and_ids(library: Library, dtype: str) -> None:
    edges = drawn(3, 5000)
    x = numbers(dtype, int(edges[-1]))
    sums = {"float64": "float64", "int8": "int64"}.get(dtype, "float32")
    values = np.arange(edges.size - 1).astype(sums)
    ids = np.repeat(np.arange(values.size), np.diff(edges))
    simulated: dict[str, Any] = {"arch": arch()}
    expected = tcusim.segmented_cumsum(x, edges, initial=values, **asked(**simulated))
    by_ids = tcusim.Segments(ids=library.there(ids), count=values.size)
    a, initial = library.there(x), library.there(values)
    scan = tcusim.segmented_cumsum(a, by_ids, initial=initial, options={"backend": library.backend})
    library.require_bits(scan, expected)


@pytest.mark.parametrize("length", [20, 5000, 2**24 + 77])
def test_int64_sums_of_int8(library: Library, length: int) -> None:
    x = np.full(length, -128, np.int8)
    x[::5] = 127
    a = library.there(x)
    keywords: dict[str, Any] = {"dtype": "int64", "backend": library.backend}
    library.require_bits(tcusim.sum(a, **asked(**keywords)), x.sum(dtype=np.int64))
    library.require_bits(tcusim.cumsum(a, **asked(**keywords)), x.cumsum(dtype=np.int64))
    scan = tcusim.segmented_cumsum(a, [0, 5, length], initial=2**40, **asked(**keywords))
    expected = np.concatenate([x[:5].cumsum(dtype=np.int64), x[5:].cumsum(dtype=np.int64)]) + 2**40
    library.require_bits(scan, expected)


@pytest.mark.parametrize("length", [20, 1000, 2**22 + 5000])
def test_a_scan_begins_with_an_initial_value(library: Library, length: int) -> None:
    x = numbers("float16", length) / np.float16(32)
    expected = tcusim.cumsum(x, initial=0.3, reverse=True, options={"arch": arch()})
    a = library.there(x)
    # The second call keeps the values of its number in GPU memory, for those after it.
    for _ in range(4):
        scan = tcusim.cumsum(a, initial=0.3, reverse=True, options={"backend": library.backend})
        library.require_bits(scan, expected)


def test_segments_of_many_calls(library: Library) -> None:
    edges, lengths = drawn(5, 5000), np.diff(drawn(5, 5000))
    x = numbers("float16", int(edges[-1]))
    kept = [
        *(tcusim.Segments(library.there(edges), check=check) for check in (True, False)),
        tcusim.Segments(edges),
        tcusim.Segments(lengths=lengths),
    ]
    options = {"backend": library.backend}
    for number in range(4):
        values = np.roll(x, number)
        a = library.there(values)
        sums = tcusim.segmented_sum(values, edges, options={"arch": arch()})
        scans = tcusim.segmented_cumsum(values, edges, options={"arch": arch()})
        for segments in kept:
            library.require_bits(tcusim.segmented_sum(a, segments, options=options), sums)
            library.require_bits(tcusim.segmented_cumsum(a, segments, options=options), scans)
    # Unchecked offsets may change between calls.
    unchecked, swapped = library.there(edges), tcusim.Segments(edges[-1] - edges[::-1])
    sums = tcusim.segmented_sum(x, swapped, options={"arch": arch()})
    segments = tcusim.Segments(unchecked, check=False)
    tcusim.segmented_sum(library.there(x), segments, options=options)
    if library.name != "pycuda":
        unchecked[:] = library.there(np.ascontiguousarray(edges[-1] - edges[::-1]))
        for _ in range(3):
            found = tcusim.segmented_sum(library.there(x), segments, options=options)
            library.require_bits(found, sums)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("size", [7, 32, 1000, 9000, 70_000, 2**22 + 5000])
@pytest.mark.parametrize("dtype", TYPES)
def test_segments_of_one_size_begin_with_initial_values(
    library: Library, dtype: str, size: int, reverse: bool
) -> None:
    """In one launch: its kernel reads them; those on the computer are copied in each call."""
    x = numbers(dtype, size + size // 2)
    sums = {"float64": "float64", "int8": "int64"}.get(dtype, "float32")
    a, options = library.there(x), dict[str, Any](backend=library.backend, reverse=reverse)
    for values in (np.array([100, -3], sums), np.array([-7, 9], sums)):
        expected = tcusim.segmented_cumsum(
            x, size, initial=values, reverse=reverse, options={"arch": arch()}
        )
        for initial in (values, library.there(values)):
            scan = tcusim.segmented_cumsum(a, size, initial=initial, **asked(**options))
            library.require_bits(scan, expected)


def test_unchecked_offsets_and_plans(library: Library) -> None:
    edges = drawn(2, 90_000)
    x = numbers("float16", int(edges[-1]))
    plan = tcusim.plan(
        "segmented_cumsum",
        length=x.size,
        segments=tcusim.Segments(count=edges.size - 1),
        options={"backend": library.backend},
    )
    expected = tcusim.plan(
        "segmented_cumsum",
        length=x.size,
        segments=tcusim.Segments(count=edges.size - 1),
        options={"arch": arch()},
    )(x, segments=edges)
    a, offsets = library.there(x), library.there(edges)
    out = library.there(np.zeros_like(x))
    for check in (True, False):
        assert plan(a, out, segments=tcusim.Segments(offsets, check=check)) is out
        library.require_bits(out, expected)
    result = tcusim.segmented_cumsum(
        a, tcusim.Segments(offsets, check=False), options={"backend": library.backend}
    )
    library.require_bits(result, expected)


def test_unchecked_offsets_do_no_harm(library: Library) -> None:
    x = numbers("float16", 5000)
    a = library.there(x)
    rng = np.random.default_rng(3)
    for _ in range(5):
        bad = library.there(rng.integers(-(10**12), 10**12, 100))
        for function in (tcusim.segmented_sum, tcusim.segmented_cumsum):
            function(a, tcusim.Segments(bad, check=False), options={"backend": library.backend})
    # An access outside the arrays would have ended the context.
    library.require_bits(
        tcusim.sum(a, options={"backend": library.backend}), tcusim.sum(x, options={"arch": arch()})
    )


# --- Checked where they are -----------------------------------------------------------------------

LENGTH = 5000
BAD_OFFSETS: dict[str, list[int]] = {
    "they decrease": [0, 9, 3, 5, 4, LENGTH],
    "the last decreases": [0, LENGTH + 9, LENGTH],
    "they begin late": [1, LENGTH],
    "they begin below 0": [-5, LENGTH],
    "they end early": [0, 7, LENGTH - 1],
    "they end late": [0, 7, LENGTH + 1],
    "no segment": [0],
}


def message_of(call: Callable[[], Any]) -> str:
    with pytest.raises(InputError) as caught:
        call()
    return str(caught.value)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("name", BAD_OFFSETS)
def test_bad_offsets_have_the_messages_of_numpy(library: Library, name: str, dtype: str) -> None:
    x, edges = numbers("float16", LENGTH), np.array(BAD_OFFSETS[name], dtype)
    a, bad = library.there(x), library.there(edges)
    expected = message_of(lambda: tcusim.segmented_sum(x, edges))
    for function in (tcusim.segmented_sum, tcusim.segmented_cumsum):
        on_device: Any = {"segments": bad, "options": {"backend": library.backend}}
        said = message_of(partial(function, a, **on_device))
        assert said == expected
    short = tcusim.plan(
        "segmented_sum", length=LENGTH, segments=tcusim.Segments(count=2, longest=64)
    )
    edges = np.array([0, 4000, LENGTH])
    expected = message_of(lambda: short(x, segments=edges))
    assert message_of(lambda: short(a, segments=library.there(edges))) == expected


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize(
    ("change", "keywords"),
    [
        ((2500, 0), {}),
        ((0, -1), {}),
        ((LENGTH - 1, 10**6), {"count": 70}),
        ((0, 0), {"count": 7}),
        ((0, 0), {"count": 0}),
    ],
)
def test_bad_ids_have_the_messages_of_numpy(
    library: Library, change: tuple[int, int], keywords: dict[str, Any], dtype: str
) -> None:
    x, ids = numbers("float16", LENGTH), (np.arange(LENGTH) // 100).astype(dtype)
    ids[change[0]] = change[1]
    a, bad = library.there(x), library.there(ids)
    expected = message_of(lambda: tcusim.segmented_sum(x, tcusim.Segments(ids=ids, **keywords)))
    there = tcusim.Segments(ids=bad, **keywords)
    own = {"backend": library.backend}
    assert message_of(lambda: tcusim.segmented_sum(a, there, options=own)) == expected


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("size", [1, 2, 256, 2049, 100_000, 5_000_000])
def test_what_integers_are(library: Library, size: int, dtype: str) -> None:
    backend: Any = get_backend(library.backend)
    rng = np.random.default_rng(size)
    lengths = rng.integers(0, 9, size - 1)
    for at in {0, (size - 2) // 2, size - 2} if size > 1 else {0}:
        own = lengths.copy()
        own[at : at + 1] = 1000
        values = np.concatenate([[0], np.cumsum(own)]).astype(dtype)
        found = backend.facts_of_integers(library.there(values))
        assert found == facts_of(values)
        if size > 1:
            values[at + 1] = -7
            found = backend.facts_of_integers(library.there(values))
            expected = facts_of(values)
            assert (found.first, found.last, found.down) == (
                expected.first, expected.last, expected.down
            )  # fmt: skip


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_offsets_made_on_the_gpu(library: Library, dtype: str) -> None:
    backend: Any = get_backend(library.backend)
    edges = drawn(5, 100_000)
    segments = edges.size - 1
    ids = np.repeat(np.arange(segments), np.diff(edges)).astype(dtype)
    made = backend.offsets_of_ids(library.there(ids), segments)
    np.testing.assert_array_equal(library.back(made), edges)
    for rows in (1, 3):
        made = backend.offsets_of_rows(library.there(edges.astype(dtype)), rows)
        starts = np.arange(rows)[:, None] * edges[-1] + edges[:-1]
        np.testing.assert_array_equal(library.back(made), np.append(starts, rows * edges[-1]))


def test_no_offsets_are_copied_back(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(array: Any) -> None:
        raise AssertionError("copied back")

    monkeypatch.setattr(get_backend(library.backend), "to_host", refuse)
    edges = drawn(6, 3000)
    ids = np.repeat(np.arange(edges.size - 1), np.diff(edges))
    x = numbers("float16", 3, int(edges[-1]))
    expected = tcusim.segmented_sum(x, edges, options={"arch": arch()})
    by_ids = tcusim.Segments(ids=library.there(ids), count=edges.size - 1)
    for given in (library.there(edges), by_ids):
        keywords: dict[str, Any] = {"segments": given, "backend": library.backend}
        library.require_bits(tcusim.segmented_sum(library.there(x), **asked(**keywords)), expected)
        library.require_bits(
            tcusim.segmented_sum(library.there(x[0]), **asked(**keywords)), expected[0]
        )


def test_offsets_with_gaps_and_out_of_place(library: Library) -> None:
    if library.name == "pycuda":
        pytest.skip("PyCUDA's arrays are not copied into order")
    edges = drawn(7, 3000)
    x = numbers("float16", int(edges[-1]))
    expected = tcusim.segmented_sum(x, edges, options={"arch": arch()})
    a = library.there(x)
    spread = library.there(np.repeat(edges, 2))[::2]
    shifted = library.there(np.append(-1, edges))[1:]
    for offsets in (spread, shifted):
        result = tcusim.segmented_sum(a, offsets, options={"backend": library.backend})
        library.require_bits(result, expected)


def test_offsets_that_are_being_written(library: Library) -> None:
    """The check of them waits for the work queued on their stream."""
    if library.name != "torch":
        pytest.skip("torch has streams for every launcher")
    torch = importlib.import_module("torch")
    edges = drawn(8, 3000)
    x = numbers("float16", int(edges[-1]))
    expected = tcusim.segmented_sum(x, edges, options={"arch": arch()})
    a, right = library.there(x), library.there(edges)
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda.current_stream().wait_stream(torch.cuda.default_stream())
        for _ in range(5):
            offsets = torch.zeros_like(right)
            torch.cuda._sleep(20_000_000)
            offsets.copy_(right)
            result = tcusim.segmented_sum(a, offsets, options={"backend": library.backend})
            library.require_bits(result, expected)


def test_offsets_in_a_graph(library: Library) -> None:
    if library.name != "torch":
        pytest.skip("torch captures for every launcher")
    torch = importlib.import_module("torch")
    edges = drawn(9, 3000)
    x = numbers("float16", int(edges[-1]))
    a, offsets = library.there(x), library.there(edges)
    ids = library.there(np.repeat(np.arange(edges.size - 1), np.diff(edges)))
    longest, segments = int(np.diff(edges).max()), edges.size - 1
    plan = tcusim.plan(
        "segmented_sum",
        length=x.size,
        segments=tcusim.Segments(count=segments, longest=longest),
        options={"backend": library.backend},
    )
    out, side = torch.zeros(segments, dtype=torch.float16, device="cuda"), torch.cuda.Stream()
    with torch.cuda.stream(side):
        plan(a, out, segments=offsets)
    torch.cuda.synchronize()
    expected = library.back(out)

    def captured(**given: Any) -> Any:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=side):
            # torch warns of a graph that is empty.
            out.zero_()
            plan(a, out, **given)
        return graph

    for given in (offsets, tcusim.Segments(ids=ids)):
        with pytest.raises(InputError, match=r"Give offsets as tcusim\.Segments\(offsets, check=F"):
            captured(segments=given)
    if library.backend == "pycuda":
        return
    graph = captured(segments=tcusim.Segments(offsets, check=False))
    out.fill_(-1)
    graph.replay()
    torch.cuda.synchronize()
    require_bits(library.back(out), expected)


# --- Arrays that overlap, and streams -------------------------------------------------------------


def test_outs_that_overlap(library: Library) -> None:
    a = library.there(numbers("int8", 64))
    with pytest.raises(InputError, match="out must be an array of int64"):
        tcusim.segmented_cumsum(a, [0, 64], out=a, options={"backend": library.backend})
    square = library.there(numbers("float16", 64, 64))
    with pytest.raises(InputError, match="out overlaps b in memory"):
        tcusim.matmul(library.there(numbers("float16", 64, 64)), square, out=square,
                      options={"backend": library.backend})  # fmt: skip


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("giant", [0, 5000, 1_000_000])
def test_scans_by_offsets_in_place(library: Library, dtype: str, giant: int) -> None:
    edges = drawn(giant + 1, giant)
    x = numbers(dtype, int(edges[-1]))
    for exclusive in (False, True):
        order: dict[str, Any] = {"exclusive": exclusive, "reverse": exclusive}
        expected = tcusim.segmented_cumsum(x, edges, options={"arch": arch()}, **order)
        # A warp that reads another's output would show in one of several runs.
        for _ in range(5):
            a = library.there(x)
            result = tcusim.segmented_cumsum(
                a, edges, out=a, options={"backend": library.backend}, **order
            )
            assert result is a
            library.require_bits(a, expected)


# --- Products -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    ("left", "right"),
    [((50, 70), (70, 90)), ((300, 200), (200,)), ((20_000, 64), (64,)), ((2, 9, 33), (33, 5))],
)
def test_products(
    library: Library, dtype: str, left: tuple[int, ...], right: tuple[int, ...]
) -> None:
    a, b = numbers(dtype, *left), numbers(dtype, *right)
    wide: Any = "int32" if dtype == "int8" else None
    expected = tcusim.matmul(a, b, dtype=wide, options={"arch": arch()})
    there = library.there(a), library.there(b)
    library.require_bits(tcusim.matmul(*there, options={"backend": library.backend}), expected)
    out = library.there(np.zeros_like(expected))
    assert tcusim.matmul(*there, out=out, options={"backend": library.backend}) is out
    library.require_bits(out, expected)
    c = library.there(np.ones_like(expected))
    added = tcusim.matmul(a, b, np.ones_like(expected), dtype=wide, options={"arch": arch()})
    library.require_bits(tcusim.matmul(*there, c, options={"backend": library.backend}), added)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    ("left", "right"),
    [((3, 64, 48), (3, 48, 32)), ((2, 1, 35, 70), (3, 70, 9)), ((70,), (4, 70, 33)),
     ((5, 19, 33), (5, 33, 20)), ((50, 20), (7, 20, 1))],
)  # fmt: skip
def test_products_of_several_right_matrices(
    library: Library, dtype: str, left: tuple[int, ...], right: tuple[int, ...]
) -> None:
    a, b = numbers(dtype, *left), numbers(dtype, *right)
    wide: Any = "int32" if dtype == "int8" else None
    there = library.there(a), library.there(b)
    for result in {wide, "float32" if dtype == "float16" else wide}:
        expected = tcusim.matmul(a, b, dtype=result, options={"arch": arch()})
        made = tcusim.matmul(*there, dtype=result, options={"backend": library.backend})
        library.require_bits(made, expected)
        poison = np.full(expected.shape, -1 if dtype == "int8" else np.nan, expected.dtype)
        out = library.there(poison)
        assert (
            tcusim.matmul(*there, dtype=result, out=out, options={"backend": library.backend})
            is out
        )
        library.require_bits(out, expected)
        c = np.ones_like(expected)
        added = tcusim.matmul(
            *there, library.there(c), dtype=result, options={"backend": library.backend}
        )
        library.require_bits(added, tcusim.matmul(a, b, c, dtype=result, options={"arch": arch()}))


@pytest.mark.parametrize("right", [(3, 700), (2, 1, 700)])
def test_stacked_vectors(library: Library, right: tuple[int, ...]) -> None:
    a, x = numbers("float16", 3, 50, 700), numbers("float16", *right) / np.float16(16)
    product = tcusim.matvec(
        library.there(a), library.there(x), options={"backend": library.backend}
    )
    library.require_bits(product, tcusim.matvec(a, x, options={"arch": arch()}))


def test_a_transposed_matrix(library: Library) -> None:
    if library.name == "pycuda":
        pytest.skip("PyCUDA's arrays are not copied into order")
    a, b = numbers("float16", 90, 50), numbers("float16", 90, 20)
    result = tcusim.matmul(
        library.there(a).T, library.there(b), options={"backend": library.backend}
    )
    library.require_bits(result, tcusim.matmul(a.T, b, options={"arch": arch()}))
