"""How Fabric's REST API writes workspaces, items and tables."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4, uuid5

from starlette.responses import JSONResponse

from mirror_engine.onelake.requests import DFS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror_engine.onelake.items import Definition, Item, TableReport, Workspace

DEFAULT_SCHEMA = "dbo"


def workspace_json(workspace: Workspace) -> dict[str, Any]:
    """A workspace."""
    return {"id": workspace.id, "displayName": workspace.name, "description": "", "type": "Workspace"}


def item_json(item: Item, definition: Definition | None) -> dict[str, Any]:
    """A mirrored database; `sqlEndpointProperties` names an endpoint that nothing listens at."""
    sql = uuid5(UUID(item.id), "sql")
    schema = (definition.default_schema if definition else None) or DEFAULT_SCHEMA
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
            "defaultSchema": schema,
        },
    }


def table_json(table: TableReport) -> dict[str, Any]:
    """A line of getTablesMirroringStatus."""
    told: dict[str, Any] = {
        "sourceObjectType": "Table",
        "sourceSchemaName": table.schema,
        "sourceTableName": table.table,
        "status": table.status,
        "metrics": {
            "processedBytes": table.processed_bytes,
            "processedRows": table.processed_rows,
            "lastSyncDateTime": table.last_sync,
        },
    }
    if table.error:
        told["error"] = {"errorCode": table.error.code, "message": table.error.message}
    return told


class FabricFault(Enum):
    """A refusal: status, words, whether to try again."""

    WorkspaceNotFound = (404, "The workspace could not be found.", False)
    ItemNotFound = (404, "The item could not be found.", False)
    EndpointNotFound = (404, "There is no such operation.", False)
    MethodNotAllowed = (405, "The operation does not know this method.", False)
    ItemDisplayNameAlreadyInUse = (409, "The display name is in use in this workspace.", False)
    InvalidRequest = (400, "The request is not valid.", False)
    InvalidItemType = (400, "The item's type is not MirroredDatabase.", False)
    CorruptedPayload = (400, "The definition is corrupted.", False)
    MirroringDefinitionMissing = (400, "The item has no definition.", False)
    MirroredDatabaseNotReady = (400, "The mirrored database is still being initialized.", True)
    OperationNotAllowed = (400, "The default schema changes only while mirroring is Initialized or Stopped.", False)
    TokenExpired = (401, "The access token has expired; send a new one.", False)
    RequestBodyTooLarge = (413, "The request's body is too large.", False)
    TooManyRequests = (429, "Too many requests.", True)
    ServiceUnavailable = (503, "The service is busy; try again later.", True)

    def __init__(self, status: int, words: str, is_retriable: bool) -> None:  # noqa: FBT001 - an enum's row
        self.status = status
        self.words = words
        self.is_retriable = is_retriable


def error_json(request: str, code: str, message: str, *, is_retriable: bool) -> dict[str, Any]:
    """A refusal's body; `request` is a GUID."""
    return {"requestId": request, "errorCode": code, "message": message, "isRetriable": is_retriable}


class FabricRefusal(Exception):
    """A refusal on its way to the client; never with a value of a request's body in its words."""

    def __init__(self, fault: FabricFault, message: str = "", headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message or fault.words)
        self.fault = fault
        self.message = message or fault.words
        self.headers = dict(headers or {})

    def answer(self) -> JSONResponse:
        """As Fabric writes it."""
        request = str(uuid4())
        body = error_json(request, self.fault.name, self.message, is_retriable=self.fault.is_retriable)
        headers = {"x-ms-public-api-error-code": self.fault.name, "requestId": request, **self.headers}
        return JSONResponse(body, self.fault.status, headers)
