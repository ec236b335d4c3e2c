"""One application for all of the real service's hosts: `Host` selects what answers (endpoint chapter 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirror_engine.endpoint.hosts import FABRIC, LOGINS, named_host

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send


@dataclass(frozen=True)
class Services:
    """An ASGI application that hands each request to the service its `Host` names; loopback is OneLake.

    Attributes:
        onelake: both dialects.
        entra: tokens.
        fabric: the REST API.
    """

    onelake: ASGIApp
    entra: ASGIApp
    fabric: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        host = named_host(scope["headers"])
        app = self.entra if host in LOGINS else self.fabric if host == FABRIC else self.onelake
        await app(scope, receive, send)
