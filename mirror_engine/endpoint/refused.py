"""Tells of each refused request what was asked and how it was refused, and nothing that a client keeps secret.

The real service refuses one thing that passes here: a body whose length is not told, not even as none (chapter 13.2).

No query, in which a signature may stand; no header of the client's but the host it named; no body.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from mirror_engine.endpoint.hosts import named_host

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

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


class RefusalsTold:
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
