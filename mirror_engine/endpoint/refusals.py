"""How the endpoint refuses what no operation has looked at yet."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from starlette.requests import Request

from mirror_engine.endpoint.call import Call
from mirror_engine.endpoint.dialect import dialect_of
from mirror_engine.endpoint.fabric_faults import error_json
from mirror_engine.endpoint.headers import of_call
from mirror_engine.endpoint.hosts import FABRIC

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
    """Answer as who was asked writes errors, and close the connection: a body may still be on its way."""
    body, form = _written(Call.of(Request(scope)), code, message)
    told = {"content-length": str(len(body)), "connection": "close", **form, **(headers or {})}
    encoded = [(name.encode(), value.encode()) for name, value in told.items()]
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    await send({"type": "http.response.body", "body": body})


def _written(call: Call, code: str, message: str) -> tuple[bytes, dict[str, str]]:
    """An error's body, and the headers that say what it is."""
    if call.host == FABRIC:
        told = error_json(call.id, code, message, is_retriable=False)
        form = {"content-type": "application/json", "x-ms-public-api-error-code": code, "requestid": call.id}
        return json.dumps(told).encode(), form
    body, kind = dialect_of(call).error(code, message)
    return body, {"content-type": kind, "x-ms-error-code": code, **of_call(call)}
