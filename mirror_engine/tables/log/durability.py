"""fsync of commits before they are recorded: neither Spark nor deltalake does it.

Once a commit is recorded, the change files it holds are moved away, and one day deleted: the table is then the only
copy. What is brought where, and what is left to the file system: docs/decisions/durability.md.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from mirror_engine.errors import StorageUnavailable, TableDamaged
from mirror_engine.tables.log.log_names import checkpoint_names, checksum_name, commit_name
from mirror_engine.tables.log.record import commits_after, last_checkpoint
from mirror_engine.tables.log.table_path import HINT, LOG_FOLDER, file_in, for_each
from mirror_engine.tables.log.vectors import vector_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mirror_engine.tables.log.table_path import TablePath

_SYNCS = 4
_failed: set[Path] = set()  # files whose fsync failed in this process
# By table folder, files of its next commit, on the disk with their names; nobody writes to them any more
_synced: defaultdict[Path, set[Path]] = defaultdict(set)
_NO_FOLDER_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}  # from file systems that need none


def make_durable(folder: TablePath, since: int, until: int | None = None) -> None:
    """Fsync every commit after a version: data files, then the log's, then the folders that name them.

    Nothing is newer than `until`. After -1 the folders above the table come, too. What a store has answered for is
    durable; there it is only looked whether every data file is there in full. Change data that is absent was vacuumed:
    unlike a data file, no later commit says that it is gone.

    Raises:
        TableDamaged: a data file that the log names is not there in full: power was lost before it was written. Or it
            is outside of the table's folder.
        StorageUnavailable: an fsync failed.
    """
    if until is not None and until <= since:
        return
    sizes: dict[str, int] = {}
    versions: list[int] = []
    vectors: set[str] = set()
    try:
        for version, commit in commits_after(folder, since):
            sizes = {path: size for path, size in sizes.items() if path not in commit.removed}
            sizes |= {path: action["size"] for path, action in commit.added.items()}
            sizes |= {
                path: size for path, size in commit.change_data.items() if file_in(folder, unquote(path)).exists()
            }
            versions.append(version)
            vectors |= {file for vector in commit.vectors.values() if (file := vector_file(vector))}
            if version == until:
                break
        data = [*_checked_files(folder, sizes), *(file_in(folder, name) for name in vectors)]
        if isinstance(folder, Path):
            _sync_commits(folder, since, versions, data)
    except OSError as error:
        raise StorageUnavailable(
            f"{folder}: cannot be fsynced: {error.strerror or error}",
            "Check the disk and the rights on the folder.",
        ) from error


def _checked_files(folder: TablePath, sizes: Mapping[str, int]) -> Sequence[Any]:
    """The files that a log names, each there in full."""
    files = {file_in(folder, unquote(path)): size for path, size in sizes.items()}

    def check(named: tuple[TablePath, int]) -> TablePath:
        file, size = named
        state = "is missing"
        with suppress(FileNotFoundError):
            if (found := file.stat().st_size) == size:
                return file
            state = f"has {found} bytes of {size}"
        raise TableDamaged(folder, f"{file.name}, which the Delta log names, {state}")

    return list(for_each(folder, check, files.items()))


def _sync_commits(folder: Path, since: int, versions: Sequence[int], data: Sequence[Path]) -> None:
    log = folder / LOG_FOLDER
    logged: list[Path] = []
    for version in versions:
        logged += [log / name for name in (commit_name(version), checksum_name(version), *checkpoint_names(version))]
    checkpoint, names = last_checkpoint(folder)
    if is_new := checkpoint in versions:
        logged = list(dict.fromkeys([*logged, *(log / name for name in names), log / HINT]))
    # Hadoop's checksum of a hint before this one: it refuses what differs
    (log / f".{HINT}.crc").unlink(missing_ok=True)
    sidecars = list(log.glob("_sidecars/*.parquet")) if is_new else []
    new = [file for file in data if file not in _synced[folder]]
    _sync_files([*new, *sidecars])
    for file in logged:
        if file not in _synced[folder]:
            sync_file(file)
    named = {log, *(file.parent for file in sidecars), *_folders_of(folder, new)}
    if since < 0:
        named.update([folder, *folder.parents[:2]])  # a schema's folder, and `ROOT/Tables`
    _sync_folders(named)
    _synced.pop(folder, None)  # also what no commit names: a later one removed the file


def sync_new(folder: Path, names: Iterable[str]) -> None:
    """Fsync files of a table that the next commit names, and their names, so that it is never durable before them."""
    files = [folder / name for name in names]
    _sync_files(files)
    _sync_folders(_folders_of(folder, files))
    _synced[folder].update(files)


def already_synced(folder: Path, name: str) -> None:
    """Note that a new file of a table was fsynced before it got its name."""
    _synced[folder].add(folder / name)


def forget_new(folder: Path, names: Iterable[str]) -> None:
    """Forget files of a commit that was not made."""
    _synced[folder].difference_update(folder / name for name in names)


def _folders_of(folder: Path, files: Iterable[Path]) -> set[Path]:
    """The folders of a table, itself among them, that have the names of files, or of folders above them."""
    found: set[Path] = set()
    for file in files:
        found.add(folder)
        above = file.parent
        while above not in found:
            found.add(above)
            above = above.parent
    return found


def _sync_folders(folders: Iterable[Path]) -> None:
    """Fsync folders, the deepest first: each is durable before it is named."""
    for each in sorted(folders, key=lambda each: len(each.parts), reverse=True):
        sync_folder(each)


def _sync_files(files: Sequence[Path]) -> None:
    """Fsync files; a disk writes several at once faster than one by one."""
    if len(files) > 1:
        with ThreadPoolExecutor(_SYNCS) as pool:
            list(pool.map(sync_file, files))
    else:
        list(map(sync_file, files))


def sync_folder(folder: Path) -> None:
    """Fsync the names in a folder; OSError where it failed."""
    try:
        _sync(folder, os.O_DIRECTORY)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise


def sync_file(file: Path) -> None:
    """Fsync a file, and the checksum that Hadoop may write for it; absent is no error.

    A file whose fsync failed is written again: Linux holds its pages for clean, so that the next fsync would succeed.
    """
    for each in (file, file.with_name(f".{file.name}.crc")):
        with suppress(FileNotFoundError):
            if each in _failed:
                copy = each.with_name(f".{each.name}.tmp")
                shutil.copy(each, copy)
                _sync(copy)
                copy.replace(each)
                _failed.discard(each)
            try:
                _sync(each)
            except FileNotFoundError:
                raise
            except OSError:
                _failed.add(each)
                raise


def _sync(path: Path, flags: int = 0) -> None:
    opened = os.open(path, os.O_RDONLY | flags)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
