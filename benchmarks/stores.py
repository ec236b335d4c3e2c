"""How long a ROOT in a store takes at 20 ms a request: each small file, and `status` of many tables.

The store is the emulator behind a proxy that delays what clients send. `--before FOLDER` measures that checkout, too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from measure import machine
from mirror_engine.onelake.options import ServerPlan
from mirror_engine.onelake.serving import Server
from mirror_engine.publisher.landing_zone_writer import LandingZoneWriter

if TYPE_CHECKING:
    from collections.abc import Sequence

REQUEST_SECONDS = 0.02
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="  # everybody's
HERE = Path(__file__).resolve().parents[1]
WORKSPACE, KIND = "Workspace", "MountedRelationalDatabase"


def delayed(port: int) -> int:
    """The port of a proxy before another one, which keeps what clients send for `REQUEST_SECONDS`."""

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


class Store:
    """The emulator's items, and commands on them: near, or `REQUEST_SECONDS` away."""

    def __init__(self, folder: Path, near: int) -> None:
        self.folder, self.near, self.far = folder, near, delayed(near)

    def new(self, item: str) -> LandingZoneWriter:
        """A publisher of a new item, on the emulator's disk."""
        (self.folder / "store" / WORKSPACE / item / "Files/LandingZone").mkdir(parents=True)
        return LandingZoneWriter(self.folder / "store" / WORKSPACE / item)

    def seconds(self, command: str, item: str, port: int, code: Path) -> float:
        """How long a command of a checkout takes, which must succeed."""
        environment = {
            **os.environ,
            "PYTHONPATH": str(code),
            "AZURE_STORAGE_ACCOUNT": ACCOUNT,
            "AZURE_STORAGE_KEY": KEY,
            "AZURE_STORAGE_ENDPOINT": f"http://127.0.0.1:{port}",
            "MIRROR_ENGINE_STATE": str(self.folder / "state"),
        }
        url = f"abfss://{WORKSPACE}@{ACCOUNT}.dfs.core.windows.net/{item}.{KIND}"
        options = ["--merge-engine", "arrow"] if command == "sync" else []
        began = time.monotonic()
        done = subprocess.run(  # noqa: S603 - our own commands
            [sys.executable, "-m", "mirror_engine.cli.main", command, url, *options],
            env=environment,
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            check=False,
        )
        if done.returncode:
            sys.exit(f"failed: {command} {url}")
        return time.monotonic() - began


def per_file(store: Store, files: int, name: str, code: Path) -> float:
    """Seconds for each small file of one batch: read, checked, committed and moved."""
    item = f"files-{name}"
    table = store.new(item).table("Orders", keys=["Id"])
    table.upsert({"Id": 0})
    store.seconds("sync", item, store.near, code)
    idle = store.seconds("sync", item, store.far, code)
    for number in range(files):
        table.upsert({"Id": number})
    return (store.seconds("sync", item, store.far, code) - idle) / files


def of_tables(store: Store, tables: int, name: str, code: Path) -> dict[str, float]:
    """Seconds of commands on many tables with a file each, all applied by the same checkout."""
    item = f"tables-{name}"
    writer = store.new(item)
    for number in range(tables):
        writer.table(f"T{number:04}", keys=["Id"]).upsert({"Id": number})
    store.seconds("sync", item, store.near, code)
    commands = ("status", "sync")
    return {f"seconds of {each}": round(store.seconds(each, item, store.far, code), 1) for each in commands}


def measured(store: Store, options: argparse.Namespace, codes: Sequence[tuple[str, Path]]) -> dict[str, object]:
    """By checkout, what each work took."""
    told: dict[str, dict[str, float]] = {name: {} for name, _ in codes}
    for name, code in codes:
        told[name]["seconds a file"] = round(per_file(store, options.files, name, code), 3)
        told[name] |= of_tables(store, options.tables, name, code)
    return {"tables": options.tables, "files": options.files, **told}


def main() -> None:
    """Measure, and print."""
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--tables", type=int, default=1000)
    given.add_argument("--files", type=int, default=200)
    given.add_argument("--before", type=Path)
    options = given.parse_args()
    codes = [("after", HERE)]
    if options.before:
        codes.insert(0, ("before", options.before.resolve()))
    with tempfile.TemporaryDirectory(prefix="mirror-engine-bench-") as home:
        plan = ServerPlan(Path(home) / "store", workspace=WORKSPACE, has_engines=False)
        with Server(plan, on_error=print) as server:
            store = Store(Path(home), urlsplit(server.connection.http).port or 0)
            told = measured(store, options, codes)
    print(json.dumps({"machine": machine(), "milliseconds a request": REQUEST_SECONDS * 1000, **told}, indent=1))


if __name__ == "__main__":
    main()
