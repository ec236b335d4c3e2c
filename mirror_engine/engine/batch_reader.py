"""Batches of pending change files: as many as fit, up to the first that is rejected."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from mirror_engine.events import Event, FileRead
from mirror_engine.landing_zone.change import RowMarker
from mirror_engine.landing_zone.diagnostics import Diagnostic, RejectedFile, diagnose
from mirror_engine.landing_zone.listing import partition_of
from mirror_engine.landing_zone.schema import TableSchema
from mirror_engine.tables.base import ChangeBatch, FileRows
from mirror_engine.tables.reading.request import ReadFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mirror_engine.config import Config
    from mirror_engine.landing_zone.listing import LandedFile
    from mirror_engine.landing_zone.metadata import Metadata
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.landing_zone.progress import Progress
    from mirror_engine.tables.passthrough import PassthroughReader
    from mirror_engine.tables.reading.request import OrderedReader, PendingFiles, TableContext

LARGE_FILE_BYTES = 1024 * 1024  # takes longer to read than Spark should wait


@dataclass(frozen=True)
class PreparedBatch:
    """A batch ready to be committed, and why it ends where it does.

    Attributes:
        files: as listed, in order.
        batch: the same files, read.
        facts: of the table after the batch.
        metadata: in force.
        refusal: of the file after the last, where that one broke the protocol.
        diagnostics: of the files.
    """

    files: tuple[LandedFile, ...]
    batch: ChangeBatch
    facts: TableContext
    metadata: Metadata
    refusal: RejectedFile | None
    diagnostics: tuple[Diagnostic, ...]

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The key in the table's spelling, columns whose type is not known yet (LZ-5.13) among them."""
        keys = ((key, self.batch.schema.find(key)) for key in self.metadata.key_columns)
        return tuple(known.name if known else key for key, known in keys)

    @property
    def makes_no_table(self) -> bool:
        """Whether a Delta table of these files alone would have neither columns nor rows (LZ-5.13)."""
        return self.batch.schema.is_bare and not any(file.row_count for file in self.batch.files)

    def release(self) -> None:
        """Release memory and scratch files of the rows."""
        for file in self.batch.files:
            file.rows.close()


class BatchReader:
    """Reads change files one after the other until a limit is reached (LZ-4.16) or one is rejected (LZ-4.17).

    Args:
        prepare: called, more than once, while files are still read, where the batch probably needs a MERGE.
        passthrough: makes the reader of files that are added unchanged; None where rows are always read.
    """

    def __init__(
        self,
        reader: OrderedReader,
        config: Config,
        emit: Callable[[Event], None],
        prepare: Callable[[], None],
        passthrough: Callable[[], PassthroughReader] | None = None,
    ) -> None:
        self._passthrough = cache(passthrough) if passthrough else None
        self._reader = reader
        self._config = config
        self._emit = emit
        self._prepare = prepare

    def next_batch(self, pending: PendingFiles, known: Progress) -> PreparedBatch:
        """Read the next batch of a table folder: files whose rows are applied, or files that are added unchanged.

        Raises:
            ConcurrentModification: a file is no longer the listed one.
            StorageUnavailable: a file could not be read.
        """
        first = self._try_passthrough(pending, 0, pending.facts)
        run = self._passthrough_run(pending, first) if isinstance(first, ReadFile) else self._read_run(pending, first)
        read: list[FileRows] = []
        refusal, facts = None, pending.facts
        try:
            for file_read in run:
                read.append(file_read.rows)
                facts = file_read.facts
                self._emit(FileRead(pending.table, file_read.rows.path, file_read.rows.row_count))
        except RejectedFile as refused:
            refusal = refused
        except BaseException:
            for rows in read:
                rows.rows.close()
            raise
        diagnostics = [diagnostic for rows in read for diagnostic in rows.diagnostics]
        diagnostics += _repeats(pending.table, read, known)
        files = tuple(pending.files[: len(read)])
        schema = facts.schema or TableSchema(())
        keys = dict.fromkeys(key.name for name in pending.metadata.key_columns if (key := schema.find(name)))
        batch = ChangeBatch(tuple(read), schema, tuple(keys))
        return PreparedBatch(files, batch, facts, pending.metadata, refusal, tuple(diagnostics))

    def _try_passthrough(self, pending: PendingFiles, place: int, facts: TableContext) -> ReadFile | str:
        if pending.files[place].size >= LARGE_FILE_BYTES and pending.facts.markers_seen and not pending.facts.is_empty:
            self._prepare()
        return "" if self._passthrough is None else self._passthrough().read(pending.request(place, facts))

    def _passthrough_run(self, pending: PendingFiles, file_read: ReadFile) -> Iterator[ReadFile]:
        """Yield files that are added unchanged: they take no memory, so only their number is limited."""
        for place in range(1, len(pending.files) + 1):
            yield file_read
            if place == min(len(pending.files), self._config.max_batch_files):
                return
            passthrough = self._try_passthrough(pending, place, file_read.facts)
            if isinstance(passthrough, str):
                return
            file_read = passthrough

    def _read_run(self, pending: PendingFiles, reason: str) -> Iterator[ReadFile]:
        """Yield files whose rows are applied, up to one that is added unchanged."""
        size, facts = 0, pending.facts
        with closing(self._reader.in_order(pending)) as reading:
            for place, file in enumerate(pending.files):
                passthrough = self._try_passthrough(pending, place, facts) if place else reason
                if is_full(self._config, place, size, file) or isinstance(passthrough, ReadFile):
                    break
                file_read = next(reading)
                rows, facts = file_read.rows, file_read.facts
                may_update = rows.markers.get(RowMarker.UPDATE) or rows.markers.get(RowMarker.UPSERT)
                if may_update and not pending.facts.is_empty:  # a file of deletes alone often matches no row
                    self._prepare()
                size += rows.accounted_bytes
                yield ReadFile(replace(rows, reason=passthrough), facts)


def is_full(config: Config, count: int, size: int, following: LandedFile) -> bool:
    """Whether a commit of so many files and bytes ends before the following file (LZ-4.16); one always fits."""
    return count > 0 and (count >= config.max_batch_files or size + following.size > config.max_batch_size)


def _repeats(table: TableName, read: Sequence[FileRows], known: Progress) -> list[Diagnostic]:
    """Return ME064 for files whose content was applied before, in the same partition."""
    applied = {(partition_of(path), file.digest): path for path, file in known.applied.items() if file.rows}
    diagnostics = []
    for rows in read:
        content = (partition_of(rows.path), rows.digest)
        if rows.row_count and content in applied:
            diagnostics.append(diagnose("ME064", f"{table.folder}/{rows.path}", file=applied[content]))
        if rows.row_count:
            applied.setdefault(content, rows.path)
    return diagnostics
