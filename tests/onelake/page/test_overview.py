"""The overview of many tables, the way on from an empty one, explanations, and what a screen reader needs."""

from __future__ import annotations

import re
import subprocess
import threading
import time
from html import unescape
from html.parser import HTMLParser
from urllib.parse import urlsplit

import pytest
import requests
from shop_window import EVIL, SHOP, Window, shop
from starlette.testclient import TestClient
from wire import until

from mirror_engine.explain.pages import explanation
from mirror_engine.landing_zone.diagnostics import CATALOG
from mirror_engine.onelake.connection import Listening
from mirror_engine.onelake.options import ServerPlan
from mirror_engine.onelake.page import web
from mirror_engine.onelake.page.web import View, Web
from mirror_engine.onelake.serving import Server
from mirror_engine.publisher.testing import OneLakeInTest, onelake

pytestmark = pytest.mark.slow

TOKEN = "0123456789abcdef"  # noqa: S105 - a test's own
NAMES = re.compile(r'<th scope="row" class="file"><a [^>]*><bdi>([^<]*)</bdi>')


@pytest.mark.parametrize(
    ("query", "tables"),
    [
        ("q=SALES", ["Sales.schema/Orders", "Sales.schema/Stores"]),
        ("q=sales+ord", ["Sales.schema/Orders"]),
        ("q=ord+sales", ["Sales.schema/Orders"]),
        ("q=nothing", []),
        ("state=halted", ["Items"]),
        ("state=stuck", ["Sales.schema/Stores", "Items"]),
        ("state=stuck&sort=table", ["Items", "Sales.schema/Stores"]),
        ("state=stuck&sort=-table", ["Sales.schema/Stores", "Items"]),
        ("q=sales&sort=rows", ["Sales.schema/Stores", "Sales.schema/Orders"]),
        ("q=sales&sort=-rows", ["Sales.schema/Orders", "Sales.schema/Stores"]),
        ("q=s&state=empty&sort=lag", ["Returns"]),
        ("q=sales&sort=__class__", ["Sales.schema/Orders", "Sales.schema/Stores"]),
        ("q=sales&state=<b>", ["Sales.schema/Orders", "Sales.schema/Stores"]),
        ("q=<script>", []),
    ],
)
def test_tables_are_filtered_and_sorted(client, query, tables):
    page = client.get(f"/?{query}").text
    assert NAMES.findall(page) == tables
    assert f"{len(tables)} of 7 tables" in page
    assert "<script>" not in page
    assert "No table matches." in page


def test_states_are_counted_urgent_ones_first_and_lead_to_their_tables(client):
    page = client.get("/?q=x&sort=-rows&all=yes").text
    counts = re.findall(r'<a class="soft state (\w+)" href="([^"]+)"[^>]*>(\d+) ([\w ]+)</a>', page)
    assert [tone for tone, *_ in counts] == ["stuck", "stuck", "busy", "busy", "idle", "idle", "well"]
    for _, url, number, state in counts:
        assert unescape(url) == f"/?q=x&state={state.replace(' ', '_')}&sort=-rows"
        shown = client.get(f"/?state={state.replace(' ', '_')}").text
        assert len(NAMES.findall(shown)) == int(number) == 1


def test_a_view_knows_its_addresses():
    view = View.of({"q": " a b ", "state": "halted", "sort": "table", "more": "x"})
    assert (view.url(), view.url(q="", state="", sort="")) == ("/?q=a+b&state=halted&sort=table", "/")
    assert view.sorted_by("table") == "/?q=a+b&state=halted&sort=-table"
    assert view.sorted_by("rows") == "/?q=a+b&state=halted&sort=-rows"
    assert View(sort="-rows").sorted_by("rows") == "/?sort=rows"


def test_of_many_tables_the_first_are_shown_and_all_on_request(tmp_path, monkeypatch):
    monkeypatch.setattr(web, "MAX_TABLES", 3)
    window = Window(tmp_path)
    publisher = window.add(SHOP, "Sales", "Shop")
    for number in range(5):
        publisher.table(f"T{number}", keys=["id"])
    client = TestClient(Web(window.items).app)
    assert NAMES.findall(client.get("/").text) == ["T0", "T1", "T2"]
    assert "The first 3 of 5." in client.get("/").text
    assert len(NAMES.findall(client.get("/?all=yes").text)) == 5


def test_a_stuck_table_shows_its_file_and_leads_to_the_explanation(client):
    overview = client.get("/").text
    for code, finding in (
        ("ME037", f"{2:020}.parquet, row 1: row marker is 3"),
        ("ME019", f"<code>{2:020}.parquet</code> is missing"),
    ):
        assert re.search(rf'href="/explain/{code}"[^>]*>{code}</a> <bdi>{re.escape(finding)}', overview)
    for table, code in (("Items", "ME037"), ("Sales.schema/Stores", "ME019")):
        page = client.get(f"/tables/{SHOP}/{table}").text
        assert f'<a href="/explain/{code}">What {code} means</a>' in page
        assert f"{2:020}.parquet" in page
    assert "What ME" not in client.get(f"/tables/{SHOP}/Sales.schema/Orders").text


def test_every_diagnostic_is_explained(client):
    for code in CATALOG:
        page, answer = explanation(code), client.get(f"/explain/{code}")
        said = [page.title, page.definition.name, page.why, page.what_to_do, page.example.text, page.fixed.text]
        said += [rule.about(code) for rule in page.rules]
        shown = bare(unescape(re.sub(r"<[^>]+>", "", answer.text)))
        assert (answer.status_code, [text for text in said if bare(text) not in shown]) == (200, [])
        assert all(f'href="/explain/{other}"' in answer.text for other in page.definition.related)
    missing = client.get("/explain/ME999")
    assert (missing.status_code, "There is no such diagnostic" in missing.text) == (404, True)


def bare(text):
    """Text without white space and the marks of code."""
    return "".join(text.replace("`", "").split())


def preformatted(page):
    return [unescape(text) for text in re.findall(r"<pre[^>]*>(.*?)</pre>", page, re.DOTALL)]


def read(url, token=""):
    answer = requests.get(url, headers={"Authorization": f"Bearer {token}"} if token else {}, timeout=30)
    assert answer.ok
    return answer.text


def test_an_empty_emulator_says_what_to_do_next_and_that_works():
    with onelake() as lake:
        page = read(lake.connection.page)
        assert "What to do next" in page
        shell, variables, url, upload = preformatted(page)
        assert (
            url
            == "https://onelake.dfs.fabric.microsoft.com/Workspace/Mirror.MountedRelationalDatabase/Files/LandingZone"
        )
        clean = {"PATH": "/usr/bin:/bin"}
        pasted = subprocess.run(
            ["bash", "-ec", f"{variables}\n{upload}\nenv -0"], env=clean, capture_output=True, text=True, check=True
        )
        environment = dict(pair.split("=", 1) for pair in pasted.stdout.split("\0") if "=" in pair)
        assert {name: environment[name] for name in lake.connection.environment if name != "PATH"} == {
            name: text for name, text in lake.connection.environment.items() if name != "PATH"
        }
        assert shell == f'eval "$(mirror-engine emulator env {lake.store})"'
        lake.mirror.sync_until_caught_up()
        assert lake.mirror.table("Cities").rows() == [{"id": 1, "city": "Linz"}, {"id": 2, "city": "Wels"}]
        lake.mirror.assert_no_diagnostics()
        time.sleep(web.FRESH_SECONDS)
        assert "What to do next" not in read(lake.connection.page)


def test_an_empty_emulator_of_other_machines_names_the_address_they_came_by(tmp_path):
    listening = Listening("0.0.0.0", TOKEN, allow_remote=True, is_single_port=True)  # noqa: S104 - as in a container
    with OneLakeInTest(tmp_path, ServerPlan(tmp_path / "store", listening=listening)) as lake:
        port = urlsplit(lake.connection.http).port
        page = read(f"http://localhost:{port}/", TOKEN)
        url, upload = preformatted(page)
        assert url.startswith("https://onelake.dfs.fabric.microsoft.com/")
        assert "docs/how-to/containers.md" in page
        assert [each for each in (str(lake.store), "127.0.0.1", TOKEN) if each in page] == []
        environment = {"PATH": "/usr/bin:/bin", "MIRROR_ENGINE_TOKEN": TOKEN}
        subprocess.run(["bash", "-ec", upload], env=environment, check=True)
        lake.mirror.sync_until_caught_up()
        assert lake.mirror.table("Cities").rows() == [{"id": 1, "city": "Linz"}, {"id": 2, "city": "Wels"}]


def test_the_page_shows_no_token_and_its_commands_take_it_from_the_environment(tmp_path):
    plan = ServerPlan(tmp_path / "it's", has_engines=False, has_fault_api=True, listening=Listening(token=TOKEN))
    with Server(plan, on_error=pytest.fail) as server:
        page = read(server.connection.page, TOKEN)
        assert TOKEN not in page
        assert server.connection.environment["MIRROR_ENGINE_FAULT_API_TOKEN"] not in page
        upload = preformatted(page)[-1]
        clean = {"PATH": "/usr/bin:/bin", "AZURE_CLIENT_SECRET": TOKEN}
        subprocess.run(["bash", "-ec", upload], env=clean, capture_output=True, check=True)
        assert (tmp_path / "it's/Workspace/Mirror/Files/LandingZone/Cities/_metadata.json").exists()


def test_an_item_that_is_not_the_default_one_shows_its_landing_zone(tmp_path):
    window = Window(tmp_path)
    window.add(EVIL, "My Sales", "Shop")
    page = TestClient(Web(window.items).app).get("/").text
    assert (
        "https://onelake.dfs.fabric.microsoft.com/My%20Sales/Shop.MountedRelationalDatabase/Files/LandingZone" in page
    )
    assert "export " not in page


def test_no_page_waits_long_for_a_scan_and_later_ones_show_what_was_known(tmp_path):
    window = shop(tmp_path)
    go, views = threading.Event(), []

    def slow(item):
        views.append(item)
        go.wait(20)
        return window.mirror(item.id)

    items = window.items()
    for item in items:
        window.change(item.id, view=lambda item=item: slow(item))
    page = Web(window.items)
    client = TestClient(page.app)
    try:
        for path in ("/", f"/tables/{SHOP}/Items"):
            began = time.monotonic()
            answer = client.get(path)
            assert time.monotonic() - began < 2 * web.PATIENCE_SECONDS + 2  # and not 20
            assert (answer.status_code, "being listed" in answer.text) == (200, True)
        go.set()
        until(lambda: "being listed" not in client.get("/").text)
        assert NAMES.findall(client.get("/?state=halted").text) == ["Items"]
        go.clear()
        while len(views) == len(items):  # until the next scan begins
            assert NAMES.findall(client.get("/?state=halted").text) == ["Items"]
        assert NAMES.findall(client.get("/?state=halted").text) == ["Items"]  # while it runs
    finally:
        go.set()
        page._statuses.close()


class Outline(HTMLParser):
    """What assistive technology reads: headings, names, labels, columns."""

    def __init__(self, page):
        super().__init__()
        self.headings, self.ids, self.named_by, self.labels, self.fields = [], [], [], [], []
        self.unscoped, self.unnamed, self.open = [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        if re.fullmatch(r"h\d", tag):
            self.headings.append(int(tag[1]))
        self.ids += [attributes["id"]] if "id" in attributes else []
        self.named_by += [attributes["aria-labelledby"]] if "aria-labelledby" in attributes else []
        self.labels += [attributes["for"]] if tag == "label" else []
        self.fields += [attributes["id"]] if tag in {"input", "select"} and attributes.get("type") != "hidden" else []
        self.unscoped += [attributes] if tag == "th" and "scope" not in attributes else []
        if tag in {"section", "nav", "pre"} and not attributes.keys() & {"aria-label", "aria-labelledby", "tabindex"}:
            self.unnamed.append((tag, attributes))


@pytest.mark.parametrize(
    "path", ["/", f"/tables/{SHOP}/Items", f"/tables/{SHOP}/Returns", "/explain/ME037", "/tables/x/y"]
)
def test_every_page_has_an_outline_names_and_labels(client, path):
    page = client.get(path).text
    outline = Outline(page)
    assert outline.headings[0] == 1
    assert outline.headings.count(1) == 1
    assert all(lower - higher <= 1 for higher, lower in zip(outline.headings, outline.headings[1:], strict=False))
    assert len(outline.ids) == len(set(outline.ids))
    assert {*outline.named_by, *outline.labels, *outline.fields} <= set(outline.ids)
    assert set(outline.labels) == set(outline.fields)
    assert (outline.unscoped, outline.unnamed) == ([], [])
    assert '<html lang="en">' in page
    assert 'class="skip" href="#main"' in page
    for arrow in ("→", "▲", "▼"):
        assert page.count(arrow) == page.count(f'aria-hidden="true">{arrow}') + page.count(
            f'aria-hidden="true"> {arrow}'
        )
