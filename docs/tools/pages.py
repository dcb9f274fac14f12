"""Write the pages of the site: run their blocks and the lessons, and link their citations.

The result is plain Markdown for any builder of sites:

    python docs/tools/pages.py FOLDER
"""

from __future__ import annotations

import contextlib
import io
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
# This tree's tcusim, whichever is installed.
sys.path[:0] = [one for one in (str(ROOT), str(ROOT / "backends")) if one not in sys.path]

import lessons  # noqa: E402
import through  # noqa: E402
from citations import linked  # noqa: E402

from tcusim import line_charts  # noqa: E402

DOCS: Final = ROOT / "docs"

_BLOCK: Final = re.compile(
    r'^(?P<indent> *)```python exec="on"(?P<options>[^\n]*)\n(?P<code>.*?)^(?P=indent)```$',
    re.MULTILINE | re.DOTALL,
)
_OPTION: Final = re.compile(r'(\w+)="([^"]*)"')
# Further options of a block: its code above its output, and the form of the output.
_OPTIONS: Final = {"html": {"on"}, "source": {"above"}, "result": {"text"}}


def files() -> Iterator[tuple[str, str | Path]]:
    """Yield each file of the site by its path: its text, or the file to copy."""
    for path in sorted(DOCS.rglob("*")):
        name = path.relative_to(DOCS).as_posix()
        if path.is_dir() or name.startswith("tools/") or "__pycache__" in name:
            continue
        if path.suffix != ".md":
            yield name, path
            continue
        text = ran(path.read_text(encoding="utf-8"), path)
        yield name, text if name == "references.md" else linked(text, name)
    for path in sorted((ROOT / "tutorials").glob("*.py")):
        for name, text in lessons.files(path).items():
            yield name, linked(text, name) if name.endswith(".md") else text
    yield from through.pages().items()
    yield "assets/charts.css", line_charts.style()


def ran(text: str, path: Path) -> str:
    """Return a page with the output of its blocks in their place; an error in one is raised."""

    def replaced(match: re.Match[str]) -> str:
        line = text.count("\n", 0, match.start()) + 1
        options = _options(match["options"], f"{path.name}, line {line}")
        code = textwrap.dedent(match["code"])
        printed = _run("\n" * line + code, path)
        if options.get("result") == "text":
            printed = f"```text\n{printed}\n```"
        if options.get("source") == "above":
            printed = f"```python\n{code.rstrip()}\n```\n\n{printed}"
        return textwrap.indent(printed, match["indent"])

    return _BLOCK.sub(replaced, text)


def _options(text: str, where: str) -> dict[str, str]:
    """Return the options of a block; another than those that there are is an error."""
    found = dict(_OPTION.findall(text))
    for name, value in found.items():
        if value not in _OPTIONS.get(name, ()):
            raise ValueError(f'{where}: {name}="{value}" is no option of a block: {_OPTIONS}')
    return found


def _run(code: str, path: Path) -> str:
    names: dict[str, Any] = {"__name__": "__main__"}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, str(path), "exec"), names)
    return printed.getvalue().rstrip("\n")


def write(folder: Path) -> None:
    """Write all files to a folder, which then holds these and no others."""
    if folder.exists():
        shutil.rmtree(folder)
    for name, content in files():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Path):
            shutil.copyfile(content, target)
        else:
            target.write_text(content, encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python docs/tools/pages.py FOLDER; the folder is written anew")
    write(Path(sys.argv[1]))
