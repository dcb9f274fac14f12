"""Where tests are: each module has some in a file of its name, so that they are easy to find."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Modules whose tests are in files of other names, or do not import them beside a namesake. May
# only become fewer.
ELSEWHERE = {
    "tcusim.algorithms.options": "test_registry.py",
    "tcusim.algorithms.registry": "test_registry.py",
    "tcusim.arrays.report": "test_functions.py",
    "tcusim.cli.explain": "test_explain.py",
    "tcusim.cli.options": "test_options.py",
    "tcusim.cli.run": "test_run.py",
    "tcusim.machine.accounts.account": "test_accounts.py",
    "tcusim.machine.accounts.drawing": "test_explain.py",
    "tcusim.machine.accounts.explanation": "test_explain.py",
    "tcusim.machine.accounts.layout": "test_explain.py",
    "tcusim.machine.accounts.page": "test_explain.py",
    "tcusim.machine.accounts.recorder": "test_accounts.py",
    "tcusim.machine.accounts.text": "test_explain.py",
    "tcusim.machine.exact": "test_sequential.py",
    "tcusim.machine.registry": "test_arches.py",
    "tcusim.machine.watch": "test_accounts.py",
    "tcusim.testing": "test_testing.py",
    "tcusim_bench.problems": "test_throughput.py",
    "tcusim_bench.sections": "test_throughput.py",
    "tcusim_host.run": "test_host.py",
}


def modules() -> list[str]:
    """Return the names of all modules of tcusim and of its backends, but those without code."""
    names = []
    for folder in (ROOT / "tcusim", *(ROOT / "backends").glob("tcusim_*")):
        for path in folder.rglob("*.py"):
            if not path.name.startswith("__"):
                parts = path.relative_to(folder.parent).with_suffix("").parts
                names.append(".".join(parts))
    return sorted(names)


def names_of_tests(module: str) -> set[str]:
    """Return what the tests of a module may be called; its package tells it from a namesake."""
    package, stem = module.split(".")[-2:]
    return {f"test_{stem}.py", f"test_{package.removeprefix('tcusim_')}_{stem}.py"}


def imports(test: Path, module: str) -> bool:
    """Return whether a test imports a module, or names that it defines from its package."""
    package, _, stem = module.rpartition(".")
    text = re.sub(r"\(([^)]*)\)", lambda m: m[1].replace("\n", " "), test.read_text())
    own = rf"(from|import) {re.escape(module)}\b|from {re.escape(package)} import .*\b{stem}\b"
    return re.search(own, text) is not None


def without_tests() -> set[str]:
    """Return the modules that have no test module; namesakes each need one that imports them."""
    tests: dict[str, list[Path]] = {}
    for path in (ROOT / "tests").rglob("test_*.py"):
        tests.setdefault(path.name, []).append(path)
    every = modules()
    stems = Counter(module.rpartition(".")[2] for module in every)
    found = set()
    for module in every:
        own = [path for name in names_of_tests(module) for path in tests.get(name, [])]
        if stems[module.rpartition(".")[2]] > 1:
            own = [path for path in own if imports(path, module)]
        if not own:
            found.add(module)
    return found


def test_each_module_has_tests_in_a_file_of_its_name() -> None:
    missing = without_tests()
    assert sorted(missing - ELSEWHERE.keys()) == []
    assert sorted(ELSEWHERE.keys() - missing) == [], "they have tests now: take them off the list"


def test_the_other_files_are_there() -> None:
    for name in ELSEWHERE.values():
        assert list((ROOT / "tests").rglob(name)), name
