"""Rules for every test session: the tests that it leaves out, and that an empty one fails."""

from __future__ import annotations

import collections
import ctypes
import functools
import gc
import importlib
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tcusim import backends, plugins
from tcusim.backends import Backend, get_backend
from tcusim.errors import BackendUnavailable

# The examples of a test are the same in each run, for any settings of its own.
settings.register_profile("repeatable", derandomize=True, database=None, deadline=None)
settings.load_profile("repeatable")

# The driver's numbers for the two halves of a compute capability: CUdevice_attribute in cuda.h.
_MAJOR, _MINOR = 75, 76
_NO_GPU = "no NVIDIA GPU, or no driver for it"

if TYPE_CHECKING:
    # A session of other tests, in test_session.py, has this file alone.
    from some import Some


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--full",
        action="store_true",
        help="try every combination, where a test else tries some of each kind",
    )
    parser.addoption(
        "--require-gpu",
        action="store_true",
        help="fail unless at least one test marked gpu passed",
    )
    parser.addoption(
        "--gpu",
        type=int,
        help="the GPU on which tests on a GPU have their arrays, while another one is current; by "
        "default they are on the current one",
    )
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write the golden texts anew, for you to read the difference",
    )


@pytest.fixture(autouse=True)
def registries() -> Iterator[None]:
    """Remove the registrations of a test."""
    with plugins.restored():
        yield


@pytest.fixture(autouse=True)
def seeds() -> None:
    """Have torch draw the same numbers in each run, beside any other tests."""
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "manual_seed"):
        torch.manual_seed(0)


@pytest.fixture
def declare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Return a function that installs a package of one module, `code`, with entry points.

    Its module is called like the package, with underscores.
    """
    before = set(sys.modules)

    def declare(
        entry_points: str,
        code: str = "",
        *,
        package: str = "toy-package",
        metadata: str | None = None,
    ) -> None:
        info = tmp_path / f"{package.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        if metadata is None:
            metadata = f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n"
        if metadata:
            (info / "METADATA").write_text(metadata)
        (info / "entry_points.txt").write_text(entry_points)
        (tmp_path / f"{package.replace('-', '_')}.py").write_text(code)
        importlib.invalidate_caches()
        plugins.declared.cache_clear()

    monkeypatch.syspath_prepend(str(tmp_path))
    yield declare
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
    plugins.declared.cache_clear()


@pytest.fixture
def only_backends(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that makes these the only backends there are, installed ones included."""

    def only_backends(*known: Backend) -> None:
        registry = plugins.Registry[Backend](
            "backend", "tcusim.none", lambda one: (one.name,), lambda one: (one,), by_entry=True
        )
        for backend in known:
            registry.add(backend, plugins.OWN)
        monkeypatch.setattr(backends, "_BACKENDS", registry)

    return only_backends


@pytest.fixture(scope="session")
def some(request: pytest.FixtureRequest) -> Some:
    """Return a function that takes a part of many cases, or all of them with --full."""
    from some import Some

    return Some(full=request.config.getoption("--full"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests marked full."""
    if config.getoption("--full"):
        return
    left = [item for item in items if item.get_closest_marker("full")]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if not item.get_closest_marker("full")]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Exclude imported and collected objects from the search for garbage.

    These are some half a million objects that stay; to look through them took a tenth of the time.
    """
    gc.collect()
    gc.freeze()
    # Tests make many small objects that stay for a while: programs, sites, expressions.
    gc.set_threshold(20_000, 20)


class _NeedsGpu(pytest.Module):
    """A file of tests that is not even read: its thousands of tests would be skipped one by one."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        pytest.skip(_NO_GPU, allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> _NeedsGpu | None:
    """Skip the files of tests/gpu as a whole where there is no GPU."""
    full = parent.config.getoption("--full")
    if full or module_path.parent != Path(__file__).parent / "gpu" or device_sm() is not None:
        return None
    module: _NeedsGpu = _NeedsGpu.from_parent(parent, path=module_path)
    return module


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("gpu"):
        min_sm = marker.kwargs.get("min_sm", 70)
        sm = device_sm()
        if sm is None:
            pytest.skip(_NO_GPU)
        if sm < min_sm:
            pytest.skip(f"needs sm_{min_sm}, the GPU is sm_{sm}")


@functools.cache
def device_sm() -> int | None:
    """Return the compute capability of the first GPU, such as 90, or None where there is none."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    device = ctypes.c_int()
    if driver.cuInit(0) != 0 or driver.cuDeviceGet(ctypes.byref(device), 0) != 0:
        return None
    parts = []
    for attribute in (_MAJOR, _MINOR):
        part = ctypes.c_int()
        if driver.cuDeviceGetAttribute(ctypes.byref(part), attribute, device) != 0:
            return None
        parts.append(part.value)
    return parts[0] * 10 + parts[1]


@pytest.fixture(scope="session")
def host() -> Backend:
    """Return the backend that runs emitted text on the CPU; skip where there is no compiler."""
    try:
        return get_backend("host")
    except BackendUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Return a function that compares a text with the file of that name in the folder `golden`."""
    folder = request.path.parent / "golden"
    update = bool(request.config.getoption("--update-golden"))

    def compare(name: str, text: str) -> None:
        path: Path = folder / name
        if update:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        assert path.exists(), f"{path} is missing; pytest --update-golden writes it"
        assert text == path.read_text(), f"{path} differs; pytest --update-golden writes it anew"

    return compare


class _Tally:
    """Counts passed tests; under pytest-xdist the main process gets every worker's reports."""

    def __init__(self) -> None:
        self.passed = 0
        self.gpu_passed = 0
        self.drawn: collections.Counter[str] = collections.Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self.passed += 1
            self.gpu_passed += "gpu" in report.keywords
        if report.when == "call":
            for name, value in report.user_properties:
                self.drawn.update(
                    value if name == "drawn calls" and isinstance(value, dict) else {}
                )

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.drawn:
            each = ", ".join(f"{n} {end}" for end, n in sorted(self.drawn.items()))
            terminalreporter.write_line(f"{self.drawn.total()} drawn calls: {each}")

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        complaint = self._complaint(session.config)
        if complaint is None or session.exitstatus not in (
            pytest.ExitCode.OK,
            pytest.ExitCode.NO_TESTS_COLLECTED,
        ):
            return
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        terminal = session.config.pluginmanager.get_plugin("terminalreporter")
        if terminal is not None:
            terminal.write_line(f"\nERROR: {complaint}", red=True)

    def _complaint(self, config: pytest.Config) -> str | None:
        if config.option.collectonly:
            return None
        if self.passed == 0:
            return "no test passed: everything was skipped, or nothing was collected"
        if config.getoption("--require-gpu") and self.gpu_passed == 0:
            return "--require-gpu: no test marked gpu passed"
        return None


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Tally())
