"""One ASGI application for all services: `Host` selects the service, parameters and headers the operation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect, Request

from mirror_engine.errors import StorageUnavailable
from mirror_engine.onelake import blob, dfs
from mirror_engine.onelake.errors import ConnectionReset, StorageApiError, StorageErrorCode, reset_connection
from mirror_engine.onelake.fault_injection import with_faults
from mirror_engine.onelake.hosts import FABRIC, LOGINS, host_of
from mirror_engine.onelake.requests import Dialect, LakeRequest, dialect_of, response_headers

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import ASGIApp, Receive, Scope, Send

    from mirror_engine.onelake.fault_injection import Operation
    from mirror_engine.onelake.lake import Lake


@dataclass(frozen=True)
class Services:
    """Hand each request to the service that its `Host` names; on loopback to OneLake."""

    onelake: ASGIApp
    entra: ASGIApp
    fabric: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        host = host_of(scope["headers"])
        app = self.entra if host in LOGINS else self.fabric if host == FABRIC else self.onelake
        await app(scope, receive, send)


class OneLake:
    """ASGI application: both dialects over one lake."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = LakeRequest.of(Request(scope, receive))
        try:
            response = await self._response(request, dialect_of(request))
        except ClientDisconnect:
            return
        except ConnectionReset:
            await reset_connection(scope, receive)
            return
        await response(scope, receive, send)

    async def _response(self, request: LakeRequest, dialect: Dialect) -> Response:
        try:
            operation = await with_faults(self._lake, request, operation_of(request, dialect))
            response = await operation(self._lake, request)
        except StorageApiError as error:
            return dialect.error_response(request, error)
        except StorageUnavailable as error:
            return dialect.error_response(request, StorageApiError(StorageErrorCode.SERVER_BUSY, str(error)))
        for name, value in response_headers(request).items():
            response.headers.setdefault(name, value)
        return response


_ACTIONS: dict[str, Operation] = {"append": dfs.append, "flush": dfs.flush, "setproperties": dfs.set_properties}
_CONTAINERS = frozenset({"container", "account"})
_PUT_COMPONENTS: dict[str, Operation] = {
    "block": blob.put_block,
    "blocklist": blob.put_block_list,
    "metadata": dfs.set_properties,
    "properties": dfs.set_properties,
    "lease": dfs.lease,
}


def operation_of(request: LakeRequest, dialect: Dialect) -> Operation:
    """The operation that a request asks for; an error where there is none."""
    match request.method:
        case "PUT":
            operation = _put(request)
        case "PATCH":
            operation = _ACTIONS.get(request.query.get("action", "").lower())
        case "POST":
            operation = _post(request)
        case "GET":
            operation = _get(request)
        case "HEAD":
            operation = _head(request)
        case "DELETE":
            operation = _delete(request, dialect)
        case _:
            raise StorageApiError(StorageErrorCode.UNSUPPORTED_HTTP_VERB)
    if operation is None:
        raise StorageApiError(StorageErrorCode.UNSUPPORTED_QUERY_PARAMETER)
    return operation


def _put(request: LakeRequest) -> Operation | None:  # noqa: PLR0911 - a table
    component = request.query.get("comp", "").lower()
    if "x-ms-rename-source" in request.headers:
        return dfs.rename
    if "resource" in request.query:
        return dfs.create
    if "action" in request.query:  # Hadoop's client
        return _ACTIONS.get(request.query["action"].lower())
    if request.query.get("restype") in _CONTAINERS:
        return blob.change_container
    if component:
        return _PUT_COMPONENTS.get(component)
    if "x-ms-copy-source" in request.headers:
        return blob.copy
    if "x-ms-blob-type" in request.headers:
        return blob.put
    raise StorageApiError(StorageErrorCode.MISSING_REQUIRED_HEADER, "Neither resource nor x-ms-blob-type is there.")


def _post(request: LakeRequest) -> Operation | None:
    if request.query.get("comp") == "batch":
        return blob.batch
    if "x-ms-lease-action" in request.headers:
        return dfs.lease
    if "action" in request.query:
        return _ACTIONS.get(request.query["action"].lower())
    raise StorageApiError(StorageErrorCode.UNSUPPORTED_HTTP_VERB)


def _get(request: LakeRequest) -> Operation | None:
    if request.query.get("resource") == "filesystem":
        return dfs.list_paths
    if request.query.get("restype") == "account":
        return blob.account_properties
    if component := request.query.get("comp"):
        return blob.list_blobs if component == "list" else None  # no block lists, no tags
    return dfs.get_filesystem_properties if request.query.get("restype") == "container" else dfs.read


def _head(request: LakeRequest) -> Operation | None:
    if request.query.get("restype") == "account":
        return blob.account_properties
    is_filesystem = request.query.get("restype") == "container" or request.query.get("resource") == "filesystem"
    return dfs.get_filesystem_properties if is_filesystem else dfs.get_properties


def _delete(request: LakeRequest, dialect: Dialect) -> Operation | None:
    if request.query.get("restype") in _CONTAINERS or request.query.get("resource") == "filesystem":
        return blob.change_container
    if request.query.get("comp"):
        return None
    return dfs.delete if dialect is Dialect.DFS else blob.delete
