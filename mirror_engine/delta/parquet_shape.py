"""What the schema of a Parquet file says: its columns, and how wide a row is at least."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from mirror_engine.delta.parquet_pace import fixed_width
from mirror_engine.delta.parquet_types import ParquetType, parquet_type
from mirror_engine.delta.unfolding import check_total
from mirror_engine.errors import PublisherError
from mirror_engine.landing_zone.change import MARKER_COLUMN
from mirror_engine.landing_zone.column_types import VOID, Column, same_name
from mirror_engine.landing_zone.diagnostics import diagnose

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow.parquet as pq

    from mirror_engine.config import Config

_MOST_KEPT, _LONGEST_KEPT = 64, 64 * 1024


@dataclass(frozen=True)
class Field:
    """One column of the file: where it stands, and what it is."""

    name: str
    type: ParquetType
    nullable: bool


@dataclass(frozen=True, eq=False)
class Shape:
    """What a schema says.

    Attributes:
        fields: its columns, the marker among them.
        markers: where columns stand that are called as the marker is, in any case (LZ-4.10).
        row_width: bytes of a row in columns of a fixed length.
        schema: the same, as Arrow reads it.
    """

    fields: Sequence[Field]
    markers: Sequence[int]
    row_width: int
    schema: pq.ParquetSchema


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


@lru_cache(maxsize=_MOST_KEPT)
def data_columns(shape: Shape, *, ntz: bool) -> DataColumns:
    """The columns of a schema but its marker.

    Args:
        shape: the schema.
        ntz: whether timestamps without a zone are a type of their own (option `naive_timestamps`).
    """
    fields = {at: field for at, field in enumerate(shape.fields) if at not in shape.markers}
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
        schema: the same as it is written in the footer.
        size: of the file, in bytes.
        path: for messages.
        config: `row_bytes` counts here.

    Raises:
        PublisherError: ME049, ME075 (a Parquet bomb).
    """
    known, rows = _known(file, schema), file.metadata.num_rows
    row_width = known.row_width if known else fixed_width(file.schema, range(len(file.schema)))
    check_total(rows * row_width, rows, size, path, config)
    if known is None:
        fields = _fields(file, path)
        markers = [at for at, field in enumerate(fields) if same_name(field.name, MARKER_COLUMN)]
        known = Shape(fields, markers, row_width, file.schema)
        if file.metadata.serialized_size <= _LONGEST_KEPT:  # the schema keeps all of it
            if len(_kept) >= _MOST_KEPT:
                _kept.clear()
            _kept[schema] = known
    return known


def _known(file: pq.ParquetFile, schema: bytes) -> Shape | None:
    """What is kept, if Arrow reads the same: a crafted footer holds one schema for Arrow, another's bytes for us."""
    known, found = _kept.get(schema), file.schema
    if known is None or not known.schema.equals(found):
        return None
    # equal are leaves, wherever they hang
    is_flat = all(found.column(at).path == field.name for at, field in enumerate(known.fields))
    return known if is_flat else None


def _fields(file: pq.ParquetFile, path: str) -> list[Field]:
    """The file's columns; a nested one is refused at once (ME049)."""
    fields: list[Field] = []
    for at, field in enumerate(file.schema_arrow):
        if pa.types.is_nested(field.type):
            kind = "LIST" if pa.types.is_list(field.type) else "MAP" if pa.types.is_map(field.type) else "STRUCT"
            fields.append(Field(field.name, ParquetType(kind, None), field.nullable))
            break  # beyond it, leaves and columns no longer go hand in hand
        fields.append(Field(field.name, parquet_type(file.schema.column(at)), field.nullable))
    for found in fields:
        if found.type.word is None and not same_name(found.name, MARKER_COLUMN):
            raise PublisherError(diagnose("ME049", path, column=found.name, found=found.type.spelling))
    return fields
