"""Read-only HTTP: one static page and its data as JSON, `/metrics`, and the `/healthz` and `/readyz` probes."""

from __future__ import annotations

import hashlib
import json
import time
from importlib.resources import files
from typing import TYPE_CHECKING
from urllib.parse import quote

import prometheus_client
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from mirror_engine.onelake.middleware import observed
from mirror_engine.onelake.page.documents import explanation_page, overview, table_page
from mirror_engine.onelake.page.metrics import Metrics, unready
from mirror_engine.onelake.page.statuses import StatusCache

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from mirror_engine.onelake.engine_pool import ShownItem
    from mirror_engine.onelake.page.documents import Document

_STORAGE_QUERIES = frozenset({"resource", "restype", "comp"})
JSON = "application/json"
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


class _FolderConvertor(PathConvertor):
    """The rest of a path, whatever characters a name in it has (LZ-1.10)."""

    regex = "(?s:.*)"


register_url_convertor("folder", _FolderConvertor())


class Web:
    """Page, metrics and probes.

    An address has two forms: the page, which is the same everywhere, and the data that its script asks for with
    `Accept: application/json`.

    Args:
        items: gives every mirrored database.
        clock: seconds since 1970.
    """

    def __init__(self, items: Callable[[], Sequence[ShownItem]], clock: Callable[[], float] = time.time) -> None:
        self._statuses = StatusCache(items)
        self._clock = clock
        self._html = _static("index.html").decode()
        self.metrics = Metrics(self._statuses)  # they count requests, too
        routes = [
            Route("/", self._page(lambda _: overview(self._statuses.all()))),
            Route("/tables/{item}/{folder:folder}", self._page(self._table)),
            Route("/explain/{code}", self._page(lambda request: explanation_page(request.path_params["code"]))),
            Route("/metrics", self._metrics),
            Route("/healthz", PlainTextResponse("ok\n")),
            Route("/readyz", self._readyz),
        ]
        routes += [Route(f"/assets/{name}", Response(_static(name), media_type=kind)) for name, kind in ASSETS.items()]
        self._beginnings = {tuple(route.path.split("/")[:2]) for route in routes}
        routes.append(Route("/{anything:path}", self._page(lambda _: None, html_status=404)))
        self.app = _with_headers(_without_last_slash(Starlette(routes=routes)))  # without access control

    def answers(self, request: Request) -> bool:
        """Whether a request is the page's, by its path's first name, and none of a storage client.

        A browser's is, too, if its path is one name: nothing can be read there.
        """
        is_storage = "x-ms-version" in request.headers or not _STORAGE_QUERIES.isdisjoint(request.query_params)
        is_reading = request.method in {"GET", "HEAD"} and not is_storage
        path = request.scope["path"]
        is_astray = path.strip("/").count("/") == 0 and "text/html" in request.headers.get("accept", "")
        return is_reading and (is_astray or tuple(path.split("/")[:2]) in self._beginnings)

    def close(self) -> None:
        """Wait for scans in progress; nothing may be asked any more."""
        self._statuses.close()

    def _table(self, request: Request) -> Document | None:
        return table_page(self._statuses, request.path_params["item"], request.path_params["folder"])

    def _page(
        self, document: Callable[[Request], Document | None], *, html_status: int = 200
    ) -> Callable[[Request], Awaitable[Response]]:
        """Answer with the page, or its script with the data; 404 if there is none."""

        async def answer(request: Request) -> Response:
            if JSON not in request.headers.get("accept", ""):
                return HTMLResponse(self._html, html_status, headers={"Vary": "Accept"})
            return await run_in_threadpool(data, request)  # there may be thousands of tables

        def data(request: Request) -> Response:
            found = document(request)
            content = json.dumps(found).encode()
            headers = {"Vary": "Accept", "ETag": f'"{hashlib.sha256(content).hexdigest()}"'}
            if headers["ETag"] == request.headers.get("if-none-match"):
                return Response(status_code=304, headers=headers)
            return Response(content, 404 if found is None else 200, headers, JSON)

        return answer

    async def _metrics(self, _: Request) -> Response:
        return Response(await run_in_threadpool(self.metrics.text), media_type=prometheus_client.CONTENT_TYPE_LATEST)

    async def _readyz(self, _: Request) -> Response:
        lines = await run_in_threadpool(lambda: unready(self._statuses.all(), self._clock()))
        return PlainTextResponse("\n".join(["not ready", *lines, ""]), 503) if lines else PlainTextResponse("ready\n")


def _static(name: str) -> bytes:
    return (files("mirror_engine.onelake.page") / "static" / name).read_bytes()


def _without_last_slash(app: ASGIApp) -> ASGIApp:
    """Redirect `/explain/ME001/` to `/explain/ME001`."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        bare = f"/{scope.get('path', '').strip('/')}"
        is_redirected = scope["type"] == "http" and scope["path"].endswith("/") and scope["path"] != "/"
        await (RedirectResponse(quote(bare, errors="replace")) if is_redirected else app)(scope, receive, send)

    return answer


def _with_headers(app: ASGIApp) -> ASGIApp:
    def add(start: Message) -> None:
        start["headers"] = [*start["headers"], *_HEADERS]  # its list may be of an answer to all requests

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await app(scope, receive, observed(send, add))

    return answer
