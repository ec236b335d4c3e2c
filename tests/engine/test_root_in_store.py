"""A ROOT in a store: one engine holds it, its state is here, and who only looks writes nothing there."""

from __future__ import annotations

import json
import threading
import time
from contextlib import contextmanager, suppress

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from shop import NO_STOP, TYPES, row
from store_publisher import StorePublisher, everything
from store_servers import ONE_BY_DAY

from mirror_engine import Config, Mirror, RunResult
from mirror_engine.errors import RootLocked, StorageUnavailable, UsageError
from mirror_engine.landing_zone.layout import LEASE, LEDGER
from mirror_engine.monitoring.fabric_files import REPLICATOR_FILE
from mirror_engine.storage import lease
from mirror_engine.storage.lease import lease_file
from mirror_engine.storage.roots import state_folder
from mirror_engine.tables import passthrough
from mirror_engine.tables.dry_run.memory import MemoryDeltaWriter
from mirror_engine.tables.log import commit
from mirror_engine.tables.log.segments import record_again
from mirror_engine.tables.log.table_path import HINT
from mirror_engine.tables.log.tables_folder import TablesFolder
from mirror_engine.tables.merge import arrow
from mirror_engine.tables.merge.arrow import ArrowWriter

pytestmark = pytest.mark.slow


class StoreShop:
    """A ROOT in a store with a table, and machines that look at it or work on it."""

    def __init__(self, store, folder, monkeypatch):
        self.root, self.store = store.new_root(), store
        self.writer = MemoryDeltaWriter()
        self._folder, self._monkeypatch = folder, monkeypatch
        self.on("one")
        self.orders = self.table()
        self.orders.initial_load(row(1), row(2))

    def table(self, name="Orders"):
        return StorePublisher(self.root).table(name, keys=["id"], types=TYPES)

    def recreate_table(self, commits):
        """Drop the table's folder, make it again, and have machine two make so many commits."""
        self.orders.drop()
        self.synced("two")
        self.orders = self.table()
        for _ in range(commits):
            self.orders.upsert(row(30))
            self.synced("two")

    def on(self, machine):
        """Go on as another machine, which has a state folder of its own."""
        self._monkeypatch.setenv("MIRROR_ENGINE_STATE", str(self._folder / machine))
        return self

    def mirror(self, **options):
        return Mirror(self.root, Config(**options), writer=self.writer)

    def sync(self):
        with self.mirror() as mirror:
            return mirror.sync()

    def arrow(self, machine):
        """A mirror with the engine `arrow` on a machine."""
        self.on(machine)
        return Mirror(self.root, Config(merge_engine="arrow"))

    def synced(self, machine):
        with self.arrow(machine) as mirror:
            return mirror.sync()

    def ids(self):
        with self.arrow("two") as mirror:
            return sorted(mirror.read_table("Orders").column("id").to_pylist())

    def release_lease(self):
        """Another machine may take the lease, as after it expired."""
        found = json.loads(lease_file(self.root).read().content)
        self.root.object_store().put(LEASE, json.dumps({**found, "is_over": True}).encode())

    @contextmanager
    def running(self, poll_interval_seconds=0.05):
        """An engine that goes on, of this machine."""
        stop, mirror = threading.Event(), self.mirror(poll_interval_seconds=poll_interval_seconds)
        done = []
        thread = threading.Thread(target=lambda: done.append(mirror.run(stop)))
        thread.start()
        try:
            while not (held := lease_file(self.root).read()) or lease.holder_of(held).is_over:
                time.sleep(0.01)
            yield mirror
        finally:
            stop.set()
            thread.join()
            assert done


@pytest.fixture
def anywhere(store, tmp_path, monkeypatch):
    return StoreShop(store, tmp_path, monkeypatch)


@pytest.fixture
def far_shop(s3_server, tmp_path, monkeypatch):
    with s3_server.in_use():
        yield StoreShop(s3_server, tmp_path, monkeypatch)


@ONE_BY_DAY
def test_it_is_mirrored_and_its_state_is_on_this_machine(anywhere, tmp_path):
    shop = anywhere
    assert shop.sync().result is RunResult.CAUGHT_UP
    assert (state_folder(shop.root) / LEDGER).is_relative_to(tmp_path / "one")
    assert (state_folder(shop.root) / LEDGER).exists()
    in_store = {path for path in everything(shop.root) if not path.startswith("Files/LandingZone/")}
    assert in_store == {LEASE, "Files/Monitoring/replicator.json", "Files/Monitoring/tables.json"}
    with Mirror(f"{shop.root}/Files/LandingZone", writer=shop.writer) as mirror:
        assert mirror.root == shop.root
        assert mirror.sync().commits == 0


@pytest.mark.parametrize("cleanup", ["ready", pytest.param("both", marks=pytest.mark.nightly)])
def test_engine_in_onelake_leaves_no_warning_there(onelake_server, rejections, tmp_path, monkeypatch, cleanup):
    """What it asks for is normal, such as a move to a folder that is not there yet."""
    config = Config(merge_engine="arrow", cleanup=cleanup)
    with onelake_server.in_use():
        shop = StoreShop(onelake_server, tmp_path, monkeypatch)
        rejections.clear()
        for number in range(3, 6):
            shop.orders.insert(row(number))
            with Mirror(shop.root, config) as mirror:
                assert mirror.sync().result is RunResult.CAUGHT_UP
        with Mirror(shop.root, config) as mirror:
            assert mirror._status().tables[0].row_count == 5
            mirror.maintain()
    records = [each.record() for each in rejections]
    assert [record for record in records if record[0] == "warning"] == []


@ONE_BY_DAY
def test_large_files_of_a_store_are_verified_side_by_side(anywhere, monkeypatch):
    monkeypatch.setattr(passthrough, "MIN_BYTES", 1)
    monkeypatch.setattr(pa, "cpu_count", lambda: 3)
    shop = anywhere
    for number in range(3, 8):
        shop.orders.initial_load(row(number))
    assert shop.sync().result is RunResult.CAUGHT_UP
    with shop.mirror() as mirror:
        assert [(commit.applied_by, len(commit.files)) for commit in mirror.history("Orders")] == [("passthrough", 6)]
        assert sorted(found["id"] for found in mirror.read_table("Orders").to_pylist()) == list(range(1, 8))


@ONE_BY_DAY
def test_who_only_looks_writes_nothing_there(anywhere):
    shop = anywhere
    shop.sync()
    shop.orders.insert(row(3))
    before = everything(shop.root)
    for machine in ("one", "another"):
        shop.on(machine)
        with shop.mirror() as mirror:
            status = mirror._status()
            assert [len(table.pending_files) for table in status.tables] == [1]
            assert not status.engine_running
            with mirror._snapshot() as seen:
                assert len(seen.plans) == 1
            mirror.show("Orders")
            mirror.history("Orders")
    assert everything(shop.root) == before
    assert not state_folder(shop.root).exists()  # of the other machine


@ONE_BY_DAY
def test_of_two_engines_one_says_who_the_other_is(anywhere, monkeypatch):
    shop = anywhere
    shop.sync()
    monkeypatch.setattr("socket.gethostname", lambda: "worker-1")
    with shop.running():
        shop.on("two")
        status = shop.mirror()._status()
        assert status.engine_running
        assert status.lease.host == "worker-1"
        document = json.loads(json.dumps(shop.mirror().status().to_json()))
        assert document["root"] == str(shop.root)
        assert document["lease"]["is_held"]
        with pytest.raises(RootLocked, match=r"another engine is running here: worker-1 \(process \d+\), since 2"):
            shop.sync()
        shop.on("one")
        with pytest.raises(RootLocked, match="another engine is running here"):
            shop.sync()
    shop.on("two")
    assert not shop.mirror()._status().engine_running
    assert shop.sync().commits == 0  # the table says what is in it, not the ledger


def test_an_engine_that_lost_the_lease_ends_before_its_next_commit(far_shop, monkeypatch):
    far_shop.sync()
    with far_shop.mirror()._engine() as running:
        running.cycle(NO_STOP)
        monkeypatch.setattr(lease, "RENEW_SECONDS", 0.0)  # of each look; the thread waits already
        far_shop.root.object_store().put(
            LEASE, lease._content(lease.Holder("other", "worker-2", 7, time.time()), time.time())
        )
        far_shop.orders.insert(row(3))
        with pytest.raises(RootLocked, match=r"the lease was lost to another engine: worker-2 \(process 7\)"):
            running.cycle(NO_STOP)
    with far_shop.mirror() as mirror:
        assert mirror.read_table("Orders").num_rows == 2


def test_a_wait_for_another_engine_ends_when_it_is_to_stop(far_shop, monkeypatch):
    far_shop.root.object_store().put(
        LEASE, lease._content(lease.Holder("other", "worker-2", 7, time.time()), time.time())
    )
    monkeypatch.setattr(lease.Holder, "age_seconds", lambda *_: 3600.0)
    before = everything(far_shop.root)
    for work in (Mirror.sync, Mirror.run):
        stop = threading.Event()
        threading.Timer(0.3, stop.set).start()
        with far_shop.mirror() as mirror:
            assert (work(mirror, stop).result, stop.is_set()) == (RunResult.RETRY, True)
    assert everything(far_shop.root) == before


def compact_all(writer, table, log, _):
    """Put all data files together after a commit, however few they are."""
    log.move_on()
    with writer._scratch_folder() as folder:
        writer._compact(table, log, [log.data_files()], folder, record_again(log, with_earlier=False))


@pytest.mark.parametrize("has_ledger", [False, True], ids=["", "by another mirror's id"])
@pytest.mark.parametrize("is_first", [True, False], ids=["made by the first", "made by the second"])
def test_batch_of_a_new_table_is_committed_once_by_two_engines(far_shop, monkeypatch, is_first, has_ledger):
    """The first engine is stopped just after, or before, it makes the table; the second one commits the batch."""
    create = arrow.create_table

    def stopped(*arguments, **options):
        monkeypatch.setattr(arrow, "create_table", create)
        is_made = is_first and create(*arguments, **options)
        far_shop.release_lease()
        if has_ledger:
            with far_shop.arrow("two")._engine() as second:
                assert second.context.ledger.mirror
        assert far_shop.synced("two").commits == 1
        return is_made or create(*arguments, **options)

    monkeypatch.setattr(arrow, "create_table", stopped)
    with suppress(RootLocked), far_shop.arrow("one")._engine() as first:
        first.cycle(NO_STOP)
    assert far_shop.ids() == [1, 2]
    with far_shop.arrow("two") as mirror:
        files = [path for entry in mirror.history("Orders") for path in entry.files]
    assert len(files) == len(set(files))


def unanswered(put):
    """A call that does its work, and whose answer is lost."""

    def call(*arguments):
        put(*arguments)
        raise StorageUnavailable("no answer")

    return call


def added(folder, actions):
    """The data files that a commit adds, by path."""
    return {each["add"]["path"]: (folder / each["add"]["path"]).read_bytes() for each in actions if "add" in each}


@pytest.mark.parametrize(
    ("late", "first_is_killed"),
    [
        ("OPTIMIZE", False),
        *(
            pytest.param(late, is_killed, marks=pytest.mark.nightly)
            for late, is_killed in (("WRITE", True), ("WRITE", False), ("unanswered", False))
        ),
    ],
)
def test_commit_that_comes_after_its_table_was_dropped_is_taken_back(far_shop, monkeypatch, late, first_is_killed):
    """LZ-4.18: the first engine is stopped between its last look at the lease and the commit.

    Meanwhile the second one drops the table, whose folder was recreated, and commits until one version is left.
    """
    put, synced = commit.put_commit, far_shop.synced

    def stopped(folder, version, actions):
        actions = list(actions)
        if (actions[0]["commitInfo"]["operation"] == "OPTIMIZE") != (late == "OPTIMIZE"):
            put(folder, version, actions)
            return
        monkeypatch.setattr(commit, "put_commit", put)
        monkeypatch.setattr(ArrowWriter, "tidy", tidy)
        data = added(folder, actions)
        far_shop.release_lease()
        far_shop.recreate_table(commits=version - 1)
        with far_shop.arrow("two") as mirror:
            assert mirror.history("Orders", limit=1)[0].version == version - 1
        for path, content in data.items():
            (folder / path).create(content)
        patched.setattr(lease, "RENEW_SECONDS", 0.0)  # of each look: the first engine was stopped for longer
        (unanswered(put) if late == "unanswered" else put)(folder, version, actions)

    far_shop.table("Other").upsert(row(1))  # the zone stays
    synced("one")
    for _ in range(2):
        far_shop.orders.upsert(row(3))
        synced("one")
    far_shop.orders.upsert(row(20))
    tidy = ArrowWriter.tidy
    monkeypatch.setattr(commit, "put_commit", stopped)
    if late == "OPTIMIZE":
        monkeypatch.setattr(ArrowWriter, "tidy", compact_all)
    with monkeypatch.context() as patched:
        if first_is_killed:
            patched.setattr(TablesFolder, "take_back", lambda *_: None)
        with pytest.raises(RootLocked, match="the lease was lost"):
            synced("one")
    assert first_is_killed or far_shop.ids() == [30]
    assert synced("two").result is RunResult.CAUGHT_UP
    assert far_shop.ids() == [30]


def test_first_batch_is_not_committed_on_top_of_a_late_commit(onelake_server, tmp_path, monkeypatch):
    """LZ-4.18: the commit comes when the second engine has made the table anew, and not yet committed to it.

    Only in a store with folders is the table of which nothing was applied another one.
    """
    put, create = commit.put_commit, arrow.create_table

    def stopped(folder, version, actions):
        actions = list(actions)
        if not version:
            put(folder, version, actions)
            return
        data = added(folder, actions)

        def created(*arguments, **options):
            is_made = create(*arguments, **options)
            for path, content in data.items():
                (folder / path).create(content)
            put(folder, version, actions)
            monkeypatch.setattr(arrow, "create_table", create)
            return is_made

        monkeypatch.setattr(commit, "put_commit", put)
        shop.release_lease()
        shop.orders.drop()
        shop.table().apply_changes((0, row(30)), (0, row(31)), (2, row(31)))
        monkeypatch.setattr(arrow, "create_table", created)
        shop.synced("two")
        assert arrow.create_table is create
        monkeypatch.setattr(lease, "RENEW_SECONDS", 0.0)  # of each look: the first engine was stopped for longer

    with onelake_server.in_use():
        shop = StoreShop(onelake_server, tmp_path, monkeypatch)
        monkeypatch.setattr(commit, "put_commit", stopped)
        with pytest.raises(RootLocked, match="the lease was lost"):
            shop.synced("one")
        assert shop.synced("two").result is RunResult.CAUGHT_UP
        assert shop.ids() == [30]


@pytest.mark.parametrize(
    ("commits", "first_is_killed"),
    [(4, False), *(pytest.param(1, is_killed, marks=pytest.mark.nightly) for is_killed in (False, True))],
)
def test_checkpoint_that_comes_after_its_table_was_dropped_is_taken_back(
    far_shop, monkeypatch, first_is_killed, commits
):
    """LZ-4.18: the first engine is stopped while it writes a checkpoint, of version 3.

    The table that is made meanwhile has fewer commits, or as many.
    """
    write, synced = DeltaTable.create_checkpoint, far_shop.synced
    monkeypatch.setitem(commit._IN_STORE, commit._CHECKPOINT_INTERVAL, "4")

    def stopped(table):
        monkeypatch.setattr(DeltaTable, "create_checkpoint", write)
        store, log = far_shop.root.object_store(), "Tables/dbo/Orders/_delta_log/"
        before = everything(far_shop.root)
        table.create_checkpoint()
        made = {path: store.get(path).bytes() for path in everything(far_shop.root).keys() - before.keys()}
        assert {path.removeprefix(log) for path in made} == {"00000000000000000003.checkpoint.parquet", HINT}
        far_shop.release_lease()
        far_shop.recreate_table(commits)
        for path, content in made.items():
            store.put(path, content)
        patched.setattr(lease, "RENEW_SECONDS", 0.0)  # of each look: the first engine was stopped for longer

    far_shop.table("Other").upsert(row(1))  # the zone stays
    monkeypatch.setattr(DeltaTable, "create_checkpoint", stopped)
    with monkeypatch.context() as patched:
        if first_is_killed:
            patched.setattr(TablesFolder, "take_back", lambda *_: None)
        synced("one")
        far_shop.orders.upsert(row(3))
        synced("one")
        far_shop.orders.upsert(row(3))
        with pytest.raises(RootLocked, match="the lease was lost"):
            synced("one")
    assert first_is_killed or far_shop.ids() == [30]
    assert synced("two").result is RunResult.CAUGHT_UP
    far_shop.orders.upsert(row(31))
    assert synced("two").result is RunResult.CAUGHT_UP
    assert far_shop.ids() == [30, 31]


@pytest.mark.parametrize("command", ["sync", "maintain", "rebuild"])
def test_what_fabric_mirrors_is_refused_and_left_as_it_is(far_shop, command):
    """Fabric's monitoring files are there, and nothing of this engine."""
    far_shop.root.object_store().put(REPLICATOR_FILE, b'{"status": "Running"}')
    before = everything(far_shop.root)
    with far_shop.mirror() as mirror:
        with pytest.raises(UsageError, match="is mirrored by Fabric; nothing was written there") as error:
            getattr(mirror, command)()
        assert "pull" in error.value.help
        mirror._status()
    assert everything(far_shop.root) == before


def test_a_scan_says_how_many_requests_it_took(far_shop):
    far_shop.sync()
    with far_shop.mirror() as mirror:
        requests = mirror._status().scan_requests
    assert 1 <= sum(requests.values()) <= 12
    with far_shop.running():
        time.sleep(0.5)
        assert sum(far_shop.mirror()._status().scan_requests.values()) <= sum(requests.values())
