"""What happens to a defect of ours: the client gets 500, the log a place in the code, and nobody a client's words."""

from __future__ import annotations

import asyncio
import traceback
from typing import TYPE_CHECKING

from mirror_engine.onelake.error_responses import Answer, refuse
from mirror_engine.onelake.limits import BodyTooLarge

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Receive, Scope, Send


class InternalErrorMiddleware:
    """An ASGI application from which no exception comes but those of limits."""

    def __init__(self, app: ASGIApp, tell: Callable[[str], None]) -> None:
        self._app = app
        self._tell = tell

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        answer = Answer(send)
        try:
            await self._app(scope, receive, answer)
        except (BodyTooLarge, asyncio.TimeoutError):
            raise
        except Exception as error:  # noqa: BLE001 - the last line of defence
            # an exception's text may hold what a client sent: a token, a row
            places = " < ".join(
                f"{frame.name}, line {frame.lineno}"
                for frame in reversed(traceback.extract_tb(error.__traceback__)[-3:])
            )
            self._tell(f"unforeseen {type(error).__name__} in {places}")
            if not answer.has_begun:
                await refuse(scope, send, 500, "InternalError", "A fault of the endpoint; its log says where.")
