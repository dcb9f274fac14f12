"""Each public name has a complete docstring, and stands in the reference."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import tcusim
import tcusim.lessons
import tcusim.testing

ROOT = Path(__file__).resolve().parents[2]
SECTION = re.compile(r"^([A-Z][a-z]+)\n-+$", re.MULTILINE)


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    """Load docs/tools/reference.py; it belongs to no package."""
    sys.path.insert(0, str(ROOT / "docs" / "tools"))
    try:
        return importlib.import_module("reference")
    finally:
        del sys.path[0]


@pytest.fixture(scope="module")
def documented(reference: Any) -> list[Any]:
    return [entry for page in pages(reference) for entry in reference.entries(page)]


def pages(reference: Any) -> list[str]:
    return [path.stem for path in sorted(reference.FOLDER.glob("*.md"))]


def public() -> list[tuple[str, Any]]:
    """Return functions and classes by name; data are described where they are used."""
    modules = [(one.__name__, one) for one in (tcusim, tcusim.lessons, tcusim.testing)]
    return [
        (f"{title}.{name}", getattr(module, name))
        for title, module in modules
        for name in module.__all__
        if callable(getattr(module, name))
    ]


POWER = re.compile(r"\d\*\*(?=[-\d])")


@pytest.mark.parametrize(("name", "value"), public(), ids=[name for name, _ in public()])
def test_powers_are_quoted(name: str, value: Any) -> None:
    """Two powers of a paragraph, unquoted, would be the ends of bold text on the page."""
    for paragraph in re.split(r"\n\s*\n|\n(?=\S.* : )", inspect.getdoc(value) or ""):
        plain = "" if ">>>" in paragraph else re.sub(r"`+[^`]*`+", "", paragraph)
        assert len(POWER.findall(plain)) < 2, f"{name}: quote powers, ``2**3``: {plain}"


def test_each_public_name_is_in_the_reference(documented: list[Any]) -> None:
    values = {id(entry.value) for entry in documented}
    missing = [name for name, value in public() if id(value) not in values]
    assert not missing, f"add ::: NAME to a page of docs/api for each of {missing}"


def test_each_page_begins_with_a_table_of_its_names(reference: Any) -> None:
    for page in pages(reference):
        text = (reference.FOLDER / f"{page}.md").read_text(encoding="utf-8")
        assert f'reference.which("{page}")' in text.split(":::")[0], page
        rows = reference.which(page).splitlines()
        assert len(rows) - 2 == len(list(reference.entries(page)))


def test_what_is_named_is_documented_and_not_its_module(documented: list[Any]) -> None:
    assert len(documented) > 100
    for entry in documented:
        assert not inspect.ismodule(entry.value), f"{entry.name} is a module"
        first = (inspect.getdoc(entry.value) or "").splitlines()
        assert first, f"{entry.name} has no docstring"
        assert first[0].endswith((".", ":")) or not first[1:2] or first[1], entry.name


def described(docstring: str, section: str) -> set[str]:
    """Return the names that a section of a docstring has an entry for."""
    parts = SECTION.split(docstring)
    bodies = dict(zip(parts[1::2], parts[2::2], strict=True))
    lines = re.findall(r"^\*{0,2}\w[\w, *]*(?= :|$)", bodies.get(section, ""), re.MULTILINE)
    return {name.strip(" *") for line in lines for name in line.split(",")}


@pytest.mark.parametrize(("name", "value"), public(), ids=[name for name, _ in public()])
def test_docstrings_are_complete(name: str, value: Any) -> None:
    """Parameters, results and errors of a function; a constructor's; a data class's fields."""
    text = inspect.getdoc(value) or ""
    sections = SECTION.findall(text)
    if inspect.isfunction(value):
        signature = inspect.signature(value)
        assert set(signature.parameters) <= described(text, "Parameters")
        if signature.return_annotation not in ("None", None):
            assert {"Returns", "Yields"} & set(sections), f"{name} does not say what it returns"
    elif dataclasses.is_dataclass(value):
        fields = {one.name for one in dataclasses.fields(value) if one.repr and one.init}
        assert fields <= described(text, "Attributes")
    elif not issubclass(value, Exception):
        assert set(inspect.signature(value).parameters) <= described(text, "Parameters")


def test_what_the_check_of_docstrings_reads() -> None:
    parameters = "Parameters\n----------\na, b : int\n    Text.\n**c\n    More.\n\n"
    text = f"Do.\n\n{parameters}Returns\n-------\nint\n"
    assert described(text, "Parameters") == {"a", "b", "c"}
    assert described(text, "Returns") == {"int"}
    assert described(text, "Attributes") == set()
