"""Options of calls: as values, as mappings, and of the context around them."""

from __future__ import annotations

import asyncio
import inspect
import threading
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import tcusim
from tcusim import Options
from tcusim.arrays.report import Report
from tcusim.errors import InputError, UnknownName

UNTYPED: Any = tcusim
X = np.ones(40, np.float16)
TAKES = ("sum", "cumsum", "segmented_sum", "segmented_cumsum", "segmented_mean")
PRODUCTS = ("matmul", "matvec")


def arch_of_call(options: Any = None) -> str:
    """Return the architecture of a call."""
    return tcusim.plan("sum", length=9, options=options).problem.arch or ""


def test_values_and_mappings_are_the_same() -> None:
    for given in (Options(arch="volta"), {"arch": "volta"}, {"arch": "volta", "bits": None}):
        assert arch_of_call(given) == "volta"
    assert hash(Options(arch="volta")) == hash(Options(arch="volta"))
    assert repr(Options(tile=(16, 16, 16), acc="f16")) == "Options(tile=(16, 16, 16), acc='f16')"


@pytest.mark.parametrize("wrong", [{"archh": "volta"}, {"Arch": "volta"}, {"arch": None, "ark": 1}])
def test_unknown_options_are_refused(wrong: dict[str, Any]) -> None:
    name = list(wrong)[-1]
    with pytest.raises(UnknownName, match=f"unknown option '{name}'. Did you mean 'arch'"):
        tcusim.sum(X, options=wrong)
    with pytest.raises(UnknownName, match=f"unknown option '{name}'"), tcusim.options(wrong):
        pass
    with pytest.raises(UnknownName, match=f"unknown option '{name}'"), tcusim.options(**wrong):
        pass


@pytest.mark.parametrize("wrong", ["volta", ("arch", "volta"), 3, [("arch", "volta")]])
def test_what_are_no_options_is_refused(wrong: Any) -> None:
    with pytest.raises(InputError, match=r"options must be a tcusim\.Options or a mapping, "):
        tcusim.sum(X, options=wrong)


def test_options_that_a_function_does_not_take_are_refused() -> None:
    for name in TAKES:
        more = {"segments": 1} if name == "segmented_mean" else {}
        with pytest.raises(InputError, match=f"^{name} takes no option 'strategy'; leave it out"):
            getattr(tcusim, name)(X, **more, options={"strategy": "panels"})
    for name in PRODUCTS:
        with pytest.raises(InputError, match=f"^{name} takes no option 'bits'"):
            getattr(tcusim, name)(X.reshape(8, 5), X[:5], options={"bits": "exact"})
    for name in ("report", "progress", "stream"):
        with pytest.raises(InputError, match=f"^plan takes no option '{name}'"):
            tcusim.plan("sum", length=3, options={name: 3})
    with pytest.raises(InputError, match=r"^partials takes no option 'bits'"):
        tcusim.partials(X, options={"bits": "exact"})


def test_contexts_inherit_and_calls_win() -> None:
    report = Report()
    assert arch_of_call() == "hopper"
    with tcusim.options(arch="volta", report=report) as outer:
        assert arch_of_call() == "volta"
        assert arch_of_call({"arch": "ampere"}) == "ampere"
        with tcusim.options({"arch": "turing"}, bits="exact") as inner:
            assert inner == Options(arch="turing", report=report, bits="exact")
            assert arch_of_call() == "turing"
            assert arch_of_call(Options(tile="32x8x16")) == "turing"
            tcusim.sum(X)
            assert report.arch == "turing"
            tcusim.sum(X, options={"arch": "ada"})
            assert report.arch == "ada"
        tcusim.sum(X)
        assert (report.arch, report.launches) == ("volta", 3)
        with suppress(ZeroDivisionError), tcusim.options(outer, arch="ada"):
            assert arch_of_call() == "ada"
            raise ZeroDivisionError
        assert arch_of_call() == "volta"
    assert arch_of_call() == "hopper"


def test_surrounding_options_are_for_those_who_take_them() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal(3000).astype(np.float32)
    usual = tcusim.sum(x), tcusim.matvec(x.reshape(60, 50), x[:50]), tcusim.partials(x)
    means = tcusim.segmented_mean(x, 100, options={"bits": "exact"})
    with tcusim.options(bits="exact", strategy="panels"):
        assert tcusim.sum(x) == np.float32(x.sum(dtype=np.float64))
        assert np.array_equal(tcusim.matvec(x.reshape(60, 50), x[:50]), usual[1])
        # Partial sums of exact sums are none: they have the usual bits.
        assert np.array_equal(tcusim.partials(x), usual[2])
        assert np.array_equal(tcusim.segmented_mean(x, 100), means)
        assert tcusim.sum(x, options={"bits": "segment"}) == usual[0]


def test_threads_have_their_own_and_tasks_inherit() -> None:
    seen: list[str] = []
    with tcusim.options(arch="volta"):
        thread = threading.Thread(target=lambda: seen.append(arch_of_call()))
        thread.start()
        thread.join()

        async def task(arch: str) -> str:
            before = arch_of_call()
            with tcusim.options(arch=arch):
                await asyncio.sleep(0)
                return f"{before} {arch_of_call()}"

        async def both() -> tuple[str, str]:
            first, second = await asyncio.gather(task("ada"), task("ampere"))
            return first, second

        assert asyncio.run(both()) == ("volta ada", "volta ampere")
    assert seen == ["hopper"]


def test_no_public_array_function_names_an_option_beside_them() -> None:
    names = set(Options.__dataclass_fields__)
    for name in (*TAKES, *PRODUCTS, "plan", "plan_product", "partials", "cut_size"):
        taken = inspect.signature(getattr(tcusim, name)).parameters
        assert "options" in taken
        assert not names & taken.keys()
