"""A plan that is emitted for a GPU: the GPUs, arrays and results that it takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcusim
from gpu_standin import LONG, PROGRAM, OnGpu, StandIn, X, aligned, prepared, run, session_of
from tcusim.algorithms import build
from tcusim.errors import BackendUnavailable, InputError
from tcusim.machine import Rule, rule_for
from tcusim.program.grammar import Program
from tcusim.program.launches import LaunchPlan
from tcusim_cuda.prepared import PreparedPlan


def test_the_lanes_compute_as_another_architecture_does(gpu: StandIn) -> None:
    def rule_of(arch: str | None, program: Program = PROGRAM) -> Rule | None:
        (step,) = PreparedPlan(LaunchPlan.of_program(program, {"in": X.size}), arch).steps
        return step.kernel.rule

    for name in (None, "hopper", "sm_90", "h200"):
        run(gpu, PROGRAM, {"in": X}, arch=name)
        assert rule_of(name) is None
    run(gpu, PROGRAM, {"in": X}, arch="volta")
    assert rule_of("volta") == rule_for("volta", "f16", "f32")
    # A tile that no GPU has follows the rule of this one, if no other is named.
    small = build("reduction_k", tile=(4, 4, 4))
    assert rule_of(None, small) == rule_for("hopper", "f16", "f32")
    assert rule_of("cdna3", small) == rule_for("cdna3", "f16", "f32")


def test_a_gpu_that_is_too_old(gpu: StandIn) -> None:
    gpu.driver.number_of_sm = 75
    with pytest.raises(BackendUnavailable, match=r"needs a GPU of sm_80 or newer, GPU 0 is an St"):
        run(gpu, build("reduction_k", ab="bf16"), {"in": np.zeros(512, np.float32)})


def test_a_plan_for_another_gpu(gpu: StandIn) -> None:
    gpu.driver.number_of_sm = 70
    session = prepared(gpu, arch="volta")
    gpu.driver.number_of_sm = 90
    with pytest.raises(InputError, match="stand-in: arch 'volta', but GPU 0 is an Stand-in"):
        session.run({"in": OnGpu(LONG)}, shape=(LONG.size,))
    gpu.driver.number_of_sm = 75
    session = prepared(gpu, dtype="float64")
    with pytest.raises(BackendUnavailable, match=r"needs a GPU of sm_80 or newer"):
        session.run({"in": OnGpu(LONG.astype(np.float64))}, shape=(LONG.size,))


@pytest.mark.parametrize(
    ("array", "said"),
    [
        (OnGpu(X, shape=(2, 256)), r"must be flat \(one axis\), got shape \(2, 256\)"),
        (OnGpu(X, strides=(4,)), "has gaps between its elements"),
        (OnGpu(X, typestr="<f4", shape=(256,)), r"must be of float16 \(f16\), got float32"),
        (OnGpu(X, shift=2), "which is not a multiple of 32 bytes"),
        (OnGpu(X, mask=object()), "has a mask"),
    ],
)
def test_gpu_arrays_that_do_not_fit(gpu: StandIn, array: OnGpu, said: str) -> None:
    with pytest.raises(InputError, match=f"input 'in'.*{said}"):
        run(gpu, PROGRAM, {"in": array})
    assert gpu.launches == 0


def test_gpu_outs_that_do_not_fit(gpu: StandIn) -> None:
    array = OnGpu(X)
    start = array.values.ctypes.data
    out = np.zeros(32, np.float32)
    for given, said in (
        (OnGpu(out[:8]), "out 'out' must have 32 elements, it has 8"),
        (OnGpu(out, data=(start - 32, False)), "out 'out' overlaps input 'in' in memory"),
        (OnGpu(out, data=(aligned(out).ctypes.data, True)), "out 'out' is read-only"),
        (out, "'out' is not in GPU memory, but input 'in' is"),
    ):
        with pytest.raises(InputError, match=said):
            run(gpu, PROGRAM, {"in": array}, out={"out": given})
    assert gpu.launches == 0


def test_an_array_beside_another_does_not_overlap(gpu: StandIn) -> None:
    both = aligned(np.zeros(512 + 64, np.float16))
    start = both.ctypes.data
    array = OnGpu(X, data=(start, False))
    out = OnGpu(np.zeros(32, np.float32), data=(start + 1024, False))
    run(gpu, PROGRAM, {"in": array}, out={"out": out})
    assert gpu.launches == 1


@pytest.mark.parametrize(
    ("array", "said"),
    [
        (LONG[:-1], f"a must have {LONG.size} elements, it has {LONG.size - 1}; "),
        (LONG.astype(np.float32), r"a must be of float16 \(f16\), got float32"),
        (None, r"a is a builtins\.NoneType, which is not in GPU memory\. Copy it there first"),
    ],
)
def test_arrays_that_a_plan_does_not_take(gpu: StandIn, array: Any, said: str) -> None:
    given = array if array is None else OnGpu(array)
    with pytest.raises(InputError, match=said):
        prepared(gpu).run({"in": given}, shape=(LONG.size,))
    with pytest.raises(InputError, match="a has gaps between its elements"):
        prepared(gpu).run({"in": OnGpu(LONG, strides=(4,))}, shape=(LONG.size,))
    with pytest.raises(InputError, match=r"a begins at address .* not a multiple of 32 bytes"):
        prepared(gpu).run({"in": OnGpu(LONG, shift=2)}, shape=(LONG.size,))
    assert gpu.launches == 0


def test_outs_that_overlap_the_input_of_a_plan(gpu: StandIn) -> None:
    x = OnGpu(LONG)
    start, shape = x.values.ctypes.data, (LONG.size,)
    for shift in (-32, 32, 2 * LONG.size - 2):
        out = OnGpu(LONG, data=(start + shift, False))
        with pytest.raises(InputError) as caught:
            prepared(gpu).run({"in": x}, out=out, shape=shape)
        if shift % 32 == 0:
            assert str(caught.value) == (
                "out overlaps a in memory. Give a itself, to compute in place, or an array of its "
                "own."
            )
    beside = aligned(np.concatenate([LONG, LONG[:11], LONG]))
    before = OnGpu(LONG, data=(beside.ctypes.data, False))
    after = OnGpu(LONG, data=(beside.ctypes.data + 2 * LONG.size + 22, False))
    assert prepared(gpu).run({"in": before}, out=after, shape=shape) is after
    one = session_of(gpu, tcusim.plan("segmented_sum", length=LONG.size, segments=1))
    # Each sum is of one element; no other warp reads it.
    assert one.run({"in": x}, out=x, shape=shape) is x


@pytest.mark.parametrize(
    ("out", "said"),
    [
        (
            np.zeros(4, np.float16),
            r"out must be an array of float16, shape \(\); got float16, \(4,\)",
        ),
        (
            np.zeros((), np.float32),
            r"out must be an array of float16, shape \(\); got float32, \(\)",
        ),
    ],
)
def test_outs_that_a_plan_does_not_take(gpu: StandIn, out: Any, said: str) -> None:
    session = prepared(gpu, "sum")
    with pytest.raises(InputError, match=said):
        session.run({"in": OnGpu(LONG)}, out=OnGpu(out), shape=())
    frozen = OnGpu(np.zeros((), np.float16), data=(aligned(LONG[:1]).ctypes.data, True))
    with pytest.raises(InputError, match=r"out is read-only\. Give an array to write to\."):
        session.run({"in": OnGpu(LONG)}, out=frozen, shape=())
    with pytest.raises(InputError, match=r"out is a numpy\.ndarray, which is not in GPU memory"):
        session.run({"in": OnGpu(LONG)}, out=out, shape=())
    assert gpu.launches == 0


@pytest.mark.parametrize(
    ("offsets", "said"),
    [
        (
            np.zeros(4, np.int64),
            "offsets must have 5 elements, it has 4; Plan.* is for no other size",
        ),
        (np.zeros(5, np.int32), r"offsets must be of int64 \(s64\), got int32"),
    ],
)
def test_offsets_that_a_session_does_not_take(gpu: StandIn, offsets: Any, said: str) -> None:
    session = session_of(
        gpu, tcusim.plan("segmented_cumsum", length=LONG.size, segments=tcusim.Segments(count=4))
    )
    with pytest.raises(InputError, match=said):
        session.run({"in": OnGpu(LONG), "offsets": OnGpu(offsets)}, shape=(LONG.size,))


def test_outs_that_overlap_offsets_or_lie_by_them(gpu: StandIn) -> None:
    both = np.zeros(100, np.int64)
    both[1:3] = 8, 16
    offsets = OnGpu(both[:3])
    x = OnGpu(np.ones(16, np.float16))
    session = session_of(
        gpu, tcusim.plan("segmented_cumsum", length=16, segments=tcusim.Segments(count=2))
    )
    start = offsets.values.ctypes.data
    out = OnGpu(np.zeros(16, np.float16), data=(start, False))
    with pytest.raises(InputError, match="out overlaps offsets in memory"):
        session.run({"in": x, "offsets": offsets}, out=out, shape=(16,))
    wide = session_of(
        gpu,
        tcusim.plan(
            "segmented_cumsum", length=16, segments=tcusim.Segments(count=2), result="float32"
        ),
    )
    beside = OnGpu(np.zeros(16, np.float32), data=(x.values.ctypes.data, False))
    with pytest.raises(InputError, match=r"out overlaps a in memory\. Give an array of its own"):
        wide.run({"in": x, "offsets": offsets}, out=beside, shape=(16,))
    assert gpu.launches == 0


@pytest.mark.parametrize(
    ("out", "said"),
    [
        (
            np.zeros(512, np.float16),
            r"out must be an array of float16, shape \(513,\); got float16",
        ),
        (
            np.zeros(513, np.float32),
            r"out must be an array of float16, shape \(513,\); got float32",
        ),
    ],
)
def test_outs_that_do_not_fit_an_initial_zero(gpu: StandIn, out: Any, said: str) -> None:
    session = session_of(gpu, tcusim.plan("cumsum", length=512))
    x, right = OnGpu(X), np.zeros(513, np.float16)
    options: dict[str, Any] = {"shape": (513,), "initial": "first"}
    with pytest.raises(InputError, match=said):
        session.run({"in": x}, out=OnGpu(out), **options)
    with pytest.raises(InputError, match="out has gaps between its elements"):
        session.run({"in": x}, out=OnGpu(right, strides=(4,)), **options)
    with pytest.raises(InputError, match=r"out begins at address .* not a multiple of 2 bytes"):
        session.run({"in": x}, out=OnGpu(right, shift=1), **options)
    frozen = OnGpu(right, data=(aligned(right).ctypes.data, True))
    with pytest.raises(InputError, match="out is read-only"):
        session.run({"in": x}, out=frozen, **options)
    start = x.values.ctypes.data
    for address in (start - 1024, start - 2, start, start + 1022):
        over = OnGpu(right, data=(address, False))
        with pytest.raises(InputError, match="out overlaps a in memory"):
            session.run({"in": x}, out=over, **options)
    assert gpu.launches == 0
