"""tcusim.backends: names, errors, and what the built-in backend passes on."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tcusim import backends
from tcusim.algorithms import build
from tcusim.backends import get_backend, register_backend, why_unavailable
from tcusim.errors import BackendUnavailable, InputError, UnknownName
from tcusim.program.launches import LaunchPlan
from tcusim.simulate.backend import NUMPY
from tcusim.simulate.interpreter import run_numpy

PROGRAM = build("reduction_16")
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


@pytest.fixture(autouse=True)
def _registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each test register backends in a registry of its own."""
    monkeypatch.setattr(backends, "_backends", {"numpy": NUMPY})
    monkeypatch.setattr(backends, "_owners", {"numpy": "tcusim itself"})


def declare(monkeypatch: pytest.MonkeyPatch, **values: str) -> None:
    """Let packages that are not installed declare backends, as in name="module:object"."""
    real = importlib.metadata.entry_points

    def entry_points(*, group: str) -> tuple[importlib.metadata.EntryPoint, ...]:
        if group != "tcusim.backends":
            return tuple(real(group=group))
        return tuple(
            importlib.metadata.EntryPoint(name, value, group) for name, value in values.items()
        )

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)


def provide(monkeypatch: pytest.MonkeyPatch, backend: object) -> None:
    """Let `import toy_backend` find a module with this backend."""
    module = ModuleType("toy_backend")
    monkeypatch.setattr(module, "BACKEND", backend, raising=False)
    monkeypatch.setitem(sys.modules, "toy_backend", module)


def test_the_simulator_comes_first_and_is_available() -> None:
    assert backends.backends()[0] == "numpy"
    assert get_backend("numpy") is NUMPY
    assert why_unavailable("numpy") is None


def test_numpy_needs_no_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    declare(monkeypatch)
    assert backends.backends() == ("numpy",)
    assert get_backend("numpy") is NUMPY


def test_the_simulator_follows_the_arch_and_is_watched() -> None:
    x, seen = np.ones(256, np.float16), []
    x[1] = 2**-11
    for arch in (None, "volta", "exact"):
        expected = run_numpy(PROGRAM, {"in": x}, arch=arch or "hopper")["out"]
        result = NUMPY.run(PLAN, {"in": x}, arch=arch, watch=seen.append)["out"]
        assert result.tobytes() == expected.tobytes()
    assert {event.path for event in seen} == {str(1 + i) for i in range(len(PROGRAM.steps))}


def test_the_simulator_fills_out_and_tells_progress() -> None:
    x, out, seen = np.ones(256, np.float16), np.zeros(16, np.float32), []
    result = NUMPY.run(
        PLAN, {"in": x}, out={"out": out}, progress=lambda done, most: seen.append((done, most))
    )
    assert result["out"] is out
    assert out.tolist() == [16] * 16
    assert seen[-1][0] == seen[-1][1] > 0


def test_the_simulator_refuses_streams_and_unknown_options() -> None:
    for options, text in (
        ({"stream": 1}, "the simulator has no streams; leave stream out"),
        ({"speed": 1}, "numpy has no option speed; it has watch"),
    ):
        with pytest.raises(InputError, match=text):
            backends.run(PROGRAM, {"in": np.ones(256)}, **options)


def test_a_program_is_a_plan_of_one_launch_on_any_backend() -> None:
    x = np.ones(256, np.float16)
    expected = backends.run(PROGRAM, {"in": x})["out"]
    assert backends.run(PROGRAM, {"in": x.tolist()}, backend=NUMPY)["out"].tolist() == list(
        expected
    )
    register_backend(FakeBackend())
    assert backends.run(PROGRAM, {"in": x}, backend="fake")["out"] is x


def test_a_registered_backend_is_listed_and_runs() -> None:
    register_backend(FakeBackend())
    assert "fake" in backends.backends()
    assert get_backend("fake").run(PLAN, {"in": 7}) == {"out": 7}


def test_the_same_backend_may_be_registered_again() -> None:
    backend = FakeBackend()
    assert register_backend(backend) is register_backend(backend)


def test_two_backends_of_one_name() -> None:
    register_backend(FakeBackend())
    with pytest.raises(
        InputError,
        match=r"^there is already a backend 'fake', from an earlier register_backend\. "
        r"Give the new one another name\.$",
    ):
        register_backend(FakeBackend())


def test_the_name_of_the_simulator_is_taken() -> None:
    with pytest.raises(InputError, match=r"already a backend 'numpy', from tcusim itself\."):
        register_backend(FakeBackend("numpy"))


def test_the_name_of_an_installed_backend_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    declare(monkeypatch, toy="toy_backend:BACKEND")
    with pytest.raises(InputError, match=r"already a backend 'toy', from an unknown package\."):
        register_backend(FakeBackend("toy"))


def test_an_installed_backend_may_not_be_called_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    declare(monkeypatch, numpy="toy_backend:BACKEND")
    with pytest.raises(
        InputError,
        match=r"^an unknown package and tcusim itself both have a backend 'numpy'\. "
        r"Uninstall the former\.$",
    ):
        backends.backends()


def test_an_object_that_is_no_backend_hears_what_it_lacks() -> None:
    class Half:
        name = "half"

        def run(self) -> None: ...

    half: Any = Half()
    with pytest.raises(
        InputError,
        match=r"^register_backend: Half object is no backend, it lacks title, available\. "
        r"See tcusim\.backends\.Backend\.$",
    ):
        register_backend(half)


def test_a_class_is_no_backend() -> None:
    backend: Any = FakeBackend
    with pytest.raises(
        InputError, match=r"^register_backend: FakeBackend is a class\. A backend is an object: use"
    ):
        register_backend(backend)


def test_unknown_name_lists_the_known_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    declare(monkeypatch, pycuda="toy_backend:BACKEND")
    with pytest.raises(
        UnknownName,
        match=r"^unknown backend 'pycudo'\. Did you mean 'pycuda'\? Valid: numpy, pycuda\.$",
    ):
        get_backend("pycudo")


def test_an_unavailable_backend_gives_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    declare(monkeypatch)
    reason = "No module named 'pycuda'. Install it with: pip install 'tcusim[pycuda]'"
    register_backend(FakeBackend("pycuda", reason))
    with pytest.raises(BackendUnavailable) as caught:
        get_backend("pycuda")
    assert str(caught.value) == f"pycuda: {reason}"
    assert why_unavailable("pycuda") == f"pycuda: {reason}"


def test_an_installed_backend_is_loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    declare(monkeypatch, toy="toy_backend:BACKEND")
    backend = FakeBackend("toy")
    provide(monkeypatch, backend)
    assert get_backend("toy") is backend
    provide(monkeypatch, FakeBackend("toy"))
    assert get_backend("toy") is backend
    assert backends.backends() == ("numpy", "toy")


def test_the_names_of_entry_point_and_backend_must_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    declare(monkeypatch, toy="toy_backend:BACKEND")
    provide(monkeypatch, FakeBackend("other"))
    with pytest.raises(
        InputError,
        match=r"^entry point 'toy' = 'toy_backend:BACKEND' \(tcusim\.backends\) of an unknown "
        r"package gives a backend called 'other'\. The two names must be the same\.$",
    ):
        get_backend("toy")


def test_an_entry_point_to_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    declare(monkeypatch, toy="toy_backend:MISSING")
    provide(monkeypatch, FakeBackend("toy"))
    with pytest.raises(
        InputError,
        match=r"^entry point 'toy' = 'toy_backend:MISSING' .* cannot be loaded: "
        r"module 'toy_backend' has no attribute 'MISSING'$",
    ):
        get_backend("toy")
