"""Seconds and requests of a ROOT in a store at 20 ms a request: small files, and many tables without work.

The store is the emulator behind a proxy that delays each request.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from measure import machine
from mirror_engine import Config, Mirror
from mirror_engine.landing_zone.layout import ENGINE
from mirror_engine.testing.landing_zone_writer import LandingZoneWriter
from speed.aging import ACCOUNT, WORKSPACE, Lake, clients_of, requests_to
from speed.programs import MIRROR

REQUEST_SECONDS = 0.02


def delayed(port: int) -> int:
    """Start a proxy before a port that holds back each request for `REQUEST_SECONDS`; returns its port."""

    async def forward(source: asyncio.StreamReader, target: asyncio.StreamWriter, seconds: float) -> None:
        with suppress(ConnectionError):
            while data := await source.read(1 << 20):
                await asyncio.sleep(seconds)
                target.write(data)
                await target.drain()
        target.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_server = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(forward(reader, to_server[1], REQUEST_SECONDS), forward(to_server[0], writer, 0.0))

    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(accept, "127.0.0.1", 0))
    threading.Thread(target=loop.run_forever, daemon=True).start()
    return int(server.sockets[0].getsockname()[1])


class Cost(NamedTuple):
    """The cost of a command."""

    seconds: float
    requests: int


class Store:
    """The emulator's items, and commands on them: near, or `REQUEST_SECONDS` away."""

    def __init__(self, folder: Path, near: str) -> None:
        self.folder, self.near = folder, near
        self.far = f"http://127.0.0.1:{delayed(urlsplit(near).port or 0)}"

    def new(self, item: str) -> LandingZoneWriter:
        """Write to a new item, on the emulator's disk."""
        (self.folder / "store" / WORKSPACE / item / "Files/LandingZone").mkdir(parents=True)
        return LandingZoneWriter(self.folder / "store" / WORKSPACE / item)

    def run(self, command: str, item: str, address: str, state: str) -> Cost:
        """Run a command, which must succeed."""
        url = f"abfss://{WORKSPACE}@{ACCOUNT}.dfs.core.windows.net/{item}.MountedRelationalDatabase"
        options = ["--merge-engine", "arrow"] if command == "sync" else []
        environment = {**os.environ, **clients_of(address, self.folder / state)}
        before, began = requests_to(self.near), time.monotonic()
        subprocess.run(  # noqa: S603 - our own commands
            [*MIRROR, command, url, *options], env=environment, cwd=self.folder, stdout=subprocess.DEVNULL, check=True
        )
        return Cost(time.monotonic() - began, requests_to(self.near) - before)


def per_file(store: Store, files: int) -> dict[str, float]:
    """The cost of each small file of one batch: read, checked, committed and moved."""
    item = "files"
    table = store.new(item).table("Orders", keys=["Id"])
    table.upsert({"Id": 0})
    store.run("sync", item, store.near, item)
    idle = store.run("sync", item, store.far, item)
    for number in range(files):
        table.upsert({"Id": number})
    busy = store.run("sync", item, store.far, item)
    return {
        "seconds a file": round((busy.seconds - idle.seconds) / files, 3),
        "requests a file": round((busy.requests - idle.requests) / files, 1),
    }


def of_tables(store: Store, tables: int) -> dict[str, Cost]:
    """The cost of commands on tables with an applied file each, also on a machine that has never seen them."""
    item = f"tables-{tables}"
    writer = store.new(item)
    for number in range(tables):
        writer.table(f"T{number:04}", keys=["Id"]).upsert({"Id": number})
    with Mirror(writer.root, Config(merge_engine="arrow")) as mirror:  # much faster on the disk
        assert mirror.sync().commits == tables
    shutil.rmtree(writer.root / ENGINE)
    found = {"status, not in the ledger": store.run("status", item, store.far, "new")}
    store.run("sync", item, store.near, item)
    return found | {command: store.run(command, item, store.far, item) for command in ("status", "sync")}


def main() -> None:
    """Measure, and print."""
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--tables", type=int, default=1000)
    given.add_argument("--files", type=int, default=200)
    options = given.parse_args()
    with tempfile.TemporaryDirectory(prefix="mirror-engine-bench-") as home:
        lake = Lake()
        store = Store(Path(home), lake.serve(Path(home) / "store"))
        found = per_file(store, options.files)
        for tables in (1, options.tables):  # with one table it is the program's start, mostly
            for command, cost in of_tables(store, tables).items():
                found[f"{command}: {tables} tables: seconds"] = round(cost.seconds, 1)
                found[f"{command}: {tables} tables: requests"] = cost.requests
        lake.end()
    print(json.dumps({"machine": machine(), "milliseconds a request": REQUEST_SECONDS * 1000, **found}, indent=1))


if __name__ == "__main__":
    main()
