"""An engine for each item that is replicated, one JVM for all of them."""

from __future__ import annotations

import json
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from mirror_engine.errors import MirrorError, StorageUnavailable, TransientError
from mirror_engine.events import CycleEnded, CycleStarted
from mirror_engine.landing_zone.layout import ENGINE
from mirror_engine.mirror import Mirror
from mirror_engine.monitoring.fabric_files import INTERNAL, NEVER, read_tables, write_stopped
from mirror_engine.monitoring.wait_conditions import UnmetCondition, tables_not_caught_up
from mirror_engine.onelake.items import read_definition
from mirror_engine.onelake.page.status_cache import ShownItem
from mirror_engine.onelake.replication import INITIALIZING_SECONDS, DatabaseStatus, FabricError, TableReport
from mirror_engine.onelake.visibility import EngineView, VisibilityDelays
from mirror_engine.storage.local import LocalStorage
from mirror_engine.storage.retrying import RetryingStorage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from mirror_engine.config import Config
    from mirror_engine.events import Event
    from mirror_engine.onelake.items import Item, Items
    from mirror_engine.onelake.replication import MirroredDatabases
    from mirror_engine.tables.base import DeltaWriter

POLL_SECONDS = 60.0  # a first commit starts a JVM
_MARKER = f"{ENGINE}/stopped.json"
_ACTIVE = frozenset({DatabaseStatus.STARTING, DatabaseStatus.RUNNING})


class CycleBarrier:
    """Event listener that lets others wait for the end of an engine's cycle.

    Attributes:
        started: the number of the last cycle that started; 0 for none.
    """

    def __init__(self) -> None:
        self.started = 0
        self._ended = 0
        self._changed = threading.Condition()

    def __call__(self, event: Event) -> None:
        """Note a cycle's start or end."""
        with self._changed:
            if isinstance(event, CycleStarted):
                self.started = event.number
            elif isinstance(event, CycleEnded):
                self._ended = event.number
                self._changed.notify_all()

    def wait(self, number: int, seconds: float) -> bool:
        """Wait for the end of a cycle with a higher number; whether it came in time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._ended > number, seconds)


@dataclass(frozen=True)
class StoppedMarker:
    """File in an item's folder that keeps it stopped across emulator restarts.

    Attributes:
        status: Stopped or Initialized.
        default_schema: under which its tables outside a schema folder were written.
    """

    status: DatabaseStatus
    default_schema: str

    @staticmethod
    def read(root: Path) -> StoppedMarker | None:
        """The marker; None for an item that is replicated."""
        with suppress(FileNotFoundError):
            content = json.loads((root / _MARKER).read_text(encoding="utf-8"))
            return StoppedMarker(DatabaseStatus(content["status"]), content["default_schema"])
        return None

    def write(self, root: Path) -> None:
        """Write it."""
        path = root / _MARKER
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"status": self.status.value, "default_schema": self.default_schema}), "utf-8")

    @staticmethod
    def remove(root: Path) -> None:
        """Remove it; repeatable."""
        (root / _MARKER).unlink(missing_ok=True)


@dataclass
class _Engine:
    """One item's engine."""

    ready_at: float
    status: DatabaseStatus = DatabaseStatus.INITIALIZED
    error: FabricError | None = None
    stop: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None
    change: threading.Lock = field(default_factory=threading.Lock)  # one start or stop at a time
    mirror: Mirror | None = None  # while it runs
    cycles: CycleBarrier = field(default_factory=CycleBarrier)


class EnginePool:
    """`MirroredDatabases` with engines.

    Args:
        store: the folder of the items.
        items: kept as an attribute.
        config: for all items; an item's definition wins.
        on_event: gets every event with its item, from any thread.
        on_failure: gets the reason why an engine ended unexpectedly.
        new_writer: the Delta writer of an item; Spark's where it gives None.
        delays: what engines do not see yet.
        resumes: whether a stopped item that starts again keeps its tables, which Fabric rebuilds.
        clock: monotonic seconds.
    """

    def __init__(  # noqa: PLR0913 - a composition root
        self,
        store: Path,
        items: Items,
        config: Config,
        *,
        on_event: Callable[[Item, Event], None] = lambda *_: None,
        on_failure: Callable[[str], None] = lambda _: None,
        new_writer: Callable[[Item], DeltaWriter | None] = lambda _: None,
        delays: VisibilityDelays | None = None,
        resumes: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self.items = items
        self._config = config
        self._on_event = on_event
        self._on_failure = on_failure
        self._new_writer = new_writer
        self._delays = delays or VisibilityDelays()
        self._resumes = resumes
        self._clock = clock
        self._engines: dict[str, _Engine] = {}
        self._lock = threading.Lock()

    def start_all(self) -> None:
        """Start every item, except those that were stopped, or never started."""
        for item in self.items.all():
            if not StoppedMarker.read(self.root(item)):
                self.start(item)

    def end(self) -> None:
        """End all engines after their current commits; those that ran run again after `start_all`."""
        with self._lock:
            threads = [engine.thread for engine in self._engines.values() if engine.thread]
            for engine in self._engines.values():
                engine.stop.set()
        for thread in threads:
            thread.join()

    def root(self, item: Item) -> Path:
        """The item's ROOT."""
        return self._store / item.path

    def mirror(
        self, item: Item, listeners: Sequence[Callable[[Event], None]] = (), config: Config | None = None
    ) -> Mirror:
        """The item's mirror, to be queried or run."""
        root = self.root(item)
        storage = RetryingStorage(EngineView(LocalStorage(root), self._delays, item.path))
        config = config or self._config_of(item)
        return Mirror(root, config, writer=self._new_writer(item), storage=storage, listeners=listeners)

    def status(self, item: Item) -> tuple[DatabaseStatus, FabricError | None]:
        engine = self._engine(item)
        with self._lock:
            is_new = engine.status is DatabaseStatus.INITIALIZED and self._clock() < engine.ready_at
            return (DatabaseStatus.INITIALIZING if is_new else engine.status), engine.error

    def tables(self, item: Item) -> Sequence[TableReport]:
        reports = [_report(entry) for entry in read_tables(LocalStorage(self.root(item)))]
        return sorted(reports, key=lambda report: (report.schema, report.table))

    def unmet_conditions(self, item: Item) -> Sequence[UnmetCondition]:
        """Each table of an item that has not caught up, or why its engine ended; nothing while it is stopped."""
        status, error = self.status(item)
        if error:
            return [UnmetCondition("", status.value, error.message, needs_attention=True)]
        if status not in _ACTIVE:
            return []
        with self.mirror(item) as mirror:
            try:
                unmet = tables_not_caught_up(mirror.status(), (), mirror.config.delta_default_schema)
            except TransientError as problem:
                return [UnmetCondition("", status.value, problem.message, problem.help)]
        return [condition for condition in unmet if condition.table]  # a zone without tables misses nothing

    def add(self, item: Item) -> None:
        with self._lock:
            self._mark_stopped(item, DatabaseStatus.INITIALIZED)
            self._engines[item.id] = _Engine(self._clock() + INITIALIZING_SECONDS)

    def start(self, item: Item) -> None:
        engine = self._engine(item)
        with engine.change:
            if self._engines.get(item.id) is not engine or engine.status in _ACTIVE:
                return
            if engine.thread:
                engine.thread.join()  # still at its last commit
            marker = StoppedMarker.read(self.root(item))
            thread = threading.Thread(target=self._run, args=(item, engine, marker), name=f"mirror {item.name}")
            with self._lock:
                engine.stop, engine.error = threading.Event(), None
                engine.status, engine.thread = DatabaseStatus.STARTING, thread
            thread.start()

    def stop(self, item: Item) -> None:
        engine = self._engine(item)
        with engine.change, self._lock:
            if engine.status in {DatabaseStatus.STOPPING, DatabaseStatus.STOPPED}:
                return
            self._mark_stopped(item, DatabaseStatus.STOPPED)
            engine.status = DatabaseStatus.STOPPING if engine.thread else DatabaseStatus.STOPPED
            engine.stop.set()

    def poll(self, item: Item) -> None:
        """Give up after `POLL_SECONDS`; do nothing where no engine runs."""
        engine = self._engine(item)
        before = engine.cycles.started
        if engine.mirror:
            engine.mirror.wake()
            engine.cycles.wait(before, POLL_SECONDS)

    def forget(self, item: Item) -> None:
        engine = self._engine(item)
        with engine.change:  # a start in progress comes first; a waiting one finds the engine forgotten
            with self._lock:
                del self._engines[item.id]
                engine.stop.set()
            if engine.thread:
                engine.thread.join()

    def _engine(self, item: Item) -> _Engine:
        with self._lock:
            if item.id not in self._engines:
                marker = StoppedMarker.read(self.root(item))
                status = marker.status if marker else DatabaseStatus.INITIALIZED
                self._engines[item.id] = _Engine(self._clock(), status)
            return self._engines[item.id]

    def _mark_stopped(self, item: Item, status: DatabaseStatus) -> None:
        StoppedMarker(status, self._config_of(item).default_schema).write(self.root(item))

    def _run(self, item: Item, engine: _Engine, marker: StoppedMarker | None) -> None:
        """One engine from start to stop, on a thread of its own."""
        try:
            engine.cycles = CycleBarrier()
            listeners: list[Callable[[Event], None]] = [lambda event: self._on_event(item, event), engine.cycles]
            if marker and marker.status is DatabaseStatus.STOPPED and not self._resumes:
                config = replace(self._config_of(item), default_schema=marker.default_schema)
                with self.mirror(item, listeners, config) as before:
                    before.rebuild()
            with self.mirror(item, listeners) as mirror:
                engine.mirror = mirror
                with self._lock:
                    if engine.status is DatabaseStatus.STARTING:  # not stopped in between
                        engine.status = DatabaseStatus.RUNNING
                        StoppedMarker.remove(self.root(item))
                mirror.run(engine.stop)
        except MirrorError as error:
            self._fail(item, engine, str(error))
        except Exception as error:
            self._fail(item, engine, f"internal error: {type(error).__name__}")
            raise
        finally:
            self._finish(item, engine)

    def _fail(self, item: Item, engine: _Engine, message: str) -> None:
        with self._lock:
            engine.error = FabricError(INTERNAL, message)
        self._on_failure(f"replication of {item.path} ended: {message}")

    def _finish(self, item: Item, engine: _Engine) -> None:
        if engine.status is DatabaseStatus.STOPPING:
            try:
                write_stopped(LocalStorage(self.root(item)), now=time.time())
            except StorageUnavailable as error:
                self._fail(item, engine, str(error))
        with self._lock:
            engine.status, engine.thread, engine.mirror = DatabaseStatus.STOPPED, None, None

    def _config_of(self, item: Item) -> Config:
        if item.definition is None:
            return self._config
        definition = read_definition(item.definition)
        options = {"default_schema": definition.default_schema, "vacuum_retention_days": definition.retention_days}
        changes: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
        return replace(self._config, **changes)


def _report(entry: Mapping[str, Any]) -> TableReport:
    metrics = entry.get("metrics", {})
    last_sync = metrics.get("lastSyncTimeUtc", NEVER)
    code = entry.get("errorCode", "")
    return TableReport(
        schema=entry.get("sourceSchemaName", ""),
        table=entry.get("sourceTableName", ""),
        status=entry.get("status", ""),
        processed_bytes=metrics.get("processedByte", 0),
        processed_rows=metrics.get("processedRowCount", 0),
        last_sync=None if last_sync == NEVER else last_sync,
        error=FabricError(code, entry.get("errorMessage", "")) if code else None,
    )


def shown_items(items: Items, databases: MirroredDatabases, mirror_of: Callable[[Item], Mirror]) -> Sequence[ShownItem]:
    """The mirrored databases of a STORE as the page shows them."""

    def shown(item: Item) -> ShownItem:
        status, error = databases.status(item)
        message = error.message if error else ""
        return ShownItem(item.id, item.workspace.name, item.name, status, message, partial(mirror_of, item))

    return [shown(item) for item in items.all()]
