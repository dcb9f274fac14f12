"""Each lesson runs without a warning; its exercises can be solved, and wrong answers are told."""

from __future__ import annotations

import ast
import importlib
import json
import re
import sys
from collections.abc import Callable
from contextlib import chdir
from dataclasses import dataclass
from functools import cache, wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

import tcusim
from tcusim.program.grammar import walk

ROOT = Path(__file__).resolve().parents[2]
LESSONS = sorted((ROOT / "tutorials").glob("*.py"))


def _tool(name: str) -> Any:
    """Load a module of docs/tools; they belong to no package."""
    sys.path.insert(0, str(ROOT / "docs" / "tools"))
    try:
        return importlib.import_module(name)
    finally:
        del sys.path[0]


percent = _tool("percent")
lessons = _tool("lessons")

# A scope brings the tests of a lesson together, so that one process runs it once.
each = pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem, scope="module")


@dataclass(frozen=True)
class Ran:
    """A lesson that was run: its cells, and its checks' results for three kinds of answers."""

    done: list[Any]
    right: list[str]
    untouched: list[str]
    wrong: list[str]


@cache
def ran(path: Path) -> Ran:
    """Run a lesson once, with its solutions; at each check, try other answers too."""
    result = Ran([], [], [], [])
    names: dict[str, Any] = {}
    stub = None
    # Lessons write files, and other processes run them at the same time.
    with TemporaryDirectory() as folder, chdir(folder):
        for one in percent.run(path, names):
            result.done.append(one)
            if one.cell.kind == "exercise":
                stub = one.cell
            elif one.cell.kind == "check":
                assert stub is not None, "a check follows an exercise"
                result.right.append(one.printed)
                result.untouched.append(_said(one.cell, path, {**names, **_functions(stub, path)}))
                broken = {name: _wrong(names[name]) for name in _functions(stub, path)}
                result.wrong.append(_said(one.cell, path, names | broken))
                stub = None
    return result


def _functions(stub: Any, path: Path) -> dict[str, Any]:
    """Return the functions that an exercise leaves to the reader."""
    tree = ast.parse(stub.text)
    assert all(isinstance(node, ast.FunctionDef) for node in tree.body), f"{path.name}: {stub.text}"
    names: dict[str, Any] = {}
    # Annotations may name the lesson's imports.
    future = importlib.import_module("__future__").annotations.compiler_flag
    exec(compile(tree, str(path), "exec", flags=future, dont_inherit=True), names)
    return {node.name: names[node.name] for node in tree.body if isinstance(node, ast.FunctionDef)}


def _said(check: Any, path: Path, names: dict[str, Any]) -> str:
    try:
        return str(percent.execute(check, path, names).printed)
    except AssertionError as error:
        return str(error)


def _wrong(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def other(*arguments: Any, **keywords: Any) -> Any:
        return _changed(function(*arguments, **keywords))

    return other


def _changed(value: Any) -> Any:
    """Return another value of the same kind."""
    match value:
        case bool() | np.bool_():
            return not value
        case np.ndarray() if value.dtype == bool:
            return ~value
        case int() | float() | complex() | np.number() | np.ndarray():
            return value + 3
        case str():
            return f"{value}x"
        case list():
            return [*map(_changed, value)] or [1]
        case tuple():
            return tuple(map(_changed, value))
        case dict():
            return {key: _changed(one) for key, one in value.items()}
        case tcusim.Program():
            return tcusim.build("reduction_16" if value.name != "reduction_16" else "scan_256")
    raise TypeError(f"say how an answer of type {type(value).__name__} becomes wrong")


@each
def test_it_runs_without_a_warning(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cells of code are the whole script: solutions replace the exercises above them."""
    monkeypatch.chdir(tmp_path)
    assert ran(path).done
    assert not list(tmp_path.iterdir()), "a lesson leaves no files behind"


@each
def test_its_exercises(path: Path) -> None:
    """The solution is right; the untouched exercise is not done; another answer is wrong."""
    result = ran(path)
    kinds = [one.cell.kind for one in result.done if one.cell.kind in percent.KINDS[2:]]
    assert kinds == ["exercise", "solution", "check"] * (len(kinds) // 3)
    number = int(path.stem[:2])
    for count, (right, untouched, wrong) in enumerate(
        zip(result.right, result.untouched, result.wrong, strict=True), start=1
    ):
        title, colon, said = right.rpartition(": ")
        assert re.fullmatch(rf"{number}\.{count} \S.*", title), right
        assert said == "right"
        assert untouched == f"{title}{colon}not done yet"
        assert wrong.startswith(f"{title}{colon}not right. ")


@each
def test_it_asserts_and_imports_little(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert any(isinstance(node, ast.Assert) for last in tree.body[-3:] for node in ast.walk(last))
    imported = {
        alias.name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    assert imported - set(sys.stdlib_module_names) == {"numpy", "tcusim"}


@each
def test_it_shows_what_it_teaches(path: Path) -> None:
    """Something to step through, or a sum bit by bit, but in the lesson that has no program yet."""
    shown = [one.shown for one in ran(path).done if one.cell.kind == "picture"]
    assert shown or "<!-- figure" in path.read_text(encoding="utf-8")
    if not path.stem.startswith("00_"):
        assert any(isinstance(one, tcusim.Trace | tcusim.Explanation) for one in shown)


@each
def test_its_page_and_notebook(path: Path) -> None:
    """The notebook is the script, with its solutions in prose; the page has all of it."""
    done = ran(path).done
    page = lessons.page(path, done)
    assert page.startswith(f"# {percent.title(path.read_text(encoding='utf-8'))}\n")
    assert "<!-- figure" not in page
    assert page.count("\n```python\n") >= sum(one.cell.kind != "prose" for one in done)
    book = json.loads(lessons.notebook(done))
    code = ["".join(cell["source"]) for cell in book["cells"] if cell["cell_type"] == "code"]
    kept = [one.cell for one in done if one.cell.kind not in ("prose", "solution")]
    assert code == [cell.text for cell in kept]
    prose = "".join(
        "".join(cell["source"]) for cell in book["cells"] if cell["cell_type"] == "markdown"
    )
    for one in done:
        assert one.cell.kind != "solution" or one.cell.text in prose
    assert not re.search(r"\]\([^)]*\.md", prose), "a page of the site is not beside a notebook"
    assert len({cell["id"] for cell in book["cells"]}) == len(book["cells"])


@pytest.mark.parametrize(
    ("algorithm", "options", "steps"),
    [
        # Claims of the lessons' prose about the listings above it.
        ("reduction_16", {}, {"3": "Load", "4": "Mma", "5": "Store", "6": "Sync", "7": "Assign"}),
        ("scan_256", {}, {"6": "Mma", "9": "Mma", "10": "Store", "12": "Assign", "14": "Load"}),
        ("scan_256", {}, {"15": "Mma"}),
        (
            "reduction_256n_block",
            {"warps": 4, "segment_size": 4096},
            {"3.1": "Load", "14": "Assign", "15": "Sync", "16": "When"},
        ),
        (
            "scan_256n_block",
            {"warps": 4, "segment_size": 4096},
            {"6.14": "Assign", "6.15": "Sync", "6.17": "Sync"},
        ),
        (
            "scan_single_pass",
            {"warps": 2, "columns": 8},
            {"57.12": "Publish", "60.1": "Await"},
        ),
        ("gemm_naive", {"cols": 32, "inner": 64}, {"2.1": "When", "2.3": "Mma", "3": "When"}),
    ],
)
def test_the_prose_names_the_right_steps(
    algorithm: str, options: dict[str, Any], steps: dict[str, str]
) -> None:
    program = tcusim.build(algorithm, **options)
    found = {path: type(step).__name__ for path, step in walk(program.steps)}
    assert {path: found[path] for path in steps} == steps


# A whole lesson in small.
SMALL = '''# ruff: noqa
# %% [markdown]
# # 99. A title
#
# <!-- figure: reduction -->
#
# [Next](01_one_mma.md), [numerics](../numerics.md#rule).

# %%
import numpy as np, tcusim, tcusim.lessons
print("two")

# %% tags=["picture"]
program = tcusim.build("reduction_16")
program

# %% tags=["picture"]
tcusim.trace(program, {"in": np.ones(256, np.float16)})

# %% [markdown]
# ## Exercise 1: three
#
# <details><summary>Hint</summary>
# Count *on*.
# </details>

# %% tags=["exercise"]
def three():
    """Return it."""

# %% tags=["solution"]
def three():
    return 3

# %% tags=["check"]
tcusim.lessons.check("99.1 three", tcusim.lessons.equal(three(), 3), "one more")
'''


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "99_small.py"
    path.write_text(SMALL)
    return path


def test_the_files_of_a_lesson(small: Path) -> None:
    made = lessons.files(small)
    frame = "assets/through/99_small_1.html"
    base = "tutorials/99_small"
    assert set(made) == {f"{base}.md", f"{base}.ipynb", f"{base}.py", frame}
    page = made[f"{base}.md"]
    assert f'src="../{frame}"' in page
    assert "<!DOCTYPE html>" in made[frame]
    assert '<figure class="tcusim-figure">' in page
    assert re.search(r'<details class="success" markdown="1">\s*<summary>Solution', page)
    assert '<details markdown="1"><summary>Hint</summary>\n\nCount *on*.' in page
    assert "99.1 three: right" in page
    # Markdown ends a piece of HTML at a blank line.
    picture = page[page.index('<div class="picture">') :]
    assert "\n\n" not in picture[: picture.index("</div>\n\n```python")]
    assert made[f"{base}.py"] == SMALL


def test_the_notebook_of_a_lesson(small: Path) -> None:
    book = json.loads(lessons.files(small)["tutorials/99_small.ipynb"])
    assert (book["nbformat"], book["nbformat_minor"]) == (4, 5)
    head, first, program, trace, _, exercise, solution, check = book["cells"]
    text = "".join(head["source"])
    assert '<img alt="' in text
    assert "data:image/svg+xml;base64," in text
    assert "[Next](01_one_mma.ipynb), numerics." in text
    assert first["outputs"][0]["text"] == ["two\n"]
    assert "tcusim-shown" in "".join(program["outputs"][0]["data"]["text/html"])
    assert "".join(trace["outputs"][0]["data"]["text/html"]).startswith("<iframe")
    assert exercise["metadata"] == {"tags": ["exercise"]}
    assert "return 3" in "".join(solution["source"])
    assert solution["cell_type"] == "markdown"
    assert check["outputs"] == []


def test_cells_that_are_none(small: Path) -> None:
    with pytest.raises(ValueError, match=r"begins with '# %% tags=\[\"pictur\"\]': expected one"):
        percent.cells(SMALL.replace('"picture"', '"pictur"'))
    small.write_text(SMALL.replace("\nprogram\n", "\n1 + 1\n"))
    with pytest.raises(ValueError, match="line 14: a picture ends in an expression that shows"):
        lessons.files(small)
    small.write_text(SMALL.replace("figure: reduction", "figure: nothing"))
    with pytest.raises(
        ValueError, match=r"there is no figure 'nothing'; docs/tools/figures\.py has"
    ):
        lessons.files(small)
    small.write_text(SMALL.replace("return 3", "return 4"))
    with pytest.raises(AssertionError, match=r"99.1 three: not right. one more"):
        lessons.files(small)
