"""`import tcusim` needs NumPy only, and is quick."""

from __future__ import annotations

from collections.abc import Callable

LIMIT_SECONDS = 0.3

OTHERS = """
before = set(sys.modules)
import tcusim
top_level = {name.split(".")[0] for name in set(sys.modules) - before}
print(*sorted(top_level - sys.stdlib_module_names))
"""

# Processor time: other processes, such as pytest's other workers, do not count.
SECONDS = """
import time
start = time.process_time()
import tcusim
print(time.process_time() - start)
"""


def test_it_imports_numpy_only(python: Callable[..., str]) -> None:
    assert set(python(OTHERS).split()) <= {"numpy", "tcusim"}


def test_it_is_quick(python: Callable[..., str]) -> None:
    assert min(float(python(SECONDS)) for _ in range(3)) < LIMIT_SECONDS


def test_completion_offers_the_public_names_only(python: Callable[..., str]) -> None:
    code = "import tcusim\nprint(*dir(tcusim))\nprint(*tcusim.__all__)"
    offered, public = python(code).splitlines()
    assert set(offered.split()) == {*public.split(), "__version__"}
