"""The Delta tables of a mirrored database, as OneLake's table APIs show them."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mirror_engine.errors import StorageUnavailable, TableDamaged
from mirror_engine.landing_zone.layout import TABLES
from mirror_engine.onelake.errors import TableApiError, TableErrorCode
from mirror_engine.tables.log.snapshot import open_log
from mirror_engine.tables.log.tables_folder import is_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from mirror_engine.onelake.items import Item
    from mirror_engine.tables.log.snapshot import DeltaLog
    from mirror_engine.tables.log.table_file import DataFile

DEFAULT_SCHEMA = "dbo"  # of tables that are in no schema's folder


@dataclass(frozen=True)
class ItemTables:
    """The schemas and tables of one item. Links are not followed: a table is what lies in the item's own folder."""

    item: Item
    store: Path  # the folder of all workspaces

    @property
    def _root(self) -> Path:
        return self.store / self.item.path / TABLES

    def schemas(self) -> dict[str, int]:
        """When each schema's folder was changed, in milliseconds since 1970; by name."""
        found: dict[str, int] = {}
        for entry in _folders(self._root):
            schema = DEFAULT_SCHEMA if is_table(self._root / entry.name) else entry.name
            with suppress(FileNotFoundError):  # dropped in between
                found[schema] = max(found.get(schema, 0), entry.stat().st_mtime_ns // 1_000_000)
        return dict(sorted(found.items()))

    def check_schema(self, schema: str) -> None:
        """SchemaNotFound."""
        if schema not in self.schemas():
            raise TableApiError(TableErrorCode.SchemaNotFound)

    def names(self, schema: str) -> Sequence[str]:
        """The names of a schema's tables; SchemaNotFound."""
        self.check_schema(schema)
        above = [self._root / schema, *([self._root] if schema == DEFAULT_SCHEMA else [])]
        return sorted({entry.name for folder in above for entry in _folders(folder) if is_table(folder / entry.name)})

    def log(self, schema: str, table: str) -> DeltaLog:
        """A table at its newest version; SchemaNotFound, TableNotFound."""
        if table not in self.names(schema):
            raise TableApiError(TableErrorCode.TableNotFound)
        folder = self._root / schema / table
        folder = folder if is_table(folder) else self._root / table
        try:
            log = open_log(folder)
        except (StorageUnavailable, TableDamaged):
            if is_table(folder):
                raise
            log = None
        if log is None:  # dropped in between
            raise TableApiError(TableErrorCode.TableNotFound)
        return log

    def files(self, log: DeltaLog) -> Sequence[DataFile]:
        """The data files of a version. TableNotFound if one is outside of the table's folder, or behind a link."""
        files, root = log.data_files(), self._root.resolve()
        message = "A data file of the table is outside of its folder."
        try:
            places = [place for file in files for place in file.places]
        except TableDamaged:
            raise TableApiError(TableErrorCode.TableNotFound, message) from None
        if not all(os.path.realpath(str(place)).startswith(f"{root}{os.sep}") for place in places):
            raise TableApiError(TableErrorCode.TableNotFound, message)
        return files


def _folders(folder: Path) -> Iterator[os.DirEntry[str]]:
    """The folders in one that are no links; none if it is absent, or a link itself."""
    if folder.is_symlink() or not folder.is_dir():
        return
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False) and not entry.name.startswith((".", "_")):
                yield entry
