"""The emulator: its services, and the server that starts them with engines and page."""

from __future__ import annotations

import json
import os
import shlex
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from filelock import FileLock, Timeout
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Match

from mirror_engine.config import write_effective
from mirror_engine.errors import RootLocked, UsageError
from mirror_engine.landing_zone.layout import ZONE
from mirror_engine.landing_zone.text import printable
from mirror_engine.onelake.authority import create_authority
from mirror_engine.onelake.connection import CA_VARIABLES, UNFINISHED_PATH, ConnectionInfo, StateFolder
from mirror_engine.onelake.engine_pool import EnginePool
from mirror_engine.onelake.entra import entra_app, install_az
from mirror_engine.onelake.errors import FabricApiError
from mirror_engine.onelake.fabric_rest import BASE, fabric_app
from mirror_engine.onelake.faults import FAULT_API_PATH, FaultApi, hold, with_fabric_faults, with_table_faults
from mirror_engine.onelake.hosts import DFS, FABRIC, LOGINS, LOOPBACK, TABLE, host_of, is_served
from mirror_engine.onelake.items import Items
from mirror_engine.onelake.lake import Lake
from mirror_engine.onelake.listeners import Listeners
from mirror_engine.onelake.middleware import Gate
from mirror_engine.onelake.page.web import Web
from mirror_engine.onelake.storage_api import onelake_app
from mirror_engine.onelake.store import LocalStore
from mirror_engine.onelake.table_api import table_app
from mirror_engine.storage.local import write_private
from mirror_engine.storage.roots import check_store, pasted

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Receive, Scope, Send

    from mirror_engine.events import Event
    from mirror_engine.monitoring.wait_conditions import UnmetCondition
    from mirror_engine.onelake.authority import Authority
    from mirror_engine.onelake.items import Item
    from mirror_engine.onelake.middleware import RejectedRequest
    from mirror_engine.onelake.options import ServerPlan


class Services:
    """All services of an emulator as one ASGI application, by `Host`; at names that are not production's OneLake.

    There the page's paths select it, on http alone but for a single port, where paths select Entra, Fabric and the
    table APIs, too.
    """

    def __init__(self, lake: Lake, engines: EnginePool, page: Web | None = None) -> None:
        self._is_single_port = engines.plan.listening.is_single_port
        self._entra = entra_app(engines.plan.listening.token)
        self._page = page
        self.serve(lake, engines)

    def serve(self, lake: Lake, engines: EnginePool) -> None:
        lake.options.poll = engines.poll
        lake.options.hold = partial(hold, engines)
        for rule in lake.options.faults:
            lake.options.apply(rule)
        self._engines = engines
        self._onelake = onelake_app(lake)
        self._fabric = with_fabric_faults(fabric_app(engines), lake.options)
        tables = table_app(engines)
        self._tables, self._table_routes = with_table_faults(tables, lake.options), tables.routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_unfinished = scope["path"] == UNFINISHED_PATH and scope["scheme"] == "http"
        await (self._unfinished if is_unfinished else self._selected(scope))(scope, receive, send)

    async def _unfinished(self, scope: Scope, receive: Receive, send: Send) -> None:
        """For `emulator exec` of another process: `EnginePool.unfinished`."""
        found = await run_in_threadpool(self._engines.unfinished)
        await JSONResponse([[path, asdict(unmet)] for path, unmet in found])(scope, receive, send)

    def is_public(self, scope: Scope) -> bool:
        """Whether a request is Entra's, which gives tokens and so needs none."""
        return self._selected(scope) is self._entra

    def _selected(self, scope: Scope) -> ASGIApp:
        """OneLake's paths begin with a workspace: one named as a path of others is reached by its GUID."""
        host = host_of(scope["headers"]) or ""
        if host in LOGINS:
            return self._entra
        if host == FABRIC:
            return self._fabric
        if is_served(host):
            return self._tables if host.endswith(TABLE) else self._onelake
        if self._is_single_port and (service := self._by_path(scope)):
            return service
        page = self._page if self._is_single_port or scope["scheme"] == "http" else None
        return page.app if page and page.answers(Request(scope)) else self._onelake

    def _by_path(self, scope: Scope) -> ASGIApp | None:
        """The service for a path, apart from OneLake and the page."""
        for app, routes in ((self._entra, self._entra.routes), (self._tables, self._table_routes)):
            if any(route.matches(scope)[0] is not Match.NONE for route in routes):
                return app
        return self._fabric if scope["path"].startswith(f"{BASE}/") else None


LOCK_SECONDS = 0.5  # `connection.running` holds the lock for a moment, too
WORKSPACE, ITEM = "Workspace", "Mirror"  # created in an empty STORE
TENANT = "6d697272-6f72-4e67-a96e-652d74656e74"  # the Entra stub accepts any
CLIENT = "6d697272-6f72-4e67-a96e-632d6c69656e"
ANY_SECRET = "x"  # noqa: S105 - any will do
NO_PROXY = "localhost,127.0.0.1"  # older clients fail on ::1


@dataclass(eq=False)
class Server:
    """A running emulator while entered; `connection` is how it is reached, `item` the default mirrored database.

    On entering, RootLocked where another process serves this STORE; UsageError where it is not a folder or one of a
    ROOT, a name cannot be a folder's, or a port is in use.
    """

    plan: ServerPlan
    on_error: Callable[[str], None]  # gets messages about failures, without request content
    on_event: Callable[[Item, Event], None] = lambda *_: None  # gets every event of the engines, with its item
    on_rejected: Callable[[RejectedRequest], None] = lambda _: None  # gets every rejected request

    def __enter__(self) -> Self:
        self._state = StateFolder(self.plan.store)
        with ExitStack() as stack:
            self._lock_store(stack)
            lake = self._open()
            stack.callback(lambda: self._engines.end())  # noqa: PLW0108 - of the pool that is there then
            self.connection = self._listen(stack, lake)
            exports = "".join(f"{line}\n" for line in self.connection.exports())
            document = json.dumps(self.connection.to_json())
            for path, text in ((self._state.exports, exports), (self._state.info, document)):  # the latter: it is ready
                write_private(path, text.encode())
                stack.callback(path.unlink, missing_ok=True)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def restart(self, change: Callable[[], None], lead_seconds: float = 0.0) -> None:
        """End all engines, change the STORE's files, and serve what is there then, at the same addresses.

        No request may be in progress. Faults are again those of the plan, and the clock is ahead by `lead_seconds`.
        """
        self._engines.end()
        change()
        self.plan.options.restart(lead_seconds)
        self._services.serve(self._open(), self._engines)

    def advance(self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Let time pass for all that waits, as `Mirror.advance`: in engines, faults, uploads; from any thread."""
        self.plan.options.clock.advance(days=days, hours=hours, minutes=minutes, seconds=seconds)

    def poll(self) -> bool:
        """Scan the landing zone of the default item, and wait for its engine; False if it does not run, or waits."""
        return self._engines.poll(self.item)

    def unfinished(self) -> list[tuple[str, UnmetCondition]]:
        """What each item waits for, by its path."""
        return self._engines.unfinished()

    def _open(self) -> Lake:
        plan = self.plan
        storage = LocalStore(plan.store.absolute())
        items = Items(storage, allow_bare_names=plan.options.allow_bare_names)
        self.item = self._default_item(items)
        self._engines = EnginePool(plan, items, self.on_event, self.on_error)
        if plan.has_engines:
            self._engines.start_all()
        lost = "a rename without a condition replaced this file; its content is lost"
        return Lake(storage, items, plan.options, on_lost_file=lambda path: self.on_error(f"{printable(path)}: {lost}"))

    def _lock_store(self, stack: ExitStack) -> None:
        store = self.plan.store
        check_store(store)
        try:
            self._state.create()
        except OSError as error:
            raise UsageError(f"{error.filename}: {error.strerror}", "Use a folder that you can write to.") from None
        try:
            stack.enter_context(FileLock(self._state.lock, timeout=LOCK_SECONDS))
        except Timeout:
            info = self._state.read_info()
            pid, quoted = f" (pid {info.pid})" if info else "", pasted(store)
            raise RootLocked(
                f"an emulator is already running for {store}{pid}",
                f"use it: mirror-engine emulator env {quoted}; or stop it: mirror-engine emulator stop {quoted}",
            ) from None
        self._state.info.unlink(missing_ok=True)  # of an emulator that was killed
        write_effective(self._state.options, self.plan.config)

    def _default_item(self, items: Items) -> Item:
        """The named mirrored database, the first one, or a new one."""
        plan = self.plan
        workspace = plan.workspace or next((workspace.name for workspace in items.workspaces()), WORKSPACE)
        present = items.workspace(workspace)
        first = next((item.name for item in items.items(present)), ITEM) if present else ITEM
        try:
            return items.ensure(workspace, plan.item or first)
        except FabricApiError as error:
            help_text = "Use a valid folder name that no file, link or name in another case already has."
            raise UsageError(f"--workspace, --item: {error}", help_text) from None

    def _listen(self, stack: ExitStack, lake: Lake) -> ConnectionInfo:
        plan, listening, item = self.plan, self.plan.listening, self.item
        authority = create_authority(self._state.tls, listening.address, listening.names)
        page = Web(lambda: self._engines.shown(), plan.options.clock)  # noqa: PLW0108 - of the pool that is there then
        stack.callback(page.close)
        self._services = services = Services(lake, self._engines, page)
        fault_api = FaultApi(services, plan.options) if plan.has_fault_api else None
        log = self.on_error, page.metrics.count_request, self.on_rejected
        gate = Gate(fault_api or services, listening, services.is_public, *log)
        listeners = Listeners(gate, authority.context(), listening, self.on_rejected)
        listeners.start()
        stack.callback(listeners.stop)
        install_az(self._state.programs)
        http = f"http://{listening.reached_at if listening.is_single_port else LOOPBACK}:{listeners.http_port}"
        environment = self._environment(f"http://{listening.reached_at}:{listeners.proxy_port}", authority, item)
        if fault_api:
            environment["MIRROR_ENGINE_FAULT_API"] = f"{http}{FAULT_API_PATH}"
            environment["MIRROR_ENGINE_FAULT_API_TOKEN"] = fault_api.token
        return ConnectionInfo(
            store=str(plan.store.absolute()),
            pid=os.getpid(),
            workspace=item.workspace.name,
            workspace_id=item.workspace.id,
            item=item.name,
            item_id=item.id,
            environment=environment,
            https=f"https://{listening.reached_at}:{listeners.https_port}",
            http=http,
            page=f"{http}/",
            has_engines=plan.has_engines,
            landing_zone=f"https://onelake.{DFS}/{item.workspace.id}/{item.id}/{ZONE}",
        )

    def _environment(self, proxy: str, authority: Authority, item: Item) -> dict[str, str]:
        """The variables of a publisher; some programs read only one spelling, and one takes precedence."""
        at = urlsplit(proxy)
        java = f"-Dhttps.proxyHost={at.hostname} -Dhttps.proxyPort={at.port} -Djavax.net.ssl.trustStore="
        return {
            **dict.fromkeys(("HTTPS_PROXY", "https_proxy"), proxy),
            **dict.fromkeys(("NO_PROXY", "no_proxy"), NO_PROXY),
            **dict.fromkeys(CA_VARIABLES, str(authority.bundle)),
            "NODE_EXTRA_CA_CERTS": str(authority.ca),
            "NODE_USE_ENV_PROXY": "1",  # Node 22.21 and 24: fetch, too
            "MIRROR_ENGINE_JAVA_OPTIONS": java + shlex.quote(str(authority.java)),  # JVMs read quotes as a shell
            "AZURE_TENANT_ID": TENANT,
            "AZURE_CLIENT_ID": CLIENT,
            "AZURE_CLIENT_SECRET": self.plan.listening.token or ANY_SECRET,
            "FABRIC_WORKSPACE_ID": item.workspace.id,
            "FABRIC_MIRRORED_DATABASE_ID": item.id,
            "PATH": str(self._state.programs),
        }
