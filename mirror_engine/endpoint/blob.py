"""What the Blob interface asks for: containers, lists, put, blocks, copy, delete (endpoint chapter 4)."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

from starlette.responses import Response

from mirror_engine.endpoint import blob_xml
from mirror_engine.endpoint.blob_list import DELIMITER, Asked, page
from mirror_engine.endpoint.conditions import Conditions
from mirror_engine.endpoint.dfs import MOST_LISTED, made
from mirror_engine.endpoint.faults import EndpointFault, Fault
from mirror_engine.endpoint.headers import of_change
from mirror_engine.endpoint.source import source_of
from mirror_engine.endpoint.work import document as small_body
from mirror_engine.endpoint.work import quick, received

if TYPE_CHECKING:
    from mirror_engine.endpoint.call import Call
    from mirror_engine.endpoint.lake import Lake

_CREATED, _ACCEPTED, _OK = 201, 202, 200
_XML = "application/xml"
_ECHOED = {"prefix": "Prefix", "marker": "Marker", "maxresults": "MaxResults", "delimiter": "Delimiter"}


async def list_blobs(lake: Lake, call: Call) -> Response:
    """`GET /{ws}?restype=container&comp=list`; a page begins at `marker`, or at `startFrom`."""
    asked = Asked(
        prefix=call.query.get("prefix", ""),
        begin=call.query.get("marker") or call.query.get("startfrom", ""),
        most=min(call.number("maxresults", MOST_LISTED) or MOST_LISTED, MOST_LISTED),
        delimiter=call.query.get("delimiter", ""),
    )
    place = await quick(lake.address, call.raw_path)
    found = await quick(page, lake, place, asked)
    folders = [name for name, _ in found.entries if name.endswith(DELIMITER)]
    blobs = [each for name, each in found.entries if not name.endswith(DELIMITER)]
    echo = {name: call.query[word] for word, name in _ECHOED.items() if word in call.query}
    document = blob_xml.listing(place.written[0], echo, blobs, folders, found.following)
    return Response(document, media_type=f"{_XML};charset=utf-8")


async def put(lake: Lake, call: Call) -> Response:
    """Put Blob; with `x-ms-meta-hdi_isfolder: true` a folder."""
    if call.headers.get("x-ms-blob-type", "").lower() != "blockblob":
        raise EndpointFault(Fault.INVALID_HEADER_VALUE, "x-ms-blob-type is not BlockBlob.")
    address, conditions = await quick(lake.destination, call.raw_path), Conditions.of(call.headers)
    if call.headers.get("x-ms-meta-hdi_isfolder", "").lower() == "true":
        return made(await quick(lake.create_folder, address, conditions))
    async with received(lake, call) as body:
        return made(await quick(lake.put, address, body, conditions))


async def put_block(lake: Lake, call: Call) -> Response:
    """`PUT ?comp=block&blockid=`."""
    if not call.query.get("blockid"):
        raise EndpointFault(Fault.INVALID_QUERY_PARAMETER_VALUE, "blockid is missing.")
    address = await quick(lake.destination, call.raw_path)
    async with received(lake, call) as body:
        await quick(lake.put_block, address, call.query["blockid"], body)
    return Response(status_code=_CREATED, headers={"x-ms-request-server-encrypted": "true"})


async def put_block_list(lake: Lake, call: Call) -> Response:
    """`PUT ?comp=blocklist`."""
    address = await quick(lake.destination, call.raw_path)
    ids = blob_xml.block_ids(await small_body(call))
    return made(await quick(lake.put_block_list, address, ids, Conditions.of(call.headers)))


async def copy(lake: Lake, call: Call) -> Response:
    """`PUT` with `x-ms-copy-source`: done when it is answered."""
    source = await quick(source_of, lake, call, "x-ms-copy-source")
    target = await quick(lake.destination, call.raw_path)
    conditions = Conditions.of(call.headers), Conditions.of_source(call.headers)
    found = await quick(lake.copy, source, target, *conditions)
    headers = {**of_change(found), "x-ms-copy-id": str(uuid4()), "x-ms-copy-status": "success"}
    return Response(status_code=_ACCEPTED, headers=headers)


async def delete(lake: Lake, call: Call) -> Response:
    """`DELETE`: a file, or an empty folder."""
    address = await quick(lake.address, call.raw_path)
    await quick(lake.delete, address, Conditions.of(call.headers))
    return Response(status_code=_ACCEPTED, headers={"x-ms-delete-type-permanent": "true"})


async def set_metadata(lake: Lake, call: Call) -> Response:
    """`PUT ?comp=metadata|properties`."""
    address = await quick(lake.address, call.raw_path)
    return made(await quick(lake.set_metadata, address, Conditions.of(call.headers)), _OK)


async def account(lake: Lake, call: Call) -> Response:  # noqa: ARG001 - the same for all
    """`GET ?restype=account&comp=properties`."""
    known = {"x-ms-sku-name": "Standard_LRS", "x-ms-account-kind": "StorageV2", "x-ms-is-hns-enabled": "true"}
    return Response(headers=known)


async def managed(lake: Lake, call: Call) -> Response:  # noqa: ARG001 - refused whatever it is
    """A container made or deleted: Fabric alone does that."""
    raise EndpointFault(Fault.MANAGED_FOLDER)
