"""Generated tables end as their changes say, whatever stops the load, and break no rule."""

from __future__ import annotations

import pyarrow as pa
import pytest
from store_servers import ONE_BY_DAY

from mirror_engine import Mirror
from mirror_engine.errors import UsageError
from mirror_engine.publish import LandingZone
from mirror_engine.tables.dry_run.memory import MemoryDeltaWriter
from mirror_engine.tools.generate import KINDS, Load, generate, zone_of

pytestmark = pytest.mark.slow  # whole programs: no part of the quick look

SMALL = Load(tables=len(KINDS) + 1, rows=20, rate=60, seconds=3)


def landed(root, load=SMALL):
    """What was landed, without waiting."""
    waits = []
    *_, found = generate(zone_of(root), str(root), load, waits.append)
    return found, waits


def keys_of(mirror, table):
    """Numbers of the rows, in order."""
    rows = mirror.read_table(table).to_pylist()
    return sorted(row["id"] if "id" in row else (row["order_id"] - 1) * 3 + row["line"] for row in rows)


def test_each_table_has_the_newest_rows_and_no_rule_is_broken(tmp_path):
    found, waits = landed(tmp_path)
    assert (len(found.tables), len(waits)) == (len(KINDS) + 1, 3)
    assert sum(each.inserts + each.updates + each.deletes for each in found.tables) == 180
    with Mirror(tmp_path, writer=MemoryDeltaWriter()) as mirror:
        mirror.sync()
        for each in found.tables:
            first, end = 1 + each.deletes, 20 + each.inserts
            assert keys_of(mirror, each.table) == list(range(first, end + 1))
            assert (each.rows, each.loaded, each.files) == (end + 1 - first, 20, 4)
        worst = [finding.code for table in mirror.validate().targets[0].tables for finding in table.diagnostics]
    assert worst == []
    assert found.tables[-1].table == "Shop.Customers2"


def test_later_load_continues_the_tables(tmp_path):
    before, _ = landed(tmp_path)
    after, _ = landed(tmp_path)
    assert [each.loaded for each in after.tables] == [0] * len(before.tables)
    with Mirror(tmp_path, writer=MemoryDeltaWriter()) as mirror:
        mirror.sync()
        for first, second in zip(before.tables, after.tables, strict=True):
            assert len(keys_of(mirror, first.table)) == second.rows == first.rows + second.inserts - second.deletes


def test_seed_repeats_rows(tmp_path):
    tables = []
    for name in "ab":
        (tmp_path / name).mkdir()
        landed(tmp_path / name)
        with Mirror(tmp_path / name, writer=MemoryDeltaWriter()) as mirror:
            mirror.sync()
            tables.append(mirror.read_table("Shop.Orders").sort_by("id"))
    assert tables[0] == tables[1]


def test_deletes_alone_leave_a_row(tmp_path):
    found, _ = landed(tmp_path, Load(tables=1, rows=5, rate=20, mix=(0, 0, 1), seconds=1))
    assert found.tables[0].rows in {1, 2}


def test_folder_of_another_publisher_is_refused_and_kept(tmp_path):
    zone = LandingZone(tmp_path / "Files/LandingZone")
    folder = tmp_path / "Files/LandingZone/Shop.schema/Customers"
    with zone.table("Shop.Customers", keys=["id"], schema=KINDS[0].schema) as table:
        table.insert(pa.Table.from_pylist([{"id": 1}], KINDS[0].schema))
    with pytest.raises(UsageError, match="has 1 change file of another publisher"):
        landed(tmp_path)
    assert len(list(folder.glob("0*.parquet"))) == 1


@ONE_BY_DAY
def test_load_lands_in_every_store(store):
    root, load = store.new_root(), Load(tables=2, rows=5, rate=4, seconds=2)
    before, _ = landed(root, load)
    after, _ = landed(root, load)
    assert [[each.loaded for each in found.tables] for found in (before, after)] == [[5, 5], [0, 0]]
    with pytest.raises(FileExistsError):
        zone_of(root).files.create("Shop.schema/Customers/00000000000000000001.parquet", b"")
    with Mirror(root, writer=MemoryDeltaWriter()) as mirror:
        mirror.sync()
        assert [mirror.read_table(each.table).num_rows for each in after.tables] == [each.rows for each in after.tables]
