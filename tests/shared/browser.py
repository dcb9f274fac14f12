"""A headless Chromium that tests drive by its own protocol, over a pipe: nothing to install."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

# It asks for nothing, and needs no screen.
_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--remote-debugging-pipe", "--no-default-browser-check"),
)

KEYS = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Home": 36, "End": 35}


def find_browser() -> str | None:
    """Return the path of a Chromium, if there is one."""
    return next(filter(None, map(shutil.which, _NAMES)), None)


def require_browser() -> str:
    """Return the path of a Chromium; skip the test if there is none."""
    path = find_browser()
    if path is None:
        pytest.skip(f"no browser here: none of {', '.join(_NAMES)} is installed")
    return path


class Browser:
    """One browser with one page."""

    def __init__(self, path: str) -> None:
        self.profile = tempfile.mkdtemp()
        here, self.write_fd = os.pipe()
        self.read_fd, there = os.pipe()

        # The browser reads from its descriptor 3 and writes to 4; a shell sets them up.
        command = f'exec "$@" 3<&{here} 4>&{there}'
        arguments = [path, *_FLAGS, f"--user-data-dir={self.profile}", "about:blank"]
        self.process = subprocess.Popen(
            ["bash", "-c", command, "bash", *arguments],
            pass_fds=(here, there),
            stderr=subprocess.DEVNULL,
        )
        os.close(here)
        os.close(there)
        self.received = b""
        self.number = 0
        self.session = ""
        self.events: list[dict[str, Any]] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Accessibility"):
            self.send(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.write_fd)
        os.close(self.read_fd)
        shutil.rmtree(self.profile, ignore_errors=True)

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command; return its result, and keep the events that come before it."""
        self.number += 1
        message: dict[str, Any] = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write_fd, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self.number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self.received:
            more = os.read(self.read_fd, 2**16)
            assert more, "the browser has ended"
            self.received += more
        text, _, self.received = self.received.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message

    def open(self, page: Path | str, *, width: int = 1280, height: int = 900) -> None:
        """Open a file or an address, and wait until it is loaded."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        self.events.clear()
        self.send("Page.navigate", url=page if isinstance(page, str) else page.as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self._receive())

    def value(self, expression: str) -> Any:
        """Return the value of an expression in the page, or of its promise."""
        result = self.send(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait_for(self, condition: str) -> None:
        """Wait until a condition holds in the page; fail after ten seconds."""
        found = self.value(
            "new Promise((done) => { const end = performance.now() + 10000;"
            f"const look = () => ({condition}) ? done(true)"
            ": performance.now() > end ? done(false) : setTimeout(look, 10); look(); })"
        )
        assert found, f"never came: {condition}"

    def press(self, key: str) -> None:
        """Press a key."""
        code = KEYS.get(key, ord(key[0].upper()))
        given = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        text = {"text": key} if len(key) == 1 else {}
        self.send("Input.dispatchKeyEvent", type="keyDown", **given, **text)
        self.send("Input.dispatchKeyEvent", type="keyUp", **given)

    def point(self, selector: str) -> None:
        """Move the mouse over an element."""
        self._mouse("mouseMoved", selector)

    def click(self, selector: str) -> None:
        """Click an element."""
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self._mouse(kind, selector)

    def _mouse(self, kind: str, selector: str) -> None:
        x, y = self.value(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({ block: 'center', inline: 'center' });"
            "const b = e.getBoundingClientRect();"
            "return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        pressed = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
        self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, **pressed)

    def requests(self) -> list[str]:
        """Return the requests of the page, itself included."""
        return [
            event["params"]["request"]["url"]
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent"
        ]

    def errors(self) -> list[Any]:
        """Return the errors of the page's scripts."""
        return [
            event["params"]
            for event in self.events
            if event.get("method") == "Runtime.exceptionThrown"
        ]
