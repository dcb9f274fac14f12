"""Random products of a library, captured and explained; the library is simulated here."""

from __future__ import annotations

import json
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcusim
from tcusim.errors import BackendUnavailable, InputError
from tcusim.machine import library_products as module
from tcusim.machine.convert import from_values
from tcusim.machine.formats import Values, format_of, to_memory
from tcusim.machine.library_products import (
    KINDS,
    Call,
    Capture,
    Captured,
    calls,
    captured,
    captured_by,
    explained,
    judged,
)

TWO = tcusim.GemmOrder(parts=2)
DEFAULT = tcusim.GemmOrder()


def library(call: Call, a: Values, b: Values) -> Values:
    """Return the results of a library that splits long sums, and is wrong for one type."""
    if call.k == 17:
        raise RuntimeError("17 is refused\nwith more lines")
    left, right = (from_values(x, fmt) for x, fmt in ((a, call.a), (b, call.b)))
    order = TWO if call.k >= 128 else DEFAULT
    dtype = format_of(call.result).array_name
    got = tcusim.predict_matmul(left, right, arch="hopper", order=order, dtype=dtype)
    memory = to_memory(got.astype(format_of(call.result).dtype), call.result)
    return memory[::-1] if call.a == "bf16" and call.k < 128 else memory


def captured_here(*asked: Call) -> Capture:
    products = [Captured.of(call, library) for call in asked]
    return Capture("a simulated GPU", "hopper", {"torch": "none"}, {}, products)


def call(m: int, n: int, k: int, ab: str, result: str) -> Call:
    return Call(m, n, k, ab, ab, result, False, 1)


def test_each_call_is_known_by_default_or_found_or_neither() -> None:
    asked = [
        call(24, 16, 48, "f16", "f32"),
        call(16, 24, 256, "bf16", "f32"),
        call(33, 20, 31, "bf16", "bf16"),
        call(33, 7, 31, "f16", "f16"),
        call(8, 8, 17, "f16", "f16"),
    ]
    capture = captured_here(*asked)
    assert capture.text().splitlines()[1:] == ["8 x 17 by 17 x 8, f16 to f16: 17 is refused"]
    told: list[str] = []
    report = judged(capture, executor=ThreadPoolExecutor(1), say=told.append)
    assert len(told) == len(asked)
    by_call = {row.call: row for row in report.rows}
    assert [by_call[one].how for one in asked] == [
        "default",
        "found",
        "unknown",
        "default",
        "unknown",
    ]
    assert by_call[asked[1]].order == "2 contiguous parts of whole 8s, added in turn"
    lines = [" ".join(line.split()) for line in report.text().splitlines()]
    assert "f16 3 2 0 1" in lines
    assert "bf16 2 0 1 1" in lines
    assert "k 1..64 4 2 0 2" in lines
    assert "all 5 2 1 2" in lines
    assert any(line.startswith("33 x 31 by 31 x 20, bf16 to bf16: ") for line in lines)
    assert "8 x 17 by 17 x 8, f16 to f16: 17 is refused" in lines
    assert json.loads(json.dumps(report.as_json()))["rows"][0]["call"]["a"] == "bf16"


def test_a_byte_outside_what_was_kept_counts() -> None:
    product = Captured.of(call(40, 40, 48, "f16", "f32"), library)
    assert explained(product, "hopper").how == "default"
    wrong = explained(replace(product, digest="0" * 64), "hopper")
    assert (wrong.how, wrong.equal, wrong.count) == ("unknown", 256, 256)


def test_a_record_is_read_again(tmp_path: Path) -> None:
    capture = captured_here(*(call(20, 9, 33, "f16", kind) for kind in ("f16", "f32")))
    capture.products.append(Captured.of(call(20, 9, 33, "bf16", "bf16"), library))
    path = tmp_path / "products.json"
    path.write_text(json.dumps(capture.as_json()))
    again = Capture.read(path)
    assert again == capture
    for row in again.products:
        got = library(row.call, *row.again())
        seen = row.outputs()
        rows, columns = module.places(row.call)
        assert seen.shape == (16, 9)
        assert seen.view(f"u{seen.itemsize}").tolist() == (
            np.ascontiguousarray(got[np.ix_(rows, columns)]).view(f"u{seen.itemsize}").tolist()
        )
    with pytest.raises(InputError, match="cannot be made again: this NumPy"):
        replace(again.products[0], operands="").again()
    for text in ("{", "[]", '{"format": "tcusim orders 1"}'):
        path.write_text(text)
        with pytest.raises(InputError, match="is no record of a library's products, which"):
            Capture.read(path)


def test_a_kernel_without_tensor_cores_is_found() -> None:
    def plain(call: Call, a: Values, b: Values) -> Values:
        return tcusim.predict_matmul(a, b, arch="ieee", ab=call.a, dtype=np.float32)

    for ab in ("f16", "f32"):
        found = explained(Captured.of(call(20, 20, 69, ab, "f32"), plain), "hopper")
        assert (found.how, found.arch, found.order) == ("found", "ieee", "one chain")


class Never(Executor):
    """Begins nothing."""

    def submit(self, *given: Any, **more: Any) -> Any:
        return Future[Any]()


def test_what_there_is_no_time_for_is_counted() -> None:
    capture = captured_here(*(call(9, 9, 33, "f16", kind) for kind in ("f16", "f32")))
    report = judged(capture, seconds=0.0, executor=Never())
    assert report.left == 2
    assert "2 calls were left when the time was over" in report.text()


def test_calls_are_random_and_the_same_each_time() -> None:
    asked = list(calls(64))
    assert asked == list(calls(64))
    assert asked != list(calls(64, seed=1))
    assert {(one.a, one.b, one.result, one.fast) for one in asked} == set(KINDS)
    assert len({(one.m, one.n, one.k) for one in asked}) == 64
    assert all(one.n % 16 == one.k % 16 == 0 for one in asked if one.has_8_bits)


@pytest.mark.parametrize(("a", "b"), [("f32", "f32"), ("bf16", "bf16"), ("e5m2", "e4m3")])
def test_operands_come_as_they_are(a: str, b: str) -> None:
    one = Call(70, 50, 40, a, b, "f32", False, 3)
    for x, fmt in zip(one.operands(), (a, b), strict=True):
        # Every fraction bit is in use, and no value has more of them.
        bits = x.view(np.uint32)
        used = format_of(fmt).fraction_bits
        assert not (bits & np.uint32((1 << (23 - used)) - 1)).any() or x.min() == 0
        assert (bits >> np.uint32(23 - used) & np.uint32(1)).any()


def test_without_a_gpu_it_says_so() -> None:
    with pytest.raises(BackendUnavailable):
        captured(1)


# torch gives no wider results of 16-bit operands on a CPU.
ON_A_CPU = [kind for kind in KINDS if kind[0] == kind[2] or format_of(kind[0]).itemsize == 1]


@pytest.mark.parametrize("kind", ON_A_CPU, ids=str)
def test_torch_is_asked_for_each_kind(kind: tuple[str, str, str, bool]) -> None:
    torch = pytest.importorskip("torch")
    one = Call(32, 32, 64, *kind, 5)
    a, b = one.operands()
    got = module.torch_product(torch, one, a, b, device="cpu")
    assert got.dtype == format_of(one.result).memory_dtype
    outputs = Captured.of(one, lambda call, a, b: got).outputs().astype(np.float64)
    true = a.astype(np.float64) @ b.astype(np.float64)
    assert np.allclose(outputs, true[np.ix_(*module.places(one))], atol=0.3, rtol=0.02)


def test_a_capture_has_what_a_device_returned() -> None:
    torch = pytest.importorskip("torch")
    before = torch.backends.cuda.matmul.allow_tf32
    told: list[str] = []
    asked = tuple(calls(4))
    found = captured_by(torch, "cpu", "a CPU", "hopper", asked, told.append)
    assert (found.gpu, found.arch, len(told)) == ("a CPU", "hopper", 4)
    assert found.settings["allow_tf32"] == "True"
    assert torch.backends.cuda.matmul.allow_tf32 == before
    assert tuple(row.call for row in found.products) == asked
    assert all(row.digest and not row.refused for row in found.products)
