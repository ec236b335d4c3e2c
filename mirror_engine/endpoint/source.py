"""Where a rename or copy comes from, as clients write it (endpoint chapter 3)."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from mirror_engine.endpoint.faults import EndpointFault, Fault
from mirror_engine.endpoint.hosts import is_served

if TYPE_CHECKING:
    from mirror_engine.endpoint.address import Address
    from mirror_engine.endpoint.call import Call
    from mirror_engine.endpoint.lake import Lake

_ABSENT = frozenset({Fault.WORKSPACE_NOT_FOUND, Fault.ARTIFACT_NOT_FOUND, Fault.PATH_NOT_FOUND})


def source_of(lake: Lake, call: Call, header: str) -> Address:
    """The address that a header names: `/ws/…`, `/onelake/ws/…` or a URL of this service; its query is dropped.

    Raises:
        EndpointFault: INVALID_SOURCE_URI of another host or none at all, SOURCE_PATH_NOT_FOUND, INVALID_URI.
    """
    try:
        written = urlsplit(call.headers[header])
        host = (written.hostname or "").lower()
    except ValueError as problem:
        raise EndpointFault(Fault.INVALID_SOURCE_URI) from problem
    if (written.scheme or written.netloc) and not (is_served(host) or host == call.host):
        raise EndpointFault(Fault.INVALID_SOURCE_URI, "The source lies on another host.")
    try:
        return lake.address(written.path.encode())
    except EndpointFault as refused:
        if refused.fault in _ABSENT:
            raise EndpointFault(Fault.SOURCE_PATH_NOT_FOUND) from None
        raise
