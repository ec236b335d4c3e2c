"""Gives change files as typed rows in exact (file, row) order."""

from __future__ import annotations

from concurrent.futures import CancelledError
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, BinaryIO, Protocol

from mirror_engine.errors import MirrorError, StorageUnavailable
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
from mirror_engine.tables.base import COUNTED_ROW_BYTES, FileRows
from mirror_engine.tables.reading.opening import at_hand, guarded, sighted
from mirror_engine.tables.reading.parquet import open_parquet
from mirror_engine.tables.reading.row_rules import Taken, Terms, null_key_counts, take
from mirror_engine.tables.reading.text import open_text

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from mirror_engine.config import Config
    from mirror_engine.landing_zone.listing import LandedFile
    from mirror_engine.landing_zone.metadata import Metadata
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.landing_zone.schema import TableSchema
    from mirror_engine.storage.base import Storage
    from mirror_engine.tables.reading.opening import OpenFile, SightedFile
    from mirror_engine.tables.reading.spill import Reading


@dataclass(frozen=True)
class TableContext:
    """What is known of a table before a file is read, and after: each file is read against the facts before it.

    Attributes:
        schema: its columns; None before its first file.
        is_empty: whether it surely holds no row (LZ-5.5).
        naive_columns, utc_columns: timestamp columns that came so (ME051).
        markers_seen: whether a file with markers came before (ME042).
        takes_files: whether files can become part of the table as they lie.
    """

    schema: TableSchema | None = None
    is_empty: bool = True
    naive_columns: frozenset[str] = frozenset()
    utc_columns: frozenset[str] = frozenset()
    markers_seen: bool = False
    takes_files: bool = True


@dataclass(frozen=True)
class ReadFile:
    """One file, read and found good, and the facts after it."""

    rows: FileRows
    facts: TableContext


@dataclass(frozen=True)
class Forecast:
    """What is expected of a file before its rows are read: the facts after it, and what it counts for in a batch."""

    facts: TableContext
    counted_bytes: int


@dataclass(frozen=True)
class ReadRequest:
    """What to read, and against what.

    Attributes:
        zone: the landing zone, from ROOT.
        table: the table folder.
        file: the file as the poller saw it.
        metadata: in force for it.
        facts: the table's before this file.
    """

    zone: str
    table: TableName
    file: LandedFile
    metadata: Metadata
    facts: TableContext = field(default_factory=TableContext)

    @property
    def path(self) -> str:
        """The file from the landing zone's top, for messages."""
        return f"{self.table.folder}/{self.file.path}"


@dataclass(frozen=True)
class WaitingFiles:
    """Change files of one table folder that wait to be read, in detection order; see `ReadRequest`.

    Attributes:
        facts: the table's before the first of them.
    """

    zone: str
    table: TableName
    files: Sequence[LandedFile]
    metadata: Metadata
    facts: TableContext

    def request(self, place: int, facts: TableContext) -> ReadRequest:
        """For the file at a place, with the facts before it."""
        return ReadRequest(self.zone, self.table, self.files[place], self.metadata, facts)


class OrderedReader(Protocol):
    """Reads waiting files, each against the facts after the one before; where it does so changes nothing."""

    def in_order(self, waiting: WaitingFiles) -> Generator[ReadFile, None, None]:
        """The files, one after the other as they are asked for; what was read beyond goes when it is closed.

        Raises:
            RejectedFile: the next file breaks the protocol; nothing of it may be applied.
            ConcurrentModification: another file lies there than was sighted, or none.
            StorageUnavailable: the storage or the scratch folder failed.
        """


class LazyReader:
    """`OrderedReader` by another one, made for the first file: where none waits, nothing is imported to read it."""

    def __init__(self, make: Callable[[], OrderedReader]) -> None:
        self._made = cache(make)

    def in_order(self, waiting: WaitingFiles) -> Generator[ReadFile, None, None]:
        """See `OrderedReader`."""
        return self._made().in_order(waiting)


class ChangeFileReader:
    """Reads change files of one ROOT's landing zone, each whole or not at all."""

    def __init__(self, storage: Storage, config: Config, reading: Reading) -> None:
        """Keep what every read needs.

        Args:
            storage: door 1.
            config: all options.
            reading: how thoroughly files are read, and where their rows go.
        """
        self._storage = storage
        self._config = config
        self._reading = reading
        self._is_closed = False

    def close(self) -> None:
        """Let `in_order`, in whatever thread, end before its next file. Repeatable."""
        self._is_closed = True

    def read(self, request: ReadRequest) -> ReadFile:
        """Read one file and hold it to the protocol (chapters 3 to 6).

        Rows stay readable until `ReadFile.rows.rows` is closed or forgotten.

        Raises:
            RejectedFile: the file breaks the protocol; nothing of it may be applied.
            ConcurrentModification: another file lies there than was sighted, or none.
            StorageUnavailable: the storage or the scratch folder failed.
        """
        seen = sighted(self._storage, request)
        try:
            found = self._opened(seen, request)
        except RejectedFile:
            self._check_unchanged(seen)  # a file being written fails in odd ways: say the true one
            raise
        try:
            self._check_unchanged(seen)
        except MirrorError:
            found.rows.rows.close()
            raise
        return found

    def in_order(self, waiting: WaitingFiles) -> Generator[ReadFile, None, None]:
        """See `OrderedReader`; no file is opened before it is asked for.

        Raises:
            CancelledError: the reader was closed.
        """
        facts = waiting.facts
        for place in range(len(waiting.files)):
            if self._is_closed:
                raise CancelledError
            found = self.read(waiting.request(place, facts))
            facts = found.facts
            yield found

    def foretold(self, request: ReadRequest) -> Forecast | None:
        """What a header or footer lets expect of the facts after a file; its rows may say otherwise.

        None where only reading the file tells: it is not as it should be, or not there.
        """
        try:
            with self._storage.open(f"{request.zone}/{request.path}") as handle:
                file = self._parsed(at_hand(guarded(handle, request.path), request.file.size), request)
                terms = terms_of(file, request, self._config)
        except (RejectedFile, StorageUnavailable, FileNotFoundError):
            return None
        rows = file.promised_rows
        facts = facts_after(file, terms, request.facts, fills=rows is None or rows > 0)
        return Forecast(facts, max(request.file.size, (rows or 0) * COUNTED_ROW_BYTES))

    def _check_unchanged(self, seen: SightedFile) -> None:
        if not seen.is_unchanged():
            raise self._changed(seen)

    def _changed(self, seen: SightedFile) -> RejectedFile:
        return RejectedFile(
            diagnose("ME024", seen.name, strict=self._config.strict, reason="it changed while it was read")
        )

    def _opened(self, seen: SightedFile, request: ReadRequest) -> ReadFile:
        with seen.open() as handle:
            content = at_hand(guarded(handle, request.path), seen.entry.size)
            content_digest, size = self._reading.digest(request.file, content)
            if size != seen.entry.size:
                raise self._changed(seen)
            file = self._parsed(content, request)
            terms = terms_of(file, request, self._config)
            taken = take(file, terms, request.file, self._reading)
        try:
            said = without_errors(said_of(file, terms, taken, request))
        except RejectedFile:
            taken.rows.close()
            raise
        as_read = replace(request.file, size=size, modified_ns=seen.entry.modified_ns)
        rows = FileRows(
            path=as_read.path,
            etag=as_read.etag,
            digest=content_digest,
            modified_ns=as_read.modified_ns,
            rows=taken.rows,
            markers=taken.markers,
            has_marker=file.marker is not None,
            byte_count=taken.byte_count,
            diagnostics=said,
            landed_bytes=size,
        )
        fills = any(count for marker, count in taken.markers.items() if marker != RowMarker.DELETE)
        return ReadFile(rows, facts_after(file, terms, request.facts, fills=fills))

    def _parsed(self, content: BinaryIO, request: ReadRequest) -> OpenFile:
        if request.metadata.is_text:
            return open_text(content, request.path, request.metadata, self._config)
        return open_parquet(content, request.path, self._config, threads=self._reading.threads)


def terms_of(file: OpenFile, request: ReadRequest, config: Config) -> Terms:
    """Fit the file's columns into the table's, and say what its rows are held to."""
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
    return Terms(
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


def said_of(file: OpenFile, terms: Terms, taken: Taken, request: ReadRequest) -> Iterator[Diagnostic]:
    """Everything to be said about a file whose rows are good, errors under `strict` among it.

    Raises:
        RejectedFile: ME046.
    """
    incoming, merged = terms.incoming, terms.merged
    check_absent_columns(merged, incoming, taken.markers, deletes_count=terms.deletes_are_full)
    yield from file.diagnostics
    yield from merged.diagnostics
    facts = request.facts
    naive, utc = (_in_table(names, terms) for names in (file.naive_columns, file.utc_columns))
    for column in mixed_times(naive, utc, facts.naive_columns, facts.utc_columns):
        yield incoming.say("ME051", column=column)
    yield from lacking_updates(merged, incoming, taken.markers)
    inserts = taken.markers[RowMarker.INSERT]
    if inserts and file.marker is None and facts.markers_seen:
        yield incoming.say("ME042", count=inserts)
    for key, count in null_key_counts(taken.null_keys, terms.key_columns):
        yield incoming.say("ME040", column=key, count=count)


def _in_table(names: frozenset[str], terms: Terms) -> frozenset[str]:
    """Columns of the file in the table's spelling."""
    spelling = terms.merged.spelling
    return frozenset(spelling[name] for name in names if name in spelling)


def facts_after(file: OpenFile, terms: Terms, before: TableContext, *, fills: bool) -> TableContext:
    """The facts once the file is in; `fills` tells whether it may leave a row in the table."""
    return TableContext(
        schema=terms.merged.schema,
        is_empty=before.is_empty and not fills,
        naive_columns=before.naive_columns | _in_table(file.naive_columns, terms),
        utc_columns=before.utc_columns | _in_table(file.utc_columns, terms),
        markers_seen=before.markers_seen or file.marker is not None,
        takes_files=before.takes_files,
    )
