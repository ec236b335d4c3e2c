"""Hive folders: `k=v[/k=v]` read as partition columns and values, and which of them count (LZ-3.7, LZ-3.8)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

from mirror_engine.landing_zone.change import MARKER_COLUMN
from mirror_engine.landing_zone.listing import partition_of
from mirror_engine.landing_zone.schema import folded, same_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from mirror_engine.landing_zone.detection import Draft
    from mirror_engine.landing_zone.listing import LandedFile
    from mirror_engine.landing_zone.metadata import Metadata
    from mirror_engine.landing_zone.progress import Progress

NULL_VALUE = "__HIVE_DEFAULT_PARTITION__"
DEEPEST = 16  # levels below a table folder that are searched

_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}")


def parse_level(name: str) -> tuple[str, str | None] | None:
    """One folder's name as column and value; None where it is no well-formed `k=v`.

    Both are percent-decoded as UTF-8; `__HIVE_DEFAULT_PARTITION__` is NULL. A `%` that begins no escape stands
    for itself, as Spark has it. The row marker is no column of a table (LZ-4.15), nor of its folders.
    """
    column, equals, value = name.partition("=")
    if not (column and equals and value) or name[0] in "._":
        return None
    try:
        decoded = _decode(column), None if value == NULL_VALUE else _decode(value)
    except UnicodeDecodeError:
        return None
    return decoded if decoded[0] and not same_name(decoded[0], MARKER_COLUMN) else None


def _decode(text: str) -> str:
    return unquote(text, errors="strict") if _ESCAPE.search(text) else text


def parse_folder(folder: str) -> tuple[tuple[str, str | None], ...] | None:
    """A Hive folder, from the table folder, as columns and values in order.

    Returns:
        `()` for the table folder itself; None where a level is no `k=v`, or names a column a second time, ignoring
        case (LZ-5.7).
    """
    if not folder:
        return ()
    levels = []
    for name in folder.split("/"):
        level = parse_level(name)
        if level is None:
            return None
        levels.append(level)
    return tuple(levels) if len({folded(column) for column, _ in levels}) == len(levels) else None


def columns_of(folder: str) -> tuple[str, ...] | None:
    """The partition columns a Hive folder names, in order; None where it is malformed."""
    levels = parse_folder(folder)
    return None if levels is None else tuple(column for column, _ in levels)


def leaves(folders: Collection[str]) -> tuple[str, ...]:
    """Those of the folders, by path, that have none of the others below them."""
    above = {folder.rpartition("/")[0] for folder in folders}
    for _ in range(DEEPEST):
        above |= {folder.rpartition("/")[0] for folder in above}
    return tuple(sorted(folder for folder in folders if folder and folder not in above))


def agreed_columns(folders: Iterable[str], progress: Progress | None) -> tuple[str, ...]:
    """The partition columns a table has or will have: of what is applied, else of the first well-formed leaf.

    Args:
        folders: leaves by path, those without a file that may be applied left out.
        progress: how far the table is.
    """
    if progress and (progress.applied or progress.watermarks):
        applied = {*progress.watermarks, *map(partition_of, progress.applied)}
        return next((columns for folder in sorted(applied) if (columns := columns_of(folder))), ())
    return next((columns for folder in folders if (columns := columns_of(folder))), ())


def files_by_partition(
    pending: Iterable[LandedFile], metadata: Metadata, progress: Progress | None, found: Draft
) -> tuple[dict[str, list[LandedFile]], tuple[str, ...]]:
    """The files by the partition they count for, by path, and the partition columns (LZ-3.7, LZ-3.8)."""
    folders: dict[str, list[LandedFile]] = {}
    for file in pending:
        folders.setdefault(file.partition, []).append(file)
    if not metadata.partitioned:
        top = folders.pop("", [])
        for folder in sorted(folders):
            found.ignored += folders[folder]
            found.say("ME030", folder)
        return {"": top}, ()
    ends = leaves(folders)
    columns = agreed_columns(ends, progress)
    counting = {leaf: folders[leaf] for leaf in ends if columns and _names_alike(columns_of(leaf), columns)}
    _say_outside([folders[folder] for folder in sorted(folders) if folder not in counting], ends, columns, found)
    keys = {folded(key) for key in metadata.key_columns}
    for column in columns if keys else ():
        if folded(column) not in keys:
            found.say("ME033", "", column=column)
    return counting, columns


def _names_alike(some: tuple[str, ...] | None, others: tuple[str, ...]) -> bool:
    """Whether both name the same columns in the same order, in any case (LZ-5.7)."""
    return some is not None and tuple(map(folded, some)) == tuple(map(folded, others))


def _say_outside(
    outside: Iterable[list[LandedFile]], ends: Iterable[str], columns: Iterable[str], found: Draft
) -> None:
    """Say of each foreign leaf, and of each file in no leaf, that it is ignored."""
    expected = "/".join(columns) or "(there are none)"
    foreign = frozenset(ends)
    for members in outside:
        found.ignored += members
        folder = members[0].partition
        for path in [folder] if folder in foreign else [file.path for file in members]:
            found.say("ME031", path, column=expected)
