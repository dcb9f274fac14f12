"""Pages to step through, for the site: they are files of their own, shown in frames."""

from __future__ import annotations

from html import escape
from typing import Any, Final

import numpy as np

import tcusim
from tcusim.stepper.comparison import Comparison
from tcusim.stepper.frames import default_inputs
from tcusim.stepper.trace import Trace

FOLDER: Final = "assets/through"
_HEIGHT: Final = 820


def pages() -> dict[str, str]:
    """Return the pages by the paths of their files."""
    small = tcusim.build("scan_t", tile="4x4x4")
    first = tcusim.trace(small, default_inputs(small), arch="volta")
    scan = tcusim.build("scan_256n", segment_size=512)
    alone = tcusim.trace(scan, default_inputs(scan), arch="volta")
    wide = {"in": (1.001 * np.exp2(np.arange(512) * 7 % 23 - 8)).astype(np.float16)}
    volta, hopper = (tcusim.trace(scan, wide, arch=arch) for arch in ("volta", "hopper"))
    block = tcusim.build("reduction_tn_block", warps=4)
    warps = tcusim.trace(block, default_inputs(block), blocks=0)
    shown = {
        "first": first.to_html(),
        "scan": alone.to_html(),
        "both": volta.compare(hopper).to_html(),
        "block": warps.to_html(),
    }
    return {f"{FOLDER}/{name}.html": page for name, page in shown.items()}


def is_framed(shown: Any) -> bool:
    """Tell whether a value shows itself as a page to step through, in a frame."""
    return isinstance(shown, Trace | Comparison)


def frame(name: str, title: str, above: str = "", step: str = "") -> str:
    """Return the element that shows a page, with a link to it alone.

    above: the way up from the page that holds it to the folder that has all pages. step: its first
    view, "15", or "15,3,2": output 3,2 of step 15.
    """
    path = f"{above}{FOLDER}/{name}.html" + (f"#step={step}" if step else "")
    return (
        f'<iframe class="through" src="{path}" title="{escape(title)}" '
        f'loading="lazy" height="{_HEIGHT}"></iframe>\n'
        f'<p><a href="{path}">The same in a window of its own</a></p>'
    )
