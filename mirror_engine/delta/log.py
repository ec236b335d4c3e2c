"""What a Delta table's log says, read without a JVM: version, schema, history, and the engine's own records."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from mirror_engine.delta.base import DeltaState
from mirror_engine.delta.commits import is_empty, read_commit
from mirror_engine.delta.damage import damaged
from mirror_engine.delta.file_bounds import may_hold
from mirror_engine.delta.history import HistoryEntry, reasons_of, way_of_record
from mirror_engine.delta.record import carried_from, from_metadata, maker_of, plan_of, rows_of, said_by
from mirror_engine.delta.tables_folder import is_table, readable_by_deltalake
from mirror_engine.errors import StorageUnavailable, UsageError
from mirror_engine.landing_zone.column_types import Column, TableSchema

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from mirror_engine.delta.base import BatchRecord
    from mirror_engine.delta.file_bounds import Bounds

_ACTION_COLUMNS = {"path", "num_records", "partition"}
_OF_CONTENT = (DeltaError, ValueError, RecursionError)
_PANIC = "PanicException"  # of deltalake's Rust over a few damaged checkpoints: no Exception, and no class to name
_PHYSICAL_NAME = "delta.columnMapping.physicalName"


@dataclass(frozen=True)
class DataFile:
    """A Parquet file that is part of a version of a table.

    Attributes:
        path: where it lies.
        rows: how many rows it holds by its statistics, deleted ones included; None where it has none.
        partition: values of the partition columns, by their logical names.
        kept: per row from the first, False where a deletion vector took it; rows after its end are kept. None
            without one.
    """

    path: Path
    rows: int | None
    partition: Mapping[str, str | None]
    kept: pa.BooleanArray | None


class DeltaLog:
    """One version of a Delta table."""

    def __init__(self, folder: Path, table: DeltaTable) -> None:
        self._folder = folder
        self._table = table

    @property
    def folder(self) -> Path:
        """The table's folder."""
        return self._folder

    @property
    def version(self) -> int:
        """The version that is looked at."""
        return int(self._table.version() or 0)

    @property
    def schema(self) -> TableSchema:
        """Columns in order."""
        columns = tuple(Column(field.name, _type_word(field), field.nullable) for field in self._table.schema().fields)
        return TableSchema(columns, tuple(self._table.metadata().partition_columns))

    @property
    def physical_names(self) -> Mapping[str, str]:
        """The name of each column within the Parquet files: another one where columns are mapped."""
        return {
            field.name: str(field.metadata.get(_PHYSICAL_NAME, field.name)) for field in self._table.schema().fields
        }

    @property
    def fields(self) -> Mapping[str, dict[str, Any]]:
        """Each column as the log has it, by name."""
        return {field["name"]: field for field in json.loads(self._table.schema().to_json())["fields"]}

    @property
    def table(self) -> DeltaTable:
        """The same for `deltalake`; read nothing but the log through it."""
        return self._table

    def transaction_version(self, application: str) -> int | None:
        """The newest transaction version of an application; None for none."""
        return self._table.transaction_version(application)

    def data_files(self, bounds: Bounds | None = None) -> Sequence[DataFile]:
        """The files that make up this version, or those of them that may hold rows within some bounds.

        Raises:
            TableDamaged: they cannot be told.
        """
        with reading_log(self._folder):
            actions = pa.table(self._table.get_add_actions())
            if bounds and not self._is_mapped:
                actions = actions.filter(may_hold(actions, bounds))
            # not the extremes: they may lie beyond Python's dates
            actions = actions.select([name for name in actions.column_names if name in _ACTION_COLUMNS])
            kept = self._kept() if "deletionVectors" in (self._table.protocol().reader_features or ()) else {}
        return [
            DataFile(
                self._folder / unquote(action["path"]),
                action["num_records"],
                action.get("partition") or {},
                kept.get(unquote(action["path"]).rpartition("/")[2]),
            )
            for action in actions.to_pylist()
        ]

    @property
    def marks_rows(self) -> bool:
        """Whether changes mark rows as deleted instead of writing whole files anew (deletion vectors)."""
        return self._table.metadata().configuration.get("delta.enableDeletionVectors") == "true"

    @property
    def _is_mapped(self) -> bool:
        """Whether columns have other names within the files, and in their statistics."""
        return any(name != physical for name, physical in self.physical_names.items())

    def _kept(self) -> Mapping[str, pa.BooleanArray]:
        """Selection vectors by the file's name, which is unique within a table."""
        vectors = pa.table(self._table.deletion_vectors())
        paths, selections = vectors["filepath"].to_pylist(), vectors["selection_vector"]
        return {unquote(path).rpartition("/")[2]: kept.values for path, kept in zip(paths, selections, strict=True)}

    def state(self) -> DeltaState:
        """The version, its schema and the newest record.

        Raises:
            TableDamaged: they cannot be told.
        """
        with reading_log(self._folder):
            record, version = self._newest_record()
            return DeltaState(self.version, self.schema, record, version)

    def _newest_record(self) -> tuple[BatchRecord | None, int]:
        for version, metadata in self.said():
            record = from_metadata(metadata)
            if record is not None:
                carried = carried_from(metadata)
                return record, version if carried is None else carried
        return None, -1

    def said(self) -> Iterator[tuple[int, Any]]:
        """What each commit says about itself, newest first, back to where the log was cleaned up.

        Raises:
            TableDamaged: a commit cannot be read.
            StorageUnavailable: it cannot be read now.
        """
        with reading_log(self._folder), contextlib.suppress(FileNotFoundError):
            for version in range(self.version, -1, -1):
                yield version, read_commit(self._folder, version).said

    def history(self, limit: int | None) -> Sequence[HistoryEntry]:
        """The commits up to this version, newest first.

        Raises:
            TableDamaged: a commit cannot be read.
        """
        with reading_log(self._folder):
            return [_entry(commit) for commit in self._table.history(limit)]


def open_log(folder: Path, version: int | None = None) -> DeltaLog | None:
    """A table's log at its newest version, or at another; None where there is no table.

    Raises:
        TableDamaged: the log cannot be read.
        StorageUnavailable: the folder cannot be read.
        UsageError: the table has no such version, or no longer.
    """
    with reading_log(folder):
        if not is_table(folder):
            return None
        log = DeltaLog(folder, DeltaTable(str(readable_by_deltalake(folder))))
        if is_empty(folder, log.version):  # deltalake passes over it
            raise damaged(folder, "its newest commit is empty")
    if version is None or version == log.version:
        return log
    if not 0 <= version <= log.version:
        raise UsageError(f"{folder.name}: no version {version}", f"It has the versions 0 to {log.version}.")
    try:
        return DeltaLog(folder, DeltaTable(str(readable_by_deltalake(folder)), version=version))
    except DeltaError:
        raise UsageError(f"{folder.name}: version {version} can no longer be told", "Its log was cleaned up.") from None


@contextlib.contextmanager
def reading_log(folder: Path) -> Iterator[None]:
    """What is raised while a table's log is read, in the error tree's words.

    Raises:
        TableDamaged: its content is wrong.
        StorageUnavailable: the disk, the rights, or somebody who took it away meanwhile.
    """
    try:
        with _damage_told(folder):
            yield
    except OSError as error:
        reason = error.strerror or str(error).partition("\n")[0]  # deltalake draws a tree of causes
        raise StorageUnavailable(
            f"{folder}: the Delta table cannot be read: {reason}",
            "Check the disk and the rights on the folder.",
        ) from error


@contextlib.contextmanager
def _damage_told(folder: Path) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        if not isinstance(error, _OF_CONTENT) and type(error).__name__ != _PANIC:
            raise
        raise damaged(folder, str(error) or type(error).__name__) from error


def _type_word(field: Any) -> str:  # noqa: ANN401 - deltalake has no common class for types
    word = json.loads(field.type.to_json())
    return word if isinstance(word, str) else json.dumps(word)


def _entry(commit: Mapping[str, Any]) -> HistoryEntry:
    metadata = said_by(commit)
    record = from_metadata(metadata) if carried_from(metadata) is None else None
    return HistoryEntry(
        commit["version"],
        commit.get("timestamp", 0),
        commit.get("operation", ""),
        record.files if record else (),
        rows_of(record) if record else 0,
        maker_of(commit),
        {name: str(value) for name, value in (commit.get("operationMetrics") or {}).items()},
        plan_of(metadata),
        way_of_record(record, commit.get("operation", "")) if record else "",
        reasons_of(record) if record else {},
    )
