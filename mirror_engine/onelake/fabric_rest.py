"""Fabric's REST API for mirrored databases (LZ-9.4); `openapi.json` lists the operations."""

from __future__ import annotations

import json
import time
from collections import Counter
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
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
from mirror_engine.monitoring.fabric_errors import INTERNAL
from mirror_engine.monitoring.fabric_files import NEVER, dotnet
from mirror_engine.onelake.definition import PLAIN, definition_json, payload_of, read_definition
from mirror_engine.onelake.engine_pool import DatabaseStatus
from mirror_engine.onelake.errors import FabricApiError, FabricErrorCode, StorageApiError, StorageErrorCode
from mirror_engine.onelake.hosts import BLOB, DFS, FABRIC
from mirror_engine.onelake.item_tables import DEFAULT_SCHEMA
from mirror_engine.onelake.items import Item
from mirror_engine.onelake.requests import Documents

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.requests import Request

    from mirror_engine.onelake.engine_pool import EnginePool
    from mirror_engine.onelake.items import Workspace

BASE = "/v1"
TABLES_PER_PAGE = 100
MAX_NAME, MAX_DESCRIPTION = 123, 256
# How long a SQL endpoint takes to show what Delta has, in this context; by default it is refreshed at once
REFRESH_SECONDS: ContextVar[float] = ContextVar("refresh_seconds", default=0.0)
SECONDS = 1.5  # of a long-running operation: a publisher that waits for its Retry-After sees it Running once
MAX_JSON_BYTES = 1 << 20  # of a request: a definition that names a thousand tables has a fifth of that
MAX_KEPT = 100  # long-running operations
DOCUMENT = json.loads((files("mirror_engine.onelake") / "openapi.json").read_text(encoding="utf-8"))
DOCUMENT["info"]["version"] = __version__


_SYNCHRONOUS = "create_mirrored_database"  # has no 202 in Microsoft's specification


@dataclass(frozen=True)
class _LongRunning:
    """An operation that was answered with 202 (LZ-9.9): what it does was done when it began."""

    ends_at: float
    began: str
    result: Mapping[str, Any] | None  # None where it has none
    error: Mapping[str, Any] | None  # why it failed


class _Operations:
    """The operations of `openapi.json`, each a method named by its operation id.

    They take the item, workspace or long-running operation that the path names, and the JSON body, or the query where
    there is none.
    """

    def __init__(self, pool: EnginePool) -> None:
        self._items = pool.items
        self._pool = pool
        self._mode = pool.plan.options.long_running
        self._now = pool.clock.monotonic
        self._calls: Counter[str] = Counter()
        self._kept: dict[str, _LongRunning] = {}

    def run(
        self,
        name: str,
        method: Callable[..., Any],
        names: Mapping[str, str],
        values: Mapping[str, Any],
        *,
        may_defer: bool,
    ) -> Any:  # noqa: ANN401 - see above
        """What an operation answers: a response, a JSON body, or None for an empty one."""
        operate = partial(method, self._subject(names), values)
        is_deferred = may_defer and (self._is_deferred(name) or REFRESH_SECONDS.get() > 0)
        result = self._begin(operate) if is_deferred else operate()
        if isinstance(result, Item):
            return _database_json(result) if "mirroredDatabaseId" in names else _item_json(result)
        return result

    def _is_deferred(self, name: str) -> bool:
        """Whether this call is answered with 202. In mode `mixed`: the first, third, fifth … call of an operation."""
        if self._mode != "mixed":
            return self._mode == "always"
        self._calls[name] += 1
        return name != _SYNCHRONOUS and self._calls[name] % 2 == 1

    def _begin(self, operate: Callable[[], Mapping[str, Any] | None]) -> Response:
        """Answer with 202; the operation fails where a definition is not valid, all else is refused at once."""
        result, error, operation_id = None, None, str(uuid4())
        try:
            result = operate()
        except FabricApiError as problem:
            if problem.code is not FabricErrorCode.CorruptedPayload:
                raise
            error = json.loads(bytes(problem.response().body))
        if len(self._kept) >= MAX_KEPT:
            self._kept.pop(next(iter(self._kept)), None)
        self._kept[operation_id] = _LongRunning(self._now() + (REFRESH_SECONDS.get() or SECONDS), _utc(), result, error)
        return JSONResponse(None, 202, _operation_headers(operation_id))

    def _operation(self, operation_id: str) -> _LongRunning:
        if operation_id not in self._kept:
            raise FabricApiError(FabricErrorCode.OperationNotFound)
        return self._kept[operation_id]

    def _subject(self, names: Mapping[str, str]) -> Item | Workspace | str | None:
        if "operationId" in names:
            return names["operationId"]
        if not names:
            return None
        workspace = self._items.workspace(names["workspaceId"])
        if workspace is None:
            raise FabricApiError(FabricErrorCode.WorkspaceNotFound)
        item_name, endpoint = names.get("mirroredDatabaseId", names.get("itemId")), names.get("sqlEndpointId")
        if item_name is not None:
            item = self._items.item(workspace, item_name)
        elif endpoint is not None:
            items = self._items.items(workspace)
            item = next((item for item in items if _sql_endpoint_id(item) == endpoint.lower()), None)
        else:
            return workspace
        if item is None:
            raise FabricApiError(FabricErrorCode.ItemNotFound)
        return item

    def list_workspaces(self, *_: object) -> dict[str, Any]:
        return {"value": [_workspace_json(workspace) for workspace in self._items.workspaces()]}

    def get_workspace(self, workspace: Workspace, _: object) -> dict[str, Any]:
        endpoints = {"blobEndpoint": f"https://onelake.{BLOB}", "dfsEndpoint": f"https://onelake.{DFS}"}
        return {**_workspace_json(workspace), "capacityAssignmentProgress": "Completed", "oneLakeEndpoints": endpoints}

    def list_folders(self, *_: object) -> dict[str, Any]:
        return {"value": []}

    def list_items(self, workspace: Workspace, query: Mapping[str, str]) -> dict[str, Any]:
        """List each database after its SQL endpoint of the same name, as Fabric does."""
        found: list[dict[str, Any]] = []
        for item in self._items.items(workspace):
            database = _item_json(item)
            found += [{**database, "id": _sql_endpoint_id(item), "type": "SQLEndpoint", "description": ""}, database]
        return {"value": [each for each in found if query.get("type") in (None, each["type"])]}

    def list_mirrored_databases(self, workspace: Workspace, _: object) -> dict[str, Any]:
        return {"value": [_database_json(item) for item in self._items.items(workspace)]}

    def create_item(self, workspace: Workspace, body: Mapping[str, Any]) -> dict[str, Any]:
        return self.create_mirrored_database(workspace, {"type": None, **body})

    def create_mirrored_database(self, workspace: Workspace, body: Mapping[str, Any]) -> dict[str, Any]:
        if body.get("type", "MirroredDatabase") != "MirroredDatabase":
            raise FabricApiError(FabricErrorCode.InvalidItemType)
        name = _text(body, "displayName", MAX_NAME)
        description = _text(body, "description", MAX_DESCRIPTION, "")
        definition = body.get("definition")
        payload = None if definition is None else payload_of(definition)
        item = self._items.create(workspace, name, description, payload)
        self._pool.add(item)
        return _item_json(item)  # without properties: there is no SQL endpoint yet

    def get_item(self, item: Item, _: object) -> Item:
        return item

    def update_item(self, item: Item, body: Mapping[str, Any]) -> Item:
        name = _text(body, "displayName", MAX_NAME, item.name)
        description = _text(body, "description", MAX_DESCRIPTION, item.description)
        return self._replace(item, replace(item, name=name, description=description))

    def _replace(self, item: Item, changed: Item) -> Item:
        """Change an item; where its engine runs and has another name or other options, it starts again with them."""
        was_running = self._pool.status(item)[0] in {DatabaseStatus.STARTING, DatabaseStatus.RUNNING}
        before, after = (read_definition(each.definition or PLAIN) for each in (item, changed))
        if changed.name != item.name or (was_running and before != after):
            self._pool.forget(item)
        try:
            return self._items.change(changed)
        finally:
            if was_running:
                self._pool.start(item)

    def delete_item(self, item: Item, _: object) -> None:
        self._pool.forget(item)
        self._items.remove(item)

    def get_item_definition(self, item: Item, _: object) -> dict[str, Any]:
        return {"definition": definition_json(item.name, item.description, _definition(item))}

    def update_item_definition(self, item: Item, body: Mapping[str, Any]) -> None:
        payload = payload_of(body.get("definition"))
        is_same = item.definition is not None and _fixed(item.definition) == _fixed(payload)
        if not is_same and self._pool.status(item)[0] not in {DatabaseStatus.INITIALIZED, DatabaseStatus.STOPPED}:
            raise FabricApiError(FabricErrorCode.OperationNotAllowed)
        self._replace(item, replace(item, definition=payload))

    get_mirrored_database, update_mirrored_database, delete_mirrored_database = get_item, update_item, delete_item
    get_mirrored_database_definition, update_mirrored_database_definition = get_item_definition, update_item_definition

    def refresh_sql_endpoint(self, item: Item, body: Mapping[str, Any]) -> dict[str, Any]:
        """The synchronization of the tables that the body names, or of all; there is no SQL endpoint to refresh."""
        try:
            wanted = [f"{of['schema']}.{name}" for of in body.get("tables") or () for name in of["tableNames"]]
        except (KeyError, TypeError):
            raise FabricApiError(FabricErrorCode.InvalidRequest, "tables is not a list of tables.") from None
        schema, times = _schema(item.definition or PLAIN), (_utc(), _utc(REFRESH_SECONDS.get()))
        synced = {
            f"{table.get('sourceSchemaName') or schema}.{table.get('sourceTableName')}"
            for table in self._pool.tables(item)
            if table.get("metrics", {}).get("lastSyncTimeUtc", NEVER) != NEVER
        }
        return {"value": [_refresh_json(name, *times, is_found=name in synced) for name in wanted or sorted(synced)]}

    def get_operation(self, operation_id: str, _: object) -> Response:
        operation, headers = self._operation(operation_id), _operation_headers(operation_id)
        body = {"createdTimeUtc": operation.began, "lastUpdatedTimeUtc": _utc()}
        if self._now() < operation.ends_at:
            return JSONResponse({"status": "Running", **body, "percentComplete": 50}, headers=headers)
        result = f"{headers.pop('Location')}/result"
        del headers["Retry-After"]
        if operation.error:
            return JSONResponse({"status": "Failed", **body, "error": operation.error}, headers=headers)
        if operation.result is not None:
            headers["Location"] = result
        return JSONResponse({"status": "Succeeded", **body, "percentComplete": 100}, headers=headers)

    def get_operation_result(self, operation_id: str, _: object) -> Mapping[str, Any]:
        operation = self._operation(operation_id)
        if operation.result is None or self._now() < operation.ends_at:
            raise FabricApiError(FabricErrorCode.OperationHasNoResult)
        return operation.result

    def start_mirroring(self, item: Item, _: object) -> None:
        self._check_ready(item)
        _definition(item)
        if self._pool.status(item)[0] is DatabaseStatus.STARTING:
            message = "The mirrored database is already starting."
            raise FabricApiError(FabricErrorCode.MirroredDatabaseNotReady, message)
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


def _definition(item: Item) -> bytes:
    if item.definition is None:
        raise FabricApiError(FabricErrorCode.MirroringDefinitionMissing)
    return item.definition


def _workspace_json(workspace: Workspace) -> dict[str, Any]:
    capacity = str(uuid5(UUID(workspace.id), "capacity"))  # fabric-cicd publishes to no workspace without one
    described = {"displayName": workspace.name, "description": "", "type": "Workspace"}
    return {"id": workspace.id, **described, "capacityId": capacity}


def _sql_endpoint_id(item: Item) -> str:
    return str(uuid5(UUID(item.id), "sql"))  # nothing listens there


def _item_json(item: Item) -> dict[str, Any]:
    return {
        "id": item.id,
        "type": "MirroredDatabase",
        "displayName": item.name,
        "description": item.description,
        "workspaceId": item.workspace.id,
    }


def _database_json(item: Item) -> dict[str, Any]:
    sql = _sql_endpoint_id(item)
    return {
        **_item_json(item),
        "properties": {
            "oneLakeTablesPath": f"https://onelake.{DFS}/{item.workspace.id}/{item.id}/Tables",
            "sqlEndpointProperties": {
                "connectionString": f"{sql}.datawarehouse.fabric.microsoft.com",
                "id": sql,
                "provisioningStatus": "Success",
            },
            "defaultSchema": _schema(item.definition or PLAIN),
        },
    }


def _refresh_json(name: str, begin: str, end: str, *, is_found: bool) -> dict[str, Any]:
    table = {"tableName": name, "startDateTime": begin, "endDateTime": end}
    if is_found:
        return {**table, "status": "Success", "lastSuccessfulSyncDateTime": end}
    never = {"status": "Failure", "lastSuccessfulSyncDateTime": f"{NEVER}Z"}
    return {**table, **never, **_error_json("DeltaTableNotFound", "The table could not be found.")}


def _operation_headers(operation_id: str) -> dict[str, str]:
    location = f"https://{FABRIC}{BASE}/operations/{operation_id}"
    return {"Location": location, "x-ms-operation-id": operation_id, "Retry-After": "1"}


def _utc(seconds: float = 0.0) -> str:
    """The UTC time some seconds from now."""
    return f"{dotnet(time.time() + seconds)}Z"


def _table_json(entry: Mapping[str, Any]) -> dict[str, Any]:
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


def _fixed(payload: bytes) -> tuple[str, object]:
    """What a `mirroring.json` may change only while nothing runs: default schema and the source's connection."""
    schema = _schema(payload)
    typed = json.loads(payload)["properties"]["source"].get("typeProperties")
    return schema, typed.get("connection") if isinstance(typed, dict) else None


def fabric_app(pool: EnginePool) -> Starlette:
    """The ASGI application; its OpenAPI document is at `/v1/openapi.json`."""
    operations, documents = _Operations(pool), Documents()
    routes = [
        Route(BASE + path, _endpoint(operations, documents, operation), methods=[method.upper()])
        for path, methods in DOCUMENT["paths"].items()
        for method, operation in methods.items()
    ]
    document = Route(f"{BASE}/openapi.json", lambda _: JSONResponse(DOCUMENT))
    return Starlette(routes=[document, *routes], exception_handlers=dict.fromkeys(_EXPECTED, _error_response))


def _endpoint(
    operations: _Operations, documents: Documents, operation: Mapping[str, Any]
) -> Callable[[Request], Awaitable[Response]]:
    status = min(map(int, filter(str.isdigit, operation["responses"])))
    takes_body = operation.get("requestBody")
    name = operation["operationId"]
    method = getattr(operations, name)  # one that is missing fails the start, not the first request
    run = partial(operations.run, name, method, may_defer="202" in operation["responses"])

    async def answer(request: Request) -> Response:
        async with documents.read(request.stream(), MAX_JSON_BYTES) as content:
            is_read = takes_body and (content or takes_body["required"])
            values: Callable[[], Mapping[str, Any]] = partial(_object, content) if is_read else dict
            if not takes_body:
                values = lambda: request.query_params  # noqa: E731
            result = await to_thread.run_sync(lambda: run(request.path_params, values()))
        response: Response = result if isinstance(result, Response) else JSONResponse(result, status)
        if result is None:
            response = Response(b"", media_type="application/octet-stream")  # as Fabric's; clients look at the type
        response.headers["requestId"] = str(uuid4())
        if location := response.headers.get("location"):  # at the address that the client asked
            response.headers["location"] = location.replace(f"https://{FABRIC}/", str(request.base_url), 1)
        return response

    return answer


def _object(content: bytearray) -> Mapping[str, Any]:
    body = None
    with suppress(ValueError, RecursionError):  # dropped, as it holds the body
        body = json.loads(content)
    if body is None:
        raise FabricApiError(FabricErrorCode.InvalidRequest, "The body is not JSON.")
    if not isinstance(body, dict):
        raise FabricApiError(FabricErrorCode.InvalidRequest, "The body is not a JSON object.")
    return body


_EXPECTED = (FabricApiError, StorageApiError, StorageUnavailable, HTTPException)


async def _error_response(_: Request, problem: Exception) -> Response:
    match problem:
        case FabricApiError():
            return problem.response()
        case StorageApiError(code=StorageErrorCode.RequestBodyTooLarge):
            error = FabricApiError(FabricErrorCode.RequestBodyTooLarge)
        case HTTPException(status_code=405):
            error = FabricApiError(FabricErrorCode.MethodNotAllowed)
        case HTTPException():
            error = FabricApiError(FabricErrorCode.EndpointNotFound)
        case _:
            error = FabricApiError(FabricErrorCode.ServiceUnavailable, str(problem), {"Retry-After": "1"})
    return error.response()
