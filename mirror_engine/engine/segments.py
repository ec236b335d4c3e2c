"""Segments: from time to time a commit names a file that says what older commits have applied (LZ-4.18, decision 53).

So a commit stays small, and a lost ledger is rebuilt from the newest commits and a few segments, whatever the table's
age. A segment replaces those before it that are not larger: each file is written again a few times.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

from mirror_engine.errors import TableDamaged
from mirror_engine.landing_zone.progress import Applied, Segment

if TYPE_CHECKING:
    from mirror_engine.engine.context import EngineContext
    from mirror_engine.landing_zone.listing import TableListing
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.landing_zone.progress import Progress

COMMITS_PER_SEGMENT = 50  # as many are read to rebuild the ledger
MAX_MERGED = 50_000  # files and marks of a segment that is replaced by a larger one
KEPT_SECONDS = 30 * 86_400.0  # files that are in the landing zone no more are known by name for so long (LZ-3.6)


def up_to_date(
    context: EngineContext, table: TableName, known: Progress, listing: TableListing | None
) -> tuple[Segment, ...]:
    """Return the segments that the next commit names, after the last one was written where it is due.

    Raises:
        StorageUnavailable: it cannot be written.
    """
    if not known.has_table:
        return ()
    kept = list(known.segments or ())
    until = known.covered
    if known.segments is not None and known.delta_version - until < COMMITS_PER_SEGMENT:
        return known.segments
    ledger, now, listed = context.ledger, context.clock(), {file.path for file in listing.files} if listing else set()
    expired = max((segment.until for segment in kept if now - segment.written_at >= KEPT_SECONDS), default=-1)
    kept = [segment for segment in kept if segment.until > expired]
    applied = _after(context, table, until)
    while kept and kept[-1].count <= min(len(applied.files) + len(applied.marks), MAX_MERGED):
        kept.pop()
        applied = _after(context, table, kept[-1].until if kept else expired)
    files, marks = applied.files, applied.marks
    if known.segments is None:
        least = (now - KEPT_SECONDS) * 1e9
        files = {path: file for path, file in files.items() if path in listed or file.modified_ns >= least}
    if expired >= 0:  # of the oldest ones, what is still in the landing zone, and the marks
        left = {path: file for path, file in ledger.applied(table, listed).items() if file.version <= expired}
        files, marks = {**left, **files}, ledger.marks(table)
    name = f"applied-{known.delta_version}-{uuid.uuid4().hex[:8]}.json"
    segment = Segment(known.delta_version, len(files) + len(marks), now, name)
    try:
        context.writer.write_segment(context.delta_folder(table), segment, Applied(files, marks, tuple(kept)))
    except TableDamaged:  # one before it is missing, and the ledger knows what it said
        if not kept:
            raise
        return up_to_date(context, table, replace(known, segments=None), listing)
    return (*kept, segment)


def _after(context: EngineContext, table: TableName, version: int) -> Applied:
    """What the commits after a version have applied; -1 for all, those before the first commit included."""
    since = version if version >= 0 else None
    return Applied(context.ledger.applied(table, after=since), context.ledger.marks(table, after=since))
