"""Injected faults: what each does, how a rule is written, and the API that switches them."""

from __future__ import annotations

import asyncio
import hmac
import shlex
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatchcase
from functools import partial
from http import HTTPStatus
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse

from mirror_engine.clock import CENTURY_SECONDS
from mirror_engine.config import OptionKind, choice, duration, whole
from mirror_engine.errors import UsageError
from mirror_engine.onelake.engine_pool import INITIALIZING_SECONDS
from mirror_engine.onelake.errors import (
    ConnectionReset,
    FabricApiError,
    FabricErrorCode,
    StorageApiError,
    TableApiError,
    TableErrorCode,
)
from mirror_engine.onelake.fabric_rest import REFRESH_SECONDS
from mirror_engine.onelake.hosts import LOOPBACK_HOSTS, host_of
from mirror_engine.onelake.options import FaultRule
from mirror_engine.onelake.requests import read_bounded

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from mirror_engine.onelake.engine_pool import EnginePool
    from mirror_engine.onelake.options import EmulatorOptions

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
FAULT_API_PATH = "/.mirror-engine/faults"  # clients' paths never begin so
FAULT_API_HEADER = "x-mirror-engine-fault-token"
MAX_BYTES = 64 * 1024
# codes of Fabric's and the table APIs
_CODES = {"401": "TokenExpired", "429": "TooManyRequests", "503": "ServiceUnavailable"}
_DURING = {"initializing": INITIALIZING_SECONDS, "sql_endpoint_lags": REFRESH_SECONDS}  # what such a fault sets


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
    """A kind of fault: affected operations, options with their defaults, and how many requests get it."""

    operations: Collection[str] | None = None
    options: Mapping[str, OptionKind] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    count: int | None = 1


_FAULTS: dict[str, _Fault] = {
    "throttle": _Fault(
        options={"status": choice("429", "503"), "retry-after": _POSITIVE},
        defaults={"status": "503", "retry-after": 1},
    ),
    "lost_response": _Fault(CHANGES),
    "lost_request": _Fault(),
    "cut_body": _Fault(options={"bytes": _WHOLE}),
    "token_expired": _Fault(),
    "slow_flush": _Fault(("flush", "blocklist"), {"seconds": _SECONDS}),
    "slow_delete": _Fault(("delete", "drop"), {"seconds": _SECONDS}),
    "poll_mid_upload": _Fault(("create", "append", "flush", "put", "block", "blocklist", "rename")),
    "folder_in_use": _Fault(("drop",)),
    "initializing": _Fault(("new_item",), {"seconds": _SECONDS}, count=None),
    "sql_endpoint_lags": _Fault(("refresh",), {"seconds": _SECONDS}, count=None),
    "paused": _Fault((), {"reseed": choice("yes", "no")}, {"reseed": "no"}),
    "replicator_throttled": _Fault((), {"for": _SECONDS, "until": _TIME}, {"for": None, "until": None}),
    "advance": _Fault((), dict.fromkeys(_UNITS, _WHOLE), dict.fromkeys(_UNITS, 0)),
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


@dataclass(frozen=True)
class FaultedApi:
    """An API, wrapped in the faults that its requests get; the rule given first is outermost."""

    app: ASGIApp
    options: EmulatorOptions
    # a request's method, decoded path and names as operation; None for one that gets no fault
    target: Callable[[Scope], tuple[str, str, Collection[str]] | None]
    refuse: Callable[[Scope, str, Mapping[str, str]], Response]  # its error by status, with headers
    poll: Callable[[Scope], object] = lambda _: None  # lets the engine of the request's item scan

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        target = await run_in_threadpool(self.target, scope) if self.options.faults else None
        await self._inject(self.options.faults_of(*target) if target else [], scope, receive, send)

    async def _inject(self, rules: Sequence[FaultRule], scope: Scope, receive: Receive, send: Send) -> None:
        if not rules:
            await self.app(scope, receive, send)
            return
        rule, answer = rules[0], partial(self._inject, rules[1:], scope, receive)
        match rule.fault:
            case "throttle":
                headers = {"Retry-After": str(rule.options["retry-after"])}
                await self.refuse(scope, rule.options["status"], headers)(scope, receive, send)
            case "token_expired" | "folder_in_use":
                status = "401" if rule.fault == "token_expired" else "409"
                await self.refuse(scope, status, {})(scope, receive, send)
            case "slow_flush" | "slow_delete":
                await asyncio.sleep(rule.options["seconds"])
                await answer(send)
            case "poll_mid_upload":
                await answer(partial(self._poll_and_send, scope, send))
            case "initializing" | "sql_endpoint_lags":
                token = _DURING[rule.fault].set(rule.options["seconds"])
                try:
                    await answer(send)
                finally:
                    _DURING[rule.fault].reset(token)
            case "lost_response":
                await answer(_discard)
                raise ConnectionReset
            case "cut_body":
                await _read(receive, rule.options["bytes"])
                raise ConnectionReset
            case _:
                raise ConnectionReset

    async def _poll_and_send(self, scope: Scope, send: Send, message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] < HTTPStatus.BAD_REQUEST:
            await run_in_threadpool(self.poll, scope)
        await send(message)


async def _discard(_: Message) -> None:
    """Drop a response."""


async def _read(receive: Receive, size: int) -> None:
    """Read a body up to so many bytes."""
    has_more = True
    while has_more and size > 0:
        message = await receive()
        size -= len(message.get("body", b""))
        has_more = message.get("more_body", False)


def with_fabric_faults(app: ASGIApp, options: EmulatorOptions) -> ASGIApp:
    """Fabric's REST API, wrapped in its faults."""

    def target(scope: Scope) -> tuple[str, str, Collection[str]]:
        method, path = scope["method"], scope["path"].strip("/")
        is_new = method == "POST" and path.endswith(("/items", "/mirroredDatabases"))
        return method, path, ["rest", *["new_item"] * is_new, *["refresh"] * path.endswith("/refreshMetadata")]

    def refuse(_: Scope, status: str, headers: Mapping[str, str]) -> Response:
        return FabricApiError(FabricErrorCode[_CODES[status]], headers=headers).response()

    return FaultedApi(app, options, target, refuse)


def with_table_faults(app: ASGIApp, options: EmulatorOptions) -> ASGIApp:
    """The table APIs, wrapped in their faults."""

    def target(scope: Scope) -> tuple[str, str, Collection[str]]:
        return scope["method"], scope["path"].strip("/"), ["table_api"]

    def refuse(scope: Scope, status: str, headers: Mapping[str, str]) -> Response:
        return TableApiError(TableErrorCode[_CODES[status]], headers=headers).response(scope["path"])

    return FaultedApi(app, options, target, refuse)


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
