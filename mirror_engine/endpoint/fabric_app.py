"""Fabric's REST API over HTTP: a request becomes one operation, its answer or refusal goes back as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from anyio import to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from mirror_engine.endpoint.fabric import Asked, FabricApi
from mirror_engine.endpoint.fabric_faults import FabricFault, FabricRefusal
from mirror_engine.endpoint.faults import EndpointFault
from mirror_engine.endpoint.openapi import BASE, DOCUMENT, OPERATIONS
from mirror_engine.endpoint.work import bounded
from mirror_engine.errors import StorageUnavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request

    from mirror_engine.endpoint.openapi import Operation

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
    except EndpointFault:
        raise FabricRefusal(FabricFault.RequestBodyTooLarge) from None


async def _not_known(_: Request, problem: Exception) -> Response:
    is_absent = isinstance(problem, HTTPException) and problem.status_code == _NOT_FOUND
    return FabricRefusal(FabricFault.EndpointNotFound if is_absent else FabricFault.MethodNotAllowed).answer()
