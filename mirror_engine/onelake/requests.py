"""Storage requests, the operations they ask for, and what all answers share: dialect, headers, error bodies."""

from __future__ import annotations

import asyncio
import re
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit
from uuid import uuid4
from xml.etree import ElementTree as ET

from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from mirror_engine.onelake.addresses import address_of
from mirror_engine.onelake.conditions import Conditions
from mirror_engine.onelake.errors import StorageApiError, StorageErrorCode
from mirror_engine.onelake.hosts import BLOB, DFS, LOOPBACK_HOSTS, host_of, is_served

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from starlette.requests import Request

    from mirror_engine.onelake.addresses import Address
    from mirror_engine.onelake.conditions import Properties
    from mirror_engine.onelake.items import Items
    from mirror_engine.onelake.store import StagedFile

LEASE = "x-ms-lease-action"
_RANGE = re.compile(r"\s*bytes\s*=\s*([0-9]{0,19})\s*-\s*([0-9]{0,19})\s*", re.IGNORECASE)
VERSION = "2021-06-08"
CONTENT_TYPE = "application/octet-stream"
MAX_TEXT_BYTES = 4 * 1024**2  # of a body that is read as a whole: XML, JSON, batches
MAX_HELD_BYTES = 64 * 1024**2  # of all such bodies at once
SMALL_BYTES = 64 * 1024  # of a body that waits for no other
CHUNK_BYTES = 1 << 20
MAX_LISTED = 5000
_OVERRIDABLE = frozenset({"PUT", "POST", "PATCH", "DELETE"})
_OVERRIDES = ("x-http-method-override", "x-http-method")  # how Hadoop's client sends PATCH
_IGNORED = ("x-ms-owner", "x-ms-group", "x-ms-permissions", "x-ms-acl", "x-ms-access-tier")
_MAX_ECHO = 1024
_ABSENT = frozenset(
    {StorageErrorCode.WorkspaceNotFound, StorageErrorCode.ArtifactNotFound, StorageErrorCode.PathNotFound}
)


def requested_range(headers: Mapping[str, str], size: int) -> tuple[int, int] | None:
    """Start and end of the range in `x-ms-range`, which wins, or `Range`; None for the whole file.

    A header that is not a single byte range is ignored, as HTTP demands. InvalidRange past the end of `size` bytes.
    """
    match = _RANGE.fullmatch(headers.get("x-ms-range") or headers.get("range") or "")
    if match is None or match.groups() == ("", ""):
        return None
    first, last = match.groups()
    if first and last and int(last) < int(first):
        return None
    start = int(first) if first else max(size - int(last), 0)
    end = min(int(last) + 1, size) if first and last else size
    if start >= end:
        raise StorageApiError(StorageErrorCode.InvalidRange, headers={"Content-Range": f"bytes */{size}"})
    return start, end


@dataclass(frozen=True)
class LakeRequest:
    """A storage request."""

    method: str  # with `X-HTTP-Method-Override` applied
    host: str  # without a port, in lower case
    raw_path: bytes  # as sent, percent-encoded, without the query
    query: Mapping[str, str]  # decoded, by name in lower case; a plus is a blank, as Azure reads it
    headers: Mapping[str, str]  # by name in lower case
    body: AsyncIterator[bytes]  # its chunks as they arrive
    documents: Documents  # reads a body as a whole
    id: str = field(default_factory=lambda: str(uuid4()))  # a GUID for the answer

    @staticmethod
    def of(request: Request, documents: Documents | None = None) -> LakeRequest:
        scope = request.scope
        headers = {name.lower(): value for name, value in request.headers.items()}
        override = next((headers[name].upper() for name in _OVERRIDES if name in headers), "")
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        return LakeRequest(
            method=override if {override, request.method} <= _OVERRIDABLE else request.method,
            host=host_of(scope["headers"]) or "",
            raw_path=scope.get("raw_path") or scope["path"].encode(),
            query={name.lower(): value for name, value in reversed(query)},
            headers=headers,
            body=request.stream(),
            documents=documents or Documents(),
        )

    @property
    def is_empty(self) -> bool:
        return int(self.headers.get("content-length", 0)) == 0 and "transfer-encoding" not in self.headers

    @property
    def conditions(self) -> Conditions:
        return Conditions.of(self.headers)

    def flag(self, name: str) -> bool:
        """A boolean query parameter, false by default; InvalidQueryParameterValue."""
        text = self.query.get(name, "").lower()
        if text not in {"", "true", "false"}:
            raise StorageApiError(StorageErrorCode.InvalidQueryParameterValue, f"{name} is neither true nor false.")
        return text == "true"

    @property
    def page_size(self) -> int:
        """The most entries of a listing's page; OutOfRangeQueryParameterValue for 0."""
        if "maxresults" not in self.query:
            return MAX_LISTED
        if number := self.number("maxresults"):
            return min(number, MAX_LISTED)
        raise StorageApiError(StorageErrorCode.OutOfRangeQueryParameterValue, "maxresults is 1 or more.")

    def number(self, name: str) -> int:
        """A query parameter that is a whole number, 0 or more.

        MissingRequiredQueryParameter, InvalidQueryParameterValue.
        """
        if name not in self.query:
            raise StorageApiError(StorageErrorCode.MissingRequiredQueryParameter, f"{name} is missing.")
        text = self.query[name]
        if not (text.isascii() and text.isdigit()) or len(text) > len(str(1 << 63)):
            raise StorageApiError(StorageErrorCode.InvalidQueryParameterValue, f"{name} is not a whole number.")
        return int(text)

    def source(self, items: Items, header: str) -> Address:
        """The address in `x-ms-rename-source` or `x-ms-copy-source`: InvalidSourceUri, SourcePathNotFound.

        It is `/ws/…`, `/onelake/ws/…` or a URL of a served host; its query is ignored.
        """
        text = self.headers[header]
        if text.startswith("/"):  # `//` is an empty segment here, not a host
            path = text.partition("?")[0]
        else:
            try:
                url = urlsplit(text)
                host = (url.hostname or "").lower()
            except ValueError as problem:
                raise StorageApiError(StorageErrorCode.InvalidSourceUri) from problem
            is_foreign = not is_served(host) and host not in {self.host, *LOOPBACK_HOSTS}
            if (url.scheme or url.netloc) and is_foreign:
                raise StorageApiError(StorageErrorCode.InvalidSourceUri, "The source is on another host.")
            path = url.path
        try:
            return address_of(items, path.encode("latin-1"))  # clients may send UTF-8 that is not percent-encoded
        except StorageApiError as error:
            if error.code in _ABSENT:
                raise StorageApiError(StorageErrorCode.SourcePathNotFound) from None
            raise


def response_headers(request: LakeRequest) -> dict[str, str]:
    """Headers of every answer: request id, version, client request id, names of ignored headers."""
    headers = {"x-ms-request-id": request.id, "x-ms-version": _echo(request, "x-ms-version") or VERSION}
    headers["X-Content-Type-Options"] = "nosniff"  # a file is no script of the page, which is at the same address
    if client := _echo(request, "x-ms-client-request-id"):
        headers["x-ms-client-request-id"] = client
    if ignored := [name for name in request.headers if name in _IGNORED or name.startswith("x-ms-encryption-")]:
        headers["x-ms-rejected-headers"] = ",".join(ignored)
    return headers


def _echo(request: LakeRequest, name: str) -> str:
    text = request.headers.get(name, "")
    return text if len(text) <= _MAX_ECHO and text.isprintable() and text.isascii() else ""


def changed(properties: Properties, status: int = 201, headers: Mapping[str, str] | None = None) -> Response:
    """The answer to a creation or change of a path."""
    common = {
        "ETag": properties.etag,
        "Last-Modified": properties.last_modified,
        "x-ms-request-server-encrypted": "true",
    }
    return Response(status_code=status, headers=common | dict(headers or {}))


def path_headers(properties: Properties) -> dict[str, str]:
    """Headers of a path that is read, the same in both dialects."""
    headers = {
        "ETag": properties.etag,
        "Last-Modified": properties.last_modified,
        "x-ms-creation-time": properties.last_modified,  # Azure's C++ library requires it
        "Accept-Ranges": "bytes",
        "Content-Type": CONTENT_TYPE,
        "x-ms-resource-type": "directory" if properties.is_folder else "file",
        "x-ms-blob-type": "BlockBlob",
        "x-ms-lease-status": "unlocked",
        "x-ms-lease-state": "available",
        "x-ms-server-encrypted": "true",
        "x-ms-owner": "$superuser",
        "x-ms-group": "$superuser",
        "x-ms-permissions": "---------",
        "x-ms-acl": "user::---,group::---,other::---",  # Arrow takes it as the sign of a hierarchical namespace
    }
    return headers | ({"x-ms-meta-hdi_isfolder": "true"} if properties.is_folder else {})


def error_response(request: LakeRequest, status: int, code: str, message: str, headers: Mapping[str, str]) -> Response:
    """An error in the request's dialect, JSON or XML; without a body for HEAD and 304."""
    headers = {**response_headers(request), "x-ms-error-code": code, **headers}
    if request.method == "HEAD" or status == StorageErrorCode.NotModified.status:
        return Response(b"", status, headers)
    if is_dfs(request):
        content = {"error": {"code": code, "message": message}}
        return JSONResponse(content, status, headers, media_type="application/json;charset=utf-8")
    root = ET.Element("Error")
    ET.SubElement(root, "Code").text = code
    ET.SubElement(root, "Message").text = message
    return Response(ET.tostring(root, "utf-8", xml_declaration=True), status, headers, media_type="application/xml")


def is_dfs(request: LakeRequest) -> bool:
    """Whether a request speaks DFS, else Blob: by its host, on loopback by what only one of them has."""
    if request.host.endswith((DFS, BLOB)):
        return request.host.endswith(DFS)
    if request.query.keys() & {"restype", "comp"}:
        return False
    if request.query.keys() & {"resource", "action", "mode"} or "x-ms-rename-source" in request.headers:
        return True
    is_blob = request.headers.keys() & {"x-ms-blob-type", "x-ms-copy-source"}
    return not is_blob and "application/xml" not in request.headers.get("accept", "")


class Documents:
    """Bodies that are read as a whole: bounded each and in all, and the larger ones understood one after the other.

    A document may take a hundred times its size once it is parsed, and a parser lets no other thread run.
    """

    def __init__(self) -> None:
        self._held_bytes = 0
        self._turn = asyncio.Semaphore()

    @asynccontextmanager
    async def read(self, body: AsyncIterator[bytes], max_bytes: int = MAX_TEXT_BYTES) -> AsyncIterator[bytearray]:
        """Read a body within its turn; when the block ends, the body is emptied. RequestBodyTooLarge, ServerBusy."""
        content = bytearray()
        try:
            async for chunk in body:
                content += chunk
                self._held_bytes += len(chunk)
                if len(content) > max_bytes:
                    raise StorageApiError(StorageErrorCode.RequestBodyTooLarge)
                if self._held_bytes > MAX_HELD_BYTES and len(content) > SMALL_BYTES:
                    message = "Too many large documents at once; try again later."
                    raise StorageApiError(StorageErrorCode.ServerBusy, message, {"Retry-After": "1"})
            async with self._turn if len(content) > SMALL_BYTES else nullcontext():
                yield content
        finally:
            self._held_bytes -= len(content)
            content.clear()  # an error that holds it may live on


async def read_bounded(body: AsyncIterator[bytes], max_bytes: int) -> bytes:
    """A small body as a whole; RequestBodyTooLarge."""
    async with Documents().read(body, max_bytes) as content:
        return bytes(content)


def copy_part(file: IO[bytes], start: int, end: int, target: StagedFile) -> None:
    """Copy part of a file."""
    file.seek(start)
    while start < end and (chunk := file.read(min(end - start, CHUNK_BYTES))):
        start += len(chunk)
        target.write(chunk)


async def file_chunks(file: IO[bytes], start: int, length: int) -> AsyncIterator[bytes]:
    """Part of a file in chunks; closes it at the end."""
    try:
        await run_in_threadpool(file.seek, start)
        while length > 0 and (chunk := await run_in_threadpool(file.read, min(length, CHUNK_BYTES))):
            length -= len(chunk)
            yield chunk
    finally:
        file.close()
