"""Segments: what was applied is known again without the ledger, from few commits (LZ-4.18)."""

from __future__ import annotations

import io
import shutil
import sqlite3
from contextlib import closing

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from shop import NO_STOP, TYPES, Shop, name, row

from mirror_engine import RunResult
from mirror_engine.engine import segments
from mirror_engine.engine.ledger import MIRROR, Ledger
from mirror_engine.engine.replayer import drop_table
from mirror_engine.errors import StorageUnavailable
from mirror_engine.landing_zone.layout import LEDGER
from mirror_engine.landing_zone.names import TableName
from mirror_engine.landing_zone.progress import Applied, AppliedFile, Progress
from mirror_engine.tables.base import BatchRecord
from mirror_engine.tables.log import segments as stored
from mirror_engine.tables.log.commit import put_commit
from mirror_engine.tables.merge.arrow import ArrowWriter

pytestmark = pytest.mark.slow

ORDERS = TableName("", "Orders")


@pytest.fixture(autouse=True)
def frequent(monkeypatch):
    monkeypatch.setattr(segments, "COMMITS_PER_SEGMENT", 4)


def shop_at(root):
    root.mkdir(exist_ok=True)
    return Shop(root, ArrowWriter(root / "Tables", root / "scratch"), cleanup="off")


def known(shop):
    with closing(Ledger.open(shop.root / LEDGER)) as ledger:
        return ledger.progress(ORDERS), ledger.applied(ORDERS), ledger.marks(ORDERS)


def known_again(shop):
    """What is known, which a lost ledger learns from the log again, without a commit."""
    head, files, marks = known(shop)
    shop.lose_state()
    assert (shop.sync().commits, known(shop)[1:]) == (0, (files, marks))
    return head, files, marks


def test_lost_ledger_knows_all_applied_files_again(tmp_path):
    shop = shop_at(tmp_path)
    shop.apply(*range(1, 24))
    head, files, _ = known_again(shop)
    assert (known(shop)[0], len(files)) == (head, 23)
    assert 0 < len(head.segments) <= 3  # larger ones replace those before them
    assert shop.ids() == [*range(1, 24)]


def test_older_ledger_gets_only_newer_commits(tmp_path, monkeypatch):
    shop = shop_at(tmp_path)
    shop.apply(*range(1, 9))
    older = (shop.root / LEDGER).read_bytes()
    shop.apply(*range(9, 16))
    expected = known(shop)
    (shop.root / LEDGER).write_bytes(older)
    asked, writer = [], shop.writer
    monkeypatch.setattr(
        writer, "applied_since", lambda *given, ask=writer.applied_since: asked.append(given[2].batch) or ask(*given)
    )
    shop.sync()
    assert (known(shop), asked) == (expected, [8])


def test_few_commits_are_read_however_many_there_are(tmp_path, monkeypatch):
    shop = shop_at(tmp_path)
    shop.apply(*range(1, 30))
    shop.lose_state()
    read = []
    monkeypatch.setattr(
        stored, "read_commit", lambda *given, ask=stored.read_commit: read.append(given[1]) or ask(*given)
    )
    shop.sync()
    assert len(read) <= segments.COMMITS_PER_SEGMENT
    assert len(known(shop)[1]) == 29


def test_expired_names_are_forgotten_unless_still_landed(tmp_path, monkeypatch):
    shop = Shop(tmp_path)
    monkeypatch.setattr(segments, "KEPT_SECONDS", 0)
    orders = shop.orders(strategy="LastUpdateTimeFileDetection")
    for number in range(1, 12):
        orders.insert(row(number), name=f"{number}.parquet", modified_ns=number)
        shop.sync()
    shop.lose_state()
    shop.sync()
    _, files, marks = known(shop)
    assert "1.parquet" not in files
    assert len(files) <= 1 + 2 * segments.COMMITS_PER_SEGMENT
    assert (marks[""].latest, shop.ids()) == ("11.parquet", [*range(1, 12)])


@pytest.mark.parametrize("days", [0.9, 1.25], ids=lambda days: f"a file in {days} days")
def test_forgotten_names_stay_forgotten_however_old_the_table_is(tmp_path, days):
    """A segment that replaces all before it holds the names of two months, not those of the table's whole life."""
    shop = Shop(tmp_path)
    orders = shop.orders()
    with shop.engine() as running:
        for _ in range(150):
            orders.insert(row(1))
            running.cycle(NO_STOP)
            shop.now += days * 86_400.0
    assert max(len(applied.files) for applied in shop.writer._segments.values()) <= 2 * 30 / days + 4
    assert len(known(shop)[1]) == 150  # the ledger looks names up, and never reads all (LZ-3.6)


@pytest.mark.parametrize("days", [0.7, 1.25], ids=lambda days: f"a file in {days} days")
def test_names_of_files_in_the_folder_are_never_forgotten(tmp_path, days):
    """The first stays for good; whatever segments replace which, a lost ledger would know it again."""
    shop = Shop(tmp_path)
    orders = shop.orders(strategy="LastUpdateTimeFileDetection")
    with shop.engine() as running:
        for number in range(1, 150):
            orders.insert(row(number), name=f"{number}.parquet", modified_ns=int(shop.now * 1e9))
            running.cycle(NO_STOP)
            kept = shop.publisher.path / "Orders/1.parquet"
            if not kept.exists():
                (shop.publisher.path / "Orders/_FilesReadyToDelete/1.parquet").rename(kept)
            shop.now += days * 86_400.0
            found = shop.writer.applied_since("dbo/Orders", shop.writer.snapshot("dbo/Orders"), None)
            assert "1.parquet" in found.files
    assert len(found.files) < 149


def test_expired_names_in_the_folder_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(segments, "KEPT_SECONDS", 0)
    shop = Shop(tmp_path, cleanup="off")
    by_time(shop, range(1, 12))
    known_again(shop)
    assert shop.ids() == [*range(1, 12)]


def test_expired_marks_of_idle_partitions_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(segments, "KEPT_SECONDS", 0)
    shop = Shop(tmp_path)
    orders = shop.publisher.table("Orders", keys=["id", "day"], types=TYPES, partitioned=True)
    for number, day in enumerate([1, *[2] * 10], 1):
        orders.insert(row(number), partition=f"day={day}")
        shop.sync()
    marks = known(shop)[2]
    shop.lose_state()
    shop.sync()
    assert (known(shop)[2], marks["day=1"].watermark) == (marks, 1)


def test_files_noted_before_the_first_commit_are_in_a_segment(tmp_path):
    shop = Shop(tmp_path, cleanup="off", all_null_columns="untyped")
    content = io.BytesIO()
    pq.write_table(pa.table({"id": pa.array([], pa.null()), "city": pa.array([], pa.null())}), content)
    shop.publisher.table("Orders", keys=["id"]).put(name(1), content.getvalue())
    shop.sync()
    shop.apply(*range(2, 9))
    assert known_again(shop)[1][name(1)].version == -1


def test_missing_segment_halts_instead_of_applying_again(tmp_path):
    shop = shop_at(tmp_path)
    shop.apply(*range(1, 12))
    for segment in (tmp_path / "Tables/dbo/Orders/_delta_log/_mirror_engine").iterdir():
        segment.write_text("{}")
    assert shop.sync().result is RunResult.CAUGHT_UP  # the ledger knows
    shop.lose_state()
    assert shop.sync().result is RunResult.NEEDS_ATTENTION
    assert "ME081" in {found.code for found, _ in shop.status().diagnostics}
    assert shop.ids() == [*range(1, 12)]


def test_commits_before_a_carried_record_are_not_read(tmp_path):
    shop = shop_at(tmp_path)
    shop.apply(*range(1, 7))
    shop.writer.maintain("dbo/Orders", 0)
    carried = shop.writer.snapshot("dbo/Orders")
    shop.apply(7)
    head, *_ = known(shop)
    assert head.covered < carried.record_version < carried.version < head.delta_version
    shop.writer.snapshot("dbo/Orders").log.table.create_checkpoint()
    for version in range(carried.record_version + 1):
        (tmp_path / f"Tables/dbo/Orders/_delta_log/{version:020}.json").unlink()
    known_again(shop)


def test_moved_root_says_again_what_was_applied(tmp_path):
    shop = shop_at(root := tmp_path / "root")
    shop.apply(*range(1, 7))
    shutil.copytree(root, tmp_path / "copy")
    copy = shop_at(tmp_path / "copy")
    copy.sync()
    copy.orders().insert(row(7))
    copy.sync()
    copy.lose_state()
    assert copy.sync().result is RunResult.CAUGHT_UP
    assert copy.standing() == []  # ME026: none counts as overwritten


def test_ledger_damaged_while_the_engine_runs_is_rebuilt(tmp_path):
    shop = shop_at(tmp_path)
    shop.apply(*range(1, 12))
    expected = known(shop)
    with shop.engine() as running:
        running.cycle(NO_STOP)
        ledger = running.context.ledger
        with pytest.raises(StorageUnavailable), ledger._guarded("read"):
            raise sqlite3.DatabaseError("database disk image is malformed")
        shop.land(12)
        for _ in range(3):
            running.cycle(NO_STOP)
    assert shop.ids() == [*range(1, 13)]
    after = known(shop)
    assert after[0].generation == expected[0].generation
    assert after[1].items() >= expected[1].items()


def test_drop_waits_while_the_ledger_is_lost(tmp_path):
    shop = Shop(tmp_path, cleanup="off")
    shop.apply(1)
    with shop.engine() as running:
        running.cycle(NO_STOP)
        with pytest.raises(StorageUnavailable), running.context.ledger._guarded("read"):
            raise sqlite3.DatabaseError("database disk image is malformed")
        with pytest.raises(StorageUnavailable, match="the ledger was damaged"):
            drop_table(running.context, ORDERS, "deleted")
    assert list(shop.writer.tables()) == ["dbo/Orders"]


def test_ledger_behind_a_cleaned_log_is_rebuilt(tmp_path):
    shop = shop_at(tmp_path)
    shop.apply(1)
    behind, log = (shop.root / LEDGER).read_bytes(), shop.root / "Tables/dbo/Orders/_delta_log"
    put_commit(log.parent, 2, [{"commitInfo": {"operation": "VACUUM END", "engineInfo": "another"}}])
    shop.apply(2)
    DeltaTable(str(log.parent)).create_checkpoint()
    for version in range(3):
        (log / f"{version:020}.json").unlink()
    (shop.root / LEDGER).write_bytes(behind)
    assert shop.sync().result is RunResult.CAUGHT_UP
    assert (shop.ids(), [*known(shop)[1]]) == ([1, 2], [name(1), name(2)])


def by_time(shop, numbers):
    orders = shop.orders(strategy="LastUpdateTimeFileDetection")
    for number in numbers:
        orders.insert(row(number), name=f"{number}.parquet", modified_ns=number * 10**9)
        shop.sync()


def test_copied_table_of_another_mirror_does_not_rename_this_one(tmp_path):
    """Else commits before and after would be told apart by the mirror's id, and files applied twice."""
    other, own = shop_at(tmp_path / "other"), shop_at(tmp_path / "own")
    other.orders("Other").insert(row(1))
    other.sync()
    by_time(own, range(1, 4))
    shutil.copytree(other.root / "Tables/dbo/Other", own.root / "Tables/dbo/Archive")
    own.lose_state()
    by_time(own, [4])
    own.lose_state()
    assert own.sync().commits == 0
    assert own.ids() == [1, 2, 3, 4]


def test_commits_count_whatever_the_mirror_is_called(tmp_path):
    shop = shop_at(tmp_path)
    by_time(shop, range(1, 3))
    with closing(Ledger.open(shop.root / LEDGER)) as ledger:
        ledger.set_property(MIRROR, "f" * 32)
    by_time(shop, [3])
    shop.lose_state()
    assert shop.sync().commits == 0
    assert shop.ids() == [1, 2, 3]


def test_commits_of_another_generation_do_not_count():
    records = [
        BatchRecord("", "", Progress(generation, ""), "", Applied({path: AppliedFile("", "", -1, 1, 0)}))
        for generation, path in (("now", "3.csv"), ("before", "2.csv"), ("now", "1.csv"))
    ]
    found = stored.applied_by_commits(records[0], 7, 4, lambda _: records)
    assert {path: file.version for path, file in found.files.items()} == {"1.csv": 5, "3.csv": 7}


def test_ledger_from_before_a_move_takes_the_present_etags(tmp_path):
    shop = shop_at(root := tmp_path / "root")
    shop.apply(*range(1, 7))
    copied = tmp_path / "copy"
    shutil.copytree(root, copied)
    copy = shop_at(copied)
    older = (copied / LEDGER).read_bytes()
    copy.apply(7)
    (copied / LEDGER).write_bytes(older)  # a power failure may take the ledger's last transactions
    assert copy.sync().result is RunResult.CAUGHT_UP
    assert "ME026" not in {found.code for found in copy.standing()}


def test_segment_that_only_the_ledger_names_is_not_swept(tmp_path, monkeypatch):
    shop = shop_at(tmp_path)
    shop.apply(*range(1, 6))
    written = []
    with monkeypatch.context() as once:
        once.setattr(shop.writer, "apply", lambda *_: written.append(1) or refuse())
        shop.land(*range(6, 12))
        with shop.engine() as running:
            running.cycle(NO_STOP)
    assert written
    shop.writer.maintain("dbo/Orders", 0)
    shop.sync()
    shop.lose_state()
    assert shop.sync().result is RunResult.CAUGHT_UP
    assert shop.ids() == [*range(1, 12)]


def refuse():
    raise StorageUnavailable("scripted")


def test_missing_segment_is_said_again_by_a_ledger_that_knows(tmp_path):
    shop = shop_at(tmp_path)
    shop.apply(*range(1, 10))
    for segment in (shop.root / "Tables/dbo/Orders/_delta_log/_mirror_engine").iterdir():
        segment.unlink()
    shop.apply(*range(10, 16))
    known_again(shop)


def clean_up(shop):
    """Commit without a change of rows, checkpoint, and delete the log before it, as another program does."""
    folder = shop.root / "Tables/dbo/Orders"
    newest = DeltaTable(str(folder)).version() + 1
    put_commit(folder, newest, [{"commitInfo": {"operation": "VACUUM END", "engineInfo": "another"}}])
    DeltaTable(str(folder)).create_checkpoint()
    for version in range(newest):
        (folder / f"_delta_log/{version:020}.json").unlink(missing_ok=True)
    return newest


def test_record_lost_to_log_cleanup_is_committed_again(tmp_path):
    shop = shop_at(tmp_path)
    shop.apply(1, 2)
    with shop.engine() as running:
        running.cycle(NO_STOP)
        clean_up(shop)
        shop.land(3)
        running.cycle(NO_STOP)
    known_again(shop)
    assert shop.ids() == [1, 2, 3]


@pytest.mark.parametrize("keeps", [True, False], ids=["ledger kept", "ledger lost"])
def test_table_of_an_earlier_version_goes_on(tmp_path, keeps):
    """Its segments do not say up to where names are forgotten: not as files, nor in commits, nor in the ledger."""
    shop = shop_at(tmp_path)
    shop.apply(*range(1, 12))
    expected, field = known(shop), ',"forgotten_until":-1'
    for file in shop.root.glob("Tables/**/_delta_log/**/*.json"):
        older = file.read_text().replace(field, "").replace(field.replace('"', '\\"'), "")
        assert "forgotten_until" not in older
        file.write_text(older)
    if keeps:
        with closing(sqlite3.connect(shop.root / LEDGER)) as ledger, ledger:
            ledger.execute("UPDATE tables SET progress = replace(progress, ', \"forgotten_until\": -1', '')")
            assert not ledger.execute("SELECT * FROM tables WHERE progress LIKE '%forgotten%'").fetchall()
    else:
        shop.lose_state()
    assert (shop.sync().commits, known(shop)) == (0, expected)
    shop.apply(12)
    assert shop.ids() == [*range(1, 13)]
