"""Blob operations: list, put, blocks, copy, delete, batch."""

from __future__ import annotations

import base64
import json
from email.message import Message
from email.parser import BytesParser
from email.policy import compat32
from http import HTTPStatus
from secrets import token_bytes
from typing import TYPE_CHECKING
from urllib.parse import quote
from uuid import uuid4
from xml.etree import ElementTree as ET

from starlette.responses import Response

from mirror_engine.onelake.errors import ALLOWED_BY, StorageApiError, StorageErrorCode
from mirror_engine.onelake.requests import CONTENT_TYPE, SOURCE, VERSION, Conditions, changed, is_dfs, response_headers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror_engine.onelake.items import Address
    from mirror_engine.onelake.lake import Lake
    from mirror_engine.onelake.requests import LakeRequest, Properties
    from mirror_engine.onelake.store import StagedFile

DELIMITER = "/"
MAX_PARTS = 256
_ECHOED = {"prefix": "Prefix", "marker": "Marker", "maxresults": "MaxResults", "delimiter": "Delimiter"}
_BLOCK_KINDS = frozenset({"Latest", "Uncommitted", "Committed"})
_DELETED = {"x-ms-delete-type-permanent": "true"}


def list_blobs(lake: Lake, request: LakeRequest) -> Response:
    """List Blobs: `GET /{ws}?restype=container&comp=list`; a page begins at `marker`, or at `startFrom`."""
    query, limit = request.query, request.page_size
    delimiter, start_from = query.get("delimiter", ""), query.get("marker") or query.get("startfrom", "")
    if delimiter not in {"", DELIMITER}:
        raise StorageApiError(StorageErrorCode.InvalidQueryParameterValue, "The only delimiter is /.")
    place = lake.items.address(request.raw_path)
    blobs = _blobs(lake, place, query.get("prefix", ""), start_from, None if delimiter else limit + 1)
    root = ET.Element("EnumerationResults", ContainerName=place.written[0])  # with more, adlfs sees nothing
    for word, name in _ECHOED.items():
        if word in query:
            _text(root, name, query[word])
    listed = ET.SubElement(root, "Blobs")
    for name, properties in blobs[:limit]:
        if not name.endswith(DELIMITER):
            _blob(ET.SubElement(listed, "Blob"), name, properties)
    for name, _ in blobs[:limit]:
        if name.endswith(DELIMITER):
            _text(ET.SubElement(listed, "BlobPrefix"), "Name", name)
    _text(root, "NextMarker", blobs[limit][0] if len(blobs) > limit else "")
    return Response(ET.tostring(root, "utf-8", xml_declaration=True), media_type="application/xml;charset=utf-8")


def _blobs(
    lake: Lake, place: Address, prefix: str, start_from: str, limit: int | None
) -> Sequence[tuple[str, Properties]]:
    """Names that begin with a prefix, in order; without a limit those of one level, a folder's with the delimiter."""
    folder = lake.items.inside(place, prefix.rpartition(DELIMITER)[0])
    whole = f"{place.shown}/{prefix}" if place.shown else prefix
    try:
        paths = lake.list(folder, start_from if limit else "", recursive=bool(limit), prefix=whole, limit=limit)
    except StorageApiError as error:
        if error.code is StorageErrorCode.PathNotFound:
            return []
        raise
    if limit:
        return paths
    named = ((name + DELIMITER * properties.is_folder, properties) for name, properties in paths)
    return sorted((pair for pair in named if pair[0] >= start_from), key=lambda pair: pair[0])


def _blob(blob: ET.Element, name: str, properties: Properties) -> None:
    _text(blob, "Name", name)
    values = {
        "Creation-Time": properties.last_modified,
        "Last-Modified": properties.last_modified,
        "Etag": properties.etag.strip('"'),
        "ResourceType": "directory" if properties.is_folder else "file",
        "Content-Length": str(properties.size),
        "Content-Type": CONTENT_TYPE,
        "BlobType": "BlockBlob",
        "LeaseStatus": "unlocked",
        "LeaseState": "available",
        "ServerEncrypted": "true",
    }
    element = ET.SubElement(blob, "Properties")
    for key, value in values.items():
        ET.SubElement(element, key).text = value
    if properties.is_folder:
        ET.SubElement(ET.SubElement(blob, "Metadata"), "hdi_isfolder").text = "true"


def _text(parent: ET.Element, name: str, text: str) -> None:
    """A name or prefix; percent-encoded with `Encoded="true"` where XML cannot hold its characters."""
    element = ET.SubElement(parent, name)
    if any(letter < " " or "\x7f" <= letter <= "\x9f" or "\ufffe" <= letter <= "\uffff" for letter in text):
        element.set("Encoded", "true")
        text = quote(text, safe="/")
    element.text = text


def put(lake: Lake, request: LakeRequest, body: StagedFile) -> Response:
    """Put Blob; with `x-ms-meta-hdi_isfolder: true` a folder."""
    if request.headers.get("x-ms-blob-type", "").lower() != "blockblob":
        raise StorageApiError(StorageErrorCode.InvalidHeaderValue, "x-ms-blob-type is not BlockBlob.")
    address = lake.destination(request.raw_path)
    if request.headers.get("x-ms-meta-hdi_isfolder", "").lower() == "true":
        return changed(lake.create_folder(address, request.conditions))
    return changed(lake.put(address, body, request.conditions))


def put_block(lake: Lake, request: LakeRequest, body: StagedFile) -> Response:
    """Put Block: `PUT ?comp=block&blockid=`."""
    if not request.query.get("blockid"):
        raise StorageApiError(StorageErrorCode.InvalidQueryParameterValue, "blockid is missing.")
    lake.put_block(lake.destination(request.raw_path), request.query["blockid"], body)
    return Response(status_code=201, headers={"x-ms-request-server-encrypted": "true"})


def put_block_list(lake: Lake, request: LakeRequest, document: bytes) -> Response:
    """Put Block List: `PUT ?comp=blocklist`; InvalidXmlDocument."""
    root = _parsed(document)
    if root.tag != "BlockList" or any(block.tag not in _BLOCK_KINDS for block in root):
        raise StorageApiError(StorageErrorCode.InvalidXmlDocument, "It is not a block list.")
    block_ids = [(block.text or "").strip() for block in root]
    return changed(lake.put_block_list(lake.destination(request.raw_path), block_ids, request.conditions))


def _parsed(document: bytes) -> ET.Element:
    try:
        text = document.decode("utf-8-sig")
        if "<!" in text:  # a DOCTYPE could declare entities
            raise StorageApiError(StorageErrorCode.InvalidXmlDocument)
        return ET.fromstring(text)  # noqa: S314 - without a DOCTYPE there are no entities
    except (ET.ParseError, ValueError) as problem:
        raise StorageApiError(StorageErrorCode.InvalidXmlDocument) from problem


def user_delegation_key(_: Lake, __: LakeRequest, document: bytes) -> Response:
    """Get User Delegation Key: `POST /?restype=service&comp=userdelegationkey`; no signature is checked."""
    asked = _parsed(document)
    if asked.tag != "KeyInfo" or not asked.findtext("Expiry"):
        raise StorageApiError(StorageErrorCode.InvalidXmlDocument, "It is not a KeyInfo with an Expiry.")
    values = {
        "SignedOid": str(uuid4()),
        "SignedTid": str(uuid4()),
        "SignedStart": asked.findtext("Start") or "",
        "SignedExpiry": asked.findtext("Expiry") or "",
        "SignedService": "b",
        "SignedVersion": VERSION,
        "Value": base64.b64encode(token_bytes(32)).decode(),
    }
    root = ET.Element("UserDelegationKey")
    for name, text in values.items():
        ET.SubElement(root, name).text = text
    return Response(ET.tostring(root, "utf-8", xml_declaration=True), media_type="application/xml")


def copy(lake: Lake, request: LakeRequest) -> Response:
    """Copy Blob, and Put Blob From URL: `PUT` with `x-ms-copy-source`; complete when it is answered."""
    source, target = request.source(lake.items, "x-ms-copy-source"), lake.destination(request.raw_path)
    properties = lake.copy(source, target, request.conditions, Conditions.of(request.headers, SOURCE))
    status = 201 if "x-ms-blob-type" in request.headers else 202
    return changed(properties, status, {"x-ms-copy-id": str(uuid4()), "x-ms-copy-status": "success"})


def delete(lake: Lake, request: LakeRequest) -> Response:
    """Path Delete: `DELETE [?recursive=true]`; Delete Blob: a file, or an empty folder."""
    is_path = is_dfs(request)
    recursive = is_path and request.flag("recursive")
    lake.delete(lake.items.address(request.raw_path), request.conditions, recursive=recursive)
    return Response(status_code=200) if is_path else Response(status_code=202, headers=_DELETED)


def account_properties(_: Lake, __: LakeRequest) -> Response:
    """Get Account Information: `GET ?restype=account&comp=properties`."""
    headers = {"x-ms-sku-name": "Standard_LRS", "x-ms-account-kind": "StorageV2", "x-ms-is-hns-enabled": "true"}
    return Response(headers=headers)


def batch(lake: Lake, request: LakeRequest, body: bytes) -> Response:
    """Blob Batch: `POST ?comp=batch`; rejected as OneLake does, unless `blob_batch` is `accept`."""
    if lake.options.blob_batch != "accept":
        code = StorageErrorCode.ArtifactIdMissing
        rejection = json.dumps({"error": {"code": code.blob_code, "message": code.message}})
        headers = {"x-ms-error-code": code.blob_code, ALLOWED_BY: "--blob-batch accept"}
        return Response(rejection, code.status, headers, media_type="application/json")
    head = f"Content-Type: {request.headers.get('content-type', '')}\r\n\r\n".encode("latin-1", "replace")
    try:
        message = BytesParser(policy=compat32).parsebytes(head + body)  # newer policies reject a `/` in a boundary
    except RecursionError:  # nested multipart
        raise StorageApiError(StorageErrorCode.BadRequest, "A batch cannot hold batches.") from None
    payload = message.get_payload() if message.is_multipart() else []
    parts = [part for part in payload if isinstance(part, Message)]
    if not 0 < len(parts) <= MAX_PARTS:
        raise StorageApiError(StorageErrorCode.BadRequest, "A batch holds 1 to 256 requests.")
    boundary = f"batchresponse_{uuid4()}"
    lines = "".join(f"--{boundary}\r\n{_delete_part(lake, request, part)}\r\n" for part in parts)
    return Response(f"{lines}--{boundary}--\r\n", 202, media_type=f"multipart/mixed; boundary={boundary}")


def _delete_part(lake: Lake, request: LakeRequest, part: Message) -> str:
    """Execute one request of a batch, which must be a delete; its answer."""
    payload = part.get_payload(decode=True)
    try:
        match payload.split(b"\r\n", 1)[0].split() if isinstance(payload, bytes) else []:
            case [b"DELETE", target, _]:
                lake.delete(lake.items.address(bytes(target.partition(b"?")[0])))
            case _:
                raise StorageApiError(StorageErrorCode.BadRequest, "Only deletes go in a batch.")  # noqa: TRY301
        status, headers = 202, _DELETED
    except StorageApiError as error:
        status, headers = error.code.status, {"x-ms-error-code": error.code.blob_code}
    lines = "".join(f"{name}: {value}\r\n" for name, value in {**response_headers(request), **headers}.items())
    content_id = f"Content-ID: {part['Content-ID']}\r\n" if part["Content-ID"] else ""
    first = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"
    return f"Content-Type: application/http\r\n{content_id}\r\n{first}\r\n{lines}\r\n"
