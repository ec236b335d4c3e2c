"""Net changes as SQL on Spark executors, for batches that are too large for one process.

It does what `staged` does with `net_changes` and `without_absent_keys`; a test compares both. Every window is over one
key, so that Spark may spread keys over executors and spill what does not fit into memory.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from mirror_engine.landing_zone.change import RowMarker
from mirror_engine.tables.arrow_types import quoted
from mirror_engine.tables.base import MatchCounts
from mirror_engine.tables.changes.net_changes import Role
from mirror_engine.tables.changes.staged import ROLE, StagedChanges
from mirror_engine.tables.log.table_path import spark_path
from mirror_engine.tables.spark.executors import FILE_NUMBER, MARKER, ParquetRows, file_name, scratch_name
from mirror_engine.tables.spark.session import confs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from mirror_engine.tables.base import ChangeBatch
    from mirror_engine.tables.log.snapshot import DeltaLog
    from mirror_engine.tables.log.table_path import TablePath

# what follows from joins over many key columns would fill the memory before the first row is read
_SETTINGS = {"spark.sql.constraintPropagation.enabled": "false"}
_FILE_ROWS = 1 << 40  # a position is the file's place times this, plus the row's

# The keys of the batch that the table holds, and in how many rows.
_HELD = "SELECT {keys}, count(*) AS prior FROM target LEFT SEMI JOIN changes USING ({keys}) GROUP BY {keys}"

# How many rows of its key each change finds just before it, as `net_changes.matched_rows` counts them.
_MATCHES = """
WITH changed AS (SELECT {keys}, file, pos, marker, coalesce(prior, 0) AS prior
  FROM changes LEFT JOIN held USING ({keys}) WHERE {complete}),
lives AS (SELECT *, count(CASE WHEN marker = {delete} THEN 1 END) OVER (PARTITION BY {keys} ORDER BY pos
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS life FROM changed),
before AS (SELECT *, CASE WHEN life = 0 THEN prior ELSE 0 END AS base, first(marker) OVER w AS begun_by,
    count(CASE WHEN marker = {insert} THEN 1 END) OVER w AS inserts
  FROM lives WINDOW w AS (PARTITION BY {keys}, life ORDER BY pos ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)),
found AS (SELECT file, marker,
    base + inserts + CASE WHEN base = 0 AND begun_by IN ({sets}) THEN 1 ELSE 0 END AS matched FROM before)
SELECT file, count_if(marker = {insert} AND matched > 0) AS inserts,
    count_if(marker <> {insert} AND matched > 1) AS changes
FROM found GROUP BY file
"""

# The net changes, one row for each position that counts, as `net_changes` makes them. What the table holds is joined
# before the windows: both are over the keys, so that full rows are shuffled once.
_NET = """
WITH keyed AS (SELECT *, CASE WHEN NOT ({complete}) THEN pos END AS own FROM changes LEFT JOIN held USING ({keys})),
alive AS (SELECT *, max(CASE WHEN marker = {delete} THEN pos END) OVER w AS d FROM keyed
  WHERE own IS NULL OR marker <> {delete}
  WINDOW w AS (PARTITION BY {keys}, own ORDER BY pos ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)),
facts AS (SELECT *, max(CASE WHEN marker IN ({sets}) THEN pos END) OVER w AS s,
    min(CASE WHEN marker IN ({sets}) THEN pos END) OVER w AS s1,
    min(CASE WHEN marker = {insert} THEN pos END) OVER w AS i1,
    count(CASE WHEN marker = {insert} THEN 1 END) OVER (PARTITION BY {keys}, own ORDER BY pos
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS n
  FROM alive WHERE d IS NULL OR pos >= d
  WINDOW w AS (PARTITION BY {keys}, own ORDER BY pos ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING))
SELECT *, CASE WHEN marker = {delete} THEN {DELETE}
    WHEN marker = {insert} OR d IS NOT NULL OR own IS NOT NULL THEN {INSERT}
    WHEN i1 < s1 THEN {SET_ONLY} ELSE {SET} END AS net,
  CASE WHEN marker = {delete} THEN 0 WHEN marker = {insert} OR own IS NOT NULL THEN 1
    WHEN d IS NULL OR i1 < s1 THEN n ELSE n + 1 END AS copies
FROM facts WHERE marker = {delete} OR pos = s OR (marker = {insert} AND pos > coalesce(s, -1))
"""

# The same, now that it is known which keys the table holds, as `staged.without_absent_keys` has it: for each net change
# the roles of its staged rows, that of the one that matches, if it does, then those of its copies.
_SETTLED = """
SELECT {cells}, CAST(concat(
    CASE WHEN net = {INSERT} OR prior IS NULL THEN array()
      WHEN net = {DELETE} THEN array({DELETE}) ELSE array({SET_ONLY}) END,
    array_repeat({INSERT}, int(copies + CASE WHEN net = {SET} AND prior IS NULL THEN 1 ELSE 0 END))
  ) AS ARRAY<TINYINT>) AS roles
FROM net
"""

# A batch of inserts alone: nothing is reduced, and nothing matches.
_INSERTS = "SELECT {cells}, array(tinyint({INSERT})) AS roles FROM changes"


def stage_on_executors(spark: SparkSession, batch: ChangeBatch, log: DeltaLog, folder: TablePath) -> StagedChanges:
    """Stage a batch as `stage_here` does, in a folder that every executor sees; no other thread uses the session."""
    names = batch.schema.names
    keys = [f"c{names.index(name)}" for name in batch.key_columns]
    cells = [f"c{place}" for place in range(len(names))]
    words = {
        "cells": ", ".join(cells),
        "keys": ", ".join(keys),
        "complete": " AND ".join(f"{key} IS NOT NULL" for key in keys),
        "insert": RowMarker.INSERT.value,
        "delete": RowMarker.DELETE.value,
        "sets": f"{RowMarker.UPDATE.value}, {RowMarker.UPSERT.value}",
        **{role.name: role.value for role in Role},
    }
    with confs(spark, _SETTINGS), ExitStack() as views:

        def view(name: str, rows: DataFrame) -> None:
            rows.createOrReplaceTempView(name)
            views.callback(spark.catalog.dropTempView, name)

        matches = {}
        view("changes", _changes(spark, batch, folder / "landed"))
        if keys:
            view("target", _target(spark, batch, log))
            view("held", _kept(spark.sql(_HELD.format(**words)), folder / "held"))
            found = spark.sql(_MATCHES.format(**words)).collect()
            matches = {row.file: MatchCounts(row.inserts, row.changes) for row in found}
        has_changes = any(marker != RowMarker.INSERT for file in batch.files for marker in file.markers)
        if has_changes:
            view("net", spark.sql(_NET.format(**words)))
        net = spark.sql((_SETTLED if has_changes else _INSERTS).format(**words))
        rows = _kept(net.selectExpr(*cells, f"explode(roles) AS {ROLE}"), folder / "staged")
        counts = tuple(matches.get(at, MatchCounts()) for at in range(len(batch.files)))
        return _summed_up(rows, keys, folder / "staged", counts)


def _changes(spark: SparkSession, batch: ChangeBatch, folder: TablePath) -> DataFrame:
    """All rows of the batch: the table's columns as `c0`, `c1` …, `marker`, `file` and their order, `pos`."""
    if isinstance(folder, Path):
        folder.mkdir(parents=True)
    paths = []
    for place, file in enumerate(batch.files):  # in the file that an executor wrote, or in one of our own
        if isinstance(file.rows, ParquetRows) and file.rows.number == place:
            paths.append(spark_path(file.rows.path))
            continue
        copy = ParquetRows(file.rows.schema, folder / file_name(place, "rows"), place)
        for rows in file.rows.batches():
            copy.add(rows)
        copy.finish()
        paths.append(spark_path(copy.path))
    types = [f"{quoted(scratch_name(column.name))} {column.type}" for column in batch.schema.columns]
    reader = spark.read.schema(", ".join([*types, f"{MARKER} TINYINT"])).option("__globPaths__", "false")
    cells = [f"{quoted(scratch_name(name))} AS c{place}" for place, name in enumerate(batch.schema.names)]
    position = f"{FILE_NUMBER} * {_FILE_ROWS} + _metadata.row_index AS pos"
    return reader.parquet(*paths).selectExpr(*cells, MARKER, f"{FILE_NUMBER} AS file", position)


def _target(spark: SparkSession, batch: ChangeBatch, log: DeltaLog) -> DataFrame:
    """The keys of the table before the batch, under the names they have in `changes`."""
    places = {name: batch.schema.names.index(name) for name in batch.key_columns}
    if not places.keys() <= set(log.schema.names):
        types = (f"c{place} {batch.schema.columns[place].type}" for place in places.values())
        return spark.createDataFrame([], ", ".join(types))
    table = spark.read.format("delta").option("versionAsOf", log.version).load(spark_path(log.folder))
    return table.selectExpr(*(f"{quoted(name)} AS c{place}" for name, place in places.items()))


def _kept(rows: DataFrame, folder: TablePath) -> DataFrame:
    """The same rows, worked out once, where they lie now."""
    rows.write.option("compression", "snappy").parquet(spark_path(folder))
    reader = rows.sparkSession.read.schema(rows.schema).option("__globPaths__", "false")
    return reader.parquet(spark_path(folder))


def _summed_up(
    rows: DataFrame, keys: Sequence[str], folder: TablePath, matches: tuple[MatchCounts, ...]
) -> StagedChanges:
    """Counts and bounds of the staged rows."""
    matching = f"FILTER (WHERE {ROLE} <> {Role.INSERT:d})"
    bounds = [f"{bound}({key}) {matching} AS {key}_{bound}" for key in keys for bound in ("min", "max")]
    summary = rows.selectExpr("count(*) AS n", f"collect_set({ROLE}) AS roles", *bounds).toArrow()
    cells = [column[0] for column in summary.columns]
    pairs = tuple(zip(cells[2::2], cells[3::2], strict=True))
    return StagedChanges(folder, cells[0].as_py(), frozenset(map(Role, cells[1].as_py())), pairs, matches)
