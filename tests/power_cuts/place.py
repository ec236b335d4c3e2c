"""A folder that becomes one state of a disk after the other; what was there at the start keeps its identity."""

from __future__ import annotations

import os
import shutil


class Place:
    """A folder, and what is in it at the start.

    Args:
        folder: where the states are made.
        pool: an empty folder of the same file system.
        first: what is in the folder, by path: node and bytes, None for a folder's.
    """

    def __init__(self, folder, pool, first):
        self._folder, self._pool = folder, pool
        self._first = dict(first.values())
        self._folders = {}  # nodes by inode
        for path, (node, content) in first.items():
            if content is None:
                self._folders[(folder / path).stat().st_ino] = node
            elif _is_landed(folder / path):
                os.link(folder / path, pool / str(node))
            else:
                shutil.copy2(folder / path, pool / str(node))

    def show(self, state):
        """Make a state; what one before it left is gone."""
        self._clear()
        for path, (node, content) in state.items():
            target, kept = self._folder / path, self._pool / str(node)
            if node not in self._first:
                target.mkdir() if content is None else target.write_bytes(content)
            elif content is None:
                kept.rename(target)
            elif content == self._first[node] and _is_landed(target):
                os.link(kept, target)
            else:
                shutil.copy2(kept, target)
                if content != self._first[node]:
                    target.write_bytes(content)

    def _clear(self):
        for path in sorted(self._folder.rglob("*"), reverse=True):  # what is in a folder before the folder
            if not path.is_dir():
                path.unlink()
            elif (node := self._folders.get(path.stat().st_ino)) is None:
                path.rmdir()
            else:
                path.rename(self._pool / str(node))
        for node in self._folders.values():  # the engine removed them
            (self._pool / str(node)).mkdir(exist_ok=True)


def _is_landed(path):
    """Whether it is of a zone, whose files nobody writes to: they keep their identity, too."""
    return "LandingZone" in path.parts
