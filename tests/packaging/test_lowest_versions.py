from __future__ import annotations

import re
import shutil
import subprocess
import tomllib

import pytest

from lowest_versions import PYPROJECT, constraints, lowest, requirements

# Compiled or chosen by the user's CUDA; the backend that tests need.
WITHOUT_A_FLOOR = {"pycuda", "cupy-cuda12x", "hatchling"}


def test_floors_become_constraints() -> None:
    assert lowest("numpy>=2.0") == "numpy==2.0"
    assert lowest("mkdocstrings[python]>=1.0.8") == "mkdocstrings==1.0.8"
    marker = "; sys_platform != 'darwin'"
    assert lowest(f"cuda-bindings>=12.9,!=12.9.6,<14{marker}") == f"cuda-bindings==12.9{marker}"
    assert lowest("ruff==0.17.6") is None


def test_each_dependency_has_one_floor() -> None:
    text = PYPROJECT.read_text()
    names = [one.partition("==")[0] for one in constraints(text)]
    assert len(names) == len(set(names))
    for requirement in requirements(tomllib.loads(text)):
        name = requirement.partition(";")[0]
        pinned = "==" in name or name.startswith("tcusim")
        assert pinned or name in WITHOUT_A_FLOOR or lowest(requirement), requirement


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make, which names the tests")
def test_the_tests_that_make_names_exist() -> None:
    root = PYPROJECT.parent
    target = "named: ; @echo $(SMOKE) $(WITH_LOWEST)"
    words = ("make", "--silent", "--eval", target, "named")
    named = subprocess.run(words, cwd=root, capture_output=True, text=True, check=True)
    found = [word for word in named.stdout.split() if word.startswith("tests/")]
    assert len(found) > 20
    for file, _, test in (word.partition("::") for word in found):
        assert (root / file).is_file(), file
        assert not test or re.search(rf"^def {test}\b", (root / file).read_text(), re.M), test
