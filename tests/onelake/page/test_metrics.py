"""Metrics and readiness."""

from __future__ import annotations

import pytest
from page_tables import EVIL, EVIL_TABLE, SHOP
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from mirror_engine.onelake.engine_pool import DatabaseStatus
from mirror_engine.onelake.page.metrics import MAX_HEARTBEAT_AGE_SECONDS, STATES, Metrics, unready
from mirror_engine.onelake.page.statuses import StatusCache
from mirror_engine.onelake.page.web import Web

pytestmark = pytest.mark.slow


def samples(metrics):
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(metrics.text().decode())
        for sample in family.samples
    }


def test_every_number_is_that_of_status(window):
    reported = samples(Web(window.items).metrics)
    left = set(reported)

    def number(name, **labels):
        key = (f"mirror_engine_{name}", frozenset({"workspace": "Sales", "item": "Shop", **labels}.items()))
        left.discard(key)
        return reported.get(key)

    status = window.mirror(SHOP)._status()
    assert number("last_heartbeat_timestamp_seconds") == status.last_heartbeat_at.timestamp()
    assert number("up") == 0
    for table in status.tables:
        name = table.name.normalized
        assert number("pending_files", table=name) == len(table.pending_files)
        assert number("files_applied_total", table=name) == table.files_processed
        assert number("rows_processed_total", table=name) == table.rows_processed
        assert number("bytes_processed_total", table=name) == table.bytes_processed
        assert number("table_rows", table=name) == table.row_count
        assert number("last_commit_timestamp_seconds", table=name) == table.last_commit_at
        assert number("table_fabric_status", table=name, status=table.fabric_status) in {1, None}
        assert (number("lag_seconds", table=name) > 0) == bool(table.pending_files)
        states = {state: number("table_state", table=name, state=state) for state in STATES}
        assert states == {state: float(state == table.state.code) for state in STATES}
        for found, often in table.diagnostics:
            assert number("diagnostics", table=name, code=found.code) == often
    assert {labels for _, labels in left if ("item", "Shop") in labels} == set()  # nothing else is reported of it


def test_names_that_are_attacks_break_no_line(window):
    evil = window.add("3", 'a"} 1\nx', "\ud800")
    evil.table("T\x07able", keys=["Id"])
    reported = samples(Metrics(StatusCache(window.items)))
    items = {dict(labels).get("item") for _, labels in reported}
    assert items >= {"Shop", "<i>Item</i>", r"\ud800"}
    assert {dict(labels).get("workspace") for _, labels in reported} >= {'a"} 1\\nx'}
    assert {dict(labels).get("table") for _, labels in reported} >= {EVIL_TABLE, r"T\x07able"}


def test_an_unreadable_mirror_is_down_and_the_others_have_metrics(window):
    (window.folder / EVIL).rename(window.folder / "elsewhere")
    reported = samples(Metrics(StatusCache(window.items)))
    up = {dict(labels)["item"]: value for (name, labels), value in reported.items() if name == "mirror_engine_up"}
    assert up == {"<i>Item</i>": 0.0, "Shop": 0.0}
    assert any(dict(labels).get("table") == "Sales.Orders" for _, labels in reported)


def heartbeats(window):
    return [window.mirror(item.id)._status().last_heartbeat_at.timestamp() for item in window.shown]


def ready(window, age_seconds=0.0):
    newest = max(heartbeats(window))
    return unready(StatusCache(window.items).all(), newest + age_seconds)


@pytest.mark.parametrize(
    ("state", "error", "words"),
    [
        (DatabaseStatus.RUNNING, "", []),
        (DatabaseStatus.STARTING, "", ["Sales/Shop: Starting"]),
        (DatabaseStatus.STOPPED, "no Java", ["Sales/Shop: its engine ended: no Java"]),
        (DatabaseStatus.STOPPED, "", []),
        (DatabaseStatus.STOPPING, "", []),
        (DatabaseStatus.INITIALIZED, "", []),
    ],
)
def test_only_what_should_run_must(window, state, error, words):
    window.change(SHOP, status=state, error=error)
    assert ready(window, MAX_HEARTBEAT_AGE_SECONDS - 10) == words


def test_a_running_item_without_a_heartbeat_or_a_folder_is_not_ready(window):
    window.add("3", "Sales", "New")
    (window.folder / EVIL).rename(window.folder / "elsewhere")
    words = unready(StatusCache(window.items).all(), window.mirror(SHOP)._status().last_heartbeat_at.timestamp())
    assert words[1:] == ["Sales/New: Running, no heartbeat yet"]
    assert words[0].startswith("<b>Workspace/<i>Item</i>: ")
    assert "no such folder" in words[0]


def test_readiness_is_503_with_words_and_health_is_not_asked_of_the_mirrors(window):
    heartbeat = min(heartbeats(window))
    now = [heartbeat]
    client = TestClient(Web(window.items, clock=lambda: now[0]).app)
    assert (client.get("/readyz").status_code, client.get("/readyz").text) == (200, "ready\n")
    now[0] += MAX_HEARTBEAT_AGE_SECONDS + 10
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.text.splitlines()[0] == "not ready"
    assert "Sales/Shop: Running, last heartbeat 2m ago" in answer.text
    looked = window.views
    assert (client.get("/healthz").status_code, client.get("/healthz").text) == (200, "ok\n")
    assert window.views == looked
