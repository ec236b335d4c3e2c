"""Access tokens of the Entra stub: in the form of a JWT, with a fixed text where a signature would be.

Nobody verifies them. Where an endpoint asks for a secret, that stands in the signature's place, so that whoever got
the token from the stub for it may come in.
"""

from __future__ import annotations

import base64
import hmac
import json
import time
import uuid

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
