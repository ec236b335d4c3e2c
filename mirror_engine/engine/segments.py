"""Segments: from time to time a commit names a file that says what older commits have applied (LZ-4.18).

Why: docs/decisions/progress-in-commits.md. A commit stays small, and a lost ledger is rebuilt from the newest commits
and a few segments, whatever the table's age. A segment replaces those before it that are not larger: each file is
written again a few times.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

from mirror_engine.errors import TableDamaged
from mirror_engine.landing_zone.progress import Applied, Segment

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

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
    """Return the segments for the next commit; writes a new segment first if one is due.

    Raises:
        StorageUnavailable: it cannot be written.
    """
    if not known.has_table:
        return ()
    if known.segments is not None and known.delta_version - known.covered < COMMITS_PER_SEGMENT:
        return known.segments
    listed = {file.path for file in listing.files} if listing else set()
    try:
        return _extended(context, table, known, listed)
    except TableDamaged:  # an earlier segment is missing, and the ledger knows what it said
        return _extended(context, table, replace(known, segments=None), listed)


def _extended(
    context: EngineContext, table: TableName, known: Progress, listed: Collection[str]
) -> tuple[Segment, ...]:
    """Write a segment up to the last commit, and return it behind those that stay.

    A segment expires after `KEPT_SECONDS`. Of the files up to the last expired version (`forgotten`), one segment names
    those that are still `listed`: the next one written, and again the one that replaces it.
    """
    ledger, now, before = context.ledger, context.now, known.segments or ()
    expired = max((segment.until for segment in before if now - segment.written_at >= KEPT_SECONDS), default=-1)
    forgotten = max([expired, *(segment.forgotten_until for segment in before)])
    stay, applied = _merged(context, table, [segment for segment in before if segment.until > expired], forgotten)
    if known.segments is None:
        least = (min(context.clock(), now) - KEPT_SECONDS) * 1e9  # a date that is ahead forgets nothing
        recent = {path: file for path, file in applied.files.items() if file.modified_ns >= least}
        forgotten = min((file.version for file in recent.values()), default=known.delta_version + 1) - 1
        applied = Applied({**recent, **ledger.applied(table, listed)}, applied.marks)
    is_named = any(segment.forgotten_until == forgotten for segment in stay)
    if forgotten >= 0 and not is_named:
        left = {path: file for path, file in ledger.applied(table, listed).items() if file.version <= forgotten}
        applied = Applied({**left, **applied.files}, ledger.marks(table))
    name = f"applied-{known.delta_version}-{uuid.uuid4().hex[:8]}.json"
    count = len(applied.files) + len(applied.marks)
    segment = Segment(known.delta_version, count, now, name, -1 if is_named else max(forgotten, -1))
    context.writer.write_segment(context.delta_folder(table), segment, replace(applied, segments=tuple(stay)))
    return (*stay, segment)


def _merged(
    context: EngineContext, table: TableName, before: Sequence[Segment], forgotten: int
) -> tuple[Sequence[Segment], Applied]:
    """Return the segments to keep, and what the next one must contain: it replaces those that are not larger.

    `forgotten` is the version after which the first of them begins; -1 for all.
    """
    after = before[-1].until if before else forgotten
    since = after if after >= 0 else None  # None: files from before the first commit, too
    applied = Applied(context.ledger.applied(table, after=since), context.ledger.marks(table, after=since))
    if before and before[-1].count <= min(len(applied.files) + len(applied.marks), MAX_MERGED):
        return _merged(context, table, before[:-1], forgotten)
    return before, applied
