"""Access tokens of the Entra stub: JSON web tokens, signed with a key per secret that lives as long as this process."""

from __future__ import annotations

import base64
import hmac
import json
import uuid
from functools import cache

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA256

KEY_ID = str(uuid.uuid4())
_PUBLIC_EXPONENT, _KEY_BITS = 65537, 2048


def access_token(  # noqa: PLR0913 - its claims
    tenant: str, client: str, audience: str, begins: int, lifetime: int, *, secret: str | None
) -> str:
    """A token for a secret, None for none, that is valid from a time, in seconds since 1970, for so many seconds."""
    claims = {
        "aud": audience,
        "iss": f"https://sts.windows.net/{tenant}/",
        "tid": tenant,
        "appid": client,
        "oid": str(uuid.uuid5(uuid.NAMESPACE_URL, client)),
        "iat": begins,
        "nbf": begins,
        "exp": begins + lifetime,
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


def public_keys(secret: str | None) -> dict[str, list[dict[str, str]]]:
    """The JSON web key set with which a client checks tokens for a secret."""
    numbers = _key(secret).public_key().public_numbers()
    encoded = {
        name: _encoded(number.to_bytes((number.bit_length() + 7) // 8, "big"))
        for name, number in {"n": numbers.n, "e": numbers.e}.items()
    }
    return {"keys": [{"kty": "RSA", "use": "sig", "alg": "RS256", "kid": KEY_ID, **encoded}]}


@cache
def _key(_: str | None) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(_PUBLIC_EXPONENT, _KEY_BITS)


def _encoded(part: bytes) -> str:
    return base64.urlsafe_b64encode(part).rstrip(b"=").decode("ascii")
