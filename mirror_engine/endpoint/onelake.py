"""OneLake over HTTP: a request becomes one operation on the lake, and its answer or refusal goes back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect, Request

from mirror_engine.endpoint.call import Call
from mirror_engine.endpoint.cut import Cut, cut
from mirror_engine.endpoint.dialect import dialect_of
from mirror_engine.endpoint.faults import EndpointFault, Fault
from mirror_engine.endpoint.headers import of_call
from mirror_engine.endpoint.played import played
from mirror_engine.endpoint.routes import operation_of
from mirror_engine.errors import StorageUnavailable

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import Receive, Scope, Send

    from mirror_engine.endpoint.dialect import Dialect
    from mirror_engine.endpoint.lake import Lake


class OneLake:
    """An ASGI application: both dialects over one lake.

    Args:
        lake: what clients read and write.
    """

    def __init__(self, lake: Lake) -> None:
        self._lake = lake

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        call = Call.of(Request(scope, receive))
        try:
            response = await self._answered(call, dialect_of(call))
        except ClientDisconnect:
            return
        except Cut:
            await cut(scope, receive)
            return
        await response(scope, receive, send)

    async def _answered(self, call: Call, dialect: Dialect) -> Response:
        try:
            operation = await played(self._lake, call, operation_of(call, dialect))
            response = await operation(self._lake, call)
        except EndpointFault as refused:
            return dialect.refusal(call, refused)
        except StorageUnavailable as failed:
            return dialect.refusal(call, EndpointFault(Fault.SERVER_BUSY, str(failed)))
        for name, value in of_call(call).items():
            response.headers.setdefault(name, value)
        return response
