"""What there is to know about a mirror at one moment: per table its state, files, lag and what is wrong (LZ-9.7)."""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from mirror_engine.engine.ledger import NEXT_POLL
from mirror_engine.engine.plan import StartGeneration
from mirror_engine.errors import StorageUnavailable, TransientError
from mirror_engine.landing_zone.states import Halted, TableState, Unconfigured
from mirror_engine.monitoring.fabric_files import FabricTable, beat, last_beat, write
from mirror_engine.monitoring.words import advice, in_words, iso, word

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from mirror_engine.engine.context import EngineContext
    from mirror_engine.engine.plan import Plan
    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.landing_zone.listing import LandedFile, ZoneListing
    from mirror_engine.landing_zone.metadata import PartnerEvents
    from mirror_engine.landing_zone.names import TableName
    from mirror_engine.landing_zone.progress import Progress

# the register's diagnostics about a path that is passed over as it lies there
PASSED_OVER = frozenset({"ME002", "ME003", "ME005", "ME020", "ME021", "ME022", "ME030", "ME031", "ME074", "ME082"})


@dataclass(frozen=True)
class FileStatus:
    """One change file (LZ-9.7).

    Attributes:
        path: from the table folder.
        state: `waiting`, `applied` or `refused`.
        why: what it waits for, or what was refused; once applied, what is to be said of another file that has taken
            its place (LZ-3.13), else `""`.
        version: the Delta version it went into; None before, and where it is no longer known.
        rows: how many it holds; None before it was applied.
        way: how it got into the table: `staged`, `appended`, `merged`; `""` before, and where that is not known.
        reason: why it was not staged, in words; `""` where it was, or where that is not known.
    """

    path: str
    state: Literal["waiting", "applied", "refused"]
    why: str = ""
    version: int | None = None
    rows: int | None = None
    way: str = ""
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        """The same as plain values."""
        return asdict(self)


@dataclass(frozen=True)
class TableStatus:
    """One table folder at one moment.

    Attributes:
        name: the table folder's name.
        delta_folder: its Delta table, from `ROOT/Tables`.
        state: one of the closed set, with its facts.
        watermarks: per partition (`""` without) the highest sequence applied.
        next_expected: per partition the name that comes next; empty where time orders the files.
        first_blocker: the path, from the landing zone, that keeps it from reading on; None where nothing does.
        files: refused and waiting files in the order they will be read, then applied ones by path.
        ignored: paths passed over, each with its reason.
        diagnostics: everything there is to say, with how often, first seen first.
        rows_processed, bytes_processed: of the generation (LZ-9.2, LZ-9.3).
        rows_live: in the Delta table now; None where there is none.
        delta_version: of the last commit; None before the first.
        committed_at: seconds since 1970 of the last commit; None before the first.
        lag_seconds: age of the oldest file that is not in the table; 0 where there is none.
    """

    name: TableName
    delta_folder: str
    state: TableState
    watermarks: Mapping[str, int]
    next_expected: Mapping[str, str]
    first_blocker: str | None
    files: tuple[FileStatus, ...]
    ignored: tuple[Diagnostic, ...]
    diagnostics: tuple[tuple[Diagnostic, int], ...]
    rows_processed: int
    bytes_processed: int
    rows_live: int | None
    delta_version: int | None
    committed_at: float | None
    lag_seconds: float

    @property
    def waiting(self) -> tuple[FileStatus, ...]:
        """The files that are not in the table, in reading order."""
        return tuple(file for file in self.files if file.state != "applied")

    def to_json(self, *, engine_running: bool = True) -> dict[str, Any]:
        """The same as plain values, with the state and the way out of it in words."""
        return {
            "table": self.name.folder,
            "schema": self.name.schema,
            "name": self.name.table,
            "delta_folder": self.delta_folder,
            "state": word(self.state),
            "state_text": in_words(self.state),
            "advice": advice(self.state, engine_running=engine_running),
            "first_blocker": self.first_blocker,
            "watermarks": dict(self.watermarks),
            "next_expected": dict(self.next_expected),
            "lag_files": len(self.waiting),
            "lag_seconds": round(self.lag_seconds, 3),
            "rows_processed": self.rows_processed,
            "bytes_processed": self.bytes_processed,
            "rows_live": self.rows_live,
            "delta_version": self.delta_version,
            "last_commit": iso(self.committed_at),
            "files": [file.to_json() for file in self.files],
            "ignored": [found.to_json() for found in self.ignored],
            "diagnostics": [found.to_json() | {"count": count} for found, count in self.diagnostics],
        }


@dataclass(frozen=True)
class MirrorStatus:
    """A mirrored database at one moment.

    Attributes:
        root: ROOT as given.
        zone: the landing zone, from ROOT; `""` where there is none.
        tables: in the order of the zone.
        diagnostics: about the zone itself.
        engine_running: whether an engine holds this ROOT now.
        heartbeat: seconds since 1970 of the engine's last sign of life; None where none ever ran.
        next_poll: seconds since 1970 of its next look at the zone; None where no engine runs.
        partner: who says to publish (LZ-1.8); None where nobody does.
    """

    root: str
    zone: str
    tables: tuple[TableStatus, ...]
    diagnostics: tuple[Diagnostic, ...] = ()
    engine_running: bool = False
    heartbeat: float | None = None
    next_poll: float | None = None
    partner: PartnerEvents | None = None

    def to_json(self) -> dict[str, Any]:
        """The same as plain values."""
        return {
            "root": self.root,
            "zone": self.zone,
            "partner": self.partner.to_json() if self.partner else None,
            "engine_running": self.engine_running,
            "heartbeat": iso(self.heartbeat),
            "next_poll": iso(self.next_poll),
            "diagnostics": [found.to_json() for found in self.diagnostics],
            "tables": [table.to_json(engine_running=self.engine_running) for table in self.tables],
        }


def table_status(  # noqa: PLR0913 - one fact each from the planner, the ledger, the poller, the table, the options, the clock
    plan: Plan,
    progress: Progress | None,
    files: Sequence[LandedFile],
    *,
    rows_live: int | None,
    default_schema: str,
    now: float,
) -> TableStatus:
    """Put together what is known of one table.

    Args:
        plan: the planner's, made from the same sight.
        progress: the ledger's; None where the table is not known yet.
        files: that lie in the table folder.
        rows_live: in the Delta table; None where there is none.
        default_schema: the Delta schema of bare tables, `""` for none.
        now: seconds since 1970.
    """
    if any(isinstance(step, StartGeneration) for step in plan.steps):
        progress = None  # what the ledger knows is of an earlier life of the folder (LZ-7.3)
    pending = _pending(plan, progress, files)
    committed = progress is not None and progress.has_table
    return TableStatus(
        name=plan.table,
        delta_folder=plan.table.delta_folder(default_schema),
        state=plan.state,
        watermarks=dict(progress.watermarks) if progress else {},
        next_expected=dict(plan.detection.next_expected) if plan.detection else {},
        first_blocker=_first_blocker(plan),
        files=(*(_unapplied(file, plan) for file in pending), *_applied(plan, progress)),
        ignored=tuple(found for found in plan.diagnostics if found.code in PASSED_OVER),
        diagnostics=_counted(plan.diagnostics, progress),
        rows_processed=progress.rows_processed if progress else 0,
        bytes_processed=progress.bytes_processed if progress else 0,
        rows_live=rows_live,
        delta_version=progress.delta_version if progress and committed else None,
        committed_at=progress.synced_at if progress and committed else None,
        lag_seconds=max(0.0, now - min((file.modified_ns / 1e9 for file in pending), default=now)),
    )


def _pending(plan: Plan, progress: Progress | None, files: Sequence[LandedFile]) -> list[LandedFile]:
    """Files that are not in the table and not passed over, in the order they will be read."""
    if plan.detection:
        return [*plan.detection.ready, *plan.detection.later]
    applied = progress.applied if progress else {}
    return [file for file in files if file.path not in applied]


def _unapplied(file: LandedFile, plan: Plan) -> FileStatus:
    match plan.state:
        case Halted(diagnostic) if diagnostic.path == f"{plan.table.folder}/{file.path}":
            return FileStatus(file.path, "refused", diagnostic.message)
        case Halted(diagnostic):
            return FileStatus(file.path, "waiting", f"the table is latched at {diagnostic.path}")
        case Unconfigured():
            return FileStatus(file.path, "waiting", "the folder has no usable _metadata.json")
        case _:
            return FileStatus(file.path, "waiting", _turn(file, plan))


def _turn(file: LandedFile, plan: Plan) -> str:
    if plan.detection and file in plan.detection.later:
        return f"comes after {plan.detection.next_expected.get(file.partition, plan.detection.waits_for)}, not there"
    return "ready, goes in with the next cycle"


def _applied(plan: Plan, progress: Progress | None) -> Iterable[FileStatus]:
    replaced = {found.path: found.message for found in plan.diagnostics if found.code == "ME026"}
    for path, file in sorted(progress.applied.items()) if progress else ():
        version = file.version if file.version >= 0 else None
        why = replaced.get(f"{plan.table.folder}/{path}", "")
        yield FileStatus(path, "applied", why, version, file.rows, file.way, file.reason)


def _first_blocker(plan: Plan) -> str | None:
    if isinstance(plan.state, (Halted, Unconfigured)):
        return plan.state.diagnostic.path
    missing = plan.detection.waits_for if plan.detection else None
    return f"{plan.table.folder}/{missing}" if missing else None


def _counted(now: Iterable[Diagnostic], progress: Progress | None) -> tuple[tuple[Diagnostic, int], ...]:
    counts = Counter(now) | Counter(progress.diagnostics if progress else {})
    return tuple(counts.items())


BEAT_SECONDS = 30.0


def mirror_status(
    root: Path, context: EngineContext, zone: ZoneListing, plans: Mapping[TableName, Plan], *, engine_running: bool
) -> MirrorStatus:
    """Everything there is to know of a mirror at one moment."""
    files = {listing.name: listing.files for listing in zone.tables}
    next_poll = context.ledger.fact(NEXT_POLL)
    return MirrorStatus(
        str(root),
        zone.folder if zone.identity else "",
        tuple(
            table_status(
                plan,
                context.ledger.progress(table),
                files.get(table, ()),
                rows_live=_rows_live(context, table),
                default_schema=context.config.delta_default_schema,
                now=context.clock(),
            )
            for table, plan in plans.items()
        ),
        zone.diagnostics,
        engine_running,
        last_beat(context.storage),
        float(next_poll) if engine_running and next_poll else None,
        zone.partner,
    )


def _rows_live(context: EngineContext, table: TableName) -> int | None:
    progress = context.ledger.progress(table)
    if not progress or not progress.has_table:  # another folder's table may lie at its place
        return None
    try:
        return context.writer.row_count(context.delta_folder(table))
    except TransientError:  # the plan tells what is wrong with it
        return None


class Traces:
    """Fabric's own files, `replicator.json` and `tables.json`, as an engine leaves them (LZ-9.1)."""

    def __init__(self, context: EngineContext) -> None:
        self._doors = context
        self._left: list[FabricTable] | None = None
        self._left_at = 0.0

    def leave(self, plans: Mapping[TableName, Plan]) -> None:
        """Rewrite both after a cycle: where they would say something new, and with each heartbeat.

        Raises:
            StorageUnavailable: they could not be written.
        """
        context = self._doors
        tables = [FabricTable(table, plan.state, context.ledger.progress(table)) for table, plan in plans.items()]
        if tables == self._left and time.monotonic() - self._left_at < BEAT_SECONDS:
            return
        self._left = None
        write(
            context.storage,
            tables,
            mirror=context.ledger.mirror,
            now=context.clock(),
            default_schema=context.config.delta_default_schema,
        )
        self._left, self._left_at = tables, time.monotonic()


class Heart:
    """Beats while a cycle takes long, so that a heartbeat is never older than a minute (LZ-9.1)."""

    def __init__(self, context: EngineContext) -> None:
        self._doors = context
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heart", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *exception: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _beat(self) -> None:
        while not self._stopped.wait(BEAT_SECONDS):
            with suppress(StorageUnavailable):  # the cycle meets the same storage, and says so
                beat(self._doors.storage, now=self._doors.clock(), table_count=len(self._doors.ledger.tables()))
