"""How the endpoint refuses what no dialect has looked at yet."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.types import Message, Send


class Answer:
    """A `send` that knows whether an answer has begun: from then on no refusal can take its place."""

    def __init__(self, send: Send) -> None:
        self.has_begun = False
        self._send = send

    async def __call__(self, message: Message) -> None:
        """Send the answer's next part."""
        self.has_begun = True
        await self._send(message)


async def refuse(send: Send, status: int, code: str, message: str, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
    """Answer in OneLake's error form and close the connection, as the request's body may still be on its way."""
    body = json.dumps({"error": {"code": code, "message": message}}).encode()
    told = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"x-ms-error-code", code.encode()),
        (b"connection", b"close"),
        *headers,
    ]
    await send({"type": "http.response.start", "status": status, "headers": told})
    await send({"type": "http.response.body", "body": body})
