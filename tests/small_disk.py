"""A disk of a few megabytes that can be filled up and made read-only, where this machine lets one be mounted."""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager

import pytest

PAGE_BYTES = 4096


class SmallDisk:
    """A tmpfs of its own; `path` is its top."""

    def __init__(self, path):
        self.path = path

    @contextmanager
    def filled(self, *, free_pages=0):
        """Full meanwhile, but for so many pages of 4 KiB."""
        filler = self.path / "filler"
        with filler.open("wb", buffering=0) as file:
            try:
                while file.write(bytes(PAGE_BYTES)) == PAGE_BYTES:
                    pass
            except OSError:
                pass
            file.truncate(max(0, filler.stat().st_size - free_pages * PAGE_BYTES))
        try:
            yield
        finally:
            filler.unlink()


@contextmanager
def small_disk(path, *, megabytes):
    """A small disk at a folder; skips the test where none can be mounted."""
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", path],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("no file system can be mounted here: that takes root")
    try:
        yield SmallDisk(path)
    finally:
        os.sync()
        run("umount", "-l", path)


@contextmanager
def read_only(path):
    """Nothing can be written below a folder meanwhile, but to files that are open already."""
    run("mount", "--bind", path, path)
    run("mount", "-o", "remount,ro,bind", path)
    try:
        yield
    finally:
        run("umount", "-l", path)


def run(*command):
    subprocess.run(command, check=True, capture_output=True)
