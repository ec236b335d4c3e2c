"""Fault rules: which requests get an injected fault, their syntax, and the emulator's options."""

from __future__ import annotations

import re
import shlex
import threading
import time
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from mirror_engine.errors import UsageError
from mirror_engine.onelake.visibility import CHANNELS, VisibilityDelays

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from mirror_engine.onelake.items import Item

CREATE, FOLDER, APPEND, FLUSH, RENAME = "create", "folder", "append", "flush", "rename"
PUT, BLOCK, BLOCK_LIST, COPY, METADATA, LEASE = "put", "block", "blocklist", "copy", "metadata", "lease"
DELETE, DROP, LIST, READ, HEAD, BATCH, REST = "delete", "drop", "list", "read", "head", "batch", "rest"

CHANGES = (CREATE, FOLDER, APPEND, FLUSH, RENAME, PUT, BLOCK, BLOCK_LIST, COPY, METADATA, DELETE, DROP, BATCH, REST)
WRITES = (CREATE, FLUSH, PUT, BLOCK_LIST, COPY)  # these set a file's Last-Modified
OPERATIONS = (*CHANGES, LEASE, LIST, READ, HEAD)
METHODS = ("*", "GET", "HEAD", "PUT", "PATCH", "POST", "DELETE")
EVERY = "all"


@dataclass
class FaultRule:
    """One fault, and the requests that get it."""

    fault: str  # its name (`throttle`, `lost_response` …)
    method: str = "*"  # of the requests; `*` for all
    path: str = "*"  # a glob on their decoded path, from the workspace on
    nth: int = 1  # the first matching request that gets it, counted from 1
    count: int | None = 1  # how many requests in a row get it; None for all
    operations: Collection[str] | None = None  # of the requests; None for all
    duration_seconds: float | None = None  # instead of `count`: all requests for so long after the first that got it
    options: dict[str, Any] = field(default_factory=dict)  # of this fault (`{"seconds": 2.0}`)
    text: str = ""  # as the user wrote it
    matched: int = field(default=0, init=False)  # how many requests matched so far
    _since: float | None = field(default=None, init=False, repr=False)

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
    rename_updates_mtime: bool = False  # a rename sets Last-Modified, and with it a file's ETag
    blob_batch: str = "reject"  # or "accept"
    faults: list[FaultRule] = field(default_factory=list)
    # Gets each injected fault: the rule's text, the request's method and its path without the query
    on_fault: Callable[[str, str, str], None] = field(default=lambda *_: None, repr=False)
    # Lets an item's engine scan its landing zone, and returns when it has
    poll: Callable[[Item], None] = field(default=lambda _: None, repr=False)
    delays: VisibilityDelays = field(default_factory=VisibilityDelays, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def faults_of(self, method: str, path: str, operations: Collection[str] = ()) -> list[FaultRule]:
        """The rules whose fault this request gets, by its decoded path and operations; a call counts as one request."""
        now = time.monotonic()
        with self._lock:
            rules = [rule for rule in self.faults if rule.matches(method, path, operations, now)]
        for rule in rules:
            self.on_fault(rule.text or rule.fault, method, path)
        return rules

    def add(self, rules: Collection[FaultRule]) -> None:
        """Add rules, from the next request on."""
        with self._lock:
            self.faults = [*self.faults, *rules]

    def clear(self) -> None:
        """Remove all rules; delays that began go on."""
        with self._lock:
            self.faults = []


@dataclass(frozen=True)
class _Option:
    """An option's values: a pattern, the same in words, and what they are read as."""

    pattern: str
    expected: str
    read: Callable[[str], Any] = str


def _one_of(*choices: str) -> _Option:
    return _Option("|".join(choices), f"one of {', '.join(choices)}")


_SECONDS = _Option(r"[0-9]+\.?[0-9]*|\.[0-9]+", "seconds, 0 or more", float)
_WHOLE = _Option("[0-9]+", "a whole number, 0 or more", int)
_POSITIVE = _Option("0*[1-9][0-9]*", "a whole number, 1 or more", int)
_MATCHERS = {
    "method": _Option(rf"\*|(?i:{'|'.join(METHODS[1:])})", f"one of {', '.join(METHODS)}", str.upper),
    "path": _Option(".+", "a glob", lambda text: text.strip("/")),
    "operation": _one_of(*OPERATIONS),
    "nth": _POSITIVE,
    "count": _Option(
        f"{EVERY}|{_POSITIVE.pattern}",
        f"{EVERY}, or {_POSITIVE.expected}",
        lambda text: None if text == EVERY else int(text),
    ),
    "for": _SECONDS,
}


@dataclass(frozen=True)
class _Kind:
    """What a fault can be injected into, its own options, their defaults, and how many requests get it."""

    operations: Collection[str] | None = None
    options: Mapping[str, _Option] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    count: int | None = 1


_KINDS: dict[str, _Kind] = {
    "throttle": _Kind(
        options={"status": _one_of("429", "503"), "retry-after": _POSITIVE},
        defaults={"status": "503", "retry-after": 1},
    ),
    "lost_response": _Kind(CHANGES),
    "lost_request": _Kind(),
    "cut_body": _Kind(options={"bytes": _WHOLE}),
    "token_expired": _Kind(),
    "slow_flush": _Kind((FLUSH, BLOCK_LIST), {"seconds": _SECONDS}),
    "delay_visibility": _Kind(
        (CREATE, FOLDER, RENAME, PUT, BLOCK_LIST, COPY),
        {
            "seconds": _SECONDS,
            "from": _Option("({0})(,({0}))*".format("|".join(CHANNELS)), f"one or more of {','.join(CHANNELS)}"),
        },
        {"from": ",".join(CHANNELS)},
    ),
    "poll_mid_upload": _Kind((CREATE, APPEND, FLUSH, PUT, BLOCK, BLOCK_LIST, RENAME)),
    "folder_in_use": _Kind((DROP,)),
    "detect_delay": _Kind((DROP,), {"seconds": _SECONDS}),
    "same_mtime": _Kind(WRITES, count=None),
    "shuffle_ties": _Kind(WRITES, {"seed": _WHOLE}, {"seed": 0}, count=None),
}
NAMES = tuple(_KINDS)


def parse_fault(text: str) -> FaultRule:
    """Read a rule: the fault's name, then `name=value` in any order, quoted as in a shell.

    Raises:
        UsageError: what is wrong, and what is expected.
    """
    fault, all_faults = f"fault {text!r}", f"Use one of {', '.join(_KINDS)}."
    try:
        name, *words = shlex.split(text)
    except ValueError:
        raise UsageError(f"{fault}: no name, or an open quote", all_faults) from None
    kind = _KINDS.get(name)
    if kind is None:
        raise UsageError(f"{fault}: unknown fault {name!r}", all_faults)
    known = {**kind.options, **_MATCHERS}
    takes = f"{name} takes {', '.join(f'{word}=' for word in known)}."
    values = {"method": "*", "path": "*", "nth": 1, "count": kind.count, **kind.defaults}
    for word in words:
        key, _, value = word.partition("=")
        if not (key and value):
            raise UsageError(f"{fault}: {word!r} is not name=value", "Example: path=*/Orders/* or nth=3.")
        option = known.get(key)
        if option is None:
            raise UsageError(f"{fault}: unknown option {key}", takes)
        if not re.fullmatch(option.pattern, value):
            raise UsageError(f"{fault}: {key} is {value!r}", f"Expected: {option.expected}.")
        values[key] = option.read(value)
    if missing := kind.options.keys() - values.keys():
        raise UsageError(f"{fault}: {', '.join(sorted(missing))} is missing", takes)
    operation = values.get("operation")
    if operation and kind.operations is not None and operation not in kind.operations:
        possible = f"Use one of {', '.join(kind.operations)}."
        raise UsageError(f"{fault}: {name} cannot be injected into {operation}", possible)
    return FaultRule(
        name,
        method=values["method"],
        path=values["path"],
        nth=values["nth"],
        count=values["count"],
        operations=(operation,) if operation else kind.operations,
        duration_seconds=values.get("for"),
        options={key: values[key] for key in kind.options},
        text=text,
    )
