"""A site in a browser, as a reader sees it: each page in two widths, light and dark."""

from __future__ import annotations

import functools
import http.server
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from browser import Browser

WIDTHS = (1440, 390)
SCHEMES = ("light", "dark")
LEAST_TEXT = 11

# The requests that page scripts may make: to the site itself, and for embedded data.
_OWN = ("data:", "blob:", "about:")

# By how much the page is wider than its window, and the sizes of text in drawings.
_LOOK = """
(() => {
  const sizes = [];
  for (const text of document.querySelectorAll("svg text, svg tspan")) {
    const map = text.closest("svg").getScreenCTM();
    if (!map || !text.textContent.trim()) continue;
    const size = parseFloat(getComputedStyle(text).fontSize) * Math.hypot(map.b, map.d);
    if (size > 0) sizes.push(size);
  }
  return {
    wider: document.documentElement.scrollWidth - innerWidth,
    least: sizes.length ? Math.min(...sizes) : 99,
  };
})()
"""

_AXE = """
axe.run(document, { resultTypes: ["violations"] }).then((found) => found.violations
  .filter((one) => one.impact === "serious" || one.impact === "critical")
  .map((one) => `axe: ${one.impact}: ${one.id}: ${one.nodes.length} such as `
    + `${one.nodes[0].html.slice(0, 160)}: ${(one.nodes[0].any[0] || {}).message || one.help}`))
"""


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder on this machine; give its address, with a slash at its end."""
    handler = functools.partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def faults_of(browser: Browser, home: str, page: str, axe: str) -> Iterator[str]:
    """Open a page in every width and scheme, and yield its faults.

    axe: the script of axe-core; empty if there is none.
    """
    for width in WIDTHS:
        for scheme in SCHEMES:
            feature = {"name": "prefers-color-scheme", "value": scheme}
            browser.send("Emulation.setEmulatedMedia", features=[feature])
            # As on a phone, where they lie over the page.
            browser.send("Emulation.setScrollbarsHidden", hidden=True)
            browser.open(home + page, width=width)
            # Scripts that draw are done by then.
            browser.value("new Promise((done) => setTimeout(done, 150))")
            for fault in (*_asked(browser, home), *_seen(browser), *_by_axe(browser, axe)):
                yield f"{page}, {width} px, {scheme}: {fault}"


def _asked(browser: Browser, home: str) -> Iterator[str]:
    """Yield requests to elsewhere, missing files, and errors of scripts."""
    for url in browser.requests():
        if not url.startswith((home, *_OWN)):
            yield f"asks {url}"
    for event in browser.events:
        given = event.get("params", {})
        match event.get("method"):
            case "Network.responseReceived" if given["response"]["status"] >= 400:
                yield f"{given['response']['status']} for {given['response']['url']}"
            case "Runtime.consoleAPICalled" if given["type"] in ("error", "warning"):
                yield f"console: {given['args'][0].get('value')}"
            case "Runtime.exceptionThrown":
                yield f"error: {given['exceptionDetails']['text']}"


def _seen(browser: Browser) -> Iterator[str]:
    look = browser.value(_LOOK)
    if look["wider"] > 0:
        yield f"scrolls sideways by {look['wider']} px"
    if look["least"] < LEAST_TEXT - 0.05:
        yield f"has text of {look['least']:.1f} px in a drawing"


def _by_axe(browser: Browser, axe: str) -> list[str]:
    if not axe:
        return []
    browser.value(axe + "; 0")
    found: list[str] = browser.value(_AXE)
    return found


def step_in_lesson(browser: Browser, home: str, page: str) -> None:
    """Step through the first stepper that a lesson shows, by its keys; assert that it follows."""
    browser.open(home + page)
    frame = "document.querySelector('iframe.through')"
    browser.value(f"{frame}.scrollIntoView(), 0")
    browser.wait_for(f"{frame}.contentDocument?.querySelector('#app:not([hidden])')")
    where = f"{frame}.contentDocument.querySelector('#where').textContent"
    browser.value(f"{frame}.contentWindow.focus(), 0")
    browser.press("Home")
    begin = browser.value(where)
    first = re.match(r"step (\d+) of ", begin)
    assert first, begin
    for number in (1, 2):
        browser.press("ArrowRight")
        assert browser.value(where).startswith(f"step {int(first[1]) + number} of ")
    browser.press("Home")
    assert browser.value(where) == begin
    assert browser.errors() == []
