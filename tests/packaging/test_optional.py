"""Packages for other libraries name the missing package, and cost nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("library", ["torch", "dask", "jax"])
def test_what_is_missing_is_named(library: str) -> None:
    name = "dask.array" if library == "dask" else library
    code = f"import sys; sys.modules[{name!r}] = None; import tcusim.{library}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(
        f"ImportError: tcusim.{library} needs {name}, which cannot be imported ("
    )
    assert f"Install it with: pip install 'tcusim[{library}]'" in last


def test_tcusim_imports_none_of_them() -> None:
    code = (
        "import sys, tcusim; tcusim.partials;"
        "print({'torch', 'dask', 'jax'} & {name.split('.')[0] for name in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "set()", done.stderr
