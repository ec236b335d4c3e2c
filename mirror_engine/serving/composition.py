"""The one place where the endpoint's application is put together: OneLake, Fabric's API, Entra."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror_engine.endpoint.app import Services
from mirror_engine.endpoint.entra import entra_app
from mirror_engine.endpoint.fabric import FabricApi
from mirror_engine.endpoint.fabric_app import fabric_app
from mirror_engine.endpoint.fabric_played import PlayedFabric
from mirror_engine.endpoint.onelake import OneLake

if TYPE_CHECKING:
    from mirror_engine.endpoint.databases import MirroredDatabases
    from mirror_engine.endpoint.lake import Lake


def application(lake: Lake, databases: MirroredDatabases, secret: str | None) -> Services:
    """All services, told apart by the host that a request names.

    Args:
        lake: what is stored.
        databases: who mirrors it.
        secret: which Entra asks for; None where any passes.
    """
    lake.switches.poll = databases.poll
    fabric = PlayedFabric(fabric_app(FabricApi(lake.items, databases)), lake.switches)
    return Services(OneLake(lake), entra_app(secret), fabric)
