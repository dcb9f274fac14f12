"""Drawings of the code: its packages in layers, and the way of a call through them."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Final

from drawing import WIDEST, Drawing, figure

_ROOT: Final = Path(__file__).parents[2]
# The purpose of each package, in a few words.
PURPOSES: Final = {
    "cli": "the command",
    "dask": "dask arrays",
    "jax": "functions of JAX",
    "torch": "operators of torch",
    "judge": "correctness, precision and cost of units",
    "arrays": "from an array to launches",
    "stepper": "recorded runs, to step through",
    "simulate": "runs programs on NumPy",
    "backends": "the contract of an engine",
    "algorithms": "the programs, and their builder",
    "program": "steps, their text and their proofs",
    "machine": "formats, rules, shapes, units",
    "plugins": "additions of other packages",
    "line_charts": "charts as SVG",
    "table": "tables as text and HTML",
    "markup": "parts of HTML",
    "call_options": "options of a call",
    "records": "dataclasses from JSON and TOML",
    "errors": "all errors",
}
# The modules that a first call of `tcusim.sum` passes, in order, and their results.
WAY: Final = (
    ("tcusim.arrays.functions", "the call"),
    ("tcusim.arrays.calls", "kept, for like calls"),
    ("tcusim.arrays.spec", "its arguments, checked"),
    ("tcusim.arrays.planner", "the launches"),
    ("tcusim.algorithms.registry", "a program for each"),
    ("tcusim.program.checks.verifier", "its proofs"),
    ("tcusim.simulate.interpreter", "the sums"),
)


def layers() -> list[list[str]]:
    """Return the packages of tcusim from the top, as the import contract has them."""
    settings = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contract = settings["tool"]["importlinter"]["contracts"][0]
    rows = [layer.split(" | ") for layer in contract["layers"]]
    return [row for row in rows if set(row) <= set(PURPOSES)]


def rooms() -> str:
    """Draw the layers, each of which imports those below it, and the way of a call."""
    names = [name for row in layers() for name in row]
    height = 24 * len(names) + 22
    drawn = Drawing(WIDEST, height, "The packages of tcusim in layers, from the command down.")
    drawn.text(0, 12, "each layer imports those below", "title")
    y = 20
    for row in layers():
        for name in row:
            drawn.rect(0, y, WIDEST, 24, "box" if row[0] == row[-1] else "core")
            drawn.text(8, y + 16, name, "code")
            drawn.text(104, y + 16, PURPOSES[name], "quiet")
            y += 24
    way = Drawing(WIDEST, 52 * len(WAY) + 22, "The modules that a first call of tcusim.sum passes.")
    way.text(0, 12, "the way of a first tcusim.sum(x)", "title")
    for number, (module, result) in enumerate(WAY):
        y = 20 + 52 * number
        way.rect(0, y, WIDEST, 34, "box", corner=4)
        way.text(8, y + 14, module.removeprefix("tcusim."), "code")
        way.text(8, y + 28, result, "quiet")
        if number:
            way.arrow((WIDEST // 2, y - 17), (WIDEST // 2, y - 1))
    return figure(drawn.svg(), way.svg())
