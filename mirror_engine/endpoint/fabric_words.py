"""How Fabric's REST API writes workspaces, items and tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid5

from mirror_engine.endpoint.hosts import DFS

if TYPE_CHECKING:
    from mirror_engine.endpoint.databases import TableReport
    from mirror_engine.endpoint.definition import Definition
    from mirror_engine.endpoint.items import Item, Workspace

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
