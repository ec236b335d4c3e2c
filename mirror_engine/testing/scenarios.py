"""Failure scenarios for a publisher: crash, lost response, key change, reset …, and which it passes."""

from __future__ import annotations

import copy
import json
import re
import shutil
import sysconfig
import tempfile
import textwrap
import threading
import traceback
from collections.abc import Callable, MutableMapping
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from enum import StrEnum
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from mirror_engine.errors import UnknownTable, UsageError
from mirror_engine.landing_zone.diagnostics import Severity
from mirror_engine.landing_zone.layout import ZONE
from mirror_engine.landing_zone.states import needs_attention
from mirror_engine.mirror import status_of
from mirror_engine.publish import Folder
from mirror_engine.results import as_json
from mirror_engine.tables.dry_run.memory import MemoryDeltaWriter
from mirror_engine.testing.mirror import MirrorInTest, described

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from mirror_engine.config import Config

    Row = Mapping[str, Any]

__all__ = [
    "ConformanceReport",
    "ScenarioOutcome",
    "ScenarioResult",
    "SimulatedCrash",
    "Source",
    "SourceChange",
    "ZoneFiles",
    "check_publisher",
]

MAX_SETTLING_RUNS = 4
CONCURRENT_SECONDS = 0.5  # a concurrent run that waits for a lock goes on when the first run is done
CONCURRENT_END_SECONDS = 10.0
MAX_KEYS_LISTED = 5
RAISING = "a run without a fault must not end with an exception"

_FINAL = re.compile(r"[0-9]{20}\.[^.]+|[^_.].*\.(?:parquet|csv)", re.IGNORECASE)
_CHANGE_FILE = re.compile(r"[0-9]{20}|\.(?:parquet|csv|tsv)", re.IGNORECASE)
_PACKAGE = Path(__file__).parents[1]
_STANDARD_LIBRARY = Path(sysconfig.get_path("stdlib"))


class SimulatedCrash(BaseException):
    """The end of the publisher's process: no code of it may catch this."""


class ZoneFiles(Folder):
    """A landing zone's files on a local disk, by path from the zone's top: `Orders/_metadata.json`.

    Attributes:
        path: the zone's folder. No fault can be injected into what a publisher does there without these methods.
    """

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder."""
        return (self.path / path).exists()

    def replace(self, source: str, target: str) -> None:
        """Rename a file, overwriting the target."""
        (self.path / source).replace(self._target(target))


class FaultKind(StrEnum):
    """What happens in a run of the publisher; all but the first when a change file gets its final name."""

    UPLOAD_CUT = "upload cut"  # half of the content is there, the caller sees a failure
    REFUSED = "refused"  # nothing happened, the caller sees a failure
    LOST_ANSWER = "lost answer"  # it was done, the caller sees a failure
    CRASH = "crash"  # it was done, the caller's process ended
    CONCURRENT_BEFORE = "concurrent before"  # another run acts first
    CONCURRENT_AFTER = "concurrent after"  # another run acts before the caller goes on


class FaultyFiles(ZoneFiles):
    """`ZoneFiles` with one fault, injected once: at the change file of a number, counted from 1."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        kind: FaultKind,
        number: int = 1,
        concurrent: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(path)
        self.has_occurred = False
        self._kind, self._remaining, self._concurrent = kind, number, concurrent

    def write(self, path: str, content: bytes) -> None:
        is_change_file = content.startswith(b"PAR1") or _CHANGE_FILE.search(Path(path).name)
        if self._kind is FaultKind.UPLOAD_CUT and is_change_file and self._occurs():
            super().write(path, content[: len(content) // 2])
            raise ConnectionResetError(f"{path}: the connection broke while uploading")
        self._name(path, partial(super().write, path, content))

    def rename(self, source: str, target: str) -> None:
        self._name(target, partial(super().rename, source, target))

    def replace(self, source: str, target: str) -> None:
        self._name(target, partial(super().replace, source, target))

    def _name(self, path: str, act: Callable[[], None]) -> None:
        """Give a file its name, with the fault if it is a name that the mirror reads: no part of it is temporary."""
        *folders, name = Path(path).parts
        is_final = _FINAL.fullmatch(name) and not any(folder.startswith(("_", ".")) for folder in folders)
        if self._kind is FaultKind.UPLOAD_CUT or not is_final or not self._occurs():
            act()
            return
        if self._kind is FaultKind.REFUSED:
            raise ConnectionRefusedError(f"{path}: the storage refused")
        if self._kind is FaultKind.CONCURRENT_BEFORE:
            self._concurrent()
        act()
        if self._kind is FaultKind.LOST_ANSWER:
            raise TimeoutError(f"{path}: no response")
        if self._kind is FaultKind.CRASH:
            raise SimulatedCrash(path)
        if self._kind is FaultKind.CONCURRENT_AFTER:
            self._concurrent()

    def _occurs(self) -> bool:
        self._remaining -= 1
        self.has_occurred = self.has_occurred or self._remaining == 0
        return self._remaining == 0


@dataclass(frozen=True)
class SourceChange:
    """One change of a table, as a database's log records it: positions from 1, full rows, at times a new key."""

    table: str
    position: int
    kind: Literal["insert", "update", "delete"]
    before: Row | None
    after: Row | None


class Source:
    """A table with the key `id`: what a publisher copies.

    A publisher reads `name`, `keys`, `columns`, `generation`, `position`, `rows()` and `changes()`; the scenarios do
    the rest.

    Attributes:
        generation: 1, and more by 1 whenever the table must be loaded again: the log of changes has a gap,
            or mirroring was stopped and started.
        columns: the present columns, with the Python types of their values; all but the key may be None.
        on_read: called once while `rows()` is read.

    Args:
        log: another table's changes, to write into the same log; positions are those of the log.
    """

    def __init__(self, name: str = "Orders", log: list[SourceChange] | None = None) -> None:
        self.name = name
        self.keys = ("id",)
        self.generation = 1
        self.columns: dict[str, type] = {"id": int, "city": str, "amount": int}
        self.on_read: Callable[[], None] | None = None
        self.log: list[SourceChange] = [] if log is None else log
        self._rows: dict[int, Row] = {
            key: {"id": key, "city": city, "amount": key * 10}
            for key, city in enumerate(("Linz", "Wels", "Graz", "Enns"), 1)
        }

    @property
    def position(self) -> int:
        """The position of the newest change of any table; 0 before the first."""
        return len(self.log)

    def rows(self) -> Iterator[Row]:
        """Yield every row from a cursor without a snapshot: concurrent changes may be missed or read."""
        at = -1
        while (key := min((key for key in self._rows if key > at), default=None)) is not None:
            yield self._rows[key]
            at = key
            if self.on_read and key > min(self._rows):
                on_read, self.on_read = self.on_read, None
                on_read()

    def changes(self, after: int) -> list[SourceChange]:
        """The table's changes behind a position, in order. The initial rows are in no change."""
        return [change for change in self.log[after:] if change.table == self.name]

    def add_column(self, name: str) -> None:
        """Add a column of text; existing rows have None in it."""
        self.columns[name] = str
        self._rows = {key: {**row, name: None} for key, row in self._rows.items()}

    def insert(self, key: int, **values: object) -> None:
        self._write("insert", None, {**dict.fromkeys(self.columns), "id": key, **values})

    def update(self, key: int, **values: object) -> None:
        """Change values of a row; `id` among them is a key change."""
        self._write("update", self._rows[key], {**self._rows[key], **values})

    def delete(self, key: int) -> None:
        self._write("delete", self._rows[key], None)

    def reset(self) -> None:
        """Replace rows outside the change log, as a restored backup does: one stays, one differs, one is new."""
        self.generation += 1
        new = {**dict.fromkeys(self.columns), "id": 8, "city": "Steyr"}
        self._rows = {1: self._rows[1], 3: {**self._rows[3], "amount": 33}, 8: new}

    def expected_rows(self) -> dict[int, Row]:
        """The present rows, by key."""
        return dict(self._rows)

    def states(self, key: int) -> list[Row]:
        """A key's present and previous rows, with None for columns that came later."""
        former = [change.before for change in self.changes(0) if change.before and change.before["id"] == key]
        return [{name: row.get(name) for name in self.columns} for row in (self._rows[key], *former)]

    def _write(self, kind: Literal["insert", "update", "delete"], before: Row | None, after: Row | None) -> None:
        self.log.append(SourceChange(self.name, self.position + 1, kind, before, after))
        if before is not None:
            del self._rows[before["id"]]
        if after is not None:
            self._rows[after["id"]] = after


Publish = Callable[[Source, ZoneFiles, MutableMapping[str, Any]], object]


class Harness(AbstractContextManager["Harness"]):
    """One variant's source, landing zone and mirror; a context manager that removes the zone at the end."""

    def __init__(self, publish: Publish, config: Config | None = None) -> None:
        self.source = Source()
        self.state: dict[str, Any] = {}  # what the publisher keeps between its runs, of all tables
        self._kept_state: dict[str, Any] = {}
        self._has_happened = True  # whether the publisher reached the moment at which something was to happen
        self._tables = {self.source.name: self.source}
        self._publish = publish
        self._root = Path(tempfile.mkdtemp(prefix="mirror-engine-"))
        self.zone = self._root / ZONE
        self.zone.mkdir(parents=True)
        self._mirror = MirrorInTest(self._root, config, writer=MemoryDeltaWriter())
        self._concurrent: list[threading.Thread] = []
        self._failure: BaseException | None = None
        self._has_succeeded = False

    def __exit__(self, *exception: object) -> None:
        self._mirror.close()
        shutil.rmtree(self._root, ignore_errors=True)

    def run(self, files: ZoneFiles | None = None) -> None:
        """Run the publisher once for every table, with files that have a fault or without, then the mirror."""
        failures: list[BaseException] = []
        for source in self._tables.values():
            try:
                self._publish(source, files or ZoneFiles(self.zone), self.state)
            except (Exception, SimulatedCrash) as failure:  # noqa: BLE001 - whatever ends a publisher's run
                failures.append(failure)
        self._failure = failures[0] if failures else None
        self._has_succeeded = self._has_succeeded or len(failures) < len(self._tables)
        for thread in self._concurrent:
            thread.join(CONCURRENT_END_SECONDS)
        self._mirror.sync()

    def settle(self) -> None:
        """Run the publisher without a fault until a run succeeds; a few times at most."""
        for _ in range(MAX_SETTLING_RUNS):
            self.run()
            if self._failure is None:
                return

    def play(self, steps: Iterable[Any]) -> None:
        """Run steps: named ones of `scenarios.json` or methods of this class, faults, or changes of a source."""
        for step in steps:
            match step:
                case str():
                    named = _data()["steps"].get(step)
                    self.play(named) if named else getattr(self, step.replace(" ", "_"))()
                case {"while reading": changes}:
                    self.source.on_read = partial(self.play, changes)
                    self.settle()
                    self._has_happened = self.source.on_read is None
                case {"fault": _}:
                    self._run_with(**step)
                case _:
                    (change, key), *values = step.items()
                    options = dict(values)
                    source = self._tables[options.pop("table", self.source.name)]
                    getattr(source, change)(*([] if key is None else [key]), **options)

    def _run_with(self, fault: str, number: int = 1, meanwhile: str = "") -> None:
        """Run the publisher with a fault; `meanwhile` names changes that a concurrent run publishes."""

        def concurrent() -> None:
            self.play([meanwhile])
            self.run_concurrently()

        files = FaultyFiles(self.zone, FaultKind(fault), number, concurrent)
        self.run(files)
        if not files.has_occurred:  # a publisher that lands one file a run
            self.source.update(1, amount=5)
            self.run(files)
        self._has_happened = files.has_occurred

    def add_another_table(self) -> None:
        """Let the publisher copy another table of the same source, too."""
        self._tables["Stores"] = Source("Stores", self.source.log)

    def lose_state(self) -> None:
        """Forget what the publisher kept."""
        self.state.clear()

    def keep_state(self) -> None:
        """Make a backup of what the publisher keeps."""
        self._kept_state = copy.deepcopy(self.state)

    def restore_state(self) -> None:
        """Restore the backup."""
        self.state.clear()
        self.state.update(copy.deepcopy(self._kept_state))

    def restart_mirroring(self) -> None:
        """Stop and start mirroring after its archived files were deleted (LZ-8.3, LZ-7.7), and ask for new loads."""
        self._mirror.advance(days=7)
        self._mirror.sync()
        self._mirror.rebuild(lose_rows=True)
        self._mirror.sync()
        for source in self._tables.values():
            source.generation += 1

    def run_concurrently(self) -> None:
        """Start another run of the same publisher, with the same state, and wait for it a moment."""

        def run_again() -> None:
            with suppress(Exception):  # one of two may well give up; what counts is the result in the zone
                self._publish(self.source, ZoneFiles(self.zone), self.state)

        thread = threading.Thread(target=run_again, daemon=True)
        self._concurrent.append(thread)
        thread.start()
        thread.join(CONCURRENT_SECONDS)

    def result(self, name: str, help: str) -> ScenarioResult:
        """Return the result. If no run ever succeeded, `help` (the scenario's own) is replaced."""
        problems, outcome = self._problems(), ScenarioOutcome.FAILED
        if problems and self._failure is not None:
            help = f"{RAISING}; {help}" if self._has_succeeded else RAISING
        elif not problems and self._has_happened:
            outcome, help = ScenarioOutcome.PASSED, ""
        elif not problems:
            outcome = ScenarioOutcome.NOT_EXERCISED
            problems = ["it never reached the injection point: it reads or writes in another way"]
            help = "read with `source.rows()`, and write and rename change files through `files`"
        raised = (found for found in self._mirror.diagnostics if found.severity is not Severity.INFO)
        return ScenarioResult(name, outcome, tuple(problems), help, tuple(found.full_message for found in raised))

    def _problems(self) -> list[str]:
        """Problems at the end; empty if the mirrored tables equal the source's."""
        if any(thread.is_alive() for thread in self._concurrent):
            return [f"a concurrent run was still waiting {CONCURRENT_END_SECONDS:g} s after the first was done"]
        halted = [described(table).strip() for table in status_of(self._mirror).tables if needs_attention(table.state)]
        if self._failure is not None:
            return [f"the publisher keeps failing: {raised_where(self._failure)}", *halted]
        problems = []
        for source in self._tables.values():
            try:
                rows = self._mirror.table(source.name).arrow().to_pylist()
            except UnknownTable:
                return halted or [f"there is no mirrored table {source.name}", self._mirror.failure_report().strip()]
            place = f"{source.name}: " if len(self._tables) > 1 else ""
            problems += [f"{place}{problem}" for problem in row_problems(source, rows)]
        return [*halted, *problems]


@cache
def _data() -> dict[str, Any]:
    """Steps by name, and scenarios; each variant of one, a list of steps, runs in a harness of its own."""
    data: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
    return data


def raised_where(failure: BaseException) -> str:
    """An exception's type and the publisher's line that raised it; not its text, which may hold values."""
    own, frames = [], []  # the publisher's lines; all but the engine's
    for frame in traceback.extract_tb(failure.__traceback__):
        file = Path(frame.filename)
        if file.is_file() and not file.is_relative_to(_PACKAGE):
            frames.append(frame)
            if not file.is_relative_to(_STANDARD_LIBRARY) and {"site-packages", "dist-packages"}.isdisjoint(file.parts):
                own.append(frame)
    # an installed publisher is a library, too: then the line where it was called
    shown = own[-1:] or frames[:1]
    return " at ".join([type(failure).__name__, *(f"{frame.filename}, line {frame.lineno}" for frame in shown)])


def row_problems(source: Source, mirrored: Iterable[Row]) -> list[str]:
    """How a mirrored table differs from the source: rows missing, duplicate, unexpected, outdated or wrong."""
    expected = source.expected_rows()
    rows: dict[Any, list[Row]] = {}
    for mirrored_row in mirrored:
        row = {name.casefold(): value for name, value in mirrored_row.items()}
        rows.setdefault(row.get("id"), []).append({name: row.get(name.casefold()) for name in source.columns})
    wrong = {key for key, copies in rows.items() if key in expected and any(row != expected[key] for row in copies)}
    outdated = {key for key in wrong if all(row in source.states(key) for row in rows[key])}
    problems = {
        "missing": expected.keys() - rows.keys(),
        "there more than once": {key for key, copies in rows.items() if len(copies) > 1},
        "there though deleted, or under an old key": rows.keys() - expected.keys(),
        "in an older state: a later change is lost, or came first": outdated,
        "wrong": wrong - outdated,
    }
    return [f"{_counted(keys)} {problem}" for problem, keys in problems.items() if keys]


def _counted(keys: Collection[Any]) -> str:
    listed = ", ".join(map(str, sorted(keys, key=str)[:MAX_KEYS_LISTED])) + (", …" * (len(keys) > MAX_KEYS_LISTED))
    return f"1 row (id {listed}) is" if len(keys) == 1 else f"{len(keys)} rows (id {listed}) are"


class ScenarioOutcome(StrEnum):
    """The result of a scenario."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_EXERCISED = "not_exercised"  # the publisher never reached the injection point


@dataclass(frozen=True)
class ScenarioResult:
    """The result of one scenario.

    Attributes:
        problems: what is wrong: the mirrored table's differences from the source, and what the mirror rejected.
        help: what a publisher does that passes it; `""` where it passed.
        diagnostics: warnings and errors of the mirror, as messages.
    """

    name: str
    outcome: ScenarioOutcome
    problems: tuple[str, ...] = ()
    help: str = ""
    diagnostics: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether the mirrored table equalled the source's in the end."""
        return self.outcome is ScenarioOutcome.PASSED

    def __str__(self) -> str:
        heading = self.outcome.value.replace("_", " ").upper()
        lines = [f"{heading:<13}  {self.name}", *(f"    {problem}" for problem in self.problems)]
        if not self.passed:
            lines += [f"    diagnostic: {message}" for message in self.diagnostics]
            lines += [textwrap.fill(self.help, 110, initial_indent="    help: ", subsequent_indent="          ")]
        return "\n".join(lines)


@dataclass(frozen=True)
class ConformanceReport:
    """The results of all scenarios; `str()` is the text for people."""

    results: tuple[ScenarioResult, ...]

    @property
    def passed(self) -> bool:
        """Whether the publisher passed all scenarios."""
        return all(result.passed for result in self.results)

    def __str__(self) -> str:
        count = sum(result.passed for result in self.results)
        return "\n".join([f"The publisher passes {count} of {len(self.results)} scenarios.", *map(str, self.results)])

    def assert_all_passed(self) -> None:
        """Raises `AssertionError` with the whole report where a scenario failed, or was not exercised."""
        __tracebackhide__ = True
        if not self.passed:
            raise AssertionError(str(self))

    def to_json(self) -> list[dict[str, Any]]:
        return [as_json(asdict(result)) for result in self.results]


def check_publisher(publish: Publish, *, only: Collection[str] = (), config: Config | None = None) -> ConformanceReport:
    """Run a publisher through the scenarios; starts no JVM.

    Args:
        publish: called as `publish(source, files, state)`. Each call is one run of the publisher's process: it
            publishes what is not yet published of `source` (a `Source`) through `files` (a `ZoneFiles`), and returns
            or raises. `state` is a mapping that is still there in its next run: its checkpoint, one for all its
            tables. State kept elsewhere cannot be lost, and no fault can be injected into files written without
            `files`.
        only: names of scenarios; all by default.
        config: the mirror's options.

    Raises:
        UsageError: no scenario has such a name.
    """
    known = {entry["name"]: entry for entry in _data()["scenarios"]}
    for name in only:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            raise UsageError(f"{name}: no such scenario", f"Did you mean {near[0]}?" if near else ", ".join(known))
    chosen = (scenario for name, scenario in known.items() if not only or name in only)
    return ConformanceReport(tuple(_result(scenario, publish, config) for scenario in chosen))


def _result(scenario: Mapping[str, Any], publish: Publish, config: Config | None) -> ScenarioResult:
    """The result of the first variant that did not pass, or of the last."""
    for variant in scenario["variants"]:
        with Harness(publish, config) as harness:
            harness.play(variant)
            result = harness.result(scenario["name"], scenario["help"])
        if not result.passed:
            break
    return result
