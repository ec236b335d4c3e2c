"""Cuts waiting change files into a change batch: as many as fit, up to the first that is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirror_engine.delta.base import ChangeBatch, FileRows
from mirror_engine.delta.reader import ReadRequest, TableFacts
from mirror_engine.errors import PublisherError
from mirror_engine.events import Event, FileRead
from mirror_engine.landing_zone.change_file import sequence_of
from mirror_engine.landing_zone.column_types import TableSchema
from mirror_engine.landing_zone.diagnostics import Diagnostic, diagnose
from mirror_engine.landing_zone.metadata import Metadata, Strategy
from mirror_engine.landing_zone.sightings import partition_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mirror_engine.config import Config
    from mirror_engine.delta.reader import ChangeFileReader
    from mirror_engine.landing_zone.column_types import Column
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.landing_zone.progress import Progress
    from mirror_engine.landing_zone.sightings import FileSighting

COUNTED_ROW_BYTES = 32  # a row counts for so much at least: its key is in memory however well the file is packed


@dataclass(frozen=True)
class CutBatch:
    """A batch ready to be committed, and why it ends where it does.

    Attributes:
        files: as sighted, in order.
        batch: the same, read.
        facts: of the table after the batch.
        metadata: in force.
        refusal: of the file after the last, where that one broke the protocol.
        diagnostics: what the files raised.
    """

    files: tuple[FileSighting, ...]
    batch: ChangeBatch
    facts: TableFacts
    metadata: Metadata
    refusal: PublisherError | None
    diagnostics: tuple[Diagnostic, ...]

    @property
    def declared_columns(self) -> tuple[Column, ...]:
        """SchemaDefinition in force."""
        return self.metadata.definition

    def sequence_of(self, file: FileSighting) -> int | None:
        """The file's number, where its strategy numbers files (LZ-3.2, LZ-3.15)."""
        return sequence_of(file.name) if self.metadata.strategy is Strategy.SEQUENTIAL else None

    def release(self) -> None:
        """Give back what the rows hold."""
        for file in self.batch.files:
            file.rows.close()


class BatchReader:
    """Reads change files one after the other until a bound is reached (LZ-4.16) or one is refused (LZ-4.17)."""

    def __init__(self, reader: ChangeFileReader, config: Config, tell: Callable[[Event], None]) -> None:
        self._reader = reader
        self._config = config
        self._tell = tell

    def cut(  # noqa: PLR0913 - where the files lie, and what they are read against
        self,
        zone: str,
        table: TableName,
        files: Sequence[FileSighting],
        metadata: Metadata,
        *,
        known: Progress,
        facts: TableFacts,
    ) -> CutBatch:
        """Read the next batch of a table folder in the landing zone, which is `zone` from ROOT.

        Raises:
            ZoneChanged: a file is no longer what was sighted.
            StorageUnavailable: it could not be read.
        """
        read: list[FileRows] = []
        refusal = None
        size = 0
        try:
            for file in files:
                if is_full(self._config, len(read), size, file):
                    break
                try:
                    found = self._reader.read(ReadRequest(zone, table, file, metadata, facts))
                except PublisherError as refused:
                    refusal = refused
                    break
                read.append(found.rows)
                facts = found.facts
                size += max(file.size, found.rows.row_count * COUNTED_ROW_BYTES)
                self._tell(FileRead(table, file.path, found.rows.row_count))
        except BaseException:
            for rows in read:
                rows.rows.close()
            raise
        said = [said for rows in read for said in rows.diagnostics]
        said += _repeats(table, read, known)
        return CutBatch(tuple(files[: len(read)]), _batch(read, metadata, facts), facts, metadata, refusal, tuple(said))


def is_full(config: Config, count: int, size: int, following: FileSighting) -> bool:
    """Whether a commit of so many files and bytes ends before the following file (LZ-4.16); one always fits."""
    return count > 0 and (count >= config.batch_files or size + following.size > config.batch_bytes)


def _batch(read: Sequence[FileRows], metadata: Metadata, facts: TableFacts) -> ChangeBatch:
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
