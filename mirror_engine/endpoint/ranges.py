"""Which bytes of a file a request asks for (endpoint chapter 3, Read)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirror_engine.endpoint.faults import EndpointFault, Fault

if TYPE_CHECKING:
    from collections.abc import Mapping

_RANGE = re.compile(r"\s*bytes\s*=\s*([0-9]{0,19})\s*-\s*([0-9]{0,19})\s*")


@dataclass(frozen=True)
class ByteRange:
    """Bytes `start` to `end - 1` of a file of `size`."""

    start: int
    end: int
    size: int

    @property
    def length(self) -> int:
        """How many bytes."""
        return self.end - self.start

    @property
    def header(self) -> str:
        """As `Content-Range` says it."""
        return f"bytes {self.start}-{self.end - 1}/{self.size}"


def asked_range(headers: Mapping[str, str], size: int) -> ByteRange | None:
    """The part that `x-ms-range`, which wins, or `Range` asks for; None where all is asked for.

    What is no single range of bytes is passed over, as HTTP wants it.

    Raises:
        EndpointFault: INVALID_RANGE, it lies past the end, or the file is empty.
    """
    found = _RANGE.fullmatch(headers.get("x-ms-range") or headers.get("range") or "")
    if found is None or found.groups() == ("", ""):
        return None
    first, last = found.groups()
    if first and last and int(last) < int(first):
        return None
    start = int(first) if first else max(size - int(last), 0)
    end = min(int(last) + 1, size) if first and last else size
    if start >= end:
        raise EndpointFault(Fault.INVALID_RANGE, headers={"Content-Range": f"bytes */{size}"})
    return ByteRange(start, end, size)
