"""Judges what engines do, call by call: each commit, each move, each drop; and in the end what is left."""

from __future__ import annotations

import copy
import functools
import json
import math
import re
from dataclasses import dataclass, field
from hashlib import blake2b

import oracle
from oracle_files import Refused

from mirror_engine.engine import segments
from mirror_engine.engine.known_time import UNSEEN_SECONDS
from mirror_engine.landing_zone.layout import ZONE
from mirror_engine.landing_zone.metadata import parse
from mirror_engine.landing_zone.names import METADATA_FILE, READY_TO_DELETE_FOLDER, TableName
from mirror_engine.landing_zone.states import Halted
from mirror_engine.storage.base import NO_IDENTITY
from simulation.disk import Folder

ARCHIVES = (f"/{READY_TO_DELETE_FOLDER}/", "/_ProcessedFiles/")
SLACK_SECONDS = 1200.0  # the time of a file begins before its move, and its process may be paused between
NUMBERED = re.compile(r"([0-9]{20})\.\w+")


@dataclass
class Generation:
    """What one Delta table holds, commit by commit.

    Attributes:
        folder, identity: of the table folder, from the zone's top.
        applied: etags of its files by path, and the versions that applied them.
        contents: of partitions, by digest: when a file with rows was applied last, in seconds.
        made_with: columns that its first commit has beside those of its files; None before. The batch that the table
            was made for was not committed, and the next one had fewer files.
    """

    folder: str
    identity: str
    life: oracle.Life = field(default_factory=lambda: oracle.Life(0))
    applied: dict = field(default_factory=dict)
    versions: dict = field(default_factory=dict)
    contents: dict = field(default_factory=dict)
    before: dict = field(default_factory=dict)
    made_with: set | None = None

    def keep(self, version):
        """Keep what holds at a version."""
        life = dict(vars(self.life), highest=dict(self.life.highest))
        self.before[version] = life, dict(self.applied), dict(self.versions), dict(self.contents)

    def go_back(self, version):
        """Be as at a version."""
        versions = [each for each in self.before if each <= version]
        life, *others = self.before[max(versions)] if versions else (vars(oracle.Life(0)), {}, {}, {})
        vars(self.life).update(life, highest=dict(life["highest"]))
        self.applied, self.versions, self.contents = (type(each)(each) for each in others)


@functools.lru_cache(100_000)
def _parsed(content, metadata, name):
    return ORACLE.parsed(content, json.loads(metadata), name)


ORACLE = oracle.Oracle(None)


def parsed(content, metadata, path):
    """A file's rows as the oracle reads them; nobody changes them."""
    partition = path.rpartition("/")[0]
    return _parsed(content, json.dumps(metadata), f"{partition}/file" if partition else "file")


class Judge:
    """Holds every effect of the engines against the protocol; a fault is an AssertionError in the task that did it."""

    def __init__(self, world):
        self._world = world
        self._oracle = oracle.Oracle(None, untyped=world.config.all_null_columns == "untyped")
        self._tables = {}  # generations, by when their log was born
        self._archived_at = {}
        self.halted = set()  # folders whose next file breaks the protocol, when all was last looked at
        self.commits = self.files = 0

    def _identity(self, node):
        return node.identity if self._world.has_folders else NO_IDENTITY

    def records(self, table, progress):
        """A ledger is told of a commit: it is durable."""
        folder = table.delta_folder(self._world.config.delta_default_schema)
        log = self._world.tables.logs.get(folder)
        head = log and log.newest_record(log.version)[0]
        if head and head.progress.generation == progress.generation:
            assert progress.delta_version <= log.durable, f"{folder}: recorded before it is durable"

    def foreign_rows(self, log):
        """Another program changed the rows: the next commit goes on from there."""
        if found := self._tables.get(log.born):
            found.life.rows = [{key.casefold(): value for key, value in row.items()} for row in log.commits[-1].rows]
            found.keep(log.version)

    def comes_late(self, machine):
        """A commit to a table that was dropped is in the one that was made in its place."""
        assert not self._world.holds_lease(machine), "who holds the lease commits to a table that was dropped"
        self._world.reached["late commit in a table made anew"] += 1

    def rolls_back(self, log):
        """A power cut took commits that were not durable."""
        if found := self._tables.get(log.born):
            found.go_back(log.version)
        self._world.reached["commits lost in a power cut"] += 1

    def commits_batch(self, machine, table, log, batch, record):
        """A commit was made: its files are the next ones, and the rows are those of a replay of them."""
        head = record.progress
        found = self._tables.get(log.born)
        if found is None or (found.folder, found.identity) != (record.folder, head.identity):
            assert found is None, f"{table}: another folder's files in its table"
            name = TableName.from_folder(record.folder)
            assert name.delta_folder(self._world.config.delta_default_schema) == table, record.folder
            found = self._tables[log.born] = Generation(record.folder, head.identity)
        if not self._world.holds_lease(machine):
            self._world.reached["lease lost between check and commit"] += 1
        self._world.reached["commit of a dropped folder's files"] += self._is_gone(found)
        repeated = {each.path.rpartition("/")[2] for each in batch.diagnostics if each.code == "ME064"}
        read = {file.path: file for file in batch.files}
        metadata = self._metadata(record.folder, batch.metadata)
        for path, applied in record.applied.files.items():
            assert path not in found.applied, f"{table}: {path} is committed twice"
            place = f"{ZONE}/{record.folder}/{path}"
            content = self._world.disk.versions.get((place, applied.etag))
            assert content is not None, f"{table}: {path} never was {applied.etag}"
            assert blake2b(content, digest_size=16).hexdigest() == applied.digest, f"{table}: {path} has other bytes"
            self._check_order(table, found, path)
            try:
                file = parsed(content, metadata, path)
                self._oracle._apply(found.life, file, metadata)
            except Refused:
                raise AssertionError(f"{table}: {path} breaks the protocol, and is committed") from None
            found.applied[path], found.versions[path] = applied.etag, log.version
            content = path.rpartition("/")[0], applied.digest
            now = self._world.hub.now
            if file.rows and now - found.contents.get(content, -math.inf) < segments.KEPT_SECONDS:
                assert path.rpartition("/")[2] in repeated, f"{table}: {path} has been applied before (ME064)"
                self._world.reached["content applied again"] += 1
            if file.rows:  # a lost ledger may know it no more once its names are forgotten
                found.contents[content] = now
            self.files += 1
        assert read.keys() <= record.applied.files.keys(), f"{table}: a commit does not name its files"
        self._compare(table, found, log)
        found.keep(log.version)
        self.commits += 1
        self._world.reached["commit"] += 1

    def _check_order(self, table, found, path):
        partition, _, name = path.rpartition("/")
        if numbered := NUMBERED.fullmatch(name):
            number, before = int(numbered[1]), found.life.highest.get(partition, 0)
            assert number == before + 1, f"{table}: number {number} of {partition!r} is committed after {before}"
            found.life.highest[partition] = number

    def _compare(self, table, found, log):
        columns = [oracle.Column(column.name, column.type, column.nullable) for column in log.schema.columns]
        known = {column.name for column in found.life.columns}
        if found.made_with is None:
            found.made_with = {column.name for column in columns} - known
            self._world.reached["table made with columns of later files"] += bool(found.made_with)
        early = found.made_with - known
        assert not any(row.get(name) is not None for row in log.rows for name in early), f"{table}: {early} of no file"
        columns = [column for column in columns if column.name not in early]
        assert sorted(columns, key=str) == sorted(found.life.columns, key=str), f"{table}: {columns}"
        rows = [{key.casefold(): value for key, value in row.items()} for row in log.rows]
        expected = oracle.canonical(found.life.rows, found.life.columns)
        assert oracle.canonical(rows, found.life.columns) == expected, f"{table}: other rows at version {log.version}"

    def _metadata(self, folder, wanted):
        """The raw metadata by which a batch was read."""
        place = f"{ZONE}/{folder}/{METADATA_FILE}"
        for (path, _), content in reversed(self._world.disk.versions.items()):
            if path == place:
                metadata, _ = parse(content, path)
                if metadata == wanted:
                    return json.loads(content)
        raise AssertionError(f"{folder}: its metadata never was {wanted}")

    def moves(self, machine, source, entry):
        """A file is moved by an engine: it is applied, durably, or was archived before."""
        self._check_fence(machine, source)
        if not source.startswith(f"{ZONE}/") or any(archive in source for archive in ARCHIVES):
            return
        found, path = self._of_path(source)
        assert found is not None, f"{source} is moved, and its table has no commit"
        generation, log = found
        assert generation.applied.get(path) == entry.etag, f"{source} is moved before it is committed"
        assert log.durable >= generation.versions[path], f"{source} is moved before its commit is durable"
        self._archived_at[entry.identity] = self._world.wall_before_leaps()

    def deletes(self, machine, path, entry):
        """A file is deleted by an engine: it was archived for as long as it is to be."""
        self._check_fence(machine, path)
        if not path.startswith(f"{ZONE}/"):
            return
        assert any(archive in path for archive in ARCHIVES), f"{path} is deleted, and was not archived"
        if entry.identity in self._archived_at:
            since = self._archived_at[entry.identity]
            age, restarts = self._world.wall() - since, sum(at >= since for at in machine.wrong_starts)
            least = self._world.config.delete_processed_after_seconds - restarts * UNSEEN_SECONDS
            assert age >= least - SLACK_SECONDS, f"{path} is deleted after {age:.0f} s of {least:.0f}"
            self._world.reached["archived file deleted"] += 1

    def copies(self, source, entry):
        """A store copies a file for a move: its time begins, unless it has one."""
        if source.startswith(f"{ZONE}/"):
            self._archived_at.setdefault(entry.identity, self._world.wall_before_leaps())

    def _check_fence(self, machine, path):
        """Nobody moves or deletes who lost the lease, unless it was lost after the look at it just before."""
        world = self._world
        is_checked = world.checked.pop(world.hub.current, False)
        if path.startswith(f"{ZONE}/") and not world.holds_lease(machine):
            assert is_checked, f"{path} is moved or deleted by an engine that lost the lease"
            world.reached["lease lost between check and move"] += 1

    def _is_gone(self, generation):
        here = self._world.disk.find(f"{ZONE}/{generation.folder}")
        return not isinstance(here, Folder) or self._identity(here) != generation.identity

    def drops(self, machine, table, log):
        """A Delta table is dropped: its folder is gone, or another one."""
        del machine
        found = self._tables.get(log.born)
        head = log.newest_record(log.version)[0]
        folder = found.folder if found else head and head.folder
        if folder is None:
            return
        identity = found.identity if found else head.progress.identity
        here = self._world.disk.find(f"{ZONE}/{folder}")
        is_there = isinstance(here, Folder) and self._identity(here) == identity
        assert not is_there, f"{table} is dropped, and its folder is there"
        self._world.reached["drop"] += 1

    def _of_path(self, source):
        """The newest generation of the table folder that a file is in, its log, and the file's path from there."""
        place = source.removeprefix(f"{ZONE}/")
        depth = 2 if place.partition("/")[0].endswith(".schema") else 1
        folder = "/".join(place.split("/")[:depth])
        here = self._world.disk.find(f"{ZONE}/{folder}")
        for table, log in self._world.tables.logs.items():
            generation = self._tables.get(log.born)
            if generation and (generation.folder, generation.identity) == (folder, here and self._identity(here)):
                return (generation, log), place[len(folder) + 1 :]
            del table
        return None, place[len(folder) + 1 :]

    def keeps(self, engine):
        """What an engine keeps of tables between two cycles is bounded by the tables that are there, or known."""
        listed = {listing.name for listing in engine.last.zone.tables} if engine.last.zone else None
        if listed is None or engine.last.zone.unlisted:  # these are there, too
            return
        there = {None, *listed, *engine.context.ledger.tables(), *engine.in_progress, *engine.last.plans}
        kept = {
            "tables": {*engine._turns._turns} - there,
            "folders scanned": {*engine.poller._scanned} - there,
            "folders cleaned": {*engine._janitor._cleaned} - there,
            "folders of the ledger": {*engine.context.ledger._folders} - there,
            "looks for external changes": {} if len(engine.context._looks) <= len(there) else {"too many"},
        }
        too_long = [what for what, names in kept.items() if names]
        assert not too_long, f"kept of tables that are gone: {', '.join(too_long)}"

    def left(self):
        """What is not as it is to be once all is quiet, in words; nothing where all has caught up."""
        world, found = self._world, []
        self.halted.clear()
        folders = dict(self._folders())
        by_table = {}
        for folder, node in folders.items():
            name = TableName.from_folder(folder)
            by_table[name.delta_folder(world.config.delta_default_schema)] = (folder, node)
        for table, log in world.tables.logs.items():
            folder, node = by_table.get(table, ("", None))
            generation = self._tables.get(log.born)
            if node is None:
                found.append(f"{table} is still there, and its folder is gone")
            elif generation and generation.identity != self._identity(node):
                found.append(f"{table} is of an earlier folder")
        for table, (folder, node) in by_table.items():
            log = world.tables.logs.get(table)
            generation = self._tables.get(log.born) if log else None
            if generation is None or generation.identity != self._identity(node):
                generation = Generation(folder, self._identity(node))
            found += self._left_in(folder, generation)
        return found or [*self._misjudged()]

    def made_late(self):
        """Tables without a folder, made by an engine after it lost its lease: the next start drops them (stores.md)."""
        running = [machine.process for machine in self._world.machines if machine.context]
        folders = {TableName.from_folder(folder) for folder in dict(self._folders())}
        there = {name.delta_folder(self._world.config.delta_default_schema) for name in folders if name}
        return [
            f"{table} is still there, and its folder is gone"
            for table, log in self._world.tables.logs.items()
            if table not in there and running and log.maker not in running
            if all(process.started < log.made for process in running)
        ]

    def _misjudged(self):
        """Tables whose rows are others than at their last commit, and halts that one of engine and judge sees alone."""
        for table, log in self._world.tables.logs.items():
            if (generation := self._tables.get(log.born)) and not log.late_of_dead:
                self._compare(table, generation, log)
        engines = [machine.engine for machine in self._world.machines if machine.engine and machine.engine.last.zone]
        for engine in engines:
            halted = {table.folder for table, plan in engine.last.plans.items() if isinstance(plan.state, Halted)}
            yield from (f"{folder} is halted, and nothing is wrong" for folder in sorted(halted - self.halted))
            yield from (
                f"{folder} is not halted, and its next file is wrong" for folder in sorted(self.halted - halted)
            )
        if not engines:
            yield "no engine is there"

    def _left_in(self, folder, generation):
        """Files that are to be applied, and are not; one that breaks the protocol holds up all of them."""
        files = self._world.disk.below(f"{ZONE}/{folder}")
        metadata = files.get(METADATA_FILE)
        try:
            metadata = json.loads(metadata.content) if metadata else None
        except ValueError:
            metadata = None
        if not isinstance(metadata, dict):
            return []
        if not self._keeps_keys(generation, metadata):  # the table began while its publisher had described other keys
            self.halted.add(folder)
            return []
        life, waiting = copy.deepcopy(generation.life), []
        extension = "csv" if metadata.get("FileFormat") == "CSV" else "parquet"
        for partition in sorted({path.rpartition("/")[0] for path in files if path[0] != "_"}):
            name = f"{life.highest.get(partition, 0) + 1:020}.{extension}"
            path = f"{partition}/{name}" if partition else name
            if path in files:
                try:
                    self._oracle._apply(life, parsed(files[path].content, metadata, path), metadata)
                except Refused:
                    self.halted.add(folder)
                    return []
                waiting.append(f"{folder}/{path} is not applied")
        return waiting

    @staticmethod
    def _keeps_keys(generation, metadata):
        known = generation.life.keys
        return not known or {key.casefold() for key in known} == {key.casefold() for key in metadata["keyColumns"]}

    def _folders(self):
        zone = self._world.disk.find(ZONE)
        for name, node in zone.names.items() if isinstance(zone, Folder) else ():
            if isinstance(node, Folder) and name.endswith(".schema"):
                for below, table in node.names.items():
                    if isinstance(table, Folder) and below[0] not in "_.":
                        yield f"{name}/{below}", table
            elif isinstance(node, Folder) and name[0] not in "_.":
                yield name, node
