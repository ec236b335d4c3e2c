"""Runs a program and records what it asks of the file system below one folder (Linux, with a C compiler)."""

from __future__ import annotations

import enum
import os
import shutil
import struct
import subprocess
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).with_suffix(".c")
COMPILER = shutil.which("cc")
_RECORD = struct.Struct("=IIIIQQ")


class Kind(enum.IntEnum):
    """Of an operation; as recorder.c has them."""

    OPENED = 1  # for writing; number: 1 if it is a new file, + 2 if it was truncated
    WROTE = 2  # second: the bytes; number: their offset
    CUT = 3  # number: the size
    SYNCED = 4
    SYNCED_FOLDER = 5
    MADE_FOLDER = 6
    REMOVED = 7
    RENAMED = 8  # second: the new path
    LINKED = 9  # second: the new path
    SYNCED_ALL = 10


class Operation(NamedTuple):
    """One that succeeded; paths are relative to the folder."""

    kind: Kind
    inode: int
    number: int
    path: str
    second: bytes

    def __str__(self):
        second = f"{len(self.second)} bytes" if self.kind is Kind.WROTE else self.second.decode()
        return " ".join(filter(None, [self.kind.name.lower(), self.path or str(self.inode), second]))


def build(folder):
    """Compile the library into a folder."""
    library = folder / "librecorder.so"
    subprocess.run([COMPILER, "-shared", "-fPIC", "-O1", "-Wall", "-o", library, SOURCE], check=True)
    return library


def record(library, folder, command, log, **variables):
    """Run a program to its end, and return its operations below a folder, in their order.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    folder = folder.resolve()
    log.unlink(missing_ok=True)
    ours = {"LD_PRELOAD": str(library), "RECORD_FILE": str(log), "RECORD_FOLDER": str(folder)}
    subprocess.run(command, check=True, env={**os.environ, **variables, **ours})
    return list(_together(_read(log.read_bytes(), f"{folder}/")))


def _together(operations):
    """Writes that go on where the one before them ended are one."""
    last = None
    for each in operations:
        if last and last.kind is each.kind is Kind.WROTE and (last.inode, last.number + len(last.second)) == each[1:3]:
            last = last._replace(second=last.second + each.second)
            continue
        if last:
            yield last
        last = each
    if last:
        yield last


def _read(content, above):
    at = 0
    while at < len(content):
        kind, first, second, _, inode, number = _RECORD.unpack_from(content, at)
        at += _RECORD.size
        path, bytes_ = content[at : at + first].decode(), content[at + first : at + first + second]
        at += first + second
        if kind in {Kind.RENAMED, Kind.LINKED}:
            bytes_ = bytes_.decode().removeprefix(above).encode()
        yield Operation(Kind(kind), inode, number, path.removeprefix(above), bytes_)
