"""The ledger's file: damaged, cut, or with other values in it."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fuzzing.bytes_mutations import NUMBERS, mutated_bytes
from fuzzing.json_mutations import mutated_json
from fuzzing.target import Target
from fuzzing.targets.parquet import table_bytes
from fuzzing.targets.zone import foreseen
from quick_folder import quick_folder

from mirror_engine import Mirror
from mirror_engine.config import Config
from mirror_engine.landing_zone.layout import LEDGER
from mirror_engine.publisher.landing_zone_writer import LandingZoneWriter
from mirror_engine.tables.merge.memory import MemoryDeltaWriter

if TYPE_CHECKING:
    from random import Random
    from tempfile import TemporaryDirectory

CONFIG = Config(cleanup="off")  # nothing moves: each run finds the same zone


@dataclass(frozen=True)
class _Shop:
    """A zone with a level, a blocked and a latched table, and its tables; the engine has run once."""

    folder: TemporaryDirectory[str]
    writer: MemoryDeltaWriter
    ledger: bytes

    @classmethod
    @lru_cache(maxsize=1)
    def open(cls) -> _Shop:
        folder, writer = quick_folder(), MemoryDeltaWriter()
        publisher = LandingZoneWriter(folder.name)
        for name in ("CaughtUp", "Blocked", "S.Latched"):
            table = publisher.table(name, keys=["Id"])
            table.insert({"Id": 1, "City": "Linz"})
            table.skip_numbers(name == "Blocked")
            table.land(b"no Parquet" if name == "S.Latched" else table_bytes({"Id": [2]}))
        Mirror(folder.name, CONFIG, writer=writer).sync()
        with closing(sqlite3.connect(Path(folder.name) / LEDGER)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return cls(folder, writer, (Path(folder.name) / LEDGER).read_bytes())


def run(content: bytes) -> None:
    """It is read, or put aside; and the engine goes on."""
    shop = _Shop.open()
    ledger = Path(shop.folder.name) / LEDGER
    for left in ledger.parent.glob("*ledger*"):
        left.unlink()
    ledger.write_bytes(content)
    writer = MemoryDeltaWriter()
    writer._tables = {name: list(commits) for name, commits in shop.writer._tables.items()}
    Mirror(shop.folder.name, CONFIG, writer=writer).status()
    stop = threading.Event()
    Mirror(shop.folder.name, CONFIG, writer=writer, listeners=[partial(foreseen, stop)]).sync(stop)


def shaped(content: bytes, random: Random) -> bytes:
    """A value of one of its rows changed, by SQLite itself."""
    with quick_folder() as folder:
        path = Path(folder) / "ledger"
        path.write_bytes(content)
        try:
            with closing(sqlite3.connect(path)) as connection, connection:
                connection.execute("PRAGMA journal_mode = DELETE")
                _change(connection, random)
        except sqlite3.Error:
            return mutated_bytes(content, random)
        return path.read_bytes()


def _change(connection: sqlite3.Connection, random: Random) -> None:
    if random.random() < 0.6:
        rows = connection.execute("SELECT rowid, progress FROM tables").fetchall()
        row, progress = random.choice(rows) if rows else (1, "{}")
        changed: Any = mutated_json(str(progress).encode("utf-8", "replace"), random)
        connection.execute("UPDATE tables SET progress = ? WHERE rowid = ?", (changed.decode("utf-8", "replace"), row))
        return
    column = random.choice(("etag", "digest", "version", "rows", "modified_ns", "path", "table_folder"))
    value = random.choice((None, "x", b"\xff", 1.5, *(n for n in NUMBERS if -(2**63) <= n < 2**63)))
    connection.execute(f"UPDATE applied SET {column} = ? WHERE rowid = 1", (value,))  # noqa: S608 - one of ours


TARGET = Target("ledger", lambda: [_Shop.open().ledger], run, shaped)
