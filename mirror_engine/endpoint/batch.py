"""Blob batches: refused as OneLake does, or carried out where a switch says so (endpoint chapter 4)."""

from __future__ import annotations

import json
from email.message import Message
from email.parser import BytesParser
from email.policy import compat32
from typing import TYPE_CHECKING
from uuid import uuid4

from starlette.responses import Response

from mirror_engine.endpoint.faults import EndpointFault, Fault
from mirror_engine.endpoint.headers import of_call
from mirror_engine.endpoint.work import document, quick

if TYPE_CHECKING:
    from mirror_engine.endpoint.call import Call
    from mirror_engine.endpoint.lake import Lake

MOST_PARTS = 256
_ACCEPTED, _REFUSED = 202, 400
_REASONS = {202: "Accepted", 400: "Bad Request", 403: "Forbidden", 404: "Not Found", 409: "Conflict", 412: "Failed"}
_WHY = "Either WorkspaceId or ArtifactId are missing in the request"


async def batch(lake: Lake, call: Call) -> Response:
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
    return Response(body, _ACCEPTED, media_type=f"multipart/mixed; boundary={boundary}")


def _parts(content_type: str, body: bytes) -> list[Message]:
    head = f"Content-Type: {content_type}\r\n\r\n".encode("latin-1", "replace")
    try:
        whole = BytesParser(policy=compat32).parsebytes(head + body)  # newer ones refuse a bare slash in a boundary
    except RecursionError:  # multipart in multipart in multipart
        raise EndpointFault(Fault.BAD_REQUEST, "A batch holds requests, and no batches.") from None
    parts = whole.get_payload() if whole.is_multipart() else []
    found = [part for part in parts if isinstance(part, Message)]
    if not 0 < len(found) <= MOST_PARTS:
        raise EndpointFault(Fault.BAD_REQUEST, "A batch holds 1 to 256 requests.")
    return found


def _deleted(lake: Lake, call: Call, part: Message) -> str:
    """Carry out one request of a batch, which must be a delete, and answer it."""
    try:
        lake.delete(lake.address(_target(part)))
        status, code = _ACCEPTED, ""
    except EndpointFault as refused:
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
        raise EndpointFault(Fault.BAD_REQUEST, "Only deletes go in a batch.")
    return line[1].partition(b"?")[0]
