"""What the site needs beyond its pages: tables from the registries, and the tutorials, run.

MkDocs calls these functions by their names (see `hooks` in mkdocs.yml).
"""

from __future__ import annotations

import sys
from pathlib import Path

import percent
from citations import linked
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Let the blocks of the pages import `tables` and `figures`, and this tree's tcusim."""
    sys.path[:0] = [str(folder) for folder in (HERE, ROOT) if str(folder) not in sys.path]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add pages for the tutorials, and to step through, and the style of charts.

    A cell that fails, fails the build.
    """
    for path in sorted((ROOT / "tutorials").glob("*.py")):
        name = f"tutorials/{path.stem}.md"
        files.append(File.generated(config, name, content=percent.page(path)))
    # It needs this tree's tcusim, which `on_config` makes importable.
    import through

    from tcusim import line_charts

    files.append(File.generated(config, "assets/charts.css", content=line_charts.style()))
    for name, content in through.pages().items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let citations lead to the references."""
    if page.file.src_uri == "references.md":
        return markdown
    return linked(markdown, page.file.src_uri)
