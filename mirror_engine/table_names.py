"""Finds the table a person means: `Sales.Stores`, `sales.schema/stores`, `dbo.Items` or just `Items`."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from mirror_engine.errors import UnknownTable
from mirror_engine.landing_zone.names import SCHEMA_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Sequence


def find_table(wanted: str, folders: Sequence[str], default_schema: str) -> str:
    """The Delta folder meant by a name, ignoring case.

    Args:
        wanted: schema and table parted by `.` or `/`, or a table alone where that is clear.
        folders: Delta folders from `ROOT/Tables`.
        default_schema: tried first for a table alone.

    Raises:
        UnknownTable: none or several have that name.
    """
    text = wanted.casefold().strip("/")
    spellings = {folder: _spellings(folder, default_schema) for folder in folders}
    exact = [folder for folder, names in spellings.items() if text in names]
    alone = [folder for folder in folders if folder.rpartition("/")[2].casefold() == text]
    found = exact or alone
    if len(found) == 1:
        return found[0]
    if found:
        raise UnknownTable(f"{wanted}: may be {' or '.join(found)}", "Name the schema, too.")
    as_written = {folder.casefold(): folder for folder in folders}
    near = get_close_matches(text, as_written, n=1, cutoff=0.5)
    hint = (
        f"Did you mean {as_written[near[0]].replace('/', '.')}?"
        if near
        else f"There are: {', '.join(folders) or 'none yet'}."
    )
    raise UnknownTable(f"{wanted}: no such table", hint)


def _spellings(folder: str, default_schema: str) -> set[str]:
    schema, _, table = folder.casefold().rpartition("/")
    names = {folder.casefold(), f"{schema}.{table}", f"{schema}{SCHEMA_SUFFIX}/{table}"}
    return names | {table} if schema == default_schema.casefold() else names
