"""A real browser without a window."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import contextmanager
from importlib.util import find_spec

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
PATIENCE_SECONDS = 60.0
PHONE, DESKTOP = (390, 844), (1280, 800)
# Its sandbox needs rights that containers do not give; all it opens is our own page.
OPTIONS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run")


def found():
    """The browser's program; without it or Playwright, the test is skipped, or fails if MIRROR_TEST_BROWSER is set."""
    name = next(filter(None, map(shutil.which, NAMES)), None)
    if name and find_spec("playwright"):
        return name
    why = "Playwright is missing: `make test` has it" if name else f"no browser here: none of {', '.join(NAMES)}"
    if os.environ.get("MIRROR_TEST_BROWSER"):
        pytest.fail(why)
    pytest.skip(why)


@contextmanager
def browser():
    """One that runs until left."""
    program = found()
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - the extra `test` has no browser's driver

    with sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=program, args=OPTIONS)
        try:
            yield running
        finally:
            running.close()


@contextmanager
def tab(running, url, size, *, scripts=True, scheme="light"):
    """A loaded page; `complaints` are what the browser would show in red, `asked` the addresses that it asked for."""
    screen = {"viewport": {"width": size[0], "height": size[1]}, "is_mobile": size == PHONE, "color_scheme": scheme}
    with running.new_context(**screen, java_script_enabled=scripts) as context:
        page = context.new_page()
        page.complaints, page.asked = [], set()
        page.on("console", lambda message: page.complaints.extend([message.text] * (message.type == "error")))
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.on("request", lambda request: page.asked.add(request.url))
        page.goto(url)
        yield page


def until(page, holds):
    ends = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < ends, page.content()[-3000:]
        page.wait_for_timeout(50)
