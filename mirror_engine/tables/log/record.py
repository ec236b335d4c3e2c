"""The record that a commit carries in `userMetadata`: a `BatchRecord` as JSON; and commits, read from their JSON.

Files come last in a record: most readers need its head alone, and a commit may have thousands of files.
"""

from __future__ import annotations

import itertools
import json
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from mirror_engine._version import __version__
from mirror_engine.errors import REBUILD_COMMAND, CommitConflict, TableDamaged
from mirror_engine.landing_zone.progress import Applied, Progress, typed
from mirror_engine.results import utc
from mirror_engine.tables.base import BatchRecord, HistoryEntry, RecordHead
from mirror_engine.tables.log.log_names import checkpoint_names, commit_name, log_file
from mirror_engine.tables.log.table_path import HINT, LOG_FOLDER, StorePath
from mirror_engine.tables.log.vectors import vector_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from mirror_engine.tables.base import Way
    from mirror_engine.tables.log.table_path import TablePath
    from mirror_engine.tables.log.vectors import Descriptor

T = TypeVar("T", str, bytes)
R = TypeVar("R")
ENGINE = "mirror_engine/"
ENGINE_INFO = f"{ENGINE}{__version__}"
FORMAT = 4
_FORMAT_KEY = "mirror_engine"
_DECODER = json.JSONDecoder()
_KEPT, _KEPT_SIZE = 128, 16 * 1024  # commits and records, each of so many bytes or characters at most
_CARRIED_KEY, _EARLIER_KEY = "version", "earlier"
_NO_RECORD = (KeyError, TypeError, ValueError, AttributeError, RecursionError)


def _kept_where_short(read: Callable[[T], R]) -> Callable[[T], R]:
    """Cache the last parsed metadata of usual size: each step until the next commit reads it again."""
    kept = lru_cache(maxsize=_KEPT)(read)
    return lambda text: kept(text) if len(text) <= _KEPT_SIZE else read(text)


def to_metadata(record: BatchRecord) -> str:
    """The `userMetadata` of the commit that holds the record's files."""
    content = {
        **({"plan": record.merge_plan} if record.merge_plan else {}),
        _FORMAT_KEY: FORMAT,
        "mirror": record.mirror,
        "root_identity": record.root_identity,
        "folder": record.folder,
        "progress": record.progress.to_json(),
        **record.applied.to_json(),
        **({_EARLIER_KEY: record.earlier.to_json()} if record.earlier else {}),
    }
    return _json(content)


def is_ours(information: Mapping[str, object]) -> bool:
    """Whether this engine made a commit: it carries a record or the engine's name."""
    engine = str(information.get("engineInfo") or "")
    return engine.startswith(ENGINE) or head_of(information.get("userMetadata")) is not None


def carried(metadata: str, version: int, earlier: Applied | None) -> str:
    """A version's record, said again in a later commit without files: log cleanup may take the first (LZ-4.18).

    `earlier`: what the commits since the newest segment have applied, which may go with it; None if that is not known.
    """
    more = {_EARLIER_KEY: earlier.to_json()} if earlier else {}
    return _json({_CARRIED_KEY: version, **json.loads(metadata), **more})


def _json(content: Mapping[str, Any]) -> str:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))


def head_of(metadata: object) -> RecordHead | None:
    """The head of the record in a commit's `userMetadata`; None if there is none, or another program's text.

    Raises:
        TableDamaged: the record has another format.
    """
    return _head_of(metadata) if isinstance(metadata, str) else None


@_kept_where_short
def _head_of(metadata: str) -> RecordHead | None:
    value = _head(metadata)
    try:
        if isinstance(found := value[_FORMAT_KEY], int) and found != FORMAT:
            raise TableDamaged(
                "userMetadata",
                f"its progress has format {found}, this version of mirror-engine reads {FORMAT}",
                f"use the version of mirror-engine that wrote it, or rebuild the table: {REBUILD_COMMAND}",
            )
        mirror, root_identity, folder = (typed(str, value[name]) for name in ("mirror", "root_identity", "folder"))
        return RecordHead(mirror, root_identity, Progress.from_json(value["progress"]), folder)
    except _NO_RECORD:
        return None


def from_metadata(metadata: object) -> BatchRecord | None:
    """The record in a commit's `userMetadata`; None if there is none, or another program's text.

    Raises:
        TableDamaged: the record has another format, or does not say which files were applied.
    """
    head = head_of(metadata)
    if head is None:
        return None
    try:
        value = json.loads(str(metadata))
        plan, earlier = str(value.get("plan", "")), value.get(_EARLIER_KEY)
        more = None if earlier is None else typed(Applied, earlier)
        applied = typed(Applied, value)
    except _NO_RECORD:
        raise TableDamaged("userMetadata", "the record of a commit does not say which files it applied") from None
    return BatchRecord(head.mirror, head.root_identity, head.progress, head.folder, applied, plan, more)


def carried_from(metadata: object) -> int | None:
    """The version whose record a commit says again; None for a commit that holds its own."""
    version = _head(metadata).get(_CARRIED_KEY)
    return version if isinstance(version, int) else None


def _head(metadata: object) -> Mapping[str, Any]:
    """What the text of a record says before its files; of another program's text, which need not be JSON, anything."""
    found: dict[str, Any] = {}
    if isinstance(metadata, str) and metadata.startswith("{") and _FORMAT_KEY in metadata:
        at = 1
        with suppress(ValueError, TypeError, RecursionError):
            while "progress" not in found:
                name, at = _DECODER.raw_decode(metadata, at)
                found[name], at = _DECODER.raw_decode(metadata, at + 1)  # each is followed by one `:` or `,`
                at += 1
    return found


def now_ms() -> int:
    """The time a commit says it was made: milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def _time_of(timestamp: object) -> datetime:
    """The time that a commit says, in milliseconds since 1970; 1970 where it says none, or one that no calendar has."""
    with suppress(OverflowError):
        return utc(timestamp / 1000 if isinstance(timestamp, int) else 0)
    return utc(0)


def history_entry(version: int, commit: Mapping[str, Any], files_added: int = 0) -> HistoryEntry:
    """A commit as an entry of its table's history, by what its `commitInfo` says."""
    operation, metadata = str(commit.get("operation") or ""), commit.get("userMetadata")
    timestamp = commit.get("inCommitTimestamp", commit.get("timestamp"))
    record = from_metadata(metadata) if carried_from(metadata) is None else None
    applied = record.applied.files if record else {}
    return HistoryEntry(
        version,
        _time_of(timestamp),
        operation,
        tuple(applied),
        rows=sum(file.rows for file in applied.values()),
        files_added=files_added,
        engine=str(commit.get("engineInfo") or "") or None,
        metrics={name: str(value) for name, value in (commit.get("operationMetrics") or {}).items()},
        merge_plan=(record.merge_plan or None) if record else None,
        applied_by=cast("Way | None", next((file.applied_by for file in applied.values()), "") or None),
        passthrough_skipped_because={
            path: file.passthrough_skipped_because for path, file in applied.items() if file.passthrough_skipped_because
        },
    )


def creation_record(record: BatchRecord) -> BatchRecord:
    """The record of the commit that makes an empty table: its generation has begun, nothing is applied."""
    after = record.progress
    begun = Progress(after.generation, after.identity, after.batch - 1, configured_at=after.configured_at)
    return replace(record, progress=begun, applied=Applied())


def refuse_repeated(table: str, record: BatchRecord, known: int | None) -> None:
    """Check that a batch was not committed before (exactly-once), in an existing table (LZ-4.18).

    `known` is the newest transaction version of the record's application in the table; None for none.

    Raises:
        CommitConflict: the table has this batch, or a later one; or another program made it since there was none.
    """
    if known is None and record.progress.delta_version < 0:
        raise CommitConflict(
            f"{table}: another program made a table there",
            "The next cycle reads the table's state again; move a table of another program elsewhere.",
        )
    if known is not None and known >= record.progress.batch:
        raise CommitConflict(
            f"{table}: batch {record.progress.batch} is already in the table, which is at batch {known}",
            "The next cycle reads the table's state again.",
        )


def refuse_another(table: str, record: BatchRecord, newest: RecordHead | None) -> None:
    """Check that a table without an earlier snapshot is in its own engine's state: nobody else was first (LZ-4.18).

    `newest` is the newest record in the table.

    Raises:
        CommitConflict: it is not the one of the batch before.
    """
    expected = record.application, record.progress.batch - 1
    if newest is None or (newest.application, newest.progress.batch) != expected:
        raise CommitConflict(
            f"{table}: another program or engine committed there first",
            "The next cycle reads the table's state again; move a table of another program elsewhere.",
        )


class Removed(NamedTuple):
    """A data file that a commit removed."""

    path: str  # as the log spells it
    vector: Descriptor | None  # that it had
    deleted_ms: int | None  # milliseconds since 1970; None where it is not said


@dataclass
class Commit:
    """One commit."""

    # what it says of itself (`commitInfo`); empty where it says nothing
    information: Mapping[str, Any] = field(default_factory=dict)
    changes_rows: bool = False  # whether rows were added, changed or removed
    describes: bool = False  # whether it says what the table is: columns, properties, or the features that readers need
    added: dict[str, Mapping[str, Any]] = field(default_factory=dict)  # actions that add data files, by path
    removed: dict[str, Removed] = field(default_factory=dict)  # data files it removes, by path
    change_data: dict[str, int] = field(default_factory=dict)  # sizes of files of the change data feed, by path
    vectors: dict[str, Descriptor] = field(default_factory=dict)  # of the data files it adds that have one

    @property
    def metadata(self) -> object:
        """Its `userMetadata`; None for none."""
        return self.information.get("userMetadata")

    @property
    def moves_files_alone(self) -> bool:
        """Whether this engine made the commit, and it changes only data files and progress."""
        return str(self.information.get("engineInfo")).startswith(ENGINE) and not self.describes


def commit_file(folder: TablePath, version: int) -> TablePath:
    """The path of a commit in its table's folder."""
    return folder / f"{LOG_FOLDER}/{commit_name(version)}"  # one step: a start asks for thousands


def read_commit(folder: TablePath, version: int) -> Commit:
    """A commit as its lines say.

    Raises:
        FileNotFoundError: there is none of that version.
        TableDamaged: it is no commit.
    """
    content = commit_file(folder, version).read_bytes()
    try:
        return _commit_of(content)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise _cut_off(folder, version) from None


@_kept_where_short
def _commit_of(content: bytes) -> Commit:
    """The commit whose lines these are."""
    found = Commit()
    for line in content.splitlines():
        actions = json.loads(line)
        for kind, action in actions.items() if isinstance(actions, dict) else ():
            if kind == "commitInfo" and isinstance(action, dict):
                found.information = action
            elif kind in {"metaData", "protocol"}:
                found.describes = True
            elif kind == "add":
                _ = action["size"]  # what has none is no action
                found.added[action["path"]] = action
                found.changes_rows |= action.get("dataChange", True)
                found.vectors |= _vector(action)
            elif kind == "remove":
                path, when = action["path"], action.get("deletionTimestamp")
                found.removed[path] = Removed(path, action.get("deletionVector"), when)
                found.changes_rows |= action.get("dataChange", True)
            elif kind == "cdc":
                found.change_data[action["path"]] = action["size"]
    if not content:
        raise ValueError("empty")
    return found


def _vector(action: Mapping[str, Any]) -> dict[str, Descriptor]:
    """The deletion vector of the data file that an action adds, by the file's path; ValueError for a wrong name."""
    if vector := action.get("deletionVector"):
        vector_file(vector)
        return {action["path"]: vector}
    return {}


def _cut_off(folder: TablePath, version: int) -> TableDamaged:
    fault = f"commit {version} of its Delta log is cut off or damaged"
    file = commit_file(folder, version)
    named = (log_file(entry.name) for entry in (folder / LOG_FOLDER).iterdir())
    has_checkpoint = any(found and found.version == version and not found.is_commit for found in named)
    if has_checkpoint or commit_file(folder, version + 1).exists():
        return TableDamaged(folder, fault)
    return TableDamaged(
        folder,
        fault,
        f"Restore the table's folder from a backup, or rebuild the table: {REBUILD_COMMAND}. If its change files are "
        f"still in the table folder, it is enough to delete _delta_log/{file.name}: they are applied again.",
    )


def commits_in(folder: TablePath) -> Sequence[int]:
    """The versions whose commits are still there, in order."""
    named = (log_file(file.name) for file in (folder / LOG_FOLDER).glob("*.json"))
    return sorted(found.version for found in named if found and found.is_commit)


def commits_from(folder: TablePath, version: int) -> Iterator[tuple[int, str]]:
    """The commits from a version on, each with its version and `stamp`; those deleted by log cleanup are left out.

    In a store they are listed.
    """
    files: Iterable[TablePath] = (commit_file(folder, each) for each in itertools.count(version))
    if isinstance(folder, StorePath):
        listed = (folder / LOG_FOLDER).rglob("*.json", f"{version:020}")
        files = (file for file in listed if (named := log_file(file.name)) and named.is_commit)
    is_first = True
    with suppress(FileNotFoundError):
        for file in files:
            yield int(file.stem), stamp(file)
            is_first = False
    if is_first and version and not isinstance(folder, StorePath) and not commit_file(folder, version - 1).exists():
        with suppress(FileNotFoundError):
            yield from ((each, stamp(commit_file(folder, each))) for each in commits_in(folder) if each >= version)


def stamp(commit: TablePath) -> str:
    """What distinguishes a commit from another of its version: version, size, and in a store the ETag, else the time.

    Raises:
        FileNotFoundError: there is none of that version.
    """
    status = commit.stat()
    return f"{int(commit.stem)} {status.st_size} {getattr(status, 'etag', '') or status.st_mtime_ns}"


def newest_commit(folder: TablePath) -> int:
    """The newest version, or -1: looked for from the last checkpoint on; the log is listed only if that fails."""
    newest = max(commits_from(folder, last_checkpoint(folder)[0]), default=(-1, ""))[0]
    return newest if newest >= 0 else max(commits_in(folder), default=-1)


def last_checkpoint(folder: TablePath) -> tuple[int, Sequence[str]]:
    """The version of the newest checkpoint, as the log hints at it, and its files' names; 0 and none without a hint."""
    with suppress(FileNotFoundError, OverflowError, *_NO_RECORD):
        hint = json.loads((folder / LOG_FOLDER / HINT).read_bytes())
        version, parts = int(hint["version"]), int(hint.get("parts") or 0)
        own_name = (hint.get("v2Checkpoint") or {}).get("path")
        return version, [own_name] if own_name and not parts else checkpoint_names(version, parts)
    return 0, ()


def commits_after(folder: TablePath, version: int) -> Iterator[tuple[int, Commit]]:
    """Every commit after a version, in order; those deleted by log cleanup are left out."""
    following = version + 1
    with suppress(FileNotFoundError):
        try:
            commit = read_commit(folder, following)
        except FileNotFoundError:
            if last_checkpoint(folder)[0] <= version and commit_file(folder, version).exists():
                return  # nothing after it was cleaned up: it is the newest
            following = min((each for each in commits_in(folder) if each > version), default=following)
            commit = read_commit(folder, following)
        while True:
            yield following, commit
            following += 1
            commit = read_commit(folder, following)
