"""The site builds in strict mode, and asks nothing of any other host."""

from __future__ import annotations

import html.parser
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from browser import Browser, find_browser, require_browser
from site_in_browser import faults_of, served, step_in_lesson

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("mkdocs") is None or importlib.util.find_spec("material") is None,
        reason="mkdocs is not installed (pip install --group docs)",
    ),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    folders = os.pathsep.join(map(str, (ROOT, ROOT / "backends")))
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": folders}
    # Beside other tests: the pages are not those that `make docs` writes.
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert "docs_dir: .build/pages" in settings
    pages, site = folder / "pages", folder / "site"
    settings = settings.replace("docs_dir: .build/pages", f"docs_dir: {pages}")
    (folder / "mkdocs.yml").write_text(
        settings.replace("docs/tools/", f"{ROOT}/docs/tools/"), encoding="utf-8"
    )
    commands = (
        ["docs/tools/pages.py", str(pages)],
        # Not --quiet: it keeps the warnings from --strict, too.
        ["-m", "mkdocs", "build", "--strict", "-f", str(folder / "mkdocs.yml"), "-d", str(site)],
    )
    for command in commands:
        done = subprocess.run(
            [sys.executable, *command],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    return site


class _Loads(html.parser.HTMLParser):
    """Collects the addresses that a browser would fetch for a page, without links to click."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "link" and values.get("rel") in ("canonical", "prev", "next"):
            return
        name = {"link": "href"}.get(tag, "src")
        if tag in ("link", "script", "img", "iframe", "source") and values.get(name):
            self.found.append(values[name] or "")


def test_the_site(site: Path) -> None:
    # One test, so that parallel workers do not each build a site.
    check_that_pages_load_nothing_from_elsewhere(site)
    check_that_lessons_have_their_output(site)
    check_that_tables_are_filled(site)
    check_that_search_finds_titles(site)
    check_that_lessons_step(site)
    check_that_no_markdown_is_left(site)


def check_that_pages_load_nothing_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 15
    for page in pages:
        parser = _Loads()
        parser.feed(page.read_text(encoding="utf-8"))
        away = [url for url in parser.found if url.startswith(("http:", "https:", "//"))]
        assert not away, f"{page.name} loads {away}"


def check_that_no_markdown_is_left(site: Path) -> None:
    code = re.compile(r"<(pre|code|script|style|iframe|svg)\b.*?</\1>", re.DOTALL)
    for page in site.rglob("*.html"):
        shown = code.sub("", page.read_text(encoding="utf-8"))
        left = re.findall(r".{0,60}\]\(.{0,40}", shown)
        assert not left, f"{page.name} shows {left[:3]}"


def check_that_lessons_have_their_output(site: Path) -> None:
    pages = sorted((site / "tutorials").glob("*.html"))
    assert len(pages) == len(list((ROOT / "tutorials").glob("*.py")))
    for page in pages:
        assert page.read_text(encoding="utf-8").count('class="filename">output<') >= 5
        assert page.with_suffix(".ipynb").exists()
        assert page.with_suffix(".py").exists()


def check_that_tables_are_filled(site: Path) -> None:
    for page, word in (
        ("algorithms.html", "reduction_kn_coalesced"),
        ("shapes.html", "mma.sync"),
        ("numerics.html", "bits that differ"),
        ("steps.html", "synced_shared"),
    ):
        text = (site / page).read_text(encoding="utf-8")
        assert word in text
        assert "| ---" not in text
    assert not (site / "tools").exists()


def check_that_lessons_step(site: Path) -> None:
    """Every stepper that a lesson shows follows the keys, where there is a browser."""
    path = find_browser()
    if path is None:
        return
    lessons = sorted((site / "tutorials").glob("*.html"))
    stepped = [page for page in lessons if 'class="through"' in page.read_text(encoding="utf-8")]
    assert len(stepped) > 8
    with served(site) as home, Browser(path) as browser:
        for page in stepped:
            step_in_lesson(browser, home, f"tutorials/{page.name}")


@pytest.mark.full
def test_every_page_in_a_browser(site: Path) -> None:
    """Nothing is asked of elsewhere, nothing fails, nothing is too wide or too small to read.

    axe-core looks too if TCUSIM_AXE has the path of its axe.min.js (`npm pack axe-core`).
    """
    script = os.environ.get("TCUSIM_AXE")
    axe = "" if script is None else Path(script).read_text(encoding="utf-8")
    pages = [str(page.relative_to(site)) for page in sorted(site.rglob("*.html"))]
    assert len(pages) > 50
    with served(site) as home, Browser(require_browser()) as browser:
        faults = [fault for page in pages for fault in faults_of(browser, home, page, axe)]
    assert faults == []


def check_that_search_finds_titles(site: Path) -> None:
    """Words that people search for are in the title of a page or a section."""
    sections = json.loads((site / "search" / "search_index.json").read_text("utf-8"))["docs"]
    titles = " ".join(section["title"] for section in sections).lower()
    for word in ("determinis", "reproducib", "layer norm", "stream compaction", "csr", "shuffle"):
        assert word in titles, word
