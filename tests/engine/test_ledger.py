"""The ledger: what is recorded is what is read back, whatever becomes of the file."""

from __future__ import annotations

import json
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror_engine.engine.ledger import Ledger
from mirror_engine.errors import StorageUnavailable
from mirror_engine.landing_zone.diagnostics import diagnose
from mirror_engine.landing_zone.listing import partition_of
from mirror_engine.landing_zone.names import TableName
from mirror_engine.landing_zone.progress import Applied, AppliedFile, FolderProgress, Mark, Progress, Rejection, Segment
from mirror_engine.landing_zone.schema import Column

ORDERS, ITEMS = TableName("Sales", "Orders"), TableName("", "Items")
FULL = Progress(
    "g1",
    "folder-1",
    batch=3,
    delta_version=4,
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
    diagnostics={diagnose("ME039", "Sales.schema/Orders/a.csv", count=2): 3},
    segments=(Segment(2, 9, 1.5, "applied-2.json"),),
)
LATE_NS = 10**19  # beyond 2262, and beyond SQLite's integers
FILES = Applied(
    {"a.csv": AppliedFile("e1", "d1", 4, 10, 123), "b.csv": AppliedFile("e2", "d2", -1, 0, LATE_NS, "merge", "text")},
    {"": Mark(7, 9, "b.csv", LATE_NS, "b.csv"), "day=1": Mark(10**20 - 1)},
)
MANY = {f"{number}.csv": AppliedFile("e", "d", 1, 1, 1) for number in range(2000)}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "deep" / "ledger.sqlite"


def opened(path):
    return closing(Ledger.open(path))


def tables_after(path, *records):
    """What a ledger knows, opened again, after these tables were recorded."""
    with opened(path) as ledger:
        for table, *recorded in records:
            ledger.record(table, *recorded)
    with opened(path) as ledger:
        return ledger.tables()


def test_everything_recorded_is_read_back(path):
    tables = {ORDERS: FULL, ITEMS: Progress("g2", "folder-2"), TableName("", "Orders"): Progress("g3", "folder-3")}
    assert tables_after(path, *tables.items()) == tables


def test_opening_a_ledger_writes_nothing(path):
    tables_after(path, (ORDERS, FULL, FILES))
    before = path.read_bytes()
    with opened(path) as ledger:
        assert (ledger.applied(ORDERS), ledger.marks(ORDERS)) == (FILES.files, FILES.marks)
    assert path.read_bytes() == before


def test_files_are_queried_by_path_version_and_content(path):
    more = {"b.csv": AppliedFile("e9", "d9", 9, 9, 9), "day=1/c.csv": AppliedFile("e3", "d1", 5, 1, 5)}
    with opened(path) as ledger:
        ledger.record(ORDERS, FULL, FILES, {"c.csv": "e3", "d.csv": "e4"})
        ledger.record(ITEMS, replace(FULL, generation="g2"), Applied(MANY))
        ledger.record(ORDERS, replace(FULL, delta_version=9), Applied(more, {"day=1": Mark(1)}), {"d.csv": None})
    with opened(path) as ledger:
        files, marks = {**FILES.files, **more}, {**FILES.marks, "day=1": Mark(1)}
        assert (ledger.applied(ORDERS), ledger.marks(ORDERS)) == (files, marks)
        known = FolderProgress(marks, {"b.csv": more["b.csv"]}, {"c.csv": "e3"})
        assert ledger.folder(ORDERS, ["b.csv", "new.csv"]) == known
        assert ledger.applied(ORDERS, after=4) == more
        assert ledger.applied(ORDERS, []) == {}
        assert (ledger.marks(ORDERS, after=4), ledger.marks(ORDERS, [""])) == ({"day=1": Mark(1)}, {"": marks[""]})
        content = [ledger.same_content(ORDERS, *each) for each in (("", "d1"), ("day=1", "d1"), ("", "d2"), ("", "x"))]
        assert content == ["a.csv", "day=1/c.csv", "", ""]  # `b.csv` had no row when it had these bytes
        assert ledger.folder(TableName("", "Unknown"), ["b.csv"]) == FolderProgress()


PATHS = [f"day={day}/{number}.csv" for day in range(2) for number in range(4)]
paths_of = st.lists(st.sampled_from(PATHS), unique=True)
etags_of = st.dictionaries(st.sampled_from(PATHS), st.sampled_from(["e1", "e2", None]), max_size=3)


@st.composite
def changes_of_a_ledger(draw):
    """What an engine does to a table's rows, and which files it lists after each change."""
    steps, version, generation = [], 0, 1
    for _ in range(draw(st.integers(1, 8))):
        version += draw(st.integers(0, 1))
        files = {path: AppliedFile(draw(st.sampled_from("ab")), "d", version, 1, 1) for path in draw(paths_of)}
        marks = {partition_of(path): Mark(version, latest=path) for path in files}
        what = draw(st.sampled_from(["record"] * 6 + ["is_whole", "new generation", "forget"]))
        generation += what == "new generation"
        head = replace(FULL, generation=str(generation), delta_version=version)
        steps.append((what, head, Applied(files, marks), draw(etags_of), draw(paths_of)))
    return steps


@given(changes_of_a_ledger())
def test_folder_is_what_the_rows_say_after_any_change(steps):
    """What is kept in memory of a table folder is what a ledger that is opened now reads, and what was recorded."""
    with TemporaryDirectory() as folder, opened(Path(folder) / "ledger.sqlite") as ledger:
        ledger.record(ITEMS, FULL, FILES)
        before, marks, files, waiting = [], {}, {}, {}
        for what, head, applied, pending, listed in steps:
            if what in {"forget", "new generation"}:
                marks, files, waiting = {}, {}, {}
            elif what == "is_whole":
                marks, files = {}, {}
            if what == "forget":
                ledger.forget(ORDERS)
            else:
                ledger.record(ORDERS, head, applied, pending, is_whole=what == "is_whole")
                marks, files = marks | applied.marks, files | applied.files
                waiting = {path: etag for path, etag in waiting.items() if path not in applied.files} | pending
                waiting = {path: etag for path, etag in waiting.items() if etag}
            for paths in (before, listed):
                known = ledger.folder(ORDERS, paths)
                assert known == FolderProgress(marks, {path: files[path] for path in paths if path in files}, waiting)
                with closing(Ledger.read(Path(folder) / "ledger.sqlite")) as fresh:
                    found = fresh.folder(ORDERS, paths)
                assert (known, [*known.applied]) == (found, [*found.applied])
            before = listed
        assert ledger.folder(ITEMS, FILES.files) == FolderProgress(FILES.marks, FILES.files, {})


def test_folder_that_was_handed_out_does_not_change(path):
    with opened(path) as ledger:
        ledger.record(ORDERS, FULL, pending={"b.csv": "e2"})
        known = ledger.folder(ORDERS, ["a.csv", "b.csv"])
        ledger.record(ORDERS, FULL, FILES)
        assert known == FolderProgress({}, {}, {"b.csv": "e2"})


def test_folder_of_a_lost_ledger_is_not_known(path):
    with opened(path) as ledger:
        ledger.record(ORDERS, FULL, FILES)
        ledger.folder(ORDERS, ["a.csv"])
        ledger.is_lost = True
        with pytest.raises(StorageUnavailable, match="the ledger was damaged"):
            ledger.folder(ORDERS, ["a.csv"])


@pytest.mark.parametrize("listed", [50, 5_000])
def test_folder_looks_up_only_files_listed_anew(path, listed):
    files = {f"{number}.csv": AppliedFile("e", "d", 1, 1, 1) for number in range(listed)}
    with opened(path) as ledger:
        ledger.record(ORDERS, FULL, Applied(files))
        ledger.folder(ORDERS, files)
        steps = []
        ledger._connection.set_progress_handler(lambda: steps.append(1), 1)
        ledger.folder(ORDERS, [*files, "new.csv"])
        ledger.record(ORDERS, FULL, Applied({"new.csv": FILES.files["a.csv"]}))
        assert ledger.folder(ORDERS, [*files, "new.csv"]).applied == {**files, "new.csv": FILES.files["a.csv"]}
        assert len(steps) < 500  # SQLite's instructions; a look at 50 files takes 1,000


QUERIES = {
    "by path": lambda ledger, _: ledger.applied(ORDERS, ["1.csv"]),
    "after a version": lambda ledger, files: ledger.applied(ORDERS, after=files - 3),
    "applied last": lambda ledger, _: ledger.applied(ORDERS, newest=3),
    "by content": lambda ledger, _: ledger.same_content(ORDERS, "", "d"),
    "by other content": lambda ledger, _: ledger.same_content(ORDERS, "", "x"),
    "marks": lambda ledger, _: ledger.marks(ORDERS, ["day=1"]),
    "archive": lambda ledger, _: ledger.archive_times(ORDERS),
}


def steps_of(query, files):
    """How many instructions SQLite takes for a query, after so many files of one content."""
    with closing(Ledger.fresh()) as ledger:
        applied = {f"{number}.csv": AppliedFile("e", "d", number, 1, 1) for number in range(files)}
        ledger.record(ORDERS, replace(FULL, delta_version=files), Applied(applied, FILES.marks))
        steps = []
        ledger._connection.set_progress_handler(lambda: steps.append(1), 1)
        query(ledger, files)
        return len(steps)


@pytest.mark.slow
@pytest.mark.parametrize("query", QUERIES)
def test_query_costs_the_same_however_many_files_were_applied(query):
    assert steps_of(QUERIES[query], 5_000) <= 2 * steps_of(QUERIES[query], 50)


def test_folder_of_an_unknown_table_is_not_kept(path):
    with opened(path) as ledger:
        ledger.record(ORDERS, FULL, FILES)
        ledger.forget(ORDERS)
        assert ledger.folder(ORDERS, ["a.csv"]) == ledger.folder(ITEMS, ["a.csv"]) == FolderProgress({}, {}, {})
        assert ledger._folders == {}


def test_properties_and_the_mirrors_id_stay(path):
    with opened(path) as ledger:
        mirror = ledger.mirror
        ledger.set_property("anchor", "a|b")
    with opened(path) as ledger:
        assert (ledger.mirror, ledger.get_property("anchor"), ledger.get_property("unknown")) == (mirror, "a|b", "")


def test_a_reader_sees_the_ledger_while_it_is_open_and_cannot_change_it(path):
    with opened(path) as ledger:
        ledger.record(ORDERS, FULL, FILES)
        with closing(Ledger.read(path)) as reader:
            ledger.record(ITEMS, FULL)  # the reader stays at its moment
            assert (reader.tables(), reader.applied(ORDERS)) == ({ORDERS: FULL}, FILES.files)
            reader.forget(ORDERS)
            reader.set_property("anchor", "mine")
            assert (reader.tables(), reader.applied(ORDERS), reader.get_property("anchor")) == ({}, {}, "mine")
        assert ledger.tables() == {ORDERS: FULL, ITEMS: FULL}
        ledger.forget(ITEMS)
    assert tables_after(path) == {ORDERS: FULL}


def test_reading_no_ledger_finds_nothing_and_makes_nothing(path):
    with closing(Ledger.read(path)) as reader:
        assert reader.tables() == {}
    assert not path.parent.exists()


def test_reading_a_ledger_whose_engine_just_makes_it_finds_nothing(path):
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as begun:
        begun.executescript("PRAGMA journal_mode = WAL; CREATE TABLE properties (name TEXT, value TEXT);")
        begun.execute("CREATE TABLE tables (id INTEGER, schema_folder TEXT, table_folder TEXT, progress TEXT)")
        with closing(Ledger.read(path)) as reader:
            assert (reader.tables(), reader.folder(ORDERS, ["a.csv"])) == ({}, FolderProgress())


HARMS = {
    "emptied": lambda _: b"",
    "garbage": lambda _: b"no database at all",
    "truncated": lambda content: content[: len(content) // 2],
}


@pytest.mark.slow
@pytest.mark.parametrize("harm", HARMS)
def test_a_damaged_ledger_is_put_aside_and_begun_again(path, harm):
    tables_after(path, (ORDERS, FULL, Applied(MANY)))
    path.write_bytes(HARMS[harm](path.read_bytes()))
    assert tables_after(path) == {}
    assert list(tables_after(path, (ITEMS, Progress("g2", "folder-2")))) == [ITEMS]


def test_damage_among_files_is_found_by_the_query_that_meets_it(path):
    tables_after(path, (ORDERS, FULL, Applied(MANY)))
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2] + bytes(8192) + content[len(content) // 2 + 8192 :])
    with opened(path) as ledger:
        assert ledger.tables() == {ORDERS: FULL}
        with pytest.raises(StorageUnavailable, match="cannot read the ledger"):
            ledger.applied(ORDERS)
        assert (ledger.is_lost, ledger.tables()) == (True, {})
        with pytest.raises(StorageUnavailable, match="was damaged"):
            ledger.record(ITEMS, FULL, FILES)  # other files of this table may be in its log
        with pytest.raises(StorageUnavailable, match="was damaged"):
            ledger.applied(ORDERS)
        ledger.is_lost = False
        ledger.record(ITEMS, FULL, FILES)
    assert path.with_name("damaged-ledger.sqlite").exists()
    assert tables_after(path) == {ITEMS: FULL}


WRONG = [
    *({"batch": 1.0}, {"batch": True}, {"external_change_version": "3"}, {"generation": 7}, {"markers_seen": 0}),
    *({"last_commit_at": float("inf")}, {"configured_at": {}}, {"missing_since": -1}, {"segments": [1]}),
    *({"segments": {"": "7"}}, {"batch": None}, {"key_columns": [1]}, {"rejection": 1}),
    *({"declared_columns": [{"name": 1.5, "type": "string", "nullable": True}]}, {"naive_columns": [1]}),
    *({"rejection": []}, {"diagnostics": [[{"code": "ME999"}, 1]]}, {"naive_columns": "ab"}),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("statement", "value"),
    [
        *(("UPDATE tables SET progress = ?", {**FULL.to_json(), **wrong}) for wrong in WRONG),
        *(("UPDATE tables SET progress = ?", head) for head in ("[" * 100_000, "1", "null", '"x"', b"{}")),
    ],
)
def test_values_of_other_types_are_no_progress(path, statement, value):
    tables_after(path, (ORDERS, FULL))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement, [json.dumps(value) if isinstance(value, dict) else value])
    assert Ledger.read(path).tables() == {}
    assert tables_after(path) == {}
    assert path.with_name("damaged-ledger.sqlite").exists()


@pytest.mark.parametrize(
    ("statement", "value"),
    [
        ("UPDATE applied SET etag = ?", None),
        ("UPDATE applied SET path = ? WHERE path = 'a.csv'", b"a"),
        ("UPDATE applied SET version = ?", "x"),
        ("UPDATE applied SET rows = ?", 1.5),
        ("UPDATE applied SET modified_ns = ?", None),
        ("UPDATE marks SET watermark = ?", "x"),
        ("UPDATE marks SET latest = ?", None),
        ("UPDATE applied SET etag = CAST(? AS TEXT)", b"\xff"),  # text that is no UTF-8
    ],
)
def test_files_of_other_types_are_not_believed(path, statement, value):
    tables_after(path, (ORDERS, FULL, FILES))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement, [value])
    with opened(path) as ledger:
        with pytest.raises(StorageUnavailable):
            _ = ledger.applied(ORDERS), ledger.marks(ORDERS)
        assert ledger.is_lost


def damage(path, name):
    """Overwrite the first page of a table or index."""
    with closing(sqlite3.connect(path)) as connection:
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", [name]).fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    with path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)


def test_damage_that_a_write_meets_is_put_aside(path):
    tables_after(path, (ORDERS, FULL, FILES))
    damage(path, "applied_version")
    with opened(path) as ledger:
        assert ledger.folder(ORDERS, FILES.files).applied == FILES.files
        with pytest.raises(StorageUnavailable, match="cannot write the ledger"):
            ledger.record(ORDERS, FULL, Applied({"c.csv": FILES.files["a.csv"]}))
        ledger.is_lost = False  # as a cycle does before it reads the Delta logs
        assert ledger.folder(ORDERS, FILES.files) == FolderProgress()
    assert path.with_name("damaged-ledger.sqlite").exists()
    assert tables_after(path) == {}


def test_errors_of_this_program_are_no_damage(path):
    tables_after(path, (ORDERS, FULL, FILES))
    ledger = Ledger.open(path)
    ledger.close()
    with pytest.raises(sqlite3.ProgrammingError):
        ledger.applied(ORDERS)
    assert tables_after(path) == {ORDERS: FULL}


def test_threads_that_meet_damage_at_once_neither_crash_nor_record(path):
    tables_after(path, (ORDERS, FULL, Applied(MANY)))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE applied SET version = 'x' WHERE path = '1999.csv'")
    with opened(path) as ledger, ThreadPoolExecutor(4) as pool:
        work = [lambda: ledger.applied(ORDERS), lambda: ledger.record(ORDERS, FULL, FILES)] * 8
        outcomes = [pool.submit(each) for each in work]
        errors = [each.exception() for each in outcomes]
        assert all(error is None or isinstance(error, StorageUnavailable) for error in errors)
        assert (ledger.is_lost, ledger.tables()) == (True, {})
