"""Batches of pending change files: as many as fit, up to the first that is rejected."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from mirror_engine.events import Event, FileRead
from mirror_engine.landing_zone.change import RowMarker
from mirror_engine.landing_zone.detection import sequence_of
from mirror_engine.landing_zone.diagnostics import Diagnostic, RejectedFile, diagnose
from mirror_engine.landing_zone.listing import partition_of
from mirror_engine.landing_zone.metadata import Metadata, Strategy
from mirror_engine.landing_zone.schema import TableSchema
from mirror_engine.tables.base import ChangeBatch, FileRows
from mirror_engine.tables.reading.request import ReadFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mirror_engine.config import Config
    from mirror_engine.landing_zone.listing import LandedFile
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.landing_zone.progress import Progress
    from mirror_engine.landing_zone.schema import Column
    from mirror_engine.tables.passthrough import PassthroughReader
    from mirror_engine.tables.reading.request import OrderedReader, PendingFiles, TableContext

LARGE_FILE_BYTES = 1024 * 1024  # takes longer to read than Spark should wait


@dataclass(frozen=True)
class PreparedBatch:
    """A batch ready to be committed, and why it ends where it does.

    Attributes:
        files: as sighted, in order.
        batch: the same, read.
        facts: of the table after the batch.
        metadata: in force.
        refusal: of the file after the last, where that one broke the protocol.
        diagnostics: what the files raised.
    """

    files: tuple[LandedFile, ...]
    batch: ChangeBatch
    facts: TableContext
    metadata: Metadata
    refusal: RejectedFile | None
    diagnostics: tuple[Diagnostic, ...]

    @property
    def declared_columns(self) -> tuple[Column, ...]:
        """SchemaDefinition in force."""
        return self.metadata.definition

    def sequence_of(self, file: LandedFile) -> int | None:
        """The file's number, where its strategy numbers files (LZ-3.2, LZ-3.15)."""
        return sequence_of(file.name) if self.metadata.strategy is Strategy.SEQUENTIAL else None

    def release(self) -> None:
        """Give back what the rows hold."""
        for file in self.batch.files:
            file.rows.close()


class BatchReader:
    """Reads change files one after the other until a bound is reached (LZ-4.16) or one is refused (LZ-4.17).

    Args:
        reader: reads them.
        config: the bounds.
        emit: called with every event.
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

    def next_batch(self, waiting: PendingFiles, known: Progress) -> PreparedBatch:
        """Read the next batch of a table folder: files whose rows are applied, or files that are added unchanged.

        Raises:
            ConcurrentModification: a file is no longer what was sighted.
            StorageUnavailable: it could not be read.
        """
        first = self._look(waiting, 0, waiting.facts)
        read: list[FileRows] = []
        refusal, facts = None, waiting.facts
        try:
            for found in (
                self._passthrough_run(waiting, first) if isinstance(first, ReadFile) else self._read_run(waiting, first)
            ):
                read.append(found.rows)
                facts = found.facts
                self._emit(FileRead(waiting.table, found.rows.path, found.rows.row_count))
        except RejectedFile as refused:
            refusal = refused
        except BaseException:
            for rows in read:
                rows.rows.close()
            raise
        said = [said for rows in read for said in rows.diagnostics]
        said += _repeats(waiting.table, read, known)
        files = tuple(waiting.files[: len(read)])
        metadata = waiting.metadata
        return PreparedBatch(files, _batch(read, metadata, facts), facts, metadata, refusal, tuple(said))

    def _look(self, waiting: PendingFiles, place: int, facts: TableContext) -> ReadFile | str:
        if waiting.files[place].size >= LARGE_FILE_BYTES and waiting.facts.markers_seen and not waiting.facts.is_empty:
            self._prepare()
        return "" if self._passthrough is None else self._passthrough().read(waiting.request(place, facts))

    def _passthrough_run(self, waiting: PendingFiles, found: ReadFile) -> Iterator[ReadFile]:
        """Files that are added unchanged: they take no memory, so only their number is bounded."""
        for place in range(1, len(waiting.files) + 1):
            yield found
            if place == min(len(waiting.files), self._config.max_batch_files):
                return
            look = self._look(waiting, place, found.facts)
            if isinstance(look, str):
                return
            found = look

    def _read_run(self, waiting: PendingFiles, reason: str) -> Iterator[ReadFile]:
        """Files whose rows are applied, up to one that is added unchanged."""
        size, facts = 0, waiting.facts
        with closing(self._reader.in_order(waiting)) as reading:
            for place, file in enumerate(waiting.files):
                look = self._look(waiting, place, facts) if place else reason
                if is_full(self._config, place, size, file) or isinstance(look, ReadFile):
                    break
                found = next(reading)
                if not waiting.facts.is_empty and _updates(found.rows):
                    self._prepare()
                facts = found.facts
                size += found.rows.accounted_bytes
                yield found if look == found.rows.reason else ReadFile(replace(found.rows, reason=look), facts)


def is_full(config: Config, count: int, size: int, following: LandedFile) -> bool:
    """Whether a commit of so many files and bytes ends before the following file (LZ-4.16); one always fits."""
    return count > 0 and (count >= config.max_batch_files or size + following.size > config.max_batch_size)


def _updates(rows: FileRows) -> bool:
    """Whether a file may change rows of the table; a file of deletes alone often matches none."""
    return any(rows.markers.get(marker) for marker in (RowMarker.UPDATE, RowMarker.UPSERT))


def _batch(read: Sequence[FileRows], metadata: Metadata, facts: TableContext) -> ChangeBatch:
    schema = facts.schema or TableSchema(())
    keys = (schema.find(name) for name in metadata.key_columns)
    return ChangeBatch(tuple(read), schema, tuple(dict.fromkeys(key.name for key in keys if key)))


def _repeats(table: TableName, read: Sequence[FileRows], known: Progress) -> list[Diagnostic]:
    """ME064: whole files whose content was applied before, in the same partition: another one is another value."""
    seen = {(partition_of(path), file.digest): path for path, file in known.applied.items() if file.rows}
    said = []
    for rows in read:
        content = (partition_of(rows.path), rows.digest)
        if rows.row_count and content in seen:
            said.append(diagnose("ME064", f"{table.folder}/{rows.path}", file=seen[content]))
        if rows.row_count:
            seen.setdefault(content, rows.path)
    return said
