"""Digests of keys and partition values: reports can be shared, and no value be found in them."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from mirror_engine.config import cache_folder
from mirror_engine.display import cell, plain
from mirror_engine.storage.local import write_private

if TYPE_CHECKING:
    from collections.abc import Mapping


class ShownKeys:
    """Keys and paths as they are."""

    def key(self, values: Mapping[str, Any]) -> str:
        """`Order = 7, Line = 1`."""
        return ", ".join(f"{name} = {cell(value)}" for name, value in values.items())

    def path(self, path: str) -> str:
        """A change file's path from its table folder."""
        return path


class KeyDigest(ShownKeys):
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

    def key(self, values: Mapping[str, Any]) -> str:
        """Twelve digits."""
        return self._digest(*values.values())

    def _digest(self, *values: Any) -> str:  # noqa: ANN401 - cells of any type
        text = json.dumps([plain(value) for value in values]).encode()
        return hmac.new(self._secret, text, hashlib.sha256).hexdigest()[:12]

    def path(self, path: str) -> str:
        """A change file's path, with digests of partition values."""
        parts = (part.partition("=") for part in path.split("/"))
        return "/".join(f"{name}={self._digest(value)}" if equals else name for name, equals, value in parts)
