"""Every change to one key in order: the rows it matched, its effect, and the commit it went into."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import asdict

from mirror_engine.errors import UsageError
from mirror_engine.landing_zone.change import MARKER_COLUMN, Change, RowMarker, replay, same_rows
from mirror_engine.landing_zone.change import comparable as comparable_value
from mirror_engine.landing_zone.csv_values import CellFault
from mirror_engine.landing_zone.schema import folded
from mirror_engine.landing_zone.text import count
from mirror_engine.tables.arrow_types import arrow_schema, delta_type
from mirror_engine.tables.changes.net_changes import comparable
from mirror_engine.tables.dry_run.memory import MemoryDeltaWriter
from mirror_engine.tables.reading.spill import ReadMode, RowMemory, RowSpill
from mirror_engine.tools.diff import typed
from mirror_engine.tools.trace.dry_run import START_PATH, dry_run_start, dry_run_table, file_state, read_pending
from mirror_engine.tools.trace.results import MarkedRow, NotApplied, RowChange, RowTrace

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from mirror_engine.monitoring.status_results import FileStatus
    from mirror_engine.tables.base import BatchRecord, ChangeBatch, Chosen, CommitResult, TableSnapshot
    from mirror_engine.tools.trace.context import TraceContext
    from mirror_engine.tools.trace.dry_run import DryRunStart
    from mirror_engine.tools.trace.results import Effect

Row: TypeAlias = dict[str, Any]

ROW_COLUMN = "__row__"  # a row's number in its file, from 1; before the marker
_LIKELY: dict[RowMarker, Effect] = {  # effects of changes that matched unknown rows
    RowMarker.INSERT: "inserted",
    RowMarker.UPDATE: "updated",
    RowMarker.DELETE: "deleted",
    RowMarker.UPSERT: "updated",
}


@dataclass(frozen=True)
class FileChange:
    """One change of a key: its file, the row in it from 1, whether the file has a marker column, and the change."""

    file: str
    row: int
    has_marker: bool
    change: Change


def parse_key(
    arguments: Sequence[str], table: str, key_columns: Sequence[str], columns: Collection[str] = ()
) -> dict[str, str]:
    """Parse a key: `COLUMN=VALUE` for each column; of a single key column `VALUE` alone will do, and may hold `=`.

    Returns the texts by key column, as `_metadata.json` spells it. A name before `=` may be one of the table's other
    `columns` by mistake. Raises `UsageError` for a column that is no key column, or is missing.
    """
    if not key_columns:
        raise UsageError(
            f"{table}: has no keyColumns, so that no row can be identified",
            "trace a file instead: mirror-engine trace file; or show all rows: mirror-engine show",
        )
    known = {folded(name): name for name in key_columns}
    others = {folded(name) for name in columns} - set(known)
    help_text = f"the key is {', '.join(key_columns)}: {' '.join(f'{name}=…' for name in key_columns)}"
    texts: dict[str, str] = {}
    for argument in arguments:
        name, has_name, value = argument.partition("=")
        if len(known) == 1 and folded(name) not in ({*known, *others} if has_name else ()):
            name, has_name, value = key_columns[0], "=", argument
        column = known.get(folded(name))
        if column is None or column in texts:
            problem = (
                "given twice for" if column else "not a key column of" if has_name else "no name of a key column of"
            )
            raise UsageError(f"key {argument}: {name if has_name else argument} is {problem} {table}", help_text)
        texts[column] = value
    if missing := [name for name in key_columns if name not in texts]:
        raise UsageError(f"key: {', '.join(missing)} of {table} is missing", help_text)
    return {name: texts[name] for name in key_columns}


def key_arguments(key_columns: Sequence[str], key: object) -> list[str]:
    """A key as Python has it, as `parse_key` takes it: a value, a value for each column by name, or a tuple.

    Raises `UsageError` for a tuple of another length.
    """
    if isinstance(key, tuple | list):
        if len(key) != len(key_columns):
            found, names = count(len(key), "value"), ", ".join(key_columns) or "empty"
            raise UsageError(f"key: {found}, the key is {names}", "Give a value for each column.")
        key = dict(zip(key_columns, key, strict=True))
    alone = key_columns[0] if len(key_columns) == 1 else ""
    values = key if isinstance(key, Mapping) else {alone: key}
    texts = {name: value.isoformat() if isinstance(value, datetime) else str(value) for name, value in values.items()}
    return [f"{name}={text}" if name else text for name, text in texts.items()]


def rows_with_key(key: Mapping[str, str], batch: pa.RecordBatch) -> pa.Array[Any]:
    """Which rows have a key, as booleans; rows with NULL in it, or without a column of it, never do (LZ-4.8).

    Raises `UsageError` where a value is not of its column's type.
    """
    matches: pa.Array[Any] = pa.array(np.ones(batch.num_rows, dtype=np.bool_))
    columns = {folded(name): name for name in batch.schema.names}
    for name, text in key.items():
        if folded(name) not in columns:
            return pa.array(np.zeros(batch.num_rows, dtype=np.bool_))
        cells = batch.column(columns[folded(name)])
        is_equal = pc.equal(comparable(pa.chunked_array([cells])).combine_chunks(), _typed(name, text, cells.type))
        matches = pc.and_(matches, pc.fill_null(is_equal, False))
    return matches


@lru_cache(maxsize=64)
def _typed(name: str, text: str, kind: pa.DataType) -> pa.Scalar[Any]:
    try:
        (value,) = comparable(pa.chunked_array([typed([text], kind)]))
        if value.is_valid:
            return value
        raise CellFault("format")  # noqa: TRY301 - empty text
    except CellFault:
        word = delta_type(kind) or kind
        raise UsageError(f"key {name}={text}: no value of type {word}", f"key column {name} is {word}") from None


def one_key(where: Chosen) -> ReadMode:
    """Keep only the rows of one key: however large the table is, few stay in memory."""
    return ReadMode(lambda schema, _keys: OneKeyRows(schema, where))


class OneKeyRows(RowSpill):
    """A `RowStore` of the rows of one key in memory, each with its place in the file."""

    def __init__(self, schema: pa.Schema, where: Chosen) -> None:
        super().__init__(schema.insert(len(schema) - 1, pa.field(ROW_COLUMN, pa.int64())), Path(), RowMemory(math.inf))
        self._where = where
        self._count = 0

    def add(self, batch: pa.RecordBatch) -> None:
        places = pa.array(np.arange(self._count + 1, self._count + batch.num_rows + 1))
        self._count += batch.num_rows
        cells = [*batch.columns[:-1], places, batch.columns[-1]]
        super().add(pa.RecordBatch.from_arrays(cells, schema=self.schema).filter(self._where(batch)))


class ChangesWriter(MemoryDeltaWriter):
    """`DeltaWriter` of the rows of a few keys, in mode `one_key`; notes each change, first those at the start."""

    def __init__(self) -> None:
        super().__init__()
        self.changes: list[FileChange] = []

    def apply(
        self, table: str, batch: ChangeBatch, record: BatchRecord, check: Callable[[], None] = lambda: None
    ) -> CommitResult:
        for file in batch.files:
            for entry in (entry for rows in file.rows.batches() for entry in plain_rows(rows)):
                row = {name: entry.get(name) for name in batch.schema.names}
                change = Change(RowMarker(entry[MARKER_COLUMN]), tuple(row[name] for name in batch.key_columns), row)
                self.changes.append(FileChange(file.path, entry[ROW_COLUMN], file.has_marker, change))
        return super().apply(table, batch, record, check)

    def snapshot(self, table: str) -> TableSnapshot | None:
        """The table; how many rows it holds is unknown: one without these keys need not be empty (LZ-5.5)."""
        found = super().snapshot(table)
        return found and replace(found, count_rows=lambda: None)


def plain_rows(rows: pa.RecordBatch | pa.Table) -> list[Row]:
    """Rows as dicts; a point in time beyond Python's becomes text."""
    columns = [[_plain(cell) for cell in column] for column in rows.columns]
    return [dict(zip(rows.schema.names, values, strict=True)) for values in zip(*columns, strict=True)]


def _plain(cell: pa.Scalar[Any]) -> object:
    try:
        return cell.as_py()
    except (ValueError, OverflowError):
        return str(cell.value)


def trace_row(trace: TraceContext, key: Sequence[str]) -> RowTrace:
    """Replay the changes to one key, given as `parse_key` takes it; raises `UsageError` or `TransientError`."""
    delta_folder = trace.status.delta_folder
    snapshot = trace.context.delta.snapshot(delta_folder) if trace.commits else None
    declared = trace.listing.usable.declared_columns if trace.listing.usable else ()
    columns = arrow_schema(snapshot.schema.columns if snapshot else declared)
    texts = parse_key(key, trace.name.normalized, trace.key_columns, columns.names)
    where = partial(rows_with_key, texts)
    where(pa.RecordBatch.from_pylist([], columns))  # refuse a key that no row can have before all is read
    writer, start = ChangesWriter(), dry_run_start(trace, where)
    replayed = dry_run_table(trace, start, writer, one_key(where))
    earlier = [each.change for each in writer.changes if each.file == START_PATH]
    first = tuple(replay([], earlier, trace.key_columns)[0])
    changes = tuple(_traced(writer.changes[len(earlier) :], trace, start, first))
    applied = [change for change in changes if not change.pending_because]
    table = trace.context.delta.rows(delta_folder, where=where) if trace.commits else None
    delta = None if table is None else tuple(plain_rows(table))
    applied_rows = applied[-1].after if applied else first
    is_comparable = delta is not None and (start is None or start.rows is not None)
    return RowTrace(
        **asdict(trace.reference),
        key=texts,
        replay_start=start.shown if start else None,
        rows_at_start=first,
        changes=changes,
        not_applied=tuple(_pending(file, trace, writer, one_key(where)) for file in replayed.pending_files),
        overwritten=tuple(dict.fromkeys(change.file for change in changes if change.file in trace.overwritten)),
        result=changes[-1].after if changes else first,
        applied=applied_rows,
        delta=delta,
        matches_delta=same_rows(applied_rows, delta or ()) if is_comparable else None,
    )


def _traced(
    noted: Iterable[FileChange], trace: TraceContext, start: DryRunStart | None, rows: tuple[Row, ...]
) -> Iterator[RowChange]:
    """All changes; without the rows at the start, matches are known from the first change that replaces the row on."""
    is_known = start is None or start.rows is not None
    for each in noted:
        marker, file = each.change.marker, trace.files.get(each.file)
        before = tuple({name: row.get(name) for name in each.change.row} for row in rows)
        rows = tuple(replay(before, [each.change], trace.key_columns)[0])
        effect, reason = _LIKELY[marker], "the rows it matched are not known"
        if is_known:
            effect, reason = _effect(marker, before, rows)
        pending_because = "it was archived without ever being in the table"
        if file is not None:
            pending_because = "" if file.state == "applied" else file.reason or ""
        yield RowChange(
            file=each.file,
            row=each.row,
            marker=marker.value,
            marker_name=marker.name.lower(),
            has_marker=each.has_marker,
            matched_rows=len(before) if is_known else None,
            effect=effect,
            reason=reason or None,
            before=before if is_known else None,
            after=rows,
            changed_columns=_changed_columns(before, rows) if effect == "updated" and is_known else (),
            delta_version=file.delta_version if file else None,
            files_of_commit=trace.files_of_commit(each.file),
            pending_because=pending_because or None,
        )
        is_known = is_known or marker is not RowMarker.INSERT


def _changed_columns(before: tuple[Row, ...], after: tuple[Row, ...]) -> tuple[str, ...]:
    """Columns whose values differ in any row; a missing one is NULL."""
    return tuple(
        dict.fromkeys(
            name
            for old, new in zip(before, after, strict=True)
            for name in (*old, *new)
            if comparable_value(old.get(name)) != comparable_value(new.get(name))
        )
    )


def _effect(marker: RowMarker, before: tuple[Row, ...], after: tuple[Row, ...]) -> tuple[Effect, str]:
    """The effect of a change, and why it is none or another than its marker says (LZ-4.1, LZ-4.3, LZ-4.4)."""
    matched = len(before)
    rows = count(matched, "row")
    match marker:
        case RowMarker.INSERT:
            return "inserted", f"duplicate key: {count(matched + 1, 'row')} have it now [ME039]" if matched else ""
        case RowMarker.UPDATE | RowMarker.UPSERT if not matched:
            return "inserted", "no row had the key" if marker is RowMarker.UPDATE else ""
        case RowMarker.UPDATE | RowMarker.UPSERT if same_rows(before, after):
            return "nothing", "the row had these values already"
        case RowMarker.UPDATE | RowMarker.UPSERT:
            return "updated", f"all {rows} with this key became this row [ME043]" if matched > 1 else ""
        case RowMarker.DELETE if not matched:
            return "nothing", "no row had the key"
        case RowMarker.DELETE:
            return "deleted", f"all {rows} with this key were deleted [ME043]" if matched > 1 else ""
        case _:
            assert_never(marker)


def _pending(replayed: FileStatus, trace: TraceContext, writer: ChangesWriter, mode: ReadMode) -> NotApplied:
    status, rows = file_state(trace, replayed), None
    file = None if replayed.state == "rejected" else read_pending(trace, replayed.path, writer, mode)
    if file is not None:
        entries = (row for batch in file.rows.batches([ROW_COLUMN, MARKER_COLUMN]) for row in batch.to_pylist())
        markers = ((entry[ROW_COLUMN], RowMarker(entry[MARKER_COLUMN])) for entry in entries)
        rows = [MarkedRow(row, marker.value, marker.name.lower()) for row, marker in markers]
    return NotApplied(replayed.path, status.state, status.reason or None, rows)
