"""`mirror-engine run` as a process, watched through its own log: which file was in its table when."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

from speed.peers import environment
from speed.places import land
from speed.programs import MIRROR

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from typing_extensions import Self

MAX_SECONDS = 300.0


class Run:
    """A context manager: the engine at work on a ROOT, ended as a service manager would."""

    def __init__(self, root: Path, merge_engine: str) -> None:
        self._root = root
        self._merge_engine = merge_engine
        self._landed: dict[tuple[str, str], float] = {}
        self._committed: dict[tuple[str, str], float] = {}
        self._all_there = threading.Condition()

    def __enter__(self) -> Self:
        command = [*MIRROR, "run", str(self._root), "--log-format", "json", "--merge-engine", self._merge_engine]
        self._process = subprocess.Popen(  # noqa: S603 - our own
            command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, env=environment(), text=True
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(MAX_SECONDS)
        self._reader.join()

    def land(self, table: str, file: Path) -> None:
        """Land a change file, and remember when."""
        with self._all_there:
            self._landed[table, file.name] = time.time()
        land(self._root, [file], table)

    def await_all(self) -> None:
        """Wait until everything that landed is committed.

        Raises:
            TimeoutError: something is not, after minutes.
        """
        with self._all_there:
            if not self._all_there.wait_for(lambda: self._landed.keys() <= self._committed.keys(), MAX_SECONDS):
                raise TimeoutError(f"{self._root}: {len(self._landed) - len(self._committed)} files are not applied")

    def waits(self, files: Sequence[Path]) -> list[float]:
        """Seconds from landing to commit, of these files in all tables."""
        names = {file.name for file in files}
        return [self._committed[key] - at for key, at in self._landed.items() if key[1] in names]

    def _read(self) -> None:
        assert self._process.stderr
        with self._process.stderr as lines:
            for line in lines:
                self._note(json.loads(line))

    def _note(self, told: dict[str, Any]) -> None:
        if told["event"] != "commit_finished":
            return
        at = datetime.fromisoformat(told["time"].replace("Z", "+00:00")).timestamp()
        first, last = (int(told[end].partition(".")[0]) for end in ("first", "last"))
        with self._all_there:
            for number in range(first, last + 1):
                self._committed[told["table"], f"{number:020}.parquet"] = at
            self._all_there.notify_all()
