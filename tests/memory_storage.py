"""Storage in memory: the disk of the simulation, on which no call fails."""

from __future__ import annotations

import copy
import threading
import time

from simulation.disk import Disk, DiskStorage


class _Calls:
    """The port of a process whose calls are made one at a time, and the watch that nobody keeps."""

    machine = None

    def __init__(self):
        self._lock = threading.RLock()

    def call(self, _, work):
        with self._lock:
            return work()

    def chance(self):
        return 1.0

    def moves(self, *_):
        pass

    deletes = moves


class MemoryStorage(DiskStorage):
    """A `Storage` in this process; safe to share between threads.

    Besides the promise it lets a test be the publisher: `put` and `write_in_place`.
    """

    def __init__(self, disk=None):
        calls = _Calls()
        super().__init__(disk or Disk(time.time), calls, calls)

    def copy(self):
        """The same files and folders on a disk of their own."""
        return MemoryStorage(copy.deepcopy(self._disk))

    def write(self, path, content):
        self.put(path, content)

    def put(self, path, content, *, modified_ns=None):
        """Create a file, or replace it by a new one, at a time of one's choice (the clock's by default)."""
        self._port.call("put", lambda: self._disk.put(path, content, modified_ns))

    def write_in_place(self, path, content):
        """Change a file as a publisher does who opens it again: its identity stays."""
        self._port.call("write", lambda: self._disk.write_in_place(path, content))


def read(storage, path):
    with storage.open(path) as file:
        return file.read()


def names(storage, folder):
    return [entry.name for entry in storage.list(folder)]
