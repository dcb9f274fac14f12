"""Dialogs in front of the screen: places, breakpoints, texts; errors for bad ones."""

from __future__ import annotations

from textual.events import Key
from textual.widgets import Input

from stepping_screen import Driver, drive, scan, warps_of
from tcusim.stepper.screen.dialogs import Reading
from tcusim.stepper.screen.widgets import ListingPane


def test_bad_places_are_told_at_once() -> None:
    async def play(driver: Driver) -> None:
        await driver.press("g")
        await driver.type("mam")
        assert "unknown breakpoint 'mam'. Did you mean 'mma'?" in driver.text("#remark")
        # The text is still there, to be mended.
        await driver.type("5.2 i=99")
        assert driver.text("#said") == "5.2 i=99 never comes in this warp"
        await driver.press("g")
        await driver.type("#1000")
        assert driver.text("#said") == "there is no step #1000"
        await driver.press("g", "enter")
        assert driver.place == (1, "1")

    drive(warps_of(scan()), play)


def test_breakpoints() -> None:
    async def play(driver: Driver) -> None:
        await driver.press("c")
        assert "no breakpoints" in driver.text("#said")
        await driver.press("b")
        await driver.type("mam")
        assert "unknown breakpoint 'mam'" in driver.text("#remark")
        await driver.type("5.11 i=1")
        assert driver.text("#remark") == "added: 5.11 i=1"
        await driver.type("out[600]")
        await driver.type("mma")
        await driver.type("mma")
        assert driver.text("#remark") == "taken away: mma"
        assert driver.text("#listed") == "1  5.11 i=1\n2  out[600]"
        await driver.press("escape")
        assert driver.text("#said") == "c goes on to: 5.11 i=1, out[600]"
        listing = driver.app.query_one(ListingPane)
        assert any(listing.line_text(n).startswith("● 5.11") for n in range(22))
        await driver.press("c")
        assert driver.place[1] == "5.11"
        assert driver.frame.loops["i"] == 1
        assert driver.text("#said") == "stopped: 5.11 i=1"
        await driver.press("c")
        assert (driver.frame.path, driver.frame.loops["i"]) == ("5.12", 2)
        await driver.press("c")
        assert driver.text("#said") == "no breakpoint stops from here on"
        await driver.press("C")
        assert (driver.frame.path, driver.frame.loops["i"]) == ("5.11", 1)

    drive(warps_of(scan()), play)


def test_help_has_every_key() -> None:
    async def play(driver: Driver) -> None:
        await driver.press("question_mark")
        reading = driver.app.screen
        assert isinstance(reading, Reading)
        for words in ("next step", "breakpoints", "another warp", "bits or decimals", "NaN:"):
            assert words in reading.text.plain
        await driver.press("q")
        assert driver.place == (1, "1")

    drive(warps_of(scan()), play)


def test_what_is_typed_ahead_is_not_lost() -> None:
    async def play(driver: Driver) -> None:
        # As from a terminal: all keys at once, before the line is there.
        for letter in "g5.2 i=2":
            driver.app.post_message(Key({" ": "space"}.get(letter, letter), letter))
        driver.app.post_message(Key("enter", None))
        while driver.place == (1, "1"):
            await driver.pilot.pause(0.01)
        assert (driver.frame.path, driver.frame.loops["i"]) == ("5.2", 2)
        # Letters that are keys elsewhere, are letters here.
        await driver.press("g", "q", "x", "n")
        assert driver.app.screen.query_one(Input).value == "qxn"
        await driver.press("escape")
        assert (driver.frame.path, driver.app.viewing.hexadecimal) == ("5.2", False)

    drive(warps_of(scan()), play)


def test_keys_of_a_text_stay_there() -> None:
    async def play(driver: Driver) -> None:
        await driver.press("question_mark", "x", "n", "c", "q")
        assert not isinstance(driver.app.screen, Reading)
        assert driver.app.is_running
        assert (driver.place, driver.app.viewing.hexadecimal) == ((1, "1"), False)
        await driver.press("n")
        assert driver.frame.number == 2

    drive(warps_of(scan()), play)
