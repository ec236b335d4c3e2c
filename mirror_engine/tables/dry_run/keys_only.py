"""The counting writer: keeps schema and keys of tables only, to count the rows that changes would match."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mirror_engine.errors import UsageError
from mirror_engine.tables.base import CommitResult, TableSnapshot
from mirror_engine.tables.changes.key_counts import KeyCounts, KeyRows
from mirror_engine.tables.dry_run.memory import InProcessWriter
from mirror_engine.tables.reading.spill import ReadMode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import pyarrow as pa

    from mirror_engine.landing_zone.schema import TableSchema
    from mirror_engine.tables.base import BatchRecord, ChangeBatch, HistoryEntry
    from mirror_engine.tables.changes.key_counts import ChangeEffects


def keys_only(sizes: Iterable[int] | None) -> ReadMode:
    """Keep keys and markers alone.

    Args:
        sizes: of all files there are: the same content needs the same size (ME064); None where more may come.
    """
    return ReadMode(
        store=lambda _schema, key_columns: KeyRows(key_columns),
        threads=False,  # counting keys takes as long as decoding the rest
        digested_sizes=None if sizes is None else {size for size, count in Counter(sizes).items() if count > 1},
    )


@dataclass
class _Table:
    schema: TableSchema
    record: BatchRecord
    version: int = 0
    keys: KeyCounts = field(default_factory=KeyCounts)


class KeyWriter(InProcessWriter):
    """`DeltaWriter` that knows which keys a table has, and no more; fed by `keys_only`.

    Attributes:
        effects: per Delta table and change file, by path from its table folder, the effects of its changes.
    """

    _tables: dict[str, _Table]

    def __init__(self) -> None:
        super().__init__()
        self.effects: dict[str, dict[str, ChangeEffects]] = {}

    def snapshot(self, table: str) -> TableSnapshot | None:
        known = self._tables.get(table)
        if known is None:
            return None
        return TableSnapshot(
            known.version, known.schema, known.record, known.version, count_rows=lambda: known.keys.row_count
        )

    def apply(
        self,
        table: str,
        batch: ChangeBatch,
        record: BatchRecord,
        check: Callable[[], None] = lambda: None,  # noqa: ARG002 - nothing follows a commit
    ) -> CommitResult:
        with self._lock:
            known = self._tables.setdefault(table, _Table(batch.schema, record))
        counted = self.effects.setdefault(table, {})
        runs = [file.rows for file in batch.files if isinstance(file.rows, KeyRows)]  # `keys_only` makes no other
        effects = known.keys.add(runs)
        counted.update(zip((file.path for file in batch.files), effects, strict=True))
        known.schema, known.record, known.version = batch.schema, record, known.version + 1
        return CommitResult(known.version, tuple(effects), "merge")

    def records(self, table: str, versions: range) -> Iterable[BatchRecord | None]:
        known = self._tables[table]
        return (known.record if version == known.version else None for version in versions)

    def drop(self, table: str, check: Callable[[], None] = lambda: None) -> None:
        super().drop(table, check)
        self.effects.pop(table, None)

    def rows(self, table: str, **_: object) -> pa.Table | None:
        raise UsageError(f"{table}: the keys-only store keeps no rows")

    def history(self, *_: object, **__: object) -> Sequence[HistoryEntry]:
        """None is kept."""
        return ()

    def maintain(self, *_: object, **__: object) -> Mapping[str, Any]:
        """There is nothing to tidy up."""
        return {}
