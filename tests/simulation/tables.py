"""Delta tables in memory that every machine of a world shares, and the `DeltaWriter` port of one process over them.

The log is the one of Delta: commits, checkpoints, clean-up, transactions and segments. Records go through the product's
own `tables.log.record` and `tables.log.segments`, as text.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa

from mirror_engine.errors import CommitConflict, StorageUnavailable, TableDamaged
from mirror_engine.landing_zone.names import TableName
from mirror_engine.tables.arrow_types import arrow_schema
from mirror_engine.tables.base import APPLICATIONS, CommitResult, DeltaWriter, TableSnapshot, with_applied_by
from mirror_engine.tables.dry_run.memory import _replayed
from mirror_engine.tables.log import segments
from mirror_engine.tables.log.record import (
    carried,
    carried_from,
    creation_record,
    from_metadata,
    head_of,
    history_entry,
    refuse_another,
    refuse_repeated,
    to_metadata,
)

MAINTENANCE_SECONDS = 3.0  # of each half
COMMITS_PER_CHECKPOINT = 10
SMALL_FILES = 8  # commits after which small files are put together


@dataclass(frozen=True)
class Commit:
    """One version. `changes`: whether rows or columns differ from those before."""

    schema: object
    rows: tuple
    metadata: str
    operation: str
    at: float
    transactions: dict
    changes: bool = True
    is_ours: bool = True


@dataclass(eq=False)
class Log:
    """A table's log. Commits below `first` were cleaned up; `checkpoint` is the newest one, -1 without one."""

    born: int
    commits: list = field(default_factory=list)
    first: int = 0
    checkpoint: int = -1
    durable: int = -1
    segments: dict = field(default_factory=dict)
    late: list = field(default_factory=list)  # processes whose commits to an earlier table are the newest here
    maker: object = None  # the process that made it
    made: float = 0.0  # when

    @property
    def late_of_dead(self):
        """Whether a late commit stays until the next one, or a start: nobody is left who would take it back at once."""
        return any(process.is_dead for process in self.late)

    def take_back_late(self, only=""):
        """Remove the newest commits that are of another generation than the first one, as the engine does."""
        of = head_of(self.commits[0].metadata)
        while self.late and (head := head_of(self.commits[-1].metadata)) and of:
            written = head.progress.generation
            if written == of.progress.generation or only not in {"", written}:
                return False
            self.commits.pop()
            self.late.pop()
            self.durable = min(self.durable, self.version)
            self.checkpoint = min(self.checkpoint, self.version)
        return True

    @property
    def version(self):
        return len(self.commits) - 1

    @property
    def schema(self):
        return self.commits[-1].schema

    @property
    def rows(self):
        return self.commits[-1].rows

    def kept(self, start, stop):
        return range(max(start, self.first), stop)

    def newest_record(self, until):
        """The newest record up to a version, the version that it is of, its text, and the commit that has it."""
        for version in reversed(self.kept(0, until + 1)):
            metadata = self.commits[version].metadata
            if metadata and (head := head_of(metadata)) is not None:
                holding = carried_from(metadata)
                return head, version if holding is None else holding, metadata, version
        return None, -1, "", -1

    def records(self, versions):
        for version in versions:
            if version < self.first:
                raise TableDamaged("a table", f"commit {version} of its Delta log is missing")
            metadata = self.commits[version].metadata
            record = from_metadata(metadata) if metadata else None
            is_repeated = record is not None and record.earlier is None and carried_from(metadata) is not None
            yield None if is_repeated else record

    def segment(self, segment):
        if segment.name not in self.segments:
            raise TableDamaged("a table", f"{segment.name} is missing")
        return self.segments[segment.name]

    def external_change(self, since, until):
        changed = [
            v for v in self.kept(since + 1, until + 1) if self.commits[v].changes and not self.commits[v].is_ours
        ]
        return max(changed, default=-1)

    def record_again(self, version, *, with_earlier=True):
        head, holding, metadata, _ = self.newest_record(version)
        if head is None:
            return ""
        earlier = None
        if with_earlier:
            try:
                earlier = segments.applied_by_commits(head, version, head.progress.covered, self.records)
            except TableDamaged:
                earlier = None
        return carried(metadata, holding, earlier)

    def lose_power(self, chance):
        """Lose some of the newest commits that are not durable; returns the version that is left."""
        del self.commits[chance.randint(self.durable, self.version) + 1 :]
        self.checkpoint = min(self.checkpoint, self.version)
        return self.version

    def clean_up(self, covered):
        """Take away what the newest checkpoint has, but no commit that only its record tells of."""
        self.first = max(self.first, min(self.checkpoint, covered + 1))


class Tables:
    """All Delta tables of a world, by folder.

    Args:
        watch: is told of commits and drops.
    """

    def __init__(self, watch, clock, *, is_store=False):
        self.watch, self._clock, self.is_store, self.logs, self._born = watch, clock, is_store, {}, 0
        self.schemas = set()  # folders that stay when their last table is dropped (LZ-7.2)

    def writer(self, port):
        """The port of one process."""
        return TablesWriter(self, port, self._clock)

    def close(self):
        """Nothing is held."""

    def end_late(self):
        """Take back all that came late: an engine whose ledger is lost, too, cannot tell (docs/stores.md, Limits)."""
        for log in self.logs.values():
            log.take_back_late()

    def lose_power(self, chance):
        for table, log in [*self.logs.items()]:
            before = log.version
            if log.lose_power(chance) < 0:
                del self.logs[table]
            elif log.version < before:
                self.watch.rolls_back(log)

    def make(self, table):
        self._born += 1
        self.schemas.add(table.partition("/")[0])
        self.logs[table] = Log(self._born)
        return self.logs[table]


class TablesWriter(DeltaWriter):
    """The port of one process. Each call of a file system or store is a step, at which it may fail or die."""

    def __init__(self, tables, port, clock):
        self._tables, self._port, self._clock = tables, port, clock

    def tables(self):
        return self._port.call("tables", lambda: sorted(self._tables.logs))

    def snapshot(self, table):
        log = self._port.call(f"snapshot {table}", lambda: self._tables.logs.get(table))
        return None if log is None else snapshot_of(log)

    def log_stamp(self, table, since):
        log = self._port.call(f"log_stamp {table}", lambda: self._tables.logs.get(table))
        return "" if log is None or log.version < since else _stamp(log)

    def needed_stamp(self, table):
        log = self._port.call(f"needed_stamp {table}", lambda: self._tables.logs.get(table))
        return "" if log is None else _stamp(log).replace(" ", "-")

    def folder_identity(self, folder):
        return self._port.call(f"folder_identity {folder}", lambda: self._identity(folder)), False

    def _identity(self, folder):
        if self._tables.is_store:
            return ""
        if log := self._log(folder):
            return f"t{log.born}"
        is_there = not folder or folder in self._tables.schemas
        return f"folder {folder}" if is_there else ""

    def latest_external_change(self, table, since, columns=""):  # noqa: ARG002 - a commit has its rows here
        log = self._port.call(f"latest_external_change {table}", lambda: self._tables.logs.get(table))
        return -1 if log is None else log.external_change(since, log.version)

    def rows(self, table, *, version=None, limit=None, where=None, columns=None):
        log = self._port.call(f"rows {table}", lambda: self._tables.logs.get(table))
        if log is None:
            return None
        commit = log.commits[-1 if version is None else version]
        found = pa.Table.from_pylist(commit.rows, arrow_schema(commit.schema.columns))
        found = found.select(columns(found.column_names)) if columns else found
        return (found.filter(where) if where else found).slice(0, limit)

    def history(self, table, *, limit=None, until=None):
        log = self._port.call(f"history {table}", lambda: self._tables.logs.get(table))
        if log is None:
            return ()
        until = log.version if until is None else until
        versions = list(reversed(log.kept(0, until + 1)))[:limit]
        return [_history_entry(version, log.commits[version]) for version in versions]

    def applied_since(self, table, snapshot, known):
        log = self._port.call(f"applied_since {table}", lambda: snapshot.log.log)
        if snapshot.version > log.version:
            raise StorageUnavailable(f"{table}: version {snapshot.version} was taken back")
        return segments.applied_since(snapshot, known, log.segment, log.records)

    def make_durable(self, table, since):  # noqa: ARG002 - all of it
        self._port.call(f"make_durable {table}", partial(self._sync, table))

    def apply(self, table, batch, record, check=lambda: None):
        opened = batch.snapshot and batch.snapshot.log
        log = opened.log if opened else self._port.call(f"snapshot {table}", lambda: self._log(table))
        if log is None:
            begun = creation_record(record)
            log = self._port.call(f"make {table}", lambda: self._create(table, batch.schema, begun))
            self._port.call(f"sync {table}", partial(self._sync, table))
        opened = batch.snapshot.version if batch.snapshot else log.version
        if batch.snapshot:
            refuse_repeated(table, record, log.commits[opened].transactions.get(record.application))
        else:
            refuse_another(table, record, log.newest_record(opened)[0])
        last = log.commits[opened]
        known = {column.name: column.type for column in last.schema.columns}
        if not known.items() <= {column.name: column.type for column in batch.schema.columns}.items():
            raise CommitConflict(f"{table}: its columns have changed", "The next cycle reads the state again.")
        self._port.step(f"stage {table}")
        rows, matches = _replayed(last.rows, batch)
        marked = {marker for file in batch.files for marker, count in file.markers.items() if count}
        applied_by = "merge" if marked - {0} else "append" if marked else ""
        metadata = to_metadata(with_applied_by(record, applied_by))
        commit = Commit(batch.schema, rows, metadata, "MERGE" if marked - {0} else "WRITE", self._clock(), {})
        made = partial(self._tables.watch.commits_batch, self._port.machine, table, log, batch, record)
        version = self._port.call(f"commit {table}", lambda: self._commit(log, opened, commit, record, made))
        self._port.call(f"sync {table}", partial(self._sync, table))
        check()
        if version % SMALL_FILES == 0 and self._log(table) is log:
            self._port.step(f"tidy {table}")
            self._maintenance(log, "OPTIMIZE", log.record_again(log.version, with_earlier=False))
        if log.version // COMMITS_PER_CHECKPOINT > (version - 1) // COMMITS_PER_CHECKPOINT:
            self._port.step(f"checkpoint {table}")
            log.checkpoint = log.durable = log.version
            self._port.reached("checkpoint")
            if self._port.chance() < 0.5:  # as much of the log as is older than the retention
                log.clean_up(record.progress.covered)
                self._port.reached("log clean-up")
        return CommitResult(version, matches, applied_by)

    def is_mirrored(self, table):
        log = self._port.call(f"is_mirrored {table}", lambda: self._log(table))
        return log is not None and any(each.startswith(APPLICATIONS) for each in log.commits[-1].transactions)

    def take_back(self, table, generation):
        self._port.call(f"take_back {table}", partial(self._take_back, table, generation))

    def write_segment(self, table, segment, applied):
        def write():
            log = self._log(table)
            if log is not None:
                for earlier in applied.segments:
                    log.segment(earlier)
                log.segments[segment.name] = applied

        self._port.call(f"write_segment {table}", write)
        self._port.reached("segment written")

    def say_again(self, table, record):
        def commit():
            log = self._log(table)
            known = log and log.commits[-1].transactions.get(record.application)
            if log is None or known != record.progress.batch:
                raise CommitConflict(f"{table}: its progress changed", "The next cycle reads the table's state again.")
            self._maintenance(log, "WRITE", to_metadata(record))
            return log.version

        version = self._port.call(f"say_again {table}", commit)
        self._port.reached("record said again")
        self._port.call(f"sync {table}", partial(self._sync, table))
        return version

    def drop(self, table, check=lambda: None):
        check()
        log = self._log(table)

        def remove():
            if log and self._log(table) is log:  # a store refuses the commit of a drop that comes late
                self._tables.watch.drops(self._port.machine, table, self._tables.logs[table])
                del self._tables.logs[table]

        self._port.call(f"drop {table}", remove)

    def finish_drop(self, table, check=lambda: None):
        """A drop is one step here."""
        check()
        self._port.call(f"take_back {table}", partial(self._take_back, table, ""))

    def _take_back(self, table, only):
        log = self._log(table)
        if log and log.late:
            log.take_back_late(only)
            self._port.reached("late commit taken back" + (" by its own engine" if only else ""))

    def maintain(self, table, retention_hours, is_wanted=lambda: False):  # noqa: ARG002 - no data files here
        log = self._port.call(f"maintain {table}", lambda: self._log(table))
        if log is None:
            return {}
        for operation in ("OPTIMIZE", "VACUUM END"):
            self._port.takes(MAINTENANCE_SECONDS)
            if operation != "OPTIMIZE" and is_wanted():
                self._port.reached("maintenance yields to a change")
                break
            metadata, opened = log.record_again(log.version), log.version
            self._port.step(f"{operation} {table}")
            if self._log(table) is not log or opened != log.version:
                raise CommitConflict(f"{table}: another writer was first", "It is tried again.")
            self._port.call(f"commit {table}", partial(self._maintenance, log, operation, metadata))
            self._port.call(f"sync {table}", partial(self._sync, table))
        head = log.newest_record(log.version)[0]
        if head:
            log.clean_up(head.progress.covered)
        self._port.reached("table maintained")
        return {"files_added": 1, "files_removed": 2, "files_deleted": 0}

    def close(self):
        """Nothing is held."""

    def _log(self, table):
        return self._tables.logs.get(table)

    def _sync(self, table):
        if log := self._log(table):
            log.durable = log.version

    def _create(self, table, schema, begun):
        if self._log(table) is None:
            log = self._tables.make(table)
            log.maker, log.made = self._port.process, self._port.now
            transactions = {begun.application: begun.progress.batch}
            log.commits.append(Commit(schema, (), to_metadata(begun), "CREATE TABLE", self._clock(), transactions))
        return self._log(table)

    def _commit_late(self, opened, commit, record):
        """In a store nothing but its version tells a commit to a table that was dropped from one to the next table."""
        folder = TableName.from_folder(record.folder).delta_folder(self._port.default_schema)
        log = self._log(folder)
        if log is None or log.version != opened:
            raise CommitConflict(f"{record.folder}: another writer committed first", "The next cycle reads it again.")
        transactions = {**log.commits[-1].transactions, record.application: record.progress.batch}
        log.commits.append(replace(commit, transactions=transactions))
        log.late.append(self._port.process)
        self._tables.watch.comes_late(self._port.machine)
        return log.version

    def _commit(self, log, opened, commit, record, made):
        """One commit, as Delta makes it: on top of the newest version, where nothing in between is in its way."""
        table = record.folder
        if log not in self._tables.logs.values():
            if self._tables.is_store:
                return self._commit_late(opened, commit, record)
            raise CommitConflict(f"{table}: the table was removed", "The next cycle creates it again.")
        newest = log.commits[-1]
        refuse_repeated(table, record, newest.transactions.get(record.application))
        between = log.commits[opened + 1 :]
        if any(each.changes for each in between):
            raise CommitConflict(f"{table}: another program changed its rows", "The next cycle counts again.")
        if between:
            self._port.reached("commit beside another commit")
        transactions = {**newest.transactions, record.application: record.progress.batch}
        log.commits.append(replace(commit, transactions=transactions))
        made()
        return log.version

    def _maintenance(self, log, operation, metadata):
        newest = log.commits[-1]
        log.commits.append(replace(newest, metadata=metadata, operation=operation, changes=False, at=self._clock()))
        self._port.reached(f"{operation} committed")


class _Opened:
    """What a snapshot passes on about its log."""

    def __init__(self, log, version):
        self.log, self.version = log, version

    def latest_external_change(self, since, columns=""):  # noqa: ARG002 - a commit has its rows here
        return self.log.external_change(since, self.version)


def snapshot_of(log):
    version = log.version
    last = log.commits[version]
    head, holding, _, commit = log.newest_record(version)
    return TableSnapshot(
        version,
        last.schema,
        head,
        holding,
        count_rows=lambda: len(last.rows),
        log=_Opened(log, version),
        batch_of=last.transactions.get,
        may_lose_record=lambda: 0 <= commit < log.checkpoint,
    )


def _stamp(log):
    return f"{log.version} {len(log.commits[-1].metadata)} {log.born}-{log.commits[-1].at}"


def _history_entry(version, commit):
    said = {"timestamp": int(commit.at * 1000), "operation": commit.operation, "userMetadata": commit.metadata}
    return history_entry(version, {**said, "engineInfo": "mirror_engine" if commit.is_ours else "another"})
