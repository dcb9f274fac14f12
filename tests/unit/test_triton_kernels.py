"""The benchmark's Triton kernels compile, without a GPU."""

from __future__ import annotations

import importlib

import pytest


@pytest.mark.parametrize("name", ["sum_rows", "scan_panel"])
def test_triton_kernels_compile(name: str) -> None:
    pytest.importorskip("triton")
    compiler = importlib.import_module("triton.compiler")
    target = importlib.import_module("triton.backends.compiler").GPUTarget("cuda", 90, 32)
    kernels = importlib.import_module("tcusim_bench.triton_kernels")
    types = {"data": "*fp16", "out": "*fp32" if name == "sum_rows" else "*fp16"}
    sizes = {"size": 256, "rows": 8, "step": 256}
    signature = {**types, **dict.fromkeys(sizes, "constexpr")}
    source = compiler.ASTSource(getattr(kernels, name), signature, sizes)
    assert compiler.compile(source, target=target).asm["cubin"]
