"""Programs whose wall clock runs ahead of the machine's, for Python and for Rust alike (Linux, with a C compiler).

`Mirror.advance` moves the engine's own waiting alone. deltalake takes the process's time for what VACUUM and the
clean-up of logs may delete, and for the times that it writes into commits; files have the time of this clock, too.
"""

from __future__ import annotations

import mmap
import os
import shutil
import struct
import subprocess
import time
from pathlib import Path

from mirror_engine.clock import Clock

SOURCE = Path(__file__).with_suffix(".c")
VARIABLE = "MOVED_CLOCK"
COMPILER = shutil.which("cc")


def environment(folder):
    """Environment of a program whose clock can be moved: a library and a file, in this folder."""
    library, lead = folder / "libmoved_clock.so", folder / "lead"
    subprocess.run([COMPILER, "-shared", "-fPIC", "-O1", "-Wall", "-o", library, SOURCE], check=True)
    lead.write_bytes(struct.pack("=q", 0))
    return {**os.environ, "LD_PRELOAD": str(library), VARIABLE: str(lead)}


class MovedClock:
    """The clock of this process, which was started with `environment`."""

    def __init__(self):
        with Path(os.environ[VARIABLE]).open("r+b") as file:
            self._file = mmap.mmap(file.fileno(), 8)
        self._fraction = 0.0

    @property
    def lead_seconds(self):
        """How far it is ahead of the machine's."""
        return struct.unpack("=q", self._file[:])[0]

    def advance(self, seconds):
        """Move it forward; parts of a second wait for the next call."""
        whole, self._fraction = divmod(self.lead_seconds + self._fraction + seconds, 1)
        self._file[:] = struct.pack("=q", int(whole))

    def of_mirror(self):
        """A clock for `Mirror`: its wall is this process's, and its monotonic time goes with it."""
        return Clock(time.time, lambda: time.monotonic() + self.lead_seconds)
