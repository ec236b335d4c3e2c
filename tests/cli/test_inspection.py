"""Commands that read, as programs call them, and while an engine runs."""

from __future__ import annotations

import json
import os
import re
import signal
import threading

import pytest
from filelock import FileLock
from scripted_faults import Failing, faulty

from mirror_engine.landing_zone.diagnostics import CATALOG
from mirror_engine.landing_zone.layout import LOCK
from mirror_engine.storage import stores
from mirror_engine.storage.local import LocalStorage


def test_status_shows_that_an_engine_is_running(sales, cli):
    cli("sync", sales.root)
    with FileLock(sales.root / LOCK):
        assert "engine running" in cli("status", sales.root).out
        assert json.loads(cli("status", sales.root, "--json").out)["engine_running"] is True


def test_a_folder_that_cannot_be_listed_is_not_calm(sales, cli, monkeypatch):
    cli("sync", sales.root)
    monkeypatch.setattr(stores, "LocalStorage", lambda root: faulty(LocalStorage(root), Failing("list .*Items")))
    assert [cli("status", sales.root, *flags).code for flags in ([], ["--check"])] == [0, 4]


@pytest.mark.slow
@pytest.mark.parametrize("form", [("--json",), ()])
def test_status_watch_prints_until_it_is_stopped(sales, cli, form):
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    printed = cli("status", sales.root, "--watch", "--interval", "100ms", *form)
    assert printed.code == 0
    assert len(re.findall(r"^\{|no engine is running$", printed.out, re.MULTILINE)) > 1


@pytest.mark.slow
def test_status_watch_takes_a_screen_of_its_own_on_a_terminal_with_problems_first(sales, cli, terminal):
    sales.halt()
    cli("sync", sales.root, "-q")
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    assert cli("status", sales.root, "--watch", "--interval", "100ms").code == 0
    shown = terminal.file.getvalue()
    assert (shown.count("\x1b[?1049h"), shown.count("\x1b[?1049l")) == (1, 1)
    assert shown.index("ME023") < shown.index("Last commit") < shown.index("Sales.Orders")
    cli("status", sales.root)
    plain = terminal.file.getvalue().removeprefix(shown)
    assert plain.index("Sales.Orders") < plain.index("ME023")


@pytest.mark.slow
def test_status_of_one_table_has_its_columns_and_place(sales, cli):
    before = json.loads(cli("status", sales.root, "--table", "items", "--json").out)
    assert before["tables"][0]["columns"] is None
    cli("sync", sales.root)
    document = json.loads(cli("status", sales.root, "--table", "items", "--table", "sales.orders", "--json").out)
    orders, items = document["tables"]
    assert (orders["landing_folder"], orders["delta_path"]) == ("Sales.schema/Orders", "Tables/Sales/Orders")
    assert (items["landing_folder"], items["delta_path"]) == ("Items", "Tables/dbo/Items")
    assert [(column["name"], column["type"]) for column in items["columns"]] == [("Id", "long"), ("Name", "string")]
    assert "  columns: Id long, Name string\n" in cli("status", sales.root, "--table", "Items").out
    assert {each["columns"] for each in json.loads(cli("status", sales.root, "--json").out)["tables"]} == {None}


@pytest.mark.slow
def test_diagnostics_are_explained_to_programs_and_listed(cli):
    (page,) = json.loads(cli("explain", "ME014", "--json").out)["explanations"]
    assert (page["code"], page["severity_strict"], page["rules"][0]["name"]) == ("ME014", "error", "LZ-2.7")
    lands, result, fixed = page["example"]
    assert [section["title"] for section in (lands, result, fixed)] == ["Example", "Result: caught up", "Fixed"]
    assert "ConditionalUpdateColumn" in lands["blocks"][0]["text"]
    assert (lands["blocks"][0]["kind"], lands["blocks"][0]["title"]) == ("json", "Orders/_metadata.json")
    assert [page["code"] for page in json.loads(cli("explain", "--json").out)["explanations"]] == list(CATALOG)
    assert [line.split()[0] for line in cli("explain").out.splitlines()[1:]] == list(CATALOG)
    assert [line for line in cli("explain", "ME001", "ME039").out.splitlines() if line != line.rstrip()] == []
