"""The janitor: moves what is applied, keeps the newest, deletes when the time is up, touches nothing else."""

from __future__ import annotations

import itertools
import json
import threading
import time
from dataclasses import replace

import pytest
from memory_storage import MemoryStorage, read

from mirror_engine.config import Config
from mirror_engine.engine import janitor
from mirror_engine.engine.janitor import Janitor
from mirror_engine.engine.ledger import Ledger
from mirror_engine.engine.poller import Poller
from mirror_engine.errors import RootLocked
from mirror_engine.landing_zone.detection import marks_after
from mirror_engine.landing_zone.listing import MetadataAbsent, MetadataUsable
from mirror_engine.landing_zone.metadata import Metadata, Strategy
from mirror_engine.landing_zone.names import READY_TO_DELETE_INFO, TableName
from mirror_engine.landing_zone.progress import AppliedFile, FolderProgress, Progress

ZONE = "Files/LandingZone"
ORDERS = TableName("", "Orders")
READY = f"{ZONE}/Orders/_FilesReadyToDelete"
INFO = f"{READY}/{READY_TO_DELETE_INFO}"
DAY = 86_400.0


class JanitorZone:
    """One table folder in memory, with a clock that a test turns."""

    def __init__(self, **options):
        self.now = 1_000_000.0
        self.storage = MemoryStorage()
        self.config = Config(**options)
        self.restart(Ledger.fresh())

    def restart(self, ledger):
        self.ledger = ledger
        ledger.record(ORDERS, Progress("g", "f"))
        self.janitor = Janitor(self.storage, ledger, self.config, lambda: self.now)

    def land(self, *paths):
        for number, path in enumerate(paths):
            self.storage.put(f"{ZONE}/Orders/{path}", b"x", modified_ns=number + 1)

    def listing(self):
        (table,) = Poller(self.storage, self.config).scan().tables
        return table

    def clean(self, *applied):
        listing = self.listing()
        known = known_of(file for file in listing.files if file.path in applied)
        self.janitor.clean(ZONE, listing, Progress("g", "f"), known)
        return len(listing.files) - len(self.listing().files)

    def names(self, folder):
        return [entry.name for entry in self.storage.list(folder) or ()]

    def info(self):
        return json.loads(read(self.storage, INFO))

    def lose_ledger(self):
        self.restart(Ledger.fresh())


def archived(*numbers):
    """A zone in which all these files were applied, and all but the last one archived."""
    zone = JanitorZone()
    zone.land(*numbered(*numbers))
    zone.clean(*numbered(*numbers))
    return zone


def known_of(files, watermark=0):
    applied = {file.path: AppliedFile(file.etag, "d", 1, 1, file.modified_ns) for file in files}
    marks = marks_after({}, applied, in_order=False)
    return FolderProgress({place: replace(mark, watermark=watermark) for place, mark in marks.items()}, applied)


def numbered(*numbers):
    return [f"{number:020d}.parquet" for number in numbers]


@pytest.mark.parametrize("is_store", [False, True])
def test_once_root_is_lost_no_further_file_is_moved(is_store):
    zone, checks = JanitorZone(), itertools.count(1)
    zone.storage.is_store = is_store  # many are moved at once
    zone.land(*numbered(*range(1, 40)))

    def check_lock():
        if next(checks) > 5:
            raise RootLocked("the lease was lost")

    zone.janitor = Janitor(zone.storage, zone.ledger, Config(), lambda: zone.now, check_lock)
    with pytest.raises(RootLocked):
        zone.clean(*numbered(*range(1, 40)))
    assert len(zone.names(f"{ZONE}/Orders/_FilesReadyToDelete")) == 5


BY_TIME = MetadataUsable("m", Metadata(strategy=Strategy.LAST_UPDATE_TIME))
BY_NUMBER = MetadataUsable("m", Metadata())


@pytest.mark.parametrize(
    ("metadata", "watermark", "newest"),
    [
        (BY_TIME, 0, "-a.parquet"),
        (BY_TIME, 7, "-a.parquet"),  # numbered until its strategy changed
        (BY_NUMBER, 0, numbered(7)[0]),
        (MetadataAbsent(), 0, "-a.parquet"),
        (MetadataAbsent(), 7, numbered(7)[0]),
    ],
)
def test_the_newest_is_found_by_time_unless_the_table_numbers_its_files(metadata, watermark, newest):
    zone = JanitorZone()
    zone.land(*numbered(7), "-a.parquet")
    listing = replace(zone.listing(), metadata=metadata)
    zone.janitor.clean(ZONE, listing, Progress("g", "f"), known_of(listing.files, watermark))
    assert [name for name in zone.names(f"{ZONE}/Orders") if name.endswith(".parquet")] == [newest]


def test_retention_is_seven_days_by_the_info_file():
    zone = JanitorZone()
    zone.land(*numbered(1, 2, 3))
    zone.clean(*numbered(1, 2))
    zone.now += 3 * DAY
    zone.clean(*numbered(2, 3))
    info = zone.info()
    assert info == {
        "files": [
            {"name": numbered(1)[0], "readyAtUtc": "1970-01-12T13:46:40.000000Z"},
            {"name": numbered(2)[0], "readyAtUtc": "1970-01-15T13:46:40.000000Z"},
        ]
    }
    zone.now += 4 * DAY
    zone.clean()
    assert zone.names(READY) == [*numbered(2), READY_TO_DELETE_INFO]
    zone.now += 3 * DAY
    zone.clean()
    assert zone.names(READY) == [READY_TO_DELETE_INFO]


def test_long_archive_is_listed_once_an_hour(monkeypatch):
    monkeypatch.setattr(janitor, "MAX_LISTED", 2)
    zone, listed = JanitorZone(), []
    monkeypatch.setattr(zone.storage, "list", lambda path, of=zone.storage.list: listed.append(path) or of(path))
    zone.land(*numbered(*range(1, 9)))
    zone.clean(*numbered(1, 2, 3, 4))
    for last in (5, 6, 7):
        zone.now += 60
        listed.clear()
        assert zone.clean(*numbered(last - 1, last)) == 1
        assert READY not in listed
    assert zone.info()["files"][-1]["name"] == numbered(3)[0]
    zone.now += 3600
    zone.clean()
    files = zone.info()["files"]
    assert [file["name"] for file in files] == numbered(1, 2, 3, 4, 5, 6)
    assert [file["readyAtUtc"][14:19] for file in files] == ["46:40", "46:40", "46:40", "47:40", "48:40", "49:40"]
    zone.now += 7 * DAY
    zone.clean()
    assert zone.names(READY) == [READY_TO_DELETE_INFO]


@pytest.mark.parametrize(
    "harm",
    [
        *(b"", b"{", b'{"files": 3}', b'{"files": [{"name": 1}]}', b'{"files": [{}]}', b"\xff"),
        b'{"files": [{"name": "1.parquet", "readyAtUtc": "9999-12-31T23:59:59.0-23:59"}]}',
    ],
)
def test_lost_ledger_and_damaged_info_file_restart_the_retention(harm):
    zone = archived(1, 2)
    zone.storage.put(INFO, harm)
    zone.now += 6 * DAY
    zone.lose_ledger()
    zone.clean()
    zone.now += 6 * DAY
    zone.clean()
    assert zone.names(READY) == [*numbered(1), READY_TO_DELETE_INFO]
    zone.now += DAY
    zone.clean()
    assert zone.names(READY) == [READY_TO_DELETE_INFO]


@pytest.mark.slow
def test_lost_ledger_takes_retention_from_a_large_info_file():
    zone = archived(1, 2)
    info = zone.info()
    others = {"name": "x" * 1_000_000, "readyAtUtc": info["files"][0]["readyAtUtc"]}
    large = json.dumps({"files": [others] * 65 + info["files"]}).encode()
    zone.storage.put(INFO, large)
    zone.now += 6 * DAY
    zone.lose_ledger()
    zone.clean()
    zone.now += DAY
    zone.clean()
    assert zone.names(READY) == [READY_TO_DELETE_INFO]


def test_lost_ledger_after_a_clock_ahead_keeps_retention():
    zone = JanitorZone()
    zone.land(*numbered(1, 2))
    zone.now += 4000 * DAY
    zone.clean(*numbered(1, 2))
    zone.now -= 4000 * DAY
    zone.lose_ledger()
    for days, is_there in ((0, True), (6.9, True), (0.2, False)):
        zone.now += days * DAY
        zone.clean()
        assert (numbered(1)[0] in zone.names(READY)) == is_there


def test_info_file_is_not_needed_to_delete_expired_files():
    zone = archived(1, 2)
    zone.storage.put(INFO, b"{")
    zone.now += 7 * DAY
    zone.restart(zone.ledger)
    zone.clean()
    assert zone.names(READY) == [READY_TO_DELETE_INFO]


def test_file_archived_again_keeps_its_later_time():
    zone = archived(1, 2)
    zone.now += 6 * DAY
    zone.storage.move(f"{READY}/{numbered(1)[0]}", f"{ZONE}/Orders/{numbered(1)[0]}")
    zone.clean(*numbered(1, 2))
    zone.now += 6 * DAY
    zone.clean()
    assert zone.names(READY) == [*numbered(1), READY_TO_DELETE_INFO]


def test_archive_of_an_idle_table_is_not_listed(monkeypatch):
    """Neither after a restart nor by time: what others put there is noticed when the engine next works in it."""
    zone, listed = JanitorZone(), []
    zone.land(*numbered(1, 2, 3))
    zone.clean(*numbered(1, 2))
    zone.storage.put(f"{READY}/strange", b"x")
    monkeypatch.setattr(zone.storage, "list", lambda path, of=zone.storage.list: listed.append(path) or of(path))
    zone.restart(zone.ledger)
    listing, progress = zone.listing(), Progress("g", "f")
    for _ in range(3):
        zone.now += DAY
        zone.janitor.clean(ZONE, listing, progress, FolderProgress())
        assert not zone.janitor.is_due(listing, progress)
    assert READY not in listed
    zone.clean(*numbered(2, 3))
    assert READY in listed
    zone.now += 7 * DAY
    zone.clean()
    assert zone.names(READY) == [READY_TO_DELETE_INFO]


def test_file_whose_move_fails_is_not_noted_as_archived():
    zone = JanitorZone()
    zone.land(*numbered(1, 2))
    listing = zone.listing()
    zone.storage.put(f"{ZONE}/Orders/{numbered(1)[0]}", b"other")
    zone.janitor.clean(ZONE, listing, Progress("g", "f"), known_of(listing.files))
    assert zone.ledger.archived(ORDERS) == {}


def test_emptied_archive_leaves_the_info_file_with_the_next_move():
    zone = JanitorZone()
    zone.land(*numbered(1, 2, 3))
    zone.clean(*numbered(1, 2))
    zone.storage.delete(READY)
    zone.clean(*numbered(2, 3))
    info = zone.info()
    assert [file["name"] for file in info["files"]] == numbered(2)


def test_retention_of_both_archives_begins_in_the_second():
    zone = JanitorZone(cleanup="both")
    processed = f"{ZONE}/Orders/_ProcessedFiles"
    zone.land(*numbered(1, 2, 3))
    assert zone.clean(*numbered(1, 2)) == 1
    assert (zone.names(processed), zone.names(READY)) == (numbered(1), [])
    zone.now += 6 * DAY
    assert zone.clean(*numbered(2, 3)) == 1
    assert (zone.names(processed), zone.names(READY)) == (
        numbered(2),
        [*numbered(1), READY_TO_DELETE_INFO],
    )
    zone.now += 6 * DAY
    zone.clean()
    assert (zone.names(processed), zone.names(READY)) == ([], [*numbered(1, 2), READY_TO_DELETE_INFO])
    zone.now += DAY
    zone.clean()
    assert zone.names(READY) == [*numbered(2), READY_TO_DELETE_INFO]


def test_a_folder_is_due_when_it_changed_or_a_file_expired():
    zone = JanitorZone()
    zone.land(*numbered(0, 1))
    zone.clean(*numbered(0, 1))
    zone.land(*numbered(1, 2))
    listing, progress = zone.listing(), Progress("g", "f")
    assert zone.janitor.is_due(listing, progress)
    zone.janitor.clean(ZONE, listing, progress, FolderProgress())
    assert not zone.janitor.is_due(listing, progress)
    assert zone.janitor.is_due(replace(listing), progress)
    assert zone.janitor.is_due(listing, replace(progress))
    zone.now += 7 * DAY - 1
    assert not zone.janitor.is_due(listing, progress)
    zone.now += 1
    assert zone.janitor.is_due(listing, progress)
    zone.janitor.clean(ZONE, listing, progress, FolderProgress())
    assert not zone.janitor.is_due(listing, progress)
    zone.janitor.keep(set())
    assert zone.janitor.is_due(listing, progress)
    assert not JanitorZone(cleanup="off").janitor.is_due(listing, progress)


def test_endless_folders_among_moved_files_are_left_alone():
    zone = JanitorZone()
    zone.land(*numbered(1, 2))
    deep = f"{READY}/{'d/' * 40}f"
    zone.storage.put(deep, b"x")
    zone.clean(*numbered(1, 2))
    zone.now += 8 * DAY
    zone.clean()
    assert zone.names(READY) == [READY_TO_DELETE_INFO, "d"]
    assert zone.storage.stat(deep)


class SlowName(TableName):
    """A table name whose hash lets other threads run, as a busy machine does."""

    def __hash__(self):
        time.sleep(1e-5)
        return super().__hash__()


@pytest.mark.slow
def test_tables_are_forgotten_while_other_threads_clean():
    zone, failures = JanitorZone(), []
    zone.land(*numbered(1))
    listing = zone.listing()

    def clean(thread):
        try:
            for number in range(60):
                named = replace(listing, name=SlowName("", f"{thread}-{number}"))
                zone.janitor.clean(ZONE, named, Progress("g", "f"), FolderProgress())
        except RuntimeError as error:
            failures.append(error)

    threads = [threading.Thread(target=clean, args=(thread,)) for thread in range(2)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        zone.janitor.keep({ORDERS})
    assert not failures
