"""`tcusim bench`: its files and refusals."""

from __future__ import annotations

from typing import Any

import pytest

from tcusim.errors import InputError
from tcusim_bench import throughput as bench
from tcusim_bench.throughput import (
    Settings,
)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"log2_length": 10}, "log2_length must be from 20 to 34, got 10"),
        ({"log2_length": 20, "segments": (-1,)}, r"must be from 0 to 2\*\*20, got -1"),
        ({"log2_length": 20, "sections": ("sum",)}, "unknown section 'sum'"),
        ({"log2_length": 20, "backend": "host"}, "backend must be one of cuda, cupy, pycuda"),
    ],
)
def test_wrong_arguments(given: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        bench.bench(Settings(**{"segments": (16,), **given}))
