"""Which service of the emulator answers a request: by `Host`, and on one port by path, too."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.routing import Match

from mirror_engine.errors import StorageUnavailable
from mirror_engine.onelake import blob, dfs
from mirror_engine.onelake.entra import entra_app
from mirror_engine.onelake.errors import ConnectionReset, StorageApiError, StorageErrorCode, reset_connection
from mirror_engine.onelake.fabric_rest import BASE, fabric_app
from mirror_engine.onelake.faults import hold, with_fabric_faults, with_faults
from mirror_engine.onelake.hosts import FABRIC, LOGINS, host_of, is_served
from mirror_engine.onelake.middleware import observed
from mirror_engine.onelake.requests import LakeRequest, Operation, error_response, is_dfs, response_headers

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from mirror_engine.onelake.engine_pool import EnginePool
    from mirror_engine.onelake.lake import Lake
    from mirror_engine.onelake.page.web import Web


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
        operation = await with_faults(lake, request, operation_of(request))
        response = await operation(lake, request)
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


def _refusal(code: StorageErrorCode, message: str = "") -> Callable[..., Response]:
    def refuse(*_: object) -> Response:
        raise StorageApiError(code, message)

    return refuse


_ANY = "PUT PATCH POST"  # Hadoop's client sends actions by PUT, too
_UNSUPPORTED = _refusal(StorageErrorCode.UnsupportedQueryParameter)
_FABRIC_S = _refusal(StorageErrorCode.ArtifactIdMissing)  # only Fabric creates and deletes workspaces
_UNMARKED = _refusal(StorageErrorCode.MissingRequiredHeader, "Neither resource nor x-ms-blob-type is there.")
_OPERATIONS = (  # the first counts
    Operation("POST", "?comp=batch", blob.batch, "batch", "bytes"),
    Operation("POST", "?comp=userdelegationkey", blob.user_delegation_key, takes="bytes"),
    Operation("POST", "x-ms-lease-action", dfs.lease, "lease"),
    Operation("PUT", "x-ms-rename-source", dfs.rename, "rename"),
    Operation("PUT", "?resource", dfs.create, "create"),
    Operation(_ANY, "?action=append", dfs.append, "append", "staged"),
    Operation(_ANY, "?action=flush", dfs.flush, "flush"),
    Operation(_ANY, "?action=setproperties", dfs.set_properties, "metadata"),
    Operation(_ANY, "?action", _UNSUPPORTED),
    Operation("PUT DELETE", "?restype=container", _FABRIC_S),
    Operation("PUT DELETE", "?restype=account", _FABRIC_S),
    Operation("DELETE", "?resource=filesystem", _FABRIC_S),
    Operation("PUT", "?comp=block", blob.put_block, "block", "staged"),
    Operation("PUT", "?comp=blocklist", blob.put_block_list, "blocklist", "bytes"),
    Operation("PUT", "?comp=metadata", dfs.set_properties, "metadata"),
    Operation("PUT", "?comp=properties", dfs.set_properties, "metadata"),
    Operation("PUT", "?comp=lease", dfs.lease, "lease"),
    Operation("PUT DELETE", "?comp", _UNSUPPORTED),
    Operation("PUT", "x-ms-copy-source", blob.copy, "copy"),
    Operation("PUT", "x-ms-blob-type", blob.put, "put", "staged"),
    Operation("PUT", "", _UNMARKED),
    Operation("PATCH", "", _UNSUPPORTED),
    Operation("DELETE", "", blob.delete, "delete"),
    Operation("GET", "?resource=filesystem", dfs.list_paths, "list"),
    Operation("GET HEAD", "?restype=account", blob.account_properties),
    Operation("GET", "?comp=list", blob.list_blobs, "list"),
    Operation("GET", "?comp", _UNSUPPORTED),  # no block lists, no tags
    Operation("GET HEAD", "?restype=container", dfs.get_filesystem_properties),
    Operation("HEAD", "?resource=filesystem", dfs.get_filesystem_properties),
    Operation("GET", "", dfs.read, "read"),
    Operation("HEAD", "", dfs.get_properties, "head"),
)


def operation_of(request: LakeRequest) -> Operation:
    """The operation that a request asks for; UnsupportedHttpVerb where there is none."""
    query = request.query.items()
    marks = {
        "",
        *request.headers,
        *(f"?{name}" for name, _ in query),
        *(f"?{name}={text.lower()}" for name, text in query),
    }
    for operation in _OPERATIONS:
        if request.method in operation.methods.split() and operation.mark in marks:
            return operation
    raise StorageApiError(StorageErrorCode.UnsupportedHttpVerb)


_STORAGE_QUERIES = frozenset({"resource", "restype", "comp"})


class Services:
    """All services of an emulator as one ASGI application, by `Host`; at other names OneLake.

    Args:
        lake: the storage.
        engines: of its mirrored databases.
        page: where it shares the port: at names that are not production's, a path of Entra's, Fabric's API's or the
            page's own selects them.
    """

    def __init__(self, lake: Lake, engines: EnginePool, page: Web | None = None) -> None:
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
