"""Plans on the host backend: several launches, each with the simulator's bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from launch_plans import launch_plan
from tcusim import plan
from tcusim.algorithms.order import Order
from tcusim.arrays.problem import Types
from tcusim.arrays.segments import Segments
from tcusim.backends import get_backend, why_unavailable


@pytest.mark.parametrize("arch", ["volta", "hopper"])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_plan_of_several_launches_on_the_host(arch: str, reverse: bool) -> None:
    reason = why_unavailable("host")
    if reason is not None:
        pytest.skip(reason)
    x = np.random.default_rng(0).standard_normal(2**14 + 300).astype(np.float16)
    offsets = np.array([0, 300, 300, x.size - 1, x.size])
    simulated, hosted = (
        plan(
            "segmented_cumsum",
            length=x.size,
            segments=Segments(count=offsets.size - 1),
            result="float32",
            reverse=reverse,
            options={"arch": arch, "backend": name},
        )
        for name in (None, "host")
    )
    assert len(hosted.launches) > 3
    made = [one(x, segments=offsets).tobytes() for one in (hosted, simulated)]
    assert made[0] == made[1]


@pytest.mark.parametrize(("kind", "size"), [("cumsum", 9000), ("segmented_sum", 7000)])
def test_float16_summed_exactly_in_float64_on_the_host(kind: str, size: int) -> None:
    host = get_backend("host")
    reason = host.available()
    if reason is not None:
        pytest.skip(reason)
    rng = np.random.default_rng(3)
    x = np.ldexp(rng.uniform(-1, 1, size), rng.integers(-26, 10, size)).astype(np.float16)
    offsets = np.array([0, 9, 9, 4000, size])
    number = None if kind == "cumsum" else 4
    by = None if number is None else Segments(count=number)
    exact = plan(kind, length=x.size, segments=by, dtype="float16", options={"bits": "exact"})
    launches = launch_plan(
        "scan" if kind == "cumsum" else "reduction",
        x.size,
        segments=number,
        types=("f16", "f64", "f16", "f16"),
        arch="hopper",
    )
    given = {"in": x} if kind == "cumsum" else {"in": x, "offsets": offsets}
    more: dict[str, Any] = {} if kind == "cumsum" else {"segments": offsets}
    assert host.run(launches, given, arch="hopper")["out"].tobytes() == exact(x, **more).tobytes()


@pytest.mark.parametrize(
    ("types", "length", "reverse"),
    [
        # Two groups, of 2**20 elements; the running sum begins with the initial value.
        (Types("f64", "f64", "f64", "f64"), 2**20 + 1300, True),
        (Types("s8", "s32", "s8", "s64"), 20_000, False),
    ],
)
def test_initial_values_and_sums_of_64_bits_on_the_host(
    types: Types, length: int, reverse: bool
) -> None:
    reason = why_unavailable("host")
    if reason is not None:
        pytest.skip(reason)
    launches = launch_plan(
        "scan", length, segments=3, order=Order(exclusive=True, reverse=reverse), types=types,
        arch="hopper", carry=True,
    )  # fmt: skip
    x = np.random.default_rng(4).integers(-128, 128, length).astype(types.dtype)
    given = {"in": x, "offsets": np.array([0, 7, 1000, length])}
    given["carry"] = (2**40 * np.arange(1, 4)).astype(types.result_dtype)
    made = [
        get_backend(name).run(launches, given, arch="hopper")["out"] for name in ("host", "numpy")
    ]
    assert made[0].tobytes() == made[1].tobytes()
    expected = given["carry"][2] + x[1000:].sum(dtype=np.int64)
    last = made[0][1000] + x[1000] if reverse else made[0][-1] + x[-1]
    assert last == expected


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("types", "sizes"),
    [
        (Types("f64", "f64", "f64", "f64"), (7, 2000, 2**20 + 1300)),
        (Types("f16", "f32", "f16", "f32"), (30, 1000, 20_000)),
        (Types("f32", "f32", "f32", "f32"), (30, 20_000)),
        (Types("s8", "s32", "s8", "s64"), (30, 1000, 20_000)),
    ],
)
def test_one_launch_with_initial_values_on_the_host(
    types: Types, sizes: tuple[int, ...], reverse: bool
) -> None:
    """As by offsets: within a row, a panel, a chunk and a group, and of several groups."""
    reason = why_unavailable("host")
    if reason is not None:
        pytest.skip(reason)
    rng = np.random.default_rng(5)
    for size in sizes:
        if size > 2**20 and not reverse:
            continue
        length = size + max(1, size // 3) if size < 2**20 else size
        common: dict[str, Any] = {
            "types": types, "order": Order(reverse=reverse), "arch": "hopper", "carry": True,
        }  # fmt: skip
        x = (100 * rng.standard_normal(length)).astype(types.dtype)
        edges = np.append(np.arange(0, length, size), length)
        carry = (1e3 * rng.standard_normal(edges.size - 1)).astype(types.result_dtype)
        in_one = launch_plan("scan", length, size=size, **common)
        assert [one.program.name for one in in_one.launches] in (
            ["scan_panel"], ["scan_single_pass"],
        )  # fmt: skip
        by_offsets = launch_plan("scan", length, segments=edges.size - 1, **common)
        given = {"in": x, "carry": carry}
        host, numpy = (get_backend(name) for name in ("host", "numpy"))
        made = [
            one.run(plan, arrays, arch="hopper")["out"].tobytes()
            for one, plan, arrays in (
                (host, in_one, given),
                (numpy, in_one, given),
                (numpy, by_offsets, given | {"offsets": edges}),
            )
        ]
        assert made[0] == made[1] == made[2]


@pytest.mark.parametrize(
    ("kind", "size", "order", "dtype", "result"),
    [
        ("reduction", None, Order(), "s8", "s64"),
        ("scan", None, Order(), "s8", "s64"),
        ("scan", 17_000, Order(True, True), "s8", "s64"),
        ("scan", None, Order(), "u8", "f32"),
    ],
)
def test_integers_in_one_launch_on_the_host(
    kind: str, size: int | None, order: Order, dtype: str, result: str
) -> None:
    reason = why_unavailable("host")
    if reason is not None:
        pytest.skip(reason)
    types, length = Types(dtype, "s32", dtype, result), 2**17 + 3
    launches = launch_plan(kind, length, size=size, order=order, types=types, arch="hopper")
    assert len(launches.launches) == 1
    x = np.random.default_rng(5).integers(-128, -100, length).astype(np.int8)
    x = x.view(np.uint8) if dtype == "u8" else x
    made = [get_backend(name).run(launches, {"in": x})["out"] for name in ("host", "numpy")]
    assert made[0].dtype == {"s64": np.int64, "f32": np.float32}[result]
    assert made[0].tobytes() == made[1].tobytes()
    if size is None:
        wide = x.astype(np.int64)
        expected = wide.sum() if kind == "reduction" else wide.cumsum()
        expected = np.asarray(expected).astype(made[0].dtype)
        np.testing.assert_array_equal(np.ravel(made[0]), np.ravel(expected))
