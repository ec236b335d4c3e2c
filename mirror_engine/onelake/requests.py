"""One request to the lake, read once: method, path, query, headers, body."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from email.utils import formatdate, parsedate_to_datetime
from enum import Enum
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote_to_bytes, urlsplit
from uuid import uuid4
from xml.etree import ElementTree as ET

from starlette.responses import Response

from mirror_engine.landing_zone.layout import ENGINE
from mirror_engine.onelake.errors import StorageApiError, StorageErrorCode
from mirror_engine.onelake.items import PREFIX

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping, Sequence

    from starlette.requests import Request

    from mirror_engine.onelake.items import Item, Items, Workspace
    from mirror_engine.onelake.lake import Lake, Properties

DFS = "dfs.fabric.microsoft.com"
BLOB = "blob.fabric.microsoft.com"
FABRIC = "api.fabric.microsoft.com"
LOGINS = ("login.microsoftonline.com", "login.microsoft.com")
LOOPBACK_NAMES = ("localhost",)
LOOPBACK_ADDRESSES = ("127.0.0.1", "::1")

_ONELAKE = re.compile(rf"(?:[a-z0-9]{{1,40}}-)?onelake\.(?:{re.escape(DFS)}|{re.escape(BLOB)})")


def is_served(host: str) -> bool:
    """Whether a name is one of the real service's that stand in the closed list: lower case, no dot at its end."""
    return host == FABRIC or host in LOGINS or _ONELAKE.fullmatch(host) is not None


def named_host(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """The host of a request in lower case, without its port; None where it names none, or more than one."""
    named = [value for name, value in headers if name == b"host"]
    return without_port(named[0].decode("latin-1").lower()) if len(named) == 1 else None


def without_port(authority: str) -> str:
    """`localhost` of `localhost:8080`, `::1` of `[::1]:8080`."""
    if authority.startswith("["):
        return authority[1:].partition("]")[0]
    return authority.partition(":")[0]


_OVERRIDABLE = frozenset({"PUT", "POST", "PATCH", "DELETE"})  # the others are answered otherwise on the wire
_OVERRIDES = ("x-http-method-override", "x-http-method")  # Hadoop's client sends PATCH so


@dataclass(frozen=True)
class LakeRequest:
    """A request.

    Attributes:
        method: what the client means, `X-HTTP-Method-Override` counted.
        host: the name it asks for, without a port, in lower case.
        raw_path: as sent, percent-encoded, without the query.
        query: decoded; a plus is a plus.
        headers: by name in lower case.
        body: its pieces as they come.
        id: a GUID, given now.
    """

    method: str
    host: str
    raw_path: bytes
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: AsyncIterator[bytes]
    id: str = field(default_factory=lambda: str(uuid4()))

    @staticmethod
    def of(request: Request) -> LakeRequest:
        """The request that Starlette has."""
        scope = request.scope
        headers = {name.lower(): value for name, value in request.headers.items()}
        meant = next((headers[name].upper() for name in _OVERRIDES if name in headers), "")
        return LakeRequest(
            method=meant if meant in _OVERRIDABLE and request.method in _OVERRIDABLE else request.method,
            host=named_host(scope["headers"]) or "",
            raw_path=scope.get("raw_path") or scope["path"].encode(),
            query=_query(scope["query_string"]),
            headers=headers,
            body=request.stream(),
        )

    @property
    def length(self) -> int | None:
        """The `Content-Length`; None for a body sent in chunks."""
        text = self.headers.get("content-length")
        return int(text) if text and text.isascii() and text.isdigit() else None

    @property
    def is_empty(self) -> bool:
        """Whether it has no body, as its headers say."""
        return self.length == 0 or (self.length is None and "transfer-encoding" not in self.headers)

    def flag(self, name: str) -> bool:
        """A query parameter that is true or false; false where it is missing."""
        return self.query.get(name, "").lower() == "true"

    def number(self, name: str, default: int | None = None) -> int:
        """A query parameter that is a whole number, 0 or more.

        Raises:
            EndpointFault: INVALID_QUERY_PARAMETER_VALUE where it is none, or missing without a default.
        """
        text = self.query.get(name)
        if text is None and default is not None:
            return default
        if text is None or not (text.isascii() and text.isdigit()) or len(text) > len(str(1 << 63)):
            raise StorageApiError(StorageErrorCode.INVALID_QUERY_PARAMETER_VALUE, f"{name} is no whole number.")
        return int(text)


def _query(text: bytes) -> dict[str, str]:
    pairs = parse_qsl(text.decode("latin-1").replace("+", "%2B"), keep_blank_values=True)
    return {name.lower(): value for name, value in reversed(pairs)}


VERSION = "2021-06-08"
CONTENT_TYPE = "application/octet-stream"
_NANOSECONDS = 1_000_000_000
_REJECTED = ("x-ms-owner", "x-ms-group", "x-ms-permissions", "x-ms-acl", "x-ms-access-tier")
_REJECTED_KIN = "x-ms-encryption-"
_MAX_ECHO = 1024


def of_call(call: LakeRequest) -> dict[str, str]:
    """What an answer repeats of its request, and the request's id."""
    said = {"x-ms-request-id": call.id, "x-ms-version": _echo(call, "x-ms-version") or VERSION}
    if client := _echo(call, "x-ms-client-request-id"):
        said["x-ms-client-request-id"] = client
    if rejected := rejected_headers(call):
        said["x-ms-rejected-headers"] = ",".join(rejected)
    return said


def rejected_headers(call: LakeRequest) -> list[str]:
    """The headers of a request that OneLake ignores, and says so."""
    return [name for name in call.headers if name in _REJECTED or name.startswith(_REJECTED_KIN)]


def of_change(found: Properties) -> dict[str, str]:
    """What is said of something that was just made or changed."""
    return {
        "ETag": found.etag,
        "Last-Modified": http_date(found.modified_ns),
        "x-ms-request-server-encrypted": "true",
    }


def of_path(found: Properties) -> dict[str, str]:
    """What is said of something that is looked at, in either dialect."""
    said = {
        "ETag": found.etag,
        "Last-Modified": http_date(found.modified_ns),
        "x-ms-creation-time": http_date(found.modified_ns),  # Azure's C++ library cannot do without
        "Accept-Ranges": "bytes",
        "Content-Type": CONTENT_TYPE,
        "x-ms-resource-type": "directory" if found.is_folder else "file",
        "x-ms-blob-type": "BlockBlob",
        "x-ms-lease-status": "unlocked",
        "x-ms-lease-state": "available",
        "x-ms-server-encrypted": "true",
        "x-ms-owner": "$superuser",
        "x-ms-group": "$superuser",
        "x-ms-permissions": "---------",
        "x-ms-acl": "user::---,group::---,other::---",  # by it Arrow tells that there are real folders
    }
    return said | ({"x-ms-meta-hdi_isfolder": "true"} if found.is_folder else {})


def http_date(modified_ns: int) -> str:
    """A time as headers and listings have it (RFC 1123, whole seconds: rule 7.9)."""
    return formatdate(modified_ns // _NANOSECONDS, usegmt=True)


def _echo(call: LakeRequest, name: str) -> str:
    text = call.headers.get(name, "")
    return text if len(text) <= _MAX_ECHO and text.isprintable() and text.isascii() else ""


NANOSECONDS = 1_000_000_000
ANY = frozenset("*")


@dataclass(frozen=True)
class Conditions:
    """What is demanded; None where nothing is.

    Attributes:
        if_match: entity tags without quotes, or `{"*"}`.
        if_none_match: the same.
        if_modified_since: seconds since 1970.
        if_unmodified_since: seconds since 1970.
        failed: the fault that a condition not met is answered with.
    """

    if_match: frozenset[str] | None = None
    if_none_match: frozenset[str] | None = None
    if_modified_since: int | None = None
    if_unmodified_since: int | None = None
    failed: StorageErrorCode = StorageErrorCode.CONDITION_NOT_MET

    @staticmethod
    def of(headers: Mapping[str, str]) -> Conditions:
        """What `If-Match`, `If-None-Match`, `If-Modified-Since` and `If-Unmodified-Since` demand.

        Args:
            headers: by name in lower case.

        Raises:
            EndpointFault: INVALID_HEADER_VALUE, a date is none.
        """
        return _read(headers, "", StorageErrorCode.CONDITION_NOT_MET)

    @staticmethod
    def of_source(headers: Mapping[str, str]) -> Conditions:
        """What the `x-ms-source-if-…` headers demand of the source of a rename or copy; else as `of`."""
        return _read(headers, "x-ms-source-", StorageErrorCode.SOURCE_CONDITION_NOT_MET)

    def check_write(self, found: Properties | None) -> None:
        """Whether something may be changed.

        Args:
            found: what stands there; None where nothing does.

        Raises:
            EndpointFault: PATH_ALREADY_EXISTS for `If-None-Match: *`, else what `failed` says.
        """
        if found and self.if_none_match == ANY:
            raise StorageApiError(StorageErrorCode.PATH_ALREADY_EXISTS)
        self.check_source(found)

    def check_source(self, found: Properties | None) -> None:
        """Whether something may be renamed or copied.

        Raises:
            EndpointFault: what `failed` says.
        """
        if not (self._is_as_expected(found) and self._is_other(found)):
            raise StorageApiError(self.failed)

    def check_read(self, found: Properties) -> None:
        """Whether something is to be sent.

        Raises:
            EndpointFault: NOT_MODIFIED if it is not newer than the client's, else what `failed` says.
        """
        if not self._is_as_expected(found):
            raise StorageApiError(self.failed)
        if not self._is_other(found):
            raise StorageApiError(StorageErrorCode.NOT_MODIFIED)

    def _is_as_expected(self, found: Properties | None) -> bool:
        if self.if_match is not None and not _names(self.if_match, found):
            return False
        since = self.if_unmodified_since
        return since is None or found is None or found.modified_ns // NANOSECONDS <= since

    def _is_other(self, found: Properties | None) -> bool:
        if self.if_none_match is not None:
            return not _names(self.if_none_match, found)
        since = self.if_modified_since
        return since is None or found is None or found.modified_ns // NANOSECONDS > since


NONE = Conditions()


def _names(tags: frozenset[str], found: Properties | None) -> bool:
    return found is not None and ("*" in tags or found.etag.strip('"') in tags)


def _read(headers: Mapping[str, str], prefix: str, failed: StorageErrorCode) -> Conditions:
    return Conditions(
        _tags(headers.get(f"{prefix}if-match")),
        _tags(headers.get(f"{prefix}if-none-match")),
        _seconds(headers.get(f"{prefix}if-modified-since")),
        _seconds(headers.get(f"{prefix}if-unmodified-since")),
        failed,
    )


def _tags(text: str | None) -> frozenset[str] | None:
    """Entity tags as clients write them: in quotes or without, weak or not."""
    if text is None:
        return None
    return frozenset(tag.strip().removeprefix("W/").strip('"') for tag in text.split(","))


def _seconds(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return int(parsedate_to_datetime(text).timestamp())
    except (ValueError, OverflowError) as problem:
        raise StorageApiError(StorageErrorCode.INVALID_HEADER_VALUE, "A condition's date cannot be read.") from problem


_RANGE = re.compile(r"\s*bytes\s*=\s*([0-9]{0,19})\s*-\s*([0-9]{0,19})\s*")


@dataclass(frozen=True)
class ByteRange:
    """Bytes `start` to `end - 1` of a file of `size`."""

    start: int
    end: int
    size: int

    @property
    def length(self) -> int:
        """How many bytes."""
        return self.end - self.start

    @property
    def header(self) -> str:
        """As `Content-Range` says it."""
        return f"bytes {self.start}-{self.end - 1}/{self.size}"


def asked_range(headers: Mapping[str, str], size: int) -> ByteRange | None:
    """The part that `x-ms-range`, which wins, or `Range` asks for; None where all is asked for.

    What is no single range of bytes is passed over, as HTTP wants it.

    Raises:
        EndpointFault: INVALID_RANGE, it lies past the end, or the file is empty.
    """
    found = _RANGE.fullmatch(headers.get("x-ms-range") or headers.get("range") or "")
    if found is None or found.groups() == ("", ""):
        return None
    first, last = found.groups()
    if first and last and int(last) < int(first):
        return None
    start = int(first) if first else max(size - int(last), 0)
    end = min(int(last) + 1, size) if first and last else size
    if start >= end:
        raise StorageApiError(StorageErrorCode.INVALID_RANGE, headers={"Content-Range": f"bytes */{size}"})
    return ByteRange(start, end, size)


_ABSENT = frozenset(
    {StorageErrorCode.WORKSPACE_NOT_FOUND, StorageErrorCode.ARTIFACT_NOT_FOUND, StorageErrorCode.PATH_NOT_FOUND}
)


def source_of(lake: Lake, call: LakeRequest, header: str) -> Address:
    """The address that a header names: `/ws/…`, `/onelake/ws/…` or a URL of this service; its query is dropped.

    Raises:
        EndpointFault: INVALID_SOURCE_URI of another host or none at all, SOURCE_PATH_NOT_FOUND, INVALID_URI.
    """
    path = _path(call, call.headers[header])
    try:
        return lake.address(path.encode("latin-1"))  # as it came: a client may send UTF-8 bare
    except StorageApiError as refused:
        if refused.fault in _ABSENT:
            raise StorageApiError(StorageErrorCode.SOURCE_PATH_NOT_FOUND) from None
        raise


def _path(call: LakeRequest, written: str) -> str:
    if written.startswith("/"):  # two slashes are as one, and name no host
        return written.partition("?")[0]
    try:
        url = urlsplit(written)
        host = (url.hostname or "").lower()
    except ValueError as problem:
        raise StorageApiError(StorageErrorCode.INVALID_SOURCE_URI) from problem
    if (url.scheme or url.netloc) and not (
        is_served(host) or host in {call.host, *LOOPBACK_NAMES, *LOOPBACK_ADDRESSES}
    ):
        raise StorageApiError(StorageErrorCode.INVALID_SOURCE_URI, "The source lies on another host.")
    return url.path


OPEN_FOLDERS = ("Files", "Tables")
SEGMENT_BYTES = 255
MAX_SEGMENTS, MAX_CHARACTERS = 63, 1024  # of a whole path: what the real service takes, and what tools can walk


@dataclass(frozen=True)
class Address:
    """A place in a workspace, whether something stands there or not.

    Attributes:
        workspace: always a known one.
        item: None for the workspace itself.
        parts: the names below the item, decoded.
        written: all segments as the client wrote them (decoded): workspace, item, parts; without `onelake`.
    """

    workspace: Workspace
    item: Item | None
    parts: tuple[str, ...]
    written: tuple[str, ...]

    @property
    def path(self) -> str:
        """In the storage, from the store's top."""
        return "/".join([(self.item or self.workspace).path, *self.parts])

    @property
    def shown(self) -> str:
        """Relative to the workspace, the item's segment as the client wrote it; `""` for the workspace."""
        return "/".join(self.written[1:])

    @property
    def is_managed(self) -> bool:
        """Whether Fabric alone makes, renames and deletes it: a workspace, an item, its `Files` and `Tables`."""
        return len(self.parts) == 0 or (len(self.parts) == 1 and self.parts[0] in OPEN_FOLDERS)

    @property
    def is_open(self) -> bool:
        """Whether it lies below `Files` or `Tables`, where clients may write."""
        return len(self.parts) > 1 and self.parts[0] in OPEN_FOLDERS


def parse(raw_path: bytes, items: Items) -> Address:
    """The address of a request's path.

    Args:
        raw_path: as it was sent, percent-encoded, without the query; each segment is decoded once.
        items: what is known.

    Raises:
        EndpointFault: INVALID_URI (no workspace named, or a segment that is no name), WORKSPACE_NOT_FOUND,
            ARTIFACT_NOT_FOUND, or PATH_NOT_FOUND (the engine's own files).
    """
    segments = segments_of(raw_path)
    workspace = items.workspace(segments[0])
    if workspace is None:
        raise StorageApiError(StorageErrorCode.WORKSPACE_NOT_FOUND)
    return _below(Address(workspace, None, (), segments[:1]), segments[1:], items)


def segments_of(raw_path: bytes) -> tuple[str, ...]:
    """The names in a request's path, from the workspace on; at least one.

    Raises:
        EndpointFault: INVALID_URI, PATH_NOT_FOUND as `parse`.
    """
    segments = [_checked(_decoded(segment)) for segment in raw_path.split(b"/") if segment]
    if segments and segments[0] == PREFIX:
        del segments[0]
    if not segments:
        raise StorageApiError(StorageErrorCode.INVALID_URI, "The path names no workspace.")
    return tuple(segments)


def inside(folder: Address, directory: str, items: Items) -> Address:
    """A place below a folder, as the query's `directory` or `prefix` names it (decoded; outer slashes optional).

    Raises:
        EndpointFault: as `parse`.
    """
    return _below(folder, [_checked(segment) for segment in directory.split("/") if segment], items)


def _below(folder: Address, names: Sequence[str], items: Items) -> Address:
    written = (*folder.written, *names)
    if len(written) > MAX_SEGMENTS or len("/".join(written)) > MAX_CHARACTERS:
        raise StorageApiError(StorageErrorCode.INVALID_URI, "The path is too long.")
    if folder.item is None and names:
        item = items.item(folder.workspace, names[0])
        if item is None:
            raise StorageApiError(StorageErrorCode.ARTIFACT_NOT_FOUND)
        return Address(folder.workspace, item, tuple(names[1:]), written)
    return Address(folder.workspace, folder.item, (*folder.parts, *names), written)


def _decoded(segment: bytes) -> str:
    try:
        return unquote_to_bytes(segment).decode()
    except UnicodeDecodeError as problem:
        raise StorageApiError(StorageErrorCode.INVALID_URI, "A segment of the path is no UTF-8.") from problem


def _checked(name: str) -> str:
    if name in {".", ".."} or any(odd in name for odd in "/\\\0"):
        raise StorageApiError(StorageErrorCode.INVALID_URI, "A segment of the path is no name.")
    if len(name.encode(errors="surrogatepass")) > SEGMENT_BYTES:
        raise StorageApiError(StorageErrorCode.INVALID_URI, "A segment of the path is too long.")
    if name.startswith(ENGINE):
        raise StorageApiError(StorageErrorCode.PATH_NOT_FOUND)
    return name


_DFS_WORDS = frozenset({"resource", "action", "mode"})
_BLOB_WORDS = frozenset({"restype", "comp"})
_BLOB_HEADERS = ("x-ms-blob-type", "x-ms-copy-source")
_NOT_MODIFIED = 304


class Dialect(Enum):
    """How an answer is spelled."""

    DFS = "dfs"
    BLOB = "blob"

    def refusal(self, call: LakeRequest, refused: StorageApiError) -> Response:
        """An error as this dialect writes it; without a body for HEAD."""
        code = refused.fault.dfs_code if self is Dialect.DFS else refused.fault.blob_code
        body, kind = self.error(code, f"{refused.message}\nRequestId:{call.id}")
        if call.method == "HEAD" or refused.fault.status == _NOT_MODIFIED:
            body, kind = b"", ""
        headers = {**of_call(call), "x-ms-error-code": code, **refused.headers}
        return Response(body, refused.fault.status, headers, media_type=kind or None)

    def error(self, code: str, message: str) -> tuple[bytes, str]:
        """The body of an error, and its media type."""
        return (_json if self is Dialect.DFS else _xml)(code, message)


def dialect_of(call: LakeRequest) -> Dialect:
    """A real host name decides; on loopback what the request asks for."""
    if call.host.endswith((DFS, BLOB)):
        return Dialect.DFS if call.host.endswith(DFS) else Dialect.BLOB
    if _BLOB_WORDS & call.query.keys():
        return Dialect.BLOB
    if _DFS_WORDS & call.query.keys() or "x-ms-rename-source" in call.headers:
        return Dialect.DFS
    is_blob = any(name in call.headers for name in _BLOB_HEADERS) or "application/xml" in call.headers.get("accept", "")
    return Dialect.BLOB if is_blob else Dialect.DFS


def _json(code: str, message: str) -> tuple[bytes, str]:
    return json.dumps({"error": {"code": code, "message": message}}).encode(), "application/json;charset=utf-8"


def _xml(code: str, message: str) -> tuple[bytes, str]:
    root = ET.Element("Error")
    ET.SubElement(root, "Code").text = code
    ET.SubElement(root, "Message").text = message
    return ET.tostring(root, "utf-8", xml_declaration=True), "application/xml"
