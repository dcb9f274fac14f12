"""tcusim.backends: names, errors, and the arguments that the built-in backend passes on."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tcusim import backends, plugins
from tcusim.algorithms import build
from tcusim.backends import get_backend, register_backend, why_unavailable
from tcusim.errors import BackendUnavailable, InputError, UnknownName
from tcusim.program.checks.verifier import problems, verify
from tcusim.program.launches import LaunchPlan
from tcusim.program.printer import listing
from tcusim.simulate.backend import NUMPY
from tcusim.simulate.interpreter import interpret

PROGRAM = build("reduction_16")


X = np.ones(256, np.float16)


PLAN = LaunchPlan.of_program(PROGRAM, {"in": 256})


class FakeBackend:
    title = "a fake"

    def __init__(self, name: str = "fake", reason: str | None = None) -> None:
        self.name = name
        self.reason = reason

    def available(self) -> str | None:
        return self.reason

    def run(
        self,
        plan: LaunchPlan,
        inputs: Mapping[str, Any],
        *,
        arch: str | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        return {"out": inputs["in"]}


# The module of a package that declares a backend.
TOY = """
class Toy:
    name, title = "toy", "a toy"

    def available(self):
        return None

    def run(self, plan, inputs, **options):
        return {}

BACKEND = Toy()
"""


def entry(name: str = "toy", value: str = "toy_package:BACKEND") -> str:
    return f"[tcusim.backends]\n{name} = {value}\n"


@pytest.mark.parametrize(
    ("use", "text"),
    [
        (listing, "program must be a Program, got 'scan_256'; tcusim.build('scan_256') makes one"),
        (verify, "program must be a Program, got 'scan_256'"),
        (problems, "program must be a Program, got 'scan_256'"),
        (lambda name: next(interpret(name, {})), "program must be a Program, got 'scan_256'"),
        (lambda name: backends.run(name, {}), "program must be a Program, got 'scan_256'"),
    ],
)
def test_the_name_of_an_algorithm_is_no_program(use: Callable[[Any], object], text: str) -> None:
    with pytest.raises(InputError, match=re.escape(text)):
        use("scan_256")


@pytest.mark.parametrize(
    ("inputs", "options", "text"),
    [
        (
            X,
            {},
            "reduction_16: inputs must be a mapping of names to arrays, such as {'in': array}, ",
        ),
        ({"in": None}, {}, "input 'in' must be a flat array, got None"),
        (
            {"in": X},
            {"out": X},
            "out must be a mapping of names to arrays, such as {'out': array}, ",
        ),
        ({"in": X}, {"out": {"sums": X}}, "has no output 'sums' for out; it has out"),
        ({"in": X}, {"out": {"out": X}}, "out['out'] must be a flat array of 16 elements, got (25"),
        ({"in": X}, {"out": {"out": [0] * 16}}, "out['out'] must be a flat array of 16 elements, "),
        ({"in": X}, {"out": {"out": np.broadcast_to(X[:1], 16)}}, "out['out'] is read-only"),
    ],
)
def test_what_a_run_is_given_has_names(inputs: Any, options: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=re.escape(text)):
        backends.run(PROGRAM, inputs, **options)


def test_a_program_is_a_plan_of_one_launch_on_any_backend() -> None:
    x = np.ones(256, np.float16)
    expected = backends.run(PROGRAM, {"in": x})["out"]
    assert backends.run(PROGRAM, {"in": x.tolist()}, backend=NUMPY)["out"].tolist() == list(
        expected
    )
    register_backend(FakeBackend())
    assert backends.run(PROGRAM, {"in": x}, backend="fake")["out"] is x


@pytest.mark.parametrize(
    ("backend", "text"),
    [
        (
            FakeBackend(),
            "register_backend: there is already a backend 'fake', from register_backend. "
            "Give the new one another name.",
        ),
        (FakeBackend("numpy"), "already a backend 'numpy', from tcusim itself."),
        (FakeBackend, "FakeBackend is a class. A backend is an object: use one"),
        (
            SimpleNamespace(name="half", run=None),
            "a SimpleNamespace object is no backend, it lacks title, available; "
            "see tcusim.backends.Backend",
        ),
        (
            SimpleNamespace(name="five", title=5, available=None, run=None),
            "a SimpleNamespace object is no backend, its title is no",
        ),
    ],
)
def test_what_cannot_be_registered(backend: Any, text: str) -> None:
    registered = FakeBackend()
    assert register_backend(registered) is register_backend(registered)
    assert "fake" in backends.backends()
    with pytest.raises(InputError, match=re.escape(text)):
        register_backend(backend)


def test_the_name_of_an_installed_backend_is_taken(declare: Callable[..., None]) -> None:
    declare(entry(), TOY)
    with pytest.raises(InputError, match=r"already a backend 'toy', from toy-package 1\.0\."):
        register_backend(FakeBackend("toy"))


def test_an_installed_backend_does_not_replace_the_simulator(declare: Callable[..., None]) -> None:
    declare(entry("numpy"), TOY.replace('"toy"', '"numpy"'))
    assert get_backend("numpy") is NUMPY
    assert backends.backends().count("numpy") == 1
    (reason,) = [str(one) for one in plugins.broken()]
    assert "of toy-package 1.0 cannot be used" in reason
    assert "there is already a backend 'numpy', from tcusim itself" in reason


def test_a_backend_that_fails_when_asked_is_unavailable(
    only_backends: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def available(self: FakeBackend) -> str | None:
        raise OSError("no driver")

    monkeypatch.setattr(FakeBackend, "available", available)
    only_backends(NUMPY, FakeBackend())
    reason = "fake: it does not say whether it can run here, OSError: no driver"
    assert why_unavailable("fake") == reason


def test_unknown_name_lists_the_known_ones(declare: Callable[..., None]) -> None:
    declare(entry())
    with pytest.raises(
        UnknownName, match=r"^unknown backend 'toi'\. Did you mean 'toy'\?"
    ) as caught:
        get_backend("toi")
    assert {"numpy", "toy"} <= set(str(caught.value).split("Valid: ")[1].rstrip(".").split(", "))
    with pytest.raises(UnknownName, match=r"unknown backend \['numpy'\]"):
        get_backend(["numpy"])  # type: ignore[arg-type]


def test_an_unavailable_backend_gives_its_reason(only_backends: Callable[..., None]) -> None:
    reason = "No module named 'pycuda'. Install it with: pip install 'tcusim[pycuda]'"
    only_backends(NUMPY, FakeBackend("pycuda", reason))
    with pytest.raises(BackendUnavailable) as caught:
        get_backend("pycuda")
    assert str(caught.value) == f"pycuda: {reason}"
    assert why_unavailable("pycuda") == f"pycuda: {reason}"


def test_an_installed_backend_is_imported_once_and_not_before(
    declare: Callable[..., None],
) -> None:
    declare(entry(), TOY)
    assert "toy" in backends.backends()
    assert "toy_package" not in sys.modules
    backend = get_backend("toy")
    assert backend.title == "a toy"
    del sys.modules["toy_package"]
    assert get_backend("toy") is backend


def test_an_installed_backend_may_register_itself(declare: Callable[..., None]) -> None:
    declare(entry(), TOY + "import tcusim\ntcusim.register_backend(BACKEND)\n")
    assert get_backend("toy").title == "a toy"


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (TOY.replace('"toy"', '"other"'), "its backend is called 'other', and must have the name"),
        ("", "module 'toy_package' has no attribute 'BACKEND'"),
        ("BACKEND = 7", "a int object is no backend, it lacks name, title, available, run"),
        (
            "import no_such_library",
            "No module named 'no_such_library'. Install it with: pip install",
        ),
        ("raise SystemExit(3)", "cannot be loaded: SystemExit: 3"),
    ],
)
def test_a_broken_backend_is_unavailable(
    declare: Callable[..., None], code: str, reason: str
) -> None:
    declare(entry(), code)
    assert get_backend("numpy") is NUMPY
    for _ in range(2):
        with pytest.raises(BackendUnavailable) as caught:
            get_backend("toy")
        text = "toy: entry point 'toy' = 'toy_package:BACKEND' (tcusim.backends) of toy-package 1.0"
        assert str(caught.value).startswith(text)
        assert reason in str(caught.value)
    assert why_unavailable("toy") == str(caught.value)
