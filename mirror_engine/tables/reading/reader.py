"""Reads change files as typed rows in exact (file, row) order, each whole or not at all."""

from __future__ import annotations

import os
from concurrent.futures import CancelledError
from dataclasses import replace
from typing import TYPE_CHECKING, BinaryIO

from mirror_engine.errors import MirrorError
from mirror_engine.landing_zone.change import RowMarker
from mirror_engine.landing_zone.diagnostics import Diagnostic, RejectedFile, diagnose, without_errors
from mirror_engine.landing_zone.partitions import parse_folder
from mirror_engine.landing_zone.schema import (
    Incoming,
    TableSchema,
    check_absent_columns,
    folded,
    lacking_updates,
    merge,
    mixed_times,
)
from mirror_engine.tables.base import FileRows
from mirror_engine.tables.reading.digest import digest
from mirror_engine.tables.reading.opening import in_memory, listed_now, open_listed
from mirror_engine.tables.reading.parquet import ParquetChangeFile
from mirror_engine.tables.reading.request import ReadFile, TableContext
from mirror_engine.tables.reading.row_rules import FileContract, IngestedRows, ingest
from mirror_engine.tables.reading.text import TextChangeFile

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

    from mirror_engine.config import Config
    from mirror_engine.storage.base import Storage
    from mirror_engine.tables.reading.opening import OpenFile
    from mirror_engine.tables.reading.request import PendingFiles, ReadRequest
    from mirror_engine.tables.reading.spill import ReadMode


class ChangeFileReader:
    """Reads change files of one ROOT's landing zone; an `OrderedReader`.

    Args:
        storage: the landing zone's.
        config: all options.
        mode: how thoroughly files are read, and where their rows go.
    """

    def __init__(self, storage: Storage, config: Config, mode: ReadMode) -> None:
        self._storage = storage
        self._config = config
        self._mode = mode
        self._is_closed = False

    def close(self) -> None:
        """Let `in_order`, in whatever thread, end before its next file. Repeatable."""
        self._is_closed = True

    def in_order(self, pending: PendingFiles) -> Generator[ReadFile, None, None]:
        """See `OrderedReader`; no file is opened before it is asked for.

        Raises:
            CancelledError: the reader was closed.
        """
        facts = pending.facts
        for place in range(len(pending.files)):
            if self._is_closed:
                raise CancelledError
            file = self.read(pending.request(place, facts))
            facts = file.facts
            yield file

    def read(self, request: ReadRequest) -> ReadFile:
        """Read one file and hold it to the protocol.

        A file that changed since it was listed is read again as it is now (LZ-3.10). Rows stay readable until
        `ReadFile.rows.rows` is closed or forgotten.

        Raises:
            RejectedFile: the file breaks the protocol; nothing of it may be applied.
            ConcurrentModification: the file was replaced or removed since it was listed.
            StorageUnavailable: the storage or the scratch folder failed.
        """
        for _ in range(2):
            outcome = self._outcome(request)
            try:
                now = listed_now(self._storage, request)
            except MirrorError:
                _close(outcome)
                raise
            if now == request.file:
                if isinstance(outcome, RejectedFile):
                    raise outcome
                return outcome
            _close(outcome)  # whatever its error is, the file was being written
            request = replace(request, file=now)
        raise self._changed(request)

    def _outcome(self, request: ReadRequest) -> ReadFile | RejectedFile:
        try:
            return self._read(request)
        except RejectedFile as rejected:
            return rejected

    def _changed(self, request: ReadRequest) -> RejectedFile:
        reason = "it changed while it was read"
        return RejectedFile(diagnose("ME024", request.path, strict=self._config.strict, reason=reason))

    def _read(self, request: ReadRequest) -> ReadFile:
        landed = request.file
        with open_listed(self._storage, request) as handle:
            content = in_memory(handle, landed.size)
            content_digest, size = self._digest(content, request)
            if size != landed.size:
                raise self._changed(request)
            file = self._parsed(content, request)
            contract = file_contract(file, request, self._config)
            ingested = ingest(file, contract, landed.size, self._mode)
        try:
            return read_file(file, contract, ingested, request, (content_digest, size))
        except RejectedFile:
            ingested.rows.close()
            raise

    def _digest(self, content: BinaryIO, request: ReadRequest) -> tuple[str, int]:
        """The digest of the bytes, or a unique text where no other file can be equal; and how many they are."""
        sizes = self._mode.digested_sizes
        if sizes is None or request.file.size in sizes:
            return digest(content)
        size = content.seek(0, os.SEEK_END)
        content.seek(0)
        return f"unique: {request.file.path}", size

    def _parsed(self, content: BinaryIO, request: ReadRequest) -> OpenFile:
        if request.metadata.is_text:
            return TextChangeFile(content, request.path, request.metadata, self._config)
        return ParquetChangeFile(content, request.path, self._config, threads=self._mode.threads)


def _close(outcome: ReadFile | RejectedFile) -> None:
    if isinstance(outcome, ReadFile):
        outcome.rows.rows.close()


def read_file(  # noqa: PLR0913 - what reading found
    file: OpenFile,
    contract: FileContract,
    ingested: IngestedRows,
    request: ReadRequest,
    content: tuple[str, int],
    *,
    passthrough: Path | None = None,
) -> ReadFile:
    """A file whose rows are valid; `content`: its digest and size, `passthrough`: the copy to be added unchanged.

    Raises:
        RejectedFile: ME046; any warning under `strict`.
    """
    content_digest, size = content
    rows = FileRows(
        path=request.file.path,
        etag=request.file.etag,
        digest=content_digest,
        modified_ns=request.file.modified_ns,
        rows=ingested.rows,
        markers=ingested.markers,
        has_marker=file.marker is not None,
        byte_count=ingested.byte_count,
        diagnostics=without_errors(_file_diagnostics(file, contract, ingested, request)),
        landed_bytes=size,
        passthrough=passthrough,
    )
    fills = any(count for marker, count in ingested.markers.items() if marker != RowMarker.DELETE)
    before = request.facts
    context = TableContext(
        schema=contract.merged.schema,
        is_empty=before.is_empty and not fills,
        naive_columns=before.naive_columns | _in_table(file.naive_columns, contract),
        utc_columns=before.utc_columns | _in_table(file.utc_columns, contract),
        markers_seen=before.markers_seen or file.marker is not None,
        takes_files=before.takes_files,
    )
    return ReadFile(rows, context)


def file_contract(file: OpenFile, request: ReadRequest, config: Config) -> FileContract:
    """Fit the file's columns into the table's, and set the rules that its rows must keep."""
    metadata = request.metadata
    partition = dict(parse_folder(request.file.partition) or ()) if metadata.partitioned else {}
    in_folder = set(map(folded, partition))
    incoming = Incoming(
        path=request.path,
        columns=tuple(column for column in file.columns if folded(column.name) not in in_folder),
        declared=metadata.declared_columns if metadata.is_text else (),
        key_columns=metadata.key_columns,
        partition_columns=tuple(partition),
        table_is_empty=request.facts.is_empty,
        untyped_nulls=config.all_null_columns == "untyped",
        strict=config.strict,
    )
    merged = merge(request.facts.schema, incoming)
    _check_names(merged.schema, incoming, has_columns=bool(file.columns or file.marker or metadata.is_text))
    keys = filter(None, map(merged.schema.find, metadata.key_columns))
    return FileContract(
        incoming=incoming,
        merged=merged,
        key_columns=tuple(dict.fromkeys(key.name for key in keys)),
        partition=partition,
        default_marker=RowMarker.UPSERT if metadata.upsert_default else RowMarker.INSERT,
        deletes_are_full=metadata.is_text,
    )


def _check_names(schema: TableSchema, incoming: Incoming, *, has_columns: bool) -> None:
    """Refuse what no table can hold: no column at all, or one without a name."""
    if not (schema.columns and has_columns):
        without_errors([incoming.say("ME024", reason="it has no data column, and a table needs one")])
    if not all(schema.names):
        without_errors([incoming.say("ME024", reason="one of its columns has no name, and a table needs one")])


def _file_diagnostics(
    file: OpenFile, contract: FileContract, ingested: IngestedRows, request: ReadRequest
) -> Iterator[Diagnostic]:
    """Diagnostics of a file whose rows are valid, errors under `strict` included.

    Raises:
        RejectedFile: ME046.
    """
    incoming, merged = contract.incoming, contract.merged
    check_absent_columns(merged, incoming, ingested.markers, deletes_count=contract.deletes_are_full)
    yield from file.diagnostics
    yield from merged.diagnostics
    facts = request.facts
    naive, utc = (_in_table(names, contract) for names in (file.naive_columns, file.utc_columns))
    for column in mixed_times(naive, utc, facts.naive_columns, facts.utc_columns):
        yield incoming.say("ME051", column=column)
    yield from lacking_updates(merged, incoming, ingested.markers)
    inserts = ingested.markers[RowMarker.INSERT]
    if inserts and file.marker is None and facts.markers_seen:
        yield incoming.say("ME042", count=inserts)
    for key in contract.key_columns:
        if count := ingested.null_keys[key]:
            yield incoming.say("ME040", column=key, count=count)


def _in_table(names: frozenset[str], contract: FileContract) -> frozenset[str]:
    """Columns of the file in the table's spelling."""
    spelling = contract.merged.spelling
    return frozenset(spelling[name] for name in names if name in spelling)
