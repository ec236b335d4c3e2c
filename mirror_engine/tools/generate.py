"""Generate: tables of a shop and a steady load of changes, landed as a production publisher lands them."""

from __future__ import annotations

import math
import posixpath
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mirror_engine import display
from mirror_engine.errors import UsageError
from mirror_engine.landing_zone.change import RowMarker
from mirror_engine.landing_zone.layout import ZONE
from mirror_engine.landing_zone.listing import Kind as EntryKind
from mirror_engine.landing_zone.text import count
from mirror_engine.publish import LandingZone
from mirror_engine.results import Count, Part, Result, Seconds
from mirror_engine.storage.stores import open_storage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from mirror_engine.publish import Table
    from mirror_engine.storage.store_url import Place, StoreUrl

    Row = dict[str, Any]

SCHEMA = "Shop"
PARTNER = "mirror-engine.Generate"
LINES = 3  # of an order
RECENT = 5  # most updates go to this part of the rows, the newest
FIRST = datetime(2026, 1, 1, tzinfo=UTC)

GIVEN = ("Ana", "Bao", "Chidi", "Dilnoza", "Emil", "Fatima", "Grace", "Haruto", "Inês", "José", "Kofi", "Łucja")
FAMILY = ("Nguyễn", "Okafor", "Silva", "Müller", "Tanaka", "Haddad", "O'Brien", "Kowalska", "Singh", "Østergaard")
CITIES = ("Linz", "São Paulo", "Bengaluru", "Redmond", "Kraków", "Lagos", "Osaka", "Zürich", "Montréal", "Đà Nẵng")
THINGS = ("Lamp", "Bulb", "Desk", "Chair", "Shelf", "Cable", "Clock", "Rug", "Vase", "Frame")
KINDS_OF = ("oak", "steel", "glass", "linen", "walnut", "ceramic")
STATES = ("open", "paid", "shipped", "returned")
CARRIERS = ("DHL", "UPS", "Post", None)


def _money(chance: random.Random, most: int) -> Decimal:
    return Decimal(chance.randrange(100, most * 100)).scaleb(-2)


def _moment(chance: random.Random, number: int) -> datetime:
    """A random time within the minute of a row, later for later rows."""
    return FIRST + timedelta(minutes=number, seconds=chance.randrange(60), microseconds=chance.randrange(10**6))


@dataclass(frozen=True)
class Kind:
    """A kind of table: its columns, and how the row of a number looks.

    Attributes:
        key: the key of a number, by column.
        others: the other columns, drawn by chance.
    """

    name: str
    schema: pa.Schema
    others: Callable[[random.Random, int], Row]
    key: Callable[[int], Row] = field(default=lambda number: {"id": number})


def _schema(key: Mapping[str, pa.DataType] | None = None, **others: pa.DataType) -> pa.Schema:
    return pa.schema({**(key or {"id": pa.int64()}), **others})


_TEXT, _NUMBER, _MONEY = pa.string(), pa.int64(), pa.decimal128(12, 2)
_TIME, _DAY = pa.timestamp("us", tz="UTC"), pa.date32()
KINDS = (
    Kind(
        "Customers",
        _schema(name=_TEXT, email=_TEXT, city=_TEXT, since=_DAY, is_active=pa.bool_()),
        lambda chance, number: {
            "name": f"{chance.choice(GIVEN)} {chance.choice(FAMILY)}",
            "email": f"customer{number}@shop.example" if chance.random() < 0.9 else None,  # noqa: PLR2004 - one in ten has none
            "city": chance.choice(CITIES),
            "since": date(2020, 1, 1) + timedelta(days=chance.randrange(2000)),
            "is_active": chance.random() < 0.8,  # noqa: PLR2004 - most are
        },
    ),
    Kind(
        "Products",
        _schema(name=_TEXT, price=_MONEY, weight=pa.float64()),
        lambda chance, _: {
            "name": f"{chance.choice(THINGS)}, {chance.choice(KINDS_OF)}",
            "price": _money(chance, 900),
            "weight": round(chance.uniform(0.1, 40), 2),
        },
    ),
    Kind(
        "Orders",
        _schema(customer_id=_NUMBER, ordered=_TIME, state=_TEXT, total=_MONEY, note=_TEXT),
        lambda chance, number: {
            "customer_id": chance.randrange(1, 1000),
            "ordered": _moment(chance, number),
            "state": chance.choice(STATES),
            "total": _money(chance, 5000),
            "note": " ".join(chance.choices(KINDS_OF, k=chance.randrange(1, 12))) if chance.random() < 0.3 else None,  # noqa: PLR2004 - few
        },
    ),
    Kind(
        "OrderLines",
        _schema({"order_id": _NUMBER, "line": pa.int32()}, product_id=_NUMBER, quantity=pa.int32(), price=_MONEY),
        lambda chance, _: {
            "product_id": chance.randrange(1, 1000),
            "quantity": chance.randrange(1, 9),
            "price": _money(chance, 900),
        },
        lambda number: {"order_id": (number - 1) // LINES + 1, "line": (number - 1) % LINES + 1},
    ),
    Kind(
        "Shipments",
        _schema(order_id=_NUMBER, carrier=_TEXT, sent=_TIME, label=pa.binary()),
        lambda chance, number: {
            "order_id": number,
            "carrier": chance.choice(CARRIERS),
            "sent": _moment(chance, number),
            "label": chance.randbytes(12),
        },
    ),
)


@dataclass(frozen=True)
class Load:
    """How much is generated.

    Attributes:
        tables: how many.
        rows: that a new table begins with.
        rate: changes a second, in all tables together.
        mix: weights of inserts, updates and deletes.
        seconds: how long changes land.
        every: seconds between two change files of a table.
        seed: of chance: the same one generates the same files.
    """

    tables: int = 10
    rows: int = 1_000
    rate: float = 50.0
    mix: tuple[float, float, float] = (7, 2, 1)
    seconds: float = 60.0
    every: float = 1.0
    seed: int = 1


class StoreFiles:
    """The landing zone of a ROOT in any store: with the engine's credentials and errors, by one conditional PUT a file.

    Raises `StorageUnavailable`.
    """

    def __init__(self, root: StoreUrl) -> None:
        self._root, self._storage, self._store = root, open_storage(root), root.object_store()

    def list(self, folder: str) -> Sequence[str]:
        return [entry.name for entry in self._storage.list(_at(folder)) or () if entry.kind is EntryKind.FILE]

    def read(self, path: str) -> bytes:
        with self._storage.open(_at(path)) as file:
            return file.read()

    def create(self, path: str, content: bytes) -> None:
        from mirror_engine.storage.object_store import ConditionalFile  # noqa: PLC0415 - an optional library

        if ConditionalFile(self._store, _at(path), self._root).write(content, None) is None:
            raise FileExistsError(path)

    def delete(self, path: str) -> None:
        self._storage.delete(_at(path))


def _at(path: str) -> str:
    """A path of the zone from ROOT."""
    return posixpath.normpath(posixpath.join(ZONE, path))


def zone_of(root: Place) -> LandingZone:
    """The landing zone of a ROOT on this machine or in a store; raises `SetupError` without the libraries of stores."""
    return LandingZone(root / ZONE if isinstance(root, Path) else StoreFiles(root))


class GeneratedTable(Part, frozen=True):
    """What was landed in one table.

    Attributes:
        rows: that it has once all files are applied
        loaded: rows of the initial load; 0 if the table was there
        files: change files that landed
    """

    table: str
    rows: Count
    loaded: Count
    inserts: Count
    updates: Count
    deletes: Count
    files: Count


class Generated(Result, frozen=True):
    """What was landed.

    Attributes:
        root: where
    """

    root: str
    tables: Sequence[GeneratedTable]
    duration_seconds: Seconds

    @property
    def files(self) -> int:
        return sum(table.files for table in self.tables)

    def text(self) -> display.Lines:
        loaded, inserts, updates, deletes = (
            sum(getattr(table, name) for table in self.tables) for name in ("loaded", "inserts", "updates", "deletes")
        )
        changes = f"{inserts:,} inserts, {updates:,} updates, {deletes:,} deletes"
        load = f"{count(loaded, 'row')} of initial load, " if loaded else ""
        places = f"in {count(self.files, 'file')} of {count(len(self.tables), 'table')}"
        yield f"Landed {load}{changes} {places} ({display.elapsed(self.duration_seconds)})."


class Source:
    """The rows of one table: new keys follow the newest one, the oldest rows go, recent rows change most often.

    So its state is two numbers, and a load that is stopped goes on from the newest change file.
    """

    def __init__(self, table: Table, kind: Kind, load: Load) -> None:
        self._table, self._kind, self._load = table, kind, load
        position = table.position or {"oldest": 1, "next": 1}
        self.oldest, self.next = int(position["oldest"]), int(position["next"])
        self._chance = random.Random(f"{load.seed} {table.name} {self.oldest} {self.next}")  # noqa: S311 - no secret
        self.loaded = self.files = 0
        self.done = dict.fromkeys((RowMarker.INSERT, RowMarker.UPDATE, RowMarker.DELETE), 0)
        if table.position is None:
            self._initial_load()

    @property
    def rows(self) -> int:
        """How many rows the table has now."""
        return self.next - self.oldest

    def land(self, changes: int) -> None:
        """Land so many changes as one file."""
        for is_delete, batch in groupby(map(self._change, range(changes)), key=lambda change: change[0]):
            rows = [row for _, row in batch]
            (self._table.delete if is_delete else self._table.upsert)(rows)
        self._flush()

    def report(self) -> GeneratedTable:
        """Return what was landed so far."""
        inserts, updates, deletes = self.done.values()
        return GeneratedTable(self._table.name, self.rows, self.loaded, inserts, updates, deletes, self.files)

    def _initial_load(self) -> None:
        self._table.insert(self._row(number) for number in range(1, self._load.rows + 1))
        self.next += self._load.rows
        self.loaded = self._load.rows
        self._flush()

    def _change(self, _: int) -> tuple[bool, Row]:
        """The next change: whether it is a delete, and its row."""
        (marker,) = self._chance.choices(list(self.done), self._load.mix)
        if self.rows <= 1:
            marker = RowMarker.INSERT
        self.done[marker] += 1
        if marker == RowMarker.DELETE:
            self.oldest += 1
            return True, self._kind.key(self.oldest - 1)
        if marker == RowMarker.INSERT:
            self.next += 1
            return False, self._row(self.next - 1)
        back = int(self._chance.expovariate(RECENT / self.rows))
        return False, self._row(max(self.next - 1 - back, self.oldest))

    def _row(self, number: int) -> Row:
        return {**self._kind.key(number), **self._kind.others(self._chance, number)}

    def _flush(self) -> None:
        self.files += len(self._table.flush({"oldest": self.oldest, "next": self.next}).files)


def generate(
    zone: LandingZone, root: str, load: Load, sleep: Callable[[float], object] = time.sleep
) -> Iterator[Generated]:
    """Land tables, then changes at a steady pace; yields what was landed so far after each round of files.

    Args:
        zone: where files land; tables that are there already get changes only.
        root: how the result names the place.
        load: how much.
        sleep: waits for seconds; a round that is late is landed at once, so that the number of changes holds.

    Raises:
        UsageError: a table of this name has change files of another publisher.
        Refused: it has other keys or columns.
        Conflict: another publisher lands files in a table.
    """
    sources = [Source(_table(zone, number), KINDS[number % len(KINDS)], load) for number in range(load.tables)]
    began = time.monotonic()
    total, rounds = round(load.rate * load.seconds), math.ceil(load.seconds / load.every)
    yield _report(sources, root, began)
    for each in range(rounds):
        first, end = total * each // rounds, total * (each + 1) // rounds
        sleep(max(began + min((each + 1) * load.every, load.seconds) - time.monotonic(), 0.0))
        for number, source in enumerate(sources):
            if share := len(range(first + (number - first) % load.tables, end, load.tables)):  # dealt in turn
                source.land(share)
        yield _report(sources, root, began)


def _table(zone: LandingZone, number: int) -> Table:
    kind = KINDS[number % len(KINDS)]
    life = number // len(KINDS) + 1
    name = f"{SCHEMA}.{kind.name}" if life == 1 else f"{SCHEMA}.{kind.name}{life}"
    table = zone.table(name, keys=list(kind.key(1)), schema=kind.schema)
    if table.position is None and (found := [each for each in zone.files.list(table.folder) if each[0] != "_"]):
        raise UsageError(
            f"{table.folder} has {count(len(found), 'change file')} of another publisher, or of an interrupted load",
            "choose another ROOT, or delete the folder",
        )
    return table


def _report(sources: Sequence[Source], root: str, began: float) -> Generated:
    return Generated(root, [source.report() for source in sources], round(time.monotonic() - began, 3))
