"""Write a lesson as a page of the site, as a notebook and as a script to download.

The page shows the output of each cell, its pictures, and the solutions folded away. The notebook
has the exercises as they are, so that running all of it checks the reader's own answers.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import drawing
import figures
import percent
import through
from percent import Done

_FIGURE: Final = re.compile(r"^<!-- figure: (\w+) -->$", re.MULTILINE)
_LINK: Final = re.compile(r"(?<!!)\[([^\]]+)\]\(([^):\s]+?)\.md(?:#[^)\s]*)?\)")
_LESSON: Final = re.compile(r"\d\d_\w+")
_PANEL: Final = re.compile(r"<svg .*?</svg>", re.DOTALL)
_LABEL: Final = re.compile(r'aria-label="([^"]*)"')
_STYLE: Final = re.compile(r"<style>.*?</style>", re.DOTALL)


def files(path: Path) -> dict[str, str]:
    """Run a lesson, and return the files of the site that come of it by their paths in docs."""
    done = list(percent.run(path))
    base = f"tutorials/{path.stem}"
    return {
        f"{base}.md": page(path, done),
        f"{base}.ipynb": notebook(done),
        f"{base}.py": path.read_text(encoding="utf-8"),
        **{file: shown.to_html() for file, shown in _frames(path, done).items()},
    }


def page(path: Path, done: Sequence[Done]) -> str:
    """Return a lesson that was run as Markdown."""
    frames = {id(shown): file for file, shown in _frames(path, done).items()}
    parts = []
    for one in done:
        cell = one.cell
        if cell.kind == "prose":
            parts.append(_FIGURE.sub(lambda found: _figure(found[1]), _foldable(cell.text)))
            continue
        code = _fence("python", cell.text)
        if cell.kind == "solution":
            code = f'<details class="success" markdown="1">\n<summary>Solution</summary>\n\n{code}'
            code += "\n\n</details>"
        parts.append(code)
        if one.printed:
            parts.append(_fence('{ .text .output title="output" }', one.printed))
        if one.shown is not None:
            file = frames.get(id(one.shown))
            parts.append(_picture(one.shown) if file is None else _frame(file, path))
    first, _, rest = parts[0].partition("\n")
    parts[0] = f"{first}\n\n{_downloads(path)}\n{rest}"
    return "\n\n".join(parts) + "\n"


def _downloads(path: Path) -> str:
    return (
        '<p class="downloads" markdown="1">Download this lesson: '
        f"[notebook]({path.stem}.ipynb){{ download }} · [script]({path.stem}.py){{ download }}</p>"
    )


def _foldable(text: str) -> str:
    """Let hints, which are HTML, hold Markdown."""
    opened = text.replace("<details>", '<details markdown="1">')
    return re.sub(r"(</summary>)\n?", r"\1\n\n", opened).replace("</details>", "\n</details>")


def _figure(name: str) -> str:
    if name not in figures.__all__:
        raise ValueError(
            f"there is no figure {name!r}; docs/tools/figures.py has {figures.__all__}"
        )
    return getattr(figures, name)()


def _fence(kind: str, text: str) -> str:
    return f"```{kind}\n{text}\n```"


def _picture(shown: Any) -> str:
    """Return a value as HTML without a blank line, at which Markdown would end it."""
    text = shown._repr_html_()
    text = _STYLE.sub(lambda found: re.sub(r"\n\s*\n", "\n", found[0]), text)
    return '<div class="picture">' + re.sub(r"\n(?=[ \t]*\n)", "\n&#10;", text) + "</div>"


def _frames(path: Path, done: Sequence[Done]) -> dict[str, Any]:
    """Return the objects with pages of their own, as a notebook frames them, by file."""
    framed = [one.shown for one in done if one.shown is not None and through.is_framed(one.shown)]
    return {
        f"{through.FOLDER}/{path.stem}_{number}.html": shown
        for number, shown in enumerate(framed, start=1)
    }


def _frame(file: str, path: Path) -> str:
    return through.frame(Path(file).stem, f"A program of lesson {path.stem}", above="../")


def notebook(done: Sequence[Done]) -> str:
    """Return a lesson that was run as a Jupyter notebook, as JSON."""
    content = {
        "cells": [
            {"id": f"cell-{number}", **cell}
            for number, cell in enumerate(_notebook_cells(done), start=1)
        ],
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


def _notebook_cells(done: Sequence[Done]) -> Iterator[dict[str, Any]]:
    for one in done:
        kind, text = one.cell.kind, one.cell.text
        if kind == "prose":
            yield _markdown(_FIGURE.sub(lambda found: _images(_figure(found[1])), _links(text)))
        elif kind == "solution":
            fenced = _fence("python", text)
            yield _markdown(f"<details><summary>Solution</summary>\n\n{fenced}\n\n</details>")
        else:
            # The output of a check is about the reader's answer, not about ours.
            outputs = [] if kind == "check" else list(_outputs(one))
            yield {
                "cell_type": "code",
                "execution_count": None,
                "metadata": {} if kind == "code" else {"tags": [kind]},
                "outputs": outputs,
                "source": text.splitlines(keepends=True),
            }


def _markdown(text: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": text.splitlines(keepends=True)}


def _outputs(one: Done) -> Iterator[dict[str, Any]]:
    if one.printed:
        lines = f"{one.printed}\n".splitlines(keepends=True)
        yield {"output_type": "stream", "name": "stdout", "text": lines}
    if one.shown is not None:
        data = {"text/html": one.shown._repr_html_().splitlines(keepends=True)}
        yield {"output_type": "display_data", "data": data, "metadata": {}}


def _links(text: str) -> str:
    """Let links lead to the other notebooks; pages of the site are not beside a notebook."""
    return _LINK.sub(
        lambda found: (
            f"[{found[1]}]({found[2]}.ipynb)" if _LESSON.fullmatch(found[2]) else found[1]
        ),
        text,
    )


def _images(figure: str) -> str:
    """Return the panels of a figure as images: notebooks show no SVG inside prose."""
    return "\n".join(map(_image, _PANEL.findall(figure)))


def _image(panel: str) -> str:
    style = drawing.style().replace("--ink", "background: var(--paper); --ink")
    alone = panel.replace("<svg ", '<svg class="tcusim-figure" ', 1)
    alone = alone.replace("<title>", f"<style>{style}</style><title>", 1)
    label = _LABEL.search(panel)
    text = base64.b64encode(alone.encode()).decode()
    return f'<img alt="{label[1] if label else ""}" src="data:image/svg+xml;base64,{text}">'
