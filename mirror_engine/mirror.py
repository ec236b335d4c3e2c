"""One mirrored database: wires storage, Delta writer, engine and listeners."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from msgspec import UNSET
from msgspec.structs import asdict

from mirror_engine.clock import Clock
from mirror_engine.config import Config, write_effective
from mirror_engine.engine.changes import Changes
from mirror_engine.engine.context import EngineContext
from mirror_engine.engine.cycle import Engine, RunResult, Totals
from mirror_engine.engine.history import History, recorded_changes
from mirror_engine.engine.known_time import KnownTime
from mirror_engine.engine.ledger import Ledger
from mirror_engine.engine.lock import is_locked, lease_of, lock_root
from mirror_engine.engine.maintenance import MaintenanceScheduler
from mirror_engine.engine.planner import ZonePlanner
from mirror_engine.engine.poller import Poller
from mirror_engine.engine.rebuild import TableRebuild, rebuild
from mirror_engine.engine.recovery import for_readers, intact_logs, note_logs, recover
from mirror_engine.errors import RootLocked, TransientError, UnknownTable, UsageError, as_internal_error
from mirror_engine.events import TableMaintained, ignore
from mirror_engine.landing_zone.layout import HISTORY, LEDGER, OPTIONS, TABLES, ZONE
from mirror_engine.landing_zone.listing import Kind
from mirror_engine.landing_zone.names import TableName, find_table, spelled
from mirror_engine.monitoring.fabric_mirror import as_fabric_has_it, refuse_fabrics
from mirror_engine.monitoring.history import Change, TableHistory
from mirror_engine.monitoring.maintenance_results import NUMBERS, MaintainedTable, MaintenanceReport, RebuildReport
from mirror_engine.monitoring.monitoring_files import MonitoringFiles, heartbeat
from mirror_engine.monitoring.sync_results import SyncReport
from mirror_engine.option_rules import ARROW_ONLY, SPARK_ONLY
from mirror_engine.results import Failure, Finding, TableReference
from mirror_engine.storage.requests import Requests
from mirror_engine.storage.roots import check_place, check_root, pasted, root_of, state_folder
from mirror_engine.storage.stores import open_storage, parse_place
from mirror_engine.tables.deferred import DeferredWriter, TablesReadOnce
from mirror_engine.tables.notebook import refuse_connect, refuse_outdated_imports
from mirror_engine.tools.snapshot import MirrorSnapshot
from mirror_engine.tools.status import report_status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from mirror_engine.engine.watcher import ZoneWatcher
    from mirror_engine.events import Event, Listener
    from mirror_engine.monitoring.rows import SortedRows
    from mirror_engine.monitoring.status import MirrorStatus
    from mirror_engine.monitoring.status_results import Status
    from mirror_engine.storage.base import Storage
    from mirror_engine.storage.store_url import Place
    from mirror_engine.tables.backend import Backend
    from mirror_engine.tables.base import ChosenColumns, DeltaWriter, HistoryEntry
    from mirror_engine.tables.passthrough import PassthroughReader
    from mirror_engine.tables.reading.request import OrderedReader
    from mirror_engine.tools.compare.results import Comparison
    from mirror_engine.tools.difference import TableDifference
    from mirror_engine.tools.trace.results import RowTrace
    from mirror_engine.tools.validation import Validation


BRIEF_BYTES = 64 * 1024 * 1024  # of change files
# of a table that is read whole to show the rows with the lowest keys; the bytes are those of its data files
MAX_SORTED_ROWS, MAX_SORTED_BYTES = 100_000, 32 * 1024 * 1024
_Reference = TypeVar("_Reference", bound=TableReference)


class Mirror:
    """A mirrored database, `ROOT`: its landing zone, its Delta tables, and the engine between them.

    Args:
        root: the mirrored database's folder, which must exist, or its URL in a store; that of its landing zone will do.
        config: all options.
        writer: of Delta tables; by default that of `config.merge_engine`, made when it is needed.
        spark: a session to work in, such as a notebook's; it stays as it is, and is not ended.
        storage: of the landing zone; that of `root` by default.
        listeners: called with every event, from any thread.
        clock: of all that waits; one of its own by default.

    Raises:
        UsageError: `root` is no folder, its URL holds a credential, `config` is no `Config`, or `spark` is a Spark
            Connect session.
        SetupError: pyarrow or deltalake was imported before another version was installed: restart Python.
        ConfigError: an option has no effect beside `spark`.
    """

    __module__ = "mirror_engine"  # from which it is imported

    def __init__(  # noqa: PLR0913 - every part may be replaced
        self,
        root: str | Place,
        config: Config | None = None,
        *,
        writer: DeltaWriter | None = None,
        spark: SparkSession | None = None,
        storage: Storage | None = None,
        listeners: Sequence[Listener] = (),
        clock: Clock | None = None,
    ) -> None:
        place = root_of(parse_place(root) if isinstance(root, str) else root)
        self.root: Place = place.absolute() if isinstance(place, Path) else place
        if isinstance(self.root, Path) and not self.root.is_dir():
            raise UsageError(
                f"{self.root}: no such folder",
                f"check the path, or create an example: mirror-engine init {pasted(root)}",
            )
        if not isinstance(config, Config | None):
            raise UsageError(f"config: {type(config).__name__}, expected Config", "Use Config(strict=True, …).")
        self.config = config or Config()
        if not isinstance(self.root, Path):
            self.config = self.config.in_store()
        self._listeners = tuple(listeners)
        self._clock = clock or Clock()
        self._requests = Requests()
        self._has_own_storage = storage is None
        self._storage = storage or open_storage(self.root, self._requests)
        self._is_lasting = False
        self._found: frozenset[str] = frozenset()  # Delta folders of a store, as listed last
        self._watcher: ZoneWatcher | None = None
        self._spark = spark
        self._has_own_writer = writer is None
        self._writer = writer or DeferredWriter(self.root / TABLES, lambda: self._backend.writer)
        refuse_outdated_imports()
        if spark is not None:
            refuse_connect(spark)
            self._refuse_idle_options()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Mirror({str(self.root)!r})"

    def _repr_html_(self) -> str:
        """The status as a table."""
        from mirror_engine.monitoring.rows import html_table  # noqa: PLC0415 - for people

        headings = ("Table", "State", "Pending files", "Rows", "Version", "Message")
        rows = [
            (
                each.name.normalized,
                each.state.code.replace("_", " "),
                len(each.pending_files),
                each.row_count,
                each.delta_version,
                each.message,
            )
            for each in self._status().tables
        ]
        return html_table(str(self.root), headings, rows)

    def sync(self, stop: threading.Event | None = None) -> SyncReport:
        """Apply all that can be applied now.

        Raises:
            UsageError: `root` is no ROOT: it has no landing zone.
            ConfigError: an option has no effect on this machine, or for this ROOT.
            RootLocked: another engine holds this ROOT.
            SetupError: this machine cannot run Spark.
        """
        self._refuse_idle_options()
        stop = stop or threading.Event()

        def work(running: Engine) -> SyncReport:
            running.sync(stop)
            report = SyncReport.of_engine(running)
            if not running.last.failures:
                note_logs(running.context)
            return report

        return self._work(work, stop)

    def run(self, stop: threading.Event) -> SyncReport:
        """Run cycles until `stop` is set, finishing the current commit.

        Raises:
            ConfigError: as `sync`.
            RootLocked: another engine holds this ROOT.
            SetupError: this machine cannot run Spark.
        """
        from mirror_engine.engine.watcher import ZoneWatcher  # noqa: PLC0415 - only who waits can be woken

        self._refuse_idle_options()
        self._is_lasting = True
        watched = self.root if isinstance(self.root, Path) and self.config.timing == "immediate" else None

        def work(running: Engine) -> SyncReport:
            with (
                ZoneWatcher(watched, stop, self._clock) as self._watcher,
                MaintenanceScheduler(running.context, self._watcher.wake) as maintenance,
            ):
                running.run(stop, self._watcher, maintenance)
                report = SyncReport.of_engine(running)
            note_logs(running.context)
            return report

        return self._work(work, stop)

    def wake(self) -> None:
        """Start the next cycle of `run` now; from any thread."""
        if self._watcher:
            self._watcher.wake(at_once=True)

    def advance(self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Advance the clock for everything that waits: archived files, dropped and empty tables, retries. Thread-safe.

        Only this object's time, until it is gone. The next `sync`, or `run` at once, does what is due.

        Raises:
            UsageError: less than 0, or more than a century in all.
        """
        self._clock.advance(days=days, hours=hours, minutes=minutes, seconds=seconds)

    def status(self, tables: Sequence[str] = ()) -> Status:
        """The state of every table, read anew; another engine may run meanwhile. Reads only, starts no JVM.

        Args:
            tables: by name: only these, with their columns.

        Raises:
            UnknownTable: no such table.
            TransientError: the landing zone or a table cannot be read.
        """
        with self._snapshot() as seen:
            return report_status(seen, tables)

    @contextmanager
    def _snapshot(self) -> Iterator[MirrorSnapshot]:
        """Read-only view of the landing zone, progress and plans, while another engine may run. Starts no JVM.

        Plans are those of that engine: it waits for what may still be arriving (LZ-2.6).
        """
        holder, is_continued = lease_of(self.root)
        is_running = is_locked(self.root) or (holder is not None and holder.is_live(self._clock))
        ledger = Ledger.read(state_folder(self.root) / LEDGER) if is_continued else Ledger.fresh()
        try:
            context = self._context(ledger, emit=ignore)
            zone = Poller(self._storage, self.config, context.requests).scan()
            context = replace(context, reader=TablesReadOnce(self._writer), is_lasting=is_running)
            if holder is None:
                context = as_fabric_has_it(context, zone)
            found = for_readers(context, recover(context, intact_logs(context)))
            planner = ZonePlanner(context, found, zone)
            plans = planner.plans()
            yield MirrorSnapshot(self.root, context, planner.zone, plans, holder, is_running)
        finally:
            ledger.close()

    def tables(self) -> list[str]:
        """The mirrored tables, by folder from `ROOT/Tables`: `Sales/Stores`, `dbo/Items`."""
        return list(self._writer.tables())

    def delta_folder(self, table: str) -> str:
        """Delta folder from `ROOT/Tables` of a table: `Sales/Stores` of `sales.stores`.

        Raises:
            UnknownTable: no such table.
        """
        if table in self._found:
            return table
        folders = self.tables()
        self._found = frozenset(() if isinstance(self.root, Path) else folders)
        return find_table(table, folders, self.config.delta_default_schema)

    def read_table(self, table: str, *, version: int | None = None, limit: int | None = None) -> pa.Table:
        """A table's rows at a version; the newest by default.

        Raises:
            UnknownTable: no such table, or no such version of it.
        """
        return self._rows(table, version=version, limit=limit)

    def _rows(
        self, table: str, *, version: int | None = None, limit: int | None = None, columns: ChosenColumns | None = None
    ) -> pa.Table:
        """Rows as in `read_table`, only the chosen columns."""
        folder = self.delta_folder(table)
        found = self._writer.rows(folder, version=version, limit=limit, columns=columns)
        if found is None:
            name = spelled(folder, self.config.delta_default_schema)
            raise UnknownTable(f"{name}: no version {version}", f"See its versions: mirror-engine history {name}")
        return found

    def show(self, table: str, *, version: int | None = None, limit: int | None = 20) -> SortedRows:
        """A table's rows as dicts, sorted by key.

        If the table has more rows than `limit`, those with the lowest keys. If it has more than 100,000 rows, if its
        data files have more than 32 MiB, or if it is in a store: the first rows of its files.

        Args:
            table: by name, in any case.
            version: the newest by default.
            limit: the most rows that are read; None for all.

        Raises:
            UnknownTable: no such table, or no such version of it.
        """
        from mirror_engine.monitoring.rows import SortedRows, lowest, python_rows  # noqa: PLC0415 - for people

        is_whole = limit is None or self._is_small(table, version)
        most = None if is_whole or limit is None else limit + 1
        found = self.read_table(table, version=version, limit=most)
        has_more = limit is not None and found.num_rows > limit
        keys = [name for name in self.key_columns(table) if name in found.column_names]  # not at every version
        shown = found if limit is None else lowest(found, keys, limit)
        return SortedRows(python_rows(shown), keys, found.schema, has_more=has_more, are_lowest=is_whole)

    def _has_landing_folder(self, table: TableName) -> bool:
        """Whether a table has a folder in the landing zone."""
        entry = self._storage.stat(f"{ZONE}/{table.folder}")
        return entry is not None and entry.kind is Kind.FOLDER

    def _status(self, also: str | int = "") -> MirrorStatus:
        """How every table is, as tools see it.

        `also`: an applied file, by path or number, that is shown although it was moved away; or how many files that
        were applied last are.
        """
        with self._snapshot() as seen:
            return seen.status(also)

    def _is_small(self, table: str, version: int | None) -> bool:
        """Whether all rows of a table's version may be read to show some."""
        if not isinstance(self.root, Path):
            return False
        state = self._writer.snapshot(self.delta_folder(table))
        if state is None:
            return False
        if state.log is None:  # it is in memory
            return (state.count_rows() or 0) <= MAX_SORTED_ROWS
        from mirror_engine.tables.log.snapshot import byte_count, count_rows, open_log  # noqa: PLC0415 - imports Arrow

        log = state.log if version in {None, state.version} else open_log(state.log.folder, version)
        return log is not None and count_rows(log) <= MAX_SORTED_ROWS and byte_count(log) <= MAX_SORTED_BYTES

    def key_columns(self, table: str) -> tuple[str, ...]:
        """A table's key, as its newest commit records it; empty for a keyless table. Its type may be unknown (LZ-5.13).

        Raises:
            UnknownTable: no such table.
        """
        snapshot = self._writer.snapshot(self.delta_folder(table))
        keys = (snapshot.record.progress.key_columns or ()) if snapshot and snapshot.record else ()
        return tuple(name for name in keys if snapshot and snapshot.schema.find(name))

    def history(self, table: str | None = None, *, limit: int | None = None) -> TableHistory:
        """A table's commits, newest first; without a table, what else happened to all tables.

        Args:
            table: by name, in any case.
            limit: the most commits, or without a table changes; None: all.

        Raises:
            UnknownTable: no such table.
        """
        more = None if limit is None else limit + 1
        if table is None:
            changes = [*map(Change.of, recorded_changes(self._history_file, limit=more))]
            return TableHistory(None, None, None, changes[:limit], (), len(changes) > len(changes[:limit]))
        folder = self.delta_folder(table)
        commits = self._writer.history(folder, limit=more)
        about = of_delta_table(TableReference, self, folder)
        changes = [
            Change.of(each) for each in recorded_changes(self._history_file) if each.table.normalized == about.table
        ][:limit]
        facts = about.table, about.landing_folder, about.delta_path, changes
        return TableHistory(*facts, commits[:limit], len(commits) > len(commits[:limit]))

    def commits(self, table: str, *, limit: int | None = None) -> Sequence[HistoryEntry]:
        """A table's commits alone, newest first.

        Args:
            table: by name, in any case.
            limit: the most commits; None: all.

        Raises:
            UnknownTable: no such table.
        """
        return self._writer.history(self.delta_folder(table), limit=limit)

    def validate(self) -> Validation:
        """Check the landing zone as Fabric would take it: a dry run from its first file. Reads only, starts no JVM.

        Raises:
            TransientError: the landing zone cannot be read.
        """
        from mirror_engine.tools.validate import check_landing_zone  # noqa: PLC0415 - a sync needs none of these tools
        from mirror_engine.tools.validation import Validation  # noqa: PLC0415 - the same
        from mirror_engine.tools.validation_target import find_target  # noqa: PLC0415 - a sync needs none of these tools

        found = check_landing_zone(find_target(self.root, self.config))
        return Validation(not found.is_failing, [found.checked()])

    def compare(self, tables: Sequence[str] = (), *, limit: int = 5, show_keys: bool = False) -> Comparison:
        """Compare the tables that Fabric made here with a replay of their change files. Reads only, starts no JVM.

        Args:
            tables: by name; all where there are none.
            limit: the most keys of each finding.
            show_keys: the keys' values in place of their digests.

        Raises:
            UsageError: Fabric mirrors no database here.
            UnknownTable: no such table.
            TransientError: the landing zone or a table cannot be read.
        """
        from mirror_engine.tools.compare.report import compare_tables  # noqa: PLC0415 - a sync needs none of these tools

        return compare_tables(self.root, self.config, tables, limit=limit, show_keys=show_keys)

    def trace(self, table: str, key: object) -> RowTrace:
        """Every change to the row of a key, in order. Reads only, starts no JVM.

        Args:
            table: by name, in any case.
            key: the value of the key column; of several columns, a value for each by name, or a tuple in their order.

        Raises:
            UnknownTable: no such table.
            UsageError: the table has no key, or another one.
            TransientError: the landing zone or the table cannot be read.
        """
        from mirror_engine.tools.trace.context import open_trace  # noqa: PLC0415 - a sync needs none of these tools
        from mirror_engine.tools.trace.row import key_arguments, trace_row  # noqa: PLC0415 - a sync needs none of these tools

        with self._snapshot() as seen:
            trace = open_trace(seen, table)
            return trace_row(trace, key_arguments(trace.key_columns, key))

    def diff(  # noqa: PLR0913 - as of the command
        self,
        table: str,
        expected: str | Path | pa.Table | Sequence[Mapping[str, Any]],
        *,
        key: Sequence[str] = (),
        version: int | None = None,
        tolerance: float = 0.0,
        limit: int | None = 20,
        keys_only: bool = False,
    ) -> TableDifference:
        """Compare a table with an expected one. Starts no JVM.

        Args:
            table: by name, in any case.
            expected: the path of a CSV, JSON or Parquet file; rows as dicts; an Arrow table, or what becomes one.
            key: columns by which rows are matched; the table's key by default.
            version: the newest by default.
            tolerance: floats this far apart are equal.
            limit: how many rows of each kind are returned; None for all.
            keys_only: `expected` has the keys of the source: read and compare nothing else, and count each key once.
                Keys are `missing` that never came, and `unexpected` that the source no longer has.

        Raises:
            UnknownTable: no such table, or no such version of it.
            UsageError: what is expected cannot be read, or has other types; `keys_only`, and there is no key.
        """
        from mirror_engine.tools.diff import diff_tables, distinct_keys, expected_rows, key_of, read_expected  # noqa: PLC0415 - a sync needs none of these tools
        from mirror_engine.tools.difference import TableDifference  # noqa: PLC0415 - the same

        key = key or self.key_columns(table)
        actual = self._rows(table, version=version, columns=partial(key_of, key) if keys_only else None)
        if isinstance(expected, (str, Path)):
            wanted = read_expected(Path(expected), actual.schema, known_only=keys_only)
        else:
            wanted = expected_rows(expected, actual.schema)
        if keys_only:
            actual, wanted = distinct_keys(actual, wanted)
        found = diff_tables(actual, wanted, key, tolerance=tolerance, limit=limit)
        about = of_delta_table(TableReference, self, self.delta_folder(table))
        return TableDifference(**asdict(found), **asdict(about), at_version=version, keys_only=keys_only)

    def maintain(
        self, tables: Sequence[str] = (), failed: Callable[[MaintainedTable, TransientError], None] | None = None
    ) -> MaintenanceReport:
        """OPTIMIZE and VACUUM the tables named, or all, under their retention (LZ-8.6).

        Args:
            tables: by name; all where there are none.
            failed: called with each table that cannot be maintained, while the others continue; None: raise the first
                error.

        Raises:
            ConfigError: as `sync`.
            UnknownTable: no such table.
            RootLocked: another engine holds this ROOT.
            TransientError: a table cannot be maintained, and `failed` is None.
        """
        self._refuse_idle_options()
        hours = self.config.vacuum_retention_days * 24.0
        done: list[MaintainedTable] = []
        not_done: list[MaintainedTable] = []
        emit = Changes(self._clock, self._emit, self._history.add)
        with ExitStack() as held:
            check_lock = held.enter_context(self._lock())
            folders = [self.delta_folder(table) for table in tables] or self.tables()  # before anything is written
            ledger = held.enter_context(closing(Ledger.open(state_folder(self.root) / LEDGER)))
            context = self._context(ledger, self._emit, check_lock)
            for folder in folders:
                try:
                    check_lock()
                    started = time.monotonic()
                    owned = context.owners(folder)
                    with context.fenced(folder, next((known for known in owned.values() if known.has_table), None)):
                        found = as_internal_error(partial(self._writer.maintain, folder, hours))
                    newest, owners = self._writer.history(folder, limit=1), [*owned]
                    for name in owners if newest else ():
                        ledger.note_maintained(name, newest[0].version)
                    owner = owners[0] if len(owners) == 1 else self._owner(folder)
                    emit(TableMaintained(owner, dict(found), time.monotonic() - started))
                    numbers = (found.get(name, UNSET) for name in NUMBERS)
                    done.append(of_delta_table(MaintainedTable, self, folder, *numbers))
                except TransientError as error:
                    if failed is None:
                        raise
                    why = Failure(**error.to_json())
                    not_done.append(of_delta_table(MaintainedTable, self, folder, *[UNSET] * len(NUMBERS), why))
                    failed(not_done[-1], error)
        return MaintenanceReport([*done, *not_done])

    def rebuild(
        self,
        tables: Sequence[str] = (),
        *,
        replay: bool = False,
        lose_rows: bool = False,
        confirm: Callable[[Sequence[TableRebuild]], None] | None = None,
    ) -> RebuildReport:
        """Drop Delta tables and their progress, as Fabric's stop and start does (LZ-7.7).

        The next cycle reads the change files in the landing zone. What is lost is reported as ME069.

        Args:
            tables: by name; all where there are none.
            replay: move applied files back from their archive first, so that all rows are rebuilt (LZ-7.12).
            lose_rows: go on where rows are lost.
            confirm: called with what is moved and lost, before anything is changed; whatever it raises ends the call.
                None: nobody is asked.

        Raises:
            UsageError: rows would be lost, and `lose_rows` is not set; nothing was changed.
            UnknownTable: no such table.
            RootLocked: another engine holds this ROOT.
        """
        plans: list[TableRebuild] = []

        def ask(found: Sequence[TableRebuild]) -> None:
            plans.extend(found)
            if confirm:
                confirm(found)

        with self._engine() as running:
            dropped = rebuild(running.context, self.root, tables, replay=replay, lose_rows=lose_rows, confirm=ask)
        schema = self.config.delta_default_schema
        references = [TableReference.of(table, table.delta_folder(schema)) for table in dropped]
        moved = sum(len(plan.moves) for plan in plans)
        return RebuildReport(references, moved, [Finding.of(plan.lost) for plan in plans if plan.lost])

    def close(self) -> None:
        """End the Spark session, if one was started."""
        self._writer.close()

    @cached_property
    def _backend(self) -> Backend:
        from mirror_engine.tables.backend import Backend  # noqa: PLC0415 - a caught-up zone needs no Arrow

        return Backend(self.root, self.config, self._storage, self._spark, self._emit, self._is_brief)

    def _is_brief(self) -> bool:
        """Whether this is a short `sync`: with little to read, one task per stage is faster."""
        if self._is_lasting or self.config.spark_profile != "local":
            return False
        return (
            sum(file.size for listing in Poller(self._storage, self.config).scan().tables for file in listing.files)
            <= BRIEF_BYTES
        )

    def _reader(self) -> OrderedReader:
        return self._backend.reader() if self._has_own_writer else self._backend.reader_here()

    def _passthrough(self) -> PassthroughReader:
        return self._backend.passthrough()

    def _context(
        self, ledger: Ledger, emit: Callable[[Event], None], check_lock: Callable[[], None] = lambda: None
    ) -> EngineContext:
        parts = self._storage, self._writer, ledger, self.config, self._clock, emit
        requests = None if isinstance(self.root, Path) else self._requests
        known_time = KnownTime(self._clock, ledger, is_stored=emit is not ignore)
        return EngineContext(*parts, self._is_lasting, check_lock, requests, known_time)

    def _lock(self, stop: threading.Event | None = None) -> AbstractContextManager[Callable[[], None]]:
        """Lock ROOT. Refuse a ROOT in a store that Fabric mirrors: it has no lease or ledger of this engine."""
        if not isinstance(self.root, Path) and not (state_folder(self.root) / LEDGER).exists():
            check_place(self.root)
            if lease_of(self.root)[0] is None:
                refuse_fabrics(self.root, self._storage, self._writer)
        return lock_root(self.root, self._emit, stop, self._clock)

    def _refuse_idle_options(self) -> None:
        """Refuse options that have no effect on this machine or for this ROOT, before anything is done."""
        if self._has_own_writer and (self._spark or self.config.changed & {*SPARK_ONLY, *ARROW_ONLY}):
            from mirror_engine.tables.spark.choice import refuse_idle_options  # noqa: PLC0415 - most need none

            refuse_idle_options(self.config, self._spark, self.root)

    def _work(self, work: Callable[[Engine], SyncReport], stop: threading.Event) -> SyncReport:
        """Work with the engine, unless `stop` is set while it waits for ROOT."""
        is_held = False
        try:
            with self._engine(stop) as running:
                is_held = True
                return work(running)
        except RootLocked:
            if is_held or not stop.is_set():
                raise
            return SyncReport.of_tables(RunResult.RETRY, [], Totals(), 0.0, Changes(self._clock, ignore))

    @contextmanager
    def _engine(self, stop: threading.Event | None = None) -> Iterator[Engine]:
        self._found = frozenset()
        state = state_folder(self.root)
        if self._has_own_storage and isinstance(self.root, Path):
            check_root(self.root, may_be_empty=self._is_lasting)
        with self._lock(stop) as check_lock:
            write_effective(state / OPTIONS, self.config)
            ledger = Ledger.open(state / LEDGER)
            context = self._context(ledger, self._emit, check_lock)
            monitoring = MonitoringFiles(context)
            publish, settle = monitoring.write, monitoring.settle
            engine = Engine(context, self._reader, self._passthrough, publish, self._history.add, settle=settle)
            try:
                with heartbeat(context), closing(monitoring):
                    yield engine
            finally:
                engine.close()
                ledger.close()

    @property
    def _history_file(self) -> Path:
        """Where changes of tables are recorded."""
        return state_folder(self.root) / HISTORY

    @property
    def _history(self) -> History:
        return History(self._history_file)

    def _owner(self, folder: str) -> TableName:
        """The table of a Delta folder, as its record names it."""
        snapshot = self._writer.snapshot(folder)
        record = snapshot.record if snapshot else None
        return TableName.from_folder(record.folder) if record else TableName(*_parts(folder))

    def _emit(self, event: Event) -> None:
        for listener in self._listeners:
            listener(event)


def of_delta_table(kind: type[_Reference], mirror: Mirror, delta_folder: str, *fields: Any) -> _Reference:  # noqa: ANN401 - as the class has them
    """Make a result about a Delta folder such as `dbo/Items`; the landing folder is null if it is gone."""
    schema, _, table = delta_folder.rpartition("/")
    default_schema = mirror.config.delta_default_schema
    names = [TableName(schema, table), *([TableName("", table)] if schema == default_schema else ())]
    present = next(filter(mirror._has_landing_folder, names), None)  # noqa: SLF001 - the same
    return kind.of(present or names[-1], delta_folder, *fields, is_gone=present is None)


def snapshot_of(mirror: Mirror) -> AbstractContextManager[MirrorSnapshot]:
    """Read-only view of a mirror, for tools; `Mirror.status` is what users see."""
    return mirror._snapshot()  # noqa: SLF001 - it is not for users


def status_of(mirror: Mirror, also: str | int = "") -> MirrorStatus:
    """How every table is, for tools; `also` as of `Mirror._status`."""
    return mirror._status(also)  # noqa: SLF001 - the same


def _parts(folder: str) -> tuple[str, str]:
    """Schema and table of a Delta folder."""
    schema, _, table = folder.rpartition("/")
    return schema, table
