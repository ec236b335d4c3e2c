"""How long a ROOT in a store takes at 20 ms a request, and its requests: small files, and `status` of many tables.

The store is the emulator behind a proxy that delays what clients send. `--before FOLDER` measures that checkout, too,
and `--one-by-one` this one with a request after the other. All see the same tables.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from measure import machine
from mirror_engine import Config, Mirror
from mirror_engine.landing_zone.layout import ENGINE
from mirror_engine.onelake.server_plan import ServerPlan
from mirror_engine.onelake.serving import Server
from mirror_engine.testing.landing_zone_writer import LandingZoneWriter

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

REQUEST_SECONDS = 0.02
MAX_SECONDS = 600.0
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="  # everybody's
HERE = Path(__file__).resolve().parents[1]
SEQUENTIAL = "from mirror_engine.storage import base; base.REQUESTS = 1; "
COMMAND = "import sys; {}from mirror_engine.cli.main import main; sys.exit(main())"
_COUNT = re.compile(r"^mirror_engine_emulator_requests_total\{.*\} (\d+)", re.MULTILINE)
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


class Code(NamedTuple):
    """A checkout, and whether it sends one request after the other."""

    name: str
    folder: Path
    is_sequential: bool = False


class Cost(NamedTuple):
    """Of a command."""

    seconds: float
    requests: int


class Store:
    """The emulator's items, and commands on them: near, or `REQUEST_SECONDS` away."""

    def __init__(self, folder: Path, near: int) -> None:
        self.folder, self.near, self.far = folder, near, delayed(near)

    def new(self, item: str) -> LandingZoneWriter:
        """A publisher of a new item, on the emulator's disk."""
        (self.folder / "store" / WORKSPACE / item / "Files/LandingZone").mkdir(parents=True)
        return LandingZoneWriter(self.folder / "store" / WORKSPACE / item)

    @property
    def requests(self) -> int:
        """All that the emulator answered so far."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.near}/metrics", timeout=MAX_SECONDS) as answer:
            return sum(map(int, _COUNT.findall(answer.read().decode())))

    def run(self, command: str, item: str, port: int, code: Code, state: str) -> Cost:
        """Seconds and requests of a command of a checkout, which must succeed."""
        environment = {
            **os.environ,
            "PYTHONPATH": str(code.folder),
            "AZURE_STORAGE_ACCOUNT": ACCOUNT,
            "AZURE_STORAGE_KEY": KEY,
            "AZURE_STORAGE_ENDPOINT": f"http://127.0.0.1:{port}",
            "MIRROR_ENGINE_STATE": str(self.folder / state),
        }
        url = f"abfss://{WORKSPACE}@{ACCOUNT}.dfs.core.windows.net/{item}.{KIND}"
        options = ["--merge-engine", "arrow"] if command == "sync" else []
        before, began = self.requests, time.monotonic()
        done = subprocess.run(  # noqa: S603 - our own commands
            [sys.executable, "-c", COMMAND.format(SEQUENTIAL if code.is_sequential else ""), command, url, *options],
            env=environment,
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            check=False,
        )
        seconds = time.monotonic() - began
        if done.returncode:
            sys.exit(f"failed: {command} {url}")
        return Cost(seconds, self.requests - before)


def per_file(store: Store, files: int, code: Code) -> dict[str, float]:
    """What each small file of one batch costs: read, checked, committed and moved."""
    item = f"files-{code.name.replace(' ', '-')}"
    table = store.new(item).table("Orders", keys=["Id"])
    table.upsert({"Id": 0})
    store.run("sync", item, store.near, code, item)
    idle = store.run("sync", item, store.far, code, item)
    for number in range(files):
        table.upsert({"Id": number})
    busy = store.run("sync", item, store.far, code, item)
    return {
        "seconds a file": round((busy.seconds - idle.seconds) / files, 3),
        "requests a file": round((busy.requests - idle.requests) / files, 1),
    }


def of_tables(store: Store, tables: int, codes: Sequence[Code]) -> Iterator[tuple[str, str, Cost]]:
    """What commands on many tables with an applied file each cost: checkout, command and machine, cost.

    One machine never saw them; the other one's ledger knows them.
    """
    item = f"tables-{tables}"
    writer = store.new(item)
    for number in range(tables):
        writer.table(f"T{number:04}", keys=["Id"]).upsert({"Id": number})
    with Mirror(writer.root, Config(merge_engine="arrow")) as mirror:  # far quicker on the disk
        assert mirror.sync().commits == tables
    shutil.rmtree(writer.root / ENGINE)
    for code in codes:
        yield code.name, "status, not in the ledger", store.run("status", item, store.far, code, f"new-{code.name}")
    store.run("sync", item, store.near, codes[-1], item)
    for code in codes:
        for command in ("status", "sync"):
            yield code.name, command, store.run(command, item, store.far, code, item)


def measured(store: Store, options: argparse.Namespace, codes: Sequence[Code]) -> dict[str, object]:
    """By checkout, what each work took."""
    told: dict[str, dict[str, float]] = {code.name: per_file(store, options.files, code) for code in codes}
    for tables in (1, options.tables):  # with one table it is the program's start, mostly
        for name, command, cost in of_tables(store, tables, codes):
            told[name][f"{command}: {tables} tables: seconds"] = round(cost.seconds, 1)
            told[name][f"{command}: {tables} tables: requests"] = cost.requests
    return {"tables": options.tables, "files": options.files, **told}


def main() -> None:
    """Measure, and print."""
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--tables", type=int, default=1000)
    given.add_argument("--files", type=int, default=200)
    given.add_argument("--before", type=Path)
    given.add_argument("--one-by-one", action="store_true")
    options = given.parse_args()
    codes = [Code("after", HERE)]
    if options.before:
        codes.insert(0, Code("before", options.before.resolve()))
    if options.one_by_one:
        codes.insert(0, Code("one by one", HERE, is_sequential=True))
    with tempfile.TemporaryDirectory(prefix="mirror-engine-bench-") as home:
        plan = ServerPlan(Path(home) / "store", workspace=WORKSPACE, has_engines=False)
        with Server(plan, on_error=print) as server:
            store = Store(Path(home), urlsplit(server.connection.http).port or 0)
            told = measured(store, options, codes)
    print(json.dumps({"machine": machine(), "milliseconds a request": REQUEST_SECONDS * 1000, **told}, indent=1))


if __name__ == "__main__":
    main()
