"""What every answer of the lake says in its headers (endpoint chapters 3 and 4)."""

from __future__ import annotations

from email.utils import formatdate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mirror_engine.endpoint.call import Call
    from mirror_engine.endpoint.properties import Properties

VERSION = "2021-06-08"
CONTENT_TYPE = "application/octet-stream"
_NANOSECONDS = 1_000_000_000
_REJECTED = ("x-ms-owner", "x-ms-group", "x-ms-permissions", "x-ms-acl", "x-ms-access-tier")
_REJECTED_KIN = "x-ms-encryption-"
_LONGEST_ECHO = 1024


def of_call(call: Call) -> dict[str, str]:
    """What an answer repeats of its request, and the request's id."""
    said = {"x-ms-request-id": call.id, "x-ms-version": _echo(call, "x-ms-version") or VERSION}
    if client := _echo(call, "x-ms-client-request-id"):
        said["x-ms-client-request-id"] = client
    if rejected := rejected_headers(call):
        said["x-ms-rejected-headers"] = ",".join(rejected)
    return said


def rejected_headers(call: Call) -> list[str]:
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


def _echo(call: Call, name: str) -> str:
    text = call.headers.get(name, "")
    return text if len(text) <= _LONGEST_ECHO and text.isprintable() and text.isascii() else ""
