"""An engine for each item that is replicated, one JVM for all of them."""

from __future__ import annotations

import json
import math
import threading
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from mirror_engine.errors import MirrorError, StorageUnavailable, TransientError
from mirror_engine.events import CycleEnded, CycleStarted
from mirror_engine.landing_zone.layout import ENGINE
from mirror_engine.mirror import Mirror, status_of
from mirror_engine.monitoring import fabric_errors, fabric_files
from mirror_engine.monitoring.monitoring_files import HEARTBEAT_SECONDS
from mirror_engine.monitoring.wait_conditions import UnmetCondition, tables_not_caught_up
from mirror_engine.onelake.definition import read_definition
from mirror_engine.onelake.engine_view import EngineView
from mirror_engine.storage.local import LocalStorage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from mirror_engine.config import Config
    from mirror_engine.events import Event
    from mirror_engine.onelake.items import Item, Items
    from mirror_engine.onelake.options import ServerPlan

POLL_SECONDS = 60.0  # a first commit starts a JVM
# Of an item that is created in this context; by default long enough for a publisher to see it (LZ-9.4)
INITIALIZING_SECONDS: ContextVar[float] = ContextVar("initializing_seconds", default=1.0)
THROTTLED_SECONDS = 0.2  # between two looks whether an engine is throttled any longer
_MARKER = f"{ENGINE}/stopped.json"


class DatabaseStatus(StrEnum):
    """A mirrored database's Fabric status (LZ-9.4); Paused only by a fault."""

    INITIALIZING = "Initializing"
    INITIALIZED = "Initialized"
    STARTING = "Starting"
    RUNNING = "Running"
    PAUSED = "Paused"
    STOPPING = "Stopping"
    STOPPED = "Stopped"


_ACTIVE = frozenset({DatabaseStatus.STARTING, DatabaseStatus.RUNNING})
_Command: TypeAlias = Literal["start", "stop", "pause", "opened", "ended", "failed"]
# the next status by command and status; a command has no effect on other statuses
_NEXT: dict[_Command, dict[DatabaseStatus, DatabaseStatus]] = {
    "start": {
        DatabaseStatus.INITIALIZED: DatabaseStatus.STARTING,
        DatabaseStatus.PAUSED: DatabaseStatus.STARTING,
        DatabaseStatus.STOPPING: DatabaseStatus.STARTING,  # after its thread has ended
        DatabaseStatus.STOPPED: DatabaseStatus.STARTING,
    },
    "opened": {DatabaseStatus.STARTING: DatabaseStatus.RUNNING},
    "pause": dict.fromkeys(_ACTIVE, DatabaseStatus.PAUSED),
    "stop": dict.fromkeys({*_ACTIVE, DatabaseStatus.INITIALIZED, DatabaseStatus.PAUSED}, DatabaseStatus.STOPPING),
    "ended": dict.fromkeys({*_ACTIVE, DatabaseStatus.STOPPING}, DatabaseStatus.STOPPED),
    "failed": dict.fromkeys(DatabaseStatus, DatabaseStatus.STOPPED),
}


@dataclass(frozen=True)
class ShownItem:
    """A mirrored database as the page shows it."""

    id: str  # its GUID
    workspace: str  # as displayed
    name: str
    status: DatabaseStatus  # its Fabric status
    error: str  # why its engine ended, or waits; `""` where it does not
    view: Callable[[], Mirror]  # opens its mirror; raises `MirrorError` where it is gone

    @property
    def should_run(self) -> bool:
        """Whether it was started and not stopped, or its engine failed."""
        return bool(self.error) or self.status in _ACTIVE


@dataclass
class _Engine:
    """One item's engine; its cycles are numbered from 1."""

    ready_at: float
    status: DatabaseStatus = DatabaseStatus.INITIALIZED
    error: str = ""
    throttled_until: float = 0.0
    throttled: str = ""  # why, in Fabric's words
    stop: threading.Event = field(default_factory=threading.Event)
    pause: threading.Event = field(default_factory=threading.Event)  # set after `stop`, or for a while
    thread: threading.Thread | None = None
    change: threading.Lock = field(default_factory=threading.Lock)  # one start or stop at a time
    mirror: Mirror | None = None  # while it runs
    started_cycle: int = 0
    ended_cycle: int = 0
    cycle_ended: threading.Condition = field(default_factory=threading.Condition)

    def can(self, command: _Command) -> bool:
        return self.status in _NEXT[command]

    def take(self, command: _Command) -> None:
        self.status = _NEXT[command].get(self.status, self.status)

    def on_event(self, event: Event) -> None:
        with self.cycle_ended:
            if isinstance(event, CycleStarted):
                self.started_cycle = event.number
            elif isinstance(event, CycleEnded):
                self.ended_cycle = event.number
                self.cycle_ended.notify_all()

    def end(self) -> None:
        """Let it end after its current commit."""
        self.stop.set()
        self.pause.set()
        if mirror := self.mirror:
            mirror.wake()


def _unmet(mirror: Mirror, status: DatabaseStatus) -> Sequence[UnmetCondition]:
    try:
        unmet = tables_not_caught_up(status_of(mirror), (), mirror.config.delta_default_schema)
    except TransientError as problem:
        return [UnmetCondition("", status.value, problem.message, problem.help)]
    return [condition for condition in unmet if condition.table]  # a zone without tables misses nothing


@dataclass(eq=False)
class EnginePool:
    """Starts and stops replication of items; thread-safe, and all but `end`, `poll` and `forget` return soon."""

    plan: ServerPlan
    items: Items  # of its store
    on_event: Callable[[Item, Event], None] = lambda *_: None  # gets every event with its item, from any thread
    on_failure: Callable[[str], None] = lambda _: None  # gets the reason why an engine ended unexpectedly
    _engines: dict[str, _Engine] = field(default_factory=dict, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def __post_init__(self) -> None:
        self.clock = self.plan.options.clock  # of all that waits

    def start_all(self) -> None:
        """Start every item, except those that were stopped, or never started."""
        for item in self.items.all():
            if not self._marker(item):
                self.start(item)

    def end(self) -> None:
        """End all engines after their current commits; those that ran run again after `start_all`."""
        with self._lock:
            threads = [engine.thread for engine in self._engines.values() if engine.thread]
            for engine in self._engines.values():
                engine.end()
        for thread in threads:
            thread.join()

    def shown(self) -> Sequence[ShownItem]:
        return [
            ShownItem(item.id, item.workspace.name, item.name, *self.status(item), partial(self._mirror, item))
            for item in self.items.all()
        ]

    def status(self, item: Item) -> tuple[DatabaseStatus, str]:
        """Return an item's status, and why its engine ended or waits (`""` if it does neither)."""
        engine = self._engine(item)
        with self._lock:
            is_new = engine.status is DatabaseStatus.INITIALIZED and self.clock.monotonic() < engine.ready_at
            throttled = engine.throttled if engine.status in _ACTIVE and self._is_throttled(engine) else ""
            return (DatabaseStatus.INITIALIZING if is_new else engine.status), engine.error or throttled

    def tables(self, item: Item) -> Sequence[Mapping[str, Any]]:
        """The entries of the item's `tables.json`, by schema and name."""
        entries = fabric_files.read_tables(LocalStorage(self._root(item)))
        return sorted(entries, key=lambda entry: (entry.get("sourceSchemaName", ""), entry.get("sourceTableName", "")))

    def unmet_conditions(self, item: Item) -> Sequence[UnmetCondition]:
        """Each table of an item that has not caught up, or why its engine ended or waits; nothing while stopped."""
        status, error = self.status(item)
        if status is DatabaseStatus.PAUSED:
            error = "replication is paused; startMirroring resumes it"
        if error:
            return [UnmetCondition("", status.value, error, needs_attention=status not in _ACTIVE)]
        if status not in _ACTIVE or not self.plan.has_engines:
            return []
        with self._mirror(item) as mirror:
            return _unmet(mirror, status)

    def unfinished(self) -> list[tuple[str, UnmetCondition]]:
        """List what each item waits for, with the item's path."""
        return [(item.path, unmet) for item in self.items.all() for unmet in self.unmet_conditions(item)]

    def add(self, item: Item) -> None:
        """Register an item that the REST API created: Initializing for some time, then Initialized."""
        with self._lock:
            self._mark_stopped(item, DatabaseStatus.INITIALIZED)
            self._engines[item.id] = _Engine(self.clock.monotonic() + INITIALIZING_SECONDS.get())

    def start(self, item: Item) -> None:
        """Start or resume replication; idempotent. After a stop all tables are rebuilt (LZ-7.7)."""
        engine = self._engine(item)
        with engine.change:
            if self._engines.get(item.id) is not engine or engine.status in _ACTIVE:
                return
            if engine.thread:
                engine.thread.join()  # still at its last commit
            marker = self._marker(item)
            with self._lock:
                engine.stop, engine.pause = threading.Event(), threading.Event()
                engine.error = ""
                engine.take("start")
                if self.plan.has_engines:
                    run = partial(self._run, item, engine, marker)
                    engine.thread = threading.Thread(target=run, name=f"mirror {item.name}")
                    engine.thread.start()
            if not self.plan.has_engines:
                self._note_running(item, engine)

    def stop(self, item: Item) -> None:
        """Stop replication after the current commit; idempotent."""
        engine = self._engine(item)
        with engine.change, self._lock:
            if not engine.can("stop"):
                return
            self._mark_stopped(item, DatabaseStatus.STOPPED)
            is_paused = engine.status is DatabaseStatus.PAUSED and self.plan.has_engines
            engine.take("stop")
            engine.end()
            if not engine.thread:
                engine.take("ended")
            if is_paused and not engine.thread:
                with suppress(StorageUnavailable):  # the status in Fabric's words; the item is stopped without it
                    fabric_files.write_stopped(LocalStorage(self._root(item)), now=self.clock())

    def pause(self, item: Item, *, reseeds: bool) -> None:
        """Pause an active item after its current commit; its next start rebuilds all tables only if it reseeds."""
        engine = self._engine(item)
        with engine.change, self._lock:
            if engine.can("pause"):
                self._mark_stopped(item, DatabaseStatus.PAUSED, reseeds=reseeds)
                engine.take("pause")
                engine.end()

    def throttle(self, item: Item, seconds: float) -> None:
        """Pause an item's engine after its current commit for some time; what lands meanwhile is applied afterwards."""
        engine = self._engine(item)
        with self._lock:
            until = fabric_files.dotnet(self.clock() + seconds).partition(".")[0]
            engine.throttled = fabric_errors.THROTTLED.format(time=until)
            engine.throttled_until = self.clock.monotonic() + seconds
            engine.pause.set()

    def poll(self, item: Item) -> bool:
        """Scan the item's landing zone now; returns when what can be applied is applied, or after `POLL_SECONDS`.

        False where no engine runs, or it waits.
        """
        engine = self._engine(item)
        with engine.cycle_ended:
            engine.cycle_ended.wait_for(lambda: engine.status is not DatabaseStatus.STARTING, POLL_SECONDS)
        before = engine.started_cycle
        mirror = engine.mirror
        if mirror is None or self._is_throttled(engine):
            return False
        mirror.wake()
        with engine.cycle_ended:
            has_ended = lambda: engine.ended_cycle > before or engine.mirror is not mirror  # noqa: E731
            return engine.cycle_ended.wait_for(has_ended, POLL_SECONDS)

    def forget(self, item: Item) -> None:
        """Stop, and release the item's folder, which is about to be renamed or removed."""
        engine = self._engine(item)
        with engine.change:  # a start in progress comes first; a waiting one finds the engine forgotten
            with self._lock:
                del self._engines[item.id]
                engine.end()
            if engine.thread:
                engine.thread.join()

    def _root(self, item: Item) -> Path:
        return self.plan.store.absolute() / item.path

    def _mirror(
        self, item: Item, listeners: Sequence[Callable[[Event], None]] = (), config: Config | None = None
    ) -> Mirror:
        root = self._root(item)
        storage = EngineView(root, self.plan.options.history, item.path)
        config = config or self._config_of(item)
        writer = self.plan.new_writer(item)
        return Mirror(root, config, writer=writer, storage=storage, listeners=listeners, clock=self.clock)

    def _engine(self, item: Item) -> _Engine:
        with self._lock:
            if item.id not in self._engines:
                marker = self._marker(item)
                status = DatabaseStatus(marker["status"]) if marker else DatabaseStatus.INITIALIZED
                self._engines[item.id] = _Engine(self.clock.monotonic(), status)
            return self._engines[item.id]

    def _is_throttled(self, engine: _Engine) -> bool:
        return self.clock.monotonic() < engine.throttled_until

    def _marker(self, item: Item) -> Mapping[str, Any] | None:
        """The marker that keeps an item Stopped, Paused or Initialized across restarts, with its tables' schema."""
        with suppress(FileNotFoundError):
            marker: Mapping[str, Any] = json.loads((self._root(item) / _MARKER).read_text(encoding="utf-8"))
            return marker
        return None

    def _mark_stopped(self, item: Item, status: DatabaseStatus, *, reseeds: bool = False) -> None:
        schema = self._config_of(item).default_schema
        marker = {"status": status.value, "default_schema": schema, "reseeds": reseeds}
        path = self._root(item) / _MARKER
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(marker), encoding="utf-8")

    def _note_running(self, item: Item, engine: _Engine) -> None:
        with self._lock, engine.cycle_ended:
            if engine.can("opened"):  # not stopped in between
                engine.take("opened")
                (self._root(item) / _MARKER).unlink(missing_ok=True)
            engine.cycle_ended.notify_all()

    def _run(self, item: Item, engine: _Engine, marker: Mapping[str, Any] | None) -> None:
        try:
            engine.started_cycle = engine.ended_cycle = 0
            listeners: list[Callable[[Event], None]] = [partial(self.on_event, item), engine.on_event]
            is_stopped = marker is not None and marker["status"] == DatabaseStatus.STOPPED
            if marker and (marker["reseeds"] if not is_stopped else not self.plan.resumes):
                config = replace(self._config_of(item), default_schema=marker["default_schema"])
                with self._mirror(item, listeners, config) as before:
                    before.rebuild(lose_rows=True)
            with self._mirror(item, listeners) as mirror:
                engine.mirror = mirror
                self._note_running(item, engine)
                while True:
                    engine.pause.clear()
                    self._wait_throttled(item, engine)
                    if engine.stop.is_set():  # asked after clearing: `stop` is set before `pause`
                        break
                    mirror.run(engine.pause)
        except MirrorError as error:
            self._fail(item, engine, str(error))
        except Exception as error:
            self._fail(item, engine, f"internal error: {type(error).__name__}")
            raise
        finally:
            self._finish(item, engine)

    def _wait_throttled(self, item: Item, engine: _Engine) -> None:
        """Wait while the engine is throttled and not stopped, with the monitoring file written at each heartbeat."""
        shown_at = -math.inf
        while self._is_throttled(engine) and not engine.stop.wait(THROTTLED_SECONDS):
            if self.clock.monotonic() >= shown_at + HEARTBEAT_SECONDS:
                shown_at = self.clock.monotonic()
                with suppress(StorageUnavailable):  # written again with the next heartbeat
                    storage = LocalStorage(self._root(item))
                    fabric_files.write_replicator(storage, now=self.clock(), error=engine.throttled)

    def _fail(self, item: Item, engine: _Engine, message: str) -> None:
        engine.error = message
        self.on_failure(f"replication of {item.path} ended: {message}")

    def _finish(self, item: Item, engine: _Engine) -> None:
        storage, now = LocalStorage(self._root(item)), self.clock()
        try:
            if engine.status is DatabaseStatus.STOPPING:
                fabric_files.write_stopped(storage, now=now)
            elif engine.status is DatabaseStatus.PAUSED:
                fabric_files.write_replicator(storage, now=now, status="Paused")
        except StorageUnavailable as error:
            self._fail(item, engine, str(error))
        with self._lock, engine.cycle_ended:
            engine.take("failed" if engine.error else "ended")
            engine.thread = engine.mirror = None
            engine.cycle_ended.notify_all()

    def _config_of(self, item: Item) -> Config:
        if item.definition is None:
            return self.plan.config
        return replace(self.plan.config, **read_definition(item.definition))
