"""Records a scenario, enumerates what a power cut may leave at each moment, and opens each state with the engine."""

from __future__ import annotations

import copy
import hashlib
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mirror_engine import RunResult
from mirror_engine.errors import TableDamaged
from mirror_engine.landing_zone.layout import TABLES
from power_cuts import recorder
from power_cuts.disk import Disk
from power_cuts.place import Place
from power_cuts.scenarios import SAID, SCENARIOS, ordered, shop_of, small

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = "shop"
SYNCS = 3  # by which all is caught up


class State(NamedTuple):
    """What may be found, and when."""

    moment: int  # operations done
    words: str
    has_caught_up: bool  # the engine had said so
    files: dict[str, tuple[int, bytes | None]]

    def __str__(self):
        said = ", after the engine said that it has caught up" if self.has_caught_up else ""
        return f"operation {self.moment}, {self.words}{said}"


@dataclass(frozen=True)
class Recording:
    """A scenario that was played to its end.

    Attributes:
        first: the disk before it.
        operations: what was asked of the file system.
        allowed: by table the rows that a reader may see, None for no table.
        after: by table the rows in the end.
    """

    name: str
    first: Disk
    operations: Sequence[recorder.Operation]
    allowed: dict[str, list]
    after: dict[str, list]

    def states(self) -> Iterator[State]:
        """All that differ, in the order of their moments."""
        disk, seen, said = copy.deepcopy(self.first), set(), False
        for moment in range(len(self.operations) + 1):
            if moment:
                disk.do(self.operations[moment - 1])
                said |= self.operations[moment - 1].path == SAID
            for words, found in disk.states():
                files = {path.partition("/")[2]: each for path, each in found.items() if _is_seen(path)}
                key = _digest(files), said
                if key not in seen:
                    seen.add(key)
                    yield State(moment, words, said, files)


def _is_seen(path):
    """Whether it is of ROOT; what SQLite maps to memory it makes anew."""
    return path.startswith(f"{ROOT}/") and not path.endswith("-shm")


def _digest(files):
    found = hashlib.blake2b()
    for path, (_, content) in sorted(files.items()):
        size = -1 if content is None else len(content)
        found.update(f"{path}\0{size}\0".encode() + (content or b""))
    return found.digest()


def play(name, library, home, planted="") -> tuple[Recording, Place]:
    """Record a scenario in an empty folder, which becomes one state after the other then.

    `planted` names a bug that the engine has meanwhile.

    Raises:
        AssertionError: not everything was recorded.
    """
    scenario, root, pool = SCENARIOS[name], home / ROOT, home.with_name(f"{home.name}.pool")
    root.mkdir()
    pool.mkdir()
    shop = shop_of(scenario, root)
    with small():
        scenario.before(shop)
        before = shop.contents()
    first = Disk(home)
    place = Place(root, pool, {path.partition("/")[2]: each for path, each in first.first.items() if path != ROOT})
    program = [sys.executable, "-m", "power_cuts.scenarios", name, str(root), planted]
    log = home.with_name(f"{home.name}.record")
    operations = recorder.record(library, home, program, log, PYTHONPATH=str(Path(__file__).parents[1]))
    _check(first, operations, home)
    with small():
        shop.sync()  # what the act did not apply
        after = shop.contents()
        allowed = {table: [before.get(table)] for table in {**before, **after}}
        for table, found in allowed.items():
            if scenario.may_be_gone:
                found.append(None)
            versions = [int(path.stem) for path in (root / TABLES / table / "_delta_log").glob("*.json")]
            for version in sorted(versions):
                with shop.mirror() as mirror, suppress(TableDamaged):  # vacuumed
                    found.append(ordered(mirror.read_table(table, version=version)))
    return Recording(name, first, operations, allowed, after), place


def _check(first, operations, home):
    """What was recorded makes the folder that is there; a file that is mapped to memory was not written."""
    disk = copy.deepcopy(first)
    for operation in operations:
        disk.do(operation)
    recorded = {path: content for path, (_, content) in disk.tree().items()}
    found = {
        path.relative_to(home).as_posix(): None if path.is_dir() else path.read_bytes() for path in home.rglob("*")
    }
    differ = {path for path in recorded.keys() | found.keys() if recorded.get(path, 0) != found.get(path, 0)}
    assert not {path for path in differ if not path.endswith("-shm")}


def faults(recording, shop):
    """What is wrong with the state that is there: in words, or nothing."""
    try:
        return [*_seen(recording, shop), *_caught_up(recording, shop)]
    except Exception as error:  # noqa: BLE001 - whatever it is, an engine must open what a power cut left
        return [f"{type(error).__name__}: {error}"]


def _seen(recording, shop):
    """What a reader sees that is in no version of a table."""
    contents = shop.contents()
    for table, allowed in recording.allowed.items():
        if contents.get(table) not in allowed:
            yield f"a reader sees {contents.get(table)} in {table}, which is none of {allowed}"
    for table in contents.keys() - recording.allowed.keys():
        yield f"{table} is there"


def _caught_up(recording, shop):
    """What is wrong after the engine went on."""
    for _ in range(SYNCS):
        with shop.mirror() as mirror:
            report = mirror.sync()
        if report.result is RunResult.CAUGHT_UP and not report.commits:
            break
    if report.result is not RunResult.CAUGHT_UP or report.commits:
        yield f"{report.result.name} with {report.commits} commits: {report}"
    if (contents := shop.contents()) != recording.after:
        yield f"rows are {contents} instead of {recording.after}"
    with shop.mirror() as mirror:
        for table in contents:
            files = Counter(path for entry in mirror.history(table) for path in entry.files)
            yield from (f"{path} is in {count} commits of {table}" for path, count in files.items() if count > 1)
