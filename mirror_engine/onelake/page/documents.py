"""The page's data as plain values: all tables, one table, one diagnostic; names are printable in all of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from mirror_engine.display import cell
from mirror_engine.errors import MirrorError
from mirror_engine.explain.pages import explanation
from mirror_engine.landing_zone.diagnostics import Trait
from mirror_engine.landing_zone.layout import ZONE
from mirror_engine.landing_zone.names import shown_names
from mirror_engine.landing_zone.states import Blocked
from mirror_engine.landing_zone.text import printable
from mirror_engine.monitoring.history import MAX_NAMED
from mirror_engine.monitoring.status_results import StatusSummary, TableSummary
from mirror_engine.onelake.hosts import DFS
from mirror_engine.onelake.items import SUFFIXES
from mirror_engine.onelake.page.statuses import MAX_FILES
from mirror_engine.results import CountedFinding, Finding, iso_text, utc

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.monitoring.rows import SortedRows
    from mirror_engine.monitoring.status import MirrorStatus, TableStatus
    from mirror_engine.monitoring.status_results import FileStatus
    from mirror_engine.onelake.engine_pool import ShownItem
    from mirror_engine.onelake.page.statuses import CachedStatus, StatusCache
    from mirror_engine.tables.base import HistoryEntry

MAX_CHARACTERS = 200  # of one cell
MAX_COLUMNS = 50
MAX_COMMITS = 20

Document = dict[str, Any]


def overview(found: Sequence[CachedStatus]) -> Document:
    """Every mirrored database with all of its tables."""
    return {"items": [_item(cached) for cached in found]}


def table_page(statuses: StatusCache, item_id: str, folder: str) -> Document | None:
    """One table with its files, commits and first rows; None if there is none, or its mirror cannot be read."""
    for cached in statuses.all(item_id):
        status = cached.status
        for table in status.tables if status else ():
            if status and table.name.folder == folder:
                (summary,) = _tables(cached, status, [table])
                details = {**summary, **_details(table), **_contents(statuses, cached.item, table)}
                return _printable({"item": _reference(cached.item), "table": details})
    return None


def explanation_page(code: str) -> Document | None:
    """What a diagnostic means; None if the code is unknown."""
    try:
        return explanation(code).to_json()
    except KeyError:
        return None


def _item(cached: CachedStatus) -> Document:
    item, status, made = cached.item, cached.status, cached.documents
    if status and "mirror" not in made:  # once a scan: there may be thousands of tables
        facts = StatusSummary.taken_from(status).to_json()
        made["mirror"] = _printable({**facts, "tables": _tables(cached, status, status.tables)})
    zone = quote(f"{item.workspace}/{item.name}{SUFFIXES[0]}/{ZONE}", errors="replace")
    facts = {
        **_reference(item),
        "status": item.status.value,
        "errors": [error for error in (item.error, cached.error) if error],
        "landing_zone": f"https://onelake.{DFS}/{zone}",
    }
    return {**_printable(facts), "mirror": made.get("mirror")}


def _reference(item: ShownItem) -> Document:
    return {"id": item.id, "workspace": item.workspace, "name": item.name}


def _tables(cached: CachedStatus, status: MirrorStatus, tables: Sequence[TableStatus]) -> list[Document]:
    """The summaries of tables, each with its urgency and the diagnostic that stops it."""
    names = shown_names(each.name for each in status.tables)
    found = []
    for table in tables:
        whole = TableSummary.taken_from(table.shown(engine_running=status.is_worked_on))
        summary, last = whole.to_json(), last_diagnostic(table)
        since = iso_text(utc(cached.scanned_at - table.lag_seconds)) if table.pending_files else None
        del summary["lag_seconds"]  # it changes all the time
        found.append(
            {
                **summary,
                "table": names[table.name],
                "url": f"/tables/{cached.item.id}/{quote(table.name.folder, errors='replace')}",
                "pending_since": since and f"{since[:16]}Z",  # to the minute: a scan takes time
                "applied_up_to": whole.applied,
                "diagnostic": last and Finding.of(last).to_json(),
            }
        )
    return found


def last_diagnostic(table: TableStatus) -> Diagnostic | None:
    """The diagnostic that stops a table; else the last one."""
    if table.state.diagnostic:
        return table.state.diagnostic
    if isinstance(table.state, Blocked):
        return next((found for found, _ in table.diagnostics if found.has(Trait.BLOCKS)), None)
    return table.diagnostics[-1][0] if table.diagnostics else None


def _details(table: TableStatus) -> Document:
    """The diagnostics and files of a table, the first of each kind; rejected files first, then the newest."""
    by_state: dict[str, list[FileStatus]] = {"rejected": [], "pending": [], "applied": []}
    for file in table.files:
        by_state[file.state].append(file)
    by_state["applied"].reverse()
    names = ("path", "state", "reason", "rows", "delta_version")
    return {
        "diagnostics": [CountedFinding.of(*each).to_json() for each in table.diagnostics[:MAX_FILES]],
        "diagnostic_count": len(table.diagnostics),
        "files": [
            {name: getattr(file, name) for name in names} for files in by_state.values() for file in files[:MAX_FILES]
        ],
        "files_processed": table.files_processed,
    }


def _contents(statuses: StatusCache, item: ShownItem, table: TableStatus) -> Document:
    """The newest commits of a table and its first rows, or why they cannot be read."""
    found: Document = {"commits": [], "has_more_commits": False, "rows": None, "error": None}
    if table.delta_version is not None:
        try:
            commits = item.view().commits(table.delta_folder, limit=MAX_COMMITS + 1)
            found["commits"], found["has_more_commits"] = (
                [*map(_commit, commits[:MAX_COMMITS])],
                len(commits) > MAX_COMMITS,
            )
            if commits:
                found["rows"] = statuses.rows(item, table, commits[0], row_texts)
        except MirrorError as problem:
            found["error"] = str(problem)
    return found


def _commit(commit: HistoryEntry) -> Document:
    facts = {"version": commit.version, "operation": commit.operation, "rows": commit.rows}
    files = [*commit.files]
    shown = files if len(files) <= MAX_NAMED else [files[0], files[-1]]
    return {**facts, "committed_at": iso_text(commit.committed_at), "files": shown, "file_count": len(files)}


def row_texts(rows: SortedRows) -> Document:
    """Rows as text, cut to `MAX_COLUMNS` and `MAX_CHARACTERS`; None for NULL."""
    names = rows.schema.names
    return {
        "columns": names[:MAX_COLUMNS],
        "column_count": len(names),
        "cells": [[_cut(row[name]) for name in names[:MAX_COLUMNS]] for row in rows],
        "is_sorted": bool(rows.keys) and rows.are_lowest,
        "has_more": rows.has_more,
    }


def _cut(value: object) -> str | None:
    return None if value is None else cell(value, MAX_CHARACTERS)


def _printable(document: Document) -> Document:
    """A document without control characters and lone surrogates: they are written out."""
    return {name: _printed(value) for name, value in document.items()}


def _printed(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, Mapping):
        return {printable(name): _printed(inner) for name, inner in value.items()}
    return [_printed(inner) for inner in value] if isinstance(value, list) else value
