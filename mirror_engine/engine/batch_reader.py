"""Chooses the files of a table's next batch, and reads them."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING

from mirror_engine.errors import TransientError
from mirror_engine.events import FileRead
from mirror_engine.landing_zone.diagnostics import RejectedFile
from mirror_engine.landing_zone.schema import TableSchema
from mirror_engine.tables.base import ChangeBatch, FileRows
from mirror_engine.tables.reading.request import ReadRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from mirror_engine.config import Config
    from mirror_engine.events import Event
    from mirror_engine.landing_zone.listing import Entry
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.tables.base import ReadContext, TableSnapshot
    from mirror_engine.tables.passthrough import PassthroughReader
    from mirror_engine.tables.reading.request import LandedFolder, OrderedReader


def is_full(config: Config, count: int, size: int, following: Entry) -> bool:
    """Whether a commit of so many files and bytes ends before the following file (LZ-4.16); one always fits."""
    return count > 0 and (count >= config.max_batch_files or size + following.size > config.max_batch_size)


class BatchReader:
    """Reads batches; those of different tables may be read in parallel.

    Args:
        emit: gets a `FileRead` event for each file.
        reader: makes the reader of change files.
        passthrough: makes the reader of files that are added unchanged; None where rows are always read.
    """

    def __init__(
        self,
        config: Config,
        emit: Callable[[Event], None],
        reader: Callable[[], OrderedReader],
        passthrough: Callable[[], PassthroughReader] | None = None,
    ) -> None:
        self._config = config
        self._emit = emit
        self._reader = cache(reader)  # a start that reads no rows imports no Arrow
        self._passthrough = cache(passthrough) if passthrough else None
        self._reasons: dict[TableName, tuple[ReadRequest, str]] = {}  # why not the file after the last batch

    def read(
        self, folder: LandedFolder, files: Sequence[Entry], context: ReadContext, snapshot: TableSnapshot | None
    ) -> ChangeBatch:
        """Read the first files of those pending: their rows are applied, or they are added unchanged.

        A failure ends the batch, too: files before it are committed, and the next batch meets it at its first file.

        Args:
            folder: where the files are, and by which metadata they are read.
            files: those that are pending, in order.
            context: that of the first of them.
            snapshot: the table that they are read against; None for a new one.

        Raises:
            TransientError: the first file cannot be read.
        """
        read: list[FileRows] = []
        rejected = None
        try:
            for file in self._run(folder, files, context):
                read.append(file)
                self._emit(FileRead(folder.table, file.path, file.row_count))
        except RejectedFile as error:
            rejected = error
        except TransientError:
            if not read:
                raise
        except BaseException:
            for rows in read:
                rows.rows.close()
            raise
        schema = (read[-1].context if read else context).schema or TableSchema(())
        keys = dict.fromkeys(key.name for name in folder.metadata.key_columns if (key := schema.find(name)))
        found = tuple(diagnostic for rows in read for diagnostic in rows.diagnostics)
        return ChangeBatch(tuple(read), schema, tuple(keys), snapshot, folder.metadata, found, rejected)

    def _run(self, folder: LandedFolder, files: Sequence[Entry], context: ReadContext) -> Iterator[FileRows]:
        """Read files that are added unchanged, or, if the first file is not one, files whose rows are applied.

        Until they are committed, copies of the former are in the scratch folder.
        """
        reason: str | None
        known, reason = self._reasons.pop(folder.table, (None, ""))
        first = ReadRequest(folder, files[0], context)
        if known != first and self._passthrough:
            reason = yield from self._unchanged(self._passthrough(), first, files)
        if reason is not None:
            yield from self._applied(folder, files, context, reason)

    def _unchanged(
        self, passthrough: PassthroughReader, first: ReadRequest, files: Sequence[Entry]
    ) -> Generator[FileRows, None, str | None]:
        """Yield the files that are added unchanged. If the first file is not one, return the reason."""
        context = first.context
        with closing(passthrough.in_order(first.folder, files, context, partial(is_full, self._config))) as reading:
            for count, found in enumerate(reading):
                if isinstance(found, str):
                    if not count:
                        return found
                    self._reasons[first.folder.table] = ReadRequest(first.folder, files[count], context), found
                    return None
                context = found.context
                yield found
        return None

    def _applied(
        self, folder: LandedFolder, files: Sequence[Entry], context: ReadContext, reason: str
    ) -> Iterator[FileRows]:
        """Yield files whose rows are applied, up to one that may be added unchanged by its footer."""
        size = 0
        with closing(self._reader().in_order(folder, files, context)) as reading:
            for count, file in enumerate(files):
                if is_full(self._config, count, size, file):
                    return
                if count and self._passthrough:
                    reason = self._passthrough().why_not(ReadRequest(folder, file, context))
                    if not reason:
                        return
                rows = next(reading)
                context = rows.context
                size += rows.accounted_bytes
                yield replace(rows, passthrough_skipped_because=reason)
