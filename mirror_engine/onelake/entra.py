"""Stub of Entra ID: tokens for clients with their own credentials, and the `az` that prints one."""

from __future__ import annotations

import argparse
import base64
import hmac
import json
import os
import shlex
import sys
import time
import uuid
from datetime import datetime, timezone
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from mirror_engine.onelake.errors import StorageApiError
from mirror_engine.onelake.hosts import LOGINS
from mirror_engine.onelake.requests import read_bounded

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from starlette.requests import Request

LIFETIME_SECONDS = 3599
UNSIGNED = "not signed by Entra"
LOGIN = f"https://{LOGINS[0]}"
MAX_FORM_BYTES = 64 * 1024
STORAGE = "https://storage.azure.com"


def access_token(tenant: str, client: str, audience: str, secret: str | None) -> str:
    """A token that is valid from now; its signature is the secret."""
    begins = int(time.time())
    claims = {
        "aud": audience,
        "iss": f"https://sts.windows.net/{tenant}/",
        "tid": tenant,
        "appid": client,
        "oid": str(uuid.uuid5(uuid.NAMESPACE_URL, client)),
        "iat": begins,
        "nbf": begins,
        "exp": begins + LIFETIME_SECONDS,
        "ver": "1.0",
    }
    parts = [json.dumps(part).encode() for part in ({"typ": "JWT", "alg": "RS256"}, claims)]
    return ".".join(_encoded(part) for part in [*parts, (secret or UNSIGNED).encode()])


def carries(token: str, secret: str) -> bool:
    """Whether a token is the secret, or was issued for it."""
    signature = token.rpartition(".")[2]
    pairs = ((token, secret), (signature, _encoded(secret.encode())))
    return any(hmac.compare_digest(part.encode("latin-1", "replace"), text.encode()) for part, text in pairs)


def _encoded(part: bytes) -> str:
    return base64.urlsafe_b64encode(part).rstrip(b"=").decode("ascii")


def entra_app(secret: str | None = None) -> Starlette:
    """The ASGI application for login.microsoftonline.com.

    Any tenant, client and secret passes; where `secret` is set, only that one as the client secret.
    """
    return Starlette(
        routes=[
            Route("/common/discovery/instance", _instances),
            Route("/{tenant}/v2.0/.well-known/openid-configuration", _configuration),
            Route("/{tenant}/oauth2/v2.0/token", partial(_token, secret), methods=["POST"]),
        ]
    )


async def _instances(_: Request) -> JSONResponse:
    """Which hosts are Entra: MSAL's first request."""
    aliases = ["login.microsoftonline.com", "login.windows.net", "login.microsoft.com", "sts.windows.net"]
    return JSONResponse(
        {
            "tenant_discovery_endpoint": f"{LOGIN}/common/v2.0/.well-known/openid-configuration",
            "api-version": "1.1",
            "metadata": [{"preferred_network": LOGINS[0], "preferred_cache": "login.windows.net", "aliases": aliases}],
        }
    )


async def _configuration(request: Request) -> JSONResponse:
    base = f"{LOGIN}/{request.path_params['tenant']}"
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


async def _token(secret: str | None, request: Request) -> JSONResponse:
    try:
        body = await read_bounded(request.stream(), MAX_FORM_BYTES)
    except StorageApiError:
        return _error(413, "invalid_request", 90015, "The request is too long.")
    form = dict(parse_qsl(request.url.query)) | dict(parse_qsl(body.decode("latin-1")))
    if "grant_type" not in form:
        return _error(400, "invalid_request", 900144, "The request body must contain the parameter: 'grant_type'.")
    if form["grant_type"] != "client_credentials":
        return _error(400, "unsupported_grant_type", 70003, "Only client_credentials is supported.")
    if secret is not None and not hmac.compare_digest(form.get("client_secret", "").encode(), secret.encode()):
        return _error(401, "invalid_client", 7000215, "Invalid client secret provided.")
    audience = form.get("scope", f"{STORAGE}/.default").split(" ")[0].removesuffix("/.default")
    content = {
        "token_type": "Bearer",
        "expires_in": LIFETIME_SECONDS,
        "ext_expires_in": LIFETIME_SECONDS,
        "access_token": access_token(request.path_params["tenant"], form.get("client_id", ""), audience, secret),
    }
    return JSONResponse(content, headers={"cache-control": "no-store"})


def _error(status: int, error: str, number: int, message: str) -> JSONResponse:
    content = {
        "error": error,
        "error_description": f"AADSTS{number}: {message}",
        "error_codes": [number],
        "timestamp": f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M:%SZ}",
        "trace_id": str(uuid.uuid4()),
        "correlation_id": str(uuid.uuid4()),
    }
    return JSONResponse(content, status)


def install_az(folder: Path) -> None:
    """Write the stub `az` for AzureCliCredential into a folder."""
    folder.mkdir(exist_ok=True)
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120 - text
    # isolated: neither the publisher's folder nor its PYTHONPATH takes part
    code = (
        f"import sys; sys.path.insert(0, {package!r}); "
        "from mirror_engine.onelake.entra import az; sys.exit(az(sys.argv[1:]))"
    )
    script = folder / "az"
    script.write_text(
        f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -I -c {shlex.quote(code)} "$@"\n', encoding="utf-8"
    )
    script.chmod(0o755)


def az(words: Sequence[str]) -> int:
    """`az account get-access-token`; the exit code, 2 for every other command."""
    if words[:2] != ["account", "get-access-token"]:
        sys.stderr.write("ERROR: this az belongs to mirror-engine and supports `account get-access-token` only.\n")
        return 2
    parser = argparse.ArgumentParser(prog="az account get-access-token")
    parser.add_argument("--output", "-o", default="json")
    for names in (["--query"], ["--scope", "--scopes"], ["--resource"], ["--resource-type"], ["--tenant", "-t"]):
        parser.add_argument(*names)
    parser.add_argument("--subscription", "-s", "--name", "-n")
    options = parser.parse_args(words[2:])
    tenant = options.tenant or os.environ.get("AZURE_TENANT_ID", "")
    audience = (options.scope or options.resource or STORAGE).removesuffix("/.default")
    client, secret = os.environ.get("AZURE_CLIENT_ID", ""), os.environ.get("AZURE_CLIENT_SECRET")
    ends = time.time() + LIFETIME_SECONDS
    token: dict[str, Any] = {
        "accessToken": access_token(tenant, client, audience, secret),
        "expiresOn": f"{datetime.fromtimestamp(ends):%Y-%m-%d %H:%M:%S.%f}",  # noqa: DTZ006 - local time, as az prints
        "expires_on": int(ends),
        "subscription": "6d697272-6f72-4e67-a96e-737562736372",
        "tenant": tenant,
        "tokenType": "Bearer",
    }
    sys.stdout.write((token["accessToken"] if options.output == "tsv" else json.dumps(token, indent=2)) + "\n")
    return 0
