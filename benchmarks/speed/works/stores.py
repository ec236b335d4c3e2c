"""Seconds and requests of a ROOT in a store at 20 ms a request: small files, and many tables without work."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple
from unittest.mock import patch
from urllib.parse import urlsplit

from mirror_engine import Config, Mirror
from mirror_engine.landing_zone.layout import ENGINE, ZONE
from mirror_engine.testing.landing_zone_writer import LandingZoneWriter
from speed.bench import Line, Measured
from speed.lake import WORKSPACE, clients_of, requests_to, url_of
from speed.programs import MIRROR, seconds_of, sync

if TYPE_CHECKING:
    from pathlib import Path

    from speed.bench import Bench, Turn

REQUEST_SECONDS = 0.02


def stores(bench: Bench) -> Line:
    """Measure the emulator behind a proxy that delays each request."""
    store = _Store(bench)
    turns = {f"tables-{count}": _tables(store, count) for count in (1, bench.sizes.store_tables)}
    figures = bench.compare({"files": _files(store, bench.sizes.store_files), **turns}, 0)
    return Line(
        figures, (), f"seconds and requests, at {REQUEST_SECONDS:g} s a request; with one table, mostly the start"
    )


def _delayed(port: int) -> int:
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


class _Cost(NamedTuple):
    seconds: float
    requests: float

    def named(self, of: str) -> dict[str, float]:
        return {f"{of}, {unit}": figure for unit, figure in self._asdict().items()}


class _Store:
    """The emulator's items, and commands on them: near, or `REQUEST_SECONDS` away."""

    def __init__(self, bench: Bench) -> None:
        self._folder = bench.home / "stores"
        self.near: str = bench.ask("lake", "serve", store=self._folder)
        self.far = f"http://127.0.0.1:{_delayed(urlsplit(self.near).port or 0)}"

    def new(self, item: str) -> LandingZoneWriter:
        """Write to a new item, on the emulator's disk."""
        (self._folder / WORKSPACE / item / ZONE).mkdir(parents=True)
        return LandingZoneWriter(self._folder / WORKSPACE / item)

    def run(self, command: str, item: str, address: str, state: Path) -> _Cost:
        """Run a command, which must succeed."""
        words = sync(url_of(item), "arrow") if command == "sync" else [*MIRROR, command, url_of(item)]
        before = requests_to(self.near)
        with patch.dict(os.environ, clients_of(address, state)):
            seconds = seconds_of(words)
        return _Cost(seconds, requests_to(self.near) - before)


def _files(store: _Store, files: int) -> Turn:
    """The cost of each small file of one batch: read, checked, committed and moved."""

    def turn(place: Path) -> Measured:
        table = store.new(place.name).table("Orders", keys=["Id"])
        table.upsert({"Id": 0})
        store.run("sync", place.name, store.near, place)
        idle = store.run("sync", place.name, store.far, place)
        for number in range(files):
            table.upsert({"Id": number})
        busy = store.run("sync", place.name, store.far, place)
        each = _Cost((busy.seconds - idle.seconds) / files, (busy.requests - idle.requests) / files)
        return Measured(each.named("a file"))

    return turn


def _tables(store: _Store, tables: int) -> Turn:
    """The cost of commands on tables with an applied file each, also on a machine that has never seen them."""

    def turn(place: Path) -> Measured:
        item, words = place.name, f"{tables} tables"
        writer = store.new(item)
        for number in range(tables):
            writer.table(f"T{number:04}", keys=["Id"]).upsert({"Id": number})
        with Mirror(writer.root, Config(merge_engine="arrow")) as mirror:  # much faster on the disk
            assert mirror.sync().commits == tables
        shutil.rmtree(writer.root / ENGINE)
        found = store.run("status", item, store.far, place / "new").named(f"{words}, status, not in the ledger")
        store.run("sync", item, store.near, place)
        for command in ("status", "sync"):
            found |= store.run(command, item, store.far, place).named(f"{words}, {command}")
        return Measured(found)

    return turn
