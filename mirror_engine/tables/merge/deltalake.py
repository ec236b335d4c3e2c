"""The merge engine on deltalake: MERGE in this process, without Java.

The same staged net changes, roles and bounds as on Spark. Tables with features that deltalake cannot write are refused
by name, with help, before anything is written.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import ColumnProperties, CommitProperties, DeltaTable, WriterProperties
from deltalake.exceptions import DeltaError

from mirror_engine.errors import CommitFailed
from mirror_engine.storage.base import REQUESTS
from mirror_engine.tables.arrow_types import arrow_type
from mirror_engine.tables.changes.net_changes import Role
from mirror_engine.tables.changes.staged import ROLE, merge_schema
from mirror_engine.tables.log.commit import commit_batch, commit_properties, committing, meaning
from mirror_engine.tables.log.snapshot import read_footer
from mirror_engine.tables.log.statistics import EXACT_DIGITS
from mirror_engine.tables.log.table_path import for_each
from mirror_engine.tables.log.tables_folder import EASY_FOR_DELTALAKE
from mirror_engine.tables.writer import LocalDeltaWriter, record_again

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror_engine.tables.base import BatchRecord, ChangeBatch
    from mirror_engine.tables.changes.staged import StagedChanges
    from mirror_engine.tables.log.snapshot import DeltaLog
    from mirror_engine.tables.log.table_path import TablePath
    from mirror_engine.tables.writer import Maintenance

_FEATURES = {"appendOnly", "changeDataFeed", "checkConstraints", "columnMapping", "deletionVectors"}
_FEATURES |= {"generatedColumns", "invariants", "timestampNtz", "v2Checkpoint", "variantType"}
_MISREAD = frozenset("%\\[]?*#")  # in a folder's path
_TARGET_BYTES = 128 * 1024 * 1024
_NAN = "cast('NaN' as double)"
_SPARK_HELP = "Use the Spark engine for this table: pip install 'mirror-engine[spark]'."


class DeltalakeWriter(LocalDeltaWriter):
    """`DeltaWriter` that merges with deltalake; needs no Java."""

    def merge(self, table: str, log: DeltaLog, batch: ChangeBatch, changes: StagedChanges, record: BatchRecord) -> None:
        _check_mergeable(table, log)
        before, handle = log.version, _handle(log)
        staged = sorted(map(str, changes.folder.iterdir()))
        values = {_quoted(name): f"s.c{place}" for place, name in enumerate(batch.schema.names)}
        with committing(table, log, record, _SPARK_HELP):
            merger = handle.merge(
                ds.dataset(staged, schema=merge_schema(batch), format="parquet").scanner().to_reader(),
                _condition(batch, changes),
                source_alias="s",
                target_alias="t",
                writer_properties=_writer_properties(log),
                commit_properties=commit_properties(record),
            )
            if Role.DELETE in changes.roles:
                merger = merger.when_matched_delete(f"s.{ROLE} = {Role.DELETE:d}")
            if changes.roles & {Role.SET, Role.SET_ONLY}:
                merger = merger.when_matched_update(values, f"s.{ROLE} IN ({Role.SET:d}, {Role.SET_ONLY:d})")
            if changes.roles & {Role.SET, Role.INSERT}:
                merger = merger.when_not_matched_insert(values, f"s.{ROLE} IN ({Role.SET:d}, {Role.INSERT:d})")
            merger.execute()
            if handle.version() == before:  # without effect: deltalake commits nothing
                commit_batch(log, record)

    @contextmanager
    def maintenance(self, table: str, log: DeltaLog, retention_hours: float) -> Iterator[Maintenance]:
        _check_mergeable(table, log)
        handle, properties = _handle(log), CommitProperties(custom_metadata={"userMetadata": record_again(log)})

        def compact() -> tuple[int, int]:
            metrics = handle.optimize.compact(
                target_size=_TARGET_BYTES,
                writer_properties=_writer_properties(log),
                commit_properties=properties,
            )
            return metrics["numFilesAdded"], metrics["numFilesRemoved"]

        def vacuum() -> object:
            hours = int(retention_hours)
            if isinstance(log.folder, Path):  # OneLake refuses deltalake's way, batches
                handle.vacuum(
                    hours,
                    dry_run=False,
                    enforce_retention_duration=False,
                    commit_properties=properties,
                )
            # with what no commit names; that holds deletion vectors, too, which are in use
            found = handle.vacuum(hours, dry_run=True, enforce_retention_duration=False, full=True)
            data_files = [path for path in found if path.endswith(".parquet") and not path.startswith("_change_data/")]
            return list(for_each(log.folder, lambda path: (log.folder / path).unlink(missing_ok=True), data_files))

        try:
            yield compact, vacuum
        except (DeltaError, OSError) as error:
            raise meaning(table, log, error, _SPARK_HELP) from error


def _handle(log: DeltaLog) -> DeltaTable:
    """The snapshot as a handle on the table's own folder, where data files are written.

    Its log may have been read through a link in another folder (`plain_folder`).
    """
    is_direct = not isinstance(log.folder, Path) or EASY_FOR_DELTALAKE.fullmatch(str(log.folder))
    return log.table if is_direct else DeltaTable(str(log.folder), version=log.version)


def _check_mergeable(table: str, log: DeltaLog) -> None:
    """Refuse tables that deltalake cannot write, or would write wrongly.

    Raises:
        CommitFailed: with the feature's name, and help.
    """
    protocol = log.table.protocol()
    if unknown := sorted({*(protocol.writer_features or ())} - _FEATURES):
        raise CommitFailed(f"{table}: deltalake cannot write tables with {', '.join(unknown)}", _SPARK_HELP)
    if log.configuration.get("delta.appendOnly") == "true":
        raise CommitFailed(f"{table}: the table is append-only", "Unset delta.appendOnly.")
    is_local = isinstance(log.folder, Path)
    if is_local and (_MISREAD & set(str(log.folder)) or not str(log.folder).isprintable()):
        raise CommitFailed(f"{table}: deltalake cannot merge into a folder with this path", _SPARK_HELP)
    has_times = any(column.type == "timestamp" for column in log.schema.columns)
    if has_times:
        files = {file.path for file in log.data_files()}
        with ThreadPoolExecutor(REQUESTS) as pool:
            if any(pool.map(_has_int96, files - log.without_int96)):
                raise CommitFailed(f"{table}: a data file stores timestamps as INT96", _SPARK_HELP)
        log.without_int96.clear()
        log.without_int96.update(files)


@lru_cache(maxsize=65_536)
def _has_int96(data_file: TablePath) -> bool:
    """Whether a data file stores timestamps as INT96: deltalake rewrites those outside 1677 to 2262 wrongly."""
    schema = read_footer(data_file).schema
    return any(schema.column(at).physical_type == "INT96" for at in range(len(schema)))


def _condition(batch: ChangeBatch, changes: StagedChanges) -> str:
    """Equal keys within bounds, among rows that match."""
    types = {column.name: column.type for column in batch.schema.columns}
    terms = [f"s.{ROLE} <> {Role.INSERT:d}"]
    for name in batch.key_columns:
        target, source = f"t.{_quoted(name)}", f"s.c{batch.schema.names.index(name)}"
        if types[name] in {"float", "double"}:  # NaN keys are equal, whatever their bits
            terms.append(f"nanvl(cast({target} as double), {_NAN}) = nanvl(cast({source} as double), {_NAN})")
        else:
            terms.append(f"{target} = {source}")
    for name, (low, high) in changes.key_bounds(batch).items():
        terms.append(f"t.{_quoted(name)} BETWEEN {_literal(low)} AND {_literal(high)}")
    return " AND ".join(terms)


def _literal(value: int | str) -> str:
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _writer_properties(log: DeltaLog) -> WriterProperties:
    """No statistics where deltalake's mislead readers: of floating point (NaN) and of long decimals."""
    none = ColumnProperties(statistics_enabled="NONE", dictionary_enabled=False)
    names = log.physical_names  # deltalake looks properties up by the name within the Parquet file
    kinds = {column.name: arrow_type(column.type) for column in log.schema.columns}
    misleading = [
        name
        for name, kind in kinds.items()
        if pa.types.is_floating(kind) or (pa.types.is_decimal(kind) and kind.precision > EXACT_DIGITS)
    ]
    return WriterProperties(column_properties={names[name]: none for name in misleading})
