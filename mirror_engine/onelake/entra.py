"""Entra's part of the endpoint: enough of it for a client that asks for a token with its own credentials."""

from __future__ import annotations

import base64
import hmac
import json
import time
import uuid
from datetime import datetime, timezone
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from mirror_engine.onelake.errors import StorageApiError
from mirror_engine.onelake.requests import LOGINS
from mirror_engine.onelake.work import bounded

if TYPE_CHECKING:
    from starlette.requests import Request

LIFE_SECONDS = 3599
UNSIGNED = "not signed by Entra"


def access_token(tenant: str, client: str, audience: str, secret: str | None = None, now: float | None = None) -> str:
    """A token that began now and ends after `LIFE_SECONDS`."""
    begins = int(time.time() if now is None else now)
    claims = {
        "aud": audience,
        "iss": f"https://sts.windows.net/{tenant}/",
        "tid": tenant,
        "appid": client,
        "oid": str(uuid.uuid5(uuid.NAMESPACE_URL, client)),
        "iat": begins,
        "nbf": begins,
        "exp": begins + LIFE_SECONDS,
        "ver": "1.0",
    }
    parts = [json.dumps(part).encode() for part in ({"typ": "JWT", "alg": "RS256"}, claims)]
    return ".".join(_encoded(part) for part in [*parts, (secret or UNSIGNED).encode()])


def carries(token: str, secret: str) -> bool:
    """Whether a token is the secret, or one that was given for it."""
    return any(
        hmac.compare_digest(part.encode("latin-1", "replace"), wanted.encode())
        for part, wanted in ((token, secret), (token.rpartition(".")[2], _encoded(secret.encode())))
    )


def _encoded(part: bytes) -> str:
    return base64.urlsafe_b64encode(part).rstrip(b"=").decode("ascii")


LOGIN = f"https://{LOGINS[0]}"
MAX_FORM_BYTES = 64 * 1024
_DEFAULT_SCOPE = "https://storage.azure.com/.default"


def entra_app(secret: str | None = None) -> Starlette:
    """The ASGI application behind login.microsoftonline.com.

    Any tenant, client and secret passes; where `secret` is set, only that one as the client's secret.
    """

    async def token(request: Request) -> JSONResponse:
        return await _token(request, secret)

    return Starlette(
        routes=[
            Route("/common/discovery/instance", _instances),
            Route("/{tenant}/v2.0/.well-known/openid-configuration", _configuration),
            Route("/{tenant}/oauth2/v2.0/token", token, methods=["POST"]),
        ]
    )


async def _instances(_: Request) -> JSONResponse:
    """Which hosts are Entra: asked by MSAL before anything else."""
    host = LOGINS[0]
    aliases = ["login.microsoftonline.com", "login.windows.net", "login.microsoft.com", "sts.windows.net"]
    return JSONResponse(
        {
            "tenant_discovery_endpoint": f"{LOGIN}/common/v2.0/.well-known/openid-configuration",
            "api-version": "1.1",
            "metadata": [{"preferred_network": host, "preferred_cache": "login.windows.net", "aliases": aliases}],
        }
    )


async def _configuration(request: Request) -> JSONResponse:
    tenant = request.path_params["tenant"]
    base = f"{LOGIN}/{tenant}"
    return JSONResponse(
        {
            "issuer": f"{base}/v2.0",
            "token_endpoint": f"{base}/oauth2/v2.0/token",
            "authorization_endpoint": f"{base}/oauth2/v2.0/authorize",
            "device_authorization_endpoint": f"{base}/oauth2/v2.0/devicecode",
            "jwks_uri": f"{base}/discovery/v2.0/keys",
            "response_types_supported": ["code", "id_token", "code id_token", "id_token token"],
            "subject_types_supported": ["pairwise"],
            "id_token_signing_alg_values_supported": ["RS256"],
            "token_endpoint_auth_methods_supported": ["client_secret_post", "private_key_jwt", "client_secret_basic"],
        }
    )


async def _token(request: Request, secret: str | None) -> JSONResponse:
    try:
        body = await bounded(request.stream(), MAX_FORM_BYTES)
    except StorageApiError:
        return _error(413, "invalid_request", 90015, "The request is too long.")
    form = dict(parse_qsl(request.url.query)) | dict(parse_qsl(body.decode("latin-1")))
    if "grant_type" not in form:
        return _error(400, "invalid_request", 900144, "The request body must contain the parameter: 'grant_type'.")
    if form["grant_type"] != "client_credentials":
        return _error(400, "unsupported_grant_type", 70003, "This endpoint knows client_credentials only.")
    if secret is not None and not hmac.compare_digest(form.get("client_secret", "").encode(), secret.encode()):
        return _error(401, "invalid_client", 7000215, "Invalid client secret provided.")
    audience = form.get("scope", _DEFAULT_SCOPE).split(" ")[0].removesuffix("/.default")
    token = access_token(request.path_params["tenant"], form.get("client_id", ""), audience, secret)
    lasts = {"expires_in": LIFE_SECONDS, "ext_expires_in": LIFE_SECONDS}
    return JSONResponse({"token_type": "Bearer", **lasts, "access_token": token}, headers={"cache-control": "no-store"})


def _error(status: int, error: str, number: int, message: str) -> JSONResponse:
    now = datetime.now(timezone.utc)
    told = {
        "error": error,
        "error_description": f"AADSTS{number}: {message}",
        "error_codes": [number],
        "timestamp": f"{now:%Y-%m-%d %H:%M:%SZ}",
        "trace_id": str(uuid.uuid4()),
        "correlation_id": str(uuid.uuid4()),
    }
    return JSONResponse(told, status)
