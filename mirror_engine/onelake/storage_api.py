"""OneLake's storage API: the operations of DFS and Blob, which requests ask for them, and their answers."""

from __future__ import annotations

import base64
import hashlib
import json
from contextlib import suppress
from email.message import Message
from email.parser import BytesParser
from email.policy import compat32
from functools import partial
from http import HTTPStatus
from secrets import token_bytes
from typing import TYPE_CHECKING, Literal, NamedTuple
from urllib.parse import quote, unquote_to_bytes
from uuid import uuid4
from xml.etree import ElementTree as ET

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from mirror_engine.errors import StorageUnavailable
from mirror_engine.onelake import requests
from mirror_engine.onelake.addresses import address_below, address_of, segments_of
from mirror_engine.onelake.conditions import SOURCE, Conditions
from mirror_engine.onelake.errors import ALLOWED_BY, StorageApiError, StorageErrorCode
from mirror_engine.onelake.faults import FaultedApi
from mirror_engine.onelake.requests import LEASE, LakeRequest, changed, is_dfs, path_headers

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from starlette.types import ASGIApp, Receive, Scope, Send

    from mirror_engine.onelake.addresses import Address
    from mirror_engine.onelake.conditions import Properties
    from mirror_engine.onelake.lake import Lake
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
DELIMITER = "/"
COPY_SOURCE = "x-ms-copy-source"
MAX_PARTS, MAX_LINES = 256, 16_384  # of a batch
MAX_DEPTH, MAX_ELEMENTS, MAX_QUOTES = 2, 50_000, 1000  # of an XML document; a block list has as many blocks in Azure
FED_CHARACTERS = 16 * 1024  # of an XML document at once
MAX_BLOCK_ID_BYTES = 64  # Azure's limit
_ECHOED = {"prefix": "Prefix", "marker": "Marker", "maxresults": "MaxResults", "delimiter": "Delimiter"}
_BLOCK_KINDS = frozenset({"Latest", "Uncommitted", "Committed"})
_DELETED = {"x-ms-delete-type-permanent": "true"}
CHALLENGE = 'Bearer authorization_uri="https://login.microsoftonline.com/common", error="invalid_token"'
_OF_FAULTS = {
    "401": StorageErrorCode.Unauthorized,
    "409": StorageErrorCode.PathIsInUse,
    "429": StorageErrorCode.TooManyRequests,
    "503": StorageErrorCode.ServerBusy,
}


def _create(lake: Lake, request: LakeRequest) -> Response:
    resource = request.query["resource"].lower()
    if resource == "filesystem":
        raise StorageApiError(StorageErrorCode.ArtifactIdMissing)
    if resource not in {"directory", "file"}:
        raise StorageApiError(StorageErrorCode.InvalidQueryParameterValue, "resource is neither file nor directory.")
    _check_no_body(request)
    create_path = lake.create_folder if resource == "directory" else lake.create_file
    return changed(create_path(lake.destination(request.raw_path), request.conditions))


def _append(lake: Lake, request: LakeRequest, body: StagedFile) -> Response:
    address, position = address_of(lake.items, request.raw_path), request.number("position")
    flushes = request.flag("flush")
    properties = lake.append(address, position, body)
    if flushes:
        properties = lake.flush(address, position + body.size, request.conditions)
    return changed(properties, 202)


def _flush(lake: Lake, request: LakeRequest) -> Response:
    _check_no_body(request)
    address = address_of(lake.items, request.raw_path)
    position, retains = request.number("position"), request.flag("retainuncommitteddata")
    return changed(lake.flush(address, position, request.conditions, retains=retains), 200)


def _rename(lake: Lake, request: LakeRequest) -> Response:
    source, target = request.source(lake.items, "x-ms-rename-source"), lake.destination(request.raw_path)
    return changed(lake.rename(source, target, request.conditions, Conditions.of(request.headers, SOURCE)))


def _set_properties(lake: Lake, request: LakeRequest) -> Response:
    """Path Update: `PATCH ?action=setProperties`; Set Blob Metadata and Properties: `PUT ?comp=metadata|properties`."""
    return changed(lake.set_metadata(address_of(lake.items, request.raw_path), request.conditions), 200)


def _lease(lake: Lake, request: LakeRequest) -> Response:
    properties = lake.properties(address_of(lake.items, request.raw_path))
    status = _LEASE_STATUSES.get(request.headers.get(LEASE, "").lower())
    if status is None:
        raise StorageApiError(StorageErrorCode.InvalidHeaderValue, f"{LEASE} is unknown.")
    proposed = request.headers.get("x-ms-proposed-lease-id") or request.headers.get("x-ms-lease-id") or ""
    lease_id = proposed if proposed.isascii() and proposed.isprintable() and proposed else str(uuid4())
    return changed(properties, status, {"x-ms-lease-id": lease_id, "x-ms-lease-time": "0"})


def _list_paths(lake: Lake, request: LakeRequest) -> Response:
    """Path List: `GET {any depth}?resource=filesystem`; names relative to the workspace, in order.

    `beginFrom` is a path in the folder, inclusive.
    """
    limit = request.page_size
    folder = address_below(lake.items, address_of(lake.items, request.raw_path), request.query.get("directory", ""))
    start_from = _continued(request.query.get("continuation", ""), f"{folder.shown}/".lstrip("/"))
    if begin_from := request.query.get("beginfrom"):
        start_from = start_from or f"{folder.shown}/{begin_from}".lstrip("/")
    paths = lake.list(folder, start_from, recursive=request.flag("recursive"), limit=limit + 1)
    response = JSONResponse({"paths": [_path_json(*path) for path in paths[:limit]]})
    if len(paths) > limit:
        response.headers["x-ms-continuation"] = base64.urlsafe_b64encode(paths[limit][0].encode()).decode()
    return response


def _continued(token: str, above: str) -> str:
    """The name of a path with which a page begins, below a folder; `""` for the first; InvalidQueryParameterValue."""
    with suppress(ValueError):
        name = base64.b64decode(token.encode(), altchars=b"-_", validate=True).decode()
        if not token or name.startswith(above):
            return name
    message = "continuation is not a token of this list."
    raise StorageApiError(StorageErrorCode.InvalidQueryParameterValue, message)


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


def _get_properties(lake: Lake, request: LakeRequest) -> Response:
    """Path Get Properties, Get Blob Properties: `HEAD`; of no path with a slash at its end (dlt #3866, #4301)."""
    address = address_of(lake.items, request.raw_path)
    if address.item and unquote_to_bytes(request.raw_path).endswith(b"/"):
        raise StorageApiError(StorageErrorCode.AuthenticationFailed)
    properties = lake.properties(address)
    request.conditions.check_read(properties)
    return Response(headers={**path_headers(properties), "Content-Length": str(properties.size)})


def _get_filesystem_properties(lake: Lake, request: LakeRequest) -> Response:
    properties = lake.properties(address_of(lake.items, request.raw_path))
    return Response(headers={**path_headers(properties), **_FILESYSTEM})


def _read(lake: Lake, request: LakeRequest) -> Response:
    """Path Read, Get Blob: a file's bytes, or a range of them."""
    properties, file = lake.read(address_of(lake.items, request.raw_path), request.conditions)
    try:
        part = requests.requested_range(request.headers, properties.size)
    except BaseException:
        file.close()
        raise
    start, end = part or (0, properties.size)
    headers = {**path_headers(properties), "Content-Length": str(end - start)}
    if part:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{properties.size}"
    return StreamingResponse(requests.file_chunks(file, start, end - start), 206 if part else 200, headers)


def _check_no_body(request: LakeRequest) -> None:
    if not request.is_empty:
        raise StorageApiError(StorageErrorCode.ContentLengthMustBeZero)


def _list_blobs(lake: Lake, request: LakeRequest) -> Response:
    """List Blobs: `GET /{ws}?restype=container&comp=list`; a page begins at `marker`, or at `startFrom`."""
    query, limit = request.query, request.page_size
    delimiter, start_from = query.get("delimiter", ""), query.get("marker") or query.get("startfrom", "")
    if delimiter not in {"", DELIMITER}:
        raise StorageApiError(StorageErrorCode.InvalidQueryParameterValue, "The only delimiter is /.")
    place = address_of(lake.items, request.raw_path)
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
    folder = address_below(lake.items, place, prefix.rpartition(DELIMITER)[0])
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
        "Content-Type": requests.CONTENT_TYPE,
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


def _put(lake: Lake, request: LakeRequest, body: StagedFile) -> Response:
    """Put Blob; with `x-ms-meta-hdi_isfolder: true` a folder."""
    if request.headers.get("x-ms-blob-type", "").lower() != "blockblob":
        raise StorageApiError(StorageErrorCode.InvalidHeaderValue, "x-ms-blob-type is not BlockBlob.")
    address = lake.destination(request.raw_path)
    if request.headers.get("x-ms-meta-hdi_isfolder", "").lower() == "true":
        return changed(lake.create_folder(address, request.conditions))
    return changed(lake.put(address, body, request.conditions))


def _put_block(lake: Lake, request: LakeRequest, body: StagedFile) -> Response:
    """Put Block, and Put Block From URL: `PUT ?comp=block`, with `x-ms-copy-source` and a range of it."""
    _check_block_id(request.query.get("blockid"))
    target = lake.destination(request.raw_path)
    if COPY_SOURCE in request.headers:
        _check_no_body(request)
        source, conditions = request.source(lake.items, COPY_SOURCE), Conditions.of(request.headers, SOURCE)
        properties, reader = lake.read_source(source, conditions)
        with reader:
            asked = request.headers.get("x-ms-source-range")
            part = requests.requested_range({"x-ms-range": asked or ""}, properties.size)
            if asked and part is None:  # else the whole file would become this block
                raise StorageApiError(StorageErrorCode.InvalidHeaderValue, "x-ms-source-range is not a range of bytes.")
            start, end = part or (0, properties.size)
            requests.copy_part(reader, start, end, body)
    lake.put_block(target, request.query["blockid"], body)
    return Response(status_code=201, headers={"x-ms-request-server-encrypted": "true"})


def _check_block_id(text: str | None) -> None:
    if text is None:
        raise StorageApiError(StorageErrorCode.MissingRequiredQueryParameter, "blockid is missing.")
    try:
        is_valid = 0 < len(base64.b64decode(text, validate=True)) <= MAX_BLOCK_ID_BYTES
    except ValueError:
        is_valid = False
    if not is_valid:
        message = "blockid is not Base64 of 1 to 64 bytes."
        raise StorageApiError(StorageErrorCode.InvalidQueryParameterValue, message)


def _put_block_list(lake: Lake, request: LakeRequest, document: _Document) -> Response:
    """Put Block List: `PUT ?comp=blocklist`; InvalidXmlDocument."""
    if document.root != "BlockList" or any(kind not in _BLOCK_KINDS for kind, _ in document.texts):
        raise StorageApiError(StorageErrorCode.InvalidXmlDocument, "It is not a block list.")
    block_ids = [text.strip() for _, text in document.texts]
    return changed(lake.put_block_list(lake.destination(request.raw_path), block_ids, request.conditions))


class _Document:
    """An XML document of two levels, the deepest that clients send: its root and the texts of the elements in it."""

    def __init__(self) -> None:
        self.root = ""
        self.texts: list[tuple[str, str]] = []  # each element's name and text
        self._depth = 0
        self._text: list[str] = []

    def start(self, name: str, _: object) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH or len(self.texts) >= MAX_ELEMENTS:
            raise ValueError(name)
        self.root = self.root or name
        self._text.clear()

    def data(self, text: str) -> None:
        self._text.append(text)

    def end(self, name: str) -> None:
        self._depth -= 1
        if self._depth:
            self.texts.append((name, "".join(self._text)))
        self._text.clear()


def _parsed(document: bytearray) -> _Document:
    """Parse XML; InvalidXmlDocument, also where it is deeper or has more elements or attributes than clients send."""
    parsed = None
    with suppress(ET.ParseError, ValueError):  # dropped, as it holds the document
        parsed = _document(document.decode("utf-8-sig"))
    if parsed is None:
        raise StorageApiError(StorageErrorCode.InvalidXmlDocument)
    return parsed


def _document(text: str) -> _Document:
    """Parse XML; ValueError, ParseError."""
    # a DOCTYPE could declare entities; attributes take far more memory than their bytes
    if "<!" in text or text.count('"') + text.count("'") > MAX_QUOTES:
        raise ValueError
    parsed = _Document()
    parser = ET.XMLParser(target=parsed)  # noqa: S314 - without a DOCTYPE there are no entities
    for start in range(0, len(text), FED_CHARACTERS):  # what is refused ends with the piece, not with the text
        parser.feed(text[start : start + FED_CHARACTERS])
    parser.close()
    return parsed


def _user_delegation_key(_: Lake, __: LakeRequest, document: _Document) -> Response:
    """Get User Delegation Key: `POST /?restype=service&comp=userdelegationkey`; no signature is checked."""
    asked = dict(document.texts)
    if document.root != "KeyInfo" or not asked.get("Expiry"):
        raise StorageApiError(StorageErrorCode.InvalidXmlDocument, "It is not a KeyInfo with an Expiry.")
    values = {
        "SignedOid": str(uuid4()),
        "SignedTid": str(uuid4()),
        "SignedStart": asked.get("Start", ""),
        "SignedExpiry": asked["Expiry"],
        "SignedService": "b",
        "SignedVersion": requests.VERSION,
        "Value": base64.b64encode(token_bytes(32)).decode(),
    }
    root = ET.Element("UserDelegationKey")
    for name, text in values.items():
        ET.SubElement(root, name).text = text
    return Response(ET.tostring(root, "utf-8", xml_declaration=True), media_type="application/xml")


def _copy(lake: Lake, request: LakeRequest) -> Response:
    """Copy Blob, and Put Blob From URL: `PUT` with `x-ms-copy-source`; complete when it is answered."""
    source, target = request.source(lake.items, COPY_SOURCE), lake.destination(request.raw_path)
    properties = lake.copy(source, target, request.conditions, Conditions.of(request.headers, SOURCE))
    status = 201 if "x-ms-blob-type" in request.headers else 202
    return changed(properties, status, {"x-ms-copy-id": str(uuid4()), "x-ms-copy-status": "success"})


def _delete(lake: Lake, request: LakeRequest) -> Response:
    """Path Delete: `DELETE [?recursive=true]`; Delete Blob: a file, or an empty folder."""
    is_path = is_dfs(request)
    recursive = is_path and request.flag("recursive")
    lake.delete(address_of(lake.items, request.raw_path), request.conditions, recursive=recursive)
    return Response(status_code=200) if is_path else Response(status_code=202, headers=_DELETED)


def _account_properties(_: Lake, __: LakeRequest) -> Response:
    headers = {"x-ms-sku-name": "Standard_LRS", "x-ms-account-kind": "StorageV2", "x-ms-is-hns-enabled": "true"}
    return Response(headers=headers)


def _batch(lake: Lake, request: LakeRequest, body: bytearray) -> Response:
    """Blob Batch: `POST ?comp=batch`; rejected as OneLake does, unless `blob_batch` is `accept`."""
    if lake.options.blob_batch != "accept":
        code = StorageErrorCode.ArtifactIdMissing
        rejection = json.dumps({"error": {"code": code.blob_code, "message": code.message}})
        headers = {"x-ms-error-code": code.blob_code, ALLOWED_BY: "--blob-batch accept"}
        return Response(rejection, code.status, headers, media_type="application/json")
    if body.count(b"\n") + body.count(b"\r") > MAX_LINES:
        raise StorageApiError(StorageErrorCode.BadRequest, "A batch holds 1 to 256 requests.")
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
                lake.delete(address_of(lake.items, bytes(target.partition(b"?")[0])))
            case _:
                raise StorageApiError(StorageErrorCode.BadRequest, "Only deletes go in a batch.")  # noqa: TRY301
        status, headers = 202, _DELETED
    except StorageApiError as error:
        status, headers = error.code.status, {"x-ms-error-code": error.code.blob_code}
    lines = "".join(f"{name}: {value}\r\n" for name, value in {**requests.response_headers(request), **headers}.items())
    content_id = f"Content-ID: {part['Content-ID']}\r\n" if part["Content-ID"] else ""
    first = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"
    return f"Content-Type: application/http\r\n{content_id}\r\n{first}\r\n{lines}\r\n"


class _Operation(NamedTuple):
    """Which requests ask for it, and what answers them on a worker thread."""

    methods: str  # with a blank between them
    marks: str  # headers, query parameters, or some with their values, of which it has one; "" for any
    run: Callable[..., Response]  # gets lake, request, and the body where it takes one
    name: str = ""  # in fault rules; "" where none names it
    takes: Literal["", "bytes", "xml", "staged"] = ""  # the form of the body: none, all its bytes, XML, a staged file

    async def __call__(self, lake: Lake, request: LakeRequest) -> Response:
        match self.takes:
            case "":
                return await run_in_threadpool(self.run, lake, request)
            case "bytes":
                async with request.documents.read(request.body) as content:
                    return await run_in_threadpool(self.run, lake, request, content)
            case "xml":
                async with request.documents.read(request.body) as content:
                    document = await run_in_threadpool(_parsed, content)
                return await run_in_threadpool(self.run, lake, request, document)
        announced, md5 = _content_md5(request), hashlib.md5(usedforsecurity=False)
        with await run_in_threadpool(lake.receive) as body:
            async for chunk in request.body:
                await run_in_threadpool(body.write, chunk)
                if announced:
                    md5.update(chunk)
            if announced and announced != md5.digest():
                raise StorageApiError(StorageErrorCode.Md5Mismatch)
            return await run_in_threadpool(self.run, lake, request, body)


def _content_md5(request: LakeRequest) -> bytes:
    """The digest that `Content-MD5` announces; `b""` where it is absent. InvalidMd5."""
    text = request.headers.get("content-md5", "")
    with suppress(ValueError):
        digest = base64.b64decode(text, validate=True)
        if len(digest) in {0, hashlib.md5(usedforsecurity=False).digest_size}:
            return digest
    raise StorageApiError(StorageErrorCode.InvalidMd5)


def _refusal(code: StorageErrorCode, message: str = "") -> Callable[..., Response]:
    def refuse(*_: object) -> Response:
        raise StorageApiError(code, message)

    return refuse


_ANY = "PUT PATCH POST"  # Hadoop's client sends actions by PUT, too
_UNSUPPORTED = _refusal(StorageErrorCode.UnsupportedQueryParameter)
_FABRIC_S = _refusal(StorageErrorCode.ArtifactIdMissing)  # only Fabric creates and deletes workspaces
_UNMARKED = _refusal(StorageErrorCode.MissingRequiredHeader, "Both resource and x-ms-blob-type are missing.")
_OPERATIONS = (  # the first counts
    _Operation("POST", "?comp=batch", _batch, "batch", "bytes"),
    _Operation("POST", "?comp=userdelegationkey", _user_delegation_key, takes="xml"),
    _Operation("POST", LEASE, _lease, "lease"),
    _Operation("PUT", "x-ms-rename-source", _rename, "rename"),
    _Operation("PUT", "?resource", _create, "create"),
    _Operation(_ANY, "?action=append", _append, "append", "staged"),
    _Operation(_ANY, "?action=flush", _flush, "flush"),
    _Operation(_ANY, "?action=setproperties", _set_properties, "metadata"),
    _Operation(_ANY, "?action", _UNSUPPORTED),
    _Operation("PUT DELETE", "?restype=container ?restype=account", _FABRIC_S),
    _Operation("DELETE", "?resource=filesystem", _FABRIC_S),
    _Operation("PUT", "?comp=block", _put_block, "block", "staged"),
    _Operation("PUT", "?comp=blocklist", _put_block_list, "blocklist", "xml"),
    _Operation("PUT", "?comp=metadata ?comp=properties", _set_properties, "metadata"),
    _Operation("PUT", "?comp=lease", _lease, "lease"),
    _Operation("PUT DELETE", "?comp", _UNSUPPORTED),
    _Operation("PUT", COPY_SOURCE, _copy, "copy"),
    _Operation("PUT", "x-ms-blob-type", _put, "put", "staged"),
    _Operation("PUT", "", _UNMARKED),
    _Operation("PATCH", "", _UNSUPPORTED),
    _Operation("DELETE", "", _delete, "delete"),
    _Operation("GET", "?resource=filesystem", _list_paths, "list"),
    _Operation("GET HEAD", "?restype=account", _account_properties),
    _Operation("GET", "?comp=list", _list_blobs, "list"),
    _Operation("GET", "?comp", _UNSUPPORTED),  # no block lists, no tags
    _Operation("GET HEAD", "?restype=container ?resource=filesystem", _get_filesystem_properties),
    _Operation("GET", "", _read, "read"),
    _Operation("HEAD", "", _get_properties, "head"),
)


def _operation_of(request: LakeRequest) -> _Operation:
    """The operation that a request asks for; UnsupportedHttpVerb where there is none."""
    values = [f"?{name}={text.lower()}" for name, text in request.query.items()]
    marks = {*request.headers, *(f"?{name}" for name in request.query), *values}
    for operation in _OPERATIONS:
        wanted = operation.marks.split()
        if request.method in operation.methods.split() and (not wanted or not marks.isdisjoint(wanted)):
            return operation
    raise StorageApiError(StorageErrorCode.UnsupportedHttpVerb)


def onelake_app(lake: Lake) -> ASGIApp:
    """The ASGI application for OneLake: both dialects over one lake."""
    documents = requests.Documents()

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        response = await _response(lake, LakeRequest.of(Request(scope, receive), documents))
        await response(scope, receive, send)

    def poll(scope: Scope) -> None:
        if item := address_of(lake.items, LakeRequest.of(Request(scope)).raw_path).item:
            lake.options.poll(item)

    return FaultedApi(answer, lake.options, partial(_target, lake), _refused_by_fault, poll)


async def _response(lake: Lake, request: LakeRequest) -> Response:
    try:
        response = await _operation_of(request)(lake, request)
    except StorageApiError as error:
        return _refused(request, error)
    except StorageUnavailable as problem:
        return _refused(request, StorageApiError(StorageErrorCode.ServerBusy, str(problem)))
    for name, value in requests.response_headers(request).items():
        response.headers.setdefault(name, value)
    return response


def _refused(request: LakeRequest, error: StorageApiError) -> Response:
    code = error.code.dfs_code if is_dfs(request) else error.code.blob_code
    return requests.error_response(request, error.code.status, code, f"{error}\nRequestId:{request.id}", error.headers)


def _target(lake: Lake, scope: Scope) -> tuple[str, str, Collection[str]] | None:
    """Method, path and names of a request in fault rules; an append that flushes has two names."""
    request = LakeRequest.of(Request(scope))
    try:
        names = {_operation_of(request).name}
        path = "/".join(segments_of(request.raw_path)) if request.raw_path.strip(b"/") else ""  # the account itself
        if names == {"create"} and request.query["resource"].lower() == "directory":
            names = {"folder"}
        elif names == {"append"} and request.flag("flush"):
            names = {"append", "flush"}
        elif names == {"delete"}:
            with suppress(StorageApiError):
                if lake.properties(address_of(lake.items, request.raw_path)).is_folder:
                    names = {"drop"}
    except (StorageApiError, StorageUnavailable):
        return None  # it is refused
    return request.method, path, names


def _refused_by_fault(scope: Scope, status: str, headers: Mapping[str, str]) -> Response:
    code = _OF_FAULTS[status]
    message = ""
    if code is StorageErrorCode.Unauthorized:
        message, headers = "The token has expired.", {"WWW-Authenticate": CHALLENGE}
    return _refused(LakeRequest.of(Request(scope)), StorageApiError(code, message, headers))
