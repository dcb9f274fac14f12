"""tcusim.machine.known_units: units by name, by a GPU, by an architecture, or from a package."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcusim
from tcusim.errors import InputError, UnknownName, Unsupported
from tcusim.machine import Arch, Fused, Integer, Rule, Unit, arch_of, arches, register_unit
from tcusim.machine.arches import BUILT_IN
from tcusim.machine.known_units import fused_unit, unit_of, units
from tcusim.machine.multiprocessors import MULTIPROCESSORS
from tcusim.machine.registry import own_unit, own_units, spelled
from tcusim.machine.shapes import shape_of
from tcusim.machine.unit_file import read_unit

ROW = Rule("f16", "f32", Fused(2, 10), source="invented", evidence="invented")
ARCH = Arch("mychip", "an idea", (), (), (ROW,), source="invented")
UNIT = Unit("mychip", "an idea", ARCH, (shape_of("16x16x16"),))
# The module of a package that declares a unit, and its entry point.
TOY = """
import tcusim
from tcusim.machine import Arch, Fused, Rule, Unit
ROW = Rule("f16", "f32", Fused(2, 10), source="invented", evidence="invented")
ARCH = Arch("toy", "a toy", (), (), (ROW,), source="invented")
UNIT = Unit("toy", "a toy", ARCH, (tcusim.MmaShape(5, 7, 3),))
"""
ENTRY = "[tcusim.units]\ntoy = toy_package:UNIT\n"


def test_a_registered_unit_is_an_architecture_too() -> None:
    assert register_unit(UNIT) is UNIT
    again = register_unit(replace(UNIT, title="changed"))
    assert unit_of("mychip") is again
    register_unit(UNIT)
    assert unit_of("MyChip") is UNIT
    assert unit_of(UNIT) is UNIT
    assert UNIT in units()
    assert arch_of("mychip") is arch_of("MYCHIP") is ARCH
    assert arches().count(ARCH) == 1
    fine = [[1, 2**-11]]
    assert tcusim.mma(fine, [[1], [1]], arch="mychip")[0, 0] == 1
    assert tcusim.mma(fine, [[1], [1]], arch="hopper")[0, 0] > 1


@pytest.mark.parametrize(("a", "b"), [(1.0, [[1]]), ([1, 1], [[1], [1]]), ([[1, 1]], [1, 1])])
def test_what_is_no_matrix_is_refused_by_a_unit_as_by_an_architecture(a: Any, b: Any) -> None:
    register_unit(UNIT)
    for arch in ("mychip", "hopper"):
        with pytest.raises(InputError, match="must have at least 2 dimensions"):
            tcusim.mma(a, b, arch=arch)


def test_a_unit_of_a_known_architecture_is_another_name_for_it() -> None:
    register_unit(Unit("board", "a board", arch_of("volta"), (shape_of("16x16x16"),)))
    assert arch_of("board") is arch_of("volta")
    assert [arch.name for arch in arches()].count("volta") == 1


LIMITS = [
    "fma_per_core",
    "warps_per_core",
    "blocks_per_core",
    "threads_per_core",
    "registers_per_core",
    "shared_bytes_per_core",
    "shared_bytes_per_block",
    "shuffle_interval",
]


def test_the_limits_of_a_multiprocessor_have_one_home(tmp_path: Path) -> None:
    """The files of GPUs do not repeat them; a user's file of a GPU may, and then it counts."""
    for key in own_units():
        unit = unit_of(key)
        if unit.arch.sm:
            written = [line.split(" ")[0] for line in own_units()[key].read_text().splitlines()]
            assert set(LIMITS) & set(written) <= {"shuffle_interval"}, "measured on an H200"
            assert set(LIMITS) <= unit.figures().keys()
    assert MULTIPROCESSORS.keys() == {sm for arch in BUILT_IN for sm in arch.sm}
    path = tmp_path / "a30.toml"
    path.write_text('arch = "ampere"\n[figures]\nblocks_per_core = 8\n')
    own = {key: figure.value for key, figure in read_unit(path).figures().items()}
    assert own == {
        "warps_per_core": 64,
        "blocks_per_core": 8,
        "threads_per_core": 2048,
        "registers_per_core": 65536,
        "shared_bytes_per_core": 164 * 1024,
        "shared_bytes_per_block": 163 * 1024,
        "fma_per_core": 64,
        "shuffle_interval": 4,
    }
    path = tmp_path / "mychip.toml"
    path.write_text('arch = "ampere"\n')
    assert not read_unit(path).figures(), "it computes as Ampere, and is another machine"


def test_an_architecture_is_a_unit_with_the_least_limits_of_its_gpus() -> None:
    unit = unit_of("turing")
    assert unit.arch is arch_of("turing")
    assert list(unit.figures()) == LIMITS
    least, a10, a30 = (unit_of(name).figures() for name in ("ampere", "sm_86", "a30"))
    assert least == {**a10, "fma_per_core": a30["fma_per_core"]}
    assert [a30[key].value // a10[key].value for key in LIMITS] == [0, 1, 2, 1, 1, 1, 1, 1]
    assert [shape.name for shape in unit.shapes][:3] == ["16x16x16", "32x8x16", "8x32x16"]
    assert "16x16x8" not in [shape.name for shape in unit.shapes], "tf32 came with sm_80"
    assert unit_of(arch_of("turing")) == unit
    assert unit_of("exact").shapes == ()


def test_an_entry_point(declare: Callable[..., None]) -> None:
    declare(ENTRY, TOY)
    assert arch_of("volta").name == "volta"
    assert "toy_package" not in sys.modules
    assert arch_of("toy").title == "a toy"
    assert unit_of("toy").shapes[0].name == "5x7x3"
    assert [unit.name for unit in units()].count("toy") == 1
    assert "toy" in [arch.name for arch in arches()]


@pytest.mark.parametrize(
    ("unit", "message"),
    [
        (replace(UNIT, name="hopper"), "'hopper' names the architecture NVIDIA Hopper"),
        (replace(UNIT, name="h800"), "'h800' names the architecture NVIDIA Hopper, which computes"),
        (replace(UNIT, name="other"), "has an architecture of its own, 'mychip'. Call both by one"),
        (replace(UNIT, arch=replace(ARCH, name="ada")), "'ada' names the architecture NVIDIA Ada"),
        ("hopper", "a unit must be a Unit, got 'hopper'"),
    ],
)
def test_units_that_are_not_registered(unit: Unit, message: str) -> None:
    with pytest.raises(InputError, match=message):
        register_unit(unit)


OWN = [
    "v100",
    "t4",
    "a100",
    "a10",
    "l4",
    "l40s",
    "h100",
    "h200",
    "b200",
    "mi100",
    "mi250x",
    "mi300x",
    "amx",
    "sme",
]


def test_units_that_come_with_tcusim() -> None:
    own = {unit.name: unit for unit in units()}
    assert own.keys() >= {*OWN, "rtx 4090", "tpu v4", "tpu v5e"}
    for name, unit in own.items():
        assert unit_of(name) is unit
        assert arch_of(name) is unit.arch
        assert own_unit(name) is unit or unit.arch in BUILT_IN, "a GPU means one architecture"
        assert read_unit(own_units()[spelled(name)]) == unit
        assert unit.shapes
        for one in unit.instructions:
            assert any((one.ab, one.acc) == (rule.ab, rule.acc) for rule in unit.arch.rows)
            shape = next(shape for shape in unit.shapes if shape.name == one.tile)
            assert shape.supports(one.ab, one.acc)


def test_the_gallery_computes_as_its_sources_say() -> None:
    """Each result tells the unit's rule from the nearest other."""
    gallery = [unit for unit in units() if own_unit(unit.name) is unit]
    assert len(gallery) >= 11
    assert all(rule.source and rule.evidence != "assumed" for u in gallery for rule in u.arch.rows)

    def dot(arch: str, x: list[float], y: list[float], c: float = 0.0, **types: str) -> float:
        dtype = {"s8": np.int8, "f16": np.float16}.get(types["ab"], np.float32)
        row, column = np.array([x], dtype), np.array([y], dtype).T
        d = tcusim.mma(row, column, [[c]], arch=arch, **types)
        return float(d[0, 0])

    # Saturated within +-(2**31 - 1), where others wrap.
    assert dot("wormhole", [-100], [100], -(2**31) + 5, ab="s8", acc="s32") == -(2**31) + 1
    assert dot("coral_npu", [-100], [100], -(2**31) + 5, ab="s8", acc="s32") > 0
    # Two mma of eight products round twice.
    x, y = [2.0**8, 2.0**-4, *[0.0] * 6, 2.0**-6], [2.0**8, 2.0**-4, *[0.0] * 6, 2.0**-3]
    assert dot("mxdotp", x, y, ab="e5m2") == 2.0**16
    assert dot("exact", x, y, ab="e5m2") == 2.0**16 + 2.0**-7
    # A chain from zero, then c: 1 + 2**-24 + 2**-24 is 1 if they are added to it in turn.
    tiny = [2.0**-12] * 2
    assert dot("gemmini_bf16", tiny, tiny, 1.0, ab="bf16") == 1 + 2.0**-23
    assert dot("ieee", tiny, tiny, 1.0, ab="bf16") == 1
    # Even and odd k apart.
    terms = [1.0, 2.0**-12, 2.0**-24, 2.0**-12]
    assert dot("amx_sdm", terms, [1.0, 2.0**-12, 1.0, 2.0**-12], ab="bf16") == 1 + 2.0**-23
    # The last bit is set if any is lost.
    assert dot("zvbdot_256", [1.0, 2.0**-40], [1.0, 1.0], ab="bf16") == 1 + 2.0**-23
    # A sticky bit decides the tie of 1 + 2**-24.
    half = [1.0, 2.0**-12, 2.0**-14]
    assert dot("vortex_tfr", half[:2], half[:2], ab="f16") == 1
    assert dot("vortex_tfr", half, half, ab="f16") == 1 + 2.0**-23
    # It is no number: it does not fill the places that a cancellation leaves empty.
    assert dot("vortex_tfr", [2.0**8, 2.0**8, 1], [2.0**8, -(2.0**8), 1], 2.0**-40, ab="f16") == 1
    assert dot("redmule", [1.0, 2.0**-6], [1.0, 2.0**-5], ab="f16", acc="f16") == 1


@pytest.mark.parametrize(
    "name", ["v100", "t4", "a100", "a10", "l4", "l40s", "h100", "h200", "b200", "rtx4090"]
)
def test_figures_of_gpus_agree_with_each_other(name: str) -> None:
    unit = unit_of(name)
    value = {key: figure.value for key, figure in unit.figures().items()}
    assert value["threads_per_core"] == 32 * value["warps_per_core"]
    assert value["shared_bytes_per_block"] >= 1024 * (unit.arch.shared_kb or 0)
    # A data sheet gives the rate of the cores: 2 operations a multiply-add.
    promised = {"v100": 125e12, "a100": 312e12}.get(name)
    if promised is not None:
        wmma = unit.instruction("16x16x16", "f16", "f32", "wmma")
        assert wmma is not None
        assert wmma.interval is not None
        rate = 16**3 / wmma.interval.value * value["units_per_core"]
        assert 2 * rate * value["cores"] * value["clock"] == pytest.approx(promised, rel=0.01)


def test_names_as_drivers_give_them() -> None:
    assert unit_of("NVIDIA H100 80GB HBM3").name == "h100"
    assert unit_of("NVIDIA GeForce RTX 4090").name == "rtx 4090"
    assert unit_of("a30").arch is unit_of("ampere").arch


def test_their_names_are_taken() -> None:
    with pytest.raises(InputError, match="there is already a unit 'h200', from tcusim itself"):
        register_unit(Unit("h200", "mine", arch_of("hopper"), (shape_of("16x16x16"),)))


@pytest.mark.parametrize(
    ("name", "ab", "acc", "why"),
    [
        ("tpu v4", "bf16", "f32", "neither the order nor the rounding of an MXU's sums"),
        ("mi100", "f16", "f32", "its two published models contradict each other"),
        ("mi300x", "e4m3", "f32", "no negative zero and another bias: e4m3fnuz and e5m2fnuz"),
        ("amx", "bf16", "f32", "its two documents contradict each other: even and odd k"),
        ("zvvm", "bf16", "f32", "each implementation states its own group G, psm and rounding"),
    ],
)
def test_arithmetic_that_is_not_known_is_refused(name: str, ab: str, acc: str, why: str) -> None:
    with pytest.raises(Unsupported, match=why):
        tcusim.mma([[1]], [[1]], arch=name, ab=ab, acc=acc)


def test_others_sum_one_fused_multiply_add_after_another() -> None:
    a, b = [[1, 2**-24, 2**-24]], [[1], [1], [1]]
    for name in ("mi100", "mi250x", "mi300x", "sme"):
        assert tcusim.mma(a, b, arch=name, ab="f32")[0, 0] == 1
    assert tcusim.mma([[100, 100]], [[100], [100]], arch="amx", ab="s8", acc="s32")[0, 0] == 20000


def test_a_unit_for_a_quick_question() -> None:
    unit = fused_unit(8, 20, "rne")
    assert unit.name == "fused-8-20-rne"
    assert {rule.how for rule in unit.arch.rows} == {Fused(8, 20, "rne"), Integer()}
    with pytest.raises(InputError, match=r"Fused.length must be an integer of at least 1, got 0"):
        fused_unit(0, 20)


def test_unknown_names() -> None:
    with pytest.raises(
        UnknownName, match=r"unknown unit or architecture 'hoper'. Did you mean 'hopper'\?"
    ):
        unit_of("hoper")
    with pytest.raises(UnknownName, match=r"unknown architecture 'a.toml'.* --unit a.toml"):
        arch_of("a.toml")


# A program that prints the limits of NVIDIA's header for each compute capability: the most resident
# blocks and the largest amounts of shared memory that it takes; of one that it does not know, -1.
OCCUPANCY = """
#include <cstdio>
#include <cuda_occupancy.h>
int main() {
    const int all[] = {%s};
    for (int sm : all) {
        cudaOccDeviceProp gpu;
        gpu.computeMajor = sm / 10, gpu.computeMinor = sm %% 10;
        int blocks = -1;
        cudaOccMaxBlocksPerMultiprocessor(&blocks, &gpu);
        size_t most = 0;
        for (size_t kb = 0, size; kb < 1024; ++kb)
            if (cudaOccAlignUpShmemSizeVoltaPlus(&(size = 1024 * kb), &gpu) == CUDA_OCC_SUCCESS)
                most = kb;
        printf("%%d %%d %%zu\\n", sm, blocks, most);
    }
}
"""


def test_rows_of_multiprocessors_are_those_of_nvidia_s_own_header(tmp_path: Path) -> None:
    compiler = shutil.which("g++") or shutil.which("clang++")
    try:
        files = metadata.files("nvidia-cuda-runtime-cu12") or []
    except metadata.PackageNotFoundError:
        files = []
    header = next((file for file in files if file.name == "cuda_occupancy.h"), None)
    if compiler is None or header is None:
        pytest.skip("needs a C++ compiler and nvidia-cuda-runtime-cu12")
    source, program = tmp_path / "occupancy.cpp", tmp_path / "occupancy"
    source.write_text(OCCUPANCY % ", ".join(map(str, MULTIPROCESSORS)))
    include = Path(str(header.locate())).parent
    subprocess.run([compiler, f"-I{include}", source, "-o", program], check=True, timeout=60)
    told = subprocess.run([program], check=True, capture_output=True, text=True, timeout=60).stdout
    known = 0
    for sm, blocks, shared_kb in (map(int, line.split()) for line in told.splitlines()):
        if blocks > 0:
            known += 1
            row = MULTIPROCESSORS[sm]
            assert (row.blocks, row.shared_kb) == (blocks, shared_kb), sm
    assert known >= 7, "sm_70 to sm_90"
