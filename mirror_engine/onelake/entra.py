"""Stub of Entra ID: signed tokens for clients with their own credentials, and the `az` that prints one.

Tokens are JSON web tokens, signed with a key per secret that lives as long as this process.
"""

from __future__ import annotations

import argparse
import base64
import hmac
import json
import os
import shlex
import sys
import time
import urllib.request
import uuid
from datetime import UTC, datetime
from functools import cache, partial
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlencode

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA256
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from mirror_engine.onelake.errors import StorageApiError
from mirror_engine.onelake.hosts import LOGINS, host_of
from mirror_engine.onelake.requests import read_bounded

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from starlette.requests import Request

LIFETIME_SECONDS = 3599
LOGIN = f"https://{LOGINS[0]}"
PATIENCE_SECONDS = 20
MAX_FORM_BYTES = 64 * 1024
STORAGE = "https://storage.azure.com"
KEY_ID = str(uuid.uuid4())
_PUBLIC_EXPONENT, _KEY_BITS = 65537, 2048
_ALIASES = ["login.microsoftonline.com", "login.windows.net", "login.microsoft.com", "sts.windows.net"]
_INSTANCES = {  # which hosts are Entra: MSAL's first request
    "tenant_discovery_endpoint": f"{LOGIN}/common/v2.0/.well-known/openid-configuration",
    "api-version": "1.1",
    "metadata": [{"preferred_network": LOGINS[0], "preferred_cache": "login.windows.net", "aliases": _ALIASES}],
}


def entra_app(secret: str | None = None) -> Starlette:
    """The ASGI application for login.microsoftonline.com.

    Any tenant, client and secret passes; where `secret` is set, only that one as the client secret.
    """
    return Starlette(
        routes=[
            Route("/common/discovery/instance", lambda _: JSONResponse(_INSTANCES)),
            Route("/{tenant}/v2.0/.well-known/openid-configuration", _configuration),
            Route("/{tenant}/discovery/v2.0/keys", lambda _: JSONResponse({"keys": [_public_key(secret)]})),
            Route("/{tenant}/oauth2/v2.0/token", partial(_token, secret), methods=["POST"]),
            Route("/{tenant}/oauth2/token", partial(_token, secret, is_v1=True), methods=["POST"]),
        ]
    )


async def _configuration(request: Request) -> JSONResponse:
    is_production = host_of(request.scope["headers"]) in LOGINS
    base = f"{LOGIN if is_production else str(request.base_url).rstrip('/')}/{request.path_params['tenant']}"
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


async def _token(secret: str | None, request: Request, *, is_v1: bool = False) -> JSONResponse:
    """Version 1 takes a `resource` for a `scope`, and answers with text alone."""
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
    scope = form.get("scope", f"{STORAGE}/.default").split(" ")[0].removesuffix("/.default")
    tenant, client, begins = request.path_params["tenant"], form.get("client_id", ""), int(time.time())
    audience = form.get("resource", STORAGE) if is_v1 else scope
    content: dict[str, int | str] = {
        "token_type": "Bearer",
        "expires_in": LIFETIME_SECONDS,
        "ext_expires_in": LIFETIME_SECONDS,
        "access_token": access_token(tenant, client, audience, begins, secret=secret),
    }
    if is_v1:
        content |= {"expires_on": begins + LIFETIME_SECONDS, "not_before": begins, "resource": audience}
        content = {name: str(value) for name, value in content.items()}
    return JSONResponse(content, headers={"cache-control": "no-store"})


def _error(status: int, error: str, number: int, message: str) -> JSONResponse:
    content = {
        "error": error,
        "error_description": f"AADSTS{number}: {message}",
        "error_codes": [number],
        "timestamp": f"{datetime.now(UTC):%Y-%m-%d %H:%M:%SZ}",
        "trace_id": str(uuid.uuid4()),
        "correlation_id": str(uuid.uuid4()),
    }
    return JSONResponse(content, status)


def access_token(tenant: str, client: str, audience: str, begins: int, *, secret: str | None) -> str:
    """A token for a secret, None for none, that is valid from a time, in seconds since 1970."""
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
    parts = {"typ": "JWT", "alg": "RS256", "kid": KEY_ID}, claims
    signed = ".".join(_encoded(json.dumps(part).encode()) for part in parts)
    return f"{signed}.{_encoded(_key(secret).sign(signed.encode(), PKCS1v15(), SHA256()))}"


def carries(token: str, secret: str) -> bool:
    """Whether a token is the secret, or was issued for it by this process."""
    if hmac.compare_digest(token.encode("latin-1", "replace"), secret.encode()):
        return True
    signed, _, signature = token.rpartition(".")
    try:
        content = base64.urlsafe_b64decode(f"{signature}==")
        _key(secret).public_key().verify(content, signed.encode(), PKCS1v15(), SHA256())
    except (InvalidSignature, ValueError):
        return False
    return True


def _public_key(secret: str | None) -> dict[str, str]:
    numbers = _key(secret).public_key().public_numbers()
    encoded = {
        name: _encoded(number.to_bytes((number.bit_length() + 7) // 8, "big"))
        for name, number in {"n": numbers.n, "e": numbers.e}.items()
    }
    return {"kty": "RSA", "use": "sig", "alg": "RS256", "kid": KEY_ID, **encoded}


@cache
def _key(_: str | None) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(_PUBLIC_EXPONENT, _KEY_BITS)


def _encoded(part: bytes) -> str:
    return base64.urlsafe_b64encode(part).rstrip(b"=").decode("ascii")


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
    """`az account get-access-token`, by asking the stub; the exit code: 1 without a token, 2 for other commands."""
    if words[:2] != ["account", "get-access-token"]:
        sys.stderr.write("ERROR: this az belongs to mirror-engine and supports `account get-access-token` only.\n")
        return 2
    parser = argparse.ArgumentParser(prog="az account get-access-token")
    parser.add_argument("--output", "-o", default="json")
    for names in (["--scope", "--scopes"], ["--resource"], ["--tenant", "-t"]):
        parser.add_argument(*names)
    options, _ = parser.parse_known_args(words[2:])  # what others ask for changes no token
    tenant = options.tenant or os.environ.get("AZURE_TENANT_ID") or "common"
    form = {
        "grant_type": "client_credentials",
        "client_id": os.environ.get("AZURE_CLIENT_ID", ""),
        "client_secret": os.environ.get("AZURE_CLIENT_SECRET", ""),
        "resource": (options.scope or options.resource or STORAGE).removesuffix("/.default"),
    }
    try:
        url = f"{LOGIN}/{quote(tenant)}/oauth2/token"
        with urllib.request.urlopen(url, urlencode(form).encode(), timeout=PATIENCE_SECONDS) as answer:  # noqa: S310 - https
            issued = json.load(answer)
    except OSError as error:  # refused, or without an answer
        sys.stderr.write(f"ERROR: no token of mirror-engine's emulator: {error}\n")
        return 1
    ends = int(issued["expires_on"])
    token: dict[str, Any] = {
        "accessToken": issued["access_token"],
        "expiresOn": f"{datetime.fromtimestamp(ends):%Y-%m-%d %H:%M:%S.%f}",  # noqa: DTZ006 - local time, as az prints
        "expires_on": ends,
        "subscription": "6d697272-6f72-4e67-a96e-737562736372",
        "tenant": tenant,
        "tokenType": "Bearer",
    }
    sys.stdout.write((token["accessToken"] if options.output == "tsv" else json.dumps(token, indent=2)) + "\n")
    return 0
