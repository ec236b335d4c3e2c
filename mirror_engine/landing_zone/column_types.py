"""Declared and observed column types, the union of schemas, and the error Fabric gives (protocol chapter 5)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Column:
    """One data column.

    Attributes:
        name: as first spelled.
        type: in Delta's words: `string`, `binary`, `byte`, `short`, `integer`, `long`, `float`, `double`,
            `boolean`, `date`, `timestamp`, `timestamp_ntz`, `decimal(p,s)`.
        nullable: whether NULL may stand in it.
    """

    name: str
    type: str
    nullable: bool = True


@dataclass(frozen=True)
class TableSchema:
    """A mirrored table's columns in order, partition columns last (LZ-3.7)."""

    columns: tuple[Column, ...]
    partition_columns: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All column names in order."""
        return tuple(column.name for column in self.columns)

    def find(self, name: str) -> Column | None:
        """The column of that name, ignoring case (LZ-5.7)."""
        wanted = name.casefold()
        return next((column for column in self.columns if column.name.casefold() == wanted), None)
