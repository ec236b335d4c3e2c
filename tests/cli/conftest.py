"""A shop: a ROOT with a publisher and the reference writer; and what a terminal shows."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from rich.console import Console
from scripted_faults import Fault, Script, faulty

from mirror_engine.landing_zone.layout import HISTORY
from mirror_engine.mirror import Mirror
from mirror_engine.storage.local import LocalStorage
from mirror_engine.tables.dry_run.memory import MemoryDeltaWriter
from mirror_engine.testing.landing_zone_writer import LandingZoneWriter, TableFolder

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Sales:
    """A mirrored database of two Parquet tables, nothing of it applied yet; its storage fails as in `faults`."""

    root: Path
    writer: MemoryDeltaWriter
    publisher: LandingZoneWriter
    orders: TableFolder
    items: TableFolder
    faults: dict[int, Fault]

    def halt(self):
        """Land an empty file for Items, of which no upload may still be going on (LZ-3.10)."""
        self.items.land(b"", modified_ns=1)

    def block(self):
        """Leave out a number of Sales.Orders."""
        self.orders.skip_numbers()
        self.orders.upsert({"Id": 3, "Name": "three"})


@pytest.fixture
def sales(tmp_path, monkeypatch):
    writer = MemoryDeltaWriter()
    faults = {}

    def open_mirror(root, config, *, listeners=(), **_):
        storage = faulty(LocalStorage(root), Script(faults)) if faults else None
        return Mirror(root, config, writer=writer, storage=storage, listeners=listeners)

    monkeypatch.setattr("mirror_engine.mirror.Mirror", open_mirror)
    root = tmp_path / "shop"
    publisher = LandingZoneWriter(root)
    types = {"Id": pa.int64(), "Name": pa.string()}
    orders = publisher.table("Sales.Orders", keys=["Id"], types=types)
    items = publisher.table("Items", keys=["Id"], types=types)
    orders.initial_load({"Id": 1, "Name": "one"}, {"Id": 2, "Name": "two"})
    items.insert({"Id": 7, "Name": "[red]seven[/red]"}, {"Id": 8, "Name": None})
    return Sales(root, writer, publisher, orders, items, faults)


@pytest.fixture
def terminal(monkeypatch):
    """What a person sees on a terminal: stdout and stderr together."""
    console = Console(file=io.StringIO(), force_terminal=True, width=100, height=30, highlight=False)
    for module in ("output", "progress"):
        for stream in ("stdout", "stderr"):
            monkeypatch.setattr(f"mirror_engine.cli.{module}.{stream}", lambda: console, raising=False)
    return console


@pytest.fixture
def on_terminal(monkeypatch, cli):
    """Run a command on a terminal of a width; returns its exit code and the lines it prints."""

    def run(width, *words):
        plain = {"color_system": None, "highlight": False, "markup": False, "emoji": False}
        console = Console(file=io.StringIO(), force_terminal=True, width=width, height=40, **plain)
        for stream in ("stdout", "stderr"):
            monkeypatch.setattr(f"mirror_engine.cli.output.{stream}", lambda: console)
        code = cli(*words).code
        return code, console.file.getvalue().splitlines()

    return run


@pytest.fixture
def land_broken():
    """Land a good table, one with a wrong marker in its second file, and one with a gap."""

    def land(root):
        publisher = LandingZoneWriter(root)
        publisher.partner_events()
        types, row = {"Id": pa.int64(), "Name": pa.string()}, {"Id": 1, "Name": "one"}
        publisher.table("Good", keys=["Id"], types=types).insert(row)
        wrong = publisher.table("Sales.Wrong", keys=["Id"], types=types)
        wrong.insert(row)
        wrong.apply_changes((4, row), (3, row))
        gap = publisher.table("Gap", keys=["Id"], types=types)
        gap.insert(row)
        gap.skip_numbers()
        gap.upsert(row)

    return land


@pytest.fixture
def synced(sales, cli):
    """Its two tables are applied; its history says nothing yet."""
    assert cli("sync", sales.root).code == 0
    (sales.root / HISTORY).unlink(missing_ok=True)
    return sales
