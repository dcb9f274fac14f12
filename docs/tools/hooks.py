"""What the site needs beyond its pages: tables from the registries, and the tutorials, run.

MkDocs calls these functions by their names (see `hooks` in mkdocs.yml).
"""

from __future__ import annotations

import sys
from pathlib import Path

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
    """Add the lessons, pages to step through, and the style of charts.

    A cell that fails, fails the build.
    """
    # They need this tree's tcusim, which `on_config` makes importable.
    import lessons
    import through

    from tcusim import line_charts

    files.append(File.generated(config, "assets/charts.css", content=line_charts.style()))
    made = through.pages()
    for path in sorted((ROOT / "tutorials").glob("*.py")):
        made |= lessons.files(path)
    for name, content in made.items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let citations lead to the references."""
    if page.file.src_uri == "references.md":
        return markdown
    return linked(markdown, page.file.src_uri)
