"""The peers `aging` and `lake`: the product over ROOTs with a past, on disk and in a store; no JVM.

`python -m speed.aging ROOT SECONDS POLL_SECONDS` is `run` over idle tables as a process: it prints what that takes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import statistics
import sys
import threading
import time
import urllib.request
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
from deltalake import DeltaTable

from counting import counted_entries
from measure import cpu_seconds, lines_of
from mirror_engine import Config, Mirror, RunResult
from mirror_engine.events import BatchCommitted, CycleEnded
from mirror_engine.landing_zone.detection import numbered_name
from mirror_engine.landing_zone.layout import ENGINE, LEDGER, ZONE
from mirror_engine.landing_zone.names import READY_TO_DELETE_FOLDER
from mirror_engine.onelake.server_plan import ServerPlan
from mirror_engine.onelake.serving import Server
from mirror_engine.storage.roots import state_folder
from mirror_engine.storage.stores import open_storage, parse_place
from mirror_engine.testing.landing_zone_writer import LandingZoneWriter, LandOptions
from speed.places import TABLE, mirrored
from speed.rows import KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from typing_extensions import Self

    from mirror_engine.events import Event

MAX_SECONDS = 600.0
FIRST_NEW_KEY = 10**9
IDLE_SECONDS = 0.2  # of idle cycles that are measured at least: one takes half a millisecond, or two seconds
FOLLOW_UP_SECONDS = 60.0
FILES_A_BATCH = 10_000
COMMITS_A_SYNC, COMMITS_BETWEEN_MAINTENANCE = 100, 500
WORKSPACE, ACCOUNT = "Workspace", "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="  # everybody's
Cleanup = Literal["ready", "off"]
_REQUESTS = re.compile(r"^mirror_engine_emulator_requests_total\{.*\} (\d+)", re.MULTILINE)


class Lake:
    """Commands of the peer `lake`: the emulator, without engines."""

    def serve(self, store: str) -> dict[str, Any]:
        """Serve a folder until this peer ends; gives the variables of its clients, and where requests are counted."""
        self._server = Server(ServerPlan(Path(store), workspace=WORKSPACE, has_engines=False), on_error=print)
        found = self._server.__enter__().connection
        environment = {
            "AZURE_STORAGE_ACCOUNT": ACCOUNT,
            "AZURE_STORAGE_KEY": _KEY,
            "AZURE_STORAGE_ENDPOINT": found.http,
            "MIRROR_ENGINE_STATE": f"{store}-state",
        }
        return {"environment": environment, "metrics": f"{found.http}/metrics"}

    def end(self) -> None:
        """Stop it."""
        self._server.__exit__()


class Aging:
    """Commands of the peer `aging`."""

    def build(self, root: str, files: int, partitions: int, commits: int) -> dict[str, Any]:
        """Give a ROOT's table a past: files of one row, spread over partitions, in a batch of all or a commit each."""
        table = LandingZoneWriter(root).table(TABLE, keys=[KEY], partitioned=partitions > 1)
        step = COMMITS_A_SYNC if commits else FILES_A_BATCH
        config = Config(merge_engine="arrow", max_batch_files=1 if commits else FILES_A_BATCH)
        with Mirror(root, config) as mirror:
            for first in range(0, files, step):
                for number in range(first, min(first + step, files)):
                    where = LandOptions(partition=_partition(number % partitions)) if partitions > 1 else LandOptions()
                    table.land_parquet(_row(number), **where)
                report = mirror.sync()
                assert report.result is RunResult.CAUGHT_UP, report
                if commits and first % COMMITS_BETWEEN_MAINTENANCE == 0:
                    mirror.maintain()  # as `run` does by itself
            mirror.maintain()
        return {}

    def measure(self, root: str, folder: str, times: int, cleanup: Cleanup, lake: Mapping[str, Any]) -> dict[str, Any]:
        """Run the engine: its first cycle, idle ones, and commits of one file of one row each.

        Args:
            root: of the mirror, a folder or a URL.
            folder: where ROOT is on this machine.
            times: files, and idle cycles at least.
            cleanup: as the option.
            lake: what `Lake.serve` gave; empty for a ROOT on disk.

        Returns:
            medians: seconds of a commit and of an idle cycle, bytes of a commit's JSON, entries that Python listed and
            requests for a commit and for the look that follows it; seconds of the start.
        """
        # a log is read from its last checkpoint on, which each state has behind it equally far
        DeltaTable(str(mirrored(Path(folder)))).create_checkpoint()
        newest = max((Path(folder) / ZONE / TABLE).glob("**/[!_]*.parquet"), key=_first_partition_and_number)
        partition = "" if newest.parent.name == TABLE else newest.parent.name
        with _reaching(lake), counted_entries() as listed:
            watched = _Watched(root, cleanup, lambda: (sum(listed.values()), _requests(lake)))
            with watched:
                while len(watched.found["idle"]) < times or watched.idle_seconds < IDLE_SECONDS:
                    watched.idle()
                for number in range(1, times + 1):
                    watched.land(int(newest.stem) + number, partition)
        log = mirrored(Path(folder)) / "_delta_log"
        sizes = [(log / f"{version:020}.json").stat().st_size for version in watched.versions]
        found: dict[str, Sequence[float]] = {**watched.found, "bytes": sizes}
        return {name: statistics.median(each) for name, each in found.items()}

    def leave_files(self, root: str) -> dict[str, Any]:
        """Put applied files back where they landed, as without clean-up; a rename leaves them the same files."""
        for folder in (Path(root) / ZONE).iterdir():
            archive = folder / READY_TO_DELETE_FOLDER
            for file in sorted(archive.rglob("*.parquet")):
                file.rename(folder / file.relative_to(archive))
            shutil.rmtree(archive, ignore_errors=True)
        return self.look(root, "off")

    def look(self, root: str, cleanup: Cleanup) -> dict[str, Any]:
        """Have the engine see a ROOT that was copied, with a cycle."""
        with Mirror(root, Config(merge_engine="arrow", cleanup=cleanup)) as mirror:
            report = mirror.sync()
        assert (report.result, report.commits) == (RunResult.CAUGHT_UP, 0), report
        return {}

    def into_store(self, root: str, folder: str, cleanup: Cleanup, lake: Mapping[str, Any]) -> dict[str, Any]:
        """Make a ROOT on disk one in a store: its ledger becomes that of this machine, under a lease of its own."""
        own, kept = Path(folder) / ENGINE, Path(f"{folder}.ledger")
        shutil.rmtree(kept, ignore_errors=True)
        own.rename(kept)
        with _reaching(lake):
            self.look(root, cleanup)
            state = state_folder(parse_place(root)) / ENGINE
            name = Path(LEDGER).name
            for file in state.glob(f"{name}*"):
                file.unlink()
            for file in kept.glob(f"{name}*"):
                shutil.copyfile(file, state / file.name)
            self.look(root, cleanup)
        shutil.rmtree(kept)
        return {}

    def tables(self, root: str, count: int) -> dict[str, Any]:
        """Make tables of one applied file each."""
        zone = LandingZoneWriter(root)
        for number in range(count):
            zone.table(f"{TABLE}{number}", keys=[KEY]).land_parquet(_row(number))
        with Mirror(root, Config(merge_engine="arrow")) as mirror:
            report = mirror.sync()
        assert report.result is RunResult.CAUGHT_UP, report
        return {}

    def remember(self, root: str, files: int) -> dict[str, Any]:
        """Have the ledger know so many applied files of each table more: copies of the row that it has of its file.

        A million files take the engine half an hour to apply. All tables that name files by path are filled, whatever
        their other columns are.
        """
        with closing(sqlite3.connect(Path(root) / LEDGER)) as ledger, ledger:
            tables = [name for (name,) in ledger.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            added = 0
            for table in tables:
                columns = {name: key for _, name, _, _, _, key in ledger.execute(f"PRAGMA table_info({table})")}
                if columns.get("path"):  # a part of the primary key
                    others = ["earlier.path" if name == "path" else f"{table}.{name}" for name in columns]
                    added += ledger.execute(
                        "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?),"
                        " earlier(path) AS (SELECT printf('%020d.parquet', n + ?) FROM numbers)"
                        f" INSERT INTO {table} SELECT {', '.join(others)} FROM {table}, earlier",
                        (files, 10**9),
                    ).rowcount
        assert added, f"{LEDGER}: no table with files by path"
        return {"added": added}


class _Watched:
    """`run` in a thread, which looks when it is told to; a context manager.

    Args:
        root: a folder or a URL.
        cleanup: as the option.
        counts: gives the entries listed and the requests made so far.
    """

    def __init__(self, root: str, cleanup: Cleanup, counts: Callable[[], tuple[int, int]]) -> None:
        config = Config(
            merge_engine="arrow",
            timing="fabric",  # no file-system events
            poll_interval_seconds=86_400.0,
            cleanup=cleanup,
            auto_maintain="off",
        )
        self._place, self._counts = parse_place(root), counts
        self._begun = time.perf_counter()
        self._mirror = Mirror(root, config, listeners=[self._hear])
        self._stop, self._heard = threading.Event(), threading.Condition()
        self._cycles: list[CycleEnded] = []
        self.versions: list[int] = []
        self.found: dict[str, list[float]] = {"start": [], "idle": [], "commit": [], "entries": [], "requests": []}
        self._thread = threading.Thread(target=self._mirror.run, args=(self._stop,))

    def __enter__(self) -> Self:
        self._thread.start()
        self._await(1)
        self.found["start"].append(time.perf_counter() - self._begun)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._mirror.close()

    @property
    def idle_seconds(self) -> float:
        """How long idle cycles took so far, together."""
        return sum(self.found["idle"])

    def idle(self) -> None:
        """Measure a cycle without work."""
        cycle = self._cycle()
        assert cycle.batches == 0, cycle
        self.found["idle"].append(cycle.seconds)

    def land(self, number: int, partition: str) -> None:
        """Land a file of a new row, and measure the cycle that commits it and cleans up."""
        path = "/".join(filter(None, [ZONE, TABLE, partition, numbered_name(number, "parquet")]))
        open_storage(self._place).write(path, _bytes(_row(FIRST_NEW_KEY + number)))
        before = self._counts()
        cycle = self._cycle()
        after = self._counts()
        assert cycle.batches == 1, cycle
        self.found["commit"].append(cycle.seconds)
        self.found["entries"].append(after[0] - before[0])
        with self._heard:  # after work the engine looks again by itself
            self._heard.wait_for(lambda: self._cycles[-1].batches == 0, FOLLOW_UP_SECONDS)
        # of both cycles: the second one begins while the emulator is asked for its count
        self.found["requests"].append(self._counts()[1] - before[1])

    def _cycle(self) -> CycleEnded:
        known = len(self._cycles)
        self._mirror.wake()
        return self._await(known + 1)

    def _await(self, count: int) -> CycleEnded:
        with self._heard:
            if not self._heard.wait_for(lambda: len(self._cycles) >= count, MAX_SECONDS):
                raise TimeoutError(f"{self._place}: cycle {count} did not end")
            return self._cycles[count - 1]

    def _hear(self, event: Event) -> None:
        with self._heard:
            if isinstance(event, CycleEnded):
                self._cycles.append(event)
            elif isinstance(event, BatchCommitted):
                self.versions.append(event.version)
            self._heard.notify_all()


@contextmanager
def _reaching(lake: Mapping[str, Any]) -> Iterator[None]:
    """This process as a client of the emulator."""
    before = dict(os.environ)
    os.environ.update(lake.get("environment", {}))
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _first_partition_and_number(path: Path) -> tuple[bool, int]:
    return path.parent.name in {TABLE, _partition(0)}, int(path.stem)


def _partition(number: int) -> str:
    return f"site={number:05}"


def _row(number: int) -> pa.Table:
    return pa.table({KEY: [number], "Number": [number]})


def _bytes(rows: pa.Table) -> bytes:
    import pyarrow.parquet as pq  # noqa: PLC0415 - beside its package

    buffer = pa.BufferOutputStream()
    pq.write_table(rows, buffer)
    return bytes(buffer.getvalue())


def _requests(lake: Mapping[str, Any]) -> int:
    if not lake:
        return 0
    with urllib.request.urlopen(lake["metrics"], timeout=MAX_SECONDS) as answer:  # noqa: S310 - http, our own
        return sum(map(int, _REQUESTS.findall(answer.read().decode())))


def idle(root: str, seconds: float, poll_seconds: float) -> dict[str, float]:
    """Run over idle tables: seconds of the first cycle and of later ones, share of a core, resident MiB."""
    ended: list[tuple[float, CycleEnded]] = []
    stop, first = threading.Event(), threading.Event()

    def hear(event: Event) -> None:
        if isinstance(event, CycleEnded):
            ended.append((time.perf_counter(), event))
            first.set()

    begun = time.perf_counter()
    mirror = Mirror(root, Config(merge_engine="arrow", poll_interval_seconds=poll_seconds), listeners=[hear])
    thread = threading.Thread(target=mirror.run, args=(stop,))
    thread.start()
    first.wait(MAX_SECONDS)
    time.sleep(poll_seconds)  # what follows a start is over
    known, used, since = len(ended), cpu_seconds(os.getpid()), time.perf_counter()
    time.sleep(seconds)
    share = (cpu_seconds(os.getpid()) - used) / (time.perf_counter() - since)
    memory = next(line for line in lines_of(Path("/proc/self/status")) if line.startswith("VmRSS:"))
    stop.set()
    thread.join()
    mirror.close()
    cycle = statistics.median(event.seconds for _, event in ended[known:])
    return {"start": ended[0][0] - begun, "cycle": cycle, "share": share, "memory": int(memory.split()[1]) / 1024}


if __name__ == "__main__":
    print(json.dumps(idle(sys.argv[1], *map(float, sys.argv[2:]))))
