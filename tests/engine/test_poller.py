"""What is in the landing zone (protocol chapter 1), seen in one state and read only when it changed."""

from __future__ import annotations

import os
from collections import Counter

import pytest
from memory_storage import MemoryStorage

from mirror_engine.config import Config
from mirror_engine.engine.poller import Poller
from mirror_engine.errors import NoAccess, StorageUnavailable
from mirror_engine.landing_zone.diagnostics import Severity
from mirror_engine.landing_zone.listing import MetadataAbsent, MetadataUsable
from mirror_engine.landing_zone.metadata import PartnerEvents
from mirror_engine.landing_zone.names import TableName
from mirror_engine.storage.local import LocalStorage
from mirror_engine.tools.trace.context import listing_of

ZONE = "Files/LandingZone"
FIRST = "00000000000000000001.parquet"
SECOND = "00000000000000000002.parquet"
KEYED = b'{"keyColumns": ["Id"]}'


class WatchedStorage(MemoryStorage):
    """A storage that counts calls, fails where it is emitted to, and lets a publisher act in between."""

    def __init__(self):
        super().__init__()
        self.calls = Counter()
        self.broken = set()
        self.error = StorageUnavailable
        self.meanwhile = {}

    def list(self, folder):
        self._before("list", folder)
        entries = super().list(folder)
        self._after("list", folder)
        return entries

    def open(self, path, only=None):
        self._before("open", path)
        file = super().open(path, only)
        self._after("open", path)
        return file

    def _before(self, call, path):
        self.calls[call] += 1
        if path in self.broken:
            raise self.error(f"{path}: broken")

    def _after(self, call, path):
        self.meanwhile.pop(f"{call} {path}", lambda: None)()


def zone_with(*paths, zone=ZONE, **contents):
    """A storage with these files in the zone; a name's content may be given by the stem of its last part."""
    storage = WatchedStorage()
    for path in paths:
        name = path.rpartition("/")[2]
        storage.put(f"{zone}/{path}", contents.get(name, KEYED if name == "_metadata.json" else b"x"))
    return storage


def look(storage, **options):
    return Poller(storage, Config(**options)).scan()


def said(listing):
    return [(each.code, each.path) for each in listing.diagnostics]


def folders(zone):
    return [table.name.folder for table in zone.tables]


def paths(table):
    return [each.path for each in table.files]


def remove(storage, path):
    return lambda: storage.delete(f"{ZONE}/{path}")


def recreate(storage, path):
    def act():
        storage.delete(f"{ZONE}/{path}")
        storage.put(f"{ZONE}/{path}/{FIRST}", b"new")

    return act


class TestZone:
    @pytest.mark.parametrize("comes_back", [False, True])
    def test_a_zone_that_goes_away_while_it_is_listed_is_an_error(self, comes_back):
        storage = zone_with(f"Items/{FIRST}")

        def go_away():
            storage.delete(ZONE)
            if comes_back:
                storage.put(f"{ZONE}/x", b"")

        storage.meanwhile[f"list {ZONE}"] = go_away
        with pytest.raises(StorageUnavailable, match="disappeared"):
            look(storage)


class TestTables:
    def test_tables_in_schema_folders_come_first_then_by_name(self):
        zone = look(zone_with(*(f"{each}/{FIRST}" for each in ("b", "A", "S.schema/z", "R.schema/a", "S.Schema", "s"))))
        assert folders(zone) == ["R.schema/a", "S.schema/z", "A", "S.Schema", "b", "s"]
        assert zone.tables[1].name == TableName("S", "z")

    @pytest.mark.slow
    def test_the_thousandth_table_is_reported_and_the_next_one_an_error_under_strict(self):
        """LZ-7.10."""
        storage = zone_with(*(f"T{number}/{FIRST}" for number in range(999)))
        assert look(storage).diagnostics == ()
        for place, count, severity in (("T999", "1,000", Severity.WARNING), ("S.schema/T", "1,001", Severity.ERROR)):
            storage.put(f"{ZONE}/{place}/{FIRST}", b"x")
            (diagnostic,) = look(storage, strict=True).diagnostics
            assert diagnostic.full_message == f"{count} tables; Fabric mirrors at most 1,000 [ME007]"
            assert diagnostic.severity is severity


class TestPartnerEvents:
    def test_they_are_read_once_for_display(self):
        storage = zone_with("_partnerEvents.json", **{"_partnerEvents.json": b'{"partnerName": "Acme"}'})
        poller = Poller(storage, Config())
        assert poller.scan().partner == poller.scan().partner == PartnerEvents("Acme")
        assert storage.calls["open"] == 1
        storage.put(f"{ZONE}/_partnerEvents.json", b'{"partnerName": "Other"}')
        assert poller.scan().partner == PartnerEvents("Other")
        storage.delete(f"{ZONE}/_partnerEvents.json")
        assert poller.scan().partner is None

    def test_unreadable_ones_change_nothing(self):
        storage = zone_with("_partnerEvents.json", f"Items/{FIRST}", **{"_partnerEvents.json": b"{"})
        poller = Poller(storage, Config())
        assert said(poller.scan()) == said(poller.scan()) == [("ME006", "_partnerEvents.json")]
        storage.broken.add(f"{ZONE}/_partnerEvents.json")
        assert folders(look(storage)) == ["Items"]


class TestMetadata:
    def test_it_is_read_again_only_when_it_changed(self):
        storage = zone_with("Items/_metadata.json")
        poller = Poller(storage, Config())
        first = poller.scan()
        assert poller.scan() == first
        storage.put(f"{ZONE}/Items/{FIRST}", b"x")
        assert paths(poller.scan().tables[0]) == [FIRST]
        assert storage.calls["open"] == 1
        storage.write_in_place(f"{ZONE}/Items/_metadata.json", b"{}")
        after = poller.scan().tables[0].metadata
        assert isinstance(after, MetadataUsable)
        assert after.metadata.key_columns == ()
        assert storage.calls["open"] == 2

    def test_metadata_that_changes_while_it_is_read_is_read_again(self):
        storage = zone_with("Items/_metadata.json", **{"_metadata.json": b"{"})
        path = f"{ZONE}/Items/_metadata.json"
        storage.meanwhile[f"open {path}"] = lambda: storage.put(path, KEYED)
        (table,) = look(storage).tables
        assert isinstance(table.metadata, MetadataUsable)

    def test_metadata_that_vanishes_before_it_is_read_is_absent(self):
        storage = zone_with("Items/_metadata.json", f"Items/{FIRST}")
        storage.meanwhile[f"list {ZONE}/Items"] = remove(storage, "Items/_metadata.json")
        (table,) = look(storage).tables
        assert table.metadata == MetadataAbsent()


class TestUnlisted:
    @pytest.mark.parametrize("below", ["", "/day=1", "/_metadata.json"])
    def test_a_table_folder_that_cannot_be_seen_whole_is_left_alone(self, below):
        storage = zone_with(f"S.schema/A/day=1/{FIRST}", "S.schema/A/_metadata.json", f"B/{FIRST}")
        storage.broken.add(f"{ZONE}/S.schema/A{below}")
        poller = Poller(storage, Config())
        zone = poller.scan()
        assert (folders(zone), zone.unlisted) == (["B"], {"S.schema/A"})
        storage.broken.clear()
        assert folders(poller.scan()) == ["S.schema/A", "B"]

    @pytest.mark.parametrize("folder", ["S.schema", "S.schema/A"])
    @pytest.mark.parametrize("error", [NoAccess, StorageUnavailable])
    def test_why_a_folder_is_not_listed_is_kept(self, folder, error):
        storage = zone_with(f"S.schema/A/{FIRST}", f"B/{FIRST}")
        storage.broken.add(f"{ZONE}/{folder}")
        storage.error = error
        zone = Poller(storage, Config()).scan()
        assert (zone.unlisted, zone.error_of(zone.unlisted)) == ({folder}, error)
        assert zone.error_of({folder, "B"}) is zone.error_of([]) is StorageUnavailable
        with pytest.raises(StorageUnavailable, match="A: cannot be listed") as problem:
            listing_of(storage, Config(), TableName("S", "A"))
        assert type(problem.value) is error

    @pytest.mark.parametrize("folder", ["S.schema", "S.schema/A"])
    def test_a_folder_that_goes_away_meanwhile_is_left_to_the_next_scan(self, folder):
        storage = zone_with(f"S.schema/A/{FIRST}", f"B/{FIRST}")
        above = f"{ZONE}/{folder}".rpartition("/")[0]
        storage.meanwhile[f"list {above}"] = remove(storage, folder)
        poller = Poller(storage, Config())
        zone = poller.scan()
        assert (folders(zone), zone.unlisted) == (["B"], {folder})
        assert poller.scan().unlisted == frozenset()

    def test_a_folder_recreated_meanwhile_is_seen_in_one_life(self):
        storage = zone_with("Items/_metadata.json", f"Items/{FIRST}")
        storage.meanwhile[f"list {ZONE}/Items"] = recreate(storage, "Items")
        (table,) = look(storage).tables
        now = storage.stat(f"{ZONE}/Items")
        assert (table.identity, table.metadata, len(table.files)) == (now.identity, MetadataAbsent(), 1)

    def test_a_folder_that_never_is_still_is_left_alone(self):
        storage = zone_with(f"Items/{FIRST}")

        def again():
            recreate(storage, "Items")()
            storage.meanwhile[f"list {ZONE}/Items"] = again

        again()
        zone = look(storage)
        assert (zone.tables, zone.unlisted) == ((), {"Items"})


class TestOnly:
    """Where something happened is listed; what is not listed is as it was, while its folder is the same."""

    def test_untouched_folders_are_not_listed(self):
        storage = zone_with(f"A/{FIRST}", f"B/{FIRST}", f"S.schema/C/{FIRST}")
        poller = Poller(storage, Config())
        poller.scan()
        for table in ("A", "B", "S.schema/C"):
            storage.put(f"{ZONE}/{table}/{SECOND}", b"x")
        storage.calls.clear()
        found = {table.name.folder: paths(table) for table in poller.scan({TableName("", "B")}).tables}
        assert found == {"A": [FIRST], "B": [FIRST, SECOND], "S.schema/C": [FIRST]}
        assert storage.calls["list"] == 3, "the zone, the schema folder and B"
        assert all(paths(table) == [FIRST, SECOND] for table in poller.scan().tables)

    def test_new_lost_and_recreated_folders_are_seen(self):
        storage = zone_with(f"A/{FIRST}", f"B/{FIRST}")
        poller = Poller(storage, Config())
        poller.scan()
        storage.put(f"{ZONE}/C/{FIRST}", b"x")
        remove(storage, "A")()
        recreate(storage, "B")()
        assert folders(poller.scan(())) == ["B", "C"]
        storage.put(f"{ZONE}/B/{SECOND}", b"x")
        identities = {table.name.table: table.identity for table in poller.scan(()).tables}
        assert identities["B"] == storage.stat(f"{ZONE}/B").identity

    def test_folder_that_could_not_be_listed_is_listed_again(self):
        storage = zone_with(f"A/{FIRST}")
        storage.broken.add(f"{ZONE}/A")
        poller = Poller(storage, Config())
        assert poller.scan().unlisted == {"A"}
        storage.broken.clear()
        assert folders(poller.scan(())) == ["A"]


def test_partition_listed_as_before_keeps_its_entries():
    storage = zone_with("Items/_metadata.json", f"Items/site=1/{FIRST}", f"Items/site=2/{FIRST}")
    poller = Poller(storage, Config())
    (before,) = poller.scan().tables
    storage.put(f"{ZONE}/Items/site=2/{FIRST}", b"more")
    storage.put(f"{ZONE}/Items/site=3/{FIRST}", b"x")
    (after,) = poller.scan().tables
    assert paths(after) == [f"site={number}/{FIRST}" for number in (1, 2, 3)]
    assert after.files[0] is before.files[0]
    assert after.files[1].size == len(b"more")


def test_an_idle_zone_costs_one_listing_a_folder():
    storage = zone_with(*(f"S.schema/T{number}/{each}" for number in range(5) for each in (FIRST, "_metadata.json")))
    poller = Poller(storage, Config())
    first = poller.scan()
    storage.calls.clear()
    assert poller.scan() == first
    assert storage.calls == {"list": 7}


def test_hostile_names_on_a_real_disk_do_not_stop_the_poller(tmp_path):
    zone = tmp_path / ZONE
    (zone / "Items").mkdir(parents=True)
    (zone / "Items" / FIRST).write_bytes(b"x")
    (zone / "root").symlink_to("/")
    (zone / "Items" / "00000000000000000002.parquet").symlink_to("/etc/passwd")
    os.mkfifo(zone / "Items" / "_metadata.json")
    with open(os.fsencode(zone / "Items") + b"/\xff\xfe.parquet", "wb"):  # noqa: PTH123 - a Path cannot spell it
        pass
    os.mkdir(os.fsencode(zone) + b"/\xff")  # noqa: PTH102 - too
    listing = Poller(LocalStorage(tmp_path), Config()).scan()
    (table,) = listing.tables
    assert (paths(table), table.metadata) == ([FIRST], MetadataAbsent())
    assert [code for code, _ in said(table)] == ["ME074"] * 3
    assert said(listing) == [("ME074", "\\xff"), ("ME074", "root")]
    assert all(each.full_message.encode() for each in (*listing.diagnostics, *table.diagnostics))
