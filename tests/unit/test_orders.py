"""tcusim_bench.orders: random products of a library, explained; here a simulated library."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import tcusim
from tcusim.errors import BackendUnavailable
from tcusim.machine.formats import Values
from tcusim_bench import orders as module
from tcusim_bench.orders import Call, Report, calls, orders

TWO = tcusim.GemmOrder(parts=2)


def library(call: Call, a: Values, b: Values) -> Values:
    """Return what a library would that splits long sums, and is wrong for one type."""
    order = TWO if call.k >= 128 else None
    dtype = np.dtype(call.result)
    got = tcusim.predict_matmul(a, b, arch="hopper", ab=call.ab, order=order, dtype=dtype)
    return 2 * got if call.dtype == "float32" else got


def test_each_call_has_its_order() -> None:
    report = Report("a simulated GPU", "hopper", {"tcusim": tcusim.__version__})
    asked = [
        Call(24, 16, 48, "float16", "float32", 1),
        Call(16, 24, 256, "bfloat16", "float32", 1),
        Call(16, 16, 32, "float32", "float32", 1),
        Call(33, 7, 31, "float16", "float16", 1),
    ]
    told: list[str] = []
    with ThreadPoolExecutor(1) as pool:
        module._explain_all(report, asked, library, pool, None, told.append)
    assert len(told) == len(asked)
    by_call = {row.call: row for row in report.rows}
    assert [by_call[call].right for call in asked] == [True, True, False, True]
    assert [by_call[call].one_chain for call in asked if by_call[call].right] == [True, False, True]
    text = report.text()
    assert "      1..64      3          2            0          1" in text
    assert "    65..256      1          0            1          0" in text
    assert "16 x 32 by 32 x 16, float32 to float32: 256 of 256 differ from one chain" in text
    assert {by_call[call].arch for call in asked if by_call[call].right} == {"hopper"}
    # What nothing explains is kept for later, in part.
    (wrong,) = (row for row in report.rows if not row.right)
    a, b = wrong.call.operands()
    got = library(wrong.call, a, b).view(np.uint32)
    assert len(wrong.seen) == 12 * 12
    assert all(got[*map(int, key.split(","))] == int(bits, 16) for key, bits in wrong.seen.items())
    assert not any(row.seen for row in report.rows if row.right)
    assert json.loads(json.dumps(report.as_json()))["rows"][0]["call"]["dtype"] == "bfloat16"


def test_a_kernel_without_tensor_cores_is_found() -> None:
    call = Call(20, 20, 69, "float32", "float32", 1)
    a, b = call.operands()
    got = tcusim.predict_matmul(a, b, arch="ieee", ab="tf32")
    found = module.explained(call, got, "hopper")
    assert found.right
    assert (found.arch, found.order) == ("ieee", "one chain")


def test_what_there_is_no_time_for_is_counted() -> None:
    report = Report("a simulated GPU", "hopper", {})
    with ThreadPoolExecutor(1) as pool:
        module._explain_all(
            report, list(calls(3))[:2], lambda call, a, b: np.zeros((1, 1)), pool, 0.0, None
        )
    assert report.left == 2
    assert "2 calls were left when the time was over" in report.text()


def test_calls_are_random_and_the_same_each_time() -> None:
    asked = list(calls(50))
    assert asked == list(calls(50))
    assert asked != list(calls(50, seed=1))
    assert {(call.dtype, call.result) for call in asked} == set(module.KINDS)
    assert len({(call.m, call.n, call.k) for call in asked}) == 50
    for call in asked[:5]:
        a, b = call.operands()
        assert a.shape == (call.m, call.k)
        assert b.shape == (call.k, call.n)


def test_without_a_gpu_it_says_so() -> None:
    with pytest.raises(BackendUnavailable):
        orders(1)
