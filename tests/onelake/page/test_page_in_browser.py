"""The page in a real browser: on a phone and a desk, light and dark, filtered, sorted, with 5,000 tables."""

from __future__ import annotations

import contextlib
import os
import re
import time
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote

import pytest
from browser import DESKTOP, PHONE, browser, tab, until
from msgspec import structs
from page_tables import EVIL, EVIL_TABLE, SHOP, Window, served

from mirror_engine.explain.pages import explanation
from mirror_engine.landing_zone.names import TableName
from mirror_engine.monitoring.state_text import help_for

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
SIZES = {"phone": (PHONE, "dark"), "tablet": ((800, 900), "light"), "wide": ((1600, 1000), "light")}


@pytest.fixture(scope="module")
def base(still):
    with served(still) as page:
        yield page.address


@pytest.fixture(scope="module")
def opened():
    with browser() as running:
        yield running


@pytest.fixture
def visit(opened):
    """Open an address and wait for its data; closes all tabs."""
    with contextlib.ExitStack() as tabs:

        def visit(url, size=DESKTOP, scheme="light"):
            page = tabs.enter_context(tab(opened, url, size, scheme=scheme))
            until(page, lambda: live(page) == "live")
            return page

        yield visit


@pytest.fixture(scope="module")
def artefacts(tmp_path_factory):
    """Where screenshots are kept; CI names a folder."""
    named = os.environ.get("MIRROR_TEST_ARTIFACTS")
    folder = Path(named) if named else tmp_path_factory.mktemp("screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def live(page):
    return page.evaluate("document.getElementById('live').textContent")


def shown(page):
    """What a person reads."""
    return " ".join(page.evaluate("document.querySelector('main').innerText").split())


def named(page):
    """The tables of an overview, in order."""
    return page.evaluate("[...document.querySelectorAll('tbody th a')].map(each => each.textContent)")


@pytest.mark.parametrize(
    "size", ["phone", *(pytest.param(size, marks=pytest.mark.nightly) for size in ("tablet", "wide"))]
)
@pytest.mark.parametrize("page", PAGES)
def test_every_page_fits_is_complete_and_is_not_complained_of(visit, base, artefacts, page, size):
    window, scheme = SIZES[size]
    shown_page = visit(base + PAGES[page], window, scheme)
    shown_page.screenshot(path=artefacts / f"{page}-{size}.png", full_page=True)
    assert shown_page.evaluate("document.documentElement.scrollWidth") <= window[0]  # nothing sticks out
    assert [each for each in shown_page.complaints if page != "absent" or "404" not in each] == []
    assert {address for address in shown_page.asked if not address.startswith(f"{base}/")} == set()
    text = shown_page.content()
    outline = Outline(text)
    assert outline.headings[0] == 1
    assert outline.headings.count(1) == 1
    assert all(lower - higher <= 1 for higher, lower in zip(outline.headings, outline.headings[1:], strict=False))
    assert len(outline.ids) == len(set(outline.ids))
    assert {*outline.named_by, *outline.labels, *outline.fields} <= set(outline.ids)
    assert set(outline.labels) == set(outline.fields)
    assert (outline.unscoped, outline.unnamed) == ([], [])
    assert len(re.findall("[→▲▼]", text)) == len(re.findall('aria-hidden="true"> ?[→▲▼]', text))


class Outline(HTMLParser):
    """What assistive technology reads: headings, names, labels, columns."""

    def __init__(self, page):
        super().__init__()
        self.headings, self.ids, self.named_by, self.labels, self.fields = [], [], [], [], []
        self.unscoped, self.unnamed = [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        if re.fullmatch(r"h\d", tag):
            self.headings.append(int(tag[1]))
        self.ids += [attributes["id"]] if "id" in attributes else []
        self.named_by += [attributes["aria-labelledby"]] if "aria-labelledby" in attributes else []
        self.labels += [attributes["for"]] if tag == "label" else []
        self.fields += [attributes["id"]] if tag in {"input", "select"} else []
        self.unscoped += [attributes] if tag == "th" and "scope" not in attributes else []
        if tag in {"section", "nav", "pre"} and not attributes.keys() & {"aria-label", "aria-labelledby", "tabindex"}:
            self.unnamed.append((tag, attributes))


def test_without_javascript_the_page_names_the_command(opened, base):
    with tab(opened, f"{base}/", PHONE, scripts=False) as page:
        assert "mirror-engine status STORE/WORKSPACE/ITEM" in page.content()
        assert not any(address.endswith("page.js") for address in page.asked)


def test_overview_says_which_tables_are_stuck_since_when_why_and_what_to_do(visit, base, still):
    page = visit(f"{base}/")
    text, (status, _) = shown(page), (item.view()._status() for item in still.shown)
    assert named(page)[:2] == ["Sales.Stores", "Items"]  # urgent ones first
    for table in status.tables:
        assert f"{table.name.normalized} {table.state.code.replace('_', ' ')}" in text
        if table.urgency == "stuck":
            help_text = help_for(table.state, engine_running=False)
            assert all(each.replace("`", "") in text for each in (table.message, help_text))
    assert re.search(r"Items halted 1 file since \d{4}-\d\d-\d\d \d\d:\d\d", text)


def test_table_page_says_what_status_says(visit, base, still):
    for table in still.shown[0].view()._status(100).tables:
        text = shown(visit(f"{base}/tables/{SHOP}/{table.name.folder}"))
        expected = [table.message, help_for(table.state, engine_running=False), table.delta_folder]
        expected += [f"{each.path} {each.state}" for each in table.files] + [
            each.reason for each in table.files if each.reason
        ]
        expected += [each.message for each, _ in table.diagnostics]
        expected += [f"Rows processed {table.rows_processed:,}"]
        assert [each for each in expected if " ".join(each.replace("`", "").split()) not in text] == []


def test_diagnostic_page_says_what_explain_says(visit, base):
    page, text = explanation("ME037"), shown(visit(f"{base}/explain/ME037/"))
    blocks = [block.text for section in page.example for block in section.blocks]
    expected = [page.title, page.why, page.what_to_do, *(section.title for section in page.example), *blocks]
    assert len(blocks) > 4
    assert [each for each in expected if "".join(each.replace("`", "").split()) not in text.replace(" ", "")] == []


def test_publisher_content_is_text(visit, base):
    for path in ("/", PAGES["hostile"]):
        page = visit(base + path)
        assert "onerror" in shown(page)  # as a name
        assert (
            page.evaluate("document.querySelectorAll('main img, main script, main u, main i:not(.null)').length") == 0
        )
        assert page.evaluate("document.title") != "owned"
    assert "<script>" in shown(page)
    assert page.evaluate("document.querySelectorAll('i.null').length") == 1
    assert "… (500 characters)" in shown(page)


def test_the_page_moves_by_itself_and_keeps_its_focus(visit, window):
    with served(window) as page:
        table = visit(page.address + PAGES["behind"], PHONE)
        assert "is behind by 1 file" in shown(table)
        table.evaluate("isKept = true; document.querySelector('nav a').focus()")
        window.apply()
        until(table, lambda: "has caught up" in shown(table))
        assert table.evaluate("document.activeElement.textContent") == "All tables"
        assert table.evaluate("isKept")  # without being loaded again


def test_the_filter_keeps_its_focus_and_the_address_has_it(visit, base):
    page = visit(f"{base}/")
    for _ in range(3):
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "q"
    page.keyboard.insert_text("sales ord")
    until(page, lambda: "1 of 7 tables" in shown(page))
    found = page.evaluate("[document.activeElement.id, document.activeElement.value, location.search]")
    assert found == ["q", "sales ord", "?q=sales+ord"]
    again = visit(page.evaluate("location.href"))
    assert (named(again), again.evaluate("document.getElementById('q').value")) == (["Sales.Orders"], "sales ord")


@pytest.mark.parametrize(
    ("query", "tables"),
    [
        ("q=SALES", ["Sales.Stores", "Sales.Orders"]),
        ("q=ord+sales.schema", ["Sales.Orders"]),
        ("q=nothing", []),
        ("state=halted", ["Items"]),
        ("state=stuck&sort=table", ["Items", "Sales.Stores"]),
        ("state=stuck&sort=-table", ["Sales.Stores", "Items"]),
        ("q=sales&sort=rows", ["Sales.Stores", "Sales.Orders"]),
        ("q=sales&sort=-rows", ["Sales.Orders", "Sales.Stores"]),
        ("q=sales&sort=__proto__", ["Sales.Stores", "Sales.Orders"]),
        ("q=<script>", []),
    ],
)
def test_tables_are_filtered_and_sorted(visit, base, query, tables):
    page = visit(f"{base}/?{query}")
    assert named(page) == tables
    assert f"{len(tables)} of 7 tables" in shown(page)
    assert "No table matches." in shown(page)  # of the other mirrored database, at least


def test_a_heading_sorts_by_keyboard_and_a_state_filters(visit, base):
    page = visit(f"{base}/")
    page.evaluate("document.querySelector('[data-sort=\"-rows\"]').focus()")
    for direction, first in (("descending", "Sales.Orders"), ("ascending", "Fresh")):
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.closest('th').ariaSort") == direction
        assert named(page)[0] == first
    counts = page.evaluate("[...document.querySelectorAll('.counts button')].map(each => each.textContent)")
    assert counts[:3] == ["2 needing attention", "1 blocked", "1 halted"]
    page.evaluate("document.querySelector('[data-state=halted]').click()")
    assert named(page) == ["Items"]
    page.evaluate("document.querySelector('[data-state=halted]').click()")
    assert len(named(page)) == 7


def test_name_is_broken_at_its_parts(visit, base):
    page = visit(f"{base}/")
    for parts in (
        "Sales|.Orders",
        "Customer|Order|Lines_|2026-|Archive",
        "year=2026/|00000000000000000001|.parquet",
        "ABC",
    ):
        name = parts.replace("|", "")
        assert page.evaluate(f"breakable('{name}').map(each => each.tagName ? '|' : each).join('')") == parts


def test_5000_tables_are_shown_in_part_and_found_by_name(visit, tmp_path):
    window = Window(tmp_path)
    publisher = window.add(SHOP, "Sales", "Shop")
    publisher.table("One", keys=["id"]).insert({"id": 1})
    window.apply()
    status = window.mirror(SHOP)._status()
    many = tuple(replace(status.tables[0], name=TableName("", f"T{at:04d}")) for at in range(5_000))

    class View:
        def _status(self, _):
            return structs.replace(status, tables=many)

    window.change(SHOP, view=View)
    with served(window) as served_page:
        page = visit(f"{served_page.address}/")
        assert len(named(page)) == 250
        assert "The first 250 of 5,000." in shown(page)
        started = time.monotonic()
        page.evaluate("turn({ q: 't4321' })")
        assert named(page) == ["T4321"]
        assert time.monotonic() - started < 5  # it takes a few hundredths
        page.evaluate("turn({ q: 't1' }); document.querySelector('[data-all]').click()")
        assert len(named(page)) == 1_000


def test_empty_landing_zone_names_the_command(visit, tmp_path):
    window = Window(tmp_path)
    window.add(SHOP, "Sales", "Shop")
    with served(window) as page:
        text = shown(visit(f"{page.address}/"))
    assert "mirror-engine emulator exec STORE -- COMMAND" in text
    assert "https://onelake.dfs.fabric.microsoft.com/Sales/Shop.MountedRelationalDatabase/Files/LandingZone" in text


def test_a_stopped_server_shows_as_disconnected(opened, still):
    with contextlib.ExitStack() as tabs:
        with served(still) as page:
            table = tabs.enter_context(tab(opened, f"{page.address}/", DESKTOP))
            until(table, lambda: live(table) == "live")
        until(table, lambda: live(table) == "disconnected")
        assert "Sales.Orders" in shown(table)  # what was known stays
