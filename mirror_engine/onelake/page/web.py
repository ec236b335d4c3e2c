"""Read-only HTTP: the page, `/metrics`, and the `/healthz` and `/readyz` probes for orchestrators."""

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
from mirror_engine.onelake.engine_pool import DatabaseStatus
from mirror_engine.onelake.hosts import LOOPBACK
from mirror_engine.onelake.middleware import bounded, guarded, observed
from mirror_engine.onelake.network import http_config, listening_socket
from mirror_engine.onelake.page.metrics import Metrics
from mirror_engine.onelake.page.pages import Pages, StatusCache, View

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence

    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

    from mirror_engine.onelake.connection import ConnectionInfo
    from mirror_engine.onelake.engine_pool import ShownItem
    from mirror_engine.onelake.page.pages import CachedStatus, Page

MAX_STREAMS = 32
REFRESH_SECONDS = 1.0
KEEP_ALIVE_REFRESHES = 15  # without a change, after which a comment keeps the connection open
MAX_HEARTBEAT_AGE_SECONDS = 120.0  # an engine writes one every 30 s while it works, and once a cycle
MAX_BODY_BYTES = 1024
MAX_CONNECTIONS = 64
IDLE_SECONDS = 30
EVENT_STREAM = "text/event-stream"
ASSETS = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}
HEADERS = {  # no scripts or styles but the page's own, no framing, no embedding
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_HEADERS = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]


class Web:
    """Page, metrics and probes, served on loopback, guarded and limited.

    Args:
        items: gives every mirrored database.
        clock: seconds since 1970.
        port: requested; 0 for any.
        secret: which every request must carry; None where any passes.
        is_shared: whether other machines reach the page, through the application.
        connection: gives the emulator as a publisher sees it; None where that is not known.
        on_error: gets internal errors, without request content.

    Attributes:
        app: the ASGI application behind the guard; gets no lifespan events.
        metrics: count requests, too.
        port: the one in use, once started.
    """

    def __init__(  # noqa: PLR0913 - the settings of a server
        self,
        items: Callable[[], Sequence[ShownItem]],
        clock: Callable[[], float] = time.time,
        *,
        port: int = 0,
        secret: str | None = None,
        is_shared: bool = False,
        connection: Callable[[], ConnectionInfo | None] = lambda: None,
        on_error: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._statuses = StatusCache(items)
        self._pages = Pages(self._statuses, connection, has_token=secret is not None, is_shared=is_shared)
        self._clock = clock
        self.metrics = Metrics(self._statuses)
        self._stream_count = 0
        self._ended = threading.Event()
        routes = [
            Route("/", self._overview),
            Route("/tables/{item}/{folder:path}", self._table),
            Route("/explain/{code}", self._explain),
            Route("/metrics", self._metrics),
            Route("/healthz", _healthz),
            Route("/readyz", self._readyz),
            *(Route(f"/assets/{name}", _asset(name, kind)) for name, kind in ASSETS.items()),
        ]
        self.app = _with_headers(Starlette(routes=routes))
        self._first_names = {route.path.split("/")[1] for route in routes}
        self.port = port
        bounds = bounded(self.app, on_error, max_bytes=MAX_BODY_BYTES)
        guard = guarded(bounds, secret, serves_production_names=False)
        self._server = uvicorn.Server(http_config(guard, idle_seconds=IDLE_SECONDS, max_concurrency=MAX_CONNECTIONS))

    def start(self) -> None:
        """Listen; returns when requests are answered. UsageError where the port cannot be used."""
        listener = listening_socket(LOOPBACK, self.port)
        self.port = int(listener.getsockname()[1])
        self._thread = threading.Thread(target=self._server.run, args=([listener],), name="page", daemon=True)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.001)  # it has no event for that

    def has(self, path: str) -> bool:
        """Whether a path may be one of the page's, by its first name."""
        return path.split("/")[1] in self._first_names

    def end_streams(self) -> None:
        """Let open pages get no more changes."""
        self._ended.set()

    def stop(self) -> None:
        """Stop; returns when nothing is answered any more."""
        self.end_streams()
        self._server.should_exit = True
        self._thread.join()
        self._statuses.close()

    async def _overview(self, request: Request) -> Response:
        view, address = View.of(request.query_params), str(request.base_url).rstrip("/")
        return await self._respond(request, lambda: self._pages.overview(view, address))

    async def _table(self, request: Request) -> Response:
        item, folder = request.path_params["item"], request.path_params["folder"]
        return await self._respond(request, lambda: self._pages.table(item, folder))

    async def _explain(self, request: Request) -> Response:
        return await self._respond(request, lambda: self._pages.explain(request.path_params["code"]))

    async def _respond(self, request: Request, render: Callable[[], Page]) -> Response:
        """A page, or for its script a stream of changes."""
        if EVENT_STREAM not in request.headers.get("accept", ""):
            page = await run_in_threadpool(render)
            return HTMLResponse(self._pages.document(page), 200 if page.exists else 404, headers={"Vary": "Accept"})
        if self._stream_count >= MAX_STREAMS:
            return PlainTextResponse("Too many pages are open.\n", 503, {"Retry-After": "60"})
        return StreamingResponse(self._events(render), media_type=EVENT_STREAM)

    async def _events(self, render: Callable[[], Page]) -> AsyncIterator[str]:
        """The page's HTML whenever it changes, as server-sent events."""
        self._stream_count += 1
        try:
            last, unchanged = "", 0
            while not self._ended.is_set():
                html = (await run_in_threadpool(render)).main  # has no carriage returns
                unchanged += 1
                if html != last:
                    yield "".join(f"data: {line}\n" for line in html.split("\n")) + "\n"
                    last, unchanged = html, 0
                elif unchanged >= KEEP_ALIVE_REFRESHES:
                    yield ": keep-alive\n\n"
                    unchanged = 0
                await asyncio.sleep(REFRESH_SECONDS)
        finally:
            self._stream_count -= 1

    async def _metrics(self, _: Request) -> Response:
        return Response(await run_in_threadpool(self.metrics.text), media_type=CONTENT_TYPE_LATEST)

    async def _readyz(self, _: Request) -> Response:
        lines = await run_in_threadpool(lambda: unready(self._statuses.all(), self._clock()))
        return PlainTextResponse("\n".join(["not ready", *lines, ""]), 503) if lines else PlainTextResponse("ready\n")


async def _healthz(_: Request) -> Response:
    return PlainTextResponse("ok\n")


def _asset(name: str, kind: str) -> Callable[[Request], Response]:
    content = (files("mirror_engine.onelake.page") / "templates" / name).read_bytes()
    return lambda _: Response(content, media_type=kind)


def _with_headers(app: ASGIApp) -> ASGIApp:
    """The application with `HEADERS` in every response."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await app(scope, receive, observed(send, lambda start: start["headers"].extend(_HEADERS)))

    return answer


def unready(statuses: Iterable[CachedStatus], now: float) -> list[str]:
    """A line for each mirrored database that should run and does not; `now` is in seconds since 1970."""
    reasons = [(cached.item, _reason(cached, now)) for cached in statuses if cached.item.should_run]
    return [printable(f"{item.workspace}/{item.name}: {reason}") for item, reason in reasons if reason]


def _reason(cached: CachedStatus, now: float) -> str:
    if cached.item.error:
        is_ended = cached.item.status is DatabaseStatus.STOPPED
        return f"its engine ended: {cached.item.error}" if is_ended else cached.item.error
    if cached.item.status is not DatabaseStatus.RUNNING:
        return str(cached.item.status.value)
    if cached.status is None:
        return cached.error
    if cached.status.last_heartbeat_at is None:
        return "Running, no heartbeat yet"
    age = now - cached.status.last_heartbeat_at
    return f"Running, last heartbeat {span(age)} ago" if age >= MAX_HEARTBEAT_AGE_SECONDS else ""
