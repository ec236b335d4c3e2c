"""The page, the metrics and the two questions of an orchestra's conductor, over HTTP: for reading only."""

from __future__ import annotations

import time
from importlib.resources import files
from typing import TYPE_CHECKING

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from mirror_engine.monitoring.metrics import Metrics
from mirror_engine.monitoring.pages import Pages
from mirror_engine.monitoring.readiness import unready
from mirror_engine.monitoring.sights import Sights
from mirror_engine.monitoring.web_live import Live

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from mirror_engine.monitoring.pages import Page
    from mirror_engine.monitoring.shown import Shown

# Nothing on the page runs or comes from elsewhere but its own two files, and nobody may frame or embed it.
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
ASSETS = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}
EVENTS = "text/event-stream"


class Web:
    """What a browser, Prometheus and an orchestrator ask.

    Args:
        shown: the mirrored databases.
        clock: seconds since 1970.

    Attributes:
        app: the ASGI application; guarded by whoever serves it, gets no lifespan events.
        metrics: to which others may add.
        live: the streams of events, which end with `live.end()`.
    """

    def __init__(self, shown: Shown, clock: Callable[[], float] = time.time) -> None:
        self._sights = Sights(shown)
        self._pages = Pages(self._sights)
        self._clock = clock
        self.metrics = Metrics(self._sights, clock)
        self.live = Live()
        routes = [
            Route("/", self._overview),
            Route("/tables/{item}/{folder:path}", self._table),
            Route("/metrics", self._metrics),
            Route("/healthz", _healthz),
            Route("/readyz", self._readyz),
            *(Route(f"/assets/{name}", _asset(name, kind)) for name, kind in ASSETS.items()),
        ]
        self.app: ASGIApp = _WithHeaders(Starlette(routes=routes))

    async def _overview(self, request: Request) -> Response:
        return await self._shown(request, self._pages.overview)

    async def _table(self, request: Request) -> Response:
        item, folder = request.path_params["item"], request.path_params["folder"]
        return await self._shown(request, lambda: self._pages.table(item, folder))

    async def _shown(self, request: Request, make: Callable[[], Page]) -> Response:
        """A page, or for a script the same page's changes."""
        if EVENTS in request.headers.get("accept", ""):
            return self.live.answer(lambda: make().main)
        page = await run_in_threadpool(make)
        return HTMLResponse(self._pages.whole(page), 200 if page.is_found else 404, headers={"Vary": "Accept"})

    async def _metrics(self, _: Request) -> Response:
        return Response(await run_in_threadpool(self.metrics.text), media_type=CONTENT_TYPE_LATEST)

    async def _readyz(self, _: Request) -> Response:
        lines = await run_in_threadpool(lambda: unready(self._sights.all(), self._clock()))
        return PlainTextResponse("\n".join(["not ready", *lines, ""]), 503) if lines else PlainTextResponse("ready\n")


async def _healthz(_: Request) -> Response:
    return PlainTextResponse("ok\n")


def _asset(name: str, kind: str) -> Callable[[Request], Response]:
    content = (files("mirror_engine.monitoring") / "page" / name).read_bytes()
    return lambda _: Response(content, media_type=kind)


class _WithHeaders:
    """An ASGI application whose every answer carries `HEADERS`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._headers = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *self._headers]
            await send(message)

        await self._app(scope, receive, sending)
