"""The routes by which faults are switched while a server runs (rule 9.8): on http alone, with a token of this run."""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field
from secrets import token_urlsafe
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import JSONResponse

from mirror_engine.endpoint.fault_words import parse_fault
from mirror_engine.endpoint.faults import EndpointFault, Fault
from mirror_engine.endpoint.hosts import LOOPBACK_ADDRESSES, LOOPBACK_NAMES, named_host
from mirror_engine.endpoint.work import bounded
from mirror_engine.errors import UsageError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from mirror_engine.endpoint.switches import Switches

PATH = "/.mirror-engine/faults"  # no client's own: such names are never served
HEADER = "x-mirror-engine-control"
MOST_BYTES = 64 * 1024
_METHODS = ("GET", "POST", "DELETE")


@dataclass(frozen=True)
class Control:
    """An ASGI application around another, which answers all other requests.

    `GET` shows the switches, `POST` adds those in its body, one a line, `DELETE` clears all; each answers with what
    there is afterwards: `[{"fault": "throttle nth=2", "seen": 1}]`.

    Attributes:
        app: whatever else is served.
        switches: what is controlled.
        token: to be sent in `X-Mirror-Engine-Control`.
    """

    app: ASGIApp
    switches: Switches
    token: str = field(default_factory=lambda: token_urlsafe(24), repr=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if not _is_meant(scope):
            await self.app(scope, receive, send)
            return
        answer = await self._answer(Request(scope, receive))
        await answer(scope, receive, send)

    async def _answer(self, request: Request) -> JSONResponse:
        if not hmac.compare_digest(request.headers.get(HEADER, "").encode(), self.token.encode()):
            return _refused(403, f"{HEADER} is not the token that this run was given.")
        if request.method not in _METHODS:
            return _refused(405, f"One of {', '.join(_METHODS)}.")
        try:
            if request.method == "POST":
                await self._add(request)
        except UsageError as error:
            return _refused(400, str(error))
        except EndpointFault as error:
            return _refused(error.fault.status, error.message)
        if request.method == "DELETE":
            self.switches.clear()
        return JSONResponse([{"fault": each.text, "seen": each.seen} for each in self.switches.faults])

    async def _add(self, request: Request) -> None:
        """All of them, or none."""
        try:
            lines = (await bounded(request.stream(), MOST_BYTES)).decode().splitlines()
        except UnicodeDecodeError:
            raise EndpointFault(Fault.BAD_REQUEST, "The body is no UTF-8.") from None
        self.switches.add([parse_fault(line) for line in lines if line.strip()])


def _is_meant(scope: Scope) -> bool:
    is_local = named_host(scope["headers"]) in (*LOOPBACK_NAMES, *LOOPBACK_ADDRESSES)
    return scope["path"] == PATH and scope["scheme"] == "http" and is_local


def _refused(status: int, message: str) -> JSONResponse:
    return JSONResponse({"error": {"code": "ControlRefused", "message": message}}, status)
