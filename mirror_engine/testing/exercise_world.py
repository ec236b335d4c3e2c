"""One exercise's world: a source, a landing zone, a publisher that is run again and again, and the mirror after it."""

from __future__ import annotations

import shutil
import sysconfig
import tempfile
import threading
import traceback
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirror_engine.delta.memory import MemoryDeltaWriter
from mirror_engine.errors import UnknownTable
from mirror_engine.landing_zone.layout import ZONE
from mirror_engine.landing_zone.register import Severity
from mirror_engine.landing_zone.states import needs_a_person
from mirror_engine.testing.expectations import reason
from mirror_engine.testing.mirrored import MirrorInTest
from mirror_engine.testing.source import Source
from mirror_engine.testing.zone_files import Crash, InterruptedFiles, Interruption, ZoneFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, MutableMapping

    from typing_extensions import Self

    from mirror_engine.config import Config

    Publish = Callable[[Source, ZoneFiles, MutableMapping[str, Any]], object]

RUNS_TO_SETTLE = 4
RIVAL_SECONDS = 0.5  # a rival that waits for its turn gets it when the first is done
LAST_SECONDS = 10.0
LISTED = 5
RAISING = "the publisher must survive this: a run that nothing disturbs must not end with an exception"
_HOME = Path(__file__).parents[1]
_LIBRARIES = tuple(Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib"))


class World:
    """A context: its landing zone is removed afterwards.

    Args:
        publish: the publisher under test.
        config: the mirror's options.

    Attributes:
        source: the table to copy.
        state: what the publisher keeps between its runs.
    """

    def __init__(self, publish: Publish, config: Config | None = None) -> None:
        self.source = Source()
        self.state: dict[str, Any] = {}
        self._publish = publish
        self._root = Path(tempfile.mkdtemp(prefix="mirror-engine-"))
        self._zone = self._root / ZONE
        self._zone.mkdir(parents=True)
        self._mirror = MirrorInTest(self._root, config, writer=MemoryDeltaWriter())
        self._rivals: list[threading.Thread] = []
        self._failure: BaseException | None = None
        self._has_succeeded = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._mirror.close()
        shutil.rmtree(self._root, ignore_errors=True)

    def run(self, interruption: Interruption | None = None) -> None:
        """One run of the publisher, interrupted or not, and one of the mirror."""
        self._run_publisher(InterruptedFiles(self._zone, interruption) if interruption else ZoneFiles(self._zone))
        for rival in self._rivals:
            rival.join(LAST_SECONDS)
        self._mirror.run()

    def settle(self) -> None:
        """Run the publisher undisturbed until a run of it succeeds; a few times at most."""
        for _ in range(RUNS_TO_SETTLE):
            self.run()
            if self._failure is None:
                return

    def rival(self) -> None:
        """Another run of the same publisher beside the first, with the same state."""
        thread = threading.Thread(target=self._run_rival, daemon=True)
        self._rivals.append(thread)
        thread.start()
        thread.join(RIVAL_SECONDS)

    def faults(self) -> list[str]:
        """What is wrong in the end, in words; empty where the mirrored table is the source's."""
        if any(rival.is_alive() for rival in self._rivals):
            return [f"a second publisher was still waiting {LAST_SECONDS:g} seconds after the first was done"]
        stuck = [reason(table).strip() for table in self._mirror.status().tables if needs_a_person(table.state)]
        if self._failure is not None:
            return [f"the publisher keeps failing: {raised_where(self._failure)}", *stuck]
        try:
            mirrored = self._mirror.table(self.source.name).arrow().to_pylist()
        except UnknownTable:
            return stuck or [f"there is no mirrored table {self.source.name}", self._mirror.story().strip()]
        return [*stuck, *row_faults(self.source, mirrored)]

    def remedy(self, known: str) -> str:
        """What helps: what is known to help with the exercise, unless the publisher never got so far."""
        if self._failure is None:
            return known
        return f"{RAISING}; {known}" if self._has_succeeded else RAISING

    def diagnostics(self) -> list[str]:
        """What the mirror said besides: warnings and errors."""
        return [found.message for found in self._mirror.diagnostics if found.severity is not Severity.INFO]

    def _run_publisher(self, files: ZoneFiles) -> None:
        try:
            self._publish(self.source, files, self.state)
        except (Exception, Crash) as failure:  # noqa: BLE001 - whatever ends a publisher's run
            self._failure = failure
        else:
            self._failure = None
            self._has_succeeded = True

    def _run_rival(self) -> None:
        with suppress(Exception):  # one of two may well give up; what counts is what lies there then
            self._publish(self.source, ZoneFiles(self._zone), self.state)


def raised_where(failure: BaseException) -> str:
    """An exception by its type and the publisher's own line it came from; without its text, which may hold values."""
    frames = [frame for frame in traceback.extract_tb(failure.__traceback__) if _is_source(Path(frame.filename))]
    own = [frame for frame in frames if not any(Path(frame.filename).is_relative_to(each) for each in _LIBRARIES)]
    # a publisher that is installed is a library, too: then the line where it was called
    shown = own[-1:] or frames[:1]
    return " at ".join([type(failure).__name__, *(f"{frame.filename}, line {frame.lineno}" for frame in shown)])


def _is_source(file: Path) -> bool:
    """Whether it is a file of Python at all, and none of the engine's."""
    return file.is_file() and not file.is_relative_to(_HOME)


def row_faults(source: Source, mirrored: Iterable[Mapping[str, Any]]) -> list[str]:
    """What tells a mirrored table from the source's, in words: rows missing, doubled, too many, old or wrong."""
    truth = source.truth()
    found: dict[Any, list[dict[str, Any]]] = {}
    for row in mirrored:
        known = {name.casefold(): value for name, value in row.items()}
        found.setdefault(known.get("id"), []).append({name: known.get(name.casefold()) for name in source.columns})
    wrong = [key for key, rows in found.items() if key in truth and any(row != truth[key] for row in rows)]
    old = [key for key in wrong if all(row in [*_filled(source, key), truth[key]] for row in found[key])]
    said = {
        "missing": truth.keys() - found.keys(),
        "there more than once": [key for key, rows in found.items() if len(rows) > 1],
        "there though deleted, or under an old key": found.keys() - truth.keys(),
        "in an older state: a later change is lost, or came first": old,
        "wrong": set(wrong) - set(old),
    }
    return [f"{_counted(keys)} {what}" for what, keys in said.items() if keys]


def _filled(source: Source, key: int) -> list[dict[str, Any]]:
    """A key's former rows, with None for the columns that came later."""
    return [{name: row.get(name) for name in source.columns} for row in source.former(key)]


def _counted(keys: Collection[Any]) -> str:
    listed = ", ".join(map(str, sorted(keys, key=str)[:LISTED])) + (", …" if len(keys) > LISTED else "")
    return f"1 row (id {listed}) is" if len(keys) == 1 else f"{len(keys)} rows (id {listed}) are"
