"""A real browser without a window, driven over two pipes in its own DevTools protocol."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from contextlib import contextmanager

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
PATIENCE_SECONDS = 60.0
PHONE, DESKTOP = (390, 844), (1280, 800)
# Its sandbox needs rights that containers do not give; all it opens is our own page.
OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run")


def found():
    """The browser's program; where there is none, the test is skipped, or fails if MIRROR_TEST_BROWSER is set."""
    name = next(filter(None, map(shutil.which, NAMES)), None)
    if name:
        return name
    why = f"no browser here: none of {', '.join(NAMES)}"
    if os.environ.get("MIRROR_TEST_BROWSER"):
        pytest.fail(why)
    pytest.skip(why)


@contextmanager
def browser(profile):
    """One that runs until left."""
    to_browser, ours = os.pipe()
    theirs, from_browser = os.pipe()
    command = [found(), *OPTIONS, f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"]
    words = ["bash", "-c", f'exec "$@" 3<&{to_browser} 4>&{from_browser}', "bash", *command]
    fds = (to_browser, from_browser)
    with subprocess.Popen(words, pass_fds=fds, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        for fd in fds:
            os.close(fd)
        with os.fdopen(ours, "wb", buffering=0) as sending, os.fdopen(theirs, "rb", buffering=0) as receiving:
            made = Browser(sending, receiving)
            try:
                yield made
            finally:
                made.say("Browser.close")
                process.wait(PATIENCE_SECONDS)


class Browser:
    """Speaks to one browser."""

    def __init__(self, sending, receiving):
        self._sending = sending
        self._receiving = receiving
        self._rest = b""
        self._last = 0
        self.events = []

    def say(self, method, session="", **parameters):
        """One command; its answer."""
        self._last += 1
        reported = {"id": self._last, "method": method, "params": parameters}
        self._sending.write(json.dumps(reported | ({"sessionId": session} if session else {})).encode() + b"\0")
        while (message := self._next()).get("id") != self._last:
            self.events.append(message)
        assert "error" not in message, (method, message)
        return message["result"]

    def _next(self):
        while b"\0" not in self._rest:
            piece = self._receiving.read(1 << 20)
            assert piece, "the browser has ended"
            self._rest += piece
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def open(self, url, size, *, scripts, scheme="light"):
        """A page, loaded."""
        target = self.say("Target.createTarget", url="about:blank")["targetId"]
        session = self.say("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab = Tab(self, target, session)
        for domain in ("Page", "Log", "Network", "Runtime"):
            tab.say(f"{domain}.enable")
        tab.say(
            "Emulation.setDeviceMetricsOverride",
            width=size[0],
            height=size[1],
            deviceScaleFactor=1,
            mobile=size == PHONE,
        )
        tab.say("Emulation.setScriptExecutionDisabled", value=not scripts)
        tab.say("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        tab.say("Page.navigate", url=url)
        tab.until(lambda: tab.events("Page.loadEventFired"))
        return tab


class Tab:
    """One page in it."""

    def __init__(self, owner, target, session):
        self._owner = owner
        self._target = target
        self._session = session

    def say(self, method, **parameters):
        return self._owner.say(method, self._session, **parameters)

    def evaluate(self, expression):
        """The value of a script's expression, awaited."""
        found = self.say("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def press(self, key):
        """One key: Tab, Enter."""
        codes = {"Tab": 9, "Enter": 13}
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.say("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=codes[key], **text)

    def events(self, method):
        """What it reported so far."""
        reported = self._owner.events
        return [
            each["params"] for each in reported if each.get("sessionId") == self._session and each["method"] == method
        ]

    @property
    def html(self):
        """The document as it is now."""
        root = self.say("DOM.getDocument", depth=0)["root"]["nodeId"]
        return self.say("DOM.getOuterHTML", nodeId=root)["outerHTML"]

    @property
    def width(self):
        """Of all there is to scroll through."""
        return self.say("Page.getLayoutMetrics")["cssContentSize"]["width"]

    @property
    def complaints(self):
        """What the browser would show in red: forbidden scripts and styles, errors, things that were not found."""
        logged = [each["entry"] for each in self.events("Log.entryAdded")]
        return [each["text"] for each in logged if each["level"] == "error"] + [
            str(each["exceptionDetails"]) for each in self.events("Runtime.exceptionThrown")
        ]

    @property
    def asked(self):
        """Every address it asked for."""
        return {each["request"]["url"] for each in self.events("Network.requestWillBeSent")}

    def until(self, holds):
        ends = time.monotonic() + PATIENCE_SECONDS
        while not holds():
            assert time.monotonic() < ends, self.html[-3000:]
            time.sleep(0.05)
            self.say("Page.getLayoutMetrics")  # lets events come in

    def screenshot(self, path):
        """All of the page, as PNG."""
        size = self.say("Page.getLayoutMetrics")["cssContentSize"]
        shown = self.say("Page.captureScreenshot", captureBeyondViewport=True, clip={**size, "scale": 1})
        path.write_bytes(base64.b64decode(shown["data"]))

    def close(self):
        self._owner.say("Target.closeTarget", targetId=self._target)
