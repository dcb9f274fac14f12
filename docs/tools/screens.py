"""Pictures of screens: `tcusim step`, driven by keys. Run it to draw the picture of the README."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Final

import numpy as np

import tcusim
from tcusim.stepper.breakpoints import breakpoint_of
from tcusim.stepper.screen.app import StepApp
from tcusim.stepper.steps import Viewing, Warps

# The picture of the README, which GitHub shows: it is kept, while the site draws its own.
PICTURE: Final = Path(__file__).resolve().parents[1] / "assets" / "stepper.svg"

_SIZE: Final = (128, 47)
_KEYS: Final = ("j", "j", "shift+right", "shift+right", "shift+right")
_TITLE: Final = "The screen of tcusim step"


def step() -> str:
    """Return the screen in the middle of a scan, as HTML that scrolls where it is too wide."""
    return (
        f'<figure class="screen" role="region" tabindex="0" aria-label="{_TITLE}">'
        f"{picture()}</figure>"
    )


def picture() -> str:
    """Return the screen in the middle of a scan, as SVG."""
    program = tcusim.build("scan_256n")
    digits = (np.arange(1024) ** 2 % 97 % 10).astype(np.float16)
    warps = Warps.of_program(program, {"in": digits}, "volta")
    return _drawn(asyncio.run(_screen(warps)))


async def _screen(warps: Warps) -> str:
    """Go to a product of the first iteration, and put the cursor on a cell."""
    steps = warps.steps(0)
    app = StepApp(warps, steps, Viewing(start=breakpoint_of("#6", steps.names)))
    async with app.run_test(size=_SIZE) as pilot:
        while app.frame is None or steps.last is None:
            await pilot.pause(0.01)
        await pilot.press(*_KEYS)
        return app.export_screenshot(title="tcusim step scan_256n --arch volta")


def _drawn(svg: str) -> str:
    """Return a picture that asks no other host for its letters, and takes the page's width."""
    svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    svg = svg.replace("Fira Code", "DejaVu Sans Mono, Menlo, Consolas")
    return svg.replace("<svg ", f'<svg role="img" aria-label="{_TITLE}" ', 1)


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
    print(f"wrote {PICTURE}")
