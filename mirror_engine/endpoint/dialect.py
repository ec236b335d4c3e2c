"""Which of OneLake's two dialects a request speaks: it sets the form of errors and a delete's status (chapter 2)."""

from __future__ import annotations

import json
from enum import Enum
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from starlette.responses import Response

from mirror_engine.endpoint.headers import of_call
from mirror_engine.endpoint.hosts import BLOB, DFS

if TYPE_CHECKING:
    from mirror_engine.endpoint.call import Call
    from mirror_engine.endpoint.faults import EndpointFault

_DFS_WORDS = frozenset({"resource", "action", "mode"})
_BLOB_WORDS = frozenset({"restype", "comp"})
_BLOB_HEADERS = ("x-ms-blob-type", "x-ms-copy-source")
_NOT_MODIFIED = 304


class Dialect(Enum):
    """How an answer is spelled."""

    DFS = "dfs"
    BLOB = "blob"

    def refusal(self, call: Call, refused: EndpointFault) -> Response:
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


def dialect_of(call: Call) -> Dialect:
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
