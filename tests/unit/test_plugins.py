"""tcusim.plugins: an installed package that is broken takes nothing else down."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from typing import Any

import pytest

import tcusim
from command_line import tcusim_command
from tcusim import plugins
from tcusim.algorithms import algorithm_of, algorithms
from tcusim.backends import backends
from tcusim.errors import InputError, UnknownName
from tcusim.machine import arch_of, arches, unit_of
from tcusim.machine.shapes import shape_of, shapes

GROUPS = ("tcusim.shapes", "tcusim.arches", "tcusim.units", "tcusim.algorithms", "tcusim.backends")
UNIT = "[tcusim.arches]\ntoy = toy_package:UNIT\n"
EVERY_GROUP = "".join(f"[{group}]\ntoy = toy_package:THING\n" for group in GROUPS)


def names_of_everything() -> list[str]:
    found = [row.name for table in (shapes(), arches(), algorithms()) for row in table]
    return found + list(backends())


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("raise RuntimeError('no luck')", "cannot be loaded: RuntimeError: no luck"),
        ("def", "cannot be loaded: SyntaxError: invalid syntax (toy_package.py, line 1)"),
        ("{}['a']", "cannot be loaded: KeyError: 'a'"),
        ("not_defined", "cannot be loaded: NameError: name 'not_defined' is not defined"),
        ("raise SystemExit(3)", "cannot be loaded: SystemExit: 3"),
        ("", "cannot be loaded: module 'toy_package' has no attribute 'THING'"),
        ("import no_such", "'no_such'. Install it with: pip install --upgrade toy-package"),
        ("THING = 3.14", "cannot be used: "),
    ],
)
def test_a_broken_module(declare: Callable[..., None], code: str, reason: str) -> None:
    before = names_of_everything()
    declare(EVERY_GROUP, code)
    assert sorted(names_of_everything()) == sorted([*before, "toy"])
    assert shape_of("16x16x16").name == "16x16x16"
    assert arch_of("h200").name == "hopper"
    assert algorithm_of("scan_t").name == "scan_t"
    found = plugins.broken()
    assert [one.distribution for one in found] == ["toy-package 1.0"] * len(GROUPS)
    starts = [f"entry point 'toy' = 'toy_package:THING' ({group})" for group in sorted(GROUPS)]
    assert sorted(str(one).split(" of ")[0] for one in found) == starts
    assert all(reason in str(one) for one in found)
    for ask in (arch_of, algorithm_of):
        with pytest.raises(InputError) as caught:
            ask("toy")
        assert reason in str(caught.value)


ARCH = (
    "from tcusim.machine import Arch, Fused, Rule, Unit\n"
    "from tcusim.machine.shapes import shape_of\n"
    "ROW = Rule('f16', 'f32', Fused(2, 10), source='s', evidence='none')\n"
    "ARCH = Arch('toy', 'a toy', (), ({alias!r},), (ROW,), source='s')\n"
)
UNUSABLE = (
    ("shapes", "THING = [(64, 8, 16)]", "a shape must be an MmaShape, got (64, 8, 16)"),
    (
        "shapes",
        "from tcusim import MmaShape\nTHING = MmaShape(16, 16, 16)",
        "there is already a shape '16x16x16', from tcusim itself",
    ),
    ("arches", "THING = 3.14", "cannot be used: an architecture must be an Arch, got 3.14"),
    (
        "arches",
        ARCH.format(alias="h200") + "THING = ARCH",
        "there is already an architecture 'h200', from tcusim",
    ),
    ("units", "THING = 3.14", "cannot be used: a unit must be a Unit, got 3.14"),
    (
        "units",
        ARCH.format(alias="t1") + "THING = Unit('hopper', 'mine', ARCH, (shape_of('5x7x3'),))",
        "'hopper' names the architecture NVIDIA Hopper, which",
    ),
)


@pytest.mark.parametrize(("group", "code", "reason"), UNUSABLE)
def test_an_unusable_item_takes_no_other_name_down(
    declare: Callable[..., None], group: str, code: str, reason: str
) -> None:
    before = names_of_everything()
    declare(f"[tcusim.{group}]\ntoy = toy_package:THING\n", code)
    (found,) = plugins.broken()
    assert "entry point 'toy' = 'toy_package:THING'" in found.reason
    assert reason in found.reason
    assert names_of_everything() == before
    assert shape_of("16x16x16").supports("f16", "f32")
    assert unit_of("hopper").arch is arch_of("h200") is arch_of("hopper")
    if group != "shapes":
        for ask in (arch_of, unit_of) if group == "units" else (arch_of,):
            with pytest.raises(InputError) as caught:
                ask("toy")
            assert reason in str(caught.value)
    with pytest.raises(UnknownName, match=r"unknown architecture 'hoper'.*Did you mean 'hopper'"):
        arch_of("hoper")


def test_the_list_prints_and_warns(declare: Callable[..., None]) -> None:
    declare(EVERY_GROUP, "raise RuntimeError('no luck')")
    result = tcusim_command("list")
    assert result.exit_code == 0
    for word in ("reduction_256n", "32x8x16", "blackwell", "the simulator, on NumPy"):
        assert word in result.stdout
    assert sorted(result.stderr.splitlines()) == [
        f"warning: entry point 'toy' = 'toy_package:THING' ({group}) of toy-package 1.0 "
        "cannot be loaded: RuntimeError: no luck"
        for group in sorted(GROUPS)
    ]


def test_each_is_imported_once(declare: Callable[..., None]) -> None:
    declare(UNIT, "import builtins\nbuiltins.toys += 1\n1/0\n")
    import builtins

    builtins.toys = 0  # type: ignore[attr-defined]
    for _ in range(3):
        arches()
        plugins.broken()
        with pytest.raises(InputError, match="ZeroDivisionError"):
            arch_of("toy")
    assert builtins.toys == 1  # type: ignore[attr-defined]


def test_an_entry_point_that_is_no_python(declare: Callable[..., None]) -> None:
    declare("[tcusim.arches]\ntoy = toy-package/UNIT\n")
    (one,) = plugins.broken()
    assert str(one).endswith("of toy-package 1.0 cannot be loaded: write it as 'module:object'")


def test_entry_points_that_cannot_be_read(declare: Callable[..., None]) -> None:
    declare("[tcusim.arches]\ntoy\n")
    assert arch_of("h200").name == "hopper"
    (one,) = plugins.broken()
    assert str(one).startswith("the entry points of toy-package 1.0 cannot be read: ")


def test_a_package_without_metadata(declare: Callable[..., None]) -> None:
    declare(UNIT, metadata="")
    (one,) = plugins.broken()
    assert one.distribution.startswith("a package without metadata in ")
    assert "None" not in str(one).replace("NoneType", "")


def test_two_packages_of_one_name(declare: Callable[..., None]) -> None:
    declare(UNIT)
    declare("[tcusim.arches]\ntoy = rival:UNIT\n", package="rival")
    (one,) = plugins.broken()
    assert str(one).endswith(
        "both have an entry point 'toy' in tcusim.arches. Uninstall one of them."
    )
    assert {"toy-package", "rival"} <= set(one.distribution.split())
    with pytest.raises(InputError, match="both have an entry point 'toy'"):
        arch_of("toy")


def test_an_algorithm_of_a_package(declare: Callable[..., None]) -> None:
    code = (
        "from dataclasses import replace\n"
        "from tcusim.algorithms import algorithm_of\n"
        "ROW = replace(algorithm_of('reduction_k'), name='reduction_toy', alias='')\n"
    )
    declare("[tcusim.algorithms]\ntoy = toy_package:ROW\n", code)
    assert tcusim.build("reduction_toy").steps == tcusim.build("reduction_k").steps
    assert "reduction_toy" in [row.name for row in algorithms()]


def test_packages_are_looked_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    real = importlib.metadata.distributions

    def distributions() -> object:
        looks.append(1)
        return real()

    monkeypatch.setattr(importlib.metadata, "distributions", distributions)
    plugins.declared.cache_clear()
    for _ in range(3):
        names_of_everything()
        with pytest.raises(InputError):
            arch_of("no such")
    assert len(looks) == 1


def test_restored_forgets_what_was_registered() -> None:
    before = names_of_everything()
    with plugins.restored():
        tcusim.register_shape(tcusim.MmaShape(3, 5, 7))
        assert "3x5x7" in names_of_everything()
    assert names_of_everything() == before


def test_an_owner_may_replace_its_own_item_alone() -> None:
    registry = plugins.Registry[str](
        "word", "tcusim.words", lambda one: one.split(), lambda one: ()
    )
    registry.add("a b", "tcusim itself")
    registry.replace("c d", "me")
    registry.replace("c e", "me")
    assert registry.all() == ("a b", "c e")
    assert registry.find("d") is None
    with pytest.raises(InputError, match="me: there is already a word 'a', from tcusim itself"):
        registry.replace("a c", "me")


@pytest.mark.parametrize(
    "register",
    [tcusim.register_shape, tcusim.register_arch, tcusim.register_unit, tcusim.register_algorithm],
)
def test_one_item_is_registered_at_a_time(register: Callable[[Any], Any]) -> None:
    for wrong in (7, [1, 2], [tcusim.MmaShape(3, 5, 7), tcusim.MmaShape(3, 5, 8)]):
        with pytest.raises(InputError, match=r"must be an? \w+, (or .*)?got "):
            register(wrong)
