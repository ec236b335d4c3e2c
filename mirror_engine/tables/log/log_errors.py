"""What goes wrong where a Delta log is read: the error tree's words for it, and which file is damaged."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.exceptions import DeltaError

from mirror_engine.errors import RESTORE_HELP, StorageUnavailable, TableDamaged, is_panic
from mirror_engine.tables.arrow_types import PARSE_ERRORS
from mirror_engine.tables.log.log_names import log_file
from mirror_engine.tables.log.record import last_checkpoint, read_commit
from mirror_engine.tables.log.table_path import LOG_FOLDER, StorePath

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from mirror_engine.tables.log.table_path import TablePath

_WITHOUT_CHECKPOINT = (
    "Delete _last_checkpoint and the checkpoint from the table's _delta_log: the commits have the same content."
)


def damaged(folder: TablePath, words: str) -> TableDamaged:
    """The error to raise for a table whose log cannot be read.

    `words` are those of the log's reader, used where nothing better is found. Raises OSError where the log's folder
    cannot be read at all.
    """
    names = sorted(entry.name for entry in (folder / LOG_FOLDER).iterdir())
    files = [found for found in map(log_file, names) if found]
    commits, checkpoints = ({file.version for file in files if file.is_commit is each} for each in (True, False))
    newest = max(checkpoints, default=-1)
    needed = {version for version in commits if version > newest}
    try:
        for version in sorted(needed) or sorted(commits)[-1:]:
            read_commit(folder, version)
    except TableDamaged as error:
        return error
    if fault := _checkpoint_fault(folder, names, checkpoints):
        is_complete = commits == set(range(len(commits))) and bool(commits)
        return TableDamaged(folder, fault, _WITHOUT_CHECKPOINT if is_complete else RESTORE_HELP)
    if missing := set(range(newest + 1, max(needed, default=0))) - needed:
        return TableDamaged(folder, f"commit {min(missing)} of its Delta log is missing")
    return TableDamaged(folder, f"its Delta log cannot be read: {words.splitlines()[0]}")


def _checkpoint_fault(folder: TablePath, names: Sequence[str], checkpoints: Collection[int]) -> str:
    log, newest = folder / LOG_FOLDER, max(checkpoints, default=None)
    hinted, files = last_checkpoint(folder)
    if files and hinted not in checkpoints:
        return f"checkpoint {hinted} of its Delta log is missing"
    for name in names:
        file = log_file(name)
        if file and file.version == newest and not file.is_commit and name.endswith(".parquet"):
            content = (log / name).read_bytes()
            try:
                pq.read_metadata(pa.BufferReader(content))
            except PARSE_ERRORS:
                return f"checkpoint {newest} of its Delta log is damaged"
    return ""


CONTENT_ERRORS = (DeltaError, ValueError, RecursionError)
_OF_THE_STORE = re.compile(  # in deltalake's words, which draw a tree
    r"\(os error \d+\)|Generic (LocalFileSystem|MicrosoftAzure|S3|GCS) error"
    r"|The operation lacked (valid authentication|the necessary privileges)"
)


@contextlib.contextmanager
def reading_log(folder: TablePath) -> Iterator[None]:
    """What is raised while a table's log is read, in the error tree's words."""
    try:
        try:
            yield
        except BaseException as error:
            if not isinstance(error, CONTENT_ERRORS) and not is_panic(error):
                raise
            if isinstance(folder, StorePath) and _OF_THE_STORE.search(str(error)):
                raise OSError(str(error)) from error
            raise damaged(folder, first_line(error) or type(error).__name__) from error
    except OSError as error:
        if isinstance(folder, StorePath) and not isinstance(error, FileNotFoundError):
            with folder.errors("read"):
                raise
        reason = error.strerror or first_line(error)
        raise StorageUnavailable(
            f"{folder}: the Delta table cannot be read: {reason}",
            "Check the disk and the rights on the folder.",
        ) from error


def first_line(error: BaseException) -> str:
    """What an error of deltalake says first; what follows may show rows, and a request with its credential."""
    return str(error).partition("\n")[0].partition(": Error performing ")[0]
