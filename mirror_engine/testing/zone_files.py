"""The files of a landing zone as a publisher under test handles them, and how the kit interrupts it there."""

from __future__ import annotations

import os
import re
import shutil
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_FINAL = re.compile(r"[0-9]{20}\.[^.]+|[^_.].*\.(?:parquet|csv)", re.IGNORECASE)
_CHANGE_FILE = re.compile(r"[0-9]{20}|\.(?:parquet|csv|tsv)", re.IGNORECASE)


class Crash(BaseException):
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


class Harm(str, Enum):
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

    def __init__(self, harm: Harm, number: int = 1, rival: Callable[[], None] = lambda: None) -> None:
        self.harm = harm
        self.rival = rival
        self.has_struck = False
        self._left = number

    def strikes(self, *, upload: bool) -> bool:
        """Whether it is done now, at an upload or when a file gets its final name."""
        if self.has_struck or upload != (self.harm is Harm.UPLOAD_CUT):
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
        if harm is Harm.REFUSED:
            raise ConnectionRefusedError(f"{path}: the storage refused")
        if harm is Harm.RIVAL_BEFORE:
            self._interruption.rival()
        act()
        if harm is Harm.LOST_ANSWER:
            raise TimeoutError(f"{path}: no answer came")
        if harm is Harm.CRASH:
            raise Crash(path)
        if harm is Harm.RIVAL_AFTER:
            self._interruption.rival()


def _is_final(path: str) -> bool:
    """Whether a file of this name is read by the mirror: no part is temporary."""
    *folders, name = Path(path).parts
    return bool(_FINAL.fullmatch(name)) and not any(folder.startswith(("_", ".")) for folder in folders)
