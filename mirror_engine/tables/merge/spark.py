"""The merge engine on Spark: net changes of large batches, one append or MERGE of each batch, OPTIMIZE and VACUUM."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirror_engine.errors import CommitConflict, StorageUnavailable
from mirror_engine.landing_zone.change import RowMarker
from mirror_engine.tables.arrow_types import quoted
from mirror_engine.tables.base import MatchCounts, with_applied_by
from mirror_engine.tables.changes.counted import count_changes
from mirror_engine.tables.changes.net_changes import Role
from mirror_engine.tables.changes.staged import ROLE, StagedChanges, stage_here, staged
from mirror_engine.tables.log.commit import VECTORS, VECTORS_FROM_ROWS, commit_batch, evolve
from mirror_engine.tables.log.record import to_metadata
from mirror_engine.tables.log.segments import record_again
from mirror_engine.tables.log.snapshot import count_rows, refuse_newer_rows
from mirror_engine.tables.log.table_path import StorePath, remove_folder, spark_path
from mirror_engine.tables.merge.arrow import ArrowWriter
from mirror_engine.tables.spark.executors import FILE_NUMBER, MARKER, ParquetRows, file_name, scratch_name
from mirror_engine.tables.spark.failures import spark_failures
from mirror_engine.tables.spark.session import Sessions, confs, store_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

    from mirror_engine.config import ChangeDataFeed, DeletionVectors
    from mirror_engine.storage.store_url import Place
    from mirror_engine.tables.base import BatchRecord, ChangeBatch
    from mirror_engine.tables.log.commit import Evolution
    from mirror_engine.tables.log.snapshot import DeltaLog
    from mirror_engine.tables.log.table_path import TablePath
    from mirror_engine.tables.merge.arrow import Maintenance

DRIVER_BATCH_BYTES = 512 * 1024 * 1024  # 16 million rows, whose keys, markers and positions take 1.6 GiB
SMALL_ROWS = 50_000
_BROADCAST_BYTES = 32 * 1024 * 1024  # of staged Parquet: in memory a few times as much, in each executor
_INTEGER_SUFFIXES = {"byte": "Y", "short": "S", "integer": "", "long": "L"}

_INSERTING = {Role.SET, Role.INSERT}
_APPLICATION = "spark.databricks.delta.write.txnAppId"
_TRANSACTION = "spark.databricks.delta.write.txnVersion"
_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
_MERGE_SETTINGS = {"spark.databricks.delta.merge.materializeSource": "none"}  # what is staged never changes
# between a few rows planning is all: one task each, no Java source to write and compile, and no file to pass over by
# its statistics; a third of the time goes
_SMALL_SETTINGS = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.leafNodeDefaultParallelism": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.databricks.delta.stats.skipping": "false",
}
_MAINTENANCE_SETTINGS = {
    # a change may wait for it: only what is small is put together, so that it stays short however large the table is
    "spark.databricks.delta.optimize.minFileSize": str(16 * 1024 * 1024),
    # a MERGE rewrites whole files: larger ones make every change dearer
    "spark.databricks.delta.optimize.maxFileSize": str(128 * 1024 * 1024),
    # it may go below Delta's seven days: retention is the user's choice (LZ-8.6)
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    # VACUUM lists folders in so many tasks; with the 10,000 of the default it takes minutes
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "4",
}
# to put rows of a partition together before they are written, Delta asks for its columns without quoting their names
_ODD_PARTITIONS = {"spark.databricks.delta.merge.repartitionBeforeWrite.enabled": "false"}
# what follows from joins over many key columns would fill the memory before the first row is read
_NET_SETTINGS = {"spark.sql.constraintPropagation.enabled": "false"}
_FILE_ROWS = 1 << 40  # a position is the file's place times this, plus the row's

# Net changes of a large batch in SQL, as `stage_here` makes them; a test compares both. Every window is over one key,
# so that Spark may spread keys over executors and spill what does not fit into memory.

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

# The same, now that it is known which keys the table holds, as `without_absent_keys` has it: for each net change the
# roles of its staged rows, that of the one that matches, if it does, then those of its copies.
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


class SparkDeltaWriter(ArrowWriter):
    """`DeltaWriter` that merges with Spark, which starts when a merge first needs it, and is ended by `close`.

    A batch that matches no row is committed without Spark, as by `arrow`.

    Args:
        driver_batch_bytes: larger batches are reduced to net changes by Spark.
        shared: a scratch folder that executors reach, too; `scratch` by default.
        vectors: `auto` marks rows of large tables by deletion vectors, `off` leaves tables as they are.
    """

    def __init__(  # noqa: PLR0913 - what differs between ROOTs
        self,
        tables: Place,
        scratch: Path,
        session: Callable[[], SparkSession],
        driver_batch_bytes: int = DRIVER_BATCH_BYTES,
        change_data_feed: ChangeDataFeed = "keep",
        *,
        shared: TablePath | None = None,
        retention_days: int = 7,
        vectors: DeletionVectors = "auto",
    ) -> None:
        super().__init__(tables, scratch, change_data_feed, retention_days=retention_days, vectors=vectors)
        self._shared = shared or scratch
        self.sessions = Sessions(session, store_settings(tables))
        self._driver_batch_bytes = driver_batch_bytes

    def close(self) -> None:
        self.sessions.close()

    def replay(
        self, table: str, log: DeltaLog, batch: ChangeBatch, record: BatchRecord
    ) -> tuple[str, tuple[MatchCounts, ...]]:
        if any("`" in name for name in batch.schema.names) and self.evolution(log, batch).feeds_changes:
            # for change data, Delta's MERGE asks for columns without quoting backticks in their names
            return super().replay(table, log, batch, record)
        if batch.accounted_bytes > self._driver_batch_bytes:
            into = staged(self._shared, partial(self._stage_on_executors, batch, log))
        else:
            counted = count_changes(batch, log)
            if counted.roles <= {Role.INSERT} and not log.unknown_features:
                return self.commit(table, log, batch, record, counted)
            into = staged(self._scratch, partial(stage_here, batch, counted))
        with into as changes:
            if not changes.rows:
                commit_batch(log, record, self.evolution(log, batch))
                return "", changes.match_counts
            applied_by = "merge" if changes.matches else "append"
            self._merge_staged(table, log, batch, changes, with_applied_by(record, applied_by))
            return applied_by, changes.match_counts

    def _merge_staged(
        self, table: str, log: DeltaLog, batch: ChangeBatch, changes: StagedChanges, record: BatchRecord
    ) -> None:
        """Give the table the batch's columns and the wanted feed; have Spark commit changes made against a snapshot."""
        version = _evolve(log, self.evolution(log, batch))
        if version > log.version:
            log.move_on()
        if log.version != version:
            raise CommitConflict(f"{table}: another writer committed first", "The next cycle reads it again.")
        log.check_places()
        with spark_failures(table, "commit"), self._reached(changes) as reached, self.sessions.lent() as spark:
            folder, rows, since = log.folder, count_rows(log), log.version
            settings = _MERGE_SETTINGS | (_SMALL_SETTINGS if changes.rows + rows <= SMALL_ROWS else {})
            if any({".", "`"} & {*name} for name in batch.schema.partition_columns):
                settings = settings | _ODD_PARTITIONS
            with confs(spark, settings):
                if not changes.matches:
                    refuse_newer_rows(table, folder, since)
                    _append(spark, spark_path(folder), batch, reached, record)
                    return
                marks_rows = log.configuration.get(VECTORS) == "true"
                if not marks_rows and rows >= VECTORS_FROM_ROWS and self._vectors == "auto":
                    marks_rows, since = True, _evolve(log, self.evolution(log, batch, vectors=True))
                plan = _merge_plan(batch, reached, marks_rows=marks_rows)
                refuse_newer_rows(table, folder, since)
                _merge(spark, spark_path(folder), batch, reached, replace(record, merge_plan=plan))

    @contextmanager
    def _reached(self, changes: StagedChanges) -> Iterator[StagedChanges]:
        """Make staged changes reachable for executors: upload them if this process staged them."""
        if isinstance(changes.folder, StorePath) or not isinstance(self._shared, StorePath):
            yield changes
            return
        folder = self._shared / changes.folder.name
        try:
            for part in changes.folder.iterdir():
                (folder / part.name).upload(part)
            yield replace(changes, folder=folder)
        finally:
            with suppress(StorageUnavailable):
                remove_folder(folder)

    def _stage_on_executors(self, batch: ChangeBatch, log: DeltaLog, folder: TablePath) -> StagedChanges:
        log.check_places()
        with spark_failures(log.folder.name, "reduction to net changes"), self.sessions.lent() as spark:
            return stage_on_executors(spark, batch, log, folder)

    @contextmanager
    def maintenance(self, table: str, log: DeltaLog, retention_hours: float) -> Iterator[Maintenance]:
        log.check_places()
        target = f"delta.{quoted(spark_path(log.folder))}"  # DeltaTable's own methods cannot quote a backtick
        settings = {**_MAINTENANCE_SETTINGS, _METADATA: record_again(log)}
        with spark_failures(table, "maintenance"), self.sessions.lent() as spark, confs(spark, settings):

            def compact() -> tuple[int, int]:
                metrics = spark.sql(f"OPTIMIZE {target}").collect()[0]["metrics"]
                return metrics["numFilesAdded"], metrics["numFilesRemoved"]

            yield compact, lambda: spark.sql(f"VACUUM {target} RETAIN {retention_hours:f} HOURS")

    def forget(self, folder: TablePath) -> None:
        """Make Delta's cache of logs forget a table: a new one at its place has the same version numbers."""
        if (spark := self.sessions.first) is not None:
            with spark_failures(folder.name, "forgetting of its log"):
                jvm: Any = spark._jvm  # noqa: SLF001 - Delta offers this to the JVM only
                path = jvm.org.apache.hadoop.fs.Path(spark_path(folder))
                jvm.org.apache.spark.sql.delta.DeltaLog.invalidateCache(spark._jsparkSession, path)  # noqa: SLF001 - as above


def _evolve(log: DeltaLog, evolution: Evolution) -> int:
    return evolve(log, evolution, record_again(log, with_earlier=False) if evolution.actions else "")


def _append(spark: SparkSession, target: str, batch: ChangeBatch, changes: StagedChanges, record: BatchRecord) -> None:
    from pyspark.sql import functions as f  # noqa: PLC0415 - importing mirror_engine must not import Spark

    columns = [f.col(f"c{place}").alias(name) for place, name in enumerate(batch.schema.names)]
    writer = _staged_rows(spark, batch, changes).select(columns).write.format("delta").mode("append")
    writer.options(
        txnAppId=record.application, txnVersion=record.progress.batch, userMetadata=to_metadata(record)
    ).save(target)


def _merge(spark: SparkSession, target: str, batch: ChangeBatch, changes: StagedChanges, record: BatchRecord) -> None:
    """Replace, remove and add rows in one MERGE; every column is set, also those the batch lacks (LZ-4.5)."""
    from delta.tables import DeltaTable  # noqa: PLC0415 - importing mirror_engine must not import Spark

    transaction = {_APPLICATION: record.application, _TRANSACTION: str(record.progress.batch)}
    with confs(spark, {**transaction, _METADATA: to_metadata(record)}):
        source = _staged_rows(spark, batch, changes)
        source = source.hint("broadcast") if _is_broadcast(changes) else source
        builder = DeltaTable.forPath(spark, target).alias("t").merge(source.alias("s"), _condition(batch, changes))
        values = {quoted(name): f"s.c{place}" for place, name in enumerate(batch.schema.names)}
        if Role.DELETE in changes.roles:
            builder = builder.whenMatchedDelete(f"s.{ROLE} = {Role.DELETE:d}")
        if changes.roles & {Role.SET, Role.SET_ONLY}:
            builder = builder.whenMatchedUpdate(set=values)
        if changes.roles & _INSERTING:
            builder = builder.whenNotMatchedInsert(f"s.{ROLE} IN ({Role.SET:d}, {Role.INSERT:d})", values)
        builder.execute()


def _merge_plan(batch: ChangeBatch, changes: StagedChanges, *, marks_rows: bool) -> str:
    """How `_merge` works, for people who read the table's history."""
    bounded = changes.key_bounds(batch)
    return "; ".join(
        [
            "broadcast" if _is_broadcast(changes) else "shuffled",
            "rows are marked" if marks_rows else "files are rewritten",
            "with inserts" if changes.roles & _INSERTING else "without inserts",
            f"bounds on {', '.join(bounded)}" if bounded else "no bounds",
        ]
    )


def _is_broadcast(changes: StagedChanges) -> bool:
    return sum(file.stat().st_size for file in changes.folder.iterdir()) <= _BROADCAST_BYTES


def _staged_rows(spark: SparkSession, batch: ChangeBatch, changes: StagedChanges) -> DataFrame:
    columns = [f"c{place} {column.type}" for place, column in enumerate(batch.schema.columns)]
    reader = spark.read.schema(", ".join([*columns, f"{ROLE} TINYINT"]))
    return reader.option("__globPaths__", "false").parquet(spark_path(changes.folder))


def _condition(batch: ChangeBatch, changes: StagedChanges) -> SparkColumn:
    """Equal keys within bounds, among rows that match."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - importing mirror_engine must not import Spark

    condition = f.expr(f"s.{ROLE} <> {Role.INSERT:d}")
    bounded = changes.key_bounds(batch)
    for name in batch.key_columns:
        place, column = batch.schema.names.index(name), f.col(f"t.{quoted(name)}")
        condition &= column == f.col(f"s.c{place}")
        if name in bounded:
            low, high = (_literal(end, batch.schema.columns[place].type) for end in bounded[name])
            condition &= (column >= low) & (column <= high)
    return condition


def _literal(value: int | str, word: str) -> SparkColumn:
    from pyspark.sql import functions as f  # noqa: PLC0415 - importing mirror_engine must not import Spark

    return f.lit(value) if isinstance(value, str) else f.expr(f"{value}{_INTEGER_SUFFIXES[word]}")


# ---- net changes on executors


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
    with confs(spark, _NET_SETTINGS), ExitStack() as views:

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
    """Write rows to a folder, so that they are computed once, and return them as read from there."""
    rows.write.option("compression", "snappy").parquet(spark_path(folder))
    reader = rows.sparkSession.read.schema(rows.schema).option("__globPaths__", "false")
    return reader.parquet(spark_path(folder))


def _summed_up(
    rows: DataFrame, keys: Sequence[str], folder: TablePath, matches: tuple[MatchCounts, ...]
) -> StagedChanges:
    """Count the staged rows and compute their bounds."""
    matching = f"FILTER (WHERE {ROLE} <> {Role.INSERT:d})"
    bounds = [f"{bound}({key}) {matching} AS {key}_{bound}" for key in keys for bound in ("min", "max")]
    summary = rows.selectExpr("count(*) AS n", f"collect_set({ROLE}) AS roles", *bounds).toArrow()
    cells = [column[0] for column in summary.columns]
    pairs = tuple(zip(cells[2::2], cells[3::2], strict=True))
    return StagedChanges(folder, cells[0].as_py(), frozenset(map(Role, cells[1].as_py())), pairs, matches)
