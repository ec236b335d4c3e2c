"""What a Delta log said is believed as long as the log lies as it lay, and not a moment longer."""

from __future__ import annotations

import os

import pytest
from deltalake import CommitProperties, DeltaTable
from lake import NO_ROWS, Lake
from shop import Shop

from mirror_engine.landing_zone.layout import MEMORY, TABLES
from mirror_engine.tables import log_cache as remembering
from mirror_engine.tables.log_cache import CachingDeltaWriter

pytestmark = pytest.mark.slow  # each with a table on the disk

ORDERS = "dbo/Orders"


class Read(Exception):
    """The log is read."""


def refuse():
    raise Read


@pytest.fixture
def lake(tmp_path):
    return Lake(tmp_path / "lake", files=2)


def another(lake):
    """The writer of another process, which cannot read a log."""
    return CachingDeltaWriter(lake.root / TABLES, lake.root / MEMORY, refuse)


def test_another_process_knows_what_the_logs_said_and_reads_none(lake):
    real = lake.writer._make()
    writer = another(lake)
    assert writer.tables() == [ORDERS]
    assert writer.state(ORDERS) == real.state(ORDERS)
    assert writer.state(ORDERS).record.files
    assert writer.row_count(ORDERS) == real.row_count(ORDERS) == 0
    assert writer.changed_by_others(ORDERS, writer.state(ORDERS).version) == -1


def test_a_level_zone_is_looked_at_without_reading_a_log(lake):
    lake.writer = another(lake)
    assert Shop.sync(lake).commits == 0
    assert Shop.status(lake).delta_version == 2


def commit(lake):
    DeltaTable(str(lake.folder)).alter.set_table_properties(
        {"delta.logRetentionDuration": "interval 9 days"}, commit_properties=CommitProperties()
    )


def lose(lake):
    lake.commit(0).unlink()


def shorten(lake):
    os.truncate(lake.commit(1), 100)


def rewrite(lake):
    """As many bytes in the same file, its time set back."""
    before = lake.commit(1).stat()
    with lake.commit(1).open("r+b") as file:
        file.write(b"[")
    os.utime(lake.commit(1), ns=(before.st_atime_ns, before.st_mtime_ns))


def replace(lake):
    content = lake.commit(1).read_bytes()
    lake.commit(1).unlink()
    lake.commit(1).write_bytes(content)


def add_below(lake):
    (lake.log / "_sidecars").mkdir()
    (lake.log / "_sidecars" / "a.parquet").write_bytes(b"")


def delete_rows(lake):
    (lake.folder / "deletion_vector_a.bin").write_bytes(b"")


@pytest.mark.parametrize(
    "change", [commit, lose, shorten, rewrite, replace, add_below, delete_rows], ids=lambda change: change.__name__
)
def test_a_log_that_lies_otherwise_is_read_again(lake, change):
    change(lake)
    for asked in (another(lake).state, another(lake).row_count):
        with pytest.raises(Read):
            asked(ORDERS)


def test_a_commit_of_others_is_asked_for_even_where_the_rest_is_known(lake):
    writer = another(lake)
    commit(lake)
    with pytest.raises(Read):
        writer.changed_by_others(ORDERS, 2)


def delete(path):
    path.unlink()


def cut(path):
    path.write_bytes(path.read_bytes()[:-200])


def flip(path):
    """Still JSON, with another number of rows."""
    path.write_text(path.read_text().replace('"rows": 0', '"rows": 7'))


def scribble(path):
    path.write_bytes(b"\xff\x00 no memory at all")


@pytest.mark.parametrize("harm", [delete, cut, flip, scribble], ids=lambda harm: harm.__name__)
def test_a_memory_that_nobody_vouches_for_is_not_believed(lake, harm):
    harm(lake.root / MEMORY)
    with pytest.raises(Read):
        another(lake).row_count(ORDERS)
    lake.sync()
    assert another(lake).row_count(ORDERS) == 0


def test_another_version_of_the_program_reads_for_itself(lake, monkeypatch):
    monkeypatch.setattr(remembering, "ENGINE_INFO", "mirror_engine/another")
    with pytest.raises(Read):
        another(lake).state(ORDERS)


def test_who_only_looks_leaves_no_memory(lake):
    (lake.root / MEMORY).unlink()
    lake.status()
    assert not (lake.root / MEMORY).exists()


def test_a_table_that_cannot_be_read_is_not_remembered_and_the_others_are(lake):
    lake.orders("Other").land_parquet(NO_ROWS)
    lake.sync()
    shorten(lake)
    lake.sync()
    with pytest.raises(Read):
        another(lake).state(ORDERS)
    assert another(lake).state("dbo/Other").version == 1
