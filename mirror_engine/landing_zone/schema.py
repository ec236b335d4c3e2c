"""Declared and observed column types, the union of schemas, and the error Fabric gives (protocol chapter 5)."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from mirror_engine.landing_zone.change import RowMarker
from mirror_engine.landing_zone.diagnostics import Diagnostic, diagnose, without_errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

VOID = "void"  # the observed type of an all-NULL Arrow column (LZ-5.9)
_VOID_TYPE = "integer"
# Delta's types in the words of Parquet's writers; all others are called alike
PARQUET_TYPES = {
    "byte": "int8",
    "short": "int16",
    "integer": "int32",
    "long": "int64",
    "timestamp_ntz": "timestamp without time zone",
}
_TIMES = frozenset({"timestamp", "timestamp_ntz"})  # one type but for the zone (LZ-5.10)
_MAX_NAMED = 20
_NONE = "none"
# what Spark, Delta's MERGE and deltalake call columns of their own: a MERGE fails, or writes their values as data
_RESERVED = re.compile(
    "_metadata|_tmp_metadata_row_index|deletionvectorid|_(source|target)_row_present_|_row_dropped_"
    "|__delta_(rs|internal)_.*",
    re.DOTALL,
)
_OF_THE_FEED = frozenset({"__is_cdc", "_change_type", "_commit_version", "_commit_timestamp"})
_UNREADABLE = re.compile("[\x00\ud800-\udfff]")


@dataclass(frozen=True)
class Column:
    """One data column."""

    name: str  # as first spelled
    # In Delta's words: `string`, `binary`, `byte`, `short`, `integer`, `long`, `float`, `double`, `boolean`, `date`,
    # `timestamp`, `timestamp_ntz`, `decimal(p,s)`
    type: str
    nullable: bool = True


@lru_cache(maxsize=10_000)
def folded(name: str) -> str:
    """A column name as it is compared, ignoring case letter by letter as Spark does (LZ-5.7): `ß` is not `ss`."""
    if name.isascii():
        return name.lower()
    return "".join((upper if len(upper := letter.upper()) == 1 else letter).lower()[0] for letter in name)


def same_name(one: str, other: str) -> bool:
    """Whether two spellings name one column (LZ-5.7)."""
    return folded(one) == folded(other)


@dataclass(frozen=True)
class TableSchema:
    """A mirrored table's columns in order, partition columns last (LZ-3.7)."""

    columns: tuple[Column, ...]
    partition_columns: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All column names in order."""
        return tuple(column.name for column in self.columns)

    @property
    def is_bare(self) -> bool:
        """Whether all columns come from Hive folders: Delta allows no such table (LZ-5.13)."""
        return len(self.columns) == len(self.partition_columns)

    @cached_property
    def digest(self) -> str:
        """A hash over the columns, in any order: names, types, whether NULL is allowed, which are partition columns."""
        columns = sorted((column.name, column.type, column.nullable) for column in self.columns)
        text = json.dumps([columns, self.partition_columns])
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    def find(self, name: str) -> Column | None:
        """The column of that name, ignoring case (LZ-5.7)."""
        return self._by_folded_name.get(folded(name))

    @cached_property
    def _by_folded_name(self) -> Mapping[str, Column]:
        return {folded(column.name): column for column in reversed(self.columns)}


@dataclass(frozen=True)
class Incoming:
    """The schema facts of one change file."""

    path: str  # for messages, from the landing zone's top
    columns: tuple[Column, ...]  # that the file has, observed types, the marker and partition columns not among them
    declared: tuple[Column, ...] = ()  # columns the table has whether or not the file does (LZ-6.5); empty for Parquet
    key_columns: tuple[str, ...] = ()  # as `_metadata.json` spells them
    partition_columns: tuple[str, ...] = ()  # named by the file's Hive folder (LZ-3.7)
    table_is_empty: bool = True  # whether the table surely holds no row (LZ-5.5)
    has_rows: bool = True  # whether the file may hold a row
    untyped_nulls: bool = False  # whether an all-NULL column makes no claim (LZ-5.9, option `all_null_columns`)
    # Whether the table has or had a change data feed, which has columns of its own (LZ-5.12)
    feeds_changes: bool = False
    strict: bool = False

    def say(self, code: str, row: int | None = None, **details: object) -> Diagnostic:
        """A diagnostic about the file, or one of its rows."""
        return diagnose(code, self.path, row=row, strict=self.strict, **details)


@dataclass(frozen=True)
class Merged:
    """The table's schema after a file, and how the file fits into it."""

    schema: TableSchema  # the union of all columns ever seen, first-seen order (LZ-5.3)
    spelling: Mapping[str, str]  # the file's column names to the table's; a column that makes no claim is not in it
    absent: tuple[Column, ...] = ()  # the table's columns that the file lacks, in order
    diagnostics: tuple[Diagnostic, ...] = ()


def merge(current: TableSchema | None, incoming: Incoming) -> Merged:
    """Fit a file's columns into a table's schema (LZ-5.2 … LZ-5.10, LZ-2.11).

    Raises:
        RejectedFile: ME018, ME044, ME046 (a new not-null column), ME053, ME084; under `strict` ME045, ME047, ME052.
    """
    _refuse_twins(incoming)
    said: list[Diagnostic] = []
    columns = _claims(current, incoming, said)
    before = current or TableSchema((), incoming.partition_columns)
    folder = [Column(name, "string") for name in incoming.partition_columns]
    parts = {folded(name) for name in before.partition_columns}
    declared = [column for column in incoming.declared if folded(column.name) not in parts]
    schema = _union(before, [*declared, *columns, *folder])
    faults = {name: _fault_of(name, feeds_changes=incoming.feeds_changes) for name in schema.names}
    without_errors(incoming.say("ME084", column=name, reason=why) for name, why in faults.items() if why)
    respelled = {key: known.name for key in _found_keys(incoming, said) if (known := schema.find(key))}
    for column in (*columns, *folder):
        known = before.find(column.name)
        if known:
            respelled[column.name] = known.name
            said += _differences(known, column, incoming)
        elif not column.nullable and not incoming.table_is_empty:  # rows lack it (LZ-5.5)
            help = "make it nullable, or delete the folder and reload the table"
            said.append(incoming.say("ME046", column=column.name, fault="is new, and the table has rows", help=help))
    if respelled := {name: spelled for name, spelled in respelled.items() if name != spelled}:
        said.append(incoming.say("ME052", **in_other_case(respelled)))
    present = {folded(name) for name in (*(column.name for column in incoming.columns), *incoming.partition_columns)}
    absent = tuple(column for column in schema.columns if folded(column.name) not in present)
    if current is not None:
        new = [column.name for column in schema.columns if current.find(column.name) is None]
        missing = [column.name for column in absent if column.name not in schema.partition_columns]
        if missing:  # once per file (LZ-5.3); a column that only came is nothing to look into
            is_foreign = bool(new) and not any(current.find(column.name) for column in incoming.columns)
            code = "ME096" if is_foreign else "ME054"
            said.append(incoming.say(code, new=listed(new) or _NONE, missing=listed(missing)))
    spelling = {column.name: known.name for column in incoming.columns if (known := schema.find(column.name))}
    return Merged(schema, spelling, absent, without_errors(said))


def _refuse_twins(incoming: Incoming) -> None:
    seen: dict[str, str] = {}
    for column in incoming.columns:
        name = folded(column.name)
        if name in seen:
            without_errors([incoming.say("ME053", **same_named(seen[name], column.name))])
        seen[name] = column.name


def _fault_of(name: str, *, feeds_changes: bool) -> str:
    """Why no column of a Delta table can have this name (LZ-5.12); empty where one can."""
    if not name:
        return "it is empty"
    if _UNREADABLE.search(name):
        return "readers cannot open a table with it"
    if feeds_changes and folded(name) in _OF_THE_FEED:
        return "the table's change data feed has a column of that name"
    return "Spark and Delta reserve it" if _RESERVED.fullmatch(folded(name)) else ""


def _claims(current: TableSchema | None, incoming: Incoming, said: list[Diagnostic]) -> list[Column]:
    """The file's columns with a type each: an all-NULL one is an integer, or makes no claim (LZ-5.9).

    Rows need their key, and at least one column: where they would have none, an all-NULL column is an integer.
    """
    keys = {folded(name) for name in incoming.key_columns}
    is_bare = (current is None or current.is_bare) and not incoming.declared
    is_bare &= all(column.type == VOID and folded(column.name) not in keys for column in incoming.columns)
    claims = []
    for column in incoming.columns:
        is_known = current is not None and current.find(column.name) is not None
        is_needed = incoming.has_rows and not is_known and (is_bare or folded(column.name) in keys)
        if column.type != VOID:
            claims.append(column)
        elif is_needed or not incoming.untyped_nulls:
            said.append(incoming.say("ME045", column=column.name))
            claims.append(replace(column, type=_VOID_TYPE))
    return claims


def _union(before: TableSchema, columns: Iterable[Column]) -> TableSchema:
    """New columns at the end, but ahead of the partition columns (LZ-5.3, LZ-3.7)."""
    union: dict[str, Column] = {}
    for column in (*before.columns, *columns):
        union.setdefault(folded(column.name), column)
    last = [union.pop(folded(name)) for name in before.partition_columns]
    return TableSchema((*union.values(), *last), before.partition_columns)


def _found_keys(incoming: Incoming, said: list[Diagnostic]) -> list[str]:
    """The key columns; each must be in the file or its folder, ignoring case (LZ-2.11). `said`: what comes before."""
    sent = (*(column.name for column in incoming.columns), *incoming.partition_columns)
    present = {folded(name) for name in sent}
    keys = [*dict.fromkeys(incoming.key_columns)]
    for key in keys:
        if folded(key) not in present:
            near = get_close_matches(key, sent, n=1)
            declared = {folded(column.name) for column in incoming.declared}
            hint = "declare it in `SchemaDefinition`, and " if declared and folded(key) not in declared else ""
            hint = f"did you mean `{near[0]}`? If not, " if near else hint
            without_errors([*said, incoming.say("ME018", column=key, hint=hint)])
    return keys


def _differences(known: Column, column: Column, incoming: Incoming) -> list[Diagnostic]:
    """Differences between a column of the table and the file's: E5 for another type (LZ-5.2, LZ-5.6, LZ-5.7)."""
    said = []
    if column.type != known.type and not {column.type, known.type} <= _TIMES:
        details = type_mismatch(column, known)
        said.append(incoming.say("ME044", column=known.name, **details, hint=_way_out(known, incoming)))
    elif known.nullable and not column.nullable:
        said.append(incoming.say("ME047", column=known.name))
    return said


def _way_out(known: Column, incoming: Incoming) -> str:
    """The help for a type mismatch that a column of NULLs causes (LZ-5.9)."""
    if incoming.untyped_nulls:
        return ""
    if any(column.type == VOID and folded(column.name) == folded(known.name) for column in incoming.columns):
        return "use `--all-null-columns untyped`, or "
    if known.type == _VOID_TYPE:
        return "if it held only NULL so far (ME045), rebuild the table with `--all-null-columns untyped`; otherwise "
    return ""


def same_named(first: str, second: str) -> dict[str, Any]:
    """Details of ME053: two columns of one name, but for case."""
    how = f"columns `{first}` and `{second}` of one file differ only in case"
    return {"column": first, "reason": how if first != second else f"two columns of the file have the name `{first}`"}


def in_other_case(names: Mapping[str, str]) -> dict[str, Any]:
    """Details of ME052: names as they are spelled, each with the spelling that counts."""
    pairs = [f"`{name}` and `{known}`" for name, known in names.items()]
    return {"column": next(iter(names)), "names": listed(pairs)}


def type_mismatch(column: Column, known: Column, words: Mapping[str, str] = PARQUET_TYPES) -> dict[str, Any]:
    """Details of ME044: both types in the publisher's `words`, and the part of E5 about the column (LZ-5.2).

    E5 has types in Delta's names, and the flags as they are.
    """
    reason = (
        "Schema merge failure due to potential invalid input. Cause: Type mismatch for column "
        f"'{known.name}'. Incoming type: '{column.type}' (Nullable: {column.nullable}), "
        f"existing type: '{known.type}' (Nullable: {known.nullable})."
    )
    found, expected = (words.get(each.type, each.type) for each in (column, known))
    if found == expected:  # only their flags differ
        found, expected = (
            f"{name} ({'nullable' if each.nullable else 'NOT NULL'})"
            for name, each in ((found, column), (expected, known))
        )
    return {"found": found, "expected": expected, "reason": reason}


def listed(names: Sequence[str]) -> str:
    """Names for a message, the first twenty."""
    more = len(names) - _MAX_NAMED
    return ", ".join(names[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")


def check_absent_columns(
    merged: Merged, incoming: Incoming, markers: Mapping[int, int], *, deletes_count: bool = False
) -> None:
    """Check a file's row counts, by effective marker, against the columns that it lacks.

    `deletes_count`: whether every file must have its not-null columns, as in text (LZ-6.5, LZ-6.8), be it a lone
    header; in Parquet only the keys of delete rows are read (LZ-4.6).

    Raises:
        RejectedFile: ME046, a not-null column is missing (LZ-5.5, LZ-6.5).
    """
    asking = deletes_count or any(count for marker, count in markers.items() if marker != RowMarker.DELETE)
    for column in merged.absent:
        if asking and not column.nullable:
            help = "write it in every file; a column that may be absent has to be nullable from the first file on"
            fault = "is missing from the file"
            without_errors([*merged.diagnostics, incoming.say("ME046", column=column.name, fault=fault, help=help)])


def is_of_absent_columns(found: Diagnostic) -> bool:
    """Whether a diagnostic reports only missing columns, which ME041 reports too (LZ-5.3)."""
    return found.code == "ME054" and dict(found.details)["new"] == _NONE


def lacking_updates(merged: Merged, incoming: Incoming, markers: Mapping[int, int]) -> tuple[Diagnostic, ...]:
    """ME041 where updates or upserts lack columns, which become NULL (LZ-4.5)."""
    names = [column.name for column in merged.absent if column.name not in merged.schema.partition_columns]
    if not names or not any(markers.get(marker) for marker in (RowMarker.UPDATE, RowMarker.UPSERT)):
        return ()
    return (incoming.say("ME041", columns=listed(names)),)


def mixed_times(
    naive: frozenset[str], utc: frozenset[str], known_naive: frozenset[str], known_utc: frozenset[str]
) -> tuple[str, ...]:
    """Columns whose times came with a zone and now come without, or the reverse (LZ-5.10, ME051)."""
    return tuple(sorted((naive & known_utc) | (utc & known_naive)))
