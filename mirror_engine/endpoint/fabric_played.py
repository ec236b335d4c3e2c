"""Plays the faults that requests to Fabric's REST API meet: throttled, expired, lost (endpoint chapter 10)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror_engine.endpoint.cut import cut
from mirror_engine.endpoint.fabric_faults import FabricFault, FabricRefusal
from mirror_engine.endpoint.fault_words import REST

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from mirror_engine.endpoint.switches import FaultSwitch, Switches

_THROTTLED = {429: FabricFault.TooManyRequests, 503: FabricFault.ServiceUnavailable}


class PlayedFabric:
    """An ASGI application around the REST API.

    Args:
        app: what answers where no fault is met.
        switches: the faults.
    """

    def __init__(self, app: ASGIApp, switches: Switches) -> None:
        self._app = app
        self._switches = switches

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; of several faults the first one is played."""
        met = self._switches.at(scope["method"], scope["path"].strip("/"), (REST,)) if self._switches.faults else []
        switch = next(iter(met), None)
        refusal = switch and _refusal(switch)
        if switch is None:
            await self._app(scope, receive, send)
        elif refusal:
            await refusal.answer()(scope, receive, send)
        else:
            await self._lose(switch, scope, receive)

    async def _lose(self, switch: FaultSwitch, scope: Scope, receive: Receive) -> None:
        if switch.fault == "lost_response":
            await self._app(scope, receive, _nowhere)
        await cut(scope, receive)


def _refusal(switch: FaultSwitch) -> FabricRefusal | None:
    if switch.fault == "throttle":
        headers = {"Retry-After": str(switch.options["retry-after"])}
        return FabricRefusal(_THROTTLED[int(switch.number("status"))], headers=headers)
    return FabricRefusal(FabricFault.TokenExpired) if switch.fault == "token_expired" else None


async def _nowhere(_: Message) -> None:
    """Where an answer goes that is lost."""
