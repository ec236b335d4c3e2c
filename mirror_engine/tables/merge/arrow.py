"""The merge engine on Arrow: changes are applied by position, in this process, without Java.

A scan of the table's keys says in which row of which data file each changed key is (`counted`). What becomes of the
files is in `by_position`. One commit has it all.
"""

from __future__ import annotations

import logging
import shutil
import uuid
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from mirror_engine.errors import CommitFailed, MirrorError, as_internal_error
from mirror_engine.extras import install_command
from mirror_engine.tables.base import with_applied_by
from mirror_engine.tables.changes.counted import count_changes
from mirror_engine.tables.changes.key_index import KeyIndex
from mirror_engine.tables.log.commit import commit_batch, commit_maintenance, moved
from mirror_engine.tables.log.segments import record_again
from mirror_engine.tables.merge.by_position import Merge, is_large, touched_files
from mirror_engine.tables.merge.compaction import compact, crowded, small_and_marked, vacuum
from mirror_engine.tables.reading.spill import scratch_errors
from mirror_engine.tables.writer import LogWriter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from mirror_engine.config import ChangeDataFeed, DeletionVectors
    from mirror_engine.storage.store_url import Place
    from mirror_engine.tables.base import BatchRecord, ChangeBatch, MatchCounts
    from mirror_engine.tables.changes.counted import CountedChanges
    from mirror_engine.tables.log.snapshot import DeltaLog
    from mirror_engine.tables.log.table_file import DataFile
    from mirror_engine.tables.writer import Maintenance

_log = logging.getLogger(__name__)
_COMMITS = 8  # between two looks for small files


class ArrowWriter(LogWriter):
    """`DeltaWriter` that merges by position; needs no Java.

    Args:
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
        super().__init__(tables, scratch, change_data_feed, retention_days)
        self._vectors = vectors
        self._index = KeyIndex(scratch.parent / "keys", key_index_size)

    def replay(
        self, table: str, log: DeltaLog, batch: ChangeBatch, record: BatchRecord
    ) -> tuple[str, tuple[MatchCounts, ...]]:
        _refuse_features(table, log)
        index = (
            self._index if batch.key_columns and is_large(log) else None
        )  # a smaller table's files are read and written anew
        return self.commit(table, log, batch, record, count_changes(batch, log, index))

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

    @contextmanager
    def maintenance(self, table: str, log: DeltaLog, retention_hours: float) -> Iterator[Maintenance]:
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
