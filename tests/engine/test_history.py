"""The history of ROOT: drops and halts stay for long, whatever else happens how often."""

from __future__ import annotations

import json

import pytest

from mirror_engine.engine import history
from mirror_engine.engine.changes import Changes
from mirror_engine.engine.history import History, recorded_changes
from mirror_engine.events import (
    ArchivedFilesDeleted,
    FilesArchived,
    TableDropped,
    TableHalted,
    TableMaintained,
    TableResumed,
    ignore,
)
from mirror_engine.landing_zone.diagnostics import diagnose
from mirror_engine.landing_zone.names import TableName

DAY = 86_400.0
ITEMS, ORDERS = TableName("", "Items"), TableName("Sales", "Orders")
EMPTY = diagnose("ME023", "Items/1.parquet")


class Recorded:
    """An engine's events, recorded in a file."""

    def __init__(self, path):
        self.path, self.now = path, 20_000 * DAY
        self.emit = Changes(lambda: self.now, ignore, History(path).add)

    def kinds(self, table=None):
        return [each.kind for each in recorded_changes(self.path) if table in {None, each.table}]


@pytest.fixture
def past(ram):
    return Recorded(ram / "history.jsonl")


@pytest.mark.slow
@pytest.mark.parametrize("limit", [4_096, 16_384])
def test_file_a_second_for_30_days_leaves_drops_and_halts(past, monkeypatch, limit):
    """In a fast form: 300 files in five minutes, in a history that is as much smaller."""
    monkeypatch.setattr(history, "MAX_HISTORY_BYTES", limit)
    past.emit(TableDropped(ORDERS, "deleted"))
    past.emit(TableHalted(ITEMS, EMPTY))
    past.emit(TableResumed(ITEMS))
    began, largest = past.now, 0
    for number in range(30 * 24 * 12):
        past.now = began + number * 300
        past.emit(ArchivedFilesDeleted(ITEMS, 300))
        if number % 200 == 0:
            past.emit(TableMaintained(ITEMS, {"files_removed": 3}, 0.1))
            largest = max(largest, past.path.stat().st_size)
    found = recorded_changes(past.path)
    deleted = [each for each in found if each.kind == "archived_files_deleted"]
    assert [each.kind for each in reversed(found)][:3] == ["dropped", "halted", "resumed"]
    assert sum(each.files for each in deleted) == 30 * 86_400
    assert (len(deleted), {each.times for each in deleted}) == (30, {24 * 12})
    assert sum(each.times for each in found if each.kind == "maintained") == 44
    assert largest < 3 * limit
    assert not [*past.path.parent.glob("*.*.*")]  # and no other file is left


def test_oldest_sums_go_before_any_drop(past, monkeypatch):
    monkeypatch.setattr(history, "MAX_HISTORY_BYTES", 2_000)
    began = past.now
    past.emit(TableDropped(ORDERS, "deleted"))
    for day in range(1_000):
        past.now = began + day * DAY
        past.emit(ArchivedFilesDeleted(ITEMS, 1))
    assert past.kinds()[-1] == "dropped"
    newest = [each for each in recorded_changes(past.path) if each.kind != "dropped"]
    assert newest[0].at == began + 999 * DAY
    for _ in range(200):
        past.emit(TableDropped(ITEMS, "deleted"))
    assert past.path.stat().st_size < 6_000  # where nothing else can go, the oldest drops do
    assert past.kinds()[0] == "dropped"


def test_changes_of_a_day_are_added_up_by_table_and_kind(past):
    for table, files in ((ITEMS, 1), (ORDERS, 2), (ITEMS, 4)):
        past.emit(ArchivedFilesDeleted(table, files))
    past.now += DAY
    past.emit(ArchivedFilesDeleted(ITEMS, 8))
    assert [(each.table, each.files, each.times) for each in recorded_changes(past.path)] == [
        (ITEMS, 8, 1),
        (ITEMS, 5, 2),
        (ORDERS, 2, 1),
    ]
    assert [each.files for each in recorded_changes(past.path, limit=1)] == [8]


def test_halts_are_never_added_up(past):
    for _ in range(3):
        past.emit(TableHalted(ITEMS, EMPTY))
        past.emit(TableResumed(ITEMS))
    assert past.kinds() == ["resumed", "halted"] * 3


def test_cut_line_takes_no_other_with_it(past):
    past.emit(TableDropped(ITEMS, "deleted"))
    with past.path.open("a", encoding="utf-8") as file:
        file.write('[2.0, "It')  # the machine failed
    past.emit(TableDropped(ORDERS, "deleted"))
    assert [each.table for each in recorded_changes(past.path)] == [ORDERS, ITEMS]


def test_unreadable_lines_are_left_out(past):
    past.path.write_text('[1.0, "Items", "halted", "ME023", 0, 1]\n[2.0, "Items"]\n[]\n1\n', encoding="utf-8")
    past.emit(TableDropped(ORDERS, "deleted"))
    assert past.kinds() == ["dropped", "halted"]


@pytest.mark.parametrize("at", [float("inf"), -1e300, 1e300])
def test_wild_times_stop_nothing(past, monkeypatch, at):
    monkeypatch.setattr(history, "MAX_HISTORY_BYTES", 200)
    past.path.write_text(json.dumps([at, "Items", "archived_files_deleted", "", 1, 1]) + "\n", encoding="utf-8")
    for _ in range(9):
        past.emit(TableDropped(ITEMS, "deleted"))
    assert past.kinds()


def test_archived_files_are_not_recorded(past):
    """Each commit has some."""
    past.emit(TableDropped(ITEMS, "deleted"))
    past.emit(FilesArchived(ITEMS, 3))
    assert past.kinds() == ["dropped"]
