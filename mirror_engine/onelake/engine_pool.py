"""An engine for each item that is mirrored, one JVM for all of them."""

from __future__ import annotations

import io
import json
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO

from mirror_engine.errors import MirrorError, StorageUnavailable, TransientError
from mirror_engine.events import CycleEnded, CycleStarted
from mirror_engine.landing_zone.layout import ENGINE
from mirror_engine.mirror import Mirror
from mirror_engine.monitoring.fabric_files import INTERNAL, NEVER, read_tables, write_stopped
from mirror_engine.monitoring.wait_conditions import UnmetCondition, tables_not_caught_up
from mirror_engine.onelake.items import INITIALIZING_SECONDS, DatabaseStatus, FabricError, TableReport, read_definition
from mirror_engine.onelake.page.status_cache import ShownItem
from mirror_engine.onelake.visibility import ENGINE as ENGINE_CHANNEL
from mirror_engine.onelake.visibility import VisibilityDelays
from mirror_engine.storage.local import LocalStorage
from mirror_engine.storage.retrying import RetryingStorage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from mirror_engine.config import Config
    from mirror_engine.events import Event
    from mirror_engine.onelake.items import Item, Items, MirroredDatabases
    from mirror_engine.onelake.visibility import DeletedFolder
    from mirror_engine.storage.base import Entry, Storage
    from mirror_engine.tables.base import DeltaWriter


class Polls:
    """A listener of one engine, which runs one cycle at a time.

    Attributes:
        begun: the number of the last cycle that began; 0 for none.
    """

    def __init__(self) -> None:
        self.begun = 0
        self._ended = 0
        self._changed = threading.Condition()

    def __call__(self, event: Event) -> None:
        """Take down a cycle's begin or end."""
        with self._changed:
            if isinstance(event, CycleStarted):
                self.begun = event.number
            elif isinstance(event, CycleEnded):
                self._ended = event.number
                self._changed.notify_all()

    def wait(self, number: int, seconds: float) -> bool:
        """Wait for the end of a cycle of a higher number; whether it came in time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._ended > number, seconds)


_NOTE = f"{ENGINE}/idle.json"


@dataclass(frozen=True)
class StoppedMarker:
    """Of an item that was stopped, or never started.

    Attributes:
        status: Stopped or Initialized.
        default_schema: where tables outside a schema folder lie; the definition may name another one meanwhile.
    """

    status: DatabaseStatus
    default_schema: str

    @staticmethod
    def of(root: Path) -> StoppedMarker | None:
        """What an item's folder says; None for an item that is to be mirrored."""
        with suppress(FileNotFoundError):
            told = json.loads((root / _NOTE).read_text(encoding="utf-8"))
            return StoppedMarker(DatabaseStatus(told["status"]), told["default_schema"])
        return None

    def note(self, root: Path) -> None:
        """Write it into the item's folder."""
        path = root / _NOTE
        path.parent.mkdir(exist_ok=True)
        told = {"status": self.status.value, "default_schema": self.default_schema}
        path.write_text(json.dumps(told), encoding="utf-8")

    @staticmethod
    def end(root: Path) -> None:
        """It is mirrored again; repeatable."""
        (root / _NOTE).unlink(missing_ok=True)


class EngineView:
    """A `Storage` around an item's own; nothing differs while nothing is late (endpoint chapter 10).

    Args:
        storage: the item's.
        late: what is late; its paths are from the store's top.
        item: the item's path from the store's top.
    """

    def __init__(self, storage: Storage, late: VisibilityDelays, item: str) -> None:
        self._storage = storage
        self._late = late
        self._item = item

    def list(self, folder: str) -> Sequence[Entry] | None:
        """See `Storage`."""
        if ghost := self._ghost(folder):
            return ghost.folders.get(self._whole(folder))
        entries = self._storage.list(folder)
        if entries is None:
            return None
        lingering = [ghost.entry for ghost in self._late.ghosts() if _parent(ghost.path) == self._whole(folder)]
        hidden_by_name = {entry.name for entry in lingering}
        shown = [e for e in entries if e.name not in hidden_by_name and not self._is_hidden(_join(folder, e.name))]
        return sorted([*shown, *lingering], key=lambda entry: entry.name)

    def stat(self, path: str) -> Entry | None:
        """See `Storage`."""
        if ghost := self._ghost(path):
            return _entry(ghost, self._whole(path))
        return None if self._is_hidden(path) else self._storage.stat(path)

    def open(self, path: str) -> BinaryIO:
        """See `Storage`."""
        if ghost := self._ghost(path):
            content = ghost.contents.get(self._whole(path))
            if content is not None:
                return io.BytesIO(content)
        elif not self._is_hidden(path):
            return self._storage.open(path)
        raise FileNotFoundError(path)

    def write(self, path: str, content: bytes) -> None:
        """See `Storage`."""
        self._storage.write(path, content)

    def move(self, source: str, target: str) -> None:
        """See `Storage`; what lingers is gone already."""
        if not self._ghost(source):
            self._storage.move(source, target)

    def delete(self, path: str) -> None:
        """See `Storage`; what lingers is gone already."""
        if not self._ghost(path):
            self._storage.delete(path)

    def _is_hidden(self, path: str) -> bool:
        return self._late.is_hidden(self._whole(path), ENGINE_CHANNEL)

    def _ghost(self, path: str) -> DeletedFolder | None:
        whole = self._whole(path)
        return next((ghost for ghost in self._late.ghosts() if ghost.holds(whole)), None)

    def _whole(self, path: str) -> str:
        return _join(self._item, path)


def _entry(ghost: DeletedFolder, path: str) -> Entry | None:
    if path == ghost.path:
        return ghost.entry
    name = path.rpartition("/")[2]
    return next((entry for entry in ghost.folders.get(_parent(path), ()) if entry.name == name), None)


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _join(folder: str, name: str) -> str:
    return "/".join(filter(None, (folder, name)))


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


class EnginePool:
    """`MirroredDatabases` with engines.

    Args:
        store: the folder that the items lie in.
        items: which there are; kept as an attribute.
        config: for all items; an item's definition wins where it says something.
        tell: gets every event with the item it is of, from any thread.
        tell_end: is told why an engine has ended that was not to end.
        new_writer: door 2 of an item; Spark where it gives None.
        late: what engines are not to know yet.
        resumes: whether a stopped item that starts again keeps its tables, which Fabric rebuilds.
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
        late: VisibilityDelays | None = None,
        resumes: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self.items = items
        self._config = config
        self._tell = tell
        self._tell_end = tell_end
        self._new_writer = new_writer
        self._late = late or VisibilityDelays()
        self._resumes = resumes
        self._clock = clock
        self._lives: dict[str, _Life] = {}
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Mirror every item there is, but for those that were stopped, or never started."""
        for item in self.items.all():
            if not StoppedMarker.of(self.root(item)):
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
            rest = StoppedMarker.of(self.root(item))
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
            life.mirror.wake()
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
                rest = StoppedMarker.of(self.root(item))
                self._lives[item.id] = _Life(self._clock(), rest.status if rest else DatabaseStatus.INITIALIZED)
            return self._lives[item.id]

    def _rest(self, item: Item, status: DatabaseStatus) -> None:
        StoppedMarker(status, self._config_of(item).default_schema).note(self.root(item))

    def _live(self, item: Item, life: _Life, rest: StoppedMarker | None) -> None:
        """One engine from start to stop, on a thread of its own."""
        try:
            life.polls = Polls()
            listeners: list[Callable[[Event], None]] = [lambda event: self._tell(item, event), life.polls]
            if rest and rest.status is DatabaseStatus.STOPPED and not self._resumes:
                config = replace(self._config_of(item), default_schema=rest.default_schema)
                with self._mirror(item, config, listeners) as before:
                    before.rebuild()
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
                StoppedMarker.end(self.root(item))

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
        given: dict[str, Any] = {
            "default_schema": wanted.default_schema,
            "vacuum_retention_days": wanted.retention_days,
        }
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


_AT_WORK = frozenset({DatabaseStatus.STARTING, DatabaseStatus.RUNNING})


def unfinished(fleet: EnginePool) -> list[tuple[Item, UnmetCondition]]:
    """Each table that is not level, of the items that are mirrored; each engine that could not go on."""
    return [(item, each) for item in fleet.items.all() for each in _of(fleet, item)]


def _of(fleet: EnginePool, item: Item) -> Sequence[UnmetCondition]:
    state, error = fleet.status(item)
    if error:
        return [UnmetCondition("", state.value, error.message, needs_attention=True)]
    if state not in _AT_WORK:
        return []
    with fleet.mirror(item) as mirror:
        try:
            found = tables_not_caught_up(mirror.status(), (), mirror.config.delta_default_schema)
        except TransientError as problem:  # the next look may succeed
            return [UnmetCondition("", state.value, problem.message, problem.help)]
    return [each for each in found if each.table]  # a zone without tables holds nothing that could be missing


class ShownStore:
    """`DashboardSource` over a STORE.

    Args:
        items: which there are.
        databases: who mirrors them.
        mirror_of: an item's mirror.
    """

    def __init__(self, items: Items, databases: MirroredDatabases, mirror_of: Callable[[Item], Mirror]) -> None:
        self._items = items
        self._databases = databases
        self._mirror_of = mirror_of

    def items(self) -> Sequence[ShownItem]:
        """See `DashboardSource`."""
        return [self._shown(item) for item in self._items.all()]

    def _shown(self, item: Item) -> ShownItem:
        state, error = self._databases.status(item)
        said = error.message if error else ""
        return ShownItem(item.id, item.workspace.name, item.name, state, said, partial(self._mirror_of, item))
