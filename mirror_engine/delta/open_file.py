"""A change file, opened: what its header or footer says, and its rows as the file spells them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from mirror_engine.landing_zone.column_types import Column
    from mirror_engine.landing_zone.diagnostics import Diagnostic


class OpenFile(Protocol):
    """One change file.

    Attributes:
        columns: its data columns in file order, the marker not among them; observed types in Delta's words
            (`column_types.VOID` for a null-typed one). For text: the declared columns that the header names.
        marker: the marker column's name as spelled; None for a marker-free file.
        naive_columns: timestamp columns without a zone.
        utc_columns: timestamp columns with one.
        diagnostics: warnings and information; grows while rows are read.
    """

    columns: Sequence[Column]
    marker: str | None
    naive_columns: frozenset[str]
    utc_columns: frozenset[str]
    diagnostics: list[Diagnostic]

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Rows in file order, in bounded batches, readable more than once.

        Columns under the file's own names, in file order, each in the Arrow type of its observed Delta type (see
        `arrow_types`), then, where there is a marker, `MARKER` as int8 (NULL where the file has NULL).

        Raises:
            PublisherError: a row, cell or page cannot be read (ME024, ME037 for a marker outside int8, ME060,
                ME061, ME075).
        """
