"""Counts what an application answers, by method and status."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client import Counter
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


class Counted:
    """An ASGI application whose answers are counted.

    Args:
        app: what answers.
        requests: has the labels `method` and `status`.
    """

    def __init__(self, app: ASGIApp, requests: Counter) -> None:
        self._app = app
        self._requests = requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._requests.labels(scope["method"], message["status"]).inc()
            await send(message)

        await self._app(scope, receive, sending)
