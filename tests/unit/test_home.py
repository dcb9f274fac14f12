"""Homes of arrays: types, layouts and factors that go together in GPU memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcusim
from asked import asked
from device_standin import OnGpu, StandIn, halves
from tcusim.errors import InputError, Unsupported


@pytest.mark.parametrize(
    ("name", "x", "keywords", "text"),
    [
        ("sum", np.zeros(3, np.int32), {}, "arrays in GPU memory must be of float16, float32, "
         "float64, bfloat16, int8 or uint8, got int32; cast it there, or copy it to a NumPy array"),
        ("sum", np.zeros(3, bool), {}, "must be of float16, float32, float64, bfloat16, int8 or "
         "uint8, got bool"),
        ("sum", np.zeros(3, np.int8), {"dtype": "int16"}, "int8 arrays in GPU memory have int64, "
         "int32, float32, float64 results, not int16; cast the result"),
        ("sum", np.zeros(3, np.float16), {"dtype": int}, "dtype of a float16 array in GPU memory "
         "must be one of float16, float32, float64, bfloat16, got int64; cast the result"),
        ("sum", np.zeros(3, np.float16), {"dtype": "half a float"}, "dtype: data type 'half a"),
        ("sum", np.zeros(3, np.float16), {"axis": 1}, "axis 1 is out of range for an array of 1"),
        ("segmented_sum", np.zeros(3, np.float16), {}, "give segments: the elements of each one"),
        ("segmented_sum", np.zeros(3, np.float16), {"segments": 4}, "segments=4 is "
         "longer than the axis, which has 3"),
        ("segmented_sum", np.zeros((2, 5), np.float16), {"segments": 2,
         "algorithm": "reduction_k"}, "2 does not divide the axis' length, 5: in GPU memory the "
         "last segment of each row is then shorter, and segments lie by offsets, for which there"),
        ("sum", np.zeros(3, np.float32), {"arch": "volta", "algorithm": "reduction_kn"}, "float32 "
         "arrays in GPU memory are multiplied in bf16 parts, and volta has no bf16. Cast the array "
         "to float16, leave algorithm out, or copy it"),
        ("sum", np.zeros(3, np.float32), {"acc": "f16"}, "acc 'f16' is for float16"),
        ("sum", np.zeros(2**23 + 1, np.int8), {"dtype": "int32"}, "sums of more than 8388608 "
         "integers may not fit int32; choose int64 as dtype"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_on_a_gpu(
    device: StandIn, name: str, x: Any, keywords: dict[str, Any], text: str
) -> None:
    with pytest.raises(InputError) as caught:
        getattr(tcusim, name)(OnGpu(x), **asked(**keywords))
    assert text in str(caught.value)
    assert device.runs == []


@pytest.mark.parametrize(
    ("name", "left", "right", "keywords", "text"),
    [
        ("matmul", (3, 4), (5, 6), {}, "a has 4 columns and b 5 rows, which must be equal; got "
         "shapes (3, 4) and (5, 6)"),
        ("matvec", (3, 4), (5,), {}, "a has 4 columns and x 5 elements, which must be equal"),
        ("matmul", (2, 3, 4), (3, 4, 5), {}, "the axes before the matrices cannot be broadcast: "
         "(2,) and (3,), of arrays of shapes (2, 3, 4) and (3, 4, 5)"),
        ("matmul", (2, 3, 4), (2, 5, 4), {}, "a has 4 columns and b 5 rows, which must be equal"),
        ("matmul", (), (3,), {}, "matmul takes arrays of one axis or more, got shapes () and (3,)"),
        ("matmul", (3,), (), {}, "matmul takes arrays of one axis or more, got shapes (3,) and ()"),
        ("matvec", (3,), (3,), {}, "matvec takes a matrix, of two axes or more, and a vector, of "
         "one or more; got shapes (3,) and (3,)"),
        ("matvec", (2, 3, 4), (3, 4), {}, "the axes before the matrices cannot be broadcast"),
        ("matmul", (3, 4), (4, 5), {"c": (5,)}, "c must be of float16, shape (3, 5), as the result "
         "in GPU memory; got float16, (5,)"),
        ("matmul", (3, 4), (4, 5), {"algorithm": "gemv"}, "multiplies a matrix by one vector"),
        ("matmul", (3, 4), (4, 5), {"dtype": "int32"}, "dtype of a float16 array in GPU memory "
         "must be one of"),
    ],
)  # fmt: skip
def test_products_that_cannot_be_done_on_a_gpu(
    device: StandIn, name: str, left: Any, right: Any, keywords: dict[str, Any], text: str
) -> None:
    if "c" in keywords:
        keywords = {**keywords, "c": OnGpu(halves(*keywords["c"]))}
    with pytest.raises(InputError) as caught:
        getattr(tcusim, name)(OnGpu(halves(*left)), OnGpu(halves(*right)), **asked(**keywords))
    assert text in str(caught.value)
    assert device.runs == []


def test_factors_that_do_not_go_together(device: StandIn) -> None:
    a, b = halves(3, 4), halves(4, 5)
    for one, two, c, text in (
        (OnGpu(a), b, None, "b is a numpy.ndarray, but a is in GPU memory; copy b there too"),
        (a, OnGpu(b), None, "a is a numpy.ndarray, but b is in GPU memory; copy a there too"),
        (a, b, OnGpu(halves(3, 5)), "a is a numpy.ndarray, but c is in GPU memory; copy a there"),
        (OnGpu(a), OnGpu(b.astype("f4")), None, "a is of float16 and b of float32; in GPU memory "
         "both must be of one type: cast one of them"),
    ):  # fmt: skip
        with pytest.raises(InputError) as caught:
            tcusim.matmul(one, two, c)
        assert text in str(caught.value)
    with pytest.raises(Unsupported, match="float32 arrays in GPU memory are multiplied in bf16 p"):
        tcusim.matmul(OnGpu(a.astype("f4")), OnGpu(b.astype("f4")), options={"arch": "volta"})
    a, b = np.zeros((1, 2**16 + 1), np.int8), np.zeros(2**16 + 1, np.int8)
    with pytest.raises(Unsupported, match="sums of more than 65536 products of int8 may not fit"):
        tcusim.matvec(OnGpu(a), OnGpu(b))
