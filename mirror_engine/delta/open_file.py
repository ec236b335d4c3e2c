"""A change file, opened: what its header or footer says, and its rows as the file spells them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    import pyarrow as pa

    from mirror_engine.landing_zone.column_types import Column
    from mirror_engine.landing_zone.diagnostics import Diagnostic


class OpenFile(Protocol):
    """One change file."""

    @property
    def columns(self) -> Sequence[Column]:
        """Its data columns in file order, the marker not among them; observed types in Delta's words.

        A null-typed one has the type `VOID`. For text: the declared columns that the header names.
        """

    @property
    def marker(self) -> str | None:
        """The marker column's name as spelled; None for a marker-free file."""

    @property
    def naive_columns(self) -> frozenset[str]:
        """Timestamp columns without a zone."""

    @property
    def utc_columns(self) -> frozenset[str]:
        """Timestamp columns with one."""

    @property
    def promised_rows(self) -> int | None:
        """How many rows a footer says there are; None where only reading them tells."""

    @property
    def diagnostics(self) -> list[Diagnostic]:
        """Warnings and information; grows while rows are read."""

    def batches(self, columns: Collection[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Rows in file order, in bounded batches, readable more than once.

        Args:
            columns: those that must be read, by the file's own names; all, where it is None. A format that cannot
                leave columns out gives all.

        Columns under the file's own names, in file order, each in the Arrow type of its observed Delta type (see
        `arrow_types`), then, where there is a marker, `MARKER_COLUMN` as int8, each of them one the protocol knows.

        Raises:
            PublisherError: a row, cell or page cannot be read (ME024, ME037 for a marker outside int8, ME060,
                ME061, ME075).
        """
