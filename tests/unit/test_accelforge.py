"""Units as AccelForge's architectures, and the energy that they give a cost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tcusim
from tcusim.errors import InputError
from tcusim.machine import Figure, Unit, unit_of
from tcusim.machine.accelforge import accelforge_yaml, read_accelforge

pytest.importorskip("yaml", reason="AccelForge's files are read with PyYAML")

# As an architect writes one: expressions, comments, memories that a unit lacks, two compute units.
WRITTEN = """
arch:
  nodes:
  - !Memory
    name: DRAM
    size: inf
    actions:
    - {name: read, energy: 8e-12, throughput: 8 * 600e9}
    - {name: write, energy: 9e-12, throughput: 8 * 600e9}
  - !Memory
    name: Buffer
    size: 1024*1024*8 # 1 MB
    actions: [{name: read, energy: 2e-12, throughput: inf}]
  - !Memory
    name: Local
    spatial: [{name: Z, fanout: 4, may_reuse: Nothing}]
    size: 8 * 65536
    actions: [{name: read, energy: 1e-12, throughput: 8 * 128 * 1e9}]
  - !Compute
    name: Scalar
    actions: [{name: compute, energy: 1, throughput: 5}]
  - !Container
    name: PE
    spatial: [{name: x, fanout: 16}, {name: y, fanout: 16}]
  - !Memory
    name: Register
    size: weight.bits_per_value if weight else 0
    actions: [{name: read, energy: 0, throughput: inf}]
  - !Compute
    name: MAC
    area: 8e-10
    actions: [{name: compute, energy: 1e-13, throughput: 1e9}]
"""


def with_energy() -> Unit:
    figures = {
        "memory_energy": 6.4e-11, "l2_energy": 1.6e-11, "shared_energy": 2e-12,
        "multiply_add_energy": 5e-13, "multiply_add_area": 6e-10,
    }  # fmt: skip
    invented: dict[str, Any] = {
        name: Figure(value, "invented", "assumed") for name, value in figures.items()
    }
    return replace(unit_of("v100"), **invented)


def test_figures_that_are_written_are_read_again(tmp_path: Path) -> None:
    unit, path = with_energy(), tmp_path / "v100.yaml"
    path.write_text(accelforge_yaml(unit))
    found = read_accelforge(path)
    assert found.keys() == {
        "clock", "cores", "memory_bytes", "memory_bandwidth", "memory_energy", "l2_bytes",
        "l2_bandwidth", "l2_energy", "shared_bytes_per_core", "shared_bandwidth",
        "shared_energy", "multiply_add_energy", "multiply_add_area",
    }  # fmt: skip
    for name, figure in found.items():
        assert figure.value == pytest.approx(getattr(unit, name).value, rel=1e-12), name
    given: dict[str, Any] = dict(found)
    assert replace(unit, **given).clock == Figure(1.53e9, "AccelForge: v100.yaml", "published")
    # 8 tensor cores of 64 multiply-adds a cycle.
    assert "{name: multiply_adds, fanout: 512}" in path.read_text()


def test_what_a_unit_does_not_say_is_named() -> None:
    text = accelforge_yaml("v100")
    assert "# Not known, 0 or inf: multiply_add_energy." in text
    assert text.count("energy: 0,") == 7
    with pytest.raises(InputError, match=r"hopper does not say clock, cores, the interval of an"):
        accelforge_yaml("hopper")
    # A measured interval is no integer, and a fanout is.
    assert "{name: multiply_adds, fanout: " in accelforge_yaml("h200")


def test_an_architecture_of_others_is_read(tmp_path: Path) -> None:
    path = tmp_path / "written.yaml"
    path.write_text(WRITTEN)
    found = {name: figure.value for name, figure in read_accelforge(path).items()}
    assert found == pytest.approx({
        "memory_bandwidth": 600e9, "memory_energy": 64e-12, "l2_bytes": 2**20,
        "l2_energy": 16e-12, "cores": 4, "shared_bytes_per_core": 2**16, "shared_bandwidth": 128,
        "shared_energy": 8e-12, "clock": 1e9, "multiply_add_energy": 1e-13,
        "multiply_add_area": 8e-10,
    })  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("8e-10", "__import__('os')", r"\"__import__\('os'\)\" is no number, nor \+ - \* / of"),
        ("8e-10", "1 / 0", "'1 / 0' is no number"),
        ("8e-10", "{{ area }}", "cannot be read as YAML: .* must be rendered first"),
        ("!Compute", "!Computer", "needs a !Memory and a !Compute below arch, nodes"),
        ("!Memory", "", "needs a list of tagged nodes, such as !Memory, below arch, nodes"),
        ("arch:", "other:", "needs a list of tagged nodes"),
    ],
)
def test_what_is_no_architecture_is_refused(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(WRITTEN.replace(old, new))
    with pytest.raises(InputError, match=message):
        read_accelforge(path)
    with pytest.raises(InputError, match="cannot be read as YAML"):
        read_accelforge(tmp_path / "missing.yaml")


def test_a_cost_has_an_energy_if_the_unit_has() -> None:
    unit, plan = with_energy(), tcusim.plan("sum", length=2**28, options={"arch": "v100"})
    found = tcusim.cost(plan, unit)
    assert found.energy is not None
    # Each byte of the array passes memory and the cache once.
    least = 2 * 2**28 * (6.4e-11 + 1.6e-11)
    assert least < found.energy < 1.3 * least
    assert "picojoules a byte of its arrays" in str(found)
    assert tcusim.cost(plan, "v100").energy is None
    # A tile that is not multiplied takes no energy of products.
    without = replace(unit, multiply_add_energy=None)
    adds = tcusim.plan("sum", length=2**20, dtype="float64", options={"arch": "v100"})
    assert tcusim.cost(adds, without).energy == tcusim.cost(adds, unit).energy
    assert tcusim.cost(plan, without).energy is None
