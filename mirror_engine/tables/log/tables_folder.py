"""The folders of Delta tables below `ROOT/Tables`, their removal in one step, and files that a killed process left."""

from __future__ import annotations

import atexit
import errno
import functools
import hashlib
import re
import shutil
import tempfile
import threading
import uuid
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from mirror_engine.errors import StorageUnavailable, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

LOG_FOLDER = "_delta_log"
PROCESS = uuid.uuid4().hex[:12]  # in the names of what this process spills
_COMMIT_OR_CHECKPOINT = re.compile(r"\d{20}\.(json|checkpoint.*parquet)")
_EASY_FOR_DELTALAKE = re.compile(r"[A-Za-z0-9_./ -]*")


class TablesFolder:
    """`ROOT/Tables`, and on the same file system a scratch folder with a trash next to it."""

    def __init__(self, root: Path, scratch: Path) -> None:
        self._root = root.absolute()
        self._scratch, self._trash = scratch, scratch.parent / "trash"
        self._lock = threading.Lock()
        self._is_clean = False

    def path(self, table: str) -> Path:
        """A table's folder.

        Raises:
            UsageError: the name leads out of `ROOT/Tables`.
        """
        parts = table.split("/")
        if any(part in {"", ".", ".."} or "\0" in part for part in parts):
            raise UsageError(f"{table!r}: no name of a table folder")
        return self._root.joinpath(*parts)

    def tables(self) -> Sequence[str]:
        """Every folder that holds a Delta log, or one that cannot be looked into; here or one level down, sorted."""
        found = []
        for pattern in ("*", "*/*"):
            found += [
                folder.relative_to(self._root).as_posix()
                for folder in self._root.glob(pattern)
                if _may_be_table(folder)
            ]
        return sorted(found)

    def retire(self, table: str) -> None:
        """Take a table away in one step, then delete it; absent is no error.

        Raises:
            StorageUnavailable: it is still there.
        """
        goes = self._trash / uuid.uuid4().hex
        try:
            self._trash.mkdir(parents=True, exist_ok=True)
            self.path(table).rename(goes)
        except OSError as error:
            if not self.path(table).exists():
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

    def clear_leftovers(self) -> None:
        """Delete what killed processes left; once, and only by one that commits: it holds ROOT. Raises nothing."""
        with self._lock:
            if not self._is_clean:
                shutil.rmtree(self._trash, ignore_errors=True)
                for batch in self._scratch.glob("batch-*"):
                    shutil.rmtree(batch, ignore_errors=True)
                remove_of_other_processes([*self._scratch.glob("rows-*.arrow"), *self._scratch.glob("copy-*.parquet")])
                self._is_clean = True


def log_stamp(folder: Path, since: int) -> str:
    """Version, size and modification time of the newest of a table's commits from `since` on; `""` for none."""
    stamp, version = "", since
    with suppress(OSError):
        while True:
            commit = (folder / LOG_FOLDER / f"{version:020}.json").stat()
            stamp = f"{version} {commit.st_size} {commit.st_mtime_ns}"
            version += 1
    return stamp


def is_table(folder: Path) -> bool:
    """Whether the folder holds a Delta log with at least one commit."""
    try:
        return any(_COMMIT_OR_CHECKPOINT.fullmatch(entry.name) for entry in (folder / LOG_FOLDER).iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return False


def _may_be_table(folder: Path) -> bool:
    try:
        return is_table(folder)
    except OSError:  # reading it fails alike, for this table alone
        return True


def readable_by_deltalake(folder: Path) -> Path:
    """The folder itself, or where deltalake might misread its name, a plain folder with links to its log.

    deltalake decodes `%41`, splits at a backslash, refuses control characters and sees no history behind `#` or `[`,
    also through a link to the folder, which it resolves; a link inside the folder it follows as it is.
    """
    if _EASY_FOR_DELTALAKE.fullmatch(str(folder)):
        return folder
    plain = _plain_folders() / hashlib.sha256(str(folder).encode("utf-8", "surrogateescape")).hexdigest()
    plain.mkdir(exist_ok=True)
    for name in [LOG_FOLDER, *(found.name for found in folder.glob("deletion_vector*.bin"))]:
        link = plain / name
        if not link.is_symlink():
            link.symlink_to(folder / name)
    return plain


@functools.cache
def _plain_folders() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="mirror-engine-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def remove_of_other_processes(files: Iterable[Path]) -> None:
    """Delete files that another process left: it was killed, as one process at a time locks ROOT."""
    for file in files:
        if PROCESS not in file.name:
            with suppress(OSError):
                file.unlink()
