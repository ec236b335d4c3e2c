"""All-NULL columns that make no claim: a table without a typed column and without rows is not there yet (LZ-5.13)."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from shop import Shop, name

from mirror_engine.engine.cycle import RunResult
from mirror_engine.errors import UnknownTable
from mirror_engine.landing_zone.layout import LEDGER, SCRATCH, TABLES
from mirror_engine.landing_zone.states import CaughtUp
from mirror_engine.tables.merge.arrow import ArrowWriter
from mirror_engine.testing.mirror import MirrorInTest
from mirror_engine.tools.trace.file import trace_file
from mirror_engine.tools.validate import check_landing_zone
from mirror_engine.tools.validation_target import find_target

VOID, TEXT = pa.null(), pa.string()
MARKER = "__rowMarker__"


@pytest.fixture(params=["memory", "arrow"])
def untyped_shop(request, tmp_path):
    writer = ArrowWriter(tmp_path / TABLES, tmp_path / SCRATCH) if request.param == "arrow" else None
    return Shop(tmp_path, writer, all_null_columns="untyped")


def land(shop, number, folder="Orders", **columns):
    """Land a file; each column is its values, then its type."""
    content = io.BytesIO()
    pq.write_table(pa.table({column: pa.array(*values) for column, values in columns.items()}), content)
    shop.publisher.put(f"{folder}/{name(number)}", content.getvalue())


def nothing(*columns):
    return {column: ([], VOID) for column in (*columns, MARKER)}


def rows(shop):
    return sorted(shop.writer.rows("dbo/Orders").to_pylist(), key=str)


def test_files_without_rows_and_types_are_done_but_make_no_table(untyped_shop):
    untyped_shop.publisher.table("Orders", keys=["id"])
    for number in (1, 2, 3):
        land(untyped_shop, number, **nothing("id", "city"))
    assert untyped_shop.sync().result is RunResult.CAUGHT_UP
    assert (list(untyped_shop.writer.tables()), untyped_shop.said()) == ([], [])
    untyped_shop.now += 30 * 86_400  # never `Failed` (LZ-7.1): it has files
    status = untyped_shop.status()
    assert (status.state, status.fabric_status, status.delta_version) == (CaughtUp(), "Replicating", None)
    assert status.message == "Orders has caught up; no table yet: no file gives a column a type"
    assert [(file.path, file.state, file.rows) for file in status.files] == [(name(n), "applied", 0) for n in (1, 2, 3)]
    assert all((untyped_shop.publisher.path / "Orders" / name(number)).exists() for number in (1, 2, 3))


@pytest.mark.slow
def test_first_commit_names_files_applied_before_the_table(untyped_shop):
    untyped_shop.publisher.table("Orders", keys=["id"])
    land(untyped_shop, 1, **nothing("id", "city"))
    untyped_shop.sync()
    for number in (2, 3):
        land(untyped_shop, number, id=([str(number)], TEXT))
        assert untyped_shop.sync().files_applied == 1
    (untyped_shop.root / LEDGER).unlink()
    with untyped_shop.mirror() as mirror:
        mirror.rebuild(replay=True)
    untyped_shop.sync()
    assert rows(untyped_shop) == [{"id": "2"}, {"id": "3"}]


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 1000])
def test_a_table_may_be_there_before_its_key_is(tmp_path, batch):
    writer = ArrowWriter(tmp_path / TABLES, tmp_path / SCRATCH)
    shop = Shop(tmp_path, writer, all_null_columns="untyped", max_batch_files=batch)
    shop.publisher.table("Orders", keys=["id", "line"])
    land(shop, 1, id=([], pa.int64()), line=([], VOID), city=([], VOID))
    if batch == 1:
        shop.sync()
        assert writer.snapshot("dbo/Orders").schema.names == ("id",)
    land(shop, 2, line=([1, 2], pa.int8()), id=([7, 7], pa.int64()), city=([None, None], VOID))
    land(shop, 3, line=([2], pa.int8()), id=([7], pa.int64()), city=(["Linz"], TEXT), **{MARKER: ([1], pa.int32())})
    assert shop.sync().result is RunResult.CAUGHT_UP
    assert rows(shop) == [{"id": 7, "line": 1, "city": None}, {"id": 7, "line": 2, "city": "Linz"}]
    shop.publisher.put("Orders/_metadata.json", b'{"keyColumns": ["id"]}')
    assert shop.sync().result is RunResult.NEEDS_ATTENTION  # the whole key is on record


def test_what_the_test_kit_and_validate_say(tmp_path):
    shop = Shop(tmp_path, all_null_columns="untyped")
    shop.publisher.table("Orders", keys=["id"])
    land(shop, 1, **nothing("id"))
    with MirrorInTest(tmp_path, shop.config, writer=shop.writer) as mirror:
        mirror.sync_until_caught_up()
        with pytest.raises(UnknownTable, match="no table yet: no file gives a column a type"):
            mirror.table("Orders").rows()
    with shop.trace() as trace:
        traced = trace_file(trace, name(1))
        assert (traced.state, traced.rows, traced.delta_version) == ("applied", 0, None)
    land(shop, 2, id=(["A1"], TEXT), **{MARKER: ([0], pa.int32())})
    (found,) = check_landing_zone(find_target(shop.root, shop.config)).tables
    assert (found.table.state, len(found.table.files), found.diagnostics) == ("caught_up", 2, ())
