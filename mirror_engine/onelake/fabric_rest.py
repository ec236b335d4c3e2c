"""Fabric's REST API for mirrored databases (LZ-9.4); `openapi.json` lists the operations."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from enum import Enum
from importlib.resources import files
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID, uuid4, uuid5

from anyio import to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from mirror_engine._version import __version__
from mirror_engine.errors import StorageUnavailable
from mirror_engine.onelake.errors import StorageApiError
from mirror_engine.onelake.hosts import DFS
from mirror_engine.onelake.items import (
    CorruptedPayload,
    NameInUse,
    NameUnusable,
    definition_json,
    payload_of,
    read_definition,
)
from mirror_engine.onelake.replication import DatabaseStatus
from mirror_engine.onelake.requests import read_bounded

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.requests import Request

    from mirror_engine.onelake.items import Item, Items, Workspace
    from mirror_engine.onelake.replication import MirroredDatabases, TableReport

_Result = TypeVar("_Result")

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


@dataclass(frozen=True)
class FabricRequest:
    """A request: URL without the query, path and query parameters, and the JSON object of its body."""

    url: str
    path: Mapping[str, str]
    query: Mapping[str, str]
    body: Mapping[str, Any] = field(default_factory=dict)


class FabricApi:
    """The operations of `openapi.json`, each a method named by its operation id.

    Args:
        items: the workspaces and items of the store.
        databases: replicates them.
    """

    def __init__(self, items: Items, databases: MirroredDatabases) -> None:
        self._items = items
        self._databases = databases

    def list_workspaces(self, _: FabricRequest) -> dict[str, Any]:
        """List Workspaces."""
        return {"value": [_workspace_json(workspace) for workspace in self._items.workspaces()]}

    def get_workspace(self, request: FabricRequest) -> dict[str, Any]:
        """Get Workspace."""
        return _workspace_json(self._workspace(request))

    def list_items(self, request: FabricRequest) -> dict[str, Any]:
        """List Mirrored Databases."""
        return {"value": [_item_json(item) for item in self._items.items(self._workspace(request))]}

    def create_item(self, request: FabricRequest) -> dict[str, Any]:
        """Create Mirrored Database."""
        workspace = self._workspace(request)
        if request.body.get("type", "MirroredDatabase") != "MirroredDatabase":
            raise FabricApiError(FabricErrorCode.InvalidItemType)
        name = _text(request, "displayName", MAX_NAME)
        description = _text(request, "description", MAX_DESCRIPTION, "")
        definition = request.body.get("definition")
        payload = None if definition is None else _payload(definition)
        item = _with_errors(lambda: self._items.create(workspace, name, description, payload))
        self._databases.add(item)
        return _item_json(item)

    def get_item(self, request: FabricRequest) -> dict[str, Any]:
        """Get Mirrored Database."""
        return _item_json(self._item(request))

    def update_item(self, request: FabricRequest) -> dict[str, Any]:
        """Update Mirrored Database: name, description."""
        item = self._item(request)
        name = _text(request, "displayName", MAX_NAME, item.name)
        description = _text(request, "description", MAX_DESCRIPTION, item.description)
        was_running = self._databases.status(item)[0] in {DatabaseStatus.STARTING, DatabaseStatus.RUNNING}
        if name != item.name:
            self._databases.forget(item)
        try:
            item = _with_errors(lambda: self._items.change(replace(item, name=name, description=description)))
        finally:
            if was_running:
                self._databases.start(item)
        return _item_json(item)

    def delete_item(self, request: FabricRequest) -> None:
        """Delete Mirrored Database: it moves to the store's trash."""
        item = self._item(request)
        self._databases.forget(item)
        self._items.remove(item)

    def get_definition(self, request: FabricRequest) -> dict[str, Any]:
        """Get Mirrored Database Definition."""
        item = self._item(request)
        if item.definition is None:
            raise FabricApiError(FabricErrorCode.MirroringDefinitionMissing)
        return {"definition": definition_json(item.definition)}

    def update_definition(self, request: FabricRequest) -> None:
        """Update Mirrored Database Definition; the default schema changes only while replication is stopped."""
        item = self._item(request)
        payload = _payload(request.body.get("definition"))
        is_same = item.definition is not None and _schema(item.definition) == _schema(payload)
        calm = {DatabaseStatus.INITIALIZED, DatabaseStatus.STOPPED}
        if not is_same and self._databases.status(item)[0] not in calm:
            raise FabricApiError(FabricErrorCode.OperationNotAllowed)
        self._items.change(replace(item, definition=payload))

    def start_mirroring(self, request: FabricRequest) -> None:
        """Start Mirroring."""
        item = self._ready_item(request)
        if item.definition is None:
            raise FabricApiError(FabricErrorCode.MirroringDefinitionMissing)
        self._databases.start(item)

    def stop_mirroring(self, request: FabricRequest) -> None:
        """Stop Mirroring."""
        self._databases.stop(self._ready_item(request))

    def get_mirroring_status(self, request: FabricRequest) -> dict[str, Any]:
        """Get Mirroring Status."""
        status, error = self._databases.status(self._item(request))
        body = {"error": {"errorCode": error.code, "message": error.message}} if error else {}
        return {"status": status.value, **body}

    def get_tables_status(self, request: FabricRequest) -> dict[str, Any]:
        """Get Tables Mirroring Status, `TABLES_PER_PAGE` at a time."""
        tables = self._databases.tables(self._item(request))
        token = request.query.get("continuationToken", "0")
        if not (token.isascii() and token.isdigit()) or len(token) > len(str(1 << 31)):
            raise FabricApiError(FabricErrorCode.InvalidRequest, "continuationToken is not a token of this server.")
        end = int(token) + TABLES_PER_PAGE
        body: dict[str, Any] = {"data": [_table_json(table) for table in tables[int(token) : end]]}
        if end < len(tables):
            url = f"{request.url}?continuationToken={end}"
            body |= {"continuationToken": str(end), "continuationUri": url}
        return body

    def _workspace(self, request: FabricRequest) -> Workspace:
        workspace = self._items.workspace(request.path["workspaceId"])
        if workspace is None:
            raise FabricApiError(FabricErrorCode.WorkspaceNotFound)
        return workspace

    def _item(self, request: FabricRequest) -> Item:
        item = self._items.item(self._workspace(request), request.path["mirroredDatabaseId"])
        if item is None:
            raise FabricApiError(FabricErrorCode.ItemNotFound)
        return item

    def _ready_item(self, request: FabricRequest) -> Item:
        item = self._item(request)
        if self._databases.status(item)[0] is DatabaseStatus.INITIALIZING:
            raise FabricApiError(FabricErrorCode.MirroredDatabaseNotReady, headers={"Retry-After": "1"})
        return item


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


def _table_json(table: TableReport) -> dict[str, Any]:
    error = table.error
    return {
        "sourceObjectType": "Table",
        "sourceSchemaName": table.schema,
        "sourceTableName": table.table,
        "status": table.status,
        "metrics": {
            "processedBytes": table.processed_bytes,
            "processedRows": table.processed_rows,
            "lastSyncDateTime": table.last_sync,
        },
    } | ({"error": {"errorCode": error.code, "message": error.message}} if error else {})


def _text(request: FabricRequest, name: str, max_length: int, default: str | None = None) -> str:
    value = request.body.get(name, default)
    if not isinstance(value, str) or len(value) > max_length or (not value and default is None):
        raise FabricApiError(FabricErrorCode.InvalidRequest, f"{name} is not a text of 1 to {max_length} characters.")
    return value


def _payload(definition: object) -> bytes:
    try:
        return payload_of(definition)
    except CorruptedPayload as problem:
        raise FabricApiError(FabricErrorCode.CorruptedPayload, str(problem)) from None


def _schema(payload: bytes) -> str:
    return read_definition(payload).default_schema or DEFAULT_SCHEMA


def _with_errors(change: Callable[[], _Result]) -> _Result:
    try:
        return change()
    except NameInUse:
        raise FabricApiError(FabricErrorCode.ItemDisplayNameAlreadyInUse) from None
    except NameUnusable:
        raise FabricApiError(FabricErrorCode.InvalidRequest, "displayName cannot be the name of a folder.") from None
    except KeyError:
        raise FabricApiError(FabricErrorCode.ItemNotFound) from None


def fabric_app(api: FabricApi) -> Starlette:
    """The ASGI application; its OpenAPI document is at `/v1/openapi.json`."""

    async def document(_: Request) -> Response:
        return JSONResponse(DOCUMENT)

    routes = [
        Route(BASE + path, _endpoint(getattr(api, operation["operationId"]), operation), methods=[method.upper()])
        for path, methods in DOCUMENT["paths"].items()
        for method, operation in methods.items()
    ]
    return Starlette(
        routes=[Route(f"{BASE}/openapi.json", document), *routes], exception_handlers={HTTPException: _http_error}
    )


def _endpoint(
    perform: Callable[[FabricRequest], Any], operation: Mapping[str, Any]
) -> Callable[[Request], Awaitable[Response]]:
    status = min(map(int, filter(str.isdigit, operation["responses"])))

    async def answer(request: Request) -> Response:
        try:
            result = await to_thread.run_sync(perform, await _read(request, needs_body="requestBody" in operation))
        except FabricApiError as error:
            return error.response()
        except StorageUnavailable as error:
            headers = {"Retry-After": "1"}
            return FabricApiError(FabricErrorCode.ServiceUnavailable, str(error), headers).response()
        headers = {"requestId": str(uuid4())}
        return Response(b"", 200, headers) if result is None else JSONResponse(result, status, headers)

    return answer


async def _read(request: Request, *, needs_body: bool) -> FabricRequest:
    try:
        content = await read_bounded(request.stream())
        body = json.loads(content) if needs_body else {}
    except StorageApiError:
        raise FabricApiError(FabricErrorCode.RequestBodyTooLarge) from None
    except (ValueError, RecursionError):
        raise FabricApiError(FabricErrorCode.InvalidRequest, "The body is not JSON.") from None
    if not isinstance(body, dict):
        raise FabricApiError(FabricErrorCode.InvalidRequest, "The body is not a JSON object.")
    return FabricRequest(str(request.url.replace(query="")), request.path_params, request.query_params, body)


async def _http_error(_: Request, problem: Exception) -> Response:
    is_absent = isinstance(problem, HTTPException) and problem.status_code == 404  # noqa: PLR2004 - not found
    return FabricApiError(
        FabricErrorCode.EndpointNotFound if is_absent else FabricErrorCode.MethodNotAllowed
    ).response()
