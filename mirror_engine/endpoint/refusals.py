"""How the endpoint refuses what no operation has looked at yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import Request

from mirror_engine.endpoint.call import Call
from mirror_engine.endpoint.dialect import dialect_of
from mirror_engine.endpoint.headers import of_call

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import Message, Scope, Send


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
    """Answer as the request's dialect writes errors, and close the connection: a body may still be on its way."""
    call = Call.of(Request(scope))
    body, kind = dialect_of(call).error(code, message)
    told = {
        "content-type": kind,
        "content-length": str(len(body)),
        "connection": "close",
        "x-ms-error-code": code,
        **of_call(call),
        **(headers or {}),
    }
    encoded = [(name.encode(), value.encode()) for name, value in told.items()]
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    await send({"type": "http.response.body", "body": body})
