"""What a table's commits have applied: read from the newest commits, and from segments that cover the older ones.

A commit says what it has applied itself. Every so many commits, a segment is written before the next one, which names
it: a JSON file in a folder of the log, never changed.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from mirror_engine.errors import StorageUnavailable, TableDamaged
from mirror_engine.landing_zone.progress import Applied, typed
from mirror_engine.tables.log.durability import sync_folder
from mirror_engine.tables.log.record import FORMAT, carried, carried_from, from_metadata, last_checkpoint, read_commit
from mirror_engine.tables.log.table_path import LOG_FOLDER, create_file, file_in, for_each

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from mirror_engine.landing_zone.progress import Progress, Segment
    from mirror_engine.tables.base import BatchRecord, RecordHead, TableSnapshot
    from mirror_engine.tables.log.snapshot import DeltaLog
    from mirror_engine.tables.log.table_path import TablePath

_FOLDER = "_mirror_engine"  # in the log's
_NO_SEGMENT = (FileNotFoundError, KeyError, TypeError, ValueError, AttributeError, RecursionError)


def write_segment(folder: TablePath, segment: Segment, applied: Applied) -> None:
    """See `DeltaCommitter`."""
    for earlier in applied.segments:
        if not (folder / LOG_FOLDER / _FOLDER / earlier.name).exists():
            raise _missing(folder, earlier)
    file = folder / LOG_FOLDER / _FOLDER / segment.name
    content = json.dumps({"mirror_engine": FORMAT, **applied.to_json()}, ensure_ascii=False, separators=(",", ":"))
    try:
        create_file(file, content.encode())
        if isinstance(file, Path):
            sync_folder(file.parent)
            sync_folder(file.parent.parent)
    except OSError as error:
        message = f"{folder}: progress cannot be written: {error.strerror or error}"
        raise StorageUnavailable(message, "Check the disk and the rights on the folder.") from error


def applied_since(
    snapshot: TableSnapshot,
    known: Progress | None,
    segment_of: Callable[[Segment], Applied],
    records_of: Callable[[range], Iterable[BatchRecord | None]],
) -> Applied:
    """See `DeltaWriter`; the functions read a segment, and the records of versions."""
    if snapshot.record is None:
        return Applied()
    version, batch = (known.delta_version, known.batch) if known else (-1, 0)
    named = (snapshot.record.progress.segments or ())[-1:]
    newest = [segment_of(segment) for segment in named]
    older = newest[0].segments if newest else ()
    covered = snapshot.record.progress.covered
    parts = [segment_of(segment) for segment in older if segment.until > version]
    parts += newest if covered > version else []
    newer = applied_by_commits(snapshot.record, snapshot.version, max(version, covered), records_of, batch)
    files = {path: file for part in parts for path, file in part.files.items() if file.version > version or version < 0}
    marks = {place: mark for part in (*parts, newer) for place, mark in part.marks.items()}
    return Applied({**files, **newer.files}, marks, (*older, *named))


def applied_by_commits(
    record: RecordHead,
    newest: int,
    after: int,
    records_of: Callable[[range], Iterable[BatchRecord | None]],
    batch: int = 0,
) -> Applied:
    """What the commits of a record's generation after a version have applied, oldest first, up to the `newest`.

    Commits before the one that follows the `batch` are not read: another program's log cleanup may have taken them.

    Raises:
        TableDamaged: one that is needed is missing.
    """
    parts: list[Applied] = []
    versions = range(newest, after, -1)
    for version, made in zip(versions, records_of(versions), strict=True):
        if made and made.progress.generation == record.progress.generation:  # whatever the mirror is called
            parts.append(made.earlier or made.applied.with_each(version=version))  # a commit does not know its own
            if made.earlier or made.progress.batch == batch + 1:  # it says what all before it did, or that is known
                break
    # a segment knows etags better that changed with ROOT's place
    files = {path: file for part in parts[::-1] for path, file in part.files.items() if file.version > after}
    return Applied(files, {place: mark for part in parts[::-1] for place, mark in part.marks.items()})


def record_again(log: DeltaLog, *, with_earlier: bool = True) -> str:
    """The newest record, for a commit without files: log cleanup may delete the commit that carried it (LZ-4.18).

    With what the commits since the newest segment have applied, which may go, too.
    """
    record, version, metadata, _ = log.newest_record()
    if record is None:
        return ""
    earlier = None
    with suppress(TableDamaged):  # the ledger may still know
        if with_earlier:
            read = partial(read_records, log.folder)
            earlier = applied_by_commits(record, log.version, record.progress.covered, read)
    return carried(metadata, version, earlier)


def read_records(folder: TablePath, versions: range) -> Iterator[BatchRecord | None]:
    """Read the records of commits, without repeated ones; in a store several at once.

    Raises:
        StorageUnavailable: the newest one, which was there, is gone with its checkpoint: it came late, and was taken
            back (LZ-4.18).
        TableDamaged: another one is missing.
    """
    return for_each(folder, partial(_record_of, folder, versions.start), versions)


def _record_of(folder: TablePath, newest: int, version: int) -> BatchRecord | None:
    try:
        metadata = read_commit(folder, version).metadata
    except FileNotFoundError:
        if version == newest and last_checkpoint(folder)[0] < version:
            raise StorageUnavailable(f"{folder}: version {version} of its Delta log was taken back") from None
        fault = f"commit {version} of its Delta log, which lists the applied files, is missing"
        raise TableDamaged(folder, fault) from None
    record = from_metadata(metadata)
    is_repeated = record is not None and record.earlier is None and carried_from(metadata) is not None
    return None if is_repeated else record


def read_segment(folder: TablePath, segment: Segment) -> Applied:
    """What a segment says.

    Raises:
        TableDamaged: it is missing, or holds something else.
    """
    with suppress(*_NO_SEGMENT):
        value = json.loads(file_in(folder / LOG_FOLDER / _FOLDER, segment.name).read_bytes())
        if value["mirror_engine"] == FORMAT:
            found: Applied = typed(Applied, value)
            return found
    raise _missing(folder, segment)


def _missing(folder: TablePath, segment: Segment) -> TableDamaged:
    return TableDamaged(folder, f"{LOG_FOLDER}/{_FOLDER}/{segment.name}, which its log names, is missing or damaged")


def sweep_segments(folder: TablePath, named: Sequence[Segment], older_than_seconds: float) -> None:
    """Delete segments of this age that the newest record does not name, by itself or through its last one.

    Raises:
        TableDamaged: a segment that it names cannot be read.
    """
    names = {segment.name for newest in named[-1:] for segment in (newest, *read_segment(folder, newest).segments)}
    newest = named[-1].until if named else -1  # a later one is named by the next commit
    for file in (folder / LOG_FOLDER / _FOLDER).glob("*.json"):
        with suppress(OSError, StorageUnavailable, ValueError, IndexError):
            is_older = int(file.name.split("-")[1]) <= newest
            if (
                is_older
                and file.name not in names
                and time.time() - file.stat().st_mtime_ns / 1e9 >= older_than_seconds
            ):
                file.unlink()
