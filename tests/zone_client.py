"""A lake to be tried without HTTP: one workspace `ws`, one item `db`, paths from its landing zone on."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from itertools import count
from xml.etree import ElementTree as ET

import pytest
from starlette.testclient import TestClient

from mirror_engine.onelake.addresses import address_of
from mirror_engine.onelake.conditions import NONE, Conditions
from mirror_engine.onelake.errors import StorageApiError
from mirror_engine.onelake.items import Items
from mirror_engine.onelake.lake import Lake
from mirror_engine.onelake.options import EmulatorOptions
from mirror_engine.onelake.storage_api import onelake_app
from mirror_engine.onelake.store import LocalStore

DFS = "https://onelake.dfs.fabric.microsoft.com"
BLOB = "https://onelake.blob.fabric.microsoft.com"
ITEM = "orders.MountedRelationalDatabase"
LANDING = f"shop/{ITEM}/Files/LandingZone"
ZONE = "ws/db/Files/LandingZone"
SECOND = 1_000_000_000


class ZoneClient:
    """A lake, and short words for what a publisher does to it."""

    def __init__(self, storage, **options):
        self.storage = storage
        self.items = Items(storage, allow_bare_names=True)
        self.items.ensure("ws", "db")
        self.options = EmulatorOptions()
        self.lost_files = []
        ticks = count(1_700_000_000 * SECOND, 1000)
        options.setdefault("clock", lambda: next(ticks))
        self.lake = Lake(storage, self.items, self.options, on_lost_file=self.lost_files.append, **options)

    def at(self, path):
        return self.raw(f"/{ZONE}/{path}")

    def raw(self, path):
        return address_of(self.lake.items, path.encode())

    def create(self, path, conditions=NONE):
        return self.lake.create_file(self.at(path), conditions)

    def append(self, path, position, content):
        with self.lake.receive() as body:
            body.write(content)
            return self.lake.append(self.at(path), position, body)

    def flush(self, path, position, conditions=NONE):
        return self.lake.flush(self.at(path), position, conditions)

    def put(self, path, content, conditions=NONE):
        with self.lake.receive() as body:
            body.write(content)
            return self.lake.put(self.at(path), body, conditions)

    def put_block(self, path, block_id, content):
        with self.lake.receive() as body:
            body.write(content)
            self.lake.put_block(self.at(path), block_id, body)

    def rename(self, source, target, conditions=NONE):
        return self.lake.rename(self.at(source), self.at(target), conditions)

    def properties(self, path):
        return self.lake.properties(self.at(path))

    def read(self, path):
        _, reader = self.lake.read(self.at(path))
        with reader:
            return reader.read()

    def names(self, path=""):
        above = self.at(path)
        return [name.removeprefix(f"{above.shown}/") for name, _ in self.lake.list(above)]


@contextmanager
def refused(code):
    """A block that is refused with just that fault."""
    with pytest.raises(StorageApiError) as problem:
        yield
    assert problem.value.code is code


def changes(lake, path, file, body):
    """All ways to change a path by itself or by a file."""
    return (
        partial(lake.create_folder, path),
        partial(lake.create_file, path),
        partial(lake.put, path, body),
        partial(lake.append, path, 0, body),
        partial(lake.flush, path, 0),
        partial(lake.put_block_list, path, []),
        partial(lake.copy, file, path),
        partial(lake.rename, file, path),
        partial(lake.rename, path, file),
        partial(lake.delete, path),
        partial(lake.delete, path, recursive=True),
    )


def matching(properties):
    return Conditions.of({"if-match": properties.etag})


ABSENT_ONLY = Conditions.of({"if-none-match": "*"})


def onelake(folder):
    """A client of a OneLake with the item `shop/orders`, without a network; `.lake` is its lake."""
    storage = LocalStore(folder)
    lake = Lake(storage, Items(storage), EmulatorOptions())
    lake.items.ensure("shop", "orders")
    client = TestClient(onelake_app(lake), DFS)
    client.lake = lake
    return client


def parsed(document):
    """Parse an XML answer."""
    return ET.fromstring(document)  # noqa: S314 - the emulator wrote it
