"""The ledger: what is recorded is what is read back, whatever becomes of the file."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest

from mirror_engine.engine.ledger import Ledger
from mirror_engine.landing_zone.diagnostics import diagnose
from mirror_engine.landing_zone.names import TableName
from mirror_engine.landing_zone.progress import AppliedFile, Progress, Rejection
from mirror_engine.landing_zone.schema import Column

ORDERS, ITEMS = TableName("Sales", "Orders"), TableName("", "Items")
FULL = Progress(
    "g1",
    "folder-1",
    batch=3,
    delta_version=4,
    watermarks={"": 7, "day=1": 10**20 - 1},
    applied={"a.csv": AppliedFile("e1", "d1", 4, 10, 123), "b.csv": AppliedFile("e2", "d2", -1, 0, 10**18)},
    key_columns=("Id", "Line"),
    declared_columns=(Column("Id", "decimal(10,2)", nullable=False),),
    naive_columns=frozenset({"At"}),
    utc_columns=frozenset({"Seen"}),
    markers_seen=True,
    rows_processed=11,
    bytes_processed=120,
    last_commit_at=1.5,
    configured_at=0.5,
    missing_since=9.25,
    rejection=Rejection(diagnose("ME037", "Sales.schema/Orders/x", row=2, value="3"), "x", "i", "e"),
    pending_etags={"c.csv": "e3"},
    diagnostics={diagnose("ME039", "Sales.schema/Orders/a.csv", count=2): 3},
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "deep" / "ledger.sqlite"


def reopened(ledger, path):
    ledger.close()
    return Ledger.open(path)


def test_everything_recorded_is_read_back(path):
    ledger = Ledger.open(path)
    ledger.record(ORDERS, FULL)
    ledger.record(ITEMS, Progress("g2", "folder-2"))
    ledger = reopened(ledger, path)
    assert ledger.tables() == {ORDERS: FULL, ITEMS: Progress("g2", "folder-2")}
    ledger.close()


def test_applied_files_are_added_changed_and_forgotten_with_their_generation(path):
    ledger = Ledger.open(path)
    ledger.record(ORDERS, FULL)
    more = {**FULL.applied, "b.csv": AppliedFile("e9", "d9", 9, 9, 9), "c.csv": AppliedFile("e3", "d3", 5, 1, 5)}
    ledger.record(ORDERS, replace(FULL, applied=more))
    ledger = reopened(ledger, path)
    assert ledger.progress(ORDERS).applied == more
    ledger.record(ORDERS, replace(FULL, generation="g9", applied={"z.csv": more["c.csv"]}))
    ledger = reopened(ledger, path)
    assert list(ledger.progress(ORDERS).applied) == ["z.csv"]
    ledger.record(ORDERS, replace(FULL, generation="g9", applied={}))
    ledger = reopened(ledger, path)
    assert ledger.progress(ORDERS).applied == {}
    ledger.close()


def test_a_forgotten_table_is_not_known(path):
    ledger = Ledger.open(path)
    ledger.record(ORDERS, FULL)
    ledger.forget(ORDERS)
    ledger.forget(ITEMS)
    ledger = reopened(ledger, path)
    assert ledger.tables() == {}
    ledger.close()


def test_tables_of_one_name_in_two_schemas_are_two(path):
    ledger = Ledger.open(path)
    tables = {TableName(schema, "Orders"): Progress(f"g-{schema}", "f") for schema in ("", "Sales", "Stock")}
    for table, progress in tables.items():
        ledger.record(table, progress)
    ledger = reopened(ledger, path)
    assert ledger.tables() == tables
    ledger.close()


def test_facts_and_the_mirrors_id_stay(path):
    ledger = Ledger.open(path)
    mirror = ledger.mirror
    ledger.set_property("anchor", "a|b")
    ledger = reopened(ledger, path)
    assert (ledger.mirror, ledger.get_property("anchor"), ledger.get_property("unknown")) == (mirror, "a|b", "")
    ledger.close()


@pytest.mark.parametrize("harm", [b"", b"no database at all", None], ids=["emptied", "garbage", "truncated"])
def test_a_damaged_ledger_is_put_aside_and_begun_again(path, harm):
    ledger = Ledger.open(path)
    ledger.record(ORDERS, FULL)
    ledger.close()
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2] if harm is None else harm)
    ledger = Ledger.open(path)
    assert ledger.tables() == {}
    ledger.record(ITEMS, Progress("g2", "folder-2"))
    ledger = reopened(ledger, path)
    assert list(ledger.tables()) == [ITEMS]
    ledger.close()


def test_a_reader_sees_the_ledger_while_it_is_open_and_cannot_change_it(path):
    ledger = Ledger.open(path)
    ledger.record(ORDERS, FULL)
    reader = Ledger.read(path)
    assert reader.tables() == {ORDERS: FULL}
    reader.forget(ORDERS)
    reader.close()
    assert ledger.tables() == {ORDERS: FULL}
    ledger = reopened(ledger, path)
    assert ledger.tables() == {ORDERS: FULL}
    ledger.close()


def test_reading_no_ledger_finds_nothing_and_makes_nothing(path):
    reader = Ledger.read(path)
    assert reader.tables() == {}
    reader.close()
    assert not path.parent.exists()


def changed_in(path, statement, *values):
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement, values)


WRONG = [
    *(
        {"batch": 1.0},
        {"batch": True},
        {"external_change_version": "3"},
        {"generation": 7},
        {"last_commit_at": float("inf")},
        {"configured_at": {}},
        {"missing_since": -1},
    ),
    *({"watermarks": {"": "7"}}, {"watermarks": {"": None}}, {"applied": []}, {"key_columns": [1]}),
    *({"declared_columns": [{"name": 1.5, "type": "string", "nullable": True}]}, {"naive_columns": [1]}),
    *(
        {"rejection": []},
        {"rejection": 1},
        {"pending_etags": {"a": 1}},
        {"diagnostics": [[{"code": "ME999"}, 1]]},
        {"markers_seen": 0},
    ),
]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_progress_of_other_types_is_no_progress(path, wrong):
    ledger = Ledger.open(path)
    ledger.record(ORDERS, FULL)
    ledger.close()
    changed_in(path, "UPDATE tables SET progress = ?", json.dumps({**FULL.to_json(), **wrong}))
    assert Ledger.read(path).tables() == {}
    assert Ledger.open(path).tables() == {}
    assert path.with_name("damaged-ledger.sqlite").exists()


@pytest.mark.parametrize(
    ("column", "value"), [("etag", None), ("path", b"a"), ("version", "x"), ("rows", 1.5), ("modified_ns", None)]
)
def test_an_applied_file_of_other_types_is_none(path, column, value):
    ledger = Ledger.open(path)
    ledger.record(ORDERS, FULL)
    ledger.close()
    changed_in(path, f"UPDATE applied SET {column} = ? WHERE path = 'a.csv'", value)  # noqa: S608 - a column of the engine
    assert Ledger.open(path).tables() == {}


@pytest.mark.parametrize("head", ["[" * 100_000, "1", "null", '"x"', b"{}"], ids=lambda head: str(head)[:9])
def test_progress_that_is_none_at_all_is_put_aside(path, head):
    ledger = Ledger.open(path)
    ledger.record(ORDERS, FULL)
    ledger.close()
    changed_in(path, "UPDATE tables SET progress = ?", head)
    assert Ledger.open(path).tables() == {}


def test_a_page_of_the_file_that_lost_its_bytes_is_seen_when_it_is_opened(path):
    ledger = Ledger.open(path)
    many = {f"{n}.csv": AppliedFile("e", "d", 1, 1, 1) for n in range(2000)}
    ledger.record(ORDERS, replace(FULL, applied=many))
    ledger.close()
    content = bytearray(path.read_bytes())
    content[-4096 - 2048 : -4096] = bytes(2048)
    path.write_bytes(content)
    assert Ledger.open(path).tables() == {}
