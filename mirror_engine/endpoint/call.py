"""One request to the lake, read once: method, path, query, headers, body."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl
from uuid import uuid4

from mirror_engine.endpoint.faults import EndpointFault, Fault
from mirror_engine.endpoint.hosts import named_host

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from starlette.requests import Request

_OVERRIDABLE = frozenset({"PUT", "POST", "PATCH", "DELETE"})  # the others are answered otherwise on the wire
_OVERRIDES = ("x-http-method-override", "x-http-method")  # Hadoop's client sends PATCH so


@dataclass(frozen=True)
class Call:
    """A request.

    Attributes:
        method: what the client means, `X-HTTP-Method-Override` counted.
        host: the name it asks for, without a port, in lower case.
        raw_path: as sent, percent-encoded, without the query.
        query: decoded; a plus is a plus.
        headers: by name in lower case.
        body: its pieces as they come.
        id: a GUID, given now.
    """

    method: str
    host: str
    raw_path: bytes
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: AsyncIterator[bytes]
    id: str = field(default_factory=lambda: str(uuid4()))

    @staticmethod
    def of(request: Request) -> Call:
        """The request that Starlette has."""
        scope = request.scope
        headers = {name.lower(): value for name, value in request.headers.items()}
        meant = next((headers[name].upper() for name in _OVERRIDES if name in headers), "")
        return Call(
            method=meant if meant in _OVERRIDABLE and request.method in _OVERRIDABLE else request.method,
            host=named_host(scope["headers"]) or "",
            raw_path=scope.get("raw_path") or scope["path"].encode(),
            query=_query(scope["query_string"]),
            headers=headers,
            body=request.stream(),
        )

    @property
    def length(self) -> int | None:
        """The `Content-Length`; None for a body sent in chunks."""
        text = self.headers.get("content-length")
        return int(text) if text and text.isascii() and text.isdigit() else None

    @property
    def is_empty(self) -> bool:
        """Whether it has no body, as its headers say."""
        return self.length == 0 or (self.length is None and "transfer-encoding" not in self.headers)

    def flag(self, name: str) -> bool:
        """A query parameter that is true or false; false where it is missing."""
        return self.query.get(name, "").lower() == "true"

    def number(self, name: str, default: int | None = None) -> int:
        """A query parameter that is a whole number, 0 or more.

        Raises:
            EndpointFault: INVALID_QUERY_PARAMETER_VALUE where it is none, or missing without a default.
        """
        text = self.query.get(name)
        if text is None and default is not None:
            return default
        if text is None or not (text.isascii() and text.isdigit()) or len(text) > len(str(1 << 63)):
            raise EndpointFault(Fault.INVALID_QUERY_PARAMETER_VALUE, f"{name} is no whole number.")
        return int(text)


def _query(text: bytes) -> dict[str, str]:
    pairs = parse_qsl(text.decode("latin-1").replace("+", "%2B"), keep_blank_values=True)
    return {name.lower(): value for name, value in reversed(pairs)}
