"""Write change files to an Open Mirroring landing zone: each once, whole, in order. Needs pyarrow alone: copy it.

```
zone = LandingZone("https://onelake.dfs.fabric.microsoft.com/<workspace>/<item>/Files/LandingZone", partner="Acme.Sync")
with zone.table("Sales.Orders", keys=["id"]) as table:
    table.upsert(rows)                  # Arrow, pandas, polars, or dicts
    table.delete([{"id": 7}])
    table.flush(position=source_position)
```

The rules are those of the landing zone contract (`mirror-engine explain LZ-3.3`):

- A file gets the number after the newest one in the zone (LZ-3.2). Fabric moves applied files away, but never the
  newest (LZ-8.1).
- A file appears whole, and only if its name is free (LZ-3.10, LZ-3.13). A second publisher is noticed: `Conflict`.
- After a lost answer, the same file is sent again. The file in the zone decides whether it has landed.
- The source's position is kept in the change file itself: both are durable, or neither is.
- Every file has all columns, with the types of the first file (LZ-5.2). Rows that the mirror would reject or damage are
  `Refused`.
"""

from __future__ import annotations

import errno
import json
import os
import posixpath
import re
import shutil
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self
from urllib.parse import quote, unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


__all__ = ["Conflict", "Durable", "Files", "Folder", "LandingZone", "Refused", "Table"]

INSERT, UPDATE, DELETE, UPSERT = 0, 1, 2, 4
MARKER = "__rowMarker__"
FILE_BYTES = 64 * 1024 * 1024  # of Arrow data in one change file: about 1,000,000 narrow rows
SLICE_ROWS = 65_536  # converted at once
DICTS = 10_000  # converted at once
SMALLEST_BATCH = 4096  # bytes that a batch takes in memory, however few rows it has
DELETIONS = 10  # of a local folder, at most

_NUMBERED = re.compile(r"[0-9]{20}\.parquet", re.IGNORECASE)
_RESERVED = re.compile(  # by Spark, Delta and deltalake (LZ-5.12)
    "_metadata|_tmp_metadata_row_index|deletionvectorid|_(source|target)_row_present_|_row_dropped_"
    "|__delta_(rs|internal)_.*",
    re.DOTALL,
)
_UNREADABLE = re.compile("[\x00\ud800-\udfff]")
_UPLOADING = re.compile(r"_[0-9a-f]{32}\.uploading")
_ARCHIVES = ("_FilesReadyToDelete", "_ProcessedFiles")
_POSITION, _ROWS, _FORMER = b"publisher.position", b"publisher.rows", b"publisher.former"
_NEVER = "0001-01-01T00:00:00"  # the mirror's word for no time (LZ-9.2)
_NO_LINKS = {errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}  # of file systems without hard links

# Types that are landed as another one (LZ-5.8). Timestamps become microseconds in UTC, dictionaries their values
_LANDED_AS: dict[pa.DataType, pa.DataType] = {
    **{kind: kind for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.bool_())},
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    **dict.fromkeys((pa.string(), pa.large_string(), pa.string_view()), pa.string()),
    **dict.fromkeys((pa.binary(), pa.large_binary(), pa.binary_view()), pa.binary()),
    **dict.fromkeys((pa.date32(), pa.date64()), pa.date32()),
}
_UTC = pa.timestamp("us", tz="UTC")
_TEXT = "text in UTF-8"
_DAYS = range(-719_162, 2_932_897)  # of the years 1 to 9999, since 1970
_WORDS = {pa.bool_(): "boolean", pa.date32(): "date", _UTC: "timestamp"}  # where Arrow's name is another


class Refused(ValueError):
    """Rows that the mirror would reject or damage; `code` is what `mirror-engine validate` would report."""

    def __init__(self, place: str, code: str, message: str, help: str) -> None:
        super().__init__(f"{place}: {message} [{code}]\n  -> {help}")
        self.code = code


class Conflict(RuntimeError):
    """Another publisher landed files in this table. Open it again, and continue from its `position`."""

    def __init__(self, path: str, what: str) -> None:
        super().__init__(f"{path} was {what} by another publisher: open the table again, and go on from its position")


class Durable(NamedTuple):
    """Data in the landing zone that survives any crash of the publisher.

    Attributes:
        files: paths of the files that landed since the last `flush`, from the zone's top.
        rows: how many rows they have.
        position: the source's position in the newest file; all changes up to it have landed.
    """

    files: tuple[str, ...]
    rows: int
    position: Any


class Files(Protocol):
    """A landing zone's files by path from its top: `Orders/_metadata.json`. A client of another store has these four.

    Paths may lead to the folder beside the zone: `../Monitoring/tables.json`.
    """

    def list(self, folder: str) -> Sequence[str]:
        """Return the names of the files in a folder; none where it is absent."""

    def read(self, path: str) -> bytes:
        """Return a file's content; raises `FileNotFoundError`."""

    def create(self, path: str, content: bytes) -> None:
        """Write a file that appears whole or not at all; raises where the name is taken."""

    def delete(self, path: str) -> None:
        """Delete a file, or a folder with all in it; absent is no error."""


class LandingZone:
    """The landing zone of one mirrored database.

    Args:
        place: a folder; a URL in OneLake or ADLS Gen2 (`https://…/Files/LandingZone`, `abfss://…`); a
            `FileSystemClient` of azure-storage-file-datalake; a store of obstore (S3, GCS, Azure Blob Storage); or any
            `Files`.
        path: the zone's path in a client or store: `<item>/Files/LandingZone`.
        partner: who publishes, for `_partnerEvents.json` (LZ-1.8): one name in all mirrored databases.
        source: its `sourceInfo`, such as `{"sourceType": "SQLite"}`.
        credential: for a URL; by default that of `az login`, environment or managed identity.

    Raises:
        ValueError: a URL is not that of a landing zone.
    """

    def __init__(
        self,
        place: str | os.PathLike[str] | Any,  # noqa: ANN401 - clients of optional libraries
        path: str = "",
        *,
        partner: str = "",
        source: Mapping[str, object] | None = None,
        credential: Any = None,  # noqa: ANN401 - as Azure's libraries take it
    ) -> None:
        self.files = _files(place, path, credential)
        if partner:
            events = {"partnerName": partner, "sourceInfo": {"sourceType": "Custom", **(source or {})}}
            _ensure(self.files, "_partnerEvents.json", json.dumps(events, indent=2).encode())

    def table(
        self, name: str, *, keys: Sequence[str] = (), schema: pa.Schema | None = None, file_bytes: int = FILE_BYTES
    ) -> Table:
        """Open a table: its folder, `_metadata.json`, newest number and position. Only one publisher at a time.

        Args:
            name: `Sales.Orders` for the folder `Sales.schema/Orders`, or `Orders`.
            keys: key columns; without them the table takes inserts only.
            schema: its columns, where the first rows do not show all types.
            file_bytes: of Arrow data that a change file has at most.

        Raises:
            Refused: the folder has other keys (ME017), its newest file was deleted (ME073) or is not whole (ME024), or
                its columns have other types (ME044).
            ValueError: the mirror would ignore a table of this name.
        """
        if isinstance(keys, str):  # a sequence of letters
            raise TypeError(f'keys is text: give a list of columns, ["{keys}"]')
        return Table(self.files, name, keys, schema, file_bytes)

    def drop(self, name: str) -> None:
        """Delete a table's folder: the mirror drops the table (LZ-7.2). Needed before it gets other keys or types."""
        self.files.delete(_folder(name))


class _File(NamedTuple):
    """A change file under way. Its content is final: after a lost answer, other content would be a second file."""

    content: bytes
    position: str
    rows: int
    has_markers: bool


class Table:
    """One table of a landing zone. A context manager that flushes at the end, but not after an exception.

    Rows are kept in memory up to `file_bytes`, and landed as files by that and by `flush`. Rows of a call that raises
    may have been taken in part: leave the table, and go on from its `position`. Files that `flush` did not end have the
    former position, so their rows come again: publish changes as upserts and deletes, which may be repeated.
    """

    _position: str  # as JSON
    _rows: int | None  # in all files; None where that is not known
    _former: tuple[int, str]  # of a former table of this name: rows that the mirror had processed, and when
    _taken: list[pa.Table]
    _under_way: _File | None
    _landed: list[str]
    _landed_rows: int

    def __init__(self, files: Files, name: str, keys: Sequence[str], schema: pa.Schema | None, file_bytes: int) -> None:
        self.name, self.folder = name, _folder(name)
        self.keys = tuple(keys)
        self._files, self._file_bytes = files, file_bytes
        self._declared = schema or pa.schema([])
        self._open()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.flush()

    @property
    def position(self) -> Any:  # noqa: ANN401 - whatever JSON can hold
        """The position of the last `flush` that landed rows, also of an earlier process; None if there is none."""
        return json.loads(self._position)

    def insert(self, rows: Any) -> None:  # noqa: ANN401 - rows in many forms
        """Take rows of new keys: an initial load. A key that is there already would be there twice (LZ-4.3)."""
        self._take(rows, INSERT)

    def update(self, rows: Any) -> None:  # noqa: ANN401 - as above
        """Take full rows that replace those of their keys."""
        self._take(rows, UPDATE)

    def upsert(self, rows: Any) -> None:  # noqa: ANN401 - as above
        """Take full rows, of new keys or known ones."""
        self._take(rows, UPSERT)

    def delete(self, rows: Any) -> None:  # noqa: ANN401 - as above
        """Take keys of rows that are gone; other columns do not count. A new key is a delete and an upsert (LZ-4.7)."""
        self._take(rows, DELETE)

    def flush(self, position: Any = None) -> Durable:  # noqa: ANN401 - whatever JSON can hold
        """Land all rows taken so far. May be called again after an error: the same file is sent again, before new rows.

        Args:
            position: the source's, up to which all changes were taken: a number, text, list or dict. It is kept in the
                file, so it does not move without rows. The former one by default.

        Raises:
            Conflict: another publisher has landed files meanwhile.
        """
        given = None if position is None else json.dumps(position)
        self._send()
        if self._taken or (self._number == 0 and self._columns.schema.names):  # the first file may be empty (LZ-3.12)
            self._land(given)
        if self._landed:
            self._check_newest()
        durable = Durable(tuple(self._landed), self._landed_rows, self.position)
        self._landed, self._landed_rows = [], 0
        return durable

    def recreate(self) -> None:
        """Delete the folder and begin a new table with file 1, to load it again (LZ-7.3).

        Rows that were taken and not flushed are dropped. Fabric drops the former table after one to two minutes. After
        an error, such as 409 for a folder in use (LZ-7.5), call it again.
        """
        self._taken, self._under_way = [], None
        self._files.delete(self.folder)
        self._open()

    def wait(self, timeout: float = 600, every: float = 2) -> None:
        """Wait until Fabric, or the engine, has applied all that has landed; in seconds.

        The zone does not tell: the newest file stays in its folder. `Files/Monitoring/tables.json` counts the rows that
        were processed since the table began (LZ-9.2), and change files of this class count those that landed.

        The count of a former table of this name is known by its number and time. One case remains: the former table was
        deleted before all of its files were applied, the mirror still applies some, and their rows reach the number of
        this table's. To be certain, `wait` before `recreate` or `drop`.

        Raises:
            TimeoutError: it has not.
            RuntimeError: the table is halted, in the mirror's words; or its rows were not counted from the beginning.
        """
        if self._rows is None:
            why = (
                "files of another publisher are not counted, nor a table that began while tables.json could not be read"
            )
            raise RuntimeError(f"{self.name}: how many rows landed is unknown: {why}; recreate() counts anew")
        ends = time.monotonic() + timeout
        former_rows, former_time = self._former
        while self._number:
            rows, at, error = self._status()
            is_former = at in {"", former_time} or rows >= former_rows > self._rows
            if error and not is_former:
                raise RuntimeError(f"{self.name} is halted: {error}")
            if not is_former and rows >= self._rows and at != _NEVER:
                return
            if time.monotonic() >= ends:
                found = 0 if is_former else rows
                why = f": {error}" if error else ""
                raise TimeoutError(f"{self.name}: {found} of {self._rows} rows were processed after {timeout:g} s{why}")
            time.sleep(every)

    def _open(self) -> None:
        """Begin with an empty table, or continue after the newest file."""
        self._position = "null"
        self._number = 0  # of the newest file
        self._rows = 0
        self._former = 0, ""
        self._columns = _Columns(self.folder, self.keys, self._declared)
        self._has_markers = False
        self._taken, self._taken_bytes, self._under_way = [], 0, None
        self._landed, self._landed_rows = [], 0
        self._check_metadata()
        names = self._files.list(self.folder)
        self._leftovers = [name for name in names if _UPLOADING.fullmatch(name)]
        if newest := self._newest(names):
            self._number = int(newest[:20])
            self._resume(self._footer(f"{self.folder}/{newest}"))
            return
        try:
            self._former = self._status()[:2]
        except Exception:  # noqa: BLE001 - `wait` alone needs it, and says so
            self._rows = None

    def _resume(self, footer: pa.Schema) -> None:
        """Continue after a change file, from its schema and metadata."""
        about = footer.metadata or {}
        self._position = about.get(_POSITION, b"null").decode()
        self._rows = json.loads(about.get(_ROWS, b"null"))
        former_rows, former_time = json.loads(about.get(_FORMER, b'[0, ""]'))
        self._former = former_rows, former_time
        columns = pa.schema([each for each in footer if _folded(each.name) != _folded(MARKER)])
        self._has_markers = len(columns) < len(footer)
        self._columns = _Columns(self.folder, self.keys, columns)
        self._columns.declare(self._declared)

    def _footer(self, path: str) -> pa.Schema:
        content = self._files.read(path)
        try:
            return pq.read_schema(pa.BufferReader(content))
        except (pa.ArrowException, OSError):
            code, what = ("ME024", "file cannot be read: it is not whole") if content else ("ME023", "file is empty")
            raise Refused(path, code, what, "delete it, and open the table again: no row of it was applied") from None

    def _newest(self, names: Sequence[str]) -> str:
        """The highest number among a folder's names; empty without one.

        The mirror archives applied files, but never the newest (LZ-8.1). An archive beside an empty folder tells of a
        newest file that someone has deleted: a file with its number would never be read (ME022).
        """
        if found := [name for name in names if _NUMBERED.fullmatch(name)]:
            return max(found)
        if any(_NUMBERED.fullmatch(name) for at in _ARCHIVES for name in self._files.list(f"{self.folder}/{at}")):
            message = "the newest change file was deleted, so the next number is unknown"
            raise Refused(self.folder, "ME073", message, "restore it, or delete the folder and load the table again")
        return ""

    def _check_newest(self) -> None:
        """Raise `Conflict` unless the newest file of the folder is the one that this object knows.

        A free name alone proves nothing: another publisher's file may have had it, and be in the archive by now. The
        mirror would never read a second file of its number (LZ-3.4).
        """
        newest = self._newest(self._files.list(self.folder))
        if (number := int(newest[:20] or 0)) > self._number:
            raise Conflict(f"{self.folder}/{newest}", "landed")
        if number < self._number:
            raise Conflict(self.folder, "recreated")

    def _check_metadata(self) -> None:
        """Create `_metadata.json`, before any data; refuse one of another kind of table."""
        path = f"{self.folder}/_metadata.json"
        try:
            content = self._files.read(path)
        except FileNotFoundError:
            if not _create(self._files, path, json.dumps({"keyColumns": list(self.keys)}, indent=2).encode()):
                raise Conflict(path, "created") from None
            return
        try:
            found = {name.lower(): value for name, value in json.loads(content.decode("utf-8-sig")).items()}
        except (ValueError, AttributeError):
            raise Refused(path, "ME010", "invalid JSON", "correct it, or delete the table's folder") from None
        before = [key for key in found.get("keycolumns") or () if key]
        if set(map(_folded, before)) != set(map(_folded, self.keys)):
            changed = f"keyColumns changed from {', '.join(before) or 'none'} to {', '.join(self.keys) or 'none'}"
            raise Refused(path, "ME017", changed, "restore them, or drop() the table and load it again")
        ours = {
            "filedetectionstrategy": "sequentialfilename",
            "ispartitionenabled": "false",
            "fileformat": "parquet",
            "fileextension": "parquet",
        }
        other = [name for name, value in ours.items() if str(found.get(name, value)).lower().lstrip(".") != value]
        if "fileformat" not in found and "schemadefinition" in found:
            other.append("schemadefinition")  # it makes the files CSV (LZ-2.13)
        if other:
            raise ValueError(f"{path}: this publisher lands numbered Parquet, without partitions: see {other[0]}")

    def _take(self, rows: Any, marker: int) -> None:  # noqa: ANN401 - rows in many forms
        if marker != INSERT and not self.keys:
            message, help = f"row marker {marker} requires `keyColumns`", "declare `keys`, or send inserts only"
            raise Refused(self.folder, "ME038", message, help)
        for batch in self._batches(rows, marker):
            fitted = self._columns.fit(batch, marker)
            markers = pa.repeat(pa.scalar(marker, pa.int32()), len(batch))
            size = max(fitted.nbytes, SMALLEST_BATCH)
            if self._taken and self._taken_bytes + size > self._file_bytes:
                self._land()  # before the rows: the last ones stay for `flush` and its position
            self._taken.append(fitted.append_column(MARKER, markers))
            self._taken_bytes += size

    def _batches(self, rows: Any, marker: int) -> Iterator[pa.Table]:  # noqa: ANN401 - as above
        """Rows as small Arrow tables."""
        if type(rows).__module__.partition(".")[0] == "pandas":
            arrays = [self._columns.array(name, values) for name, values in rows.items()]
            rows = pa.Table.from_arrays(arrays, [*map(str, rows.columns)])
        elif isinstance(rows, pa.RecordBatch):
            rows = pa.Table.from_batches([rows])
        if hasattr(rows, "__arrow_c_stream__"):
            reader = pa.RecordBatchReader.from_stream(rows)
            for batch in reader:
                step = max(1, min(SLICE_ROWS, len(batch) * self._file_bytes // 8 // max(1, batch.nbytes)))
                for start in range(0, len(batch), step):
                    yield pa.Table.from_batches([batch.slice(start, step)])
            self._columns.declare(reader.schema, marker)  # which may have had no row
            return
        dicts, first = iter([rows] if isinstance(rows, Mapping) else rows), 1
        while chunk := list(islice(dicts, DICTS)):
            yield self._columns.table_of(chunk, marker, first)
            first += len(chunk)

    def _land(self, position: str | None = None) -> None:
        """Land the taken rows as the next file, with the former position by default."""
        self._send()
        self._check_newest()
        if not self._columns.schema.names:
            help = "give `schema`: every value so far is NULL"
            raise Refused(self.folder, "ME024", "no column has a type, and a table needs one", help)
        schema = self._columns.schema.append(pa.field(MARKER, pa.int32()))
        rows = pa.concat_tables([*self._taken, schema.empty_table()], promote_options="default")
        has_markers = self._has_markers or pc.any(pc.not_equal(rows.column(MARKER), INSERT)).as_py() or False
        position = self._position if position is None else position
        total = None if self._rows is None else self._rows + len(rows)
        about = {_POSITION: position, _ROWS: json.dumps(total), _FORMER: json.dumps(self._former)}
        # an initial load has no marker (LZ-4.13); elsewhere it is the last column (LZ-4.10)
        names = schema.names if has_markers else schema.names[:-1]
        with pa.BufferOutputStream() as stream:
            pq.write_table(rows.select(names).replace_schema_metadata(about), stream, compression="zstd")
            content = stream.getvalue().to_pybytes()
        self._under_way = _File(content, position, len(rows), has_markers)
        self._taken, self._taken_bytes = [], 0
        self._send()

    def _send(self) -> None:
        """Land the file under way; after an error, try again."""
        if (file := self._under_way) is None:
            return
        path = f"{self.folder}/{self._number + 1:020d}.parquet"
        if not _create(self._files, path, file.content):
            raise Conflict(path, "landed")
        self._under_way = None
        self._number += 1
        self._position, self._has_markers = file.position, file.has_markers
        self._rows = None if self._rows is None else self._rows + file.rows
        self._landed.append(path)
        self._landed_rows += file.rows
        while self._leftovers:  # of uploads that a crash has cut; until now they could be another publisher's
            with suppress(Exception):
                self._files.delete(f"{self.folder}/{self._leftovers.pop()}")

    def _status(self) -> tuple[int, str, str]:
        """Processed rows, time of the last sync and error by the mirror's `tables.json`; without it `0, "", ""`."""
        try:
            tables = json.loads(self._files.read("../Monitoring/tables.json"))["tables"]
        except (FileNotFoundError, ValueError, KeyError):  # or one that is just being written
            tables = []
        for each in tables:
            schema, name, metrics = each.get("sourceSchemaName"), each["sourceTableName"], each.get("metrics") or {}
            if _folded(f"{schema}.schema/{name}" if schema else name) == _folded(self.folder):
                rows, at = metrics.get("processedRowCount") or 0, metrics.get("lastSyncTimeUtc") or _NEVER
                return rows, at, each.get("errorMessage") or ""
        return 0, "", ""


class _Columns:
    """A table's columns: their types are those of the first file, for the whole life of the table (LZ-5.2)."""

    def __init__(self, place: str, keys: Sequence[str], declared: pa.Schema) -> None:
        self._place, self._keys = place, {_folded(key): key for key in keys}
        self.schema = pa.schema([])
        self.declare(declared)

    def declare(self, columns: pa.Schema, marker: int = INSERT) -> None:
        """Add columns before rows have them; raises `Refused` for other types than those of the table."""
        if columns.names:
            self.fit(columns.empty_table(), DELETE if marker == DELETE else INSERT)

    def array(self, name: str, values: Any, first: int = 1) -> pa.Array:  # noqa: ANN401 - a list, or a pandas Series
        """Infer the type of values; raises `Refused` with a message of its own, because Arrow's may quote a value."""
        self._check_name(str(name))
        try:
            return pa.array(values)
        except UnicodeEncodeError:
            row = next(row for row, value in enumerate(values, first) if not _is_text(value))
            message, help = f"value in column `{name}` is not {_TEXT}", "it has half a character, a lone surrogate"
            raise Refused(f"{self._place}, row {row}", "ME060", message, help) from None
        except (pa.ArrowException, OverflowError):
            kind = next((field.type for field in self.schema if _folded(field.name) == _folded(str(name))), None)
            raise self._other_type(name, "of several types", kind or "no such column") from None

    def table_of(self, rows: list[Mapping[str, Any]], marker: int, first: int) -> pa.Table:
        """Dicts as an Arrow table; numbers get the column's width if they fit, as Python's have none."""
        names = dict.fromkeys(name for row in rows for name in row)
        if marker in {UPDATE, UPSERT}:
            self._refuse_partial([name for name in names if any(name not in row for row in rows)])
        known = {_folded(field.name): field.type for field in self.schema}
        columns: dict[str, pa.Array] = {}
        for name in names:
            values, kind = [row.get(name) for row in rows], known.get(_folded(name))
            found = columns[name] = self.array(name, values, first)
            if kind is not None and kind != found.type and _are_numbers(kind, found.type):
                is_decimal = pa.types.is_decimal(kind)  # integers are cast to no narrow one; floats lose digits
                try:
                    columns[name] = pa.array(values, kind) if is_decimal else _as_number(found, kind)
                except (pa.ArrowException, OverflowError):
                    raise self._other_type(name, found.type, kind) from None
        return pa.table(columns)

    def fit(self, batch: pa.Table, marker: int) -> pa.Table:
        """Rows in the table's columns and types; new columns become columns of the table (LZ-5.3), if none is refused.

        Raises:
            Refused: ME018, ME036, ME040, ME041, ME044, ME049, ME053, ME060, ME084.
        """
        given = self._given(batch)
        if marker == DELETE:  # only the keys of such rows are read (LZ-4.6)
            given = {low: at for low, at in given.items() if low in self._keys}
        known = {_folded(name): name for name in self.schema.names}
        if marker in {UPDATE, UPSERT}:
            self._refuse_partial([name for low, name in known.items() if low not in given])
        new = [self._landed(batch.schema.field(at)) for low, at in given.items() if low not in known]
        schema = pa.schema([*self.schema, *filter(None, new)])
        self._refuse_null_keys(batch, given)
        columns = [self._column(batch, given.get(_folded(field.name)), field.type) for field in schema]
        self.schema = schema
        return pa.table(columns, schema=schema) if columns else batch.select([])

    def _given(self, batch: pa.Table) -> dict[str, int]:
        """Return column positions by folded name (LZ-5.7), after a check that the key is among them (LZ-2.11)."""
        names, given = batch.schema.names, dict[str, int]()
        for at, name in enumerate(names):
            self._check_name(name)
            first = names[given.setdefault(_folded(name), at)]
            if first != name:
                how = f"columns `{first}` and `{name}` of one file differ only in case"
                raise self._refused("ME053", how, "rename one")
            if given[_folded(name)] != at:
                raise self._refused("ME053", f"two columns of the file have the name `{name}`", "rename one")
        if missing := [key for low, key in self._keys.items() if low not in given]:
            message = f"key column `{missing[0]}` is missing"
            raise self._refused("ME018", message, "add it to the rows, or correct `keys`")
        return given

    def _check_name(self, name: str) -> None:
        if _folded(name) == _folded(MARKER):
            help = "leave it out: insert, update, upsert and delete say what a row is"
            raise self._refused("ME036", f"the rows have a column `{name}` of their own", help)
        if reason := _fault_of(name):
            shown = name.encode(errors="backslashreplace").decode()
            message = f"no table can have a column `{shown}`: {reason}"
            raise self._refused("ME084", message, "rename it at the source")

    def _landed(self, field: pa.Field) -> pa.Field | None:
        """A new column as it is landed; None for one without a type, which comes with rows that show it (LZ-5.9)."""
        kind = _landed_as(field.type)
        if kind is None:
            message = f"column `{field.name}` has unsupported type {field.type}"
            raise self._refused("ME049", message, "cast it, or write it as JSON text")
        return None if kind == pa.null() else pa.field(field.name, kind)

    def _column(self, batch: pa.Table, at: int | None, wanted: pa.DataType) -> pa.Array | pa.ChunkedArray:
        """One column as the table has it: NULLs where the rows do not have it."""
        if at is None:
            return pa.nulls(len(batch), wanted)
        found, column = _landed_as(batch.schema.types[at]), batch.column(at)
        if found not in {wanted, pa.null()}:
            raise self._other_type(batch.schema.names[at], found or batch.schema.types[at], wanted)
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if pa.types.is_timestamp(column.type) and column.type.unit == "ns":  # cut as the mirror does
            column = pc.floor_temporal(column.cast(pa.timestamp("ns")), unit="microsecond")
        try:
            landed = pc.cast(column, wanted)
        except pa.ArrowInvalid:  # its text quotes the value
            message = f"column `{batch.schema.names[at]}` has a value out of the range of {_word(wanted)}"
            raise self._refused("ME044", message, "correct it at the source") from None
        if expected := _fault_of_values(landed):
            message = f"value in column `{batch.schema.names[at]}` is not {expected}"
            raise self._refused("ME060", message, "correct it at the source")
        return landed

    def _refuse_null_keys(self, batch: pa.Table, given: Mapping[str, int]) -> None:
        for low, key in self._keys.items():
            if count := batch.column(given[low]).null_count:
                rows = "1 row" if count == 1 else f"{count} rows"
                message = f"{rows} with NULL in key column `{key}`; NULL matches nothing"
                raise self._refused("ME040", message, "give every row a key")

    def _refuse_partial(self, missing: Sequence[str]) -> None:
        if missing:
            message = f"updates omit {', '.join(missing)}; written as NULL"
            help = "send full rows, None where a value is NULL: an update replaces the whole row"
            raise self._refused("ME041", message, help)

    def _other_type(self, name: str, found: pa.DataType | str, wanted: pa.DataType | str) -> Refused:
        message = f"column `{name}` is {_word(found)}, the table has {_word(wanted)}"
        return self._refused("ME044", message, "send the first type, or drop() the table and load it again")

    def _refused(self, code: str, message: str, help: str) -> Refused:
        return Refused(self._place, code, message, help)


def _folder(table: str) -> str:
    """A table's folder (LZ-1.3); raises `ValueError` for a name of none (LZ-1.6)."""
    schema, dot, name = table.partition(".")
    if "/" in table or any(part[:1] in {"", "_", "."} for part in ((schema, name) if dot else (table,))):
        raise ValueError(f"`{table}` names no table: write Sales.Orders or Orders, no part with `/` or a leading `_`")
    return f"{schema}.schema/{name}" if dot else table


def _folded(name: str) -> str:
    """A name as the mirror compares it: ignoring case letter by letter, so `ß` is not `ss` (LZ-5.7)."""
    return "".join((upper if len(upper := letter.upper()) == 1 else letter).lower()[0] for letter in name)


def _fault_of(name: str) -> str:
    """Why no table can have a column of this name (LZ-5.12); empty where one can."""
    if not name:
        return "it is empty"
    if _UNREADABLE.search(name):
        return "readers cannot open a table with it"
    return "Spark and Delta reserve it" if _RESERVED.fullmatch(_folded(name)) else ""


def _fault_of_values(values: pa.ChunkedArray) -> str:
    """What is wrong with a column's values, so that the mirror would reject it; empty if nothing is."""
    if pa.types.is_string(values.type):
        try:
            values.validate(full=True)
        except pa.ArrowInvalid:
            return _TEXT
    if pa.types.is_temporal(values.type):
        days = pc.min_max(values.cast(pa.date32()).cast(pa.int32()))
        if days["min"].is_valid and not (days["min"].as_py() in _DAYS and days["max"].as_py() in _DAYS):
            return f"a {'date' if pa.types.is_date(values.type) else 'time'} in the years 1 to 9999"
    return ""


def _is_text(value: object) -> bool:
    try:
        pa.array([value])
    except UnicodeEncodeError:
        return False
    return True


def _landed_as(kind: pa.DataType) -> pa.DataType | None:
    """The type of a landed column; None where a mirrored table has none (LZ-5.8)."""
    if pa.types.is_dictionary(kind):
        return _landed_as(kind.value_type)
    if pa.types.is_timestamp(kind):
        return _UTC
    if pa.types.is_decimal(kind) and kind.precision <= 38 and kind.scale >= 0:  # noqa: PLR2004 - digits that Delta has
        return pa.decimal128(kind.precision, kind.scale)
    return kind if pa.types.is_null(kind) else _LANDED_AS.get(kind)


def _are_numbers(*kinds: pa.DataType) -> bool:
    """Whether values of one type may be written as the other where they fit: Python's numbers have no width."""
    return all(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind) for kind in kinds)


def _as_number(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Numbers as another type; raises `ArrowInvalid` if one does not fit. Arrow makes infinity of large ones."""
    found = values.cast(kind)
    if (
        pa.types.is_floating(kind)
        and pa.types.is_floating(values.type)
        and not pc.is_inf(values).equals(pc.is_inf(found))
    ):
        raise pa.ArrowInvalid
    return found


def _word(kind: pa.DataType | str) -> str:
    """A type as `mirror-engine validate` spells it."""
    if isinstance(kind, pa.DataType) and pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return kind if isinstance(kind, str) else _WORDS.get(kind, str(kind))


def _create(files: Files, path: str, content: bytes) -> bool:
    """Create a file; False where another one has the name. After an error, what is there decides."""
    try:
        files.create(path, content)
    except Exception:
        try:
            return files.read(path) == content  # the answer was lost, or the name is another publisher's
        except FileNotFoundError:
            pass
        raise
    return True


def _ensure(files: Files, path: str, content: bytes) -> None:
    """Ensure that a small file with this content exists."""
    with suppress(FileNotFoundError):
        if files.read(path) == content:
            return
        files.delete(path)
    _create(files, path, content)


class Folder:
    """A landing zone in a local folder: written under a temporary name, flushed to disk, then renamed.

    The file system must have hard links: by them a file gets a name only if it is free.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def list(self, folder: str = "") -> list[str]:
        """Return the names in a folder, sorted; empty where there is no such folder."""
        place = self.path / folder
        return sorted(entry.name for entry in place.iterdir()) if place.is_dir() else []

    def read(self, path: str) -> bytes:
        """Return a file's content; raises `FileNotFoundError`."""
        return (self.path / path).read_bytes()

    def create(self, path: str, content: bytes) -> None:
        """Write a file that appears whole or not at all; raises `FileExistsError`."""
        temporary = _temporary(path)
        try:
            self.write(temporary, content)
            self.rename(temporary, path)
        except Exception:
            with suppress(OSError):
                self.delete(temporary)
            raise

    def write(self, path: str, content: bytes) -> None:
        """Write a file; folders are created, an existing file is overwritten."""
        with self._target(path).open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

    def rename(self, source: str, target: str) -> None:
        """Rename a file; raises `FileExistsError` where the target exists, as with `If-None-Match: *`."""
        place = self._target(target)
        try:
            os.link(self.path / source, place)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            at = next(each for each in place.absolute().parents if each.is_mount())
            raise OSError(error.errno, f"the file system at {at} has no hard links: use another", str(place)) from None
        (self.path / source).unlink()
        _sync(place.parent)

    def delete(self, path: str) -> None:
        """Delete a file, or a folder with all in it; absent is no error."""
        place, gone = self.path / path, self.path / _temporary(path)
        if place.is_dir():
            place.rename(gone)  # at once: a crash must not leave a folder without its newest number
        for each in filter(Path.is_dir, place.parent.glob("_*.uploading")):  # others were left by a crash
            shutil.rmtree(each, ignore_errors=True)
        for attempt in range(DELETIONS):  # the mirror may move files there at the same time
            for each in filter(Path.is_dir, (gone, place)):
                shutil.rmtree(each, ignore_errors=attempt < DELETIONS - 1)
        place.unlink(missing_ok=True)

    def _target(self, path: str) -> Path:
        target = self.path / path
        missing = [folder for folder in target.parents if not folder.exists()]
        target.parent.mkdir(parents=True, exist_ok=True)
        for folder in missing:
            _sync(folder.parent)
        return target


def _sync(folder: Path) -> None:
    """Flush a folder's names to disk."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


class _Datalake:
    """A landing zone in OneLake or ADLS Gen2, by a `FileSystemClient`: uploaded, then renamed if the name is free."""

    def __init__(self, client: Any, zone: str) -> None:  # noqa: ANN401 - of an optional library
        self._client, self._zone = client, zone

    def list(self, folder: str) -> list[str]:
        try:
            found = list(self._client.get_paths(self._at(folder), recursive=False))
        except Exception as error:
            if not _is_absent(error):
                raise
            return []
        return [path.name.rpartition("/")[2] for path in found if not path.is_directory]

    def read(self, path: str) -> bytes:
        try:
            return bytes(self._client.get_file_client(self._at(path)).download_file().readall())
        except Exception as error:
            if not _is_absent(error):
                raise
            raise FileNotFoundError(path) from None

    def create(self, path: str, content: bytes) -> None:
        from azure.core import MatchConditions  # noqa: PLC0415 - an optional library

        temporary, target = _temporary(path), f"{self._client.file_system_name}/{self._at(path)}"
        source = self._client.get_file_client(quote(self._at(temporary)))  # the rename alone unquotes its path
        try:
            self._client.get_file_client(self._at(temporary)).upload_data(content, overwrite=True)
            source.rename_file(target, match_condition=MatchConditions.IfMissing)
        except Exception:
            with suppress(Exception):
                self.delete(temporary)
            raise

    def delete(self, path: str) -> None:
        try:
            self._client.get_directory_client(self._at(path)).delete_directory()
        except Exception as error:
            if not _is_absent(error):
                raise

    def _at(self, path: str) -> str:
        return posixpath.normpath(posixpath.join(self._zone, path))


class _Objects:
    """A landing zone in a bucket or container, by a store of obstore: one conditional PUT."""

    def __init__(self, store: Any, zone: str) -> None:  # noqa: ANN401 - of an optional library
        self._store, self._zone = store, zone

    def list(self, folder: str) -> list[str]:
        found = self._store.list_with_delimiter(self._at(folder))["objects"]
        return [each["path"].rpartition("/")[2] for each in found]

    def read(self, path: str) -> bytes:
        return bytes(self._store.get(self._at(path)).bytes())

    def create(self, path: str, content: bytes) -> None:
        self._store.put(self._at(path), content, mode="create", use_multipart=False)

    def delete(self, path: str) -> None:
        below = [each["path"] for page in self._store.list(self._at(path)) for each in page]
        below.sort(key=lambda each: (posixpath.dirname(each) == self._at(path), each))  # archives first, newest last
        for each in below or [self._at(path)]:
            with suppress(FileNotFoundError):
                self._store.delete(each)
        if below and self._is_folder(path):
            message = f"{path}: the store keeps an empty folder, which would be no new table (LZ-7.3)"
            raise NotImplementedError(f"{message}: pass a local folder, a URL, or a FileSystemClient")

    def _is_folder(self, path: str) -> bool:
        """Whether there is a folder without a file in it: on a disk as a prefix, in ADLS Gen2 as an object."""
        if self._at(path) in self._store.list_with_delimiter(posixpath.dirname(self._at(path)))["common_prefixes"]:
            return True
        try:
            self._store.head(self._at(path))
        except FileNotFoundError:
            return False
        return True

    def _at(self, path: str) -> str:
        return posixpath.normpath(posixpath.join(self._zone, path))


def _is_absent(error: Exception) -> bool:
    """Whether an error of Azure's libraries says that a path is absent."""
    return getattr(error, "status_code", None) == 404  # noqa: PLR2004 - HTTP's


def _temporary(path: str) -> str:
    """A name beside a file that no mirror reads (LZ-3.9), and no other publisher writes.

    One that a crash leaves is harmless, and deleted once a later publisher has landed a file in the folder.
    """
    return posixpath.join(posixpath.dirname(path), f"_{uuid.uuid4().hex}.uploading")


def _files(place: Any, path: str, credential: Any) -> Files:  # noqa: ANN401 - clients of optional libraries
    """Make the client of a landing zone's files."""
    if isinstance(place, str) and "://" in place:
        return _by_url(place, credential)
    if isinstance(place, str | os.PathLike):
        return Folder(place)
    if hasattr(place, "get_file_client"):
        return _Datalake(place, path)
    if hasattr(place, "list_with_delimiter"):
        return _Objects(place, path)
    found: Files = place
    return found


def _by_url(url: str, credential: Any) -> Files:  # noqa: ANN401 - as Azure's libraries take it
    parts = urlsplit(url)
    if parts.scheme not in {"https", "http", "abfss"}:
        raise ValueError(f"{parts.scheme}: not OneLake or ADLS Gen2; for other stores, pass a store of obstore")
    container, _, zone = unquote(parts.path).strip("/").partition("/")
    host = parts.netloc
    if parts.scheme == "abfss":
        (container, _, host), zone = parts.netloc.partition("@"), unquote(parts.path).strip("/")
    if not zone.endswith("LandingZone"):
        raise ValueError("the URL is not that of a landing zone, which ends in /Files/LandingZone")
    from azure.identity import DefaultAzureCredential  # noqa: PLC0415 - an optional library
    from azure.storage.filedatalake import FileSystemClient  # noqa: PLC0415 - likewise

    address = f"{'http' if parts.scheme == 'http' else 'https'}://{host}"
    return _Datalake(FileSystemClient(address, container, credential or DefaultAzureCredential()), zone)
