"""Which service of the emulator answers a request: by `Host`, and on one port by path, too."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.routing import Match

from mirror_engine.onelake.app import onelake_app
from mirror_engine.onelake.entra import entra_app
from mirror_engine.onelake.fabric_rest import BASE, fabric_app
from mirror_engine.onelake.faults import hold, with_fabric_faults
from mirror_engine.onelake.hosts import FABRIC, LOGINS, host_of, is_served
from mirror_engine.onelake.middleware import observed

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from mirror_engine.onelake.engine_pool import EnginePool
    from mirror_engine.onelake.lake import Lake
    from mirror_engine.onelake.page.web import Web

_STORAGE_QUERIES = frozenset({"resource", "restype", "comp"})


class Services:
    """All services of an emulator as one ASGI application, by `Host`; at other names OneLake.

    Args:
        lake: the storage.
        engines: of its mirrored databases.
        secret: the only client secret that Entra accepts, None for any.
        page: where it shares the port: at names that are not production's, a path of Entra's, Fabric's API's or the
            page's own selects them.
    """

    def __init__(self, lake: Lake, engines: EnginePool, secret: str | None, page: Web | None = None) -> None:
        self._entra = entra_app(secret)
        self._page = page
        self.serve(lake, engines)

    def serve(self, lake: Lake, engines: EnginePool) -> None:
        """Answer for this storage and these engines from now on."""
        lake.options.poll = engines.poll
        lake.options.hold = partial(hold, engines)
        for rule in lake.options.faults:
            lake.options.apply(rule)
        self._onelake = onelake_app(lake)
        self._fabric = with_fabric_faults(fabric_app(engines, lake.options.long_running), lake.options)
        self._fabric_at_address = _with_own_locations(self._fabric)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        await self._selected(scope)(scope, receive, send)

    def is_public(self, scope: Scope) -> bool:
        """Whether a request is Entra's, which gives tokens and so needs none."""
        return self._selected(scope) is self._entra

    def _selected(self, scope: Scope) -> ASGIApp:
        host = host_of(scope["headers"]) or ""
        if host in LOGINS:
            return self._entra
        if host == FABRIC:
            return self._fabric
        return self._onelake if self._page is None or is_served(host) else self._selected_by_path(scope, self._page)

    def _selected_by_path(self, scope: Scope, page: Web) -> ASGIApp:
        """OneLake's paths begin with a workspace: one named as a path below is reached by its GUID."""
        path: str = scope["path"]
        if any(route.matches(scope)[0] is not Match.NONE for route in self._entra.routes):
            return self._entra
        if path.startswith(f"{BASE}/"):
            return self._fabric_at_address
        request = Request(scope)
        is_storage = "x-ms-version" in request.headers or not _STORAGE_QUERIES.isdisjoint(request.query_params)
        return page.app if page.has(path) and request.method in {"GET", "HEAD"} and not is_storage else self._onelake


def _with_own_locations(app: ASGIApp) -> ASGIApp:
    """Fabric's API whose long-running operations are found at the address that the client asked."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        own = str(Request(scope).base_url)

        def relocate(start: Message) -> None:
            headers = MutableHeaders(scope=start)
            if "location" in headers:
                headers["location"] = headers["location"].replace(f"https://{FABRIC}/", own, 1)

        await app(scope, receive, observed(send, relocate))

    return answer
