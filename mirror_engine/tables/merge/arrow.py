"""Tables in a folder, whose changes the engine `arrow` merges by position, in this process, without Java.

Each batch becomes one commit. A scan of the table's keys says in which row of which data file each changed key is
(`counted`). What becomes of the files is in `by_position`.
"""

from __future__ import annotations

import logging
import shutil
import time
import uuid
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import unquote

from mirror_engine.errors import CommitConflict, CommitFailed, MirrorError, TableDamaged, as_internal_error
from mirror_engine.extras import install_command
from mirror_engine.tables.base import CommitResult, DeltaWriter, with_applied_by
from mirror_engine.tables.changes.counted import count_changes
from mirror_engine.tables.changes.key_index import KeyIndex
from mirror_engine.tables.log.cleanup import clean_up_log
from mirror_engine.tables.log.commit import (
    add_parts,
    commit_batch,
    commit_maintenance,
    create_table,
    create_with_files,
    evolution,
    is_checkpoint_due,
    moved,
    wanted_properties,
)
from mirror_engine.tables.log.durability import make_durable
from mirror_engine.tables.log.log_reader import LogReader
from mirror_engine.tables.log.record import (
    commits_after,
    creation_record,
    from_metadata,
    refuse_another,
    refuse_repeated,
    to_metadata,
)
from mirror_engine.tables.log.segments import record_again, sweep_segments, write_segment
from mirror_engine.tables.log.snapshot import open_log
from mirror_engine.tables.log.table_path import LOG_FOLDER, StorePath, for_each
from mirror_engine.tables.merge.by_position import Merge, is_large, touched_files
from mirror_engine.tables.merge.compaction import compact, crowded, small_and_marked, vacuum
from mirror_engine.tables.passthrough import count_duplicates
from mirror_engine.tables.reading.spill import scratch_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from mirror_engine.config import ChangeDataFeed, DeletionVectors
    from mirror_engine.landing_zone.progress import Applied, Segment
    from mirror_engine.storage.store_url import Place
    from mirror_engine.tables.base import BatchRecord, ChangeBatch, MatchCounts
    from mirror_engine.tables.changes.counted import CountedChanges
    from mirror_engine.tables.log.commit import Evolution
    from mirror_engine.tables.log.snapshot import DeltaLog
    from mirror_engine.tables.log.table_file import DataFile
    from mirror_engine.tables.log.table_path import TablePath

    Maintenance: TypeAlias = tuple[Callable[[], tuple[int, int]], Callable[[], object]]  # compact: files added, removed

_log = logging.getLogger(__name__)
_COMMITS = 8  # between two looks for small files


class ArrowWriter(LogReader, DeltaWriter):
    """`DeltaWriter` over a folder, here or in a store, that merges by position; needs no Java.

    Another engine has its own `replay` and `maintenance`.

    Args:
        tables: `ROOT/Tables`.
        scratch: for temporary files; next to it dropped tables wait for deletion: on the file system of the tables,
            where that is not a store.
        change_data_feed: whether tables have one from their next batch on.
        retention_days: how long VACUUM keeps data files, and so new tables the commits that name them.
        vectors: `auto` marks rows of large tables by deletion vectors, `off` rewrites their files.
        key_index_size: bytes that indexes of keys may take, in a folder next to `scratch`.
    """

    def __init__(  # noqa: PLR0913 - what differs between ROOTs
        self,
        tables: Place,
        scratch: Path,
        change_data_feed: ChangeDataFeed = "keep",
        *,
        retention_days: int = 7,
        vectors: DeletionVectors = "auto",
        key_index_size: int = 0,
    ) -> None:
        super().__init__(tables, scratch)
        self._feed, self._retention_days, self._vectors = change_data_feed, retention_days, vectors
        self._index = KeyIndex(scratch.parent / "keys", key_index_size)

    def forget(self, folder: TablePath) -> None:
        """Forget a table: a new one in its folder has the same version numbers."""

    def apply(
        self, table: str, batch: ChangeBatch, record: BatchRecord, check: Callable[[], None] = lambda: None
    ) -> CommitResult:
        self.clear_leftovers()
        folder = self.path(table)
        log: DeltaLog | None = batch.snapshot.log if batch.snapshot else open_log(folder)
        if log and batch.snapshot:
            newest = batch.snapshot.record
            if newest and newest.application == record.application:
                known: int | None = newest.progress.batch
            else:  # deltalake reads each commit since the last checkpoint for it
                known = log.batch_of(record.application)
            refuse_repeated(table, record, known)
        elif log:  # it came since the look that found none
            refuse_another(table, record, log.newest_record().head)
        else:
            _refuse_misread(table, folder)
        apply = self._add_files if batch.passthrough else self._apply_rows
        since = log.version if log else -1
        applied_by, matches = apply(table, batch, record, log)
        wanted = record.application, record.progress.batch, record.files
        for version, commit in commits_after(log.folder if log else folder, since):
            made = from_metadata(commit.metadata)
            if made and (made.application, made.progress.batch, made.files) == wanted:
                # commits of other programs since the last one are not known to be on disk; a store answered for ours
                until = since if isinstance(folder, StorePath) else None
                make_durable(folder, min(record.progress.delta_version, since), until)
                check()
                if log:
                    self.tidy(table, log, version)
                    last = max(version, log.version)
                    if last > version:
                        with suppress(MirrorError):  # else the next batch does it
                            self.make_durable(table, version)
                    if any(is_checkpoint_due(log, each) for each in range(version, last + 1)):
                        clean_up_log(log, record.progress.covered)
                    self._logs.keep(log)
                return CommitResult(version, matches, applied_by)
        # Delta ignores a transaction that it knows
        raise CommitConflict(f"{table}: another writer committed this batch", "The next cycle reads the table again.")

    def _apply_rows(
        self, table: str, batch: ChangeBatch, record: BatchRecord, log: DeltaLog | None
    ) -> tuple[str, tuple[MatchCounts, ...]]:
        if log is None:
            folder, properties = self.path(table), wanted_properties(self._feed, self._retention_days)
            if create_table(folder, batch.schema, creation_record(record), properties=properties):
                make_durable(folder, -1)
                self.forget(folder)
            log = open_log(folder)
            if log is None:
                raise CommitConflict(f"{table}: the table was removed", "The next cycle creates it again.")
            newest = log.newest_record()
            refuse_another(table, record, newest.head if newest.commit == log.version else None)
        return self.replay(table, log, batch, record)

    def _add_files(
        self, table: str, batch: ChangeBatch, record: BatchRecord, log: DeltaLog | None
    ) -> tuple[str, tuple[MatchCounts, ...]]:
        """Add passthrough files to a table, or create it with them."""
        matches, record = count_duplicates(batch, log), with_applied_by(record, "passthrough")
        if log is None:
            folder = self.path(table)
            create_with_files(table, folder, batch, record, wanted_properties(self._feed, self._retention_days))
            self.forget(folder)
        elif log.can_add_files(batch.schema):
            add_parts(table, log, self.evolution(log, batch), batch.passthrough, record)
        else:
            raise CommitConflict(f"{table}: its features have changed", "The next cycle reads the rows.")
        return "passthrough", matches

    def evolution(self, log: DeltaLog, batch: ChangeBatch, *, vectors: bool = False) -> Evolution:
        """What the table lacks of a batch's columns and of the wanted feed.

        Raises:
            CommitConflict: the table has other columns than those that the batch was read against.
        """
        known = {column.name: column.type for column in log.schema.columns}
        wanted = {column.name: column.type for column in batch.schema.columns}
        if not known.items() <= wanted.items() or log.schema.partition_columns != batch.schema.partition_columns:
            raise CommitConflict(
                f"{log.folder.name}: its columns have changed", "The next cycle reads the state again."
            )
        return evolution(log, batch.schema, batch.key_columns, self._feed, vectors=vectors)

    def replay(
        self, table: str, log: DeltaLog, batch: ChangeBatch, record: BatchRecord
    ) -> tuple[str, tuple[MatchCounts, ...]]:
        """Commit a batch's net changes against a snapshot of its table, in a commit that carries the record.

        Returns how they were applied, as `CommitResult` has it, and what each file's changes matched.

        Raises:
            CommitConflict: another writer was first, or changed rows since the snapshot; nothing was committed.
            CommitFailed: the engine could not do it; nothing was committed.
        """
        _refuse_features(table, log)
        pays = batch.key_columns and is_large(log)  # a smaller table's files are read and written anew
        return self.commit(table, log, batch, record, count_changes(batch, log, self._index if pays else None))

    def commit(
        self, table: str, log: DeltaLog, batch: ChangeBatch, record: BatchRecord, changes: CountedChanges
    ) -> tuple[str, tuple[MatchCounts, ...]]:
        """Commit the counted changes with the result of `replay`, in a table whose features this engine knows."""
        with self._scratch_folder() as folder:
            touched = touched_files(log, changes, self._vectors)
            if touched and log.configuration.get("delta.appendOnly") == "true":
                raise CommitFailed(f"{table}: the table is append-only", "Unset delta.appendOnly.")
            evolution = self.evolution(log, batch, vectors=any(file.is_marked for file in touched))
            merge = Merge(log, batch, changes, evolution, touched=touched, folder=folder)
            applied_by = merge.applied_by
            if not applied_by:
                commit_batch(log, record, evolution)
                return "", changes.match_counts
            with scratch_errors():
                actions = merge.actions()
            record = replace(with_applied_by(record, applied_by), merge_plan=merge.words)
            with moved(table, log.folder, merge.files, merge.vectors):
                commit_batch(log, record, evolution, actions, "MERGE" if touched else "WRITE")
            for file in touched:
                if not file.is_marked:
                    self._index.forget(log, file.file)
            return applied_by, changes.match_counts

    def tidy(self, table: str, log: DeltaLog, version: int) -> None:
        """Merge small data files occasionally, in a separate commit after the batch's. Raises nothing.

        `version` is that of the batch's commit, which the log does not have yet.
        """
        if version % _COMMITS:
            return

        def fold() -> None:
            log.move_on()
            groups = () if log.unknown_features else crowded(log.data_files())
            if groups:
                with self._scratch_folder() as folder:
                    self._compact(table, log, groups, folder, record_again(log, with_earlier=False))

        try:
            as_internal_error(fold)
        except MirrorError as error:
            _log.warning("%s: small files stay: %s", table, error.message)

    def write_segment(self, table: str, segment: Segment, applied: Applied) -> None:
        write_segment(self.path(table), segment, applied)

    def say_again(self, table: str, record: BatchRecord) -> int:
        log = open_log(self.path(table))
        if log is None or log.batch_of(record.application) != record.progress.batch:
            raise CommitConflict(f"{table}: its progress changed", "The next cycle reads the table's state again.")
        commit_maintenance(log, "WRITE", to_metadata(record))
        make_durable(log.folder, log.version)
        return log.version + 1

    def drop(self, table: str, check: Callable[[], None] = lambda: None) -> None:
        super().drop(table, check)
        self.forget(self.path(table))

    def maintain(
        self, table: str, retention_hours: float, is_wanted: Callable[[], bool] = lambda: False
    ) -> Mapping[str, Any]:
        log = open_log(self.path(table))
        if log is None:
            return {}
        folder, since = log.folder, log.version
        with self.maintenance(table, log, retention_hours) as (compact, vacuum):
            added, removed = compact()
            make_durable(folder, since)  # what it replaced may go now
            before = _count_parquet(folder)
            if not is_wanted():
                vacuum()
        _sweep(folder, retention_hours)
        make_durable(folder, since)  # VACUUM commits, too
        if record := log.newest_record()[0]:
            with suppress(TableDamaged):  # the ledger may still know what it says
                sweep_segments(folder, record.progress.segments or (), retention_hours * 3600)
            clean_up_log(log, record.progress.covered)
        return {"files_added": added, "files_removed": removed, "files_deleted": before - _count_parquet(folder)}

    @contextmanager
    def maintenance(self, table: str, log: DeltaLog, retention_hours: float) -> Iterator[Maintenance]:
        """How a table is compacted, and how vacuumed; both commits say the newest record again (`record_again`)."""
        _refuse_features(table, log)
        user_metadata = record_again(log)

        def vacuum_log() -> None:
            vacuum(table, log, retention_hours)
            commit_maintenance(log, "VACUUM END", user_metadata)

        with self._scratch_folder() as folder:
            yield (
                lambda: self._compact(table, log, small_and_marked(log.data_files()), folder, user_metadata),
                vacuum_log,
            )

    def _compact(
        self, table: str, log: DeltaLog, groups: Iterable[Sequence[DataFile]], folder: Path, user_metadata: str
    ) -> tuple[int, int]:
        added, removed = compact(table, log, groups, folder, user_metadata)
        for file in removed:
            self._index.forget(log, file)
        return added, len(removed)

    @contextmanager
    def _scratch_folder(self) -> Iterator[Path]:
        """A folder that is made when it is needed."""
        folder = self._scratch / f"batch-{uuid.uuid4().hex}"
        try:
            yield folder
        finally:
            if folder.exists():
                shutil.rmtree(folder, ignore_errors=True)


def _refuse_features(table: str, log: DeltaLog) -> None:
    if found := log.unknown_features:
        raise CommitFailed(
            f"{table}: the engine `arrow` cannot write tables with {', '.join(sorted(found))}",
            f"Use the Spark engine for this table: {install_command('spark')}",
        )


def _refuse_misread(table: str, folder: TablePath) -> None:
    """Refuse a new table in a store if deltalake would decode its name and so confuse it with another one."""
    if isinstance(folder, StorePath) and unquote(folder.path) != folder.path:
        raise CommitFailed(
            f"{table}: a table in a store cannot have a name that reads as percent-encoded",
            "Rename it at the publisher, or put ROOT on this machine.",
        )


def _count_parquet(folder: TablePath) -> int:
    """Data files in a table's folder, whether they are part of the table or not."""
    return sum(1 for file in folder.rglob("*.parquet") if LOG_FOLDER not in file.parts[len(folder.parts) :])


def _sweep(folder: TablePath, retention_hours: float) -> None:
    """Delete what VACUUM leaves, once it is past the retention: unfinished files of a killed process, change data."""
    unfinished = (
        file
        for file in folder.rglob("*#[0-9]*")
        if file.name.rpartition("#")[0].endswith((".parquet", ".json", "_last_checkpoint"))
    )

    def remove(file: TablePath) -> None:
        with suppress(OSError):
            if time.time() - file.stat().st_mtime_ns / 1e9 >= retention_hours * 3600:
                file.unlink()

    list(for_each(folder, remove, [*unfinished, *(folder / "_change_data").rglob("*.parquet")]))
