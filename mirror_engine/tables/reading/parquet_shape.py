"""What the schema of a Parquet file says: its columns, and how wide a row is at least."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from mirror_engine.errors import RejectedFile
from mirror_engine.landing_zone.change import MARKER_COLUMN
from mirror_engine.landing_zone.diagnostics import diagnose
from mirror_engine.landing_zone.schema import VOID, Column, same_name
from mirror_engine.tables.reading.parquet_pace import fixed_width
from mirror_engine.tables.reading.parquet_types import ParquetType, parquet_type
from mirror_engine.tables.reading.unfolding import check_total

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow.parquet as pq

    from mirror_engine.config import Config

_MAX_KEPT, _MAX_KEPT = 64, 64 * 1024


@dataclass(frozen=True)
class Field:
    """One column of the file: where it stands, and what it is."""

    name: str
    type: ParquetType
    nullable: bool


class DataColumns(NamedTuple):
    """The columns of a file but its marker.

    Attributes:
        by_place: what each is read as, by where it stands.
        columns: the same, in order.
        naive, utc: names of timestamp columns without and with a zone.
    """

    by_place: Mapping[int, Column]
    columns: tuple[Column, ...]
    naive: frozenset[str]
    utc: frozenset[str]


@dataclass(frozen=True)
class Shape:
    """What a schema says.

    Attributes:
        fields: its columns, the marker among them.
        markers: where columns stand that are called as the marker is, in any case (LZ-4.10).
        row_width: bytes of a row in columns of a fixed length.
    """

    fields: Sequence[Field]
    markers: Sequence[int]
    row_width: int
    _data: dict[bool, DataColumns] = field(default_factory=dict)

    def data_columns(self, *, ntz: bool) -> DataColumns:
        """The columns but the marker.

        Args:
            ntz: whether timestamps without a zone are a type of their own (option `naive_timestamps`).
        """
        if ntz not in self._data:
            self._data[ntz] = _data_columns(self.fields, self.markers, ntz=ntz)
        return self._data[ntz]


def _data_columns(all_fields: Sequence[Field], markers: Sequence[int], *, ntz: bool) -> DataColumns:
    fields = {at: field for at, field in enumerate(all_fields) if at not in markers}
    by_place = {at: Column(field.name, _word(field, ntz=ntz), field.nullable) for at, field in fields.items()}
    naive, utc = (
        frozenset(field.name for field in fields.values() if field.type.zone == zone) for zone in ("naive", "utc")
    )
    return DataColumns(by_place, tuple(by_place.values()), naive, utc)


def _word(field: Field, *, ntz: bool) -> str:
    return "timestamp_ntz" if ntz and field.type.zone == "naive" else field.type.word or VOID


_kept: dict[bytes, Shape] = {}  # by the bytes of the schema: most files repeat one


def shape_of(file: pq.ParquetFile, schema: bytes, size: int, path: str, config: Config) -> Shape:
    """What the file's schema says, unless its rows, by its own footer, take far more room than it does.

    Args:
        file: opened without Arrow's stored schema.
        schema: the same as it is written in the footer, where no footer is taken that Arrow could read otherwise.
        size: of the file, in bytes.
        path: for messages.
        config: `max_row_size` counts here.

    Raises:
        RejectedFile: ME049, ME075 (a Parquet bomb).
    """
    known, rows = _kept.get(schema), file.metadata.num_rows
    row_width = known.row_width if known else fixed_width(file.schema, range(len(file.schema)))
    check_total(rows * row_width, rows, size, path, config)
    if known is None:
        fields = _fields(file, path)
        markers = [at for at, field in enumerate(fields) if same_name(field.name, MARKER_COLUMN)]
        known = Shape(fields, markers, row_width)
        if len(schema) <= _MAX_KEPT:
            if len(_kept) >= _MAX_KEPT:
                _kept.clear()
            _kept[schema] = known
    return known


def _fields(file: pq.ParquetFile, path: str) -> list[Field]:
    """The file's columns; a nested one is refused at once (ME049)."""
    fields: list[Field] = []
    for at, column in enumerate(file.schema_arrow):
        if pa.types.is_nested(column.type):
            kind = "LIST" if pa.types.is_list(column.type) else "MAP" if pa.types.is_map(column.type) else "STRUCT"
            fields.append(Field(column.name, ParquetType(kind, None), column.nullable))
            break  # beyond it, leaves and columns no longer go hand in hand
        fields.append(Field(column.name, parquet_type(file.schema.column(at)), column.nullable))
    for found in fields:
        if found.type.word is None and not same_name(found.name, MARKER_COLUMN):
            raise RejectedFile(diagnose("ME049", path, column=found.name, found=found.type.spelling))
    return fields
