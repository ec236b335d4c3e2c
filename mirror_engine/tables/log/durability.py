"""fsync of commits before they are recorded: neither Spark nor deltalake does it.

Once a commit is recorded, the change files it holds are moved away, and one day deleted: the table is then the only
copy. What is brought where, and what is left to the file system: docs/decisions/0009-durability.md.
"""

from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import unquote

from mirror_engine.errors import StorageUnavailable, TableDamaged
from mirror_engine.tables.log.record import commits_after
from mirror_engine.tables.log.tables_folder import LOG_FOLDER

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_SYNCS = 4
_NO_FOLDER_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}  # from file systems that need none


def make_durable(folder: Path, since: int) -> None:
    """Fsync every commit after a version: data files, then the log's, then the folders that name them.

    Args:
        folder: of the table.
        since: a version that is durable already; -1 for none: then the folders above the table come, too.

    Raises:
        TableDamaged: a data file that the log names is not there in full: power was lost before it was written.
        StorageUnavailable: an fsync failed.
    """
    try:
        _sync_commits(folder, since)
    except OSError as error:
        raise StorageUnavailable(
            f"{folder}: cannot be fsynced: {error.strerror or error}",
            "Check the disk and the rights on the folder.",
        ) from error


def _sync_commits(folder: Path, since: int) -> None:
    sizes: dict[str, int] = {}
    logged = [f"{LOG_FOLDER}/_last_checkpoint"]
    vectors: list[Path] = []
    for version, commit in commits_after(folder, since):
        sizes = {**{path: size for path, size in sizes.items() if path not in commit.removed}, **commit.added}
        logged += [f"{LOG_FOLDER}/{version:020}.{kind}" for kind in ("json", "crc", "checkpoint.parquet")]
        if commit.has_vectors:
            vectors = list(folder.glob("deletion_vector*.bin"))
    data = {folder / unquote(path): size for path, size in sizes.items() if _is_inside(path)}
    _refuse_torn(folder, data)
    # Hadoop's checksum of a `_last_checkpoint` before this one: it refuses what differs
    (folder / LOG_FOLDER / "._last_checkpoint.crc").unlink(missing_ok=True)
    with ThreadPoolExecutor(_SYNCS) as pool:  # a disk writes several files at once faster than one by one
        list(pool.map(sync_file, (*data, *vectors)))
    for name in logged:
        sync_file(folder / name)
    for each in _folders(folder, data, is_new=since < 0):
        sync_folder(each)


def sync_folder(folder: Path) -> None:
    """Fsync the names in a folder.

    Raises:
        OSError: it failed.
    """
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise
    finally:
        os.close(opened)


def sync_file(file: Path) -> None:
    """Fsync a file, and the checksum that Hadoop may write for it; absent is no error.

    Raises:
        OSError: it failed.
    """
    for each in (file, file.with_name(f".{file.name}.crc")):
        with suppress(FileNotFoundError):
            opened = os.open(each, os.O_RDONLY)
            try:
                os.fsync(opened)
            finally:
                os.close(opened)


def _is_inside(path: str) -> bool:
    """Whether a data file is in the table's folder: other programs may name any path."""
    return "://" not in path and not path.startswith(("/", "file:"))


def _refuse_torn(folder: Path, data: dict[Path, int]) -> None:
    for file, size in data.items():
        found = file.stat().st_size if file.exists() else None
        if found != size:
            state = "is not there" if found is None else f"has {found} bytes of {size}"
            raise TableDamaged(folder, f"{file.name}, which the Delta log names, {state}")


def _folders(folder: Path, data: Iterable[Path], *, is_new: bool) -> Iterable[Path]:
    """Every folder in which a name is new, the deepest first: each is durable before it is named."""
    found = {folder, folder / LOG_FOLDER}
    for file in data:
        found.update(above for above in file.parents if above.is_relative_to(folder))
    if is_new:
        found.update(folder.parents[:2])  # a schema's folder, and `ROOT/Tables`
    return sorted(found, key=lambda each: len(each.parts), reverse=True)
