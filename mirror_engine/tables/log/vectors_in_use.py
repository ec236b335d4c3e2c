"""The deletion vectors of a table, and the data files it no longer has: from its newest checkpoint and commits."""

from __future__ import annotations

import json
from collections import defaultdict
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from mirror_engine.tables.log.log_names import log_file
from mirror_engine.tables.log.record import Removed, commits_in, read_commit
from mirror_engine.tables.log.table_path import LOG_FOLDER, file_in, for_each, parquet_source

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from mirror_engine.tables.log.table_path import TablePath
    from mirror_engine.tables.log.vectors import Descriptor


class VectorsInUse:
    """Deletion vectors of a table's data files; kept with an open log, and updated with its new commits."""

    def __init__(self) -> None:
        self._version = -1
        self._by_path: dict[str, Descriptor] = {}

    def at(self, folder: TablePath, version: int) -> Mapping[str, Descriptor]:
        """The vectors of a version, by their data files' paths as the log spells them.

        Reads the commits after the version that was asked for before; the first time, those after a checkpoint.
        """
        if not 0 <= self._version <= version:
            newest, adds = _in_checkpoint(folder, "add", {"path", "deletionVector"}, version)
            self._by_path = {action["path"]: vector for action in adds if (vector := _described(action))}
            self._version = newest
        versions = range(self._version + 1, version + 1)
        for following, commit in zip(versions, for_each(folder, partial(read_commit, folder), versions), strict=True):
            for path in (*commit.removed, *commit.added):
                self._by_path.pop(path, None)
            self._by_path.update(commit.vectors)
            self._version = following
        return self._by_path


def _in_checkpoint(
    folder: TablePath, kind: str, wanted: Collection[str], until: int | None = None
) -> tuple[int, Iterator[Mapping[str, Any]]]:
    """The newest whole checkpoint, up to a version, and its actions of one kind; -1 for none. The hint may be old."""
    found: dict[tuple[int, int], list[str]] = defaultdict(list)  # by version and number of parts
    for name in sorted(entry.name for entry in (folder / LOG_FOLDER).iterdir()):
        file = log_file(name)
        if file and not file.is_commit and (until is None or file.version <= until):
            found[file.version, file.parts].append(name)
    whole = [
        (version, names if parts else names[:1]) for (version, parts), names in found.items() if len(names) >= parts
    ]
    newest, names = max(whole, default=(-1, []))
    return newest, chain.from_iterable(_actions(folder / LOG_FOLDER, name, kind, wanted) for name in names)


def removed_since(folder: TablePath, version: int, oldest: float) -> Sequence[Removed]:
    """Data files that were removed up to a version, and not before a time (seconds since 1970).

    A checkpoint drops what was removed long ago, by its time alone. So where it has the first of these that a commit
    still tells of, it has all up to its own version, and the commits after it are read; else all that are still there.
    """
    newest, actions = _in_checkpoint(folder, "remove", {"path", "deletionTimestamp", "deletionVector"}, version)
    named = [Removed(action["path"], _described(action), action.get("deletionTimestamp")) for action in actions]
    commits = commits_in(folder)

    def by(versions: Iterable[int]) -> Iterator[Removed]:
        with suppress(FileNotFoundError):  # cleaned up meanwhile
            for commit in for_each(folder, partial(read_commit, folder), versions):
                yield from filter(is_recent, commit.removed.values())

    def is_recent(file: Removed) -> bool:
        return file.deleted_ms is None or file.deleted_ms / 1000 >= oldest

    first = next(by(each for each in commits if each <= newest), None)
    has_all = first is None or first in named
    return [*filter(is_recent, named), *by(each for each in commits if newest < each <= version or not has_all)]


def _described(action: Mapping[str, Any]) -> Descriptor | None:
    """An action's vector, as a commit has it."""
    vector = action.get("deletionVector")
    return {name: value for name, value in vector.items() if value is not None} if vector else None


def _actions(log: TablePath, name: str, kind: str, wanted: Collection[str]) -> Iterator[Mapping[str, Any]]:
    """The actions of one kind in a file of a checkpoint, and in the sidecars that it names."""
    file = file_in(log, name)
    if name.endswith(".json"):
        actions = [json.loads(line) for line in file.read_bytes().splitlines()]
        sidecars = [action["sidecar"]["path"] for action in actions if "sidecar" in action]
        yield from (action[kind] for action in actions if kind in action)
    else:
        with parquet_source(file) as source, pq.ParquetFile(source) as parquet:
            fields = {field.name: field.type for field in parquet.schema_arrow}
            found = parquet.read(["sidecar.path"])["sidecar"].drop_null().to_pylist() if "sidecar" in fields else []
            sidecars = [sidecar["path"] for sidecar in found]
            if kind in fields:
                columns = [f"{kind}.{field.name}" for field in fields[kind] if field.name in wanted]
                for batch in parquet.iter_batches(columns=columns):
                    yield from batch.column(kind).drop_null().to_pylist()
    for path in sidecars:
        yield from _actions(log, f"_sidecars/{path}", kind, wanted)
