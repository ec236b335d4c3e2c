"""Dry runs of one table folder in any order of its files, with keys and changes of each file."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from mirror_engine.landing_zone.change import MARKER_COLUMN
from mirror_engine.landing_zone.schema import folded
from mirror_engine.storage.zone_view import Source, ZoneView
from mirror_engine.tables.changes.key_counts import Hashes, key_hashes
from mirror_engine.tables.merge.arrow import ArrowWriter
from mirror_engine.tables.reading.spill import all_rows
from mirror_engine.tools.dry_run import DryRun
from mirror_engine.tools.trace.row import ChangesWriter, one_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from mirror_engine.config import Config
    from mirror_engine.events import Listener
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.monitoring.status import TableStatus
    from mirror_engine.storage.zone_view import RestoredView
    from mirror_engine.tables.base import BatchRecord, ChangeBatch, CommitResult, DeltaWriter
    from mirror_engine.tables.reading.spill import ReadMode
    from mirror_engine.tools.trace.row import FileChange

    Row = Mapping[str, Any]
    Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Order:
    """The files to replay: all but the hidden ones; some with another landing time."""

    hidden: frozenset[str] = frozenset()
    times: Mapping[str, int] = field(default_factory=dict)  # nanoseconds since 1970


class FileKeys(NamedTuple):
    """A replayed file: its path from the table folder, its columns, and a hash for the key of each of its rows."""

    path: str
    columns: tuple[str, ...]
    hashes: Hashes


class FolderRun(NamedTuple):
    """A dry run of a table folder: its status, its rows (None without a table), and its files in order."""

    status: TableStatus
    rows: pa.Table | None
    files: tuple[FileKeys, ...]


@dataclass(frozen=True)
class FolderRuns:
    """Dry runs of one table folder, `folder` from ROOT; `others` are hidden; replayed tables are in `work`."""

    view: RestoredView
    others: Mapping[str, None]
    config: Config
    work: Path
    folder: str
    name: TableName
    listen: Listener

    def is_archived(self, path: str) -> bool:
        return self.view.archived_at(f"{self.folder}/{path}") is not None

    def all_rows(self, order: Order | None = None) -> FolderRun:
        """Replay the files, all as they are by default."""
        folder = self.work / secrets.token_hex(4)
        writer = _NotingWriter(folder)
        status = self._run(writer, all_rows(folder), order or Order())
        return FolderRun(status, writer.rows(status.delta_folder), tuple(writer.files))

    def changes(self, sample: Hashes, names: Sequence[str], order: Order) -> Sequence[FileChange]:
        """Return the changes, in order, of rows whose values in the named columns have one of these hashes."""

        def is_sampled(rows: pa.RecordBatch) -> pa.BooleanArray:
            return pa.array(np.isin(row_hashes(rows, [name for name in names if name in rows.schema.names]), sample))

        writer = ChangesWriter()
        self._run(writer, one_key(is_sampled), order)
        return writer.changes

    def _run(self, writer: DeltaWriter, mode: ReadMode, order: Order) -> TableStatus:
        mapping: dict[str, Source | None] = dict(self.others)
        for path, time in order.times.items():
            mapping[f"{self.folder}/{path}"] = Source(f"{self.folder}/{path}", time)
        view = ZoneView(self.view, mapping | dict.fromkeys(f"{self.folder}/{path}" for path in order.hidden))
        with DryRun(view, self.config, writer, mode, listener=self.listen) as dry_run:
            (status,) = dry_run.run().tables
        return status


class _NotingWriter(ArrowWriter):
    """A table on this disk; notes each file's keys, or rows of a keyless table."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "Tables", folder / "scratch")
        self.files: list[FileKeys] = []

    def apply(
        self, table: str, batch: ChangeBatch, record: BatchRecord, check: Callable[[], None] = lambda: None
    ) -> CommitResult:
        outcome = super().apply(table, batch, record, check)
        for file in batch.files:
            columns = tuple(name for name in file.rows.schema.names if name != MARKER_COLUMN)
            names = batch.key_columns or columns
            parts = [row_hashes(rows, names) for rows in file.rows.batches(names)]
            self.files.append(FileKeys(file.path, columns, np.concatenate([np.empty(0, np.uint64), *parts])))
        return outcome


def row_hashes(rows: pa.Table | pa.RecordBatch, names: Iterable[str]) -> Hashes:
    """Return a number for each row by its values in some columns; a NULL counts as an absent column."""
    total = np.zeros(rows.num_rows, np.uint64)
    for name in names:
        column = rows.column(name)
        hashes, is_whole = key_hashes([column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column])
        salt = np.frombuffer(hashlib.sha256(folded(name).encode()).digest()[:16], np.uint64) | np.uint64(1)
        mixed = (hashes + salt[0]) * salt[1]
        total += np.where(is_whole, mixed ^ (mixed >> np.uint64(29)), np.uint64(0))
    return total


class LastChanges:
    """Which file changed a key last, and in which row."""

    def __init__(self, files: Sequence[FileKeys]) -> None:
        self._files = {file.path: file.hashes for file in files}
        self._paths = tuple(self._files)
        ends = np.cumsum([0, *(len(file.hashes) for file in files)])
        backwards = np.concatenate([np.empty(0, np.uint64), *(file.hashes for file in files)])[::-1]
        self._hashes, first = np.unique(backwards, return_index=True)
        places = len(backwards) - 1 - first
        self._file = np.searchsorted(ends, places, side="right") - 1
        self._row = places - ends[self._file] + 1

    def of(self, number: int) -> tuple[str, int] | None:
        """Return path and row, from 1, of a key's last change; None if no file has the key."""
        at = int(np.searchsorted(self._hashes, np.uint64(number)))
        if at == len(self._hashes) or self._hashes[at] != number:
            return None
        return self._paths[self._file[at]], int(self._row[at])

    def keys_of(self, file: str, other: str = "") -> Hashes:
        """Return the keys that a file changed last, and that another one, if named, changed, too."""
        keys: Hashes = self._hashes[self._file == self._paths.index(file)]
        return np.intersect1d(keys, self._files[other]) if other else keys
