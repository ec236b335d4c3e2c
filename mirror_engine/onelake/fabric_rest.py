"""Fabric's REST API for mirrored databases (LZ-9.4); `openapi.json` lists the operations."""

from __future__ import annotations

import json
from dataclasses import replace
from enum import Enum
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4, uuid5

from anyio import to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from mirror_engine._version import __version__
from mirror_engine.errors import StorageUnavailable
from mirror_engine.monitoring.fabric_files import INTERNAL, NEVER
from mirror_engine.onelake.engine_pool import DatabaseStatus
from mirror_engine.onelake.errors import StorageApiError, StorageErrorCode
from mirror_engine.onelake.hosts import DFS, FABRIC
from mirror_engine.onelake.items import (
    CorruptedPayload,
    NameInUse,
    NameUnusable,
    definition_json,
    payload_of,
    read_definition,
)
from mirror_engine.onelake.requests import read_bounded

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.requests import Request

    from mirror_engine.onelake.engine_pool import EnginePool
    from mirror_engine.onelake.items import Item, Workspace

BASE = "/v1"
DEFAULT_SCHEMA = "dbo"
TABLES_PER_PAGE = 100
MAX_NAME, MAX_DESCRIPTION = 123, 256
DOCUMENT = json.loads((files("mirror_engine.onelake") / "openapi.json").read_text(encoding="utf-8"))
DOCUMENT["info"]["version"] = __version__


class FabricErrorCode(Enum):
    """Error codes of the REST API: HTTP status, message, whether a retry may succeed."""

    WorkspaceNotFound = (404, "The workspace could not be found.")
    ItemNotFound = (404, "The item could not be found.")
    EndpointNotFound = (404, "There is no such operation.")
    MethodNotAllowed = (405, "The operation does not support this method.")
    ItemDisplayNameAlreadyInUse = (409, "The display name is in use in this workspace.")
    InvalidRequest = (400, "The request is not valid.")
    InvalidItemType = (400, "The item's type is not MirroredDatabase.")
    CorruptedPayload = (400, "The definition is corrupted.")
    MirroringDefinitionMissing = (400, "The item has no definition.")
    MirroredDatabaseNotReady = (400, "The mirrored database is still being initialized.", True)
    OperationNotAllowed = (400, "The default schema changes only while mirroring is Initialized or Stopped.")
    TokenExpired = (401, "The access token has expired; send a new one.")
    RequestBodyTooLarge = (413, "The request's body is too large.")
    TooManyRequests = (429, "Too many requests.", True)
    ServiceUnavailable = (503, "The service is busy; try again later.", True)

    def __init__(self, status: int, message: str, is_retriable: bool = False) -> None:  # noqa: FBT001, FBT002 - a row
        self.status = status
        self.message = message
        self.is_retriable = is_retriable


def error_json(request_id: str, code: str, message: str, *, is_retriable: bool = False) -> dict[str, Any]:
    """An error's body."""
    return {"requestId": request_id, "errorCode": code, "message": message, "isRetriable": is_retriable}


class FabricApiError(Exception):
    """An error answer; its message never holds a value of a request's body."""

    def __init__(self, code: FabricErrorCode, message: str = "", headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message or code.message)
        self.code = code
        self.headers = headers or {}

    def response(self) -> JSONResponse:
        """As Fabric writes it."""
        request_id, name = str(uuid4()), self.code.name
        body = error_json(request_id, name, str(self), is_retriable=self.code.is_retriable)
        headers = {"x-ms-public-api-error-code": name, "requestId": request_id, **self.headers}
        return JSONResponse(body, self.code.status, headers)


class _Operations:
    """The operations of `openapi.json`, each a method named by its operation id.

    They take the item or workspace that the path names, and the JSON body, or the query where there is none.
    """

    def __init__(self, pool: EnginePool) -> None:
        self._items = pool.items
        self._pool = pool

    def subject(self, names: Mapping[str, str]) -> Item | Workspace | None:
        """What a path's parameters name; None for a path without any."""
        if not names:
            return None
        workspace = self._items.workspace(names["workspaceId"])
        if workspace is None:
            raise FabricApiError(FabricErrorCode.WorkspaceNotFound)
        if "mirroredDatabaseId" not in names:
            return workspace
        item = self._items.item(workspace, names["mirroredDatabaseId"])
        if item is None:
            raise FabricApiError(FabricErrorCode.ItemNotFound)
        return item

    def list_workspaces(self, *_: object) -> dict[str, Any]:
        return {"value": [_workspace_json(workspace) for workspace in self._items.workspaces()]}

    def get_workspace(self, workspace: Workspace, _: object) -> dict[str, Any]:
        return _workspace_json(workspace)

    def list_items(self, workspace: Workspace, _: object) -> dict[str, Any]:
        return {"value": [_item_json(item) for item in self._items.items(workspace)]}

    def create_item(self, workspace: Workspace, body: Mapping[str, Any]) -> dict[str, Any]:
        if body.get("type", "MirroredDatabase") != "MirroredDatabase":
            raise FabricApiError(FabricErrorCode.InvalidItemType)
        name = _text(body, "displayName", MAX_NAME)
        description = _text(body, "description", MAX_DESCRIPTION, "")
        definition = body.get("definition")
        payload = None if definition is None else payload_of(definition)
        item = self._items.create(workspace, name, description, payload)
        self._pool.add(item)
        return _item_json(item)

    def get_item(self, item: Item, _: object) -> dict[str, Any]:
        return _item_json(item)

    def update_item(self, item: Item, body: Mapping[str, Any]) -> dict[str, Any]:
        name = _text(body, "displayName", MAX_NAME, item.name)
        description = _text(body, "description", MAX_DESCRIPTION, item.description)
        was_running = self._pool.status(item)[0] in {DatabaseStatus.STARTING, DatabaseStatus.RUNNING}
        if name != item.name:
            self._pool.forget(item)
        try:
            item = self._change(replace(item, name=name, description=description))
        finally:
            if was_running:
                self._pool.start(item)
        return _item_json(item)

    def delete_item(self, item: Item, _: object) -> None:
        self._pool.forget(item)
        self._items.remove(item)

    def get_definition(self, item: Item, _: object) -> dict[str, Any]:
        return {"definition": definition_json(_definition(item))}

    def update_definition(self, item: Item, body: Mapping[str, Any]) -> None:
        payload = payload_of(body.get("definition"))
        is_same = item.definition is not None and _schema(item.definition) == _schema(payload)
        if not is_same and self._pool.status(item)[0] not in {DatabaseStatus.INITIALIZED, DatabaseStatus.STOPPED}:
            raise FabricApiError(FabricErrorCode.OperationNotAllowed)
        self._change(replace(item, definition=payload))

    def start_mirroring(self, item: Item, _: object) -> None:
        self._check_ready(item)
        _definition(item)
        self._pool.start(item)

    def stop_mirroring(self, item: Item, _: object) -> None:
        self._check_ready(item)
        self._pool.stop(item)

    def get_mirroring_status(self, item: Item, _: object) -> dict[str, Any]:
        status, error = self._pool.status(item)
        return {"status": status.value, **_error_json(INTERNAL if error else "", error)}

    def get_tables_status(self, item: Item, query: Mapping[str, str]) -> dict[str, Any]:
        """`TABLES_PER_PAGE` at a time."""
        tables = self._pool.tables(item)
        token = query.get("continuationToken", "0")
        if not (token.isascii() and token.isdigit()) or len(token) > len(str(1 << 31)):
            raise FabricApiError(FabricErrorCode.InvalidRequest, "continuationToken is not a token of this server.")
        end = int(token) + TABLES_PER_PAGE
        body: dict[str, Any] = {"data": [_table_json(table) for table in tables[int(token) : end]]}
        if end < len(tables):
            database = f"https://{FABRIC}{BASE}/workspaces/{item.workspace.id}/mirroredDatabases/{item.id}"
            url = f"{database}/getTablesMirroringStatus?continuationToken={end}"
            body |= {"continuationToken": str(end), "continuationUri": url}
        return body

    def _check_ready(self, item: Item) -> None:
        if self._pool.status(item)[0] is DatabaseStatus.INITIALIZING:
            raise FabricApiError(FabricErrorCode.MirroredDatabaseNotReady, headers={"Retry-After": "1"})

    def _change(self, item: Item) -> Item:
        try:
            return self._items.change(item)
        except KeyError:  # deleted in between
            raise FabricApiError(FabricErrorCode.ItemNotFound) from None


def _definition(item: Item) -> bytes:
    if item.definition is None:
        raise FabricApiError(FabricErrorCode.MirroringDefinitionMissing)
    return item.definition


def _workspace_json(workspace: Workspace) -> dict[str, Any]:
    return {"id": workspace.id, "displayName": workspace.name, "description": "", "type": "Workspace"}


def _item_json(item: Item) -> dict[str, Any]:
    sql = uuid5(UUID(item.id), "sql")  # nothing listens there
    return {
        "id": item.id,
        "type": "MirroredDatabase",
        "displayName": item.name,
        "description": item.description,
        "workspaceId": item.workspace.id,
        "properties": {
            "oneLakeTablesPath": f"https://onelake.{DFS}/{item.workspace.id}/{item.id}/Tables",
            "sqlEndpointProperties": {
                "connectionString": f"{sql}.datawarehouse.fabric.microsoft.com",
                "id": str(sql),
                "provisioningStatus": "Success",
            },
            "defaultSchema": DEFAULT_SCHEMA if item.definition is None else _schema(item.definition),
        },
    }


def _table_json(entry: Mapping[str, Any]) -> dict[str, Any]:
    """A table's status, from its entry in `tables.json`."""
    metrics = entry.get("metrics", {})
    last_sync = metrics.get("lastSyncTimeUtc", NEVER)
    return {
        "sourceObjectType": "Table",
        "sourceSchemaName": entry.get("sourceSchemaName", ""),
        "sourceTableName": entry.get("sourceTableName", ""),
        "status": entry.get("status", ""),
        "metrics": {
            "processedBytes": metrics.get("processedByte", 0),
            "processedRows": metrics.get("processedRowCount", 0),
            "lastSyncDateTime": None if last_sync == NEVER else last_sync,
        },
        **_error_json(entry.get("errorCode", ""), entry.get("errorMessage", "")),
    }


def _error_json(code: str, message: str) -> dict[str, Any]:
    return {"error": {"errorCode": code, "message": message}} if code else {}


def _text(body: Mapping[str, Any], name: str, max_length: int, default: str | None = None) -> str:
    value = body.get(name, default)
    if not isinstance(value, str) or len(value) > max_length or (not value and default is None):
        raise FabricApiError(FabricErrorCode.InvalidRequest, f"{name} is not a text of 1 to {max_length} characters.")
    return value


def _schema(payload: bytes) -> str:
    return str(read_definition(payload).get("default_schema", DEFAULT_SCHEMA))


def fabric_app(pool: EnginePool) -> Starlette:
    """The ASGI application; its OpenAPI document is at `/v1/openapi.json`."""
    operations = _Operations(pool)
    routes = [
        Route(BASE + path, _endpoint(operations, operation), methods=[method.upper()])
        for path, methods in DOCUMENT["paths"].items()
        for method, operation in methods.items()
    ]
    document = Route(f"{BASE}/openapi.json", lambda _: JSONResponse(DOCUMENT))
    return Starlette(routes=[document, *routes], exception_handlers=dict.fromkeys(_EXPECTED, _error_response))


def _endpoint(operations: _Operations, operation: Mapping[str, Any]) -> Callable[[Request], Awaitable[Response]]:
    status = min(map(int, filter(str.isdigit, operation["responses"])))
    operate = getattr(operations, operation["operationId"])

    async def answer(request: Request) -> Response:
        content = await read_bounded(request.stream())
        values = _object(content) if "requestBody" in operation else request.query_params
        result = await to_thread.run_sync(lambda: operate(operations.subject(request.path_params), values))
        headers = {"requestId": str(uuid4())}
        return Response(b"", 200, headers) if result is None else JSONResponse(result, status, headers)

    return answer


def _object(content: bytes) -> Mapping[str, Any]:
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        raise FabricApiError(FabricErrorCode.InvalidRequest, "The body is not JSON.") from None
    if not isinstance(body, dict):
        raise FabricApiError(FabricErrorCode.InvalidRequest, "The body is not a JSON object.")
    return body


_EXPECTED = (
    FabricApiError,
    StorageApiError,
    NameInUse,
    NameUnusable,
    CorruptedPayload,
    StorageUnavailable,
    HTTPException,
)


async def _error_response(_: Request, problem: Exception) -> Response:
    match problem:
        case FabricApiError():
            return problem.response()
        case StorageApiError(code=StorageErrorCode.RequestBodyTooLarge):
            error = FabricApiError(FabricErrorCode.RequestBodyTooLarge)
        case NameInUse():
            error = FabricApiError(FabricErrorCode.ItemDisplayNameAlreadyInUse)
        case NameUnusable():
            error = FabricApiError(FabricErrorCode.InvalidRequest, str(problem))
        case CorruptedPayload():
            error = FabricApiError(FabricErrorCode.CorruptedPayload, str(problem))
        case HTTPException(status_code=405):
            error = FabricApiError(FabricErrorCode.MethodNotAllowed)
        case HTTPException():
            error = FabricApiError(FabricErrorCode.EndpointNotFound)
        case _:
            error = FabricApiError(FabricErrorCode.ServiceUnavailable, str(problem), {"Retry-After": "1"})
    return error.response()
