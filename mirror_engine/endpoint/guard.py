"""Who may speak to the endpoint: requests to its own names, from no page of elsewhere, with the token if one is set.

A page of any site may make a browser on this machine send requests to a loopback address; such a request names a
foreign `Host` (DNS rebinding) or carries a foreign `Origin`.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from mirror_engine.endpoint.hosts import LOGINS, LOOPBACK_ADDRESSES, LOOPBACK_NAMES, is_served, named_host
from mirror_engine.endpoint.refusals import refuse
from mirror_engine.endpoint.tokens import carries

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

_ASKS_FOR = 'Bearer authorization_uri="https://login.microsoftonline.com/common", Basic realm="mirror-engine"'


class Guard:
    """An ASGI application behind its guard.

    Args:
        app: what is guarded.
        secret: where set, all but Entra's own requests must carry it: as a token that Entra's stub gave for it, as it
            stands, or as the password of a browser's form. Entra's stub asks for it as the client's secret.
        is_open: whether it listens beyond loopback, where hosts may have any name.
    """

    def __init__(self, app: ASGIApp, secret: str | None = None, *, is_open: bool = False) -> None:
        self._app = app
        self._secret = secret
        self._is_open = is_open

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or refuse it."""
        host = named_host(scope["headers"])
        if host is None:
            await refuse(scope, send, 400, "InvalidHeaderValue", "A request names one host.")
        elif not self._knows(host):
            await refuse(scope, send, 421, "InvalidUri", "This endpoint does not answer to that host name.")
        elif not self._is_from_here(scope):
            await refuse(scope, send, 403, "AuthorizationFailure", "Pages of other sites may not use this endpoint.")
        elif host not in LOGINS and not self._is_authorized(scope):
            challenge = {"www-authenticate": _ASKS_FOR}
            message = "This endpoint asks for the token it was started with."
            await refuse(scope, send, 401, "Unauthorized", message, headers=challenge)
        else:
            await self._app(scope, receive, send)

    def _knows(self, host: str) -> bool:
        return self._is_open or host in (*LOOPBACK_NAMES, *LOOPBACK_ADDRESSES) or is_served(host)

    def _is_from_here(self, scope: Scope) -> bool:
        """Whether a request comes from no page, or from one of the host it goes to."""
        origins = [value.decode("latin-1").lower() for name, value in scope["headers"] if name == b"origin"]
        hosts = [value.decode("latin-1").lower() for name, value in scope["headers"] if name == b"host"]
        return all(_authority(origin) in hosts for origin in origins)

    def _is_authorized(self, scope: Scope) -> bool:
        if self._secret is None:
            return True
        said = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        scheme, _, credentials = said.decode("latin-1").partition(" ")
        if scheme.lower() == "bearer":
            return carries(credentials.strip(), self._secret)
        return scheme.lower() == "basic" and hmac.compare_digest(_password(credentials), self._secret.encode())


class OwnGuard(Guard):
    """The guard of what stands behind no name of the real service's: every request must carry the secret."""

    def _knows(self, host: str) -> bool:
        return host in (*LOOPBACK_NAMES, *LOOPBACK_ADDRESSES)


def _authority(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def _password(credentials: str) -> bytes:
    try:
        return base64.b64decode(credentials, validate=True).partition(b":")[2]
    except binascii.Error:
        return b""
