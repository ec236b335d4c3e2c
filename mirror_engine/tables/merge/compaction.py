"""Compaction and VACUUM without Spark: small and much-marked data files are rewritten, unused files are deleted."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import defaultdict
from contextlib import closing, suppress
from itertools import accumulate
from typing import TYPE_CHECKING, TypeVar

from mirror_engine.errors import TableDamaged
from mirror_engine.tables.log.commit import (
    add_action,
    commit_maintenance,
    indexed_columns,
    moved,
    remove_action,
    writing,
)
from mirror_engine.tables.log.data_files import FILE_ROWS, DataFiles
from mirror_engine.tables.log.data_rows import scan
from mirror_engine.tables.log.log_errors import reading_log
from mirror_engine.tables.log.table_file import places
from mirror_engine.tables.log.table_path import LOG_FOLDER, for_each
from mirror_engine.tables.log.vectors_in_use import removed_since
from mirror_engine.tables.reading.spill import scratch_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from mirror_engine.tables.log.data_files import WrittenFile
    from mirror_engine.tables.log.snapshot import DeltaLog
    from mirror_engine.tables.log.table_file import DataFile
    from mirror_engine.tables.log.table_path import TablePath

T = TypeVar("T")

SMALL_BYTES = 16 * 1024 * 1024  # a change may wait for it, so what is large already stays
_TARGET_BYTES = 128 * 1024 * 1024
_MUCH_MARKED = 10  # one row in so many
_CROWD = 8  # files of about one size
_FOLDED_BYTES = SMALL_BYTES // 2
_FOLDED_AT_ONCE = 64 * 1024 * 1024  # a change waits for it
_ROW_BYTES = 32  # at least, however well rows are compressed
_SIZE_BITS = 3  # the largest of about one size is so many powers of two larger than the smallest


def compact(
    table: str, log: DeltaLog, groups: Iterable[Sequence[DataFile]], scratch: Path, user_metadata: str | None = None
) -> tuple[int, Sequence[DataFile]]:
    """Rewrite each group of data files into new ones. Groups share commits, which carry `user_metadata`.

    Returns how many data files came, and which went.
    """
    added = 0
    removed: list[DataFile] = []
    for some in _packed(groups, lambda group: sum(file.size for file in group)):  # of many partitions
        with scratch_errors():
            files = [file for group in some for file in write_together(log, group, scratch)]
        columns = indexed_columns(log.configuration, log.schema, log.physical_names)
        old = [file for group in some for file in group]
        gone = [remove_action(log, file, changes_rows=False) for file in old]
        come = [add_action(file, columns, changes_rows=False) for file in files]
        made = log.version + 1
        with moved(table, log.folder, files):
            commit_maintenance(log, "OPTIMIZE", user_metadata, [*gone, *come])
        added, removed = added + len(files), [*removed, *old]
        log.move_on()
        if log.version != made:
            break  # another program's commit may have changed the other groups
    return added, removed


def _packed(items: Iterable[T], size_of: Callable[[T], int]) -> Iterator[Sequence[T]]:
    """Group items in order, up to the size of a large data file; a larger item is alone."""
    pack: list[T] = []
    size = 0
    for item in items:
        more = size_of(item)
        if pack and size + more > _TARGET_BYTES:
            yield pack
            pack, size = [], 0
        pack.append(item)
        size += more
    if pack:
        yield pack


def write_together(log: DeltaLog, group: Sequence[DataFile], scratch: Path) -> Sequence[WrittenFile]:
    """Write the rows that are left in data files of one partition into new ones."""
    with closing(DataFiles(scratch, list(log.fields.values()), log.schema.partition_columns)) as written:
        for rows in scan(log, group, log.schema.names):
            written.add(rows)
        return written.finish()


def crowded(files: Sequence[DataFile]) -> Sequence[Sequence[DataFile]]:
    """Small data files of about one size, in one partition, where there are several: each commit adds one.

    What they become is larger, so that a row is written anew a few times only, and some dozens of files stay. Groups
    beyond `_FOLDED_AT_ONCE` bytes wait for the next time, those of the smallest files come first.
    """
    by_size: dict[tuple[int, tuple[str | None, ...]], list[DataFile]] = defaultdict(list)
    for file in files:
        if file.size < _FOLDED_BYTES:
            by_size[file.size.bit_length() // _SIZE_BITS, tuple(file.partition.values())].append(file)
    found: list[Sequence[DataFile]] = []
    left = _FOLDED_AT_ONCE
    for group in sorted(by_size.values(), key=lambda group: group[0].size):
        sizes = [*accumulate(max(file.size, _ROW_BYTES * (file.rows or 0)) for file in group)]
        taken = group[: bisect_right(sizes, left)]
        if len(taken) >= _CROWD and _becomes_fewer(taken):
            found.append(taken)
            left -= sizes[len(taken) - 1]
    return found


def small_and_marked(files: Sequence[DataFile]) -> Iterator[Sequence[DataFile]]:
    """Small data files of one partition, together as much as a large one, and those of which many rows are gone."""
    by_partition: dict[tuple[str | None, ...], list[DataFile]] = defaultdict(list)
    for file in files:
        if file.size < SMALL_BYTES or _is_much_marked(file):
            by_partition[tuple(file.partition.values())].append(file)
    for candidates in by_partition.values():
        for group in _packed(sorted(candidates, key=lambda file: file.size), lambda file: file.size):
            if _becomes_fewer(group) or any(map(_is_much_marked, group)):
                yield group


def _becomes_fewer(group: Sequence[DataFile]) -> bool:
    """Whether rewriting gives fewer files: a file has a maximum number of rows, however small they are."""
    return -(-sum(file.rows or 0 for file in group) // FILE_ROWS) < len(group)


def _is_much_marked(file: DataFile) -> bool:
    marked = file.vector["cardinality"] if file.vector else 0
    return bool(marked * _MUCH_MARKED >= (file.rows or 0)) and marked > 0


def vacuum(table: str, log: DeltaLog, retention_hours: float) -> None:
    """Delete data files and deletion vectors that no version within the retention uses and that are older than it."""
    oldest = time.time() - retention_hours * 3600
    with reading_log(log.folder):
        files = log.data_files()
        removed = removed_since(log.folder, log.version, oldest)
        kept = [place for file in files for place in file.places]
    for path, vector, _ in removed:
        with suppress(TableDamaged):  # outside of the folder, so not deleted either
            kept += places(log.folder, path, vector)
    depth = len(log.folder.parts)
    needed = {place.parts[depth:] for place in kept}  # a log may spell one file in several ways

    def delete(file: TablePath) -> None:
        with suppress(FileNotFoundError):
            if file.stat().st_mtime_ns / 1e9 < oldest:
                file.unlink(missing_ok=True)

    with writing(table, log.folder):
        there = [file for pattern in ("*.parquet", "deletion_vector_*.bin") for file in log.folder.rglob(pattern)]
        parts = [(file, file.parts[depth:]) for file in there]
        data = [(file, parts) for file, parts in parts if parts[0] not in {LOG_FOLDER, "_change_data"}]
        list(for_each(log.folder, delete, [file for file, parts in data if parts not in needed]))
