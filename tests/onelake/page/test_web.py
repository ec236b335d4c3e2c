"""The page over HTTP: what it says is what `status` says, and nothing that a publisher wrote is more than text."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pytest
from shop_window import EVIL, EVIL_TABLE, EVIL_TEXT, SHOP, Window
from starlette.testclient import TestClient

from mirror_engine.monitoring.words import URGENCY, help_for
from mirror_engine.onelake.engine_pool import DatabaseStatus
from mirror_engine.onelake.page import web
from mirror_engine.onelake.page.web import (
    ASSETS,
    HEADERS,
    MAX_CHARACTERS,
    MAX_COLUMNS,
    MAX_FILES,
    Web,
    last_diagnostic,
    row_texts,
    table_url,
)

pytestmark = pytest.mark.slow

ORDERS = f"/tables/{SHOP}/Sales.schema/Orders"
EVIL_PAGE = f"/tables/{EVIL}/{quote(EVIL_TABLE)}"


def words_of(html):
    """What a person reads."""
    without_code = re.sub(r"</?code>", "", html.partition("<main ")[2])
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
            reported = [table.name.folder, table.state.code.replace("_", " "), table.watermark]
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
            reported += [f"Rows processed {table.rows_processed:,}", f"Bytes processed {table.bytes_processed:,}"]
            answer = client.get(table_url(item, table))
            assert f'class="sentence {table.urgency}"' in answer.text
            assert (answer.status_code, missing(reported, answer.text)) == (200, [])


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
    page = TestClient(Web(window.items).app).get(f"/tables/{SHOP}/Many").text
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
    assert "Sales.schema/Orders" in page.text
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
    assert [read["limit"] for read in reads] == [web.MAX_ROWS]
    window.apply()
    visitor.get(ORDERS)
    assert [read["version"] for read in reads] == [1, 2]


def test_names_that_no_encoding_knows_or_that_would_break_a_line_of_the_stream_are_written_out(window, visitor):
    window.add("3", "a\r\ndata: b", "\ud800")
    page = visitor.get("/")
    assert page.status_code == 200
    assert r"\ud800" in page.text
    assert r"a\r\ndata: b" in page.text


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
