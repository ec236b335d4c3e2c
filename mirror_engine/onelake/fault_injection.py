"""Injects faults around storage operations and Fabric's REST API, and switches them while the emulator runs."""

from __future__ import annotations

import asyncio
import hmac
import random
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from secrets import token_urlsafe
from typing import TYPE_CHECKING, TypeAlias

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse

from mirror_engine.errors import UsageError
from mirror_engine.onelake import faults
from mirror_engine.onelake.address import segments_of
from mirror_engine.onelake.conditions import NANOSECONDS
from mirror_engine.onelake.errors import ConnectionReset, StorageApiError, StorageErrorCode, reset_connection
from mirror_engine.onelake.fabric_rest import FabricApiError, FabricErrorCode
from mirror_engine.onelake.faults import parse_fault
from mirror_engine.onelake.hosts import LOOPBACK_HOSTS, host_of
from mirror_engine.onelake.requests import read_bounded
from mirror_engine.onelake.visibility import TIME_SHIFT, DeletedFolder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from mirror_engine.onelake.faults import EmulatorOptions, FaultRule
    from mirror_engine.onelake.lake import Lake
    from mirror_engine.onelake.requests import LakeRequest, Operation

    Handler: TypeAlias = Callable[[Lake, LakeRequest], Awaitable[Response]]

_THROTTLED = {"429": StorageErrorCode.TooManyRequests, "503": StorageErrorCode.ServerBusy}
_FABRIC_THROTTLED = {"429": FabricErrorCode.TooManyRequests, "503": FabricErrorCode.ServiceUnavailable}
CHALLENGE = 'Bearer authorization_uri="https://login.microsoftonline.com/common", error="invalid_token"'


async def with_faults(lake: Lake, request: LakeRequest, operation: Operation) -> Handler:
    """The operation, wrapped in the faults that this request gets; the rule given first is the outermost."""
    handler: Handler = operation
    if lake.options.faults:
        names = await run_in_threadpool(_names, lake, request, operation)
        path = "/".join(segments_of(request.raw_path))
        for rule in reversed(lake.options.faults_of(request.method, path, names)):
            handler = partial(_INJECTORS[rule.fault], rule, handler)
    return handler


def _names(lake: Lake, request: LakeRequest, operation: Operation) -> set[str]:
    """By which fault rules know a request: an append that flushes has two names."""
    if operation.name == faults.CREATE and request.query["resource"].lower() == "directory":
        return {faults.FOLDER}
    if operation.name == faults.DELETE:
        with suppress(StorageApiError):
            if lake.properties(lake.address(request.raw_path)).is_folder:
                return {faults.DROP}
    is_flush = operation.name == faults.APPEND and request.flag("flush")
    return {operation.name, faults.FLUSH} if is_flush else {operation.name}


# Each gets its rule, what would answer otherwise, and what that gets


async def _fail(rule: FaultRule, _: Handler, __: Lake, ___: LakeRequest) -> Response:
    match rule.fault:
        case "throttle":
            headers = {"Retry-After": str(rule.options["retry-after"])}
            raise StorageApiError(_THROTTLED[rule.options["status"]], headers=headers)
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


async def _slow_flush(rule: FaultRule, handler: Handler, lake: Lake, request: LakeRequest) -> Response:
    await asyncio.sleep(rule.options["seconds"])
    return await handler(lake, request)


async def _poll_mid_upload(_: FaultRule, handler: Handler, lake: Lake, request: LakeRequest) -> Response:
    response = await handler(lake, request)
    item = lake.address(request.raw_path).item
    if item:
        await run_in_threadpool(lake.options.poll, item)
    return response


async def _delay_visibility(rule: FaultRule, handler: Handler, lake: Lake, request: LakeRequest) -> Response:
    address = await run_in_threadpool(lake.destination, request.raw_path)
    if await run_in_threadpool(lake.find, address):
        return await handler(lake, request)  # not a new name
    channels, delays = rule.options["from"].split(","), lake.options.delays
    delays.hide(address.path, channels)
    try:
        response = await handler(lake, request)
    except BaseException:
        delays.show(address.path)
        raise
    delays.hide(address.path, channels, rule.options["seconds"])
    return response


async def _detect_delay(rule: FaultRule, handler: Handler, lake: Lake, request: LakeRequest) -> Response:
    address = await run_in_threadpool(lake.address, request.raw_path)
    folder = await run_in_threadpool(DeletedFolder.of, lake.storage, address.path)
    lake.options.delays.keep_visible(folder, rule.options["seconds"])
    try:
        return await handler(lake, request)
    except BaseException:
        lake.options.delays.forget(folder)
        raise


async def _shift_time(rule: FaultRule, handler: Handler, lake: Lake, request: LakeRequest) -> Response:
    drawn = random.Random(rule.options.get("seed", 0) * 1_000_003 + rule.matched)  # noqa: S311 - repeatable

    def shifted(true_ns: int) -> int:
        second = true_ns - true_ns % NANOSECONDS
        is_same = rule.fault == "same_mtime"
        return rule.options.setdefault("since", second) if is_same else second + drawn.randrange(NANOSECONDS)

    token = TIME_SHIFT.set(shifted)
    try:
        return await handler(lake, request)
    finally:
        TIME_SHIFT.reset(token)


_INJECTORS: Mapping[str, Callable[[FaultRule, Handler, Lake, LakeRequest], Awaitable[Response]]] = {
    "throttle": _fail,
    "token_expired": _fail,
    "folder_in_use": _fail,
    "lost_request": _fail,
    "cut_body": _cut_body,
    "lost_response": _lost_response,
    "slow_flush": _slow_flush,
    "poll_mid_upload": _poll_mid_upload,
    "delay_visibility": _delay_visibility,
    "detect_delay": _detect_delay,
    "same_mtime": _shift_time,
    "shuffle_ties": _shift_time,
}


@dataclass(frozen=True)
class FabricFaults:
    """ASGI middleware: faults of Fabric's REST API; of several rules the first wins."""

    app: ASGIApp
    options: EmulatorOptions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        path = scope["path"].strip("/")
        rules = self.options.faults_of(scope["method"], path, (faults.REST,)) if self.options.faults else []
        fault = rules[0].fault if rules else ""
        if fault == "throttle":
            headers = {"Retry-After": str(rules[0].options["retry-after"])}
            error = FabricApiError(_FABRIC_THROTTLED[rules[0].options["status"]], headers=headers)
            await error.response()(scope, receive, send)
        elif fault == "token_expired":
            await FabricApiError(FabricErrorCode.TokenExpired).response()(scope, receive, send)
        elif not fault:
            await self.app(scope, receive, send)
        else:
            if fault == "lost_response":
                await self.app(scope, receive, _discard)
            await reset_connection(scope, receive)


async def _discard(_: Message) -> None:
    """Drop a response."""


FAULT_API_PATH = "/.mirror-engine/faults"  # clients' paths never begin so
FAULT_API_HEADER = "x-mirror-engine-fault-token"
MAX_BYTES = 64 * 1024
_METHODS = ("GET", "POST", "DELETE")


@dataclass(frozen=True)
class FaultApi:
    """ASGI middleware: switches faults on the http listener.

    `GET` shows the rules, `POST` adds those in its body, one per line, all or none, `DELETE` removes all; each answers
    with the rules afterwards: `[{"fault": "throttle nth=2", "matched": 1}]`.

    Attributes:
        app: answers all other requests.
        options: holds the rules.
        token: expected in `X-Mirror-Engine-Fault-Token`.
    """

    app: ASGIApp
    options: EmulatorOptions
    token: str = field(default_factory=lambda: token_urlsafe(24), repr=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        is_local = scope["scheme"] == "http" and host_of(scope["headers"]) in LOOPBACK_HOSTS
        if scope["path"] != FAULT_API_PATH or not is_local:
            await self.app(scope, receive, send)
            return
        response = await self._response(Request(scope, receive))
        await response(scope, receive, send)

    async def _response(self, request: Request) -> JSONResponse:
        if not hmac.compare_digest(request.headers.get(FAULT_API_HEADER, "").encode(), self.token.encode()):
            return _error(403, f"{FAULT_API_HEADER} is not this run's token.")
        if request.method not in _METHODS:
            return _error(405, f"Use one of {', '.join(_METHODS)}.")
        try:
            if request.method == "POST":
                lines = (await read_bounded(request.stream(), MAX_BYTES)).decode().splitlines()
                self.options.add([parse_fault(line) for line in lines if line.strip()])
        except UnicodeDecodeError:
            return _error(400, "The body is not UTF-8.")
        except UsageError as error:
            return _error(400, str(error))
        except StorageApiError as error:
            return _error(error.code.status, error.message)
        if request.method == "DELETE":
            self.options.clear()
        return JSONResponse([{"fault": rule.text, "matched": rule.matched} for rule in self.options.faults])


def _error(status: int, message: str) -> JSONResponse:
    return JSONResponse({"error": {"code": "FaultApiError", "message": message}}, status)
