"""A STORE that is served: its endpoint and the engines behind it, from the first request to the last."""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from mirror_engine.config import Config
from mirror_engine.errors import RootLocked, UsageError
from mirror_engine.landing_zone.layout import ZONE
from mirror_engine.onelake import background as az
from mirror_engine.onelake.app import OneLake, Services
from mirror_engine.onelake.authority import Renewal, authority
from mirror_engine.onelake.background import ConnectionInfo, Listening, Private, control_variables, variables
from mirror_engine.onelake.engine_pool import EnginePool, ShownStore, unfinished
from mirror_engine.onelake.entra import entra_app
from mirror_engine.onelake.fabric_rest import FabricApi, fabric_app
from mirror_engine.onelake.faults import Control, EmulatorOptions, PlayedFabric
from mirror_engine.onelake.items import Items, NameInUse, NameUnusable, NullReplication
from mirror_engine.onelake.lake import Lake
from mirror_engine.onelake.network import Endpoint, Ports
from mirror_engine.onelake.page.web import Counted, Web, WebServer
from mirror_engine.onelake.store import WritableLocalStorage

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from starlette.types import ASGIApp
    from typing_extensions import Self

    from mirror_engine.events import Event
    from mirror_engine.monitoring.wait_conditions import UnmetCondition
    from mirror_engine.onelake.error_responses import Refused
    from mirror_engine.onelake.items import Item, MirroredDatabases
    from mirror_engine.tables.base import DeltaWriter


def application(lake: Lake, databases: MirroredDatabases, secret: str | None) -> Services:
    """All services, told apart by the host that a request names.

    Args:
        lake: what is stored.
        databases: who mirrors it.
        secret: which Entra asks for; None where any passes.
    """
    lake.switches.poll = databases.poll
    fabric = PlayedFabric(fabric_app(FabricApi(lake.items, databases)), lake.switches)
    return Services(OneLake(lake), entra_app(secret), fabric)


MAX_LOOK_SECONDS = 0.5  # whoever asks whether a STORE is served holds the lock for a moment, too
WORKSPACE, ITEM = "Workspace", "Mirror"  # made in a STORE that has none, where nobody named others


@dataclass(frozen=True)
class ServerPlan:
    """What is to be served, and how.

    Attributes:
        store: the folder of workspaces and items; made if need be.
        workspace, item: which are made where missing, and told to the publisher; None for the first there is.
        has_engines: whether what is published is applied, too.
        listening: where.
        switches: how it differs from the real service.
        config: of the engines.
        new_writer: door 2 of an item; Spark where it gives None.
        has_control: whether faults may be switched while it runs.
        resumes: whether a stopped item that starts again keeps its tables, which Fabric rebuilds.
    """

    store: Path
    workspace: str | None = None
    item: str | None = None
    has_engines: bool = True
    listening: Listening = field(default_factory=Listening)
    switches: EmulatorOptions = field(default_factory=EmulatorOptions)
    config: Config = field(default_factory=Config)
    new_writer: Callable[[Item], DeltaWriter | None] = lambda _: None
    has_control: bool = False
    resumes: bool = False


class Server:
    """While entered, serves a STORE.

    Args:
        plan: what and how.
        tell: is told of what goes wrong, in words without anything a client sent.
        tell_event: gets every event of the engines, with the item it is of.
        tell_refused: gets every request that was refused.

    Raises:
        RootLocked: on entering, where another process serves this STORE.
        UsageError: on entering, where the store is no folder, a name cannot be a folder's, or a port is taken.
    """

    def __init__(
        self,
        plan: ServerPlan,
        tell: Callable[[str], None],
        tell_event: Callable[[Item, Event], None] = lambda *_: None,
        tell_refused: Callable[[Refused], None] = lambda _: None,
    ) -> None:
        self._plan = plan
        self._tell = tell
        self._tell_event = tell_event
        self._tell_refused = tell_refused
        self._private = Private.of(plan.store.absolute())

    def __enter__(self) -> Self:
        with ExitStack() as entered:
            self._hold(entered)
            storage = WritableLocalStorage(self._plan.store.absolute())
            items = Items(storage)
            item = _wanted(items, self._plan)
            fleet = self._engines = self._fleet(items)
            databases = self._databases(entered, fleet)
            web = Web(ShownStore(items, databases, fleet.mirror))
            lake = Lake(storage, items, self._plan.switches, tell=lambda lost: self._tell(lost.words))
            services = application(lake, databases, self._plan.listening.token)
            endpoint = self._endpoint(entered, Counted(services, web.metrics.requests))
            page = self._page(entered, web)
            self.card = self._card(endpoint, page, item)
            _put(self._private.card, self.card)
            entered.callback(self._private.card.unlink, missing_ok=True)
            self._entered = entered.pop_all()
        return self

    def unfinished(self) -> list[tuple[Item, UnmetCondition]]:
        """What keeps the tables from holding all that has landed; nothing where no engines are to apply it."""
        return unfinished(self._engines) if self._plan.has_engines else []

    def __exit__(self, *_: object) -> None:
        self._entered.close()

    def _hold(self, entered: ExitStack) -> None:
        """The STORE, for one process at a time."""
        _check_no_root(self._plan.store)
        try:
            self._private.make()
        except OSError as error:
            raise UsageError(f"{error.filename}: {error.strerror}", "Name a folder that you may write to.") from None
        try:
            entered.enter_context(FileLock(self._private.lock, timeout=MAX_LOOK_SECONDS))
        except Timeout:
            raise RootLocked(
                f"{self._plan.store}: is being served already",
                "Use that one: mirror-engine serve STORE --print-env; or end it: mirror-engine serve STORE --stop.",
            ) from None
        self._private.card.unlink(missing_ok=True)  # of a server that was killed

    def _fleet(self, items: Items) -> EnginePool:
        plan, store = self._plan, self._plan.store.absolute()
        return EnginePool(
            store,
            items,
            plan.config,
            tell=self._tell_event,
            tell_end=self._tell,
            new_writer=plan.new_writer,
            late=plan.switches.late,
            resumes=plan.resumes,
        )

    def _databases(self, entered: ExitStack, fleet: EnginePool) -> MirroredDatabases:
        """Engines for all items, at work until the server ends; or none."""
        if not self._plan.has_engines:
            return NullReplication()
        entered.callback(fleet.end)
        fleet.begin()
        return fleet

    def _endpoint(self, entered: ExitStack, services: ASGIApp) -> Endpoint:
        listening = self._plan.listening
        self._authority = authority(self._private.tls, listening.address)
        tls = self._authority.context()
        self._control = Control(services, self._plan.switches) if self._plan.has_control else None
        endpoint = Endpoint(
            self._control or services,
            tls,
            listen=listening.address,
            ports=Ports.from_first(listening.port),
            secret=listening.token,
            tell=self._tell,
            tell_refused=self._tell_refused,
        )
        endpoint.start()
        entered.callback(endpoint.stop)
        entered.enter_context(Renewal(self._private.tls, listening.address, tls, self._tell))
        return endpoint

    def _page(self, entered: ExitStack, web: Web) -> WebServer:
        listening = self._plan.listening
        page = WebServer(web, port=listening.page_port, secret=listening.token, tell=self._tell)
        page.start()
        entered.callback(page.stop)
        return page

    def _card(self, endpoint: Endpoint, page: WebServer, item: Item) -> ConnectionInfo:
        az.install(self._private.programs)
        listening = self._plan.listening
        proxy = f"http://{listening.reached_at}:{endpoint.proxy_port}"
        http = f"http://127.0.0.1:{endpoint.http_port}"
        told = variables(proxy, self._authority, self._private.programs, item, listening.token)
        if self._control:
            told |= control_variables(http, self._control.token)
        return ConnectionInfo(
            store=str(self._plan.store.absolute()),
            pid=os.getpid(),
            workspace=item.workspace.name,
            workspace_id=item.workspace.id,
            item=item.name,
            item_id=item.id,
            environment=told,
            https=f"https://{listening.reached_at}:{endpoint.https_port}",
            http=http,
            page=f"http://127.0.0.1:{page.port}/",
        )


def _check_no_root(store: Path) -> None:
    """A ROOT, or the workspace around it, would be served as if its `Files` were an item, and written into."""
    zones = [*store.glob(ZONE), *store.glob(f"*/{ZONE}")]
    if zones:
        raise UsageError(
            f"{store}: holds {zones[0].relative_to(store)}, but a STORE holds WORKSPACE/ITEM/{ZONE}",
            "Name the folder that the workspaces lie in.",
        )


def _wanted(items: Items, plan: ServerPlan) -> Item:
    """The item that is told to the publisher: the one that was named, or the first, or a new one."""
    workspace = plan.workspace or next((each.name for each in items.workspaces()), WORKSPACE)
    known = items.workspace(workspace)
    first = next((each.name for each in items.items(known)), ITEM) if known else ITEM
    try:
        return items.ensure(workspace, plan.item or first)
    except NameInUse as error:
        raise UsageError(
            f"--workspace, --item: a file, a link or another spelling of {error} stands in its way",
            "Take the name as it is spelled there, or another one.",
        ) from None
    except NameUnusable as error:
        raise UsageError(f"--workspace, --item: {error}", "Take a name that a folder may have.") from None


def _put(path: Path, card: ConnectionInfo) -> None:
    """Write the card in one step, for its owner alone: a token may stand in it."""
    descriptor, name = tempfile.mkstemp(dir=path.parent)  # made with mode 0600
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(card.to_json(), file)
    os.replace(name, path)  # noqa: PTH105 - the name is text
