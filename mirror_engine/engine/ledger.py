"""The ledger: a disposable progress cache in SQLite, rebuilt from the Delta logs if lost."""

from __future__ import annotations

import contextlib
import json
import math
import re
import sqlite3
import threading
import uuid
from dataclasses import astuple, dataclass, fields
from typing import TYPE_CHECKING, Any, TypeVar

from mirror_engine.errors import StorageUnavailable
from mirror_engine.landing_zone.listing import partition_of
from mirror_engine.landing_zone.names import TableName
from mirror_engine.landing_zone.progress import Applied, AppliedFile, FolderProgress, Mark, Progress

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from pathlib import Path

T = TypeVar("T", AppliedFile, Mark)

_NOTHING, _NO_ETAGS = Applied(), dict[str, "str | None"]()

_SCHEMA_VERSION = 5
MIRROR, ROOT_IDENTITY, NEXT_POLL, SCAN_REQUESTS = "mirror_id", "root_identity", "next_scan", "scan_requests"
_FAILURES, _HALTS = "failures", "halts"
# messages about the disk, not the file; Python has the codes only from 3.11 on
_DISK_TROUBLE = re.compile(
    r"database or disk is full|disk I/O error|attempt to write a readonly|unable to open|database is locked"
)
_DAMAGED = (sqlite3.DatabaseError, ValueError, TypeError, RecursionError)
_TYPES = {
    kind: tuple({"str": str, "int": int}[str(field.type)] for field in fields(kind)) for kind in (AppliedFile, Mark)
}
# Heads are read at the start, of all other tables only rows that are asked for
_SCHEMA = """
CREATE TABLE IF NOT EXISTS properties (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS tables (
    id INTEGER PRIMARY KEY, schema_folder TEXT, table_folder TEXT, progress TEXT NOT NULL,
    UNIQUE (schema_folder, table_folder));
CREATE TABLE IF NOT EXISTS applied (
    table_id INTEGER, path TEXT, partition TEXT, etag TEXT, digest TEXT, version INTEGER, rows INTEGER,
    modified_ns TEXT, applied_by TEXT, passthrough_skipped_because TEXT, PRIMARY KEY (table_id, path));
CREATE INDEX IF NOT EXISTS applied_content ON applied (table_id, digest, partition, version) WHERE rows > 0;
CREATE INDEX IF NOT EXISTS applied_version ON applied (table_id, version);
CREATE TABLE IF NOT EXISTS marks (
    table_id INTEGER, partition TEXT, version INTEGER, watermark TEXT, number TEXT, highest TEXT, modified_ns TEXT,
    latest TEXT, PRIMARY KEY (table_id, partition)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS pending (
    table_id INTEGER, path TEXT, etag TEXT NOT NULL, PRIMARY KEY (table_id, path)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS archives (table_id INTEGER PRIMARY KEY, swept_at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS archived (
    table_id INTEGER, path TEXT, ready_at REAL NOT NULL, PRIMARY KEY (table_id, path)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS archived_time ON archived (table_id, ready_at);
CREATE TABLE IF NOT EXISTS maintained (table_id INTEGER PRIMARY KEY, version INTEGER NOT NULL);
"""
_AMONG = " AND {} IN (SELECT value FROM json_each(?))"
_OF_A_TABLE = ("applied", "marks", "pending", "archives", "archived", "maintained")


class Ledger:
    """The stored progress of all tables of one mirror.

    Every change is one SQLite transaction; all methods may be called from any thread. The Delta logs are the truth:
    a ledger that is behind them is reconciled when the engine starts. A change that cannot be written raises
    `StorageUnavailable` and has no effect.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path | None = None, *, is_copy: bool = False) -> None:
        self._connection = connection
        self._path = path
        self._is_shared = is_copy  # the rows are still those of the file, which stays as it is
        self._lock = threading.RLock()
        self._ids: dict[TableName, int] = {}
        self._folders: dict[TableName, _Folder] = {}
        # Whether it was found damaged, and is empty: nothing is recorded before the logs have been read again
        self.is_lost = False
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
                return cls(_connect(str(path)), path)
            except _DAMAGED as fault:
                if _DISK_TROUBLE.match(str(fault)):
                    raise
                _put_aside(path)
                return cls(_connect(str(path)), path)

    @classmethod
    def fresh(cls) -> Ledger:
        """Return an empty ledger in memory."""
        return cls(_connect(":memory:"))

    @classmethod
    def read(cls, path: Path) -> Ledger:
        """Return the current ledger, even while an engine writes it; an empty one if there is none yet.

        What is changed here is changed in a copy in memory, which is made only then.
        """
        is_open = path.with_name(f"{path.name}-wal").exists()
        how = "mode=ro" if is_open else "mode=ro&immutable=1"  # else SQLite would make files to read next to a writer
        if path.exists():
            with contextlib.suppress(*_DAMAGED):
                stored = sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True, check_same_thread=False)
                try:
                    stored.execute("BEGIN")  # all that is read is of one moment
                    if _check(stored):
                        return cls(stored, is_copy=True)
                except BaseException:
                    stored.close()
                    raise
                stored.close()
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
        rows = self._rows("SELECT value FROM properties WHERE name = ?", name)
        return str(rows[0][0]) if rows else ""

    def set_property(self, name: str, value: str) -> None:
        """Set a property of the mirror as a whole; unchanged values are not written."""
        with self._lock:
            if self.get_property(name) != value:
                with self._transaction() as connection:
                    connection.execute("INSERT OR REPLACE INTO properties VALUES (?, ?)", (name, value))

    def failures(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the failures that wait for a retry, by landing folder (`""`: the zone): code, message and help."""
        with contextlib.suppress(ValueError):
            found: Mapping[str, Mapping[str, Any]] = json.loads(self.get_property(_FAILURES))
            return found
        return {}

    def set_failures(self, failures: Mapping[str, Mapping[str, Any]]) -> None:
        """Replace them."""
        self.set_property(_FAILURES, json.dumps(failures) if failures else "")

    def halts(self) -> Mapping[str, tuple[str, str]]:
        """Return which tables were reported as halted: code and path of each, by landing folder."""
        with contextlib.suppress(ValueError, TypeError, AttributeError):
            found = json.loads(self.get_property(_HALTS))
            return {str(folder): (str(code), str(path)) for folder, (code, path) in found.items()}
        return {}

    def set_halts(self, halts: Mapping[str, tuple[str, str]]) -> None:
        """Replace them."""
        self.set_property(_HALTS, json.dumps(halts) if halts else "")

    def tables(self) -> Mapping[TableName, Progress]:
        """Return the progress of all known tables."""
        with self._lock:
            return dict(self._known)

    def progress(self, table: TableName) -> Progress | None:
        """Return the progress of a table; None for an unknown one."""
        with self._lock:
            return self._known.get(table)

    def folder(self, table: TableName, paths: Collection[str]) -> FolderProgress:
        """Return what is known about the listed files of a table folder; only files listed anew are looked up."""
        with self._lock:
            self.check()
            known, listed = self._folders.get(table), {*paths}
            anew = listed - known.asked if known else listed
            if known is None or (anew and self.applied(table, anew)):  # then all of them, for their order
                waiting = self._rows("SELECT path, etag FROM pending WHERE table_id = ?", self._ids.get(table, -1))
                known = _Folder(listed, dict(self.marks(table)), dict(self.applied(table, listed)), dict(waiting))
                if table in self._known:  # nothing ever forgets another one
                    self._folders[table] = known
            else:
                known.keep(listed)
            return FolderProgress({**known.marks}, {**known.applied}, {**known.pending})

    def applied(
        self, table: TableName, paths: Collection[str] | None = None, *, after: int | None = None, newest: int = 0
    ) -> Mapping[str, AppliedFile]:
        """Return applied files of a table by path, oldest first.

        All of them, those of these `paths`, those `after` a version, or the `newest` ones, the last one first.
        """
        values: list[object] = [self._ids.get(table, -1)]
        sql = f"SELECT {_APPLIED} FROM applied WHERE table_id = ?"  # noqa: S608 - our columns
        if paths is not None:
            sql, values = sql + _AMONG.format("path"), [*values, json.dumps([*paths])]
        elif after is not None:
            sql, values = f"{sql} AND version > ?", [*values, after]
        # `+`: else SQLite walks all versions in their order, to look for the paths
        order = "ORDER BY +version, rowid" if paths is not None else "ORDER BY version, rowid"
        if newest:
            order, values = "ORDER BY version DESC, rowid DESC LIMIT ?", [*values, newest]
        with self._lock, self._guarded("read"):
            rows = self._connection.execute(f"{sql} {order}", values)
            return {_text(path): _checked(AppliedFile, row, 4) for path, *row in rows}

    def marks(
        self, table: TableName, partitions: Iterable[str] | None = None, *, after: int | None = None
    ) -> Mapping[str, Mark]:
        """Return a table's marks by partition: all, only the given partitions, or changed after a version."""
        values: list[object] = [self._ids.get(table, -1)]
        sql = f"SELECT {_MARK} FROM marks WHERE table_id = ?"  # noqa: S608 - our columns
        if partitions is not None:
            sql, values = sql + _AMONG.format("partition"), [*values, json.dumps([*partitions])]
        elif after is not None:
            sql, values = f"{sql} AND version > ?", [*values, after]
        with self._lock, self._guarded("read"):
            rows = self._connection.execute(sql, values)
            return {_text(name): _checked(Mark, row, 0, 1, 3) for name, *row in rows}

    def same_content(self, table: TableName, partition: str, digest: str) -> str:
        """Return the last applied file of a partition with these bytes, and with rows; `""` for none (ME064)."""
        sql = "SELECT path FROM applied WHERE table_id = ? AND digest = ? AND partition = ? AND rows > 0"
        rows = self._rows(
            f"{sql} ORDER BY version DESC, rowid DESC LIMIT 1", self._ids.get(table, -1), digest, partition
        )
        return str(rows[0][0]) if rows else ""

    def record(
        self,
        table: TableName,
        progress: Progress,
        applied: Applied = _NOTHING,
        pending: Mapping[str, str | None] = _NO_ETAGS,
        *,
        is_whole: bool = False,
    ) -> None:
        """Store the progress of a table and what changed about its files, in one transaction.

        Args:
            table: a new generation of it begins without files.
            progress: its head.
            applied: files and marks to add or replace; these files wait no longer.
            pending: etags of files that wait, by path; None of those that wait no longer.
            is_whole: whether all other applied files and marks are forgotten.

        Raises:
            StorageUnavailable: it cannot be written, or was lost; nothing has changed.
        """
        with self._lock:
            self.check()
            before = self._known.get(table)
            with self._transaction() as connection:
                head, table_id = json.dumps(progress.to_json()), self._ids.get(table)
                if table_id is None:
                    row = (table.schema, table.table, head)
                    table_id = connection.execute("INSERT INTO tables VALUES (NULL, ?, ?, ?)", row).lastrowid or 0
                connection.execute("UPDATE tables SET progress = ? WHERE id = ?", (head, table_id))
                if before and before.generation != progress.generation:
                    _delete(connection, table_id, _OF_A_TABLE)
                elif is_whole:
                    _delete(connection, table_id, ("applied", "marks"))
                _write(connection, table_id, progress.delta_version, applied, pending)
            self._known[table], self._ids[table] = progress, table_id  # only after the transaction
            if before is None or before.generation != progress.generation or is_whole:
                self._folders.pop(table, None)
            elif table in self._folders:
                self._folders[table].record(applied, pending)

    def check(self) -> None:
        """Raise `StorageUnavailable` if the ledger is lost; the next cycle rebuilds it from the Delta logs."""
        if self.is_lost:
            raise StorageUnavailable("the ledger was damaged", "The next cycle rebuilds it from the Delta logs.")

    def forget(self, table: TableName) -> None:
        """Forget a table; an unknown one is no error."""
        with self._lock:
            if table in self._known:
                with self._transaction() as connection:
                    _delete(connection, self._ids[table], _OF_A_TABLE)
                    connection.execute("DELETE FROM tables WHERE id = ?", (self._ids[table],))
                del self._known[table], self._ids[table]
                self._folders.pop(table, None)

    def archive(
        self, table: TableName, ready: Mapping[str, float], gone: Iterable[str] = (), swept_at: float | None = None
    ) -> None:
        """Record when archived files became ready to delete, by path from the table folder; a later time is kept.

        `gone` left the archive; `swept_at` is when it was last listed. Files of an unknown table are not noted.
        """
        with self._lock:
            table_id, gone = self._ids.get(table), [*gone]
            if table_id is None or not (ready or gone or swept_at):
                return
            with self._transaction() as connection:
                connection.executemany(
                    "INSERT INTO archived VALUES (?, ?, ?) "
                    "ON CONFLICT DO UPDATE SET ready_at = max(ready_at, excluded.ready_at)",
                    ((table_id, path, since) for path, since in ready.items()),
                )
                left = ((table_id, path) for path in gone)
                connection.executemany("DELETE FROM archived WHERE table_id = ? AND path = ?", left)
                if swept_at:
                    connection.execute("INSERT OR REPLACE INTO archives VALUES (?, ?)", (table_id, swept_at))

    def archived(self, table: TableName, *, before: float = math.inf, limit: int = -1) -> Mapping[str, float]:
        """Return archived files, oldest first: those ready to delete at `before`, and at most `limit`."""
        sql = "SELECT path, ready_at FROM archived WHERE table_id = ? AND ready_at <= ? ORDER BY ready_at LIMIT ?"
        return dict(self._rows(sql, self._ids.get(table, -1), before, limit))

    def archive_times(self, table: TableName) -> tuple[float, float]:
        """Return the earliest time of archived files (infinite for none), and when they were listed (-inf)."""
        sql = (
            "SELECT (SELECT min(ready_at) FROM archived WHERE table_id = ?1), "
            "(SELECT swept_at FROM archives WHERE table_id = ?1)"
        )
        ((first, swept_at),) = self._rows(sql, self._ids.get(table, -1))
        return math.inf if first is None else first, -math.inf if swept_at is None else swept_at

    def maintained(self, table: TableName) -> int:
        """Return the version of the Delta table after its last automatic maintenance; 0 where none is known."""
        rows = self._rows("SELECT version FROM maintained WHERE table_id = ?", self._ids.get(table, -1))
        return int(rows[0][0]) if rows else 0

    def note_maintained(self, table: TableName, version: int) -> None:
        """Record the Delta version after maintenance; ignored for an unknown table."""
        with self._lock:
            if table in self._ids:
                with self._transaction() as connection:
                    connection.execute("INSERT OR REPLACE INTO maintained VALUES (?, ?)", (self._ids[table], version))

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    def _load(self) -> Iterator[tuple[TableName, Progress]]:
        for table_id, schema, table, head in self._connection.execute("SELECT * FROM tables"):
            if not (isinstance(schema, str) and isinstance(table, str) and isinstance(head, str)):
                raise ValueError("no table")  # noqa: TRY004 - the file is wrong, not its reader
            name = TableName(schema, table)
            self._ids[name] = table_id
            yield name, Progress.from_json(json.loads(head))

    def _rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:  # noqa: ANN401 - what SQLite takes
        with self._lock, self._guarded("read"):
            return self._connection.execute(sql, values).fetchall()

    @contextlib.contextmanager
    def _guarded(self, operation: str) -> Iterator[None]:
        """If the ledger proves damaged, put it aside and begin an empty one. The caller holds the lock.

        Raises:
            StorageUnavailable: it is damaged, or the disk fails.
        """
        self.check()
        with _disk_trouble(operation):
            try:
                yield
            except (sqlite3.ProgrammingError, UnicodeEncodeError):  # of this program
                raise
            except _DAMAGED as fault:
                if _DISK_TROUBLE.match(str(fault)):
                    raise
                if self._path:
                    self._connection.close()
                    _put_aside(self._path)
                    self._connection = _connect(str(self._path))
                    self._known, self._ids, self._folders = {}, {}, {}
                    self.is_lost = True
                message = f"cannot {operation} the ledger: {fault}"
                raise StorageUnavailable(message, "Try again: it is rebuilt from the Delta logs.") from fault

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Open a write transaction; a read-only ledger is copied to memory first. The caller holds the lock."""
        with self._guarded("write"):
            if self._is_shared:
                copy = _connect(":memory:")
                self._connection.backup(copy)
                self._connection.close()
                self._connection, self._is_shared = copy, False
            with self._connection:
                yield self._connection


@dataclass
class _Folder:
    """In-memory view of what the stored rows say about a table's folder; follows every change of them.

    Attributes:
        asked: paths for which it is known whether they were applied.
        marks, applied, pending: as in `FolderProgress`, and applied files in the order of their rows.
    """

    asked: set[str]
    marks: dict[str, Mark]
    applied: dict[str, AppliedFile]
    pending: dict[str, str]

    def keep(self, listed: set[str]) -> None:
        """Keep only these paths; paths that were not looked up count as not applied."""
        if self.asked != listed:
            self.applied = {path: file for path, file in self.applied.items() if path in listed}
            self.asked = listed

    def record(self, applied: Applied, pending: Mapping[str, str | None]) -> None:
        """Apply a change of the stored rows; a replaced row moves to the end."""
        self.asked |= applied.files.keys()
        self.marks |= applied.marks
        for path, file in applied.files.items():
            self.applied.pop(path, None)
            self.applied[path] = file
            self.pending.pop(path, None)
        for path, etag in pending.items():
            if etag is None:
                self.pending.pop(path, None)
            else:
                self.pending[path] = etag


_APPLIED = ", ".join(["path", *(field.name for field in fields(AppliedFile))])
_MARK = ", ".join(["partition", *(field.name for field in fields(Mark))])


def _text(name: object) -> str:
    if not isinstance(name, str):
        raise ValueError("no name")  # noqa: TRY004 - the file is wrong, not its reader
    return name


def _checked(kind: type[T], values: list[Any], *numbers: int) -> T:
    """Return a stored value; ValueError or TypeError where the file holds something else.

    `numbers` are places of whole numbers that are stored as text: SQLite's have 63 bits, a file's number 20 digits.
    """
    for place in numbers:
        values[place] = int(_text(values[place]))
    if tuple(map(type, values)) != _TYPES[kind]:
        raise ValueError("no applied file")
    return kind(*values)


def _stored(value: AppliedFile | Mark, *numbers: int) -> list[Any]:
    """Return the columns of a value; see `_checked`."""
    columns: list[Any] = [*astuple(value)]
    for place in numbers:
        columns[place] = str(columns[place])
    return columns


def _write(
    connection: sqlite3.Connection, table_id: int, version: int, applied: Applied, pending: Mapping[str, str | None]
) -> None:
    """Write what changed about a table's files; `version` is that of the marks."""
    connection.executemany(
        f"INSERT OR REPLACE INTO applied (table_id, partition, {_APPLIED}) VALUES (?, ?, {_places(_APPLIED)})",  # noqa: S608
        ((table_id, partition_of(path), path, *_stored(file, 4)) for path, file in applied.files.items()),
    )
    connection.executemany(
        f"INSERT OR REPLACE INTO marks (table_id, version, {_MARK}) VALUES (?, ?, {_places(_MARK)})",  # noqa: S608
        ((table_id, version, partition, *_stored(mark, 0, 1, 3)) for partition, mark in applied.marks.items()),
    )
    gone = [*applied.files, *(path for path, etag in pending.items() if etag is None)]
    connection.executemany("DELETE FROM pending WHERE table_id = ? AND path = ?", ((table_id, path) for path in gone))
    connection.executemany(
        "INSERT OR REPLACE INTO pending VALUES (?, ?, ?)",
        ((table_id, path, etag) for path, etag in pending.items() if etag is not None),
    )


def _delete(connection: sqlite3.Connection, table_id: int, names: Iterable[str]) -> None:
    for name in names:
        connection.execute(f"DELETE FROM {name} WHERE table_id = ?", (table_id,))  # noqa: S608 - names of our own


def _places(columns: str) -> str:
    return ", ".join("?" for _ in columns.split(", "))


def _put_aside(path: Path) -> None:
    """Rename a damaged ledger, so that a new one can take its place."""
    for leftover in path.parent.glob(f"{path.name}*"):
        leftover.replace(leftover.with_name(f"damaged-{leftover.name}"))


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
        if not _check(connection):
            connection.executescript(f"{_SCHEMA}PRAGMA user_version = {_SCHEMA_VERSION};")
    except BaseException:
        connection.close()
        raise
    return connection


@contextlib.contextmanager
def _disk_trouble(operation: str = "write") -> Iterator[None]:
    try:
        yield
    except (sqlite3.OperationalError, OSError) as fault:
        message = f"cannot {operation} the ledger: {getattr(fault, 'strerror', None) or fault}"
        raise StorageUnavailable(
            message, "Free disk space and check permissions; a damaged ledger can be deleted."
        ) from fault


def _check(connection: sqlite3.Connection) -> bool:
    """Whether the file has the ledger's tables; a new one has none."""
    found = connection.execute("PRAGMA user_version").fetchone()[0]
    if found not in {0, _SCHEMA_VERSION}:
        raise ValueError(f"a ledger of format {found}, not {_SCHEMA_VERSION}")
    if not found:
        return False
    for table in ("properties", "tables"):  # the others grow: damage there is found by the query that meets it
        health = connection.execute(f"PRAGMA quick_check({table})").fetchone()[0]
        if health != "ok":
            raise sqlite3.DatabaseError(health)
    return True
