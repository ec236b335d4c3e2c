"""Fabric's REST API for mirrored databases (endpoint chapter 6, LZ-9.4)."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from anyio import to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from mirror_engine.errors import StorageUnavailable
from mirror_engine.onelake.errors import StorageApiError
from mirror_engine.onelake.fabric_json import (
    DEFAULT_SCHEMA,
    FabricFault,
    FabricRefusal,
    item_json,
    table_json,
    workspace_json,
)
from mirror_engine.onelake.items import (
    CorruptedPayload,
    DatabaseStatus,
    NameInUse,
    NameUnusable,
    parts_of,
    payload_of,
    read_definition,
)
from mirror_engine.onelake.openapi import BASE, DOCUMENT, OPERATIONS
from mirror_engine.onelake.work import bounded

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.requests import Request

    from mirror_engine.onelake.items import FabricError, Item, Items, MirroredDatabases, Workspace
    from mirror_engine.onelake.openapi import Operation

_Made = TypeVar("_Made")

TABLES_A_PAGE = 100
_MAX_NAME, _MAX_DESCRIPTION = 123, 256
_BUSY = frozenset({DatabaseStatus.STARTING, DatabaseStatus.RUNNING})
_CALM = frozenset({DatabaseStatus.INITIALIZED, DatabaseStatus.STOPPED})


@dataclass(frozen=True)
class Asked:
    """One request.

    Attributes:
        url: without the query.
        path: the parameters in the path.
        query: those behind it.
        body: a JSON object; empty where none was sent.
    """

    url: str
    path: Mapping[str, str]
    query: Mapping[str, str]
    body: Mapping[str, Any] = field(default_factory=dict)


class FabricApi:
    """The operations, by the ids of the OpenAPI document.

    Args:
        items: the workspaces and items of the store.
        databases: who mirrors them.
    """

    def __init__(self, items: Items, databases: MirroredDatabases) -> None:
        self._items = items
        self._databases = databases

    def list_workspaces(self, _: Asked) -> Any:  # noqa: ANN401 - JSON
        """`GET /workspaces`."""
        return {"value": [workspace_json(each) for each in self._items.workspaces()]}

    def get_workspace(self, asked: Asked) -> Any:  # noqa: ANN401 - JSON
        """`GET /workspaces/{ws}`."""
        return workspace_json(self._workspace(asked))

    def list_items(self, asked: Asked) -> Any:  # noqa: ANN401 - JSON
        """`GET M`."""
        return {"value": [self._json(each) for each in self._items.items(self._workspace(asked))]}

    def create_item(self, asked: Asked) -> Any:  # noqa: ANN401 - JSON
        """`POST M`."""
        workspace = self._workspace(asked)
        if asked.body.get("type", "MirroredDatabase") != "MirroredDatabase":
            raise FabricRefusal(FabricFault.InvalidItemType)
        name, description = _text(asked, "displayName", _MAX_NAME), _text(asked, "description", _MAX_DESCRIPTION, "")
        definition = asked.body.get("definition")
        payload = None if definition is None else _payload(definition)
        item = _named(lambda: self._items.create(workspace, name, description, payload))
        self._databases.add(item)
        return self._json(item)

    def get_item(self, asked: Asked) -> Any:  # noqa: ANN401 - JSON
        """`GET M/{id}`."""
        return self._json(self._item(asked))

    def update_item(self, asked: Asked) -> Any:  # noqa: ANN401 - JSON
        """`PATCH M/{id}`: a new name, a new description."""
        item = self._item(asked)
        name = _text(asked, "displayName", _MAX_NAME, item.name)
        description = _text(asked, "description", _MAX_DESCRIPTION, item.description)
        was_mirrored = self._databases.status(item)[0] in _BUSY
        if name != item.name:
            self._databases.forget(item)
        try:
            item = _named(lambda: self._items.change(replace(item, name=name, description=description)))
        finally:
            if was_mirrored:
                self._databases.start(item)
        return self._json(item)

    def delete_item(self, asked: Asked) -> None:
        """`DELETE M/{id}`: it goes to the store's trash."""
        item = self._item(asked)
        self._databases.forget(item)
        self._items.remove(item)

    def get_definition(self, asked: Asked) -> Any:  # noqa: ANN401 - JSON
        """`POST M/{id}/getDefinition`."""
        item = self._item(asked)
        if item.definition is None:
            raise FabricRefusal(FabricFault.MirroringDefinitionMissing)
        return {"definition": parts_of(item.definition)}

    def update_definition(self, asked: Asked) -> None:
        """`POST M/{id}/updateDefinition`; the default schema changes only while nothing is mirrored."""
        item = self._item(asked)
        payload = _payload(asked.body.get("definition"))
        is_same = item.definition is not None and _schema(item.definition) == _schema(payload)
        if not is_same and self._databases.status(item)[0] not in _CALM:
            raise FabricRefusal(FabricFault.OperationNotAllowed)
        self._items.change(replace(item, definition=payload))

    def start_mirroring(self, asked: Asked) -> None:
        """`POST M/{id}/startMirroring`."""
        item = self._ready(asked)
        if item.definition is None:
            raise FabricRefusal(FabricFault.MirroringDefinitionMissing)
        self._databases.start(item)

    def stop_mirroring(self, asked: Asked) -> None:
        """`POST M/{id}/stopMirroring`."""
        self._databases.stop(self._ready(asked))

    def get_mirroring_status(self, asked: Asked) -> Any:  # noqa: ANN401 - JSON
        """`POST M/{id}/getMirroringStatus`."""
        status, error = self._databases.status(self._item(asked))
        return {"status": status.value} | _error(error)

    def get_tables_status(self, asked: Asked) -> Any:  # noqa: ANN401 - JSON
        """`POST M/{id}/getTablesMirroringStatus`, a hundred tables a page."""
        tables = self._databases.tables(self._item(asked))
        begin = _token(asked.query.get("continuationToken", "0"))
        end = begin + TABLES_A_PAGE
        answer: dict[str, Any] = {"data": [table_json(each) for each in tables[begin:end]]}
        if end < len(tables):
            url = f"{asked.url}?continuationToken={end}"
            answer |= {"continuationToken": str(end), "continuationUri": url}
        return answer

    def _workspace(self, asked: Asked) -> Workspace:
        found = self._items.workspace(asked.path["workspaceId"])
        if found is None:
            raise FabricRefusal(FabricFault.WorkspaceNotFound)
        return found

    def _item(self, asked: Asked) -> Item:
        found = self._items.item(self._workspace(asked), asked.path["mirroredDatabaseId"])
        if found is None:
            raise FabricRefusal(FabricFault.ItemNotFound)
        return found

    def _ready(self, asked: Asked) -> Item:
        item = self._item(asked)
        if self._databases.status(item)[0] is DatabaseStatus.INITIALIZING:
            raise FabricRefusal(FabricFault.MirroredDatabaseNotReady, headers={"Retry-After": "1"})
        return item

    def _json(self, item: Item) -> dict[str, Any]:
        return item_json(item, None if item.definition is None else read_definition(item.definition))


def _text(asked: Asked, name: str, most: int, default: str | None = None) -> str:
    found = asked.body.get(name, default)
    if not isinstance(found, str) or len(found) > most or (not found and default is None):
        raise FabricRefusal(FabricFault.InvalidRequest, f"{name} is no text of 1 to {most} characters.")
    return found


def _payload(definition: object) -> bytes:
    try:
        return payload_of(definition)
    except CorruptedPayload as corrupted:
        raise FabricRefusal(FabricFault.CorruptedPayload, str(corrupted)) from None


def _schema(payload: bytes) -> str:
    return read_definition(payload).default_schema or DEFAULT_SCHEMA


def _named(make: Callable[[], _Made]) -> _Made:
    try:
        return make()
    except NameInUse:
        raise FabricRefusal(FabricFault.ItemDisplayNameAlreadyInUse) from None
    except NameUnusable:
        raise FabricRefusal(FabricFault.InvalidRequest, "displayName is no name that a folder can have.") from None
    except KeyError:
        raise FabricRefusal(FabricFault.ItemNotFound) from None


def _token(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > len(str(1 << 31)):
        raise FabricRefusal(FabricFault.InvalidRequest, "continuationToken is none of ours.")
    return int(text)


def _error(error: FabricError | None) -> dict[str, Any]:
    return {"error": {"errorCode": error.code, "message": error.message}} if error else {}


_NOT_FOUND = 404
_DOCUMENT_PATH = f"{BASE}/openapi.json"


def fabric_app(api: FabricApi) -> Starlette:
    """The ASGI application; its OpenAPI document is at `/v1/openapi.json`."""

    async def document(_: Request) -> Response:
        return JSONResponse(DOCUMENT)

    routes = [Route(BASE + each.path, _endpoint(api, each), methods=[each.method]) for each in OPERATIONS]
    return Starlette(
        routes=[Route(_DOCUMENT_PATH, document), *routes],
        exception_handlers={HTTPException: _not_known},
    )


def _endpoint(api: FabricApi, operation: Operation) -> Callable[[Request], Awaitable[Response]]:
    perform = getattr(api, operation.id)

    async def answer(request: Request) -> Response:
        try:
            found = await to_thread.run_sync(perform, await _asked(request, operation))
        except FabricRefusal as refused:
            return refused.answer()
        except StorageUnavailable as failed:
            return FabricRefusal(FabricFault.ServiceUnavailable, str(failed), {"Retry-After": "1"}).answer()
        headers = {"requestId": str(uuid4())}
        return Response(b"", 200, headers) if found is None else JSONResponse(found, operation.status, headers)

    return answer


async def _asked(request: Request, operation: Operation) -> Asked:
    body: Any = {}
    content = await _content(request)
    if operation.body and content:
        try:
            body = json.loads(content)
        except (ValueError, RecursionError):
            raise FabricRefusal(FabricFault.InvalidRequest, "The body is no JSON.") from None
    if not isinstance(body, dict) or (operation.body and not content):
        raise FabricRefusal(FabricFault.InvalidRequest, "The body is no JSON object.")
    url = str(request.url.replace(query=""))
    return Asked(url, request.path_params, request.query_params, body)


async def _content(request: Request) -> bytes:
    try:
        return await bounded(request.stream())
    except StorageApiError:
        raise FabricRefusal(FabricFault.RequestBodyTooLarge) from None


async def _not_known(_: Request, problem: Exception) -> Response:
    is_absent = isinstance(problem, HTTPException) and problem.status_code == _NOT_FOUND
    return FabricRefusal(FabricFault.EndpointNotFound if is_absent else FabricFault.MethodNotAllowed).answer()
