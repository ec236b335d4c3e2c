"""Where a rename or copy comes from, as clients write it (endpoint chapter 3)."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from mirror_engine.endpoint.faults import EndpointFault, Fault
from mirror_engine.endpoint.hosts import LOOPBACK_ADDRESSES, LOOPBACK_NAMES, is_served

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
    path = _path(call, call.headers[header])
    try:
        return lake.address(path.encode("latin-1"))  # as it came: a client may send UTF-8 bare
    except EndpointFault as refused:
        if refused.fault in _ABSENT:
            raise EndpointFault(Fault.SOURCE_PATH_NOT_FOUND) from None
        raise


def _path(call: Call, written: str) -> str:
    if written.startswith("/"):  # two slashes are as one, and name no host
        return written.partition("?")[0]
    try:
        url = urlsplit(written)
        host = (url.hostname or "").lower()
    except ValueError as problem:
        raise EndpointFault(Fault.INVALID_SOURCE_URI) from problem
    if (url.scheme or url.netloc) and not (
        is_served(host) or host in {call.host, *LOOPBACK_NAMES, *LOOPBACK_ADDRESSES}
    ):
        raise EndpointFault(Fault.INVALID_SOURCE_URI, "The source lies on another host.")
    return url.path
