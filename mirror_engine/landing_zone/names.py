"""Table and schema folders, reserved names, and the Delta folder of a table."""

from __future__ import annotations

from collections import Counter
from difflib import get_close_matches
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from mirror_engine.errors import UnknownTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

MAX_FABRIC_TABLES = 1000  # LZ-7.10
SCHEMA_SUFFIX = ".schema"
METADATA_FILE = "_metadata.json"
PARTNER_EVENTS_FILE = "_partnerEvents.json"
READY_TO_DELETE_FOLDER = "_FilesReadyToDelete"
READY_TO_DELETE_INFO = "_FilesReadyToDeleteInfo.json"
PROCESSED_FOLDER = "_ProcessedFiles"
SCRATCH_FOLDER = "_scratchPad"
CLEANED_FOLDERS = frozenset({READY_TO_DELETE_FOLDER, PROCESSED_FOLDER})  # the engine's own, in a table folder
_NEAR_METADATA, _NEAR_SUFFIX = 0.8, 0.75  # likeness of a misspelled name, from 0 to 1
RESERVED_IN_TABLE = CLEANED_FOLDERS | {METADATA_FILE, SCRATCH_FOLDER}


class TableName(NamedTuple):
    """A table folder by name, as spelled (LZ-1.3, LZ-1.10); `schema` is `""` outside a schema folder."""

    schema: str
    table: str

    @property
    def folder(self) -> str:
        """The table folder, from the landing zone's top."""
        return f"{self.schema}{SCHEMA_SUFFIX}/{self.table}" if self.schema else self.table

    @property
    def normalized(self) -> str:
        """Fabric's `normalizedTableName`: `Sales.Stores`, or `Items` without a schema folder."""
        return f"{self.schema}.{self.table}" if self.schema else self.table

    @classmethod
    def from_folder(cls, folder: str) -> TableName:
        """Convert back from `folder`."""
        above, _, table = folder.rpartition("/")
        return cls(above.removesuffix(SCHEMA_SUFFIX), table)

    def delta_folder(self, default_schema: str) -> str:
        """The folder of its Delta table, from `ROOT/Tables`; `default_schema` is that of `conflicts` (LZ-1.4)."""
        schema = self.schema or default_schema
        return f"{schema}/{self.table}" if schema else self.table


def seems_metadata(name: str) -> bool:
    """Whether a file was most likely meant as `METADATA_FILE`, and is not spelled so."""
    return name != METADATA_FILE and bool(get_close_matches(name.casefold(), [METADATA_FILE], cutoff=_NEAR_METADATA))


def meant_schema(folder: str) -> str:
    """The name of the schema folder that a folder was most likely meant as: `shop.schema` for `shop.Schema`."""
    name, dot, suffix = folder.rpartition(".")
    is_near = name and get_close_matches(f"{dot}{suffix}".casefold(), [SCHEMA_SUFFIX], cutoff=_NEAR_SUFFIX)
    return f"{name if is_near else folder}{SCHEMA_SUFFIX}"


def shown_names(names: Iterable[TableName]) -> dict[TableName, str]:
    """Display names of tables: `Sales.Orders`, or the folder if two tables in the list have that name."""
    each = [*names]
    often = Counter(name.normalized for name in each)
    return {name: name.folder if often[name.normalized] > 1 else name.normalized for name in each}


def schema_of(folder: str) -> str | None:
    """The schema's name if `folder` is a schema folder (LZ-1.3: the suffix exactly), else None."""
    name = folder.removesuffix(SCHEMA_SUFFIX)
    return name if name and name != folder else None


def ownership_order(name: TableName) -> tuple[bool, str]:
    """Sort key of table ownership: schema folders first, then by name (LZ-1.5)."""
    return not name.schema, name.folder


def conflicts(names: Iterable[TableName], default_schema: str) -> Mapping[TableName, TableName]:
    """The owner of each folder that maps to a Delta folder that another one owns or contains, ignoring case (LZ-1.5).

    `default_schema`: that of tables outside a schema folder; `""` for none.
    """
    return _conflicts(frozenset(names), default_schema)


@lru_cache(maxsize=4)
def _conflicts(names: frozenset[TableName], default_schema: str) -> Mapping[TableName, TableName]:
    owners: dict[str, TableName] = {}
    inside: dict[str, TableName] = {}  # without a default schema, `S` would hold the tables of `S.schema`
    conflicting: dict[TableName, TableName] = {}
    for name in sorted(names, key=ownership_order):
        place = name.delta_folder(default_schema).casefold()
        owner = owners.get(place) or inside.get(place)
        if owner:
            conflicting[name] = owner
        else:
            owners[place] = name
            inside.setdefault(place.rpartition("/")[0], name)
    return conflicting


def spelled(folder: str, default_schema: str) -> str:
    """A table as messages name it, by its Delta folder: `Sales.Orders`; `Items` in the default schema."""
    return folder.removeprefix(f"{default_schema}/").replace("/", ".")


def find_table(name: str, folders: Sequence[str], default_schema: str) -> str:
    """The Delta folder of a table by name, ignoring case; raises `UnknownTable` where none or several have that name.

    `name` is schema and table separated by `.` or `/`, or a table alone: of the default schema, else if unambiguous.
    """
    text = name.casefold().strip("/")
    spellings = {folder: _spellings(folder, default_schema) for folder in folders}
    exact = [folder for folder, names in spellings.items() if text in names]
    alone = [folder for folder in folders if folder.rpartition("/")[2].casefold() == text]
    matches = exact or alone
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise UnknownTable(f"{name}: may be {' or '.join(matches)}", f"Give one of these: {', '.join(matches)}")
    by_name = {folder.casefold(): folder for folder in folders}
    near = get_close_matches(text.replace(".", "/"), by_name, n=1, cutoff=0.5)
    shown = {folder: spelled(folder, default_schema) for folder in folders}
    meant = f"did you mean {shown[by_name[near[0]]]}? " if near else ""
    available = ", ".join(shown.values()) or "none yet: apply what has landed with mirror-engine sync"
    raise UnknownTable(f'unknown table "{name}"', f"{meant}Available: {available}")


def _spellings(folder: str, default_schema: str) -> set[str]:
    schema, _, table = folder.casefold().rpartition("/")
    names = {folder.casefold(), f"{schema}.{table}", f"{schema}{SCHEMA_SUFFIX}/{table}"}
    return names | {table} if schema == default_schema.casefold() else names
