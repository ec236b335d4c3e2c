"""Takes the rows of an opened change file into a spool, each held to the protocol on its way."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from mirror_engine.delta.arrow_types import arrow_type
from mirror_engine.errors import PublisherError
from mirror_engine.landing_zone.change import MARKER_COLUMN, RowMarker
from mirror_engine.landing_zone.column_types import TableSchema, folded

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from mirror_engine.delta.base import RowSource
    from mirror_engine.delta.open_file import OpenFile
    from mirror_engine.delta.reading import Reading
    from mirror_engine.landing_zone.column_types import Incoming, Merged
    from mirror_engine.landing_zone.sightings import FileSighting

_MARKERS = tuple(marker.value for marker in RowMarker)


@dataclass(frozen=True)
class Terms:
    """What the rows of one file are held to.

    Attributes:
        incoming: the file's schema, and how to speak of it.
        merged: how it fits into the table's.
        key_columns: in the table's spelling; empty in a keyless table.
        partition: the values of the file's Hive folder, by its columns' names (LZ-3.7).
        default_marker: of rows of a marker-free file (LZ-4.13).
        deletes_are_full: whether NULL is refused in delete rows too, as in text (LZ-6.8).
    """

    incoming: Incoming
    merged: Merged
    key_columns: tuple[str, ...]
    partition: Mapping[str, str | None]
    default_marker: RowMarker
    deletes_are_full: bool


@dataclass(frozen=True)
class Taken:
    """All rows of one file.

    Attributes:
        rows: typed, under the table's spelling, then the folder's columns, then `MARKER_COLUMN`.
        markers: how many rows of each effective marker.
        byte_count: of the file's data columns (LZ-9.3).
        null_keys: how many rows have NULL in each key column that has any (LZ-4.8).
    """

    rows: RowSource
    markers: Counter[int]
    byte_count: int
    null_keys: Counter[str]


def take(file: OpenFile, terms: Terms, sighted: FileSighting, reading: Reading) -> Taken:
    """Read every row once, as thoroughly as `reading` wants.

    Raises:
        PublisherError: what `OpenFile.batches` raises, ME032, ME037, ME038, ME048.
        StorageUnavailable: the file or the scratch folder failed.
    """
    columns = reading.columns(sighted, _needed(file, terms))
    intake = _Intake(file, terms, reading, columns)
    spool = reading.spool(intake.schema, terms.key_columns)
    try:
        for batch in file.batches(columns):
            spool.add(intake.accepted(batch))
        return Taken(spool.finish(), intake.markers, intake.byte_count, intake.null_keys)
    except BaseException:
        spool.discard()
        raise


def _needed(file: OpenFile, terms: Terms) -> frozenset[str]:
    """Columns whose cells the protocol judges: keys, those in which NULL is refused, those of a Hive folder."""
    compared = {folded(name) for name in (*terms.key_columns, *terms.partition)}
    filled = {folded(column.name) for column in terms.merged.schema.columns if not column.nullable}
    return frozenset(
        column.name
        for column in file.columns
        if folded(column.name) in compared or (column.nullable and folded(column.name) in filled)
    )


@dataclass
class _Intake:
    file: OpenFile
    terms: Terms
    reading: Reading
    columns: Collection[str] | None = None
    markers: Counter[int] = field(default_factory=Counter)
    null_keys: Counter[str] = field(default_factory=Counter)
    byte_count: int = 0
    rows: int = 0

    def __post_init__(self) -> None:
        spelling = self.terms.merged.spelling
        read = [c.name for c in self.file.columns if self.columns is None or c.name in self.columns]
        kept = [name for name in read if name in spelling]
        in_folder = {folded(name): value for name, value in self.terms.partition.items()}
        named = (column.name for column in self.file.columns)
        self._also_in_folder = {name: in_folder[folded(name)] for name in named if folded(name) in in_folder}
        known = self.terms.merged.schema
        self._folder_columns = {_spelled(known, name): value for name, value in self.terms.partition.items()}
        names = [*(spelling[name] for name in kept), *self._folder_columns]
        types = {column.name: arrow_type(column.type) for column in known.columns}
        self._kept = [(name, types[spelling[name]]) for name in kept]
        self.schema = pa.schema([*((name, types[name]) for name in names), (MARKER_COLUMN, pa.int8())])
        self._filled = [c.name for c in known.columns if not c.nullable and c.name in names]

    def accepted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The next rows as the table takes them."""
        effective = self._effective(batch)
        self._check_folder(batch)
        cells = [_fitted(batch.column(own), kind) for own, kind in self._kept]
        self.byte_count += self.reading.byte_count(cells)
        cells += [_constant(value, batch.num_rows) for value in self._folder_columns.values()]
        made = pa.RecordBatch.from_arrays([*cells, effective], schema=self.schema)
        self._check_nulls(made, effective)
        self._count(made, effective)
        return made

    def _effective(self, batch: pa.RecordBatch) -> pa.Array:
        """The rows' markers, where the file has any, good ones (LZ-4.13, LZ-4.14)."""
        if self.file.marker is None:
            found = pa.repeat(pa.scalar(self.terms.default_marker.value, pa.int8()), batch.num_rows)
        else:
            found = batch.column(MARKER_COLUMN)
        if not self.terms.key_columns:
            at = pc.index(pc.not_equal(found, RowMarker.INSERT.value), True).as_py()
            if at >= 0:
                raise self._refusal("ME038", at, value=found[at])
        return found

    def _check_folder(self, batch: pa.RecordBatch) -> None:
        """Hold a column of the file against the folder that names it, too (LZ-3.8)."""
        for name, value in self._also_in_folder.items():
            fault = _first_unlike(batch.column(name), value)
            if fault >= 0:
                raise self._refusal("ME032", fault, column=name)

    def _check_nulls(self, rows: pa.RecordBatch, effective: pa.Array) -> None:
        """Hold every row, in Parquet but its delete rows, against the not-null columns (LZ-5.6, LZ-6.8)."""
        for name in self._filled:
            cells = rows.column(name)
            if not cells.null_count:
                continue
            missing = pc.is_null(cells)
            if not self.terms.deletes_are_full:
                missing = pc.and_(missing, pc.not_equal(effective, RowMarker.DELETE.value))
            at = pc.index(missing, True).as_py()
            if at >= 0:
                raise self._refusal("ME048", at, column=name)

    def _count(self, rows: pa.RecordBatch, effective: pa.Array) -> None:
        self.rows += rows.num_rows
        for marker, count in self._told_apart(effective):
            self.markers[marker] += count
        for key in self.terms.key_columns:
            if missing := rows.column(key).null_count:
                self.null_keys[key] += missing

    def _told_apart(self, effective: pa.Array) -> Sequence[tuple[int, int]]:
        """How many rows of which marker."""
        if self.file.marker is None:
            return [(self.terms.default_marker.value, len(effective))] if len(effective) else []
        found = effective.to_numpy().tobytes()
        return [(marker, count) for marker in _MARKERS if (count := found.count(marker))]

    def _refusal(self, code: str, at: int, **details: object) -> PublisherError:
        return PublisherError(self.terms.incoming.say(code, self.rows + at + 1, **details))


def _spelled(schema: TableSchema, name: str) -> str:
    known = schema.find(name)
    return known.name if known else name


def _fitted(cells: pa.Array, target: pa.DataType) -> pa.Array:
    """Cells in the table's type; only times with and without a zone, and all NULL, are ever of another."""
    if cells.type == target:
        return cells
    return pa.nulls(len(cells), target) if pa.types.is_null(cells.type) else cells.view(target)


def _constant(value: str | None, count: int) -> pa.Array:
    return pa.nulls(count, pa.string()) if value is None else pa.repeat(pa.scalar(value, pa.string()), count)


def _first_unlike(cells: pa.Array, value: str | None) -> int:
    """Where cells first differ, as text, from a folder's value; -1 nowhere."""
    if value is None:
        return int(pc.index(pc.is_valid(cells), True).as_py())
    try:
        texts = cells.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return 0
    return int(pc.index(pc.fill_null(pc.not_equal(texts, value), True), True).as_py())


def null_key_counts(counts: Mapping[str, int], key_columns: Sequence[str]) -> list[tuple[str, int]]:
    """Key columns with NULL in them, in key order, and in how many rows."""
    return [(key, counts[key]) for key in key_columns if counts.get(key)]
