"""The conformance kit: drives a publisher through ten exercises and reports which it survives."""

from __future__ import annotations

import os
import re
import shutil
import sysconfig
import tempfile
import textwrap
import threading
import traceback
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from mirror_engine.errors import UnknownTable, UsageError
from mirror_engine.landing_zone.diagnostics import Severity
from mirror_engine.landing_zone.layout import ZONE
from mirror_engine.landing_zone.states import needs_a_person
from mirror_engine.publisher.testing.mirrored import MirrorInTest, reason
from mirror_engine.tables.merge.memory import MemoryDeltaWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, MutableMapping

    from typing_extensions import Self

    from mirror_engine.config import Config

    Publish = Callable[["Source", "ZoneFiles", MutableMapping[str, Any]], object]
    from collections.abc import Callable, Iterator

    Row = Mapping[str, Any]
    from collections.abc import Callable

_FINAL = re.compile(r"[0-9]{20}\.[^.]+|[^_.].*\.(?:parquet|csv)", re.IGNORECASE)
_CHANGE_FILE = re.compile(r"[0-9]{20}|\.(?:parquet|csv|tsv)", re.IGNORECASE)


class SimulatedCrash(BaseException):
    """The publisher's process ends here and now: nothing after this may run, and nobody should catch it."""


class ZoneFiles:
    """A landing zone's files on a local disk, by path from the zone's top: `Orders/_metadata.json`.

    Attributes:
        path: the zone's folder. What a publisher does there past these methods, the kit cannot interrupt.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def write(self, path: str, content: bytes) -> None:
        """Write a file; folders are made, a file already there is overwritten."""
        target = self._made(path)
        target.write_bytes(content)

    def read(self, path: str) -> bytes:
        """A file's content; raises `FileNotFoundError`."""
        return (self.path / path).read_bytes()

    def list(self, folder: str = "") -> list[str]:
        """The names in a folder, sorted; empty where there is no such folder."""
        place = self.path / folder
        return sorted(found.name for found in place.iterdir()) if place.is_dir() else []

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder."""
        return (self.path / path).exists()

    def rename(self, source: str, target: str) -> None:
        """Rename a file; raises `FileExistsError` where the target is taken, as with `If-None-Match: *`."""
        os.link(self.path / source, self._made(target))
        (self.path / source).unlink()

    def replace(self, source: str, target: str) -> None:
        """Rename a file over whatever is there."""
        (self.path / source).replace(self._made(target))

    def delete(self, path: str) -> None:
        """Delete a file, or a folder with all in it; absent is no error."""
        target = self.path / path
        if target.is_dir():
            shutil.rmtree(target)
        else:
            target.unlink(missing_ok=True)

    def _made(self, path: str) -> Path:
        target = self.path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        return target


class FaultKind(str, Enum):
    """What happens to a publisher at work; all but the first when a change file gets its final name."""

    UPLOAD_CUT = "upload cut"  # half of the content is there, the caller sees a failure
    REFUSED = "refused"  # nothing happened, the caller sees a failure
    LOST_ANSWER = "lost answer"  # it was done, the caller sees a failure
    CRASH = "crash"  # it was done, the caller is no more
    RIVAL_BEFORE = "rival before"  # somebody else acts first
    RIVAL_AFTER = "rival after"  # somebody else acts before the caller goes on


class Interruption:
    """One harm, done once.

    Args:
        harm: what.
        number: at which change file, counted from 1.
        rival: what somebody else does then.

    Attributes:
        has_struck: whether it was done.
    """

    def __init__(self, harm: FaultKind, number: int = 1, rival: Callable[[], None] = lambda: None) -> None:
        self.harm = harm
        self.rival = rival
        self.has_struck = False
        self._left = number

    def strikes(self, *, upload: bool) -> bool:
        """Whether it is done now, at an upload or when a file gets its final name."""
        if self.has_struck or upload != (self.harm is FaultKind.UPLOAD_CUT):
            return False
        self._left -= 1
        self.has_struck = self._left == 0
        return self.has_struck


class InterruptedFiles(ZoneFiles):
    """`ZoneFiles` of a publisher that is interrupted.

    Args:
        path: the zone's folder.
        interruption: what happens to it.
    """

    def __init__(self, path: str | os.PathLike[str], interruption: Interruption) -> None:
        super().__init__(path)
        self._interruption = interruption

    def write(self, path: str, content: bytes) -> None:
        """See `ZoneFiles`."""
        is_change_file = content.startswith(b"PAR1") or _CHANGE_FILE.search(Path(path).name)
        if is_change_file and self._interruption.strikes(upload=True):
            super().write(path, content[: len(content) // 2])
            raise ConnectionResetError(f"{path}: the connection broke while uploading")
        self._name(path, lambda: ZoneFiles.write(self, path, content))

    def rename(self, source: str, target: str) -> None:
        """See `ZoneFiles`."""
        self._name(target, lambda: ZoneFiles.rename(self, source, target))

    def replace(self, source: str, target: str) -> None:
        """See `ZoneFiles`."""
        self._name(target, lambda: ZoneFiles.replace(self, source, target))

    def _name(self, path: str, act: Callable[[], None]) -> None:
        """Give a file its name, with what happens to the publisher there."""
        if not _is_final(path) or not self._interruption.strikes(upload=False):
            act()
            return
        harm = self._interruption.harm
        if harm is FaultKind.REFUSED:
            raise ConnectionRefusedError(f"{path}: the storage refused")
        if harm is FaultKind.RIVAL_BEFORE:
            self._interruption.rival()
        act()
        if harm is FaultKind.LOST_ANSWER:
            raise TimeoutError(f"{path}: no answer came")
        if harm is FaultKind.CRASH:
            raise SimulatedCrash(path)
        if harm is FaultKind.RIVAL_AFTER:
            self._interruption.rival()


def _is_final(path: str) -> bool:
    """Whether a file of this name is read by the mirror: no part is temporary."""
    *folders, name = Path(path).parts
    return bool(_FINAL.fullmatch(name)) and not any(folder.startswith(("_", ".")) for folder in folders)


@dataclass(frozen=True)
class Scenario:
    """One exercise.

    Attributes:
        name: what happens, in a few words.
        plays: each plays it one way in a world of its own; returns whether what was to happen did happen.
        remedy: what a publisher does that survives it.
    """

    name: str
    plays: tuple[Callable[[Harness], bool], ...]
    remedy: str


def _write_during_the_initial_load(world: Harness) -> bool:
    def meanwhile() -> None:
        world.source.update(1, city="Steyr")  # read already
        world.source.update(4, city="Traun")  # not read yet
        world.source.delete(3)
        world.source.insert(0, city="Leonding")  # behind the cursor
        world.source.insert(9, city="Ansfelden")  # before it
        world.source.update(9, city="Marchtrenk")

    world.source.meanwhile = meanwhile
    world.settle()
    happened = world.source.meanwhile is None
    world.settle()
    return happened


def _key_change(world: Harness) -> bool:
    world.settle()
    world.source.update(2, id=20)
    world.settle()
    world.source.update(20, city="Steyr")
    world.source.update(3, id=30, city="Traun")
    world.source.update(30, id=31)
    world.settle()
    return True


def _rapid_changes(world: Harness) -> bool:
    world.settle()
    source = world.source
    for key, passing in ((3, 7), (4, 8)):  # twice, so that it falls into one file however many changes that takes
        source.delete(key)
        source.insert(key, city="Steyr")
        source.update(1, amount=key)
        source.insert(passing, city="Traun")
        source.delete(passing)
    source.insert(7, city="Enns")
    source.update(7, city="Perg")
    source.update(7, city="Wels")
    world.settle()
    return True


def _interrupted(world: Harness, harm: FaultKind) -> bool:
    """Harm at the first file of changes; the source goes on meanwhile."""
    world.settle()
    _some_changes(world.source)
    interruption = Interruption(harm)
    world.run(interruption)
    _more_changes(world.source)
    world.settle()
    return interruption.has_struck


def _second_file_fails(world: Harness) -> bool:
    """A publisher that lands one file a run meets it in its next run."""
    world.settle()
    interruption = Interruption(FaultKind.REFUSED, number=2)
    for key in range(50, 62):
        world.source.insert(key, city="Steyr", amount=key)
    world.run(interruption)
    _some_changes(world.source)
    world.run(interruption)
    _more_changes(world.source)
    world.settle()
    return interruption.has_struck


def _lost_state(world: Harness) -> bool:
    world.settle()
    _some_changes(world.source)
    world.settle()
    world.state.clear()
    _more_changes(world.source)
    world.settle()
    return True


def _schema_change(world: Harness) -> bool:
    world.settle()
    world.source.update(1, city="Steyr")
    world.source.add_column("note", str)
    world.source.insert(5, city="Traun", note="new")
    world.source.update(2, note="known")
    world.settle()
    world.source.update(3, note="later")
    world.settle()
    return True


def _two_at_once(world: Harness, harm: FaultKind, *, loaded: bool) -> bool:
    """A second publisher acts while the first is about to name its file, or just has; the source goes on, too."""
    if loaded:
        world.settle()
    _some_changes(world.source)

    def rival() -> None:
        world.source.update(4, city="Perg")
        world.source.insert(70, city="Grein")
        world.rival()

    interruption = Interruption(harm, rival=rival)
    world.run(interruption)
    _more_changes(world.source)
    world.settle()
    return interruption.has_struck


def _some_changes(source: Source) -> None:
    source.insert(5, city="Steyr", amount=50)
    source.update(1, city="Traun")
    source.delete(2)


def _more_changes(source: Source) -> None:
    source.update(1, city="Leonding")
    source.insert(6, city="Perg", amount=60)
    source.delete(5)


EXERCISES = (
    Scenario(
        "write during the initial load",
        (_write_during_the_initial_load,),
        "note the source's position before the first row is read, then publish every change behind it as 4 and 2: "
        "a row may be in the load already (LZ-4.13, LZ-4.3)",
    ),
    Scenario("key change", (_key_change,), "publish it as 2 with the old key, then 4 or 0 with the new row (LZ-4.7)"),
    Scenario(
        "rapid changes to one key",
        (_rapid_changes,),
        "keep the source's order within a file and between files; no grouping by kind (LZ-4.2)",
    ),
    Scenario(
        "failed temporary upload",
        (partial(_interrupted, harm=FaultKind.UPLOAD_CUT),),
        "write to a name that begins with `_`, rename only after the upload has succeeded, begin anew after a failure "
        "(LZ-3.9, LZ-3.10)",
    ),
    Scenario(
        "lost rename answer",
        (partial(_interrupted, harm=FaultKind.LOST_ANSWER),),
        "after a failed rename look whether the name is there before doing anything else; a number that is there is "
        "never written again (LZ-3.13)",
    ),
    Scenario(
        "crash after publish",
        (partial(_interrupted, harm=FaultKind.CRASH),),
        "at the start read from the landing zone how far you are: keep the position in the change file itself; the "
        "newest file always stays (LZ-8.1)",
    ),
    Scenario(
        "second file fails",
        (_second_file_fails,),
        "stop at the first file that fails, and go on from there in the next run: no later file under its number, no "
        "number left out (LZ-3.3)",
    ),
    Scenario(
        "lost state",
        (_lost_state,),
        "find the position in the newest change file; or delete the table folder and land everything anew (LZ-7.3)",
    ),
    Scenario(
        "schema change",
        (_schema_change,),
        "read the columns with every run; a new nullable column may come with any file (LZ-5.3)",
    ),
    Scenario(
        "two publishers at once",
        (
            partial(_two_at_once, harm=FaultKind.RIVAL_BEFORE, loaded=True),
            partial(_two_at_once, harm=FaultKind.RIVAL_AFTER, loaded=True),
            partial(_two_at_once, harm=FaultKind.RIVAL_BEFORE, loaded=False),
        ),
        "rename so that a taken name is refused (`If-None-Match: *`), and where it is, read again how far you are "
        "(LZ-3.13)",
    ),
)


@dataclass(frozen=True)
class SourceChange:
    """One change as a database's log tells it.

    Attributes:
        position: its place in the log, counted from 1.
        kind: what happened.
        before: the full row before; None for an insert.
        after: the full row after; None for a delete. An update may have changed the key, too.
    """

    position: int
    kind: Literal["insert", "update", "delete"]
    before: Row | None
    after: Row | None


class Source:
    """The table `Orders` with the key `id`: what a publisher copies.

    A publisher reads `name`, `keys`, `columns`, `position`, `rows()` and `changes()`; the kit does the rest.

    Attributes:
        name: the table's name.
        keys: the key columns.
        columns: the columns there are now, with the Python types of their values; every one may be None but the key.
    """

    def __init__(self) -> None:
        self.name = "Orders"
        self.keys = ("id",)
        self.columns: dict[str, type] = {"id": int, "city": str, "amount": int}
        self.meanwhile: Callable[[], None] | None = None
        self._log: list[SourceChange] = []
        self._rows: dict[int, Row] = {
            key: {"id": key, "city": city, "amount": key * 10}
            for key, city in enumerate(("Linz", "Wels", "Graz", "Enns"), 1)
        }

    @property
    def position(self) -> int:
        """The position of the newest change; 0 before the first."""
        return len(self._log)

    def rows(self) -> Iterator[Row]:
        """Every row, one by one, by a cursor without a snapshot: it may miss or meet what changes meanwhile."""
        at = -1
        while (key := min((key for key in self._rows if key > at), default=None)) is not None:
            yield self._rows[key]
            at = key
            if self.meanwhile and key > min(self._rows):
                happening, self.meanwhile = self.meanwhile, None
                happening()

    def changes(self, after: int) -> list[SourceChange]:
        """The changes behind a position, in order. The rows that were there at first are in no change."""
        return self._log[after:]

    def add_column(self, name: str, kind: type) -> None:
        """A new column; rows have None in it."""
        self.columns[name] = kind
        self._rows = {key: {**row, name: None} for key, row in self._rows.items()}

    def insert(self, key: int, **values: object) -> None:
        """A new row."""
        self._write("insert", None, {**dict.fromkeys(self.columns), "id": key, **values})

    def update(self, key: int, **values: object) -> None:
        """Other values in a row; `id` among them is a key change."""
        self._write("update", self._rows[key], {**self._rows[key], **values})

    def delete(self, key: int) -> None:
        """A row less."""
        self._write("delete", self._rows[key], None)

    def truth(self) -> dict[int, Row]:
        """The rows now, by key."""
        return dict(self._rows)

    def former(self, key: int) -> list[Row]:
        """The states a key's row had before."""
        return [change.before for change in self._log if change.before is not None and change.before["id"] == key]

    def _write(self, kind: Literal["insert", "update", "delete"], before: Row | None, after: Row | None) -> None:
        self._log.append(SourceChange(self.position + 1, kind, before, after))
        if before is not None:
            del self._rows[before["id"]]
        if after is not None:
            self._rows[after["id"]] = after


RUNS_TO_SETTLE = 4
RIVAL_SECONDS = 0.5  # a rival that waits for its turn gets it when the first is done
LAST_SECONDS = 10.0
LISTED = 5
RAISING = "the publisher must survive this: a run that nothing disturbs must not end with an exception"
_HOME = Path(__file__).parents[1]
_LIBRARIES = tuple(Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib"))


class Harness:
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
        return [found.full_message for found in self._mirror.diagnostics if found.severity is not Severity.INFO]

    def _run_publisher(self, files: ZoneFiles) -> None:
        try:
            self._publish(self.source, files, self.state)
        except (Exception, SimulatedCrash) as failure:  # noqa: BLE001 - whatever ends a publisher's run
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


class ScenarioOutcome(str, Enum):
    """How an exercise ended."""

    SURVIVED = "survived"
    FAILED = "FAILED"
    NOT_REACHED = "NOT REACHED"  # the publisher never came to the point at which it was to be disturbed


@dataclass(frozen=True)
class ScenarioResult:
    """What became of one exercise.

    Attributes:
        name: the exercise.
        outcome: how it ended.
        faults: what is wrong, in words: of the mirrored table against the source's, and of what the mirror refused.
        remedy: what a publisher does that survives it; `""` where it was survived.
        diagnostics: warnings and errors of the mirror on the way, as messages.
    """

    name: str
    outcome: ScenarioOutcome
    faults: tuple[str, ...] = ()
    remedy: str = ""
    diagnostics: tuple[str, ...] = ()

    @property
    def survived(self) -> bool:
        """Whether the mirrored table was the source's in the end."""
        return self.outcome is ScenarioOutcome.SURVIVED

    def __str__(self) -> str:
        lines = [f"{self.outcome.value:<11}  {self.name}", *(f"    {fault}" for fault in self.faults)]
        if not self.survived:
            lines += [f"    the mirror said: {message}" for message in self.diagnostics]
            lines += [textwrap.fill(self.remedy, 110, initial_indent="    -> ", subsequent_indent="       ")]
        return "\n".join(lines)


@dataclass(frozen=True)
class ConformanceReport:
    """What a publisher survives; `str()` is the text for people."""

    results: tuple[ScenarioResult, ...]

    @property
    def survived(self) -> bool:
        """Whether all exercises were."""
        return all(result.survived for result in self.results)

    def __str__(self) -> str:
        count = sum(result.survived for result in self.results)
        return "\n".join([f"the publisher survives {count} of {len(self.results)} exercises", *map(str, self.results)])

    def assert_all_survived(self) -> None:
        """Raises `AssertionError` with the whole report where an exercise was not survived, or not reached."""
        __tracebackhide__ = True
        if not self.survived:
            raise AssertionError(str(self))

    def to_json(self) -> list[dict[str, Any]]:
        """The same as plain values."""
        return [
            {
                "name": result.name,
                "outcome": result.outcome.value.lower(),
                "faults": list(result.faults),
                "remedy": result.remedy,
                "diagnostics": list(result.diagnostics),
            }
            for result in self.results
        ]


def check_publisher(publish: Publish, *, only: Collection[str] = (), config: Config | None = None) -> ConformanceReport:
    """Drive a publisher through the exercises; starts no JVM.

    Args:
        publish: called as `publish(source, files, state)`. Each call is one run of the publisher's process: it
            publishes what is not yet published of `source` (a `Source`) through `files` (a `ZoneFiles`), and returns
            or raises. `state` is a mapping that is still there in its next run: its checkpoint. What it keeps
            elsewhere, the kit cannot take from it; what it does past `files`, the kit cannot interrupt.
        only: names of exercises; all by default.
        config: the mirror's options.

    Raises:
        UsageError: no exercise has such a name.
    """
    return ConformanceReport(tuple(_result(exercise, publish, config) for exercise in _chosen(only)))


def _chosen(only: Collection[str]) -> list[Scenario]:
    known = {exercise.name: exercise for exercise in EXERCISES}
    for name in only:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            raise UsageError(f"{name}: no such exercise", f"Did you mean {near[0]}?" if near else ", ".join(known))
    return [exercise for name, exercise in known.items() if not only or name in only]


def _result(exercise: Scenario, publish: Publish, config: Config | None) -> ScenarioResult:
    """The first way of playing it that was not survived, or the last."""
    result = ScenarioResult(exercise.name, ScenarioOutcome.SURVIVED)
    for play in exercise.plays:
        result = _played(exercise, play, publish, config)
        if not result.survived:
            break
    return result


def _played(
    exercise: Scenario, play: Callable[[Harness], bool], publish: Publish, config: Config | None
) -> ScenarioResult:
    with Harness(publish, config) as world:
        happened = play(world)
        faults, said = tuple(world.faults()), tuple(world.diagnostics())
        remedy = world.remedy(exercise.remedy)
    if faults:
        return ScenarioResult(exercise.name, ScenarioOutcome.FAILED, faults, remedy, said)
    if not happened:
        why = "it was never at the point where it was to be disturbed: it read or wrote another way"
        remedy = "read with `source.rows()`, and write and rename change files through `files`"
        return ScenarioResult(exercise.name, ScenarioOutcome.NOT_REACHED, (why,), remedy, said)
    return ScenarioResult(exercise.name, ScenarioOutcome.SURVIVED, diagnostics=said)
