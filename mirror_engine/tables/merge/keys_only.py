"""The counting writer: keeps schema and keys of tables only, to count the rows that changes would match."""

from __future__ import annotations

import itertools
import math
import threading
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mirror_engine.errors import UsageError
from mirror_engine.landing_zone.change import MARKER_COLUMN, RowMarker
from mirror_engine.tables.base import MatchCounts, Outcome, TableSnapshot
from mirror_engine.tables.changes.net_changes import NO_KEY, Integers, Markers, comparable, matched_rows
from mirror_engine.tables.log.record import creation_record
from mirror_engine.tables.reading.spill import ReadMode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from mirror_engine.landing_zone.schema import TableSchema
    from mirror_engine.tables.base import BatchRecord, ChangeBatch, FileRows, HistoryEntry
    from mirror_engine.tables.changes.net_changes import Flags, Markers


Part: TypeAlias = "Hashes | range"

CHANGES_PER_CHUNK = 1_000_000  # changes that are looked at together
KEYS_PER_CHUNK = 1_000_000  # keys of which it is asked at once whether they rise


@dataclass(frozen=True)
class ChangeEffects:
    """How many rows one run of changes matched and changed.

    Attributes:
        duplicate_inserts: inserts of a key that had a row (ME039).
        multi_row_changes: updates and deletes that matched several rows (ME043).
        unmatched_updates, unmatched_deletes: updates and deletes that matched no row.
        inserted, updated, deleted: rows of the table that were added, replaced and removed, change by change.
        first_unmatched_update, first_unmatched_delete: which change of the run was the first such, from 1; 0 for none.
    """

    duplicate_inserts: int = 0
    multi_row_changes: int = 0
    unmatched_updates: int = 0
    unmatched_deletes: int = 0
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    first_unmatched_update: int = field(default=0, compare=False)
    first_unmatched_delete: int = field(default=0, compare=False)


@dataclass(frozen=True)
class KeySequence:
    """The changes of one file in order: 8 bytes a row where all of them insert whole keys.

    Attributes:
        keys: each change's key, as `key_hashes` numbers it, in parts that follow each other; `KeyIndex` may use
            them up.
            A part of consecutive numbers may be a range, which takes no room.
        whole: per change whether no part of its key is NULL; None where all are whole.
        markers: per change its effective row marker; None where all of them insert.
    """

    keys: list[Part]
    whole: Flags | None = None
    markers: Markers | None = None

    @property
    def row_count(self) -> int:
        """How many changes there are."""
        return sum(map(len, self.keys))

    @property
    def is_plain(self) -> bool:
        """Whether it only inserts, and only rows with a key."""
        return self.whole is None and self.markers is None


def compact(keys: Hashes) -> Part:
    """The same numbers, as a range where they are consecutive."""
    first, last = (int(keys[0]), int(keys[-1])) if len(keys) else (0, 0)
    is_range = last - first == len(keys) - 1 and _rises(keys)
    return range(first, last + 1) if is_range else keys


def append(parts: list[Part], part: Part) -> None:
    """Add the next numbers; those that are no range become one array, which grows in place."""
    last = parts[-1] if parts else range(0)
    if isinstance(last, range) or isinstance(part, range):
        parts.append(part)
        return
    count = len(last)
    parts[-1] = grown = last if last.flags.owndata else last.copy()
    grown.resize(count + len(part), refcheck=False)
    grown[count:] = part


def filled(parts: Sequence[NDArray[Any] | None], counts: Sequence[int], usual: np.generic) -> NDArray[Any]:
    """All parts in one; None means that many of the usual value."""
    pairs = zip(parts, counts, strict=True)
    return np.concatenate([np.broadcast_to(usual, count) if part is None else part for part, count in pairs])


def _array(part: Part) -> Hashes:
    return np.arange(part.start, part.stop, dtype=np.uint64) if isinstance(part, range) else part


class KeyIndex:
    """How many rows a table has of each key; 12 bytes a key, 8 where keys rise and come once, 0 where they count up.

    Rows that came before keys were declared have none.
    """

    def __init__(self) -> None:
        self._parts: list[Part] = []  # distinct keys, ascending within and from part to part
        self._rows: Integers | None = None  # of each key, at least 1; None where each has one
        self._without_key = 0

    @property
    def row_count(self) -> int:
        """All rows."""
        keyed = sum(map(len, self._parts)) if self._rows is None else int(self._rows.sum(dtype=np.int64))
        return keyed + self._without_key

    def add(self, runs: Iterable[KeySequence]) -> list[ChangeEffects]:
        """Apply runs of changes, one after the other; returns their effects."""
        effects: list[ChangeEffects] = []
        together: list[KeySequence] = []
        waiting = 0
        for run in runs:
            if waiting + run.row_count > CHANGES_PER_CHUNK:
                effects += self._add_mixed(together)
                together, waiting = [], 0
            if run.is_plain and run.row_count > CHANGES_PER_CHUNK:
                effects.append(self._add_inserts(run.keys))
            else:
                together.append(run)
                waiting += run.row_count
        return effects + self._add_mixed(together)

    def _add_mixed(self, runs: Sequence[KeySequence]) -> list[ChangeEffects]:
        """Any changes, all at once."""
        if not runs:
            return []
        counts = [run.row_count for run in runs]
        keys = np.concatenate([np.empty(0, dtype=np.uint64), *(_array(part) for run in runs for part in run.keys)])
        whole = filled([run.whole for run in runs], counts, np.True_)
        markers = filled([run.markers for run in runs], counts, np.int8(0))
        codes = np.full(len(keys), NO_KEY, dtype=np.int64)
        distinct, codes[whole] = np.unique(keys[whole], return_inverse=True)
        found = matched_rows(codes, markers, self._rows_of(distinct))
        self._without_key += int(np.count_nonzero(~whole & (markers != RowMarker.DELETE)))
        self._take(distinct, _left(codes, markers, found, len(distinct)))
        return _effects(markers, found, counts)

    def _add_inserts(self, parts: list[Part]) -> ChangeEffects:
        """An initial load: keys mostly rise, and are mostly new."""
        count = sum(map(len, parts))
        if self._rows is None and _rise([*self._parts[-1:], *parts]):
            self._parts += parts
            return ChangeEffects(inserted=count)
        keys = _joined_key_book(parts, count)
        keys.sort()
        if not self._parts and _rises(keys):
            self._parts = [keys]
            return ChangeEffects(inserted=count)
        starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
        distinct, rows = keys[starts], np.diff(np.append(starts, len(keys)))
        prior = self._rows_of(distinct)
        self._take(distinct, prior + rows)
        return ChangeEffects(duplicate_inserts=count - int(np.count_nonzero(prior == 0)), inserted=count)

    @property
    def _keys(self) -> Hashes:
        if len(self._parts) != 1 or isinstance(self._parts[0], range):
            self._parts = [np.concatenate([np.empty(0, dtype=np.uint64), *map(_array, self._parts)])]
        return _array(self._parts[0])

    def _rows_of(self, distinct: Hashes) -> Integers:
        known = self._keys
        at = np.searchsorted(known, distinct)
        is_known = at < len(known)
        is_known[is_known] = known[at[is_known]] == distinct[is_known]
        rows = np.zeros(len(distinct), dtype=np.int64)
        rows[is_known] = 1 if self._rows is None else self._rows[at[is_known]]
        return rows

    def _take(self, distinct: Hashes, rows: Integers) -> None:
        """These keys now have that many rows each."""
        before = self._keys
        rows_before = np.ones(len(before), dtype=np.int32) if self._rows is None else self._rows
        others = np.ones(len(before), dtype=np.bool_)
        if len(before):
            at = np.minimum(np.searchsorted(before, distinct), len(before) - 1)
            others[at[before[at] == distinct]] = False
        left = rows > 0
        keys = np.concatenate([before[others], distinct[left]])
        order = np.argsort(keys, kind="stable")
        counts = np.concatenate([rows_before[others], rows[left].astype(np.int32)])[order]
        self._parts, self._rows = [keys[order]], counts if (counts != 1).any() else None


def _joined_key_book(parts: list[Part], count: int) -> Hashes:
    """All parts in one; each is let go once it is copied, so that they are not held twice."""
    if len(parts) == 1:
        return _array(parts.pop())
    made = np.empty(count, dtype=np.uint64)
    end = 0
    for at, part in enumerate(parts):
        made[end : end + len(part)] = _array(part)
        end += len(part)
        parts[at] = range(0)
    return made


def _rise(parts: Sequence[Part]) -> bool:
    filled = [part for part in parts if len(part)]
    return all(isinstance(part, range) or _rises(part) for part in filled) and all(
        after[0] > before[-1] for before, after in itertools.pairwise(filled)
    )


def _rises(keys: Hashes) -> bool:
    """Looked at piece by piece: most keys that do not rise show it early, and no answer is held for each."""
    pieces = (keys[start : start + KEYS_PER_CHUNK + 1] for start in range(0, len(keys), KEYS_PER_CHUNK))
    return all((piece[1:] > piece[:-1]).all() for piece in pieces)


def _left(codes: Integers, markers: Markers, found: Integers, count: int) -> Integers:
    """Per code how many rows its last change leaves."""
    last = np.zeros(count, dtype=np.int64)
    keyed = np.flatnonzero(codes >= 0)
    np.maximum.at(last, codes[keyed], keyed)
    inserts = markers[last] == RowMarker.INSERT
    rows = np.where(inserts, found[last] + 1, np.maximum(found[last], 1))
    rows[markers[last] == RowMarker.DELETE] = 0
    left: Integers = rows
    return left


def _effects(markers: Markers, found: Integers, counts: Sequence[int]) -> list[ChangeEffects]:
    """The effects of runs of `counts` changes one after the other."""
    ends = np.concatenate([[0], np.cumsum(counts)])

    def summed(numbers: NDArray[Any]) -> list[int]:
        sums: list[int] = np.diff(np.concatenate([[0], np.cumsum(numbers)])[ends]).tolist()
        return sums

    def first(flags: Flags) -> list[int]:
        flagged = np.flatnonzero(flags)
        at = np.append(flagged, len(flags))[np.searchsorted(flagged, ends[:-1])]
        rows: list[int] = np.where(at < ends[1:], at - ends[:-1] + 1, 0).tolist()
        return rows

    inserts, deletes = markers == RowMarker.INSERT, markers == RowMarker.DELETE
    sets, absent = ~inserts & ~deletes, found == 0
    unmatched_updates, unmatched_deletes = (markers == RowMarker.UPDATE) & absent, deletes & absent
    numbers = (
        inserts & ~absent,
        ~inserts & (found > 1),
        unmatched_updates,
        unmatched_deletes,
        inserts | (sets & absent),
        np.where(sets, found, 0),
        np.where(deletes, found, 0),
    )
    return list(
        itertools.starmap(
            ChangeEffects, zip(*map(summed, numbers), *map(first, (unmatched_updates, unmatched_deletes)), strict=True)
        )
    )


Hashes: TypeAlias = NDArray[np.uint64]

_BASE = np.uint64(0x9E3779B97F4A7C15)


def key_hashes(columns: Sequence[pa.Array]) -> tuple[Hashes, NDArray[np.bool_]]:
    """Keys as numbers: equal where LZ-4.9 sees equal keys; else different but for one in about 10^19 pairs.

    Args:
        columns: the key columns, of one length; a single integer column becomes itself, so that its order is kept.

    Returns:
        Per row its number, and whether every part of its key is there (LZ-4.8).
    """
    if len(columns) == 1 and pa.types.is_integer(columns[0].type) and not columns[0].null_count:
        return _numbers(columns[0]), np.ones(len(columns[0]), dtype=np.bool_)
    parts = [comparable(pa.chunked_array([column])).combine_chunks() for column in columns]
    whole = np.ones(len(parts[0]), dtype=np.bool_)
    for part in parts:
        if part.null_count:
            whole &= part.is_valid().to_numpy(zero_copy_only=False)
    if len(parts) == 1 and _is_number(parts[0].type):
        return _numbers(parts[0]), whole
    made = np.zeros(len(whole), dtype=np.uint64)
    for part in parts:
        own = _mixed(_numbers(part)) if _is_number(part.type) else _of_bytes(part)
        made = _mixed(made * _BASE + own)
    return made, whole


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_temporal(kind) or pa.types.is_boolean(kind))


def _numbers(part: pa.Array) -> Hashes:
    if pa.types.is_boolean(part.type):
        part = part.cast(pa.int8())
    elif pa.types.is_temporal(part.type):
        part = part.view(pa.int32() if part.type.bit_width == pa.int32().bit_width else pa.int64())
    filled = part.fill_null(0) if part.null_count else part
    return np.asarray(filled.to_numpy(zero_copy_only=False)).astype(np.int64, copy=False).view(np.uint64)


def _of_bytes(part: pa.Array) -> Hashes:
    """Text, bytes and decimals: a sum over bytes, each with its own number times a power of its place."""
    offsets, content = _bytes_of(part)
    lengths = np.diff(offsets)
    places = np.arange(len(content), dtype=np.int64) - np.repeat(offsets[:-1] - offsets[0], lengths)
    powers = _powers(int(lengths.max(initial=0)))
    terms = _byte_numbers()[content] * powers[places]
    sums = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(terms, dtype=np.uint64)])
    starts = offsets - offsets[0]
    return _mixed(sums[starts[1:]] - sums[starts[:-1]] + lengths.astype(np.uint64))


def _bytes_of(part: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    if pa.types.is_decimal(part.type):
        width = part.type.byte_width
        offsets = np.arange(len(part) + 1, dtype=np.int64) * width
        start = part.offset * width
        return offsets, np.frombuffer(part.buffers()[1], dtype=np.uint8)[start : start + len(part) * width]
    filled: Any = part.fill_null(b"" if pa.types.is_large_binary(part.type) else "")
    offsets = np.frombuffer(filled.buffers()[1], dtype=np.int64)[filled.offset : filled.offset + len(filled) + 1]
    data = filled.buffers()[2]
    content = np.frombuffer(data, dtype=np.uint8) if data is not None else np.empty(0, dtype=np.uint8)
    return offsets, content[offsets[0] : offsets[-1]]


@cache
def _byte_numbers() -> Hashes:
    """A number for each byte, none of them 0."""
    return _mixed(np.arange(1, 257, dtype=np.uint64))


def _powers(count: int) -> Hashes:
    return np.cumprod(np.full(max(count, 1), _BASE, dtype=np.uint64), dtype=np.uint64)


def _mixed(numbers: Hashes) -> Hashes:
    """Spread every bit over all (the finalizer of splitmix64)."""
    with np.errstate(over="ignore"):
        numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed: Hashes = numbers ^ (numbers >> np.uint64(31))
    return mixed


def keys_only(sizes: Iterable[int] | None, max_whole_file: float = math.inf) -> ReadMode:
    """Keep keys and markers alone.

    Args:
        sizes: of all files there are: the same content needs the same size (ME064); None where more may come.
        max_whole_file: see `ReadMode`; damage in columns that are not read is not noticed.
    """
    return ReadMode(
        store=lambda _schema, key_columns: KeyRows(key_columns),
        threads=False,  # counting keys takes as long as decoding the rest
        counts_bytes=False,
        max_whole_file=max_whole_file,
        digested_sizes=None if sizes is None else {size for size, count in Counter(sizes).items() if count > 1},
    )


class KeyRows:
    """A `RowStore` of keys and markers: 8 bytes a row, 10 where rows are not mere inserts of whole keys.

    Attributes:
        run: all of them, once it is finished.
    """

    schema = pa.schema([(MARKER_COLUMN, pa.int8())])

    def __init__(self, key_columns: Collection[str]) -> None:
        self.run = KeySequence([])
        self._key_columns = key_columns
        self._counts: list[int] = []
        self._whole: list[Flags | None] = []
        self._markers: list[Markers | None] = []

    def add(self, batch: pa.RecordBatch) -> None:
        if self._key_columns:
            keys, whole = key_hashes([batch.column(name) for name in self._key_columns])
        else:
            keys, whole = np.zeros(batch.num_rows, dtype=np.uint64), np.zeros(batch.num_rows, dtype=np.bool_)
        markers = batch.column(batch.num_columns - 1).to_numpy()
        append(self.run.keys, compact(keys))
        self._counts.append(batch.num_rows)
        self._whole.append(None if whole.all() else whole)
        self._markers.append(markers if markers.any() else None)

    def finish(self) -> None:
        whole, markers = _joined(self._whole, self._counts, np.True_), _joined(self._markers, self._counts, np.int8(0))
        self.run = KeySequence(self.run.keys, whole, markers)

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:  # noqa: ARG002 - there is one
        """The markers in order."""
        markers = np.zeros(self.run.row_count, np.int8) if self.run.markers is None else self.run.markers
        yield pa.RecordBatch.from_arrays([pa.array(markers)], schema=self.schema)

    def close(self) -> None:
        self.run = KeySequence([])


@dataclass
class _Table:
    schema: TableSchema
    record: BatchRecord
    version: int = 0
    book: KeyIndex = field(default_factory=KeyIndex)


class KeyWriter:
    """`DeltaWriter` that knows which keys a table has, and no more; fed by `keys_only`.

    Attributes:
        effects: per Delta table and change file, by path from its table folder, the effects of its changes.
    """

    def __init__(self) -> None:
        self.effects: dict[str, dict[str, ChangeEffects]] = {}
        self._tables: dict[str, _Table] = {}
        self._lock = threading.RLock()

    def tables(self) -> Sequence[str]:
        return sorted(self._tables)

    def snapshot(self, table: str) -> TableSnapshot | None:
        known = self._tables.get(table)
        if known is None:
            return None
        return TableSnapshot(
            known.version, known.schema, known.record, known.version, count_rows=lambda: known.book.row_count
        )

    def log_stamp(self, table: str, since: int) -> str:  # noqa: ARG002 - there are no files
        """A process has no memory of another."""
        return ""

    def create(self, table: str, schema: TableSchema, record: BatchRecord) -> Outcome:
        with self._lock:
            self._tables.setdefault(table, _Table(schema, record))
        return Outcome(self._tables[table].version, operation="CREATE")

    def prepare(self) -> None:
        """It always is ready."""

    def apply(
        self,
        table: str,
        batch: ChangeBatch,
        record: BatchRecord,
        snapshot: TableSnapshot | None = None,  # noqa: ARG002 - there is no other writer
    ) -> Outcome:
        self.create(table, batch.schema, creation_record(record))
        known, counted = self._tables[table], self.effects.setdefault(table, {})
        effects = known.book.add([_run_of(file) for file in batch.files])
        counted.update(zip((file.path for file in batch.files), effects, strict=True))
        known.schema, known.record, known.version = batch.schema, record, known.version + 1
        found = tuple(MatchCounts(effect.duplicate_inserts, effect.multi_row_changes) for effect in effects)
        return Outcome(known.version, found, "MERGE")

    def latest_external_change(self, table: str, since: int) -> int:  # noqa: ARG002 - there is no other writer
        return -1

    def make_durable(self, table: str, since: int) -> None:
        """Nothing is kept."""

    def drop(self, table: str) -> None:
        with self._lock:
            self._tables.pop(table, None)
            self.effects.pop(table, None)

    def row_count(self, table: str) -> int | None:
        known = self._tables.get(table)
        return known.book.row_count if known else None

    def rows(self, table: str, **_: object) -> pa.Table | None:
        """Never any.

        Raises:
            UsageError: it keeps no rows.
        """
        raise UsageError(f"{table}: the keys-only store keeps no rows")

    def history(self, table: str, *, limit: int | None = None) -> Sequence[HistoryEntry]:  # noqa: ARG002 - none is kept
        """None is kept."""
        return ()

    def maintain(
        self,
        table: str,  # noqa: ARG002 - nothing to do
        retention_hours: float,  # noqa: ARG002 - as above
        is_wanted: Callable[[], bool] = lambda: False,  # noqa: ARG002 - as above
    ) -> Mapping[str, Any]:
        """There is nothing to tidy up."""
        return {}

    def close(self) -> None:
        """Nothing is held."""


def _joined(parts: Sequence[NDArray[Any] | None], counts: Sequence[int], usual: np.generic) -> NDArray[Any] | None:
    """All parts in one, those of the usual value alone filled in; None where all are."""
    return None if all(part is None for part in parts) else filled(parts, counts, usual)


def _run_of(file: FileRows) -> KeySequence:
    if not isinstance(file.rows, KeyRows):
        raise TypeError("a KeyWriter takes rows of keys_only")
    return file.rows.run
