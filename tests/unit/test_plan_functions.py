"""Plans by sizes and a type, and refusals."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tcusim
from asked import asked
from tcusim import plan
from tcusim.errors import InputError, UnknownName, Unsupported


@pytest.mark.parametrize("dtype", [np.float32, np.dtype("f4"), "float32", "f4"])
def test_types_by_any_name(dtype: Any) -> None:
    made = plan("sum", length=10, dtype=dtype, result=dtype)
    assert made is plan("sum", length=10, dtype="float32")
    assert plan("sum", length=10, dtype=ml_dtypes.bfloat16).dtype == "bfloat16"
    with pytest.raises(InputError, match="dtype: data type 'half a float' not"):
        plan("sum", length=10, dtype="half a float")


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int64", "bool"])
def test_integers_have_the_results_of_numpy(dtype: str) -> None:
    x = np.random.default_rng(2).integers(-128, 128, 50_000).astype(dtype)
    for result in (None, "int32", "float64"):
        made = plan("cumsum", length=x.size, dtype=dtype, result=result)
        expected = x.cumsum(dtype=result)
        assert (made.dtype, made.result) == (dtype, expected.dtype.name)
        assert made(x).dtype == expected.dtype
        np.testing.assert_array_equal(made(x), expected)


def test_equal_plans_are_made_once() -> None:
    first = plan("segmented_sum", length=100, segments=10)
    assert plan("segmented_sum", length=100, segments=10, options={"tile": (16, 16, 16)}) is first
    assert plan("segmented_sum", length=100, segments=10, options={"arch": "volta"}) is not first
    assert plan("segmented_cumsum", length=100, segments=10) is not first
    by_arch = [
        plan("sum", length=9, options={"arch": name}).launches
        for name in ("hopper", "sm_90", "H200")
    ]
    assert by_arch[0] == by_arch[1] == by_arch[2]


@pytest.mark.parametrize(
    ("error", "text", "operation", "keywords"),
    [
        (UnknownName, "unknown operation 'total'. ", "total", {}),
        (UnknownName, "unknown operation 'cumsun'. Did you mean 'cumsum'?", "cumsun", {}),
        (InputError, "length must be at least 1, got 0", "sum", {"length": 0}),
        (InputError, "length must be an integer, got 2.0", "sum", {"length": 2.0}),
        (InputError, "segments must be at least 1, got -3", "segmented_sum",
         {"segments": -3}),
        (InputError, "'segmented_sum' needs segments", "segmented_sum", {}),
        (InputError, "'sum' takes the array as one segment; leave segments out, or plan "
         "'segmented_sum'", "sum", {"segments": 3}),
        (InputError, "dtype must be a real number type, got complex64", "sum",
         {"dtype": "complex64"}),
        (InputError, "dtype int32 would cut the fractions of float16 input", "sum",
         {"result": "int32"}),
        (InputError, "exclusive is for scans, and 'sum' is none", "sum", {"exclusive": True}),
        (InputError, "reverse is for scans, and 'segmented_sum' is none", "segmented_sum",
         {"reverse": True, "segments": 3}),
        (UnknownName, "unknown accumulator 'f23'", "sum", {"acc": "f23"}),
        (Unsupported, "acc 'f16' is for float16 input, not float32", "sum",
         {"acc": "f16", "dtype": "float32"}),
        (Unsupported, "tensor cores have no bf16 (sm_80 is the first)", "sum",
         {"dtype": "bfloat16", "arch": "volta"}),
        (UnknownName, "unknown backend 'nunpy'", "sum", {"backend": "nunpy"}),
        (Unsupported, "'scan_kn' is a scan, and this is a reduction", "sum",
         {"algorithm": "scan_kn"}),
        (UnknownName, "unknown strategy 'panel'. Did you mean 'panels'?", "sum",
         {"strategy": "panel"}),
        (InputError, "strategy 'panels' does not apply to 16384 elements: it is for "
         "segments that a warp takes alone", "sum", {"strategy": "panels", "length": 2**14}),
        (InputError, "strategy 'named' does not apply to 100 elements: it is for a named "
         "algorithm", "sum", {"strategy": "named"}),
        (InputError, "give algorithm or strategy, not both", "sum",
         {"strategy": "panels", "algorithm": "reduction_kn"}),
        (Unsupported, "segments of more than 8388608 elements are summed exactly in pieces, and",
         "sum", {"dtype": "int8", "length": 2**23 + 1, "strategy": "single_pass"}),
    ],
)  # fmt: skip
def test_plans_that_cannot_be(
    error: type[Exception], text: str, operation: str, keywords: dict[str, Any]
) -> None:
    with pytest.raises(error) as caught:
        plan(operation, **asked(**{"length": 100, **keywords}))
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("operation", "sizes", "text"),
    [
        ("matmul", {"rows": 3, "inner": 4}, "'matmul' needs cols, the columns of b; 'matvec' has"),
        ("matvec", {"rows": 3, "inner": 4, "cols": 1}, "'matvec' has none"),
        ("matvec", {"rows": 0, "inner": 4}, "rows must be at least 1, got 0"),
        ("product", {"rows": 3, "inner": 4}, "operation"),
    ],
)
def test_plans_of_products_that_cannot_be(operation: str, sizes: Any, text: str) -> None:
    with pytest.raises(InputError, match=text):
        tcusim.plan_product(operation, **sizes)


def test_a_product_is_not_planned_as_a_sum() -> None:
    with pytest.raises(
        InputError, match=r"'matvec' is a product; plan it with tcusim\.plan_product"
    ):
        tcusim.plan("matvec", length=3)
