"""Injected faults: what each does, how a rule is written, and the API that switches them."""

from __future__ import annotations

import asyncio
import hmac
import shlex
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from fnmatch import fnmatchcase
from functools import partial
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any, TypeAlias

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse

from mirror_engine.clock import CENTURY_SECONDS
from mirror_engine.config import OptionKind, choice, duration, whole
from mirror_engine.errors import UsageError
from mirror_engine.onelake.addresses import address_of, segments_of
from mirror_engine.onelake.engine_pool import INITIALIZING_SECONDS
from mirror_engine.onelake.errors import (
    ConnectionReset,
    FabricApiError,
    FabricErrorCode,
    StorageApiError,
    StorageErrorCode,
    TableApiError,
    TableErrorCode,
)
from mirror_engine.onelake.fabric_rest import REFRESH_SECONDS
from mirror_engine.onelake.fault_rules import FaultRule
from mirror_engine.onelake.hosts import LOOPBACK_HOSTS, host_of
from mirror_engine.onelake.requests import read_bounded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping

    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from mirror_engine.onelake.engine_pool import EnginePool
    from mirror_engine.onelake.lake import Lake
    from mirror_engine.onelake.options import EmulatorOptions
    from mirror_engine.onelake.requests import LakeRequest

    Handler: TypeAlias = Callable[[Lake, LakeRequest], Awaitable[Response]]

# Operations as rules name them: `folder` creates a folder, `drop` deletes one, `rest` is one of Fabric's API,
# `new_item` that of it which creates a mirrored database, `refresh` that which refreshes a SQL endpoint; `table_api` is
# one of the table APIs
CHANGES = (
    "create",
    "flush",
    "put",
    "blocklist",
    "copy",
    "folder",
    "append",
    "rename",
    "block",
    "metadata",
    "delete",
    "drop",
    "batch",
    "rest",
    "new_item",
    "refresh",
)
OPERATIONS = (*CHANGES, "lease", "list", "read", "head", "table_api")
METHODS = ("*", "GET", "HEAD", "PUT", "PATCH", "POST", "DELETE")
EVERY = "all"
CHALLENGE = 'Bearer authorization_uri="https://login.microsoftonline.com/common", error="invalid_token"'
FAULT_API_PATH = "/.mirror-engine/faults"  # clients' paths never begin so
FAULT_API_HEADER = "x-mirror-engine-fault-token"
MAX_BYTES = 64 * 1024
_THROTTLED = {  # codes of the storage API, and of the others
    "429": (StorageErrorCode.TooManyRequests, "TooManyRequests"),
    "503": (StorageErrorCode.ServerBusy, "ServiceUnavailable"),
}
_DURING = {"initializing": INITIALIZING_SECONDS, "sql_endpoint_lags": REFRESH_SECONDS}  # what such a fault sets


async def with_faults(lake: Lake, request: LakeRequest, handler: Handler, name: str) -> Handler:
    """The operation of that name, wrapped in the faults that this request gets; the rule given first is outermost."""
    if lake.options.faults:
        names = await run_in_threadpool(_names, lake, request, name)
        is_service = not request.raw_path.strip(b"/")  # the account itself
        path = "" if is_service else "/".join(segments_of(request.raw_path))
        for rule in reversed(lake.options.faults_of(request.method, path, names)):
            handler = partial(_FAULTS[rule.fault].inject, rule, handler)
    return handler


def _names(lake: Lake, request: LakeRequest, name: str) -> set[str]:
    """Names of a request in fault rules; an append that flushes has two."""
    if name == "create" and request.query["resource"].lower() == "directory":
        return {"folder"}
    if name == "delete":
        with suppress(StorageApiError):
            if lake.properties(address_of(lake.items, request.raw_path)).is_folder:
                return {"drop"}
    is_flush = name == "append" and request.flag("flush")
    return {"append", "flush"} if is_flush else {name}


async def _fail(rule: FaultRule, _: Handler, __: Lake, ___: LakeRequest) -> Response:
    match rule.fault:
        case "throttle":
            headers = {"Retry-After": str(rule.options["retry-after"])}
            raise StorageApiError(_THROTTLED[rule.options["status"]][0], headers=headers)
        case "token_expired":
            message = "The token has expired."
            raise StorageApiError(StorageErrorCode.Unauthorized, message, {"WWW-Authenticate": CHALLENGE})
        case "folder_in_use":
            raise StorageApiError(StorageErrorCode.PathIsInUse)
    raise ConnectionReset


async def _cut_body(rule: FaultRule, handler: Handler, lake: Lake, request: LakeRequest) -> Response:
    async def until_cut() -> AsyncIterator[bytes]:
        left = rule.options["bytes"]
        async for chunk in request.body:
            yield chunk[:left]
            left -= len(chunk)
            if left <= 0:
                break
        raise ConnectionReset

    if request.is_empty:
        raise ConnectionReset
    return await handler(lake, replace(request, body=until_cut()))


async def _lost_response(_: FaultRule, handler: Handler, lake: Lake, request: LakeRequest) -> Response:
    await handler(lake, request)
    raise ConnectionReset


async def _delay(rule: FaultRule, handler: Handler, lake: Lake, request: LakeRequest) -> Response:
    await asyncio.sleep(rule.options["seconds"])
    return await handler(lake, request)


async def _poll_mid_upload(_: FaultRule, handler: Handler, lake: Lake, request: LakeRequest) -> Response:
    response = await handler(lake, request)
    item = address_of(lake.items, request.raw_path).item
    if item:
        await run_in_threadpool(lake.options.poll, item)
    return response


def _time(text: str) -> datetime:
    return datetime.strptime(f"{text.removesuffix('Z')}+0000", "%Y-%m-%dT%H:%M:%S%z")


def _seconds(text: str) -> float:
    seconds: float = _DURATION.read(text)
    if seconds > CENTURY_SECONDS:
        raise ValueError(text)
    return seconds


_DURATION, _WHOLE, _POSITIVE = duration(0), whole("N", 0), whole("N", 1)
_SECONDS = OptionKind(f"{_DURATION.allowed}; at most 100 years", "DURATION", _seconds)
_TIME = OptionKind("a time in UTC, as 2026-11-02T08:15:30", "TIME", _time)
_UNITS = ("days", "hours", "minutes", "seconds")
_MATCHERS = {
    "method": OptionKind(f"one of {', '.join(METHODS)}", "METHOD", lambda text: choice(*METHODS).read(text.upper())),
    "path": OptionKind("a glob", "GLOB", lambda text: text.strip("/")),
    "operation": choice(*OPERATIONS),
    "nth": _POSITIVE,
    "count": whole("N", 1, words=(EVERY,)),
    "for": _SECONDS,
}


@dataclass(frozen=True)
class _Fault:
    """A kind of fault: injector, affected operations, options with their defaults, and how many requests get it."""

    inject: Callable[[FaultRule, Handler, Lake, LakeRequest], Awaitable[Response]]  # gets what would answer otherwise
    operations: Collection[str] | None = None
    options: Mapping[str, OptionKind] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    count: int | None = 1


_FAULTS: dict[str, _Fault] = {
    "throttle": _Fault(
        _fail,
        options={"status": choice(*_THROTTLED), "retry-after": _POSITIVE},
        defaults={"status": "503", "retry-after": 1},
    ),
    "lost_response": _Fault(_lost_response, CHANGES),
    "lost_request": _Fault(_fail),
    "cut_body": _Fault(_cut_body, options={"bytes": _WHOLE}),
    "token_expired": _Fault(_fail),
    "slow_flush": _Fault(_delay, ("flush", "blocklist"), {"seconds": _SECONDS}),
    "slow_delete": _Fault(_delay, ("delete", "drop"), {"seconds": _SECONDS}),
    "poll_mid_upload": _Fault(_poll_mid_upload, ("create", "append", "flush", "put", "block", "blocklist", "rename")),
    "folder_in_use": _Fault(_fail, ("drop",)),
    "initializing": _Fault(_fail, ("new_item",), {"seconds": _SECONDS}, count=None),
    "sql_endpoint_lags": _Fault(_fail, ("refresh",), {"seconds": _SECONDS}, count=None),
    "paused": _Fault(_fail, (), {"reseed": choice("yes", "no")}, {"reseed": "no"}),
    "replicator_throttled": _Fault(_fail, (), {"for": _SECONDS, "until": _TIME}, {"for": None, "until": None}),
    "advance": _Fault(_fail, (), dict.fromkeys(_UNITS, _WHOLE), dict.fromkeys(_UNITS, 0)),
}
NAMES = tuple(_FAULTS)


def parse_fault(text: str) -> FaultRule:
    """Read a rule: the fault's name, then `name=value` in any order, quoted as in a shell; UsageError."""
    fault, all_faults = f"fault {text!r}", f"Use one of {', '.join(_FAULTS)}."
    try:
        name, *words = shlex.split(text)
    except ValueError:
        raise UsageError(f"{fault}: no name, or an open quote", all_faults) from None
    kind = _FAULTS.get(name)
    if kind is None:
        raise UsageError(f"{fault}: unknown fault {name!r}", all_faults)
    matchers = _MATCHERS if kind.operations != () else {"path": _MATCHERS["path"]} if name != "advance" else {}
    known = {**kind.options, **matchers} | ({"operation": choice(*kind.operations)} if kind.operations else {})
    takes = f"{name} takes {', '.join(f'{word}=' for word in known)}."
    values = {"method": "*", "path": "*", "nth": 1, "count": kind.count, **kind.defaults}
    for word in words:
        key, _, value = word.partition("=")
        if not (key and value):
            raise UsageError(f"{fault}: {word!r} is not name=value", "Example: path=*/Orders/* or nth=3.")
        option = known.get(key)
        if option is None:
            raise UsageError(f"{fault}: unknown option {key}", takes)
        try:
            values[key] = option.read(value)
        except ValueError:
            raise UsageError(f"{fault}: {key} is {value!r}", f"Expected: {option.allowed}.") from None
    if missing := kind.options.keys() - values.keys():
        raise UsageError(f"{fault}: {', '.join(sorted(missing))} is missing", takes)
    if "until" in known and (values["for"] is None) == (values["until"] is None):
        raise UsageError(f"{fault}: either for= or until= is needed", takes)
    if name == "advance" and not any(values[unit] for unit in _UNITS):
        raise UsageError(
            f"{fault}: the amount of time is missing", f"Name one or more of {', '.join(_UNITS)}, more than 0."
        )
    operation = values.get("operation")
    return FaultRule(
        name,
        method=values["method"],
        path=values["path"],
        nth=values["nth"],
        count=None if values["count"] == EVERY else values["count"],
        operations=(operation,) if operation else kind.operations,
        duration_seconds=values.get("for"),
        options={key: values[key] for key in kind.options},
        text=text,
    )


def hold(engines: EnginePool, rule: FaultRule) -> None:
    """Put the mirrored databases that a rule's path names (`Workspace/Mirror`) into its state, or move their clock."""
    if rule.fault == "advance":
        engines.clock.advance(**rule.options)
        return
    for item in engines.items.all():
        if not fnmatchcase(item.path, rule.path):
            continue
        if rule.fault == "paused":
            engines.pause(item, reseeds=rule.options["reseed"] == "yes")
        else:
            until = rule.options["until"]
            engines.throttle(item, until.timestamp() - engines.clock() if until else rule.options["for"])


def with_fabric_faults(app: ASGIApp, options: EmulatorOptions) -> ASGIApp:
    """Fabric's REST API, wrapped in its faults."""

    def names(method: str, path: str) -> Collection[str]:
        is_new = method == "POST" and path.endswith(("/items", "/mirroredDatabases"))
        return ["rest", *["new_item"] * is_new, *["refresh"] * path.endswith("/refreshMetadata")]

    def refuse(_: str, code: str, headers: Mapping[str, str]) -> Response:
        return FabricApiError(FabricErrorCode[code], headers=headers).response()

    return _with_api_faults(app, options, names, refuse)


def with_table_faults(app: ASGIApp, options: EmulatorOptions) -> ASGIApp:
    """The table APIs, wrapped in their faults."""

    def refuse(path: str, code: str, headers: Mapping[str, str]) -> Response:
        return TableApiError(TableErrorCode[code], headers=headers).response(path)

    return _with_api_faults(app, options, lambda *_: ["table_api"], refuse)


def _with_api_faults(
    app: ASGIApp,
    options: EmulatorOptions,
    names: Callable[[str, str], Collection[str]],
    refuse: Callable[[str, str, Mapping[str, str]], Response],
) -> ASGIApp:
    """An API in faults; `names` are those of an operation by method and path. Of several rules the first wins."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"].strip("/")
        rule = next(iter(options.faults_of(scope["method"], path, names(scope["method"], path))), None)
        if rule is None:
            await app(scope, receive, send)
        elif rule.fault in _DURING:
            token = _DURING[rule.fault].set(rule.options["seconds"])
            try:
                await app(scope, receive, send)
            finally:
                _DURING[rule.fault].reset(token)
        elif rule.fault == "throttle":
            headers = {"Retry-After": str(rule.options["retry-after"])}
            await refuse(scope["path"], _THROTTLED[rule.options["status"]][1], headers)(scope, receive, send)
        elif rule.fault == "token_expired":
            await refuse(scope["path"], "TokenExpired", {})(scope, receive, send)
        else:
            if rule.fault == "lost_response":
                await app(scope, receive, _discard)
            raise ConnectionReset

    return answer


async def _discard(_: Message) -> None:
    """Drop a response."""


@dataclass(frozen=True)
class FaultApi:
    """ASGI middleware: switches faults on the http listener.

    `GET` shows the rules, `POST` adds those in its body, one per line, all or none, `DELETE` removes all; each answers
    with the rules afterwards: `[{"fault": "throttle nth=2", "matched": 1}]`.
    """

    app: ASGIApp  # answers all other requests
    options: EmulatorOptions  # holds the rules
    token: str = field(default_factory=lambda: token_urlsafe(24), repr=False)  # in `X-Mirror-Engine-Fault-Token`

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self.app
        if (
            scope["path"] == FAULT_API_PATH
            and scope["scheme"] == "http"
            and host_of(scope["headers"]) in LOOPBACK_HOSTS
        ):
            answer = await self._response(Request(scope, receive))
        await answer(scope, receive, send)

    async def _response(self, request: Request) -> JSONResponse:
        status, message = 200, ""
        try:
            if not hmac.compare_digest(request.headers.get(FAULT_API_HEADER, "").encode(), self.token.encode()):
                status, message = 403, f"{FAULT_API_HEADER} is not this run's token."
            elif request.method == "POST":
                lines = (await read_bounded(request.stream(), MAX_BYTES)).decode().splitlines()
                await run_in_threadpool(self.options.add, [parse_fault(line) for line in lines if line.strip()])
            elif request.method == "DELETE":
                self.options.clear()
            elif request.method != "GET":
                status, message = 405, "Use one of GET, POST, DELETE."
        except UnicodeDecodeError:
            status, message = 400, "The body is not UTF-8."
        except (UsageError, StorageApiError) as error:
            status, message = error.code.status if isinstance(error, StorageApiError) else 400, str(error)
        if message:
            return JSONResponse({"error": {"code": "FaultApiError", "message": message}}, status)
        return JSONResponse([{"fault": rule.text, "matched": rule.matched} for rule in self.options.faults])
