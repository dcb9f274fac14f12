"""Compiling for the CPU: once, together, by several processes, and the text of errors."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from host_kernels import BY_HAND, HOST_ALONE, halves, kernel_of, same_bits, small_kernel
from tcusim.algorithms import build as build_program
from tcusim.errors import BackendUnavailable
from tcusim.machine.disk_cache import find_code
from tcusim_cuda.emit import emit
from tcusim_cuda.kernel import Kernel
from tcusim_host import BACKEND, BuildError, build, build_many, run_kernel
from tcusim_host.build import source_folder

pytestmark = HOST_ALONE
# The package has a function of this name.
build_module = importlib.import_module("tcusim_host.build")


@pytest.fixture
def _runtime_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile the runtime in a third of the time, for tests that have a cache of their own."""
    monkeypatch.setattr(build_module, "_RUNTIME_FLAGS", ("-O0",))


def test_an_error_of_the_compiler_names_line_and_step() -> None:
    kernel = emit(build_program("reduction_k"))
    number = next(i for i, text in enumerate(kernel.text.splitlines()) if "fill_fragment" in text)
    bad = replace(kernel, text=kernel.text.replace("fill_fragment(V", "fill_fragment(W"))
    with pytest.raises(BuildError) as caught:
        build(bad)
    text = str(caught.value)
    assert "reduction_k: its text does not compile on the host:" in text
    assert f"line {number + 1}, step 2: 'W' was not declared" in text
    assert "wmma::fill_fragment(W, 0.0f);" in text


def test_parameters_that_are_not_the_kernels_arguments_are_an_error() -> None:
    bad = BY_HAND.replace(", const long long length", "")
    with pytest.raises(BuildError, match=r"parameters are not Kernel\.arguments"):
        build(kernel_of(bad))


@pytest.mark.usefixtures("_runtime_made_anew")
def test_a_library_is_compiled_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TCUSIM_CACHE_DIR", str(tmp_path))
    kernel = kernel_of(BY_HAND)
    first = build(kernel)
    written = first.path.stat().st_mtime_ns
    assert build(kernel) is first
    assert first.path.stat().st_mtime_ns == written
    assert first.path.parent == tmp_path / "host"
    # Nothing but the kernel and the two objects of the runtime is left behind.
    assert len(list(first.path.parent.iterdir())) == 3


@pytest.mark.usefixtures("_runtime_made_anew")
def test_a_damaged_cache_is_compiled_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TCUSIM_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(build_module, "_loaded", {})
    x = halves(256)
    good = run_kernel(kernel_of(BY_HAND), {"in": x})["out"]
    files = list((tmp_path / "host").iterdir())
    assert sorted(path.suffix for path in files) == [".o", ".o", ".so"]
    for path in files:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        # The library is loaded: its file must not change in its place.
        path.unlink()
        path.write_bytes(data)
        path.chmod(0o700)
    build_module._loaded.clear()
    assert same_bits(run_kernel(kernel_of(BY_HAND), {"in": x})["out"], good)
    assert all(find_code(path) for path in files)


@pytest.mark.usefixtures("_runtime_made_anew")
def test_kernels_that_are_compiled_together_run_as_if_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def runs(kernels: list[Kernel]) -> list[Any]:
        return [run_kernel(kernel, {"in": x})["out"] for kernel in kernels]

    x = np.arange(64, dtype=np.float32)
    # Of one name; some with shared memory, not shared with other kernels or blocks.
    kernels = [
        small_kernel(
            "    __shared__ float s[32];\n"
            f"    if (block == 0) s[lane] = {factor} * in[lane];\n"
            "    __syncwarp();\n    out[32*block + lane] = s[31 - lane];"
        )
        for factor in range(1, 20)
    ]
    monkeypatch.setenv("TCUSIM_CACHE_DIR", str(tmp_path / "together"))
    assert len({library.entry.value for library in build_many(kernels)}) == len(kernels)
    together = runs(kernels)
    files = {path.stat().st_ino for path in (tmp_path / "together" / "host").glob("small*.so")}
    assert len(files) < len(kernels) / 4
    for factor, out in enumerate(together, start=1):
        assert (out[:32] == factor * x[31::-1]).all()
        assert np.isnan(out[32:]).all()
    monkeypatch.setenv("TCUSIM_CACHE_DIR", str(tmp_path / "alone"))
    assert all(map(same_bits, together[:3], runs(kernels[:3])))


def test_an_error_among_many_names_its_kernel() -> None:
    good = [small_kernel(f"    out[lane] = {number} + in[lane];") for number in range(4)]
    bad = small_kernel("    out[lane] = nowhere[lane];")
    with pytest.raises(BuildError, match="line 8: 'nowhere' was not declared"):
        build_many([*good, bad])


def test_the_cache_is_where_other_caches_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # g++ runs in another folder than the caller's.
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TCUSIM_CACHE_DIR", "here")
    assert source_folder(kernel_of(BY_HAND)).parent == Path.cwd() / "here" / "host"
    monkeypatch.delenv("TCUSIM_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "some"))
    folder = source_folder(kernel_of(BY_HAND))
    assert folder.parent == tmp_path / "some" / "tcusim" / "host"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert Path.home() in source_folder(kernel_of(BY_HAND)).parents


def test_debug_keeps_the_text_where_it_says(capfd: pytest.CaptureFixture[str]) -> None:
    kernel = kernel_of(BY_HAND)
    x = halves(256)
    got = run_kernel(kernel, {"in": x}, debug=True)
    folder = source_folder(kernel)
    assert f"by_hand: sources are in {folder}" in capfd.readouterr().err
    assert (folder / "kernel.cu").read_text() == BY_HAND
    assert same_bits(got["out"], run_kernel(kernel, {"in": x})["out"])


def test_without_a_compiler_the_backend_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CXX", "/no/such/g++ -O3")
    reason = BACKEND.available()
    assert reason is not None
    assert "'/no/such/g++' is not on the PATH" in reason
    assert "apt-get install g++" in reason
    with pytest.raises(BackendUnavailable, match="host: no C\\+\\+ compiler"):
        build(kernel_of(BY_HAND))
