"""The emulator: its services, the operations of storage, and the server that starts them with engines and page."""

from __future__ import annotations

import json
import os
import shlex
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple
from urllib.parse import urlsplit

from filelock import FileLock, Timeout
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.routing import Match

from mirror_engine.errors import RootLocked, StorageUnavailable, UsageError
from mirror_engine.landing_zone.diagnostics import printable
from mirror_engine.onelake import blob, dfs
from mirror_engine.onelake.connection import CA_VARIABLES, ConnectionInfo, StateFolder, write_private
from mirror_engine.onelake.engine_pool import EnginePool
from mirror_engine.onelake.entra import entra_app, install_az
from mirror_engine.onelake.errors import (
    ConnectionReset,
    FabricApiError,
    StorageApiError,
    StorageErrorCode,
    reset_connection,
)
from mirror_engine.onelake.fabric_rest import BASE, fabric_app
from mirror_engine.onelake.faults import FAULT_API_PATH, FaultApi, hold, with_fabric_faults, with_faults
from mirror_engine.onelake.hosts import FABRIC, LOGINS, host_of, is_served
from mirror_engine.onelake.items import Items
from mirror_engine.onelake.lake import Lake
from mirror_engine.onelake.middleware import Gate
from mirror_engine.onelake.network import Listeners, create_authority
from mirror_engine.onelake.page.web import Web
from mirror_engine.onelake.requests import LakeRequest, error_response, is_dfs, read_bounded, response_headers
from mirror_engine.onelake.store import LocalStore
from mirror_engine.storage.roots import check_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.responses import Response
    from starlette.types import ASGIApp, Receive, Scope, Send
    from typing_extensions import Self

    from mirror_engine.events import Event
    from mirror_engine.monitoring.wait_conditions import UnmetCondition
    from mirror_engine.onelake.items import Item
    from mirror_engine.onelake.middleware import RejectedRequest
    from mirror_engine.onelake.network import Authority
    from mirror_engine.onelake.options import ServerPlan


def onelake_app(lake: Lake) -> ASGIApp:
    """The ASGI application for OneLake: both dialects over one lake."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        request = LakeRequest.of(Request(scope, receive))
        try:
            response = await _response(lake, request)
        except ClientDisconnect:
            return
        except ConnectionReset:
            await reset_connection(scope, receive)
            return
        await response(scope, receive, send)

    return answer


async def _response(lake: Lake, request: LakeRequest) -> Response:
    try:
        operation = operation_of(request)
        handler = await with_faults(lake, request, operation.__call__, operation.name)
        response = await handler(lake, request)
    except StorageApiError as error:
        return _refused(request, error)
    except StorageUnavailable as problem:
        return _refused(request, StorageApiError(StorageErrorCode.ServerBusy, str(problem)))
    for name, value in response_headers(request).items():
        response.headers.setdefault(name, value)
    return response


def _refused(request: LakeRequest, error: StorageApiError) -> Response:
    code = error.code.dfs_code if is_dfs(request) else error.code.blob_code
    return error_response(request, error.code.status, code, f"{error}\nRequestId:{request.id}", error.headers)


class _Operation(NamedTuple):
    """Which requests ask for it, and what answers them on a worker thread."""

    methods: str  # with a blank between them
    marks: str  # headers, query parameters, or some with their values, of which it has one; "" for any
    run: Callable[..., Response]  # gets lake, request, and the body where it takes one
    name: str = ""  # in fault rules; "" where none names it
    takes: Literal["", "bytes", "staged"] = ""  # the form of the body: none, all its bytes, or a staged file

    async def __call__(self, lake: Lake, request: LakeRequest) -> Response:
        if not self.takes:
            return await run_in_threadpool(self.run, lake, request)
        if self.takes == "bytes":
            return await run_in_threadpool(self.run, lake, request, await read_bounded(request.body))
        with await run_in_threadpool(lake.receive) as body:
            async for chunk in request.body:
                await run_in_threadpool(body.write, chunk)
            return await run_in_threadpool(self.run, lake, request, body)


def _refusal(code: StorageErrorCode, message: str = "") -> Callable[..., Response]:
    def refuse(*_: object) -> Response:
        raise StorageApiError(code, message)

    return refuse


_ANY = "PUT PATCH POST"  # Hadoop's client sends actions by PUT, too
_UNSUPPORTED = _refusal(StorageErrorCode.UnsupportedQueryParameter)
_FABRIC_S = _refusal(StorageErrorCode.ArtifactIdMissing)  # only Fabric creates and deletes workspaces
_UNMARKED = _refusal(StorageErrorCode.MissingRequiredHeader, "Neither resource nor x-ms-blob-type is there.")
_OPERATIONS = (  # the first counts
    _Operation("POST", "?comp=batch", blob.batch, "batch", "bytes"),
    _Operation("POST", "?comp=userdelegationkey", blob.user_delegation_key, takes="bytes"),
    _Operation("POST", "x-ms-lease-action", dfs.lease, "lease"),
    _Operation("PUT", "x-ms-rename-source", dfs.rename, "rename"),
    _Operation("PUT", "?resource", dfs.create, "create"),
    _Operation(_ANY, "?action=append", dfs.append, "append", "staged"),
    _Operation(_ANY, "?action=flush", dfs.flush, "flush"),
    _Operation(_ANY, "?action=setproperties", dfs.set_properties, "metadata"),
    _Operation(_ANY, "?action", _UNSUPPORTED),
    _Operation("PUT DELETE", "?restype=container ?restype=account", _FABRIC_S),
    _Operation("DELETE", "?resource=filesystem", _FABRIC_S),
    _Operation("PUT", "?comp=block", blob.put_block, "block", "staged"),
    _Operation("PUT", "?comp=blocklist", blob.put_block_list, "blocklist", "bytes"),
    _Operation("PUT", "?comp=metadata ?comp=properties", dfs.set_properties, "metadata"),
    _Operation("PUT", "?comp=lease", dfs.lease, "lease"),
    _Operation("PUT DELETE", "?comp", _UNSUPPORTED),
    _Operation("PUT", "x-ms-copy-source", blob.copy, "copy"),
    _Operation("PUT", "x-ms-blob-type", blob.put, "put", "staged"),
    _Operation("PUT", "", _UNMARKED),
    _Operation("PATCH", "", _UNSUPPORTED),
    _Operation("DELETE", "", blob.delete, "delete"),
    _Operation("GET", "?resource=filesystem", dfs.list_paths, "list"),
    _Operation("GET HEAD", "?restype=account", blob.account_properties),
    _Operation("GET", "?comp=list", blob.list_blobs, "list"),
    _Operation("GET", "?comp", _UNSUPPORTED),  # no block lists, no tags
    _Operation("GET HEAD", "?restype=container ?resource=filesystem", dfs.get_filesystem_properties),
    _Operation("GET", "", dfs.read, "read"),
    _Operation("HEAD", "", dfs.get_properties, "head"),
)


def operation_of(request: LakeRequest) -> _Operation:
    """The operation that a request asks for; UnsupportedHttpVerb where there is none."""
    values = [f"?{name}={text.lower()}" for name, text in request.query.items()]
    marks = {*request.headers, *(f"?{name}" for name in request.query), *values}
    for operation in _OPERATIONS:
        wanted = operation.marks.split()
        if request.method in operation.methods.split() and (not wanted or not marks.isdisjoint(wanted)):
            return operation
    raise StorageApiError(StorageErrorCode.UnsupportedHttpVerb)


class Services:
    """All services of an emulator as one ASGI application, by `Host`; at other names OneLake.

    Args:
        lake: the storage.
        engines: of its mirrored databases.
        page: at names that are not production's, its paths select it, on http alone but for a single port; there
            paths select Entra and Fabric's API, too.
    """

    def __init__(self, lake: Lake, engines: EnginePool, page: Web | None = None) -> None:
        self._is_single_port = engines.plan.listening.is_single_port
        self._entra = entra_app(engines.plan.listening.token)
        self._page = page
        self.serve(lake, engines)

    def serve(self, lake: Lake, engines: EnginePool) -> None:
        """Answer for this storage and these engines from now on."""
        lake.options.poll = engines.poll
        lake.options.hold = partial(hold, engines)
        for rule in lake.options.faults:
            lake.options.apply(rule)
        self._onelake = onelake_app(lake)
        self._fabric = with_fabric_faults(fabric_app(engines), lake.options)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        await self._selected(scope)(scope, receive, send)

    def is_public(self, scope: Scope) -> bool:
        """Whether a request is Entra's, which gives tokens and so needs none."""
        return self._selected(scope) is self._entra

    def _selected(self, scope: Scope) -> ASGIApp:
        """OneLake's paths begin with a workspace: one named as a path of others is reached by its GUID."""
        host, path = host_of(scope["headers"]) or "", scope["path"]
        if host in LOGINS:
            return self._entra
        if host == FABRIC:
            return self._fabric
        if is_served(host):
            return self._onelake
        if self._is_single_port and any(route.matches(scope)[0] is not Match.NONE for route in self._entra.routes):
            return self._entra
        if self._is_single_port and path.startswith(f"{BASE}/"):
            return self._fabric
        page = self._page if self._is_single_port or scope["scheme"] == "http" else None
        return page.app if page and page.answers(Request(scope)) else self._onelake


LOCK_SECONDS = 0.5  # `connection.running` holds the lock for a moment, too
WORKSPACE, ITEM = "Workspace", "Mirror"  # created in an empty STORE
TENANT = "6d697272-6f72-4e67-a96e-652d74656e74"  # the Entra stub accepts any
CLIENT = "6d697272-6f72-4e67-a96e-632d6c69656e"
ANY_SECRET = "x"  # noqa: S105 - any will do
NO_PROXY = "localhost,127.0.0.1"  # older clients fail on ::1


@dataclass(eq=False)
class Server:
    """A running emulator while entered.

    Attributes:
        connection: how it is reached, while entered.
        item: the default mirrored database, while entered.

    Raises:
        RootLocked: on entering, another process serves this STORE.
        UsageError: on entering, the store is not a folder or is one of a ROOT, a name cannot be a folder's, or a port
            is in use.
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
        """Let the default item's engine scan its landing zone, and wait for it; False where none runs, or it waits."""
        return self._engines.poll(self.item)

    def unfinished(self) -> list[tuple[Item, UnmetCondition]]:
        """Tables that have not caught up, and engines that ended; nothing without engines."""
        items = self._engines.items.all()
        return [(item, condition) for item in items for condition in self._engines.unmet_conditions(item)]

    def _open(self) -> Lake:
        """The STORE as it is, with its engines started."""
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
        except FabricApiError as error:
            help_text = (
                "Use a name that a folder can have, and that is no file, no link and in no other spelling there."
            )
            raise UsageError(f"--workspace, --item: {error}", help_text) from None

    def _listen(self, stack: ExitStack, lake: Lake) -> ConnectionInfo:
        plan, listening, item = self.plan, self.plan.listening, self.item
        authority = create_authority(self._state.tls, listening.address, listening.names)
        page = Web(
            lambda: self._engines.shown(),  # noqa: PLW0108 - of the pool that is there then
            plan.options.clock,
            listening=listening,
            connection=lambda: getattr(self, "connection", None),
        )
        stack.callback(page.close)
        self._services = services = Services(lake, self._engines, page)
        fault_api = FaultApi(services, plan.options) if plan.has_fault_api else None
        log = self.on_error, page.metrics.count_request, self.on_rejected
        gate = Gate(fault_api or services, listening, services.is_public, *log)
        listeners = Listeners(gate, authority.context(), listening, self.on_rejected)
        listeners.start()
        stack.callback(listeners.stop)
        stack.callback(page.end_streams)
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
            page=f"{http}/",
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
