"""Drive the screen of `tcusim step` with keys, in a test."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from textual.pilot import Pilot
from textual.widgets import Input, Static

import tcusim
from tcusim.program.grammar import Program
from tcusim.stepper.frames import Frame, default_inputs
from tcusim.stepper.screen.app import StepApp
from tcusim.stepper.steps import Viewing, Warps


def warps_of(program: Program, length: int | None = None, arch: str = "hopper") -> Warps:
    return Warps.of_program(program, default_inputs(program, length), arch)


class Driver:
    """The screen and its keys."""

    def __init__(self, app: StepApp, pilot: Pilot[None]) -> None:
        self.app, self.pilot = app, pilot

    async def press(self, *keys: str) -> None:
        """Press keys, each after the action of the one before is done."""
        for key in keys:
            await self.pilot.press(key)
            await self.settle()

    async def type(self, text: str) -> None:
        """Fill in the line of a dialog at once: letters take long; press Enter."""
        self.app.screen.query_one(Input).value = text
        await self.press("enter")

    async def settle(self) -> None:
        await self.pilot.pause()
        while self.app.search is not None:
            await self.pilot.pause(0.01)

    @property
    def frame(self) -> Frame:
        assert self.app.frame is not None
        return self.app.frame

    @property
    def place(self) -> tuple[int, str]:
        return self.frame.number, self.frame.path

    def text(self, name: str) -> str:
        """Return the text of a line, or of a dialog."""
        found = self.app.screen.query_one(name, Static)
        return str(found.render())

    def picture(self) -> list[str]:
        """Return the whole screen as lines of text."""
        width, height = self.app.size
        lines = self.app.screen._compositor.render_strips()
        assert len(lines) == height
        return ["".join(segment.text for segment in line)[:width] for line in lines]


def drive(
    warps: Warps,
    play: Callable[[Driver], Awaitable[None]],
    *,
    warp: int = 0,
    size: tuple[int, int] = (80, 24),
    **options: Any,
) -> None:
    """Open the screen, and let a function play with it."""

    async def run() -> None:
        app = StepApp(warps, warps.steps(warp), Viewing(**options))
        async with app.run_test(size=size) as pilot:
            driver = Driver(app, pilot)
            while app.frame is None and not driver.text("#said"):
                await pilot.pause(0.01)
            await driver.settle()
            await play(driver)

    asyncio.run(run())


def scan() -> Program:
    return tcusim.build("scan_256n")
