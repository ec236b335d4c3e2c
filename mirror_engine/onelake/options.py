"""How the emulator differs from OneLake: its options, and the rules by which requests get faults."""

from __future__ import annotations

import io
import math
import threading
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

from mirror_engine.clock import Clock
from mirror_engine.config import Config
from mirror_engine.landing_zone.listing import Kind
from mirror_engine.landing_zone.names import METADATA_FILE
from mirror_engine.onelake.connection import Listening
from mirror_engine.onelake.errors import StorageApiError, StorageErrorCode
from mirror_engine.storage.base import joined

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

    from mirror_engine.landing_zone.listing import Entry
    from mirror_engine.onelake.items import Item
    from mirror_engine.storage.base import Storage
    from mirror_engine.tables.base import DeltaWriter

LISTS, HEAD, ENGINE = "lists", "head", "engine"
CHANNELS = (LISTS, HEAD, ENGINE)
MAX_CONTINUED = 10_000  # files whose former identities are remembered: an engine sees them long before

# Makes the Last-Modified of a change in this request of the true time, both in nanoseconds
TIME_SHIFT: ContextVar[Callable[[int], int]] = ContextVar("time_shift", default=lambda true_ns: true_ns)


@dataclass(frozen=True)
class DeletedFolder:
    """A folder as it was when it was deleted; paths are relative to the store."""

    path: str  # its own
    entries: Mapping[str, Entry]  # by path, its own and all below it
    contents: Mapping[str, bytes]  # of its metadata files, by path; other files cannot be read any more

    @staticmethod
    def of(storage: Storage, path: str) -> DeletedFolder:
        """An existing folder as it is now; PathNotFound."""
        entry = storage.stat(path)
        if entry is None:
            raise StorageApiError(StorageErrorCode.PathNotFound)
        entries, contents, pending = {path: entry}, {}, [path]
        while pending:
            folder = pending.pop()
            for child in storage.list(folder) or ():
                below = f"{folder}/{child.name}"
                entries[below] = child
                if child.kind is Kind.FOLDER:
                    pending.append(below)
                elif child.name == METADATA_FILE:
                    with suppress(FileNotFoundError), storage.open(below) as file:
                        contents[below] = file.read()
        return DeletedFolder(path, entries, contents)


class VisibilityDelays:
    """Delayed names and deleted folders by a clock, replaced files; paths are relative to the store. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._now = clock.monotonic
        self._hidden: dict[str, tuple[float, Collection[str]]] = {}
        self._deleted: dict[str, tuple[float, DeletedFolder]] = {}
        self._replaced: dict[tuple[str, str], str] = {}
        self._continued: dict[str, tuple[str, ...]] = {}

    def hide(self, path: str, channels: Collection[str], seconds: float = math.inf) -> None:
        """Hide a new name from these channels; for 0 seconds shows it."""
        self._hidden[path] = self._now() + seconds, channels

    def is_hidden(self, path: str, channel: str) -> bool:
        until, channels = self._hidden.get(path, (0.0, ()))
        return channel in channels and self._now() < until

    def note_replaced(self, path: str, identity: str, by: str) -> None:
        """Let the engine know which file another one, by its identity, takes the place of."""
        self._replaced[path, by] = identity

    def note_continued(self, identity: str, by: str) -> None:
        """Let the engine know that a file is about to go on under another identity, as after a flush."""
        self._continued[by] = (*self._continued.get(identity, ()), identity)
        if len(self._continued) > MAX_CONTINUED:
            del self._continued[next(iter(self._continued))]

    def forget_continued(self, identity: str) -> None:
        """Drop the history of an identity that no file has any more."""
        self._continued.pop(identity, None)

    def with_history(self, path: str, entry: Entry) -> Entry:
        """An entry with what it replaced or continues."""
        replaced, continues = self._replaced.get((path, entry.identity), ""), self._continued.get(entry.identity, ())
        return replace(entry, replaced=replaced, continues=continues) if replaced or continues else entry

    def keep_visible(self, folder: DeletedFolder, seconds: float) -> None:
        """Let the engine see a deleted folder for some time; for 0 seconds shows the deletion."""
        self._deleted[folder.path] = self._now() + seconds, folder

    def deleted_folders(self) -> Sequence[DeletedFolder]:
        return [folder for until, folder in list(self._deleted.values()) if self._now() < until]


@dataclass(frozen=True)
class EngineView:
    """`Storage` of one item, whose path is relative to the store, as its engine sees it with the delays applied."""

    storage: Storage
    delays: VisibilityDelays
    item: str
    is_store = False

    def list(self, folder: str) -> Sequence[Entry] | None:
        path = joined(self.item, folder)
        if deleted := self._deleted(folder):
            found = deleted.entries.get(path)
            entries: Sequence[Entry] | None = [] if found and found.kind is Kind.FOLDER else None
        else:
            entries = self.storage.list(folder)
        if entries is None:
            return None
        shown = {
            each.name: self.delays.with_history(f"{path}/{each.name}", each)
            for each in entries
            if not self.delays.is_hidden(f"{path}/{each.name}", ENGINE)
        }
        for kept in self.delays.deleted_folders():
            shown |= {each.name: each for at, each in kept.entries.items() if at.rpartition("/")[0] == path}
        return [entry for _, entry in sorted(shown.items())]

    def stat(self, path: str) -> Entry | None:
        if deleted := self._deleted(path):
            return deleted.entries.get(joined(self.item, path))
        entry = None if self._is_hidden(path) else self.storage.stat(path)
        return entry and self.delays.with_history(joined(self.item, path), entry)

    def open(self, path: str, only: Entry | None = None) -> BinaryIO:
        if deleted := self._deleted(path):
            content = deleted.contents.get(joined(self.item, path))
            if content is not None:
                return io.BytesIO(content)
        elif not self._is_hidden(path):
            return self.storage.open(path, only)
        raise FileNotFoundError(path)

    def write(self, path: str, content: bytes) -> None:
        self.storage.write(path, content)

    def move(self, source: str, target: str, only: Entry | None = None) -> bool:
        return not self._deleted(source) and self.storage.move(source, target, only)

    def delete(self, path: str) -> None:
        if not self._deleted(path):
            self.storage.delete(path)

    def scan(self, folder: str) -> Storage:  # noqa: ARG002 - of a folder of this machine
        return self

    def _is_hidden(self, path: str) -> bool:
        return self.delays.is_hidden(joined(self.item, path), ENGINE)

    def _deleted(self, path: str) -> DeletedFolder | None:
        whole = f"{joined(self.item, path)}/"
        return next((each for each in self.delays.deleted_folders() if whole.startswith(f"{each.path}/")), None)


LongRunning = Literal["mixed", "always", "never"]  # which calls of Fabric's REST API answer 202


@dataclass
class FaultRule:
    """One fault, and the requests that get it."""

    fault: str  # its name (`throttle`, `lost_response` …)
    method: str = "*"  # of the requests; `*` for all
    path: str = "*"  # a glob on their decoded path, from the workspace on
    nth: int = 1  # the first matching request that gets it, counted from 1
    count: int | None = 1  # how many requests in a row get it; None for all
    operations: Collection[str] | None = None  # of the requests; None for all, `()` where it acts on databases
    duration_seconds: float | None = None  # instead of `count`: all requests for so long after the first that got it
    options: dict[str, Any] = field(default_factory=dict)  # of this fault (`{"seconds": 2.0}`)
    text: str = ""  # as the user wrote it
    matched: int = field(default=0, init=False)  # how many requests matched so far
    _since: float | None = field(default=None, init=False, repr=False)

    def unused(self) -> FaultRule:
        return replace(self, options=dict(self.options))

    def matches(self, method: str, path: str, operations: Collection[str], now: float) -> bool:
        """Whether this request gets the fault; each call counts as one request."""
        if self.method not in {"*", method} or not fnmatchcase(path, self.path):
            return False
        if self.operations is not None and set(self.operations).isdisjoint(operations):
            return False
        self.matched += 1
        if self.matched < self.nth:
            return False
        if self.duration_seconds is None:
            return self.count is None or self.matched < self.nth + self.count
        self._since = now if self._since is None else self._since
        return now < self._since + self.duration_seconds


@dataclass
class EmulatorOptions:
    """How the emulator differs from OneLake; by default not at all."""

    allow_managed_folder_changes: bool = False  # let clients create, rename and delete managed folders
    allow_bare_names: bool = False  # let paths name an item by its display name alone
    rename_updates_mtime: bool = False  # a rename sets Last-Modified, and with it a file's ETag
    blob_batch: str = "reject"  # or "accept"
    long_running: LongRunning = "mixed"
    faults: list[FaultRule] = field(default_factory=list)
    # Gets each injected fault: the rule's text, the request's method and its path without the query
    on_fault: Callable[[str, str, str], None] = field(default=lambda *_: None, repr=False)
    # Lets an item's engine scan its landing zone, and returns when it has
    poll: Callable[[Item], object] = field(default=lambda _: None, repr=False)
    # Puts mirrored databases into the state that a fault of theirs names, or moves the clock
    hold: Callable[[FaultRule], None] = field(default=lambda _: None, repr=False)
    clock: Clock = field(default_factory=Clock, repr=False)  # of all that waits, but gives no Last-Modified
    delays: VisibilityDelays = field(init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __post_init__(self) -> None:
        self.delays = VisibilityDelays(self.clock)
        self._first = [rule.unused() for rule in self.faults]

    def faults_of(self, method: str, path: str, operations: Collection[str] = ()) -> list[FaultRule]:
        """The rules whose fault this request gets, by its decoded path and operations; a call counts as one request."""
        now = self.clock.monotonic()
        with self._lock:
            rules = [rule for rule in self.faults if rule.matches(method, path, operations, now)]
        for rule in rules:
            self.on_fault(rule.text or rule.fault, method, path)
        return rules

    def add(self, rules: Collection[FaultRule]) -> None:
        """Add rules, from the next request on; those of mirrored databases and of time act at once.

        UsageError where the clock cannot be moved so far.
        """
        for rule in rules:
            self.apply(rule)
        with self._lock:
            self.faults = [*self.faults, *rules]

    def apply(self, rule: FaultRule) -> None:
        """Let a rule of mirrored databases or of time act; others wait for their requests."""
        if rule.operations == ():
            self.on_fault(rule.text, "", "")
            self.hold(rule)

    def restart(self, lead_seconds: float) -> None:
        """Return to the first rules, unused, without delays, and to a clock that is ahead by so much."""
        self.faults = [rule.unused() for rule in self._first]
        self.clock.lead_seconds = lead_seconds
        self.delays = VisibilityDelays(self.clock)

    def clear(self) -> None:
        """Remove all rules; delays that began go on."""
        with self._lock:
            self.faults = []


@dataclass(frozen=True)
class ServerPlan:
    """What an emulator serves, and how."""

    store: Path  # the folder of workspaces and items; created where missing
    workspace: str | None = None  # the default mirrored database, created where missing; None for the first
    item: str | None = None
    has_engines: bool = True  # whether landed files are applied
    listening: Listening = field(default_factory=Listening)  # where
    options: EmulatorOptions = field(default_factory=EmulatorOptions)  # how it differs from OneLake
    config: Config = field(default_factory=Config)  # of the engines
    # the Delta writer of an item; Spark's where it gives None
    new_writer: Callable[[Item], DeltaWriter | None] = lambda _: None
    has_fault_api: bool = False  # whether faults can be switched while it runs
    resumes: bool = False  # whether a stopped item that starts again keeps its tables, which Fabric rebuilds
