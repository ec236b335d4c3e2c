"""What the Blob interface asks for: containers, lists, put, blocks, copy, delete (endpoint chapter 4)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from email.message import Message
from email.parser import BytesParser
from email.policy import compat32
from itertools import islice
from typing import TYPE_CHECKING
from urllib.parse import quote
from uuid import uuid4
from xml.etree import ElementTree as ET

from starlette.responses import Response

from mirror_engine.onelake.dfs import MAX_LISTED, made
from mirror_engine.onelake.errors import StorageApiError, StorageErrorCode
from mirror_engine.onelake.requests import CONTENT_TYPE, Conditions, http_date, of_call, of_change, source_of
from mirror_engine.onelake.work import document, quick, received
from mirror_engine.onelake.work import document as small_body

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from mirror_engine.onelake.lake import Lake, Listed
    from mirror_engine.onelake.requests import Address, LakeRequest


DELIMITER = "/"


@dataclass(frozen=True)
class Asked:
    """What a client wants listed.

    Attributes:
        prefix: of names relative to the workspace.
        begin: the first name, inclusive.
        most: entries on a page.
        delimiter: `/` for one level alone, `""` for all below.
    """

    prefix: str
    begin: str
    most: int
    delimiter: str


@dataclass(frozen=True)
class Page:
    """One page: entries by whole name in byte order, a closed folder as its name with the delimiter.

    Attributes:
        entries: by name.
        following: the name that the next page begins with; `""` at the end.
    """

    entries: list[tuple[str, Listed]]
    following: str


def page(lake: Lake, place: Address, asked: Asked) -> Page:
    """List what begins with a prefix.

    Args:
        lake: what is listed.
        place: the address in the URL: a workspace, or a folder in one that names then begin with.
        asked: what of it.

    Raises:
        EndpointFault: INVALID_QUERY_PARAMETER_VALUE for another delimiter; the item is unknown.
    """
    if asked.delimiter not in {"", DELIMITER}:
        raise StorageApiError(StorageErrorCode.INVALID_QUERY_PARAMETER_VALUE, "The only delimiter is /.")
    whole = f"{place.shown}/{asked.prefix}" if place.shown else asked.prefix
    found = _level(lake, place, asked.prefix) if asked.delimiter else _below(lake, place, asked)
    wanted = ((name, each) for name, each in found if name.startswith(whole) and name >= asked.begin)
    entries = list(islice(wanted, asked.most + 1))
    following = entries[asked.most][0] if len(entries) > asked.most else ""
    return Page(entries[: asked.most], following)


def _level(lake: Lake, place: Address, prefix: str) -> Iterator[tuple[str, Listed]]:
    """One folder's entries, a folder under its name with the delimiter."""
    folder = _folder(lake, place, prefix)
    found = [] if folder is None else lake.children(folder)
    named = ((each.name + DELIMITER * each.properties.is_folder, each) for each in found)
    yield from sorted(named, key=lambda pair: pair[0])


def _below(lake: Lake, place: Address, asked: Asked) -> Iterator[tuple[str, Listed]]:
    folder = _folder(lake, place, asked.prefix)
    found = iter(()) if folder is None else lake.descendants(folder, asked.begin)
    yield from ((each.name, each) for each in found)


def _folder(lake: Lake, place: Address, prefix: str) -> Address | None:
    """The deepest folder that a prefix names; None where there is none."""
    folder = lake.inside(place, prefix.rpartition(DELIMITER)[0])
    try:
        found = lake.properties(folder)
    except StorageApiError as refused:
        if refused.fault is StorageErrorCode.PATH_NOT_FOUND:
            return None
        raise
    return folder if found.is_folder else None


_BLOCK_KINDS = frozenset({"Latest", "Uncommitted", "Committed"})


def listing(
    workspace: str, asked: Mapping[str, str], blobs: Sequence[Listed], prefixes: Sequence[str], following: str
) -> bytes:
    """One page of a listing.

    Args:
        workspace: as the client names it; with more in `ContainerName` adlfs sees nothing.
        asked: `Prefix`, `Marker`, `MaxResults`, `Delimiter` as far as they were asked for.
        blobs: files and folders.
        prefixes: folders that a delimiter has closed, with it at their end.
        following: the next page's marker; `""` at the end.
    """
    root = ET.Element("EnumerationResults", ContainerName=workspace)
    for name, value in asked.items():
        _text(root, name, value)
    inside = ET.SubElement(root, "Blobs")
    for blob in blobs:
        _blob(inside, blob)
    for prefix in prefixes:
        _text(ET.SubElement(inside, "BlobPrefix"), "Name", prefix)
    _text(root, "NextMarker", following)
    document: bytes = ET.tostring(root, "utf-8", xml_declaration=True)
    return document


def _blob(inside: ET.Element, listed: Listed) -> None:
    found = listed.properties
    blob = ET.SubElement(inside, "Blob")
    _text(blob, "Name", listed.name)
    properties = ET.SubElement(blob, "Properties")
    said = {
        "Creation-Time": http_date(found.modified_ns),
        "Last-Modified": http_date(found.modified_ns),
        "Etag": found.etag.strip('"'),
        "ResourceType": "directory" if found.is_folder else "file",
        "Content-Length": str(found.size),
        "Content-Type": CONTENT_TYPE,
        "BlobType": "BlockBlob",
        "LeaseStatus": "unlocked",
        "LeaseState": "available",
        "ServerEncrypted": "true",
    }
    for name, value in said.items():
        ET.SubElement(properties, name).text = value
    if found.is_folder:
        ET.SubElement(ET.SubElement(blob, "Metadata"), "hdi_isfolder").text = "true"


def _text(above: ET.Element, name: str, text: str) -> None:
    """A name or prefix; percent-encoded, and marked so, where XML knows no such characters."""
    element = ET.SubElement(above, name)
    if any(letter < " " or "\x7f" <= letter <= "\x9f" or "\ufffe" <= letter <= "\uffff" for letter in text):
        element.set("Encoded", "true")
        text = quote(text, safe="/")
    element.text = text


def block_ids(document: bytes) -> list[str]:
    """The blocks that a block list names, in order.

    Raises:
        EndpointFault: INVALID_XML_DOCUMENT.
    """
    try:
        text = document.decode("utf-8-sig")
        if "<!" in text:  # a DOCTYPE (rule 9.6)
            raise StorageApiError(StorageErrorCode.INVALID_XML_DOCUMENT)
        root = ET.fromstring(text)  # noqa: S314 - nothing that declares entities comes this far
    except (ET.ParseError, ValueError) as problem:
        raise StorageApiError(StorageErrorCode.INVALID_XML_DOCUMENT) from problem
    if root.tag != "BlockList" or any(each.tag not in _BLOCK_KINDS for each in root):
        raise StorageApiError(StorageErrorCode.INVALID_XML_DOCUMENT, "It is no list of blocks.")
    return [(each.text or "").strip() for each in root]


_CREATED, _ACCEPTED, _OK = 201, 202, 200
_XML = "application/xml"
_ECHOED = {"prefix": "Prefix", "marker": "Marker", "maxresults": "MaxResults", "delimiter": "Delimiter"}


async def list_blobs(lake: Lake, call: LakeRequest) -> Response:
    """`GET /{ws}?restype=container&comp=list`; a page begins at `marker`, or at `startFrom`."""
    asked = Asked(
        prefix=call.query.get("prefix", ""),
        begin=call.query.get("marker") or call.query.get("startfrom", ""),
        most=min(call.number("maxresults", MAX_LISTED) or MAX_LISTED, MAX_LISTED),
        delimiter=call.query.get("delimiter", ""),
    )
    place = await quick(lake.address, call.raw_path)
    found = await quick(page, lake, place, asked)
    folders = [name for name, _ in found.entries if name.endswith(DELIMITER)]
    blobs = [each for name, each in found.entries if not name.endswith(DELIMITER)]
    echo = {name: call.query[word] for word, name in _ECHOED.items() if word in call.query}
    document = listing(place.written[0], echo, blobs, folders, found.following)
    return Response(document, media_type=f"{_XML};charset=utf-8")


async def put(lake: Lake, call: LakeRequest) -> Response:
    """Put Blob; with `x-ms-meta-hdi_isfolder: true` a folder."""
    if call.headers.get("x-ms-blob-type", "").lower() != "blockblob":
        raise StorageApiError(StorageErrorCode.INVALID_HEADER_VALUE, "x-ms-blob-type is not BlockBlob.")
    address, conditions = await quick(lake.destination, call.raw_path), Conditions.of(call.headers)
    if call.headers.get("x-ms-meta-hdi_isfolder", "").lower() == "true":
        return made(await quick(lake.create_folder, address, conditions))
    async with received(lake, call) as body:
        return made(await quick(lake.put, address, body, conditions))


async def put_block(lake: Lake, call: LakeRequest) -> Response:
    """`PUT ?comp=block&blockid=`."""
    if not call.query.get("blockid"):
        raise StorageApiError(StorageErrorCode.INVALID_QUERY_PARAMETER_VALUE, "blockid is missing.")
    address = await quick(lake.destination, call.raw_path)
    async with received(lake, call) as body:
        await quick(lake.put_block, address, call.query["blockid"], body)
    return Response(status_code=_CREATED, headers={"x-ms-request-server-encrypted": "true"})


async def put_block_list(lake: Lake, call: LakeRequest) -> Response:
    """`PUT ?comp=blocklist`."""
    address = await quick(lake.destination, call.raw_path)
    ids = block_ids(await small_body(call))
    return made(await quick(lake.put_block_list, address, ids, Conditions.of(call.headers)))


async def copy(lake: Lake, call: LakeRequest) -> Response:
    """`PUT` with `x-ms-copy-source`: done when it is answered."""
    source = await quick(source_of, lake, call, "x-ms-copy-source")
    target = await quick(lake.destination, call.raw_path)
    conditions = Conditions.of(call.headers), Conditions.of_source(call.headers)
    found = await quick(lake.copy, source, target, *conditions)
    headers = {**of_change(found), "x-ms-copy-id": str(uuid4()), "x-ms-copy-status": "success"}
    return Response(status_code=_ACCEPTED, headers=headers)


async def delete(lake: Lake, call: LakeRequest) -> Response:
    """`DELETE`: a file, or an empty folder."""
    address = await quick(lake.address, call.raw_path)
    await quick(lake.delete, address, Conditions.of(call.headers))
    return Response(status_code=_ACCEPTED, headers={"x-ms-delete-type-permanent": "true"})


async def set_metadata(lake: Lake, call: LakeRequest) -> Response:
    """`PUT ?comp=metadata|properties`."""
    address = await quick(lake.address, call.raw_path)
    return made(await quick(lake.set_metadata, address, Conditions.of(call.headers)), _OK)


async def account(lake: Lake, call: LakeRequest) -> Response:  # noqa: ARG001 - the same for all
    """`GET ?restype=account&comp=properties`."""
    known = {"x-ms-sku-name": "Standard_LRS", "x-ms-account-kind": "StorageV2", "x-ms-is-hns-enabled": "true"}
    return Response(headers=known)


async def managed(lake: Lake, call: LakeRequest) -> Response:  # noqa: ARG001 - refused whatever it is
    """A container made or deleted: Fabric alone does that."""
    raise StorageApiError(StorageErrorCode.MANAGED_FOLDER)


MAX_PARTS = 256
_ACCEPTED_batch, _REFUSED = 202, 400
_REASONS = {202: "Accepted", 400: "Bad Request", 403: "Forbidden", 404: "Not Found", 409: "Conflict", 412: "Failed"}
_WHY = "Either WorkspaceId or ArtifactId are missing in the request"


async def batch(lake: Lake, call: LakeRequest) -> Response:
    """`POST ?comp=batch`."""
    if lake.switches.blob_batch != "accept":
        body = json.dumps({"error": {"code": "BadRequest", "message": _WHY}})
        headers = {"x-ms-error-code": "BadRequest"}
        return Response(body, _REFUSED, headers, media_type="application/json")
    parts = _parts(call.headers.get("content-type", ""), await document(call))
    boundary = f"batchresponse_{uuid4()}"
    answers = [await quick(_deleted, lake, call, part) for part in parts]
    lines = "".join(f"--{boundary}\r\n{answer}\r\n" for answer in answers)
    body = f"{lines}--{boundary}--\r\n"
    return Response(body, _ACCEPTED_batch, media_type=f"multipart/mixed; boundary={boundary}")


def _parts(content_type: str, body: bytes) -> list[Message]:
    head = f"Content-Type: {content_type}\r\n\r\n".encode("latin-1", "replace")
    try:
        whole = BytesParser(policy=compat32).parsebytes(head + body)  # newer ones refuse a bare slash in a boundary
    except RecursionError:  # multipart in multipart in multipart
        raise StorageApiError(StorageErrorCode.BAD_REQUEST, "A batch holds requests, and no batches.") from None
    parts = whole.get_payload() if whole.is_multipart() else []
    found = [part for part in parts if isinstance(part, Message)]
    if not 0 < len(found) <= MAX_PARTS:
        raise StorageApiError(StorageErrorCode.BAD_REQUEST, "A batch holds 1 to 256 requests.")
    return found


def _deleted(lake: Lake, call: LakeRequest, part: Message) -> str:
    """Carry out one request of a batch, which must be a delete, and answer it."""
    try:
        lake.delete(lake.address(_target(part)))
        status, code = _ACCEPTED_batch, ""
    except StorageApiError as refused:
        status, code = refused.fault.status, refused.fault.blob_code
    headers = of_call(call) | ({"x-ms-error-code": code} if code else {"x-ms-delete-type-permanent": "true"})
    said = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    own = f"Content-ID: {part['Content-ID']}\r\n" if part["Content-ID"] else ""
    first = f"HTTP/1.1 {status} {_REASONS.get(status, 'Refused')}"
    return f"Content-Type: application/http\r\n{own}\r\n{first}\r\n{said}\r\n"


def _target(part: Message) -> bytes:
    payload = part.get_payload(decode=True)
    line = payload.split(b"\r\n", 1)[0].split() if isinstance(payload, bytes) else []
    if len(line) != len((b"DELETE", b"path", b"HTTP/1.1")) or line[0] != b"DELETE":
        raise StorageApiError(StorageErrorCode.BAD_REQUEST, "Only deletes go in a batch.")
    return line[1].partition(b"?")[0]
