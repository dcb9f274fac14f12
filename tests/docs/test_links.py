"""Links of the sources lead somewhere: files that are there, and headings that they have."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
LESSONS = ROOT / "tutorials"
SOURCES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(DOCS.rglob("*.md")),
    *sorted(LESSONS.glob("*.py")),
]

CODE = re.compile(r"^( *)```.*?^\1```[^\n]*$|``.*?``|`[^`\n]*`", re.MULTILINE | re.DOTALL)
LINK = re.compile(
    r"(?<!\\)\[(?:[^\[\]]|\[[^\]]*\])*\]\(\s*([^)\s]+)[^)]*\)|(?:href|src)=\"([^\"]+)\""
)
HEADING = re.compile(r"^#{1,6} +(.+?)(?: *\{[^}]*\})?$", re.MULTILINE)
GIVEN = re.compile(r"\{[^}]*#([\w.-]+)[^}]*\}|\bid=\"([^\"]+)\"")
DOCUMENTED = re.compile(r"^::: (\S+)$", re.MULTILINE)


def prose(path: Path) -> str:
    """Return the Markdown of a page, or of the prose of a lesson."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return text
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        if line.startswith("# %%"):
            inside = "[markdown]" in line
        elif inside:
            lines.append(line.removeprefix("#").removeprefix(" "))
    return "\n".join(lines)


def links(path: Path) -> Iterator[str]:
    for found in LINK.finditer(CODE.sub("", prose(path))):
        yield found[1] or found[2]


def slug(heading: str) -> str:
    """Return the anchor of a heading, as Python-Markdown and GitHub make it."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
    text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", text).strip().lower())


@cache
def anchors(path: Path) -> frozenset[str]:
    text = prose(path)
    outside = re.sub(r"^```.*?^```[^\n]*$", "", text, flags=re.MULTILINE | re.DOTALL)
    given = {one or other for one, other in GIVEN.findall(text)}
    named = set(DOCUMENTED.findall(text))
    return frozenset({slug(one) for one in HEADING.findall(outside)} | given | named)


def target_of(page: Path, path: str) -> Path:
    """Return the source of a link's target; lessons are at docs/tutorials for the pages."""
    if not path:
        return page
    folder = DOCS / "tutorials" if page.parent == LESSONS else page.parent
    target = Path(*folder.parts, *Path(unquote(path)).parts)
    place = Path(re.sub(r"/[^/]+/\.\./", "/", str(target)))
    if place.parent == DOCS / "tutorials":
        return LESSONS / f"{place.stem}.py"
    return place


@pytest.mark.parametrize("page", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    wrong = []
    for link in links(page):
        parts = urlsplit(link)
        if parts.scheme:
            if parts.scheme != "https" or "." not in parts.netloc:
                wrong.append(f"{link} is no https address")
            continue
        target = target_of(page, parts.path)
        if "assets/through/" in parts.path:
            continue  # made, and checked, when the site is built
        if not target.exists():
            wrong.append(f"{link}: there is no {target}")
        elif parts.fragment and target.suffix in (".md", ".py"):
            known = anchors(target)
            deeper = any(parts.fragment.startswith(f"{name}.") for name in known)
            if parts.fragment not in known and not deeper:
                wrong.append(f"{link}: {target.name} has no heading #{parts.fragment}")
    assert not wrong, "\n".join([str(page.relative_to(ROOT)), *wrong])


def test_links_are_found() -> None:
    assert sum(1 for page in SOURCES for _ in links(page)) > 150


@pytest.mark.parametrize(
    ("heading", "anchor"),
    [
        ("A segment's bits", "a-segments-bits"),
        ("Why not `torch.cumsum`?", "why-not-torchcumsum"),
        ("3. [The idea](idea.md), again", "3-the-idea-again"),
    ],
)
def test_slugs(heading: str, anchor: str) -> None:
    assert slug(heading) == anchor


@pytest.mark.parametrize("word", [
    *("deterministic", "reproducible", "roofline", "CSR", "occupancy", "shuffle", "layer norm"),
    *("stream compaction", "softmax", "histogram", "bank conflict", "prefix sum", "autograd"),
])  # fmt: skip
def test_pages_have_the_words_that_people_search_for(word: str) -> None:
    """The search of the site finds words of pages, as they are or with another ending."""
    found = [page.name for page in SOURCES[2:] if re.search(word, prose(page), re.IGNORECASE)]
    assert found
