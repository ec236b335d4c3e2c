"""Rebuild: drop Delta tables to read their change files again, archived ones moved back first (LZ-7.7, LZ-7.12)."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from mirror_engine.engine.poller import Poller
from mirror_engine.engine.recovery import LOST_RECORD, recover, rows_lost
from mirror_engine.engine.replayer import drop_table
from mirror_engine.engine.root_identity import has_content
from mirror_engine.errors import TransientError, UsageError
from mirror_engine.events import DiagnosticRaised
from mirror_engine.landing_zone.detection import detect
from mirror_engine.landing_zone.listing import MetadataAbsent
from mirror_engine.landing_zone.metadata import Metadata, Strategy
from mirror_engine.landing_zone.names import METADATA_FILE, SCHEMA_SUFFIX, find_table
from mirror_engine.landing_zone.progress import FolderProgress, Progress
from mirror_engine.landing_zone.schema import folded
from mirror_engine.landing_zone.text import count
from mirror_engine.storage.base import NO_IDENTITY
from mirror_engine.storage.local import os_errors
from mirror_engine.storage.zone_view import RestoredView
from mirror_engine.tables.log.durability import sync_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mirror_engine.engine.context import EngineContext
    from mirror_engine.errors import TableDamaged
    from mirror_engine.landing_zone.detection import Detection
    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.landing_zone.listing import Entry, TableListing
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.landing_zone.progress import AppliedFile
    from mirror_engine.storage.store_url import Place


@dataclass(frozen=True)
class TableRebuild:
    """What the rebuild of one table moves, and what it loses."""

    table: TableName
    # For each archived file that is moved back, its old path and where it is; both from ROOT
    moves: Mapping[str, str] = field(default_factory=dict)
    lost: Diagnostic | None = None  # how many rows cannot be rebuilt, and why (ME069); None if all can
    is_unknown: bool = False  # whether it has a Delta table of which nothing says what was applied


def rebuild(  # noqa: PLR0913 - what the public method takes, and the engine's parts
    context: EngineContext,
    root: Place,
    names: Sequence[str],
    *,
    replay: bool,
    lose_rows: bool,
    confirm: Callable[[Sequence[TableRebuild]], None],
) -> list[TableName]:
    """Determine the loss, restore archived files, then drop tables; returns those that had a Delta table.

    Killed at any moment it loses nothing: the next cycle archives again what is back and was not dropped. Arguments are
    those of `Mirror.rebuild`.

    Raises:
        UsageError: rows would be lost, and `lose_rows` is not set; nothing was changed.
        UnknownTable: no such table.
        TransientError: a folder could not be listed, a file not moved or a table not dropped; those before it are.
    """
    plans = plan_rebuild(context, names, replay=replay)
    lost = [plan.lost for plan in plans if plan.lost]
    if lost and not lose_rows:
        more = f", and {count(len(lost) - 1, 'more table')}" if lost[1:] else ""
        message = f"rows would be lost, nothing was dropped: {lost[0].full_message}{more}"
        raise UsageError(message, f"{lost[0].help}; --yes --lose-rows continues without them")
    confirm(plans)
    for plan in plans:
        if plan.lost:
            context.emit(DiagnosticRaised(plan.table, plan.lost))
        for path, archived in plan.moves.items():
            context.check_lock()
            if context.storage.stat(path) is None:
                context.storage.move(archived, path)
    moved = {path.rpartition("/")[0] for plan in plans for path in plan.moves}
    if isinstance(root, Path):  # what a store answered is durable
        for folder in sorted(moved):
            with os_errors("fsync", folder):
                sync_folder(root / folder)
    known = context.ledger.tables()
    for plan in plans:
        if plan.table in known or plan.is_unknown:
            context.check_lock()
            drop_table(context, plan.table, "rebuild", had_table=plan.is_unknown)
    return sorted(
        plan.table for plan in plans if plan.is_unknown or (plan.table in known and known[plan.table].has_table)
    )


def plan_rebuild(context: EngineContext, names: Sequence[str], *, replay: bool) -> list[TableRebuild]:
    """Return what the rebuild of tables, all without names, takes; only the ledger is reconciled."""
    delta = recover(context)
    view = RestoredView(context.storage)
    zone = Poller(view if replay else context.storage, context.config).scan()
    listings, known = {listing.name: listing for listing in zone.tables}, context.ledger.tables()
    folders = {table: context.delta_folder(table) for table in sorted({*known, *listings})}
    chosen = {find_table(name, [*folders.values()], context.config.delta_default_schema) for name in names}
    plans = []
    for table, folder in folders.items():
        if names and folder not in chosen:
            continue
        if folder in delta.unread:
            raise delta.unread[folder]
        if unlisted := zone.unlisted & {f"{table.schema}{SCHEMA_SUFFIX}", table.folder}:
            raise zone.error_of(unlisted)(f"{table.folder}: cannot be listed or read", "Check path and rights.")
        is_unknown = folder in delta.damaged and _is_unknown(context, delta.damaged[folder], table)
        listing, total = listings.get(table), known.get(table, Progress("", "")).rows_processed
        applied = {} if is_unknown else context.ledger.applied(table)
        planned = _TableFiles(context, view, zone.folder, table, listing, applied, total).plan(replay=replay)
        if is_unknown:
            rows: object = "an unknown number of"
            with suppress(TransientError):
                rows = context.delta.count_rows(folder) or 0
            lost = rows_lost(table, rows, "it is not known which files were applied")
            planned = replace(planned, lost=lost, is_unknown=True)
        plans.append(planned)
    return plans


def _is_unknown(context: EngineContext, error: TableDamaged, table: TableName) -> bool:
    """Whether an unusable table was written by a mirror, with no record of what was applied."""
    known, folder = context.ledger.progress(table), context.delta_folder(table)
    is_known = known is not None and known.has_table
    return error.fault == LOST_RECORD or (not is_known and context.delta.is_mirrored(folder))


@dataclass(frozen=True)
class _TableFiles:
    """A table folder as a rebuild would read it; `view` shows archived files at their old paths."""

    context: EngineContext
    view: RestoredView
    zone: str
    table: TableName
    listing: TableListing | None  # of the view, or of the folder itself
    applied: Mapping[str, AppliedFile]  # all files that are in its Delta table
    rows: int  # that they held

    def plan(self, *, replay: bool) -> TableRebuild:
        applied, files, moves = self.applied, [], {}
        for file in self.listing.files if self.listing else ():
            path = self._path(file)
            archived = self.view.archived_at(path)
            if archived and applied and file.path not in applied:
                continue  # of an earlier life of the table, which a rebuild without replay left
            files.append(file)
            if archived:
                moves[path] = archived
        reason, rows = self._loss(files, "deleted" if replay else "moved or deleted")
        lost = rows_lost(self.table, rows, reason) if reason else None
        return TableRebuild(self.table, moves, lost)

    def _path(self, file: Entry) -> str:
        return f"{self.zone}/{self.table.folder}/{file.path}"

    def _loss(self, files: Sequence[Entry], gone: str) -> tuple[str, int]:
        """Return why rows would change (`""` if they would not), and how many of the applied ones."""
        config, applied, total = self.context.config, self.applied, self.rows
        if not applied:
            return "", 0
        metadata = self.listing.usable if self.listing else None
        if self.listing and isinstance(self.listing.metadata, MetadataAbsent) and config.missing_metadata != "wait":
            metadata = Metadata()
        absent = applied.keys() - {file.path for file in files}
        if metadata is None and not absent:
            return f"no usable `{METADATA_FILE}`", total
        known, first_file = FolderProgress(), config.first_file
        found = detect(self.table, files, metadata or Metadata(), known, first_file, strict=config.strict)
        again = {file.path for file in found.ready if file.path in applied and self._is_as_applied(file)}
        rows = total - sum(applied[path].rows for path in again)
        if absent and rows:
            return f"{count(len(absent), 'change file')} {gone}", rows
        if others := len(applied.keys() - again - absent):
            return f"{count(others, 'change file')} overwritten, or no longer read", rows
        if rows:
            return "its Delta log no longer names all its change files", rows
        is_in_order = self._is_in_order(found, metadata or Metadata())
        return "" if is_in_order else "its files would be read in another order", total

    def _is_as_applied(self, file: Entry) -> bool:
        applied, path = self.applied[file.path], self._path(file)
        if applied.is_same(file.etag, file.modified_ns):
            return True
        return has_content(self.context.storage, self.view.archived_at(path) or path, applied)

    def _is_in_order(self, found: Detection, metadata: Metadata) -> bool:
        """Whether files are read in the order of the commits that applied them; rows of one key share a partition."""
        keys = set(map(folded, metadata.key_columns))
        is_copied = self.listing is not None and self.listing.identity == NO_IDENTITY  # a move is a copy there
        is_by_time = bool(keys) and metadata.strategy is not Strategy.SEQUENTIAL and len(found.ready) > 1
        if is_copied and is_by_time and any(self.view.archived_at(self._path(file)) for file in found.ready):
            return False
        are_apart = not keys or {*map(folded, found.partition_columns)} <= keys
        newest: dict[str, float] = {}
        for file in found.ready:
            applied = self.applied.get(file.path)
            version = applied.version if applied else math.inf
            place = file.partition if are_apart else ""
            if 0 <= version < newest.get(place, 0):
                return False
            newest[place] = max(version, newest.get(place, 0))
        return True
