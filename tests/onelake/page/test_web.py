"""The page over HTTP: what it says is what status says; its overview, filters, and what a screen reader needs."""

from __future__ import annotations

import re
import subprocess
import threading
import time
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote, urlsplit

import pyarrow as pa
import pytest
import requests
from shop_window import EVIL, EVIL_TABLE, EVIL_TEXT, SHOP, Window, shop
from shop_window import ORDERS as ORDERS_TYPES
from starlette.requests import Request
from starlette.testclient import TestClient
from wire import until

from mirror_engine.explain.pages import explanation
from mirror_engine.landing_zone.diagnostics import CATALOG, CONTROLS
from mirror_engine.landing_zone.layout import ZONE
from mirror_engine.monitoring.words import URGENCY, help_for
from mirror_engine.onelake.connection import Listening
from mirror_engine.onelake.engine_pool import DatabaseStatus
from mirror_engine.onelake.options import ServerPlan
from mirror_engine.onelake.page import web
from mirror_engine.onelake.page.web import (
    ASSETS,
    HEADERS,
    MAX_CHARACTERS,
    MAX_COLUMNS,
    MAX_FILES,
    View,
    Web,
    last_diagnostic,
    row_texts,
    table_url,
)
from mirror_engine.onelake.serving import Server
from mirror_engine.publisher.landing_zone_writer import LandingZoneWriter
from mirror_engine.publisher.testing import OneLakeInTest, onelake

pytestmark = pytest.mark.slow

ORDERS = f"/tables/{SHOP}/Sales.schema/Orders"
EVIL_PAGE = f"/tables/{EVIL}/{quote(EVIL_TABLE)}"


def unbroken(html):
    """HTML without the places at which a browser may break a name."""
    return html.replace("<wbr>", "")


def words_of(html):
    """What a person reads."""
    without_code = re.sub(r"</?code>", "", unbroken(html).partition("<main ")[2])
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", without_code)).split())


def missing(reported, html):
    """What of it is not shown, where code is without its backticks."""
    return [each for each in reported if " ".join(each.replace("`", "").split()) not in words_of(html)]


def test_the_page_lists_every_table_in_the_words_of_status(still, client):
    page = client.get("/").text
    states = set()
    for item in still.shown:
        for table in item.view().status().tables:
            states.add(table.state.code)
            assert f'href="{table_url(item, table)}"' in page
            last = last_diagnostic(table)
            reported = [table.name.normalized, table.state.code.replace("_", " "), table.watermark]
            assert missing([*reported, *([last.code, last.message] if last else ())], page) == []
    assert states == {"unconfigured", "empty", "loading", "behind", "blocked", "halted", "caught_up"}  # all there are


def test_each_table_has_a_page_with_its_state_advice_files_and_numbers(still, client):
    for item in still.shown:
        status = item.view().status()
        for table in status.tables:
            help_text = help_for(table.state, engine_running=status.engine_running)
            reported = [table.message, help_text, table.delta_folder]
            reported += [f"{each.path} {each.state}" for each in table.files]
            reported += [each.reason for each in table.files] + [each.full_message for each, _ in table.diagnostics]
            reported += [
                f"Rows processed {table.rows_processed:,}",
                f"Bytes of values processed {table.bytes_processed:,}",
            ]
            answer = client.get(table_url(item, table))
            assert f'class="sentence {table.urgency}"' in answer.text
            assert (answer.status_code, missing(reported, answer.text)) == (200, [])
            stops = last_diagnostic(table) if table.urgency == "stuck" else None
            assert not stops or f'<a href="/explain/{stops.code}">What {stops.code} means</a>' in answer.text


def test_files_history_and_first_rows_are_shown(client):
    read = words_of(client.get(ORDERS).text)
    assert "00000000000000000001.parquet applied at version 1 40" in read
    assert "00000000000000000003.parquet pending - ready for the next cycle" in read
    assert "MERGE" in read.partition("History")[2]
    rows = read.partition("First rows")[2]
    assert "Customer 20" in rows
    assert len(re.findall(r"Customer \d+", rows)) == web.MAX_ROWS - 1  # one has no customer any more
    assert "1 NULL NULL 99.5 3 Customer 3 2026-11-02T08:15:29+00:00 37.5" in rows
    rejected = words_of(client.get(f"/tables/{SHOP}/Items").text)
    assert re.search(r"00000000000000000002.parquet rejected - .*row marker", rejected)


@pytest.mark.parametrize("small", [True, False])
def test_first_rows_are_those_with_the_lowest_keys_of_a_small_table(window, visitor, monkeypatch, small):
    monkeypatch.setattr(web, "MAX_SORTED", web.MAX_SORTED if small else 30)
    table = LandingZoneWriter(window.folder / SHOP).table("Sales.Orders", keys=["Id"], types=ORDERS_TYPES)
    table.insert(*({"Id": at} for at in range(-5, 0)), name=f"{4:020d}.parquet")
    window.apply()
    rows = words_of(visitor.get(ORDERS).text).partition("First rows")[2]
    keys = [int(found) for found in re.findall(r"(-?\d+) (?:NULL|Customer)", rows)]
    assert len(keys) == web.MAX_ROWS
    assert ("those with the lowest keys" in rows, "in no order" in rows) == (small, not small)
    if small:
        assert keys[:6] == [-5, -4, -3, -2, -1, 1]
        assert keys == sorted(keys)


def test_few_rows_are_read_of_a_table_without_keys(tmp_path, monkeypatch):
    window = Window(tmp_path)
    window.add(SHOP, "Shop", "Mirror").table("Log").insert(*({"text": str(at)} for at in range(50)))
    window.apply()
    reads, rows = [], window.writers[SHOP].rows
    monkeypatch.setattr(
        window.writers[SHOP], "rows", lambda *args, **options: reads.append(options) or rows(*args, **options)
    )
    page = TestClient(Web(window.items).app).get(f"/tables/{SHOP}/Log").text
    assert ("in no order" in page, [read["limit"] for read in reads]) == (True, [web.MAX_ROWS])


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("Sales.Orders", "Sales<wbr>.Orders"),
        ("CustomerOrderLines_2026-Archive", "Customer<wbr>Order<wbr>Lines_<wbr>2026-<wbr>Archive"),
        ("year=2026/00000000000000000001.parquet", "year=2026/<wbr>00000000000000000001<wbr>.parquet"),
        ("ABC", "ABC"),
        ("<b>.x", "&lt;b&gt;<wbr>.x"),
        ("", ""),
    ],
)
def test_name_is_broken_at_its_parts(name, shown):
    assert web.breakable(name) == shown


@pytest.mark.parametrize("path", ["/nope", "/nope/", "/Sales"])
def test_browser_astray_gets_a_page(window, path):
    page = Web(window.items)
    astray = Request(
        {"type": "http", "method": "GET", "path": path, "headers": [(b"accept", b"text/html")], "query_string": b""}
    )
    assert page.answers(astray)
    answer = TestClient(page.app).get(path)
    assert (answer.status_code, "There is no such page All tables" in words_of(answer.text)) == (404, True)


@pytest.mark.parametrize(
    ("path", "accept", "query"),
    [("/nope", "*/*", b""), ("/ws/item/file", "text/html", b""), ("/ws", "text/html", b"comp=list")],
)
def test_storage_requests_are_not_the_pages(window, path, accept, query):
    headers = [(b"accept", accept.encode())]
    request = Request({"type": "http", "method": "GET", "path": path, "headers": headers, "query_string": query})
    assert not Web(window.items).answers(request)


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (253_402_300_800_000_000, pa.timestamp("us"), "10000-01-01 00:00:00.000000"),  # beyond Python's years
        (None, pa.timestamp("us"), None),
        (b"\0\1", pa.binary(), "AAE="),
        (float("nan"), pa.float64(), "NaN"),
        ("a\tb", pa.string(), r"a\tb"),
        ("y" * MAX_CHARACTERS, pa.string(), "y" * MAX_CHARACTERS),
        ("y" * MAX_CHARACTERS + "z", pa.string(), "y" * MAX_CHARACTERS + "…"),
    ],
)
def test_a_value_is_one_line_of_bounded_length(value, kind, text):
    assert row_texts(pa.table({"c": pa.array([value], kind)})) == [(text,)]


def test_null_differs_from_text(client):
    page = client.get(EVIL_PAGE).text
    assert page.count('<i class="null">NULL</i>') == 1
    assert "<bdi>NULL</bdi>" in page


def test_many_columns_and_files_are_counted_instead_of_shown(tmp_path):
    window = Window(tmp_path)
    table = window.add(SHOP, "Sales", "Shop").table("Many", keys=["c0"])
    for at in range(MAX_FILES + 2):
        table.insert({f"c{column}": at for column in range(MAX_COLUMNS + 3)})
    window.apply()
    table.skip_numbers()
    for at in range(MAX_FILES + 5):
        table.insert({"c0": at})
    page = unbroken(TestClient(Web(window.items).app).get(f"/tables/{SHOP}/Many").text)
    assert page.count('<span class="state well">applied') == MAX_FILES
    assert "… and 2 applied files more." in page
    assert "… and 5 pending files more." in page
    assert "… and 3 columns more." in page
    assert f"<bdi>c{MAX_COLUMNS - 1}</bdi>" in page
    assert f"<bdi>c{MAX_COLUMNS}</bdi>" not in page
    assert f"<bdi>{MAX_FILES + 2:020d}.parquet</bdi>" in page
    assert f'class="file"><bdi>{1:020d}.parquet</bdi>' not in page


@pytest.mark.parametrize("path", ["/", EVIL_PAGE])
def test_publisher_content_is_escaped(client, path):
    page = client.get(path).text
    for attack in (EVIL_TABLE, EVIL_TEXT, "<b>", "<i>Item", "<u>", "</td> "):
        assert attack not in page.replace('<b class="severity', "")
    assert "&lt;i&gt;Item&lt;/i&gt;" in page
    assert "onerror" in words_of(page)  # as a name
    assert page.count("<script") == 1  # its own, from its own address


def test_pages_have_no_inline_scripts_or_styles(client):
    for path in ("/", ORDERS):
        page = client.get(path).text
        assert "style=" not in page
        assert re.findall(r"<script[^>]*>[^<]", page) == []
        assert set(re.findall(r'(?:src|href)="(//|\w+:)', page)) == set()  # nothing from elsewhere


@pytest.mark.parametrize("path", ["/", ORDERS, "/absent", "/metrics", "/healthz", "/assets/page.js"])
def test_every_answer_forbids_foreign_scripts_frames_and_caches(client, path):
    expected = [(name.lower(), text) for name, text in HEADERS.items()]
    for _ in range(2):  # one object may answer all requests
        found = client.get(path).headers.multi_items()
        assert [each for each in found if each[0] in dict(expected)] == expected


def test_the_page_is_for_reading(client):
    assert {client.request(method, "/").status_code for method in ("POST", "PUT", "DELETE", "PATCH")} == {405}
    assert client.head("/").status_code == 200


@pytest.mark.parametrize("path", ["/tables/x/Orders", f"/tables/{SHOP}/Absent", f"/tables/{SHOP}/..%2f..%2fetc/passwd"])
def test_what_is_not_there_is_said_to_be_so(client, path):
    answer = client.get(path)
    assert answer.status_code == 404
    assert "There is no such table" in answer.text


def test_all_that_the_page_asks_for_is_served(client):
    asked = set(re.findall(r'(?:src|href)="/assets/([^"]+)"', client.get("/").text))
    assert asked == set(ASSETS)
    for name, kind in ASSETS.items():
        answer = client.get(f"/assets/{name}")
        assert answer.headers["content-type"].partition(";")[0] == kind
        assert answer.content


def test_what_cannot_be_read_shows_its_error_and_the_rest_stays(window, visitor, monkeypatch):
    (window.folder / EVIL).rename(window.folder / "elsewhere")
    page = visitor.get("/")
    assert page.status_code == 200
    assert "no such folder" in words_of(page.text)
    assert "Sales.Orders" in unbroken(page.text)
    assert visitor.get(f"/tables/{EVIL}/Orders").status_code == 404
    monkeypatch.setattr(window.writers[SHOP], "rows", lambda *_, **__: None)
    orders = words_of(visitor.get(ORDERS).text)
    assert "no version" in orders.partition("First rows")[2]
    assert "MERGE" in orders


def test_the_page_shows_an_engine_failure(window, visitor):
    window.change(SHOP, status=DatabaseStatus.STOPPED, error="No <Java>")
    assert "Stopped" in words_of(visitor.get("/").text)
    assert "No &lt;Java&gt;" in visitor.get("/").text


def test_many_readers_cost_one_scan(still):
    cache = web.StatusCache(still.items, clock=lambda: 0.0)
    before = still.views
    for _ in range(5):
        cache.all()
    assert still.views - before == len(still.shown)


def test_a_change_is_visible_once_the_cache_is_stale(window):
    now = [0.0]
    cache = web.StatusCache(window.items, clock=lambda: now[0])
    assert cache.all(only=SHOP)[0].status.tables[0].state.code == "behind"
    window.apply()
    assert cache.all(only=SHOP)[0].status.tables[0].state.code == "behind"
    now[0] += web.FRESH_SECONDS
    assert cache.all(only=SHOP)[0].status.tables[0].state.code == "caught_up"


def test_scans_take_at_most_a_fifth_of_the_time(window):
    now = [0.0]

    def slow_clock():
        now[0] += 5.0  # each look takes five seconds
        return now[0]

    cache = web.StatusCache(window.items, clock=slow_clock)
    cache.all(only=SHOP)[0]
    before = window.views
    now[0] += 5 * web.IDLE_FACTOR - 11
    cache.all(only=SHOP)[0]
    assert window.views == before


def test_rows_are_read_once_a_version(window, visitor, monkeypatch):
    reads = []
    writer = window.writers[SHOP]
    rows = writer.rows
    monkeypatch.setattr(writer, "rows", lambda *args, **options: reads.append(options) or rows(*args, **options))
    for _ in range(3):
        assert visitor.get(ORDERS).status_code == 200
    assert [read["limit"] for read in reads] == [None]  # a small table, to be sorted
    window.apply()
    visitor.get(ORDERS)
    assert [read["version"] for read in reads] == [1, 2]


def test_names_that_no_encoding_knows_or_that_would_break_a_line_of_the_stream_are_written_out(window, visitor):
    window.add("3", "a\r\ndata: b", "\ud800")
    page = visitor.get("/")
    assert page.status_code == 200
    assert r"\ud800" in page.text
    assert r"a\r\ndata: b" in page.text


@pytest.mark.parametrize("name", ["a\nb", "a\n", "\n", "a\r\nb", "a?b#c%d", "\x1b[2J\u202e", "a\u2028b"])
def test_every_listed_table_has_a_page(window, visitor, name):
    """LZ-1.10: names keep their newlines."""
    (window.folder / SHOP / ZONE / name).mkdir()
    links = re.findall(r'href="(/tables/[^"]*)"', visitor.get("/").text)
    assert links
    for link in links:
        page = visitor.get(link.replace("&amp;", "&"))
        assert page.status_code == 200, link
        assert not UNWRITTEN.intersection(page.text.replace("\n", ""))


UNWRITTEN = frozenset(map(chr, CONTROLS))
PAGE_CSS = Path(web.__file__).with_name("templates").joinpath("page.css").read_text(encoding="utf-8")
LIGHT, DARK = (dict(re.findall(r"--([\w-]+): #(\w+);", part)) for part in PAGE_CSS.partition("* {")[0].split("@media"))
TONES = ("well", "busy", "idle", "stuck")


def brightness(colour):
    """Relative luminance, as WCAG 2 has it."""
    whole = colour if len(colour) == 6 else "".join(digit * 2 for digit in colour)
    parts = [int(whole[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_text_and_background_colors_have_enough_contrast(palette):
    pairs = [(ink, sheet) for ink in ("ink", "quiet", "link", *TONES) for sheet in ("paper", "sheet")]
    for pair in [*pairs, *((each, f"{each}-sheet") for each in TONES)]:
        darker, brighter = sorted(brightness(palette[name]) for name in pair)
        assert (brighter + 0.05) / (darker + 0.05) >= 4.5, pair


def test_every_state_has_a_colour(still):
    tones = {URGENCY[type(table.state)] for item in still.shown for table in item.view().status().tables}
    assert tones == set(TONES)
    assert all(f".state.{each} " in PAGE_CSS for each in TONES)


TOKEN = "0123456789abcdef"  # noqa: S105 - a test's own


def named(html):
    """The tables of an overview, in order."""
    return re.findall(r'<th scope="row" class="file"><a [^>]*><bdi>([^<]*)</bdi>', unbroken(html))


@pytest.mark.parametrize(
    ("query", "tables"),
    [
        ("q=SALES", ["Sales.Orders", "Sales.Stores"]),
        ("q=sales+ord", ["Sales.Orders"]),
        ("q=ord+sales", ["Sales.Orders"]),
        ("q=sales.ord", ["Sales.Orders"]),
        ("q=sales.schema", ["Sales.Orders", "Sales.Stores"]),
        ("q=nothing", []),
        ("state=halted", ["Items"]),
        ("state=stuck", ["Sales.Stores", "Items"]),
        ("state=stuck&sort=table", ["Items", "Sales.Stores"]),
        ("state=stuck&sort=-table", ["Sales.Stores", "Items"]),
        ("q=sales&sort=rows", ["Sales.Stores", "Sales.Orders"]),
        ("q=sales&sort=-rows", ["Sales.Orders", "Sales.Stores"]),
        ("q=s&state=empty&sort=lag", ["Returns"]),
        ("q=sales&sort=__class__", ["Sales.Orders", "Sales.Stores"]),
        ("q=sales&state=<b>", ["Sales.Orders", "Sales.Stores"]),
        ("q=<script>", []),
    ],
)
def test_tables_are_filtered_and_sorted(client, query, tables):
    page = client.get(f"/?{query}").text
    assert named(page) == tables
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
        assert len(named(shown)) == int(number) == 1


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
    assert named(client.get("/").text) == ["T0", "T1", "T2"]
    assert "The first 3 of 5." in client.get("/").text
    assert len(named(client.get("/?all=yes").text)) == 5


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
        assert named(client.get("/?state=halted").text) == ["Items"]
        go.clear()
        while len(views) == len(items):  # until the next scan begins
            assert named(client.get("/?state=halted").text) == ["Items"]
        assert named(client.get("/?state=halted").text) == ["Items"]  # while it runs
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
