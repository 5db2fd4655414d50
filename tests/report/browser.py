"""Headless Chromium over its DevTools pipe: messages are JSON, each ended by a zero byte. Needs no package."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe",
)  # fmt: skip


START = """
import fcntl, os, sys
for place, end in enumerate([fcntl.fcntl(int(fd), fcntl.F_DUPFD, 10) for fd in sys.argv[1:3]], 3):
    os.dup2(end, place)
os.execv(sys.argv[3], sys.argv[3:])
"""


def find_chromium() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)


class Page:
    """One open page. `problems` are errors of the console, exceptions, and requests that are not for the page."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self.to_browser, self.from_browser = to_browser, from_browser
        self.ids, self.rest, self.problems = count(1), b"", []
        self.session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command and return its result; events that arrive before are noted."""
        number = next(self.ids)
        message = {"id": number, "method": method, "params": params}
        message |= {"sessionId": self.session} if self.session else {}
        os.write(self.to_browser, json.dumps(message).encode() + b"\0")
        while (answer := self._read()).get("id") != number:
            self._note(answer)
        assert "error" not in answer, answer
        return dict(answer["result"])

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self.rest:
            chunk = os.read(self.from_browser, 1 << 20)
            assert chunk, "Chromium ended"
            self.rest += chunk
        message, _, self.rest = self.rest.partition(b"\0")
        return dict(json.loads(message))

    def _note(self, event: dict[str, Any]) -> None:
        method, params = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.problems.append(params["exceptionDetails"])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.problems.append(params["args"])
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.problems.append(params["entry"])
        elif method == "Network.requestWillBeSent" and not params["request"]["url"].startswith(
            ("file:", "data:", "about:")
        ):
            self.problems.append(params["request"]["url"])
        elif method == "Page.loadEventFired":
            self.loaded = True

    def open(self, path: Path, width: int, height: int = 900, *, dark: bool = False) -> None:
        """Open a file in a window of this width, and wait until it is loaded."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.loaded = False
        self.call("Page.navigate", url=path.resolve().as_uri())
        while not self.loaded:
            self._note(self._read())

    def eval(self, code: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def move(self, x: float, y: float) -> None:
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, selector: str, index: int = 0) -> None:
        """Click with the mouse in the middle of an element."""
        x, y = self.eval(
            f"(e => {{ e.scrollIntoView({{block: 'center'}}); const b = e.getBoundingClientRect();"
            f" return [b.x + b.width / 2, b.y + b.height / 2]; }})(document.querySelectorAll({selector!r})[{index}])"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def type(self, selector: str, text: str) -> None:
        """Replace the text of an input by typing."""
        self.eval(f"(e => {{ e.focus(); e.select(); }})(document.querySelector({selector!r}))")
        if text:
            self.call("Input.insertText", text=text)
        else:
            self.eval("document.execCommand('delete')")

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        path.write_bytes(b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=whole)["data"]))


@contextmanager
def open_browser(chromium: str, profile: Path) -> Iterator[Page]:
    """A page of a new browser with an empty profile. The pipe's ends are the descriptors 3 and 4 of the browser."""
    read_commands, to_browser = os.pipe()
    from_browser, write_answers = os.pipe()
    ends = (str(read_commands), str(write_answers))
    process = subprocess.Popen(
        [sys.executable, "-c", START, *ends, chromium, *FLAGS, f"--user-data-dir={profile}"],
        pass_fds=(read_commands, write_answers),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(read_commands)
    os.close(write_answers)
    try:
        yield Page(to_browser, from_browser)
    finally:
        os.close(to_browser)  # Chromium exits when the pipe is closed
        os.close(from_browser)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
