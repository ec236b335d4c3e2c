"""OneLake in a test: an emulator in this process, the environment that leads publishers to it, and its mirror."""

from __future__ import annotations

import os
import shutil
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Self
from unittest.mock import patch

from mirror_engine.config import Config
from mirror_engine.engine.changes import Changes
from mirror_engine.engine.cycle import RunResult, Totals
from mirror_engine.errors import UsageError
from mirror_engine.events import BatchCommitted, CycleEnded, RetryScheduled, ignore
from mirror_engine.extras import install_command
from mirror_engine.landing_zone.layout import ENGINE, STORE_ITEMS
from mirror_engine.landing_zone.states import Behind, Loading, needs_attention
from mirror_engine.monitoring.sync_results import SyncedTable, SyncReport
from mirror_engine.storage.store_url import local_folder
from mirror_engine.testing.landing_zone_writer import LandingZoneWriter
from mirror_engine.testing.mirror import MirrorInTest

try:
    from mirror_engine.onelake.connection import Listening
    from mirror_engine.onelake.faults import parse_fault
    from mirror_engine.onelake.hosts import DFS, PassedHost
    from mirror_engine.onelake.items import TRASH
    from mirror_engine.onelake.options import EmulatorOptions, ServerPlan
    from mirror_engine.onelake.serving import Server
except ModuleNotFoundError as error:
    raise UsageError(f"onelake needs {error.name}", f"Install the extra: {install_command('emulator')}") from None

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator, Sequence

    from mirror_engine.events import Event
    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.onelake.connection import ConnectionInfo
    from mirror_engine.onelake.items import Item
    from mirror_engine.onelake.middleware import RejectedRequest

__all__ = ["OneLakeInTest", "Snapshot", "onelake"]

SYNC_SECONDS = 60.0
HIDDEN_NAME = "ME082"
MAX_REJECTED = 10  # requests in a failure report


class EmulatedMirror(MirrorInTest):
    """The mirror of an emulated mirrored database, whose `sync` lets the emulator's engine apply what landed."""

    def __init__(self, server: Server) -> None:
        plan = server.plan
        self._place = plan.store / server.item.path
        super().__init__(self._place, plan.config, clock=plan.options.clock)
        self._server = server
        self._commits: list[BatchCommitted] = []
        self._changes = Changes(time.time, ignore)
        self._last_batches = 0
        self._has_failed = False
        self._rejected: list[str] = []

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """All diagnostics of this test, each once, without hidden names (ME082) that are gone.

        The engine scans by itself: whether it sees a temporary name before the publisher renames it is chance.
        """
        found = super().diagnostics
        return tuple(each for each in found if each.code != HIDDEN_NAME or (self._place / each.place).exists())

    def failure_report(self) -> str:
        rejected = [f"  rejected: {request}" for request in self._rejected[-MAX_REJECTED:]]
        return "\n".join([super().failure_report(), *rejected])

    def note_event(self, item: Item, event: Event) -> None:
        """Take an event of an engine; from any thread."""
        if item.id != self._server.item.id:
            return
        match event:
            case BatchCommitted():
                self._commits.append(event)
            case CycleEnded(_, batches):
                self._last_batches = batches
            case RetryScheduled():
                self._has_failed = True
        self._changes(event)
        self._record(event)

    def note_failure(self, message: str) -> None:
        """Take a failure of the emulator, or the end of an engine; from any thread."""
        self._has_failed = True
        self._failures.append(f"  {message}")

    def note_rejected(self, request: RejectedRequest) -> None:
        """Take a request that was rejected; from any thread."""
        self._rejected.append(f"{request.method} {request.host}{request.path}: {request.status} {request.code}".strip())

    def _apply(self, stop: threading.Event | None) -> SyncReport:
        """Wake the engine until it has nothing more to do, does not run, fails, or has taken `SYNC_SECONDS`."""
        started, first = time.monotonic(), len(self._commits)
        self._has_failed, self._changes = False, Changes(time.time, ignore)
        while True:
            is_running = self._server.poll()
            tables = self._status().tables
            is_busy = self._last_batches or any(isinstance(table.state, (Behind, Loading)) for table in tables)
            seconds = time.monotonic() - started
            if not (is_busy and is_running) or self._has_failed or seconds > SYNC_SECONDS or (stop and stop.is_set()):
                break
        is_stuck = any(needs_attention(table.state) for table in tables)
        result = RunResult.NEEDS_ATTENTION if is_stuck else RunResult.CAUGHT_UP
        applied = Totals()
        applied.add(self._commits[first:])
        result = RunResult.RETRY if self._has_failed else result
        synced = [SyncedTable.of_state(table.name, table.delta_folder, table.state) for table in tables]
        return SyncReport.of_tables(result, synced, applied, seconds, self._changes)


@dataclass(frozen=True)
class Snapshot:
    """A STORE between two commits."""

    store: Path  # a copy of its files, gone with the emulator
    lead_seconds: float  # how far its clock was ahead


class OneLakeInTest:
    """An emulator with one mirrored database, which runs while it is entered.

    Args:
        folder: an existing one, for its STORE and copies of it.
        plan: of the emulator; by default its STORE is in the folder.

    Attributes:
        mirror: of the mirrored database; another one after `reset` and `restore`.
        store: the folder of workspaces and items.
    """

    mirror: EmulatedMirror

    def __init__(self, folder: Path, plan: ServerPlan | None = None) -> None:
        plan = plan or ServerPlan(folder / "store")
        self.store = plan.store
        notes = map(self._noting, ("note_failure", "note_event", "note_rejected"))
        self._server = Server(plan, *notes)
        self._snapshots = folder / "snapshots"
        self._count = 0
        self._is_settled = False

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self._server)
            self._first = self.snapshot()
            self._settle()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def connection(self) -> ConnectionInfo:
        """Names, GUIDs and addresses, and the environment of publishers."""
        return self._server.connection

    @property
    def url(self) -> str:
        """The mirrored database's `abfss://` URL, with production's host; `{url}/Tables/dbo/Orders` is a table."""
        return f"abfss://{self.connection.workspace_id}@onelake.{DFS}/{self.connection.item_id}"

    @property
    def landing_zone(self) -> LandingZoneWriter:
        """The landing zone as a folder, to be written without requests."""
        return LandingZoneWriter(self.store / self._server.item.path)

    @contextmanager
    def environment(self) -> Iterator[Self]:
        """Lead publishers in this process, and those it starts, to the emulator."""
        authority = self.connection.environment["NODE_EXTRA_CA_CERTS"]
        if context := getattr(sys.modules.get("aiohttp.connector"), "_SSL_CONTEXT_VERIFIED", None):
            context.load_verify_locations(authority)  # it was made when the module was imported
        with patch.dict(os.environ, self.connection.around(os.environ)):
            yield self

    def reset(self, config: Config | None = None) -> None:
        """Return to the beginning: items, files, tables, faults and time; addresses, GUIDs and tokens stay.

        `config`: other options of the engines from now on.
        """
        if config:
            self._server.plan = replace(self._server.plan, config=config)
        self.restore(self._first)

    def snapshot(self) -> Snapshot:
        """Keep the STORE as it is, with tables and progress."""
        self._count += 1
        kept = Snapshot(self._snapshots / str(self._count), self._server.plan.options.clock.lead_seconds)
        self._server.restart(lambda: _copy(self.store, kept.store), kept.lead_seconds)
        return kept

    def restore(self, snapshot: Snapshot) -> None:
        """Return to a snapshot, with the faults of the beginning."""

        def replace_files() -> None:
            _clear(self.store)
            _copy(snapshot.store, self.store)

        self._is_settled = False
        self._server.restart(replace_files, snapshot.lead_seconds)
        if adlfs := sys.modules.get("adlfs"):
            adlfs.AzureBlobFileSystem.clear_instance_cache()  # with their listings
        self._settle()

    def advance(self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0) -> None:
        """Let time pass for all that waits, as `mirror.advance`."""
        self._server.advance(days=days, hours=hours, minutes=minutes, seconds=seconds)

    def inject_fault(self, *faults: str) -> None:
        """Inject faults, each written as for `emulator start --inject-fault`."""
        self._server.plan.options.add([parse_fault(fault) for fault in faults])

    def clear_faults(self) -> None:
        """Remove all faults."""
        self._server.plan.options.clear()

    def _settle(self) -> None:
        """Create a new mirror after the engine has scanned the STORE, so that restored files are not reported."""
        self._server.poll()
        self.mirror = EmulatedMirror(self._server)
        self._is_settled = True

    def _noting(self, name: str) -> Callable[..., Any]:
        """A listener that forwards the emulator's reports to the mirror, once there is one."""
        return lambda *reported: self._is_settled and getattr(self.mirror, name)(*reported)


@contextmanager
def onelake(  # noqa: PLR0913 - options of the emulator
    store: Path | str | None = None,
    *,
    config: Config | None = None,
    workspace: str | None = None,
    item: str | None = None,
    faults: Sequence[str] = (),
    pass_through: Sequence[str] = (),
) -> Iterator[OneLakeInTest]:
    """Run an emulator in this process, on free ports, and lead this process's publishers to it.

    Args:
        store: its folder; a temporary one by default.
        config: options of the engines; by default `arrow` merges, without Java.
        workspace: to create or use; the first one by default.
        item: mirrored database to create or use; the first one by default.
        faults: written as for `emulator start --inject-fault`.
        pass_through: other hosts that the proxy connects to, as for `--pass-through`.

    Raises:
        RootLocked: an emulator is running for this store.
        UsageError: an argument is not usable.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="onelake-")))
        plan = ServerPlan(
            local_folder(store) if store else folder / "store",
            workspace,
            item,
            listening=Listening(pass_through=[PassedHost.parse(host) for host in pass_through]),
            options=EmulatorOptions(faults=[parse_fault(fault) for fault in faults]),
            config=config or Config(merge_engine="arrow"),
        )
        lake = stack.enter_context(OneLakeInTest(folder, plan))
        yield stack.enter_context(lake.environment())


def _copy(store: Path, target: Path) -> None:
    """Copy the files of a STORE but those of its running emulator."""
    shutil.copytree(
        store,
        target,
        symlinks=True,
        ignore=lambda folder, _: {ENGINE} if folder == str(store) else (),
        dirs_exist_ok=True,
    )
    (target / STORE_ITEMS).parent.mkdir(exist_ok=True)
    shutil.copy2(store / STORE_ITEMS, target / STORE_ITEMS)


def _clear(store: Path) -> None:
    """Delete the same files."""
    for path in {*store.iterdir(), store / TRASH} - {store / ENGINE}:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
