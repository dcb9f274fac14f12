"""tcusim_bench.operators: times of operators by several libraries; here of NumPy on the host."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from command_line import runner
from tcusim.errors import BackendUnavailable
from tcusim_bench import operators as module
from tcusim_bench.command import bench_command
from tcusim_bench.operators import OPERATORS, Operator, Report, measured

LIMITS = {"read": 4e12, "copy": 2e12}


class Tensor(np.ndarray):
    """An array with the two methods of a tensor that the measurement asks."""

    def numel(self) -> int:
        return self.size

    def element_size(self) -> int:
        return self.itemsize


def tensor(shape: tuple[int, int], dtype: str) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(dtype).view(Tensor)


class Once:
    """A timer that runs each call once: the GPU takes a millisecond, the host a microsecond."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def gpu(self, run: Callable[[], object]) -> float:
        self.sizes.append(np.asarray(run()).size)
        return 1.0

    def host(self, run: Callable[[], object]) -> float:
        run()
        return 1.0


def norm(x: Any, shape: tuple[int, ...]) -> Any:
    assert shape == x.shape[1:]
    return x / np.sqrt(np.mean(x * x, axis=1, keepdims=True))


NUMPY = SimpleNamespace(
    sum=np.sum,
    mean=np.mean,
    cumsum=np.cumsum,
    rms_norm=norm,
    nn=SimpleNamespace(functional=SimpleNamespace(rms_norm=norm)),
    softmax=lambda x, axis: np.exp(x) / np.exp(x).sum(axis, keepdims=True),
)


def test_each_operator_is_timed_by_each_library() -> None:
    def lacking(one: Operator) -> Callable[[Any], object]:
        if one.name == "cumsum":
            raise NotImplementedError("no cumsum here\nand more")
        return lambda x: one.theirs(NUMPY, x)

    libraries: list[tuple[str, Any]] = [
        ("ours", lambda one: lambda x: one.ours(NUMPY, x)),
        ("theirs", lacking),
    ]
    timer = Once()
    rows = list(measured([(8, 64)], ["float32"], libraries, tensor, timer, LIMITS))
    assert [(row.operator, row.who) for row in rows] == [
        (one.name, who) for one in OPERATORS for who in ("ours", "theirs")
    ]
    # What is as large as the tensor was written as well, and is held against copying.
    sizes = {one.name: 8 if one.passes == 1 else 512 for one in OPERATORS}
    assert timer.sizes == [sizes[row.operator] for row in rows if row.ms is not None]
    by_name = {(row.operator, row.who): row for row in rows}
    assert by_name["sum", "ours"].of_limit == pytest.approx(4 * 512 / 4e12 * 1e3)
    assert by_name["softmax", "theirs"].of_limit == pytest.approx(2 * 4 * 512 / 2e12 * 1e3)
    lack = by_name["cumsum", "theirs"]
    assert (lack.ms, lack.us, lack.wrong) == (None, None, "NotImplementedError: no cumsum here")
    report = Report("a GPU", {"tcusim": "1"}, 512, LIMITS, rows)
    text = report.text()
    assert "read 4.00 TB/s; copy 2.00 TB/s" in text
    assert "cumsum          64 float32   theirs           NotImplementedError: no cumsum" in text
    assert len(json.loads(json.dumps(report.as_json()))["rows"]) == len(rows)


def test_without_a_gpu_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "imported", lambda name: None)
    with pytest.raises(BackendUnavailable, match="Install a torch that has CUDA"):
        module.operators()
    found = runner().invoke(bench_command, ["operators", "--quick"])
    assert found.exit_code != 0
