"""The OpenAPI document of the REST part, and the table of operations that it is made from."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from mirror_engine import __version__

BASE = "/v1"
_WORKSPACE = "/workspaces/{workspaceId}"
_ITEMS = f"{_WORKSPACE}/mirroredDatabases"
_ITEM = f"{_ITEMS}/{{mirroredDatabaseId}}"


@dataclass(frozen=True)
class Operation:
    """One operation.

    Attributes:
        id: also the name of the method that performs it.
        method: of HTTP.
        path: below `BASE`.
        words: what it does.
        answer: the schema of what a success gives; `""` for an empty body.
        body: the schema of what must be sent; `""` where nothing must.
        status: of a success.
        query: its query parameters.
    """

    id: str
    method: str
    path: str
    words: str
    answer: str = ""
    body: str = ""
    status: int = 200
    query: tuple[str, ...] = ()


OPERATIONS = (
    Operation("list_workspaces", "GET", "/workspaces", "The workspaces of the store.", "Workspaces"),
    Operation("get_workspace", "GET", _WORKSPACE, "One workspace.", "Workspace"),
    Operation("list_items", "GET", _ITEMS, "The mirrored databases of a workspace.", "Items"),
    Operation("create_item", "POST", _ITEMS, "A new mirrored database.", "Item", "NewItem", 201),
    Operation("get_item", "GET", _ITEM, "One mirrored database.", "Item"),
    Operation("update_item", "PATCH", _ITEM, "A new name or description.", "Item", "ItemUpdate"),
    Operation("delete_item", "DELETE", _ITEM, "Moves a mirrored database to the store's trash."),
    Operation("get_definition", "POST", f"{_ITEM}/getDefinition", "The definition as given.", "WithDefinition"),
    Operation("update_definition", "POST", f"{_ITEM}/updateDefinition", "A new definition.", "", "WithDefinition"),
    Operation("start_mirroring", "POST", f"{_ITEM}/startMirroring", "Begins to mirror."),
    Operation("stop_mirroring", "POST", f"{_ITEM}/stopMirroring", "Mirrors no more."),
    Operation("get_mirroring_status", "POST", f"{_ITEM}/getMirroringStatus", "The database's state.", "Status"),
    Operation(
        "get_tables_status",
        "POST",
        f"{_ITEM}/getTablesMirroringStatus",
        "The tables' states, a hundred a page.",
        "TablesStatus",
        query=("continuationToken",),
    ),
)

_TEXT = {"type": "string"}
_COUNT = {"type": "integer", "minimum": 0}


def _object(*required: str, **properties: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    return {"type": "object", "required": list(required), "properties": properties}


def _list_of(schema: str) -> dict[str, Any]:
    return {"type": "array", "items": _named(schema)}


def _named(schema: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{schema}"}


_NAME = {"type": "string", "minLength": 1, "maxLength": 123}
_DESCRIPTION = {"type": "string", "maxLength": 256}
_PART = _object("path", "payload", "payloadType", path=_TEXT, payload=_TEXT, payloadType={"enum": ["InlineBase64"]})
_DEFINITION = _object("parts", parts=_list_of("Part"))
_SQL = _object("id", connectionString=_TEXT, id=_TEXT, provisioningStatus=_TEXT)
_PROPERTIES = _object("oneLakeTablesPath", oneLakeTablesPath=_TEXT, sqlEndpointProperties=_SQL, defaultSchema=_TEXT)
_METRICS = _object(processedBytes=_COUNT, processedRows=_COUNT, lastSyncDateTime={"anyOf": [_TEXT, {"type": "null"}]})
_DATABASE_STATES = ["Initializing", "Initialized", "Starting", "Running", "Paused", "Stopping", "Stopped"]
_TABLE_STATES = ["Initialized", "Snapshotting", "Replicating", "Reseeding", "Stopped", "Failed"]
_SCHEMAS = {
    "Error": _object(
        "errorCode", "message", errorCode=_TEXT, message=_TEXT, requestId=_TEXT, isRetriable={"type": "boolean"}
    ),
    "Workspace": _object("id", "displayName", id=_TEXT, displayName=_TEXT, description=_TEXT, type=_TEXT),
    "Workspaces": _object("value", value=_list_of("Workspace")),
    "Item": _object(
        "id",
        "type",
        "displayName",
        "workspaceId",
        "properties",
        id=_TEXT,
        type={"enum": ["MirroredDatabase"]},
        displayName=_TEXT,
        description=_TEXT,
        workspaceId=_TEXT,
        properties=_PROPERTIES,
    ),
    "Items": _object("value", value=_list_of("Item")),
    "Part": _PART,
    "Definition": _DEFINITION,
    "WithDefinition": _object("definition", definition=_named("Definition")),
    "NewItem": _object(
        "displayName",
        displayName=_NAME,
        description=_DESCRIPTION,
        folderId=_TEXT,
        type={"enum": ["MirroredDatabase"]},
        definition=_named("Definition"),
    ),
    "ItemUpdate": _object(displayName=_NAME, description=_DESCRIPTION),
    "Status": _object("status", status={"enum": _DATABASE_STATES}, error=_named("Error")),
    "TableStatus": _object(
        "sourceObjectType",
        "sourceSchemaName",
        "sourceTableName",
        "status",
        "metrics",
        sourceObjectType={"enum": ["Table"]},
        sourceSchemaName=_TEXT,
        sourceTableName=_TEXT,
        status={"enum": _TABLE_STATES},
        metrics=_METRICS,
        error=_named("Error"),
    ),
    "TablesStatus": _object("data", data=_list_of("TableStatus"), continuationToken=_TEXT, continuationUri=_TEXT),
}


def _told(operation: Operation) -> dict[str, Any]:
    answer = {"application/json": {"schema": _named(operation.answer)}}
    done: dict[str, Any] = {"description": operation.words} | ({"content": answer} if operation.answer else {})
    refused = {"description": "A refusal.", "content": {"application/json": {"schema": _named("Error")}}}
    names = [(name, "path") for name in re.findall(r"{(\w+)}", operation.path)]
    names += [(name, "query") for name in operation.query]
    told: dict[str, Any] = {
        "operationId": operation.id,
        "summary": operation.words,
        "parameters": [_parameter(name, place) for name, place in names],
        "responses": {str(operation.status): done, "4XX": refused, "503": refused},
    }
    if operation.body:
        body = {"application/json": {"schema": _named(operation.body)}}
        told["requestBody"] = {"required": True, "content": body}
    return told


def _parameter(name: str, place: str) -> dict[str, Any]:
    return {"name": name, "in": place, "required": place == "path", "schema": _TEXT}


def _document() -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _told(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Mirrored databases, as mirror-engine answers for Fabric",
            "version": __version__,
        },
        "servers": [{"url": f"https://api.fabric.microsoft.com{BASE}"}],
        "paths": paths,
        "components": {"schemas": _SCHEMAS},
    }


DOCUMENT = _document()
