"""DFS operations: create, append, flush, rename, list; properties, read and delete for both dialects."""

from __future__ import annotations

import base64
import binascii
from itertools import islice
from typing import TYPE_CHECKING
from uuid import uuid4

from starlette.responses import JSONResponse, Response, StreamingResponse

from mirror_engine.onelake.conditions import Conditions, requested_range
from mirror_engine.onelake.errors import StorageApiError, StorageErrorCode
from mirror_engine.onelake.requests import changed_headers, file_chunks, http_date, in_thread, path_headers, received

if TYPE_CHECKING:
    from mirror_engine.onelake.conditions import ListedPath, Properties
    from mirror_engine.onelake.lake import Lake
    from mirror_engine.onelake.requests import LakeRequest

MAX_LISTED = 5000
OK, CREATED, ACCEPTED, PARTIAL = 200, 201, 202, 206
_LEASE_STATUSES = {"acquire": CREATED, "break": ACCEPTED, "change": OK, "renew": OK, "release": OK}
_FILESYSTEM = {  # Azure always sends all of these; its C++ library aborts where one is missing
    "x-ms-namespace-enabled": "true",
    "x-ms-has-legal-hold": "false",
    "x-ms-has-immutability-policy": "false",
    "x-ms-immutable-storage-with-versioning-enabled": "false",
    "x-ms-default-encryption-scope": "$account-encryption-key",
    "x-ms-deny-encryption-scope-override": "false",
}


def changed(properties: Properties, status: int = CREATED) -> Response:
    """The answer to a creation or change."""
    return Response(status_code=status, headers=changed_headers(properties))


async def create(lake: Lake, request: LakeRequest) -> Response:
    """Path Create: `PUT ?resource=directory|file`."""
    resource = request.query["resource"].lower()
    if resource == "filesystem":
        raise StorageApiError(StorageErrorCode.MANAGED_FOLDER)
    if resource not in {"directory", "file"}:
        raise StorageApiError(StorageErrorCode.INVALID_QUERY_PARAMETER_VALUE, "resource is neither file nor directory.")
    if not request.is_empty:
        raise StorageApiError(StorageErrorCode.CONTENT_LENGTH_MUST_BE_ZERO)
    create_path = lake.create_folder if resource == "directory" else lake.create_file
    address = await in_thread(lake.destination, request.raw_path)
    return changed(await in_thread(create_path, address, Conditions.of(request.headers)))


async def append(lake: Lake, request: LakeRequest) -> Response:
    """Path Update: `PATCH ?action=append`, with `flush=true` also a flush."""
    address, position = await in_thread(lake.address, request.raw_path), request.number("position")
    async with received(lake, request) as body:
        size = body.size
        properties = await in_thread(lake.append, address, position, body)
    if request.flag("flush"):
        properties = await in_thread(lake.flush, address, position + size, Conditions.of(request.headers))
    return changed(properties, ACCEPTED)


async def flush(lake: Lake, request: LakeRequest) -> Response:
    """Path Update: `PATCH ?action=flush`."""
    if not request.is_empty:
        raise StorageApiError(StorageErrorCode.CONTENT_LENGTH_MUST_BE_ZERO)
    address, position = await in_thread(lake.address, request.raw_path), request.number("position")
    retain = request.flag("retainuncommitteddata")
    return changed(await in_thread(lake.flush, address, position, Conditions.of(request.headers), retain=retain), OK)


async def rename(lake: Lake, request: LakeRequest) -> Response:
    """Path Create: `PUT` with `x-ms-rename-source`."""
    source = await in_thread(request.source, lake, "x-ms-rename-source")
    target = await in_thread(lake.destination, request.raw_path)
    conditions = Conditions.of(request.headers), Conditions.of_source(request.headers)
    return changed(await in_thread(lake.rename, source, target, *conditions))


async def set_properties(lake: Lake, request: LakeRequest) -> Response:
    """Path Update: `PATCH ?action=setProperties`; Set Blob Metadata and Properties: `PUT ?comp=metadata|properties`."""
    address = await in_thread(lake.address, request.raw_path)
    return changed(await in_thread(lake.set_metadata, address, Conditions.of(request.headers)), OK)


async def delete(lake: Lake, request: LakeRequest) -> Response:
    """Path Delete: `DELETE [?recursive=true]`."""
    address, recursive = await in_thread(lake.address, request.raw_path), request.flag("recursive")
    await in_thread(lake.delete, address, Conditions.of(request.headers), recursive=recursive)
    return Response(status_code=OK)


async def lease(lake: Lake, request: LakeRequest) -> Response:
    """Path Lease; leases have no effect."""
    properties = await in_thread(lambda: lake.properties(lake.address(request.raw_path)))
    status = _LEASE_STATUSES.get(request.headers.get("x-ms-lease-action", "").lower())
    if status is None:
        raise StorageApiError(StorageErrorCode.INVALID_HEADER_VALUE, "x-ms-lease-action is unknown.")
    proposed = request.headers.get("x-ms-proposed-lease-id") or request.headers.get("x-ms-lease-id") or ""
    lease_id = proposed if proposed.isascii() and proposed.isprintable() and proposed else str(uuid4())
    response = changed(properties, status)
    response.headers.update({"x-ms-lease-id": lease_id, "x-ms-lease-time": "0"})
    return response


async def list_paths(lake: Lake, request: LakeRequest) -> Response:
    """Path List: `GET {any depth}?resource=filesystem`; names relative to the workspace, in order."""
    limit = min(request.number("maxresults", MAX_LISTED) or MAX_LISTED, MAX_LISTED)
    start_from = _decode_token(request.query.get("continuation", ""))

    def page() -> list[ListedPath]:
        folder = lake.inside(lake.address(request.raw_path), request.query.get("directory", ""))
        entries = lake.descendants if request.flag("recursive") else lake.children
        return list(islice(entries(folder, start_from), limit + 1))

    paths = await in_thread(page)
    response = JSONResponse({"paths": [_path_json(path) for path in paths[:limit]]})
    if len(paths) > limit:
        response.headers["x-ms-continuation"] = base64.urlsafe_b64encode(paths[limit].name.encode()).decode()
    return response


def _decode_token(token: str) -> str:
    try:
        return base64.b64decode(token.encode(), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError) as problem:
        message = "continuation is not a token of this server."
        raise StorageApiError(StorageErrorCode.INVALID_QUERY_PARAMETER_VALUE, message) from problem


def _path_json(path: ListedPath) -> dict[str, str]:
    properties = path.properties
    entry = {
        "name": path.name,
        "contentLength": str(properties.size),
        "lastModified": http_date(properties.modified_ns),
        "etag": properties.etag.strip('"'),
        "owner": "$superuser",
        "group": "$superuser",
        "permissions": "---------",
    }
    return entry | ({"isDirectory": "true"} if properties.is_folder else {})


async def get_properties(lake: Lake, request: LakeRequest) -> Response:
    """Path Get Properties, Get Blob Properties: `HEAD`."""
    properties = await in_thread(lambda: lake.visible_properties(lake.address(request.raw_path)))
    Conditions.of(request.headers).check_read(properties)
    return Response(headers={**path_headers(properties), "Content-Length": str(properties.size)})


async def get_filesystem_properties(lake: Lake, request: LakeRequest) -> Response:
    """Filesystem Get Properties, Get Container Properties."""
    properties = await in_thread(lambda: lake.properties(lake.address(request.raw_path)))
    return Response(headers={**path_headers(properties), **_FILESYSTEM})


async def read(lake: Lake, request: LakeRequest) -> Response:
    """Path Read, Get Blob: a file's bytes, or a range of them."""
    conditions = Conditions.of(request.headers)
    properties, file = await in_thread(lambda: lake.read(lake.address(request.raw_path), conditions))
    try:
        part = requested_range(request.headers, properties.size)
    except BaseException:
        file.close()
        raise
    start, end = (part.start, part.end) if part else (0, properties.size)
    headers = {**path_headers(properties), "Content-Length": str(end - start)}
    if part:
        headers["Content-Range"] = part.header
    return StreamingResponse(file_chunks(file, start, end - start), PARTIAL if part else OK, headers)
