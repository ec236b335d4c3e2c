"""How the endpoint refuses what no operation has looked at yet."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from starlette.requests import Request

from mirror_engine.onelake.fabric_json import error_json
from mirror_engine.onelake.requests import FABRIC, LakeRequest, dialect_of, named_host, of_call

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.types import ASGIApp, Message, Receive, Scope, Send


class Answer:
    """A `send` that knows whether an answer has begun: from then on no refusal can take its place."""

    def __init__(self, send: Send) -> None:
        self.has_begun = False
        self._send = send

    async def __call__(self, message: Message) -> None:
        """Send the answer's next part."""
        self.has_begun = True
        await self._send(message)


async def refuse(  # noqa: PLR0913 - all that an answer is made of
    scope: Scope, send: Send, status: int, code: str, message: str, *, headers: Mapping[str, str] | None = None
) -> None:
    """Answer as who was asked writes errors, and close the connection: a body may still be on its way."""
    body, form = _written(LakeRequest.of(Request(scope)), code, message)
    told = {"content-length": str(len(body)), "connection": "close", **form, **(headers or {})}
    encoded = [(name.encode(), value.encode()) for name, value in told.items()]
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    await send({"type": "http.response.body", "body": body})


def _written(call: LakeRequest, code: str, message: str) -> tuple[bytes, dict[str, str]]:
    """An error's body, and the headers that say what it is."""
    if call.host == FABRIC:
        told = error_json(call.id, code, message, is_retriable=False)
        form = {"content-type": "application/json", "x-ms-public-api-error-code": code, "requestid": call.id}
        return json.dumps(told).encode(), form
    body, kind = dialect_of(call).error(code, message)
    return body, {"content-type": kind, "x-ms-error-code": code, **of_call(call)}


_CODES = (b"x-ms-error-code", b"x-ms-public-api-error-code")
_LEAST, _ABSENT = 400, 404
_NO_LENGTH = 411, "MissingContentLengthHeader"


@dataclass(frozen=True)
class Refused:
    """A request that was answered with a status of 400 or more.

    Attributes:
        method: as it was sent.
        host: the name that was asked for; `""` where there was none, or more than one.
        path: as it was sent, percent-encoded, without the query.
        status: of the answer.
        code: OneLake's or Fabric's name for the refusal; `""` where the answer has none.
        is_tolerated: it was not refused here, but the real service does so.
    """

    method: str
    host: str
    path: str
    status: int
    code: str
    is_tolerated: bool = False

    def to_json(self) -> tuple[str, dict[str, Any]]:
        """An event's name, and its fields."""
        told = asdict(self)
        return "tolerated" if told.pop("is_tolerated") else "refused", told


class RejectedRequestLog:
    """An ASGI application whose refusals are told; not that nothing is there where HEAD asks just that.

    Args:
        app: what answers.
        tell: is told of each one; called on the loop, so it must not block for long.
    """

    def __init__(self, app: ASGIApp, tell: Callable[[Refused], None]) -> None:
        self._app = app
        self._tell = tell

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                if _is_told(scope["method"], message["status"]):
                    self._tell(_refused(scope, message["status"], _code(message)))
                elif _lacks_length(scope):
                    self._tell(_refused(scope, *_NO_LENGTH, is_tolerated=True))
            await send(message)

        await self._app(scope, receive, sending)


def _is_told(method: str, status: int) -> bool:
    return status >= _LEAST and (method, status) != ("HEAD", _ABSENT)


def _lacks_length(scope: Scope) -> bool:
    """Whether a request that writes says nothing of its body."""
    names = {name for name, _ in scope["headers"]}
    return scope["method"] in {"PUT", "PATCH"} and names.isdisjoint({b"content-length", b"transfer-encoding"})


def _code(message: Message) -> str:
    return next((value for name, value in message["headers"] if name in _CODES), b"").decode("latin-1")


def _refused(scope: Scope, status: int, code: str, *, is_tolerated: bool = False) -> Refused:
    path = scope["raw_path"].decode("latin-1")
    return Refused(scope["method"], named_host(scope["headers"]) or "", path, status, code, is_tolerated)
