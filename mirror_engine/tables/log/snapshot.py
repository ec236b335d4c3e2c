"""Snapshots of Delta tables, opened through deltalake without a JVM: version, schema, files, counts, record, history.

What reads raises `TableDamaged` where the log is wrong, or a data file that it names is missing or unreadable, and
`StorageUnavailable` where the disk or the store fails.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
import time
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from mirror_engine.errors import CommitConflict, StorageUnavailable, TransientError, UsageError
from mirror_engine.landing_zone.schema import Column, TableSchema
from mirror_engine.tables.arrow_types import PARSE_ERRORS
from mirror_engine.tables.base import TableSnapshot
from mirror_engine.tables.log.log_errors import CONTENT_ERRORS, reading_log
from mirror_engine.tables.log.log_names import log_file
from mirror_engine.tables.log.record import (
    carried_from,
    commit_file,
    commits_after,
    commits_from,
    head_of,
    history_entry,
    is_ours,
    last_checkpoint,
    newest_commit,
    read_commit,
    stamp,
)
from mirror_engine.tables.log.statistics import may_hold, may_hold_rows
from mirror_engine.tables.log.table_file import DataFile, row_count
from mirror_engine.tables.log.table_path import LOG_FOLDER, StorePath, file_in, for_each, parquet_source
from mirror_engine.tables.log.tables_folder import EASY_FOR_DELTALAKE, is_table, plain_folder
from mirror_engine.tables.log.vectors import vector_place
from mirror_engine.tables.log.vectors_in_use import VectorsInUse

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mirror_engine.tables.base import HistoryEntry, RecordHead
    from mirror_engine.tables.log.record import Commit
    from mirror_engine.tables.log.statistics import Bounds
    from mirror_engine.tables.log.table_path import FileStat, TablePath
    from mirror_engine.tables.log.vectors import Descriptor


_ACTION_COLUMNS = {"path", "size_bytes", "num_records", "partition", "modification_time"}
_PHYSICAL_NAME = "delta.columnMapping.physicalName"


# writer features that ask nothing of this engine, or what it does; those of columns and properties only where used
_FEATURES = {"appendOnly", "changeDataFeed", "checkConstraints", "columnMapping", "deletionVectors", "generatedColumns"}
_FEATURES |= {"identityColumns", "invariants", "timestampNtz", "v2Checkpoint", "variantType"}
_FIELD_FEATURES = {
    "delta.generationExpression": "generatedColumns",
    "delta.identity.start": "identityColumns",
    "delta.invariants": "invariants",
    "CURRENT_DEFAULT": "allowColumnDefaults",
}
_ODD_CHARACTERS = frozenset(" ,;{}()\n\t=")  # what Delta allows in a column's name only where columns are mapped


def needs_mapping(schema: TableSchema) -> bool:
    """Whether a column's name asks for column mapping."""
    return any(_ODD_CHARACTERS & set(name) for name in schema.names)


def physical_name(field: Mapping[str, Any]) -> str:
    """The name within Parquet files of a column as the log has it."""
    return str(field["metadata"].get(_PHYSICAL_NAME, field["name"]))


class NewestRecord(NamedTuple):
    """The newest record in a log; none by default."""

    head: RecordHead | None = None
    version: int = -1  # that holds its files
    text: str = ""
    commit: int = -1  # the newest version that says it


@lru_cache(maxsize=256)
def _columns(schema: str) -> tuple[Mapping[str, Mapping[str, Any]], tuple[Column, ...]]:
    """The columns of a schema in the log's JSON: as it has them, by name, and as `TableSchema` does."""
    fields = {field["name"]: field for field in json.loads(schema)["fields"]}
    words = {
        name: each["type"] if isinstance(each["type"], str) else json.dumps(each["type"])
        for name, each in fields.items()
    }
    return fields, tuple(Column(name, words[name], each["nullable"]) for name, each in fields.items())


@dataclass(eq=False)
class DeltaLog:
    """A version of a Delta table, in its folder, which a batch moves on as it commits; `table` reads the log alone."""

    folder: TablePath
    handle: DeltaTable  # of this version, or of one before `own`; what it says is read once until it moves on
    opened: float = field(default_factory=time.monotonic)  # by the monotonic clock, in seconds
    vectors: VectorsInUse = field(default_factory=VectorsInUse, repr=False)
    own: list[Commit] = field(default_factory=list, repr=False)  # after the handle's version, each by this engine
    has_many_files: bool = False

    @property
    def version(self) -> int:
        return self._handle_version + len(self.own)

    @property
    def _handle_version(self) -> int:
        return int(self.handle.version() or 0)

    @property
    def table(self) -> DeltaTable:
        """The table at this version, as deltalake knows it.

        Raises:
            CommitConflict: there is a newer one.
        """
        version = self.version
        if self.own:
            self.move_on()
        if self.version != version:
            raise CommitConflict(f"{self.folder.name}: version {version + 1} was committed by another writer")
        return self.handle

    def move_on(self, versions: Sequence[int] = ()) -> None:
        """Update to the newest version, or past these commits if this engine made them all.

        What such a commit changes is in its few lines. deltalake would list the log, in a tenth of a commit's time.
        """
        is_short = versions and len(self.own) + len(versions) <= _MOST_OWN and not self.has_many_files
        if is_short and self.add_actions.num_rows <= _FEW_FILES:
            commits = [read_commit(self.folder, version) for version in versions]
            if all(commit.moves_files_alone for commit in commits):
                self.own.extend(commits)
                return
        self._forget()
        with reading_log(self.folder):
            self.handle.update_incremental()
        self.own.clear()

    def _forget(self) -> None:
        for name, member in vars(DeltaLog).items():
            if isinstance(member, cached_property):
                vars(self).pop(name, None)

    @cached_property
    def _metadata(self) -> Any:  # noqa: ANN401 - deltalake's
        return self.handle.metadata()

    @cached_property
    def _protocol(self) -> Any:  # noqa: ANN401 - deltalake's
        return self.handle.protocol()

    @cached_property
    def _columns(self) -> tuple[Mapping[str, Mapping[str, Any]], tuple[Column, ...]]:
        return _columns(self.handle.schema().to_json())

    @property
    def has_vectors(self) -> bool:
        """Whether rows may be marked as deleted."""
        return "deletionVectors" in (self._protocol.reader_features or ())

    @property
    def _writer_features(self) -> Sequence[str]:
        return self._protocol.writer_features or ()

    @property
    def configuration(self) -> Mapping[str, Any]:
        """The table's properties."""
        found: Mapping[str, Any] = self._metadata.configuration
        return found

    @property
    def fields(self) -> Mapping[str, Mapping[str, Any]]:
        """Each column as the log has it, by name."""
        return self._columns[0]

    @cached_property
    def schema(self) -> TableSchema:
        return TableSchema(self._columns[1], tuple(self._metadata.partition_columns))

    @cached_property
    def physical_names(self) -> Mapping[str, str]:
        """The name of each column within the Parquet files: another one where columns are mapped."""
        return {name: physical_name(field) for name, field in self.fields.items()}

    @property
    def table_id(self) -> str:
        return str(self._metadata.id)

    @cached_property
    def add_actions(self) -> pa.Table:
        """The files that make up the handle's version, as deltalake describes them."""
        return pa.table(self.handle.get_add_actions())

    def forget_many_files(self) -> None:
        """Forget the cached file list if it is long, to save memory."""
        if "add_actions" in vars(self):
            self.has_many_files = self.add_actions.num_rows > _FEW_FILES
            if self.has_many_files:
                del self.add_actions

    def data_files(self, bounds: Bounds | None = None) -> Sequence[DataFile]:
        """The files that make up this version, or those of them that may hold rows within some bounds."""
        names = self.physical_names  # statistics and partitions are under these
        within = {names[name]: ends for name, ends in (bounds or {}).items()}
        with reading_log(self.folder):
            actions = self.add_actions
            actions = actions.filter(may_hold(actions, within)) if within else actions
            # not the extremes: they may lie beyond Python's dates
            actions = actions.select([name for name in actions.column_names if name in _ACTION_COLUMNS])
            vectors = self.vectors.at(self.folder, self.version) if self.has_vectors else {}
        files = {
            action["path"]: DataFile(
                self.folder,
                action["size_bytes"],
                action["num_records"],
                action.get("partition") or {},
                action["path"],
                action["modification_time"],
                vectors.get(action["path"]),
            )
            for action in actions.to_pylist()
        }
        for commit in self.own:
            for path in commit.removed:
                files.pop(path, None)
            for path, action in commit.added.items():
                stated = json.loads(action["stats"])
                if may_hold_rows(stated, within):
                    files[path] = self._own_file(action, stated["numRecords"], vectors.get(path))
        return [*files.values()]

    def check_places(self) -> None:
        """Refuse a version that names a file outside of its table's folder: Spark and others would read it.

        Raises:
            TableDamaged: it does.
        """
        for file in self.data_files():
            _ = file.places

    def _own_file(self, action: Mapping[str, Any], rows: int, vector: Descriptor | None) -> DataFile:
        """A data file of a commit of this engine."""
        size, modified_ms = action["size"], action["modificationTime"]
        values, names = action["partitionValues"], self.physical_names
        partition = {name: values[names[name]] for name in self.schema.partition_columns}
        return DataFile(self.folder, size, rows, partition, action["path"], modified_ms, vector)

    @property
    def unknown_features(self) -> set[str]:
        """Features that ask more of the table's writer than this engine does."""
        found = {*self._writer_features} - _FEATURES
        found |= {"checkConstraints" for name in self.configuration if name.startswith("delta.constraints.")}
        for column in self.fields.values():
            found |= {feature for key, feature in _FIELD_FEATURES.items() if key in column["metadata"]}
        return found

    def can_add_files(self, schema: TableSchema) -> bool:
        """Whether files of others can be added unchanged, once the table has these columns.

        Not where there are partitions or mapped columns, or where something is asked of their rows.
        """
        is_plain = not schema.partition_columns and not needs_mapping(schema)
        return is_plain and not self.unknown_features and not any(field["metadata"] for field in self.fields.values())

    def snapshot(self) -> TableSnapshot:
        """The version, its schema and the newest record."""
        record, version, _, commit = self.newest_record()
        with reading_log(self.folder):
            is_on = self.configuration.get("delta.enableChangeDataFeed") == "true"
            feeds = is_on or "changeDataFeed" in self._writer_features
            schema, rows = self.schema, partial(count_rows, self)
            takes_files = self.can_add_files(schema)
            return TableSnapshot(
                self.version,
                schema,
                record,
                version,
                takes_files,
                feeds,
                rows,
                self,
                batch_of=self.batch_of,
                may_lose_record=lambda: 0 <= commit < last_checkpoint(self.folder)[0],
            )

    def latest_external_change(self, since: int, columns: str = "") -> int:
        """See `DeltaWriter`; nothing newer than this version is asked for."""
        return latest_external_change(self.folder, since, columns, self.version)

    def batch_of(self, application: str) -> int | None:
        """The newest batch of an application by the log's transactions; None for none."""
        with reading_log(self.folder):
            return self.table.transaction_version(application)

    def newest_record(self) -> NewestRecord:
        """The newest record back to where the log was cleaned up."""
        with reading_log(self.folder), contextlib.suppress(FileNotFoundError):
            for version in range(self.version, -1, -1):
                metadata = read_commit(self.folder, version).metadata
                if (record := head_of(metadata)) is not None:
                    holding = carried_from(metadata)
                    return NewestRecord(record, version if holding is None else holding, str(metadata), version)
        return NewestRecord()


def open_log(folder: TablePath, version: int | None = None) -> DeltaLog | None:
    """A table's log at its newest version, or at another; None where there is no table.

    Raises:
        UsageError: the table has no such version, or no longer.
    """
    with reading_log(folder):
        if not is_table(folder):
            return None
        folder = _as_of_now(folder)
        log = DeltaLog(folder, open_delta(folder))
    if version is None or version == log.version:
        return log
    if not 0 <= version <= log.version:
        raise UsageError(f"{folder.name}: no version {version}", f"It has the versions 0 to {log.version}.")
    try:
        return DeltaLog(folder, open_delta(folder, version))
    except DeltaError:
        raise UsageError(
            f"{folder.name}: version {version} is no longer available", "Its log was cleaned up."
        ) from None


class KeptLogs:
    """Logs that stay open between the batches of their tables; the least recently used is closed first.

    A log has one user: it is taken out, and given back after the commit. Thread-safe.
    """

    def __init__(self) -> None:
        self._logs: dict[str, tuple[DeltaLog, str]] = {}  # by folder, each with the stamp of its newest commit
        self._lock = threading.Lock()

    def take(self, folder: TablePath) -> DeltaLog | None:
        """A table's log at its newest version, as `open_log` gives it."""
        with self._lock:
            log, known = self._logs.pop(str(folder), (None, ""))
        if log and not (isinstance(folder, StorePath) and time.monotonic() - log.opened >= _KEPT_SECONDS):
            with contextlib.suppress(TransientError), reading_log(folder):
                found = dict(commits_from(folder, log.version))
                if found.get(log.version) == known:  # the same commit, so the same log up to it
                    log.folder = _as_of_now(folder, log.folder, found)
                    if newer := sorted(found)[1:]:
                        log.move_on(newer if newer == [*range(log.version + 1, newer[-1] + 1)] else ())
                    return log
        return open_log(folder)

    def keep(self, log: DeltaLog) -> None:
        """Keep a log until its table's next batch."""
        if isinstance(log.folder, StorePath) or EASY_FOR_DELTALAKE.fullmatch(str(log.folder)):
            with contextlib.suppress(OSError, StorageUnavailable):
                newest = stamp(commit_file(log.folder, log.version))
                with self._lock:
                    log.forget_many_files()
                    self._logs[str(log.folder)] = log, newest
                    while len(self._logs) > _KEPT_LOGS:
                        del self._logs[next(iter(self._logs))]


def _as_of_now(
    folder: TablePath, before: TablePath | None = None, stamps: Mapping[int, str] = MappingProxyType({})
) -> TablePath:
    """The folder of a log that is looked at as it is now: what is read of it is kept.

    So is what was kept `before` of commits that still have these stamps.
    """
    if not isinstance(folder, StorePath):
        return folder
    commits: dict[str, tuple[bytes, FileStat]] = {}
    if isinstance(before, StorePath) and before.commits:
        for version, of_commit in stamps.items():
            file = commit_file(before, version)
            if (kept := before.commits.get("/".join(file.parts))) and stamp(file) == of_commit:
                commits["/".join(file.parts)] = kept
    return replace(folder, commits=commits)


def open_delta(folder: TablePath, version: int | None = None) -> DeltaTable:
    """A table for `deltalake`, at its newest version or another; with credentials of now, which expire."""
    if isinstance(folder, StorePath):
        options = folder.url.deltalake_options()
        return DeltaTable(folder.url.deltalake_url, version=version, storage_options=options)
    return DeltaTable(
        str(folder if EASY_FOR_DELTALAKE.fullmatch(str(folder)) else plain_folder(folder)), version=version
    )


_MOST_OWN, _FEW_FILES = 16, 256  # commits and data files that are looked through
_KEPT_LOGS = 64  # each holds the names and statistics of its table's files in memory, about half a KiB a file
_KEPT_SECONDS = 120.0  # in a store: a token that azure-identity gives lives five minutes at least


def byte_count(log: DeltaLog, limit: int | None = None) -> int:
    """Total size of the files that `read_rows` reads: for all rows, or for the first `limit`."""
    total, rows = 0, 0
    for file in log.data_files():
        if limit is not None and rows >= limit:
            break
        total, rows = total + file.size, rows + (file.rows or 0)
    return total


def count_rows(log: DeltaLog) -> int:
    """How many rows a version holds, from statistics, else from the files' footers."""
    with reading_log(log.folder):
        if log.own:
            return sum(for_each(log.folder, row_count, log.data_files()))
        known = log.add_actions.column("num_records")
        gone = log.vectors.at(log.folder, log.version) if log.has_vectors else {}
    if known.null_count:
        return sum(for_each(log.folder, row_count, log.data_files()))
    return int(pc.sum(known).as_py() or 0) - sum(int(vector["cardinality"]) for vector in gone.values())


def stated_rows(log: DeltaLog) -> int:
    """How many rows a version holds by its files' statistics alone, also those that are gone; reads no data file."""
    with reading_log(log.folder):
        if not log.own:
            return int(pc.sum(log.add_actions.column("num_records")).as_py() or 0)
        paths, counts = (log.add_actions.column(name).to_pylist() for name in ("path", "num_records"))
    rows: dict[str, int | None] = dict(zip(paths, counts, strict=True))
    for commit in log.own:
        for path in commit.removed:
            rows.pop(path, None)
        rows |= {path: json.loads(action["stats"])["numRecords"] for path, action in commit.added.items()}
    return sum(filter(None, rows.values()))


def history(folder: TablePath, limit: int | None, until: int | None = None) -> Sequence[HistoryEntry]:
    """See `DeltaWriter`; reads no more of the log than these commits, and none before a gap."""

    def read(version: int) -> Sequence[HistoryEntry]:
        with contextlib.suppress(FileNotFoundError):
            commit = read_commit(folder, version)
            added = len(commit.added.keys() - commit.removed.keys()) if commit.changes_rows else 0
            return (history_entry(version, commit.information, added),)
        return ()

    with reading_log(folder):
        versions = range(newest_commit(folder) if until is None else until, -1, -1)[:limit]
        return [*itertools.chain.from_iterable(itertools.takewhile(bool, for_each(folder, read, versions)))]


def latest_external_change(folder: TablePath, since: int, columns: str = "", until: int | None = None) -> int:
    """See `DeltaWriter`; costs one look for a file where nothing was committed since, in a store one list.

    Nothing newer than `until` counts, or is asked for.
    """
    found = -1
    with reading_log(folder), contextlib.suppress(FileNotFoundError):
        commits = commits_from(folder, since + 1)
        if until is not None:
            try:
                commits = iter([(each, stamp(commit_file(folder, each))) for each in range(since + 1, until + 1)])
            except FileNotFoundError:  # a gap of log cleanup
                commits = ((each, of_commit) for each, of_commit in commits if each <= until)
        for version, of_commit in commits:
            found = max(found, version) if _changes(folder, version, of_commit, columns) else found
    return found


def refuse_newer_rows(table: str, folder: TablePath, since: int) -> None:
    """Refuse with `CommitConflict` to commit what was counted at a version to rows that changed since.

    A commit of an engine is one of another process, or late: Delta would append to it (LZ-4.18).
    """
    if latest_external_change(folder, since) >= 0:
        raise CommitConflict(f"{table}: another program changed its rows", "The next cycle counts again.")
    with reading_log(folder):
        if any(is_ours(commit.information) for _, commit in commits_after(folder, since)):
            raise CommitConflict(f"{table}: another engine committed first", "The next cycle counts again.")


def has_transaction(folder: TablePath, applications: str) -> bool:
    """Whether a log has a transaction of an application whose id begins so, in a commit or a checkpoint.

    Damaged files of it are passed over.
    """
    with reading_log(folder):
        for file in (folder / LOG_FOLDER).iterdir():
            with contextlib.suppress(*CONTENT_ERRORS, *PARSE_ERRORS, LookupError, TypeError):
                if any(each.startswith(applications) for each in _applications(file)):
                    return True
        return False


def _applications(file: TablePath) -> Iterable[str]:
    """The applications whose transactions a file of a log names."""
    named = log_file(file.name)
    if named and file.name.endswith(".json"):
        actions = map(json.loads, file.read_bytes().splitlines())
        return [str(each["txn"]["appId"]) for each in actions if "txn" in each]
    if named:
        with parquet_source(file) as source, pq.ParquetFile(source) as checkpoint:
            if "txn" in checkpoint.schema_arrow.names:
                transactions = checkpoint.read(columns=["txn"]).column("txn").to_pylist()
                return [str(each["appId"]) for each in transactions if each]
    return ()


@lru_cache(maxsize=4096)
def _changes(folder: TablePath, version: int, _: str, columns: str) -> bool:
    """Whether an external commit changed rows or columns, whatever its operation is called.

    `_` distinguishes recreated tables. `columns`: see `DeltaWriter.latest_external_change`.

    Raises:
        TableDamaged: it names files outside of the table's folder.
    """
    commit = read_commit(folder, version)
    if is_ours(commit.information):
        return False
    for path in commit.added:
        file_in(folder, unquote(path))
    for vector in commit.vectors.values():
        vector_place(folder, vector)
    if not (commit.changes_rows or commit.describes):
        return False
    if commit.changes_rows:
        return True
    try:
        before = open_log(folder, version - 1)
    except UsageError:  # cleaned up
        return _columns_at(folder, version) != columns
    return before is not None and before.schema.digest != _columns_at(folder, version)


def _columns_at(folder: TablePath, version: int) -> str:
    """The digest of a version's schema; of the newest one's where log cleanup took what makes up that version."""
    try:
        log = open_log(folder, version)
    except UsageError:
        log = open_log(folder)
    return log.schema.digest if log else ""
