"""Writes a commit of the Delta log whole, and only if there is none of that version."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from mirror_engine.delta.tables_folder import LOG_FOLDER
from mirror_engine.errors import CommitConflict, StorageUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}  # from file systems without hard links
_HERE, _NO_REPLACE = -100, 1  # AT_FDCWD and RENAME_NOREPLACE of Linux


def put_commit(folder: Path, version: int, actions: Iterable[dict[str, Any]]) -> None:
    """Write the actions of one version of a table.

    Raises:
        CommitConflict: there is one of that version already.
        StorageUnavailable: nothing was written.
    """
    text = "".join(json.dumps(action, ensure_ascii=False, separators=(",", ":")) + "\n" for action in actions)
    log = folder / LOG_FOLDER
    passing = log / f".{uuid.uuid4().hex}.tmp"
    try:
        log.mkdir(parents=True, exist_ok=True)
        write_through(passing, text)
        _publish(passing, log / f"{version:020}.json")
    except FileExistsError:
        raise CommitConflict(f"{folder.name}: version {version} was written by somebody else") from None
    except OSError as error:
        raise StorageUnavailable(
            f"{folder}: the Delta log cannot be written: {error.strerror or error}",
            "Check the disk and the rights on the folder.",
        ) from error
    finally:
        with suppress(OSError):  # what cannot be written cannot be removed either
            passing.unlink()


def write_through(file: Path, text: str) -> None:
    """Write a file that is on the disk when it gets its name: a commit is never seen torn."""
    with file.open("w", encoding="utf-8") as opened:
        opened.write(text)
        opened.flush()
        os.fsync(opened.fileno())


def _publish(passing: Path, target: Path) -> None:
    """Give a file its final name, unless something has it: a plain rename would replace that."""
    try:
        os.link(passing, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if not _renamed_if_free(passing, target):
            _write_anew(passing, target)


def _renamed_if_free(passing: Path, target: Path) -> bool:
    """Rename in one step, for file systems without hard links; False where the system cannot.

    Raises:
        OSError: it failed; `FileExistsError` where something has the name.
    """
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    if rename(_HERE, os.fsencode(passing), _HERE, os.fsencode(target), _NO_REPLACE) == 0:
        return True
    number = ctypes.get_errno()
    if number in {*_NO_LINKS, errno.EINVAL}:
        return False
    raise OSError(number, os.strerror(number))


def _write_anew(passing: Path, target: Path) -> None:
    """The last resort: for a moment, a reader may see a commit that is empty."""
    content = passing.read_bytes()
    with target.open("xb") as file:
        try:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        except OSError:
            target.unlink()  # half a commit would damage the table
            raise
