"""The ledger: a disposable progress cache in SQLite, rebuilt from the Delta logs if lost."""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
import threading
import uuid
from dataclasses import astuple, replace
from typing import TYPE_CHECKING, Any

from mirror_engine.errors import StorageUnavailable
from mirror_engine.landing_zone.names import TableName
from mirror_engine.landing_zone.progress import AppliedFile, Progress

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_SCHEMA_VERSION = 3
MIRROR, ROOT_IDENTITY, NEXT_POLL, SCAN_REQUESTS = "mirror_id", "root_identity", "next_scan", "scan_requests"
_FAILURES = "failures"
# messages about the disk, not the file; Python has the codes only from 3.11 on
_DISK_TROUBLE = re.compile(
    r"database or disk is full|disk I/O error|attempt to write a readonly|unable to open|database is locked"
)
_DAMAGED = (sqlite3.DatabaseError, ValueError, RecursionError)
_APPLIED_TYPES = (str, str, str, int, int, int, str, str)  # of a path, and of the fields of `AppliedFile`
_SCHEMA = """
CREATE TABLE IF NOT EXISTS properties (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS tables (
    schema_folder TEXT, table_folder TEXT, progress TEXT NOT NULL, PRIMARY KEY (schema_folder, table_folder));
CREATE TABLE IF NOT EXISTS applied (
    schema_folder TEXT, table_folder TEXT, path TEXT, etag TEXT, digest TEXT, version INTEGER, rows INTEGER,
    modified_ns INTEGER, applied_by TEXT NOT NULL, passthrough_skipped_because TEXT NOT NULL,
    PRIMARY KEY (schema_folder, table_folder, path));
"""


class Ledger:
    """The progress of every table of one mirror.

    Every change is one SQLite transaction; all methods may be called from any thread. The Delta logs are the truth:
    a ledger that is behind them is reconciled when the engine starts. A change that cannot be written raises
    `StorageUnavailable` and has no effect.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._lock = threading.RLock()
        with self._lock:
            self._known = dict(self._load())

    @classmethod
    def open(cls, path: Path) -> Ledger:
        """Open or make the ledger; one that is damaged or of another format is renamed, and an empty one made.

        Raises:
            StorageUnavailable: the disk is full, read-only or failing, which says nothing about the ledger.
        """
        with _disk_trouble():
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                return cls(_connect(str(path)))
            except _DAMAGED as fault:
                if _DISK_TROUBLE.match(str(fault)):
                    raise
                for leftover in path.parent.glob(f"{path.name}*"):
                    leftover.replace(leftover.with_name(f"damaged-{leftover.name}"))
                return cls(_connect(str(path)))

    @classmethod
    def fresh(cls) -> Ledger:
        """Return an empty ledger in memory."""
        return cls(_connect(":memory:"))

    @classmethod
    def read(cls, path: Path) -> Ledger:
        """Return a copy of the ledger while an engine may be writing; an empty one where there is none."""
        copy = _connect(":memory:")
        is_open = path.with_name(f"{path.name}-wal").exists()
        how = "mode=ro" if is_open else "mode=ro&immutable=1"  # else SQLite would make files to read next to a writer
        if path.exists():
            with (
                contextlib.suppress(sqlite3.DatabaseError),
                contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True)) as stored,
            ):
                stored.backup(copy)
        try:
            return cls(copy)
        except _DAMAGED:
            return cls.fresh()

    @staticmethod
    def discard(path: Path) -> None:
        """Remove the ledger: another machine's engine has run since it was written."""
        with _disk_trouble():
            for file in path.parent.glob(f"{path.name}*"):
                file.unlink()

    @property
    def mirror(self) -> str:
        """The id of this mirror, random, made at first use."""
        with self._lock:
            found = self.get_property(MIRROR)
            if not found:
                found = uuid.uuid4().hex
                self.set_property(MIRROR, found)
            return found

    def get_property(self, name: str) -> str:
        """Return a property of the mirror as a whole; `""` where it was never set."""
        with self._lock:
            row = self._connection.execute("SELECT value FROM properties WHERE name = ?", (name,)).fetchone()
        return row[0] if row else ""

    def set_property(self, name: str, value: str) -> None:
        """Set a property of the mirror as a whole; nothing is written where it has that value."""
        with self._lock, _disk_trouble(), self._connection:
            if self.get_property(name) != value:
                self._connection.execute("INSERT OR REPLACE INTO properties VALUES (?, ?)", (name, value))

    def failures(self) -> Mapping[str, Mapping[str, Any]]:
        """Return why tables are tried again, by landing folder, `""` for the zone: code, message and help of each."""
        with contextlib.suppress(ValueError):
            found: Mapping[str, Mapping[str, Any]] = json.loads(self.get_property(_FAILURES))
            return found
        return {}

    def set_failures(self, failures: Mapping[str, Mapping[str, Any]]) -> None:
        """Replace them."""
        self.set_property(_FAILURES, json.dumps(failures) if failures else "")

    def tables(self) -> Mapping[TableName, Progress]:
        """Return the progress of all known tables."""
        with self._lock:
            return dict(self._known)

    def progress(self, table: TableName) -> Progress | None:
        """Return the progress of a table; None for an unknown one."""
        with self._lock:
            return self._known.get(table)

    def record(self, table: TableName, progress: Progress) -> None:
        """Store the progress of a table, in one transaction."""
        place = (table.schema, table.table)
        with self._lock:
            before = self._known.get(table)
            kept = before.applied if before and before.generation == progress.generation else {}
            with _disk_trouble(), self._connection:
                if not kept or not kept.keys() <= progress.applied.keys():
                    kept = {}
                    self._connection.execute("DELETE FROM applied WHERE schema_folder = ? AND table_folder = ?", place)
                self._connection.executemany(
                    "INSERT OR REPLACE INTO applied VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (
                        (*place, path, *astuple(file))
                        for path, file in progress.applied.items()
                        if kept.get(path) != file
                    ),
                )
                head = json.dumps(replace(progress, applied={}).to_json())
                self._connection.execute("INSERT OR REPLACE INTO tables VALUES (?, ?, ?)", (*place, head))
            self._known[table] = progress  # only after the transaction

    def forget(self, table: TableName) -> None:
        """Forget a table; an unknown one is no error."""
        place = (table.schema, table.table)
        with self._lock:
            with _disk_trouble(), self._connection:
                for name in ("applied", "tables"):
                    self._connection.execute(f"DELETE FROM {name} WHERE schema_folder = ? AND table_folder = ?", place)  # noqa: S608 - two names of our own
            self._known.pop(table, None)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    def _load(self) -> Iterator[tuple[TableName, Progress]]:
        applied: dict[TableName, dict[str, AppliedFile]] = {}
        for schema, table, path, *file in self._connection.execute("SELECT * FROM applied"):
            if tuple(map(type, (path, *file))) != _APPLIED_TYPES:
                raise ValueError("no applied file")
            applied.setdefault(TableName(schema, table), {})[path] = AppliedFile(*file)
        for schema, table, head in self._connection.execute("SELECT * FROM tables"):
            if not (isinstance(schema, str) and isinstance(table, str) and isinstance(head, str)):
                raise ValueError("no table")  # noqa: TRY004 - the file is wrong, not its reader
            name = TableName(schema, table)
            yield name, replace(Progress.from_json(json.loads(head)), applied=applied.get(name, {}))


def _connect(path: str) -> sqlite3.Connection:
    """A connection to a ledger of our format.

    Raises:
        ValueError: the file is a ledger of another format.
        sqlite3.DatabaseError: it is damaged, or no ledger.
    """
    connection = sqlite3.connect(path, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        _check(connection)
        connection.executescript(f"{_SCHEMA}PRAGMA user_version = {_SCHEMA_VERSION};")
    except BaseException:
        connection.close()
        raise
    return connection


@contextlib.contextmanager
def _disk_trouble() -> Iterator[None]:
    try:
        yield
    except (sqlite3.OperationalError, OSError) as fault:
        message = f"cannot write the ledger: {getattr(fault, 'strerror', None) or fault}"
        raise StorageUnavailable(
            message, "Free disk space and check permissions; a damaged ledger can be deleted."
        ) from fault


def _check(connection: sqlite3.Connection) -> None:
    found = connection.execute("PRAGMA user_version").fetchone()[0]
    if found not in {0, _SCHEMA_VERSION}:
        raise ValueError(f"a ledger of format {found}, not {_SCHEMA_VERSION}")
    health = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if health != "ok":
        raise sqlite3.DatabaseError(health)
