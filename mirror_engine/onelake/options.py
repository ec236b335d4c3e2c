"""How the emulator differs from OneLake: its options, and the faults that are switched on."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from mirror_engine.clock import Clock
from mirror_engine.onelake.engine_view import FileHistory

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from mirror_engine.onelake.fault_rules import FaultRule
    from mirror_engine.onelake.items import Item

LongRunning = Literal["mixed", "always", "never"]  # which calls of Fabric's REST API answer 202


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
