"""The paper's algorithms beside their CUDA: the steps of a listing, with the lines of each."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterator
from html import escape
from typing import Final

import tcusim
from tcusim.program.grammar import walk
from tcusim.program.printer import line
from tcusim_cuda import emit
from tcusim_cuda.kernel import Kernel

# Names in the paper's order, with the options of a small example.
ALGORITHMS: Final[dict[str, dict[str, int]]] = {
    "reduction_16": {},
    "reduction_256": {},
    "reduction_256n_inefficient": {"segment_size": 1024},
    "reduction_256n": {"segment_size": 1024},
    "reduction_16n": {"segment_size": 64},
    "reduction_16n_coalesced": {"segment_size": 1024},
    "reduction_256n_block": {"segment_size": 4096, "warps": 4},
    "scan_16": {},
    "scan_256": {},
    "scan_16n": {"segment_size": 64},
    "scan_256n": {"segment_size": 1024},
    "scan_256n_block": {"segment_size": 2048, "warps": 4},
}


def side_by_side(name: str) -> str:
    """Return a table in HTML: the steps of one of `ALGORITHMS`, and the CUDA of each."""
    program = tcusim.build(name, **ALGORITHMS[name])
    kernel = emit(program)
    steps = dict(walk(program.steps))
    declarations, *rows = _parts(kernel)
    head = f"<details><summary>Declarations</summary><pre>{escape(declarations[1])}</pre></details>"
    cells = [f'<tr><td colspan="2">{head}</td></tr>']
    for path, text in rows:
        step = steps[path]
        origin = f" <small>{escape(step.origin)}</small>" if step.origin else ""
        listed = f"<small>{path}</small> <code>{escape(line(step))}</code>{origin}"
        cells.append(f"<tr><td>{listed}</td><td><pre>{escape(text)}</pre></td></tr>")
    titles = "<tr><th>Step</th><th>CUDA</th></tr>"
    return f'<table class="emitted"><thead>{titles}</thead><tbody>{"".join(cells)}</tbody></table>'


def _parts(kernel: Kernel) -> Iterator[tuple[str, str]]:
    """Yield the path of each step with its lines; first the lines before all steps."""
    # The last line closes the function.
    lines = list(zip(kernel.paths, kernel.text.splitlines(), strict=True))[:-1]
    for path, several in itertools.groupby(lines, key=lambda one: one[0]):
        kept = [text for _, text in several if text and f"// {path}  " not in text]
        yield path, textwrap.dedent("\n".join(kept))
