"""A OneLake with injected faults on real sockets, and a plain client of it."""

from __future__ import annotations

import contextlib

import requests
from raw_http import running

from mirror_engine.onelake.engine_pool import EnginePool
from mirror_engine.onelake.faults import parse_fault
from mirror_engine.onelake.items import Items
from mirror_engine.onelake.lake import Lake
from mirror_engine.onelake.options import EmulatorOptions, ServerPlan
from mirror_engine.onelake.serving import Services
from mirror_engine.onelake.store import LocalStore

ITEM = "shop/orders"
ZONE = f"{ITEM}/Files/LandingZone"
TABLE = f"{ZONE}/Orders"
FABRIC = "api.fabric.microsoft.com"


def refusal(answer):
    """Status and code of an error."""
    return answer.status_code, answer.headers["x-ms-error-code"]


class Client:
    """One request, one connection."""

    def __init__(self, port, reported, lake=None):
        self.port = port
        self.reported = reported
        self.lake = lake

    def __call__(self, method, target, body=b"", **headers):
        """Send a request; an underscore in a header's name is a dash there."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        with requests.Session() as session:
            session.trust_env = False
            url = f"http://127.0.0.1:{self.port}/{target}"
            return session.request(method, url, data=body, headers=named, timeout=20)

    def upload(self, path, content):
        """Create, append and flush, as the SDKs do."""
        self.create(path)
        assert self("PATCH", f"{path}?action=append&position=0", content).status_code == 202
        return self("PATCH", f"{path}?action=flush&position={len(content)}")

    def create(self, path):
        answer = self("PUT", f"{path}?resource=file")
        assert answer.status_code == 201
        return answer

    def length(self, path):
        """Of a file, by HEAD; None where there is none."""
        answer = self("HEAD", path)
        return int(answer.headers["Content-Length"]) if answer.status_code == 200 else None


@contextlib.contextmanager
def faulty(folder, *faults):
    """A client of a OneLake with the item `shop/orders` and the folder of a table; the folder's PUT comes first."""
    reported = []
    storage = LocalStore(folder)
    items = Items(storage, allow_bare_names=True)
    items.ensure("shop", "orders")
    storage.make_folder(TABLE)
    options = EmulatorOptions(
        faults=[parse_fault(text) for text in faults], on_fault=lambda *fault: reported.append(fault)
    )
    lake = Lake(storage, items, options, on_lost_file=reported.append)
    with running(Services(lake, EnginePool(ServerPlan(folder, has_engines=False, options=options), items))) as emulator:
        yield Client(emulator.http_port, reported, lake)
