"""A Delta table that cannot be read is halted with its reason, all others go on, and it goes on once it is mended."""

from __future__ import annotations

import re
import shutil

import pytest
from deltalake import DeltaTable, write_deltalake
from lake import HINT, NO_ROWS, Lake
from shop import NO_STOP, Shop, row

from mirror_engine import RunResult
from mirror_engine.errors import StorageUnavailable, UsageError
from mirror_engine.events import TableDropped
from mirror_engine.landing_zone.layout import ENGINE, SCRATCH, TABLES
from mirror_engine.landing_zone.names import TableName
from mirror_engine.landing_zone.states import CaughtUp, Halted
from mirror_engine.tables.log.record import FORMAT
from mirror_engine.tables.merge.arrow import ArrowWriter

# each with tables on the disk: no part of the quick look
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_pauses")]

ORDERS = TableName("", "Orders")


@pytest.fixture
def long_lake(tmp_path):
    return Lake(tmp_path / "lake")


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def write_another_format(lake):
    text = lake.commit(5).read_text(encoding="utf-8")
    assert '\\"mirror_engine\\":4' in text
    lake.commit(5).write_text(text.replace('\\"mirror_engine\\":4', '\\"mirror_engine\\":99'), encoding="utf-8")


def lose_one_after_the_checkpoint(lake):
    lake.checkpoint()
    lake.commit(4).unlink()


MISSING = "commit {} of its Delta log is missing"
CUT = "commit {} of its Delta log is cut off or damaged"
NO_CHECKPOINT = "checkpoint {} of its Delta log is missing"
BAD_CHECKPOINT = "checkpoint {} of its Delta log is damaged"
REBUILD = "`mirror-engine rebuild --replay --table Orders`"
NEWEST, HINTED = "delete _delta_log/00000000000000000005.json", "Delete _last_checkpoint"
OTHER_FORMAT = f"its progress has format 99, this version of mirror-engine reads {FORMAT}"
ELSEWHERE = (
    '{"add":{"path":"/etc/passwd","partitionValues":{},"size":9,"modificationTime":0,"dataChange":true}}\n'
    '{"commitInfo":{"operation":"WRITE"}}\n'
)
DAMAGES = {
    "newest cut": (lambda lake: cut(lake.commit(5)), CUT.format(5), NEWEST),
    "newest empty": (lambda lake: lake.commit(5).write_bytes(b""), CUT.format(5), NEWEST),
    "newest zeros": (lambda lake: lake.commit(5).write_bytes(bytes(200)), CUT.format(5), NEWEST),
    "another format": (write_another_format, OTHER_FORMAT, REBUILD),
    "middle overwritten": (lambda lake: lake.commit(2).write_bytes(b"\xff\xfe[1]"), CUT.format(2), REBUILD),
    "middle missing": (lambda lake: lake.commit(2).unlink(), MISSING.format(2), REBUILD),
    "first missing": (lambda lake: lake.commit(0).unlink(), MISSING.format(0), REBUILD),
    "missing after the checkpoint": (lose_one_after_the_checkpoint, MISSING.format(4), REBUILD),
    "checkpoint missing": (lambda lake: lake.checkpoint().unlink(), NO_CHECKPOINT.format(3), HINTED),
    "checkpoint cut": (lambda lake: cut(lake.checkpoint()), BAD_CHECKPOINT.format(3), HINTED),
    "checkpoint empty": (lambda lake: lake.checkpoint().write_bytes(b""), BAD_CHECKPOINT.format(3), HINTED),
    "only checkpoint missing": (
        lambda lake: lake.checkpoint(cleaned_up=True).unlink(),
        NO_CHECKPOINT.format(3),
        REBUILD,
    ),
    "only checkpoint cut": (lambda lake: cut(lake.checkpoint(cleaned_up=True)), BAD_CHECKPOINT.format(3), REBUILD),
    "hint at no checkpoint": (
        lambda lake: (lake.log / HINT).write_text('{"version":77,"size":1}'),
        NO_CHECKPOINT.format(77),
        HINTED,
    ),
    "file elsewhere": (
        lambda lake: lake.commit(6).write_text(ELSEWHERE, encoding="utf-8"),
        "its Delta log names a file outside of the table's folder",
        REBUILD,
    ),
}


def is_halted(table, fault, remedy):
    assert isinstance(table.state, Halted)
    assert table.state.diagnostic.full_message == f"Orders: its Delta table cannot be read: {fault} [ME081]"
    assert remedy in table.state.diagnostic.help
    return True


@pytest.mark.parametrize(("damage", "fault", "remedy"), DAMAGES.values(), ids=DAMAGES)
def test_damaged_log_halts_its_table_alone_until_it_is_rebuilt(long_lake, damage, fault, remedy):
    """With reason and help; the ledger is lost, too, so that nothing says what was applied."""
    long_lake.orders("Other").land_parquet(NO_ROWS)
    damage(long_lake)
    assert is_halted(long_lake.status(), fault, remedy)
    long_lake.land()
    assert long_lake.sync().result is RunResult.NEEDS_ATTENTION
    assert long_lake.status("Other").delta_version == 1
    shutil.rmtree(long_lake.root / ENGINE)
    assert is_halted(long_lake.status(), fault, remedy)
    assert long_lake.sync().result is RunResult.NEEDS_ATTENTION
    assert not [event for event in long_lake.events if isinstance(event, TableDropped)]
    long_lake.begin()
    with long_lake.mirror() as mirror:
        with pytest.raises(UsageError, match="not known which files were applied"):
            mirror.rebuild(["Orders"], replay=True)
        dropped = mirror.rebuild(["Orders"], replay=True, lose_rows=True).dropped
        assert [each.table for each in dropped] == ["Orders"]
        assert mirror.history().changes[0].change == "dropped"
    assert long_lake.sync().result is RunResult.CAUGHT_UP
    assert long_lake.status().watermarks == {"": 6}


@pytest.mark.parametrize(("damage", "fault", "remedy"), [each for each in DAMAGES.values() if each[2] != REBUILD])
def test_help_for_a_damaged_table_works_while_running(long_lake, damage, fault, remedy):
    with long_lake.engine() as running:
        running.cycle(NO_STOP)
        damage(long_lake)
        long_lake.land()
        running.cycle(NO_STOP)
        assert is_halted(long_lake.status(), fault, remedy)
        if "_last_checkpoint" in remedy:
            for path in [*long_lake.log.glob("*.checkpoint.parquet"), long_lake.log / HINT]:
                path.unlink()
        else:
            long_lake.commit(5).unlink()
        for _ in range(3):
            running.cycle(NO_STOP)
        (plan,) = running.last.plans.values()
        assert plan.state == CaughtUp()
        assert "ME081" not in {found.code for found in plan.diagnostics}
        assert running.last.failures == {}


@pytest.mark.parametrize("damage", ["newest cut", "another format", "only checkpoint cut"])
def test_damaged_table_is_rebuilt_without_a_loss_by_its_ledger(long_lake, damage):
    DAMAGES[damage][0](long_lake)
    long_lake.begin()
    with long_lake.mirror() as mirror:
        assert [each.table for each in mirror.rebuild(["Orders"], replay=True).dropped] == ["Orders"]
    assert long_lake.sync().result is RunResult.CAUGHT_UP
    assert long_lake.status().watermarks == {"": 5}


def test_damaged_table_without_a_ledger_is_not_taken_for_fabrics(long_lake):
    long_lake.commit(2).unlink()
    shutil.rmtree(long_lake.root / ENGINE)
    long_lake.begin()
    with long_lake.mirror() as mirror:
        assert mirror._status().fabric is None


def test_damaged_table_of_another_program_is_not_rebuilt(long_lake):
    """Nor dropped: nothing says that it is of a mirror."""
    shutil.rmtree(long_lake.folder)
    write_deltalake(str(long_lake.folder), NO_ROWS)
    long_lake.commit(1).write_text("{", encoding="utf-8")
    shutil.rmtree(long_lake.root / ENGINE)
    with long_lake.mirror() as mirror:
        assert mirror.rebuild(["Orders"], replay=True).dropped == []
    assert long_lake.folder.exists()


@pytest.mark.parametrize("harm", [b"", b"no JSON", b'{"size":1}'])
def test_a_hint_that_cannot_be_read_hurts_nobody(long_lake, harm):
    long_lake.checkpoint()
    (long_lake.log / HINT).write_bytes(harm)
    long_lake.land()
    assert long_lake.sync().result is RunResult.CAUGHT_UP
    assert long_lake.status().delta_version == 6


def test_a_commit_below_the_checkpoint_is_not_needed(long_lake):
    long_lake.checkpoint()
    long_lake.commit(1).unlink()
    cut(long_lake.commit(2))
    long_lake.land()
    assert long_lake.sync().result is RunResult.CAUGHT_UP


def test_commit_truncated_at_its_checkpoint_halts_the_table(long_lake):
    DeltaTable(str(long_lake.folder)).create_checkpoint()
    cut(long_lake.commit(5))
    assert is_halted(long_lake.status(), CUT.format(5), REBUILD)


def test_a_damaged_table_whose_folder_was_recreated_is_built_anew(long_lake):
    cut(long_lake.commit(5))
    long_lake.publisher.remove("Orders")
    long_lake.orders().land_parquet(NO_ROWS)
    assert long_lake.sync().result is RunResult.CAUGHT_UP
    assert (long_lake.status().state, long_lake.status().delta_version) == (CaughtUp(), 1)


def test_a_damaged_table_whose_folder_is_gone_is_dropped(long_lake):
    cut(long_lake.commit(5))
    long_lake.publisher.remove("Orders")
    assert long_lake.sync().result is RunResult.CAUGHT_UP
    assert not long_lake.folder.exists()


def test_truncated_external_commit_halts_a_caught_up_table(long_lake):
    with long_lake.engine() as running:
        running.cycle(NO_STOP)
        long_lake.commit(6).write_text('{"add":{"path"')
        running.cycle(NO_STOP)
        (plan,) = running.last.plans.values()
        assert isinstance(plan.state, Halted)
        assert plan.state.diagnostic.code == "ME081"
        long_lake.commit(6).unlink()
        running.cycle(NO_STOP)
        (plan,) = running.last.plans.values()
        assert plan.state == CaughtUp()


@pytest.mark.parametrize("ledger", ["kept", "lost"])
@pytest.mark.parametrize("place", ["", f"{5:020}.json", f"{6:020}.json"], ids=["log", "newest", "foreign"])
def test_a_log_that_cannot_be_looked_into_delays_its_table_alone(long_lake, place, ledger):
    """As without the rights or under a bad sector; here a link to itself, which stops even root."""
    long_lake.orders("Other").land_parquet(NO_ROWS)
    long_lake.land()
    knot, aside = long_lake.log / place, long_lake.root / "aside"
    if knot.exists():
        knot.rename(aside)
    knot.symlink_to(knot)
    if ledger == "lost":
        shutil.rmtree(long_lake.root / ENGINE)
    long_lake.status()
    assert long_lake.sync().result is RunResult.RETRY
    assert long_lake.status("Other").delta_version == 1
    assert not [event for event in long_lake.events if isinstance(event, TableDropped)]
    knot.unlink()
    if aside.exists():
        aside.rename(knot)
    assert long_lake.sync().result is RunResult.CAUGHT_UP
    assert long_lake.status().watermarks == {"": 6}


def test_table_unreadable_at_start_recovers_while_running(long_lake):
    """Its ledger is lost, too: until its log is read, nothing is done with it, and file 1 has long been moved away."""
    long_lake.land()
    shutil.rmtree(long_lake.root / ENGINE)
    aside = long_lake.log.rename(long_lake.root / "aside")
    long_lake.log.symlink_to(long_lake.log)
    with long_lake.engine() as running:
        running.cycle(NO_STOP)
        assert list(running.last.failures) == [ORDERS]
        assert running.context.ledger.progress(ORDERS) is None
        long_lake.log.unlink()
        aside.rename(long_lake.log)
        running.cycle(NO_STOP)
        running.cycle(NO_STOP)
        assert running.last.plans[ORDERS].state == CaughtUp()
    assert long_lake.status().watermarks == {"": 6}


def test_a_log_that_cannot_be_read_now_is_no_damage(long_lake, monkeypatch):
    def unreadable(*_):
        raise StorageUnavailable("scripted")

    monkeypatch.setattr(long_lake.writer, "latest_external_change", unreadable)
    assert long_lake.status().state == CaughtUp()
    assert long_lake.sync().result is RunResult.CAUGHT_UP


def overwrite(file):
    """As a disk does that lost a block: size and magic bytes stay."""
    content = file.read_bytes()
    file.write_bytes(content[:4] + bytes(len(content) - 8) + content[-4:])


@pytest.mark.parametrize("has_statistics", [True, False], ids=["statistics", "no statistics"])
@pytest.mark.parametrize(
    ("damage", "fault"),
    [
        (lambda file: file.unlink(), "the Delta log names this file, but it is missing"),
        (cut, "not a Parquet file"),
        (overwrite, "it cannot be decoded"),
    ],
    ids=["missing", "cut", "overwritten"],
)
def test_damaged_data_file_halts_its_table_at_the_first_file_that_needs_it(tmp_path, damage, fault, has_statistics):
    """LZ-4.20: its log can be read, so the third try alone shows that waiting does not help; the rest continues."""
    shop = Shop(tmp_path, ArrowWriter(tmp_path / TABLES, tmp_path / SCRATCH))
    orders = shop.orders()
    orders.insert(row(1), row(2))
    shop.orders("Other").insert(row(9))
    shop.sync()
    (harmed,) = (tmp_path / TABLES / "dbo/Orders").glob("*.parquet")
    if not has_statistics:  # as other programs write
        *_, commit = sorted((tmp_path / TABLES / "dbo/Orders/_delta_log").glob("*.json"))
        commit.write_text(re.sub(r'"stats":"(\\.|[^"\\])*",?', "", commit.read_text()).replace(",}", "}"))
        shop.writer = ArrowWriter(tmp_path / TABLES, tmp_path / SCRATCH)
    content = harmed.read_bytes()
    damage(harmed)
    orders.delete(row(1))
    assert shop.sync().result is RunResult.NEEDS_ATTENTION
    state = shop.status().state
    assert isinstance(state, Halted)
    assert state.diagnostic.code == "ME086"
    assert f"{harmed.name}: {fault}" in state.diagnostic.message
    assert state.diagnostic.help.startswith("Restore the table's folder from a backup, or rebuild the table")
    harmed.write_bytes(content)
    assert shop.sync().result is RunResult.CAUGHT_UP
    assert shop.ids() == [2]
