"""Tells why a row is what it is: every change to its key in order, what each met and did, and where it went."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, DecimalException
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from typing_extensions import assert_never

from mirror_engine.errors import UsageError
from mirror_engine.landing_zone.change import MARKER_COLUMN, Change, RowMarker, replay, same_rows
from mirror_engine.landing_zone.change import comparable as comparable_value
from mirror_engine.landing_zone.csv_values import CellFault, integer, parser, timestamp
from mirror_engine.landing_zone.schema import folded
from mirror_engine.publisher.trace.replay import (
    AT_THE_BEGINNING,
    ReplayStart,
    beginning_of,
    read_unapplied,
    replay_table,
    standing,
)
from mirror_engine.tables.arrow_types import arrow_schema, delta_type
from mirror_engine.tables.changes.net_changes import comparable
from mirror_engine.tables.merge.memory import MemoryDeltaWriter
from mirror_engine.tables.reading.spill import ReadMode

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from mirror_engine.monitoring.status import FileStatus
    from mirror_engine.publisher.trace.replay import TraceContext
    from mirror_engine.tables.base import BatchRecord, ChangeBatch, FileRows, Outcome

Row: TypeAlias = dict[str, Any]


def plain_rows(rows: pa.RecordBatch) -> list[Row]:
    """Rows as dicts; a point in time beyond Python's is told as text."""
    columns = [[_plain(cell) for cell in column] for column in rows.columns]
    return [dict(zip(rows.schema.names, values, strict=True)) for values in zip(*columns, strict=True)]


def changed_columns(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, ...]:
    """Columns whose values differ; one that is lacking is NULL."""
    names = dict.fromkeys((*before, *after))
    return tuple(name for name in names if comparable_value(before.get(name)) != comparable_value(after.get(name)))


def _plain(cell: pa.Scalar[Any]) -> object:
    try:
        return cell.as_py()
    except (ValueError, OverflowError):
        return str(cell.value)


ROW_COLUMN = "__row__"  # where a row stands in its file, from 1; before the marker


@dataclass(frozen=True)
class KeyChange:
    """One change to the key.

    Attributes:
        file: by path from the table folder.
        row: its place in the file, from 1, the header not counted.
        marker: the effective one.
        has_marker: whether the file has a marker column.
        before, after: the rows of the key, before and after it, over all columns known at that time.
    """

    file: str
    row: int
    marker: RowMarker
    has_marker: bool
    before: tuple[Row, ...]
    after: tuple[Row, ...]


def one_key(key: KeyFilter) -> ReadMode:
    """Keep only the rows of one key: however large the table is, few stay in memory."""
    return ReadMode(lambda schema, _keys: OneKeyRows(schema, key))


class OneKeyRows:
    """A `RowStore` of the rows of one key, each with its place in the file."""

    def __init__(self, schema: pa.Schema, key: KeyFilter) -> None:
        self.schema = schema.insert(len(schema) - 1, pa.field(ROW_COLUMN, pa.int64()))
        self._key = key
        self._rows: list[pa.RecordBatch] = []
        self._count = 0

    def add(self, batch: pa.RecordBatch) -> None:
        hits = self._key.rows_of(batch)
        places = pa.array(np.arange(self._count + 1, self._count + batch.num_rows + 1))
        self._count += batch.num_rows
        cells = [*batch.columns[:-1], places, batch.columns[-1]]
        rows = pa.RecordBatch.from_arrays(cells, schema=self.schema).filter(hits)
        if rows.num_rows:
            self._rows.append(rows)

    def finish(self) -> None:
        """Nothing is open."""

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        for batch in self._rows:
            yield batch if columns is None else batch.select(list(columns))

    def close(self) -> None:
        self._rows = []


class OneKeyWriter(MemoryDeltaWriter):
    """`DeltaWriter` of the rows of one key, fed by a `one_key`; each change is held to `replay` by itself.

    Attributes:
        changes: all that were applied, in order.
        first: the rows it had before them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.changes: list[KeyChange] = []
        self.first: tuple[Row, ...] = ()
        self._now: tuple[Row, ...] = ()

    def apply(self, table: str, batch: ChangeBatch, record: BatchRecord) -> Outcome:
        """See `DeltaWriter`."""
        for file in batch.files:
            self._now = tuple({name: row.get(name) for name in batch.schema.names} for row in self._now)
            told = list(_told(self._now, file, batch))
            if told:
                self._now = told[-1].after
            if file.path == AT_THE_BEGINNING:
                self.first = self._now
            else:
                self.changes += told
        return super().apply(table, batch, record)

    def row_count(self, table: str) -> int | None:  # noqa: ARG002 - whichever it is
        """Never known: only one key's rows are here, and a table without them need not be empty (LZ-5.5)."""
        return None


def _told(now: tuple[Row, ...], file: FileRows, batch: ChangeBatch) -> Iterator[KeyChange]:
    for rows in file.rows.batches():
        for found in plain_rows(rows):
            marker = RowMarker(found[MARKER_COLUMN])
            row = {name: found.get(name) for name in batch.schema.names}
            change = Change(marker, tuple(row[name] for name in batch.key_columns), row)
            after, _ = replay(now, [change], batch.key_columns)
            yield KeyChange(file.path, found[ROW_COLUMN], marker, file.has_marker, now, tuple(after))
            now = tuple(after)


class KeyFilter:
    """A key as it was written, found in rows of any schema that has its columns.

    Attributes:
        texts: by key column, as `_metadata.json` spells it.
    """

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.texts = dict(texts)
        self._values: dict[tuple[str, pa.DataType], pa.ChunkedArray[Any]] = {}

    @classmethod
    def parse(
        cls, given: Sequence[str], table: str, key_columns: Sequence[str], columns: Collection[str] = ()
    ) -> KeyFilter:
        """Read `--key` as it was given, once for each column; a single key needs no name and may hold `=`.

        Args:
            given: as it stands on the command line.
            table: its name, for messages.
            key_columns: as the metadata declares them.
            columns: all that the table is known to have; what stands before `=` may be one of them by mistake.

        Raises:
            UsageError: a column is no key column, or one is missing.
        """
        if not key_columns:
            raise UsageError(
                f"{table}: has no keyColumns, so that no row can be told from another",
                "Trace a file instead: --file NAME; or look at all rows: mirror-engine show.",
            )
        known = {folded(name): name for name in key_columns}
        others = {folded(name) for name in columns} - set(known)
        help = f"The key is {', '.join(key_columns)}: {' '.join(f'--key {name}=…' for name in key_columns)}"
        texts: dict[str, str] = {}
        for text in given:
            name, has_name, value = text.partition("=")
            if len(known) == 1 and folded(name) not in ({*known, *others} if has_name else ()):
                name, has_name, value = key_columns[0], "=", text
            column = known.get(folded(name))
            if column is None or column in texts:
                fault = "named twice" if column else "is not a key column" if has_name else "names no column"
                raise UsageError(f"--key {text}: {name if has_name else text} {fault} of {table}", help)
            texts[column] = value
        if lacking := [name for name in key_columns if name not in texts]:
            raise UsageError(f"--key: {', '.join(lacking)} of {table} is not given", help)
        return cls({name: texts[name] for name in key_columns})

    def rows_of(self, batch: pa.RecordBatch) -> pa.Array[Any]:
        """Which rows have the key, as booleans; rows with NULL in it, or without a column of it, never do (LZ-4.8).

        Raises:
            UsageError: a value is none of its column's type.
        """
        found: pa.Array[Any] = pa.array(np.ones(batch.num_rows, dtype=np.bool_))
        columns = {folded(name): name for name in batch.schema.names}
        for name, text in self.texts.items():
            if folded(name) not in columns:
                return pa.array(np.zeros(batch.num_rows, dtype=np.bool_))
            cells = batch.column(columns[folded(name)])
            wanted = self._value(name, text, cells.type)
            same = pc.equal(comparable(pa.chunked_array([cells])).combine_chunks(), wanted[0])
            found = pc.and_(found, pc.fill_null(same, False))
        return found

    def _value(self, name: str, text: str, kind: pa.DataType) -> pa.ChunkedArray[Any]:
        if (name, kind) not in self._values:
            self._values[name, kind] = comparable(pa.chunked_array([_parsed(name, text, kind)]))
        return self._values[name, kind]


def _parsed(name: str, text: str, kind: pa.DataType) -> pa.Array[Any]:
    """One value in a column's type, by the rules of delimited text (LZ-6.9)."""
    word = delta_type(kind) or str(kind)
    try:
        return pa.array([_plain_wanted_key(text, word)], kind)
    except (CellFault, pa.ArrowException, DecimalException, OverflowError):
        raise UsageError(f"--key {name}={text}: no value of type {word}", f"Key column {name} is {word}.") from None


def _plain_wanted_key(text: str, word: str) -> object:
    if word.startswith("decimal"):
        return Decimal(text)
    if word == "byte":
        return integer(text, 8)
    if word == "timestamp_ntz":
        return timestamp(text).replace(tzinfo=None)
    return parser(word)(text)


Did = Literal["inserted", "updated", "deleted", "nothing"]
# what a change most likely did to rows that nobody knows
_UNSEEN: dict[RowMarker, Did] = {
    RowMarker.INSERT: "inserted",
    RowMarker.UPDATE: "updated",
    RowMarker.DELETE: "deleted",
    RowMarker.UPSERT: "updated",
}


@dataclass(frozen=True)
class TracedChange:
    """One change to the key, and what became of it.

    Attributes:
        change: the change itself.
        is_known: whether it is known what it met; where old files are gone, it may not be.
        did: `nothing` where the rows are the same as before.
        why: what it met, where that is not what its marker expects, or why it did nothing; `""` otherwise.
        columns: those whose values it changed.
        version: the Delta version its file went into; None where it is in none, or that is not known any more.
        batch: the files that went into that commit, its own among them.
        waits: why its file is not in the table yet; `""` for one that is.
    """

    change: KeyChange
    is_known: bool
    did: Did
    why: str
    columns: tuple[str, ...]
    version: int | None
    batch: tuple[str, ...]
    waits: str


@dataclass(frozen=True)
class Unread:
    """A file the table cannot read.

    Attributes:
        path: from the table folder.
        state: `waiting` or `refused`.
        why: so.
        rows: places in it of rows with the key, each with its marker; None where they cannot be told.
    """

    path: str
    state: str
    why: str
    rows: tuple[tuple[int, RowMarker], ...] | None


@dataclass(frozen=True)
class RowHistory:
    """Everything there is to say about one key.

    Attributes:
        key: its values as given, by column.
        beginning: where the replay begins, if not at the first file.
        first: the rows the key had there.
        changes: in order.
        unread: files the table cannot read, each with its reason and the changes to the key that wait in it.
        overwritten: files of these changes whose content is another than the one that was applied.
        end: the key's rows after all changes.
        applied: the key's rows after the changes that are in the table.
        real: the key's rows in the Delta table; None where there is no table.
    """

    key: Mapping[str, str]
    beginning: ReplayStart | None
    first: tuple[Row, ...]
    changes: tuple[TracedChange, ...]
    unread: tuple[Unread, ...]
    overwritten: tuple[str, ...]
    end: tuple[Row, ...]
    applied: tuple[Row, ...]
    real: tuple[Row, ...] | None

    @property
    def is_known(self) -> bool:
        """Whether the row the replay begins with is known."""
        return self.beginning is None or self.beginning.rows is not None

    @property
    def agrees(self) -> bool | None:
        """Whether the Delta table has what the replay has; None where there is nothing to compare."""
        return same_rows(self.applied, self.real) if self.is_known and self.real is not None else None


def trace_key(scene: TraceContext, given: Sequence[str]) -> RowHistory:
    """Replay the changes to one key.

    Args:
        scene: the table.
        given: the key, as `KeyFilter.parse` takes it.

    Raises:
        UsageError: the key is none of this table's.
        TransientError: something could not be read for a while.
    """
    known = _columns_of(scene)
    key = KeyFilter.parse(given, scene.name.normalized, scene.key_columns, known.names)
    key.rows_of(pa.RecordBatch.from_pylist([], known))  # a key that no row can have is refused before all is read
    writer, beginning = OneKeyWriter(), beginning_of(scene, key.rows_of)
    replayed = replay_table(scene, beginning, writer, one_key(key))
    changes = tuple(_traced_all(writer.changes, scene, beginning))
    is_applied = [change.waits == "" for change in changes]
    files = dict.fromkeys(change.file for change in writer.changes)
    last = len(changes) - is_applied[::-1].index(True) if any(is_applied) else 0
    return RowHistory(
        key=key.texts,
        beginning=beginning,
        first=writer.first,
        changes=changes,
        unread=tuple(_unread(file, scene, writer, key) for file in replayed.pending_files),
        overwritten=tuple(path for path in files if path in scene.overwritten),
        end=changes[-1].change.after if changes else writer.first,
        applied=changes[last - 1].change.after if last else writer.first,
        real=_real(scene, key),
    )


def _columns_of(scene: TraceContext) -> pa.Schema:
    """The Delta table's columns, or those declared; none where neither tells them."""
    state = scene.context.writer.state(scene.status.delta_folder) if scene.commits else None
    declared = scene.metadata.declared_columns if scene.metadata else ()
    return arrow_schema(state.schema.columns if state else declared)


def _traced_all(
    changes: Iterable[KeyChange], scene: TraceContext, beginning: ReplayStart | None
) -> Iterator[TracedChange]:
    """All changes; what the first of them met is only known where the beginning is, up to one that leaves no doubt."""
    is_known = beginning is None or beginning.rows is not None
    for change in changes:
        yield _traced(change, scene, is_known=is_known)
        is_known = is_known or change.marker is not RowMarker.INSERT


def _traced(change: KeyChange, scene: TraceContext, *, is_known: bool) -> TracedChange:
    file = scene.files.get(change.file)
    did, why = _effect(change) if is_known else (_UNSEEN[change.marker], "what it met is not known")
    columns = _columns(change) if did == "updated" and is_known else ()
    return TracedChange(
        change=change,
        is_known=is_known,
        did=did,
        why=why,
        columns=columns,
        version=file.delta_version if file else None,
        batch=scene.batch_of(change.file),
        waits=_waits(file),
    )


def _waits(file: FileStatus | None) -> str:
    """Why what a file holds is not in the table; `""` where it is."""
    if file is None:
        return "it was moved away, and the table never held it"
    return "" if file.state == "applied" else file.reason


def _columns(change: KeyChange) -> tuple[str, ...]:
    found = (changed_columns(before, after) for before, after in zip(change.before, change.after, strict=True))
    return tuple(dict.fromkeys(name for names in found for name in names))


def _effect(change: KeyChange) -> tuple[Did, str]:
    """What a change did, and why it did nothing or not what its marker says (LZ-4.1, LZ-4.3, LZ-4.4)."""
    met = len(change.before)
    match change.marker:
        case RowMarker.INSERT:
            return "inserted", f"a marker 0 never replaces: {_rows(met + 1)} have this key now [ME039]" if met else ""
        case RowMarker.UPDATE | RowMarker.UPSERT:
            if not met:
                return "inserted", "no row had the key" if change.marker is RowMarker.UPDATE else ""
            if same_rows(change.before, change.after):
                return "nothing", "the row had these values already"
            return "updated", f"all {_rows(met)} with this key became this row [ME043]" if met > 1 else ""
        case RowMarker.DELETE:
            if not met:
                return "nothing", "no row had the key"
            return "deleted", f"all {_rows(met)} with this key went [ME043]" if met > 1 else ""
        case _:
            assert_never(change.marker)


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"


def _unread(replayed: FileStatus, scene: TraceContext, writer: OneKeyWriter, key: KeyFilter) -> Unread:
    """A file the replay could not read; with the engine's own reason, where it has met what stops the replay."""
    told = standing(scene, replayed)
    rows = None if replayed.state == "rejected" else _waiting_rows(replayed.path, scene, writer, key)
    return Unread(replayed.path, told.state, told.reason, rows)


def _waiting_rows(
    path: str, scene: TraceContext, writer: OneKeyWriter, key: KeyFilter
) -> tuple[tuple[int, RowMarker], ...] | None:
    """Rows with the key in a file that cannot be applied yet: where they stand and what they ask for."""
    read = read_unapplied(scene, path, writer, one_key(key))
    if read is None:
        return None
    return tuple(
        (row[ROW_COLUMN], RowMarker(row[MARKER_COLUMN]))
        for batch in read.rows.batches([ROW_COLUMN, MARKER_COLUMN])
        for row in batch.to_pylist()
    )


def _real(scene: TraceContext, key: KeyFilter) -> tuple[Row, ...] | None:
    """The key's rows in the Delta table itself."""
    if not scene.commits:
        return None
    found = scene.context.writer.rows(scene.status.delta_folder, where=key.rows_of)
    return None if found is None else tuple(row for batch in found.to_batches() for row in plain_rows(batch))
