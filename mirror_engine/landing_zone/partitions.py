"""Hive folders: `k=v[/k=v]` as partition columns and values (LZ-3.7, LZ-3.8)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from mirror_engine.landing_zone.change import MARKER_COLUMN
from mirror_engine.landing_zone.schema import folded, same_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

_NULL = "__HIVE_DEFAULT_PARTITION__"  # Delta's engines write it for NULL, and some read it so
MAX_DEPTH = 16  # of folders below a table folder
_MAX_NAME = 255  # bytes of a folder's name, on every common file system

_PLAIN = re.compile(r"[\w.-]+")
_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}")


def parse_name(name: str) -> tuple[str, str | None] | None:
    """One folder's name as column and value; None if it is not a well-formed `k=v`.

    Both are percent-decoded as UTF-8; an empty value and `__HIVE_DEFAULT_PARTITION__`, however it is spelled, are NULL.
    A `%` without an escape is kept, as Spark does. The row marker is not a column of a table (LZ-4.15), nor of its
    folders.
    """
    column, equals, value = name.partition("=")
    if not (column and equals) or name[0] in "._":
        return None
    try:
        column, value = _decode(column), _decode(value)
    except UnicodeDecodeError:
        return None
    if not column or same_name(column, MARKER_COLUMN):
        return None
    return column, None if value in {"", _NULL} else value


def _decode(text: str) -> str:
    return unquote(text, errors="strict") if _ESCAPE.search(text) else text


def parse_folder(folder: str) -> tuple[tuple[str, str | None], ...] | None:
    """A Hive folder, from the table folder, as columns and values in order.

    Returns:
        `()` for the table folder itself; None if a name is not `k=v`, or repeats a column, ignoring case (LZ-5.7).
    """
    if not folder:
        return ()
    pairs = []
    for name in folder.split("/"):
        pair = parse_name(name)
        if pair is None:
            return None
        pairs.append(pair)
    return tuple(pairs) if len({folded(column) for column, _ in pairs}) == len(pairs) else None


def folder_name(column: str, value: str | None) -> str:
    """The name that Delta engines give a partition's folder; a column of plain letters is not encoded."""
    name = column if _PLAIN.fullmatch(column) else quote(column, safe="")
    return f"{name}={quote(value or _NULL, safe='')}"


def folder_fault(column: str, value: str | None) -> str:
    """Why no folder of a Delta table can hold this value (LZ-3.16); empty where one can."""
    if value and "\0" in value:
        return "it holds a NUL character"
    size = len(folder_name(column, value).encode())
    return f"its folder would have a name of {size} bytes, at most {_MAX_NAME} are possible" if size > _MAX_NAME else ""


def columns_of(folder: str) -> tuple[str, ...] | None:
    """The partition columns of a Hive folder, in order; None if it is malformed."""
    pairs = parse_folder(folder)
    return None if pairs is None else tuple(column for column, _ in pairs)


def leaves(folders: Collection[str]) -> tuple[str, ...]:
    """The folders, by path, that contain none of the others."""
    above = {folder.rpartition("/")[0] for folder in folders}
    for _ in range(MAX_DEPTH):
        above |= {folder.rpartition("/")[0] for folder in above}
    return tuple(sorted(folder for folder in folders if folder and folder not in above))


def agreed_columns(folders: Iterable[str], applied: Collection[str]) -> tuple[str, ...]:
    """The partition columns of a table: those of applied files, else of the first well-formed leaf.

    `folders`: leaves by path that contain a file that may be applied; `applied`: partitions that had one.
    """
    return next((columns for folder in sorted(applied) or folders if (columns := columns_of(folder))), ())
