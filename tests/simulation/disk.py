"""A disk that every machine of a world shares, with the weak spots of real ones, and its `Storage` port.

Names and files are two things, as on a real disk: a file that is renamed over lives on for those who have it open, a
file that is written in place changes under them, and a listing looks at its entries one after the other.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, field, replace

from mirror_engine.errors import StorageUnavailable
from mirror_engine.landing_zone.layout import ZONE
from mirror_engine.landing_zone.listing import Entry, Kind
from mirror_engine.storage.base import NO_IDENTITY, no_file_path, parts_of

SECONDS_TO_DISK = 30.0  # after which a change is durable without a sync


@dataclass(eq=False)
class File:
    """What a name leads to. `born` counts all files ever made."""

    born: int
    content: bytes
    modified_ns: int

    @property
    def identity(self):
        return f"i{self.born}"


@dataclass(eq=False)
class Folder:
    """A folder, and what is in it by name."""

    born: int
    modified_ns: int
    names: dict = field(default_factory=dict)

    @property
    def identity(self):
        return f"i{self.born}"


class Disk:
    """Folders and files; each method is one step that nothing interrupts.

    Args:
        clock: seconds since 1970 of the machine that holds the disk.
        is_store: whether it is a store: each write is a new version, with a time in whole seconds, and folders are
            there by the files below them.
        has_folders: whether folders are there without files, and have an identity; as in a data lake's store.

    Attributes:
        versions: every content that a file of the landing zone ever had, by path and etag.
    """

    def __init__(self, clock, *, is_store=False, has_folders=True):
        self._clock, self._born, self._last_ns, self.is_store, self.has_folders = clock, 0, 0, is_store, has_folders
        self.root = Folder(0, 0)
        self.versions, self._moves = {}, []

    def find(self, path):
        parts = parts_of(path)
        node = None if parts is None else self.root
        for part in parts or ():
            if not isinstance(node, Folder) or part not in node.names:
                return None
            node = node.names[part]
        return node

    def entry(self, path):
        node = self.find(path)
        return node and entry_of(path.rpartition("/")[2], node)

    def make_folder(self, path):
        node = self.root
        for part in parts_of(path):
            if part not in node.names:
                node.names[part] = Folder(self._next(), self._now())
            node = node.names[part]
            if not isinstance(node, Folder):
                raise StorageUnavailable(f"{path}: no folder is on the way", "Remove what is there.")
        return node

    def put(self, path, content, modified_ns=None):
        """A new file takes the name, as by a rename of a temporary one."""
        file = File(self._next(), content, self._now() if modified_ns is None else modified_ns)
        self._place(path, file)
        return file

    def write_in_place(self, path, content):
        """The file of that name has another content now; a new one, where there is none."""
        file = self.find(path)
        if self.is_store or not isinstance(file, File):
            return self.put(path, content)
        file.content, file.modified_ns = content, self._now()
        self._note(path, file)
        return file

    def rename(self, source, target):
        """Give a file another name; returns whether there was one."""
        file = self.find(source)
        if not isinstance(file, File):
            return False
        self._place(target, file)
        above, _, name = source.rpartition("/")
        if source != target:
            del self.find(above).names[name]
        self._moves = [*self._moves[-20:], (self._clock(), source, target, file)]
        return True

    def lose_power(self, chance):
        """Files that were moved just before are in their old place again, or not: a move is not durable."""
        for at, source, target, file in reversed(self._moves):
            above, _, name = source.rpartition("/")
            folder = self.find(above)
            is_free = isinstance(folder, Folder) and name not in folder.names and self.find(target) is file
            if is_free and self._clock() - at < SECONDS_TO_DISK and chance.random() < 0.5:
                self.remove(target)
                self._place(source, file)
        self._moves = []

    def remove(self, path):
        """Take a name away, with all below it."""
        above, _, name = path.rpartition("/")
        folder = self.find(above)
        if isinstance(folder, Folder):
            folder.names.pop(name, None)
            if above and not folder.names and not self.has_folders:
                self.remove(above)

    def below(self, path):
        """All files below a folder, by path from there."""
        found, folder = {}, self.find(path)
        pending = [("", folder)] if isinstance(folder, Folder) else []
        while pending:
            place, folder = pending.pop()
            for name, node in folder.names.items():
                if isinstance(node, Folder):
                    pending.append((f"{place}{name}/", node))
                else:
                    found[f"{place}{name}"] = node
        return found

    def _place(self, path, file):
        if not parts_of(path):
            raise no_file_path(path)
        above, _, name = path.rpartition("/")
        folder = self.make_folder(above)
        if isinstance(folder.names.get(name), Folder):
            raise StorageUnavailable(f"{path}: a folder is there", "Remove that folder.")
        folder.names[name] = file
        self._note(path, file)

    def _note(self, path, file):
        if path.startswith(ZONE):
            self.versions[path, entry_of("", file).etag] = file.content

    def _next(self):
        self._born += 1
        return self._born

    def _now(self):
        """No two changes have one time: a disk that cannot tell them apart is out of the promise (LZ-3.13)."""
        if self.is_store:
            return int(self._clock()) * 1_000_000_000
        self._last_ns = max(int(self._clock() * 1e9), self._last_ns + 1)
        return self._last_ns


def entry_of(name, node):
    if isinstance(node, Folder):
        return Entry(name, 0, node.modified_ns, node.identity, kind=Kind.FOLDER)
    return Entry(name, len(node.content), node.modified_ns, node.identity)


class DiskStorage:
    """The `Storage` of one process over the disk, as `LocalStorage` is: each system call is a step.

    Args:
        port: makes a call: step, fault, crash.
        watch: is told what is moved and deleted, before it is.
    """

    is_store = False

    def __init__(self, disk, port, watch):
        self._disk, self._port, self._watch = disk, port, watch

    def list(self, folder):
        names = self._port.call(f"list {folder}", lambda: self._names(folder))
        if names is None:
            return None
        if len(names) > 1 and self._port.chance() < 0.2:  # entries are looked up one after the other
            self._port.step(f"list on {folder}")
        node = self._disk.find(folder)
        there = node.names if isinstance(node, Folder) else {}
        return [entry_of(name, there[name]) for name in names if name in there]

    def stat(self, path):
        return self._port.call(f"stat {path}", lambda: self._disk.entry(path))

    def open(self, path, only=None):
        file = self._port.call(f"open {path}", lambda: self._disk.find(path))
        if not isinstance(file, File) or (only and file.identity != only.identity):
            raise FileNotFoundError(path)
        return io.BufferedReader(_Reader(file, path, self._port))

    def write(self, path, content):
        above, _, name = path.rpartition("/")
        temporary = f"{above}/.mirror-engine-{name}"
        self._port.call(f"create {path}", lambda: self._disk.put(temporary, content))
        self._port.call(f"write {path}", lambda: self._disk.rename(temporary, path))

    def move(self, source, target, only=None):
        before = self.stat(source) if only else None
        if before and not before.is_same(only):
            return False
        self._port.call(f"move {source}", lambda: self._rename(source, target, only))
        moved = self.stat(target) if only else None
        if only is None or (moved and moved.is_same(only)):
            return True
        if before and self.stat(source) is None:
            self._port.call(f"move back {source}", lambda: self._disk.rename(target, source))
        return False

    def delete(self, path):
        if not parts_of(path):
            return
        if isinstance(self._disk.find(path), Folder):
            for name in self._port.call(f"list {path}", lambda: self._names(path)) or ():
                self.delete(f"{path}/{name}")
        self._port.call(f"delete {path}", lambda: self._remove(path))

    def scan(self, _):
        return self

    def _names(self, folder):
        node = self._disk.find(folder)
        return sorted(node.names) if isinstance(node, Folder) else None

    def _rename(self, source, target, only):
        node = self._disk.find(source)
        if isinstance(node, File) and only and not entry_of("", node).is_same(only):
            self._port.reached("a file took another one's place at the last moment")  # it is moved back
        elif isinstance(node, File):
            self._watch.moves(self._port.machine, source, entry_of("", node))
        self._disk.rename(source, target)

    def _remove(self, path):
        node = self._disk.find(path)
        if isinstance(node, File):
            self._watch.deletes(self._port.machine, path, entry_of("", node))
        if not isinstance(node, Folder) or not node.names:
            self._disk.remove(path)


class StoreStorage(DiskStorage):
    """The `Storage` of one process over a store, with folders or without: a move is a copy and a deletion."""

    is_store = True

    def list(self, folder):
        found = self._port.call(f"list {folder}", lambda: self._names(folder))
        node = self._disk.find(folder)
        there = node.names if isinstance(node, Folder) else {}
        entries = [self._as_seen(entry_of(name, there[name])) for name in found or () if name in there]
        return entries if self._disk.has_folders and found is not None else entries or None

    def stat(self, path):
        found = super().stat(path)
        return found and self._as_seen(found)

    def _as_seen(self, entry):
        is_bare = entry.kind is Kind.FOLDER and not self._disk.has_folders
        return replace(entry, identity=NO_IDENTITY, modified_ns=0) if is_bare else entry

    def open(self, path, only=None):
        file = self._port.call(f"open {path}", lambda: self._disk.find(path))
        if not isinstance(file, File) or (only and file.identity != only.identity):
            raise FileNotFoundError(path)
        return io.BytesIO(self._port.call(f"read {path}", lambda: file.content))

    def write(self, path, content):
        self._port.call(f"write {path}", lambda: self._disk.put(path, content))

    def move(self, source, target, only=None):
        found = self.stat(source)
        if found is None:
            moved = self.stat(target) if only else None
            return only is None or (moved is not None and moved.size == only.size)
        if only and not found.is_same(only):
            return False
        self._port.call(f"copy {source}", lambda: self._copy(source, target))
        copied, still = self.stat(target), self.stat(source)
        if copied is None or (still and still.identity != found.identity):
            return False
        return self._port.call(f"move {source}", lambda: self._end_move(source, found))

    def delete(self, path):
        for below in sorted(self._disk.below(path)):
            self._port.call(f"delete {path}", lambda below=below: self._remove(f"{path}/{below}"))
        self._port.call(f"delete {path}", lambda: self._remove(path))

    def _copy(self, source, target):
        file = self._disk.find(source)
        if isinstance(file, File):
            copy = self._disk.put(target, file.content)
            self._watch.copies(source, entry_of("", copy))

    def _end_move(self, source, found):
        """Delete the version that was copied, and no other."""
        file = self._disk.find(source)
        if isinstance(file, File) and file.identity != found.identity:
            return False
        if isinstance(file, File):
            self._watch.moves(self._port.machine, source, entry_of("", file))
        self._disk.remove(source)
        return True


class _Reader(io.RawIOBase):
    """An open file: what is written in place while it is read is seen in part."""

    def __init__(self, file, path, port):
        super().__init__()
        self._file, self._path, self._port, self._at = file, path, port, 0

    def readable(self):
        return True

    def seekable(self):
        return True

    def seek(self, offset, whence=io.SEEK_SET):
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: len(self._file.content)}[whence]
        self._at = start + offset
        return self._at

    def readinto(self, buffer):
        found = self._port.call(f"read {self._path}", lambda: self._file.content[self._at : self._at + len(buffer)])
        if len(found) > 1 and self._port.chance() < 0.2:  # a page comes from the disk before the next one
            half = len(found) // 2
            self._port.step(f"read on {self._path}")
            found = found[:half] + self._file.content[self._at + half : self._at + len(found)]
        buffer[: len(found)] = found
        self._at += len(found)
        return len(found)

    def readall(self):
        found = bytearray()
        while True:
            piece = bytearray(1 << 16)
            if not (count := self.readinto(piece)):
                return bytes(found)
            found += piece[:count]
