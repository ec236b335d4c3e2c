"""The emulator: a STORE's listeners, page and engines, from the first request to the last."""

from __future__ import annotations

import json
import os
import shlex
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from filelock import FileLock, Timeout

from mirror_engine.config import Config
from mirror_engine.errors import RootLocked, UsageError
from mirror_engine.landing_zone.diagnostics import printable
from mirror_engine.landing_zone.layout import ZONE
from mirror_engine.onelake.app import onelake_app
from mirror_engine.onelake.authority import create_authority
from mirror_engine.onelake.connection import CA_VARIABLES, ConnectionInfo, Listening, StateFolder, write_private
from mirror_engine.onelake.engine_pool import EnginePool
from mirror_engine.onelake.entra import entra_app, install_az
from mirror_engine.onelake.fabric_rest import fabric_app
from mirror_engine.onelake.faults import FAULT_API_PATH, FaultApi, hold, with_fabric_faults
from mirror_engine.onelake.hosts import FABRIC, LOGINS, host_of
from mirror_engine.onelake.items import Items, NameInUse, NameUnusable
from mirror_engine.onelake.lake import Lake
from mirror_engine.onelake.network import Listeners
from mirror_engine.onelake.options import EmulatorOptions
from mirror_engine.onelake.page.web import Web
from mirror_engine.onelake.store import LocalStore
from mirror_engine.storage.roots import check_place

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from starlette.types import ASGIApp, Receive, Scope, Send
    from typing_extensions import Self

    from mirror_engine.events import Event
    from mirror_engine.monitoring.wait_conditions import UnmetCondition
    from mirror_engine.onelake.authority import Authority
    from mirror_engine.onelake.items import Item
    from mirror_engine.onelake.middleware import RejectedRequest
    from mirror_engine.tables.base import DeltaWriter

LOCK_SECONDS = 0.5  # `connection.running` holds the lock for a moment, too
WORKSPACE, ITEM = "Workspace", "Mirror"  # created in an empty STORE
TENANT = "6d697272-6f72-4e67-a96e-652d74656e74"  # the Entra stub accepts any
CLIENT = "6d697272-6f72-4e67-a96e-632d6c69656e"
ANY_SECRET = "x"  # noqa: S105 - any will do
NO_PROXY = "localhost,127.0.0.1"  # older clients fail on ::1


def services(lake: Lake, engines: EnginePool, secret: str | None) -> ASGIApp:
    """All services of an emulator, by `Host`; on loopback OneLake.

    `secret` is the only client secret that Entra accepts, None for any.
    """
    lake.options.poll = engines.poll
    lake.options.hold = partial(hold, engines)
    for rule in lake.options.faults:
        lake.options.apply(rule)
    onelake, entra = onelake_app(lake), entra_app(secret)
    fabric = fabric_app(engines, lake.options.long_running)
    others: dict[str | None, ASGIApp] = {FABRIC: with_fabric_faults(fabric, lake.options)}
    others |= dict.fromkeys(LOGINS, entra)

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await others.get(host_of(scope["headers"]), onelake)(scope, receive, send)

    return answer


@dataclass(frozen=True)
class ServerPlan:
    """What an emulator serves, and how.

    Attributes:
        store: the folder of workspaces and items; created where missing.
        workspace, item: the default mirrored database, created where missing; None for the first.
        has_engines: whether landed files are applied.
        listening: where.
        options: how it differs from OneLake.
        config: of the engines.
        new_writer: the Delta writer of an item; Spark's where it gives None.
        has_fault_api: whether faults can be switched while it runs.
        resumes: whether a stopped item that starts again keeps its tables, which Fabric rebuilds.
    """

    store: Path
    workspace: str | None = None
    item: str | None = None
    has_engines: bool = True
    listening: Listening = field(default_factory=Listening)
    options: EmulatorOptions = field(default_factory=EmulatorOptions)
    config: Config = field(default_factory=Config)
    new_writer: Callable[[Item], DeltaWriter | None] = lambda _: None
    has_fault_api: bool = False
    resumes: bool = False


@dataclass(eq=False)
class Server:
    """A running emulator while entered.

    Attributes:
        plan: what and how.
        on_error: gets messages about failures, without request content.
        on_event: gets every event of the engines, with its item.
        on_rejected: gets every rejected request.
        connection: how it is reached, while entered.

    Raises:
        RootLocked: on entering, another process serves this STORE.
        UsageError: on entering, the store is not a folder or is one of a ROOT, a name cannot be a folder's, or a port
            is in use.
    """

    plan: ServerPlan
    on_error: Callable[[str], None]
    on_event: Callable[[Item, Event], None] = lambda *_: None
    on_rejected: Callable[[RejectedRequest], None] = lambda _: None

    def __enter__(self) -> Self:
        plan, store = self.plan, self.plan.store.absolute()
        self._state = StateFolder(store)
        with ExitStack() as stack:
            self._lock_store(stack)
            storage = LocalStore(store)
            items = Items(storage, allow_bare_names=plan.options.allow_bare_names)
            item = self._default_item(items)
            self._engines = EnginePool(
                store,
                items,
                plan.config,
                has_engines=plan.has_engines,
                on_event=self.on_event,
                on_failure=self.on_error,
                new_writer=plan.new_writer,
                delays=plan.options.delays,
                clock=plan.options.clock,
                resumes=plan.resumes,
            )
            if plan.has_engines:
                stack.callback(self._engines.end)
                self._engines.start_all()
            lake = Lake(storage, items, plan.options, on_lost_file=self._report_lost_file)
            self.connection = self._listen(stack, services(lake, self._engines, plan.listening.token), item)
            write_private(self._state.info, json.dumps(self.connection.to_json()).encode())
            stack.callback(self._state.info.unlink, missing_ok=True)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def advance(self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Let time pass for all that waits, as `Mirror.advance`: in engines, faults, uploads; from any thread."""
        self.plan.options.clock.advance(days=days, hours=hours, minutes=minutes, seconds=seconds)

    def unfinished(self) -> list[tuple[Item, UnmetCondition]]:
        """Tables that have not caught up, and engines that ended; nothing without engines."""
        items = self._engines.items.all()
        return [(item, condition) for item in items for condition in self._engines.unmet_conditions(item)]

    def _report_lost_file(self, path: str) -> None:
        self.on_error(f"{printable(path)}: a rename without a condition replaced this file; its content is lost")

    def _lock_store(self, stack: ExitStack) -> None:
        store = self.plan.store
        check_place(store)
        zones = [*store.glob(ZONE), *store.glob(f"*/{ZONE}")]
        if zones:  # a ROOT, or a workspace: its `Files` would be served as an item
            raise UsageError(
                f"{store}: contains {zones[0].relative_to(store)}, but a STORE contains WORKSPACE/ITEM/{ZONE}",
                "Use the folder that contains the workspaces.",
            )
        try:
            self._state.create()
        except OSError as error:
            raise UsageError(f"{error.filename}: {error.strerror}", "Use a folder that you can write to.") from None
        try:
            stack.enter_context(FileLock(self._state.lock, timeout=LOCK_SECONDS))
        except Timeout:
            info = self._state.read_info()
            pid = f" (pid {info.pid})" if info else ""
            raise RootLocked(
                f"an emulator is already running for {store}{pid}",
                f"Use it: mirror-engine emulator env {store}; or stop it: mirror-engine emulator stop {store}.",
            ) from None
        self._state.info.unlink(missing_ok=True)  # of an emulator that was killed

    def _default_item(self, items: Items) -> Item:
        """The named mirrored database, the first one, or a new one."""
        plan = self.plan
        workspace = plan.workspace or next((workspace.name for workspace in items.workspaces()), WORKSPACE)
        present = items.workspace(workspace)
        first = next((item.name for item in items.items(present)), ITEM) if present else ITEM
        try:
            return items.ensure(workspace, plan.item or first)
        except NameInUse as error:
            raise UsageError(
                f"--workspace, --item: {error} exists as a file, a link or in another spelling",
                "Use the existing spelling, or another name.",
            ) from None
        except NameUnusable as error:
            raise UsageError(f"--workspace, --item: {error}", "Use a name that a folder can have.") from None

    def _listen(self, stack: ExitStack, application: ASGIApp, item: Item) -> ConnectionInfo:
        plan, listening = self.plan, self.plan.listening
        authority = create_authority(self._state.tls, listening.address)
        fault_api = FaultApi(application, plan.options) if plan.has_fault_api else None
        page = Web(
            self._engines.shown,
            plan.options.clock,
            port=listening.page_port,
            secret=listening.token,
            on_error=self.on_error,
        )
        listeners = Listeners(
            fault_api or application,
            authority.context(),
            listen=listening.address,
            port=listening.port,
            secret=listening.token,
            pass_through=listening.pass_through,
            on_error=self.on_error,
            on_answered=page.metrics.count_request,
            on_rejected=self.on_rejected,
        )
        for server in (listeners, page):
            server.start()
            stack.callback(server.stop)
        install_az(self._state.programs)
        http = f"http://127.0.0.1:{listeners.http_port}"
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
            page=f"http://127.0.0.1:{page.port}/",
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
