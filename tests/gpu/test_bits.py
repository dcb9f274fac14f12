"""On a GPU: a segment has the bits that the simulator gives it alone, in any batch and any form."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import tcusim
from asked import asked
from tcusim_cuda import CUDA, CUPY, arch_name, device_sm

pytestmark = pytest.mark.gpu(min_sm=70)

Array = NDArray[Any]

# More cases than an ordinary run has: see tests/README.md.
CASES = int(os.environ.get("TCUSIM_BITS_CASES", "0"))

REVERSE: dict[str, Any] = {"exclusive": True, "reverse": True}


@pytest.fixture(params=["cupy", "torch"])
def there(request: pytest.FixtureRequest) -> Any:
    """Return a function that copies a NumPy array to GPU memory, as one of a library."""
    library = pytest.importorskip(request.param)
    reason = (CUPY if request.param == "cupy" else CUDA).available()
    if reason is not None:
        pytest.skip(reason)
    if request.param == "cupy":
        return library.asarray
    if not library.cuda.is_available():
        pytest.skip("this torch has no CUDA")
    return lambda x: library.from_numpy(np.ascontiguousarray(x)).cuda()


def back(a: Any) -> Array:
    """Return a copy of an array in GPU memory, without gaps."""
    values = a.get() if hasattr(a, "get") else a.cpu().numpy()
    return np.ascontiguousarray(values)


def bits(x: Any) -> bytes:
    return np.ascontiguousarray(x).tobytes()


def numbers(seed: int, *shape: int, dtype: str = "float16") -> Array:
    """Return numbers of both signs and many sizes: any other order rounds differently."""
    if device_sm() < 80 and dtype in ("float32", "float64"):
        pytest.skip(f"sm_{device_sm()} does not multiply {dtype}")
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape) * np.exp2(rng.integers(-6, 6, shape))
    return x.astype(dtype)


def simulated(name: str, x: Array, **options: Any) -> bytes:
    """Return the bits of a segment alone."""
    arch = arch_name(device_sm())
    if arch is None:
        pytest.skip(f"no unit has the numerics of sm_{device_sm()}")
    return bits(getattr(tcusim, name)(x, **asked(arch=arch, **options)))


def expected(x: Array, order: dict[str, Any]) -> tuple[bytes, bytes]:
    """Return the bits of a segment's sum and scan."""
    return simulated("sum", x), simulated("cumsum", x, **order)


@pytest.mark.parametrize("order", [{}, REVERSE], ids=["forward", "reverse"])
@pytest.mark.parametrize("length", [40, 3000, 20_000])
def test_a_row_in_batches_of_any_size(there: Any, length: int, order: dict[str, Any]) -> None:
    x = numbers(length, 300, length)
    total, scan = expected(x[0], order)
    a = there(x)
    for count in (1, 2, 7, 16, 33, 300):
        rows = a[:count]
        assert bits(back(tcusim.sum(rows, axis=1))[0]) == total, count
        assert bits(back(tcusim.cumsum(rows, axis=1, **order))[0]) == scan, count


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8"])
@pytest.mark.parametrize("length", [23, 700, 9001])
def test_a_segment_in_any_form(there: Any, dtype: str, length: int) -> None:
    count, number = 5, 3
    x = numbers(length, count * length + length // 2, dtype=dtype)
    if dtype != "int8":
        x[:: length // 2] = np.inf
        x[1 :: length // 2] = np.nan
    own = slice(number * length, (number + 1) * length)
    x[own] = numbers(length + 1, length, dtype=dtype)
    total, scan = expected(x[own], REVERSE)
    by_size, by_offsets = there(x), there(np.concatenate([x[:5], x[own], x[: 2 * length]]))
    edges = [0, 5, 5, 5 + length, 3 * length + 4, 3 * length + 5]
    whole = there(x[: count * length].reshape(count, length))
    columns = there(x[: count * length].reshape(count, length).T)
    plan = tcusim.plan("segmented_cumsum", length=x.size, segments=length, dtype=dtype,
                       **REVERSE)  # fmt: skip
    unchecked = tcusim.Segments(there(np.array(edges)), check=False)
    sums = (
        back(tcusim.segmented_sum(by_size, length))[number],
        back(tcusim.segmented_sum(by_offsets, edges))[2],
        back(tcusim.segmented_sum(by_offsets, unchecked))[2],
        back(tcusim.sum(whole, axis=1))[number],
        back(tcusim.sum(columns, axis=0))[number],
    )
    scans = (
        back(tcusim.segmented_cumsum(by_size, length, **REVERSE))[own],
        back(tcusim.segmented_cumsum(by_offsets, edges, **REVERSE))[5 : 5 + length],
        back(tcusim.segmented_cumsum(by_offsets, unchecked, **REVERSE))[5 : 5 + length],
        back(tcusim.cumsum(whole, axis=1, **REVERSE))[number],
        back(tcusim.cumsum(columns, axis=0, **REVERSE))[:, number],
        back(plan(by_size))[own],
    )
    assert [bits(one) == total for one in sums] == [True] * len(sums)
    assert [bits(one) == scan for one in scans] == [True] * len(scans)


def test_segments_drawn_at_random(there: Any) -> None:
    rng = np.random.default_rng(5)
    for case in range(CASES or 12):
        lengths = rng.integers(0, rng.choice([20, 200, 3000]), rng.integers(1, 60))
        number = int(rng.integers(lengths.size))
        edges = np.concatenate([[0], np.cumsum(lengths)])
        own = slice(edges[number], edges[number + 1])
        x = numbers(case, int(edges[-1]))
        if own.start == own.stop:
            continue
        order: dict[str, Any] = {
            "exclusive": bool(rng.integers(2)),
            "reverse": bool(rng.integers(2)),
        }
        total, scan = expected(x[own], order)
        a = there(x)
        assert bits(back(tcusim.segmented_sum(a, edges))[number]) == total, case
        together = back(tcusim.segmented_cumsum(a, edges, **order))[own]
        assert bits(together) == scan, case


@pytest.mark.parametrize("order", [{}, REVERSE], ids=["forward", "reverse"])
@pytest.mark.parametrize("length", [2**22 + 77, 5_000_000, 2**23])
def test_rows_longer_than_a_group(there: Any, length: int, order: dict[str, Any]) -> None:
    """One launch scans them, alone and together; a group has 2**22 elements."""
    a = there(numbers(9, 3, length))
    total = back(tcusim.sum(a, axis=1, dtype="float32"))
    scan = back(tcusim.cumsum(a, axis=1, dtype="float32", **order))
    edges = np.arange(4) * length
    by_offsets = tcusim.segmented_cumsum(a.reshape(-1), edges, dtype="float32", **order)
    assert bits(back(by_offsets)) == bits(scan)
    for number in range(3):
        row = a[number]
        assert bits(back(tcusim.sum(row, dtype="float32"))) == bits(total[number])
        alone = back(tcusim.cumsum(row, dtype="float32", **order))
        assert bits(alone) == bits(scan[number])


def test_all_strategies_have_the_same_bits(there: Any) -> None:
    size, x = 1000, numbers(6, 12 * 1000)
    a = there(x)
    for operation in ("segmented_sum", "segmented_cumsum"):
        given: dict[str, Any] = {"length": x.size, "segments": size}
        results = [
            back(tcusim.plan(operation, **asked(strategy=name, **given))(a))
            for name in ("panels", "single_pass")
        ]
        assert bits(results[0]) == bits(results[1])


@pytest.mark.parametrize("inner", [200, 3000])
def test_a_row_of_a_product_and_the_other_rows(there: Any, inner: int) -> None:
    a, b = numbers(1, 2**14, inner), numbers(2, inner, 40)
    arrays = there(a), there(b), there(b[:, 0].copy())
    for name, factor in (("matmul", arrays[1]), ("matvec", arrays[2])):
        product = getattr(tcusim, name)
        whole = back(product(arrays[0], factor, dtype="float32"))
        for rows in (1, 7, 40, 600):
            some = product(arrays[0][5 : 5 + rows], factor, dtype="float32")
            assert bits(whole[5 : 5 + rows]) == bits(back(some)), (name, rows)


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("order", [{}, REVERSE], ids=["forward", "reverse"])
@pytest.mark.parametrize("length", [40, 3000, 8192, 100_000])
def test_exact_bits_are_those_of_numpy_arrays(
    there: Any, length: int, order: dict[str, Any]
) -> None:
    if device_sm() < 80:
        pytest.skip(f"sm_{device_sm()} does not multiply float64")
    rng = np.random.default_rng(length)
    x = np.ldexp(rng.uniform(-1, 1, (3, length)), rng.integers(-26, 17, (3, length))).astype("f2")
    x[1] = np.where(x[0] == 0, np.float16(2.0**-24), 65504)
    x[2, length // 2] = np.inf
    a = there(x)
    for result in ("float16", "float32", "float64"):
        # On Volta: its float16 products have nothing in common with float64.
        given: dict[str, Any] = {"bits": "exact", "dtype": result, "arch": "volta"}
        own: dict[str, Any] = {"bits": "exact", "dtype": result}
        assert bits(back(tcusim.sum(a, axis=1, **asked(**own)))) == bits(
            tcusim.sum(x, axis=1, **asked(**given))
        )
        scan = tcusim.cumsum(x, axis=1, **asked(**given), **order)
        assert bits(back(tcusim.cumsum(a, axis=1, **asked(**own), **order))) == bits(scan)
    edges = [0, 9, 9, length // 2, length]
    sums = tcusim.segmented_sum(x[1], edges, options={"bits": "exact"}, dtype="float32")
    found = tcusim.segmented_sum(a[1], edges, options={"bits": "exact"}, dtype="float32")
    assert bits(back(found)) == bits(sums)
