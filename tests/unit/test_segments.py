"""Segments of tensors by size, offsets, lengths or ids, however torch transforms the call."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tcusim
from asked import asked
from tcusim.errors import InputError

torch: Any = pytest.importorskip("torch", reason="torch is not installed")

from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

import tcusim.torch as tct  # noqa: E402 - torch is there
from tcusim.torch import segments as segments_of_torch  # noqa: E402
from tcusim.torch.segments import segment_max, segment_mean, segment_min  # noqa: E402

# torch scripts its decompositions, and warns of itself.
FORWARD_MODE = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sum": tct.segment_sum,
    "cumsum": tct.segment_cumsum,
    "mean": segment_mean,
    "max": segment_max,
    "min": segment_min,
}


def test_ids() -> None:
    x = torch.arange(6.0)
    ids = torch.tensor([0, 0, 2, 2, 2, 3])
    assert tct.segment_sum(x, tcusim.Segments(ids=ids)).tolist() == [1.0, 0.0, 9.0, 5.0]
    assert tct.segment_sum(x, tcusim.Segments(ids=ids, count=6)).tolist() == [
        1.0,
        0.0,
        9.0,
        5.0,
        0.0,
        0.0,
    ]
    rows = x.reshape(6, 1).expand(6, 2)
    assert tct.segment_sum(rows, tcusim.Segments(ids=ids), dim=0)[:, 1].tolist() == [
        1.0,
        0.0,
        9.0,
        5.0,
    ]
    assert tct.segment_cumsum(x, tcusim.Segments(ids=ids)).tolist() == [
        0.0,
        1.0,
        2.0,
        5.0,
        9.0,
        5.0,
    ]
    none = tct.segment_sum(x[:0], tcusim.Segments(ids=ids[:0], count=2))
    assert none.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_size_beyond_the_axis(name: str) -> None:
    with pytest.raises(InputError, match="segments=5 is longer than the axis, which has 3"):
        FUNCTIONS[name](torch.arange(3.0), 5)


def test_offsets_and_ids_may_be_lists() -> None:
    x = torch.arange(6.0)
    assert tct.segment_sum(x, [0, 2, 6]).tolist() == [1, 14]
    assert tct.segment_cumsum(x, tcusim.Segments(ids=np.array([0, 0, 1, 1, 1, 1]))).tolist() == [
        0,
        1,
        2,
        5,
        9,
        14,
    ]
    with pytest.raises(
        InputError, match=r"ids must be a flat array of integers, got shape .*, dtype float32"
    ):
        tct.segment_sum(x, tcusim.Segments(ids=x))
    with pytest.raises(InputError, match="count must be at least 0, got -1"):
        tct.segment_sum(x, tcusim.Segments(ids=[0] * 6, count=-1))


def by_hand(name: str, x: Any, ids: list[int], count: int, dim: int) -> Any:
    """Return a function's results, segment by segment, with torch's own functions."""
    rows = x.movedim(dim, 0)
    numbers = torch.tensor(ids, dtype=torch.int64)
    if name == "cumsum":
        result = rows.clone()
        for one in range(count):
            result[numbers == one] = rows[numbers == one].cumsum(0)
        return result.movedim(0, dim)
    parts = []
    for one in range(count):
        part = rows[numbers == one]
        if name in ("max", "min") and not len(part):
            sign = -1 if name == "max" else 1
            parts.append(torch.full(rows.shape[1:], sign * float("inf"), dtype=x.dtype))
        else:
            parts.append(getattr(torch, {"max": "amax", "min": "amin"}.get(name, name))(part, 0))
    return torch.stack(parts).movedim(0, dim)


@FORWARD_MODE
@settings(derandomize=True, deadline=None, max_examples=40)
@given(
    st.sampled_from(sorted(FUNCTIONS)),
    st.lists(st.integers(0, 4), min_size=1, max_size=12),
    st.integers(-2, 1),
    st.sampled_from(["float16", "float32", "float64"]),
)
def test_segments_are_those_of_torch(name: str, ids: list[int], dim: int, dtype: str) -> None:
    """Unsorted and sorted ids, offsets and lengths; recorded, compiled, mapped and derived."""
    call, generator = FUNCTIONS[name], torch.Generator().manual_seed(len(ids))
    x = torch.randn(3, len(ids), generator=generator).to(getattr(torch, dtype))
    x = x if dim % 2 else x.T.contiguous()
    count = max(ids) + 1
    got = call(x, tcusim.Segments(ids=ids, count=count, sort=True), dim=dim)
    expected = by_hand(name, x.double(), ids, count, dim)
    tolerance = {"rtol": 2e-2, "atol": 2e-2} if dtype == "float16" else {"rtol": 1e-5, "atol": 1e-5}
    torch.testing.assert_close(got.double(), expected, equal_nan=True, **tolerance)
    assert got.dtype == x.dtype

    def same(other: Any) -> None:
        assert torch.equal(other.nan_to_num(7.0), got.nan_to_num(7.0))

    # A segment's bits are its own: those of its elements in their order, however they are named.
    order = np.argsort(ids, kind="stable")
    sizes = np.bincount(ids, minlength=count)
    there = x.index_select(dim, torch.from_numpy(order))
    edges = [0, *np.cumsum(sizes).tolist()]
    ways: tuple[dict[str, Any], ...] = (
        {"ids": torch.tensor(sorted(ids))},
        {"offsets": edges},
        {"lengths": sizes.tolist()},
        {"lengths": torch.from_numpy(sizes).int(), "check": False},
    )
    for way in ways:
        other = call(there, tcusim.Segments(**way), dim=dim)
        if name == "cumsum":
            other = other.index_select(dim, torch.from_numpy(np.argsort(order)))
        same(other)
    same(call(x.clone().requires_grad_(), tcusim.Segments(ids=ids, sort=True), dim=dim).detach())
    batch = torch.stack([x, -x])
    mapped = torch.vmap(lambda x: call(x, tcusim.Segments(ids=ids, sort=True), dim=dim))(batch)
    same(mapped[0])
    meta = call(
        x.to("meta"), tcusim.Segments(torch.tensor(edges, device="meta"), check=False), dim=dim
    )
    assert (meta.shape, meta.dtype) == (got.shape, got.dtype)
    if dtype == "float64" and name != "mean":
        # Distances between elements that are compared are far beyond the step.
        ranks = torch.randperm(x.numel(), generator=generator).double().reshape(x.shape)
        one = ranks.requires_grad_()
        by = tcusim.Segments(ids=ids, sort=True)
        function = lambda x: call(x, by, dim=dim).nan_to_num(0, 0, 0)  # noqa: E731
        assert torch.autograd.gradcheck(
            function, (one,), fast_mode=True, check_forward_ad=True, check_batched_grad=True
        )


def test_a_whole_graph_is_compiled() -> None:
    x, lengths = torch.randn(6, 2), torch.tensor([1, 0, 3, 2])

    def model(x: Any, lengths: Any) -> Any:
        parts = [call(x, tcusim.Segments(lengths=lengths), dim=0) for call in FUNCTIONS.values()]
        first = tct.segment_sum(
            x, tcusim.Segments(ids=(x[:, 0] > 0).long(), count=2, sort=True), dim=0
        )
        return torch.cat([*parts, first])

    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x, lengths).nan_to_num(7), model(x, lengths).nan_to_num(7))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32"])
def test_extremes_have_the_bits_of_an_element(dtype: str) -> None:
    """The first of equal ones: of zeros, too; a NaN is the largest and the least."""
    kind = getattr(torch, dtype)
    whole = torch.tensor([3, 1, 3, -5, 2]).to(kind)
    assert segment_max(whole, 2).tolist() == [3, 3, 2]
    assert segment_min(whole, 2).tolist() == [1, -5, 2]
    none = segment_max(whole, [0, 0, 5])[0].item()
    assert none == (torch.iinfo(kind).min if dtype == "int32" else float("-inf"))
    if dtype == "int32":
        return
    zeros = torch.tensor([-0.0, 0.0, 0.0, -0.0], dtype=kind)
    assert torch.signbit(segment_max(zeros, 2)).tolist() == [True, False]
    odd = torch.tensor([1.0, float("nan"), 2.0, float("-inf")], dtype=kind)
    assert segment_max(odd, 2).isnan().tolist() == [True, False]
    assert segment_min(odd, 2)[1] == float("-inf")
    one = torch.tensor([2.0, 2.0, 1.0]).to(kind).requires_grad_()
    segment_max(one, 3).sum().backward()
    assert one.grad.tolist() == [1, 0, 0]
    assert segment_max(whole[:0], 3).shape == (0,)
    assert segment_max(whole[:0], tcusim.Segments(lengths=[0, 0])).tolist() == [float("-inf")] * 2


def test_means() -> None:
    x = torch.arange(5.0)
    assert segment_mean(x, 2).tolist() == [0.5, 2.5, 4.0]
    assert segment_mean(x.half(), 2, dtype=torch.float64).dtype == torch.float64
    assert segment_mean(x, tcusim.Segments(lengths=[5, 0])).isnan().tolist() == [False, True]


BEFORE: dict[str, Callable[[Any, Any], Any]] = {
    "cumsum": lambda x, i: tct.cumsum(x, 1, initial=i[:, 0]),
    "cumsum down": lambda x, i: tct.cumsum(x, 0, reverse=True, initial=i[0, :1]),
    "sizes": lambda x, i: tct.segment_cumsum(x, 3, initial=i),
    "offsets": lambda x, i: tct.segment_cumsum(x, [0, 0, 4, 5], exclusive=True, initial=i),
    "sorted": lambda x, i: tct.segment_cumsum(
        x, tcusim.Segments(ids=[1, 0, 1, 2, 0], sort=True), initial=i[0]
    ),
}


@FORWARD_MODE
@pytest.mark.parametrize("name", BEFORE)
def test_what_precedes_is_part_of_every_sum(name: str) -> None:
    generator, call = torch.Generator().manual_seed(1), BEFORE[name]
    x = torch.randn(2, 5, generator=generator, dtype=torch.float64)
    before = torch.randn(2, 2 if name == "sizes" else 3, generator=generator, dtype=torch.float64)
    got, none = call(x, before), call(x, torch.zeros_like(before))
    assert not torch.equal(got, none)
    both = (x.requires_grad_(), before.requires_grad_())
    assert torch.equal(call(*both).detach(), got)
    assert torch.autograd.gradcheck(call, both, check_forward_ad=True)
    x, before = x.detach(), before.detach()
    for places in ((0, None), (None, 0), (0, 0)):
        many = tuple(
            torch.stack([one, 2 * one]) if place == 0 else one
            for one, place in zip((x, before), places, strict=True)
        )
        mapped = torch.vmap(call, places)(*many)
        for which in (0, 1):
            each = (
                one[which] if place == 0 else one for one, place in zip(many, places, strict=True)
            )
            assert torch.equal(mapped[which], call(*each))
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x, before), got)


def test_what_precedes_has_the_bits_of_numpy_arrays() -> None:
    x = np.random.default_rng(5).standard_normal((3, 40)).astype(np.float16)
    there = torch.from_numpy(x)
    for initial in (2, 0.1, np.arange(3, dtype=np.float32) / 7):
        own = torch.from_numpy(initial) if isinstance(initial, np.ndarray) else initial
        expected = tcusim.cumsum(x, axis=1, initial=initial)
        assert tct.cumsum(there, 1, initial=own).numpy().tobytes() == expected.tobytes()
    whole = torch.tensor([1, 2, 3])
    assert tct.cumsum(whole, 0, initial=2**60).tolist() == [2**60 + n for n in (1, 3, 6)]
    assert tct.cumsum(whole.float(), 0, initial=1, options={"bits": "exact"}).tolist() == [2, 4, 7]
    out = torch.empty(3)
    assert tct.cumsum(whole.float(), 0, initial=1, out=out) is out
    with pytest.raises(
        InputError, match=r"initial must have the shape \(3,\), or be broadcast to it; got \(2,\)"
    ):
        tct.cumsum(there, 1, initial=torch.ones(2))
    with pytest.raises(InputError, match="initial must be a number or a tensor, got '1'"):
        tct.cumsum(there, 1, initial="1")


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"ids": [0] * 3}, "must be 6 integers, one for each element of the axis; there are 3"),
        ({"ids": [[0] * 6]}, r"ids must be a flat array of integers, got shape \(1, 6\)"),
        (
            {"ids": [0, 1, 0, 1, 1, 1]},
            r"must not decrease, but ids\[1\] = 1 and ids\[2\] = 0; sort .* or give sort=True",
        ),
        (
            {"ids": [0, 1, 1, 1, 1, 4], "count": 3},
            "ids must be less than the number of segments, 3; got 4",
        ),
        ({"ids": [-1] * 6, "sort": True}, "ids must be at least 0, got -1"),
        ({"count": 2}, "is for tcusim.plan: give offsets, lengths or ids"),
        ({"lengths": [3, -1, 4]}, r"lengths must be at least 0, but lengths\[1\] = -1"),
        ({"lengths": [3, 4]}, "they come to 7"),
        (
            {"lengths": [3.0, 3.0]},
            r"lengths must be a flat array of integers, got shape \(2,\), dtype float64",
        ),
    ],
)
def test_what_is_refused(more: dict[str, Any], text: str) -> None:
    for call in (tct.segment_sum, tct.segment_cumsum, segment_mean):
        with pytest.raises(InputError, match=text):
            call(torch.arange(6.0), tcusim.Segments(**more))


def test_segments_that_are_none() -> None:
    for call in (tct.segment_sum, tct.segment_cumsum, segment_mean):
        untyped: Any = call
        x = torch.arange(6.0)
        with pytest.raises(InputError, match="dim 1 is out of range for an array of 1 dimensions"):
            call(x, 2, dim=1)
        with pytest.raises(InputError, match="give segments: the elements of each one, an array"):
            call(x)
        for odd in (0, True, "2", 2.0):
            with pytest.raises(InputError, match="segments must be "):
                untyped(x, odd)


# Each of two segments of five elements; the last ones are right.
TOLD: dict[str, list[list[int]]] = {
    "offsets": [[0, 7, 5], [0, 2, 4], [1, 2, 5], [-1, 2, 5], [0, 2, 5]],
    "lengths": [[3, 3], [-1, 6], [2, 2], [2, 3]],
    "ids": [[1, 0, 0, 0, 0], [0, 0, 0, 0, 2], [-1, 0, 0, 0, 1], [0, 0, 1, 1, 1]],
}


FIRST_COMPILED = [
    *(("sum", "offsets", "eager"), ("cumsum", "lengths", "aot_eager")),
    *(("max", "offsets", "aot_eager"), ("mean", "ids", "eager")),
    *(("min", "ids", "aot_eager"), ("max", "lengths", "eager")),
]


def outcome(call: Callable[..., Any], *given: Any) -> Any:
    """Return a result as a list, or the sentence of its error."""
    try:
        return call(*given).tolist()
    except InputError as error:
        return str(error)


@pytest.mark.parametrize(
    ("name", "way", "backend"),
    [
        # By default those with separate checks: the kernel's of sums, and that of extremes.
        pytest.param(*one, marks=[] if one in FIRST_COMPILED else pytest.mark.full)
        for one in product(FUNCTIONS, TOLD, ("eager", "aot_eager"))
    ],
)
def test_compiled_code_refuses_what_eager_calls_do(name: str, way: str, backend: str) -> None:
    call, x = FUNCTIONS[name], torch.arange(1.0, 6.0)
    more: dict[str, Any] = {"count": 2} if way == "ids" else {}

    def function(x: Any, told: Any) -> Any:
        return call(x, tcusim.Segments(**{way: told}, **more))

    # The same code of other functions counts as compiled again, and too often.
    torch.compiler.reset()
    compiled = torch.compile(function, backend=backend, fullgraph=True)
    *wrong, right = (torch.tensor(one) for one in TOLD[way])
    for told in wrong:
        text = outcome(function, x, told)
        assert isinstance(text, str), (told, text)
        assert text.startswith(way)
        assert outcome(compiled, x, told) == text
    assert outcome(compiled, x, right) == outcome(function, x, right) != []


@pytest.mark.full
@pytest.mark.parametrize("name", FUNCTIONS)
def test_compiled_code_refuses_by_values_of_its_own(name: str) -> None:
    """Lists and tensors that the graph makes; segments of an axis without elements; gradients."""
    torch.compiler.reset()
    call, x = FUNCTIONS[name], torch.arange(1.0, 6.0)

    def function(x: Any, there: Any) -> Any:
        if there is None:
            return call(x, tcusim.Segments(ids=torch.tensor([1, 0, 0, 0, 0]), count=2))
        return call(x, tcusim.Segments(lengths=there))

    compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
    calls: tuple[tuple[Any, Any], ...] = (
        (x, None),
        (x, [3, 3]),
        (x[:0], torch.tensor([0, 3])),
        (x.clone().requires_grad_(), [3, 3]),
    )
    for one in calls:
        text = outcome(function, *one)
        assert isinstance(text, str)
        assert outcome(compiled, *one) == text


@pytest.mark.parametrize("name", FUNCTIONS)
def test_ids_without_values(name: str) -> None:
    x, ids = torch.ones(5, 2, device="meta"), torch.empty(5, dtype=torch.int64, device="meta")
    for sort in (False, True):
        found = FUNCTIONS[name](x, tcusim.Segments(ids=ids, count=3, sort=sort), dim=0)
        assert found.is_meta
        assert found.shape == (5 if name == "cumsum" else 3, 2)
        with pytest.raises(InputError, match="on the device meta have no values: give count"):
            FUNCTIONS[name](x, tcusim.Segments(ids=ids, sort=sort), dim=0)


_NARROW = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "uint64")


@pytest.mark.parametrize("name", _NARROW)
def test_numbers_of_segments_may_be_of_any_integer_type(name: str) -> None:
    kind, x = getattr(torch, name), torch.tensor([1.0, 2.0, 3.0])
    ids = torch.tensor([0, 0, 100]).to(kind)
    # More segments than the type has numbers.
    for call, first, none in ((tct.segment_sum, 3, 0), (segment_max, 2, -torch.inf)):
        found = call(x, tcusim.Segments(ids=ids, count=70_000))
        expected = torch.full((70_000,), float(none))
        expected[0], expected[100] = first, 3
        assert torch.equal(found, expected)
    assert tct.segment_cumsum(
        x, tcusim.Segments(ids=torch.tensor([100, 0, 0]).to(kind), sort=True)
    ).tolist() == [1, 2, 5]
    assert tct.segment_sum(x, torch.tensor([0, 2, 3]).to(kind)).tolist() == [3, 3]
    assert tct.segment_sum(x, tcusim.Segments(lengths=torch.tensor([2, 1]).to(kind))).tolist() == [
        3,
        3,
    ]


def test_no_elements_have_no_numbers() -> None:
    assert tct.segment_sum(torch.empty(0), tcusim.Segments(ids=[])).tolist() == []
    assert tct.segment_sum(torch.empty(0), tcusim.Segments(lengths=[])).tolist() == []


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (tcusim.Segments(ids=[0, 0, 10**13]), r"10000000000001 segments, nearly all of them empty"),
        (tcusim.Segments(ids=[0] * 3, count=10**13), "nearly all of them empty"),
        (2**70, r"segments must be at most 2\*\*48"),
    ],
)
def test_numbers_beyond_any_memory(more: dict[str, Any], text: str) -> None:
    for call in (tct.segment_sum, segment_max):
        with pytest.raises(InputError, match=text):
            call(torch.ones(3), more)


@pytest.mark.parametrize("kind", ["bool", "uint8", "int64"])
@pytest.mark.parametrize("bits", ["segment", "exact"])
def test_floats_precede_integers_of_a_float_result(kind: str, bits: Any) -> None:
    whole = torch.ones(4).to(getattr(torch, kind))
    for initial in (0.5, torch.tensor(0.5)):
        more: dict[str, Any] = {"dtype": torch.float64, "initial": initial, "bits": bits}
        assert tct.cumsum(whole, 0, **asked(**more)).tolist() == [1.5, 2.5, 3.5, 4.5]
        assert tct.segment_cumsum(whole, 2, **asked(**more)).tolist() == [1.5, 2.5, 1.5, 2.5]
    assert tct.cumsum(whole, 0, initial=3, options={"bits": bits}).tolist() == [4, 5, 6, 7]
    assert tct.cumsum(whole, 0, initial=2**63 - 1, options={"bits": bits})[0] == -(2**63)
    wide: dict[str, Any] = {"dtype": torch.uint64, "initial": 2**63, "bits": bits}
    assert tct.cumsum(whole, 0, **asked(**wide)).numpy()[0] == 2**63 + 1


@pytest.mark.parametrize(
    ("initial", "dtype", "text"),
    [
        (
            0.5,
            None,
            "initial is of float, but the result of int64, which takes integers only",
        ),
        (float("nan"), None, "initial is of float"),
        (1e19, torch.int32, "initial is of float"),
        (2**70, None, "initial holds 1180591620717411303424, and the type of the result, int64"),
        (-300, torch.int8, "initial holds -300, and the type of the result, int8, integers from"),
        (torch.tensor([300]), torch.int8, "initial holds 300, and the type of the result, int8"),
        (-1, torch.uint64, "initial holds -1, and the type of the result, uint64, integers from 0"),
        (2**2000, torch.float64, r"initial is beyond the range of torch\.float64"),
        (
            torch.tensor(1.0),
            None,
            "initial is of float32, but the result of int64, which takes integers",
        ),
        (
            torch.tensor(1j),
            torch.float64,
            r"initial must hold real numbers .*, got dtype complex64",
        ),
    ],
)
def test_what_precedes_loses_nothing(initial: Any, dtype: Any, text: str) -> None:
    for call in (tct.cumsum, tct.segment_cumsum):
        with pytest.raises(InputError, match=text):
            call(
                torch.arange(3),
                1 if call is tct.segment_cumsum else 0,
                initial=initial,
                dtype=dtype,
            )


def test_what_extremes_refuse() -> None:
    with pytest.raises(InputError, match=r"segment_mean takes float tensors, got torch\.int64"):
        segment_mean(torch.arange(3), 2)
    with pytest.raises(InputError, match=r"take no tensor of torch\.bool"):
        segment_max(torch.ones(3).bool(), 2)
    with pytest.raises(InputError, match=r"take input\.real and input\.imag"):
        segment_min(torch.ones(3) * 1j, 2)
    with pytest.raises(InputError, match="input has no axes, and no segments"):
        tct.segment_sum(torch.tensor(2.0), 1)


@pytest.mark.parametrize("name", ["offsets", "lengths", "ids"])
@pytest.mark.parametrize("function", ["segment_sum", "segment_max", "segment_cumsum"])
def test_segments_are_not_mapped(name: str, function: str) -> None:
    x, numbers = torch.ones(2, 4), torch.tensor([[0, 4], [0, 4]])
    call = torch.vmap(
        lambda x, one: getattr(tct, function)(x, tcusim.Segments(**dict[str, Any]({name: one})))
    )
    with pytest.raises(InputError, match=f"^vmap over {name}: .* Put them end to end"):
        call(x, numbers)


def test_traced_ids_need_the_number_of_segments() -> None:
    """Without it compiled code breaks the graph; no graph is whole without it."""
    x, ids = torch.ones(4), torch.tensor([0, 0, 1, 1])

    def call(x: Any, ids: Any) -> Any:
        return tct.segment_sum(x, tcusim.Segments(ids=ids))

    compiled = torch.compile(call, backend="aot_eager")
    assert compiled(x, ids).tolist() == [2, 2]
    torch.compiler.reset()
    whole = torch.compile(call, backend="aot_eager", fullgraph=True)
    with pytest.raises(Exception, match=r"that torch\.compile traces have no values: give count"):
        whole(x, ids)
    for mode in ("real", "fake"):
        with pytest.raises(InputError, match="ids that are traced have no values: give count"):
            make_fx(call, tracing_mode=mode)(x, ids)


LENGTHS = [2, 0, 3, 1]
KEPT: dict[str, Callable[[], Any]] = {
    "offsets": lambda: tcusim.Segments(torch.tensor([0, 2, 2, 5, 6])),
    "int16": lambda: tcusim.Segments(torch.tensor([0, 2, 2, 5, 6], dtype=torch.int16)),
    "list": lambda: tcusim.Segments([0, 2, 2, 5, 6]),
    "lengths": lambda: tcusim.Segments(lengths=LENGTHS),
    "ids": lambda: tcusim.Segments(ids=[0, 0, 2, 2, 2, 3]),
    "unsorted": lambda: tcusim.Segments(ids=[3, 0, 2, 0, 2, 2], sort=True),
    "unchecked": lambda: tcusim.Segments(torch.tensor([0, 2, 2, 5, 6]), check=False),
}


@pytest.mark.parametrize("how", KEPT)
def test_segments_are_converted_once(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    segments, x, converted = KEPT[how](), torch.arange(6.0), []
    convert = segments_of_torch._converted

    def counted(*given: Any) -> Any:
        converted.append(how)
        return convert(*given)

    monkeypatch.setattr(segments_of_torch, "_converted", counted)
    with torch.inference_mode():
        expected = tct.segment_sum(x, segments).tolist()
    for name in ("sum", "mean", "max", "cumsum"):
        FUNCTIONS[name](x, segments)
    assert len(converted) == 1
    # They may be recorded, though they were converted in inference mode.
    recorded = x.clone().requires_grad_()
    sums = tct.segment_sum(recorded, segments)
    sums.sum().backward()
    assert sums.tolist() == expected
    assert recorded.grad.tolist() == [1.0] * 6
    assert len(converted) == 1
    # Those of another length are others, and unused ones are dropped.
    with pytest.raises(InputError):
        tct.segment_sum(torch.arange(7.0), segments)
    gone = weakref.ref(segments)
    gc.disable()
    try:
        del segments
        assert gone() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("how", ["offsets", "list", "lengths", "ids"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_call_takes_longer_segments_than_stated(name: str, how: str) -> None:
    segments = KEPT[how]()
    segments.longest = 2
    for x in (torch.arange(6.0), torch.arange(6.0, requires_grad=True)):
        for _ in range(2):
            with pytest.raises(InputError, match="segment 2 has 3 elements, but longest is 2"):
                FUNCTIONS[name](x, segments)
    FUNCTIONS[name](torch.arange(6.0), tcusim.Segments(lengths=LENGTHS, longest=3))
