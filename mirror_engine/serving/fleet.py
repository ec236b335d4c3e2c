"""An engine for each item that is mirrored, one JVM for all of them."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from mirror_engine.endpoint.databases import DatabaseStatus, FabricError, TableReport
from mirror_engine.endpoint.definition import read_definition
from mirror_engine.endpoint.late import Late
from mirror_engine.endpoint.unmirrored import INITIALIZING_SECONDS
from mirror_engine.errors import MirrorError, StorageUnavailable
from mirror_engine.mirror import Mirror
from mirror_engine.monitoring.fabric_errors import INTERNAL
from mirror_engine.monitoring.fabric_files import read_tables, write_stopped
from mirror_engine.monitoring.times import NEVER
from mirror_engine.serving.engine_view import EngineView
from mirror_engine.serving.polls import Polls
from mirror_engine.serving.rest import Rest
from mirror_engine.storage.local import LocalStorage
from mirror_engine.storage.retrying import RetryingStorage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from mirror_engine.config import Config
    from mirror_engine.delta.base import DeltaWriter
    from mirror_engine.endpoint.items import Item, Items
    from mirror_engine.events import Event

POLL_SECONDS = 60.0  # a first commit starts a JVM


@dataclass
class _Life:
    """What is known of one item's engine."""

    ready_at: float
    status: DatabaseStatus = DatabaseStatus.INITIALIZED
    error: FabricError | None = None
    stop: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None
    turn: threading.Lock = field(default_factory=threading.Lock)  # one start or stop at a time
    mirror: Mirror | None = None  # while it runs
    polls: Polls = field(default_factory=Polls)


class Fleet:
    """`MirroredDatabases` with engines.

    Args:
        store: the folder that the items lie in.
        items: which there are; kept as an attribute.
        config: for all items; an item's definition wins where it says something.
        tell: gets every event with the item it is of, from any thread.
        tell_end: is told why an engine has ended that was not to end.
        new_writer: door 2 of an item; Spark where it gives None.
        late: what engines are not to know yet.
        clock: seconds that only grow.
    """

    def __init__(  # noqa: PLR0913 - a composition root
        self,
        store: Path,
        items: Items,
        config: Config,
        *,
        tell: Callable[[Item, Event], None] = lambda *_: None,
        tell_end: Callable[[str], None] = lambda _: None,
        new_writer: Callable[[Item], DeltaWriter | None] = lambda _: None,
        late: Late | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self.items = items
        self._config = config
        self._tell = tell
        self._tell_end = tell_end
        self._new_writer = new_writer
        self._late = late or Late()
        self._clock = clock
        self._lives: dict[str, _Life] = {}
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Mirror every item there is, but for those that were stopped, or never started."""
        for item in self.items.all():
            if not Rest.of(self.root(item)):
                self.start(item)

    def end(self) -> None:
        """Stop all engines after their commits at hand, and wait for them; what ran, runs again after `begin`."""
        with self._lock:
            threads = [life.thread for life in self._lives.values() if life.thread]
            for life in self._lives.values():
                life.stop.set()
        for thread in threads:
            thread.join()

    def root(self, item: Item) -> Path:
        """The item's ROOT."""
        return self._store / item.path

    def mirror(self, item: Item, listeners: Sequence[Callable[[Event], None]] = ()) -> Mirror:
        """The item's mirror, to be looked at or run."""
        return self._mirror(item, self._config_of(item), listeners)

    def _mirror(self, item: Item, config: Config, listeners: Sequence[Callable[[Event], None]]) -> Mirror:
        root = self.root(item)
        storage = RetryingStorage(EngineView(LocalStorage(root), self._late, item.path))
        writer = self._new_writer(item)
        return Mirror(root, config, writer=writer, storage=storage, listeners=listeners)

    def status(self, item: Item) -> tuple[DatabaseStatus, FabricError | None]:
        """See `MirroredDatabases`."""
        life = self._life(item)
        with self._lock:
            is_new = life.status is DatabaseStatus.INITIALIZED and self._clock() < life.ready_at
            return (DatabaseStatus.INITIALIZING if is_new else life.status), life.error

    def tables(self, item: Item) -> Sequence[TableReport]:
        """See `MirroredDatabases`; read from the item's own `tables.json`, so that the two cannot differ."""
        entries = read_tables(LocalStorage(self.root(item)))
        reports = [_report(entry) for entry in entries]
        return sorted(reports, key=lambda report: (report.schema, report.table))

    def add(self, item: Item) -> None:
        """See `MirroredDatabases`."""
        with self._lock:
            self._rest(item, DatabaseStatus.INITIALIZED)
            self._lives[item.id] = _Life(self._clock() + INITIALIZING_SECONDS)

    def start(self, item: Item) -> None:
        """See `MirroredDatabases`."""
        life = self._life(item)
        with life.turn:
            is_forgotten = self._lives.get(item.id) is not life
            if is_forgotten or life.status in {DatabaseStatus.STARTING, DatabaseStatus.RUNNING}:
                return
            if life.thread:
                life.thread.join()  # still at its last commit
            rest = Rest.of(self.root(item))
            thread = threading.Thread(target=self._live, args=(item, life, rest), name=f"mirror {item.name}")
            with self._lock:
                life.stop, life.error = threading.Event(), None
                life.status, life.thread = DatabaseStatus.STARTING, thread
            thread.start()

    def stop(self, item: Item) -> None:
        """See `MirroredDatabases`."""
        life = self._life(item)
        with life.turn, self._lock:
            if life.status in {DatabaseStatus.STOPPING, DatabaseStatus.STOPPED}:
                return
            self._rest(item, DatabaseStatus.STOPPED)
            life.status = DatabaseStatus.STOPPING if life.thread else DatabaseStatus.STOPPED
            life.stop.set()

    def poll(self, item: Item) -> None:
        """See `MirroredDatabases`; gives up after `POLL_SECONDS`, and does nothing where no engine runs."""
        life = self._life(item)
        before = life.polls.begun
        if life.mirror:
            life.mirror.ring()
            life.polls.wait(before, POLL_SECONDS)

    def forget(self, item: Item) -> None:
        """See `MirroredDatabases`."""
        life = self._life(item)
        with life.turn:  # a start that is on its way comes first; one that waits finds it forgotten
            with self._lock:
                del self._lives[item.id]
                life.stop.set()
            if life.thread:
                life.thread.join()

    def _life(self, item: Item) -> _Life:
        with self._lock:
            if item.id not in self._lives:
                rest = Rest.of(self.root(item))
                self._lives[item.id] = _Life(self._clock(), rest.status if rest else DatabaseStatus.INITIALIZED)
            return self._lives[item.id]

    def _rest(self, item: Item, status: DatabaseStatus) -> None:
        Rest(status, self._config_of(item).default_schema).note(self.root(item))

    def _live(self, item: Item, life: _Life, rest: Rest | None) -> None:
        """One engine from start to stop, on a thread of its own."""
        try:
            life.polls = Polls()
            listeners: list[Callable[[Event], None]] = [lambda event: self._tell(item, event), life.polls]
            if rest and rest.status is DatabaseStatus.STOPPED:
                config = replace(self._config_of(item), default_schema=rest.default_schema)
                with self._mirror(item, config, listeners) as before:
                    before.restart()
            with self.mirror(item, listeners) as mirror:
                life.mirror = mirror
                self._runs(item, life)
                mirror.run(life.stop)
        except MirrorError as error:
            self._fail(item, life, str(error))
        except Exception as error:
            self._fail(item, life, f"unforeseen: {type(error).__name__}")
            raise
        finally:
            self._ended(item, life)

    def _runs(self, item: Item, life: _Life) -> None:
        with self._lock:
            if life.status is DatabaseStatus.STARTING:  # nobody has stopped it meanwhile
                life.status = DatabaseStatus.RUNNING
                Rest.end(self.root(item))

    def _fail(self, item: Item, life: _Life, message: str) -> None:
        with self._lock:
            life.error = FabricError(INTERNAL, message)
        self._tell_end(f"{item.path} is mirrored no longer: {message}")

    def _ended(self, item: Item, life: _Life) -> None:
        if life.status is DatabaseStatus.STOPPING:
            try:
                write_stopped(LocalStorage(self.root(item)), now=time.time())
            except StorageUnavailable as error:
                self._fail(item, life, str(error))
        with self._lock:
            life.status, life.thread, life.mirror = DatabaseStatus.STOPPED, None, None

    def _config_of(self, item: Item) -> Config:
        if item.definition is None:
            return self._config
        wanted = read_definition(item.definition)
        given: dict[str, Any] = {"default_schema": wanted.default_schema, "retention_days": wanted.retention_days}
        return replace(self._config, **{name: value for name, value in given.items() if value is not None})


def _report(entry: Mapping[str, Any]) -> TableReport:
    metrics = entry.get("metrics", {})
    synced = metrics.get("lastSyncTimeUtc", NEVER)
    code = entry.get("errorCode", "")
    return TableReport(
        schema=entry.get("sourceSchemaName", ""),
        table=entry.get("sourceTableName", ""),
        status=entry.get("status", ""),
        processed_bytes=metrics.get("processedByte", 0),
        processed_rows=metrics.get("processedRowCount", 0),
        last_sync=None if synced == NEVER else synced,
        error=FabricError(code, entry.get("errorMessage", "")) if code else None,
    )
