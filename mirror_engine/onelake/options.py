"""What an emulator serves, and how it differs from OneLake: its options, and rules by which requests get faults."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Literal

from mirror_engine.clock import Clock
from mirror_engine.config import Config
from mirror_engine.onelake.connection import Listening
from mirror_engine.onelake.engine_view import FileHistory

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from mirror_engine.onelake.items import Item
    from mirror_engine.tables.base import DeltaWriter

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
    """Deliberate differences of the emulator from OneLake; none by default."""

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
    history: FileHistory = field(default_factory=FileHistory, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __post_init__(self) -> None:
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
        """Apply a rule on mirrored databases or time; other rules wait for their requests."""
        if rule.operations == ():
            self.on_fault(rule.text, "", "")
            self.hold(rule)

    def restart(self, lead_seconds: float) -> None:
        """Restore the initial rules, unused, with the clock this many seconds ahead."""
        self.faults = [rule.unused() for rule in self._first]
        self.clock.lead_seconds = lead_seconds
        self.history = FileHistory()

    def clear(self) -> None:
        """Remove all rules."""
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
