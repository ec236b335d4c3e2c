"""DFS operations: create, append, flush, rename, list; properties, read and delete for both dialects."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING
from uuid import uuid4

from starlette.responses import JSONResponse, Response, StreamingResponse

from mirror_engine.onelake.errors import StorageApiError, StorageErrorCode
from mirror_engine.onelake.options import HEAD
from mirror_engine.onelake.requests import SOURCE, Conditions, changed, file_chunks, path_headers, requested_range

if TYPE_CHECKING:
    from mirror_engine.onelake.lake import Lake
    from mirror_engine.onelake.requests import LakeRequest, Properties
    from mirror_engine.onelake.store import StagedFile

_LEASE_STATUSES = {"acquire": 201, "break": 202, "change": 200, "renew": 200, "release": 200}
_FILESYSTEM = {  # Azure always sends all of these; its C++ library aborts where one is missing
    "x-ms-namespace-enabled": "true",
    "x-ms-has-legal-hold": "false",
    "x-ms-has-immutability-policy": "false",
    "x-ms-immutable-storage-with-versioning-enabled": "false",
    "x-ms-default-encryption-scope": "$account-encryption-key",
    "x-ms-deny-encryption-scope-override": "false",
}


def create(lake: Lake, request: LakeRequest) -> Response:
    """Path Create: `PUT ?resource=directory|file`."""
    resource = request.query["resource"].lower()
    if resource == "filesystem":
        raise StorageApiError(StorageErrorCode.ArtifactIdMissing)
    if resource not in {"directory", "file"}:
        raise StorageApiError(StorageErrorCode.InvalidQueryParameterValue, "resource is neither file nor directory.")
    _check_no_body(request)
    create_path = lake.create_folder if resource == "directory" else lake.create_file
    return changed(create_path(lake.destination(request.raw_path), request.conditions))


def append(lake: Lake, request: LakeRequest, body: StagedFile) -> Response:
    """Path Update: `PATCH ?action=append`, with `flush=true` also a flush."""
    address, position = lake.items.address(request.raw_path), request.number("position")
    properties = lake.append(address, position, body)
    if request.flag("flush"):
        properties = lake.flush(address, position + body.size, request.conditions)
    return changed(properties, 202)


def flush(lake: Lake, request: LakeRequest) -> Response:
    """Path Update: `PATCH ?action=flush`."""
    _check_no_body(request)
    address = lake.items.address(request.raw_path)
    return changed(lake.flush(address, request.number("position"), request.conditions), 200)


def rename(lake: Lake, request: LakeRequest) -> Response:
    """Path Create: `PUT` with `x-ms-rename-source`."""
    source, target = request.source(lake.items, "x-ms-rename-source"), lake.destination(request.raw_path)
    return changed(lake.rename(source, target, request.conditions, Conditions.of(request.headers, SOURCE)))


def set_properties(lake: Lake, request: LakeRequest) -> Response:
    """Path Update: `PATCH ?action=setProperties`; Set Blob Metadata and Properties: `PUT ?comp=metadata|properties`."""
    return changed(lake.set_metadata(lake.items.address(request.raw_path), request.conditions), 200)


def lease(lake: Lake, request: LakeRequest) -> Response:
    """Path Lease; leases have no effect."""
    properties = lake.properties(lake.items.address(request.raw_path))
    status = _LEASE_STATUSES.get(request.headers.get("x-ms-lease-action", "").lower())
    if status is None:
        raise StorageApiError(StorageErrorCode.InvalidHeaderValue, "x-ms-lease-action is unknown.")
    proposed = request.headers.get("x-ms-proposed-lease-id") or request.headers.get("x-ms-lease-id") or ""
    lease_id = proposed if proposed.isascii() and proposed.isprintable() and proposed else str(uuid4())
    return changed(properties, status, {"x-ms-lease-id": lease_id, "x-ms-lease-time": "0"})


def list_paths(lake: Lake, request: LakeRequest) -> Response:
    """Path List: `GET {any depth}?resource=filesystem`; names relative to the workspace, in order.

    `beginFrom` is a path in the folder, inclusive.
    """
    limit = request.page_size
    try:
        token = request.query.get("continuation", "").encode()
        start_from = base64.b64decode(token, altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError) as problem:
        message = "continuation is not a token of this server."
        raise StorageApiError(StorageErrorCode.InvalidQueryParameterValue, message) from problem
    folder = lake.items.inside(lake.items.address(request.raw_path), request.query.get("directory", ""))
    if begin_from := request.query.get("beginfrom"):
        start_from = start_from or f"{folder.shown}/{begin_from}".lstrip("/")
    paths = lake.list(folder, start_from, recursive=request.flag("recursive"), limit=limit + 1)
    response = JSONResponse({"paths": [_path_json(*path) for path in paths[:limit]]})
    if len(paths) > limit:
        response.headers["x-ms-continuation"] = base64.urlsafe_b64encode(paths[limit][0].encode()).decode()
    return response


def _path_json(name: str, properties: Properties) -> dict[str, str]:
    entry = {
        "name": name,
        "contentLength": str(properties.size),
        "lastModified": properties.last_modified,
        "etag": properties.etag.strip('"'),
        "owner": "$superuser",
        "group": "$superuser",
        "permissions": "---------",
    }
    return entry | ({"isDirectory": "true"} if properties.is_folder else {})


def get_properties(lake: Lake, request: LakeRequest) -> Response:
    """Path Get Properties, Get Blob Properties: `HEAD`."""
    address = lake.items.address(request.raw_path)
    if lake.options.delays.is_hidden(address.path, HEAD):
        raise StorageApiError(StorageErrorCode.PathNotFound)
    properties = lake.properties(address)
    request.conditions.check_read(properties)
    return Response(headers={**path_headers(properties), "Content-Length": str(properties.size)})


def get_filesystem_properties(lake: Lake, request: LakeRequest) -> Response:
    """Filesystem Get Properties, Get Container Properties."""
    properties = lake.properties(lake.items.address(request.raw_path))
    return Response(headers={**path_headers(properties), **_FILESYSTEM})


def read(lake: Lake, request: LakeRequest) -> Response:
    """Path Read, Get Blob: a file's bytes, or a range of them."""
    properties, file = lake.read(lake.items.address(request.raw_path), request.conditions)
    try:
        part = requested_range(request.headers, properties.size)
    except BaseException:
        file.close()
        raise
    start, end = part or (0, properties.size)
    headers = {**path_headers(properties), "Content-Length": str(end - start)}
    if part:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{properties.size}"
    return StreamingResponse(file_chunks(file, start, end - start), 206 if part else 200, headers)


def _check_no_body(request: LakeRequest) -> None:
    if not request.is_empty:
        raise StorageApiError(StorageErrorCode.ContentLengthMustBeZero)
