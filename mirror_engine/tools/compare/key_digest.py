"""Digests of keys and partition values: reports can be shared, and no value be found in them."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from contextlib import suppress
from typing import Any

from mirror_engine.config import cache_folder
from mirror_engine.display import plain
from mirror_engine.storage.local import write_private


class KeyDigest:
    """Digests of values, with a secret of this machine: reports can be compared, and no value be found by trying."""

    def __init__(self) -> None:
        path = cache_folder() / "report-secret"
        self._secret = secrets.token_bytes(32)
        try:
            self._secret = path.read_bytes()
        except OSError:
            with suppress(OSError):  # another report then has other digests
                path.parent.mkdir(parents=True, exist_ok=True)
                write_private(path, self._secret)

    def __call__(self, *values: Any) -> str:  # noqa: ANN401 - cells of any type
        """Twelve digits for values."""
        text = json.dumps([plain(value) for value in values]).encode()
        return hmac.new(self._secret, text, hashlib.sha256).hexdigest()[:12]

    def path(self, path: str) -> str:
        """A change file's path, with digests of partition values."""
        parts = (part.partition("=") for part in path.split("/"))
        return "/".join(f"{name}={self(value)}" if equals else name for name, equals, value in parts)
