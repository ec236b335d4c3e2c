"""Which operation a request asks for; all of them work on either host (endpoint chapter 2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from mirror_engine.endpoint import batch, blob, dfs, reading
from mirror_engine.endpoint.dialect import Dialect
from mirror_engine.endpoint.faults import EndpointFault, Fault

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.responses import Response

    from mirror_engine.endpoint.call import Call
    from mirror_engine.endpoint.lake import Lake

    Operation: TypeAlias = Callable[[Lake, Call], Awaitable[Response]]

_ACTIONS: dict[str, Operation] = {
    "append": dfs.append,
    "flush": dfs.flush,
    "setproperties": dfs.set_properties,
}
_PUT_COMPONENTS: dict[str, Operation] = {
    "block": blob.put_block,
    "blocklist": blob.put_block_list,
    "metadata": blob.set_metadata,
    "properties": blob.set_metadata,
    "lease": dfs.lease,
}
_OF_CONTAINER = frozenset({"container", "account"})


def operation_of(call: Call, dialect: Dialect) -> Operation:
    """The operation that a request asks for.

    Raises:
        EndpointFault: it asks for none that there is.
    """
    methods: dict[str, Callable[[Call, Dialect], Operation]] = {
        "PUT": _put,
        "PATCH": _patch,
        "POST": _post,
        "GET": _get,
        "HEAD": _head,
        "DELETE": _delete,
    }
    if call.method not in methods:
        raise EndpointFault(Fault.UNSUPPORTED_HTTP_VERB)
    return methods[call.method](call, dialect)


def _put(call: Call, _: Dialect) -> Operation:  # noqa: PLR0911 - a table in words
    component = call.query.get("comp", "").lower()
    if "x-ms-rename-source" in call.headers:
        return dfs.rename
    if "resource" in call.query:
        return dfs.create
    if "action" in call.query:  # Hadoop's client
        return _action(call)
    if call.query.get("restype") in _OF_CONTAINER:
        return blob.managed
    if component:
        return _known(_PUT_COMPONENTS.get(component))
    if "x-ms-copy-source" in call.headers:
        return blob.copy
    if "x-ms-blob-type" in call.headers:
        return blob.put
    raise EndpointFault(Fault.MISSING_REQUIRED_HEADER, "It says neither resource nor x-ms-blob-type.")


def _patch(call: Call, _: Dialect) -> Operation:
    return _action(call)


def _post(call: Call, _: Dialect) -> Operation:
    if call.query.get("comp") == "batch":
        return batch.batch
    if "x-ms-lease-action" in call.headers:
        return dfs.lease
    if "action" in call.query:
        return _action(call)
    raise EndpointFault(Fault.UNSUPPORTED_HTTP_VERB)


def _get(call: Call, _: Dialect) -> Operation:
    if call.query.get("resource") == "filesystem":
        return dfs.list_paths
    if call.query.get("restype") == "account":
        return blob.account
    if call.query.get("comp") == "list":
        return blob.list_blobs
    if call.query.get("comp"):  # block lists, tags: what is known of a blob beside its bytes
        raise EndpointFault(Fault.UNSUPPORTED_QUERY_PARAMETER)
    if call.query.get("restype") == "container":
        return reading.container
    return reading.read


def _head(call: Call, _: Dialect) -> Operation:
    if call.query.get("restype") == "account":
        return blob.account
    if call.query.get("restype") == "container" or call.query.get("resource") == "filesystem":
        return reading.container
    return reading.properties


def _delete(call: Call, dialect: Dialect) -> Operation:
    if call.query.get("restype") in _OF_CONTAINER or call.query.get("resource") == "filesystem":
        return blob.managed
    if call.query.get("comp"):
        raise EndpointFault(Fault.UNSUPPORTED_QUERY_PARAMETER)
    return dfs.delete if dialect is Dialect.DFS else blob.delete


def _action(call: Call) -> Operation:
    return _known(_ACTIONS.get(call.query.get("action", "").lower()))


def _known(operation: Operation | None) -> Operation:
    if operation is None:
        raise EndpointFault(Fault.UNSUPPORTED_QUERY_PARAMETER)
    return operation
