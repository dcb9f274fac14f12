"""The benchmark's programs: the list of them, and their correctness."""

from __future__ import annotations

import numpy as np
import pytest

from some import Some, marked
from tcusim.errors import InputError, TcusimError
from tcusim.machine import format_of
from tcusim.program.launches import Memory
from tcusim_bench.parts import POWERS
from tcusim_bench.problems import reference
from tcusim_bench.programs import Recipe, plans, recipes
from tcusim_bench.record import Case
from tcusim_cuda.emit import emit

# Even powers of two, and the whole array.
SIZES = [size or None for size in POWERS if size.bit_length() % 2 or not size]
ALL = [(kind, size) for kind in ("sum", "scan") for size in SIZES]


def tried(kind: str, size: int | None, length: int = 2**30) -> list[Recipe]:
    """Return the benchmark's candidates: plans, and other programs that can be built."""
    case = Case("x", kind, size or length, length)
    return [one for one in (*plans(case), *recipes(kind, size)) if _takes(one, length)]


@pytest.mark.parametrize(("kind", "size"), marked(ALL, 3))
def test_programs_build_and_emit(kind: str, size: int | None, some: Some) -> None:
    found = tried(kind, size)
    assert len(set(found)) == len(found)
    labels = [(recipe.acc, recipe.result, recipe.label) for recipe in found]
    assert len(set(labels)) == len(labels)
    for recipe in some(found, 8, ALL.index((kind, size))):
        plan = recipe.plan(2**30)
        inputs = [plan.memory[name] for name in plan.inputs if name != "offsets"]
        assert [(array.dtype, array.size) for array in inputs] == [("f16", 2**30)]
        results = 2**30 if kind == "scan" else 2**30 // (size or 2**30)
        assert plan.outputs == ("out",)
        assert plan.arrays[-1] == Memory("out", recipe.result, results)
        for launch in plan.launches:
            kernel = emit(launch.program)
            assert 0 < kernel.blocks(plan.scalars(launch)) < 2**31


def test_what_is_tried() -> None:
    """Every algorithm of the kind; blocks share long segments, and warps take short ones."""

    def names(kind: str, size: int | None) -> set[str | None]:
        found = (recipe for recipe in recipes(kind, size) if _takes(recipe, 2**22))
        return {recipe.algorithm for recipe in found}

    assert names("sum", None) == {"reduction_single_pass"}
    assert names("scan", None) == {"scan_single_pass"}
    assert {"reduction_tn", "reduction_tn_block", "reduction_single_pass"} < names("sum", 2**16)
    assert {"reduction_panel", "reduction_kn"} < names("sum", 256)
    assert names("scan", 2**18) == {"scan_tn_block", "scan_single_pass", "scan_matmul"}
    assert names("matvec", 256) == set()


@pytest.mark.parametrize(
    ("kind", "size"), [(kind, size) for kind, size in ALL if (size or 0) <= 65536]
)
def test_programs_are_right(kind: str, size: int | None, some: Some) -> None:
    rng = np.random.default_rng(size)
    data = rng.uniform(-1, 1, 2**18).astype(np.float16)
    rows = data.reshape(-1, size or 2**18).astype(np.float64)
    right = reference(kind, rows).ravel()
    largest = np.abs(right).max()
    every = dict.fromkeys(recipe.alone() for recipe in tried(kind, size, 2**18))
    for recipe in some(every, 8, ALL.index((kind, size))):
        got = recipe.simulate(data, "sm_90")
        assert got.dtype == format_of(recipe.result).dtype
        f32 = recipe.acc == recipe.result == "f32"
        assert np.abs(got - right).max() <= largest * (1e-5 if f32 else 0.01), recipe.label


def _takes(recipe: Recipe, length: int) -> bool:
    """Return whether the blocks of a recipe fit into the length."""
    try:
        recipe.plan(length)
    except TcusimError:
        return False
    return True


@pytest.mark.parametrize(
    "recipe",
    [
        Recipe("sum", 1024, "reduction_tn", warps=4),
        Recipe("sum", 2**14, "reduction_tn_block", warps=4),
        Recipe(
            "sum", 2**14, "reduction_single_pass", warps=4, masked=True, options=(("groups", 2),)
        ),
        Recipe("scan", 1024, "scan_tn", warps=4, items_per_warp=2),
        Recipe("scan", None, "scan_single_pass", warps=4, masked=True, options=(("batches", 4),)),
    ],
)
def test_what_stands_for_a_recipe_has_its_bits(recipe: Recipe) -> None:
    data = np.random.default_rng(1).uniform(-1, 1, 2**16).astype(np.float16)
    got = recipe.alone().simulate(data, "sm_90")
    np.testing.assert_array_equal(got, recipe.simulate(data, "sm_90"))


def test_the_beginning_of_an_array_has_the_bits_of_the_whole() -> None:
    """A plan depends on the length; the first results are those of the whole array's plan."""
    data = np.random.default_rng(2).uniform(-1, 1, 2**19 + 100).astype(np.float16)
    for size in (None, 2**16):
        recipe = Recipe("scan", size, None)
        whole = recipe.simulate(data, "sm_90")
        part = recipe.simulate(data[: 2**17], "sm_90", length=data.size)
        np.testing.assert_array_equal(part, whole[: 2**17])


def test_the_plan_is_that_of_the_functions() -> None:
    """The recipe "plan" has the bits of `tcusim.segmented_sum` and its kin."""
    import tcusim

    data = np.random.default_rng(3).uniform(-1, 1, 2**17).astype(np.float16)
    for kind, function in (("sum", tcusim.segmented_sum), ("scan", tcusim.segmented_cumsum)):
        for size in (64, 65536):
            expected = function(data, size, dtype=np.float32, options={"arch": "sm_90"})
            got = Recipe(kind, size, None).simulate(data, "sm_90")
            np.testing.assert_array_equal(got, expected)
    for result in ("f16", "f32"):
        dtype = format_of(result).dtype
        for kind, of_whole in (("sum", tcusim.sum), ("scan", tcusim.cumsum)):
            got = Recipe(kind, None, None, result=result).simulate(data, "sm_90")
            np.testing.assert_array_equal(
                got.squeeze(), of_whole(data, dtype=dtype, options={"arch": "sm_90"})
            )
        product = tcusim.matvec(
            data.reshape(256, 512), data[:512], dtype=dtype, options={"arch": "sm_90"}
        )
        recipe = Recipe("matvec", 512, None, result=result)
        got = recipe.simulate(data, "sm_90", second=data[:512])
        np.testing.assert_array_equal(got, product)


def test_a_plan_chooses_for_the_unit() -> None:
    """On an arch of little shared memory it launches the functions' programs for it."""
    import tcusim

    assert {one.arch for one in recipes("scan", None, arch="turing")} == {"turing"}
    scan = tcusim.plan("cumsum", length=2**23, result="float32", options={"arch": "turing"})
    product = tcusim.plan_product(
        "matvec", rows=2**14, inner=512, result="float32", options={"arch": "turing"}
    )
    for kind, size, launches in (("scan", None, scan.launches), ("matvec", 512, product.launches)):
        recipe = Recipe(kind, size, None, arch="turing")
        (mine,) = recipe.plan(2**23).launches
        (launch,) = launches
        assert mine.program == launch.program
        assert recipe.problem(2**23).arch == "turing"


def test_the_label_of_a_plan_names_its_programs() -> None:
    assert Recipe("sum", 64, None).label_at(2**20) == "plan: reduction_panel warps=1"
    (launch,) = (whole := Recipe("sum", None, None)).plan(2**30).launches
    expected = f"plan: reduction_single_pass warps={launch.program.warps}"
    assert whole.label_at(2**30) == expected
    assert Recipe("scan", 16, None, shape="1x1x1").label == "plan"
    named = Recipe("scan", 2**16, "scan_tn", warps=4)
    assert named.label_at(2**20) == named.label == "scan_tn 16x16x16 warps=4"


def test_a_matrix_of_whole_rows() -> None:
    with pytest.raises(InputError, match="1000 elements are no rows of 512"):
        Recipe("matvec", 512, None).plan(1000)


def test_a_length_that_does_not_fit() -> None:
    with pytest.raises(InputError, match="not a multiple of 8388608"):
        Recipe("sum", 2**20, "reduction_tn", warps=8).plan(2**22)


@pytest.mark.parametrize("dtype", ["bf16", "f32", "f64", "s8"])
def test_plans_of_other_types_are_those_of_arrays_in_gpu_memory(dtype: str) -> None:
    """Each type has results of its own, and sums of int8 are int32."""
    size, result = 64, {"s8": "s32", "bf16": "f32"}.get(dtype, dtype)
    case = Case("x", "sum", size, 2**12, dtype)
    recipe = next(iter(plans(case, "hopper")))
    assert recipe.result == result
    values = np.random.default_rng(0).integers(-4, 5, case.length)
    data = values.astype(format_of(dtype).dtype)
    got = recipe.simulate(data, "sm_90")
    np.testing.assert_array_equal(got, values.reshape(-1, size).sum(axis=1))


def test_a_ragged_plan_is_tried_with_the_longest_segment_and_without() -> None:
    offsets = np.array([0, 3, 3, 40, 64])
    case = Case("x", "sum", 0, 64, lengths="uniform 0..20")
    found = [one for one in plans(case, segments=4, longest=37) if one.result == "f32"]
    assert [one.label for one in found] == ["plan, longest=37", "plan"]
    data = np.arange(64, dtype=np.float16)
    for recipe in found:
        got = recipe.simulate(data, "sm_90", second=offsets)
        np.testing.assert_array_equal(got, [3, 0, data[3:40].sum(dtype=float), 1236])
