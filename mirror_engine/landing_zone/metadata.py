"""`_metadata.json`: every documented spelling, and a plain sentence for each fault (protocol chapter 2)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from mirror_engine.landing_zone.delimited_text import TextDialect

if TYPE_CHECKING:
    from mirror_engine.landing_zone.column_types import Column


class Strategy(str, Enum):
    """How change files are told apart and ordered (protocol chapter 3)."""

    SEQUENTIAL = "SequentialFileName"
    LAST_UPDATE_TIME = "LastUpdateTimeFileDetection"


class FileFormat(str, Enum):
    """What a change file is written in."""

    PARQUET = "Parquet"
    CSV = "CSV"
    DELIMITED_TEXT = "DelimitedText"


@dataclass(frozen=True)
class Metadata:
    """A usable `_metadata.json` (LZ-2.7). Two equal values are one content, however spelled (LZ-2.12).

    Attributes:
        key_columns: the unique key; empty in a keyless, insert-only table.
        strategy: how change files are detected.
        upsert_default: whether marker-free rows are upserts.
        partitioned: whether change files lie in Hive folders.
        file_format: what they are written in.
        extension: without the dot, lower case.
        declared_columns: `SchemaDefinition.Columns` in order, types in Delta's words; empty for Parquet.
        dialect: how delimited text is written; the defaults for Parquet.
    """

    key_columns: tuple[str, ...] = ()
    strategy: Strategy = Strategy.SEQUENTIAL
    upsert_default: bool = False
    partitioned: bool = False
    file_format: FileFormat = FileFormat.PARQUET
    extension: str = "parquet"
    declared_columns: tuple[Column, ...] = ()
    dialect: TextDialect = field(default_factory=TextDialect)

    @property
    def is_text(self) -> bool:
        """Whether its change files are delimited text."""
        return self.file_format is not FileFormat.PARQUET
