"""Replays of one table folder, with keys and changes of each file; and causes of differences from Fabric's table."""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirror_engine.landing_zone.change import MARKER_COLUMN, RowMarker, replay, same_rows
from mirror_engine.landing_zone.schema import folded
from mirror_engine.storage.zone_view import Source, ZoneView
from mirror_engine.tables.arrow_types import delta_type
from mirror_engine.tables.changes.key_counts import Hashes, key_hashes
from mirror_engine.tables.merge.arrow import ArrowWriter
from mirror_engine.tables.reading.spill import all_rows
from mirror_engine.tools.trace.replay import DryRun
from mirror_engine.tools.trace.row import ChangesWriter, one_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

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


MAX_CHANGES = 50  # of one key that are left out, doubled or exchanged, the newest ones
QUARTER_HOUR = 15 * 60 * 1_000_000  # microseconds; offsets of time zones are multiples
MAX_SHIFT = 26 * 4 * QUARTER_HOUR  # between the first and the last time zone
SINGLE_PRECISION = 1e-6


@dataclass(frozen=True)
class Order:
    """Which files of a folder are replayed: all but the hidden ones; some as if they had landed at another time."""

    hidden: frozenset[str] = frozenset()
    times: Mapping[str, int] = field(default_factory=dict)  # nanoseconds since 1970


class FileKeys(NamedTuple):
    """A replayed file: its path from the table folder, its columns, and a hash for the key of each of its rows."""

    path: str
    columns: tuple[str, ...]
    hashes: Hashes


class Replay(NamedTuple):
    """A table folder, replayed: its status, its rows (None without a table), and its files in order."""

    status: TableStatus
    rows: pa.Table | None
    files: tuple[FileKeys, ...]


@dataclass(frozen=True)
class Replays:
    """Replays of one table folder, `folder` from ROOT; `others` are hidden; replayed tables are in `work`."""

    view: RestoredView
    others: Mapping[str, None]
    config: Config
    work: Path
    folder: str
    name: TableName
    listen: Listener

    def is_archived(self, path: str) -> bool:
        return self.view.archived_at(f"{self.folder}/{path}") is not None

    def all_rows(self, order: Order | None = None) -> Replay:
        """Replay the files, all as they are by default."""
        folder = self.work / secrets.token_hex(4)
        writer = _NotingWriter(folder)
        status = self._run(writer, all_rows(folder), order or Order())
        return Replay(status, writer.rows(status.delta_folder), tuple(writer.files))

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


@cache
def causes() -> Mapping[str, Mapping[str, str]]:
    """Every kind of difference, of `causes.json`.

    Each has the `rule` that Fabric's table contradicts, `text_rule` where that of delimited text is another one, a
    `message`, which is what Fabric's table shows, and `help`: what may be looked at.
    """
    found: dict[str, dict[str, str]] = json.loads(Path(__file__).with_name("causes.json").read_text(encoding="utf-8"))
    return found


_LOST = {RowMarker.DELETE: "lost_delete", RowMarker.INSERT: "lost_insert"}


class Guess(NamedTuple):
    """What would explain a key's rows in Fabric's table: a kind of `causes`, the file, another one, and the row."""

    kind: str
    file: str | None = None
    other: str = ""
    row: int | None = None


def _guess(kind: str, blamed: FileChange, other: str = "") -> Guess:
    return Guess(kind, blamed.file, other, blamed.row)


def final_rows(changes: Iterable[FileChange], keys: Sequence[str]) -> list[dict[str, Any]]:
    """The rows that changes of one key leave."""
    return replay([], [each.change for each in changes], keys)[0]


def guesses(changes: Sequence[FileChange], theirs: Sequence[Row], keys: Sequence[str]) -> list[Guess]:
    """Everything that alone would explain a key's rows in Fabric's table; the likeliest first."""
    return [guess for guess, otherwise in _alternatives(changes) if same_rows(final_rows(otherwise, keys), theirs)]


def _alternatives(changes: Sequence[FileChange]) -> Iterator[tuple[Guess, Sequence[FileChange]]]:
    newest = range(len(changes) - 1, max(len(changes) - MAX_CHANGES, 0) - 1, -1)
    for at in newest:
        lost = _LOST.get(changes[at].change.marker, "lost_update")
        yield _guess(lost, changes[at]), [*changes[:at], *changes[at + 1 :]]
    files = [list(group) for _, group in groupby(changes, lambda each: each.file)]
    last_files = range(len(files) - 1, max(len(files) - MAX_CHANGES, 0) - 1, -1)
    for at in last_files:
        before, own, after = files[:at], files[at], files[at + 1 :]
        yield _guess("file_lost", own[-1]), _joined([*before, *after])
        yield _guess("file_twice", own[-1]), _joined([*before, own, own, *after])
        if before:
            other = before[-1]
            yield _guess("order", own[-1], other[-1].file), _joined([*before[:-1], own, other, *after])
    for at in newest:
        if changes[at].change.marker is RowMarker.INSERT:
            yield _guess("doubled_change", changes[at]), [*changes[: at + 1], *changes[at:]]
            upsert = replace(changes[at], change=replace(changes[at].change, marker=RowMarker.UPSERT))
            yield _guess("insert_replaced", changes[at]), [*changes[:at], upsert, *changes[at + 1 :]]
    for at in last_files:
        yield _guess("stale", files[at][0]), _joined(files[:at])


def _joined(files: Iterable[Sequence[FileChange]]) -> list[FileChange]:
    return list(chain.from_iterable(files))


def likely(changes: Sequence[FileChange], ours: Sequence[Row], theirs: Sequence[Row], keys: Sequence[str]) -> Guess:
    """What a key's rows look like where nothing alone explains them."""
    if not changes:
        return Guess("no_file")
    last, before, kind = changes[-1], final_rows(changes[:-1], keys), "other"
    if keys and any(part is None for part in last.change.key):
        kind = "null_key"
    elif bool(theirs) is not bool(ours) and (theirs or last.change.marker is not RowMarker.DELETE):
        kind = "lost_delete" if theirs else _LOST.get(last.change.marker, "lost_update")
    elif len(before) > 1:
        kind = "copies"
    elif len(before) == len(ours) == len(theirs) == 1:
        kept = {name: before[0].get(name) if value is None else value for name, value in ours[0].items()}
        kind = "kept_values" if same_rows([kept], theirs) else "other"
    return _guess(kind, last)


def cell_cause(ours: pa.Array[Any], theirs: pa.Array[Any], kind: str = "") -> tuple[str, Flags] | None:
    """What explains the most of a column's cells, all of which differ, and which ones; None if nothing does.

    `kind` is the only one to try, `""` for all.
    """
    found = [each for each in _cell_causes(ours, theirs) if each[0] == (kind or each[0])]
    kind, cells = max(found, key=lambda each: np.count_nonzero(each[1]))  # the first of equal ones
    return (kind, cells) if cells.any() else None


def _cell_causes(ours: pa.Array[Any], theirs: pa.Array[Any]) -> Iterator[tuple[str, Flags]]:
    kind, is_null, was_null = ours.type, _flags(theirs.is_null()), _flags(ours.is_null())
    both = ~is_null & ~was_null
    if delta_type(kind) in {"string", "binary"}:
        yield "empty_is_null", is_null & _flags(pc.equal(pc.binary_length(ours), 0))
        yield "null_is_empty", was_null & _flags(pc.equal(pc.binary_length(theirs), 0))
    elif pa.types.is_timestamp(kind):
        first, second = (side.view(pa.int64()).fill_null(0).to_numpy() for side in (ours, theirs))
        for unit in (1_000, 1_000_000, 60_000_000, 86_400_000_000):  # milliseconds, seconds, minutes, days
            yield "truncated_time", both & (second % unit == 0) & (np.abs(first - second) < unit)
        yield "shifted_time", both & ((first - second) % QUARTER_HOUR == 0) & (np.abs(first - second) <= MAX_SHIFT)
    elif pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        first, second = (side.cast(pa.float64()).to_numpy(zero_copy_only=False) for side in (ours, theirs))
        is_near = np.abs(first - second) <= np.abs(first) * SINGLE_PRECISION
        is_whole = (second == np.trunc(first)) | (second == np.rint(first))
        is_wrapped = np.logical_or.reduce([np.fmod(first - second, 2.0**bits) == 0 for bits in (8, 16, 32)])
        yield "cast", both & (is_near | is_whole | (is_wrapped & pa.types.is_integer(kind)))
    yield "null_value", is_null


def _flags(mask: pa.Array[Any]) -> Flags:
    flags: Flags = pc.fill_null(mask, False).to_numpy(zero_copy_only=False)
    return flags
