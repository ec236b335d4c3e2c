"""Faults as a user writes them: `throttle status=429 retry-after=2 method=PUT path=*/Orders/* nth=3 count=2`."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from mirror_engine.endpoint.late import SIGHTS
from mirror_engine.endpoint.switches import FaultSwitch
from mirror_engine.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    Value = float | str

_Found = TypeVar("_Found")

CREATE, FOLDER, APPEND, FLUSH, RENAME = "create", "folder", "append", "flush", "rename"
PUT, BLOCK, BLOCK_LIST, COPY, METADATA, LEASE = "put", "block", "blocklist", "copy", "metadata", "lease"
DELETE, DROP, LIST, READ, HEAD, BATCH, REST = "delete", "drop", "list", "read", "head", "batch", "rest"

CHANGES = (CREATE, FOLDER, APPEND, FLUSH, RENAME, PUT, BLOCK, BLOCK_LIST, COPY, METADATA, DELETE, DROP, BATCH, REST)
WRITES = (CREATE, FLUSH, PUT, BLOCK_LIST, COPY)  # which give a file its LastModified
OPERATIONS = (*CHANGES, LEASE, LIST, READ, HEAD)
METHODS = ("*", "GET", "HEAD", "PUT", "PATCH", "POST", "DELETE")
EVERY = "all"


class _Unfit(ValueError):
    """What a word's value ought to be."""


@dataclass(frozen=True)
class _Kind:
    """What there is to know of one fault.

    Attributes:
        operations: the requests that can meet it; None for all.
        options: its own words, with how each is read.
        defaults: for those that may be left out.
        count: how many requests meet it where nobody says.
    """

    operations: Collection[str] | None = None
    options: Mapping[str, Callable[[str], Value]] = field(default_factory=dict)
    defaults: Mapping[str, Value] = field(default_factory=dict)
    count: int | None = 1


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise _Unfit("seconds, 0 or more")
    return seconds


def _whole(text: str, least: int = 1) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) < least:
        raise _Unfit(f"a whole number, {least} or more")
    return int(text)


def _bytes(text: str) -> int:
    return _whole(text, 0)


def _status(text: str) -> int:
    if text not in {"429", "503"}:
        raise _Unfit("429 or 503")
    return int(text)


def _sights(text: str) -> str:
    if not set(text.split(",")) <= set(SIGHTS):
        raise _Unfit(f"one or more of {','.join(SIGHTS)}")
    return text


_FAULTS: dict[str, _Kind] = {
    "throttle": _Kind(options={"status": _status, "retry-after": _whole}, defaults={"status": 503, "retry-after": 1}),
    "lost_response": _Kind(CHANGES),
    "lost_request": _Kind(),
    "cut_body": _Kind(options={"bytes": _bytes}),
    "token_expired": _Kind(),
    "slow_flush": _Kind((FLUSH, BLOCK_LIST), {"seconds": _seconds}),
    "delay_visibility": _Kind(
        (CREATE, FOLDER, RENAME, PUT, BLOCK_LIST, COPY),
        {"seconds": _seconds, "from": _sights},
        {"from": ",".join(SIGHTS)},
    ),
    "poll_mid_upload": _Kind((CREATE, APPEND, FLUSH, PUT, BLOCK, BLOCK_LIST, RENAME)),
    "folder_in_use": _Kind((DROP,)),
    "detect_delay": _Kind((DROP,), {"seconds": _seconds}),
    "same_mtime": _Kind(WRITES, count=None),
    "shuffle_ties": _Kind(WRITES, {"seed": _bytes}, {"seed": 0}, count=None),
}
NAMES = tuple(_FAULTS)


def parse_fault(text: str) -> FaultSwitch:
    """A switch from its words: the fault's name, then `name=value` in any order, quoted as in a shell.

    Raises:
        UsageError: what is wrong, and what may stand there.
    """
    try:
        name, *words = shlex.split(text)
    except ValueError:
        raise UsageError(f"--fault {text!r}: no fault is named, or a quote is open", _which()) from None
    kind = _FAULTS.get(name)
    if kind is None:
        raise UsageError(f"--fault {text!r}: there is no {name!r}", _which())
    given = dict(_pair(text, word) for word in words)
    own = {word: _read(text, word, given.pop(word), read) for word, read in kind.options.items() if word in given}
    if missing := kind.options.keys() - own.keys() - kind.defaults.keys():
        raise UsageError(f"--fault {text!r}: {', '.join(sorted(missing))} is missing", _form(name, kind))
    known = {word: _read(text, word, given.pop(word), read) for word, read in _COMMON.items() if word in given}
    if given:
        raise UsageError(f"--fault {text!r}: {name} knows no {', '.join(given)}", _form(name, kind))
    return _switch(text, name, kind, known, {**kind.defaults, **own})


def _switch(
    text: str, name: str, kind: _Kind, known: Mapping[str, Value | None], options: dict[str, Value]
) -> FaultSwitch:
    operation = known.get("operation")
    if operation and kind.operations is not None and operation not in kind.operations:
        raise UsageError(f"--fault {text!r}: no {operation} can meet {name}", f"One of {', '.join(kind.operations)}.")
    lasts = known.get("for")
    count = known.get("count", kind.count)
    return FaultSwitch(
        name,
        str(known.get("method", "*")),
        str(known.get("path", "*")),
        int(known.get("nth") or 1),
        None if count is None else int(count),
        (str(operation),) if operation else kind.operations,
        None if lasts is None else float(lasts),
        options,
        text,
    )


def _count(text: str) -> int | None:
    return None if text == EVERY else _whole(text)


def _method(text: str) -> str:
    if text.upper() not in METHODS:
        raise _Unfit(f"one of {', '.join(METHODS)}")
    return text.upper()


def _operation(text: str) -> str:
    if text not in OPERATIONS:
        raise _Unfit(f"one of {', '.join(OPERATIONS)}")
    return text


_COMMON: dict[str, Callable[[str], Value | None]] = {
    "method": _method,
    "path": lambda text: text.strip("/"),
    "operation": _operation,
    "nth": _whole,
    "count": _count,
    "for": _seconds,
}


def _pair(text: str, word: str) -> tuple[str, str]:
    name, sign, value = word.partition("=")
    if not (name and sign and value):
        raise UsageError(f"--fault {text!r}: {word!r} is not name=value", "Such as path=*/Orders/* or nth=3.")
    return name, value


def _read(text: str, name: str, value: str, read: Callable[[str], _Found]) -> _Found:
    try:
        return read(value)
    except _Unfit as wanted:
        raise UsageError(f"--fault {text!r}: {name} is {value!r}", f"It is to be {wanted}.") from None


def _form(name: str, kind: _Kind) -> str:
    words = [*kind.options, *_COMMON]
    return f"{name} takes {', '.join(f'{word}=' for word in words)}."


def _which() -> str:
    return f"One of {', '.join(_FAULTS)}."
