"""The page in a real browser: on a phone and a desk, light and dark, with scripts and without."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from urllib.parse import quote

import pytest
from browser import DESKTOP, PHONE, browser
from shop_window import EVIL, EVIL_TABLE, SHOP, served

from mirror_engine.publisher.testing import onelake

pytestmark = pytest.mark.slow

PAGES = {
    "overview": "/",
    "behind": f"/tables/{SHOP}/Sales.schema/Orders",
    "blocked": f"/tables/{SHOP}/Sales.schema/Stores",
    "halted": f"/tables/{SHOP}/Items",
    "hostile": f"/tables/{EVIL}/{quote(EVIL_TABLE)}",
    "absent": f"/tables/{SHOP}/Absent",
    "filtered": "/?state=stuck&sort=-lag",
    "explained": "/explain/ME011",
}
SIZES = {"phone": PHONE, "tablet": (800, 900), "wide": (1600, 1000)}


@pytest.fixture(scope="module")
def base(still):
    with served(still) as page:
        yield page.address


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    with browser(tmp_path_factory.mktemp("profile")) as running:
        yield running


@pytest.fixture(scope="module")
def artefacts(tmp_path_factory):
    """Where screenshots are kept; CI names a folder."""
    named = os.environ.get("MIRROR_TEST_ARTIFACTS")
    folder = Path(named) if named else tmp_path_factory.mktemp("screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no-scripts"])
@pytest.mark.parametrize("size", ["phone", pytest.param("tablet", marks=pytest.mark.nightly), "wide"])
@pytest.mark.parametrize("page", PAGES)
def test_every_page_fits_is_complete_and_is_not_complained_of(  # noqa: PLR0913, PLR0917 - fixtures, and all that varies
    opened, base, artefacts, page, size, scripts
):
    scheme = "dark" if scripts else "light"
    tab = opened.open(base + PAGES[page], SIZES[size], scripts=scripts, scheme=scheme)
    with contextlib.closing(tab):
        if scripts:
            tab.until(lambda: ">live<" in tab.html)
        else:
            assert ">not live<" in tab.html
        tab.screenshot(artefacts / f"{page}-{size}-{scheme}{'' if scripts else '-no-scripts'}.png")
        assert tab.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0  # nothing sticks out
        complaints = [each for each in tab.complaints if page != "absent" or "404" not in each]
        assert complaints == []
        assert {address for address in tab.asked if not address.startswith(f"{base}/")} == set()
        assert any(address.endswith("page.js") for address in tab.asked) == scripts


def test_the_page_moves_by_itself(opened, window):
    with (
        served(window) as page,
        contextlib.closing(opened.open(page.address + PAGES["behind"], PHONE, scripts=True)) as table,
        contextlib.closing(opened.open(f"{page.address}/", DESKTOP, scripts=True)) as overview,
    ):
        table.until(lambda: "is behind by 1 file" in table.html)
        window.apply()
        overview.until(lambda: 'state busy">loading<' not in overview.html)
        table.say("Page.bringToFront")  # in the background it gave its connection back
        table.until(lambda: "has caught up" in table.html)
        assert len(table.events("Page.loadEventFired")) == 1  # without being loaded again


def test_the_filter_keeps_its_focus_while_the_tables_follow_what_is_typed(opened, window):
    with served(window) as page, contextlib.closing(opened.open(f"{page.address}/", DESKTOP, scripts=True)) as tab:
        tab.until(lambda: ">live<" in tab.html)
        tab.press("Tab")
        assert tab.evaluate("document.activeElement.textContent") == "Skip to the content"
        for _ in range(2):
            tab.press("Tab")
        assert tab.evaluate("document.activeElement.id") == "q"
        tab.say("Input.insertText", text="sales ord")
        tab.until(lambda: "1 of 7 tables" in tab.html)
        assert tab.evaluate("[document.activeElement.id, document.activeElement.value, location.search]") == [
            "q",
            "sales ord",
            "?q=sales+ord",
        ]
        window.apply()
        tab.until(lambda: '"state busy">behind<' not in tab.html)
        assert tab.evaluate("document.activeElement.id") == "q"
        assert len(tab.events("Page.loadEventFired")) == 1
        tab.press("Tab")
        assert tab.evaluate("document.activeElement.id") == "state"
        assert tab.complaints == []


def test_a_heading_sorts_by_keyboard_and_keeps_its_focus(opened, base):
    with contextlib.closing(opened.open(f"{base}/", DESKTOP, scripts=True)) as tab:
        tab.until(lambda: ">live<" in tab.html)
        tab.evaluate("document.querySelector('th a[href*=rows]').focus()")
        first = "document.querySelector('tbody a').textContent"
        for direction, name in (("descending", "Sales.Orders"), ("ascending", "Fresh")):
            tab.press("Enter")
            tab.until(lambda direction=direction: f'aria-sort="{direction}"' in tab.html)
            assert tab.evaluate("document.activeElement.closest('th').ariaSort") == direction
            assert tab.evaluate(first) == name
        assert len(tab.events("Page.loadEventFired")) == 1


def test_what_is_to_be_copied_is_copied_and_what_was_opened_stays_open(opened):
    with onelake() as lake, contextlib.closing(opened.open(lake.connection.page, PHONE, scripts=True)) as tab:
        tab.until(lambda: ">live<" in tab.html)
        permitted = ["clipboardReadWrite", "clipboardSanitizedWrite"]
        opened.say("Browser.grantPermissions", permissions=permitted, origin=lake.connection.page.rstrip("/"))
        tab.say("Page.bringToFront")
        tab.evaluate("document.querySelector('details').open = true")
        tab.evaluate("document.querySelector('button.copy').click()")
        tab.until(lambda: ">copied<" in tab.html)
        copied = tab.evaluate("navigator.clipboard.readText()")
        assert copied == f'eval "$(mirror-engine emulator env {lake.store})"'
        tab.evaluate("show(main.innerHTML.replace('What to do next', 'What next'))")
        assert "What next" in tab.html
        assert tab.evaluate("document.querySelector('details').open")
        lake.landing_zone.table("Orders", keys=["id"]).initial_load({"id": 1})
        tab.until(lambda: 'state well">caught up<' in tab.html)
        assert "What to do next" not in tab.html
        assert tab.complaints == []


def test_a_stopped_server_shows_as_disconnected(opened, still):
    with served(still) as page:
        tab = opened.open(f"{page.address}/", DESKTOP, scripts=True)
        tab.until(lambda: ">live<" in tab.html)
    with contextlib.closing(tab):
        tab.until(lambda: ">disconnected<" in tab.html)
        assert "Sales<wbr>.Orders" in tab.html  # what was known stays
