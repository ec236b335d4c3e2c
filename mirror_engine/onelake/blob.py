"""Blob operations: list, put, blocks, copy, delete, batch."""

from __future__ import annotations

import json
from email.message import Message
from email.parser import BytesParser
from email.policy import compat32
from itertools import islice
from typing import TYPE_CHECKING
from urllib.parse import quote
from uuid import uuid4
from xml.etree import ElementTree as ET

from starlette.responses import Response

from mirror_engine.onelake.conditions import Conditions
from mirror_engine.onelake.dfs import ACCEPTED, CREATED, MAX_LISTED, changed
from mirror_engine.onelake.errors import StorageApiError, StorageErrorCode
from mirror_engine.onelake.requests import (
    CONTENT_TYPE,
    changed_headers,
    http_date,
    in_thread,
    read_bounded,
    received,
    response_headers,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mirror_engine.onelake.address import Address
    from mirror_engine.onelake.conditions import ListedPath
    from mirror_engine.onelake.lake import Lake
    from mirror_engine.onelake.requests import LakeRequest

DELIMITER = "/"
MAX_PARTS = 256
_ECHOED = {"prefix": "Prefix", "marker": "Marker", "maxresults": "MaxResults", "delimiter": "Delimiter"}
_BLOCK_KINDS = frozenset({"Latest", "Uncommitted", "Committed"})
_REASONS = {202: "Accepted", 400: "Bad Request", 403: "Forbidden", 404: "Not Found", 409: "Conflict", 412: "Failed"}
_BATCH_REJECTED = "Either WorkspaceId or ArtifactId are missing in the request"


async def list_blobs(lake: Lake, request: LakeRequest) -> Response:
    """List Blobs: `GET /{ws}?restype=container&comp=list`; a page begins at `marker`, or at `startFrom`."""
    query = request.query
    limit = min(request.number("maxresults", MAX_LISTED) or MAX_LISTED, MAX_LISTED)
    delimiter = query.get("delimiter", "")
    if delimiter not in {"", DELIMITER}:
        raise StorageApiError(StorageErrorCode.INVALID_QUERY_PARAMETER_VALUE, "The only delimiter is /.")
    place = await in_thread(lake.address, request.raw_path)
    start_from = query.get("marker") or query.get("startfrom", "")

    def page() -> list[tuple[str, ListedPath]]:
        prefix = query.get("prefix", "")
        whole = f"{place.shown}/{prefix}" if place.shown else prefix
        entries = _entries(lake, place, prefix, "" if delimiter else start_from, one_level=bool(delimiter))
        matching = ((name, path) for name, path in entries if name.startswith(whole) and name >= start_from)
        return list(islice(matching, limit + 1))

    entries = await in_thread(page)
    root = ET.Element("EnumerationResults", ContainerName=place.written[0])  # with more, adlfs sees nothing
    for word, name in _ECHOED.items():
        if word in query:
            _text(root, name, query[word])
    blobs = ET.SubElement(root, "Blobs")
    for _, path in (entry for entry in entries[:limit] if not entry[0].endswith(DELIMITER)):
        _blob(blobs, path)
    for name, _ in (entry for entry in entries[:limit] if entry[0].endswith(DELIMITER)):
        _text(ET.SubElement(blobs, "BlobPrefix"), "Name", name)
    _text(root, "NextMarker", entries[limit][0] if len(entries) > limit else "")
    return Response(ET.tostring(root, "utf-8", xml_declaration=True), media_type="application/xml;charset=utf-8")


def _entries(
    lake: Lake, place: Address, prefix: str, start_from: str, *, one_level: bool
) -> Iterator[tuple[str, ListedPath]]:
    """Entries of the deepest folder in the prefix; of one level, a folder's name ends with the delimiter."""
    folder = lake.inside(place, prefix.rpartition(DELIMITER)[0])
    try:
        is_folder = lake.properties(folder).is_folder
    except StorageApiError as error:
        if error.code is StorageErrorCode.PATH_NOT_FOUND:
            return iter(())
        raise
    if not is_folder:
        return iter(())
    if not one_level:
        return ((path.name, path) for path in lake.descendants(folder, start_from))
    named = ((path.name + DELIMITER * path.properties.is_folder, path) for path in lake.children(folder))
    return iter(sorted(named, key=lambda pair: pair[0]))


def _blob(parent: ET.Element, path: ListedPath) -> None:
    blob = ET.SubElement(parent, "Blob")
    _text(blob, "Name", path.name)
    properties = ET.SubElement(blob, "Properties")
    values = {
        "Creation-Time": http_date(path.properties.modified_ns),
        "Last-Modified": http_date(path.properties.modified_ns),
        "Etag": path.properties.etag.strip('"'),
        "ResourceType": "directory" if path.properties.is_folder else "file",
        "Content-Length": str(path.properties.size),
        "Content-Type": CONTENT_TYPE,
        "BlobType": "BlockBlob",
        "LeaseStatus": "unlocked",
        "LeaseState": "available",
        "ServerEncrypted": "true",
    }
    for name, value in values.items():
        ET.SubElement(properties, name).text = value
    if path.properties.is_folder:
        ET.SubElement(ET.SubElement(blob, "Metadata"), "hdi_isfolder").text = "true"


def _text(parent: ET.Element, name: str, text: str) -> None:
    """A name or prefix; percent-encoded with `Encoded="true"` where XML cannot hold its characters."""
    element = ET.SubElement(parent, name)
    if any(letter < " " or "\x7f" <= letter <= "\x9f" or "\ufffe" <= letter <= "\uffff" for letter in text):
        element.set("Encoded", "true")
        text = quote(text, safe="/")
    element.text = text


async def put(lake: Lake, request: LakeRequest) -> Response:
    """Put Blob; with `x-ms-meta-hdi_isfolder: true` a folder."""
    if request.headers.get("x-ms-blob-type", "").lower() != "blockblob":
        raise StorageApiError(StorageErrorCode.INVALID_HEADER_VALUE, "x-ms-blob-type is not BlockBlob.")
    address, conditions = await in_thread(lake.destination, request.raw_path), Conditions.of(request.headers)
    if request.headers.get("x-ms-meta-hdi_isfolder", "").lower() == "true":
        return changed(await in_thread(lake.create_folder, address, conditions))
    async with received(lake, request) as body:
        return changed(await in_thread(lake.put, address, body, conditions))


async def put_block(lake: Lake, request: LakeRequest) -> Response:
    """Put Block: `PUT ?comp=block&blockid=`."""
    if not request.query.get("blockid"):
        raise StorageApiError(StorageErrorCode.INVALID_QUERY_PARAMETER_VALUE, "blockid is missing.")
    address = await in_thread(lake.destination, request.raw_path)
    async with received(lake, request) as body:
        await in_thread(lake.put_block, address, request.query["blockid"], body)
    return Response(status_code=CREATED, headers={"x-ms-request-server-encrypted": "true"})


async def put_block_list(lake: Lake, request: LakeRequest) -> Response:
    """Put Block List: `PUT ?comp=blocklist`."""
    address = await in_thread(lake.destination, request.raw_path)
    block_ids = read_block_ids(await read_bounded(request.body))
    return changed(await in_thread(lake.put_block_list, address, block_ids, Conditions.of(request.headers)))


def read_block_ids(document: bytes) -> list[str]:
    """The block ids of a block list, in order; INVALID_XML_DOCUMENT."""
    try:
        text = document.decode("utf-8-sig")
        if "<!" in text:  # a DOCTYPE could declare entities
            raise StorageApiError(StorageErrorCode.INVALID_XML_DOCUMENT)
        root = ET.fromstring(text)  # noqa: S314 - without a DOCTYPE there are no entities
    except (ET.ParseError, ValueError) as problem:
        raise StorageApiError(StorageErrorCode.INVALID_XML_DOCUMENT) from problem
    if root.tag != "BlockList" or any(block.tag not in _BLOCK_KINDS for block in root):
        raise StorageApiError(StorageErrorCode.INVALID_XML_DOCUMENT, "It is not a block list.")
    return [(block.text or "").strip() for block in root]


async def copy(lake: Lake, request: LakeRequest) -> Response:
    """Copy Blob: `PUT` with `x-ms-copy-source`; complete when it is answered."""
    source = await in_thread(request.source, lake, "x-ms-copy-source")
    target = await in_thread(lake.destination, request.raw_path)
    conditions = Conditions.of(request.headers), Conditions.of_source(request.headers)
    properties = await in_thread(lake.copy, source, target, *conditions)
    headers = {**changed_headers(properties), "x-ms-copy-id": str(uuid4()), "x-ms-copy-status": "success"}
    return Response(status_code=ACCEPTED, headers=headers)


async def delete(lake: Lake, request: LakeRequest) -> Response:
    """Delete Blob: a file, or an empty folder."""
    address = await in_thread(lake.address, request.raw_path)
    await in_thread(lake.delete, address, Conditions.of(request.headers))
    return Response(status_code=ACCEPTED, headers={"x-ms-delete-type-permanent": "true"})


async def account_properties(lake: Lake, request: LakeRequest) -> Response:  # noqa: ARG001 - the same for all
    """Get Account Information: `GET ?restype=account&comp=properties`."""
    headers = {"x-ms-sku-name": "Standard_LRS", "x-ms-account-kind": "StorageV2", "x-ms-is-hns-enabled": "true"}
    return Response(headers=headers)


async def change_container(lake: Lake, request: LakeRequest) -> Response:  # noqa: ARG001 - always rejected
    """Create, Delete Container: only Fabric does that."""
    raise StorageApiError(StorageErrorCode.MANAGED_FOLDER)


async def batch(lake: Lake, request: LakeRequest) -> Response:
    """Blob Batch: `POST ?comp=batch`; rejected as OneLake does, unless `blob_batch` is `accept`."""
    if lake.options.blob_batch != "accept":
        body = json.dumps({"error": {"code": "BadRequest", "message": _BATCH_REJECTED}})
        return Response(body, 400, {"x-ms-error-code": "BadRequest"}, media_type="application/json")
    parts = _parts(request.headers.get("content-type", ""), await read_bounded(request.body))
    boundary = f"batchresponse_{uuid4()}"
    answers = [await in_thread(_delete_part, lake, request, part) for part in parts]
    lines = "".join(f"--{boundary}\r\n{answer}\r\n" for answer in answers)
    return Response(f"{lines}--{boundary}--\r\n", ACCEPTED, media_type=f"multipart/mixed; boundary={boundary}")


def _parts(content_type: str, body: bytes) -> list[Message]:
    head = f"Content-Type: {content_type}\r\n\r\n".encode("latin-1", "replace")
    try:
        message = BytesParser(policy=compat32).parsebytes(head + body)  # newer policies reject a `/` in a boundary
    except RecursionError:  # nested multipart
        raise StorageApiError(StorageErrorCode.BAD_REQUEST, "A batch cannot hold batches.") from None
    payload = message.get_payload() if message.is_multipart() else []
    parts = [part for part in payload if isinstance(part, Message)]
    if not 0 < len(parts) <= MAX_PARTS:
        raise StorageApiError(StorageErrorCode.BAD_REQUEST, "A batch holds 1 to 256 requests.")
    return parts


def _delete_part(lake: Lake, request: LakeRequest, part: Message) -> str:
    """Execute one request of a batch, which must be a delete; its answer."""
    try:
        lake.delete(lake.address(_target(part)))
        status, headers = ACCEPTED, {"x-ms-delete-type-permanent": "true"}
    except StorageApiError as error:
        status, headers = error.code.status, {"x-ms-error-code": error.code.blob_code}
    lines = "".join(f"{name}: {value}\r\n" for name, value in {**response_headers(request), **headers}.items())
    content_id = f"Content-ID: {part['Content-ID']}\r\n" if part["Content-ID"] else ""
    first = f"HTTP/1.1 {status} {_REASONS.get(status, 'Rejected')}"
    return f"Content-Type: application/http\r\n{content_id}\r\n{first}\r\n{lines}\r\n"


def _target(part: Message) -> bytes:
    payload = part.get_payload(decode=True)
    match payload.split(b"\r\n", 1)[0].split() if isinstance(payload, bytes) else []:
        case [b"DELETE", path, _]:
            return bytes(path.partition(b"?")[0])
    raise StorageApiError(StorageErrorCode.BAD_REQUEST, "Only deletes go in a batch.")
