"""Reads change files as typed rows in exact (file, row) order, each whole or not at all."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import chain, repeat
from typing import TYPE_CHECKING

import pyarrow as pa

from mirror_engine.landing_zone.change import RowMarker
from mirror_engine.landing_zone.diagnostics import Diagnostic, RejectedFile, diagnose, without_errors
from mirror_engine.landing_zone.partitions import folder_fault, parse_folder
from mirror_engine.landing_zone.schema import (
    Incoming,
    check_absent_columns,
    folded,
    is_of_absent_columns,
    lacking_updates,
    merge,
    mixed_times,
)
from mirror_engine.storage.base import at_once, digest
from mirror_engine.tables.base import FileRows
from mirror_engine.tables.reading.open_file import WRITE_ASIDE
from mirror_engine.tables.reading.parquet import ParquetChangeFile
from mirror_engine.tables.reading.request import ReadRequest
from mirror_engine.tables.reading.row_rules import FileContract, IngestedRows
from mirror_engine.tables.reading.text import TextChangeFile

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from concurrent.futures import Executor, Future

    from mirror_engine.config import Config
    from mirror_engine.landing_zone.listing import Entry
    from mirror_engine.storage.base import Storage
    from mirror_engine.tables.base import ReadContext
    from mirror_engine.tables.reading.open_file import OpenFile
    from mirror_engine.tables.reading.request import LandedFolder
    from mirror_engine.tables.reading.spill import ReadMode

SMALL_BYTES = 1 << 20  # of a file that is too small for a second core, or that a store sends ahead
WHOLE_BYTES = 32 << 20  # of a file that is held in memory as a whole while it is read


class _ReadAhead:
    """At most one file of a table that is being read, or was, before its turn, on the guess of an unchanged context."""

    def __init__(self, pool: Executor, read: Callable[[ReadRequest], FileRows]) -> None:
        self._pool = pool
        self._read = read
        self._begun: tuple[ReadRequest, Future[FileRows]] | None = None

    def begin(self, request: ReadRequest) -> None:
        """Read a file in the pool; what was begun before is dropped."""
        self.close()
        self._begun = request, self._pool.submit(self._read, request)

    def taken(self, request: ReadRequest) -> FileRows | None:
        """Return the rows that `begin` read; None for another file or context, or if the read had not started.

        Raises what `read` raised.
        """
        if self._begun is None or self._begun[0] != request or self._begun[1].cancel():
            return None
        begun, self._begun = self._begun[1], None
        return begun.result()

    def close(self) -> None:
        """Drop what was begun, with its scratch file. Idempotent."""
        if self._begun is None:
            return
        begun, self._begun = self._begun[1], None
        if not begun.cancel() and not begun.exception():  # waits where it is running
            begun.result().rows.close()


class ChangeFileReader:
    """Reads change files of a landing zone; an `OrderedReader`. The mode says how thoroughly, and where rows go."""

    def __init__(self, storage: Storage, config: Config, mode: ReadMode) -> None:
        self._storage = storage
        self._config = config
        self._mode = mode
        self._second_core = ThreadPoolExecutor(1, "read-ahead")  # one for all tables: it bounds memory

    def in_order(
        self, folder: LandedFolder, files: Sequence[Entry], context: ReadContext
    ) -> Generator[FileRows, None, None]:
        """See `OrderedReader`; no file of another batch is opened before it is asked for.

        Of this one small files in a store are, and a large file while the one before it is read.
        """
        in_batch = files[: self._config.max_batch_files]
        small = at_once(self._storage, lambda file: self._content(ReadRequest(folder, file), SMALL_BYTES), in_batch)
        contents, following = chain(small, repeat(None)), chain(in_batch[1:], repeat(None))
        room = self._config.max_batch_size
        with closing(small), closing(_ReadAhead(self._second_core, self.read)) as ahead:
            for file, content, after in zip(files, contents, following, strict=False):
                request = ReadRequest(folder, file, context)
                read = ahead.taken(request)
                if read is None:
                    if after and self._is_worth_a_core(after, context, room - file.size):
                        ahead.begin(replace(request, file=after))
                    read = self.read(request, content)
                room -= read.accounted_bytes
                context = read.context
                yield read

    def _is_worth_a_core(self, file: Entry, context: ReadContext, room: int) -> bool:
        """Whether reading a file beside the one before it saves time, and that one hardly changes the context."""
        has_memory = self._mode.threads and self._config.memory_limit == "none"
        return has_memory and not context.is_empty and SMALL_BYTES < file.size <= min(room, WHOLE_BYTES)

    def read(self, request: ReadRequest, content: bytes | None = None) -> FileRows:
        """Read one file and check it against the protocol.

        A file that changed since it was listed is read again as it is now (LZ-3.10). Rows stay readable until
        `FileRows.rows` is closed or forgotten. `content`: of the file, where that was read before.

        Raises:
            RejectedFile: the file breaks the protocol; nothing of it may be applied.
            ConcurrentModification: the file was replaced or removed since it was listed.
            StorageUnavailable: the storage or the scratch folder failed.
        """
        for _ in range(2):
            read, rejected = None, None
            with ExitStack() as unless_valid:
                try:
                    read = self._read(request, content)
                    unless_valid.callback(read.rows.close)
                except RejectedFile as error:
                    rejected = error
                now = request.listed_now(self._storage, was_read=read is not None)
                if now == request.file:
                    unless_valid.pop_all()
                    if read is None:
                        raise rejected or self._changed(request)
                    return read
            request, content = replace(request, file=now), None  # whatever its error is, the file was being written
        raise self._changed(request)

    def _changed(self, request: ReadRequest) -> RejectedFile:
        reason = "it changed while it was read"
        strict = self._config.strict
        return RejectedFile(diagnose("ME024", request.path, strict=strict, reason=reason, help=WRITE_ASIDE))

    def _content(self, request: ReadRequest, max_bytes: int) -> bytes | None:
        """The content of a file, and one more byte of one that has grown; None for a larger file."""
        if request.file.size > max_bytes:
            return None
        with request.open(self._storage) as handle:
            return handle.read(request.file.size + 1)

    def _read(self, request: ReadRequest, whole: bytes | None) -> FileRows:
        size, mode = request.file.size, self._mode
        whole = self._content(request, WHOLE_BYTES) if whole is None else whole
        # in memory, Arrow needs no call of Python for each piece, and the digest no second reading
        with request.open(self._storage) if whole is None else pa.BufferReader(whole) as content:
            if content.seek(0, os.SEEK_END) != size:
                raise self._changed(request)
            is_digested = mode.digested_sizes is None or size in mode.digested_sizes
            content_digest = digest(content) if is_digested else f"unique: {request.file.path}"
            file: OpenFile
            if request.folder.metadata.is_text:
                file = TextChangeFile(content, request.path, request.folder.metadata, self._config)
            else:
                file = ParquetChangeFile(content, request.path, self._config, threads=mode.threads)
            contract = file_contract(file, request, self._config)
            ingested = IngestedRows(file, contract, mode)
        return read_file(file, contract, ingested, request, content_digest)


def file_contract(file: OpenFile, request: ReadRequest, config: Config) -> FileContract:
    """Fit the file's columns into the table's, and set the rules that its rows must keep."""
    metadata = request.folder.metadata
    partition = dict(parse_folder(request.file.partition) or ()) if metadata.partitioned else {}
    in_folder = set(map(folded, partition))
    incoming = Incoming(
        path=request.path,
        columns=tuple(column for column in file.columns if folded(column.name) not in in_folder),
        declared=metadata.declared_columns if metadata.is_text else (),
        key_columns=metadata.key_columns,
        partition_columns=tuple(partition),
        table_is_empty=request.context.is_empty,
        has_rows=file.has_rows,
        untyped_nulls=config.all_null_columns == "untyped",
        feeds_changes=request.context.feeds_changes or config.change_data_feed == "on",
        strict=config.strict,
    )
    faults = {column: fault for column, value in partition.items() if (fault := folder_fault(column, value))}
    without_errors(incoming.say("ME088", column=column, reason=fault) for column, fault in faults.items())
    merged = merge(request.context.schema, incoming)
    if not (file.columns or (merged.schema.columns and file.marker)):
        reason, help = "it has no data column, and a table needs one", "land it with a column besides the row marker"
        without_errors([incoming.say("ME024", reason=reason, help=help)])
    keys = filter(None, map(merged.schema.find, metadata.key_columns))
    return FileContract(
        incoming=incoming,
        merged=merged,
        key_columns=tuple(dict.fromkeys(key.name for key in keys)),
        partition=partition,
        default_marker=RowMarker.UPSERT if metadata.upsert_default else RowMarker.INSERT,
        deletes_are_full=metadata.is_text,
    )


def read_file(
    file: OpenFile, contract: FileContract, ingested: IngestedRows, request: ReadRequest, content_digest: str
) -> FileRows:
    """A file whose rows are valid, with its diagnostics, and the table's context after it.

    Raises:
        RejectedFile: ME046; under `strict` any warning. The rows are closed.
    """
    try:
        diagnostics = without_errors(_diagnostics(file, contract, ingested, request))
    except RejectedFile:
        ingested.rows.close()
        raise
    fills = any(count for marker, count in ingested.markers.items() if marker != RowMarker.DELETE)
    return FileRows(
        landed=request.file,
        digest=content_digest,
        rows=ingested.rows,
        markers=ingested.markers,
        has_marker=file.marker is not None,
        byte_count=ingested.byte_count,
        diagnostics=diagnostics,
        context=context_after(file, contract, request.context, fills=fills),
    )


def context_after(file: OpenFile, contract: FileContract, before: ReadContext, *, fills: bool) -> ReadContext:
    """The table's context after a file; `fills`: whether it has rows that are no deletes."""
    return replace(
        before,
        schema=contract.merged.schema,
        is_empty=before.is_empty and not fills,
        naive_columns=before.naive_columns | _in_table(file.naive_columns, contract),
        utc_columns=before.utc_columns | _in_table(file.utc_columns, contract),
        markers_seen=before.markers_seen or file.marker is not None,
    )


def _diagnostics(
    file: OpenFile, contract: FileContract, ingested: IngestedRows, request: ReadRequest
) -> Iterator[Diagnostic]:
    incoming, merged, before = contract.incoming, contract.merged, request.context
    check_absent_columns(merged, incoming, ingested.markers, deletes_count=contract.deletes_are_full)
    omitted = lacking_updates(merged, incoming, ingested.markers)
    yield from file.diagnostics
    yield from (found for found in merged.diagnostics if not (omitted and is_of_absent_columns(found)))
    naive, utc = (_in_table(names, contract) for names in (file.naive_columns, file.utc_columns))
    for column in mixed_times(naive, utc, before.naive_columns, before.utc_columns):
        yield incoming.say("ME051", column=column)
    yield from omitted
    inserts = ingested.markers[RowMarker.INSERT]
    is_misspelled = any(found.code == "ME095" for found in file.diagnostics)
    if inserts and file.marker is None and not is_misspelled:
        if request.folder.metadata.is_text and before.schema and contract.key_columns:
            yield incoming.say("ME090", count=inserts)
        elif before.markers_seen:
            yield incoming.say("ME042", count=inserts)
    for key in contract.key_columns:
        if count := ingested.null_keys[key]:
            yield incoming.say("ME040", column=key, count=count)
    for column in ingested.long_values:
        yield incoming.say("ME091", column=column)


def _in_table(names: frozenset[str], contract: FileContract) -> frozenset[str]:
    """Columns of the file in the table's spelling."""
    spelling = contract.merged.spelling
    return frozenset(spelling[name] for name in names if name in spelling)
