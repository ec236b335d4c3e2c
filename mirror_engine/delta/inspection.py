"""Reads a file that became part of its table as it lay: keeps the keys, and holds every cell against the footer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from mirror_engine.delta.file_statistics import bounds_of_chunks, chunks_of_column
from mirror_engine.delta.measure import byte_count
from mirror_engine.delta.parquet_footer import broken
from mirror_engine.delta.reading import WholeFiles
from mirror_engine.landing_zone.change import MARKER_COLUMN

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from mirror_engine.delta.base import RowSource
    from mirror_engine.delta.reading import Reading, RowSpool
    from mirror_engine.landing_zone.column_types import Column

_COUNTS = {pa.date32().id: pa.int32(), pa.timestamp("us").id: pa.int64()}  # what times are in files
_ORDERED = ("byte", "short", "integer", "long", "date", "timestamp", "timestamp_ntz", "string", "decimal")


class Seen:
    """What was seen of one column: how many NULLs, the lowest and the highest value."""

    def __init__(self) -> None:
        self.nulls = 0
        self.lowest: Any = None
        self.highest: Any = None

    def add(self, cells: pa.Array) -> None:
        """Take the next cells."""
        self.nulls += cells.null_count
        plain = cells.view(_COUNTS[cells.type.id]) if cells.type.id in _COUNTS else cells
        if cells.null_count == len(cells) or not _is_ordered(plain.type):
            return
        found = pc.min_max(plain)
        lowest, highest = found["min"].as_py(), found["max"].as_py()
        self.lowest = lowest if self.lowest is None else min(self.lowest, lowest)
        self.highest = highest if self.highest is None else max(self.highest, highest)


class KeysOfRows(WholeFiles):
    """A `Reading` that looks at everything and keeps keys and markers.

    Attributes:
        seen: per column what was seen of it.
    """

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self.seen: dict[str, Seen] = {}

    def byte_count(self, columns: Iterable[pa.Array]) -> int:
        """See `Reading`."""
        return byte_count(columns)

    def spool(self, schema: pa.Schema, key_columns: Collection[str]) -> _KeySpool:
        """See `Reading`."""
        kept = [*key_columns, MARKER_COLUMN]
        self.seen = {name: Seen() for name in schema.names if name != MARKER_COLUMN}
        below = self._reading.spool(pa.schema([schema.field(name) for name in kept]), key_columns)
        return _KeySpool(below, kept, self.seen)


class _KeySpool:
    def __init__(self, below: RowSpool, kept: Sequence[str], seen: dict[str, Seen]) -> None:
        self._below = below
        self._kept = kept
        self._seen = seen

    def add(self, batch: pa.RecordBatch) -> None:
        """See `RowSpool`."""
        for name, seen in self._seen.items():
            seen.add(batch.column(name))
        self._below.add(batch.select(self._kept))

    def finish(self) -> RowSource:
        """See `RowSpool`."""
        return self._below.finish()

    def discard(self) -> None:
        """See `RowSpool`."""
        self._below.discard()


def check_bounds(footer: Any, columns: Sequence[Column], seen: dict[str, Seen], path: str) -> None:  # noqa: ANN401 - FileMetaData
    """Refuse a file whose footer told other things of its cells than they are: readers pass over files by that.

    Raises:
        PublisherError: ME024.
    """
    words = {column.name: column.type for column in columns}
    for at in range(footer.num_columns):
        name = footer.schema.column(at).name
        chunks = chunks_of_column(footer, at)
        if all(chunk.nulls is not None for chunk in chunks) and sum(c.nulls or 0 for c in chunks) != seen[name].nulls:
            raise broken(path, f"its footer tells another number of NULLs in column {name}")
        told = bounds_of_chunks(chunks, words[name]) if words[name].partition("(")[0] in _ORDERED else None
        if told is not None and seen[name].lowest is not None and not _holds(told, seen[name]):
            raise broken(path, f"column {name} holds values beyond those that its footer tells")


def _holds(told: tuple[Any, Any], seen: Seen) -> bool:
    lowest, low, high, highest = map(_comparable, (told[0], seen.lowest, seen.highest, told[1]))
    return bool(min(lowest, low) == lowest) and bool(max(highest, high) == highest)


def _comparable(value: Any) -> Any:  # noqa: ANN401 - of any column
    return value.encode() if isinstance(value, str) else value


def _is_ordered(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_decimal(kind))
