"""Read sessions of OneLake's table read API: one snapshot of a table as independent Arrow IPC streams."""

from __future__ import annotations

import io
import secrets
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mirror_engine.errors import MirrorError, UsageError
from mirror_engine.onelake.errors import ConnectionReset, TableApiError, TableErrorCode
from mirror_engine.tables.arrow_types import arrow_schema
from mirror_engine.tables.log.data_rows import scan
from mirror_engine.tables.log.snapshot import open_log

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from mirror_engine.clock import Clock
    from mirror_engine.onelake.item_tables import ItemTables
    from mirror_engine.tables.log.table_file import DataFile
    from mirror_engine.tables.log.table_path import TablePath

MEDIA_TYPE = "application/vnd.apache.arrow.stream"
SESSION_SECONDS = 60 * 60.0
STREAM_BYTES = 64 << 20  # of data files in one stream; Fabric's size is not documented
MAX_STREAMS = 10_000  # that are kept at once, and of one session; those of the oldest session go first
ALL = "*"


@dataclass(frozen=True)
class _Stream:
    """Part of a table's rows: data files of one version. The log is reopened for each read to save memory."""

    place: tuple[str, str, str]  # item, schema and table
    folder: TablePath
    table_id: str
    version: int
    files: Sequence[DataFile]
    names: Sequence[str]  # of the columns
    ends_at: float  # by the emulator's clock


class Reads:
    """The streams of all read sessions; thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._now = clock.monotonic
        self._streams: dict[str, _Stream] = {}  # by identifier, oldest first
        self._lock = threading.Lock()

    def begin(self, tables: ItemTables, place: tuple[str, str, str], options: Mapping[str, Any]) -> Sequence[str]:
        """Begin a session on a table's newest version, and return the identifiers of its streams, one at least.

        TableNotFound and its like, ColumnNotFound, BadRequest.
        """
        log = tables.log(*place[1:])
        names = _columns(options, log.schema.names)
        ends_at = self._now() + SESSION_SECONDS
        groups = [*_grouped(tables.files(log))] or [[]]
        made = {
            secrets.token_urlsafe(24): _Stream(place, log.folder, log.table_id, log.version, files, names, ends_at)
            for files in groups
        }
        with self._lock:
            for identifier in [each for each, stream in self._streams.items() if stream.ends_at <= self._now()]:
                del self._streams[identifier]
            while self._streams and len(self._streams) + len(made) > MAX_STREAMS:
                del self._streams[next(iter(self._streams))]
            self._streams.update(made)
        return [*made]

    def chunks(self, place: tuple[str, str, str], identifier: str) -> Iterator[bytes]:
        """The Arrow IPC stream of one part of a table.

        StreamNotFound, also after the session's end, and if VACUUM has deleted a file of its version. ConnectionReset
        if one is deleted or fails while it is read: the client sees that the stream is not whole.
        """
        with self._lock:
            stream = self._streams.get(identifier)
        if stream is None or stream.place != place or stream.ends_at <= self._now():
            raise TableApiError(TableErrorCode.StreamNotFound)
        try:
            log = open_log(stream.folder, stream.version)
        except UsageError:
            log = None  # its version is gone
        if log is None or log.table_id != stream.table_id:
            raise TableApiError(TableErrorCode.StreamNotFound)
        if not all(place.exists() for file in stream.files for place in file.places):
            message = "A data file of the session's version was deleted: begin another session."
            raise TableApiError(TableErrorCode.StreamNotFound, message)
        columns = {column.name: column for column in log.schema.columns}
        schema = arrow_schema(tuple(columns[name] for name in stream.names))
        return _whole(_ipc(schema, scan(log, stream.files, stream.names)))


def _columns(options: Mapping[str, Any], known: Sequence[str]) -> Sequence[str]:
    """The columns to return, in the order asked for, all of them by default or for `*`."""
    if unknown := options.keys() - {"columns"}:
        raise TableApiError(TableErrorCode.BadRequest, f"No such read option: {', '.join(sorted(unknown))}.")
    asked = options.get("columns", [ALL])
    asked = [asked] if asked == ALL else asked
    if not isinstance(asked, list) or not asked or not all(isinstance(name, str) for name in asked):
        raise TableApiError(TableErrorCode.BadRequest, "columns is not a list of column names.")
    names = dict.fromkeys(name for each in asked for name in (known if each == ALL else [each]))
    if not names.keys() <= set(known):
        raise TableApiError(TableErrorCode.ColumnNotFound)
    return [*names]


def _grouped(files: Sequence[DataFile]) -> Iterator[Sequence[DataFile]]:
    """Data files, in at most `MAX_STREAMS` groups, of `STREAM_BYTES` at least but for the last."""
    group: list[DataFile] = []
    size, least = 0, max(STREAM_BYTES, sum(file.size for file in files) // MAX_STREAMS + 1)
    for file in files:
        group.append(file)
        size += file.size
        if size >= least:
            yield group
            group, size = [], 0
    if group:
        yield group


def _whole(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Chunks of an answer that has begun; ConnectionReset where one cannot be read."""
    try:
        yield from chunks
    except MirrorError as error:
        raise ConnectionReset from error


def _ipc(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """An Arrow IPC stream, a batch at a time."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
            yield sink.getvalue()
            sink.seek(0)
            sink.truncate()
    yield sink.getvalue()
