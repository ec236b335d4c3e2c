"""Every option, its default, and where its value comes from: flags, `MIRROR_ENGINE_*`, `mirror-engine.toml`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Config:
    """All options of one mirror.

    Attributes:
        default_schema: the Delta schema of tables outside a schema folder; `none` for flat (LZ-1.4).
        metadata: `optional` mirrors Parquet folders without `_metadata.json`, insert-only (LZ-2.3).
        start_index: `lowest` begins at the lowest number present (LZ-3.2).
        null_type: `untyped` lets an all-NULL column make no claim (LZ-5.9).
        naive_timestamps: `ntz` keeps zone-less timestamps zone-less (LZ-5.8).
        strict: warnings marked `s` in the register become errors (chapter 11).
        cleanup: where applied files go (LZ-8.2).
        cleanup_days: days after which moved files are deleted (LZ-8.3).
        retention_days: Delta retention for VACUUM, 1-30 (LZ-8.6).
        drop_delay_seconds: how long a folder must be gone before its table is dropped (LZ-7.4).
        files_per_commit: most change files in one commit; 1 to debug order (LZ-4.16).
        batch_bytes: most bytes of change files, as landed, in one commit.
        row_bytes: longest row accepted, in bytes.
        workers: tables worked on side by side.
        poll_interval_seconds: longest time between two looks at the zone (LZ-3.1).
        driver_memory: the Spark driver's heap, as Spark writes it.
        jars: a folder of Delta jars, for machines without a network; `""` to fetch them.
    """

    default_schema: str = "dbo"
    metadata: Literal["required", "optional"] = "required"
    start_index: Literal["first", "lowest"] = "first"
    null_type: Literal["integer", "untyped"] = "integer"
    naive_timestamps: Literal["utc", "ntz"] = "utc"
    strict: bool = False
    cleanup: Literal["ready", "processed", "off"] = "ready"
    cleanup_days: float = 7.0
    retention_days: int = 7
    drop_delay_seconds: float = 0.0
    files_per_commit: int = 1000
    batch_bytes: int = 256 * 1024 * 1024
    row_bytes: int = 64 * 1024 * 1024
    workers: int = 2
    poll_interval_seconds: float = 15.0
    driver_memory: str = "2g"
    jars: str = ""

    @property
    def schema_of_bare_tables(self) -> str:
        """The default schema, `""` for none."""
        return "" if self.default_schema == "none" else self.default_schema
