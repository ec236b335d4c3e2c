"""The ASGI application for OneLake: parameters and headers of a request select the operation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect, Request

from mirror_engine.errors import StorageUnavailable
from mirror_engine.onelake import blob, dfs
from mirror_engine.onelake.errors import ConnectionReset, StorageApiError, StorageErrorCode, reset_connection
from mirror_engine.onelake.faults import with_faults
from mirror_engine.onelake.requests import LakeRequest, error_response, is_dfs, response_headers

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import ASGIApp, Receive, Scope, Send

    from mirror_engine.onelake.lake import Lake
    from mirror_engine.onelake.requests import Operation


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


_ANY = "PUT PATCH POST"  # Hadoop's client sends actions by PUT, too
# Methods, what marks the request (a header, a query parameter, or one with its value), its operation; the first counts
_ROUTES: tuple[tuple[str, str, Operation | StorageErrorCode], ...] = (
    ("POST", "?comp=batch", blob.batch),
    ("POST", "?comp=userdelegationkey", blob.user_delegation_key),
    ("POST", "x-ms-lease-action", dfs.lease),
    ("PUT", "x-ms-rename-source", dfs.rename),
    ("PUT", "?resource", dfs.create),
    (_ANY, "?action=append", dfs.append),
    (_ANY, "?action=flush", dfs.flush),
    (_ANY, "?action=setproperties", dfs.set_properties),
    (_ANY, "?action", StorageErrorCode.UnsupportedQueryParameter),
    ("PUT DELETE", "?restype=container", blob.change_container),
    ("PUT DELETE", "?restype=account", blob.change_container),
    ("DELETE", "?resource=filesystem", blob.change_container),
    ("PUT", "?comp=block", blob.put_block),
    ("PUT", "?comp=blocklist", blob.put_block_list),
    ("PUT", "?comp=metadata", dfs.set_properties),
    ("PUT", "?comp=properties", dfs.set_properties),
    ("PUT", "?comp=lease", dfs.lease),
    ("PUT DELETE", "?comp", StorageErrorCode.UnsupportedQueryParameter),
    ("PUT", "x-ms-copy-source", blob.copy),
    ("PUT", "x-ms-blob-type", blob.put),
    ("PATCH", "", StorageErrorCode.UnsupportedQueryParameter),
    ("GET", "?resource=filesystem", dfs.list_paths),
    ("GET HEAD", "?restype=account", blob.account_properties),
    ("GET", "?comp=list", blob.list_blobs),
    ("GET", "?comp", StorageErrorCode.UnsupportedQueryParameter),  # no block lists, no tags
    ("GET HEAD", "?restype=container", dfs.get_filesystem_properties),
    ("HEAD", "?resource=filesystem", dfs.get_filesystem_properties),
    ("GET", "", dfs.read),
    ("HEAD", "", dfs.get_properties),
)


def operation_of(request: LakeRequest) -> Operation:
    """The operation that a request asks for; an error where there is none."""
    query = request.query.items()
    marks = {
        "",
        *request.headers,
        *(f"?{name}" for name, _ in query),
        *(f"?{name}={text.lower()}" for name, text in query),
    }
    for methods, mark, operation in _ROUTES:
        if request.method in methods.split() and mark in marks:
            if isinstance(operation, StorageErrorCode):
                raise StorageApiError(operation)
            return operation
    if request.method == "DELETE":
        return dfs.delete if is_dfs(request) else blob.delete
    if request.method == "PUT":
        raise StorageApiError(StorageErrorCode.MissingRequiredHeader, "Neither resource nor x-ms-blob-type is there.")
    raise StorageApiError(StorageErrorCode.UnsupportedHttpVerb)
