"""The page, the metrics and the two questions of an orchestra's conductor, over HTTP: for reading only."""

from __future__ import annotations

import asyncio
import threading
import time
from importlib.resources import files
from typing import TYPE_CHECKING

import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from mirror_engine.landing_zone.diagnostics import printable
from mirror_engine.monitoring.words import span
from mirror_engine.onelake.internal_error import InternalErrorMiddleware
from mirror_engine.onelake.items import DatabaseStatus
from mirror_engine.onelake.limits import LimitedBodies
from mirror_engine.onelake.network import OwnGuard, bound, limited_http
from mirror_engine.onelake.page.metrics import Metrics
from mirror_engine.onelake.page.pages import Pages
from mirror_engine.onelake.page.status_cache import StatusCache

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from prometheus_client import Counter
    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from mirror_engine.onelake.page.pages import Page
    from mirror_engine.onelake.page.status_cache import CachedStatus, DashboardSource

MAX_STREAMS = 32
LOOK_SECONDS = 1.0
SILENT_LOOKS = 15  # after which a comment tells that the connection still stands


class Live:
    """The streams of one server."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._streams = 0

    def end(self) -> None:
        """End all streams, within `LOOK_SECONDS`; from any thread."""
        self._ended.set()

    def answer(self, make: Callable[[], str]) -> Response:
        """A stream of what `make` gives, whenever it gives something else; 503 where there are too many.

        Args:
            make: gives HTML without carriage returns; may take a while.
        """
        if self._streams >= MAX_STREAMS:
            return PlainTextResponse("Too many pages are open.\n", 503, {"Retry-After": "60"})
        return StreamingResponse(self._events(make), media_type="text/event-stream")

    async def _events(self, make: Callable[[], str]) -> AsyncIterator[str]:
        self._streams += 1
        try:
            last, silent = "", 0
            while not self._ended.is_set():
                shown = await run_in_threadpool(make)
                silent += 1
                if shown != last:
                    yield "".join(f"data: {line}\n" for line in shown.split("\n")) + "\n"
                    last, silent = shown, 0
                elif silent >= SILENT_LOOKS:
                    yield ": still here\n\n"
                    silent = 0
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            self._streams -= 1


OLDEST_HEARTBEAT_SECONDS = 120.0  # an engine beats every 30 s while it works, and once a cycle


def unready(sights: Iterable[CachedStatus], now: float) -> list[str]:
    """A line for each mirrored database that should run and does not; what nobody wants mirrored is well as it is.

    Args:
        sights: all there are.
        now: seconds since 1970.
    """
    whys = [(sight.item, _why(sight, now)) for sight in sights if sight.item.should_run]
    return [printable(f"{item.workspace}/{item.name}: {why}") for item, why in whys if why]


def _why(sight: CachedStatus, now: float) -> str:
    if sight.item.error:
        return f"its engine ended: {sight.item.error}"
    if sight.item.state is not DatabaseStatus.RUNNING:
        return str(sight.item.state.value)
    if sight.status is None:
        return sight.trouble
    if sight.status.last_heartbeat_at is None:
        return "Running, no heartbeat yet"
    age = now - sight.status.last_heartbeat_at
    return f"Running, last heartbeat {span(age)} ago" if age >= OLDEST_HEARTBEAT_SECONDS else ""


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

    def __init__(self, shown: DashboardSource, clock: Callable[[], float] = time.time) -> None:
        self._sights = StatusCache(shown)
        self._pages = Pages(self._sights)
        self._clock = clock
        self.metrics = Metrics(self._sights)
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
    content = (files("mirror_engine.onelake.page") / "templates" / name).read_bytes()
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


LOOPBACK = "127.0.0.1"
MAX_BODY_BYTES = 1024  # nobody has to send one
MAX_CONNECTIONS = 64
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
        app = OwnGuard(LimitedBodies(InternalErrorMiddleware(web.app, tell), MAX_BODY_BYTES), secret)
        self._server = uvicorn.Server(limited_http(app, idle_seconds=IDLE_SECONDS, most_at_once=MAX_CONNECTIONS))

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
