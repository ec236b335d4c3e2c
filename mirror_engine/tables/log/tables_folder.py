"""The folders of Delta tables below `ROOT/Tables`, their removal in one step, and files that a killed process left."""

from __future__ import annotations

import atexit
import errno
import functools
import hashlib
import itertools
import json
import os
import re
import shutil
import tempfile
import threading
import uuid
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirror_engine.errors import RootLocked, StorageUnavailable, UsageError
from mirror_engine.storage.local import stat_entry
from mirror_engine.tables.log.durability import sync_folder
from mirror_engine.tables.log.log_names import commit_name, log_file, version_of
from mirror_engine.tables.log.record import commit_file, commits_from, head_of, last_checkpoint
from mirror_engine.tables.log.table_path import HINT, LOG_FOLDER, StorePath, for_each, table_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from mirror_engine.storage.store_url import Place
    from mirror_engine.tables.log.table_path import TablePath

PROCESS = uuid.uuid4().hex[:12]  # in the names of what this process spills
_LISTED = 1000  # names that every store lists by one request
EASY_FOR_DELTALAKE = re.compile(r"[A-Za-z0-9_./ -]*")


class TablesFolder:
    """`ROOT/Tables`, and a scratch folder with a trash next to it, of the same file system where that is local."""

    def __init__(self, root: Place, scratch: Path) -> None:
        self._root = table_path(root)
        self._scratch, self._trash = scratch, scratch.parent / "trash"
        self._lock = threading.Lock()
        self._is_clean = False

    def path(self, table: str) -> TablePath:
        """A table's folder; `UsageError` for a name that leads out of `ROOT/Tables`."""
        parts = table.split("/")
        if any(part in {"", ".", ".."} or "\0" in part for part in parts):
            raise UsageError(f"{table!r}: not the name of a table folder")
        return self._root / table

    def tables(self) -> Sequence[str]:
        """Every folder that holds a Delta log, or one that cannot be looked into; here or one level down, sorted."""
        folders: list[TablePath] = [folder for pattern in ("*/", "*/*/") for folder in self._root.glob(pattern)]
        are_tables = for_each(self._root, _may_be_table, folders)
        found = [folder for folder, is_table in zip(folders, are_tables, strict=True) if is_table]
        return sorted("/".join(folder.parts[len(self._root.parts) :]) for folder in found)

    def folder_identity(self, folder: str) -> tuple[str, bool]:
        """See `DeltaReader`."""
        path = self._root / folder if folder else self._root
        if isinstance(path, StorePath):
            return "", False
        try:
            opened = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return "", path.is_symlink()
        try:
            found = stat_entry("", opened)
            return found.identity, found.is_mount or path.is_symlink()
        finally:
            os.close(opened)

    def log_stamp(self, table: str, since: int) -> str:
        """Version, size and modification time of a table's newest commit from `since` on; `""` for none or unknown."""
        try:
            return max(commits_from(self.path(table), since), default=(0, ""))[1]
        except (OSError, StorageUnavailable):
            return ""

    def needed_stamp(self, table: str) -> str:
        """See `DeltaReader`: the commits since the checkpoint that the log's hint names, and both of these."""
        folder, found = self.path(table), hashlib.blake2b(digest_size=12)
        if isinstance(folder, StorePath):
            return ""
        log = f"{folder}/{LOG_FOLDER}"
        try:
            checkpoint, names = last_checkpoint(folder)
            with suppress(FileNotFoundError):
                _add_stamp(found, log, HINT, *names)
            with suppress(FileNotFoundError):
                for version in itertools.count(checkpoint + 1 if names else 0):
                    _add_stamp(found, log, commit_name(version))
        except OSError:
            return ""
        return found.hexdigest()

    def drop(self, table: str, check: Callable[[], None] = lambda: None) -> None:
        """Take a table away in one step, then delete it; absent is no error. After an error it is still there."""
        folder = self.path(table)
        if isinstance(folder, StorePath):
            _retire_in_store(folder, check, is_begun=False)
            return
        goes = self._trash / uuid.uuid4().hex
        try:
            self._trash.mkdir(parents=True, exist_ok=True)
            folder.rename(goes)
            try:
                sync_folder(folder.parent)  # else a power cut may leave it where it was, half deleted
            except OSError:
                goes.rename(folder)
                raise
        except OSError as error:
            if not (folder.exists() or goes.exists()):
                return
            help = (
                f"Put both on one file system: {self._root} and {self._trash}."
                if error.errno == errno.EXDEV
                else "Check the rights on the folder."
            )
            raise StorageUnavailable(
                f"{table}: the table's folder cannot be removed: {error.strerror}", help
            ) from error
        shutil.rmtree(goes, ignore_errors=True)  # what stays is cleared at the next start

    def finish_drop(self, table: str, check: Callable[[], None] = lambda: None) -> None:
        """Delete the rest of a table that was dropped in a store, or its late commit; `check` as in `drop`."""
        folder = self.path(table)
        if isinstance(folder, StorePath):
            _retire_in_store(folder, check, is_begun=True)

    def take_back(self, table: str, generation: str) -> None:
        """See `DeltaWriter`."""
        folder = self.path(table)
        if isinstance(folder, StorePath):
            _take_back_late((folder / LOG_FOLDER).iterdir(), lambda: None, generation)

    def clear_leftovers(self) -> None:
        """Delete leftovers of killed processes, once; only a process that holds ROOT calls it. Raises nothing."""
        with self._lock:
            if not self._is_clean:
                shutil.rmtree(self._trash, ignore_errors=True)
                for batch in self._scratch.glob("batch-*"):
                    shutil.rmtree(batch, ignore_errors=True)
                remove_of_other_processes([*self._scratch.glob("rows-*.arrow"), *self._scratch.glob("copy-*.parquet")])
                self._is_clean = True


# In a log, with the newest file, its size and time: a drop of that table has begun, and is to be finished
_DROPPED = re.compile(r"_dropped-(\d{20}.+)-(\d+-\d+)")
_FEATURES = ["mirrorEngineDropped"]
_PROTOCOL = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": _FEATURES, "writerFeatures": _FEATURES}
_DROP = json.dumps({"protocol": _PROTOCOL}).encode()  # begins the last commit of a table


def _retire_in_store(folder: StorePath, check: Callable[[], None], *, is_begun: bool) -> None:
    """Take a table away in one step, by a commit after which no reader opens it; then delete its files.

    Stores delete file by file, and what is left of a log may read as another table. From the mark on, this engine sees
    no table in the folder. Only what was listed before the mark is deleted: what came later may be the next engine's.
    With `is_begun` a drop is finished, and none begun. `check` raises where another engine may have taken over.
    """
    log = folder / LOG_FOLDER
    in_log = list(log.rglob("*"))
    marks = [file for file in in_log if _DROPPED.fullmatch(file.name)]
    is_whole = _has_table(in_log)
    commits = sorted((file for file in in_log if log_file(file.name)), key=lambda each: each.name)
    if is_begun and is_whole:
        _take_back_late(in_log, check)
        return
    if not (is_whole or marks):
        return
    files, final = list(folder.rglob("*")), marks
    check()
    if commits:
        newest = commits[-1]
        mark = log / f"_dropped-{newest.name}-{_stamp(newest)}"
        mark.create(b"")
        last = log / commit_name(int(newest.name[:20]) + 1)
        try:
            last = _commit_unreadable(last, check)
        except FileExistsError:  # another writer was first
            _retire_in_store(folder, check, is_begun=False)
            return
        final = [newest, last, *marks, mark]

    def remove(file: StorePath) -> None:
        check()
        file.remove()

    first = [file for file in files if file not in final]
    list(for_each(folder, remove, sorted(first, key=lambda file: (file in in_log, file.name))))
    for file in final:
        remove(file)
    if folder.url.has_folders:
        above = {"/".join(file.parts[:depth]) for file in files for depth in range(len(folder.parts), len(file.parts))}
        for path in sorted(above, reverse=True):
            replace(folder, path=path).remove()


def _take_back_late(log: Iterable[StorePath], check: Callable[[], None], only: str = "") -> None:
    """Remove the newest commits of a log that came after their table was dropped, and another one made in its place.

    Their engine was stopped between its last look at the lease and the commit, or the store was slow. A log has the
    records of one generation, that of its first one. `only`: the generation of commits that may be removed; `""`: any,
    and that of a drop. A checkpoint may come late without its commit.
    """
    files = list(log)
    _take_back_late_checkpoints(files, check)
    commits = sorted(
        (file for file in files if (named := log_file(file.name)) and named.is_commit), key=lambda file: file.name
    )
    first = ""  # the generation of the log's first record; it is read where the newest commit has one
    while commits:
        newest = commits.pop()
        with suppress(FileNotFoundError):
            content = newest.read_bytes()
            written = _generation(content)
            before = (_generation(file.read_bytes()) for file in commits) if written and not first else ()
            first = first or next(filter(None, before), "")
            is_late = content.startswith(_DROP) or (written and first not in {"", written})
            if not is_late or only not in {"", written}:
                return
            check()
            for file in files:  # its checkpoint has the rows of the dropped table
                if file.name == HINT or file.name.startswith(f"{newest.name[:20]}.checkpoint"):
                    file.remove()
            newest.remove()


def _take_back_late_checkpoints(log: Sequence[StorePath], check: Callable[[], None]) -> None:
    """Remove the hinted and the newest checkpoint of a log if they are of another table than its commits, all there."""
    named = sorted((file.name, file) for file in log if log_file(file.name))
    commits = [file for name, file in named if name.endswith(".json")]
    if not commits or version_of(commits[0].name) != 0:
        return
    hints = [file for file in log if file.name == HINT]
    hinted = last_checkpoint(commits[0].parent.parent)[1] if hints else ()
    checkpoints = [file for name, file in named if name.endswith(".checkpoint.parquet")]
    for file in checkpoints:
        if file.name in hinted or file is checkpoints[-1]:
            with suppress(FileNotFoundError):
                described = _tables_of(file)
                known = (_actions(commit.read_bytes(), "metaData") for commit in commits)
                if described and not any(described & {each["id"] for each in of} for of in known):
                    check()
                    for each in (*hints, file):
                        each.remove()


def _tables_of(checkpoint: StorePath) -> set[str]:
    """The ids of the tables that a checkpoint describes: one, or none where it is damaged, which is left to readers."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - who merely looks whether there is something to do needs no Arrow

    from mirror_engine.tables.arrow_types import PARSE_ERRORS  # noqa: PLC0415 - as above

    try:
        described = pq.read_table(checkpoint.open(), columns=["metaData"]).column("metaData").to_pylist()
        return {each["id"] for each in described if each}
    except FileNotFoundError:
        raise
    except (KeyError, *PARSE_ERRORS):
        return set()


def _generation(commit: bytes) -> str:
    """The generation in a commit's record; empty for a commit without one."""
    with suppress(AttributeError):
        for information in _actions(commit, "commitInfo"):
            record = head_of(information.get("userMetadata"))
            return record.progress.generation if record else ""
    return ""


def _actions(commit: bytes, kind: str) -> Iterator[Any]:
    """The actions of one kind in a commit, without those that cannot be read."""
    for line in commit.splitlines():
        with suppress(ValueError, TypeError, KeyError):
            yield json.loads(line)[kind]


def _commit_unreadable(last: StorePath, check: Callable[[], None]) -> StorePath:
    """Commit a version that no reader opens, and return it; withdrawn if the lease may be lost."""
    info = {"commitInfo": {"operation": "DROP", "drop": uuid.uuid4().hex}}
    content = b"\n".join((_DROP, json.dumps(info).encode()))
    check()
    last.create(content)
    try:
        with suppress(FileNotFoundError):
            last = replace(last, listed=last.stat())
        check()
    except (RootLocked, StorageUnavailable):
        with suppress(FileNotFoundError, StorageUnavailable):
            if last.read_bytes() == content:
                last.remove()
        raise
    return last


def _stamp(file: StorePath) -> str:
    found = file.stat()
    return f"{found.st_size}-{found.st_mtime_ns}"


def _has_table(log: Iterable[StorePath]) -> bool:
    """Whether the files of a log are those of a table of which no drop has begun.

    The mark of a drop that came too late names a commit that is there no longer, or another one.
    """
    log = list(log)
    commits = {file.name: file for file in log if log_file(file.name)}
    for mark in filter(None, (_DROPPED.fullmatch(file.name) for file in log)):
        newest = commits.get(mark[1])
        if (newest and _stamp(newest) == mark[2]) or (commits and min(commits)[:20] > mark[1][:20]):
            return False
    return bool(commits)


def _add_stamp(found: hashlib.blake2b, log: str, *names: str) -> None:
    """Hash what distinguishes log files from others of the same names."""
    for name in names:
        status = os.stat(f"{log}/{name}")  # noqa: PTH116 - of many tables
        found.update(f"{name} {status.st_size} {status.st_mtime_ns} {status.st_ino}\n".encode())


def is_table(folder: TablePath) -> bool:
    """Whether the folder holds a Delta log with at least one commit, and no drop has begun.

    Costs a request in a store, and one more for a log of 1,000 files.
    """
    try:
        log = folder / LOG_FOLDER
        if not isinstance(log, StorePath):
            # else it was cleaned up, or there is none
            if commit_file(folder, 0).exists() or any((log / name).exists() for name in last_checkpoint(folder)[1]):
                return True
            with os.scandir(log) as entries:  # read as far as needed
                return any(log_file(entry.name) for entry in entries)
        first = list(itertools.islice(log.rglob("*"), _LISTED))
        if len(first) < _LISTED:
            return _has_table(first)
        behind = {file.name for file in log.rglob("*", "_dropped-")}  # a list that begins behind all commits
        return _has_table(log.rglob("*")) if any(map(_DROPPED.fullmatch, behind)) else True
    except (FileNotFoundError, NotADirectoryError):
        return False


def _may_be_table(folder: TablePath) -> bool:
    try:
        return is_table(folder)
    except (OSError, StorageUnavailable):  # reading it fails alike, for this table alone
        return True


def plain_folder(folder: Path) -> Path:
    """A folder with a link to a table's log, for a table whose name deltalake might misread.

    deltalake decodes `%41`, splits at a backslash, refuses control characters and sees no history behind `#` or `[`,
    also through a link to the folder, which it resolves; a link inside the folder it follows as it is.
    """
    plain = _plain_folders() / hashlib.sha256(str(folder).encode("utf-8", "surrogateescape")).hexdigest()
    plain.mkdir(exist_ok=True)
    link = plain / LOG_FOLDER
    if not link.is_symlink():
        link.symlink_to(folder / LOG_FOLDER)
    return plain


@functools.cache
def _plain_folders() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="mirror-engine-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def remove_of_other_processes(files: Iterable[TablePath]) -> None:
    """Delete files that another process left: it was killed, as one process at a time locks ROOT."""
    for file in files:
        if PROCESS not in file.name:
            with suppress(OSError, StorageUnavailable):
                file.unlink()
