"""Compilation through NVRTC: every algorithm, the cache on disk, and the words of each error."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import itertools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kernels import kernel, spoiled
from some import marked
from tcusim.algorithms import Algorithm, algorithms, build, segmented_algorithms
from tcusim.errors import BackendUnavailable, Unsupported
from tcusim.machine import disk_cache
from tcusim_cuda import compile as compiler
from tcusim_cuda.compile import (
    CompileError,
    Toolkit,
    compile_kernel,
    compile_kernels,
    compile_text,
    why_no_compiler,
)
from tcusim_cuda.emit import emit

pytestmark = pytest.mark.usefixtures("cache")

REASON = why_no_compiler()


needs_nvrtc = pytest.mark.skipif(REASON is not None, reason=str(REASON))


@pytest.fixture
def fresh_toolkit() -> Iterator[None]:
    """Let the toolkit be looked for again, in a test that changes the installation."""
    Toolkit.find.cache_clear()
    yield
    Toolkit.find.cache_clear()


def target(sm: int) -> int:
    if sm not in Toolkit.find().targets:
        pytest.skip(f"{Toolkit.find().title} does not compile for sm_{sm}")
    return sm


# --- Compilation -----------------------------------------------------------------------------


# Every algorithm on an H100, and on the others in turn. Those of segments are compiled for the V100
# by tests/emit/test_machine_code.py, so the default run tries one of two neighbours here.
OTHERS = (75, 80, 86, 89, 100, 120)
SEGMENTED = segmented_algorithms()
FIRST = tuple(row for row in algorithms() if row not in SEGMENTED)


def targets(rows: tuple[Algorithm, ...], older: tuple[int, ...], together: int) -> list[Any]:
    """Return algorithms and GPUs; the default run tries one for so many algorithms."""
    cases = [
        [(row, sm) for sm in (*older, 90, OTHERS[number % len(OTHERS)])]
        for number, row in enumerate(rows)
    ]
    chosen = []
    for first in range(0, len(cases), together):
        group = list(itertools.chain.from_iterable(cases[first : first + together]))
        chosen += marked(group, len(group), first // together)
    return chosen


TARGETS = targets(SEGMENTED, (), 2) + targets(FIRST, (70,), 1)


@needs_nvrtc
@pytest.mark.parametrize(
    ("row", "sm"), TARGETS, ids=lambda value: getattr(value, "name", str(value))
)
def test_every_algorithm_compiles(row: Any, sm: int) -> None:
    cubin = compile_kernel(emit(build(row.name)), target(sm))
    assert cubin.sm == sm
    assert cubin.code.startswith(b"\x7fELF")
    assert bool(cubin.usage.tensor_core) == row.uses_mma


@needs_nvrtc
def test_multiplications_and_additions_are_not_contracted() -> None:
    text = (
        'extern "C" __global__ void k(float* out, const float* in)\n'
        "{ out[0] = in[0] * in[1] + in[2]; }\n"
    )
    plain = dataclasses.replace(kernel(), name="k", text=text, paths=("", ""))
    separate = compile_kernel(plain, target(80))
    # The last one counts.
    contracted = compile_kernel(plain, 80, options=["--fmad=true"])
    assert separate.usage.instructions >= contracted.usage.instructions
    assert separate.code != contracted.code


# --- Errors ----------------------------------------------------------------------------------


@needs_nvrtc
def test_a_compile_error_quotes_the_step() -> None:
    bad = spoiled("4")
    with pytest.raises(CompileError) as caught:
        compile_kernel(bad, target(80))
    text = str(caught.value)
    assert text.startswith("reduction_k: NVRTC ")
    assert "refused the emitted kernel for sm_80" in text
    assert 'identifier "no_such_thing" is undefined' in text
    assert "    reduction_k, step 4: V ← P·A + V" in text
    assert text.endswith("please report it.")
    assert caught.value.kernel is bad
    assert "no_such_thing" in caught.value.log


@needs_nvrtc
def test_a_program_newer_than_the_gpu_is_refused() -> None:
    with pytest.raises(Unsupported, match=r"uses instructions of sm_80 and newer, sm_75 lacks"):
        compile_kernel(emit(build("reduction_k", ab="bf16")), 75)


def test_a_gpu_that_is_too_new_and_one_that_does_not_exist() -> None:
    toolkit = Toolkit((12, 6), (50, 70, 75, 80, 90), (), 12060)
    with pytest.raises(Unsupported, match=r"only for 70, 75, 80, 90\. Install a newer NVRTC"):
        toolkit.require_target(kernel(), 100)
    with pytest.raises(Unsupported, match=r"sm_81.*Name one of these"):
        toolkit.require_target(kernel(), 81)


@pytest.mark.usefixtures("fresh_toolkit")
def test_no_bindings(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(BackendUnavailable) as caught:
        compile_kernel(kernel(), 80)
    assert str(caught.value) == (
        "kernels are compiled through NVIDIA's package cuda-bindings, which cannot be imported "
        "(No module named 'cuda.bindings.nvrtc'). Install it with: pip install 'tcusim[compile]'"
    )


# --- CUDA's headers --------------------------------------------------------------------------


@pytest.mark.usefixtures("fresh_toolkit")
def test_no_nvrtc(monkeypatch: pytest.MonkeyPatch) -> None:
    def not_found() -> Any:
        raise RuntimeError("Failure finding libnvrtc.so\nlooked here and there")

    fake = SimpleNamespace(nvrtcVersion=not_found)
    monkeypatch.setattr(importlib, "import_module", lambda name: fake)
    reason = why_no_compiler()
    assert reason is not None
    assert reason.startswith("NVRTC, NVIDIA's run-time compiler, was not found by cuda-bindings")
    assert "(Failure finding libnvrtc.so). Install it with: pip install 'tcusim[compile]'" in reason


def toolkit_folder(folder: Path, version: int, *missing: str) -> Path:
    """Make a toolkit of empty headers."""
    for name in compiler.HEADERS:
        if name in missing:
            continue
        path = folder / "include" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#define CUDART_VERSION  {version}\n")
    return folder


@pytest.fixture
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_toolkit: None) -> Path:
    """Hide every toolkit and NVIDIA's packages but those that a test makes, in a folder."""
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path / "nvidia")])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    monkeypatch.setattr(compiler, "DEFAULT_TOOLKIT", tmp_path / "usr-local-cuda")
    for name in ("CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path


def headers_for(major: int, monkeypatch: pytest.MonkeyPatch) -> tuple[tuple[Path, ...], int]:
    """Return the folders and the version of the headers of a toolkit of a release."""
    found = SimpleNamespace(
        nvrtcVersion=lambda: (0, major, 0), nvrtcGetSupportedArchs=lambda: (0, [80])
    )
    Toolkit.find.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(importlib, "import_module", lambda name: found)
        toolkit = Toolkit.find()
    return toolkit.include, toolkit.headers


def test_headers_of_the_compilers_release_come_first(
    bare_machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = toolkit_folder(bare_machine / "new", 13000)
    old = toolkit_folder(bare_machine / "old", 12090)
    monkeypatch.setenv("CUDA_HOME", str(new))
    monkeypatch.setenv("CUDA_PATH", str(old))
    assert headers_for(12, monkeypatch) == ((old / "include",), 12090)
    assert headers_for(13, monkeypatch) == ((new / "include",), 13000)
    # None of the release: the one found.
    assert headers_for(14, monkeypatch) == ((new / "include",), 13000)


def test_headers_beside_nvcc_and_in_condas_folders(
    bare_machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conda = toolkit_folder(bare_machine / "conda" / "targets" / "x86_64-linux", 12060)
    monkeypatch.setenv("CONDA_PREFIX", str(bare_machine / "conda"))
    assert headers_for(12, monkeypatch) == ((conda / "include",), 12060)
    beside = toolkit_folder(bare_machine, 12050)
    nvcc = bare_machine / "bin" / "nvcc"
    nvcc.parent.mkdir()
    nvcc.write_text("#!/bin/sh\n")
    nvcc.chmod(0o755)
    assert headers_for(12, monkeypatch) == ((beside / "include",), 12050)


def test_headers_of_pip_packages_are_put_together(
    bare_machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = toolkit_folder(bare_machine / "nvidia" / "cuda_runtime", 12090, "crt/mma.h")
    crt = bare_machine / "nvidia" / "cu13" / "include" / "crt" / "mma.h"
    crt.parent.mkdir(parents=True)
    crt.touch()
    expected = (runtime / "include", crt.parents[1])
    assert headers_for(12, monkeypatch) == (expected, 12090)


def test_no_headers(bare_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    half = toolkit_folder(bare_machine / "half", 12090, "crt/mma.h")
    monkeypatch.setenv("CUDA_HOME", str(half))
    with pytest.raises(BackendUnavailable) as caught:
        headers_for(12, monkeypatch)
    text = str(caught.value)
    assert text.startswith("CUDA's headers mma.h, cuda_fp16.h, ")
    assert f"looked in {half / 'include'}. " in text
    assert text.endswith("pip install 'tcusim[compile]', or set CUDA_HOME to a CUDA toolkit")


# --- The cache on disk -----------------------------------------------------------------------


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list; each real compilation adds the kernel's name."""
    return watched(monkeypatch, lambda: None)


def watched(monkeypatch: pytest.MonkeyPatch, first: Callable[[], object]) -> list[str]:
    """Return a list; each compilation adds the kernel's name, and then calls `first`."""
    nvrtc = pytest.importorskip("cuda.bindings.nvrtc")
    seen: list[str] = []
    real = nvrtc.nvrtcCreateProgram

    def create(text: bytes, name: bytes, *headers: Any) -> Any:
        seen.append(name.decode().removesuffix(".cu"))
        first()
        return real(text, name, *headers)

    monkeypatch.setattr(nvrtc, "nvrtcCreateProgram", create)
    return seen


@needs_nvrtc
def test_what_was_compiled_is_kept(cache: Path, compilations: list[str]) -> None:
    first = compile_kernel(kernel(), target(80))
    assert compile_kernel(kernel(), 80) == first
    assert len(compilations) == 1
    assert len(list(cache.iterdir())) == 1


@needs_nvrtc
def test_a_text_without_a_program_is_kept_unless_it_is_refused(
    cache: Path, compilations: list[str]
) -> None:
    text = 'extern "C" __global__ void k(int *x) { *x = %s; }'
    first = compile_text("mine", text % 1, target(80))
    assert compile_text("mine", text % 1, 80) == first
    assert compilations == ["mine"]
    for _ in range(2):
        with pytest.raises(Unsupported, match=r"mine: NVRTC .* refused it for sm_80: .*nothing"):
            compile_text("mine", text % "nothing", 80)
    assert compilations == ["mine"] * 3
    assert len(list(cache.iterdir())) == 1


@needs_nvrtc
def test_all_that_matters_is_part_of_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compilations: list[str]
) -> None:
    one = kernel()
    compile_kernel(one, target(80))
    compile_kernel(one, target(90))
    compile_kernel(one, 80, options=["-lineinfo"])
    compile_kernel(dataclasses.replace(one, text=one.text + "// new\n"), 80)
    include = tmp_path / "include"
    include.mkdir()
    header = (compiler.INCLUDE / "tcusim.cuh").read_text()
    (include / "tcusim.cuh").write_text(header + "// new\n")
    monkeypatch.setattr(compiler, "INCLUDE", include)
    compile_kernel(one, 80)
    newer = dataclasses.replace(Toolkit.find(), headers=99999)
    monkeypatch.setattr(Toolkit, "find", lambda *sm: newer)
    compile_kernel(one, 80)
    assert len(compilations) == 6


@needs_nvrtc
def test_several_kernels_are_compiled_together(cache: Path, compilations: list[str]) -> None:
    kernels = [emit(build(name)) for name in ("reduction_k", "scan_k", "reduction_tn")]
    together = compile_kernels(kernels, target(80))
    assert sorted(compilations) == ["reduction_k", "reduction_tn", "scan_k"]
    assert together == [compile_kernel(kernel, 80) for kernel in kernels]
    assert compile_kernels([], 80) == []
    bad = spoiled("4")
    with pytest.raises(CompileError, match="no_such_thing"):
        compile_kernels([*kernels, bad], 80)


# Every harm, full caches and locks are tried in test_disk_cache.py.
@needs_nvrtc
def test_a_damaged_file_is_not_trusted(cache: Path, compilations: list[str]) -> None:
    good = compile_kernel(kernel(), target(80))
    (path,) = cache.iterdir()
    data = path.read_bytes()
    path.write_bytes(data[:-100] + bytes([data[-100] ^ 1]) + data[-99:])
    assert compile_kernel(kernel(), 80) == good
    assert len(compilations) == 2
    assert path.read_bytes() == data


# --- Who compiles ----------------------------------------------------------------------------


@needs_nvrtc
def test_a_cache_that_cannot_be_written_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    monkeypatch.setenv("TCUSIM_CACHE_DIR", str(blocked / "cache"))
    with pytest.warns(RuntimeWarning, match=r"cannot be kept in .*cache.*: Not a directory"):
        assert compile_kernel(kernel(), target(80)).code


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], threading.Event]:
    """Have a compiler that waits for an event; return whom it compiled for, and the event."""
    go_on = threading.Event()
    return watched(monkeypatch, lambda: go_on.wait(20)), go_on


def wait_for(reached: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.005)


@needs_nvrtc
@pytest.mark.usefixtures("cache")
def test_threads_that_want_one_kernel_compile_it_once(
    slow: tuple[list[str], threading.Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, go_on = slow
    # Where there are locks between processes, they are for threads as well.
    monkeypatch.setattr(disk_cache, "_take_lock", lambda *given: True)
    target(80)
    with ThreadPoolExecutor(3) as pool:
        one = [pool.submit(compile_kernel, kernel(), 80) for _ in range(2)]
        wait_for(lambda: bool(seen))
        # Who wants another kernel does not wait for them.
        other = pool.submit(compile_kernel, emit(build("scan_k")), 80)
        wait_for(lambda: len(seen) == 2)
        go_on.set()
        found = [job.result(20).code for job in (*one, other)]
    assert sorted(seen) == ["reduction_k", "scan_k"]
    assert found[0] == found[1] != found[2]


@needs_nvrtc
def test_a_failure_leaves_no_lock(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target(80)

    def fail() -> None:
        time.sleep(0.05)
        raise Unsupported("not today")

    attempts = watched(monkeypatch, fail)
    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(compile_kernel, kernel(), 80) for _ in range(2)]
        for job in jobs:
            with pytest.raises(Unsupported, match="not today"):
                job.result(20)
    with pytest.raises(Unsupported):
        compile_kernel(kernel(), 80)
    # Each has its own: it is no failure for ever.
    assert len(attempts) == 3
    assert not list(cache.glob("*.lock"))


# A process that compiles: it says so in a file, and ends when there is another file.
COMPILES = """
import os, sys, time
from pathlib import Path
from cuda.bindings import nvrtc
from tcusim.algorithms import build
from tcusim_cuda.compile import compile_kernel
from tcusim_cuda.emit import emit

folder = Path(sys.argv[1])
create = nvrtc.nvrtcCreateProgram

def create_slowly(*given):
    (folder / f"compiles {os.getpid()}").touch()
    while not (folder / "go on").exists():
        time.sleep(0.005)
    return create(*given)

nvrtc.nvrtcCreateProgram = create_slowly
(folder / f"begins {os.getpid()}").touch()
assert compile_kernel(emit(build("reduction_k")), 80).code
"""


@needs_nvrtc
@pytest.mark.skipif(sys.platform == "win32", reason="there are no such locks on Windows")
def test_processes_that_begin_together_compile_once_and_survive_one_that_is_killed(
    cache: Path, tmp_path: Path
) -> None:
    target(80)

    def begun(what: str) -> set[int]:
        return {int(path.name.split()[1]) for path in tmp_path.glob(f"{what} *")}

    command = [sys.executable, "-c", COMPILES, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ranks = [subprocess.Popen(command, env=environment) for _ in range(3)]
    try:
        wait_for(lambda: len(begun("begins")) == 3 and len(begun("compiles")) == 1)
        (first,) = begun("compiles")
        next(rank for rank in ranks if rank.pid == first).kill()
        # The lock of the one that is gone passes to one of the others.
        wait_for(lambda: len(begun("compiles")) == 2)
        (tmp_path / "go on").touch()
        codes = {rank.pid: rank.wait(20) for rank in ranks}
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    assert len(begun("compiles")) == 2
    assert {pid: code for pid, code in codes.items() if pid != first} == dict.fromkeys(
        set(codes) - {first}, 0
    )
    assert [path.suffix for path in cache.iterdir()] == [".cubin"]
