"""What ADLS Gen2's own interface asks for: create, append, flush, rename, list (endpoint chapter 3)."""

from __future__ import annotations

import base64
import binascii
from itertools import islice
from typing import TYPE_CHECKING
from uuid import uuid4

from starlette.responses import JSONResponse, Response

from mirror_engine.onelake.errors import StorageApiError, StorageErrorCode
from mirror_engine.onelake.requests import Conditions, http_date, of_change, source_of
from mirror_engine.onelake.work import quick, received

if TYPE_CHECKING:
    from mirror_engine.onelake.lake import Lake, Listed, Properties
    from mirror_engine.onelake.requests import LakeRequest

MAX_LISTED = 5000
_CREATED, _ACCEPTED, _OK = 201, 202, 200


def made(found: Properties, status: int = _CREATED) -> Response:
    """The answer to what made or changed something."""
    return Response(status_code=status, headers=of_change(found))


async def create(lake: Lake, call: LakeRequest) -> Response:
    """`PUT ?resource=directory|file`."""
    wanted = call.query["resource"].lower()
    if wanted == "filesystem":
        raise StorageApiError(StorageErrorCode.MANAGED_FOLDER)
    if wanted not in {"directory", "file"}:
        raise StorageApiError(StorageErrorCode.INVALID_QUERY_PARAMETER_VALUE, "resource is neither file nor directory.")
    if not call.is_empty:
        raise StorageApiError(StorageErrorCode.CONTENT_LENGTH_MUST_BE_ZERO)
    make = lake.create_folder if wanted == "directory" else lake.create_file
    address = await quick(lake.destination, call.raw_path)
    return made(await quick(make, address, Conditions.of(call.headers)))


async def append(lake: Lake, call: LakeRequest) -> Response:
    """`PATCH ?action=append`, with `flush=true` also a flush."""
    address, position = await quick(lake.address, call.raw_path), call.number("position")
    async with received(lake, call) as body:
        size = body.size
        found = await quick(lake.append, address, position, body)
    if call.flag("flush"):
        found = await quick(lake.flush, address, position + size, Conditions.of(call.headers))
    return made(found, _ACCEPTED)


async def flush(lake: Lake, call: LakeRequest) -> Response:
    """`PATCH ?action=flush`."""
    if not call.is_empty:
        raise StorageApiError(StorageErrorCode.CONTENT_LENGTH_MUST_BE_ZERO)
    address, position = await quick(lake.address, call.raw_path), call.number("position")
    retain = call.flag("retainuncommitteddata")
    return made(await quick(lake.flush, address, position, Conditions.of(call.headers), retain=retain), _OK)


async def rename(lake: Lake, call: LakeRequest) -> Response:
    """`PUT` with `x-ms-rename-source`."""
    source = await quick(source_of, lake, call, "x-ms-rename-source")
    target = await quick(lake.destination, call.raw_path)
    conditions = Conditions.of(call.headers), Conditions.of_source(call.headers)
    return made(await quick(lake.rename, source, target, *conditions))


async def set_properties(lake: Lake, call: LakeRequest) -> Response:
    """`PATCH ?action=setProperties`."""
    address = await quick(lake.address, call.raw_path)
    return made(await quick(lake.set_metadata, address, Conditions.of(call.headers)), _OK)


async def delete(lake: Lake, call: LakeRequest) -> Response:
    """`DELETE`; `recursive=true` removes a folder with all in it."""
    address = await quick(lake.address, call.raw_path)
    remove = lake.delete_all if call.flag("recursive") else lake.delete
    await quick(remove, address, Conditions.of(call.headers))
    return Response(status_code=_OK)


async def lease(lake: Lake, call: LakeRequest) -> Response:
    """A lease without effect (D): acquired, changed, renewed, released, broken."""
    found = await quick(lambda: lake.properties(lake.address(call.raw_path)))
    action = call.headers.get("x-ms-lease-action", "").lower()
    statuses = {"acquire": _CREATED, "break": _ACCEPTED, "change": _OK, "renew": _OK, "release": _OK}
    if action not in statuses:
        raise StorageApiError(StorageErrorCode.INVALID_HEADER_VALUE, "x-ms-lease-action is none that is known.")
    known = call.headers.get("x-ms-proposed-lease-id") or call.headers.get("x-ms-lease-id") or ""
    held = known if known.isascii() and known.isprintable() and known else str(uuid4())
    answer = made(found, statuses[action])
    answer.headers.update({"x-ms-lease-id": held, "x-ms-lease-time": "0"})
    return answer


async def list_paths(lake: Lake, call: LakeRequest) -> Response:
    """`GET {any depth}?resource=filesystem`: names relative to the workspace, by name, with a continuation."""
    most = min(call.number("maxresults", MAX_LISTED) or MAX_LISTED, MAX_LISTED)
    listed = await quick(_listed, lake, call, _begin(call.query.get("continuation", "")), most + 1)
    answer = JSONResponse({"paths": [_path(each) for each in listed[:most]]})
    if len(listed) > most:
        answer.headers["x-ms-continuation"] = base64.urlsafe_b64encode(listed[most].name.encode()).decode()
    return answer


def _listed(lake: Lake, call: LakeRequest, begin: str, most: int) -> list[Listed]:
    folder = lake.inside(lake.address(call.raw_path), call.query.get("directory", ""))
    found = lake.descendants(folder, begin) if call.flag("recursive") else lake.children(folder, begin)
    return list(islice(found, most))


def _begin(token: str) -> str:
    try:
        return base64.b64decode(token.encode(), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError) as problem:
        raise StorageApiError(
            StorageErrorCode.INVALID_QUERY_PARAMETER_VALUE, "continuation is none of ours."
        ) from problem


def _path(listed: Listed) -> dict[str, str]:
    found = listed.properties
    said = {
        "name": listed.name,
        "contentLength": str(found.size),
        "lastModified": http_date(found.modified_ns),
        "etag": found.etag.strip('"'),
        "owner": "$superuser",
        "group": "$superuser",
        "permissions": "---------",
    }
    return said | ({"isDirectory": "true"} if found.is_folder else {})
