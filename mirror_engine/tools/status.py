"""The status of a mirror as users see it: of all tables, or of some with their columns."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec import structs

from mirror_engine.landing_zone.names import find_table
from mirror_engine.results import Column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror_engine.monitoring.status import TableStatus
    from mirror_engine.monitoring.status_results import Status
    from mirror_engine.tools.snapshot import MirrorSnapshot


def report_status(seen: MirrorSnapshot, tables: Sequence[str] = ()) -> Status:
    """The status of all tables, or of the named ones with their columns.

    Where Fabric mirrors it, with the pending files that Fabric would reject.
    """
    latest = seen.status()
    if tables:
        folders = [table.delta_folder for table in latest.tables]
        wanted = {find_table(name, folders, seen.context.config.delta_default_schema) for name in tables}
        chosen = (each for each in latest.tables if each.delta_folder in wanted)
        latest = structs.replace(latest, tables=tuple(_with_columns(seen, each) for each in chosen))
    if latest.fabric:
        from mirror_engine.tools.trace.rejections import with_rejections  # noqa: PLC0415 - only Fabric's need it

        latest = with_rejections(seen, latest)
    return latest.shown()


def _with_columns(seen: MirrorSnapshot, table: TableStatus) -> TableStatus:
    """A table's status with the columns of its Delta table, if that can be read."""
    if table.row_count is None:
        return table
    found = seen.context.delta.snapshot(table.delta_folder)
    return replace(table, columns=[Column.taken_from(each) for each in found.schema.columns] if found else None)
