"""A disk to which operations are done, and the states in which it may be found after the power returns.

What a file system promises, and nothing more: the content of a file is on the disk after its fsync, a name after the
fsync of its folder. Until then each write may be absent, cut or present, and each name old or new, in any combination.
A rename loses no file; once the new folder was fsynced, the old name may still be there, too.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import NamedTuple

TOP = 0


class Naming(NamedTuple):
    """Names that are old or new together: of (folder, name) the node, or None."""

    names: dict[tuple[int, str], int | None]
    folder: int  # whose fsync brings them to the disk, but for the old name of what came from another folder


@dataclass
class File:
    """Content that is on the disk, and the writes and cuts after it."""

    safe: bytes = b""
    waiting: list[tuple[int, bytes | None]] = field(default_factory=list)  # offset and bytes, or size and None

    def content(self, lost=(), *, cut=None):
        """With all that waits, but for some of it; of the write `cut`, the first half."""
        found = bytearray(self.safe)
        for at, (offset, written) in enumerate(self.waiting):
            if at in lost:
                continue
            if written is None:
                del found[offset:]
                found.extend(bytes(offset - len(found)))
                continue
            part = written[: len(written) // 2] if at == cut else written
            found.extend(bytes(max(0, offset - len(found))))
            found[offset : offset + len(part)] = part
        return bytes(found)

    def sync(self):
        """Bring all of it to the disk."""
        self.safe = self.content()
        self.waiting.clear()


class Disk:
    """Starts with what is below a folder, all of it safe."""

    def __init__(self, folder):
        self.files: dict[int, File] = {}
        self.safe: dict[tuple[int, str], int] = {}  # names that are on the disk
        self.waiting: list[Naming] = []
        self._folders = {TOP}
        self._inodes: dict[int, int] = {}
        self._nodes = itertools.count(TOP + 1)
        self._now: dict[tuple[int, str], int] = {}  # names as a program sees them
        for path in sorted(Path(folder).rglob("*")):
            node = next(self._nodes)
            self._now[self._place(path.relative_to(folder).as_posix())] = node
            if path.is_dir():
                self._folders.add(node)
            else:
                self.files[node] = File(path.read_bytes())
        self.safe = dict(self._now)
        self.first = self.tree()

    def do(self, operation):
        """Do one operation, as a program did."""
        getattr(self, f"_do_{operation.kind.name.lower()}")(operation)

    def _do_opened(self, done):
        if done.number & 1:
            self._inodes[done.inode] = node = next(self._nodes)
            self.files[node] = File()
            self._name({self._place(done.path): node})
        else:
            self._inodes[done.inode] = self._now[self._place(done.path)]
        if done.number & 2:
            self._file(done.inode).waiting.append((0, None))

    def _do_wrote(self, done):
        self._file(done.inode).waiting.append((done.number, done.second))

    def _do_cut(self, done):
        self._file(done.inode).waiting.append((done.number, None))

    def _do_synced(self, done):
        self.files[self._now[self._place(done.path)]].sync()

    def _do_synced_folder(self, done):
        self._sync_folder(self._node(done.path))

    def _do_made_folder(self, done):
        node = next(self._nodes)
        self._folders.add(node)
        self._name({self._place(done.path): node})

    def _do_removed(self, done):
        self._name({self._place(done.path): None})

    def _do_renamed(self, done):
        source, target = self._place(done.path), self._place(done.second.decode())
        self._name({source: None, target: self._now[source]}, target[0])

    def _do_linked(self, done):
        self._name({self._place(done.second.decode()): self._now[self._place(done.path)]})

    def _do_synced_all(self, _):
        for file in self.files.values():
            file.sync()
        for folder in self._folders:
            self._sync_folder(folder)

    def tree(self):
        """What is there as a program sees it: by path the node and its bytes, None for a folder's."""
        return self._tree(self._now, {node: file.content() for node, file in self.files.items()})

    def states(self):
        """What may be found now, each with words for it, as `tree` has it.

        All that waits is there, or none of it; one alone is missing, or one alone is there; one write is cut, or its
        bytes are zeros, while all the rest is there. So each two that must keep an order are found against it.
        """
        units = [("name", at) for at in range(len(self.waiting))]
        units += [("write", (node, at)) for node, file in self.files.items() for at in range(len(file.waiting))]
        everything = frozenset(units)
        yield "all is there", self._found(frozenset())
        yield "nothing is there", self._found(everything)
        for unit in units:
            yield f"missing: {self._words(unit)}", self._found(frozenset({unit}))
            yield f"alone: {self._words(unit)}", self._found(everything - {unit})
        for node, file in self.files.items():
            for at, (_, written) in enumerate(file.waiting):
                if written:
                    yield f"cut: {self._words(('write', (node, at)))}", self._found(frozenset(), cut=(node, at))
            if file.waiting:
                yield f"not a byte: {self._path(node)}", self._found(frozenset({("file", node)}))
                yield f"zeros: {self._path(node)}", self._found(frozenset({("zeros", node)}))

    def _found(self, lost, cut=(None, None)):
        names = dict(self.safe)
        for at, naming in enumerate(self.waiting):
            if ("name", at) not in lost:
                names |= naming.names
        contents = {}
        for node, file in self.files.items():
            writes = {at for at in range(len(file.waiting)) if ("write", (node, at)) in lost or ("file", node) in lost}
            contents[node] = file.content(writes, cut=cut[1] if cut[0] == node else None)
            if ("zeros", node) in lost:
                contents[node] = file.safe + bytes(max(0, len(contents[node]) - len(file.safe)))
        return self._tree({place: node for place, node in names.items() if node is not None}, contents)

    def _tree(self, names, contents):
        below = {}
        for (folder, name), node in names.items():
            below.setdefault(folder, []).append((name, node))
        found, rest = {}, [("", TOP)]
        while rest:
            path, folder = rest.pop()
            for name, node in below.get(folder, ()):
                found[f"{path}{name}"] = node, contents.get(node)
                if node in self._folders:
                    rest.append((f"{path}{name}/", node))
        return found

    def _name(self, names, folder=None):
        self.waiting.append(Naming(names, next(at for at, _ in names) if folder is None else folder))
        for place, node in names.items():
            if node is None:
                self._now.pop(place, None)
            else:
                self._now[place] = node

    def _sync_folder(self, folder):
        """Bring its names to the disk; the old name of what was moved here from another folder may still be there."""
        waiting, self.waiting = self.waiting, []
        for naming in waiting:
            if all(at != folder for at, _ in naming.names):
                self.waiting.append(naming)
                continue
            for place, node in naming.names.items():
                if naming.folder == folder != place[0]:
                    self.waiting.append(Naming({place: node}, place[0]))
                elif node is None:
                    self.safe.pop(place, None)
                else:
                    self.safe[place] = node

    def _file(self, inode):
        return self.files[self._inodes[inode]]

    def _node(self, path):
        node = TOP
        for name in PurePosixPath(path).parts:
            node = self._now[node, name]
        return node

    def _place(self, path):
        path = PurePosixPath(path)
        return self._node(path.parent), path.name

    def _path(self, node):
        return next((path for path, at in self._paths() if at == node), f"removed file {node}")

    def _paths(self):
        names = {node: place for place, node in itertools.chain(self.safe.items(), self._now.items())}
        for naming in self.waiting:
            names |= {node: place for place, node in naming.names.items() if node is not None}
        for node in names:
            parts, at = [], node
            while at:
                at, name = names[at]
                parts.append(name)
            yield "/".join(reversed(parts)), node

    def _words(self, unit):
        kind, which = unit
        if kind == "write":
            node, at = which
            offset, written = self.files[node].waiting[at]
            what = f"cut to {offset} bytes" if written is None else f"{len(written)} bytes at {offset}"
            return f"{what} of {self._path(node)}"
        paths = {node: path for path, node in self._paths()} | {TOP: ""}
        said = []
        for (folder, name), node in self.waiting[which].names.items():
            said.append(f"{'-' if node is None else '+'}{paths.get(folder, '?')}/{name}")
        return " ".join(said)
