"""A publisher whose landing zone is in a store, by that store's own API."""

from __future__ import annotations

from mirror_engine.landing_zone.layout import ZONE
from mirror_engine.storage.stores import open_storage
from mirror_engine.testing.landing_zone_writer import LandingZoneWriter


class StorePublisher(LandingZoneWriter):
    """Lands files at a URL; a file is there whole or not at all. `modified_ns` is the store's own.

    Its base has a folder of this machine; this has none.
    """

    def __init__(self, root, *, zone=ZONE):
        self.url = root
        self.zone = zone
        self._store = root.object_store()
        self._storage = open_storage(root)

    def put(self, path, content, *, modified_ns=None):  # noqa: ARG002 - as of a folder
        self._store.put(f"{self.zone}/{path}", content)

    def remove(self, path):
        self._storage.delete(f"{self.zone}/{path}")

    def names(self, folder):
        return [entry.name for entry in self._storage.list(f"{self.zone}/{folder}") or ()]

    def has(self, path):
        """Whether a file or folder is there."""
        return self._storage.stat(f"{self.zone}/{path}") is not None


def everything(root):
    """What is below a URL: every file with its ETag and time."""
    return {
        found["path"]: (found["e_tag"], found["last_modified"], found["size"])
        for page in root.object_store().list()
        for found in page
    }
