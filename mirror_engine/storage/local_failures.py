"""What a local disk's errors mean: absence, or a storage that is not available, with a hint."""

from __future__ import annotations

import errno

from mirror_engine.errors import StorageUnavailable
from mirror_engine.landing_zone.diagnostics import printable

ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG})
HINTS = {
    errno.EACCES: "Give the user that runs the engine rights to it.",
    errno.EPERM: "Give the user that runs the engine rights to it.",
    errno.EROFS: "Mount the file system for writing.",
    errno.ENOSPC: "Free space on the disk.",
    errno.EDQUOT: "Free space in the user's quota.",
    errno.EMFILE: "Raise the limit of open files (ulimit -n).",
    errno.ENFILE: "Raise the machine's limit of open files.",
    errno.EXDEV: "Keep a table folder on one file system.",
    errno.EISDIR: "Remove the folder that stands where a file must go.",
    errno.ENOTDIR: "Remove the file or link that stands where a folder must be.",
    errno.ELOOP: "Remove the link that stands where a folder must be.",
    errno.EEXIST: "Remove the file or link that stands where a folder must be.",
}
OTHER_HINT = "Check the disk, or the share that ROOT lies on."


class told:  # noqa: N801 - read as a word of a sentence, and cheaper than a generator
    """Turns the system's errors into ours, with a hint."""

    def __init__(self, operation: str, path: str) -> None:
        self._operation = operation
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, problem: BaseException | None, __: object) -> None:
        if isinstance(problem, OSError):
            place = printable(self._path) or "ROOT"
            message = f"{place}: cannot {self._operation} it: {problem.strerror or problem}"
            raise StorageUnavailable(message, HINTS.get(problem.errno or 0, OTHER_HINT)) from problem


class absence_allowed:  # noqa: N801 - as above
    """Lets what is absent, or reached only by way of a link, count as nothing."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, problem: BaseException | None, __: object) -> bool:
        return isinstance(problem, OSError) and problem.errno in ABSENT
