"""OneLake's table APIs: the catalogs of Unity Catalog and Apache Iceberg, and the table read API; read only.

What is documented, and where the documentation ends: docs/emulator.md, "Table APIs".
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from mirror_engine.errors import MirrorError, StorageUnavailable
from mirror_engine.landing_zone.layout import TABLES
from mirror_engine.onelake.addresses import check_form
from mirror_engine.onelake.errors import StorageApiError, StorageErrorCode, TableApiError, TableErrorCode
from mirror_engine.onelake.hosts import DFS
from mirror_engine.onelake.item_tables import ItemTables
from mirror_engine.onelake.items import SUFFIXES
from mirror_engine.onelake.requests import Documents
from mirror_engine.onelake.table_reads import MEDIA_TYPE, Reads
from mirror_engine.tables.log.snapshot import history

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.requests import Request

    from mirror_engine.onelake.engine_pool import EnginePool
    from mirror_engine.onelake.items import Item
    from mirror_engine.tables.log.snapshot import DeltaLog

    Operation: TypeAlias = Callable[["_Asked"], Response | dict[str, Any]]

UNITY = "/delta/{workspace}/{item}/api/2.1/unity-catalog"
ICEBERG = "/iceberg/v1"
NAMESPACES = f"{ICEBERG}/{{workspace}}/{{item}}/namespaces"
READ = "/v1.0/workspaces/{workspace}/items/{item}/schemas/{schema}/tables/{table}"
MAX_JSON_BYTES = 1 << 20
_ENDPOINTS = (  # of Iceberg's catalog: what Fabric names there, without `GET …/tables/{table}`
    "GET /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "HEAD /v1/{prefix}/namespaces/{namespace}",
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
)
_UNKNOWN = ("comment", "properties", "owner", "created_by", "updated_by")  # always null in Fabric's answers, too


@dataclass(frozen=True)
class _Asked:
    """A request: the values of its path and query, its JSON body, and the tables of the item that it names."""

    path: Mapping[str, str]
    query: Mapping[str, str]
    body: Mapping[str, Any]
    tables: ItemTables

    @property
    def item(self) -> Item:
        return self.tables.item

    def required(self, name: str) -> str:
        """A query parameter; BadRequest if it is missing."""
        if not self.query.get(name):
            raise TableApiError(TableErrorCode.BadRequest, f"{name} is missing.")
        return self.query[name]

    def catalog(self, name: str) -> str:
        """A catalog's name, which is the item's in one of its spellings; ItemNotFound."""
        if name not in self._catalogs:
            raise TableApiError(TableErrorCode.ItemNotFound)
        return name

    @property
    def _catalogs(self) -> tuple[str, ...]:
        return self.item.id, *(f"{self.item.name}{suffix}" for suffix in SUFFIXES), self.item.name

    def full_name(self, *, has_table: bool) -> tuple[str, str, str]:
        """Catalog, schema and table of the full name in the path; the table is `""` if the name is a schema's.

        A name without a catalog is of the item in the path. TableNotFound if it has dots that no parameter explains.
        """
        rest = self.path["name"]
        given = [self.catalog(self.query["catalog_name"])] if "catalog_name" in self.query else self._catalogs
        catalog = next((each for each in given if rest.startswith(f"{each}.")), given[0])
        rest = rest.removeprefix(f"{catalog}.")
        if not has_table:
            return catalog, rest, ""
        if (schema := self.query.get("schema_name")) is not None:
            return catalog, schema, rest.removeprefix(f"{schema}.")
        schema, _, table = rest.partition(".")
        if "." in table:
            message = "The name has dots of its own: say catalog_name and schema_name in the query."
            raise TableApiError(TableErrorCode.TableNotFound, message)
        return catalog, schema, table


def _list_schemas(asked: _Asked) -> dict[str, Any]:
    catalog = asked.catalog(asked.required("catalog_name"))
    schemas = [
        {"name": name, "catalog_name": catalog, "full_name": f"{catalog}.{name}", "created_at": at, "updated_at": at}
        for name, at in asked.tables.schemas().items()
    ]
    unknown = dict.fromkeys((*_UNKNOWN, "schema_id"))
    return {"schemas": [{**each, **unknown} for each in schemas], "next_page_token": None}


def _schema_exists(asked: _Asked) -> Response:
    asked.tables.check_schema(asked.full_name(has_table=False)[1])
    return Response()


def _list_tables(asked: _Asked) -> dict[str, Any]:
    catalog, schema = asked.catalog(asked.required("catalog_name")), asked.required("schema_name")
    described = [_table_json(asked.item, catalog, schema, name) for name in asked.tables.names(schema)]
    return {"tables": described, "next_page_token": None}


def _get_table(asked: _Asked) -> dict[str, Any]:
    catalog, schema, table = asked.full_name(has_table=True)
    return _table_json(asked.item, catalog, schema, table, asked.tables.log(schema, table))


def _table_json(item: Item, catalog: str, schema: str, name: str, log: DeltaLog | None = None) -> dict[str, Any]:
    """A table, with columns and times only if it was opened, as Fabric answers."""
    folder = f"{schema}/{name}" if log is None else "/".join(log.folder.parts[log.folder.parts.index(TABLES) + 1 :])
    created, updated = None, None
    if log is not None:
        created = log.handle.metadata().created_time
        commits = history(log.folder, 1, log.version)
        updated = int(commits[0].committed_at.timestamp() * 1000) if commits else created
    return {
        "name": name,
        "catalog_name": catalog,
        "schema_name": schema,
        "table_type": None,
        "data_source_format": "DELTA",
        "columns": log and [_column_json(log, at, column) for at, column in enumerate(log.fields)],
        "storage_location": f"https://onelake.{DFS}/{item.workspace.id}/{item.id}/{TABLES}/{folder}",
        **dict.fromkeys(_UNKNOWN),
        "created_at": created,
        "updated_at": updated,
        "table_id": log and log.table_id,
    }


def _column_json(log: DeltaLog, position: int, name: str) -> dict[str, Any]:
    field, partitions = log.fields[name], log.schema.partition_columns
    kind = field["type"] if isinstance(field["type"], str) else field["type"]["type"]
    word, _, digits = kind.partition("(")
    precision, scale = map(int, digits.rstrip(")").split(",")) if digits else (0, 0)
    return {
        "name": name,
        "type_text": None,
        "type_json": None,
        "type_name": word,
        "type_precision": precision,
        "type_scale": scale,
        "type_interval_type": None,
        "comment": None,
        "partition_index": partitions.index(name) if name in partitions else 0,
        "position": position,
        "nullable": field["nullable"],
    }


def _configuration(asked: _Asked) -> dict[str, Any]:
    prefix = asked.required("warehouse").strip("/")
    return {"defaults": {}, "endpoints": [*_ENDPOINTS], "overrides": {"prefix": prefix}}


def _list_namespaces(asked: _Asked) -> dict[str, Any]:
    if asked.query.get("parent"):
        raise TableApiError(TableErrorCode.BadRequest, "parent is not supported: schemas have no schemas.")
    return {"namespaces": [[name] for name in asked.tables.schemas()], "next-page-token": None}


def _get_namespace(asked: _Asked) -> dict[str, Any]:
    schema, item = asked.path["schema"], asked.item
    asked.tables.check_schema(schema)
    location = f"{item.workspace.id}/{item.id}/{TABLES}/{schema}"
    return {"namespace": [schema], "properties": {"location": location}}


def _namespace_exists(asked: _Asked) -> Response:
    asked.tables.check_schema(asked.path["schema"])
    return Response(status_code=204)


def _list_identifiers(asked: _Asked) -> dict[str, Any]:
    schema = asked.path["schema"]
    found = [{"namespace": [schema], "name": name} for name in asked.tables.names(schema)]
    return {"identifiers": found, "next-page-token": None}


def _load_table(asked: _Asked) -> Response:
    """Refuse a table that is there: its Iceberg metadata is not made here."""
    _check_table(asked)
    raise TableApiError(TableErrorCode.NoIcebergMetadata)


def _table_exists(asked: _Asked) -> Response:
    _check_table(asked)
    return Response(status_code=204)


def _check_table(asked: _Asked) -> None:
    if asked.path["table"] not in asked.tables.names(asked.path["schema"]):
        raise TableApiError(TableErrorCode.TableNotFound)


def table_app(pool: EnginePool) -> Starlette:
    """The ASGI application of `onelake.table.fabric.microsoft.com`."""
    reads = Reads(pool.clock)

    def begin_read(asked: _Asked) -> dict[str, Any]:
        return {"streams": [{"streamId": each} for each in reads.begin(asked.tables, _place(asked), asked.body)]}

    def read_stream(asked: _Asked) -> Response:
        return StreamingResponse(reads.chunks(_place(asked), asked.path["stream"]), media_type=MEDIA_TYPE)

    operations: tuple[tuple[str, str, Operation], ...] = (
        ("GET", f"{UNITY}/schemas", _list_schemas),
        ("HEAD", f"{UNITY}/schemas/{{name}}", _schema_exists),
        ("GET", f"{UNITY}/tables", _list_tables),
        ("GET", f"{UNITY}/tables/{{name}}", _get_table),
        ("GET", f"{ICEBERG}/config", _configuration),
        ("GET", NAMESPACES, _list_namespaces),
        ("HEAD", f"{NAMESPACES}/{{schema}}", _namespace_exists),
        ("GET", f"{NAMESPACES}/{{schema}}", _get_namespace),
        ("GET", f"{NAMESPACES}/{{schema}}/tables", _list_identifiers),
        ("HEAD", f"{NAMESPACES}/{{schema}}/tables/{{table}}", _table_exists),
        ("GET", f"{NAMESPACES}/{{schema}}/tables/{{table}}", _load_table),
        ("POST", f"{READ}/read", begin_read),
        ("GET", f"{READ}/readStream/{{stream}}", read_stream),
    )
    documents = Documents()
    routes = [Route(path, _endpoint(pool, documents, run), methods=[method]) for method, path, run in operations]
    return Starlette(routes=routes, exception_handlers=dict.fromkeys(_EXPECTED, _error_response))


def _place(asked: _Asked) -> tuple[str, str, str]:
    return asked.item.id, asked.path["schema"], asked.path["table"]


def _endpoint(
    pool: EnginePool, documents: Documents, run: Callable[[_Asked], Any]
) -> Callable[..., Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        async with documents.read(request.stream(), MAX_JSON_BYTES) as content:
            body = _object(content)
        return await run_in_threadpool(partial(_answer, pool, run, request, body))

    return answer


def _answer(pool: EnginePool, run: Callable[[_Asked], Any], request: Request, body: Mapping[str, Any]) -> Response:
    path, query = request.path_params, request.query_params
    workspace, item = path.get("workspace"), path.get("item")
    if workspace is None:  # Iceberg's configuration
        workspace, _, item = query.get("warehouse", "").strip("/").partition("/")
        if not item:
            raise TableApiError(TableErrorCode.BadRequest, "warehouse is not WORKSPACE/ITEM.")
    tables = ItemTables(_item(pool, workspace, str(item)), pool.plan.store.absolute())
    result = run(_Asked(path, query, body, tables))
    return result if isinstance(result, Response) else JSONResponse(result)


def _item(pool: EnginePool, workspace_name: str, name: str) -> Item:
    """The item by GUIDs, or by names with its type; WorkspaceNotFound, ItemNotFound, FriendlyNameSupportDisabled."""
    workspace = pool.items.workspace(workspace_name)
    if workspace is None:
        raise TableApiError(TableErrorCode.WorkspaceNotFound)
    item = pool.items.item(workspace, name)
    check_form(pool.items, name, item)
    if item is None:
        raise TableApiError(TableErrorCode.ItemNotFound)
    return item


def _object(content: bytearray) -> Mapping[str, Any]:
    body = None
    with suppress(ValueError, RecursionError):  # dropped, as it holds the body
        body = json.loads(content or b"{}")
    if not isinstance(body, dict):
        raise TableApiError(TableErrorCode.BadRequest, "The body is not a JSON object.")
    return body


_EXPECTED = (TableApiError, StorageApiError, MirrorError, HTTPException)


async def _error_response(request: Request, problem: Exception) -> Response:
    match problem:
        case TableApiError():
            error = problem
        case StorageApiError(code=StorageErrorCode.RequestBodyTooLarge):
            error = TableApiError(TableErrorCode.RequestBodyTooLarge)
        case StorageApiError(code=StorageErrorCode.FriendlyNameSupportDisabled):
            error = TableApiError(TableErrorCode.BadRequest, str(problem), problem.headers)
        case HTTPException(status_code=405):
            error = TableApiError(TableErrorCode.MethodNotAllowed)
        case HTTPException():
            error = TableApiError(TableErrorCode.EndpointNotFound)
        case StorageApiError() | StorageUnavailable():
            error = TableApiError(TableErrorCode.ServiceUnavailable, str(problem), {"Retry-After": "1"})
        case _:  # a damaged table
            error = TableApiError(TableErrorCode.InternalError, str(problem))
    return error.response(request.url.path)
