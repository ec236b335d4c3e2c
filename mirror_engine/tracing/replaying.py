"""Replays one table from its beginning into a writer of one's own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mirror_engine.delta.base import BatchRecord, ChangeBatch, FileRows
from mirror_engine.delta.read_request import ReadRequest, TableFacts
from mirror_engine.delta.reader import ChangeFileReader
from mirror_engine.errors import PublisherError, ZoneChanged
from mirror_engine.landing_zone.change import RowMarker
from mirror_engine.landing_zone.metadata import Metadata
from mirror_engine.landing_zone.progress import AppliedFile
from mirror_engine.landing_zone.states import Behind, Loading
from mirror_engine.ledger import Ledger
from mirror_engine.rehearsal import Rehearsal

if TYPE_CHECKING:
    from mirror_engine.delta.base import DeltaWriter
    from mirror_engine.delta.reading import Reading
    from mirror_engine.landing_zone.progress import Progress
    from mirror_engine.monitoring.status import FileStatus, TableStatus
    from mirror_engine.storage.base import Storage
    from mirror_engine.tracing.beginning import Beginning
    from mirror_engine.tracing.scene import Scene

AT_THE_BEGINNING = ""  # the path under which rows are handed to a writer that no file holds any more
_VERSION = 1  # of the writer's table once it has them


def replay_table(
    scene: Scene,
    beginning: Beginning | None,
    writer: DeltaWriter,
    reading: Reading,
    storage: Storage | None = None,
) -> TableStatus:
    """Replay all that can be replayed, and say how the table then stands.

    Args:
        scene: the table.
        beginning: where to begin; None: at the first file.
        writer: door 2, empty, in memory.
        reading: what is kept of the rows; it must suit the writer.
        storage: another arrangement of the scene's.

    Raises:
        TransientError: something could not be read for a while.
    """
    ledger = Ledger.fresh()
    if beginning:
        ledger.record(scene.name, _begun(scene, beginning, ledger.mirror, writer, reading))
    with Rehearsal(storage or scene.storage, scene.doors.config, writer, reading, ledger=ledger) as rehearsal:
        (status,) = rehearsal.play().tables
    return status


def standing(scene: Scene, replayed: FileStatus) -> FileStatus:
    """How a file stands that a replay could not apply: as the engine says where it has met what stops the replay."""
    real = scene.files.get(replayed.path)
    is_met = not isinstance(scene.plan.state, Behind | Loading)
    return real if real and is_met and real.state != "applied" and replayed.state != "refused" else replayed


def read_unapplied(scene: Scene, path: str, writer: DeltaWriter, reading: Reading) -> FileRows | None:
    """A file that cannot be applied yet, read by itself; None where it is gone, or breaks the protocol.

    Args:
        scene: the table.
        path: of the file, from the table folder.
        writer: holds the table as far as it was replayed.
        reading: what is kept of its rows.

    Raises:
        StorageUnavailable: it could not be read for a while.
    """
    file = next((file for file in scene.sighting.files if file.path == path), None)
    if file is None:
        return None
    table = writer.state(scene.status.delta_folder)
    facts = TableFacts(table.schema if table else None, is_empty=table is None)
    request = ReadRequest(scene.zone, scene.name, file, scene.metadata or Metadata(), facts)
    try:
        return ChangeFileReader(scene.storage, scene.doors.config, reading).read(request).rows
    except (PublisherError, ZoneChanged):
        return None


def _begun(scene: Scene, beginning: Beginning, mirror: str, writer: DeltaWriter, reading: Reading) -> Progress:
    """Put a writer in the state that the earlier files left; returns the progress that goes with it."""
    rows = beginning.as_inserts()
    keys = tuple(name for name in beginning.progress.key_columns or () if beginning.schema.find(name))
    progress = replace(
        beginning.progress,
        identity=scene.sighting.identity,
        batch=1,
        delta_version=_VERSION,
        watermarks=beginning.watermarks,
        applied=_applied(scene, beginning),
        latch=None,
        waiting={},
        diagnostics={},
    )
    spool = reading.spool(rows.schema, keys)
    for batch in rows.to_batches():
        spool.add(batch)
    markers = {RowMarker.INSERT.value: rows.num_rows}
    file = FileRows(AT_THE_BEGINNING, "", "", 0, spool.finish(), markers, has_marker=True, byte_count=0)
    record = BatchRecord(mirror, "", progress, (), scene.name.folder)
    writer.apply(scene.status.delta_folder, ChangeBatch((file,), beginning.schema, keys), record)
    return progress


def _applied(scene: Scene, beginning: Beginning) -> dict[str, AppliedFile]:
    etags = {file.path: file.etag for file in scene.sighting.files}
    return {path: AppliedFile(etags.get(path, ""), "", _VERSION, 0, 0) for path in beginning.paths}
