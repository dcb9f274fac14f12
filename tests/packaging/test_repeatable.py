"""A test that fails can be run again on the same numbers: every draw has a seed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from hypothesis import settings

TESTS = Path(__file__).parents[1]
# Without an argument each of these draws other numbers in each run.
GENERATORS = {"default_rng", "Random", "RandomState", "SeedSequence", "PRNGKey", "Generator"}
# Their own state has no seed.
FUNCTIONS = {"random.random", "random.randint", "random.choice", "random.shuffle", "random.uniform"}
# Filled by `seeds` in conftest.py, and a generator that is seeded by its method.
SEEDED = "torch."


def unseeded(text: str) -> Iterator[int]:
    """Yield the lines of calls that draw numbers that nobody can draw again."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        made = name.rpartition(".")[2] in GENERATORS and not name.startswith(SEEDED)
        if (made and not node.args and not node.keywords) or name in FUNCTIONS:
            yield node.lineno


def test_what_is_found() -> None:
    assert list(unseeded("import numpy as np\nnp.random.default_rng().random()")) == [2]
    assert list(unseeded("np.random.default_rng(3).random()\nrandom.Random(seed)")) == []
    assert list(unseeded("default_rng()\n\nrandom.random()")) == [1, 3]


def test_generators_have_seeds() -> None:
    found = {path: list(unseeded(path.read_text())) for path in TESTS.rglob("*.py")}
    assert [f"{path}: lines {lines}" for path, lines in found.items() if lines] == []


def test_hypothesis_tries_the_same_examples_each_time() -> None:
    assert settings.default is not None
    assert settings.default.derandomize
    assert settings.default.database is None
