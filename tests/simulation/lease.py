"""The lease file of a store, as several machines see it."""

from __future__ import annotations

import json

from mirror_engine.storage.object_store import StoredVersion


class Lease:
    """What the store has: one version after the other."""

    def __init__(self, clock):
        self._clock, self.version, self._count = clock, None, 0

    def write(self, content, before):
        if (self.version and self.version.etag) != (before and before.etag):
            return None
        self._count += 1
        self.version = StoredVersion(content, f"e{self._count}", float(int(self._clock())))
        return self.version

    @property
    def holder(self):
        """The id of the engine that took it last, even if it has given it back; None before the first."""
        return json.loads(self.version.content)["id"] if self.version else None


class LeaseFile:
    """The `ConditionalFile` of one process."""

    root = "s3://bucket"

    def __init__(self, lease, port):
        self._lease, self._port = lease, port

    def read(self):
        return self._port.call("lease read", lambda: self._lease.version)

    def write(self, content, before):
        return self._port.call("lease write", lambda: self._lease.write(content, before))


class Memory:
    """The file of a machine that keeps the id of its last lease."""

    def __init__(self):
        self.text = None

    def read_text(self, **_):
        if self.text is None:
            raise FileNotFoundError
        return self.text

    def write_text(self, text, **_):
        self.text = text
