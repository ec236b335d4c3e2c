"""Whole programs, timed from outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

from speed.places import land

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


MIRROR = (sys.executable, "-m", "mirror_engine.cli.main")
_SCRIPT = """import sys, deltalake, pyarrow.dataset as ds
deltalake.write_deltalake(sys.argv[1], ds.dataset(sys.argv[2:]).scanner().to_reader(), mode="append")"""
DELTA_RS = (sys.executable, "-c", _SCRIPT)
MAX_SECONDS = 300.0
POLL_SECONDS = 0.01


def sync(root: Path | str, merge_engine: str) -> list[str]:
    """The command that applies everything that has landed."""
    return [*MIRROR, "sync", str(root), "--merge-engine", merge_engine]


def seconds_of(command: Sequence[str]) -> float:
    """Time a process.

    Raises:
        RuntimeError: it failed; with the end of its output.
        TimeoutExpired: it takes minutes.
    """
    os.sync()
    with tempfile.TemporaryFile() as output:
        started = time.perf_counter()
        done = subprocess.run(command, stdout=output, stderr=output, timeout=MAX_SECONDS, check=False)  # noqa: S603 - ours
        seconds = time.perf_counter() - started
        output.seek(0)
        if done.returncode:
            last = output.read()[-2000:].decode(errors="replace")
            raise RuntimeError(f"exit code {done.returncode} of {' '.join(command)}\n{last}")
    return seconds


class Run:
    """`mirror-engine run` on a ROOT, followed through its own log. A context manager that stops it."""

    def __init__(self, root: Path, merge_engine: str) -> None:
        self._root = root
        self._command = [*MIRROR, "run", str(root), "--log-format", "json", "--merge-engine", merge_engine]
        self._landed: dict[tuple[str, str], float] = {}
        self._committed: dict[tuple[str, str], float] = {}

    def __enter__(self) -> Self:
        log = self._root / "run.log"
        with log.open("wb") as file:
            self._process = subprocess.Popen(self._command, stderr=file, stdout=subprocess.DEVNULL)  # noqa: S603 - our own
        self._log, self._rest = log.open(encoding="utf-8"), ""
        return self

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(MAX_SECONDS)
        self._log.close()

    def land(self, table: str, file: Path) -> None:
        """Land a change file, and remember the time."""
        self._landed[table, file.name] = time.time()
        land(self._root, [file], table)

    def await_all(self) -> None:
        """Wait until every landed file is committed; TimeoutError after minutes."""
        ends = time.monotonic() + MAX_SECONDS
        while left := self._landed.keys() - self._committed.keys():
            if time.monotonic() > ends:
                raise TimeoutError(f"{self._root}: {len(left)} files are not applied")
            time.sleep(POLL_SECONDS)
            *lines, self._rest = (self._rest + self._log.read()).split("\n")
            for line in lines:
                self._note(json.loads(line))

    def waits(self, files: Sequence[Path]) -> list[float]:
        """Seconds from landing to commit, of these files in all tables."""
        names = {file.name for file in files}
        return [self._committed[key] - at for key, at in self._landed.items() if key[1] in names]

    def _note(self, record: dict[str, Any]) -> None:
        if record["event"] == "commit_finished":
            at = datetime.fromisoformat(record["time"]).timestamp()
            first, last = (int(record[end].partition(".")[0]) for end in ("first", "last"))
            for number in range(first, last + 1):
                self._committed[record["table"], f"{number:020}.parquet"] = at
