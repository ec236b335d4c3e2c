"""ROOTs with a past, on disk and in a store: how they are made, and the cost of a commit and of a cycle; no JVM."""

from __future__ import annotations

import re
import shutil
import sqlite3
import statistics
import threading
import time
import urllib.request
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from counting import counted_entries
from measure import status_bytes
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
    from collections.abc import Callable

    from mirror_engine.events import Event

MAX_SECONDS = 600.0
MIB = 1 << 20
FIRST_NEW_KEY = 10**9
IDLE_SECONDS = 0.2  # of idle cycles that are measured at least: one takes half a millisecond, or two seconds
FOLLOW_UP_SECONDS = 60.0
FILES_A_BATCH = 10_000
COMMITS_A_SYNC, COMMITS_BETWEEN_MAINTENANCE = 100, 500
WORKSPACE, ACCOUNT = "Workspace", "devstoreaccount1"
_ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="  # everybody's
Cleanup = Literal["ready", "off"]
_REQUESTS = re.compile(r"^mirror_engine_emulator_requests_total\{.*\} (\d+)", re.MULTILINE)


class Lake:
    """The engine `lake`: the emulator, without engines of its own."""

    def serve(self, store: Path) -> str:
        """Serve a folder until this process ends; returns the address."""
        self._server = Server(ServerPlan(store, workspace=WORKSPACE, has_engines=False), on_error=print)
        return self._server.__enter__().connection.http

    def end(self) -> None:
        self._server.__exit__()


def clients_of(address: str, state: Path) -> dict[str, str]:
    """The environment of a client of the emulator that keeps its ledgers in `state`."""
    return {
        "AZURE_STORAGE_ACCOUNT": ACCOUNT,
        "AZURE_STORAGE_KEY": _ACCOUNT_KEY,
        "AZURE_STORAGE_ENDPOINT": address,
        "MIRROR_ENGINE_STATE": str(state),
    }


def requests_to(address: str) -> int:
    """Every request that the emulator has answered so far."""
    with urllib.request.urlopen(f"{address}/metrics", timeout=MAX_SECONDS) as answer:  # noqa: S310 - http, our own
        return sum(map(int, _REQUESTS.findall(answer.read().decode())))


def build(root: Path, files: int, partitions: int, commits: int) -> None:
    """Give a ROOT's table a past: files of one row, spread over partitions, in large batches or a commit each."""
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


def measure(root: str, folder: Path, times: int, cleanup: Cleanup, lake: str) -> dict[str, float]:
    """Run the engine: its first cycle, idle ones, and commits of one file of one row each.

    Args:
        root: of the mirror, a folder or a URL.
        folder: where ROOT is on this machine.
        times: files, and at least as many idle cycles.
        cleanup: the option.
        lake: the emulator's address; empty for a ROOT on disk.

    Returns:
        medians: seconds of a commit and of an idle cycle, bytes of a commit's JSON, entries that Python listed and
        requests for a commit and for the look that follows it; seconds of the start.
    """
    # a log is read from its last checkpoint, so each state begins just behind one
    DeltaTable(str(mirrored(folder))).create_checkpoint()
    newest = max((folder / ZONE / TABLE).glob("**/[!_]*.parquet"), key=_first_partition_and_number)
    partition = "" if newest.parent.name == TABLE else newest.parent.name
    with counted_entries() as listed:
        counts = lambda: (sum(listed.values()), requests_to(lake) if lake else 0)  # noqa: E731 - one line
        with _Watched(root, cleanup, counts) as watched:
            while len(watched.found["idle"]) < times or sum(watched.found["idle"]) < IDLE_SECONDS:
                watched.idle()
            for number in range(1, times + 1):
                watched.land(int(newest.stem) + number, partition)
    log = mirrored(folder) / "_delta_log"
    watched.found["bytes"] = [(log / f"{version:020}.json").stat().st_size for version in watched.versions]
    return {name: statistics.median(each) for name, each in watched.found.items()}


def leave_files(root: Path) -> None:
    """Put applied files back where they landed, as without clean-up; a rename keeps their identity."""
    for folder in (root / ZONE).iterdir():
        archive = folder / READY_TO_DELETE_FOLDER
        for file in sorted(archive.rglob("*.parquet")):
            file.rename(folder / file.relative_to(archive))
        shutil.rmtree(archive, ignore_errors=True)
    look(str(root), "off")


def look(root: str, cleanup: Cleanup) -> None:
    """Let the engine see a ROOT that was copied, in a cycle."""
    with Mirror(root, Config(merge_engine="arrow", cleanup=cleanup)) as mirror:
        report = mirror.sync()
    assert (report.result, report.commits) == (RunResult.CAUGHT_UP, 0), report


def into_store(root: str, folder: Path, cleanup: Cleanup) -> None:
    """Turn a ROOT on disk into one in a store: its ledger becomes this machine's, under a lease of its own."""
    own, kept = folder / ENGINE, Path(f"{folder}.ledger")
    shutil.rmtree(kept, ignore_errors=True)
    own.rename(kept)
    look(root, cleanup)
    state, name = state_folder(parse_place(root)) / ENGINE, Path(LEDGER).name
    for file in state.glob(f"{name}*"):
        file.unlink()
    for file in kept.glob(f"{name}*"):
        shutil.copyfile(file, state / file.name)
    look(root, cleanup)
    shutil.rmtree(kept)


def tables(root: Path, count: int) -> None:
    """Make tables of one applied file each."""
    zone = LandingZoneWriter(root)
    for number in range(count):
        zone.table(f"{TABLE}{number}", keys=[KEY]).land_parquet(_row(number))
    with Mirror(root, Config(merge_engine="arrow")) as mirror:
        report = mirror.sync()
    assert report.result is RunResult.CAUGHT_UP, report


def remember(root: Path, files: int) -> None:
    """Add that many applied files of each table to the ledger: copies of the row of its file.

    The engine would take half an hour to apply a million files. Every ledger table that names files by path is filled.
    """
    with closing(sqlite3.connect(root / LEDGER)) as ledger, ledger:
        names = [name for (name,) in ledger.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        added = 0
        for table in names:
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


class _Watched:
    """`run` in a thread that scans only when asked; `counts` returns the entries listed and the requests so far."""

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


def _first_partition_and_number(path: Path) -> tuple[bool, int]:
    return path.parent.name in {TABLE, _partition(0)}, int(path.stem)


def _partition(number: int) -> str:
    return f"site={number:05}"


def _row(number: int) -> pa.Table:
    return pa.table({KEY: [number], "Number": [number]})


def _bytes(rows: pa.Table) -> bytes:
    buffer = pa.BufferOutputStream()
    pq.write_table(rows, buffer)
    return bytes(buffer.getvalue())


def idle(root: Path, seconds: float, poll_seconds: float) -> dict[str, float]:
    """Run over idle tables in this process: seconds of the first cycle and of later ones, share of a core, MiB."""
    ended: list[CycleEnded] = []
    stop, first = threading.Event(), threading.Event()

    def hear(event: Event) -> None:
        if isinstance(event, CycleEnded):
            ended.append(event)
            first.set()

    begun = time.perf_counter()
    mirror = Mirror(root, Config(merge_engine="arrow", poll_interval_seconds=poll_seconds), listeners=[hear])
    thread = threading.Thread(target=mirror.run, args=(stop,))
    thread.start()
    first.wait(MAX_SECONDS)
    start = time.perf_counter() - begun
    time.sleep(poll_seconds)  # the work that follows a start is over
    known, used, since = len(ended), time.process_time(), time.perf_counter()
    time.sleep(seconds)
    share = (time.process_time() - used) / (time.perf_counter() - since)
    memory = status_bytes("VmRSS") / MIB
    stop.set()
    thread.join()
    mirror.close()
    cycle = statistics.median(event.seconds for event in ended[known:])
    return {"start": start, "cycle": cycle, "share": share, "memory": memory}
