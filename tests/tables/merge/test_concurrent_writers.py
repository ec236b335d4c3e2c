"""Other programs commit exactly between the engine's snapshot and its commit, with Spark itself in between."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.schema import Field, PrimitiveType
from shop import Shop, row

from mirror_engine import RunResult
from mirror_engine.events import RetryScheduled
from mirror_engine.tables.merge import spark as merge_module
from mirror_engine.tables.merge import spark as writer_module

if TYPE_CHECKING:
    from collections.abc import Callable


def append(folder):
    write_deltalake(folder, pa.table({"id": [7], "city": ["theirs"]}), mode="append")


NEW = [(1, "Linz"), (2, "new"), (3, "new")]
# who comes between, which rows are there in the end, and whether it changed any: 1 and 2 were, 2 is written anew
INTRUDERS: dict[str, tuple[Callable[[str], None], list[tuple[int, str]], bool]] = {
    "append": (append, [*NEW, (7, "theirs")], True),
    "delete": (lambda folder: DeltaTable(folder).delete("id = 2"), NEW, True),
    "columns": (lambda folder: DeltaTable(folder).alter.add_columns(Field("note", PrimitiveType("string"))), NEW, True),
    "compact": (lambda folder: DeltaTable(folder).optimize.compact(), NEW, False),
}

# one in every run; all of them with MIRROR_TEST_INTRUDERS="append delete columns compact"
TRIED = os.environ.get("MIRROR_TEST_INTRUDERS", "delete").split()


def intruding(intrude, folder, once, schema):
    """The rows a MERGE reads, which while they are read for the first time lets somebody else commit."""

    def pass_on(batches):
        try:
            once.touch(exist_ok=False)
        except FileExistsError:
            pass
        else:
            intrude(folder)
        yield from batches

    return lambda rows: rows.mapInArrow(pass_on, schema)


def rows_of(shop):
    with shop.mirror() as mirror:
        return sorted((row["id"], row["city"]) for row in mirror.read_table("Orders").to_pylist())


@pytest.mark.spark
@pytest.mark.parametrize("name", TRIED)
def test_a_concurrent_commit_is_retried_and_reported_where_rows_changed(
    tmp_path, mirror_writer, spark, monkeypatch, name
):
    from pyspark import cloudpickle  # noqa: PLC0415 - only tests with Spark need it

    intrude, rows, changes = INTRUDERS[name]
    shop = Shop(tmp_path / "shop")
    shop.writer = mirror_writer(shop.root)
    orders = shop.orders()
    for number in (1, 2):
        orders.insert(row(number))
        shop.sync()
    folder = str(shop.root / "Tables/dbo/Orders")
    version = DeltaTable(folder).version() + 1
    read = merge_module._staged_rows

    def staged_rows(*arguments):
        found = read(*arguments)
        return intruding(intrude, folder, tmp_path / "once", found.schema)(found)

    monkeypatch.setattr(merge_module, "_staged_rows", staged_rows)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", sys.executable)
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Python's workers know no tests
    orders.upsert({"id": 2, "city": "new"}, {"id": 3, "city": "new"})
    shop.events.clear()
    assert shop.sync().result is RunResult.CAUGHT_UP
    conflicts = [event.message for event in shop.events if isinstance(event, RetryScheduled)]
    assert all("another writer committed first" in message for message in conflicts), conflicts
    assert len(conflicts) == 1 or name == "append"  # Delta may let a mere append pass
    assert rows_of(shop) == rows
    said = [found.message for found, _ in shop.status().diagnostics if found.code == "ME080"]
    assert said == ([f"another program changed the Delta table at version {version}"] if changes else [])


@pytest.mark.spark
def test_who_comes_between_count_and_commit_is_counted(tmp_path, mirror_writer, monkeypatch):
    shop = Shop(tmp_path, mirror_writer(tmp_path))
    orders = shop.orders()
    orders.insert(row(1))
    shop.sync()
    folder, evolve, tries = str(shop.root / "Tables/dbo/Orders"), writer_module.evolve, []

    def evolving(*arguments):
        tries.append(arguments)
        version = evolve(*arguments)
        if len(tries) == 1:
            append(folder)  # the key 7, which the batch was told is absent
        return version

    monkeypatch.setattr(writer_module, "evolve", evolving)
    orders.upsert({"id": 1, "city": "new"}, {"id": 7, "city": "ours"})
    assert shop.sync().result is RunResult.CAUGHT_UP
    assert rows_of(shop) == [(1, "new"), (7, "ours")]
    assert len(tries) == 2
