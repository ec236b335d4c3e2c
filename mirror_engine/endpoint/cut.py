"""How a connection is cut on purpose: no answer, and nothing more is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import Receive, Scope

EXTENSION = "mirror_engine.cut"  # of the ASGI scope: its `now` ends the connection at once


class Cut(Exception):
    """The request is not to be answered."""


async def cut(scope: Scope, receive: Receive) -> None:
    """End a request's connection, and wait until that is known."""
    scope["extensions"][EXTENSION]["now"]()
    while (await receive())["type"] != "http.disconnect":
        pass
