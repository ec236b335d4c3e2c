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
    rejection=Rejection(diagnose("ME037", "Sales.schema/Orders/x", row=2, value="3", meant=""), "x", "i", "e"),
    pending_etags={"c.csv": "e3"},
    diagnostics={diagnose("ME039", "Sales.schema/Orders/a.csv", count=2): 3},
)


MANY = replace(FULL, applied={f"{number}.csv": AppliedFile("e", "d", 1, 1, 1) for number in range(2000)})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "deep" / "ledger.sqlite"


def opened(path):
    return closing(Ledger.open(path))


def tables_after(path, *records):
    """What a ledger knows, opened again, after these tables were recorded."""
    with opened(path) as ledger:
        for table, progress in records:
            ledger.record(table, progress)
    with opened(path) as ledger:
        return ledger.tables()


def test_everything_recorded_is_read_back(path):
    tables = {ORDERS: FULL, ITEMS: Progress("g2", "folder-2"), TableName("", "Orders"): Progress("g3", "folder-3")}
    assert tables_after(path, *tables.items()) == tables


def test_applied_files_are_added_changed_and_forgotten_with_their_generation(path):
    more = {**FULL.applied, "b.csv": AppliedFile("e9", "d9", 9, 9, 9), "c.csv": AppliedFile("e3", "d3", 5, 1, 5)}
    assert tables_after(path, (ORDERS, FULL), (ORDERS, replace(FULL, applied=more)))[ORDERS].applied == more
    for applied in ({"z.csv": more["c.csv"]}, {}):
        again = tables_after(path, (ORDERS, replace(FULL, generation="g9", applied=applied)))
        assert again[ORDERS].applied == applied


def test_a_forgotten_table_is_not_known(path):
    with opened(path) as ledger:
        ledger.record(ORDERS, FULL)
        ledger.forget(ORDERS)
        ledger.forget(ITEMS)
    assert tables_after(path) == {}


def test_properties_and_the_mirrors_id_stay(path):
    with opened(path) as ledger:
        mirror = ledger.mirror
        ledger.set_property("anchor", "a|b")
    with opened(path) as ledger:
        assert (ledger.mirror, ledger.get_property("anchor"), ledger.get_property("unknown")) == (mirror, "a|b", "")


def test_a_reader_sees_the_ledger_while_it_is_open_and_cannot_change_it(path):
    with opened(path) as ledger:
        ledger.record(ORDERS, FULL)
        with closing(Ledger.read(path)) as reader:
            assert reader.tables() == {ORDERS: FULL}
            reader.forget(ORDERS)
        assert ledger.tables() == {ORDERS: FULL}
    assert tables_after(path) == {ORDERS: FULL}


def test_reading_no_ledger_finds_nothing_and_makes_nothing(path):
    with closing(Ledger.read(path)) as reader:
        assert reader.tables() == {}
    assert not path.parent.exists()


def without_a_page(content):
    return content[: -4096 - 2048] + bytes(2048) + content[-4096:]


HARMS = {
    "emptied": lambda _: b"",
    "garbage": lambda _: b"no database at all",
    "truncated": lambda content: content[: len(content) // 2],
    "a page lost its bytes": without_a_page,
}


@pytest.mark.slow
@pytest.mark.parametrize("harm", HARMS)
def test_a_damaged_ledger_is_put_aside_and_begun_again(path, harm):
    tables_after(path, (ORDERS, MANY))
    path.write_bytes(HARMS[harm](path.read_bytes()))
    assert tables_after(path) == {}
    assert list(tables_after(path, (ITEMS, Progress("g2", "folder-2")))) == [ITEMS]


WRONG = [
    *({"batch": 1.0}, {"batch": True}, {"external_change_version": "3"}, {"generation": 7}, {"markers_seen": 0}),
    *({"last_commit_at": float("inf")}, {"configured_at": {}}, {"missing_since": -1}, {"pending_etags": {"a": 1}}),
    *({"watermarks": {"": "7"}}, {"watermarks": {"": None}}, {"applied": []}, {"key_columns": [1]}, {"rejection": 1}),
    *({"declared_columns": [{"name": 1.5, "type": "string", "nullable": True}]}, {"naive_columns": [1]}),
    *({"rejection": []}, {"diagnostics": [[{"code": "ME999"}, 1]]}, {"naive_columns": "ab"}),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("statement", "value"),
    [
        *(("UPDATE tables SET progress = ?", {**FULL.to_json(), **wrong}) for wrong in WRONG),
        *(("UPDATE tables SET progress = ?", head) for head in ("[" * 100_000, "1", "null", '"x"', b"{}")),
        ("UPDATE applied SET etag = ?", None),
        ("UPDATE applied SET path = ? WHERE path = 'a.csv'", b"a"),
        ("UPDATE applied SET version = ?", "x"),
        ("UPDATE applied SET rows = ?", 1.5),
        ("UPDATE applied SET modified_ns = ?", None),
    ],
)
def test_values_of_other_types_are_no_progress(path, statement, value):
    tables_after(path, (ORDERS, FULL))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement, [json.dumps(value) if isinstance(value, dict) else value])
    assert Ledger.read(path).tables() == {}
    assert tables_after(path) == {}
    assert path.with_name("damaged-ledger.sqlite").exists()
