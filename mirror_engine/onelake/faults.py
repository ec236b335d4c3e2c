"""Plays the faults that a request meets, around what the request asks for (endpoint chapter 10)."""

from __future__ import annotations

import asyncio
import hmac
import math
import random
import shlex
import threading
import time
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from secrets import token_urlsafe
from typing import TYPE_CHECKING, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse

from mirror_engine.errors import UsageError
from mirror_engine.onelake import blob, dfs, reading
from mirror_engine.onelake import blob as batch
from mirror_engine.onelake.errors import ConnectionReset, StorageApiError, StorageErrorCode, cut
from mirror_engine.onelake.fabric_json import FabricFault, FabricRefusal
from mirror_engine.onelake.requests import LOOPBACK_ADDRESSES, LOOPBACK_NAMES, named_host, segments_of
from mirror_engine.onelake.visibility import NS_A_SECOND, SIGHTS, VisibilityDelays, stamped
from mirror_engine.onelake.work import bounded, quick

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Mapping

    from starlette.responses import Response

    from mirror_engine.onelake.app import Operation
    from mirror_engine.onelake.lake import Lake
    from mirror_engine.onelake.requests import LakeRequest

    Value = float | str

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from mirror_engine.onelake.items import Item


@dataclass
class FaultSwitch:
    """One fault to be played at some requests.

    Attributes:
        fault: its name (`throttle`, `lost_response` …).
        method: of the requests it is meant for; `*` for all.
        path: a glob on their decoded path, from the workspace on.
        nth: the first matching request that meets it, counted from 1.
        count: how many requests meet it in a row; None for all.
        operations: the requests it is meant for, by what they do; None for all.
        lasts_seconds: instead of `count`: all that come so soon after the first that met it.
        options: what the fault needs to know (`{"seconds": 2.0}`).
        text: as the user wrote it.
        seen: how many requests matched so far.
    """

    fault: str
    method: str = "*"
    path: str = "*"
    nth: int = 1
    count: int | None = 1
    operations: Collection[str] | None = None
    lasts_seconds: float | None = None
    options: dict[str, float | str] = field(default_factory=dict)
    text: str = ""
    seen: int = field(default=0, init=False)
    _since: float | None = field(default=None, init=False, repr=False)

    def number(self, name: str) -> float:
        """An option that is a number."""
        return float(self.options[name])

    def _is_met(self, method: str, path: str, operations: Collection[str], now: float) -> bool:
        if self.method not in {"*", method} or not fnmatchcase(path, self.path):
            return False
        if self.operations is not None and set(self.operations).isdisjoint(operations):
            return False
        self.seen += 1
        if self.seen < self.nth:
            return False
        if self.lasts_seconds is None:
            return self.count is None or self.seen < self.nth + self.count
        self._since = now if self._since is None else self._since
        return now < self._since + self.lasts_seconds


@dataclass
class EmulatorOptions:
    """All switches; the defaults are the real service's ways.

    Attributes:
        lenient: managed folders may be made, renamed and deleted, too.
        rename_touches: a rename sets LastModified (and with it a file's entity tag).
        blob_batch: `refuse`, or `accept`.
        faults: what is to be played.
        tell: is told of each fault that is played: the switch and the request's method and path, never its query.
        poll: lets the engine of an item look at its landing zone, and returns when it has.
        late: what lists, HEAD and the engine are not to know yet.
    """

    lenient: bool = False
    rename_touches: bool = False
    blob_batch: str = "refuse"
    faults: list[FaultSwitch] = field(default_factory=list)
    tell: Callable[[str], None] = field(default=lambda _: None, repr=False)
    poll: Callable[[Item], None] = field(default=lambda _: None, repr=False)
    late: VisibilityDelays = field(default_factory=VisibilityDelays, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def at(self, method: str, path: str, operations: Collection[str] = ()) -> list[FaultSwitch]:
        """The faults that this request meets; each call counts as one request.

        Args:
            method: of the request.
            path: decoded, from the workspace on.
            operations: what it does, in the words of `fault_words`.
        """
        now = time.monotonic()
        with self._lock:
            met = [switch for switch in self.faults if switch._is_met(method, path, operations, now)]  # noqa: SLF001 - same module
        for switch in met:
            self.tell(f"{switch.text or switch.fault}: {method} {path}")
        return met

    def add(self, switches: Collection[FaultSwitch]) -> None:
        """Play these, too, from the next request on."""
        with self._lock:
            self.faults = [*self.faults, *switches]

    def clear(self) -> None:
        """Play none any more; what is hidden or lingers already shows when its time has come."""
        with self._lock:
            self.faults = []


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


_CALLED: Mapping[Operation, str] = {
    dfs.create: CREATE,
    dfs.append: APPEND,
    dfs.flush: FLUSH,
    dfs.rename: RENAME,
    dfs.delete: DELETE,
    blob.delete: DELETE,
    dfs.lease: LEASE,
    dfs.list_paths: LIST,
    blob.list_blobs: LIST,
    dfs.set_properties: METADATA,
    blob.set_metadata: METADATA,
    blob.put: PUT,
    blob.put_block: BLOCK,
    blob.put_block_list: BLOCK_LIST,
    blob.copy: COPY,
    reading.read: READ,
    reading.properties: HEAD,
    batch.batch: BATCH,
}
_THROTTLED = {429: StorageErrorCode.THROTTLED, 503: StorageErrorCode.SERVER_BUSY}
CHALLENGE = 'Bearer authorization_uri="https://login.microsoftonline.com/common", error="invalid_token"'


async def played(lake: Lake, call: LakeRequest, operation: Operation) -> Operation:
    """The operation, with the faults around it that this request meets; the one named first is the outermost.

    Raises:
        EndpointFault: INVALID_URI, PATH_NOT_FOUND, as the path is none.
    """
    if not lake.switches.faults:
        return operation
    path = "/".join(segments_of(call.raw_path))
    for switch in reversed(lake.switches.at(call.method, path, await _operations(lake, call, operation))):
        operation = _PLAYS[switch.fault](switch, operation)
    return operation


async def _operations(lake: Lake, call: LakeRequest, operation: Operation) -> set[str]:
    """What a request does, in a user's words."""
    called = _CALLED.get(operation)
    if called == CREATE and call.query["resource"].lower() == "directory":
        called = FOLDER
    if called == DELETE and await quick(_is_folder, lake, call):
        called = DROP
    flushes = {FLUSH} if called == APPEND and call.flag("flush") else set()
    return flushes | ({called} if called else set())


def _is_folder(lake: Lake, call: LakeRequest) -> bool:
    try:
        return lake.properties(lake.address(call.raw_path)).is_folder
    except StorageApiError:
        return False


def _throttle(switch: FaultSwitch, _: Operation) -> Operation:
    async def refused(_: Lake, __: LakeRequest) -> Response:
        headers = {"Retry-After": str(switch.options["retry-after"])}
        raise StorageApiError(_THROTTLED[int(switch.number("status"))], headers=headers)

    return refused


def _token_expired(_: FaultSwitch, __: Operation) -> Operation:
    async def refused(_: Lake, __: LakeRequest) -> Response:
        raise StorageApiError(StorageErrorCode.UNAUTHORIZED, "The token has expired.", {"WWW-Authenticate": CHALLENGE})

    return refused


def _lost_request(_: FaultSwitch, __: Operation) -> Operation:
    async def lost(_: Lake, __: LakeRequest) -> Response:
        raise ConnectionReset

    return lost


def _cut_body(switch: FaultSwitch, operation: Operation) -> Operation:
    async def until(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        left = int(switch.number("bytes"))
        async for piece in pieces:
            yield piece[:left]
            left -= len(piece)
            if left <= 0:
                break
        raise ConnectionReset

    async def cut(lake: Lake, call: LakeRequest) -> Response:
        if call.is_empty:
            raise ConnectionReset
        return await operation(lake, replace(call, body=until(call.body)))

    return cut


def _lost_response(_: FaultSwitch, operation: Operation) -> Operation:
    async def lost(lake: Lake, call: LakeRequest) -> Response:
        await operation(lake, call)
        raise ConnectionReset

    return lost


def _slow_flush(switch: FaultSwitch, operation: Operation) -> Operation:
    async def slow(lake: Lake, call: LakeRequest) -> Response:
        await asyncio.sleep(switch.number("seconds"))
        return await operation(lake, call)

    return slow


def _poll_mid_upload(_: FaultSwitch, operation: Operation) -> Operation:
    async def polled(lake: Lake, call: LakeRequest) -> Response:
        response = await operation(lake, call)
        item = lake.address(call.raw_path).item
        if item:
            await quick(lake.switches.poll, item)
        return response

    return polled


def _folder_in_use(_: FaultSwitch, __: Operation) -> Operation:
    async def refused(_: Lake, __: LakeRequest) -> Response:
        raise StorageApiError(StorageErrorCode.FOLDER_IN_USE)

    return refused


def _delay_visibility(switch: FaultSwitch, operation: Operation) -> Operation:
    async def delayed(lake: Lake, call: LakeRequest) -> Response:
        address = await quick(lake.destination, call.raw_path)
        if await quick(lake.stands, address):
            return await operation(lake, call)  # a name that is known already
        sights, late = str(switch.options["from"]).split(","), lake.switches.late
        late.hide(address.path, sights)
        try:
            response = await operation(lake, call)
        except BaseException:
            late.show(address.path)
            raise
        late.hide(address.path, sights, switch.number("seconds"))
        return response

    return delayed


def _detect_delay(switch: FaultSwitch, operation: Operation) -> Operation:
    async def delayed(lake: Lake, call: LakeRequest) -> Response:
        address = await quick(lake.address, call.raw_path)
        ghost = await quick(lake.ghost, address)
        lake.switches.late.linger(ghost, switch.number("seconds"))
        try:
            return await operation(lake, call)
        except BaseException:
            lake.switches.late.vanish(ghost)
            raise

    return delayed


def _same_mtime(switch: FaultSwitch, operation: Operation) -> Operation:
    def first(true_ns: int) -> int:
        return int(switch.options.setdefault("since", true_ns - true_ns % NS_A_SECOND))

    return _stamping(first, operation)


def _shuffle_ties(switch: FaultSwitch, operation: Operation) -> Operation:
    drawn = random.Random(int(switch.number("seed")) * 1_000_003 + switch.seen)  # noqa: S311 - repeatable

    def shuffled(true_ns: int) -> int:
        return true_ns - true_ns % NS_A_SECOND + drawn.randrange(NS_A_SECOND)

    return _stamping(shuffled, operation)


def _stamping(stamp: Callable[[int], int], operation: Operation) -> Operation:
    async def timed(lake: Lake, call: LakeRequest) -> Response:
        with stamped(stamp):
            return await operation(lake, call)

    return timed


_PLAYS: Mapping[str, Callable[[FaultSwitch, Operation], Operation]] = {
    "throttle": _throttle,
    "token_expired": _token_expired,
    "lost_request": _lost_request,
    "cut_body": _cut_body,
    "lost_response": _lost_response,
    "slow_flush": _slow_flush,
    "poll_mid_upload": _poll_mid_upload,
    "folder_in_use": _folder_in_use,
    "delay_visibility": _delay_visibility,
    "detect_delay": _detect_delay,
    "same_mtime": _same_mtime,
    "shuffle_ties": _shuffle_ties,
}


_THROTTLED_fabric_played = {429: FabricFault.TooManyRequests, 503: FabricFault.ServiceUnavailable}


class PlayedFabric:
    """An ASGI application around the REST API.

    Args:
        app: what answers where no fault is met.
        switches: the faults.
    """

    def __init__(self, app: ASGIApp, switches: EmulatorOptions) -> None:
        self._app = app
        self._switches = switches

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; of several faults the first one is played."""
        met = self._switches.at(scope["method"], scope["path"].strip("/"), (REST,)) if self._switches.faults else []
        switch = next(iter(met), None)
        refusal = switch and _refusal(switch)
        if switch is None:
            await self._app(scope, receive, send)
        elif refusal:
            await refusal.answer()(scope, receive, send)
        else:
            await self._lose(switch, scope, receive)

    async def _lose(self, switch: FaultSwitch, scope: Scope, receive: Receive) -> None:
        if switch.fault == "lost_response":
            await self._app(scope, receive, _nowhere)
        await cut(scope, receive)


def _refusal(switch: FaultSwitch) -> FabricRefusal | None:
    if switch.fault == "throttle":
        headers = {"Retry-After": str(switch.options["retry-after"])}
        return FabricRefusal(_THROTTLED_fabric_played[int(switch.number("status"))], headers=headers)
    return FabricRefusal(FabricFault.TokenExpired) if switch.fault == "token_expired" else None


async def _nowhere(_: Message) -> None:
    """Where an answer goes that is lost."""


PATH = "/.mirror-engine/faults"  # no client's own: such names are never served
HEADER = "x-mirror-engine-control"
MAX_BYTES = 64 * 1024
_METHODS = ("GET", "POST", "DELETE")


@dataclass(frozen=True)
class Control:
    """An ASGI application around another, which answers all other requests.

    `GET` shows the switches, `POST` adds those in its body, one a line, `DELETE` clears all; each answers with what
    there is afterwards: `[{"fault": "throttle nth=2", "seen": 1}]`.

    Attributes:
        app: whatever else is served.
        switches: what is controlled.
        token: to be sent in `X-Mirror-Engine-Control`.
    """

    app: ASGIApp
    switches: EmulatorOptions
    token: str = field(default_factory=lambda: token_urlsafe(24), repr=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if not _is_meant(scope):
            await self.app(scope, receive, send)
            return
        answer = await self._answer(Request(scope, receive))
        await answer(scope, receive, send)

    async def _answer(self, request: Request) -> JSONResponse:
        if not hmac.compare_digest(request.headers.get(HEADER, "").encode(), self.token.encode()):
            return _refused(403, f"{HEADER} is not the token that this run was given.")
        if request.method not in _METHODS:
            return _refused(405, f"One of {', '.join(_METHODS)}.")
        try:
            if request.method == "POST":
                await self._add(request)
        except UsageError as error:
            return _refused(400, str(error))
        except StorageApiError as error:
            return _refused(error.fault.status, error.message)
        if request.method == "DELETE":
            self.switches.clear()
        return JSONResponse([{"fault": each.text, "seen": each.seen} for each in self.switches.faults])

    async def _add(self, request: Request) -> None:
        """All of them, or none."""
        try:
            lines = (await bounded(request.stream(), MAX_BYTES)).decode().splitlines()
        except UnicodeDecodeError:
            raise StorageApiError(StorageErrorCode.BAD_REQUEST, "The body is no UTF-8.") from None
        self.switches.add([parse_fault(line) for line in lines if line.strip()])


def _is_meant(scope: Scope) -> bool:
    is_local = named_host(scope["headers"]) in (*LOOPBACK_NAMES, *LOOPBACK_ADDRESSES)
    return scope["path"] == PATH and scope["scheme"] == "http" and is_local


def _refused(status: int, message: str) -> JSONResponse:
    return JSONResponse({"error": {"code": "ControlRefused", "message": message}}, status)
