"""Full, read-only and failing disks: nothing is lost, other tables go on, and the engine goes on when it is over."""

from __future__ import annotations

import errno
import io
import os
import subprocess
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pytest
from seed import by_night
from shop import NO_STOP, Shop, name, row
from store_publisher import StorePublisher

from mirror_engine import Config, Mirror, RunResult
from mirror_engine.engine.ledger import ROOT_IDENTITY, Ledger
from mirror_engine.errors import StorageUnavailable
from mirror_engine.landing_zone.layout import ENGINE, LEDGER, ZONE
from mirror_engine.landing_zone.names import TableName
from mirror_engine.landing_zone.progress import Applied
from mirror_engine.landing_zone.states import CaughtUp
from mirror_engine.storage.local import LocalStorage
from mirror_engine.tables.log.commit import put_commit

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_attempt")]

PAGE_BYTES = 4096


class SmallDisk:
    """A tmpfs of its own; `path` is its top."""

    def __init__(self, path):
        self.path = path

    @contextmanager
    def filled(self, *, free_pages=0):
        """Full meanwhile, but for so many pages of 4 KiB."""
        filler = self.path / "filler"
        with filler.open("wb", buffering=0) as file:
            try:
                while file.write(bytes(PAGE_BYTES)) == PAGE_BYTES:
                    pass
            except OSError:
                pass
            file.truncate(max(0, filler.stat().st_size - free_pages * PAGE_BYTES))
        try:
            yield
        finally:
            filler.unlink()


@contextmanager
def small_disk(path, *, megabytes):
    """A small disk at a folder; skips the test where none can be mounted."""
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", path], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("no file system can be mounted here: that takes root")
    try:
        yield SmallDisk(path)
    finally:
        os.sync()
        run("umount", "-l", path)


@contextmanager
def read_only(path):
    """Nothing can be written below a folder meanwhile, but to files that are open already."""
    run("mount", "--bind", path, path)
    run("mount", "-o", "remount,ro,bind", path)
    try:
        yield
    finally:
        run("umount", "-l", path)


def run(*command):
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture
def disk(tmp_path):
    with small_disk(tmp_path / "disk", megabytes=8) as disk:
        yield disk


def shop_on(disk, name="shop", **options):
    (disk.path / name).mkdir()
    return Shop(disk.path / name, **options)


def tried(shop):
    """How a run ends that may not even begin."""
    try:
        return shop.sync().result
    except StorageUnavailable:
        return RunResult.RETRY


@pytest.mark.parametrize("first", [True, False], ids=["new tables", "known tables"])
def test_full_disk_delays_and_loses_nothing(disk, first):
    met = set()
    for free_pages in range(0 if first else 2, 96, by_night(8, 4)):
        shop = shop_on(disk, f"shop{free_pages}")
        orders, other = shop.orders(), shop.orders("Other")
        for table in (orders, other):
            table.insert(row(1))
        if not first:
            shop.sync()
        orders.update(row(1))
        orders.insert(row(2))
        other.insert(row(2))
        with disk.filled(free_pages=free_pages):
            met.add(tried(shop))
        assert tried(shop) is RunResult.CAUGHT_UP
        assert (shop.ids(), shop.ids("Other")) == ([1, 2], [1, 2])
        assert not list((shop.root / ENGINE).glob("damaged*"))  # a full disk is no reason to doubt the ledger
        run("rm", "-r", shop.root)
    assert met == {RunResult.RETRY, RunResult.CAUGHT_UP}


@pytest.mark.parametrize("harm", [SmallDisk.filled, lambda disk: read_only(disk.path)], ids=["full", "read-only"])
def test_an_engine_goes_on_by_itself_once_its_root_can_be_written_again(disk, harm):
    shop = shop_on(disk)
    orders = shop.orders(strategy="LastUpdateTimeFileDetection")
    orders.insert(row(1), name="a.parquet")
    with shop.engine() as running:
        running.cycle(NO_STOP)
        orders.insert(row(2), name="b.parquet")
        with harm(disk):
            running.cycle(NO_STOP)
            assert running.last.run_result is RunResult.RETRY
        running.cycle(NO_STOP)
        running.cycle(NO_STOP)
        assert running.last.run_result is RunResult.CAUGHT_UP
    assert [path.name for path in (shop.publisher.path / "Orders").glob("*.parquet")] == ["b.parquet"]
    assert tried(shop) is RunResult.CAUGHT_UP
    assert shop.ids() == [1, 2]


def test_what_the_disk_did_not_take_the_ledger_does_not_know_either(disk):
    shop = shop_on(disk)
    orders = shop.orders()
    orders.insert(row(1))
    shop.sync()
    ledger = Ledger.open(shop.root / LEDGER)
    ((name, before),) = ledger.tables().items()
    (file,) = ledger.applied(name).values()
    many = {f"{number:0500}.parquet": file for number in range(20)}
    with disk.filled(), pytest.raises(StorageUnavailable):
        ledger.record(name, type(before)("other", "folder"), Applied(many))
    assert ledger.progress(name) == before
    assert list(ledger.applied(name).values()) == [file]
    ledger.record(name, before)
    ledger.close()
    read = Ledger.read(shop.root / LEDGER)
    assert read.tables() == {TableName("", "Orders"): before}
    read.close()


def test_what_cannot_be_noted_at_a_cycles_end_is_noted_at_the_next(tmp_path, monkeypatch):
    def refused(*_):
        raise StorageUnavailable("scripted")

    shop = Shop(tmp_path)
    shop.orders().insert(row(1))
    with shop.engine() as running:
        running.context.ledger.mirror  # noqa: B018 - noted before the fault
        with monkeypatch.context() as patched:
            patched.setattr(Ledger, "set_property", refused)
            running.cycle(NO_STOP)
            assert running.last.run_result is RunResult.RETRY
        running.cycle(NO_STOP)
        assert running.last.run_result is RunResult.CAUGHT_UP
        assert running.context.ledger.get_property(ROOT_IDENTITY)


def test_read_only_root_is_readable_and_resumes_when_writable(disk):
    shop = shop_on(disk)
    orders = shop.orders()
    orders.insert(row(1))
    shop.sync()
    orders.insert(row(2))
    with read_only(disk.path):
        with pytest.raises(StorageUnavailable, match="cannot be written: Read-only file system"):
            shop.sync()
        assert [file.state for file in shop.status().files] == ["pending", "applied"]
    assert tried(shop) is RunResult.CAUGHT_UP
    assert shop.ids() == [1, 2]


def test_a_read_only_zone_is_mirrored_all_the_same_and_cleared_later(disk):
    shop = shop_on(disk)
    orders = shop.orders()
    for number in (1, 2):
        orders.insert(row(number))
    with read_only(shop.root / ZONE):
        assert tried(shop) is RunResult.RETRY
        assert shop.ids() == [1, 2]
        assert shop.status().state == CaughtUp()
    assert tried(shop) is RunResult.CAUGHT_UP
    assert shop.ids() == [1, 2]


def test_a_commit_that_a_full_disk_refuses_leaves_nothing_in_the_log(disk):
    action = {"commitInfo": {"userMetadata": "x" * 6000}}
    for free_pages in range(1, 3):
        with disk.filled(free_pages=free_pages), pytest.raises(StorageUnavailable, match="cannot be written"):
            put_commit(disk.path / "Orders", 0, [action, action])
        assert list((disk.path / "Orders/_delta_log").glob("*.json")) == []
    put_commit(disk.path / "Orders", 0, [action, action])
    assert len((disk.path / "Orders/_delta_log" / f"{0:020}.json").read_text().splitlines()) == 2


def test_a_commit_to_a_read_only_disk_says_so(disk):
    put_commit(disk.path / "Orders", 0, [{}])
    with read_only(disk.path), pytest.raises(StorageUnavailable, match="Read-only file system"):
        put_commit(disk.path / "Orders", 1, [{}])


class BadSector(LocalStorage):
    """Counts reads of files; the one of number `bad` fails."""

    def __init__(self, root, bad=0):
        super().__init__(root)
        self.bad, self.count = bad, 0

    def open(self, path, only=None):
        with super().open(path, only) as file:
            return io.BufferedReader(_Sectors(self, path, file.read()))


class _Sectors(io.BytesIO):
    def __init__(self, storage, path, content):
        super().__init__(content)
        self.storage, self.path = storage, path

    def readinto(self, buffer):
        self.storage.count += 1
        if self.storage.count == self.storage.bad:
            raise StorageUnavailable(f"{self.path}: cannot read it: {os.strerror(errno.EIO)}")
        return super().readinto(buffer)


def test_a_bad_sector_under_any_read_delays_one_table_and_no_other(tmp_path):
    def played(number):
        (tmp_path / f"{number}").mkdir()
        shop = Shop(tmp_path / f"{number}", delete_processed_after_seconds=0)
        orders, other = shop.orders(), shop.orders("Other")
        shop.publisher.partner_events(partnerName="Acme")
        for table in (orders, other):
            table.insert(row(1))
            table.update(row(1))
        storage = BadSector(shop.root, number)
        with shop.engine(storage=storage) as running:
            running.cycle(NO_STOP)
            first = running.last.run_result
            assert shop.writer.tables()
            running.cycle(NO_STOP)
            running.cycle(NO_STOP)
            assert running.last.run_result is RunResult.CAUGHT_UP
        assert (shop.ids(), shop.ids("Other")) == ([1], [1])
        return first, storage.count

    result, reads = played(0)
    assert result is RunResult.CAUGHT_UP
    assert reads > 10
    assert {played(number)[0] for number in range(1, reads + 1)} == {RunResult.RETRY, RunResult.CAUGHT_UP}


@pytest.mark.parametrize("kind", ["passthrough", "rows"])
def test_store_zone_larger_than_the_local_disk_is_loaded(disk, s3_server, monkeypatch, kind):
    monkeypatch.setattr("mirror_engine.tables.passthrough.MIN_BYTES", 1)
    monkeypatch.setenv("MIRROR_ENGINE_STATE", str(disk.path))
    monkeypatch.setattr("mirror_engine.engine.cycle.MAX_SYNC_ATTEMPTS", 4)
    draw = np.random.default_rng(1)
    with s3_server.in_use():
        root = s3_server.new_root()
        orders = StorePublisher(root).table("Orders", keys=["id"])
        for number in range(12):
            columns = {"id": np.arange(10_000) + 10_000 * number}
            columns |= {f"c{place}": draw.random(10_000) for place in range(11)}  # nothing makes them smaller
            marker = {"__rowMarker__": np.zeros(10_000, np.int32)} if kind == "rows" else {}
            orders.land_parquet(pa.table(columns | marker), compression="none")
        with Mirror(root, Config(merge_engine="arrow")) as mirror:
            report = mirror.sync()
            assert (report.result, report.rows_applied) == (RunResult.CAUGHT_UP, 120_000)
            commits = [entry for entry in mirror.history("Orders") if entry.files]
            assert {entry.applied_by for entry in commits} == {"append" if kind == "rows" else "passthrough"}
            assert [path for entry in reversed(commits) for path in entry.files] == [name(n) for n in range(1, 13)]
            assert sorted(mirror.read_table("Orders")["id"].to_pylist()) == list(range(120_000))
    assert len(commits) > 1
    assert not [path for path in disk.path.rglob("scratch/*") if path.is_file()]


@pytest.mark.spark
def test_a_full_disk_under_files_of_spark_delays_and_does_nothing_else(disk, mirror_writer):
    shop = shop_on(disk)
    shop.writer = mirror_writer(shop.root)
    orders = shop.orders()
    orders.initial_load(row(1), row(2))
    shop.sync()
    orders.update({"id": 1, "city": "Wels"})
    for free_pages in (24, 32):  # for the staged rows, for some of Spark's files
        with disk.filled(free_pages=free_pages):
            tried(shop)
    assert RunResult.CAUGHT_UP in (tried(shop), tried(shop))
    with shop.mirror() as mirror:
        assert sorted(mirror.read_table("Orders").column("city").to_pylist()) == ["Linz", "Wels"]
