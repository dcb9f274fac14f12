"""Run the tests of this folder on a machine where tcusim is not installed; print a line for each.

    python tests/gpu/run_on_gpu.py [arguments of pytest]

It needs NumPy, pytest, cuda-bindings with NVRTC and CUDA's headers, and PyCUDA or CuPy. It uses
torch and ml_dtypes where they are. It ends with status 0 if nothing failed and something passed.
"""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "numpy", "cuda-bindings", "cuda-core", "pycuda", "cupy-cuda12x", "cupy-cuda13x", "torch", "jax",
    "ml-dtypes",
)  # fmt: skip


class OneLineEach:
    """Prints one line for each test, with the reason of a skip or the failure."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Print the outcome of a test, and of a fixture that did not pass."""
        if report.when != "call" and report.passed:
            return
        name = report.nodeid.rpartition("::")[2]
        text = ""
        if report.skipped and isinstance(report.longrepr, tuple):
            text = f"  ({report.longrepr[2].removeprefix('Skipped: ')})"
        print(f"{report.outcome:8}{name}  {report.duration:.2f} s{text}", flush=True)


def make_importable() -> None:
    """Let this process and its children import tcusim, and find its backends, as if installed."""
    paths = [str(ROOT), str(ROOT / "backends")]
    if not any(one.name == "tcusim" for one in metadata.distributions()):
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        folder = Path(tempfile.mkdtemp()) / "tcusim-0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: tcusim\nVersion: 0\n")
        lines = []
        for group, entries in project["entry-points"].items():
            lines += [f"[{group}]", *(f"{name} = {where}" for name, where in entries.items())]
        (folder / "entry_points.txt").write_text("\n".join(lines) + "\n")
        paths.append(str(folder.parent))
    sys.path[:0] = paths
    os.environ["PYTHONPATH"] = os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")])


def describe() -> None:
    """Print the versions and the GPU."""
    print(f"Python {sys.version.split()[0]}")
    for package in PACKAGES:
        try:
            print(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            print(f"{package} is not installed")
    tcusim_cuda = importlib.import_module("tcusim_cuda")
    for launcher in (tcusim_cuda.CUDA, tcusim_cuda.CUPY, tcusim_cuda.PYCUDA):
        print(f"backend {launcher.name}: {launcher.available() or 'available'}")
    compiler = importlib.import_module("tcusim_cuda.compile")
    print(compiler.why_no_compiler() or compiler.Toolkit.find())
    sm = tcusim_cuda.device_sm()
    print(f"GPU: sm_{sm}, {tcusim_cuda.arch_name(sm)}", flush=True)


def main(arguments: list[str]) -> int:
    """Run the tests; return pytest's exit status."""
    make_importable()
    describe()
    # Warnings of libraries that are on the machine are not ours to turn into errors.
    options = ["--require-gpu", "-W", "default", "-p", "no:cacheprovider", "-q", "--no-header"]
    command = [*options, f"--rootdir={ROOT}", str(Path(__file__).parent), *arguments]
    return int(pytest.main(command, plugins=[OneLineEach()]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
