"""Injects faults around storage operations and Fabric's REST API, and switches them while the emulator runs."""

from __future__ import annotations

import asyncio
import hmac
import random
from dataclasses import dataclass, field, replace
from secrets import token_urlsafe
from typing import TYPE_CHECKING, TypeAlias

from starlette.requests import Request
from starlette.responses import JSONResponse

from mirror_engine.errors import UsageError
from mirror_engine.onelake import blob, dfs, faults
from mirror_engine.onelake.address import segments_of
from mirror_engine.onelake.conditions import NANOSECONDS
from mirror_engine.onelake.errors import ConnectionReset, StorageApiError, StorageErrorCode, reset_connection
from mirror_engine.onelake.fabric_rest import FabricApiError, FabricErrorCode
from mirror_engine.onelake.faults import parse_fault
from mirror_engine.onelake.hosts import LOOPBACK_HOSTS, host_of
from mirror_engine.onelake.requests import in_thread, read_bounded
from mirror_engine.onelake.visibility import shifted_time, start_of_second

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from mirror_engine.onelake.faults import EmulatorOptions, FaultRule
    from mirror_engine.onelake.lake import Lake
    from mirror_engine.onelake.requests import LakeRequest

    Operation: TypeAlias = Callable[[Lake, LakeRequest], Awaitable[Response]]

_OPERATION_NAMES: Mapping[Operation, str] = {
    dfs.create: faults.CREATE,
    dfs.append: faults.APPEND,
    dfs.flush: faults.FLUSH,
    dfs.rename: faults.RENAME,
    dfs.delete: faults.DELETE,
    blob.delete: faults.DELETE,
    dfs.lease: faults.LEASE,
    dfs.list_paths: faults.LIST,
    blob.list_blobs: faults.LIST,
    dfs.set_properties: faults.METADATA,
    blob.put: faults.PUT,
    blob.put_block: faults.BLOCK,
    blob.put_block_list: faults.BLOCK_LIST,
    blob.copy: faults.COPY,
    dfs.read: faults.READ,
    dfs.get_properties: faults.HEAD,
    blob.batch: faults.BATCH,
}
_THROTTLED = {"429": StorageErrorCode.THROTTLED, "503": StorageErrorCode.SERVER_BUSY}
_FABRIC_THROTTLED = {"429": FabricErrorCode.TooManyRequests, "503": FabricErrorCode.ServiceUnavailable}
CHALLENGE = 'Bearer authorization_uri="https://login.microsoftonline.com/common", error="invalid_token"'


async def with_faults(lake: Lake, request: LakeRequest, operation: Operation) -> Operation:
    """The operation, wrapped in the faults that this request gets; the rule given first is the outermost."""
    if not lake.options.faults:
        return operation
    path = "/".join(segments_of(request.raw_path))
    names = await _operation_names(lake, request, operation)
    for rule in reversed(lake.options.faults_of(request.method, path, names)):
        operation = _INJECTORS[rule.fault](rule, operation)
    return operation


async def _operation_names(lake: Lake, request: LakeRequest, operation: Operation) -> set[str]:
    name = _OPERATION_NAMES.get(operation)
    if name == faults.CREATE and request.query["resource"].lower() == "directory":
        name = faults.FOLDER
    if name == faults.DELETE and await in_thread(_is_folder, lake, request):
        name = faults.DROP
    flushes = {faults.FLUSH} if name == faults.APPEND and request.flag("flush") else set()
    return flushes | ({name} if name else set())


def _is_folder(lake: Lake, request: LakeRequest) -> bool:
    try:
        return lake.properties(lake.address(request.raw_path)).is_folder
    except StorageApiError:
        return False


def _failing(error: Callable[[FaultRule], Exception]) -> Callable[[FaultRule, Operation], Operation]:
    """Answer with an error before any effect."""

    def inject(rule: FaultRule, _: Operation) -> Operation:
        async def fail(_: Lake, __: LakeRequest) -> Response:
            raise error(rule)

        return fail

    return inject


def _throttled(rule: FaultRule) -> StorageApiError:
    headers = {"Retry-After": str(rule.options["retry-after"])}
    return StorageApiError(_THROTTLED[str(rule.options["status"])], headers=headers)


def _token_expired(_: FaultRule) -> StorageApiError:
    return StorageApiError(StorageErrorCode.UNAUTHORIZED, "The token has expired.", {"WWW-Authenticate": CHALLENGE})


def _cut_body(rule: FaultRule, operation: Operation) -> Operation:
    async def until_cut(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        left = int(rule.number("bytes"))
        async for chunk in chunks:
            yield chunk[:left]
            left -= len(chunk)
            if left <= 0:
                break
        raise ConnectionReset

    async def cut(lake: Lake, request: LakeRequest) -> Response:
        if request.is_empty:
            raise ConnectionReset
        return await operation(lake, replace(request, body=until_cut(request.body)))

    return cut


def _lost_response(_: FaultRule, operation: Operation) -> Operation:
    async def lose(lake: Lake, request: LakeRequest) -> Response:
        await operation(lake, request)
        raise ConnectionReset

    return lose


def _slow_flush(rule: FaultRule, operation: Operation) -> Operation:
    async def wait(lake: Lake, request: LakeRequest) -> Response:
        await asyncio.sleep(rule.number("seconds"))
        return await operation(lake, request)

    return wait


def _poll_mid_upload(_: FaultRule, operation: Operation) -> Operation:
    async def poll(lake: Lake, request: LakeRequest) -> Response:
        response = await operation(lake, request)
        item = lake.address(request.raw_path).item
        if item:
            await in_thread(lake.options.poll, item)
        return response

    return poll


def _delay_visibility(rule: FaultRule, operation: Operation) -> Operation:
    async def delay(lake: Lake, request: LakeRequest) -> Response:
        address = await in_thread(lake.destination, request.raw_path)
        if await in_thread(lake.exists, address):
            return await operation(lake, request)  # not a new name
        channels, delays = str(rule.options["from"]).split(","), lake.options.delays
        delays.hide(address.path, channels)
        try:
            response = await operation(lake, request)
        except BaseException:
            delays.show(address.path)
            raise
        delays.hide(address.path, channels, rule.number("seconds"))
        return response

    return delay


def _detect_delay(rule: FaultRule, operation: Operation) -> Operation:
    async def delay(lake: Lake, request: LakeRequest) -> Response:
        folder = await in_thread(lake.snapshot_folder, await in_thread(lake.address, request.raw_path))
        lake.options.delays.keep_visible(folder, rule.number("seconds"))
        try:
            return await operation(lake, request)
        except BaseException:
            lake.options.delays.forget(folder)
            raise

    return delay


def _same_mtime(rule: FaultRule, operation: Operation) -> Operation:
    return _shifting(lambda true_ns: int(rule.options.setdefault("since", start_of_second(true_ns))), operation)


def _shuffle_ties(rule: FaultRule, operation: Operation) -> Operation:
    drawn = random.Random(int(rule.number("seed")) * 1_000_003 + rule.matched)  # noqa: S311 - repeatable
    return _shifting(lambda true_ns: start_of_second(true_ns) + drawn.randrange(NANOSECONDS), operation)


def _shifting(shift: Callable[[int], int], operation: Operation) -> Operation:
    async def shifted(lake: Lake, request: LakeRequest) -> Response:
        with shifted_time(shift):
            return await operation(lake, request)

    return shifted


_INJECTORS: Mapping[str, Callable[[FaultRule, Operation], Operation]] = {
    "throttle": _failing(_throttled),
    "token_expired": _failing(_token_expired),
    "folder_in_use": _failing(lambda _: StorageApiError(StorageErrorCode.FOLDER_IN_USE)),
    "lost_request": _failing(lambda _: ConnectionReset()),
    "cut_body": _cut_body,
    "lost_response": _lost_response,
    "slow_flush": _slow_flush,
    "poll_mid_upload": _poll_mid_upload,
    "delay_visibility": _delay_visibility,
    "detect_delay": _detect_delay,
    "same_mtime": _same_mtime,
    "shuffle_ties": _shuffle_ties,
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
        match rules[0].fault if rules else "":
            case "":
                await self.app(scope, receive, send)
            case "throttle":
                options = rules[0].options
                headers = {"Retry-After": str(options["retry-after"])}
                error = FabricApiError(_FABRIC_THROTTLED[str(options["status"])], headers=headers)
                await error.response()(scope, receive, send)
            case "token_expired":
                await FabricApiError(FabricErrorCode.TokenExpired).response()(scope, receive, send)
            case fault:
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
