"""The one place where the endpoint's application is put together: OneLake, Fabric's API, Entra, the page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror_engine.endpoint.entra import entra_app
from mirror_engine.endpoint.hosts import LOGINS, named_host
from mirror_engine.endpoint.refusals import refuse

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from mirror_engine.endpoint.lake import Lake


def application(lake: Lake, secret: str | None) -> ASGIApp:  # noqa: ARG001 - the dialects take it
    """All services, told apart by the host that a request names."""
    entra = entra_app(secret)

    async def by_host(scope: Scope, receive: Receive, send: Send) -> None:
        if named_host(scope["headers"]) in LOGINS:
            await entra(scope, receive, send)
        else:
            await refuse(send, 501, "NotImplemented", "Not spoken yet.")

    return by_host
