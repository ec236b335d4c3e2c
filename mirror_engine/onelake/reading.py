"""`HEAD` and `GET` of a path, alike in both dialects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import Response, StreamingResponse

from mirror_engine.onelake.requests import Conditions, asked_range, of_path
from mirror_engine.onelake.work import quick, sent

if TYPE_CHECKING:
    from typing import BinaryIO

    from mirror_engine.onelake.lake import Lake, Properties
    from mirror_engine.onelake.requests import LakeRequest

_OK, _PARTIAL = 200, 206
_OF_CONTAINERS = {  # Azure always says all of these, and its C++ library ends the process where one is missing
    "x-ms-namespace-enabled": "true",
    "x-ms-has-legal-hold": "false",
    "x-ms-has-immutability-policy": "false",
    "x-ms-immutable-storage-with-versioning-enabled": "false",
    "x-ms-default-encryption-scope": "$account-encryption-key",
    "x-ms-deny-encryption-scope-override": "false",
}


async def properties(lake: Lake, call: LakeRequest) -> Response:
    """What is known of a file or folder, a workspace too."""
    found = await quick(lambda: lake.seen(lake.address(call.raw_path)))
    Conditions.of(call.headers).check_read(found)
    return Response(headers={**of_path(found), "Content-Length": str(found.size)})


async def container(lake: Lake, call: LakeRequest) -> Response:
    """What is known of a workspace."""
    found = await quick(lambda: lake.properties(lake.address(call.raw_path)))
    return Response(headers={**of_path(found), **_OF_CONTAINERS})


async def read(lake: Lake, call: LakeRequest) -> Response:
    """A file's bytes, or the range that is asked for."""
    found, file = await quick(lambda: lake.read(lake.address(call.raw_path), Conditions.of(call.headers)))
    try:
        return _answer(call, found, file)
    except BaseException:
        file.close()
        raise


def _answer(call: LakeRequest, found: Properties, file: BinaryIO) -> Response:
    part = asked_range(call.headers, found.size)
    headers = of_path(found)
    start, length = (part.start, part.length) if part else (0, found.size)
    headers["Content-Length"] = str(length)
    if part:
        headers["Content-Range"] = part.header
    return StreamingResponse(sent(file, start, length), _PARTIAL if part else _OK, headers)
