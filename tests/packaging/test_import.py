"""`import tcusim` needs NumPy only, and loads nothing that only some calls need."""

from __future__ import annotations

from collections.abc import Callable

OTHERS = """
before = set(sys.modules)
import tcusim
top_level = {name.split(".")[0] for name in set(sys.modules) - before}
print(*sorted(top_level - sys.stdlib_module_names))
"""

# Modules that one command, one backend or one check needs, and that would slow every start.
LATER = (
    *(
        "asyncio",
        "click",
        "difflib",
        "importlib.metadata",
        "multiprocessing",
        "rich",
        "textual",
        "unittest",
    ),
    *("tcusim.judge.correctness", "tcusim.cli.main", "tcusim.machine.accounts"),
    *("tcusim_bench", "tcusim_cuda", "tcusim_host"),
)

LOADED = f"""
import tcusim
print(*(name for name in {LATER!r} if name in sys.modules))
"""


def test_it_imports_numpy_only(python: Callable[..., str]) -> None:
    assert set(python(OTHERS).split()) <= {"numpy", "tcusim"}


def test_it_loads_nothing_that_can_wait(python: Callable[..., str]) -> None:
    assert python(LOADED).split() == []


def test_completion_offers_the_public_names_only(python: Callable[..., str]) -> None:
    code = "import tcusim\nprint(*dir(tcusim))\nprint(*tcusim.__all__)"
    offered, public = python(code).splitlines()
    assert set(offered.split()) == {*public.split(), "__version__"}
