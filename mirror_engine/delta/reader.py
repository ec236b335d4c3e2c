"""Gives change files as typed rows in exact (file, row) order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mirror_engine.delta.base import FileRows
    from mirror_engine.landing_zone.column_types import TableSchema
    from mirror_engine.landing_zone.metadata import Metadata
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.landing_zone.sightings import FileSighting


@dataclass(frozen=True)
class TableFacts:
    """What is known of a table before a file is read, and after: each file is read against the facts before it.

    Attributes:
        schema: its columns; None before its first file.
        is_empty: whether it surely holds no row (LZ-5.5).
        naive_columns, utc_columns: timestamp columns that came so (ME051).
        markers_seen: whether a file with markers came before (ME042).
    """

    schema: TableSchema | None = None
    is_empty: bool = True
    naive_columns: frozenset[str] = frozenset()
    utc_columns: frozenset[str] = frozenset()
    markers_seen: bool = False


@dataclass(frozen=True)
class ReadFile:
    """One file, read and found good, and the facts after it."""

    rows: FileRows
    facts: TableFacts


@dataclass(frozen=True)
class ReadRequest:
    """What to read, and against what.

    Attributes:
        table: its name, for messages.
        file: the file as the poller saw it.
        metadata: in force for it.
        facts: the table's before this file.
    """

    table: TableName
    file: FileSighting
    metadata: Metadata
    facts: TableFacts = field(default_factory=TableFacts)
