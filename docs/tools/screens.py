"""Pictures of screens, for the site: the screen of `tcusim step`, driven by keys."""

from __future__ import annotations

import asyncio
import re

import tcusim
from tcusim.cli.screen.app import StepApp
from tcusim.simulate.frames import default_inputs
from tcusim.simulate.stepping import Warps

__all__ = ["step"]

_SIZE = (128, 47)
_KEYS = ("j", "j", "shift+right", "shift+right", "shift+right")


def step() -> str:
    """Return the screen in the middle of a scan, as SVG."""
    program = tcusim.build("scan_256n")
    warps = Warps.of_program(program, default_inputs(program), "volta")
    return f'<figure class="screen">{_drawn(asyncio.run(_screen(warps)))}</figure>'


async def _screen(warps: Warps) -> str:
    """Go to a product of the first iteration, and put the cursor on a cell."""
    steps = warps.steps(0)
    app = StepApp(warps, steps, start=6)
    async with app.run_test(size=_SIZE) as pilot:
        while app.frame is None or steps.last is None:
            await pilot.pause(0.01)
        await pilot.press(*_KEYS)
        return app.export_screenshot(title="tcusim step scan_256n --arch volta")


def _drawn(svg: str) -> str:
    """Return a picture that asks no other host for its letters, and takes the page's width."""
    svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    svg = svg.replace("Fira Code", "DejaVu Sans Mono, Menlo, Consolas")
    return svg.replace("<svg ", '<svg role="img" aria-label="The screen of tcusim step" ', 1)
