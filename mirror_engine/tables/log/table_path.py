"""Paths of Delta tables' files: on this machine `pathlib.Path`, in a store `StorePath` with the same methods.

What the two do differently is here: how a commit gets its name, a data file its place, and deltalake a table.
"""

from __future__ import annotations

import os
import posixpath
import re
import time
import uuid
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, Self, TypeAlias, cast

from mirror_engine.errors import REBUILD_COMMAND, StorageUnavailable, TableDamaged
from mirror_engine.storage.base import at_once
from mirror_engine.storage.remote import RangedReader
from mirror_engine.storage.store_url import StoreUrl
from mirror_engine.storage.stores import open_storage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from typing_extensions import Buffer

    from mirror_engine.storage.base import R, Storage, T
    from mirror_engine.storage.listing import StoreStorage
    from mirror_engine.storage.store_url import Place

LOG_FOLDER = "_delta_log"
HINT = "_last_checkpoint"  # names the newest checkpoint
MAX_KEPT = 4  # commits of a log that are kept: the newest
_URL = re.compile("[A-Za-z][A-Za-z0-9+.-]*:/")
_FILE_URL = re.compile("^file:(//)?(?=/)", re.IGNORECASE)
_ELSEWHERE_HELP = (
    "Only files in a table's own folder are read. Copy the rows of a shallow clone into a new table; "
    f"rebuild a mirrored table from its change files: {REBUILD_COMMAND}."
)


class FileStat(NamedTuple):
    """What is known of a file in a store, by the names of `os.stat_result`; an ETag without quotes, `""` for none."""

    st_size: int
    st_mtime_ns: int
    etag: str


@dataclass(frozen=True)
class StorePath:
    """A file or folder in a store, with the methods of `pathlib.Path` that tables use.

    A file is there whole or not at all, and durable once it was written. A folder is the beginning of its files'
    names. Every method raises `StorageUnavailable` where the store cannot be asked; those that read a file raise
    FileNotFoundError where it is absent.
    """

    place: StoreUrl  # the folder that `path` is below
    path: str  # `/` between its parts; `""` for `place` itself
    store: Any = field(compare=False, repr=False)  # obstore's, rooted at `place`
    storage: Storage = field(compare=False, repr=False)  # of the same files
    # what is known of the file; `stat` does not ask again
    listed: FileStat | None = field(default=None, compare=False, repr=False)
    # of a log that is looked at as it is at one moment, what was read or written of it; None keeps nothing
    commits: dict[str, tuple[bytes, FileStat]] | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return str(self.url)

    def __reduce__(self) -> tuple[Callable[..., TablePath], tuple[StoreUrl, str]]:
        """Pickle where it is, for another process, which finds credentials of its own."""
        return _reopened, (self.place, self.path)

    def __truediv__(self, below: str) -> Self:
        return replace(self, path=f"{self.path}/{below}" if self.path else below, listed=None)

    @property
    def url(self) -> StoreUrl:
        return self.place / self.path

    @property
    def parts(self) -> tuple[str, ...]:
        """The names on the way to it, from `place`."""
        return tuple(self.path.split("/")) if self.path else ()

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def parent(self) -> Self:
        return replace(self, path=self.path.rpartition("/")[0], listed=None)

    @property
    def stem(self) -> str:
        return Path(self.name).stem

    def sized(self, size: int, modified_ms: int) -> Self:
        """The file with size and modification time from a log, so that the store is not asked."""
        return replace(self, listed=FileStat(size, modified_ms * 1_000_000, ""))

    def errors(self, operation: str, *, is_conditional: bool = False) -> AbstractContextManager[None]:
        """Errors of obstore and deltalake in the error tree's words; as `store_errors`."""
        from mirror_engine.storage.object_store import store_errors  # noqa: PLC0415 - imports an optional library

        return store_errors(operation, self.path, self.place, is_conditional=is_conditional)

    def stat(self) -> FileStat:
        if self.listed:
            return self.listed
        if self.commits and self.path in self.commits:
            return self.commits[self.path][1]
        with self.errors("check"):
            return _status(self.store.head(self.path))

    def exists(self) -> bool:
        return self._now() is not None

    def is_as_listed(self) -> bool:
        """Whether the file is there, as large as it was listed; asks the store."""
        found = self._now()
        return bool(found and self.listed and found.st_size == self.listed.st_size)

    def _now(self) -> FileStat | None:
        with suppress(FileNotFoundError):
            return replace(self, listed=None, commits=None).stat()
        return None

    def read_bytes(self) -> bytes:
        if self.commits and self.path in self.commits:
            return self.commits[self.path][0]
        with self.errors("read"):
            found = self.store.get(self.path)
            content = bytes(found.bytes())
        self._keep(content, _status(found.meta))
        return content

    def _keep(self, content: bytes, status: FileStat) -> None:
        """Keep what a commit holds, so that it is not read again."""
        if self.commits is not None and self.name.endswith(".json"):
            self.commits[self.path] = content, status
            for oldest in sorted(self.commits)[:-MAX_KEPT]:
                self.commits.pop(oldest, None)

    def open(self) -> BinaryIO:
        """A seekable reader that asks for ranges of the file, which nothing replaces."""
        return RangedReader(self.stat().st_size, self.read_range).buffered()

    def read_range(self, start: int, end: int) -> bytes:
        """Bytes of the file; fewer where it ends before."""
        with suppress(EOFError), self.errors("read"):
            return bytes(self.store.get_range(self.path, start=start, end=end))
        return b""

    def iterdir(self) -> Iterator[Self]:
        """Files and folders in a folder, in no order; none where it is absent."""
        return self.glob("*")

    def glob(self, pattern: str) -> Iterator[Self]:
        """Files and folders that match; with a slash at the pattern's end folders alone."""
        first, is_folder, below = pattern.partition("/")
        with suppress(FileNotFoundError), self.errors("list"):
            found = self.store.list_with_delimiter(self.path or None)
            for folder in (replace(self, path=path, listed=None) for path in found["common_prefixes"]):
                if fnmatchcase(folder.name, first):
                    yield from folder.glob(below) if below else [folder]
            yield from () if is_folder else self._matching(found["objects"], first)

    def rglob(self, pattern: str, after: str = "") -> Iterator[Self]:
        """Files however far below that match, those whose path from here sorts after some text."""
        with suppress(FileNotFoundError), self.errors("list"):
            for page in self.store.list(self.path or None, offset=f"{self.path}/{after}" if after else None):
                yield from self._matching(page, pattern)

    def _matching(self, entries: Iterable[Mapping[str, Any]], pattern: str) -> Iterator[Self]:
        files = (replace(self, path=entry["path"], listed=_status(entry)) for entry in entries)
        return (file for file in files if fnmatchcase(file.name, pattern))

    def create(self, content: bytes) -> None:
        """As `create_file`; an answer that was lost is found in what is there."""
        try:
            with self.errors("write", is_conditional=True):
                made = self.store.put(self.path, content, mode="create", use_multipart=False)
            if etag := (made["e_tag"] or "").strip('"'):
                self._keep(content, FileStat(len(content), time.time_ns(), etag))
        except (FileExistsError, StorageUnavailable):
            with suppress(FileNotFoundError):
                if self.read_bytes() == content:
                    return
            raise

    def upload(self, source: Path | Buffer) -> None:
        """Write what a file of this machine or the memory holds, in parts where it is large."""
        with self.errors("write"):
            self.store.put(self.path, source if isinstance(source, Path) else bytes(source))

    def unlink(self, *, missing_ok: bool = True) -> None:  # noqa: ARG002 - stores say nothing of an absent file
        """Delete the file, or a folder with all in it; absent is no error."""
        self.storage.delete(self.path)  # OneLake refuses obstore's way, batches

    def remove(self) -> None:
        """Delete the file as it was listed, or a folder that is empty; absent is no error.

        In Azure and S3 another file of its name stays, which is `StorageUnavailable`, however late the request arrives.
        """
        cast("StoreStorage", self.storage).remove(self.path, self.listed.etag if self.listed else "")


TablePath: TypeAlias = Path | StorePath


def file_in(folder: TablePath, path: str) -> TablePath:
    """Return the file that a log names by its path from the table's folder, percent-decoded.

    An absolute path or a `file:` URL may lead into the folder, too. Links are followed: no client of a store makes one.

    Raises:
        TableDamaged: it is another URL, or leads out of the folder: whoever writes a log could name any file.
    """
    if isinstance(folder, Path):
        root, path = posixpath.normpath(folder), _FILE_URL.sub("", path)
    else:
        root = f"/{folder.url.path}"
    whole = posixpath.normpath(posixpath.join(root, path))
    if not whole.startswith(f"{root}/") and path.startswith("/") and "\0" not in path and isinstance(folder, Path):
        root, whole = (
            os.path.realpath(root),
            os.path.realpath(path),
        )  # the log was written by another name of the folder
    if _URL.match(path):
        raise TableDamaged(folder, "its Delta log names a file by a URL", _ELSEWHERE_HELP)
    if not whole.startswith(f"{root}/") or "\0" in path:
        raise TableDamaged(folder, "its Delta log names a file outside of the table's folder", _ELSEWHERE_HELP)
    return folder / whole[len(root) + 1 :]


def table_path(place: Place) -> TablePath:
    """A folder that tables are in, or one of them."""
    if isinstance(place, StoreUrl):
        return StorePath(place, "", place.object_store(), open_storage(place))
    return place.absolute()


def for_each(
    folder: TablePath,
    call: Callable[[T], R],
    items: Iterable[T],
    weight: Callable[[T], int] = lambda _: 0,
    most: int = 0,
) -> Iterator[R]:
    """Call for each item and yield the results in order; in a store several calls run at once (`at_once`)."""
    if isinstance(folder, StorePath):
        return at_once(folder.storage, call, items, weight, most)
    return map(call, items)


def remove_folder(folder: StorePath) -> None:
    """Delete all in a folder: by one request where a store has folders."""
    if folder.url.has_folders:
        folder.unlink()
    else:
        list(for_each(folder, StorePath.unlink, folder.rglob("*")))


_opened = cache(table_path)


def _reopened(place: StoreUrl, path: str) -> TablePath:
    return _opened(place) / path


def _status(entry: Mapping[str, Any]) -> FileStat:
    modified_ns = int(entry["last_modified"].timestamp() * 1e9)
    return FileStat(entry["size"], modified_ns, (entry["e_tag"] or "").strip('"'))


def create_file(target: TablePath, content: bytes) -> None:
    """Write a file where there is none, whole or not at all; FileExistsError where another one is there."""
    if isinstance(target, StorePath):
        target.create(content)
        return
    passing = target.with_name(f".{uuid.uuid4().hex}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with passing.open("wb") as opened:
            opened.write(content)
            opened.flush()
            os.fsync(opened.fileno())  # before it has its name: it is never seen torn
        try:
            os.link(passing, target)  # a rename would replace another writer's
        except OSError:
            # a share may lose the answer to a link that it made, or answer a repeated one with EEXIST
            if not target.exists() or not target.samefile(passing):
                raise
    finally:
        with suppress(OSError):  # what cannot be written cannot be removed either
            passing.unlink()


def spark_path(folder: TablePath) -> str:
    """A table's folder as Spark names it."""
    if isinstance(folder, StorePath):
        return folder.url.hadoop_url
    return str(folder)


def parquet_source(file: TablePath) -> AbstractContextManager[Path | BinaryIO]:
    """A Parquet file as Arrow opens it."""
    return file.open() if isinstance(file, StorePath) else nullcontext(file)


def read_range(file: TablePath, start: int, length: int) -> bytes:
    """Bytes of a file from an offset on; fewer where it ends before. In a store one request."""
    if isinstance(file, StorePath):
        return file.read_range(start, start + length)
    with file.open("rb") as opened:
        opened.seek(start)
        return opened.read(length)
