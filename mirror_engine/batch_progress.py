"""A table's progress around a commit: once the batch is in, as the commit carries it, as the ledger keeps it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mirror_engine.delta.history import STAGED, way_of
from mirror_engine.landing_zone.progress import AppliedFile
from mirror_engine.landing_zone.tally import tally

if TYPE_CHECKING:
    from mirror_engine.change_batches import CutBatch
    from mirror_engine.delta.base import Outcome
    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.landing_zone.progress import Progress
    from mirror_engine.landing_zone.sightings import TableSighting


def after_batch(known: Progress, cut: CutBatch, now: float) -> Progress:
    """The progress once this batch is in."""
    applied = dict(known.applied)
    watermarks = dict(known.watermarks)
    for sighted, file in zip(cut.files, cut.batch.files, strict=True):
        way = STAGED if file.original else ""
        applied[file.path] = AppliedFile(file.etag, file.digest, -1, file.row_count, file.modified_ns, way, file.reason)
        if (sequence := cut.sequence_of(sighted)) is not None:
            watermarks[sighted.partition] = max(sequence, watermarks.get(sighted.partition, 0))
    return replace(
        known,
        batch=known.batch + 1,
        watermarks=watermarks,
        applied=applied,
        key_columns=cut.batch.key_columns,
        declared_columns=known.declared_columns or cut.declared_columns,
        naive_columns=cut.facts.naive_columns,
        utc_columns=cut.facts.utc_columns,
        markers_seen=cut.facts.markers_seen,
        rows_processed=known.rows_processed + sum(file.row_count for file in cut.batch.files),
        bytes_processed=known.bytes_processed + sum(file.byte_count for file in cut.batch.files),
        synced_at=now,
        waiting={path: etag for path, etag in known.waiting.items() if path not in applied},
        owed={**known.owed, **{file.path: file.original.name for file in cut.batch.files if file.original}},
    )


def as_committed(progress: Progress, sighting: TableSighting | None) -> Progress:
    """The progress as a commit carries it: only applied files that still lie in the folder."""
    lying = {file.path for file in sighting.files} if sighting else set()
    applied = {path: file for path, file in progress.applied.items() if path in lying}
    return replace(progress, applied=applied, waiting={}, latch=None, diagnostics={})


def as_recorded(progress: Progress, cut: CutBatch, outcome: Outcome, said: tuple[Diagnostic, ...]) -> Progress:
    """The progress the ledger keeps: with the Delta version, and what there is to say about the files."""
    paths = {file.path for file in cut.batch.files}
    applied = {
        path: replace(file, version=outcome.version, way=way_of(outcome.operation)) if path in paths else file
        for path, file in progress.applied.items()
    }
    diagnostics = tally(progress.diagnostics, said)
    return replace(progress, applied=applied, delta_version=outcome.version, diagnostics=diagnostics)
