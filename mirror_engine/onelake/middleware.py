"""What is in front of all services: access control, body limits, internal errors, log of rejected requests."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import time
import traceback
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from starlette.requests import ClientDisconnect, Request

from mirror_engine.landing_zone.names import PROCESSED_FOLDER, READY_TO_DELETE_FOLDER
from mirror_engine.onelake.addresses import segments_of
from mirror_engine.onelake.entra import carries
from mirror_engine.onelake.errors import ALLOWED_BY, ConnectionReset, StorageErrorCode, fabric_error, table_error
from mirror_engine.onelake.hosts import FABRIC, LOOPBACK_HOSTS, TABLE, host_of, is_served
from mirror_engine.onelake.requests import LEASE, LakeRequest, error_response

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from mirror_engine.onelake.connection import Listening

RESET_EXTENSION = "mirror_engine.reset"  # of the ASGI scope: its `now` aborts the connection
MAX_BODY_BYTES = 4 << 30  # of one request
BODY_SECONDS = 60.0  # between two chunks of a body; and in all, beyond what its bytes take at the least rate
LEAST_BYTES_PER_SECOND = 1024  # of a body, after `BODY_SECONDS`
CHALLENGE = 'Bearer authorization_uri="https://login.microsoftonline.com/common", Basic realm="mirror-engine"'
_CODE_HEADERS = (b"x-ms-error-code", b"x-ms-public-api-error-code")
_LENGTH_HEADERS = frozenset({b"content-length", b"transfer-encoding"})
_FIRST_ERROR, _NOT_FOUND = 400, 404


def rejection(scope: Scope, status: int, code: str, message: str, **headers: str) -> Response:
    """An error in the form of the addressed service. Closes the connection, because a body may be arriving."""
    request = LakeRequest.of(Request(scope))
    form = fabric_error if request.host == FABRIC else partial(error_response, request)
    if request.host.endswith(TABLE):
        form = partial(table_error, scope["path"])
    return form(status, code, message, {"connection": "close", **headers})


@dataclass(frozen=True)
class RejectedRequest:
    """A request that was answered with status 400 or more."""

    method: str  # as sent
    host: str  # `""` where there was none, or more than one
    path: str  # as sent, percent-encoded, without the query
    status: int  # of the answer
    code: str  # OneLake's or Fabric's error code; `""` where the answer has none
    allowed_by: str = ""  # the option with which it would not be rejected; `""` where there is none
    is_tolerated: bool = False  # it was served here, but Fabric would reject it
    is_answer: bool = False  # the client asked whether a path is there: nothing is wrong

    def record(self) -> tuple[Literal["info", "warning"], str, dict[str, Any]]:
        """Level, name and fields of its log event."""
        fields = {name: value for name, value in asdict(self).items() if name != "allowed_by" or value}
        name = "request_tolerated" if fields.pop("is_tolerated") else "request_rejected"
        return "info" if fields.pop("is_answer") else "warning", name, fields


def observed(send: Send, on_start: Callable[[Message], object]) -> Send:
    """`send`, which shows the start of the response first."""

    async def send_observed(message: Message) -> None:
        if message["type"] == "http.response.start":
            on_start(message)
        await send(message)

    return send_observed


class BodyTooLarge(Exception):
    """A body has more bytes than allowed."""


@dataclass(frozen=True)
class Gate:
    """In front of an application: access control, bounds of bodies (413, 408), internal errors (500), and a log."""

    app: ASGIApp
    # All but public requests carry its token: one that the Entra stub issued for it, itself, or as a password of HTTP
    # Basic. Beyond loopback hosts may have any name
    listening: Listening
    is_public: Callable[[Scope], bool]  # whether a request needs no token
    on_error: Callable[[str], None] = lambda _: None  # gets an internal error's type and place, no request content
    on_answered: Callable[[str, int], None] = lambda *_: None  # gets every answer's method and status
    # Gets rejected requests, except HEAD that finds nothing, and writes that say nothing of their length. Both are
    # called on the event loop, so they must not block for long
    on_rejected: Callable[[RejectedRequest], None] = lambda _: None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started: list[Message] = []

        def note(start: Message) -> None:
            started.append(start)
            if not body.is_read and any(name == b"expect" for name, _ in scope["headers"]):
                start["headers"] = [*start["headers"], (b"connection", b"close")]  # the body may come or not
            self._report(scope, start)

        body, send = _Body(receive), observed(send, note)
        try:
            await (self._refusal(scope) or self.app)(scope, body, send)
        except ClientDisconnect:
            return
        except ConnectionReset:
            scope["extensions"][RESET_EXTENSION]["now"]()
            while (await receive())["type"] != "http.disconnect":
                pass
        except Exception as error:  # noqa: BLE001 - the outermost handler
            match error:
                case BodyTooLarge():
                    rejected = 413, "RequestBodyTooLarge", "The request body is too large."
                case asyncio.TimeoutError():
                    rejected = 408, "OperationTimedOut", "The request body stopped arriving."
                case _:
                    rejected = 500, "InternalError", "Internal error of the emulator; see its log."
                    self.on_error(_location(error))
            if not started:
                await rejection(scope, *rejected)(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        """Why a request is not passed to the application; None if it is."""
        host, secret = host_of(scope["headers"]), self.listening.token
        if host is None:
            return rejection(scope, 400, "InvalidHeaderValue", "A request needs exactly one Host header.")
        own = {*LOOPBACK_HOSTS, self.listening.address, *self.listening.names}
        if not (self.listening.is_remote or host in own or is_served(host)):
            return rejection(scope, 421, "InvalidUri", "The emulator does not serve that host name.")
        if not _is_same_origin(scope):
            return rejection(scope, 403, "AuthorizationFailure", "Pages of other sites may not use the emulator.")
        if secret is not None and not _carries(scope, secret) and not self.is_public(scope):
            message = "The emulator requires the token it was started with."
            return rejection(scope, 401, "Unauthorized", message, **{"www-authenticate": CHALLENGE})
        announced = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if int(announced) > MAX_BODY_BYTES:  # digits alone, or the parser had rejected it
            raise BodyTooLarge
        return None

    def _report(self, scope: Scope, start: Message) -> None:
        method, status = scope["method"], start["status"]
        self.on_answered(method, status)
        request = method, host_of(scope["headers"]) or "", scope["raw_path"].decode("latin-1")
        if status >= _FIRST_ERROR:
            if (method, status) != ("HEAD", _NOT_FOUND):
                headers = {name: value.decode("latin-1") for name, value in start["headers"]}
                code = next((headers[name] for name in _CODE_HEADERS if name in headers), "")
                is_answer = _is_answer(LakeRequest.of(Request(scope)), status, code)
                allowed_by = headers.get(ALLOWED_BY.encode(), "")
                self.on_rejected(RejectedRequest(*request, status, code, allowed_by, is_answer=is_answer))
        elif lacking := _lacking(scope):
            self.on_rejected(RejectedRequest(*request, *lacking, is_tolerated=True))


def _lacking(scope: Scope) -> tuple[int, str] | None:
    """Azure's rejection of a request that is served here: a write without length, a DFS list without `recursive`."""
    query = scope["query_string"].lower()
    if scope["method"] in {"PUT", "PATCH"} and _LENGTH_HEADERS.isdisjoint(name for name, _ in scope["headers"]):
        return 411, "MissingContentLengthHeader"
    if scope["method"] == "GET" and b"resource=filesystem" in query and b"recursive=" not in query:
        return 400, StorageErrorCode.MissingRequiredQueryParameter.name
    return None


def _is_answer(request: LakeRequest, status: int, code: str) -> bool:
    """Whether a rejection is an expected answer, so that nothing is wrong.

    A path to read or delete is absent; a file to read ends before the range, or is another version than the one asked
    for. A path to create is there: with a condition (`If-None-Match: *`), or a folder, which clients create before they
    use it. A folder to delete if it is empty is not. A path to lease is absent, as Arrow finds out whether a move would
    replace a file. The archive folder of a table is absent: an engine creates it once a move there has failed.
    """
    match request.method, status:
        case ("GET" | "HEAD", 404 | 412 | 416) | ("DELETE", 404):
            return True
        case "PUT" | "POST", 404 if LEASE in request.headers:
            return True
        case "DELETE", 409:
            return code in _codes(StorageErrorCode.DirectoryNotEmpty)
        case "PUT", 409 if code in _codes(StorageErrorCode.PathAlreadyExists):
            return "if-none-match" in request.headers or request.query.get("resource", "").lower() == "directory"
        case "PUT", 404 if code in _codes(StorageErrorCode.RenameDestinationParentPathNotFound):
            return segments_of(request.raw_path)[-2] in {READY_TO_DELETE_FOLDER, PROCESSED_FOLDER}
    return False


def _codes(error: StorageErrorCode) -> set[str]:
    return {error.dfs_code, error.blob_code}


def _carries(scope: Scope, secret: str) -> bool:
    header = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
    scheme, _, credentials = header.decode("latin-1").partition(" ")
    if scheme.lower() == "bearer":
        return carries(credentials.strip(), secret)
    try:
        password = base64.b64decode(credentials, validate=True).partition(b":")[2]
    except binascii.Error:
        return False
    return scheme.lower() == "basic" and hmac.compare_digest(password, secret.encode())


def _is_same_origin(scope: Scope) -> bool:
    """Whether a request comes from no page or from a page of its own host."""
    origins = [value.decode("latin-1").lower() for name, value in scope["headers"] if name == b"origin"]
    hosts = [value.decode("latin-1").lower() for name, value in scope["headers"] if name == b"host"]
    try:
        return all(urlsplit(origin).netloc in hosts for origin in origins)
    except ValueError:
        return False


class _Body:
    """A request's body, limited in size and in the time to send it. The server's own delays do not count."""

    def __init__(self, receive: Receive) -> None:
        self.is_read = False  # whether it was asked for
        self._receive = receive
        self._received, self._waited, self._has_more = 0, 0.0, True

    async def __call__(self) -> Message:
        """The next part; BodyTooLarge, TimeoutError."""
        self.is_read = True
        if not self._has_more:
            return await self._receive()
        allowed = BODY_SECONDS + self._received / LEAST_BYTES_PER_SECOND
        began = time.monotonic()
        message = await asyncio.wait_for(self._receive(), min(BODY_SECONDS, allowed - self._waited))
        self._waited += time.monotonic() - began
        self._received += len(message.get("body", b""))
        self._has_more = message.get("more_body", False)
        if self._received > MAX_BODY_BYTES:
            raise BodyTooLarge
        return message


def _location(error: Exception) -> str:
    """An internal error without its message, which may hold a client's token or row."""
    frames = reversed(traceback.extract_tb(error.__traceback__)[-3:])
    location = " < ".join(f"{frame.name}, line {frame.lineno}" for frame in frames)
    return f"internal error: {type(error).__name__} in {location}"
