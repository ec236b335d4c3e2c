"""Pull: copy a landing zone to a folder of this machine, archived files at their old paths; resumable."""

from __future__ import annotations

import json
import os
import shutil
import threading
from concurrent.futures import CancelledError, ThreadPoolExecutor, as_completed
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich import filesize

from mirror_engine.engine.lock import lock_root
from mirror_engine.errors import ConcurrentModification, UsageError
from mirror_engine.events import SetupProgress, ignore
from mirror_engine.landing_zone.layout import ENGINE, OLDER_ZONE, ZONE
from mirror_engine.landing_zone.listing import Kind
from mirror_engine.landing_zone.names import (
    METADATA_FILE,
    PARTNER_EVENTS_FILE,
    READY_TO_DELETE_INFO,
    SCRATCH_FOLDER,
    TableName,
    find_table,
)
from mirror_engine.landing_zone.text import count
from mirror_engine.storage.base import joined
from mirror_engine.storage.local import LocalStorage, os_errors
from mirror_engine.storage.roots import check_place
from mirror_engine.storage.zone_view import ARCHIVES, RestoredView, in_table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from mirror_engine.events import Listener
    from mirror_engine.landing_zone.listing import Entry
    from mirror_engine.storage.base import Storage

RECORD = f"{ENGINE}/pull.json"  # the URL, and of each file that was pulled its path and entity tag there
PARTS = f"{ENGINE}/pull"  # files that are being copied
FORMAT = 1  # of the record
WORKERS = 8  # files at once: a request for a small file takes longer than its bytes
CHUNK_BYTES = 1024 * 1024
FILES_PER_RECORD = 500
MAX_ATTEMPTS = 3  # at a file that changes while it is read
ALWAYS = frozenset({METADATA_FILE, PARTNER_EVENTS_FILE})  # however old


@dataclass(frozen=True)
class PullFile:
    """One file: where it is at the source and where it goes, both from ROOT, and its entry at the source."""

    source: str
    target: str
    entry: Entry


@dataclass(frozen=True)
class PullPlan:
    """What a pull copies."""

    files: tuple[PullFile, ...]  # in the order of their paths at the source
    present: int  # files that are here already
    older: int  # files that were left out because of their time
    restored: int  # archived files that are at their old paths here
    not_restored: tuple[str, ...]  # archived files that stay there: another one is at the old path (LZ-3.13)
    recreated: tuple[str, ...]  # table folders that are others than before (LZ-7.3); their old files are removed

    @property
    def byte_count(self) -> int:
        return sum(file.entry.size for file in self.files)


@dataclass(frozen=True)
class Pull:
    """A zone to be copied."""

    source: Storage  # a ROOT, to which nothing is written
    url: str  # its name, without a credential
    root: Path  # new, empty, or pulled before from the same URL
    tables: Sequence[str] = ()  # by name; all where there are none
    since_ns: int = 0  # older change files are left out; nanoseconds since 1970
    default_schema: str = "dbo"  # of tables outside a schema folder
    listen: Listener = ignore  # called with `SetupProgress`

    def run(self, confirm: Callable[[PullPlan], None] = lambda _: None) -> PullPlan:
        """Copy what is not here yet. Killed at any moment, the next run goes on.

        `confirm` is called before anything is copied; whatever it raises ends the pull.

        Raises:
            UsageError: there is no landing zone at the source, or the folder holds something else.
            UnknownTable: no such table.
            RootLocked: an engine or another pull works on the folder.
            TransientError: the source or this disk failed, or a file keeps changing; run it again.
        """
        record = self._opened()
        is_new = not (self.root / RECORD).exists()
        with ExitStack() as locked:
            if not is_new:
                locked.enter_context(lock_root(self.root))
            local = LocalStorage(self.root)
            view, folders, entries, older = self._listed()
            known = record["folders"]
            recreated = tuple(folder for folder in folders if known.get(folder, folders[folder]) != folders[folder])
            gone = tuple(f"{folder}/" for folder in recreated)
            pulled = {target: file for target, file in record["files"].items() if not target.startswith(gone)}
            targets, not_restored = _targets(entries)
            here = RestoredView(local)
            present: list[PullFile] = []
            pending: list[PullFile] = []
            for path, target in sorted(targets.items()):
                file = PullFile(path, target, entries[path])
                is_present = not target.startswith(gone) and _is_present(file, here, pulled)
                (present if is_present else pending).append(file)
            restored = sum(path != target for path, target in targets.items())
            plan = PullPlan(tuple(pending), len(present), older, restored, not_restored, recreated)
            confirm(plan)
            if is_new:  # made now, so that a refused pull leaves nothing
                _write(self._opened(), local)
                locked.enter_context(lock_root(self.root))
            for folder in recreated:
                local.delete(folder)
            record["folders"] = {**known, **folders}
            record["files"] = {**pulled, **{file.target: [file.source, _etag(file.entry)] for file in present}}
            _write(record, local)
            self._copy_all(view, plan, record, local)
        return plan

    def _opened(self) -> dict[str, Any]:
        """Return the record of a folder that was pulled before, an empty one for a new or empty folder."""
        check_place(self.root)
        path = self.root / RECORD
        with os_errors("open", str(path)):
            if path.exists():
                record: dict[str, Any] = json.loads(path.read_bytes())
                if record["format"] != FORMAT:
                    raise UsageError(f"{path}: written by another version of mirror-engine", "Choose a new folder.")
                if record["url"] != self.url:
                    raise UsageError(f"{self.root} was pulled from {record['url']}", "Choose a new folder.")
                return record
            if self.root.exists() and (not self.root.is_dir() or any(self.root.iterdir())):
                help = "Choose a new or empty folder, or one that was pulled from the same URL before."
                raise UsageError(f"{self.root} is not empty", help)
        return {"format": FORMAT, "url": self.url, "folders": {}, "files": {}}

    def _listed(self) -> tuple[Storage, dict[str, str], dict[str, Entry], int]:
        """Scan the zone; return identities of table folders, entries of files by path, and how many are too old.

        An archive is listed after its table folder, so that no file is missed that is archived meanwhile.
        """
        zone = next((zone for zone in (ZONE, OLDER_ZONE) if _is_folder(self.source.stat(zone))), None)
        if zone is None:
            raise UsageError(f"{self.url}: there is no landing zone ({ZONE})", "Give the URL of a mirrored database.")
        view = self.source.scan(zone)
        folders: dict[str, str] = {}
        files: dict[str, Entry] = {}
        pending = [zone]
        while pending:
            folder = pending.pop()
            for entry in view.list(folder) or ():
                path = joined(folder, entry.name)
                if _is_folder(entry) and entry.name != SCRATCH_FOLDER:
                    pending.append(path)
                    if in_table(path) == (path, []):
                        folders[path] = entry.identity
                elif entry.kind is Kind.FILE and entry.name != READY_TO_DELETE_INFO:
                    files[path] = entry
            self.listen(SetupProgress(count(len(files), "file"), doing="listing"))
        if self.tables:
            schema = self.default_schema
            names = {TableName.from_folder(it.removeprefix(f"{zone}/")).delta_folder(schema): it for it in folders}
            chosen = {names[find_table(table, list(names), schema)] for table in self.tables}
            folders = {folder: folders[folder] for folder in chosen}
            files = {
                path: files[path] for path in files if path.rpartition("/")[0] == zone or in_table(path)[0] in chosen
            }
        recent = {
            path: entry for path, entry in files.items() if entry.modified_ns >= self.since_ns or entry.name in ALWAYS
        }
        return view, folders, recent, len(files) - len(recent)

    def _copy_all(self, view: Storage, plan: PullPlan, record: dict[str, Any], local: LocalStorage) -> None:
        total, copied, stop = plan.byte_count, 0, threading.Event()
        local.delete(PARTS)  # of a pull that was killed
        pool = ThreadPoolExecutor(WORKERS, "pull")
        try:
            with os_errors("make", PARTS):
                (self.root / PARTS).mkdir(parents=True)
            jobs = {
                pool.submit(self._copy, view, file, f"{PARTS}/{number}", local, stop): file
                for number, file in enumerate(plan.files)
            }
            for number, job in enumerate(as_completed(jobs), start=1):
                record["files"][jobs[job].target] = [jobs[job].source, job.result()]
                copied += jobs[job].entry.size
                done = f"{filesize.decimal(copied)} of {filesize.decimal(total)}"
                self.listen(SetupProgress(done, number, len(jobs), "copying"))
                if number % FILES_PER_RECORD == 0:
                    _write(record, local)
        finally:
            stop.set()  # where one file failed, others are being copied
            pool.shutdown(cancel_futures=True)
            _write(record, local)
            shutil.rmtree(self.root / PARTS, ignore_errors=True)

    def _copy(self, view: Storage, file: PullFile, part: str, local: LocalStorage, stop: threading.Event) -> str:
        """Copy one file, under its name once it is whole; returns its entity tag."""
        path, storage, expected = file.source, view, file.entry
        for _ in range(MAX_ATTEMPTS):
            try:
                reader = storage.open(path)
            except FileNotFoundError:  # no longer as it was listed: archived since, or replaced
                path, storage = RestoredView(self.source).archived_at(file.source) or path, self.source
                expected = storage.stat(path) or expected
                continue
            size = 0
            with reader, os_errors("write", PARTS), (self.root / part).open("wb") as writer:
                while chunk := reader.read(CHUNK_BYTES):
                    if stop.is_set():
                        raise CancelledError
                    writer.write(chunk)
                    size += len(chunk)
            entry = storage.stat(path)
            if entry and entry.size == size and entry.is_same(expected):
                with os_errors("write", file.target):
                    os.utime(self.root / part, ns=(entry.modified_ns, entry.modified_ns))
                local.move(part, file.target)
                return _etag(entry)
            expected = entry or expected
        raise ConcurrentModification(f"{file.source}: it changed, or was removed, while it was read", "Run pull again.")


def pulled_from(root: Path) -> str | None:
    """Return the URL that a folder was pulled from; None where it was not."""
    with suppress(OSError, ValueError, KeyError):
        return str(json.loads((root / RECORD).read_bytes())["url"])
    return None


def _targets(entries: Mapping[str, Entry]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return where each file goes, and the archived files at whose old paths there is another one (LZ-3.13).

    A file that was archived while the zone was listed is there twice, and counts once.
    """
    targets: dict[str, str] = {path: path for path in entries}
    sources, kept = dict(targets), []
    for archive in ARCHIVES:
        for path in entries:
            table, below = in_table(path)
            if below[:1] != [archive]:
                continue
            old = joined(table, "/".join(below[1:]))
            other = sources.get(old)
            if other and _content(entries[other]) != _content(entries[path]):
                kept.append(path)
                continue
            targets.pop(other or "", None)
            targets[path], sources[old] = old, path
    return targets, tuple(kept)


def _is_folder(entry: Entry | None) -> bool:
    return entry is not None and entry.kind is Kind.FOLDER


def _content(entry: Entry) -> tuple[int, int]:
    return entry.size, entry.modified_ns


def _etag(entry: Entry) -> str:
    return f"{entry.identity}:{entry.size}:{entry.modified_ns}"


def _is_present(file: PullFile, here: RestoredView, pulled: Mapping[str, Sequence[str]]) -> bool:
    """Whether a file is here, also if an engine archived it; one that stores rename may have another entity tag."""
    entry = here.stat(file.target)
    if entry is None or entry.size != file.entry.size:
        return False
    source, etag = pulled.get(file.target, ("", ""))
    return etag == _etag(file.entry) or (source != file.source and _content(entry) == _content(file.entry))


def _write(record: Mapping[str, Any], local: LocalStorage) -> None:
    local.write(RECORD, json.dumps(record, ensure_ascii=False).encode())
