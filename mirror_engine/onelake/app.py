"""One application for all of the real service's hosts: `Host` selects what answers (endpoint chapter 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from starlette.requests import ClientDisconnect, Request

from mirror_engine.errors import StorageUnavailable
from mirror_engine.onelake import blob, dfs, reading
from mirror_engine.onelake import blob as batch
from mirror_engine.onelake.errors import ConnectionReset, StorageApiError, StorageErrorCode, cut
from mirror_engine.onelake.faults import played
from mirror_engine.onelake.requests import FABRIC, LOGINS, Dialect, LakeRequest, dialect_of, named_host, of_call

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.responses import Response
    from starlette.types import ASGIApp, Receive, Scope, Send

    from mirror_engine.onelake.lake import Lake

    Operation: TypeAlias = Callable[[Lake, LakeRequest], Awaitable[Response]]


@dataclass(frozen=True)
class Services:
    """An ASGI application that hands each request to the service its `Host` names; loopback is OneLake.

    Attributes:
        onelake: both dialects.
        entra: tokens.
        fabric: the REST API.
    """

    onelake: ASGIApp
    entra: ASGIApp
    fabric: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        host = named_host(scope["headers"])
        app = self.entra if host in LOGINS else self.fabric if host == FABRIC else self.onelake
        await app(scope, receive, send)


_ACTIONS: dict[str, Operation] = {
    "append": dfs.append,
    "flush": dfs.flush,
    "setproperties": dfs.set_properties,
}
_PUT_COMPONENTS: dict[str, Operation] = {
    "block": blob.put_block,
    "blocklist": blob.put_block_list,
    "metadata": blob.set_metadata,
    "properties": blob.set_metadata,
    "lease": dfs.lease,
}
_OF_CONTAINER = frozenset({"container", "account"})


def operation_of(call: LakeRequest, dialect: Dialect) -> Operation:
    """The operation that a request asks for.

    Raises:
        EndpointFault: it asks for none that there is.
    """
    methods: dict[str, Callable[[LakeRequest, Dialect], Operation]] = {
        "PUT": _put,
        "PATCH": _patch,
        "POST": _post,
        "GET": _get,
        "HEAD": _head,
        "DELETE": _delete,
    }
    if call.method not in methods:
        raise StorageApiError(StorageErrorCode.UNSUPPORTED_HTTP_VERB)
    return methods[call.method](call, dialect)


def _put(call: LakeRequest, _: Dialect) -> Operation:  # noqa: PLR0911 - a table in words
    component = call.query.get("comp", "").lower()
    if "x-ms-rename-source" in call.headers:
        return dfs.rename
    if "resource" in call.query:
        return dfs.create
    if "action" in call.query:  # Hadoop's client
        return _action(call)
    if call.query.get("restype") in _OF_CONTAINER:
        return blob.managed
    if component:
        return _known(_PUT_COMPONENTS.get(component))
    if "x-ms-copy-source" in call.headers:
        return blob.copy
    if "x-ms-blob-type" in call.headers:
        return blob.put
    raise StorageApiError(StorageErrorCode.MISSING_REQUIRED_HEADER, "It says neither resource nor x-ms-blob-type.")


def _patch(call: LakeRequest, _: Dialect) -> Operation:
    return _action(call)


def _post(call: LakeRequest, _: Dialect) -> Operation:
    if call.query.get("comp") == "batch":
        return batch.batch
    if "x-ms-lease-action" in call.headers:
        return dfs.lease
    if "action" in call.query:
        return _action(call)
    raise StorageApiError(StorageErrorCode.UNSUPPORTED_HTTP_VERB)


def _get(call: LakeRequest, _: Dialect) -> Operation:
    if call.query.get("resource") == "filesystem":
        return dfs.list_paths
    if call.query.get("restype") == "account":
        return blob.account
    if call.query.get("comp") == "list":
        return blob.list_blobs
    if call.query.get("comp"):  # block lists, tags: what is known of a blob beside its bytes
        raise StorageApiError(StorageErrorCode.UNSUPPORTED_QUERY_PARAMETER)
    if call.query.get("restype") == "container":
        return reading.container
    return reading.read


def _head(call: LakeRequest, _: Dialect) -> Operation:
    if call.query.get("restype") == "account":
        return blob.account
    if call.query.get("restype") == "container" or call.query.get("resource") == "filesystem":
        return reading.container
    return reading.properties


def _delete(call: LakeRequest, dialect: Dialect) -> Operation:
    if call.query.get("restype") in _OF_CONTAINER or call.query.get("resource") == "filesystem":
        return blob.managed
    if call.query.get("comp"):
        raise StorageApiError(StorageErrorCode.UNSUPPORTED_QUERY_PARAMETER)
    return dfs.delete if dialect is Dialect.DFS else blob.delete


def _action(call: LakeRequest) -> Operation:
    return _known(_ACTIONS.get(call.query.get("action", "").lower()))


def _known(operation: Operation | None) -> Operation:
    if operation is None:
        raise StorageApiError(StorageErrorCode.UNSUPPORTED_QUERY_PARAMETER)
    return operation


class OneLake:
    """An ASGI application: both dialects over one lake.

    Args:
        lake: what clients read and write.
    """

    def __init__(self, lake: Lake) -> None:
        self._lake = lake

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        call = LakeRequest.of(Request(scope, receive))
        try:
            response = await self._answered(call, dialect_of(call))
        except ClientDisconnect:
            return
        except ConnectionReset:
            await cut(scope, receive)
            return
        await response(scope, receive, send)

    async def _answered(self, call: LakeRequest, dialect: Dialect) -> Response:
        try:
            operation = await played(self._lake, call, operation_of(call, dialect))
            response = await operation(self._lake, call)
        except StorageApiError as refused:
            return dialect.refusal(call, refused)
        except StorageUnavailable as failed:
            return dialect.refusal(call, StorageApiError(StorageErrorCode.SERVER_BUSY, str(failed)))
        for name, value in of_call(call).items():
            response.headers.setdefault(name, value)
        return response
