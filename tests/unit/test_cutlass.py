"""The peer CUTLASS: its configurations are read from its source, and called with the matrices."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tcusim.errors import BackendUnavailable
from tcusim_bench.compiled import command
from tcusim_bench.cutlass import CUTLASS_SOURCE, Cutlass, cutlass_folder, cutlass_ways


def headers(root: Path) -> Path:
    """Make a folder that has the version of CUTLASS alone."""
    found = root / "include" / "cutlass"
    found.mkdir(parents=True)
    numbers = {"MAJOR": 4, "MINOR": 2, "PATCH": 0}
    text = "".join(f"#define CUTLASS_{name} {number}\n" for name, number in numbers.items())
    (found / "version.h").write_text(text)
    return root


def test_each_configuration_is_read() -> None:
    ways, text = cutlass_ways(), CUTLASS_SOURCE.read_text(encoding="utf-8")
    assert ways["f16"] == ways["f32"]
    assert ways["f16"][0] == "128x256x64, clusters of 2, cooperative"
    assert sum(map(len, ways.values())) == text.count(">::run,")


def test_headers_of_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUTLASS_PATH", str(headers(tmp_path)))
    assert cutlass_folder() == tmp_path / "include"
    with pytest.raises(BackendUnavailable, match="kernels for sm_90, not for sm_80"):
        Cutlass(80)


def test_products_by_every_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for nvcc compiles C that notes its arguments in the result."""
    monkeypatch.setenv("CUTLASS_PATH", str(headers(tmp_path)))
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    source = tmp_path / "noted.c"
    source.write_text(
        "\n".join(
            f"int product_{types}(void* temp, unsigned long* bytes, const void* a, const void* b,"
            f" long long* out, long long size, long long way) {{ *bytes = 5; if (temp) {{ out[0] ="
            f" size; out[1] = way; out[2] = {number}; }} return way == 3 ? 7 : 0; }}"
            for number, types in ((16, "f16"), (32, "f32"))
        )
    )
    script = tmp_path / "nvcc"
    script.write_text(
        "#!/bin/sh\n"
        'test "$1" = --version && echo "release 13.0, V13.0.88" && exit\n'
        'while [ "$1" != -o ]; do shift; done\n'
        f'exec {compiler} -shared -fPIC -o "$2" {source}\n'
    )
    script.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda name: str(script))
    array = (ctypes.c_longlong * 3)()
    out: Any = SimpleNamespace(data=SimpleNamespace(ptr=ctypes.addressof(array)))
    cp = SimpleNamespace(empty=lambda size, dtype: out)
    problem: Any = SimpleNamespace(
        kind="matmul", segment_size=64, data=out, right=out, device=SimpleNamespace(cp=cp)
    )
    library = Cutlass(90)
    assert (library.nvcc, library.version) == ("13.0.88", "4.2.0")
    seen = []
    for way in library.ways(problem):
        if "64x128x64" in way.label:
            with pytest.raises(RuntimeError, match="status 7"):
                way.prepare(out)
        else:
            way.prepare(out)()
            seen.append(tuple(array))
    assert seen == [(64, index, bits) for bits in (16, 32) for index in range(3)]
    problem.kind = "matvec"
    assert list(library.ways(problem)) == []
    library.close()


@pytest.mark.full
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on the PATH")
def test_cutlass_compiles(tmp_path: Path) -> None:
    try:
        folder = cutlass_folder()
    except BackendUnavailable as error:
        pytest.skip(str(error))
    options = ("--expt-relaxed-constexpr", f"-I{folder}")
    line = command(shutil.which("nvcc") or "", 90, CUTLASS_SOURCE, tmp_path / "c.so", *options)
    done = subprocess.run(line, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
