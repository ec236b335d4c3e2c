"""The page on the wire: http on the loopback, on a port and a thread of its own, apart from the publishers' traffic."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import uvicorn

from mirror_engine.endpoint.guard import OwnGuard
from mirror_engine.endpoint.limits import LimitedBodies
from mirror_engine.endpoint.server import bound, limited_http
from mirror_engine.endpoint.unforeseen import Unforeseen

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror_engine.monitoring.web import Web

LOOPBACK = "127.0.0.1"
MOST_BODY_BYTES = 1024  # nobody has to send one
MOST_CONNECTIONS = 64
IDLE_SECONDS = 30


class WebServer:
    """Serves the page, guarded and limited.

    Args:
        web: what is served.
        port: asked for; 0 for any.
        secret: which every request must carry; None where any passes.
        tell: is told of faults of the program, in words without anything a client sent.

    Attributes:
        port: what was got, once started.
    """

    def __init__(
        self, web: Web, *, port: int = 0, secret: str | None = None, tell: Callable[[str], None] = lambda _: None
    ) -> None:
        self.port = port
        self._web = web
        app = OwnGuard(LimitedBodies(Unforeseen(web.app, tell), MOST_BODY_BYTES), secret)
        self._server = uvicorn.Server(limited_http(app, idle_seconds=IDLE_SECONDS, most_at_once=MOST_CONNECTIONS))

    def start(self) -> None:
        """Listen; returns when requests are answered.

        Raises:
            UsageError: the port cannot be had.
        """
        listener = bound(LOOPBACK, self.port)
        self.port = int(listener.getsockname()[1])
        self._thread = threading.Thread(target=self._server.run, args=([listener],), name="page", daemon=True)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.001)  # it has no event for that

    def stop(self) -> None:
        """End; returns when nothing is answered any more."""
        self._web.live.end()
        self._server.should_exit = True
        self._thread.join()
