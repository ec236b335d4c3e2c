"""An independent reading of protocol.md: a landing zone, file by file and row by row, in plain Python.

It shares nothing with the engine's own reading, replay or metadata: what both say is then likely to be right. It knows
the part of the protocol that generated zones use (see `zones.py`), and refuses rather than guesses beyond it.
"""

from __future__ import annotations

import json
import math
import re
import urllib.parse
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from oracle_files import UNTYPED, Column, File, Refused, Row, parquet_file, text_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass
class Life:
    """One generation of a table folder (LZ-7.3)."""

    birth: int
    columns: list[Column] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    applied: set[str] = field(default_factory=set)
    highest: dict[str, int] = field(default_factory=dict)
    keys: list[str] | None = None
    exists: bool = False
    armed: bool = False
    rejected: tuple[str, int] | None = None
    refused: bool = False

    def column(self, name: str) -> Column | None:
        """A column in any case (LZ-5.7)."""
        return next((each for each in self.columns if each.name.casefold() == name.casefold()), None)


class Oracle:
    """What a mirror of one landing zone holds; `once` after each thing that the publisher did.

    `untyped`: all-NULL columns make no claim (LZ-5.9).
    """

    def __init__(self, zone: Path, *, untyped: bool = False) -> None:
        self.zone = zone
        self.untyped = untyped
        self.lives: dict[str, Life] = {}

    def once(self, births: dict[str, int]) -> None:
        """Read on as far as it goes; `births` has the creation of each folder and file."""
        tables = set(self._table_folders())
        for gone in self.lives.keys() - tables:
            del self.lives[gone]
        for table in sorted(tables):
            if table not in self.lives or self.lives[table].birth != births[table]:
                self.lives[table] = Life(births[table])
            self._read_on(table, self.lives[table], births)

    def lose_ledger(self) -> None:
        """All state outside the tables is lost (LZ-4.18)."""
        for life in self.lives.values():
            life.rejected = None
            life.armed = life.exists
            if not life.exists:  # its files are still there
                life.applied.clear()
                life.highest.clear()

    def tables(self) -> dict[str, Life]:
        """The mirrored tables by Delta folder."""
        found = {}
        for folder, life in self.lives.items():
            schema, slash, table = folder.partition(".schema/")
            if life.exists:
                found[f"{schema}/{table}" if slash else f"dbo/{folder}"] = life
        return found

    @property
    def refuses(self) -> bool:
        """Whether a table is halted or blocked."""
        return any(life.refused for life in self.lives.values())

    def _table_folders(self) -> Iterator[str]:
        for top in sorted(path for path in self.zone.iterdir() if path.is_dir() and path.name[0] not in "_."):
            if top.name.endswith(".schema"):
                yield from (f"{top.name}/{path.name}" for path in top.iterdir() if path.is_dir())
            else:
                yield top.name

    def _files(self, folder: str) -> list[Path]:
        files = [path for path in (self.zone / folder).rglob("*") if path.is_file()]
        return [path for path in files if not any(p[0] in "_." for p in path.relative_to(self.zone).parts)]

    def _read_on(self, table: str, life: Life, births: dict[str, int]) -> None:
        life.refused = True
        try:
            metadata = self._metadata(table, life)
        except FileNotFoundError:
            life.refused = life.armed
            return
        except Refused:
            return
        life.armed = True
        if life.rejected and (self.zone / life.rejected[0]).exists() and births[life.rejected[0]] == life.rejected[1]:
            return
        life.rejected = None
        ready, is_blocked = self._ready(table, life, metadata)
        for path in ready:
            whole = f"{table}/{path}"
            try:
                self._apply(life, self._read(whole, metadata, path), metadata)
            except Refused:
                life.rejected = (whole, births[whole])
                return
            life.applied.add(path)
            folder, _, name = path.rpartition("/")
            if re.fullmatch(r"[0-9]{20}\..*", name):
                life.highest[folder] = max(life.highest.get(folder, 0), int(name[:20]))
        life.refused = is_blocked

    def _metadata(self, table: str, life: Life) -> dict[str, Any]:
        content = (self.zone / table / "_metadata.json").read_bytes()
        try:
            value = json.loads(content)
        except ValueError:
            raise Refused from None
        if not isinstance(value, dict):
            raise Refused
        keys = value["keyColumns"]
        if life.keys and {key.casefold() for key in life.keys} != {key.casefold() for key in keys}:
            raise Refused
        return value

    def _ready(self, table: str, life: Life, metadata: dict[str, Any]) -> tuple[list[str], bool]:
        """The unapplied files in order up to the first gap, and whether later ones wait for one (chapter 3)."""
        extension = "csv" if metadata.get("FileFormat") == "CSV" else "parquet"
        found = []
        for path in self._files(table):
            name = path.relative_to(self.zone / table).as_posix()
            in_leaf = bool(re.fullmatch(r"day=[^/]*/[^/]*", name))
            is_in_place = in_leaf if metadata.get("isPartitionEnabled") else "/" not in name
            if path.suffix == f".{extension}" and name not in life.applied and is_in_place:
                found.append(name)
        if metadata.get("fileDetectionStrategy") == "LastUpdateTimeFileDetection":
            return sorted(found, key=lambda name: ((self.zone / table / name).stat().st_mtime_ns, name)), False
        ready, is_blocked = [], False
        for folder in sorted({name.rpartition("/")[0] for name in found}):
            there = {n.rpartition("/")[2] for n in found if n.rpartition("/")[0] == folder}
            number = life.highest.get(folder, 0) + 1
            while f"{number:020d}.{extension}" in there:
                name = f"{number:020d}.{extension}"
                ready.append(f"{folder}/{name}" if folder else name)
                number += 1
            is_blocked |= any(re.fullmatch(r"[0-9]{20}\..*", n) and int(n[:20]) > number for n in there)
        return ready, is_blocked

    def _read(self, path: str, metadata: dict[str, Any], name: str) -> File:
        return self.parsed((self.zone / path).read_bytes(), metadata, name)

    def parsed(self, content: bytes, metadata: dict[str, Any], name: str) -> File:
        """A file's rows, by its name from the table folder."""
        if not content:
            raise Refused
        read = text_file(content, metadata) if metadata.get("FileFormat") == "CSV" else parquet_file(content)
        spelled = [each.name.casefold() for each in read.columns]
        if len(set(spelled)) < len(spelled):
            raise Refused
        if metadata.get("isPartitionEnabled"):
            _add_partition(read, urllib.parse.unquote(name.partition("/")[0].partition("=")[2]))
        return read

    def _claims(self, life: Life, file: File, keys: list[str]) -> Iterator[Column]:
        """The file's columns with the types they are held to; those without one, and without a claim, left out."""
        typed = [*life.columns, *(column for column in file.columns if column.type != UNTYPED)]
        names = {column.name.casefold() for column in file.columns}
        is_bare = not (set(keys) & names - {"day"}) and all(column.name == "day" for column in typed)
        for column in file.columns:
            if column.type != UNTYPED:
                yield column
            elif not self.untyped:
                yield replace(column, type="integer")
            elif known := life.column(column.name):
                yield replace(column, type=known.type)
            elif file.rows and (is_bare or column.name.casefold() in keys):
                yield replace(column, type="integer")

    def _apply(self, life: Life, file: File, metadata: dict[str, Any]) -> None:
        keys = [each.casefold() for each in metadata["keyColumns"]]
        if not set(keys) <= {each.name.casefold() for each in file.columns}:
            raise Refused
        columns = _merged(life, replace(file, columns=[*self._claims(life, file, keys)]))
        default = 4 if metadata.get("isUpsertDefaultRowMarker") else 0
        markers = file.markers if file.markers is not None else [default] * len(file.rows)
        if any(marker not in (0, 1, 2, 4) for marker in markers) or (not keys and any(markers)):
            raise Refused
        for row, marker in zip(file.rows, markers, strict=True):
            for column in columns:
                is_read = marker != 2 or file.is_text or column.name.casefold() in keys
                if not column.nullable and is_read and row.get(column.name.casefold()) is None:
                    raise Refused
        rows = [{column.name.casefold(): None for column in columns} | row for row in life.rows]
        for row, marker in zip(file.rows, markers, strict=True):
            rows = change(rows, {column.name.casefold(): None for column in columns} | row, marker, keys)
        life.columns, life.rows = columns, rows
        life.exists = any(column.name != "day" for column in columns)  # a Hive folder's alone makes no table
        life.keys = metadata["keyColumns"] if life.exists else None


def change(rows: list[Row], row: Row, marker: int, keys: list[str]) -> list[Row]:
    """The table after one row (LZ-4.1, LZ-4.8)."""

    def has_key(other: Row) -> bool:
        pairs = [(comparable(row[key]), comparable(other[key])) for key in keys]
        return bool(keys) and all(mine is not None and mine == theirs for mine, theirs in pairs)

    if marker == 0:
        return [*rows, row]
    if marker == 2:
        return [other for other in rows if not has_key(other)]
    if not any(has_key(other) for other in rows):
        return [*rows, row]
    return [row if has_key(other) else other for other in rows]


def comparable(value: Any) -> Any:
    """A value as keys and results are compared (LZ-4.9)."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).astimezone(UTC)
    return value


def _merged(life: Life, file: File) -> list[Column]:
    """The table's columns after a file (LZ-5.2, LZ-5.3, LZ-5.5); what the file calls a column stays its name."""
    columns = list(life.columns)
    for column in file.columns:
        known = life.column(column.name)
        if known and known.type != column.type:
            raise Refused
        if not known:
            if not column.nullable and life.rows:
                raise Refused
            columns.append(column)
    sent = {column.name.casefold() for column in file.columns}
    has_values = any(marker != 2 for marker in file.markers) if file.markers else bool(file.rows)
    if has_values and any(not column.nullable and column.name.casefold() not in sent for column in life.columns):
        raise Refused
    return columns


def _add_partition(file: File, value: str) -> None:
    day = None if value in {"", "__HIVE_DEFAULT_PARTITION__"} else value
    others = [column for column in file.columns if column.name.casefold() != "day"]
    if len(others) < len(file.columns) and any(row["day"] != day for row in file.rows):
        raise Refused
    file.columns = [*others, Column("day", "string", True)]  # whatever the file declares
    for row in file.rows:
        row["day"] = day


def canonical(rows: list[Row], columns: list[Column]) -> list[str]:
    """Rows as sorted text, for comparing tables as multisets."""
    return sorted(repr([_cell(row.get(column.name.casefold())) for column in columns]) for row in rows)


def _cell(value: Any) -> Any:
    value = comparable(value)
    return str(value) if isinstance(value, Decimal) else value
