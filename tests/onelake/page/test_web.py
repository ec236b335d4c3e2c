"""The page's data over HTTP is that of status; the page around it is static, and forbids all but its own scripts."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote

import pyarrow as pa
import pytest
import requests
from page_tables import EVIL, EVIL_TABLE, EVIL_TEXT, SHOP, Window
from page_tables import ORDERS as ORDERS_TYPES
from starlette.requests import Request
from starlette.testclient import TestClient

from mirror_engine import mirror
from mirror_engine.explain.pages import explanation
from mirror_engine.landing_zone.diagnostics import CATALOG
from mirror_engine.landing_zone.layout import ZONE
from mirror_engine.landing_zone.text import CONTROLS
from mirror_engine.monitoring.rows import SortedRows, python_rows
from mirror_engine.monitoring.state_text import URGENCY
from mirror_engine.monitoring.status_results import TableSummary
from mirror_engine.onelake.connection import Listening
from mirror_engine.onelake.engine_pool import DatabaseStatus
from mirror_engine.onelake.options import ServerPlan
from mirror_engine.onelake.page import statuses, web
from mirror_engine.onelake.page.documents import MAX_CHARACTERS, MAX_COLUMNS, last_diagnostic, row_texts
from mirror_engine.onelake.page.statuses import MAX_FILES, MAX_ROWS
from mirror_engine.onelake.page.web import ASSETS, HEADERS, Web
from mirror_engine.onelake.serving import Server
from mirror_engine.results import Finding
from mirror_engine.testing.landing_zone_writer import LandingZoneWriter

pytestmark = pytest.mark.slow

ORDERS = f"/tables/{SHOP}/Sales.schema/Orders"
EVIL_PAGE = f"/tables/{EVIL}/{quote(EVIL_TABLE)}"
JSON = {"Accept": "application/json"}
TOKEN = "0123456789abcdef"  # noqa: S105 - a test's own
UNWRITTEN = frozenset(map(chr, CONTROLS))


def data(client, path):
    answer = client.get(path, headers=JSON)
    assert answer.status_code == 200, answer.text
    return answer.json()


def tables(client, item=0):
    return {table["table"]: table for table in data(client, "/")["items"][item]["mirror"]["tables"]}


def test_every_table_has_its_status_urgency_and_diagnostic(still, client):
    states = set()
    for item, shown in zip(still.shown, data(client, "/")["items"], strict=True):
        assert [shown[name] for name in ("id", "workspace", "name")] == [item.id, item.workspace, item.name]
        status = item.view()._status()
        for table, found in zip(status.tables, shown["mirror"]["tables"], strict=True):
            states.add(table.state.code)
            expected = TableSummary.taken_from(table.shown(engine_running=status.is_worked_on)).to_json()
            del expected["lag_seconds"], expected["diagnostic"]
            assert {name: found[name] for name in expected} == expected
            last = last_diagnostic(table)
            assert found["diagnostic"] == (last and Finding.of(last).to_json())
            assert found["urgency"] == table.urgency
            assert bool(found["pending_since"]) == bool(table.pending_files)
            assert re.fullmatch(r"(\d{4}-\d\d-\d\dT\d\d:\d\dZ)?", found["pending_since"] or "")
            assert client.get(found["url"], headers=JSON).status_code == 200
    assert states == {"unconfigured", "empty", "loading", "behind", "blocked", "halted", "caught_up"}  # all there are


def test_each_table_has_its_files_and_diagnostics(still, client):
    for item in still.shown:
        for table in item.view()._status(MAX_FILES).tables:
            found = data(client, f"/tables/{item.id}/{quote(table.name.folder)}")["table"]
            assert {(each["path"], each["state"], each["reason"]) for each in found["files"]} == {
                (each.path, each.state, each.reason) for each in table.files
            }
            assert [each["code"] for each in found["diagnostics"]] == [each.code for each, _ in table.diagnostics]
            assert found["message"] == table.message


def test_files_history_and_first_rows_are_shown(client):
    found = data(client, ORDERS)["table"]
    files = {each["path"]: (each["state"], each["rows"], each["delta_version"]) for each in found["files"]}
    assert files[f"{1:020d}.parquet"] == ("applied", 40, 1)
    assert files[f"{3:020d}.parquet"] == ("pending", None, None)
    assert [each["operation"] for each in found["commits"]] == ["MERGE", "CREATE TABLE"]
    assert found["commits"][0]["files"] == [f"{1:020d}.parquet", f"{2:020d}.parquet"]
    assert not found["has_more_commits"]
    rows = found["rows"]
    assert rows["columns"] == [*ORDERS_TYPES]
    assert (len(rows["cells"]), rows["is_sorted"], rows["has_more"]) == (MAX_ROWS, True, True)
    assert rows["cells"][:2] == [
        ["1", None, None, "99.5"],
        ["3", "Customer 3", "2026-11-02T08:15:29+00:00", "37.5"],
    ]
    rejected = data(client, f"/tables/{SHOP}/Items")["table"]["files"][0]
    assert (rejected["state"], "row marker" in rejected["reason"]) == ("rejected", True)


@pytest.mark.parametrize("small", [True, False])
def test_first_rows_are_those_with_the_lowest_keys_of_a_small_table(window, visitor, monkeypatch, small):
    monkeypatch.setattr(mirror, "MAX_SORTED_ROWS", mirror.MAX_SORTED_ROWS if small else 30)
    table = LandingZoneWriter(window.folder / SHOP).table("Sales.Orders", keys=["Id"], types=ORDERS_TYPES)
    table.insert(*({"Id": at} for at in range(-5, 0)), name=f"{4:020d}.parquet")
    window.apply()
    rows = data(visitor, ORDERS)["table"]["rows"]
    keys = [int(row[0]) for row in rows["cells"]]
    assert (len(keys), rows["is_sorted"]) == (MAX_ROWS, small)
    if small:
        assert keys[:6] == [-5, -4, -3, -2, -1, 1]


def test_few_rows_are_read_of_a_large_table(tmp_path, monkeypatch):
    monkeypatch.setattr(mirror, "MAX_SORTED_ROWS", 30)
    window = Window(tmp_path)
    window.add(SHOP, "Shop", "Mirror").table("Log").insert(*({"text": str(at)} for at in range(50)))
    window.apply()
    reads, rows = [], window.writers[SHOP].rows
    monkeypatch.setattr(
        window.writers[SHOP], "rows", lambda *args, **options: reads.append(options) or rows(*args, **options)
    )
    found = data(TestClient(Web(window.items).app), f"/tables/{SHOP}/Log")["table"]["rows"]
    assert (found["is_sorted"], [read["limit"] for read in reads]) == (False, [MAX_ROWS + 1])


@pytest.mark.parametrize(
    ("path", "query", "is_page"),
    [("/nope", b"", True), ("/Sales", b"", True), ("/Sales", b"comp=list", False), ("/ws/item/file", b"", False)],
)
def test_browser_astray_gets_a_page_unless_it_asks_for_a_file(window, path, query, is_page):
    page = Web(window.items)
    headers = [(b"accept", b"text/html")]
    scope = {"type": "http", "method": "GET", "path": path, "headers": headers, "query_string": query}
    assert page.answers(Request(scope)) is is_page
    answer = TestClient(page.app).get(path)
    assert (answer.status_code, "page.js" in answer.text) == (404, True)


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("/explain/ME001/", "/explain/ME001"),
        (f"{ORDERS}/", ORDERS),
        ("/metrics/", "/metrics"),
        ("//example.org/", "/example.org"),
        ("/tables/x/a%0Ab/", "/tables/x/a%0Ab"),
    ],
)
def test_trailing_slash_is_redirected(client, path, target):
    answer = client.get(f"http://testserver{path}", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (307, target)


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (253_402_300_800_000_000, pa.timestamp("us"), "10000-01-01 00:00:00.000000"),  # beyond Python's years
        (None, pa.timestamp("us"), None),
        ("NULL", pa.string(), "NULL"),
        (b"\0\1", pa.binary(), "AAE="),
        (float("nan"), pa.float64(), "NaN"),
        ("a\tb", pa.string(), r"a\tb"),
        ("y" * MAX_CHARACTERS, pa.string(), "y" * MAX_CHARACTERS),
        ("y" * 1234, pa.string(), "y" * MAX_CHARACTERS + "… (1,234 characters)"),
        (b"\0" * 600, pa.binary(), "AAAA" * 66 + "AAA=… (600 bytes)"),
    ],
)
def test_cell_is_one_line_of_bounded_length(value, kind, text):
    table = pa.table({"c": pa.array([value], kind)})
    assert row_texts(SortedRows(python_rows(table), schema=table.schema))["cells"] == [[text]]


def test_many_columns_and_files_are_counted_instead_of_shown(tmp_path):
    window = Window(tmp_path)
    table = window.add(SHOP, "Sales", "Shop").table("Many", keys=["c0"])
    for at in range(MAX_FILES + 2):
        table.insert({f"c{column}": at for column in range(MAX_COLUMNS + 3)})
    window.apply()
    table.skip_numbers()
    for at in range(MAX_FILES + 5):
        table.insert({"c0": at})
    found = data(TestClient(Web(window.items).app), f"/tables/{SHOP}/Many")["table"]
    states = [each["state"] for each in found["files"]]
    assert states == ["pending"] * MAX_FILES + ["applied"] * MAX_FILES
    assert (found["pending_files"], found["files_processed"]) == (MAX_FILES + 5, MAX_FILES + 2)
    assert found["files"][MAX_FILES]["path"] == f"{MAX_FILES + 2:020d}.parquet"  # the newest
    assert (len(found["rows"]["columns"]), found["rows"]["column_count"]) == (MAX_COLUMNS, MAX_COLUMNS + 3)


def test_page_is_static_without_inline_scripts_or_styles(client):
    page = client.get("/").text
    assert {client.get(path).text for path in (ORDERS, EVIL_PAGE, "/explain/ME037")} == {page}
    assert (page.count("<script"), "style=" in page) == (1, False)
    assert re.findall(r"<script[^>]*>[^<]", page) == []
    assert set(re.findall(r'(?:src|href)="(//|\w+:)', page)) == set()  # nothing from elsewhere
    assert "<noscript>" in page


@pytest.mark.parametrize(
    "name", ["innerHTML", "outerHTML", "insertAdjacentHTML", "DOMParser", "document.write", "eval("]
)
def test_script_makes_no_html_of_text(name):
    """What a publisher wrote becomes text nodes: `h` is the one place that makes elements."""
    script = Path(statuses.__file__).with_name("static").joinpath("page.js").read_text(encoding="utf-8")
    assert name not in script
    assert script.count("createElement") == 1


@pytest.mark.parametrize("path", ["/", ORDERS, "/absent", "/metrics", "/healthz", "/assets/page.js", "/explain/ME001/"])
@pytest.mark.parametrize("accept", ["*/*", "application/json"])
def test_every_answer_forbids_foreign_scripts_frames_and_caches(client, path, accept):
    expected = [(name.lower(), text) for name, text in HEADERS.items()]
    for _ in range(2):  # one object may answer all requests
        found = client.get(path, headers={"Accept": accept}, follow_redirects=False).headers.multi_items()
        assert [each for each in found if each[0] in dict(expected)] == expected


def test_the_page_is_for_reading(client):
    assert {client.request(method, "/").status_code for method in ("POST", "PUT", "DELETE", "PATCH")} == {405}
    assert client.head("/").status_code == 200


@pytest.mark.parametrize(
    "path",
    ["/tables/x/Orders", f"/tables/{SHOP}/Absent", f"/tables/{SHOP}/..%2f..%2fetc/passwd", "/explain/ME999", "/nope"],
)
def test_data_that_is_absent_is_404(client, path):
    answer = client.get(path, headers=JSON)
    assert (answer.status_code, answer.json()) == (404, None)


def test_unchanged_data_is_not_sent_again(client):
    first = client.get("/explain/ME037", headers=JSON)
    again = client.get("/explain/ME037", headers={**JSON, "If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", first.headers["etag"])
    other = client.get("/explain/ME038", headers={**JSON, "If-None-Match": first.headers["etag"]})
    assert other.status_code == 200


def test_all_that_the_page_asks_for_is_served(client):
    asked = set(re.findall(r'(?:src|href)="/assets/([^"]+)"', client.get("/").text))
    assert asked == set(ASSETS)
    for name, kind in ASSETS.items():
        answer = client.get(f"/assets/{name}")
        assert answer.headers["content-type"].partition(";")[0] == kind
        assert answer.content


def test_what_cannot_be_read_shows_its_error_and_the_rest_stays(window, visitor, monkeypatch):
    (window.folder / EVIL).rename(window.folder / "elsewhere")
    shop, evil = data(visitor, "/")["items"]
    assert (evil["mirror"], "no such folder" in evil["errors"][0]) == (None, True)
    assert shop["mirror"]["tables"]
    assert visitor.get(f"/tables/{EVIL}/Orders", headers=JSON).status_code == 404
    monkeypatch.setattr(window.writers[SHOP], "rows", lambda *_, **__: None)
    orders = data(visitor, ORDERS)["table"]
    assert ("no version" in orders["error"], orders["rows"]) == (True, None)
    assert orders["commits"]


def test_the_page_shows_an_engine_failure(window, visitor):
    window.change(SHOP, status=DatabaseStatus.STOPPED, error="No <Java>")
    shop = data(visitor, "/")["items"][0]
    assert (shop["status"], shop["errors"]) == ("Stopped", ["No <Java>"])


def test_many_readers_cost_one_scan(still):
    cache = statuses.StatusCache(still.items, clock=lambda: 0.0)
    before = still.views
    for _ in range(5):
        cache.all()
    assert still.views - before == len(still.shown)


def test_a_change_is_visible_once_the_cache_is_stale(window):
    now = [0.0]
    cache = statuses.StatusCache(window.items, clock=lambda: now[0])
    assert cache.all(only=SHOP)[0].status.tables[0].state.code == "behind"
    window.apply()
    assert cache.all(only=SHOP)[0].status.tables[0].state.code == "behind"
    now[0] += statuses.FRESH_SECONDS
    assert cache.all(only=SHOP)[0].status.tables[0].state.code == "caught_up"


def test_scans_take_at_most_a_fifth_of_the_time(window):
    now = [0.0]

    def slow_clock():
        now[0] += 5.0  # each look takes five seconds
        return now[0]

    cache = statuses.StatusCache(window.items, clock=slow_clock)
    cache.all(only=SHOP)[0]
    before = window.views
    now[0] += 5 * statuses.IDLE_FACTOR - 11
    cache.all(only=SHOP)[0]
    assert window.views == before


def test_control_characters_and_surrogates_of_names_are_written_out(window, visitor):
    window.add("3", "a\r\ndata: b", "\ud800")
    found = data(visitor, "/")["items"][-1]
    assert (found["workspace"], found["name"]) == (r"a\r\ndata: b", r"\ud800")


def test_every_listed_table_has_a_page(window, visitor):
    """LZ-1.10: names keep their newlines."""
    odd = ["a\nb", "a\n", "\n", "a\r\nb", "a?b#c%d", "\x1b[2J\u202e", "a\u2028b"]
    for name in odd:
        (window.folder / SHOP / ZONE / name).mkdir()
    urls = [table["url"] for table in tables(visitor).values()]
    assert len(urls) == 6 + len(odd)
    for url in urls:
        page = visitor.get(url, headers=JSON)
        assert page.status_code == 200, url
        assert not UNWRITTEN.intersection(page.json()["table"]["message"])


@pytest.mark.parametrize("code", [*CATALOG][::20])
def test_diagnostic_is_explained(client, code):
    assert data(client, f"/explain/{code}") == explanation(code).to_json()


def test_publisher_is_told_its_landing_zone_and_no_token(tmp_path):
    plan = ServerPlan(tmp_path / "it's", has_engines=False, has_fault_api=True, listening=Listening(token=TOKEN))
    with Server(plan, on_error=pytest.fail) as server:
        headers = {**JSON, "Authorization": f"Bearer {TOKEN}"}
        answer = requests.get(server.connection.page, headers=headers, timeout=30)
        (item,) = answer.json()["items"]
        assert TOKEN not in answer.text
        assert server.connection.environment["MIRROR_ENGINE_FAULT_API_TOKEN"] not in answer.text
    assert item["landing_zone"] == (
        "https://onelake.dfs.fabric.microsoft.com/Workspace/Mirror.MountedRelationalDatabase/Files/LandingZone"
    )
    assert item["mirror"]["tables"] == []


def test_landing_zone_of_awkward_names_is_a_url(tmp_path):
    window = Window(tmp_path)
    window.add(EVIL, "My Sales", "Shop")
    found = data(TestClient(Web(window.items).app), "/")["items"][0]["landing_zone"]
    assert found.endswith(".com/My%20Sales/Shop.MountedRelationalDatabase/Files/LandingZone")


PAGE_CSS = Path(statuses.__file__).with_name("static").joinpath("page.css").read_text(encoding="utf-8")
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
    tones = {URGENCY[type(table.state)] for item in still.shown for table in item.view()._status().tables}
    assert tones == set(TONES)
    assert all(f".state.{each} " in PAGE_CSS for each in TONES)


def test_data_is_not_html(client):
    answer = client.get(EVIL_PAGE, headers=JSON)
    assert answer.headers["content-type"] == "application/json"
    assert EVIL_TEXT in answer.json()["table"]["rows"]["cells"][0]


def test_a_table_is_answered_beside_the_requests_of_publishers_and_without_the_history_of_all(visitor, monkeypatch):
    """Its JSON is made in a thread of its own; what happened to all tables is not read."""
    dumps, threads_of = web.json.dumps, []

    def watched(found, **options):
        if isinstance(found, dict) and found.keys() == {"item", "table"}:
            threads_of.append(threading.current_thread().name)
        return dumps(found, **options)

    monkeypatch.setattr(web.json, "dumps", watched)
    monkeypatch.setattr(mirror, "recorded_changes", lambda *_, **__: pytest.fail("the history is read"))
    assert data(visitor, ORDERS)["table"]["commits"]
    assert [name.startswith("AnyIO worker") for name in threads_of] == [True]


def test_rows_are_read_once_a_commit_and_kept_as_shown_for_the_tables_seen_last(monkeypatch):
    monkeypatch.setattr(statuses, "MAX_KEPT", 2)
    read = []
    view = SimpleNamespace(show=lambda folder, version, **_: read.append((folder, version)) or "rows")
    item = SimpleNamespace(id="item", view=lambda: view)
    cache = statuses.StatusCache(list)

    def seen(folder, version=1):
        newest = SimpleNamespace(version=version, committed_at=0.0)
        return cache.rows(item, SimpleNamespace(delta_folder=folder), newest, str.upper)

    assert [seen("a"), seen("b"), seen("a"), seen("c")] == ["ROWS"] * 4
    assert read == [("a", 1), ("b", 1), ("c", 1)]
    assert [*cache._rows] == [("item", "a"), ("item", "c")]
    seen("a", version=2)
    seen("b")
    assert read[3:] == [("a", 2), ("b", 1)]
